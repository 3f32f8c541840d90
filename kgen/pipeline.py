"""The way from a checked kernel to what a backend prints, in one place: its passes by name, in order.

In: a kernel and what its dtype variables stand for (for `expanded` and what follows also whether sums ride on a maximum, which is
the backend's to say).  Out: what the pass makes.  Each pass verifies what it made where there are rules for it (`ir.verify`).  Results
are kept for the life of their kernel, which nothing changes once it is checked; of many choices of dtypes, the latest.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Protocol, TypeVar

from kgen import columns, hoist, precision, products, reread, rewrite, schedule, taps
from kgen import cost as costs
from kgen import lower as lowering
from kgen.check import Kernel
from kgen.cost import Cost
from kgen.counted import counting
from kgen.interleaved import interleaved
from kgen.ir import Program
from kgen.monoids import Rides
from kgen.onway import beside, on_the_way
from kgen.passes import Map, Pass, Plan, Reduce, Scan
from kgen.pieces import in_pieces
from kgen.searches import SEARCHES
from kgen.types import Binding, f32

R = TypeVar("R", covariant=True)

#: How many results are kept for a kernel: a few choices of its dtypes, by every pass.
KEPT = 32
#: By the kernel's id: equal kernels of different texts have errors at different places.
_kept: dict[int, dict[Any, Any]] = {}


def _of(kernel: Kernel) -> dict[Any, Any]:
    """What is kept for a kernel, as long as that lives."""
    found = _kept.get(id(kernel))
    if found is None:
        found = _kept[id(kernel)] = {}
        weakref.finalize(kernel, _kept.pop, id(kernel), None).atexit = False
    return found


class _Pass(Protocol[R]):
    def __call__(self, kernel: Kernel, binding: Binding, rides: Rides = Rides.NONE) -> R: ...


def _pass(make: Callable[[Kernel, Binding, Rides], R]) -> _Pass[R]:
    @wraps(make)
    def kept(kernel: Kernel, binding: Binding, rides: Rides = Rides.NONE) -> R:
        results, key = _of(kernel), (make.__name__, rides, *binding.items())
        made = results.get(key)
        if made is None:
            made = make(kernel, binding, rides)
            while len(results) >= KEPT:
                results.pop(next(iter(results), None), None)
            results[key] = made
        return made

    return kept


def usual(kernel: Kernel) -> Binding:
    """The dtypes where none are chosen: f32 for every variable."""
    return dict.fromkeys(kernel.variables, f32)


def _rewritten(kernel: Kernel, binding: Binding, sizes: Mapping[str, int]) -> Program:
    """The program after its rules, which see the sizes that are known as numbers."""
    return rewrite.rewrite(lowering.sized(lowered(kernel, binding), sizes))


@_pass
def lowered(kernel: Kernel, binding: Binding, rides: Rides) -> Program:
    """The typed program, every conversion in it; `rides` makes no difference yet."""
    return lowering.lower(kernel, binding)


@_pass
def program(kernel: Kernel, binding: Binding, rides: Rides) -> Program:
    """The program after its rules; `rides` makes no difference yet."""
    return _rewritten(kernel, binding, {})


@_pass
def expanded(kernel: Kernel, binding: Binding, rides: Rides) -> Program:
    """The program in the operations that passes over memory are made of."""
    return schedule.expanded(program(kernel, binding), rides, compared=kernel.compared)


@_pass
def plan(kernel: Kernel, binding: Binding, rides: Rides) -> Plan:
    """The passes over memory.  Raises `KgenError` where they have too many operations."""
    return _finished(schedule.planned(expanded(kernel, binding, rides), rides), kernel)


@_pass
def merged(kernel: Kernel, binding: Binding, rides: Rides) -> Plan:
    """The same, what reduces over rows and over columns of the same elements in one pass, and what rows alone decide once a row."""
    return _merged(schedule.planned(by_columns(kernel, binding, rides), rides), kernel)


@_pass
def by_columns(kernel: Kernel, binding: Binding, rides: Rides) -> Program:
    """The program as a backend that merges passes takes it."""
    return _columned(expanded(kernel, binding, rides))


def _columned(found: Program) -> Program:
    """An expanded program as a backend that merges passes takes it: CUDA, which has rules of its own."""
    return columns.by_columns(rewrite.rewrite(found, rewrite.CUDA_RULES))


def _merged(made: Plan, kernel: Kernel) -> Plan:
    """Passes over memory as a backend that merges them prints them."""
    return _finished(reread.reread(in_pieces(hoist.hoisted(columns.merged(made)), kernel.turned), kernel), kernel)


def _finished(plan: Plan, kernel: Kernel) -> Plan:
    """What every plan ends with: positions that are counted, and the forms of the operators that are then there."""
    return precision.formed(counting(plan), kernel)


def _tapped(program: Program, rides: Rides) -> Plan | None:
    """The passes over memory, neighbours read by taps; None where there are none, or one over rows would have some that it cannot read.
    Windows are none where a pass that reads one would."""
    for in_rows, windows in ((True, True), (False, True), (False, False)):
        if in_rows and rides < Rides.EVERY:
            continue  # CUDA's walks over rows read neighbours
        found = taps.tapped(interleaved(program) if windows and not in_rows else program, windows)
        made = schedule.planned(found, rides, in_rows) if found is not program else None
        if made is not None and all(_reads(p, found, in_rows) for p in made.passes):
            return on_the_way(made) if in_rows else made
    return None


def _reads(p: Pass, program: Program, in_rows: bool) -> bool:
    """Whether a pass can read its taps: a map can, windows of what lies along none of its own dims; with `in_rows` one over rows too that
    leaves nothing but values of these, so far along a dim that it reduces, 0 outside."""
    own = [let for let in p.lets if taps.is_tap(let)]
    if not own or isinstance(p, Map):
        return not any(m.along and m.dim in p.dims for let in own for m in taps.taps_of(let))
    if not in_rows or not isinstance(p, Reduce) or isinstance(p, Scan) or p.long or p.gathers:
        return False
    plain = not any(set(s.dims) & set(p.inner) for s in p.stores) and not any(let.expr.name in SEARCHES for let in p.lets)
    return plain and all(taps.is_beside(let, p.inner, program.by_name) for let in own)


@_pass
def plan_tapped(kernel: Kernel, binding: Binding, rides: Rides) -> Plan:
    """The passes over memory, neighbours read by taps: the passes as they were where one over rows would have some."""
    made = _tapped(expanded(kernel, binding, rides), rides)
    return plan(kernel, binding, rides) if made is None else _finished(made, kernel)


@_pass
def merged_tapped(kernel: Kernel, binding: Binding, rides: Rides) -> Plan:
    """The same of those that are merged."""
    made = _once(kernel, binding, rides) or _tapped(by_columns(kernel, binding, rides), rides)
    return _merged(made, kernel) if made is not None else merged(kernel, binding, rides)


def _once(kernel: Kernel, binding: Binding, rides: Rides) -> Plan | None:
    """The passes over memory where the elements of a vector share what they compute of neighbours and keep none of it, and all is one pass
    over rows; None where that is not so."""
    found = program(kernel, binding)
    if rides < Rides.EVERY or not schedule.shares(found):
        return None
    plan = _tapped(_columned(schedule.expanded(found, rides, True, kernel.compared)), rides)
    plan = beside(plan) if plan is not None else None
    return plan if plan is not None and len(plan.passes) == 1 and not plan.workspaces else None


def scheduled(kernel: Kernel, binding: Binding, rides: Rides, merges: bool, taps: bool = False) -> Plan:
    """The passes that a backend prints, by what it says of itself."""
    if taps:
        return (merged_tapped if merges else plan_tapped)(kernel, binding, rides)
    return (merged if merges else plan)(kernel, binding, rides)


@_pass
def cost(kernel: Kernel, binding: Binding, rides: Rides) -> Cost:
    """What an element takes."""
    return costs.cost(plan(kernel, binding, rides))


def warnings(kernel: Kernel) -> list[str]:
    """What a kernel's writer should know of what it costs, as it is printed."""
    found = products.products(plan(kernel, usual(kernel)))
    return [d.render(kernel.file.source, "warning") for d in found]


def sized_plan(kernel: Kernel, sizes: Mapping[str, int], rides: Rides, merges: bool) -> Plan:
    """The passes over memory where the sizes of dims are known, written out as numbers; `merges` as in `scheduled`."""
    program = schedule.expanded(_rewritten(kernel, {}, sizes), rides, compared=kernel.compared)
    plan = schedule.planned(lowering.sized(program, sizes))
    return precision.formed(columns.merged(plan) if merges else plan, kernel)
