"""Host numbers: expressions of numbers alone, computed once a call in f64 (or i64), with IEEE's special values.

In: an operator's name and Python numbers.  Out: a Python number; where Python would raise (a division by zero, an
overflow, a logarithm of zero) the value IEEE 754 and torch give.
"""

from __future__ import annotations

import math
import struct

from kgen.ops import OPS
from kgen.ops.numbers import wrap
from kgen.types import BOOL, FLOAT, INT, DType, Number, f64

Value = float | int | bool


def evaluate(op: str, args: list[Value], kind: Number) -> Value:
    """One operator on host numbers; `kind` is the result's."""
    row = OPS[op]
    if kind == FLOAT:
        return float(row.host(*(a if row.rule == "where" and k == 0 else float(a) for k, a in enumerate(args))))
    if kind == BOOL and any(isinstance(a, float) for a in args):
        args = [float(a) for a in args]  # numbers of two kinds are compared as floats
    result = row.host(*args)
    return wrap(int(result)) if kind == INT else bool(result)


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
        return OPS[op].host(*args)
    if op == "shl":
        return a << b
    if op == "pow":
        return a**b if b >= 0 else a ** (b % 2)
    return int(OPS[op].host(*args))


def to_dtype(x: Value, dtype: DType) -> Value:
    """A host number rounded once to `dtype` (floats to even; integers wrap, float to integer saturates, NaN to 0)."""
    if dtype.kind == "bool":
        return bool(x)
    if dtype.is_int:
        low, high = dtype.limits
        if isinstance(x, float):
            return 0 if x != x else low if x <= low else high if x >= high else int(x)
        return wrap(int(x), dtype.bits, dtype.kind == "int")
    x = float(x)
    if dtype.computed is f64 or not math.isfinite(x):
        return x
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


__all__ = ["Value", "constant", "evaluate", "to_dtype", "wrap"]
