"""Calls: of the language's functions, of torch's, of Python's own, and of plain functions, which are traced in their turn."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import sys
from dataclasses import replace
from functools import reduce
from types import FunctionType
from typing import Any

from kgen import syntax, typeset
from kgen.errors import KgenError
from kgen.ops import CONSTANTS
from kgen.syntax import Apply, Expr, Helper, Name
from kgen.trace import names
from kgen.trace.decomposed import Decomposed
from kgen.trace.live import Owner
from kgen.trace.names import METHODS
from kgen.trace.source import Code, code_of
from kgen.trace.tracer import Frame, Refused
from kgen.trace.values import Const, Method, Several, Shape, Spec, Traced
from kgen.types import DTYPES
from kgen.values import closest, did_you_mean

MAX_CALLS = 32
_VALUES = {"float": "its value is not known while the function is traced", "int": "its value is not known while the function is traced",
           "bool": "its truth is not known while the function is traced", "complex": "kernels have no complex numbers"}  # fmt: skip


class Calls(Decomposed):
    def eval_Call(self, node: ast.Call) -> Any:
        """What a call gives: a method, operator or torch function of traced values, a helper or function that is traced in turn,
        or a constant."""
        shown = ast.unparse(node.func)
        function = self.eval(node.func)
        for k in node.keywords:
            if k.arg is None:
                raise self.refuse("`**` cannot be traced here", k.value, "write the arguments out")
        name = shown.rpartition(".")[2]
        if isinstance(function, Method):
            args = [function.of, *self.arguments(node)]
            if plain := names.out_of_place(function.name):
                made = self.call_row(f".{plain}", METHODS[plain], args, self.keywords(node), node)
                return self.stored(function.of, made, node)
            if function.name not in METHODS:
                return self.decomposed(getattr(sys.modules["torch"].Tensor, function.name), shown, args, self.keywords(node), node)
            return self.call_row(f".{function.name}", METHODS[function.name], args, self.keywords(node), node)
        if isinstance(function, Spec):
            return self.call_spec(function, node)
        if isinstance(function, Owner):
            return self.call_owner(function, shown, node)
        if not isinstance(function, Const):
            raise self.refuse(f"`{shown}` cannot be called", node)
        found = names.of_object(function.value)
        if found is not None:
            return self.call_row(shown, found[1], self.arguments(node), self.keywords(node), node)
        thing = function.value
        if getattr(thing, "__module__", None) == "math" and name in dir(math) and getattr(math, thing.__name__, None) is thing:
            return self.call_math(thing, shown, node)
        if getattr(builtins, getattr(thing, "__name__", ""), None) is thing:
            return self.call_builtin(thing, shown, node)
        if getattr(thing, "__name__", "") in ("finfo", "iinfo") and (info := self.info(thing, node)) is not None:
            return info
        if isinstance(getattr(thing, "__wrapped__", None), FunctionType) and hasattr(thing, "kernel"):
            return self.call_kernel(thing, shown, node)
        module = getattr(thing, "__module__", None) or ""
        if isinstance(thing, FunctionType) and module.split(".")[0] not in ("torch", "numpy"):
            return self.enter(thing, shown, self.arguments(node), self.keywords(node), node)
        if not names.advice(name) and (module.split(".")[0] == "torch" or type(thing).__module__.split(".")[0] == "torch"
                                       or getattr(sys.modules.get("torch"), name, None) is thing):  # fmt: skip
            value = self.decomposed(thing, shown, self.arguments(node), self.keywords(node), node)
            if value is not None:
                return value
        raise self.unknown_function(shown, name, node.func)

    def stored(self, into: Traced, value: Any, node: Any) -> Any:
        """A value that torch writes over another.  Refuses one that has not the dtype and the dims of that."""
        if isinstance(value, Traced) and value.id is not None and self.is_tensor(into):
            if self.type_of(value) != self.type_of(into) or value.shape != into.shape and not value.free:
                message = "torch cannot store this in place: its dtype or its dims are others"
                raise self.refuse(message, node, "give it a name: `y = ...`")
        return value

    def info(self, thing: Any, node: ast.Call) -> Several | None:
        """What `torch.finfo` says of a dtype that the function names; None where the call decides the dtype."""
        args = self.arguments(node)
        name = self.dtype(args[0], node) if len(args) == 1 else ""
        if name not in DTYPES:
            return None
        found = thing(getattr(sys.modules["torch"], DTYPES[name].torch))
        fields = tuple(f for f in ("min", "max", "eps", "tiny", "smallest_normal", "resolution", "bits") if hasattr(found, f))
        return Several(tuple(Const(getattr(found, f)) for f in fields), fields)

    def call_owner(self, function: Owner, shown: str, node: ast.Call) -> Any:
        """A method of the object, or a module that it has, whose `forward` is read."""
        assert self.lives is not None
        thing, path = function.value, function.path
        if isinstance(thing, FunctionType):  # a method of what stands before the last name
            path = path.rpartition(".")[0]
            owner = Owner(self.lives.at(self.lives.owner, path) if path else self.lives.owner, path)
        else:
            owner, thing = function, getattr(type(thing), "forward", None)
        thing = getattr(thing, "__wrapped__", thing)
        if not isinstance(thing, FunctionType):
            raise self.refuse(f"`{shown}` cannot be called", node)
        return self.enter(thing, shown, [owner, *self.arguments(node)], self.keywords(node), node)

    def arguments(self, node: ast.Call) -> list[Any]:
        return [v for a in node.args for v in self.spread(a)]

    def keywords(self, node: ast.Call) -> dict[str, Any]:
        return {k.arg: self.eval(k.value) for k in node.keywords if k.arg is not None}

    def call_spec(self, function: Spec, node: ast.Call) -> Traced:
        """What a function of the language gives, over the dims that its name says; Python's `sum` of a list is one of its elements."""
        if node.keywords:
            raise self.refuse(f"`{function.name}` takes its arguments by position", node.keywords[0])
        if function.name == "sum" and function.dims is None and len(node.args) == 1:
            if isinstance(terms := self.eval(node.args[0]), Several) and terms.items:  # Python's own, of a list
                values = [self.lift(t, node) for t in terms.items]
                made = reduce(lambda a, b: self.apply("add", [a, b], node, node.func, "infix"), values)
                return replace(made, expr=replace(made.expr, parens=True)) if isinstance(made.expr, Apply) else made
        args = [self.value(a) for a in node.args]
        if function.dims is not None:
            self.refuse_short(function.name, args, node)
        head = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        if function.name in ("max", "min") and function.dims is None and len(args) > 2:
            made = args[0]
            for other in args[1:]:
                made = self.apply(function.name, [made, other], node, head)
            return made
        return self.apply(function.name, args, node, head, "call", function.dims)

    def call_math(self, thing: Any, shown: str, node: ast.Call) -> Any:
        """Python's `math`: on constants, and on numbers of the call."""
        args = [self.eval(a) for a in node.args]
        if node.keywords:
            raise self.refuse(f"`{shown}` cannot be traced with keywords", node)
        value = None
        if all(isinstance(a, Const) for a in args):
            try:
                value = thing(*(a.value for a in args))
            except (ArithmeticError, TypeError, ValueError) as error:
                raise self.refuse(f"`{shown}`: {error}", node) from None
        op = names.MATH.get(thing.__name__)
        if value is not None and (op is None or isinstance(value, (bool, int))):
            return Const(value)
        values = [self.lift(a, n) for a, n in zip(args, node.args, strict=True)]
        if op is None:
            help = names.advice(thing.__name__) or did_you_mean(closest(thing.__name__, list(names.MATH)))
            raise self.refuse(f"kgen does not know `{shown}`", node, help)
        if any(self.is_tensor(v) for v in values):
            raise self.refuse(f"`{shown}` takes numbers, not tensors", node, f"write `torch.{op}(...)`, or kgen's own `{op}(...)`")
        made = self.apply(op, values, node, node.func)
        return Const(value, made.expr) if value is not None else made

    def call_builtin(self, thing: Any, shown: str, node: ast.Call) -> Any:
        """What a Python builtin gives for constants; refuses it for traced values, with what to write instead."""
        args = [self.eval(a) for a in node.args]
        if thing in (float, int, bool) and len(args) == 1 and isinstance(args[0], Const):
            try:
                return self.from_outside(thing(args[0].value), shown, node)
            except (TypeError, ValueError) as error:
                raise self.refuse(f"`{ast.unparse(node)}`: {error}", node) from None
        if thing is len and len(args) == 1 and isinstance(args[0], (Several, Shape)):
            return Const(len(args[0].items)) if isinstance(args[0], Several) else self.rank(args[0].of, node)
        if thing.__name__ in _VALUES and args:
            cast = {"float": "`f32(x)` or ", "int": "`i64(x)` or "}.get(thing.__name__, "")
            raise self.refuse(f"`{shown}(...)`: {_VALUES[thing.__name__]}", node, f"a cast is {cast}`x.{shown}()`")
        if thing is print:
            raise self.refuse("a kernel has no side effects: `print` would do nothing when it runs", node, "print its results")
        if thing is range and not node.keywords:
            if not all(isinstance(a, Const) for a in args):
                raise self.refuse("a kernel has no loops but those over constants", node, names.LOOPS)
            ends = [a.value for a in args]
            try:
                return Const(range(*ends))
            except (TypeError, ValueError) as error:
                raise self.refuse(f"`{ast.unparse(node)}`: {error}", node) from None
        if thing is enumerate and len(args) == 1:
            return Several(tuple(Several((Const(k), v)) for k, v in enumerate(self.items(args[0], node))))
        if thing is zip and args:
            return Several(tuple(Several(pair) for pair in zip(*(self.items(a, node) for a in args), strict=False)))
        raise self.unknown_function(shown, shown, node.func)

    # ------------------------------------------------------------------------------------------ functions of the user's

    def call_kernel(self, thing: Any, shown: str, node: ast.Call) -> Any:
        """Another traced kernel: its function is entered; what it stores in a dtype of its own is cast to that."""
        if any(r.state for r in thing.kernel.results):
            raise self.refuse(f"`{shown}` writes in place and cannot be part of a kernel", node)
        found = self.enter(thing.__wrapped__, shown, self.arguments(node), self.keywords(node), node)
        values = found.items if isinstance(found, Several) else (found,)
        cast = []
        for v, r in zip(values, thing.kernel.results, strict=True):
            x = self.lift(v, node)
            if x.id is not None and r.dtype in DTYPES and self.dtype_of(x, node).name != r.dtype:
                x = self.apply(r.dtype, [x], node)
            cast.append(x)
        return Several(tuple(cast)) if isinstance(found, Several) else cast[0]

    def enter(self, function: FunctionType, shown: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        """A plain function of the user's: a helper where it is one expression without dims, else its lines one by one."""
        if len(self.frames) >= MAX_CALLS or any(f.code.function is function for f in self.frames):
            raise self.refuse(f"`{shown}` calls itself", node, "a kernel has no recursion")
        try:
            code = code_of(function)
        except KgenError as error:
            raise self.refuse(str(error.diagnostics[0].message), node, error.diagnostics[0].help) from None
        try:
            filled = inspect.signature(function).bind(*args, **kwargs)
        except TypeError as error:
            raise self.refuse(f"`{shown}`: {error}", node) from None
        given = dict(filled.arguments)
        for p in inspect.signature(function).parameters.values():
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                raise self.refuse(f"`{shown}` takes any number of arguments", node, "give it a fixed number of them")
            if p.name not in given:
                given[p.name] = self.from_outside(p.default, p.name, node)
        at = self.frame.at or (self.span(node) if code.source != self.code.source else None)
        made = self.as_helper(code, given, node, at)
        return made if made is not None else self.inlined(code, given, node, at)

    def as_helper(self, code: Code, given: dict[str, Any], node: ast.Call, at: Any) -> Traced | None:
        """The value of a call of a function that is one expression, as a helper of the spec; None where it cannot be one, and all
        is as it was."""
        body = [s for s in code.node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        name = code.node.name
        if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None or not given:
            return None
        if self.scout.is_function(name) and name not in self.helpers or name in ("index", "pick") or not name.isascii():
            return None
        values = {k: self.lift(v, node) for k, v in given.items() if isinstance(v, Traced) or _is_number(v)}
        if len(values) < len(given) or any(p in self.scout.dims or p in DTYPES or p in CONSTANTS for p in given):
            return None
        span, mark = self.span(node), len(self.equations)
        errors, doubts, helpers = len(self.scout.errors.found), len(self.doubts), set(self.helpers)
        self.frames.append(Frame(code, {k: replace(v, expr=Name(k, span)) for k, v in values.items()}, at))
        try:
            value = self.eval(body[0].value)
        except (Refused, KgenError):
            value = None  # inlined, its constants are known, and may choose: there it is right, or told
        finally:
            self.frames.pop()
        if len(self.scout.errors.found) > errors:
            value = None
            del self.scout.errors.found[errors:]
        if isinstance(value, Traced) and value.id is not None and len(self.equations) == mark and self.self_contained(value.expr, given):
            made = Helper(Name(name, span), (), tuple(Name(p, span) for p in given), value.expr, span)
            same = self.helpers.get(name)
            if same is None:
                self.helpers[name] = self.scout.helpers[name] = made
            if same is None or typeset.format_statement(same) == typeset.format_statement(made):
                call = Apply(name, tuple(v.expr for v in values.values()), span, self.span(node.func))
                return replace(value, expr=call)
        del self.equations[mark:], self.doubts[doubts:]
        for left in [h for h in self.helpers if h not in helpers]:
            del self.helpers[left], self.scout.helpers[left]
        return None

    def self_contained(self, expr: Expr, params: dict[str, Any]) -> bool:
        """Whether an expression sees its arguments alone, as a helper does."""
        return all(
            (node.name in params or node.name in CONSTANTS) if isinstance(node, Name) else not isinstance(node, Apply) or node.dims is None
            for node in syntax.postorder(expr)
        )

    def inlined(self, code: Code, given: dict[str, Any], node: ast.Call, at: Any) -> Any:
        env = {k: self.kept(k, v, node) if isinstance(v, Traced) else v for k, v in given.items()}
        self.frames.append(Frame(code, env, at))
        try:
            found = self.run(code.node.body)
        finally:
            self.frames.pop()
        if found is None:
            raise self.refuse(f"`{ast.unparse(node.func)}` returns nothing", node)
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, Const) and isinstance(value.value, (int, float)) and not isinstance(value.value, bool)
