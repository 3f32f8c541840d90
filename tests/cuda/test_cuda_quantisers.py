"""Quantisers as CUDA kernels, run on the CPU: what takes an operand's place, quotients by what follows from their divisor alone, codes two at
a time."""

from __future__ import annotations

import ctypes
import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.resources import resource  # noqa: E402
from kgen.runtime import coded  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from kgen.types import DTYPES  # noqa: E402
from tests.cuda.emulated import Emulated, kernels  # noqa: E402

SCALED = """scaled(x: T[M, N], w: T[N]) -> (q: f8e4m3[M, N], s: f32[M])

y = T(x * w)
s = scale[N](y, 448)
q = f8e4m3[saturate](y / s)
"""
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def rows(n: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows at the edges: zeros of both signs, infinity, NaN, the smallest and the largest numbers, the greatest at the end."""
    g = torch.Generator().manual_seed(5)
    x = torch.randn(9, n, generator=g, dtype=torch.float64)
    x[1], x[2, n // 2], x[3, 0], x[8] = 0.0, torch.inf, torch.nan, torch.arange(n) - n // 2
    for k, size in ((4, 2.0**-130), (5, 2.0**-20), (6, 2.0**118), (7, 2.0**10)):
        x[k] *= size if dtype == torch.bfloat16 else min(max(size, 2.0**-22), 2.0**12)
    x[:, 1::5] = -0.0
    return x.to(dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, pytest.param(torch.float16, marks=pytest.mark.slow)])
def test_codes_are_those_of_the_quotient(dtype: torch.dtype, tmp_path) -> None:
    """Bit for bit, of rows in registers, in shared memory and read anew, that begin anywhere, and whose elements lie apart."""
    given = []
    for n in (64, 67, 300):
        x = rows(n, dtype)
        shifted, apart = torch.zeros(9, n + 5, dtype=dtype)[:, 3 : n + 3].copy_(x), torch.empty(n, 9, dtype=dtype).T.copy_(x)
        given += [(each, (torch.arange(n) % 3 + 1).to(dtype)) for each in (x, shifted, apart)]
    given += [(rows(n, dtype)[4:6], torch.ones(n, dtype=dtype)) for n in (20003, 200003) if dtype == torch.bfloat16]
    kernel = Emulated(SCALED, tmp_path, *given)
    for x, w in given:
        y = (x.float() * w.float()).to(dtype).float()
        top = y.abs().amax(1)
        s = torch.where(top == 0, 1.0, top / 448)
        want = coded.rounded(DTYPES["f8e4m3"], ("saturate",), y / s[:, None]).view(torch.uint8)
        found = kernel(x, w)
        torch.testing.assert_close(found["s"], s, rtol=0, atol=0, equal_nan=True)
        got = found["q"].view(torch.uint8)
        got, want = (torch.where(codes & 0x7F == 0x7F, 0x7F, codes) for codes in (got, want))  # of NaN either sign
        assert torch.equal(got, want), (x.shape, x.stride(), (got != want).nonzero()[:4])


QUOTIENTS = """
static float of(unsigned u) { return __uint_as_float(u); }
// How many quotients lie on another side of m / 2 than the correctly rounded one: of x that step through a binade, and y about 2 x / m.
template <typename T> static long wrong(unsigned step, int last, int reach) {
    long count = 0;
    for (int m = 1; m <= last; m += 2) for (unsigned u = 0; u < 1u << 23; u += step) for (int by = -reach; by <= reach; by++) {
        const float half = m * 0.5f, x = of(0x3f800000 | u), y = of(__float_as_uint(x / half) + by), want = x / y;
        const auto differs = [&](float q) { return (q > half) - (q < half) != (want > half) - (want < half); };
        count += differs(x / divisor<T>(y));
        dividing<T>(y, [&](const auto& by_y) { count += differs(x / by_y); });
    }
    return count;
}
extern "C" long wrong_codes(int error, bool wide) {
    off = error;
    return wide ? wrong<float>(4099, 31, 2) : wrong<f16>(1 << 13, 255, 3) + wrong<f16>(1 << 13, 511, 0);
}
"""


@needs_compiler
def test_a_divisor_s_quotients_lie_where_the_exact_ones_do(tmp_path) -> None:
    """Beside each number half way between codes, whatever the last place of the hardware's inverse: all x of 16 bits, some of 32."""
    known = dict(backend("cuda").functions(["dividing"]))
    known["inverse"] = "static int off;\nstatic float inverse(float x) { return __uint_as_float(__float_as_uint(1 / x) + off); }\n"
    numbers = (resource("templates") / "cuda" / "library" / "kgen_numbers.cuh").read_text().replace("#pragma once", "")
    library = kernels(tmp_path / "quotients.cpp", "\n".join([numbers, *map(str, known.values()), QUOTIENTS]), [])
    library.wrong_codes.restype = ctypes.c_long
    assert not any(library.wrong_codes(error, wide) for error in (-1, 0, 1) for wide in (False, True))


@needs_compiler
def test_divisors_at_the_edges(tmp_path) -> None:
    """Of zeros, infinities, NaN, denormals and what overflows the quotient is the division's."""
    far = [s * 2.0**k for s in (0.99, -1.01) for k in (-126, -96, 96, 119)]  # beyond which x are brought nearer first
    x = torch.tensor([0.0, -0.0, 1.0, -3.0, 2.0**-149, 3.0e38, torch.inf, -torch.inf, torch.nan, *far])
    for dtype in (torch.float32, torch.bfloat16):
        rows = x.to(dtype).repeat(len(x), 1)
        given = (rows, x.clone())
        (tmp_path / str(dtype.itemsize)).mkdir()
        kernel = Emulated("edges(x: T[M, N], s: f32[M]) -> q: f8e4m3[M, N]\n\nq = f8e4m3[saturate](x / s)\n", tmp_path / str(dtype.itemsize), given)
        want = coded.rounded(DTYPES["f8e4m3"], ("saturate",), rows.float() / x[:, None]).view(torch.uint8)
        got = kernel(*given)["q"].view(torch.uint8)
        assert torch.equal(torch.where(want & 0x7F == 0x7F, got | 0x80, got), torch.where(want & 0x7F == 0x7F, want | 0x80, want)), dtype


INTEGERS = """integers(x: T[M, N]) -> (q: i8[M, N], u: u8[M, N], s: f32[M])

s = max[N](abs(x)) / 127
q = i8(clamp(round(x / s), -127, 127) if s > 0 else 0.0)
u = u8(round(x / s))
"""


@needs_compiler
def test_integers_are_those_of_the_quotient(tmp_path, built_quickly) -> None:
    given = [rows(n, dtype) for n in (64, 67) for dtype in (torch.bfloat16, torch.float32, torch.float64)]
    kernel, other = Emulated(INTEGERS, tmp_path, *((x,) for x in given)), kgen.loads(INTEGERS)
    for x in given:
        found, (q, u, s) = kernel(x), other(x, target="cpp")
        torch.testing.assert_close(found["s"], s, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(found["q"], q) and torch.equal(found["u"], u), x.dtype


BLOCKS = """blocks(x: T[M, G, 128], w: T[G, 128]) -> (y: T[M, G, 128], q: f8e4m3[M, G, 128], s: f32[M, G])

y = T(x / sum[G, 128](abs(x)) * w)
s = sum[128](abs(y)) / 128
q = f8e4m3[saturate](y / s)
"""


#: A peak that is the greatest of what takes an operand's place, as it lies there, and one of what is computed from that.
ABOUT_ROUNDED = (
    "about(x: T[M, N]) -> y: f32[M, N]\n\ny = softmax[N](T(x * 2.5 - 1))\n",
    "about(x: T[M, N], w: T[N]) -> y: f32[M, N]\n\ny = softmax[N](T(x * w - 1) * 0.5)\n",
)


@needs_compiler
@pytest.mark.parametrize("text", ABOUT_ROUNDED, ids=["lies", "computed"])
def test_what_takes_an_operand_s_place_is_made_once(text: str, tmp_path) -> None:
    """An online reading takes each vector twice, for the peak and for the sums about it: what stands there then is not made of itself once
    more. Of rows in registers, in shared memory and read anew."""
    g = torch.Generator().manual_seed(6)
    checked, given = kgen.loads(text).kernel, []
    for dtype, lengths in ((torch.bfloat16, (40, 2051, 4096, 20000)), (torch.float32, (600, 20000, 70000)), (torch.float64, (512, 16383))):
        for n in lengths:
            x = torch.randn(3, n, generator=g, dtype=torch.float64).mul(2).to(dtype)
            given.append((x, torch.linspace(-2, 3, n).to(dtype)) if len(checked.params) > 1 else (x,))
    kernel = Emulated(text, tmp_path, *given)
    for args in given:
        (want,) = Analysis(checked, {q.name: a for q, a in zip(checked.params, args)}, "cuda").results()
        got = kernel(*args)["y"].double()
        assert bool(((got - want.exact).abs() <= want.bound).all()), (args[0].dtype, args[0].shape)


#: A rounded value that is the same for all rows; of one row, and of one alone, it takes the parameter's place.
OF_COLUMNS = """of_columns(x: T[M, N], w: T[N]) -> y: T32[M, N]

v = T(w * 1.5)
y = x * v / sum[N](abs(x * v))
"""


@needs_compiler
def test_what_all_rows_share_stays_as_it_is(tmp_path) -> None:
    """A parameter of columns does not stay on the chip beside a row, so nothing that is made of it does."""
    torch.manual_seed(4)
    lengths = ((torch.bfloat16, (40, 515, 20000)), (torch.float32, (64, 4096)))
    given = [(torch.randn(3, n).to(dtype), torch.randn(n).to(dtype)) for dtype, own in lengths for n in own]
    kernel, checked = Emulated(OF_COLUMNS, tmp_path, *given), kgen.loads(OF_COLUMNS).kernel
    for x, w in given:
        (want,) = Analysis(checked, {"x": x, "w": w}, "cuda").results()
        assert bool(((kernel(x, w)["y"].double() - want.exact).abs() <= want.bound).all()), (x.dtype, x.shape)


#: A quotient by a row's value, in what takes an operand's place and in what is drawn once, each all that divides by that value; and what
#: takes an operand's place in the steps of a search.
MADE_ONCE = (
    "once(x: T[M, N], w: T[N]) -> y: T32[M, N]\n\nv = T(softmax[N](x) * w)\ny = v * rsqrt(mean[N](v^2) + 0.01)\n",
    "once(x: T[M, N], seed: i64[]) -> y: T32[M, N]\n\np = softmax[N](x) if bernoulli[M, N](0.5, seed, 0) else 0\ny = p / (sum[N](p) + 0.1)\n",
    "once(x: T[M, N], w: T[N]) -> y: T32[M, N]\n\nv = T(x * 1.5)\ny = w * v if v >= kth[N](v, 3) else -v\n",
)


@needs_compiler
@pytest.mark.parametrize("text", MADE_ONCE, ids=["made", "drawn", "searched"])
def test_what_is_made_once_stands_before_its_readings(text: str, tmp_path) -> None:
    """Behind what it is divided by: the row's value, with what follows from that for all elements."""
    g = torch.Generator().manual_seed(7)
    checked, given = kgen.loads(text).kernel, []
    for dtype, n in ((torch.bfloat16, 64), (torch.float32, 600), (torch.bfloat16, 20000)):
        x = torch.randn(3, n, generator=g).to(dtype)
        given.append((x, torch.linspace(-2, 3, n).to(dtype) if "w" in [q.name for q in checked.params] else torch.tensor(5)))
    kernel = Emulated(text, tmp_path, *given)
    for args in given:
        (want,) = Analysis(checked, {q.name: a for q, a in zip(checked.params, args)}, "cuda").results()
        assert bool(((kernel(*args)["y"].double() - want.exact).abs() <= want.bound).all()), (args[0].dtype, args[0].shape)


@needs_compiler
def test_a_result_is_read_again(tmp_path) -> None:
    """What is stored as it is rounded by name is what a later pass takes; nothing is kept for it."""
    x, w = torch.randn(3, 2, 128).bfloat16(), torch.rand(2, 128).bfloat16()
    kernel = Emulated(BLOCKS, tmp_path, (x, w))
    assert [[o.name for o in unit.operands] for unit in kernel.units] == [["x", "w", "y"], ["y", "s", "q"]] and not kernel.workspaces
    found = kernel(x, w)
    y = found["y"].float()
    want = x.double() / x.double().abs().sum((1, 2), keepdim=True) * w.double()
    assert ((y.double() - want).abs() <= want.abs() * 2.0**-8).all()
    torch.testing.assert_close(found["s"], y.abs().mean(2), rtol=2.0**-20, atol=0)
    assert torch.equal(found["q"].view(torch.uint8), coded.rounded(DTYPES["f8e4m3"], ("saturate",), y / found["s"][..., None]).view(torch.uint8))
