"""Hypothesis strategies: `arguments`, what a kernel may be called with.

In: a kernel.  Out: a strategy of its arguments by name.  The cases are those of `cases.Draw`; their choices are Hypothesis's, so
that a failing one shrinks towards small dense f32 tensors of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kgen import check as checker
from kgen.runtime.kernel import Kernel
from kgen.testing.against import subject
from kgen.testing.cases import LAYOUTS, MAX_ELEMENTS, Draw, Limits
from kgen.testing.programs import programs


def arguments(
    kernel: Kernel | checker.Kernel | str | Path,
    *,
    dtypes: Mapping[str, str | Sequence[str]] | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    special: bool = True,
    layouts: Sequence[str] = LAYOUTS,
    max_elements: int = MAX_ELEMENTS,
) -> st.SearchStrategy[dict[str, Any]]:
    """A strategy of a kernel's arguments by name: CPU tensors and numbers, to be passed as `kernel(**given)`.

    Sizes lie at the boundaries of schedules, 0-d and empty tensors and leading dims that broadcast among them; tensors are
    dense, transposed, sliced, offset by 1 to 15 elements or expanded; elements are plain, special (zeros of both signs, NaN,
    infinities) or near the ends of their range, whole rows equal, masked or infinite; indices of `pick` lie inside and outside.
    `dtypes`, `sizes`, `special`, `layouts` and `max_elements` limit them: see `cases.Limits`.  A first call of each dtype builds a
    kernel, which takes longer than Hypothesis lets a case take: `settings(deadline=None)`.

    Raises `KgenError` where a limit names what the kernel does not have.
    """
    made = subject(kernel).kernel
    limits = Limits(dtypes, sizes, special, tuple(layouts), max_elements).held(made)

    @st.composite
    def drawn(draw: st.DrawFn) -> dict[str, Any]:
        case = Draw(made, limits=limits, source=Chosen(draw))
        return case.written(case.arguments())

    return drawn()


__all__ = ["arguments", "programs"]


class Chosen:
    """A source of choices (see `cases.Seeded`) that Hypothesis makes: the first alternative of each is the simplest.

    Tensors are made of few choices, each of which can go: a kind of element for all (zeros first), then some places with
    values of their own.
    """

    extremes = (1.7e308, -1.7e308, 1e154, 5e-324)  # of f64; infinities and zeros to the others

    def __init__(self, draw: st.DrawFn):
        import torch

        self.draw, self.torch = draw, torch

    def choice(self, values: Sequence[Any]) -> Any:
        return values[self.randint(0, len(values) - 1)]

    def binding(self, bindings: list[dict[str, str]]) -> dict[str, str]:
        return self.choice(bindings)

    def randint(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high)) if low < high else low

    def randrange(self, end: int) -> int:
        return self.randint(0, end - 1)

    def sample(self, values: Sequence[Any], count: int) -> list[Any]:
        left = list(values)
        return [left.pop(self.randrange(len(left))) for _ in range(count)]

    def gauss(self, mean: float, deviation: float) -> float:
        return mean + deviation * self.draw(st.floats(-4, 4, width=32))

    def chance(self, probability: float) -> bool:
        sides = min(6, round(1 / probability))  # few alternatives, which shrink fast; what is rare is to be seen in 100 cases
        return self.randint(1, sides) == sides

    def likely(self, probability: float) -> bool:
        return not self.chance(1 - probability)

    def several(self, values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
        count = self.choice(counts)
        return [self.choice(values) for _ in range(max(counts))][:count]  # as many choices for each count: it shrinks alone

    def some(self, shape: Sequence[int], rate: float) -> Any:
        """Up to three places, each perhaps repeated at a distance."""
        mask = self.torch.zeros(math.prod(shape), dtype=self.torch.bool)
        if len(mask):
            for _ in range(self.randint(0, 3)):
                place, step = self.randrange(len(mask)), self.choice((0, 7, 3, 2, 1))
                mask[place :: step or len(mask)] = True
        return mask.reshape(list(shape))

    def among(self, values: Any, shape: Sequence[int]) -> Any:
        """Up to three of the values, in turn; NaN and infinities come more often than others."""
        pool = values.tolist() + [v for v in values.tolist() if not math.isfinite(v)] * 5
        taken = [self.choice(pool) for _ in range(self.randint(1, 3))]
        count = math.prod(shape)
        turns = self.torch.arange(count) % len(taken)
        return self.torch.tensor(taken, dtype=values.dtype)[turns].reshape(list(shape))

    def uniforms(self, shape: Sequence[int]) -> Any:
        return self.torch.where(self.some(shape, 0.1), 0.0, 0.75)

    def normal(self, shape: Sequence[int]) -> Any:
        seed = self.randint(0, 63)
        if seed < 2:
            return self.torch.full(list(shape), float(seed), dtype=self.torch.float64)
        return self.torch.randn(list(shape), generator=self.torch.Generator().manual_seed(seed), dtype=self.torch.float64)

    def integers(self, low: int, high: int, shape: Sequence[int], dtype: Any) -> Any:
        seed = self.randint(0, 63)
        if not seed:
            return self.torch.full(list(shape), min(max(low, 0), high - 1), dtype=dtype)
        return self.torch.randint(low, high, list(shape), generator=self.torch.Generator().manual_seed(seed), dtype=dtype)
