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

#: What may be written of an order.
PARTS = ("order", "begin", "end")


@dataclass(frozen=True, kw_only=True)
class SortUnit:
    """A pass that sorts: `written` are the order of the `keys`, where each of a dim's keys begins in it, and where it ends, by what they
    are.  It has no numbers, no dtype variables and no code of its own."""

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


def sort_unit(render: Render, p: Sort, name: str) -> SortUnit:
    """A pass that sorts, under a name."""
    (keys,) = render.inputs(p)
    values = {s.result: source("") for s in p.stores}
    defs = {let.name: let for let in p.lets}
    outputs = render.outputs(p.stores, values, defs)
    written = {defs[s.ref].expr.attrs[0]: t for s, t in zip(p.stores, outputs, strict=True)}
    ordered = {part: written[part] for part in PARTS if part in written}
    return SortUnit(name=name, dims=p.dims, keys=keys, written=ordered, inputs=(keys,), outputs=outputs)


__all__ = ["PARTS", "SortUnit", "sort_unit"]
