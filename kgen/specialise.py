"""Leading dims made explicit: a kernel over `...` as the same kernel over named dims.

In: a checked kernel, and for each tensor parameter the dims it is to have.  Out: a kernel whose `...` are names, written where
they stood (`mean[...](x)` is `mean[Lead1, Lead2](x)`); what a parameter lacks of them it broadcasts over by name, so its
gradient is summed over just those.  A batch dim may stand before all: every result gets it, no reduction does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from kgen import check as checker
from kgen import sized, syntax, typeset
from kgen.check import Kernel
from kgen.expressions import prelude
from kgen.optional import required
from kgen.syntax import Apply, Equation, Expr, Header, Helper, Name, Param, Result, Type, rebuilt
from kgen.types import DTYPES, ELLIPSIS, Dims


def specialise(kernel: Kernel, dims: Mapping[str, Dims], lead: Dims = (), batch: Dims = ()) -> Kernel:
    """`kernel` with the dims that `dims` gives each tensor parameter, by name; `lead` are the names that `...` stands for,
    `batch` those of further dims before them.

    A result has the batch dims, then `lead` where it has `...`, then its own; one that is written in place has its
    parameter's.  Raises `KgenError` where a reduction over `...` is applied to what lacks one of `lead`.
    """
    statements: list[syntax.Statement] = []
    for s in required(kernel.file).statements:
        if isinstance(s, Header):
            params = tuple(_param(p, dims) for p in s.params)
            statements.append(replace(s, params=params, results=tuple(_result(r, dims, lead, batch) for r in s.results)))
        else:
            statements.append(replace(s, body=_body(s.body, lead)))
    text = typeset.format_file(replace(kernel.file, statements=tuple(statements), comments=()))
    return checker.check(syntax.parse(text, kernel.file.source.name))


def bound(kernel: Kernel, dtypes: Mapping[str, str]) -> Kernel:
    """`kernel` with dtypes in place of its dtype variables: `T` and `T32` of parameters, results and casts are the dtypes by name."""
    wide = {f"{v}32": DTYPES[d].computed.name for v, d in dtypes.items()}
    names = {**dtypes, **wide}

    def typed(p: Param | Result) -> Type:
        dtype = p.type.dtype
        return replace(p.type, dtype=replace(dtype, name=names.get(dtype.name, dtype.name))) if p.type.dims is not None else p.type

    def cast(node: Expr) -> Expr:
        return replace(node, op=names.get(node.op, node.op)) if isinstance(node, Apply) and node.written == "call" else node

    statements: list[syntax.Statement] = []
    for s in required(kernel.file).statements:
        if isinstance(s, Header):
            params, results = (replace(p, type=typed(p)) for p in s.params), (replace(r, type=typed(r)) for r in s.results)
            statements.append(replace(s, params=tuple(params), results=tuple(results)))
        else:
            statements.append(replace(s, body=rebuilt(s.body, cast)))
    text = typeset.format_file(replace(kernel.file, statements=tuple(statements)))
    return checker.check(syntax.parse(text, kernel.file.source.name))


def reduces_leading(kernel: Kernel) -> bool:
    """Whether `...` stands in square brackets of an equation or a helper (`mean[...](x)`)."""
    return any(d.name == ELLIPSIS for node in _calls(kernel) for d in node.dims or ())


def counts_leading(kernel: Kernel) -> bool:
    """Whether a helper of several dims is given `...` among them, which then can stand for one name only."""
    own = {s.name.name: s for s in kernel.file.statements if isinstance(s, Helper)}
    over_all = {node.op for node in _calls(kernel) if ELLIPSIS in [d.name for d in node.dims or ()]}
    helpers = (own.get(op) or prelude().get(op) for op in over_all)
    return any(helper is not None and len(helper.dims) > 1 for helper in helpers)


def fresh_dims(kernel: Kernel, rank: int) -> tuple[Dims, str]:
    """`rank` names for leading dims and one for a batch dim, none of which the kernel uses."""
    taken = {name for name in _names(kernel)}

    def free(wanted: str) -> str:
        while wanted in taken:
            wanted += "_"
        return wanted

    return tuple(free(f"Lead{k + 1}") for k in range(rank)), free("Batch")


@lru_cache(maxsize=256)
def _names(kernel: Kernel) -> frozenset[str]:
    found: set[str] = set()
    for s in kernel.file.statements:
        found.add(s.name.name)
        if isinstance(s, Header):
            declared: list[Param | Result] = [*s.params, *s.results]
            for p in declared:
                found |= {p.name.name, p.type.dtype.name, *(d.name for d in p.type.dims or ())}
            found |= {n for c in s.clauses for n in (c.name.name, *sized.names(c.value))}
        elif isinstance(s, Helper):
            found |= {n.name for n in (*s.params, *s.dims)}
    return frozenset(found)


def _calls(kernel: Kernel) -> Iterable[Apply]:
    for s in kernel.file.statements:
        if isinstance(s, (Equation, Helper)):
            yield from (node for node in syntax.postorder(s.body) if isinstance(node, Apply))


def _named(names: Dims, like: Name) -> tuple[Name, ...]:
    return tuple(replace(like, name=n) for n in names)


def _typed(t: Type, names: Dims) -> Type:
    return replace(t, dims=_named(names, t.dtype))


def _param(p: Param, dims: Mapping[str, Dims]) -> Param:
    return replace(p, type=_typed(p.type, dims[p.name.name])) if p.name.name in dims and p.type.dims is not None else p


def _result(r: Result, dims: Mapping[str, Dims], lead: Dims, batch: Dims) -> Result:
    if r.primed:
        return replace(r, type=_typed(r.type, dims[r.name.name[:-1]]))
    own = syntax.dim_names(r.type.dims)
    return replace(r, type=_typed(r.type, (*batch, *(lead if ELLIPSIS in own else ()), *(d for d in own if d != ELLIPSIS))))


def _body(root: Expr, lead: Dims) -> Expr:
    """An expression in which `lead` stands for `...`."""

    def named(node: Expr) -> Expr:
        if not isinstance(node, Apply) or node.dims is None:
            return node
        return replace(node, dims=tuple(n for d in node.dims for n in (_named(lead, d) if d.name == ELLIPSIS else (d,))))

    return rebuilt(root, named)
