"""What a row alone decides, once a row: a pass over elements that computes much of that goes over rows.

In: a plan.  Out: one in which such a `Map` is a `Reduce` that reduces nothing: what lacks the last dim is computed before a row is gone
through, not with each of its vectors (cross-entropy's gradient: a logarithm and two divisions a row).
"""

from __future__ import annotations

from dataclasses import replace

from kgen.ops import ROWS
from kgen.passes import Map, Pass, Plan, Reduce, verified
from kgen.phases import phases_of

#: Instructions of a row's own from which on they are dear, where each vector's thread computes them: two for each of 8 elements.
DEAR = 16


def hoisted(plan: Plan) -> Plan:
    """The plan with passes over rows where elements compute much that is their row's; the same where there are none."""
    defs = {let.name: let for let in plan.program.lets}

    def over_rows(p: Pass) -> Pass:
        if not isinstance(p, Map) or not _is_dear(p):
            return p
        phases = phases_of(frozenset(p.dims[-1:]), p.lets, p.stores, defs, lambda lets: None)
        return Reduce(p.dims[:-1], p.dims[-1:], p.loads, p.indices, p.scalars, p.lets, p.stores, phases)

    return verified(replace(plan, passes=tuple(map(over_rows, plan.passes))))


def _is_dear(p: Map) -> bool:
    """Whether a pass over elements has rows, each with much to compute."""
    if len(p.dims) < 2 or any(let.expr.name in ("gather", "tap") for let in p.lets) or any(set(s.dims) != set(p.dims) for s in p.stores):
        return False
    own = [ROWS[let.expr.name] for let in p.lets if let.expr.name in ROWS and let.dims and p.dims[-1] not in let.dims]
    return sum(sum(row.cost_of("")) for row in own) >= DEAR
