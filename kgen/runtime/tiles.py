"""How maps are launched that read operands across the result's neighbours: in tiles, which go through shared memory.

In: merged dims and strides, as `kgen.runtime.maps.plan` finds them.  Out: `TilePlan`, a tile's extents along three of the dims, so that
what it reads and what it writes are both runs of neighbours, and the kernel's `Tiles`.  A written file's kgen_tiles.cuh has this in C++.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import NamedTuple

from kgen.ir import Broken
from kgen.runtime.limits import MAX_GRID

#: Bytes of a tile of the widest operand's elements, of which this many make a run (of bytes half as many), if there are so many.
TILE, RUN = 8192, 128
UINT_MAX = 2**32 - 1

Strides = tuple[tuple[int, ...], ...]


class TileVariant(NamedTuple):
    """What a kernel is instantiated for: `vec` elements a thread at a time; in shared memory the rows lie as the turned operands' do where
    it `gathers`, else as the result's."""

    rank: int
    vec: int
    gathers: bool


@dataclass(frozen=True)
class TilePlan:
    """A variant and the merged dims, of which the last three are those that a tile extends along: of `extents` elements.  A vector across
    the rows of shared memory has `each` of them in a column; `mask` says what rows are turned by."""

    variant: TileVariant
    n: int
    sizes: tuple[int, ...]
    strides: Strides
    extents: tuple[int, int, int]
    each: int
    mask: int

    @property
    def many(self) -> tuple[int, ...]:
        """How many tiles lie along the last three dims."""
        return tuple(-(-size // extent) for size, extent in zip(self.sizes[-3:], self.extents, strict=True))

    @property
    def grid(self) -> int:
        return prod(self.sizes[:-3]) * prod(self.many)

    def layout(self) -> ctypes.Structure:
        """The kernel's layout argument."""
        made = tiles_type(self.variant.rank, len(self.strides))()
        made.n, made.size[:], made.many[:], made.extent[:] = self.grid, self.sizes, self.many, self.extents
        for row, strides in zip(made.stride, self.strides, strict=True):
            row[:] = strides
        made.inverse[:] = [-(-(2**31) // extent) for extent in self.extents[1:]]
        made.each, made.shift, made.mask = self.each, self.each.bit_length() - 1, self.mask
        return made


@cache
def tiles_type(rank: int, operands: int) -> type[ctypes.Structure]:
    """The kernel's `Tiles<RANK, K, unsigned>`."""
    u32 = ctypes.c_uint32
    fields = [
        ("n", u32), ("size", u32 * rank), ("stride", u32 * rank * operands), ("many", u32 * 3), ("extent", u32 * 3), ("inverse", u32 * 2),
        ("each", u32), ("shift", u32), ("mask", u32),
    ]  # fmt: skip
    return type("Tiles", (ctypes.Structure,), {"_fields_": fields})


def plan(
    sizes: tuple[int, ...], strides: Strides, itemsizes: tuple[int, ...], addresses: tuple[int, ...], turned: int
) -> TilePlan | None:  # fmt: skip
    """The tiles of a map over merged dims, whose last is the one along which the result's neighbours lie; `turned` has a bit for each
    operand that lies otherwise.  `strides`, `itemsizes` and `addresses` are as for `maps.plan`.  None where the turned operands'
    neighbours lie along no one dim other than that, or an index takes more than 32 bits."""
    own = [row for k, row in enumerate(strides) if turned >> k & 1]
    last = len(sizes) - 1
    other = next((d for d in range(last) if own[0][d] == 1), -1)
    straight = strides[-1][last] == 1 and all(row[last] > 1 for row in own)
    ends = max(sum((size - 1) * s for size, s in zip(sizes, row, strict=True)) for row in strides)
    if other < 0 or not straight or any(row[other] != 1 for row in own) or max(ends, prod(sizes)) > UINT_MAX - TILE:
        return None
    widest, across = max(itemsizes), (sizes[last], sizes[other])
    run = RUN // max(widest, 2)

    def fits(vec: int) -> bool:
        """Whether all that moves does so in aligned vectors of so many neighbours, those of one side along one dim."""
        aligned = all(
            address % (vec * size) == 0 or row[last] == 0 and not turned >> k & 1
            for k, (row, size, address) in enumerate(zip(strides, itemsizes, addresses, strict=True))
        )
        runs = [(row, *((other, last) if turned >> k & 1 else (last, other))) for k, row in enumerate(strides)]
        return aligned and any(size % vec == 0 for size in across) and all(_run(vec, sizes, *own) for own in runs)

    vec = 16 // widest
    while vec > 1 and not fits(vec):
        vec //= 2
    gathers = sizes[other] % vec == 0
    before, along = _extents(*across[::-1], TILE // widest, run)
    room = TILE // widest // (before * along)
    outer = sorted((d for d in range(len(sizes)) if d not in (last, other)), key=lambda d: (min(sizes[d], room) < room, own[0][d]))
    third = outer[0] if outer else -1
    extents = (min(sizes[third], room) if outer else 1, before, along)
    order = [*(d for d in range(len(sizes)) if d not in (third, other, last)), *[third] * (third >= 0), other, last]
    front = max(0, 3 - len(order))
    width, rows = extents[1:] if gathers else extents[:0:-1]
    chunks = width // vec
    made = TilePlan(
        TileVariant(front + len(order), vec, gathers),
        prod(sizes),
        (1,) * front + tuple(sizes[d] for d in order),
        tuple((0,) * front + tuple(row[d] for d in order) for row in strides),
        extents,
        min(vec, rows & -rows),
        min(max(1, RUN // (vec * widest)), chunks & -chunks) - 1,
    )
    verify(made, itemsizes, addresses, turned)
    return made if made.grid <= MAX_GRID else None


cached = lru_cache(4096)(plan)


def _run(vec: int, sizes: Sequence[int], row: Sequence[int], first: int, then: int) -> bool:
    """Whether `vec` elements along a dim (and, where it has fewer, along another one behind it) are neighbours of an operand in aligned
    places, or one value."""
    if sizes[first] % vec == 0:
        return row[first] == 0 or row[first] == 1 and not any(s % vec for d, s in enumerate(row) if d != first)
    if vec % sizes[first] or sizes[then] % (vec // sizes[first]):
        return False
    beside = row[first] == 1 and row[then] == sizes[first] and not any(s % vec for d, s in enumerate(row) if d not in (first, then))
    return beside or row[first] == row[then] == 0


def _extents(before: int, last: int, room: int, run: int) -> tuple[int, int]:
    """A tile's extents along the last two dims, of such sizes, of up to `room` elements: of a `run` along each; then, where there is room,
    further along the one before, and the last."""

    def shared(size: int, most: int) -> int:
        """So many of a dim as make equal tiles of up to `most`, in whole runs where it has several."""
        if size <= most:
            return size
        most -= most % run
        return -(-size // -(-size // most) // run) * run

    first = shared(before, room // min(last, run))
    return first, shared(last, room // first)


def verify(plan: TilePlan, itemsizes: Sequence[int], addresses: Sequence[int], turned: int) -> None:
    """Hold tiles to their rules; raises `Broken`."""

    def hold(ok: bool, rule: str) -> None:
        if not ok:
            raise Broken(f"{rule}\n{plan}\n{itemsizes} {addresses} {turned}")

    vec, count, widest = plan.variant.vec, prod(plan.extents), max(itemsizes)
    rows, width = plan.extents[2:0:-1] if plan.variant.gathers else plan.extents[1:]
    hold(0 < count * widest <= TILE, "a tile has the shared memory that a block has")
    hold(plan.n == prod(plan.sizes) and len(plan.sizes) == plan.variant.rank, "merged dims have all elements")
    ends = zip(plan.many, plan.extents, plan.sizes[-3:], strict=True)
    hold(all((many - 1) * extent < size <= many * extent for many, extent, size in ends), "tiles have all elements, and none is empty")
    hold(vec & (vec - 1) == 0 and vec * widest <= 16, "16 bytes at most move at once")
    hold(width % vec == 0 and plan.sizes[-2 if plan.variant.gathers else -1] % vec == 0, "a row of shared memory has whole vectors")
    hold(rows % plan.each == 0 and vec % plan.each == 0, "a vector across rows has as many in each column")
    hold(rows % vec == 0 or rows == plan.each, "a vector across rows lies in those that are turned alike")
    hold(width // vec % (plan.mask + 1) == 0, "a row that is turned stays in its place")
    for k, (row, size, address) in enumerate(zip(plan.strides, itemsizes, addresses, strict=True)):
        still = row[-1] == 0 and not turned >> k & 1
        hold(still or vec == 1 or row[-2 if turned >> k & 1 else -1] == 1, "a vector's elements are neighbours, or one value")
        hold(still or address % (vec * size) == 0, "a vector is aligned")
