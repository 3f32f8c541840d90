"""The bounds of reductions hold for every order that the contract allows, and are infinite only where nothing can be said."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import kgen
from kgen import grad, pipeline
from kgen.monoids import RIDERS, Rides
from kgen.ops import tree_depth
from kgen.passes import Reduce
from kgen.testing import checks
from kgen.testing.bounds import Analysis, Bounded, sums_about, ulp
from tests.conftest import ROOT
from tests.programs import PROGRAMS
from tests.specs.cases import cases, load, random

INF, NAN = math.inf, math.nan
U = 2.0**-24


def analysed(text: str, **arguments: Any) -> Bounded:
    return Analysis(kgen.loads(text).kernel, arguments, "cpp").results()[0]


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def over(kind: str, x: torch.Tensor, inside: str = "x", stored: str = "f64", param: str = "f32") -> Bounded:
    """A reduction of f32 rows, its result stored as f64 so that the bound is the reduction's own (the store adds 2^-53)."""
    return analysed(f"f(x: {param}[R, N]) -> y: {stored}[R]\ny = {kind}[N]({inside})", x=x)


# ---------------------------------------------------------------------- depth


def test_the_depth_is_that_of_a_loop_then_of_a_tree() -> None:
    assert [tree_depth(n) for n in (0, 1, 2, 3, 65, 66, 70, 72)] == [0, 0, 1, 2, 64, 65, 69, 71]
    assert tree_depth(73) == 64 + 7 and tree_depth(1024) == 74 and tree_depth(1025) == 75 and tree_depth(2**20) == 84


# ---------------------------------------------------------------------- orders that the contract allows


def summed(x: torch.Tensor, ways: int, multiply: bool = False) -> torch.Tensor:
    """Rows of f32 folded as a skeleton might: strided partials one after the other, then a tree of the partials."""
    width = -(-x.shape[-1] // ways)
    x = torch.nn.functional.pad(x, (0, width * ways - x.shape[-1]), value=1.0 if multiply else 0.0)
    x = x.reshape(*x.shape[:-1], ways, width)
    total = x[..., 0, :]
    for k in range(1, ways):
        total = total * x[..., k, :] if multiply else total + x[..., k, :]
    while total.shape[-1] > 1:
        if total.shape[-1] % 2:
            total = torch.nn.functional.pad(total, (0, 1), value=1.0 if multiply else 0.0)
        half = total.shape[-1] // 2
        total = total[..., :half] * total[..., half:] if multiply else total[..., :half] + total[..., half:]
    return total[..., 0]


@pytest.mark.parametrize("ways", [1, 4, 64])
@pytest.mark.parametrize("n", [2, 3, 33, 128, 1025])
def test_sums_means_and_products_in_any_allowed_order_stay_within_the_bound(n: int, ways: int) -> None:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(40, n, generator=generator)
    x[1] = x[1].abs()
    x[2] = 0.1
    x[3, : n // 2] *= 1e8
    x[4] = 1 + x[4] * 1e-3
    x[5] = x[5].sign() * 1e4 + x[5]
    order = torch.randperm(n, generator=generator)
    for shuffled in (x, x[:, order]):
        total = summed(shuffled, ways)
        for kind, y in (("sum", total), ("mean", total / n)):
            want = over(kind, x)
            assert ((y.double() - want.exact).abs() <= want.bound).all()
        near = 1 + shuffled / 64
        want = over("prod", 1 + x / 64)
        y = summed(near, ways, multiply=True)
        assert ((y.double() - want.exact).abs() <= want.bound)[want.bound.isfinite()].all() and want.bound[4].isfinite()


def test_the_bound_of_a_sum_is_reached_within_a_factor() -> None:
    """Terms that all round down when added one after the other: the worst that 65 terms can do."""
    x = torch.full((1, 65), 1 + 2.0**-23)
    x[0, 0] = 2.0**12  # each addition loses nearly half an ulp of the total
    x[0, 1:] = 2.0**-12 * (1 - 2.0**-10)
    want = over("sum", x)
    error = (summed(x, 65).double() - want.exact).abs()
    assert 0.9 * want.bound.item() < error.item() <= want.bound.item()


def test_the_bound_of_a_sum_is_its_formula() -> None:
    x = rows([1.0, 2.0, 3.0, -4.0])
    gamma = (1 + U) ** 3 - 1
    assert over("sum", x).bound.item() == pytest.approx(10 * gamma, rel=1e-6)
    assert over("mean", x).bound.item() == pytest.approx(10 * gamma / 4 + 0.5 * U, rel=1e-6)
    carried = over("sum", x, "x * 1.1")  # each term brings the rounding of its product, and that of 1.1
    assert carried.bound.item() == pytest.approx(11 * gamma + 0.5 * float(ulp(x.double() * 1.1, "f32").sum()) + 10 * U, rel=0.05)


def test_an_online_softmax_of_a_long_row_stays_within_the_bound() -> None:
    n = 17_385
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(6, n, generator=generator) * torch.tensor([[0.1], [1.0], [5.0], [20.0], [1.0], [1.0]])
    x[4] = x[4].sort().values  # the maximum rises with every step
    x[5] = x[5].sort(descending=True).values
    text = "f(x: f32[R, N]) -> (y: f32[R, N], s: f64[R])\nm = max[N](x)\ns = f64(sum[N](exp(x - m)))\ny = exp(x - m) / sum[N](exp(x - m))"
    want, total = Analysis(kgen.loads(text).kernel, {"x": x}, "cuda").results()
    chunks = torch.nn.functional.pad(x, (0, -n % 1024), value=-INF).reshape(6, -1, 1024)  # 1024 threads, each a running maximum
    best, partial = chunks[:, 0], torch.ones(6, 1024)
    for k in range(1, chunks.shape[1]):
        new = torch.maximum(best, chunks[:, k])
        partial = partial * torch.exp(best - new) + torch.exp(chunks[:, k] - new)
        best = new
    top = best.amax(-1, keepdim=True)
    s = summed(partial * torch.exp(best - top), 1)
    assert ((s.double() - total.exact).abs() <= total.bound).all()
    y = torch.exp(x - top) / s[:, None]
    assert not checks.compare(y, want, y, checks.Report("online", "cpp"))


ABOUT = """f(x: f32[R, N], v: f32[R, N]) -> (a: f32[R], h: f32[R], s: f32[R])

z = x - max[N](x)
a = sum[N](exp(z) * v)
h = log(sum[N](exp(z))) - sum[N](exp(z) * z) / sum[N](exp(z))
s = mean[N]((x - mean[N](x))^2)
"""


@pytest.mark.parametrize("n", [1, 2, 33, 1000, 70_000])
def test_sums_about_peaks_stay_within_their_bounds_on_cpp(n: int, built_quickly: None) -> None:
    generator = torch.Generator().manual_seed(n)
    x, v = torch.randn(4, n, generator=generator) * 5, torch.randn(4, n, generator=generator)
    x[1] += 1e4
    v[2] *= 1e20
    kernel = kgen.loads(ABOUT)
    for special in (None, INF, -INF, NAN):
        if special is not None:
            x[3, :: 1 + n // 3] = special
        for got, want in zip(kernel(x, v, target="cpp"), Analysis(kernel.kernel, {"x": x, "v": v}, "cpp").results(), strict=True):
            alike = (got == want.exact) | (got.isnan() & want.exact.isnan())
            assert (alike | ((got.double() - want.exact).abs() <= want.bound) | ~want.bound.isfinite()).all(), special


def test_the_bound_knows_every_sum_that_is_made_about_a_peak_that_moves() -> None:
    """What the schedule finds among lets the bound finds among values: in a kernel, its backward and what saves for that."""
    found: set[str] = set()
    for text in (*PROGRAMS.values(), ABOUT, *(p.read_text() for p in sorted((ROOT / "specs").glob("*.k")))):
        first = kgen.loads(text).kernel
        back = grad.backward(first) if grad.differentiable(first) else None
        for kernel in (first, *((back.kernel, back.forward) if back else ())):
            plan = pipeline.plan(kernel, kernel.bindings()[0], Rides.EVERY)
            phases = [f for p in plan.passes if isinstance(p, Reduce) for f in (*p.phases, *p.long)]
            made = {(r.expr.name, r.span) for f in phases for r in f.reductions if r.expr.name in RIDERS}
            known = {(a.row.name, kernel.values[k].span) for k, a in sums_about(kernel).items()}
            assert made <= known, kernel.name
            found |= {name for name, _ in made}
    assert found >= {"expsum", "expdot", "expoff", "sqsum"}


# ---------------------------------------------------------------------- special values


def test_infinities_and_nan_among_the_terms_are_exact() -> None:
    x = rows([INF, 1, 2], [-INF, INF, 1], [NAN, 1, INF], [INF, INF, 1])
    for kind in ("sum", "mean", "prod", "max", "min"):
        assert (over(kind, x).bound < 1e-12).all(), kind  # the store's
        assert (over(kind, x, "x * 1.1").bound < (1e-6 if kind == "min" else 1e-12)).all(), kind


def test_a_sum_that_overflows_in_some_order_has_no_bound() -> None:
    x = rows([3e38, 3e38, -3e38], [3e38, -3e38, 1], [1e38, 1e38, 1e38], [3e38, 3e38, NAN], [3e38, 3e38, INF], [3e38, 3e38, -INF])
    for kind in ("sum", "mean"):
        assert over(kind, x).bound.isfinite().tolist() == [False, True, True, True, False, False], kind
    assert over("sum", x.double(), param="f64").bound.isfinite().all()


def test_a_product_of_which_a_part_overflows_has_no_bound_and_one_that_underflows_an_absolute_one() -> None:
    x = rows([1e30, 1e30, 1e-30], [1e-30, 1e-30, 1.0], [1e-30, 1e-30, 1e30], [0.0, 1e30, 1e30], [0.0, 3.0, 2.0], [INF, 1e-30, 1e-30])
    found = over("prod", x).bound
    assert found.isfinite().tolist() == [False, True, True, False, True, False]
    assert found[1] < 1e-44 and found[2] > 1e-15 and found[4] == 0
    inexact = over("prod", rows([1.0, 3.0, 1e-9]), "x - 1").bound
    assert inexact.item() <= 1e-6  # the exact 0 stays one


def test_a_maximum_moves_as_its_terms_do_and_no_more() -> None:
    x = rows([1.0, 100.0, 3.0], [-1.0, -100.0, -3.0])
    want = over("max", x, "x * 1.1")
    unit = ulp(want.exact, "f32")
    assert (want.bound <= 1.51 * unit).all() and (want.bound > 0).all()
    assert (over("max", x).bound <= 2.0**-46).all()
    want = over("min", x, "x * 1.1")
    assert (want.bound <= 1.51 * ulp(want.exact, "f32")).all()


def test_the_place_of_a_maximum_is_exact_unless_another_term_comes_within_reach() -> None:
    text = "argmax"
    exact = rows([1, 2, 2], [NAN, 1, NAN], [INF, INF, 1], [-INF, -INF, -INF])
    assert over(text, exact, stored="i64").bound.tolist() == [0, 0, 0, 0]
    x = rows([1, 2, 2], [1, 2, 2.0000002], [1, 2, 2.1], [NAN, 1, 1], [INF, 2, 2])
    found = over(text, x, "x * 1.1", "i64")
    assert found.bound.tolist() == [INF, INF, 0, 0, 0] and found.exact.tolist()[2:] == [2, 0, 0]
    assert over("argmin", -x[:3], "x * 1.1", "i64").bound.tolist() == [INF, INF, 0]


def test_any_and_all_are_known_where_a_sure_term_decides() -> None:
    inside = "x / 3 > 0.1"  # 0.3 is a tie that a rounding may tip
    x = rows([0.3, 0.5], [0.3, 0.2], [0.5, 0.5], [0.2, 0.2])
    assert over("any", x, inside, "bool").bound.tolist() == [0, INF, 0, 0]
    assert over("all", x, inside, "bool").bound.tolist() == [INF, 0, 0, 0]
    near = rows([0.3, 0.1], [1.0, 1.0], [0.3, 0.3])
    assert over("all", near, "x - 0.3", "bool").bound.tolist() == [INF, 0, INF]


def test_integers_are_exact_or_unknown() -> None:
    x = rows([1.0, 6.0], [1.0, 7.5])
    assert over("sum", x, "i32(x)", "i64").bound.tolist() == [0, 0]
    assert over("sum", x, "i32(x / 3 * 3)", "i64").bound.tolist() == [INF, INF]
    assert over("max", x + 0.25, "i32(x / 3 * 3)", "i32").bound.tolist() == [0, 0]


def test_pick_has_the_error_of_what_it_picks() -> None:
    text = "f(x: f32[R, N], t: i64[R]) -> y: f64[R]\ny = f64(pick[N](x * 1.1, t))"
    x = rows([1.0, 1000.0], [1.0, 1000.0], [1.0, 1.0])
    want = analysed(text, x=x, t=torch.tensor([0, 1, 7]))
    unit = ulp(torch.tensor([1.1, 1100.0], dtype=torch.float64), "f32")
    assert (want.bound[:2] <= 1.51 * unit).all() and (want.bound[:2] >= 0.4 * unit).all()
    assert want.exact[2].isnan() and want.bound[2] < 1e-12
    jump = "f(x: f32[R, N], s: f32[R]) -> y: f64[R]\ny = f64(pick[N](x, i64(s / 3 * 3)))"
    assert analysed(jump, x=x, s=torch.tensor([1.0, 0.5, 0.5])).bound.isfinite().tolist() == [False, True, True]


def test_what_cannot_be_negative_is_not_taken_for_it() -> None:
    """The variance of equal values is within the mean's rounding of 0; eps keeps its root from 0."""
    text = "f(x: f32[R, N], eps: float) -> y: f32[R, N]\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2) + eps)"
    for value in (0.1, 1e4, -3e7):
        assert analysed(text, x=torch.full((2, 1000), value), eps=1e-5).bound.isfinite().all()
    assert (
        analysed("f(x: f32[R, N]) -> y: f32[R]\ny = sqrt(sum[N]((x - mean[N](x))^2))", x=torch.full((2, 100), 0.1)).bound.isfinite().all()
    )


# ---------------------------------------------------------------------- useful, and in bounded memory

#: The bound of f32 results of rows of 1,024 normal elements, in ulp of the largest result.
USEFUL = {"softmax": 100, "log_softmax": 16, "logsumexp": 24, "layernorm": 128, "rmsnorm": 64, "cross_entropy": 32, "variance": 200, "l2_normalize": 64,
          "mse": 128, "huber": 96, "kl_div": 160, "jsd": 128, "groupnorm": 128, "frobenius": 64, "causal_softmax": 96}  # fmt: skip


@pytest.mark.parametrize("name", USEFUL)
def test_the_bounds_of_the_bundled_specs_are_useful(name: str) -> None:
    case = next(c for c in cases() if c.spec == name)
    want = Analysis(load(name).kernel, case.filled(case.arguments(1024, random(torch.float32, 3))), "cpp").results()[0]
    assert float(want.bound.max() / ulp(want.exact.abs().max(), "f32")) < USEFUL[name]


def test_a_16_bit_softmax_is_within_a_hair_of_half_an_ulp() -> None:
    x = random(torch.bfloat16, 1)(8, 1024)
    want = Analysis(load("softmax").kernel, {"x": x}, "cpp").results()[0]
    assert float((want.bound / ulp(want.exact, "bf16")).max()) < 0.51


def test_a_sum_of_negative_zeros_alone_may_be_either_zero() -> None:
    """It is -0.0, or 0.0 where a target's sum begins with 0: no operator that tells them apart is sure of it."""
    text = "f(x: T[M, N]) -> (y: T[M], z: T[M], same: bool[M])\n\ny = copysign(2, sum[N](x))\nz = copysign(2, mean[N](x))\n"
    kernel = kgen.loads(text + "same = sum[N](x) == 3\n").kernel
    for n in (1, 4):
        x = torch.tensor([[-0.0] * n, [-0.0] * (n - 1) + [1.0]])
        y, z, same = Analysis(kernel, {"x": x}, "cpp").results()
        for r in (y, z):
            assert r.exact.abs().tolist() == [2, 2] and r.bound[0] > 4 and r.bound[1] < 1e-6
        assert same.bound.tolist() == [0, 0]


@pytest.mark.slow
def test_rows_of_a_million_are_analysed_in_little_memory() -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    given = {"x": torch.randn(4, 2**20), "w": torch.randn(2**20), "b": torch.randn(2**20), "eps": 1e-5}
    assert Analysis(load("layernorm").kernel, given, "cpp").results()[0].bound.isfinite().all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1_500_000  # KiB; one value of 2^22 elements is 32 MiB
