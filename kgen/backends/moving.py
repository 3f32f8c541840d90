"""Sums about a peak in the code of rows that do not stay on the chip: a peak and the sums about it as one partial result.

In: the accumulators of a reading.  Out: `Peak`s among them, and what the table of monoids says of their fields, in a backend's spelling:
what an element gives, and how a partial is brought to another's peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kgen.backends.text import Text, put
from kgen.backends.units import Accumulator
from kgen.monoids import MONOIDS, Field


@dataclass(frozen=True)
class Peak(Accumulator):
    """A maximum, or the sum behind a mean, with the sums about it, which move with it."""

    riders: tuple[Accumulator, ...] = ()


@dataclass(frozen=True)
class Part:
    """A field of such a partial: its name, whose it is (the peak's own has no field of the table's), and whether it is joined before
    anything is rescaled."""

    name: str
    of: Accumulator
    field: Field
    early: bool


#: What spells a field of a partial: by its name, and whose it is: the partial that is rescaled (""), the one it is brought to ("top"), or
#: an element's share ("part").
At = Callable[[str, str], Text]


def grouped(accumulators: Iterable[Accumulator]) -> tuple[Accumulator, ...]:
    """Accumulators with each peak and the sums about it made one."""
    every = tuple(accumulators)
    made = []
    for a in every:
        riders = tuple(r for r in every if r.peak == a.name)
        if not a.peak:
            made.append(Peak(**vars(a), riders=riders) if riders else a)
    return tuple(made)


def parts(a: Peak) -> tuple[Part, ...]:
    """The fields of a partial: the peak, then those of the sums, those first that others are multiples of."""
    fields = [Part(f"{r.name}_{f.name}" if f.name else r.name, r, f, f.early) for r in a.riders for f in MONOIDS[r.kind].fields]
    return (Part(a.name, a, MONOIDS[a.kind].fields[0], True), *sorted(fields, key=lambda p: not p.early))


def share(a: Peak, part: Part, at: At) -> Text:
    """What an element gives for a field: of one that is not early, about the peak "top"."""
    return _filled(part.field.share, a, part.of, at)


def moves(a: Peak, at: At) -> list[tuple[str, str, Text]]:
    """The steps that bring a partial to the peak "top": of each the field, the sign and what it is changed by."""
    made = []
    for r in a.riders:
        names = {f.name: f"{r.name}_{f.name}" if f.name else r.name for f in MONOIDS[r.kind].fields}
        made += [(names[m.field], m.sign, _filled(m.by, a, r, at)) for m in MONOIDS[r.kind].moves]
    return made


def _filled(pattern: str, a: Peak, of: Accumulator, at: At) -> Text:
    """A share or a move of the table with the names that it has here."""
    found = {"x": of.value, "peak": at(a.name, ""), "top": at(a.name, "top"), "own": at(of.name, "")}
    found |= {f"v{k}": w for k, w in enumerate(of.weights)}
    for f in MONOIDS[of.kind].fields:
        name = f"{of.name}_{f.name}" if f.name else of.name
        found |= {f.name: at(name, ""), f"top.{f.name}": at(name, "top"), f"part.{f.name}": at(name, "part")}
    return put(pattern.replace("{v}", " * ".join(f"{{v{k}}}" for k in range(len(of.weights)))), found)
