"""The program: typed SSA over inert nodes.

A `Program` is an ordered tuple of `Let(name, expr, dtype, dims, span)` and the stores that end it.  Expressions are
nodes that nothing evaluates: what the writer wrote is what is computed.  `sympy.sympify` gives the mathematics of one,
by its row in the table; nothing else here needs SymPy, which would take longer to import than a kernel takes to make.
`verify` states what holds of every program and is run after every pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

from kgen.errors import Diagnostic, Source, Span, TooLong
from kgen.monoids import MONOIDS, RIDERS
from kgen.ops import OPS, REDUCTIONS, ROWS, SCANS
from kgen.types import (
    BOOL,
    DTYPES,
    ELLIPSIS,
    FLOAT,
    INT,
    NARROW,
    Binding,
    Dims,
    DType,
    Number,
    boolean,
    f32,
    f64,
    i64,
    show_type,
    union,
)


@dataclass(frozen=True, slots=True)
class Ref:
    """A value by its name, as an operand."""

    name: str

    def __str__(self) -> str:
        return self.name

    def _sympy_(self) -> Any:
        import sympy

        return sympy.Symbol(self.name)


class Op:
    """An operator applied to values: `Op("add", a, b)`, what it names first: `Op("sum", "N", x)`.  Immutable, compared by structure, and
    inert: nothing simplifies, reorders or evaluates it.

    `attrs` are what it names that is no value: a parameter, a literal's text, dims; `operands` are the values that it applies to.
    Besides the rows of the table, the reductions and the scans (`cumsum[N, reversed] x`) there are leaves: `load x`, `arg eps` (a number
    parameter), `lit 0.5`, `const pi`, `size N`, `index N`; the riders of `online.py`; the `probe` of `selection.py`; and `cast` (to the
    dtype of its Let), `pick`, and `place[N] x e` and `gather[N] x e` (the element of x at e along N, 0 outside; what is gathered from
    lies in memory), and what `segments.py` makes: `sorted[order, S, V] key`, `ranged[sum, S] x lo hi order` and
    `keyed[sum, K] x keys order own n`.
    """

    __slots__ = ("name", "attrs", "operands", "_hash")
    name: str
    attrs: tuple[str, ...]
    operands: tuple[Ref, ...]
    _hash: int

    def __init__(self, name: str, *args: str | Ref) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "attrs", tuple(a for a in args if isinstance(a, str)))
        put(self, "operands", tuple(a for a in args if not isinstance(a, str)))
        put(self, "_hash", hash((name, self.attrs, self.operands)))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a node does not change: {self}.{name}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            return NotImplemented
        return self is other or (self.name, self.attrs, self.operands) == (other.name, other.attrs, other.operands)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        dims = f"[{', '.join(self.attrs)}]" if self.operands and self.attrs else ""
        rest = [*(() if dims else self.attrs), *map(str, self.operands)]
        return " ".join([self.name + dims, *rest])

    __repr__ = __str__

    def renamed(self, names: Mapping[str, str]) -> Op:
        """The same of the values that `names` gives for its operands."""
        return Op(self.name, *self.attrs, *(Ref(names[o.name]) for o in self.operands))

    def _sympy_(self) -> Any:
        """What it means, for `sympy.sympify`: the formula of its row in the table; where there is none, a function by its name."""
        import sympy

        values = [o._sympy_() for o in self.operands]
        if self.name == "lit" and self.attrs[0] not in ("inf", "-inf", "nan"):
            return sympy.Rational(exact(self.attrs[0]))
        if self.name in ("lit", "const"):
            return {"pi": sympy.pi, "inf": sympy.oo, "-inf": -sympy.oo, "nan": sympy.nan}[self.attrs[0]]
        row = OPS.get(self.name) if not self.attrs else None
        if row is None or not row.sympy:
            return sympy.Function(self.name)(*map(sympy.Symbol, self.attrs), *values)
        own = [sympy.Dummy(a) for a in row.args]
        formula = sympy.sympify(row.sympy, locals=dict(zip(row.args, own, strict=True)))
        return formula.subs(dict(zip(own, values, strict=True)), simultaneous=True)


def leaf(name: str, attr: str) -> Op:
    return Op(name, attr)


def ref(name: str) -> Ref:
    return Ref(name)


#: The operations that a source may have.  A pass over rows computes anew, in each reading, what it takes of those before, so nested
#: reductions grow as the square of the spec; compilers take seconds for a source of this length, and minutes for much longer ones.
MAX_OPERATIONS = 4_000


#: What reads memory at places of its own.
GATHERS = ("gather", "ranged", "keyed")


def asked(expr: Op) -> tuple[Ref, ...]:
    """Of a range whose terms are asked for more, what lies in memory beside them, and what it is compared with: see `segments.py`."""
    return expr.operands[-2:] if len(expr.attrs) == 3 else ()


def terms(expr: Op) -> tuple[Ref, ...]:
    """The other operands of a range: what it adds up, its ends, and an order, or the ends of its terms' own ranges and their position."""
    return expr.operands[: len(expr.operands) - len(asked(expr))]


def held(expr: Op) -> tuple[Ref, ...]:
    """The operands of an expression that lie in memory, of which it reads what it wants; it takes the others where it is computed."""
    if expr.name == "ranged":
        return (expr.operands[0], *terms(expr)[3:5], *asked(expr)[:1])
    if expr.name == "keyed":
        return expr.operands[:3]
    return expr.operands if expr.name == "sorted" else expr.operands[: expr.name in ("gather", "tap")]


def taken(expr: Op) -> tuple[Ref, ...]:
    """The operands of an expression that are read at its own place."""
    if expr.name == "ranged":
        return (*expr.operands[1:3], *terms(expr)[5:], *asked(expr)[1:])
    return expr.operands[len(held(expr)) :]


#: The dtypes of which some operators have a form that is too rough for those with more digits.
FEW_DIGITS = frozenset(d.name for d in DTYPES.values() if d.narrow and d.digits <= 7)


class Form(NamedTuple):
    """How an operator is computed where the dtype that `decides` (a variable's name, or its own) has 16 bits: "brief", "rough", "coarse",
    "near", "fused", "slope" or "shared" (`precision.py`)."""

    name: str
    decides: str

    def of(self, dtype: str) -> str:
        """The form's name where that dtype decides: "" is the accurate one."""
        return "" if dtype not in NARROW else "brief" if self.name in ("rough", "coarse") and dtype not in FEW_DIGITS else self.name


@dataclass(frozen=True)
class Let:
    """`name: dtype[dims] = expr`.  `label` is the writer's name for the value, "" where it has none.

    A `Number` dtype marks a host number: it is computed once a call, in f64 or i64.  `generic` names the dtype as
    it stands before the dtype variables are bound (`T+U` for what T and U are computed in, `=T` for T as it is stored),
    "" where none is.  `form` is that of its operator in a plan, None the accurate one.
    """

    name: str
    expr: Op
    dtype: DType | Number
    dims: Dims
    span: Span = field(compare=False, repr=False)
    label: str = ""
    generic: str = ""
    form: Form | None = None

    @property
    def is_number(self) -> bool:
        return isinstance(self.dtype, Number)

    @property
    def is_float(self) -> bool:
        return isinstance(self.dtype, DType) and self.dtype.is_float

    @property
    def tensor_dtype(self) -> DType:
        """The dtype of what is no number of the host's."""
        assert isinstance(self.dtype, DType), self
        return self.dtype

    def __str__(self) -> str:
        kind = (
            self.dtype.kind if isinstance(self.dtype, Number) else show_type(str(self.dtype), self.dims) if self.dims else f"{self.dtype}[]"
        )
        label = f"    # {self.label}" if self.label else ""
        return f"{self.name}: {kind} = {self.expr}{label}"


@dataclass(frozen=True)
class Store:
    """The value `ref` is rounded to `dtype` and written to `result` (in place, where `state` names a parameter)."""

    result: str
    ref: str
    dtype: DType
    dims: Dims
    state: str | None

    def __str__(self) -> str:
        return f"store {self.result} {self.ref}"


@dataclass(frozen=True)
class Tensor:
    """A tensor that the program reads: its storage dtype and dims."""

    name: str
    dtype: DType
    dims: Dims


@dataclass(frozen=True)
class Blocks:
    """A dim that no tensor of the caller's has: `of`, in blocks of `size`, of which the last may not be full."""

    dim: str
    of: str
    size: int

    def count(self, sizes: Mapping[str, int]) -> int:
        """How many blocks there are, for the sizes of the other dims."""
        return -(-sizes[self.of] // self.size)


@dataclass(frozen=True)
class View:
    """A tensor that is a parameter: `tensor`, which has dims `given`, with the one dim `dim` in place of several (`of`, the last of which
    runs fastest)."""

    name: str
    tensor: str
    given: Dims
    dtype: DType
    dims: Dims
    dim: str
    of: Dims


@dataclass(frozen=True)
class Program:
    """A kernel for one choice of its dtype variables; `source` is the text that the lets' spans point into, `blocks` are dims that its
    passes have besides those of its tensors, `views` are those among its tensors that are views of parameters."""

    name: str
    signature: str
    binding: tuple[tuple[str, DType], ...]
    tensors: tuple[Tensor, ...]
    lets: tuple[Let, ...]
    stores: tuple[Store, ...]
    source: Source | None = field(default=None, compare=False, repr=False)
    blocks: tuple[Blocks, ...] = ()
    views: tuple[View, ...] = ()

    @property
    def by_name(self) -> dict[str, Let]:
        return {let.name: let for let in self.lets}

    def __str__(self) -> str:
        where = "".join(f"  where {name} = {dtype}" for name, dtype in self.binding)
        return "\n".join([self.signature + where, *(f"  {let}" for let in self.lets), *(f"  {s}" for s in self.stores)])


def too_long(program: Program, span: Span, counting: str) -> TooLong:
    """The error at the operation with which a program passes `MAX_OPERATIONS`; `counting` says what counts besides the spec's own."""
    message = f"the kernel has more than {MAX_OPERATIONS:,} operations, {counting}"
    return TooLong(Diagnostic(message, span, help="split it into several kernels"), program.source)


class Builder:
    """Makes lets, one for each distinct (expression, dtype, dims): values are shared by structure."""

    def __init__(self) -> None:
        self.lets: list[Let] = []
        self.defs: dict[str, Let] = {}
        self.made: dict[tuple, int] = {}

    def add(self, expr: Op, dtype: DType | Number, dims: Dims, span: Span, label: str = "", generic: str = "") -> Let:
        key = (expr, dtype, dims, generic)
        at = self.made.get(key)
        if at is None:
            at = self.made[key] = len(self.lets)
            self.lets.append(Let(f"%{at}", expr, dtype, dims, span, label, generic))
        elif label and not self.lets[at].label:
            self.lets[at] = replace(self.lets[at], label=label)
        let = self.lets[at]
        self.defs[let.name] = let
        return let

    def like(self, expr: Op, let: Let, label: str = "") -> Let:
        """A value of the same dtype and dims as `let`."""
        return self.add(expr, let.dtype, let.dims, let.span, label, let.generic)

    def literal(self, text: str, like: Let) -> Let:
        """A literal as a value of the dtype of `like`."""
        number = self.add(leaf("lit", text), FLOAT if like.is_float else INT, (), like.span)
        return self.add(Op("cast", ref(number.name)), like.dtype, (), like.span, "", like.generic)


def exact(text: str) -> Fraction:
    """The exact value of a literal's text (decimal, or hexadecimal as `float.hex` writes it)."""
    text = text.lower()
    if "0x" in text:
        return Fraction(float.fromhex(text)) if "p" in text else Fraction(int(text, 16))
    return Fraction(text.rstrip(".") if text.endswith(".") else text.replace(".e", "e"))


def literal_of(let: Let, defs: dict[str, Let]) -> Fraction | None:
    """The exact value of a let that is a finite literal, or a literal cast to a dtype; else None."""
    if let.expr.name == "cast" and isinstance(let.dtype, DType):
        inner = defs[let.expr.operands[0].name]
        return literal_of(inner, defs) if inner.is_number else None
    return exact(let.expr.attrs[0]) if let.expr.name == "lit" and let.expr.attrs[0] not in ("inf", "-inf", "nan") else None


def live(lets: Iterable[Let], stores: Iterable[Store]) -> tuple[Let, ...]:
    """The lets that the stores need, in order."""
    lets = tuple(lets)
    needed = {s.ref for s in stores}
    for let in reversed(lets):
        if let.name in needed:
            needed.update(o.name for o in let.expr.operands)
    return tuple(let for let in lets if let.name in needed)


def rounded_to(let: Let) -> str:
    """The dtype that a value is rounded to by name: a variable's or its own; "" of a number."""
    return let.generic.lstrip("=") or (let.dtype.name if isinstance(let.dtype, DType) else "")


def renumber(program: Program) -> Program:
    """The same program with its values numbered from %0 without gaps."""
    names = {let.name: f"%{i}" for i, let in enumerate(program.lets)}
    lets = tuple(replace(let, name=names[let.name], expr=let.expr.renamed(names)) for let in program.lets)
    return replace(program, lets=lets, stores=tuple(replace(s, ref=names[s.ref]) for s in program.stores))


class Broken(AssertionError):
    """A program that breaks its own rules: a bug of kgen's."""


def verify(program: Program) -> Program:
    """Hold a program to its rules, each of them one line below; returns it.

    Raises `Broken` naming the let and the rule.
    """
    defs: dict[str, Let] = {}
    tensors = {t.name: t for t in program.tensors}

    def hold(ok: bool, what: object, rule: str) -> None:
        if not ok:
            raise Broken(f"{what}: {rule}\n{program}")

    for let in program.lets:
        name, operands = let.expr.name, [defs.get(o.name) for o in let.expr.operands]
        hold(let.name not in defs, let, "a name is bound once")
        hold(None not in operands, let, "operands are bound before they are used")
        args = [o for o in operands if o is not None]
        defs[let.name] = let
        if name == "load":
            hold(let.expr.attrs[0] in tensors, let, "a load names a tensor")
            t = tensors[let.expr.attrs[0]]
            hold(let.dtype is t.dtype.stored.computed and let.dims == t.dims, let, "a load widens a 16-bit float to f32 and keeps the dims")
        elif name in ("arg", "lit", "const", "size"):
            hold(let.is_number, let, "a number's leaf is a number")
        elif name == "index":
            hold(let.dtype is i64 and let.dims == let.expr.attrs, let, "an index is an i64 along its dim")
        elif name == "probe":
            hold(isinstance(let.dtype, DType) and not args, let, "a probe is a row's value that its search sets")
        elif name == "cast":
            hold(isinstance(let.dtype, DType) and let.dims == args[0].dims, let, "a cast has a dtype and keeps the dims")
        elif name in ("gather", "place"):
            rest = tuple(d for d in args[0].dims if d not in let.expr.attrs)
            hold(let.expr.attrs[0] in args[0].dims, let, "a place's dim is its operand's")
            hold(set(let.dims) == {*rest, *args[1].dims} and args[1].dtype is i64, let, "a place has an i64 index in place of its dim")
        elif name == "ranged":
            more = args[len(terms(let.expr)) :]
            others = {d for a in (args[0], *more[:1]) for d in a.dims if d != let.expr.attrs[1]}
            hold(all(let.expr.attrs[1] in a.dims for a in (args[0], *more[:1])), let, "what a range is of has its dim")
            ends = {d for a in (*args[1:3], *more[1:]) for d in a.dims}
            hold(set(let.dims) == others | ends, let, "a range has its operand's other dims and its ends'")
            hold(all(a.dtype is i64 for a in args[1 : len(args) - len(more)]), let, "a range's ends and its order are i64")
            asks = not more or more[0].dtype is more[1].dtype and let.expr.attrs[1] not in more[1].dims
            hold(asks, let, "terms are asked for one value a range")
        elif name == "keyed":
            dim = let.expr.attrs[1]
            hold(all(dim in a.dims for a in args[:3]) and dim not in args[3].dims, let, "what keys select has their dim")
            hold(args[1].dims == args[2].dims, let, "an order is of the keys of each row")
            hold(set(let.dims) == {d for a in args for d in a.dims} - {dim}, let, "what a key selects has its operands' other dims")
            hold(all(a.dtype is i64 for a in args[1:]), let, "keys and their order are i64")
        elif name == "sorted":
            hold(let.expr.attrs[1] in args[0].dims and args[0].dtype is i64, let, "keys are an i64 along the dim that is sorted")
        elif name in RIDERS:
            peak = {"max": "max", "mean": "sum"}[MONOIDS[name].about]
            same = args[1].expr.name == peak and args[1].expr.attrs == let.expr.attrs and args[1].expr.operands[0] == let.expr.operands[0]
            hold(same, let, "a sum about a peak is about that of its own operand, over the same dims")
        elif name in SCANS:
            hold(set(let.dims) == set(union(*(a.dims for a in args))), let, "dims are the union of the operands'")
            hold(let.expr.attrs[0] in let.dims, let, "a scan's dim is an operand's")
            hold(all(a.dtype is let.dtype for a in args), let, "a scan has its operands' dtype")
        elif name == "pick" or name in REDUCTIONS and let.expr.attrs:
            hold(all(d in args[0].dims for d in let.expr.attrs), let, "a reduction's dims are its operand's")
        else:
            hold(name in ROWS and ROWS[name].arity == len(args), let, "an operator is a row of the table, with its arity")
            hold(set(let.dims) == set(union(*(a.dims for a in args))), let, "dims are the union of the operands'")
            _verify_dtypes(hold, let, args)
    for s in program.stores:
        hold(s.ref in defs, s, "a store's value is bound")
        value = defs[s.ref]
        hold(
            isinstance(value.dtype, DType) and (value.dtype.kind == s.dtype.kind or value.dtype.is_int and s.dtype.is_int),
            s,
            "a store changes no kind",
        )
        hold(all(d in s.dims for d in value.dims), s, "a value broadcasts to its result's dims")
    return program


def _verify_dtypes(hold, let: Let, args: list[Let]) -> None:
    """Hold the dtypes of an operator's operands and its result to its row's rule."""
    rule = ROWS[let.expr.name].rule
    if rule == "code":
        return
    if let.is_number:
        hold(all(a.is_number for a in args), let, "a number is made of numbers")
        return
    typed = args[1:] if rule == "where" else args
    hold(len({a.dtype for a in typed}) == 1, let, "operands share one dtype")
    hold(typed[0].dtype in (f32, f64) or not getattr(typed[0].dtype, "is_float", True), let, "16-bit floats are computed in f32")
    if rule in ("compare", "test", "logical"):
        hold(let.dtype is boolean, let, "a test is a bool")
    else:
        hold(let.dtype is typed[0].dtype, let, "a result has its operands' dtype")
    if rule == "where":
        hold(args[0].dtype is boolean, let, "a condition is a bool")


__all__ = [
    "BOOL",
    "DTYPES",
    "ELLIPSIS",
    "FEW_DIGITS",
    "FLOAT",
    "GATHERS",
    "INT",
    "MAX_OPERATIONS",
    "Binding",
    "Blocks",
    "Builder",
    "Form",
    "Let",
    "Op",
    "Program",
    "Ref",
    "Store",
    "Tensor",
    "View",
    "exact",
    "held",
    "leaf",
    "literal_of",
    "live",
    "ref",
    "renumber",
    "rounded_to",
    "taken",
    "too_long",
    "verify",
]
