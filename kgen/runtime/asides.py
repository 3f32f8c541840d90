"""Rows of one element each that lie side by side, of which a thread takes several (kgen_ranges.cuh).

In: the sizes and strides of a pass's rows.  Out: how many a thread takes, and the pass over as many fewer rows.  What an element is does
not depend on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from kgen.backends.launches import ASIDE, ASIDE_FEW, ASIDE_LONG, ASIDE_TEAM, ASIDE_THREADS
from kgen.runtime.rows import RowPlan

#: An operand: address modulo 16, strides along the rows' dims, along the inner dims, bytes an element.
Operand = tuple[int, tuple[int, ...], tuple[int, ...], int]


class Aside(NamedTuple):
    """A thread takes `columns` rows; a bit of `moves` for each operand that moves by one element from one to the next; the `row_sizes` and
    `operands` are those of rows that are as many times longer."""

    columns: int
    moves: int
    row_sizes: tuple[int, ...]
    operands: Sequence[Operand]
    team: int = 0  # so many threads that share a row where ranges are long, and threads' rows of their block
    side: int = 0

    def shared(self, planned: RowPlan) -> RowPlan:
        """The plan in which teams take a row, where there are few, or ranges are long; a block's rows all have the same ranges."""
        innermost = {(k, own[-1]) for k, own in enumerate(planned.row_strides)}
        alike = innermost == {(k, self.columns * (self.moves >> k & 1)) for k in range(len(planned.row_strides))}
        team, side = (self.team, self.side) if self.team else (ASIDE_TEAM, ASIDE_THREADS // ASIDE_TEAM)
        if self.columns == 1 or (planned.rows >= ASIDE_FEW and not self.team) or planned.row_sizes[-1] % side or not alike:
            return planned
        threads = team * side
        walk = planned.steps[0][0]._replace(threads=threads, team=team, across=True)
        return replace(planned, steps=((walk, planned.rows // side),), threads=threads)

    def text(self, walk: str) -> str:
        """The walk of a kernel that takes rows so."""
        return f"Aside<{walk}, {self.columns}, {self.moves}ull>"


def aside(row_sizes: tuple[int, ...], operands: Sequence[Operand], roles: Sequence[str], gathers: Sequence[tuple[int, int]]) -> Aside:
    """How many rows a thread takes.  `roles` are those of the operands; `gathers` have (size, stride) along the dim of each gather."""
    alone = Aside(1, 0, row_sizes, operands)
    steps = [outer[-1] for _, outer, _, _ in operands]
    moving = [k for k, step in enumerate(steps) if step]
    sizes = [operands[k][3] for k in moving if operands[k][3]]
    if not sizes or not prod(row_sizes):
        return alone
    gathered = dict(zip((k for k, role in enumerate(roles) if role == "gather"), gathers, strict=True))

    def fits(columns: int) -> bool:
        """Whether all operands have so many neighbours of each row in a whole vector."""
        if columns * max(sizes) > 16 or row_sizes[-1] % columns or any(steps[k] != 1 for k in moving):
            return False
        wide = [k for k in moving if operands[k][3]]
        apart = any(s % columns for k in wide for s in (*operands[k][1][:-1], gathered.get(k, (0, 0))[1]))
        return not apart and not any(operands[k][0] % (columns * operands[k][3]) for k in wide)

    most = max((size for size, _ in gathers), default=0)
    terms = most // prod(row_sizes[:-1])  # of a range, in the mean
    ordered = any(size == most and k not in moving for k, (size, _) in gathered.items())  # by positions, of which there are as many
    long = (
        (team, side) for least, team, side, orders in ASIDE_LONG
        if terms >= least and max(sizes) == 2 and row_sizes[-1] % (8 * side) == 0 and (orders or not ordered)
    )  # fmt: skip
    team, side = next(long, (0, 0)) if fits(8) else (0, 0)
    some = (n for n, many in ASIDE if n * max(sizes) <= 16 and row_sizes[-1] % n == 0 and prod(row_sizes) // n >= many)
    columns = 8 if team else next(some, 1)
    if columns == 1 or not fits(columns):
        return alone
    made = [(address, (*outer[:-1], outer[-1] * columns), inner, size) for address, outer, inner, size in operands]
    return Aside(columns, sum(1 << k for k in moving), (*row_sizes[:-1], row_sizes[-1] // columns), made, team, side)


__all__ = ["Aside", "aside"]
