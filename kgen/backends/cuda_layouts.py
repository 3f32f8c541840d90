"""What a launcher must know of a CUDA kernel: its operands in their order, its numbers, and its name as NVRTC takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgen.backends.keyed import RowSums
from kgen.ir import Let
from kgen.passes import Scalar
from kgen.types import DTYPES, INT, Dims, literal_size

#: Operands that are the parts of one tensor, in their order, by their positions among all.
Groups = tuple[tuple[int, ...], ...]
#: Operands that a SPLAT mask can hold; the bit that it has of vectors that are neighbours in memory, whatever rows they lie in, how many
#: bits there then are, and what is above them: rows of fewer elements than a vector, of many vectors; and that a launch tells which.
SPLATS, FLAT, MOST_STILL, TINY, LONG, TOLD = 63, 1 << 63, 61, 1 << 61, 2 << 61, 3 << 61
#: Operands that may go through shared memory: a tile of each is 8 KB of 48.
MOST_TURNED = 4
#: CUDA C++'s names for dtypes.
TYPES = {
    "f16": "f16", "bf16": "bf16", "f32": "float", "f64": "double", "i8": "i8", "u8": "u8", "i16": "i16", "i32": "i32", "i64": "i64",
    "bool": "bool", "u16": "u16", "u32": "u32", "u64": "u64",
}  # fmt: skip


@dataclass(frozen=True)
class Operand:
    """What a kernel walks through, by its name in the spec: "input", "state" (written in place), "result", or "index",
    which has no memory: `name` is its dim, its stride is 1 along it and 0 elsewhere."""

    name: str
    dtype: str
    dims: Dims
    role: str


def columns(dims: Dims, read: Sequence[Dims | None]) -> int:
    """A bit for each operand that has the last dim of a pass over `dims` but not all: a parameter of each column.  `read` has the dims of
    the operands in order, None for those that have no memory or are written."""
    return sum(1 << k for k, own in enumerate(read[:SPLATS]) if own is not None and set(dims[-1:]) <= set(own) < set(dims))


def still(dims: Dims, read: Sequence[Dims | None]) -> int:
    """A bit for each of these operands that lacks the last dim of a pass over `dims`: the same all along a row."""
    return sum(1 << k for k, own in enumerate(read[:SPLATS]) if own is not None and not set(dims[-1:]) <= set(own))


def turned(dims: Dims, read: Sequence[Dims | None]) -> int:
    """A bit for each operand of a map over `dims` whose neighbours are no neighbours there: it has the last dim, but not as its own last.
    `read` is as `columns` takes it.  None where they are more than a block has room for."""
    found = [k for k, own in enumerate(read[:SPLATS]) if own is not None and set(dims[-1:]) < set(own) and own[-1] != dims[-1]]
    return sum(1 << k for k in found) if len(found) <= MOST_TURNED else 0


def otherwise(dims: Dims, read: Sequence[Dims | None], written: Sequence[bool]) -> int:
    """A bit for each operand of a map over `dims` that does not lie as its elements follow one another: it lacks a dim, or is an index.
    `read` is as `columns` takes it; of those without dims there `written` ones are no indices.  None where a mask has no bits for all."""
    found = [k for k, own in enumerate(read) if (not written[k] if own is None else set(own) < set(dims))]
    return sum(1 << k for k in found) if len(read) <= MOST_STILL else 0


def groups(
    parts: Sequence[tuple[str, str, tuple[tuple[str, int], ...]]], operands: Sequence[tuple[str, Dims, tuple[bool, bool]]]
) -> Groups:  # fmt: skip
    """The operands that are all parts of one tensor along one dim, by their positions: none where they are not of one number.  `parts` are
    a kernel's; `operands` have names in the spec, dims, and whether they are read and written, which is the same for all of a group."""
    of = {name: (whole.rstrip("'"), at[0]) for name, whole, at in parts if len(at) == 1}
    found: dict[tuple[str, str, Dims, tuple[bool, bool]], dict[int, int]] = {}
    for k, (name, dims, used) in enumerate(operands):
        if name in of and dims:
            whole, (dim, place) = of[name]
            found.setdefault((whole, dim, dims, used), {})[place] = k
    whole_ones = [(len(own), own) for (_, dim, _, _), own in found.items() if len(own) == literal_size(dim) in (2, 4, 8)]
    made = tuple(tuple(own[place] for place in range(count)) for count, own in whole_ones)
    return made if len({count for count, _ in whole_ones}) == 1 else ()


@dataclass(frozen=True)
class Layout:
    """How one unit (a pass) of a kernel is launched.

    Operands are in the order of the kernel's strides; their pointers, without those of "index" operands, are the kernel's
    arguments in that order, and the scalars follow.  The last operand is always written.
    """

    kernel: str  # the name of the kernel's template
    dims: Dims
    variables: tuple[str, ...]  # the dtype variables that it is a template over, as named in the spec
    operands: tuple[Operand, ...]
    scalars: tuple[Scalar, ...]
    numbers: tuple[Let, ...]  # what the scalars' numbers are computed from, in order
    taps: int = 0  # the neighbours that it reads
    below: bool = False  # some of them in other rows
    groups: Groups = ()  # operands that may lie in turns
    reaches: tuple[tuple[str, Dims, str], ...] = ()  # of each tensor that windows are over, by name: its dims, and a dim that they go along
    row: int = -1  # of windows along the dim of a map's rows the operand that is the index there
    divides: bool = False  # whether some of their places are quotients
    along: int = -1  # and along a row, where neighbours share what they read
    shares: bool = False  # whether rows one below the other read the same lines
    draws: bool = False  # whether neighbours share the words that are drawn for them

    @property
    def held(self) -> int:
        """A bit for each operand that a thread may read once for several rows (`columns`); none where it takes pieces of a row."""
        return 0 if self.taps else columns(self.dims, [o.dims if o.role == "input" else None for o in self.operands])

    @property
    def turned(self) -> int:
        """A bit for each operand whose neighbours are no neighbours of the map (`turned`); none where it also reads indices, or parts."""
        roles = {o.role for o in self.operands}
        alone = not self.taps and not self.groups and "index" not in roles
        return turned(self.dims, [o.dims if o.role == "input" else None for o in self.operands]) if alone else 0

    @property
    def otherwise(self) -> int:
        """A bit for each operand that lacks dims (`otherwise`), where vectors may be neighbours in memory whatever rows they lie in."""
        roles = [o.role for o in self.operands]
        read = [o.dims if o.role == "input" else None for o in self.operands]
        alone = not (self.taps or self.groups or self.draws)
        return otherwise(self.dims, read, [role in ("state", "result") for role in roles]) if alone else 0

    def tiles(self, binding: dict[str, str], rank: int, vec: int, gathers: bool) -> str:
        """The C++ name of the kernel that takes tiles, for a variant."""
        chosen = [*(TYPES[binding[v]] for v in self.variables), rank, vec, "unsigned", str(gathers).lower()]
        return f"{self.kernel.removesuffix('_kernel')}_tiles<{', '.join(map(str, chosen))}>"

    def scalar_dtypes(self, binding: dict[str, str]) -> tuple[str, ...]:
        """The dtype in which each scalar is passed, for dtype variables bound by name (`{"T": "bf16"}`)."""
        return tuple(passed(s, binding) for s in self.scalars)

    def expression(
        self, binding: dict[str, str], rank: int, vec: int, wide: bool, splat: int, rows: int, count: int = 0, turns: bool = False
    ) -> str:  # fmt: skip
        """The kernel's C++ name for a variant, as NVRTC takes it: `gelu_kernel<bf16, 1, 8, unsigned, 0>`; with a `count` that of the
        kernel that goes over a list with room for so many tensors."""
        chosen: list[int | str] = [*(TYPES[binding[v]] for v in self.variables), rank, vec, "u64" if wide else "unsigned"]
        chosen += [f"{splat}ull" if splat >= FLAT else splat]
        chosen += [rows] if self.held or self.taps else []
        chosen += [str(turns).lower()] if self.groups else []
        chosen += [count] if count else []
        name = f"{self.kernel.removesuffix('_kernel')}_each" if count else self.kernel
        return f"{name}<{', '.join(map(str, chosen))}>"


@dataclass(frozen=True)
class RowOperand:
    """What a kernel over rows walks through: as `Operand`, or a "gather" from `name` along `dim`; `element` if it has elements
    along a row, `kept` if several readings need it.  A result with one element for each piece of a row has them along `dim`."""

    name: str
    dtype: str
    dims: Dims
    role: str
    element: bool
    kept: bool = False
    dim: str = ""

    def rowed(self, rows: Dims) -> int:
        """How many of the dims of rows it has."""
        return len({*self.dims} & {*rows})


def is_byte(dtype: str) -> bool:
    """Whether an element of a declared dtype has one byte, whatever its variables are."""
    return dtype in DTYPES and DTYPES[dtype].bytes == 1


class Lasting(NamedTuple):
    """A bit of `of` for each operand that a value is made of and that stays on the chip, and whether all that it is made of are `free`:
    nothing reads them but through it.  It takes 8 bytes where an operand of `by` does, else `least`; `own`: it is dear enough
    for a place of its own, beside one operand (beside several blocks would have too little room)."""

    of: int
    free: bool
    by: int
    least: int
    own: bool

    def beside(self, sizes: Sequence[int]) -> int:
        """The bytes of an element that stay on the chip for it beside operands' of these `sizes`: 0 where their place will do, or none."""
        size = 8 if any(size == 8 for k, size in enumerate(sizes) if self.by >> k & 1) else self.least
        room = sum(size for k, size in enumerate(sizes) if self.of >> k & 1)
        return size if self.own and not (self.free and room >= size) else 0


@dataclass(frozen=True)
class RowLayout:
    """How a pass over rows is launched: its operands are in the order of the kernel's strides, and all but indices have a pointer.

    `reductions` counts the readings that reduce, `stores` says whether one more stores elements; `words` is the room that a
    segment's result takes, in 32-bit words; `rereads` whether it writes a row's value where it also reads one; `long` counts
    the readings that reduce of a row that does not stay on the chip.  `columns` is the room of an element's sums over all rows, in 32-bit
    words: 0 where there are none.  `persists`: whether its rows may follow one another all the same; `searches`: whether some readings are
    those of a search; `aside`: what rows side by side share, of which a thread may take several; `pieces`: how often it goes by pieces of a
    row behind its readings, which keep the order of its dims; `groups`: operands that may lie in turns; `near`: the indices along whose
    dims it reads neighbours, a `single` vector at a time where rows have segments; `lasting`: a value that is made once; `dear`: whether
    elements take many instructions; `abreast`: up to how many elements a row has of which a thread may take several that lie side by side.
    """

    kernel: str
    rows: Dims
    inner: Dims
    variables: tuple[str, ...]
    operands: tuple[RowOperand, ...]
    scalars: tuple[Scalar, ...]
    numbers: tuple[Let, ...]
    reductions: int
    stores: bool
    words: int
    rereads: bool
    long: int
    columns: int = 0
    persists: bool = False
    searches: bool = False
    aside: str = ""
    pieces: int = 0
    groups: Groups = ()
    near: tuple[int, ...] = ()
    single: bool = False
    lasting: Lasting | None = None
    dear: bool = False
    abreast: int = 0

    def walk(self, text: str, planned: Any) -> str:
        """How its kernel walks by a plan (`kgen.runtime.rows`): along the lines that neighbours lie in, if its vectors do."""
        return f"Nearby<{text}{', true' * self.single}>" if self.near and all(planned.strides[k][-1] == 1 for k in self.near) else text

    @property
    def splits(self) -> bool:
        """Whether several launches may share a row: not where one would read what one before it wrote, nor for the steps of a search."""
        return not (self.rereads and self.stores or self.searches)

    @property
    def narrow(self) -> bool:
        """Whether bytes are all that is stored of a row's elements, and what is held of it has more."""
        results = [o for o in self.operands if o.element and o.role == "result"]
        held = [o for o in self.operands if o.element and o.kept]
        return bool(results) and all(is_byte(o.dtype) for o in results) and not any(is_byte(o.dtype) for o in held)

    @property
    def dims(self) -> Dims:
        return (*self.rows, *self.inner)

    def scalar_dtypes(self, binding: dict[str, str]) -> tuple[str, ...]:
        return tuple(passed(s, binding) for s in self.scalars)

    def expression(self, binding: dict[str, str], walk: str) -> str:
        """The kernel's C++ name for a way of walking, as NVRTC takes it."""
        types = "".join(f"{TYPES[binding[v]]}, " for v in self.variables)
        return f"{self.kernel}<{types}{walk}>"


@dataclass(frozen=True, kw_only=True)
class ScanLayout(RowLayout):
    """How a pass along rows is launched: whether it goes `backwards`, and the most bytes that a partial takes."""

    backwards: bool
    partial: int


#: What kernels that sort may write, in the order in which they take it.
PARTS = ("order", "keys", "begin", "end")


@dataclass(frozen=True)
class SortLayout:
    """A pass that sorts, by the names of tensors: the positions along the last but one of its dims by their `keys`, which count along the
    last; `written` are the order, and where in it each key begins and ends.  Where each row has keys of its own, they lie along the `axis`
    of their tensor (from its end), and `written` are the order and the keys in it;
    `sums` is what these are read for, if that is one reduction."""

    dims: Dims
    keys: str
    written: dict[str, str]
    axis: int | None = None
    sums: RowSums | None = None
    operands: tuple[RowOperand, ...] = ()
    scalars: tuple[Scalar, ...] = ()
    numbers: tuple[Let, ...] = ()

    @property
    def tensors(self) -> list[str]:
        """What a kernel takes: the keys, then for each of `PARTS` what is written, the keys again for what is not; then what is reduced,
        and into what."""
        reduced = [self.sums.value[0], self.sums.result[0]] if self.sums else []
        return [self.keys, *[self.written.get(part, self.keys) for part in PARTS], *reduced]

    @staticmethod
    def scalar_dtypes(binding: dict[str, str]) -> tuple[str, ...]:
        """Of the numbers that it takes: none."""
        return ()


def pointed(unit: Layout | RowLayout | SortLayout) -> list[str]:
    """The names of the tensors that a unit's kernels take, in their order."""
    return unit.tensors if isinstance(unit, SortLayout) else [o.name for o in unit.operands if o.role != "index"]


def stored(s: Scalar) -> bool:
    """Whether a scalar is a number cast by name to a storage float: the kernel rounds it itself, from f64 or i64."""
    return s.let.generic.startswith("=") or s.let.tensor_dtype.narrow


def passed(s: Scalar, binding: dict[str, str]) -> str:
    if stored(s):
        return "i64" if s.number.dtype == INT else "f64"
    if s.let.generic:
        return "f64" if any(binding[v] == "f64" for v in s.let.generic.split("+")) else "f32"
    return s.let.tensor_dtype.name
