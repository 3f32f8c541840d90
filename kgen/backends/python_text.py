"""Pieces of Python source: calls on as many lines as they take, tuples of names, functions whose conditions are known."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from kgen.backends.names import bare


def wrapped(head: str, items: list[str], tail: str, width: int = 130) -> str:
    """`head(items)tail`, on as many lines as it takes."""
    line = f"{head}({', '.join(items)}){tail}"
    if len(bare(line)) <= width:
        return line
    indent = " " * (len(head) - len(head.lstrip()))
    lines = [f"{head}(", ""]
    for item in items:
        if lines[-1] and len(bare(f"{lines[-1]}, {item}")) > width:
            lines[-1] += ","
            lines.append("")
        lines[-1] += f", {item}" if lines[-1] else f"{indent}    {item}"
    return "\n".join([*lines, f"{indent}){tail}"])


def listed(names: list[str]) -> str:
    """A tuple of names as Python."""
    return "(" + ", ".join(f'"{n}"' for n in names) + ("," if len(names) == 1 else "") + ")"


def chunks(items: list[str], size: int) -> list[str]:
    """Lists of at most `size` items each."""
    return [", ".join(items[k : k + size]) for k in range(0, len(items), size)]


def decided(source: str, known: Callable[[ast.expr], bool | None]) -> str:
    """A module in which branches on conditions that are known are no longer branches; `known` says of a condition what it is, None where
    that is open."""

    def branches() -> Iterator[ast.If | ast.IfExp]:
        return (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.If | ast.IfExp) and known(n.test) is not None)

    while node := next(branches(), None):
        lines, first, end = source.split("\n"), node.lineno - 1, node.end_lineno or 0
        kept = node.body if known(node.test) else node.orelse
        if isinstance(kept, ast.expr):
            chosen = ast.get_source_segment(source, kept)
            lines[first:end] = [f"{lines[first][: node.col_offset]}{chosen}{lines[end - 1][node.end_col_offset :]}"]
        else:
            note = lines[first].partition("#")[2] if kept is node.body else ""
            made = [line[4:] for line in lines[kept[0].lineno - 1 : kept[-1].end_lineno]] if kept else []
            lines[first:end] = [f"{' ' * node.col_offset}#{note}", *made] if note else made
        source = "\n".join(lines)
    return source
