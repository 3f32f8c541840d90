"""Which values of a pass a call may do without: those that are read only where a number of the call says so.

In: the lets of a pass, in order, and what is read behind them.  Out: for each value that is read nowhere but in one branch of a `where`
whose condition is the same for all elements, that condition's name, and whether it must hold.  `smooth if smoothing != 0 else nll` spares
all that `smooth` alone is made of where `smoothing` is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kgen.ir import Let

#: A condition by its name, and whether it holds.
Condition = tuple[str, bool]


def spared(lets: Sequence[Let], ends: Iterable[str], numbers: Collection[str]) -> dict[str, Condition]:
    """The condition under which a value is read at all, by its name; values that are read in any case are left out.

    `ends` are the values that are stored or read by others than these lets, `numbers` the conditions that are numbers of a call.  Of
    several conditions that must all hold the last one is given.
    """
    asked: dict[str, dict[Condition, None]] = {name: {} for name in ends}  # by value what holds wherever it is read; an order, no set
    for let in reversed(lets):
        own = asked.get(let.name, {})
        for k, o in enumerate(let.expr.operands):
            here = dict(own)
            if let.expr.name == "where" and k > 0 and let.expr.operands[0].name in numbers:
                here[(let.expr.operands[0].name, k == 1)] = None
            before = asked.get(o.name)
            asked[o.name] = here if before is None else {c: None for c in before if c in here}
    return {name: next(iter(reversed(conditions))) for name, conditions in asked.items() if conditions}
