"""Positions in several dims together, as a map knows them: one count.

In: a plan.  Out: the same in whose maps `index A * size B + index B`, and so on, is `index[A, B]`: an
operand without memory that walks as a dense tensor of these dims would, so that its elements follow one another wherever those of a dense
result do.  Passes over rows keep the sum: its first part is a row's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kgen.ir import Let, Op, literal_of, live
from kgen.passes import Map, Pass, Plan, verified
from kgen.taps import is_tap, taps_of
from kgen.types import Dims, i64, is_literal, literal_size


def counting(plan: Plan) -> Plan:
    """The plan with such counts in its maps."""
    defs = plan.program.by_name

    def map_of(p: Pass) -> Pass:
        if not isinstance(p, Map) or sum(let.expr.name == "index" for let in p.lets) < 2:
            return p
        lets = live(counted(p.lets, defs | {let.name: let for let in p.lets}), p.stores)
        read = {let.name for let in lets}
        indices = dict.fromkeys(asked(lets) + [m.counts for let in lets if is_tap(let) for m in taps_of(let)])
        return replace(p, lets=lets, indices=tuple(indices), scalars=tuple(s for s in p.scalars if s.let.name in read))

    return verified(replace(plan, passes=tuple(map(map_of, plan.passes))))


def counted(values: tuple[Let, ...], defs: Mapping[str, Let]) -> tuple[Let, ...]:
    """The values of a map with such counts; `defs` has all of its program, numbers too."""
    known, found = dict(defs), dict[str, Dims]()

    def is_size(let: Let, dim: str) -> bool:
        if let.expr.name != "cast" or let.dtype is not i64:
            return False
        return literal_of(let, known) == literal_size(dim) if is_literal(dim) else known[let.expr.operands[0].name].expr == Op("size", dim)

    def count(let: Let) -> Dims:
        """The dims of a sum that is such a position; none where it is another."""
        for before, along in (pair := [known[o.name] for o in let.expr.operands], pair[::-1]):
            if along.expr.name != "index" or before.expr.name != "mul":
                continue
            for first, extent in (factors := [known[o.name] for o in before.expr.operands], factors[::-1]):
                dims, own = found.get(first.name, ()), along.expr.attrs
                if dims and len(own) == 1 and own[0] not in dims and is_size(extent, own[0]):
                    return (*dims, *own)
        return ()

    made = []
    for let in values:
        dims = let.expr.attrs if let.expr.name == "index" else count(let) if let.expr.name == "add" and let.dtype is i64 else ()
        if dims:
            found[let.name] = dims
        made.append(replace(let, expr=Op("index", *dims)) if len(dims) > 1 else let)
    return tuple(made)


def asked(values: tuple[Let, ...]) -> list[str]:
    """The positions that values ask for, each by the dims that it counts: "N", or "..., N"."""
    return [", ".join(let.expr.attrs) for let in values if let.expr.name == "index"]
