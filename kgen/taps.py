"""Neighbours that are read as vectors: what a place a few elements along asks for becomes a read of its own, a tap.

In: an expanded program.  Out: the same in which `where(the place lies inside, gather(x, place), fill)` is `tap[N, -3] x fill` if the
place is the element's own index and a constant (or numbers of the call), and x lies in memory as the call gave it: the element so far
along, `fill` where there is none.  A gather alone, which is 0 outside, is one as well; at a place modulo the dim's size one that wraps.
So the pass around it computes each element alone, and a backend that knows taps reads their vectors as any others, guarded where a row
begins and ends.

A place that runs along another dim than the one that it is along, in steps (`x[H = 2*index[P] - 1]`, `dy[P = (index[H] + 1) // 2]`), is a
*window*'s: a tap too, whose tensor lacks the dims of the map that windows run along, and is read at whole places.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from kgen.ir import Let, Op, Program, exact, leaf, literal_of, live, ref
from kgen.types import ELLIPSIS, INT, Dims, i64, is_literal, literal_size

#: A move as a tap's attribute: elements, the signs of the numbers (operands behind the first two), whether it wraps; of a window the dim
#: that it runs along, its step, and what divides that.
_CODE = re.compile(r"(-?\d+)([+-]*)(%?)(?:@(.+)\*(\d+)/(\d+))?")
#: The farthest neighbour that is one.
FARTHEST = 1 << 20
#: The most taps of a program: each takes registers.
MOST_TAPS = 256
#: The longest step of a window, and of what divides one.
MOST_STEP = 1 << 10


class Move(NamedTuple):
    """How far from its element a tap lies along a dim ("": none): so many elements, and as many as numbers of the call say, each with its
    sign; beyond the end from the beginning on, where it wraps.  A window's is no distance: its place along `dim` is
    `(times * index[along] + by) // over`."""

    dim: str
    by: int
    numbers: tuple[tuple[int, str], ...] = ()
    wraps: bool = False
    along: str = ""
    times: int = 1
    over: int = 1

    @property
    def fixed(self) -> bool:
        """Whether it is a distance that is known before the call."""
        return not self.numbers and not self.wraps and not self.along

    @property
    def counts(self) -> str:
        """The dim along which it runs."""
        return self.along or self.dim

    @property
    def way(self) -> str:
        """It in a name."""
        if self.along and not self.numbers:
            return f"{'minus_' * (self.by < 0)}{abs(self.by)}"
        return f"{'minus' if self.by < 0 else 'plus'}_{abs(self.by)}" if self.fixed else "moved"

    @property
    def code(self) -> str:
        """It as a tap's attribute, without its dim."""
        signs = "".join("-" if sign < 0 else "+" for sign, _ in self.numbers)
        return f"{self.by}{signs}{'%' * self.wraps}" + (f"@{self.along}*{self.times}/{self.over}" if self.along else "")


def taps_of(let: Let) -> tuple[Move, ...]:
    """Along which dims a tap lies how far from its element."""
    attrs, numbers, found = let.expr.attrs, iter(let.expr.operands[2:]), list[Move]()
    for dim, code in zip(attrs[::2], attrs[1::2], strict=True):
        match = _CODE.fullmatch(code)
        assert match is not None, code
        by, signs, wraps, along, times, over = match.groups()
        given = tuple((-1 if sign == "-" else 1, next(numbers).name) for sign in signs)
        found.append(Move(dim, int(by), given, bool(wraps), along or "", int(times or 1), int(over or 1)))
    return tuple(found)


def is_tap(let: Let) -> bool:
    """Whether a let is a neighbour's element."""
    return let.expr.name == "tap"


def is_beside(let: Let, dims: Dims, defs: dict[str, Let]) -> bool:
    """Whether a tap lies so far along one of some dims, and is 0 outside; `defs` are its program's lets."""
    by = taps_of(let)
    return len(by) == 1 and by[0].fixed and by[0].dim in dims and literal_of(defs[let.expr.operands[1].name], defs) == 0


def asked(let: Let, defs: dict[str, Let]) -> tuple[str, int] | None:
    """The dim and the number, 0 or more, of a let that asks whether a place so far along is there: `index[dim] + number < size of dim`."""
    if let.expr.name != "lt":
        return None
    place, size = (defs[o.name] for o in let.expr.operands)
    size = defs[size.expr.operands[0].name] if size.expr.name == "cast" else size
    if place.expr.name != "add" or size.expr.name != "size":
        return None
    index, by = (defs[o.name] for o in place.expr.operands)
    number, dim = literal_of(by, defs), size.expr.attrs[0]
    if index.expr != leaf("index", dim) or not isinstance(number, Fraction) or number < 0 or number.denominator > 1:
        return None
    return dim, int(number)


def tapped(program: Program, windows: bool = True) -> Program:
    """The program with taps, those of `windows` among them; the same where it has none, or too many.  Its lets keep their names."""
    found = _Taps(program, windows)
    lets = [found.let(let) for let in program.lets]
    lets = [replace(let, expr=let.expr.renamed({o.name: found.own.get(o.name, o.name) for o in let.expr.operands})) for let in lets]
    stores = tuple(replace(s, ref=found.own.get(s.ref, s.ref)) for s in program.stores)
    made = live([*found.zeros, *_behind(found.alike(lets))], stores)
    return replace(program, lets=made, stores=stores) if 0 < sum(map(is_tap, made)) <= MOST_TAPS else program


def _behind(lets: list[Let]) -> list[Let]:
    """The lets, each behind what it reads: a fill that taps share may stand behind the first of them."""
    named, made = {let.name: let for let in lets}, dict[str, Let]()

    def put(let: Let) -> None:
        for o in let.expr.operands:
            if o.name in named and o.name not in made:
                put(named[o.name])
        made[let.name] = let

    for let in lets:
        if let.name not in made:
            put(let)
    return [*made.values()]


def moves(program: Program) -> Callable[[str, Let], Move | None]:
    """What says of a dim and a place of a program how far along it lies from its element; None where it does not run as the elements do."""
    return _Taps(program).move


class _Taps:
    def __init__(self, program: Program, windows: bool = True):
        self.defs, self.windows = program.by_name, windows
        self.states = {s.state for s in program.stores}
        self.places: dict[str, Move | None] = {}
        self.own: dict[str, str] = {}  # what is another value: a load at its own place after all, a condition beside one that always holds
        self.free = 1 + max(int(let.name[1:]) for let in program.lets)
        self.zeros: list[Let] = []  # what stands outside of a gather, with its number
        self.sure = set[str]()  # windows' taps that lie inside, as the checker has proved

    def let(self, let: Let) -> Let:
        """The tap that a let is, else the let itself."""
        if let.expr.name == "gather":
            return self.tap(let, let, None)
        if let.expr.name == "and":
            a, b = (self.defs[o.name] for o in let.expr.operands)
            other = b if self.always(a) else a if self.always(b) else let
            if other is not let:
                self.own[let.name] = self.own.get(other.name, other.name)
        if let.expr.name != "where":
            return let
        condition, value, fill = (self.defs[o.name] for o in let.expr.operands)
        found = value.expr.name == "gather" and self.is_number(fill) and self.guards(condition, self.gathered(value))
        return self.tap(let, value, fill) if found else let

    def tap(self, let: Let, value: Let, fill: Let | None) -> Let:
        """A let that is an element gathered out of a tensor, `fill` (None: 0) outside; the let itself where that is no tap."""
        moves = [self.move(d, at) for d, at in self.gathered(value)]
        known = [m for m in moves if m is not None]
        if not moves or len(known) < len(moves):
            return let
        while value.expr.name == "gather":
            value = self.defs[value.expr.operands[0].name]
        if any(m.dim not in value.dims for m in known):
            return let  # a place of what was read at places itself
        known = sorted((m for m in known if m.by or not m.fixed), key=lambda m: value.dims.index(m.dim))
        if not known:
            self.own[let.name] = value.name
            return let
        attrs = [text for m in known for text in (m.dim, m.code)]
        operands = [value.name, (fill or self.zero(let)).name, *(name for m in known for _, name in m.numbers)]
        windows = {m.dim: m.along for m in known if m.along}
        dims = tuple(windows.get(d, d) for d in value.dims)
        if len({*dims}) < len(dims) or windows.keys() & {*dims}:
            return let  # two places run along one dim, or one along what another is along
        if fill is None and windows:
            self.sure.add(let.name)
        return replace(let, expr=Op("tap", *attrs, *map(ref, operands)), dims=dims)

    def alike(self, lets: list[Let]) -> list[Let]:
        """The same lets; what lies inside for sure has the fill of its tensor's other taps, so that what they share is read once."""
        fills = {let.expr.operands[0].name: let.expr.operands[1] for let in lets if is_tap(let) and let.name not in self.sure}
        made = []
        for let in lets:
            of = let.expr.operands
            if let.name in self.sure and is_tap(let) and of[0].name in fills:
                let = replace(let, expr=Op("tap", *let.expr.attrs, of[0], fills[of[0].name], *of[2:]))
            made.append(let)
        return made

    def move(self, dim: str, at: Let) -> Move | None:
        """How far along a dim a place lies from its element; None where it does not run as the elements do."""
        wraps = at.expr.name == "mod" and self.is_size(self.defs[at.expr.operands[1].name], dim)
        found = self.place(self.defs[at.expr.operands[0].name] if wraps else at)
        if found is None or not found.dim or abs(found.by) > FARTHEST:
            return None
        if found.dim == dim:
            return found._replace(wraps=wraps) if found.times == found.over == 1 else None
        steps = 0 < found.times <= MOST_STEP and found.over <= MOST_STEP
        moved = found.numbers and found.times * found.over > 1
        if not self.windows or wraps or moved or not steps or ELLIPSIS in (dim, found.dim):
            return None
        return Move(dim, found.by, found.numbers, along=found.dim, times=found.times, over=found.over)

    def zero(self, like: Let) -> Let:
        """A zero of a let's dtype."""
        for let in self.zeros:
            if (let.dtype, let.generic) == (like.dtype, like.generic):
                return let
        number = Let(f"%{self.free}", leaf("lit", "0"), INT, (), like.span)
        self.zeros += [number, Let(f"%{self.free + 1}", Op("cast", ref(number.name)), like.dtype, (), like.span, "", like.generic)]
        self.free += 2
        return self.zeros[-1]

    def is_number(self, let: Let) -> bool:
        """Whether a value is a number of the spec's."""
        return let.expr.name == "cast" and self.defs[let.expr.operands[0].name].expr.name == "lit"

    def gathered(self, value: Let) -> list[tuple[str, Let]]:
        """The dims along which a value is gathered out of a tensor of the call's, with their places; none where it is made otherwise."""
        found: list[tuple[str, Let]] = []
        while value.expr.name == "gather":
            dim, (of, at) = value.expr.attrs[0], value.expr.operands
            found.append((dim, self.defs[at.name]))
            value = self.defs[of.name]
        stays = value.expr.name != "load" or value.expr.attrs[0] not in self.states  # other values are kept by a pass before
        return found if stays and len({d for d, _ in found}) == len(found) else []

    def guards(self, condition: Let, places: list[tuple[str, Let]]) -> bool:
        """Whether a condition says just that places lie inside."""
        wanted = {(kind, at.name, d) for d, at in places for kind in ("ge", "lt")}
        todo, found = [condition], set[tuple[str, str, str]]()
        while todo:
            let = todo.pop()
            if let.expr.name == "and":
                todo += [self.defs[o.name] for o in let.expr.operands]
                continue
            if let.expr.name not in ("ge", "lt"):
                return False
            at, limit = let.expr.operands
            dim = next((d for d, e in places if e.name == at.name), "")
            if not (self.constant(self.defs[limit.name]) == 0 if let.expr.name == "ge" else self.is_size(self.defs[limit.name], dim)):
                return False
            found.add((let.expr.name, at.name, dim))
        return found == wanted

    def always(self, let: Let) -> bool:
        """Whether a comparison of an index and a constant holds for every element: index[N] + 1 >= 0, index[N] - 1 < N."""
        if let.expr.name not in ("ge", "lt"):
            return False
        at, limit = (self.defs[o.name] for o in let.expr.operands)
        found = self.place(at)
        if found is None or not found.fixed or not found.dim or found.times < 1:
            return False
        if let.expr.name == "lt":
            return found.by <= 0 and found.times == 1 and self.is_size(limit, found.dim)
        least = self.constant(limit)
        return least is not None and found.by // found.over >= least

    def is_size(self, let: Let, dim: str) -> bool:
        """Whether a value is the size of a dim."""
        if is_literal(dim):
            return self.constant(let) == literal_size(dim)
        return let.expr.name == "cast" and self.defs[let.expr.operands[0].name].expr == leaf("size", dim)

    def constant(self, let: Let) -> int | None:
        """The integer that a value is known to be."""
        found = self.place(let)
        return found.by if found is not None and found.fixed and not found.dim else None

    def place(self, let: Let) -> Move | None:
        """A value as the index along a dim, an integer, and numbers of the call; None where it is another."""
        if let.name not in self.places:
            args = [self.place(self.defs[o.name]) for o in let.expr.operands]
            known = [a for a in args if a is not None]
            found = self.combined(let, known) if len(known) == len(args) else None
            if found is None and let.expr.name == "cast" and let.dtype is i64 and self.defs[let.expr.operands[0].name].dtype == INT:
                found = Move("", 0, ((1, let.name),))
            self.places[let.name] = found
        return self.places[let.name]

    def combined(self, let: Let, args: list[Move]) -> Move | None:
        """That of a value whose operands' are known."""
        name = let.expr.name
        if name == "index":
            return Move(let.expr.attrs[0], 0)
        if name == "lit":
            value = exact(let.expr.attrs[0]) if let.expr.attrs[0] not in ("inf", "-inf", "nan") else None
            return Move("", int(value)) if value is not None and value.denominator == 1 else None
        if name in ("pos", "cast") and (let.dtype is i64 or let.dtype == INT):
            return args[0]
        if name in ("add", "sub", "neg"):
            first, last = (Move("", 0), args[0]) if name == "neg" else args
            if first.dim and last.dim or name != "add" and last.dim:
                return None
            sign, one = 1 if name == "add" else -1, first if first.dim else last
            if one.over > 1 and not (first.fixed and last.fixed):
                return None
            by = first.by * (one.over if one is last else 1) + sign * last.by * (one.over if one is first else 1)
            return one._replace(by=by, numbers=(*first.numbers, *((sign * s, n) for s, n in last.numbers)))
        known = [a for a in args if a.fixed and not a.dim]
        if name == "mul" and known:
            one, number = (args[0], args[1].by) if args[1] in known else (args[1], args[0].by)
            return one._replace(by=one.by * number, times=one.times * number) if one.fixed and one.over == 1 else None
        if name == "floordiv" and args[1] in known and args[0].fixed and args[1].by > 0:
            return args[0]._replace(over=args[0].over * args[1].by) if args[0].dim else Move("", args[0].by // args[1].by)
        return None
