"""What a call costs the host: microseconds on few elements, where the work itself is nothing.

In: a kernel.  Out: a row for each target with a fresh result and with `out=`, for torch.compile of the formula, and for eager F.gelu,
which is what such a call is measured by.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kgen.bench.timing import reason, wait
from kgen.check import Kernel
from kgen.runtime.samples import arguments

FEW = 1024  # elements of which a call is all overhead
HEADS = ("kernel", "dtype", "elements", "what", "us a call", "more us", "ratio")
EAGER = "F.gelu"


@dataclass
class CallTiming:
    """One row: the host's time of a call in microseconds, how many more those are than eager F.gelu's on as many elements of that
    dtype, and the ratio to it, in the same run."""

    kernel: str
    dtype: str
    elements: int
    what: str
    us: float
    more: float
    ratio: float

    def row(self) -> tuple[str, ...]:
        return (self.kernel, self.dtype, f"{self.elements:,}", self.what, f"{self.us:.2f}", f"{self.more:+.2f}", f"{self.ratio:.2f}")


def call_times(
    kernel: Kernel, targets: list[str], peers: tuple[str, ...], dtype: str, device: str, rounds: int = 40, turns: int = 200
) -> tuple[list[CallTiming], dict[str, str]]:
    """Time what a call costs the host, through `Kernel.__call__` with all its checks; and which peers were left out, and why.

    Each round times them all in turn, so that what slows the machine slows each; the least of the rounds counts.
    """
    import torch
    import torch.nn.functional as F

    from kgen.bench import libraries
    from kgen.bench.library import holding
    from kgen.runtime.kernel import Kernel as Runnable

    given = holding(kernel.name, arguments(kernel, dtype, FEW, device, FEW))
    positional = [given[p.name] for p in kernel.params]
    x = torch.randn(FEW, device=device).to(getattr(torch, {"f16": "float16", "bf16": "bfloat16", "f64": "float64"}.get(dtype, "float32")))
    runs: dict[str, Callable[[], Any]] = {EAGER: partial(F.gelu, x)}
    left_out: dict[str, str] = {}
    with torch.no_grad():
        calls: dict[str, dict[str, Any]] = {target: {"target": target} for target in targets} if len(targets) > 1 else {}
        for name, chosen in {"kgen" if calls else targets[0]: {}, **calls}.items():  # as one calls it, then each target by name
            bound = partial(Runnable(kernel), *positional, **chosen)
            fresh = bound()
            runs[name] = bound
            if fresh is not None:
                runs[f"{name} out="] = partial(bound, out=fresh)
        for peer in dict.fromkeys(way for p in peers for way in libraries.ways(kernel, p)):
            try:
                runs[peer] = libraries.prepared(kernel, peer, given)
                runs[peer]()
            except Exception as error:
                left_out[peer] = reason(error)
                runs.pop(peer, None)
        least = dict.fromkeys(runs, float("inf"))
        for run in runs.values():
            run()
        for _ in range(rounds):
            for name, run in runs.items():
                wait(device)
                start = time.perf_counter()
                for _ in range(turns):
                    run()
                least[name] = min(least[name], (time.perf_counter() - start) / turns * 1e6)
    eager = least[EAGER]
    return [CallTiming(kernel.name, dtype, FEW, name, us, us - eager, us / eager) for name, us in least.items()], left_out
