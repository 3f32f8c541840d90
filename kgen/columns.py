"""Rows and columns in one pass: what several passes read of the same elements is read once.

In: a plan.  Out: one in which sums over the rows of a pass (dw of a norm, say) are accumulated while that pass goes through its rows;
a backend walks them with blocks that take rows one after the other, each with partials of its own, and adds those up in a fixed order.

A pass C reduces columns where what it reduces are the rows of the elements that it reads: these come first among the dims of its
operands, as memory has them.  It goes into a pass over those rows that has some of its elements too, if neither needs what the other, or
a pass between them, makes, but for a value a row that the latter gives; without such a pass it becomes one itself.  A sum of all
elements goes by way of the columns' sums where others add up columns of the same dims (`by_columns`, before there are passes).
"""

from __future__ import annotations

from dataclasses import replace

from kgen.expand import is_reduction
from kgen.ir import Let, Op, Program, Store, Tensor, live, ref
from kgen.passes import Map, Pass, Plan, Reduce, Scan, Sort, verified
from kgen.phases import Phase, phases_of
from kgen.searches import SEARCHES
from kgen.taps import is_tap

#: Reductions over rows that go with them; the others, whose partials do not begin with 0 (kgen_rounds.cuh), stay in passes of their own.
MERGED = frozenset(("sum",))
#: The most sums that a pass accumulates for an element of a row: each takes a register for each element of a thread's.
MOST_SUMS = 4


def by_columns(program: Program) -> Program:
    """The program with full sums by way of their columns' where others add up columns of elements with the same dims (dalpha beside dw):
    those go with the rows as well, and few numbers are left to add up."""
    defs = program.by_name
    sums = [let for let in program.lets if is_reduction(let) and let.expr.name in MERGED]
    dims_of = {let.name: defs[let.expr.operands[0].name].dims for let in sums}
    columns = [let for let in sums if let.dims and set(dims_of[let.name][: len(let.expr.attrs)]) == set(let.expr.attrs)]
    along = {dims_of[let.name]: let for let in columns}
    full = [let for let in sums if not let.dims and dims_of[let.name] in along]
    if not full or len(full) + len(columns) > MOST_SUMS:
        return program
    lets: list[Let] = []
    free = 1 + max(int(let.name[1:]) for let in program.lets)
    for let in program.lets:
        if let not in full:
            lets.append(let)
            continue
        one = along[dims_of[let.name]]
        expr = Op("sum", *one.expr.attrs, let.expr.operands[0])
        parts = replace(let, name=f"%{free + full.index(let)}", expr=expr, dims=one.dims, label="")
        lets += [parts, replace(let, expr=Op("sum", *one.dims, ref(parts.name)))]
    return replace(program, lets=tuple(lets))


def merged(plan: Plan) -> Plan:
    """The plan with its sums over columns in passes over rows; the same where there are none."""
    passes = list(plan.passes)
    for column in [p for p in passes if _reduces_columns(p)]:
        assert isinstance(column, Reduce)
        k = passes.index(column)
        host = next((j for j, p in enumerate(passes) if _takes(passes, j, k)), None)
        other = passes[host] if host is not None else None
        assert not isinstance(other, Sort)
        made = _one(plan, column, other)
        if host is None:
            passes[k] = made
        else:
            passes[max(host, k)] = made
            del passes[min(host, k)]
    read = {t.name for p in passes for t in p.loads}
    kept = tuple(w for w in plan.workspaces if w.name in read)
    names = {w.name for w in kept} | {s.result for s in plan.program.stores}
    return verified(Plan(plan.program, tuple(_without(p, names) for p in passes), kept))


def _reduces_columns(p: Pass) -> bool:
    """Whether a pass adds up columns, in one reading, of elements whose rows lie one after another."""
    if not isinstance(p, Reduce) or isinstance(p, Scan) or not p.inner or p.gathers or p.long or p.finish or any(map(is_tap, p.lets)):
        return False
    sums = [let for let in p.lets if is_reduction(let)]
    plain = all(let.expr.name in MERGED for let in sums)
    whole = [dims for dims in [*(t.dims for t in p.loads), *(s.dims for s in p.stores)] if set(dims) == set(p.dims)]
    leading = all(set(dims[: len(p.inner)]) == set(p.inner) for dims in whole)
    return bool(sums and whole and p.rows) and plain and leading and len(sums) <= MOST_SUMS and not _follows(p, sums)


def _follows(p: Reduce, sums: list[Let]) -> bool:
    """Whether an element's value follows from the sums: then a column is read again."""
    behind = {let.name for let in sums}
    for let in p.lets:
        if any(o.name in behind for o in let.expr.operands):
            if set(let.dims) & set(p.inner) or is_reduction(let):
                return True
            behind.add(let.name)
    return any(s.ref in behind and set(s.dims) & set(p.inner) for s in p.stores)


def _takes(passes: list[Pass], j: int, k: int) -> bool:
    """Whether pass number j can accumulate the columns of number k, at the place of the later of both."""
    host, column = passes[j], passes[k]
    assert isinstance(column, Reduce)
    if isinstance(host, Scan | Sort) or any(let.expr.name in SEARCHES or is_tap(let) for let in host.lets):
        # the rows of a search are gone through many times; neighbours are read by maps alone
        return False
    if isinstance(host, Map):
        fits = set(host.dims) == set(column.dims)
    else:
        fits = set(host.rows) == set(column.inner) and set(host.inner) == set(column.rows)
        fits = fits and len(host.columns) + sum(map(is_reduction, column.lets)) <= MOST_SUMS
        late = {s.result for s in host.finish.stores} if host.finish else set()
        fits = fits and not late & {t.name for t in column.loads}  # columns of the host's are there when all rows are gone through
    whole = {t.name for t in column.loads if set(t.dims) == set(column.dims)}
    shared = whole & {*(t.name for t in host.loads), *(s.result for s in host.stores)}
    if j == k or not fits or not shared or any(s.state and not set(s.dims) & set(column.rows) for s in host.stores):
        return False
    first, between = passes[min(j, k)], passes[min(j, k) + 1 : max(j, k)]
    return not _needs(host, column) and not any(_needs(p, first) or _overwrites(first, p) for p in between)


def _needs(p: Pass, other: Pass) -> bool:
    """Whether a pass reads what another one leaves."""
    return bool({t.name for t in p.loads} & {s.result for s in other.stores if s.state is None})


def _overwrites(p: Pass, other: Pass) -> bool:
    """Whether a pass, moved behind another one, would read or write what that writes in place."""
    states = {s.state for s in other.stores if s.state}
    return bool(states & {t.name for t in p.loads})


def _without(p: Pass, names: set[str]) -> Pass:
    """A pass that keeps nothing but what has these names."""
    if all(s.result in names for s in p.stores):
        return p

    def rest(stores: tuple[Store, ...]) -> tuple[Store, ...]:
        return tuple(s for s in stores if s.result in names)

    if isinstance(p, (Map, Sort)):
        return replace(p, stores=rest(p.stores))
    phases, long = (tuple(replace(f, stores=rest(f.stores)) for f in own) for own in (p.phases, p.long))
    return replace(p, stores=rest(p.stores), phases=phases, long=long, finish=p.finish and replace(p.finish, stores=rest(p.finish.stores)))


def _one(plan: Plan, column: Reduce, host: Map | Reduce | None) -> Reduce:
    """The pass that goes through rows for both."""
    rows, inner = (host.rows, host.inner) if isinstance(host, Reduce) else (column.inner, column.rows)
    own = {let.name: let for let in (host.lets if host else ())}
    every = {let.name: let for let in column.lets} | own
    defs = {let.name: every.get(let.name, let) for let in plan.program.lets}
    sums = {*(host.columns if isinstance(host, Reduce) else ()), *(let for let in column.lets if is_reduction(let))}
    stores = tuple(dict.fromkeys((*(host.stores if host else ()), *column.stores)))
    late = _late({s.name for s in sums}, defs)
    order = list(defs)
    ends = tuple(s for s in stores if set(s.dims) == set(inner))
    columns = tuple(sorted(sums, key=lambda let: order.index(let.name)))
    values = tuple(let for let in live(list(defs.values()), list(stores)) if not let.is_number)
    early = tuple(let for let in values if let.name not in late)
    phases = phases_of(frozenset(inner), early, tuple(s for s in stores if s not in ends), defs, lambda lets: None, columns)
    finish = Phase(False, _code(ends, values, {s.name for s in sums}), stores=ends)
    loaded = {let.expr.attrs[0] for let in values if let.expr.name == "load"}
    given = {t.name: t for p in (column, host) if p for t in p.loads}
    loads = tuple(t for t in _ordered(plan, given) if t.name in loaded)
    indices = tuple(dict.fromkeys(let.expr.attrs[0] for let in values if let.expr.name == "index"))
    named = {let.name for let in values}
    scalars = {s.let.name: s for p in (column, host) if p for s in p.scalars if s.let.name in named}
    return Reduce(rows, inner, loads, indices, tuple(scalars.values()), values, stores, phases, (), finish)


def _late(sums: set[str], lets: dict[str, Let]) -> set[str]:
    """The sums, and the lets that follow from them."""
    found = set(sums)
    for let in lets.values():
        if any(o.name in found for o in let.expr.operands):
            found.add(let.name)
    return found


def _code(ends: tuple[Store, ...], lets: tuple[Let, ...], sums: set[str]) -> tuple[Let, ...]:
    """What some stores are computed from, in order, down to the sums."""
    needed = {s.ref for s in ends}
    found: list[Let] = []
    for let in reversed(lets):
        if let.name in needed and let.name not in sums:
            found.append(let)
            needed |= {o.name for o in let.expr.operands}
    return tuple(reversed(found))


def _ordered(plan: Plan, given: dict[str, Tensor]) -> list[Tensor]:
    """Tensors in the order in which a pass has them: parameters first."""
    names: list[str] = [t.name for t in plan.program.tensors] + [w.name for w in plan.workspaces]
    return sorted(given.values(), key=lambda t: names.index(t.name))
