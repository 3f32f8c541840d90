"""Maps over lists of tensors on the CPU, in one parallel loop over pieces of all of them.

In: what a launcher knows of each tuple of tensors (`member`), and where its tensors lie.  Out: groups, which are called.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from kgen.backends import backend
from kgen.backends.cpp import Cpp
from kgen.runtime import strided

if TYPE_CHECKING:
    from kgen.check import Kernel
    from kgen.runtime.arguments import Call

#: Elements of a piece: whole tiles of the source, and fewer than it would share out among threads.
PIECE = 1 << 14


class Member(NamedTuple):
    """What a call needs of one tuple of tensors, but for where these lie: those that are `alike` go together."""

    alike: Hashable
    binding: dict[str, str]
    size: int
    strides: tuple[int, ...]  # one of each tensor, in elements: 1, or 0 where it broadcasts
    sizes: dict[str, int]


@dataclass(eq=False, slots=True)
class Group:
    """One call: of the tuples `members`, whose pointers stand at `positions` (by tensor) of a call's places."""

    members: tuple[int, ...]
    function: Any
    head: list[Any]  # the first arguments
    positions: list[list[int]]
    strides: list[ctypes.c_int64]
    numbers: Callable[[dict[str, Any]], list[Any]]
    filled: tuple[array[int], list[Any]] | None = None

    def start(self, places: array[int], given: dict[str, Any], device: int, stream: int) -> None:
        """Run on the tensors at `places`, with the numbers of the first of the members."""
        filled = self.filled
        if filled is None or filled[0] != places:
            made: list[Any] = []
            for at, stride in zip(self.positions, self.strides, strict=True):
                made += [(ctypes.c_void_p * len(at))(*[places[k] for k in at]), stride]
            self.filled = filled = places, made  # as a whole, and not written again: another thread may be calling
        self.function(*self.head, *filled[1], *self.numbers(given))


class ListLauncher:
    """The groups of a kernel that is one map; its source is built by the system's compiler for each choice of dtypes."""

    def __init__(self, kernel: Kernel, unit: Any, entry: Callable[[Any, dict[str, str], Cpp], Any]):
        """`unit` is the view of its map; `entry(unit, binding, target)` the function of its source for a choice of dtypes."""
        target = backend("cpp")
        assert isinstance(target, Cpp)
        self.target, self.unit, self.build = target.listed, unit, entry
        self.pointers = [t.spec_name for t in unit.tensors]
        self.entries: dict[Hashable, Any] = {}

    def member(self, call: Call) -> Member | None:
        """What is known of a tuple of tensors; it keeps none of them.  None where it is to be called by itself: its elements are not all
        in one order without gaps, or their positions count."""
        unit, tensors = self.unit, {**call.given, **call.results}
        if unit.indices:
            return None
        shape = call.shape(unit.dims)
        strides = [call.strides(tensors[t.spec_name], t.dims, unit.dims) for t in unit.operands]
        merged, steps = strided.merged(shape, strides, -1, 1)
        if len(merged) > 1 or any(step[0] not in (0, 1) for step in steps):
            return None
        by_name = {t.spec_name: step[0] for t, step in zip(unit.operands, steps, strict=True)}
        own = tuple(by_name[name] for name in self.pointers)
        sizes = {a.spec_name: call.size(a.spec_name) for a in unit.numbers if a.kind == "size"}
        return Member((*call.binding.items(), own, *sizes.items()), call.binding, math.prod(shape), own, sizes)

    def groups(
        self, members: dict[int, Member], classes: Sequence[int], at: dict[int, list[int]], aligned: bytes, device: int
    ) -> list[Group]:
        """The calls of `members` (by their place in the lists).  Raises `KgenError` where a kernel cannot be built.

        Members whose `classes` differ have other numbers, and are never called together.  `at` says where, among a call's places, the
        pointers of each member stand, in the order of `pointers`.
        """
        found: dict[Hashable, list[int]] = {}
        for k, m in members.items():
            if m.size:
                found.setdefault((m.alike, classes[k]), []).append(k)
        made = []
        for own in found.values():
            positions = [[at[k][p] for k in own] for p in range(len(self.pointers))]
            made.append(self.group(own, [members[k] for k in own], positions))
        return made

    def group(self, own: list[int], members: list[Member], positions: list[list[int]]) -> Group:
        """One call of members that are alike."""
        first, array = members[0], ctypes.c_int64 * (len(own) + 1)
        begins = array(*accumulate((-(-m.size // PIECE) for m in members), initial=0))
        head = [ctypes.c_int64(len(own)), ctypes.c_int64(PIECE), array(*[m.size for m in members], 0), begins]
        kinds = [(a.spec_name, a.kind, ctypes.c_double if a.kind == "float" else ctypes.c_int64) for a in self.unit.numbers]

        def numbers(given: dict[str, Any]) -> list[Any]:
            return [kind((first.sizes if of == "size" else given)[name]) for name, of, kind in kinds]

        key = tuple(first.binding.items())
        if key not in self.entries:
            self.entries[key] = self.build(self.unit, first.binding, self.target)
        return Group(tuple(own), self.entries[key], head, positions, [ctypes.c_int64(step) for step in first.strides], numbers)
