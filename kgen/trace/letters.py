"""`einsum`: products of tensors whose axes have letters, and sums over those that the result lacks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kgen.trace import names
from kgen.trace.axes import ONE, show_shape
from kgen.trace.names import Row
from kgen.trace.pools import Pools
from kgen.trace.values import Several, Traced


class Letters(Pools):
    def call_einsum(self, shown: str, row: Row, given: dict[str, Any], node: Any) -> Traced:
        """A product of tensors whose axes have letters, summed over those that the result lacks.  Refuses products of matrices."""
        equation, found = self.constant(given["equation"], node, "the equation"), given["operands"]
        operands = [self.lift(o, node) for o in (found.items if isinstance(found, Several) else (found,))]
        before, arrow, out = str(equation).replace(" ", "").partition("->")
        words, given_axes = before.split(","), [x.shape for x in operands]
        if not arrow:
            out = "".join(sorted(c for c in set(before) - {","} if before.count(c) == 1))
        if [len(set(w)) for w in words] != [len(w) for w in words] or [len(w) for w in words] != [len(s) for s in given_axes]:
            shapes = " and ".join(map(show_shape, given_axes))
            raise self.refuse(f"`{shown}` reads {equation!r} of {shapes}", node, "a letter for each axis, once in a tensor")
        if len(set(out)) < len(out) or not set(out) <= set(before):
            raise self.refuse(f"`{shown}` gives {out!r} of {before!r}", node, "the result has letters of the tensors, each once")
        self.check_operands(shown, row, operands, node)
        summed = [c for c in dict.fromkeys(before) if c not in (*out, ",")]
        for c in summed:
            holds = [set(w) for w in words if c in w]
            if any(set(out) & (a - b) and set(out) & (b - a) for a in holds for b in holds):
                raise self.refuse(f"`{shown}` of {equation!r} is a product of matrices", node, names.advice("matmul"))
        order = [*out, *summed]
        made = operands[0]
        for k, (w, x) in enumerate(zip(words, operands, strict=True)):
            aligned = replace(x, shape=tuple(x.shape[w.index(c)] if c in w else ONE for c in order))
            made = self.apply("mul", [made, aligned], node, node, "infix", parens=True) if k else aligned
        axes = made.shape[: len(out)]
        if dims := tuple(d for a in made.shape[len(out) :] for d in a.dims):
            made = self.run_over("sum", made, dims, node)
        return replace(made, shape=axes, free=False)
