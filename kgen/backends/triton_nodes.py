"""What Triton's passes over rows are printed from: operands, what a reduction carries, blocks of lines, readings of a segment."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from kgen.backends.python_text import wrapped
from kgen.backends.text import Text
from kgen.backends.triton_maps import CONSTEXPR
from kgen.backends.triton_order import MEET
from kgen.backends.units import Accumulator, Statement


@dataclass(frozen=True)
class Operand:
    """A tensor or index of a pass: `key` is its name in the host's code, `place` how many operands come before it.

    `base` is what its rows' places are called (its pointer where it has no dim of the rows), `rows` and `inner` are the
    names of its strides, outermost first, `steps` that of the inner strides' tuple.
    """

    key: str
    place: int
    pointer: str
    base: str
    rows: tuple[str, ...]
    inner: tuple[str, ...]
    steps: str

    @property
    def kind(self) -> str:
        return f"KINDS[{self.place}]"

    @property
    def vector(self) -> str:
        return f"VECTORS[{self.place}]"


@dataclass(frozen=True)
class Slot:
    """What a reduction carries from one step to the next: argmax carries a value and its place, the others one value.  `start` is its
    identity as a bare literal."""

    name: str
    type: str
    dtype: str
    identity: Text
    start: Text
    value: Text


@dataclass(frozen=True)
class Block:
    """Lines under a head that ends in a colon."""

    head: Text
    body: tuple[Node, ...]


@dataclass(frozen=True)
class Invocation:
    """A call of one of the unit's own functions, on as many lines as it takes."""

    names: tuple[str, ...]
    function: str
    arguments: tuple[str, ...]

    @property
    def uses(self) -> frozenset[str]:
        """The names that it reads."""
        return frozenset(self.arguments)


Node = Statement | Block | Invocation


def meet_again(body: Sequence[Node], memory: Set[str] = frozenset()) -> list[int]:
    """Where, from the last on, a body's threads meet although nothing is loaded since they met before.  `memory`: the names of what is
    loaded from; without them, each line that makes a value counts as a load."""
    found: list[int] = []
    met = False
    for k, n in enumerate(body):
        if n == MEET:
            found += [k] if met else []
            met = True
        elif not isinstance(n, Statement) or n.names and not (memory and memory.isdisjoint(n.uses)):
            met = False
    return found[::-1]


@dataclass(frozen=True)
class Reading:
    """The function of a reading of a segment: what is given to it, and what it makes of a tile."""

    name: str
    slots: tuple[Slot, ...]
    accumulators: tuple[Accumulator, ...]
    given: tuple[str, ...]
    constants: tuple[str, ...]
    head: tuple[Statement, ...]
    body: tuple[Node, ...]
    tail: tuple[Statement, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.slots)

    @property
    def returns(self) -> str:
        return ", ".join(self.names)

    @property
    def about(self) -> str:
        *most, last = [a.name for a in self.accumulators] or [""]
        return f"What a segment adds to {', '.join(most) + ' and ' if most else ''}{last}." if last else "A segment's results."

    @property
    def define(self) -> str:
        return wrapped(f"def {self.name}", [*self.given, *(f"{n}: {CONSTEXPR}" for n in self.constants)], ":")
