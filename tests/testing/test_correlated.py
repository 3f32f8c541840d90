"""Bounds that count an error once that reaches a result along several ways: they hold, they are no wider, and they catch more."""

from __future__ import annotations

from typing import Any

import mpmath
import pytest
import torch

import kgen
from kgen.runtime.evaluate import Evaluator
from kgen.testing.bounds import Analysis, Bounded, row_scale
from kgen.testing.correlated import Correlated

VARIANCE = "f(x: f32[..., N]) -> v: f32[...]\nm = mean[N](x)\nv = mean[N]((x - m)^2)"
#: Of each operator that has a rule, an error that reaches it twice: of the mean, and of what is made of it.
RULES = {
    "add": "s + (x - s)", "neg": "s - -x * s", "mul": "s * (x - s)", "div": "(x - s) / (1.5 + s)", "square": "(x - s)^2 + s", "exp": "exp(s) * exp(x - s)",
    "expm1": "expm1(s) - expm1(x - s)", "log": "log(2 + s) + log(2 + x^2 - s)", "log1p": "log1p(s^2) - s", "sqrt": "sqrt(2 + s) - s", "rsqrt": "x * rsqrt(2 + s) - s",
    "tanh": "tanh(x - s) + s", "sigmoid": "sigmoid(x - s) - s", "erf": "erf(x - s) + erfc(s)", "abs": "abs(x - s) + s", "relu": "relu(x - s) + s",
    "where": "(x - s if x > 0 else s - x) + s", "other": "sin(x - s) + max(x, s)",
}  # fmt: skip


def both(text: str, **given: Any) -> tuple[Bounded, Bounded, Any]:
    """A formula's bounds, apart and correlated, and its value in the dtype computed in."""
    kernel = kgen.loads(text).kernel
    (apart,), (together,) = Analysis(kernel, given, "cpp").results(), Correlated(kernel, given, "cpp").results()
    return apart, together, Evaluator(kernel, given).run()[0].double()


@pytest.mark.parametrize("rule", RULES)
def test_the_bound_holds_and_is_no_wider(rule: str) -> None:
    for seed, scale in enumerate((1e-3, 0.3, 1.0, 30.0)):
        x = torch.randn(64, 33, generator=torch.Generator().manual_seed(seed)) * scale
        for part in ("", "[N]"):  # the error shared by a row, and by one element
            s = "mean[N](x)" if part else "sin(x)"
            apart, together, y = both(f"f(x: f32[..., N]) -> y: f32[..., N]\ns = {s}\ny = {RULES[rule]}", x=x)
            assert torch.equal(torch.isfinite(apart.bound), torch.isfinite(together.bound))
            known = torch.isfinite(apart.bound) & torch.isfinite(apart.exact)
            assert bool((together.bound <= apart.bound * (1 + 1e-9))[known].all())
            assert bool(((y - together.exact).abs() <= together.bound)[known].all())


@pytest.mark.parametrize("offset", [0.0, 100.0, 1e4])
def test_the_error_of_a_mean_does_not_count_in_a_variance(offset: float) -> None:
    x = (torch.randn(20, 257, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + offset).float()
    apart, together, v = both(VARIANCE, x=x)
    assert bool(((v - together.exact).abs() <= together.bound).all())
    assert float((together.bound / together.exact).max()) < 2.0**-16 + (offset * 2.0**-17) ** 2  # the mean's error comes in squared
    if offset:
        assert float((apart.bound / together.bound).min()) > 20


def test_a_variance_as_a_difference_of_moments_is_caught_at_an_offset() -> None:
    x = torch.randn(20, 257, generator=torch.Generator().manual_seed(1)) + 100
    apart, together, _ = both(VARIANCE, x=x)
    wrong = (x * x).mean(-1).double() - x.mean(-1).double() ** 2
    assert bool(((wrong - together.exact).abs() > together.bound).all()) and bool(((wrong - apart.exact).abs() <= apart.bound).any())


@pytest.mark.parametrize("formula", ["0.5 / exp(s)", "rsqrt(exp(s))"])
def test_a_slope_too_small_for_float64_meets_an_error_as_large(formula: str) -> None:
    """Of values near 1e-226: a quotient's slope by a divisor of 1e225 is 1e-451, and that one's error 1e212."""
    x = torch.linspace(500, 520, 200, dtype=torch.float64) * 1.0000001
    apart, together, y = both(f"f(x: f64[N]) -> y: f64[N]\ns = x * 3 / 3\ny = {formula}", x=x)
    with mpmath.workdps(60):
        exact = [eval(formula, {"exp": mpmath.exp, "rsqrt": lambda v: 1 / mpmath.sqrt(v), "s": mpmath.mpf(v)}) for v in x.tolist()]
        errors = torch.tensor([float(abs(mpmath.mpf(got) - want)) for got, want in zip(y.tolist(), exact)], dtype=torch.float64)
    assert bool((errors <= together.bound).all()) and bool((together.bound <= apart.bound).all())


def test_the_rounding_of_a_product_is_never_shared() -> None:
    """It may be fused with one sum, and rounded on its way to another."""
    x = torch.randn(50)
    _, together, _ = both("f(x: f32[N]) -> y: f32[N]\nt = x * 1.1\ny = (t + 1) - (t - 1)", x=x)
    assert bool((together.bound >= 2.0**-24 * (x * 1.1).abs()).all())


@pytest.mark.parametrize("name", ["layernorm", "softmax", "variance", "l2_normalize", "jsd"])
def test_plain_gradients_have_bounds_below_a_ten_thousandth_of_the_row(name: str) -> None:
    from kgen.grad import backward
    from kgen.testing.cases import plain

    kernel = backward(kgen.load(name).kernel, save=False).kernel
    given = plain(kernel, "f32", positive=name == "jsd")
    for found, y in zip(Correlated(kernel, given, "cpp").results(), Evaluator(kernel, given).run(), strict=True):
        assert bool(((y.double() - found.exact).abs() <= found.bound).all())
        assert float((found.bound / row_scale(found.exact, found.dtype)).max()) < 3e-4


@pytest.mark.parametrize("kind", [Analysis, Correlated])
def test_an_unsigned_number_of_64_bits_is_as_large_as_it_is(kind: type[Analysis]) -> None:
    """Fuzzing: times a u64 of 2^63 or more an error grows by that number, not by the one that its bits are as an i64."""
    kernel = kgen.loads("f(x: f32[N], g: u64[N]) -> y: f64[N]\ny = log(x) * g")
    g = torch.tensor([2**63 - 2**20, 2**63 + 2**20, 2**64 - 2**12], dtype=torch.uint64)
    (found,) = kind(kernel.kernel, {"x": torch.full((3,), 0.7), "g": g}, "cpp").results()
    alike = found.bound / found.exact.abs()
    assert bool((alike > 2.0**-24).all()) and bool((alike < 2.0**-20).all())
