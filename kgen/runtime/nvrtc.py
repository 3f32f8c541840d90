"""CUDA kernels at run time: compiled by NVRTC, loaded and launched through the driver.

In: a `.cu` source, the layouts of its units, and the places, sizes and strides of a call.  Out: a launch on the caller's
stream.  `plan` is the host's arithmetic, the same as in the source's own host part; cuda.bindings is imported at the
first compilation, torch never.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.util
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from kgen.backends.cuda import SPLATS, Layout
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.host import evaluate, to_dtype
from kgen.ir import exact
from kgen.types import DTYPES, ELLIPSIS, FLOAT, Number

THREADS = 128
OPTIONS = ("-std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false")
UINT_MAX, MAX_GRID = 2**32 - 1, 2**31 - 1

# ---------------------------------------------------------------------------------------------------------------- plan


class Variant(NamedTuple):
    """What a kernel is instantiated for: `vec` elements a thread, a bit of `splat` for each operand that stands still
    along the innermost dim, 64-bit offsets where `wide`."""

    rank: int
    vec: int
    wide: bool
    splat: int


@dataclass(frozen=True)
class Plan:
    """A variant and the merged dims, outermost first: `sizes[d]`, `strides[operand][d]`, in elements."""

    variant: Variant
    n: int
    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def grid(self) -> int:
        per_block = THREADS * self.variant.vec
        return -(-self.n // per_block)


def plan(sizes: Sequence[int], strides: Sequence[Sequence[int]], itemsizes: Sequence[int], addresses: Sequence[int]) -> Plan | None:
    """How to walk operands of one broadcast shape, the last of them written; None if it has no elements.

    `strides[operand][dim]` are in elements, none negative; `itemsizes` and `addresses` in bytes, 0 for operands without
    memory (indices).  `vec` is the largest power of two, up to 16 bytes of the widest operand, for which each operand
    that moves along the innermost dim does so in whole aligned vectors.
    """
    n = 1
    for size in sizes:
        n *= size
    if n == 0:
        return None
    merged: list[tuple[int, tuple[int, ...]]] = []
    for d in sorted((d for d, size in enumerate(sizes) if size != 1), key=lambda d: -strides[-1][d]):
        size, step = sizes[d], tuple(s[d] for s in strides)
        if merged and all(outer == inner * size for outer, inner in zip(merged[-1][1], step, strict=True)):
            size *= merged.pop()[0]
        merged.append((size, step))
    if not merged:
        merged = [(1, (1,) * len(strides))]
    shape = tuple(size for size, _ in merged)
    rows = tuple(tuple(step[o] for _, step in merged) for o in range(len(strides)))
    splat = sum(1 << o for o, row in enumerate(rows) if row[-1] == 0)
    vec = 16 // max(1, *itemsizes) if splat < 1 << SPLATS else 1
    while vec > 1 and not _vectors(vec, shape, rows, itemsizes, addresses):
        vec //= 2
    if vec == 1:
        splat = 0
    wide = n > UINT_MAX - THREADS * vec or any(sum((size - 1) * s for size, s in zip(shape, row, strict=True)) > UINT_MAX for row in rows)
    return Plan(Variant(len(shape), vec, wide, splat), n, shape, rows)


_plan = lru_cache(4096)(plan)  # by place within 16 bytes: no more of an address counts


def _vectors(vec: int, shape: Sequence[int], rows: Sequence[Sequence[int]], itemsizes: Sequence[int], addresses: Sequence[int]) -> bool:
    if len(shape) > 1 and shape[-1] % vec:
        return False
    for (*outer, inner), itemsize, address in zip(rows, itemsizes, addresses, strict=True):
        if inner == 0:
            continue
        if inner != 1 or itemsize and (address % (vec * itemsize) or any(s % vec for s in outer)):
            return False
    return True


# ------------------------------------------------------------------------------------------------------------ arguments


@cache
def _layout_type(rank: int, operands: int, wide: bool) -> type[ctypes.Structure]:
    """The kernel's `Layout<RANK, K, Index>`."""
    index = ctypes.c_uint64 if wide else ctypes.c_uint32
    return type("Layout", (ctypes.Structure,), {"_fields_": [("n", index), ("size", index * rank), ("stride", index * rank * operands)]})


_SCALARS: dict[str, Any] = {
    "f32": ctypes.c_float, "f64": ctypes.c_double, "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
    "i64": ctypes.c_int64, "bool": ctypes.c_bool,
}  # fmt: skip


def arguments(planned: Plan, pointers: Sequence[int], scalars: Sequence[tuple[Any, str]]) -> list[Any]:
    """The kernel's arguments as ctypes values: the layout, the pointers of operands with memory, the scalars, each
    rounded once to its dtype."""
    v = planned.variant
    layout = _layout_type(v.rank, len(planned.strides), v.wide)()
    layout.n = planned.n
    layout.size[:] = planned.sizes
    for row, strides in zip(layout.stride, planned.strides, strict=True):
        row[:] = strides
    return [layout, *map(ctypes.c_void_p, pointers), *(_SCALARS[dtype](to_dtype(value, DTYPES[dtype])) for value, dtype in scalars)]


# ---------------------------------------------------------------------------------------------------------------- NVRTC


@cache
def preload() -> str | None:
    """Load libnvrtc and its builtins from the nvidia wheels by full path, before cuda.bindings asks for them; returns the
    library's path, or None where there are no such wheels.

    CUDA 13.0's libnvrtc has no RPATH and so does not find its builtins beside it.
    """
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for folder in ("cu13", "cuda_nvrtc"):  # the layouts of CUDA 13 and of 12
            found = sorted(glob.glob(os.path.join(root, folder, "lib", "libnvrtc.so.1[0-9]")))
            if found:
                for path in (*sorted(glob.glob(os.path.join(os.path.dirname(found[-1]), "libnvrtc-builtins.so.*"))), found[-1]):
                    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                return found[-1]
    return None


@cache
def _bindings() -> tuple[Any, Any]:
    """cuda.bindings' (driver, nvrtc)."""
    try:
        preload()
        from cuda.bindings import driver, nvrtc
    except (ImportError, OSError) as error:
        raise KgenError(f"the CUDA runtime needs cuda-bindings and NVRTC, which PyTorch's CUDA wheels bring: {error}") from None
    return driver, nvrtc


def _checked(result: tuple, ok: Any, what: str, text: Callable[[Any], tuple]) -> Any:
    status, *values = result
    if status != ok:
        said = text(status)[-1]
        raise KgenError(f"{what}: {said.decode() if isinstance(said, bytes) else status}")
    return values[0] if len(values) == 1 else values


def compile_cubin(source: str, names: list[str], arch: str) -> tuple[bytes, dict[str, str]]:
    """The machine code of `source` for `arch` ("sm_90") and the lowered name of each name expression.

    Raises `KgenError` with the compiler's log.
    """
    _, nvrtc = _bindings()

    def ok(result: tuple) -> Any:
        return _checked(result, nvrtc.nvrtcResult.NVRTC_SUCCESS, "NVRTC", nvrtc.nvrtcGetErrorString)

    program = ok(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
    try:
        for name in names:
            ok(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        flags = [flag.encode() for flag in (f"--gpu-architecture={arch}", *OPTIONS)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytes(1 + ok(nvrtc.nvrtcGetProgramLogSize(program)))  # never one byte long: CPython shares those, NVRTC writes into it
            ok(nvrtc.nvrtcGetProgramLog(program, log))
            reason = nvrtc.nvrtcGetErrorString(status)[1].decode()
            raise KgenError(f"NVRTC cannot compile this for {arch}: {reason}\n{log.rstrip(bytes(1)).decode()}")
        lowered = {name: ok(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names}
        cubin = bytes(ok(nvrtc.nvrtcGetCUBINSize(program)))
        ok(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin, lowered
    finally:
        nvrtc.nvrtcDestroyProgram(program)


@cache
def version() -> str:
    """NVRTC's version, "13.0"."""
    _, nvrtc = _bindings()
    return ".".join(map(str, nvrtc.nvrtcVersion()[1:]))


# --------------------------------------------------------------------------------------------------------------- driver


def _cu(result: tuple) -> Any:
    driver, _ = _bindings()
    return _checked(result, driver.CUresult.CUDA_SUCCESS, "CUDA", driver.cuGetErrorString)


@cache
def arch_of(device: int) -> str:
    """A device's architecture, "sm_90"."""
    driver, _ = _bindings()
    _cu(driver.cuInit(0))
    handle = _cu(driver.cuDeviceGet(device))
    kinds = driver.CUdevice_attribute
    major = _cu(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle))
    minor = _cu(driver.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle))
    return f"sm_{major}{minor}"


@cache
def _context(device: int) -> Any:
    """A device's primary context, which is torch's."""
    driver, _ = _bindings()
    return _cu(driver.cuDevicePrimaryCtxRetain(_cu(driver.cuDeviceGet(device))))


class Function:
    """A loaded kernel.  A library is independent of contexts: one load serves every device of its architecture."""

    def __init__(self, cubin: bytes, lowered: str):
        driver, _ = _bindings()
        self.library = _cu(driver.cuLibraryLoadData(cubin, None, None, 0, None, None, 0))
        self.kernel = driver.CUfunction(int(_cu(driver.cuLibraryGetKernel(self.library, lowered.encode()))))

    def __call__(self, grid: int, device: int, stream: int, values: list[Any]) -> None:
        """Launch on a stream (0: the device's default one); the device is made current for it and then as it was."""
        driver, _ = _bindings()
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        context = _context(device)
        current = _cu(driver.cuCtxGetCurrent())
        moved = int(current) != int(context)
        if moved:
            _cu(driver.cuCtxPushCurrent(context))
        try:
            # an int is taken for the void** itself; the driver copies the values before it returns
            _cu(driver.cuLaunchKernel(self.kernel, grid, 1, 1, THREADS, 1, 1, 0, stream, ctypes.addressof(places), 0))
        finally:
            if moved:
                _cu(driver.cuCtxPopCurrent())


def load(cubin: bytes, lowered: str) -> Function:
    """The kernel of a lowered name out of machine code.  Raises `KgenError` where the driver refuses it."""
    return Function(cubin, lowered)


class CudaLauncher:
    """Launches the units of one source; each variant is compiled when it is first needed.

    `units` is `Cuda.layout(kernel)`.  `lookup(key)` gives the bytes that `save(key, bytes)` kept, or None; both are optional,
    and what cannot be loaded is compiled anew.
    """

    def __init__(
        self,
        source: str,
        units: Sequence[Layout],
        lookup: Callable[[str], bytes | None] | None = None,
        save: Callable[[str, bytes], Any] | None = None,
    ):
        self.source, self.units, self.lookup, self.save = source, tuple(units), lookup, save
        self.digest = hashlib.sha256(source.encode()).hexdigest()
        self.functions: dict[tuple[str, str], Function] = {}

    def __call__(
        self, unit_index: int, binding: tuple[str, ...], sizes: Sequence[int], operands: Sequence[tuple[int, Sequence[int], int]],
        scalars: Sequence[tuple[Any, str]], device_index: int, stream: int,
    ) -> None:  # fmt: skip
        """Run a unit over one broadcast shape; with no elements, do nothing.

        `binding` has the dtypes of the unit's `variables`, in that order.  `operands`, in the order of the unit's, are
        (address, strides in elements, bytes an element), indices (0, strides, 0).  `scalars` are (value, dtype) in the order
        of the unit's, with the dtypes that its `scalar_dtypes` gives.  `stream` is a raw CUstream.
        """
        unit = self.units[unit_index]
        strides = tuple(tuple(s) for _, s, _ in operands)
        planned = _plan(tuple(sizes), strides, tuple(b for _, _, b in operands), tuple(a % 16 for a, _, _ in operands))
        if planned is None:
            return
        if planned.grid > MAX_GRID:
            raise KgenError(f"{planned.n} elements are more than one launch of {unit.kernel} covers")
        expression = unit.expression(dict(zip(unit.variables, binding, strict=True)), *planned.variant)
        pointers = [address for (address, _, _), operand in zip(operands, unit.operands, strict=True) if operand.role != "index"]
        function = self.function(expression, arch_of(device_index))
        function(planned.grid, device_index, stream, arguments(planned, pointers, scalars))

    def function(self, expression: str, arch: str) -> Function:
        """The loaded kernel of a name expression for an architecture."""
        found = self.functions.get((expression, arch))
        if found is None:
            found = self.functions[expression, arch] = self._load(expression, arch)
        return found

    def _load(self, expression: str, arch: str) -> Function:
        key = hashlib.sha256("\0".join((self.digest, expression, arch, *OPTIONS, version())).encode()).hexdigest()
        kept = self.lookup(key) if self.lookup else None
        if kept:
            try:
                (length,) = struct.unpack_from("<I", kept)
                return load(kept[4 + length :], kept[4 : 4 + length].decode())
            except (KgenError, struct.error, UnicodeDecodeError):
                pass  # an entry of no use: as if there were none
        cubin, names = compile_cubin(self.source, [expression], arch)
        lowered = names[expression].encode()
        if self.save:
            self.save(key, struct.pack("<I", len(lowered)) + lowered + cubin)
        return load(cubin, names[expression])


def number_values(unit: Layout, given: dict[str, Any], sizes: dict[str, int]) -> list[Any]:
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


class Launcher:
    """Calls a kernel through NVRTC on torch's CUDA tensors, on torch's current stream; keeps what it compiles in the cache."""

    def __init__(self, kernel: Kernel):
        from kgen.backends import backend
        from kgen.runtime import cache as disk

        target = backend("cuda")
        self.kernel, self.units = kernel, target.layout(kernel)  # type: ignore[attr-defined]

        def lookup(key: str) -> bytes | None:
            found = disk.read(key, ".cubin")
            return found[1] if found else None

        self.run = CudaLauncher(target.render(kernel), self.units, lookup, lambda key, data: disk.write(key, ".cubin", data))

    def __call__(self, call: Any) -> None:
        """`call` is a `kgen.runtime.arguments.Call` whose tensors lie on one CUDA device."""
        import torch

        index = call.device.index if call.device.index is not None else torch.cuda.current_device()
        stream = torch._C._cuda_getCurrentRawStream(index)
        for k, unit in enumerate(self.units):
            over = unit.dims
            operands: list[tuple[int, Sequence[int], int]] = []
            for o in unit.operands:
                if o.role == "index":
                    dims = [d for d in over if d != ELLIPSIS]
                    lead = len(call.shape(over)) - len(dims)
                    operands.append((0, [0] * lead + [int(d == o.name) for d in dims], 0))
                else:
                    tensor = (call.results if o.role == "result" else call.given)[o.name]
                    operands.append((tensor.data_ptr(), call.strides(tensor, o.dims, over), tensor.element_size()))
            scalars = list(zip(number_values(unit, call.given, call.sizes), unit.scalar_dtypes(call.binding), strict=True))
            self.run(k, tuple(call.binding[v] for v in unit.variables), call.shape(over), operands, scalars, index, stream)


__all__ = [
    "OPTIONS",
    "THREADS",
    "CudaLauncher",
    "Launcher",
    "Function",
    "Plan",
    "Variant",
    "arch_of",
    "arguments",
    "compile_cubin",
    "load",
    "number_values",
    "plan",
    "preload",
    "version",
]
