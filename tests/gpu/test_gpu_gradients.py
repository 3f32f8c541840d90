"""Gradients on a CUDA device: every kernel's within its derived bound, and up to 8192 x 8192 through autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import kgen
from kgen import grad
from kgen.runtime.arguments import default
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from tests.conftest import ROOT
from tests.grad_cases import kernel, texts
from tests.specs.cases import ALIKE

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
TEXTS = texts()
each_target = pytest.mark.parametrize("target", ["triton", "cuda"])
SPECS = {p.stem for p in (ROOT / "specs").glob("*.k")}


def kernels() -> Iterator:
    """Every kernel on both targets with 16 examples, each of other sizes, and compiled; by default with 3: on CUDA the specs, but
    for those whose passes are another's, on Triton, which compiles for longer, each second; what is no spec by turns."""
    for k, name in enumerate(TEXTS):
        for j, target in enumerate(("triton", "cuda")):
            yield pytest.param(name, 16, target, id=f"{name}-16-{target}", marks=pytest.mark.slow)
            if (k + j) % 2 or target == "cuda" and name in SPECS - {*ALIKE}:
                yield pytest.param(name, 3, target, id=f"{name}-3-{target}")


@pytest.mark.parametrize(("name", "examples", "target"), list(kernels()))
def test_gradients_stay_within_their_derived_bound(name: str, examples: int, target: str) -> None:
    """Random shapes, strides (transposed, expanded, sliced, offset), dtypes (each once, of one variable) and special values."""
    report = checks.check_backward(kernel(TEXTS[name]), target, examples=examples)
    assert not report.failures, report.failures[0]


def cotangent(way: str, y: torch.Tensor) -> torch.Tensor:
    """Of the result's shape: dense, transposed in memory, or one row (or one number) for all."""
    if way == "transposed" and y.dim() > 1:
        return torch.randn_like(y.mT.contiguous()).mT
    if way == "expanded":
        return torch.randn(y.shape[-1:], device=y.device, dtype=y.dtype).expand(y.shape)
    return torch.randn_like(y, memory_format=torch.contiguous_format)


BIG = {
    "softmax": lambda n, m: {"x": (m, n)},
    "layernorm": lambda n, m: {"x": (m, n), "w": (n,), "b": (n,)},
    "rmsnorm": lambda n, m: {"x": (m, n), "w": (n,)},
    "swiglu": lambda n, m: {"g": (m, n), "u": (m, n)},
    "cross_entropy": lambda n, m: {"x": (m, n), "t": (m,)},
    "scale_shift_chain": lambda n, m: {"x": (m, n), **{p: (n,) for p in ("s1", "b1", "s2", "b2")}},
    "mse": lambda n, m: {"x": (m, n), "y": (m, n)},
}


def by_turns() -> list:
    """Every kernel, way, dtype and target; of the ways dense and one other, each in one dtype on a target, the rest slow."""
    found = []
    for k, name in enumerate(BIG):
        for w, way in enumerate(("dense", "transposed", "expanded")):
            for j, target in enumerate(("triton", "cuda")):
                for d, dtype in enumerate((torch.float32, torch.bfloat16)):
                    turn = (w == 0 or w == 1 + k % 2) and d == (k + w + j) % 2
                    found.append(pytest.param(name, dtype, way, target, id=f"{name}-{dtype}-{way}-{target}", marks=() if turn else pytest.mark.slow))
    return found


@pytest.mark.usefixtures("much_memory")
@pytest.mark.parametrize(("name", "dtype", "way", "target"), by_turns())
def test_gradients_of_large_tensors_through_autograd(name: str, dtype: torch.dtype, way: str, target: str) -> None:
    for rows, columns in ((8192, 8192),) if way != "dense" else ((8192, 8192), (4097, 8191), (3, 65_537)):
        torch.manual_seed(0)
        given: dict[str, Any] = {}
        for p, shape in BIG[name](columns, rows).items():
            if p == "t":
                given[p] = torch.randint(0, columns, shape, device="cuda")
            else:
                x = torch.randn(shape[::-1] if way == "transposed" else shape, device="cuda").to(dtype)
                given[p] = x.mT if way == "transposed" and x.dim() > 1 else x
        leaves = {p: x.detach().requires_grad_() for p, x in given.items() if x.is_floating_point()}
        y = kgen.load(name)(**(given | leaves), target=target)
        dy = cotangent(way, y)
        found = torch.autograd.grad(y, list(leaves.values()), dy)
        anew = grad.backward(kgen.load(name).kernel, save=False)
        result = next(iter(anew.cotangents))
        numbers = {p.name: default(p) for p in anew.kernel.params if not p.is_tensor}
        took = {q: given[q] for q in anew.takes if q in given} | {anew.cotangents[result]: dy} | numbers
        with torch.no_grad():
            wanted = dict(zip((r.name for r in anew.kernel.results), Analysis(anew.kernel, took, target).results(), strict=True))
        for p, got in zip(leaves, found, strict=True):
            want = wanted[anew.gradients[p]]
            assert got.shape == given[p].shape and got.dtype == dtype
            close = (got.double() - want.exact).abs() <= want.bound
            assert bool(close.all()), f"d{p} at {rows} x {columns}: {int((~close).sum())} elements beyond their bound"
        del found, wanted, took, y, dy
        torch.cuda.empty_cache()


@each_target
def test_a_gradient_has_the_same_bits_in_every_run(target: str) -> None:
    """Sums over the rows are split over blocks in a fixed order."""
    x, w, b = (torch.randn(s, device="cuda", requires_grad=True) for s in ((4096, 1000), (1000,), (1000,)))
    layernorm = kgen.load("layernorm")
    dy = torch.randn(4096, 1000, device="cuda")
    runs = [torch.autograd.grad(layernorm(x, w, b, target=target), (x, w, b), dy) for _ in range(5)]
    for run in runs[1:]:
        assert all(torch.equal(a, c) for a, c in zip(runs[0], run, strict=True))
