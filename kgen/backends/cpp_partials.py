"""C++: a peak and the sums about it, in the readings of rows that are not read from a cache.

A tile's partial is made about its own peak, from lanes that are added up, then joined to that of the tiles before it: both are brought to
the peak of all.  Exponentials and quotients for that are taken once a tile, not once an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgen.backends.moving import Part, Peak, moves, parts, share
from kgen.backends.text import Text, named, source
from kgen.backends.units import Statement

if TYPE_CHECKING:
    from kgen.backends.cpp import Cpp


@dataclass(frozen=True)
class Lanes:
    """A field as lanes add it up over a tile: `value` is an element's share, `combine` how two are joined, as an expression of `first` and
    `next`."""

    name: str
    type: str
    value: Text
    start: Text
    combine: Text


@dataclass(frozen=True)
class PeakView:
    """A peak with the sums about it: the fields of a partial with their identities, the lines that join `own` and `next` to `top`, the
    lanes of what is joined first and of the sums, what counts elements, and the lines that an element's shares take besides its own."""

    name: str
    fields: tuple[tuple[str, str, Text], ...]
    join: list[Statement]
    early: list[Lanes]
    late: list[Lanes]
    counts: list[Lanes]
    lines: list[Statement]

    @property
    def values(self) -> list[Text]:
        """The shares of an element in the sums, and what else they are made of."""
        return [*(x.value for x in self.late), *(s.value for s in self.lines)]

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions that it calls."""
        lanes = [text for x in (*self.early, *self.late) for text in (x.combine, x.value)]
        return tuple(c for text in (*lanes, *(s.value for s in (*self.join, *self.lines))) for c in text.calls)


def peak_view(backend: Cpp, a: Peak) -> PeakView:
    """What the templates take of a peak."""
    every = parts(a)

    def at_tile(field: str, whose: str) -> Text:
        return named(f"{field}_{'share' if whose == 'part' else 'top'}")

    def lanes(p: Part, value: Text) -> Lanes:
        combine = backend.combined(a, "first", "next") if p.of is a else source("first + next")
        return Lanes(p.name, p.of.type, value, backend.identity(p.of), combine)

    shared = {p for p in every for q in every if q.of is p.of and f"{{part.{p.field.name}}}" in q.field.share}
    shares = {p: share(a, p, at_tile) for p in every}
    lines = [Statement((f"{p.name}_share",), p.of.type, shares[p]) for p in every if p in shared]
    values = {p: named(f"{p.name}_share") if p in shared else shares[p] for p in every}
    counts = [p for p in every if values[p].isdigit()]
    return PeakView(
        name=a.name,
        fields=tuple((p.of.type, p.name, backend.identity(p.of)) for p in every),
        join=joined(backend, a, every),
        early=[lanes(p, values[p]) for p in every if p.early and p not in counts],
        late=[lanes(p, values[p]) for p in every if not p.early and p not in counts],
        counts=[lanes(p, source("{0}", "count")) for p in counts],
        lines=lines,
    )


def joined(backend: Cpp, a: Peak, every: tuple[Part, ...]) -> list[Statement]:
    """The lines that make `top` of two partials, `own` and `next`."""
    def both(p: Part) -> Statement:
        names = f"own.{p.name}", f"next.{p.name}"
        return Statement((f"top.{p.name}",), "", backend.combined(a, *names) if p.of is a else source("{0} + {1}", *names))

    def moved(part: str) -> list[Statement]:
        steps = moves(a, lambda field, whose: named(f"{whose if whose == 'top' else part}.{field}"))
        return [Statement((f"{part}.{field}",), "", by, sign=sign) for field, sign, by in steps]

    return [*(both(p) for p in every if p.early), *moved("own"), *moved("next"), *(both(p) for p in every if not p.early)]
