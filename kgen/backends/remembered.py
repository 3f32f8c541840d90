"""Values of a row's elements that several readings compute and that are dear: a row that stays on the chip computes them once.

In: the phases of a pass over rows.  Out: the value, by let: that of a function which is summed in one reading and scaled in the next.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import NamedTuple

from kgen.cost import work
from kgen.ir import taken
from kgen.phases import Phase, ends, needed
from kgen.searches import SEARCHES
from kgen.types import DType

#: Instructions of an element from which a value is dear, one for special functions among them or not: a register holds it meanwhile.
#: Picked by hand.
DEAR, DEAR_PLAIN = 8, 16
#: What a quotient by a number of the call takes: two products and a sum (`split_divisor` of CUDA's functions).  A register holds it too,
#: but of shared memory a reading would wait for longer: softmax over a temperature in bf16 on an H200, rows of 1,024 in registers .99 of a
#: copy (made anew .81), of 131,072 in shared memory .59 (.90).
UNIFORM = (3, 0)


class Remembered(NamedTuple):
    """The values, by let, and whether they may have room in shared memory beside an operand."""

    names: frozenset[str]
    room: bool


def remembered(phases: Sequence[Phase], uniform: Set[str] = frozenset()) -> Remembered:
    """The dearest of the values that several readings of a row compute and read for something else, in the forms that 16-bit results let
    them have; none where a search goes through the row, and none where columns are added up, which takes a thread's registers.  `uniform`
    are quotients by a number of the call."""
    readings = [p for p in phases if p.element]
    if any(p.columns for p in readings) or any(r.expr.name in SEARCHES for p in readings for r in p.reductions):
        return Remembered(frozenset(), False)
    often = set[str]()
    for k, p in enumerate(readings):
        later = {let.name for q in readings[k + 1 :] for let in q.lets}
        often |= {let.name for let in p.lets if let.name in later and let.expr.name not in ("load", "index")}
    read = {o.name for p in readings for let in p.lets if let.name not in often for o in taken(let.expr)}
    read |= {name for p in readings for name in ends(p)}
    lets = {let.name: let for p in readings for let in p.lets}
    first = next((p.lets for p in readings if often & {let.name for let in p.lets}), ())

    def cost(name: str) -> tuple[int, int]:
        """Its instructions, and those for special functions."""
        done = [UNIFORM if let.name in uniform else work(let) for let in needed(first, [name], ())]
        return sum(c[0] for c in done), sum(c[1] for c in done)

    def dear(name: str) -> bool:
        plain, special = cost(name)
        return plain + special >= (DEAR if special else DEAR_PLAIN)

    def holds(name: str) -> bool:
        return dear(name) or any(let.name in uniform for let in needed(first, [name], ()))

    def alone(name: str) -> bool:
        """Whether readings need nothing dear that it is made of for something else, which they would compute beside it."""
        made = {let.name for let in needed(first, [name], ())} - {name}
        left = {let.name for p in readings for let in needed(p.lets, ends(p), [name])}
        return not any(dear(of) for of in made & left)

    found = [name for name in lets if name in often & read and isinstance(lets[name].dtype, DType) and lets[name].tensor_dtype.is_float]
    names = sorted((name for name in found if holds(name) and alone(name)), key=cost)[-1:]
    return Remembered(frozenset(names), any(map(dear, names)))
