"""What the C++ templates do by their own means: exponentials and logarithms without calls, places looked up only where they may change,
and rows that are read in runs or side by side."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import shutil
import struct

import pytest
import torch

import kgen
from kgen.testing import check
from kgen.testing.bounds import Analysis
from tests.specs.cases import check_call

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler is installed")


def quickly_in_f64(dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    """At -O3 in f32 and 16 bits alone, whose sources have forms of their own: that two ways through a row do the same in the same order."""
    if dtype == torch.float64:
        request.getfixturevalue("built_quickly")


def test_exp_is_within_its_bound_wherever_it_is_finite() -> None:
    exp = kgen.loads("e(x: f32[...]) -> y: f32[...]\n\ny = exp(x)\n", "e.k")
    x = torch.cat([torch.linspace(-106, 90, 400_000), torch.randn(100_000) * 1e-3])
    exact, y = x.double().exp(), exp(x)
    over = exact > torch.finfo(torch.float32).max
    unit = 2.0 ** (torch.frexp(exact).exponent - 24).clamp(min=-149).double()
    assert torch.isinf(y[exact > 3.4028236e38]).all()
    assert ((y.double() - exact).abs() / unit)[~over].max() <= 2


def test_exp_of_what_is_not_finite() -> None:
    exp = kgen.loads("e(x: f32[...]) -> y: f32[...]\n\ny = exp(x)\n", "e.k")
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([inf, -inf, nan, -nan, 1e30, -1e30, 0.0, -0.0, 88.72284, -103.97], dtype=torch.float32)
    torch.testing.assert_close(exp(x), x.double().exp().float(), rtol=3e-7, atol=0, equal_nan=True)


def test_what_is_zero_is_made_without_an_underflow() -> None:
    """Masked rows are full of exp(-inf); processors take several times as long over results that underflow."""
    name = ctypes.util.find_library("m")
    flags = ctypes.CDLL(name) if name else None
    if flags is None or not hasattr(flags, "fetestexcept"):
        pytest.skip("the C library has no floating-point flags")
    underflow = 0x10 if platform.machine() in ("x86_64", "AMD64") else 0x8  # FE_UNDERFLOW of x86, and of Arm
    x = torch.tensor([-torch.inf, -1e30, -200.0, -104.0, 0.0] * 20)
    for body in ("exp(x)", "sigmoid(x)"):
        for dtype in ("f32", "bf16"):
            own = kgen.loads(f"e(x: {dtype}[...]) -> y: {dtype}[...]\n\ny = {body}\n", "e.k")
            given = x.to(torch.bfloat16 if dtype == "bf16" else torch.float32)
            y = own(given)
            flags.feclearexcept(underflow)
            own(given)
            assert not flags.fetestexcept(underflow), (body, dtype)
            assert not y.view(-1, 5)[:, :4].any() and y.view(-1, 5)[:, 4].all()


#: A function, that of a float64, and the units in its last place that the table of operators allows.
OF_ANY_BITS = {"log": (torch.log, 1.5), "log2": (torch.log2, 3), "log1p": (torch.log1p, 2), "expm1": (torch.expm1, 2)}


@pytest.mark.parametrize("name", OF_ANY_BITS)
def test_functions_of_floats_of_any_bits(name: str) -> None:
    of, ulp = OF_ANY_BITS[name]
    own = kgen.loads(f"e(x: f32[...]) -> y: f32[...]\n\ny = {name}(x)\n", "e.k")
    bits = torch.cat([torch.arange(-(1 << 31), 1 << 31, 4093), torch.tensor([0, 1, 0x7F800000, -(1 << 31), -(1 << 31) + 1, 0x3F800000])])
    x = torch.cat([bits.to(torch.int32).view(torch.float32), 1 + torch.randn(100_000) * 1e-3, torch.randn(100_000) * 1e-4])
    exact, y = of(x.double()), own(x)
    assert torch.equal(y.isnan(), exact.isnan())
    plain = exact.float().isfinite() & (exact != 0)
    assert torch.equal(y[~plain & ~y.isnan()], exact.float()[~plain & ~y.isnan()])
    assert torch.equal(y.signbit()[~y.isnan()], exact.signbit()[~y.isnan()])
    unit = 2.0 ** (torch.frexp(exact[plain]).exponent - 24).clamp(min=-149).double()
    assert ((y[plain].double() - exact[plain]).abs() / unit).max() <= ulp


def test_nan_of_any_bits_goes_through() -> None:
    own = kgen.loads("f(x: f32[...]) -> (a: f32[...], b: f32[...])\n\na = exp(x)\nb = erfc(x)\n", "own.k")
    bits = torch.arange(1, 1 << 22, 4099, dtype=torch.int32)
    x = torch.cat([sign | 0x7F800000 | bits for sign in (0, -(1 << 31))]).view(torch.float32)
    assert all(y.isnan().all() for y in own(x))


def test_erfc_is_within_its_bound_down_to_denormals() -> None:
    erfc = kgen.loads("e(x: f32[...]) -> y: f32[...]\n\ny = erfc(x)\n", "erfc.k")
    x = torch.cat([torch.linspace(-5, 11, 400_000), torch.tensor([float("inf"), -float("inf"), 3e38, -3e38, 0.0, -0.0])])
    exact, y = torch.erfc(x.double()), erfc(x)
    unit = 2.0 ** (torch.frexp(exact.float()).exponent - 24).clamp(min=-149).double()
    assert ((y.double() - exact).abs() / unit).max() <= 6


#: Factors of erfc's argument and of its value.
FACTORS = ((-0.7071067811865476, 0.5), (3.7, -0.3), (-0.02, 0.0001), (50.0, 1.0), (0.3, -1.0))


def test_erfc_takes_the_factors_of_its_argument_and_its_value() -> None:
    lines = [f"y{k} = {times} * erfc({scale} * x)" for k, (scale, times) in enumerate(FACTORS)]
    results = ", ".join(f"y{k}: f32[...]" for k in range(len(lines)))
    erfc = kgen.loads(f"e(x: f32[...]) -> ({results}, z: f32[...])\n\n" + "\n".join(lines) + "\nz = 2 * erfc(300 * x)\n", "scaled.k")
    source = erfc.source("cpp")
    assert source.count("error_complement(x_, ") == len(FACTORS)  # 300 is too large for its constants
    at = torch.cat([torch.linspace(-11, 11, 40_000), torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0])])
    for k, (scale, times) in enumerate(FACTORS):
        x = at / abs(scale)
        exact, y = float(torch.tensor(times)) * torch.erfc(float(torch.tensor(scale)) * x.double()), erfc(x)[k]
        unit = 2.0 ** (torch.frexp(exact.float()).exponent - 24).clamp(min=-149).double()
        off = ((y.double() - exact).abs() / unit)[~x.isnan()]
        assert off.max() <= 6.5 and y[x.isnan()].isnan().all()
        assert (y[exact == 0] == 0).all()
    long = " + ".join(f"x^{k} * 0.{k}" for k in range(3, 12))
    source = kgen.loads(f"e(x: f32[...]) -> y: f32[...]\n\ny = 1 - 0.5 * erfc(-({long}) * 3)\n", "long.k").source("cpp")
    assert ", -3.0f, 0.5f)" in source  # a value follows from no line's length


def test_greatest_of_a_row_has_its_nan() -> None:
    most = kgen.loads("m(x: f32[..., N]) -> y: f32[...]\n\ny = max[N](x)\n", "most.k")
    x = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    x[torch.arange(299), torch.arange(299)] = float("nan")
    for y in (x, x.T):
        torch.testing.assert_close(most(y), y.amax(-1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("shape", [(3, 5, 13), (2, 64, 64), (1, 3, 100), (2, 96, 1000), (1, 1, 70_000), (5, 3, 65)])
def test_argmax_over_two_dims_in_any_layout(shape: tuple[int, int, int]) -> None:
    text = "found(x: T[..., M, N]) -> (i: i64[...], j: i64[...])\n\ni = argmax[M, N](x)\nj = argmin[M, N](x)\n"
    found = kgen.loads(text, "found.k")
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    nans, least = x.clone(), torch.full(shape, -float("inf"))
    nans.view(-1)[7::19] = float("nan")
    for y in (x, x.round(), nans, least, -least):  # by chance, with ties, with NaN, nothing better than the start
        for z in (y, y.transpose(-1, -2), y.flip(-1)):
            i, j = found(z)
            assert torch.equal(i, z.flatten(-2).argmax(-1)) and torch.equal(j, z.flatten(-2).argmin(-1))


@pytest.mark.parametrize("n", (1, 2, 63, 513, 65536))
def test_neighbours_of_16_bits_are_computed_as_each_alone(n: int) -> None:
    step = kgen.loads("s(a: T[...], b: T[...], c: float) -> y: T[...]\n\ny = a - c * b if c != 0 else b\n", "step.k")
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    torch.manual_seed(0)
    a, b = bits[torch.randperm(65536)[:n]], bits[torch.randperm(65536)[:n]]
    y, apart = step(a, b, c=0.5), step(torch.stack([a, b], -1)[:, 0], torch.stack([b, a], -1)[:, 0], c=0.5)
    want = (a.float() - 0.5 * b.float()).bfloat16()
    assert torch.equal(y.isnan(), want.isnan()) and torch.equal(apart.isnan(), want.isnan())
    kept = ~want.isnan()
    assert torch.equal(y[kept].view(torch.int16), want[kept].view(torch.int16))
    assert torch.equal(apart[kept].view(torch.int16), want[kept].view(torch.int16))
    step(a, b, c=0.5, out=(there := a.clone()))
    assert torch.equal(there[kept], want[kept])


def test_a_row_keeps_values_in_its_result_only_where_no_operand_lies() -> None:
    """Of rows of 4,096 exponentials lie in the result until their sum is known; the last reading has z too, which a call may write over."""
    made = kgen.loads("k(x: T[..., N], z: T[..., N]) -> y: T[..., N]\n\ny = softmax[N](x) * z\n", "kept.k")
    for n in (4096, 4100):
        x, z = torch.randn(3, n), torch.randn(3, n)
        want = torch.softmax(x.double(), -1) * z
        got = made(x, z)
        assert ((got.double() - want).abs() <= 2**-19 * want.abs() + 2.0**-149).all()
        apart = made(x.t().contiguous().t(), z, out=torch.empty(3, 2 * n)[:, ::2])
        assert torch.equal(apart, got)
        for k in range(2):
            given = [x.clone(), z.clone()]
            assert torch.equal(made(*given, out=given[k]), got)


def test_bf16_maps_keep_every_nan_one(built_quickly):
    """Results are rounded to bf16 by their bits: no NaN's may carry over into another number's, not those of a number of the call either."""
    bits = torch.cat([torch.arange(0x7F81, 0x8000), torch.arange(0xFF81, 0x10000)]).to(torch.int32).to(torch.int16)
    x = bits.view(torch.bfloat16)
    for formula in ("x * 2", "gelu(x)", "-abs(x)", "max(x, 1)", "x if x > 0 else -x"):
        assert kgen.loads(f"f(x: T[N]) -> y: T[N]\ny = {formula}")(x).isnan().all(), formula
    (every,) = struct.unpack("d", b"\xff" * 7 + b"\x7f")
    assert kgen.loads("f(x: T[N], a: float) -> y: T[N]\ny = a + min(x, a)")(x.nan_to_num(1), every).isnan().all()


@pytest.mark.parametrize("n", (1, 16, 24, 48, 64, 112, 128, 192, 320))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_a_column_is_the_same_alone_and_among_others(n: int, dtype: torch.dtype) -> None:
    """Columns that lie together are added up side by side, however many there are; each in the order that its length alone says."""
    own = kgen.loads("f(x: T[B, M, N]) -> (y: T[B, N], z: T[B, N])\n\ny = sum[M](x)\nz = max[M](x * x)\n", "columns.k")
    unit = 2.0**-8 if dtype == torch.bfloat16 else 0.0
    for m in (1, 33, 300, 1031):
        x = torch.randn(3, m, n).to(dtype)
        y, z = own(x)
        for k in {0, n // 2, n - 1}:
            alone = own(x[:, :, k : k + 1])  # its elements lie as far apart
            assert torch.equal(y[:, k], alone[0][:, 0]) and torch.equal(z[:, k], alone[1][:, 0])
        exact, most = x.double().sum(1), x.double().abs().sum(1)
        roundings = 31 + m.bit_length()  # of a round of 32 in their order, and of the rounds pairwise
        assert ((y.double() - exact).abs() <= roundings * 2.0**-24 * most + unit * exact.abs()).all()


@pytest.mark.parametrize("n", (16, 48, 64, 80, 128, 256))
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16, torch.int8), ids=str)
def test_columns_of_few_bits_have_the_sums_of_their_values_in_f32(n: int, dtype: torch.dtype) -> None:
    """However columns are widened, and what of them is asked for ahead: each in its place, in the order of f32's, wherever they lie."""
    given = "T" if dtype.is_floating_point else "i8"
    text = "f(x: {0}[B, M, N]) -> (y: f32[B, N], z: {0}[B, N])\n\ny = sum[M](f32(x))\nz = max[M](x)\n"
    own, wide = kgen.loads(text.format(given), "few.k"), kgen.loads(text.format("f32"), "wide.k")
    for m in (1, 31, 32, 33, 64, 257, 1100):
        batch = 8192 // n if m == 1100 and n >= 64 else 2  # of more than 8 MB
        x = (torch.randn(batch, m + 3, n + 16) * 20).to(dtype)
        for one in (x[:, :m, :n].contiguous(), x[:, :m, :n], x[:, 3:, 16:]):
            results, others = own(one), wide(one.float())
            assert torch.equal(results[0], others[0]) and torch.equal(results[1].float(), others[1])
    if dtype.is_floating_point:
        x[1, m // 2, n // 2] = torch.nan
        for result in own(x):
            assert result.isnan().nonzero().tolist() == [[1, n // 2]]


@pytest.mark.parametrize("c, s", [*((8, s) for s in (1, 49, 64, 96, 128, 512)), (1, 5), (1, 65), (1, 1000), (2, 2048), (1, 5000), (5, 16384)])
def test_rows_of_several_runs_are_those_of_one(c: int, s: int) -> None:
    """A row whose parameters step otherwise than its elements, or stand still, has the numbers of one whose parameters are spread out."""
    text = "f(x: T[B, G, C, S], w: T[G, C{0}], b: T[G, C{0}]) -> (y: T[B, G, C, S], m: T32[C, S], t: T32[B, G])\n\n"
    text += "c = x - mean[C, S](x)\ny = c * rsqrt(mean[C, S](c^2) + 1e-5) * w + b\nm = mean[B, G](x)\nt = sum[C, S](x * w)\n"
    own, spread = kgen.loads(text.format(""), "runs.k"), kgen.loads(text.format(", S"), "spread.k")
    x, w, b = torch.randn(4, 3, c, s), torch.randn(3, c), torch.randn(3, c)
    results = own(x, w, b)
    wide = [v[:, :, None].expand(3, c, s).contiguous() for v in (w, b)]
    assert all(torch.equal(one, other) for one, other in zip(results, spread(x, *wide), strict=True))
    check(own, target="cpp", examples=4, sizes={"C": c, "S": s}, dtypes={"T": "f32"})  # of all layouts, within the derived bound
    assert own(x[:, :, :, :0], w, b)[0].shape == (4, 3, c, 0)


@pytest.mark.parametrize("n", (64, 127, 1024, 70_001))
def test_rows_of_16_bits_are_each_elements_own(n: int) -> None:
    """Two neighbours of a word at a time, whatever the layout: each result lies within its bound of the exact one."""
    text = "f(x: T[B, N], w: T[N], a: float) -> (y: T[B, N], s: T32[B])\n\nc = (x - mean[N](x)) * w\ny = c * a\ns = sum[N](c * c)\n"
    own = kgen.loads(text, "halves.k")
    x, w = torch.randn(5, n).bfloat16(), torch.randn(n).bfloat16()
    wanted = Analysis(own.kernel, {"x": x, "w": w, "a": 0.37}, "cpp").results()
    apart = own(x.t().contiguous().t(), torch.stack([w, w], -1)[:, 0], 0.37, out=(torch.empty(5, 2 * n, dtype=x.dtype)[:, ::2], None))
    for got in (own(x, w, 0.37), apart):
        for result, want in zip(got, wanted, strict=True):
            assert bool(((result.double() - want.exact).abs() <= want.bound).all() and want.bound.isfinite().all())


def test_rows_of_16_bits_keep_every_nan_one() -> None:
    """As maps do: of operands, of the call's numbers, and of operands of more bits."""
    bits = torch.cat([torch.arange(0x7F81, 0x8000), torch.arange(0xFF81, 0x10000)]).to(torch.int32).to(torch.int16)
    (every,) = struct.unpack("d", b"\xff" * 7 + b"\x7f")
    x = bits.view(torch.bfloat16)[None].expand(3, -1).contiguous()
    ordinary = torch.ones_like(x)
    assert kgen.loads("f(x: T[B, N]) -> y: T[B, N]\n\ny = x - max[N](abs(x)) * 0\n")(x).isnan().all()
    assert kgen.loads("f(x: T[B, N]) -> y: T[B, N]\n\ny = x if max[N](x) > 0 else -x\n")(x).isnan().all()
    assert kgen.loads("f(x: T[B, N], a: float) -> y: T[B, N]\n\ny = a if sum[N](x) > 0 else x\n")(ordinary, every).isnan().all()
    wide = torch.full((3,), 0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    given = kgen.loads("f(x: T[B, N], a: f32[B]) -> y: T[B, N]\n\ny = a if sum[N](x) > 0 else x\n")
    assert given(ordinary, wide).isnan().all() and given(ordinary, -wide).isnan().all()


@pytest.mark.parametrize("b, s", [(8, 64), (8, 96), (40, 128), (40, 192), (9, 1024), (500, 128)])
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_runs_that_lie_apart_are_those_of_a_row(b: int, s: int, dtype: torch.dtype) -> None:
    """A row of several runs, each elsewhere, has the numbers of one whose elements lie together."""
    text = "f(x: T[{0}]) -> (m: T32[C], v: T32[C], y: T[{0}])\n\nm = mean[B, S](x)\nv = mean[B, S]((x - m)^2)\ny = (x - m) * 2\n"
    apart, together = (kgen.loads(text.format(dims), "apart.k") for dims in ("B, C, S", "C, B, S"))
    x = torch.randn(b, 5, s).to(dtype)
    m, v, y = apart(x)
    one = together(x.transpose(0, 1).contiguous())
    assert torch.equal(m, one[0]) and torch.equal(v, one[1]) and torch.equal(y, one[2].transpose(0, 1))


@pytest.mark.parametrize("b, s", [(600, 128), (400, 192)])
def test_long_rows_of_runs_that_lie_apart_are_those_of_a_row(b: int, s: int) -> None:
    """Each of a row's segments begins at its own run."""
    text = "f(x: T[{0}]) -> (m: T32[C], y: T[{0}])\n\nm = mean[B, S](x)\ny = (x - m) * 2\n"
    apart, together = (kgen.loads(text.format(dims), "apart.k") for dims in ("B, C, S", "C, B, S"))
    x = torch.randn(b, 3, s)
    m, y = apart(x)
    one = together(x.transpose(0, 1).contiguous())
    assert torch.equal(m, one[0]) and torch.equal(y, one[1].transpose(0, 1))


@pytest.mark.parametrize("a, b, s", [(3, 5, 64), (20, 9, 128), (40, 12, 128)])
def test_runs_that_lie_apart_along_several_dims_are_those_of_a_row(a: int, b: int, s: int, built_quickly) -> None:
    """Also where they do not all lie equally far apart, in rows that have no results along them."""
    text = "f(x: T[{0}]) -> (m: T32[C], v: T32[C])\n\nm = mean[A, B, S](x)\nv = mean[A, B, S]((x - m)^2)\n"
    apart, together = (kgen.loads(text.format(dims), "apart.k") for dims in ("A, B, C, S", "C, A, B, S"))
    x = torch.randn(a, b + 2, 70, s)[:, 1:-1]
    for one, other in zip(apart(x), together(x.permute(2, 0, 1, 3).contiguous()), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("n", (64, 100, 192, 512, 1024, 2048, 2112))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64), ids=str)
def test_rows_of_one_tile_are_the_same_wherever_they_lie(n: int, dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    """Rows whose elements lie together and are whole groups are gone through without a look at each tile; to the same numbers."""
    quickly_in_f64(dtype, request)
    texts = (
        "f(x: T[B, N], w: T[N]) -> (y: T[B, N], s: T32[B])\n\ny = softmax[N](x) * w\ns = sum[N](x * w)\n",
        "f(x: T[B, N], w: T[N]) -> (y: T[B, N], k: i64[B])\n\ny = x + index[N] * w\nk = argmax[N](x * w)\n",
        "f(x: T[B, N], w: T[N]) -> (y: T[B, N], s: T32[B])\n\ns = mean[N](x)\ny = (x - s) * rsqrt(mean[N]((x - s)^2) + 1) * w\n",
        "f(x: T[B, N], w: T[N]) -> s: T32[B]\n\ns = max[N](x * w)\n",
    )
    x, w = torch.randn(70, n).to(dtype), torch.randn(n).to(dtype)
    spread = [torch.stack([v, v], -1)[..., 0] for v in (x, w)]
    for text in texts:
        own = kgen.loads(text, "tiles.k")
        together, apart = own(x, w), own(*spread)
        for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (together, apart)), strict=True):
            assert torch.equal(one, other), text
        alone = own(x[3:4], w)
        alone, every = ((r if isinstance(r, tuple) else (r,)) for r in (alone, together))
        assert all(torch.equal(one[0], other[3]) for one, other in zip(alone, every, strict=True)), text


@pytest.mark.parametrize("c, s", [(1, 128), (8, 64), (8, 128), (8, 100), (2, 1024)])
def test_one_value_for_a_run_whether_runs_lie_apart_or_not(c: int, s: int) -> None:
    """Short rows of runs that lie equally far apart, in what is read and in what is written, beside parameters that each run has one of."""
    result = "f(x: T[B, C, S], w: T[C]) -> (y: T[B, C, S], t: {0}[B])\n\ny = (x - mean[C, S](x * w)) * w\nt = {1}[C, S](y)\n"
    x, w = torch.randn(6, 2 * c, s), torch.randn(c)
    for text in (result.format("T32", "sum"), result.format("i64", "argmax")):
        own = kgen.loads(text, "runs.k")
        wanted = own(x[:, ::2].contiguous(), w)
        check_call(own, {"x": x[:, ::2].contiguous(), "w": w}, "cpp")
        out = torch.empty(6, 3 * c, s)
        for got in (own(x[:, ::2], w), own(x[:, ::2], w, out=(out[:, ::3], None)), own(x[:, ::2].contiguous(), w, out=(out[:, ::3], None))):
            assert all(torch.equal(one, other) for one, other in zip(got, wanted, strict=True))


@pytest.mark.parametrize("n", (64, 100, 192, 2048, 4160, 70_000))
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64), ids=str)
def test_one_nan_of_a_row_is_its_maximum_and_minimum_wherever_it_stands(n: int, dtype: torch.dtype) -> None:
    """Lanes are asked once whether any of them is a NaN; zeros and infinities are what they are among ordinary numbers."""
    own = kgen.loads("f(x: T[B, N]) -> (a: T[B], b: T[B])\n\na = max[N](x)\nb = min[N](x)\n", "ends.k")
    x = torch.randn(140, n).to(dtype)
    for row in range(128):
        x[row, row * (n - 1) // 127] = torch.nan
    x[128], x[129], x[130], x[131] = torch.inf, -torch.inf, 0.0, -0.0
    x[132, n // 2], x[132, n // 3], x[133, n - 1] = torch.inf, -torch.inf, -torch.nan
    for got, want in zip(own(x), (x.amax(1), x.amin(1)), strict=True):
        assert torch.equal(got.nan_to_num(7.5), want.nan_to_num(7.5)) and torch.equal(got.isnan(), want.isnan())
        assert torch.equal(got[130:132].signbit(), want[130:132].signbit())
