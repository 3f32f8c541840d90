"""Torch's own functions for bundled specs, as candidates that are right: `tests.verify.eager:softmax`.

`EAGER` has them by spec, with the dtypes in which torch computes them as the spec asks: where torch's CPU kernel itself computes 16-bit
floats in float32 and rounds once, all; where a formula of several operators rounds on the way, float32 and float64.  `AS_TORCH` has the
formula that torch documents where it computes by another one than the bundled spec does, `PROMISED` what the function asks of its arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from tests.verify import kernelbench

ALL = ("f32", "f64", "bf16", "f16")
WIDE = ("f32", "f64")


@dataclass(frozen=True)
class Eager:
    """A function of torch's, the dtypes in which it computes as the spec asks, and options of `examine`."""

    function: Callable[..., Any]
    dtypes: tuple[str, ...] = ALL
    options: dict[str, Any] = field(default_factory=dict)


GELU = "0.5 * {0} * (1 + erf({0} * sqrt(0.5)))"
GELU_TANH = "0.5 * {0} * (1 + tanh(sqrt(2 / pi) * ({0} + 0.044715 * {0}^3)))"
#: What torch documents that it computes: of gelu the sum of 1 and erf (or tanh), which loses the digits of small results that the bundled
#: specs keep; of softplus a threshold of 20.
AS_TORCH = {
    "gelu": f"gelu(x: T[...]) -> y: T[...]\n\ny = {GELU.format('x')}\n",
    "gelu_tanh": f"gelu_tanh(x: T[...]) -> y: T[...]\n\ny = {GELU_TANH.format('x')}\n",
    "geglu_packed": f"geglu_packed(x: T[..., 2*D]) -> y: T[..., D]\n\ng = x[2 = 0]\ny = {GELU.format('g')} * x[2 = 1]\n",
    "geglu_tanh": f"geglu_tanh(g: T[...], u: T[...]) -> y: T[...]\n\ny = {GELU_TANH.format('g')} * u\n",
    "softplus": "softplus(x: T[...]) -> y: T[...]\n\ny = x if x > 20 else log1p(exp(x))\n",
}
#: What a function asks of its arguments, which it refuses by an error otherwise.
PROMISED: dict[str, dict[str, Any]] = {
    "complex_multiply": {"contiguous": True},  # view_as_complex
    "avg_pool2": {"leading": (1, 2)},
    "info_nce": {"sizes": {"M": 64, "N": 64}},  # the place of each row's own term is the row's number
    "entropy": {"special": False},  # torch.distributions has no infinite logits
    "typical_mask": {"special": False},
}


def in_place(function: Callable[..., Any], states: list[str]) -> Callable[..., Any]:
    """A function that gives new states, as one that writes them."""

    @functools.wraps(function)
    def step(**given: Any) -> None:
        for name, new in zip(states, function(**given), strict=True):
            given[name].copy_(new)

    return step


def _softmax(x):
    return torch.softmax(x, -1)


def _log_softmax(x):
    return torch.log_softmax(x, -1)


def _layernorm(x, w=None, b=None, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], w, b, eps)


def _rmsnorm(x, w=None, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], w, eps)


def _groupnorm(x, w=None, b=None, eps=1e-5):
    batch, groups, channels, space = x.shape
    w, b = (None if t is None else t.reshape(-1) for t in (w, b))
    return F.group_norm(x.reshape(batch, groups * channels, space), groups, w, b, eps).view(x.shape)


def _argmax(x):
    return torch.argmax(x, -1)


def _logsumexp(x):
    return torch.logsumexp(x, -1)


def _variance(x):
    return torch.var(x, -1)


def _cumsum(x):
    return torch.cumsum(x, -1)


def _l2_normalize(x, eps=1e-12):
    return F.normalize(x, dim=-1, eps=eps)


def _cosine_similarity(x, y, eps=1e-8):
    return F.cosine_similarity(x, y, -1, eps)


def _huber(x, y, delta=1.0):
    return F.huber_loss(x, y, delta=delta)


def _mse(x, y):
    return F.mse_loss(x, y)


def _frobenius(x):
    return torch.linalg.vector_norm(x)


def _gelu(x):
    return F.gelu(x)


def _gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def _swiglu(g, u):
    return F.silu(g) * u


def _relu_squared(x):
    return F.relu(x).square()


def _add(a, b):
    return a + b


def _clip(x, lo, hi):
    return torch.clamp(x, lo, hi)


def _cummax(x):
    found = torch.cummax(x, -1)
    return found.values, found.indices


def _cumprod(x):
    return torch.cumprod(x, -1)


def _logcumsumexp(x):
    return torch.logcumsumexp(x, -1)


EAGER: dict[str, Eager] = {
    "softmax": Eager(_softmax),
    "log_softmax": Eager(_log_softmax),
    "layernorm": Eager(_layernorm),
    "rmsnorm": Eager(_rmsnorm, WIDE),
    "groupnorm": Eager(_groupnorm),
    "argmax": Eager(_argmax),
    "logsumexp": Eager(_logsumexp, WIDE),
    "variance": Eager(_variance),
    "cumsum": Eager(_cumsum, WIDE),
    "l2_normalize": Eager(_l2_normalize, WIDE),
    "cosine_similarity": Eager(_cosine_similarity, WIDE),
    "huber": Eager(_huber, WIDE),
    "mse": Eager(_mse, WIDE),
    "frobenius": Eager(_frobenius, WIDE),
    "gelu": Eager(_gelu),
    "gelu_tanh": Eager(_gelu_tanh),
    "silu": Eager(F.silu),
    "swiglu": Eager(_swiglu, WIDE),
    "softplus": Eager(F.softplus),
    "mish": Eager(F.mish),
    "elu": Eager(F.elu),
    "hardswish": Eager(F.hardswish),
    "relu_squared": Eager(_relu_squared, WIDE),
    "add": Eager(_add),
    "clip_by_value": Eager(_clip),
    "cummax": Eager(_cummax),
    "cumprod": Eager(_cumprod, WIDE),
    "logcumsumexp": Eager(_logcumsumexp, WIDE),
}


def _lines() -> dict[str, Eager]:
    """The library's own lines: torch functions of the families' specs, in the dtypes that round once; plain numbers where tensors are to
    hold something else than any numbers."""
    from kgen.bench import library

    found = {}
    for name in dir(library):
        table = getattr(library, name)
        if name.isupper() and isinstance(table, dict):
            for spec, line in table.items():
                if isinstance(line, library.Line) and spec not in EAGER and not any(isinstance(g, str) for g in line.given.values()):
                    results = kernelbench.kernel_of(spec).results
                    states = [r.state for r in results if r.state]
                    function = in_place(line.torch, states) if len(states) == len(results) else line.torch
                    found[spec] = Eager(function, WIDE, PROMISED.get(spec, {}))
    return found


def __getattr__(name: str) -> Any:
    made = EAGER.get(name) or _lines().get(name)
    if made is None:
        raise AttributeError(name)
    return made.function
