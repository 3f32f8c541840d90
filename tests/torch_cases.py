"""Kernels beside the eager PyTorch code that they stand for, and what the tests of PyTorch's side share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import kgen
from kgen.runtime.kernel import Kernel


@dataclass(frozen=True)
class Case:
    """A kernel, the same in eager torch, and tensors to call both with."""

    kernel: Kernel
    eager: Callable
    tensors: tuple[torch.Tensor, ...]


def _random(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


X, Y, W, B = _random(3, 5), _random(4, 5)[:3], _random(5), _random(6)[:5]
TWO = (
    "two(x: T[..., N], y: T[..., N]) -> (s: T[..., N], n: T32[...], k: i64[...])\n\ns = x * sigmoid(y)\nn = sum[N](s^2)\nk = argmax[N](x)\n"
)
CASES = {
    "gelu": Case(kgen.load("gelu"), F.gelu, (X,)),
    "layernorm": Case(kgen.load("layernorm"), lambda x, w, b: F.layer_norm(x, w.shape, w, b), (X, W, B)),
    "softmax": Case(kgen.load("softmax"), lambda x: F.softmax(x, -1), (X,)),
    "mse": Case(kgen.load("mse"), lambda x, y: (x - y).square().mean(), (X, Y)),
    "frobenius": Case(kgen.load("frobenius"), lambda x: x.square().sum().sqrt(), (X,)),
    "add_rmsnorm": Case(kgen.load("add_rmsnorm"), lambda x, r, w: (F.rms_norm(x + r, w.shape, w, 1e-6), x + r), (X, Y, W)),
    "two": Case(
        kgen.loads(TWO),
        lambda x, y: (x * y.sigmoid(), (x * y.sigmoid()).square().sum(-1), torch.broadcast_tensors(x, y)[0].argmax(-1)),
        (X, Y),
    ),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run operator by operator, so that tests of how they are called wait for no compiler."""
    monkeypatch.setattr(Kernel, "_preferred", lambda self, *_: "torch")


def floats(results: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.is_floating_point()]


def scalar(results: Any) -> torch.Tensor:
    """A number that depends on every float of some results, each in another way."""
    return sum(((k + 1) * t).sin().sum() for k, t in enumerate(floats(results)))  # type: ignore[return-value]


def assert_same(ours: Any, theirs: Any, ulps: float = 2**10) -> None:
    """The same values: to `ulps` units in the last place of the dtype, relative to 1 where a value is smaller.

    Both sides compute in that dtype, in chains of some tens of operations over rows of some tens of elements.
    """
    for a, b in zip(tree_leaves(ours), tree_leaves(theirs), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        eps = torch.finfo(a.dtype).eps if a.is_floating_point() else 0
        torch.testing.assert_close(a, b, rtol=ulps * eps, atol=ulps * eps)
