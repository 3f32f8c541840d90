"""A Llama whose layers are patched and whose optimiser is kgen's, trained beside the plain one."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.runtime.kernel import Kernel
from tests import llama


def trained(steps: int) -> tuple[list[float], list[float], list[float]]:
    """The losses of a patched model with kgen's AdamW, of a plain one with torch's, and of that in float64."""
    data = llama.batches(llama.SMALL, steps)
    exact, plain, ours = llama.model(dtype=torch.float64), llama.model(), llama.model()
    kgen.patch(ours)
    optimisers = (kgen.optim.AdamW(ours.parameters(), lr=3e-3), *(torch.optim.AdamW(m.parameters(), lr=3e-3) for m in (plain, exact)))
    losses, eager, wanted = (llama.train(m, o, data) for m, o in zip((ours, plain, exact), optimisers, strict=True))
    return losses, eager, wanted


def apart(losses: list[float], wanted: list[float]) -> float:
    return max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))


def test_losses_are_as_close_to_float64_s_as_eager_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operator by operator, which waits for no compiler."""
    monkeypatch.setattr(Kernel, "_preferred", lambda self, *_: "torch")
    losses, eager, wanted = trained(8)
    assert apart(losses, wanted) <= 2 * apart(eager, wanted)


@pytest.mark.slow
def test_a_patched_llama_trains_as_the_plain_one() -> None:
    losses, eager, wanted = trained(150)
    assert wanted[-1] < 0.8 * wanted[0], "it learned nothing"
    assert apart(losses, wanted) <= 2 * apart(eager, wanted), (apart(losses, wanted), apart(eager, wanted))
