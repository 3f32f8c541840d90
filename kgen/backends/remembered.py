"""Values of a row's elements that several readings compute and that are dear: a row that stays on the chip computes them once.

In: the phases of a pass over rows.  Out: the value, by let: that of a function which is summed in one reading and scaled in the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from kgen.ir import Let, taken
from kgen.ops import ROWS
from kgen.phases import Phase, ends, needed
from kgen.searches import SEARCHES
from kgen.types import DType

#: Instructions of an element from which a value is dear, one for special functions among them or not: a register holds it meanwhile.
#: Picked by hand.
DEAR, DEAR_PLAIN = 8, 16


def remembered(phases: Sequence[Phase]) -> frozenset[str]:
    """The dearest of the values that several readings of a row compute and read for something else, in the forms that 16-bit results let
    them have; none where a search goes through the row, and none where columns are added up, which takes a thread's registers."""
    readings = [p for p in phases if p.element]
    if any(p.columns for p in readings) or any(r.expr.name in SEARCHES for p in readings for r in p.reductions):
        return frozenset()
    often = set[str]()
    for k, p in enumerate(readings):
        later = {let.name for q in readings[k + 1 :] for let in q.lets}
        often |= {let.name for let in p.lets if let.name in later and let.expr.name not in ("load", "index")}
    read = {o.name for p in readings for let in p.lets if let.name not in often for o in taken(let.expr)}
    read |= {name for p in readings for name in ends(p)}
    lets = {let.name: let for p in readings for let in p.lets}
    first = next((p.lets for p in readings if often & {let.name for let in p.lets}), ())

    def work(let: Let) -> tuple[int, int]:
        if let.expr.name not in ROWS:
            return 0, 0
        return ROWS[let.expr.name].cost_of(let.form.of("bf16") if let.form else "")

    def cost(name: str) -> tuple[int, int]:
        """Its instructions, and those for special functions."""
        done = [work(let) for let in needed(first, [name], ())]
        return sum(c[0] for c in done), sum(c[1] for c in done)

    def dear(name: str) -> bool:
        plain, special = cost(name)
        return plain + special >= (DEAR if special else DEAR_PLAIN)

    def alone(name: str) -> bool:
        """Whether readings need nothing dear that it is made of for something else, which they would compute beside it."""
        made = {let.name for let in needed(first, [name], ())} - {name}
        left = {let.name for p in readings for let in needed(p.lets, ends(p), [name])}
        return not any(dear(of) for of in made & left)

    found = [name for name in lets if name in often & read and isinstance(lets[name].dtype, DType) and lets[name].tensor_dtype.is_float]
    return frozenset(sorted((name for name in found if dear(name) and alone(name)), key=cost)[-1:])
