"""Triton: the body of the kernel that holds whole rows.

In: a pass over rows as code.  Out: the lines that load a row once and go through it as often as its phases ask for.  What moves in 16 bits
may be kept so: each phase widens it again and computes again what it needs, so a thread has room for twice as many elements.  Where long
rows are read once, for a peak and the sums about it, so are these: such sums need no exponentials that are exact far below the peak.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kgen.backends import triton_searches
from kgen.backends.moving import Peak
from kgen.backends.text import source
from kgen.backends.triton_nodes import Node
from kgen.backends.units import Accumulator, Code, Search, Statement, Tensor
from kgen.monoids import MONOIDS, RIDERS, Rides
from kgen.passes import Reduce

if TYPE_CHECKING:
    from kgen.backends.triton_rows import RowPrinter


def rides_at_once(p: Reduce) -> bool:
    """Whether rows that stay on the chip have the code of those that do not: where one reading makes a maximum and all sums about it."""
    about = [r.expr.name for phase in p.long for r in phase.reductions if r.expr.name in RIDERS]
    return p.long_readings == 1 and bool(about) and all(MONOIDS[name].rides(Rides.EVERY, long=False) for name in about)


class Held:
    """The body of one such kernel.  `held` is the one operand that it holds, where several phases widen that; `name` is what it is held
    as; `anew` are the names that a phase computes again."""

    def __init__(self, rows: RowPrinter):
        self.rows = rows
        self.codes = rows.looped if rides_at_once(rows.p) else rows.codes
        self.held = self._held()
        self.name = rows.names.fresh(f"{self.held.name}_held") if self.held else ""
        self.made: list[Node] = []
        self.known: set[str] = set()
        self.anew: set[str] = set()

    def _held(self) -> Tensor | None:
        operands = self.rows.held()
        found = [t for t in operands if t.type != t.compute and sum(t in c.inputs for c in self.codes if c.element) > 1]
        return found[0] if self.rows.keeps and len(operands) == 1 and found else None

    @property
    def finds(self) -> bool:
        """Whether it finds places, for which masks cost more than all else."""
        return any(a.place for c in self.codes for a in c.accumulators)

    @property
    def inside(self) -> str:
        """Which elements of the tile there are."""
        masked = "present & (column < length)"
        return f"tl.full([ROWS, BLOCK], True, tl.int1) if FULL else {masked}" if self.finds else masked

    def body(self) -> list[Node]:
        """The lines."""
        rows = self.rows
        for c in self.codes:
            self.anew = set()
            if not c.element:
                self.add(rows.row_phase(c))
                continue
            self.add(self.elements(c))
            if c.search:
                self.made += self.searched(c, c.search)
                continue
            self.add(list(c.lines))
            self.made += [s for a in c.accumulators for s in self.reduced(a)]
            rows.put(self.made, c.outputs)
        return rows.ends(self.codes, self.made)

    def searched(self, c: Code, search: Search) -> list[Node]:
        """The loop of a search; what a step makes is known in it alone."""
        made, known, self.made = self.made, set(self.known), []
        if self.held in c.inputs:
            self.add(self.elements(c))
        self.add(list(c.lines))
        body = [*self.made, *(s for a in c.accumulators for s in self.reduced(a))]
        self.made, self.known = made, known
        return triton_searches.looped(search, body)

    def elements(self, c: Code) -> list[Statement]:
        """What a phase loads, or widens again."""
        made = []
        for s in self.rows.elements(c):
            if self.held and s.names == (self.held.name,):
                read = source("again({0}, HOLD)", self.name) if self.name in self.known else self.rows.read(self.held)
                self.anew |= {self.name, self.held.name} if self.name in self.known else set()
                made += [Statement((self.name,), "", read), replace(s, value=self.rows.backend.widen(source("{0}", self.name), self.held))]
            else:
                made.append(s)
        return made

    def add(self, new: list[Statement]) -> None:
        """Put lines behind the others, but those of what is known and not computed anew."""
        notes: list[str] = []
        for s in new:
            notes += [s.note] if s.note else []
            if not s.value:
                continue
            again = {*s.names, *s.value.uses} & self.anew
            if len(s.names) != 1 or s.names[0] not in self.known or again:
                self.say(notes)
                self.made.append(replace(s, note=""))
                self.anew |= {*s.names} & self.known if again else set()
            notes = []
            self.known.update(s.names)
        self.say(notes)  # of a reduction, which follows

    def say(self, notes: Iterable[str]) -> None:
        said = {s.note for s in self.made if isinstance(s, Statement)}
        self.made.extend(Statement(note=note) for note in notes if note not in said)

    def reduced(self, a: Accumulator) -> list[Statement]:
        return self.rows.partials[a.name].row() if isinstance(a, Peak) else self.rows.reduced_whole(a)
