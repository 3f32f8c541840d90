"""From the lets of a pass to straight-line source: one assignment an equation, the equation as a comment above it.

In: lets, and the text of what is there before them.  Out: lines, and the text of every let.  The phases of a pass over rows share
their names, so that a value has one name in all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from kgen import host
from kgen.backends.names import Names, bare
from kgen.backends.text import Text, fill
from kgen.backends.units import Accumulator, Argument, Code, Gather, Given, Tensor
from kgen.ir import Let, Store, exact
from kgen.ops import OPS, RIDERS
from kgen.schedule import Phase, Reduce
from kgen.types import FLOAT, DType

if TYPE_CHECKING:
    from kgen.backends.base import Render

MAX_INLINE = 72


class Body:
    """Straight-line source of some lets: `text` has what is there before them, and then theirs as well; `declared` has the names that
    are declared for results, each with the let that is stored there."""

    def __init__(
        self, render: Render, names: Names, lets: tuple[Let, ...], text: dict[str, Text], ends: list[str], declared: dict[str, str]
    ):
        self.render, self.backend, self.names, self.text = render, render.backend, names, text
        self.defs = {let.name: let for let in render.program.lets}
        self.lines: list[str] = []
        self.equations = {name: text for name, _, text in render.kernel.equations}
        uses = Counter(o.name for let in lets for o in let.expr.operands)
        uses.update(ends)
        self.singles = {let.name for let in lets if uses[let.name] == 1 and let.name not in text}
        self.told: set[str] = set()
        self.named: dict[str, str] = {}  # the lets that have a line of their own, with their names
        ahead = [let.label for let in lets]
        for k, let in enumerate(lets):
            if let.name in text:
                continue
            made = self.expression(let)
            plain = re.fullmatch(r"[\w.]+|\w+\([\w.]+\)", made.text) and let.expr.name == "cast"
            if not let.label and let.name not in self.forced and (plain or (uses[let.name] < 2 and len(bare(made.text)) <= MAX_INLINE)):
                text[let.name] = made
                continue
            label = next((a for a in ahead[k:] if a), "")
            if label and label not in self.told:
                self.told.add(label)
                self.lines.append(f"{self.backend.comment} {self.equations[label]}")
            name = self.name(let)
            is_declared = declared.get(name) == let.name
            if name in declared and not is_declared:  # the result is this value converted, to a wider integer say
                name = self.names.fresh(f"{name}_value")
            self.lines.append(self.backend.assign("" if is_declared else render.type_of(let), name, made.text))
            self.named[let.name] = name
            text[let.name] = Text(name)

    def name(self, let: Let) -> str:
        """A name for a value's line."""
        return self.names.user(let.label) if let.label else self.names.fresh(f"t{len(self.named)}")

    def expression(self, let: Let) -> Text:
        operands = [self.defs[o.name] for o in let.expr.operands]
        if let.expr.name == "cast":
            x = operands[0]
            if x.is_number:
                return self.number(x, let)
            return self.backend.cast(self.text[x.name], x.dtype, let.dtype, self.render.type_of(let))  # type: ignore[arg-type]
        if let.expr.name == "gather":
            return Text(f"{self.gathers[let.name].name}({self.text[operands[1].name].text})")
        row = OPS[let.expr.name]
        form, decides = self.render.forms.get(let.name, ("", ""))
        if form == "fused":
            fused = self.fused(let, operands, self.render.storage(decides))
            if fused is not None:
                return fused
            form = ""
        spell = self.backend.spell(row, form)
        kind = operands[1 if row.rule == "where" else 0].dtype.kind  # type: ignore[union-attr]
        last = operands[-1]
        types = {"F": self.render.type_of(last), "U": last.tensor_dtype.unsigned, "B": self.render.storage(decides) if form else ""}
        text = fill(spell, kind, [self.text[o.name] for o in operands], types)
        if isinstance(let.dtype, DType) and let.dtype.is_int and row.rule in ("arith", "same", "bits", "shift"):
            return self.backend.narrow(text, let.dtype, self.render.type_of(let))
        return text

    def fused(self, let: Let, operands: list[Let], decides: str) -> Text | None:
        """A sum with a product in it, rounded once where a dtype has 16 bits; None where the product has a line of its own."""
        k = next((k for k, x in enumerate(operands) if x.expr.name == "mul" and not x.label and x.name not in self.named), None)
        if k is None or operands[k].name not in self.singles:
            return None
        a, b = (self.text[o.name] for o in operands[k].expr.operands)
        c = self.text[operands[1 - k].name]
        if let.expr.name == "sub":
            minus = fill(self.backend.spell(OPS["neg"]), "float", [c if k == 0 else a], {})
            a, c = (a, minus) if k == 0 else (minus, c)
        return Text(self.backend.call("fused", ", ".join(x.typed or x.text for x in (a, b, c)), decides))

    def number(self, number: Let, let: Let) -> Text:
        text = number.expr.attrs[0]
        special = text in ("inf", "-inf", "nan")
        value = text if special else exact(text)
        if not let.tensor_dtype.is_float:
            value = Fraction(host.to_dtype(float(value) if number.dtype == FLOAT else int(value), let.tensor_dtype))
        return self.backend.literal(value, let.tensor_dtype, self.render.type_of(let))

    gathers: dict[str, Gather] = {}
    forced: set[str] = set()  # lets that get a line in any case

    def result(self, s: Store) -> str:
        if s.result in self.equations and s.result not in self.told and not self.defs[s.ref].label:
            self.lines.append(f"{self.backend.comment} {self.equations[s.result]}")
        return self.text[s.ref].text


class RowNames:
    """The phases of a pass over rows as code: a value has one name in all of them."""

    def __init__(
        self, render: Render, p: Reduce, inputs: dict[str, Tensor], indices: dict[str, Tensor], scalars: tuple[Argument, ...],
        gathers: dict[str, Gather],
    ):  # fmt: skip
        self.render, self.p, self.inputs, self.indices, self.gathers = render, p, inputs, indices, gathers
        self.defs = {let.name: let for let in p.lets}
        self.names = Names(set(render.global_names.taken), dict(render.global_names.given), render.backend.macros)
        self.fixed = {s.spec_name: Text(s.name) for s in scalars}
        self.rows: dict[str, Given] = {}  # the row's values so far, by let
        self.lines: dict[str, str] = {}  # names given to lines, by let
        self.temporaries = 0
        readings = [{let.name for let in phase.lets} for phase in p.phases if phase.element]
        again = {name for k, mine in enumerate(readings) for name in mine if any(name in other for other in readings[k + 1 :])}
        #: costly values that several readings compute, with a line in each
        self.costly = {let.name for let in p.lets if let.name in again and let.expr.name in OPS and OPS[let.expr.name].cost[1]}
        self.kept: set[str] = set()

    def code(self, phase: Phase) -> Code:
        ends = (
            [o.name for r in phase.reductions for o in r.expr.operands[: 1 if r.expr.name in RIDERS else 2]]
            + [s.ref for s in phase.stores]
            + list(phase.gives)
        )
        read = [o.name for let in phase.lets for k, o in enumerate(let.expr.operands) if let.expr.name != "gather" or k > 0] + ends
        loads = [let for let in phase.lets if let.expr.name in ("load", "index") and let.name in read]
        loads = [let for let in loads if let.name not in self.rows]
        text = dict(self.fixed)
        text.update({name: Text(g.name) for name, g in self.rows.items()})
        for let in loads:
            text[let.name] = Text((self.inputs if let.expr.name == "load" else self.indices)[let.expr.attrs[0]].name)
        lets = tuple(let for let in phase.lets if let.expr.name != "load" or let.name in text)
        body = _RowBody(self, lets, text, ends)
        takes = {g.name: g for name, g in self.rows.items() if name in read}
        costly = {n: Given(body.named[n], self.render.type_of(self.defs[n])) for n in body.named if n in self.costly and phase.element}
        keeps = tuple(g for n, g in costly.items() if n not in self.kept)
        repeats = tuple(g for n, g in costly.items() if n in self.kept)
        self.kept |= costly.keys()
        values = {s.result: body.result(s) for s in phase.stores}
        accumulators = tuple(self.accumulator(let, text) for let in phase.reductions)
        for let in phase.reductions:
            if let.label and let.label not in body.told:
                body.lines.append(f"{self.render.backend.comment} {body.equations[let.label]}")
        gives = []
        for name in phase.gives:
            if name in self.rows:
                continue
            let, made = self.defs[name], text[name].text
            known = next((g for g in self.rows.values() if g.name == made), None)
            if known is not None or any(made == t.text for t in self.fixed.values()):
                self.rows[name] = known or Given(made, self.render.type_of(let))
                continue
            own = made if re.fullmatch(r"[^\W\d]\w*", made) else self.names.fresh(self.render.row_name(let))
            self.rows[name] = Given(own, self.render.type_of(let))
            gives.append(Given(own, self.render.type_of(let), made))
        return Code(
            phase.element,
            tuple(self.inputs[let.expr.attrs[0]] for let in loads if let.expr.name == "load"),
            tuple(self.indices[let.expr.attrs[0]] for let in loads if let.expr.name == "index"),
            tuple(dict.fromkeys(self.gathers[let.name] for let in phase.lets if let.expr.name == "gather")),
            tuple(takes.values()),
            tuple(body.lines),
            tuple(gives),
            accumulators,
            self.render.outputs(phase.stores, values, self.defs),
            keeps,
            repeats,
        )

    def accumulator(self, let: Let, text: dict[str, Text]) -> Accumulator:
        name = self.names.user(let.label) if let.label else self.names.fresh(self.render.row_name(let))
        value, *place = (self.defs[o.name] for o in let.expr.operands)
        own, of = self.render.type_of(let), self.render.type_of(value)
        self.rows[let.name] = Given(name, own)
        peak = self.rows[place.pop().name].name if let.expr.name in RIDERS else ""
        at = text[place[0].name].text if place else ""
        return Accumulator(name, let.expr.name, own, let.dtype, text[value.name].text, of, value.dtype, at, peak)  # type: ignore[arg-type]


class _RowBody(Body):
    def __init__(self, owner: RowNames, lets: tuple[Let, ...], text: dict[str, Text], ends: list[str]):
        self.owner, self.gathers, self.forced = owner, owner.gathers, owner.costly
        super().__init__(owner.render, owner.names, lets, text, ends, {})

    def name(self, let: Let) -> str:
        """The same name for a value in every phase."""
        if let.name not in self.owner.lines:
            self.owner.temporaries += not let.label
            fresh = f"t{self.owner.temporaries - 1}"
            self.owner.lines[let.name] = self.names.user(let.label) if let.label else self.names.fresh(fresh)
        return self.owner.lines[let.name]
