"""Which operators of a kernel are computed in a cheaper form, whose error its bound has to count.

In: a kernel, a binding of its dtype variables, a target.  Out: by operator and place in the spec, the form that adds most.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kgen import pipeline
from kgen.backends import backend
from kgen.backends.base import NEARER
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.parts import over_parts
from kgen.precision import all_split
from kgen.types import DType, f32

#: The forms of operators, each with a larger bound than those before it.
LOOSER = ("split", "slope", *NEARER[::-1])
#: Those that add no error: a fused sum rounds once where its bound has two roundings, a shared quotient makes the same of 8 bits.
EXACT = ("fused", "shared")


@lru_cache(maxsize=64)
def forms_of(
    kernel: Kernel, binding: tuple[tuple[str, DType], ...], target: str, runs: tuple[Kernel, ...] = ()
) -> dict[tuple[str, Any], str]:
    """The brief, rough and near forms that operators of a kernel have on a target for these dtypes, by operator and place in the spec: of
    several there, that with the largest bound.  A kernel over parts (`parts.py`) is another text, and so is one that runs in the kernel's
    stead (`runs`: the backward that reads what a forward saved): the forms in those are by operator and None.  One that takes a tensor for
    its sizes alone may have a dtype variable that the kernel lacks: f32 stands for it, as where such tensors are made (`Saving.whole`)."""
    made: dict[tuple[str, Any], str] = {}
    for other in (over_parts(kernel), *runs):
        if other is not kernel:
            bound = {v: f32 for v in other.variables} | dict(binding)
            for (op, _), own in forms_of(other, tuple(bound.items()), target).items():
                made[op, None] = max(made.get((op, None), own), own, key=LOOSER.index)
    printed = _printed(kernel, binding, target)
    for op, span, own in printed:
        if own not in EXACT and own != "split":
            made[op, span] = max(made.get((op, span), own), made.get((op, None), own), own, key=LOOSER.index)
    for op, span, own in printed:
        if own == "split":
            made.setdefault((op, span), own)
    return made


def lowers(kernel: Kernel, binding: tuple[tuple[str, DType], ...]) -> bool:
    """Whether a kernel has code itself, not over its parts alone, as one that reads at places along two dims, each by the other."""
    try:
        pipeline.lowered(kernel, dict(binding))
    except KgenError:
        if over_parts(kernel) is kernel:
            raise
        return False
    return True


def accurate(kernel: Kernel, binding: tuple[tuple[str, DType], ...], target: str) -> bool:
    """Whether a target computes every operator of a kernel in its accurate form for these dtypes, so that each rounds as the formula's
    reading does: no sum is rounded with a product in it."""
    other = over_parts(kernel)
    return all(own == "shared" for _, _, own in _printed(kernel, binding, target)) and (other is kernel or accurate(other, binding, target))


@lru_cache(maxsize=64)
def _printed(kernel: Kernel, binding: tuple[tuple[str, DType], ...], target: str) -> tuple[tuple[str, Any, str], ...]:
    """The operators of a kernel that a target computes in another form than the accurate one, by name and place in the spec, with it."""
    named = {name: dtype.name for name, dtype in binding}
    mine = backend(target)
    if not lowers(kernel, binding):
        return ()
    printed = pipeline.scheduled(kernel, dict(binding), mine.rides, mine.merges, mine.taps)
    apart = pipeline.plan(kernel, dict(binding))  # what sums about a peak are made of has lets of its own here
    lets = (*printed.program.lets, *apart.program.lets)
    forms = [(let, mine.form(let)) for let in lets]
    found = [(let.expr.name, let.span, own) for let, form in forms if form and (own := form.of(named.get(form.decides, form.decides)))]
    split = all_split(printed) if mine.shares else ()
    return (*found, *((let.expr.name, let.span, "split") for let in printed.program.lets if let.name in split))
