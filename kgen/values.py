"""What a checked kernel is made of, and how errors name it: values, parameters, their types.

In: nothing.  Out: the classes that `expressions.py` makes and every later layer reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from kgen.errors import Span
from kgen.types import (
    DTYPES,
    INT,
    Dims,
    Float,
    Number,
    ValueType,
    is_bool,
    is_float,
    is_int,
    promote,
    show_type,
    variable_of,
)

N = TypeVar("N", int, str)


def reached(roots: Iterable[N], of: Callable[[N], Iterable[N]]) -> set[N]:
    """What the roots are made of, themselves among it: `of` has what each is made of directly."""
    seen: set[N] = set()
    todo = list(roots)
    while todo:
        v = todo.pop()
        if v not in seen:
            seen.add(v)
            todo.extend(of(v))
    return seen


@dataclass(frozen=True)
class Value:
    """One value of a kernel: `op` is a row of the table, a reduction, or one of param, lit, const, size, index, cast, pick."""

    op: str
    args: tuple[int, ...]
    attr: str | Dims
    type: ValueType
    dims: Dims
    span: Span = field(compare=False)


@dataclass(frozen=True)
class Parameter:
    """A parameter: `dims` is None for a number (then `dtype` is "float" or "int"); `default` is its text; `factors` says into how many
    of its dims each axis is split (empty: each is one dim).  `optional` says that a call may leave the tensor out, `drawn`
    that a call which leaves it out draws it from torch's generator."""

    name: str
    dtype: str
    dims: Dims | None
    default: str | None
    span: Span
    factors: tuple[int, ...] = ()
    optional: bool = False
    drawn: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.dims is not None


def cast_to(v: Value) -> tuple[str, tuple[str, ...]]:
    """The dtype that a cast rounds to, by name, and how: none of the modes is to nearest."""
    name, *how = str(v.attr).split()
    return name, tuple(how)


def exact(text: str):
    """A literal's exact value (caps on digits and exponents have held before)."""
    from fractions import Fraction

    return Fraction(text.rstrip(".") if text.endswith(".") else text.replace(".e", "e"))


def stored_type(name: str) -> ValueType:
    return DTYPES[name].stored if name in DTYPES and not DTYPES[name].is_float else Float(frozenset({name}))


def needs_parameter(wide: str) -> str:
    """What to do about a `T32` where no parameter has the dtype T."""
    return f"{wide} needs a parameter of dtype {variable_of(wide)}"


def storable(t: ValueType, stored: ValueType) -> bool:
    """Whether a value may be stored without a cast: float to float rounds; integers and bools only where nothing is lost."""
    if is_float(stored):
        return is_float(t) or t == INT
    if is_float(t):
        return False
    if isinstance(t, Number):
        return is_bool(t) == is_bool(stored)
    return t == stored or (is_int(t) and is_int(stored) and promote([(t, True), (stored, True)]) == stored)


def show_value(v: Value) -> str:
    """A value's type as errors name it."""
    return describe(v) if isinstance(v.type, Number) else show_type(describe(v), v.dims)


def describe(v: Value) -> str:
    return str(v.type)


def closest(name: str, known: list[str]) -> str:
    """The known name that is most like one, or "".  Of very many those are looked at that begin with the same letter."""
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(known, key=lambda k: k[:1].lower() != name[:1].lower())[:200], n=1, cutoff=0.6)
    return found[0] if found else ""


def did_you_mean(name: str) -> str:
    return f"did you mean `{name}`?" if name else ""
