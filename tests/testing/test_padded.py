"""Canaries around what a kernel reads and writes: clean kernels pass, and each way of writing elsewhere is found."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kgen
from kgen.testing import checks
from kgen.testing.padded import Padded

PROGRAM = "f(x: T[..., N], p: f32[..., N]) -> (y: T[..., N], s: T32[...], p': f32[..., N])\ny = x * 2\ns = sum[N](x)\np' = p + x"


@pytest.mark.parametrize("target", ["torch", pytest.param("cpp", marks=pytest.mark.slow)])
def test_kernels_keep_within_their_tensors(target: str) -> None:
    kernel = kgen.loads(PROGRAM).kernel
    report = checks.check(kernel, target, examples=12, runnable=Padded(kernel))
    assert report.cases == 12 and not report.failures, report.failures[0]


def elsewhere(where: str) -> Any:
    """A `_run` that computes right and then writes one element too many."""
    kernel = kgen.loads(PROGRAM)

    def run(args: tuple, given: dict[str, Any], out: Any, target: str | None) -> Any:
        returned = kernel._run(args, given, out, target)
        if out is not None:
            x = {"after y": out[0], "before s": out[1], "an operand": given["x"], "between": given["p"]}[where]
            place = {"after y": x.storage_offset() + x.numel(), "before s": x.storage_offset() - 1, "an operand": x.storage_offset()}
            x.as_strided((1,), (1,), place.get(where, x.storage_offset() + 1)).fill_(3)
        return returned

    return run


@pytest.mark.parametrize("where", ["after y", "before s", "an operand", "between"])
def test_a_write_elsewhere_is_found(where: str) -> None:
    padded = Padded(kgen.loads(PROGRAM).kernel)
    padded.runnable._run = elsewhere(where)
    given = {"x": torch.ones(3, 4), "p": torch.zeros(3, 8)[:, ::2]}
    name = {"after y": "y", "before s": "s", "an operand": "x", "between": "p"}[where]
    with pytest.raises(kgen.KgenError, match=f"f on torch: wrote at byte -?[0-9]+ of the buffer of {name}, outside its elements"):
        padded._run((), given, None, "torch")


def test_strides_offsets_and_expanded_tensors_are_kept() -> None:
    seen = {}

    class Spy:
        def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str | None) -> Any:
            seen.update(given)
            return kgen.loads("f(x: T[..., N]) -> y: T[..., N]\ny = -x")._run(args, given, out, target)

    padded = Padded(kgen.loads("f(x: T[..., N]) -> y: T[..., N]\ny = -x").kernel)
    padded.runnable = Spy()  # type: ignore[assignment]
    for x in (torch.randn(7)[3:], torch.randn(4, 6).t(), torch.randn(4, 1).expand(4, 5), torch.randn(0, 3), torch.randn(2, 9)[:, 1::3]):
        y = padded._run((), {"x": x}, None, "torch")
        assert torch.equal(seen["x"], x) and seen["x"].stride() == x.stride() and torch.equal(y, -x)
        assert not x.numel() or seen["x"].data_ptr() % 64 == x.data_ptr() % 64
