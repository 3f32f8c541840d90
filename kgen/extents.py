"""Axes and dims that are expressions of others: `i64[B + 1]`.

In: the node of an axis as the parser has it.  Out: the dims that it is a product of, or one dim whose name is made of the expression.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

from kgen.lalr import Unexpected, token
from kgen.nodes import MAX_NAME, Apply, Expr, Name, Num, rebuilt
from kgen.types import ELLIPSIS

#: How operators are called in the name of a dim that is an expression of others.
CALLED = {"add": "plus", "sub": "minus", "mul": "times", "floordiv": "over", "mod": "mod"}


def factors(node: Expr) -> tuple[Name, ...] | None:
    """The dims that an axis is a product of; None where it is another expression of sizes."""
    found: list[Name] = []
    while isinstance(node, Apply) and node.op == "mul" and not node.parens and isinstance(node.args[1], Name):
        found.insert(0, node.args[1])
        node = node.args[0]
    return (node, *found) if isinstance(node, Name) and not node.parens else None


def extent(root: Expr) -> Name:
    """The dim of an axis that is an expression of sizes.  Raises `Unexpected` where it is none."""
    words: list[str] = []
    for node in _in_order(root):
        if isinstance(node, str):
            words.append(node)
        elif isinstance(node, Apply):
            if node.op not in CALLED:
                raise Unexpected(token("TIMES", "/", node.head.start), set())
            words.append(CALLED[node.op])
        elif isinstance(node, Name):
            if node.name == ELLIPSIS:
                raise Unexpected(token("__ANON_1", ELLIPSIS, node.span.start), set())
            words.append(node.name)

    def number(node: Expr) -> Expr:
        digits = isinstance(node, Name) and node.name[0] in "0123456789."
        return Num(node.name, node.span, node.parens) if isinstance(node, Name) and digits else node

    return Name(_called(words), root.span, extent=replace(rebuilt(root, number), parens=False))


def _called(words: list[str]) -> str:
    """A name made of some words: one that begins with a letter, and is not too long."""
    name = "_".join(w if w.isidentifier() or w.isdigit() else f"x{zlib.crc32(w.encode()):x}" for w in words)
    name = name if name[0].isupper() else f"Size_{name}"
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"


def one_dim(node: Expr) -> Name:
    """The dim that stands where one is meant.  Raises `Unexpected` at a product, which is several."""
    found = factors(node)
    if found is None:
        return extent(node)
    if len(found) > 1:
        assert isinstance(node, Apply)
        raise Unexpected(token("TIMES", "*", node.head.start), set())
    return found[0]


def _in_order(root: Expr) -> Iterator[Expr | str]:
    """The nodes of an infix expression as they are read; inner brackets are the words "begin" and "end"."""
    todo: list[tuple[Expr | str, bool]] = [(root, False)]
    while todo:
        node, ready = todo.pop()
        if ready or not isinstance(node, Apply):
            yield node
            continue
        inner = node.parens and node is not root
        todo += [("end", True)] * inner + [(node.args[1], False), (node, True), (node.args[0], False)] + [("begin", True)] * inner
