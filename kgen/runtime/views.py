"""Calls that are launched on views of their tensors, by the extension as well.

In: a call of a kernel whose axes are split (`joined`) or that is run over parts (`parts`), and what the kernel that was launched on
views has left for `kgen.runtime.fast`.  Out: the same in terms of the tensors that the call was given: a view's place is its tensor's,
and so many bytes further on.  So the next call like it runs without Python too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kgen.runtime import fast, memory


@dataclass
class Heard:
    """What a call heard of the kernel that it launched: its plan, its lesson and what it made (None: nothing yet); and of that kernel's
    tensors, where it has other ones than the call, which tensor of the call each lies in, how many bytes from its beginning."""

    lesson: tuple[Any, Any, Sequence[Any]] | None = None
    lies: list[tuple[int, int]] | None = None
    numbers: tuple[str, ...] | None = None  # the names of its numbers
    plain: bool = False  # whether the kernel was launched as it is called, not from within a transformation

    def hear(self, plan: Any, lesson: Any, made: Sequence[Any]) -> None:
        self.lesson = plan, lesson, made


@contextmanager
def hearing() -> Iterator[Heard | None]:
    """A call whose kernel's lesson is its own to learn; None where it is itself launched by such a call."""
    if getattr(fast.HEARING, "by", None) is not None:
        yield None
        return
    fast.HEARING.by = heard = Heard()
    try:
        yield heard
    finally:
        fast.HEARING.by = None


def heard() -> Heard:
    """What the call that launches this one hears."""
    found: Heard = fast.HEARING.by
    return found


def teach(
    runnable: Any, heard: Heard, given: tuple[tuple, dict[str, Any], Any, str | None], tensors: Sequence[Any], results: Sequence[Any],
    launched: Sequence[Any],
) -> None:  # fmt: skip
    """Leave what a call has heard for those like it.  `given` are its arguments, keywords, `out` and target, `tensors` views of those of
    them that are tensors (parameters, then `out`), `results` what it made, as views of what was `launched`.  Never raises: the call itself
    is done."""
    try:
        if heard.lesson is None or not heard.plain or fast.EXTENSION.module is None:
            return
        if all(a.data_ptr() == b.data_ptr() for a, b in zip(results, launched, strict=True)):
            _teach(runnable, heard, given, tensors, results)
    except Exception:  # a layout that is not as expected, say
        pass


def _teach(
    runnable: Any, heard: Heard, given: tuple[tuple, dict[str, Any], Any, str | None], tensors: Sequence[Any], results: Sequence[Any]
) -> None:  # fmt: skip
    """`teach`, which may raise: puts the plan and the variant of the call together, and keeps them in the extension."""
    assert heard.lesson is not None
    (args, kwargs, out, target), (plan, taught, made) = given, heard.lesson
    calls = (runnable._plain or runnable)._calls
    kernel, fresh = calls.kernel, len(calls.fresh)
    count = len(calls.tensors)
    names = tuple(p.name for p in kernel.params if not p.is_tensor)
    other = heard.numbers is not None and heard.numbers != names
    if plan.zeros or any(not t.numel() or t.is_neg() for t in tensors) or other and (taught.derive or taught.compared):
        return
    if other and any(launch.numbers for launch in taught.launches):
        return
    own = list(made) if heard.lies is not None or out is not None else list(made[fresh:])
    makes = [] if out is not None else [(tuple(t.shape), t.stride(), t.dtype, _large(t)) for t in results]
    makes += plan.makes[len(plan.makes) - len(own) :]
    lies = heard.lies
    if lies is not None:  # behind its tensors come those to work in, as behind the call's own
        lies = lies + [(count + fresh + k, 0) for k in range(len(own) + len(taught.makes))]
    launches = tuple(tuple(launch if lies is None else moved(launch, lies)) for launch in taught.launches)
    index = {p.name: k for k, p in enumerate(p for p in kernel.params if p.is_tensor)}
    states = tuple(dict.fromkeys(index[r.state] for r in kernel.results if r.state is not None))
    written = [k for k in (*states, *range(count, len(tensors))) if not tensors[k].is_inference()]
    pairs = tuple((*pair[:4], False) for pair in calls._pairs(list(tensors), states, count))
    if getattr(runnable, "_fast", None) is None:
        runnable._fast = fast._new(fast.EXTENSION.module, calls)
    keywords = {**kwargs, **({} if out is None else {"out": out}), **({} if target is None else {"target": target})}
    kind, device, context = fast.place(plan.device)
    if runnable._fast and runnable._fast.plan(
        args, keywords, kind, device, context, tuple(makes), 0 if out is not None else fresh, fast.allocator(plan.device), pairs, 0,
        sum(1 << k for k in written), taught.aligned, not plan.quick,
    ):  # fmt: skip
        extra = tuple((*make, False) for make in taught.makes)
        new = tuple([*([] if out is not None else results), *own])
        runnable._fast.variant(args, keywords, new, taught.compared, taught.derive, extra, launches, taught.owner)


def moved(launch: fast.Launch, lies: Sequence[tuple[int, int]]) -> fast.Launch:
    """A launch on tensors that lie in others: each pointer is the place of another tensor, and its bytes further on."""
    arguments, pointers = bytearray(launch.arguments), []
    for at, which, code in launch.pointers:
        tensor, by = lies[which]
        pointers.append((at, tensor, code))
        arguments[at : at + 8] = (int.from_bytes(arguments[at : at + 8], "little") + by).to_bytes(8, "little")
    return launch._replace(arguments=bytes(arguments), pointers=tuple(pointers))


def _large(t: torch.Tensor) -> bool:
    return t.device.type == "cpu" and t.numel() * t.element_size() >= memory.LARGE
