"""Triton: which stores have to wait for other threads' loads.

In: a pass's tensors and code.  Out: the results before whose stores a program's threads meet.  Triton lays out each access by itself (a
load as wide as the widest near it, a store as its own pointer is aligned), so that another warp may store an element than the one that
loaded it.  A stored value that is made of the loaded one came to its thread within a warp or through a barrier; one that is not may be
stored before the load.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgen.backends.base import Render
from kgen.backends.text import Text, source
from kgen.backends.units import Accumulator, RowUnit, ScanUnit, Statement, Tensor
from kgen.types import DTYPES

MEET = Statement(value=source("tl.debug_barrier()"), note="another thread may store what a thread loads")


def behind(values: Iterable[Text], lines: Iterable[Statement], carried: Iterable[Accumulator] = ()) -> frozenset[str]:
    """The names that values are made of, by lines of straight-line code and by what is `carried` along."""
    made = [(s.names, s.uses) for s in lines]
    made += [((a.name,), a.value.uses.union(a.place.uses, *(w.uses for w in a.weights))) for a in carried]
    found = frozenset[str]().union(*(v.uses for v in values))
    size = -1
    while size != len(found):  # what is carried may be made of later lines
        size = len(found)
        found = found.union(*(uses for names, uses in made if found & {*names}))
    return found


def may_be_one(result: Tensor, read: Tensor, render: Render) -> bool:
    """Whether a result may lie where an operand does: it is its next value, or a caller writes it there, which kernels of one pass take
    where the operand has no next value itself."""
    if result.spec_name == read.spec_name:
        return True
    known = [DTYPES[t.dtype] for t in (result, read) if t.dtype in DTYPES]
    alike = len({d.stored for d in known}) < 2 and (len(known) != 1 or known[0].is_float)  # a variable is a float
    taken = len(render.passes) > 1 or read.spec_name in {r.state for r in render.kernel.results}
    return alike and not taken and {*result.dims} == {*read.dims}


def overtaking(
    results: Iterable[Tensor], read: Sequence[Tensor], lines: Iterable[Statement], render: Render, carried: Iterable[Accumulator] = ()
) -> frozenset[str]:
    """The names of results of independent elements that are not made of an element `read` which they may be stored over."""
    lines, carried, found = [*lines], [*carried], set[str]()
    for o in results:
        over = {t.name for t in read if may_be_one(o, t, render)}
        if over - behind([o.value], lines, carried):
            found.add(o.name)
    return frozenset(found)


def overtaking_rows(unit: RowUnit, render: Render, looked: Iterable[Tensor]) -> frozenset[str]:
    """The names of a pass's results that other threads may still have to read: as of independent elements; and what has one element a row,
    which all threads of the row read, beside other results or as a row's next value; and what is `looked` up."""
    found = {o.name for o in unit.outputs for t in looked if may_be_one(o, t, render)}
    for c in unit.every:
        carried = [a for other in unit.codes for a in other.accumulators] if isinstance(unit, ScanUnit) else []
        lines = [s for other in unit.codes for s in other.lines] if isinstance(unit, ScanUnit) else c.lines
        along = [o for o in c.outputs if not (unit.inner and unit.is_row(o))]
        found |= overtaking(along, [t for t in unit.inputs if not (unit.inner and unit.is_row(t))], lines, render, carried)
        for o in c.outputs if unit.inner else ():
            over = {t.spec_name for t in unit.inputs if unit.is_row(o) and unit.is_row(t) and may_be_one(o, t, render)}
            if over and (len(unit.outputs) > 1 or o.spec_name in over):
                found.add(o.name)
    return frozenset(found)
