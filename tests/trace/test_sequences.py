"""Scans, selections, sums by number and loops in decorated functions: values and gradients are those of the functions in eager torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kgen
from kgen.trace import to_spec, trace
from tests.trace import sequences
from tests.trace.sequences import CASES
from tests.trace.test_natural import held, tensors

IDS = [f.__name__ for f, _ in CASES]


@pytest.mark.parametrize(("function", "shapes"), CASES, ids=IDS)
def test_values_and_gradients_are_eagers(function: Callable[..., Any], shapes: list[Any]) -> None:
    held(function, kgen.kernel(function), tensors(shapes), "torch")


@pytest.mark.slow
@pytest.mark.parametrize(("function", "shapes"), CASES, ids=IDS)
def test_values_and_gradients_are_eagers_in_cpp(function: Callable[..., Any], shapes: list[Any]) -> None:
    held(function, kgen.kernel(function), tensors(shapes), "cpp")


def equations(function: Callable[..., Any]) -> str:
    """What a spec of a function says behind its header, each run of blanks as one."""
    return " ".join(to_spec(trace(function)).partition("\n\n")[2].split())


def test_a_scan_between_two_flips_is_the_scan_backwards() -> None:
    assert equations(sequences.returns_to_go) == equations(sequences.returns_in_steps) == "y = cumsum[S, reversed](r)"


def test_of_the_greatest_the_last_alone_is_one_search() -> None:
    """No dim is made of the k places where a threshold is all that is asked for."""
    assert "kth[V](logits, 3)" in equations(sequences.top_k_logits)
    assert "kth[V](logits, 4)" in equations(sequences.top_k_filled)


def test_sums_by_number_are_the_languages() -> None:
    assert "sum[E](messages if dst == index[V] else 0)" in equations(sequences.scatter_messages)
    assert "sum[E](1 if dst == index[V] else 0)" in equations(sequences.degrees)


def test_a_running_maximum_has_torchs_places() -> None:
    """Of equals the last, and every NaN."""
    x = torch.tensor([[1.0, 3.0, 3.0, float("nan"), 2.0, float("nan"), 5.0], [4.0, 1.0, 4.0, 5.0, 5.0, 0.0, 6.0]])
    got, want = kgen.kernel(sequences.peaks)(x, target="torch"), torch.cummax(x, -1)
    assert torch.equal(got[1], want.indices) and torch.equal(got[0].nan_to_num(9), want.values.nan_to_num(9))


def test_the_least_have_nan_last() -> None:
    x = torch.tensor([[1.0, float("nan"), -3.0, float("nan"), 2.0]])
    got, want = kgen.kernel(sequences.three_least)(x, target="torch"), x.topk(3, largest=False)
    assert torch.equal(got[0], want.values) and torch.equal(got[1], want.indices)
