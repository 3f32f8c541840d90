"""CUDA kernels that reduce, run on the CPU (see `emulated.py`): what they compute, and that they write nothing else."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import check, passes, pipeline, syntax  # noqa: E402
from kgen.backends import launches  # noqa: E402
from kgen.monoids import Rides  # noqa: E402
from kgen.runtime import rows  # noqa: E402
from kgen.runtime.limits import limits  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated, for_any_rows  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

FOUND = """f(x: f32[..., N]) -> (y: f32[..., N], s: f32[...], i: i64[...], least: f32[...])

s = sum[N](x)
i = argmax[N](x)
least = min[N](x)
y = x - max[N](x)
"""
PICKED = """g(x: f32[..., V], t: i64[...], k: i8[V]) -> (y: f32[...], n: i64[...], j: i64[...])

y = pick[V](x, t) / 3 + prod[V](1.0 if x < 6 else x)
n = sum[V](x > 0) % -7 + (sum[V](k) << (t * 16))
j = argmin[V](k * x)
"""


def integers(*shape: int):
    """Small integers: their sums are exact in any order, and many are equal."""
    return torch.randint(-8, 9, shape).float()


def same(got, want) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.nan_to_num(123.0), want.nan_to_num(123.0)), (got, want)


def test_rows_are_reduced_whoever_takes_them(tmp_path):
    """A few lanes, a warp, a block, a block that keeps its row in shared memory, several launches, and rows side by side: whole vectors and
    rows that begin and end within one."""
    torch.manual_seed(0)
    given = [
        integers(9, 5),
        integers(3, 33),
        integers(3, 1001)[:, 1:],
        integers(3, 4096),
        integers(1, 20000),
        integers(2, 66001),
        integers(40, 70).T,
    ]
    kernel = Emulated(FOUND, tmp_path, *((x,) for x in given))
    teams = {tuple(e.split("<")[2].split(", ")[k] for k in (2, 3, 10, 12)) for e in kernel.expressions}
    assert len(teams) >= 7, teams
    for x in given:
        for special in (False, True):
            if special:
                x[0, x.shape[1] // 2 :: 3] = float("nan")
                x[1:2, :] = float("-inf")
                x[-1, -1] = float("inf")
            m, n = x.shape
            y, s, i, least = (torch.full((size + 32,), 77.0) for size in (m * n, m, m, m))
            i = i.long()
            out = y[16:-16].view(m, n), s[16:-16], i[16:-16], least[16:-16]
            kernel(x, out=out)
            same(out[0], x - x.amax(-1, keepdim=True))
            same(out[1], x.sum(-1))
            same(out[2], x.argmax(-1))
            same(out[3], x.amin(-1))
            for whole in (y, s, i, least):
                assert (whole[:16] == 77).all() and (whole[-16:] == 77).all(), "something else was written"


def test_blocks_go_through_a_row_side_by_side_where_they_store_it(tmp_path, monkeypatch):
    """Whatever segments they had of it before: here three, in pieces of which the row has 17, the last not whole."""
    monkeypatch.setattr(launches, "MANY_SEGMENTS", 4)
    rows.cached.cache_clear()
    x = integers(2, 66001)
    kernel = Emulated(FOUND, tmp_path, (x,))
    assert [e.split("<")[2].split(", ")[12] for e in kernel.expressions] == ["0", "1", "2"]
    y = torch.full((x.numel() + 32,), 77.0)
    out = y[16:-16].view(x.shape), torch.zeros(2), torch.zeros(2, dtype=torch.int64), torch.zeros(2)
    kernel(x, out=out)
    same(out[0], x - x.amax(-1, keepdim=True))
    same(out[1], x.sum(-1))
    assert (y[:16] == 77).all() and (y[-16:] == 77).all(), "something else was written"
    rows.cached.cache_clear()


SHARED = """f(x: f32[..., N], w: f32[N]) -> (y: f32[..., N], d: f32[N])

y = (x - max[N](x)) * w
d = sum[...](x * w)
"""


def test_rows_that_share_an_operand_take_a_segment_side_by_side(tmp_path):
    """Three rows that several blocks share, so that what all of them read comes from memory once: each segment of each is taken."""
    x, w = integers(3, 66001), integers(66001)
    kernel = Emulated(SHARED, tmp_path, (x, w))
    assert {"0", "2"} < {steps for e in kernel.expressions if "Walk<" in e for steps in e.split("Walk<")[1].split(", ")[12:13]}
    y = torch.full((x.numel() + 32,), 77.0)
    out = y[16:-16].view(x.shape), torch.full_like(w, 77.0)
    kernel(x, w, out=out)
    same(out[0], (x - x.amax(-1, keepdim=True)) * w)
    same(out[1], (x * w).sum(0))
    assert (y[:16] == 77).all() and (y[-16:] == 77).all(), "something else was written"


def test_what_is_picked_counted_and_shifted(tmp_path):
    torch.manual_seed(1)
    given = [(integers(5, 21), torch.tensor([0, 20, 7, -1, 3]), torch.randint(-100, 100, (21,), dtype=torch.int8))]
    kernel = Emulated(PICKED, tmp_path, *given)
    ((x, t, k),) = given
    found = kernel(x, t, k)
    inside = (t >= 0) & (t < 21)
    picked = torch.where(inside, x[torch.arange(5), t.clamp(0, 20)], float("nan"))
    same(found["y"], picked / 3 + torch.where(x < 6, 1.0, x).prod(-1))
    shifted = torch.where((t >= 0) & (t * 16 < 64), k.long().sum() << (t * 16).clamp(0, 63), 0)
    same(found["n"], (x > 0).sum(-1).remainder(-7) + shifted)
    same(found["j"], (k * x).argmin(-1))


def test_parameters_of_columns_are_read_once_for_several_rows(tmp_path):
    """Four rows a thread where their number and that of elements allow; in place as well, and beside parameters of rows."""
    text = "f(x: f32[M, N], s: f32[M], b: f32[N], k: i64[N]) -> y: f32[M, N]\n\ny = x * s + (b if k > 0 else x)\n"
    shapes = {(1024, 1024): 4, (1022, 1028): 1, (8, 1024): 1, (4, 2**18): 4}
    given = [(integers(m, n), integers(m), integers(n), torch.randint(-1, 2, (n,))) for m, n in shapes]
    kernel = Emulated(text, tmp_path, *given)
    assert {e.split("<")[1].rsplit(", ", 1)[1] for e in kernel.expressions} == {"4>", "1>"}
    for x, s, b, k in given:
        want = x * s[:, None] + torch.where(k > 0, b, x)
        same(kernel(x, s, b, k)["y"], want)
        out = torch.full((x.numel() + 64,), 7.0)
        view = out[:-64].view(x.shape).copy_(x)
        same(kernel(view, s, b, k, out=view)["y"], want)
        assert (out[-64:] == 7).all()


def test_what_a_row_alone_decides_is_computed_once_a_row(tmp_path):
    """A pass over elements goes over rows where much depends on these alone; not where little does."""
    text = "f(x: f32[..., N], s: f32[...]) -> y: f32[..., N]\n\ny = x * (log(s) / exp(s)) if index[N] != 3 else 1 / s\n"
    dear, cheap = (pipeline.merged(check.check(syntax.parse(t)), {}, Rides.EVERY).passes for t in (text, text.replace("log(s) / exp(s)", "s + 1")))
    assert [type(p) for p in (*dear, *cheap)] == [passes.Reduce, passes.Map]
    assert {let.expr.name for let in dear[0].phases[0].lets} >= {"log", "exp", "div"} and dear[0].readings == 1
    given = [(integers(m, n), torch.rand(m) + 0.5) for m, n in ((5, 1), (3, 33), (7, 4096), (2, 5003), (1, 40_001))]
    kernel = Emulated(text, tmp_path, *given)
    for x, s in given:
        rows = s.double()[:, None]
        want = torch.where(torch.arange(x.shape[1]) != 3, x * (rows.log() / rows.exp()), 1 / rows)
        assert torch.allclose(kernel(x, s)["y"].double(), want, rtol=4 * 2.0**-24, atol=0)  # a logarithm, an exponential, a quotient, a product


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
def test_parameters_beside_rows_that_begin_within_a_vector(dtype, tmp_path):
    """Out of two aligned vectors, one by one at the ends of a row and where they lie apart; each as it lies in memory."""
    name = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8"}[dtype]
    text = f"f(x: {name}[..., N], w: {name}[N], b: {name}[..., N]) -> (y: {name}[..., N], s: {name}[...])\n\ns = max[N](x)\ny = w if x >= s else b\n"
    wide = integers(6, 2 * 5003 + 64).to(getattr(torch, dtype))
    given = []
    for n in (37, 1001, 5003):
        for begin, step in ((0, 1), (1, 1), (5, 1), (3, 2)):
            x, (w, *rest) = wide[:3, 1 : n + 1], wide[3:, begin : begin + step * n : step]
            given.append((x, w[:n], torch.stack(rest)[:1].expand(3, -1) if begin == 5 else wide[3:, begin : begin + step * n : step]))
    kernel = Emulated(text, tmp_path, *given)
    assert any(e.split("<")[2].split(", ")[6] == "true" for e in kernel.expressions), "no row begins within a vector"
    for x, w, b in given:
        found, s = kernel(x, w, b), x.max(1).values
        same(found["s"].double(), s.double())
        same(found["y"].double(), torch.where(x >= s[:, None], w, b).double())


SCALED = """h(x: T[..., C, N], w: T[N], g: T[C]) -> (y: T[..., C, N], q: T32[...])

m = mean[C, N](x)
q = mean[C, N]((x - m)^2)
y = (x - m) * rsqrt(q + 1) * w + g
"""


def test_a_walk_for_any_rows_gives_the_bits_of_the_runtimes(tmp_path, monkeypatch) -> None:
    """Rows without gaps and with them, that begin anywhere, lie apart or have several dims; operands that move in vectors and others."""
    torch.manual_seed(2)
    calls = []
    for x in (
        torch.randn(3, 5, 200), torch.randn(3, 1, 1001), torch.randn(3, 4, 8, 36).transpose(1, 3), torch.randn(2, 3, 260)[..., :250],
        torch.randn(2, 1, 4, 4097)[..., 1:], torch.randn(70, 2, 33).permute(2, 1, 0), torch.randn(2, 7, 1, 21_000), torch.randn(5, 64, 2).mT,
        torch.randn(2, 1, 70_000).to(torch.bfloat16), torch.randn(40, 1, 9)[..., :1].expand(40, 1, 300),
    ):  # fmt: skip
        c, n = x.shape[-2:]
        calls.append((x, torch.randn(n + 1).to(x)[1:] if n % 3 else torch.randn(n).to(x), torch.randn(c).to(x)))
    runtimes = Emulated(SCALED, tmp_path, *calls)
    found = [runtimes(*call) for call in calls]

    walks = for_any_rows(monkeypatch, rows)
    (tmp_path / "any").mkdir()
    files = Emulated(SCALED, tmp_path / "any", *calls)
    for call, want in zip(calls, found, strict=True):
        got = files(*call)
        assert all(torch.equal(got[name], want[name]) for name in want), call[0].shape
    teams = {(w.vec, w.across, w.keep, w.rank > 1, w.segments) for w in walks}
    assert len(teams) >= 9 and len({w.wide for w in walks}) >= 4, teams


@pytest.mark.usefixtures("built_quickly")
def test_rows_of_words_whose_codes_are_made_by_two(tmp_path):
    """Values that depend on random words stay for a second reading, beside pairs of codes and codes that take words of their own."""
    text = """
f(x: T[M, N], seed: i64[]) -> (q: f8e4m3[M, N], s: f32[M], z: f8e4m3[M, N])

h = T(x if random[M, N](seed, 1) >= 0.3 else 0)
s = scale[N](h, 448)
q = f8e4m3[saturate](h / s)
z = f8e4m3[stochastic](h / s, random[M, N](seed, 2))
"""
    x, seed = torch.randn(3, 257).bfloat16(), torch.tensor(5)
    out = torch.empty(3, 257, dtype=torch.float8_e4m3fn), torch.empty(3), torch.empty(3, 257, dtype=torch.float8_e4m3fn)
    Emulated(text, tmp_path, (x, seed))(x, seed, out=out)
    for got, want in zip(out, kgen.loads(text)(x, seed, target="cpp")):
        assert torch.equal(got.float(), want.float())


def test_rows_of_several_dims_whatever_their_operands_lie_like(tmp_path):
    """Each group's channels in one piece of memory or apart; one scale a channel; and shifts that begin within a vector, or stand still along
    the channels.  The bits are those of groups that move element by element, where terms are added exactly."""
    text = """f(x: f32[M, C, S], w: f32[C], b: f32[C, S], d: f32[S]) -> (y: f32[M, C, S], m: f32[M])

m = sum[C, S](x)
y = (x - m) * w + b + d
"""
    given = []
    for m, c, s in ((3, 5, 16), (2, 3, 600), (1, 1, 8), (2, 70, 4), (0, 3, 8), (2, 3, 7)):
        x, w, b, d = integers(m, c, s), integers(c), integers(c, s), integers(s)
        apart = torch.zeros(m, c, s + 8)[..., :s].copy_(x)
        within = torch.zeros(c * s + 1)[1:].view(c, s).copy_(b)
        layouts = ((x, w, b, d), (apart, w, b, d), (x, w, within, d), (x, w.expand(c), b, d[:1].expand(s)))
        given += layouts[: {16: 4, 600: 2}.get(s, 1)]
    kernel = Emulated(text, tmp_path, *given)
    for x, w, b, d in given:
        found, total = kernel(x, w, b, d), x.sum((1, 2))
        same(found["m"], total)
        same(found["y"], (x - total[:, None, None]) * w[:, None] + b + d)


CENTRED = "centred(x: T[M, N]) -> y: T[M, N]\n\nc = x - mean[M](x)\ny = c * rsqrt(mean[M](c^2) + 1e-5)\n"


def test_blocks_share_long_rows_that_lie_side_by_side(tmp_path) -> None:
    """A column's mean and squares, of 8 elements a thread at a time, and of fewer behind the last of these; as alone."""
    torch.manual_seed(4)
    x = (torch.randn(8209, 34) * 2 + 5).bfloat16()
    x[70, 3] = math.nan
    emulated = Emulated(CENTRED, tmp_path, (x,), (x[:, :1],))
    assert all("true, 8, 1, false" in expression for expression in emulated.expressions)
    assert any(expression.endswith("unsigned, 1, 0, 1>>") for expression in emulated.expressions), "taken in the order of whole vectors"
    y, c = emulated(x)["y"], x.double() - x.double().mean(0)
    want, there = c * (c.square().mean(0) + 1e-5).rsqrt(), torch.arange(34) != 3
    assert ((y.double() - want).abs() <= 2.0**-8 * want.abs() + 2.0**-16)[:, there].all() and y[:, 3].isnan().all()
    assert torch.equal(emulated(x[:, :1])["y"], y[:, :1])


def test_a_cluster_shares_rows_that_lie_side_by_side(tmp_path, monkeypatch) -> None:
    """Columns that blocks hold in shared memory, of which each tells its part of every one: what is in one column stays there."""
    plan = rows.plan

    def alone(*asked):
        """The plan of an sm_90, with a cluster of one block, as emulation has it."""
        found = plan(*asked[:7], limits("sm_90"), *asked[8:])
        ((walk, grid),), many = found.steps, found.segments
        assert walk.cluster and walk.across and many > 1
        one = walk._replace(vectors=walk.vectors * many)
        return replace(found, steps=((one, grid // many),), span=found.n, segments=1, shared=found.shared * many)

    monkeypatch.setitem(launches.RULES, (True, True), (launches.Rule(launches.ANY, 256, 32, 4, 2, "cluster"),))
    monkeypatch.setattr(rows, "cached", alone)
    torch.manual_seed(3)
    calls = [(torch.randn(m, n) * 2 + 5,) for m, n in ((200, 40), (385, 8), (256, 13))]
    emulated = Emulated(CENTRED, tmp_path, *calls)
    for (x,) in calls:
        x[7, 1] = math.nan
        (want,) = Analysis(emulated.kernel, {"x": x}, "cuda").results()
        got = emulated(x)["y"].double()
        assert bool((((got - want.exact).abs() <= want.bound) | (got.isnan() & want.exact.isnan())).all()), x.shape
        assert got.isnan().any(0).tolist() == [k == 1 for k in range(x.shape[1])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_by_a_number_of_the_call(tmp_path, dtype: torch.dtype) -> None:
    """Whatever the number: a square is a product, of the same special values."""
    text = "f(x: T[N], p: float) -> y: T[N]\n\ny = x^p\n"
    special = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1.0, -1.0, 1e-30, -1e30, 1e-45, -3e38]
    x = torch.tensor([*special, *torch.linspace(-7, 7, 53).tolist()], dtype=dtype)
    kernel, checked = Emulated(text, tmp_path, (x, 2.0)), kgen.loads(text).kernel
    for p in (2.0, -2.0, 2.5, 3.0, 1.0, 0.0, 0.5, -0.5, float("nan"), float("inf"), 1e-3):
        (want,) = Analysis(checked, {"x": x, "p": p}, "cuda").results()
        got = kernel(x, p)["y"].double()
        same = (got == want.exact) | (got.isnan() & want.exact.isnan())
        assert bool((same | ((got - want.exact).abs() <= want.bound)).all()), p
        assert torch.equal(got.signbit() & (got == 0), torch.pow(x, torch.full_like(x, p)).signbit() & (got == 0)), p
