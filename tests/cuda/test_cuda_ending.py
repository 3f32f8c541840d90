"""Rows that end within a vector, which stay in shared memory where rows of whole vectors are in registers: run on the CPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import launches  # noqa: E402
from kgen.backends.launches import Rule  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.compiled import planned  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

#: Read once, alone and beside a parameter of columns; twice; into bytes.
SOFTMAX = "f(x: T[..., N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e)\n"
RMSNORM = "f(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = x * rsqrt(mean[N](x^2) + 0.1) * w\n"
CENTRED = "f(x: T[..., N], w: T[N]) -> y: T[..., N]\n\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2) + 0.1) * w\n"
BYTES = "f(x: T[..., N]) -> q: i8[..., N]\n\na = max[N](abs(x))\nq = i8(round(x / a * 127))\n"
TEXTS = {"softmax": SOFTMAX, "rmsnorm": RMSNORM, "centred": CENTRED}


def lengths(rule: Rule) -> tuple[int, int]:
    """The first and the last length that it takes."""
    vec = min(8, rule.elements[1])
    return vec * (rule.above + 1) + 1, vec * rule.longest + vec - 1


def takes(text: str, rule: Rule) -> bool:
    """Whether it is for such rows."""
    return text is SOFTMAX or not rule.alone and rule.elements[1] > 4


def way(text: str, n: int, dtype: torch.dtype) -> tuple[int, ...]:
    """The threads that a launch is compiled for, its blocks, the vectors of a thread and where a row is (2: in shared memory)."""
    given = {"x": torch.empty(3, n, dtype=dtype), **{name: torch.empty(n, dtype=dtype) for name in "wb"}}
    kernel = kgen.loads(text)
    (one,) = planned(kernel, {p.name: given[p.name] for p in kernel.kernel.params})
    found = re.search(r"Walk<(\d+), (\d+), \d+, \w+, (\d+), \d+, \w+, \d+, \d+, \w+, (\d+),", one)
    assert found, one
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_such_rows_are_taken_by_rules_of_their_own(text: str) -> None:
    """Whole vectors, wider elements, bytes that are made of a row, and shorter and longer rows go as the ladder has it."""
    for rule in launches.ENDING:
        dtype, wanted = (torch.bfloat16 if rule.elements[1] > 4 else torch.float32), (rule.threads, rule.blocks, rule.vectors, 2)
        for n in lengths(rule):
            assert (way(text, n, dtype) == wanted) == takes(text, rule), (rule, n)
            if takes(text, rule) and dtype is torch.bfloat16:
                assert way(text, n, torch.float16) == wanted, (rule, n)
    assert way(text, 9_000, torch.bfloat16) != way(text, 9_001, torch.bfloat16)
    assert all(way(text, n, torch.float32) == way(text, n // 4 * 4, torch.float32) for n in (2_001, 5_001, 8_001))


def test_bytes_are_made_of_such_rows_as_of_whole_ones() -> None:
    for n in (n for rule in launches.ENDING[:-1] for n in lengths(rule)):
        assert way(BYTES, n, torch.bfloat16) == way(BYTES, n // 8 * 8, torch.bfloat16), n


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_they_stay_within_their_bounds(text: str, tmp_path: Path) -> None:
    """From the first element of a vector and from within one; a row has the same bits alone and among others."""
    torch.manual_seed(0)
    kernel, calls = kgen.loads(text).kernel, []
    for rule in launches.ENDING:
        n = lengths(rule)[0] + 2
        wide = torch.randn(4, n + 3).to(torch.bfloat16 if rule.elements[1] > 4 else torch.float32)
        if takes(text, rule):
            calls += [(x, torch.randn(n).to(x.dtype))[: len(kernel.params)] for x in (wide[:, :n].contiguous(), wide[:, 1 : n + 1])]
    alone = [(call[0][2:3], *call[1:]) for call in calls]
    run = Emulated(text, tmp_path, *calls, *alone)
    for call, one in zip(calls, alone, strict=True):
        (want,) = Analysis(kernel, dict(zip("xw", call, strict=False)), "cuda").results()
        made = run(*call)["y"]
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), call[0].shape
        assert torch.equal(run(*one)["y"], made[2:3]), call[0].shape
