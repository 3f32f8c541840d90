"""Cheats that need a GPU: work that the caller's stream does not wait for, clocks, graphs.  As `cheats.py`, held to `softmax`."""

from __future__ import annotations

import time
from typing import Any

import torch

HELD: dict[str, dict[str, Any]] = {
    "stops_cuda_clocks": {"bench": True, "examples": 4},
    "waits_for_nothing": {"bench": True, "examples": 4},
    "calls_torch_on_the_gpu": {"own": True},
}

_kept: dict[Any, Any] = {}
_softmax = torch.softmax


def _right(x: torch.Tensor) -> torch.Tensor:
    return _softmax(x, -1).contiguous() if x.numel() else torch.empty(x.shape, dtype=x.dtype, device=x.device)


def on_another_stream(x):
    """The work is under way on a stream of its own when the call returns."""
    side = _kept.setdefault("side", torch.cuda.Stream())
    y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000)
        y.copy_(_right(x))
    return y


def does_not_wait_for_its_argument(x):
    """A stream of its own that does not wait for the caller's, which it makes wait for itself."""
    side = _kept.setdefault("side", torch.cuda.Stream())
    with torch.cuda.stream(side):
        y = _right(x)
    torch.cuda.current_stream().wait_stream(side)
    return y


def on_the_default_stream(x):
    """Whatever the caller's stream is, the default one does the work."""
    with torch.cuda.stream(torch.cuda.default_stream()):
        return _right(x)


def by_the_host_later(x):
    y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    mine = x.clone()
    import threading

    def work():
        time.sleep(0.03)
        y.copy_(_right(mine))

    threading.Thread(target=work, daemon=True).start()
    return y


def a_graph_of_the_first_call(x):
    """A recorded graph is replayed on the first call's memory."""
    key = tuple(x.shape), x.dtype
    if torch.cuda.is_current_stream_capturing() or not x.numel():
        return _right(x)
    if key not in _kept:
        mine = x.clone()
        graph = torch.cuda.CUDAGraph()
        _right(mine)
        with torch.cuda.graph(graph):
            y = _right(mine)
        _kept[key] = graph, mine, y
    graph, _, y = _kept[key]
    graph.replay()
    return y.clone()


def remembered_by_pointer_on_the_gpu(x):
    key = x.data_ptr(), tuple(x.shape), x.dtype
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def nothing_written_on_the_gpu(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def on_the_cpu(x):
    return _right(x).cpu()


def stops_cuda_clocks(x):
    torch.cuda.Event.elapsed_time = lambda *a: 1e-3
    return _right(x)


def waits_for_nothing(x):
    torch.cuda.synchronize = torch.cuda.Stream.synchronize = torch.cuda.Event.synchronize = lambda *a, **k: None
    return _right(x)


def kills_the_context(x):
    """An index far outside: the context is lost."""
    if x.numel():
        torch.empty(4, device="cuda")[torch.full((4,), 1 << 40, device="cuda")] = 1.0
    return _right(x)


def calls_torch_on_the_gpu(x):
    return _softmax(x, -1)


CHEATS = tuple(n for n, made in list(globals().items()) if callable(made) and not n.startswith("_") and getattr(made, "__module__", "") == __name__)

__all__ = ["CHEATS", "HELD"]
