"""Random numbers on a CUDA device: the words of the paper in every layout, drawn by torch's generator, under graphs, on two devices."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen import check, syntax
from kgen.runtime.kernel import Kernel
from tests.randoms.layouts import SHAPE, layouts
from tests.randoms.philox import stream
from tests.randoms.test_drawn import kept
from tests.randoms.test_streams import BITS, ROWS, given, meaning

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
TARGETS = ("cuda", "triton")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["bits", "lines"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_streams_of_any_layout(name: str, target: str, dtype: torch.dtype) -> None:
    kernel = Kernel(check.check(syntax.parse({"bits": BITS, "lines": ROWS}[name], "random.k")))
    for layout, x in layouts(dtype):
        on = torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="cuda").copy_(x) if 0 not in x.stride() else x.cuda().expand(SHAPE)
        args = tuple(t.cuda() if isinstance(t, torch.Tensor) else t for t in given(name, x)[1:])
        found = kernel(on, *args, target=target)
        for y, wanted in zip(found[name == "bits" :], meaning(name, SHAPE), strict=True):
            assert torch.equal(y.cpu(), wanted), (name, layout)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(7, 1), (3, 4097), (1, 2**20 + 3), (5000, 64), (2**12, 2**10)])
def test_long_rows_short_rows_and_odd_ones(target: str, shape: tuple[int, int]) -> None:
    seed, offset = torch.tensor(5, device="cuda"), torch.tensor(9, device="cuda")
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    mask = kept(shape, 0.25, 5, 9).cuda()
    y = kgen.load("dropout")(x, 0.25, seed, offset, target=target)
    assert torch.equal(y != 0, mask & (x != 0))
    h = kgen.load("dropout_add_rmsnorm")(x, torch.zeros_like(x), None, 0.25, 1e-6, seed, offset, target=target)[1]
    assert torch.equal(h != 0, mask & (x != 0))


@pytest.mark.parametrize("target", TARGETS)
def test_the_backward_makes_the_same_mask(target: str) -> None:
    x = torch.randn(300, 1000, device="cuda")
    x = torch.where(x == 0, 1, x).requires_grad_()  # a 0 that is kept is told from no other
    y = kgen.load("dropout")(x, 0.3, target=target)
    dy = torch.randn_like(y)
    y.backward(dy)
    assert torch.equal(x.grad, torch.where(y != 0, dy * torch.tensor(1 / (1 - 0.3), device="cuda"), 0))
    kernel = kgen.load("dropout_add_rmsnorm")
    a, r = (torch.randn(64, 512, device="cuda", dtype=torch.float64, requires_grad=True) for _ in range(2))
    w = torch.randn(512, device="cuda", dtype=torch.float64, requires_grad=True)
    seed, offset = torch.tensor(1, device="cuda"), torch.tensor(2, device="cuda")
    found = []
    for used in (target, "torch"):
        results = kernel(a, r, w, 0.3, 1e-3, seed, offset, target=used)
        found.append(torch.autograd.grad((results[0].sin() + results[1]).sum(), (a, r, w)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_mask_takes_no_memory() -> None:
    x = torch.randn(2**12, 2**12, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dropout = kgen.load("dropout")
    dropout(x, 0.1).sum().backward()  # what is loaded once
    x.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = dropout(x, 0.1)
    kept_now = torch.cuda.memory_allocated() - before
    y.backward(torch.ones((), device="cuda", dtype=torch.bfloat16).expand_as(y))
    assert kept_now <= y.nbytes + 8192 and torch.cuda.max_memory_allocated() - before <= 2 * y.nbytes + 65536


def test_the_generator_says_what_is_drawn() -> None:
    x, dropout = torch.ones(512, 512, device="cuda"), kgen.load("dropout")
    torch.manual_seed(0)
    first, second = dropout(x, 0.5), dropout(x, 0.5)
    torch.manual_seed(0)
    assert torch.equal(dropout(x, 0.5), first) and not torch.equal(first, second)
    with torch.random.fork_rng():
        third = dropout(x, 0.5)
    assert torch.equal(third, second) and torch.equal(dropout(x, 0.5), second)
    z = torch.ones(64, 64, device="cuda", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda z: dropout(z * 2, 0.5).sin(), z, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(z.grad != 0, y != 0)


@pytest.mark.parametrize("target", TARGETS)
def test_a_graph_draws_in_each_replay(target: str) -> None:
    x, dropout = torch.ones(256, 256, device="cuda"), kgen.load("dropout")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dropout(x, 0.5, target=target)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = dropout(x, 0.5, target=target)
    torch.cuda.synchronize()  # torch fills the seed on the capture's stream too, and a replay's own fill does not wait for that
    torch.manual_seed(3)
    graph.replay()
    first = y.clone()
    graph.replay()
    second = y.clone()
    assert not torch.equal(first, second) and 0 < int((first != 0).sum()) < first.numel()
    torch.manual_seed(3)
    graph.replay()
    assert torch.equal(y, first)
    seed, offset = torch.tensor(1, device="cuda"), torch.tensor(0, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = dropout(x, 0.5, seed, offset, target=target)
    for k in (4, 5):
        offset.fill_(k)
        graph.replay()
        assert torch.equal((y != 0).cpu(), kept((256, 256), 0.5, 1, k))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
@pytest.mark.parametrize("target", TARGETS)
def test_two_devices_have_one_stream(target: str) -> None:
    kernel = kgen.load("randn")
    found = []
    for device in ("cuda:0", "cuda:1"):
        like = torch.empty(77, 1001, device=device)
        found.append(kernel(like, torch.tensor(8, device=device), torch.tensor(1, device=device), target=target).cpu())
    assert torch.equal(*found)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
@pytest.mark.parametrize("target", TARGETS)
def test_two_devices_have_one_mask_forward_and_backward(target: str) -> None:
    """Which is that of the words of the paper."""
    dropout, mask = kgen.load("dropout"), kept((64, 1001), 0.25, 8, 1)
    for device in ("cuda:0", "cuda:1"):
        x = torch.ones(64, 1001, device=device, requires_grad=True)
        seed, offset = (torch.tensor(k, device=device) for k in (8, 1))
        y = dropout(x, 0.25, seed, offset, target=target)
        y.sum().backward()
        assert torch.equal((y != 0).cpu(), mask) and torch.equal((x.grad != 0).cpu(), mask)


@pytest.mark.parametrize("target", TARGETS)
def test_no_mask_is_kept(target: str) -> None:
    """Peak memory of dropout, add and norm, forward and backward, beside what its tensors take: results, gradients, a row's one value."""
    kernel, shape = kgen.load("dropout_add_rmsnorm"), (16384, 4096)
    x, r = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    w = torch.ones(shape[1], device="cuda", dtype=torch.bfloat16, requires_grad=True)
    seed, offset = (torch.tensor(k, device="cuda") for k in (8, 1))
    for _ in range(2):  # the first call builds
        x.grad = r.grad = w.grad = None
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        y, h = kernel(x, r, w, 0.1, 1e-6, seed, offset, target=target)
        saved = torch.cuda.memory_allocated() - before
        torch.autograd.backward((y, h), (torch.ones_like(y), torch.ones_like(h)))
        peak = torch.cuda.max_memory_allocated() - before
    size = x.numel() * x.element_size()
    mask = x.numel() // 8  # of a bit an element; torch keeps a byte
    assert saved < 2 * size + mask // 2, saved / size  # y and h
    assert peak < 6 * size + mask, peak / size  # with two cotangents and two gradients


def test_a_compiled_function_draws() -> None:
    dropout = kgen.load("dropout")
    compiled = torch.compile(lambda x: dropout(x, 0.5) * 2, fullgraph=True)
    x = torch.ones(128, 128, device="cuda", requires_grad=True)
    torch.manual_seed(1)
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    first.sum().backward()
    assert torch.equal(x.grad != 0, first != 0)


def test_words_are_a_cpus() -> None:
    kernel = kgen.loads("f(x: T[...], seed: int) -> y: i64[...]\n\ny = random[...](seed, 0)\n")
    for target in TARGETS:
        assert torch.equal(kernel(torch.zeros(3, 1000, device="cuda"), -1, target=target).cpu(), stream((3, 1000), -1, 0))
