"""Pieces of a row that are reduced by themselves, in the pass that goes over the row.

In: a plan.  Out: one in which what a later pass over pieces of the same rows computes (the scales of a norm's result in blocks of 128) is
computed in the last reading of these, and what several passes over pieces of the same tiles compute (scales along both dims of blocks of
32 x 32) in one pass over the tiles: each element is read from memory once, and its piece is reduced where it stays.

A row that has pieces has two dims, of which one, of a literal size, is reduced; the other counts the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kgen.ir import Let, Store, Tensor
from kgen.passes import Pass, Plan, Reduce, Scalar, Scan, verified
from kgen.phases import Phase, needed, phases_of
from kgen.searches import SEARCHES
from kgen.types import ELLIPSIS, is_literal, literal_size

#: Elements of a piece, and of a tile that is a row of pieces along both dims, at most: threads of a warp hold so many.
MOST = 1024
#: Reductions that a piece may have: their results do not depend on the order in which elements are taken.
FREE = frozenset(("max", "min", "any", "all"))


def in_pieces(plan: Plan, turned: frozenset[str] = frozenset()) -> Plan:
    """The plan with pieces in passes over rows; the same where there are none.  Tensors that are `turned` have no neighbours beside one
    another, so no lane has several of a piece: pieces of rows of these, which would be read from memory once more, have a pass of their
    own, which goes by vectors of what the rows' pass has written."""
    passes = list(plan.passes)
    k = 0
    while k + 1 < len(passes):
        first, second = passes[k : k + 2]
        beside = turned.isdisjoint(t.name for t in first.loads)
        found = _joined(first, second, plan) if beside and isinstance(first, Reduce) and isinstance(second, Reduce) else None
        if found is None:
            k += 1
        else:
            passes[k : k + 2] = [found]
    if len(passes) == len(plan.passes):
        return plan
    read = {t.name for p in passes for t in p.loads}
    kept = tuple(w for w in plan.workspaces if w.view is not None or w.name in read)
    unread = {w.name for w in plan.workspaces} - {w.name for w in kept}
    made = tuple(_without(p, unread) for p in passes)
    return verified(replace(plan, passes=made, workspaces=kept))


def _joined(first: Reduce, second: Reduce, plan: Plan) -> Reduce | None:
    """Two passes as one; None where the second has no pieces of the first one's rows, nor both pieces of the same tiles."""
    if not _is_plain(first) or not _is_plain(second) or first.pieces or not _is_piece(second):
        return None
    if {*first.dims} != {*second.dims}:
        return None
    if len(first.inner) == 2 and {*second.inner} < {*first.inner} and is_literal(first.inner[1]):
        return _behind(first, second, plan)
    return _tiles(first, second, plan) if _is_piece(first) and first.inner != second.inner else None


def _is_plain(p: Reduce) -> bool:
    """Whether a pass reads and writes each element at its own place alone, and nothing in place."""
    others = isinstance(p, Scan) or p.finish or p.gathers or p.indices or p.columns or ELLIPSIS in p.inner
    return not others and not any(s.state for s in p.stores) and not any(r.expr.name in SEARCHES for f in p.phases for r in f.reductions)


def _is_piece(p: Reduce) -> bool:
    """Whether what a pass over rows reduces, in one reading, may be a piece of a longer one."""
    found = [{r.expr.name for r in f.reductions} for f in p.phases if f.reductions]
    return len(p.inner) == 1 and is_literal(p.inner[0]) and literal_size(p.inner[0]) <= MOST and len(found) == 1 and found[0] <= FREE


def _behind(first: Reduce, second: Reduce, plan: Plan) -> Reduce | None:
    """A pass over rows, and behind its readings what another computes of pieces of them."""
    inner = set(first.inner)
    written = {s.result: s for s in first.stores}
    taken = [t.name for t in second.loads if t.name in written]
    whole = [s for s in first.stores if inner & set(s.dims)]
    if any(inner & set(written[name].dims) for name in taken) or any(not inner <= set(s.dims) for s in whole):
        return None
    read = [t.dims for t in (*first.loads, *second.loads) if t.name not in written]
    if any(inner & set(dims) and not set(second.inner) <= set(dims) for dims in read):
        return None
    lets = _together(first, second, set(taken), plan)
    numbers = {let.name for let in first.lets if let.expr.name == "cast" and plan.program.by_name[let.expr.operands[0].name].is_number}
    row = {let.name for let in first.lets if not inner & set(let.dims) and let.expr.name != "load"} - numbers
    piece = _piece(first, second.inner, lets, (*whole, *second.stores), row, plan)
    wanted = {o.name for let in piece.lets for o in let.expr.operands} & row
    phases, long = (_given(own, wanted) for own in (first.phases, first.long))
    stores = (*first.stores, *second.stores)
    loads, scalars = _common(first, second, lets)
    return replace(first, loads=loads, scalars=scalars, lets=lets, phases=phases, long=long, stores=stores, pieces=(piece,))


def _tiles(first: Reduce, second: Reduce, plan: Plan) -> Reduce | None:
    """Two passes over pieces of tiles as one over the tiles."""
    dims = next((t.dims for t in first.loads if {*first.dims} == {*t.dims}), ())
    inner = tuple(d for d in dims if d in (*first.inner, *second.inner))
    alike = {t.name for t in first.loads} == {t.name for t in second.loads} and {*first.dims} == {*second.dims}
    if not alike or len(inner) != 2 or literal_size(inner[0]) * literal_size(inner[1]) > MOST:
        return None
    rows = tuple(d for d in first.rows if d not in inner)
    if any(set(inner) & set(t.dims) and not set(inner) <= set(t.dims) for t in first.loads) or first.long or second.long:
        return None
    lets = _together(first, second, set(), plan)
    tile = replace(first, rows=rows, inner=inner)
    pieces = tuple(_piece(tile, p.inner, lets, p.stores, set(), plan) for p in (first, second))
    stores = (*first.stores, *second.stores)
    loads, scalars = _common(first, second, lets)
    return replace(tile, loads=loads, scalars=scalars, lets=lets, phases=(), stores=stores, pieces=pieces)


def _together(first: Reduce, second: Reduce, taken: set[str], plan: Plan) -> tuple[Let, ...]:
    """The lets of two passes, each once, in the program's order; what the second has `taken` of the first is made by that."""
    mine, order = {let.name for let in first.lets}, {let.name: k for k, let in enumerate(plan.program.lets)}
    others = [let for let in second.lets if let.name not in mine and not (let.expr.name == "load" and let.expr.attrs[0] in taken)]
    return tuple(sorted((*first.lets, *others), key=lambda let: order.get(let.name, -1)))


def _piece(
    whole: Reduce, inner: tuple[str, ...], lets: tuple[Let, ...], stores: tuple[Store, ...], there: Iterable[str], plan: Plan
) -> Reduce:  # fmt: skip
    """A pass over the pieces of a row along `inner`, which is given the values `there`."""
    own = needed(lets, [s.ref for s in stores], there)
    own = tuple(let for let in own if let.name not in there)
    rows = (*whole.rows, *(d for d in whole.inner if d not in inner))
    phases = phases_of(frozenset(inner), own, stores, plan.program.by_name | {let.name: let for let in lets}, lambda made: None)
    return Reduce(rows, inner, (), (), (), own, stores, phases)


def _given(phases: tuple[Phase, ...], wanted: set[str]) -> tuple[Phase, ...]:
    """The phases of a row but for its last reading, which give what its pieces want."""
    made, known = [], set[str]()
    for f in phases[:-1] if phases and phases[-1].element else phases:
        here = {let.name for let in f.lets} if not f.element else set()
        more = tuple(let.name for let in f.lets if let.name in wanted & here - known - {*f.gives})
        known |= here
        made.append(replace(f, gives=(*f.gives, *more)) if more else f)
    return tuple(made)


def _common(first: Reduce, second: Reduce, lets: tuple[Let, ...]) -> tuple[tuple[Tensor, ...], tuple[Scalar, ...]]:
    """What a pass has of two: the tensors that it loads and the numbers that it takes."""
    loaded = {let.expr.attrs[0] for let in lets if let.expr.name == "load"}
    tensors: dict[str, Tensor] = {t.name: t for t in (*first.loads, *second.loads) if t.name in loaded}
    scalars = {s.let.name: s for s in (*first.scalars, *second.scalars)}
    return tuple(tensors.values()), tuple(scalars.values())


def _without(p: Pass, unread: set[str]) -> Pass:
    """A pass that does not keep what none reads."""
    if not isinstance(p, Reduce) or not p.pieces:
        return p

    def rest(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
        return tuple(replace(f, stores=tuple(s for s in f.stores if s.result not in unread)) for f in phases)

    stores = tuple(s for s in p.stores if s.result not in unread)
    return replace(p, stores=stores, phases=rest(p.phases), long=rest(p.long))
