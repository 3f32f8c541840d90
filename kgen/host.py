"""Host numbers: expressions of numbers alone, computed once a call in f64 (or i64), with IEEE's special values.

In: an operator's name and Python numbers.  Out: a Python number; where Python would raise (a division by zero, an
overflow, a logarithm of zero) the value IEEE 754 and torch give.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction

from kgen.types import BOOL, FLOAT, INT, DType, Number

Value = float | int | bool


def wrap(x: int, bits: int = 64, signed: bool = True) -> int:
    """An integer modulo 2^bits, as a register of that width holds it."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def _div(a: float, b: float) -> float:
    if b != 0:
        try:
            return a / b
        except OverflowError:
            return math.inf
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


def _pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def _ipow(a: int, b: int) -> int:
    return wrap(pow(a, b, 1 << 64)) if b >= 0 else (a if abs(a) == 1 and b % 2 else 1 if abs(a) == 1 else 0)


def _remainder(a: float, b: float) -> float:
    if b == 0 or math.isinf(a) or a != a or b != b:
        return math.nan
    r = math.fmod(a, b)
    return r + b if r != 0 and (r < 0) != (b < 0) else r


def _floor_divide(a: float, b: float) -> float:
    """As torch has it: the quotient of what the remainder leaves, so that it agrees with `%`."""
    if b == 0 or not (math.isfinite(a) and b == b):
        return _div(a, b) if b == 0 else math.nan
    rest = math.fmod(a, b)
    quotient = _div(a - rest, b) - (1.0 if rest != 0 and (rest < 0) != (b < 0) else 0.0)
    if quotient == 0:
        return math.copysign(0.0, _div(a, b))
    whole = _whole(math.floor)(quotient)
    return whole + 1.0 if quotient - whole > 0.5 else whole


def _fma(a: float, b: float, c: float) -> float:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # the sign of this zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _cbrt(x: float) -> float:
    """One exact Newton step from an approximation: the C library's is an ulp off, even for 27."""
    if x == 0 or not math.isfinite(x):
        return x
    y = math.copysign(abs(x) ** (1 / 3), x)
    return float(Fraction(y) - (Fraction(y) ** 3 - Fraction(x)) / (3 * Fraction(y) ** 2))


def _guard(f: Callable[[float], float], edge: Callable[[float], float] = lambda x: math.nan) -> Callable[[float], float]:
    """`f` with `edge` where Python's math raises."""

    def g(x: float) -> float:
        try:
            return f(x)
        except (ValueError, OverflowError):
            return edge(x)

    return g


def _mpmath(name: str) -> Callable[[float], float]:
    def f(x: float) -> float:
        import mpmath

        return float(getattr(mpmath, name)(x))

    return f


def _digamma_edge(x: float) -> float:
    return math.copysign(math.inf, -x) if x == 0 else math.nan


def _log_edge(x: float) -> float:
    return -math.inf if x == 0 else math.nan


def _max(a, b):
    return b if b != b or b > a else a


def _min(a, b):
    return b if b != b or b < a else a


def _shift(a: int, n: int) -> int:
    return wrap(a << n) if 0 <= n < 64 else 0


def _whole(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(float(f(x)), x) if math.isfinite(x) else x


def _sign(x):
    return (x > 0) - (x < 0)  # of NaN too, as torch has it


_FLOAT: dict[str, Callable[..., float]] = {
    "div": _div,
    "pow": _pow,
    "mod": _remainder,
    "floordiv": _floor_divide,
    "exp": _guard(math.exp, lambda x: math.inf),
    "exp2": lambda x: _pow(2.0, x),
    "expm1": _guard(math.expm1, lambda x: math.inf),
    "log": _guard(math.log, _log_edge),
    "log2": _guard(math.log2, _log_edge),
    "log10": _guard(math.log10, _log_edge),
    "log1p": _guard(math.log1p, lambda x: _log_edge(x + 1)),
    "sqrt": _guard(math.sqrt),
    "rsqrt": lambda x: _div(1.0, _guard(math.sqrt)(x)),
    "cbrt": _cbrt,
    "sin": _guard(math.sin),
    "cos": _guard(math.cos),
    "tan": _guard(math.tan),
    "asin": _guard(math.asin),
    "acos": _guard(math.acos),
    "atan": math.atan,
    "atan2": math.atan2,
    "sinh": _guard(math.sinh, lambda x: math.copysign(math.inf, x)),
    "cosh": _guard(math.cosh, lambda x: math.inf),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _guard(math.acosh),
    "atanh": _guard(math.atanh, lambda x: math.copysign(math.inf, x) if abs(x) == 1 else math.nan),
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)) if x > -700 else _FLOAT["exp"](x) if x == x else x,
    "erf": math.erf,
    "erfc": math.erfc,
    "erfinv": lambda x: x if x == 0 else _guard(_mpmath("erfinv"))(x),
    "lgamma": _guard(math.lgamma, lambda x: math.inf),
    "digamma": _guard(_mpmath("digamma"), _digamma_edge),
    "hypot": math.hypot,
    "copysign": math.copysign,
    "fma": _fma,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(lambda x: round(x)),
}
_INT: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else a,
    "pow": _ipow,
    "shl": _shift,
    "shr": lambda a, n: a >> n if 0 <= n < 64 else -(a < 0),
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitnot": lambda a: ~a,
    "floor": lambda a: a,
    "ceil": lambda a: a,
    "trunc": lambda a: a,
    "round": lambda a: a,
}
_BOOL: dict[str, Callable[..., bool]] = {"bitand": lambda a, b: a and b, "bitor": lambda a, b: a or b, "bitnot": lambda a: not a}
_ANY: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "pos": lambda a: a,
    "stop": lambda a: a,
    "abs": abs,
    "sign": _sign,
    "max": _max,
    "min": _min,
    "clamp": lambda x, lo, hi: _min(_max(x, lo), hi),
    "relu": lambda x: 0 if x < 0 else x,
    "where": lambda c, a, b: a if c else b,
    "isnan": lambda x: x != x,
    "isinf": lambda x: abs(x) == math.inf,
    "isfinite": lambda x: x - x == 0,
    "signbit": lambda x: math.copysign(1, x) < 0,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


def evaluate(op: str, args: list[Value], kind: Number) -> Value:
    """One operator on host numbers; `kind` is the result's."""
    if kind == FLOAT or op in _FLOAT and any(isinstance(a, float) for a in args):
        args = [a if op == "where" and k == 0 else float(a) for k, a in enumerate(args)]
        function = _FLOAT.get(op) or _ANY[op]
        return float(function(*args))
    function = (_INT if kind == INT else _BOOL).get(op) or _ANY[op]
    if kind == BOOL and any(isinstance(a, float) for a in args):
        args = [float(a) for a in args]  # numbers of two kinds are compared as floats
    result = function(*args)
    return wrap(int(result)) if kind == INT else bool(result)


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer that an integer dtype holds."""
    return (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)


def constant(op: str, args: list[Value], kind: Number) -> Value:
    """As `evaluate`, of numbers that the writer wrote: an integer result is exact, however large.

    Raises `ZeroDivisionError` for an integer division by zero, `ValueError` where no integer is meant (a negative power or shift)
    and `OverflowError` for powers and shifts that no i64 holds, before computing them.
    """
    if kind != INT:
        return evaluate(op, args, kind)
    a, b = (*(int(x) for x in args), 0)[:2] if op in ("pow", "shl", "shr") else (0, 0)
    if op in ("shl", "shr") and b < 0 or op == "pow" and b < 0 and abs(a) != 1:
        raise ValueError
    if op == "shl" and b > 64 and a or op == "pow" and b > 64 and abs(a) > 1:
        raise OverflowError
    if op in ("floordiv", "mod"):
        if not args[1]:
            raise ZeroDivisionError("integer division or modulo by zero")
        return _INT[op](*args)
    if op == "shl":
        return a << b
    if op == "pow":
        return a**b if b >= 0 else a ** (b % 2)
    return int((_INT.get(op) or _ANY[op])(*args))


def to_dtype(x: Value, dtype: DType) -> Value:
    """A host number rounded once to `dtype` (floats to even; integers wrap, float to integer saturates, NaN to 0)."""
    if dtype.kind == "bool":
        return bool(x)
    if dtype.is_int:
        low, high = limits(dtype)
        if isinstance(x, float):
            return 0 if x != x else low if x <= low else high if x >= high else int(x)
        return wrap(int(x), dtype.bits, dtype.kind == "int")
    x = float(x)
    if dtype.bits == 64 or not math.isfinite(x):
        return x
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)
