"""Values over several dims as values over one: what sorts, and what is added up in the order of keys, knows one position.

In: the builder of a program, its tensors, and a value.  Out: the value over a new dim F that stands for several, G (`B, S`, or `...`), the
last of which runs fastest.  A parameter with all of G is read through a view of it with F in their place (a `View`; where strides do not
merge the runtime makes a dense copy), one with a single dim of G at `index[F] // n % size`, and everything else is computed of these.
"""

from __future__ import annotations

from collections.abc import Mapping

from kgen.expand import count, is_reduction, size
from kgen.ir import Builder, Let, Op, Tensor, View, leaf, ref
from kgen.ops import ROWS
from kgen.types import ELLIPSIS, Dims, i64


class Flattened:
    """Makes values over one dim `dim` of values over the dims `of`; `views` are those of parameters that they read so far, by parameter.

    `fixed` are the tensors that the kernel writes in place, of which there are no views."""

    def __init__(self, build: Builder, tensors: Mapping[str, Tensor], fixed: set[str], dim: str, of: Dims) -> None:
        self.build, self.tensors, self.fixed, self.dim, self.of = build, tensors, fixed, dim, of
        self.views: dict[str, View] = {}
        self.done: dict[str, Let | None] = {}

    def value(self, let: Let) -> Let | None:
        """A value over the one dim; None where it has an operation along one of the several."""
        needed, cone = {let.name}, list[Let]()
        for own in reversed(self.build.lets):
            if own.name in needed and own.name not in self.done:
                cone.append(own)
                needed |= {o.name for o in own.expr.operands if set(own.dims) & set(self.of)}
        for own in reversed(cone):
            self.done[own.name] = self.one(own)
        return self.done[let.name]

    def one(self, let: Let) -> Let | None:
        """A value whose operands are known over the one dim."""
        own, expr = set(self.of), let.expr
        if not own & set(let.dims):
            return let
        if expr.name == "load":
            return self.loaded(let)
        if expr.name == "index":
            return self.place(expr.attrs[0], let)
        operands = [self.done[o.name] for o in expr.operands]
        if expr.name == "gather":
            within = not own & {*self.build.defs[expr.operands[0].name].dims, *expr.attrs}
        else:
            within = not own & set(expr.attrs) and (expr.name == "cast" or expr.name in ROWS or is_reduction(let))
        if not within or None in operands:
            return None
        moved = expr.renamed({o.name: m.name for o, m in zip(expr.operands, operands, strict=True) if m is not None})
        return self.build.add(moved, let.dtype, self.dims(let.dims), let.span, "", let.generic)

    def dims(self, dims: Dims) -> Dims:
        """Dims with the one in place of the several."""
        return tuple(dict.fromkeys(self.dim if d in self.of else d for d in dims))

    def loaded(self, let: Let) -> Let | None:
        """A parameter, read over the one dim."""
        tensor = let.expr.attrs[0]
        have = [d for d in let.dims if d in self.of]
        if len(have) == len(self.of) and tensor not in self.fixed:
            if tensor not in self.views:
                name = next(n for n in (f"{tensor}_flat{'_' * k}" for k in range(99)) if n not in self.tensors)
                dims = (self.dim, *(d for d in let.dims if d not in self.of))
                self.views[tensor] = View(name, tensor, let.dims, self.tensors[tensor].dtype, dims, self.dim, self.of)
            view = self.views[tensor]
            return self.build.add(leaf("load", view.name), let.dtype, view.dims, let.span, "", let.generic)
        if len(have) != 1 or have == [ELLIPSIS]:
            return None
        at = self.place(have[0], let)
        return at and self.build.add(Op("gather", have[0], ref(let.name), ref(at.name)), let.dtype, self.dims(let.dims), let.span, "",
                                     let.generic)  # fmt: skip

    def place(self, dim: str, like: Let) -> Let | None:
        """The place along one of the several dims of a position along the one; None of leading dims, which have no one place."""
        if dim == ELLIPSIS:
            return None
        behind = self.of[self.of.index(dim) + 1 :]
        at = self.build.add(leaf("index", self.dim), i64, (self.dim,), like.span)
        for op, n in (("floordiv", count(self.build, behind, like.span) if behind else None),
                      ("mod", size(self.build, dim, like.span) if dim != self.of[0] else None)):  # fmt: skip
            if n is not None:
                by = self.build.add(Op("cast", ref(n.name)), i64, (), like.span)
                at = self.build.add(Op(op, ref(at.name), ref(by.name)), i64, (self.dim,), like.span)
        return at
