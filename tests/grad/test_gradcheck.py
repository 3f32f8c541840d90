"""PyTorch's own numerical checks of first and second derivatives, through the autograd function of a kernel's call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from kgen.runtime.kernel import Kernel
from tests.conftest import ROOT
from tests.grad_cases import FORMULAS, arguments, is_float, texts, wide

TEXTS = texts()
#: Infinite where nothing is found: torch takes differences of results.
MASKED = ("min_p_mask", "top_p_mask", "topk", "topk_mask")
SPECS = [p.stem for p in sorted((ROOT / "specs").glob("*.k")) if p.stem in TEXTS and p.stem not in MASKED]


def checked(name: str, target: str, device: str = "cpu") -> None:
    """gradcheck and gradgradcheck of a text in float64."""
    k = wide(TEXTS[name])
    kernel = Kernel(k)
    given = {n: x.to(device) if isinstance(x, torch.Tensor) else x for n, x in arguments(k).items()}
    floats = [n for n, x in given.items() if is_float(x)]
    leaves = tuple(given[n].clone().requires_grad_() for n in floats)

    def function(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results: Any = kernel(**(given | dict(zip(floats, xs, strict=True))), target=target)
        results = results if isinstance(results, tuple) else (results,)
        return tuple(y for y in results if y.is_floating_point() and y.requires_grad)

    assert gradcheck(function, leaves, fast_mode=True)
    if any(g.requires_grad for y in function(*leaves) for g in torch.autograd.grad(y.sum(), leaves, create_graph=True, allow_unused=True) if g is not None):
        assert gradgradcheck(function, leaves, fast_mode=True)


#: Each second by default: every gradient is held to autograd's in float64 elsewhere.
CHECKED = [*SPECS, *(n for n in FORMULAS if n not in ("stop", "straight through", "all that is smooth"))]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if k % 2 else ()) for k, n in enumerate(CHECKED)])
def test_gradients_pass_torchs_numerical_checks(name: str) -> None:
    checked(name, "torch")


@pytest.mark.parametrize("name", ["silu"])
def test_gradients_of_built_kernels_pass_torchs_numerical_checks(name: str) -> None:
    checked(name, "cpp")


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in SPECS if n != "silu"])
def test_gradients_of_every_built_kernel_pass_torchs_numerical_checks(name: str) -> None:
    checked(name, "cpp")


def by_turns() -> list:
    """Every spec on both targets: each eighth with CUDA, each sixteenth with Triton, which takes f64 three times as long to compile; the rest is
    slow, for every gradient is held to its bound on both targets elsewhere."""
    return [
        pytest.param(name, target, marks=pytest.mark.slow if k % every else ())
        for k, name in enumerate(SPECS)
        for target, every in (("triton", 16), ("cuda", 8))
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "target"), by_turns())
def test_gradients_on_a_gpu_pass_torchs_numerical_checks(name: str, target: str) -> None:
    checked(name, target, "cuda")
