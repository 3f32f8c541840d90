"""What the specs of floats of few bits are in torch: scales over blocks, and values divided by them, rounded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu


def scale(x: Tensor, dims: Sequence[int], top: float) -> Tensor:
    """The greatest magnitude along dims, which stay with one element, over `top`; of zeros 1."""
    most = x.abs().amax(tuple(dims), keepdim=True)
    return torch.where(most == 0, 1.0, most / top)


def rounded(x: Tensor, dtype: torch.dtype = E4M3) -> Tensor:
    """Values in a dtype, those that are too large as the largest."""
    top = torch.finfo(dtype).max
    return x.clamp(-top, top).to(dtype)


def power(x: Tensor, up: bool) -> Tensor:
    """Positive values as powers of two, rounded down or up."""
    mantissa, exponent = torch.frexp(x.double())
    whole = mantissa == 0.5 if up else torch.ones_like(mantissa, dtype=torch.bool)
    found = torch.ldexp(torch.ones_like(mantissa), exponent - whole.int())
    return found.clamp(2.0**-127, 2.0**127).to(x.dtype)


def blocks(x: Tensor, dtype: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    """A tensor's last dim in blocks of 128, with their scales."""
    parts = x.unflatten(-1, (-1, 128))
    s = scale(parts, (-1,), torch.finfo(dtype).max)
    return rounded(parts / s, dtype).flatten(-2), s[..., 0].float()


def square_blocks(w: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix in blocks of 128 x 128, with their scales."""
    parts = w.unflatten(-1, (-1, 128)).unflatten(0, (-1, 128))
    s = scale(parts, (1, 3), 448)
    return rounded(parts / s).flatten(2, 3).flatten(0, 1), s[:, 0, :, 0].float()


def of_square_blocks(q: Tensor, s: Tensor) -> Tensor:
    """What such blocks stood for."""
    parts = q.float().unflatten(-1, (-1, 128)).unflatten(0, (-1, 128))
    return (parts * s[:, None, :, None]).flatten(2, 3).flatten(0, 1).bfloat16()


def micro(x: Tensor, dim: int, up: bool) -> tuple[Tensor, Tensor]:
    """Blocks of 32 along a dim, with scales that are powers of two."""
    parts = x.unflatten(dim, (-1, 32))
    at = dim if dim < 0 else dim + 1
    most = parts.abs().amax(at, keepdim=True)
    s = power(most / 448 if up else most / 256, up)
    return rounded(parts / s).flatten(at - 1, at), s.squeeze(at).to(E8M0)


def tensor(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A whole tensor with one scale."""
    s = scale(x, tuple(range(x.dim())), torch.finfo(dtype).max)
    return rounded(x / s, dtype), s.reshape(()).float()


def rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row with its scale."""
    s = scale(x, (-1,), 448)
    return rounded(x / s), s[..., 0].float()


class _Fake(torch.autograd.Function):
    """What f8e4m3 keeps of rows, with the gradient of the identity where nothing saturates."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        s = scale(x, (-1,), 448)
        ctx.save_for_backward((x / s).abs() <= 448)
        return rounded(x / s).to(x.dtype) * s

    @staticmethod
    def backward(ctx, *dy: Tensor) -> Tensor:
        return torch.where(ctx.saved_tensors[0], dy[0], 0.0)


def fake(x: Tensor) -> Tensor:
    """Rows as f8e4m3 keeps them, by a straight-through estimator."""
    return _Fake.apply(x)


def bytes_of(codes: Tensor) -> Tensor:
    """Codes of four bits, two neighbours in a byte, the first in the low half."""
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


def halves(packed: Tensor) -> Tensor:
    """The other way round."""
    packed = packed.view(torch.uint8)
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2)


FOURS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def four(x: Tensor) -> Tensor:
    """The codes of values in f4e2m1: to nearest, ties to even, what is too large the largest."""
    ends = torch.tensor([(a + b) / 2 for a, b in zip(FOURS, FOURS[1:], strict=False)], dtype=torch.float64, device=x.device)
    size = x.double().abs().contiguous()
    low, high = torch.bucketize(size, ends), torch.bucketize(size, ends, right=True)
    return torch.where(low % 2 == 0, low, high) | torch.signbit(x).long() << 3


def nvfp4(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Blocks of 16 with scales in f8e4m3, and the tensor's own scale; the values are bytes: torch's compiler has no such dtype."""
    x = x.float()
    g = x.abs().amax().clamp(min=1e-30) / 2688
    parts = x.unflatten(-1, (-1, 16))
    s = rounded(parts.abs().amax(-1) / (6 * g))
    whole = s.to(x.dtype)[..., None] * g
    return bytes_of(four(torch.where(whole > 0, parts / whole, 0.0)).flatten(-2)), s, g


def of_nvfp4(q: Tensor, s: Tensor, g: Tensor) -> Tensor:
    """What such blocks stood for."""
    code = halves(q).long()
    values = torch.tensor([*FOURS, *(-v for v in FOURS)], device=q.device)[code]
    return (values.unflatten(-1, (-1, 16)) * s.float()[..., None] * g).flatten(-2).bfloat16()


def of_int4(q: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """What unsigned integers of four bits in groups of 128 stood for, each group with its scale and its zero."""
    return ((halves(q).to(s.dtype).unflatten(-1, (-1, 128)) - z[..., None]) * s[..., None]).flatten(-2)
