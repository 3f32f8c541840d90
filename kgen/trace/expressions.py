"""Python expressions to values: names looked up, operators applied, brackets read (`calls.py` has the calls)."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import numbers
import operator
import sys
from dataclasses import replace
from types import FunctionType, ModuleType
from typing import Any

from kgen import syntax
from kgen.expressions import prelude
from kgen.ops import CONSTANTS, OPS, REDUCTIONS
from kgen.syntax import Apply, Name, Num
from kgen.trace import names
from kgen.trace.axes import Axis
from kgen.trace.calls import Calls
from kgen.trace.clauses import dim_name
from kgen.trace.live import Owner
from kgen.trace.names import METHODS
from kgen.trace.tracer import Refused
from kgen.trace.values import Const, Dtype, Method, Ranked, Several, Shape, Spec, Traced
from kgen.types import BOOL, DTYPES, INT, Number, boolean, variable_of
from kgen.values import closest, did_you_mean

BINARY = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
          ast.BitAnd: "bitand", ast.BitOr: "bitor", ast.LShift: "shl", ast.RShift: "shr"}  # fmt: skip
COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
UNARY = {ast.USub: "neg", ast.UAdd: "pos", ast.Invert: "bitnot", ast.Not: "not"}
#: The most steps of a loop, which are read one after the other.
MOST_STEPS = 64
_REFUSED = {
    ast.Lambda: ("a lambda cannot be traced", "write a function with `def` and call it"),
    ast.SetComp: ("a comprehension cannot be traced", ""),
    ast.DictComp: ("a comprehension cannot be traced", ""),
    ast.Dict: ("a kernel has no dicts", "return several results as a tuple"),
    ast.Set: ("a kernel has no sets", ""),
    ast.JoinedStr: ("a kernel has no strings", ""),
    ast.NamedExpr: ("`:=` cannot be traced", "assign on a line of its own"),
    ast.Await: ("`await` cannot be traced", ""),
    ast.Yield: ("`yield` cannot be traced", "return the results as a tuple"),
    ast.YieldFrom: ("`yield` cannot be traced", "return the results as a tuple"),
    ast.Starred: ("`*` cannot be traced here", "write the values out"),
}


class Expressions(Calls):
    def eval(self, node: ast.expr) -> Any:
        """The value of an expression: Traced, Const, Spec, Dtype, Method, Several or Shape."""
        for kind, (message, help) in _REFUSED.items():
            if isinstance(node, kind):
                raise self.refuse(message, node, help)
        method = getattr(self, f"eval_{type(node).__name__}", None)
        if method is None:
            raise self.refuse(f"this {type(node).__name__.lower()} cannot be traced", node)
        value = method(node)
        if isinstance(value, Traced) and isinstance(value.expr, Apply) and self.frame.code.in_brackets(node) and not value.expr.parens:
            value = replace(value, expr=replace(value.expr, parens=True))
        return value

    # ------------------------------------------------------------------------------------------ names and literals

    def eval_Constant(self, node: ast.Constant) -> Any:
        value = node.value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            text = self.frame.code.text(node).replace("_", "")
            if text[:2].lower() in ("0b", "0o"):
                text = str(value)
            mantissa, _, power = text.lower().partition("e") if text[:2].lower() != "0x" else (text, "", "")
            if len(mantissa) > syntax.MAX_DIGITS:
                raise self.refuse(f"a number may have at most {syntax.MAX_DIGITS} digits", node)
            if power and abs(int(power)) > syntax.MAX_EXPONENT:
                raise self.refuse(f"an exponent may be at most {syntax.MAX_EXPONENT}", node)
            return Const(value, Num(text, self.span(node)))
        if isinstance(value, (complex, bytes)):
            raise self.refuse(f"a kernel has no {type(value).__name__} values", node)
        return Const(value)

    def eval_Name(self, node: ast.Name) -> Any:
        """What a name stands for: a local value, a dtype variable, something outside the function, a dim's size, a constant or a
        function of kgen's."""
        name, span = node.id, self.span(node)
        if name in self.frame.env:
            found = self.frame.env[name]
            return replace(found, expr=replace(found.expr, span=span)) if isinstance(found, Traced) else found
        outside = self.outside(name)
        if variable_of(name) in self.scout.variables and not (outside is not None and isinstance(outside[0], FunctionType)):
            return Spec(name)
        if outside is not None and outside[0] is not getattr(builtins, name, self):
            return self.from_outside(outside[0], name, node)
        if name in self.scout.dims or name in self.splits.into:
            return self.size(Axis(self.splits.expand((name,))), node)
        if name in CONSTANTS:
            return Const({"pi": math.pi, "inf": math.inf, "nan": math.nan}[name], Name(name, span))
        spec = name in OPS or name in REDUCTIONS or name in prelude() or name in DTYPES or name in ("index", "pick")
        if name not in ("bool",) and (spec or self.scout.is_function(name)):
            return Spec(name)
        if hasattr(builtins, name):
            return Const(getattr(builtins, name))
        if name in self.later:
            raise self.refuse(f"`{name}` is used before it has a value", node)
        known = [*self.frame.env, *self.scout.dims, *OPS, *REDUCTIONS, *prelude(), *CONSTANTS]
        raise self.refuse(f"`{name}` is not defined", node, did_you_mean(closest(name, known)))

    @property
    def later(self) -> set[str]:
        """The names that the function at hand assigns somewhere."""
        return set(self.frame.code.function.__code__.co_varnames)

    def outside(self, name: str) -> tuple[Any] | None:
        """What a name is outside the function: in what encloses it, in its module, among Python's own."""
        function = self.frame.code.function
        for free, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            if free == name:
                try:
                    return (cell.cell_contents,)
                except ValueError:
                    return None
        if name in self.frame.code.function.__code__.co_varnames:
            return None
        if name in function.__globals__:
            return (function.__globals__[name],)
        return (getattr(builtins, name),) if hasattr(builtins, name) else None

    def from_outside(self, value: Any, shown: str, node: ast.expr) -> Any:
        """A Python object as a value.  Refuses tensors: a kernel sees its parameters."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
            help = f'make it a parameter, as in `{shown.rpartition(".")[2]}: "T[N]"`'
            raise self.refuse(f"`{shown}` is a tensor from outside the function", node, help)
        if torch is not None and isinstance(value, torch.nn.Module):
            raise self.refuse(f"`{shown}` is a module", node, "call its function, as in `F.gelu(x)`, with its tensors as parameters")
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return Const(int(value))
        if isinstance(value, numbers.Real) and not isinstance(value, bool):
            value = float(value)
            name = {math.pi: "pi", math.inf: "inf"}.get(value, "nan" if math.isnan(value) else "")
            return Const(value, Name(name, self.span(node)) if name else None)
        return Const(value)

    def eval_Attribute(self, node: ast.Attribute) -> Any:
        """What an attribute is: of a traced value its dtype, shape, method and so on; of anything outside what Python has there."""
        of = self.eval(node.value)
        name, shown = node.attr, ast.unparse(node)
        if isinstance(of, Several) and name in of.fields:
            return of.items[of.fields.index(name)]
        if isinstance(of, Traced):
            self.torch = True
            if of.id is None:
                raise Refused
            if name == "dtype":
                return self.dtype_of(of, node)
            if name == "shape":
                return Shape(of.shape, of)
            if name == "ndim":
                return self.rank(of, node)
            if name in ("T", "mT"):
                if name == "T":
                    return self.call_t(shown, METHODS["t"], {"input": of}, node)
                return replace(of, shape=(*of.shape[:-2], *of.shape[:-3:-1]))
            if name == "device":
                return Const("device")
            if name in METHODS or self.is_torchs(name) or names.out_of_place(name) and not of.owner:
                return Method(name, of)
            raise self.unknown_method(name, of, node)
        if isinstance(of, Owner):
            return self.attribute(of, name, node)
        if isinstance(of, Const):
            try:
                found = getattr(of.value, name) if isinstance(of.value, ModuleType) else inspect.getattr_static(of.value, name)
                return self.from_outside(getattr(found, "__func__", found) if isinstance(found, staticmethod) else found, shown, node)
            except AttributeError:
                torch = sys.modules.get("torch")
                known = [n for n in dir(of.value) if torch is not None and isinstance(of.value, ModuleType)]
                raise self.refuse(f"there is no `{shown}`", node, did_you_mean(closest(name, known))) from None
        raise self.refuse(f"`{shown}` cannot be traced", node)

    def is_torchs(self, name: str) -> bool:
        """Whether tensors have a method that torch may take apart."""
        torch = sys.modules.get("torch")
        found = getattr(getattr(torch, "Tensor", None), name, None)
        return callable(found) and not name.endswith("_") and not names.advice(name)

    # ------------------------------------------------------------------------------------------ operators

    def eval_BinOp(self, node: ast.BinOp) -> Any:
        if isinstance(node.op, ast.MatMult):
            help = 'a sum over a dim is `sum["K"](a * b)`; keep products of matrices outside'
            raise self.refuse("`@` is a product of matrices", node, help)
        if isinstance(node.op, ast.BitXor):
            raise self.refuse("`^` is Python's exclusive or", node, "a power is written `x**2`; of bools it is `a != b`")
        return self.operate(type(node.op), self.eval(node.left), self.eval(node.right), node)

    def operate(self, kind: type[ast.operator], left: Any, right: Any, node: Any) -> Any:
        """An operator of two values: of constants the constant, of shapes both, of numbers of the call what Python's would be.  Refuses
        what the language has otherwise."""
        op = BINARY[kind]
        if op == "add" and (isinstance(left, (Shape, Several)) or isinstance(right, (Shape, Several))):
            return Several((*self.items(left, node), *self.items(right, node)))
        if isinstance(left, Const) and isinstance(right, Const):
            return self.folded(op, left, right, node)
        one, other = self.lift(left, getattr(node, "left", node)), self.lift(right, getattr(node, "right", node))
        if op == "pow" and self.type_of(one) == INT and isinstance(right, Const) and isinstance(right.value, int) and right.value < 0:
            other = self.number(float(right.value), getattr(node, "right", node))  # of Python's integers that is a float
        if op == "add" and self.type_of(one) == self.type_of(other) == BOOL:
            raise self.refuse("`+` of bools of the call is Python's sum of them", node, "choose numbers, as in `(1 if k > 0 else 0) + ...`")
        if op == "sub" and any(self.is_tensor(v) and self.type_of(v) == boolean for v in (one, other)):
            raise self.refuse("`-` of a bool tensor is torch's error", node, "write `~mask`, or cast it, as in `1 - mask.float()`")
        if op == "floordiv" and one.id is not None and not self.is_tensor(one) and not self.is_tensor(other):
            if (whole := self.quotient(one, other, node)) is not None:
                return whole
        if op == "pow" and isinstance(right, Const) and right.value in names.ROOTS and self.is_tensor(one):
            return self.apply(names.ROOTS[right.value], [one], node)
        return self.apply(op, [one, other], node, self.operator_span(node), "infix")

    def spread(self, node: ast.expr) -> tuple[Any, ...]:
        """The values of an argument or an element: several of `*x.shape`."""
        return self.items(self.eval(node.value), node) if isinstance(node, ast.Starred) else (self.eval(node),)

    def operator_span(self, node: Any) -> Any:
        """Where an infix operator stands: between its operands."""
        if not isinstance(node, ast.BinOp) or self.frame.at is not None:
            return node
        left, right = self.span(node.left), self.span(node.right)
        gap = self.frame.code.source.text[left.end : right.start]
        for symbol in ("**", "//", "<<", ">>", "+", "-", "*", "/", "%", "&", "|"):
            if symbol in gap:
                at = left.end + gap.index(symbol)
                return type(left)(at, at + len(symbol))
        return node

    def folded(self, op: str, left: Const, right: Const, node: Any) -> Const:
        """An operator of two constants: their value, and how it is spelled."""
        a, b = left.value, right.value
        if not all(isinstance(v, (int, float)) for v in (a, b)):
            raise self.refuse(f"`{ast.unparse(node)}` cannot be traced", node, "a kernel computes with numbers and tensors")
        if op == "pow" and (abs(a) > 1e6 or abs(b) > 400) and isinstance(a, int) and isinstance(b, int) or op == "shl" and abs(b) > 62:
            raise self.refuse("this number is too large", node)
        try:
            value = getattr(operator, OPS[op].notation.python)(a, b)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.refuse(f"`{ast.unparse(node)}`: {error}", node) from None
        if isinstance(value, complex):
            raise self.refuse("kernels have no complex numbers", node)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise self.refuse("this integer is too large for an i64", node, "write it with a decimal point to make it a float")
        whole = isinstance(a, int) and isinstance(b, int)
        if isinstance(a, bool) or isinstance(b, bool) or op == "pow" and whole and b < 0:  # Python's value, where the language has another
            return Const(value)
        one, other = (self.number(v, node, c.expr).expr for v, c in ((a, left), (b, right)))
        return Const(value, Apply(op, (one, other), self.span(node), self.span(node), "infix", parens=self.bracketed(node)))

    def bracketed(self, node: Any) -> bool:
        return isinstance(node, ast.expr) and self.frame.code.in_brackets(node)

    def eval_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """A sign, `not` or `~` of a value; of a constant the constant.  Refuses `~` of a bool of the call, which is Python's integer."""
        op, operand = UNARY[type(node.op)], self.eval(node.operand)
        if isinstance(operand, Const):
            if op == "not":
                return Const(not operand.value)
            if not isinstance(operand.value, (int, float)) or op == "bitnot" and not isinstance(operand.value, int):
                raise self.refuse(f"`{ast.unparse(node)}` cannot be traced", node)
            value = getattr(operator, OPS[op].notation.python)(operand.value)
            inner = self.number(operand.value, node.operand, operand.expr).expr
            return Const(value, Apply(op, (inner,), self.span(node), self.span(node), "prefix", parens=self.bracketed(node)))
        x = self.lift(operand, node.operand)
        if op == "bitnot" and self.type_of(x) == BOOL:
            raise self.refuse("`~` of a bool of the call is an integer", node, "write `not`")
        if op == "not" and x.id is not None and not isinstance(self.type_of(x), Number):
            return self.apply("not", [x], node, node, "prefix")
        return self.apply(op, [x], node, node, "prefix")

    def eval_BoolOp(self, node: ast.BoolOp) -> Any:
        """`and` or `or` of bools; a constant decides it or stands for nothing.  Refuses what is no bool: an operand comes out."""
        op = "and" if isinstance(node.op, ast.And) else "or"
        result: Any = None
        for k, part in enumerate(node.values):
            value = self.eval(part)
            if isinstance(value, Const):
                if bool(value.value) == (op == "or"):
                    return value if result is None else self.refuse_mixed(part)
                if k == len(node.values) - 1 and result is None:
                    return value
                if result is not None and not (isinstance(value.value, bool) and self.type_of(result) in (None, BOOL, boolean)):
                    raise self.refuse(f"`{op}` of what is no bool is one of its operands", part, "choose it, as in `3 if k > 0 else 0`")
                continue
            value = self.lift(value, part)
            result = value if result is None else self.apply(op, [result, value], node, node, "infix")
        return result

    def refuse_mixed(self, node: ast.expr) -> Any:
        raise self.refuse("a constant decides this", node, "write the constant alone")

    def eval_Compare(self, node: ast.Compare) -> Any:
        """A comparison, or several in a chain joined by `and`; one of constants is decided now."""
        left, result, before = self.eval(node.left), None, node.left
        for sign, part in zip(node.ops, node.comparators, strict=True):
            right = self.eval(part)
            if isinstance(sign, (ast.Is, ast.IsNot)):
                if not self.is_none(right):
                    raise self.refuse("`is` compares objects", node, "compare values with `==`")
                value: Any = Const(self.is_none(left) == isinstance(sign, ast.Is))
            elif type(sign) not in COMPARE:
                if not (isinstance(left, Const) and isinstance(right, (Const, Several))):
                    raise self.refuse("`in` cannot be traced", node, "compare with `==`, joined by `or`")
                inside = left.value in (right.value if isinstance(right, Const) else [i.value for i in right.items if isinstance(i, Const)])
                value = Const(inside == isinstance(sign, ast.In))
            elif isinstance(left, (Const, Dtype)) and isinstance(right, (Const, Dtype)):
                value = self.compared(COMPARE[type(sign)], left, right, node)
            else:
                one, other = self.lift(left, before), self.lift(right, part)
                value = self.apply(COMPARE[type(sign)], [one, other], node, node, "infix")
            if result is None or isinstance(result, Const) and result.value:
                result = value
            elif isinstance(result, Traced) and isinstance(value, Traced):
                result = self.apply("and", [result, value], node, node, "infix")
            left, before = right, part
        return result

    def compared(self, op: str, left: Any, right: Any, node: Any) -> Const:
        if isinstance(left, Dtype) or isinstance(right, Dtype):
            one, other = (self.dtype(v, node) for v in (left, right))
            if one != other and not (one in DTYPES and other in DTYPES):
                help = "a kernel is made for every dtype that its variables stand for"
                raise self.refuse("this dtype is known only at the call", node, help)
            return Const((one == other) == (op == "eq"))
        import operator

        try:
            return Const(bool(getattr(operator, op)(left.value, right.value)))
        except TypeError as error:
            raise self.refuse(f"`{ast.unparse(node)}`: {error}", node) from None

    def eval_IfExp(self, node: ast.IfExp) -> Any:
        test = self.eval(node.test)
        if isinstance(test, Const):
            return self.eval(node.body if test.value else node.orelse)
        args = [self.lift(test, node.test), self.value(node.body), self.value(node.orelse)]
        return self.apply("where", args, node, node, "where")

    # ------------------------------------------------------------------------------------------ brackets and calls

    def eval_Tuple(self, node: ast.Tuple | ast.List) -> Several:
        return Several(tuple(v for e in node.elts for v in self.spread(e)))

    eval_List = eval_Tuple

    def eval_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Several:
        """A comprehension over constants, or over values that are there one by one: its elements, as if they were written out."""
        if len(node.generators) != 1 or node.generators[0].is_async:
            raise self.refuse("this comprehension cannot be traced", node, "write out what it makes, or reduce over a dim")
        (over,), found, before = node.generators, list[Any](), dict(self.frame.env)
        for item in self.steps(over.iter):
            self.bind(over.target, item, node)
            if all(self.decided(test, "if") for test in over.ifs):
                found.append(self.eval(node.elt))
        self.frame.env = before
        return Several(tuple(found))

    eval_GeneratorExp = eval_ListComp

    def steps(self, node: ast.expr) -> tuple[Any, ...]:
        """What a loop goes over: constants, or values that are there one by one.  Refuses others, and more than `MOST_STEPS`."""
        over = self.eval(node)
        if isinstance(over, Traced) and over.id is None:
            raise Refused
        items = over.items if isinstance(over, Several) else over.value if isinstance(over, Const) else None
        if not isinstance(items, (range, tuple, list)):
            raise self.refuse("a kernel has no loops but those over constants", node, names.LOOPS)
        if len(items) > MOST_STEPS:
            help = f"a loop has at most {MOST_STEPS} steps; reduce over a dim, as in `sum[\"N\"](x)`"
            raise self.refuse(f"this loop has {len(items)} steps", node, help)
        return tuple(items) if isinstance(over, Several) else tuple(self.from_outside(i, "a step", node) for i in items)

    def eval_Subscript(self, node: ast.Subscript) -> Any:
        """What stands in brackets: a reduction's dims, an element of a tuple, list or dict, a traced value's new shape."""
        of = self.eval(node.value)
        if isinstance(of, Spec):
            elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            found: list[str] = []
            for e in elements:
                if isinstance(e, ast.Name) and e.id not in self.frame.env and self.outside(e.id) is None:
                    found.append(e.id)  # a bare N
                    continue
                value = self.eval(e)
                if not (isinstance(value, Const) and (isinstance(value.value, str) or value.value is ...)):
                    raise self.refuse("a dim's name is a string", e, f'as in `{of.name}["N"]`')
                found += ["..."] if value.value is ... else [dim_name(part.strip()) for part in value.value.split(",")]
            dims = self.splits.expand(found)
            if of.name == "index" and len(dims) > len(found) == 1:
                return replace(self.index_of(dims, node), free=True)
            return self.apply("index", [], node, node, "call", dims) if of.name == "index" else Spec(of.name, dims)
        if isinstance(of, Traced):
            return self.subscript(of, node)
        if isinstance(of, Ranked):
            return self.last_ranked(of, node)
        items = of.items if isinstance(of, Several) else of.axes if isinstance(of, Shape) else None
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            parts = [None if p is None else self.constant(self.eval(p), p, "an end of a slice") for p in ends]
            if isinstance(of, Shape):
                return self.shape_part(of, slice(*parts), node)
            if items is not None:
                return Several(items[slice(*parts)])
        at = None if isinstance(node.slice, ast.Slice) else self.constant(self.eval(node.slice), node.slice, "an index")
        if isinstance(of, Shape):
            return self.size(of.axes[self.place(at, of.axes, node)], node)
        if items is not None and isinstance(at, int) and -len(items) <= at < len(items):
            return items[at]
        if isinstance(of, Const) and isinstance(of.value, (tuple, list, dict)) and at is not None:
            try:
                return self.from_outside(of.value[at], ast.unparse(node), node)
            except (LookupError, TypeError):
                raise self.refuse(f"`{ast.unparse(node)}` is not there", node) from None
        raise self.refuse(f"`{ast.unparse(node.value)}` cannot be indexed", node)

    def shape_part(self, of: Shape, part: slice, node: Any) -> Shape:
        counted = [end for end in (part.start, part.stop) if end is not None and end >= 0]
        if any(a.leading for a in of.axes) and (counted or part.step is not None):
            raise self.refuse("this part of the shape holds the leading dims `...`", node, "count from the end, as in `x.shape[-1:]`")
        return Shape(of.axes[part], of.of)


__all__ = ["Expressions", "Refused"]
