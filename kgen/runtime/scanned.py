"""Scans evaluated by PyTorch.

In: a scan of a kernel's graph, its operands as the evaluator keeps them.  Out: its value.  What torch has not, recurrences and sums that
begin anew, is made in rounds, each joining twice as many steps; so are sums in f64, which torch adds one behind the other: of many elements
that would be less exact than what is held to it.  Unsigned integers of 16 bits and more are their carriers (`unsigned.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from kgen.check import Value
from kgen.ops import SCANS
from kgen.ops.scans import split
from kgen.runtime import unsigned
from kgen.types import DType, Float, u16, u32, u64

if TYPE_CHECKING:
    from kgen.runtime.evaluate import Evaluator


def scan(e: Evaluator, v: Value, args: list) -> Any:
    """A scan's value, in the dtype that the evaluator's mode computes it in."""
    torch, (dim, _, _) = e.torch, split(tuple(v.attr))
    own = operands(e, v, args, dim)
    at = e.places(own[0], (dim,))[0]
    if v.type is u64:  # in the order of its carrier
        return unsigned.turned(along(torch, v, [unsigned.turned(t) for t in own], at))
    return along(torch, v, own, at, e.mode != "eager")


def operands(e: Evaluator, v: Value, args: list, dim: str) -> list:
    """The operands as tensors of one shape and dtype, in full along the scan's dim."""
    torch = e.torch
    double = {float: torch.float64}  # what a number is; torch would make a float32 of it
    tensors = [
        a if isinstance(a, torch.Tensor) else torch.tensor(a, dtype=double.get(type(a)), device=e.device).reshape([1] * len(e.order))
        for a in args
    ]
    if isinstance(v.type, DType):
        wanted = torch.int64 if v.type in unsigned.WIDE else getattr(torch, v.type.torch)
    else:
        assert isinstance(v.type, Float)
        wanted = reduce(torch.promote_types, map(e.float_dtype, sorted(v.type.of)))
        if e.mode != "eager":
            wanted = torch.float64 if e.mode == "exact" or wanted == torch.float64 else torch.float32
    return [e.whole(t.to(wanted), (dim,)) for t in torch.broadcast_tensors(*tensors)]


def along(torch: Any, v: Value, own: list, at: int, in_rounds: bool = False) -> Any:
    """A scan of whole tensors along dim `at`; with `in_rounds` no sum in f64 passes through more joins than the logarithm of their
    number."""
    _, backwards, exclusive = split(tuple(v.attr))
    if own[0].shape[at] == 0:
        return own[-1]
    if backwards:
        own = [t.flip(at) for t in own]
    function = SCANS[v.op].torch
    if in_rounds and v.op in JOINED and own[0].dtype == torch.float64 and not own[0].requires_grad:
        function = partial(rounds, JOINED[v.op])
    found = OWN[v.op](torch, *own, at) if function is None else function(torch, *own, at)
    if exclusive:
        first = torch.full_like(found.narrow(at, 0, 1), identity(torch, v, found.dtype))
        found = torch.cat([first, found.narrow(at, 0, found.shape[at] - 1)], at)
    return found.flip(at) if backwards else found


def identity(torch: Any, v: Value, dtype: Any) -> float | int:
    """What stands before the first element of a scan that is carried in a dtype; of a u64, whose carrier is turned, as of an i64."""
    if v.op in ("cumsum", "recur", "cumsum_since"):
        return 0
    if v.op == "cumprod":
        return 1
    if dtype.is_floating_point:
        return float("inf") if v.op == "cummin" else float("-inf")
    info = v.type.limits if isinstance(v.type, DType) and v.type in (u16, u32) else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    return info[v.op == "cummin"]


def rounds(join: str, torch: Any, x: Any, at: int) -> Any:
    """The elements up to each along a dim, joined by a function of torch."""
    x, step = x.movedim(at, -1), 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], getattr(torch, join)(x[..., :-step], x[..., step:])], -1)
        step *= 2
    return x.movedim(-1, at)


def recurrence(torch: Any, a: Any, b: Any, at: int) -> Any:
    """h' = a h + b along a dim, from h = 0."""
    a, b = (t.movedim(at, -1).clone() for t in (a, b))
    n, step = a.shape[-1], 1
    b[..., 0] = a[..., 0] * 0 + b[..., 0]
    while step < n:
        low, high = (..., slice(0, n - step)), (..., slice(step, n))
        b, a = torch.cat([b[..., :step], a[high] * b[low] + b[high]], -1), torch.cat([a[..., :step], a[high] * a[low]], -1)
        step *= 2
    return b.movedim(-1, at)


def since(torch: Any, begins: Any, x: Any, at: int) -> Any:
    """The sums of x along a dim since the last place where `begins` is not 0."""
    begun, x = begins.movedim(at, -1) != 0, x.movedim(at, -1)
    n, step = x.shape[-1], 1
    while step < n:
        x = torch.cat([x[..., :step], torch.where(begun[..., step:], x[..., step:], x[..., :-step] + x[..., step:])], -1)
        begun = torch.cat([begun[..., :step], begun[..., step:] | begun[..., :-step]], -1)
        step *= 2
    return x.movedim(-1, at)


#: Sums, and what joins two of their parts.
JOINED = {"cumsum": "add", "logcumsumexp": "logaddexp"}
#: The scans that torch has not.
OWN: dict[str, Callable[..., Any]] = {"recur": recurrence, "cumsum_since": since}
