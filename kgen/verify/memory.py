"""Memory that an examination and a candidate's process share: arguments between canaries and pages without access.

In: tensors.  Out: the place of each (`Place`), which the other process makes a tensor of, and after the call what it wrote where it was
not to.  A region is what lies between two pages without access; the tensor's storage lies at its end, at its beginning or in its middle,
and what is left is filled with a byte that no element is.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any

PAGE = max(mmap.PAGESIZE, 4096)
#: What fills memory that nobody has written: NaN in every float dtype, and numbers that are large in all but f16.
PATTERNS = (0xFF, 0x7F)
#: Bytes of a storage that may lie far apart; such files have holes, and only what is written takes memory.
FAR = 1 << 36
ROOM = 1 << 30  # bytes that a folder in memory is to have; a file on a disk serves as well


@dataclass(frozen=True)
class Place:
    """Where a tensor's storage lies: `at` bytes from the beginning of the shared memory, `size` bytes; its region is from `begin` to `end`.
    `dtype` is torch's name; `shape`, `stride` and `offset` are in elements.  `far` regions have no canaries."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    at: int
    size: int
    begin: int
    end: int
    far: bool = False

    def plain(self) -> list[Any]:
        return [list(x) if isinstance(x, tuple) else x for x in self.__dict__.values()]

    @classmethod
    def of(cls, plain: list[Any]) -> Place:
        values: list[Any] = [tuple(x) if isinstance(x, list) else x for x in plain]
        return cls(*values)


@dataclass(frozen=True)
class Written:
    """A byte that was written and was not to be: of a tensor's elements (`inside`), or so far from the beginning of its storage."""

    name: str
    inside: bool
    byte: int
    at: tuple[int, ...] = ()


class Arena:
    """The examination's side of the shared memory."""

    def __init__(self, size: int = 1 << 26):
        import torch

        self.torch, self.size = torch, size
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > ROOM else None
        handle, self.path = tempfile.mkstemp(prefix="kgen-verify-", dir=shared)
        self.file = handle
        os.ftruncate(handle, size)
        self._map()
        self.next = 0
        self.before: dict[str, Any] = {}
        self.places: dict[str, Place] = {}

    def _map(self) -> None:
        self.bytes = self.torch.frombuffer(mmap.mmap(self.file, self.size), dtype=self.torch.uint8)

    def close(self) -> None:
        """Give the memory back."""
        if self.file >= 0:
            self.before.clear()
            os.close(self.file)
            os.unlink(self.path)
            self.file = -1

    def reset(self) -> None:
        """Forget all places; their memory is used again."""
        self.next, self.before, self.places = 0, {}, {}

    def lay(self, name: str, x: Any, mode: str, pattern: int, strides: tuple[int, ...] | None = None) -> Place:
        """Put a tensor, with its strides and offset, into a region of its own; other `strides` may lie far apart."""
        item = x.element_size()
        if strides is not None:
            return self._lay_far(name, x, strides)
        offset, stride = x.storage_offset(), tuple(x.stride())
        used = offset + 1 + sum((n - 1) * s for n, s in zip(x.shape, stride, strict=True)) if x.numel() else offset
        count = max(used, x.untyped_storage().nbytes() // item)
        size = count * item
        room = -(-max(size, 1) // PAGE) * PAGE + (2 * PAGE if mode == "middle" else 0)
        begin, end = self._region(room)
        at = {"end": end - size, "begin": begin, "middle": begin + PAGE}[mode]
        place = Place(name, str(x.dtype).removeprefix("torch."), tuple(x.shape), stride, offset, at, size, begin, end)
        self.bytes[begin:end] = pattern
        self.places[name] = place
        self.write(name, x)
        return place

    def _lay_far(self, name: str, x: Any, strides: tuple[int, ...]) -> Place:
        """A tensor whose elements lie far apart."""
        size = (1 + sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True))) * x.element_size()
        begin, end = self._region(-(-size // PAGE) * PAGE)
        place = Place(name, str(x.dtype).removeprefix("torch."), tuple(x.shape), strides, 0, begin, size, begin, end, True)
        self.places[name] = place
        self.write(name, x)
        return place

    def _region(self, room: int) -> tuple[int, int]:
        """So many bytes with a page before them and one behind."""
        begin = self.next + PAGE
        end = begin + room
        if end + PAGE > self.size:
            self.size = 2 * (end + PAGE)
            os.ftruncate(self.file, self.size)
            self._map()
        self.next = end
        return begin, end

    def tensor(self, name: str) -> Any:
        """The tensor as it stands in the shared memory."""
        p = self.places[name]
        dtype = getattr(self.torch, p.dtype)
        if not math.prod(p.shape):
            return self.torch.empty_strided(p.shape, p.stride, dtype=dtype)
        return self.bytes[p.at : p.at + p.size].view(dtype).as_strided(p.shape, p.stride, p.at // dtype.itemsize + p.offset)

    def write(self, name: str, x: Any) -> None:
        """Give a tensor other contents; expanded elements are written once."""
        p = self.places[name]
        if x.numel():
            once = [1 if s == 0 else n for n, s in zip(p.shape, p.stride, strict=True)]
            mine = self.tensor(name)
            mine.as_strided(once, p.stride, mine.storage_offset()).copy_(x[tuple(slice(0, n) for n in once)] if once else x)
        if not p.far:
            self.before[name] = self.bytes[p.begin : p.end].clone()
        else:
            self.before[name] = x.clone()

    def wrongly_written(self, may: set[str]) -> list[Written]:
        """What was written since, of each tensor's region the first byte; of those in `may` the elements may have been."""
        found = []
        for name, p in self.places.items():
            if p.far:
                same = _equal_bits(self.tensor(name), self.before[name])
                if name not in may and not bool(same.all()):
                    found.append(Written(name, True, 0, tuple(same.logical_not().nonzero()[0].tolist())))
                continue
            now = self.bytes[p.begin : p.end]
            if self.torch.equal(now, self.before[name]):
                continue
            bad = now != self.before[name]
            mine = self._elements(p)
            if name in may:
                bad &= ~mine
            inside = bad & mine
            if bool(inside.any()):
                byte = int(inside.nonzero()[0])
                found.append(Written(name, True, byte, self._index(p, byte)))
            elif bool(bad.any()):
                found.append(Written(name, False, int(bad.nonzero()[0]) - (p.at - p.begin)))
        return found

    def _elements(self, p: Place) -> Any:
        """Which bytes of a place's region are the tensor's elements."""
        torch = self.torch
        marks = torch.zeros(p.end - p.begin, dtype=torch.bool)
        if math.prod(p.shape):
            item = getattr(torch, p.dtype).itemsize
            once = [1 if s == 0 else n for n, s in zip(p.shape, p.stride, strict=True)]
            marks.as_strided([*once, item], [*(s * item for s in p.stride), 1], p.at - p.begin + p.offset * item).fill_(True)
        return marks

    def _index(self, p: Place, byte: int) -> tuple[int, ...]:
        """The element to which a byte of a region belongs."""
        torch = self.torch
        item = getattr(torch, p.dtype).itemsize
        k = (byte - (p.at - p.begin)) // item - p.offset
        places = torch.zeros(p.shape, dtype=torch.int64)
        for d, (n, s) in enumerate(zip(p.shape, p.stride, strict=True)):
            places += (torch.arange(n) * s).reshape([-1 if e == d else 1 for e in range(len(p.shape))])
        found = (places == k).nonzero()
        return tuple(found[0].tolist()) if len(found) else ()


def full(words: str) -> bool:
    """Whether an error says that a GPU's memory is full, of this process or of others."""
    return any(w in words for w in ("CUDA out of memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED", "busy or unavailable"))


def _equal_bits(a: Any, b: Any) -> Any:
    """Where two tensors of one dtype have the same bits."""
    import torch

    if a.dtype.is_floating_point:
        of = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
        return a.contiguous().view(of) == b.contiguous().view(of)
    return a == b
