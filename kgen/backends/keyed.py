"""Passes that do nothing but reduce what stands beside each row's own keys: those that sort them may do it in their place.

In: the passes of a kernel.  Out: for one that sorts, what its order is read for, where that is such a reduction alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgen.passes import Pass, Reduce, Sort
from kgen.types import Dims, DType


@dataclass(frozen=True)
class RowSums:
    """A reduction of a `kind` that pass number `unit` makes of an order of keys: of the values of one tensor into another, each by its
    name, its dtype as declared and its dims; `computed` in a dtype, or in that of dtype variables ("T")."""

    unit: int
    kind: str
    value: tuple[str, str, Dims]
    result: tuple[str, str, Dims]
    computed: str
    generic: bool

    def dtypes(self, binding: Mapping[str, str]) -> tuple[str, str, str]:
        """The dtypes of what is computed, of values and of results; `binding` has those of dtype variables."""
        wide = self.generic and any(binding[v] == "f64" for v in self.computed.split("+"))
        computed = ("f64" if wide else "f32") if self.generic else self.computed
        value, result = (binding.get(dtype, dtype) for _, dtype, _ in (self.value, self.result))
        return computed, value, result


def row_sums(passes: Sequence[Pass], number: int, declared: Mapping[str, str]) -> RowSums | None:
    """What the order is read for that pass `number` makes of each row's keys; None where that is more than one reduction.  `declared` has
    the dtypes of tensors, by their names."""
    sorts = passes[number]
    written = {s.result for s in sorts.stores}
    readers = [k for k, p in enumerate(passes) if written & {t.name for t in p.loads}]
    if not isinstance(sorts, Sort) or not sorts.rows or len(readers) != 1:
        return None
    p = passes[readers[0]]
    defs = {let.name: let for let in p.lets}
    keyed = [let for let in p.lets if let.expr.name == "keyed"]
    scalars = {s.let.name for s in p.scalars}
    bare = all(let.expr.name in ("load", "index", "keyed") or let.name in scalars for let in p.lets)
    if not isinstance(p, Reduce) or len(keyed) != 1 or not bare or len(p.stores) != 1:
        return None
    (let,), (store,) = keyed, p.stores
    value = defs[let.expr.operands[0].name]
    if store.ref != let.name or store.state is not None or value.dtype is not let.dtype or value.generic != let.generic:
        return None
    if set(let.dims) != {*sorts.rows, sorts.dims[-1]} or not isinstance(let.dtype, DType) or let.generic.startswith("="):
        return None
    name = value.expr.attrs[0]
    return RowSums(
        readers[0], let.expr.attrs[0], (name, declared[name], value.dims), (store.result, declared[store.result], store.dims),
        let.generic or let.dtype.name, bool(let.generic),
    )  # fmt: skip
