"""Pools: the greatest element and the mean of windows (`F.max_pool2d`, `F.avg_pool1d`), as places in steps along dims of their own."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partialmethod
from typing import Any

from kgen import sized
from kgen.nodes import Clause
from kgen.places import Places
from kgen.trace.axes import Axis
from kgen.trace.names import Row
from kgen.trace.ordered import Ordered
from kgen.trace.values import Const, Traced
from kgen.types import is_literal, literal_size

#: Sizes at which a header's clause is held to what a pool makes of one.
TRIED = 96


class Pools(Ordered):
    def window_numbers(self, shown: str, given: dict[str, Any], name: str, count: int, node: Any) -> tuple[int, ...]:
        """An argument that is one number for each of `count` dims, or one for all."""
        found = self.several(given[name], node, f"`{name}` of `{shown}`")
        if len(found) not in (1, count) or not all(isinstance(n, int) and not isinstance(n, bool) for n in found):
            raise self.refuse(f"`{name}` of `{shown}` is a number for each of {count} dims", node)
        return found if len(found) == count else found * count

    def steps_of(self, dim: str, less: int, step: int, node: Any) -> str:
        """The dim of the windows along another: their number is `(size - less) // step + 1`.  One of the header's clauses, where it says
        this, else a dim of its own."""
        if step == less == 1:
            return dim
        if is_literal(dim):
            count = (literal_size(dim) - less) // step + 1
            if count < 1:
                raise self.refuse(f"a window is longer than the {literal_size(dim)} elements here", node)
            return self.new_dim("P", str(count), node)

        def says(c: Clause) -> bool:
            if {*sized.names(c.value)} != {dim}:
                return False
            sizes = range(max(1, less), less + TRIED)
            return all(sized.value(c.value, {dim: n}) == (n - less) // step + 1 for n in sizes)

        known = next((c.name.name for c in self.scout.clauses if says(c)), "")
        more = step - less
        above = f"{dim} {'+' if more > 0 else '-'} {abs(more)}" if more else dim
        text = above if step == 1 else f"({above}) // {step}" if more else f"{dim} // {step}"
        return known or self.new_dim(f"{dim}_out", text, node)

    def pooled(self, op: str, count: int, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """The windows of the last `count` dims, reduced by `op`; what is outside is nothing to it."""
        for name, usual in (("ceil_mode", False), ("return_indices", False), ("divisor_override", None)):
            if name in given and self.constant(given[name], node, f"`{name}`") != usual:
                raise self.refuse(f"`{shown}` is read with `{name}={usual}` alone", node)
        x = self.kept("x", self.lift(given["input"], node, f"`input` of `{shown}`"), node)
        sizes = self.window_numbers(shown, given, "kernel_size", count, node)
        again = self.is_none(given["stride"]) or given["stride"] == Const(())
        steps = sizes if again else self.window_numbers(shown, given, "stride", count, node)
        pads = self.window_numbers(shown, given, "padding", count, node)
        apart = self.window_numbers(shown, given, "dilation", count, node) if "dilation" in given else (1,) * count
        if min(*sizes, *steps, *apart) < 1 or any(not 0 <= 2 * p <= k for p, k in zip(pads, sizes, strict=True)):
            raise self.refuse(f"`{shown}` has windows, steps of 1 or more, and at most half a window of padding", node)
        if any(pads) and "count_include_pad" in given and not self.constant(given["count_include_pad"], node, "`count_include_pad`"):
            raise self.refuse(f"`{shown}` counts padding here", node, "leave out `count_include_pad=False`, or divide by what lies inside")
        shape, places, inner, inside = x.shape, dict[str, Traced](), list[str](), True
        for k in range(count):
            at, dim = self.whole_dim(shown, x, Const(k - count), node)
            own = self.steps_of(dim, apart[k] * (sizes[k] - 1) + 1 - 2 * pads[k], steps[k], node)
            inner.append(self.new_dim("IJK"[k], str(sizes[k]), node))
            place = self.plus(self.scaled(own, steps[k], node), self.scaled(inner[-1], apart[k], node), "add", node)
            if pads[k]:
                place = self.plus(place, self.number(pads[k], node), "sub", node)
            inside = inside and place.id is not None and Places(self.scout.values, self.scout.clauses).inside(place.id, dim)
            places[dim], shape = place, self.without(shape, at, Axis((own,)))
        fill = None if inside else self.number(-math.inf if op == "max" else 0, node)
        made = self.apply(op, [replace(self.placed(x, places, node, fill), free=True)], node, None, "call", tuple(inner))
        return replace(made, shape=shape, free=x.free)

    def scaled(self, dim: str, by: int, node: Any) -> Traced:
        """The index along a dim, times a number."""
        here = self.index_of((dim,), node)
        return here if by == 1 else self.plus(self.number(by, node), here, "mul", node)

    def plus(self, one: Traced, other: Traced, op: str, node: Any) -> Traced:
        return self.apply(op, [one, other], node, node, "infix")

    call_max_pool1d = partialmethod(pooled, "max", 1)
    call_max_pool2d = partialmethod(pooled, "max", 2)
    call_max_pool3d = partialmethod(pooled, "max", 3)
    call_avg_pool1d = partialmethod(pooled, "mean", 1)
    call_avg_pool2d = partialmethod(pooled, "mean", 2)
    call_avg_pool3d = partialmethod(pooled, "mean", 3)
