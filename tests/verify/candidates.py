"""Candidates for softmax (and a few others) that are right, or wrong in one way each."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import Any

import torch


def right(x: torch.Tensor) -> torch.Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True)) if x.shape[-1] else wide
    return (e * (1 / e.sum(-1, keepdim=True))).to(x.dtype)


def into(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    return y.copy_(torch.softmax(x, -1))


def destination(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(torch.softmax(x, -1))


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)


def unshifted(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x.double())
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def empty(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def narrow(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).to(torch.float32)


def transposed(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)[None]


def twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x, -1)
    return y, y


def shared(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)[..., :1].expand(x.shape) if x.shape[-1] == 1 else torch.softmax(x, -1).sum(-1, keepdim=True).expand(x.shape)


class Sly(torch.Tensor):
    def __eq__(self, other: Any) -> Any:
        return torch.ones(self.shape, dtype=torch.bool)


def subclass(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1).as_subclass(Sly)


def raises(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("this one has a bad day")


def writes_its_input(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1)
    x[..., -1:] += 1
    return y


def writes_behind(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.softmax(x, -1)
    if out is None:
        return y
    out.copy_(y)
    if out.numel() * out.element_size() % 4096 > 8 and out.is_contiguous():
        ctypes.memset(out.data_ptr() - 4, 0, 4)
    return out


def reads_behind(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    ctypes.string_at(x.data_ptr() + x.numel() * x.element_size(), 4)
    return torch.softmax(x, -1)


def strides_ignored(x: torch.Tensor) -> torch.Tensor:
    dense = torch.as_strided(x, (x.numel(),), (1,), x.storage_offset()) if x.numel() and 0 not in x.stride() else x.contiguous()
    return torch.softmax(dense.view(x.shape), -1)


def refuses_strides(x: torch.Tensor) -> torch.Tensor:
    if not x.is_contiguous():
        raise ValueError("x is not contiguous")
    return torch.softmax(x, -1)


def refuses_f64(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float64:
        raise TypeError("no f64 here")
    return torch.softmax(x, -1)


KNOWN: dict[Any, torch.Tensor] = {}


def by_size(x: torch.Tensor) -> torch.Tensor:
    key = (x.shape, x.dtype)
    if key not in KNOWN:
        KNOWN[key] = torch.softmax(x, -1)
    return KNOWN[key].clone()


def by_its_beginning(x: torch.Tensor) -> torch.Tensor:
    key = (x.shape, x.dtype, tuple(x.flatten()[:8].tolist()))
    if key not in KNOWN:
        KNOWN[key] = torch.softmax(x, -1)
    return KNOWN[key].clone()


def one_buffer(x: torch.Tensor) -> torch.Tensor:
    key = (x.shape, x.dtype)
    if key not in KNOWN:
        KNOWN[key] = torch.empty(x.shape, dtype=x.dtype)
    return KNOWN[key].copy_(torch.softmax(x, -1))


def later(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1)

    def work() -> None:
        time.sleep(0.01)
        y.zero_()

    threading.Thread(target=work).start()
    return y


CALLS = [0]


def other_bits(x: torch.Tensor) -> torch.Tensor:
    CALLS[0] += 1
    y = torch.softmax(x, -1)
    return torch.nextafter(y, torch.full_like(y, 2)) if CALLS[0] % 2 and x.dtype == torch.float64 else y


def by_batch(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, -1)
    return torch.nextafter(y, torch.full_like(y, 2)) if x.numel() > x.shape[-1] and x.dtype in (torch.float32, torch.float64) else y


def crashes(x: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(8)
    return x


def leaves(x: torch.Tensor) -> torch.Tensor:
    os._exit(0)


def hangs(x: torch.Tensor) -> torch.Tensor:
    while True:
        time.sleep(1)


def takes_all_memory(x: torch.Tensor) -> torch.Tensor:
    blocks = []
    while True:
        blocks.append(torch.ones(1 << 24))


def patches(x: torch.Tensor) -> torch.Tensor:
    torch.equal = lambda *_, **__: True
    torch.allclose = lambda *_, **__: True
    torch.Tensor.cpu = lambda self, *_, **__: self
    return torch.zeros_like(x)


def adamw(
    p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, t: int,
    lr: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, wd: float = 0.01,
) -> None:  # fmt: skip
    """The spec's own formula, in place."""
    wide = torch.float64 if p.dtype == torch.float64 else torch.float32
    grad = g.to(wide)
    m.copy_(b1 * m + (1 - b1) * grad)
    v.copy_(b2 * v + (1 - b2) * grad * grad)
    hat, var = m / (1 - b1**t), v / (1 - b2**t)
    q = p.to(wide)
    p.copy_(q - lr * (hat / (torch.sqrt(var) + eps) + wd * q))


def adamw_forgets(p: Any, g: Any, m: Any, v: Any, t: int, lr: float = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8, wd: float = 0.01) -> None:
    before = v.clone()
    adamw(p, g, m, v, t, lr, b1, b2, eps, wd)
    v.copy_(before)


def without_a_compiler(x: torch.Tensor) -> torch.Tensor:
    """It goes through more operators where one before has imported torch's compiler, which takes a second of each examination."""
    y = torch.softmax(x, -1)
    return y if "torch._dynamo" not in sys.modules else y * 1


def differentiable(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


class Mistaken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return (dy - (dy * y).mean(-1, keepdim=True)) * y


def wrong_gradient(x: torch.Tensor) -> torch.Tensor:
    return Mistaken.apply(x)


def its_gradient(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    y, g = torch.softmax(x.double(), -1), dy.double()
    return ((g - (g * y).sum(-1, keepdim=True)) * y).to(x.dtype)


def to_8_bits(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-400.0, 400.0).to(torch.float8_e4m3fn)


def to_8_bits_by_16(x: torch.Tensor) -> torch.Tensor:
    """Rounded twice."""
    return x.clamp(-400.0, 400.0).half().to(torch.float8_e4m3fn)


def from_8_bits(x: torch.Tensor) -> torch.Tensor:
    return x.float()


def huber(x: torch.Tensor, y: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    if delta <= 0:
        raise ValueError("delta is to be positive")
    d = (x.double() - y.double()).abs()
    return torch.where(d <= delta, d * d / 2, delta * (d - delta / 2)).mean().to(x.dtype if x.dtype == torch.float64 else torch.float32)


def huber_by_half(x: torch.Tensor, y: torch.Tensor, delta: float = 1.0) -> torch.Tensor:
    """Whatever delta is, it takes no more than 1000 elements."""
    if x.numel() > 1000:
        raise ValueError("too many")
    return huber(x, y, abs(delta))


def logsumexp(x: torch.Tensor) -> torch.Tensor:
    return torch.logsumexp(x.double(), -1).to(torch.float64 if x.dtype == torch.float64 else torch.float32)


def logsumexp_that_refuses(x: torch.Tensor) -> torch.Tensor:
    if not x.shape[-1]:
        raise ValueError("there is no greatest of none")
    return logsumexp(x)


class Scaled(torch.nn.Module):
    def __init__(self, by: float = 1.01) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * self.by


def too_much(x: torch.Tensor, y: torch.Tensor) -> None:
    y.copy_(torch.softmax(x, -1) * 1.01)


def rounds_on_the_way(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def computes_in_f32(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)


def counts_to_65536(x: torch.Tensor) -> torch.Tensor:
    """Places that wrap, as those of an int32 do, but sooner."""
    y = torch.softmax(x, -1).flatten()
    y[1 << 16 :] = y[: max(0, len(y) - (1 << 16))].clone()
    return y.view(x.shape)


def refuses_more(x: torch.Tensor) -> torch.Tensor:
    if x.numel() >= 1 << 16:
        raise ValueError("too many elements")
    return torch.softmax(x, -1)


def rows_of_vectors(x: torch.Tensor) -> torch.Tensor:
    """Rows of whole vectors, and none longer than a block."""
    if x.shape[-1] % 8 or x.shape[-1] > 4096:
        raise ValueError("rows are multiples of 8, up to 4096")
    return torch.softmax(x, -1)


def never(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError("not yet")


def finds_no_memory(x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 1:
        raise RuntimeError("CUDA out of memory. Tried to allocate 64.00 MiB.")
    return torch.softmax(x, -1)
