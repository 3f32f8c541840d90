"""The backends by target name; each is imported when it is asked for."""

from __future__ import annotations

from functools import cache

from kgen.backends.base import Backend
from kgen.ops import TARGETS


@cache
def backend(target: str) -> Backend:
    """The backend that serves a target ("triton", "cuda" or "cpp")."""
    if target == "triton":
        from kgen.backends.triton import Triton

        return Triton()
    if target == "cuda":
        from kgen.backends.cuda import Cuda

        return Cuda()
    from kgen.backends.cpp import Cpp

    return Cpp()


__all__ = ["TARGETS", "backend"]
