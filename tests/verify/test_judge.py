"""What is granted to a kernel that computes the same formula another way, and what is not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import kgen
from kgen.testing.cases import Limits
from kgen.verify import examine, judge
from kgen.verify.report import Finding, Report
from kgen.verify.shaped import MOST, VERY_LONG, drawn, far_outside, special_rows
from tests.verify import candidates

HERE = candidates.__file__


def wrong(spec: str, got: Any, **arguments: Any) -> list[str]:
    """The kinds of what is wrong with a result of a spec."""
    kernel = kgen.load(spec).kernel
    want = judge.expected(kernel, arguments, "cpu")
    said = [{"type": "", "dtype": str(got.dtype)[6:], "shape": list(got.shape), "stride": list(got.stride()), "device": "cpu"}]
    found: list[Finding] = judge.judged(kernel, want, said, [got], "cpu", 0xFF, Report("x", spec))
    return [f.kind.value for f in found]


def test_what_rounds_may_round_twice_more_and_what_moves_may_not() -> None:
    x = torch.linspace(3, 400, 9999)
    assert not torch.equal(x * 6 / 6, x)
    assert wrong("hardswish", x * 6 / 6, x=x) == []
    assert wrong("hardswish", x * (1 + 2.0**-21), x=x) == ["value"]
    assert wrong("relu", torch.nextafter(x, x + 1), x=x) == ["value"]


@pytest.mark.parametrize(("dtype", "below"), [(torch.float32, -100.0), (torch.float64, -720.0)])
def test_an_exponential_that_vanishes_takes_its_factors_with_it(dtype: torch.dtype, below: float) -> None:
    g, u = torch.tensor([below, below], dtype=dtype), torch.tensor([math.inf, 1e30], dtype=dtype)
    by_the_exponential = g / (1 + torch.exp(-g)) * u
    assert by_the_exponential[0].isnan() and by_the_exponential[1] == 0
    assert wrong("swiglu", by_the_exponential, g=g, u=u) == []
    assert wrong("swiglu", torch.full_like(g, 1.0), g=g, u=u) == ["value"]
    assert wrong("swiglu", -by_the_exponential.nan_to_num(), g=-g, u=u) == ["value"]


def test_an_exponential_may_be_one_of_2() -> None:
    g, u = torch.linspace(-60, -20, 999), torch.ones(999)
    y = g / (1 + torch.exp2(-g * 1.442695040888963))
    assert float(((y - g.double() * torch.sigmoid(g.double())) / y).abs().max()) > 2.0**-20
    assert wrong("swiglu", y, g=g, u=u) == []
    assert wrong("swiglu", y * (1 + 2.0**-14), g=g, u=u) == ["value"]


def test_a_zero_has_the_sign_that_every_way_to_compute_it_gives() -> None:
    assert wrong("relu", torch.tensor([0.0, 0.0]), x=torch.tensor([-0.0, -1.0])) == []
    assert wrong("relu", torch.tensor([-0.0]), x=torch.tensor([-1.0])) == ["sign"]
    x, zero = torch.tensor([[1.0, 3.0]]), torch.zeros(2)
    for w in (zero, -zero):  # (x - mean) * rstd * w, or x * (rstd * w) - mean * (rstd * w)
        for y in (torch.tensor([[0.0, -0.0]]), torch.tensor([[-0.0, 0.0]])):
            assert wrong("layernorm", y, x=x, w=w, b=-zero, eps=1e-5) == []
    assert wrong("rmsnorm", torch.tensor([[0.0, 0.0]]), x=-x, w=zero, eps=1e-6) == ["sign"]
    none = torch.zeros(1, dtype=torch.float16)
    assert wrong("elu", none, x=none, alpha=-0.5) == ["sign"]  # of -0.5 * expm1(0)


def test_terms_that_are_added_one_by_one_may_be_added_in_any_order() -> None:
    x = torch.tensor([[1e6, 1.0, -1e6, 3e-3]])
    before, two = torch.tensor([[0.0, 1e6, 1.0, -1e6]]), torch.tensor([[0.0, 0.0, 1e6, 1.0]])
    for y in ((x + before) + two, x + (before + two), (x + two) + before):
        assert wrong("moving_average", y / 3, x=x) == []
    assert wrong("moving_average", (x + before) / 3, x=x) == ["value"]
    assert wrong("moving_average", ((x + before) + two) / 3 + 0.5, x=x) == ["value"]
    assert wrong("add", torch.tensor([1e-3]), a=torch.tensor([1e6]), b=torch.tensor([-1e6])) == ["value"]


def test_sizes_that_follow_from_numbers_fit_them_in_each_case() -> None:
    found = examine("tests.verify.eager:pixel_shuffle", "pixel_shuffle", dtypes=("f32",), examples=20, shrink=0, device="cpu")
    assert found.ok and not found.untried, found


def test_numbers_that_are_refused_by_an_error_are_told() -> None:
    found = examine(f"{HERE}:huber", "huber", examples=12, shrink=0, device="cpu", dtypes=("f32",))
    assert found.ok and any(line.startswith("delta=") and "positive" in line for line in found.refused), found
    found = examine(f"{HERE}:huber_by_half", "huber", examples=12, shrink=0, device="cpu", dtypes=("f32",))
    assert [f.kind.value for f in found.findings] == ["raises"], found


def test_where_the_formula_says_nothing_nothing_is_held() -> None:
    for name in ("logsumexp", "logsumexp_that_refuses"):
        assert examine(f"{HERE}:{name}", "logsumexp", dtypes=("f32",), sizes={"N": (0, 9)}, examples=6, shrink=0, device="cpu").ok


@pytest.mark.parametrize("spec", ["rmsnorm_fp8_128", "groupnorm", "softmax"])
def test_very_long_rows_are_no_longer_than_they_are_to_be(spec: str) -> None:
    kernel = kgen.check.plain(kgen.load(spec).kernel)
    most = max(x.numel() for _, given in special_rows(kernel, Limits(layouts=("dense",)), 0) for x in given.values() if hasattr(x, "numel"))
    assert VERY_LONG <= most <= 16 * VERY_LONG
    longest = [given["x"] for label, given in special_rows(kernel, Limits(layouts=("dense",)), 0) if label == "very long rows"]
    assert all(float(x.double().flatten(1)[-1].max()) < -5e4 for x in longest)  # below what a maximum might begin with


def test_indices_lie_where_no_memory_is() -> None:
    dense, of = Limits(layouts=("dense",)), {s: kgen.check.plain(kgen.load(s).kernel) for s in ("cross_entropy", "softmax")}
    outside = far_outside(of["cross_entropy"], dense, 0)
    assert outside is not None and float(outside["t"].double().abs().max()) == 2.0**40 and far_outside(of["softmax"], dense, 0) is None


@pytest.mark.parametrize("spec", ["fp8_blocks", "pixel_shuffle", "swiglu_packed"])
def test_cases_of_axes_of_several_dims_have_no_more_elements_than_others(spec: str) -> None:
    kernel = kgen.check.plain(kgen.load(spec).kernel)
    for first, others in ((70_001, 2), (8200, 5)):
        assert max(x.numel() for x in drawn_with(kernel, first, others).values() if hasattr(x, "numel")) <= MOST


def drawn_with(kernel: Any, first: int, others: int) -> dict[str, Any]:
    free = dict.fromkeys(d for p in kernel.params for d in p.dims or () if d not in kernel.literals)
    sizes = {d: ((first,) if k == 0 else others) if d == "..." else first if k == 0 else others for k, d in enumerate(free)}
    return drawn(kernel, 0, 7, Limits(sizes=sizes, layouts=("dense",), max_elements=150_000))
