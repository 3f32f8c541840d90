"""Timing: medians, with the cache flushed on a GPU, and the table of one kernel's targets and peers.

Figures of one run belong together: each row has the time, the bytes that must move (by count), and the ratio to every
other row that was asked for.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ops import REDUCTIONS
from kgen.runtime.arguments import default
from kgen.types import DTYPES, ELLIPSIS

PEERS = ("eager", "compile")
HEADS = ("kernel", "dtype", "elements", "row", "what", "ms", "GB/s", "of copy", "first call s")
ROW = 4096  # elements along the dims that are reduced, or along a named dim


@dataclass
class Timing:
    """One row: `what` ran on `elements` of `dtype`, `length` of them along the dims that are
    reduced (0 where none is), in `ms` (median), moving `bytes` (each operand once); `first` is the time
    of its first call in seconds (building included); `copy` is the time of a copy that moves as much, in the same run."""

    kernel: str
    dtype: str
    elements: int
    length: int
    what: str
    ms: float
    bytes: int
    copy: float
    first: float
    ratios: dict[str, float] = field(default_factory=dict)

    def row(self) -> tuple[str, ...]:
        return (self.kernel, self.dtype, f"{self.elements:,}", f"{self.length:,}" if self.length else "-", self.what, f"{self.ms:.4g}",
                f"{self.bytes / self.ms * 1e-6:.4g}",
                f"{self.copy / self.ms:.3f}", f"{self.first:.3g}", *(f"{r:.2f}" for r in self.ratios.values()))  # fmt: skip

    def json(self) -> dict[str, Any]:
        return asdict(self)


def median_ms(run: Callable[[], Any], device: str, seconds: float = 0.4) -> float:
    """The median time of a call in milliseconds: CUDA events with the L2 cache flushed before each, or the wall clock."""
    import torch

    run()
    if device == "cuda":
        flush = torch.empty(1 << 26, dtype=torch.int32, device="cuda")
        pairs: list[tuple[Any, Any]] = []
        torch.cuda.synchronize()
        start = time.perf_counter()
        while len(pairs) < 12 or (time.perf_counter() - start < seconds and len(pairs) < 200):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(4):  # longer than a launch takes the host, so that only the kernel stands between the events
                flush.zero_()
            begin.record()
            run()
            end.record()
            pairs.append((begin, end))
            torch.cuda.synchronize()
        return statistics.median(b.elapsed_time(e) for b, e in pairs)
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 7 or (time.perf_counter() - start < seconds and len(times) < 2000):
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return statistics.median(times) * 1e3


def arguments(kernel: Kernel, dtype: str, elements: int, device: str, row: int = ROW) -> dict[str, Any]:
    """Random arguments of about `elements` elements in the largest operand; dense, aligned.

    The dims that are reduced have `row` elements together (the last of them the most), in a kernel without reductions each
    named dim has; of the dims that stay, the first takes what is left.
    """
    import torch

    named = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS))
    reduced = {d for v in kernel.values if (v.op in REDUCTIONS or v.op == "pick") and v.attr for d in v.attr}
    leading = any(ELLIPSIS in (p.dims or ()) for p in kernel.params)
    batch: list[int]
    if reduced:
        row = min(row, elements)
        inner = [d for d in named if d in reduced]
        sizes = dict.fromkeys(inner, 8)
        if ELLIPSIS in reduced:  # everything is
            sizes, batch = dict.fromkeys(named, row), [max(1, elements // row ** len(named))]
        else:
            if inner:
                sizes[inner[-1]] = max(1, row // 8 ** (len(inner) - 1))
            kept = [d for d in named if d not in reduced]
            left = max(1, elements // math.prod(sizes.values()))
            for d in reversed(kept if leading else kept[1:]):
                sizes[d] = min(64, left)
                left //= sizes[d]
            batch = [max(1, left)]
            if kept and not leading:
                sizes[kept[0]] = max(1, left)
    else:
        sizes = dict.fromkeys(named, min(row, elements))
        batch = [max(1, elements // math.prod(sizes.values()))] if named else [elements]
    given: dict[str, Any] = {}
    for p in kernel.params:
        if not p.is_tensor:
            given[p.name] = default(p) if p.default is not None else 3 if p.dtype == "int" else 0.5
            continue
        assert p.dims is not None
        stored = DTYPES.get(p.dtype) or DTYPES[dtype]
        shape = (batch if ELLIPSIS in p.dims else []) + [sizes[d] for d in p.dims if d != ELLIPSIS]
        torch_dtype = getattr(torch, stored.torch)
        if stored.is_float:
            given[p.name] = torch.randn(shape, device=device, dtype=torch.float32).to(torch_dtype)
        else:
            top = 2 if stored.kind == "bool" else min(100, *sizes.values(), 100)  # inside every dim, for what picks
            given[p.name] = torch.randint(0, top, shape, device=device).to(torch_dtype)
    for r in kernel.results:
        if r.state is not None:
            given[r.state] = given[r.state].abs()  # second moments are not negative
    return given


def bench(
    kernel: Kernel, targets: list[str], peers: tuple[str, ...], dtype: str, elements: int, device: str, row: int = ROW
) -> list[Timing]:
    """Time a kernel's targets and peers on one size.  Results are compared first.  Raises `KgenError` where they differ."""
    import torch

    from kgen.bench.peers import written_out
    from kgen.runtime.kernel import Kernel as Runnable

    given = arguments(kernel, dtype, elements, device, row)
    tensors = [(p, given[p.name]) for p in kernel.params if p.is_tensor]
    largest = max(t.numel() for _, t in tensors)
    results: list[Any] = []
    runs: dict[str, Callable[[], Any]] = {}
    graph = written_out(kernel, given)
    inputs = [given[p.name] for p in kernel.params]
    state = [r.state for r in kernel.results]
    with torch.no_grad():
        results = [r.clone() for r in graph(*inputs)]
        moved = sum(t.numel() * t.element_size() for _, t in tensors) + sum(r.numel() * r.element_size() for r in results)
        first: dict[str, float] = {}
        for target in targets:
            runnable = Runnable(kernel)
            copies = {k: v.clone() if k in state else v for k, v in given.items()}
            start = time.perf_counter()
            fresh = runnable(**copies, target=target)
            _wait(device)
            first[target] = time.perf_counter() - start
            outs = list(fresh) if isinstance(fresh, tuple) else [fresh]
            got = [copies[r.state] if r.state else outs.pop(0) for r in kernel.results]
            _compare(kernel, target, got, results)
            # a fresh result each call, as the peers make one
            runs[target] = partial(runnable, **copies, target=target)
        for peer in peers:
            function = graph
            if peer == "compile":
                torch._dynamo.reset()
                function = torch.compile(graph)
            start = time.perf_counter()
            function(*inputs)
            _wait(device)
            first[peer] = time.perf_counter() - start
            runs[peer] = partial(function, *inputs)
        source = torch.empty(moved // 2, dtype=torch.uint8, device=device).random_(0, 255)
        sink = torch.empty_like(source)
        copy = median_ms(lambda: sink.copy_(source), device)
        times = {name: median_ms(run, device) for name, run in runs.items()}
    length = row if any(v.op in REDUCTIONS and v.attr for v in kernel.values) else 0
    rows = []
    for name, ms in times.items():
        ratios = {f"vs {peer}": times[peer] / ms for peer in peers}
        rows.append(Timing(kernel.name, dtype, largest, length, name, ms, moved, copy, first[name], ratios))
    return rows


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _compare(kernel: Kernel, target: str, got: list[Any], want: list[Any]) -> None:
    import torch

    for r, x, y in zip(kernel.results, got, want, strict=True):
        scale = y.double().abs().nan_to_num(0).max().clamp(min=1.0)
        eps = torch.finfo(y.dtype).eps if y.dtype.is_floating_point else 0
        if not torch.allclose(x.double(), y.double(), rtol=64 * eps, atol=float(64 * eps * scale), equal_nan=True):
            raise KgenError(
                f"{kernel.name}: {target} and eager PyTorch differ in {r.name}", help=f"`kgen check` says where ({kernel.name})"
            )
