"""What is known of an equality between terms and their own maximum, whatever rounding did to both.

`x == max[N](x)`, as gradients of a maximum ask, compares values with one of themselves: an element's value depends on its operands
alone, so that the equality holds where x is greatest, however far from the exact value either lies.  An interval alone cannot say so.

    one element within reach of the greatest    the equality is sure, true there and false elsewhere
    several of them, and x has an error         which are equal is not sure, but one is: the sum of such equalities is 1 at least, so
                                                that a quotient by it is no larger than what is divided
"""

from __future__ import annotations

from typing import Any

from kgen.check import Kernel, Value


def terms_of(kernel: Kernel, v: Value) -> int | None:
    """Which operand of an equality is the terms, where the other is their own greatest (or least); else None."""
    if v.op != "eq":
        return None
    for k in (0, 1):
        other = kernel.values[v.args[1 - k]]
        if other.op in ("max", "min") and other.attr and other.args == (v.args[k],):
            return k
    return None


def equal(analysis: Any, v: Value, which: int, args: list, errors: list) -> tuple[Any, Any]:
    """The error of such an equality, 0 where it is sure, else infinity; and where it is sure to hold of one term at least (the dims that
    are compared are kept, as 1)."""
    torch = analysis.torch
    extreme = analysis.kernel.values[v.args[1 - which]]
    terms = args[which].double()  # along a dim that it does not have, as leading ones that another has, it is equal to itself
    e = errors[which].to(torch.float64).expand(terms.shape)
    terms = -terms if extreme.op == "min" else terms
    dims = analysis.places(terms, tuple(extreme.attr))
    if not terms.numel() or not dims:
        return torch.where(torch.isnan(terms) | ~torch.isfinite(e), torch.inf, 0.0), ~torch.isnan(terms) & torch.isfinite(e)
    known = ~torch.isnan(terms) & torch.isfinite(e)
    within = terms + e >= (terms - e).amax(dims, keepdim=True)  # what may be the greatest
    settled = ~within | (e == 0)
    for d in dims:
        known, settled = known.all(d, keepdim=True), settled.all(d, keepdim=True)
    alone = within.sum(dims, keepdim=True) == 1
    return torch.where(known & (alone | settled | ~within), 0.0, torch.inf), known


def compared(kernel: Kernel, v: Value) -> int | None:
    """Where a value is a quotient by a sum of such equalities: which value they are; else None."""
    if v.op != "div":
        return None
    total = kernel.values[v.args[1]]
    inner = kernel.values[total.args[0]] if total.op == "sum" and total.attr else None
    if inner is None or inner.op != "cast":
        return None
    equality = kernel.values[inner.args[0]]
    which = terms_of(kernel, equality)
    return inner.args[0] if which is not None and kernel.values[equality.args[1 - which]].attr == total.attr else None


def shared(analysis: Any, x: Any, args: list, errors: list, one: Any) -> Any:
    """How far such a quotient moves: where the divisor is not sure, but 1 at least (`one`), it lies between 0 and the numerator."""
    torch = analysis.torch
    numerator = torch.as_tensor(args[0], dtype=torch.float64)
    known = torch.where(torch.isfinite(x), x.abs(), torch.nan) + numerator.abs() + errors[0]
    return torch.where(errors[1] == 0, errors[0] / torch.as_tensor(args[1]), torch.where(one, known, torch.nan))
