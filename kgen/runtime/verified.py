"""Plans of launches, held to their rules where they are made: what breaks one is a bug of kgen's, and raises `Broken`.

A launch that no device takes, or that leaves out an element, is found here, on any machine.  Plans are kept, so this runs once for each;
it looks at the plan's few numbers, never at elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from kgen.backends.cuda_layouts import FLAT, TINY, TOLD
from kgen.backends.launches import LATER, STAGED
from kgen.backends.shared import MAX_STATIC
from kgen.ir import Broken
from kgen.runtime.limits import INT_MAX, MAX_THREADS, UINT_MAX, Limits
from kgen.runtime.strided import MOST_MARKED, RELEASES, STRADDLES, dense

if TYPE_CHECKING:
    from kgen.runtime.maps import Plan
    from kgen.runtime.rounds import RoundsPlan
    from kgen.runtime.rows import RowPlan
    from kgen.runtime.strided import RowOperandPlace


def verify_rows(
    plan: RowPlan, operands: Sequence[RowOperandPlace], static: int, limits: Limits, reductions: int, stores: bool, splits: bool,
    beside: int = 0,
) -> None:  # fmt: skip
    """Hold a pass over rows to its rules, each of them one line below.  `static` is the kernel's own shared memory in bytes; `splits`
    whether what a launch writes is read by none after it; `beside` the bytes of an element that stay with what is held."""
    walk = plan.steps[0][0]
    threads, team = plan.threads, walk.team or plan.threads

    def hold(ok: bool, rule: str) -> None:
        if not ok:
            raise Broken(f"{rule}\n{plan}\n{operands}")

    # What the device takes.
    whole = threads % 32 == 0 or walk.across
    hold(whole and 0 < threads <= walk.threads <= MAX_THREADS, "a block has whole warps, no more than it is compiled for")
    hold(1 <= walk.blocks <= 32 and walk.blocks * walk.threads <= 2048, "a multiprocessor has room for the blocks that are promised")
    cached = walk.step < -1
    cluster = plan.segments if walk.cluster and not cached else 2
    hold(2 <= cluster <= max(2, limits.cluster), "a cluster has at least two blocks, and no more than the device allows")
    hold(static <= MAX_STATIC and static + plan.shared <= limits.shared, "a block's shared memory is no more than the device has")
    few = walk.rank > 1 and len(operands) <= MOST_MARKED and walk.wide & RELEASES
    released = [k for k, o in enumerate(operands) if few and o.kept and plan.strides[k][-1] == 0]
    hold(not any(operands[k].state or operands[k].lends for k in released), "what lends its place stays on the chip")
    held = beside + sum(o.itemsize for k, o in enumerate(operands) if o.kept and o.element and o.itemsize and k not in released)
    needed = threads * walk.vectors * walk.vec * held if walk.keep == 2 else 0
    if walk.keep == STAGED:
        needed = _verify_staged(plan, walk, operands, hold)
    hold(plan.shared == needed, "a row's vectors have the shared memory that they take")
    # Who takes a row.
    hold(team & (team - 1) == 0 or walk.team == 0, "a team is a power of two, or a block")
    hold(threads % team == 0 and (walk.across or team <= 32 or team == threads), "a team beyond a warp is a block")
    hold(walk.team == 0 or walk.across or threads == walk.threads, "only a team that is a block of any size has fewer threads")
    hold(not (walk.keep and walk.segments) and not (walk.cluster and walk.segments), "what stays on the chip is one piece a block")
    hold(walk.keep in (0, 1, 2, STAGED) and (not walk.cluster or walk.keep == 2), "a cluster holds a row in shared memory")
    # Each element once.
    chunks = plan.n // walk.vec
    hold(plan.n == prod(plan.sizes) and plan.rows == prod(plan.row_sizes), "merged dims have all elements")
    if walk.segments or walk.cluster:
        hold(plan.span > 0 and plan.segments * plan.span >= chunks, "segments have all vectors")
        hold(plan.segments == 1 or (plan.segments - 1) * plan.span < chunks, "no segment is empty")
    else:
        hold(plan.segments == 1 and plan.span >= chunks, "a row in one piece is one segment")
    hold(walk.segments or min(plan.span, chunks) <= team * walk.vectors, "a team takes all vectors of a piece")
    loose = 0 if not walk.edges else 1 if walk.team == 0 else (2 * walk.vec - 3 + team) // team
    hold(loose * team >= min(plan.n, 2 * walk.vec - 2) or not walk.edges, "a team takes the elements outside of whole vectors")
    hold(walk.edges or plan.n % walk.vec == 0, "a row without edges is whole vectors")
    steps = [w.step for w, _ in plan.steps]
    if cached:
        told, parts = 1 + reductions * plan.rows * plan.slot + -(-reductions * plan.rows // 2), plan.rows * plan.segments * plan.slot
        turns = (reductions + 1) * (plan.rows * plan.segments + reductions * (plan.segments + LATER))
        hold(steps == [-2 * reductions, -1 - 2 * reductions], "what blocks tell one another of a row is cleared before")
        hold(stores and splits and team == threads, "a row whose readings follow one another is read again, as it was")
        hold(plan.steps[0][1] > 0 and plan.steps[1][1] == turns, "each segment of a row has a turn in each reading")
        hold(plan.work >= 8 * told + 4 * parts, "what blocks tell one another of a row has room")
        return _verify_memory(plan, walk, operands, hold)
    if walk.abreast:
        beside, first = -(-plan.rows // walk.abreast // (threads // team)), walk._replace(step=-1, abreast=0, wide=0)
        second = plan.steps[1][0] if len(plan.steps) > 1 else walk
        teams = threads // team if second.across else second.threads // second.team
        grids = [beside * plan.segments, -(-plan.rows // teams), beside * -(-chunks // (team * walk.vectors))]
        hold(reductions == 1 and walk.across and walk.segments == (walk.keep == 0), "rows abreast have one reading that reduces")
        hold(splits or walk.keep == 1, "a row is split where no launch reads what one before it wrote")
        apart = [(0, walk.abreast, grids[0]), (1, 0, grids[1]), (2, walk.abreast, grids[2])]
        launches = [(-1, walk.abreast, beside)] if walk.keep else apart[: 2 + stores]
        hold([(w.step, w.abreast, n) for w, n in plan.steps] == launches, "rows abreast have a launch for a reading, and one between")
        hold(second.across or second.team == 32, "segments are combined by as many threads as have them, or by a warp")
        combining = first._replace(threads=second.threads, team=second.team, across=second.across)
        own = [w._replace(step=-1, abreast=0, wide=0) == (combining if w.step == 1 else first) for w, _ in plan.steps]
        hold(all(own), "the launches of rows abreast walk alike")
        hold(plan.row_sizes[-1] % walk.abreast == 0, "a thread has as many rows as others")
        for k in (k for k in range(len(operands)) if walk.wide >> k & 1):
            begins = (*plan.strides[k], *plan.row_strides[k][:-1], operands[k].address // operands[k].itemsize)
            hold(plan.row_strides[k][-1] == 1 and not any(s % walk.abreast for s in begins), "rows abreast lie in aligned vectors")
            hold(operands[k].itemsize * walk.abreast <= 16, "16 bytes at most move at once")
        hold(plan.work >= 4 * plan.slot * plan.rows * (plan.segments + 1) or walk.keep == 1, "segments' results have work space")
        return _verify_memory(plan, walk._replace(wide=0), operands, hold)
    groups = -(-plan.rows // (threads // team))
    split = len(plan.steps) > 1 or steps[0] >= 0
    pieces = [1 if step % 2 and step > 0 or step < 0 and not walk.cluster else plan.segments for step in steps]
    grids, last = [grid for _, grid in plan.steps], plan.steps[-1][0]
    if stores and split and (last._replace(step=-1), grids[-1]) != (walk._replace(step=-1), groups * plan.segments):
        hold(grids[-1] % plan.rows == 0 and last.team == last.threads, "each row has as many blocks that store it")
        alike = walk._replace(step=last.step, threads=last.threads, blocks=last.blocks, team=last.team, vectors=last.vectors)
        hold(last == alike, "what stores a row walks it in the same vectors")
        grids, pieces = grids[:-1], pieces[:-1]
    hold(grids == [groups * n for n in pieces], "a launch has blocks for each group of rows")
    # Launches after one another.
    hold(not split or splits and reductions > 0, "a row is split where no launch reads what one before it wrote")
    wanted = list(range(2 * reductions + stores)) if split else [-1]
    hold(steps == wanted, "a split row takes a launch for each reading, and more")
    shared = plan.steps[: len(grids)]
    hold(all(w._replace(step=-1) == walk._replace(step=-1) for w, _ in shared), "the launches of a row walk it alike")
    hold((plan.work > 0) == split, "the launches of a split row have work space")
    _verify_memory(plan, walk, operands, hold)


def verify_rounds(
    plan: RoundsPlan, operands: Sequence[RowOperandPlace], static: int, limits: Limits, reductions: int, columns: int, depth: int
) -> None:
    """Hold a pass over rows that adds up columns to its rules.  `static` is the kernel's own shared memory in bytes, `columns` the 32-bit
    words of an element's sums, `depth` the additions that a column's value passes through."""
    under, walk = plan.under, plan.under.steps[0][0]
    threads, team = under.threads, walk.team or under.threads

    def hold(ok: bool, rule: str) -> None:
        if not ok:
            raise Broken(f"{rule}\n{plan}\n{operands}")

    stages = walk.stages or 0
    moving = [o.itemsize for o in operands if o.element and o.read and o.row_dims]
    size = (walk.threads * walk.vectors + 2 * walk.vec * walk.edges) * walk.vec * sum(moving)
    chunks = under.n // walk.vec
    split = walk.segments
    # What the device takes.
    hold(threads % 32 == 0 and 0 < threads <= walk.threads <= MAX_THREADS, "a block has whole warps, no more than it is compiled for")
    hold(1 <= walk.blocks <= 32 and walk.blocks * walk.threads <= 2048, "a multiprocessor has room for the blocks that are promised")
    hold(not walk.cluster or 2 <= under.segments <= limits.cluster, "a cluster has at least two blocks, and no more than the device allows")
    lead = walk.threads * walk.vectors * walk.vec * max(moving, default=0) if stages == 1 else 0
    shared = static + stages * size + lead + plan.room
    hold(stages > walk.edges, "beside one row and another of one operand there are no edges of more")
    hold(static <= MAX_STATIC and shared <= limits.shared, "a block's shared memory is no more than the device has")
    # Who takes a row.
    hold(team & (team - 1) == 0 or walk.team == 0, "a team is a power of two, or a block")
    hold(threads % team == 0 and (walk.across or team <= 32 or team == threads), "a team beyond a warp is a block")
    hold(walk.team == 0 or walk.across or threads == walk.threads, "only a team that is a block of any size has fewer threads")
    hold(walk.edges or under.n % walk.vec == 0, "a row without edges is whole vectors")
    alike = plan.every % walk.vec == 0 or plan.every >= under.rows
    hold(not walk.edges or (alike and len(under.row_sizes) == 1 and team >= 2 * walk.vec), "a team's rows begin alike")
    hold(under.n == prod(under.sizes) and under.rows == prod(under.row_sizes), "merged dims have all elements")
    hold(under.segments * under.span >= chunks, "segments have all vectors")
    hold(under.segments == 1 or (under.segments - 1) * under.span < chunks, "no segment is empty")
    hold(min(under.span, chunks) <= team * walk.vectors, "a team takes all vectors of a piece")
    # Each row once, each column whole.
    teams = threads // team
    hold(plan.every == plan.groups * teams and (plan.groups > 0 or under.rows == 0), "a round has a row for each team")
    hold(plan.groups <= -(-under.rows // teams), "no group has no row")
    hold(plan.few > 0 and depth <= 64 + under.rows.bit_length(), "a column's values pass through few additions")
    main = [step for step in plan.launches if step[0].stages == stages]
    hold(len(main) == (under.rows > 0), "rows are gone through once")
    hold(all(step[1] == plan.groups * under.segments for step in main), "a launch has blocks for each group of rows")
    steps = [step[0].step for step in plan.launches if step[0].stages == 0]
    hold(steps == (list(range(2 * reductions)) if split else []), "a split row takes two launches for each reading")
    alone = split and plan.every == 1
    ends = sum(step[0].stages == -1 for step in plan.launches)
    behind = columns > 0 and under.n > 0 and not alone
    hold(ends == behind, "what follows from columns is stored once, by the one team that has all rows or by a last launch")
    hold(plan.work >= 4 * (plan.columns + columns * under.n * plan.every), "the partials have work space")
    _verify_memory(under, walk, operands, hold)


def _verify_staged(plan: RowPlan, walk: Any, operands: Sequence[RowOperandPlace], hold: Any) -> int:
    """Rows that move as one piece of a block: these are 16-byte vectors, and no gaps.  The bytes of shared memory that they take."""
    teams, needed = walk.threads // walk.team, walk.team * walk.vectors * walk.vec * 8
    hold(walk.team * walk.vectors * walk.vec < plan.n + walk.team * walk.vec, "each of a thread's vectors but its last is a row's")
    hold(walk.rank == 1 and not walk.edges and walk.step == -1, "a staged row is one dim of whole vectors")
    for k, o in enumerate(operands):
        if walk.wide >> 32 + k & 1:
            dense = tuple(plan.n * prod(plan.row_sizes[d + 1 :]) for d in range(len(plan.row_sizes)))
            alike = plan.strides[k] == (1,) and (plan.row_strides[k] == dense or plan.rows == 1)
            hold(o.element and alike, "the rows of a piece follow one another without gaps")
            hold(o.address == 0 and teams * plan.n * o.itemsize % 16 == 0, "a block's piece begins with 16 bytes")
            needed += -(-teams * plan.n * o.itemsize // 16) * 16 * (1 + o.state)
        elif o.kept and o.element and o.itemsize:
            needed += walk.threads * walk.vectors * walk.vec * o.itemsize
        if walk.vec > 1 and walk.wide >> k & 1:
            begins = (o.address // o.itemsize, *plan.row_strides[k])
            hold(plan.strides[k] == (1,) and not any(at % walk.vec for at in begins), "an operand in vectors is aligned")
    return needed


def _verify_memory(plan: RowPlan, walk: Any, operands: Sequence[RowOperandPlace], hold: Any) -> None:
    """Indices are wide enough, and vectors whole and aligned."""
    far = [plan.rows, plan.n, plan.rows * plan.segments]
    for inner, outer in zip(plan.strides, plan.row_strides, strict=True):
        far.append(sum((n - 1) * s for n, s in (*zip(plan.sizes, inner, strict=True), *zip(plan.row_sizes, outer, strict=True))))
    hold(walk.index64 or max(far) + 2**17 <= UINT_MAX, "an index has the bits for every place")
    if walk.keep == STAGED:
        return
    hold(walk.vec == 1 or walk.vec in (2, 4, 8, 16) and walk.wide >> walk.main & 1 == 1, "the main operand moves in vectors")

    def place(k: int) -> int:
        return operands[k].address // operands[k].itemsize

    main = walk.main
    if operands and operands[main].element and operands[main].itemsize:
        hold(plan.misaligned == place(main) % walk.vec, "a row's vectors begin where the operand's do")
    over = walk.rank > 1 and len(operands) <= MOST_MARKED and bool(walk.wide & STRADDLES)
    hold(not over or 1 < walk.vec <= plan.sizes[-1], "a vector goes over the end of one run of elements at most")
    for k, o in enumerate(operands):
        own = plan.strides[k]
        if over:
            still = not o.element or (o.itemsize > 0 and own[-1] == 0) or not (o.read or o.row_dims)  # or is stored at the end
            known = own[-1] == 1 and dense(plan.sizes, own) if walk.wide >> 32 + k & 1 else still
            hold(known, "an operand's dims are one, or it stands still")
        elif walk.vec > 1 and len(operands) < 32 and walk.wide >> 32 + k & 1:
            hold(dense(plan.sizes, own) if walk.wide >> k & 1 else own[-1] == 0, "an even operand's dims are one, or it stands still")
        if walk.vec == 1 or not walk.wide >> k & 1:
            continue
        hold(o.element and 0 < o.itemsize * walk.vec <= 16, "16 bytes at most move at once")
        hold(own[-1] == 1 and not any(s % walk.vec for s in own[:-1] if not over), "a vector's elements are neighbours")
        hold(walk.rank == 1 or over or plan.sizes[-1] % walk.vec == 0, "a vector lies in one run of elements")
        apart = [place(k) - place(main), *(a - b for a, b in zip(plan.row_strides[k], plan.row_strides[main], strict=True))]
        hold(not any(s % walk.vec for s in apart), "operands in vectors are aligned alike")
    if not walk.edges and walk.vec > 1:
        begins = (place(main), *plan.row_strides[main])
        hold(not any(at % walk.vec for at in begins), "a row begins with a vector")


def verify_map(
    plan: Plan, sizes: Sequence[int], strides: Sequence[Sequence[int]], itemsizes: Sequence[int], addresses: Sequence[int],
    otherwise: int = 0,
) -> None:  # fmt: skip
    """Hold a pass over elements to its rules: each of them once, in aligned vectors, by indices that are wide enough."""
    rank, vec, wide, splat, rows = plan.variant

    def hold(ok: bool, rule: str) -> None:
        if not ok:
            raise Broken(f"{rule}\n{plan}\n{list(zip(strides, itemsizes, addresses, strict=True))}")

    last = [sum((n - 1) * s for n, s in zip(plan.sizes, own, strict=True)) for own in plan.strides]
    hold(plan.n == prod(plan.sizes) == prod(sizes) and rank == len(plan.sizes), "merged dims have all elements")
    ends = [sum((n - 1) * s for n, s in zip(sizes, own, strict=True)) for own in strides]
    hold(last == ends, "merged dims end where the dims do")
    hold(wide or max(plan.n + 128 * vec, *last) <= UINT_MAX + 1, "an index has the bits for every place")
    if splat >= FLAT:
        known = splat & TOLD != TOLD
        for k, own in enumerate(plan.strides if known else ()):
            still = own[-1] in (0, 1) and bool(splat >> k & 1) == (own[-1] == 0)
            hold(still or not otherwise >> k & 1, "a flat vector's operands stand still or move by one")
        hold(not known or (splat & TOLD == TINY) == (plan.sizes[-1] < vec), "rows are shorter than a vector, or not, as the kernel has it")
        dense = tuple(prod(plan.sizes[d + 1 :]) for d in range(rank))
        hold(max(plan.n, *last) <= INT_MAX and rows == 1 and otherwise > 0, "a step from an element to a neighbour has 31 bits")
        for k, (own, itemsize, address) in enumerate(zip(plan.strides, itemsizes, addresses, strict=True)):
            aligned = 0 < vec * itemsize <= 16 and address % (vec * itemsize) == 0
            hold(bool(otherwise >> k & 1) or own == dense and aligned, "a flat vector is neighbours of every operand, aligned")
        return
    moving = [size for size, own in zip(itemsizes, plan.strides, strict=True) if own[-1] != 0]
    hold(vec & (vec - 1) == 0 and vec * max((1, *moving)) <= 16, "16 bytes at most move at once")
    anywhere = rank == 2 or vec == 1 or plan.spans
    hold(rows == 1 or plan.pieces or plan.under or anywhere and plan.sizes[-2] % rows == 0, "each thread has as many rows")
    shared = plan.sizes[-1] % (rows * vec) == 0 or plan.sizes[-2:][0] % rows == 0
    hold(not plan.pieces or rows > 1 and shared, "a thread has whole pieces, or rows")
    hold(vec == 1 or rank == 1 or plan.spans or plan.sizes[-1] % vec == 0, "a vector lies in one run of elements")
    for k, (own, itemsize, address) in enumerate(zip(plan.strides, itemsizes, addresses, strict=True)):
        if vec == 1 or plan.spans:  # whose kernel looks where its lines begin
            break
        hold(own[-1] in (0, 1) and bool(splat >> k & 1) == (own[-1] == 0), "an operand moves by one along a vector, or stands still")
        if own[-1] == 1 and itemsize:
            hold(address % (vec * itemsize) == 0 and not any(s % vec for s in own[:-1]), "a vector is aligned")
