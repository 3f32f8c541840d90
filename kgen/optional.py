"""Tensors that a call may leave out: the file of a kernel without some of them.

In: a file whose header gives tensors a default (`w: T[N] = 1`), and the names of those that are left out.  Out: a file whose header lacks
them, with an equation for each that is still read.  A traced function has what it says where they are None, read when it was decorated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from kgen import sized, syntax
from kgen.errors import Span
from kgen.expressions import MAX_FLOAT, Expressions
from kgen.ops import CONSTANTS
from kgen.syntax import Apply, Equation, Expr, File, Header, Name, Num, Param, Statement
from kgen.types import DTYPES, ELLIPSIS, Dims, is_literal, is_variable, show_type, variable_of
from kgen.values import Parameter, Value, describe, exact, storable, stored_type

NONE = "None"
#: What stands for a seed that a call leaves out: it is drawn from torch's generator (`kgen.runtime.drawn`).
RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Fallback(Equation):
    """What stands in the place of a parameter that is left out: `declared`."""

    declared: Param | None = None


def is_none(p: Param) -> bool:
    """Whether a parameter's default is Python's None: then a traced function says what stands for it."""
    return isinstance(p.default, Name) and p.default.name == NONE


def is_drawn(p: Param) -> bool:
    """Whether a parameter that a call leaves out is drawn from torch's generator."""
    return isinstance(p.default, Name) and p.default.name == RANDOM


def optional(file: File) -> tuple[Param, ...]:
    """The tensor parameters that a call may leave out."""
    params = (p for s in file.statements if isinstance(s, Header) for p in s.params)
    return tuple(p for p in params if p.default is not None and p.type.dims is not None and not is_drawn(p))


def choices(names: Collection[str]) -> list[tuple[str, ...]]:
    """Every way of leaving some of these names out, but for none of them."""
    return [chosen for size in range(1, len(names) + 1) for chosen in combinations(names, size)]


def required(file: File) -> File:
    """The file with every tensor required."""
    return replace(file, statements=tuple(map(_required, file.statements)))


def _required(s: Statement) -> Statement:
    if not isinstance(s, Header):
        return s
    return replace(s, params=tuple(p if p.type.dims is None else replace(p, default=None) for p in s.params))


def without(file: File, names: Collection[str], spread: Mapping[str, Dims]) -> File:
    """The file of calls that leave `names` out; `spread` says along which of its dims a value that stands for one is to be written, since
    the formula reduces it over them."""
    nones = frozenset(p.name.name for p in optional(file) if is_none(p) and p.name.name in names)
    file = file.absent.get(nones, file)
    header = next(s for s in file.statements if isinstance(s, Header))
    others = [s for s in file.statements if not isinstance(s, Header)]
    kept = tuple(p for p in header.params if p.name.name not in names)
    variables = {p.type.dtype.name for p in kept}
    read = {n for s in others for n in _names(s)}
    fallbacks: list[Statement] = []
    for p in reversed(header.params):
        if p.name.name in names and p.name.name in read and p.default is not None:
            body = _value(p, p.default, spread.get(p.name.name, ()), variables)
            fallbacks.insert(0, Fallback(p.name, body, Span(p.name.span.start, p.span.end), declared=p))
            read |= _names(fallbacks[0])
    return replace(file, statements=(replace(header, params=kept), *fallbacks, *others))


def _names(s: Statement) -> set[str]:
    """The names that an equation reads."""
    roots = (s.body, *s.places) if isinstance(s, Equation) else ()
    return {node.name for root in roots for node in syntax.postorder(root) if isinstance(node, Name)}


def _value(p: Param, default: Expr, dims: Dims, variables: set[str]) -> Expr:
    """What stands for a parameter: its default, a float where it is one, and with an element for each place along `dims`."""
    dtype, span = p.type.dtype.name, default.span
    is_float = dtype not in DTYPES or DTYPES[dtype].is_float
    body = _as_float(default) if is_float else default
    dims = tuple(d for d in dims if d != ELLIPSIS)
    if dims and dtype != "bool" and (dtype in DTYPES or dtype in variables):  # else numbers that are chosen by a tensor are f32
        body = Apply(f"{dtype}32" if is_variable(dtype) else dtype, (body,), span, span)
    for d in dims:  # no value has the leading dims alone: a reduction over those says that it lacks them
        index = Apply("index", (), span, span, dims=(Name(d, span),))
        inside = Apply("ge", (index, Num("0", span)), span, span, "infix")
        body = Apply("where", (inside, body, body), span, span, "where")
    return body


def _as_float(e: Expr) -> Expr:
    """An integer literal as the float that it is; everything else as it is."""
    if isinstance(e, Num):
        return replace(e, text=f"{e.text}.0") if e.text.isdigit() else e
    return replace(e, args=(_as_float(e.args[0]),)) if isinstance(e, Apply) and e.written == "prefix" and e.op in ("neg", "pos") else e


def spread(values: Sequence[Value], params: Sequence[Parameter], absent: tuple[str, ...]) -> dict[str, Dims]:
    """The dims of absent tensors over which the formula reduces or places what is made of them, and of nothing else that has the dim."""
    own = {p.name: p.dims or () for p in params}
    dims: list[set[str]] = []
    of: list[set[str]] = []  # the absent tensors that a value depends on
    found: dict[str, list[str]] = {name: [] for name in absent}
    for v in values:
        gone = {str(v.attr)} & {*absent} if v.op == "param" else set()
        over = {*v.attr} if isinstance(v.attr, tuple) else set()
        if v.args:
            for d in sorted(over - dims[v.args[0]]):
                for name in sorted(of[v.args[0]]):
                    found[name] += [d] if d in own[name] and d not in found[name] else []
            dims.append((dims[v.args[0]] - over).union(*(dims[a] for a in v.args[1:])))
        else:
            dims.append({*v.dims} if not gone else set())
        of.append(gone.union(*(of[a] for a in v.args)))
    return {name: tuple(dims) for name, dims in found.items()}


class Defaults(Expressions):
    """What holds of defaults, as a part of the checker."""

    def check_default(self, p: Param, default: syntax.Expr, text: str) -> None:
        """Hold the default of a number to what its type is."""
        value, span = text.lstrip("+-"), default.span
        leaf = default.args[0] if isinstance(default, Apply) and default.written == "prefix" and default.op in ("neg", "pos") else default
        if not isinstance(leaf, (Num, Name)) or leaf.parens or isinstance(leaf, Name) and leaf.name not in CONSTANTS:
            self.error(f"the default of `{p.name.name}` is not a number", span)
        elif p.type.dtype.name == "int" and not value.isdigit() and value[:2].lower() != "0x":
            self.error(f"the default of the int `{p.name.name}` is not an integer", span)
        elif p.type.dtype.name == "int" and not -(2**63) <= int(text, 0 if "x" in text.lower() else 10) < 2**63:
            self.error("this number is too large for an i64", span)
        elif p.type.dtype.name == "float" and value[0] in ".0123456789" and value[:2].lower() != "0x" and exact(value.lower()) > MAX_FLOAT:
            self.error("this number is too large for an f64", span, help="infinity is `inf`")

    def check_drawn(self, p: Param) -> bool:
        """Hold what is drawn from torch's generator to its type."""
        known = p.type.dtype.name == "i64" and p.type.dims == ()
        if not known:
            name, kind = p.name.name, p.type.dtype.name
            why = f": an {kind} is a number of the call, which a CUDA graph repeats in each replay" if kind == "int" else ""
            ints = ", which a call may also give as an int" if kind == "int" else ""
            self.error(f"`{name}` cannot be drawn{why}", p.span, help=f"torch's generator gives seeds: `{name}: i64[] = random`{ints}")
        return known

    def check_optional(self, header: Header) -> None:
        """An error for each dim that optional tensors alone have: calls that leave these out would not give its size."""
        given = {d.name for p in header.params if p.default is None for d in p.type.dims or ()}
        given = sized.follows(self.clauses, given | {p.name.name for p in header.params if p.type.dims is None})
        for p in header.params:
            for d in p.type.dims or () if p.default is not None else ():
                if d.name not in given and not is_literal(d.name):
                    shown = "the leading dims" if d.name == ELLIPSIS else f"the size of {d.name}"
                    self.error(f"a call may leave `{p.name.name}` out, and no other tensor gives {shown}", d.span,
                               help=f"a tensor without a default must have {d.name}, or `{p.name.name}` none")  # fmt: skip

    def check_fallback(self, equation: Fallback, value: int | None) -> None:
        """Hold what stands for a tensor that is left out to the tensor's type."""
        p = equation.declared
        if value is None or p is None:
            return
        v, dtype, dims = self.values[value], p.type.dtype.name, syntax.dim_names(p.type.dims)
        beyond = next((d for d in v.dims if d not in dims), "")
        if beyond:
            self.error(f"the default of `{p.name.name}` has dim {beyond}, which it does not", equation.body.span,
                       label=show_type(describe(v), v.dims))  # fmt: skip
        elif (dtype in DTYPES or variable_of(dtype)) and not storable(v.type, stored_type(dtype)):
            self.error(f"`{p.name.name}` is {dtype} but its default is {describe(v)}", equation.body.span)
