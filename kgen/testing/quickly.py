"""What campaigns on GPUs do to cost less: launches of Triton's kernels for which nothing is built, waits that take no processor, and
compilers that spend little on making code quicker.

In: nothing.  Out: nothing; the first two hold for a process, from then on, the last as long as it is asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

_BLOCKING_SYNC = 4  # CU_CTX_SCHED_BLOCKING_SYNC
#: With which NVRTC takes less than half of its time, if it knows the option.
FAST_COMPILE = "--Ofast-compile=mid"


def wait_without_spinning() -> None:
    """Have this process sleep where it waits for a GPU, from the first use of one on: where many share it, a wait is long."""
    from kgen.errors import KgenError
    from kgen.runtime import driver

    with contextlib.suppress(KgenError):
        library, count = driver._driver(), ctypes.c_int()
        driver._cu(library.cuInit(0))
        driver._cu(library.cuDeviceGetCount(ctypes.byref(count)))
        for k in range(count.value):
            driver._cu(library.cuDevicePrimaryCtxSetFlags_v2(driver._device(k), _BLOCKING_SYNC))


def launch_quickly() -> None:
    """Have Triton launch by `Launcher`: up to Triton 3.6 it has a C compiler build a library for each signature."""
    import inspect

    try:
        from triton.backends.nvidia import driver as nvidia
    except ImportError:
        return
    own = nvidia.CudaLauncher
    if "make_launcher" not in inspect.getsource(own.__init__):  # a newer Triton builds nothing
        return

    def launcher(src: Any, metadata: Any) -> Any:
        return Launcher(src.signature, metadata) if Launcher.takes(src.signature, metadata) else own(src, metadata)

    nvidia.CudaLauncher = launcher


@cache
def _knows_fast_compile() -> bool:
    """Whether NVRTC takes FAST_COMPILE."""
    from kgen.errors import KgenError
    from kgen.runtime import driver

    try:
        driver.compile_cubin("", [], "compute_80", (FAST_COMPILE,))
    except KgenError:
        return False
    return True


@contextlib.contextmanager
def optimised_little() -> Iterator[None]:
    """Have NVRTC and Triton's assembler optimise little; what they make is kept apart from what users get."""
    from kgen.runtime import nvrtc

    own = nvrtc.OPTIONS
    if _knows_fast_compile():
        nvrtc.OPTIONS = (*own, FAST_COMPILE)
    try:
        with assembled_quickly():
            yield
    finally:
        nvrtc.OPTIONS = own


@contextlib.contextmanager
def assembled_quickly() -> Iterator[None]:
    """Have Triton assemble at -O1, which takes a fifth less of ptxas' time; the option is part of what Triton keeps a kernel by."""
    try:
        from triton.backends.nvidia.compiler import CUDABackend
    except ImportError:
        yield
        return
    own = CUDABackend.parse_options

    def parsed(self: Any, options: dict[str, Any]) -> Any:
        return own(self, {"ptx_options": "--opt-level 1", **options})

    CUDABackend.parse_options = parsed
    try:
        yield
    finally:
        CUDABackend.parse_options = own


class Launcher:
    """A Triton kernel's launches as Triton's own launcher makes them: called with a grid, a stream, the kernel's handle, its warps,
    clusters and shared memory, what hooks are told and hooks, then all arguments, constants among them."""

    def __init__(self, signature: Mapping[Any, Any], metadata: Any):
        from kgen.runtime.replay import PASSED

        kinds = list(signature.values())
        self.passed = [(k, None if kind[0] == "*" else PASSED[kind]) for k, kind in enumerate(kinds) if kind != "constexpr"]

    @staticmethod
    def takes(signature: Mapping[Any, Any], metadata: Any) -> bool:
        """Whether all that a kernel is given is tensors, integers, f32 and f64, and its blocks need nothing more of a launch."""
        from kgen.runtime.replay import PASSED

        more = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
        if getattr(metadata, "num_ctas", 1) != 1 or any(getattr(metadata, name, 0) for name in more):
            return False
        if not hasattr(metadata, "profile_scratch_size"):  # an older Triton hands its launcher other things
            return False
        return all(isinstance(kind, str) and (kind == "constexpr" or kind[0] == "*" or kind in PASSED) for kind in signature.values())

    def __call__(
        self, x: int, y: int, z: int, stream: int, function: int, packed: tuple[int, int, int], told: Any, before: Any, after: Any,
        *given: Any,
    ) -> None:  # fmt: skip
        """Launch.  Raises `ValueError` for a tensor that is not on a GPU, `KgenError` with what the driver says."""
        from kgen.runtime import driver

        if x * y * z == 0:
            return
        values: list[Any] = []
        for k, kind in self.passed:
            if kind is None and not given[k].is_cuda:
                raise ValueError(f"argument {k} is not on a GPU")
            values.append(ctypes.c_uint64(given[k].data_ptr()) if kind is None else kind(given[k]))
        values += [ctypes.c_uint64(), ctypes.c_uint64()]  # memory of its own, of which it has none
        places = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        warps, _, shared = packed
        driver._cu(driver._driver().cuLaunchKernel(function, x, y, z, 32 * warps, 1, 1, shared, stream, places, None))
