"""What a row's elements are made into: a value that takes an operand's place on the chip.

In: a pass over rows.  Out: the value, if there is one that several readings compute, which is rounded by name to the dtype that an operand
is stored in, and beside which no reading from the first of these on needs that operand.  There it stands from then on, and neither it nor
what else it is made of is read or computed again; where a row does not stay on the chip it is made anew.  What all rows share is no such
operand: it has no place there.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.check import Kernel
from kgen.ir import GATHERS, Let, rounded_to
from kgen.passes import Reduce, Scan
from kgen.phases import Phase, ends, needed
from kgen.types import f32, f64, variable_of

#: What is read elsewhere than at an element's place, or is no operand: of these nothing is made.
ELSEWHERE = frozenset(("index", "tap", *GATHERS))


@dataclass(frozen=True)
class Remade:
    """`value` is made in `phase` of `lets` and of `loads`, of which the first is the one whose place it takes; `stored` is the value in its
    dtype, `of` what is rounded to that."""

    value: Let
    stored: Let
    of: Let
    phase: Phase
    loads: tuple[Let, ...]
    lets: tuple[Let, ...]


def remade(p: Reduce, kernel: Kernel) -> Remade | None:
    """The value of a pass over rows that takes an operand's place, the last if there are several; None if there is none."""
    if isinstance(p, Scan) or p.long or p.columns or p.gathers or not p.inner:
        return None
    readings = [phase for phase in p.phases if phase.element]
    dtypes = {q.name: q.dtype for q in kernel.params}
    written = {s.state for s in p.stores}
    for value in reversed(p.lets):
        having = [k for k, phase in enumerate(readings) if value in phase.lets]
        if value.expr.name != "cast" or len(having) < 2:
            continue
        own = {let.name: let for let in readings[having[0]].lets}
        stored = own.get(value.expr.operands[0].name)
        of = own.get(stored.expr.operands[0].name) if stored is not None and stored.expr.name == "cast" else None
        if stored is None or of is None or not set(p.inner) <= set(value.dims):
            continue
        lets = needed(readings[having[0]].lets, [of.name], ())
        loads = [let for let in lets if let.expr.name == "load"]
        after = [let for phase in readings[having[0] :] for let in without(phase, value)]
        name = rounded_to(stored)
        if not _gives_back(value, name):
            continue
        free = [let for let in loads if let not in after and dtypes.get(let.expr.attrs[0]) == name and let.expr.attrs[0] not in written]
        free = [let for let in free if set(value.dims) <= set(let.dims) and (not p.rows or set(p.rows) & set(let.dims))]
        if free and stored not in after and not any(let.expr.name in ELSEWHERE for let in lets):
            loads = [free[0], *(let for let in loads if let is not free[0])]
            made = tuple(let for let in lets if let.expr.name != "load")
            return Remade(value, stored, of, readings[having[0]], tuple(loads), made)
    return None


def _gives_back(value: Let, name: str) -> bool:
    """Whether a cast of what is stored in a dtype of this name is that as it is computed with, and rounds no more."""
    if variable_of(name):
        return value.generic == name
    return not value.generic and value.dtype is (f64 if name == "f64" else f32)


def without(phase: Phase, value: Let) -> tuple[Let, ...]:
    """The lets that a phase needs where it is given a value, itself not among them."""
    found = needed(phase.lets, ends(phase), (value.name,))
    return tuple(let for let in found if let.name != value.name)
