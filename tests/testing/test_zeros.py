"""Which zero a maximum, a minimum or a clamp of zeros of both signs is, nobody says: what tells one zero from the other has no bound
there, and everything else has the bound that it had."""

from __future__ import annotations

from typing import Any

import pytest

from kgen import syntax
from kgen.check import check

torch = pytest.importorskip("torch", reason="torch is not installed")

#: Values that are 0 of either sign in the first row of x, and surely of one sign, or no zero, in the other rows.
EITHER = {
    "max[N](x)": [[-0.0, 0.0, -3.0], [-0.0, -0.0, -3.0], [0.0, 0.0, -3.0], [-0.0, 0.0, 3.0]],
    "min[N](x * 0)": [[-2.0, 2.0, 3.0], [-2.0, -2.0, -3.0], [2.0, 2.0, 3.0], [2.0, 2.0, 0.0]],
    "max[N](clamp(x, 0, 2))": [[-0.0, -3.0, -3.0], [0.0, 0.0, 0.0], [-3.0, 0.0, -3.0], [-0.0, 1.0, -3.0]],
    "min[N](max(x, 0))": [[-0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [-1.0, 1.0, 2.0], [1.0, 2.0, 3.0]],
    "sum[N](x)": [[-0.0, -0.0, -0.0], [-0.0, 0.0, -0.0], [0.0, 0.0, 0.0], [1.0, -0.0, -0.0]],
    "sum[N](min(x, -0.0))": [[0.0, -0.0, -0.0], [-1.0, 0.0, -0.0], [-1.0, 1.0, 1.0], [-1.0, -2.0, -3.0]],
    "prod[N](clamp(x, -2, 0))": [[-0.0, -1.0, -3.0], [0.0, -1.0, -1.0], [1.0, -2.0, -2.0], [-1.0, -2.0, -3.0]],
    "-pick[N](min(x, 0), sum[N](i64(x * 0)))": [[-0.0, 1.0, 1.0], [0.0, -0.0, -0.0], [3.0, -0.0, -0.0], [-3.0, -0.0, -0.0]],
    "-0.0 - max[N](x)": [[-0.0, 0.0, -1.0], [-1.0, -2.0, -1.0], [1.0, 2.0, 1.0], [-3.0, -2.0, 1.5]],
}
TELLING = ("1 / z", "-2.5 // z", "z^-1", "atan2(z, -1)", "copysign(2, z)", "signbit(z)", "rsqrt(z)", "1 / (f16(z) * 3)",
           "2.0 if signbit(-z) else 4.0", "1 / (z if z >= 0 else 5)", "sum[M](1 / z)")  # fmt: skip
BLIND = ("z", "z + 1", "exp(z)", "z == 0", "z > 0", "z^2", "z^-2", "log(z)", "1 / abs(z)", "1 / (z + 0.0)", "1 / z^2", "sqrt(z)", "i32(z)", "z * 3",
         "cos(z)", "argmax[M](z)", "copysign(z, 2)", "any[M](z)")  # fmt: skip


def bounded(text: str, **given: Any) -> Any:
    from kgen.testing.bounds import Analysis

    return Analysis(check(syntax.parse(text, "x")), given, "cpp").results()[0]


def rows(value: str, formula: str) -> str:
    """A kernel of a value `z` of each row and of a formula of it, or of all rows."""
    kind = "bool" if any(s in formula for s in ("signbit(z)", "==", ">", "any")) and " if " not in formula else "f32"
    kind = "i64" if "argmax" in formula else "i32" if "i32" in formula else kind
    over = "1" if "[M]" in formula else "M"
    return f"f(x: f32[M, N]) -> y: {kind}[{'' if over == '1' else 'M'}]\n\nz = {value}\ny = {formula}\n"


@pytest.mark.parametrize("value", EITHER)
@pytest.mark.parametrize("formula", TELLING)
def test_what_tells_one_zero_from_the_other_has_no_bound_there_and_has_one_elsewhere(value: str, formula: str) -> None:
    x = torch.tensor(EITHER[value])
    for k, row in enumerate(x):
        found = bounded(rows(value, formula), x=row[None])
        wide = not bool((found.bound < 1).all())
        assert wide == (k == 0), (k, found)


@pytest.mark.parametrize("value", EITHER)
@pytest.mark.parametrize("formula", BLIND)
def test_what_does_not_has_the_bound_that_it_had(value: str, formula: str) -> None:
    x = torch.tensor(EITHER[value])[:1]
    found = bounded(rows(value, formula), x=x)
    assert bool((found.bound < 1e-5).all()), found


def test_an_error_that_comes_of_a_sign_alone_is_counted_behind_it_too() -> None:
    from kgen.testing.correlated import Correlated

    kernel = check(syntax.parse("f(x: f32[N]) -> y: f32[]\n\nz = copysign(2, max[N](x))\ny = z + z * 0.5 - z\n", "x"))
    (found,) = Correlated(kernel, {"x": torch.tensor([0.0, -0.0])}, "cpp").results()
    assert float(found.bound) >= 2


def test_a_product_with_0_has_the_sign_of_what_may_have_either() -> None:
    """Fuzzing: silu(x) - x is 0 in f32 where it is exactly a number below 0; times a 0 it is a zero of either sign, which signbit tells."""
    from kgen.testing.bounds import Analysis

    kernel = check(syntax.parse("f(x: f32[N], w: f32[N]) -> y: f32[N]\ny = 1.0 if signbit((silu(x) - x) * w) else 2.0", "t"))
    x, w = torch.tensor([30.0, 30.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    (found,) = Analysis(kernel, {"x": x, "w": w}, "cpp").results()
    assert bool((found.bound[0] >= 1) & torch.isfinite(found.exact).all()) and bool((found.bound[2:] < 1e-6).all())
