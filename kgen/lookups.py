"""Reductions of what one key selects, as the lookups that they are.

In: a program.  Out: the same in which a sum, maximum, minimum or `any` over a dim, of a term that counts only where a key is the index
along that dim, takes the term at the key's place:

    sum[V](dy if ids == index[V] else 0)       dy[V = ids else 0]

The gradient of a sum by index has this form.  The work is that of the result, not V times it, and nothing else is read, so a NaN stays
at its place.  The rest of the condition is asked at the place too.  A place outside gives what is reduced of nothing.

Where an operand has all the dims itself, as x: T[M, V] in `sum[V](x if t == index[V] else 0)` for t: i64[M], a row is read once, as
written: no work is saved, and a row that is read at its own places alone may be overwritten (`out=x`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kgen.expand import size
from kgen.ir import Builder, Let, Op, Program, leaf, live, ref, renumber, verify
from kgen.scanned import is_scan
from kgen.segments import NOTHING, few, is_nothing, stored_with
from kgen.types import INT, DType, boolean, i64, union
from kgen.values import reached


def looked_up(program: Program) -> Program:
    """The program with reductions of what one key selects as lookups; the same where there are none."""
    if not any(let.expr.name in NOTHING and let.expr.attrs for let in program.lets):
        return program
    rule = _Lookups()
    for let in program.lets:
        rule.moved[let.name] = rule.let(replace(let, expr=let.expr.renamed(rule.moved))).name
    if not rule.found:
        return program
    stores = tuple(replace(store, ref=rule.moved[store.ref]) for store in program.stores)
    return verify(renumber(replace(program, lets=live(rule.build.lets, stores), stores=stores)))


class _Lookups:
    def __init__(self) -> None:
        self.build = Builder()
        self.moved: dict[str, str] = {}
        self.found = False

    def operands(self, let: Let) -> list[Let]:
        return [self.build.defs[o.name] for o in let.expr.operands]

    def let(self, let: Let) -> Let:
        """A reduction's let as a lookup along one of its dims, where it is one; any other as it stands."""
        if let.expr.name in NOTHING and let.expr.attrs and isinstance(let.dtype, DType):
            for dim in let.expr.attrs:
                path = None if few(dim) else self.path(let, dim)
                if path and not self.is_read(path[-1]):
                    self.found = True
                    return self.taken(let, dim, path)
        return self.build.like(let.expr, let, let.label)

    # ------------------------------------------------------------------ which key selects

    def path(self, of: Let, dim: str) -> list[Let] | None:
        """From the test whether a key is the index along a dim up to a reduction's operand: each let counts only where the one before it
        does.  None where there is no such test."""
        (top,) = self.operands(of)
        above: dict[str, Let | None] = {top.name: None}
        todo = [top]
        while todo:
            let = todo.pop()
            if self.key(let, dim):
                made: list[Let] = [let]
                while (parent := above[made[-1].name]) is not None:
                    made.append(parent)
                return made
            for below in self.needed(let, of):
                if dim in below.dims and below.name not in above:
                    above[below.name] = let
                    todo.append(below)
        return None

    def key(self, let: Let, dim: str) -> Let | None:
        """The key that a test holds against the index along a dim."""
        if let.expr.name == "eq":
            a, b = self.operands(let)
            for key, index in ((a, b), (b, a)):
                if index.expr.name == "index" and index.dims == (dim,) and dim not in key.dims:
                    return key
        return None

    def needed(self, let: Let, of: Let) -> Iterator[Let]:
        """Those operands without which a let changes nothing of a reduction."""
        name, operands = let.expr.name, self.operands(let)
        if name == "and" or name == "cast" and (NOTHING[of.expr.name] == "0" or let.is_float and operands[0].is_float):
            yield from operands
        elif name == "where":
            condition, chosen, other = operands
            if is_nothing(other, of, self.build.defs):
                yield from (condition, chosen)
            elif is_nothing(chosen, of, self.build.defs):
                yield other

    def is_read(self, operand: Let) -> bool:
        """Whether something in memory that an operand is made of has all of its dims, but for those of few elements.  What follows from a
        scan is kept by the pass that goes along it, which reduces nothing: another one would go through the rows again."""
        defs = self.build.defs
        if any(is_scan(defs[name]) for name in reached([operand.name], lambda name: (o.name for o in defs[name].expr.operands))):
            return False
        return stored_with({d for d in operand.dims if not few(d)}, [operand], defs)

    # ------------------------------------------------------------------ what is taken

    def taken(self, let: Let, dim: str, path: list[Let]) -> Let:
        """A reduction, along one of its dims as a lookup."""
        key = self.key(path[0], dim)
        assert key is not None
        operand, others = path[-1], tuple(d for d in let.expr.attrs if d != dim)
        term, inside = self.term(path), self.inside(key, dim)
        dims = tuple(d for d in operand.dims if d != dim) if others else let.dims
        expr = inside.expr if term is None else self.where(inside, self.at(term, dim, key), let)
        if not others:
            return self.build.like(expr, let, let.label)
        made = self.build.add(expr, operand.dtype, dims, let.span, "", operand.generic)
        return self.build.like(Op(let.expr.name, *others, ref(made.name)), let, let.label)

    def term(self, path: list[Let]) -> Let | None:
        """What the last let of a path is where the test at its beginning holds; None for what is true there."""
        held: Let | None = None
        for below, let in zip(path, path[1:], strict=False):
            operands = self.operands(let)
            k = next(k for k, o in enumerate(operands) if o.name == below.name)
            if held is None and let.expr.name in ("and", "where") and k == 0:
                held = operands[1]
                continue
            if let.expr.name == "and" and held is None:
                held = operands[0]
                continue
            operands[k] = held or self.build.literal("1", below)
            expr, dims = Op(let.expr.name, *let.expr.attrs, *(ref(o.name) for o in operands)), union(*(o.dims for o in operands))
            held = self.build.add(expr, let.dtype, dims, let.span, "", let.generic)
        return held

    def at(self, term: Let, dim: str, key: Let) -> Let:
        """A term at the key's place along a dim."""
        if dim not in term.dims:
            return term
        dims = union(tuple(d for d in term.dims if d != dim), key.dims)
        return self.build.add(Op("place", dim, ref(term.name), ref(key.name)), term.dtype, dims, term.span, "", term.generic)

    def where(self, inside: Let, term: Let, let: Let) -> Op:
        """A term where its place lies inside, else what a reduction is of nothing."""
        if term.dtype is boolean:
            return Op("and", ref(inside.name), ref(term.name))
        nothing = self.build.literal(NOTHING[let.expr.name], term)
        if let.expr.name == "sum" and term.is_float:  # 0 and the term: a sum of -0.0 and others' 0 is 0.0
            term = self.build.like(Op("add", ref(term.name), ref(nothing.name)), term)
        return Op("where", ref(inside.name), ref(term.name), ref(nothing.name))

    def inside(self, key: Let, dim: str) -> Let:
        """Whether a place lies within a dim."""
        zero = self.build.add(leaf("lit", "0"), INT, (), key.span)
        low = self.compared("ge", key, zero)
        return self.both("and", low, self.compared("lt", key, size(self.build, dim, key.span)))

    def compared(self, test: str, key: Let, number: Let) -> Let:
        """A place against a number."""
        return self.both(test, key, self.build.add(Op("cast", ref(number.name)), i64, (), key.span))

    def both(self, op: str, a: Let, b: Let) -> Let:
        """An operator that gives a bool."""
        return self.build.add(Op(op, ref(a.name), ref(b.name)), boolean, union(a.dims, b.dims), a.span)
