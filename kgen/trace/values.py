"""What the names of a traced function stand for, and the shapes that torch would give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kgen.syntax import Expr
from kgen.types import ELLIPSIS, Dims, DType, Float, Number, ValueType, union


@dataclass(frozen=True, eq=False)
class Traced:
    """A value of the kernel.

    `id` is its number in the checker's graph (None after an error); `shape` the dims in the order in which torch has them,
    "1" where one of size one is kept.  A `free` value broadcasts by name, as a spec's does.  `owner` is the parameter
    whose memory torch would share with it, `fresh` whether an operation on the line at hand made it.
    """

    expr: Expr
    id: int | None
    shape: Dims
    free: bool = False
    owner: str = ""


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
class Shape:
    """`x.shape`, or a part of it: the dims; `of` is the tensor."""

    dims: Dims
    of: Traced


class Misaligned(Exception):
    """Shapes that torch aligns otherwise than names do."""

    def __init__(self, one: Dims, other: Dims):
        self.shapes = one, other


def named(shape: Dims) -> Dims:
    return tuple(d for d in shape if d != "1")


def meet(one: Dims, other: Dims) -> Dims:
    """The shape that torch gives to an operation on two.  Raises `Misaligned` where it pairs a dim with another of its names."""
    found: list[str] = []
    for k in range(1, max(len(one), len(other)) + 1):
        a = one[-k] if k <= len(one) else ""
        b = other[-k] if k <= len(other) else ""
        if a != b and (ELLIPSIS in (a, b) and a and b or a not in ("", "1") and b not in ("", "1")):
            raise Misaligned(one, other)
        found.insert(0, a if b in ("", "1") and a else b)
    if len(set(named(tuple(found)))) != len(named(tuple(found))):
        raise Misaligned(one, other)
    return tuple(found)


def meet_all(values: list[Traced]) -> tuple[Dims, bool]:
    """The shape of an operation on values, and whether it is free.  Raises `Misaligned`."""
    bound = [v for v in values if not v.free]
    shape: Dims = ()
    for v in bound:
        shape = meet(shape, v.shape)
    together = union(*(named(v.shape) for v in values))
    if len(bound) < len(values) and set(together) != set(named(shape)):
        return together, True
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


def show_shape(shape: Dims) -> str:
    return f"[{', '.join(shape)}]"
