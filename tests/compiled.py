"""What a call would build on an H200, built without one: every kernel that it launches, through NVRTC and through Triton.

A test that has a GPU build a kernel calls `compile_call` with the same arguments, on the CPU, where there is none: the launcher plans
the same variants and hands the same source with the same options to the same compiler.  What comes out goes into the cache of the
session, which its workers share; nothing is launched.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from functools import cached_property, lru_cache
from typing import Any
from unittest import mock

import torch

import kgen
from kgen.runtime import driver, nvrtc, toolchain
from kgen.runtime.arguments import bind
from kgen.runtime.launchers import Triton

ARCH = "sm_90"
TARGETS = ("cuda", "triton")


class Compiled:
    """Stands for a loaded kernel, whose launches do nothing."""

    entry = None

    def __init__(self, cubin: bytes, lowered: str):
        assert cubin.startswith(b"\x7fELF") and lowered.encode() in cubin, lowered

    def __call__(self, *_: Any) -> None:
        pass


class Launchers:
    """Those of one kernel, made when they are needed, for a device that is not here."""

    def __init__(self, kernel: kgen.Kernel):
        self.kernel = kernel

    @cached_property
    def cuda(self) -> nvrtc.Launcher:
        made = nvrtc.Launcher(self.kernel.kernel)
        made.run.arch = ARCH
        return made

    @cached_property
    def triton(self) -> Triton:
        return Triton(self.kernel.kernel)


@lru_cache(maxsize=64)
def launchers(kernel: kgen.Kernel) -> Launchers:
    return Launchers(kernel)


def compile_call(kernel: kgen.Kernel, given: dict[str, Any], targets: tuple[str, ...] = TARGETS, out: Any = None) -> None:
    """Build what a call with the arguments `given`, by name, launches on each target, for tensors on the CPU.

    Raises what the call would: `KgenError` with NVRTC's log, or Triton's own errors; and `AssertionError` where ptxas may fuse what
    Triton wrote, or flushes denormals that no approximation flushes.
    """
    assert driver.available(), "NVRTC is missing: pip install nvidia-cuda-nvrtc"
    kernel = kernel._plain or kernel  # what runs, where a header splits axes
    with torch.no_grad():
        call = bind(kernel.kernel, (), dict(given), out, kernel._alone)
        if not any(t.numel() for t in call.results.values()):
            return
        if "cuda" in targets:
            with mock.patch.object(nvrtc, "load", Compiled):
                launchers(kernel).cuda.launch(call, 0, 0)
        if "triton" in targets and importlib.util.find_spec("triton"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                made = toolchain.triton_kernels(launchers(kernel).triton, call, ARCH)
            for compiled in made.values():
                ptx = compiled.asm["ptx"]
                assert not re.findall(r"\b(?:mul|add|sub)\.f(?:32|64)\b", ptx), "these ptxas may fuse"
                flushing = re.findall(r"\b[a-z0-9.]+\.ftz\.[a-z0-9.]+", ptx)
                assert not [f for f in flushing if not re.match(r"(ex2|lg2|rcp|rsqrt)\.approx\.ftz", f)]


def planned(kernel: kgen.Kernel, given: dict[str, Any]) -> list[str]:
    """The C++ names of the kernels that a call launches on CUDA."""
    return nvrtc.expressions(kernel.kernel, bind(kernel.kernel, (), dict(given), None, kernel._alone), ARCH)
