"""Pieces of Python source: calls on as many lines as they take, tuples of names."""

from __future__ import annotations

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


__all__ = ["chunks", "listed", "wrapped"]
