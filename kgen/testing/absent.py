"""Kernels compiled for a GPU that is not here: what a call would build, through NVRTC and through Triton, and no launch.

In: a checked kernel and a call's arguments on the CPU.  Out: nothing, or what the call would raise; results come from the torch
evaluator.  The launchers plan the same variants and hand the same source with the same options to the same compilers.
"""

from __future__ import annotations

import importlib.util
from functools import cached_property
from typing import Any
from unittest import mock

from kgen.check import Kernel
from kgen.errors import KgenError

ARCH = "sm_90"


class _Loaded:
    """Stands for a loaded kernel, whose launches do nothing."""

    entry = None

    def __init__(self, cubin: bytes, lowered: str):
        if not cubin.startswith(b"\x7fELF") or lowered.encode() not in cubin:
            raise KgenError(f"NVRTC gave no machine code for {lowered}")

    def __call__(self, *_: Any) -> None:
        pass


def missing(target: str) -> str:
    """What a target needs and this machine lacks to compile; "" where it can."""
    from kgen.runtime import driver

    if target == "cuda":
        return "" if driver.available() else "NVRTC is not installed"
    return "" if importlib.util.find_spec("triton") else "triton is not installed"


class Absent:
    """A kernel that is compiled where it would run (`_run`, as a runnable kernel has it)."""

    def __init__(self, kernel: Kernel):
        from kgen.runtime.kernel import Kernel as Runnable

        self.kernel, self.runnable = kernel, Runnable(kernel)

    @cached_property
    def cuda(self) -> Any:
        from kgen.runtime import nvrtc

        made = nvrtc.Launcher(self.kernel)
        made.run.arch = ARCH
        return made

    @cached_property
    def triton(self) -> Any:
        from kgen.runtime.launchers import Triton

        return Triton(self.kernel)

    def compile(self, call: Any, target: str) -> None:
        """Build what a bound call launches.  Raises `KgenError` with NVRTC's log, or Triton's own errors."""
        from kgen.runtime import nvrtc, toolchain

        if not any(t.numel() for t in call.results.values()):
            return
        if target == "cuda":
            with mock.patch.object(nvrtc, "load", _Loaded):
                self.cuda.launch(call, 0, 0)
        else:
            toolchain.triton_kernels(self.triton, call, ARCH)

    def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str) -> Any:
        from kgen.runtime.arguments import bind

        returned = self.runnable._run(args, dict(given), out, "torch")  # what has no meaning is refused here
        try:
            self.compile(bind(self.kernel, args, dict(given), out, self.runnable._alone), target)
        except KgenError as error:
            raise RuntimeError(str(error)) from None  # no refusal: a bug
        return returned
