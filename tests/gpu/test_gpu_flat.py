"""Maps whose rows are no whole vectors, on a GPU: vectors of neighbours in memory give what one by one gives."""

from __future__ import annotations

import random

import pytest
import torch

import kgen
from kgen.runtime import maps
from tests.cuda.test_cuda_flat import MIXED, bits, drawn

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
SHAPES = ((3, 50, 49), (20, 700, 3), (4, 3, 1), (1, 9, 50257), (5, 1, 7), (200, 200, 11), (700, 3, 2), (2, 30, 1001), (1, 1, 13), (64, 128, 196))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=["f32", "bf16", "f64"])
def test_neighbours_in_memory_have_the_bits_of_elements_one_by_one(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not they are taken in vectors: a second kernel of the same text has none."""
    torch.manual_seed(0)
    rng = random.Random(0)
    calls = [tuple(t.cuda() for t in drawn(rng, shape, dtype)) for shape in SHAPES]
    flat = kgen.loads(MIXED)
    found = [flat(*args, target="cuda") for args in calls]
    monkeypatch.setattr(maps, "_flat", lambda *_: 1)
    maps.cached_plan.cache_clear()
    single = kgen.loads(MIXED)
    try:
        for args, got in zip(calls, found, strict=True):
            for one, other in zip(got, single(*args, target="cuda"), strict=True):
                assert torch.equal(bits(one), bits(other)), args[0].shape
    finally:
        maps.cached_plan.cache_clear()
