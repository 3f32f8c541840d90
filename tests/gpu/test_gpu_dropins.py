"""Patched layers and kgen's optimisers on a GPU, beside torch's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import kgen
from tests import llama

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]

LAYERS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.LayerNorm(256, bias=False), (64, 256)),
    (nn.LayerNorm((4, 64)), (8, 4, 64)),
    (nn.RMSNorm(256), (64, 256)),
    (nn.RMSNorm(256, elementwise_affine=False), (64, 256)),
    (nn.GroupNorm(4, 16), (8, 16, 5, 7)),
    (llama.RMSNorm(256), (64, 256)),
    (nn.GELU("tanh"), (64, 256)),
    (nn.SiLU(), (64, 256)),
    (nn.Softmax(-1), (64, 256)),
    (nn.AvgPool2d(3, 1, 1), (2, 4, 16, 32)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[f"{m}" for m, _ in LAYERS])
def test_patched_layers_are_as_close_to_float64_as_torch_s(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    m = copy.deepcopy(layer).to("cuda", dtype)
    x, dy = torch.randn(shape, device="cuda", dtype=dtype), torch.randn(shape, device="cuda", dtype=dtype)

    def run(m: Any, wide: bool = False) -> list[torch.Tensor]:
        given = (x.double() if wide else x).detach().requires_grad_()
        y = m(given)
        return [y.detach(), *torch.autograd.grad(y, [given, *m.parameters()], dy.to(y.dtype))]

    eager, exact = run(m), run(copy.deepcopy(m).double(), wide=True)
    with kgen.patch(m) as patched:
        assert patched.swapped
        found = run(m)
    eps = torch.finfo(dtype).eps
    for a, b, c in zip(found, eager, exact, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        scale = float(c.abs().max())
        assert float((a - c).abs().max()) <= 2 * float((b - c).abs().max()) + 4 * eps * scale


POOLS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.MaxPool1d(8, 1, 4, 3), (36, 65537)),  # of four rows a thread
    (nn.MaxPool2d(3, 2, 1), (2, 40, 255, 260)),
    (nn.MaxPool2d(4, 1, 1), (24, 259, 256)),
    (nn.MaxPool3d(3, 2, 1), (8, 6, 61, 62, 130)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("layer", "shape"), POOLS, ids=[f"{m}" for m, _ in POOLS])
def test_maxima_of_windows_are_torch_s(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Of more than a million results, whose threads take several rows; with NaNs and infinities, and of rows of odd lengths."""
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda", dtype=dtype)
    x[torch.rand_like(x, dtype=torch.float32) < 0.001] = torch.nan
    x[torch.rand_like(x, dtype=torch.float32) < 0.2] = -torch.inf
    wanted = layer(x)
    assert wanted.numel() >= 1 << 20
    with kgen.patch(layer):
        torch.testing.assert_close(layer(x), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("m", [nn.LayerNorm(64), nn.RMSNorm(64), nn.GroupNorm(2, 64), nn.Softmax(-1), nn.SiLU(), nn.CrossEntropyLoss()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_gives_the_dtypes_that_it_gives_torch_s(m: nn.Module, dtype: torch.dtype) -> None:
    m, x = m.cuda(), torch.randn(8, 64, device="cuda", dtype=dtype)
    inputs = (x, torch.arange(8, device="cuda")) if isinstance(m, nn.CrossEntropyLoss) else (x,)
    with torch.autocast("cuda", torch.bfloat16):
        wanted = m(*inputs)
        with kgen.patch(m):
            got = m(*inputs)
    assert got.dtype == wanted.dtype
    exact = copy.deepcopy(m).double()(inputs[0].double(), *inputs[1:])
    near = 2 * (wanted - exact).abs().max() + 4 * torch.finfo(got.dtype).eps * exact.abs().max()
    assert (got - exact).abs().max() <= near


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_optimisers_step_as_torch_s(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(n, 33) for n in range(1, 60)]
    ours = [nn.Parameter(torch.randn(s, device="cuda", generator=generator).to(dtype)) for s in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    settings: dict[str, Any] = {"lr": 1e-2, **({"momentum": 0.9, "nesterov": True} if name == "SGD" else {})}
    a, b = getattr(kgen.optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    for _ in range(3):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape, device="cuda", generator=generator).to(dtype)
            q.grad = p.grad.clone()
        a.step(), b.step()
    near = 1e-5 if dtype == torch.float32 else 2e-2
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=near, atol=near)


def test_sgd_and_lion_step_in_a_graph_and_adamw_says_that_it_does_not() -> None:
    for make in (kgen.optim.SGD, kgen.optim.Lion):
        w, v = (nn.Parameter(torch.ones(64, device="cuda")) for _ in range(2))
        a, b = make([w], lr=0.1), make([v], lr=0.1)
        w.grad, v.grad = torch.ones_like(w), torch.ones_like(v)
        a.step(), b.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            a.step()
        graph.replay(), graph.replay()
        b.step(), b.step()
        assert torch.equal(w, v)
    c = kgen.optim.AdamW([w])
    c.step()
    with pytest.raises(kgen.KgenError, match="a CUDA graph would repeat"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        c.step()
