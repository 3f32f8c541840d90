"""What devices allow a launch: of an architecture, and of all."""

from __future__ import annotations

from kgen.backends.devices import DEVICES, Limits, limits

#: Threads of a block, blocks of a launch, and of a cluster where these are largest.
MAX_THREADS, MAX_GRID, MAX_CLUSTER = 1024, 2**31 - 1, max(cluster for _, cluster in DEVICES.values())

#: The greatest place that an index of 32 bits has, and the furthest that one lies behind another.
UINT_MAX, INT_MAX = 2**32 - 1, 2**31 - 1

__all__ = ["INT_MAX", "MAX_CLUSTER", "MAX_GRID", "MAX_THREADS", "UINT_MAX", "Limits", "limits"]
