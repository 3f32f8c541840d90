"""Calls over lists of tensors: one launch where the kernel is a map, else a call for each.

In: a call's arguments, of which tensors are lists of equal length.  Out: a list for each result that is not primed.  The results are those
of a call for each tuple of tensors, in order, bit for bit; where tensors of several tuples overlap in memory, that is what happens.

A *plan* belongs to a key, as in `kgen.runtime.calls`: the target, and each tensor's dtype, shape, strides and device.  It has the groups of
tuples that are launched together, for each alignment of the tensors.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from kgen.check import Kernel, Parameter
from kgen.errors import KgenError
from kgen.runtime import arguments, fast, memory
from kgen.runtime.calls import PLAIN, bytes_of, laid_alike

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel as Runnable

#: Plans of a kernel, and alignments of a plan, that are kept; the oldest goes first.
KEPT = 16
#: Where the low byte of an address lies in an array.
LOW = 0 if sys.byteorder == "little" else 7


@dataclass(slots=True)
class Given:
    """A call's arguments: `n` tuples, each value with whether there is one for each tuple (else they share it), and `out` by result."""

    n: int
    values: dict[str, tuple[Any, bool]]
    out: list[list[Any]] | None
    target: str | None

    def at(self, name: str, k: int) -> Any:
        """An argument of tuple k."""
        value, several = self.values[name]
        return value[k] if several else value

    def args(self, k: int) -> tuple:
        """The arguments of tuple k, in the order of the parameters."""
        return tuple([value[k] if several else value for value, several in self.values.values()])

    def outs(self, k: int) -> Any:
        """What a call of tuple k takes as `out`."""
        if self.out is None:
            return None
        own = tuple(out[k] for out in self.out)
        return own[0] if len(own) == 1 else own


@dataclass(slots=True, eq=False)
class Plan:
    """What calls of one key have in common.  Tensors are counted: lists of parameters, then of `out` or of what a call makes, each
    shared one once."""

    makes: list[tuple[Any, Any, Any, Any]]  # of each new tensor: shape, strides, dtype, device
    parts: list[tuple[Any, Any, dict[int, Any], dict[int, list[int]]]]  # what launches, its device, its members, where their pointers stand
    alone: list[int]  # tuples that are called by themselves
    zeros: frozenset[int]  # tensors without elements: only these may have no memory
    spans: array[int]  # of each given tensor with elements: which one, its bytes, whether it is written
    same: array[int]  # written and other, which may lie in one place
    written: list[int]  # tensors of `parts` to mark as written
    groups: dict[Hashable, list[tuple[Any, Any]]] = field(default_factory=dict)
    clear: array[int] | None = None  # places that were found not to overlap
    last: tuple[array[int], list[int], list[tuple[Any, Any]]] | None = None  # places, classes and launches of a call

    def apart(self, places: array[int]) -> bool:
        """Whether all tensors have their memory, and nothing that is written lies where another tensor does, but for a result on an operand
        of its own tuple."""
        if self.clear == places:
            return True
        if 0 in places and not all(place or k in self.zeros for k, place in enumerate(places)):
            return False
        module = fast.EXTENSION.module
        clear = (apart if module is None else module.apart)(places, self.spans, self.same)
        if clear:
            self.clear = places
        return clear

    def make(self) -> list[Any]:
        """New tensors for results."""
        devices = {device for *_, device in self.makes}
        if len(devices) == 1:
            (device,) = devices
            if device.type == "cpu" or device.index == torch.cuda.current_device():
                new = fast.allocator(device)
                made = [new(shape, strides, dtype) for shape, strides, dtype, _ in self.makes]
                return [memory.advise(t) for t in made] if device.type == "cpu" else made
        return [torch.empty_strided(shape, strides, dtype=dtype, device=device) for shape, strides, dtype, device in self.makes]

    def launches(self, places: array[int], classes: list[int]) -> list[tuple[Any, Any]]:
        """The groups, each with its device, of tensors at `places`; tuples of several `classes` share none."""
        last = self.last
        if last is not None and last[0] == places and last[1] == classes:
            return last[2]
        aligned = bytes([place & 15 for place in places.tobytes()[LOW::8]])
        key = aligned, tuple(classes)
        found = self.groups.get(key)
        if found is None:
            found = []
            for lists, device, members, at in self.parts:
                found += [(group, device) for group in lists.groups(members, classes, at, aligned, device.index or 0)]
            _room(self.groups)
            self.groups[key] = found
        self.last = places, classes, found  # as a whole: other threads may be calling
        return found


class Foreach:
    """The calls over lists of one kernel, with the plans of their keys."""

    def __init__(self, runnable: Runnable):
        self.runnable, self.kernel = runnable, runnable.kernel
        self.params = [p for p in self.kernel.params if p.is_tensor]
        self.numbers = [p for p in self.kernel.params if not p.is_tensor]
        self.fresh = [r for r in self.kernel.results if r.state is None]
        self.states = {r.state for r in self.kernel.results if r.state is not None}
        self.plans: dict[Hashable, Plan] = {}

    def __call__(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        """The results of a call over lists.  Raises `KgenError` as a call of each tuple does, before anything is launched."""
        refuse_transforms(self.kernel)
        given = self.given(args, kwargs, out, target)
        if not given.n:
            return self.results([[] for _ in self.fresh])
        tensors, pattern = self.flat(given)
        if not fast.EXTENSION.settled:
            self.extend(tensors)
        plan, places, new = self.planned(given, tensors, pattern)
        clear = places is not None and plan.apart(places)
        if places is not None and clear and plan.parts:
            return self.together(given, plan, tensors, places)
        return self.one_by_one(given, known=clear or new)

    def planned(self, given: Given, tensors: list[Any], pattern: tuple[bool, ...]) -> tuple[Plan, array[int] | None, bool]:
        """The plan of a call, the addresses of its tensors (None where one is not plain), and whether the plan was made now."""
        read, layout = described(tensors), (given.target, given.n, pattern, given.out is None)
        plan = self.plans.get((layout, read[0])) if read is not None else None
        new = plan is None
        if plan is None:
            plan = self.prepare(given, tensors)
            read = described(tensors)  # `out` may have been given its shape
        if read is not None and (new or isinstance(read[0], tuple) and fast.EXTENSION.module is not None):
            read = described(tensors, learn=True)
            assert read is not None
            _room(self.plans)
            self.plans[layout, read[0]] = plan
        return plan, None if read is None else read[1], new

    def results(self, made: list[list[Any]]) -> Any:
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    @staticmethod
    def extend(tensors: list[Any]) -> None:
        """Have the extension ready for calls to come, where these are worth a compiler's work."""
        fast.EXTENSION.calls += 1
        if fast.EXTENSION.calls >= fast.FEW or any(getattr(t, "is_cuda", False) for t in tensors[:1]):
            fast.EXTENSION.get()

    # ------------------------------------------------------------------------------------------------------ the arguments

    def given(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Given:
        """A call's arguments, numbers as their parameters have them.  Raises `KgenError` where lists differ in length, or one is none."""
        kernel = self.kernel
        named = arguments.matched(kernel, args, kwargs)
        values = {p.name: self.value(p, named[p.name]) for p in kernel.params}
        lengths = {name: len(value) for name, (value, several) in values.items() if several}
        if not lengths:
            raise self.wrong("none of the arguments is a list", "foreach takes lists of tensors; call the kernel itself on single ones")
        first, n = next(iter(lengths.items()))
        outs = self.outs(out)
        lengths |= {"out" if len(outs) == 1 else f"out of {r.name}": len(own) for r, own in zip(self.fresh, outs or (), strict=False)}
        for name, length in lengths.items():
            if length != n:
                raise self.wrong(f"{first} has {n} tensor{'s' * (n != 1)} and {name} has {length}", "lists have as many as one another")
        return Given(n, values, outs if out is not None else None, target)

    def value(self, p: Parameter, value: Any) -> tuple[Any, bool]:
        """An argument, and whether it is a list; tensors without dims, and numbers, may be shared."""
        if isinstance(value, torch.Tensor) and p.is_tensor:
            if value.dim() or p.name in self.states:
                shown = f"one tensor of shape {list(value.shape)}"
                raise self.wrong(f"{p.name} is {shown}, not a list", "only tensors without dims that are not written may be shared")
            return value, False
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, torch.Tensor)):
            found = list(value)
            if not p.is_tensor:
                for k, x in enumerate(found):
                    with _of_index(k):
                        found[k] = arguments.number(self.kernel, p, x)
            return found, True
        if p.is_tensor:
            raise self.wrong(f"{p.name} is {arguments.article(type(value).__name__)}, not a list of tensors")
        return arguments.number(self.kernel, p, value), False

    def outs(self, out: Any) -> list[list[Any]]:
        """`out` as a list for each result that is not primed: of one such result the list itself."""
        if out is None:
            return []
        found = [out] if len(self.fresh) == 1 else out
        if isinstance(found, torch.Tensor) or not isinstance(found, (list, tuple)) or len(found) != len(self.fresh):
            has = len(found) if isinstance(found, (list, tuple)) else "no"
            primed = ", ".join(r.name for r in self.kernel.results if r.state is not None)
            help = f"{primed} are written in place, and not named in out" if primed else ""
            raise self.wrong(f"out has {has} lists for {len(self.fresh)} results", help)
        for own in found:
            if isinstance(own, torch.Tensor) or not isinstance(own, Iterable):
                raise self.wrong(f"out is {arguments.article(type(own).__name__)}, not a list of tensors")
        return [list(own) for own in found]

    def wrong(self, message: str, help: str = "") -> KgenError:
        return KgenError(f"{self.kernel.name}.foreach: {message}", help=help)

    def flat(self, given: Given) -> tuple[list[Any], tuple[bool, ...]]:
        """The tensors, as `Plan` counts them, and which parameters have lists of them."""
        tensors: list[Any] = []
        pattern = []
        for p in self.params:
            value, several = given.values[p.name]
            pattern.append(several)
            tensors += value if several else (value,)
        for own in given.out or ():
            tensors += own
        return tensors, tuple(pattern)

    # ------------------------------------------------------------------------------------------------------------- plans

    def prepare(self, given: Given, tensors: list[Any]) -> Plan:
        """The plan of a call.  Raises `KgenError` for the first tuple that a call refuses, with its index."""
        n, at, count = given.n, dict[str, tuple[int, int]](), 0
        for p in self.params:
            several = given.values[p.name][1]
            at[p.name], count = (count, int(several)), count + (n if several else 1)
        for r in self.fresh:
            at[r.name], count = (count, 1), count + n
        makes: list[Any] = [None] * (0 if given.out is not None else n * len(self.fresh))
        plan = Plan(makes, [], [], frozenset(), array("q"), array("q"), [])
        parts: dict[Any, tuple[Any, Any, dict[int, Any], dict[int, list[int]]]] = {}
        for k in range(n):
            with _of_index(k):
                call = arguments.bind(self.kernel, given.args(k), {}, given.outs(k), self.runnable._alone)
                launcher = self.runnable._chosen(call, given.target)
            for j, r in enumerate(self.fresh if given.out is None else ()):
                made = call.results[r.name]
                makes[j * n + k] = tuple(made.shape), made.stride(), made.dtype, made.device
            if launcher is None:
                continue
            lists = getattr(launcher, "lists", None)
            member = None if lists is None else lists.member(call)
            self.mark(plan, call, k, at, given.out is not None, member is not None)
            if lists is None or member is None:
                plan.alone.append(k)
                continue
            _, _, members, places = parts.setdefault((id(lists), call.device), (lists, call.device, {}, {}))
            members[k], places[k] = member, [at[name][0] + k * at[name][1] for name in lists.pointers]
        plan.parts = list(parts.values())
        plan.zeros = frozenset(k for k, t in enumerate(tensors) if t.numel() == 0)
        names = self.states | ({r.name for r in self.fresh} if given.out is not None else set())
        wrote = {at[name][0] + k for name in names for k in range(n)}
        plan.spans = array("q", [x for k, t in enumerate(tensors) if t.numel() for x in (k, bytes_of(t), k in wrote)])
        return plan

    def mark(self, plan: Plan, call: arguments.Call, k: int, at: dict[str, tuple[int, int]], out: bool, grouped: bool) -> None:
        """Note what tuple k writes, where it is launched in a group, and which of its operands may lie where a result does."""
        for r in self.kernel.results:
            if r.state is None and not out:
                continue
            several = arguments.several(self.kernel, self.runnable._alone, r)
            name = r.state or r.name
            own = at[name][0] + k * at[name][1]
            plan.written += [own] if grouped else []
            for p in self.params if not several else ():
                alike = p.dims == r.dims and p.name != name and laid_alike(call.results[r.name], call.given[p.name])
                if alike and p.name not in self.states and at[p.name][1]:  # what is shared is read for other tuples
                    plan.same.extend((own, at[p.name][0] + k * at[p.name][1]))

    # ------------------------------------------------------------------------------------------------------------- calls

    def together(self, given: Given, plan: Plan, tensors: list[Any], places: array[int]) -> Any:
        """Launch the groups, and call the tuples that are in none."""
        made = plan.make()
        places = places + array("Q", [t.data_ptr() for t in made]) if made else places
        named = {p.name: given.values[p.name] for p in self.numbers}
        classes = _classes([value for value, several in named.values() if several], given.n)
        for group, device in plan.launches(places, classes):
            first = group.members[0]
            numbers = {name: value[first] if several else value for name, (value, several) in named.items()}
            on = device.type == "cuda"
            group.start(places, numbers, device.index or 0, torch._C._cuda_getCurrentRawStream(device.index) if on else 0)
        if plan.written:
            torch.autograd.graph.increment_version([tensors[k] for k in plan.written])
        n = given.n
        results = [made[j * n : (j + 1) * n] for j in range(len(self.fresh))] if given.out is None else given.out
        for k in plan.alone:
            own = tuple(result[k] for result in results)
            with _of_index(k):
                self.runnable._run(given.args(k), {}, None if not own else own[0] if len(own) == 1 else own, given.target)
        return self.results(results)

    def one_by_one(self, given: Given, known: bool) -> Any:
        """A call for each tuple, in order; unless they are known to be none that a call refuses, that is found before the first one."""
        for k in range(0 if known else given.n):
            with _of_index(k):
                arguments.bind(self.kernel, given.args(k), {}, given.outs(k), self.runnable._alone)
        made = []
        for k in range(given.n):
            with _of_index(k):
                made.append(self.runnable._run(given.args(k), {}, given.outs(k), given.target))
        if len(self.fresh) > 1:
            return tuple([list(own) for own in zip(*made, strict=True)])
        return made if self.fresh else None


class _of_index:
    """Says of which index of the lists an error is."""

    def __init__(self, index: int):
        self.index = index

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, KgenError) and error.source is None:
            first, *others = error.diagnostics
            raise KgenError([replace(first, message=f"{first.message} (index {self.index} of the lists)"), *others]) from None


def apart(places: array[int], spans: array[int], pairs: array[int]) -> bool:
    """Whether nothing that is written overlaps anything else: `apart` of fastcall.c, which says more."""
    joined = {b for a, b in zip(pairs[::2], pairs[1::2], strict=True) if places[a] == places[b]}
    each = zip(spans[::3], spans[1::3], spans[2::3], strict=True)
    read = wrote = 0  # where those that are read or written end
    for start, end, written in sorted((places[k], places[k] + size, written) for k, size, written in each if k not in joined):
        if start < wrote or written and start < read:
            return False
        read = max(read, end)
        wrote = max(wrote, end) if written else wrote
    return True


def described(tensors: list[Any], learn: bool = False) -> tuple[Hashable, array[int]] | None:
    """What plans are found by, and the tensors' addresses; None where one is not plain, or requires grad while grad mode is on.

    `learn`: from now on tensors like these are read without Python, where there is the extension of `kgen.runtime.fast`.
    """
    module = fast.EXTENSION.module
    read = module.describe(tensors, learn) if module is not None else None
    if read is not None:
        return read[0], array("Q", read[1])
    key: list[Any] = []
    places = array("Q")
    tracked = torch.is_grad_enabled()
    try:
        for t in tensors:
            if type(t) not in PLAIN or t.is_neg() or tracked and t.requires_grad:
                return None
            key += (t.dtype, t.shape, t.stride(), t.device, t.is_inference())
            places.append(t.data_ptr())
    except RuntimeError:  # sparse, say, or inside a transform: there are no strides or no memory
        return None
    return tuple(key), places


def refuse_transforms(kernel: Kernel) -> None:
    """Raise `KgenError` where torch would need to see what is launched: while it traces, or differentiates forward."""
    inside = torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None
    if inside or torch.autograd.forward_ad._current_level >= 0:
        raise KgenError(
            f"{kernel.name}.foreach: it runs on plain tensors, not inside torch.func, torch.jit.trace or forward differentiation",
            help="call the kernel itself on each of them",
        )


def _classes(sequences: Sequence[Sequence[Any]], n: int) -> list[int]:
    """For each tuple, the first one that has the same numbers."""
    if not sequences:
        return [0] * n
    first: dict[Any, int] = {}
    return [first.setdefault(tuple([x or str(x) for x in own]), k) for k, own in enumerate(zip(*sequences, strict=True))]


def _room(kept: dict[Any, Any]) -> None:
    """Make room for one more; each step is whole, whatever other threads do."""
    for old in list(kept)[: max(0, len(kept) + 1 - KEPT)]:
        kept.pop(old, None)


def call(runnable: Runnable, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
    """`Kernel.foreach`."""
    return runnable._foreach(args, kwargs, out, target)
