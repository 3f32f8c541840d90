"""torch's random functions in a traced function: dropout, bernoulli, rand_like and randn_like.

In: a call's arguments.  Out: values made of kgen's own random numbers (`uniform[..., N](seed, offset)` and the like), of as many streams as
there are calls.  The kernel gets two parameters more, `seed: i64[] = random` and `offset: i64[] = random`, which calls draw.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgen.optional import RANDOM
from kgen.syntax import Name, Param, Type
from kgen.trace.names import Row
from kgen.trace.torch_calls import TorchCalls
from kgen.trace.values import Traced, named


class Drawing(TorchCalls):
    """The part of a tracer that knows of them."""

    def stream(self, node: Any) -> list[Traced]:
        """Seed and offset of the next draw: the parameters, which the first one makes, and a number more for each that follows."""
        span, made = self.span(node), []
        if not self.drawn_params:
            taken = {*self.scout.params, *self.scout.dims, *self.frames[0].env}
            for stem in ("seed", "offset"):
                name = next(n for n in (stem, *(f"{stem}_{k}" for k in range(2, len(taken) + 3))) if n not in taken)
                param = Param(Name(name, span), Type(Name("i64", span), (), span), Name(RANDOM, span), span)
                self.scout.declare_param(param)
                self.drawn_params.append(param)
        for p in self.drawn_params:
            self.scout.used.add(p.name.name)
            made.append(Traced(Name(p.name.name, span), self.scout.names.get(p.name.name), ()))
        if self.draws:
            made[1] = self.apply("add", [made[1], self.number(self.draws, node)], node, node, "infix")
        self.draws += 1
        return made

    def noise(self, function: str, x: Traced, node: Any, *before: Traced) -> Traced:
        """One of the prelude's random functions for each element of a value, which are numbered in torch's order.  Refuses parts of dims,
        and what has none."""
        dims = named(x.shape)
        self.refuse_short("this", [x], node)
        if not dims:
            raise self.refuse("this draws one number for each element, and its operand has no dims", node)
        return replace(self.apply(function, [*before, *self.stream(node)], node, None, "call", dims), shape=x.shape, free=x.free)

    def call_dropout(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """What stays has the probability 1 - p, and is divided by it; all of it where `training` is False."""
        x, training = self.lift(given["input"], node), self.constant(given["training"], node, f"`training` of `{shown}`")
        inplace = self.constant(given["inplace"], node, f"`inplace` of `{shown}`")
        if not isinstance(training, bool) or inplace:
            raise self.refuse(f"kgen knows `{shown}` with a `training` that is True or False, and not in place", node)
        self.check_operands(shown, row, [x], node)
        if not training or x.id is None:
            return x
        stays = self.kept("stays", self.apply("sub", [self.number(1, node), self.lift(given["p"], node)], node, node, "infix"), node)
        mask = self.noise("bernoulli", x, node, stays)
        scaled = self.apply("mul", [x, self.apply("div", [self.number(1, node), stays], node, node, "infix")], node, node, "infix")
        return self.apply("where", [mask, scaled, self.number(0, node)], node, node, "where")

    def like(self, function: str, given: dict[str, Any], node: Any, *before: Traced) -> Traced:
        """Numbers for each element of the input, in its dtype or in the one that is asked for."""
        x = self.lift(given["input"], node)
        if x.id is None:
            return x
        wanted = given.get("dtype")
        name = self.dtype_of(x, node).name if wanted is None or self.is_none(wanted) else self.dtype(wanted, node)
        return self.apply(name, [self.noise(function, x, node, *before)], node)

    def call_bernoulli(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        self.check_operands(shown, row, [x := self.lift(given["input"], node)], node)
        return self.like("bernoulli", given, node, x)

    def call_rand_like(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.like("uniform", given, node)

    def call_randn_like(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        return self.like("normal", given, node)
