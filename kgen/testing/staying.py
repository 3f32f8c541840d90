"""Whether the rows of a call are sure to stay on the chip, on whatever device it runs: then the phases of rows that do not
(`passes.Reduce.long`) are not taken, and a second reading is more exact than joining partial means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kgen import pipeline
from kgen.backends import backend
from kgen.backends.cuda import Cuda
from kgen.backends.cuda_layouts import RowLayout
from kgen.backends.launches import SHIPPED, loops, stays
from kgen.check import Kernel
from kgen.online import About
from kgen.passes import Reduce
from kgen.runtime import cache as disk
from kgen.runtime import tuned
from kgen.testing.forms import lowers
from kgen.types import Dims


@lru_cache(maxsize=64)
def two_ways(kernel: Kernel, target: str) -> tuple[RowLayout, ...]:
    """The passes of a kernel that read a row less often where it does not stay on the chip."""
    made = backend(target)
    assert isinstance(made, Cuda)
    return tuple(u for u in made.layout(kernel) if isinstance(u, RowLayout) and u.long < u.reductions)


def moving(
    about: dict[int, About], kernel: Kernel, arguments: Mapping[str, Any], target: str, count: Callable[[Dims], int]
) -> dict[int, About]:
    """Of sums about a peak, by number, those that may be made while that moves; others are made in a second reading."""
    rides = backend(target).rides
    always = {total: a for total, a in about.items() if a.row.rides(rides, long=False)}
    may = {total: a for total, a in about.items() if total in always or a.row.rides(rides, long=True)}
    return always if always != may and all_stay(kernel, arguments, target, count) else may


def all_stay(kernel: Kernel, arguments: Mapping[str, Any], target: str, count: Callable[[Dims], int]) -> bool:
    """Whether all rows of such passes are sure to stay, launched by kgen's runtime on tensors with the strides of the `arguments`;
    `count` says how many elements dims have."""
    made = backend(target)
    if not isinstance(made, Cuda):
        binding = kernel.bindings()[0]
        if not lowers(kernel, tuple(binding.items())):
            return False
        plan = pipeline.plan(kernel, binding, made.rides)
        long = [p for p in plan.passes if isinstance(p, Reduce) and p.long]
        return all(made.stays(p, count(p.inner), _dense(p, arguments)) for p in long)
    units = two_ways(kernel, target)
    return not units or not _read_each_time(units) and all(_stays(u, arguments, count(u.inner)) for u in units)


def _read_each_time(units: tuple[RowLayout, ...]) -> bool:
    """Whether what was measured on some device, here or for all, may have rows read each time that rules would keep."""
    devices = {*SHIPPED, *(path.stem for path in Path(disk.settings()).glob("sm_*.json"))}
    return any(loops(tuned.ladder(arch, True, u.reductions, u.words, u.narrow, bool(u.pieces))) for arch in devices for u in units)


def _stays(unit: RowLayout, arguments: Mapping[str, Any], elements: int) -> bool:
    kept = [o for o in unit.operands if o.kept]
    if not all(o.name in arguments for o in kept):
        return False  # what another pass left
    held = [arguments[o.name].dtype.itemsize for o in kept]
    ways = (False,) if _along(unit, arguments) else (False, True)
    return all(stays(elements, held, apart, unit.words, unit.reductions) for apart in ways)


def _along(unit: RowLayout, arguments: Mapping[str, Any]) -> bool:
    """Whether the elements of a row are sure to be neighbours in all that is read."""
    read = [o for o in unit.operands if o.element and o.role != "index" and o.role != "result"]
    last = [set(o.dims[len(o.dims) - len(set(o.dims) & set(unit.inner)) :]) <= set(unit.inner) for o in read]
    return all(last) and all(o.name in arguments and arguments[o.name].is_contiguous() for o in read)


def _dense(p: Reduce, arguments: Mapping[str, Any]) -> bool:
    """Whether the elements of a row are sure to be neighbours in all that a pass reads and writes."""
    inner = len(p.inner)
    dims = [d for d in (*(t.dims for t in p.loads), *(s.dims for s in p.stores)) if set(d) & set(p.inner)]
    given = [arguments[t.name] for t in p.loads if t.name in arguments]
    return all(d[-inner:] == p.inner for d in dims) and all(x.is_contiguous() for x in given)
