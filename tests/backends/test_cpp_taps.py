"""Neighbours that C++'s maps read by runs, beside what the places mean."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from kgen import check, grad, parts, pipeline, syntax, taps
from kgen.runtime.kernel import Kernel
from tests.cuda.test_cuda_taps import DERIVED, LINE, MOVED, PLANE, WINDOW, cases, derived, laid, line, moved, plane, window


def hold(text: str, meaning: Any, calls: list[tuple[Any, ...]]) -> None:
    """Hold what a kernel gives in each of some calls to what its text means."""
    kernel = Kernel(check.check(syntax.parse(text, "taps.k")))
    for args in calls:
        want = meaning(*(t.double() if isinstance(t, torch.Tensor) else t for t in args))
        found = kernel(*args, target="cpp")
        for y, (name, value) in zip(found if isinstance(found, tuple) else (found,), want.items(), strict=True):
            where = [(t.shape, t.stride(), t.data_ptr() % 16) if isinstance(t, torch.Tensor) else t for t in args]
            assert torch.equal(y, value.to(y.dtype)), (name, y.dtype, where)


def shifts(count: int, dtype: torch.dtype, seed: int) -> list[tuple[Any, ...]]:
    chance = random.Random(seed)
    return [(x, chance.choice((0, 1, -3, 8, 16, -24, 1000, 2**63 - 1))) for (x,) in cases(2, dtype, count, seed)]


def test_a_fill_that_taps_share_stands_before_them() -> None:
    """Taps that lie inside take the fill of their tensor's others, which the program has behind the first of them."""
    kernel = syntax.parse("p(x: T[..., N]) -> y: T[..., P] where P = N - 13, K = 8\n\ny = max[K](x[N = index[P] + 3*index[K] - 4 else -inf])", "p.k")
    backward = parts.over_parts(grad.backward(check.check(kernel)).kernel)
    lets = taps.tapped(pipeline.expanded(backward, pipeline.usual(backward))).lets
    assert any(map(taps.is_tap, lets))
    assert all({o.name for o in let.expr.operands} <= {x.name for x in lets[:k]} for k, let in enumerate(lets))


def test_windows_in_a_plane() -> None:
    hold(WINDOW, window, [*cases(2, torch.float32, 20, 1), (torch.zeros(0, 4, 5),), (torch.randint(-8, 8, (3, 9, 700)).float(),)])


@pytest.mark.slow
def test_shifts_in_a_plane_and_by_numbers() -> None:
    hold(PLANE, plane, [*cases(2, torch.bfloat16, 40, 1), *cases(3, torch.float32, 40, 2)])
    hold(MOVED, moved, shifts(60, torch.float32, 3))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_shifts_of_any_layout(dtype: torch.dtype) -> None:
    chance = random.Random(4)
    hold(LINE, line, [*cases(0, dtype, 100, 5), *cases(1, dtype, 100, 6)])
    hold(PLANE, plane, [*cases(2, dtype, 100, 8), *cases(3, dtype, 100, 7)])
    hold(MOVED, moved, shifts(200, dtype, 9))
    hold(WINDOW, window, [*cases(2, dtype, 100, 10)])
    hold(DERIVED, derived, [tuple(laid(s, dtype if s[0] != 2 else torch.float32, chance) for s in ((3, n), (n,), (2, n))) for n in (1, 8, 24, 41, 600)])
