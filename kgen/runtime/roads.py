"""Which passes a call takes where a kernel reduces by keys that each row has its own of (`kgen/segments.py`).

In: a kernel, a call's sizes, its target.  Out: the kernel to launch: as it stands it sorts each row's keys; where these are few, it
compares them with each result's one by one, if blocks that sort them do not reduce by them as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgen.backends import launches
from kgen.backends.keyed import reduction
from kgen.check import Kernel
from kgen.passes import Sort
from kgen.runtime import keys
from kgen.types import resolve_named


def sorted_along(kernel: Kernel) -> frozenset[str]:
    """The dims along which each row's own keys are sorted."""
    if not kernel.reduces or not {"eq", "index"} <= {v.op for v in kernel.values}:
        return frozenset()
    from kgen import pipeline

    lets = pipeline.expanded(kernel, kernel.bindings()[0]).lets
    return frozenset(let.expr.attrs[1] for let in lets if let.expr.name == "keyed")


def reduced_at_once(kernel: Kernel, call: Any) -> bool:
    """Whether CUDA's blocks reduce what stands beside each row's keys where they sort these (`kgen/runtime/keys.py`)."""
    from kgen import pipeline

    passes = pipeline.plan(kernel, {v: resolve_named(dtype, {}) for v, dtype in call.binding.items()}).passes
    sorts = [(k, p) for k, p in enumerate(passes) if isinstance(p, Sort) and p.rows]
    return all(reduction(passes, k) is not None and call.size(p.dims[-1]) <= keys.TABLE for k, p in sorts)


def taken(kernel: Kernel, call: Any, target: str) -> Kernel:
    """The kernel whose passes a call (a `kgen.runtime.arguments.Call`) takes on a target: itself, or as one that compares keys."""
    few, along = launches.KEYED_FEW.get(target, 0), sorted_along(kernel)
    if not along or any(call.size(d) > few for d in along) or target == "cuda" and reduced_at_once(kernel, call):
        return kernel
    return replace(kernel, compared=True)
