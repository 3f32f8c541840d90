"""Which elements of a window a condition holds for, as bits of one integer a window.

In: a choice that differs along the literal dims of windows, by a condition that is dear to ask again: it compares an element with what
was made of its whole window, as the gradient of a maximum does (`dy / n if x == y else 0 / n`).  Out: the same choice at places of these
windows.  What is read there is a window's integer, one bit for each of its elements, and what is chosen, not the window again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

from kgen.types import Dims, Float, i64, literal_size

if TYPE_CHECKING:
    from kgen.tape import Tape
    from kgen.windowed import Window

#: The most bits of such integers, and their dtypes.
DTYPES = {7: "i8", 15: "i16", 31: "i32", 62: "i64"}


class Marks:
    """The choices of some windows, `read` by a place that is value `k` of a tape; `solved`: its places along the literal dims may lie
    beyond their ends."""

    def __init__(self, tape: Tape, k: int, windows: Sequence[Window], solved: bool):
        self.tape, self.k, self.solved = tape, k, solved
        self.sizes = {w.inner: (literal_size(w.inner), w.step * w.count) for w in windows}

    @property
    def inner(self) -> Dims:
        return tuple(self.sizes)

    def chosen(self, v: int) -> tuple[int, int] | None:
        """Of a choice `a if c else 0` the integer that has the bits of `c`, and what is taken where one is set; None where its windows need
        no bits.  In `a if c else 0 / n`, for n the number of elements for which c holds, where n is 0 all bits are set and NaN is taken."""
        tape, value = self.tape, self.tape.values[v]
        if value.op != "where" or not isinstance(value.type, Float):
            return None
        c, a, b = value.args
        if set(self.inner) - {*tape.values[c].dims} or set(self.inner) & {*tape.values[a].dims} or not self.is_dear(c):
            return None
        if tape.known(b) == 0:
            return self.integer(c), a
        quotient = tape.values[b]
        if quotient.op != "div" or tape.known(quotient.args[0]) != 0 or not self.counts(quotient.args[1], c):
            return None
        n = quotient.args[1]
        return self.integer(c, n), tape.build("a if n > 0 else nan", a=a, n=n)

    def is_dear(self, c: int) -> bool:
        """Whether a condition asks for what is made of whole windows, and bits are enough for their elements."""
        tape, values, inner = self.tape, self.tape.values, {*self.inner}
        of = {a for v in tape.leads([c]) if inner & {*values[v].dims} for a in values[v].args if not inner & {*values[a].dims}}
        return self.bits is not None and self.k in tape.leads(of)

    def counts(self, n: int, c: int) -> bool:
        """Whether a value is the number of a window's elements for which a condition holds."""
        total = self.tape.values[n]
        if total.op != "sum" or {*total.attr} != {*self.inner}:
            return False
        one = self.tape.values[total.args[0]]
        return one.op == "cast" and one.args == (c,)

    @property
    def bits(self) -> tuple[str, dict[str, int], bool] | None:
        """The dtype of the integers, by how many bits places along each literal dim lie apart, and whether places beyond their ends have
        bits of their own, which are never set; None where there are too many."""
        found = None
        for room in (0, 1):  # as many as there are elements; with room behind the ends
            apart, total = {}, 1
            for d, sizes in reversed(self.sizes.items()):
                apart[d] = total
                total *= sizes[room if d != self.inner[0] else 0]
            dtype = next((name for most, name in DTYPES.items() if total <= most), None)
            if dtype is not None and (found is None or found[0] == dtype):
                found = dtype, apart, bool(room)
        return found

    @property
    def guarded(self) -> bool:
        """Whether places beyond the ends of the literal dims are still to be left out."""
        assert self.bits is not None
        return self.solved and not self.bits[2]

    def bit(self, places: Mapping[str, int]) -> int:
        """The bit of an element at places along the literal dims."""
        assert self.bits is not None
        _, apart, _ = self.bits
        total = None
        for d in self.inner:
            one = self.tape.build(f"p * {apart[d]}" if apart[d] > 1 else "p", p=places[d])
            total = one if total is None else self.tape.build("a + b", a=total, b=one)
        assert total is not None
        return total

    def integer(self, c: int, n: int | None = None) -> int:
        """The integer of each window: a bit for each of its elements for which a condition holds; where it does for `n` of them, and none,
        for all."""
        assert self.bits is not None
        name, apart, _ = self.bits
        span = self.tape.values[self.k].span
        bit = self.bit({d: self.tape.make("index", (), d, i64, (d,), span) for d in self.inner})
        bits = self.tape.build("sum[D](i64(c) << b)", {"D": self.inner}, c=c, b=bit)
        if n is not None:
            at = product(*(range(size) for size, _ in self.sizes.values()))
            every = sum(1 << sum(p * apart[d] for p, d in zip(places, self.inner, strict=True)) for places in at)
            bits = self.tape.build(f"bits if n > 0 else {every}", bits=bits, n=n)
        return self.tape.build(f"{name}(bits)", bits=bits)

    def holds(self, integer: int, places: Mapping[str, int]) -> int:
        """Whether the bit of an element is set."""
        assert self.bits is not None
        wide = "i64" if self.bits[0] == "i64" else "i32"
        return self.tape.build(f"({wide}(m) >> {wide}(b)) & 1 != 0", m=integer, b=self.bit(places))
