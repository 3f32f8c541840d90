"""CUDA C++: what a pass over rows does with the pieces of a row, as the text of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgen.backends import cuda_partials as partials
from kgen.backends.units import Piece, RowUnit
from kgen.types import literal_size

if TYPE_CHECKING:
    from kgen.backends.cuda_rows import RowPrinter


def walk(unit: RowUnit) -> str:
    """The arguments of the library's `Pieces`: the elements of a piece, which the threads of a pass share so that each has several vectors
    of one (1 where pieces lie across others), those of the last dim, and whether rows are tiles of which nothing else is made; "" where
    there are none."""
    if not unit.pieces:
        return ""
    tiles = not any(c.element for c in unit.codes)
    piece = 1 if any(p.step > 1 for p in unit.pieces) else unit.pieces[0].size
    return f"{piece}, {literal_size(unit.inner[-1])}{', true' if tiles else ''}"


def printed(rows: RowPrinter, pieces: Sequence[Piece], reading: int) -> list[list[str]]:
    """The lines of each kind of pieces, behind so many readings of the row."""
    made = [lines(rows, piece, reading + k) for k, piece in enumerate(pieces)]
    if made and reading:  # a launch of a split row that was for the readings ends here
        made[0].insert(0, f"if (walk.stops({2 * reading - 1})) return;")
    return made


def lines(rows: RowPrinter, piece: Piece, reading: int) -> list[str]:
    """The call that goes by the pieces: what is made of each of them once, and with that of its elements; `reading` is the number of the
    reading that a piece has."""
    kind = f"{partials.struct(reading)}Piece"
    last = piece.codes[-1] if piece.codes[-1].element else None
    made = {a.name for c in piece.codes for a in c.accumulators} | {g.name for c in piece.codes for g in c.gives}
    values = [g for g in last.takes if g.name in made] if last is not None else []
    before: list[str] = []
    once: list[str] = []
    operands: dict[str, None] = {}
    for k, c in enumerate(piece.codes):
        if c.element:
            before += [*(rows.making(c.makes) if c.makes else ()), *rows.results(c)]
            operands |= dict.fromkeys([*(f"{o.name}_out_row" for o in c.outputs), *partials.taken(c)[1]])
            later = frozenset[str]().union(*(x.uses for x in piece.codes[k + 1 :]))
            once += partials.reading(rows.backend, c, reading, later, piece=True) if c.accumulators else []
        else:
            once += [*rows.backend.printed(partials.split(c, None)[0]), *rows.row_stores(c, "piece")]
    once.append(f"return {kind}{{{', '.join(g.name for g in values)}}};")
    each = [f"const {g.type} {g.name} = own.{g.name};" for g in values]
    if last is not None:
        each += [f"const auto {g.name} = divisor<{g.type}>({g.text});" for g in last.divisors] + rows.storing(last, "piece")
    way = f"{piece.size}, {piece.step}"
    param = f"const Piece<Rowed, {way}>& piece"
    return [
        *before,
        f"struct {kind} {{ {' '.join(f'{g.type} {g.name};' for g in values)} }};",
        f"walk.template pieces<{way}, {kind}>([&]({param}) {{",
        *(f"    {line}" for line in once),
        f"}}, [&]({param}, const {kind}& own) {{",
        *(f"    {line}" for line in each),
        f"}}, {', '.join(operands)});",
    ]
