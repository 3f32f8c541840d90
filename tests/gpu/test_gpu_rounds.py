"""Rows that follow one another, and sums over them: every way of walking, against float64, and the same bits each time."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.runtime import arguments, nvrtc

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
NORM = """norm(x: T[..., N], dy: T[..., N], w: T[N], r: f32[...]) -> (dx: T[..., N], dw: T32[N], db: T32[N])

t = dy * w
dx = t * r - x * r^3 * mean[N](t * x)
dw = sum[...](dy * x * r)
db = sum[...](dy)
"""
ONE = "one(x: T[..., N], w: T[N]) -> (y: T[..., N], s: T32[N])\n\ny = x * w\ns = sum[...](x * y)\n"
#: Rows, elements of each: some lanes, a warp, a block, a cluster, several launches; rows that begin anywhere; few and many.
SHAPES = (
    (7, 8), (100_000, 16), (5000, 128), (300, 1001), (3000, 1024), (2000, 4096), (531, 8192), (300, 16_384), (100, 65_536), (40, 262_144),
    (1, 4096), (9, 600_000),
)  # fmt: skip


def given(count: int, n: int, dtype: torch.dtype, apart: bool = False) -> tuple[torch.Tensor, ...]:
    made = [torch.randn((n, count) if apart else (count, n), device="cuda") for _ in range(2)]
    x, dy = (t.T.to(dtype) if apart else t.to(dtype) for t in made)
    return x, dy, torch.randn(n, device="cuda").to(dtype), torch.rand(count, device="cuda") + 0.5


def exact(x: torch.Tensor, dy: torch.Tensor, w: torch.Tensor, r: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results in float64, and the sums of the magnitudes of what they add up."""
    x, dy, w, r = x.double(), dy.double(), w.double(), r.double()[:, None]
    t = dy * w
    dx = t * r - x * r**3 * (t * x).mean(-1, keepdim=True)
    size = (t * r).abs() + (x * r**3).abs() * (t * x).abs().mean(-1, keepdim=True)
    return [dx, (dy * x * r).sum(0), dy.sum(0)], [size, (dy * x * r).abs().sum(0), dy.abs().sum(0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("shape", [*SHAPES, "apart"], ids=str)
def test_rows_and_columns_stay_within_their_bounds(shape, dtype) -> None:
    """Each sum within the bound of its tree of additions: 100 roundings of f32, and one of the result."""
    kernel = kgen.loads(NORM)
    args = given(*(shape if shape != "apart" else (700, 3000)), dtype, shape == "apart")
    found = kernel(*args, target="cuda")
    rounded = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}[dtype]
    for got, want, size in zip(found, *exact(*args), strict=True):
        own = rounded if got.dtype == dtype else 2.0**-24
        assert ((got - want).abs() <= own * want.abs() + 110 * 2.0**-24 * size).all(), shape


def test_bits_are_the_same_in_every_run_and_a_rows_own_alone() -> None:
    kernel = kgen.loads(NORM)
    for dtype in (torch.float32, torch.bfloat16):
        for count, n in ((900, 1024), (300, 4096), (300, 16_384), (50, 65_536), (20, 262_144)):
            x, dy, w, r = given(count, n, dtype)
            first = kernel(x, dy, w, r, target="cuda")
            for _ in range(20):
                assert all(torch.equal(a, b) for a, b in zip(first, kernel(x, dy, w, r, target="cuda"), strict=True)), (n, dtype)
            for k in (0, count // 2, count - 1):
                alone = kernel(x[k : k + 1], dy[k : k + 1], w, r[k : k + 1], target="cuda")[0]
                assert torch.equal(alone[0], first[0][k]), (n, dtype)


def test_without_a_sum_along_the_row() -> None:
    kernel = kgen.loads(ONE)
    for dtype, (count, n) in ((t, shape) for t in (torch.float32, torch.bfloat16, torch.float64) for shape in ((3, 5), (999, 1024), (40, 300_001))):
        x, w = torch.randn(count, n, device="cuda").to(dtype), torch.randn(n, device="cuda").to(dtype)
        y, s = kernel(x, w, target="cuda")
        assert torch.equal(y, x * w)
        want, size = (x.double() ** 2 * w.double()).sum(0), (x.double() ** 2 * w.double()).abs().sum(0)
        assert ((s - want).abs() <= 110 * (2.0**-53 if dtype == torch.float64 else 2.0**-24) * size).all(), (dtype, n)


def test_other_reductions_over_rows_begin_with_their_own_identity() -> None:
    """In one pass with rows NVRTC gave all but the first of a thread's partials zeros, where a product begins with 1."""
    kernel = kgen.loads("others(x: f32[M, N]) -> (p: f32[N], m: f32[N], l: f32[N])\n\np = prod[M](x)\nm = max[M](x)\nl = min[M](-x)\n")
    for shape in ((4, 127), (3, 128), (9, 4096), (40, 1001)):
        x = -torch.rand(shape, device="cuda") - 0.5
        p, m, least = kernel(x, target="cuda")
        assert torch.equal(m, x.amax(0)) and torch.equal(least, (-x).amin(0))
        assert torch.allclose(p.double(), x.double().prod(0), rtol=shape[0] * 2.0**-24, atol=0)


def test_columns_of_no_rows() -> None:
    y, s = kgen.loads(ONE)(torch.empty(0, 40, device="cuda"), torch.ones(40, device="cuda"), target="cuda")
    assert y.shape == (0, 40) and (s == 0).all()


def test_every_way_of_walking_is_taken_above() -> None:
    kernel, found = kgen.loads(NORM).kernel, set()
    for count, n in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x, w, r = torch.empty(count, n, dtype=dtype), torch.empty(n, dtype=dtype), torch.empty(count)
            for expression in nvrtc.expressions(kernel, arguments.bind(kernel, (x, x, w, r), {}, None), "sm_90"):
                walk = expression.split("Walk<")[1].split(", ")
                lanes = "lanes" if 0 < int(walk[2]) <= 32 else "block"
                found.add(("cluster" if walk[11] == "true" else "segments" if walk[9] == "true" else lanes, walk[10]))
    assert found >= {("lanes", "3"), ("block", "3"), ("cluster", "3"), ("segments", "3"), ("segments", "0")}
