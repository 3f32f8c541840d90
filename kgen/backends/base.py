"""What the backends share: from a pass to straight-line source text.

In: a checked kernel.  Out: for each pass of its plan a unit (kgen.backends.units) in the target's own spelling, poured into
the target's templates, which put signature, grid, masks and loops around the code.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from kgen import pipeline
from kgen.backends import templates
from kgen.backends.body import Body, RowNames
from kgen.backends.drawn import neighbours, words
from kgen.backends.gathers import beside, gathers_of, whole
from kgen.backends.names import Names, bare, settled
from kgen.backends.ranges import within
from kgen.backends.sorts import SortUnit, sort_unit
from kgen.backends.text import Text, briefs, broken, comment, fill, functions, identifiers, named, source, spelled, tidy
from kgen.backends.units import NUMBERS, Accumulator, Argument, Gather, RowUnit, ScanUnit, Statement, Tap, Tensor, Unit, reaches_of
from kgen.check import Kernel
from kgen.cost import instructions
from kgen.errors import printed
from kgen.expand import is_reduction
from kgen.host import to_dtype
from kgen.ir import Form, Let, Program, Store, exact, leaf, live, taken
from kgen.monoids import MONOIDS, Rides
from kgen.ops import OPS, ROWS, Op, Spell
from kgen.passes import Map, Pass, Plan, Reduce, Scan, Sort
from kgen.phases import needed
from kgen.precision import ordered, uniform_quotients
from kgen.resources import resource
from kgen.scanned import is_scan
from kgen.taps import is_tap, taps_of
from kgen.types import DTYPES, ELLIPSIS, FLOAT, VARIABLE, DType, is_literal, is_wide, variable_of
from kgen.version import __version__


@dataclass(frozen=True)
class Page:
    """What all templates see of a kernel: its texts as comments; `generics` name what dtype variables are computed in, and of which."""

    name: str
    version: str
    doc: list[str]
    signature: list[str]
    equations: list[str]
    generics: dict[str, list[str]]
    dtypes: set[str]
    source_name: str
    file: str


#: The ends of a float dtype, as literals.
ENDS = {"least": "-inf", "greatest": "inf"}
#: Dtypes of variables: one of each, or several.
Only = Mapping[str, str | Sequence[str]]

#: The forms of operators (`Brief`), each nearer the exact value than those before it.
NEARER = ("coarse", "rough", "brief", "near")


class Backend:
    """A target: a table of types, a table of keywords, how literals and casts are written, and its templates."""

    name = suffix = ""
    comment = "//"
    brackets = False  # whether a value on several lines has to stand in brackets
    types: dict[str, str] = {}
    number_types: dict[str, str] = {}
    keywords: frozenset[str] = frozenset()
    #: Whether its passes over rows draw random words by vectors.
    draws = False
    #: What its function of random words takes beside a place, in a row of neighbours: what the place of the first is a multiple of.
    neighbours = ""
    macros: re.Pattern[str] | None = None
    aliases = "FGHPQRS"
    #: What the target has of the forms of operators (`Brief`), as its functions are named (`brief_exp`); None: all.
    own_forms: frozenset[str] | None = None
    brief = ""  # the pattern of a function that takes an operator's fast form for results of 16 bits (`briefs`)
    scaled: frozenset[str] = frozenset()  # the operators whose functions take factors (`kgen.backends.factors`)
    pairs: Mapping[str, str] = {}  # the functions that make the codes of two values at a time, by operator
    makes = False  # whether what a row is made into takes its place on the chip (`kgen.backends.remade`)
    shares = False  # whether quotients of which codes are made go by what follows from their divisor (`kgen.quotients`)
    rides = Rides.NONE  # of which rows sums about a peak are made with it
    merges = False  # whether sums over rows are made while these are gone through
    taps = False  # whether a map reads neighbours as vectors
    picks = False  # whether a sum of which one element is the only term reads that alone (`kgen.backends.picks`)

    #: Whose column of the table of operators this target reads, and what it spells otherwise: by operator.
    spelled_as = ""
    spells: dict[str, Spell] = {}

    def spell(self, row: Op, form: str = "") -> Spell:
        """How the target writes an operator, in its accurate form ("") or another (`Brief`); `{B}` is the dtype that decides."""
        if form and row.brief is not None:
            return Spell(self.call(f"{row.brief.named(form)}_{row.name}", ", ".join(f"{{{k}}}" for k in range(row.arity)), "{B}"))
        return self.spells.get(row.name) or row.spell(self.spelled_as or self.name)

    def form(self, let: Let) -> Form | None:
        """The form in which the target computes a let, of what that has in a plan: where it lacks it, the next nearer one that it has."""
        if let.form is None or self.own_forms is None:
            return None if let.form and let.form.name == "shared" and not self.shares else let.form
        name, decides = let.form
        nearer = NEARER[NEARER.index(name) :] if name in NEARER else ()
        found = next((f for f in nearer if f"{f}_{let.expr.name}" in self.own_forms), None)
        return Form(found, decides) if found else None

    def call(self, function: str, operands: str, dtype: str) -> str:
        """The pattern of a call of a function that goes by a dtype."""
        return f"{function}({operands}, {dtype})"

    def columns(self) -> list[Spell]:
        """How the target writes all operators, and the functions of their brief forms."""
        spells = [(row, self.spell(row)) for row in ROWS.values()]
        return [*(spell for _, spell in spells), *briefs(spells, self.brief, self.own_forms, self.scaled)]

    def functions(self, calls: Iterable[str]) -> dict[str, Text]:
        """The sources of the helper functions among calls, and of those that they call, each after what it needs."""
        return functions(self.template_folder(), calls, self.columns())

    # ------------------------------------------------------------------ spelled by each target

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        """A literal, exact (or "inf", "-inf", "nan"), as a value of a dtype."""
        raise NotImplementedError

    def constant(self, number: Let, let: Let, type_name: str) -> Text:
        """A literal number as the value that `let` converts it to."""
        text = number.expr.attrs[0]
        value = text if text in ("inf", "-inf", "nan") else exact(text)
        if not let.tensor_dtype.is_float:
            value = Fraction(to_dtype(float(value) if number.dtype == FLOAT else int(value), let.tensor_dtype))
        return self.literal(value, let.tensor_dtype, type_name)

    def cast(self, x: Text, given: DType, target: DType, type_name: str) -> Text:
        raise NotImplementedError

    def spelled(self, row: Op, let: Let, defs: Mapping[str, Let]) -> Spell:
        """How the target writes a let's operator; `defs` are the program's lets."""
        return self.spell(row)

    def pair(self, code: Let, defs: Mapping[str, Let]) -> str:
        """The function that makes the codes of two values at a time, of which `code` is one."""
        return self.pairs[code.expr.name]

    def selected(self, lets: Iterable[Let], rows: Container[str], defs: Mapping[str, Let]) -> set[str]:
        """The lets of a reading that are computed whether a condition of the row's own selects them or not; `rows` has the row's values,
        `defs` the program's lets."""
        return set()

    def of_whole(self, x: Text, given: DType, target: DType, type_name: str, inside: bool) -> Text:
        """The cast of a float that is a whole number, or NaN, to an integer dtype; `inside` where that has all that it may be."""
        return self.cast(x, given, target, type_name)

    def statement(self, name: str, type_name: str, value: Text, is_declared: bool, note: str) -> Statement:
        """A line that gives a value its name; `is_declared` where that has a type already."""
        raise NotImplementedError

    def assign(self, s: Statement) -> str:
        """A statement's line."""
        raise NotImplementedError

    def printed(self, statements: Iterable[Statement]) -> list[str]:
        """The lines of statements, equations as comments above them."""
        lines = []
        for s in statements:
            if s.note:
                lines.append(f"{self.comment} {s.note}")
            if s.value:
                value = broken(s.value, len(bare(self.assign(replace(s, value=Text())))), self.brackets and s.names != ())
                lines += self.assign(replace(s, value=value)).split("\n")
        return lines

    def compared(self, x: Text) -> Text:
        """A float as a comparison takes it."""
        return x

    def narrow(self, x: Text, dtype: DType, type_name: str) -> Text:
        """An integer result of an operator brought back to its own width, where the target widens it."""
        return x

    def combined(self, a: Accumulator, x: str, y: str) -> Text:
        """Two fields of partial results as one, as the table spells the operator that joins them."""
        spell = self.spell(OPS[MONOIDS[a.kind].join])
        return fill(spell, a.dtype.kind, [named(x), named(y)], {"F": a.type, "U": a.dtype.unsigned})

    @staticmethod
    def neutral(a: Accumulator) -> tuple[Fraction | str, DType, str]:
        """What changes no partial result, with its dtype and that one's name: for argmax and argmin, the value that any other beats or
        equals."""
        dtype, type_name = (a.value_dtype, a.value_type) if a.value_dtype is not None and a.place else (a.dtype, a.type)
        identity = next(f.identity for f in MONOIDS[a.kind].fields if f.identity != "last")
        if identity not in ENDS:
            return Fraction(identity), dtype, type_name
        return ENDS[identity] if dtype.is_float else Fraction(dtype.limits[identity == "greatest"]), dtype, type_name

    def identity(self, a: Accumulator) -> Text:
        """That as a literal, of its dtype where it is an extreme integer."""
        value, dtype, type_name = self.neutral(a)
        made = self.literal(value, dtype, type_name)
        return made if dtype.is_float or MONOIDS[a.kind].fields[0].identity not in ENDS else made.typed or made

    def ranged(self, g: Gather, type_name: str, lo: Text, hi: Text, *at: Text) -> Text:
        """The reduction of what stands in a range, of a type; `at` has what terms are asked for, if they are: a position, a value."""
        which, marks = "same_terms" if g.same else "other_terms", [f"{{{k + 3}}}" for k in range(len(at))]
        term = self.call(which, f"{g.name}, {g.asked.name}, {marks.pop()}", "{2}") if g.asked else g.name
        called = ", ".join(("{0}", "{1}", term, *(o.name for o in ([g.order] if g.order else g.within)), *marks))
        return source(self.call(f"ranged_{g.ranged}", called, "{2}"), lo, hi, type_name, *at)

    def keyed(self, g: Gather, type_name: str, own: Text, n: Text) -> Text:
        """The reduction of a type of what stands beside a key, of n that a row has."""
        called = ", ".join(("{0}", "{1}", g.name, *(o.name for o in g.within)))
        return source(self.call(f"keyed_{g.ranged}", called, "{2}"), own, n, type_name)

    def number(self, n: Let, defs: dict[str, Let], done: dict[str, Text], names: Names) -> Text:
        """One operator on numbers in the target's host language; `done` has the texts of its operands."""
        raise NotImplementedError

    def host_number(self, program: Program, let: Let, names: Names) -> Text:
        """A number's whole expression in the target's host language."""
        defs = program.by_name
        done: dict[str, Text] = {}
        for n in program.lets:
            if n.is_number:
                done[n.name] = self.number(n, defs, done, names)
            if n is let:
                break
        return done[let.name]

    def view(self, render: Render, units: list[Unit | RowUnit | SortUnit], page: Page) -> object:
        """What only this target's templates see: a record, whose fields they know by name."""
        raise NotImplementedError

    def stays(self, p: Reduce, elements: int, dense: bool) -> bool:
        """Whether rows of so many elements are sure to be gone through by the pass's own phases, not those of rows that do not stay on the
        chip; `dense` where a row's elements are neighbours in all operands."""
        return False

    def template_folder(self) -> Path:
        return resource("templates") / self.name

    # ------------------------------------------------------------------ common

    def render(self, kernel: Kernel, only: Only | None = None) -> str:
        """The whole source of a kernel for this target, for every choice of its dtype variables; with `only` for those alone that it
        names (`{"T": "bf16"}`, `{"T": ("bf16", "f32")}`), which compiles sooner.

        Raises `KgenError` where the kernel holds what no schedule covers.
        """
        return Render(self, kernel, only).source()

    def written(self, kernel: Kernel, only: Only | None = None, standalone: bool = False) -> dict[str, str]:
        """What `kgen compile` writes into a folder, by the names of files: the source first, then what it includes, unless it is to
        stand alone."""
        return {self.file_name(kernel.name): self.render(kernel, only)}

    def file_name(self, kernel: str) -> str:
        """What a kernel's file is called."""
        return f"{kernel}{self.suffix}"

    def environment(self):
        return templates.environment(self.template_folder())

    #: Members that templates look for in what is made of the writer's names.
    members: frozenset[str] = frozenset()

    @property
    def claimed(self) -> frozenset[str]:
        """Words that name nothing else: the language's, and those that its compiler or its headers would see."""
        return self.keywords | self.members

    @property
    def reserved(self) -> frozenset[str]:
        """Names that a kernel may not have at global scope, nor its dtype variables: single capitals are free, since they only name types
        in scopes of their own."""
        found = self.keywords | templates.identifiers_of(self.template_folder()) | spelled(self.columns()) | frozenset(self.types.values())
        return frozenset(name for name in found if len(name) > 1 or not name.isupper())


class Render:
    """One kernel for one target."""

    splits = True  # whether quotients by a value of their row go by parts of its inverse (`split_quotients` in `kgen.precision`)

    def __init__(self, backend: Backend, kernel: Kernel, only: Only | None = None):
        """`only` has dtypes of variables: entries are made for these alone."""
        self.backend, self.kernel = backend, kernel
        self.only = {v: (d,) if isinstance(d, str) else tuple(d) for v, d in (only or {}).items()}
        self.plan = self.planned()
        self.program, self.passes, self.within = self.plan.program, self.plan.passes, within(self.plan.program)
        self.ordered = ordered(self.program.lets)
        self.uniform = uniform_quotients(self.program) if backend.shares else frozenset()
        taken = set(backend.reserved)
        if not any(isinstance(p, Reduce) for p in self.passes):
            taken -= templates.row_names(backend.keywords | spelled(backend.columns()) | frozenset(backend.types.values()))
        self.global_names = Names(taken, macros=backend.macros)
        self.variables = {v: self.global_names.plain(v) for v in kernel.variables}
        self.kernel_name, self.generics = self.global_names.plain(kernel.name), self._generics()
        # A host part knows tensors by the writer's names, workspaces by kgen's: these are none of those, also where those got a `_`.
        self.global_names.taken |= {p.name for p in kernel.params} | {r.name for r in kernel.results}
        names = ((w, w.name if w.view else f"{self.row_name(w.let)}_kept") for w in self.plan.workspaces)
        self.kept = {w.name: (w, self.global_names.fresh(name)) for w, name in names}

    def planned(self) -> Plan:
        """The passes that are printed."""
        return pipeline.scheduled(self.kernel, self.kernel.bindings()[0], self.backend.rides, self.backend.merges, self.backend.taps)

    def form(self, let: Let) -> tuple[str, str]:
        """The form that an operator is printed in, and the dtype that decides; "" is the accurate one."""
        return self.backend.form(let) or ("", "")

    def _generics(self) -> dict[str, str]:
        """A name for each dtype that depends on the variables: `F` for what T is computed in, which is T32 too."""
        written = identifiers(" ".join([self.kernel.signature(), *(text for _, _, text in self.kernel.equations)]))
        free = (a for a in self.backend.aliases if a not in self.global_names.taken | written)
        found = dict.fromkeys([*(let.generic for let in self.program.lets), *(variable_of(d) for d in self.kernel.wide)])
        return {g: next(free) for g in found if g and not g.startswith("=")}

    def type_of(self, let: Let) -> str:
        """The name of a value's dtype in the source."""
        if let.generic.startswith("="):
            return self.variables[let.generic[1:]]
        if let.generic:
            return self.generics[let.generic]
        return self.backend.types[let.dtype.name] if isinstance(let.dtype, DType) else self.backend.number_types[let.dtype.kind]

    @staticmethod
    def row_name(let: Let) -> str:
        """A name for a row's value: the writer's own, else its reduction's with its dims, else its operator's."""
        if let.expr.name == "sorted":
            return "_".join((let.expr.attrs[0], *let.dims)).replace(ELLIPSIS, "all")
        along = "_".join("all" if d == ELLIPSIS else d for d in let.expr.attrs) if is_reduction(let) or is_scan(let) else "row"
        return let.label.rstrip("'") or f"{let.expr.name}_{along}"

    def storage(self, dtype: str) -> str:
        """The name in the source of a dtype as it is declared."""
        if is_wide(dtype):
            return self.generics[variable_of(dtype)]
        return self.variables.get(dtype) or self.backend.types[DTYPES[dtype].stored.name]

    def source(self, units: list[Unit | RowUnit | SortUnit] | None = None) -> str:
        """The whole source, names as they will stand; `units` are what `units()` gave."""
        units, page = self.units() if units is None else units, self.page()
        return self.poured(self.backend.view(self, units, page), f"kernel.{self.backend.suffix.lstrip('.')}.jinja", page)

    def poured(self, view: object, name: str, page: Page) -> str:
        """What a template makes of a view, names as they will stand."""
        text = tidy(self.backend.environment().get_template(name).render(vars(page) | vars(view), printed=self.backend.printed))
        tensors = [*(p.name for p in self.kernel.params), *(r.name for r in self.kernel.results)]
        return settled(text, self.backend.comment, self.backend.claimed, self.backend.macros, tensors)

    def units(self) -> list[Unit | RowUnit | SortUnit]:
        """The passes in the target's spelling, in order."""
        return [self.spelled(p) for p in self.passes]

    def spelled(self, p: Pass) -> Unit | RowUnit | SortUnit:
        """A pass in the target's spelling."""
        if isinstance(p, Sort):
            return sort_unit(self, p, self.unit_name(p))
        return self.row_unit(p) if isinstance(p, Reduce) else self.unit(p)

    @property
    def computed_of(self) -> dict[str, list[str]]:
        """The names of what dtype variables are computed in, with the variables that each depends on."""
        return {self.generics[g]: [self.variables[v] for v in g.split("+")] for g in self.generics}

    def page(self) -> Page:
        """What every target's templates see."""
        kernel = self.kernel
        stored = {p.dtype for p in kernel.params if p.is_tensor} | {r.dtype for r in kernel.results}
        concrete = {d for d in stored if d in DTYPES}
        if kernel.variables:
            concrete |= {d.name for d in VARIABLE}
        concrete |= {let.dtype.name for let in self.program.lets if isinstance(let.dtype, DType)}
        return Page(
            name=self.kernel_name,
            version=__version__,
            doc=[comment(line) for line in kernel.doc.split("\n")] if kernel.doc else [],
            signature=kernel.signature(False).split("\n"),
            equations=[text for _, _, text in kernel.equations],
            generics=self.computed_of,
            dtypes=concrete,
            source_name=printed(Path(kernel.file.source.name).name, ""), file=kernel.name,
        )

    def in_order(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Tensors in the order of the kernel's parameters, others behind."""
        order = [self.global_names.user(p.name) for p in self.kernel.params]
        return sorted(tensors, key=lambda t: order.index(t.name) if t.name in order else len(order))

    def number_name(self, name: str) -> str:
        return self.global_names.user(name)

    # ------------------------------------------------------------------ one pass

    def unit_name(self, p: Pass) -> str:
        if len(self.passes) == 1:
            return self.kernel_name
        first = p.stores[0].result.rstrip("'")
        return self.global_names.plain(f"{self.kernel_name}_{self.kept[first][1] if first in self.kept else first}")

    def inputs(self, p: Pass) -> tuple[Tensor, ...]:
        """The tensors that a pass reads: parameters, and what passes before it kept."""
        dtypes = {q.name: q.dtype for q in self.kernel.params} | {r.name: r.dtype for r in self.kernel.results}
        values = {let.expr.attrs[0]: let for let in p.lets if let.expr.name == "load"}
        made = []
        for t in p.loads:
            compute = self.type_of(values[t.name])
            if t.name in self.kept:
                w, name = self.kept[t.name]
                dtype = dtypes[w.view.tensor] if w.view else self.kept_dtype(values[t.name])
                made.append(Tensor(name, t.name, self.storage(dtype) if w.view else compute, compute, t.dims, dtype))
            else:
                dtype, state = dtypes[t.name], any(s.state == t.name for s in p.stores)
                made.append(Tensor(self.global_names.user(t.name), t.name, self.storage(dtype), compute, t.dims, dtype, state))
        return tuple(made)

    @staticmethod
    def kept_dtype(let: Let) -> str:
        """A workspace's dtype as the templates see it: a dtype's name, or the generic name of what it is computed in."""
        return let.generic or let.tensor_dtype.name

    def outputs(
        self, stores: tuple[Store, ...], values: dict[str, Text], defs: dict[str, Let], coded: Container[str] = ()
    ) -> tuple[Tensor, ...]:
        """What a pass writes, each with the text of its value; of the codes among `coded`, of what they are made of."""
        results = {r.name: r for r in self.kernel.results}
        made = []
        for s in stores:
            compute = self.type_of(defs[s.ref])
            if s.result in self.kept:
                name, dtype = self.kept[s.result][1], self.kept_dtype(defs[s.ref])
                made.append(Tensor(name, s.result, compute, compute, s.dims, dtype, False, values[s.result]))
            else:
                r = results[s.result]
                name, spec = self.global_names.user(s.result), s.state or s.result
                pair = self.backend.pair(defs[s.ref], defs) if s.ref in coded else ""
                given = s.dims, r.dtype, s.state is not None, values[s.result], pair
                made.append(Tensor(name, spec, self.storage(r.dtype), compute, *given))
        return tuple(made)

    def index_tensors(self, p: Map | Reduce) -> tuple[Tensor, ...]:
        i64, fresh, asked = self.backend.types["i64"], self.global_names.fresh, {i: tuple(i.split(", ")) for i in p.indices}
        return tuple(Tensor(fresh(f"index_{'_'.join(d).replace(ELLIPSIS, 'all')}"), i, i64, i64, d, "i64") for i, d in asked.items())

    def row_unit(self, p: Reduce) -> RowUnit:
        """A pass over rows: its phases as code, with one name for a value in all of them."""
        name = self.unit_name(p)
        for end in ("_kernel", "_row", "_loop", "_split", "_finish"):
            self.global_names.plain(f"{name}{end}")
        tensors = self.inputs(p)
        indices, scalars, of = self.index_tensors(p), self.scalars(p), {t.spec_name: t for t in tensors}
        read = {o.name for let in p.lets for o in taken(let.expr)} | {s.ref for s in p.stores}
        read |= {let.expr.operands[0].name for let in p.lets if is_tap(let)}
        inputs = tuple(t for t in tensors if any(let.expr == leaf("load", t.spec_name) and let.name in read for let in p.lets))
        gathers, near = gathers_of(self, p, of), beside(self, p, of)
        given = {t.spec_name: t for t in inputs}, {t.spec_name: t for t in indices}, scalars, gathers
        each = (p.phases + ((p.finish,) if p.finish else ()), p.long)
        names = [RowNames(self, p, f, *given, near) for f in each]
        codes, long = ([own.code(f) for f in phases] for own, phases in zip(names, each, strict=True))
        pieces, others = (own.pieces() if k == 0 or p.long else () for k, own in enumerate(names))
        outputs = tuple(o for c in (*codes, *(c for piece in pieces for c in piece.codes)) for o in c.outputs)
        uses = {t.type for t in (*tensors, *outputs)}.union(*(c.uses for c in codes), (s.type for s in scalars))
        uses = uses.union(*(c.uses for piece in pieces for c in piece.codes))
        finish = codes.pop() if p.finish else None
        variables = self.variables_of(uses)
        made = tuple(dict.fromkeys(g for own in gathers.values() for g in whole(own)))
        words = {g.size for g in made}.union(*(s.text.uses for s in scalars))
        numbers = tuple(a for a in self.givens() if a.name in words)
        unit = RowUnit(
            name, p.rows, p.inner, inputs, indices, made, outputs, scalars, tuple(codes), variables, self.bindings(variables), numbers,
            self.declared(variables), tuple(long), finish, p.aside(self.program.by_name), pieces, others, instructions(p),
        )  # fmt: skip
        return ScanUnit(**vars(unit), backwards=p.backwards) if isinstance(p, Scan) else unit

    def unit(self, p: Map) -> Unit:
        """A pass over independent elements: its element function's statements, and what those read."""
        name = self.unit_name(p)
        element = self.global_names.fresh(f"{name}_element")
        self.global_names.plain(f"{name}_kernel")
        inputs, indices, scalars = self.inputs(p), self.index_tensors(p), self.scalars(p)
        text = {s.spec_name: named(s.name) for s in scalars}
        places = {"load": {t.spec_name: t.name for t in inputs}, "index": {t.spec_name: t.name for t in indices}}
        text.update({let.name: named(places[let.expr.name][", ".join(let.expr.attrs)]) for let in p.lets if let.expr.name in places})
        taps, aside = self.taps(p, inputs, indices, text)
        reaches = reaches_of(taps, self.global_names.fresh)
        declared = self.references(p)
        names = Names(set(self.global_names.taken), dict(self.global_names.given), self.backend.macros)
        drawn = words(self, p, text) if self.backend.draws else {}
        lets = live((replace(let, expr=leaf("load", let.name)) if is_tap(let) else let for let in p.lets), p.stores)
        lets = needed(lets, [s.ref for s in p.stores], drawn) if drawn else lets
        body = Body(self, names, lets, text, [s.ref for s in p.stores], declared, neighbours(self, p, indices))
        outputs = self.outputs(p.stores, {s.result: body.result(s) for s in p.stores}, body.defs)
        unit = Unit(name, element, p.dims, inputs, indices, outputs, scalars, tuple(body.lines), taps=taps, aside=aside, reaches=reaches)
        if drawn:
            names_of = {t.name for t in (*inputs, *indices)} | {s.name for s in scalars}
            unit = replace(unit, words=tuple(drawn.values()), within=frozenset(names_of - unit.uses))
        variables = self.variables_of(unit.uses | {t.type for t in (*inputs, *outputs)})
        numbers = tuple(a for a in self.givens() if any(a.name in s.text.uses for s in scalars))
        own = self.declared(variables)
        return replace(unit, variables=variables, bindings=self.bindings(variables), numbers=numbers, dtype_variables=own)

    def taps(
        self, p: Map, inputs: tuple[Tensor, ...], indices: tuple[Tensor, ...], text: dict[str, Text]
    ) -> tuple[tuple[Tap, ...], frozenset[str]]:  # fmt: skip
        """The neighbours that a map reads, whose names `text` gets, and the names of what these alone need."""
        defs, made = self.program.by_name | {let.name: let for let in p.lets}, list[Tap]()
        of, at = ({t.spec_name: t for t in tensors} for tensors in (inputs, indices))
        for let in filter(is_tap, p.lets):
            load, fill = (defs[o.name] for o in let.expr.operands[:2])
            t = of[load.expr.attrs[0]]
            by = tuple(m._replace(numbers=tuple((sign, str(text[n])) for sign, n in m.numbers)) for m in taps_of(let))
            way = "".join(f"_{m.dim}_{m.way}" for m in by)
            value = self.backend.constant(defs[fill.expr.operands[0].name], fill, self.type_of(fill))
            tap = next((m for m in made if (m.tensor, m.by, m.fill) == (t, by, value)), None)
            if tap is None:
                made.append(tap := Tap(self.global_names.fresh(f"{t.name}{way}"), t, by, value))
            text[let.name] = named(tap.name)
        read = {o.name for let in p.lets for o in let.expr.operands if not is_tap(let)} | {s.ref for s in p.stores}
        used = {", ".join(let.expr.attrs) for let in p.lets if let.expr.name in ("load", "index") and let.name in read}
        aside = {t.name for t in (*of.values(), *at.values()) if t.spec_name not in used}
        return tuple(made), frozenset(aside) if made else frozenset()

    def references(self, p: Map) -> dict[str, str]:
        """The results that are already declared where an element's code begins, by name: of several, which are references."""
        return {self.global_names.user(s.result): s.ref for s in p.stores} if len(p.stores) > 1 else {}

    def variables_of(self, types: Set[str]) -> tuple[str, ...]:
        """The dtype variables among types, and those that types of what is computed in them depend on."""
        needed = {v for alias, of in self.computed_of.items() if alias in types for v in of}
        return tuple(v for v in self.variables.values() if v in types or v in needed)

    def declared(self, variables: tuple[str, ...]) -> tuple[str, ...]:
        """Dtype variables as the spec names them."""
        return tuple(v for v, name in self.variables.items() if name in variables)

    def givens(self) -> list[Argument]:
        """The kernel's numbers, then the sizes of dims that are used as numbers."""
        types = self.backend.number_types
        numbers = [
            Argument(self.number_name(p.name), p.name, types[p.dtype], p.dtype, p.default) for p in self.kernel.params if not p.is_tensor
        ]
        kinds = {"size": 0, "gather": 0, "ranged": 1, "keyed": 1}
        named = (let.expr.attrs[kinds[let.expr.name]] for let in self.program.lets if let.expr.name in kinds)
        sizes = dict.fromkeys(d for d in named if not is_literal(d))
        return numbers + [Argument(self.number_name(d), d, types["int"], "size") for d in sizes]

    def bindings(self, variables: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Every choice of dtypes for some of the variables, as named in the source."""
        only = {self.variables[v]: dtypes for v, dtypes in self.only.items()}
        every = (tuple(zip(variables, (d.name for d in chosen), strict=True)) for chosen in product(VARIABLE, repeat=len(variables)))
        return tuple(b for b in every if all(d in only.get(v, (d,)) for v, d in b))

    def scalars(self, p: Map | Reduce) -> tuple[Argument, ...]:
        """The numbers that a pass takes: an argument as it stands, or an expression of arguments, computed before the launch."""
        made: list[Argument] = []
        for s in p.scalars:
            if s.number.expr.name in ("arg", "size"):
                given = self.number_name(s.number.expr.attrs[0])
                name, note = given, ""
                if any(m.name == name for m in made):
                    name = self.global_names.fresh(f"{given}_{s.let.dtype}")
                text = named(given)
            else:
                label = s.number.label.rstrip("'")
                if label in {r.name.rstrip("'") for r in self.kernel.results}:  # the name is that of the tensor which it is stored in
                    name = self.global_names.fresh(f"{label}_number")
                elif label:
                    name = self.global_names.user(label)
                else:
                    name = self.global_names.fresh(f"s{sum(m.text != m.name for m in made)}")
                if any(m.name == name for m in made):  # one number in two dtypes
                    name = self.global_names.fresh(f"{name}_{s.let.dtype}")
                text = self.backend.host_number(self.program, s.number, self.global_names)
                note = self.note(s.number)
            own, passed = s.let.tensor_dtype.name, NUMBERS[s.number.dtype.kind]
            made.append(Argument(name, s.let.name, self.type_of(s.let), own, None, text, note, passed))
        return tuple(made)

    def note(self, let: Let) -> str:
        return next((text for name, _, text in self.kernel.equations if name == let.label and name), "")
