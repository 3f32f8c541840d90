"""The nodes of a syntax tree, each with the span that it came from, and how operators are written.

In: nothing.  Out: what `syntax.py` makes of a text and `trace` of a function.  Trees can be deep (a chain of 2,000 additions), so nothing
recurses over an expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kgen.errors import Source, Span, printed
from kgen.types import Dims

R = TypeVar("R")

MAX_NAME = 64

#: Infix operators: symbol -> (operator, precedence).  A higher precedence binds tighter.
INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", 2), "and": ("and", 3),
    "==": ("eq", 5), "!=": ("ne", 5), "<": ("lt", 5), "<=": ("le", 5), ">": ("gt", 5), ">=": ("ge", 5),
    "|": ("bitor", 6), "&": ("bitand", 7), "<<": ("shl", 8), ">>": ("shr", 8),
    "+": ("add", 9), "-": ("sub", 9),
    "*": ("mul", 10), "/": ("div", 10), "//": ("floordiv", 10), "%": ("mod", 10),
    "^": ("pow", 12),
}  # fmt: skip
#: Prefix operators: symbol -> (operator, precedence).
PREFIX: dict[str, tuple[str, int]] = {"not": ("not", 4), "-": ("neg", 11), "+": ("pos", 11), "~": ("bitnot", 11)}
WHERE, ATOM = 1, 13
#: How an operator is written in place of a call (`Apply.written`).
WRITTEN = {"where": "where"} | {op: "infix" for op, _ in INFIX.values()} | {op: "prefix" for op, _ in PREFIX.values()}
KEYWORDS = ("if", "else", "and", "or", "not")


@dataclass(frozen=True, eq=False)
class Num:
    """A number as it was written."""

    text: str
    span: Span
    parens: bool = False


@dataclass(frozen=True, eq=False)
class Name:
    """A parameter, an equation's name (`m'` is the next state), a constant, a dim or its size.  A dim that is written as an expression
    of others (`i64[B + 1]`) has that as `extent`, and a name made of it."""

    name: str
    span: Span
    parens: bool = False
    extent: Expr | None = None


@dataclass(frozen=True, eq=False)
class Apply:
    """An operator, a function, a helper, a cast or a reduction applied to `args`.

    `dims` are the names in square brackets (None without them); `written` is "infix", "prefix", "where", "call" or "place" (`x[N = e else
    fill]`, whose `args` are x, a place for each dim and, where it has one, the fill).
    """

    op: str
    args: tuple[Expr, ...]
    span: Span
    head: Span
    written: str = "call"
    dims: tuple[Name, ...] | None = None
    parens: bool = False


Expr = Num | Name | Apply


@dataclass(frozen=True, eq=False)
class Type:
    """`T[..., N]`, or a number's `float` or `int` (then `dims` is None).  `factors` says into how many of its dims each axis is split
    (`T[M, G*128]`: 1 and 2); empty where each axis is one dim."""

    dtype: Name
    dims: tuple[Name, ...] | None
    span: Span
    factors: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Param:
    name: Name
    type: Type
    default: Expr | None  # of a tensor: what stands for it where a call leaves it out
    span: Span


@dataclass(frozen=True, eq=False)
class Result:
    name: Name
    type: Type
    span: Span

    @property
    def primed(self) -> bool:
        return self.name.name.endswith("'")


@dataclass(frozen=True, eq=False)
class Clause:
    """`where name = value`: the size of a dim, of those of others and of `int` parameters.  `inline`: written as an axis."""

    name: Name
    value: Expr
    span: Span
    inline: bool = False


@dataclass(frozen=True, eq=False)
class Header:
    name: Name
    params: tuple[Param, ...]
    results: tuple[Result, ...]
    span: Span
    clauses: tuple[Clause, ...] = ()


@dataclass(frozen=True, eq=False)
class Helper:
    name: Name
    dims: tuple[Name, ...]
    params: tuple[Name, ...]
    body: Expr
    span: Span


@dataclass(frozen=True, eq=False)
class Equation:
    """`name = body`; with `dims` and `places` a part of it (`y[2 = 0] = body`)."""

    name: Name
    body: Expr
    span: Span
    dims: tuple[Name, ...] = ()
    places: tuple[Expr, ...] = ()


Statement = Header | Helper | Equation


@dataclass(frozen=True, eq=False)
class File:
    source: Source
    statements: tuple[Statement, ...]
    comments: tuple[tuple[int, str], ...] = field(default=())  # (offset, text after the '#')
    absent: Mapping[frozenset[str], File] = field(default_factory=dict)  # of a traced function: itself where these parameters are None
    halves: Mapping[str, str] = field(default_factory=dict)  # of the dims that packed tensors split (`kgen.packed`), those that they were
    header: Header | None = None  # where some are split, the header as it was written

    def text_of(self, node: Statement | Expr) -> str:
        return self.source.text[node.span.start : node.span.end]

    def doc(self) -> str:
        """The comment that ends just above the header, without its marks, and printable whatever the file holds."""
        header = next((s for s in self.statements if isinstance(s, Header)), None)
        if header is None:
            return ""
        by_line = {self.source.place(at)[0]: text for at, text in self.comments if self._alone(at)}
        row = self.source.place(header.span.start)[0] - 1
        lines: list[str] = []
        while row in by_line:
            lines.insert(0, printed(by_line[row].strip(), "\t"))
            row -= 1
        return "\n".join(lines).strip()

    def _alone(self, offset: int) -> bool:
        start = self.source.text.rfind("\n", 0, offset) + 1
        return not self.source.text[start:offset].strip()


def postorder(root: Expr) -> Iterator[Expr]:
    """Every node of an expression once, arguments before what they are arguments of."""
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready or not isinstance(node, Apply):
            yield node
        else:
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))


def folded(root: Expr, of: Callable[[Expr, list[R]], R]) -> R:
    """What an expression comes to: `of` is told a node and what its arguments came to.  Nothing recurses, since trees can be deep."""
    done: dict[int, R] = {}
    for node in postorder(root):
        done[id(node)] = of(node, [done[id(a)] for a in node.args] if isinstance(node, Apply) else [])
    return done[id(root)]


def rebuilt(root: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """An expression with each node as `change` makes it, arguments before what they are arguments of."""

    def of(node: Expr, args: list[Expr]) -> Expr:
        if isinstance(node, Apply) and any(a is not b for a, b in zip(args, node.args, strict=True)):
            node = replace(node, args=tuple(args))
        return change(node)

    return folded(root, of)


def dim_names(dims: tuple[Name, ...] | None) -> Dims:
    return tuple(d.name for d in dims or ())
