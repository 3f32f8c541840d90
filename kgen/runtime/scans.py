"""How a pass along rows is launched on a CUDA device.

In: the sizes and strides of its operands.  Out: the kernel's template arguments (`Along`), its layout argument (`Lines`), and the launches.

Who takes a row, and what a segment is, follows from the row's length, its layout and its dtypes; how many rows there are decides only
whether blocks share a row, which joins its elements in the same order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import NamedTuple

from kgen.backends import scan_launches as table
from kgen.backends.launches import SECTOR
from kgen.ir import Broken
from kgen.runtime import rows
from kgen.runtime.rows import FAR, RowOperandPlace


class Along(NamedTuple):
    """The template arguments of the source's `Along`, in order."""

    threads: int
    blocks: int
    team: int
    vec: int
    ahead: int
    aside: bool
    backwards: bool
    near: int
    even: int
    step: int
    row_rank: int
    operands: int
    index64: bool
    keep: int = 0  # what a pass that reduces holds of a row: here nothing

    def text(self) -> str:
        flags = (str(self.aside).lower(), str(self.backwards).lower(), f"{self.near}ull", f"{self.even}ull")
        return f"Along<{', '.join([*map(str, self[:5]), *flags, *map(str, self[9:12]), 'u64' if self.index64 else 'unsigned'])}>"


@dataclass(frozen=True)
class ScanPlan:
    """The launches of a pass (a way of walking, its grid, the threads of a block), and the rows' merged dims, outermost first."""

    steps: tuple[tuple[Along, int], ...]
    rows: int
    n: int
    segments: int
    span: int
    row_sizes: tuple[int, ...]
    row_strides: tuple[tuple[int, ...], ...]
    strides: tuple[int, ...]
    work: int = 0  # bytes

    @property
    def launches(self) -> tuple[tuple[Along, int, int, int, int], ...]:
        """Each launch's way of walking, its grid, the threads of a block, its shared memory and the blocks of a cluster."""
        return tuple((walk, grid, walk.threads, 0, 1) for walk, grid in self.steps)

    def layout(self, gathers: Sequence[tuple[int, int]]) -> ctypes.Structure:
        """The kernel's layout argument; there are no `gathers`."""
        walk = self.steps[0][0]
        made = layout_type(walk.row_rank, walk.operands, walk.index64)()
        made.rows, made.n, made.segments, made.span = self.rows, self.n, self.segments, self.span
        made.row_size[:], made.step[:] = self.row_sizes, self.strides
        for row, values in zip(made.row_stride, self.row_strides, strict=True):
            row[:] = values
        return made


@cache
def layout_type(row_rank: int, operands: int, index64: bool) -> type[ctypes.Structure]:
    """The kernel's `Lines<RR, K, Index>`."""
    index = ctypes.c_uint64 if index64 else ctypes.c_uint32
    fields = [
        ("rows", index), ("n", index), ("segments", index), ("span", index), ("row_size", index * row_rank),
        ("row_stride", index * row_rank * operands),
        ("step", index * operands), ("work", ctypes.c_void_p),
    ]  # fmt: skip
    return type("Lines", (ctypes.Structure,), {"_fields_": fields})


def plan(
    row_sizes: tuple[int, ...], n: int, operands: tuple[RowOperandPlace, ...], backwards: bool, partial: int,
) -> ScanPlan | None:  # fmt: skip
    """How to go along rows of `n` elements; None if there are none.  `partial` is the most bytes that a partial takes.  kgen_scans_run.cuh
    is this function in C++, for the host part of written files."""
    count = prod(row_sizes)
    if count == 0 or n == 0:
        return None
    memory = [k for k, o in enumerate(operands) if o.element and o.itemsize]
    main = rows._main(operands, memory)
    sizes, strides = rows.merged(row_sizes, [o.row_strides for o in operands], main)
    steps = tuple(o.strides[0] for o in operands)
    vec = 16 // max((operands[k].itemsize for k in memory), default=8)
    chunks = -(-n // vec)
    aside = n > 1 and steps[main] * operands[main].itemsize >= SECTOR
    ladder = table.aside(partial) if aside else table.TEAMS
    odd = not aside and table.odd(n, vec)
    _, team, threads = table.ODD if odd else next(t for t in ladder if chunks <= t.longest)
    tiles, span = -(-chunks // team), table.SPAN
    while tiles > span * table.MOST:
        span *= 2
    segments = -(-tiles // span)
    teams = threads // team
    blocks = -(-count // teams)
    few = segments > 1 and team == ladder[-1].team and blocks < (table.FEW_ASIDE if aside else table.FEW)
    furthest = max(sum((size - 1) * s for size, s in zip(sizes, own, strict=True)) + (n - 1) * step
                   for own, step in zip(strides, steps, strict=True))  # fmt: skip
    index64 = max(furthest, count * segments, n) > FAR - 2 * threads * vec * table.AHEAD
    read = sum(operands[k].read for k in memory)
    ahead = table.AHEAD if read <= table.AHEAD_OPERANDS and team > 1 else 1
    much = partial > 8 or len(memory) > 3
    near = [k for k in memory if steps[k] == 1 and not aside]
    even = [k for k in near if n % vec == 0 and _even(operands[k], strides[k], vec)]
    walk = Along(
        threads, table.resident(threads, much), team, vec, ahead, aside, backwards, sum(1 << k for k in near),
        sum(1 << k for k in even), -1, len(sizes), len(operands), index64,
    )  # fmt: skip
    launches = tuple((walk._replace(step=k), blocks * segments) for k in (0, 1)) if few else ((walk, blocks),)
    made = ScanPlan(launches, count, n, segments, span, sizes, strides, steps, partial * count * segments if few else 0)
    if threads % team or team & (team - 1) or (not aside and team > 32 and team != threads):
        raise Broken(f"a team is a power of two, a warp at most or a block\n{made}")
    return made


def _even(operand: RowOperandPlace, strides: Sequence[int], vec: int) -> bool:
    """Whether every row begins with an aligned vector."""
    return operand.address % (vec * operand.itemsize) == 0 and not any(s % vec for s in strides)


cached = lru_cache(4096)(plan)

__all__ = ["Along", "ScanPlan", "cached", "plan"]
