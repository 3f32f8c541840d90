"""Rows of one element each that lie side by side, of which a thread takes several (kgen_ranges.cuh).

In: the sizes and strides of a pass's rows.  Out: how many a thread takes, and the pass over as many fewer rows.  What an element is does
not depend on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from kgen.backends.cuda_layouts import RowOperand
from kgen.backends.devices import resident
from kgen.backends.launches import ALONE, ASIDE, ASIDE_FEW, ASIDE_LONG, ASIDE_SHARED, LOOKED, Sharing
from kgen.runtime.rows import RowPlan
from kgen.types import DTYPES

#: An operand: address modulo 16, strides along the rows' dims, along the inner dims, bytes an element.
Operand = tuple[int, tuple[int, ...], tuple[int, ...], int]
#: Terms of a block of a range (`block_sum` of ranged_sum.cu).
BLOCK = 128
#: Bytes of a sum of 16-bit floats, and those before what is left of pieces (`BEFORE_PIECES` of kgen_ranges.cuh).
SUM, BEFORE = 4, 4 * (512 + 8)
#: Ranges of which several blocks add up pieces at most (`MOST_RANGES` there), of fewer terms, and operands of which there are sums.
RANGES, TERMS, SUMS = 512, 1 << 27, 8


class Aside(NamedTuple):
    """A thread takes `columns` rows; a bit of `moves` for each operand that moves by one element from one to the next; the `row_sizes` and
    `operands` are those of rows that are as many times longer."""

    columns: int
    moves: int
    row_sizes: tuple[int, ...]
    operands: Sequence[Operand]
    sharing: Sharing = ALONE  # who adds up a range of a row, where ranges are long
    ranges: bool = False  # whether rows are sums over ranges
    sums: int = 0  # operands of which several blocks add up a range
    pieces: int = 0  # there is room for so many pieces of all ranges: a block of terms each where no two ranges have one
    blocks: int = 0  # that share ranges, at most

    def shared(self, planned: RowPlan) -> RowPlan:
        """The plan in which teams take a row, where there are few, or ranges are long; a block's rows all have the same ranges."""
        innermost = {(k, own[-1]) for k, own in enumerate(planned.row_strides)}
        alike = innermost == {(k, self.columns * (self.moves >> k & 1)) for k in range(len(planned.row_strides))}
        few = self.ranges and self.columns > 1 and planned.rows < ASIDE_FEW
        how = self.sharing if self.sharing.team else ASIDE_SHARED if few else ALONE
        if not how.team or planned.row_sizes[-1] % how.rows or not alike:
            return planned
        one = planned.steps[0][0]
        threads, own = how.team * how.rows, planned.rows // how.rows
        walk = one._replace(threads=threads, team=how.team, across=True)
        if not how.blocks:
            return replace(planned, steps=((walk, own),), threads=threads)
        along = planned.row_sizes[-1]
        most = min(self.blocks, self.pieces * (along // how.rows))
        steps = (walk._replace(step=3), most), (walk._replace(step=1), own)  # one launch leaves sums, the other takes them up
        work = BEFORE + SUM * self.sums * self.pieces * along * self.columns
        return replace(planned, steps=steps, threads=threads, work=work, slot=self.pieces)

    def text(self, walk: str) -> str:
        """The walk of a kernel that takes rows so."""
        return f"{'Ranges' if self.ranges else 'Aside'}<{walk}, {self.columns}, {self.moves}ull>"


def aside(
    row_sizes: tuple[int, ...], operands: Sequence[Operand], of: Sequence[RowOperand], gathers: Sequence[tuple[int, int]], ranges: bool,
    arch: str,
) -> Aside:  # fmt: skip
    """How many rows a thread takes.  The operands are those `of` a unit; `gathers` have (size, stride) along the dim of each gather;
    `ranges` if rows are sums over these, else they are looked up; `arch` is the device's."""
    alone = Aside(1, 0, row_sizes, operands, ranges=ranges)
    steps = [outer[-1] for _, outer, _, _ in operands]
    moving = [k for k, step in enumerate(steps) if step]
    sizes = [operands[k][3] for k in moving if operands[k][3]]
    if not sizes or not prod(row_sizes):
        return alone
    gathered = dict(zip((k for k, o in enumerate(of) if o.role == "gather"), gathers, strict=True))

    def fits(columns: int) -> bool:
        """Whether all operands have so many neighbours of each row in a whole vector."""
        if columns * max(sizes) > 16 or row_sizes[-1] % columns or any(steps[k] != 1 for k in moving):
            return False
        wide = [k for k in moving if operands[k][3]]
        apart = any(s % columns for k in wide for s in (*operands[k][1][:-1], gathered.get(k, (0, 0))[1]))
        return not apart and not any(operands[k][0] % (columns * operands[k][3]) for k in wide)

    most, count = max((size for size, _ in gathers), default=0), prod(row_sizes[:-1])
    terms = most // count  # of a range, in the mean
    ordered = any(size == most and k not in moving for k, (size, _) in gathered.items())  # by positions, of which there are as many
    summed = [k for k in moving if k in gathered]
    floats = all(of[k].dtype not in DTYPES or DTYPES[of[k].dtype].kind == "float" for k in summed)
    shares = floats and count <= RANGES and most < TERMS and len(summed) <= SUMS
    long = (
        how for how in ASIDE_LONG
        if terms >= how.least and max(sizes) == 2 and row_sizes[-1] % (8 * how.rows) == 0 and (how.orders or not ordered)
        and (not how.blocks or shares and count * row_sizes[-1] <= 8 * how.rows * how.most)
    )  # fmt: skip
    sharing = next(long, ALONE) if ranges and fits(8) else ALONE
    rows = prod(row_sizes)
    some = (n for n, many in (ASIDE if ranges else LOOKED) if n * max(sizes) <= 16 and row_sizes[-1] % n == 0 and rows // n >= many)
    columns = 8 if sharing.team else next(some, 1)
    if columns == 1 or not fits(columns):
        return alone
    sums = 1 + moving.index(summed[-1]) if summed else 0  # they have places by the order of what moves
    pieces = -(-most // BLOCK) + count
    made = [(address, (*outer[:-1], outer[-1] * columns), inner, size) for address, outer, inner, size in operands]
    moves, fewer, blocks = sum(1 << k for k in moving), (*row_sizes[:-1], row_sizes[-1] // columns), resident(arch, sharing.blocks, 1)
    return Aside(columns, moves, fewer, made, sharing, ranges, sums, pieces, blocks)
