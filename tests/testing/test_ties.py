"""An equality of terms with their own maximum is sure where one term alone reaches it, so that gradients of maxima have bounds; where
several may be the greatest, a share of the gradient is never more than all of it."""

from __future__ import annotations

from typing import Any

import pytest

from kgen import syntax
from kgen.check import check
from kgen.grad import backward
from kgen.testing import checks, properties
from kgen.testing.properties import Violation

torch = pytest.importorskip("torch", reason="torch is not installed")
TEXT = "f(x: T[..., N]) -> y: T[...]\n\ny = max[N](tanh(x))\n"


def bounded(text: str, **given: Any) -> Any:
    from kgen.testing.bounds import Analysis

    return Analysis(check(syntax.parse(text, "x")), given, "cpp").results()[0]


def gradient(x: Any, text: str = TEXT) -> Any:
    made = backward(check(syntax.parse(text, "x")), save=False).kernel
    return bounded(made.file.source.text, dy=torch.ones(x.shape[:-1]), x=x)


def test_a_gradient_of_a_maximum_has_a_bound_where_one_term_is_the_greatest() -> None:
    found = gradient(torch.randn(50, 100))
    assert bool((found.bound < 1e-6).all()) and bool(((found.exact != 0).sum(1) == 1).all())
    found = gradient(-torch.randn(50, 100), TEXT.replace("max", "min"))
    assert bool((found.bound < 1e-6).all())


def test_of_terms_that_are_near_one_another_each_may_have_all_of_the_gradient() -> None:
    x = torch.tensor([[0.5, 0.5 + 2**-24, 0.1, -3.0], [2.0, 2.0, 1.0, 1.0], [9.5, 9.75, 0.0, 0.0]])
    found = gradient(x)
    near = found.bound > 0.01
    assert near.tolist() == [[True, True, False, False], [True, True, False, False], [False] * 4]  # tanh(9.75) has its own bound
    assert bool(torch.isfinite(found.bound).all())


def test_of_a_row_with_nan_nothing_is_said() -> None:
    found = gradient(torch.tensor([[0.5, torch.nan, 0.25], [torch.inf, 1.0, 0.0], [-torch.inf] * 3]))
    assert bool(torch.isnan(found.exact[0]).all())
    assert bool(torch.isfinite(found.bound[1:]).all())


def test_terms_without_an_error_tie_for_sure() -> None:
    found = bounded("f(x: T[N]) -> k: i64[]\n\nk = sum[N](i64(x == max[N](x)))\n", x=torch.tensor([1.0, 3.0, 3.0]))
    assert found.exact.item() == 2 and found.bound.item() == 0


def test_terms_that_broadcast_along_the_dims_are_equal_to_themselves() -> None:
    text = "f(x: T[..., N], w: T[..., N]) -> y: T[..., N]\n\nh = sin(w)\ny = x if h == max[...](h) else 0.5\n"
    for shape in ((1, 5), (5,)):
        found = bounded(text, x=torch.randn(3, 5), w=torch.randn(shape))
        assert found.exact.shape == (3, 5) and bool((found.bound < 1e-6).all())


def test_rows_of_no_terms_have_nothing_to_bound() -> None:
    assert gradient(torch.empty(3, 0)).bound.numel() == 0


@pytest.mark.parametrize("change", [lambda g: g * 0, lambda g: g / 0, lambda g: g.flip(-1)])
def test_a_gradient_that_asks_for_equality_in_vain_is_found(change: Any) -> None:
    kernel = check(syntax.parse(TEXT, "x"))

    class Wrong(checks.Saving):
        def _run(self, *args: Any) -> Any:
            return change(super()._run(*args))

    with pytest.raises(Violation, match="exactly"):
        properties.gradients_agree(kernel, "torch", numbers=range(0, 16, 4), saving=Wrong(kernel))
    properties.gradients_agree(kernel, "torch", numbers=range(0, 16, 4))
