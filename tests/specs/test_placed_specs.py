"""The bundled specs that read and write parts and places, beside what one would write in torch; and gradients on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kgen


def turned(a: torch.Tensor, b: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return a * cos - b * sin, b * cos + a * sin


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return torch.cat(turned(*x.chunk(2, -1), cos, sin), -1)


def rope_interleaved(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return torch.stack(turned(x[..., ::2], x[..., 1::2], cos, sin), -1).flatten(-2)


def swiglu_packed(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def causal_conv4(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.silu(F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=len(w)))


def laplacian(x: torch.Tensor) -> torch.Tensor:
    kernel = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=x.dtype)
    return F.conv2d(x[:, None], kernel[None, None], padding=1)[:, 0]


CASES: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (rope, [(2, 3, 7, 16), (7, 8), (7, 8)]),
    (rope_interleaved, [(2, 3, 7, 16), (7, 8), (7, 8)]),
    (swiglu_packed, [(3, 5, 34)]),
    (causal_conv4, [(2, 5, 19), (5, 4), (5,)]),
    (causal_conv4, [(2, 5, 2), (5, 4), (5,)]),
    (laplacian, [(3, 6, 9)]),
    (laplacian, [(2, 1, 1)]),
]


#: Built for the CPU in any run; the others are left to `-m slow`.
BUILT = {rope: "cpp"}


def each(cases: list[tuple[Callable[..., Any], list[tuple[int, ...]]]], target: str, built: dict[Callable[..., Any], str]) -> list[Any]:
    """Parameters of tests on a target, slow ones but for those that are built in any run."""
    marks = [() if target == "torch" or built.get(f) == target else (pytest.mark.slow,) for f, _ in cases]
    return [pytest.param(f, shapes, target, marks=m, id=f"{f.__name__}{k}-{target}") for k, ((f, shapes), m) in enumerate(zip(cases, marks))]


@pytest.mark.parametrize(("function", "shapes", "target"), each(CASES, "torch", {}) + each(CASES, "cpp", BUILT))
def test_it_is_what_one_writes_in_torch(function: Callable[..., Any], shapes: list[tuple[int, ...]], target: str) -> None:
    kernel = kgen.load(function.__name__)
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    want = function(*tensors)
    for given in (tensors, [t.transpose(0, -1).contiguous().transpose(0, -1) for t in tensors]):
        assert torch.allclose(kernel(*given, target=target), want, atol=1e-12)
    out = torch.empty_like(want)
    assert kernel(*tensors, out=out, target=target) is out and torch.allclose(out, want, atol=1e-12)


@pytest.mark.parametrize(("function", "shapes", "target"), each(CASES[:4] + CASES[5:6], "cpp", {}))
def test_its_gradients_are_those_of_torch(function: Callable[..., Any], shapes: list[tuple[int, ...]], target: str) -> None:
    kernel = kgen.load(function.__name__)
    ours = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    theirs = [t.detach().clone().requires_grad_() for t in ours]
    want = function(*theirs)
    dy = torch.randn(want.shape, dtype=torch.float64)
    want.backward(dy)
    kernel(*ours, target=target).backward(dy)
    for a, b in zip(ours, theirs, strict=True):
        assert a.grad is not None and b.grad is not None and torch.allclose(a.grad, b.grad, atol=1e-10)
