"""Orders, reductions and counts of keys on NVIDIA's GPUs, by kernels of `kgen_keys.cuh`: a block sorts a row's keys in its shared memory.

In: a pass that sorts, and a call.  Out: the pass's launches; None where torch is to sort (`sorts.py`), whose radix sort has all blocks.

Counts add up integers, which atomic additions do in any order: they have the same bits in every run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from kgen.backends.cuda_layouts import PARTS, TYPES, SortLayout
from kgen.runtime.limits import MAX_GRID, limits

#: Whose tensors blocks sort.
DEVICE = "cuda"
#: Dims of rows that a kernel is told of.
RANK = 8
#: Bits of a word that say where a key stands: no block sorts more.
POSITION = 14
#: Threads of a block and the keys of each, for as many keys as they have together or fewer: of keys that all rows share, which one block
#: has; of rows that have keys of their own, where many blocks share a multiprocessor.  As did best on an H200.
BLOCKS = ((256, 1), (1024, 1), (1024, 4), (1024, 8), (1024, 16))
ROW_BLOCKS = ((128, 1), (128, 4), (256, 4), (256, 16))
#: Of rows that have keys of their own: up to so many keys a row, as many blocks being on their way.
ROW_MOST = 4096
#: Up to so many results of a row its block reduces, however few its keys are: a table of these has room on any device.
TABLE = 1 << 14
#: Beyond so many keys a launch of its own says of each where it begins; and its threads of a block.
EDGES_MOST, EDGES = 2048, 256
#: Bytes of shared memory that a kernel has for itself.
OWN = 1024
#: What counts: threads of a block, blocks of a launch (twice as many where two have room), and keys that a thread has at a time.
COUNTING, COUNTING_BLOCKS, AHEAD = 1024, 132, 8
#: Blocks count in shared memory where all of them together have so many keys for each that there may be.
COUNTED = 128
#: The kinds of reductions, by their numbers in `kgen_keys.cuh`.
KINDS = {"sum": "SUM", "max": "MAX", "min": "MIN"}


class Keys(ctypes.Structure):
    """The struct of that name in `kgen_keys.cuh`."""

    _fields_ = [
        ("work", ctypes.c_void_p), ("all", ctypes.c_longlong), ("m", ctypes.c_longlong), ("step", ctypes.c_longlong),
        ("x_step", ctypes.c_longlong), ("y_step", ctypes.c_longlong),
        ("size", ctypes.c_longlong * RANK), ("steps", ctypes.c_longlong * RANK),
        ("x_steps", ctypes.c_longlong * RANK), ("y_steps", ctypes.c_longlong * RANK),
        ("n", ctypes.c_int), ("bits", ctypes.c_int), ("rank", ctypes.c_int), ("writes", ctypes.c_int),
    ]  # fmt: skip


class Step(NamedTuple):
    """One launch: the kernel's C++ name, the blocks of its grid, their threads, their shared memory in bytes."""

    kernel: str
    grid: int
    threads: int
    shared: int = 0


class Sorting(NamedTuple):
    """The launches of a pass that sorts, what all of them are told, and the bytes that they share."""

    steps: tuple[Step, ...]
    keys: Keys
    work: int = 0


def launches(unit: SortLayout, call: Any, tensors: dict[str, Any], arch: str) -> Sorting | None:
    """How a pass of a `kgen.runtime.arguments.Call` sorts its keys, and reduces what stands beside them; None where blocks do not."""
    written = {part: tensors[name] for part, name in unit.written.items()}
    return reducing(unit, call, tensors, arch) or sorting(tensors[unit.keys], written, unit.axis, call.size(unit.dims[-1]), arch)


def sorting(keys: Any, written: dict[str, Any], axis: int | None, count: int, arch: str) -> Sorting | None:
    """How blocks sort `keys`, an i64 tensor, which count up to `count`, or those of each row along an `axis`, into the tensors `written`;
    None where they do not."""
    rows = keys.movedim(axis, -1) if axis is not None else keys
    if (told := telling(rows, count)) is None or not all(t.is_contiguous() for t in written.values()):
        return None
    told.writes = sum(1 << k for k, part in enumerate(PARTS) if part in written)
    if axis is None:
        return shared_order(told, arch) if "order" in written else counting(told, arch)
    if any(t.shape != rows.shape for t in written.values()) or not 0 < rows.shape[-1] <= ROW_MOST:
        return None
    step = block("sort_keys", (), told, rows.numel() // rows.shape[-1], 0, arch)
    return Sorting((step,), told) if step else None


def shared_order(told: Keys, arch: str) -> Sorting | None:
    """How a block sorts the keys that all rows share; None where there are too many."""
    step = block("sort_keys", (), told, 1, 0, arch) if told.n <= 1 << POSITION else None
    if step is None:
        return None
    if told.m <= EDGES_MOST or not told.writes >> PARTS.index("begin"):
        return Sorting((step,), told)
    return Sorting((step, Step(f"place_keys<{EDGES}>", told.m // EDGES + 1, EDGES)), told, 4 * max(1, told.n))


def reducing(unit: SortLayout, call: Any, tensors: dict[str, Any], arch: str) -> Sorting | None:
    """How blocks reduce what stands beside each row's own keys, whose order nothing else reads; None where they do not."""
    if unit.sums is None:
        return None
    *dims, along, over = unit.dims
    value, result, keys = tensors[unit.sums.value[0]], tensors[unit.sums.result[0]], tensors[unit.keys].movedim(unit.axis, -1)
    count = call.size(over)
    told = telling(keys, count)
    if told is None or keys.shape[:-1] != call.shape(tuple(dims)) or not 0 < keys.shape[-1] <= ROW_MOST:
        return None
    for tensor, own, dim, which in ((value, unit.sums.value[2], along, "x"), (result, unit.sums.result[2], over, "y")):
        setattr(told, f"{which}_step", call.stride_along(tensor, own, dim))
        getattr(told, f"{which}_steps")[: told.rank] = call.strides(tensor, own, tuple(dims), dim)
    types = [TYPES[dtype] for dtype in unit.sums.dtypes(call.binding)]
    step = block("reduce_keys", (KINDS[unit.sums.kind], *types), told, keys.numel() // keys.shape[-1], 2 * count, arch)
    return Sorting((step,), told) if step else None


def telling(rows: Any, count: int) -> Keys | None:
    """What kernels are told of keys whose last dim is that of a row; None of such as they do not take."""
    rank = rows.dim() - 1
    if rows.device.type != DEVICE or count >= 2**31 - 1 or rank > RANK or rows.numel() >= 2**32:
        return None
    n = rows.shape[-1]
    told = Keys(all=rows.numel(), m=count, step=rows.stride(-1), n=min(n, 2**31 - 1), bits=max(1, count.bit_length()), rank=rank)
    told.size[:rank], told.steps[:rank] = rows.shape[:-1], rows.stride()[:-1]
    return told


def block(kernel: str, types: Sequence[str], told: Keys, grid: int, more: int, arch: str) -> Step | None:
    """The launch of a kernel whose blocks sort a row each, with `more` bytes of shared memory for each; None where there is no room."""
    if not 0 < grid <= MAX_GRID:
        return None
    word = 4 if told.bits + POSITION <= 32 else 8
    threads, each = next((t, e) for t, e in (ROW_BLOCKS if told.rank else BLOCKS) if told.n <= t * e)
    shared = threads * each * word + threads // 32 * 512 + 1056 + more  # the struct SortedKeys
    name = f"{kernel}<{', '.join((f'u{8 * word}', str(threads), str(each), *types))}>"
    return Step(name, grid, threads, shared) if shared + OWN <= limits(arch).shared else None


def counting(told: Keys, arch: str) -> Sorting | None:
    """How often each of the keys occurs that all rows share, as a range of that length, where no order is asked for and nothing but their
    lengths is read (`kgen/segments.py`)."""
    if told.writes != sum(1 << PARTS.index(part) for part in ("begin", "end")):
        return None
    most = limits(arch).shared - OWN
    shared = 4 * told.m if 4 * told.m <= most and COUNTED * told.m <= told.all else 0
    blocks = COUNTING_BLOCKS * (1 if 2 * shared > most else 2)
    grid = max(1, min(blocks, -(-told.all // (COUNTING * (AHEAD if shared else 1)))))
    steps = (
        Step(f"clear_counts<{EDGES}>", max(1, -(-told.m // EDGES)), EDGES),
        Step(f"count_keys<{COUNTING}, {'true' if shared else 'false'}>", grid, COUNTING, shared),
    )
    return Sorting(steps, told)


@cache
def source() -> str:
    """What NVRTC compiles: the library's file with all that it includes, and the reductions that it calls."""
    from kgen.backends import backend
    from kgen.backends.cuda import Cuda, inlined

    target = backend("cuda")
    assert isinstance(target, Cuda)
    files = target.beside('#include "kgen_keys.cuh"')
    own = files.pop("kgen_keys.cuh")
    used = target.functions(["ranged_sum", "ranged_max", "ranged_min"])
    return "\n".join([*map(inlined, files.values()), *used.values(), inlined(own)])
