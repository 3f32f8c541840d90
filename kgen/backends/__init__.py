"""The backends by target name; each is imported when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgen.backends.base import Backend

#: The targets in the order in which they are listed everywhere, each with its backend's module and class.
TARGETS: dict[str, tuple[str, str]] = {
    "triton": ("kgen.backends.triton", "Triton"),
    "cuda": ("kgen.backends.cuda", "Cuda"),
    "cpp": ("kgen.backends.cpp", "Cpp"),
}


@cache
def backend(target: str) -> Backend:
    """The backend that serves a target."""
    module, name = TARGETS[target]
    return getattr(import_module(module), name)()


__all__ = ["TARGETS", "backend"]
