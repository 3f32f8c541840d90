"""The gradient of a place: the cotangent at the place that leads there.

In: the graph of a derivative, a place of the forward in it, and that place's cotangent.  Out: its contribution to the cotangent of what
was read.  An affine place is turned round: what was read at `index[N] - 1` gives to `index[N]` the cotangent at `index[N] + 1`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kgen import positions
from kgen.errors import Diagnostic, KgenError, Span
from kgen.places import Form, Places
from kgen.syntax import Apply, Name, Num, postorder
from kgen.types import FEW, INT, Dims, i64, is_bool, is_literal, literal_size, union
from kgen.windowed import Windowed, window

if TYPE_CHECKING:
    from kgen.tape import Part, Tape

MOST_COPIES = 16  # of a value that `//` spreads over several places


def integer(tape: Tape, form: Form, span: Span) -> int:
    """The value of a form: what is added first, in the order of its terms, then what is taken off."""
    made = None
    terms = sorted(((atoms, f) for atoms, f in form.items() if f), key=lambda t: (t[1] < 0, not t[0]))
    for atoms, f in terms:
        one = None if atoms and abs(f) == 1 else tape.build(str(abs(int(f))))
        for kind, of in atoms:
            atom = int(of) if kind == "value" else tape.size((str(of),), span)
            if kind == "index":
                atom = tape.make("index", (), str(of), i64, (str(of),), span)
            one = atom if one is None else tape.build("a * b", a=one, b=atom)
        assert one is not None
        if made is None:
            made = one if f > 0 else tape.build("-a", a=one)
        else:
            made = tape.build("a + b" if f > 0 else "a - b", a=made, b=one)
    return tape.build("0") if made is None else made


class Transposed:
    """One place, turned round.  `pivots` are the dims of the cotangent that it is read at places along, `dims` those that it then has."""

    def __init__(self, tape: Tape, k: int):
        """The place that is value `k` of a tape.  Raises `KgenError` where it cannot be turned round."""
        self.tape, self.k, self.value = tape, k, tape.values[k]
        self.read = Places(tape.values, tape.clauses)
        self.rest = tuple(d for d in tape.values[self.value.args[0]].dims if d not in self.value.attr)
        self.pivots: dict[str, list[int]] = {}  # by dim, the places of each copy
        self.conditions: list[int] = []
        self.step: tuple[str, int] | None = None  # a pivot that is gone along by a number of the call, which may be 0
        found = [window(self, dim, e) for dim, e in zip(self.value.attr, self.value.args[1:], strict=True)]
        self.windows = [w for w in found if w is not None]
        if len({w.pivot for w in self.windows}) < len(found):
            self.windows = []
        self.windowed = Windowed(self, self.windows)
        if self.windowed.steps:
            return
        for dim, e in zip(self.value.attr, self.value.args[1:], strict=True):
            self.turn(dim, e)
        alone = [d for d, e in zip(self.value.attr, self.value.args[1:], strict=True) for p in self.pivots if p in tape.values[e].dims]
        if len(alone) > len(self.pivots):
            raise self.unknown()

    @property
    def dims(self) -> Dims:
        """The dims that the contribution has in full."""
        if self.windowed.steps:
            solved = {d for w in self.windows for d in (w.pivot, *(w.inner,) * self.windowed.solves)}
            return union(tuple(d for d in self.value.dims if d not in solved), tuple(self.value.attr))
        return union(tuple(d for d in self.value.dims if d not in self.pivots), tuple(self.value.attr))

    def unknown(self) -> KgenError:
        message = f"{self.tape.kernel.name}: the gradient of this place is not known"
        help = "a place is a sum of indices, times whole numbers or one of them times a number of the call; cut it with stop(...)"
        return KgenError(Diagnostic(message, self.value.span, help=help), self.tape.kernel.file.source)

    def turn(self, dim: str, e: int) -> None:
        """Note where along the cotangent what is read at `e` along `dim` went."""
        tape, values = self.tape, self.tape.values
        here = tape.make("index", (), dim, i64, (dim,), self.value.span)
        over = values[e]
        if not over.dims:
            self.conditions.append(tape.build("p == e", p=here, e=e))
            return
        if over.op in ("mod", "floordiv") and not values[over.args[1]].dims:
            inner, by = over.args
            found = self.pivot(inner)
            number = tape.known(by) if over.op == "floordiv" else None
            if over.op == "mod" and found is not None and abs(found[1]) == 1 and self.is_size(by, dim) and self.is_size(by, found[0]):
                self.note(found[0], [tape.build("q % n", q=self.solved(inner, here, *found), n=by)])
                return
            if number is not None and 1 <= number <= MOST_COPIES and found is not None and abs(found[1]) == 1:
                ends = [tape.build("p * n + j", p=here, n=by, j=tape.build(str(j))) for j in range(int(number))]
                self.note(found[0], [self.solved(inner, end, *found) for end in ends])
                return
        if (stepped := self.stepped(e)) is not None:
            pivot, step, others = stepped
            solved = here if others is None else tape.build("q - o", q=here, o=others)
            self.conditions.append(tape.build("q % n == 0", q=solved, n=step))
            self.note(pivot, [tape.build("q // n", q=solved, n=step)])
            self.step = None if self.divides(step) else (pivot, step)
            return
        if self.read.affine(e) is None and set(over.dims) <= set(self.rest):
            self.conditions.append(tape.build("p == e", p=here, e=e))  # along dims that what is read has too there is one
            return
        if self.read.affine(e) is None:
            if not is_literal(dim) or literal_size(dim) > FEW or set(over.dims) & set(self.value.attr):
                raise self.unknown()
            self.conditions.append(tape.build("p == e", p=here, e=e))  # of a few elements each is asked
            return
        found = self.pivot(e)
        if found is None:
            self.conditions.append(tape.build("p == e", p=here, e=e))  # along dims that what is read has too
            return
        pivot, factor = found
        solved = self.solved(e, here, pivot, factor)
        if abs(factor) > 1:
            by = tape.build(str(abs(factor)))
            self.conditions.append(tape.build("q % n == 0", q=solved, n=by))
            solved = tape.build("q // n", q=solved, n=by)
        self.note(pivot, [solved])

    def stepped(self, e: int) -> tuple[str, int, int | None] | None:
        """Of a place that runs along one dim by a number of the call or a size (`s*index[M] + k`) the dim, the step, and what is added,
        if anything; None of another."""
        form, values = self.read.form(e), self.tape.values
        along = [atoms for atoms in form if any(kind == "index" for kind, _ in atoms)]
        if len(along) != 1 or len(along[0]) < 2 or any(values[int(of)].dims for atoms in form for kind, of in atoms if kind == "value"):
            return None
        dims = [str(of) for kind, of in along[0] if kind == "index"]
        if len(dims) > 1 or dims[0] in self.rest or form[along[0]].denominator != 1:
            return None
        by = {tuple(a for a in along[0] if a[0] != "index"): form[along[0]]}
        others = {atoms: f for atoms, f in form.items() if atoms not in along}
        span = self.value.span
        return dims[0], integer(self.tape, by, span), integer(self.tape, others, span) if others else None

    def divides(self, step: int) -> bool:
        """Whether a step is no 0: a size, or a number by which the header's `where` divides."""
        value, nodes = self.tape.values[step], [n for c in self.tape.clauses for n in postorder(c.value)]
        divisors = [n.args[1] for n in nodes if isinstance(n, Apply) and n.op in ("floordiv", "mod")]
        return value.op == "size" or value.op == "param" and value.attr in [d.name for d in divisors if isinstance(d, Name)]

    def is_size(self, v: int, dim: str) -> bool:
        return self.read.form(v) == self.read.form(self.tape.size((dim,), self.value.span))

    def note(self, pivot: str, places: list[int]) -> None:
        if pivot in self.pivots or len(places) > 1 and self.pivots:
            raise self.unknown()
        self.pivots[pivot] = places

    def pivot(self, e: int) -> tuple[str, int] | None:
        """A dim along which a place runs and what is read has no other element, with its factor: of several the one of the least."""
        factors = self.read.affine(e)
        if not factors:
            return None
        own = {d: f for d, f in factors.items() if d not in self.rest}
        return min(own.items(), key=lambda pair: (abs(pair[1]), pair[0] not in self.value.attr, is_literal(pair[0])), default=None)

    def solved(self, e: int, here: int, pivot: str, factor: int, *others: str) -> int:
        """The place along the pivot (times its factor's size) at which `e` is `here`, what runs along `others` left out."""
        sign = 1 if factor > 0 else -1
        form = {atoms: sign * f for atoms, f in self.read.form(here).items()}
        for atoms, f in self.read.form(e).items():
            if atoms not in [(("index", d),) for d in (pivot, *others)]:
                form[atoms] = form.get(atoms, Fraction(0)) - sign * f
        return integer(self.tape, form, self.value.span)

    def share(self, dy: Part) -> Part:
        """The contribution of a cotangent; the place's own condition is dropped, since what is turned round lies inside."""
        tape = self.tape
        guards = tuple((g, holds) for g, holds in dy.guards if not (holds and self.read.guards(g, self.k)))
        within = tuple(d for w in self.windows for d in (w.pivot, w.inner))
        settled, term = tape.without_numbers(tape.settled(type(dy)(dy.raw, guards), within or tuple(self.pivots)))
        if self.windowed.serves(settled.raw):
            made = self.windowed.share(settled)
            if made is not None:
                return type(dy)(tape.times(made.raw, term), made.guards)
            if self.windowed.steps:
                raise self.unknown()
        dy, term = tape.without_numbers(tape.settled(type(dy)(dy.raw, guards), tuple(self.pivots)))
        raw = dy.raw
        for p in self.pivots:
            if p not in tape.values[raw].dims:  # the same all along it: but not beyond its ends
                index = tape.make("index", (), p, i64, (p,), self.value.span)
                raw = tape.build("x if p >= 0 else 0", x=raw, p=index)
        if self.pivots:
            copies = max(map(len, self.pivots.values()))
            total = None
            for j in range(copies):
                one = self.at(raw, [places[min(j, len(places) - 1)] for places in self.pivots.values()], tuple(self.pivots))
                total = one if total is None else tape.build("a + b", a=total, b=one)
            assert total is not None
            raw = total if self.step is None else self.unless_one_place(dy.raw, total)
        raw = tape.times(raw, term)
        return type(dy)(raw, (*dy.guards, *((c, True) for c in self.conditions)))

    def unless_one_place(self, raw: int, here: int) -> int:
        """A cotangent at its place; where the step is 0, and all was read at one place, all of them."""
        assert self.step is not None
        pivot, step = self.step
        if pivot in self.tape.values[raw].dims:
            every = self.tape.build("sum[D](x)", {"D": (pivot,)}, x=raw)
        else:
            every = self.tape.build("x * n", x=raw, n=self.tape.size((pivot,), self.value.span))
        return self.tape.build("a if n == 0 else b", a=every, b=here, n=step)

    def at(self, raw: int, places: list[int], dims: Dims) -> int:
        """A cotangent at places along some of its dims, or a condition; 0 where they lie outside, which is false."""
        tape = self.tape
        value = tape.values[raw]
        made = tape.make("place", (raw, *places), dims, value.type, tape.placed(value.dims, dims, places), self.value.span)
        if all(self.read.inside(e, d) for d, e in zip(dims, places, strict=True)):
            return made
        span = self.value.span
        zero = tape.make("lit", (), "0", INT, (), span)
        zero = tape.build("n != 0", n=zero) if is_bool(value.type) else zero
        node = Num("0", span)
        filled = tape.filled(Apply("place", (node, node), span, span, "place"), made, zero)
        assert filled is not None
        return filled


class Keyed:
    """One place along one dim that cannot be turned round (`x[N = clamp(index[N] - s, 0, N - 1)]`): a sum of the cotangent by the number
    that the place is, as of a lookup.  `dims` are those that the contribution has in full."""

    def __init__(self, tape: Tape, k: int):
        """The place that is value `k` of a tape."""
        self.tape, self.k, self.value = tape, k, tape.values[k]
        self.rest = tuple(d for d in tape.values[self.value.args[0]].dims if d not in self.value.attr)
        self.dims = union(self.rest, tuple(self.value.attr))

    def share(self, dy: Part) -> Part:
        """The contribution of a cotangent: along another dim of that size, at whose places it then stands."""
        tape, dim, place, span = self.tape, self.value.attr[0], self.value.args[1], self.value.span
        guards = tuple((g, holds) for g, holds in dy.guards if not (holds and Places(tape.values, tape.clauses).guards(g, self.k)))
        over = tuple(d for d in tape.values[place].dims if d not in self.rest)
        part, term = tape.without_numbers(tape.settled(type(dy)(dy.raw, guards), over))
        beside, index = positions.another(tape, dim, span), tape.make("index", (), dim, i64, (dim,), span)
        own = tape.make("index", (), beside, i64, (beside,), span)
        raw = tape.build("sum[D](dy if p == e else 0)", {"D": over}, dy=part.raw, p=own, e=place)
        value = tape.values[raw]
        made = tape.make("place", (raw, index), (beside,), value.type, tape.placed(value.dims, (beside,), [index]), span)
        return type(dy)(tape.times(made, term), part.guards)


def turned(tape: Tape, k: int) -> Transposed | Keyed:
    """The place that is value `k` of a tape, turned round, or else as the numbers that it is.  Raises `KgenError` where it is neither:
    along several dims."""
    try:
        return Transposed(tape, k)
    except KgenError:
        place = tape.values[k].args[1]
        if len(tape.values[k].attr) > 1 or not set(tape.values[place].dims) - set(Keyed(tape, k).rest):
            raise
        return Keyed(tape, k)
