"""Batches and broadcasting: a kernel over more leading dims than its tensors share.

In: a kernel's arguments, some with a batch dim (under vmap) or with leading dims of different shapes (where a gradient must be
summed over what a tensor lacks).  Out: the results, by one call of the kernel where its own broadcasting does it, else by one
call of a kernel whose leading dims have names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel
from kgen.specialise import counts_leading, fresh_dims, reduces_leading, specialise
from kgen.torch_op.traits import Traits, as_tuple, runnable
from kgen.types import ELLIPSIS


def same_leading(t: Traits, arguments: Sequence[Any]) -> bool:
    """Whether all leading dims have the same shape, as derivatives are made for."""
    if len(t.leading) < 2:
        return True
    (k, named), *others = t.leading
    first = arguments[k].shape
    first = first[: len(first) - named]
    for k, named in others:
        shape = arguments[k].shape
        if shape[: len(shape) - named] != first:
            return False
    return True


def aligned(t: Traits, arguments: Sequence[Any], target: str | None) -> tuple:
    """The results of a call whose leading dims broadcast, differentiable in each argument's own shape."""
    return _named(t, arguments, frozenset(), target, call)


def batched(
    t: Traits, arguments: Sequence[Any], in_dims: Sequence[int | None], target: str | None, invoke: Callable | None = None
) -> tuple:
    """The results of a call for each element along a batch dim, which stands first in all of them.

    `in_dims` says where each argument has that dim (None: it has not); `invoke` calls a kernel where it is not to be called as
    users do.  Raises `KgenError` where the kernel would write an argument without that dim in place.
    """
    places = frozenset(k for k, d in enumerate(in_dims) if d is not None)
    new = [x if k not in places else x.movedim(in_dims[k], 0) for k, x in enumerate(arguments)]
    if places and (lacking := [k for k in t.states if k not in places]):
        raise KgenError(
            f"{t.checked.name}: {t.names[lacking[0]]} is written in place and has no batch dim",
            help="under vmap it must be batched, since another argument is",
        )
    leading = dict(t.leading)
    if not (places <= leading.keys() and _pointwise(t)):
        return _named(t, new, places, target, invoke or call)
    rank = max(new[k].dim() - named - (k in places) for k, named in leading.items())
    for k in places:
        missing = rank - (new[k].dim() - leading[k] - 1)
        if missing:
            new[k] = new[k].reshape(new[k].shape[0], *(1,) * missing, *new[k].shape[1:])
    return as_tuple((invoke or call)(t.kernel, new, target))


def call(kernel: Kernel, arguments: Sequence[Any], target: str | None) -> Any:
    """A kernel called as a user calls it."""
    return kernel(*arguments) if target is None else kernel(*arguments, target=target)


def _pointwise(t: Traits) -> bool:
    """Whether the kernel does the same for every element of `...`, so that a batch is just one more of them."""
    if "pointwise" not in t.made:
        t.made["pointwise"] = not _reduces(t) and all(ELLIPSIS in r.dims for r in t.checked.results)
    return t.made["pointwise"]


def _reduces(t: Traits) -> bool:
    if "reduces" not in t.made:
        t.made["reduces"] = reduces_leading(t.checked)
    return t.made["reduces"]


def _named(t: Traits, arguments: Sequence[Any], places: frozenset[int], target: str | None, invoke: Callable) -> tuple:
    """The results by a kernel whose leading dims have names; `places` have a batch dim in front."""
    new = list(arguments)
    sizes = {k: new[k].shape[new[k].dim() - named :] for k, named in t.leading}
    heads = {k: new[k].shape[(k in places) : new[k].dim() - named] for k, named in t.leading}
    batch = tuple(torch.broadcast_shapes(*heads.values()))
    rank, reshaped = len(batch), False
    has: dict[int, tuple[bool, ...]] = {}
    if _reduces(t):
        # a reduction over `...` counts every element of it, also where its operand broadcasts
        for k, _ in t.leading:
            new[k] = new[k].expand((*new[k].shape[: k in places], *batch, *sizes[k]))
        if not places:
            return as_tuple(invoke(t.kernel, new, target))
        reshaped = not rank or rank > 1 and counts_leading(t.checked)
        if reshaped:
            rank = 1
            for k, _ in t.leading:
                new[k] = new[k].reshape((*new[k].shape[: k in places], _product(batch), *sizes[k]))
        has = {k: (True,) * rank for k, _ in t.leading}
    else:
        for k, _ in t.leading:
            before = rank - len(heads[k])
            has[k] = tuple(i >= before and not (heads[k][i - before] == 1 and batch[i] != 1) for i in range(rank))
            dropped = tuple((k in places) + i - before for i in range(before, rank) if not has[k][i])
            new[k] = new[k].squeeze(dropped) if dropped else new[k]
    key = ("named", places, rank, tuple(has.items()))
    kernel = t.made.get(key)
    if kernel is None:
        kernel = t.made[key] = _kernel(t, places, rank, has)
    results = as_tuple(invoke(kernel, new, target))
    if not reshaped:
        return results
    fresh = [r for r in t.checked.results if r.state is None]
    return tuple(x.reshape(x.shape[0], *batch, *x.shape[2:]) if ELLIPSIS in r.dims else x for x, r in zip(results, fresh, strict=True))


def _kernel(t: Traits, places: frozenset[int], rank: int, has: dict[int, tuple[bool, ...]]) -> Kernel:
    lead, batch = fresh_dims(t.checked, rank)
    dims = {}
    for k in t.tensors:
        p = t.checked.params[k]
        own = tuple(d for d in p.dims or () if d != ELLIPSIS)
        dims[p.name] = (*((batch,) if k in places else ()), *(d for d, there in zip(lead, has.get(k, ())) if there), *own)
    return runnable(t.made, specialise(t.checked, dims, lead, (batch,) if places else ()))


def _product(sizes: Sequence[Any]) -> Any:
    total = 1
    for n in sizes:
        total = total * n
    return total
