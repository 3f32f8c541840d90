"""Calls of a kernel that is run over the parts of its tensors.

In: a call of a kernel of which `kgen.parts` made one over parts.  Out: its results, written part by part: what the kernel over parts is
given are views.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgen.parts import Part
from kgen.runtime import arguments, views
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
        with views.hearing() as own:
            _lying(kernel, bound, given, outs, new, own or views.heard())
            parts.runnable._run(given, {}, outs or None, target)
        if own is not None:
            own.plain = True
            tensors = [bound.given[p.name] for p in kernel.kernel.params if p.is_tensor] + list(() if out is None else fresh)
            views.teach(kernel, own, (args, kwargs, out, target), tensors, fresh, fresh)
    return None if not fresh else fresh[0] if len(fresh) == 1 else fresh


def _lying(kernel: Kernel, bound: arguments.Call, given: tuple, outs: tuple, new: list[Part], heard: views.Heard) -> None:
    """Tell a call where the tensors of the kernel over parts lie in its own."""
    inner, parted = kernel._parts.runnable.kernel, kernel._parts.parted
    index = {p.name: k for k, p in enumerate(p for p in kernel.kernel.params if p.is_tensor)}
    index |= {r.name: len(index) + k for k, r in enumerate(r for r in kernel.kernel.results if r.state is None)}
    whole = {**bound.results, **bound.given}
    views_of = [(part.of, t) for part, p, t in zip(parted.params, inner.params, given, strict=True) if p.is_tensor]
    views_of += [(part.of, t) for part, t in zip(new, outs, strict=True)]
    heard.lies = [(index[of], t.data_ptr() - whole[of].data_ptr()) for of, t in views_of]
    heard.numbers = tuple(p.name for p in inner.params if not p.is_tensor)


def view(t: Any, dims: Dims, part: Part) -> Any:
    """A part of a tensor with `dims`."""
    named = [d for d in dims if d != ELLIPSIS]
    for dim, k in part.at:
        t = t.select(t.dim() - len(named) + named.index(dim), k)
        named.remove(dim)
    return t
