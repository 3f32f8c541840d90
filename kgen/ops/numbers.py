"""Operators on host numbers, with IEEE's special values where Python would raise: what a row of the table has as `host`.

In: Python numbers; where a function serves floats and integers it goes by their type, and those of integers wrap nothing (but a
power).  Out: a Python number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any


def wrap(x: int, bits: int = 64, signed: bool = True) -> int:
    """An integer modulo 2^bits, as a register of that width holds it."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if signed and x >> (bits - 1) else x


def divide(a: float, b: float) -> float:
    if b != 0:
        try:
            return a / b
        except OverflowError:
            return math.inf
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


def power(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return wrap(pow(a, b, 1 << 64)) if b >= 0 else (a if abs(a) == 1 and b % 2 else 1 if abs(a) == 1 else 0)
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        if a == 0:
            return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
        return math.nan


def remainder(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return a % b if b else a
    if b == 0 or math.isinf(a) or a != a or b != b:
        return math.nan
    r = math.fmod(a, b)
    return r + b if r != 0 and (r < 0) != (b < 0) else r


def floor_divide(a: Any, b: Any) -> Any:
    """As torch has it: the quotient of what the remainder leaves, so that it agrees with `%`; of integers by 0 it is 0."""
    if isinstance(a, int):
        return a // b if b else 0
    if b == 0 or not (math.isfinite(a) and b == b):
        return divide(a, b) if b == 0 else math.nan
    rest = math.fmod(a, b)
    quotient = divide(a - rest, b) - (1.0 if rest != 0 and (rest < 0) != (b < 0) else 0.0)
    if quotient == 0:
        return math.copysign(0.0, divide(a, b))
    whole = floor(quotient)
    return whole + 1.0 if quotient - whole > 0.5 else whole


def fma(a: float, b: float, c: float) -> float:
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


def cube_root(x: float) -> float:
    """One exact Newton step from an approximation: the C library's is an ulp off, even for 27."""
    if x == 0 or not math.isfinite(x):
        return x
    y = math.copysign(abs(x) ** (1 / 3), x)
    return float(Fraction(y) - (Fraction(y) ** 3 - Fraction(x)) / (3 * Fraction(y) ** 2))


def guarded(f: Callable[[float], float], edge: Callable[[float], float] = lambda x: math.nan) -> Callable[[float], float]:
    """`f` with `edge` where Python's math raises."""

    def g(x: float) -> float:
        try:
            return f(x)
        except (ValueError, OverflowError):
            return edge(x)

    return g


def from_mpmath(name: str) -> Callable[[float], float]:
    """mpmath's function of that name, imported when it is called."""

    def f(x: float) -> float:
        import mpmath

        return float(getattr(mpmath, name)(x))

    return f


def _whole(f: Callable[[float], int]) -> Callable[[Any], Any]:
    return lambda x: x if isinstance(x, int) or not math.isfinite(x) else math.copysign(float(f(x)), x)


def infinite(x: float) -> float:
    return math.inf


def infinite_as(x: float) -> float:
    return math.copysign(math.inf, x)


def log_edge(x: float) -> float:
    return -math.inf if x == 0 else math.nan


def greatest(a: Any, b: Any) -> Any:
    return b if b != b or b > a else a


def least(a: Any, b: Any) -> Any:
    return b if b != b or b < a else a


def shift_left(a: int, n: int) -> int:
    return wrap(a << n) if 0 <= n < 64 else 0


def shift_right(a: int, n: int) -> int:
    return a >> n if 0 <= n < 64 else -(a < 0)


def philox(seed: int, offset: int, i: int) -> int:
    """Word i % 4 of four words of 32 bits: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
    3", SC 2011) of the counter (offset, i // 4), the lower words first, with `seed` as its key.  Integers count modulo 2^64."""
    half, m0, m1 = 0xFFFFFFFF, 0xD2511F53, 0xCD9E8D57
    at = (i % 2**64) >> 2
    c = [offset & half, offset >> 32 & half, at & half, at >> 32]
    k0, k1 = seed & half, seed >> 32 & half
    for _ in range(10):
        p, q = m0 * c[0], m1 * c[2]
        c = [q >> 32 ^ c[1] ^ k0, q & half, p >> 32 ^ c[3] ^ k1, p & half]
        k0, k1 = (k0 + 0x9E3779B9) & half, (k1 + 0xBB67AE85) & half
    return c[i & 3]


def invert(a: int) -> int:
    return not a if isinstance(a, bool) else ~a


def sign(x: Any) -> int:
    return (x > 0) - (x < 0)  # of NaN too, as torch has it


def same(x: Any) -> Any:
    return x


floor, ceil, trunc, nearest = (_whole(f) for f in (math.floor, math.ceil, math.trunc, lambda x: round(x)))
exp = guarded(math.exp, infinite)
sqrt = guarded(math.sqrt)


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else exp(x) if x == x else x


def sigmoid_slope(x: float) -> float:
    e = math.exp(-abs(x))
    return e / ((1.0 + e) * (1.0 + e))
