"""Kernels under PyTorch's machinery on a CUDA device: CUDA graphs, torch.compile, autocast, checkpoints, torch.func."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, vmap
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

import kgen

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

N = 384
SPECS: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "gelu": (F.gelu, ((64, N),)),
    "layernorm": (lambda x, w, b: F.layer_norm(x, (N,), w, b), ((64, N), (N,), (N,))),
    "softmax": (lambda x: F.softmax(x, -1), ((64, N),)),
    "bias_gelu": (lambda x, b: F.gelu(x + b), ((4, 16, N), (N,))),
    "add_rmsnorm": (lambda x, r, w: (F.rms_norm(x + r, (N,), w, 1e-6), x + r), ((64, N), (64, N), (N,))),
    "swiglu": (lambda g, u: F.silu(g) * u, ((64, N), (64, N))),
}
each_spec = pytest.mark.parametrize("spec", SPECS)


def tensors(spec: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    return [torch.randn(s, generator=generator, device="cuda", dtype=dtype).requires_grad_() for s in SPECS[spec][1]]


def loss(results) -> torch.Tensor:
    return sum((k + 1) * t.float().sin().sum() for k, t in enumerate(results if isinstance(results, tuple) else (results,)))


def assert_close(ours, theirs, dtype: torch.dtype = torch.float32) -> None:
    """To 2^10 units in the last place of what was stored, for sums of up to `64 N` terms on both sides."""
    for a, b in zip(ours, theirs, strict=True):
        scale = max(1.0, b.abs().max().item())
        assert (a.double() - b.double()).abs().max().item() <= 2**10 * torch.finfo(dtype).eps * scale


def captured(run: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of what `run` launches: after three calls on a side stream, which build and allocate."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


@each_spec
@pytest.mark.parametrize("target", [None, "triton", "cuda"])
def test_a_captured_forward_replays_to_the_same_bits(spec: str, target: str | None) -> None:
    kernel, inputs, held = kgen.load(spec), [t.detach() for t in tensors(spec)], {}

    def run() -> None:
        held["y"] = kernel(*inputs, target=target)

    graph = captured(run)
    results = held["y"] if isinstance(held["y"], tuple) else (held["y"],)
    for seed in (1, 2):
        for to, new in zip(inputs, tensors(spec, seed=seed)):
            to.copy_(new.detach())
        graph.replay()
        wanted = kernel(*inputs, target=target)
        for a, b in zip(results, wanted if isinstance(wanted, tuple) else (wanted,)):
            assert torch.equal(a, b)


@each_spec
def test_a_captured_training_step_replays_to_the_same_bits(spec: str) -> None:
    kernel, inputs, held = kgen.load(spec), tensors(spec), {}

    def run() -> None:
        held["grads"] = torch.autograd.grad(loss(kernel(*inputs)), inputs)

    graph = captured(run)
    for seed in (1, 2):
        with torch.no_grad():
            for to, new in zip(inputs, tensors(spec, seed=seed)):
                to.copy_(new)
        graph.replay()
        for a, b in zip(held["grads"], torch.autograd.grad(loss(kernel(*inputs)), inputs)):
            assert torch.equal(a, b)


def test_a_captured_optimiser_step_writes_in_place() -> None:
    adamw = kgen.load("adamw")
    ours = list(torch.rand(4, 64, N, device="cuda").unbind())
    with torch.no_grad():
        graph = captured(lambda: adamw(*ours, 3, 1e-3))
        start = [t.clone() for t in ours]
        graph.replay()
        adamw(*start, 3, 1e-3)
    for a, b in zip(ours, start):
        assert torch.equal(a, b)


@each_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_forward_and_backward_are_eager_ones(spec: str, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    kernel, inputs = kgen.load(spec), tensors(spec, dtype)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        step = torch.compile(lambda *args: loss(kernel(*args)), fullgraph=True)
        found = torch.autograd.grad(step(*inputs), inputs)
    assert_close(found, torch.autograd.grad(loss(kernel(*inputs)), inputs), dtype)
    assert_close(found, torch.autograd.grad(loss(SPECS[spec][0](*inputs)), inputs), dtype)


def test_compiled_with_cuda_graphs() -> None:
    torch._dynamo.reset()
    kernel, inputs = kgen.load("layernorm"), tensors("layernorm")
    with torch._functorch.config.patch(enable_autograd_cache=False):
        step = torch.compile(lambda *args: loss(kernel(*args)), fullgraph=True, mode="reduce-overhead")
        for seed in range(4):
            with torch.no_grad():
                for to, new in zip(inputs, tensors("layernorm", seed=seed)):
                    to.copy_(new)
            torch.compiler.cudagraph_mark_step_begin()
            found = [t.clone() for t in torch.autograd.grad(step(*inputs), inputs)]
            assert_close(found, torch.autograd.grad(loss(kernel(*inputs)), inputs))


@each_spec
def test_opcheck(spec: str) -> None:
    assert set(opcheck(kgen.load(spec).op, tensors(spec)).values()) == {"SUCCESS"}


def test_leading_dims_that_broadcast_and_strides_of_any_kind() -> None:
    add = kgen.loads("mul3(x: T[...], y: T[...]) -> z: T[...]\n\nz = x * y + y^2\n")
    x, y = torch.randn(3, 1, N, device="cuda", requires_grad=True), torch.randn(5, N, device="cuda", requires_grad=True)
    for cotangent in (torch.ones((), device="cuda").expand(3, 5, N), torch.randn(N, 5, 3, device="cuda").permute(2, 1, 0)):
        assert_close(torch.autograd.grad(add(x, y), (x, y), cotangent), torch.autograd.grad(x * y + y**2, (x, y), cotangent))


@each_spec
def test_checkpoints_and_batched_gradients(spec: str) -> None:
    kernel, inputs = kgen.load(spec), tensors(spec)
    plain = torch.autograd.grad(loss(kernel(*inputs)), inputs)
    for a, b in zip(torch.autograd.grad(loss(checkpoint(kernel, *inputs, use_reentrant=False)), inputs), plain):
        assert torch.equal(a, b)
    stacked = [torch.stack([t.detach(), t.detach().sin()]) for t in inputs]
    found = vmap(grad(lambda *a: loss(kernel(*a)), argnums=tuple(range(len(inputs)))))(*stacked)
    wanted = vmap(grad(lambda *a: loss(SPECS[spec][0](*a)), argnums=tuple(range(len(inputs)))))(*stacked)
    assert_close(found, wanted)


def test_autocast_makes_a_layer_as_wide_as_its_weights() -> None:
    layer = kgen.load("layernorm").module(like=torch.nn.LayerNorm(N).cuda())
    like, x = torch.nn.LayerNorm(N).cuda(), torch.randn(8, N, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        h = x @ torch.eye(N, device="cuda")
        assert h.dtype == torch.bfloat16
        ours, theirs = layer(h), like(h)
    assert ours.dtype == theirs.dtype == torch.float32
    assert_close([ours], [theirs])
