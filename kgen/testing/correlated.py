"""Bounds that know which errors are one and the same: the running analysis of `bounds.py`, with first-order terms that keep their sign.

A value's error is written as a sum: a coefficient times the rounding error of each earlier value that is used more than once or along a
row (a mean, a sum of exponentials), and a rest that is known by magnitude alone.  What enters a result along two ways is then
counted once: the error of a mean moves every term of sum((x - mean(x))^2) alike, and the terms' coefficients add up to 0.

With d the error of an operand of value a, at most E in magnitude, each operator moves it by its derivative at the exact value, exactly
computed; what that leaves out goes to the rest, by a bound that is proven:

    a + b, a - b, -a    nothing
    a * b, a^2          |da db|
    a / b = q           (da - q db) / (b + db) is (da - q db) / b but for a factor 1 / (1 + db / b): T t / (1 - t), where
                        |da - q db| / |b| <= T and |db / b| <= t < 1
    f(a)                E^2 / 2 times the largest |f''| within E of a (of tanh, sigmoid and erf anywhere: 0.770, 0.0963, 0.968)
    abs, relu           nothing where |a| > E, else all of it
    where               nothing, where the condition is exact
    sum, mean           the coefficients of an error that the whole row shares are added with their signs (and 2^-40 of their
                        magnitudes, for the addition's own rounding); those of others in magnitude

Every other operator passes its whole error on as one of its own.  The rounding of a product is never shared: one that meets a sum may be
fused with it, and is rounded elsewhere.  A value's bound is the lesser of this one and the one of `bounds.py`;
where that knows none (a pole, an overflow) there is none.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

from kgen.check import Kernel, Value
from kgen.ops import OPS, Move, intervals
from kgen.ops.intervals import Slopes
from kgen.testing.bounds import Analysis


@dataclass
class _Sum:
    """An error as a sum: coefficients of the errors of values, by their place in the kernel, and a rest."""

    parts: dict[int, Any]
    rest: Any


class Correlated(Analysis):
    """`Analysis`, whose bounds count an error that reaches a value along several ways once."""

    def __init__(self, kernel: Kernel, arguments: dict[str, Any], target: str, runs: tuple[Kernel, ...] = ()):
        super().__init__(kernel, arguments, target, runs)
        self.sums: list[_Sum | None] = []
        self.radius: dict[int, Any] = {}
        self.uses = Counter(a for v in kernel.values for a in v.args) + Counter(r.value for r in kernel.results)
        self.last = self.last_uses()

    def error(self, v: Value, x: Any, args: list, carried: list) -> Any:
        """As `Analysis.error`; besides, the error is kept as a sum of what values share and a rest, so that what cancels later
        can cancel."""
        torch, k = self.torch, len(self.sums)
        total = super().error(v, x, args, carried)
        self.sums.append(None)
        if not isinstance(total, torch.Tensor) or not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
            return total
        shared = self.uses[k] > 1 and v.op not in ("mul", "pow") or v.op in ("sum", "mean")
        moved, own = self.split(v, x, args, carried, total)
        size = self.size(moved) + own
        lost = ~(torch.isfinite(size) & torch.isfinite(total))
        made = _Sum({s: torch.where(lost, 0.0, c) for s, c in moved.parts.items()}, torch.where(lost, total, moved.rest))
        own = torch.where(lost, 0.0, own)
        if shared and bool((own != 0).any()):
            made.parts[k], self.radius[k] = torch.ones((), dtype=torch.float64), own
        else:
            made.rest = made.rest + own
        self.sums[k] = made
        for a in v.args:
            if self.last[a] == k:
                self.sums[a] = None
        return torch.where(lost, total, torch.minimum(size, total))

    def size(self, s: _Sum) -> Any:
        """The most that a sum may come to."""
        found = s.rest
        for k, c in s.parts.items():
            found = found + c.abs() * self.radius[k]
        return found

    def split(self, v: Value, x: Any, args: list, carried: list, total: Any) -> tuple[_Sum, Any]:
        """What a value's operands move it by, and what it adds: its rounding; of an operator without a rule all of its error."""
        torch = self.torch
        alone = _Sum({}, torch.zeros((), dtype=torch.float64)), total
        if v.op in ("sum", "mean") and v.attr:
            return self.added(v, args, carried, total)
        if v.attr and v.op != "cast" or self.steps is None or not all(torch.is_tensor(e) for e in self.steps[0]):
            return alone
        errors, own = self.steps
        terms = [self.sums[a] if e is c and self.sums[a] else _Sum({}, e) for a, e, c in zip(v.args, errors, carried, strict=True)]
        slopes = self.slopes(v, x, args, errors)
        if slopes is None:
            return alone
        coefficients = slopes.by
        moved = _Sum({}, slopes.rest if slopes.rest is not None else torch.zeros((), dtype=torch.float64))
        for c, term in zip(coefficients, terms if len(coefficients) == len(terms) else terms[-len(coefficients) :], strict=True):
            assert term is not None
            moved.rest = moved.rest + c.abs() * term.rest
            for k, of in term.parts.items():
                moved.parts[k] = moved.parts[k] + c * of if k in moved.parts else c * of
        if (t := slopes.growth) is not None:
            moved.rest = moved.rest + torch.where(t < 1, self.size(moved) * t / (1 - t), torch.inf)
        return moved, torch.as_tensor(own, dtype=torch.float64)

    def slopes(self, v: Value, x: Any, args: list, errors: list) -> Slopes | None:
        """The derivatives of a value by its operands; None where there is no rule."""
        if v.op == "cast":
            return intervals.linear(1)(Move(self.torch, x, args, errors)) if self.keeps(v) else None
        if v.op == "pow" and self.literal(v.args[1]) == 2:
            return intervals.square(Move(self.torch, x, args, errors))
        rule = OPS[v.op].errors.slopes if v.op in OPS else None
        return rule(Move(self.torch, x, args, errors)) if rule is not None else None

    def added(self, v: Value, args: list, carried: list, total: Any) -> tuple[_Sum, Any]:
        """`split` for a sum or a mean."""
        torch = self.torch
        over = tuple(v.attr)
        terms = self.whole(args[0], over)
        dims = self.places(terms, over)
        count = math.prod(terms.shape[d] for d in dims) if v.op == "mean" else 1
        of = self.sums[v.args[0]]
        e = carried[0].to(torch.float64).expand(terms.shape)
        if of is None or not dims or not bool(torch.isfinite(e).all()):
            return _Sum({}, torch.zeros((), dtype=torch.float64)), total
        moved = _Sum({}, of.rest.expand(terms.shape).sum(dims, keepdim=True) / count)
        for k, c in of.parts.items():
            radius = self.radius[k].reshape([1] * (terms.dim() - self.radius[k].dim()) + list(self.radius[k].shape))
            size = (c.abs() * radius).expand(terms.shape).sum(dims, keepdim=True) / count
            if all(radius.shape[d] == 1 for d in dims):
                moved.parts[k] = c.expand(terms.shape).sum(dims, keepdim=True) / count
                moved.rest = moved.rest + 2.0**-40 * size
            else:
                moved.rest = moved.rest + size
        return moved, (total - e.sum(dims, keepdim=True) / count).clamp(min=0)
