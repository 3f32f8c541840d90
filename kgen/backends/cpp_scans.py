"""C++'s passes along rows: from a `ScanUnit` to what templates/cpp/scans.cpp.jinja lays out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from kgen.backends.cpp_rows import RowPrinter
from kgen.backends.names import Names
from kgen.backends.scans import ScanField, fields, joined, taken
from kgen.backends.text import Text
from kgen.backends.units import Given, ScanUnit, Statement, Tensor


@dataclass(frozen=True, kw_only=True)
class ScansView(ScanUnit):
    """A pass along rows: the fields of what is carried along and how two partials are joined, its operands in the order of their strides,
    the run function and its entries."""

    over_rows: ClassVar[bool] = True
    scans: ClassVar[bool] = True
    found: ClassVar[frozenset[str]] = frozenset()
    once: ClassVar[tuple[()]] = ()
    fields: list[ScanField]
    joins: list[Statement]
    tensors: list[Tensor]
    writable: set[str]
    pointer: dict[str, str]
    operands: list[str]
    position: dict[str, int]
    index_strides: list[str]
    aliases: dict[str, list[str]]
    rounded: dict[str, Text]
    run_head: str
    entries: list[tuple[str, str]]
    takes: list[Given]  # what has come of the scans, as the second code takes it

    @property
    def joining(self) -> list[Text]:
        """What joins partials, and what they begin with."""
        ends = [text for f in self.fields for text in (f.identity, f.share)]
        return [*(s.value for s in self.joins), *(g.text for g in self.takes), *ends]


class ScanPrinter(RowPrinter):
    """One unit; `scans` is what the templates take."""

    unit: ScanUnit

    def scans(self) -> ScansView:
        """What the templates take."""
        u, b = self.unit, self.backend
        _, operands = self.walked()
        names = Names(set(self.render.global_names.taken).union(*(s.names for c in u.codes for s in c.lines)))
        every = fields(b, u.scanned.accumulators, names)
        values = joined(b, every, lambda name, whose: f"{whose}.{name}")
        head, entries = self.entries()
        found = {a.name: a for a in u.scanned.accumulators}
        takes = [replace(g, text=taken(b, every, found[g.name], "tile[j].{}".format)) for g in u.stored.takes]
        return ScansView(
            **vars(u),
            fields=every,
            joins=[Statement((f"both.{f.name}",), "", value) for f, value in zip(every, values, strict=True)],
            tensors=self.tensors,
            writable=self.writable,
            pointer=self.pointers,
            operands=operands,
            position={name: k for k, name in enumerate(operands)},
            index_strides=[line for x in u.indices for line in self.index_strides(x)],
            aliases=self.aliases(),
            rounded=self.rounded,
            run_head=head,
            entries=entries,
            takes=takes,
        )
