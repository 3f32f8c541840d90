"""CUDA kernels at run time: compiled by NVRTC, loaded and launched through the driver.

In: a `.cu` source, the layouts of its units, and the places, sizes and strides of a call.  Out: a launch on the caller's
stream.  torch is imported by `Launcher` alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kgen.backends.cuda import Cuda, Layout, RowLayout, RowOperand, ScanLayout, SortLayout
from kgen.backends.cuda_layouts import FLAT, pointed
from kgen.backends.launches import MOST_READINGS
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.host import evaluate, to_dtype
from kgen.ir import exact
from kgen.runtime import driver, keys, maps, persistent, rounds, rows, spills, tuned
from kgen.runtime.arguments import index_strides
from kgen.runtime.asides import aside
from kgen.runtime.driver import THREADS, Function, arch_of, available, context, identity, preload, version
from kgen.runtime.limits import MAX_GRID, limits
from kgen.runtime.recall import packed, unpacked
from kgen.runtime.sorts import sort
from kgen.runtime.strided import RowOperandPlace
from kgen.types import DTYPES, ELLIPSIS, FLOAT, Number

if TYPE_CHECKING:
    from kgen.runtime import scans

OPTIONS: tuple[str, ...] = ("-std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false")

#: How many launches a call's plan keeps: one for each device, alignment and choice of numbers.
KEPT = 64


# ------------------------------------------------------------------------------------------------------------ arguments


_SCALARS: dict[str, Any] = {
    "f32": ctypes.c_float, "f64": ctypes.c_double, "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
    "i64": ctypes.c_int64, "bool": ctypes.c_bool, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
}  # fmt: skip


def rounded(scalars: Sequence[tuple[Any, str]]) -> tuple[Any, ...]:
    """Numbers as ctypes values, each rounded once to its dtype."""
    return tuple(_SCALARS[dtype](to_dtype(value, DTYPES[dtype])) for value, dtype in scalars)


# ---------------------------------------------------------------------------------------------------------------- NVRTC


def compile_cubin(source: str, names: list[str], arch: str) -> tuple[bytes, dict[str, str]]:
    """The machine code of `source` for `arch` ("sm_90") and the lowered name of each name expression.

    Raises `KgenError` with the compiler's log.
    """
    return driver.compile_cubin(source, names, arch, OPTIONS)


def load(cubin: bytes, lowered: str) -> Function:
    """The kernel of a lowered name out of machine code.  Raises `KgenError` where the driver refuses it."""
    return Function(cubin, lowered)


class Started(NamedTuple):
    """One launch: its function, the blocks of its grid, the threads of a block, its bytes of shared memory, a cluster's blocks; whether
    it `follows` the one before, for which its kernel waits itself (`dependency_synchronize`), and so may begin before that has ended."""

    function: Any
    grid: int
    threads: int = THREADS
    shared: int = 0
    cluster: int = 1
    follows: bool = False


class Launch(NamedTuple):
    """The launches of one pass, all but addresses: functions with their grids, the layout, the numbers, and the `work` bytes that
    the launches share; `fitted` where a grid follows the device itself, not only its architecture."""

    steps: tuple[Started, ...]
    layout: ctypes.Structure
    numbers: tuple[Any, ...]
    work: int = 0
    fitted: bool = False

    def start(self, pointers: Sequence[int], device_index: int, stream: int, allocate: Callable[[int], Any]) -> None:
        """Launch on the operands' memory, in their order; `allocate(bytes)` gives a tensor to work in.  `stream` is a raw CUstream."""
        layout, work = self.layout, None
        if self.work:
            layout, work = type(layout).from_buffer_copy(layout), allocate(self.work)
            layout.work = work.data_ptr()
        values = [layout, *map(ctypes.c_void_p, pointers), *self.numbers]
        for function, grid, *asked in self.steps:
            function(grid, device_index, stream, values, *asked)


def rows_plan(
    unit: RowLayout, row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...],
    operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]], gathers: int, arch: str,
) -> rows.RowPlan | None:  # fmt: skip
    """How a pass over rows is launched on an architecture; None where it has no row.  `operands` are as `CudaLauncher.rows` takes them."""
    return rows.cached(
        row_sizes, inner_sizes, places(unit, operands), gathers, unit.reductions, unit.stores, unit.words,
        limits(arch) if unit.reductions <= MOST_READINGS else limits(arch)._replace(cluster=0), unit.splits,
        tuned.ladder(arch, any(o.kept for o in unit.operands), unit.reductions, unit.words, unit.narrow, bool(unit.pieces)),
        unit.long, bool(unit.pieces), unit.lasting.beside([size for *_, size in operands]) if unit.lasting else 0, unit.dear,
        unit.abreast, unit.narrow,
    )  # fmt: skip


def places(unit: RowLayout, operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]]) -> tuple[RowOperandPlace, ...]:
    """The operands as the planners take them."""
    lends = [bool(unit.lasting and unit.lasting.of >> k & 1) for k in range(len(operands))]
    return tuple(
        RowOperandPlace(outer, inner, size, address, o.element, o.kept, o.role != "result", o.rowed(unit.rows), o.role == "state", lend)
        for (address, outer, inner, size), o, lend in zip(operands, unit.operands, lends, strict=True)
    )


def rounds_plan(
    unit: RowLayout, row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...],
    operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]], gathers: int, arch: str,
) -> rounds.RoundsPlan | None:  # fmt: skip
    """The same for a pass that adds up columns."""
    passed = (unit.reductions, unit.words, unit.columns, unit.long, unit.dear)
    return rounds.cached(row_sizes, inner_sizes, places(unit, operands), gathers, *passed, arch)


def scan_plan(
    unit: ScanLayout, row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...],
    operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]], arch: str,
) -> scans.ScanPlan | None:  # fmt: skip
    """The same for a pass that goes along rows."""
    from kgen.runtime import scans

    return scans.cached(row_sizes, inner_sizes[0], places(unit, operands), unit.backwards, unit.partial, limits(arch).shared)


def row_plan(
    unit: RowLayout, row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...],
    operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]], gathers: int, arch: str,
) -> rows.RowPlan | rounds.RoundsPlan | scans.ScanPlan | None:  # fmt: skip
    """How any pass over rows is launched: `scan_plan` where it goes along them, `rounds_plan` where it adds up columns, else in rows that
    follow one another or not."""
    if isinstance(unit, ScanLayout):
        return scan_plan(unit, row_sizes, inner_sizes, operands, arch)
    asked = unit, row_sizes, inner_sizes, operands, gathers, arch
    if unit.columns:
        return rounds_plan(*asked)
    kept = places(unit, operands), gathers, unit.reductions, unit.words, arch
    return (persistent.cached(row_sizes, inner_sizes, *kept) if unit.persists else None) or rows_plan(*asked)


def room(function: Any, device_index: int, threads: int, shared: int, cluster: int) -> int:
    """How many clusters of a launch a device has room for at once; 0 where there is no device to ask."""
    return function.room(device_index, threads, shared, cluster) if isinstance(function, Function) else 0


class CudaLauncher:
    """Makes the launches of one source's units; each variant is compiled when it is first needed.

    `units` is `Cuda.layout(kernel)`.  `lookup(key)` gives the bytes that `save(key, bytes)` kept, or None; both are optional,
    and what cannot be loaded is compiled anew.
    """

    def __init__(
        self,
        source: str,
        units: Sequence[Layout | RowLayout | SortLayout],
        lookup: Callable[[str], bytes | None] | None = None,
        save: Callable[[str, bytes], Any] | None = None,
    ):
        self.source, self.units, self.lookup, self.save = source, tuple(units), lookup, save
        self.digest = hashlib.sha256(source.encode()).hexdigest()
        self.arch: str | None = None  # else each device's own
        self.functions: dict[tuple[str, str], Function] = {}
        self.roomy: dict[str, tuple[int, int]] = {}  # blocks of kernels that may have fewer, and vectors of 16 bytes

    def over(
        self, unit_index: int, binding: tuple[str, ...], sizes: Sequence[int], operands: Sequence[tuple[int, Sequence[int], int]],
        scalars: Sequence[tuple[Any, str]], device_index: int, turns: bool = False,
    ) -> Launch | None:  # fmt: skip
        """The launch of a unit over one broadcast shape; None where that has no elements.  `turns` says that the parts among its operands
        lie one element behind another.

        `binding` has the dtypes of the unit's `variables`, in that order.  `operands`, in the order of the unit's, are
        (address modulo 16, strides in elements, bytes an element), indices (0, strides, 0).  `scalars` are (value, dtype) in the
        order of the unit's, with the dtypes that its `scalar_dtypes` gives.
        """
        unit = self.units[unit_index]
        assert isinstance(unit, Layout)
        strides = tuple(tuple(s) for _, s, _ in operands)
        given = (tuple(sizes), strides, tuple(b for _, _, b in operands), tuple(a for a, _, _ in operands), unit.held)
        near = unit.taps, unit.below, bool(unit.reaches), unit.row, unit.divides, unit.along, unit.shares, unit.otherwise
        planned = (maps.in_turns(unit.groups, *given) if turns else None) or maps.cached_plan(*given, *near)
        if planned is None:
            return None
        types, arch = dict(zip(unit.variables, binding, strict=True)), self.arch or arch_of(device_index)
        if unit.turned and (planned.variant.vec == 1 or planned.variant.splat >= FLAT):  # without vectors, since operands are turned
            from kgen.runtime import tiles

            if (tiled := tiles.cached(planned.sizes, planned.strides, *given[2:4], unit.turned)) is not None:
                function = self.function(unit.tiles(types, *tiled.variant), arch)
                return Launch((Started(function, tiled.grid),), tiled.layout(), rounded(scalars))
        if planned.grid > MAX_GRID:
            raise KgenError(f"{planned.n} elements are more than one launch of {unit.kernel} covers")
        expression = unit.expression(types, *planned.variant, turns=planned.turns)
        return Launch((Started(self.function(expression, arch), planned.grid),), maps.layout(planned), rounded(scalars))

    def rows(
        self, unit_index: int, binding: tuple[str, ...], row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...],
        operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]], gathers: Sequence[tuple[int, int]],
        scalars: Sequence[tuple[Any, str]], device_index: int, turns: bool = False,
    ) -> Launch | None:  # fmt: skip
        """The launches of a pass over rows; None where it has none.

        As for `over`, but `operands` are (address modulo 16, strides along the rows' dims, strides along the inner dims, bytes an
        element), and `gathers` (size, stride) along the dim of each gather.
        """
        unit = self.units[unit_index]
        assert isinstance(unit, RowLayout)
        arch = self.arch or arch_of(device_index)
        side = aside(row_sizes, operands, unit.operands, gathers, unit.aside == "ranges", arch) if unit.aside else None
        if side is not None:
            row_sizes, operands = side.row_sizes, side.operands
        def made(own: Any) -> Any:
            return row_plan(unit, row_sizes, inner_sizes, own, len(gathers), arch)
        if (planned := turns and rounds.in_turns(unit.groups, row_sizes + inner_sizes, operands, made) or made(operands)) is None:
            return None
        if side is not None and isinstance(planned, rows.RowPlan):
            planned = side.shared(planned)
        types = dict(zip(unit.variables, binding, strict=True))
        if fitted := isinstance(planned, rounds.RoundsPlan) and not unit.columns:
            first, _, *launch = planned.launches[0]
            there = room(self.function(unit.expression(types, first.text()), arch), device_index, *launch)
            planned = persistent.fitted(planned, there)
        steps: list[Started] = []
        for walk, grid, threads, shared, cluster in planned.launches:
            if grid > MAX_GRID:
                raise KgenError(f"{planned.rows} rows are more than one launch of {unit.kernel} covers")
            text = side.text(walk.text()) if side is not None else unit.walk(walk.text(), planned)
            expression, follows = unit.expression(types, text), bool(steps) and limits(arch).cluster > 0
            self.roomy[expression] = walk.roomy([size for *_, size in operands]) if isinstance(planned, rows.RowPlan) else (1, 1)
            steps.append(Started(self.function(expression, arch), grid, threads, shared, cluster, follows))
        return Launch(tuple(steps), planned.layout(gathers), rounded(scalars), planned.work, fitted)

    def function(self, expression: str, arch: str) -> Function:
        """The loaded kernel of a name expression for an architecture."""
        found = self.functions.get((expression, arch))
        if found is None:
            found = self.functions[expression, arch] = self._load(expression, arch)
        return found

    def _load(self, expression: str, arch: str) -> Function:
        """A kernel's function by its C++ name, from the cache or compiled now.  Raises `KgenError` with NVRTC's log."""
        key = hashlib.sha256("\0".join((self.digest, expression, arch, *OPTIONS, identity())).encode()).hexdigest()
        if kept := self.lookup(key) if self.lookup else None:
            try:
                name, cubin = unpacked(kept)
                found = load(cubin, name)
                found.entry = key
                return found
            except (KgenError, ValueError):
                pass  # an entry of no use: as if there were none
        cubin, name = spills.compiled(self.source, expression, arch, OPTIONS, *self.roomy.get(expression, (1, 1)))
        found = load(cubin, name)
        if self.save and self.save(key, packed(name, cubin)):
            found.entry = key
        return found


def number_values(unit: Layout | RowLayout | SortLayout, given: dict[str, Any], sizes: dict[str, int]) -> list[Any]:
    """The value of each of a unit's scalars, in f64 or i64, from the numbers of a call and the sizes of its named dims."""
    done: dict[str, Any] = {}
    for let in unit.numbers:
        kind, operands, attrs = let.expr.name, let.expr.operands, let.expr.attrs
        if kind == "lit":
            text = attrs[0]
            done[let.name] = (float if let.dtype == FLOAT else int)(text if text in ("inf", "-inf", "nan") else exact(text))
        elif kind in ("arg", "size"):
            done[let.name] = (given if kind == "arg" else sizes)[attrs[0]]
        else:
            assert isinstance(let.dtype, Number)
            done[let.name] = evaluate(kind, [done[o.name] for o in operands], let.dtype)
    return [done[s.number.name] for s in unit.scalars]


def expressions(kernel: Kernel, call: Any, arch: str) -> list[str]:
    """The C++ names of the kernels that a call launches on devices of `arch`; nothing is compiled, and its tensors may lie anywhere."""
    from unittest import mock

    launcher, found = Launcher(kernel), list[str]()

    def note(expression: str, arch: str) -> Any:
        found.append(expression)
        return lambda *_: None

    launcher.run.arch = arch
    with mock.patch.object(launcher.run, "function", note):
        launcher.launch(call, 0, 0)
    return list(dict.fromkeys(found))


class Taken(NamedTuple):
    """What a unit walks over in a call: the size of each dim, the shapes of its parts, its operands (address modulo 16, strides over each
    part, bytes an element), and the size and stride along the dim of each gather."""

    sizes: dict[str, int]
    shapes: list[tuple[int, ...]]
    operands: list[tuple[int, list[list[int]], int]]
    gathers: list[tuple[int, int]]


class Launcher:
    """Calls a kernel through NVRTC on torch's CUDA tensors, on torch's current stream; keeps what it compiles in the cache."""

    def __init__(self, kernel: Kernel):
        """Raises `KgenError` where the kernel holds what no schedule covers; nothing is compiled before a call."""
        from kgen.backends import backend
        from kgen.runtime import cache as disk

        target = backend("cuda")
        assert isinstance(target, Cuda)
        self.kernel, (source, self.units, self.workspaces) = kernel, target.for_launches(kernel)
        self.pointers = [pointed(unit) for unit in self.units]
        self.grouped = [unit.groups if isinstance(unit, Layout | RowLayout) else () for unit in self.units]
        self.numbers = [p.name for p in kernel.params if not p.is_tensor]
        self.derived: dict[Any, Any] = {}

        def lookup(key: str) -> bytes | None:
            found = disk.read(key, ".cubin")
            return found[1] if found else None

        self.run = CudaLauncher(source, self.units, lookup, lambda key, data: disk.write(key, ".cubin", data))
        self.sorts = [unit for unit in self.units if isinstance(unit, SortLayout)]
        self.orders = CudaLauncher(keys.source(), (), lookup, self.run.save) if self.sorts else self.run

    def __call__(self, call: Any) -> None:
        """`call` is a `kgen.runtime.arguments.Call` whose tensors lie on one CUDA device."""
        import torch

        index = call.device.index if call.device.index is not None else torch.cuda.current_device()
        self.launch(call, index, torch._C._cuda_getCurrentRawStream(index))

    def launch(self, call: Any, index: int, stream: int) -> None:
        """The passes of a call, in order, on a device's stream."""
        import torch

        tensors = {**call.given, **call.results, **call.memory(self.workspaces)}
        places = [[tensors[name].data_ptr() for name in names] for names in self.pointers]
        numbers = tuple([call.given[name] or str(call.given[name]) for name in self.numbers])  # a zero's sign counts
        key = (index, numbers, *[place % 16 for own in places for place in own])
        if any(self.grouped):
            key += tuple([self.turns(k, tensors) for k, groups in enumerate(self.grouped) if groups])
        launches = call.ready.get(key)
        if launches is None:
            if len(call.ready) >= KEPT:
                call.ready.clear()
            launches = call.ready[key] = [self.prepared(k, call, tensors, index) for k in range(len(self.units))]
        call.launched = launches
        for unit, made, own in zip(self.units, launches, places, strict=True):
            if made is None and isinstance(unit, SortLayout):
                sort(tensors[unit.keys], {part: tensors[name] for part, name in unit.written.items()}, unit.axis, call.size(unit.dims[-1]))
            elif made is not None:
                made.start(own, index, stream, lambda size: torch.empty(size, dtype=torch.uint8, device=call.device))

    def derive(self, wanted: tuple[tuple[int, int, str], ...], sizes: tuple[tuple[str, int], ...]) -> Callable[[tuple], bytes]:
        """Makes, out of a call's numbers, the bytes of those scalars (unit, which one, dtype) that the host's arithmetic computes.

        One function for all sizes where the scalars do not depend on them, so that calls on several tensors compute them once.
        """
        sized = any(let.expr.name == "size" for unit, _, _ in wanted for let in self.units[unit].numbers)
        key = wanted, sizes if sized else ()
        found = self.derived.get(key)
        if found is None:
            names, units = self.numbers, self.units
            known = dict(sizes)

            def found(numbers: tuple) -> bytes:
                given = dict(zip(names, numbers, strict=True))
                values = {k: number_values(units[k], given, known) for k in {unit for unit, _, _ in wanted}}
                return b"".join(bytes(value) for k, n, dtype in wanted for value in rounded([(values[k][n], dtype)]))

            if len(self.derived) >= KEPT:
                self.derived.clear()
            self.derived[key] = found
        return found

    def turns(self, k: int, tensors: dict[str, Any]) -> bool:
        """Whether the parts among the operands of unit number k lie one element behind another."""
        own = [tensors[o.name] if o.role != "index" else None for o in self.units[k].operands]
        places, sizes = ([0 if t is None else of(t) for t in own] for of in (lambda t: t.data_ptr(), lambda t: t.element_size()))
        return maps.adjacent(self.grouped[k], places, sizes)

    def taken(self, k: int, call: Any, tensors: dict[str, Any]) -> Taken:
        """What unit number k walks over in a call."""
        unit = self.units[k]
        sizes = {**call.sizes, ELLIPSIS: math.prod(call.batch)}
        parts = (unit.rows, unit.inner) if isinstance(unit, RowLayout) else (unit.dims,)
        shapes = [call.shape(part) for part in parts]
        operands: list[tuple[int, list[list[int]], int]] = []
        gathers: list[tuple[int, int]] = []
        for o in unit.operands:
            if o.role == "index":
                operands.append((0, [index_strides(part, shape, o.name) for part, shape in zip(parts, shapes, strict=True)], 0))
                continue
            tensor = tensors[o.name]
            without = o.dim if isinstance(o, RowOperand) else ""
            strides = [call.strides(tensor, o.dims, part, without) for part in parts]
            operands.append((tensor.data_ptr() % 16, strides, tensor.element_size()))
            if without:
                gathers.append((sizes[without], call.stride_along(tensor, o.dims, without)))
        return Taken(sizes, shapes, operands, gathers)

    def sorted(self, found: keys.Sorting, arch: str) -> Launch:
        """The launches of a pass that sorts."""
        started = [Started(self.orders.function(step.kernel, arch), step.grid, step.threads, step.shared) for step in found.steps]
        return Launch(tuple(started), found.keys, (), found.work)

    def prepared(self, k: int, call: Any, tensors: dict[str, Any], index: int) -> Launch | None:
        """The launches of unit number k for a call's sizes, strides, alignments and numbers."""
        unit = self.units[k]
        if self.sorts:
            arch = self.run.arch or arch_of(index)
            if isinstance(unit, SortLayout):
                return (found := keys.launches(unit, call, tensors, arch)) and self.sorted(found, arch)
            if any(u.sums and u.sums.unit == k and keys.reducing(u, call, tensors, arch) for u in self.sorts):
                return None
        assert not isinstance(unit, SortLayout)
        sizes, shapes, operands, gathers = self.taken(k, call, tensors)
        scalars = list(zip(number_values(unit, call.given, sizes), unit.scalar_dtypes(call.binding), strict=True))
        binding = tuple(call.binding[v] for v in unit.variables)
        turns = bool(self.grouped[k]) and self.turns(k, tensors)
        if isinstance(unit, Layout):
            extents = [call.stride_along(tensors[name], dims, dim) for name, dims, dim in unit.reaches]
            extents += [sizes[dim] for dim in dict.fromkeys(dim for _, _, dim in unit.reaches)]
            scalars += [(n, "i64") for n in extents]
            return self.run.over(k, binding, shapes[0], [(place, steps[0], size) for place, steps, size in operands], scalars, index, turns)
        rowed = [(place, tuple(outer), tuple(inner), size) for place, (outer, inner), size in operands]
        return self.run.rows(k, binding, shapes[0], shapes[1], rowed, gathers, scalars, index, turns)


__all__ = [
    "OPTIONS", "THREADS", "CudaLauncher", "Launch", "Launcher", "Function", "arch_of", "available", "compile_cubin",
    "context", "load", "number_values", "preload", "version"]  # fmt: skip
