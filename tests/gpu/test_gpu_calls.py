"""On a CUDA device: repeated calls, which Python does not see, give what the general way gives, on both targets."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kgen
from kgen.runtime import fast
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
    pytest.mark.skipif(torch.cuda.is_available() and not fast.wait(), reason="there is no extension here: no compiler, no Python.h, or another ABI"),
]
TARGETS = ("triton", "cuda")
STEP = "step(p: T[...], g: T[...], m: f32[...], lr: float) -> (p': T[...], m': f32[...], y: f32[...])\nm' = m + g\np' = p - lr * m'\ny = g * 2\n"
POWER = "power(x: T[...], t: int, b: float = 0.9) -> y: T[...]\ny = x / (1 - b^t)\n"


def rows(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(64, n, device="cuda").to(dtype)


def row(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, device="cuda").to(dtype)


#: Kernels by name or text, with what makes their arguments.
KERNELS: dict[str, tuple[str, Callable[[], tuple]]] = {
    "gelu": ("gelu", lambda: (row(1024),)),
    "gelu bf16": ("gelu", lambda: (row(1000, torch.bfloat16),)),
    "gelu of a view": ("gelu", lambda: (rows(96)[:, ::3],)),
    "gelu transposed": ("gelu", lambda: (rows(96).T,)),
    "gelu misaligned": ("gelu", lambda: (row(1025)[1:],)),
    "swiglu": ("swiglu", lambda: (rows(128), rows(128))),
    "softmax": ("softmax", lambda: (rows(1000, torch.bfloat16),)),
    "softmax of long rows": ("softmax", lambda: (rows(40_000),)),
    "layernorm": ("layernorm", lambda: (rows(512), row(512), row(512))),
    "rmsnorm": ("rmsnorm", lambda: (rows(768, torch.float16), row(768, torch.float16), 1e-5)),
    "cross_entropy": ("cross_entropy", lambda: (rows(5000), torch.randint(0, 5000, (64,), device="cuda"))),
    "clip_by_value": ("clip_by_value", lambda: (row(333), -0.5, 0.25)),
}


@contextlib.contextmanager
def no_slow_calls(kernel: kgen.Kernel) -> Iterator[None]:
    """Fails where a call goes the general way."""
    kept = kernel.__dict__.pop("_calls", None)  # none where the first call was recalled
    kernel.__dict__["_calls"] = None
    try:
        yield
    finally:
        del kernel.__dict__["_calls"]
        if kept is not None:
            kernel.__dict__["_calls"] = kept


def teach(kernel: kgen.Kernel, *args: Any, **kwargs: Any) -> Any:
    kernel(*args, **kwargs)
    return kernel(*args, **kwargs)


def as_tuple(x: Any) -> tuple:
    return x if isinstance(x, tuple) else (x,)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", KERNELS)
def test_replayed_calls_agree_with_the_general_way(name: str, target: str) -> None:
    spec, arguments = KERNELS[name]
    kernel = kgen.load(spec)
    given = arguments()
    want = teach(kernel, *given, target=target)
    out = tuple(torch.empty_like(t) for t in as_tuple(want))
    one = out[0] if len(out) == 1 else out
    teach(kernel, *given, out=one, target=target)
    with no_slow_calls(kernel):
        for _ in range(3):
            got = kernel(*given, target=target)
            assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(as_tuple(got), as_tuple(want), strict=True))
            for t in out:
                t.zero_()
            assert kernel(*given, out=one, target=target) is one
            assert all(torch.equal(a, b) for a, b in zip(out, as_tuple(want), strict=True))
    for _ in range(3):  # other values, of the same layout
        other = arguments()
        got, want = kernel(*other, target=target), kernel._bound(other, {}, None, target)
        assert all(torch.equal(a, b) for a, b in zip(as_tuple(got), as_tuple(want), strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_every_alignment_has_its_own_launch(target: str) -> None:
    kernel, base = kgen.load("silu"), torch.randn(3000, device="cuda", dtype=torch.bfloat16)
    want = kernel._bound((base,), {}, None, target)
    for _ in range(3):
        for start in range(9):
            assert torch.equal(kernel(base[start : start + 2048], target=target), want[start : start + 2048])
            out = torch.empty(3000, device="cuda", dtype=torch.bfloat16)[start : start + 2048]
            assert torch.equal(kernel(base[:2048], out=out, target=target), want[:2048])


@pytest.mark.parametrize("target", TARGETS)
def test_states_and_numbers_that_change_each_call(target: str) -> None:
    step, p, m = kgen.loads(STEP), row(1000), torch.zeros(1000, device="cuda")
    q, n = p.clone(), m.clone()
    for turn in range(20):
        g, versions = row(1000), (p._version, m._version)
        y = step(p, g, m, 0.01 * turn, target=target)
        (z,) = as_tuple(step._bound((q, g, n, 0.01 * turn), {}, None, target))
        assert torch.equal(p, q) and torch.equal(m, n) and torch.equal(y, z)
        assert (p._version, m._version) == (versions[0] + 1, versions[1] + 1)
    power, x = kgen.loads(POWER), row(777)
    for turn in range(1, 150):
        assert torch.equal(power(x, turn, target=target), power._bound((x, turn), {}, None, target))
        assert torch.equal(power(x, turn, 0.5, target=target), power._bound((x, turn, 0.5), {}, None, target))


@pytest.mark.parametrize("target", TARGETS)
def test_the_current_stream_is_used(target: str) -> None:
    kernel, x = kgen.load("gelu_tanh"), row(1 << 22)
    want = teach(kernel, x, target=target)
    stream = torch.cuda.Stream()
    with no_slow_calls(kernel), torch.cuda.stream(stream):
        for _ in range(10):
            torch.cuda._sleep(2_000_000)
            y = x + 0  # queued behind the sleep: on another stream it would not be there yet
            z = kernel(y, target=target)
            del y
            assert torch.equal(z, want)
    stream.synchronize()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["gelu", "softmax", "layernorm"])
def test_cuda_graphs_capture_replayed_calls(name: str, target: str) -> None:
    spec, arguments = KERNELS[name]
    kernel, given = kgen.load(spec), arguments()
    want = teach(kernel, *given, target=target)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with no_slow_calls(kernel), torch.cuda.graph(graph):
        got = kernel(*given, target=target)
        again = kernel(got, *given[1:], target=target)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(got, want) and torch.equal(again, kernel(want, *given[1:], target=target))
    given[0].normal_()
    graph.replay()
    assert torch.equal(got, kernel(*given, target=target))


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_leaked(target: str) -> None:
    kernel, x = kgen.load("softmax"), rows(256)
    out = torch.empty_like(x)
    for _ in range(5):
        kernel(x, target=target), kernel(x, out=out, target=target)
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(torch.float32)
    with no_slow_calls(kernel):
        for _ in range(10_000):
            kernel(x, target=target), kernel(x, out=out, target=target)
    torch.cuda.synchronize()
    after = torch.cuda.memory_allocated(), sys.getrefcount(x), sys.getrefcount(out), sys.getrefcount(torch.float32)
    assert after[0] == before[0] and all(abs(a - b) < 20 for a, b in zip(after[1:], before[1:], strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_other_threads_call_too(target: str) -> None:
    """A thread that has not used CUDA yet has no current context."""
    kernel, x, failures = kgen.load("gelu"), row(5000), []
    want, out = teach(kernel, x, target=target), torch.empty(5000, device="cuda")
    teach(kernel, x, out=out, target=target)

    def work() -> None:
        for _ in range(200):
            try:
                kernel(x, out=out, target=target)
                if not torch.equal(kernel(x, target=target), want):
                    failures.append("differs")
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and torch.equal(out, want)


@pytest.mark.parametrize("target", TARGETS)
def test_errors_are_those_of_the_general_way(target: str) -> None:
    kernel, x = kgen.load("add"), row(1000)
    teach(kernel, x, x.clone(), target=target)
    out = torch.empty(1000, device="cuda")
    teach(kernel, x, x.clone(), out=out, target=target)
    for _ in range(2):
        with pytest.raises(kgen.KgenError, match="overlaps"):
            kernel(x[:900], x.clone()[:900], out=x[1:901], target=target)
        with pytest.raises(kgen.KgenError):
            kernel(x, x.cpu(), target=target)
        with pytest.raises(kgen.KgenError, match="does not run on"):
            kernel(x, x.clone(), target="cpp")
    assert torch.equal(kernel(x, x, target=target), x + x)
    y = x.clone()
    assert torch.equal(kernel(y, x, out=y, target=target), x + x)


@pytest.mark.parametrize("target", TARGETS)
def test_modes_and_gradients(target: str) -> None:
    kernel, x = kgen.load("gelu"), row(1024)
    want = teach(kernel, x, target=target)
    leaf = x.clone().requires_grad_()
    for _ in range(3):
        y = kernel(leaf, target=target)
        assert y.requires_grad and torch.equal(y, want)
        with torch.no_grad():
            assert not kernel(leaf, target=target).requires_grad
        with torch.inference_mode():
            assert kernel(x, target=target).is_inference()
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.equal(kernel(x, target=target), want)
        torch.testing.assert_close(torch.vmap(lambda v: kernel(v, target=target))(x.view(4, 256)), want.view(4, 256))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
@pytest.mark.parametrize("target", TARGETS)
def test_several_devices(target: str) -> None:
    kernel, given = kgen.load("softmax"), [torch.randn(32, 300, device=f"cuda:{k}") for k in range(2)]
    want = [torch.softmax(x, -1) for x in given]
    for turn in range(6):
        with torch.cuda.device(turn % 2):
            for x, w in zip(given, want, strict=True):
                y = kernel(x, target=target)
                assert y.device == x.device
                torch.testing.assert_close(y, w, rtol=1e-5, atol=1e-6)
            assert torch.cuda.current_device() == turn % 2


FIRST = """
import sys, time, torch, kgen
x = torch.arange(-500.0, 500.0, device="cuda")
torch.cuda.synchronize()
start = time.perf_counter()
kernel = kgen.loads(open(sys.argv[1]).read())
y = kernel(x.view(4, 250), target=sys.argv[2])
torch.cuda.synchronize()
print(f"{(time.perf_counter() - start) * 1e3:.0f} ms", "kernel" not in vars(kernel), "sympy" in sys.modules, file=sys.stderr)
print("kernel" not in vars(kernel), y.double().sum().item(), kernel(x, target=sys.argv[2]).shape == x.shape)
"""


@pytest.mark.parametrize(
    ("name", "target"),
    [("gelu", "triton"), ("softmax", "cuda"), *(pytest.param(*x, marks=pytest.mark.slow) for x in (("gelu", "cuda"), ("softmax", "triton")))],
)
def test_a_second_process_recalls_the_first_call(name: str, target: str, tmp_path: Any) -> None:
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", FIRST, str(ROOT / "specs" / f"{name}.k"), target], capture_output=True, text=True, cwd=ROOT,
            env={**os.environ, "KGEN_CACHE_DIR": str(tmp_path / "kgen"), "TRITON_CACHE_DIR": str(tmp_path / "triton")},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        print(name, target, done.stderr.strip())
        said.append(done.stdout.split())
    assert [s[0] for s in said] == ["False", "True"]
    assert len({tuple(s[1:]) for s in said}) == 1 and said[0][2] == "True"
