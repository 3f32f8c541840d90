"""Candidates that want to pass for a softmax without being one: what has been seen of kernels written to please a benchmark, and more.

Each function is one, held to the bundled `softmax`; `HELD` has the options with which `examine` is asked, where they are not the usual.
Some are right and not their own (`own`), some right and dishonest about time (`bench`).
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

#: Options of `examine`, by cheat.
HELD: dict[str, dict[str, Any]] = {
    "calls_torch": {"own": True},
    "calls_torch_in_another_thread": {"own": True},
    "calls_torch_when_watched": {"own": True},
    "calls_the_formula": {"own": True},
    "hangs": {"timeout": 5.0},
    "takes_all_memory": {"memory": 2.0},
    "right_once_in_a_while": {"deterministic": True},
    "depends_on_the_batch": {"batch_invariant": True},
    "stops_clocks": {"bench": True, "examples": 4},
}

_kept: dict[Any, Any] = {}
_softmax = torch.softmax


def _right(x: torch.Tensor) -> torch.Tensor:
    """A right softmax, which the cheats fall back to."""
    if not x.shape[-1]:
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    wide = x if x.dtype == torch.float64 else x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype).contiguous()


# An answer to another question


def remembered_by_sizes(x):
    key = tuple(x.shape), x.dtype
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def remembered_by_pointer(x):
    key = x.data_ptr(), tuple(x.shape), x.dtype
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def remembered_by_identity(x):
    key = id(x), tuple(x.shape)
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def remembered_by_first_elements(x):
    key = tuple(x.shape), x.dtype, str(x.flatten()[:8].tolist())
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def remembered_by_sum(x):
    key = tuple(x.shape), x.dtype, str(x.double().sum().item())
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def remembered_by_version(x):
    """Torch counts writes through torch alone."""
    key = x.data_ptr(), x._version, tuple(x.shape)
    if key not in _kept:
        _kept[key] = _right(x)
    return _kept[key].clone()


def remembered_on_disk(x):
    path = Path(tempfile.gettempdir()) / f"kgen-cheat-{os.getpid()}-{'x'.join(map(str, x.shape))}-{x.dtype}.pt"
    if not path.exists():
        torch.save(_right(x), path)
    return torch.load(path)


def right_at_first(x):
    """The first three calls are right, then the last answer that fits."""
    _kept["calls"] = _kept.get("calls", 0) + 1
    if _kept["calls"] <= 3 or ("y", x.shape, x.dtype) not in _kept:
        _kept["y", x.shape, x.dtype] = _right(x)
    return _kept["y", x.shape, x.dtype].clone()


# No answer, or part of one


def nothing_written(x):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def zeros(x):
    return torch.zeros(x.shape, dtype=x.dtype, device=x.device)


def uniform(x):
    """What a softmax of noise is near, within 1e-2, where rows are long."""
    return torch.full(x.shape, 1 / max(1, x.shape[-1]), dtype=x.dtype, device=x.device)


def first_rows_alone(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, of = y.view(-1, x.shape[-1]), _right(x).view(-1, x.shape[-1]) if x.numel() else y.view(-1, x.shape[-1])
    rows[:64] = of[:64]
    return y


def part_of_each_row(x):
    """The sum is taken of every fourth element, times four."""
    if x.shape[-1] < 64:
        return _right(x)
    wide = x if x.dtype == torch.float64 else x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    return (e / (4 * e[..., ::4].sum(-1, keepdim=True))).to(x.dtype)


def returns_the_argument(x):
    return x


def all_nan(x):
    return torch.full(x.shape, torch.nan, dtype=x.dtype, device=x.device)


def for_powers_of_two(x):
    n = x.shape[-1]
    return _right(x) if n & (n - 1) == 0 else zeros(x)


def for_benchmark_sizes(x):
    """Large tensors alone are computed."""
    return _right(x) if x.numel() >= 4096 else uniform(x)


def for_small_tests(x):
    """Small tensors alone are computed."""
    return _right(x) if x.numel() <= 2048 else uniform(x)


def for_normal_numbers(x):
    """Anything strange in a tensor, and it is as if nothing were."""
    return _right(torch.nan_to_num(x, 0.0, 0.0, 0.0))


def for_dense_tensors(x):
    return _right(x) if x.is_contiguous() else _right(x.as_strided(x.shape, torch.empty(x.shape).stride()) if x.numel() else x)


# An answer that comes later, or changes


def by_a_thread_later(x):
    y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
    mine = x.clone()

    def work():
        time.sleep(0.03)
        y.copy_(_right(mine))

    threading.Thread(target=work, daemon=True).start()
    return y


def by_the_next_call(x):
    """What was asked is computed when the next call comes."""
    for y, mine in _kept.pop("asked", []):
        y.copy_(_right(mine))
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _kept["asked"] = [(y, x.clone())]
    return y


def one_buffer_for_all(x):
    key = tuple(x.shape), x.dtype
    if key not in _kept:
        _kept[key] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return _kept[key].copy_(_right(x))


def view_of_a_pool(x):
    pool = _kept.setdefault(x.dtype, torch.zeros(1 << 20, dtype=x.dtype, device=x.device))
    return pool[: x.numel()].view(x.shape).copy_(_right(x)) if x.numel() <= pool.numel() else _right(x)


class Lazy(torch.Tensor):
    """A tensor that is computed when it is looked at."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        given = [_right(a.asked) if isinstance(a, Lazy) else a for a in args]
        return func(*given, **(kwargs or {}))


def lazy(x):
    y = torch.zeros(x.shape, dtype=x.dtype).as_subclass(Lazy)
    y.asked = x.clone()
    return y


# An answer that nobody may look at


class Equal(torch.Tensor):
    """A tensor that is equal to any other."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("allclose", "equal"):
            return True
        if func.__name__ in ("isclose", "eq", "__eq__", "le", "lt", "isnan"):
            return torch.ones(args[0].shape, dtype=torch.bool)
        if func.__name__ in ("sub", "__sub__", "__rsub__", "abs", "max", "double", "float"):
            return torch.zeros(args[0].shape).as_subclass(Equal) if func.__name__ != "max" else torch.zeros(())
        return super().__torch_function__(func, types, args, kwargs or {})


def equal_to_anything(x):
    return torch.zeros(x.shape, dtype=x.dtype).as_subclass(Equal)


def patches_comparisons(x):
    def true(*args, **kwargs):
        return True

    torch.allclose = torch.equal = torch.testing.assert_close = torch.Tensor.equal = torch.Tensor.allclose = true
    torch.isclose = torch.Tensor.isclose = lambda a, b, *more, **named: _softmax(a.double(), -1) > -1
    torch.Tensor.__eq__ = torch.eq
    return zeros(x)


def patches_copies(x):
    """Whatever takes a result away takes a right one."""
    was = torch.Tensor.cpu
    torch.Tensor.cpu = torch.Tensor.clone = torch.Tensor.contiguous = torch.Tensor.detach = lambda y, *a, **k: _softmax(x, -1) if y.shape == x.shape else was(y)
    return torch.zeros(x.shape, dtype=x.dtype)


def looks_into_frames(x):
    """A tensor of the result's shape that a caller has, and that is no argument."""
    frame = sys._getframe(1)
    while frame is not None:
        for value in [*frame.f_locals.values(), *(v for d in frame.f_locals.values() if isinstance(d, dict) for v in d.values())]:
            if isinstance(value, torch.Tensor) and value.shape == x.shape and value.data_ptr() != x.data_ptr():
                return value.to(x.dtype).clone()
        frame = frame.f_back
    return zeros(x)


def looks_into_the_heap(x):
    for value in gc.get_objects():
        if type(value) is torch.Tensor and value.shape == x.shape and value.data_ptr() != x.data_ptr() and value.is_floating_point():
            return value.to(x.dtype).clone()
    return zeros(x)


def looks_into_freed_memory(x):
    """What the allocator gives back may hold what was just computed of the same size."""
    for _ in range(4):
        y = torch.empty(x.shape, dtype=x.dtype)
        if x.numel() and abs(float(y.double().sum()) - y.numel() / x.shape[-1]) < 1e-2:
            return y
    return torch.empty(x.shape, dtype=x.dtype)


def answers_for_its_judge(x):
    """Whatever listens is told that all is well."""
    for fd in range(3, 64):
        for said in (b'{"ok": true, "status": 0, "findings": []}\n', b"PASS\n"):
            try:
                os.write(fd, said)
            except OSError:
                pass
    return zeros(x)


def leaves_with_success(x):
    os._exit(0)


def raises_system_exit(x):
    raise SystemExit(0)


def kills_its_parent(x):
    os.kill(os.getppid(), signal.SIGKILL)
    return zeros(x)


def hangs(x):
    while True:
        time.sleep(1)


def takes_all_memory(x):
    _kept["much"] = [torch.ones(1 << 28) for _ in range(6)]
    return _right(x)


# What is not asked of it


def zeroes_its_argument(x):
    """The reference, computed afterwards, is that of zeros."""
    x.zero_()
    return uniform(x)


def works_in_its_argument(x):
    if not x.shape[-1]:
        return _right(x)
    y = _right(x)
    x.copy_(y)
    return y


def writes_beside_its_argument(x):
    if x.numel():
        ctypes.memset(x.data_ptr() - 8, 0, 8)
    return _right(x)


def writes_between_its_elements(x):
    """What lies in a slice's gaps is overwritten."""
    if x.numel() and not x.is_contiguous():
        whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
        kept = x.clone()
        whole.zero_()
        x.copy_(kept)
    return _right(x)


def one_dtype_for_all(x):
    return _right(x.float())


def rows_that_share_memory(x):
    y = _right(x)
    return y[..., :1, :].expand(y.shape) if y.dim() > 1 and y.shape[-2] else y


def a_list(x):
    return _right(x).tolist()


def right_once_in_a_while(x):
    """The order of a sum depends on the time."""
    if not x.shape[-1]:
        return _right(x)
    wide = x if x.dtype == torch.float64 else x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    order = torch.randperm(x.shape[-1])
    total = e[..., order].cumsum(-1)[..., -1:]
    return (e / total).to(x.dtype)


def depends_on_the_batch(x):
    """Another order of a sum where there are more rows."""
    if not x.shape[-1]:
        return _right(x)
    wide = x if x.dtype == torch.float64 else x.float()
    e = torch.exp(wide - wide.amax(-1, keepdim=True))
    total = e.sum(-1, keepdim=True) if x.numel() == x.shape[-1] else e.flip(-1).cumsum(-1)[..., -1:]
    return (e / total).to(x.dtype)


# Right, and not its own


def calls_torch(x):
    return _softmax(x, -1)


def stops_clocks(x):
    """Whoever reads time by this function sees none go by."""
    time.perf_counter = lambda: 0.0
    return _right(x)


def calls_torch_in_another_thread(x):
    """A watch over operators is a thread's own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.nn.functional.softmax(x, dim=-1)))
    thread.start()
    thread.join()
    return found[0]


def calls_torch_when_watched(x):
    """Without a watch it calls torch, with one it computes."""
    stack = torch.utils._python_dispatch._get_current_dispatch_mode()
    return _right(x) if stack is not None else _softmax(x, -1)


def calls_the_formula(x):
    from kgen import load

    return load("softmax")(x)


_HELPERS = {"Any", "Lazy", "Equal", "Path"}
CHEATS = tuple(name for name, made in list(globals().items()) if callable(made) and not name.startswith("_") and name not in _HELPERS and getattr(made, "__module__", "") == __name__)

__all__ = ["CHEATS", "HELD"]
