"""Formulas as Helion kernels, the way its own examples write them: Helion has no library of kernels to call.

Imported only where Helion is installed.  Helion searches for a configuration of each new shape when it is first called, for minutes unless
HELION_AUTOTUNE_EFFORT says otherwise; here it is "quick" where nothing is said.
"""

from __future__ import annotations

import os

os.environ.setdefault("HELION_AUTOTUNE_EFFORT", "quick")

import helion
import helion.language as hl
import torch


@helion.kernel()
def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """Of one dim."""
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        out[tile] = torch.nn.functional.gelu(x[tile].to(torch.float32), approximate="tanh").to(x.dtype)
    return out


@helion.kernel()
def swiglu(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Of one dim."""
    out = torch.empty_like(g)
    for tile in hl.tile(g.size(0)):
        gate = g[tile].to(torch.float32)
        out[tile] = (gate * torch.sigmoid(gate) * u[tile].to(torch.float32)).to(g.dtype)
    return out


@helion.kernel()
def softmax(x: torch.Tensor) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        values = x[tile, :].to(torch.float32)
        e = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[tile, :] = (e / torch.sum(e, dim=1, keepdim=True)).to(x.dtype)
    return out


@helion.kernel()
def rmsnorm(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        values = x[tile, :].to(torch.float32)
        scale = torch.rsqrt(torch.mean(values * values, dim=1, keepdim=True) + eps)
        out[tile, :] = (values * scale * w[:].to(torch.float32)).to(x.dtype)
    return out


@helion.kernel()
def layernorm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
    m, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(m):
        values = x[tile, :].to(torch.float32)
        centred = values - torch.mean(values, dim=1, keepdim=True)
        scale = torch.rsqrt(torch.mean(centred * centred, dim=1, keepdim=True) + eps)
        out[tile, :] = (centred * scale * w[:].to(torch.float32) + b[:].to(torch.float32)).to(x.dtype)
    return out
