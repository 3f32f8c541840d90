"""Triton's passes along rows: from a `ScanUnit` to the lines of its jit function.

A program goes along ROWS rows, a tile of BLOCK elements after the other.  A scan that leaves out its own element carries both: what is
joined up to an element, and what is joined before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kgen.backends.base import Render
from kgen.backends.scans import fields, joined, taken
from kgen.backends.text import Call, Text, named, source
from kgen.backends.text import joined as listed_texts
from kgen.backends.triton_maps import definitions
from kgen.backends.triton_nodes import Block, Node, Slot
from kgen.backends.triton_partials import Join
from kgen.backends.triton_rows import RowPrinter, RowsView, texts
from kgen.backends.units import Code, ScanUnit, Statement
from kgen.passes import Scan

if TYPE_CHECKING:
    from kgen.backends.triton import Triton


@dataclass(frozen=True)
class Carried:
    """A field of what is carried along: the name of its value, of what stands before a tile, and of its parts in the function that joins;
    `share` is an element's own, `of` the field up to the element where this is the one before it."""

    name: str
    before: str
    own: str
    next: str
    type: str
    identity: Text
    share: Text
    of: str = ""


class ScanPrinter(RowPrinter):
    """One unit; `scan` is what the templates take."""

    unit: ScanUnit

    def __init__(self, backend: Triton, render: Render, unit: ScanUnit, p: Scan):
        super().__init__(backend, render, unit, p)
        self.function = self.names.fresh(f"{unit.name}_join")
        self.every = fields(backend, self.codes[0].accumulators, self.names)
        self.carried = self._carried()

    def _carried(self) -> list[Carried]:
        made: dict[str, Carried] = {}
        for f in self.every:
            fresh = {end: self.names.fresh(f"{f.name}_{end}") for end in ("before", "own", "next")}
            name = self.names.fresh(f"{f.name}_with") if f.of.exclusive else f.name
            made[f.name] = Carried(name, fresh["before"], fresh["own"], fresh["next"], f.type, f.identity, f.share)
        self.up_to = dict(made)
        self.past: dict[str, Carried] = {}
        for f in self.every:
            if f.of.exclusive:
                fresh = {end: self.names.fresh(f"{f.name}_past_{end}") for end in ("own", "next")}
                past = Carried(f.name, "", fresh["own"], fresh["next"], f.type, f.identity, f.identity, f.name)
                self.past[f.name] = past
        return [*made.values(), *self.past.values()]

    def join(self) -> Join:
        """The function that joins neighbours."""
        together = joined(self.backend, self.every, lambda name, whose: getattr(self.up_to[name], whose))
        before = joined(self.backend, self.every, lambda name, whose: getattr(self.past.get(name, self.up_to[name]) if whose == "next"
                                                                             else self.up_to[name], whose))  # fmt: skip
        values = [*together, *(value for f, value in zip(self.every, before, strict=True) if f.name in self.past)]
        names = [self.names.fresh(f"{c.name}_both") for c in self.carried]
        body = tuple(Statement((name,), "", value) for name, value in zip(names, values, strict=True))
        first, more = tuple(c.own for c in self.carried), tuple(c.next for c in self.carried)
        return Join(self.function, first, more, body, f"return {', '.join(names)}")

    def tile(self) -> list[Node]:
        """What is done with a tile."""
        start = "(tiles - 1 - tile) * BLOCK" if self.unit.backwards else "tile * BLOCK"
        body: list[Node] = [
            Statement(("start",), "", source(start)),
            Statement(("column",), "", source("start + tl.arange(0, BLOCK)[None, :]")),
            Statement(("inside",), "", source("present & (column < length)")),
            *self.elements(self.element), *self.codes[0].lines,
        ]  # fmt: skip
        return [*body, *self.carry("1", "start" if self.unit.backwards else "start + BLOCK - 1"), *self.stores()]

    @property
    def element(self) -> Code:
        """What is read of each element."""
        inputs, indices = (tuple(dict.fromkeys(t for c in self.codes for t in getattr(c, kind))) for kind in ("inputs", "indices"))
        return Code(True, inputs, indices, (), (), (), (), (), ())

    def carry(self, axis: str, last: str) -> list[Node]:
        """The statements that scan a tile along an axis, and take what stands before the next one from its column `last`."""
        some = [self.names.fresh(f"{c.name}_tile") for c in self.carried]
        back = str(self.unit.backwards)
        body: list[Node] = []
        for name, c in zip(some, self.carried, strict=True):
            share = c.share.typed or c.share
            body.append(Statement((name,), "", source("tl.where(inside, {0}, {1}).to({2})", share, c.identity, c.type)))
        given = named(some[0]) if len(some) == 1 else source("({0})", listed_texts(some))
        body.append(Statement(tuple(some), "", source(f"tl.associative_scan({{0}}, {axis}, {{1}}, {back})", given, self.function)))
        before = [self.up_to[c.of].before if c.of else c.before for c in self.carried]
        arguments = listed_texts([*before, *some])
        body.append(Statement(tuple(c.name for c in self.carried), "", source("{0}({1})", Call(self.function), arguments)))
        for c in self.up_to.values():
            edge = source(f"tl.reduce(tl.where(column == {last}, {{0}}, 0), {axis}, plus, keep_dims=True)", c.name)
            body.append(Statement((c.before,), "", edge))
        return body

    def stores(self) -> list[Node]:
        """The statements behind the scans of a tile."""
        stored = self.codes[1]
        ends: list[Node] = []
        for a in self.codes[0].accumulators:
            names = {name: c.name for name, c in (self.past if a.exclusive else self.up_to).items()}
            value = taken(self.backend, self.every, a, names.__getitem__)
            if value != a.name:
                ends.append(Statement((a.name,), "", value))
        ends += stored.lines
        self.put(ends, stored.outputs)
        return ends

    def body(self) -> list[Node]:
        """The body of the kernel."""
        made: list[Node] = [*self.setup(), Statement(("tiles",), "", source("tl.cdiv(length, BLOCK).to(tl.int32)"))]
        made += [Statement((c.before,), "", source("tl.full([ROWS, 1], {0}, {1})", c.identity, c.type)) for c in self.up_to.values()]
        return [*made, Block(source("for tile in range(0, tiles)"), tuple(self.tile()))]

    def scan(self) -> RowsView:
        """What the templates take."""
        u, join = self.unit, self.join()
        body = self.body()
        rounded = [self.backend.rounded(s) for s in u.scalars]
        values = [text for node in (*body, *rounded, *join.body) for text in texts(node)]
        variables, aliases, types = self.types(frozenset[str]().union(*(text.uses for text in values)))
        passed = [v for v in variables if v not in types]
        head = self.heads(passed, None)["row"]
        name = f"{u.name}_kernel"
        pointers = [o.pointer for o in self.operands.values() if o.pointer]
        return RowsView(
            kernels={"scan": name},
            heads={"scan": head},
            dynamic={"scan": (len(pointers), len(pointers) + self.dynamic())},
            definitions=definitions(variables, aliases, types),
            rounded=rounded,
            scalars=u.scalars,
            launch=self.launch([name, name], list[Slot](), passed),
            calls=(*(c for text in values for c in text.calls if c != self.function), "plus"),
            long=True,
            scan=True,
            apart=any(" at " in o.key for o in self.operands.values()),
            bodies={"scan": body},
            joins=[join],
            readings=[],
            steps=1,
            ends=False,
        )

    def kinds(self) -> dict[str, bool]:
        return {"scan": True}

    def bare(self) -> bool:
        return False
