"""How far a scan may lie from the exact one: the part of `bounds.py` for scans, with the same names.

At each place the bound holds for every order of the elements up to there in which none passes through more than `depth(n)` joins
(`kgen.ops.scans`).  With P the prefix up to place i, e the errors of the elements, g = gamma(depth):

    cumsum        sum(e) + g * sum(|x| + e); none where the terms of one sign overflow
    cumprod       prod(|x| + e) - prod(|x|) + ((1 + u)^(i + 1) - 1) * prod(|x| + e); denormals more where the product of neighbours
                  underflows, none where one overflows, or where an x that lies within e of 0 stands beside what is infinite
    cummax        what the greatest of x + e and of x - e lie above and below it, 0 where it is infinite or NaN; cummin likewise
    logcumsumexp  max(e), since the weights of its derivative add up to 1; and u * (R + 8) for each join, where R = max|x| + log(i + 1)
                  bounds what any neighbours have: what is carried is their peak, and the sum of exponentials about it, at least 1 and
                  at most i + 1. A join adds n exp(-d) to it, d <= 2 max|x|, of which the difference, exp and the product round to
                  (5 + d) u: of a sum of at least 1 + n exp(-d) that is less than (R + 6) u. The logarithm and its sum with the peak
                  round to less than one join more
    recur         with S = |a| S' + |b| (S' that of the place before): S(|a| + e, |b| + e) - S(|a|, |b|), and each b is multiplied by all a
                  behind it: u * (T + (depth + 3) * S) / (1 - n u) with T = |a| (T' + S'), the sum over all b of how many those are; none
                  where an a is infinite, where the product of neighbouring a overflows, or vanishes beside what is infinite, or where an a
                  that lies within e of 0 stands behind what is infinite, and none behind an S that overflows
    cumsum_since  as cumsum of what has been added since the last place that begins; none behind a condition that may be another
"""

from __future__ import annotations

import math
from typing import Any

from kgen.check import Value
from kgen.ops.scans import depth, split
from kgen.runtime.scanned import operands, recurrence, since

#: digits after the leading one, least exponent of a normal number, largest finite value
FORMATS = {"f32": (23, -126, 2.0**128 - 2.0**104), "f64": (52, -1022, 1.7976931348623157e308)}


def error(e: Any, v: Value, x: Any, args: list, carried: list) -> Any:
    """The error of a scan whose exact value is `x`, by those of its operands; `e` is the `Analysis`."""
    torch = e.torch
    dim, backwards, exclusive = split(tuple(v.attr))
    entering = [e.entering(v, a) + e.noise.get(of, 0.0) if c is None else c for of, a, c in zip(v.args, args, carried, strict=True)]
    own = operands(e, v, args, dim)
    at = e.places(own[0], (dim,))[0]
    n = own[0].shape[at]
    if n == 0:
        return torch.zeros((), dtype=torch.float64)
    shape = torch.broadcast_shapes(*(t.shape for t in (*own, *entering)))
    errors = [c.double().expand(shape) for c in entering]
    own = [t.expand(shape) for t in own]
    if not x.dtype.is_floating_point:
        moves = sum(errors).ne(0).double()
        reached = moves.flip(at).cumsum(at).flip(at) if backwards else moves.cumsum(at)
        return torch.where(reached > 0, torch.inf, 0.0)
    if backwards:
        own, errors = [t.flip(at) for t in own], [c.flip(at) for c in errors]
    extreme = v.op in ("cummax", "cummin")  # where an infinity that loses is no 0, which may win
    finite = [(t if extreme else torch.where(torch.isfinite(t), t, 0.0)).double() for t in own]
    format_ = e.compute(v)
    unit = 2.0**-24 if format_ == "f32" else 2.0**-52  # of f64 twice: the exact reading rounds too
    found = BOUNDS[v.op](torch, v, finite, errors, at, unit, n, format_)
    endless = torch.stack([~torch.isfinite(t) for t in own]).any(0).cumsum(at) > 0
    if v.op in ("cumprod", "recur"):  # times a product of neighbours that vanishes, which it meets one by one in eager
        vanishes = _neighbours(torch, own[0].abs().double() + errors[0], at)[1] < FORMATS[format_][1]
        found = torch.where(endless & vanishes, torch.inf, found)
        either = (errors[0] > 0) & (errors[0] >= own[0].abs())  # of a factor that may be 0 or of either sign an infinity makes anything
        if v.op == "recur":  # of one that comes behind it
            before = torch.cat([torch.zeros_like(endless.narrow(at, 0, 1)), endless.narrow(at, 0, n - 1)], at)
            found = torch.where((before & either).cumsum(at) > 0, torch.inf, found)
        else:  # of any
            found = torch.where(endless & (either.cumsum(at) > 0), torch.inf, found)
    if v.op == "recur":  # what an infinite factor multiplies may be a 0 with which the row begins, or a piece of it
        found = torch.where(own[0].isinf().cumsum(at) > 0, torch.inf, found)
    found = torch.where(torch.isfinite(found), found, torch.nan)  # where parts overflow, they may be NaN together
    if exclusive:
        found = torch.cat([torch.zeros_like(found.narrow(at, 0, 1)), found.narrow(at, 0, n - 1)], at)
    return found.flip(at) if backwards else found


def _gamma(unit: float, n: int) -> float:
    return math.expm1(depth(n) * math.log1p(unit))


def _count(torch: Any, x: Any, at: int) -> Any:
    """How many elements stand up to each, itself among them."""
    return torch.ones_like(x).cumsum(at)


def _sum(torch: Any, v: Value, own: list, errors: list, at: int, unit: float, n: int, format_: str) -> Any:
    (x,), (e,) = own, errors
    sides = [side.clamp(min=0).add(e).cumsum(at) for side in (x, -x)]
    found = e.cumsum(at) + _gamma(unit, n) * (x.abs() + e).cumsum(at)
    return torch.where(torch.maximum(*sides) > FORMATS[format_][2], torch.inf, found)


def _neighbours(torch: Any, size: Any, at: int) -> tuple[Any, Any]:
    """The logarithms of the greatest and the least product of neighbours among the elements up to each."""
    logs = torch.where((size > 0) & (size < torch.inf), size, 1.0).log2().cumsum(at)
    before = torch.cat([torch.zeros_like(logs.narrow(at, 0, 1)), logs], at).narrow(at, 0, size.shape[at])
    return (logs - before.cummin(at).values).cummax(at).values, (logs - before.cummax(at).values).cummin(at).values


def _product(torch: Any, v: Value, own: list, errors: list, at: int, unit: float, n: int, format_: str) -> Any:
    (x,), (e,) = own, errors
    size, (digits, least, largest) = x.abs() + e, FORMATS[format_]
    high, low = _neighbours(torch, size, at)
    whole, count = size.cumprod(at), _count(torch, x, at)
    found = whole - x.abs().cumprod(at) + torch.expm1((count + 1) * math.log1p(unit)) * whole
    lost = count * 2.0 ** (least - digits) * torch.exp2(2 * high.clamp(min=0, max=500))
    found = found + torch.where(low < least + 1, lost, 0.0)
    return torch.where(high >= math.log2(largest) - 1, torch.inf, found)


def _extreme(torch: Any, v: Value, own: list, errors: list, at: int, unit: float, n: int, format_: str) -> Any:
    (x,), (e,) = own, errors
    sign = -1.0 if v.op == "cummin" else 1.0
    x = sign * x
    middle, high, low = ((x + side * e).cummax(at).values for side in (0.0, 1.0, -1.0))
    found = torch.where(torch.isfinite(middle), torch.maximum(high - middle, middle - low), 0.0)
    return torch.where((~torch.isfinite(e)).cumsum(at) > 0, torch.nan, found)


def _log(torch: Any, v: Value, own: list, errors: list, at: int, unit: float, n: int, format_: str) -> Any:
    (x,), (e,) = own, errors
    reach = x.abs().cummax(at).values + _count(torch, x, at).log()
    return e.cummax(at).values + 1.01 * depth(n) * unit * (reach + 8)


def _recurrence(torch: Any, v: Value, own: list, errors: list, at: int, unit: float, n: int, format_: str) -> Any:
    (a, b), (da, db) = ([t.abs() for t in own], errors)
    digits, least, largest = FORMATS[format_]
    exact, size = recurrence(torch, a, b, at), recurrence(torch, a + da, b + db, at)
    before = torch.cat([torch.zeros_like(size.narrow(at, 0, 1)), size], at).narrow(at, 0, n)
    steps = recurrence(torch, a + da, (a + da) * before, at)
    count = _count(torch, a, at)
    found = size - exact + unit * (steps + (depth(n) + 3) * size) / max(1e-3, 1 - n * unit)
    found = found + count * 2.0 ** (least - digits) * (1 + size.cummax(at).values)
    high, _ = _neighbours(torch, a + da, at)
    endless = (size > largest).cumsum(at) > 0  # 0 times what has overflowed is NaN
    return torch.where((high >= math.log2(largest) - 1) | endless, torch.inf, found)


def _since(torch: Any, v: Value, own: list, errors: list, at: int, unit: float, n: int, format_: str) -> Any:
    (begins, x), (db, e) = own, errors
    sides = [since(torch, begins, side.clamp(min=0).add(e), at) for side in (x, -x)]
    found = since(torch, begins, e, at) + _gamma(unit, n) * since(torch, begins, x.abs() + e, at)
    another = (db != 0).cumsum(at) > 0
    return torch.where((torch.maximum(*sides) > FORMATS[format_][2]) | another, torch.inf, found)


BOUNDS = {"cumsum": _sum, "cumprod": _product, "cummax": _extreme, "cummin": _extreme, "logcumsumexp": _log, "recur": _recurrence,
          "cumsum_since": _since}  # fmt: skip
