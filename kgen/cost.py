"""What a plan costs an element, by count, and what bounds it.

In: a plan.  Out: bytes moved and instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from kgen.dear import OTHER_PER_BYTE, SPECIAL_PER_BYTE
from kgen.ir import Let, Op, Tensor, terms
from kgen.monoids import MONOIDS
from kgen.ops import ROWS
from kgen.passes import Pass, Plan, Reduce, Sort, elements
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
    that they have for the plan's dtypes.  Where elements are sorted by keys, or lie in ranges, these are the elements, and what a key or
    a range leaves is written once for each of its own."""
    blocks = {b.dim for b in plan.program.blocks}  # passes over these move little but what their ranges read
    found = {d for p in plan.passes if ranges(p, True) for d in p.dims}  # each of these looks for its ranges, of which there are fewer
    keys = {p.dims[-1] for p in plan.passes if isinstance(p, Sort) and not p.rows} - found
    over = [(p, gone_through(p, blocks)) for p in plan.passes]
    most = max(len(dims) for _, dims in over)
    largest = [(p, dims) for p, dims in over if len(dims) == most]
    passes = [p for p, dims in largest if not keys & dims] or [p for p, _ in largest]  # there are fewer keys than what has them
    binding = {name: dtype.name for name, dtype in plan.program.binding}

    done = [work(let, binding) for p in passes for let in elements(p) if let.dims]
    done += [MONOIDS[r.expr.name].cost for p in passes if isinstance(p, Reduce) for f in p.phases for r in (*f.reductions, *f.columns)]
    done += [(1, 0) for p in passes for let in p.lets if let.expr.name in ("ranged", "keyed")]
    once = {t.name: t for p in passes for t in in_ranges(p) if len(t.dims) == most}
    each = [t for p in passes if not blocks & set(p.dims) for t in walked(p)]
    read = [t for t in each if t.name not in once] + [t for t in once.values() if not blocks & set(t.dims)]
    return Cost(
        sum(t.dtype.bytes for t in read),
        sum(s.dtype.bytes for p in passes for s in p.stores if len(s.dims) == most and not blocks & set(s.dims)),
        sum(c[0] for c in done),
        sum(c[1] for c in done),
    )


def work(let: Let, binding: Mapping[str, str] | None = None) -> tuple[int, int]:
    """What a let takes: instructions, and those for special functions; none where no operator makes it.  It has the form that the dtype
    which decides lets it have: by a `binding` of variables to dtypes' names, or of 16 bits."""
    if let.expr.name not in ROWS:
        return 0, 0
    decides = let.form.decides if let.form else ""
    return ROWS[let.expr.name].cost_of(let.form.of("bf16" if binding is None else binding.get(decides, decides)) if let.form else "")


def instructions(p: Reduce) -> int:
    """What all readings of a row together take for each of its elements, by count: instructions of all kinds in the forms that operators
    have for 16 bits, and one for each that a reduction or a column adds up."""
    done = [sum(work(let)) for f in p.phases for let in f.lets if set(let.dims) & set(p.inner)]
    return sum(done) + sum(len(f.reductions) + len(f.columns) for f in p.phases)


def gone_through(p: Pass, blocks: Set[str]) -> set[str]:
    """The dims whose elements a pass goes through, without those of blocks: its own, or those of what its ranges are of; a sort's are those
    of its keys."""
    if isinstance(p, Sort):
        return {*p.dims[:-1]}
    return max((set(t.dims) - blocks for t in in_ranges(p)), key=len, default=set(p.dims) - blocks)


def ranges(p: Pass, found: bool) -> list[Op]:
    """A pass's sums over ranges: those whose ends are given, or (`found`) those of all ranges that a position lies in."""
    return [let.expr for let in p.lets if let.expr.name == "ranged" and (len(terms(let.expr)) == 6) is found]


def in_ranges(p: Pass) -> list[Tensor]:
    """What a pass reads range by range, without its order: each of these elements lies in one range, and is read once by all passes
    together."""
    defs = {let.name: let for let in p.lets}
    names = {defs[e.operands[0].name].expr.attrs[0] for e in ranges(p, False)}
    return [t for t in p.loads if t.name in names]


def keyed(p: Pass) -> set[str]:
    """What a pass reads by keys that each row has its own of, in their order: the terms, those keys, and their places."""
    defs = {let.name: let for let in p.lets}
    exprs = (let.expr for let in p.lets if let.expr.name == "keyed")
    return {defs[o.name].expr.attrs[0] for e in exprs for o in e.operands[:3]}


def walked(p: Pass) -> list[Tensor]:
    """What a pass reads for each of its elements: operands with all of its dims, and what it takes at places that have them; where there
    are none, those that a row is reduced from, which each row reads again (a product of operands with different dims).  What windows are
    over is counted as if each element of the pass read one of its own."""
    defs = {let.name: let for let in p.lets}
    gathers = [let.expr for let in p.lets if let.expr.name == "gather" and set(let.dims) == set(p.dims)]
    placed = {defs[e.operands[0].name].expr.attrs[0] for e in (*gathers, *ranges(p, True))}
    placed |= {t.name for t in p.loads if len(t.dims) == len(p.dims) and t.name in keyed(p)}
    whole = [t for t in p.loads if set(t.dims) == set(p.dims) or t.name in placed]
    if isinstance(p, Sort):
        whole = list(p.loads)
    if isinstance(p, Reduce) and p.inner and not whole:
        whole = [t for t in p.loads if set(t.dims) & set(p.inner)]
    taps = [let for let in p.lets if is_tap(let)]
    windows = {defs[let.expr.operands[0].name].expr.attrs[0] for let in taps if any(m.along for m in taps_of(let))}
    return [t for t in p.loads if t in whole or t.name in windows]


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
