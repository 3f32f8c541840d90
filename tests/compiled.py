"""What a call would build on an H200, built without one: every kernel that it launches, through NVRTC and through Triton.

A test that has a GPU build a kernel calls `compile_call` with the same arguments, on the CPU, where there is none: the launcher plans
the same variants and hands the same source with the same options to the same compiler.  What comes out goes into the cache of the
session, which its workers share; nothing is launched.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unittest import mock

import torch

import kgen
from kgen.runtime import driver, nvrtc, toolchain
from kgen.runtime.arguments import bind
from kgen.runtime.kernel import _Triton

ARCH = "sm_90"
TARGETS = ("cuda", "triton")


class Compiled:
    """Stands for a loaded kernel, whose launches do nothing."""

    entry = None

    def __init__(self, cubin: bytes, lowered: str):
        assert cubin.startswith(b"\x7fELF") and lowered.encode() in cubin, lowered

    def __call__(self, *_: Any) -> None:
        pass


class Absent:
    """The launchers of one kernel for a device that is not here."""

    def __init__(self, kernel: kgen.Kernel):
        self.cuda, self.triton = nvrtc.Launcher(kernel.kernel), _Triton(kernel.kernel)
        self.cuda.run.arch = ARCH


@lru_cache(maxsize=64)
def launchers(kernel: kgen.Kernel) -> Absent:
    return Absent(kernel)


def compile_call(kernel: kgen.Kernel, *args: Any, targets: tuple[str, ...] = TARGETS, **kwargs: Any) -> None:
    """Build what the call `kernel(*args, **kwargs)` launches on each target, for tensors on the CPU.

    Raises what the call would: `KgenError` with NVRTC's log, or Triton's own errors.
    """
    assert driver.available(), "NVRTC is missing: pip install nvidia-cuda-nvrtc"
    out = kwargs.pop("out", None)
    with torch.no_grad():
        call = bind(kernel.kernel, args, kwargs, out, kernel._alone)
        if not any(t.numel() for t in call.results.values()):
            return
        made = launchers(kernel)
        if "cuda" in targets:
            with mock.patch.object(nvrtc, "load", Compiled):
                made.cuda.launch(call, 0, 0)
        if "triton" in targets:
            toolchain.triton_kernels(made.triton, call, ARCH)
