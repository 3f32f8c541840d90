"""Timing: medians, with the cache flushed on a GPU, and the rows of one kernel's targets and peers on one size.

Figures of one run belong together: each row has the time, the bytes that must move (by count), and the ratio to every
other row that was asked for.  As in triton.testing, `ms` is a median that has the 20th and 80th percentile beside it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kgen.check import Kernel
from kgen.errors import KgenError, printed
from kgen.ops import REDUCTIONS
from kgen.runtime.samples import ROW, arguments
from kgen.scanned import over
from kgen.types import ELLIPSIS

HEADS = ("kernel", "dtype", "elements", "row", "what", "ms", "MB", "GB/s", "of copy", "misrounded", "build s")


@dataclass
class Timing:
    """One row: `what` ran on `elements` of `dtype`, `length` of them along the dims that are reduced (0 where none is), in `ms`
    (median; `low` and `high` are the 20th and 80th percentile), moving `bytes` (each operand once); `first` is the time of its first call
    in seconds, which builds it (of a spec that was read; `first.py` times a process from its start); `copy` is the time of a copy
    that moves as much, in the same run; `misrounded` is the share of 16-bit results that are not the exact ones rounded once.
    """

    kernel: str
    dtype: str
    elements: int
    length: int
    what: str
    ms: float
    bytes: int
    copy: float
    first: float
    low: float = 0.0
    high: float = 0.0
    device: str = ""
    misrounded: float | None = None
    way: str = ""  # of eager: which of `libraries.ways` was the fastest
    ratios: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, Any] = field(default_factory=dict)

    def row(self, peers: Sequence[str] = ()) -> tuple[str, ...]:
        """The cells under HEADS, then the ratio to each of `peers` (those timed, where none is named)."""
        ratios = [self.ratios.get(f"vs {p}") for p in peers] if peers else list(self.ratios.values())
        what = f"{self.what} {self.way}".strip()
        return (self.kernel, self.dtype, f"{self.elements:,}", f"{self.length:,}" if self.length else "-", what, f"{self.ms:.4g}",
                f"{self.bytes * 1e-6:.4g}", f"{self.bytes / self.ms * 1e-6:.4g}", f"{self.copy / self.ms:.3f}",
                "-" if self.misrounded is None else f"{self.misrounded:.3%}", f"{self.first:.3g}",
                *("-" if r is None else f"{r:.2f}" for r in ratios))  # fmt: skip


def has_rows(kernel: Kernel) -> bool:
    """Whether a named dim is reduced or picked along, so that a row has a length; `mean[...](x)` has none."""
    crossed = {d for v in kernel.values if v.attr and (v.op in REDUCTIONS or v.op == "pick") for d in v.attr}
    crossed |= {d for v in kernel.values for d in over(v.op, v.attr)}
    return bool(crossed - {ELLIPSIS})


@dataclass
class Found:
    """What a size gave: its rows, the peers that were left out and why, the targets whose results are wrong or that failed, and why its
    figures are not to be relied on."""

    rows: list[Timing] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)


Spread = tuple[float, float, float]  # milliseconds: the median, the 20th and the 80th percentile
COPY = "copy"
SECONDS = 0.3  # that a row is timed for
WIDE = 1.5  # the 80th percentile over the 20th, above which rounds are said to spread widely
ABOVE = 1.5  # of a copy's speed: more than that is the machine's noise, or its caches
FLUSHES = 64  # of the caches before a round at most: some 4 ms on an H200
TURNS = 4  # in so many turns on a CPU, which others use too: what slows the machine for a while slows each row


def spreads_ms(runs: dict[str, Callable[[], Any]], device: str) -> dict[str, Spread]:
    """The times of calls in milliseconds: by CUDA events with the L2 cache flushed before each, or by the wall clock."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    if device == "cuda":
        for name, run in runs.items():
            times[name] += _on_gpu(run)
    else:
        for _ in range(TURNS):
            for name, run in runs.items():
                times[name] += _on_cpu(run)
    return {name: spread(found) for name, found in times.items()}


def _on_gpu(run: Callable[[], Any]) -> list[float]:
    """The time of each of many runs, in ms, between events on torch's stream; the caches are flushed before each.

    The flushes are to take longer than the host takes to launch a run, so that only kernels stand between the events.  A round whose
    first event had passed before the host was done is left out, and the next ones flush more often, up to FLUSHES times.
    """
    import torch

    run()
    times: list[float] = []
    flush, often = torch.empty(1 << 26, dtype=torch.int32, device="cuda"), 4
    torch.cuda.synchronize()
    start = time.perf_counter()
    while len(times) < 12 or (time.perf_counter() - start < SECONDS and len(times) < 200):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(often):
            flush.zero_()
        begin.record()
        run()
        end.record()
        waited = begin.query()
        torch.cuda.synchronize()
        if waited and often < FLUSHES:
            often *= 2
        else:
            times.append(begin.elapsed_time(end))
    return times


def _on_cpu(run: Callable[[], Any]) -> list[float]:
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 2 or (time.perf_counter() - start < SECONDS / TURNS and len(times) < 500):
        before = time.perf_counter()
        run()
        times.append((time.perf_counter() - before) * 1e3)
    return times


def spread(times: Sequence[float]) -> Spread:
    """The median of times, their 20th and their 80th percentile."""
    times = sorted(times)
    return times[len(times) // 2], times[len(times) // 5], times[-1 - len(times) // 5]


def free(device: str) -> None:
    """Give the memory of one size back before the next."""
    gc.collect()
    if device == "cuda" and not lost(device):
        import torch

        torch.cuda.empty_cache()


class Lost(RuntimeError):
    """`what`, a target or a peer, ended all that this process runs on the GPU, `why` being its error."""

    def __init__(self, what: str, why: str):
        super().__init__(what, why)
        self.what, self.why = what, why


def lost(device: str) -> bool:
    """Whether the GPU no longer answers this process, as behind an assertion that failed in a kernel."""
    try:
        wait(device)
    except RuntimeError:
        return True
    return False


def copying(moved: int, device: str) -> Callable[[], Any]:
    """A copy that reads and writes `moved` bytes together."""
    import torch

    source = torch.empty(max(1, moved // 2), dtype=torch.uint8, device=device).random_(0, 255)
    sink = torch.empty_like(source)
    return lambda: sink.copy_(source)


def predicted(kernel: Kernel, dtype: str) -> dict[str, Any]:
    """What the program says of an element, by count: bytes read and written, special-function and other instructions, and what bounds
    it (`kgen.cost.predicted_bound`), its dtype variables all being `dtype`."""
    from kgen import pipeline
    from kgen.cost import predicted_bound
    from kgen.parts import over_parts
    from kgen.types import DTYPES

    found = pipeline.cost(over_parts(kernel), dict.fromkeys(kernel.variables, DTYPES[dtype]))
    instructions = {"special": found.special, "other": found.instructions}
    return {"read": found.read, "written": found.written, **instructions, "bound": predicted_bound(found)}


def bench(
    kernel: Kernel,
    targets: list[str],
    peers: Sequence[str],
    dtype: str,
    elements: int,
    device: str,
    row: int = ROW,
    backward: bool = False,
) -> Found:
    """Time a kernel's targets (or their gradients, through autograd) and peers on one size; results are compared first.

    A target whose results are not the formula's, and a peer that raises or computes something else, is left out.  Raises
    `KgenError` where there is no backward, and `Lost` where one of them ends what runs on the GPU.
    """
    import torch

    from kgen.bench import libraries
    from kgen.bench.library import holding

    given = holding(kernel.name, arguments(kernel, dtype, elements, device, row))
    largest = max(given[p.name].numel() for p in kernel.params if p.is_tensor)
    cell = (_Gradients if backward else _Results)(kernel, given, device)
    with torch.enable_grad() if backward else torch.no_grad():
        for target in targets:
            cell.add_target(target)
            if target in cell.wrong and lost(device):
                raise Lost(target, cell.wrong[target])
        for peer in peers:
            for way in libraries.ways(kernel, peer):
                cell.add_peer(way, _named(peer, way))
                if way in cell.left_out and lost(device):
                    raise Lost(peer, cell.left_out[way])
    cell.reference = None  # the memory is the timings'
    length = row if has_rows(kernel) else 0
    name = f"{kernel.name} backward" if backward else kernel.name
    counted = predicted(cell.counted, dtype)
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    spreads = spreads_ms(cell.runs | {COPY: copying(cell.moved, device)}, device)
    copy = spreads.pop(COPY)
    best = {peer: way for peer in peers if (way := _fastest(kernel, peer, spreads))}
    shown = {target: ("", target) for target in targets if target in spreads} | {
        peer: (way if peer == "eager" else "", _named(peer, way)) for peer, way in best.items()
    }
    rows = []
    for what, (way, key) in shown.items():
        ms, low, high = spreads[key]
        ratios = {f"vs {peer}": spreads[_named(peer, w)][0] / ms for peer, w in best.items()}
        first, wrong = cell.first[key], cell.misrounded.get(key)
        rows.append(
            Timing(name, dtype, largest, length, what, ms, cell.moved, copy[0], first, low, high, machine, wrong, way, ratios, counted)
        )
    return Found(rows, cell.left_out, cell.wrong, doubts(rows, copy))


def _named(peer: str, way: str) -> str:
    """The name under which a way of a peer is timed."""
    return peer if peer == way else f"{peer} {way}"


def _fastest(kernel: Kernel, peer: str, spreads: dict[str, Spread]) -> str:
    """The fastest of a peer's ways that were timed, "" where none was."""
    from kgen.bench import libraries

    timed = [way for way in libraries.ways(kernel, peer) if _named(peer, way) in spreads]
    return min(timed, key=lambda way: spreads[_named(peer, way)], default="")


def doubts(rows: Sequence[Timing], copy: Spread) -> list[str]:
    """Why figures of one size are not to be relied on: a line for each row, and the copy, whose rounds spread widely, and each row that is
    faster than a copy can be."""
    named = [(r.what, (r.ms, r.low, r.high)) for r in rows] + [("the copy", copy)]
    found = [
        f"the rounds of {what} spread widely: {low:.3g} to {high:.3g} ms (20th to 80th percentile), the median {ms:.3g}"
        for what, (ms, low, high) in named
        if high > WIDE * low
    ]
    fast = [r for r in rows if above(r.copy, r.ms)]
    return found + [f"{r.what} has {r.copy / r.ms:.3g} of a copy's speed, more than memory gives" for r in fast]


def above(copy: float, ms: float) -> bool:
    """Whether what took `ms` is faster than a copy of as many bytes can be, but for what caches give."""
    return copy > ABOVE * ms


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


class _Results:
    """A kernel's calls on some arguments: `runs` by name, `first` the seconds of each first one, `moved` the bytes that one must move."""

    def __init__(self, kernel: Kernel, given: dict[str, Any], device: str):
        """`given` are the kernel's arguments by name, on `device`; the reference's results are computed here."""
        import torch

        from kgen.bench.reference import Reference

        self.kernel, self.given, self.device = kernel, given, device
        self.runs: dict[str, Callable[[], Any]] = {}
        self.first: dict[str, float] = {}
        self.misrounded: dict[str, float | None] = {}
        self.left_out: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.counted = kernel
        self.state = [r.state for r in kernel.results]
        with torch.no_grad():
            self.reference: Reference | None = Reference(kernel, given)
        self.moved = _bytes(given[p.name] for p in kernel.params if p.is_tensor) + self.reference.bytes

    def copies(self) -> dict[str, Any]:
        """The arguments, those that are written in place anew."""
        return {k: v.clone() if k in self.state else v for k, v in self.given.items()}

    def add_target(self, target: str) -> None:
        """Run a target once, compare its results with the reference's, and keep it for timing; where it raises or they are wrong,
        `wrong` says why."""
        from kgen.runtime.kernel import Kernel as Runnable

        assert self.reference is not None
        copies = self.copies()
        run = partial(Runnable(self.kernel), **copies, target=target)
        try:
            fresh, first = timed(run, self.device)
            outs = list(fresh) if isinstance(fresh, tuple) else [fresh]
            got = [copies[r.state] if r.state else outs.pop(0) for r in self.kernel.results]
            self.reference.refuse(target, got)
            self.misrounded[target] = self.reference.misrounded(got)
        except Exception as error:  # what a compiler or a driver raises, too: the others are still worth timing
            self.wrong[target] = error.render() if isinstance(error, KgenError) else reason(error)
            return
        self.runs[target], self.first[target] = _ungraded(run), first  # a fresh result each call, as the peers make one

    def add_peer(self, peer: str, name: str = "") -> None:
        """Take a peer, timed under `name`, where its results are the formula's."""
        from kgen.bench import libraries

        assert self.reference is not None
        try:
            run = libraries.prepared(self.kernel, peer, self.copies())
            results, first = timed(run, self.device)
            why = "" if libraries.is_formula(self.kernel, peer) else self.reference.alike(results)
            self.misrounded[name or peer] = None if why else self.reference.misrounded(results)
        except Exception as error:
            why = reason(error)
        if why:
            self.left_out[peer] = why
        else:
            self.runs[name or peer], self.first[name or peer] = _ungraded(run), first


def _ungraded(run: Callable[[], Any]) -> Callable[[], Any]:
    import torch

    return torch.no_grad()(run)


class _Gradients:
    """A kernel's backward passes through autograd, all gradients at once; a first call has the forward in it."""

    def __init__(self, kernel: Kernel, given: dict[str, Any], device: str):
        """`given` are the forward's arguments by name, on `device`; raises `KgenError` where the kernel has no backward."""
        import torch

        from kgen.bench.reference import Reference
        from kgen.grad import backward
        from kgen.runtime.evaluate import Evaluator

        self.kernel, self.device = kernel, device
        self.runs: dict[str, Callable[[], Any]] = {}
        self.first: dict[str, float] = {}
        self.misrounded: dict[str, float | None] = {}
        self.left_out: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        anew, made = backward(kernel, save=False), backward(kernel)
        self.counted = made.kernel
        self.leaves = {name: given[name].detach().requires_grad_() for name in made.gradients}
        self.given = given | self.leaves
        with torch.no_grad():
            forward = dict(zip((r.name for r in made.forward.results), Evaluator(made.forward, self.given).run(), strict=True))
            self.dys = {r: torch.randn_like(forward[r]).contiguous() for r in anew.cotangents}
            took = {anew.cotangents[r]: dy for r, dy in self.dys.items()} | {name: self.given[name] for name in anew.takes}
            self.reference: Reference | None = Reference(anew.kernel, took)
        read = [given[name] for name in made.takes if name not in made.sized and isinstance(given[name], torch.Tensor)]
        self.moved = _bytes([*self.dys.values(), *read, *(forward[name] for name in made.saved)]) + self.reference.bytes

    def take(self, function: Callable[[], Any]) -> tuple[Callable[[], Any], list[Any], float]:
        """The backward of a call whose results stand in the kernel's order; its gradients, the seconds of both."""
        import torch

        runs: list[Callable[[], Any]] = []

        def both() -> Any:
            results = function()
            named = dict(zip((r.name for r in self.kernel.results), results if isinstance(results, tuple) else (results,), strict=True))
            ys = [named[r] for r in self.dys]
            dys = [dy.to(y.dtype) for dy, y in zip(self.dys.values(), ys, strict=True)]  # F.cross_entropy's is no f32
            runs.append(partial(torch.autograd.grad, ys, list(self.leaves.values()), dys, retain_graph=True))
            return runs[0]()

        found, first = timed(both, self.device)
        return runs[0], list(found), first

    def add_target(self, target: str) -> None:
        from kgen.runtime.kernel import Kernel as Runnable

        assert self.reference is not None
        try:
            run, got, first = self.take(partial(Runnable(self.kernel), **self.given, target=target))
            self.reference.refuse(target, got)
            self.misrounded[target] = self.reference.misrounded(got)
        except Exception as error:
            self.wrong[target] = error.render() if isinstance(error, KgenError) else reason(error)
            return
        self.runs[target], self.first[target] = run, first

    def add_peer(self, peer: str, name: str = "") -> None:
        """Take a peer, timed under `name`, where its results are the formula's."""
        from kgen.bench import libraries

        assert self.reference is not None
        try:
            run, got, first = self.take(libraries.prepared(self.kernel, peer, self.given))
            why = "" if libraries.is_formula(self.kernel, peer) else self.reference.alike(got)
            self.misrounded[name or peer] = None if why else self.reference.misrounded(got)
        except Exception as error:
            why = reason(error)
        if why:
            self.left_out[peer] = why
        else:
            self.runs[name or peer], self.first[name or peer] = run, first


def timed(run: Callable[[], Any], device: str) -> tuple[Any, float]:
    """What a call returns, and the seconds until it is done."""
    start = time.perf_counter()
    result = run()
    wait(device)
    return result, time.perf_counter() - start


def wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def reason(error: BaseException) -> str:
    """An error of somebody else's in one line."""
    text = next((line for line in str(error).strip().split("\n") if line.strip()), "")
    return printed(f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__, "")
