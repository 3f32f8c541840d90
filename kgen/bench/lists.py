"""`kgen bench --foreach`: a kernel over all parameters of a model in one call, beside torch's operators over lists, and a copy.

In: a kernel.  Out: a row for each target over lists, for a call of it for each tensor, and for each peer; results are compared first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import torch

from kgen.bench.reference import Reference
from kgen.bench.timing import COPY, copying, reason, spreads_ms, wait
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel as Runnable
from kgen.runtime.samples import arguments

HEADS = ("kernel", "dtype", "tensors", "elements", "what", "ms", "MB", "GB/s", "of copy", "host us")
SINGLY = "each alone"
Lists = dict[str, Any]  # a list of tensors by a parameter's name, or a number
Peer = Callable[..., Callable[[], Any]]  # of the spec's parameters by name: what runs, and returns a list for each result or None


def gpt2_small() -> Iterator[tuple[int, ...]]:
    """The shapes of GPT-2 small's parameters: 148 of them, 124 million elements."""
    n = 768
    yield from ((50_257, n), (1024, n))
    for _ in range(12):
        yield from ((n,), (n,), (n, 3 * n), (3 * n,), (n, n), (n,), (n,), (n,), (n, 4 * n), (4 * n,), (4 * n, n), (n,))
    yield from ((n,), (n,))


def _fused_adamw(p: Any, g: Any, m: Any, v: Any, t: int, lr: float, b1: float, b2: float, eps: float, wd: float) -> Callable[[], Any]:
    """The operator of torch.optim.AdamW(fused=True) alone, all steps of the count t."""
    steps = [torch.full((), float(t), device=x.device) for x in p]
    numbers: dict[str, Any] = {"lr": lr, "beta1": b1, "beta2": b2, "weight_decay": wd, "eps": eps, "amsgrad": False, "maximize": False}
    return lambda: torch._fused_adamw_(p, g, m, v, [], steps, **numbers)


def _adamw_step(
    p: Any, g: Any, m: Any, v: Any, t: int, lr: float, b1: float, b2: float, eps: float, wd: float, **way: bool
) -> Callable[[], Any]:
    """A step of torch.optim.AdamW as a user takes it; its count goes on from t."""
    optimizer = torch.optim.AdamW(p, lr=lr, betas=(b1, b2), eps=eps, weight_decay=wd, **way)
    for own, grad, first, second in zip(p, g, m, v, strict=True):
        own.grad = grad
        step = torch.tensor(float(t - 1), device=own.device if way.get("fused") else "cpu")
        optimizer.state[own] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
    return optimizer.step


#: Of a bundled spec's name: torch's ways over lists, each prepared with the spec's parameters.
PEERS: dict[str, dict[str, Peer]] = {
    "adamw": {
        "torch._fused_adamw_": _fused_adamw,
        "AdamW(fused)": partial(_adamw_step, fused=True),
        "AdamW(foreach)": partial(_adamw_step, foreach=True),
    },
    "lerp_ema": {"torch._foreach_lerp_": lambda ema, x, w: partial(torch._foreach_lerp_, ema, x, w)},
}


@dataclass
class ListTiming:
    """One row: `what` over `tensors` tensors of `elements` in all took `ms` (median), and moved `bytes`; `copy` is the time of a copy of as
    many bytes, `host` the microseconds until a call returns (0 on the CPU, where it returns when it is done)."""

    kernel: str
    dtype: str
    tensors: int
    elements: int
    what: str
    ms: float
    bytes: int
    copy: float
    host: float
    low: float = 0.0
    high: float = 0.0
    device: str = ""

    def row(self) -> tuple[str, ...]:
        host = f"{self.host:.0f}" if self.host else "-"
        return (self.kernel, self.dtype, f"{self.tensors:,}", f"{self.elements:,}", self.what, f"{self.ms:.4g}",
                f"{self.bytes * 1e-6:.4g}", f"{self.bytes / self.ms * 1e-6:.4g}", f"{self.copy / self.ms:.3f}", host)  # fmt: skip


class Model:
    """A kernel's arguments over the shapes of a model, and the results that are held to."""

    def __init__(self, kernel: Kernel, dtype: str, scale: Fraction, device: str, row: int):
        self.kernel, self.device = kernel, device
        sizes = [max(1, int(math.prod(shape) * scale)) for shape in gpt2_small()]
        made = [arguments(kernel, dtype, size, device, row) for size in sizes]
        self.given: Lists = {p.name: [own[p.name] for own in made] if p.is_tensor else made[0][p.name] for p in kernel.params}
        first = {size: k for k, size in reversed(list(enumerate(sizes)))}
        self.like = [first[size] for size in sizes]  # the first tensor of its size
        self.references = {k: Reference(kernel, made[k]) for k in first.values()}
        self.tensors, self.elements = len(sizes), sum(sizes)

    def copies(self) -> Lists:
        """The arguments, those that are written in place anew."""
        states = {r.state for r in self.kernel.results}
        return {name: [t.clone() for t in x] if name in states else x for name, x in self.given.items()}

    def results(self, lists: Lists, fresh: Any) -> list[list[Any]]:
        """A list for each result of the kernel, of what a call wrote and returned."""
        found = list(fresh) if isinstance(fresh, tuple) else [fresh]
        return [lists[r.state] if r.state else found.pop(0) for r in self.kernel.results]

    def target(self, target: str) -> dict[str, Callable[[], Any]]:
        """A target's calls, over lists and one by one.  Raises `KgenError` where the results are wrong."""
        runnable, lists = Runnable(self.kernel), self.copies()
        run = partial(runnable.foreach, **lists, target=target)
        got = self.results(lists, run())
        for k, reference in self.references.items():
            reference.refuse(target, [own[k] for own in got])
        names = [p.name for p in self.kernel.params]
        tuples = [[lists[name][k] if isinstance(lists[name], list) else lists[name] for name in names] for k in range(self.tensors)]
        return {target: run, f"{target} {SINGLY}": lambda: [runnable(*own, target=target) for own in tuples]}

    def peer(self, peer: Peer) -> Callable[[], Any]:
        """A peer's call.  Raises `KgenError` where it computes something else."""
        lists = self.copies()
        run = peer(**lists)
        got = self.results(lists, run())
        for k, reference in self.references.items():
            if why := reference.alike([own[k] for own in got]):
                raise KgenError(why)
        return run

    @property
    def moved(self) -> int:
        """The bytes that a call must move: each tensor that is given or made, once."""
        tensors = [t for p in self.kernel.params if p.is_tensor for t in self.given[p.name]]
        return sum(t.numel() * t.element_size() for t in tensors) + sum(self.references[k].bytes for k in self.like)


def time_lists(
    kernel: Kernel, targets: list[str], peers: bool, dtype: str, scale: Fraction, device: str, row: int
) -> tuple[list[ListTiming], dict[str, str]]:
    """The rows of a kernel on one dtype, and the peers that were left out, with why.  Raises `KgenError` where a target is wrong."""
    left_out: dict[str, str] = {}
    with torch.no_grad():
        model, runs = Model(kernel, dtype, scale, device, row), dict[str, Callable[[], Any]]()
        for target in targets:
            runs |= model.target(target)
        for name, peer in PEERS.get(kernel.name, {}).items() if peers else ():
            try:
                runs[name] = model.peer(peer)
            except Exception as error:
                left_out[name] = reason(error)
        moved, model.references = model.moved, {}
        spreads = spreads_ms(runs | {COPY: copying(moved, device)}, device)
        hosts = {name: host_us(run, device) for name, run in runs.items()}
    copy = spreads.pop(COPY)[0]
    machine = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    rows = [
        ListTiming(kernel.name, dtype, model.tensors, model.elements, name, ms, moved, copy, hosts[name], low, high, machine)
        for name, (ms, low, high) in spreads.items()
    ]
    return rows, left_out


def host_us(run: Callable[[], Any], device: str, rounds: int = 20) -> float:
    """The microseconds of the host until a call returns, the least of some rounds; 0 on the CPU."""
    if device != "cuda":
        return 0.0
    least = math.inf
    for _ in range(rounds):
        wait(device)
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
    wait(device)
    return least * 1e6
