"""How a pass over elements is launched on a CUDA device.

In: the sizes and strides of its operands.  Out: the kernel's variant, and the merged dims for its layout argument.  A written file's
kgen_maps.cuh has this in C++.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

from kgen.backends.cuda_layouts import FLAT, LONG, SPLATS, TINY, TOLD, Groups
from kgen.backends.launches import MAP_MANY, WINDOW_LANES, map_rows, pieces, window_rows
from kgen.runtime import strided
from kgen.runtime.driver import THREADS
from kgen.runtime.limits import INT_MAX, UINT_MAX
from kgen.runtime.verified import verify_map

#: Dims, once merged, of maps whose vectors are neighbours in memory whatever rows they lie in.
MOST_FLAT = 4
#: How many vectors the rows of such maps have of which most warps read one alone.
LONG_ROWS = 32


class Variant(NamedTuple):
    """What a kernel is instantiated for: `vec` elements a thread, of each of `rows` rows; a bit of `splat` for each operand that stands
    still along the innermost dim, or FLAT; 64-bit offsets where `wide`."""

    rank: int
    vec: int
    wide: bool
    splat: int
    rows: int = 1


@dataclass(frozen=True)
class Plan:
    """A variant and the merged dims, outermost first: `sizes[d]`, `strides[operand][d]`, in elements.  Where it `turns`, parts that lie in
    turns are moved as one; where a thread takes `pieces`, these are equal ones of a row, or rows as they lie, of which (`under`) the last
    may be fewer."""

    variant: Variant
    n: int
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    turns: bool = False
    pieces: bool = False
    under: bool = False
    spans: bool = False

    @property
    def apiece(self) -> int:
        """How many elements there are where `variant.rows` of them count as one, and of windows' neighbours `variant.vec`."""
        rows = self.variant.rows
        n = self.n // self.sizes[-1] * -(-self.sizes[-1] // self.variant.vec) if self.spans else self.n
        return n // self.sizes[-2] * -(-self.sizes[-2] // rows) if self.under else n // rows

    @property
    def grid(self) -> int:
        return -(-self.apiece // (THREADS * (1 if self.spans else self.variant.vec)))


def plan(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], itemsizes: Sequence[int], addresses: Sequence[int], held: int = 0,
    taps: int = 0, below: bool = False, single: bool = False, row: int = -1, divides: bool = False, along: int = -1,
    shares: bool = False, otherwise: int = 0,
) -> Plan | None:  # fmt: skip
    """How to walk operands of one broadcast shape, the last of them written; None if it has no elements.

    `strides[operand][dim]` are in elements, none negative; `itemsizes` and `addresses` in bytes, 0 for operands without
    memory (indices).  `vec` is the largest power of two, up to 16 bytes of the widest operand that moves along the innermost dim, for
    which each of these does so in whole aligned vectors.  `held` has a bit for each operand that is read once for several rows, where
    it stands still from row to row (`Layout.held`); where a thread reads neighbours, `taps` of them, it takes vectors of several
    pieces of a row, or of rows one `below` the other; `single`: no vectors, and of rows that lie anywhere, or one below the other, of
    which operand `row` is the index, or of neighbours in a row, `along` which it is; `divides`: some neighbours lie at quotients;
    `shares`: rows below read the same lines; `otherwise` has a bit for each operand that may lie otherwise than elements follow one another
    where vectors are FLAT (`Layout.otherwise`; 0: none may be).  A written file's kgen_maps.cuh has this function in C++.
    """
    if (n := math.prod(sizes)) == 0:
        return None
    shape, strides_of = strided.merged(sizes, strides, -1, 1)
    splat = sum(1 << o for o, row in enumerate(strides_of) if row[-1] == 0)
    moving = [size for size, row in zip(itemsizes, strides_of, strict=True) if row[-1] != 0]
    vec = most = 16 // max((1, *moving)) if splat < 1 << SPLATS and not single else 1
    while vec > 1 and not _vectors(vec, shape, strides_of, itemsizes, addresses):
        vec //= 2
    splat = 0 if vec == 1 else splat
    known = row < 0 or len(shape) > 1 and strides_of[row][-2] == 1
    windows = window_rows(taps, row >= 0, divides, along >= 0, shares) if single and n >= MAP_MANY and known else 1
    under = single and row >= 0 and known
    if windows > 1 and not under:
        shape, strides_of, windows = strided.rows_last(shape, strides_of, itemsizes, windows)
    last = max((sum((size - 1) * s for size, s in zip(shape, row, strict=True)) for row in strides_of), default=0)
    wide = n > UINT_MAX - THREADS * vec or last > UINT_MAX
    still = all(row[0] == 0 for k, row in enumerate(strides_of) if held >> k & 1)
    several = held and still and len(shape) == 2 and 1 < vec == most and not wide and shape[0] % map_rows(vec) == 0 and n >= MAP_MANY
    many = pieces(taps, below)
    whole = many > 1 and (len(shape) > 1 and known and shape[-2] % many == 0 if below else shape[-1] % (many * vec) == 0)
    apiece = whole and 1 < vec == most and not wide and n >= MAP_MANY
    together = map_rows(vec) if several else many if apiece else 1 if wide else windows
    spans = single and along >= 0 and not wide and n >= MAP_MANY and strides_of[along][-1] == 1
    vec = min(WINDOW_LANES, 16 // max(itemsizes)) if spans else vec
    made = Plan(Variant(len(shape), vec, wide, splat, together), n, shape, strides_of, False, apiece, under, spans)
    near = otherwise and vec < most and len(shape) <= MOST_FLAT and max(n, last) <= INT_MAX
    if near and (each := _flat(shape, strides_of, itemsizes, addresses, otherwise)) > 2 * vec:  # else a row's own vectors are as quick
        steps = [row[-1] for k, row in enumerate(strides_of) if otherwise >> k & 1]
        kind = TINY if shape[-1] < each else LONG if shape[-1] >= LONG_ROWS * each else 0
        kind = TOLD if max(steps) > 1 else kind | sum(1 << k for k, row in enumerate(strides_of) if otherwise >> k & 1 and row[-1] == 0)
        made = Plan(Variant(len(shape), each, False, FLAT | kind), n, shape, strides_of)
    verify_map(made, sizes, strides, itemsizes, addresses, otherwise)
    return made


cached_plan = lru_cache(4096)(plan)  # by place within 16 bytes: no more of an address counts


def in_turns(
    groups: Groups, sizes: tuple[int, ...], strides: tuple[tuple[int, ...], ...], itemsizes: tuple[int, ...], addresses: tuple[int, ...],
    held: int,
) -> Plan | None:  # fmt: skip
    """`plan` where the operands of each of `groups` lie one element behind another: a group is walked as one operand whose elements are as
    many neighbours.  None where there are no whole vectors of these."""
    count = len(groups[0])
    first = {k: own[0] for own in groups for k in own}
    if any(s % count for k in first for s in strides[k]) or any(strides[k] != strides[first[k]] for k in first):
        return None
    turned = [tuple(s // count for s in row) if k in first else row for k, row in enumerate(strides)]
    sized = [size * count if k in first else size for k, size in enumerate(itemsizes)]
    if max(sized) > 16:
        return None
    made = cached_plan(sizes, tuple(turned), tuple(sized), tuple(addresses[first.get(k, k)] for k in range(len(strides))), held)
    if made is None or made.variant.vec == 1 or made.variant.wide or any(made.strides[k][-1] != 1 for k in first):
        return None  # a group may stand still, too
    rows_of = tuple(tuple(s * count for s in row) if k in first else row for k, row in enumerate(made.strides))
    if max(sum((size - 1) * s for size, s in zip(made.sizes, row, strict=True)) for row in rows_of) > UINT_MAX:
        return None
    return replace(made, strides=rows_of, turns=True)


def adjacent(groups: Groups, places: Sequence[int], sizes: Sequence[int]) -> bool:
    """Whether the operands of each of some groups lie one element behind another, by the addresses and element sizes of all."""
    return all(places[k] == places[own[0]] + n * sizes[k] for own in groups for n, k in enumerate(own))


def _vectors(vec: int, shape: Sequence[int], rows: Sequence[Sequence[int]], itemsizes: Sequence[int], addresses: Sequence[int]) -> bool:
    if len(shape) > 1 and shape[-1] % vec:
        return False
    for (*outer, inner), itemsize, address in zip(rows, itemsizes, addresses, strict=True):
        if inner == 0:
            continue
        if inner != 1 or any(s % vec for s in outer) or itemsize and address % (vec * itemsize):
            return False
    return True


def _flat(
    shape: Sequence[int], rows: Sequence[Sequence[int]], itemsizes: Sequence[int], addresses: Sequence[int], otherwise: int
) -> int:  # fmt: skip
    """The elements of a vector of neighbours in memory, of all operands but those `otherwise`; 1 where they do not all lie so, aligned."""
    dense = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    own = [k for k in range(len(rows)) if not otherwise >> k & 1]
    each = 16 // max(itemsizes[k] for k in own)
    return each if all([*rows[k]] == dense and addresses[k] % (each * itemsizes[k]) == 0 for k in own) else 1


@cache
def layout_type(rank: int, operands: int, wide: bool) -> type[ctypes.Structure]:
    """The kernel's `Layout<RANK, K, Index>`."""
    index = ctypes.c_uint64 if wide else ctypes.c_uint32
    return type("Layout", (ctypes.Structure,), {"_fields_": [("n", index), ("size", index * rank), ("stride", index * rank * operands)]})


def layout(planned: Plan) -> ctypes.Structure:
    """The kernel's layout argument: its rows are those of a thread, several at once."""
    v = planned.variant
    made = layout_type(v.rank, len(planned.strides), v.wide)()
    made.n = planned.apiece
    by = [v.rows if v.rank - d == 2 and not planned.pieces and not planned.under else 1 for d in range(v.rank)]
    made.size[:] = [size // n for size, n in zip(planned.sizes, by, strict=True)]
    for row, strides in zip(made.stride, planned.strides, strict=True):
        row[:] = [stride * n for stride, n in zip(strides, by, strict=True)]
    return made
