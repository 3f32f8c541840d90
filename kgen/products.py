"""Passes whose work grows as a product of dims that no operand has: what a library does faster by far.

In: a plan.  Out: a warning for each reduction of elements that are made of operands with different dims, none of which has them all, as in
`sum[K](a * b)` for a: T[M, K] and b: T[N, K], or in all pairs of distances.
"""

from __future__ import annotations

from kgen.errors import Diagnostic
from kgen.expand import is_reduction
from kgen.ir import Let, Store, Tensor
from kgen.passes import Plan, Reduce
from kgen.types import Dims, is_literal

HELP = "kgen has no tiled products yet: a library's matrix product (torch.matmul, torch.cdist) is faster by far where these dims are large"
#: Of a search for each of several places, as `kth[N](x, index[K] + 1)` asks for.
SEARCHED = "each place has a search of its own: a library's sort (torch.topk) is faster where they are many"
#: Of what keys select that are sorted neither along dims that all rows share nor along one dim of a row (`segments.py`), as sums over two
#: dims of `i: i64[M, K, L]`.
KEYED = "keys of several dims that differ from row to row are compared one by one: torch.scatter_add is faster where they are many"


def products(plan: Plan) -> list[Diagnostic]:
    """A warning for each pass whose elements are more than those of anything that it reads or writes."""
    found: dict[str, Diagnostic] = {}
    for p in plan.passes:
        if not isinstance(p, Reduce) or not p.inner:
            continue
        dims = _open(p.dims)
        held: list[Tensor | Store] = [*p.loads, *p.stores]
        most = max((_open(t.dims) for t in held), key=len, default=frozenset())
        reduced = [let for let in p.lets if is_reduction(let) and _open((*let.dims, *let.expr.attrs)) == dims]
        if dims == most or any(_open(t.dims) == dims for t in held) or not reduced or not _several(p, reduced[0]):
            continue
        let = reduced[0]
        shown = " * ".join(d for d in p.dims if not is_literal(d))
        message = f"this computes {shown} elements, and no operand has more than {' * '.join(d for d in p.dims if d in most) or '1'}"
        searched = any(x.expr.name == "probe" for x in p.lets)
        found.setdefault(let.name, Diagnostic(message, let.span, help=SEARCHED if searched else KEYED if _keyed(p, let) else HELP))
    return list(found.values())


def _open(dims: Dims) -> frozenset[str]:
    """Those dims that may be large."""
    return frozenset(d for d in dims if not is_literal(d))


def _several(p: Reduce, let: Let) -> bool:
    """Whether what is reduced differs along all of its dims: it is no broadcast of less."""
    operand = next(x for x in p.lets if x.name == let.expr.operands[0].name)
    return _open(operand.dims) == _open(p.dims)


def _keyed(p: Reduce, let: Let) -> bool:
    """Whether what is reduced is selected by a key's being the index along a dim."""
    made = {x.name: x.expr for x in p.lets}
    todo = [let.expr]
    while todo:
        operands = [made[o.name] for o in todo.pop().operands if o.name in made]
        if any(e.name == "eq" and any(made[o.name].name == "index" for o in e.operands if o.name in made) for e in operands):
            return True
        todo += [e for e in operands if e.name in ("cast", "where", "and")]
    return False
