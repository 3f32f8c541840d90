"""Sums over a part of a dim: the terms of one key (a segment), or those between two places (a range).

In: an expanded program.  Out: the same in which a reduction goes through the terms that it selects, and through no others:

    sum[S](x if ids == index[V] else 0)                      a segment: the work is that of x, not V times it
    sum[S](x if lo <= index[S] and index[S] < hi else 0)     a range: the work is that of the ranges

`sorted[order, S, V] key` has the positions along S by their key, equal ones in their order; `sorted[begin, S, V] key` and
`sorted[end, S, V] key` say where in that order each key of V begins and ends: what lies outside of V belongs nowhere.
`ranged[sum, S] x lo hi` adds x from lo up to hi, `ranged[sum, S] x lo hi order` what stands there in an order, `ranged[sum, B] x lo hi
begin until at` those of the terms there for which begin <= at < until, which is how a position finds the ranges that it lies in.
`sorted[order, K, N] key` and `sorted[keys, K, N] key` of keys that differ from row to row (`i: i64[M, K]`) have each row's order, and its
keys in it; `keyed[sum, K] x keys order own n` adds those x whose key, among the n in order, is the result's `own`: each element searches
its row's keys, so the work is that of the keys and of the result (times the binary digits of n), not their product.  Where n is small,
comparing all is less: a launch's sizes decide, between this program and that of a kernel that is `compared` (`runtime/roads.py`).
`ranged[sum, S, same] ... key own` adds only terms beside which `key` has a range's own value, `other` all others: ties of a maximum, and
what their gradient is.
Nothing that is not selected is read, so a NaN stays in its segment.  A count is the length of its range.

A key of several dims (`ids: i64[B, S]`, `i64[...]`) sorts the positions along one that stands for them: `flattened.py`.

A long segment is not one thread's work: it is cut into pieces of `PIECE` terms from its beginning on, and a rest.  In each block of so many
places of the order begins one whole piece at most, which the block's last place is in.  So a pass makes a value for each block, and
those of a segment follow one another from the block that it begins in.  How a segment is cut depends on its length alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import replace
from typing import NamedTuple

from kgen.expand import is_reduction, size
from kgen.flattened import Flattened
from kgen.ir import Blocks, Builder, Let, Op, Program, Tensor, leaf, literal_of, live, ref, renumber, verify
from kgen.monoids import MONOIDS
from kgen.scanned import is_scan
from kgen.types import ELLIPSIS, FEW, INT, Dims, DType, boolean, i64, is_literal, literal_size, union

#: The reductions that are made so, each with the literal that its operand has where nothing is selected.
FILLS = {"sum": "0", "max": "-inf", "min": "inf"}
#: The same of all that a lookup may stand for (`lookups.py`).
NOTHING = {**FILLS, "any": "0"}
#: The binary digits of the number of terms in a piece, and that number.
DIGITS = 7
PIECE = 1 << DIGITS
#: Comparisons of `index[S]` (on the left) with a bound: whether it is the upper one, and what is added for the range from lo up to hi.
BOUNDS = {"ge": (False, 0), "gt": (False, 1), "lt": (True, 0), "le": (True, 1)}
TURNED = {"ge": "le", "gt": "lt", "lt": "gt", "le": "ge"}


class Selected(NamedTuple):
    """What is reduced: `value` where all `conditions` hold, nothing elsewhere; if `counted` it is how often they do.  Where it is `asked`,
    only what stands beside a key that is the result's own value ("same"), or is not ("other")."""

    value: Let | None
    conditions: tuple[Let, ...]
    counted: bool = False
    asked: tuple[Let, Let, str] | None = None


class Part(NamedTuple):
    """Where the selected terms lie: from `lo` up to `hi` along the dim, or in an `order` of it; `rest` are the other conditions.  `within`:
    of those, the terms whose own range, from one value along the dim up to another, has a position."""

    lo: Let
    hi: Let
    order: Let | None
    rest: tuple[Let, ...]
    within: tuple[Let, ...] = ()


def segmented(program: Program, compared: bool = False) -> Program:
    """The program with reductions of segments and ranges as such; the same where there are none.  `compared`: keys that each row has its
    own of stay compared one by one."""
    if not any(is_reduction(let) and let.expr.name in FILLS for let in program.lets):
        return program
    s = _Segments(program, compared)
    for let in program.lets:
        s.moved[let.name] = s.let(replace(let, expr=let.expr.renamed(s.moved))).name
    if not s.found:
        return program
    stores = tuple(replace(store, ref=s.moved[store.ref]) for store in program.stores)
    lets = live(s.build.lets, stores)
    blocks = tuple(b for b in s.blocks.values() if any(b.dim in let.dims for let in lets))
    read = {let.expr.attrs[0] for let in lets if let.expr.name == "load"}
    views = tuple(v for f in s.flats.values() for v in f.views.values() if v.name in read)
    tensors = (*program.tensors, *(Tensor(v.name, v.dtype, v.dims) for v in views))
    return verify(renumber(replace(program, tensors=tensors, lets=lets, stores=stores, blocks=blocks, views=views)))


class _Segments:
    def __init__(self, program: Program, compared: bool) -> None:
        self.build, self.program, self.compared = Builder(), program, compared
        self.dims = {d for t in program.tensors for d in t.dims} | {d for let in program.lets for d in let.dims}
        self.blocks: dict[str, Blocks] = {}  # by the dim that they are of
        self.flats: dict[Dims, Flattened] = {}  # by the dims that one stands for
        self.moved: dict[str, str] = {}
        self.found = False

    def operands(self, let: Let) -> list[Let]:
        return [self.build.defs[o.name] for o in let.expr.operands]

    def let(self, let: Let) -> Let:
        """A reduction's let as one of a part of its dim, where it is; any other as it stands."""
        if is_reduction(let) and let.expr.name in FILLS and let.dims and isinstance(let.dtype, DType):
            if (count := self.ties(let)) is not None:
                return count
            dim, *more = let.expr.attrs
            selected = None if few(dim) and not more else self.selected(self.operands(let)[0], let)
            if selected and (more or dim == ELLIPSIS):
                dim, selected = self.over_one(selected, let.expr.attrs)
            part = selected and (self.segment(selected, dim) or (None if more else self.range(selected, dim)))
            part = part or (self.around(selected, dim, let.expr.name) if selected and not more else None)
            if selected and not part and not more and (both := self.halves(let, dim, selected)) is not None:
                return both
            if selected and part:
                self.found = True
                return self.made(let, dim, selected, part)
            if selected and not more and (made := self.of_rows(let, dim, selected)) is not None:
                self.found = True
                return made
        return self.build.like(let.expr, let, let.label)

    def over_one(self, s: Selected, dims: Dims) -> tuple[str, Selected | None]:
        """What is selected along several dims by a key that has all of them, along one dim in their place, and that dim; None where it is
        not."""
        keys = [o.dims for c in s.conditions if c.expr.name == "eq" for o in self.operands(c) if set(o.dims) == set(dims)]
        if not keys or all(map(few, dims)):
            return "", None
        if keys[0] not in self.flats:
            name = "_".join("All" if d == ELLIPSIS else d if d[0].isalpha() else f"Of{d}" for d in keys[0])
            name = next(n for n in (f"{name}{'_' * k}" for k in range(99)) if n not in self.dims)
            self.dims.add(name)
            tensors = {t.name: t for t in self.program.tensors}
            fixed = {store.state for store in self.program.stores if store.state}
            self.flats[keys[0]] = Flattened(self.build, tensors, fixed, name, keys[0])
        flat = self.flats[keys[0]]
        value = s.value and flat.value(s.value)
        conditions = [flat.value(c) for c in s.conditions]
        if None in conditions or s.value is not None and value is None:
            return "", None
        return flat.dim, Selected(value, tuple(c for c in conditions if c is not None), s.counted)

    def ties(self, let: Let) -> Let | None:
        """The count of the terms of a choice that equal a value, `sum[S](i64((x if ids == index[V] else -inf) == top))`, as that of those
        that a key selects, and of all others where what stands for these equals it; None where a reduction is none such.  In what a key
        selects a value of each key is the one at the key's place."""
        of, dims = self.operands(let)[0], let.expr.attrs
        test = self.operands(of)[0] if of.expr.name == "cast" and let.expr.name == "sum" and let.dtype is i64 else of
        if test.expr.name != "eq" or len(dims) != 1 or few(dims[0]):
            return None
        a, b = self.operands(test)
        choice, value = (a, b) if a.expr.name == "where" else (b, a)
        if choice.expr.name != "where" or dims[0] in value.dims:
            return None
        condition, chosen, other = self.operands(choice)
        tests = self.conditions(condition)
        pairs = ((c, self.keyed(c, dims[0], rows)) for rows in (False, True)[: 1 if self.compared else 2] for c in tests)
        which, (key, index) = next(((c, pair) for c, pair in pairs if pair), (None, (None, None)))
        if key is None and dims[0] not in other.dims:
            return self.ties_of_range(let, tests, chosen, other, value)
        if key is None or index is None or dims[0] in other.dims:
            return None
        if index.dims[0] in union(chosen.dims, other.dims, *(c.dims for c in tests if c is not which)):
            return None
        here = value
        if index.dims[0] in value.dims:
            left = union(tuple(d for d in value.dims if d not in index.dims), key.dims)
            here = self.build.add(Op("gather", *index.dims, _ref(value), _ref(key)), value.dtype, left, value.span, "", value.generic)
        same, rest = self.test("eq", chosen, here), self.test("eq", other, value)
        equal, every = (self.let(self.count(c, let)) for c in (self.test("and", condition, same), condition))
        size_ = self.build.add(Op("cast", _ref(size(self.build, dims[0], let.span))), i64, (), let.span)
        none = self.integer(0, every)
        others = Op("where", *map(_ref, (rest, self.ints("sub", size_, every), none)))
        more = self.build.add(others, i64, union(rest.dims, every.dims), let.span)
        return self.build.like(Op("add", _ref(equal), _ref(more)), let, let.label)

    def ties_of_range(self, let: Let, tests: tuple[Let, ...], chosen: Let, other: Let, value: Let) -> Let | None:
        """The same where the terms are chosen by a range: None where they are not."""
        (dim,) = let.expr.attrs
        part = self.range(Selected(None, tests, counted=True), dim)
        if part is None or part.rest or dim not in chosen.dims or set(chosen.dims) & set(part.lo.dims):
            return None
        self.found = True
        at = self.build.add(leaf("index", dim), i64, (dim,), let.span)
        ones = self.build.add(Op("cast", _ref(self.test("eq", at, at))), i64, (dim,), let.span)
        dims = union(tuple(d for d in chosen.dims if d != dim), part.lo.dims, part.hi.dims, value.dims)
        equal = Op("ranged", "sum", dim, "same", *map(_ref, (ones, part.lo, part.hi, chosen, value)))
        every = self.ints("max", self.ints("sub", part.hi, part.lo), 0)
        size_ = self.build.add(Op("cast", _ref(size(self.build, dim, let.span))), i64, (), let.span)
        rest = self.test("eq", other, value)
        others = Op("where", *map(_ref, (rest, self.ints("sub", size_, every), self.integer(0, every))))
        more = self.build.add(others, i64, union(rest.dims, every.dims), let.span)
        return self.build.like(Op("add", _ref(self.build.add(equal, i64, dims, let.span)), _ref(more)), let, let.label)

    def halves(self, let: Let, dim: str, s: Selected) -> Let | None:
        """The sum over the ranges that a position lies in of one value where what a range has is the position's, and another where it
        is not, as the sums of both; None where it is no such sum."""
        if s.value is None or s.value.expr.name != "where" or let.expr.name != "sum":
            return None
        test, *values = self.operands(s.value)
        if test.expr.name != "eq":
            return None
        a, b = (self.under(x, s.conditions) for x in self.operands(test))
        key, own = (a, b) if dim in a.dims else (b, a)
        parts: list[Let] = []
        for value, which in zip(values, ("same", "other"), strict=True):
            if is_nothing(value, let, self.build.defs):
                continue
            half = Selected(value, s.conditions, asked=(key, own, which))
            part = None if dim in own.dims or dim not in key.dims or dim not in value.dims else self.around(half, dim, "sum")
            if part is None:
                return None
            parts.append(self.made(replace(let, label=""), dim, half, part))
        if not parts:
            return None
        self.found = True
        return parts[0] if len(parts) == 1 else self.build.like(Op("add", *map(_ref, parts)), let, let.label)

    def under(self, let: Let, conditions: tuple[Let, ...]) -> Let:
        """A value where some conditions hold: what they choose."""
        if let.expr.name != "where":
            return let
        test, chosen, _ = self.operands(let)
        known = {c.name for c in conditions}
        return chosen if all(c.name in known for c in self.conditions(test)) else let

    def keyed(self, condition: Let, dim: str, rows: bool = False) -> tuple[Let, Let] | None:
        """The key along a dim that a condition holds against an index, and that index; with `rows` a key that differs from row to row."""
        if condition.expr.name == "eq":
            a, b = self.operands(condition)
            for key, index in ((a, b), (b, a)):
                large = index.expr.name == "index" and not few(index.dims[0])
                own = dim in key.dims and len(key.dims) > 1 if rows else key.dims == (dim,)
                if large and own and key.dtype is i64 and index.dims[0] not in key.dims:
                    return key, index
        return None

    def test(self, op: str, a: Let, b: Let) -> Let:
        """An operator that gives a bool."""
        return self.build.add(Op(op, _ref(a), _ref(b)), boolean, union(a.dims, b.dims), a.span)

    def count(self, condition: Let, like: Let) -> Let:
        """How often a condition holds along the dims of a reduction."""
        one = self.build.add(Op("cast", _ref(condition)), i64, condition.dims, like.span)
        dims = tuple(d for d in condition.dims if d not in like.expr.attrs)
        return Let("", Op("sum", *like.expr.attrs, _ref(one)), i64, dims, like.span)

    # ------------------------------------------------------------------ what is selected

    def selected(self, value: Let, of: Let) -> Selected | None:
        """The conditions of a reduction's operand; None where it has none."""
        casts: list[Let] = []
        while value.expr.name == "cast" and value.dims:
            casts.append(value)
            (value,) = self.operands(value)
        if value.dtype is boolean and casts and of.expr.name == "sum" and value.expr.name != "where":
            return Selected(None, self.conditions(value), counted=True)
        if value.expr.name != "where":
            return None
        condition, chosen, other = self.operands(value)
        if not is_nothing(other, of, self.build.defs) or not condition.dims:
            return None
        for cast in reversed(casts):
            chosen = self.build.add(cast.expr.renamed({cast.expr.operands[0].name: chosen.name}), cast.dtype, chosen.dims, cast.span, "",
                                    cast.generic)  # fmt: skip
        return Selected(chosen, self.conditions(condition))

    def conditions(self, condition: Let) -> tuple[Let, ...]:
        """What all has to hold."""
        found: list[Let] = []
        todo = [condition]
        while todo:
            let = todo.pop()
            if let.expr.name == "and":
                todo += reversed(self.operands(let))
            else:
                found.append(let)
        return tuple(found)

    # ------------------------------------------------------------------ where it lies

    def segment(self, s: Selected, dim: str) -> Part | None:
        """The segment that a condition `key == index[V]` selects."""
        for k, condition in enumerate(s.conditions):
            rest = (*s.conditions[:k], *s.conditions[k + 1 :])
            others = union(*(let.dims for let in (*rest, *([s.value] if s.value else []))))
            pair = self.keyed(condition, dim)
            if pair is not None and pair[1].dims[0] not in others:
                key, index = pair
                lo, hi = (self.sorted(which, dim, index, key) for which in ("begin", "end"))
                return Part(lo, hi, None if s.counted and not rest else self.sorted("order", dim, index, key), rest)
        return None

    def of_rows(self, let: Let, dim: str, s: Selected) -> Let | None:
        """The reduction of what a key selects that each row has its own of; None where no condition is of such a key."""
        for k, condition in enumerate(() if self.compared else s.conditions):
            pair, rest = self.keyed(condition, dim, rows=True), (*s.conditions[:k], *s.conditions[k + 1 :])
            if pair is None or dim == ELLIPSIS or pair[1].dims[0] in union(*(c.dims for c in (*rest, *([s.value] if s.value else [])))):
                continue
            key, index = pair
            value = self.along(let, dim, s.value, self.all_of(rest))
            rows = (*(d for d in key.dims if d != dim), dim)
            sorts = (Op("sorted", which, dim, *index.dims, _ref(key)) for which in ("order", "keys"))
            order, keys = (self.build.add(op, i64, rows, key.span) for op in sorts)
            n = self.build.add(Op("cast", _ref(size(self.build, dim, let.span))), i64, (), let.span)
            return self.build.like(Op("keyed", let.expr.name, dim, *map(_ref, (value, keys, order, index, n))), let, let.label)
        return None

    def along(self, let: Let, dim: str, value: Let | None, condition: Let | None) -> Let:
        """What is reduced (None: it is counted) where a condition holds, and nothing elsewhere, as a value that has the dim."""
        if value is not None and condition is None and dim in value.dims:
            return value
        at = self.build.add(leaf("index", dim), i64, (dim,), let.span)
        here = self.test("eq", at, at) if condition is None or dim not in condition.dims else condition
        here = here if condition in (None, here) else self.test("and", here, condition)
        if value is None:
            return self.build.add(Op("cast", _ref(here)), let.dtype, here.dims, let.span, "", let.generic)
        chosen = map(_ref, (here, value, self.build.literal(FILLS[let.expr.name], value)))
        return self.build.add(Op("where", *chosen), value.dtype, union(here.dims, value.dims), let.span, "", value.generic)

    def sorted(self, which: str, dim: str, index: Let, key: Let) -> Let:
        """The order of a dim's positions by their keys, or where in it each key begins or ends."""
        (over,) = index.dims
        return self.build.add(Op("sorted", which, dim, over, ref(key.name)), i64, (dim,) if which == "order" else (over,), key.span)

    def range(self, s: Selected, dim: str) -> Part | None:
        """The range that two conditions on `index[dim]` select, where that leaves most of the dim out."""
        bounds: dict[bool, Let] = {}
        rest: list[Let] = []
        for condition in s.conditions:
            bound = self.bound(condition, dim)
            if bound is None or bound[0] in bounds:
                rest.append(condition)
            else:
                bounds[bound[0]] = bound[1]
        if len(bounds) < 2:
            return None
        own = union(*(let.dims for let in (*rest, *([s.value] if s.value else []))))
        if all(few(d) for d in set(union(*(b.dims for b in bounds.values()))) - set(own)):
            return None  # each row has terms of its own, all of which are read; or there are but few rows
        return Part(self.clipped(bounds[False], dim), self.clipped(bounds[True], dim), None, tuple(rest))

    def around(self, s: Selected, dim: str, kind: str) -> Part | None:
        """The ranges along `dim`, from a value there up to another, in which a position along another dim lies: where neither end ever
        decreases they are neighbours, from the first that ends behind the position up to the first that begins behind it; else all of
        them are gone through.  Each is asked whether it has the position, so the sum is the same either way."""
        over = next((d for c in s.conditions for o in self.operands(c) if o.expr.name == "index" for d in o.dims if d != dim), "")
        ends: dict[bool, Let] = {}
        rest: list[Let] = []
        for c in s.conditions:
            bound = self.bound(c, over) if over else None
            if bound is not None and bound[0] not in ends and bound[1].dims == (dim,) and bound[1].dtype is i64:
                ends[bound[0]] = bound[1]
            else:
                rest.append(c)
        own = union(*(let.dims for let in (*rest, *([s.value] if s.value else []), *(s.asked[:1] if s.asked else ()))))
        if kind != "sum" or len(ends) < 2 or few(over) or over in own or dim not in own:
            return None
        index = self.build.add(leaf("index", over), i64, (over,), ends[True].span)
        here = self.build.add(leaf("index", dim), i64, (dim,), ends[True].span)
        keys = [self.clipped(ends[upper], over) for upper in (True, False)]
        orders = (self.build.add(Op("eq", _ref(self.sorted("order", dim, index, k)), _ref(here)), boolean, (dim,), k.span) for k in keys)
        every = self.all_of(orders)
        assert every is not None
        rising = self.build.add(Op("min", dim, _ref(every)), boolean, (), every.span)
        last = self.build.add(Op("cast", _ref(size(self.build, dim, every.span))), i64, (), every.span)
        behind = [self.sorted("end", dim, index, k) for k in keys]
        lo, hi = (self.build.add(Op("where", *map(_ref, (rising, at, other))), i64, (over,), at.span)
                  for at, other in zip(behind, (self.integer(0, last), last), strict=True))  # fmt: skip
        return Part(lo, hi, None, tuple(rest), (keys[1], keys[0], index))

    def bound(self, condition: Let, dim: str) -> tuple[bool, Let] | None:
        """Whether a condition bounds `index[dim]` from above, and by what; None where it does not bound it."""
        if condition.expr.name not in BOUNDS:
            return None
        a, b = self.operands(condition)
        turned = b.expr.name == "index" and b.dims == (dim,)
        index, other = (b, a) if turned else (a, b)
        if index.expr.name != "index" or index.dims != (dim,) or dim in other.dims:
            return None
        upper, more = BOUNDS[TURNED[condition.expr.name] if turned else condition.expr.name]
        return upper, self.plus(other, more) if more else other

    def plus(self, let: Let, more: int) -> Let:
        """A bound and a bit; the greatest integer stays what it is."""
        top = self.integer(2**63 - 1 - more, let)
        most = self.build.like(Op("min", ref(let.name), ref(top.name)), let)
        return self.build.like(Op("add", ref(most.name), ref(self.integer(more, let).name)), let)

    def integer(self, value: int, like: Let) -> Let:
        number = self.build.add(leaf("lit", str(value)), INT, (), like.span)
        return self.build.add(Op("cast", ref(number.name)), i64, (), like.span)

    def clipped(self, let: Let, dim: str) -> Let:
        """A bound within the dim: so the length of a range, which may be negative, is an i64 too."""
        end = self.build.add(Op("cast", ref(size(self.build, dim, let.span).name)), i64, (), let.span)
        low = self.build.like(Op("max", _ref(let), _ref(self.integer(0, let))), let)
        return self.build.like(Op("min", _ref(low), _ref(end)), let)

    # ------------------------------------------------------------------ what is made of it

    def made(self, let: Let, dim: str, s: Selected, part: Part) -> Let:
        """The reduction of a part."""
        value, rest = s.value, self.all_of(part.rest)
        if s.counted and rest is not None:
            value = self.build.add(Op("cast", ref(rest.name)), let.dtype, rest.dims, let.span, "", let.generic)
        elif value is not None and rest is not None:
            dims = union(rest.dims, value.dims)
            fill = self.build.literal(FILLS[let.expr.name], value)
            value = self.build.add(Op("where", *map(_ref, (rest, value, fill))), value.dtype, dims, let.span, "", value.generic)
        if value is None or dim not in value.dims:
            return self.same(let, value, part)
        if part.order is not None:
            return self.pieces(let, dim, value, part.lo, part.hi, part.order)
        which, asked = (s.asked[2:], s.asked[:2]) if s.asked else ((), ())
        operands = value, part.lo, part.hi, *part.within, *asked
        return self.build.like(Op("ranged", let.expr.name, dim, *which, *map(_ref, operands)), let, let.label)

    def pieces(self, let: Let, dim: str, value: Let, lo: Let, hi: Let, order: Let) -> Let:
        """The reduction of a segment: of its whole pieces, and of its rest."""
        kind, key, over = let.expr.name, self.operands(lo)[0], lo.expr.attrs[2]
        if dim not in self.blocks:
            name = next(n for n in (f"{dim}_blocks{'_' * k}" for k in range(99)) if n not in self.dims)
            self.blocks[dim] = Blocks(name, dim, PIECE)
        blocks = self.blocks[dim].dim
        block = self.build.add(leaf("index", blocks), i64, (blocks,), let.span)
        last = self.ints("add", self.ints("mul", block, PIECE), PIECE - 1)  # the last place of each block
        at = self.gather(dim, order, last)
        own = self.gather(dim, key, at)
        begin, end = self.gather(over, lo, own), self.gather(over, hi, own)
        first = self.ints("add", begin, self.whole(self.ints("sub", last, begin)))
        behind = self.ints("add", first, PIECE)
        fits = self.build.add(Op("le", _ref(behind), _ref(end)), boolean, (blocks,), let.span)
        until = self.build.like(Op("where", *map(_ref, (fits, behind, first))), first)
        dims = union((blocks,), tuple(d for d in value.dims if d != dim))
        of_block = Op("ranged", kind, dim, *map(_ref, (value, first, until, order)))
        made = self.build.add(of_block, let.dtype, dims, let.span, "", let.generic)
        begins, length = self.ints("shr", lo, DIGITS), self.ints("sub", hi, lo)
        ends = self.ints("add", begins, self.ints("shr", length, DIGITS))
        pieces = self.build.like(Op("ranged", kind, blocks, *map(_ref, (made, begins, ends))), let)
        rest = self.ints("add", lo, self.whole(length))
        others = self.build.like(Op("ranged", kind, dim, *map(_ref, (value, rest, hi, order))), let)
        return self.build.like(Op(MONOIDS[kind].join, _ref(pieces), _ref(others)), let, let.label)

    def ints(self, op: str, a: Let, b: Let | int) -> Let:
        """An operator on integers."""
        other = self.integer(b, a) if isinstance(b, int) else b
        return self.build.add(Op(op, _ref(a), _ref(other)), i64, union(a.dims, other.dims), a.span)

    def whole(self, length: Let) -> Let:
        """A length without what is over whole pieces."""
        return self.ints("shl", self.ints("shr", length, DIGITS), DIGITS)

    def gather(self, dim: str, of: Let, at: Let) -> Let:
        """The integer at a place; 0 outside."""
        return self.build.add(Op("gather", dim, _ref(of), _ref(at)), i64, at.dims, at.span)

    def all_of(self, conditions: Iterable[Let]) -> Let | None:
        """The conditions as one; None where there is none."""
        made = None
        for c in conditions:
            made = c if made is None else self.build.add(Op("and", _ref(made), _ref(c)), boolean, union(made.dims, c.dims), c.span)
        return made

    def same(self, let: Let, value: Let | None, part: Part) -> Let:
        """The reduction of terms that are all the same (None: a count): what follows from their number."""
        dims = union(part.lo.dims, part.hi.dims)
        length = self.build.add(Op("sub", _ref(part.hi), _ref(part.lo)), i64, dims, let.span)
        n = self.build.add(Op("max", _ref(length), _ref(self.integer(0, length))), i64, dims, let.span)
        if value is None and let.dtype is i64:
            return self.build.like(n.expr, let, let.label)
        many = self.build.add(Op("cast", _ref(n)), let.dtype, n.dims, let.span, "", let.generic)
        if value is None:
            return self.build.like(many.expr, let, let.label)
        some = self.build.add(Op("gt", _ref(n), _ref(self.integer(0, n))), boolean, n.dims, let.span)
        if let.expr.name == "sum":
            dims = union(value.dims, many.dims)
            value = self.build.add(Op("mul", _ref(value), _ref(many)), let.dtype, dims, let.span, "", let.generic)
        fill = self.build.literal(FILLS[let.expr.name], let)
        return self.build.like(Op("where", *map(_ref, (some, value, fill))), let, let.label)


def stored_with(dims: Set[str], lets: Iterable[Let], defs: dict[str, Let]) -> bool:
    """Whether something in memory that some lets are made of has these dims."""
    todo = list(lets)
    seen = {let.name for let in todo}
    while todo:
        let = todo.pop()
        stored = let.expr.name in ("load", "pick", "place") or is_reduction(let) or is_scan(let)
        if stored and dims <= {*let.dims}:
            return True
        below = [defs[o.name] for o in ([] if stored else let.expr.operands) if o.name not in seen]
        seen.update(o.name for o in below)
        todo += below
    return False


def is_nothing(let: Let, of: Let, defs: dict[str, Let]) -> bool:
    """Whether a value is the literal that changes nothing of a reduction; `defs` are the lets by name."""
    wanted = NOTHING[of.expr.name]
    if wanted == "0":
        return literal_of(let, defs) == 0
    number = defs[let.expr.operands[0].name] if let.expr.name == "cast" else let
    return of.is_float and number.expr == leaf("lit", wanted)


def few(dim: str) -> bool:
    """Whether a dim is known to have few elements: then all of them may be gone through."""
    return is_literal(dim) and literal_size(dim) <= FEW


def _ref(let: Let):
    return ref(let.name)
