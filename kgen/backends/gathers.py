"""What a pass over rows reads at places of its own: from lets to `Gather`s, which the targets' skeletons define.

In: the pass, and its tensors by their names.  Out: for each let that gathers what its code calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kgen.backends.units import ORDER, Gather, Tensor
from kgen.ir import Ref, asked, terms
from kgen.passes import Reduce

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
