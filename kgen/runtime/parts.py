"""Calls of a kernel that is run over the parts of its tensors.

In: a call of a kernel of which `kgen.parts` made one over parts.  Out: its results, written part by part: what the kernel over parts is
given are views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgen.parts import Part
from kgen.runtime import arguments
from kgen.types import ELLIPSIS, Dims

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel


def call(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
    """What the kernel returns.  Raises `KgenError` as `bind` does."""
    parts = kernel._parts
    assert parts is not None
    bound = arguments.bind(kernel.kernel, args, kwargs, out, False)
    fresh = tuple(bound.results[r.name] for r in kernel.kernel.results if r.state is None)
    if any(t.numel() for t in bound.results.values()):
        arguments.refuse_empty(kernel.kernel, bound)
        params = {p.name: p.dims for p in kernel.kernel.params}
        given = tuple([view(bound.given[p.of], params[p.of] or (), p) for p in parts.parted.params])
        results = {r.name: r for r in kernel.kernel.results}
        new = [p for p in parts.parted.results if results[p.of].state is None]
        outs = tuple([view(bound.results[p.of], results[p.of].dims, p) for p in new])
        parts.runnable._run(given, {}, outs or None, target)
    return None if not fresh else fresh[0] if len(fresh) == 1 else fresh


def view(t: Any, dims: Dims, part: Part) -> Any:
    """A part of a tensor with `dims`."""
    named = [d for d in dims if d != ELLIPSIS]
    for dim, k in part.at:
        t = t.select(t.dim() - len(named) + named.index(dim), k)
        named.remove(dim)
    return t


__all__ = ["call", "view"]
