"""Results that a later pass reads again, where it would make them anew of more.

In: a plan.  Out: one whose passes over rows take a value from the result that an earlier pass has stored it in, in the dtype that it is
rounded to by name, so that it is the same; and read nothing of what it is made of.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.check import Kernel
from kgen.ir import Let, Tensor, leaf, live, rounded_to
from kgen.passes import Pass, Plan, Reduce, Scan, verified
from kgen.phases import phases_of


def reread(plan: Plan, kernel: Kernel) -> Plan:
    """The plan with results read again; the same where none is."""
    dtypes = {r.name: r.dtype for r in kernel.results if r.state is None}
    stored: dict[str, str] = {}  # the results of passes so far, by value
    passes: list[Pass] = []
    for p in plan.passes:
        found = _reading(p, stored, dtypes, plan.program.by_name)
        passes.append(found)
        stored |= {s.ref: s.result for s in p.stores if s.result in dtypes}
    read = {t.name for p in passes for t in p.loads}
    unread = {w.name for w in plan.workspaces if w.view is None} - read
    passes = [_without(p, unread) for p in passes]
    return verified(replace(plan, passes=tuple(passes), workspaces=tuple(w for w in plan.workspaces if w.name not in unread)))


def _reading(p: Pass, stored: dict[str, str], dtypes: dict[str, str], defs: dict[str, Let]) -> Pass:
    """A pass that reads such results, where it then reads fewer tensors."""
    if not isinstance(p, Reduce) or isinstance(p, Scan) or p.long or p.finish or p.gathers:
        return p
    for value in p.lets:
        result = stored.get(value.name)
        if result is None or value.expr.name != "cast" or not set(p.inner) <= set(value.dims):
            continue
        rounded = next((let for let in p.lets if let.name == value.expr.operands[0].name), None)
        if rounded is None or rounded.expr.name != "cast" or rounded_to(rounded) != dtypes[result]:
            continue
        load = replace(value, expr=leaf("load", result), label="")
        lets = live((load if let is value else let for let in p.lets), p.stores)
        names = [let.expr.attrs[0] for let in lets if let.expr.name == "load"]
        tensors = [t for t in p.loads if t.name in names]
        if len(tensors) + 1 < len(p.loads):
            phases = phases_of(frozenset(p.inner), lets, p.stores, defs | {let.name: let for let in lets}, lambda made: None)
            loads = (*tensors, Tensor(result, rounded.tensor_dtype, value.dims))
            scalars = tuple(s for s in p.scalars if s.let in lets)
            return replace(p, loads=loads, lets=lets, phases=phases, scalars=scalars)
    return p


def _without(p: Pass, unread: set[str]) -> Pass:
    """A pass that does not keep what none reads."""
    stores = tuple(s for s in p.stores if s.result not in unread)
    if len(stores) == len(p.stores) or not isinstance(p, Reduce):
        return p
    kept = tuple(replace(f, stores=tuple(s for s in f.stores if s in stores)) for f in p.phases)
    return replace(p, stores=stores, phases=kept, long=tuple(replace(f, stores=tuple(s for s in f.stores if s in stores)) for f in p.long))
