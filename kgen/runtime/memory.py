"""Large pages for large results on the CPU.

A fresh result of many megabytes costs more in page faults (one for every 4 KB) than a fused kernel takes to write it; asked
for huge pages before the first write, Linux faults once for every 2 MB.  Advice only: where it is refused nothing changes.
Smaller results mostly lie where others lay before: glibc maps memory of its own for whatever has 32 MB (its greatest
M_MMAP_THRESHOLD), and less only until it has freed as much once.  There calls with the advice took 48 and 50 us for 4 MB, 115 and 120
for 8, those without 43 and 45, 97 and 106 (two processes each, a Zen 5).
"""

from __future__ import annotations

import ctypes
import mmap
from functools import cache
from typing import Any

LARGE = 32 << 20  # bytes from which the advice pays


@cache
def _madvise() -> Any:
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    try:
        function = ctypes.CDLL(None).madvise
    except (OSError, AttributeError, TypeError):
        return None
    if advice is None:
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return lambda start, size: function(start, size, advice)


def advise(tensor: Any) -> Any:
    """Ask for huge pages under a new CPU tensor that nothing has written yet; returns it."""
    size = tensor.numel() * tensor.element_size()
    if size >= LARGE and tensor.device.type == "cpu" and (madvise := _madvise()) is not None:
        start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (tensor.data_ptr() + size) // mmap.PAGESIZE * mmap.PAGESIZE
        madvise(start, end - start)
    return tensor
