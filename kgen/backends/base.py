"""What the backends share: from a pass to straight-line source text.

In: a program's passes and the writer's equations.  Out: for each pass its names and the lines of its element
function, in the target's own spelling: one assignment an equation, the equation as a comment above it, values used
once written where they are used.  Templates put signature, grid, masks and loops around that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from kgen import __version__, host
from kgen.check import Kernel
from kgen.expand import is_reduction
from kgen.ir import Let, Program, Store, exact
from kgen.lower import lower
from kgen.ops import CALL, LOOSE, OPS, SUM, UNARY, Spell
from kgen.rewrite import rewrite
from kgen.schedule import Map, Phase, Reduce, schedule
from kgen.types import BOOL, DTYPES, ELLIPSIS, FLOAT, VARIABLE, Dims, DType, Number

MAX_INLINE = 72
#: Endings that templates put behind a tensor's name.
SUFFIXES = ("_stride", "_tile", "_buffer", "_place", "_next", "_ptr", "_at", "_view", "_i", "_k", "_element", "_kernel", "_block", "_run",
            "_rows", "_part", "_tree", "_row", "_kept", "_all")


def resource(kind: str) -> Path:
    """The folder of `templates` or `specs`: inside the package where it is installed, beside it in a checkout."""
    inside = Path(__file__).parents[1] / kind
    return inside if inside.is_dir() else Path(__file__).parents[2] / kind


@dataclass(frozen=True)
class Text:
    """A piece of source and how tightly it binds.  `typed` is set for a literal whose bare text has no dtype of its own."""

    text: str
    level: int = CALL
    typed: str = ""

    def fit(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"


@dataclass(frozen=True)
class Tensor:
    """A tensor argument of a pass as the templates see it: `name` in the target's spelling, `spec_name` as declared,
    `type` its element's, `compute` that of its value, `axes` where its dims lie among the pass's (`order` if permuted)."""

    name: str
    spec_name: str
    type: str
    compute: str
    dims: Dims
    dtype: str
    state: bool = False
    value: str = ""


@dataclass(frozen=True)
class Argument:
    """A number argument: of the kernel (`float`, `int`), a dim's size, or one computed from those before the launch."""

    name: str
    spec_name: str
    type: str
    kind: str
    default: str | None = None
    text: str = ""
    note: str = ""
    number: DType | None = None  # the dtype of `text`, before it is rounded to `kind`


@dataclass(frozen=True)
class Unit:
    """One pass, ready for a template."""

    name: str
    element: str
    dims: Dims
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    scalars: tuple[Argument, ...]
    lines: tuple[str, ...]
    variables: tuple[str, ...] = ()  # the dtype variables of its tensors, as named in the source
    bindings: tuple[tuple[tuple[str, str], ...], ...] = ()  # each choice of them: (variable, dtype)
    numbers: tuple[Argument, ...] = ()  # the kernel's numbers and sizes that its scalars are made of

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(d for d in self.dims if d != ELLIPSIS)


@dataclass(frozen=True)
class Accumulator:
    """A reduction of a reading: `name` is the row's value that it ends as, `type` and `dtype` what it is accumulated in, `value` the
    element's contribution; for argmax and argmin `value` (of `value_type`) competes and `place` is its position."""

    name: str
    kind: str
    type: str
    dtype: DType
    value: str
    value_type: str = ""
    value_dtype: DType | None = None
    place: str = ""


@dataclass(frozen=True)
class Given:
    """A row's value: its name, type, and (where it is made) text."""

    name: str
    type: str
    text: str = ""


@dataclass(frozen=True)
class Gather:
    """One element of `tensor` along `dim`, at an index: the code calls `name(index)`, which a template defines.

    `tensor.dims` has `dim` among its dims; along the others the row's place holds.  `size` and `stride` are the names of
    the dim's size (a number of the kernel) and the tensor's stride along it, `extent` a free name for the size.
    """

    name: str
    tensor: Tensor
    dim: str
    size: str
    stride: str
    extent: str = ""


@dataclass(frozen=True)
class Code:
    """A phase of a pass over rows as straight-line source: `lines` run once an element, or once a row.

    The names of `inputs` and `indices`, of the row's values in `takes` and of the unit's scalars are in scope, as what they
    are computed in; so are those of what the lines make.  `gives` are a row phase's values for later phases,
    `accumulators` what an element phase contributes to, `outputs` what is stored, each with its text.
    """

    element: bool
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    gathers: tuple[Gather, ...]
    takes: tuple[Given, ...]
    lines: tuple[str, ...]
    gives: tuple[Given, ...]
    accumulators: tuple[Accumulator, ...]
    outputs: tuple[Tensor, ...]
    keeps: tuple[Given, ...] = ()  # costly values of an element that a later reading has lines for too
    repeats: tuple[Given, ...] = ()  # those of an earlier reading

    @property
    def texts(self) -> str:
        """All of its source, for finding the names that it uses."""
        made = [*(g.text for g in self.gives), *(o.value for o in self.outputs)]
        made += [f"{a.value} {a.place} {a.type} {a.value_type}" for a in self.accumulators]
        types = [*(t.compute for t in (*self.inputs, *self.outputs)), *(g.type for g in (*self.takes, *self.gives))]
        return "\n".join((*self.lines, *made, *types))


@dataclass(frozen=True)
class RowUnit:
    """One pass over rows, ready for a template.  Of the tensors, those without an inner dim have one element a row."""

    name: str
    rows: Dims
    inner: Dims
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    gathers: tuple[Gather, ...]
    outputs: tuple[Tensor, ...]
    scalars: tuple[Argument, ...]
    codes: tuple[Code, ...]
    variables: tuple[str, ...] = ()
    bindings: tuple[tuple[tuple[str, str], ...], ...] = ()
    numbers: tuple[Argument, ...] = ()

    @property
    def dims(self) -> Dims:
        return (*self.rows, *self.inner)

    @property
    def texts(self) -> str:
        return "\n".join(c.texts for c in self.codes)

    def is_row(self, t: Tensor) -> bool:
        """Whether a tensor has one element a row."""
        return not set(t.dims) & set(self.inner)


@dataclass
class Names:
    """Names that are free in the target: the writer's own where they can be kept, a `_` behind them where not."""

    taken: set[str]
    given: dict[str, str] = field(default_factory=dict)
    macros: re.Pattern[str] | None = None  # names of these forms are not free either

    def user(self, name: str) -> str:
        """The name for one of the writer's (for the size of `...`, "leading"); names that end as the templates end theirs
        (`x_stride`) get a `_` too."""
        name = "leading" if name == ELLIPSIS else name
        if name not in self.given:
            wanted = name[:-1] + "_next" if name.endswith("'") else name
            self.given[name] = self.fresh(wanted + "_" if name.endswith(SUFFIXES) else wanted)
        return self.given[name]

    def fresh(self, wanted: str) -> str:
        if self.macros is not None and self.macros.fullmatch(wanted):
            wanted += "_"
        while wanted in self.taken:
            wanted += "_"
        self.taken.add(wanted)
        return wanted


class Backend:
    """A target: a table of types, a table of keywords, how literals and casts are written, and its templates."""

    name = ""
    suffix = ""
    comment = "//"
    types: dict[str, str] = {}
    number_types: dict[str, str] = {}
    keywords: frozenset[str] = frozenset()
    macros: re.Pattern[str] | None = None
    aliases = "FGHPQRS"

    # ------------------------------------------------------------------ spelled by each target

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        """A literal, exact (or "inf", "-inf", "nan"), as a value of a dtype."""
        raise NotImplementedError

    def cast(self, x: Text, source: DType, target: DType, type_name: str) -> Text:
        raise NotImplementedError

    def assign(self, type_name: str, name: str, text: str) -> str:
        raise NotImplementedError

    def narrow(self, x: Text, dtype: DType, type_name: str) -> Text:
        """An integer result of an operator brought back to its own width, where the target widens it."""
        return x

    #: The operator that combines two partial results of a reduction.
    combining = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}

    def combined(self, a: Accumulator, x: str, y: str) -> str:
        """Two partial results of a sum, prod, max or min as one, as the table spells that operator."""
        spell = OPS[self.combining[a.kind]].spell(self.name)
        return fill(spell, a.dtype.kind, [Text(x), Text(y)], {"F": a.type, "U": "u64" if a.dtype.bits == 64 else "u32"}).text

    def identity(self, a: Accumulator) -> str:
        """What changes no partial result: for argmax and argmin, the value that any other beats or equals."""
        dtype, type_name = (a.value_dtype, a.value_type) if a.value_dtype is not None and a.place else (a.dtype, a.type)
        if a.kind in ("sum", "prod"):
            return self.literal(Fraction(a.kind == "prod"), dtype, type_name).text
        least = a.kind in ("max", "argmax")
        if dtype.is_float:
            return self.literal("-inf" if least else "inf", dtype, type_name).text
        low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
        high = 1 if dtype.kind == "bool" else 2 ** (dtype.bits - (dtype.kind == "int")) - 1
        made = self.literal(Fraction(low if least else high), dtype, type_name)
        return made.typed or made.text

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

    def extend(self, render: Render, units: list[Unit | RowUnit], context: dict[str, Any]) -> None:
        """Add to a template's context what only this target needs."""

    def template_folder(self) -> Path:
        return resource("templates") / self.name

    # ------------------------------------------------------------------ common

    def render(self, kernel: Kernel) -> str:
        """The whole source of a kernel for this target, for every choice of its dtype variables.

        Raises `KgenError` where the kernel holds what no schedule covers.
        """
        return Render(self, kernel).source()

    def environment(self):
        return _environment(self.template_folder())

    @property
    def reserved(self) -> frozenset[str]:
        """Names that the writer's may not have: single capitals are free, since they only name types in scopes of their own."""
        found = self.keywords | _identifiers(self.template_folder()) | _spelled(self.name) | frozenset(self.types.values())
        return frozenset(name for name in found if len(name) > 1 or not name.isupper())


@cache
def _environment(folder: Path):
    import jinja2

    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, folder.parent]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="%%",
        autoescape=False,
    )
    return env


@cache
def _identifiers(folder: Path) -> frozenset[str]:
    """The names that a target's templates use where the writer's names stand too, as their `{# names: ... #}` lists them."""
    found: set[str] = set()
    for path in sorted(folder.glob("*.jinja")):
        for listed in re.findall(r"\{#\s*names:(.*?)#\}", path.read_text(), flags=re.S):
            found.update(listed.split())
    return frozenset(found | {path.name.split(".")[0] for path in (folder / "functions").glob("*")})


@cache
def _row_names(backend: Backend) -> frozenset[str]:
    """Names that only the templates of passes over rows use: free in kernels without such passes."""
    own: set[str] = set()
    others = set(backend.keywords | _spelled(backend.name) | frozenset(backend.types.values()))
    for path in sorted(resource("templates").glob("*/*.jinja")):
        for listed in re.findall(r"names:(.*?)#\}", path.read_text(), flags=re.S):
            (own if path.name.startswith("row") else others).update(listed.split())
    return frozenset(own - others)


@cache
def _spelled(target: str) -> frozenset[str]:
    """Every identifier in the target's spellings."""
    found: set[str] = set()
    for op in OPS.values():
        s = op.spell(target)
        found.update(re.findall(r"[A-Za-z_]\w*", f"{s.float} {s.int} {s.bool}"))
    return frozenset(found)


class Render:
    """One kernel for one target."""

    def __init__(self, backend: Backend, kernel: Kernel, only: dict[str, str] | None = None):
        self.backend, self.kernel, self.only = backend, kernel, only or {}
        bindings = kernel.bindings()
        self.program = rewrite(lower(kernel, bindings[0]))
        self.plan = schedule(self.program)
        self.program, self.passes = self.plan.program, self.plan.passes
        taken = set(backend.reserved)
        if not any(isinstance(p, Reduce) for p in self.passes):
            taken -= _row_names(backend)
        self.global_names = Names(taken, macros=backend.macros)
        self.variables = {v: self.global_names.fresh(v) for v in kernel.variables}
        self.kernel_name = self.global_names.fresh(kernel.name)
        self.generics = self._generics()
        for name in (*(p.name for p in kernel.params), *(r.name for r in kernel.results)):
            self.global_names.user(name)  # before the names that kgen makes: those give way
        self.kept = {w.name: (w, self.global_names.fresh(f"{self.row_name(w.let)}_kept")) for w in self.plan.workspaces}

    def _generics(self) -> dict[str, str]:
        """A name for each dtype that depends on the variables: `F` for what T is computed in."""
        written = set(re.findall(r"\w+", " ".join([self.kernel.signature(), *(text for _, _, text in self.kernel.equations)])))
        free = (a for a in self.backend.aliases if a not in self.global_names.taken | written)
        found = dict.fromkeys(let.generic for let in self.program.lets)
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
        along = "_".join("all" if d == ELLIPSIS else d for d in let.expr.attrs) if is_reduction(let) else "row"
        return let.label.rstrip("'") or f"{let.expr.name}_{along}"

    def storage(self, dtype: str) -> str:
        return self.variables.get(dtype) or self.backend.types[dtype]

    def source(self) -> str:
        units = self.units()
        context = self.context(units)
        self.backend.extend(self, units, context)
        text = self.backend.environment().get_template(f"kernel.{self.backend.suffix.lstrip('.')}.jinja").render(context)
        return re.sub(r"\n{4,}", "\n\n\n", re.sub(r"[ \t]+\n", "\n", text)).rstrip("\n") + "\n"

    def units(self) -> list[Unit | RowUnit]:
        """The passes in the target's spelling, in order."""
        return [self.row_unit(p) if isinstance(p, Reduce) else self.unit(p) for p in self.passes]

    def context(self, units: list[Unit | RowUnit]) -> dict[str, Any]:
        kernel = self.kernel
        stored = {p.dtype for p in kernel.params if p.is_tensor} | {r.dtype for r in kernel.results}
        concrete = {d for d in stored if d in DTYPES}
        if kernel.variables:
            concrete |= {"f16", "bf16", "f32", "f64"}
        concrete |= {let.dtype.name for let in self.program.lets if isinstance(let.dtype, DType)}
        return {
            "kernel": kernel,
            "name": self.kernel_name,
            "version": __version__,
            "doc": kernel.doc.split("\n") if kernel.doc else [],
            "signature": kernel.signature().split("\n"),
            "equations": [text for _, _, text in kernel.equations],
            "units": units,
            "variables": list(self.variables.values()),
            "generics": {self.generics[g]: [self.variables[v] for v in g.split("+")] for g in self.generics},
            "numbers": self.givens(),
            "params": kernel.params,
            "dtypes": concrete,
            "source_name": Path(kernel.file.source.name).name,
        }

    def number_name(self, name: str) -> str:
        return self.global_names.user(name)

    # ------------------------------------------------------------------ one pass

    def unit_name(self, p: Map | Reduce) -> str:
        if len(self.passes) == 1:
            return self.kernel_name
        first = p.stores[0].result.rstrip("'")
        return self.global_names.fresh(f"{self.kernel_name}_{self.kept[first][1] if first in self.kept else first}")

    def inputs(self, p: Map | Reduce) -> tuple[Tensor, ...]:
        """The tensors that a pass reads: parameters, and what passes before it kept."""
        params = {q.name: q for q in self.kernel.params}
        values = {let.expr.attrs[0]: let for let in p.lets if let.expr.name == "load"}
        made = []
        for t in p.loads:
            compute = self.type_of(values[t.name])
            if t.name in self.kept:
                made.append(Tensor(self.kept[t.name][1], t.name, compute, compute, t.dims, self.kept_dtype(values[t.name])))
            else:
                dtype, state = params[t.name].dtype, any(s.state == t.name for s in p.stores)
                made.append(Tensor(self.global_names.user(t.name), t.name, self.storage(dtype), compute, t.dims, dtype, state))
        return tuple(made)

    @staticmethod
    def kept_dtype(let: Let) -> str:
        """A workspace's dtype as the templates see it: a dtype's name, or the generic name of what it is computed in."""
        return let.generic or let.dtype.name  # type: ignore[union-attr]

    def outputs(self, stores: tuple[Store, ...], values: dict[str, str], defs: dict[str, Let]) -> tuple[Tensor, ...]:
        """What a pass writes, each with the text of its value."""
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
                made.append(Tensor(name, spec, self.storage(r.dtype), compute, s.dims, r.dtype, s.state is not None, values[s.result]))
        return tuple(made)

    def index_tensors(self, p: Map | Reduce) -> tuple[Tensor, ...]:
        i64 = self.backend.types["i64"]
        names = {d: "all" if d == ELLIPSIS else d for d in p.indices}
        return tuple(Tensor(self.global_names.fresh(f"index_{names[d]}"), d, i64, i64, (d,), "i64") for d in p.indices)

    def row_unit(self, p: Reduce) -> RowUnit:
        """A pass over rows: its phases as code, with one name for a value in all of them."""
        name = self.unit_name(p)
        for end in ("_kernel", "_row", "_loop", "_split", "_finish"):
            self.global_names.fresh(f"{name}{end}")
        tensors = self.inputs(p)
        indices, scalars = self.index_tensors(p), self.scalars(p)
        of = {t.spec_name: t for t in tensors}
        read = {o.name for let in p.lets for k, o in enumerate(let.expr.operands) if let.expr.name != "gather" or k > 0}
        read |= {s.ref for s in p.stores}
        inputs = tuple(of[let.expr.attrs[0]] for let in p.lets if let.expr.name == "load" and let.name in read)
        inputs = tuple(sorted(inputs, key=tensors.index))
        defs = {let.name: let for let in p.lets}
        gathers: dict[str, Gather] = {}
        for let in p.gathers:
            t, dim = of[defs[let.expr.operands[0].name].expr.attrs[0]], let.expr.attrs[0]
            same = next((g for g in gathers.values() if (g.tensor, g.dim) == (t, dim)), None)
            fresh = self.global_names.fresh
            gathers[let.name] = same or Gather(
                fresh(f"{t.name}_at"), t, dim, self.number_name(dim), fresh(f"{t.name}_{dim}_stride"), fresh(f"{t.name}_{dim}_size")
            )
        names = _RowNames(self, p, {t.spec_name: t for t in inputs}, {t.spec_name: t for t in indices}, scalars, gathers)
        codes = tuple(names.code(phase) for phase in p.phases)
        texts = " ".join((*(c.texts for c in codes), *(s.type for s in scalars)))
        outputs = tuple(o for c in codes for o in c.outputs)
        types = {t.type for t in (*tensors, *outputs)} | set(re.findall(r"\w+", texts))
        types.update(self.variables[v] for g, alias in self.generics.items() if alias in types for v in g.split("+"))
        variables = tuple(v for v in self.variables.values() if v in types)
        words = set(re.findall(r"\w+", " ".join(s.text for s in scalars))) | {g.size for g in gathers.values()}
        numbers = tuple(a for a in self.givens() if a.name in words)
        made = tuple(dict.fromkeys(gathers.values()))
        return RowUnit(
            name, p.rows, p.inner, inputs, indices, made, outputs, scalars, codes, variables, self.bindings(variables), numbers
        )  # fmt: skip

    def unit(self, p: Map) -> Unit:
        name = self.unit_name(p)
        element = self.global_names.fresh(f"{name}_element")
        self.global_names.fresh(f"{name}_kernel")
        inputs, indices = self.inputs(p), self.index_tensors(p)
        scalars = self.scalars(p)
        text = {s.spec_name: Text(s.name) for s in scalars}
        named = {"load": {t.spec_name: t.name for t in inputs}, "index": {t.spec_name: t.name for t in indices}}
        text.update({let.name: Text(named[let.expr.name][let.expr.attrs[0]]) for let in p.lets if let.expr.name in named})
        # several results are references, already declared
        declared = {s.result: self.global_names.user(s.result) for s in p.stores} if len(p.stores) > 1 else {}
        names = Names(set(self.global_names.taken), dict(self.global_names.given), self.backend.macros)
        body = _Body(self, names, p.lets, text, [s.ref for s in p.stores], declared)
        outputs = self.outputs(p.stores, {s.result: body.result(s) for s in p.stores}, body.defs)
        code = " ".join((*body.lines, *(t.value for t in outputs), *(t.compute for t in (*inputs, *outputs)), *(s.type for s in scalars)))
        types = {t.type for t in (*inputs, *outputs)} | set(re.findall(r"\w+", code))
        types.update(self.variables[v] for g, alias in self.generics.items() if alias in types for v in g.split("+"))
        variables = tuple(v for v in self.variables.values() if v in types)
        given = self.givens()
        words = set(re.findall(r"\w+", " ".join(s.text for s in scalars)))
        return Unit(
            name,
            element,
            p.dims,
            inputs,
            indices,
            outputs,
            scalars,
            tuple(body.lines),
            variables,
            self.bindings(variables),
            tuple(a for a in given if a.name in words),
        )

    def givens(self) -> list[Argument]:
        """The kernel's numbers, then the sizes of dims that are used as numbers."""
        types = self.backend.number_types
        numbers = [
            Argument(self.number_name(p.name), p.name, types[p.dtype], p.dtype, p.default) for p in self.kernel.params if not p.is_tensor
        ]
        sizes = dict.fromkeys(let.expr.attrs[0] for let in self.program.lets if let.expr.name in ("size", "gather"))
        return numbers + [Argument(self.number_name(d), d, types["int"], "size") for d in sizes]

    def bindings(self, variables: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Every choice of dtypes for some of the variables, as named in the source."""
        only = {self.variables[v]: dtype for v, dtype in self.only.items()}
        every = (tuple(zip(variables, (d.name for d in chosen), strict=True)) for chosen in product(VARIABLE, repeat=len(variables)))
        return tuple(b for b in every if all(only.get(v, d) == d for v, d in b))

    def scalars(self, p: Map | Reduce) -> tuple[Argument, ...]:
        """The numbers that a pass takes: an argument as it stands, or an expression of arguments, computed before the launch."""
        made: list[Argument] = []
        for s in p.scalars:
            if s.number.expr.name in ("arg", "size"):
                given = self.number_name(s.number.expr.attrs[0])
                name, note = given, ""
                if any(m.name == name for m in made):
                    name = self.global_names.fresh(f"{given}_{s.let.dtype}")
                text = given
            else:
                name = (
                    self.global_names.user(s.number.label)
                    if s.number.label
                    else self.global_names.fresh(f"s{sum(m.text != m.name for m in made)}")
                )
                text = self.backend.host_number(self.program, s.number, self.global_names).text
                note = self.note(s.number)
            made.append(Argument(name, s.let.name, self.type_of(s.let), s.let.dtype.name, None, text, note, _number_dtype(s.number)))  # type: ignore[union-attr]
        return tuple(made)

    def note(self, let: Let) -> str:
        return next((text for name, _, text in self.kernel.equations if name == let.label), "") if let.label else ""


def _number_dtype(let: Let) -> DType:
    return DTYPES[{"float": "f64", "int": "i64", "bool": "bool"}[let.dtype.kind]]


class _Body:
    """Straight-line source of some lets: `text` has what is there before them, and then theirs as well."""

    def __init__(
        self, render: Render, names: Names, lets: tuple[Let, ...], text: dict[str, Text], ends: list[str], declared: dict[str, str]
    ):
        self.render, self.backend, self.names, self.text = render, render.backend, names, text
        self.defs = {let.name: let for let in render.program.lets}
        self.lines: list[str] = []
        self.equations = {name: text for name, _, text in render.kernel.equations}
        uses = Counter(o.name for let in lets for o in let.expr.operands)
        uses.update(ends)
        self.told: set[str] = set()
        self.named: dict[str, str] = {}  # the lets that have a line of their own, with their names
        ahead = [let.label for let in lets]
        for k, let in enumerate(lets):
            if let.name in text:
                continue
            made = self.expression(let)
            plain = re.fullmatch(r"[\w.]+|\w+\([\w.]+\)", made.text) and let.expr.name == "cast"
            if not let.label and let.name not in self.forced and (plain or (uses[let.name] < 2 and len(made.text) <= MAX_INLINE)):
                text[let.name] = made
                continue
            label = next((a for a in ahead[k:] if a), "")
            if label and label not in self.told:
                self.told.add(label)
                self.lines.append(f"{self.backend.comment} {self.equations[label]}")
            name = self.name(let)
            is_declared = declared.get(let.label, "") == name
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
        spell = row.spell(self.backend.name)
        kind = operands[1 if row.rule == "where" else 0].dtype.kind  # type: ignore[union-attr]
        last = operands[-1]
        unsigned = "u64" if last.dtype.bits == 64 else "u32"  # type: ignore[union-attr]
        text = fill(spell, kind, [self.text[o.name] for o in operands], {"F": self.render.type_of(last), "U": unsigned})
        if isinstance(let.dtype, DType) and let.dtype.is_int and row.rule in ("arith", "same", "bits", "shift"):
            return self.backend.narrow(text, let.dtype, self.render.type_of(let))
        return text

    def number(self, number: Let, let: Let) -> Text:
        text = number.expr.attrs[0]
        special = text in ("inf", "-inf", "nan")
        value = text if special else exact(text)
        if not let.dtype.is_float:  # type: ignore[union-attr]
            value = Fraction(host.to_dtype(float(value) if number.dtype == FLOAT else int(value), let.dtype))  # type: ignore[arg-type]
        return self.backend.literal(value, let.dtype, self.render.type_of(let))  # type: ignore[arg-type]

    gathers: dict[str, Gather] = {}
    forced: set[str] = set()  # lets that get a line in any case

    def result(self, s: Store) -> str:
        if s.result in self.equations and s.result not in self.told and not self.defs[s.ref].label:
            self.lines.append(f"{self.backend.comment} {self.equations[s.result]}")
        return self.text[s.ref].text


class _RowNames:
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
        ends = [o.name for r in phase.reductions for o in r.expr.operands] + [s.ref for s in phase.stores] + list(phase.gives)
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
            own = made if re.fullmatch(r"[A-Za-z_]\w*", made) else self.names.fresh(self.render.row_name(let))
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
        at = text[place[0].name].text if place else ""
        return Accumulator(name, let.expr.name, own, let.dtype, text[value.name].text, of, value.dtype, at)  # type: ignore[arg-type]


class _RowBody(_Body):
    def __init__(self, owner: _RowNames, lets: tuple[Let, ...], text: dict[str, Text], ends: list[str]):
        self.owner, self.gathers, self.forced = owner, owner.gathers, owner.costly
        super().__init__(owner.render, owner.names, lets, text, ends, {})

    def name(self, let: Let) -> str:
        """The same name for a value in every phase."""
        if let.name not in self.owner.lines:
            self.owner.temporaries += not let.label
            fresh = f"t{self.owner.temporaries - 1}"
            self.owner.lines[let.name] = self.names.user(let.label) if let.label else self.names.fresh(fresh)
        return self.owner.lines[let.name]


def enclosed(text: str) -> bool:
    """Whether a text is one call or cast, `name(...)` or `name<...>(...)`: its last bracket closes its first."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0:
            return k == len(text) - 1 and re.match(r"[\w.:{}]+(<[^>()]*>)?\(", text) is not None
    return False


def fill(spell: Spell, kind: str, operands: list[Text], types: dict[str, str]) -> Text:
    """A spelling with its operands in place, bracketed where they bind less tightly than it asks; `types` has what
    `{F}` and `{U}` stand for.

    Where a call takes an operand that is a bare literal, the operand's `typed` text stands for it.
    """
    pattern = spell.text(kind)
    infix = LOOSE if kind == "bool" and spell.bool else spell.infix
    if enclosed(pattern) or "{" not in pattern:
        infix = CALL
    bare = any(o.typed == "" for o in operands[".where(" in pattern :]) and (infix != CALL or ".where(" in pattern)

    def level(match: re.Match) -> int:
        before, after = pattern[: match.start()].rstrip()[-1:], pattern[match.end() :].lstrip()[:1]
        if (before in ("(", ",") or before == "=" and pattern[: match.start()].rstrip()[-2:-1] not in "=!<>") and after in (")", ","):
            return LOOSE
        if infix == CALL:
            return CALL
        if infix == UNARY:
            return CALL
        if infix == LOOSE:
            return LOOSE + 1
        return infix if not before else infix + 1

    def put(match: re.Match) -> str:
        if not match.group(1).isdigit():
            return types[match.group(1)]
        operand = operands[int(match.group(1))]
        return operand.typed if operand.typed and not bare else operand.fit(level(match))

    return Text(re.sub(r"\{(\w+)\}", put, pattern), infix)


def wrapped(head: str, items: list[str], tail: str, width: int = 120) -> str:
    """`head(items)tail`, on as many lines as it takes."""
    line = f"{head}({', '.join(items)}){tail}"
    if len(line) <= width:
        return line
    lines, indent = [f"{head}("], "    "
    for k, item in enumerate(items):
        piece = item + (", " if k + 1 < len(items) else "")
        if lines[-1] == f"{head}(" or len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append(indent)
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines) + f"){tail}"


def function_sources(folder: Path, code: str) -> dict[str, str]:
    """The sources of the helper functions that `code` calls, and of those that they call, each after what it needs."""
    known = {path.name.split(".")[0]: path for path in sorted((folder / "functions").glob("*"))}
    found: dict[str, str] = {}

    def visit(text: str) -> None:
        for name in re.findall(r"(?<![\w.:>])([A-Za-z_]\w*)(?=[(<])", text):
            if name in known and name not in found and name not in visiting:
                visiting.append(name)
                source = known[name].read_text()
                visit(source)
                found[name] = source

    visiting: list[str] = []
    visit(code)
    return found


def decimal(value: Fraction | str, single: bool) -> str:
    """The shortest decimal that rounds to the value in f64 (or in f32, for `single`)."""
    x = float(value)
    if single:
        x = single_precision(value)
        for digits in range(1, 10):
            if host.to_dtype(float(f"{x:.{digits}g}"), DTYPES["f32"]) == x:
                x = float(f"{x:.{digits}g}")
                break
    return repr(x)


def rounds_alike(value: Fraction) -> bool:
    """Whether rounding to f64 and then to f32 gives what rounding to f32 at once does."""
    return single_precision(value) == host.to_dtype(float(value), DTYPES["f32"])


def single_precision(value: Fraction | str) -> float:
    """A number rounded once to f32: infinity where it is too large."""
    x = float(value)
    if not isinstance(value, str) and Fraction(x) != value:  # no double lies between, so its neighbour on that side rounds as it does
        x = math.nextafter(x, math.inf if value > Fraction(x) else -math.inf)
    return float(host.to_dtype(x, DTYPES["f32"]))


def negative(text: str) -> Text:
    return Text(text, SUM if text.startswith("-") else CALL)


__all__ = [
    "BOOL",
    "FLOAT",
    "Accumulator",
    "Argument",
    "Backend",
    "Code",
    "Gather",
    "Given",
    "RowUnit",
    "Names",
    "Number",
    "Render",
    "Tensor",
    "Text",
    "Unit",
    "decimal",
    "enclosed",
    "fill",
    "negative",
    "resource",
    "rounds_alike",
    "single_precision",
]
