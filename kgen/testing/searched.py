"""How far a search may lie from its exact answer.

In: an `Analysis`, a value, its operands with their errors.  Out: the error, the dims of the row kept, as 1.

A computed total lies within d of the exact one, d = sum(e_i) + gamma(depth) * sum(|w_i| + e_i) over the whole row, as for any sum; totals
of integers are exact.  The answer never falls where elements rise, weights grow, or less is asked for.  So a computed one lies between
that for x - e and d more than the amount, and that for x + e and d less.  A place is known where both are the same.  Of weights that
are negative or NaN nothing is said; of a u64 beside a float amount each is as large as it is.
"""

from __future__ import annotations

import math
from typing import Any

from kgen.check import Value
from kgen.ops import tree_depth
from kgen.runtime import unsigned
from kgen.searches import SEARCHES, compared_type
from kgen.types import Float


def is_search(v: Value) -> bool:
    return v.op in SEARCHES


def error(analysis: Any, v: Value, x: Any, args: list, errors: list) -> Any:
    """The error of a search whose exact answer is `x`."""
    torch, over = analysis.torch, tuple(v.attr)
    weight, amount = SEARCHES[v.op]
    given = [a if isinstance(a, torch.Tensor) else torch.tensor(a) for a in args]
    given = [a.reshape([1] * len(analysis.order)) if not a.dim() else a for a in given]
    own = [torch.zeros((), dtype=torch.float64) if e is None else torch.as_tensor(e).to(torch.float64) for e in errors]
    summed = isinstance(compared_type(v.op, [analysis.kernel.values[a] for a in v.args]), Float)
    whole = analysis.whole(unsigned.number(given[weight], analysis.kernel.values[v.args[weight]].type) if summed else given[weight], over)
    dims = analysis.places(whole, over)

    def anywhere(where: Any) -> Any:
        """Infinity for rows where something holds."""
        return analysis.any_of(where, analysis.places(where, over) if where.dim() >= len(analysis.order) else [])

    unknown = [anywhere(~torch.isfinite(e)) for e in own]
    unknown.append(anywhere(~(whole >= 0)))
    if summed:
        off = slack(analysis, v, whole.double(), own[weight], dims) + own[amount]
    else:
        off = torch.zeros((), dtype=torch.float64)
        unknown += [anywhere(own[k] != 0) for k in (weight, amount)]
    ends = []
    for sign in (-1, 1):
        moved = list(given)
        moved[amount] = given[amount] - (sign * off).to(given[amount].dtype) if bool((off != 0).any()) else given[amount]
        if v.op == "cutoff" and bool((own[0] != 0).any()):
            moved[0] = given[0].double() + sign * own[0]
        ends.append(analysis.value(v, moved))
    low, high = ends
    exact = x.double()

    def apart(end: Any) -> Any:
        same = (end == x) | torch.isnan(end.double()) & torch.isnan(exact)
        away = (end.double() - exact).abs()
        return torch.where(same, 0.0, torch.where(torch.isnan(away), torch.inf, away))

    found = torch.maximum(apart(low), apart(high))
    for more in unknown:
        found = found + more
    if v.op != "cutoff" or not x.dtype.is_floating_point:
        return torch.where(found != 0, torch.inf, 0.0)
    for e in own:  # where an operand may be NaN the answer may be
        found = torch.where(anywhere(torch.isnan(e)) > 0, torch.nan, found)
    return found


def slack(analysis: Any, v: Value, weights: Any, e: Any, dims: list[int]) -> Any:
    """How far any of the totals of a row lies from the exact one; the exact reading adds one after the other."""
    count = math.prod(weights.shape[d] for d in dims)
    wide = analysis.kernel.values[v.args[SEARCHES[v.op][0]]]
    unit = 2.0**-52 if isinstance(wide.type, Float) and analysis.compute(wide) == "f64" else 2.0**-24
    gamma = math.expm1(tree_depth(count) * math.log1p(unit)) + count * 2.0**-53
    e = (e + weights * 0).nan_to_num(nan=math.inf)
    return (e + gamma * (weights.abs() + e)).nan_to_num(nan=0.0).sum(dims, keepdim=True)
