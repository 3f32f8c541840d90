"""Views of traced tensors: `view`, `reshape`, `flatten`, axes moved and expanded, `chunk` and `split`.

Dims are split and joined in whole: each axis of the result is some of the tensor's dims, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kgen.places import Form, _product, _sized
from kgen.trace.axes import ONE, Axes, Axis, show_shape
from kgen.trace.names import Row
from kgen.trace.shape_calls import NO_NAME, ShapeCalls
from kgen.trace.values import Const, Several, Shape, Traced, named
from kgen.types import ELLIPSIS, FEW, is_literal, literal_size


class Views(ShapeCalls):
    # ------------------------------------------------------------------------------------------ view and reshape

    def sizes(self, args: Sequence[Any], node: Any) -> list[Axis | Form]:
        """The sizes that a call of `view` gives, as axes where they are taken from a shape; -1 stays -1."""
        found: list[Axis | Form] = []
        for a in args:
            if isinstance(a, Shape):
                found += a.axes
            elif isinstance(a, Several):
                found += self.sizes(a.items, node)
            elif isinstance(a, Const) and isinstance(a.value, (tuple, list)):
                found += self.sizes([Const(v) for v in a.value], node)
            else:
                found.append(self.form(a, node))
        return found

    def is_open(self, size: Axis | Form) -> bool:
        """Whether a size is to be found from the others: -1, or `N // 128` of an N that is not split yet."""
        return not isinstance(size, Axis) and (size == {(): Fraction(-1)} or self.share(size) is not None)

    def reshaped(self, x: Traced, sizes: list[Axis | Form], node: Any) -> Traced:
        """A tensor with its elements in axes of other sizes.  Refuses what splits and joins dims otherwise than in whole."""
        if x.pads or any(a.short for a in x.shape):
            if (shape := self.joined_parts(x, sizes)) is not None:
                return replace(x, shape=shape)
            raise self.refuse(f"{show_shape(x.shape)} has a size without a name", node, NO_NAME)
        dims = [d for a in x.shape for d in a.dims]
        front, wanted = self.matched(list(sizes), dims)
        back, rest = self.matched([*reversed(wanted)], dims[::-1][: len(dims) - sum(len(a.dims) for a in front)], True)
        back, rest = back[::-1], rest[::-1]
        used = sum(len(a.dims) for a in front)
        left = dims[used : len(dims) - sum(len(a.dims) for a in back)]
        middle: list[Axis] = []
        if len(rest) == 1 and self.is_open(rest[0]) and (ELLIPSIS not in left or left == [ELLIPSIS]):
            middle = [Axis(tuple(left), flat=left == [ELLIPSIS])]
        elif rest and left and (parts := self.parts_of(rest) if len(left) == 1 else self.first_parts(rest, left[0])) is not None:
            raise self.split_dim(left[0], parts, node)
        elif rest or left:
            help = "name all dims in the parameter's type" if ELLIPSIS in left else "dims are split and joined in whole"
            raise self.refuse(f"{show_shape(x.shape)} cannot be read as so many elements an axis", node, help)
        return replace(x, shape=(*front, *middle, *back))

    def joined_parts(self, x: Traced, sizes: list[Axis | Form]) -> Axes | None:
        """The shape of a tensor with parts of dims where -1 joins some of its axes to one and the others stay; None where it is none."""
        lengths = [self.length(s) if isinstance(s, Axis) else s for s in sizes]
        minus: Form = {(): Fraction(-1)}
        if x.pads or lengths.count(minus) > 1:
            return None
        at = lengths.index(minus) if minus in lengths else len(lengths)
        end = len(x.shape) - (len(lengths) - at - 1) if minus in lengths else len(x.shape)
        kept = [*x.shape[:at], *x.shape[end:]]
        if at > end or lengths[:at] + lengths[at + 1 :] != [self.length(a) for a in kept]:
            return None
        return (*x.shape[:at], *self.as_one(x.shape[at:end]), *x.shape[end:])

    def as_one(self, axes: Axes) -> Axes:
        """Axes joined to one, some of which may be parts of their dims; none of none."""
        if len(axes) < 2:
            return axes
        short = sum(a.short for a in axes)
        return (Axis(tuple(d for a in axes for d in a.dims), short, joined=axes if short else ()),)

    def matched(self, sizes: list[Axis | Form], dims: Sequence[str], backwards: bool = False) -> tuple[list[Axis], list[Axis | Form]]:
        """The axes of the first sizes, which are those of the first dims (from the end where `backwards`), and the sizes left."""
        found: list[Axis] = []
        at = 0
        for k, size in enumerate(sizes):
            if self.is_open(size):
                return found, sizes[k:]
            wanted, taken = self.length(size) if isinstance(size, Axis) else size, list[str]()
            have: Form = {(): Fraction(1)}
            while have != wanted and at + len(taken) < len(dims):
                taken.append(dims[at + len(taken)])
                have = _product(have, _sized(taken[-1]))
            if have != wanted:
                return found, sizes[k:]
            found.append(Axis(tuple(taken[::-1] if backwards else taken), flat=isinstance(size, Axis) and size.flat))
            at += len(taken)
        return found, []

    def first_parts(self, sizes: list[Axis | Form], dim: str) -> list[str | None] | None:
        """What a dim is split into by the first sizes, one of which is a share of it (`H // 2, 2` of H); None where they are none."""
        whole, shares, times = self.length(Axis((dim,))), 0, 1
        for k, size in enumerate(sizes):
            if isinstance(size, Axis):
                return None
            share, number = self.share(size), self.integer(size)
            if share is not None and share[0] == whole and not shares:
                shares = share[1]
            elif number is not None and number > 0:
                times *= number
            else:
                return None
            if shares and times == shares:
                return self.parts_of(sizes[: k + 1])
        return None

    def parts_of(self, sizes: list[Axis | Form]) -> list[str | None] | None:
        """The names of what one dim is to be split into; None where its sizes are not known."""
        parts: list[str | None] = []
        for size in sizes:
            if self.is_open(size):
                parts.append(None)
                continue
            form = self.length(size) if isinstance(size, Axis) else size
            number = self.integer(form)
            if number is not None:
                parts.append(str(number) if number > 0 else None)
                continue
            if len(form) != 1:
                return None
            ((atoms, factor),) = form.items()
            if len(atoms) != 1 or factor != 1 or atoms[0][0] != "size":
                return None
            parts.append(str(atoms[0][1]))
        return parts if parts.count(None) <= 1 else None

    def call_view(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x, sizes = self.lift(given["input"], node), given["shape"]
        return self.reshaped(x, self.sizes([sizes], node), node)

    def call_unflatten(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        return self.reshaped(x, [*x.shape[:at], *self.sizes([given["sizes"]], node), *x.shape[at + 1 :]], node)

    def call_flatten(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Axes joined to one; a tensor of one axis stays as it is."""
        x = self.lift(given["input"], node)
        if x.pads or any(a.joined for a in x.shape):
            raise self.refuse(f"{show_shape(x.shape)} has a size without a name", node, NO_NAME)
        first, last = (self.place(self.constant(given[k], node, f"`{k}`"), x.shape, node) for k in ("start_dim", "end_dim"))
        return replace(x, shape=(*x.shape[:first], *self.as_one(x.shape[first : last + 1]), *x.shape[last + 1 :]))

    def call_view_as(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.reshaped(self.lift(given["input"], node), list(self.lift(given["other"], node).shape), node)

    def call_expand_as(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x, other = self.lift(given["input"], node), self.lift(given["other"], node)
        shape, free = self.meet([x, other], self.span(node))
        return replace(x, shape=shape, free=free)

    def call_expand(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Axes of size one made as long as others."""
        x = self.lift(given["input"], node)
        sizes = self.sizes([given["size"]], node)
        if len(sizes) < len(x.shape):
            raise self.refuse(f"`{shown}` gives fewer sizes than {show_shape(x.shape)} has axes", node)
        shape = []
        for size, axis in zip(sizes, (*(ONE,) * (len(sizes) - len(x.shape)), *x.shape), strict=True):
            same = size == axis or not isinstance(size, Axis) and (size == {(): Fraction(-1)} or size == self.length(axis))
            number = None if isinstance(size, Axis) else self.integer(size)
            if axis == ONE and not same and number is not None and number > 0:
                shape.append(Axis((self.literal(number, [x], node),)))  # so many times the same: `x[:, None].expand(b, 4, n)`
            else:
                shape.append(axis if same else size if isinstance(size, Axis) else self.axis_of(size, node))
        return replace(x, shape=tuple(shape))

    def literal(self, size: int, tensors: list[Traced], node: Any) -> str:
        """The dim of a few elements along which tensors are joined, or one is repeated."""
        name = str(size)
        if any(name in (*self.dims_of(t), *named(t.shape)) for t in tensors):
            return self.new_dim("P", name, node)
        self.scout.dims.setdefault(name, self.span(node))
        return name

    def call_repeat_interleave(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Each element of an axis so many times, side by side."""
        x, count = self.lift(given["input"], node), self.constant(given["repeats"], node, "`repeats`")
        dim = self.constant(given["dim"], node, "`dim`")
        if not isinstance(count, int) or count < 1 or dim is None:
            help = "a constant along a dim, as in `x.repeat_interleave(4, dim=1)`"
            raise self.refuse(f"`{shown}` repeats by {count!r} along {dim!r}", node, help)
        at = self.place(dim, x.shape, node)
        if x.shape[at].short or x.pads:
            raise self.refuse(f"{x.shape[at]} is repeated here", node, NO_NAME)
        joined = Axis((*x.shape[at].dims, self.literal(count, [x], node)))
        return x if count == 1 else replace(x, shape=self.without(x.shape, at, joined), owner="")

    def axis_of(self, size: Form, node: Any) -> Axis:
        """An axis of the parameters that has a size."""
        if self.integer(size) == 1:
            return ONE
        known = [Axis((d,)) for d in self.scout.dims if self.length(Axis((d,))) == size]
        known += [a for v in self.frame.env.values() if isinstance(v, Traced) for a in v.shape if self.length(a) == size and not a.joined]
        if not known:
            raise self.refuse("this size has no name", node, NO_NAME)
        return known[0]

    # ------------------------------------------------------------------------------------------ axes moved

    def call_unsqueeze(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node, 1)
        return replace(x, shape=(*x.shape[:at], ONE, *x.shape[at:]))

    def call_squeeze(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        if x.id is not None and x.shape[at] != ONE:
            raise self.refuse(f"dim {x.shape[at]} is squeezed only where its size is one, which is not known", node)
        return replace(x, shape=self.without(x.shape, at))

    def call_transpose(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        one, other = (self.place(self.constant(given[k], node, f"`{k}`"), x.shape, node) for k in ("dim0", "dim1"))
        shape = list(x.shape)
        shape[one], shape[other] = shape[other], shape[one]
        return replace(x, shape=tuple(shape))

    def call_t(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        if len(x.shape) > 2 or any(a.leading for a in x.shape):
            raise self.refuse(f"`{shown}` takes a matrix, not {show_shape(x.shape)}", node, "write `x.transpose(-1, -2)`")
        return replace(x, shape=x.shape[::-1])

    def call_permute(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        order = [self.place(d, x.shape, node) for d in self.several(given["dims"], node, "`dims`")]
        if sorted(order) != list(range(len(x.shape))):
            raise self.refuse(f"`{shown}` says each axis of {show_shape(x.shape)} once", node)
        return replace(x, shape=tuple(x.shape[k] for k in order))

    def call_movedim(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        here, there = (
            [self.place(d, x.shape, node) for d in self.several(given[k], node, f"`{k}`")] for k in ("source", "destination")
        )
        to = dict(zip(there, here, strict=True))
        rest = iter(k for k in range(len(x.shape)) if k not in to.values())
        return replace(x, shape=tuple(x.shape[to[k] if k in to else next(rest)] for k in range(len(x.shape))))

    # ------------------------------------------------------------------------------------------ parts

    def call_chunk(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        x, count = self.lift(given["input"], node), self.constant(given["chunks"], node, "`chunks`")
        return self.chunks(x, self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node), count, node)

    def chunks(self, x: Traced, at: int, count: Any, node: Any) -> Several:
        """An axis in so many equal parts."""
        axis = x.shape[at]
        if not isinstance(count, int) or not 1 <= count <= FEW or axis.short or not axis.dims:
            raise self.refuse(f"{axis} is cut into {count} parts here", node, f"an axis is cut into at most {FEW} equal parts")
        if count == 1:
            return Several((x,))
        if not self.is_of(axis.dims[0], count):
            raise self.split_dim(axis.dims[0], (str(count), None), node)
        x = self.kept("x", x, node)
        shape = self.without(x.shape, at, *([Axis(axis.dims[1:])]))
        parts = (self.placed(x, {axis.dims[0]: self.number(k, node)}, node) for k in range(count))
        return Several(tuple(replace(p, shape=shape, free=x.free) for p in parts))

    def call_split(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        """An axis in parts of one size, or of several that are said."""
        x = self.lift(given["input"], node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        axis, size = x.shape[at], given["split_size"]
        several = isinstance(size, Several) or isinstance(size, Const) and isinstance(size.value, (list, tuple))
        items = self.items(size, node) if several else ()
        forms = [self.form(i, node) for i in items or [size]]
        share, whole = self.share(forms[0]), self.length(axis)
        if all(f == forms[0] for f in forms):
            count = self.parts_in(whole, forms[0]) if share is None else share[1]
            if items:
                count = len(items)
            if count is None and (names := self.unpacked.get(id(node))) is not None and names <= FEW and len(axis.dims) == 1:
                if (part := self.parts_of([forms[0]])) is not None:  # `q, k, v = x.split(64, dim=-1)`
                    raise self.split_dim(axis.dims[0], (str(names), *part), node)
            if count is None:
                help = "write `x.chunk(2, dim=-1)`, or the list of sizes, or the dim's size into the type, as in `T[..., 256]`"
                raise self.refuse(f"into how many parts {axis} is split is not known", node, help)
            number = self.integer(forms[0])
            if items and number is not None and whole != {(): Fraction(count * number)}:
                halved = self.is_of(axis.dims[0], count)
                last, parts = axis.dims[-1], (str(number),) if halved else (str(count), str(number))
                if len(axis.dims) > 1 + halved:
                    raise self.refuse(f"{axis} is cut into parts of {number} here", node, NO_NAME)
                raise self.split_dim(last, parts, node)
            return self.chunks(x, at, count, node)
        numbers = [self.integer(f) for f in forms]
        if None not in numbers and len(axis.dims) == 1 and not is_literal(axis.dims[0]):
            raise self.split_dim(axis.dims[0], (str(sum(n or 0 for n in numbers)),), node)
        found, low = list[Traced](), Const(0)
        x = self.kept("x", x, node)
        for number in numbers:
            if number is None:
                raise self.refuse(f"parts of {axis} have sizes without a name", node, NO_NAME)
            found.append(self.narrowed(x, at, low, Const(low.value + number), node))
            low = Const(low.value + number)
        return Several(tuple(found))

    def parts_in(self, whole: Form, part: Form) -> int | None:
        """How often a size goes into another."""
        if len(whole) != 1 or len(part) != 1:
            return None
        ((atoms, factor),), ((under, by),) = whole.items(), part.items()
        return int(factor / by) if atoms == under and by and (factor / by).denominator == 1 else None

    def call_unbind(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        x = self.lift(given["input"], node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        axis = x.shape[at]
        if len(axis.dims) != 1 or not is_literal(axis.dims[0]) or literal_size(axis.dims[0]) > FEW:
            raise self.refuse(f"into how many parts {axis} falls is not known", node, "say its size in the annotation, as in `T[..., 3]`")
        x = self.kept("x", x, node)
        return Several(tuple(self.element(x, at, Const(k), node) for k in range(literal_size(axis.dims[0]))))

    def call_select(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x = self.lift(given["input"], node)
        return self.element(x, self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node), given["index"], node)

    def call_narrow(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        x, start, length = given["input"], given["start"], given["length"]
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        stop = self.apply("add", [self.lift(start, node), self.lift(length, node)], node, node, "infix")
        return self.narrowed(x, at, start, stop, node)
