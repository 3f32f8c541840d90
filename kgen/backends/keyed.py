"""Passes that do nothing but reduce what stands beside each row's own keys: those that sort them may do it in their place.

In: the passes of a kernel.  Out: for one that sorts, what its order is read for, where that is such a reduction alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kgen.ir import Let
from kgen.passes import Pass, Reduce, Sort
from kgen.types import Dims


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


def reduction(passes: Sequence[Pass], number: int) -> tuple[int, Let, Let] | None:
    """The pass that alone reads the order that pass `number` makes of each row's keys, by its number, with what it reduces and the
    reduction that it stores, where that is all that it does; else None.  It is the next pass, so that what it reads is there
    when keys are sorted."""
    sorts = passes[number]
    written = {s.result for s in sorts.stores}
    readers = [k for k, p in enumerate(passes) if written & {t.name for t in p.loads}]
    p = passes[number + 1] if readers == [number + 1] else None
    if not isinstance(sorts, Sort) or not sorts.rows or not isinstance(p, Reduce) or len(p.stores) != 1:
        return None
    keyed = [let for let in p.lets if let.expr.name == "keyed"]
    known = {s.let.name for s in p.scalars}
    if len(keyed) != 1 or any(let.expr.name not in ("load", "index", "keyed") and let.name not in known for let in p.lets):
        return None
    (let,), (store,) = keyed, p.stores
    value = next(v for v in p.lets if v.name == let.expr.operands[0].name)
    same = value.dtype is let.dtype and value.generic == let.generic and not let.generic.startswith("=")
    rows = set(let.dims) == {*sorts.rows, sorts.dims[-1]} and set(value.dims) <= {*sorts.rows, sorts.dims[-2]}
    return (readers[0], value, let) if same and rows and store.ref == let.name and store.state is None else None


def row_sums(passes: Sequence[Pass], number: int, declared: Mapping[str, str]) -> RowSums | None:
    """What the order is read for that pass `number` makes of each row's keys; None where that is more than one reduction.  `declared` has
    the dtypes of tensors, by their names."""
    if (found := reduction(passes, number)) is None:
        return None
    unit, value, let = found
    (store,) = passes[unit].stores
    name = value.expr.attrs[0]
    return RowSums(
        unit, let.expr.attrs[0], (name, declared[name], value.dims), (store.result, declared[store.result], store.dims),
        let.generic or let.tensor_dtype.name, bool(let.generic),
    )  # fmt: skip
