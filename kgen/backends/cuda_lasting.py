"""What CUDA's readings of a row have of a value that is made once (`kgen.backends.remembered`): whose place it may take, and its own room.

In: a unit over rows.  Out: the value, and what the planners ask of it (`Lasting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kgen.backends.cuda_layouts import Lasting, RowOperand
from kgen.backends.units import Repeated, RowUnit

if TYPE_CHECKING:
    from kgen.backends.base import Render


def made_once(unit: RowUnit) -> Repeated | None:
    """The value; None where there is none."""
    return next((m for c in unit.codes for m in c.repeated if not (m.words or m.others)), None)


def lasting(unit: RowUnit, operands: Sequence[RowOperand], render: Render) -> Lasting | None:
    """What the planners ask of it, and its kernel: one answer for both."""
    m = made_once(unit)
    if m is None:
        return None
    own, made = {t.name for t in m.inputs}, {t.spec_name for t in m.inputs}
    reading = [c for c in unit.codes if own & {t.name for t in (*c.inputs, *(c.makes.inputs if c.makes else ()))}]
    free = all(m in c.repeated and own <= c.within for c in reading)
    variables = {v for generic, alias in render.generics.items() if alias == m.type for v in generic.split("+")}
    read = [o.role not in ("index", "result") for o in operands]

    def mask(found: Iterable[bool]) -> int:
        return sum(1 << k for k, (here, of) in enumerate(zip(read, found, strict=True)) if here and of)

    of, by = mask(o.kept and o.name in made for o in operands), mask(o.dtype in variables for o in operands)
    alone = sum(o.kept and o.element for o in operands) <= 1
    return Lasting(of, free, by, 8 if m.type == "double" else 4, m.room and alone)
