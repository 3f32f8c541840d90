"""Calls that join tensors (`cat`, `stack`), shift them along an axis (`pad`, `roll`, `flip`), or look them up (`embedding`, `gather`)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from kgen.places import Form, _sized, _sum
from kgen.trace.axes import ONE, Axis, show_shape
from kgen.trace.names import Row
from kgen.trace.shape_calls import NO_NAME
from kgen.trace.values import Const, Pad, Several, Traced
from kgen.trace.views import Views
from kgen.types import FEW, is_literal, literal_size

MODES = ("constant", "reflect", "replicate", "circular")


class Joining(Views):
    # ------------------------------------------------------------------------------------------ several to one

    def tensors(self, shown: str, given: dict[str, Any], node: Any) -> list[Traced]:
        items = given["tensors"].items if isinstance(given["tensors"], Several) else ()
        if not 1 <= len(items) <= FEW:
            raise self.refuse(f"`{shown}` joins 1 to {FEW} tensors", node, "write them out, as in `torch.cat((a, b), dim=-1)`")
        return [self.lift(i, node, f"a tensor of `{shown}`") for i in items]

    def chosen(self, dim: str, parts: list[Traced], node: Any) -> Traced:
        """Tensors one behind the other along a literal dim."""
        made = parts[-1]
        for k in range(len(parts) - 2, -1, -1):
            index = self.index_of((dim,), node)
            here = self.apply("eq", [index, self.number(k, node)], node, node, "infix")
            made = self.apply("where", [here, replace(parts[k], free=True), replace(made, free=True)], node, node, "where")
        return made

    def call_stack(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        parts = self.tensors(shown, given, node)
        if any(p.shape != parts[0].shape for p in parts):
            found = " and ".join(show_shape(p.shape) for p in parts)
            raise self.refuse(f"`{shown}` joins {found}", node, "torch stacks tensors of one shape")
        at = self.place(self.constant(given["dim"], node, "`dim`"), parts[0].shape, node, 1)
        shape = parts[0].shape
        dim = self.literal(len(parts), parts, node)
        return replace(self.chosen(dim, parts, node), shape=(*shape[:at], Axis((dim,)), *shape[at:]), free=parts[0].free)

    def call_cat(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Tensors one behind the other: equal parts make an axis of as many, others fill one that has their size together."""
        parts = self.tensors(shown, given, node)
        if len(parts) == 1:
            return parts[0]
        at = self.place(self.constant(given["dim"], node, "`dim`"), parts[0].shape, node)
        shape = parts[0].shape
        if any(len(p.shape) != len(shape) or self.without(p.shape, at) != self.without(shape, at) for p in parts):
            found = " and ".join(show_shape(p.shape) for p in parts)
            raise self.refuse(f"`{shown}` joins {found}", node, "they differ along `dim` alone")
        joined = [p.shape[at] for p in parts]
        if all(a == joined[0] for a in joined) and not joined[0].short:
            dim = self.literal(len(parts), parts, node)
            return replace(self.chosen(dim, parts, node), shape=self.without(shape, at, Axis((dim, *joined[0].dims))), free=parts[0].free)
        total: Form = {}
        for a in joined:
            total = _sum(total, self.length(a))
        for a in joined:
            short = self.integer(_sum(self.length(Axis(a.dims)), total, -1))
            if len(a.dims) == 1 and short is not None and short >= 0:
                made = self.filled_by(parts, at, a.dims[0], node)
                return replace(made, shape=self.without(shape, at, Axis(a.dims, short)), free=parts[0].free)
        raise self.refuse(f"the parts {', '.join(map(str, joined))} together have a size without a name", node, NO_NAME)

    def filled_by(self, parts: list[Traced], at: int, dim: str, node: Any) -> Traced:
        """Parts one behind the other along a dim."""
        index = self.index_of((dim,), node)
        begin: Form = {}
        ranges = []
        for p in parts:
            axis = p.shape[at]
            place = index
            if begin:
                place = self.apply("sub", [index, self.number_of(begin, node)], node, node, "infix")
            if axis.dims not in ((), (dim,)):
                raise self.refuse(f"{axis} is joined to {dim}", node, NO_NAME)
            moved = self.placed(p, {dim: place}, node, self.nothing(p, node)) if axis.dims and begin else p
            begin = _sum(begin, self.length(axis))
            ranges.append((replace(self.along(moved), free=True), begin))
        made = ranges[-1][0]
        for value, end in reversed(ranges[:-1]):
            here = self.apply("lt", [index, self.number_of(end, node)], node, node, "infix")
            made = self.apply("where", [here, value, made], node, node, "where")
        return made

    # ------------------------------------------------------------------------------------------ shifted

    def call_pad(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Elements put before and behind the last axes, which a slice takes again."""
        x = given["input"] if isinstance(given["input"], Traced) and given["input"].pads else self.lift(given["input"], node)
        mode, widths = self.constant(given["mode"], node, "`mode`"), self.several(given["pad"], node, "`pad`")
        if mode not in MODES or len(widths) % 2 or len(widths) > 2 * len(x.shape) or not all(isinstance(w, int) for w in widths):
            raise self.refuse(f"`{shown}` by {widths} with mode {mode!r}", node, f"pairs of numbers, and a mode of {', '.join(MODES)}")
        value = Const(0) if self.is_none(given["value"]) else given["value"]
        for k in range(0, len(widths), 2):
            before, behind, at = widths[k], widths[k + 1], len(x.shape) - 1 - k // 2
            axis = x.shape[at]
            if not before and not behind:
                continue
            if len(axis.dims) != 1 or axis.leading or any(p.dim in axis.dims for p in x.pads):
                raise self.refuse(f"{axis} is padded here", node, "an axis of one dim is padded, once")
            fill = self.nothing(x, node) if value.value == 0 and isinstance(value, Const) else self.lift(value, node)
            pad, short = Pad(axis.dims[0], before, axis.short, mode, fill), axis.short - before - behind
            if short >= 0:
                x = self.window(x, at, -before, short, pad, node)
            else:
                x = replace(x, shape=self.without(x.shape, at, Axis(axis.dims, short)), pads=(*x.pads, pad))
        return x

    def call_roll(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Elements that leave an axis at one end and come in at the other."""
        x, shifts = self.lift(given["input"], node), given["shifts"]
        if self.is_none(given["dims"]):
            if len(x.shape) != 1:
                raise self.refuse(f"`{shown}` without `dims` rolls all elements as one row", node, "say along which, as in `dims=-1`")
            given["dims"] = Const(0)
        dims = self.several(given["dims"], node, "`dims`")
        several = isinstance(shifts, Several) or isinstance(shifts, Const) and isinstance(shifts.value, (tuple, list))
        items = self.items(shifts, node) if several else (shifts,)
        if len(items) != len(dims):
            raise self.refuse(f"`{shown}` has {len(items)} shifts for {len(dims)} dims", node)
        for d, shift in zip(dims, items, strict=True):
            axis = x.shape[self.place(d, x.shape, node)]
            if len(axis.dims) != 1 or axis.short:
                raise self.refuse(f"{axis} is rolled here", node, "an axis of one dim can be")
            back = isinstance(shift, Const) and isinstance(shift.value, int) and shift.value < 0
            by, size = self.lift(Const(-shift.value) if back else shift, node), self.lift(self.size(axis, node), node)
            moved = self.apply("add" if back else "sub", [self.index_of(axis.dims, node), by], node, node, "infix")
            at = self.apply("mod", [moved, size], node, node, "infix")
            x = replace(self.placed(x, {axis.dims[0]: at}, node), shape=x.shape, free=x.free)
        return x

    def call_flip(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        names = [n for d in self.several(given["dims"], node, "`dims`") for n in x.shape[self.place(d, x.shape, node)].dims]
        if any(a.short for a in x.shape):
            raise self.refuse(f"{show_shape(x.shape)} has a size without a name", node, NO_NAME)
        places = {}
        for n in names:
            last = self.number_of(_sum(_sized(n), {(): Fraction(1)}, -1), node)
            places[n] = self.apply("sub", [last, self.index_of((n,), node)], node, node, "infix")
        return replace(self.placed(x, places, node), shape=x.shape, free=x.free)

    # ------------------------------------------------------------------------------------------ looked up

    def call_embedding(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        ids, weight = self.lift(given["input"], node), self.lift(given["weight"], node)
        self.usual(shown, row, given, ("max_norm", "scale_grad_by_freq", "sparse"), node)
        made, row_of = self.looked_up(weight, 0, ids, node), self.constant(given["padding_idx"], node, "`padding_idx`")
        if row_of is None:
            return made
        if not isinstance(row_of, int) or row_of < 0:
            raise self.refuse(f"`padding_idx` of `{shown}` is {row_of!r}", node, "count rows from the first")
        padding = self.apply("eq", [replace(ids, free=True), self.number(row_of, node)], node, node, "infix")  # that row has no gradient
        kept = self.kept("y", made, node)
        parts = [replace(v, free=True) for v in (self.apply("stop", [kept], node), kept)]
        return replace(self.apply("where", [padding, *parts], node, node, "where"), shape=made.shape, free=made.free)

    def usual(self, shown: str, row: Row, given: dict[str, Any], names: tuple[str, ...], node: Any) -> None:
        """Refuse other values of arguments than their defaults."""
        for k in names:
            value = self.constant(given[k], node, f"`{k}`")
            if value is not None and value is not False:
                raise self.refuse(f"kgen knows `{shown}` with {k}={row.signature.parameters[k].default!r} alone", node)

    def call_embedding_bag(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """The sum or the mean of the rows that each row of numbers looks up."""
        ids, weight = self.lift(given["input"], node), self.lift(given["weight"], node)
        self.usual(shown, row, given, ("offsets", "max_norm", "scale_grad_by_freq", "sparse", "include_last_offset", "padding_idx"), node)
        how = self.constant(given["mode"], node, "`mode`")
        if how not in ("sum", "mean") or len(ids.shape) != 2 or any(a.leading for a in ids.shape):
            raise self.refuse(f"`{shown}` takes {how!r} of {show_shape(ids.shape)}", node, "it takes sums and means of `ids: i64[B, L]`")
        made = self.looked_up(weight, 0, ids, node)
        if not self.is_none(given["per_sample_weights"]):
            by = self.lift(given["per_sample_weights"], node)
            if how != "sum" or by.shape != ids.shape or self.type_of(by) != self.type_of(weight):
                raise self.refuse(f"`{shown}` weights {show_shape(by.shape)}", node, "sums are weighted, each row looked up by one number")
            made = replace(self.apply("mul", [made, replace(by, shape=(*by.shape, ONE))], node, node, "infix"), shape=made.shape)
        axis = ids.shape[1]
        if axis.short or not axis.dims:
            raise self.refuse(f"`{shown}` runs over {axis}", node, NO_NAME)
        return replace(self.apply(how, [made], node, None, "call", axis.dims), shape=self.without(made.shape, 1), free=made.free)

    def call_index_select(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x, ids = self.lift(given["input"], node), self.lift(given["index"], node)
        return self.looked_up(x, self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node), ids, node)

    def call_gather(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Elements along an axis at the places that an index of the other axes says."""
        x, index = self.lift(given["input"], node), self.lift(given["index"], node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        if index.id is None or x.id is None:
            return self.poison(self.span(node))
        if len(index.shape) != len(x.shape) or self.without(index.shape, at) != self.without(x.shape, at):
            raise self.refuse(
                f"`{shown}` has an index {show_shape(index.shape)} of {show_shape(x.shape)}", node,
                "the index has the other axes of what it looks up, as in `x.gather(-1, t.unsqueeze(-1))`",
            )  # fmt: skip
        made = self.looked_up(x, at, replace(index, shape=()), node)
        return replace(made, shape=index.shape, free=False)

    call_take_along_dim = call_gather

    def ends(self, x: Traced, axis: Axis, neutral: float | bool, node: Any) -> Traced:
        """A value whose elements beyond the end of a short axis are neutral."""
        for part in axis.joined:
            x = self.ends(x, part, neutral, node) if part.short else x
        if axis.joined:
            return x
        if axis.short < 0 or is_literal(axis.dims[0]) and axis.short >= literal_size(axis.dims[0]) or axis == ONE:
            raise self.refuse(f"{axis} has no elements to run over", node)
        end = self.number_of(self.length(axis), node)
        here = self.apply("lt", [self.index_of(axis.dims, node), end], node, node, "infix")
        made = self.apply("where", [here, self.along(x), self.number(neutral, node)], node, node, "where")
        return replace(made, shape=x.shape, free=x.free)
