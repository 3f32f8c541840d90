"""Formulas written out in torch, which `kgen bench` times as eager PyTorch and under torch.compile."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.bench import peers, reference
from kgen.runtime.samples import arguments


@pytest.mark.parametrize("text", [
    "f(s: T[B, H, Q, K], a: T[H]) -> y: T[B, H, Q, K]\n\ny = s - a * (index[Q] - index[K])",  # two dims behind the one that it has
    "f(x: T[M, N]) -> y: T[M, N]\n\ny = x / max(1, mean[M, N](x^2)) + min(0.5, x)",  # the number first
    "f(x: T[..., V], t: i64[...], w: T[V]) -> y: T32[...]\n\ny = pick[V](w, t) * pick[V](x, t)",  # of a row that is shared
])  # fmt: skip
def test_a_formula_written_out_is_the_formula(text: str) -> None:
    kernel = kgen.loads(text).kernel
    given = arguments(kernel, "f32", 256, "cpu", 8)
    got = peers.written_out(kernel, given)(*(given[p.name] for p in kernel.params))
    assert reference.Reference(kernel, given).alike(list(got)) == "" and all(isinstance(y, torch.Tensor) for y in got)


@pytest.mark.parametrize(("spec", "why"), [("group_int8", "an axis of several dims"), ("scaled_embedding", "rows picked from a table")])
def test_what_is_not_written_out_is_told(spec: str, why: str) -> None:
    kernel = kgen.load(spec).kernel
    with pytest.raises(kgen.KgenError, match=why):
        peers.written_out(kernel, arguments(kernel, "f32", 256, "cpu", 8))
