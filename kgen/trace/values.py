"""What the names of a traced function stand for, and the shapes that torch would give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kgen.syntax import Expr
from kgen.trace.axes import ONE, Axes, Axis, each
from kgen.types import Dims, DType, Float, Number, ValueType, union


@dataclass(frozen=True, eq=False)
class Traced:
    """A value of the kernel.

    `id` is its number in the checker's graph (None after an error); `shape` its axes as torch has them.  A `free` value broadcasts
    by name, as a spec's does.  `owner` is the parameter whose memory torch would share with it.  `pads` says of axes that are longer
    than their dim what stands outside it.
    """

    expr: Expr
    id: int | None
    shape: Axes
    free: bool = False
    owner: str = ""
    pads: tuple[Pad, ...] = ()


@dataclass(frozen=True, eq=False)
class Pad:
    """Padding along a dim: the place in the axis where the tensor begins, how many of the dim's last elements are no part of it
    (`short`), and what stands outside (`mode` is torch's word, `fill` the value of "constant")."""

    dim: str
    start: int
    short: int
    mode: str
    fill: Traced


@dataclass(frozen=True, eq=False)
class Const:
    """A Python object known while tracing; `expr` is how the writer spelled a number, where that is to be kept."""

    value: Any
    expr: Expr | None = None


@dataclass(frozen=True, eq=False)
class Spec:
    """A function of the language, with its dims where they are given: `max`, `max["N"]`."""

    name: str
    dims: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Dtype:
    """A dtype by its name in the language, as `x.dtype` gives it."""

    name: str


@dataclass(frozen=True, eq=False)
class Method:
    """A method or an attribute's function, taken from a value and not called yet."""

    name: str
    of: Traced


@dataclass(frozen=True, eq=False)
class Several:
    """A tuple of values; `fields` names them where torch does."""

    items: tuple[Any, ...]
    fields: tuple[str, ...] = field(default=())


@dataclass(frozen=True, eq=False)
class Ranked:
    """The k greatest elements of an axis (or the least) of a k that makes no dim: of them the last can be taken.

    `op` says whether they are elements ("kth") or places ("kth_place") of the axis `at` of `of`, `why` what is not known of them.
    """

    of: Traced
    at: int
    dim: str
    op: str
    k: Traced | int
    largest: bool
    why: str = ""


@dataclass(frozen=True, eq=False)
class Shape:
    """`x.shape`, or a part of it; `of` is the tensor."""

    axes: Axes
    of: Traced


class Misaligned(Exception):
    """Shapes that torch aligns otherwise than names do; `pair` are the axes that it would pair, where that is what is wrong."""

    def __init__(self, one: Axes, other: Axes, pair: tuple[Axis, Axis] | None = None):
        self.shapes, self.pair = (one, other), pair


def named(shape: Axes) -> Dims:
    return tuple(d for axis in shape for d in axis.dims)


def meet(one: Axes, other: Axes) -> Axes:
    """The shape that torch gives to an operation on two.  Raises `Misaligned` where it pairs an axis with one of other dims."""
    found: list[Axis] = []
    for k in range(1, max(len(one), len(other)) + 1):
        a = one[-k] if k <= len(one) else None
        b = other[-k] if k <= len(other) else None
        if a is not None and b is not None and a != b and (a.leading or b.leading or ONE not in (a, b)):
            raise Misaligned(one, other, (a, b))
        chosen = a if a is not None and b in (None, ONE) else b
        assert chosen is not None
        found.insert(0, chosen)
    if len(set(named(tuple(found)))) != len(named(tuple(found))):
        raise Misaligned(one, other)
    return tuple(found)


def meet_all(values: list[Traced]) -> tuple[Axes, bool]:
    """The shape of an operation on values, and whether it is free.  Raises `Misaligned`."""
    bound = [v for v in values if not v.free]
    shape: Axes = ()
    for v in bound:
        shape = meet(shape, v.shape)
    together = union(*(named(v.shape) for v in values))
    if len(bound) < len(values) and set(together) != set(named(shape)):
        return each(together), True
    return shape, False


def dtype_name(t: ValueType) -> str:
    """The declared name of a value's dtype, as a result of it would have it; "" where there is none."""
    if isinstance(t, DType):
        return t.name
    if isinstance(t, Number):
        return ""
    assert isinstance(t, Float)
    if len(t.of) == 1:
        return next(iter(t.of))
    known = {"f16", "bf16", "f32", "f64"} & t.of
    open_ = t.of - known
    if "f64" in known:
        return "f64"
    if not open_:
        return "f32"
    variables = {name[0] for name in open_}
    wide = "f32" in known or len(open_) > 1
    return f"{next(iter(variables))}32" if len(variables) == 1 and wide and known <= {"f32"} else ""
