"""What devices of an architecture allow a launch."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

#: Threads of a block, blocks of a launch, and of a cluster where these are largest.
MAX_THREADS, MAX_GRID, MAX_CLUSTER = 1024, 2**31 - 1, 16
#: KB of shared memory that a block may have by compute capability; of others as much as the least of them.
_SHARED = {75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 103: 227, 110: 227}
_LEAST = 99


class Limits(NamedTuple):
    """`shared`: bytes of shared memory that a block may have; `cluster`: blocks of a cluster, 0 where there are none."""

    shared: int
    cluster: int


@cache
def limits(arch: str) -> Limits:
    """The limits of an architecture ("sm_90")."""
    capability = int(arch.removeprefix("sm_").rstrip("af"))
    cluster = 0 if capability < 90 else MAX_CLUSTER if capability in (90, 100, 103) else 8
    return Limits(_SHARED.get(capability, _LEAST if capability >= 80 else 48) * 1024, cluster)


__all__ = ["MAX_CLUSTER", "MAX_GRID", "MAX_THREADS", "Limits", "limits"]
