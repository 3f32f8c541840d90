"""Reductions in the few forms that the skeletons know.

In: a program.  Out: the same with `mean` as a sum over a count, `any` and `all` as `max` and `min` of bools, `argmax` and
`argmin` with each element's position as a second operand, searches as `selection.py` says, and `pick` and `place` as the loads they
are: the expression written anew with its dim replaced by the index (`gather[V] x t` reads one element of x, none where t lies outside).
"""

from __future__ import annotations

from dataclasses import replace

from kgen import selection
from kgen.errors import Span
from kgen.ir import GATHERS, MAX_OPERATIONS, Builder, Let, Op, Program, leaf, live, ref, renumber, too_long, verify
from kgen.monoids import RIDERS
from kgen.ops import REDUCTIONS
from kgen.scanned import is_scan
from kgen.searches import SEARCHES
from kgen.types import ELLIPSIS, INT, Dims, boolean, i64, is_literal, literal_size, union


def is_reduction(let: Let) -> bool:
    """Whether a value is a reduction (`max[N](x)`; `max(a, b)` is an operator)."""
    return bool(let.expr.attrs) and (let.expr.name in REDUCTIONS or let.expr.name in RIDERS)


def size(build: Builder, dim: str, span: Span) -> Let:
    """The size of a dim, as a number."""
    return build.add(leaf("lit", str(literal_size(dim))) if is_literal(dim) else leaf("size", dim), INT, (), span)


def count(build: Builder, dims: Dims, span: Span) -> Let:
    """How many elements the dims have, as a number."""
    total = size(build, dims[0], span)
    for d in dims[1:]:
        total = build.add(Op("mul", ref(total.name), ref(size(build, d, span).name)), INT, (), span)
    return total


def expand(program: Program, kept: frozenset[str] = frozenset()) -> Program:
    """The program without mean, any, all, pick and place; values that are `kept` are in memory where they are picked.  Raises `KgenError`
    where its picks compute too much anew."""
    if not any(is_reduction(let) or let.expr.name in ("pick", "place") for let in program.lets):
        return program
    e = Expander(program)
    for let in program.lets:
        e.moved[let.name] = e.let(replace(let, expr=let.expr.renamed(e.moved))).name
        if let.name in kept:
            e.keeps.add(e.moved[let.name])
    stores = tuple(replace(s, ref=e.moved[s.ref]) for s in program.stores)
    return verify(renumber(replace(program, lets=live(e.build.lets, stores), stores=stores)))


class Expander:
    """The lets of a program, built anew; values at other places among them (`at`)."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.build = Builder()
        self.moved: dict[str, str] = {}
        self.keeps: set[str] = set()
        self.again = 0  # values written once more at a picked place

    def let(self, let: Let) -> Let:
        """A reduction's let in the forms that passes know; any other as it is."""
        name, dims = let.expr.name, let.expr.attrs
        if name == "pick":
            return self.pick(let)
        if name == "place":
            value, index = (self.build.defs[o.name] for o in let.expr.operands)
            found = self.at(value, dims[0], index, {})
            return self.build.like(found.expr, found, let.label)
        if name == "cast":  # a place may have given its operand's dims another order
            let = replace(let, dims=self.build.defs[let.expr.operands[0].name].dims)
        if not is_reduction(let):
            return self.build.like(let.expr, let, let.label)
        operand = let.expr.operands[0]
        if name == "mean":
            total = self.build.like(Op("sum", *dims, operand), let)
            n = self.build.add(Op("cast", ref(count(self.build, dims, let.span).name)), let.dtype, (), let.span, "", let.generic)
            return self.build.like(Op("div", ref(total.name), ref(n.name)), let, let.label)
        if name in ("any", "all"):
            return self.build.like(Op("max" if name == "any" else "min", *dims, operand), let, let.label)
        if name in SEARCHES:
            return selection.searched(self.build, let, lambda: self.position(dims, let))
        if name in ("argmax", "argmin"):
            return self.build.like(Op(name, *dims, operand, ref(self.position(dims, let).name)), let, let.label)
        return self.build.like(let.expr, let, let.label)

    def position(self, dims: Dims, let: Let) -> Let:
        """An element's place among those that are reduced, in the order in which the dims are named."""
        place = self.build.add(leaf("index", dims[0]), i64, (dims[0],), let.span)
        for d in dims[1:]:
            extent = self.cast(size(self.build, d, let.span))
            index = self.build.add(leaf("index", d), i64, (d,), let.span)
            both = union(place.dims, index.dims)
            before = self.build.add(Op("mul", ref(place.name), ref(extent.name)), i64, place.dims, let.span)
            place = self.build.add(Op("add", ref(before.name), ref(index.name)), i64, both, let.span)
        return place

    def cast(self, let: Let) -> Let:
        return let if let.dtype is i64 else self.build.add(Op("cast", ref(let.name)), i64, let.dims, let.span)

    def pick(self, let: Let) -> Let:
        """The picked expression at the index; NaN (0 for integers) where the index lies outside the dim."""
        (dim,), (value, index) = let.expr.attrs, let.expr.operands
        at = self.cast(self.build.defs[index.name])
        found = self.at(self.build.defs[value.name], dim, at, {})
        if found.expr.name == "gather" and not found.tensor_dtype.is_float:
            return self.build.like(found.expr, found, let.label)
        zero = self.cast(self.build.add(leaf("lit", "0"), INT, (), let.span))
        extent = self.cast(size(self.build, dim, let.span))
        low = self.build.add(Op("ge", ref(at.name), ref(zero.name)), boolean, at.dims, let.span)
        high = self.build.add(Op("lt", ref(at.name), ref(extent.name)), boolean, at.dims, let.span)
        inside = self.build.add(Op("and", ref(low.name), ref(high.name)), boolean, at.dims, let.span)
        let = replace(let, dims=found.dims) if set(found.dims) == set(let.dims) else let  # as it lies where it is kept
        outside = self.build.literal("nan" if let.tensor_dtype.is_float else "0", let)
        return self.build.like(Op("where", ref(inside.name), ref(found.name), ref(outside.name)), let, let.label)

    def at(self, let: Let, dim: str, index: Let, done: dict[str, Let]) -> Let:
        """A value at one place along `dim`: what is in memory there is loaded, the rest computed from that."""
        if dim not in let.dims:
            return let
        stack = [let]
        while stack:
            here = stack[-1]
            operands = [self.build.defs[o.name] for o in here.expr.operands]
            missing = [o for o in operands if dim in o.dims and o.name not in done]
            if self.gathered(here, dim) is not None:
                missing = []
            if here.name in done or (missing and not self.stored(here)):
                stack.extend(missing) if here.name not in done else stack.pop()
                continue
            stack.pop()
            if here.expr.name == "index":
                made = index
            elif (inner := self.gathered(here, dim)) is not None:
                at = self.at(inner, dim, index, done)
                expr = Op("gather", *here.expr.attrs, here.expr.operands[0], ref(at.name))
                made = self.build.add(expr, here.dtype, union(self.kept(here), at.dims), here.span, "", here.generic)
            elif self.stored(here):
                expr = Op("gather", dim, ref(here.name), ref(index.name))
                made = self.build.add(expr, here.dtype, self.lying(here.dims, dim, index.dims), here.span, "", here.generic)
            else:
                moved = [done[o.name] if dim in o.dims else o for o in operands]
                expr = here.expr.renamed({o.name: m.name for o, m in zip(operands, moved, strict=True)})
                made = self.build.add(expr, here.dtype, union(*(m.dims for m in moved)), here.span, "", here.generic)
                self.again += 1
                if self.again > MAX_OPERATIONS:
                    raise too_long(self.program, let.span, "with those that each place computes anew")
            done[here.name] = made
        return done[let.name]

    @staticmethod
    def lying(of: Dims, dim: str, places: Dims) -> Dims:
        """The dims of what is gathered along a dim of a tensor, in the order in which it lies where it is kept: neighbours there stay
        neighbours."""
        *others, last = of
        if last in (dim, ELLIPSIS):
            return union(tuple(d for d in of if d != dim), places)
        return (*union(tuple(d for d in others if d != dim), tuple(d for d in places if d != last)), last)

    def kept(self, gather: Let) -> Dims:
        """The dims that a gather's operand has besides the one that it is gathered along."""
        return tuple(d for d in self.build.defs[gather.expr.operands[0].name].dims if d not in gather.expr.attrs)

    def gathered(self, let: Let, dim: str) -> Let | None:
        """The index of a gather out of a parameter in which `dim` is the index's alone: at a place along it the index is another."""
        if let.expr.name != "gather":
            return None
        of, index = (self.build.defs[o.name] for o in let.expr.operands)
        return index if (of.expr.name == "load" or of.name in self.keeps) and dim not in self.kept(let) else None

    def stored(self, let: Let) -> bool:
        """Whether a value is in memory where it is picked: loaded, or kept by a pass before."""
        return let.expr.name in ("load", *GATHERS) or is_reduction(let) or is_scan(let) or let.name in self.keeps
