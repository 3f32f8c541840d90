"""Syntax tree to checked kernel: every user error of a spec ends here, with a span.

In: a `File`.  Out: a `Kernel`, whose values form a graph shared by structure: each has an operator, the values it
applies to, a dtype (dtype variables left open) and dims.  Helpers and the prelude are expanded, names are resolved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from kgen import advice, packed, sized, syntax, typeset
from kgen import optional as options
from kgen.clauses import LITERAL, Sizes
from kgen.errors import KgenError, Span
from kgen.expressions import prelude
from kgen.ops import CONSTANTS, OPS, REDUCTIONS, SCANS
from kgen.optional import Fallback
from kgen.syntax import Apply, Clause, Equation, File, Header, Helper, Name, Num, Param
from kgen.types import (
    DTYPES,
    ELLIPSIS,
    FEW,
    FLOAT,
    INT,
    WRITTEN,
    Binding,
    Dims,
    Number,
    boolean,
    i64,
    is_literal,
    is_variable,
    is_wide,
    literal_size,
    show_type,
    union,
    variable_of,
)
from kgen.values import Parameter, Value, cast_to, describe, needs_parameter, reached, storable, stored_type

MAX_VARIABLES = 4
MAX_DIMS = 64


@dataclass(frozen=True)
class ResultDecl:
    """A result; `state` names the parameter that a primed result writes."""

    name: str
    dtype: str
    dims: Dims
    state: str | None
    value: int
    span: Span
    factors: tuple[int, ...] = ()


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
    parts: tuple[tuple[str, str, tuple], ...] = ()  # tensors that are parts of others: the name, of which, and which part
    clauses: tuple[Clause, ...] = ()  # what the header says of sizes
    turned: frozenset[str] = frozenset()  # those of `parts` whose neighbours lie in turns with another part's
    called: str = field(default="", compare=False)  # the signature that calls see, where this is the kernel of those that leave tensors out
    compared: bool = field(default=False, compare=False)  # its passes compare each row's own keys one by one (`segments.py`)

    @property
    def variables(self) -> tuple[str, ...]:
        """The dtype variables, in order of appearance; a parameter of dtype `T32` declares none."""
        return tuple(dict.fromkeys(p.dtype for p in self.params if p.is_tensor and is_variable(p.dtype)))

    @property
    def wide(self) -> tuple[str, ...]:
        """The wide dtypes (`T32`) of its parameters and results."""
        stored = (*(p.dtype for p in self.params), *(r.dtype for r in self.results))
        return tuple(dict.fromkeys(dtype for dtype in stored if is_wide(dtype)))

    @property
    def reduces(self) -> bool:
        """Whether it has a reduction (`sum[N](x)`) anywhere."""
        return any(v.op in REDUCTIONS and v.attr for v in self.values)

    @property
    def joined(self) -> bool:
        """Whether a tensor has an axis that the header splits into several dims."""
        return any(p.factors for p in self.params) or any(r.factors for r in self.results)

    @property
    def literals(self) -> dict[str, int]:
        """The sizes of the dims that are literals."""
        every = [*(p.dims or () for p in self.params), *(r.dims for r in self.results)]
        every += [(str(v.attr),) for v in self.values if v.op == "index"]
        return {d: literal_size(d) for dims in every for d in dims if is_literal(d)}

    def apart(self, a: str, b: str) -> bool:
        """Whether two tensors are different parts of one, which share no element wherever that lies."""
        at = {name: (of.rstrip("'"), where) for name, of, where in self.parts}
        return a in at and b in at and at[a][0] == at[b][0] and at[a] != at[b]

    def bindings(self) -> list[Binding]:
        """Every choice of dtypes for the variables."""
        from kgen.types import VARIABLE

        return [dict(zip(self.variables, chosen, strict=True)) for chosen in product(VARIABLE, repeat=len(self.variables))]

    @property
    def optional(self) -> tuple[str, ...]:
        """The tensors that a call may leave out."""
        return tuple(p.name for p in self.params if p.optional)

    def signature(self, optional: bool = True) -> str:
        """The header; `optional`: with what stands for tensors that a call may leave out."""
        file = self.file if optional else options.required(self.file)
        header = self.file.header if optional and self.file.header else next(s for s in file.statements if isinstance(s, Header))
        return typeset.format_header(header, width=100)


def check(file: File) -> Kernel:
    """The kernel of a file.  Raises `KgenError` with all independent errors, sorted by place; of a kernel with optional tensors also
    those of calls without any of them."""
    kernel = _Checker(file).kernel()
    if kernel.optional:
        left_out(kernel, kernel.optional)
    return kernel


def left_out(kernel: Kernel, names: Iterable[str]) -> Kernel:
    """The kernel of calls that leave these tensors out: what stands for each is in the formula.  Raises `KgenError` where one is not
    optional, or where what stands for it does not fit the formula."""
    wanted = tuple(names)
    absent = tuple(p.name for p in kernel.params if p.name in wanted)
    for name in wanted:
        if name not in kernel.optional:
            p = next((p for p in kernel.params if p.name == name), None)
            what = "is no parameter" if p is None else "has no default" if p.is_tensor else "is a number, and no tensor"
            raise KgenError(f"{kernel.name}: {name} {what}: it cannot be left out", help=kernel.signature())
    if not absent:
        return kernel
    try:
        made = _Checker(options.without(kernel.file, absent, options.spread(kernel.values, kernel.params, absent))).kernel()
        return replace(made, called=kernel.called or kernel.signature())
    except KgenError as error:
        shown = " and ".join(f"`{name}`" for name in absent)
        said = f"where {shown} {'is' if len(absent) == 1 else 'are'} left out: "
        raise KgenError([replace(d, message=said + d.message) for d in error.diagnostics], error.source) from None


def plain(kernel: Kernel) -> Kernel:
    """The kernel of the same equations whose tensors have an axis for each dim: the kernel itself, where they have."""
    if not kernel.joined:
        return kernel
    file = kernel.file

    def whole(declared: Any) -> Any:
        return replace(declared, type=replace(declared.type, factors=()))

    def statement(s: syntax.Statement) -> syntax.Statement:
        if not isinstance(s, syntax.Header):
            return s
        return replace(s, params=tuple(map(whole, s.params)), results=tuple(map(whole, s.results)))

    text = typeset.format_file(replace(file, statements=tuple(map(statement, file.statements))))
    return check(syntax.parse(text, file.source.name))


class _Checker(Sizes):
    def __init__(self, file: File):
        super().__init__(sized.named(packed.unpacked(file)))

    def kernel(self) -> Kernel:
        """The checked kernel of the file.  Raises `KgenError` with all independent errors."""
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
        for t in (*(p.type for p in header.params), *(r.type for r in header.results)):
            if t.dims is not None and is_wide(t.dtype.name) and not self.is_dtype(t.dtype.name):
                message = f"there is no dtype variable {variable_of(t.dtype.name)}"
                self.error(message, t.dtype.span, help=needs_parameter(t.dtype.name))
        for name in self.values_of_dims(header):
            if name.name not in self.dims and (name.name in self.params or variable_of(name.name) in self.variables):
                self.error(
                    f"`{name.name}` is both a dim and a {'parameter' if name.name in self.params else 'dtype'}",
                    name.span,
                    help="give one of them another name",
                )
            self.dims.setdefault(name.name, name.span)
        self.check_clauses(header)
        self.check_factors(header)
        self.check_optional(header)
        self.declare_helpers()
        results = self.declare_results(header)
        equations = [s for s in self.file.statements if isinstance(s, Equation)]
        defined: dict[str, Equation] = {}
        texts: list[tuple[str, int, str]] = []
        self.later = {e.name.name: e for e in reversed(equations)}
        last = {e.name.name: e for e in equations}
        self.parts: dict[str, list[tuple[Equation, int | None]]] = {}
        for equation in equations:
            assigned = equation.name.name
            if equation.dims and assigned not in defined and (assigned in self.parts or self.may_assign(equation.name, defined, results)):
                self.equation = equation
                self.parts.setdefault(assigned, []).append((equation, self.evaluate(equation.body)))
                if equation is last[assigned]:
                    dtype = results[assigned].type.dtype.name if assigned in results else ""
                    defined[assigned], self.names[assigned] = equation, self.joined(self.parts[assigned], dtype)
                    if (value := self.names[assigned]) is not None:
                        texts.append((assigned, value, "; ".join(typeset.format_statement(e) for e, _ in self.parts[assigned])))
                continue
            if assigned in self.parts:
                self.error(f"`{assigned}` is assigned in parts above", equation.name.span, help="each part has one equation")
                self.names.setdefault(assigned, None)
                defined.setdefault(assigned, equation)
                continue
            if not self.may_assign(equation.name, defined, results):
                self.evaluate(equation.body)
                self.names.setdefault(assigned, None)
                continue
            self.equation = equation
            value = self.evaluate(equation.body)
            defined[assigned] = equation
            self.names[assigned] = value
            if isinstance(equation, Fallback):
                self.check_fallback(equation, value)
            if value is not None:
                texts.append((assigned, value, f"{assigned} = {typeset.format_expr(equation.body)}"))
        decls = [d for r in header.results if (d := self.finish_result(r, results, defined)) is not None]
        for assigned, equation in defined.items():
            if assigned not in results and assigned not in self.used and not isinstance(equation, Fallback):
                self.error(f"`{assigned}` is never used", equation.name.span, help="use it in a result, or remove it")
        self.check_params_used(header, decls)
        self.check_helpers()
        self.errors.raise_any()
        return Kernel(
            header.name.name, self.file.doc(), self.file, tuple(self.params.values()), tuple(decls), tuple(self.values), tuple(texts),
            clauses=self.clauses,
        )  # fmt: skip

    def declare_param(self, p: Param) -> None:
        """Take a header's parameter into `params`, its dims and dtype variable with it; what is wrong with its name, type or
        default is an error."""
        name, t = p.name.name, p.type
        if name in self.params:
            self.error(f"parameter `{name}` is declared twice", p.name.span)
            return
        if name in CONSTANTS or name in DTYPES or name in ("float", "int"):
            self.error(f"`{name}` cannot name a parameter", p.name.span, help=f"it is {'a constant' if name in CONSTANTS else 'a type'}")
        dims = syntax.dim_names(t.dims) if t.dims is not None else None
        if dims is None:
            if t.dtype.name not in ("float", "int"):
                known = t.dtype.name in DTYPES or variable_of(t.dtype.name)
                self.error(
                    f"`{t.dtype.name}` is not the type of a number",
                    t.dtype.span,
                    help="a choice is an `int`, as in `causal: int = 1`, and asked as `causal != 0`"
                    if t.dtype.name == "bool"
                    else f"a tensor is `{t.dtype.name}[...]`, a 0-d tensor `{t.dtype.name}[]`, a number `float` or `int`"
                    if known
                    else "a tensor has a dtype and dims, as in `T[..., N]`; a number is `float` or `int`",
                )
        else:
            self.check_tensor_type(t)
        text = None
        if dims is None and p.default is not None and not options.is_drawn(p) and t.dtype.name in ("float", "int"):
            text = typeset.format_expr(p.default)
            self.check_default(p, p.default, text)
        if dims is not None and is_variable(t.dtype.name):
            self.variables.add(t.dtype.name)
            if len(self.variables) > MAX_VARIABLES:
                self.error(f"a kernel may have at most {MAX_VARIABLES} dtype variables", t.dtype.span)
                self.variables.remove(t.dtype.name)
        drawn = options.is_drawn(p) and self.check_drawn(p)
        optional = dims is not None and p.default is not None and not options.is_drawn(p)
        self.params[name] = Parameter(name, t.dtype.name, dims, text, p.name.span, t.factors, optional, drawn)
        self.names[name] = self.make(
            "param",
            (),
            name,
            Number(t.dtype.name)
            if dims is None and t.dtype.name in ("float", "int")
            else FLOAT
            if dims is None
            else stored_type(t.dtype.name),
            dims or (),
            p.name.span,
        )

    def check_tensor_type(self, t: syntax.Type) -> None:
        """Hold a tensor's type to what types may be: a known dtype or a variable, dims that are capitalised and not twice there,
        `...` first."""
        name = t.dtype.name
        if name not in DTYPES and not variable_of(name):
            every = f"dtypes are {', '.join(WRITTEN)}, or one capital letter for any float"
            help = f"write `{advice.MEANT[name]}`" if name in advice.MEANT else every
            self.error(f"`{name}` is not a dtype", t.dtype.span, help=help)
        seen: set[str] = set()
        if len(t.dims or ()) > MAX_DIMS:
            self.error(f"a tensor may have at most {MAX_DIMS} dims", t.span)
        for k, d in enumerate((t.dims or ())[:MAX_DIMS]):
            if d.name == ELLIPSIS:
                if k:
                    self.error("`...` comes first", d.span, help="it stands for any number of leading dims")
                elif t.factors and t.factors[0] > 1:
                    self.error("`...` is no factor of an axis", d.span, help="it stands for any number of leading dims")
            elif d.name[0] in ".0123456789":
                if not LITERAL.fullmatch(d.name) or literal_size(d.name) >= 2**31:
                    self.error(f"`{d.name}` is not the size of a dim", d.span, help="a literal dim is a whole number from 1 to 2^31 - 1")
            elif not d.name[0].isupper():
                self.error(f"the dim `{d.name}` does not begin with a capital letter", d.span, help=f"write `{d.name.capitalize()}`")
            if d.name in seen:
                self.error(f"dim {d.name} stands twice in one tensor", d.span, help=advice.two_names(d.name))
            seen.add(d.name)

    def declare_helpers(self) -> None:
        """Take the file's helpers into `helpers`; a name that is taken, or stands twice among the arguments, is an error."""
        for s in self.file.statements:
            if not isinstance(s, Helper):
                continue
            name = s.name.name
            if name in self.helpers:
                self.error(f"helper `{name}` is defined twice", s.name.span)
            elif name in OPS and name not in ("pos",) or name in REDUCTIONS or name in SCANS or name in DTYPES or name in ("index", "pick"):
                self.error(f"`{name}` is built in and cannot be defined again", s.name.span, help="give the helper another name")
            for d in s.dims:
                if is_literal(d.name):
                    self.error(f"the literal {d.name} cannot name a dim of a helper", d.span, help="a helper's dims are names of its own")
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
        """The header's results by name (of a primed one `x'`, so written), their types held to the parameters'."""
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
                known = element in DTYPES or variable_of(element)
                help = f"a 0-d tensor is `{element}[]`" if known else "a result is a tensor, as in `T[..., N]`"
                self.error(f"result `{name}` is not a tensor", r.type.span, help=help)
                continue
            self.check_tensor_type(r.type)
            if is_variable(r.type.dtype.name) and r.type.dtype.name not in self.variables:
                self.error(
                    f"the dtype variable {r.type.dtype.name} is no parameter's",
                    r.type.dtype.span,
                    help="a result's dtype must be known from the parameters",
                )
            for d in r.type.dims:
                if is_literal(d.name):  # known, whoever has it
                    self.dims.setdefault(d.name, d.span)
                if d.name not in (leading if d.name == ELLIPSIS else self.dims):
                    help = advice.unknown_size(d.name, self.params.values())
                    self.error(f"dim {d.name} of `{name}` is no parameter's", d.span, help=help)
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
        elif p.optional:
            self.error(f"`{r.name.name}` writes `{p.name}`, which a call may leave out", r.name.span, help="give it no default")
        elif (p.dtype, p.dims, p.factors) != (r.type.dtype.name, syntax.dim_names(r.type.dims), r.type.factors):
            self.error(
                f"`{r.name.name}` is written in place, so its type is that of `{p.name}`",
                r.type.span,
                help=f"write `{show_type(p.dtype, p.dims or (), p.factors)}`",
            )

    def may_assign(self, name: Name, defined: dict[str, Equation], results: dict[str, syntax.Result]) -> bool:
        """Whether an equation may have this name; an error where it may not."""
        text = name.name
        if text in defined:
            row = self.file.source.place(defined[text].span.start)[0]
            self.error(f"`{text}` is assigned twice", name.span, help=f"it has a value since line {row}; choose another name")
        elif text in self.params and text in results:
            pass  # an error already
        elif text in self.params:
            help = f"choose another name; a result `{text}'` writes it in place"
            self.error(f"`{text}` is a parameter and cannot be assigned", name.span, help=help)
        elif text.endswith("'") and text not in results:
            self.error(f"`{text}` is not among the results", name.span, help=f"add it behind `->`, as `{text}: type`")
        elif text in CONSTANTS or text in self.dims or text in DTYPES:
            what = "a constant" if text in CONSTANTS else "a dim" if text in self.dims else "a dtype"
            self.error(f"`{text}` is {what} and cannot be assigned", name.span)
        else:
            return True
        return False

    def joined(self, parts: list[tuple[Equation, int | None]], dtype: str) -> int | None:
        """The value whose parts have these equations; None, with an error, where a place has none, or two.

        `dtype` is the declared one if they are a result's, else "": each part is then rounded to it as a result of its own would be, a
        number too, which else took the dtype that the other parts are computed in (f32 for a result in f64)."""
        first = parts[0][0]
        dims = tuple(d.name for d in first.dims)
        places: dict[tuple[int, ...], int] = {}
        for equation, value in parts:
            at = self.part_of(equation, dims)
            if at is None or value is None:
                return None
            if at in places:
                self.error(f"this part of `{first.name.name}` is assigned twice", Span(equation.span.start, equation.body.span.start),
                           help="each part has one equation")  # fmt: skip
                return None
            places[at] = self.rounded_part(value, dtype)
        missing = next((at for at in product(*(range(literal_size(d)) for d in dims)) if at not in places), None)
        if missing is not None:
            shown = ", ".join(f"{d} = {k}" for d, k in zip(dims, missing, strict=True))
            self.error(f"`{first.name.name}[{shown}]` has no equation", first.name.span, help="every part needs one")
            return None
        *others, (_, made) = sorted(places.items())
        rule = Apply("where", (first.body,) * 3, first.span, first.span, "where")
        for at, value in reversed(others):
            conditions = []
            for d, k in zip(dims, at, strict=True):
                index = self.make("index", (), d, i64, (d,), first.span)
                number = self.make("lit", (), str(k), INT, (), first.span)
                conditions.append(self.make("eq", (index, number), "", boolean, (d,), first.span))
            here = conditions[0]
            for c in conditions[1:]:
                here = self.make("and", (here, c), "", boolean, union(self.values[here].dims, self.values[c].dims), first.span)
            chosen = self.operate(OPS["where"], rule, [here, value, made])
            if chosen is None:
                return None
            made = chosen
        return made

    def rounded_part(self, value: int, dtype: str) -> int:
        """A part of a result of that declared dtype: a number, where the result may be computed in f64, is of that dtype (`T32` for T)."""
        v = self.values[value]
        wide = f"{variable_of(dtype)}32" if variable_of(dtype) else dtype
        if not isinstance(v.type, Number) or not (is_wide(wide) and self.is_dtype(wide) or wide == "f64"):
            return value
        return self.make("cast", (value,), wide, stored_type(wide), v.dims, v.span)

    def part_of(self, equation: Equation, dims: Dims) -> tuple[int, ...] | None:
        """The place along `dims` that an equation assigns; None, with an error, where it is none, or along other dims."""
        at = []
        for d, e in zip(equation.dims, equation.places, strict=False):
            if not is_literal(d.name) or d.name not in self.dims:
                self.error(f"{d.name} is no literal dim of a tensor", d.span, help="parts are along literal dims, as in `y[2 = 0] = ...`")
                return None
            if not isinstance(e, Num) or not e.text.isdigit() or int(e.text) >= literal_size(d.name):
                self.error(f"a part's place along {d.name} is a number below {d.name}", e.span)
                return None
            at.append(int(e.text))
        if tuple(d.name for d in equation.dims) != dims or len(equation.places) > len(dims):
            self.error(f"this is no part along {', '.join(dims)}", equation.name.span, help="all parts of a value are along the same dims")
            return None
        if len({*dims}) < len(dims) or any(literal_size(d) > FEW for d in dims):
            self.error(f"parts are along a dim of at most {FEW}, each once", equation.name.span)
            return None
        return tuple(at)

    def finish_result(self, r: syntax.Result, results: dict[str, syntax.Result], defined: dict[str, Equation]) -> ResultDecl | None:
        """A result with the value that its equation gave it; None, with an error, where its dims or dtype are not the declared ones."""
        name = r.name.name
        if name in self.params:
            return None
        if name not in defined:
            if name in self.later:
                return None  # its equation is an error already
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
                    label=show_type(describe(leaf), leaf.dims),
                    help=f"add {d} to `{name}: {show_type(r.type.dtype.name, dims)}`, or reduce over {d}"
                    if d != "1"
                    else "dims meet by name, not by a size of 1: leave it away, or take its one place, `[1 = 0]`",
                )
                return None
        stored = r.type.dtype.name
        if stored not in DTYPES and not variable_of(stored):
            return None
        t = v.type
        if not storable(t, stored_type(stored)):
            was = t if isinstance(t, Number) else describe(v)
            self.error(f"`{name}` is {stored} but its value is {was}", span, help=advice.made_storable(self.values, v, name, stored))
            return None
        if not self.fits(value, stored_type(stored), defined[name].body):
            return None
        return ResultDecl(name, stored, dims, name[:-1] if r.primed else None, value, r.name.span, r.type.factors)

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
        """An error for each parameter that no result depends on, unless it alone gives a size or a dtype that is needed."""
        if len(decls) != len(header.results):
            return  # an error already; what follows from it is not the writer's concern
        wanted = {str(v.attr) for v in self.values if v.op in ("size", "index")} | {d for r in decls for d in r.dims}
        wanted |= {n for c in self.clauses for n in (c.name.name, *sized.names(c.value))}
        named = [*(r.dtype for r in decls), *(cast_to(v)[0] for v in self.values if v.op == "cast")]
        typed = {variable_of(name) for name in (*named, *(p.dtype for p in self.params.values() if is_wide(p.dtype)))}
        first_with: dict[str, str] = {}
        states = {r.state for r in decls}
        read = self.reach([r.value for r in decls])
        used = {str(v.attr) for i, v in enumerate(self.values) if v.op == "param" and i in read}
        used |= {n for c in self.clauses for n in sized.names(c.value) if n in self.params}
        declared = {p.dtype for p in self.params.values() if p.name in used or p.name in states}
        for p in self.params.values():
            if p.name in used:
                for d in p.dims or ():
                    first_with.setdefault(d, p.name)
        for p in self.params.values():  # one that alone gives a size or a dtype, or is asked for a size, need not be read
            if p.name in used or p.name in states:
                continue
            gives = p.name in self.passed or any(d in wanted and d not in first_with for d in p.dims or ())
            if gives or is_variable(p.dtype) and p.dtype in typed - declared:
                declared.add(p.dtype)
                for d in p.dims or ():
                    first_with.setdefault(d, p.name)
            else:
                self.error(f"parameter `{p.name}` is never used", p.span, help="use it, or remove it from the header")

    def reach(self, roots: list[int]) -> set[int]:
        return reached(roots, lambda v: self.values[v].args)


__all__ = ["Kernel", "KgenError", "Parameter", "ResultDecl", "Value", "check", "plain", "prelude"]
