"""The loop of a search (`kgen/selection.py`) in Triton: a rank for each row, bit by bit."""

from __future__ import annotations

from collections.abc import Iterable

from kgen.backends.searching import amount
from kgen.backends.text import Text, named, source
from kgen.backends.triton_nodes import Block, Node
from kgen.backends.units import Search, Statement


def looped(s: Search, body: Iterable[Node]) -> list[Node]:
    """The lines of a search around those of its reading."""
    bits = named(f"{s.rank}_bits") if s.is_place else source("{0}.primitive_bitwidth", s.key)

    def tried(rank: Text) -> Text:
        if s.is_place:
            return source("ranked_place({0}, {1}, length)", rank, bits)
        if s.dtype.is_float:
            return source("ranked({0}, {1}, {2})", rank, s.key, s.probe.type)
        return source("ranked_integer({0}, {1})", rank, s.key)

    raised = source("raised({0}, {1})", s.rank, s.bit)
    kept = source("tl.where({0} >= {1}, {2}, {3})", s.total.name, amount(s), raised, s.rank)
    step = [Statement((s.probe.name,), "", tried(raised)), *body, Statement((s.rank,), "", kept)]
    return [
        *([Statement((f"{s.rank}_bits",), "", source("place_bits(length)"))] if s.is_place else []),
        Statement((s.rank,), "", source("tl.full([ROWS, 1], 0, tl.int64)")),
        Block(source("for {0} in range({1} - 1, -1, -1)", s.bit, bits), tuple(step)),
        Statement((s.found.name,), "", tried(named(s.rank))),
    ]
