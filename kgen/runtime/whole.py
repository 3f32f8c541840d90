"""Calls over lists whose reductions go over all tensors of them (`Kernel.foreach(..., whole=True)`).

In: a call's arguments.  Out: results without dims as tensors, others as lists.  The terms of every reduction are made by `foreach` of a
map, in one launch for large tensors, of which WAYS parts are read at once, and in one for what is left of these and for small ones; then
one kernel reduces the terms, all in one tensor.  Which term stands where follows from the tensors' shapes and layouts
alone: a call has the same bits in any run.  Nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kgen import specialise, whole
from kgen.errors import KgenError
from kgen.runtime import arguments
from kgen.runtime.foreach import Given, refuse_transforms
from kgen.whole import WAYS

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel

#: Elements from which a tensor is read in parts, and of what its parts are multiples (vectors of 16 bytes, of any dtype).
LARGE, STEP = 1 << 13, 16


@dataclass(frozen=True)
class Runnable:
    """The kernels of a `whole.Whole`, that run."""

    levels: tuple[tuple[Kernel, Kernel, tuple[tuple[str, Kernel, bool], ...]], ...]  # each, several, totals
    alone: Kernel | None
    listed: Kernel | None


def _runnable(kernel: Kernel, binding: dict[str, str]) -> Runnable:
    """The kernels for a choice of dtypes, made once."""
    made = kernel.__dict__.setdefault("_wholes", {})
    key = tuple(binding.items())
    if key not in made:
        run = type(kernel)
        parts = whole.whole(specialise.bound(kernel.kernel, binding) if binding else kernel.kernel)
        made[key] = Runnable(
            tuple((run(v.each), run(v.several), tuple((n, run(k), counts) for n, k, counts in v.totals)) for v in parts.levels),
            None if parts.alone is None else run(parts.alone),
            None if parts.listed is None else run(parts.listed),
        )
    return made[key]


class _Call:
    """One call: its tuples of tensors, in groups of one choice of dtypes."""

    def __init__(self, kernel: Kernel, given: Given, target: str | None):
        """Raises `KgenError` where the tensors of a tuple differ in shape, or those of the lists in device or the dtype computed in."""
        self.kernel, self.given, self.further = kernel, given, {} if target is None else {"target": target}
        params = kernel.kernel.params
        self.lists = [p.name for p in params if p.dims]
        self.shared = {p.name: given.values[p.name][0] for p in params if not p.dims}
        if not given.n or any(several for name, (_, several) in given.values.items() if name in self.shared):
            raise self.wrong("with whole=True lists have a tensor or more, and numbers and tensors without dims are shared")
        first = given.at(self.lists[0], 0)
        self.device = first.device if isinstance(first, torch.Tensor) else None
        self.groups: dict[tuple, list[int]] = {}
        self.sizes: list[int] = []
        for k in range(given.n):
            own = [(p, given.at(p.name, k)) for p in params if p.is_tensor]
            for p, t in own:
                if not isinstance(t, torch.Tensor):
                    raise self.wrong(f"{p.name} is {arguments.article(type(t).__name__)}, not a tensor (index {k} of the lists)")
                if t.device != self.device or p.dims and t.shape != given.at(self.lists[0], k).shape:
                    raise self.wrong(f"{p.name} has another device or shape (index {k} of the lists)", "whole=True broadcasts nothing")
            binding = arguments._bind_dtypes(kernel.kernel, own)
            self.groups.setdefault(tuple(binding.items()), []).append(k)
            self.sizes.append(own[[p.name for p, _ in own].index(self.lists[0])][1].numel())
        self.parts = {key: _runnable(kernel, dict(key)) for key in self.groups}
        self.large = [self.part(k) for k in range(given.n)]

    def wrong(self, message: str, help: str = "") -> KgenError:
        return KgenError(f"{self.kernel.name}.foreach: {message}", help=help)

    def part(self, k: int) -> int:
        """The elements of each of WAYS parts of tuple k; 0 where it is not read in parts."""
        n = self.sizes[k]
        large = n >= LARGE and all(self.given.at(name, k).is_contiguous() for name in self.lists)
        return n // (WAYS * STEP) * STEP if large else 0

    def arguments(self, kernel: Kernel, totals: dict[str, Any]) -> dict[str, Any]:
        """What of the shared values and the totals a kernel takes."""
        known = {**self.shared, **totals}
        return {p.name: known[p.name] for p in kernel.kernel.params if p.name in known}

    def level(self, number: int, totals: dict[str, Any]) -> dict[str, Any]:
        """The totals of a level, by name, each a tensor without dims."""
        sizes = [n for k, size in enumerate(self.sizes) for n in (self.large[k], size - WAYS * self.large[k])]
        first = next(iter(self.parts.values())).levels[number]
        dtypes = {tuple(r.dtype for r in parts.levels[number][0].kernel.results) for parts in self.parts.values()}
        if len(dtypes) > 1:
            raise self.wrong("tensors of the lists are computed in several dtypes", "make them one dtype, or all of 32 bits and fewer")
        terms = []
        for r in first[0].kernel.results:
            dtype = getattr(torch, arguments.DTYPES[r.dtype].torch)
            terms.append(torch.empty(sum(sizes), dtype=dtype, device=self.device))
        pieces = [t.split(sizes) for t in terms]
        for key, members in self.groups.items():
            each, several, _ = self.parts[key].levels[number]
            names = [p.name for p in each.kernel.params if p.dims]
            self.terms(several, names, [k for k in members if self.large[k]], True, pieces, totals)
            self.terms(each, names, [k for k in members if self.sizes[k] > WAYS * self.large[k]], False, pieces, totals)
        made = {}
        for (name, total, counts), own in zip(first[2], terms, strict=True):
            made[name] = total(own, *([sum(self.sizes)] if counts else []), **self.further)
        return made

    def terms(
        self, kernel: Kernel, names: list[str], members: list[int], large: bool, pieces: Sequence[Any], totals: dict[str, Any]
    ) -> None:
        """Make the terms of some tuples, of the tensors `names`: of their parts (`large`), or of each element that is in none."""
        if not members:
            return
        columns: list[list[Any]] = []
        for name in names:
            found = [self.split(self.given.at(name, k), self.large[k], large) for k in members]
            columns += [list(own) for own in zip(*found, strict=True)]
        outs = []
        for own in pieces:
            made = [own[2 * k + (not large)] for k in members]
            if not large:  # what is no part of a large tensor has its shape
                made = [t if self.large[k] else t.view(self.given.at(self.lists[0], k).shape) for t, k in zip(made, members, strict=True)]
            outs.append(made)
        lists = dict(zip([p.name for p in kernel.kernel.params if p.dims], columns, strict=True))
        kernel.foreach(**lists, **self.arguments(kernel, totals), out=outs[0] if len(outs) == 1 else tuple(outs), **self.further)

    @staticmethod
    def split(t: Any, part: int, large: bool) -> Sequence[Any]:
        """The parts of a tensor; or the elements behind them, all of one that has none."""
        if large:
            return t.detach().view(-1)[: WAYS * part].view(WAYS, part).unbind(0)
        return (t.view(-1)[WAYS * part :] if part else t,)

    def results(self) -> Any:
        """The results that are not primed, in order."""
        totals: dict[str, Any] = {}
        for number in range(len(next(iter(self.parts.values())).levels)):
            totals |= self.level(number, totals)
        made: dict[str, Any] = {}
        first = next(iter(self.parts.values()))
        if first.alone is not None:
            found = first.alone(**self.arguments(first.alone, totals), **self.further)
            made |= _named(first.alone, found)
        for key, members in self.groups.items():
            listed = self.parts[key].listed
            if listed is None:
                continue
            lists = {name: [self.given.at(name, k) for k in members] for name in self.lists if name in listed._names}
            found = listed.foreach(**lists, **self.arguments(listed, totals), **self.further)
            for name, own in _named(listed, found).items():
                whole_list = made.setdefault(name, [None] * self.given.n)
                for k, t in zip(members, own, strict=True):
                    whole_list[k] = t
        fresh = [made[r.name] for r in self.kernel.kernel.results if r.state is None]
        return None if not fresh else fresh[0] if len(fresh) == 1 else tuple(fresh)


def _named(kernel: Kernel, found: Any) -> dict[str, Any]:
    """What a kernel returned, by the names of its results."""
    names = [r.name for r in kernel.kernel.results if r.state is None]
    return dict(zip(names, (found,) if len(names) == 1 else found or (), strict=True))


def call(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
    """`Kernel.foreach` with `whole`.  Raises `KgenError` as `foreach` does, for a kernel that has named dims or reduces nothing, and for
    `out`."""
    refuse_transforms(kernel.kernel)
    if out is not None:
        raise KgenError(f"{kernel.name}.foreach: whole=True takes no out", help="write in place by a primed result")
    return _Call(kernel, kernel._foreach.given(args, kwargs, None, target), target).results()
