"""Factors that a target's function of an operator takes: `b * op(a * x)` as one call, where a and b are literals.

In: a let, and which lets are printed where they are used.  Out: `Factors`.  The function has them in its own constants, so they cost
nothing, and what they would have rounded is not rounded (but on CUDA a times x in f32).  What an order reads keeps them apart: they
are taken where nothing else reads what lies between, which differs between a forward and a backward (`ordered` in `kgen.precision`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from fractions import Fraction
from typing import NamedTuple

from kgen.ir import Let, literal_of

#: How large the factors of an argument and of a result may be: constants to the fifth power neither overflow nor become denormal, and what
#: is 0 beyond some argument stays 0.
SCALES, TIMES = (Fraction(1, 64), Fraction(64)), (Fraction(1, 65536), Fraction(1))


class Factors(NamedTuple):
    """`times * call(scale * x)`: the let of the operator, that of what is scaled, whether it is negated, the literals (None: 1), and the
    lets in between, which have no text of their own."""

    call: Let
    x: Let
    negative: bool
    scale: Let | None
    times: Let | None
    inside: tuple[str, ...]


def factors(let: Let, takes: Container[str], defs: Mapping[str, Let], inline: Callable[[Let], bool]) -> Factors | None:
    """The factors of an operator among `takes` that a let is, or is a multiple of; None where there are none.  `inline` says of a let
    whether nothing else reads it, nor has it a line in any case."""
    call, times = (let, None) if let.expr.name in takes else _product(let, defs, TIMES)
    if call is None or call.expr.name not in takes or times is not None and not inline(call):
        return None
    argument = defs[call.expr.operands[0].name]
    x, scale = _product(argument, defs, SCALES) if inline(argument) else (None, None)
    inside = (call.name,) if times is not None else ()
    if x is None:
        return Factors(call, argument, False, None, times, inside) if times is not None else None
    if x.expr.name == "neg" and inline(x):
        return Factors(call, defs[x.expr.operands[0].name], True, scale, times, (*inside, argument.name, x.name))
    return Factors(call, x, False, scale, times, (*inside, argument.name))


def _product(let: Let, defs: Mapping[str, Let], sizes: tuple[Fraction, Fraction]) -> tuple[Let | None, Let | None]:
    """The other factor and the literal of a product of floats with a literal whose size is within `sizes`; (None, None) of what is none."""
    if let.expr.name != "mul" or let.is_number or not let.tensor_dtype.is_float:
        return None, None
    operands = [defs[o.name] for o in let.expr.operands]
    for k, literal in enumerate(operands):
        value = literal_of(literal, dict(defs))
        if value is not None and sizes[0] <= abs(value) <= sizes[1]:
            return operands[1 - k], literal
    return None, None
