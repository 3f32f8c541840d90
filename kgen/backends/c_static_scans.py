"""Scans in static sources of C++ and CUDA C++: what is carried along a row, and what is done with an element.

In: a pass along rows, in the printer of its file.  Out: the lines that declare a partial and join two, those before an element's partial,
and those behind the scans.
"""

from __future__ import annotations

from kgen.backends.c_static import CStatic
from kgen.backends.names import Names
from kgen.backends.scans import fields, joined, taken
from kgen.backends.static import stored
from kgen.backends.text import Text, named
from kgen.backends.units import Code, ScanUnit, Statement, Tensor


class ScanTexts:
    """The texts of one pass along rows; `owner` prints its file."""

    def __init__(self, owner: CStatic, unit: ScanUnit):
        self.owner, self.unit, self.render = owner, unit, owner.render
        own = {n for c in unit.codes for s in c.lines for n in s.names}
        self.names = Names(set(self.render.global_names.taken) | own)
        self.fields = fields(owner.backend, unit.scanned.accumulators, self.names)
        row = named("row")
        walked = [t for t in (*unit.inputs, *unit.outputs) if not unit.is_row(t)]
        self.walked = [t for t in walked if self.render.place(t.dims, unit.rows, row) is not None]
        self.in_row = {t.spec_name for t in self.walked}
        self.joined = joined(owner.backend, self.fields, lambda name, whose: f"{whose}.{name}")

    def partial(self, device: str = "") -> list[str]:
        """The lines that say what a partial is, which has no elements, and how neighbours are joined."""
        lines = [Statement((f"both.{f.name}",), "", value) for f, value in zip(self.fields, self.joined, strict=True)]
        return [
            "struct Partial {  // of neighbours", *(f"    {f.type} {f.name};" for f in self.fields), "};",
            f"const Partial none = {{{', '.join(str(f.identity) for f in self.fields)}}};",
            f"const auto join = []{device}(const Partial& own, const Partial& next) {{", "    Partial both;",
            *(f"    {line}" for line in self.owner.backend.printed(lines)), "    return both;", "};",
        ]  # fmt: skip

    @property
    def calls(self) -> list[str]:
        """The functions that these call."""
        texts = [*self.joined, *(t for f in self.fields for t in (f.identity, f.share)), *self.found("now", "now")]
        return [c for text in texts for c in text.calls]

    def at(self, t: Tensor, i: Text) -> Text:
        """The element of a tensor at place `i` of the row."""
        return self.owner.at(t, self.render.place(t.dims, self.unit.inner, i), row=t.spec_name in self.in_row)

    def own(self, place: Text) -> list[str]:
        """The lines that name an element's positions."""
        c, other = self.unit.scanned, self.unit.stored
        found = {x.name: x for x in (*c.indices, *other.indices) if not self.unit.is_row(x)}
        return [self.owner.position(x, (self.unit.inner, place)) for x in found.values()]

    def inputs(self) -> list[Tensor]:
        """What is read of each element."""
        return list({t.name: t for c in self.unit.codes for t in c.inputs if not self.unit.is_row(t)}.values())

    def share(self) -> tuple[list[str], str]:
        """The lines before an element's partial, and that."""
        values = ", ".join(f"{f.type}({f.share})" for f in self.fields)
        return self.owner.printed(self.unit, self.unit.scanned.lines), f"{{{values}}}"

    def found(self, now: str, past: str) -> list[Text]:
        """What each scan is, of the partials up to an element and before it."""
        every = {a.name: a for a in self.unit.scanned.accumulators}
        of = [(every[g.name], past if every[g.name].exclusive else now) for g in self.unit.stored.takes]
        return [taken(self.owner.backend, self.fields, a, f"{whose}.{{}}".format) for a, whose in of]

    def ends(self, now: str, past: str, apart: bool) -> tuple[list[str], dict[str, Text]]:
        """The lines behind the scans, and the value of each result; `apart` where what is scanned has names of its own."""
        c: Code = self.unit.stored
        known = {n for s in self.unit.scanned.lines for n in s.names} if not apart else set()
        found = zip(c.takes, self.found(now, past), strict=True)
        lines, values = stored([s for s in c.lines if not known.intersection(s.names)], c.outputs)
        return [*(f"const {g.type} {g.name} = {text};" for g, text in found), *self.owner.printed(self.unit, lines)], values

    @property
    def both(self) -> tuple[bool, bool]:
        """Whether scans are asked for that have the element itself, and that leave it out."""
        every = self.unit.scanned.accumulators
        return any(not a.exclusive for a in every), any(a.exclusive for a in every)
