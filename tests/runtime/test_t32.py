"""Kernels with tensors of T32 on the CPU: for each dtype within the derived bound, in the dtype that was declared, and calls that
give it otherwise are refused."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.errors import KgenError
from kgen.runtime.samples import arguments
from kgen.testing import checks
from tests.specs.cases import check_call

pytestmark = pytest.mark.usefixtures("built_quickly")
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
ROWS = """rows(x: T[..., N], r: T32[...], d: T[..., N]) -> (dx: T[..., N], dw: T32[N], n: T32[])
g = d * r
dx = g - x * mean[N](g * x)
dw = sum[...](x * g)
n = sum[..., N](x) / size[..., N](x)"""
EACH = """each(s: T32[N], x: T[..., N], p: T32[..., N], c: float) -> (y: T32[..., N], h: T[..., N], k: T32[N], p': T32[..., N])
y = T32(x) * s
h = T(s) + x / size[...](x)
k = c
p' = p * 0.9 + x"""
MIXED = """mixed(x: T[N], u: U[N], s: T32[N], r: U32[N]) -> (y: U32[], z: T32[N], v: T[N])
y = sum[N](x * u * s)
z = r + s
v = u + y"""


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


@pytest.mark.parametrize(
    ("text", "target"),
    [(ROWS, "torch"), (EACH, "torch"), (EACH, "cpp"), pytest.param(ROWS, "cpp", marks=pytest.mark.slow)],
    ids=["rows-torch", "each-torch", "each-cpp", "rows-cpp"],
)
def test_every_dtype_stays_within_the_derived_bound(text: str, target: str) -> None:
    report = checks.check(kgen.loads(text).kernel, target, examples=32)
    assert not report.failures, report.failures[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_rows_stay_within_the_derived_bound(dtype: torch.dtype) -> None:
    x, d = (torch.randn(3, 5, 70, dtype=torch.float64).to(dtype) for _ in range(2))
    check_call(kgen.loads(ROWS), {"x": x, "r": torch.randn(5, dtype=wide(dtype)).expand(3, 5), "d": d}, "cpp")


@pytest.mark.parametrize(("t", "u"), [(torch.bfloat16, torch.float64), (torch.float64, torch.float16)])
def test_two_variables_each_have_their_own(t: torch.dtype, u: torch.dtype) -> None:
    kernel = kgen.loads(MIXED)
    given = [torch.randn(77, dtype=torch.float64).to(d) for d in (t, u, wide(t), wide(u))]
    assert [y.dtype for y in kernel(*given, target="cpp")] == [wide(u), wide(t), t]
    for target in ("torch", "cpp"):
        check_call(kernel, dict(zip("xusr", given)), target)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_results_and_samples_have_its_dtype(dtype: torch.dtype) -> None:
    kernel = kgen.loads(ROWS)
    name = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64"}[dtype]
    given = arguments(kernel.kernel, name, 600, "cpu", row=20)
    assert [x.dtype for x in given.values()] == [dtype, wide(dtype), dtype]
    assert [y.dtype for y in kernel(**given, target="torch")] == [dtype, wide(dtype), wide(dtype)]


def test_a_tensor_of_another_dtype_is_refused() -> None:
    kernel = kgen.loads("rows(r: T32[M], x: T[M, N]) -> y: T32[M]\n\ny = sum[N](x) * r\n")
    for dtype in FLOATS:
        x = torch.ones(2, 3, dtype=dtype)
        for other in {*FLOATS, torch.int32} - {wide(dtype)}:
            with pytest.raises(KgenError) as caught:
                kernel(torch.ones(2).to(other), x)
            assert "r is " in str(caught.value) and f"not {'f64' if dtype == torch.float64 else 'f32'}" in str(caught.value)
            assert f"r.to({wide(dtype)}) converts" in str(caught.value) and "r: T32[M]" in str(caught.value)
            if other.is_floating_point:
                with pytest.raises(KgenError, match="out is"):
                    kernel(torch.ones(2, dtype=wide(dtype)), x, out=torch.empty(2, dtype=other))


def test_losses_of_f64_are_f64() -> None:
    """And as near to torch's as f64 allows: 2^-45 leaves 7 bits for a sum of 1,000 terms, exp and log."""
    x, t = torch.randn(4, 1000, dtype=torch.float64), torch.tensor([0, 999, 5, 5])
    y = kgen.load("cross_entropy")(x, t)
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, torch.nn.functional.cross_entropy(x, t, reduction="none"), rtol=2.0**-45, atol=0)
    assert kgen.load("mse")(x.bfloat16(), x.bfloat16() + 1).dtype == torch.float32
