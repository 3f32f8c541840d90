"""What the tests of hazards share: targets, and a kernel's results by name.

Where there is no GPU, what a test on one would build is built all the same (`tests/compiled.py`).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pytest
import torch

import kgen
from tests.compiled import TARGETS, compile_call

INF, NAN = math.inf, math.nan
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
GPU = tuple(pytest.param(t, marks=on_gpu) for t in ("triton", "cuda"))
#: For points of the generated code.
each_target = pytest.mark.parametrize("target", ["torch", "cpp", *GPU])
#: For points of the meaning, which every target's own tests hold to the evaluator.
each_meaning = pytest.mark.parametrize("target", ["torch", *GPU])
#: The kernels that most tests call: each is one build for all of them.
POINTS = """
points(a: f32[N], b: f32[N]) -> (top: f32[N], least: f32[N], held: f32[N], ramp: f32[N], quotient: f32[N], root: f32[N], rest: f32[N],
       power: f32[N], powered_root: f32[N], logarithm: f32[N], half: f32[N], whole: f32[N], residue: f32[N], e: f32[N],
       byte: u8[N], small: i8[N], long: i64[N], over: f32[N], less: f32[N], nothing: f32[N], third: f32[N], wide: f64[N],
       scaled: f32[N], opposite: f32[N], gate: f32[N])
top  = max(a, b)
least = min(a, b)
held = clamp(a, -1, b)
ramp = relu(a)
quotient = a / b
root = sqrt(a)
rest = a % b
power = a ^ b
powered_root = a ^ 0.5
logarithm = log2(a)
half = a * 0.5
whole = floor(a)
residue = a * b - f32(a * b)
e = exp(a)
byte = u8(a)
small = i8(a)
long = i64(a)
over = a / a
less = a - a
nothing = 0 * a
third = b * 0 + 0.1
wide = f64(b) * 0 + 0.1
scaled = a / 1e-6 + b / 1e-6
opposite = -a
gate = 1 / (1 + exp(-a))
"""
INTEGERS = """
integers(i: i32[N], j: i32[N], p: bool[N], q: bool[N]) -> (quotient: i32[N], rest: i32[N], left: i32[N], right: i32[N], both: bool[N], k: i64[])
quotient = i // j
rest = i % j
left = i << j
right = i >> j
both = p + q
k = sum[N](p)
"""
ROWS = """
rows(x: f32[M, N]) -> (top: f32[M], first: i64[M], last: i64[M], total: f32[M], lse: f32[M], spread: f32[M])
top = max[N](x)
first = argmax[N](x)
last = argmin[N](x)
total = sum[N](x)
lse = logsumexp[N](x)
spread = var[N](x)
"""
BYTES = "twice(x: i8[N]) -> y: i8[N]\ny = x * 2\n"


#: The calls, and the texts, that were compiled for GPUs.
_compiled: set[Any] = set()


@lru_cache
def load(text: str) -> kgen.Kernel:
    """The kernel of a text, made (and built) once for all tests of a file."""
    return kgen.loads(text)


def device(target: str) -> str:
    return "cuda" if target in ("triton", "cuda") else "cpu"


def run(text: str, target: str, *args: Any, **more: Any) -> dict[str, torch.Tensor]:
    """The results of a kernel on a target by name, on the CPU; arguments move to its device with their strides."""
    kernel = load(text)
    got = call(text, target, *(there(a, target) for a in args), **more)
    fresh = [r for r in kernel.kernel.results if not r.state]
    found = dict(zip([r.name for r in fresh], got if isinstance(got, tuple) else (got,) if fresh else (), strict=True))
    return {name: t.cpu() for name, t in found.items()}


def call(text: str, target: str, *args: Any, **more: Any) -> Any:
    """A call of a kernel on a target, which the arguments are on."""
    kernel = load(text)
    got = kernel(*args, target=target, **more)
    if device(target) == "cpu" and not torch.cuda.is_available():
        seen = (text, *(f"{a.dtype}{a.shape}{a.stride()}{a.data_ptr() % 16}" if isinstance(a, torch.Tensor) else a for a in args))
        if more or seen not in _compiled:  # by the test of the evaluator, and by that of C++
            targets = ("cuda",) if text in _compiled and not more else TARGETS  # Triton, which takes six times as long, once a text
            compile_call(kernel, dict(zip((p.name for p in kernel.kernel.params), args)), targets, **more)
            _compiled.update((seen, text))
    return got


def there(a: Any, target: str) -> Any:
    if not isinstance(a, torch.Tensor) or device(target) == "cpu":
        return a
    flat = torch.as_strided(a, (a.untyped_storage().nbytes() // a.element_size(),), (1,), 0).cuda()
    return flat.as_strided(a.shape, a.stride(), a.storage_offset())


def f32(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def bits(x: torch.Tensor) -> list[int]:
    return x.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]).flatten().tolist()


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal element by element, NaN with NaN, zeros with their signs."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got, want)
    if not got.dtype.is_floating_point:
        assert torch.equal(got, want), (got, want)
        return
    assert torch.equal(got.isnan(), want.isnan()), (got, want)
    assert bits(got[~got.isnan()]) == bits(want[~want.isnan()]), (got, want)
