"""Selection on a CUDA device: what is found is torch's, for rows on the chip and rows that are read again, and the same in every batch."""

from __future__ import annotations

import pytest
import torch

import kgen
from tests.selection.select_cases import KTH, MASK, kth, mask, rows, same

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
TARGETS = ("triton", "cuda")
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
TURNS = [
    pytest.param(target, dtype, marks=() if dtype is torch.float32 or (d + j) % 2 else pytest.mark.slow, id=f"{target}-{dtype}")
    for j, target in enumerate(TARGETS) for d, dtype in enumerate(FLOATS)
]  # fmt: skip


@pytest.mark.parametrize(("target", "dtype"), TURNS)
def test_what_is_found_is_torchs(target: str, dtype: torch.dtype) -> None:
    found, masked = kgen.loads(KTH), kgen.loads(MASK)
    for n in (1, 5, 33, 256, 1000, 4096, 32768, 50257, 131072, 300001):
        x = rows(n, dtype, "cuda")
        for k in sorted({1, 2, 50, n, n + 1, 0}):
            v, i = found(x, k, target=target)
            want = kth(x, k)
            assert same(v, want[0]) and same(i, want[1]), (n, k)
            assert same(masked(x, k, target=target), mask(x, k)), (n, k)


@pytest.mark.parametrize("target", TARGETS)
def test_strides_and_other_dims(target: str) -> None:
    found, masked = kgen.loads(KTH), kgen.loads(MASK)
    base = torch.randn(70, 40, 9, device="cuda")
    for x in (base.transpose(1, 2), base.permute(2, 1, 0), base[..., ::2], base[:, 1:, 1:], base[:1].expand(5, 40, 9)):
        assert same(found(x, 3, target=target)[1], kth(x, 3)[1])
        assert same(masked(x, 3, target=target), mask(x, 3))
    columns = kgen.loads("f(x: T[M, N], k: int) -> y: T[N]\n\ny = kth[M](x, k)\n")
    x = torch.randn(1000, 300, device="cuda")
    assert same(columns(x, 10, target=target), x.topk(10, dim=0).values[-1])


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_has_the_same_answer_in_any_batch(target: str) -> None:
    nucleus = kgen.load("top_p_mask")
    for n in (1000, 32768, 131072):
        x = torch.randn(200, n, device="cuda", dtype=torch.bfloat16) * 3
        whole = nucleus(x, 0.9, target=target)
        assert all(same(nucleus(x[r : r + 1], 0.9, target=target), whole[r : r + 1]) for r in (0, 7, 199))


@pytest.mark.parametrize("target", TARGETS)
def test_the_most_probable_have_the_probability_together(target: str) -> None:
    nucleus = kgen.load("top_p_mask")
    for n in (50, 4096, 50257):
        x = torch.randn(30, n, device="cuda") * 3
        for p in (0.1, 0.5, 0.9):
            kept = nucleus(x, p, target=target) > -torch.inf
            share = torch.softmax(x.double(), -1)
            least = share.where(kept, torch.inf).amin(-1)
            total = (share * kept).sum(-1)
            assert bool((total >= p - 1e-5).all()) and bool((total - least < p + 1e-5).all())
            assert bool((share.where(~kept, 0).amax(-1) < least).all())


@pytest.mark.parametrize("target", TARGETS)
def test_the_greatest_in_order(target: str) -> None:
    few, many = kgen.load("topk"), kgen.loads("f(x: T[..., N]) -> (v: T[..., 64], i: i64[..., 64])\n\nv = kth[N](x, index[64] + 1)\ni = kth_place[N](x, index[64] + 1)\n")
    for n in (64, 256, 5000):
        x = torch.randn(33, n, device="cuda")
        for kernel, k in ((few, 8), (many, 64)):
            v, i = kernel(x, target=target)
            want = x.topk(k)
            assert same(v, want.values) and same(i, want.indices), (n, k)


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_are_torchs(target: str) -> None:
    kernel = kgen.loads("f(x: T[..., N]) -> v: T[..., 8]\n\nv = kth[N](x, index[8] + 1)\n")
    x = torch.randn(20, 1000, device="cuda", requires_grad=True)
    dv = torch.randn(20, 8, device="cuda")
    kernel(x, target=target).backward(dv)
    got, x.grad = x.grad, None
    x.topk(8).values.backward(dv)
    assert torch.equal(got, x.grad)
