"""The CUDA driver and NVRTC, through ctypes: loading a module of bindings would take longer than a kernel's first call.

In: machine code, or a source.  Out: loaded functions and their launches; machine code.  Neither library is loaded before it is
needed: what comes from the cache needs no NVRTC.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from kgen.errors import KgenError

THREADS = 128
# cuda.h's numbers
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_
_MAX_SHARED, _LARGE_CLUSTERS = 8, 14  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, ..._NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_CLUSTER, _FOLLOWS = 4, 6  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, ..._PROGRAMMATIC_STREAM_SERIALIZATION


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint),
    ]  # fmt: skip


_DRIVER: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (ctypes.c_void_p,),
    "cuDeviceGet": (ctypes.c_void_p, ctypes.c_int),
    "cuDeviceGetAttribute": (ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.c_void_p, ctypes.c_int),
    "cuCtxGetCurrent": (ctypes.c_void_p,),
    "cuCtxPushCurrent_v2": (ctypes.c_void_p,),
    "cuCtxPopCurrent_v2": (ctypes.c_void_p,),
    "cuGetErrorString": (ctypes.c_int, ctypes.c_void_p),
    "cuLibraryLoadData": (ctypes.c_void_p, ctypes.c_char_p, *[ctypes.c_void_p] * 2, ctypes.c_uint, *[ctypes.c_void_p] * 2, ctypes.c_uint),
    "cuLibraryGetKernel": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
    "cuKernelSetAttribute": (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
    "cuLaunchKernel": (ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3),
    "cuLaunchKernelEx": (ctypes.c_void_p,) * 4,
    "cuOccupancyMaxActiveClusters": (ctypes.c_void_p,) * 3,
}
_NVRTC: dict[str, tuple[Any, ...]] = {
    "nvrtcVersion": (ctypes.c_void_p,) * 2,
    "nvrtcCreateProgram": (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    "nvrtcAddNameExpression": (ctypes.c_void_p, ctypes.c_char_p),
    "nvrtcCompileProgram": (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
    "nvrtcGetProgramLogSize": (ctypes.c_void_p,) * 2,
    "nvrtcGetProgramLog": (ctypes.c_void_p,) * 2,
    "nvrtcGetLoweredName": (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    "nvrtcGetCUBINSize": (ctypes.c_void_p,) * 2,
    "nvrtcGetCUBIN": (ctypes.c_void_p,) * 2,
    "nvrtcDestroyProgram": (ctypes.c_void_p,),
}


def _declared(library: Any, functions: dict[str, tuple[Any, ...]]) -> Any:
    for name, types in functions.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types, ctypes.c_int
    return library


# --------------------------------------------------------------------------------------------------------------- NVRTC


@cache
def nvrtc_path() -> str | None:
    """The newest libnvrtc of the nvidia wheels, by its full path; None where there are no such wheels."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for folder in ("cu13", "cuda_nvrtc"):  # the layouts of CUDA 13 and of 12
            found = sorted(glob.glob(os.path.join(root, folder, "lib", "libnvrtc.so.1[0-9]")))
            if found:
                return found[-1]
    return None


@cache
def preload() -> str | None:
    """Load libnvrtc's builtins from beside it; returns its path, or None where there are no nvidia wheels.

    CUDA 13.0's libnvrtc has no RPATH and so does not find its builtins beside it.
    """
    path = nvrtc_path()
    if path is not None:
        for builtins in sorted(glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so.*"))):
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)
    return path


@cache
def _nvrtc() -> Any:
    try:
        names = (preload(),) if nvrtc_path() else ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
        said = ""
        for name in names:
            try:
                return _declared(ctypes.CDLL(name), _NVRTC)
            except OSError as error:
                said = said or str(error)
    except (OSError, AttributeError) as error:
        said = str(error)
    raise KgenError(f"the CUDA runtime needs NVRTC, which PyTorch's CUDA wheels bring: {said}")


@cache
def available() -> bool:
    """Whether NVRTC is installed."""
    if nvrtc_path() is not None:
        return True
    try:
        _nvrtc()
    except KgenError:
        return False
    return True


@cache
def version() -> str:
    """NVRTC's version, "13.0"."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@cache
def identity() -> str:
    """What tells this NVRTC from another: its file, where that is known, so that nothing need be loaded for it; else its version."""
    path = nvrtc_path()
    if path is None:
        return version()
    status = os.stat(os.path.realpath(path))
    return f"{os.path.realpath(path)} {status.st_size} {status.st_mtime_ns}"


def _text(error: int) -> str:
    function = _nvrtc().nvrtcGetErrorString
    function.argtypes, function.restype = (ctypes.c_int,), ctypes.c_char_p
    return (function(error) or b"unknown").decode()


def compile_cubin(source: str, names: list[str], arch: str, options: tuple[str, ...]) -> tuple[bytes, dict[str, str]]:
    """The machine code of `source` for `arch` ("sm_90") and the lowered name of each name expression.

    Raises `KgenError` with the compiler's log.
    """
    return compiled(source, names, arch, options)[:2]


def compiled(source: str, names: list[str], arch: str, options: tuple[str, ...]) -> tuple[bytes, dict[str, str], str]:
    """The same, and what the compiler said: with the option `--ptxas-options=-v` also how many registers a kernel takes."""
    library, program = _nvrtc(), ctypes.c_void_p()

    def ok(status: int) -> None:
        if status:
            raise KgenError(f"NVRTC: {_text(status)}")

    def read(kind: str) -> bytes:
        size = ctypes.c_size_t()
        ok(getattr(library, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value + 1)
        ok(getattr(library, f"nvrtcGet{kind}")(program, buffer))
        return buffer.raw[: size.value]

    ok(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        for name in names:
            ok(library.nvrtcAddNameExpression(program, name.encode()))
        flags = [flag.encode() for flag in (f"--gpu-architecture={arch}", *options)]
        status = library.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
        if status:
            log = read("ProgramLog").rstrip(bytes(1)).decode(errors="replace")
            raise KgenError(f"NVRTC cannot compile this for {arch}: {_text(status)}\n{log}")
        lowered = {}
        for name in names:
            found = ctypes.c_char_p()
            ok(library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(found)))
            lowered[name] = (found.value or b"").decode()
        return read("CUBIN"), lowered, read("ProgramLog").rstrip(bytes(1)).decode(errors="replace")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def warm_up(arch: str) -> threading.Thread:
    """Have NVRTC compile nothing much in another thread: its first compilation takes most of its time to find itself, which it may
    do while a spec is read."""

    def compile_little() -> None:
        try:
            compile_cubin("__global__ void little() {}", [], arch, ())
        except KgenError:
            pass  # who needs it will hear of it

    thread = threading.Thread(target=compile_little, name="kgen-nvrtc")
    thread.start()
    return thread


# -------------------------------------------------------------------------------------------------------------- driver


@cache
def _driver() -> Any:
    try:
        return _declared(ctypes.CDLL("libcuda.so.1"), _DRIVER)
    except (OSError, AttributeError) as error:
        raise KgenError(f"there is no CUDA driver that kgen can use: {error}") from None


def _cu(status: int) -> None:
    if status:
        said = ctypes.c_char_p()
        _driver().cuGetErrorString(status, ctypes.byref(said))
        raise KgenError(f"CUDA: {(said.value or b'unknown error').decode()}")


@cache
def _device(index: int) -> int:
    found = ctypes.c_int()
    _cu(_driver().cuInit(0))
    _cu(_driver().cuDeviceGet(ctypes.byref(found), index))
    return found.value


@cache
def cuda_version() -> tuple[int, int]:
    """The newest CUDA that the driver knows, (13, 0)."""
    found = ctypes.c_int()
    _cu(_driver().cuDriverGetVersion(ctypes.byref(found)))
    return found.value // 1000, found.value % 1000 // 10


@cache
def arch_of(device: int) -> str:
    """A device's architecture, "sm_90"."""
    numbers = []
    for attribute in (_MAJOR, _MINOR):
        found = ctypes.c_int()
        _cu(_driver().cuDeviceGetAttribute(ctypes.byref(found), attribute, _device(device)))
        numbers.append(found.value)
    return "sm_{}{}".format(*numbers)


@cache
def context(device: int) -> int:
    """A device's primary context, which is torch's."""
    found = ctypes.c_void_p()
    _cu(_driver().cuDevicePrimaryCtxRetain(ctypes.byref(found), _device(device)))
    return found.value or 0


@contextmanager
def _current(device: int) -> Iterator[None]:
    """A device is the current one within, and behind it the one before is."""
    driver, own, current = _driver(), context(device), ctypes.c_void_p()
    _cu(driver.cuCtxGetCurrent(ctypes.byref(current)))
    moved = current.value != own
    if moved:
        _cu(driver.cuCtxPushCurrent_v2(own))
    try:
        yield
    finally:
        if moved:
            _cu(driver.cuCtxPopCurrent_v2(ctypes.byref(current)))


def _asked(grid: int, threads: int, shared: int, cluster: int, stream: int, follows: bool = False) -> _Config:
    """What a launch in clusters asks for, or one that `follows` another and may begin before that has ended."""
    own = [_Attribute(_CLUSTER, 0, (cluster, 1, 1))] * (cluster > 1 or not follows) + [_Attribute(_FOLLOWS, 0, (1,))] * follows
    return _Config((grid, 1, 1), (threads, 1, 1), shared, stream, (_Attribute * len(own))(*own), len(own))


class Function:
    """A loaded kernel.  A library is independent of contexts: one load serves every device of its architecture."""

    def __init__(self, cubin: bytes, lowered: str):
        library, handle = ctypes.c_void_p(), ctypes.c_void_p()
        _cu(_driver().cuLibraryLoadData(ctypes.byref(library), cubin, None, None, 0, None, None, 0))
        _cu(_driver().cuLibraryGetKernel(ctypes.byref(handle), library, lowered.encode()))
        self.library, self.kernel = library, handle.value or 0
        self.entry: str | None = None  # of the cache, where its code is kept
        self.allowed: dict[int, list[int]] = {}
        self.rooms: dict[tuple[int, int, int, int], int] = {}

    def __call__(
        self, grid: int, device: int, stream: int, values: list[Any], threads: int = THREADS, shared: int = 0, cluster: int = 1,
        follows: bool = False,
    ) -> None:  # fmt: skip
        """Launch on a stream (0: the device's default one); the device is made current for it and then as it was.  `follows`: it may begin
        before the launch before it has ended, for which the kernel waits itself."""
        driver = _driver()
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        with _current(device):
            self.allow(device, shared, cluster)
            if cluster > 1 or follows:
                config = _asked(grid, threads, shared, cluster, stream, follows)
                _cu(driver.cuLaunchKernelEx(ctypes.byref(config), self.kernel, places, None))
            else:
                _cu(driver.cuLaunchKernel(self.kernel, grid, 1, 1, threads, 1, 1, shared, stream, places, None))

    def room(self, device: int, threads: int, shared: int, cluster: int) -> int:
        """How many clusters of such a launch a device has room for at once, by its driver: chips of one architecture differ in that.  0
        where it does not say."""
        key = device, threads, shared, cluster
        if key not in self.rooms:
            found, config = ctypes.c_int(), _asked(cluster, threads, shared, cluster, 0)
            with _current(device):
                self.allow(device, shared, cluster)
                refused = _driver().cuOccupancyMaxActiveClusters(ctypes.byref(found), self.kernel, ctypes.byref(config))
            self.rooms[key] = 0 if refused else found.value
        return self.rooms[key]

    def allow(self, device: int, shared: int, cluster: int) -> None:
        """Let the kernel use more shared memory and larger clusters than any device has."""
        known = self.allowed.setdefault(device, [0, 8])  # not 48 KB: what the kernel has for itself counts with them
        if shared > known[0]:
            _cu(_driver().cuKernelSetAttribute(_MAX_SHARED, shared, self.kernel, _device(device)))
            known[0] = shared
        if cluster > known[1]:
            _cu(_driver().cuKernelSetAttribute(_LARGE_CLUSTERS, 1, self.kernel, _device(device)))
            known[1] = cluster
