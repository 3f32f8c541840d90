"""Searches evaluated by PyTorch: a row is sorted, or taken as it stands, its weights are added up, and the first that reaches is found.

In: an `Evaluator`, a value and its operands.  Out: the value.  Kernels find the same by trying bits (`kgen/selection.py`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from kgen.check import Value
from kgen.runtime import unsigned
from kgen.searches import SEARCHES, compared_type
from kgen.types import ELLIPSIS, DType, Float, u16, u32, u64

if TYPE_CHECKING:
    from kgen.runtime.evaluate import Evaluator


def search(e: Evaluator, v: Value, args: list) -> Any:
    """The value of `cutoff` or `reach`, its dims kept, as 1."""
    torch = e.torch
    x, weights, amount, dims = operands(e, v, args)
    turned = v.type is u64 and not x.dtype.is_floating_point
    x = unsigned.turned(x) if turned else x
    narrow = v.type if isinstance(v.type, DType) and v.type in (u16, u32) and not x.dtype.is_floating_point else None
    low, high = narrow.limits if narrow else ends(torch, x.dtype)  # that ends before its carrier
    if v.op == "cutoff":
        order = x.argsort(dim=-1, descending=True, stable=True)  # NaN comes first
        x, weights = x.gather(-1, order), weights.gather(-1, order)
    total = weights.cumsum(-1)
    if v.op == "cutoff" and x.shape[-1]:  # what is equal weighs together
        last = ~alike(x[..., 1:], x[..., :-1])
        whole = torch.cat([last, torch.ones_like(x[..., :1], dtype=torch.bool)], -1)
        total = torch.where(whole, total, torch.zeros_like(total) + ends(torch, total.dtype)[0])
    reached = torch.cat([total >= amount, torch.ones_like(amount, dtype=torch.bool)], -1)
    at = reached.to(torch.uint8).argmax(-1, keepdim=True)
    if v.op == "cutoff":
        least, greatest = (torch.full((*x.shape[:-1], 1), end, dtype=x.dtype, device=x.device) for end in (low, high))
        found = torch.where(amount <= 0, greatest, torch.cat([x + 0, least], -1).gather(-1, at))  # a zero is 0.0
        found = unsigned.turned(found) if turned else found
    else:
        found = torch.where(amount <= 0, -1, at)
    return restored(found, dims)


def operands(e: Evaluator, v: Value, args: list) -> tuple[Any, Any, Any, list[int]]:
    """What is searched (of places, the weights again), the weights and the amount, the dims that are searched as one, the last; and where
    those dims stood."""
    torch, over = e.torch, tuple(v.attr)
    common = compared_type(v.op, [e.kernel.values[a] for a in v.args])
    exact = torch.float64 if e.mode == "exact" else None
    dtype = (exact or getattr(torch, common.compute(e.binding).torch)) if isinstance(common, Float) else torch.int64
    given = [a if isinstance(a, torch.Tensor) else torch.tensor(a, device=e.device) for a in args]
    types = [e.kernel.values[a].type for a in v.args]
    weights, amount = ((unsigned.number(given[k], types[k]) if dtype.is_floating_point else given[k]).to(dtype) for k in SEARCHES[v.op])
    every = [given[0] if v.op == "cutoff" else weights, weights, amount]
    lead = len(e.batch) if ELLIPSIS in over else 0  # those of another parameter may be more than the operands'
    rank = max(lead + len(e.order), *(t.dim() for t in every))
    every = [t.reshape([1] * (rank - t.dim()) + list(t.shape)) for t in every]
    dims = e.places(every[0], over)
    shape = list(torch.broadcast_shapes(*(e.whole(t, over).shape for t in every[:2])))
    rows = [1 if d in dims else n for d, n in enumerate(torch.broadcast_shapes(*(
        [1 if d in dims else n for d, n in enumerate(t.shape)] for t in every)))]  # fmt: skip
    full = [shape[d] if d in dims else n for d, n in enumerate(rows)]
    x, weights = (flat(t.expand(full), dims) for t in every[:2])
    return x, weights, flat(every[2].expand(rows), dims), dims


def alike(a: Any, b: Any) -> Any:
    """Where elements are equal, or both NaN."""
    return (a == b) | (a != a) & (b != b)


def ends(torch: Any, dtype: Any) -> tuple[Any, Any]:
    """What a search for a value gives where nothing reaches, and where nothing is needed."""
    return (-math.inf, math.nan) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)


def flat(x: Any, dims: list[int]) -> Any:
    """A tensor with some dims as one, its last, in their order."""
    kept = [d for d in range(x.dim()) if d not in dims]
    return x.permute((*kept, *dims)).reshape(*(x.shape[d] for d in kept), math.prod(x.shape[d] for d in dims))


def restored(x: Any, dims: list[int]) -> Any:
    """A tensor whose last dim, of one element, stands for some dims, with each of these as 1."""
    x = x.squeeze(-1)
    for d in sorted(dims):
        x = x.unsqueeze(d)
    return x
