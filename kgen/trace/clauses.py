"""What a decorated function says of its sizes: `@kgen.kernel(where="P = (M + 127) // 128 * 128")`, and axes such as `"i64[B + 1]"`.

In: pieces of a header, parsed apart from the Python file that they stand in.  Out: the same with their places in that file.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from kgen.errors import KgenError, Span
from kgen.nodes import MAX_NAME, Apply, Clause, Expr, Header, Name, Type, rebuilt
from kgen.syntax import parse
from kgen.trace.source import Code


def shifted(span: Span, by: int, fixed: Span | None) -> Span:
    """A span moved by so many characters, or one that is `fixed`."""
    return fixed or Span(span.start + by, span.end + by)


def moved_expr(root: Expr, by: int, fixed: Span | None) -> Expr:
    """An expression whose spans are moved."""

    def moved(node: Expr) -> Expr:
        if isinstance(node, Apply):
            node = replace(node, head=shifted(node.head, by, fixed))
        return replace(node, span=shifted(node.span, by, fixed))

    return rebuilt(root, moved)


def moved_dim(dim: Name, by: int, fixed: Span | None) -> Name:
    """A dim of a type whose spans are moved, those of its extent too."""
    extent = None if dim.extent is None else moved_expr(dim.extent, by, fixed)
    return replace(dim, span=shifted(dim.span, by, fixed), extent=extent)


def moved_type(kind: Type, by: int, fixed: Span | None) -> Type:
    """A type parsed from an annotation, its spans in the Python text."""
    dims = None if kind.dims is None else tuple(moved_dim(d, by, fixed) for d in kind.dims)
    return Type(moved_dim(kind.dtype, by, fixed), dims, shifted(kind.span, by, fixed), kind.factors)


def moved_clause(clause: Clause, by: int, fixed: Span | None) -> Clause:
    """A clause whose spans are moved."""
    value = moved_expr(clause.value, by, fixed)
    return replace(clause, name=moved_dim(clause.name, by, fixed), value=value, span=shifted(clause.span, by, fixed))


def where_span(code: Code, where: str) -> Span:
    """Where a function's decorator says its clauses: the text itself, or what stands in its place; the function's name where none does."""
    keywords = (k for d in code.node.decorator_list if isinstance(d, ast.Call) for k in d.keywords if k.arg == "where")
    said = next((k.value for k in keywords), None)
    if said is None:
        return code.word(code.span(code.node), code.node.name)
    return code.word(code.span(said), where)


def dim_name(text: str) -> str:
    """The name of a dim: of one that is written as an expression of others (`B + 1`) that which the header has for it."""
    if text.isidentifier() or not text.isascii() or len(text) > MAX_NAME:
        return text
    try:
        (header,) = parse(f"k(x: f32[{text}]) -> y: f32[]").statements
    except KgenError:
        return text  # no dim is called so
    dims = header.params[0].type.dims if isinstance(header, Header) else None
    return dims[0].name if dims is not None and len(dims) == 1 else text
