"""What a plan costs an element, by count, and what bounds it.

In: a plan.  Out: bytes moved and instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.dear import OTHER_PER_BYTE, SPECIAL_PER_BYTE
from kgen.ir import Let, Tensor, held
from kgen.monoids import MONOIDS
from kgen.ops import ROWS
from kgen.passes import Pass, Plan, Reduce, elements
from kgen.taps import is_tap, taps_of


@dataclass(frozen=True)
class Cost:
    """What a program takes per element of its largest passes, by count: bytes read and written (operands that
    broadcast are not counted: they stay in a cache), arithmetic and special-function instructions in f32."""

    read: int
    written: int
    instructions: int
    special: int


def cost(plan: Plan) -> Cost:
    """The cost of a plan: that of all its passes over the most dims, since each moves its own bytes.  Operators are counted in the forms
    that they have for the plan's dtypes."""
    blocks = {b.dim for b in plan.program.blocks}  # passes over these move little
    whole = [p for p in plan.passes if not blocks & set(p.dims)]
    most = max(len(p.dims) for p in whole)
    passes = [p for p in whole if len(p.dims) == most]
    binding = {name: dtype.name for name, dtype in plan.program.binding}

    def work(let: Let) -> tuple[int, int]:
        return ROWS[let.expr.name].cost_of(let.form.of(binding.get(let.form.decides, let.form.decides)) if let.form else "")

    done = [work(let) for p in passes for let in elements(p) if let.expr.name in ROWS and let.dims]
    done += [MONOIDS[r.expr.name].cost for p in passes if isinstance(p, Reduce) for f in p.phases for r in (*f.reductions, *f.columns)]
    done += [(1, 0) for p in passes for let in p.lets if let.expr.name == "ranged"]
    return Cost(
        sum(t.dtype.bytes for p in passes for t in walked(p) if not blocks & set(t.dims)),
        sum(s.dtype.bytes for p in passes for s in p.stores if set(s.dims) == set(p.dims)),
        sum(c[0] for c in done),
        sum(c[1] for c in done),
    )


def walked(p: Pass) -> list[Tensor]:
    """What a pass reads for each of its elements: operands with all of its dims; where there are none, those that a row is reduced from,
    which each row reads again (a product of operands with different dims).  What ranges are of, and their order, is read once; what windows
    are over as if each element of the pass read one of its own."""
    whole = [t for t in p.loads if set(t.dims) == set(p.dims)]
    if isinstance(p, Reduce) and p.inner and not whole:
        whole = [t for t in p.loads if set(t.dims) & set(p.inner)]
    defs = {let.name: let for let in p.lets}
    ranged = {defs[o.name].expr.attrs[0] for let in p.lets if let.expr.name == "ranged" for o in held(let.expr)}
    taps = [let for let in p.lets if is_tap(let)]
    windows = {defs[let.expr.operands[0].name].expr.attrs[0] for let in taps if any(m.along for m in taps_of(let))}
    return [t for t in p.loads if t in whole or t.name in ranged | windows]


def read_again(plan: Plan, long: bool) -> int:
    """The bytes of an element that all readings of a plan's largest passes take together; `long` of rows that do not stay on the chip."""
    most, read = max(len(p.dims) for p in plan.passes), 0
    for p in plan.passes:
        if isinstance(p, Reduce) and len(p.dims) == most:
            sizes = {t.name: t.dtype.bytes for t in walked(p)}
            loads = (let for f in (long and p.long or p.phases) if f.element for let in f.lets if let.expr.name == "load")
            read += sum(sizes.get(let.expr.attrs[0], 0) for let in loads)
    return read


def predicted_bound(c: Cost) -> str:
    """What bounds a pass: memory, or arithmetic and by how much (its instructions over those that fit under its bytes)."""
    moved = max(1, c.read + c.written)
    over = max(c.special / (SPECIAL_PER_BYTE * moved), c.instructions / (OTHER_PER_BYTE * moved))
    return "memory" if over <= 1 else f"arithmetic, {over:.1f} x memory"
