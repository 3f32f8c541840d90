"""The rows of the table of monoids, evaluated as they stand: in whatever order partials are joined, they come to the formula."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from kgen.monoids import MONOIDS, RIDERS, Monoid, row
from tests.conftest import ROOT

INF = math.inf


def finite_or_zero(x: float) -> float:
    return x if math.isfinite(x) else 0.0


def exp(x: float) -> float:
    return math.exp(x) if x < 700 else INF


def centre(total: float, n: float) -> float:
    return total / n if n > 0 else 0.0


#: What templates/cuda/functions/ has, on numbers.
FUNCTIONS: dict[str, Any] = {
    "finite_or_zero": finite_or_zero, "exp_below": exp, "centre": centre, "squared": lambda x: x * x, "inf": INF,
    "fall": lambda a, b: 1.0 if a == b else exp(a - b),
    "descent": lambda a, b: 1.0 if a == b else exp(a if b == INF else a - b),
    "carried": lambda n, a, b: 0.0 if a == b else n * (finite_or_zero(a) - finite_or_zero(b)),
    "spread": lambda n, s, m, t: n * (centre(s, n) - centre(t, m)) ** 2 if n > 0 else 0.0,
}  # fmt: skip


class Peak(float):
    """A peak with the early fields that stand beside it."""


class Partial:
    """A partial of a sum about a peak."""

    def __init__(self, monoid: Monoid):
        self.monoid, self.peak = monoid, -INF if monoid.about == "max" else 0.0
        self.fields = dict.fromkeys((f.name for f in monoid.fields), 0.0)

    def number(self, pattern: str, top: Partial, **names: float) -> float:
        """A share or a move, with its names in place."""
        goal = Peak(top.peak)
        for name, value in top.fields.items():
            if name:
                setattr(goal, name, value)
        own = {n or "own": v for n, v in self.fields.items()}
        own["part"] = type("Part", (), dict(self.fields))
        made = pattern.format(**own, top=goal, peak=self.peak, **names)
        return eval(made, {"__builtins__": {}} | FUNCTIONS)

    def rescaled(self, top: Partial) -> Partial:
        made = Partial(self.monoid)
        made.peak, made.fields = self.peak, dict(self.fields)
        for move in self.monoid.moves:
            by = made.number(move.by, top)
            made.fields[move.field] = made.fields[move.field] + by if move.sign == "+=" else made.fields[move.field] * by
        made.peak = top.peak
        made.fields |= {f.name: top.fields[f.name] for f in self.monoid.fields if f.early}
        return made

    def joined(self, other: Partial) -> Partial:
        """Two partials as one: the peak first, then both about it."""
        top = Partial(self.monoid)
        top.peak = max(self.peak, other.peak) if self.monoid.about == "max" else self.peak + other.peak
        early = [f.name for f in self.monoid.fields if f.early]
        top.fields |= {n: self.fields[n] + other.fields[n] for n in early}
        a, b = self.rescaled(top), other.rescaled(top)
        a.fields |= {n: a.fields[n] + b.fields[n] for n in a.fields if n not in early}
        return a


def one(monoid: Monoid, x: float, v: float) -> Partial:
    """The partial of one element."""
    made = Partial(monoid)
    made.peak = x
    for f in sorted(monoid.fields, key=lambda f: not f.early):
        made.fields[f.name] = made.number(f.share, made, x=x, v=v)
    return made


def formula(monoid: Monoid, xs: list[float], vs: list[float]) -> float:
    m = finite_or_zero(max(xs)) if monoid.about == "max" else math.fsum(xs) / len(xs)
    made = []
    for x, v in zip(xs, vs, strict=True):
        factors = [exp(x - m) if f == "exp" else x - m for f in monoid.factors]
        made.append(math.prod(factors) * (v if monoid.weighted else 1))
    return math.fsum(made)


@pytest.mark.parametrize("name", sorted(RIDERS))
@pytest.mark.parametrize("seed", range(20))
def test_partials_come_to_the_formula_in_any_tree(name: str, seed: int) -> None:
    rnd, monoid = random.Random(f"{name} {seed}"), MONOIDS[name]
    n = rnd.choice((1, 2, 3, 17, 100))
    offset = rnd.choice((0.0, 300.0, -300.0))
    xs, vs = [rnd.gauss(offset, 5) for _ in range(n)], [rnd.gauss(0, 3) for _ in range(n)]
    if seed % 2 and "apart" not in monoid.factors:
        xs[rnd.randrange(n)] = -INF
    parts = [one(monoid, x, v) for x, v in zip(xs, vs, strict=True)] + [Partial(monoid) for _ in range(3)]  # and some of no elements
    rnd.shuffle(parts)
    while len(parts) > 1:
        a, b = parts.pop(rnd.randrange(len(parts))), parts.pop(rnd.randrange(len(parts)))
        parts.insert(rnd.randrange(len(parts) + 1), a.joined(b))
    want = formula(monoid, xs, vs)
    assert math.isclose(parts[0].fields[""], want, rel_tol=1e-9, abs_tol=1e-9 * n)


def test_every_row_says_what_its_kind_needs() -> None:
    for name, m in MONOIDS.items():
        assert m.name == name and [f.name for f in m.fields].count("" if not m.log else m.log) == 1
        assert bool(m.about) == bool(m.moves) == bool(m.error) == bool(m.factors), name
        assert row(m.about, m.factors, m.weighted) is m or not m.about, name
    assert row("max", ("exp",), False) is MONOIDS["expsum"] and row("max", ("exp",), True) is MONOIDS["expdot"]
    assert row("max", ("apart", "apart"), False) is None


def test_functions_that_rows_call_are_there() -> None:
    there = {path.stem for path in (ROOT / "templates" / "cuda" / "functions").glob("*.cu")}
    called = {name for name in FUNCTIONS if any(name + "(" in t for m in MONOIDS.values() for t in (*(f.share for f in m.fields), *(v.by for v in m.moves)))}
    assert called <= there
