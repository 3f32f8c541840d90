"""What one traced function is made of: values as they come, each checked on the spot, equations and helpers.

The checker's own graph is built along the way (`Scout`), so that dtypes and dims are known where torch's meaning depends on
them, and every error of the language's is told at the Python expression that it speaks of.
"""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from kgen import check as checker
from kgen import syntax
from kgen.errors import Diagnostic, KgenError, Span
from kgen.expressions import prelude
from kgen.nodes import Clause
from kgen.ops import OPS, REDUCTIONS
from kgen.syntax import Apply, Equation, Expr, File, Helper, Name, Num, Param, Type
from kgen.trace.axes import ONE, Axes, Axis, Restart, Splits, each, show_shape
from kgen.trace.live import Live, Lives, Owner, is_tensor, ones
from kgen.trace.source import Code
from kgen.trace.values import Const, Method, Misaligned, Ranked, Several, Shape, Traced, dtype_name, meet_all, named
from kgen.types import ELLIPSIS, TORCH, Dims, Number, ValueType, is_literal, literal_size, promote, union
from kgen.types import axes as axes_of

_NOWHERE = Span(0, 0)
#: Reductions that an element counted twice changes.
_COUNTING = ("sum", "prod", "norm", "logsumexp", "var", "std", "argmax", "argmin", "size")


class Refused(Exception):
    """An error that has been told: the statement at hand has no value."""


@dataclass
class Frame:
    """A function while it is traced; `at` is the call that everything in it points to, where it stands in another file."""

    code: Code
    env: dict[str, Any]
    at: Span | None = None


class Tracer:
    """The kernel's values, equations and helpers so far."""

    def __init__(self, code: Code, splits: Splits, lives: Lives | None = None):
        """Begin to read a function, whose dims are known to split so; of a method, `lives` has what it reads of its object."""
        self.code, self.splits, self.lives = code, splits, lives
        self.live_params: list[Param] = []
        self.live_values: dict[str, Traced] = {}
        self.drawn_params: list[Param] = []  # the seeds of random functions (`drawing.py`)
        self.draws = 0
        self.copies = 0  # tensors that have memory and no equation of their own
        self.frames = [Frame(code, {})]
        self.scout = checker._Checker(File(code.source, ()))
        self.equations: list[Equation] = []
        self.helpers: dict[str, Helper] = {}
        self.torch = False  # whether a name of torch's was used: then dims must meet as torch pairs them
        self.doubts: list[tuple[str, Span, str]] = []
        self.unpacked: dict[int, int] = {}  # of an expression (its id) whose value has several names how many
        self.clauses: dict[str, Clause] = {}  # those that axes are written with, then the others
        self.saturated: dict[int, Traced] = {}  # of casts that saturate, what was cast
        self.spare: list[Traced] = []  # values whose names may be left without a use, where another form of them is read

    def eval(self, node: ast.expr) -> Any:
        """The value of an expression (`expressions.py`)."""
        raise NotImplementedError

    def run(self, body: list[ast.stmt]) -> Any:
        """The value that statements return (`statements.py`)."""
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Any, node: ast.AST) -> None:
        """Give names to a value (`statements.py`)."""
        raise NotImplementedError

    def decided(self, test: ast.expr, word: str) -> bool:
        """A condition that is known while tracing (`statements.py`)."""
        raise NotImplementedError

    def new_dim(self, stem: str, text: str, node: Any) -> str:
        """A dim with a size (`shape_calls.py`)."""
        raise NotImplementedError

    def without_ones(self, x: Traced, node: Any) -> Traced:
        """A parameter whose axes of size one are as long as what they meet (`shape_calls.py`)."""
        raise NotImplementedError

    def named_by_clauses(self, x: Traced, node: Any) -> Traced:
        """A value whose sizes have the names that clauses give them (`shape_calls.py`)."""
        raise NotImplementedError

    def spread(self, node: ast.expr) -> tuple[Any, ...]:
        """The values of an argument (`expressions.py`)."""
        raise NotImplementedError

    def from_outside(self, value: Any, shown: str, node: Any) -> Any:
        """A Python object as a value (`expressions.py`)."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------ errors and spans

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def span(self, node: Any) -> Span:
        return node if isinstance(node, Span) else self.frame.at or self.frame.code.span(node)

    def refuse(self, message: str, node: Any, help: str = "") -> Refused:
        """Tell an error at a Python node; raise what this returns."""
        code = self.frame.code
        if code.source != self.code.source:
            span = node if isinstance(node, Span) else code.span(node)
            raise KgenError(Diagnostic(message, span if span != self.frame.at else None, help=help), code.source)
        self.scout.errors.add(message, node if isinstance(node, Span) else code.span(node), help=help)
        return Refused()

    def doubt(self, message: str, span: Span, help: str) -> None:
        """An error only where torch's names are used: there the meaning is torch's."""
        self.doubts.append((message, span, help))

    # ------------------------------------------------------------------------------------------ values

    def type_of(self, v: Traced) -> ValueType | None:
        return None if v.id is None else self.scout.values[v.id].type

    def dims_of(self, v: Traced) -> Dims:
        return () if v.id is None else self.scout.values[v.id].dims

    def is_tensor(self, v: Traced) -> bool:
        return v.id is not None and not isinstance(self.type_of(v), Number)

    def poison(self, span: Span) -> Traced:
        return Traced(Name("?", span), None, ())

    def number(self, value: Any, node: Any, expr: Expr | None = None) -> Traced:
        """A Python number as a value; how the writer spelled it, where that is known."""
        span = self.span(node)
        if isinstance(value, bool):
            one, zero = Num("1", span), Num("0", span)
            expr = Apply("gt" if value else "lt", (one, zero), span, span, "infix", parens=True)
        elif expr is None:
            if isinstance(value, int) and not -(2**63) < value < 2**63:
                raise self.refuse("this integer is too large for an i64", node, "write it with a decimal point to make it a float")
            expr = Name("nan" if math.isnan(value) else "inf", span)
            if math.isfinite(value):
                expr = Num(re.sub(r"e([+-])0+", r"e\1", repr(abs(value))), span)
            if value < 0 or isinstance(value, float) and math.copysign(1, value) < 0:
                expr = Apply("neg", (expr,), span, span, "prefix")
        return Traced(expr, self.scout.evaluate(expr), ())

    def lift(self, value: Any, node: Any, what: str = "this") -> Traced:
        """A value of the kernel from whatever an expression gave.  Refuses what is neither a value nor a number."""
        if isinstance(value, Traced):
            if value.pads:
                value = self.named_by_clauses(value, node)
            if value.pads:
                help = "take a part of it that is as long as a dim, as in `p[..., 1:-1]`"
                raise self.refuse(f"{what} is padded to {show_shape(value.shape)}, a size that has no name", node, help)
            return value
        if isinstance(value, Const) and isinstance(value.value, (bool, int, float)):
            return self.number(value.value, node, value.expr)
        if isinstance(value, Method):
            raise self.refuse(f"`.{value.name}` is a method", node, f"call it: `.{value.name}(...)`")
        if isinstance(value, Ranked):
            raise self.refuse(f"{value.why} is not known", node, "of such a `topk` the last can be taken, as in `values[..., -1:]`")
        shown = "a shape" if isinstance(value, Shape) else "a tuple" if isinstance(value, Several) else "no number and no tensor"
        if isinstance(value, Const) and value.value is not None:
            shown = f"a {type(value.value).__name__}"
        raise self.refuse(f"{what} is {shown}, where a value is needed", node)

    def value(self, node: ast.expr) -> Traced:
        return self.lift(self.eval(node), node)

    def size(self, axis: Axis, node: Any) -> Any:
        """An axis's size, as a number of the call."""
        if axis == ONE:
            return Const(1)
        if ELLIPSIS in axis.dims:
            raise self.refuse("this is the size of one of the leading dims `...`", node, "name the dim in the parameter's type")
        span = self.span(node)
        if axis.joined:
            sizes = [self.lift(self.size(a, node), node) for a in axis.joined]
            return reduce(lambda one, other: self.apply("mul", [one, other], node, node, "infix", parens=True), sizes)
        if all(is_literal(d) for d in axis.dims):
            return Const(math.prod(map(literal_size, axis.dims)) - axis.short)
        factors = [Num(str(literal_size(d)), span) if is_literal(d) else Name(d, span) for d in axis.dims]
        expr: Expr = factors[0]
        for size in factors[1:]:
            expr = Apply("mul", (expr, size), span, span, "infix")
        if axis.short:
            expr = Apply("sub" if axis.short > 0 else "add", (expr, Num(str(abs(axis.short)), span)), span, span, "infix")
        return Traced(replace(expr, parens=True) if isinstance(expr, Apply) else expr, self.scout.evaluate(expr), ())

    def apply(self, op: str, args: list[Traced], node: Any, head: Any = None, written: str = "call", dims: Dims | None = None,
              parens: bool = False) -> Traced:  # fmt: skip
        """An operator, a function or a reduction of the language's applied to values."""
        span = self.span(node)
        head = span if head is None else self.span(head)
        brackets = None if dims is None else tuple(Name(d, head) for d in dims)
        plain = written == "call"  # a call's own brackets are enough
        operands = tuple(replace(a.expr, parens=False) if plain and a.expr.parens else a.expr for a in args)
        made = Apply(op, operands, span, head, written, brackets, parens)
        if any(a.id is None for a in args):
            return self.poison(span)
        id = self.scout.apply(made, [a.id for a in args], None, False)
        if id is None:
            return self.poison(span)
        if dims is None:
            shape, free = self.meet(args, span)
            if op in OPS and OPS[op].arity > 1:
                self.compare_promotion(op, args, span)
            return Traced(made, id, shape, free)
        if op == "index":
            return Traced(made, id, each(dims), True)
        result = self.scout.values[id].dims
        self.count_leading(op, args[0], dims, span)
        if set(result) == set(named(args[0].shape)):
            return Traced(made, id, args[0].shape, args[0].free)
        return Traced(made, id, each(union(result)), True)

    def meet(self, args: list[Traced], span: Span) -> tuple[Axes, bool]:
        """The shape at which values meet, and whether it is by name alone; a doubt where torch would pair their dims otherwise.
        Raises `Restart` where a dim that the function made meets one of the parameters'."""
        try:
            shape, free = meet_all(args)
            short = {d for v in args for a in v.shape if a.short for d in a.dims}
            if short and (free or any(v.free and short & set(self.dims_of(v)) for v in args)):
                self.refuse_short("this", args, span)
            return shape, free
        except Misaligned as error:
            if error.pair is not None and not any(a.short for a in error.pair) and self.splits.agree(*(a.dims for a in error.pair)):
                raise Restart from None
            self.refuse_short("this", args, span)
            one, other = (show_shape(s) for s in error.shapes)
            self.doubt(
                f"torch would pair the dims of {one} and {other} from the right, kgen by name",
                span,
                'keep a reduced dim (`keepdim=True`), insert one (`w[:, None]`), or use kgen\'s own names (`mean["N"](x)`) throughout',
            )
            return each(union(*(named(a.shape) for a in args))), True

    def refuse_short(self, what: str, args: list[Traced], node: Any) -> None:
        """Refuse what would take in the elements of a dim beyond a part of it (`x[..., 1:]`)."""
        if (short := next((a for v in args for a in v.shape if a.short), None)) is not None:
            raise self.refuse(f"`{what}` of a part of a dim, {short}" if what != "this" else f"{short} meets other dims here", node,
                              "pad it to the dim's size, as in `F.pad(y, (0, 1))`")  # fmt: skip

    def compare_promotion(self, op: str, args: list[Traced], span: Span) -> None:
        """A doubt where a reduced operand keeps a dim of size one in torch, and so weighs more in the dtypes' promotion."""
        operands = args[1:] if op == "where" else args
        types = [self.type_of(a) for a in operands]
        ours = promote([(t, bool(self.dims_of(a))) for t, a in zip(types, operands, strict=True) if t is not None])
        theirs = promote([(t, bool(a.shape)) for t, a in zip(types, operands, strict=True) if t is not None])
        if ours != theirs:
            self.doubt(f"torch would compute this in {theirs}, kgen in {ours}", span, "cast one of the operands, as in `x.float()`")

    def count_leading(self, op: str, x: Traced, dims: Dims, span: Span) -> None:
        """A doubt where a part of the tensors is summed over `...`: kgen counts the leading dims of all of them."""
        if ELLIPSIS not in dims or op not in _COUNTING or x.id is None:
            return
        reached = {str(self.scout.values[v].attr) for v in self.scout.reach([x.id]) if self.scout.values[v].op == "param"}
        other = next((p.name for p in self.scout.params.values() if ELLIPSIS in (p.dims or ()) and p.name not in reached), "")
        if other:
            self.doubt(
                f"this runs over the leading dims `...`, which `{other}` may widen",
                span,
                "name the dims in the parameters' types",
            )

    # ------------------------------------------------------------------------------------------ what a method reads of its object

    def attribute(self, owner: Owner, name: str, node: Any) -> Any:
        """An attribute of the method's object, or of one that it has: tensors and floats are parameters of the kernel.  Refuses what is
        not there, and dtypes that kernels do not have."""
        path = f"{owner.path}.{name}" if owner.path else name
        if path in self.live_values:
            return self.live_values[path]
        if not hasattr(owner.value, name):
            raise self.refuse(f"there is no `{name}` in this {type(owner.value).__name__}", node)
        value = getattr(owner.value, name)
        assert self.lives is not None
        if is_tensor(value) or isinstance(value, float):
            return self.live_param(path, value, node)
        if getattr(value, "__self__", None) is owner.value:
            return Owner(value.__func__, path)
        self.lives.read(path, value)
        if hasattr(value, "__dict__") and not isinstance(value, type) and not callable(getattr(value, "__code__", None)):
            return Owner(value, path) if getattr(value, "__code__", None) is None else Const(value)
        return self.from_outside(value, path, node)

    def live_param(self, path: str, value: Any, node: Any) -> Traced:
        """A parameter made of an attribute; the sizes of a tensor's axes are found where they meet others."""
        assert self.lives is not None
        span = self.span(node)
        stem, k = path.replace(".", "_"), 1
        name = stem
        while name in self.scout.params or name in self.scout.dims:
            k += 1
            name = f"{stem}_{k}"
        if not is_tensor(value):
            kind = Type(Name("float", span), None, span)
            self.lives.params[path] = Live(name, "float", None)
        else:
            if str(value.dtype).removeprefix("torch.") not in TORCH:
                raise self.refuse(f"`{path}` is a tensor of {value.dtype}", node, f"dtypes are {', '.join(TORCH)}")
            dtype, axes = self.lives.dtype(value), [self.splits.expand((d,)) for d in self.splits.axes_of(path, value.dim())]
            single = ones(value)
            axes = [a if k not in single else ("1",) if k == single[0] else (self.new_dim("P", "1", node),) for k, a in enumerate(axes)]
            dims = tuple(Name(d, span) for a in axes for d in a)
            factors = tuple(map(len, axes)) if any(len(a) > 1 for a in axes) else ()
            kind = Type(Name(dtype, span), dims, span, factors)
            self.lives.params[path] = Live(name, dtype, value.dim(), single)
        made = Param(Name(name, span), kind, None, span)
        self.scout.declare_param(made)
        self.live_params.append(made)
        for d in kind.dims or ():
            self.scout.dims.setdefault(d.name, d.span)
        shape = tuple(map(Axis, axes_of(syntax.dim_names(kind.dims), kind.factors)))
        found = Traced(Name(name, span), self.scout.names.get(name), shape, owner=name if kind.dims is not None else "")
        self.live_values[path] = self.without_ones(found, span)
        return self.live_values[path]

    # ------------------------------------------------------------------------------------------ equations

    def assign(self, name: str, value: Any, node: Any, span: Span) -> Any:
        """Bind a name: a computed value gets an equation, everything else is known by the name as it is."""
        if isinstance(value, Traced) and isinstance(value.expr, Apply) and not (self.splits.into and self.is_size(value)):
            value = self.equation(name, value, node, span)
        elif isinstance(value, Traced) and self.is_tensor(value) and not value.owner:  # a copy: `y = x.clone()`
            self.copies += 1
            value = replace(value, owner=f"{name}@{self.copies}")
        elif isinstance(value, Several):
            value = replace(value, items=tuple(self.assign(f"{name}_{f}", i, node, span) if isinstance(i, Traced) else i
                            for f, i in zip(value.fields or range(1, len(value.items) + 1), value.items, strict=True)))  # fmt: skip
        return value

    def equation(self, name: str, value: Traced, node: Any, span: Span) -> Traced:
        """An equation for a value; names are made unique by a number, which `named` takes away again."""
        if not name.isascii():
            raise self.refuse(f"the name `{name}` has letters outside ASCII", node, "a kernel's names are ASCII: letters, digits and `_`")
        if len(name) > syntax.MAX_NAME:
            raise self.refuse(f"a name may have at most {syntax.MAX_NAME} characters", node)
        unique = f"{name}#{len(self.equations) + 1}"
        body = value.expr
        self.equations.append(Equation(Name(unique, span), body, Span(min(span.start, body.span.start), body.span.end)))
        return replace(value, expr=Name(unique, span), owner=value.owner or unique)

    def is_size(self, x: Traced) -> bool:
        """Whether a value is made of sizes and numbers alone (`shape_calls.py`)."""
        raise NotImplementedError

    def kept(self, name: str, value: Traced, node: Any) -> Traced:
        """A value that is used more than once, under a name of its own."""
        return self.equation(name, value, node, value.expr.span) if isinstance(value.expr, Apply) else value

    # ------------------------------------------------------------------------------------------ the end

    def raise_any(self) -> None:
        """All errors at once, in the words of Python."""
        if self.torch:
            for message, span, help in self.doubts:
                self.scout.errors.add(message, span, help=help)
        try:
            self.scout.errors.raise_any()
        except KgenError as error:
            raise in_python(error) from None


_CALL = re.compile(r"\b([a-z_]+)\[((?:[A-Z]\w*|\.\.\.)(?:, (?:[A-Z]\w*|\.\.\.))*)\](?=\(|`)")


def in_python(error: KgenError) -> KgenError:
    """Errors of the language's, their advice spelled as Python has it."""

    def dims(found: re.Match) -> str:
        quoted = ", ".join(f'"{d}"' for d in found[2].split(", "))
        return f"{found[1]}[{quoted}]" if found[1] in ("index", "pick", *REDUCTIONS, *prelude()) else found[0]

    def words(text: str) -> str:
        return re.sub(r"(?<=[\w)])\^(?=[\w(-])", "**", _CALL.sub(dims, re.sub(r"#\d+", "", text)))

    return KgenError([Diagnostic(words(d.message), d.span, words(d.label), words(d.help)) for d in error.diagnostics], error.source)


def renamed(root: Expr, names: dict[str, str]) -> Expr:
    """A tree with its names changed."""
    return syntax.rebuilt(root, lambda n: replace(n, name=names[n.name]) if isinstance(n, Name) and n.name in names else n)


__all__ = ["Frame", "Refused", "Tracer", "dtype_name", "in_python", "renamed"]
