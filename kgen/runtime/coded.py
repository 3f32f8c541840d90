"""Floats of few bits in PyTorch: what a value's code is, by the list of all values of its format.

The reference that targets are held to, made of a format's definition alone: a value lies between two neighbours of the list, and how far,
in float64, is exact.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from kgen.ops import CONVERTS
from kgen.types import DTYPES, DType, f4e2m1x2


@lru_cache(maxsize=16)
def magnitudes(dtype: DType) -> Any:
    """The values of the codes 0 to its greatest finite one, and one more, a unit further: a float64 tensor."""
    import torch

    assert dtype.coding is not None
    code = torch.arange(dtype.coding.top + 2, dtype=torch.float64)
    if dtype.coding.exponents:
        return torch.ldexp(torch.ones_like(code), code + dtype.least)
    exponent, fraction = code // 2**dtype.digits, code % 2**dtype.digits / 2**dtype.digits
    return torch.where(exponent == 0, fraction * 2.0**dtype.least, torch.ldexp(1 + fraction, exponent - 1 + dtype.least))


def value(dtype: DType, code: Any) -> Any:
    """The values of codes, as float32."""
    import torch

    coding = dtype.coding
    assert coding is not None
    code = code.to(torch.int64)
    size = code & (coding.sign - 1 if coding.sign else 0xFF)
    list_ = magnitudes(dtype).to(code.device)
    found = torch.where(size <= coding.top, list_[size.clamp(max=coding.top)], torch.nan)
    found = torch.where((size == coding.over) & (coding.over != coding.nan), torch.inf, found)
    found = torch.where((code & coding.sign) != 0, -found, found)
    return torch.where((code == coding.nan) & (coding.nan > coding.top), torch.nan, found).to(torch.float32)


def code(dtype: DType, how: tuple[str, ...], x: Any, bits: Any = None) -> Any:
    """The codes of values (float32, or float64, which is rounded once), in a mode, with the bits that this takes: int64."""
    import torch

    coding = dtype.coding
    assert coding is not None
    size, list_ = x.double().abs(), magnitudes(dtype).to(x.device)
    if "stochastic" in how and x.dtype == torch.float64:
        size = round_odd(size).double()
    at = (torch.searchsorted(list_, size.contiguous(), right=True) - 1).clamp(0, coding.top)
    low, high = list_[at], list_[at + 1]
    part = ((size - low) / (high - low)).clamp(max=1.0)
    if "stochastic" in how:
        up = (part * 2.0**32).floor() + (bits.to(torch.int64) & 0xFFFFFFFF).double() >= 2.0**32
    elif "down" in how or "up" in how:
        up = torch.full_like(part, "up" in how, dtype=torch.bool) & (part > 0)
    else:
        up = (part > 0.5) | (part == 0.5) & ((at % 2 == 1) | coding.exponents)
        if coding.exponents:  # torch and ml_dtypes take an f32's denormals so
            up = up | (at == 0) & (part > 0)
    found = at + up
    beyond = coding.top if {"saturate", "down", "up"} & {*how} else coding.over
    found = torch.where((found > coding.top) | torch.isinf(x), beyond, found)
    found = torch.where(torch.isnan(x), coding.nan, found)
    negative = torch.signbit(x) & ((found != 0) | (coding.nan != coding.sign))  # in the place of -0 may stand NaN
    negative = negative & (~torch.isnan(x) | (coding.nan > coding.top))  # what stands for NaN may be a number
    return torch.where(negative, found | coding.sign, found)


def nearest(dtype: DType, how: tuple[str, ...], x: Any, bits: Any = None) -> Any:
    """What values are rounded to, as float32."""
    return value(dtype, code(dtype, how, x if x.is_floating_point() else x.double(), bits))


def rounded(dtype: DType, how: tuple[str, ...], x: Any, bits: Any = None) -> Any:
    """Values rounded to a float of few bits, in its own dtype of torch."""
    import torch

    made = code(dtype, how, x if x.is_floating_point() else x.double(), bits)
    return made.to(torch.uint8 if dtype.coded else torch.uint16).view(getattr(torch, dtype.torch))


def round_odd(x: Any) -> Any:
    """f64 to f32 by rounding to odd: rounding that once more, to 16 bits, is rounding once."""
    import torch

    single = x.to(torch.float32)
    back = single.double()
    bits = single.view(torch.int32)
    odd = (bits - (back.abs() > x.abs()).to(torch.int32)) | 1
    return torch.where((back != x) & torch.isfinite(x) & torch.isfinite(single), odd, bits).view(torch.float32)


@cache
def _through() -> Any:
    """A function of autograd: of x, of what it was rounded to, and of where the gradient goes through."""
    import torch

    class Through(torch.autograd.Function):
        """A value with the gradient of another, where a mask says so."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, y: Any, mask: Any) -> Any:
            return y.clone()

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(inputs[2])

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return torch.where(ctx.saved_tensors[0], dy, 0.0), None, None

    return Through


def differentiable(dtype: DType, how: tuple[str, ...], x: Any, y: Any) -> Any:
    """What `x` was rounded to, with the gradient of a cast: its own, where it saturates that of torch's clamp."""
    import torch

    if not torch.is_tensor(x) or not x.requires_grad:
        return y
    mask = x.abs() <= dtype.largest if "saturate" in how else torch.ones_like(x, dtype=torch.bool)
    return _through().apply(x, y.to(x.dtype), mask.detach())


def operated(name: str, x: Any, *bits: Any) -> Any:
    """What an operator of programs (`kgen.ops.CODES`) gives for tensors."""
    import torch

    dtype, how = CONVERTS[name]
    if how is None:
        return value(dtype, x)
    return code(dtype, how, *torch.broadcast_tensors(x, *bits)).to(torch.uint8 if dtype.bits <= 8 else torch.int32)


def packed(torch_dtype: Any) -> bool:
    """Whether a dtype of torch has two elements in a byte."""
    return str(torch_dtype) == f"torch.{f4e2m1x2.torch}"


def coded(torch_dtype: Any) -> DType | None:
    """The row of a dtype of torch, if that is a float of few bits."""
    return _CODED.get(str(torch_dtype))


_CODED = {f"torch.{d.torch}": d for d in DTYPES.values() if d.coded and d.bits == 8}
