"""Timing: medians, with the cache flushed on a GPU, and the table of one kernel's targets and peers.

Figures of one run belong together: each row has the time, the bytes that must move (by count), and the ratio to every
other row that was asked for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
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


Runs = dict[str, Callable[[], Any]]


def bench(
    kernel: Kernel,
    targets: list[str],
    peers: tuple[str, ...],
    dtype: str,
    elements: int,
    device: str,
    row: int = ROW,
    backward: bool = False,
) -> list[Timing]:
    """Time a kernel's targets (or their gradients, through autograd) and peers on one size; results are compared first.

    Raises `KgenError` where a target's result is not that of the formula, or there is no backward.
    """
    import torch

    given = arguments(kernel, dtype, elements, device, row)
    largest = max(given[p.name].numel() for p in kernel.params if p.is_tensor)
    runs, first, moved = (_gradients if backward else _results)(kernel, given, targets, peers, device)
    source = torch.empty(moved // 2, dtype=torch.uint8, device=device).random_(0, 255)
    sink = torch.empty_like(source)
    copy = median_ms(lambda: sink.copy_(source), device)
    times = {name: median_ms(run, device) for name, run in runs.items()}
    length = row if kernel.reduces else 0
    name = f"{kernel.name} backward" if backward else kernel.name
    rows = []
    for what, ms in times.items():
        ratios = {f"vs {peer}": times[peer] / ms for peer in peers}
        rows.append(Timing(name, dtype, largest, length, what, ms, moved, copy, first[what], ratios))
    return rows


def _bytes(tensors: Iterable[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _peers(kernel: Kernel, given: dict[str, Any], peers: tuple[str, ...]) -> dict[str, Callable[..., tuple]]:
    """The formula in torch, as each peer runs it, on the kernel's arguments in order."""
    import torch

    from kgen.bench.peers import written_out

    graph, made = written_out(kernel, given), {}
    for peer in peers:
        if peer == "compile":
            torch._dynamo.reset()
        made[peer] = torch.compile(graph) if peer == "compile" else graph
    return made


def _results(
    kernel: Kernel, given: dict[str, Any], targets: list[str], peers: tuple[str, ...], device: str
) -> tuple[Runs, dict[str, float], int]:
    """A kernel's calls, the seconds of each first one, and the bytes that one must move."""
    import torch

    from kgen.runtime.evaluate import Evaluator
    from kgen.runtime.kernel import Kernel as Runnable

    runs: Runs = {}
    first: dict[str, float] = {}
    state = [r.state for r in kernel.results]
    with torch.no_grad():
        results = [r.clone() for r in Evaluator(kernel, given).run()]  # computed in f32, rounded once, as kernels do
        for target in targets:
            runnable = Runnable(kernel)
            copies = {k: v.clone() if k in state else v for k, v in given.items()}
            fresh, first[target] = _timed(partial(runnable, **copies, target=target), device)
            outs = list(fresh) if isinstance(fresh, tuple) else [fresh]
            got = [copies[r.state] if r.state else outs.pop(0) for r in kernel.results]
            _compare(kernel, target, got, results)
            # a fresh result each call, as the peers make one
            runs[target] = _ungraded(partial(runnable, **copies, target=target))
        for peer, function in _peers(kernel, given, peers).items():
            runs[peer] = _ungraded(partial(function, *(given[p.name] for p in kernel.params)))
            _, first[peer] = _timed(runs[peer], device)
    return runs, first, _bytes([*(given[p.name] for p in kernel.params if p.is_tensor), *results])


def _ungraded(run: Callable[[], Any]) -> Callable[[], Any]:
    import torch

    return torch.no_grad()(run)


def _gradients(
    kernel: Kernel, given: dict[str, Any], targets: list[str], peers: tuple[str, ...], device: str
) -> tuple[Runs, dict[str, float], int]:
    """A kernel's backward passes through autograd, all gradients at once; a first call has the forward in it."""
    import torch

    from kgen.grad import backward
    from kgen.runtime.evaluate import Evaluator
    from kgen.runtime.kernel import Kernel as Runnable

    anew, made = backward(kernel, save=False), backward(kernel)
    leaves = {name: given[name].detach().requires_grad_() for name in made.gradients}
    given = given | leaves
    with torch.no_grad():
        forward = dict(zip((r.name for r in made.forward.results), Evaluator(made.forward, given).run(), strict=True))
        dys = {r: torch.randn_like(forward[r]).contiguous() for r in anew.cotangents}
        took = {anew.cotangents[r]: dy for r, dy in dys.items()} | {name: given[name] for name in anew.takes}
        wanted = [g.clone() for g in Evaluator(anew.kernel, took).run()]
    read = [given[name] for name in made.takes if name not in made.sized and isinstance(given[name], torch.Tensor)]
    moved = _bytes([*dys.values(), *read, *(forward[name] for name in made.saved), *wanted])
    runs: Runs = {}
    first: dict[str, float] = {}

    def take(name: str, function: Callable[[], Any]) -> list[Any]:
        """Keep the backward of a call whose results stand in the kernel's order; its gradients."""

        def both() -> Any:
            results = function()
            named = dict(zip((r.name for r in kernel.results), results if isinstance(results, tuple) else (results,), strict=True))
            ys = [named[r] for r in dys]
            runs[name] = partial(torch.autograd.grad, ys, list(leaves.values()), list(dys.values()), retain_graph=True)
            return runs[name]()

        found, first[name] = _timed(both, device)
        return list(found)

    for target in targets:
        got = take(target, partial(Runnable(kernel), **given, target=target))
        _compare(anew.kernel, target, got, wanted)
    for peer, function in _peers(kernel, given, peers).items():
        take(peer, partial(function, *(given[p.name] for p in kernel.params)))
    return runs, first, moved


def _timed(run: Callable[[], Any], device: str) -> tuple[Any, float]:
    """What a call returns, and the seconds until it is done."""
    start = time.perf_counter()
    result = run()
    _wait(device)
    return result, time.perf_counter() - start


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
