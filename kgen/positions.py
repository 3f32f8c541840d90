"""Where an element stands: `index[N]` along a dim, `index[..., N]` in several together, row by row.

In: the expression.  Out: an i64 value with those dims, made of the positions along each and of sizes.  An element's random numbers
(`random[..., N](seed, offset)` of the prelude) follow from it alone, so they know nothing of memory, launches and devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from kgen.errors import Span
from kgen.ops import REDUCTIONS, SCANS
from kgen.syntax import Apply, Clause, Helper, Name, Num, postorder
from kgen.types import ELLIPSIS, Dims, i64, is_literal, literal_size, shown_dim, union
from kgen.values import Value


def index(checker: Any, node: Apply, env: dict[str, Dims] | None) -> int | None:
    """The number of the value of `index[...]`, of which the last dim runs fastest; None, with an error, where no parameter has the dims."""
    dims = checker.dims_of(node, env)
    if dims is None:
        if node.dims is None:
            checker.error("`index` takes dims", node.head, help="write `index[N]`")
        return None
    if ELLIPSIS in dims and not any(ELLIPSIS in (p.dims or ()) for p in checker.params.values()):
        checker.error("no parameter has leading dims `...`", node.span)
        return None
    made, have = checker.make("index", (), dims[0], i64, dims[:1], node.span), dims[:1]
    for d in dims[1:]:
        along = checker.make("index", (), d, i64, (d,), node.span)
        before = checker.make("mul", (made, checker.size((d,), node.span)), "", i64, have, node.span)
        have = union(have, (d,))
        made = checker.make("add", (before, along), "", i64, have, node.span)
    return made


def another(checker: Any, dim: str, span: Span) -> str:
    """A new dim that is as long as another, by a clause; of N it is N_2, or the next that is not there."""
    stem = shown_dim(dim) if not shown_dim(dim)[0].isdigit() else f"N{dim}"
    taken = {*checker.dims, *checker.params, *(c.name.name for c in checker.clauses)}
    name = next(f"{stem}_{k}" for k in count(2) if f"{stem}_{k}" not in taken)
    size = Num(str(literal_size(dim)), span) if is_literal(dim) else Name(dim, span)
    checker.clauses = (*checker.clauses, Clause(Name(name, span), size, span))
    return f"{literal_size(dim)}_{name}" if is_literal(dim) else name


def aside(checker: Any, x: int, dim: str, node: Apply) -> tuple[int, str]:
    """A value whose dim has another name, with that name, so that a place along the dim may follow from the position in it
    (`x[N = ids]` for `ids: i64[N]`): of x: T[M, N] the value `x[N = index[N_2]]` for a dim N_2 as long as N."""
    new, value = another(checker, dim, node.span), checker.values[x]
    at = checker.make("index", (), new, i64, (new,), node.span)
    return checker.make("place", (x, at), (dim,), value.type, checker.placed(value.dims, (dim,), [at]), node.span), new


def beside(values: Sequence[Value], value: Value) -> Value | None:
    """What `aside` made for a `pick`: the value along another dim, of which the element is taken; None of any other value."""
    if value.op != "pick":
        return None
    made, place = (values[a] for a in value.args)
    if made.op != "place" or len(made.attr) != 1 or made.attr[0] not in place.dims:
        return None
    at = values[made.args[1]]
    return made if (at.op, at.attr) == ("index", value.attr[0]) else None


def makes(helper: Helper, known: Mapping[str, Helper]) -> bool:
    """Whether a function over dims makes a value that has them, of operands that need not: it asks for a position and reduces nothing."""
    todo, seen, asks = [helper], {helper.name.name}, False
    while todo:
        for node in postorder(todo.pop().body):
            if not isinstance(node, Apply):
                continue
            if node.op in SCANS or node.op in REDUCTIONS and node.dims:
                return False
            asks |= node.op == "index"
            if node.op in known and node.op not in seen:
                seen.add(node.op)
                todo.append(known[node.op])
    return asks
