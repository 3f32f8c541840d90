"""Which passes a call takes where a kernel reduces by keys that each row has its own of (`kgen/segments.py`).

In: a kernel, a call's sizes, its target.  Out: the kernel to launch: as it stands it sorts each row's keys; where these are few, it
compares them with each result's one by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgen.backends import launches
from kgen.check import Kernel


def sorted_along(kernel: Kernel) -> frozenset[str]:
    """The dims along which each row's own keys are sorted."""
    if not kernel.reduces or not {"eq", "index"} <= {v.op for v in kernel.values}:
        return frozenset()
    from kgen import pipeline

    lets = pipeline.expanded(kernel, kernel.bindings()[0]).lets
    return frozenset(let.expr.attrs[1] for let in lets if let.expr.name == "keyed")


def taken(kernel: Kernel, call: Any, target: str) -> Kernel:
    """The kernel whose passes a call (a `kgen.runtime.arguments.Call`) takes on a target: itself, or as one that compares keys."""
    few, along = launches.KEYED_FEW.get(target, 0), sorted_along(kernel)
    return replace(kernel, compared=True) if along and all(call.size(d) <= few for d in along) else kernel
