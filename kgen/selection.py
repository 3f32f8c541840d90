"""Searches as sums that are made again and again: `cutoff` and `reach` in the form that passes know.

In: the let of a search.  Out: three lets.  The `probe` is what a step tries, a row's value that the loop of a backend sets; the second is
an element's share, its weight where it lies within the probe; the search itself is a reduction of the share.  A step adds up the shares
of a row: where they reach the amount the probe's bit stays set, and the next step tries the one below.  Its answer is the last probe
that reached.  What a search adds up is thus an ordinary sum of the target's, in its fixed order, and since weights are not negative that
sum never grows as the probe rises: rounding is monotone.

    cutoff    tries the values of a dtype from its highest bit on, in their order: as many steps as the dtype has bits, of a tensor's
              elements those that they have in memory.  Within the probe is what is not below it, and NaN.
    reach     tries places, as many steps as the row's length has bits.  Within the probe is what stands no further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kgen.ir import Builder, Let, Op, ref
from kgen.types import boolean, union


def is_probe(let: Let) -> bool:
    """Whether a let is what the steps of a search try: its loop sets it."""
    return let.expr.name == "probe"


def operands_of(let: Let, defs: Mapping[str, Let]) -> tuple[str, ...]:
    """The names of a search's own operands (x, weight, amount; of places the last two), where its let is one over shares."""
    share, _, amount = (o.name for o in let.expr.operands)
    test, weight, _ = (o.name for o in defs[share].expr.operands)
    inner = defs[defs[test].expr.operands[0].name] if defs[test].expr.name == "or" else defs[test]
    return (*((inner.expr.operands[0].name,) if let.expr.name == "cutoff" else ()), weight, amount)


def searched(build: Builder, let: Let, place: Callable[[], Let]) -> Let:
    """The let of a search over its shares; `place` makes an element's position in its row."""
    *values, weight, amount = (build.defs[o.name] for o in let.expr.operands)
    x = values[0] if values else place()
    number = f"{len(build.lets)}"  # no two searches have one probe
    stored = x.expr.attrs[0] if x.expr.name == "load" else ""
    like = x if values else let
    probe = build.add(Op("probe", number, stored), like.dtype, let.dims, let.span, "", like.generic)
    test = build.add(Op("ge" if values else "le", ref(x.name), ref(probe.name)), boolean, union(x.dims, probe.dims), let.span)
    if values and x.tensor_dtype.is_float:
        nan = build.add(Op("isnan", ref(x.name)), boolean, x.dims, let.span)
        test = build.add(Op("or", ref(test.name), ref(nan.name)), boolean, test.dims, let.span)
    zero = build.literal("0", weight)
    expr = Op("where", ref(test.name), ref(weight.name), ref(zero.name))
    share = build.add(expr, weight.dtype, union(test.dims, weight.dims), let.span, "", weight.generic)
    return build.like(Op(let.expr.name, *let.expr.attrs, ref(share.name), ref(probe.name), ref(amount.name)), let, let.label)
