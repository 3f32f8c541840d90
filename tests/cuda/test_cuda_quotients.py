"""Quotients by a value of their row on CUDA, made of parts of its inverse: run on the CPU, within their bound of the exact ones."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import pipeline  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.grad import backward  # noqa: E402
from kgen.ir import leaf  # noqa: E402
from kgen.precision import BRIEF, SPLIT, uniform_quotients  # noqa: E402
from kgen.resources import resource  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda import emulated  # noqa: E402
from tests.cuda.emulated import Emulated, kernels  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

QUOTIENTS = """
static unsigned drawn(u64& seed) { seed = seed * 6364136223846793005ull + 1442695040888963407ull; return unsigned(seed >> 32); }
static bool brief;
static float quotient(float x, float y) {
    if (!brief) return x / split_divisor<float, true>(y);
    const auto by = split_divisor<u16, true>(y);
    return plainly(by, [&](const decltype(by)& by) { return brief_div<u16>(x, by); });
}
static bool off(float x, float y, double near) {
    const float q = quotient(x, y), want = x / y;
    const bool ends = fabs(double(x) / y) * (1 + near) >= 0x1.ffffffp127 && fabsf(q) >= 0x1.fffffep127f;
    if (!(fabsf(want) < INFINITY) || x == 0 || isinf(y)) {
        return !(isnan(q) && isnan(want)) && (q != want || signbit(q) != signbit(want)) && !ends;
    }
    return !ends && !(fabs(q - double(x) / y) <= near * fabs(double(x) / y) + 0x1p-148);
}
// How many quotients lie further from the exact ones than `near` says, of zeros, infinities, NaN, all exponents and any digits.
extern "C" long far(int error, double near, bool brief) {
    ::error = error;
    ::brief = brief;
    const float ends[] = {0, -0.0f, 1, -1, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-149f, 0x1p-126f, 0x1.fffffep127f, 0x1p127f, 0x1p126f, 0.5f};
    long count = 0;
    for (float x : ends) for (float y : ends) count += off(x, y, near);
    u64 seed = 1;
    for (int i = 0; i < 1000000; i++) count += off(__uint_as_float(drawn(seed)), __uint_as_float(drawn(seed)), near);
    for (float x : ends) for (int i = 0; i < 20000; i++) count += off(x, __uint_as_float(drawn(seed)), near);
    return count;
}
"""


def test_quotients_lie_within_their_bound(tmp_path) -> None:
    """Whatever the last place of the hardware's inverse; zeros, infinities and NaN are the division's, signs included.  Those of 16-bit
    results are one product where the divisor's inverse is a normal number, and within a brief form's bound by any divisor."""
    known: dict[str, object] = {**backend("cuda").functions(["split_divisor"])}
    known["inverse"] = """static int error;
static float inverse(float x) {
    const float y = fabsf(x) < 0x1p-126f ? copysignf(INFINITY, x) : x != x ? x : fabsf(x) > 0x1p126f ? copysignf(0, x) : 1 / x;
    return __uint_as_float(__float_as_uint(y) + (isnormal(y) ? error : 0));
}
"""
    numbers = (resource("templates") / "cuda" / "library" / "kgen_numbers.cuh").read_text().replace("#pragma once", "")
    library = kernels(tmp_path / "quotients.cpp", "\n".join([numbers, *map(str, known.values()), QUOTIENTS]), [])
    library.far.restype, library.far.argtypes = ctypes.c_long, (ctypes.c_int, ctypes.c_double, ctypes.c_bool)
    for near, is_brief in ((SPLIT, False), (BRIEF, True)):
        assert [library.far(error, near, is_brief) for error in (-1, 0, 1)] == [0, 0, 0]
    assert library.far(0, SPLIT / 4, False) > 0 and library.far(0, 2.0**-25, True) > 0


GRADIENT = """slope(dy: T[M, N], x: T[M, N], s: T32[M]) -> (dx: T[M, N], y: T[M, N])

y = x / s
a = exp(x) / s
dx = (dy / s - sum[N](dy * a / s)) * a
"""


def test_a_gradient_stays_within_its_bound(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows whose divisors are ordinary, large, tiny, zero, infinite and none.  Here no blocks share a row, so each is taken as if they did."""
    def waiting(path: Path, source: str, expressions: list[str]) -> ctypes.CDLL:
        return kernels(path, source.replace("Walk::CLUSTERS>(s)", "true>(s)"), expressions)

    monkeypatch.setattr(emulated, "kernels", waiting)
    g = torch.Generator().manual_seed(3)
    given = []
    s = torch.tensor([0.7, -3.0, 2.0**100, 2.0**-100, 2.0**127, 2.0**-140, 0.0, -0.0, torch.inf, torch.nan])
    for n, dtype in ((67, torch.float32), (64, torch.float32), (3000, torch.float32), (64, torch.bfloat16), (64, torch.float64)):
        dy, x = (torch.randn(len(s), n, generator=g).to(dtype) for _ in range(2))
        dy[0, 3], x[1, 2], x[4, 5] = -0.0, torch.inf, torch.nan
        given.append((dy, x, s.to(torch.float64 if dtype == torch.float64 else torch.float32)))
    kernel = Emulated(GRADIENT, tmp_path, *given)
    assert kernel.run.source.count("split_divisor<T, Walk::CLUSTERS>(s)") == 1 and "brief_div<T>(x, by_s)" in kernel.run.source
    for args in given:
        assert_held(kernel, dict(zip(("dy", "x", "s"), args, strict=True)))


def assert_held(kernel: Emulated, args: dict[str, torch.Tensor]) -> None:
    """What a kernel finds lies within its bounds of the exact results, those that are NaN or unbounded apart."""
    found, exact = kernel(*args.values()), Analysis(kernel.kernel, args, "cuda").results()
    for name, want in zip(found, exact, strict=True):
        got = found[name].double()
        held = (got == want.exact) | (got.isnan() & want.exact.isnan()) | ((got - want.exact).abs() <= want.bound) | ~want.bound.isfinite()
        assert bool(held.all()), (name, [(x.shape, x.dtype) for x in args.values()], (~held).nonzero()[:4])


SHARE = "share(x: T[M, N], s: T32[M]) -> (y: T[M, N], m: T[M])\n\ny = x / s\nm = max[N](x)\n"


def test_a_result_of_16_bits_that_is_one_quotient_keeps_its_division(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more bits it goes by parts of the inverse, within its bound; whole quotients come out whole."""
    def waiting(path: Path, source: str, expressions: list[str]) -> ctypes.CDLL:
        return kernels(path, source.replace("Walk::CLUSTERS &&", "true &&"), expressions)

    monkeypatch.setattr(emulated, "kernels", waiting)
    g = torch.Generator().manual_seed(4)
    s = torch.tensor([0.7, -3.0, 2.0**100, 2.0**-140, 0.0, -0.0, torch.inf, torch.nan, 3.0])
    given = [((torch.randn(len(s), 40, generator=g) * 100).to(dtype), s.to(wide)) for dtype, wide in (
        (torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float64, torch.float64))]  # fmt: skip
    given[0][0][-1] = 3 * torch.arange(-20, 20)
    kernel = Emulated(SHARE, tmp_path, *given)
    assert "split_divisor<T, Walk::CLUSTERS && !is_brief<T>>(s)" in kernel.run.source and "plainly(" not in kernel.run.source.split("share_kernel")[-1]
    for x, own in given:
        assert_held(kernel, {"x": x, "s": own})
    assert torch.equal(kernel(*given[0])["y"][-1], torch.arange(-20.0, 20.0))


def test_who_takes_them() -> None:
    """Quotients by a value of a row that blocks may share; not those of what an order reads, or of a scan."""
    def takes(text: str) -> bool:
        return "split_divisor" in kgen.loads(text).source("cuda")

    assert takes(GRADIENT)
    assert takes("one(x: T[M, N]) -> y: T[M, N]\n\ny = x / sum[N](x)\n")
    assert not takes("scan(x: T[M, N]) -> y: T[M, N]\n\ny = cumsum[N](x / sum[N](x))\n")
    assert not takes("order(x: T[M, N], s: T32[M]) -> y: T[M]\n\ny = max[N](exp(x) / s * 2 + x / s)\n")


TEMPERATURE = """over(x: T[..., N], t: float = 1.0) -> (y: T[..., N], m: T32[...])

z = x / t
m = max[N](z)
y = exp(z - m) / sum[N](exp(z - m))
"""


def test_quotients_by_a_number_of_the_call_stay_within_their_bound(tmp_path) -> None:
    """A softmax over a temperature, ordinary, large, tiny, negative, infinite, none; zeros, infinities and NaN among the logits."""
    g = torch.Generator().manual_seed(5)
    given = []
    for t in (0.7, -3.0, 2.0**100, 2.0**-100, 2.0**-140, torch.inf, 0.0, torch.nan):
        for n, dtype in ((67, torch.float32), (3000, torch.bfloat16), (64, torch.float64)):
            x = torch.randn(4, n, generator=g).to(dtype)
            x[0, 3], x[1, 2], x[2, 5] = -0.0, torch.inf, torch.nan
            given.append((x, t))
    kernel = Emulated(TEMPERATURE, tmp_path, *given)
    assert "uniform_quotient(x, by_t)" in kernel.run.source and "split_divisor<F, true>(t)" in kernel.run.source
    for args in given:
        found, exact = kernel(*args), Analysis(kernel.kernel, dict(zip(("x", "t"), args, strict=True)), "cuda").results()
        for name, want in zip(("y", "m"), exact, strict=True):
            got = found[name].double()
            held = (got == want.exact) | (got.isnan() & want.exact.isnan()) | ((got - want.exact).abs() <= want.bound) | ~want.bound.isfinite()
            assert bool(held.all()), (name, args[1], args[0].dtype, (~held).nonzero()[:4])


@pytest.mark.parametrize("asks", ["max[N](x / t)", "sum[N](x if x / t > 1 else 0)", "max[N](abs(x / t + 1))"])
def test_a_gradient_orders_the_quotients_that_its_forward_ordered(asks: str) -> None:
    """They are the same numbers in both, by their parts; what nothing orders, means and what literals divide are divided."""
    kernel = kgen.loads(f"f(x: T[..., N], t: float = 2.0) -> y: T32[...]\n\ny = {asks}\n").kernel
    for own in (kernel, backward(kernel).kernel):
        program = pipeline.merged(own, pipeline.usual(own)).program
        (x,) = (let.name for let in program.lets if let.expr == leaf("load", "x"))
        asked = {let.name for let in program.lets if let.expr.name == "div" and let.expr.operands[0].name == x}
        assert asked and asked <= uniform_quotients(program)
    plain = kgen.loads("f(x: T[..., N], t: float = 2.0) -> y: T[..., N]\n\ny = x / t - max[N](x / 3) - mean[N](x)\n").kernel
    assert not uniform_quotients(pipeline.merged(plain, pipeline.usual(plain)).program)


def test_a_sign_is_one_of_three(tmp_path) -> None:
    """Of both zeros and NaN it is 0, of denormals and infinities their sign."""
    given = (2.5, -2.5, 0.0, -0.0, torch.inf, -torch.inf, torch.nan, 2.0**-149, -(2.0**-149), -1e-40)
    known: dict[str, object] = {**backend("cuda").functions(["sign"])}
    text = '\nextern "C" float of(float x) { return sign(x); }\n'
    numbers = (resource("templates") / "cuda" / "library" / "kgen_numbers.cuh").read_text().replace("#pragma once", "")
    library = kernels(tmp_path / "sign.cpp", "\n".join([numbers, *map(str, known.values()), text]), [])
    library.of.restype, library.of.argtypes = ctypes.c_float, (ctypes.c_float,)
    assert [library.of(v) for v in given] == [1, -1, 0, 0, 1, -1, 0, 1, -1, -1]
