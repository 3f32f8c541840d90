"""The loop of a search (`kgen/selection.py`), in the spelling of C's family.

In: a `Search`.  Out: pieces of source: how many steps there are, what a step tries, how its bit stays.  A rank is the bits of a value in
the order of all values of its dtype, or of a place counted from the end.
"""

from __future__ import annotations

from kgen.backends.text import Text, named, source
from kgen.backends.units import Search


def amount(s: Search) -> Text:
    """What a step has to reach: the name of a row's value, or what stands for a number."""
    return named(s.amount.name) if s.amount.name else s.amount.text


def steps(s: Search, length: str) -> Text:
    """How many steps a search in C's family takes, for the text of a row's length."""
    return source("place_bits({0})", length) if s.is_place else source("8 * int(sizeof({0}))", s.key)


def tried(s: Search, rank: Text, length: str) -> Text:
    """The value of a rank in C's family."""
    if s.is_place:
        return source("ranked_place({0}, {1})", rank, length)
    if s.dtype.is_float:
        return source("ranked<{0}, {1}>({2})", s.probe.type, s.key, rank)
    return source("ranked_integer<{0}>({1})", s.probe.type, rank)


def looped(s: Search, unsigned: str, length: str, body: list[str]) -> list[str]:
    """The lines of a search around those of its reading, for one row."""
    raised = source(f"{{0}} | {unsigned}(1) << {{1}}", s.rank, s.bit)
    return [
        f"{unsigned} {s.rank} = 0;  // the greatest so far whose total reaches {amount(s)}",
        f"for (int {s.bit} = {steps(s, length)} - 1; {s.bit} >= 0; {s.bit}--) {{",
        f"    const {s.probe.type} {s.probe.name} = {tried(s, raised, length)};",
        *(f"    {line}" for line in body),
        f"    if ({s.total.name} >= {amount(s)}) {s.rank} |= {unsigned}(1) << {s.bit};",
        "}",
        f"const {s.found.type} {s.found.name} = {tried(s, named(s.rank), length)};",
    ]


def calls(s: Search) -> tuple[str, ...]:
    """The functions that a search calls, beside those of its reading."""
    return (*steps(s, "n").calls, *tried(s, named(s.rank), "n").calls)
