"""A kernel run between canaries: what it reads and writes lies in larger buffers whose rest must stay as it was.

In: a kernel.  Out: a `Padded` that runs as the kernel does, for `checks.check(..., runnable=Padded(kernel))`.
"""

from __future__ import annotations

from typing import Any

from kgen.check import Kernel
from kgen.errors import KgenError

#: Bytes before and after each tensor: a multiple of every alignment that a schedule asks for, so that none changes.
PAD = 4096
BYTE = 0xA5


class Padded:
    """A kernel whose arguments and results are copied between canaries before each call.

    A call runs twice, into fresh results and into padded ones (`out=`), which must get the same bits.  Raises `KgenError` where a
    canary, or an argument that is not written, has changed.
    """

    def __init__(self, kernel: Kernel):
        from kgen.runtime.kernel import Kernel as Runnable

        self.kernel, self.runnable = kernel, Runnable(kernel)
        self.written = {r.state for r in kernel.results if r.state}
        self.fresh = [r.name for r in kernel.results if not r.state]

    def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str | None) -> Any:
        """The results of a call, which is made twice: once plainly, once with every tensor among canaries.  Raises `KgenError`
        where a byte outside the elements was written, or the results differ."""
        import torch

        first = {name: x.clone() if name in self.written else x for name, x in given.items()}
        returned = self.runnable._run(args, first, None, target)
        fresh = dict(zip(self.fresh, returned if isinstance(returned, tuple) else (returned,), strict=False))
        padded = {name: _padded(x) for name, x in (given | fresh).items() if isinstance(x, torch.Tensor)}
        before = {name: _bytes(x).clone() for name, x in padded.items()}
        outs = tuple(padded[name] for name in fresh)
        again = {name: padded.get(name, x) for name, x in given.items()}
        self.runnable._run(args, again, outs[0] if len(outs) == 1 else outs or None, target)
        where = f"{self.kernel.name} on {target}"
        for name, x in padded.items():
            may = _elements_of(x) if name in fresh or name in self.written else torch.zeros_like(before[name], dtype=torch.bool)
            if len(bad := ((_bytes(x) != before[name]) & ~may).nonzero().flatten()):
                raise KgenError(f"{where}: wrote at byte {int(bad[0]) - PAD} of the buffer of {name}, outside its elements")
        for name, x in (fresh | {name: first[name] for name in self.written}).items():
            if not _same(x, padded[name]):
                raise KgenError(f"{where}: {name} has other bits between canaries")
        for name in self.written:
            given[name].copy_(padded[name])
        return returned


def _padded(x: Any) -> Any:
    """A copy of a tensor, of the same strides and offset from a boundary, in a storage of canaries."""
    import torch

    sizes = _sizes(x)
    span = (1 + sum((n - 1) * s for n, s in zip(sizes, x.stride(), strict=True))) * x.element_size() if x.numel() else 0
    lead = x.data_ptr() % 256 if x.numel() else 0
    storage = torch.full((PAD + lead + span + PAD,), BYTE, dtype=torch.uint8, device=x.device)
    whole = storage[PAD + lead : PAD + lead + span].view(x.dtype)
    if x.numel():
        whole.as_strided(sizes, x.stride(), whole.storage_offset()).copy_(x.as_strided(sizes, x.stride(), x.storage_offset()))
    return whole.as_strided(x.shape, x.stride(), whole.storage_offset())


def _sizes(x: Any) -> list[int]:
    """The sizes of a tensor's elements, each once: an expanded dim is one element wide."""
    return [1 if s == 0 and n else n for n, s in zip(x.shape, x.stride(), strict=True)]


def _bytes(x: Any) -> Any:
    """All bytes of a tensor's storage."""
    import torch

    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _elements_of(x: Any) -> Any:
    """Which bytes of its storage are a tensor's elements."""
    import torch

    marks = torch.zeros(x.untyped_storage().nbytes(), dtype=torch.bool, device=x.device)
    if x.numel():
        size = x.element_size()
        marks.as_strided([*_sizes(x), size], [*(s * size for s in x.stride()), 1], x.storage_offset() * size).fill_(True)
    return marks


def _same(a: Any, b: Any) -> bool:
    """Whether two results have the same values, signs of zeros and places of NaN."""
    import torch

    if not a.is_floating_point():
        return torch.equal(a, b)
    a, b = a.double(), b.double()
    return torch.equal(a.nan_to_num(nan=7e77), b.nan_to_num(nan=7e77)) and torch.equal((a == 0) & a.signbit(), (b == 0) & b.signbit())
