"""Python statements, one after the other: assignments make equations, what the kernel cannot do is refused."""

from __future__ import annotations

import ast
import copy
import sys
from typing import Any

from kgen.errors import Span
from kgen.trace.expressions import BINARY, Expressions
from kgen.trace.names import METHODS, out_of_place
from kgen.trace.tracer import Refused
from kgen.trace.values import Const, Several, Shape, Traced

_CHOOSE = "choose element by element: `a if condition else b`, or `torch.where(condition, a, b)`"
_REFUSED = {
    ast.AsyncFor: ("a kernel has no loops", ""),
    ast.While: ("a kernel has no loops", 'reduce over a dim, as in `sum["N"](x)`, or write the steps out'),
    ast.With: ("`with` cannot be traced", "call the kernel inside it instead; what has no gradient is `x.detach()`"),
    ast.AsyncWith: ("`with` cannot be traced", "call the kernel inside it instead"),
    ast.Try: ("`try` cannot be traced: a kernel raises nothing", "check the arguments before the call"),
    ast.Raise: ("a kernel raises nothing", "check the arguments before the call"),
    ast.Global: ("`global`: a kernel has no side effects", "return the new value as a result"),
    ast.Nonlocal: ("`nonlocal`: a kernel has no side effects", "return the new value as a result"),
    ast.Delete: ("`del` cannot be traced", "leave it away: values that are not used cost nothing"),
    ast.FunctionDef: ("a function inside a kernel cannot be traced", "define it outside and call it"),
    ast.AsyncFunctionDef: ("a function inside a kernel cannot be traced", "define it outside and call it"),
    ast.ClassDef: ("a class cannot be traced", ""),
}


class Statements(Expressions):
    def run(self, body: list[ast.stmt]) -> Any:
        """The value that the statements return; None where they return nothing.  A statement in error leaves its names
        without a value, and the next one is traced all the same."""
        for statement in body:
            try:
                found = self.statement(statement)
            except Refused:
                for target in ast.walk(statement):
                    if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                        self.frame.env[target.id] = self.poison(self.span(target))
                if isinstance(statement, ast.Return):
                    raise
                continue
            if found is not None:
                return found
        return None

    def statement(self, node: ast.stmt) -> Any:
        """Trace one statement; gives the value that it returns, or None where it goes on.  Refuses what cannot be traced."""
        for kind, (message, help) in _REFUSED.items():
            if isinstance(node, kind):
                raise self.refuse(message, self.first_line(node), help)
        if isinstance(node, ast.Return):
            return Const(None) if node.value is None else self.eval(self.written_first(node.value, node))
        if isinstance(node, ast.Assign):
            if isinstance(node.targets[0], (ast.Tuple, ast.List)):
                self.unpacked[id(node.value)] = len(node.targets[0].elts)
            value = self.eval(self.written_first(node.value, node))
            for target in node.targets:
                self.bind(target, value, node)
                if isinstance(target, ast.Name):
                    value = self.frame.env[target.id]
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.bind(node.target, self.eval(self.written_first(node.value, node)), node)
        elif isinstance(node, ast.AugAssign):
            self.augment(node)
        elif isinstance(node, ast.If):
            test = self.decided(node.test, "if")
            return self.run(node.body if test else node.orelse)
        elif isinstance(node, ast.For):
            return self.looped(node)
        elif isinstance(node, ast.Assert):
            if not self.decided(node.test, "assert"):
                raise self.refuse("this assertion does not hold", node.test)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imported(node)
        elif isinstance(node, ast.Expr):
            left = self.written_first(node.value, node)
            if left is node.value and not isinstance(left, ast.Constant) or not isinstance(left, (ast.Name, ast.Constant)):
                self.eval(left)
                raise self.refuse("this value goes nowhere", node, "give it a name, or remove it")
        elif not isinstance(node, ast.Pass):
            raise self.refuse(f"`{type(node).__name__.lower()}` cannot be traced", self.first_line(node))
        return None

    def looped(self, node: ast.For) -> Any:
        """A loop over constants, or over values that are there one by one: its steps, one after the other, as if they were written out.
        Gives what a step returns."""
        if over := next((n for n in ast.walk(node) if isinstance(n, (ast.Break, ast.Continue))), None):
            raise self.refuse(f"`{type(over).__name__.lower()}` cannot be traced", over, "choose the steps by the loop's constants")
        for item in self.steps(node.iter):
            errors = len(self.scout.errors.found)
            self.bind(node.target, item, node)
            found = self.run(node.body)
            if found is not None or len(self.scout.errors.found) > errors:
                return found
        return self.run(node.orelse)

    def written_first(self, node: ast.expr, at: ast.stmt) -> ast.expr:
        """`y.mul_(2).add_(1)` at the beginning of a statement, where `y` is the function's own: `y` has the new value, and stands for what
        was written.  Other expressions as they are."""
        calls: list[ast.Call] = []
        inner = node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            calls.append(inner)
            inner = inner.func.value
        written: ast.expr | None = None
        for call in calls[::-1]:
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            plain = method[:-1] if method.endswith("_") and method in METHODS else out_of_place(method)
            if not isinstance(inner, ast.Name) or not plain or not self.is_own(inner.id):
                break
            current = self.frame.env[inner.id]
            made = ast.copy_location(ast.Attribute(inner, plain, ast.Load()), call.func)
            value = self.eval(ast.copy_location(ast.Call(made, call.args, call.keywords), call))
            self.bind(inner, self.stored(current, value, call) if method not in METHODS else value, at)
            written = call
        return node if written is None else replaced(node, written, inner)

    def is_own(self, name: str) -> bool:
        """Whether a name stands for a tensor that the function has made, and nothing else does."""
        current = self.frame.env.get(name)
        return isinstance(current, Traced) and current.owner not in self.scout.params and not self.seen_elsewhere(name, current)

    def seen_elsewhere(self, name: str, current: Traced) -> bool:
        """Whether torch would keep a value under another name too."""
        others = (v for f in self.frames for k, v in f.env.items() if k != name or f is not self.frame)
        return any(owner and owner == current.owner for v in others for owner in self.owners(v))

    def owners(self, value: Any) -> list[str]:
        """Whose memory a value shares, with those that a tuple has."""
        if isinstance(value, Several):
            return [owner for item in value.items for owner in self.owners(item)]
        return [value.owner] if isinstance(value, Traced) else []

    def first_line(self, node: ast.stmt) -> Any:
        """The word that a statement begins with."""
        if self.frame.at is not None and self.frame.code.source == self.code.source:
            return self.frame.at
        span = self.frame.code.span(node)
        text = self.frame.code.source.text[span.start : span.end]
        word = next((k for k, c in enumerate(text) if not (c.isalnum() or c == "_")), len(text))
        return Span(span.start, span.start + max(1, word))

    def decided(self, test: ast.expr, word: str) -> bool:
        """A condition that is known while tracing."""
        value = self.eval(test)
        if isinstance(value, Const):
            return bool(value.value)
        if isinstance(value, (Several, Shape)):
            return bool(value.items if isinstance(value, Several) else value.axes)
        if isinstance(value, Traced) and value.id is None:
            raise Refused
        tensor = isinstance(value, Traced) and self.depends_on_tensor(value)
        what = "a tensor's value" if tensor else "a value that is known only at the call"
        help = _CHOOSE if word == "if" else "check the arguments before the call"
        raise self.refuse(f"`{word}` on {what}", test, help)

    def depends_on_tensor(self, value: Traced) -> bool:
        return value.id is not None and any(
            self.scout.values[v].op == "param" and self.scout.params[str(self.scout.values[v].attr)].is_tensor
            for v in self.scout.reach([value.id])
        )

    def bind(self, target: ast.expr, value: Any, node: ast.AST) -> None:
        """Give names to a value, several to several; refuses what is no name."""
        if isinstance(target, ast.Name):
            self.frame.env[target.id] = self.assign(target.id, value, target, self.span(target))
        elif isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, Traced) and value.id is None:
                raise Refused
            if isinstance(value, Shape):
                value = Several(tuple(self.size(a, target) for a in value.axes))
            if isinstance(value, Const) and isinstance(value.value, (tuple, list)):
                value = Several(tuple(Const(v) for v in value.value))
            if not isinstance(value, Several):
                raise self.refuse("this is one value, not several", target)
            if any(isinstance(t, ast.Starred) for t in target.elts) or len(target.elts) != len(value.items):
                raise self.refuse(f"there are {len(value.items)} values for {len(target.elts)} names", target)
            for t, v in zip(target.elts, value.items, strict=True):
                if not (isinstance(t, ast.Name) and t.id.startswith("_")):  # what is thrown away gets no equation
                    self.bind(t, v, node)
                    if value.fields and isinstance(t, ast.Name) and isinstance(made := self.frame.env[t.id], Traced):
                        self.spare.append(made)
        else:
            what = ast.unparse(target)
            inner = target.value if isinstance(target, ast.Subscript) else None
            tensor = isinstance(inner, ast.Name) and isinstance(self.frame.env.get(inner.id), Traced)
            message = f"`{what} = ...` {'writes into a tensor' if tensor else 'changes what is outside'}"
            raise self.refuse(message, target, "a kernel has no side effects: compute the new value and return it")

    def augment(self, node: ast.AugAssign) -> None:
        """`x += 1`: a new value under the old name; refused where torch would change memory that is seen elsewhere."""
        if not isinstance(node.target, ast.Name):
            what = ast.unparse(node.target)
            help = "a kernel has no side effects: compute the new value and return it"
            raise self.refuse(f"`{what}` is changed in place", node.target, help)
        name = node.target.id
        if name not in self.frame.env:
            raise self.refuse(f"`{name}` has no value of its own here", node.target, f"write `{name} = {name} + ...` under a new name")
        old = replace_context(node.target)
        current = self.eval(old)
        if isinstance(current, Traced) and self.is_tensor(current):
            if self.seen_elsewhere(name, current) or current.owner in self.scout.params:
                sign = ast.get_source_segment(self.frame.code.source.text, node) or ""
                whose = f"the caller's `{current.owner}`" if current.owner in self.scout.params else "another name's value too"
                raise self.refuse(
                    f"in torch this changes {whose}", node.target,
                    f"write `{name} = {name} {sign.split('=')[0].removeprefix(name).strip() or '+'} ...`",
                )  # fmt: skip
        if type(node.op) not in BINARY:
            raise self.refuse("this operator cannot be traced", node.target, "a power is written `x**2`")
        value = self.operate(type(node.op), current, self.eval(node.value), node)
        self.bind(node.target, self.stored(current, value, node.target) if isinstance(current, Traced) else value, node)

    def imported(self, node: ast.Import | ast.ImportFrom) -> None:
        """An import of what is loaded already."""
        for alias in node.names:
            path = alias.name if isinstance(node, ast.Import) else node.module or ""
            module = sys.modules.get(path)
            if module is None or isinstance(node, ast.ImportFrom) and (node.level or not hasattr(module, alias.name)):
                raise self.refuse("an import inside a kernel", self.first_line(node), "import it above the function")
            if isinstance(node, ast.ImportFrom):
                self.frame.env[alias.asname or alias.name] = Const(getattr(module, alias.name))
            else:
                top = path if alias.asname else path.partition(".")[0]
                self.frame.env[alias.asname or top] = Const(sys.modules[top])


def replaced(node: ast.expr, old: ast.expr, new: ast.expr) -> ast.expr:
    """A chain of calls and attributes with another expression at its beginning."""
    if node is old:
        return new
    made = copy.copy(node)
    if isinstance(made, ast.Call):
        made.func = replaced(made.func, old, new)
    elif isinstance(made, ast.Attribute):
        made.value = replaced(made.value, old, new)
    return made


def replace_context(name: ast.Name) -> ast.Name:
    """The name as it is read."""
    return ast.copy_location(ast.Name(name.id, ast.Load()), name)
