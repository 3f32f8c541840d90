"""Axes of traced tensors, and the splits of dims that are found while a function is read.

An annotation may name a dim that the function splits (`x.chunk(2, -1)` of `T[..., N]`).  The split is noted in `Splits`, and the function
is read again, with `2*N_2` wherever N stood.  Such an open dim is a guess until it meets another one, which then takes its place.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from kgen.types import ELLIPSIS, Dims, is_literal, shown_dim

MOST_SPLITS = 32


class Restart(Exception):
    """A split was noted: the function is to be read again."""


Axes: TypeAlias = "tuple[Axis, ...]"


@dataclass(frozen=True)
class Axis:
    """An axis of a tensor: the dims that it is split into, of which one of size one has none.  The last `short` elements along the dim are
    not there; where that is negative, so many more are, which padding has put there.  `flat` are the leading dims `...` as one axis,
    `joined` axes as one of which some are short: their dims together, and how many are missing along each."""

    dims: Dims = ()
    short: int = 0
    flat: bool = False
    joined: Axes = ()

    @property
    def leading(self) -> bool:
        """Whether it stands for the leading dims `...`."""
        return self.dims == (ELLIPSIS,)

    def __str__(self) -> str:
        if self.joined:
            return "*".join(f"({a})" if a.short else str(a) for a in self.joined)
        behind = f" {'-' if self.short > 0 else '+'} {abs(self.short)}" if self.short else ""
        return ("(...)" if self.flat else "*".join(map(shown_dim, self.dims)) or "1") + behind


ONE = Axis()


def each(dims: Dims) -> Axes:
    """An axis for each dim."""
    return tuple(Axis((d,)) for d in dims)


def show_shape(shape: Axes) -> str:
    return f"[{', '.join(map(str, shape))}]"


@dataclass
class Splits:
    """What dims are split into; `open` are the dims made by that, `taken` the names that no new dim may have."""

    into: dict[str, Dims] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    named: dict[str, int] = field(default_factory=dict)  # literal dims that have names
    ones: dict[tuple[str, int], str] = field(default_factory=dict)  # those of axes of size one: of a parameter, at its place
    attributes: dict[str, Dims] = field(default_factory=dict)  # the dims made for a tensor of the method's object, by its path

    def axes_of(self, path: str, rank: int) -> Dims:
        """A dim for each axis of a tensor whose sizes are not said; the same ones whenever it is asked for."""
        if path not in self.attributes:
            stem = path.rpartition(".")[2].lstrip("_").capitalize() or "A"
            self.attributes[path] = tuple(self.fresh(stem if stem[0].isalpha() else f"A{stem}") for _ in range(rank))
        return self.attributes[path]

    def expand(self, dims: Iterable[str]) -> Dims:
        """Dims with what they are split into in their places."""
        found: list[str] = []
        todo = list(dims)[::-1]
        while todo:
            dim = todo.pop()
            if dim in self.into:
                todo += reversed(self.into[dim])
            else:
                found.append(dim)
        return tuple(found)

    def note(self, dim: str, parts: Iterable[str | None]) -> Dims:
        """Split a dim; None among the parts is a new open dim.  The caller raises `Restart`."""
        made = tuple(self.fresh(dim) if p is None else p for p in parts)
        self.into[dim] = made
        self.open.discard(dim)
        return made

    def literal(self, size: int, taken: Container[str]) -> str:
        """A literal dim with a name of its own, of a tensor that has one of this size already."""
        names = (f"{letter}_{k}" if k else letter for k in (0, *range(2, MOST_SPLITS)) for letter in "PQRIJK")
        name = next(n for n in names if n not in taken and n not in self.taken)
        self.taken.add(name)
        self.named[name] = size
        return f"{size}_{name}"

    def one(self, param: str, at: int, taken: Container[str]) -> str:
        """A literal dim of one element with a name of its own, for an axis of a parameter; the same one whenever it is asked for."""
        if (param, at) not in self.ones:
            self.ones[param, at] = self.literal(1, taken)
        return self.ones[param, at]

    def fresh(self, dim: str) -> str:
        stem = f"N{dim}" if is_literal(dim) else dim
        k = 2
        while f"{stem}_{k}" in self.taken:
            k += 1
        self.taken.add(f"{stem}_{k}")
        self.open.add(f"{stem}_{k}")
        return f"{stem}_{k}"

    def agree(self, one: Dims, other: Dims) -> bool:
        """Whether an open dim can take the dims that it met, which is noted."""
        for a, b in ((one, other), (other, one)):
            if len(a) == 1 and a[0] in self.open and a[0] not in b and b != (ELLIPSIS,):
                self.note(a[0], b)
                return True
        return False
