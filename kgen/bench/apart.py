"""Cells of a bench that outlive the GPU's context: an assertion that fails in a kernel ends its process's context, not the run.

In: the arguments of `timing.bench`.  Out: what it found.  Cells run in this process as long as its GPU answers; behind a kernel that ended
that, each in a process of its own, the cell at hand once more without what ended it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from kgen.bench import timing
from kgen.check import Kernel


class Cells:
    """Calls of `timing.bench` for one kernel after the other."""

    def __init__(self) -> None:
        self.apart = False  # whether this process's GPU is lost

    def bench(self, kernel: Kernel, targets: list[str], peers: Sequence[str], *where: Any) -> timing.Found:
        """What `timing.bench` finds.  A target that ends what runs on the GPU is among the wrong ones, a peer among those left out; raises
        what that raises."""
        try:
            return self._run(kernel, targets, peers, *where)
        except timing.Lost as lost:
            self.apart = True
            ours = lost.what in targets
            left = [t for t in targets if t != lost.what], [p for p in peers if p != lost.what]
            found = self.bench(kernel, *left, *where) if left[0] else timing.Found()
            (found.wrong if ours else found.left_out)[lost.what] = f"{lost.why} (it ended what runs on the GPU)"
            return found

    def _run(self, *cell: Any) -> timing.Found:
        if not self.apart:
            return timing.bench(*cell)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
            return fresh.submit(timing.bench, *cell).result()

    def free(self, device: str) -> None:
        """Give a cell's memory back, and see whether the GPU still answers."""
        self.apart = self.apart or timing.lost(device)
        if not self.apart:
            timing.free(device)
