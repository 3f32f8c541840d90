"""What scans carry along a row, in a backend's spelling: the fields of a partial, and how two of them are joined.

In: the scans of a pass.  Out: what the table of monoids says of each.  A partial stands for neighbours; the one that comes first in the
scan's own direction is joined with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from kgen.backends.base import ENDS, Backend
from kgen.backends.names import Names
from kgen.backends.text import Text, fill, named, put, source
from kgen.backends.units import Accumulator
from kgen.monoids import MONOIDS
from kgen.ops import OPS, PRODUCT


@dataclass(frozen=True)
class ScanField:
    """A field: its name, whose it is, the name that it has in the table, its type and identity, and an element's own."""

    name: str
    of: Accumulator
    field: str
    type: str
    identity: Text
    share: Text


def fields(backend: Backend, scans: Iterable[Accumulator], names: Names) -> list[ScanField]:
    """The fields of a partial of some scans, in order."""
    made = []
    for a in scans:
        for f in MONOIDS[a.kind].fields:
            name = a.name if not f.name else names.fresh(f"{a.name}_{f.name}")
            identity = backend.identity(a) if f.identity in ENDS or not f.name else backend.literal(Fraction(f.identity), a.dtype, a.type)
            values = {"x": a.value, **({"v": a.weights[0]} if a.weights else {})}
            made.append(ScanField(name, a, f.name, a.type, identity, put(f.share, values)))
    return made


def joined(backend: Backend, every: list[ScanField], at: Callable[[str, str], str]) -> list[Text]:
    """The fields of two partials as one, in order; `at` spells a field of the "own" or of the "next" one."""
    return [_joined(backend, every, f, lambda name, whose: named(at(name, whose))) for f in every]


def _joined(backend: Backend, every: list[ScanField], f: ScanField, at: Callable[[str, str], Text]) -> Text:
    own, follows = at(f.name, "own"), at(f.name, "next")
    join = MONOIDS[f.of.kind].join
    if join in OPS:
        return backend.combined(f.of, own, follows)
    if join == "masses":
        top = next(g for g in every if g.of is f.of)
        if f is top:
            return _operator(backend, f.of, "max", own, follows)
        return source("masses({0}, {1}, {2}, {3})", own, at(top.name, "own"), follows, at(top.name, "next"))
    factor = next(at(g.name, "next") for g in every if g.of is f.of and g.field)
    if join == "since":
        return source("sum_since({0}, {1}, {2})", factor, own, follows)
    return source("{0} * {1}" if f.field else "{0} * {1} + {2}", factor, own, follows, level=PRODUCT)


def _operator(backend: Backend, a: Accumulator, op: str, *operands: Text) -> Text:
    return fill(backend.spell(OPS[op]), a.dtype.kind, list(operands), {"F": a.type, "U": a.dtype.unsigned})


def taken(backend: Backend, every: Iterable[ScanField], a: Accumulator, at: Callable[[str], str]) -> Text:
    """What a scan is at an element; `at` spells a field of the partial up to there."""
    first, *others = (f for f in every if f.of is a)
    log = next((named(at(f.name)) for f in others if f.field == MONOIDS[a.kind].log), None)
    value = named(at(a.name if log is None else first.name))
    return value if log is None else _operator(backend, a, "add", value, _operator(backend, a, "log", log))
