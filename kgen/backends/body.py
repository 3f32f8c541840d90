"""From the lets of a pass to straight-line source: one assignment an equation, the equation as a comment above it.

In: lets, and the text of what is there before them.  Out: statements, and the text of every let.  The phases of a pass over rows share
their names, so that a value has one name in all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from kgen.backends import drawn
from kgen.backends.factors import Factors, factors
from kgen.backends.gathers import whole
from kgen.backends.names import Names, width
from kgen.backends.picks import position
from kgen.backends.remade import remade, without
from kgen.backends.remembered import remembered
from kgen.backends.text import Call, Text, fill, joined, named, source
from kgen.backends.units import (
    NOTHING,
    WAITS,
    Accumulator,
    Argument,
    Beside,
    Code,
    Gather,
    Given,
    Made,
    Piece,
    Repeated,
    Search,
    Statement,
    Tensor,
    Words,
)
from kgen.ir import GATHERS, Let, Store, literal_of, taken
from kgen.monoids import MONOIDS, elements
from kgen.ops import CALL, OPS, ROWS
from kgen.ops.scans import EXCLUSIVE
from kgen.passes import Reduce, Scan
from kgen.phases import Phase, needed
from kgen.phases import ends as ends_of
from kgen.precision import FEW_QUOTIENTS, shares_divisors, split_quotients
from kgen.quotients import is_whole, whole_range
from kgen.scanned import is_scan
from kgen.searches import SEARCHES
from kgen.spared import spared
from kgen.types import DType, literal_size

if TYPE_CHECKING:
    from kgen.backends.base import Render

MAX_INLINE = 72


class Body:
    """Straight-line source of some lets: `text` has what is there before them, and then theirs as well; `declared` has the names that
    are declared for results, each with the let that is stored there."""

    def __init__(
        self, render: Render, names: Names, lets: tuple[Let, ...], text: dict[str, Text], ends: list[str], declared: dict[str, str],
        neighbours: Mapping[str, tuple[str, ...]] | None = None,
    ):  # fmt: skip
        """`ends` are the lets that are read behind these, each as often as it is read."""
        self.neighbours = self.neighbours if neighbours is None else neighbours
        self.render, self.backend, self.names, self.text = render, render.backend, names, text
        self.defs = {let.name: let for let in render.program.lets}
        self.lines: list[Statement] = []
        self.equations = {name: text for name, _, text in render.kernel.equations}
        uses = Counter(o.name for let in lets for o in let.expr.operands)
        uses.update(ends)
        self.singles = {let.name for let in lets if uses[let.name] == 1 and let.name not in text}
        self.told: set[str] = set()
        self.named: dict[str, str] = {}  # the lets that have a line of their own, with their names
        self.declared, self.labels = declared, [let.label for let in lets]
        self.absorbed = {name for let in lets if (found := self.factors(let)) for name in found.inside}
        products = self.products(lets)
        for k, let in enumerate(lets):
            if let.name in text:
                continue
            made = self.expression(let)
            if let.name in products:  # what takes it takes its factors, whatever they look like
                self.shorten(let, made, k)
                text[let.name] = self.expression(let)
                continue
            short = uses[let.name] < 2 and width(made) <= MAX_INLINE or let.expr.name == "cast" and made.is_plain
            if (short or let.name in self.absorbed) and not let.label and let.name not in self.forced:
                text[let.name] = made
                continue
            self.line(let, made, k)

    def line(self, let: Let, made: Text, k: int) -> None:
        """Give a let's text a line, in front of what is made of the lets from number `k` on."""
        label = next((a for a in self.labels[k:] if a), "")
        note = self.equations[label] if label and label not in self.told else ""
        self.told.add(label)
        name = self.name(let)
        is_declared = self.declared.get(name) == let.name
        if name in self.declared and not is_declared:  # the result is this value converted, to a wider integer say
            name = self.names.fresh(f"{name}_value")
        self.lines.append(self.backend.statement(name, self.render.type_of(let), made, is_declared, note))
        self.named[let.name] = name
        self.text[let.name] = named(name)

    def products(self, lets: tuple[Let, ...]) -> set[str]:
        """The products that get no line since each is rounded together with the sum that takes it, and what a slope is not made of after
        all: by nodes alone, so that no value follows from how long a line is."""
        found: set[str] = set()
        for let in lets:
            form, _ = self.render.form(let)
            if form == "fused":
                found.update(o.name for o in let.expr.operands[self.factor(let) :][:1])
            if form == "slope":  # of tanh's operand, not its value
                square = let.expr.operands[1].name
                found.update((square, self.defs[square].expr.operands[0].name))
        return found

    def factor(self, let: Let) -> int:
        """Which operand of a fused sum is the product that is rounded with it; behind the last where that has a line of its own."""
        for k, o in enumerate(let.expr.operands):
            if self.multiplies(self.defs[o.name]):
                return k
        return len(let.expr.operands)

    def multiplies(self, x: Let) -> bool:
        """Whether a let is a product without a line, which one sum alone takes."""
        return x.expr.name == "mul" and not x.label and x.name in self.singles and x.name not in self.forced

    def shorten(self, product: Let, made: Text, k: int) -> None:
        """Give the longest factor of a long product a line, which no other text has in it yet."""
        longest = max((self.defs[o.name] for o in product.expr.operands), key=lambda x: width(self.text[x.name]))
        if width(made) > MAX_INLINE and longest.name in self.singles - self.absorbed:
            self.line(longest, self.text[longest.name], k)

    def name(self, let: Let) -> str:
        """A name for a value's line."""
        return self.names.user(let.label) if let.label else self.names.fresh(f"t{len(self.named)}")

    def expression(self, let: Let) -> Text:
        """A let's text, made of those of its operands."""
        operands = [self.defs[o.name] for o in let.expr.operands]
        if let.expr.name == "cast":
            x = operands[0]
            if x.is_number:
                return self.number(x, let)
            if x.tensor_dtype.is_float and let.tensor_dtype.is_int and is_whole(x, self.defs):
                least, most = let.tensor_dtype.limits
                low, high = whole_range(x, self.defs)
                target = let.tensor_dtype, self.render.type_of(let)
                return self.backend.of_whole(self.text[x.name], x.tensor_dtype, *target, least <= low and high <= most)
            return self.backend.cast(self.text[x.name], x.tensor_dtype, let.tensor_dtype, self.render.type_of(let))
        if let.expr.name == "ranged":
            return self.backend.ranged(self.gathers[let.name], self.render.type_of(let), *(self.text[o.name] for o in taken(let.expr)))
        if let.expr.name == "keyed":
            return self.backend.keyed(self.gathers[let.name], self.render.type_of(let), *(self.text[o.name] for o in taken(let.expr)))
        if let.name in self.neighbours:
            given_with = joined([*(self.text[o.name] for o in let.expr.operands), *map(source, self.neighbours[let.name])])
            return source("philox({0})", given_with)
        if let.expr.name == "gather":
            return Text((Call(self.gathers[let.name].name), "(", *self.text[operands[1].name].tokens, ")"))
        if (scaled := self.scaled(let)) is not None:
            return scaled
        row = ROWS[let.expr.name]
        form, decides = self.render.form(let)
        if form == "fused":
            fused = self.fused(let, operands, self.render.storage(decides))
            if fused is not None:
                return fused
            form = ""
        if form == "slope":
            y = self.defs[self.defs[operands[1].name].expr.operands[0].name]
            return source(self.backend.call("tanh_slope", "{0}", "{1}"), self.text[y.expr.operands[0].name], self.render.storage(decides))
        if form == "shared":
            parts = [self.text[operands[0].name], self.divisor(let, operands[1], self.render.storage(decides))]
            return fill(self.backend.spell(row), "float", parts, {})
        spell = self.backend.spell(row, form) if form else self.backend.spelled(row, let, self.defs)
        kind = operands[1 if row.rule == "where" else 0].tensor_dtype.kind
        last = operands[-1]
        types = {"F": self.render.type_of(last), "U": last.tensor_dtype.unsigned, "B": self.render.storage(decides) if form else "",
                 "V": self.render.type_of(let)}  # fmt: skip
        given = [self.text[o.name] for o in operands]
        if let.name in self.render.uniform:
            return source("uniform_quotient({0}, {1})", given[0].typed or given[0], self.divided(let, operands[1], types["F"]))
        if let.name in self.split:
            given[1] = self.divisor(let, operands[1], types["B"] or types["F"], split=True)
        if row.rule == "compare" and kind == "float":
            given = [self.backend.compared(x) for x in given]
        if kind == "int" and "{U}" in spell.text(kind) and let.name in self.render.within:
            kind = "float"  # nothing to wrap: as floats are written
        text = fill(spell, kind, given, types)
        if isinstance(let.dtype, DType) and let.dtype.is_int and row.rule in ("arith", "same", "bits", "shift"):
            return self.backend.narrow(text, let.dtype, self.render.type_of(let))
        return text

    def fused(self, let: Let, operands: list[Let], decides: str) -> Text | None:
        """A sum with a product in it, rounded once where a dtype has 16 bits; None where the product has a line of its own."""
        k = self.factor(let)
        if k == len(operands):
            return None
        a, b = (self.text[o.name] for o in operands[k].expr.operands)
        c = self.text[operands[1 - k].name]
        if let.expr.name == "sub":
            minus = fill(self.backend.spell(OPS["neg"]), "float", [c if k == 0 else a], {})
            a, c = (a, minus) if k == 0 else (minus, c)
        return source(self.backend.call("fused", "{0}, {1}, {2}", "{3}"), *(x.typed or x for x in (a, b, c)), decides)

    def factors(self, let: Let) -> Factors | None:
        """The factors that a function of the target takes beside its argument: by nodes alone."""
        def inline(x: Let) -> bool:
            return x.name in self.singles and x.name not in self.forced and x.name not in self.render.ordered and not x.label

        return factors(let, self.backend.scaled, self.defs, inline) if self.backend.scaled else None

    def scaled(self, let: Let) -> Text | None:
        """A call of a function that takes the factors of its argument and of its result; None where there are none."""
        found = self.factors(let)
        if found is None:
            return None
        form, decides = self.render.form(found.call)
        row = OPS[found.call.expr.name]
        one = self.backend.literal(Fraction(1), let.tensor_dtype, self.render.type_of(let))
        scale, times = (self.text[x.name] if x else one for x in (found.scale, found.times))
        if found.negative:
            scale = fill(self.backend.spell(OPS["neg"]), "float", [scale], {})
        given = [self.text[found.x.name], scale, *([times] if found.times else [])]
        types = {"B": self.render.storage(decides)} if form else {}
        return fill(self.backend.spell(row, form), "float", [joined([(x.typed or x) for x in given])], types)

    def divisor(self, let: Let, y: Let, digits: str, split: bool = False) -> Text:
        """A divisor that many elements share, of a quotient whose dividends have the digits of a dtype."""
        return self.text[y.name]

    def divided(self, let: Let, y: Let, digits: str) -> Text:
        """What a let and others are divided by, a float of that type, or what follows from it."""
        return self.text[y.name].typed or self.text[y.name]

    def number(self, number: Let, let: Let) -> Text:
        return self.backend.constant(number, let, self.render.type_of(let))

    gathers: dict[str, Gather] = {}
    forced: set[str] = set()  # lets that get a line in any case
    split: Set[str] = frozenset()  # quotients by a row's value that need no division of their own
    #: Words of neighbours, with what says of which a counter is that of four: where the target's function of words asks.
    neighbours: Mapping[str, tuple[str, ...]] = {}

    def result(self, s: Store) -> Text:
        """The text of a result, its equation said."""
        if not self.defs[s.ref].label:
            self.say(s.result)
        return self.text[s.ref]

    def say(self, label: str) -> None:
        """Say an equation that no line is of."""
        if label in self.equations and label not in self.told:
            self.lines.append(Statement(note=self.equations[label]))


class RowNames:
    """The phases of a pass over rows as code: a value has one name in all of them."""

    def __init__(
        self, render: Render, p: Reduce, phases: tuple[Phase, ...], inputs: dict[str, Tensor], indices: dict[str, Tensor],
        scalars: tuple[Argument, ...], gathers: dict[str, Gather], near: Mapping[str, Beside],
    ):  # fmt: skip
        """`phases` are the pass's own or its `long`; `inputs` and `indices` go by names in the spec, `gathers` and `near` by lets."""
        self.render, self.p, self.inputs, self.indices, self.gathers, self.near = render, p, inputs, indices, gathers, near
        every = (*p.lets, *(let for phase in phases for let in (*phase.lets, *phase.reductions)))
        self.defs = {let.name: let for let in every}  # of one name a phase's own, as `Reduce.long` has them, is the same value
        self.names = Names(set(render.global_names.taken), dict(render.global_names.given), render.backend.macros)
        self.fixed = {s.spec_name: named(s.name) for s in scalars}
        self.rows: dict[str, Given] = {}  # the row's values so far, by let
        self.lines, self.temporaries = dict[str, str](), 0  # names given to lines, by let
        readings = [{let.name for let in phase.lets} for phase in phases if phase.element]
        again = {name for k, mine in enumerate(readings) for name in mine if any(name in other for other in readings[k + 1 :])}
        #: costly values that several readings compute, with a line in each
        self.costly = {let.name for let in every if let.name in again and let.expr.name in OPS and OPS[let.expr.name].cost[1]}
        self.kept: set[str] = set()
        self.splits = render.splits and render.backend.shares and p in render.passes and shares_divisors(p)
        self.split = split_quotients(p, render.program) if self.splits else frozenset()
        self.divisors: dict[tuple[Text, str, str], Given] = {}  # by the value, what its dividends have the digits of, and `Given.split`
        read = [*(s.ref for s in p.stores), *(o.name for let in p.columns for o in elements(let.expr))]
        read += [o.name for let in p.finish.lets for o in let.expr.operands] if p.finish else []
        self.spared = spared(p.lets, read, [name for name, text in self.fixed.items() if text])
        known = render.program.by_name | self.defs
        found = drawn.streams(every, p.inner, known) if not (isinstance(p, Scan) or p.aside(known)) else {}
        self.streams = found if render.backend.draws else {}
        makes = render.backend.makes and phases is p.phases and not (found or p.pieces or isinstance(p, Scan))
        self.remade = remade(p, render.kernel) if makes else None
        even = render.backend.neighbours
        self.neighbours = {name: drawn.beside(even, s.keeps, s.sets) for name, s in found.items() if even}
        self.remembered = remembered(phases, render.uniform) if makes and self.remade is None else None
        self.often = self.remembered.names if self.remembered else drawn.frontier(phases, self.streams, p.finish)
        self.words: dict[str, Words] = {}  # by let
        self.made: dict[str, Repeated] = {}

    def pieces(self) -> tuple[Piece, ...]:
        """What is done with the pieces of a row behind all phases, which take the row's values."""
        made = []
        for p in self.p.pieces:
            names = RowNames(self.render, p, p.phases, self.inputs, self.indices, (), self.gathers, {})
            names.fixed, names.rows, names.names, names.lines = self.fixed, dict(self.rows), self.names, self.lines
            names.temporaries = self.temporaries
            names.remade = names.remade if len(self.p.pieces) == 1 else None  # what others read stays
            dim = next(d for d in self.p.inner if d not in p.inner)
            step = literal_size(dim) if self.p.inner[0] in p.inner else 1
            made.append(Piece(dim, literal_size(p.inner[0]), step, tuple(names.code(f) for f in p.phases)))
            self.temporaries = names.temporaries
        return tuple(made)

    def code(self, phase: Phase) -> Code:
        """A phase as code; phases are to be asked for in order."""
        if phase is self.p.finish:  # a launch of its own, behind all rows: of what was made before it has the columns' sums alone
            self.rows = {let.name: self.rows[let.name] for let in self.p.columns}
        search = next((let for let in phase.reductions if let.expr.name in SEARCHES), None)
        if search is not None:
            self.probe(search)
        coded = self.coded(phase)
        given = self.remade.value if self.remade is not None and phase.element and self.remade.value in phase.lets else None
        ends = [coded[name].name if name in coded else name for name in ends_of(phase)]
        lets = phase.lets if given is None else without(phase, given)
        within, near = self.within(tuple(let for let in lets if let.name not in coded), ends)
        read = [o.name for let in within for o in taken(let.expr) if let.name not in near] + ends
        loads = [let for let in phase.lets if let.expr.name in ("load", "index") and let.name in read and let.name not in self.rows]
        text = dict(self.fixed)
        text.update({name: named(g.name) for name, g in self.rows.items()})
        for let in loads:
            text[let.name] = named((self.inputs if let.expr.name == "load" else self.indices)[let.expr.attrs[0]].name)
        text.update({name: named(b.name) for name, b in near.items()})
        if given is not None:
            text[given.name] = named(self.made_name)
        lets = tuple(let for let in within if let.expr.name != "load" or let.name in text)
        once = self.once(phase, lets, text)
        lets, words = self.drawing(phase, lets, ends, text)
        made_once = tuple(once[let.name] for let in lets if let.name in once)
        body = _RowBody(self, lets, text, ends, (*phase.reductions, *phase.columns))
        takes = {g.name: g for name, g in self.rows.items() if name in read}
        costly = {n: Given(body.named[n], self.render.type_of(self.defs[n])) for n in body.named if n in self.costly and phase.element}
        keeps = tuple(g for n, g in costly.items() if n not in self.kept and search is None)
        repeats = tuple(g for n, g in costly.items() if n in self.kept)
        self.kept |= costly.keys() if search is None else set()
        values = {s.result: text[coded[s.ref].name] if s.ref in coded else body.result(s) for s in phase.stores}
        for s in phase.stores:
            body.say(self.defs[s.ref].label if s.ref in coded else "")
        accumulators, columns = (tuple(self.accumulator(let, text, body) for let in lets) for lets in (phase.reductions, phase.columns))
        for let in (*phase.reductions, *phase.columns):
            body.say(let.label)
        gives = self.gives(phase, text)
        inputs = tuple(self.inputs[let.expr.attrs[0]] for let in loads if let.expr.name == "load")
        return Code(
            phase.element,
            inputs if given is None else (self.in_place(given), *inputs),
            tuple(self.indices[let.expr.attrs[0]] for let in loads if let.expr.name == "index"),
            tuple(dict.fromkeys(g for let in phase.lets if let.expr.name in GATHERS for g in whole(self.gathers[let.name]))),
            tuple(takes.values()),
            tuple(body.lines),
            gives,
            accumulators,
            self.render.outputs(phase.stores, values, self.defs, coded),
            keeps,
            repeats,
            columns,
            self.search(search, accumulators[0], body) if search is not None else None,
            words,
            made_once,
            frozenset(str(text[let.name]) for let in loads if self.draws(phase) and let not in lets),
            self.makes() if self.remade is not None and phase is self.remade.phase else None,
            tuple(dict.fromkeys(near.values())),
            tuple(body.divides),
        )

    def within(self, lets: tuple[Let, ...], ends: list[str]) -> tuple[tuple[Let, ...], dict[str, Beside]]:
        """Of a phase's lets those that its `ends` need, where neighbours stand for themselves; and these neighbours by their names."""
        near = {let.name: self.near[let.name] for let in lets if let.name in self.near}
        return needed(lets, ends, near) if any(b.asks for b in near.values()) else lets, near

    def gives(self, phase: Phase, text: dict[str, Text]) -> tuple[Given, ...]:
        """What a phase gives to those that follow, each under the name that it has in all of them."""
        gives = []
        for name in phase.gives:
            if name in self.rows:
                continue
            let, made = self.defs[name], text[name]
            known = next((g for g in self.rows.values() if g.name == made), None)
            if known is not None or made in self.fixed.values():
                self.rows[name] = known or Given(str(made), self.render.type_of(let))
                continue
            own = str(made) if made.is_name else self.names.fresh(self.render.row_name(let))
            self.rows[name] = Given(own, self.render.type_of(let))
            gives.append(Given(own, self.render.type_of(let), made))
        return tuple(gives)

    def draws(self, phase: Phase) -> bool:
        """Whether a phase may read words of neighbours along a row, or values that are made once."""
        return bool(self.streams or self.often) and phase.element and phase is not self.p.finish

    def drawing(
        self, phase: Phase, lets: tuple[Let, ...], ends: list[str], text: dict[str, Text]
    ) -> tuple[tuple[Let, ...], tuple[Words, ...]]:  # fmt: skip
        """Those of a phase's lets that `ends` need where words and what is made of them are there; and the words, named in `text`."""
        if not self.draws(phase):
            return lets, ()
        left = needed(lets, ends, (*self.streams, *self.made))
        found = tuple(self.word(let, text) for let in left if let.name in self.streams and let.name not in self.made)
        return left, found

    def word(self, let: Let, text: dict[str, Text]) -> Words:
        """The words of a stream, under one name in all phases."""
        s = self.streams[let.name]
        if let.name not in self.words:
            seed, offset = (text.get(name) or self.constant(self.defs[name]) for name in (s.seed, s.offset))
            before = text[s.before] if s.before else source("0")
            self.words[let.name] = Words(self.names.fresh("word"), seed, offset, before, s.keeps, s.sets)
        text[let.name] = self.words[let.name].value(self.render.type_of(let))
        return self.words[let.name]

    def constant(self, let: Let) -> Text:
        """A literal number, converted."""
        return self.render.backend.constant(self.render.program.by_name[let.expr.operands[0].name], let, self.render.type_of(let))

    def once(self, phase: Phase, lets: tuple[Let, ...], text: dict[str, Text]) -> dict[str, Repeated]:
        """The values of a phase that are made once, by let, whose names `text` gets."""
        if not self.draws(phase):
            return {}
        made = [let.name for let in lets if let.name in self.often]
        for name in made:
            if name not in self.made:
                self.made[name] = self.maker(self.defs[name], phase, lets, dict(text))
            text[name] = named(self.made[name].name)
        return {name: self.made[name] for name in made}

    def maker(self, let: Let, phase: Phase, lets: tuple[Let, ...], text: dict[str, Text]) -> Repeated:
        """How one of them is made; `text` is its own."""
        left, words = self.drawing(phase, lets, [let.name], text)
        body = _RowBody(self, left, text, [let.name])
        read = {o.name for x in left if x.name not in self.streams and x.name not in self.made for o in taken(x.expr)}
        loads = (self.inputs[x.expr.attrs[0]] for x in left if x.expr.name == "load" and x.name in read)
        indices = (self.indices[x.expr.attrs[0]] for x in left if x.expr.name == "index" and x.name in read)
        name = body.named[let.name] if let.name in body.named else self.names.fresh("value")
        made = tuple(body.lines), text[let.name], tuple(self.made[x.name] for x in left if x.name in self.made), tuple(body.divides)
        room = self.remembered is not None and self.remembered.room
        return Repeated(name, self.render.type_of(let), tuple(loads), tuple(indices), words, *made, room=room)

    @cached_property
    def made_name(self) -> str:
        """The name of the value that takes an operand's place."""
        assert self.remade is not None
        label = self.remade.value.label
        return self.names.user(label) if label else self.names.fresh("made")

    def in_place(self, value: Let) -> Tensor:
        """The value that takes an operand's place, as an operand."""
        assert self.remade is not None
        stored = self.render.type_of(self.remade.stored)
        return Tensor(self.made_name, value.name, stored, self.render.type_of(value), value.dims, self.remade.stored.tensor_dtype.name)

    def makes(self) -> Made:
        """How that value is made of operands."""
        own = self.remade
        assert own is not None
        text = dict(self.fixed) | {name: named(g.name) for name, g in self.rows.items()}
        text |= {let.name: named(self.inputs[let.expr.attrs[0]].name) for let in own.loads}
        body = _RowBody(self, own.lets, text, [own.of.name])
        body.say(own.value.label)
        inputs = tuple(self.inputs[let.expr.attrs[0]] for let in own.loads)
        t = self.in_place(own.value)
        return Made(t.name, t.type, t.compute, inputs, tuple(body.lines), text[own.of.name], tuple(body.divides))

    def coded(self, phase: Phase) -> dict[str, Let]:
        """The codes that a reading of elements stores and does nothing else with, where the target makes them of two values at a time: what
        each is made of."""
        if not phase.element or isinstance(self.p, Scan) or self.p.columns or self.p.aside(self.render.program.by_name):
            return {}
        read = {o.name for let in (*phase.lets, *phase.reductions) for o in let.expr.operands}
        mine = {let.name: let for let in phase.lets}
        stored = (mine[s.ref] for s in phase.stores if s.ref in mine and s.state is None and s.result not in self.render.kept)
        found = (let for let in stored if let.expr.name in self.render.backend.pairs and let.name not in read)
        return {let.name: self.defs[let.expr.operands[0].name] for let in found}

    def probe(self, let: Let) -> None:
        """Name what the steps of a search try: one of the row's values while they run."""
        probe = self.defs[let.expr.operands[1].name]
        name = let.label.rstrip("'") or self.render.row_name(let)
        self.rows[probe.name] = Given(self.names.fresh(f"{name}_probe"), self.render.type_of(probe))

    def search(self, let: Let, total: Accumulator, body: Body) -> Search:
        """The loop of a search whose shares an accumulator adds up; what it finds is one of the row's values from here on."""
        _, probe, amount = (self.defs[o.name] for o in let.expr.operands)
        stored = probe.expr.attrs[1]
        dtype = next((p.dtype for p in self.render.kernel.params if p.name == stored), "")
        key = self.render.storage(dtype) if dtype else self.render.type_of(probe) if let.expr.name == "cutoff" else ""
        given = self.rows.get(amount.name) or Given("", self.render.type_of(amount), self.fixed.get(amount.name) or body.expression(amount))
        fresh, name = self.names.fresh, self.rows[probe.name].name.removesuffix("_probe")
        found = self.rows[let.name] = Given(self.names.user(let.label) if let.label else fresh(name), self.render.type_of(let))
        return Search(
            self.rows[probe.name], Given(total.name, total.type), given, found, key, probe.tensor_dtype, fresh(f"{name}_rank"),
            fresh(f"{name}_bit"),
        )  # fmt: skip

    def accumulator(self, let: Let, text: dict[str, Text], body: _RowBody) -> Accumulator:
        """A reduction, of values that have texts in a phase's body; from here on it is one of the row's values."""
        if let.expr.name in SEARCHES:  # what a step adds up
            share, name = self.defs[let.expr.operands[0].name], self.rows[let.expr.operands[1].name].name.removesuffix("_probe")
            of, dtype = self.render.type_of(share), share.tensor_dtype
            return Accumulator(self.names.fresh(f"{name}_total"), let.expr.name, of, dtype, text[share.name], of, dtype)
        name = self.names.user(let.label) if let.label else self.names.fresh(self.render.row_name(let))
        row = MONOIDS[let.expr.name]
        value, *rest = (self.defs[o.name] for o in elements(let.expr))
        own, of = self.render.type_of(let), self.render.type_of(value)
        self.rows[let.name] = Given(name, own)
        peak = self.rows[let.expr.operands[1].name].name if row.about else ""
        at = text[rest[0].name] if row.placed else NOTHING
        weights = tuple(text[w.name] for w in rest) if row.about or is_scan(let) else ()
        only, share, one = body.selected(value)
        factors = tuple(text[o.name].fit(CALL) for o in share.expr.operands) if share.name in body.summed else ()
        return Accumulator(name, let.expr.name, own, let.tensor_dtype, text[value.name], of, value.tensor_dtype, at, peak, weights, factors,
                           EXCLUSIVE in let.expr.attrs[1:], row.name == "max" and self.is_magnitude(value), self.when(let), only,
                           text[share.name], one)  # fmt: skip

    def is_magnitude(self, value: Let) -> bool:
        """Whether a value is the magnitude of an operand along the row, or of what takes the place of one."""
        if value.expr.name != "abs" or not value.tensor_dtype.is_float:
            return False
        x = self.defs[value.expr.operands[0].name]
        return x.expr.name == "load" or self.remade is not None and x == self.remade.value

    def when(self, let: Let) -> Text:
        """The number that says whether a reduction is read in a call; nothing where it always is."""
        if let.name not in self.spared:
            return NOTHING
        condition, holds = self.spared[let.name]
        return self.fixed[condition] if holds else source("!{0}", self.fixed[condition])


class _RowBody(Body):
    def __init__(self, owner: RowNames, lets: tuple[Let, ...], text: dict[str, Text], ends: list[str], reductions: tuple[Let, ...] = ()):
        """`reductions` are those that take these lets; `summed` will have the products that sums take as two factors."""
        self.reductions, self.summed, self.chosen, self.divides = reductions, frozenset[str](), dict[str, int](), list[Given]()
        self.owner, self.gathers, self.neighbours, self.split = owner, owner.gathers, owner.neighbours, owner.split
        self.forced = owner.costly | owner.render.backend.selected(lets, owner.rows, owner.render.program.by_name)
        super().__init__(owner.render, owner.names, lets, text, ends, {})

    def name(self, let: Let) -> str:
        """The same name for a value in every phase."""
        if let.name not in self.owner.lines:
            self.owner.temporaries += not let.label
            self.owner.lines[let.name] = self.names.user(let.label) if let.label else self.names.fresh(f"t{self.owner.temporaries - 1}")
        return self.owner.lines[let.name]

    def products(self, lets: tuple[Let, ...]) -> set[str]:
        """Those that a sum over a row takes too."""
        sums = [let for let in self.reductions if MONOIDS.get(let.expr.name) is MONOIDS["sum"] and let.tensor_dtype.is_float]
        values = [self.defs[elements(let.expr)[0].name] for let in sums]
        columns = {elements(let.expr)[0].name for let in self.owner.p.columns}
        self.chosen = {value.name: k for value in values if (value.name in columns or self.picked(value)) and (k := self.share_of(value))}
        values = [self.defs[v.expr.operands[self.chosen[v.name]].name] if v.name in self.chosen else v for v in values]
        self.summed = frozenset(value.name for value in values if self.multiplies(value))
        return super().products(lets) | self.summed

    def share_of(self, value: Let) -> int:
        """Which operand of a selection that one sum takes is its share, where the other is 0 (sums begin with +0); 0 of other values."""
        if value.expr.name != "where" or value.label or value.name not in self.singles or value.name in self.forced:
            return 0
        zero = [literal_of(self.defs[o.name], self.defs) == 0 for o in value.expr.operands[1:]]
        return 2 if zero == [True, False] else 1 if zero == [False, True] else 0

    def picked(self, value: Let) -> Let | None:
        """The one position at which a selection is not 0, where the target reads what a sum takes of it alone."""
        return position(value, k, self.owner.p.inner, self.defs) if self.backend.picks and (k := self.share_of(value)) else None

    def selected(self, value: Let) -> tuple[Text, Let, Text]:
        """Under which condition a sum takes an element at all, what it then takes, and the one position at which that can hold."""
        k = self.chosen.get(value.name, 0)
        if not k:
            return NOTHING, value, NOTHING
        condition, at = self.text[value.expr.operands[0].name], self.picked(value)
        condition = fill(self.backend.spell(OPS["not"]), "bool", [condition], {}) if k == 2 else condition
        return condition, self.defs[value.expr.operands[k].name], self.text[at.name] if at else NOTHING

    def divisor(self, let: Let, y: Let, digits: str, split: bool = False) -> Text:
        """A name for what follows from a row's value, once for all elements divided by it; a row's quotient divides itself."""
        shares, few = y.name in self.owner.rows and {*let.dims} & {*self.owner.p.inner}, len(self.split) < FEW_QUOTIENTS
        waits = (f"{WAITS} && !is_brief<{digits}>" if few else WAITS) if split else ""
        return self.shared(self.text[y.name], digits, waits) if shares else self.text[y.name]

    def divided(self, let: Let, y: Let, digits: str) -> Text:
        """As `Body.divided` has it; of elements once before a reading, where a pass has room for that."""
        by = super().divided(let, y, digits)
        return self.shared(by, digits, "true") if self.owner.splits and {*let.dims} & {*self.owner.p.inner} else by

    def shared(self, y: Text, digits: str, split: str) -> Text:
        """The name of a divisor that elements share."""
        key = y, digits, split
        if key not in self.owner.divisors:
            self.owner.divisors[key] = Given(self.owner.names.fresh(f"by_{y}" if y.is_name else "by"), digits, y, split)
            self.divides.append(self.owner.divisors[key])
        return named(self.owner.divisors[key].name)
