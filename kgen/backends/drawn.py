"""Random words along a row or of a map, and the values of a row's elements that are made of them.

In: the phases of a pass over rows, or a map.  Out: which words are of neighbours in a stream (`streams`, `words`), so that a vector of
them is drawn at a time, and which values that depend on words several readings would make anew (`frontier`): once, of a row that stays on
the chip.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kgen.backends.text import Text
from kgen.backends.units import Tensor, Words
from kgen.ir import Let, Op, literal_of, taken
from kgen.passes import Map
from kgen.phases import Phase, ends, needed
from kgen.searches import SEARCHES
from kgen.types import ELLIPSIS, Dims, boolean, is_literal, literal_size

if TYPE_CHECKING:
    from kgen.backends.base import Render

WORDS = "philox"
#: How many values of an element are made once at most.
MOST = 2


class Stream(NamedTuple):
    """Where an element's word stands, by lets: its seed, its offset, and the position of the row's first element ("" for 0), a multiple of
    the row's length.  Of the element's own position `keeps` says which bits stay and `sets` which are set, of the last two."""

    seed: str
    offset: str
    before: str
    keeps: int = -1
    sets: int = 0


def streams(lets: Iterable[Let], inner: Dims, defs: Mapping[str, Let]) -> dict[str, Stream]:
    """The words of neighbours along a row of one dim, by let."""
    found = {let.name: stream(let, inner[0], defs) for let in lets if let.expr.name == WORDS and len(inner) == 1 and inner[0] != ELLIPSIS}
    return {name: s for name, s in found.items() if s is not None}


def stream(let: Let, dim: str, defs: Mapping[str, Let]) -> Stream | None:
    """The stream of a word along a dim; None where its elements are no neighbours there."""
    seed, offset, place = (defs[o.name] for o in let.expr.operands)
    of, keeps, sets = bits(place, defs)
    before = start(of, dim, defs)
    return None if before is None or any(dim in x.dims for x in (seed, offset)) else Stream(seed.name, offset.name, before, keeps, sets)


def bits(place: Let, defs: Mapping[str, Let]) -> tuple[Let, int, int]:
    """A place as another one, the bits of that which stay and those that are set, where these change its last two at most."""
    if place.expr.name in ("bitand", "bitor"):
        of, by = (defs[o.name] for o in place.expr.operands)
        value = literal_of(by, dict(defs))
        if place.expr.name == "bitand" and value is not None and int(value) | 3 == -1:
            return of, int(value), 0
        if place.expr.name == "bitor" and value is not None and 0 <= value < 4:
            return of, -1, int(value)
    return place, -1, 0


def beside(even: str, keeps: int, sets: int) -> tuple[str, ...]:
    """What a target's function of words takes beside a place: of what the first of neighbours is a multiple, and their bits."""
    return (even,) if (keeps, sets) == (-1, 0) else (even, str(keeps), str(sets))


def start(place: Let, dim: str, defs: Mapping[str, Let]) -> str | None:
    """What of a position is the row's, a multiple of its length ("": nothing); None where neighbours do not have neighbouring ones."""

    def is_length(let: Let) -> bool:
        if let.expr.name != "cast":
            return False
        number = defs[let.expr.operands[0].name]
        return literal_of(let, dict(defs)) == literal_size(dim) if is_literal(dim) else number.expr == Op("size", dim)

    if place.expr == Op("index", dim):
        return ""
    if place.expr.name != "add":
        return None
    for before, along in (pair := [defs[o.name] for o in place.expr.operands], pair[::-1]):
        if along.expr == Op("index", dim) and before.expr.name == "mul" and dim not in before.dims:
            return before.name if any(is_length(defs[o.name]) for o in before.expr.operands) else None
    return None


def frontier(phases: Sequence[Phase], drawn: Mapping[str, Stream], last: Phase | None) -> frozenset[str]:
    """The values that depend on words, that several readings compute, and that they read for something else; of those that are made of
    others only such as are made of conditions, which take a bit each.  None where these are many, or where a search goes through a row.
    `last` is what follows from columns."""
    readings = [p for p in phases if p.element and p is not last]
    if not drawn or any(r.expr.name in SEARCHES for p in readings for r in p.reductions):
        return frozenset()
    depends, often = set(drawn), set[str]()
    for let in (let for p in readings for let in p.lets):
        if depends.intersection(o.name for o in taken(let.expr)):
            depends.add(let.name)
    for k, p in enumerate(readings):
        later = {let.name for q in readings[k + 1 :] for let in q.lets}
        often |= {let.name for let in p.lets if let.name in later} & depends
    read = {o.name for p in readings for let in p.lets if let.name not in often for o in taken(let.expr)}
    read |= {name for p in readings for name in ends(p)}
    found, lets = often & read, [let for p in readings for let in p.lets]
    values = found - {let.name for let in lets if let.dtype == boolean}
    behind = {name for name in found if values & {let.name for let in needed(lets, [name], ())} - {name}}  # made of another of them
    return frozenset(found - behind) if len(found - behind) <= MOST else frozenset()


def neighbours(render: Render, p: Map, indices: tuple[Tensor, ...]) -> dict[str, tuple[str, ...]]:
    """The words of a map whose places are positions, with the names that say of these what the first of neighbours is a multiple of."""
    if not render.backend.neighbours:
        return {}
    even = {tuple(i.spec_name.split(", ")): f"{i.name}_even" for i in indices}
    defs = render.program.by_name | {let.name: let for let in p.lets}
    of_words = ((let.name, *bits(defs[let.expr.operands[2].name], defs)) for let in p.lets if let.expr.name == WORDS)
    return {name: beside(even[of.expr.attrs], keeps, sets) for name, of, keeps, sets in of_words if of.expr.name == "index"}


def words(render: Render, p: Map, text: dict[str, Text]) -> dict[str, Words]:
    """The words of neighbours in a map, by let, of a seed and an offset that all elements share; `text` gets their names."""
    defs, made = render.program.by_name | {let.name: let for let in p.lets}, dict[str, Words]()
    for let in p.lets:
        if let.expr.name != WORDS:
            continue
        seed, offset, place = (defs[o.name] for o in let.expr.operands)
        of, keeps, sets = bits(place, defs)
        known = [x for x in (seed, offset) if not x.dims and (x.name in text or literal_of(x, defs) is not None)]
        if of.expr.name == "index" and len(known) == 2:
            constant = render.backend.constant
            key, at = (text.get(x.name) or constant(defs[x.expr.operands[0].name], x, render.type_of(x)) for x in known)
            made[let.name] = Words(render.global_names.fresh("word"), key, at, text[of.name], keeps, sets)
            text[let.name] = made[let.name].value(render.type_of(let))
    return made
