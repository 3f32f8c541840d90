"""Sums of gradients by way of rows: what goes along a row for another sum is added up there, in the same reading.

In: a tape and a derivative's results.  Out: the same results in which

    sum[M, N](x)                 beside sums over N of elements with x's dims is      sum[M](sum[N](x))
    sum[Q, K](sum[B](x) * t)     beside sums over K of elements with x's dims is      sum[B, Q](sum[K](x * t))

A sum over all of a gradient (a norm's one learned number, a slope for each head) would go through the elements once more.  One that is
drawn out of another leaves as many values as there are elements of the dims that it keeps, in memory: of attention scores, whose batch is
small, about as many as there are scores.  A sum that elements follow from stays whole: these are gone through behind it all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kgen.ops import REDUCTIONS
from kgen.tape import Tape
from kgen.types import FEW, Dims, Float, is_literal, literal_size, lying
from kgen.values import Value, reached


def by_rows(tape: Tape, roots: Mapping[str, int]) -> tuple[dict[str, int], dict[int, int]]:
    """The results (name: value) of a derivative with its sums by way of rows, and which value stands for which."""
    rule = _Rule(tape, roots.values())
    for v in rule.live:
        rule.moved[v] = rule.value(v)
    return {name: rule.moved.get(v, v) for name, v in roots.items()}, rule.moved


class _Rule:
    def __init__(self, tape: Tape, roots: Iterable[int]):
        roots = list(roots)
        self.tape = tape
        self.live = sorted(v for v in tape.leads(roots) if v >= tape.count)
        self.uses = Counter([*roots, *(a for v in self.live for a in tape.values[v].args)])
        self.users: dict[int, list[int]] = {}
        for v in self.live:
            for a in tape.values[v].args:
                self.users.setdefault(a, []).append(v)
        self.rows: dict[frozenset[str], set[frozenset[str]]] = {}  # by the dims of elements: along which of them others are reduced
        for v in self.live:
            value = tape.values[v]
            if value.op in REDUCTIONS and value.attr:
                self.rows.setdefault(frozenset(tape.values[value.args[0]].dims), set()).add(frozenset(value.attr))
        self.moved: dict[int, int] = {}  # values by those that they were

    def value(self, v: int) -> int:
        """What stands for a value, whose operands have been seen to."""
        value = self.tape.values[v]
        self.tape.outside = (value.op, value.span)
        if value.op == "sum" and isinstance(value.type, Float) and self.is_last(v) and (made := self.split(value)) is not None:
            return made
        args = tuple(self.moved.get(a, a) for a in value.args)
        return v if args == value.args else self.tape.make(value.op, args, value.attr, value.type, value.dims, value.span)

    def is_last(self, v: int) -> bool:
        """Whether no element along what a sum is over follows from it."""
        behind = reached([v], lambda u: self.users.get(u, ()))
        return not any(set(self.tape.values[v].attr) & set(self.tape.values[u].dims) for u in behind)

    def split(self, value: Value) -> int | None:
        """A sum by way of the rows that others go along; None where there are none."""
        over, (of,) = frozenset(value.attr), value.args
        if (row := self.row(self.tape.values[of].dims, over, frozenset())) is not None:
            return self.summed(self.moved.get(of, of), row, over)
        for way, inner in self.ways(of):
            (term,), more = inner.args, frozenset(inner.attr)
            others = {d for u, k in way for j, a in enumerate(self.tape.values[u].args) if j != k for d in self.tape.values[a].dims}
            row = self.row(self.tape.values[term].dims, over | more, more)
            if row is not None and not more & (over | others):
                made = self.moved.get(term, term)
                for u, k in reversed(way):
                    made = self.again(u, k, made)
                return self.summed(made, row, over | more)
        return None

    def row(self, dims: Dims, over: frozenset[str], apart: frozenset[str]) -> Dims | None:
        """The last of some dims, along which others are reduced too, among those that a sum is over, and not `apart` alone; None where
        there are none, or few elements."""
        lies = lying(dims, self.tape.tensors)
        last = [lies[-k:] for k in range(1, len(over)) if {*lies[-k:]} <= over and not {*lies[-k:]} <= apart]
        long = [row for row in last if not all(is_literal(d) and literal_size(d) <= FEW for d in row)]
        return next((row for row in reversed(long) if frozenset(row) in self.rows.get(frozenset(dims), ())), None)

    def ways(self, v: int) -> Iterator[tuple[tuple[tuple[int, int], ...], Value]]:
        """The sums whose multiple an operand is and which nothing else takes, each behind the values that lead to it from the operand on,
        with the place of the one of their own operands that does."""
        todo: list[tuple[int, tuple[tuple[int, int], ...]]] = [(v, ())]
        while todo:
            v, way = todo.pop()
            value = self.tape.values[v]
            if v < self.tape.count or self.uses[v] != 1:
                continue
            if value.op == "sum":
                yield way, value
            todo += ((value.args[k], (*way, (v, k))) for k in self.factors(value))

    def factors(self, value: Value) -> tuple[int, ...]:
        """The operands of a value of which it is a multiple."""
        if value.op == "where":
            return tuple(k for k in (1, 2) if self.tape.known(value.args[3 - k]) == 0)
        return {"neg": (0,), "mul": (0, 1), "div": (0,)}.get(value.op, ())

    def again(self, v: int, k: int, of: int) -> int:
        """A value of another operand in place of its k-th."""
        value = self.tape.values[v]
        self.tape.outside = (value.op, value.span)
        x, y, z = (*(of if j == k else self.moved.get(a, a) for j, a in enumerate(value.args)), of, of)[:3]
        text = {"neg": "-x", "mul": "x * y", "div": "x / y", "where": "y if x else z"}[value.op]
        return self.tape.build(text, x=x, y=y, z=z)

    def summed(self, v: int, row: Dims, over: frozenset[str]) -> int:
        """A sum over dims, first along a row of them."""
        dims = self.tape.values[v].dims
        inner = self.tape.build("sum[D](x)", {"D": tuple(d for d in dims if d in row)}, x=v)
        return self.tape.build("sum[D](x)", {"D": tuple(d for d in dims if d in over and d not in row)}, x=inner)
