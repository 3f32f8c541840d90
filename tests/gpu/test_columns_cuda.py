"""Columns, of which a thread takes several abreast, on a GPU: in registers, in segments, in shared memory, and where they lie otherwise."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.runtime import arguments, nvrtc
from kgen.testing.bounds import Analysis
from tests.cuda.test_cuda_abreast import GRADIENT, LENGTHS, LOSS, NORM, PLACED, SOFTMAX, given
from tests.cuda.test_cuda_scattered import CHANNELS
from tests.cuda.test_cuda_staged import BIASED
from tests.specs.cases import check_call

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
TEXTS = {"norm": NORM, "softmax": SOFTMAX, "gradient": GRADIENT, "lengths": LENGTHS, "placed": PLACED}
#: Elements of a column and columns: of a thread alone and of teams, full and not; of segments; no multiple of a vector's elements.
SHAPES = ((3, 4096), (7, 512), (24, 264), (64, 4096), (100, 72), (128, 2048), (200, 1024), (256, 8), (300, 520), (700, 64), (1100, 40),
          (5000, 264), (70_001, 16), (64, 4099), (5001, 3), (40_000, 4), (2500, 6), (300, 100))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", TEXTS)
def test_columns_stay_within_their_bounds(name: str, dtype: torch.dtype) -> None:
    """The same bits in 20 runs, in place, and of some columns alone where these lie in whole vectors."""
    torch.manual_seed(0)
    kernel = kgen.loads(TEXTS[name])
    checked = kernel.kernel
    names = [p.name for p in checked.params if p.is_tensor]
    for shape, call in zip(SHAPES, given(TEXTS[name], *SHAPES, dtype=dtype), strict=True):
        there = tuple(t.cuda() for t in call)
        made = kernel(*there, target="cuda")
        made = made if isinstance(made, tuple) else (made,)
        for got, want in zip(made, Analysis(checked, dict(zip(names, call, strict=True)), "cuda").results(), strict=True):
            assert bool((got.cpu().double() - want.exact).abs().le(want.bound).all()), (want, shape)
        for _ in range(20):
            again = kernel(*there, target="cuda")
            assert all(torch.equal(a, b) for a, b in zip(again if isinstance(again, tuple) else (again,), made, strict=True)), shape
        if shape[1] % 8 == 0 and name != "placed":
            some = tuple(t[..., -8:] if t.shape[-1] == shape[1] else t for t in there)
            part = kernel(*some, target="cuda")
            part = part if isinstance(part, tuple) else (part,)
            assert all(torch.equal(a, b[..., -8:]) for a, b in zip(part, made, strict=True)), shape
        if len(made) == 1 and made[0].shape == there[0].shape:
            own = there[0].clone()
            assert torch.equal(kernel(own, *there[1:], out=own, target="cuda"), made[0]), shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_channels_whose_pieces_lie_far_apart(dtype: torch.dtype) -> None:
    """Their variances, alone and among others, and rows of two dims that move as one piece beside a bias of one."""
    torch.manual_seed(2)
    kernel = kgen.loads(CHANNELS)
    for shape in ((700, 5, 49), (180, 7, 196), (45, 300, 784), (4200, 2, 8), (90, 3, 49)):
        x = torch.randn(*shape, device="cuda").to(dtype)
        made = kernel(x, target="cuda")
        for got, want in zip(made, Analysis(kernel.kernel, {"x": x.cpu()}, "cuda").results(), strict=True):
            assert bool((got.cpu().double() - want.exact).abs().le(want.bound).all()), shape
        for _ in range(5):
            assert all(torch.equal(a, b) for a, b in zip(kernel(x, target="cuda"), made, strict=True)), shape
        assert all(torch.equal(a, b[1:2]) for a, b in zip(kernel(x[:, 1:2], target="cuda"), made, strict=True)), shape
    biased = kgen.loads(BIASED)
    for b, h, n in ((300, 3, 49), (7, 2, 25), (40, 4, 197)):
        x, k = torch.randn(b, h, n, n, device="cuda").to(dtype), torch.randn(h, n, n, device="cuda").to(dtype)
        check_call(biased, {"x": x, "k": k}, "cuda")
        room = torch.zeros(b, h, n + 1, n, device="cuda", dtype=dtype)
        room[:, :, :n] = x
        assert torch.equal(biased(room[:, :, :n], k, target="cuda"), biased(x, k, target="cuda")), (b, h, n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_classes_between_other_dims(dtype: torch.dtype) -> None:
    """A cross-entropy of x[B, C, L] within its bound; labels outside are NaN, and the greatest is the first of equals."""
    torch.manual_seed(1)
    kernel = kgen.loads(LOSS)
    for b, c, n in ((2, 19, 4096), (1, 150, 512), (3, 700, 64), (2, 21, 1001)):
        x, t = (torch.randn(b, c, n, device="cuda") * 3).to(dtype), torch.randint(0, c, (b, n), device="cuda")
        x[0, 2] = x[0, 7]
        y, k = kernel(x, t, target="cuda")
        check_call(kernel, {"x": x, "t": t}, "cuda")
        assert torch.equal(k, x.argmax(1))
        t[0, 5] = c
        assert kernel(x, t, target="cuda")[0][0, 5].isnan()


def test_every_way_of_taking_columns_abreast_is_taken_above() -> None:
    kernel, found = kgen.loads(GRADIENT).kernel, set()
    for shape in SHAPES:
        x = torch.empty(*shape)
        for expression in nvrtc.expressions(kernel, arguments.bind(kernel, (x, x), {}, None), "sm_90"):
            walk = expression.split("<")[2].rstrip(">").split(", ")
            found.add((walk[10], walk[12], walk[20] if len(walk) > 20 else "1"))
    assert found >= {("1", "-1", "4"), ("0", "0", "4"), ("0", "1", "1"), ("0", "2", "4")}
