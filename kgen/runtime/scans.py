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
from kgen.backends.launches import ANY, SECTOR
from kgen.ir import Broken
from kgen.runtime import strided
from kgen.runtime.strided import FAR, RowOperandPlace


class Along(NamedTuple):
    """The template arguments of the source's `Along`, of `Beside` where rows lie side by side, of `Chained` where
    blocks take tiles, in order; `step` is -1 where blocks take whole rows, and 0 clears what others are told in."""

    threads: int
    blocks: int
    team: int
    vec: int
    parts: int
    ahead: int
    aside: bool
    backwards: bool
    near: int
    even: int
    step: int  # -1 where a row's team takes all of it
    row_rank: int
    operands: int
    index64: bool
    keep: int = 0  # what a pass that reduces holds of a row: here nothing

    def text(self) -> str:
        own = {
            "threads": self.threads, "blocks": self.blocks, "team": self.team, "vec": self.vec, "parts": self.parts, "ahead": self.ahead,
            "backwards": str(self.backwards).lower(), "near": f"{self.near}ull", "even": f"{self.even}ull", "step": self.step,
            "row_rank": self.row_rank, "operands": self.operands, "index64": "u64" if self.index64 else "unsigned",
        }  # fmt: skip
        chained = self.step >= 0 and not self.aside
        without = ("ahead", "near") if self.aside else ("team", "ahead") if chained else ("step",)
        name = "Beside" if self.aside else "Chained" if chained else "Along"
        return f"{name}<{', '.join(str(value) for key, value in own.items() if key not in without)}>"


#: An operand that has neighbours: where it lies, its strides over rows, that along a row, its number.
Near = tuple[RowOperandPlace, tuple[int, ...], int, int]


@dataclass(frozen=True)
class ScanPlan:
    """The launches of a pass (a way of walking, its grid, the threads of a block), and the rows' merged dims, outermost first."""

    steps: tuple[tuple[Along, int], ...]
    rows: int
    n: int
    segments: int
    row_sizes: tuple[int, ...]
    row_strides: tuple[tuple[int, ...], ...]
    strides: tuple[int, ...]
    work: int = 0  # bytes
    shared: int = 0  # bytes of a block

    @property
    def launches(self) -> tuple[tuple[Along, int, int, int, int], ...]:
        """Each launch's way of walking, its grid, the threads of a block, its shared memory and the blocks of a cluster."""
        return tuple((walk, grid, walk.threads, self.shared, 1) for walk, grid in self.steps)

    def layout(self, gathers: Sequence[tuple[int, int]]) -> ctypes.Structure:
        """The kernel's layout argument; there are no `gathers`."""
        walk = self.steps[0][0]
        made = layout_type(walk.row_rank, walk.operands, walk.index64)()
        made.rows, made.n, made.segments = self.rows, self.n, self.segments
        made.row_size[:], made.step[:] = self.row_sizes, self.strides
        for row, values in zip(made.row_stride, self.row_strides, strict=True):
            row[:] = values
        return made


@cache
def layout_type(row_rank: int, operands: int, index64: bool) -> type[ctypes.Structure]:
    """The kernel's `Lines<RR, K, Index>`."""
    index = ctypes.c_uint64 if index64 else ctypes.c_uint32
    fields = [
        ("rows", index), ("n", index), ("segments", index), ("row_size", index * row_rank),
        ("row_stride", index * row_rank * operands),
        ("step", index * operands), ("work", ctypes.c_void_p),
    ]  # fmt: skip
    return type("Lines", (ctypes.Structure,), {"_fields_": fields})


def plan(
    row_sizes: tuple[int, ...], n: int, operands: tuple[RowOperandPlace, ...], backwards: bool, partial: int, room: int,
) -> ScanPlan | None:  # fmt: skip
    """How to go along rows of `n` elements; None if there are none.  `partial` is the most bytes that a partial takes, `room` those of
    shared memory that a block may have.  kgen_scans_run.cuh is this function in C++, for the host part of written files."""
    count = prod(row_sizes)
    if count == 0 or n == 0:
        return None
    memory = [k for k, o in enumerate(operands) if o.element and o.itemsize]
    read = [operands[k].itemsize for k in memory if operands[k].read]
    main = strided.main_of(operands, memory)
    sizes, strides = strided.merged(row_sizes, [o.row_strides for o in operands], main)
    steps = tuple(o.strides[0] for o in operands)
    vec = 16 // max((operands[k].itemsize for k in memory), default=8)
    much = partial > 8 or len(memory) > 3
    aside = n > 1 and steps[main] * operands[main].itemsize >= SECTOR
    near = [(operands[k], strides[k], steps[k], k) for k in memory if (strides[k][-1] if aside else steps[k]) == 1]
    team, parts, even = _across(near, vec, n, sizes[-1], partial) if aside else _along(near, vec, n, much)
    tile, side = team.team * vec * (1 if aside else parts), team.threads // team.team * (parts if aside else 1)
    blocks, segments = -(-count // side), -(-n // tile)
    least = table.FEW_ASIDE if aside else table.FEW
    shared = 0 if aside else table.chained_shared(vec, team, read)
    fits = aside or shared + table.chained_static(team, partial) <= room
    few = segments > table.SHORT and team.longest == ANY and team.team > 1 and blocks < least and fits
    furthest = max(sum((size - 1) * s for size, s in zip(sizes, own, strict=True)) + (n - 1) * step
                   for own, step in zip(strides, steps, strict=True))  # fmt: skip
    index64 = max(furthest, count * segments, n) > FAR - 2 * team.threads * vec * parts * table.AHEAD
    odd = not aside and even != sum(1 << k for k in memory)
    usual = table.CHAINED_REGISTERS if few and not aside else table.ODD_REGISTERS if odd else table.REGISTERS
    registers = table.MANY_REGISTERS if much else usual
    several = team.team > 1 and len(read) <= table.AHEAD_OPERANDS and not odd
    walk = Along(
        team.threads, table.resident(team.threads, registers), team.team, vec, parts,
        -(-table.AHEAD // parts) if several else 1, aside, backwards, 0 if aside else sum(1 << k for *_, k in near), even,
        1 if few else -1, len(sizes), len(operands), index64,
    )  # fmt: skip
    launches: tuple[tuple[Along, int], ...] = ((walk, blocks),)
    work = 0
    if few:
        words = 1 + table.told(count, segments, aside) * (partial // 4)
        grids = min(-(-words // team.threads), table.TAKERS), blocks * segments if aside else min(count * segments, table.TAKERS)
        launches, work = tuple((walk._replace(step=k), grid) for k, grid in enumerate(grids)), 8 * words
    made = ScanPlan(launches, count, n, segments, sizes, strides, steps, work, shared if few else 0)
    wide = not aside and team.team > 32 and team.team != team.threads
    if team.threads % team.team or team.team & (team.team - 1) or wide or (aside and few and side > team.threads):
        raise Broken(f"a team is a power of two, a warp at most or a block\n{made}")
    return made


def _along(near: Sequence[Near], vec: int, n: int, much: bool) -> tuple[table.Team, int, int]:
    """Who takes rows of `n` neighbours, the vectors of a thread in a tile, and a bit for each operand whose rows are whole aligned ones."""
    team = table.ODD if table.odd(n, vec) else next(t for t in table.teams(much) if -(-n // vec) <= t.longest)
    return team, team.parts, 0 if n % vec else sum(1 << k for o, strides, _, k in near if _even(o, strides, vec))


def _across(near: Sequence[Near], vec: int, n: int, side: int, partial: int) -> tuple[table.Team, int, int]:
    """Who takes rows side by side, `side` of them in the innermost dim; how many a thread takes: as many neighbours as lie in an aligned
    vector in each operand that has them, and as there is shared memory for; a bit for each operand that has these."""
    team = next(t for t in table.beside(partial) if -(-n // vec) <= t.longest)
    parts = team.parts
    if not near or side % parts or not all(_even(o, (*strides[:-1], step), parts) for o, strides, step, _ in near):
        parts = 1
    return team, parts, sum(1 << k for *_, k in near) if parts > 1 else 0


def _even(operand: RowOperandPlace, strides: Sequence[int], vec: int) -> bool:
    """Whether vectors that are `strides` apart are all aligned."""
    return operand.address % (vec * operand.itemsize) == 0 and not any(s % vec for s in strides)


cached = lru_cache(4096)(plan)
