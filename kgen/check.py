"""Syntax tree to checked kernel: every user error of a spec ends here, with a span.

In: a `File`.  Out: a `Kernel`, whose values form a graph shared by structure: each has an operator, the values it
applies to, a dtype (dtype variables left open) and dims.  Helpers and the prelude are expanded, names are resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from kgen import syntax
from kgen.errors import Errors, KgenError, Span
from kgen.ops import CONSTANTS, OPS, REDUCTIONS, Op
from kgen.syntax import Apply, Equation, Expr, File, Header, Helper, Name, Num, Param
from kgen.types import (
    BOOL,
    DTYPES,
    ELLIPSIS,
    FLOAT,
    INT,
    Binding,
    Dims,
    Float,
    Number,
    ValueType,
    boolean,
    i64,
    is_bool,
    is_float,
    is_int,
    promote,
    show_type,
    union,
)

MAX_VALUES = 2_000
MAX_NESTED = 64
MAX_VARIABLES = 4
MAX_DIMS = 64
MAX_FLOAT = 2**1024 - 2**970
CALLS = ("min", "max")  # with square brackets a reduction, without an operator


@dataclass(frozen=True)
class Value:
    """One value of a kernel: `op` is a row of the table, a reduction, or one of param, lit, const, size, index, cast, pick."""

    op: str
    args: tuple[int, ...]
    attr: str | Dims
    type: ValueType
    dims: Dims
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Parameter:
    """A parameter: `dims` is None for a number (then `dtype` is "float" or "int"); `default` is its text."""

    name: str
    dtype: str
    dims: Dims | None
    default: str | None
    span: Span

    @property
    def is_tensor(self) -> bool:
        return self.dims is not None


@dataclass(frozen=True)
class ResultDecl:
    """A result; `state` names the parameter that a primed result writes."""

    name: str
    dtype: str
    dims: Dims
    state: str | None
    value: int
    span: Span


@dataclass(frozen=True)
class Kernel:
    """A checked kernel, generic in its dtype variables."""

    name: str
    doc: str
    file: File
    params: tuple[Parameter, ...]
    results: tuple[ResultDecl, ...]
    values: tuple[Value, ...]
    equations: tuple[tuple[str, int, str], ...]  # (name, value, text)

    @property
    def variables(self) -> tuple[str, ...]:
        """The dtype variables, in order of appearance."""
        return tuple(dict.fromkeys(p.dtype for p in self.params if p.is_tensor and p.dtype not in DTYPES))

    def bindings(self) -> list[Binding]:
        """Every choice of dtypes for the variables."""
        from itertools import product

        from kgen.types import VARIABLE

        return [dict(zip(self.variables, chosen, strict=True)) for chosen in product(VARIABLE, repeat=len(self.variables))]

    def signature(self) -> str:
        return syntax.format_header(next(s for s in self.file.statements if isinstance(s, Header)), width=100)


def check(file: File) -> Kernel:
    """The kernel of a file.  Raises `KgenError` with all independent errors, sorted by place."""
    return _Checker(file).kernel()


@lru_cache(maxsize=1)
def prelude() -> dict[str, Helper]:
    file = syntax.parse((Path(__file__).parent / "prelude.k").read_text(), "prelude.k")
    return {s.name.name: s for s in file.statements if isinstance(s, Helper)}


class _Checker:
    def __init__(self, file: File):
        self.file = file
        self.errors = Errors(file.source)
        self.later: dict[str, Equation] = {}  # the first equation of each name
        self.equation: Equation | None = None  # the one at hand
        self.values: list[Value] = []
        self.ids: dict[Value, int] = {}
        self.params: dict[str, Parameter] = {}
        self.dims: dict[str, Span] = {}
        self.names: dict[str, int | None] = {}
        self.used: set[str] = set()
        self.helpers: dict[str, Helper] = {}
        self.expanding: list[Helper] = []
        self.memo: dict[tuple, int | None] = {}
        self.variables: set[str] = set()
        self.outside: tuple[str, Span] | None = None  # the prelude function that the user called, and where: errors inside point there

    # ------------------------------------------------------------------ the file

    def kernel(self) -> Kernel:
        headers = [s for s in self.file.statements if isinstance(s, Header)]
        if not headers:
            first = next((s.name.span for s in self.file.statements), None)
            self.error(
                "there is no header above this" if first else "there is no kernel here",
                first,
                help="a kernel is a header, `name(x: T[...]) -> y: T[...]`, then its equations",
            )
            self.errors.raise_any()
        for extra in headers[1:]:
            self.error("a second header stands here", extra.name.span, help="one file holds one kernel")
        header = headers[0]
        for p in header.params:
            self.declare_param(p)
        for name in self.values_of_dims(header):
            if name.name not in self.dims and (name.name in self.params or name.name in self.variables):
                self.error(
                    f"`{name.name}` is both a dim and a {'parameter' if name.name in self.params else 'dtype'}",
                    name.span,
                    help="give one of them another name",
                )
            self.dims.setdefault(name.name, name.span)
        self.declare_helpers()
        results = self.declare_results(header)
        equations = [s for s in self.file.statements if isinstance(s, Equation)]
        defined: dict[str, Equation] = {}
        texts: list[tuple[str, int, str]] = []
        self.later = {e.name.name: e for e in reversed(equations)}
        for equation in equations:
            assigned = equation.name.name
            if not self.may_assign(equation.name, defined, results):
                self.evaluate(equation.body)
                self.names.setdefault(assigned, None)
                continue
            self.equation = equation
            value = self.evaluate(equation.body)
            defined[assigned] = equation
            self.names[assigned] = value
            if value is not None:
                texts.append((assigned, value, f"{assigned} = {syntax.format_expr(equation.body)}"))
        decls = [d for r in header.results if (d := self.finish_result(r, results, defined)) is not None]
        for assigned, equation in defined.items():
            if assigned not in results and assigned not in self.used:
                self.error(f"`{assigned}` is never used", equation.name.span, help="use it in a result, or remove it")
        self.check_params_used(header, decls)
        self.check_helpers()
        self.errors.raise_any()
        return Kernel(
            header.name.name, self.file.doc(), self.file, tuple(self.params.values()), tuple(decls), tuple(self.values), tuple(texts)
        )

    def error(self, message: str, span: Span | None, label: str = "", help: str = "") -> None:
        if self.outside is not None:
            message, span = f"in `{self.outside[0]}`: {message}", self.outside[1]
        self.errors.add(message, span, label, help)

    def values_of_dims(self, header: Header) -> Iterable[Name]:
        return (d for p in header.params for d in p.type.dims or () if d.name != ELLIPSIS)

    def declare_param(self, p: Param) -> None:
        name, t = p.name.name, p.type
        if name in self.params:
            self.error(f"parameter `{name}` is declared twice", p.name.span)
            return
        if name in CONSTANTS or name in DTYPES or name in ("float", "int"):
            self.error(f"`{name}` cannot name a parameter", p.name.span, help=f"it is {'a constant' if name in CONSTANTS else 'a type'}")
        dims = syntax.dim_names(t.dims) if t.dims is not None else None
        if dims is None:
            if t.dtype.name not in ("float", "int"):
                known = t.dtype.name in DTYPES or _is_variable(t.dtype.name)
                self.error(
                    f"`{t.dtype.name}` is not the type of a number",
                    t.dtype.span,
                    help=f"a tensor is `{t.dtype.name}[...]`, a 0-d tensor `{t.dtype.name}[]`, a number `float` or `int`"
                    if known
                    else "a number is `float` or `int`",
                )
        else:
            self.check_tensor_type(t)
            if p.default is not None:
                self.error("a tensor has no default", p.default_span, help="only numbers (`float`, `int`) have one")
        if dims is None and p.default is not None:
            self.check_default(p)
        if dims is not None and _is_variable(t.dtype.name):
            self.variables.add(t.dtype.name)
            if len(self.variables) > MAX_VARIABLES:
                self.error(f"a kernel may have at most {MAX_VARIABLES} dtype variables", t.dtype.span)
                self.variables.remove(t.dtype.name)
        self.params[name] = Parameter(name, t.dtype.name, dims, p.default, p.name.span)
        self.names[name] = self.make(
            "param",
            (),
            name,
            Number(t.dtype.name) if dims is None and t.dtype.name in ("float", "int") else FLOAT if dims is None else _stored(t.dtype.name),
            dims or (),
            p.name.span,
        )

    def check_tensor_type(self, t: syntax.Type) -> None:
        name = t.dtype.name
        if name not in DTYPES and not _is_variable(name):
            known = {
                "float": "f32",
                "int": "i64",
                "double": "f64",
                "half": "f16",
                "uint8": "u8",
                "int8": "i8",
                "float32": "f32",
                "bfloat16": "bf16",
                "float16": "f16",
            }
            self.error(
                f"`{name}` is not a dtype",
                t.dtype.span,
                help=f"write `{known[name]}`" if name in known else f"dtypes are {', '.join(DTYPES)}, or one capital letter for any float",
            )
        seen: set[str] = set()
        if len(t.dims or ()) > MAX_DIMS:
            self.error(f"a tensor may have at most {MAX_DIMS} dims", t.span)
        for k, d in enumerate((t.dims or ())[:MAX_DIMS]):
            if d.name == ELLIPSIS:
                if k:
                    self.error("`...` comes first", d.span, help="it stands for any number of leading dims")
            elif not d.name[0].isupper():
                self.error(f"the dim `{d.name}` does not begin with a capital letter", d.span, help=f"write `{d.name.capitalize()}`")
            if d.name in seen:
                self.error(f"dim {d.name} stands twice in one tensor", d.span, help="give the two dims two names")
            seen.add(d.name)

    def check_default(self, p: Param) -> None:
        text = p.default or ""
        value = text.lstrip("+-")
        if value[0].isalpha() and value not in CONSTANTS:
            self.error(f"the default of `{p.name.name}` is not a number", p.default_span)
        elif p.type.dtype.name == "int" and not value.isdigit() and value[:2].lower() != "0x":
            self.error(f"the default of the int `{p.name.name}` is not an integer", p.default_span)
        elif p.type.dtype.name == "int" and not -(2**63) <= int(text, 0 if "x" in text.lower() else 10) < 2**63:
            self.error("this number is too large for an i64", p.default_span)
        elif p.type.dtype.name == "float" and value[0] in ".0123456789" and value[:2].lower() != "0x" and _exact(value.lower()) > MAX_FLOAT:
            self.error("this number is too large for an f64", p.default_span, help="infinity is `inf`")

    def declare_helpers(self) -> None:
        for s in self.file.statements:
            if not isinstance(s, Helper):
                continue
            name = s.name.name
            if name in self.helpers:
                self.error(f"helper `{name}` is defined twice", s.name.span)
            elif name in OPS and name not in ("pos",) or name in REDUCTIONS or name in DTYPES or name in ("index", "pick"):
                self.error(f"`{name}` is built in and cannot be defined again", s.name.span, help="give the helper another name")
            seen: set[str] = set()
            for p in (*s.dims, *s.params):
                if p.name in seen:
                    self.error(f"`{p.name}` stands twice among the helper's arguments", p.span)
                seen.add(p.name)
            self.helpers[name] = s

    def check_helpers(self) -> None:
        """Names inside helpers that no equation called."""
        for name, helper in self.helpers.items():
            if name in self.used:
                continue
            known = {p.name for p in (*helper.params, *helper.dims)} | set(CONSTANTS)
            for node in syntax.postorder(helper.body):
                if isinstance(node, Name) and node.name not in known:
                    self.error(
                        f"`{node.name}` is not an argument of the helper `{name}`", node.span, help="a helper sees its own arguments only"
                    )
                elif isinstance(node, Apply) and node.written == "call" and not self.is_function(node.op):
                    self.unknown_function(node)

    def declare_results(self, header: Header) -> dict[str, syntax.Result]:
        results: dict[str, syntax.Result] = {}
        leading = {d for p in self.params.values() for d in p.dims or () if d == ELLIPSIS}
        for r in header.results:
            name = r.name.name
            if name in results:
                self.error(f"result `{name}` is declared twice", r.name.span)
                continue
            results[name] = r
            if r.type.dims is None:
                element = {"float": "f32", "int": "i64"}.get(r.type.dtype.name, r.type.dtype.name)
                self.error(f"result `{name}` is not a tensor", r.type.span, help=f"a 0-d tensor is `{element}[]`")
                continue
            self.check_tensor_type(r.type)
            if _is_variable(r.type.dtype.name) and r.type.dtype.name not in self.variables:
                self.error(
                    f"the dtype variable {r.type.dtype.name} is no parameter's",
                    r.type.dtype.span,
                    help="a result's dtype must be known from the parameters",
                )
            for d in r.type.dims:
                if d.name not in (leading if d.name == ELLIPSIS else self.dims):
                    self.error(
                        f"dim {d.name} of `{name}` is no parameter's", d.span, help="a result's sizes must be known from the parameters"
                    )
            if r.primed:
                self.check_state(r)
            elif name in self.params:
                self.error(f"`{name}` is a parameter already", r.name.span, help=f"the next state of a parameter is written `{name}'`")
        return results

    def check_state(self, r: syntax.Result) -> None:
        p = self.params.get(r.name.name[:-1])
        if p is None or not p.is_tensor:
            self.error(
                f"`{r.name.name}` is the next state of no tensor parameter", r.name.span, help=f"declare a parameter `{r.name.name[:-1]}`"
            )
        elif (p.dtype, p.dims) != (r.type.dtype.name, syntax.dim_names(r.type.dims)):
            self.error(
                f"`{r.name.name}` is written in place, so its type is that of `{p.name}`",
                r.type.span,
                help=f"write `{show_type(p.dtype, p.dims or ())}`",
            )

    def may_assign(self, name: Name, defined: dict[str, Equation], results: dict[str, syntax.Result]) -> bool:
        text = name.name
        if text in defined:
            row = self.file.source.place(defined[text].span.start)[0]
            self.error(f"`{text}` is assigned twice", name.span, help=f"it has a value since line {row}; choose another name")
        elif text in self.params and text in results:
            pass  # an error already
        elif text in self.params:
            self.error(f"`{text}` is a parameter and cannot be assigned", name.span, help=f"its next state is written `{text}'`")
        elif text.endswith("'") and text not in results:
            self.error(f"`{text}` is not among the results", name.span, help=f"add it behind `->`, as `{text}: type`")
        elif text in CONSTANTS or text in self.dims or text in DTYPES:
            what = "a constant" if text in CONSTANTS else "a dim" if text in self.dims else "a dtype"
            self.error(f"`{text}` is {what} and cannot be assigned", name.span)
        else:
            return True
        return False

    def finish_result(self, r: syntax.Result, results: dict[str, syntax.Result], defined: dict[str, Equation]) -> ResultDecl | None:
        name = r.name.name
        if name in self.params:
            return None
        if name not in defined:
            self.error(f"result `{name}` has no equation", r.name.span, help=f"add `{name} = ...`")
            return None
        value = self.names[name]
        if value is None or r.type.dims is None or results.get(name) is not r:
            return None
        v, dims, span = self.values[value], syntax.dim_names(r.type.dims), defined[name].body.span
        for d in v.dims:
            if d not in dims:
                leaf = self.leaf_with(value, d)
                what = f"`{leaf.attr}`" if leaf.op == "param" else "this value"
                where = leaf.span if leaf.op != "param" else self.use_of(defined[name], str(leaf.attr)) or span
                self.error(
                    f"{what} has dim {d}, which `{name}` does not",
                    where,
                    label=show_type(_shown(leaf), leaf.dims),
                    help=f"add {d} to `{name}: {show_type(r.type.dtype.name, dims)}`, or reduce over {d}",
                )
                return None
        stored = r.type.dtype.name
        if stored not in DTYPES and not _is_variable(stored):
            return None
        t = v.type
        if not _storable(t, _stored(stored)):
            was = t if isinstance(t, Number) else _shown(v)
            self.error(f"`{name}` is {stored} but its value is {was}", span, help=f"write `{stored}(...)` around it")
            return None
        return ResultDecl(name, stored, dims, name[:-1] if r.primed else None, value, r.name.span)

    def leaf_with(self, value: int, dim: str) -> Value:
        v = self.values[value]
        while v.args and (found := next((a for a in v.args if dim in self.values[a].dims), None)) is not None:
            v = self.values[found]
        return v

    def use_of(self, equation: Equation, name: str) -> Span | None:
        """Where an equation, or an equation above it, mentions a name: the last mention is nearest to the error."""
        for e in (equation, *(s for s in self.file.statements if isinstance(s, Equation))):
            for node in syntax.postorder(e.body):
                if isinstance(node, Name) and node.name == name:
                    return node.span
        return None

    def check_params_used(self, header: Header, decls: list[ResultDecl]) -> None:
        if len(decls) != len(header.results):
            return  # an error already; what follows from it is not the writer's concern
        sized = {str(v.attr) for v in self.values if v.op in ("size", "index")} | {d for r in decls for d in r.dims}
        first_with: dict[str, str] = {}
        states = {r.state for r in decls}
        reached = self.reach([r.value for r in decls])
        used = {str(v.attr) for i, v in enumerate(self.values) if v.op == "param" and i in reached}
        for p in self.params.values():
            if p.name in used:
                for d in p.dims or ():
                    first_with.setdefault(d, p.name)
        for p in self.params.values():
            if p.name in used or p.name in states:
                continue
            if any(d in sized and d not in first_with for d in p.dims or ()):
                for d in p.dims or ():
                    first_with.setdefault(d, p.name)
            else:
                self.error(f"parameter `{p.name}` is never used", p.span, help="use it, or remove it from the header")

    def reach(self, roots: list[int]) -> set[int]:
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            v = stack.pop()
            if v not in seen:
                seen.add(v)
                stack.extend(self.values[v].args)
        return seen

    # ------------------------------------------------------------------ expressions

    def make(self, op: str, args: tuple[int, ...], attr: str | Dims, t: ValueType, dims: Dims, span: Span) -> int:
        value = Value(op, args, attr, t, dims, self.outside[1] if self.outside else span)
        if value not in self.ids:
            if len(self.values) >= MAX_VALUES:
                self.error(f"the kernel has more than {MAX_VALUES:,} operations", span, help="split it into several kernels")
                self.errors.raise_any()
            self.ids[value] = len(self.values)
            self.values.append(value)
        return self.ids[value]

    def evaluate(self, root: Expr, env: dict[str, int | None] | None = None, dims: dict[str, Dims] | None = None) -> int | None:
        """The value of an expression; None (after an error) poisons what it enters, so that each mistake is told once.

        `env` and `dims` are a helper's arguments; without them names are the kernel's own.
        """
        done: dict[int, int | None] = {}
        for node in syntax.postorder(root):
            if isinstance(node, Num):
                done[id(node)] = self.number(node)
            elif isinstance(node, Name):
                done[id(node)] = self.lookup(node, env, dims)
            else:
                done[id(node)] = self.apply(node, [done[id(a)] for a in node.args], dims, env is not None)
        return done[id(root)]

    def number(self, node: Num) -> int | None:
        text = node.text.lower()
        integer = text.startswith("0x") or text.isdigit()
        if integer and int(text, 16 if text.startswith("0x") else 10) >= 2**63:
            self.error("this number is too large for an i64", node.span, help="write it with a decimal point to make it a float")
            return None
        if not integer and _exact(text) > MAX_FLOAT:
            self.error("this number is too large for an f64", node.span, help="infinity is `inf`")
            return None
        return self.make("lit", (), str(int(text, 16)) if text.startswith("0x") else text, INT if integer else FLOAT, (), node.span)

    def lookup(self, node: Name, env: dict[str, int | None] | None, dims: dict[str, Dims] | None) -> int | None:
        name = node.name
        if env is not None:
            if name in env:
                return env[name]
            if dims is not None and name in dims:
                return self.size(dims[name], node.span)
        elif name in self.names:
            self.used.add(name)
            return self.names[name]
        elif name in self.dims:
            return self.size((name,), node.span)
        if name in CONSTANTS:
            return self.make("const", (), name, FLOAT, (), node.span)
        self.unknown_name(node, env)
        return None

    def size(self, dims: Dims, span: Span) -> int:
        value = self.make("size", (), dims[0], INT, (), span)
        for d in dims[1:]:
            value = self.make("mul", (value, self.make("size", (), d, INT, (), span)), "", INT, (), span)
        return value

    def unknown_name(self, node: Name, env: dict[str, int | None] | None) -> None:
        name = node.name
        if env is not None:
            self.error(f"`{name}` is not an argument of this helper", node.span, help="a helper sees its own arguments only")
        elif name in self.later and self.later[name] is not self.equation:
            row = self.file.source.place(self.later[name].span.start)[0]
            if name not in self.used:
                self.error(f"`{name}` is used before its equation", node.span, help=f"move line {row} up")
            self.used.add(name)
        elif self.is_function(name):
            self.error(f"`{name}` is a function", node.span, help=f"call it: `{name}(...)`")
        elif self.later.get(name) is self.equation:
            self.error(
                f"`{name}` stands in its own equation", node.span, help="a name has one value: give the value used here another name"
            )
        elif name in ("True", "False"):
            self.error(f"`{name}` is not defined", node.span, help="bools come from comparisons, as in `1 > 0`")
        else:
            found = _closest(name, [*self.names, *self.dims, *CONSTANTS])
            self.used.add(found)
            self.error(f"`{name}` is not defined", node.span, help=_did_you_mean(found))

    def is_function(self, name: str) -> bool:
        return (
            name in OPS
            or name in REDUCTIONS
            or name in self.helpers
            or name in prelude()
            or name in DTYPES
            or name in self.variables
            or name in ("pick",)
        )

    def unknown_function(self, node: Apply) -> None:
        known = [n for n in (*OPS, *REDUCTIONS, *self.helpers, *prelude(), *DTYPES, "pick")]
        alias = {
            "float": "f32(x)",
            "int": "i64(x)",
            "maximum": "max(a, b)",
            "minimum": "min(a, b)",
            "square": "x^2",
            "abs_": "abs(x)",
            "ln": "log(x)",
        }
        self.error(
            f"there is no function `{node.op}`",
            node.head,
            help=f"write `{alias[node.op]}`" if node.op in alias else _did_you_mean(_closest(node.op, known)),
        )

    def apply(self, node: Apply, args: list[int | None], env_dims: dict[str, Dims] | None, in_helper: bool) -> int | None:
        op = node.op
        if op == "index" and not node.args:
            return self.index(node, env_dims)
        dims = self.dims_of(node, env_dims)
        if node.dims is not None and dims is None:
            return None
        if node.dims is not None and not node.args and op in self.names:
            names = ", ".join(d.name for d in node.dims)
            self.error(
                f"`{op}` cannot be indexed",
                node.span,
                help=f"write `{op}` alone; its element at t along {names} is `pick[{names}]({op}, t)`",
            )
            return None
        if op == "index":
            self.error("`index[N]` takes no operand", node.head, help="it is the element's position along N")
            return None
        if node.dims is not None and not node.args:
            self.error(f"`{op}[...]` lacks its operand", node.span, help=f"write `{op}[{', '.join(d.name for d in node.dims)}](x)`")
            return None
        if node.written == "call" and op in self.helpers or (op in prelude() and op not in OPS):
            return self.call_helper(node, args, dims)
        if node.written == "call" and (op in DTYPES or op in self.variables):
            return self.cast(node, args)
        if op in ("pick", *REDUCTIONS) and (dims is not None or op not in CALLS):
            return self.reduce(node, args, dims)
        if op not in OPS or node.written == "call" and op == "pos":
            self.unknown_function(node)
            return None
        if dims is not None:
            self.error(f"`{op}` takes no dims", node.head, help=f"write `{op}(...)`")
            return None
        row = OPS[op]
        if op in CALLS and len(args) > 2:  # max(a, b, c) is max(max(a, b), c)
            value = args[0]
            for other in args[1:]:
                value = None if value is None or other is None else self.operate(row, node, [value, other])
            return value
        if len(args) != row.arity:
            self.wrong_count(
                node, op, row.args, "over a dim it is `max[N](x)`" if op == "max" else "over a dim it is `min[N](x)`" if op == "min" else ""
            )
            return None
        return None if None in args else self.operate(row, node, [a for a in args if a is not None])

    def wrong_count(self, node: Apply, op: str, wanted: tuple[str, ...], help: str = "") -> None:
        plural = "argument" if len(wanted) == 1 else "arguments"
        dims = f"[{', '.join(d.name for d in node.dims)}]" if node.dims else ""
        self.error(
            f"`{op}` takes {len(wanted)} {plural}, not {len(node.args)}", node.head, help=help or f"write `{op}{dims}({', '.join(wanted)})`"
        )

    def dims_of(self, node: Apply, env: dict[str, Dims] | None) -> Dims | None:
        """The dims in a call's square brackets, a helper's own ones replaced; None without brackets or after an error."""
        if node.dims is None:
            return None
        names: list[str] = []
        for d in node.dims:
            if env is not None and d.name in env:
                names.extend(env[d.name])
            elif d.name == ELLIPSIS or d.name in self.dims:
                names.append(d.name)
            else:
                self.error(
                    f"there is no dim {d.name}",
                    d.span,
                    help=_did_you_mean(_closest(d.name, list(self.dims))) or "dims are those of the parameters",
                )
                return None
        if len(set(names)) != len(names):
            self.error("a dim stands twice here", node.head)
            return None
        return tuple(names)

    def index(self, node: Apply, env: dict[str, Dims] | None) -> int | None:
        dims = self.dims_of(node, env)
        if dims is None:
            if node.dims is None:
                self.error("`index` takes one dim", node.head, help="write `index[N]`")
            return None
        if len(dims) != 1 or dims[0] == ELLIPSIS:
            self.error("`index` takes one named dim", node.span)
            return None
        return self.make("index", (), dims[0], i64, dims, node.span)

    def call_helper(self, node: Apply, args: list[int | None], dims: Dims | None) -> int | None:
        name = node.op
        own = name in self.helpers and self.outside is None  # the prelude's functions see the prelude alone
        helper = self.helpers[name] if own else prelude()[name]
        if own:
            self.used.add(name)
        if helper in self.expanding:
            self.error(f"helper `{name}` calls itself", node.head, help="a kernel has no recursion")
            return None
        if len(self.expanding) >= MAX_NESTED:
            self.error(f"helpers call one another more than {MAX_NESTED} deep", node.head, help="give a part of it a name in an equation")
            self.errors.raise_any()
        if len(args) != len(helper.params):
            self.wrong_count(node, name, tuple(p.name for p in helper.params))
            return None
        if (dims is None) != (not helper.dims):
            seen = self.values[args[0]].dims if args and args[0] is not None else ()
            sample = seen[-1] if seen and len(helper.dims) == 1 else ", ".join(d.name for d in helper.dims)
            self.error(
                f"`{name}` takes {'dims' if helper.dims else 'no dims'}",
                node.head,
                help=f"write `{name}{f'[{sample}]' if sample else ''}(...)`",
            )
            return None
        if dims is not None and len(helper.dims) not in (1, len(dims)):
            self.error(f"`{name}` takes {len(helper.dims)} dims, not {len(dims)}", node.head)
            return None
        if None in args:
            return None
        key = (helper, tuple(args), dims)
        if key not in self.memo:
            names: dict[str, Dims] = {}
            if dims is not None:  # a single dim argument stands for all the dims given
                names = (
                    {helper.dims[0].name: dims} if len(helper.dims) == 1 else {d.name: (x,) for d, x in zip(helper.dims, dims, strict=True)}
                )
            outside, self.outside = self.outside, self.outside or (None if own else (name, node.span))
            self.expanding.append(helper)
            self.memo[key] = self.evaluate(helper.body, dict(zip((p.name for p in helper.params), args, strict=True)), names)
            self.expanding.pop()
            self.outside = outside
        return self.memo[key]

    def cast(self, node: Apply, args: list[int | None]) -> int | None:
        if len(args) != 1:
            self.wrong_count(node, node.op, ("x",))
            return None
        if args[0] is None:
            return None
        v = self.values[args[0]]
        return self.make("cast", (args[0],), node.op, _stored(node.op), v.dims, node.span)

    def reduce(self, node: Apply, args: list[int | None], dims: Dims | None) -> int | None:
        op = node.op
        wanted = ("x", "t") if op == "pick" else ("x",)
        if dims is None:
            self.error(f"`{op}` reduces over dims", node.head, help=f"write `{op}[N]({', '.join(wanted)})`")
            return None
        if len(args) != len(wanted):
            self.wrong_count(node, op, wanted)
            return None
        if None in args:
            return None
        x = self.values[args[0]]  # type: ignore[index]
        for d in dims:
            if d not in x.dims:
                shown = node.args[0]
                what = f"`{shown.name}`" if isinstance(shown, Name) else "its operand"
                self.error(f"`{op}` reduces over {d}, which {what} does not have", node.head, label=show_type(_shown(x), x.dims))
                return None
        rest = tuple(d for d in x.dims if d not in dims)
        if op == "pick":
            t = self.values[args[1]]  # type: ignore[index]
            if not is_int(t.type) or isinstance(t.type, Number) or dims[0] in t.dims or len(dims) != 1:
                self.error(
                    f"`pick` needs an integer tensor without dim {dims[0]} for its second argument",
                    node.head,
                    label=show_type(_shown(t), t.dims),
                )
                return None
            return self.make("pick", (args[0], args[1]), dims, x.type, union(rest, t.dims), node.span)  # type: ignore[arg-type]
        rule = REDUCTIONS[op].rule
        if rule == "float" and not is_float(x.type):
            self.error(f"`{op}` needs a float, its operand is {_shown(x)}", node.head, help=f"write `{op}[{', '.join(dims)}](f32(...))`")
            return None
        if rule in ("index",) and is_bool(x.type):
            self.error(f"`{op}` of a bool", node.head, help="cast it, as in `u8(x)`")
            return None
        kinds: dict[str, ValueType] = {"bool": boolean, "index": i64}
        reduced = kinds.get(rule, i64 if rule == "sum" and not is_float(x.type) else x.type)
        return self.make(op, (args[0],), dims, reduced, rest, node.span)  # type: ignore[arg-type]

    def operate(self, row: Op, node: Apply, args: list[int]) -> int | None:
        values = [self.values[a] for a in args]
        if row.name in ("div", "floordiv", "mod") and values[1].op == "lit" and _exact(str(values[1].attr)) == 0:
            self.error(
                "this divides by zero",
                node.args[-1].span if self.outside is None else node.span,
                help="infinity is `inf`" if row.name == "div" else "",
            )
            return None
        t = self.result_type(row, node, values)
        return None if t is None else self.make(row.name, tuple(args), "", t, union(*(v.dims for v in values)), node.span)

    def result_type(self, row: Op, node: Apply, values: list[Value]) -> ValueType | None:
        kinds = [(v.type, bool(v.dims)) for v in values]
        shown = (
            node.op
            if node.written == "call"
            else next(s for s, (o, _) in (*syntax.INFIX.items(), *syntax.PREFIX.items(), ("if", ("where", 0))) if o == row.name)
        )
        numbers = all(isinstance(t, Number) for t, _ in kinds)
        if row.rule == "where":
            if not is_bool(values[0].type):
                self.error(
                    f"the condition is {_shown(values[0])}, not a bool",
                    node.args[0].span if node.args else node.span,
                    help="compare it, as in `c != 0`",
                )
                return None
            t = promote(kinds[1:])
            if isinstance(t, Number) and not isinstance(
                values[0].type, Number
            ):  # numbers chosen element by element, as torch.where types them
                return {"bool": boolean, "int": i64}.get(t.kind, Float(frozenset({"f32"})))
            return t
        if row.rule == "logical":
            for v, arg in zip(values, node.args, strict=False):
                if not is_bool(v.type):
                    self.error(f"`{shown}` needs bools, this is {_shown(v)}", arg.span, help="compare it, as in `x != 0`")
                    return None
            return BOOL if numbers else boolean
        t = promote(kinds)
        if not row.bools and is_bool(t) and row.rule in ("arith", "same", "float"):
            self.error(
                f"`{shown}` of a bool",
                node.head,
                help="use `not`, `!=`, or cast it, as in `f32(x)`" if shown == "-" else "cast it, as in `f32(x)`",
            )
            return None
        if row.rule in ("bits", "shift") and (is_float(t) or row.rule == "shift" and is_bool(t)):
            self.error(f"`{shown}` needs integers, not {_shown_type(t)}", node.head, help="cast it, as in `i32(x)`")
            return None
        if row.rule in ("compare", "test"):
            return BOOL if numbers else boolean
        if row.rule == "float" and not is_float(t):
            return FLOAT if numbers else Float(frozenset({"f32"}))
        return t


def _exact(text: str):
    """A literal's exact value (caps on digits and exponents have held before)."""
    from fractions import Fraction

    return Fraction(text.rstrip(".") if text.endswith(".") else text.replace(".e", "e"))


def _is_variable(name: str) -> bool:
    return len(name) == 1 and name.isupper()


def _stored(name: str) -> ValueType:
    return DTYPES[name] if name in DTYPES and not DTYPES[name].is_float else Float(frozenset({name}))


def _storable(t: ValueType, stored: ValueType) -> bool:
    """Whether a value may be stored without a cast: float to float rounds; integers and bools only where nothing is lost."""
    if is_float(stored):
        return is_float(t) or t == INT
    if is_float(t):
        return False
    if isinstance(t, Number):
        return is_bool(t) == is_bool(stored)
    return t == stored or (is_int(t) and is_int(stored) and promote([(t, True), (stored, True)]) == stored)


def _shown(v: Value) -> str:
    return _shown_type(v.type)


def _shown_type(t: ValueType) -> str:
    return str(t)


def _closest(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    found = get_close_matches(name, known[:200], n=1, cutoff=0.6)
    return found[0] if found else ""


def _did_you_mean(name: str) -> str:
    return f"did you mean `{name}`?" if name else ""


__all__ = ["Kernel", "KgenError", "Parameter", "ResultDecl", "Value", "check", "prelude"]
