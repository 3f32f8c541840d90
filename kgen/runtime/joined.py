"""Tensors as people have them, and the dims that a header splits their axes into.

In: a call of a kernel one of whose tensors has several dims in an axis (`x: T[M, G*128]`).  Out: the same call of its *plain* kernel,
whose axes are one dim each: arguments and results are views.  Gradients, graphs and launches know plain kernels alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kgen import check as checker
from kgen.runtime import arguments
from kgen.runtime.views import hearing, teach
from kgen.types import ELLIPSIS, Dims, axes, is_literal, literal_size, shown_axis

if TYPE_CHECKING:
    from kgen.check import ResultDecl
    from kgen.runtime.kernel import Kernel
    from kgen.values import Parameter


def call(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
    """What the kernel returns for tensors as they are declared.  Raises `KgenError` where one cannot be split so."""
    given = arguments.matched(kernel.kernel, args, kwargs)
    plain_kernel = kernel._plain
    assert plain_kernel is not None
    sizes, views = split(kernel.kernel, given)
    further: dict[str, Any] = {} if target is None else {"target": target}
    fresh = [r for r in kernel.kernel.results if r.state is None]
    if out is not None:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if len(outs) == len(fresh) and any(not t.numel() for t in outs):  # these are resized
            results = _tuple(plain_kernel(*views, **further))
            for t, r, made in zip(outs, fresh, results, strict=True):
                whole = joined(r, made)
                t.resize_(whole.shape).copy_(whole)
            return out
        further["out"] = tuple(view(kernel.kernel, r, t, sizes, "out") for r, t in zip(fresh, outs, strict=False)) + outs[len(fresh) :]
    if torch.compiler.is_compiling():
        results, heard = _tuple(plain_kernel(*views, **further)), None
    else:
        with hearing() as heard:
            results = _tuple(plain_kernel(*views, **further))
    made = results if out is not None else tuple([joined(r, t) for r, t in zip(fresh, results, strict=True)])
    if heard is not None:
        tensors = [x for p, x in zip(kernel.kernel.params, views, strict=True) if p.is_tensor]
        teach(kernel, heard, (args, kwargs, out, target), [*tensors, *further.get("out", ())], made, results)
    if out is not None:
        return out
    return None if not made else made[0] if len(made) == 1 else made


def foreach(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
    """The same over lists of tensors."""
    given = arguments.matched(kernel.kernel, args, kwargs)
    plain_kernel = kernel._plain
    assert plain_kernel is not None
    params = [p for p in kernel.kernel.params if p.is_tensor]
    lists = {p.name: list(given[p.name]) for p in params if p.dims and not hasattr(given[p.name], "shape")}
    count = min(map(len, lists.values()), default=0)
    sized = []
    for k in range(count):
        one = {name: lists[name][k] if name in lists else x for name, x in given.items()}
        sizes, views = split(kernel.kernel, one)
        sized.append(sizes)
        for p, x in zip(kernel.kernel.params, views, strict=True):
            if p.name in lists:
                lists[p.name][k] = x
    further: dict[str, Any] = {} if target is None else {"target": target}
    fresh = [r for r in kernel.kernel.results if r.state is None]
    if out is not None:
        outs = tuple(out) if len(fresh) != 1 or isinstance(out[0], (tuple, list)) else (out,)
        pairs = zip(fresh, outs, strict=False)
        viewed = tuple([view(kernel.kernel, r, t, s, "out") for t, s in zip(of, sized, strict=False)] for r, of in pairs)
        further["out"] = viewed[0] if len(viewed) == 1 else viewed
    results = plain_kernel.foreach(*[lists.get(name, x) for name, x in given.items()], **further)
    if out is not None or not fresh:
        return out
    several = results if len(fresh) > 1 else (results,)
    made = tuple([joined(r, t) for t in of] for r, of in zip(fresh, several, strict=True))
    return made if len(made) > 1 else made[0]


def split(kernel: checker.Kernel, given: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    """The sizes of the dims, and the arguments with an axis for each dim, in order.  Raises `KgenError` where a size is no multiple of
    what its other factors make."""
    tensors = [(p, given[p.name]) for p in kernel.params if p.is_tensor and hasattr(given[p.name], "unflatten")]
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    parts: list[tuple[Parameter, Dims, int]] = []
    for p, t in tensors:
        named = [axis for axis in axes(p.dims or (), p.factors) if axis != (ELLIPSIS,)]
        lead = t.dim() - len(named)
        if lead < 0 or lead > 0 and ELLIPSIS not in (p.dims or ()):
            raise arguments.wrong(kernel, f"{p.name} has {t.dim()} dims", f"it is declared `{arguments.declared(kernel, p)}`")
        parts += [(p, axis, size) for axis, size in zip(named, t.shape[lead:], strict=True)]
    for p, (dim, *more), size in parts:
        if not more and not is_literal(dim):
            sizes.setdefault(dim, size)
            owner.setdefault(dim, p.name)
    waiting = [part for part in parts if len(part[1]) > 1]
    while waiting:
        arguments.follow(kernel, sizes, given)
        ready = [part for part in waiting if sum(d not in sizes and not is_literal(d) for d in part[1]) < 2]
        for p, axis, size in ready or waiting:
            _divide(kernel, p, axis, size, sizes, owner)
        waiting = [part for part in waiting if part not in ready and ready]
    views = [view(kernel, p, given[p.name], sizes, p.name) if p.is_tensor else given[p.name] for p in kernel.params]
    return sizes, views


def _divide(kernel: checker.Kernel, p: Parameter, axis: Dims, size: int, sizes: dict[str, int], owner: dict[str, str]) -> None:
    """Find the one open size of an axis; raise `KgenError` where there is none that fits."""
    known = [literal_size(d) if is_literal(d) else sizes[d] for d in axis if is_literal(d) or d in sizes]
    halves = kernel.file.halves
    rest, shown = math.prod(known), shown_axis(axis, halves)
    found = [f"{owner[d]} has {sizes[d]} bytes of two" if d in halves else f"{d} is {sizes[d]} in {owner[d]}" for d in axis if d in owner]
    where = f" ({', '.join(found)})" if found else ""
    if len(known) == len(axis):
        if rest != size:
            raise arguments.wrong(kernel, f"{p.name} has {size} along {shown}, which is {rest}{where}")
        return
    dim = next(d for d in axis if d not in sizes and not is_literal(d))
    if rest and size % rest:
        shared = f", of which {rest} share a byte" if dim in halves else ""
        raise arguments.wrong(kernel, f"{p.name} has {size} along {shown}{shared}: {size} is no multiple of {rest}{where}")
    sizes[dim] = size // rest if rest else 0
    owner[dim] = p.name


def view(kernel: checker.Kernel, declared: Parameter | ResultDecl, t: Any, sizes: dict[str, int], name: str) -> Any:
    """A tensor with an axis for each dim; one that is not split, and what is no tensor, as it is.  Raises `KgenError` where its sizes
    are others."""
    if not declared.factors or not hasattr(t, "unflatten"):
        return t
    by_axis = axes(declared.dims or (), declared.factors)
    for k, axis in enumerate(reversed(by_axis)):
        if len(axis) > 1:
            shape = [literal_size(d) if is_literal(d) else sizes[d] for d in axis]
            at = t.dim() - 1 - sum(map(len, by_axis[len(by_axis) - k :]))
            if at < 0 or t.shape[at] != math.prod(shape):
                shown = shown_axis(axis, kernel.file.halves)
                raise arguments.wrong(kernel, f"{name} has shape {list(t.shape)}, but {shown} is {math.prod(shape)}")
            t = t.unflatten(at, shape)
    return t


def joined(declared: Parameter | ResultDecl, t: Any) -> Any:
    """A tensor with an axis for each dim as it is declared."""
    if not declared.factors:
        return t
    end = t.dim()
    for axis in reversed(axes(declared.dims or (), declared.factors)):
        if len(axis) > 1:
            t = t.flatten(end - len(axis), end - 1)
        end -= len(axis)
    return t


def _tuple(results: Any) -> Sequence[Any]:
    return results if isinstance(results, (tuple, list)) else () if results is None else (results,)
