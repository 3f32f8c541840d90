"""On a CUDA device: kernels over lists of tensors give the bits of a call for each, in one launch for those that are alike."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import kgen

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

STEP = "step(p: T[...], g: T[...], m: f32[...], lr: float) -> (p': T[...], m': f32[...], y: f32[...])\nm' = m + g\np' = p - lr * m'\ny = g * 2\n"
SHAPES = [(768,), (0,), (), (50_257, 16), (1,), (33, 70), (3, 1030), (2_000_003,), (5, 4, 3), (1_000,)]


def drawn(seed: int, dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)) -> list[list[torch.Tensor]]:
    """p, g and m for STEP; some transposed, with gaps, or one element into their storage."""
    torch.manual_seed(seed)
    found: list[list[torch.Tensor]] = [[], [], []]
    for k, shape in enumerate(SHAPES):
        dtype = dtypes[k % len(dtypes)]
        for own, kind in zip(found, (dtype, dtype, torch.float32), strict=True):
            own.append(torch.randn(shape, device="cuda").to(kind))
    p, g, _ = found
    p[5] = torch.randn(70, 33, device="cuda").to(p[5].dtype).t()
    g[6] = torch.randn(3, 2060, device="cuda").to(g[6].dtype)[:, ::2]
    p[7] = torch.randn(2_000_004, device="cuda").to(p[7].dtype)[1:]
    return found


def copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that lie alike, with respect to 16 bytes too."""
    made = []
    for t in tensors:
        offset = t.data_ptr() % 16 // t.element_size()
        made.append(t.new_empty(2 * t.numel() + 8).as_strided(t.shape, t.stride(), offset).copy_(t))
    return made


def same(a: Any, b: Any) -> None:
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and torch.equal(x, y), x.shape


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_the_bits_are_those_of_single_calls(target: str) -> None:
    step, single = kgen.loads(STEP), kgen.loads(STEP)
    p, g, m = drawn(0)
    q, n = copies(p), copies(m)
    for lr in (0.5, 0.25, 2.0):
        y = step.foreach(p, g, m, lr, target=target)
        want = [single(*own, lr, target=target) for own in zip(q, g, n, strict=True)]
        same((*y, *p, *m), (*want, *q, *n))


def launches(run: Any) -> int:
    """The kernels that a call launches."""
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return sum(event.count for event in profile.key_averages() if "_each" in event.key or "_kernel" in event.key)


def test_one_launch_takes_all_that_are_alike() -> None:
    adamw = kgen.load("adamw")
    lists = [[torch.rand(k % 5 * 1024 + 1024, device="cuda") for k in range(148)] for _ in range(4)]
    assert launches(lambda: adamw.foreach(*lists, t=1, lr=1e-3)) == 1


def test_many_tensors_take_several_launches() -> None:
    adamw, single = kgen.load("adamw"), kgen.load("adamw")
    torch.manual_seed(1)
    lists = [[torch.rand(k % 7 * 600 + 1, device="cuda") for k in range(1200)] for _ in range(4)]
    others = [copies(own) for own in lists]
    assert launches(lambda: adamw.foreach(*lists, t=1, lr=1e-2)) == 3
    for own in zip(*others, strict=True):
        for _ in range(2):  # as `launches` did
            single(*own, t=1, lr=1e-2)
    same([t for own in lists for t in own], [t for own in others for t in own])


def test_a_side_stream_is_used() -> None:
    step, single = kgen.loads(STEP), kgen.loads(STEP)
    p, g, m = drawn(2)
    q, n = copies(p), copies(m)
    step.foreach(*drawn(3), 1.0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for x in g:
            x.mul_(2)
        for _ in range(3):
            y = step.foreach(p, g, m, 0.5)
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(3):
        want = [single(*own, 0.5) for own in zip(q, g, n, strict=True)]
    same((*y, *p, *m), (*want, *q, *n))


def test_cuda_graphs_capture_calls() -> None:
    """The table is a part of the graph: calls on other tensors in between change nothing in it."""
    adamw, single = kgen.load("adamw"), kgen.load("adamw")
    torch.manual_seed(0)
    shapes = [s for s in SHAPES if s != (0,)]
    lists = [[torch.rand(s, device="cuda") for s in shapes] for _ in range(4)]
    others = [copies(own) for own in lists]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        adamw.foreach(*lists, t=1, lr=1e-2)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        adamw.foreach(*lists, t=2, lr=1e-2)
    adamw.foreach(*[copies(own) for own in lists], t=7, lr=1.0)
    for own, other in zip(lists[1], others[1], strict=True):
        own.copy_(2 * other)
    graph.replay()
    graph.replay()
    for k, (p, g, m, v) in enumerate(zip(*others, strict=True)):
        single(p, g, m, v, t=1, lr=1e-2)
        for _ in range(2):
            single(p, 2 * g, m, v, t=2, lr=1e-2)
        same([own[k] for own in (lists[0], lists[2], lists[3])], (p, m, v))


def test_gradients_may_move_each_step() -> None:
    adamw, single = kgen.load("adamw"), kgen.load("adamw")
    p, m, v = ([torch.rand(s, device="cuda") for s in SHAPES] for _ in range(3))
    q, n, w = copies(p), copies(m), copies(v)
    kept = []
    for t in range(1, 8):
        g = [torch.randn(s, device="cuda") for s in SHAPES]
        kept.append(g)
        adamw.foreach(p, g, m, v, t=t, lr=1e-2)
        for own in zip(q, g, n, w, strict=True):
            single(*own, t=t, lr=1e-2)
    same((*p, *m, *v), (*q, *n, *w))


def test_threads_do_not_meet() -> None:
    step, wrong = kgen.loads(STEP), []

    def run(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for k in range(50):
                p, g, m = ([torch.full((n,), float(x), device="cuda") for n in (7, 700, 20_000)] for x in (seed, 1 + k, 0))
                y = step.foreach(p, g, m, 1.0)
                wrong.extend(seed for t in p if (t != seed - 1 - k).any())
                wrong.extend(seed for t in y if (t != 2 + 2 * k).any())

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_tensor_of_more_elements_than_32_bits_count() -> None:
    n = 2**32 + 3
    if torch.cuda.mem_get_info()[0] < 5 * n:
        pytest.skip("not enough memory")
    kernel = kgen.loads("f(x: i8[...]) -> x': i8[...]\nx' = x + i8(1)\n")
    big, small = torch.zeros(n, dtype=torch.int8, device="cuda"), torch.zeros(5, dtype=torch.int8, device="cuda")
    kernel.foreach([small, big])
    assert small.tolist() == [1] * 5 and int(big.min()) == int(big.max()) == 1


def test_lists_on_two_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one device")
    gelu = kgen.load("gelu")
    xs = [torch.randn(1000, device=f"cuda:{k % 2}") for k in range(4)]
    same(gelu.foreach(xs), [gelu(x) for x in xs])
    same(gelu.foreach([*xs, torch.ones(3)])[4:], [gelu(torch.ones(3))])
