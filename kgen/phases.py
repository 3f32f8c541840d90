"""The phases of a pass over rows: what is computed in each reading of a row, and between readings.

In: the lets of a pass, what it stores, and which of its dims lie along a row.  Out: the phases, in order.  Reductions that feed none of
each other share a reading; a sum about a peak shares that of its peak; a search has one to itself, which it goes through step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kgen.expand import is_reduction
from kgen.ir import Let, Store, taken
from kgen.monoids import elements as entering
from kgen.searches import SEARCHES
from kgen.selection import is_probe
from kgen.values import reached


@dataclass(frozen=True)
class Phase:
    """Straight-line code of a `Reduce`: once for each element of a row (`element`), or once a row.

    `lets` is what it computes, in order; it also reads loads, indices, scalars and what row phases before it gave.
    `gives` names the row values that later phases take from a row phase; `reductions` are what an element phase
    accumulates along a row and `columns` what it accumulates over all rows (their operands are its values); `stores` what it writes.
    """

    element: bool
    lets: tuple[Let, ...] = ()
    gives: tuple[str, ...] = ()
    reductions: tuple[Let, ...] = ()
    stores: tuple[Store, ...] = ()
    columns: tuple[Let, ...] = ()


def ends(phase: Phase) -> list[str]:
    """What a phase is for: what it accumulates, stores and gives."""
    shares = [o.name for r in (*phase.reductions, *phase.columns) for o in entering(r.expr)]
    return shares + [s.ref for s in phase.stores] + list(phase.gives)


def needed(lets: Sequence[Let], wanted: Iterable[str], there: Iterable[str]) -> tuple[Let, ...]:
    """The lets that some values need, in order, where others are there already."""
    found, known = set(wanted), set(there)
    for let in reversed(lets):
        if let.name in found and let.name not in known:
            found.update(o.name for o in taken(let.expr))
    return tuple(let for let in lets if let.name in found)


def phases_of(
    inner: frozenset[str], lets: tuple[Let, ...], stores: tuple[Store, ...], defs: dict[str, Let], spend: Callable[[Sequence[Let]], None],
    columns: tuple[Let, ...] = (),
) -> tuple[Phase, ...]:  # fmt: skip
    """The lets of a pass by when they can be computed: `level` counts the readings of a row that come before.

    `spend` is told of the lets of each phase; `columns`, which are none of the lets, are accumulated in the last reading.
    """

    def read(let: Let) -> list[str]:
        """The operands that a let reads at its own place; what is gathered from stays in memory."""
        return [o.name for o in taken(let.expr)]

    at = {let.name: k for k, let in enumerate(lets)}
    rows = {let.name for let in lets if not set(let.dims) & inner}
    constants = {let.name for let in lets if let.expr.name == "cast" and defs[let.expr.operands[0].name].is_number}
    reductions = {let.name for let in lets if is_reduction(let)} if inner else set()
    level: dict[str, int] = {}
    alone: dict[int, str] = {}  # by level the search that its reading is for, "" for other reductions
    for let in lets:
        search = let.name if let.expr.name in SEARCHES else ""
        behind = let.expr.operands if search else entering(let.expr)  # a peak moves meanwhile
        at_least = max((level[o.name] for o in behind if o.name in level), default=0) + (let.name in reductions)
        while let.name in reductions and alone.get(at_least, search) != search:
            at_least += 1
        if let.name in reductions:
            alone[at_least] = search
        level[let.name] = at_least
    last = max(level.values(), default=0)
    own: list[list[Let]] = [[] for _ in range(last + 1)]  # the row's own values, by level
    reduced: list[list[Let]] = [[] for _ in range(last + 1)]
    for let in lets:
        if let.name in reductions:
            reduced[level[let.name]].append(let)
        elif let.name in rows - constants and not is_probe(let):
            own[level[let.name]].append(let)

    def shares(r: Let) -> tuple:
        """The operands of a reduction that its elements give."""
        return entering(r.expr) if r.expr.name in SEARCHES else r.expr.operands

    def code(roots: set[str], inside: Callable[[str], bool]) -> tuple[Let, ...]:
        """What `roots` are computed from, in order, as far as `inside` holds."""

        def own(names: Iterable[str]) -> list[str]:
            return [name for name in names if name in at and inside(name)]

        found = reached(own(roots), lambda name: own(o.name for o in lets[at[name]].expr.operands))
        return tuple(lets[k] for k in sorted(at[name] for name in found))

    element_stores = tuple(s for s in stores if inner & set(s.dims))
    row_stores = tuple(s for s in stores if not inner & set(s.dims))
    readings: list[tuple[tuple[Let, ...], tuple[Let, ...], tuple[Store, ...]]] = []
    for k in range(last + bool(element_stores or columns)):
        feeds = tuple(reduced[k + 1]) if k < last else ()
        ends = element_stores if k == last else ()
        sums = columns if k == last else ()
        roots = {o.name for r in (*feeds, *sums) for o in shares(r)} | {s.ref for s in ends}
        made = code(roots, lambda name: name not in rows or name in constants)
        spend(made)
        readings.append((made, feeds, ends))
    phases: list[Phase] = []
    later: set[str] = set()
    for k in reversed(range(last + 1)):
        if k < len(readings):
            made, feeds, ends = readings[k]
            sums = columns if k == last else ()
            later |= {name for let in (*made, *feeds, *sums) for name in read(let)} | {s.ref for s in ends}
            phases.append(Phase(True, made, (), feeds, ends, sums))
        ends = row_stores if k == last else ()
        gives = tuple(x.name for x in own[k] if x.name in later)
        mine = {x.name for x in own[k]} | constants
        made = code({*gives, *(s.ref for s in ends)}, mine.__contains__)
        spend(made)
        phases.append(Phase(False, made, gives, (), ends))
        later |= {name for x in (*own[k], *reduced[k]) for name in read(x)} | {s.ref for s in ends}
    return tuple(reversed(phases))
