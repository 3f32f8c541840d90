"""Calls along a dim: scans (`cumsum`), the greatest elements (`topk`, `kthvalue`), and sums by number (`index_add`, `bincount`)."""

from __future__ import annotations

import ast
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kgen.ops.scans import attrs
from kgen.places import Form, _sized, _sum
from kgen.trace.axes import ONE, Axis, Splits, show_shape
from kgen.trace.drawing import Drawing
from kgen.trace.live import Lives
from kgen.trace.names import Row
from kgen.trace.source import Code
from kgen.trace.tracer import Refused
from kgen.trace.values import Const, Ranked, Several, Shape, Traced, dtype_name
from kgen.types import is_bool, is_float, is_int

#: The most places of `topk` that are results; a threshold alone, `topk(x, k).values[..., -1:]`, may be of any k.
MOST_PLACES = 64
#: What `scatter_reduce` joins elements by: the reduction, how it meets what was there, and what is nothing to it.
SCATTERED: dict[str, tuple[str, str, Any]] = {
    "sum": ("sum", "add", 0), "amax": ("max", "max", float("-inf")), "amin": ("min", "min", float("inf"))
}  # fmt: skip


class Ordered(Drawing):
    def __init__(self, code: Code, splits: Splits, lives: Lives | None = None):
        super().__init__(code, splits, lives)
        self.flipped: dict[int, tuple[Traced, tuple[str, ...]]] = {}  # by its number, what was flipped, and along which dims
        self.scans_of_flipped: dict[int, tuple[str, Traced, str]] = {}
        self.ranks: dict[int, tuple[str, Ranked]] = {}  # of the k greatest, their dim and what they are
        self.zeros: set[int] = set()

    # ------------------------------------------------------------------------------------------ scans

    def whole_dim(self, shown: str, x: Traced, dim: Any, node: Any, short: bool = False) -> tuple[int, str]:
        """Where an axis stands and the one dim that it has.  Refuses an axis of several dims, and a part of a dim unless `short`."""
        at = self.place(self.constant(dim, node, f"`dim` of `{shown}`"), x.shape, node)
        axis = x.shape[at]
        if len(axis.dims) != 1 or axis.short and not short:
            what = "an axis of size one" if axis == ONE else f"{axis}, {'a part of a dim' if axis.short else 'which is split into dims'}"
            raise self.refuse(f"`{shown}` goes along {what}", node, "it goes along a whole dim of the parameters")
        return at, axis.dims[0]

    def scanned(self, name: str, shown: str, given: dict[str, Any], node: Any) -> tuple[Traced, Traced, str]:
        """A scan's result, its operand and its dim.  A part of a dim that begins at its start is scanned as the dim is: what is behind
        the part comes later."""
        x = self.lift(given["input"], node, f"`input` of `{shown}`")
        if x.id is None:
            raise Refused
        if not self.is_none(given.get("dtype", Const(None))):
            x = replace(self.apply(self.dtype(given["dtype"], node), [x], node), shape=x.shape, free=x.free)
        t = self.type_of(x)
        if name == "logcumsumexp" and (t is None or not is_float(t)):
            raise self.refuse(f"`{shown}` needs a float tensor", node, "cast it, as in `x.float()`")
        _, dim = self.whole_dim(shown, x, given["dim"], node, short=True)
        made = replace(self.apply(name, [x], node, None, "call", (dim,)), shape=x.shape, free=x.free)
        if not self.is_none(given.get("dtype", Const(None))):
            made = self.as_asked(made, given["dtype"], node)
        if made.id is not None and x.id in self.flipped and self.flipped[x.id][1] == (dim,):
            self.scans_of_flipped[made.id] = name, self.flipped[x.id][0], dim
        return made, x, dim

    def call_cumsum(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.scanned("cumsum", shown, given, node)[0]

    def call_cumprod(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.scanned("cumprod", shown, given, node)[0]

    def call_logcumsumexp(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.scanned("logcumsumexp", shown, given, node)[0]

    def call_cummax(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        return self.running("cummax", "ge", shown, given, node)

    def call_cummin(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        return self.running("cummin", "le", shown, given, node)

    def running(self, name: str, sign: str, shown: str, given: dict[str, Any], node: Any) -> Several:
        """The greatest or least so far, and its place: of equals the last, and the last NaN, as torch has it."""
        given = given | {"input": self.kept("x", self.lift(given["input"], node), node)}
        values, x, dim = self.scanned(name, shown, given, node)
        values = self.kept("values", values, node)
        found = self.apply(sign, [x, values], node, node, "infix")
        if (t := self.type_of(x)) is not None and is_float(t):
            found = self.apply("or", [self.apply("isnan", [x], node), found], node, node, "infix")
        here = replace(self.index_of((dim,), node), free=True)
        at = self.apply("where", [found, here, self.number(0, node)], node, node, "where")
        places = self.apply("cummax", [at], node, None, "call", (dim,))
        return Several((values, replace(places, shape=x.shape, free=x.free)), ("values", "indices"))

    def call_flip(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """A tensor from its end; the scan of a flipped one, flipped again, is the scan in the other direction."""
        x = self.lift(given["input"], node)
        made = super().call_flip(shown, row, given, node)
        if x.id is None or made.id is None:
            return made
        names = tuple(n for d in self.several(given["dims"], node, "`dims`") for n in x.shape[self.place(d, x.shape, node)].dims)
        scan = self.scans_of_flipped.get(x.id)
        if scan is not None and names == (scan[2],):
            self.spare.append(x)
            back = self.apply(scan[0], [scan[1]], node, None, "call", attrs(scan[2], True, False))
            return replace(back, shape=x.shape, free=x.free)
        self.flipped[made.id] = x, names
        return made

    # ------------------------------------------------------------------------------------------ the greatest elements

    def call_topk(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        """The k greatest or least elements of an axis, in order, and their places; of a k that is known at the call only the last."""
        x = self.kept("x", self.lift(given["input"], node), node)
        if x.id is None:
            raise Refused
        at, dim = self.whole_dim(shown, x, given["dim"], node)
        largest = self.constant(given["largest"], node, f"`largest` of `{shown}`")
        k = self.lift(given["k"], node, f"`k` of `{shown}`")
        t = self.type_of(k)
        if self.is_tensor(k) or t is None or not (isinstance(given["k"], Const) or is_int(t)):
            raise self.refuse(f"`k` of `{shown}` is an integer", node, "a constant, or a parameter `k: int`")
        count = given["k"].value if isinstance(given["k"], Const) else None
        if count is not None and (not isinstance(count, int) or count < 1):
            raise self.refuse(f"`{shown}` of {count} elements", node)
        made: list[Traced | Ranked] = []
        for op in ("kth", "kth_place"):
            of = Ranked(x, at, dim, op, k if count is None else count, largest, f"how many elements `{shown}` gives")
            if count == 1:
                made.append(replace(self.ranked(of, 1, node), shape=self.without(x.shape, at, ONE)))
            elif count is None or count > MOST_PLACES:
                made.append(of)
            else:
                name = self.literal(count, [x], node)
                whole = self.ranked(of, self.index_of((name,), node), node, 1)
                whole = replace(whole, shape=self.without(x.shape, at, Axis((name,))), free=False)
                if whole.id is not None:
                    self.ranks[whole.id] = name, of
                made.append(whole)
        return Several(tuple(made), ("values", "indices"))

    def ranked(self, of: Ranked, k: Traced | int, node: Any, offset: int = 0) -> Traced:
        """The element of a rank (`k + offset`, from 1) along a dim, or its place; its shape lacks the axis.  The least element is the
        last in order: NaN counts as the greatest there too."""
        if isinstance(k, int):
            form: Form = {(): Fraction(k + offset)} if of.largest else _sum(_sized(of.dim), {(): Fraction(k + offset - 1)}, -1)
            rank = self.number_of(form, node)
        elif of.largest:
            rank = self.apply("add", [k, self.number(offset, node)], node, node, "infix") if offset else k
        else:
            above = self.number_of(_sum(_sized(of.dim), {(): Fraction(1 - offset)} if offset != 1 else {}), node)
            rank = self.apply("sub", [above, k], node, node, "infix")
        made = self.apply(of.op, [replace(of.of, free=True), rank], node, None, "call", (of.dim,))
        return replace(made, shape=self.without(of.of.shape, of.at), free=of.of.free)

    def last_ranked(self, of: Ranked, node: ast.Subscript) -> Traced:
        """`topk(x, k).values[..., -1]`, also with `-1:`, or `None` behind it: the k-th element alone.  Refuses other parts."""
        parts = [self.kind_of(e) for e in (node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice])]
        rank = len(of.of.shape)
        if parts[0] == "...":
            parts[:1] = [":"] * (rank - 1)
        elif any(a.leading for a in of.of.shape):
            parts = []
        before, here, behind = parts[: rank - 1], parts[rank - 1 : rank], parts[rank:]
        if of.at != rank - 1 or set(before) > {":"} or here not in (["-1"], ["-1:"]) or any(k != "None" for k in behind):
            raise self.refuse(f"{of.why} is not known", node, "of such a `topk` the last can be taken, as in `values[..., -1:]`")
        made = self.ranked(of, of.k, node)
        return replace(made, shape=(*made.shape, *(ONE,) * (len(behind) + (here == ["-1:"]))))

    def kind_of(self, element: ast.expr) -> str:
        """What stands in brackets, where it is one of few: "...", ":", "-1:", "-1", "None"; "" of all else."""
        if isinstance(element, ast.Slice):
            ends = [None if e is None else self.eval(e) for e in (element.lower, element.upper, element.step)]
            low, high, step = (e.value if isinstance(e, Const) else e for e in ends)
            return "" if high is not None or step is not None else ":" if low is None else "-1:" if low == -1 else ""
        value = self.eval(element)
        if isinstance(value, Const):
            return "..." if value.value is ... else str(value.value) if value.value is None or value.value == -1 else ""
        return ""

    def one_of(self, x: Traced, at: int, form: Form, node: Any, *left: Axis) -> Traced:
        """One place along an axis; of the greatest elements, that one alone is searched."""
        rank, place = self.ranks.get(x.id) if x.id is not None else None, self.integer(form)
        if rank is None or x.shape[at].dims != (rank[0],) or place is None or not 0 <= place < int(rank[0]):
            return super().one_of(x, at, form, node, *left)
        of = rank[1]
        self.spare.append(x)
        made = self.ranked(of, place + 1, node)
        return replace(made, shape=self.without(x.shape, at, *left), free=x.free)

    def call_kthvalue(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Several:
        """The k-th least element of an axis and its place."""
        x = self.kept("x", self.lift(given["input"], node), node)
        if x.id is None:
            raise Refused
        at, dim = self.whole_dim(shown, x, given["dim"], node)
        known, keep = given["k"], self.constant(given["keepdim"], node, "`keepdim`")
        k = known.value if isinstance(known, Const) and isinstance(known.value, int) else self.lift(known, node, f"`k` of `{shown}`")
        shape = self.without(x.shape, at, *[ONE] * bool(keep))
        made = (self.ranked(Ranked(x, at, dim, op, k, False), k, node) for op in ("kth", "kth_place"))
        return Several(tuple(replace(m, shape=shape) for m in made), ("values", "indices"))

    # ------------------------------------------------------------------------------------------ sums by number

    def selected(self, ids: Traced, target: Axis, source: Traced, along: Axis, op: str, nothing: Any, node: Any) -> Traced:
        """`sum[S](source if ids == index[V] else 0)`: what is reduced of the elements whose number is each place along `target`; its
        shape is to be said by the caller."""
        if target.short or along.short or not target.dims or not along.dims:
            raise self.refuse(f"elements of {along} are added to {target}", node, "whole dims are, each with a name")
        if set(target.dims) & (set(along.dims) | set(self.dims_of(source)) | set(self.dims_of(ids))):
            raise self.refuse(f"elements of {along} are added to a dim of the same name, {target}", node, "give each dim a name of its own")
        here = self.apply("eq", [replace(ids, free=True), self.index_of(target.dims, node)], node, node, "infix")
        terms = [here, replace(source, free=True), self.number(nothing, node)]
        return self.apply(op, [self.apply("where", terms, node, node, "where")], node, None, "call", along.dims)

    def check_numbers(self, shown: str, ids: Traced, x: Traced, source: Traced, node: Any) -> None:
        """Refuse numbers that are no integers, elements of another dtype than those that they are added to, and what
        torch would change under another name."""
        if shown.endswith("_") and x.owner:
            if x.owner in self.scout.params:
                raise self.unknown_method(shown.lstrip("."), x, node)
            raise self.refuse(f"`{shown}` changes another name's value too", node, f"write `{shown[:-1]}`, which gives a new tensor")
        t, own, other = self.type_of(ids), self.type_of(x), self.type_of(source)
        if t is None or own is None or other is None:
            raise Refused
        if not is_int(t):
            raise self.refuse(f"`{shown}` takes integers as its index, not {t}", node)
        if not dtype_name(own) or dtype_name(own) != dtype_name(other):
            help = "make one of the other's dtype, as in `x.new_zeros(...)` or `torch.zeros(..., dtype=x.dtype)`"
            raise self.refuse(f"`{shown}` adds {other} to {own}", node, help)

    def joined(self, x: Traced, op: str, made: Traced, node: Any) -> Traced:
        """What was there, joined with what is added, in its dtype; zeros are left out."""
        if op == "add" and x.id in self.zeros:
            self.spare.append(x)
            whole = made
        else:
            infix = op == "add"
            terms = [replace(x, free=True), replace(made, free=True)]
            whole = self.apply(op, terms, node, node if infix else None, "infix" if infix else "call")
        own, found = self.type_of(x), self.type_of(whole)
        if own is not None and found is not None and dtype_name(own) != dtype_name(found):
            whole = self.apply(dtype_name(own), [whole], node)
        return replace(whole, shape=x.shape, free=False)

    def call_index_add(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """Slices added at the places that a tensor of numbers says."""
        x, ids, source = (self.lift(given[k], node, f"`{k}` of `{shown}`") for k in ("input", "index", "source"))
        self.check_numbers(shown, ids, x, source, node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        same = len(source.shape) == len(x.shape) and self.without(source.shape, at) == self.without(x.shape, at)
        if not same or ids.shape != (source.shape[at],):
            found = f"{show_shape(source.shape)} by {show_shape(ids.shape)} to {show_shape(x.shape)}"
            help = "the index has the axis `dim` of what is added, which has all other axes alike"
            raise self.refuse(f"`{shown}` adds {found}", node, help)
        if not self.is_none(given["alpha"]) and not (isinstance(given["alpha"], Const) and given["alpha"].value == 1):
            source = self.apply("mul", [source, self.lift(given["alpha"], node)], node, node, "infix")
        return self.joined(x, "add", self.selected(ids, x.shape[at], source, source.shape[at], "sum", 0, node), node)

    def call_scatter_add(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.scattered(shown, given, "sum", node)

    def call_scatter_reduce(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        how = self.constant(given["reduce"], node, "`reduce`")
        if how not in SCATTERED or self.constant(given["include_self"], node, "`include_self`") is not True:
            raise self.refuse(f"kgen knows `{shown}` with {', '.join(SCATTERED)} and include_self=True", node)
        return self.scattered(shown, given, how, node)

    def scattered(self, shown: str, given: dict[str, Any], how: str, node: Any) -> Traced:
        """Elements joined to those at the places along one axis that a tensor says, which has a place for each of them."""
        x, ids, source = (self.lift(given[k], node, f"`{k}` of `{shown}`") for k in ("input", "index", "src"))
        self.check_numbers(shown, ids, x, source, node)
        at = self.place(self.constant(given["dim"], node, "`dim`"), x.shape, node)
        if ids.shape != source.shape or len(ids.shape) != len(x.shape) or self.without(ids.shape, at) != self.without(x.shape, at):
            found = f"{show_shape(source.shape)} by {show_shape(ids.shape)} to {show_shape(x.shape)}"
            raise self.refuse(f"`{shown}` adds {found}", node, "the index has the axes of what is added, all but `dim` those of the result")
        op, joins, nothing = SCATTERED[how]
        t = self.type_of(x)
        if op != "sum" and (t is None or not is_float(t)):
            raise self.refuse(f"`{shown}` with {how!r} needs a float tensor", node, "cast it, as in `x.float()`")
        return self.joined(x, joins, self.selected(ids, x.shape[at], source, ids.shape[at], op, nothing, node), node)

    def call_bincount(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """How often each number stands in a row; there are as many as `minlength` says, a constant or a parameter's size."""
        ids = self.lift(given["input"], node)
        t = self.type_of(ids)
        if t is None:
            raise Refused
        if not is_int(t) or is_bool(t) or len(ids.shape) != 1 or ids.shape[0].leading:
            raise self.refuse(f"`{shown}` takes integers of one axis, not {t}{show_shape(ids.shape)}", node)
        target = self.wanted(given["minlength"], node)
        if target is None:
            help = "give `minlength`, a constant or a size, above the greatest number: `torch.bincount(ids, minlength=w.shape[0])`"
            raise self.refuse(f"how many counts `{shown}` gives is not known", node, help)
        if self.is_none(given["weights"]):
            source = self.number(1, node)
        else:
            source = self.lift(given["weights"], node)
            if source.shape != ids.shape or str(self.type_of(source)) not in ("f32", "f64"):
                raise self.refuse(f"`{shown}` takes weights in f32 or f64, one for each number", node, "cast them, as in `w.float()`")
        made = self.selected(ids, target, source, ids.shape[0], "sum", 0, node)
        return replace(made, shape=(target,), free=False)

    def wanted(self, size: Any, node: Any) -> Axis | None:
        """The axis of a size, which may be a number; None of 0."""
        form = self.form(size, node)
        number = self.integer(form)
        if number is None:
            return self.axis_of(form, node)
        if number < 1:
            return None
        if number == 1:
            return ONE
        self.scout.dims.setdefault(str(number), self.span(node))
        return Axis((str(number),))

    # ------------------------------------------------------------------------------------------ tensors of one number

    def constant_of(self, value: Any, sizes: Any, name: str, node: Any) -> Traced:
        """A tensor of one number with axes that a call gives."""
        axes = [s if isinstance(s, Axis) else self.wanted(s, node) for s in self.given_sizes(sizes, node)]
        if any(a is None for a in axes):
            raise self.refuse("a size is 1 or more", node)
        made = replace(self.apply(name, [self.lift(value, node)], node), shape=tuple(a for a in axes if a is not None))
        if made.id is not None and isinstance(value, Const) and value.value == 0:
            self.zeros.add(made.id)
        return made

    def given_sizes(self, sizes: Any, node: Any) -> list[Any]:
        """The sizes of a call, each an axis of a shape or a size."""
        found: list[Any] = []
        for s in sizes.items if isinstance(sizes, Several) else (sizes,):
            one = isinstance(s, Traced) or isinstance(s, Const) and isinstance(s.value, int)
            for i in (s,) if one else self.items(s, node):
                found += i.axes if isinstance(i, Shape) else (i,)
        return found

    def call_zeros(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.constant_of(Const(0), given["size"], self.named_dtype(given, "f32", node), node)

    def call_ones(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.constant_of(Const(1), given["size"], self.named_dtype(given, "f32", node), node)

    def call_full(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        value = self.constant(given["fill_value"], node, f"`fill_value` of `{shown}`")
        usual = "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32"
        return self.constant_of(Const(value), given["size"], self.named_dtype(given, usual, node), node)

    def call_new_zeros(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.like_its(Const(0), given, node)

    def call_new_ones(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.like_its(Const(1), given, node)

    def call_new_full(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.like_its(given["fill_value"], given, node)

    def like_its(self, value: Any, given: dict[str, Any], node: Any) -> Traced:
        """A tensor of one number in the dtype of another, unless the call names one."""
        own = self.dtype_of(self.lift(given["input"], node), node).name
        return self.constant_of(value, given["size"], self.named_dtype(given, own, node), node)

    def call_zeros_like(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        made = super().call_zeros_like(shown, row, given, node)
        if made.id is not None:
            self.zeros.add(made.id)
        return made

    def named_dtype(self, given: dict[str, Any], default: str, node: Any) -> str:
        return default if self.is_none(given["dtype"]) else self.dtype(given["dtype"], node)
