"""What a map leaves for a pass over rows, stored on the way: that pass computes it, takes it for its sums, and stores it for others.

In: a plan.  Out: one in which a map whose elements a later pass adds up along rows, in its one reading, is that reading: what both read is
read once, and what the map leaves is not read again.  A backend's readings that reduce then store as well.  So is a map that reads nothing
but what a pass over rows reads too, neighbours along these among it.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.expand import is_reduction
from kgen.ir import Let
from kgen.passes import Map, Pass, Plan, Reduce, Scan, verified
from kgen.phases import Phase, phases_of
from kgen.taps import is_beside, is_tap


def on_the_way(plan: Plan) -> Plan:
    """The plan with maps in readings of passes over rows; the same where there are none."""
    passes = list(plan.passes)
    for first in [p for p in passes if isinstance(p, Map)]:
        k = passes.index(first)
        left = {s.result for s in first.stores}
        j = next((j for j in range(k + 1, len(passes)) if left & {t.name for t in passes[j].loads}), None)
        if j is None or any(s.state for p in passes[k : j + 1] for s in p.stores):
            continue
        if (made := _joined(first, passes[j], plan)) is not None:
            passes[j] = made
            del passes[k]
    read = {t.name for p in passes for t in p.loads}
    kept = tuple(w for w in plan.workspaces if w.view is not None or w.name in read)
    unread = {w.name for w in plan.workspaces} - {w.name for w in kept}
    return verified(replace(plan, passes=tuple(_without(p, unread) for p in passes), workspaces=kept))


def beside(plan: Plan) -> Plan:
    """The plan with maps in readings of passes over rows before them that read all that they read; the same where there are none."""
    passes = list(plan.passes)
    for own in [p for p in passes if isinstance(p, Map)]:
        found = ((j, _beside(own, p, plan)) for j, p in enumerate(passes[: passes.index(own)]))
        j, made = next(((j, made) for j, made in found if made is not None), (0, None))
        if made is not None:
            passes[j] = made
            passes.remove(own)
    return verified(replace(plan, passes=tuple(passes)))


def _joined(first: Map, second: Pass, plan: Plan) -> Reduce | None:
    """A map and the pass over rows that reads what it leaves, as that one; None where it has more to do than to reduce in one reading."""
    kept = {w.name for w in plan.workspaces}
    if not isinstance(second, Reduce) or not _takes(first, second, plan) or not all(s.result in kept for s in first.stores):
        return None
    defs = plan.program.by_name | {let.name: let for let in (*first.lets, *second.lets)}
    own = {let.name: let for let in second.lets} | {let.name: let for let in first.lets}
    if any(own[let.expr.operands[0].name].expr.name != "load" for let in own.values() if is_tap(let)):
        return None  # neighbours of what is made here, which memory has
    at = {let.name: n for n, let in enumerate(plan.program.lets)}
    lets = tuple(sorted(own.values(), key=lambda let: at[let.name]))
    phases = phases_of(frozenset(second.inner), lets, second.stores, defs, lambda lets: None)
    (reading,) = (f for f in phases if f.element)
    if not {s.ref for s in first.stores} <= {let.name for let in reading.lets}:
        return None
    phases = tuple(replace(f, stores=first.stores) if f is reading else f for f in phases)
    return _both(first, second, lets, phases)


def _takes(own: Map, rows: Reduce, plan: Plan) -> bool:
    """Whether a pass over rows has one reading, of sums alone, in which a map over the same elements can be, neighbours along the rows
    among what that reads."""
    if isinstance(rows, Scan) or set(own.dims) != set(rows.dims) or rows.readings != 1:
        return False
    along = any(set(s.dims) & set(rows.inner) for s in rows.stores)
    if along or rows.long or rows.finish or rows.pieces or rows.gathers or any(let.expr.name == "philox" for let in own.lets):
        return False
    sums = all(let.expr.name == "sum" and let.tensor_dtype.is_float for let in rows.lets if is_reduction(let))
    defs = plan.program.by_name | {let.name: let for let in (*own.lets, *rows.lets)}
    return sums and all(is_beside(let, rows.inner, defs) for let in own.lets if is_tap(let))


def _beside(own: Map, rows: Pass, plan: Plan) -> Reduce | None:
    """A map, and the pass over rows that reads all that it reads, as that one; None where it reads more, or no neighbours, or states
    change meanwhile."""
    if not isinstance(rows, Reduce) or not _takes(own, rows, plan) or not any(is_tap(let) for let in own.lets):
        return None
    named = {let.name: let for let in (*rows.lets, *own.lets)}
    made = any(named[let.expr.operands[0].name].expr.name != "load" for let in own.lets if is_tap(let))
    more = {t.name for t in own.loads} - {t.name for t in rows.loads}
    if made or more or any(s.state for p in plan.passes for s in p.stores):
        return None
    at = {let.name: n for n, let in enumerate(plan.program.lets)}
    lets = tuple(sorted(named.values(), key=lambda let: at[let.name]))
    defs = plan.program.by_name | named
    phases = phases_of(frozenset(rows.inner), lets, (*rows.stores, *own.stores), defs, lambda lets: None)
    reading, *rest = (f for f in phases if f.element)
    if len(rest) != 1 or not rest[0].stores:
        return None
    taken = {let.name for f in (reading, rest[0]) for let in f.lets}
    one = replace(reading, lets=tuple(let for let in lets if let.name in taken), stores=rest[0].stores)
    return _both(own, rows, lets, tuple(one if f is reading else f for f in phases if f is not rest[0]))


def _both(own: Map, rows: Reduce, lets: tuple[Let, ...], phases: tuple[Phase, ...]) -> Reduce:
    """A pass over rows that a map is in, by what both compute, in order."""
    loaded = {let.expr.attrs[0] for let in lets if let.expr.name == "load"}
    loads = {t.name: t for t in (*own.loads, *rows.loads) if t.name in loaded}
    scalars = {s.let.name: s for s in (*own.scalars, *rows.scalars)}
    indices = tuple(dict.fromkeys((*own.indices, *rows.indices)))
    stores = (*own.stores, *rows.stores)
    return replace(rows, loads=tuple(loads.values()), indices=indices, scalars=tuple(scalars.values()), lets=lets, stores=stores,
                   phases=phases)  # fmt: skip


def _without(p: Pass, names: set[str]) -> Pass:
    """A pass that leaves nothing of these names."""
    if not isinstance(p, Reduce) or not any(s.result in names for s in p.stores):
        return p
    phases = tuple(replace(f, stores=tuple(s for s in f.stores if s.result not in names)) for f in p.phases)
    return replace(p, stores=tuple(s for s in p.stores if s.result not in names), phases=phases)
