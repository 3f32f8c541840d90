"""What Triton's tiles hold, as data."""

from __future__ import annotations

from typing import NamedTuple


class Tiles(NamedTuple):
    """What Triton's tiles hold.  Of whole rows `resident` elements of 4 bytes, or `held` of the one operand that stays in 16 bits, of which
    a thread has `each` where there are more than `short`.  Of a long row that one reading makes a peak and the sums about it of, one warp
    has `peak` bytes at a time, and a segment has `segment` elements at least.  Of a map, some of whose operands lie along one of
    two dims, `rows` rows, and of these the first of `widths` in bytes that divides them, with so many warps; a thread of a map loads about
    `near` neighbours: ptxas takes a minute for a thousand."""

    resident: int = 32768
    held: int = 65536
    short: int = 8192
    each: int = 64
    peak: int = 4096
    segment: int = 8192
    rows: int = 4
    widths: tuple[tuple[int, int], ...] = ((1024, 2), (512, 1))
    near: int = 128


#: From candidates measured on an H200 (bf16, 2^28 elements; torch 2.11, Triton 3.6).
TILES = Tiles()
