"""Which integers of a kernel are places along its dims, by how its formula reads them: what arguments that are drawn have to hold.

In: a kernel.  Out: its integer tensors by what they are: places that something is looked up at, keys that are compared with places, or
ends of ranges of places.
"""

from __future__ import annotations

from collections.abc import Iterator

from kgen.check import Kernel
from kgen.types import PACKING, DType

#: Comparisons of a place with what stands beside it, on its right and on its left: whether that is where a range ends.
ENDS = ({"lt": True, "le": True, "gt": False, "ge": False}, {"lt": False, "le": False, "gt": True, "ge": True})


def picked(kernel: Kernel) -> dict[str, list[str]]:
    """The integer tensors from which lookups take their places, each with the dims that these lie along."""
    found: dict[str, list[str]] = {}
    for v in kernel.values:
        for name in _integers(kernel, v.args[1]) if v.op == "pick" else ():
            if v.attr[0] not in found.setdefault(name, []):
                found[name].append(v.attr[0])
    return found


def keys(kernel: Kernel) -> dict[str, list[str]]:
    """The integer tensors that are compared with places (`ids == index[V]`), each with the dims that these lie along."""
    found: dict[str, list[str]] = {}
    for v in kernel.values:
        for dim, other, _ in _beside_places(kernel, v.args) if v.op in ("eq", "ne") else ():
            for name in _integers(kernel, other):
                if dim not in found.setdefault(name, []):
                    found[name].append(dim)
    return found


def ranges(kernel: Kernel) -> dict[str, tuple[str, frozenset[bool]]]:
    """The integer tensors between which places lie (`begin <= index[S] and index[S] < end`): the dim, and whether ranges begin there
    (False), end there (True) or both, as with offsets."""
    found: dict[str, tuple[str, frozenset[bool]]] = {}
    for v in kernel.values:
        for dim, other, turned in _beside_places(kernel, v.args) if v.op in ENDS[0] else ():
            for name in _integers(kernel, other):
                before = found.get(name, (dim, frozenset()))[1]
                found[name] = dim, before | {ENDS[turned][v.op]}
    return found


def _beside_places(kernel: Kernel, args: tuple[int, ...]) -> Iterator[tuple[str, int, bool]]:
    """Of the operands of a comparison those that stand beside a place: the place's dim, the operand, and whether it stands on the left."""
    for at, other in ((args[0], args[1]), (args[1], args[0])):
        place = kernel.values[at]
        if place.op == "index":
            yield str(place.attr), other, other == args[0]


def _integers(kernel: Kernel, value: int) -> Iterator[str]:
    """The names of the integer parameters that a value is made of; bytes of floats are none."""
    stack, bytes_ = [value], [p.name for p in kernel.params if p.dtype in PACKING]
    while stack:
        v = kernel.values[stack.pop()]
        stack.extend(v.args)
        if v.op == "param" and isinstance(v.type, DType) and v.type.is_int and str(v.attr) not in bytes_:
            yield str(v.attr)
