"""Kernels with a derivative: the specs, programs of many shapes, and small formulas; arguments for them; torch's own gradients."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import torch

from kgen import check, syntax
from kgen.check import Kernel
from kgen.grad import Backward, backward, differentiable
from kgen.runtime.arguments import default
from kgen.runtime.evaluate import Evaluator
from kgen.types import DTYPES, ELLIPSIS
from tests.conftest import ROOT
from tests.programs import PROGRAMS

FORMULAS = {
    "shared value": "f(x: T[..., N]) -> y: T[..., N]\n\na = exp(x)\ny = a * sin(a) + a / (1 + a)",
    "helpers": "f(x: T[...], s: float = 0.7) -> y: T[...]\n\nswish(z) = z * sigmoid(s_(z))\ns_(z) = 1.5 * z\ny = swish(x) + s * swish(x^2)",
    "several results": (
        "f(x: T[..., N], w: T[N]) -> (y: T[..., N], s: T32[...], t: T[N])\n\ny = x * w\ns = sum[N](y^2)\nt = w^2 * mean[...](x)"
    ),
    "stop": "f(x: T[...]) -> y: T[...]\n\ny = x * stop(exp(x)) + stop(x)^2",
    "straight through": "f(x: T[...], s: T[]) -> y: T[...]\n\nq = x / s\ny = (q + stop(round(q) - q)) * s",
    "0-d and named dims": "f(x: T[M, N], a: T[], b: T[M], c: T[N]) -> y: T[N]\n\ny = sum[M](tanh(a * x + b) * c)",
    "dims in another order": "f(x: T[M, N], y: T[N, M]) -> z: T[N, M]\n\nz = x * y^2",
    "conditions": "f(x: T[..., N], t: T[N]) -> y: T[..., N]\n\ny = (sin(x) if x > 1 else cos(x) * t) if x > t else (x^3 if x < -1 else t)",
    "casts": "f(x: T[..., N], w: f32[N]) -> y: T[..., N]\n\nh = T(x * w)\ny = f64(h) * T32(w)",
    "greatest and least": "f(x: T[M, N]) -> (y: T[M], z: T[])\n\ny = max[N](x) * min[N](x^2)\nz = max[M, N](x * 2)",
    "product": "f(x: T[M, N]) -> y: T[M]\n\ny = prod[N](1 + x / 4)",
    "softmax beside its maximum": "f(x: T[..., N]) -> (y: T[..., N], m: T[...])\n\nm = max[N](x)\ny = exp(x - m) / sum[N](exp(x - m))",
    "maximum that stays": "f(x: T[..., N]) -> y: T[..., N]\n\nm = max[N](x)\ny = exp(x - m) * (1 + m)",
    "what one reading feeds": "f(x: T[..., N]) -> y: T[..., N]\n\na = x - mean[N](x)\nb = a * rsqrt(mean[N](a^2) + 0.1)\ny = b * sum[N](b^3)",
    "about a mean, and what lacks a dim": "f(x: T[M, N]) -> (a: T[M], b: T32[])\n\nc = x - mean[M, N](x)\na = sum[N](c)\nb = sum[M, N](c^2)",
    "about other than its mean": (
        "f(x: T[M, N]) -> (a: T[M], b: T[M], c: T[M], d: T[])\n\na = sum[N]((x - sum[N](x))^2)\nb = sum[N]((x - mean[N](x^2))^2)\n"
        "c = sum[N]((x - mean[M](x))^2 / 3)\nd = sum[M, N](-(x - mean[N](x))^3)"
    ),
    "a number, and one for each of a dim, beside rows": (
        "f(x: T[B, H, Q, K], g: T[], h: T[H], w: T[H, Q, K]) -> y: T[B, H, Q, K]\n\n"
        "z = x + h * (index[Q] - index[K]) if index[K] <= index[Q] else -x / 2\ny = g * z / sum[K](z^2 + 1) - w * h"
    ),
    "a mask before a maximum": (
        "f(x: T[M, N], t: i64[M]) -> y: T[M, N]\n\nz = x if index[N] <= t else -inf\nm = max[N](z)\ne = exp(z - m) if index[N] <= t else 0\n"
        "y = e / sum[N](e) if isfinite(m) else 0"
    ),
    "sizes": "f(x: T[..., N], y: T[M]) -> z: T[]\n\nz = mean[..., N](x) / M + sum[M](y) * N",
    "a constant beside": "f(x: T[..., N], b: T[N]) -> (y: T[..., N], z: T[])\n\ny = x + b\nz = sum[..., N](b + 0 * x)",
    "a gather in a chain": "f(x: T[..., V], w: T[V], t: i64[...]) -> y: T[...]\n\ny = pick[V](tanh(x * w), t) * sum[V](x)",
    "an index of more dims": "f(x: T[V], t: i64[M, N]) -> y: T[M, N]\n\ny = pick[V](x^2, t)",
    "two dtype variables": "f(x: T[..., N], w: U[N]) -> y: T[..., N]\n\ny = x * rsqrt(mean[N](x^2) + 1) * w",
    "powers": "f(x: T[...], y: T[...]) -> z: T[...]\n\nz = abs(x)^y + x^3 + (1 + x^2)^-1.5 + 2^x",
    "all that is smooth": (
        "f(x: T[...]) -> y: T[...]\n\na = erf(x) + erfc(x) + expm1(x) + log1p(x^2) + atan(x) + asinh(x) + cbrt(x)\n"
        "b = tanh(x) * sinh(x) + cosh(x) + sigmoid(x) + exp2(x) + sin(x) * cos(x) + atan2(x, 2) + hypot(x, 1) + fma(x, x, x)\n"
        "c = log(1 + x^2) + log2(2 + x^2) + log10(3 + x^2) + sqrt(1 + x^2) + rsqrt(1 + x^2) + lgamma(3 + x^2) + asin(x / 9) + acos(x / 9)\n"
        "y = a + b * c + atanh(x / 9) + acosh(2 + x^2) + erfinv(x / 9) + tan(x / 9)"
    ),
}


@cache
def kernel(text: str, name: str = "<text>") -> Kernel:
    return check.plain(check.check(syntax.parse(text, name)))


def texts() -> dict[str, str]:
    """Every text with a derivative, by name."""
    found = {p.stem: p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))} | PROGRAMS | FORMULAS
    return {name: text for name, text in found.items() if differentiable(kernel(text))}


def wide(text: str) -> Kernel:
    """A kernel with f64 in the place of f32, so that float64 is kept all the way."""
    return kernel(re.sub(r"\bf32\b", "f64", text))


def arguments(k: Kernel, dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[str, Any]:
    """Random arguments in general position: positive where a logarithm is taken, indices inside their dims."""
    generator = torch.Generator().manual_seed(seed)
    sizes: dict[str, int] = dict(k.literals)
    given: dict[str, Any] = {}
    positive = any(v.op == "log" for v in k.values) and not any(v.op == "exp" for v in k.values)
    for p in k.params:
        if p.dims is None:
            given[p.name] = default(p) if p.default and default(p) else 1 if p.dtype == "int" else 0.3
            continue
        shape = [n for d in p.dims for n in ([2, 3] if d == ELLIPSIS else [sizes.setdefault(d, 4 + len(sizes) % 3)])]
        if p.dtype in DTYPES and not DTYPES[p.dtype].is_float:
            given[p.name] = torch.randint(0, 2, shape, generator=generator).to(getattr(torch, DTYPES[p.dtype].torch))
        else:
            x = torch.randn(shape, generator=generator, dtype=torch.float64)
            own = getattr(torch, DTYPES[p.dtype].torch) if p.dtype in DTYPES else dtype
            given[p.name] = (x.abs() + 0.1 if positive else x).to(own)
    return given


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def torchs(k: Kernel, given: dict[str, Any], cotangents: dict[str, torch.Tensor] | None = None) -> tuple[dict, dict]:
    """Cotangents (random where not given) of the float results, and autograd's gradients of the formula, operator by operator."""
    leaves = {name: x.clone().requires_grad_() if is_float(x) else x for name, x in given.items()}
    results = {r.name: y for r, y in zip(k.results, Evaluator(k, leaves, "eager").run(), strict=True) if y.is_floating_point()}
    generator = torch.Generator().manual_seed(1)
    dys = cotangents or {name: torch.randn(y.shape, generator=generator, dtype=torch.float64).to(y.dtype) for name, y in results.items()}
    live = {name: y for name, y in results.items() if y.requires_grad}
    wanted = {name: x for name, x in leaves.items() if is_float(x)}
    found = torch.autograd.grad(list(live.values()), list(wanted.values()), [dys[name] for name in live], allow_unused=True)
    return dys, {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(wanted.items(), found, strict=True)}


def kgens(made: Backward, given: dict[str, Any], dys: dict[str, torch.Tensor], mode: str = "eager") -> dict[str, torch.Tensor]:
    """The gradients of a backward, its kernels evaluated operator by operator."""
    results = Evaluator(made.forward, given, mode).run()
    saved = {r.name: y for r, y in zip(made.forward.results, results, strict=True) if r.name in made.saved}
    took = {made.cotangents[name]: dy for name, dy in dys.items() if name in made.cotangents} | {name: given[name] for name in made.takes} | saved
    assert set(took) == {p.name for p in made.kernel.params}
    found = dict(zip((r.name for r in made.kernel.results), Evaluator(made.kernel, took, mode).run(), strict=True))
    return {name: found[made.gradients[name]] if name in made.gradients else torch.zeros_like(x) for name, x in given.items() if is_float(x)}


__all__ = ["Backward", "arguments", "backward", "kernel", "kgens", "texts", "torchs", "wide"]
