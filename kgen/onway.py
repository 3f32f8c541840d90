"""What a map leaves for a pass over rows, stored on the way: that pass computes it, takes it for its sums, and stores it for others.

In: a plan.  Out: one in which a map whose elements a later pass adds up along rows, in its one reading, is that reading: what both read is
read once, and what the map leaves is not read again.  A backend's readings that reduce then store as well.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.expand import is_reduction
from kgen.passes import Map, Pass, Plan, Reduce, Scan, verified
from kgen.phases import phases_of
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


def _joined(first: Map, second: Pass, plan: Plan) -> Reduce | None:
    """A map and the pass over rows that reads what it leaves, as that one; None where it has more to do than to reduce in one reading."""
    if not isinstance(second, Reduce) or isinstance(second, Scan) or set(first.dims) != set(second.dims) or second.readings != 1:
        return None
    along = any(set(s.dims) & set(second.inner) for s in second.stores)
    if along or second.long or second.finish or second.pieces or second.gathers:
        return None
    kept = {w.name for w in plan.workspaces}
    sums = all(let.expr.name == "sum" and let.tensor_dtype.is_float for let in second.lets if is_reduction(let))
    if not sums or not all(s.result in kept for s in first.stores) or any(let.expr.name == "philox" for let in first.lets):
        return None
    defs = plan.program.by_name | {let.name: let for let in (*first.lets, *second.lets)}
    if not all(is_beside(let, second.inner, defs) for let in first.lets if is_tap(let)):
        return None
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
    loaded = {let.expr.attrs[0] for let in lets if let.expr.name == "load"}
    loads = {t.name: t for t in (*first.loads, *second.loads) if t.name in loaded}
    scalars = {s.let.name: s for s in (*first.scalars, *second.scalars)}
    indices = tuple(dict.fromkeys((*first.indices, *second.indices)))
    stores = (*first.stores, *second.stores)
    return replace(second, loads=tuple(loads.values()), indices=indices, scalars=tuple(scalars.values()), lets=lets, stores=stores,
                   phases=phases)  # fmt: skip


def _without(p: Pass, names: set[str]) -> Pass:
    """A pass that leaves nothing of these names."""
    if not isinstance(p, Reduce) or not any(s.result in names for s in p.stores):
        return p
    phases = tuple(replace(f, stores=tuple(s for s in f.stores if s.result not in names)) for f in p.phases)
    return replace(p, stores=tuple(s for s in p.stores if s.result not in names), phases=phases)


__all__ = ["on_the_way"]
