"""Rows of 16-bit elements that are read once and end within a vector stay in shared memory: run on the CPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import launches  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.compiled import planned  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

SOFTMAX = "f(x: T[..., N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e)\n"
BYTES = "f(x: T[..., N]) -> q: i8[..., N]\n\na = max[N](abs(x))\nq = i8(round(x / a * 127))\n"
RMSNORM = "f(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = x * rsqrt(mean[N](x^2) + 0.1) * w\n"
#: The first and the last length of each rule that end within a vector.
LENGTHS = tuple(n for rule in launches.ENDING for n in (8 * rule.above + 9, 8 * rule.longest + 7))


def way(text: str, n: int, dtype: torch.dtype) -> tuple[int, ...]:
    """The threads that a launch is compiled for, its blocks, the vectors of a thread and where a row is (2: in shared memory)."""
    given = {"x": torch.empty(3, n, dtype=dtype), "w": torch.empty(n, dtype=dtype)}
    kernel = kgen.loads(text)
    (one,) = planned(kernel, {p.name: given[p.name] for p in kernel.kernel.params})
    found = re.search(r"Walk<(\d+), (\d+), \d+, \w+, (\d+), \d+, \w+, \d+, \d+, \w+, (\d+),", one)
    assert found, one
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("text", [SOFTMAX, RMSNORM], ids=["softmax", "rmsnorm"])
def test_such_rows_are_taken_by_rules_of_their_own(text: str) -> None:
    """Whole vectors, wider elements, bytes that are made of a row, and shorter and longer rows go as the ladder has it."""
    wanted = [(rule.threads, rule.blocks, rule.vectors, 2) for rule in launches.ENDING]
    assert [way(text, n, torch.bfloat16) for n in LENGTHS] == [own for own in wanted for _ in range(2)]
    assert way(text, 9_001, torch.float16) == way(text, 9_001, torch.bfloat16) in wanted
    others = [(n, torch.bfloat16) for n in (1_409, 2_048, 9_000, 16_393)] + [(n, torch.float32) for n in (2_001, 3_001, 5_001, 8_001)]
    assert not {way(text, n, dtype) for n, dtype in others} & set(wanted)
    assert all(way(BYTES, n, torch.bfloat16) == way(BYTES, n // 8 * 8, torch.bfloat16) for n in LENGTHS)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("text", [SOFTMAX, RMSNORM], ids=["softmax", "rmsnorm"])
def test_they_stay_within_their_bounds(text: str, tmp_path: Path) -> None:
    """From the first element of a vector and from within one; a row has the same bits alone and among others."""
    torch.manual_seed(0)
    kernel, calls = kgen.loads(text).kernel, []
    for n in LENGTHS:
        wide = torch.randn(4, n + 3).bfloat16()
        calls += [(x, torch.randn(n).bfloat16())[: len(kernel.params)] for x in (torch.randn(4, n).bfloat16(), wide[:, 1 : n + 1])]
    alone = [(call[0][2:3], *call[1:]) for call in calls]
    run = Emulated(text, tmp_path, *calls, *alone)
    for call, one in zip(calls, alone, strict=True):
        (want,) = Analysis(kernel, dict(zip("xw", call, strict=False)), "cuda").results()
        made = run(*call)["y"]
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), call[0].shape
        assert torch.equal(run(*one)["y"], made[2:3]), call[0].shape
