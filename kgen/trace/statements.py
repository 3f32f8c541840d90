"""Python statements, one after the other: assignments make equations, what the kernel cannot do is refused."""

from __future__ import annotations

import ast
import sys
from typing import Any

from kgen.errors import Span
from kgen.trace.expressions import BINARY, Expressions
from kgen.trace.names import LOOPS, METHODS
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


#: The most steps of a loop, which are read one after the other.
MOST_STEPS = 64


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
            return Const(None) if node.value is None else self.eval(node.value)
        if isinstance(node, ast.Assign):
            if isinstance(node.targets[0], (ast.Tuple, ast.List)):
                self.unpacked[id(node.value)] = len(node.targets[0].elts)
            value = self.eval(node.value)
            for target in node.targets:
                self.bind(target, value, node)
                if isinstance(target, ast.Name):
                    value = self.frame.env[target.id]
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.bind(node.target, self.eval(node.value), node)
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
            if (changed := self.written_in_place(node.value)) is not None:
                target, call = changed
                self.bind(target, self.eval(call), node)
            elif not isinstance(node.value, ast.Constant):
                self.eval(node.value)
                raise self.refuse("this value goes nowhere", node, "give it a name, or remove it")
        elif not isinstance(node, ast.Pass):
            raise self.refuse(f"`{type(node).__name__.lower()}` cannot be traced", self.first_line(node))
        return None

    def looped(self, node: ast.For) -> Any:
        """A loop over constants, or over values that are there one by one: its steps, one after the other, as if they were written out.
        Gives what a step returns."""
        if over := next((n for n in ast.walk(node) if isinstance(n, (ast.Break, ast.Continue))), None):
            raise self.refuse(f"`{type(over).__name__.lower()}` cannot be traced", over, "choose the steps by the loop's constants")
        steps = self.eval(node.iter)
        if isinstance(steps, Shape) or not isinstance(steps, (Const, Several)):
            raise self.refuse(*self.no_loop(node.iter))
        if isinstance(steps, Const) and not isinstance(steps.value, (range, tuple, list)):
            raise self.refuse(*self.no_loop(node.iter))
        items = steps.items if isinstance(steps, Several) else steps.value
        if len(items) > MOST_STEPS:
            help = f"a loop has at most {MOST_STEPS} steps; reduce over a dim, as in `sum[\"N\"](x)`"
            raise self.refuse(f"this loop has {len(items)} steps", node.iter, help)
        for item in items:
            errors = len(self.scout.errors.found)
            self.bind(node.target, item if isinstance(steps, Several) else self.from_outside(item, "a step", node.iter), node)
            found = self.run(node.body)
            if found is not None or len(self.scout.errors.found) > errors:
                return found
        return self.run(node.orelse)

    def no_loop(self, node: Any) -> tuple[str, Any, str]:
        """What is told of a loop that cannot be written out."""
        return "a kernel has no loops but those over constants", node, LOOPS

    def written_in_place(self, node: ast.expr) -> tuple[ast.Name, ast.Call] | None:
        """`y.index_add_(...)` on a line of its own, as `y` and the call without the mark, where `y` is the function's own; None of other
        calls."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not isinstance(node.func.value, ast.Name):
            return None
        name, method = node.func.value.id, node.func.attr
        current = self.frame.env.get(name)
        if not isinstance(current, Traced) or not method.endswith("_") or method not in METHODS:
            return None
        if current.owner in self.scout.params or self.seen_elsewhere(name, current):
            return None
        made = ast.copy_location(ast.Attribute(node.func.value, method[:-1], ast.Load()), node.func)
        return node.func.value, ast.copy_location(ast.Call(made, node.args, node.keywords), node)

    def seen_elsewhere(self, name: str, current: Traced) -> bool:
        """Whether torch would keep a value under another name too."""
        others = (v for f in self.frames for k, v in f.env.items() if k != name and isinstance(v, Traced))
        return any(v.owner and v.owner == current.owner for v in others)

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

    def bind(self, target: ast.expr, value: Any, node: ast.stmt) -> None:
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
        if isinstance(value, Traced) and isinstance(current, Traced) and self.is_tensor(current) and value.id is not None:
            if self.type_of(value) != self.type_of(current) or value.shape != current.shape and not value.free:
                message = "torch cannot store this in place: its dtype or its dims are others"
                raise self.refuse(message, node.target, f"write `{name} = ...`")
        self.bind(node.target, value, node)

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


def replace_context(name: ast.Name) -> ast.Name:
    """The name as it is read."""
    return ast.copy_location(ast.Name(name.id, ast.Load()), name)


__all__ = ["Statements"]
