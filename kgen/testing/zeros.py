"""Which values may be a zero of either sign, and what tells one from the other.

The greater of 0.0 and -0.0 is either of them, as eager has it: its own differs from device to device, and from element to element.
A sum of -0.0 alone is 0.0 where it begins with 0.  An error says nothing of that, since both zeros have the same value; so beside its
error each value has a mask of where its zero may have either sign:

    max, min, clamp   where the result is 0, and of the operands (the terms) that are 0 one may be 0.0 and one -0.0
    sum, mean         where each term is, or may be, -0.0
    prod              where the result is 0, and one of the terms may be either
    pick              that of the picked element
    mul, div, cast    also where the result is 0, and the sign of an operand is open by its error
    others            where they give a 0 of another sign for one zero than for the other

All but the reductions are evaluated with each zero in turn.  Where the two results are not equal (beyond a pole, a sign that was asked
for) their distance goes into the bound, which is infinite at a pole; where they are equal nothing is added to it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from kgen.check import Value
from kgen.ops import REDUCTIONS, SCANS
from kgen.searches import SEARCHES

#: Which zero the greater of 0.0 and -0.0 is eager does not say: it differs from device to device.
EITHER_ZERO = ("max", "min", "clamp")


def told(analysis: Any, v: Value, x: Any, args: list) -> tuple[Any, Any]:
    """How far a value `x` lies from what it would be if zeros among its operands had the other sign, and where it is itself a zero that
    may have either (None: nowhere).  `analysis.either` has that of each value before it."""
    torch = analysis.torch
    masks = [analysis.either[a] for a in v.args]
    step, mask = torch.zeros((), dtype=torch.float64), None
    if v.op in ("pick", "place") or v.op in REDUCTIONS and v.attr:
        if torch.is_tensor(x) and x.dtype.is_floating_point:
            mask = reduced(analysis, v, x, args, masks)
    elif any(m is not None for m in masks):
        step, mask = evaluated(analysis, v, x, args, masks)
    if v.op in SCANS and x.dtype.is_floating_point:
        mask = x == 0
    if v.op in EITHER_ZERO and not v.attr and torch.is_tensor(x) and x.dtype.is_floating_point:
        sides = [signs(torch, torch.as_tensor(a).double(), m) for a, m in zip(args, masks, strict=True)]
        plus, minus = ([side[k] for side in sides] for k in (0, 1))
        mask = (x == 0) & torch.stack(torch.broadcast_tensors(*plus)).any(0) & torch.stack(torch.broadcast_tensors(*minus)).any(0)
    return step, mask if mask is not None and bool(mask.any()) else None


def by_errors(analysis: Any, v: Value, x: Any, args: list, carried: list, either: Any) -> Any:
    """Where a value may be a zero of either sign: where `either` says so, and where a product or a quotient is 0 by one operand, or a
    cast by rounding, and the sign of an operand is open by its error."""
    torch = analysis.torch
    if v.op not in ("mul", "div", "cast") or not torch.is_tensor(x) or not x.dtype.is_floating_point or not bool((x == 0).any()):
        return either
    for a, e in zip(args, carried, strict=True):
        if torch.is_tensor(a) and torch.is_tensor(e) and bool((e != 0).any()):
            mask = (x == 0) & (a.double().abs() <= e) & (e != 0)
            either = (mask if either is None else either | mask) if bool(mask.any()) else either
    return either


def signs(torch: Any, a: Any, mask: Any) -> tuple[Any, Any]:
    """Where a tensor may be 0.0, and where -0.0; its zeros under `mask` may be either."""
    zero, minus = a == 0, a.signbit()
    return (zero & ~minus, zero & minus) if mask is None else (zero & (~minus | mask), zero & (minus | mask))


def evaluated(analysis: Any, v: Value, x: Any, args: list, masks: list) -> tuple[Any, Any]:
    """`told` of an operator or a cast, by its results for each choice of zeros."""
    torch = analysis.torch
    at = [k for k, m in enumerate(masks) if m is not None]
    step, plus, minus = (torch.zeros((), dtype=dtype) for dtype in (torch.float64, torch.bool, torch.bool))
    for zeros in product((0.0, -0.0), repeat=len(at)):
        chosen = list(args)
        for k, zero in zip(at, zeros, strict=True):
            chosen[k] = torch.where(masks[k], zero, args[k])
        y = analysis.value(v, chosen)
        same = (y == x) | torch.isnan(y.double()) & torch.isnan(x.double())
        step = torch.maximum(step, torch.where(same, 0.0, (y.double() - x.double()).abs()))
        if y.dtype.is_floating_point:
            positive, negative = signs(torch, y, None)
            plus, minus = plus | positive, minus | negative
    return step, plus & minus


def reduced(analysis: Any, v: Value, x: Any, args: list, masks: list) -> Any:
    """Where a reduction, or a pick, is a zero of either sign; None where it surely is nowhere."""
    torch, mask = analysis.torch, masks[0]
    if v.op == "pick":
        return None if mask is None else analysis.pick(v, mask.double().expand(args[0].shape), args[1]) == 1
    if v.op == "place":
        return None if mask is None else analysis.placed(v, mask.double().expand(args[0].shape), args[1:]) == 1
    if v.op in SEARCHES:  # a zero that is found is 0.0
        return None
    over = tuple(v.attr)
    terms = analysis.whole(args[0], over)
    dims = analysis.places(terms, over)
    if not dims or not terms.numel():
        return mask if not dims else None
    plus, minus = signs(torch, terms, None if mask is None else mask.expand(terms.shape))
    if v.op in EITHER_ZERO:
        return (x == 0) & plus.sum(dims, keepdim=True).bool() & minus.sum(dims, keepdim=True).bool()
    if v.op in ("sum", "mean"):
        return (~minus).sum(dims, keepdim=True) == 0
    return None if mask is None else (x == 0) & (plus & minus).sum(dims, keepdim=True).bool()
