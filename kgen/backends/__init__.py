"""The backends by target name; each is imported when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kgen.backends.base import Backend


class Target(NamedTuple):
    """Where a target's backend stands, and what launches its kernels ("module:class", imported when it is asked for), and on what
    device their tensors lie."""

    backend: str
    launcher: str
    device: str


#: The targets, in the order in which they are listed everywhere.
TARGETS = {
    "triton": Target("kgen.backends.triton:Triton", "kgen.runtime.launchers:Triton", "cuda"),
    "cuda": Target("kgen.backends.cuda:Cuda", "kgen.runtime.launchers:Cuda", "cuda"),
    "cpp": Target("kgen.backends.cpp:Cpp", "kgen.runtime.launchers:Cpp", "cpu"),
}


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def backend(target: str) -> Backend:
    """The backend that serves a target."""
    return _named(TARGETS[target].backend)()


def launcher(target: str) -> Any:
    """What launches kernels on a target: of a checked kernel a callable of its calls (`kgen.runtime.launchers`)."""
    return _named(TARGETS[target].launcher)


__all__ = ["TARGETS", "Target", "backend", "launcher"]
