"""Rows that end within a vector, on a GPU: values within their bounds; a row has the same bits alone and among others."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.backends import launches
from kgen.testing.bounds import Analysis
from tests.cuda.test_cuda_ending import TEXTS, lengths

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", TEXTS)
def test_rows_that_end_within_a_vector(name: str, dtype: torch.dtype) -> None:
    """The first and the last length of each rule, from the first element of a vector and from within one."""
    torch.manual_seed(0)
    kernel = kgen.loads(TEXTS[name])
    params = len(kernel.kernel.params)
    for n in sorted({n for rule in launches.ENDING for n in lengths(rule)}):
        wide = torch.randn(700, n + 3, device="cuda").to(dtype)
        w = torch.randn(n, device="cuda").to(dtype)
        for x in (wide[:, :n].contiguous(), wide[:, 1 : n + 1]):
            made = kernel(*(x, w)[:params], target="cuda")
            few = [0, 7, 699]
            (want,) = Analysis(kernel.kernel, dict(zip("xw", (x[few].cpu(), w.cpu()), strict=False)), "cuda").results()
            assert bool((made[few].cpu().double() - want.exact).abs().le(want.bound).all()), (n, x.stride())
            assert torch.equal(kernel(*(x[7:8], w)[:params], target="cuda"), made[7:8]), (n, x.stride())
