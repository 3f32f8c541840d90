"""Short rows, whose elements move in vectors of what their length is a multiple of, some to a thread: run on the CPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: A held row beside parameters; one that is read twice and has one result.
NORM = "norm(x: T[..., N], w: T[N]) -> y: T[..., N]\n\nd = x - mean[N](x)\ny = d * rsqrt(mean[N](d^2) + 0.1) * w\n"
LOSS = "loss(x: T[..., N]) -> y: f32[...]\n\nm = max[N](x)\ny = f32(m) + log(sum[N](exp(f32(x) - f32(m))))\n"
#: One by one, two by two and four by four, in teams of all sizes; whole vectors, three of them a thread and one.
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 10, 12, 17, 20, 22, 24, 31, 40, 200)


def walked(kernel: Emulated) -> set[tuple[int, int, int]]:
    """The teams, the vectors of a thread and the elements of a vector of its launches."""
    found = (re.search(r"Walk<\d+, \d+, (\d+), \w+, (\d+), (\d+),", e) for e in kernel.expressions)
    return {(int(m[1]), int(m[2]), int(m[3])) for m in found if m}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("text", [NORM, LOSS], ids=["norm", "loss"])
def test_short_rows_stay_within_their_bounds(text: str, dtype: Any, tmp_path: Path) -> None:
    """Dense, apart, and beginning within a vector; more rows than a block takes; a row has the same bits alone and among others."""
    torch.manual_seed(0)
    checked = kgen.loads(text).kernel
    calls = []
    for n in LENGTHS:
        wide = torch.randn(133, n + 3).to(dtype)
        for x in (torch.randn(133, n).to(dtype), wide[:, 1 : n + 1]):
            calls.append((x, torch.randn(n).to(dtype)) if text is NORM else (x,))
    alone = [tuple(t[77:78] if t.dim() > 1 else t for t in call) for call in calls[::2]]
    kernel = Emulated(text, tmp_path, *calls, *alone)
    vectors = {vec for *_, vec in walked(kernel)}
    assert vectors == ({1, 2, 4} if dtype is torch.float32 else {1, 2, 4, 8}), walked(kernel)
    assert {own for _, own, _ in walked(kernel)} >= {1, 2, 3, 4, 5}
    found = [kernel(*call)["y"] for call in calls]
    for call, made in zip(calls, found, strict=True):
        (want,) = Analysis(checked, dict(zip("xw", call, strict=False)), "cuda").results()
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), call[0].shape
    for call, made in zip(alone, found[::2], strict=True):
        assert torch.equal(kernel(*call)["y"], made[77:78]), call[0].shape
