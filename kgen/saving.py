"""What a forward kernel keeps for its backward, and what the backward computes anew: the cheapest by counted bytes.

In: the forward's values and those that the backward reads.  Out: the values to save.  It is a least cut of the graph from
memory to what is read: cutting at a parameter reads it, cutting at a value writes it in the forward and reads it in the
backward, and arithmetic is free.  A reduction is never computed anew where it can be saved: that would cost another
reading of its rows, and what it gives is small.  Nor is a scan of which a greatest or least value is taken: its gradient goes
where the elements equal that, and a scan of other operands' rows may be joined in another order.  Of equal cuts the one furthest
along is taken, which recomputes least.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import prod

from kgen.ops import REDUCTIONS, SCANS
from kgen.types import DTYPES, FEW, DType, Float, Number, ValueType, is_literal, literal_size
from kgen.values import Value, reached

_SIZE = 4096  # elements that every dim is taken to have
_NEVER = 1 << 60


def kept_dtype(t: ValueType) -> str | None:
    """The dtype in which a value is saved: the one that it is computed in; None where no name says that."""
    if isinstance(t, DType):
        return t.name
    if not isinstance(t, Float):
        return None
    if "f64" in t.of:
        return "f64"
    variables = sorted({name[0] for name in t.of if name not in DTYPES})
    return "f32" if not variables else f"{variables[0]}32" if len(variables) == 1 else None


def stored_bytes(dtype: str) -> int:
    """Bytes of an element; a dtype variable counts as a 16-bit float, its wide form as f32."""
    return DTYPES[dtype].bytes if dtype in DTYPES else 4 if dtype.endswith("32") else 2


class _Graph:
    """A flow network on vertices `2v` (in) and `2v + 1` (out); `flow` keeps what each arc has left."""

    def __init__(self) -> None:
        self.left: dict[int, dict[int, int]] = {}

    def arc(self, a: int, b: int, capacity: int) -> None:
        self.left.setdefault(a, {})[b] = self.left.get(a, {}).get(b, 0) + capacity
        self.left.setdefault(b, {}).setdefault(a, 0)

    def saturate(self, source: int, sink: int) -> None:
        """Push what flows from source to sink, along shortest ways (Edmonds and Karp, 1972)."""
        while (way := self._way(source, sink)) is not None:
            amount = min(self.left[a][b] for a, b in way)
            for a, b in way:
                self.left[a][b] -= amount
                self.left[b][a] += amount

    def _way(self, source: int, sink: int) -> list[tuple[int, int]] | None:
        """A shortest way from `source` to `sink` on which there is room left, as its edges from the last to the first; None where
        there is none."""
        before: dict[int, int] = {source: source}
        todo = deque([source])
        while todo:
            a = todo.popleft()
            for b, room in self.left[a].items():
                if room and b not in before:
                    before[b] = a
                    if b == sink:
                        way = []
                        while b != source:
                            way.append((before[b], b))
                            b = before[b]
                        return way
                    todo.append(b)
        return None

    def leads_to(self, sink: int) -> set[int]:
        """The vertices from which the sink can still be reached."""
        found = {sink}
        todo = deque([sink])
        while todo:
            b = todo.popleft()
            for a in self.left[b]:
                if a not in found and self.left[a].get(b, 0):
                    found.add(a)
                    todo.append(a)
        return found


def costs(values: Sequence[Value], tensors: set[int], stored: Mapping[int, str]) -> dict[int, int]:
    """What it costs to have each value in the backward without computing it: half bytes, by elements relative to the smallest values.

    Reading alone for parameters and what the forward writes anyway; one half byte more for what it does not, so that of two
    equal choices the one that saves less is taken; no finite cost where a value cannot be saved.
    """
    named = {v: sum(not is_literal(d) for d in values[v].dims) for v in tensors}
    most = max(named.values(), default=0)
    found: dict[int, int] = {}
    for v in tensors:
        value = values[v]
        elements = max(1, _SIZE ** min(2, named[v] - most + 2)) * prod(literal_size(d) for d in value.dims if is_literal(d))
        dtype = stored_name(value) if value.op == "param" else kept_dtype(value.type) if value.args else None
        if dtype is None:
            found[v] = _NEVER
        elif value.op == "param" or v in stored:
            found[v] = 2 * stored_bytes(dtype) * elements
        else:
            found[v] = 4 * stored_bytes(dtype) * elements + 1
    return found


def reduces(value: Value) -> bool:
    """Whether having a value costs a reading of rows: such are saved where they can be."""
    few = isinstance(value.attr, tuple) and all(is_literal(d) and literal_size(d) <= FEW for d in value.attr)
    return value.op in REDUCTIONS and bool(value.attr) and not few or value.op == "pick"


def compared(values: Sequence[Value], tensors: set[int]) -> set[int]:
    """The scans of which one of `tensors` is the greatest or the least."""
    of = {values[v].args[0] for v in tensors if values[v].op in ("max", "min") and values[v].attr}
    return {v for v in above(values, of) if values[v].op in SCANS}


def choose(values: Sequence[Value], read: set[int], stored: Mapping[int, str], save: bool = True) -> tuple[set[int], set[int]]:
    """The parameters to read and the values to save so that every value in `read` can be had.

    `stored` are values that the forward writes anyway, unrounded, with the dtype.  Without `save` nothing is saved.
    """
    tensors = above(values, read)
    if not save:
        return {v for v in tensors if values[v].op == "param"}, set()
    price, whole = costs(values, tensors, stored), compared(values, tensors)
    graph = _Graph()
    source, sink = 2 * len(values), 2 * len(values) + 1
    graph.left[source], graph.left[sink] = {}, {}
    for v in sorted(tensors):
        value = values[v]
        if value.op == "param" or (reduces(value) or v in whole) and price[v] < _NEVER:
            graph.arc(source, 2 * v, _NEVER)
        graph.arc(2 * v, 2 * v + 1, price[v])
        for a in value.args:
            if a in tensors:
                graph.arc(2 * a + 1, 2 * v, _NEVER)
        if v in read:
            graph.arc(2 * v + 1, sink, _NEVER)
    graph.saturate(source, sink)
    behind = graph.leads_to(sink)
    cut = {v for v in tensors if 2 * v + 1 in behind and 2 * v not in behind}
    return {v for v in cut if values[v].op == "param"}, {v for v in cut if values[v].op != "param"}


def above(values: Sequence[Value], roots: set[int]) -> set[int]:
    """The tensor values that the roots are made of."""
    found = reached(roots, lambda v: () if isinstance(values[v].type, Number) else values[v].args)
    return {v for v in found if not isinstance(values[v].type, Number)}


def stored_name(value: Value) -> str:
    """The dtype in which a parameter lies in memory."""
    t = value.type
    return next(iter(t.of)) if isinstance(t, Float) else t.name if isinstance(t, DType) else ""
