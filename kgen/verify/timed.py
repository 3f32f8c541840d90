"""A candidate's time beside that of the spec's own kernel, fairly: both in the candidate's process, on other arguments each round.

On a GPU the caches are flushed before each round, and two clocks are read: CUDA's events on the caller's stream, and the host's with the
device idle before and after.  Work that the stream does not see makes the second longer than the first.  What a timed round gave is looked
at afterwards, so that what is timed is what is right.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kgen.bench.reference import Reference
from kgen.bench.timing import spread
from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel as Runnable
from kgen.runtime.kernel import loads
from kgen.runtime.samples import arguments

#: Bound before the candidate's code runs; of C, so that nothing replaces their methods.
_clock, _event, _base = time.perf_counter, torch.cuda.Event, getattr(torch._C, "_CudaEventBase", torch.cuda.Event)
_synchronize: Callable[[], None] = getattr(torch._C, "_cuda_synchronize", lambda: None)
_stream, _allclose = torch.cuda.current_stream, torch.allclose
#: What others read clocks and compare by: a candidate that replaces one of them is up to something.
WATCHED = {
    "time.perf_counter": (time, "perf_counter"), "time.time": (time, "time"), "time.monotonic": (time, "monotonic"),
    "torch.cuda.synchronize": (torch.cuda, "synchronize"), "torch.cuda.Event.elapsed_time": (torch.cuda.Event, "elapsed_time"),
    "torch.cuda.Event.synchronize": (torch.cuda.Event, "synchronize"), "torch.cuda.Stream.synchronize": (torch.cuda.Stream, "synchronize"),
    "torch.allclose": (torch, "allclose"), "torch.equal": (torch, "equal"),
}  # fmt: skip
_own = {title: getattr(*place, None) for title, place in WATCHED.items()}
SETS = 3  # of arguments, which rounds take in turn
SECONDS = 0.5  # that each is timed for
MOST = 200  # rounds
APART = 1.5  # the host's clock (its 20th percentile) over the events', beyond what a launch takes, at which they disagree
LAUNCH = 0.1  # ms that a call and waiting for it take beside its kernels
TRIES = 3  # of a measurement at which clocks disagree: other work on the machine may take all rounds of one

Run = Callable[[dict[str, Any]], Any]


def measure(candidate: Any, device: str, spec: str, dtype: str, elements: int, row: int) -> dict[str, Any]:
    """The figures of a candidate and of the kernel that kgen makes of the spec, on arguments of a size.

    Gives `rows` (each with what, dtype, elements, ms, low, high, and on a GPU the host's clock), `wrong` (why a timed result is wrong),
    `apart` (why the two clocks disagree) and `replaced` (what of WATCHED the candidate has replaced); they are "" where all is well."""
    kernel = loads(spec).kernel
    sets = [arguments(kernel, dtype, elements, device, row) for _ in range(SETS)]
    written = [r.state for r in kernel.results if r.state]
    own = Runnable(kernel)

    def theirs(given: dict[str, Any]) -> Any:
        if candidate.destination:
            outs = [torch.empty_like(y) for y in like]
            return candidate(given, outs, "destination")
        return candidate(given, [], "fresh")

    with torch.no_grad():
        like = own(**_copied(sets[0], written))
        like = [] if like is None else list(like) if isinstance(like, tuple) else [like]
        runs: dict[str, Run] = {"candidate": theirs, "kgen": lambda given: own(**given)}
        figures = {name: _agreed(partial(_timed, run, sets, written, device)) for name, run in runs.items()}
        replaced = ", ".join(title for title, place in WATCHED.items() if getattr(*place, None) is not _own[title])
        wrong = _wrong(kernel, theirs, sets, written)
    rows = []
    largest = max(x.numel() for x in sets[0].values() if isinstance(x, torch.Tensor))
    apart = ""
    for name, (events, clock) in figures.items():
        ms, low, high = spread(events)
        figure = {"what": name, "dtype": dtype, "elements": largest, "ms": round(ms, 5), "low": round(low, 5), "high": round(high, 5)}
        if device == "cuda":
            figure["clock ms"] = round(spread(clock)[0], 5)
            apart = _apart(events, clock) if name == "candidate" else apart
        rows.append(figure)
    return {"rows": rows, "wrong": wrong, "apart": apart, "replaced": replaced}


def _agreed(measured: Callable[[], tuple[list[float], list[float]]]) -> tuple[list[float], list[float]]:
    """What the first of TRIES measurements gives at which clocks agree, or the last of them."""
    found = measured()
    for _ in range(TRIES - 1):
        if not _apart(*found):
            break
        found = measured()
    return found


def _apart(events: list[float], clock: list[float]) -> str:
    """Why the milliseconds of rounds by events on a stream and those by the host's clock (none on a CPU) disagree; "" where they agree."""
    if not clock:
        return ""
    ms, whole = spread(events)[0], spread(clock)[1]  # other work on the machine makes some rounds longer, not all
    if whole <= APART * ms + LAUNCH:
        return ""
    return f"events on the caller's stream say {ms:.4g} ms, the clock says {whole:.4g} ms until the device is idle"


def _copied(given: dict[str, Any], written: list[str]) -> dict[str, Any]:
    return {n: x.clone() if n in written else x for n, x in given.items()}


def _timed(run: Run, sets: list[dict[str, Any]], written: list[str], device: str) -> tuple[list[float], list[float]]:
    """The milliseconds of many rounds, by events (by the host's clock on a CPU), and by the host's clock."""
    events, clock = [], []
    flush = torch.empty(1 << 26, dtype=torch.int32, device="cuda") if device == "cuda" else None
    for given in sets:  # built and warm
        run(_copied(given, written))
    begun, k, often = _clock(), 0, 4
    gc.collect()
    while k < 3 * SETS or _clock() - begun < SECONDS and k < MOST:
        given = _copied(sets[k % SETS], written)
        for name, x in given.items():  # other numbers than those of any round before
            if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel() and name not in written:
                x.view(-1)[k % x.numel()] = 0.5
        k += 1
        if flush is None:
            start = _clock()
            run(given)
            events.append((_clock() - start) * 1e3)
            continue
        begin, end = _event(enable_timing=True), _event(enable_timing=True)
        for _ in range(often):
            flush.zero_()
        _base.record(begin, _stream())
        run(given)
        _base.record(end, _stream())
        waited = _base.query(begin)
        _synchronize()
        if waited and often < 64:  # the host was slower than the flushes
            often *= 2
        else:
            events.append(_base.elapsed_time(begin, end))
        flush.zero_()
        _synchronize()
        start = _clock()
        run(given)
        _synchronize()
        clock.append((_clock() - start) * 1e3)
    return events or clock, clock


def _wrong(kernel: Any, run: Run, sets: list[dict[str, Any]], written: list[str]) -> str:
    """Why results of the size that is timed are wrong."""
    given = _copied(sets[-1], written)
    returned = list(run(given))
    torch.allclose = _allclose  # whatever the candidate has put there
    try:
        reference = Reference(kernel, sets[-1])
        reference.refuse("the candidate", returned)
    except KgenError as error:
        return str(error)
    return ""
