# ruff: noqa: F821, UP037
"""PyTorch's OpInfo suite as kgen's: every operator that kgen can express agrees with torch's own, or is refused with a `KgenError`."""

from __future__ import annotations

import os

import pytest
import torch

import kgen
from tests.opinfo.suite import DEFAULT, Suite

#: The torch whose operators the table lists, one by one; later ones may have more.
LISTED_WITH = (2, 13)
#: What the operators are shared out in, on a GPU: a multiple of three has every dtype in each part's turn.
PARTS = 12


def finished(suite: Suite) -> Suite:
    assert not suite.failures, f"{len(suite.failures)} failed\n" + "\n".join(suite.failures[:20])
    return suite


def test_samples_of_every_operator_agree_with_torch() -> None:
    """The first sample of each, in f32; of every fourth operator the gradient and the error inputs too."""
    suite = Suite("torch", ("f32",), samples=1, references=False)
    suite.run(apart=4)
    totals = finished(suite).totals()
    assert totals["forward"]["passed"] > 200 and totals["gradient"]["passed"] > 40
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) <= LISTED_WITH:
        assert not suite.unlisted


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DEFAULT)
@pytest.mark.parametrize("target", ["torch", "cpp"])
def test_every_sample_agrees_with_torch(target: str, dtype: str) -> None:
    """All samples, reference inputs and error inputs; of reference inputs of more than 2^16 elements there are many of one kind."""
    suite = Suite(target, (dtype,), largest=2**16)
    suite.run()
    finished(suite)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(
    ("part", "target"),
    [pytest.param(k, t, marks=() if j == k % 2 else pytest.mark.slow) for k in range(PARTS) for j, t in enumerate(("cuda", "triton"))],
)
def test_samples_on_the_gpu_agree_with_torch(target: str, part: int) -> None:
    """The first sample of every operator, in one of the dtypes on one target, each in its turn (the rest slow); their gradients in f32 and bf16."""
    dtypes = tuple(os.environ.get("KGEN_OPINFO_DTYPES", "f32,bf16,i64").split(","))
    chosen = dtypes if "KGEN_OPINFO_DTYPES" in os.environ else (dtypes[(part + (target == "cuda")) % len(dtypes)],)
    suite = Suite(target, chosen, samples=1, references=False)
    suite.run(part=(part, PARTS))
    finished(suite)


def test_a_wrong_formula_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite itself: a formula that is off by a little fails forward and gradient."""
    from tests.opinfo import formulas, table

    monkeypatch.setitem(table.ROWS, "deg2rad", table.Row(formulas.rad2deg))
    suite = Suite("torch", ("f32", "f64"), samples=1, references=False)
    suite.run(("deg2rad",))
    assert len(suite.failures) == 3


def test_torch_decides_at_an_infinite_bound_too() -> None:
    """clamp_min by a tensor: its gradient goes to whichever is greater, to x in a tie, to neither where one is NaN."""

    @kgen.kernel
    def at_least(x: "T[...]", bound: "T[...]"):
        return torch.clamp_min(x, bound)

    inf, nan = float("inf"), float("nan")
    x = torch.tensor([1.0, 3.0, 2.0, inf, nan, 0.0, -inf])
    bound = torch.tensor([inf, 1.0, 2.0, inf, 0.0, nan, -inf])
    ours, theirs = ([t.clone().requires_grad_() for t in (x, bound)] for _ in range(2))
    y, z = at_least(*ours, target="torch"), torch.clamp_min(*theirs)
    torch.testing.assert_close(y, z, equal_nan=True)
    for a, b in zip(torch.autograd.grad(y.sum(), ours), torch.autograd.grad(z.sum(), theirs)):
        assert torch.equal(a, b)


def chosen_by(z, ord):
    return torch.abs(z).sum(-1) if ord == 1 else torch.square(z).sum(-1)


def difference(x, other, p):
    return chosen_by(x - other, p)


def test_a_helper_of_one_line_passes_a_constant_on() -> None:
    """A function of one expression that hands a constant to another, which chooses by it."""

    @kgen.kernel
    def apart(x: "T[M, N]", y: "T[M, N]"):
        return difference(x, y, 1)

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(apart(x, y, target="torch"), (x - y).abs().sum(-1))
