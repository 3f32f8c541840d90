"""How the loops run, apart from how they are spelled.

In: a program.  Out: its passes over memory.  For now there is one schedule, `map`: each element of the iteration
dims is computed alone.  Results with other dims than the rest get a pass of their own; the order of dims is no matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.errors import Diagnostic, KgenError, Source
from kgen.ir import Let, Program, Store, Tensor, live
from kgen.ops import OPS, REDUCTIONS
from kgen.types import Dims


@dataclass(frozen=True)
class Scalar:
    """A number that a pass takes as an argument, rounded to the dtype it is used in (`let` is that cast)."""

    let: Let
    number: Let


@dataclass(frozen=True)
class Map:
    """A pass over `dims`: loads, indices and scalars in, straight-line `lets`, stores out."""

    dims: Dims
    loads: tuple[Tensor, ...]
    indices: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    lets: tuple[Let, ...]
    stores: tuple[Store, ...]


def schedule(program: Program, source: Source | None = None) -> tuple[Map, ...]:
    """The passes of a program, in the order of its results as far as what they write in place allows.

    Raises `KgenError` at the first reduction: programs with reductions are checked and printed, not yet scheduled.
    """
    for let in program.lets:
        if let.expr.name in REDUCTIONS and let.expr.attrs or let.expr.name == "pick":
            message = f"`{let.expr.name}[{', '.join(let.expr.attrs)}]` is a reduction, and no code is generated for reductions yet"
            raise KgenError(Diagnostic(message, let.span, help="`kgen check` and `kgen show` work up to --stage program"), source)
    groups: dict[frozenset[str], list[Store]] = {}
    for store in program.stores:
        groups.setdefault(frozenset(store.dims), []).append(store)
    return _ordered([_map(program, stores[0].dims, tuple(stores)) for stores in groups.values()])


def _ordered(passes: list[Map]) -> tuple[Map, ...]:
    """The passes, each behind those that read what it writes in place: every pass finds the parameters as the call gave them.

    There is always such an order: what a pass reads has no dims but its own, so two passes that read each other's
    parameters would have the same dims, and be one.
    """

    def overwrites(p: Map, other: Map) -> bool:
        states = {store.state for store in p.stores}
        return other is not p and any(t.name in states for t in other.loads)

    ordered: list[Map] = []
    while passes:
        ready = next(p for p in passes if not any(overwrites(p, other) for other in passes))
        ordered.append(ready)
        passes = [p for p in passes if p is not ready]
    return tuple(ordered)


def _map(program: Program, dims: Dims, stores: tuple[Store, ...]) -> Map:
    lets = live(program.lets, stores)
    defs = {let.name: let for let in lets}
    values = tuple(let for let in lets if not let.is_number)
    loaded = {let.expr.attrs[0] for let in values if let.expr.name == "load"}
    scalars = []
    for let in values:
        if let.expr.name == "cast" and (number := defs[let.expr.operands[0].name]).is_number and number.expr.name != "lit":
            scalars.append(Scalar(let, number))
    return Map(
        dims,
        tuple(t for t in program.tensors if t.name in loaded),
        tuple(dict.fromkeys(let.expr.attrs[0] for let in values if let.expr.name == "index")),
        tuple(scalars),
        values,
        stores,
    )


@dataclass(frozen=True)
class Cost:
    """What a program takes per element of its largest pass, by count: bytes read and written (operands that
    broadcast are not counted: they stay in a cache), arithmetic and special-function instructions in f32."""

    read: int
    written: int
    instructions: int
    special: int


def cost(program: Program, passes: tuple[Map, ...]) -> Cost:
    largest = max(passes, key=lambda p: len(p.dims))
    work = [OPS[let.expr.name].cost for let in largest.lets if let.expr.name in OPS and let.dims]
    return Cost(
        sum(t.dtype.bytes for t in largest.loads if set(t.dims) == set(largest.dims)),
        sum(s.dtype.bytes for s in largest.stores),
        sum(c[0] for c in work),
        sum(c[1] for c in work),
    )


#: What fits under the time that an element's bytes take on an H100 or H200, for each byte moved: a bf16 element (4 bytes read
#: and written) leaves room for 3 special-function instructions and about 18 others.
SPECIAL_PER_BYTE, OTHER_PER_BYTE = 3 / 4, 18 / 4


def predicted_bound(c: Cost) -> str:
    """What bounds a pass: memory, or arithmetic and by how much (its instructions over those that fit under its bytes)."""
    moved = max(1, c.read + c.written)
    over = max(c.special / (SPECIAL_PER_BYTE * moved), c.instructions / (OTHER_PER_BYTE * moved))
    return "memory" if over <= 1 else f"arithmetic, {over:.1f} x memory"
