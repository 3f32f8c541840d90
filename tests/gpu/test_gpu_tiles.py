"""Maps that read operands across the result's neighbours, on a GPU: bits are those of torch's permutations, forwards and backwards."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.resources import resource  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_channels_as_pixels_and_back(dtype: torch.dtype) -> None:
    kernel = kgen.load(resource("specs") / "stencils" / "pixel_shuffle.k")
    for shape, r in (((2, 8, 5, 64), 2), ((3, 9, 7, 11), 3), ((1, 16, 33, 24), 4), ((2, 12, 64, 100), 2), ((4, 64, 56, 56), 2), ((1, 4, 1, 1), 2)):
        for order in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(shape, device="cuda").to(dtype).to(memory_format=order).requires_grad_()
            y = kernel(x, r, target="cuda")
            want = torch.nn.functional.pixel_shuffle(x, r)
            assert torch.equal(y, want), (shape, order)
            dy = torch.randn_like(want)
            assert torch.equal(*(torch.autograd.grad(of, x, dy)[0] for of in (y, want))), (shape, order)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transpositions(dtype: torch.dtype) -> None:
    kernel = kgen.loads("turned(x: T[..., N, M]) -> y: T[..., M, N]\n\ny = x\n")
    for shape in ((1, 1), (64, 64), (129, 8), (8, 1000), (3, 1001, 77), (2, 3, 40, 72), (5, 3, 4096), (5, 4096, 3)):
        x = torch.randn(shape, device="cuda").to(dtype)
        assert torch.equal(kernel(x, target="cuda"), x.mT), shape
        assert torch.equal(kernel(x.mT, target="cuda"), x), shape
        assert torch.equal(kernel(x[..., 1:], target="cuda"), x[..., 1:].mT), shape
