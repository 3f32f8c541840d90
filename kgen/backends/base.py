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
from kgen.ir import Let, Program, Store, exact
from kgen.lower import lower
from kgen.ops import CALL, LOOSE, OPS, SUM, UNARY, Spell
from kgen.rewrite import rewrite
from kgen.schedule import Map, schedule
from kgen.types import BOOL, DTYPES, ELLIPSIS, FLOAT, VARIABLE, Dims, DType, Number

MAX_INLINE = 72
#: Endings that templates put behind a tensor's name.
SUFFIXES = ("_stride", "_tile", "_buffer", "_place", "_next", "_ptr", "_at", "_view", "_i", "_k", "_element", "_kernel", "_block", "_run")


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


@dataclass
class Names:
    """Names that are free in the target: the writer's own where they can be kept, a `_` behind them where not."""

    taken: set[str]
    given: dict[str, str] = field(default_factory=dict)
    macros: re.Pattern[str] | None = None  # names of these forms are not free either

    def user(self, name: str) -> str:
        """The name for one of the writer's; names that end as the templates end theirs (`x_stride`) get a `_` too."""
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

    def extend(self, render: Render, units: list[Unit], context: dict[str, Any]) -> None:
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
def _spelled(target: str) -> frozenset[str]:
    """Every identifier in the target's spellings."""
    found: set[str] = set()
    for op in OPS.values():
        s = op.spell(target)
        found.update(re.findall(r"[A-Za-z_]\w*", f"{s.float} {s.int} {s.bool}"))
    return frozenset(found)


class Render:
    """One kernel for one target."""

    def __init__(self, backend: Backend, kernel: Kernel):
        self.backend, self.kernel = backend, kernel
        bindings = kernel.bindings()
        self.program = rewrite(lower(kernel, bindings[0]))
        self.passes = schedule(self.program, kernel.file.source)
        self.global_names = Names(set(backend.reserved), macros=backend.macros)
        self.variables = {v: self.global_names.fresh(v) for v in kernel.variables}
        self.kernel_name = self.global_names.fresh(kernel.name)
        self.generics = self._generics()
        for name in (*(p.name for p in kernel.params), *(r.name for r in kernel.results)):
            self.global_names.user(name)  # before the names that kgen makes: those give way

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

    def storage(self, dtype: str) -> str:
        return self.variables.get(dtype) or self.backend.types[dtype]

    def source(self) -> str:
        units = [self.unit(p, k) for k, p in enumerate(self.passes)]
        context = self.context(units)
        self.backend.extend(self, units, context)
        text = self.backend.environment().get_template(f"map.{self.backend.suffix.lstrip('.')}.jinja").render(context)
        return re.sub(r"\n{4,}", "\n\n\n", re.sub(r"[ \t]+\n", "\n", text)).rstrip("\n") + "\n"

    def context(self, units: list[Unit]) -> dict[str, Any]:
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

    def unit(self, p: Map, k: int) -> Unit:
        name = (
            self.kernel_name
            if len(self.passes) == 1
            else self.global_names.fresh(f"{self.kernel_name}_{p.stores[0].result.rstrip(chr(39))}")
        )
        element = self.global_names.fresh(f"{name}_element")
        self.global_names.fresh(f"{name}_kernel")
        params = {q.name: q for q in self.kernel.params}
        values = {let.expr.attrs[0]: let for let in p.lets if let.expr.name in ("load", "index")}
        inputs = tuple(
            Tensor(
                self.global_names.user(t.name),
                t.name,
                self.storage(params[t.name].dtype),
                self.type_of(values[t.name]),
                t.dims,
                params[t.name].dtype,
                any(s.state == t.name for s in p.stores),
            )
            for t in p.loads
        )
        indices = tuple(
            Tensor(self.global_names.fresh(f"index_{d}"), d, self.backend.types["i64"], self.backend.types["i64"], (d,), "i64")
            for d in p.indices
        )
        scalars = self.scalars(p)
        body = _Body(
            self, p, {t.spec_name: t.name for t in inputs}, {t.spec_name: t.name for t in indices}, {s.spec_name: s.name for s in scalars}
        )
        results = {r.name: r for r in self.kernel.results}
        outputs = tuple(
            Tensor(
                self.global_names.user(s.result),
                s.state or s.result,
                self.storage(results[s.result].dtype),
                self.type_of(body.defs[s.ref]),
                s.dims,
                results[s.result].dtype,
                s.state is not None,
                body.result(s),
            )
            for s in p.stores
        )
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
        sizes = dict.fromkeys(let.expr.attrs[0] for let in self.program.lets if let.expr.name == "size")
        return numbers + [Argument(self.number_name(d), d, types["int"], "size") for d in sizes]

    def bindings(self, variables: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], ...]:
        """Every choice of dtypes for some of the variables, as named in the source."""
        return tuple(tuple(zip(variables, (d.name for d in chosen), strict=True)) for chosen in product(VARIABLE, repeat=len(variables)))

    def scalars(self, p: Map) -> tuple[Argument, ...]:
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
    """The lines of an element function."""

    def __init__(self, render: Render, p: Map, loads: dict[str, str], indices: dict[str, str], scalars: dict[str, str]):
        # several results are references, already declared
        outputs = {s.result: render.global_names.user(s.result) for s in p.stores} if len(p.stores) > 1 else {}
        self.render, self.backend = render, render.backend
        self.defs = {let.name: let for let in render.program.lets}
        self.names = Names(set(render.global_names.taken), dict(render.global_names.given), render.backend.macros)
        self.lines: list[str] = []
        self.text: dict[str, Text] = {}
        self.equations = {name: text for name, _, text in render.kernel.equations}
        uses = Counter(o.name for let in p.lets for o in let.expr.operands)
        uses.update(s.ref for s in p.stores)
        told: set[str] = set()
        temporaries = 0
        ahead = [let.label for let in p.lets]
        for k, let in enumerate(p.lets):
            if let.expr.name in ("load", "index"):
                self.text[let.name] = Text((loads if let.expr.name == "load" else indices)[let.expr.attrs[0]])
                continue
            if let.name in scalars:
                self.text[let.name] = Text(scalars[let.name])
                continue
            text = self.expression(let)
            plain = re.fullmatch(r"[\w.]+|\w+\([\w.]+\)", text.text) and let.expr.name == "cast"
            if not let.label and (plain or (uses[let.name] < 2 and len(text.text) <= MAX_INLINE)):
                self.text[let.name] = text
                continue
            label = next((a for a in ahead[k:] if a), "")
            if label and label not in told:
                told.add(label)
                self.lines.append(f"{self.backend.comment} {self.equations[label]}")
            if let.label:
                name = self.names.user(let.label)
            else:
                name = self.names.fresh(f"t{temporaries}")
                temporaries += 1
            declared = outputs.get(let.label, "") == name
            self.lines.append(self.backend.assign("" if declared else render.type_of(let), name, text.text))
            self.text[let.name] = Text(name)
        self.told = told

    def expression(self, let: Let) -> Text:
        operands = [self.defs[o.name] for o in let.expr.operands]
        if let.expr.name == "cast":
            x = operands[0]
            if x.is_number:
                return self.number(x, let)
            return self.backend.cast(self.text[x.name], x.dtype, let.dtype, self.render.type_of(let))  # type: ignore[arg-type]
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

    def result(self, s: Store) -> str:
        if s.result in self.equations and s.result not in self.told and not self.defs[s.ref].label:
            self.lines.append(f"{self.backend.comment} {self.equations[s.result]}")
        return self.text[s.ref].text


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
    "Argument",
    "Backend",
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
