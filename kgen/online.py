"""Sums about a row's peak, made while the peak itself still moves.

In: an expanded program.  Out: the same where sums about `k`, k being `m = max[D](x)` (or that where it is finite, else 0), are written
with reductions that need no maximum beforehand.  The table of monoids (`monoids.py`) says which products of exp(x - k), x - k and
weights of an element there are:

    expsum[D] x m      the sum of exp(x - m), with x for x - m where m is infinite
    expdot[D] x m v    the sum of exp(x - m) * v, likewise; further weights follow in the order in which they are multiplied
    expoff[D] x m      the sum of exp(x - m) * (x - m), likewise
    offsum[D] x m      the sum of x - m, likewise
    sqsum[D] x s       the sum of (x - s / n)^2, s being sum[D](x) of n elements: of rows that do not stay on the chip alone

A backend keeps the sums about the greatest element so far, and rescales them when that rises; so a row is read once, not twice.  Where k
is m, what the formula gives for an infinite m is made good at the end, by exp(f - m) or n * (f - m) for f = m where that is finite, else 0:
1 and 0 exactly for a finite maximum.  A weight must be known where x is: it is made of no reduction or gather that x is not made of.

Error: each term passes through no more rescalings than the depth of the tree, and their arguments add up to max - x; a term that is
far below the maximum has a large error for its size, but little weight.  The rows of the table have the bounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from kgen.errors import Span
from kgen.expand import count, is_reduction
from kgen.ir import GATHERS, Builder, Let, Op, Program, literal_of, live, ref, renumber, verify
from kgen.monoids import Monoid, Rides, row
from kgen.scanned import is_scan
from kgen.types import Dims, DType, Number, boolean

#: The most weights of a term that are told apart.
MOST_WEIGHTS = 6


class Graph(Protocol):
    """A program's values as sums about a peak are looked for in them."""

    def name(self, node: Any) -> str:
        """An operator or a reduction, by name."""
        ...

    def operands(self, node: Any) -> Sequence[Any]: ...

    def over(self, node: Any) -> Dims:
        """The dims of a reduction; none for anything else."""
        ...

    def literal(self, node: Any) -> Fraction | None:
        """The number that a value is written as."""
        ...

    def is_count(self, node: Any, dims: Dims) -> bool:
        """Whether a value is how many elements some dims have."""
        ...


@dataclass(frozen=True)
class About:
    """A sum about a peak: its row, x, what is taken from x (`shift`), the peak that this is, its weights, and the exponential with the
    products up to the term, each of which has one more factor."""

    row: Monoid
    x: Hashable
    shift: Hashable
    peak: Hashable
    weights: tuple[Hashable, ...] = ()
    path: tuple[Hashable, ...] = ()


def found(graph: Graph, term: Any, dims: Dims) -> About | None:
    """What the sum of a term over some dims is, if it is one about a peak that the table has a row for."""
    return _about_maximum(graph, term, dims) or _about_mean(graph, term, dims)


def _about_maximum(graph: Graph, term: Any, dims: Dims) -> About | None:
    path = _path(graph, term, dims, MOST_WEIGHTS)
    apart = term if path is None else graph.operands(path[0][0])[0]
    peak = _apart(graph, apart, dims)
    if peak is None:
        return None
    if path is None:
        monoid = row("max", ("apart",), False)
        return About(monoid, *peak) if monoid else None
    others = [factor for _, factor in path[1:]]
    weights = tuple(w for w in others if w != apart)
    monoid = row("max", ("exp", *["apart"] * (len(others) - len(weights))), bool(weights))
    return About(monoid, *peak, weights, tuple(node for node, _ in path)) if monoid else None


def _path(graph: Graph, node: Any, dims: Dims, most: int) -> tuple[tuple[Any, Any], ...] | None:
    """An exponential below a peak and the products with it up to `node`, each with its other factor."""
    if graph.name(node) == "exp":
        return ((node, None),) if _apart(graph, graph.operands(node)[0], dims) else None
    if graph.name(node) != "mul" or not most:
        return None
    a, b = graph.operands(node)
    for one, other in ((a, b), (b, a)):
        if (path := _path(graph, one, dims, most - 1)) is not None:
            return (*path, (node, other))
    return None


def _apart(graph: Graph, node: Any, dims: Dims) -> tuple[Any, Any, Any] | None:
    """x, k and the maximum of x that k is, or is where that is finite, of x - k."""
    if graph.name(node) != "sub":
        return None
    x, k = graph.operands(node)
    m = k
    if graph.name(k) == "where":
        test, m, zero = graph.operands(k)
        if graph.name(test) != "isfinite" or graph.operands(test)[0] != m or graph.literal(zero) != 0:
            return None
    return (x, k, m) if graph.name(m) == "max" and graph.over(m) == dims and graph.operands(m)[0] == x else None


def _about_mean(graph: Graph, term: Any, dims: Dims) -> About | None:
    """Of a square of x less its mean."""
    if graph.name(term) not in ("mul", "pow"):
        return None
    base, other = graph.operands(term)
    if graph.name(base) != "sub" or (graph.literal(other) != 2 if graph.name(term) == "pow" else other != base):
        return None
    x, mean = graph.operands(base)
    total = mean
    if graph.name(mean) == "div":
        total, n = graph.operands(mean)
        if not graph.is_count(n, dims):
            return None
    is_mean = graph.name(total) == ("mean" if total == mean else "sum") and graph.over(total) == dims and graph.operands(total)[0] == x
    monoid = row("mean", ("apart", "apart"), False)
    return About(monoid, x, mean, total) if is_mean and monoid else None


class Lets:
    """Lets as such a graph; its nodes are their names."""

    def __init__(self, defs: dict[str, Let]):
        self.defs = defs

    def name(self, node: str) -> str:
        return self.defs[node].expr.name

    def operands(self, node: str) -> list[str]:
        return [o.name for o in self.defs[node].expr.operands]

    def over(self, node: str) -> Dims:
        let = self.defs[node]
        return let.expr.attrs if is_reduction(let) else ()

    def literal(self, node: str) -> Fraction | None:
        return literal_of(self.defs[node], self.defs)

    def is_count(self, node: str, dims: Dims) -> bool:
        let = self.defs[node]
        todo = list(let.expr.operands) if let.expr.name == "cast" else []
        sizes = []
        while todo:
            n = self.defs[todo.pop().name]
            if n.expr.name == "mul":
                todo += n.expr.operands
            else:
                sizes.append(n.expr.attrs[0] if n.expr.name in ("size", "lit") else "")
        return sorted(sizes) == sorted(dims)


def online(program: Program) -> Program:
    """The program with sums about a maximum in the form above."""
    if not any(let.expr.name == "max" and let.expr.attrs for let in program.lets):
        return program
    build, moved = Builder(), dict[str, str]()
    needs: dict[str, int] = {}
    for given in program.lets:
        expr = given.expr.renamed(moved)
        let = replace(given, expr=expr)
        sum_ = _sum_about(let, build.defs, needs)
        if sum_ is not None and sum_.row.rides(Rides.EVERY, long=False):
            made = _rider(sum_, let, build)
        else:
            made = build.like(expr, let, let.label)
        moved[given.name] = made.name
        _need(given, made.name, needs, [needs[moved[o.name]] for o in given.expr.operands])
    stores = tuple(replace(s, ref=moved[s.ref]) for s in program.stores)
    return verify(renumber(replace(program, lets=live(build.lets, stores), stores=stores)))


class _Beside(Builder):
    """Makes lets beside those that it is told of, numbered from `first` on."""

    def __init__(self, first: int):
        super().__init__()
        self.first = first
        self.known: dict[tuple, Let] = {}

    def tell(self, let: Let) -> None:
        """Of a let that is there already."""
        self.defs[let.name] = let
        self.known[let.expr, let.dtype, let.dims, let.generic] = let

    def add(self, expr: Op, dtype: DType | Number, dims: Dims, span: Span, label: str = "", generic: str = "") -> Let:
        key = (expr, dtype, dims, generic)
        if key not in self.known:
            let = self.known[key] = Let(f"%{self.first + len(self.lets)}", expr, dtype, dims, span, label, generic)
            self.lets.append(let)
            self.defs[let.name] = let
        return self.known[key]


def at_once(lets: Sequence[Let], rides: Rides, first: int) -> tuple[list[Let], list[Let]]:
    """A pass's lets for rows that do not stay on the chip.

    In: the lets, of which rows the backend rides, and the number of the first let that may be added.  Out: the same with sums made in the
    reading of their peak, each with its own name and value; and those lets among them that are new (none: nothing rides).
    """
    build = _Beside(first)
    needs: dict[str, int] = {}
    made: list[Let] = []
    for let in lets:
        _need(let, let.name, needs, [needs.get(o.name, 0) for o in let.expr.operands])
        known = len(build.lets)
        sum_ = _sum_about(let, build.defs, needs)
        if sum_ is not None and sum_.row.rides(rides, long=True):
            let = replace(let, expr=_rider(sum_, let, build).expr)
        build.tell(let)
        made += [*build.lets[known:], let]
    return made, build.lets


def _need(let: Let, name: str, needs: dict[str, int], operands: Iterable[int]) -> None:
    """Note the reductions and gathers that a value is made of, as bits; those of its `operands` are known."""
    if name not in needs:
        needs[name] = (is_reduction(let) or is_scan(let) or let.expr.name in GATHERS) << len(needs)
        for of in operands:
            needs[name] |= of


def _sum_about(let: Let, defs: dict[str, Let], needs: dict[str, int]) -> About | None:
    """What a let is, if it is a sum about a peak whose weights are known where x is."""
    if let.expr.name != "sum" or not let.expr.attrs or not let.tensor_dtype.is_float:
        return None
    sum_ = found(Lets(defs), let.expr.operands[0].name, let.expr.attrs)
    return None if sum_ is None or any(needs[str(w)] & ~needs[str(sum_.x)] for w in sum_.weights) else sum_


def _rider(sum_: About, let: Let, build: Builder) -> Let:
    """The sum `let` made with its peak, and brought from there to what the formula takes from x."""
    operands = (ref(str(name)) for name in (sum_.x, sum_.peak, *sum_.weights))
    expr = Op(sum_.row.name, *let.expr.attrs, *operands)
    if sum_.row.about == "mean":  # the formula's own, to a rounding
        return replace(let, expr=expr)
    if sum_.shift != sum_.peak:  # the maximum where it is finite, else 0: what the sum is about already
        return build.like(expr, let, let.label)
    m = build.defs[str(sum_.peak)]
    total = build.like(expr, let)
    finite = build.add(Op("isfinite", ref(m.name)), boolean, m.dims, m.span)
    about = build.like(Op("where", ref(finite.name), ref(m.name), ref(build.literal("0", m).name)), m)
    off = build.like(Op("sub", ref(about.name), ref(m.name)), let)
    if "exp" in sum_.row.factors:
        return build.like(Op("mul", ref(total.name), ref(build.like(Op("exp", ref(off.name)), let).name)), let, let.label)
    n = build.add(Op("cast", ref(count(build, let.expr.attrs, let.span).name)), let.dtype, (), let.span, "", let.generic)
    made = build.like(Op("mul", ref(n.name), ref(off.name)), let)
    return build.like(Op("add", ref(total.name), ref(made.name)), let, let.label)
