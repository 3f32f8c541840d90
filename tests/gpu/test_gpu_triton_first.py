"""On a CUDA device: the first call of a Triton kernel is launched by kgen, builds no launcher of Triton's, and gives what later calls give."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import kgen
from kgen.runtime import fast, modules, replay
from tests.gpu.test_gpu_calls import KERNELS, STEP, as_tuple, no_slow_calls, row, rows

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or torch.version.hip is not None, reason="there is no CUDA device"),
    pytest.mark.skipif(torch.cuda.is_available() and not fast.wait(), reason="there is no extension here: no compiler, no Python.h, or another ABI"),
]
SEVERAL = "two(x: T[M, N]) -> (y: T[M, N], m: T[M])\ny = x / (1 + sum[M](x^2))\nm = max[N](y)\n"
MORE = {
    "segments": ("softmax", lambda: (torch.randn(2, 3_000_000, device="cuda"),)),
    "several passes": (SEVERAL, lambda: (rows(300),)),
    "numbers": ("clip(x: T[...], low: float, k: int) -> y: T[...]\ny = max(x, low) + k\n", lambda: (row(3001), 0.25, 7)),
    "one, which is compiled in": ("clip(x: T[...], low: float, k: int) -> y: T[...]\ny = max(x, low) + k\n", lambda: (row(3001), 0.25, 1)),
    "derived numbers": ("power(x: T[...], t: int, b: float = 0.9) -> y: T[...]\ny = x / (1 - b^t)\n", lambda: (row(777), 3)),
    "layernorm's gradients": ("layernorm", lambda: (rows(512), row(512), row(512))),
    "no elements": ("gelu", lambda: (torch.empty(0, 5, device="cuda"),)),
}  # fmt: skip


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Any]]:
    """The launchers that Triton makes; the kernels are compiled anew, and none is recalled."""
    from triton.runtime import driver

    own, made = driver.active.launcher_cls, []
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(driver.active, "launcher_cls", lambda *args: made.append(args) or own(*args))
    modules.import_source.cache_clear()
    yield made
    modules.import_source.cache_clear()


def loaded(spec: str) -> kgen.Kernel:
    return kgen.loads(spec) if "\n" in spec else kgen.load(spec)


@pytest.mark.parametrize("name", [*KERNELS, *MORE])
def test_the_first_call_has_the_bits_of_later_ones(name: str, stubs: list[Any]) -> None:
    spec, arguments = (KERNELS | MORE)[name]
    kernel, given = loaded(spec), arguments()
    first = as_tuple(kernel(*given, target="triton"))
    torch.cuda.synchronize()
    assert not stubs
    if first[0].numel():
        with no_slow_calls(kernel):
            later = as_tuple(kernel(*given, target="triton"))
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, later, strict=True))
    tritons = as_tuple(kernel._bound(given, {}, None, "triton"))  # which Triton launches
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) and a.stride() == b.stride() for a, b in zip(first, tritons, strict=True))
    assert bool(stubs) == bool(first[0].numel())


def test_states_and_gradients(stubs: list[Any]) -> None:
    step, p, m, g = kgen.loads(STEP), row(1000), torch.zeros(1000, device="cuda"), row(1000)
    q, n = p.clone(), m.clone()
    y = step(p, g, m, 0.5, target="triton")
    assert not stubs
    (z,) = as_tuple(step._bound((q, g, n, 0.5), {}, None, "triton"))
    assert torch.equal(p, q) and torch.equal(m, n) and torch.equal(y, z)
    kernel, x = kgen.load("layernorm"), rows(512).requires_grad_()
    w, b = row(512).requires_grad_(), row(512).requires_grad_()
    found = []
    for _ in range(3):
        found.append(torch.autograd.grad(kernel(x, w, b, target="triton").square().sum(), (x, w, b)))
    assert all(torch.equal(a, b) for more in found[1:] for a, b in zip(found[0], more, strict=True))


@pytest.mark.parametrize("name", ["gelu", "segments", "several passes"])
def test_the_first_call_uses_the_current_stream(name: str, stubs: list[Any]) -> None:
    spec, arguments = (KERNELS | MORE)[name]
    want = as_tuple(loaded(spec)._bound(given := arguments(), {}, None, "triton"))
    modules.import_source.cache_clear()
    kernel, stream = loaded(spec), torch.cuda.Stream()
    del stubs[:]
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000_000)  # longer than it takes to compile
        late = given[0] + 0  # queued behind the sleep: on another stream it would not be there yet
        got = as_tuple(kernel(late, *given[1:], target="triton"))
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True)) and not stubs


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
def test_the_first_call_runs_where_its_tensors_are(stubs: list[Any]) -> None:
    kernel = kgen.load("softmax")
    for device in (1, 0):
        x = torch.randn(32, 300, device=f"cuda:{device}")
        y = kernel(x, target="triton")
        torch.testing.assert_close(y, torch.softmax(x, -1), rtol=1e-5, atol=1e-6)
        assert y.device == x.device and torch.cuda.current_device() == 0
    assert not stubs


def test_a_profilers_hook_sees_the_first_call(stubs: list[Any]) -> None:
    from triton import knobs

    seen: list[Any] = []
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        kgen.load("gelu")(row(1000), target="triton")
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert len(seen) == 1 and "gelu" in seen[0] and len(stubs) == 1


TURNED = """
import triton
import triton.language as tl

@triton.jit
def turned(x, y, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(y + i * N + j, tl.trans(tl.load(x + i * N + j)))
"""


@pytest.fixture
def turned(tmp_path: Path) -> ModuleType:
    """A module with one kernel, which transposes by way of shared memory: 4 N^2 bytes of it."""
    path = tmp_path / "turned.py"
    path.write_text(TURNED)
    spec = importlib.util.spec_from_file_location("kgen_turned", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    replay.watch(module)
    return module


@pytest.mark.parametrize("n", [64, 128])
def test_more_shared_memory_than_48_kb(n: int, turned: ModuleType, stubs: list[Any]) -> None:
    x = torch.randn(n, n, device="cuda")
    y = torch.empty_like(x)
    with replay.Recording() as recording:
        turned.turned[(1,)](x, y, n, num_warps=8)
    (one,) = recording.launches
    assert one is not None and (one.launch.shared > 49152) == (n == 128) and not stubs
    assert torch.equal(y, x.T)


def test_more_shared_memory_than_there_is(turned: ModuleType) -> None:
    """Triton says so, in the first call and in the next; and the device is none the worse for it."""
    from triton.runtime.errors import OutOfResources

    x = torch.randn(256, 256, device="cuda")
    for _ in range(2):
        with replay.Recording() as recording, pytest.raises(OutOfResources, match="shared memory"):
            turned.turned[(1,)](x, torch.empty_like(x), 256, num_warps=8)
        assert recording.launches == [None]
    assert torch.equal(kgen.load("add")(x, x, target="triton"), x + x)


def test_a_graph_captures_a_first_call(stubs: list[Any]) -> None:
    kernel, x = kgen.load("silu"), row(5000)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = kernel(x, target="triton")
    for _ in range(2):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, kernel._bound((x,), {}, None, "triton"))
