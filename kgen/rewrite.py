"""Named rules over programs.  Each keeps every result bit for bit, or within the bound it states.

In: a program.  Out: a program with the same stores.  The driver applies the rules in order until none applies,
verifying after each; `kgen show --stage program` prints the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from kgen import host
from kgen.ir import Builder, Let, Op, Program, exact, leaf, literal_of, live, ref, renumber, verify
from kgen.ops import CODES, CONVERTS
from kgen.types import FLOAT, DType, Number

Defs = dict[str, Let]


@dataclass(frozen=True)
class Rule:
    """`apply(let, defs, build)` gives the let's replacement (a let made by `build`, or one that stands), or None."""

    name: str
    keeps: str
    apply: Callable[[Let, Defs, Builder], Let | None]


def _operands(let: Let, defs: Defs) -> list[Let]:
    return [defs[o.name] for o in let.expr.operands]


def _identity(let: Let, defs: Defs, build: Builder) -> Let | None:
    return defs[let.expr.operands[0].name] if let.expr.name in ("stop", "pos") else None


def _fold(let: Let, defs: Defs, build: Builder) -> Let | None:
    """Numbers known when compiling: the host's arithmetic, done once."""
    if let.expr.name == "const":
        value = {"pi": math.pi, "inf": math.inf, "nan": math.nan}[let.expr.attrs[0]]
        return build.add(leaf("lit", number_text(value)), FLOAT, (), let.span)
    if not isinstance(let.dtype, Number) or not let.expr.operands:
        return None
    values = []
    for operand in _operands(let, defs):
        if operand.expr.name != "lit":
            return None
        text = operand.expr.attrs[0]
        is_float = operand.dtype == FLOAT
        values.append(
            float(text)
            if text in ("inf", "-inf", "nan")
            else float(exact(text))
            if is_float
            else bool(exact(text))
            if operand.dtype.kind == "bool"
            else int(exact(text))
        )
    value = host.evaluate(let.expr.name, values, let.dtype)
    if value == 0 and math.copysign(1, value) < 0:
        return None  # literals have no sign of zero: the host computes it at the call
    return build.add(leaf("lit", number_text(value)), let.dtype, (), let.span)


def number_text(value: float | int | bool) -> str:
    """A folded number as a literal's text that means exactly this float: short decimals, else hexadecimal."""
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) or Fraction(str(value)) == Fraction(value) else value.hex()
    return str(int(value))


def _power_of_two(x: Fraction) -> bool:
    return (
        x > 0
        and (x.numerator & (x.numerator - 1)) == 0
        and (x.denominator & (x.denominator - 1)) == 0
        and Fraction(1, 2**100) <= x <= 2**100
    )


def _divide(let: Let, defs: Defs, build: Builder) -> Let | None:
    """x / 2^k is x * 2^-k: both round the same real number once."""
    if let.expr.name != "div" or not isinstance(let.dtype, DType):
        return None
    x, d = _operands(let, defs)
    value = literal_of(d, defs)
    if value is None or not _power_of_two(abs(value)):
        return None
    inverse = 1 / value
    factor = build.literal(number_text(float(inverse)), let)
    return build.like(Op("mul", ref(x.name), ref(factor.name)), let, let.label)


def _divide_by_scale(let: Let, defs: Defs, build: Builder) -> Let | None:
    """x / s is x * (1 / s) where s is a scale of powers of two: both round the same real number once.  Its code is 254 less the one of s,
    which leaves NaN with 255 as it is.  It is done where s stands still, so that it is computed once for many x."""
    if let.expr.name != "div" or not isinstance(let.dtype, DType):
        return None
    x, s = _operands(let, defs)
    value = defs[s.expr.operands[0].name] if s.expr.name == "cast" else s
    dtype, how = CONVERTS.get(value.expr.name, (None, ()))
    if dtype is None or how is not None or dtype.coding is None or not dtype.coding.exponents or not set(s.dims) < set(let.dims):
        return None
    code = defs[value.expr.operands[0].name]
    other = build.like(Op("sub", ref(build.literal("254", code).name), ref(code.name)), code)
    inverse = build.like(Op(value.expr.name, ref(other.name)), value)
    if value is not s:
        inverse = build.like(Op("cast", ref(inverse.name)), s)
    return build.like(Op("mul", ref(x.name), ref(inverse.name)), let, let.label)


def _small_power(let: Let, defs: Defs, build: Builder) -> Let | None:
    """x^1 to x^4 as products: exact for 1, one rounding (0.5 ulp) for 2, at most 1.5 ulp for 3 and, since squaring doubles the
    first rounding, 2.5 ulp for 4; every target's pow has a larger bound."""
    if let.expr.name != "pow" or not isinstance(let.dtype, DType):
        return None
    x, n = _operands(let, defs)
    power = literal_of(n, defs)
    if power not in (1, 2, 3, 4):
        return None

    def times(a: Let, b: Let, label: str = "") -> Let:
        return build.like(Op("mul", ref(a.name), ref(b.name)), let, label)

    if power == 1:
        return x
    if power == 2:
        return times(x, x, let.label)
    square = times(x, x)
    return times(square, x if power == 3 else square, let.label)


def _times_one(let: Let, defs: Defs, build: Builder) -> Let | None:
    """x * 1 and 1 * x are x, whatever x is."""
    if let.expr.name != "mul" or not isinstance(let.dtype, DType):
        return None
    a, b = _operands(let, defs)
    for x, one in ((a, b), (b, a)):
        if literal_of(one, defs) == 1 and (x.dtype, x.dims) == (let.dtype, let.dims):
            return x
    return None


def _compare_scaled(let: Let, defs: Defs, build: Builder) -> Let | None:
    """n * 2^-k < p is n < p * 2^k, n a whole number: neither product rounds, and one that overflows is beyond every n.  Other comparisons
    likewise.  It is done where p stands still, so that its product is computed once for many n."""
    if let.expr.name not in ("lt", "le", "gt", "ge"):
        return None
    for scaled, other, swapped in ((0, 1, False), (1, 0, True)):
        x, p = (_operands(let, defs)[k] for k in (scaled, other))
        if x.expr.name != "mul" or x.dtype != p.dtype or not isinstance(p.dtype, DType) or not set(p.dims) < set(x.dims):
            continue
        n, factor = _operands(x, defs)
        scale = literal_of(factor, defs)
        whole = n.expr.name == "cast" and _operands(n, defs)[0].dtype.kind == "int" and n.dtype == x.dtype
        if not whole or scale is None or not (scale < 1 and _power_of_two(scale)):
            continue
        limit = build.like(Op("mul", ref(p.name), ref(build.literal(number_text(float(1 / scale)), p).name)), p)
        names = (ref(limit.name), ref(n.name)) if swapped else (ref(n.name), ref(limit.name))
        return build.like(Op(let.expr.name, *names), let, let.label)
    return None


def _compare_whole(let: Let, defs: Defs, build: Builder) -> Let | None:
    """n < p is n < ceil(p) in integers, n a random word's first bits, which p's dtype holds: where p stands still it is rounded up once for
    many n, none of which is converted.  The cast saturates, beyond every n, and makes a NaN 0, which no n is below."""
    if let.expr.name not in ("lt", "gt"):
        return None
    x, p = _operands(let, defs)[:: 1 if let.expr.name == "lt" else -1]
    if x.expr.name != "cast" or x.dtype != p.dtype or not isinstance(p.dtype, DType) or not set(p.dims) < set(x.dims):
        return None
    (n,) = _operands(x, defs)
    bits = _bits_of_a_word(n, defs)
    if not isinstance(n.dtype, DType) or not (bits <= p.dtype.digits + 1 and bits < n.dtype.bits):
        return None
    above = build.like(Op("ceil", ref(p.name)), p)
    limit = build.add(Op("cast", ref(above.name)), n.dtype, p.dims, p.span)
    return build.like(Op("lt", ref(n.name), ref(limit.name)), let, let.label)


def _bits_of_a_word(n: Let, defs: Defs) -> float:
    """Of a random word whose last bits are shifted out, how many are left, whatever integer they are cast to; else infinitely many."""
    while n.expr.name == "cast" and isinstance(n.dtype, DType) and n.dtype.kind == "int" and n.dtype.bits >= 32:
        (n,) = _operands(n, defs)
    if n.expr.name != "shr":
        return math.inf
    word, shift = _operands(n, defs)
    while shift.expr.name == "cast":
        (shift,) = _operands(shift, defs)
    by = literal_of(shift, defs)
    return float(32 - by) if word.expr.name == "philox" and by is not None and 0 < by < 32 else math.inf


def _straight(let: Let, defs: Defs, build: Builder) -> Let | None:
    """y - (x - x if isfinite(x) else 0) is y: what is taken away is +0, which leaves -0 as it is."""
    if let.expr.name != "sub" or not isinstance(let.dtype, DType):
        return None
    y, nothing = _operands(let, defs)
    while nothing.expr.name == "cast" and nothing.is_float:
        (nothing,) = _operands(nothing, defs)
    if nothing.expr.name != "where" or (y.dtype, y.dims) != (let.dtype, let.dims):
        return None
    finite, less, zero = _operands(nothing, defs)
    if finite.expr.name != "isfinite" or less.expr.name != "sub" or literal_of(zero, defs) != 0:
        return None
    return y if {*less.expr.operands} == {*finite.expr.operands} else None


def _code_of_value(let: Let, defs: Defs, build: Builder) -> Let | None:
    """The code of a code's value is that code: to nearest, what a format has is not rounded."""
    if let.expr.name not in CODES or len(let.expr.operands) != 1:
        return None
    value = _operands(let, defs)[0]
    same = value.expr.name.endswith("_value") and let.expr.name == value.expr.name.removesuffix("_value") + "_code"
    return defs[value.expr.operands[0].name] if same and value.expr.name in CODES else None


RULES: tuple[Rule, ...] = (
    Rule("identity", "bits", _identity),
    Rule("fold", "bits", _fold),
    Rule("times-one", "bits", _times_one),
    Rule("straight-through", "bits", _straight),
    Rule("code-of-value", "bits", _code_of_value),
    Rule("divide-by-power-of-two", "bits", _divide),
    Rule("divide-by-scale", "bits", _divide_by_scale),
    Rule("compare-scaled", "bits", _compare_scaled),
    Rule("small-power", "2.5 ulp", _small_power),
)
#: For CUDA alone: in a C++ loop the cast of what stands still keeps g++ from vectorising what it does for each element.
CUDA_RULES = (Rule("compare-whole", "bits", _compare_whole),)


def rewrite(program: Program, rules: tuple[Rule, ...] = RULES) -> Program:
    """The program after every rule, in their order; each applied in one sweep, since a sweep sees replaced operands."""
    for rule in rules:
        program = _sweep(program, rule)
    return verify(renumber(program))


def _sweep(program: Program, rule: Rule) -> Program:
    build = Builder()
    moved: dict[str, str] = {}
    for let in program.lets:
        expr = let.expr.renamed(moved)
        here = replace(let, expr=expr)
        made = rule.apply(here, build.defs, build) or build.like(expr, let, let.label)
        moved[let.name] = made.name
    stores = tuple(replace(s, ref=moved[s.ref]) for s in program.stores)
    return verify(replace(program, lets=live(build.lets, stores), stores=stores))
