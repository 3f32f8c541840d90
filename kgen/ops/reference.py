"""Torch's side of the rows where its own function is missing or not what it should be.

In: torch and tensors.  Out: a tensor; nothing here loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any


def sigmoid(torch: Any, x: Any) -> Any:
    """torch's own is 0 where exp(-x) overflows, though there are denormals there; exp(x) is as good from -80 down (1 + 1e-35)."""
    return torch.where(x < -80, torch.exp(x.clamp(max=0)), torch.sigmoid(x))


def sigmoid_slope(torch: Any, x: Any) -> Any:
    """torch has none; of neither factor a digit cancels."""
    return sigmoid(torch, x) * sigmoid(torch, -x)


def cube_root(torch: Any, x: Any) -> Any:
    """torch has none: a power, whose rounded exponent leaves up to 400 ulp of f64, and one step of Newton's."""
    x, stored = x.double(), x.dtype
    y = torch.copysign(x.abs() ** (1 / 3), x)
    better = y + (x / (y * y) - y) / 3
    return torch.where(torch.isfinite(better), better, y).to(stored)


def digamma(torch: Any, x: Any) -> Any:
    """torch's own in f32 is tens of ulp off near its zeros: its f64 is rounded."""
    return torch.digamma(x.double()).to(x.dtype)


def philox(torch: Any, seed: Any, offset: Any, i: Any) -> Any:
    """`numbers.philox` of i64 tensors; their products wrap, which leaves the lower 64 bits as they are."""
    half, m0, m1 = 0xFFFFFFFF, 0xD2511F53, 0xCD9E8D57
    seed, offset, i = torch.broadcast_tensors(seed, offset, i)
    at = i >> 2 & 2**62 - 1
    c0, c1, c2, c3 = offset & half, offset >> 32 & half, at & half, at >> 32
    k0, k1 = seed & half, seed >> 32 & half
    for _ in range(10):
        p, q = c0 * m0, c2 * m1
        c0, c1, c2, c3 = q >> 32 & half ^ c1 ^ k0, q & half, p >> 32 & half ^ c3 ^ k1, p & half
        k0, k1 = k0 + 0x9E3779B9 & half, k1 + 0xBB67AE85 & half
    return torch.where(i & 2 == 0, torch.where(i & 1 == 0, c0, c1), torch.where(i & 1 == 0, c2, c3))


def fma(torch: Any, a: Any, b: Any, c: Any) -> Any:
    if a.dtype == torch.float64:
        return torch.addcmul(c, a, b)
    return (a.double() * b.double() + c.double()).to(torch.promote_types(torch.promote_types(a.dtype, b.dtype), c.dtype))


# ------------------------------------------------------------------- float64 where torch's own, `y`, is far off somewhere


def hyperbolic(odd: bool) -> Callable[[Any, Any, Any], Any]:
    """Of sinh (`odd`) and cosh: torch's overflow where exp(x) does, a factor 2 too early: there they are exp(x / 2)^2 / 2."""

    def exact(torch: Any, x: Any, y: Any) -> Any:
        half = (x.abs() / 2).exp()
        large = half / 2 * half
        return y.where(x.abs() < 700, large.copysign(x) if odd else large).where(~x.isnan(), y)

    return exact


def exact_lgamma(torch: Any, x: Any, y: Any) -> Any:
    """torch's is thousands of units off near the zeros at negative x, where mpmath's is taken."""
    return _near_zeros(x, y, lambda mpmath, v: mpmath.log(abs(mpmath.gamma(v))))


def exact_digamma(torch: Any, x: Any, y: Any) -> Any:
    """As for lgamma; besides torch takes the tangent of pi x as rounded, and that of x's distance from a whole number is the same."""
    apart = x - x.round()
    y = y.where((x >= 0) | (apart == 0) | ~x.isfinite(), (1 - x).digamma() - math.pi / (math.pi * apart).tan())
    return _near_zeros(x, y, lambda mpmath, v: mpmath.digamma(v))


def _near_zeros(x: Any, y: Any, function: Callable[[Any, Any], Any]) -> Any:
    near = (y.abs() < 0.25) & (x < 0)
    if not bool(near.any()):
        return y
    import mpmath

    with mpmath.workprec(120):
        better = [float(function(mpmath, mpmath.mpf(v))) for v in x[near].tolist()]
    exact = y.detach().clone()
    exact[near] = y.new_tensor(better)
    return y.where(~near, exact + (y - y.detach()))  # with y's derivative
