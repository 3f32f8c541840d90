"""How operators move errors: slopes, jumps, poles.  What rows of the table have in `errors`.

All take a `Move` and give float64 tensors.  torch comes with it: nothing here loads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Move(NamedTuple):
    """A result `x` of the operands `args` (tensors or numbers), each of which may be off by its `errors`; `floors` are numbers below
    which the operands cannot lie, and `far` by what factor the errors were moved, where that is not 1."""

    torch: Any
    x: Any
    args: Sequence[Any]
    errors: Sequence[Any]
    floors: Sequence[float] = ()
    far: Any = 1.0

    @property
    def operands(self) -> list[Any]:
        """The operands as float64 tensors."""
        return [self.torch.as_tensor(t, dtype=self.torch.float64) for t in self.args]


class Slopes(NamedTuple):
    """The derivatives of a result by its operands (by the last ones, if there are fewer), a bound on what they leave out, and a part of
    what the operands move it by that comes on top, at most 1."""

    by: tuple[Any, ...]
    rest: Any = None
    growth: Any = None


Rule = Callable[[Move], Slopes | None]

# ---------------------------------------------------------------------------------------------------- slopes


def linear(*by: float) -> Rule:
    """Of a sum, a difference and the like: constant derivatives."""
    return lambda m: Slopes(tuple(m.torch.full((), k, dtype=m.torch.float64) for k in by))


def product(m: Move) -> Slopes:
    a, b = m.operands
    return Slopes((b, a), m.errors[0] * m.errors[1])


def square(m: Move) -> Slopes:
    """Of a power with the exponent 2."""
    (a, _), e = m.operands, m.errors[0]
    return Slopes((2 * a, m.torch.zeros((), dtype=m.torch.float64)), e * e)


def _seen(m: Move, slope: Any, of: Any) -> Any:
    """A slope that is 0 only where `of` is: one too small for float64 may meet an error that is as large."""
    least = 2.0**-1022
    return m.torch.where((slope.abs() < least) & (of != 0), m.torch.copysign(m.torch.full_like(slope, least), slope), slope)


def quotient(m: Move) -> Slopes:
    (_, b), y = m.operands, m.x.double()
    return Slopes((1 / b, _seen(m, -y / b, y)), None, m.errors[1] / b.abs())


def exponential(m: Move) -> Slopes:
    e, y = m.errors[0], m.torch.exp(m.operands[0])
    return Slopes((y,), y * m.torch.exp(e) * e * e / 2)


def _known(m: Move, t: Any, rest: Any) -> Any:
    """What slopes leave out, where an error relative to the operand is less than 1."""
    return m.torch.where((t >= 0) & (t < 1), rest, m.torch.inf)


def logarithm(shift: float) -> Rule:
    """Of log(shift + x)."""

    def slopes(m: Move) -> Slopes:
        base = m.operands[0] + shift if shift else m.operands[0]
        t = m.errors[0] / base
        return Slopes((1 / base,), _known(m, t, t * t / (2 * (1 - t) ** 2)))

    return slopes


def root(m: Move) -> Slopes:
    y, t = m.x.double(), m.errors[0] / m.operands[0]
    return Slopes((0.5 / y,), _known(m, t, y * t * t / (8 * (1 - t) ** 1.5)))


def inverse_root(m: Move) -> Slopes:
    (a,), y = m.operands, m.x.double()
    t = m.errors[0] / a
    return Slopes((_seen(m, -0.5 * y / a, y),), _known(m, t, y * t * t * 3 / (8 * (1 - t) ** 2.5)))


def smooth(slope: Callable[[Any, Any, Any], Any], half_curvature: float) -> Rule:
    """Of a function whose second derivative is nowhere larger than twice `half_curvature`; `slope` takes torch, operand and result."""

    def slopes(m: Move) -> Slopes:
        e = m.errors[0]
        return Slopes((slope(m.torch, m.operands[0], m.x.double()),), half_curvature * e * e)

    return slopes


def kinked(slope: Callable[[Any, Any], Any]) -> Rule:
    """Of a function with a kink at 0."""

    def slopes(m: Move) -> Slopes:
        (a,), e = m.operands, m.errors[0]
        sure = a.abs() > e
        return Slopes((m.torch.where(sure, slope(m.torch, a), 0.0),), m.torch.where(sure, 0.0, e))

    return slopes


def chosen(m: Move) -> Slopes | None:
    """Of a choice, where its condition is exact."""
    if bool((m.errors[0] != 0).any()):
        return None
    yes = (m.operands[0] != 0).double()
    return Slopes((yes, 1 - yes))


def gauss(torch: Any, a: Any) -> Any:
    return 2 / math.sqrt(math.pi) * torch.exp(-a * a)


# ---------------------------------------------------------------------------------------------------- movements


def _double(torch: Any, t: Any) -> Any:
    return t.double() if isinstance(t, torch.Tensor) else torch.tensor(float(t), dtype=torch.float64)


def sign_bit(m: Move) -> Any:
    """Infinite where the sign is not sure; whose sign a NaN has is not said."""
    a, e = m.args[0].double(), m.errors[0]
    return m.torch.where(m.torch.isnan(a) | (e != 0) & ~(a.abs() > e), m.torch.inf, 0.0)


def sign_copied(m: Move) -> Any:
    """Of what takes its second operand's sign: one whose interval holds 0 may have either."""
    (a, b), (e, f) = m.operands, m.errors
    either = m.torch.isnan(b) | (f != 0) & ~(b.abs() > f)
    return m.torch.where(either, 2 * a.abs() + e, e)


def choice(m: Move) -> Any:
    torch = m.torch
    a, b = (t if isinstance(t, torch.Tensor) else torch.tensor(float(t), dtype=torch.float64) for t in m.args[1:])
    c = m.args[0] if isinstance(m.args[0], torch.Tensor) else torch.tensor(m.args[0])
    either = (a.double() - b.double()).abs() + m.errors[1] + m.errors[2]
    return torch.where(m.errors[0] != 0, either, torch.where(c, m.errors[1], m.errors[2]))


def comparison(m: Move) -> Any:
    """Infinite where a tie may lie anywhere within the intervals."""
    a, b = (_double(m.torch, t) for t in m.args)
    reach = m.errors[0] + m.errors[1]
    return m.torch.where((reach != 0) & ~((a - b).abs() > reach) | m.torch.isnan(reach), m.torch.inf, 0.0)


def waves(slope: float, span: float) -> Callable[[Move], Any]:
    """Of a function that comes back between the ends of an interval, and is NaN of an infinity: its greatest slope, and how far two of
    its values may lie apart."""

    def moved(m: Move) -> Any:
        e = m.errors[0]
        return m.torch.where(m.torch.isinf(e), m.torch.nan, (slope * e).clamp(max=span))

    return moved


def tangent(m: Move) -> Any:
    """|tan(x + e) - tan(x)| = tan(e) (1 + t^2) / (1 - t tan(e)), up to the pole that is atan2(1, |t|) away."""
    torch, e = m.torch, m.errors[0]
    t, step = m.x.double().abs(), torch.tan(e)
    known = torch.where(e < torch.atan2(torch.ones_like(t), t), step * (1 + t * t) / (1 - t * step), torch.inf)
    return torch.where(e == 0, 0.0, torch.where(torch.isfinite(e), known, torch.nan))


def remainder(m: Move) -> Any:
    """Of floats: x = a - b floor(a / b) moves by the error of a and that of b times the quotient, and by a whole |b| where that may
    pass a multiple of b (NaN where b may be 0)."""
    torch = m.torch
    if not m.x.dtype.is_floating_point:
        return None
    (a, b), (e, f) = m.operands, m.errors
    drift = e + torch.where(f != 0, ((a / b).abs() + 1) * f, 0.0)
    jumps = ~((m.x.abs() > drift) & (m.x.abs() + drift < b.abs()))
    moved = torch.where(jumps, b.abs() + f, drift)
    unknown = (b.abs() <= f) | ~torch.isfinite(drift)
    return torch.where(drift == 0, 0.0, torch.where(unknown, torch.nan, moved))


# ---------------------------------------------------------------------------------------------------- what lies between the ends


def _poles(m: Move, pole: Any, worst: Any) -> Any:
    return m.torch.where(pole & ~m.torch.isnan(worst), m.torch.inf, worst)  # NaN stays: what comes of 0 / 0 may be NaN


def _quotient(m: Move, pole: Any, worst: Any) -> Any:
    """`_poles` where a divisor may be 0: of a dividend that may be 0 too the quotient may be NaN."""
    return m.torch.where(pole & (m.operands[0].abs() <= m.errors[0]), m.torch.nan, _poles(m, pole, worst))


def divisor(m: Move, worst: Any) -> Any:
    return _quotient(m, m.operands[1].abs() < m.errors[1], worst) if m.floors[1] < 0 else worst


def between_ones(m: Move, worst: Any) -> Any:
    """Of functions that are numbers from -1 to 1 alone: NaN at both ends of what reaches beyond both, and a number between."""
    return m.torch.where(m.operands[0].abs() <= m.errors[0] - 1, m.torch.nan, worst)


def whole_divisor(m: Move, worst: Any) -> Any:
    return _quotient(m, (m.operands[1].abs() <= m.errors[1]) & (m.errors[1] != 0), worst)


def power(m: Move, worst: Any) -> Any:
    (a, b), (e, f) = m.operands, m.errors
    worst = _poles(m, (a.abs() <= e) & (e != 0) & (b - f < 0), worst)
    # of a number below 0 it is NaN, but where the exponent is whole; of NaN 1 where that is 0
    either = (a - e < 0) & ((b - b.round()).abs() <= f) | m.torch.isnan(a) & (b.abs() <= f)
    one = m.torch.isnan(b) & (e != 0) & ((a - 1).abs() <= e)  # of 1 it is 1 whatever the exponent: NaN of its neighbours by NaN
    return m.torch.where((f != 0) & either | one, m.torch.nan, worst)


def whole_poles(m: Move, worst: Any) -> Any:
    """Poles at 0 and the whole numbers below it."""
    (a,), e = m.operands, m.far * m.errors[0]
    return _poles(m, (m.errors[0] != 0) & (a - e <= 0) & (m.torch.ceil(a - e) <= a + e), worst)


def summit(height: float) -> Callable[[Move, Any], Any]:
    """Of a function that rises to `height` at 0 and falls as it rose."""

    def between(m: Move, worst: Any) -> Any:
        a, torch = m.operands[0], m.torch
        return torch.where(a.abs() <= m.errors[0], torch.maximum(torch.as_tensor(worst), height - m.x.double()), worst)

    return between


def branch_cut(m: Move, worst: Any) -> Any:
    """An angle jumps where its first operand changes sign beside a negative second one."""
    (a, b), (e, f) = m.operands, m.errors
    cut = (a.abs() <= e) & (b - f <= 0)
    return m.torch.where(cut & (e + f != 0) & ~m.torch.isnan(worst), 2 * m.torch.pi, worst)


def reflected(m: Move) -> Any:
    """What digamma's reflection subtracts for x < 0; elsewhere 1."""
    torch, x = m.torch, m.args[0]
    terms = torch.maximum(torch.digamma(1 - x).abs(), (torch.pi / torch.tan(torch.pi * x)).abs())
    return torch.where((x < 0) & torch.isfinite(terms), terms, 1.0).clamp(min=1)
