"""Dtypes, their promotion, and the dims of a value.

A value's dtype is a `DType` (bool or an integer), a `Float` (the set of float dtypes that met in it, which
may hold dtype variables) or a `Number` (a host number, weak in promotion as a Python number is in torch).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

ELLIPSIS = "..."
Dims = tuple[str, ...]


@dataclass(frozen=True)
class Coding:
    """How a float of few bits lies in memory: as an integer, its code, of which the greatest finite magnitude has `top`, what rounds
    beyond that `over`, and NaN `nan`; `sign` is the bit of the sign, 0 where there is none.  A NaN that is the sign's bit alone takes the
    place of -0 (the `fnuz` formats).  `exponents` marks a format of powers of two alone, the code of which is an f32's exponent."""

    top: int
    over: int
    nan: int
    sign: int
    exponents: bool = False

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        """What the targets' functions take of it."""
        return self.top, self.over, self.nan, self.sign


@dataclass(frozen=True)
class DType:
    """A storage dtype: its name in the language, its kind, its size in bits and torch's name.  A float has so many binary digits after
    the leading one, and `least` is the exponent of its least normal number; `computes` names the dtype that it is computed in, where
    that is another."""

    name: str
    kind: str  # "bool", "int", "uint" or "float"
    bits: int
    torch: str
    digits: int = 0
    least: int = 0
    computes: str = ""
    coding: Coding | None = None

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        """Pickled by its name: there is one of each, and rules ask which."""
        return known, (self.name,)

    @property
    def coded(self) -> bool:
        """Whether programs read and write it as the integers of its codes: no target has to know such a float."""
        return self.coding is not None and self.bits < 16

    @property
    def stored(self) -> DType:
        """The dtype of which its elements are in memory, as targets see them."""
        return u8 if self.coded or self is f4e2m1x2 else self

    @property
    def computed(self) -> DType:
        """The dtype in which it is computed."""
        return DTYPES[self.computes or self.name]

    @property
    def narrow(self) -> bool:
        """Whether it is a 16-bit float, that targets compute in a wider dtype, and round where it is stored."""
        return bool(self.computes) and not self.coded

    @property
    def largest(self) -> float:
        """A float's largest finite value."""
        if self.coding is not None and self.bits < 16:
            exponent, fraction = divmod(self.coding.top, 1 << self.digits)
            return (1 + fraction / (1 << self.digits)) * 2.0 ** (exponent - (not self.coding.exponents) + self.least)
        return (2 - 2.0**-self.digits) * 2.0 ** (1 - self.least)

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer (of bools 0 and 1) that it holds."""
        if self.kind == "int":
            return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        return 0, 1 if self.kind == "bool" else 2**self.bits - 1

    @property
    def unsigned(self) -> str:
        """The unsigned integer in which CUDA computes an integer, so that it wraps."""
        return "u64" if self.bits == 64 else "u32"

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def differentiable(self) -> bool:
        """Whether tensors of it have gradients: those of few bits have none, for these would have as few."""
        return self.is_float and not self.coded

    @property
    def is_int(self) -> bool:
        return self.kind in ("int", "uint")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


f16 = DType("f16", "float", 16, "float16", 10, -14, "f32", Coding(0x7BFF, 0x7C00, 0x7E00, 0x8000))
bf16 = DType("bf16", "float", 16, "bfloat16", 7, -126, "f32", Coding(0x7F7F, 0x7F80, 0x7FC0, 0x8000))
#: OCP's 8-bit floats and microscaling scale (OFP8 1.0, MX 1.0), and those without a negative zero.
f8e4m3 = DType("f8e4m3", "float", 8, "float8_e4m3fn", 3, -6, "f32", Coding(0x7E, 0x7F, 0x7F, 0x80))
f8e5m2 = DType("f8e5m2", "float", 8, "float8_e5m2", 2, -14, "f32", Coding(0x7B, 0x7C, 0x7F, 0x80))
f8e4m3fnuz = DType("f8e4m3fnuz", "float", 8, "float8_e4m3fnuz", 3, -7, "f32", Coding(0x7F, 0x80, 0x80, 0x80))
f8e5m2fnuz = DType("f8e5m2fnuz", "float", 8, "float8_e5m2fnuz", 2, -15, "f32", Coding(0x7F, 0x80, 0x80, 0x80))
#: The values of a half of a byte: results of casts; tensors have them by two, as `f4e2m1x2`.
f4e2m1 = DType("f4e2m1", "float", 4, "float4_e2m1fn_x2", 1, 0, "f32", Coding(7, 7, 7, 8))
f4e2m1x2 = DType("f4e2m1x2", "uint", 8, "float4_e2m1fn_x2")
f8e8m0 = DType("f8e8m0", "float", 8, "float8_e8m0fnu", 0, -127, "f32", Coding(0xFE, 0xFF, 0xFF, 0, exponents=True))
f32 = DType("f32", "float", 32, "float32", 23, -126)
f64 = DType("f64", "float", 64, "float64", 52, -1022)
i8 = DType("i8", "int", 8, "int8")
u8 = DType("u8", "uint", 8, "uint8")
u16 = DType("u16", "uint", 16, "uint16")
u32 = DType("u32", "uint", 32, "uint32")
u64 = DType("u64", "uint", 64, "uint64")
i16 = DType("i16", "int", 16, "int16")
i32 = DType("i32", "int", 32, "int32")
i64 = DType("i64", "int", 64, "int64")
boolean = DType("bool", "bool", 8, "bool")

DTYPES: dict[str, DType] = {d.name: d for d in (
    f16, bf16, f32, f64, i8, u8, i16, i32, i64, boolean, u16, u32, u64, f8e4m3, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0, f4e2m1,
    f4e2m1x2,
)}  # fmt: skip
TORCH: dict[str, DType] = {d.torch: d for d in DTYPES.values()}
#: What tensors of two elements a byte are declared as, and as what they lie in memory.
PACKED = {"f4e2m1": "f4e2m1x2", "i4": "u8", "u4": "u8"}
#: Of what only packed tensors lie in memory as, in printed specs, the dtype that people declare them by.
PACKING = {stored: name for name, stored in PACKED.items() if stored.startswith(name)}
#: What the dtypes of tensors may be declared as: all but that which packed ones lie in memory as.
WRITTEN = (*(name for name, d in DTYPES.items() if d is not f4e2m1x2), *(name for name in PACKED if name not in DTYPES))
#: The 16-bit floats, by name.
NARROW = frozenset(d.name for d in DTYPES.values() if d.narrow)
#: What a dtype variable may stand for, in the order in which its variants are emitted.
VARIABLE: tuple[DType, ...] = (f32, f16, bf16, f64)


def known(name: str) -> DType:
    """The dtype of a name."""
    return DTYPES[name]


#: The signed integers, by their bits: that which holds an unsigned one too is what the two have in common (of a u64 there is none: i64).
SIGNED = {d.bits: d for d in DTYPES.values() if d.kind == "int"}

Binding = dict[str, DType]


def is_variable(name: str) -> bool:
    """Whether a name may be a dtype variable's: one capital letter."""
    return len(name) == 1 and name.isupper()


def is_wide(name: str) -> bool:
    """Whether a name is that of a variable's wide dtype: `T32`, the dtype in which T is computed."""
    return len(name) == 3 and name.isascii() and is_variable(name[0]) and name.endswith("32")


def variable_of(name: str) -> str:
    """The dtype variable on which a declared dtype depends: T for `T` and `T32`, "" for the dtypes themselves."""
    return name[0] if is_variable(name) or is_wide(name) else ""


@dataclass(frozen=True)
class Float:
    """The float dtypes, dtype variables and wide dtypes (`T32`) that met in a value; it is computed in f64 if one of them
    is f64, else f32."""

    of: frozenset[str]

    def compute(self, binding: Binding) -> DType:
        return f64 if any(resolve(name, binding) is f64 for name in self.of) else f32

    def __str__(self) -> str:
        return next(iter(self.of)) if len(self.of) == 1 else "a float of " + " and ".join(sorted(self.of))


@dataclass(frozen=True)
class Number:
    """A host number: `float` (computed in f64), `int` (i64) or `bool`."""

    kind: str

    def __str__(self) -> str:
        return f"{'an' if self.kind == 'int' else 'a'} {self.kind} number"


FLOAT, INT, BOOL = Number("float"), Number("int"), Number("bool")
ValueType = DType | Float | Number


def resolve(name: str, binding: Binding) -> DType:
    """The dtype of a declared dtype name, a dtype variable looked up in `binding`; of `T32` the one that T is computed
    in."""
    if name in DTYPES:
        return DTYPES[name]
    return binding[name[0]].computed if is_wide(name) else binding[name]


def resolve_named(name: str, binding: Mapping[str, str]) -> DType:
    """`resolve` where the variables are bound to names of dtypes (`{"T": "bf16"}`)."""
    return resolve(name, {variable: DTYPES[dtype] for variable, dtype in binding.items()})


def is_float(t: ValueType) -> bool:
    return isinstance(t, Float) or t == FLOAT


def is_bool(t: ValueType) -> bool:
    return t in (boolean, BOOL)


def is_int(t: ValueType) -> bool:
    return t == INT or (isinstance(t, DType) and t.is_int)


def _category(t: ValueType) -> int:
    return 0 if is_bool(t) else 1 if is_int(t) else 2


def _join(a: ValueType, b: ValueType) -> ValueType:
    """Promotion of two dtypes of equal priority (both with dims, both 0-d, or both numbers)."""
    if isinstance(a, Number) and isinstance(b, Number):
        return a if _category(a) >= _category(b) else b
    if isinstance(a, Float) and isinstance(b, Float):
        return Float(a.of | b.of)
    if isinstance(a, Float) or isinstance(b, Float):
        return a if isinstance(a, Float) else b
    assert isinstance(a, DType) and isinstance(b, DType)
    if a is b or b is boolean:
        return a
    if a is boolean:
        return b
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    return signed if signed.bits > unsigned.bits else SIGNED[min(64, 2 * unsigned.bits)]


def promote(operands: list[tuple[ValueType, bool]]) -> ValueType:
    """The dtype of an operation on `operands`, each a dtype and whether it has dims, as `torch.result_type` has it.

    Operands with dims come first, then 0-d tensors, then numbers; a later class counts only where its
    category (bool, integer, float) is higher.  A float number that meets integers gives f32.
    """
    result: ValueType | None = None
    for wanted in (
        [t for t, dims in operands if not isinstance(t, Number) and dims],
        [t for t, dims in operands if not isinstance(t, Number) and not dims],
        [t for t, _ in operands if isinstance(t, Number)],
    ):
        joined: ValueType | None = None
        for t in wanted:
            joined = t if joined is None else _join(joined, t)
        if joined is None:
            continue
        if result is None:
            result = joined
        elif _category(joined) > _category(result):
            weak: tuple[ValueType, ...] = (boolean, i64, Float(frozenset({"f32"})))
            result = weak[_category(joined)] if isinstance(joined, Number) else joined
    assert result is not None
    return result


def union(*dims: Dims) -> Dims:
    """The dims of values that meet: each name once, in order of appearance, the leading dims (`...`) first."""
    names = dict.fromkeys(name for d in dims for name in d)
    ordered = tuple(name for name in names if name != ELLIPSIS)
    return (ELLIPSIS, *ordered) if ELLIPSIS in names else ordered


def lying(dims: Dims, tensors: Iterable[Dims]) -> Dims:
    """Dims in the order of those tensors that have all of them, where these agree; else as they stand."""
    found = {tuple(d for d in t if d in dims) for t in tensors if set(dims) <= set(t)}
    return found.pop() if len(found) == 1 else dims


def axes(dims: Dims, factors: tuple[int, ...]) -> tuple[Dims, ...]:
    """Dims by the axes of a tensor: `factors` says how many each axis is split into (empty: each is one dim)."""
    ends = [sum(factors[: k + 1]) for k in range(len(factors))] if factors else range(1, len(dims) + 1)
    return tuple(dims[end - size : end] for end, size in zip(ends, factors or (1,) * len(dims), strict=True))


#: Elements of a literal dim that may be written out one by one.
FEW = 16


def is_literal(dim: str) -> bool:
    """Whether a dim is a literal, whose size is that number: `4`, or `4_P` of a literal that the header calls P (`where P = 4`)."""
    return dim[:1].isdigit()


def literal_size(dim: str) -> int:
    """The size of a literal dim."""
    return int(dim[: len(dim) - len(dim.lstrip("0123456789"))])


def shown_dim(dim: str) -> str:
    """A dim as the header calls it."""
    return dim.lstrip("0123456789_") or dim if is_literal(dim) else dim


def shown_dims(text: str) -> str:
    """A text in which literal dims that have names are called by these."""
    return re.sub(r"\b[0-9]+_(?=[A-Z])", "", text)


def shown_axis(axis: Dims, halves: Mapping[str, str]) -> str:
    """The dims of an axis as the header has them: a packed tensor's last is one, not its bytes and their halves, each of which `halves` has
    with the dim that it is of."""
    if len(axis) == 1 and axis[0] in halves:
        return f"{halves[axis[0]]} (bytes of two)"
    names = [halves.get(shown_dim(d), d) for d in axis]
    return "*".join(name for k, name in enumerate(names) if not k or name == axis[k] or name != names[k - 1])


def show_type(dtype: str, dims: Dims, factors: tuple[int, ...] = ()) -> str:
    return f"{dtype}[{', '.join('*'.join(map(shown_dim, axis)) for axis in axes(dims, factors))}]"
