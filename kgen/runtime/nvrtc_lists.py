"""Maps over lists of tensors on a CUDA device, in one launch for all tensors that are walked alike.

In: what a launcher knows of each tuple of tensors (`member`), and where its tensors lie.  Out: groups, which launch.

The table of a launch, with each tensor's sizes and pointers, is an argument of its kernel: the driver copies it at the launch, so that
it needs no memory on the device, is never stale on any stream, and is a part of a CUDA graph that captures the launch.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from kgen.backends import backend
from kgen.backends.cuda import Cuda, Layout
from kgen.runtime import driver, maps, nvrtc
from kgen.runtime.limits import MAX_GRID

if TYPE_CHECKING:
    from kgen.check import Kernel
    from kgen.runtime.arguments import Call

#: Bytes of a kernel's arguments: those of CUDA 12.1 and later, and those before.
MOST, FEWER = 32_764, 4_096
#: Pieces into which the blocks of a launch are divided: a block looks for its tensor among those of its own piece alone.
HINTS = 128


class Member(NamedTuple):
    """What launches need of one tuple of tensors, but for where these lie: `alike` are its dtypes and the sizes on which numbers depend."""

    alike: Hashable
    binding: dict[str, str]
    sizes: dict[str, int]
    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    itemsizes: tuple[int, ...]


@dataclass(eq=False, slots=True)
class Group:
    """One launch: of the tuples `members`, whose pointers stand at `positions` (by operand) of a call's places."""

    members: tuple[int, ...]
    function: Any
    grid: int
    table: Any
    positions: list[list[int]]
    numbers: Callable[[dict[str, Any]], tuple[Any, ...]]
    filled: tuple[array[int], Any] | None = None

    def start(self, places: array[int], given: dict[str, Any], device: int, stream: int) -> None:
        """Launch on the tensors at `places`, with the numbers of the first of the members, on a raw CUstream."""
        filled = self.filled
        if filled is None or filled[0] != places:
            table = type(self.table).from_buffer_copy(self.table)
            for row, at in zip(table.pointer, self.positions, strict=True):
                row[: len(at)] = [places[k] for k in at]
            self.filled = filled = places, table  # as a whole, and not written again: another thread may be launching
        self.function(self.grid, device, stream, [filled[1], *self.numbers(given)])


class ListLauncher:
    """The groups of a kernel that is one map."""

    def __init__(self, kernel: Kernel, launcher: nvrtc.Launcher):
        target = backend("cuda")
        assert isinstance(target, Cuda)
        self.launcher, (unit,) = launcher, launcher.units
        assert isinstance(unit, Layout)
        self.unit, (self.pointers,) = unit, launcher.pointers
        own = launcher.run
        self.run = nvrtc.CudaLauncher(target.listed.render(kernel), launcher.units, own.lookup, own.save)
        self.sized = {let.expr.attrs[0] for let in unit.numbers if let.expr.name == "size"}

    def member(self, call: Call) -> Member | None:
        """What is known of a tuple of tensors; it keeps none of them.  None where it is to be launched by itself."""
        taken = self.launcher.taken(0, call, {**call.given, **call.results})
        sizes = {dim: n for dim, n in taken.sizes.items() if dim in self.sized}
        strides, itemsizes = tuple(tuple(s) for _, (s,), _ in taken.operands), tuple(size for _, _, size in taken.operands)
        alike = (*call.binding.items(), *sizes.items())
        return Member(alike, call.binding, sizes, tuple(taken.shapes[0]), strides, itemsizes)

    def groups(
        self, members: dict[int, Member], classes: Sequence[int], at: dict[int, list[int]], aligned: bytes, device: int
    ) -> list[Group]:
        """The launches of `members` (by their place in the lists) on a device.  Raises `KgenError` where a kernel cannot be built.

        Members whose `classes` differ have other numbers, and never share a launch.  `at` says where, among a call's places, the pointers
        of each member stand, in the order of `pointers`; `aligned` has the places modulo 16.
        """
        found: dict[Hashable, list[tuple[int, maps.Plan]]] = {}
        for k, m in members.items():
            memory = iter(at[k])
            addresses = tuple(aligned[next(memory)] if size else 0 for size in m.itemsizes)
            near = self.unit.taps, self.unit.below, False, self.unit.row
            planned = maps.cached_plan(m.shape, m.strides, m.itemsizes, addresses, self.unit.held, *near)
            if planned is not None:
                found.setdefault((m.alike, planned.variant, classes[k]), []).append((k, planned))
        made = []
        for alike in found.values():
            most = self.capacity(alike[0][1].variant)
            while alike:
                count = fitting([planned.grid for _, planned in alike[:most]])
                batch, alike = alike[:count], alike[count:]
                made.append(self.group([k for k, _ in batch], [p for _, p in batch], members[batch[0][0]], at, most, device))
        return made

    def group(self, own: list[int], plans: list[maps.Plan], first: Member, at: dict[int, list[int]], most: int, device: int) -> Group:
        """One launch of the members `own`, walked by `plans`, of which a table has room for `most`."""
        variant, unit = plans[0].variant, self.unit
        count = min(most, 1 << (len(own) - 1).bit_length())
        expression = unit.expression(first.binding, *variant, count)
        function = self.run.function(expression, self.launcher.run.arch or driver.arch_of(device))
        positions = [[at[k][p] for k in own] for p in range(len(self.pointers))]

        dtypes = unit.scalar_dtypes(first.binding)

        def numbers(given: dict[str, Any]) -> tuple[Any, ...]:
            return nvrtc.rounded(list(zip(nvrtc.number_values(unit, given, first.sizes), dtypes, strict=True)))

        return Group(tuple(own), function, sum(p.grid for p in plans), filled(plans, count, len(self.pointers)), positions, numbers)

    def capacity(self, variant: maps.Variant) -> int:
        """Of how many tensors one launch's table has room, beside the numbers."""
        room = (MOST if large() else FEWER) - 8 * len(self.unit.scalars) - 16
        operands, memory = len(self.unit.operands), len(self.pointers)
        fixed = ctypes.sizeof(_list_type(0, memory, variant.rank, operands, variant.wide))
        each = ctypes.sizeof(_list_type(8, memory, variant.rank, operands, variant.wide)) - fixed
        return max(1, 8 * (room - fixed) // each)


def fitting(grids: list[int]) -> int:
    """How many of some launches have no more blocks together than one may have; at least one."""
    return max(1, sum(total <= MAX_GRID for total in accumulate(grids)))


@cache
def large() -> bool:
    """Whether the driver, and the NVRTC that came with torch, take more than 4 KB of arguments."""
    import torch

    known = tuple(int(part) for part in (torch.version.cuda or "0.0").split(".")[:2])
    return known >= (12, 1) and driver.cuda_version() >= (12, 1)


@cache
def _list_type(count: int, pointers: int, rank: int, operands: int, wide: bool) -> type[Any]:
    """The kernel's `List<COUNT, P, RANK, K, Index>`."""
    fields = [
        ("pointer", ctypes.c_uint64 * count * pointers), ("layout", maps.layout_type(rank, operands, wide) * count),
        ("first", ctypes.c_uint32 * count), ("hint", ctypes.c_uint16 * (HINTS + 2)), ("shift", ctypes.c_uint16),
    ]  # fmt: skip
    return type("List", (ctypes.Structure,), {"_fields_": fields})


def filled(plans: Sequence[maps.Plan], count: int, pointers: int) -> Any:
    """A table with room for `count` tensors, without their addresses: where the blocks of each begin, and the hints for looking there."""
    variant, operands = plans[0].variant, len(plans[0].strides)
    table = _list_type(count, pointers, variant.rank, operands, variant.wide)()
    for k, planned in enumerate(plans):
        table.layout[k] = maps.layout(planned)
    ends = list(accumulate(p.grid for p in plans))
    table.first[: len(plans)] = [0, *ends[:-1]]
    table.shift = max(0, (ends[-1] - 1).bit_length() - HINTS.bit_length() + 1)
    own = 0
    for piece in range(HINTS + 2):
        block = min(piece << table.shift, ends[-1] - 1)
        while ends[own] <= block:
            own += 1
        table.hint[piece] = own
    return table
