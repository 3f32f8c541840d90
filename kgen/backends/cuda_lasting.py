"""What CUDA's readings of a row have of a value that is made once (`kgen.backends.remembered`): whose place it may take, and its own room.

In: a unit over rows.  Out: the value, and what the planners ask of it (`Lasting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgen.backends.cuda_layouts import Lasting, RowOperand
from kgen.backends.units import Repeated, RowUnit

if TYPE_CHECKING:
    from kgen.backends.base import Render


def made_once(unit: RowUnit) -> Repeated | None:
    """The value; None where there is none."""
    return next((m for c in unit.codes for m in c.repeated if not (m.words or m.others)), None)


def is_free(m: Repeated, unit: RowUnit) -> bool:
    """Whether nothing reads a row's operands of which a value is made but through it."""
    own = {t.name for t in m.inputs}
    reading = [c for c in unit.codes if own & {t.name for t in (*c.inputs, *(c.makes.inputs if c.makes else ()))}]
    return all(m in c.repeated and own <= c.within for c in reading)


def has_room(operands: Sequence[RowOperand]) -> bool:
    """Whether a value may have shared memory of its own: beside one operand, as `Lasting.beside` has it."""
    return sum(o.kept and o.element for o in operands) <= 1


def lasting(unit: RowUnit, operands: Sequence[RowOperand], render: Render) -> Lasting | None:
    """What the planners ask of it."""
    m = made_once(unit)
    if m is None:
        return None
    made = {t.spec_name for t in m.inputs}
    variables = {v for generic, alias in render.generics.items() if alias == m.type for v in generic.split("+")}

    def mask(names: set[str], attribute: str) -> int:
        return sum(1 << k for k, o in enumerate(operands) if o.role not in ("index", "result") and getattr(o, attribute) in names)

    return Lasting(mask(made, "name"), is_free(m, unit), mask(variables, "dtype"), 8 if m.type == "double" else 4)
