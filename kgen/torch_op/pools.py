"""Torch's pools: a kernel for each setting of a layer.

In: a layer such as `nn.MaxPool2d(3, 2, 1)`.  Out: its kernel, one for the process, and its calls.  Where gradients of maxima
are asked for, a patched layer is torch's own: it gives a window's gradient to the first of equal elements, a kernel to each its share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import nn

from kgen.runtime.kernel import Kernel, loads
from kgen.trace import to_spec, trace

#: The most elements of a window: one of more is no single reading.
MOST = 128
#: Of each of torch's pools its reduction and its number of dims.
POOLS: dict[type[nn.Module], tuple[str, int]] = {
    nn.MaxPool1d: ("max", 1), nn.MaxPool2d: ("max", 2), nn.MaxPool3d: ("max", 3),
    nn.AvgPool1d: ("avg", 1), nn.AvgPool2d: ("avg", 2), nn.AvgPool3d: ("avg", 3),
}  # fmt: skip

Line = Annotated[torch.Tensor, "T[..., N]"]
Plane = Annotated[torch.Tensor, "T[..., H, W]"]
Volume = Annotated[torch.Tensor, "T[..., D, H, W]"]

#: The length of a window, its step, what is padded on both sides, and how far its elements lie apart, along one dim.
Side = tuple[int, int, int, int]


def name(op: str, count: int) -> str:
    """What a pool over so many dims is called."""
    return f"{op}_pool{count}d"


def sides(m: Any, count: int) -> tuple[Side, ...]:
    """A pool's windows along each of its dims, as it is set now."""

    def each(value: Any) -> tuple[int, ...]:
        return (value,) * count if isinstance(value, int) else tuple(value)

    found = [each(getattr(m, setting, 1)) for setting in ("kernel_size", "stride", "padding", "dilation")]
    return tuple(zip(*found, strict=True))


def windows(size: int, side: Side) -> int:
    """How many windows there are along a dim of some size."""
    length, step, pad, apart = side
    return (size + 2 * pad - apart * (length - 1) - 1) // step + 1


def _functions(op: str, along: tuple[Side, ...]) -> tuple[Callable[..., Any], ...]:
    """Torch's pool with such settings over one, two and three dims, as kgen reads it."""
    length, step, pad, apart = (tuple(numbers) for numbers in zip(*along, strict=True))

    def max_pool1d(x: Line) -> Any:
        return F.max_pool1d(x, length, step, pad, apart)

    def max_pool2d(x: Plane) -> Any:
        return F.max_pool2d(x, length, step, pad, apart)

    def max_pool3d(x: Volume) -> Any:
        return F.max_pool3d(x, length, step, pad, apart)

    def avg_pool1d(x: Line) -> Any:
        return F.avg_pool1d(x, length, step, pad)

    def avg_pool2d(x: Plane) -> Any:
        return F.avg_pool2d(x, length, step, pad)

    def avg_pool3d(x: Volume) -> Any:
        return F.avg_pool3d(x, length, step, pad)

    return (max_pool1d, max_pool2d, max_pool3d) if op == "max" else (avg_pool1d, avg_pool2d, avg_pool3d)


@cache
def pool(op: str, along: tuple[Side, ...]) -> Kernel:
    """The kernel of a pool."""
    return loads(to_spec(trace(_functions(op, along)[len(along) - 1])))


def kind(m: Any) -> tuple[str, int]:
    """The reduction and the number of dims of a pool of torch's."""
    return next(found for of, found in POOLS.items() if isinstance(m, of))


def lacks(m: Any) -> str:
    """What of the settings of a pool of torch's no kernel has."""
    return refused(m, sides(m, kind(m)[1]))


def refused(m: Any, along: tuple[Side, ...]) -> str:
    """What of a pool's settings, with such windows, no kernel has."""
    if math.prod(side[0] for side in along) > MOST:
        return f"its windows have more than {MOST} elements"
    if any(min(length, step, apart) < 1 or not 0 <= 2 * pad <= length for length, step, pad, apart in along):
        return "torch refuses its windows"
    if m.ceil_mode:
        return "it rounds sizes up"
    if getattr(m, "return_indices", False):
        return "it returns places too"
    if not getattr(m, "count_include_pad", True) and any(side[2] for side in along):
        return "it leaves padding out of its means"
    return "it divides by another number" if getattr(m, "divisor_override", None) is not None else ""


def called(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any]) -> Any:
    """The result of a pool's call, by the kernel of its settings; NotImplemented for what the layer itself is to take or to refuse."""
    (x,) = inputs
    op, count = next(found for found in POOLS.values() if name(*found) == kernel.name)
    along = sides(m, count)
    if x.dim() - count not in (1, 2) or not x.numel() or not x.is_contiguous() or not x.is_floating_point() or refused(m, along):
        return NotImplemented
    if op == "max" and x.requires_grad and torch.is_grad_enabled() and isinstance(m, tuple(POOLS)):
        return NotImplemented
    fits = all(windows(n, side) > 0 for n, side in zip(x.shape[-count:], along, strict=True))
    return pool(op, along)(x) if fits else NotImplemented
