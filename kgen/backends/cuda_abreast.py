"""CUDA C++: rows that lie side by side, as columns of a matrix do: a thread takes several abreast, whose elements it moves as vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgen.backends.drawn import WORDS
from kgen.backends.launches import ANY, LOOKED_UP
from kgen.backends.units import RowUnit, ScanUnit

if TYPE_CHECKING:
    from kgen.backends.cuda_rows import RowPrinter


def is_abreast(unit: RowUnit) -> bool:
    """Whether a thread may take rows of a pass abreast: by declaration neighbours in memory are of different rows, one reading reduces a
    row that does not stay on the chip and needs nothing of the row's own, and one more stores what follows from it, if any; elements are
    looked up for a row alone, and no words are drawn, of which neighbours along a row share some."""
    codes = unit.long or unit.codes
    at = next((k for k, c in enumerate(codes) if c.element), len(codes))
    special = isinstance(unit, ScanUnit) or unit.columns or unit.aside or unit.pieces or unit.near or WORDS in unit.calls
    special = special or any(c.search or c.makes or c.words or c.repeated or c.element and c.gathers for c in unit.every)
    special = special or any(g.ranged or g.order for g in unit.gathers)
    special = special or any(o.pair for o in unit.outputs)  # codes of two neighbours along a row
    beside = any(t.dims[-1] in unit.rows for t in unit.inputs if not unit.is_row(t))
    if special or not beside or at == len(codes) or not codes[at].accumulators:
        return False
    first, rest = codes[at], codes[at + 1 :]
    own = {t.name for t in (*unit.inputs, *unit.indices) if unit.is_row(t) and t.dims}
    own |= {name for c in codes[:at] for name in (*(g.name for g in c.gives), *(n for s in c.lines for n in s.names))}
    stores_early = any(c.accumulators and c.outputs for c in codes)
    return not (own & first.uses or any(c.accumulators for c in rest) or stores_early)


def longest(unit: RowUnit) -> int:
    """Up to how many elements a row may be taken abreast: 0 where none is."""
    return 0 if not is_abreast(unit) else LOOKED_UP if unit.gathers else ANY


def looped(printer: RowPrinter, phases: list[list[str]]) -> list[list[str]]:
    """The phases within the loop over the rows that a thread takes abreast, before which its results along these are."""
    unit = printer.unit
    made = [line for c in unit.codes if c.element for line in printer.results(c)]
    own = printer.row_values({t.name for c in unit.every for t in c.inputs})
    lines = ["walk.abreast(k);", *own, *(line for lines in phases for line in ("", *lines))]
    body = [f"    {line}" if line else "" for line in lines]
    return [[*made, "#pragma unroll", "for (int k = 0; k < Walk::ABREAST; k++) {", *body, "}"]]
