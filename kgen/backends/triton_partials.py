"""Triton: a peak and the sums about it, in the readings of rows that do not fit a tile.

A tile's partial is made about its own peak, then joined to that of the tiles before it: both are brought to the peak of all.  Exponentials
and quotients for that are taken once a tile, not once an element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgen.backends.moving import Part, Peak, moves, parts, share
from kgen.backends.python_text import wrapped
from kgen.backends.text import Text, named, source
from kgen.backends.triton_nodes import Invocation, Node, Slot
from kgen.backends.units import Statement

if TYPE_CHECKING:
    from kgen.backends.triton_rows import RowPrinter


@dataclass(frozen=True)
class Join:
    """The function that makes two partials one."""

    name: str
    first: tuple[str, ...]
    more: tuple[str, ...]
    body: tuple[Statement, ...]
    returns: str

    @property
    def define(self) -> str:
        return wrapped(f"def {self.name}", [*self.first, *self.more], ":")


class Partial:
    """One peak of a pass; `name` spells a field for a purpose, each by a name that is free."""

    def __init__(self, rows: RowPrinter, a: Peak):
        self.rows, self.backend, self.a, self.parts = rows, rows.backend, a, parts(a)
        self.top = rows.combine(a)
        self.function = rows.names.fresh(f"{rows.unit.name}_join_{a.name}")
        self.known: dict[tuple[str, str], str] = {}
        for p in self.parts:
            self.known[p.name, ""] = p.name if p.of.name == p.name else rows.names.fresh(p.name)

    def name(self, field: str, whose: str = "") -> str:
        if (field, whose) not in self.known:
            self.known[field, whose] = self.rows.names.fresh(f"{field}_{whose}")
        return self.known[field, whose]

    def at(self, **whose: str) -> Callable[[str, str], Text]:
        """How fields are spelled, given the ends of their names for each purpose; `own` for the partial that is rescaled."""
        return lambda field, of: named(self.name(field, whose[of or "own"]))

    def slots(self) -> tuple[Slot, ...]:
        """What is carried from one segment to the next."""
        made = []
        for p in self.parts:
            identity, start = self.backend.identity(p.of), self.backend.bare(*self.backend.neutral(p.of))
            made.append(Slot(self.name(p.name), p.of.type, self.rows.host_dtype(p.of.dtype, p.of.type), identity, start, p.of.value))
        return tuple(made)

    def reduced(self, p: Part, tile: Text) -> Text:
        return source("tl.reduce({0}, 1, {1}, keep_dims=True)", tile, self.top if p.of is self.a else "plus")

    def gathered(self, element: Text, p: Part) -> Text:
        """A tile's values of a field as one a row; of no element the identity counts.  What is 1 of each counts them."""
        if element.isdigit():
            return source("tl.minimum(length - start, BLOCK).to({0})", p.of.type)
        return self.reduced(p, source("tl.where(inside, {0}, {1})", element, self.backend.identity(p.of)))

    def shares(self, whose: str, of: Iterable[Part]) -> list[Statement]:
        """The lines that make some fields of a tile's partial, about the tile's own peak."""
        at = self.at(own=whose, top=whose, part="share")
        made = []
        for p in self.parts:
            value = share(self.a, p, at)
            if any(f"{{part.{p.field.name}}}" in q.field.share for q in self.parts if q.of is p.of):
                made.append(Statement((self.name(p.name, "share"),), "", value))
                value = named(self.name(p.name, "share"))
            made += [Statement((self.name(p.name, whose),), "", self.gathered(value, p))] if p in of else []
        return made

    def row(self) -> list[Statement]:
        """The lines that make the row's values of a tile that holds it: no field but these is asked for again."""
        return self.shares("", [p for p in self.parts if p.name == p.of.name])

    def tile(self) -> list[Node]:
        """The lines that add a tile's partial to that of the segment so far."""
        made: list[Node] = [*self.shares("tile", self.parts)]
        return [*made, self.joined(*([self.name(p.name, end) for p in self.parts] for end in ("", "tile")))]

    def joined(self, own: Iterable[str], more: Iterable[str]) -> Invocation:
        """A partial joined with another, of these names."""
        first = tuple(own)
        return Invocation(first, self.function, (*first, *more))

    def join(self) -> Join:
        """The function that makes two partials one."""
        made = []
        for p in self.parts:
            if p.early:
                pattern = f"{self.top}({{0}}, {{1}})" if p.of is self.a and self.top != "plus" else "{0} + {1}"
                made.append(Statement((self.name(p.name, "top"),), "", source(pattern, self.name(p.name), self.name(p.name, "more"))))
        for end in ("", "more"):
            steps = moves(self.a, self.at(own=end, top="top", part="more"))
            made += [Statement((self.name(field, end),), "", by, sign=sign) for field, sign, by in steps]
        ends = [self.name(p.name, "top") if p.early else f"{self.name(p.name)} + {self.name(p.name, 'more')}" for p in self.parts]
        first, more = (tuple(self.name(p.name, end) for p in self.parts) for end in ("", "more"))
        return Join(self.function, first, more, tuple(made), wrapped("return ", ends, ""))

    def whole(self, lanes: Mapping[str, str]) -> list[Statement]:
        """The lines that make lanes' partials, of these names, one a row: each is brought to the peak of all."""
        self.known |= {(p.name, "lanes"): lanes[self.name(p.name)] for p in self.parts}
        reduced = {p: self.reduced(p, named(self.name(p.name, "lanes"))) for p in self.parts}
        made = [Statement((self.name(p.name),), "", reduced[p]) for p in self.parts if p.early]
        for field, sign, by in moves(self.a, self.at(own="lanes", top="", part="lanes")):
            made.append(Statement((self.name(field, "lanes"),), "", by, sign=sign))
        return made + [Statement((self.name(p.name),), "", reduced[p]) for p in self.parts if not p.early]
