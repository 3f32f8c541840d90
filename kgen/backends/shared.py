"""The shared memory that kernels of kgen_rows.cuh declare themselves: `parts`, for each reading's result, and `barriers`."""

from __future__ import annotations

#: Bytes that a kernel may declare.
MAX_STATIC = 48 * 1024
#: Those of a cluster's barriers.
BARRIERS = 128
#: Added to the readings of a pass that searches, which goes through a row for each bit: clusters have not barriers enough for that.
SEARCHING = 1 << 16


def declared(threads: int, team: int, across: bool, cluster: bool, words: int, readings: int) -> int:
    """The bytes at most: `threads` of a block as compiled for, `team` of which take a row, results of up to `words` 32-bit words."""
    size = 0
    if across and team > 1 or not across and not 0 < team <= 32:
        slots = threads if across else max(2, 1 << (threads // 32 - 1).bit_length())
        size += max(slots * words, min(2 * slots * words, 4096))
    if cluster:
        size += 16 * (threads // 32) * words
    return 4 * size * (readings % SEARCHING) + (BARRIERS if cluster else 0)
