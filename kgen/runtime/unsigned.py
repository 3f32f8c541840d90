"""Unsigned integers of 16 bits and more in PyTorch, which has storage for them and hardly an operator.

They are carried as int64: those of 64 bits by their bits, as two's complement.  Operators are NumPy's.
"""

from __future__ import annotations

from typing import Any

from kgen.types import DType, u16, u32, u64

WIDE = (u16, u32, u64)


def lifted(x: Any) -> Any:
    """A stored tensor as its carrier."""
    import torch

    return x.view(torch.int64) if x.dtype == torch.uint64 else x.to(torch.int64)


def is_stored(dtype: Any) -> bool:
    """Whether a dtype of torch is one of these."""
    return str(dtype) in ("torch.uint16", "torch.uint32", "torch.uint64")


def stored(x: Any, dtype: Any) -> Any:
    """A carrier, or any integers, in a dtype of torch; they wrap."""
    import torch

    x = x.to(torch.int64)
    return x.view(dtype) if dtype == torch.uint64 else (x & ((1 << 8 * dtype.itemsize) - 1)).to(dtype)


def turned(x: Any) -> Any:
    """The carrier of a u64 with its first bit turned, and back: so turned, carriers have the order of the numbers."""
    import torch

    return x ^ torch.iinfo(torch.int64).min


def number(x: Any, given: object) -> Any:
    """A value of a type as other dtypes take it: of a u64 its float64, rounded once, where its sign bit is set."""
    import torch

    if given is not u64 or not isinstance(x, torch.Tensor) or x.dtype != torch.int64:
        return x
    half = ((x >> 1) & 0x7FFFFFFFFFFFFFFF) | (x & 1)  # the last bit counts where a half is decided
    return torch.where(x < 0, half.to(torch.float64) * 2, x.to(torch.float64))


def round_odd(x: Any, given: object) -> Any:
    """Integers of 32 bits and more as float64 by rounding to odd: to round that again, to fewer bits, is to round once.  Others stay."""
    import torch

    if not isinstance(x, torch.Tensor) or x.dtype not in (torch.int32, torch.int64):
        return x
    x = x.to(torch.int64)
    large = (x < 0) if given is u64 else torch.zeros_like(x, dtype=torch.bool)
    half = torch.where(large, ((x >> 1) & 0x7FFFFFFFFFFFFFFF) | (x & 1), x)
    cut = (half >> 11 << 11) | ((half & 0x7FF) != 0).to(torch.int64) << 11
    exact = torch.where((half > 1 << 53) | (half < -(1 << 53)), cut, half).to(torch.float64)
    return torch.where(large, exact * 2, exact)


def saturated(x: Any, dtype: DType) -> Any:
    """Floats cut to integers of one of these: NaN is 0, and what lies beyond is the nearest."""
    import torch

    y = torch.nan_to_num(x.to(torch.float64), nan=0.0, posinf=2.0**64, neginf=0.0).clamp(0.0, 2.0**64)
    if dtype is not u64:
        return y.clamp(max=float(dtype.limits[1])).to(torch.int64)
    low = torch.where(y < 2.0**63, y, 0.0).to(torch.int64)
    high = torch.where((y >= 2.0**63) & (y < 2.0**64), y - 2.0**63, 0.0).to(torch.int64) + torch.iinfo(torch.int64).min
    return torch.where(y >= 2.0**64, -1, torch.where(y >= 2.0**63, high, low))


def operate(name: str, t: DType, tensors: list[Any]) -> Any:
    """An operator on operands of one of these dtypes, as carriers: a carrier, or bools."""
    import numpy as np
    import torch

    kind = np.dtype(t.torch)
    last = 1 if name == "where" else 0
    xs = [x.cpu().numpy().astype(bool) if k < last else x.cpu().numpy().astype(np.int64).astype(kind) for k, x in enumerate(tensors)]
    with np.errstate(all="ignore"):
        found = _FUNCTIONS[name](np, *xs)
    if found.dtype == bool:
        return torch.from_numpy(np.ascontiguousarray(found)).reshape(found.shape).to(tensors[0].device)
    return torch.from_numpy(np.ascontiguousarray(found.astype(kind)).astype(np.int64)).reshape(found.shape).to(tensors[0].device)


def _shift(np: Any, x: Any, n: Any, left: bool) -> Any:
    inside = n < x.dtype.itemsize * 8
    by = np.where(inside, n, 0).astype(x.dtype)
    return np.where(inside, np.left_shift(x, by) if left else np.right_shift(x, by), 0)


def _power(np: Any, x: Any, n: Any) -> Any:
    found, base = np.ones(np.broadcast_shapes(x.shape, n.shape), x.dtype), x
    for k in range(n.dtype.itemsize * 8):
        found = np.where(n >> np.asarray(k, n.dtype) & 1 == 1, found * base, found)
        base = base * base
    return found


def _plain(name: str) -> Any:
    """NumPy's function of a name."""
    return lambda np, *operands: getattr(np, name)(*operands)


_FUNCTIONS: dict[str, Any] = {
    **{name: _plain(f) for name, f in dict(
        add="add", sub="subtract", mul="multiply", max="maximum", min="minimum", eq="equal", ne="not_equal", lt="less", le="less_equal",
        gt="greater", ge="greater_equal", bitand="bitwise_and", bitor="bitwise_or", bitnot="bitwise_not", neg="negative", where="where",
    ).items()},
    "abs": lambda np, x: x, "pos": lambda np, x: x, "stop": lambda np, x: x, "relu": lambda np, x: x, "sign": lambda np, x: (x > 0) + x * 0,
    "isnan": lambda np, x: x != x, "isinf": lambda np, x: x != x, "isfinite": lambda np, x: x == x, "signbit": lambda np, x: x != x,
    "floordiv": lambda np, x, y: np.where(y == 0, 0, x // np.where(y == 0, 1, y)),
    "mod": lambda np, x, y: np.where(y == 0, x, x % np.where(y == 0, 1, y)),
    "shl": lambda np, x, n: _shift(np, x, n, True), "shr": lambda np, x, n: _shift(np, x, n, False), "pow": _power,
    "clamp": lambda np, x, low, high: np.minimum(np.maximum(x, low), high),
    "floor": lambda np, x: x, "ceil": lambda np, x: x, "round": lambda np, x: x, "trunc": lambda np, x: x,
}  # fmt: skip
