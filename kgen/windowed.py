"""The gradient of places in windows: `x[H = 2*index[P] + index[I] - 1]` along a literal dim I.

In: a place that is turned round (`transposed.py`), and its cotangent.  Out: what the cotangent has at those windows in which an element
lies: with a step s and K places there are K / s of them, rounded up, whatever the number of windows.  Of q = s * p + i they are
i = q % s + s * t and p = q // s - t.  Where places of a window lie apart (q = s * p + d * i), or what is read differs along I by more than
the place, each i is asked, and p is (q - d * i) // s where s divides that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from kgen.marked import Marks
from kgen.ops import OPS
from kgen.types import FEW, i64, is_literal, literal_size, union

if TYPE_CHECKING:
    from kgen.tape import Part
    from kgen.transposed import Transposed

MOST_COPIES = 32  # of a cotangent, one for each window in which an element lies


@dataclass(frozen=True)
class Window:
    """A place `step * index[pivot] + apart * index[inner] + rest` along a dim: its value is `place`; what is read lacks both dims."""

    dim: str
    place: int
    pivot: str
    step: int
    inner: str
    apart: int

    @property
    def count(self) -> int:
        """In how many windows an element lies at most."""
        return -(-literal_size(self.inner) // self.step)


def window(turned: Transposed, dim: str, place: int) -> Window | None:
    """A place along a dim as that of a window; None where it is another: where it has several dims to solve for."""
    factors = turned.read.affine(place) or {}
    own = {d: f for d, f in factors.items() if d not in turned.rest}
    inner, pivots = [d for d in own if is_literal(d)], [d for d in own if not is_literal(d)]
    if len(inner) != 1 or len(pivots) != 1 or own[pivots[0]] < 1 or turned.tape.values[place].op in ("mod", "floordiv"):
        return None
    return Window(dim, place, pivots[0], own[pivots[0]], inner[0], own[inner[0]])


class Windowed:
    """The windows of one place; `steps` says whether they have steps, `solves` whether the places within a window follow from that of the
    element."""

    def __init__(self, turned: Transposed, windows: list[Window]):
        self.turned, self.tape, self.windows = turned, turned.tape, windows
        copies = 1
        for w in windows:
            copies *= w.count
        inner = [w.inner for w in windows]
        self.steps = any(w.step > 1 for w in windows)
        close = self.steps and all(w.apart == 1 for w in windows) and copies <= MOST_COPIES
        self.solves = close and len({*inner}) == len(inner) and not any(d in turned.value.attr for d in inner)

    def serves(self, raw: int) -> bool:
        """Whether a cotangent is to be followed to its windows: where these have steps, and where it is made of what it is of."""
        if self.steps or not self.windows:
            return self.steps
        at, values = _At(self.turned, self.windows, {}), self.tape.values
        whole = {v for v in self.tape.leads([raw]) if not at.inner(v)}
        return any(at.is_here(v) for v in self.tape.leads([raw], whole) if v not in whole and values[v].args)

    def share(self, dy: Part) -> Part | None:
        """The contribution of a cotangent, settled in the dims of the windows; None where what it is made of cannot be followed."""
        total = self.followed(dy, self.solves)
        if total is None and self.solves:  # it differs along several literal dims: each of their places is asked
            every = self.followed(dy, False)
            total = None if every is None else self.tape.counted(every, tuple(w.inner for w in self.windows))
        return None if total is None else type(dy)(total, dy.guards)

    def followed(self, dy: Part, solves: bool) -> int | None:
        """The cotangent at the windows in which an element lies; where places are not solved for it still runs along the literal dims."""
        tape, total = self.tape, None
        marks = Marks(tape, self.turned.k, self.windows, solves)
        marked = marks.chosen(dy.raw) is not None
        for places, conditions, beyond in self.placed(solves):
            made = _At(self.turned, self.windows, places, marks).value(dy.raw)
            if made is None:
                return None
            for c in (*conditions, *(beyond if not marked or marks.guarded else ())):
                made = tape.build("x if c else 0", x=made, c=c)
            total = made if total is None else tape.build("a + b", a=total, b=made)
        return total

    def placed(self, solves: bool) -> Iterator[tuple[dict[str, int], list[int], list[int]]]:
        """For each copy of the cotangent the places that lead to an element, by dim, under which conditions they do, and under which they
        lie within the literal dims."""
        tape, turned = self.tape, self.turned
        solved = [turned.solved(w.place, self.here(w.dim), w.pivot, w.step, *(w.inner,) * solves) for w in self.windows]
        if not solves:
            pairs = [*zip(self.windows, solved, strict=True)]
            places = {w.pivot: tape.build(f"q // {w.step}", q=q) if w.step > 1 else q for w, q in pairs}
            yield places, [tape.build(f"q % {w.step} == 0", q=q) for w, q in pairs if w.step > 1], []
            return
        for ts in product(*(range(w.count) for w in self.windows)):
            places, conditions = {}, list[int]()
            for w, q, t in zip(self.windows, solved, ts, strict=True):
                size, over = literal_size(w.inner), f" // {w.step}" if w.step > 1 else ""
                left = f"q % {w.step}" if w.step > 1 else "i64(0)"
                places[w.pivot] = tape.build(f"q{over} - {t}" if t else f"q{over}", q=q)
                places[w.inner] = tape.build(f"{left} + {w.step * t}" if t else left, q=q)
                if w.step * (t + 1) > size:
                    conditions.append(tape.build("i < n", i=places[w.inner], n=tape.build(str(size))))
            yield places, [], conditions

    def here(self, dim: str) -> int:
        """An element's own place along a dim."""
        return self.tape.make("index", (), dim, i64, (dim,), self.turned.value.span)


class _At:
    """Values at places of windows that lead to an element: what is read there is the element itself."""

    def __init__(self, turned: Transposed, windows: list[Window], places: Mapping[str, int], marks: Marks | None = None):
        self.turned, self.tape, self.places, self.marks = turned, turned.tape, places, marks
        self.leads = {w.dim: w.place for w in windows}
        self.done: dict[int, int | None] = {}

    def value(self, v: int) -> int | None:
        """A value at the places, 0 where one of them lies outside its dim; None where it is made of what has no place there."""
        if not self.inner(v):
            return self.read(v)
        found = self.made(v)
        if found is None or self.marks is not None and self.marks.chosen(v) is not None:  # no bit is set outside
            return found
        tape = self.tape
        for d, e in self.places.items():
            if not is_literal(d):
                if not self.turned.read.inside(e, d):
                    found = tape.build("x if p >= 0 and p < n else 0", x=found, p=e, n=tape.size((d,), self.turned.value.span))
        return found

    def inner(self, v: int) -> bool:
        """Whether a value differs along the literal dims of windows."""
        return bool({w.inner for w in self.turned.windows} & {*self.tape.values[v].dims})

    def read(self, v: int) -> int:
        """A value that is read at the places."""
        dims = tuple(d for d in self.places if d in self.tape.values[v].dims)
        return self.turned.at(v, [self.places[d] for d in dims], dims) if dims else v

    def made(self, v: int) -> int | None:
        """A value at the places, which are known to lie inside."""
        if v not in self.done:
            self.done[v] = self.one(v)
        return self.done[v]

    def one(self, v: int) -> int | None:
        """`made`, the first time."""
        tape, value = self.tape, self.tape.values[v]
        if self.is_here(v):
            return value.args[0]
        if value.op == "where" and self.is_here(value.args[1]) and self.turned.read.guards(value.args[0], value.args[1]):
            return tape.values[value.args[1]].args[0]
        if not self.inner(v):
            return self.read(v)
        if self.marks is not None and (choice := self.marks.chosen(v)) is not None:
            return self.marked(*choice)
        if value.op == "index":
            return self.places.get(str(value.attr), v)
        pointwise = value.op == "cast" or value.op in OPS and value.args and not value.attr
        if pointwise:
            args = [self.made(a) for a in value.args]
            known = [a for a in args if a is not None]
            if len(known) < len(args):
                return None
            return tape.make(value.op, tuple(known), value.attr, value.type, union(*(tape.values[a].dims for a in known)), value.span)
        few = [d for d in self.places if d in value.dims and is_literal(d) and literal_size(d) <= FEW]
        return self.read(v) if len(few) < 2 else None  # one of few elements is chosen among them

    def marked(self, integer: int, taken: int) -> int:
        """A choice that windows have bits for: they, and what it takes."""
        assert self.marks is not None
        places = {d: self.place(d) for d in self.marks.inner}
        holds = self.marks.holds(self.read(integer), places)
        return self.tape.build("x if c else 0", x=self.read(taken), c=holds)

    def place(self, dim: str) -> int:
        """The place along a literal dim: the element's own where none was solved for."""
        own = self.places.get(dim)
        return self.tape.make("index", (), dim, i64, (dim,), self.turned.value.span) if own is None else own

    def is_here(self, v: int) -> bool:
        """Whether a value is what is read at the windows' places."""
        value = self.tape.values[v]
        return value.op == "place" and dict(zip(value.attr, value.args[1:], strict=True)) == self.leads
