"""Parts of traced tensors, and their sizes: what stands in brackets, and places along axes.

A size is a polynomial of the dims' sizes (`kgen.places`).  Where a part of a dim is asked for, the dim is split (`Splits`) and the
function read again; a part that is a few elements shorter than its dim is a value along all of it whose last elements are never used.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kgen.nodes import Header
from kgen.places import Form, Places, _product, _sized, _sum
from kgen.syntax import parse
from kgen.trace.axes import ONE, Axes, Axis, Restart, show_shape
from kgen.trace.clauses import moved_clause
from kgen.trace.tracer import Tracer
from kgen.trace.values import Const, Pad, Several, Shape, Traced
from kgen.types import ELLIPSIS, Dims, is_bool, is_int, is_literal, literal_size

NO_NAME = "a kernel's sizes are those of its parameters' dims, and of parts that they are split into evenly"


class ShapeCalls(Tracer):
    # ------------------------------------------------------------------------------------------ sizes

    def form(self, value: Any, node: Any, what: str = "a size") -> Form:
        """An integer as a polynomial of sizes.  Refuses what is none."""
        if isinstance(value, Const) and isinstance(value.value, int) and not isinstance(value.value, bool):
            return {(): Fraction(value.value)} if value.value else {}
        if isinstance(value, Traced) and value.id is not None and not self.is_tensor(value):
            return Places(self.scout.values, self.scout.clauses).form(value.id)
        raise self.refuse(f"{what} is an integer", node, "as in `x.shape[-1] // 2`")

    def length(self, axis: Axis) -> Form:
        """The size of an axis."""
        made: Form = {(): Fraction(1)}
        for part in axis.joined:
            made = _product(made, self.length(part))
        if axis.joined:
            return made
        for d in axis.dims:
            made = _product(made, _sized(d))
        return _sum(made, {(): Fraction(axis.short)} if axis.short else {}, -1)

    def quotient(self, one: Traced, other: Any, node: Any) -> Any:
        """A size over another that divides it; None where it does not, or is no product of dims."""
        above, below = self.form(one, node), self.form(other, node)
        if len(above) != 1 or len(below) != 1:
            return None
        ((atoms, factor),), ((under, by),) = above.items(), below.items()
        rest = list(atoms)
        for atom in under:
            if atom not in rest:
                return None
            rest.remove(atom)
        value = factor / by
        if value.denominator != 1 or any(kind != "size" for kind, _ in rest):
            return None
        dims = tuple(str(of) for _, of in rest)
        return self.size(Axis(dims), node) if value == 1 and dims else Const(int(value)) if not dims else None

    def is_size(self, x: Traced) -> bool:
        """Whether a value is made of sizes and numbers alone."""
        return x.id is not None and not self.is_tensor(x) and all(
            kind == "size" for atoms in Places(self.scout.values, self.scout.clauses).form(x.id) for kind, _ in atoms)  # fmt: skip

    def share(self, form: Form) -> tuple[Form, int] | None:
        """What a size is a share of, and which: N and 2 of `N // 2` where N is no multiple of 2; None of other sizes."""
        for atoms in form:
            for kind, of in atoms:
                value = self.scout.values[int(of)] if kind == "value" else None
                if value is not None and value.op == "floordiv":
                    above, below = (Places(self.scout.values, self.scout.clauses).form(a) for a in value.args)
                    if set(below) == {()} and below[()].denominator == 1:
                        return above, int(below[()])
        return None

    def integer(self, form: Form) -> int | None:
        """The value of a size that is a number."""
        return int(form.get((), Fraction(0))) if set(form) <= {()} and form.get((), Fraction(0)).denominator == 1 else None

    def split_dim(self, dim: str, parts: Sequence[str | None], node: Any) -> Restart:
        """Note a split of a dim, None among its parts being a size that is open; raise what this returns.  Refuses one that cannot be."""
        if dim == ELLIPSIS:
            raise self.refuse("the leading dims `...` cannot be split or joined", node, "name all dims in the parameter's type")
        if is_literal(dim):
            rest = math.prod(int(p) for p in parts if p is not None)
            if literal_size(dim) % rest or None not in parts and literal_size(dim) != rest:
                raise self.refuse(f"{dim} elements cannot be split in {rest}", node)
            parts = [str(literal_size(dim) // rest) if p is None else p for p in parts]
        others = {d for p in self.scout.params.values() if dim in (p.dims or ()) for d in p.dims or () if d != dim}
        made = list[str | None]()
        for part in parts:
            if part is None or part not in (*others, *made):
                made.append(part)
            elif is_literal(part):
                made.append(self.splits.literal(literal_size(part), {*self.scout.dims, *self.scout.params, *self.clauses}))
            else:
                raise self.refuse(f"this makes two dims {part} in one tensor", node, "a kernel tells dims apart by their names")
        self.splits.note(dim, made)
        return Restart()

    def new_dim(self, stem: str, text: str, node: Any) -> str:
        """A dim with a size: `text` of the header's own dims, or a number.  Its name begins with `stem`."""
        taken = {*self.scout.dims, *self.scout.params, *self.clauses}
        name = next(n for n in (stem, *(f"{stem}_{k}" for k in range(2, 999))) if n not in taken)
        (header,) = parse(f"k(x: f32[]) -> y: f32[] where {name} = {text}").statements
        assert isinstance(header, Header)
        clause = moved_clause(header.clauses[0], 0, self.span(node))
        dim = f"{text}_{name}" if text.isdigit() else name
        self.clauses[name] = clause
        self.scout.clauses += () if text.isdigit() else (clause,)
        self.scout.dims.setdefault(dim, self.span(node))
        return dim

    def is_of(self, dim: str, count: Any) -> bool:
        """Whether a dim is a literal of so many."""
        return is_literal(dim) and literal_size(dim) == count

    # ------------------------------------------------------------------------------------------ places

    def number_of(self, form: Form, node: Any) -> Traced:
        """A size as a value: a number plus a product of dims."""
        made: Traced | None = None
        for atoms, factor in sorted(form.items(), key=lambda item: -len(item[0])):
            whole = abs(int(factor))
            term = self.number(whole, node) if not atoms else self.lift(self.size(Axis(tuple(str(of) for _, of in atoms)), node), node)
            if atoms and whole != 1:
                term = self.apply("mul", [self.number(whole, node), term], node, node, "infix")
            made = term if made is None and factor > 0 else self.apply(
                "sub" if factor < 0 else "add", [made or self.number(0, node), term], node, node, "infix")  # fmt: skip
        return made or self.number(0, node)

    def index_of(self, dims: Dims, node: Any) -> Traced:
        """The position along dims, the first of which is the slowest."""
        made: Traced | None = None
        for d in dims:
            here = self.apply("index", [], node, None, "call", (d,))
            if made is not None:
                made = self.apply("mul", [made, self.lift(self.size(Axis((d,)), node), node)], node, node, "infix")
                here = self.apply("add", [made, here], node, node, "infix")
            made = here
        assert made is not None
        return replace(made, shape=(Axis(dims),), free=True)

    def placed(self, x: Traced, at: dict[str, Traced], node: Any, fill: Traced | None = None) -> Traced:
        """`x[N = e else fill]`; its shape is to be said by the caller."""
        dims = tuple(d for d in at if d in self.dims_of(x))
        if not dims or x.id is None:
            return x
        args = [x, *(at[d] for d in dims), *([fill] if fill is not None else [])]
        return replace(self.apply("place", args, node, None, "place", dims), owner=x.owner, pads=x.pads)

    def without_ones(self, x: Traced, node: Any) -> Traced:
        """A parameter whose axes of size one are as long as what they meet, as torch has it."""
        single = {a.dims[0] for a in x.shape if len(a.dims) == 1 and is_literal(a.dims[0]) and literal_size(a.dims[0]) == 1}
        if not single:
            return x
        self.torch = True
        made = self.placed(x, {d: self.number(0, node) for d in self.dims_of(x) if d in single}, node)
        return replace(made, shape=tuple(ONE if a.dims[:1] and a.dims[0] in single else a for a in x.shape), free=False)

    def without(self, shape: Axes, at: int, *new: Axis) -> Axes:
        return (*shape[:at], *new, *shape[at + 1 :])

    def window(self, x: Traced, at: int, start: int, short: int, pad: Pad | None, node: Any) -> Traced:
        """The elements of an axis from `start` (before its first, where that is negative) up to all but the last `short` of the dim.
        What stands outside is `pad`'s; None where nothing is read there."""
        axis = x.shape[at]
        if len(axis.dims) != 1 or ELLIPSIS in axis.dims:
            raise self.refuse(f"a part of {axis} is taken here", node, NO_NAME)
        (dim,), shape = axis.dims, self.without(x.shape, at, Axis(axis.dims, short))
        missing = pad.short if pad is not None else axis.short
        here, made = self.index_of((dim,), node), x
        if start:
            here = self.apply("add" if start > 0 else "sub", [here, self.number(abs(start), node)], node, node, "infix")
        mode = pad.mode if pad is not None else "constant"
        if mode != "constant":
            if missing:
                raise self.refuse(f"a part of a tensor is padded by {mode!r}", node, "give it a name of its own size")
            made = self.beyond(x, dim, here, mode, start, node)
        elif start:
            made = self.placed(x, {dim: here}, node, pad.fill if pad is not None else self.nothing(x, node))
        if pad is not None and mode == "constant" and missing and start + missing > short:  # the dim's last elements are no part of it
            end = self.number_of(_sum(_sized(dim), {(): Fraction(missing)}, -1), node)
            inside = self.apply("lt", [here, end], node, node, "infix")
            made = self.apply("where", [inside, self.along(made), pad.fill], node, node, "where")
        return replace(made, shape=shape, free=x.free, owner=x.owner, pads=tuple(p for p in x.pads if p.dim != dim))

    def named_by_clauses(self, x: Traced, node: Any) -> Traced:
        """A value whose axes that are longer or shorter than a dim have the dims that `where` gives their sizes, where it gives them."""
        read = Places(self.scout.values, self.scout.clauses)
        for at, axis in enumerate(x.shape):
            name = next((n for n, form in read.given.items() if form == self.length(axis)), "")
            pad = next((p for p in x.pads if (p.dim,) == axis.dims), None)
            if not axis.short or not name or len(axis.dims) != 1 or pad is not None and (pad.mode != "constant" or pad.short):
                continue
            here = self.index_of((name,), node)
            if pad is not None and pad.start:
                here = self.apply("sub", [here, self.number(pad.start, node)], node, node, "infix")
            made = self.placed(x, {axis.dims[0]: here}, node, None if pad is None else pad.fill)
            shape = self.without(x.shape, at, Axis((name,)))
            x = replace(made, shape=shape, free=x.free, owner="", pads=tuple(p for p in x.pads if p is not pad))
        return x

    def along(self, x: Traced) -> Traced:
        """A value as it is along all of its dims, where the caller sees to what is beyond its parts of them."""
        return replace(x, shape=tuple(Axis(a.dims) for a in x.shape))

    def nothing(self, x: Traced, node: Any) -> Traced:
        t = self.type_of(x)
        return self.number(False if t is not None and is_bool(t) else 0, node)

    def beyond(self, x: Traced, dim: str, here: Traced, mode: str, start: int, node: Any) -> Traced:
        """A tensor at a place, which may lie outside, as one of torch's ways of padding has it: before the dim where `start` is negative,
        behind it where that is positive."""
        size = self.lift(self.size(Axis((dim,)), node), node)
        last = self.apply("sub", [size, self.number(1, node)], node, node, "infix")
        if mode == "circular":
            return self.placed(x, {dim: self.apply("mod", [here, size], node, node, "infix")}, node)
        if mode == "replicate":
            return self.placed(x, {dim: self.apply("clamp", [here, self.number(0, node), last], node)}, node)
        if not start:
            return x
        end = self.number(0, node) if start < 0 else last  # two sums of an index and numbers, whose gradients are such places again
        out = self.apply("lt" if start < 0 else "gt", [here, end], node, node, "infix")
        twice = self.apply("mul", [self.number(2, node), last], node, node, "infix")
        turned = self.apply("neg", [here], node, node, "prefix") if start < 0 else self.apply("sub", [twice, here], node, node, "infix")
        inside, mirrored = (self.along(self.placed(x, {dim: at}, node, self.nothing(x, node))) for at in (here, turned))
        return self.apply("where", [out, mirrored, inside], node, node, "where")

    # ------------------------------------------------------------------------------------------ what stands in brackets

    def subscript(self, x: Traced, node: ast.Subscript) -> Traced:
        """`x[..., None]`, `x[..., 1:]`, `x[..., ::2]`, `x[..., 0]`, `w[ids]`: new axes, parts, elements, what a tensor says."""
        self.torch = True
        elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        items = [e if isinstance(e, ast.Slice) else self.eval(e) for e in elements]
        dots = [k for k, i in enumerate(items) if isinstance(i, Const) and i.value is ...]
        if len(dots) > 1:
            raise self.refuse("`...` stands twice here", node)
        if not dots:
            dots, items, elements = [len(items)], [*items, Const(...)], [*elements, node]
        taken = [not (isinstance(i, Const) and (i.value is None or i.value is ...)) for i in items]
        rest = len(x.shape) - sum(taken)
        if rest < 0 or any(a.leading for a in x.shape) and (any(taken[: dots[0]]) or rest < 1 or not x.shape[0].leading):
            what = "this indexes the leading dims `...` of" if rest >= 0 else "there are more indices than axes of"
            types = [self.type_of(i) for i in items if isinstance(i, Traced) and self.is_tensor(i)]
            masked = any(t is not None and is_bool(t) for t in types)
            help = "choose by a mask with `torch.where(mask, x, 0.0)`" if masked else "count from the end, as in `x[..., None]`"
            raise self.refuse(f"{what} {show_shape(x.shape)}", node, help)
        if dots[0] and any(a.leading for a in x.shape):
            what = f"this indexes the leading dims `...` of {show_shape(x.shape)}"
            raise self.refuse(what, node, "count from the end, as in `x[..., None]`")
        if sum(self.is_index(i) for i in items) > 1:
            return self.looked_up_by_several(x, items, node)
        at = 0
        for item, element in zip(items, elements, strict=True):
            before = len(x.shape)
            if isinstance(item, ast.Slice):
                x = self.sliced(x, at, item, node)
                at += 1
            elif isinstance(item, Const) and item.value is None:
                x = replace(x, shape=(*x.shape[:at], ONE, *x.shape[at:]))
                at += 1
            elif isinstance(item, Const) and item.value is ...:
                at += rest
            elif self.is_index(item):
                x = self.looked_up(x, at, item, element)
                at += len(x.shape) - before + 1
            else:
                x = self.element(x, at, item, element)
        return x

    def is_index(self, item: Any) -> bool:
        return isinstance(item, Traced) and self.is_tensor(item)

    def sliced(self, x: Traced, at: int, part: ast.Slice, node: Any) -> Traced:
        """`x[..., start:stop:step]` along one axis."""
        if part.lower is part.upper is part.step is None:
            return x
        start, stop, step = (None if e is None else self.eval(e) for e in (part.lower, part.upper, part.step))
        every = 1 if step is None or self.is_none(step) else self.constant(step, part.step, "the step of a slice")
        if isinstance(every, int) and every > 1:
            return self.every(x, at, start, stop, every, node)
        return self.narrowed(x, at, start, stop, node)

    def is_none(self, value: Any) -> bool:
        return isinstance(value, Const) and value.value is None

    def constant(self, value: Any, node: Any, what: str) -> Any:
        """The Python value of an argument that must be known while tracing."""
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Several) and all(isinstance(i, Const) for i in value.items):
            return tuple(i.value for i in value.items)
        raise self.refuse(f"{what} must be a constant", node, "write it there, or name it outside: a parameter is known at the call")

    def every(self, x: Traced, at: int, start: Any, stop: Any, step: int, node: Any) -> Traced:
        """Every so many elements of an axis: its last dim is split."""
        first = 0 if start is None or self.is_none(start) else self.constant(start, node, "the start of a slice with a step")
        axis = x.shape[at]
        if stop is not None and not self.is_none(stop) or not 0 <= first < step or axis.short or not axis.dims:
            raise self.refuse(f"every {step} elements of a part of {axis} are taken here", node, "as in `x[..., 1::2]`, of a whole axis")
        if not self.is_of(axis.dims[-1], step):
            raise self.split_dim(axis.dims[-1], (None, str(step)), node)
        made = self.placed(x, {axis.dims[-1]: self.number(first, node)}, node)
        return replace(made, shape=self.without(x.shape, at, Axis(axis.dims[:-1])), free=x.free)

    def end(self, value: Any, default: Form, axis: Axis, node: Any) -> Form:
        """An end of a slice, one counted from the end turned round."""
        if value is None or self.is_none(value):
            return default
        form = self.form(value, node, "an end of a slice")
        first = next(iter(form.values()), Fraction(0))
        return _sum(self.length(axis), form) if len(form) == 1 and first < 0 else form

    def narrowed(self, x: Traced, at: int, start: Any, stop: Any, node: Any) -> Traced:
        """The elements from `start` up to `stop` along an axis, each None, a number or a size."""
        axis = x.shape[at]
        if axis == ONE:
            raise self.refuse("a part of an axis of size one is taken here", node)
        low, high = self.end(start, {}, axis, node), self.end(stop, self.length(axis), axis, node)
        for form in (low, high):
            if (share := self.share(form)) is not None:
                if share[0] != self.length(axis) or len(axis.dims) != 1 or axis.short:
                    raise self.refuse(f"a share of another size than {axis} is taken of it", node, NO_NAME)
                raise self.split_dim(axis.dims[0], (str(share[1]), None), node)
        size = _sum(high, low, -1)
        if size == self.length(axis) and not low:
            return x
        pad = next((p for p in x.pads if (p.dim,) == axis.dims), None)
        if self.integer(size) == 1 and pad is None:
            return self.one_of(x, at, low, node, ONE)
        if len(axis.dims) > 1 and is_literal(axis.dims[0]) and not axis.short:  # one of the parts that it is split into
            part = Axis(axis.dims[1:])
            whole = self.length(part)
            first = next((k for k in range(literal_size(axis.dims[0])) if low == _product(whole, {(): Fraction(k)} if k else {})), None)
            if size == whole and first is not None:
                made = self.placed(x, {axis.dims[0]: self.number(first, node)}, node)
                return replace(made, shape=self.without(x.shape, at, part), free=x.free)
        short, begin = self.integer(_sum(self.length(Axis(axis.dims)), size, -1)), self.integer(low)
        if short is None and (same := self.as_long(size, axis, x)) is not None:
            begin_at = start if isinstance(start, Traced) and low == self.form(start, node) else self.number_of(low, node) if low else None
            return self.as_many(x, at, begin_at, same, node)
        if short is None or begin is None or len(axis.dims) != 1 or short + axis.short < 0 and pad is None:
            raise self.refuse(f"this part of {axis} has a size without a name", node, NO_NAME)
        begin -= pad.start if pad is not None else 0
        if short < 0 and pad is not None:
            pads = tuple(replace(p, start=-begin) if p is pad else p for p in x.pads)
            return replace(x, shape=self.without(x.shape, at, Axis(axis.dims, short)), pads=pads)
        return self.window(x, at, begin, short, pad, node)

    def as_long(self, size: Form, axis: Axis, x: Traced) -> Axis | None:
        """The dim of another tensor that a part of an axis is as long as (`pe[: x.shape[1]]`); None where there is none."""
        if len(axis.dims) != 1 or axis.short or x.pads or axis.leading:
            return None
        others = (Axis((d,)) for d in self.scout.dims if not is_literal(d) and d not in self.dims_of(x))
        return next((a for a in others if self.length(a) == size), None)

    def as_many(self, x: Traced, at: int, begin: Traced | None, by: Axis, node: Any) -> Traced:
        """The elements of an axis from `begin` on, as many as another dim has: NaN, of integers 0, where the axis has fewer."""
        (dim,), here = x.shape[at].dims, self.index_of(by.dims, node)
        if begin is not None:
            here = self.apply("add", [here, begin], node, node, "infix")
        inside = here.id is not None and Places(self.scout.values, self.scout.clauses).inside(here.id, dim)
        t = self.type_of(x)
        fill = self.nothing(x, node) if t is not None and (is_bool(t) or is_int(t)) else self.number(float("nan"), node)
        return replace(self.placed(x, {dim: here}, node, None if inside else fill), shape=self.without(x.shape, at, by), free=x.free)

    def element(self, x: Traced, at: int, value: Any, node: Any) -> Traced:
        """`x[..., 0]`: one place along an axis, which it loses."""
        axis = x.shape[at]
        form = self.form(value, node, "an index")
        if axis == ONE:
            if form not in ({}, {(): Fraction(-1)}):
                raise self.refuse("there is one element here", node)
            return replace(x, shape=self.without(x.shape, at))
        if isinstance(value, Const) and value.value < 0:
            form = _sum(self.length(axis), form)
        return self.one_of(x, at, form, node)

    def one_of(self, x: Traced, at: int, form: Form, node: Any, *left: Axis) -> Traced:
        """One place along an axis, which leaves nothing, or an axis of size one."""
        axis = x.shape[at]
        if any(p.dim in axis.dims for p in x.pads) or ELLIPSIS in axis.dims or axis.joined:
            raise self.refuse(f"an element of {axis} is taken here", node, NO_NAME)
        places: dict[str, Traced] = {}
        known = self.integer(form)
        if len(axis.dims) > 1:
            last = form == _sum(self.length(axis), {(): Fraction(1)}, -1)
            if known is None and not last or known and not all(map(is_literal, axis.dims)):
                raise self.refuse(f"an element of {axis} is taken here", node, "the first and the last can be")
            for d in reversed(axis.dims):
                end = self.number_of(_sum(_sized(d), {(): Fraction(1)}, -1), node)
                places[d] = end if last else self.number(known % literal_size(d) if known else 0, node)
                known = known // literal_size(d) if known else known
        else:
            place = self.number_of(form, node)
            (d,) = axis.dims
            if place.id is not None and not Places(self.scout.values, self.scout.clauses).inside(place.id, d):
                help = "say its size in the annotation, as in `T[..., 3]`" if not is_literal(d) else ""
                raise self.refuse(f"an element of {axis} is taken here that may not be there", node, help)
            places[d] = place
        return replace(self.placed(x, places, node), shape=self.without(x.shape, at, *left), free=x.free)

    # ------------------------------------------------------------------------------------------ places that tensors say

    def looked_up(self, x: Traced, at: int, ids: Traced, node: Any) -> Traced:
        """`w[ids]` along one axis: it has the axes of `ids` instead."""
        axis, t = x.shape[at], self.type_of(ids)
        if x.id is None or ids.id is None or t is None:
            return self.poison(self.span(node))
        if not is_int(t):
            raise self.refuse(f"a tensor of {t} is no index", node, "choose by a mask with `torch.where(mask, x, 0.0)`")
        if len(axis.dims) != 1 or axis.short or x.pads:
            raise self.refuse(f"elements of {axis} are looked up here", node, "name the dim in the parameter's type")
        made = self.apply("pick", [x, ids], node, None, "call", axis.dims)
        return replace(made, shape=self.without(x.shape, at, *ids.shape), free=x.free)

    def looked_up_by_several(self, x: Traced, items: list[Any], node: Any) -> Traced:
        """`x[torch.arange(B), t]`: tensors that count the axes they stand for, and one that says a place."""
        others = [k for k, i in enumerate(items) if self.is_index(i) and not self.counts(i, x.shape[k] if k < len(x.shape) else ONE)]
        if len(others) != 1 or not all(self.is_index(i) for i in items[: others[0] + 1]) or len(items) != others[0] + 2:
            help = "one tensor may say places, beside `torch.arange` of the axes before it"
            raise self.refuse("places along several axes are looked up here", node, help)
        at = others[0]
        ids = items[at]
        if ids.shape != x.shape[:at]:
            raise self.refuse(f"the index is {show_shape(ids.shape)}, not {show_shape(x.shape[:at])}", node)
        return replace(self.looked_up(x, at, replace(ids, shape=()), node), shape=self.without(x.shape, at))

    def counts(self, item: Traced, axis: Axis) -> bool:
        """Whether a value is the position along an axis."""
        value = self.scout.values[item.id] if item.id is not None else None
        return value is not None and value.op == "index" and (str(value.attr),) == axis.dims and item.shape == (axis,)

    def items(self, value: Any, node: Any) -> tuple[Any, ...]:
        """The elements of a tuple or a shape, of which each is a shape of one axis."""
        if isinstance(value, Shape):
            return tuple(Shape((a,), value.of) for a in value.axes)
        if isinstance(value, Const) and isinstance(value.value, (tuple, list)):
            return tuple(Const(v) for v in value.value)
        if isinstance(value, Several):
            return value.items
        raise self.refuse("this is one value, not several", node)

    def several(self, value: Any, node: Any, what: str) -> tuple[Any, ...]:
        found = self.constant(value, node, what)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    def place(self, dim: Any, shape: Axes, node: Any, wider: int = 0) -> int:
        """Where torch's number of a dim stands in a shape (in one that is `wider`, for a dim to be inserted)."""
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise self.refuse(f"a dim is a number, not {dim!r}", node, 'as in `dim=-1`; by name it is kgen\'s own `sum["N"](x)`')
        leading = any(a.leading for a in shape)
        rank = len(shape) + wider
        at = dim + rank if dim < 0 else dim
        if leading and dim >= 0:
            raise self.refuse(
                f"dim {dim} is counted from the front, where the leading dims `...` are", node,
                "count from the end, as in `dim=-1`, or name all dims in the parameter's type",
            )  # fmt: skip
        if leading and at < 1:
            raise self.refuse(
                f"dim {dim} of {show_shape(shape)} is one of the leading dims `...`", node,
                "name it in the parameter's type, as in `x: T[..., N]`",
            )  # fmt: skip
        if not 0 <= at < rank:
            raise self.refuse(f"there is no dim {dim} in {show_shape(shape)}", node)
        return at
