"""The kernels that a call launches, with the time of each, as torch.profiler sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEADS = ("kernel", "dtype", "elements", "row", "what", "launched", "times", "us")
TURNS = 5  # calls that are profiled
LEAST = 0.01  # of the time: less than that is not listed
WIDEST = 80  # characters of a name that are shown


@dataclass
class Launched:
    """One row: what a call of `what` launched (on a CPU the operators, or the call), how often a call, its time a call in microseconds."""

    kernel: str
    dtype: str
    elements: int
    length: int
    what: str
    launched: str
    times: float
    us: float

    def row(self) -> tuple[str, ...]:
        name = self.launched if len(self.launched) <= WIDEST else self.launched[: WIDEST - 3] + "..."
        length = f"{self.length:,}" if self.length else "-"
        return (self.kernel, self.dtype, f"{self.elements:,}", length, self.what, name, f"{self.times:g}", f"{self.us:.2f}")


def launched(run: Callable[[], Any], device: str) -> list[tuple[str, float, float]]:
    """What a call launches: (name, times a call, microseconds a call), the longest first; on a CPU "the call" is all that is not an
    operator of torch's."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    from kgen.bench.timing import wait

    activities = [ProfilerActivity.CUDA, ProfilerActivity.CPU] if device == "cuda" else [ProfilerActivity.CPU]
    run()
    wait(device)
    with profile(activities=activities) as seen:
        for _ in range(TURNS):
            with record_function("the call"):
                run()
        wait(device)
    found: list[tuple[str, float, float]] = []
    for event in seen.key_averages():
        on_gpu = event.device_type == torch.autograd.DeviceType.CUDA
        if on_gpu != (device == "cuda") or on_gpu and (event.key == "the call" or getattr(event, "is_user_annotation", False)):
            continue  # spans of others' are no kernels
        us = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        found.append((event.key, event.count / TURNS, us / TURNS))
    total = sum(f[2] for f in found)
    return sorted((f for f in found if f[2] >= LEAST * total), key=lambda f: -f[2])
