"""The backends by target name; each is imported when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kgen.errors import KgenError

if TYPE_CHECKING:
    from kgen.backends.base import Backend


class Target(NamedTuple):
    """Where a target's backend stands, what launches its kernels ("module:class", imported when it is asked for), on what device their
    tensors lie, and what writes sources for known dims and dtypes."""

    backend: str
    launcher: str
    device: str
    static: str = ""


#: The targets, in the order in which they are listed everywhere.
TARGETS = {
    "triton": Target("kgen.backends.triton:Triton", "kgen.runtime.launchers:Triton", "cuda", "kgen.backends.triton_static:written"),
    "cuda": Target("kgen.backends.cuda:Cuda", "kgen.runtime.launchers:Cuda", "cuda", "kgen.backends.cuda_static:written"),
    "cpp": Target("kgen.backends.cpp:Cpp", "kgen.runtime.launchers:Cpp", "cpu", "kgen.backends.cpp_static:written"),
}


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def backend(target: str) -> Backend:
    """The backend that serves a target.  Raises `KgenError` where there is no such target."""
    if target not in TARGETS:
        raise KgenError(f"there is no target {target}", help=f"targets are {', '.join(TARGETS)}")
    return _named(TARGETS[target].backend)()


def static_writer(target: str) -> Any:
    """What writes a target's sources for known dims and dtypes: of a backend, a kernel and what is known of it (`kgen.backends.static`),
    and of the planner of passes over rows (`kgen.runtime.static`)."""
    return _named(TARGETS[target].static)


def launcher(target: str) -> Any:
    """What launches kernels on a target: of a checked kernel a callable of its calls (`kgen.runtime.launchers`)."""
    return _named(TARGETS[target].launcher)


__all__ = ["TARGETS", "Target", "backend", "launcher", "static_writer"]
