"""Sizes in a file of Triton: the lines of its function `follow`, for those that follow from others, and what errors call axes.

In: what a header says of sizes (`where E = B + 1`).  Out: Python that adds them to those which tensors have.
"""

from __future__ import annotations

from collections.abc import Mapping

from kgen.check import Kernel
from kgen.nodes import Apply, Clause, Expr, Num, folded
from kgen.sized import linear, names, unknown
from kgen.types import axes, is_literal, literal_size, shown_axis
from kgen.typeset import format_expr

_INFIX: Mapping[str, tuple[str, int]] = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "floordiv": ("//", 2), "mod": ("%", 2)}


def follow(kernel: Kernel) -> list[str]:
    """The body of `follow`, for sizes that are known of tensors alone, and of numbers by their names."""
    made: list[str] = []
    for c in kernel.clauses:
        made += _forward(c)
        for free in names(c.value):
            if free[0].isupper() and unknown(c, {c.name.name, *names(c.value)} - {free}) == (free,):
                made += _solved(c, free)
    if len(kernel.clauses) < 2:
        return made
    return [f"for _ in range({len(kernel.clauses)}):  # each round may give a size that others follow from", *(f"    {m}" for m in made)]


def shown(kernel: Kernel) -> list[tuple[str, str]]:
    """The axes of packed tensors, and others that these split, each with what the header calls it."""
    declared = [*((p.dims, p.factors) for p in kernel.params), *((r.dims, r.factors) for r in kernel.results)]
    found = {"*".join(axis): shown_axis(axis, kernel.file.halves) for dims, factors in declared for axis in axes(dims or (), factors)}
    return [(axis, name) for axis, name in found.items() if axis != name]


def _shown(c: Clause) -> str:
    return f"{c.name.name} = {format_expr(c.value)}" if not c.inline else format_expr(c.value)


def _forward(c: Clause) -> list[str]:
    """The lines that give a clause's own dim."""
    return [
        *_where({*names(c.value)}),
        f"    size = {_text(c.value)}",
        f'    if size < 0 or sizes.setdefault("{c.name.name}", size) != size:',
        f'        raise ValueError(f"{_shown(c)} is {{size}}, and not {{sizes.get(\'{c.name.name}\', \'a size\')}}")',
    ]


def _solved(c: Clause, free: str) -> list[str]:
    """The lines that solve a clause for one dim."""
    others = {*names(c.value)} - {free}
    form = linear(c.value, dict.fromkeys(others, 0), free) if not others else None
    head = _where({c.name.name, *others}, f' and "{free}" not in sizes')
    if form is not None:
        slope, rest = form
        left = f'sizes["{c.name.name}"]' + (f" - {rest}" if rest > 0 else f" + {-rest}" if rest else "")
        return [*head, f'    sizes["{free}"], rest = divmod({left}, {slope})', *_fits(c, free)]
    ends = [_text(c.value, {free: str(k)}) for k in (0, 1)]
    return [
        *head,
        f"    start = {ends[0]}",
        f'    sizes["{free}"], rest = divmod(sizes["{c.name.name}"] - start, {ends[1]} - start)',
        *_fits(c, free),
    ]


def _fits(c: Clause, free: str) -> list[str]:
    return [
        f'    if rest or sizes["{free}"] < 0:',
        f'        raise ValueError(f"{{sizes[\'{c.name.name}\']}} is no {_shown(c)}")',
    ]


def _where(known: set[str], more: str = "") -> list[str]:
    """The head of what is done where some sizes are known."""
    asked = " and ".join(f'"{n}" in sizes' for n in sorted(known))
    return [f"if {asked}{more}:"]


def _text(root: Expr, given: Mapping[str, str] | None = None) -> str:
    """An expression of sizes as Python; `given` are texts for some of its names."""

    def of(node: Expr, args: list[tuple[str, int]]) -> tuple[str, int]:
        if isinstance(node, Apply):
            return _applied(node, args)
        if isinstance(node, Num):
            return node.text, 9
        literal = str(literal_size(node.name)) if is_literal(node.name) else f'sizes["{node.name}"]'
        return (given or {}).get(node.name, literal), 9

    return folded(root, of)[0]


def _applied(node: Apply, args: list[tuple[str, int]]) -> tuple[str, int]:
    """An operator's text and how tightly it binds."""
    if node.op in ("neg", "pos"):
        return f"-{args[0][0] if args[0][1] > 2 else f'({args[0][0]})'}" if node.op == "neg" else args[0][0], 2
    if node.op not in _INFIX:
        return f"{node.op}({', '.join(text for text, _ in args)})", 9
    sign, level = _INFIX[node.op]
    (a, own), (b, its) = args
    return f"{a if own >= level else f'({a})'} {sign} {b if its > level else f'({b})'}", level
