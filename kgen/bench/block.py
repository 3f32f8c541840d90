"""`kgen bench --block`: GPT-2 small's layers trained with kgen's kernels, by eager PyTorch and by torch.compile, in one run.

In: sizes.  Out: a row for each way, with the time of a step, the memory at its peak, what a step costs the host, and how far its first
losses lie from those of the same model in float64.  All ways begin with the same weights and take the same batches, matrix products and
attention are torch's in each.  What trains by torch's functions does so as people do, f32 parameters under autocast to bf16 and the
fused AdamW; `gpt2.FusedModel` computes in the same dtypes.  No way has CUDA graphs.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from kgen.bench import gpt2
from kgen.bench.gpt2 import Sizes
from kgen.bench.timing import free, reason, spread, wait
from kgen.errors import KgenError

HEADS = ("layers", "batch", "what", "ms a step", "tokens/s", "peak MB", "host ms", "loss", "after", "off f64")
EAGER, COMPILED, KGEN, BOTH = "eager", "compile", "kgen", "kgen compiled"
LOSSES = 10  # steps whose losses are compared
TURNS, STEPS, LEAD = 3, 8, 2  # turns of each way, steps in each that are timed, and before these
FAR = 8.0  # times eager's own greatest distance to float64 (or 1e-3 of the loss), beyond which losses do not agree
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # a batch's tokens and the next ones to its loss; then the weights have moved


@dataclass
class BlockTiming:
    """One row: a way's step in `ms` (median; `low` and `high` are the 20th and 80th percentile) and `host` ms until it returns, what it
    takes of memory at its peak beyond the batches, in MB (0 on a CPU), its first losses and those of float64."""

    what: str
    layers: int
    batch: int
    width: int
    length: int
    vocabulary: int
    ms: float
    low: float
    high: float
    host: float
    memory: float
    losses: list[float]
    exact: list[float]
    device: str

    @property
    def apart(self) -> float:
        """The greatest relative distance of a loss to float64's."""
        return max(distances(self.losses, self.exact))

    def row(self) -> tuple[str, ...]:
        memory, host = (f"{x:{form}}" if x else "-" for x, form in ((self.memory, ",.0f"), (self.host, ".2f")))
        rate = f"{self.batch * self.length / self.ms * 1e3:,.0f}"
        losses = f"{self.losses[0]:.4f}", f"{self.losses[-1]:.4f}", f"{self.apart:.1e}"
        return (f"{self.layers}", f"{self.batch}", self.what, f"{self.ms:.4g}", rate, memory, host, *losses)


def distances(losses: list[float], exact: list[float]) -> list[float]:
    """How far each loss is from the exact one, of that."""
    return [abs(a - b) / abs(b) if math.isfinite(a) else math.inf for a, b in zip(losses, exact, strict=True)]


class Trained:
    """A way of training that has begun: its step, its losses so far, the memory at its peak (beyond what there was before), in MB."""

    def __init__(self, make: Callable[[], Step], data: list[Any], device: str):
        """Take the first steps of what `make` makes; whatever it raises is the caller's to tell."""
        before = _allocated(device)
        self.data, self.device, self.step = data, device, make()
        self.losses = [float(x) for x in [self.step(*data[k % len(data)]) for k in range(LOSSES)]]
        _reset_peak(device)
        self.step(*data[0])
        wait(device)
        self.memory = (_peak(device) - before) * 1e-6

    def times(self) -> list[float]:
        """The milliseconds of each of some steps that follow one another."""
        marks: list[Any] = []
        for k in range(LEAD + STEPS + 1):
            if k >= LEAD:
                marks.append(_mark(self.device))
            if k < LEAD + STEPS:
                self.step(*self.data[k % len(self.data)])
        wait(self.device)
        return [_between(a, b) for a, b in zip(marks, marks[1:], strict=False)]

    def host(self, rounds: int = 5) -> float:
        """The milliseconds until a step returns, the least of some, with nothing else under way; 0 on a CPU."""
        if self.device != "cuda":
            return 0.0
        least = math.inf
        for _ in range(rounds):
            wait(self.device)
            start = time.perf_counter()
            self.step(*self.data[0])
            least = min(least, time.perf_counter() - start)
        wait(self.device)
        return least * 1e3


def of_torch(plain: gpt2.Model, device: str, compiled: bool = False) -> Step:
    """A step with torch's functions: f32 parameters, autocast to bf16, the fused AdamW."""
    model = copy.deepcopy(plain).to(device)
    run = torch.compile(model) if compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=gpt2.RATE, betas=gpt2.BETAS, weight_decay=gpt2.DECAY, fused=True)
    return _training(run, optimiser, lambda: torch.autocast(device, torch.bfloat16))


def _training(run: Any, optimiser: Any, inside: Callable[[], Any] = contextlib.nullcontext) -> Step:
    """A step of a model that gives the loss, which it computes inside of a context."""

    def step(tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        with inside():
            loss = run(tokens, wanted)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()

    return step


def of_kgen(plain: gpt2.Model, sizes: Sizes, device: str, compiled: bool = False) -> Step:
    """A step with kgen's kernels."""
    model = gpt2.FusedModel(sizes, plain, device)
    run = torch.compile(model, fullgraph=True) if compiled else model
    return _training(run, gpt2.Optimiser(model))


def exact_losses(plain: gpt2.Model, data: list[Any], device: str) -> list[float]:
    """The losses of the first steps in float64, a sequence at a time."""
    model = copy.deepcopy(plain).to(device, torch.float64)
    optimiser = torch.optim.AdamW(model.parameters(), lr=gpt2.RATE, betas=gpt2.BETAS, weight_decay=gpt2.DECAY)
    found = []
    for k in range(LOSSES):
        tokens, wanted = data[k % len(data)]
        total = torch.zeros((), dtype=torch.float64, device=device)
        for own, following in zip(tokens.split(1), wanted.split(1), strict=True):
            loss = model(own, following) / len(tokens)
            loss.backward()
            total += loss.detach()
        optimiser.step()
        optimiser.zero_grad()
        found.append(float(total))
    return found


def time_block(sizes: Sizes, peers: Sequence[str], device: str, warn: Callable[[str], None]) -> Iterator[BlockTiming]:
    """The rows of the ways: torch's that are among `peers` ("eager", "compile"), kgen's, and with "compile" kgen's compiled.

    One that fails is left out and told to `warn`.  Raises `KgenError` where kgen itself fails, or its losses are not those of float64.
    """
    torch.manual_seed(0)
    plain = gpt2.Model(sizes)
    data = list(gpt2.batches(sizes, LOSSES, device))
    exact = exact_losses(plain, data, device)
    free(device)
    ways: dict[str, Callable[[], Step]] = {COMPILED: partial(of_torch, plain, device, True), EAGER: partial(of_torch, plain, device)}
    ways = {KGEN: partial(of_kgen, plain, sizes, device)} | {name: make for name, make in ways.items() if name in peers}
    groups = [ways]
    if COMPILED in peers:
        groups.append({BOTH: partial(of_kgen, plain, sizes, device, True)})
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    shape = sizes.layers, sizes.batch, sizes.width, sizes.length, sizes.vocabulary
    apart: dict[str, float] = {}
    for group in groups:  # the last way takes longest to begin: what is killed then has the others' rows
        begun = begin(group, data, device, warn)
        hosts = {name: way.host() for name, way in begun.items()}
        times: dict[str, list[float]] = {name: [] for name in begun}
        for _ in range(TURNS):
            for name, way in begun.items():
                times[name] += way.times()
        for name, way in begun.items():
            ms, low, high = spread(times[name])
            yield BlockTiming(name, *shape, ms, low, high, hosts[name], way.memory, way.losses, exact, machine)
        apart |= {name: max(distances(way.losses, exact)) for name, way in begun.items()}
        refuse(apart)


def begin(ways: dict[str, Callable[[], Step]], data: list[Any], device: str, warn: Callable[[str], None]) -> dict[str, Trained]:
    """Each way with its first steps taken; one that fails is told to `warn` and left out, but for kgen's own, which raises."""
    begun: dict[str, Trained] = {}
    for name, make in ways.items():
        try:
            begun[name] = Trained(make, data, device)
        except Exception as error:
            if name == KGEN:
                raise
            warn(f"left out {name}: {reason(error)}")
        free(device)
    return begun


def refuse(apart: dict[str, float]) -> None:
    """Raise `KgenError` where losses of kgen's ways lie farther from float64's than eager's do, by much."""
    allowed = FAR * max(apart.get(EAGER, 0.0), 1e-3 / FAR)
    for name in (KGEN, BOTH):
        if apart.get(name, 0.0) > allowed:
            raise KgenError(f"the losses of {name} are up to {apart[name]:.1e} off those of float64, where {allowed:.1e} is allowed")


def _mark(device: str) -> Any:
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(a: Any, b: Any) -> float:
    return (b - a) * 1e3 if isinstance(a, float) else float(a.elapsed_time(b))


def _allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def _peak(device: str) -> int:
    return torch.cuda.max_memory_allocated() if device == "cuda" else 0


def _reset_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
