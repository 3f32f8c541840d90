"""Lookups outside of what they look up in, as checked kernels tell of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import kgen
from kgen.cli import main

IDS = torch.tensor([0, 2, 7, -1, 1])
W = torch.arange(6.0).view(3, 2)


def test_the_first_place_outside_is_told_behind_the_call() -> None:
    out = torch.zeros(5, 2)
    with pytest.raises(IndexError, match=r"^embedding: w\[V = 7\] lies outside, V has 3 \(first at \.\.\. = 2\)$"):
        kgen.load("embedding", checked=True)(W, IDS, out=out, target="torch")
    assert out.isnan().any(1).tolist() == [False, False, True, True, False]


def test_what_is_inside_is_as_ever_and_the_kernel_unchanged() -> None:
    made = kgen.load("embedding", checked=True)
    assert torch.equal(made(W, IDS.clamp(0, 2), target="torch"), W[IDS.clamp(0, 2)])
    assert made.name == "embedding" and made.source("cpp") == kgen.load("embedding").source("cpp")
    with pytest.raises(kgen.KgenError, match="lacks `ids`|ids"):
        made(W)


def test_gradients_are_those_of_the_kernel() -> None:
    w = W.clone().requires_grad_()
    kgen.load("embedding", checked=True)(w, IDS.clamp(0, 2), target="torch").sum().backward()
    assert w.grad is not None and w.grad.sum() == 10


def test_a_lookup_that_no_result_takes_is_none() -> None:
    """Of classes that are ignored nothing is looked up; another one outside is told."""
    made = kgen.load("cross_entropy", checked=True)
    x, t = torch.randn(4, 5), torch.tensor([1, -100, 4, -100])
    made(x, t, smoothing=0.1, target="torch")
    t[3] = 5
    with pytest.raises(IndexError, match=r"V = 5\] lies outside, V has 5"):
        made(x, t, target="torch")


def test_a_check_tells_what_a_formula_reads_outside_of_indices_that_lie_inside(tmp_path: Path) -> None:
    """`kgen check --checked`: the case that it prints has its index inside, and its Python raises the same."""
    (tmp_path / "next.k").write_text("next_row(w: T[V, D], ids: i64[S]) -> y: T[S, D]\n\ny = w[V = ids + 1]\n")
    run = partial(CliRunner().invoke, main)
    options = ["--checked", "--target", "torch", "--examples", "8"]
    failed = run(["check", str(tmp_path / "next.k"), *options])
    assert failed.exit_code == 1 and "lies outside, V has" in failed.stderr
    with pytest.raises(IndexError, match="lies outside"):
        exec(failed.stderr.split("as Python:\n")[1], {})
    assert run(["check", "embedding", "rope_positions", *options]).exit_code == 0
    assert run(["check", "embedding", "--backward", *options]).exit_code == 0
