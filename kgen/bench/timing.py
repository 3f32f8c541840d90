"""Timing: medians, with the cache flushed on a GPU, and the table of one kernel's targets and peers.

Figures of one run belong together: each row has the time, the bytes that must move (by count), and the ratio to every
other row that was asked for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.runtime.samples import ROW, arguments

PEERS = ("eager", "compile")
HEADS = ("kernel", "dtype", "elements", "row", "what", "ms", "GB/s", "of copy", "first call s")


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


def bench(
    kernel: Kernel, targets: list[str], peers: tuple[str, ...], dtype: str, elements: int, device: str, row: int = ROW
) -> list[Timing]:
    """Time a kernel's targets and peers on one size.  Results are compared first.  Raises `KgenError` where they differ."""
    import torch

    from kgen.bench.peers import written_out
    from kgen.runtime.evaluate import Evaluator
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
        results = [r.clone() for r in Evaluator(kernel, given).run()]  # computed in f32, rounded once, as kernels do
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
    length = row if kernel.reduces else 0
    rows = []
    for name, ms in times.items():
        ratios = {f"vs {peer}": times[peer] / ms for peer in peers}
        rows.append(Timing(kernel.name, dtype, largest, length, name, ms, moved, copy, first[name], ratios))
    return rows


FEW = 16  # elements of which a call is all overhead
CALL_HEADS = ("kernel", "dtype", "elements", "what", "us a call", "more us", "ratio")


@dataclass
class CallTiming:
    """One row: the host's time of a call on few elements in microseconds, how many more those are than the cheapest eager
    operator's on as many, and the ratio to it, in the same run."""

    kernel: str
    dtype: str
    elements: int
    what: str
    us: float
    more: float
    ratio: float

    def row(self) -> tuple[str, ...]:
        return (self.kernel, self.dtype, f"{self.elements:,}", self.what, f"{self.us:.2f}", f"{self.more:+.2f}", f"{self.ratio:.2f}")

    def json(self) -> dict[str, Any]:
        return asdict(self)


def call_times(kernel: Kernel, targets: list[str], dtype: str, device: str, rounds: int = 60, turns: int = 200) -> list[CallTiming]:
    """Time what a call costs the host, on few elements, beside the cheapest of three eager operators.

    Each round times them all in turn, so that what slows the machine slows each; the least of the rounds counts.
    """
    import torch

    from kgen.runtime.kernel import Kernel as Runnable

    given = arguments(kernel, dtype, FEW, device, FEW)
    positional = [given[p.name] for p in kernel.params]
    x = torch.randn(FEW, device=device)
    eager = {f"torch.{f.__name__}": partial(f, x) for f in (torch.neg, torch.relu, torch.abs)}
    chosen = [{"target": t} for t in targets] if len(targets) > 1 else [{}]  # the only one needs no name
    kernels = {t: partial(Runnable(kernel), *positional, **named) for t, named in zip(targets, chosen, strict=True)}
    runs: dict[str, Callable[[], Any]] = {**eager, **kernels}
    least = dict.fromkeys(runs, float("inf"))
    with torch.no_grad():
        for run in runs.values():
            run()
        for _ in range(rounds):
            for name, run in runs.items():
                _wait(device)
                start = time.perf_counter()
                for _ in range(turns):
                    run()
                least[name] = min(least[name], (time.perf_counter() - start) / turns * 1e6)
    cheapest = min(eager, key=lambda name: least[name])
    return [
        CallTiming(kernel.name, dtype, FEW, name, us, us - least[cheapest], us / least[cheapest])
        for name, us in least.items()
        if name == cheapest or name in kernels
    ]


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _compare(kernel: Kernel, target: str, got: list[Any], want: list[Any]) -> None:
    """Refuse to time what is plainly wrong: further than 64 units of the dtype computed in, and one of the result's own, from torch."""
    import torch

    for r, x, y in zip(kernel.results, got, want, strict=True):
        scale = y.double().abs().nan_to_num(0).max().clamp(min=1.0)
        room = 0.0
        if y.dtype.is_floating_point:
            computed = torch.float64 if y.dtype == torch.float64 else torch.float32
            room = 64 * torch.finfo(computed).eps + torch.finfo(y.dtype).eps
        if not torch.allclose(x.double(), y.double(), rtol=room, atol=float(room * scale), equal_nan=True):
            raise KgenError(f"{kernel.name}: {target} and PyTorch differ in {r.name}", help=f"`kgen check` says where ({kernel.name})")
