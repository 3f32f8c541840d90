"""Rows of several dims that are one piece of memory, beside parameters of the outer ones, on a GPU: values within their bounds, bits alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kgen
from kgen.testing.bounds import Analysis
from tests.cuda.test_cuda_scattered import SLOPES
from tests.cuda.test_cuda_straddling import CUBES, GROUPS, SLOPE, WEIGHED

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
#: Of x: short rows and long ones (in registers, in shared memory, in that of a cluster, in segments), of whole vectors and of none.
SHAPES = ((30, 4, 8, 49), (9, 3, 3, 49), (7, 2, 16, 196), (5, 2, 8, 1089), (2, 1, 64, 333), (2, 1, 200, 333), (3, 1, 256, 3999), (40, 2, 20, 64))
AS = {"f32": torch.float32, "bf16": torch.bfloat16}


def hold(text: str, args: tuple[Any, ...], alone: tuple[Any, ...] | None = None) -> None:
    """Results of a call lie within their bounds; those of the last row alone have its bits.  Tensors on a device lie as they do there."""
    kernel = kgen.loads(text)
    names = [p.name for p in kernel.kernel.params if p.is_tensor]
    found, args = kernel(*(t.cuda() for t in args), target="cuda"), tuple(t.cpu() for t in args)
    made = found if isinstance(found, tuple) else (found,)
    for got, want in zip(made, Analysis(kernel.kernel, dict(zip(names, args, strict=True)), "cuda").results(), strict=True):
        assert bool((got.cpu().double() - want.exact).abs().le(want.bound).all()), args[0].shape
    if alone is not None:
        assert torch.equal(kernel(*(t.cuda() for t in alone), target="cuda"), made[0][-1:]), args[0].shape


@pytest.mark.parametrize("dtype", AS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_group_norms_and_sums_stay_within_their_bounds(shape: tuple[int, ...], dtype: str) -> None:
    torch.manual_seed(0)
    x, other = (torch.randn(shape).to(AS[dtype]) for _ in range(2))
    w, b = torch.randn(shape[1:3]).to(AS[dtype]), torch.randn(shape[1:3])
    whole = x[0, 0].numel() % (16 // x.itemsize) == 0  # else a row begins elsewhere within a vector when it is alone
    hold(GROUPS, (x, w, b), (x[-1:], w, b) if whole else None)
    hold(SLOPE, (other, x, w, b[:, 0].expand(shape[0], -1).contiguous()))
    hold(WEIGHED, (x.view(-1, *shape[2:]), w[0]))
    hold(CUBES, (x, other, torch.randn(shape[:3]).to(AS[dtype]), torch.randn(shape[1]).to(AS[dtype])))


@pytest.mark.parametrize("dtype", AS)
def test_group_norms_of_what_lies_elsewhere(dtype: str) -> None:
    """Rows that begin within a vector, and those with gaps."""
    torch.manual_seed(0)
    for shape in ((5, 2, 8, 49), (3, 2, 24, 333)):
        own = torch.randn(shape).to(AS[dtype]).cuda()
        shifted = own.new_zeros(own.numel() + 3)[3:].view(shape).copy_(own)
        apart = own.new_zeros(*shape[:3], shape[3] + 2)[..., : shape[3]].copy_(own)
        assert shifted.data_ptr() % 16 and not apart.is_contiguous()
        w, b = torch.randn(shape[1:3]).to(own.dtype), torch.randn(shape[1:3])
        for x in (shifted, apart):
            hold(GROUPS, (x, w, b))


@pytest.mark.parametrize("dtype", AS)
def test_channels_that_are_read_once_stay_within_their_bounds(dtype: str) -> None:
    torch.manual_seed(0)
    for shape in ((700, 3, 49), (300, 5, 196), (256, 40, 64), (100, 4, 784)):
        g, x = (torch.randn(shape).to(AS[dtype]) for _ in range(2))
        hold(SLOPES, (g, x, torch.randn(shape[0])))
