"""Sums of which one element of a row at most is a term: that whose position a value of the row's own says, as in
`sum[V](x if index[V] == t else 0.0)`.  A target may read that element alone, and ask no other whether it is the one."""

from __future__ import annotations

from collections.abc import Mapping

from kgen.ir import Let
from kgen.types import Dims


def position(value: Let, share: int, inner: Dims, defs: Mapping[str, Let]) -> Let | None:
    """What the position along a row's one dim has to equal for a selection to give its `share`, the operand of that number, which is not 0;
    None where more elements may."""
    condition = defs[value.expr.operands[0].name]
    if condition.expr.name != ("", "eq", "ne")[share] or len(inner) != 1:
        return None
    a, b = (defs[o.name] for o in condition.expr.operands)
    if b.expr.name == "index":
        a, b = b, a
    return b if a.expr.name == "index" and a.dims == inner and not {*b.dims} & {*inner} else None
