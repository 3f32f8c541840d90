"""Kernels that tell of lookups outside of what they look up in: `kgen.load(spec, checked=True)`.

In: a kernel and a call's arguments.  Out: the call's results; behind the call an `IndexError` for the first place that lies outside, if any
result depends on what stands there.  A kernel as it is gives NaN there (0 for integers), since a GPU has nobody to raise.  The places
are worked out a second time, by torch, and looked at on the host: this is for finding mistakes, not for speed.
"""

from __future__ import annotations

from typing import Any

import torch

from kgen import positions
from kgen.check import Kernel
from kgen.runtime import arguments
from kgen.runtime.evaluate import Evaluator
from kgen.runtime.placed import picked
from kgen.types import is_literal, literal_size
from kgen.values import Value


class Checked:
    """A kernel whose calls tell of lookups outside; all else is the kernel's own."""

    def __init__(self, runnable: Any):
        self.runnable = runnable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel's own results.  Raises `IndexError`, when they are made, at the first lookup outside that one depends on."""
        try:  # before the call, which may write in place
            found = outside(self.runnable.kernel, args, {k: x for k, x in kwargs.items() if k not in ("out", "target")})
        except Exception:
            self.runnable(*args, **kwargs)  # says what is wrong with the arguments
            raise
        results = self.runnable(*args, **kwargs)
        if found:
            raise IndexError(found)
        return results

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runnable, name)


class _Filled(Evaluator):
    """A reading in which the first `filled` places outside of one lookup have 1; `looked_up` are all of its places, once it has run."""

    def __init__(self, kernel: Kernel, given: dict[str, Any], lookup: Value, filled: int):
        super().__init__(kernel, given)
        self.lookup, self.filled = lookup, filled
        self.looked_up: Any = None

    def value(self, v: Value, args: list[Any]) -> Any:
        x = super().value(v, args)
        if v != self.lookup:
            return x
        self.looked_up = args[1]
        beyond = outside_of(args[1], self.size())
        return torch.where(beyond & (beyond.flatten().cumsum(0).view(beyond.shape) <= self.filled), torch.ones_like(x), x)

    def size(self) -> int:
        """How many elements there are along the lookup's dim."""
        return size_along(self, self.lookup.attr[0])


def size_along(reading: Evaluator, dim: str) -> int:
    """How many elements there are along a dim."""
    return literal_size(dim) if is_literal(dim) else reading.sizes[dim]


def outside_of(places: Any, size: int) -> Any:
    """Which places lie outside."""
    return (places < 0) | (places >= size)


def all_inside(kernel: Kernel, given: dict[str, Any]) -> bool:
    """Whether the tensors from which lookups take their places hold none outside of what is looked up in."""
    reading = Evaluator(kernel, given)
    sizes = {name: min(size_along(reading, d) for d in dims) for name, dims in picked(kernel).items()}
    return not any(bool(outside_of(given[name].to(torch.int64), size).any()) for name, size in sizes.items())


def outside(kernel: Kernel, args: tuple, kwargs: dict[str, Any]) -> str:
    """What is to be told of the first lookup outside on which a result depends; "" where there is none."""
    given = arguments.matched(kernel, args, kwargs)
    given = {p.name: given[p.name].detach() if p.is_tensor else arguments.number(kernel, p, given[p.name]) for p in kernel.params}
    for lookup in dict.fromkeys(v for v in kernel.values if v.op == "pick"):
        reading = _Filled(kernel, given, lookup, 0)
        plain = reading.run()
        places = reading.looked_up
        beyond = outside_of(places, reading.size())
        low, high = 0, int(beyond.sum())
        if not high or _same(plain, _Filled(kernel, given, lookup, high).run()):
            continue
        while high - low > 1:  # the results change when this one is filled, and not before
            middle = (low + high) // 2
            low, high = (low, middle) if not _same(plain, _Filled(kernel, given, lookup, middle).run()) else (middle, high)
        return _told(kernel, reading, places, int(beyond.flatten().nonzero()[high - 1]))
    return ""


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether results are alike, NaN being like NaN."""
    return all(bool(((x == y) | (x != x) & (y != y)).all()) for x, y in zip(a, b, strict=True))


def _told(kernel: Kernel, reading: _Filled, places: Any, at: int) -> str:
    """The message: of what, which place, and where in the call that stands."""
    read, index = reading.lookup.args[0], kernel.values[reading.lookup.args[1]]
    dim = reading.lookup.attr[0]
    if (beside := positions.beside(kernel.values, reading.lookup)) is not None:
        read, dim = beside.args[0], beside.attr[0]
    of = kernel.values[read]
    name = str(of.attr) if of.op == "param" else {value: name for name, value, _ in kernel.equations}.get(read, "a value")
    where = torch.unravel_index(torch.tensor(at), places.shape)
    named = reading.order[len(reading.order) - places.dim() :] if places.dim() <= len(reading.order) else ["..."] * (
        places.dim() - len(reading.order)) + reading.order  # fmt: skip
    shown = ", ".join(f"{d} = {int(k)}" for d, k in zip(named, where, strict=True) if d in index.dims)
    place = int(places.flatten()[at])
    return f"{kernel.name}: {name}[{dim} = {place}] lies outside, {dim} has {reading.size()}" + (f" (first at {shown})" if shown else "")
