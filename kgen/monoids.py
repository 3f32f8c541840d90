"""The table of monoids: what a reduction accumulates while a row is read, a row for each kind of reduction.

In: nothing.  Out: `MONOIDS`, by the reduction's name.  The schedule reads which sums can be made in one reading with the peak that they
are about (`online.py` finds them), the backends how a partial result is kept and joined, `testing/bounds.py` what that adds to an error.

A *partial* is what some elements of a row add up to: its fields.  Of no elements each is its identity; one element gives its shares;
two partials are joined.  A sum *about a peak* (the greatest x so far, or the mean of x so far) has terms that change as the peak moves.
Before such partials are joined they are *rescaled* to the peak of all their elements, as if they had known it from the start:

    expsum    sum(exp(x - m))              m = max(x)      times exp(a - b), where the peak rises from a to b
    expdot    sum(exp(x - m) * v)                          likewise
    expoff    sum(exp(x - m) * (x - m))                    first (a - b) * sum(exp(x - m)) is added
    offsum    sum(x - m)                                   n * (a - b) is added, n being the count
    sqsum     sum((x - m)^2)               m = mean(x)     n * (a - b)^2 is added (Chan, Golub and LeVeque 1983)

Shares and moves are patterns of a target's own source, as spellings of operators are: `{x}` is an element, `{v}` its weights, one times
the next, `{place}` its position; `{own}` and `{<field>}` are fields of a partial, `{peak}` its peak, `{top}` the peak that it moves to,
`{top.<field>}` a field there, `{part.<field>}` another share of the element.  The functions that they call stand in the `functions` of
each target that makes such sums.

Where the peak is infinite, exponentials are of x itself (`finite_or_zero`): the formula's own value is made of that (`online.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from kgen.searches import SEARCHES

#: The error of exp of what is at most 0, as a factor or a term of a sum about a maximum, in f32: 2 units and that of its argument.
FALL = 2.0
#: Below this such an exponential is 0.
FLUSHED = 2.0**-126


class Rides(IntEnum):
    """Of which rows a backend makes sums about a peak in the reading of that: none, those that do not stay on the chip, or every row, but
    for sums that are `again`."""

    NONE = 0
    LONG = 1
    EVERY = 2


class Drift(NamedTuple):
    """A sum whose error beyond that of its formula is asked for: torch, its finite `terms` and the dims that it is over, the unit roundoff,
    the depth of the tree of additions, how many terms there are.  `falls` has of each term the error that rescaled exponentials leave
    there (see `fallen`), `centre` how large the mean of a sum about one may be."""

    torch: Any
    terms: Any
    dims: list[int]
    unit: float
    depth: int
    number: int
    falls: Any = 0.0
    centre: Any = 0.0


def fallen(power: Any, gap: Any, unit: float, depth: int) -> Any:
    """The error of exp(-gap), `power`, as a product of a first exponential and of one for each time the peak rose: there are no more than
    `depth`, each with its own rounding, that of the product and that of its argument; the arguments add up to `gap`."""
    return power * unit * (2 * gap + (1 + depth) * (1 + 2 * FALL)) + (FLUSHED if unit > 2.0**-30 else 2.0**-1022)


def exponentials(d: Drift) -> Any:
    """Of sums of exponentials: what those leave."""
    return d.falls


def offset_exponentials(d: Drift) -> Any:
    """Of sums of exp(z) * z: the pieces of z that moves add have one sign, so each is made as exactly as the exponentials, once for itself
    and once for the sum that it is a multiple of, and passes three roundings and the additions."""
    return 2 * d.falls + d.terms.abs() * d.unit * (3 + d.depth)


def offsets(d: Drift) -> Any:
    """Of sums of x - max: the roundings of as many moves, of n_i * (old - new) each, together no more than n * (max - min)."""
    return d.terms.abs().amax(d.dims, keepdim=True) * d.unit * 3 * d.depth


def squares(d: Drift) -> Any:
    """Of sums of squares about a mean, M, of n terms, spread over them.

    A partial P of n_P elements has a computed mean c that is off by at most g * sum_P|x| / n_P, with g = gamma(depth + 6).  Its squares are
    about that c: of one element, or of a tile that is near enough to be gone through again.  To move them from c to b takes
    n_P (c - b)^2 + 2 (c - b) n_P (mean_P - c), exactly; the second part is left out.  An element moves no more than `depth` times, and the
    sum of n_P (c - b)^2 over all moves is a part of M, but for the errors of the means.  So by Cauchy and Schwarz, twice, with
    t = g * root(depth * sum(x^2)), the moves leave out at most 2 t (root(M) + 2 t) together: relatively about g * root(depth) times the
    condition number root(sum(x^2) / M) of Chan, Golub and LeVeque.  The last mean's error adds g^2 * sum(x^2), as after a second
    reading; squares, counts and products are rounded 8 times more.
    """
    counts = d.depth * (d.number > 2**24)  # roundings of a count, which is kept in the dtype that is computed in
    gamma = (d.depth + counts + 6) * d.unit / (1 - (d.depth + counts + 6) * d.unit)
    whole = d.terms.clamp(min=0).sum(d.dims, keepdim=True)
    size = gamma * (whole + d.number * d.centre**2).sqrt()
    moves = math.sqrt(d.depth) * size
    left = 2 * moves * (whole.sqrt() + 2 * moves) + size**2
    return (left + (8 + counts) * d.unit * (whole + left) + gamma * left) / d.number + d.depth * 2.0**-148


@dataclass(frozen=True)
class Field:
    """One number of a partial: `name` stands behind the reduction's own, "" for the one that is the result; `identity` is 0, 1, the
    "least" or "greatest" of its dtype, or "last", the place behind all others; `share` is what an element gives, the square of `root` if
    there is one, which may be rounded with the sum.  A field that is `early` belongs to the peak: it is joined before anything is
    rescaled."""

    name: str = ""
    identity: str = "0"
    share: str = "{x}"
    early: bool = False
    root: str = ""


class Move(NamedTuple):
    """A step of rescaling: field, sign, and what it is changed by."""

    field: str
    sign: str
    by: str


@dataclass(frozen=True)
class Monoid:
    """A row.  Fields are joined one by one by the operator `join` of the table of operators; with "first" that partial is taken whole
    whose first field goes before the other's: NaN, then the greatest or least, then the lower place.  Of scans the first partial's elements
    stand before the other's; "masses", "follow" and "since" are theirs alone (`backends/scans.py`).

    A sum `about` the "max" or "mean" of x is of a product of `factors`: "exp" is exp(x - m), "apart" is x - m; with others, its weights,
    where it is `weighted`.  Its `moves` rescale it.  One that is `again` is made so only of rows that do not stay on the chip: of others a
    second reading is as quick, and more exact.  A scan's value is its first field, to which the logarithm of field `log` is added, if there
    is one.  `sign` is 1 where a sum is not negative; `cost` counts (instructions, special-function instructions) of an element; `error`
    says what the moves add to each term's error.
    """

    name: str
    join: str
    fields: tuple[Field, ...]
    about: str = ""
    factors: tuple[str, ...] = ()
    weighted: bool = False
    moves: tuple[Move, ...] = ()
    again: bool = False
    sign: int = 0
    cost: tuple[int, int] = (1, 0)
    log: str = ""
    error: Callable[[Drift], Any] | None = None

    def rides(self, rows: Rides, long: bool) -> bool:
        """Whether a backend that rides on some rows makes such a sum with its peak: in the code of those that do not stay on the chip
        (`long`), or in that of all."""
        every = rows == Rides.EVERY and not self.again
        return bool(self.about) and (rows != Rides.NONE and not every if long else every)

    @property
    def placed(self) -> bool:
        """Whether it finds a place."""
        return self.join == "first"


_BELOW = "{x} - finite_or_zero({top})"
_APART = "{x} - centre({top}, {top.count})"
_RISE = "finite_or_zero({peak}) - finite_or_zero({top})"
_FALL, _DESCENT = "fall({peak}, {top})", "descent({peak}, {top})"

MONOIDS: dict[str, Monoid] = {m.name: m for m in (
    Monoid("sum", "add", (Field(),)),
    Monoid("prod", "mul", (Field(identity="1"),)),
    Monoid("max", "max", (Field(identity="least"),)),
    Monoid("min", "min", (Field(identity="greatest"),)),
    Monoid("argmax", "first", (Field("part", "least"), Field("", "last", "{place}"))),
    Monoid("argmin", "first", (Field("part", "greatest"), Field("", "last", "{place}"))),
    Monoid("cutoff", "add", (Field(),), cost=(96, 0)),  # of each step of a search (`selection.py`): what those elements weigh
    Monoid("reach", "add", (Field(),), cost=(96, 0)),
    Monoid("expsum", "add", (Field(share=f"exp_below({_BELOW})"),), "max", ("exp",), moves=(Move("", "*=", _FALL),), sign=1,
           cost=(4, 1), error=exponentials),
    Monoid("offsum", "add", (Field(share=_BELOW), Field("count", share="1")), "max", ("apart",),
           moves=(Move("", "+=", f"{{count}} * ({_RISE})"),), cost=(3, 0), error=offsets),
    Monoid("expdot", "add", (Field(share=f"exp_below({_BELOW}) * {{v}}"),), "max", ("exp",), weighted=True,
           moves=(Move("", "*=", _DESCENT),), cost=(5, 1), error=exponentials),
    Monoid("expoff", "add", (Field("mass", share=f"exp_below({_BELOW})"), Field(share=f"{{part.mass}} * ({_BELOW})")), "max",
           ("exp", "apart"), cost=(6, 1), error=offset_exponentials,
           moves=(Move("", "+=", "carried({mass}, {peak}, {top})"), Move("", "*=", _DESCENT), Move("mass", "*=", _DESCENT))),
    Monoid("sqsum", "add", (Field("count", share="1", early=True), Field(share=f"squared({_APART})", root=_APART)), "mean",
           ("apart", "apart"), again=True, sign=1, cost=(4, 0), error=squares,
           moves=(Move("", "+=", "spread({count}, {peak}, {top.count}, {top})"),)),
    # What scans carry along; of a recurrence h' = a h + b, of which "follow" joins two steps to one, also what h is multiplied by.
    Monoid("cumsum", "add", (Field(),), cost=(3, 0)),
    Monoid("cumprod", "mul", (Field(identity="1"),), cost=(3, 0)),
    Monoid("cummax", "max", (Field(identity="least"),), cost=(3, 0)),
    Monoid("cummin", "min", (Field(identity="greatest"),), cost=(3, 0)),
    Monoid("logcumsumexp", "masses", (Field("top", "least"), Field("mass", share="1")), cost=(20, 3), log="mass"),
    Monoid("recur", "follow", (Field(share="{v}"), Field("factor", "1")), cost=(9, 0)),
    Monoid("cumsum_since", "since", (Field(share="{v}"), Field("begun")), cost=(9, 0)),  # whether anything begins there
)}  # fmt: skip

#: Sums about a peak: their operands are x, the peak (its maximum, or its sum) and the weights.
RIDERS = frozenset(m.name for m in MONOIDS.values() if m.about)


def elements(expr: Any) -> tuple:
    """The operands of an expression that are there where it is computed: of a sum about a peak, all but the peak; of a search, what its
    elements give."""
    if expr.name in SEARCHES:
        return expr.operands[:1]
    return (*expr.operands[:1], *expr.operands[2:]) if expr.name in RIDERS else expr.operands


def row(about: str, factors: tuple[str, ...], weighted: bool) -> Monoid | None:
    """The row of a sum about a peak of a product of factors."""
    fits = (m for m in MONOIDS.values() if m.about == about and sorted(m.factors) == sorted(factors) and (not weighted or m.weighted))
    return next(iter(sorted(fits, key=lambda m: m.weighted)), None)
