"""Sums about a row's maximum, made while it rises: what `online.py` makes of a program, and what the kernels compute, run on the CPU."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import pipeline  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.expand import expand  # noqa: E402
from kgen.lower import lower  # noqa: E402
from kgen.monoids import RIDERS, Rides  # noqa: E402
from kgen.online import online  # noqa: E402
from kgen.rewrite import rewrite  # noqa: E402
from kgen.runtime import rows, tuned  # noqa: E402
from kgen.spared import spared  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

INF = float("inf")
SUMS = """f(x: f32[..., N]) -> (e: f32[...], z: f32[...], l: f32[...], y: f32[..., N])

m = max[N](x)
e = sum[N](exp(x - m))
z = sum[N](x - m)
l = logsumexp[N](x)
y = exp(x - m) / e
"""


def operators(equations: str, head: str = "f(x: f32[M, N]) -> y: f32[M]") -> list[str]:
    kernel = kgen.loads(f"{head}\n{equations}").kernel
    program = online(expand(rewrite(lower(kernel, kernel.bindings()[0]))))
    return sorted(let.expr.name for let in program.lets)


def riders(equations: str, *head: str) -> list[str]:
    return [name for name in operators(equations, *head) if name in RIDERS]


def test_a_sum_about_the_maximum_where_it_is_finite_is_not_made_good():
    """It is what the formula says already; about the maximum itself, an infinite one needs a factor."""
    assert "exp" not in operators("y = logsumexp[N](x)") and "exp" in operators("y = sum[N](exp(x - max[N](x)))")


@pytest.mark.parametrize("equations, want", [
    ("y = sum[N](exp(x - max[N](x)))", ["expsum"]),
    ("y = logsumexp[N](x)", ["expsum"]),
    ("y = mean[N](x - max[N](x))", ["offsum"]),
    ("y = sum[N](exp(x - max[N](x))) + sum[N](x - max[N](x))", ["expsum", "offsum"]),
    ("y = sum[N](exp(x - min[N](x)))", []),
    ("y = sum[N](exp(2 * x - max[N](x)))", []),  # the maximum of another value
    ("y = sum[N](exp(max[N](x) - x))", []),
    ("y = sum[N](exp(x - 2 * max[N](x)))", []),
    ("y = sum[N](exp(x - max[N](x)) * x)", ["expdot"]),
    ("y = sum[N](x * exp(x - max[N](x)) * index[N])", ["expdot"]),
    ("y = sum[N](exp(x - max[N](x)) * (x - max[N](x)))", ["expoff"]),
    ("z = x - max[N](x)\ny = log(sum[N](exp(z))) - sum[N](exp(z) * z) / sum[N](exp(z))", ["expoff", "expsum"]),
    ("e = exp(x - max[N](x))\ny = sum[N](e * x) + sum[N](e * sqrt(x)) / sum[N](e)", ["expdot", "expdot", "expsum"]),
    ("e = exp(x - max[N](x))\ny = sum[N](e * e)", []),  # a weight that needs the maximum
    ("e = exp(x - max[N](x))\ny = sum[N](e * (x - sum[N](x)))", []),  # or another reading
    ("z = x - max[N](x)\ny = sum[N](exp(z) * z * z)", []),
    ("z = x - max[N](x)\ny = sum[N](exp(z) * z * x)", []),
])  # fmt: skip
def test_what_rides_on_a_maximum(equations, want):
    assert riders(equations) == want


def test_over_other_dims_nothing_rides():
    assert riders("y = sum[N](exp(x - max[M, N](x)))") == []
    assert riders("y = sum[M, N](exp(x - max[M, N](x)))", "f(x: f32[M, N]) -> y: f32[]") == ["expsum"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_rows_of_all_kinds_agree_with_the_formula(tmp_path, monkeypatch):
    """A few lanes to several launches, and the teams that were measured for sm_90; rows that rise, fall, are offset, hold infinities or NaN."""
    torch.manual_seed(0)
    monkeypatch.setattr(tuned, "ladder", lambda arch, *kind: tuned.SHIPPED["sm_90"][tuned.kind(*kind)])
    rows.cached.cache_clear()
    shapes = [(9, 5), (3, 33), (37, 401), (3, 1000), (2, 2048), (2, 20000), (600, 300), (40, 70)]
    given = [torch.randn(shape) * 4 for shape in shapes]
    given[-1] = given[-1].T
    given.append(torch.randn(3, 1002)[:, 1:])
    kernel = Emulated(SUMS, tmp_path, *((x,) for x in given))
    for x in given:
        x[0] = x[0].sort().values
        x[1] = x[1].sort(descending=True).values + 1e4
        for special in (None, INF, -INF, float("nan")):
            if special is not None:
                x[2:, ::3] = special
                x[-1] = special
            results = kernel(x)
            e, z, l, y = (results[name] for name in "ezly")
            d = x.double()
            m = d.amax(-1, keepdim=True)
            n = x.shape[-1]
            # each term passes log2(n) + some ten roundings and factors; an offset of 1e4 leaves x - m exact
            room = (2.0**-23) * (40 + 2 * n**0.5)
            for got, want, scale in (
                (e, (d - m).exp().sum(-1), 1.0), (l, d.logsumexp(-1), 1.0), (y, (d - m).exp() / (d - m).exp().sum(-1, keepdim=True), 1.0),
                (z, (d - m).sum(-1), n),
            ):  # fmt: skip
                assert torch.allclose(got.double(), want, rtol=room, atol=room * scale, equal_nan=True), (x.shape, special)
    rows.cached.cache_clear()


PICKED = "f(x: f32[M, N, C]) -> (m: f32[M, N, C], y: f32[M, N, C])\n\nm = x - logsumexp[N](x)\ny = pick[C](m, argmin[C](x * m)) * x\n"


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_what_is_made_of_a_rider_is_gathered_from(tmp_path):
    """Picking takes from memory: the sum that a factor brings back from what rode is kept there."""
    torch.manual_seed(0)
    given = [torch.randn(shape) for shape in ((2, 7, 5), (3, 33, 4))]
    kernel = Emulated(PICKED, tmp_path, *((x,) for x in given))
    for x in given:
        results = kernel(x)
        d = x.double()
        m = d - d.logsumexp(1, keepdim=True)
        torch.testing.assert_close(results["m"].double(), m, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(results["y"].double(), m.gather(2, (d * m).argmin(2, keepdim=True)) * d, rtol=1e-6, atol=1e-5)


WEIGHTED = """f(x: f32[..., N], v: f32[..., N], w: f32[N]) -> (a: f32[...], b: f32[...], h: f32[...], q: f32[...], c: f32[...])

m = max[N](x)
e = exp(x - m)
s = sum[N](e)
a = sum[N](e * v) / s
b = sum[N](v * e * (w + 1))
h = log(s) - sum[N](e * (x - m)) / s
k = m if isfinite(m) else 0
q = sum[N](v * exp(x - k))
c = sum[N](exp(x - k) * (x - k))
"""


def test_sums_of_weighted_exponentials_take_one_reading():
    kernel = kgen.loads(WEIGHTED).kernel
    (one,), (two,) = (pipeline.plan(kernel, kernel.bindings()[0], rides).passes for rides in (Rides.EVERY, Rides.NONE))
    assert (one.readings, two.readings) == (1, 2)
    assert sorted({r.expr.name for phase in one.phases for r in phase.reductions}) == ["expdot", "expoff", "expsum", "max"]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_weighted_sums_stay_within_their_bounds(tmp_path):
    """Rows of all lengths, that rise, fall and are offset; weights of all sizes; infinities and NaN in either."""
    torch.manual_seed(0)
    shapes = [(6, 1), (9, 5), (4, 33), (3, 20000), (40, 70)]
    given = [(torch.randn(s) * 6, torch.randn(s), torch.randn(s[-1])) for s in shapes]
    given[-1] = tuple(t.T.contiguous().T if t.dim() > 1 else t for t in given[-1])
    kernel = Emulated(WEIGHTED, tmp_path, *given, (torch.empty(3, 0), torch.empty(3, 0), torch.empty(0)))
    for x, v, w in given:
        x[0] = x[0].sort().values
        x[1] = x[1].sort(descending=True).values + 1e4
        v[2] *= 10.0 ** torch.randint(-30, 30, v[2].shape)
        for special in (None, INF, -INF, float("nan")):
            for into in (x, v) if special is not None else (x,):
                mine = [t.clone() for t in (x, v, w)]
                if special is not None:
                    place = mine[0 if into is x else 1]
                    place[2:, ::3] = special
                    place[-1] = special
                results = kernel(*mine)
                again = kernel(*mine)
                wanted = Analysis(kernel.kernel, dict(zip("xvw", mine, strict=True)), "cuda").results()
                for r, want in zip(kernel.kernel.results, wanted, strict=True):
                    got = results[r.name].double()
                    assert torch.equal(results[r.name].nan_to_num(7.25), again[r.name].nan_to_num(7.25))
                    alike = (got == want.exact) | (got.isnan() & want.exact.isnan()) | ((got - want.exact).abs() <= want.bound)
                    unknown = ~want.bound.isfinite()
                    assert bool((alike | unknown).all()), (r.name, x.shape, special, into is x, got, want)
                    if special is None:
                        assert not unknown[:2].any(), (r.name, x.shape)


SPREAD = """f(x: f32[..., N], w: f32[N]) -> (s: f32[...], q: f32[...], y: f32[..., N])

mu = mean[N](x)
s = mean[N]((x - mu)^2)
c = x * w - mean[N](x * w)
q = sum[N](c^2)
y = (x - mu) / sqrt(s + 1e-5) * w
"""


def test_a_mean_and_its_squares_take_one_reading_of_a_row_that_does_not_stay():
    """Of layernorm: two readings that reduce and one that stores, or one and one."""
    for name, readings in (("layernorm", (3, 2)), ("variance", (2, 1)), ("rmsnorm", (2, 2)), ("softmax", (2, 2))):
        kernel = kgen.load(name).kernel
        (p,) = pipeline.plan(kernel, kernel.bindings()[0], Rides.EVERY).passes
        assert (p.readings, p.long_readings) == readings, name
        layout = backend("cuda").layout(kernel)[0]
        assert layout.long + layout.stores == p.long_readings and layout.reductions + layout.stores == p.readings
        (p,) = pipeline.plan(kernel, kernel.bindings()[0], Rides.NONE).passes
        assert not p.long


@pytest.mark.parametrize("equations, saved", [
    ("y = sum[N]((x - mean[N](x))^2)", True),
    ("y = sum[N]((x - sum[N](x) / N)^2)", True),
    ("c = x - mean[N](x)\ny = sum[N](c * c) / (N - 1)", True),
    ("y = sum[N]((x - mean[N](2 * x))^2)", False),
    ("y = sum[N]((x - sum[N](x) / M)^2)", False),
    ("y = sum[N]((x - sum[N](x))^2)", False),
    ("y = sum[N]((x - mean[N](x))^3)", False),
    ("c = x - mean[N](x)\ny = sum[N](c^2) + sum[N](abs(c))", False),  # the second reading is needed all the same
])  # fmt: skip
def test_which_squares_are_summed_with_their_mean(equations, saved):
    kernel = kgen.loads(f"f(x: f32[M, N]) -> y: f32[M]\n{equations}").kernel
    p = pipeline.plan(kernel, kernel.bindings()[0], Rides.EVERY).passes[0]
    assert (p.long_readings < p.readings) == saved


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_squares_about_a_mean_stay_within_their_bound(tmp_path):
    """Rows of all lengths and layouts, of equal elements, far from 0, with infinities and NaN."""
    torch.manual_seed(0)
    shapes = [(6, 1), (9, 5), (4, 33), (3, 2048), (3, 20000), (3, 40001), (40, 70), (550, 40)]
    given = [(torch.randn(s) * 3, torch.randn(s[-1])) for s in shapes]
    given[-2:] = [(x.T.contiguous().T, w) for x, w in given[-2:]]
    kernel = Emulated(SPREAD, tmp_path, *given, (torch.empty(3, 0), torch.empty(0)))
    for x, w in given:
        x[0] = x[0].sort().values
        x[1] = x[1] + 1e4
        x[2] = 0.1
        for special in (None, INF, float("nan")):
            if special is not None:
                x[2, ::3] = special
            results = kernel(x, w)
            again = kernel(x, w) if special is None else results
            wanted = Analysis(kernel.kernel, {"x": x, "w": w}, "cuda").results()
            for r, want in zip(kernel.kernel.results, wanted, strict=True):
                got = results[r.name].double()
                assert torch.equal(results[r.name].nan_to_num(7.25), again[r.name].nan_to_num(7.25))
                alike = (got == want.exact) | (got.isnan() & want.exact.isnan()) | ((got - want.exact).abs() <= want.bound)
                assert bool((alike | ~want.bound.isfinite()).all()), (r.name, x.shape, special, got, want)
                if special is None:
                    assert bool(want.bound.isfinite().all()), (r.name, x.shape)
    empty = kernel(torch.empty(3, 0), torch.empty(0))
    assert empty["s"].isnan().all() and (empty["q"] == 0).all()


SPARING = """f(x: T[..., N], t: i64[...], a: float = 0.0) -> (y: T32[...], own: T32[...])

m = max[N](x)
s = log(sum[N](exp(x - m)))
y = s - a * mean[N](x - m) if a != 0 else s + m
own = sum[N](x if index[N] == t else 0.0)
"""


def test_what_a_call_may_do_without() -> None:
    """What is read in one branch of a choice that a number makes, and nowhere else."""
    kernel = kgen.loads(
        "f(x: f32[M, N], a: float, k: int) -> (y: f32[M], z: f32[M])\n\ns = sum[N](x)\nq = sum[N](x * x)\np = max[N](x)\nr = min[N](x)\n"
        "y = s + q if a != 0 else p\nz = s * r if k == 0 else p + r\n"
    ).kernel
    plan = pipeline.plan(kernel, kernel.bindings()[0])
    (p,) = plan.passes
    numbers = {s.let.name for s in p.scalars}
    found = spared(p.lets, [s.ref for s in p.stores], numbers)
    told = {let.label: found.get(let.name) for let in p.lets if let.label in "sqpr"}
    of = {let.name: let.expr.operands[0].name for let in p.lets if let.expr.name == "where"}
    assert told["s"] is None and told["r"] is None and told["p"] is None and told["q"] == (next(iter(of.values())), True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_sums_that_are_not_read_and_maxima_by_pairs(tmp_path, dtype: str) -> None:
    """Of 16 bits maxima are of two at a time: of zeros of both signs, infinities and NaN as well; and sums that a number says are not
    read are left out. A place is compared also with numbers that no place has."""
    torch.manual_seed(0)
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    given = [(torch.randn(shape) * 4).to(kind) for shape in ((5, 40), (4, 1000), (3, 4096), (2, 5003))]
    places = [torch.tensor(([0, 3, -1, 2**32 + 3, 39] * 2)[: len(x)]) for x in given]
    kernel, checked = Emulated(SPARING, tmp_path, *zip(given, places, strict=True)), kgen.loads(SPARING).kernel
    for x, t in zip(given, places, strict=True):
        for special in (None, 0.0, -0.0, INF, -INF, float("nan")):
            if special is not None:
                x[-1] = -0.0
                x[-1, 1::7] = special
            for a in (0.0, 0.5):
                want, own = Analysis(checked, {"x": x, "t": t, "a": a}, "cuda").results()
                made = kernel(x, t, a)
                for r, found in (("y", want), ("own", own)):
                    got, exact = made[r].double(), found.exact.expand(len(x))
                    same = (got == exact) | (got.isnan() & exact.isnan())
                    assert bool((same | ((got - exact).abs() <= found.bound)).all()), (r, x.shape, special, a)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_maxima_by_pairs_of_rows_that_stay(tmp_path) -> None:
    """In registers and in shared memory, in whole vectors and not, with edges: as torch has it in float64, to a bit of bf16."""
    torch.manual_seed(0)
    text = "f(x: T[..., N]) -> y: T[..., N]\n\ny = softmax[N](x)\n"
    given = [(torch.randn(shape) * 4).bfloat16() for shape in ((3, 4096), (2, 3000), (2, 20000), (3, 2051))]
    kernel = Emulated(text, tmp_path, *((x,) for x in given))
    for x in given:
        for special in (None, -INF, INF, float("nan")):
            if special is not None:
                x[-1, 5::11] = special
            got, want = kernel(x)["y"].double(), x.double().softmax(-1)
            assert torch.allclose(got, want, rtol=2.0**-7, atol=1e-30, equal_nan=True), (x.shape, special)
