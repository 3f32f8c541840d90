"""The calls of one kernel: what depends on the tensors' layout alone is worked out once, and kept.

In: a call's arguments.  Out: its results; or `MISS` for what the general way must decide (`kgen.runtime.arguments.bind`):
tensors that are not plain, negated views, memory that overlaps, arguments that are wrong.

A *plan* belongs to a key: the target, and each tensor's dtype, shape, strides and device.  Dtypes, sizes, strides and launch
arguments follow from it.  Numbers are no part of it, nor is where memory lies: what depends on those is looked at in each call.

What a call launched is kept for `kgen.runtime.fast` as well: the next one like it does not come here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kgen.check import Kernel
from kgen.runtime import arguments, fast, memory
from kgen.runtime.arguments import Call
from kgen.runtime.memory import LARGE

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel as Runnable

MISS = object()  # no result: the call is out of the ordinary
KEPT = 512  # plans of a kernel; the oldest goes first
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))  # their memory is their own; `torch.nn.Buffer` makes a Tensor
_ABSENT = object()  # a number that has no default and was not given

QUICK = 1 << 16  # bytes: while a kernel walks over more than this on the CPU, other threads run Python

try:  # what inductor's code allocates with: a third of torch.empty_strided's time; another torch may have neither it nor its module
    _empty_strided_cpu = getattr(importlib.import_module("torch._C._dynamo.guards"), "_empty_strided_cpu", None)
except ImportError:
    _empty_strided_cpu = None


@dataclass(slots=True, eq=False)
class Plan:
    """What calls of one key have in common.  Tensors are counted: parameters, then `out`, then what a call makes."""

    binding: dict[str, str]
    sizes: dict[str, int]
    batch: tuple[int, ...]
    device: Any
    makes: tuple[tuple[Any, Any, Any, bool], ...]  # of each new tensor: shape, strides, dtype, whether it is large
    empty: Callable[[Any, Any, Any], Any]
    zeros: frozenset[int]  # tensors without elements: only these may have no memory
    pairs: tuple[tuple[int, int, int, int, bool], ...]  # written and other, bytes of each, whether they may lie in one place
    states: tuple[int, ...]  # written in place
    written: tuple[int, ...]  # those, and `out`
    steps: tuple[Any, ...] | None  # what a launcher prepared; None where it wants a `Call`
    launcher: Any  # None where there is nothing to compute
    tensors: int  # parameters and `out`
    index: dict[str, int]  # where a launcher's tensors stand, by name: parameters, `out`, what a call makes
    quick: bool  # whether it is over before another thread would have run; a launch on a GPU may wait for others
    ready: dict[Any, Any] = field(default_factory=dict)  # what the launcher keeps from call to call
    lessons: int = 0  # calls that left something for the fast path


class Calls:
    """The calls of a kernel, with the plans of their keys."""

    miss = MISS

    def __init__(self, runnable: Runnable):
        kernel: Kernel = runnable.kernel
        self.runnable, self.kernel = runnable, kernel
        self.plans: dict[tuple, Plan] = {}
        self.count = len(kernel.params)
        self.index = {p.name: k for k, p in enumerate(kernel.params)}
        self.defaults = tuple(_ABSENT if p.is_tensor or p.default is None else arguments.default(p) for p in kernel.params)
        self.tensors = tuple(k for k, p in enumerate(kernel.params) if p.is_tensor)
        self.leading = self.tensors == tuple(range(len(self.tensors)))  # tensors first, as most kernels have them
        self.numbers: tuple[tuple[int, Any], ...] = tuple(
            (k, {"float": float, "int": int}[p.dtype]) for k, p in enumerate(kernel.params) if not p.is_tensor
        )
        self.fresh = tuple(r for r in kernel.results if r.state is None)
        self.sizing = tuple(self.index[name] for name in arguments.sizing(kernel))  # numbers on which sizes depend

    def __call__(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        """A call's results, or `MISS`.  Raises as `bind` does where it can tell at once what is wrong.

        A tensor that requires grad while grad mode is on is a `MISS`.
        """
        values = args
        if kwargs or len(args) != self.count:
            arranged = self._arranged(args, kwargs)
            if arranged is None:
                return MISS
            values = arranged
        tensors = values[: len(self.tensors)] if self.leading else tuple([values[k] for k in self.tensors])
        if out is not None:
            outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
            if len(outs) != len(self.fresh):
                return MISS
            tensors += outs
        key: list[Any] = [target, *(values[k] for k in self.sizing)] if self.sizing else [target]
        places: list[int] = []
        try:
            for t in tensors:
                if type(t) not in PLAIN or t.is_neg() or t.requires_grad and torch.is_grad_enabled():
                    return MISS
                key += (t.dtype, t.shape, t.stride(), t.device)
                places.append(t.data_ptr())
        except RuntimeError:  # sparse, say, or inside a transform: there are no strides or no memory
            return MISS
        if out is not None:
            for t in outs:
                if t.requires_grad:
                    return MISS
        known = tuple(key)
        plan = self.plans.get(known) or self._prepare(known, args, kwargs, out, target)
        if plan is None:
            return MISS
        if 0 in places and not all(place or k in plan.zeros for k, place in enumerate(places)):
            return MISS
        for a, b, a_bytes, b_bytes, same in plan.pairs:
            first, second = places[a], places[b]
            if first < second + b_bytes and second < first + a_bytes and (first != second or not same):
                return MISS
        for k in plan.states:
            if tensors[k].is_inference():
                return MISS
        for k, kind in self.numbers:
            x = values[k]
            if type(x) is not kind or kind is int and not -(2**63) <= x < 2**63:
                if x is _ABSENT:
                    return MISS
                values = (*values[:k], arguments.number(self.kernel, self.kernel.params[k], x), *values[k + 1 :])
        made = []
        for shape, strides, dtype, large in plan.makes:
            tensor = plan.empty(shape, strides, dtype)
            made.append(memory.advise(tensor) if large else tensor)
            places.append(tensor.data_ptr())
        call = None
        if plan.steps is not None:
            launch(plan.steps, places, values)
        elif plan.launcher is not None:
            call = self._call(plan, values, made if out is None else outs)
            call.recorded = plan.lessons < fast.LESSONS and (fast.EXTENSION.module is not None or not fast.EXTENSION.settled)
            plan.launcher(call)
        if plan.lessons < fast.LESSONS and plan.launcher is not None and not self.sizing:
            fast.learn(self, plan, (args, kwargs, out, target), tensors, made, call)
        if plan.written:
            torch.autograd.graph.increment_version([tensors[k] for k in plan.written])
        if out is not None:
            return outs[0] if len(outs) == 1 else outs or None
        n = len(self.fresh)
        return made[0] if n == 1 else tuple(made[:n]) if n else None

    @staticmethod
    def heard() -> Any:
        """The call of a kernel with split axes that launches this one, if it is one (`kgen.runtime.views`)."""
        return getattr(fast.HEARING, "by", None)

    @staticmethod
    def special(args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether tensors among the arguments are no plain ones, or require grad while grad mode is on."""
        legacy = torch._C._functorch.is_legacy_batchedtensor  # what torch.autograd.grad(is_grads_batched=True) makes
        tracked = torch.is_grad_enabled()
        for x in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(x, torch.Tensor) and (tracked and x.requires_grad or type(x) not in PLAIN or x.is_meta or legacy(x)):
                return True
        return False

    def _arranged(self, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
        """The arguments in the order of the parameters; None where some are too many or unknown."""
        n = len(args)
        if n > self.count:
            return None
        values = [*args, *self.defaults[n:]]
        for name, value in kwargs.items():
            k = self.index.get(name, -1)
            if k < n:
                return None
            values[k] = value
        return tuple(values)

    def _call(self, plan: Plan, values: Any, fresh: Any) -> Call:
        """The `Call` that launchers without prepared steps take."""
        given = dict(zip(self.index, values, strict=True))
        new = iter(fresh)
        results = {r.name: next(new) if r.state is None else given[r.state] for r in self.kernel.results}
        return Call(given, plan.binding, plan.sizes, plan.batch, results, plan.device, plan.ready)

    def _prepare(self, key: tuple, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Plan | None:
        """The plan of a new key, kept; None where this very call gave `out` another shape.  Raises as `bind` does."""
        outs = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        if any(isinstance(t, torch.Tensor) and t.is_meta for t in (*args, *kwargs.values(), *outs)):
            return None
        shapes = [t.shape for t in outs]
        call = arguments.bind(self.kernel, args, kwargs, out, self.runnable._alone)
        if shapes != [t.shape for t in outs]:
            return None
        launcher = self.runnable._chosen(call, target)
        params = [p for p in self.kernel.params if p.is_tensor]
        memory = {p.name: call.given[p.name] for p in params}
        index = {name: k for k, name in enumerate(memory)}
        tensors = [*memory.values(), *outs]
        n = len(tensors)
        new = [] if out is not None else [call.results[r.name] for r in self.fresh]
        for k, r in enumerate(self.fresh):
            if r.name not in index:
                index[r.name], memory[r.name] = len(params) + k, call.results[r.name]
        for r in self.kernel.results:
            if r.state is not None and r.name not in index:
                index[r.name], memory[r.name] = index[r.state], call.results[r.name]
        prepare = getattr(launcher, "prepare", None)
        if prepare is not None and any(w.view is not None for w in launcher.workspaces):
            prepare = None  # one may be a copy, which each call makes
        steps = None
        if prepare is not None:
            for name, tensor in call.memory(launcher.workspaces).items():
                index.setdefault(name, n + len(new))
                memory.setdefault(name, tensor)
                new.append(tensor)
            steps = tuple(prepare(call, memory, index))
        states = tuple(dict.fromkeys(index[r.state] for r in self.kernel.results if r.state is not None))
        cpu = call.device.type == "cpu"
        plan = Plan(
            call.binding, call.sizes, call.batch, call.device,
            tuple((tuple(t.shape), t.stride(), t.dtype, cpu and bytes_of(t) >= LARGE) for t in new),
            _empty_strided_cpu if cpu and _empty_strided_cpu is not None else _empty_on(call.device),
            frozenset(k for k, t in enumerate(tensors) if t.numel() == 0),
            self._pairs(tensors, states, len(params)),
            states, (*states, *range(len(params), n)) if launcher is not None else (), steps, launcher,
            len(tensors), index, cpu and sum(t.numel() * t.element_size() for t in (*tensors, *new)) < QUICK,
        )  # fmt: skip
        for old in list(self.plans)[: max(0, len(self.plans) + 1 - KEPT)]:  # each step is whole, whatever other threads do
            self.plans.pop(old, None)
        self.plans[key] = plan
        return plan

    def _pairs(self, tensors: list[Any], states: tuple[int, ...], out: int) -> tuple[tuple[int, int, int, int, bool], ...]:
        """What is written (`states`, and all from `out` on) beside all that must not overlap it."""
        params = [p for p in self.kernel.params if p.is_tensor]
        written = {index: r for r in self.kernel.results if r.state is not None for index, p in enumerate(params) if p.name == r.state}
        written.update(enumerate(self.fresh, out) if len(tensors) > out else ())
        names = [p.name for p in params] + [r.name for r in self.fresh]
        found = []
        for a, result in written.items():
            several = arguments.several(self.kernel, self.runnable._alone, result)
            for b, t in enumerate(tensors):
                if a == b or b < a and b in written or self.kernel.apart(result.name, names[b]) or not tensors[a].numel() or not t.numel():
                    continue
                same = not several and b not in written and params[b].dims == result.dims and laid_alike(tensors[a], t)
                found.append((a, b, bytes_of(tensors[a]), bytes_of(t), same))
        return tuple(found)


def launch(steps: Iterable[Any], places: list[int], values: Any) -> None:
    """Run what `prepare` made: functions, their arguments, and where among those pointers and numbers belong."""
    for function, fixed, pointers, numbers in steps:
        filled = fixed.copy()
        for at, kind, k in pointers:
            filled[at] = kind(places[k])
        for at, kind, k in numbers:
            filled[at] = kind(values[k])
        function(*filled)


def _empty_on(device: Any) -> Callable[[Any, Any, Any], Any]:
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def bytes_of(t: Any) -> int:
    """How far a tensor's elements reach."""
    start, end = arguments.span(t)
    return end - start


def laid_alike(a: Any, b: Any) -> bool:
    """Whether two tensors of one shape and dtype have the same strides."""
    return a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
