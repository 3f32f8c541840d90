"""How operands of a pass over rows lie in memory: their merged dims, and the vectors in which they move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

#: An offset beyond this takes 64 bits: a little below 2^32, for steps behind the last element.
FAR = 2**32 - 1 - 2**20

#: Bits of WIDE of a `Walk`: its vectors go over the ends of a row's innermost dim; what stands still along it does not stay on the chip.
#: And how many operands leave them free.
STRADDLES, RELEASES, MOST_MARKED = 1 << 47, 1 << 46, 14


class RowOperandPlace(NamedTuple):
    """An operand of a call: strides in elements along the row dims and the inner ones; no `itemsize` for an index, which has no memory."""

    row_strides: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    address: int  # modulo 16
    element: bool
    kept: bool = False
    read: bool = True
    row_dims: int = 0  # how many of the row dims it is declared with, whatever their sizes
    state: bool = False  # whether it is read and written
    lends: bool = False  # whether what is made once of elements may take its place on the chip


def merged(
    sizes: Sequence[int], strides: Sequence[Sequence[int]], main: int, one: int = 0, ordered: bool = False
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Dims in the order of one operand's strides (`ordered`: in their own), those that can be made into one: sizes, and strides by operand;
    a single element has the stride `one`."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for d in sorted((d for d, size in enumerate(sizes) if size != 1), key=lambda d: 0 if ordered else -strides[main][d]):
        size, step = sizes[d], tuple(s[d] for s in strides)
        if dims and all(outer == inner * size for outer, inner in zip(dims[-1][1], step, strict=True)):
            size *= dims.pop()[0]
        dims.append((size, step))
    if not dims:
        dims = [(1, (one,) * len(strides))]
    return tuple(size for size, _ in dims), tuple(tuple(step[o] for _, step in dims) for o in range(len(strides)))


def rows_last(
    shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...], itemsizes: Sequence[int], rows: int
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]:  # fmt: skip
    """Merged dims with one next to the last along which no index runs and whose size is a multiple of `rows`, or half as many, of which a
    thread then takes so many; as they were, and 1, where there is none."""
    still = [all(own[d] == 0 for size, own in zip(itemsizes, strides, strict=True) if not size) for d in range(len(shape) - 1)]
    found = ((d, many) for many in (rows, rows // 2) if many > 1 for d, own in enumerate(still) if own and shape[d] % many == 0)
    d, rows = next(found, (-1, 1))
    if rows == 1:
        return shape, strides, 1

    def moved(one: tuple[int, ...]) -> tuple[int, ...]:
        return (*one[:d], *one[d + 1 : -1], one[d], one[-1])

    return moved(shape), tuple(map(moved, strides)), rows


def main_of(operands: Sequence[RowOperandPlace], memory: Sequence[int]) -> int:
    """Which operand's layout to follow: the one that moves most, of those the one whose neighbours are a row's.  How many rows there are,
    and so what strides they have, may not tell."""

    def leads(k: int) -> tuple[bool, int, int, bool, int]:
        o = operands[k]
        return o.read, sum(s != 0 for s in o.strides), o.row_dims, 1 in o.strides, -k

    return max(memory, key=leads, default=0)


def furthest(
    rows: int, n: int, sizes: Sequence[int], strides: Sequence[Sequence[int]], outer_sizes: Sequence[int], outer: Sequence[Sequence[int]]
) -> int:
    """The furthest place that is counted to, of rows, of a row's elements, and of an operand's."""
    ends = (last_of(sizes, own, outer_sizes, rowed) for own, rowed in zip(strides, outer, strict=True))
    return max(rows + 2**16, n + 2**16, *ends)


def last_of(sizes: Sequence[int], strides: Sequence[int], outer_sizes: Sequence[int], outer: Sequence[int]) -> int:
    """Where an operand's last element lies."""
    return sum((n - 1) * s for n, s in (*zip(sizes, strides, strict=True), *zip(outer_sizes, outer, strict=True)))


def vectors(
    operands: Sequence[RowOperandPlace], memory: Sequence[int], main: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]],
    outer: Sequence[tuple[int, ...]], n: int, whole: bool = False,
) -> tuple[int, bool, int]:  # fmt: skip
    """The elements of a vector, whether rows begin or end within one (never where they must be `whole`), and the operands that move in
    vectors."""
    if not memory or strides[main][-1] != 1:
        return 1, False, 0
    moving = [k for k in memory if strides[k][-1] == 1]
    vec = 16 // max(operands[k].itemsize for k in moving)

    def place(k: int) -> int:
        return operands[k].address // operands[k].itemsize

    if len(sizes) > 1 or whole:  # whole vectors along the innermost dim
        vec = narrower(vec, (sizes[-1], place(main), *strides[main][:-1], *outer[main]))
        wide = sum(1 << k for k in moving if place(k) % vec == 0 and not any(s % vec for s in (*strides[k][:-1], *outer[k])))
        return (vec, False, wide | even(memory, wide, sizes, strides)) if vec > 1 else (1, False, 0)
    if n < 4 * vec:
        vec = narrower(vec, (n, place(main), *outer[main]))
    if vec == 1:
        return 1, False, 0
    edges = n % vec != 0 or place(main) % vec != 0 or any(s % vec for s in outer[main])
    wide = 0
    for k in moving:
        alike = all((a - b) % vec == 0 for a, b in zip(outer[k], outer[main], strict=True))
        wide |= (alike and (place(k) - place(main)) % vec == 0) << k
    return vec, edges, wide


def narrower(vec: int, steps: Sequence[int]) -> int:
    """The elements of a vector where rows are whole ones: as many of up to `vec` as all steps of their operand are multiples of.  A written
    file has no kernels for short rows of one dim but in the widest, and moves their elements one by one."""
    while vec > 1 and any(step % vec for step in steps):
        vec //= 2
    return vec


def even(memory: Sequence[int], wide: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> int:
    """Operands of a row of several dims that move in vectors (`wide`) and whose elements follow one another without gaps, or that stand
    still along the innermost dim: the upper half of what the kernel's `Walk` has for WIDE, where it has room for a bit for each."""
    if len(sizes) == 1 or len(strides) >= 32:
        return 0

    def found(k: int) -> bool:
        return strides[k][-1] == 0 or bool(wide >> k & 1) and dense(sizes, strides[k])

    return sum(1 << 32 + k for k in memory if found(k))


def dense(sizes: Sequence[int], own: Sequence[int]) -> bool:
    """Whether an operand's dims are one in memory, whose elements follow one another as far apart as those of the innermost."""
    return all(a == b * size for a, b, size in zip(own, own[1:], sizes[1:], strict=False))


def straddling(
    operands: Sequence[RowOperandPlace], memory: Sequence[int], main: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]],
    outer: Sequence[tuple[int, ...]], n: int, whole: bool = False,
) -> tuple[int, bool, int]:  # fmt: skip
    """As `vectors`, of a row of several dims whose vectors may go over the ends of the innermost, and take at least four times as many
    elements so: where all that moves along it is one piece of memory, and all else stands still along it, of which a vector has two
    elements at most.  Of what the kernel's `Walk` has for WIDE, STRADDLES then says so.  On an H200 vectors twice as wide took longer (a
    group norm of lines of 196 elements in bf16)."""
    usual = vectors(operands, memory, main, sizes, strides, outer, n, whole)
    moving = [k for k in memory if strides[k][-1] != 0]
    pieces = all(strides[k][-1] == 1 and dense(sizes, strides[k]) for k in moving)
    if not pieces or len(sizes) == 1 or len(operands) > MOST_MARKED or any(o.element and not o.itemsize for o in operands):
        return usual
    vec, edges, wide = vectors(operands, moving, main, (n,), [(own[-1],) for own in strides], outer, n, whole)
    if vec <= 2 * usual[0] or sizes[-1] < vec:
        return usual
    return vec, edges, wide | STRADDLES | sum(1 << 32 + k for k in moving)


def released(
    operands: Sequence[RowOperandPlace], vec: int, wide: int, sizes: tuple[int, ...], strides: Sequence[tuple[int, ...]]
) -> frozenset[int]:  # fmt: skip
    """Operands that would stay on the chip with a row of several dims, as a vector for each of the row's, though they have one element for
    all of its innermost dim: they are read anew instead, from near by.  None where a place of theirs is needed."""
    if len(sizes) == 1 or vec == 1 or len(operands) > MOST_MARKED:
        return frozenset()
    known = [k for k in range(len(operands)) if wide >> 32 + k & 1]  # without gaps, or still
    still = [k for k, o in enumerate(operands) if o.kept and o.element and o.itemsize and strides[k][-1] == 0]
    if any(operands[k].state or operands[k].lends or (k in known) == bool(wide & STRADDLES) for k in still):
        return frozenset()
    return frozenset(still)
