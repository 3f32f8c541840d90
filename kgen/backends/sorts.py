"""Passes that sort: from a `Sort` to a `SortUnit`, which each target's skeleton takes.

In: the pass, and how a source names its tensors.  Out: the keys, and what of their order is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kgen.backends.text import source
from kgen.backends.units import Argument, Tensor
from kgen.passes import Sort

if TYPE_CHECKING:
    from kgen.backends.base import Render

#: What may be written of an order; and of those of rows that have keys of their own.
PARTS, ROW_PARTS = ("order", "begin", "end"), ("order", "keys")


@dataclass(frozen=True, kw_only=True)
class SortUnit:
    """A pass that sorts: `written` are the order of the `keys`, where each of a dim's keys begins in it, and where it ends, by what they
    are; of each row's own keys the order, and the keys in it.  It has no numbers, no dtype variables and no code of its own."""

    over_rows: ClassVar[bool] = False
    columns: ClassVar[tuple] = ()
    name: str
    dims: tuple[str, ...]
    keys: Tensor
    written: dict[str, Tensor]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...] = ()
    scalars: tuple[Argument, ...] = ()
    numbers: tuple[Argument, ...] = ()
    variables: tuple[str, ...] = ()
    dtype_variables: tuple[str, ...] = ()
    bindings: tuple[tuple[tuple[str, str], ...], ...] = ((),)
    calls: tuple[str, ...] = ()
    uses: frozenset[str] = frozenset()

    @property
    def tensors(self) -> list[Tensor]:
        """The keys, then what is written."""
        return [self.keys, *self.written.values()]

    @property
    def rows(self) -> tuple[str, ...]:
        """The dims of rows that have keys of their own."""
        return self.dims[:-2]

    @property
    def axis(self) -> int | None:
        """Where along the keys' tensor those of a row lie, counted from its end; None where all rows share them."""
        return self.keys.dims.index(self.dims[-2]) - len(self.keys.dims) if self.rows else None

    @property
    def function(self) -> str:
        """What a source of C's family calls."""
        return "sorted_rows" if self.rows else "sorted"

    @property
    def host_function(self) -> str:
        """What the host part of Triton's source calls."""
        return "sort_row_keys" if self.rows else "sort_keys"

    def arguments(self, rank: str) -> list[str]:
        """What it gives that: sizes (of `rank` dims, where there are rows), the keys with their strides, and what is written."""
        keys, parts = self.keys.name, ROW_PARTS if self.rows else PARTS
        given = [self.written[part].name if part in self.written else "nullptr" for part in parts]
        if self.rows:
            return [rank, "size", keys, f"{keys}_stride", *given]
        return ["size[0]", "size[1]", keys, f"{keys}_stride[0]", *given]


def sort_unit(render: Render, p: Sort, name: str) -> SortUnit:
    """A pass that sorts, under a name."""
    (keys,) = render.inputs(p)
    values = {s.result: source("") for s in p.stores}
    defs = {let.name: let for let in p.lets}
    outputs = render.outputs(p.stores, values, defs)
    written = {defs[s.ref].expr.attrs[0]: t for s, t in zip(p.stores, outputs, strict=True)}
    ordered = {part: written[part] for part in dict.fromkeys((*PARTS, *ROW_PARTS)) if part in written}
    return SortUnit(name=name, dims=p.dims, keys=keys, written=ordered, inputs=(keys,), outputs=outputs)
