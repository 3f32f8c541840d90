"""How a pass over rows is launched on a CUDA device.

In: the sizes and strides of its operands.  Out: the kernel's template arguments (`Walk`), its layout argument (`Rows`), and
the launches: their grids, their clusters and their shared memory.

What decides the order in which a row is combined (the threads of a team, the vectors of each, the length of a segment) follows
from the row's length, its strides and its alignment; how many rows there are decides only who does it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from math import prod
from typing import NamedTuple

from kgen.backends import devices, launches
from kgen.backends.devices import Limits
from kgen.backends.launches import CROWDED, FEW_LONG_ROWS, FEW_ROWS, LONG_ROW, MAX_SHARED, MOST_ABREAST, SECTOR, STAGED, Rule, Step
from kgen.backends.shared import MAX_STATIC, declared
from kgen.runtime import strided
from kgen.runtime.strided import FAR, RELEASES, STRADDLES, RowOperandPlace
from kgen.runtime.verified import verify_rows


class Walk(NamedTuple):
    """The template arguments of the source's `Walk`, in order; `stages` are those of `Rounds` around it, where there is one, `abreast` the
    rows that a thread takes together (0: one, in another order)."""

    threads: int
    blocks: int
    team: int
    across: bool
    vectors: int
    vec: int
    edges: bool
    wide: int
    main: int
    segments: bool
    keep: int
    cluster: bool
    step: int
    row_rank: int
    rank: int
    operands: int
    gathers: int
    index64: bool
    stages: int | None = None
    abreast: int = 0

    def roomy(self, sizes: Sequence[int]) -> tuple[int, int]:
        """The blocks, of which there may be fewer, and a thread's vectors of 16 bytes, by the `sizes` of operands' elements."""
        return self.blocks, max(1, -(-self.vectors * self.vec * (sizes[self.main] if sizes else 0) // 16))

    def text(self) -> str:
        values = [str(int(v)) for v in self[:17]]
        for k in (3, 6, 9, 11):
            values[k] = str(bool(self[k])).lower()
        values[7] += "ull" if self.wide > 2**31 else ""
        side = ["1", "0", str(self.abreast)] if self.abreast else []
        walk = f"Walk<{', '.join([*values, 'u64' if self.index64 else 'unsigned', *side])}>"
        return walk if self.stages is None else f"Rounds<{walk}, {self.stages}>"


@dataclass(frozen=True)
class RowPlan:
    """The launches of a pass over rows (`steps`: a way of walking and its grid), and the merged dims, outermost first."""

    steps: tuple[tuple[Walk, int], ...]
    rows: int
    n: int
    segments: int
    span: int
    misaligned: int
    slot: int  # 32-bit words of work for a segment's result
    row_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    row_strides: tuple[tuple[int, ...], ...]
    strides: tuple[tuple[int, ...], ...]
    threads: int
    shared: int = 0
    work: int = 0  # bytes

    @property
    def launches(self) -> tuple[tuple[Walk, int, int, int, int], ...]:
        """Each launch's way of walking, its grid, the threads of a block (those that the rows leave it, where it walks as the first one
        does), its shared memory and the blocks of a cluster."""
        first = self.steps[0][0]
        cluster = self.segments if first.cluster and first.step == -1 else 1
        threads = (min(self.threads, walk.threads) if walk.across == first.across else walk.threads for walk, _ in self.steps)
        return tuple((walk, grid, own, self.shared, cluster) for (walk, grid), own in zip(self.steps, threads, strict=True))

    def layout(self, gathers: Sequence[tuple[int, int]]) -> ctypes.Structure:
        """The kernel's layout argument; see `layout`."""
        return layout(self, gathers, 0)


@dataclass(frozen=True)
class Team:
    """Who takes a row: a team of threads with some vectors each, in one piece or in segments of `span` vectors."""

    threads: int
    blocks: int
    team: int
    vectors: int
    keep: int = 0
    span: int = 0
    across: bool = False
    cluster: int = 0
    most: int = 0  # threads of a block that the kernel is compiled for, where a team is a block of any size
    cached: bool = False  # whether blocks take the segments of a row in all readings in one launch, each in shared memory
    abreast: int = 0  # rows that a thread takes together, if it does
    room: int = 0  # threads by which shared memory is counted then
    piece: int = 0  # bytes that a block's rows take which move as one piece

    def static(self, words: int, readings: int) -> int:
        """The bytes at most of the kernel's own shared memory."""
        if self.abreast:
            return 4 * words * self.room
        return declared(self.most or self.threads, self.team, self.across, self.cluster > 0 or self.cached, words, readings)

    def dynamic(self, size: int) -> int:
        """The bytes of the rows that a block holds in shared memory, where a vector takes `size`."""
        return self.piece if self.keep == STAGED else self.threads * self.vectors * size if self.keep == 2 else 0

    def fits(self, size: int, words: int, readings: int, limits: Limits) -> bool:
        """Whether a device has the memory and the clusters that it asks for."""
        static, dynamic = self.static(words, readings), self.dynamic(size)
        allowed = dynamic <= MAX_SHARED and static <= MAX_STATIC and static + dynamic <= limits.shared
        return allowed and (not self.cluster or 2 <= self.cluster <= limits.cluster)


def plan(
    row_sizes: tuple[int, ...],
    inner_sizes: tuple[int, ...],
    operands: tuple[RowOperandPlace, ...],
    gathers: int,
    reductions: int,
    stores: bool,
    words: int,
    limits: Limits,
    splits: bool,
    ladder: tuple[Step, ...] = (),
    long: int | None = None,
    pieces: bool = False,
    beside: int = 0,
    dear: bool = False,
    abreast: int = 0,
    becomes_bytes: bool = False,
) -> RowPlan | None:
    """How to walk a pass over rows; None if it has no row.

    `limits` are the device's, `splits` says whether blocks may share a row through several launches; `ladder` has the steps measured
    for the device (`tuned.py`), none where it was not.  `long` counts the readings that reduce of a row that does not stay on the chip
    (None: as many as `reductions`); with `pieces` the dims of a row keep their order; of an element `beside` bytes stay on the chip with
    what is held, for which a thread's registers have little room; `dear`: elements take many instructions; `abreast`: up to
    how many elements of a row a thread may take rows that lie side by side together; `becomes_bytes`: all that is stored of a row's wider
    elements are bytes.  kgen_plan.cuh is this function in C++, for the host part of written files.
    """
    rows, n = prod(row_sizes), prod(inner_sizes)
    if rows == 0:
        return None
    memory = [k for k, o in enumerate(operands) if o.element and o.itemsize]
    main = strided.main_of(operands, memory)
    sizes, strides = strided.merged(inner_sizes, [o.strides for o in operands], main, ordered=pieces)
    outer_sizes, outer = strided.merged(row_sizes, [o.row_strides for o in operands], main)
    staged = None if pieces or not reductions else _staged(operands, memory, main, sizes, strides, outer_sizes, outer, limits.shared)
    vectors = strided.vectors if pieces or gathers else strided.straddling
    vec, edges, wide = staged[1:4] if staged else vectors(operands, memory, main, sizes, strides, outer, n)
    far = strided.furthest(rows, n, sizes, strides, outer_sizes, outer) > FAR
    chunks = n // vec  # whole vectors, wherever the row begins within one
    released = strided.released(operands, vec, wide, sizes, strides) if not pieces else frozenset[int]()
    wide |= RELEASES if released else 0
    held = [operands[k].itemsize for k in memory if operands[k].kept and k not in released]
    step = strides[main][-1]
    read = [operands[k].itemsize for k in memory if operands[k].read]
    beside_others = splits and n <= abreast and step > 1  # by declaration the neighbours of its elements are of other rows
    narrow = _narrow(step * operands[main].itemsize, n, held or read) if beside_others and not staged else None
    apart = bool(memory) and step != 0 and (narrow is not None or step * operands[main].itemsize >= SECTOR)
    rowed = any(o.row_dims for o in operands) or not reductions  # else all is one row, which many blocks must share
    # How many rows there are, and so whether they do begin elsewhere, may not tell.
    parameters = sum(operands[k].read and not operands[k].row_dims and strides[k][-1] == 1 for k in memory)
    kinds = ladder if _measured(vec, held, read) and rowed else ()
    whole = vec > 4 and n % vec == 0
    known = [rule for rule in map(launches.measured, kinds) if not (rule.alone and parameters) and (whole or not rule.whole)]
    ends = known and n % vec and len(sizes) == 1 and not pieces
    before = _ending(launches.kind(bool(held), reductions, words, becomes_bytes), reductions, vec, parameters) if ends else []
    before = [*launches.DEAR, *before] if known and dear and held and reductions else before
    before = [*launches.SHIFTED, *before] if known and n % vec and parameters > 1 and reductions > 1 else before
    before = [*launches.SEVERAL_DIMS, *before] if known and len(sizes) > 1 and vec > 4 and reductions > 1 else before
    before = [*launches.STRADDLED, *before] if known and wide & STRADDLES and reductions > 1 else before
    known, before = ([rule for rule in some if not crowds(rule, vec, beside)] for some in (known, before))
    size, most = vec * (sum(held) + beside), limits.cluster if reductions else 0
    long = reductions if long is None else long
    rules = [r for r in launches.RULES[apart, bool(held)] if r.readings <= reductions and not (r.alone and parameters) and dear >= r.dear]
    rules = [rule for rule in rules if not crowds(rule, vec, beside)]
    # What a row of several dims comes to is all that is stored.
    if splits and not stores and not pieces and len(sizes) > 1 and not (apart or wide & STRADDLES):
        moving = [operands[k].itemsize for k in memory if operands[k].read and strides[k][-1] != 0]
        several = held and reductions > 1 and chunks * size > launches.SCATTERED_ABOVE
        first = launches.SCATTERED if several else [] if held else _scattered(n * sum(read), reductions, vec, sizes[-1], moving)
        known, before, rules = ([], [], [*first, *rules]) if first else (known, before, rules)
    shares = bool(splits and stores and not pieces and most)
    together = side_by_side(operands, memory, main, strides, outer_sizes, outer) if n <= abreast and apart and splits else (0, 0, 0)
    before, known = ([], []) if apart else (before, known)
    teams = _teams(before, known, rules, chunks, vec, edges, held, read, apart, most > 0, beside, shares, together[:2])
    teams = chain([_abreast(narrow, *together[:2])], teams) if narrow else teams
    team = staged[0] if staged else next(t for t in teams if t.fits(size, words, reductions, limits._replace(cluster=most)))
    if team.across and team.team > 1:  # no more teams than rows; who takes a row does not change how it is combined
        count = rows // (team.abreast or 1)
        team = replace(team, threads=team.team * min(team.threads // team.team, 1 << (count - 1).bit_length()))
    if team.span == launches.SEGMENT and not (team.across or team.cluster) and words > launches.FEW_WORDS:
        team = replace(team, span=2 * team.span)  # to combine threads' parts takes long
    span = team.span or max(chunks, 1)
    segments = max(1, -(-chunks // span)) if team.span else 1
    index64 = far or rows * segments > FAR
    # Where a block has as many threads as it is compiled for, the places of its rows in shared memory are constants to the kernel.
    constant = team.keep == 2 and team.threads == team.most and team.threads & (team.threads - 1) == 0
    walk = Walk(
        team.most or team.threads, team.blocks, team.threads if constant else team.team, team.across, team.vectors, vec, edges, wide, main,
        bool(team.span and not team.cluster), team.keep, bool(team.cluster), -1,
        len(outer_sizes), len(sizes), len(operands), max(1, gathers), index64,
    )  # fmt: skip
    walk = walk._replace(segments=False, cluster=True) if team.cached else walk
    groups = -(-rows // (team.threads // (team.team or team.threads)))
    least = launches.SEGMENT_APART if team.across else launches.SEGMENT
    misaligned = (operands[main].address // operands[main].itemsize) % vec if memory else 0
    steps, work = [(walk, groups)], 0
    if team.cluster:
        steps = [(walk, groups * segments)]
    elif team.cached:
        told = 1 + long * rows * words + -(-long * rows // 2)  # of 8 bytes, which are cleared
        turns = (long + 1) * (rows * segments + long * (segments + launches.LATER))
        clearing = min(launches.CLEARING, -(-told // team.threads))
        steps = [(walk._replace(step=-2 * long), clearing), (walk._replace(step=-1 - 2 * long), turns)]
        work = 8 * told + 4 * words * rows * segments + 4
    elif team.abreast:
        own, groups_abreast = walk._replace(wide=together[2], abreast=team.abreast), -(-rows // team.abreast // (team.threads // team.team))
        steps = [(own, groups_abreast)]
        if team.span:
            pieces_of_row = -(-chunks // (team.team * team.vectors))
            threads, width = launches.COMBINING
            combining = walk._replace(step=1), groups
            if segments >= launches.MANY_PARTS:
                combining = walk._replace(threads=threads, team=width, across=False, step=1), -(-rows // (threads // width))
            steps = [(own._replace(step=0), groups_abreast * segments), combining]
            steps += [(own._replace(step=2), groups_abreast * pieces_of_row)] * stores
            work = 4 * words * rows * (segments + long)
    elif segments > 1 and groups < (FEW_ROWS if chunks < LONG_ROW * least else FEW_LONG_ROWS) and reductions and splits:
        steps = [(walk._replace(step=k), groups if k % 2 else groups * segments) for k in range(2 * long + stores)]
        work = 4 * words * rows * (segments + long)
        if stores and team.threads == team.team and not (team.across or pieces):  # who stores an element does not change it
            threads, taken, blocks = launches.STORING
            last = walk._replace(threads=threads, blocks=blocks, team=threads, vectors=taken, step=2 * long)
            steps[-1] = last, rows * max(1, -(-chunks // (threads * taken)))
    made = RowPlan(
        tuple(steps), rows, n, segments, span, misaligned, words, outer_sizes, sizes, outer, strides, team.threads, team.dynamic(size), work
    )  # fmt: skip
    verify_rows(made, operands, team.static(words, reductions), limits, long, stores, splits, beside)
    return made


def crowds(rule: Rule, vec: int, beside: int) -> bool:
    """Whether a thread's registers have no room for what stays beside a row's elements, of so many bytes each."""
    return rule.where == "registers" and rule.vectors * vec * beside > CROWDED


class Shared(NamedTuple):
    """How a contiguous row is shared out where its length is known: `team` threads of `threads` take one, `vectors` of `vec` elements
    each; `held` in registers, else read anew each time; `wished` is what the planner would do then if it could: "shared" or "cluster"."""

    threads: int
    team: int
    vectors: int
    vec: int
    held: bool
    wished: str


def along(n: int, vec: int, held: Sequence[int], read: Sequence[int], reductions: int, words: int) -> Shared:
    """How a row of `n` elements is walked in vectors of `vec`, which it is a multiple of, on an sm_90: as `plan` has it, but in one
    launch of blocks that each have their rows to themselves, without a row in shared memory."""
    arch, chunks = "sm_90", n // vec
    steps = launches.SHIPPED[arch][launches.kind(bool(held), reductions, words)] if _measured(vec, held, read) else ()
    ladder = [launches.measured(step) for step in steps if not step.whole]
    clusters = bool(reductions and devices.limits(arch).cluster)
    rules = [r for r in launches.RULES[False, bool(held)] if r.readings <= reductions]
    teams = [*_teams((), ladder, rules, chunks, vec, False, held, read, False, clusters)]
    first, team = teams[0], next(t for t in teams if t.keep < 2 and not t.cluster)
    wished = "" if first is team or team.keep == 1 else "cluster" if first.cluster else "shared"
    return Shared(team.threads, team.team or team.threads, team.vectors, vec, team.keep == 1, wished)


def _measured(vec: int, held: Sequence[int], read: Sequence[int]) -> bool:
    """Whether ladders say how such rows go: in vectors, of one operand that is held or that alone is read."""
    return vec > 1 and len(held) <= 1 and (len(held) == 1 or len(read) == 1)


def _staged(
    operands: Sequence[RowOperandPlace], memory: Sequence[int], main: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]],
    outer_sizes: tuple[int, ...], outer: Sequence[tuple[int, ...]], shared: int,
) -> tuple[Team, int, bool, int] | None:  # fmt: skip
    """Who takes rows that are short and no whole 16-byte vectors, and as `strided.vectors` in what they move: each operand whose rows
    follow one another without gaps as one piece for a block, others a vector at a time; how a row is combined is the same wherever it
    lies.  None for other rows, and where a device has too little shared memory."""
    if not memory or strides[main][-1] != 1 or len(sizes) > 1 or len(operands) > 16:
        return None
    (n,), moving = sizes, [k for k in memory if strides[k][-1] == 1]
    widest = 16 // max(operands[k].itemsize for k in moving)
    vec = strided.narrower(widest, (n,))
    few = n < launches.STAGED_LEAST or n // vec < launches.STAGED_VECTORS
    if vec == widest or few or n > launches.STAGED_MOST:
        return None
    rows = [k for k in moving if operands[k].row_dims]
    words = sum(max(1, vec * operands[k].itemsize // 4) for k in rows if operands[k].kept) or 1
    most = min(launches.STAGED_ELEMENTS[16 // widest] // vec, launches.STAGED_WORDS // words)
    found = next(((1 << k, -(-n // (vec << k))) for k in range(6) if n <= most * vec << k), None)
    if found is None:
        return None
    (team, vectors), threads = found, launches.staged_threads(found[0])
    teams = threads // team

    def piece(k: int) -> bool:
        alike = outer_sizes == (1,) or all(step == n * prod(outer_sizes[d + 1 :]) for d, step in enumerate(outer[k]))
        return alike and operands[k].address == 0 and teams * n * operands[k].itemsize % 16 == 0

    pieces = [k for k in rows if piece(k)]
    own = [k for k in memory if operands[k].kept and k not in pieces]  # which threads keep beside these
    room = sum(-(-teams * n * operands[k].itemsize // 16) * 16 * (1 + operands[k].state) for k in pieces)
    room += sum(threads * vectors * vec * operands[k].itemsize for k in own) + team * vectors * vec * 8
    registers = -(-(launches.STAGED_BESIDE + words * vectors) // 8) * 8  # as they are given out
    blocks = min(2048 // threads, 65536 // (threads * registers), shared // room)
    wide = sum(1 << k for k in moving if not any(x % vec for x in (operands[k].address // operands[k].itemsize, *outer[k])))
    wide |= sum(1 << 32 + k for k in pieces)
    return (Team(threads, blocks, team, vectors, STAGED, piece=room), vec, False, wide) if blocks > 0 and room <= MAX_SHARED else None


def side_by_side(
    operands: Sequence[RowOperandPlace], memory: Sequence[int], main: int, strides: Sequence[tuple[int, ...]], sizes: tuple[int, ...],
    outer: Sequence[tuple[int, ...]],
) -> tuple[int, int, int]:  # fmt: skip
    """How many rows that lie side by side a thread takes together at most, how many it takes, and the operands that have an element of each
    in one vector: 16 bytes of the widest or fewer, or one row and none where rows lie otherwise.  `sizes` are of the rows' merged dims.  A
    row is reduced in the same order by all."""
    most = min(MOST_ABREAST, 16 // max(operands[k].itemsize for k in memory))

    def whole(k: int, own: int) -> bool:
        place = operands[k].address // operands[k].itemsize
        return outer[k][-1] == 1 and not any(step % own for step in (place, *strides[k], *outer[k][:-1]))

    own = most
    while own > 1 and (sizes[-1] % own or not whole(main, own)):
        own //= 2
    return most, own, sum(1 << k for k in memory if whole(k, own)) if own > 1 else 0


def _teams(
    before: Sequence[Rule], ladder: Sequence[Rule], rules: Sequence[Rule], chunks: int, vec: int, edges: bool, held: Sequence[int],
    read: Sequence[int], across: bool, clusters: bool, beside: int = 0, shares: bool = False, abreast: tuple[int, int] = (0, 0),
) -> Iterator[Team]:  # fmt: skip
    """Teams for a row of `chunks` vectors, the better first, the last within the limits of every device: by the rules `before` the
    ladder, by its first step that is long enough, then by the `rules`.  `held` and `read`: bytes of an element of each operand that stays
    on the chip, and that is read, of which `beside` more bytes stay with what is held; `across`: elements lie apart; `clusters`: whether
    there are clusters; `shares`: whether blocks may take a row in turns; `abreast`: how many rows a thread may take together, and how
    many it does, for which a block has more threads."""
    size = vec * (sum(held) + beside)
    registers = _registers(vec, held or read)
    for rule in before:
        if rule.above < chunks <= rule.longest and (clusters or rule.where != "cluster"):
            yield _team(rule, chunks, edges, size, across)
    for step in ladder:
        known = chunks > launches.SHORT or step.longest <= launches.SHORT
        if known and chunks <= step.longest and (clusters or step.where != "cluster"):
            yield _team(step, chunks, edges, size, across)
            break
    for rule in rules:
        if (
            rule.above < chunks <= rule.longest
            and rule.registers[0] <= registers <= rule.registers[1]
            and rule.elements[0] <= vec <= rule.elements[1]
            and len(held) <= rule.held
            and chunks * size <= rule.room
            and (shares or rule.where != "cached")
            and (abreast[0] or not rule.where.startswith("abreast"))
        ):
            team = _team(rule, chunks, edges, size, across)
            yield _abreast(team, *abreast) if rule.where.startswith("abreast") else team


def _ending(kind: str, reductions: int, vec: int, parameters: int) -> list[Rule]:
    """The rules for rows of a pass of such a kind in vectors of `vec` that end within one, beside so many `parameters` of columns."""
    if not (kind == "once" and reductions or kind == "again" and vec > 4 and parameters < 2):
        return []
    alone = kind == "once" and not parameters
    return [r for r in launches.ENDING if r.elements[0] <= vec <= r.elements[1] and (alone or not r.alone)]


def _scattered(room: int, reductions: int, vec: int, line: int, moving: Sequence[int]) -> list[Rule]:
    """The rules for rows of `room` bytes in lines of `line` elements that lie apart, none of which is stored, in one reading, where there
    are such; `moving` are the bytes of an element of each operand that moves along a line."""
    if reductions != 1 or room <= launches.SCATTERED_ONCE_ABOVE or vec > 1 and line > launches.SCATTERED_LINE:
        return []
    taken = _registers(vec, moving)
    fit = [r for r in launches.SCATTERED_ONCE if r.registers[0] <= taken <= r.registers[1] and r.elements[0] <= vec <= r.elements[1]]
    return [rule._replace(registers=(1, launches.ANY)) for rule in fit]  # whatever stands still beside them


def _registers(vec: int, sizes: Sequence[int]) -> int:
    """What a thread's vectors take of all operands whose elements have these `sizes`."""
    return max(1, sum(max(1, vec * itemsize // 4) for itemsize in sizes))


def _abreast(team: Team, most: int, own: int) -> Team:
    """A team whose threads take `own` rows that lie side by side, where `most` would be one vector."""
    threads = min(team.threads * most // own, 1024)
    return replace(team, threads=threads, blocks=max(1, team.blocks * team.threads // threads), abreast=own, room=team.threads * most)


def _narrow(line: int, n: int, sizes: Sequence[int]) -> Team | None:
    """Who takes columns of `n` elements, `line` bytes from one row to the next, of operands whose elements have these `sizes`: None but for
    long ones of which few lie side by side."""
    registers = sum(max(1, size // 4) for size in sizes)
    if n <= launches.NARROW_ABOVE:
        return None
    for most, needs, threads, team, vectors, blocks in launches.NARROW:
        if line <= most and registers <= needs:
            return Team(threads, blocks, team, vectors, 0, launches.SEGMENT_APART * team // 8, True)
    return None


def _team(rule: Rule, chunks: int, edges: bool, size: int, across: bool) -> Team:
    """The team that a rule gives a row of `chunks` vectors, each taking `size` bytes where it is held."""
    threads, team, vectors, blocks, where = rule[1:6]
    if where == "cluster":
        return _cluster(rule, chunks, edges, size, across)
    if where == "cached":
        found = _cluster(rule, chunks, edges, size, across)
        return replace(found, cluster=0, cached=True)
    if where == "loop" and chunks > team * vectors:  # a row that is much longer is shared by blocks where rows are few
        return Team(threads, blocks, team, vectors, 0, min(chunks, launches.LONGEST_SEGMENT), across)
    if where in ("segments", "abreast_segments"):
        span = launches.SEGMENT_APART if across else launches.SEGMENT
        while not across and span < launches.LONGEST_SEGMENT and span * launches.MANY_SEGMENTS <= chunks:
            span *= 2
        return Team(threads, blocks, team, vectors, 0, span, across)
    keep = 1 if where in ("registers", "abreast") else 2 if where == "shared" else 0
    if team:
        return Team(threads, blocks, team, vectors, keep, across=across)
    needed = max(rule.warps, -(-chunks // (32 * vectors))) * 32
    most = threads if keep == 2 else 1 << (needed - 1).bit_length()
    return Team(needed, blocks if keep == 2 else max(1, blocks * threads // most), 0, vectors, keep, most=most)


def _cluster(rule: Rule, chunks: int, edges: bool, size: int, across: bool) -> Team:
    """Blocks that share a row, or rows that lie side by side: at least two, for there is no cluster of one."""
    threads, vectors = rule.threads, rule.vectors
    team = rule.team if across else threads
    blocks = max(2, -(-chunks // (team * vectors)))
    span = -(-chunks // (32 * blocks)) * 32
    room = max(1, min(rule.blocks, MAX_SHARED // max(1, threads * vectors * size)))
    count = -(-chunks // span)
    if rule.trims and edges:
        return Team(-(-span // (32 * vectors)) * 32, room, 0, vectors, 2, span, cluster=count, most=threads)
    return Team(threads, room, team, vectors, 2, span, across, cluster=count)


cached = lru_cache(4096)(plan)


@cache
def layout_type(row_rank: int, rank: int, operands: int, gathers: int, index64: bool) -> type[ctypes.Structure]:
    """The kernel's `Rows<RR, RI, K, G, Index>`."""
    index = ctypes.c_uint64 if index64 else ctypes.c_uint32
    fields = [
        ("rows", index), ("n", index), ("segments", index), ("span", index), ("misaligned", index), ("main", index),
        ("row_size", index * row_rank), ("size", index * rank),
        ("row_stride", index * row_rank * operands), ("stride", index * rank * operands),
        ("gather_size", ctypes.c_int64 * gathers), ("gather_stride", ctypes.c_int64 * gathers),
        ("wide", ctypes.c_uint64), ("work", ctypes.c_void_p), ("slot", index),
    ]  # fmt: skip
    return type("Rows", (ctypes.Structure,), {"_fields_": fields})


def layout(planned: RowPlan, gathers: Sequence[tuple[int, int]], work: int) -> ctypes.Structure:
    """The kernel's layout argument; `gathers` are (size, stride) along the dim of each, `work` the address of the workspace."""
    walk = planned.steps[0][0]
    made = layout_type(walk.row_rank, walk.rank, walk.operands, walk.gathers, walk.index64)()
    for name in ("rows", "n", "segments", "span", "misaligned", "slot"):
        setattr(made, name, getattr(planned, name))
    made.wide, made.main = walk.wide, walk.main
    made.row_size[:], made.size[:] = planned.row_sizes, planned.sizes
    for to, strides in ((made.row_stride, planned.row_strides), (made.stride, planned.strides)):
        for row, values in zip(to, strides, strict=True):
            row[:] = values
    for k, (size, stride) in enumerate(gathers):
        made.gather_size[k], made.gather_stride[k] = size, stride
    made.work = work
    return made


__all__ = [
    "FEW_LONG_ROWS", "FEW_ROWS", "RowOperandPlace", "RowPlan", "Shared", "Team", "Walk", "along", "cached", "layout", "layout_type",
    "plan",
]  # fmt: skip
