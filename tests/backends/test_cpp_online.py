"""Sums about a peak in C++'s rows that no cache holds: one reading of them, and results within the derived bound."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import pipeline  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.backends.cpp import SEGMENT  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.triton.test_triton_online import SPREAD, WEIGHTED  # noqa: E402

INF, NAN = float("inf"), float("nan")
NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


#: Of three segments, and by `-m slow` where a segment begins or more follow.
LENGTHS = [2 * SEGMENT + 777, *(pytest.param(n, marks=pytest.mark.slow) for n in (SEGMENT + 1, 3 * SEGMENT + 777))]


@pytest.mark.parametrize("text, reductions", [(WEIGHTED, 1), (SPREAD, 1)])
def test_a_long_row_is_read_once_for_its_peak_and_the_sums_about_it(text, reductions):
    """One reading that reduces and one that stores; a row that a cache holds keeps its readings, and values for the next one."""
    kernel = kgen.loads(text).kernel
    (p,) = pipeline.plan(kernel, kernel.bindings()[0], backend("cpp").rides).passes
    assert (p.readings, p.long_readings) == (3, 2)
    (unit,), _ = backend("cpp").layout(kernel)
    once = [c for c in unit.once if c.element]
    assert [bool(c.peaks) for c in once] == [True] * reductions + [False] and not any(c.peaks for c in unit.phases)
    short, long = backend("cpp").render(kernel).split("if constexpr (!ONCE) {")[1].split("} else {\n")
    assert (short.count("T* x_tile ="), long.count("T* x_tile =")) == (3, 2)  # how often a tile of x is read


@NEEDS_COMPILER
@pytest.mark.parametrize("name, text", [("weighted", WEIGHTED), ("spread", SPREAD)])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_sums_of_a_long_row_stay_within_their_bounds(name, text, length, built_quickly):
    """Rows that rise, fall, are offset, of weights of all sizes, of one value, with infinities or NaN; again, and each row alone, to the bit."""
    f, generator = kgen.loads(text), torch.Generator().manual_seed(length)
    x, v = (torch.randn(8, length, generator=generator) for _ in range(2))
    x = x * 6
    x[0] = x[0].sort().values
    x[1] = x[1].sort(descending=True).values + 1e4
    v[2] *= 10.0 ** torch.randint(-9, 9, v[2].shape, generator=generator)
    x[3] = 0.1
    x[4, ::3], x[5], x[6, ::48], v[7, ::5] = INF, -INF, NAN, INF
    results = f(x, v, target="cpp")
    for r, got, want in zip(f.kernel.results, results, Analysis(f.kernel, {"x": x, "v": v}, "cpp").results(), strict=True):
        alike = (got.double() == want.exact) | (got.isnan() & want.exact.isnan()) | ((got.double() - want.exact).abs() <= want.bound)
        assert (alike | ~want.bound.isfinite()).all(), (r.name, got, want)
        assert want.bound[:2].isfinite().all(), r.name
    for got, alone in zip(results, f(x[2:3], v[2:3], target="cpp"), strict=True):
        assert torch.equal(got[2], alone[0])


@NEEDS_COMPILER
@pytest.mark.slow
def test_layouts_and_dtypes_of_long_rows():
    """Columns, rows of two dims, padded rows, doubles and halves: each is the same as of dense rows, in f64 or by a bound."""
    f = kgen.loads("f(x: T[..., M, N]) -> (s: T[...], l: T[...])\ns = var[M, N](x)\nl = logsumexp[M, N](x)")
    for dtype in (torch.float64, torch.bfloat16):
        base = torch.randn(2, 300, 330, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)
        padded = torch.empty(2, 300, 352, dtype=dtype)[..., :330].copy_(base)
        for x in (base, padded, base.transpose(0, 2).contiguous().transpose(0, 2), base.transpose(1, 2).contiguous().transpose(1, 2)):
            d = x.double()
            tol = 1e-12 if dtype == torch.float64 else 2.0**-8
            s, l = f(x, target="cpp")
            torch.testing.assert_close(s.double(), d.var((1, 2)), rtol=tol, atol=0)
            torch.testing.assert_close(l.double(), d.logsumexp((1, 2)), rtol=tol, atol=0)
