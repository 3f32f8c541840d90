"""What holds of a header's sizes, as a part of the checker: clauses (`where E = B + 1`) and split axes.

In: a header whose parameters are declared.  Out: its clauses, each an error where it says nothing that a call could hold to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kgen import sized
from kgen.nodes import INFIX, Apply, Clause, Expr, Header, Name, postorder
from kgen.optional import Defaults
from kgen.types import ELLIPSIS, FEW, axes, is_literal, literal_size
from kgen.values import closest, did_you_mean


class Sizes(Defaults):
    """The sizes of a header: where each comes from."""

    def values_of_dims(self, header: Header) -> Iterable[Name]:
        """The dims of the parameters, those that clauses name, and the literals of the results, whose sizes are known by themselves."""
        yield from (d for p in header.params for d in p.type.dims or () if d.name != ELLIPSIS)
        literals = (d for r in header.results for d in r.type.dims or () if is_literal(d.name) and d.name[0] != "0")
        yield from (d for d in literals if literal_size(d.name) <= FEW or not d.name.isdigit())
        constants = sized.constants(header.clauses)
        for c in header.clauses:
            yield c.name
            if c.name.name not in constants:
                yield from (n for n in postorder(c.value) if isinstance(n, Name) and n.name not in self.params and n.name[0].isupper())

    def check_clauses(self, header: Header) -> None:
        """Take a header's clauses; an error for each that is none, or whose size no call gives."""
        constants = sized.constants(header.clauses)
        taken: dict[str, Clause] = {}
        for c in header.clauses:
            name = c.name.name
            if name in taken:
                if not (c.inline or taken[name].inline):
                    self.error(f"the size of {name} is given twice", c.name.span, help="a dim has one clause")
                    continue
            elif not c.inline and not name[0].isupper():
                self.error(f"the dim `{name}` does not begin with a capital letter", c.name.span, help=f"write `{name.capitalize()}`")
                continue
            taken[name] = c
            if not self.fits_sizes(c, header):
                continue
            if name not in constants:
                self.clauses += (c,)
            elif not 0 < constants[name] < 2**31:
                self.error(f"{name} is {constants[name]}, which is no size of a dim", c.value.span,
                           help="a literal dim has from 1 to 2^31 - 1 elements")  # fmt: skip
            else:
                self.dims.setdefault(f"{constants[name]}_{name}", c.name.span)

    def fits_sizes(self, c: Clause, header: Header) -> bool:
        """Whether a clause is made of what sizes are made of; an error if not."""
        wrong = sized.allowed(c.value)
        if wrong is not None:
            signs = {op: sign for sign, (op, _) in INFIX.items()}
            what = f"`{signs.get(wrong.op, wrong.op)}`" if isinstance(wrong, Apply) else "this"
            help = "sizes are whole numbers, dims and `int` parameters, joined by + - * // % min and max"
            self.error(f"{what} is no part of a size", wrong.span, help=help)
            return False
        for n in postorder(c.value):
            if not isinstance(n, Name) or is_literal(n.name):
                continue
            p = self.params.get(n.name)
            if p is not None and (p.is_tensor or p.dtype != "int"):
                shown = "a tensor" if p.is_tensor else f"a {p.dtype}"
                self.error(f"`{n.name}` is {shown}, and sizes are made of dims and `int` parameters", n.span)
                return False
            if p is None and not n.name[0].isupper():
                known = [q.name for q in self.params.values() if q.dtype == "int" and not q.is_tensor]
                self.error(f"`{n.name}` is not defined", n.span, help=did_you_mean(closest(n.name, [*known, *self.dims])))
                return False
        return True

    def check_factors(self, header: Header) -> None:
        """An error where an axis of several factors leaves two sizes open, and where a clause gives no size."""
        split = [(p, axis) for p in self.params.values() for axis in axes(p.dims or (), p.factors)]
        known = {d for _, axis in split for d in axis if is_literal(d) or len(axis) == 1}
        known = self.follow(known | {p.name for p in self.params.values() if not p.is_tensor})
        while found := [axis for _, axis in split if len({*axis} - known) == 1]:
            known = self.follow(known | {d for axis in found for d in axis})
        for p, axis in split:
            if len(open_ := [d for d in axis if d not in known]) > 1:
                span = next(d.span for q in header.params if q.name.name == p.name for d in q.type.dims or () if d.name == open_[0])
                self.error(f"the sizes of {' and '.join(open_)} do not follow from that of `{'*'.join(axis)}`", span,
                           help="all factors of an axis but one are literals, or dims of other tensors")  # fmt: skip
                return
        for c in self.clauses:
            read = sized.names(c.value)
            free = [n for n in (c.name.name, *read) if n not in known]
            if not free:
                continue
            if c.name.name in read or c.name.name in free and len(free) > 1:
                self.error(f"the size of {c.name.name} goes round in a circle, or needs that of {free[-1]}, which no tensor gives",
                           c.value.span, help="a size follows from dims of tensors, literals and `int` parameters")  # fmt: skip
            else:
                help = "a clause is solved for one dim, of which it is a multiple and a rest; or a tensor has that dim"
                self.error(f"the size of {free[0]} does not follow from that of {c.name.name}", self.named_in(c.value, free[0]), help=help)
            return

    def follow(self, known: set[str]) -> set[str]:
        return sized.follows(self.clauses, known)

    @staticmethod
    def named_in(root: Expr, name: str):
        """Where an expression names a dim."""
        return next(n.span for n in postorder(root) if isinstance(n, Name) and n.name == name)


#: A dim as a type may name it: a whole number, perhaps with a name behind it (`sized.named`).
LITERAL = re.compile(r"[1-9][0-9]*(_[A-Za-z_0-9]+)?")
