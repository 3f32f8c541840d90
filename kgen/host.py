"""Host numbers: expressions of numbers alone, computed once a call in f64 (or i64), with IEEE's special values.

In: an operator's name and Python numbers.  Out: a Python number; where Python would raise (a division by zero, an
overflow, a logarithm of zero) the value IEEE 754 and torch give.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from kgen.types import FLOAT, INT, DType, Number

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


def _log_edge(x: float) -> float:
    return -math.inf if x == 0 else math.nan


def _max(a, b):
    return a if a != a or a > b else b


def _min(a, b):
    return a if a != a or a < b else b


def _shift(a: int, n: int) -> int:
    return wrap(a << n) if 0 <= n < 64 else 0


def _round(x: float) -> float:
    return float(round(x)) if math.isfinite(x) else x


def _whole(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: math.copysign(float(f(x)), x) if math.isfinite(x) else x


def _sign(x):
    return x if x != x else (x > 0) - (x < 0)


_FLOAT: dict[str, Callable[..., float]] = {
    "div": _div, "pow": _pow, "mod": _remainder, "floordiv": lambda a, b: _whole(math.floor)(_div(a - _remainder(a, b), b)) if b != 0 else _div(a, b),
    "exp": _guard(math.exp, lambda x: math.inf), "exp2": lambda x: _pow(2.0, x), "expm1": _guard(math.expm1, lambda x: math.inf),
    "log": _guard(math.log, _log_edge), "log2": _guard(math.log2, _log_edge), "log10": _guard(math.log10, _log_edge),
    "log1p": _guard(math.log1p, lambda x: _log_edge(x + 1)), "sqrt": _guard(math.sqrt), "rsqrt": lambda x: _div(1.0, _guard(math.sqrt)(x)),
    "cbrt": lambda x: math.copysign(abs(x) ** (1 / 3), x), "sin": _guard(math.sin), "cos": _guard(math.cos), "tan": _guard(math.tan),
    "asin": _guard(math.asin), "acos": _guard(math.acos), "atan": math.atan, "atan2": math.atan2,
    "sinh": _guard(math.sinh, lambda x: math.copysign(math.inf, x)), "cosh": _guard(math.cosh, lambda x: math.inf), "tanh": math.tanh,
    "asinh": math.asinh, "acosh": _guard(math.acosh), "atanh": _guard(math.atanh, lambda x: math.copysign(math.inf, x) if abs(x) == 1 else math.nan),
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)) if x > -700 else _FLOAT["exp"](x) if x == x else x,
    "erf": math.erf, "erfc": math.erfc, "erfinv": _mpmath("erfinv"), "lgamma": _guard(math.lgamma, lambda x: math.inf), "digamma": _mpmath("digamma"),
    "hypot": math.hypot, "copysign": math.copysign, "fma": lambda a, b, c: a * b + c,
    "floor": _whole(math.floor), "ceil": _whole(math.ceil), "trunc": _whole(math.trunc), "round": _whole(lambda x: round(x)),
}  # fmt: skip
_INT: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else a, "pow": _ipow,
    "shl": _shift, "shr": lambda a, n: a >> n if 0 <= n < 64 else -(a < 0), "bitand": lambda a, b: a & b, "bitor": lambda a, b: a | b, "bitnot": lambda a: ~a,
    "floor": lambda a: a, "ceil": lambda a: a, "trunc": lambda a: a, "round": lambda a: a,
}  # fmt: skip
_ANY: dict[str, Callable[..., Value]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a, "pos": lambda a: a, "stop": lambda a: a,
    "abs": abs, "sign": _sign, "max": _max, "min": _min, "clamp": lambda x, lo, hi: _min(_max(x, lo), hi), "relu": lambda x: 0 if x < 0 else x,
    "where": lambda c, a, b: a if c else b, "isnan": lambda x: x != x, "isinf": lambda x: abs(x) == math.inf, "isfinite": lambda x: x - x == 0,
    "signbit": lambda x: math.copysign(1, x) < 0, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
    "not": lambda a: not a,
}  # fmt: skip


def evaluate(op: str, args: list[Value], kind: Number) -> Value:
    """One operator on host numbers; `kind` is the result's."""
    if kind == FLOAT or op in _FLOAT and any(isinstance(a, float) for a in args):
        args = [a if op == "where" and k == 0 else float(a) for k, a in enumerate(args)]
        function = _FLOAT.get(op) or _ANY[op]
        return float(function(*args))
    function = (_INT.get(op) if kind == INT else None) or _ANY[op]
    result = function(*args)
    return wrap(int(result)) if kind == INT else bool(result)


def to_dtype(x: Value, dtype: DType) -> Value:
    """A host number rounded once to `dtype` (floats to even; integers wrap, float to integer saturates, NaN to 0)."""
    if dtype.kind == "bool":
        return bool(x)
    if dtype.is_int:
        low, high = (0, 2**dtype.bits - 1) if dtype.kind == "uint" else (-(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1)
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
