"""Arguments of a size for a kernel: what `kgen bench` times it on, and what `kgen show` compiles it for."""

from __future__ import annotations

import math
from typing import Any

from kgen.check import Kernel, Parameter
from kgen.ops import REDUCTIONS
from kgen.runtime import placed
from kgen.runtime.arguments import default, follow
from kgen.runtime.joined import joined
from kgen.scanned import over
from kgen.sized import names
from kgen.types import ELLIPSIS, resolve_named

ROW = 4096  # elements along the dims that are reduced, or along a named dim


def arguments(kernel: Kernel, dtype: str, elements: int, device: str, row: int = ROW) -> dict[str, Any]:
    """Random arguments of about `elements` elements in the largest operand; dense, aligned.

    The dims that are reduced have `row` elements together, literals among them (the last open one the most), in a kernel without
    reductions each named dim has as far as the elements last; of the dims that stay, the first takes what is left.  Integers that the
    formula takes for places lie inside, those between which places lie go through all of them, one range after the other (`places`).
    """
    import torch

    fixed = kernel.literals
    given: dict[str, Any] = {p.name: _number(p) for p in kernel.params if not p.is_tensor}
    every = [*(d for p in kernel.params for d in p.dims or ()), *(n for c in kernel.clauses for n in names(c.value))]
    followed = {ELLIPSIS, *fixed, *given, *(c.name.name for c in kernel.clauses)}
    named = [d for d in dict.fromkeys(every) if d not in followed]
    elements = max(1, elements // math.prod(fixed.values()))
    reduced = {d for v in kernel.values if (v.op in REDUCTIONS or v.op == "pick") and v.attr for d in v.attr}
    reduced |= {d for v in kernel.values for d in over(v.op, v.attr)}
    leading = any(ELLIPSIS in (p.dims or ()) for p in kernel.params)
    batch: list[int]
    if reduced:
        row = max(1, min(row // math.prod(n for d, n in fixed.items() if d in reduced), elements))
        inner = [d for d in named if d in reduced]
        sizes = dict.fromkeys(inner, 8)
        if inner:
            sizes[inner[-1]] = max(1, row // 8 ** (len(inner) - 1))
        kept = [d for d in named if d not in reduced]
        left = max(1, elements // math.prod(sizes.values()))
        for d in reversed(kept if leading else kept[1:]):
            sizes[d] = min(64, left)
            left //= sizes[d]
        batch = [max(1, left)]
        if kept and not leading:
            sizes[kept[0]] = max(1, left)
    else:
        sizes, left = {}, elements
        for d in reversed(named):
            sizes[d] = min(row, left)
            left //= sizes[d]
        batch = [max(1, elements // math.prod(sizes.values()))] if named else [elements]
    sizes |= fixed
    follow(kernel, sizes, given)
    within, between = placed.keys(kernel) | placed.picked(kernel), placed.ranges(kernel)
    for p in kernel.params:
        if p.dims is None:
            continue
        stored = resolve_named(p.dtype, dict.fromkeys(kernel.variables, dtype))
        shape = (batch if ELLIPSIS in p.dims else []) + [sizes[d] for d in p.dims if d != ELLIPSIS]
        torch_dtype = getattr(torch, stored.torch)
        if stored.is_float:
            given[p.name] = torch.randn(shape, device=device, dtype=torch.float32).to(torch_dtype)
        elif p.name in between and p.name not in within:
            dim, ends = between[p.name]
            given[p.name] = range_ends(sizes.get(dim, math.prod(batch)), shape, ends).to(device, torch_dtype)
        else:
            own = [sizes.get(d, math.prod(batch)) for d in within.get(p.name, ())]
            top = 2 if stored.kind == "bool" else min(own, default=min(100, *sizes.values(), 100))
            top = max(1, min(top, 2 ** (stored.bits - (stored.kind == "int"))))
            given[p.name] = torch.randint(0, top, shape, device=device).to(getattr(torch, stored.stored.torch)).view(torch_dtype)
    for r in kernel.results:
        if r.state is not None:
            given[r.state] = given[r.state].abs()  # second moments are not negative
    return {p.name: joined(p, given[p.name]) if p.is_tensor else given[p.name] for p in kernel.params}


def range_ends(size: int, shape: list[int], ends: frozenset[bool]) -> Any:
    """Where ranges begin (False in `ends`), end (True) or both, that lie one behind another along `size` places: integers on the CPU, which
    never decrease along the last dim; those of as many ranges fit together."""
    import torch

    count = shape[-1] if shape else 1
    inner = count - (1 if len(ends) == 1 else 2)  # without the first place, or the last
    drawn = torch.rand(max(0, inner), generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    cuts = (drawn * (size + 1)).long().clamp(max=size).sort().values
    first, last = torch.zeros(1, dtype=torch.int64), torch.full((1,), size)
    row = torch.cat(([first] if False in ends else []) + [cuts] + ([last] if True in ends else []))[:count]
    return row.expand(shape).contiguous() if shape else row[0]


def _number(p: Parameter) -> float | int:
    """A number for a parameter: its default, if it has one."""
    return default(p) if p.default is not None else 3 if p.dtype == "int" else 0.5
