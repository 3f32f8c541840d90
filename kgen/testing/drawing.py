"""What random programs have of random numbers, of positions in several dims, of floats of few bits, and of what layers end with.

In: a source of choices, and the dims and terms of a program in the making.  Out: terms.
"""

from __future__ import annotations

from typing import Any

from kgen.ops import modes
from kgen.syntax import Num
from kgen.testing.placing import Term
from kgen.testing.trees import NOWHERE, applied
from kgen.types import DTYPES

_FLOATS = ("uniform", "uniform", "normal", "exponential", "gumbel", "uniform_open", "uniform53")

#: Floats that tensors have as codes; what casts round to is all that has modes.
FEW_BITS = tuple(d.name for d in DTYPES.values() if d.coded and d.bits == 8)
_ROUNDED = tuple((d.name, how) for d in DTYPES.values() for how in modes(d))


class Drawing:
    """The part of a program's maker that knows of them."""

    rnd: Any
    dims: list[str]
    env: list[Term]
    inside: bool

    def chance(self, share: float) -> bool:
        raise NotImplementedError

    def ints(self, depth: int) -> Term:
        raise NotImplementedError

    def computed(self, depth: int) -> Term:
        raise NotImplementedError

    def float_leaf(self) -> Term:
        raise NotImplementedError

    def joined(self, op: str, *terms: Term, kind: str = "float") -> Term:
        raise NotImplementedError

    def dims_in(self, term: Term) -> list[str]:
        raise NotImplementedError

    def ranked(self, x: Term, kind: str, dims: list[str]) -> Term:
        raise NotImplementedError

    def numbered(self) -> list[str]:
        """The dims whose elements are numbered, the last one fastest: some or all, in any order; none within helpers."""
        dims = [d for d in self.dims if self.chance(0.7)] or self.dims[-1:]
        if self.chance(0.3):
            self.rnd.shuffle(dims)
        return [] if self.inside else dims

    def seed(self) -> Term:
        """A number or a tensor without dims."""
        found = [t for t in self.env if t.kind == "int" and not t.dims]
        literal = Num(self.rnd.choice(("0", "7", "0x123456789", "9223372036854775807")), NOWHERE)
        return self.rnd.choice(found) if found and self.chance(0.6) else Term(literal, "int", frozenset(), tensor=False)

    def rounded(self, x: Term) -> Term:
        """A float rounded to few bits, in any of the ways."""
        dtype, how = self.rnd.choice(_ROUNDED)
        if "stochastic" not in how:
            return Term(applied(dtype, x.node, dims=how or None), "float", x.dims)
        bits = self.ints(1)
        return Term(applied(dtype, x.node, applied("u32", bits.node), dims=how), "float", x.dims | bits.dims)

    def layered(self, depth: int) -> Term:
        """What layers end with, in any order: a value that is rounded by name or dropped by chance, which several readings of a row take,
        normalised, scaled by what rows share, and of few bits."""
        x = self.computed(depth)
        if not (dims := self.dims_in(x)) or self.inside:
            return x
        if self.chance(0.3):
            x = self.joined("where", self.drawn_bool(depth), x, Term(Num("0.0", NOWHERE), "float", frozenset()))
        if self.chance(0.7):
            x = Term(applied(self.rnd.choice(("T", "T", "f32", "bf16", "f16")), x.node), "float", x.dims)
        one, square = Num("1", NOWHERE), applied("pow", x.node, Num("2", NOWHERE))
        low = {
            "rms": lambda: applied("rsqrt", applied("add", one, applied("mean", square, dims=dims))),
            "greatest": lambda: applied("div", one, applied("add", one, applied("max", applied("abs", x.node), dims=dims))),
        }
        way = self.rnd.choice(("softmax", "softmax", "center", "ranked", *low))
        if way == "ranked":
            y = self.joined("sub", x, self.ranked(x, "float", dims))
        else:
            y = Term(applied("mul", x.node, low[way]()) if way in low else applied(way, x.node, dims=dims), "float", x.dims)
        if self.chance(0.5):
            y = self.joined(self.rnd.choice(("mul", "add")), y, self.float_leaf())
        return self.rounded(y) if self.chance(0.3) else y

    def drawn(self, depth: int) -> Term:
        """A float for each element."""
        dims = self.numbered()
        if not dims:
            return Term(Num("0.5", NOWHERE), "float", frozenset())
        return Term(applied(self.rnd.choice(_FLOATS), self.seed().node, self.seed().node, dims=dims), "float", frozenset(dims))

    def drawn_bool(self, depth: int) -> Term:
        """A trial for each element."""
        share = Num(self.rnd.choice(("0.5", "0.1", "1.0", "0.0")), NOWHERE)
        if not (dims := self.numbered()):
            return Term(applied("lt", share, Num("0.5", NOWHERE)), "bool", frozenset(), tensor=False)
        return Term(applied("bernoulli", share, self.seed().node, self.seed().node, dims=dims), "bool", frozenset(dims))

    def words(self, depth: int) -> Term:
        """A word for each element, or for each value of an integer; or an element's number."""
        dims = self.numbered()
        if not dims or self.chance(0.3):
            x = self.ints(depth)
            return Term(applied("philox", self.seed().node, self.seed().node, x.node), "int", x.dims, tensor=x.tensor)
        if self.chance(0.3):
            return Term(applied("index", dims=dims), "int", frozenset(dims))
        return Term(applied("random", self.seed().node, self.seed().node, dims=dims), "int", frozenset(dims))
