"""What a pass over rows reads at places of its own: from lets to `Gather`s, which the targets' skeletons define.

In: the pass, and its tensors by their names.  Out: for each let that gathers what its code calls; and the neighbours along a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kgen.backends.units import ORDER, Beside, Gather, Tensor
from kgen.ir import Ref, asked, terms
from kgen.passes import Reduce
from kgen.taps import Move, is_tap, taps_of
from kgen.taps import asked as asked_at

if TYPE_CHECKING:
    from kgen.backends.base import Render


def gathers_of(render: Render, p: Reduce, tensors: Mapping[str, Tensor]) -> dict[str, Gather]:
    """What a pass reads at places of its own, by lets: one for all that read a tensor alike, but for each range one."""
    defs, found, made = {let.name: let for let in p.lets}, dict[str, Gather](), dict[tuple[str, ...], Gather]()

    def one(of: Ref, dim: str, ranged: str = "", own: str = "") -> Gather:
        t, fresh = tensors[defs[of.name].expr.attrs[0]], render.global_names.fresh
        key = t.name, dim, ranged, own
        if key not in made:
            names = fresh(f"{t.name}_at"), t, dim, render.number_name(dim), fresh(f"{t.name}_{dim}_stride"), fresh(f"{t.name}_{dim}_size")
            made[key] = Gather(*names, ranged)
        return made[key]

    for let in p.gathers:
        of, attrs = let.expr.operands, let.expr.attrs
        if let.expr.name == "ranged":
            others = tuple(one(o, attrs[1], ORDER if len(terms(let.expr)) == 4 else "") for o in terms(let.expr)[3:5])
            order, within = (others[0], ()) if len(others) == 1 else (None, others)
            beside = one(asked(let.expr)[0], attrs[1]) if asked(let.expr) else None
            own = one(of[0], attrs[1], attrs[0], let.name)
            found[let.name] = replace(own, order=order, within=within, asked=beside, same=attrs[-1] != "other")
        elif let.expr.name == "keyed":
            keys = tuple(one(o, attrs[1], ORDER) for o in of[1:3])
            found[let.name] = replace(one(of[0], attrs[1], attrs[0], let.name), within=keys, keyed=True)
        else:
            found[let.name] = one(of[0], attrs[0])
    return found


def whole(gather: Gather) -> tuple[Gather, ...]:
    """A gather with those of its order, or of its terms' own ranges, if it has them."""
    return (gather, *(g for g in (gather.order, gather.asked) if g is not None), *gather.within)


def beside(render: Render, p: Reduce, tensors: Mapping[str, Tensor]) -> dict[str, Beside]:
    """The neighbours that a pass over rows reads, by lets: one for all that read the same."""
    defs, made, found = {let.name: let for let in p.lets}, dict[tuple[str, Move], Beside](), dict[str, Beside]()
    for let in filter(is_tap, p.lets):
        (m,), t = taps_of(let), tensors[defs[let.expr.operands[0].name].expr.attrs[0]]
        if (t.name, m) not in made:
            made[t.name, m] = Beside(render.global_names.fresh(f"{t.name}_{m.dim}_{m.way}"), t, m.dim, m.by)
        found[let.name] = made[t.name, m]
    of: dict[tuple[str, int] | None, Beside] = {(b.dim, b.by): b for b in made.values()}
    for let in p.lets:
        if (b := of.get(asked_at(let, render.program.by_name | defs))) is not None:
            found[let.name] = replace(b, name=render.global_names.fresh(f"{b.name}_there"), asks=True)
    return found
