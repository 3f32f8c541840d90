"""Registers and blocks: a kernel whose threads need more registers than the blocks that a multiprocessor is to hold leave them.

The assembler puts what has no register in local memory ("spills"), which costs more than a few blocks fewer.  How many blocks a step of
`kgen.backends.launches` promises was measured on some formulas; what others need, the assembler alone knows.
"""

from __future__ import annotations

import re

from kgen.runtime import driver

#: Times that fewer blocks are tried; the assembler then says what it spilled.
TRIES = 4
SPILLED = re.compile(r"(\d+) bytes spill stores")


def compiled(source: str, expression: str, arch: str, options: tuple[str, ...], blocks: int, vectors: int) -> tuple[bytes, str]:
    """The machine code of one kernel and its lowered name, for as many of the `blocks` on a multiprocessor as leave its threads, of
    `vectors` vectors each, their registers (`Eased` in kgen_numbers.cuh).  Raises `KgenError` with NVRTC's log."""
    if blocks == 1:
        cubin, names = driver.compile_cubin(source, [expression], arch, options)
        return cubin, names[expression]
    for eased in range(TRIES + 1):
        own = (*options, "--ptxas-options=-v", *([f"-DEASED={eased}"] if eased else []))
        cubin, names, log = driver.compiled(source, [expression], arch, own)
        if sum(map(int, SPILLED.findall(log))) <= allowed(blocks, vectors) or blocks == 1:
            break
        blocks = fewer(blocks)
    return cubin, names[expression]


def fewer(blocks: int) -> int:
    """The next smaller number of blocks, as `Eased` has it."""
    return blocks - (blocks + 5) // 6


def allowed(blocks: int, vectors: int) -> int:
    """The bytes that a thread of `vectors` 16-byte vectors may keep in local memory: half as many as these have, or, of three blocks or
    fewer, of which one is a third or more, as many.  Picked by hand from what 58 kernels took on an H200, eased up to three times."""
    return 8 * vectors if blocks > 3 else 16 * vectors


__all__ = ["compiled"]
