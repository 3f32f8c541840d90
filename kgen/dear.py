"""Values that are read at several places and dear to compute: they are kept in memory, not computed anew at each.

In: a program with places.  Out: the names of such values.  A gradient of a convolution is one: each of its taps would compute the
activation's derivative again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from math import prod

from kgen.expand import is_reduction
from kgen.ir import Let, Program
from kgen.ops import ROWS
from kgen.scanned import is_scan
from kgen.taps import Move, moves

#: What fits under the time that an element's bytes take on an H100 or H200, for each byte moved: a bf16 element (4 bytes read
#: and written) leaves room for 3 special-function instructions and about 18 others.
SPECIAL_PER_BYTE, OTHER_PER_BYTE = 3 / 4, 18 / 4
#: Where a value is read: how far from the element along some dims; a move that is known at the call alone stands as it is.
Place = tuple[tuple[str, int | Move], ...]
#: The elements of a vector of 16-bit floats, which share what they compute of neighbours.
LANES = 8
#: How often values are looked for: what is kept makes what follows from it cheaper.
ROUNDS = 4
#: More places than these are not told apart.
MOST = 64


def dear(program: Program, shared: bool = False) -> frozenset[str]:
    """The values of a program that are cheaper kept, where elements are moved by shifts alone: of those that are made of one another the
    last.  With `shared` the elements of a vector share what they compute at places along their dim."""
    if not any(let.expr.name == "place" for let in program.lets):
        return frozenset()
    move, before = moves(program), frozenset[str]()
    for _ in range(ROUNDS):
        found = _dear(program, move, before, shared)
        if found == before:
            break
        before = found
    return found


def _dear(program: Program, move: Callable[[str, Let], Move | None], known: frozenset[str], shared: bool) -> frozenset[str]:
    """The same, where those that are `known` lie in memory already."""
    defs, found = program.by_name, set[str]()
    at: dict[str, set[Place | None]] = defaultdict(set)  # None: at places that are no shifts
    for s in program.stores:
        at[s.ref].add(())
    for let in reversed(program.lets):
        here = {None if p is None else tuple((d, by) for d, by in p if d in let.dims) for p in at[let.name]}
        if is_reduction(let) or is_scan(let) or len(here) > MOST:
            here = {()}
        elif let.expr.name != "place" and _saves(let, _shared(here) if shared else _often(here), defs, known, shared):
            found.add(let.name)
            here = {()}
        value, *rest = let.expr.operands or (None,)
        if let.expr.name == "place" and value is not None:
            dim = let.expr.attrs[0]
            by = move(dim, defs[rest[0].name])
            at[value.name] |= {None if p is None or by is None else _moved(p, dim, by) for p in here}
            value = None
        for o in (*([value] if value is not None else []), *rest):
            at[o.name] |= here
    return frozenset(found)


def _shared(places: set[Place | None]) -> Fraction:
    """How often an element is computed where those of a vector along the one dim of all places share what they compute: the vector and
    what it reaches beyond itself; as often as there are places where these lie along several."""
    moved = [step for place in places for step in place or ()]
    if None in places or len({dim for dim, _ in moved}) > 1 or not all(isinstance(by, int) for _, by in moved):
        return _often(places)
    steps = [0, *(by for _, by in moved if isinstance(by, int))]
    return min(_often(places), Fraction(LANES + max(steps) - min(steps), LANES))


def _often(places: set[Place | None]) -> Fraction:
    """How often an element is computed for what is read at some places: as many times as there are of these, and of windows as many as
    elements share one; 0 where one is no shift."""
    often = Fraction(0)
    for place in places:
        if place is None:
            return Fraction(0)
        often += prod(Fraction(by.over, by.times) for _, by in place if isinstance(by, Move))
    return often


def _moved(place: Place, dim: str, by: Move) -> Place:
    """A place, moved along a dim."""
    if not by.fixed:
        return (*place, (dim, by))
    away = by.by + sum(n for d, n in place if d == dim and isinstance(n, int))
    others = tuple((d, n) for d, n in place if d != dim or not isinstance(n, int))
    return tuple(sorted((*others, (dim, away)), key=str)) if away else others


def _saves(let: Let, places: Fraction, defs: dict[str, Let], known: frozenset[str], shared: bool) -> bool:
    """Whether computing a value so many times takes longer than moving what it is made of, itself twice, and a result; where what it is
    made of is there all the same (`shared`), whether doing so more than once takes longer than moving itself twice."""
    if places <= 1:
        return False
    todo, seen, instructions, special, read = [let], {let.name}, 0, 0, 0
    while todo:
        one = todo.pop()
        stored = one is not let and (is_reduction(one) or is_scan(one) or one.name in known) or one.expr.name == "load"
        if one.expr.name in ROWS and one.dims and not stored:
            cost = ROWS[one.expr.name].cost_of("")
            instructions, special = instructions + cost[0], special + cost[1]
        if stored and set(one.dims) == set(let.dims):
            read += one.tensor_dtype.bytes
        if not stored:
            new = [defs[o.name] for o in one.expr.operands if o.name not in seen and not defs[o.name].is_number]
            seen |= {n.name for n in new}
            todo += new
    work = max(special / SPECIAL_PER_BYTE, instructions / OTHER_PER_BYTE)
    return float(places - 1) * work > 2 * let.tensor_dtype.bytes if shared else float(places) * work > read + 3 * let.tensor_dtype.bytes
