"""Torch's pools: a spec for each setting of a layer.

In: a layer such as `nn.MaxPool2d(3, 2, 1)`.  Out: the kernel of its windows, one for the process, and its calls.  Where gradients of maxima
are asked for, a patched layer is torch's own: it gives a window's gradient to the first of equal elements, a kernel to each its share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import nn

from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel, loads

#: The most elements of a window: one of more is no single reading.
MOST = 128
#: Of each of torch's pools its reduction and its number of dims.
POOLS: dict[type[nn.Module], tuple[str, int]] = {
    nn.MaxPool1d: ("max", 1), nn.MaxPool2d: ("max", 2), nn.MaxPool3d: ("max", 3),
    nn.AvgPool1d: ("avg", 1), nn.AvgPool2d: ("avg", 2), nn.AvgPool3d: ("avg", 3),
}  # fmt: skip

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


def spec(op: str, along: tuple[Side, ...], fill: bool) -> str:
    """The text of a pool's spec; `fill`: it says what stands outside."""
    dims, outs, inner = "DHW"[-len(along) :], "PQR"[: len(along)], "IJK"[: len(along)]
    clauses, places, results = [], [], []
    for d, out, i, (length, step, pad, apart) in zip(dims, outs, inner, along, strict=True):
        more = step - apart * (length - 1) - 1 + 2 * pad
        same = step == 1 and not more  # as many windows as elements
        results.append(d if same else out)
        moved = f"({d} {'+' if more > 0 else '-'} {abs(more)})" if more else d
        clauses += [] if same else [f"{out} = {moved} // {step}" if step > 1 else f"{out} = {moved.strip('()')}"]
        clauses.append(f"{i} = {length}")
        at = f"{step} * index[{results[-1]}]" if step > 1 else f"index[{results[-1]}]"
        places.append(f"{d} = {at} + {f'{apart} * ' if apart > 1 else ''}index[{i}]{f' - {pad}' if pad else ''}")
    outside = (" else -inf" if op == "max" else " else 0") * fill
    head = f"{name(op, len(along))}(x: T[..., {', '.join(dims)}]) -> y: T[..., {', '.join(results)}] where {', '.join(clauses)}"
    return f"{head}\n\ny = {'max' if op == 'max' else 'mean'}[{', '.join(inner)}](x[{', '.join(places)}{outside}])\n"


@cache
def pool(op: str, along: tuple[Side, ...]) -> Kernel:
    """The kernel of a pool."""
    try:
        return loads(spec(op, along, True))
    except KgenError:  # every place lies inside
        return loads(spec(op, along, False))


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
    fits = all(0 <= 2 * side[2] <= side[0] and windows(n, side) > 0 for n, side in zip(x.shape[-count:], along, strict=True))
    return pool(op, along)(x) if fits else NotImplemented


__all__ = ["POOLS", "Side", "called", "kind", "lacks", "name", "pool", "refused", "sides", "spec", "windows"]
