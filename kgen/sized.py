"""Sizes that follow from others: what a header's `where` says.

In: clauses (`where E = B + 1`), and sizes and numbers that are known.  Out: the sizes of the other dims: a clause gives its dim's, or,
where that is known and the clause is affine in the one size that is not, that one's.  Sizes may be symbolic, as torch's are in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kgen.nodes import Apply, Clause, Equation, Expr, File, Header, Name, Num, Statement, folded, postorder, rebuilt
from kgen.types import ELLIPSIS, is_literal, literal_size

#: The operators of sizes, on integers.
OPERATORS: Mapping[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "neg": lambda a: -a, "pos": lambda a: a, "min": lambda a, b: a if a <= b else b,
    "max": lambda a, b: a if a >= b else b,
}  # fmt: skip
MAX_SIZE = 2**63


class Unsized(Exception):
    """A size that a call does not give; the message says which, with the numbers."""


def names(root: Expr) -> tuple[str, ...]:
    """The dims and numbers that an expression is made of, literals aside."""
    found = (node.name for node in postorder(root) if isinstance(node, Name))
    return tuple(dict.fromkeys(name for name in found if not is_literal(name)))


def value(root: Expr, known: Mapping[str, Any]) -> Any:
    """The value of an expression of sizes.  Raises `ZeroDivisionError`."""
    form = linear(root, known, "")
    assert form is not None
    return form[1]


def linear(root: Expr, known: Mapping[str, Any], open_: str) -> tuple[Any, Any] | None:
    """(a, b) where an expression is a * open_ + b; None where it is not of that form.  Raises `ZeroDivisionError`."""

    def of(node: Expr, args: list[tuple[Any, Any] | None]) -> tuple[Any, Any] | None:
        if isinstance(node, Num):
            return 0, int(node.text, 0)
        if isinstance(node, Apply):
            return _applied(node.op, args)
        return (1, 0) if node.name == open_ else (0, literal_size(node.name) if is_literal(node.name) else known.get(node.name))

    return folded(root, of)


def _applied(op: str, args: Sequence[tuple[Any, Any] | None]) -> tuple[Any, Any] | None:
    """An operator applied to forms a * n + b."""
    forms = [a for a in args if a is not None]
    if len(forms) < len(args):
        return None
    moving = [f for f in forms if not (isinstance(f[0], int) and f[0] == 0)]
    if not moving:
        made = forms[0][1]
        if len(forms) < 2:
            return 0, OPERATORS[op](made)
        for _, other in forms[1:]:
            made = OPERATORS[op](made, other)
        return 0, made
    if op in ("add", "sub", "neg", "pos"):
        return OPERATORS[op](*(f[0] for f in forms)), OPERATORS[op](*(f[1] for f in forms))
    if op == "mul" and len(moving) == 1:
        (a, b), by = moving[0], next(f[1] for f in forms if f is not moving[0])
        return a * by, b * by
    return None


def follows(clauses: Iterable[Clause], known: Collection[str]) -> set[str]:
    """The names whose values are known where some are: `known`, and what clauses make of them, or are solved for."""
    found = {*known}
    left = list(clauses)
    while True:
        ready = [c for c in left if (free := unknown(c, found)) is not None and len(free) < 2]
        if not ready:
            return found
        for c in ready:
            found |= {*names(c.value), c.name.name}
            left.remove(c)


def needed(clauses: Sequence[Clause], wanted: Collection[str], given: Collection[str]) -> set[str]:
    """The dims among those `given` by tensors, and the numbers, from which the sizes of some dims follow."""
    found: set[str] = set()
    todo, seen = [*wanted], {*wanted}
    while todo:
        name = todo.pop()
        of = [c for c in clauses if name == c.name.name] or [c for c in clauses if name in names(c.value)]
        if name in given or not of or not name[0].isupper():
            found.add(name)
            continue
        more = {n for c in of[:1] for n in (c.name.name, *names(c.value))} - seen
        seen |= more
        todo += more
    return found


def unknown(clause: Clause, known: Collection[str]) -> tuple[str, ...] | None:
    """The names of a clause that are not known, where it can be solved for one: its own dim, or what it is affine in; else None."""
    read = names(clause.value)
    free = tuple(n for n in (clause.name.name, *read) if n not in known)
    if len(free) == 1 and free[0] in read:
        slope = linear(clause.value, dict.fromkeys(read, 1), free[0])
        return free if slope is not None and free[0][0].isupper() else None
    return free


def resolve(clauses: Iterable[Clause], known: dict[str, Any], written: Callable[[Expr], str]) -> None:
    """Add to `known` what clauses give, and hold what is known already to them.

    Raises `Unsized` where a size is below 0, where two differ, and where a clause has no whole solution; `written` is an expression's text.
    """
    left = list(clauses)
    while left:
        free = [unknown(c, known) for c in left]
        ready = [c for c, names_ in zip(left, free, strict=True) if names_ in ((), (c.name.name,))]  # before one is solved
        ready = ready or [c for c, names_ in zip(left, free, strict=True) if names_ is not None and len(names_) == 1][:1]
        if not ready:
            return
        for c in ready:
            _settle(c, known, written(c.value))
            left.remove(c)


def _settle(clause: Clause, known: dict[str, Any], text: str) -> None:
    """Add what one clause gives to what is known."""
    dim, read = clause.name.name, names(clause.value)
    what, by = (f"an axis {text}", "") if clause.inline else (dim, f" = {text}")
    free = next((n for n in read if n not in known), "")
    told = ", ".join(f"{n} is {known[n]}" for n in read if n in known)
    numbers = told and f" ({told})"
    try:
        form = linear(clause.value, known, free)
    except ZeroDivisionError:
        raise Unsized(f"{what}{by} divides by zero{numbers}") from None
    assert form is not None
    slope, rest = form
    if free:
        left = known[dim] - rest
        if slope == 0 or left % slope or left // slope < 0:
            raise Unsized(f"{what} is {known[dim]}: there is no {free} for which {text} is that{numbers}")
        known[free] = left // slope
    elif rest < 0 or isinstance(rest, int) and rest >= MAX_SIZE:
        raise Unsized(f"{what}{by} is {rest}, which is no size{numbers}")
    elif dim in known and known[dim] != rest:
        raise Unsized(f"{what} is {known[dim]}, but {text} is {rest}{numbers}")
    known.setdefault(dim, rest)


# --------------------------------------------------------------------------------------------- literals with names


def constants(clauses: Iterable[Clause]) -> dict[str, int]:
    """The dims whose clauses are made of literals alone, with their sizes."""
    found: dict[str, int] = {}
    left = list(clauses)
    while True:
        ready = [c for c in left if set(names(c.value)) <= found.keys() and c.name.name not in found and allowed(c.value) is None]
        for c in ready:
            try:
                found[c.name.name] = value(c.value, found)
            except ZeroDivisionError:
                found[c.name.name] = 0
            left.remove(c)
        if not ready:
            return found


def allowed(root: Expr) -> Expr | None:
    """The first part of an expression that sizes cannot be made of."""
    for node in postorder(root):
        if isinstance(node, Num):
            fits = node.text.isdigit() or node.text[:2].lower() == "0x"
        elif isinstance(node, Name):
            fits = node.name != ELLIPSIS and not node.name.endswith("'")
        else:
            fits = node.op in OPERATORS and node.dims is None and (len(node.args) > 1 or node.written == "prefix")
        if not fits:
            return node
    return None


def named(file: File) -> File:
    """The file in which a dim that a clause calls by a literal is that literal, with its name behind it: `where P = 4` makes P `4_P`."""
    header = next((s for s in file.statements if isinstance(s, Header)), None)
    sizes = constants(header.clauses) if header is not None else {}
    called = {name: f"{size}_{name}" for name, size in sizes.items() if 0 < size < 2**31 and name[0].isupper()}
    if header is None or not called:
        return file
    made = with_dims(file, lambda d: replace(d, name=called.get(d.name, d.name)))

    def clause(c: Clause, was: Clause) -> Clause:
        return was if was.name.name in called else c

    return _with_clauses(made, lambda clauses: tuple(map(clause, clauses, header.clauses)))


def inlined(file: File, clauses: Iterable[Clause]) -> File:
    """The file in which dims that some clauses are written as axes for are written so again."""
    said = {c.name.name: c.value for c in clauses if c.inline}
    if not said:
        return file
    made = with_dims(file, lambda d: replace(d, extent=said[d.name]) if d.name in said else d)
    return _with_clauses(made, lambda clauses: tuple(replace(c, inline=c.inline or c.name.name in said) for c in clauses))


def _with_clauses(file: File, change: Callable[[tuple[Clause, ...]], tuple[Clause, ...]]) -> File:
    """A file whose header's clauses are changed."""
    statements = (replace(s, clauses=change(s.clauses)) if isinstance(s, Header) else s for s in file.statements)
    return replace(file, statements=tuple(statements))


def with_names(root: Expr, name: Callable[[Name], Name]) -> Expr:
    """An expression whose names are changed, those of dims among them."""

    def changed(node: Expr) -> Expr:
        if isinstance(node, Apply):
            return node if node.dims is None else replace(node, dims=tuple(map(name, node.dims)))
        return name(node) if isinstance(node, Name) else node

    return rebuilt(root, changed)


def with_dims(file: File, dim: Callable[[Name], Name]) -> File:
    """A file whose names of dims, and of what may be one, are changed; helpers see their own."""

    def declared(x: Any) -> Any:
        dims = None if x.type.dims is None else tuple(map(dim, x.type.dims))
        default = getattr(x, "default", None)
        own = {"default": body(default)} if default is not None else {}
        return replace(x, type=replace(x.type, dims=dims), **own)

    def body(root: Expr) -> Expr:
        return with_names(root, dim)

    def statement(s: Statement) -> Statement:
        if isinstance(s, Header):
            params, results = tuple(map(declared, s.params)), tuple(map(declared, s.results))
            return replace(s, params=params, results=results, clauses=tuple(replace(c, value=body(c.value)) for c in s.clauses))
        if isinstance(s, Equation):
            return replace(s, body=body(s.body), dims=tuple(map(dim, s.dims)), places=tuple(map(body, s.places)))
        return s

    return replace(file, statements=tuple(map(statement, file.statements)))
