"""CUDA C++: which windows the threads of a map share, by how these go along its dims."""

from __future__ import annotations

from kgen.backends.launches import WINDOW_LANES, WINDOW_ROWS_ALONG
from kgen.backends.units import Tap, Unit
from kgen.taps import Move

#: The longest line of which a thread reads what it is asked for in one piece of code.
MOST_SPAN = 256


def reaches_rows(unit: Unit) -> bool:
    """Whether a map reads neighbours in other rows: then rows one below the other share most of what they read."""
    return any(m.counts != unit.dims[-1] for t in unit.taps for m in t.by)


def row_index(unit: Unit) -> str:
    """The index along the dim of a map's rows, by its name in the spec, where neighbours lie along that: then rows one below the other
    share most of what they read.  "" where none do, or where of windows a tensor has rows too."""
    rows = unit.dims[-2] if len(unit.dims) > 1 else ""
    moves = [m for t in unit.taps for m in t.by if m.counts == rows]
    if unit.reaches:
        return rows if any(m.along for m in moves) and not any(rows in t.tensor.dims for t in unit.taps) else ""
    return rows if moves and all(m.fixed for m in moves) and all(rows in t.tensor.dims for t in unit.taps) else ""


def share_lines(unit: Unit) -> bool:
    """Whether windows that a row reads lie in a line that the row below reads, too: not in steps of two, three apart."""
    moves = {(m.times, m.by) for t in unit.taps for m in t.by if len(unit.dims) > 1 and m.counts == unit.dims[-2]}
    return any((times, by + times) in moves for times, by in moves)


def divides(unit: Unit) -> bool:
    """Whether a map reads windows at places that are quotients."""
    return any(m.over > 1 for t in unit.taps for m in t.by)


def is_span(unit: Unit, tap: Tap, m: Move) -> bool:
    """Whether a move is a window's in whole steps along a map's rows and a tensor's, so that neighbours share what they read there."""
    return m.along == unit.dims[-1] and m.over == 1 and not m.numbers and m.dim == tap.tensor.dims[-1]


def span_index(unit: Unit) -> str:
    """The index along a row, by its name in the spec, of a map whose threads take several neighbours: it reads windows that go along rows,
    among other dims, and nothing else.  "" of others, and where a thread would read more than it has registers for."""
    alone = not unit.read and not unit.indexed and not unit.words and unit.reaches
    spans = all(any(is_span(unit, t, m) for m in t.by) and all(m.along for m in t.by) for t in unit.taps)
    few = len(unit.taps) <= WINDOW_ROWS_ALONG[-1][0] or in_rows_alone(unit)
    return unit.dims[-1] if alone and spans and few and longest(unit) <= MOST_SPAN else ""


def longest(unit: Unit) -> int:
    """Elements of a line from the first to the last that a thread's neighbours read."""
    moves = [m for t in unit.taps for m in t.by if is_span(unit, t, m)]
    return max((m.by + m.times * (WINDOW_LANES - 1) for m in moves), default=0) - min((m.by for m in moves), default=0) + 1


def in_rows_alone(unit: Unit) -> bool:
    """Whether all that a map reads lies along its rows."""
    return all(len(t.by) == 1 and is_span(unit, t, t.by[0]) for t in unit.taps)
