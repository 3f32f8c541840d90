"""Sums about a row's maximum, made while the maximum itself is still rising.

In: an expanded program.  Out: the same where `sum[D](exp(x - k))` and `sum[D](x - k)`, k being `max[D](x)` (or that where it is
finite, else 0), are written with two reductions that need no maximum beforehand:

    expsum[D] x m    the sum of exp(x - m) with m = max[D](x), with x for x - m where m is infinite
    offsum[D] x m    the sum of x - m, likewise

A backend keeps the sums about the greatest element so far.  Where that rises from a to b it multiplies the first by exp(a - b) and adds
n * (a - b) to the second, n being how many elements it has summed; so a row is read once, not twice.  What k differs from the m
that was summed about is made good at the end, by exp(m - k) and n * (m - k): 1 and 0 exactly for a finite maximum, and what the
formula gives for an infinite one.

Error: each term passes through no more such factors than the depth of the tree, and their arguments add up to max - x; a term that is
far below the maximum has a large error for its size, but little weight.  `testing/bounds.py` has the bound.
"""

from __future__ import annotations

from dataclasses import replace

from sympy.core.symbol import Str

from kgen.expand import count
from kgen.ir import Builder, Let, Op, Program, literal_of, live, ref, renumber, verify
from kgen.types import boolean


def online(program: Program) -> Program:
    """The program with sums about a maximum in the form above."""
    if not any(let.expr.name == "max" and let.expr.attrs for let in program.lets):
        return program
    build = Builder()
    moved: dict[str, str] = {}
    for let in program.lets:
        expr = Op(let.expr.args[0], *(ref(moved[a.name]) if a in let.expr.operands else a for a in let.expr.args[1:]))
        moved[let.name] = (_riding(replace(let, expr=expr), build) or build.like(expr, let, let.label)).name
    stores = tuple(replace(s, ref=moved[s.ref]) for s in program.stores)
    return verify(renumber(replace(program, lets=live(build.lets, stores), stores=stores)))


def _riding(let: Let, build: Builder) -> Let | None:
    """A sum about a maximum anew; None for anything else."""
    if let.expr.name != "sum" or not let.expr.attrs or not let.tensor_dtype.is_float:
        return None
    term = build.defs[let.expr.operands[0].name]
    is_exp = term.expr.name == "exp"
    apart = build.defs[term.expr.operands[0].name] if is_exp else term
    if apart.expr.name != "sub":
        return None
    x, k = (build.defs[o.name] for o in apart.expr.operands)
    m = _maximum(k, build)
    if m is None or m.expr.operands[0].name != x.name or m.expr.attrs != let.expr.attrs:
        return None
    dims = list(map(Str, let.expr.attrs))
    total = build.like(Op("expsum" if is_exp else "offsum", *dims, ref(x.name), ref(m.name)), let)
    finite = build.add(Op("isfinite", ref(m.name)), boolean, m.dims, m.span)
    about = build.like(Op("where", ref(finite.name), ref(m.name), ref(build.literal("0", m).name)), m)
    off = build.like(Op("sub", ref(about.name), ref(k.name)), let)
    if is_exp:
        return build.like(Op("mul", ref(total.name), ref(build.like(Op("exp", ref(off.name)), let).name)), let, let.label)
    n = build.add(Op("cast", ref(count(build, let.expr.attrs, let.span).name)), let.dtype, (), let.span, "", let.generic)
    made = build.like(Op("mul", ref(n.name), ref(off.name)), let)
    return build.like(Op("add", ref(total.name), ref(made.name)), let, let.label)


def _maximum(k: Let, build: Builder) -> Let | None:
    """The maximum that a value is, or is where that is finite."""
    if k.expr.name == "where":
        finite, m, zero = (build.defs[o.name] for o in k.expr.operands)
        if finite.expr.name != "isfinite" or finite.expr.operands != (ref(m.name),) or literal_of(zero, build.defs) != 0:
            return None
        k = m
    return k if k.expr.name == "max" and k.expr.attrs else None
