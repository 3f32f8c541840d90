"""On a CUDA device: tensors that a call leaves out, and reductions over whole lists."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import kgen
import kgen.testing

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

F = torch.nn.functional
SHAPES = [(768,), (0,), (), (50_257, 16), (1,), (33, 70), (3, 1030), (2_000_003,), (5, 4, 3), (8_192,)]


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "groupnorm"])
@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("backward", [False, True])
def test_norms_without_parameters_stay_within_the_bound(name: str, target: str, backward: bool) -> None:
    kgen.testing.check(name, target=target, backward=backward, examples=5)


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("given", ["", "w", "b", "wb"])
def test_calls_leave_tensors_out(target: str, given: str) -> None:
    layernorm, x = kgen.load("layernorm"), torch.randn(64, 1000, device="cuda", dtype=torch.bfloat16)
    own = {name: torch.randn(1000, device="cuda", dtype=torch.bfloat16) for name in given}
    wanted = F.layer_norm(x.double(), (1000,), *[own[n].double() if n in own else None for n in "wb"])
    first = layernorm(x, **own, target=target)
    torch.testing.assert_close(first.double(), wanted, rtol=2**-8, atol=2**-7)
    for _ in range(5):  # what the extension has learned
        assert torch.equal(layernorm(x, own.get("w"), own.get("b"), target=target), first)
    compiled = torch.compile(lambda x: layernorm(x, **own, target=target), fullgraph=True)
    assert torch.equal(compiled(x), first)


def test_gradients_are_of_what_is_given() -> None:
    layernorm = kgen.load("layernorm")
    x, b = torch.randn(32, 512, device="cuda", requires_grad=True), torch.randn(512, device="cuda", requires_grad=True)
    dy = torch.randn(32, 512, device="cuda")
    found = torch.autograd.grad(layernorm(x, b=b), (x, b), dy)
    wanted = torch.autograd.grad(F.layer_norm(x, (512,), None, b), (x, b), dy)
    for a, c in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-4)


def test_a_graph_captures_a_call_that_leaves_tensors_out() -> None:
    rmsnorm, x = kgen.load("rmsnorm"), torch.randn(16, 4096, device="cuda")
    want = rmsnorm(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = rmsnorm(x)
    x.mul_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, rmsnorm(x)) and torch.allclose(y, want, atol=1e-5)


# ----------------------------------------------------------------------------------------------------- whole lists


def drawn(dtypes: tuple[torch.dtype, ...], seed: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    found = [torch.randn(shape, device="cuda").to(dtypes[k % len(dtypes)]) for k, shape in enumerate(SHAPES)]
    return [*found, torch.randn(300, 200, device="cuda").t(), torch.randn(40, 600, device="cuda")[:, ::2]]


def norm_of(tensors: list[torch.Tensor]) -> float:
    return math.sqrt(sum(float(t.double().square().sum()) for t in tensors))


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("dtypes", [(torch.float32,), (torch.float32, torch.bfloat16)])
def test_a_norm_of_all(target: str, dtypes: tuple[torch.dtype, ...]) -> None:
    frobenius, tensors = kgen.load("frobenius"), drawn(dtypes)
    total, n = frobenius.foreach(tensors, whole=True, target=target), sum(t.numel() for t in tensors)
    assert abs(float(total) - norm_of(tensors)) <= (72 + math.log2(n)) * 2.0**-24 * norm_of(tensors)
    for _ in range(3):
        assert torch.equal(frobenius.foreach(tensors, whole=True, target=target), total)


def launches(run: Any) -> int:
    """The kernels that a call launches, whoever's they are."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return sum(event.count for event in profile.key_averages() if "Memcpy" not in event.key and "Sync" not in event.key)


def test_the_number_of_launches_is_not_that_of_the_tensors() -> None:
    frobenius = kgen.load("frobenius")
    few, many = ([torch.randn(k % 5 * 3000 + 1024, device="cuda") for k in range(count)] for count in (10, 148))
    one, other = (launches(lambda own=own: frobenius.foreach(own, whole=True)) for own in (few, many))
    assert one <= 12 and other <= 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_clipped_without_a_wait(dtype: torch.dtype) -> None:
    gradients = [t.to(dtype) for t in drawn((dtype,))]
    params = [torch.nn.Parameter(torch.zeros(t.shape, dtype=dtype, device="cuda")) for t in gradients]
    for p, g in zip(params, gradients, strict=True):
        p.grad = g.contiguous()
    before = [p.grad.clone() for p in params]
    kgen.optim.clip_grad_norm_(params, 1e9)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        total = kgen.optim.clip_grad_norm_(params, 1.0)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    want = norm_of(before)
    assert abs(float(total) - want) < 1e-5 * want
    near = 2.0**-7 if dtype == torch.bfloat16 else 1e-5
    for p, g in zip(params, before, strict=True):
        torch.testing.assert_close(p.grad.double(), g.double() / want, rtol=near, atol=1e-9)


def test_a_graph_captures_clipping() -> None:
    clip = kgen.loads("clip(g: T[...], most: float) -> (g': T[...], total: T32[])\n\ntotal = norm[...](g)\ng' = g * min(1.0, most / total)\n")
    grads = drawn((torch.float32,))
    clip.foreach(grads, 1e9, whole=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total = clip.foreach(grads, 1.0, whole=True)
    for g in grads:
        g.mul_(7.0)
    want = norm_of(grads)
    graph.replay()
    torch.cuda.synchronize()
    assert abs(float(total) - want) < 1e-5 * want and abs(norm_of(grads) - 1.0) < 1e-4


def test_a_graph_counts_the_steps_of_adamw() -> None:
    torch.manual_seed(0)
    ours, theirs = ([torch.nn.Parameter(torch.randn(s, generator=torch.Generator().manual_seed(k)).cuda()) for k, s in enumerate(SHAPES[3:])]
                    for _ in range(2))  # fmt: skip
    grads = [torch.randn_like(p) for p in ours]
    for p, q, g in zip(ours, theirs, grads, strict=True):
        p.grad, q.grad = g, g.clone()
    mine, torchs = kgen.optim.AdamW(ours, lr=1e-2, capturable=True), torch.optim.AdamW(theirs, lr=1e-2)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(kgen.KgenError, match="begin at zero"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        mine.step()
    mine.step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        mine.step()
    for _ in range(4):
        graph.replay()
    for _ in range(5):
        torchs.step()
    torch.cuda.synchronize()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert float(mine.state[ours[0]]["step"]) == 5
