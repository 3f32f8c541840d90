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
from math import prod
from typing import NamedTuple

from kgen.backends.shared import MAX_STATIC, declared
from kgen.runtime import tuned
from kgen.runtime.limits import Limits
from kgen.runtime.limits import limits as limits_of
from kgen.runtime.tuned import Step
from kgen.runtime.verified import verify_rows

UINT_MAX = 2**32 - 1
#: Shared memory that a block uses for rows at most, and where two blocks of a multiprocessor are to have their own.
MAX_SHARED, HALF_SHARED = 200 * 1024, 104 * 1024
#: With fewer rows than this, several blocks share a long row.
FEW_ROWS = 528
#: Where neighbouring elements lie further apart than this, in bytes, neighbouring threads take neighbouring rows.
SECTOR = 32


class RowOperandPlace(NamedTuple):
    """An operand of a call: strides in elements along the row dims and the inner ones; no `itemsize` for an index, which has no memory."""

    row_strides: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    address: int  # modulo 16
    element: bool
    kept: bool = False
    read: bool = True
    row_dims: int = 0  # how many of the row dims it is declared with, whatever their sizes


class Walk(NamedTuple):
    """The template arguments of the source's `Walk`, in order."""

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

    def text(self) -> str:
        values = [str(int(v)) if isinstance(v, (bool, int)) else v for v in self[:-1]]
        for k in (3, 6, 9, 11):
            values[k] = str(bool(self[k])).lower()
        values[7] += "ull" if self.wide > 2**31 else ""
        return f"Walk<{', '.join([*values, 'u64' if self.index64 else 'unsigned'])}>"


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

    def static(self, words: int, readings: int) -> int:
        """The bytes at most of the kernel's own shared memory."""
        return declared(self.most or self.threads, self.team, self.across, self.cluster > 0, words, readings)

    def dynamic(self, size: int) -> int:
        """The bytes of the rows that a block holds in shared memory, where a vector takes `size`."""
        return self.threads * self.vectors * size if self.keep == 2 else 0


def merged(sizes: Sequence[int], strides: Sequence[Sequence[int]], main: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Dims in the order of one operand's strides, those that can be made into one: sizes, and strides by operand."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for d in sorted((d for d, size in enumerate(sizes) if size != 1), key=lambda d: -strides[main][d]):
        size, step = sizes[d], tuple(s[d] for s in strides)
        if dims and all(outer == inner * size for outer, inner in zip(dims[-1][1], step, strict=True)):
            size *= dims.pop()[0]
        dims.append((size, step))
    if not dims:
        dims = [(1, (0,) * len(strides))]
    return tuple(size for size, _ in dims), tuple(tuple(step[o] for _, step in dims) for o in range(len(strides)))


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
) -> RowPlan | None:
    """How to walk a pass over rows; None if it has no row.

    `limits` are the device's, `splits` says whether blocks may share a row through several launches; `ladder` has the steps measured
    for the device (`tuned.py`), none where it was not.
    """
    rows, n = prod(row_sizes), prod(inner_sizes)
    if rows == 0:
        return None
    memory = [k for k, o in enumerate(operands) if o.element and o.itemsize]

    def leads(k: int) -> tuple[bool, int, int, bool, int]:
        """Which operand's layout to follow: the one that moves most, of those the one whose neighbours are a row's.  How many
        rows there are, and so what strides they have, may not tell."""
        o = operands[k]
        return o.read, sum(s != 0 for s in o.strides), o.row_dims, 1 in o.strides, -k

    main = max(memory, key=leads, default=0)
    sizes, strides = merged(inner_sizes, [o.strides for o in operands], main) if inner_sizes else ((1,), ((0,),) * len(operands))
    outer_sizes, outer = merged(row_sizes, [o.row_strides for o in operands], main)
    vec, edges, wide = _vectors(operands, memory, main, sizes, strides, outer, n)
    chunks = n // vec  # whole vectors, wherever the row begins within one
    held = [operands[k].itemsize for k in memory if operands[k].kept]
    step = strides[main][-1]
    apart = bool(memory) and step != 0 and step * operands[main].itemsize >= SECTOR
    read = [operands[k].itemsize for k in memory if operands[k].read]
    rowed = any(o.row_dims for o in operands) or not reductions  # else all is one row, which many blocks must share
    known = ladder if vec > 1 and len(held) <= 1 and (held or len(read) == 1) and rowed else ()
    size, most = vec * sum(held), limits.cluster if reductions else 0
    teams = _across(n, held) if apart else _along(known, chunks, vec, edges, held, read, most)

    def fits(team: Team) -> bool:
        """Whether the device has the memory and the clusters that a team asks for."""
        static, dynamic = team.static(words, reductions), team.dynamic(size)
        allowed = dynamic <= MAX_SHARED and static <= MAX_STATIC and static + dynamic <= limits.shared
        return allowed and (not team.cluster or 2 <= team.cluster <= most)

    team = next(filter(fits, teams))
    if team.across and team.team > 1:  # no more teams than rows; who takes a row does not change how it is combined
        team = replace(team, threads=team.team * min(team.threads // team.team, 1 << (rows - 1).bit_length()))
    span = team.span or max(chunks, 1)
    segments = max(1, -(-chunks // span)) if team.span else 1
    last = 0
    for a, b in zip(strides, outer, strict=True):
        last = max(last, sum((s - 1) * t for s, t in (*zip(sizes, a, strict=True), *zip(outer_sizes, b, strict=True))))
    index64 = max(last, rows + 2**16, n + 2**16, rows * segments) > UINT_MAX - 2**20
    walk = Walk(
        team.most or team.threads, team.blocks, team.team, team.across, team.vectors, vec, edges, wide, main,
        bool(team.span and not team.cluster), team.keep, bool(team.cluster), -1,
        len(outer_sizes), len(sizes), len(operands), max(1, gathers), index64,
    )  # fmt: skip
    groups = -(-rows // (team.threads // (team.team or team.threads)))
    misaligned = (operands[main].address // operands[main].itemsize) % vec if memory else 0
    steps, work = [(walk, groups)], 0
    if team.cluster:
        steps = [(walk, groups * segments)]
    elif segments > 1 and groups < FEW_ROWS and reductions and splits:
        steps = [(walk._replace(step=k), groups if k % 2 else groups * segments) for k in range(2 * reductions + stores)]
        work = 4 * words * rows * (segments + reductions)
    made = RowPlan(
        tuple(steps), rows, n, segments, span, misaligned, words, outer_sizes, sizes, outer, strides, team.threads, team.dynamic(size), work
    )  # fmt: skip
    verify_rows(made, operands, team.static(words, reductions), limits, reductions, stores, splits)
    return made


class Shared(NamedTuple):
    """How a contiguous row is shared out where its length is known: `team` threads of `threads` take one, `vectors` of `vec` elements
    each; `held` in registers, else read anew each time; `wished` is what the planner would do if it could: "shared" or "cluster"."""

    threads: int
    team: int
    vectors: int
    vec: int
    held: bool
    wished: str


def along(n: int, vec: int, held: Sequence[int], read: Sequence[int], reductions: int) -> Shared:
    """How a row of `n` elements is walked in vectors of `vec`, which it is a multiple of, on an sm_90: as `plan` has it, but in one
    launch of blocks that each have their rows to themselves, without a row in shared memory."""
    arch, chunks = "sm_90", n // vec
    ladder = tuned.SHIPPED[arch][tuned.kind(bool(held), reductions)] if vec > 1 and len(held) <= 1 and (held or len(read) == 1) else ()
    teams = [*_along(ladder, chunks, vec, False, held, read, limits_of(arch).cluster if reductions else 0)]
    first, team = teams[0], next(t for t in teams if t.keep < 2 and not t.cluster)
    wished = "" if first is team else "cluster" if first.cluster else "shared"
    return Shared(team.threads, team.team or team.threads, team.vectors, vec, team.keep == 1, wished)


def _vectors(
    operands: Sequence[RowOperandPlace], memory: Sequence[int], main: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]],
    outer: Sequence[tuple[int, ...]], n: int,
) -> tuple[int, bool, int]:  # fmt: skip
    """The elements of a vector, whether rows begin or end within one, and the operands that move in vectors."""
    if not memory or strides[main][-1] != 1:
        return 1, False, 0
    moving = [k for k in memory if strides[k][-1] == 1]
    vec = 16 // max(operands[k].itemsize for k in moving)

    def place(k: int) -> int:
        return operands[k].address // operands[k].itemsize

    if len(sizes) > 1:  # whole vectors along the innermost dim
        while vec > 1:
            steps = [*strides[main][:-1], *outer[main]]
            if sizes[-1] % vec == 0 and place(main) % vec == 0 and not any(s % vec for s in steps):
                break
            vec //= 2
        wide = sum(1 << k for k in moving if place(k) % vec == 0 and not any(s % vec for s in (*strides[k][:-1], *outer[k])))
        return (vec, False, wide) if vec > 1 else (1, False, 0)
    edges = n % vec != 0 or place(main) % vec != 0 or any(s % vec for s in outer[main])
    if edges and n < 4 * vec:
        return 1, False, 0
    wide = 0
    for k in moving:
        alike = all((a - b) % vec == 0 for a, b in zip(outer[k], outer[main], strict=True))
        wide |= (alike and (place(k) - place(main)) % vec == 0) << k
    return vec, edges, wide


def _step(steps: tuple[Step, ...], chunks: int, edges: bool, size: int, clusters: int) -> Team | None:
    """The team that the first step gives that is long enough for `chunks` vectors of a row, each taking `size` bytes where it is held; None
    where none is."""
    step = next((s for s in steps if chunks <= s.longest and (clusters or s.where != "cluster")), None)
    if step is None or chunks <= 32:
        return None
    if step.where == "loop":
        if chunks <= step.team * step.vectors:
            return Team(step.threads, step.blocks, step.team, step.vectors, 0)
        span = min(chunks, 16384)  # a row that much longer is shared by blocks where rows are few
        return Team(step.threads, step.blocks, step.team, step.vectors, 0, span)
    if step.where == "cluster":
        team = _cluster(chunks, step.threads, step.vectors, step.blocks, size)
        if edges:  # as few threads as have all their vectors
            threads = -(-team.span // (32 * step.vectors)) * 32
            return Team(threads, team.blocks, 0, step.vectors, 2, team.span, cluster=team.cluster, most=step.threads)
        return team
    if step.team:
        return Team(step.threads, step.blocks, step.team, step.vectors, 1)
    vectors = 1 if edges and chunks <= 128 else step.vectors
    threads = max(2, -(-chunks // (32 * vectors))) * 32
    if step.where == "shared":
        return Team(threads, step.blocks, 0, vectors, 2, most=step.threads)
    most = 1 << (threads - 1).bit_length()
    return Team(threads, max(1, step.blocks * step.threads // most), 0, vectors, 1, most=most)


def _cluster(chunks: int, threads: int, vectors: int, most: int, size: int) -> Team:
    """Blocks of `threads` with up to `vectors` vectors a thread that share a row: at least two, for there is no cluster of one."""
    blocks = max(2, -(-chunks // (threads * vectors)))
    span = -(-chunks // (32 * blocks)) * 32
    room = MAX_SHARED // max(1, threads * vectors * size)
    return Team(threads, max(1, min(most, room)), threads, vectors, 2, span, cluster=-(-chunks // span))


def _along(
    steps: tuple[Step, ...], chunks: int, vec: int, edges: bool, held: Sequence[int], read: Sequence[int], clusters: int
) -> Iterator[Team]:
    """Teams for a row whose elements are neighbours, the better first, the last within the limits of every device: `chunks` vectors, of
    which those of `held` (bytes an element) stay on the chip; of `read` where none does."""
    size = vec * sum(held)
    if (found := _step(steps, chunks, edges, size, clusters)) is not None:
        yield found
    registers = max(1, sum(max(1, vec * itemsize // 4) for itemsize in held or read))
    keep = 1 if held else 0
    if chunks <= 32:
        yield Team(128, 8, 1 << max(0, chunks - 1).bit_length(), 1, keep)
    if chunks <= 128 and registers <= 4:
        yield Team(128, 8, 32, 2 if chunks <= 64 else 4, keep)
    vectors = 2 if registers > 4 else 4 if chunks <= 2048 or not held else 8
    if registers <= (8 if held else 16) and chunks <= vectors * 512:
        yield _block(chunks, vectors, keep, 1024 if held or vec > 4 else 1536)
    if vec == 1 and registers <= 1 and chunks <= 16384:
        yield Team(1024, 1, 1024, 8 if chunks <= 8192 else 16, keep)
    if held:
        if chunks <= 10 * 736 and chunks * size <= HALF_SHARED:  # two blocks of a multiprocessor
            yield Team(-(-chunks // 320) * 32, 2, 0, 10, 2, most=768)
        for threads in (256, 512) if clusters else ():
            yield _cluster(chunks, threads, 4 if chunks <= 8 * threads else 8, 1536 // threads, size)
    span = 1024
    while span < 16384 and span * 4096 <= chunks:
        span *= 2
    yield Team(256, 3 if held or vec > 4 else 4, 256, 4, 0, span)
    yield Team(128, 4, 32, 4, 0, span)  # whose threads need no memory to put their parts together


def _block(chunks: int, vectors: int, keep: int, most_threads: int) -> Team:
    """A block for a row, with as many threads as it takes; a multiprocessor is to have room for `most_threads`."""
    threads = max(2, -(-chunks // (32 * vectors))) * 32
    most = 1 << (threads - 1).bit_length()
    return Team(threads, max(1, most_threads // most), 0, vectors, keep, most=most)


def _across(n: int, held: Sequence[int]) -> Iterator[Team]:
    """Teams for a row whose elements lie apart, as `_along` gives them: neighbouring threads take neighbouring rows."""
    keep = 1 if held else 0
    if n <= 16:
        yield Team(128, 8, 1, max(1, 1 << max(0, n - 1).bit_length()), keep, across=True)
    for side in (32, 16, 8, 4):
        if n <= 128 and len(held) <= 2:
            yield Team(side * 8, 4, 8, 8 if n <= 64 else 16, keep, across=True)
        yield Team(side * 8, 3 if held else 6, 8, 8, 0, 512, across=True)
    yield Team(128, 4, 1, 8, 0, 512, across=True)


cached = lru_cache(4096)(plan)


@cache
def layout_type(row_rank: int, rank: int, operands: int, gathers: int, index64: bool) -> type[ctypes.Structure]:
    """The kernel's `Rows<RR, RI, K, G, Index>`."""
    index = ctypes.c_uint64 if index64 else ctypes.c_uint32
    fields = [
        ("rows", index), ("n", index), ("segments", index), ("span", index), ("misaligned", index),
        ("row_size", index * row_rank), ("size", index * rank),
        ("row_stride", index * row_rank * operands), ("stride", index * rank * operands),
        ("gather_size", ctypes.c_int64 * gathers), ("gather_stride", ctypes.c_int64 * gathers),
        ("work", ctypes.c_void_p), ("slot", index),
    ]  # fmt: skip
    return type("Rows", (ctypes.Structure,), {"_fields_": fields})


def layout(planned: RowPlan, gathers: Sequence[tuple[int, int]], work: int) -> ctypes.Structure:
    """The kernel's layout argument; `gathers` are (size, stride) along the dim of each, `work` the address of the workspace."""
    walk = planned.steps[0][0]
    made = layout_type(walk.row_rank, walk.rank, walk.operands, walk.gathers, walk.index64)()
    for name in ("rows", "n", "segments", "span", "misaligned", "slot"):
        setattr(made, name, getattr(planned, name))
    made.row_size[:], made.size[:] = planned.row_sizes, planned.sizes
    for to, strides in ((made.row_stride, planned.row_strides), (made.stride, planned.strides)):
        for row, values in zip(to, strides, strict=True):
            row[:] = values
    for k, (size, stride) in enumerate(gathers):
        made.gather_size[k], made.gather_stride[k] = size, stride
    made.work = work
    return made


__all__ = ["FEW_ROWS", "RowOperandPlace", "RowPlan", "Shared", "Team", "Walk", "along", "cached", "layout", "layout_type", "merged", "plan"]
