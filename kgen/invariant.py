"""The rule "shift-invariant maximum": a maximum that only keeps numbers small gets no gradient.

In `e = exp(x - max[N](x)); y = e / sum[N](e)` the result stays what it is whatever the maximum's value, so the gradient through
it is zero in theory, and rounding errors and ties in practice.  So it is where a mask leaves elements out (`exp(x - m) if seen else 0`)
and rows that have none are asked for (`isfinite(m)`, `s > 0` of a sum s): what is 0 stays so, and no test of these sees the shift.  In: a
tape and the results that are differentiated.  Out: the maxima and minima for which the proof below goes through.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from kgen.tape import Tape
from kgen.types import Float
from kgen.values import Value


class Moved(NamedTuple):
    """How a value changes when the maximum has d added: k * d is added to it ("shift"), or it is multiplied by base^(k * d) ("scale")."""

    how: str
    k: Fraction
    base: str = ""


_STAYS = Moved("shift", Fraction(0))
#: Tests whose answer is the same of a finite value that is shifted or scaled, and of one that is not finite; comparisons.
FINITE = frozenset(("isfinite", "isinf", "isnan"))
COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def unmoved(tape: Tape, roots: Iterable[int]) -> set[int]:
    """The maxima and minima over dims of which no root depends in exact arithmetic."""
    roots = set(roots)
    read = tape.leads(roots)
    extremes = [v for v in sorted(read) if tape.values[v].op in ("max", "min") and tape.values[v].attr]
    return {m for m in extremes if isinstance(tape.values[m].type, Float) and _invariant(tape, m, roots, read)}


def _invariant(tape: Tape, m: int, roots: set[int], read: set[int]) -> bool:
    """Whether the roots stay as they are when value m has d added, a number of its own for each of m's elements."""
    moved = {m: Moved("shift", Fraction(1))}
    for k in sorted(v for v in read if v > m):
        v = tape.values[k]
        if any(a in moved for a in v.args):
            found = _move(v, [moved.get(a, _STAYS) for a in v.args], [_absorbs(tape, a) for a in v.args], set(tape.values[m].dims))
            if found is None:
                return False
            if found.k != 0:
                moved[k] = found
    return not roots & set(moved)


def _absorbs(tape: Tape, v: int) -> str:
    """What a literal stays the same under: 0 is any scale of itself, an infinity any shift; "" for all else."""
    value = tape.values[v]
    if value.op in ("neg", "pos", "cast"):
        return _absorbs(tape, value.args[0])
    if value.op == "const":
        return "shift" if value.attr == "inf" else ""
    return "scale" if tape.known(v) == 0 else ""


def _move(v: Value, given: list[Moved], absorbs: list[str], dims: set[str]) -> Moved | None:
    """How a value moves when its operands do, of which literals absorb what `absorbs` says; None where that is neither a shift nor a
    scale."""
    first, second = (*given, _STAYS)[:2]
    moving = [g for g in given if g.k != 0]
    if not moving:
        return _STAYS
    hows = {(g.how, g.base) for g in moving}
    if len(hows) > 1:
        return None
    ((how, base),) = hows
    if v.op == "stop" or v.op in FINITE:  # for a gradient a constant, whatever moves
        return _STAYS
    if v.op in COMPARED and how == "scale" and "scale" in absorbs:  # against 0
        return _STAYS
    if v.op in ("pos", "cast") and isinstance(v.type, Float):
        return first
    if v.op == "neg":
        return Moved(how, -first.k) if how == "shift" else first
    if v.op in ("add", "sub") and how == "shift" or v.op in ("mul", "div") and how == "scale":
        return Moved(how, first.k + (second.k if v.op in ("add", "mul") else -second.k), base)
    if v.op in ("exp", "exp2") and how == "shift":
        return Moved("scale", first.k, v.op)
    if (v.op, how, base) in (("log", "scale", "exp"), ("log2", "scale", "exp2")):
        return Moved("shift", first.k)
    if v.op == "where" and given[0].k == 0:
        rest = [g for g, literal in zip(given[1:], absorbs[1:], strict=True) if literal != how]
        return moving[0] if all(g == moving[0] for g in rest) else None
    over = isinstance(v.attr, tuple) and bool(v.attr) and not set(v.attr) & dims and all(g.k == 0 for g in given[1:])
    if over and v.op in ("mean", "pick", "max", "min") or over and v.op == "sum" and how == "scale":
        return first
    return None
