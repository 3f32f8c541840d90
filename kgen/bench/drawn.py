"""The library's random specs in torch: with kgen's numbers, which tests hold them to, and with torch's own, which they are timed beside.

In: a spec's arguments.  Out: its results.  An element's number is its position, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kgen.ops.reference import philox


def words(count: int, seed: Tensor, offset: Tensor, shift: int) -> Tensor:
    """The random words of the first elements without their last bits, in float32."""
    return (philox(torch, seed, offset, torch.arange(count, device=seed.device)) >> shift).float()


def uniform(x: Tensor, seed: Tensor, offset: Tensor) -> Tensor:
    """Numbers of 24 bits in [0, 1)."""
    return words(x.numel(), seed, offset, 8).view(x.shape) * 2.0**-24


def gumbel(x: Tensor, seed: Tensor, offset: Tensor) -> Tensor:
    """Gumbel's noise, of numbers strictly between 0 and 1."""
    return -torch.log(-torch.log((words(x.numel(), seed, offset, 9).view(x.shape) + 0.5) * 2.0**-23))


def normal(like: Tensor, seed: Tensor, offset: Tensor) -> Tensor:
    """Box and Muller's normal numbers, two of each pair of words."""
    n, even = like.numel(), like.numel() + like.numel() % 2
    radius = torch.sqrt(-2 * torch.log((words(even, seed, offset, 0)[::2] + 0.5) * 2.0**-32))
    angle = 2 * math.pi * words(even, seed, offset, 8)[1::2] * 2.0**-24
    return torch.stack((radius * angle.cos(), radius * angle.sin()), -1).flatten()[:n].view(like.shape)


def dropout(x: Tensor, p: float, seed: Tensor, offset: Tensor) -> Tensor:
    return torch.where(uniform(x, seed, offset) < 1 - p, x * (1 / (1 - p)), 0.0)


def stochastic_round(x: Tensor, seed: Tensor, offset: Tensor) -> Tensor:
    """To bf16, up where the 16 bits that are lost and 16 random ones carry."""
    bits = x.float().view(torch.int32).long() & 0xFFFFFFFF
    chance = philox(torch, seed, offset, torch.arange(x.numel(), device=x.device)).view(x.shape) >> 16
    code = bits + chance >> 16 << 16
    rounded = torch.where(code >= 2**31, code - 2**32, code).int().view(torch.float32)
    return (rounded + (x - x.detach())).bfloat16()  # its gradient is that of a rounding: the identity


def dropout_add_rmsnorm(
    x: Tensor, residual: Tensor, w: Tensor, p: float, eps: float, seed: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    h = residual + dropout(x, p, seed, offset)
    return F.rms_norm(h, w.shape, w, eps), h


def dropout_add_layernorm(
    x: Tensor, residual: Tensor, w: Tensor, b: Tensor, p: float, eps: float, seed: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    h = residual + dropout(x, p, seed, offset)
    return F.layer_norm(h, w.shape, w, b, eps), h


def _add_rmsnorm(h: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return F.rms_norm(h, w.shape, w, eps), h


def _add_layernorm(h: Tensor, w: Tensor, b: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return F.layer_norm(h, w.shape, w, b, eps), h


def _categorical(x: Tensor, temperature: float, seed: Tensor, offset: Tensor) -> Tensor:
    return torch.multinomial((x / temperature).softmax(-1).flatten(0, -2), 1).view(x.shape[:-1])


#: The same by torch's own generator.
BY_TORCH: dict[str, Callable[..., Any]] = {
    "dropout": lambda x, p, seed, offset: F.dropout(x, p),
    "dropout_add_rmsnorm": lambda x, residual, w, p, eps, seed, offset: _add_rmsnorm(residual + F.dropout(x, p), w, eps),
    "dropout_add_layernorm": lambda x, residual, w, b, p, eps, seed, offset: _add_layernorm(residual + F.dropout(x, p), w, b, eps),
    "bernoulli_mask": lambda p, seed, offset: torch.bernoulli(p).bool(),
    "rand": lambda like, seed, offset: torch.rand_like(like),
    "randn": lambda like, seed, offset: torch.randn_like(like),
    "gumbel_softmax": lambda x, tau, seed, offset: F.gumbel_softmax(x, tau),
    "categorical": _categorical,
    "stochastic_round": lambda x, seed, offset: x.to(torch.bfloat16),  # to nearest: torch has no other
}
