"""Quotients of which numbers of 8 bits are made, by a divisor that many elements share; and which values are whole numbers.

In: a program.  Out: the lets whose quotient needs no division of its own, each with the dtype that its dividend has the digits of: where
codes or integers of 8 bits are all that is made of the quotient, what follows from the divisor alone makes the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kgen.ir import Let, Program, literal_of
from kgen.ops import CONVERTS
from kgen.types import DTYPES, DType, is_wide

#: Operators that give whole numbers; that give one of their operands.
WHOLE, AMONG = frozenset(("round", "floor", "ceil", "trunc")), frozenset(("clamp", "where", "max", "min", "maximum", "minimum"))


def shared_quotients(program: Program, declared: Mapping[str, str]) -> dict[str, str]:
    """The quotients of a program that are made so, by let: the dtype that their dividends have the digits of, a variable's name, that of a
    dtype of 16 bits, or "f32".  `declared` has the dtypes of its parameters by name."""
    defs = program.by_name
    made: dict[str, str] = {}
    for let in program.lets:
        if let.expr.name != "div" or not isinstance(let.dtype, DType) or not let.tensor_dtype.is_float:
            continue
        x, y = (defs[o.name] for o in let.expr.operands)
        if let.dims and let.dims[-1] not in y.dims and _is_small(let, program):
            made[let.name] = _stored(x, defs, declared) or "f32"
    return made


def _stored(x: Let, defs: Mapping[str, Let], declared: Mapping[str, str]) -> str:
    """The dtype that a value has the digits of, which has 16 bits or may have; "" of others."""
    if x.expr.name == "load":
        name = declared.get(x.expr.attrs[0], "")
    elif x.expr.name == "cast" and (of := defs[x.expr.operands[0].name]).generic.startswith("="):
        name = of.generic.lstrip("=")
    else:
        name = of.tensor_dtype.name if x.expr.name == "cast" and isinstance((of := defs[x.expr.operands[0].name]).dtype, DType) else ""
    return name if name and (DTYPES[name].narrow if name in DTYPES else not is_wide(name)) else ""


def _is_small(let: Let, program: Program, rounded: bool = False) -> bool:
    """Whether codes of 8 bits or fewer, to nearest, are all that is made of a value, or of what it is `rounded` to integers of 8 bits."""
    users = [u for u in program.lets if any(o.name == let.name for o in u.expr.operands)]
    return bool(users) and not any(s.ref == let.name for s in program.stores) and all(_is_end(u, program, rounded) for u in users)


def _is_end(user: Let, program: Program, rounded: bool) -> bool:
    """The same of one use."""
    dtype, how = CONVERTS.get(user.expr.name, (None, None))
    if dtype is not None:
        return not rounded and how in ((), ("saturate",)) and dtype.coded and dtype.bits <= 8
    if rounded and user.expr.name == "cast":
        return user.tensor_dtype.is_int and user.tensor_dtype.bits == 8
    return (user.expr.name in AMONG if rounded else user.expr.name == "round") and _is_small(user, program, True)


def is_whole(let: Let, defs: Mapping[str, Let]) -> bool:
    """Whether a value is a whole number, or none."""
    operands = [defs[o.name] for o in let.expr.operands]
    if let.expr.name in WHOLE:
        return True
    if let.expr.name in AMONG:
        return all(is_whole(x, defs) for x in operands[let.expr.name == "where" :])
    value = literal_of(let, dict(defs)) if let.expr.name in ("cast", "lit") else None
    return value is not None and value.denominator == 1


def whole_range(let: Let, defs: Mapping[str, Let]) -> tuple[float, float]:
    """Between which bounds a value lies, if it is no NaN: those of literals that it is clamped to, or that it is one of."""
    operands = [defs[o.name] for o in let.expr.operands]
    low, high = (literal_of(x, dict(defs)) for x in operands[1:]) if let.expr.name == "clamp" else (None, None)
    if low is not None and high is not None:
        return float(min(low, high)), float(high)
    if let.expr.name == "where":
        ends = [whole_range(x, defs) for x in operands[1:]]
        return min(low for low, _ in ends), max(high for _, high in ends)
    value = literal_of(let, dict(defs)) if let.expr.name in ("cast", "lit") else None
    return (float(value), float(value)) if value is not None else (-math.inf, math.inf)
