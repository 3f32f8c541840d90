"""A kernel over a whole list of tensors, as over one whose elements are all of theirs: what its reductions over `...` are made of.

In: a kernel with its dtypes bound, whose tensors have the dims [...] or none.  Out: for each level of its reductions the kernels that make
their terms, element by element, and their totals; then kernels of the results, of which the totals are parameters.  What makes terms is a
map: it takes a list of tensors in one launch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kgen import check as checker
from kgen import syntax, typeset
from kgen.check import Kernel, ResultDecl
from kgen.errors import KgenError
from kgen.ops import REDUCTIONS
from kgen.saving import kept_dtype
from kgen.syntax import Apply, Equation, Expr, Header, Name, Param
from kgen.types import ELLIPSIS, is_float
from kgen.values import reached
from kgen.write import Declared, Names, name_of, write

#: Of how many parts of a tensor the terms are added before they are written.
WAYS = 8
#: How the terms of those parts are joined, by the kind of reduction.
JOINED = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Level:
    """Reductions that read no others but those of the levels before: `each` gives their terms, of an element each; `several` gives those of
    WAYS parts of every tensor, joined; `totals` are, by name, the kernel that reduces the terms, and whether it takes their count."""

    each: Kernel
    several: Kernel
    totals: tuple[tuple[str, Kernel, bool], ...]


@dataclass(frozen=True)
class Whole:
    """`alone` gives the results without dims, and `listed` those of each tensor; None where there are none."""

    levels: tuple[Level, ...]
    alone: Kernel | None
    listed: Kernel | None


def whole(kernel: Kernel) -> Whole:
    """What a kernel comes to.  Raises `KgenError` where it is not one that reduces all dims of its tensors."""
    _refuse(kernel)
    levels: dict[int, list[int]] = {}
    depth: list[int] = []
    for k, v in enumerate(kernel.values):
        below = max((depth[a] for a in v.args), default=0)
        depth.append(below + (v.op in REDUCTIONS and bool(v.attr)))
        if depth[-1] > below:
            levels.setdefault(below, []).append(k)
    needed = _leads(kernel, (r.value for r in kernel.results), {})
    free = Names([*(p.name for p in kernel.params), *(r.name for r in kernel.results), *(name for name, _, _ in kernel.equations)])
    labels = {v: free.fresh(name_of(kernel.values[v])) for own in levels.values() for v in own}
    made: list[Level] = []
    known: dict[int, str] = {}  # totals by their values
    for level in sorted(levels):
        own = {v: labels[v] for v in levels[level] if v in needed}
        if own:
            made.append(_level(kernel, own, known, len(made)))
            known |= own

    def results(of: Iterable[ResultDecl], suffix: str) -> Kernel | None:
        outs = [(Declared(r.name, r.dtype, r.dims), r.value) for r in of]
        return _kernel(kernel, suffix, outs, known) if outs else None

    alone, listed = [r for r in kernel.results if not r.dims], [r for r in kernel.results if r.dims]
    return Whole(tuple(made), results(alone, "alone"), results(listed, "all"))


def _refuse(kernel: Kernel) -> None:
    """Raise `KgenError` for what a list cannot be put together for."""

    def refuse(message: str) -> KgenError:
        return KgenError(f"{kernel.name}.foreach: {message}", help=f"with whole=True all dims are `...`: {kernel.signature(False)}")

    for p in kernel.params:
        if p.is_tensor and p.dims not in ((), (ELLIPSIS,)):
            raise refuse(f"{p.name} has named dims")
    reductions = [v for v in kernel.values if v.op in REDUCTIONS and v.attr]
    wrong = next((v for v in kernel.values if v.op == "pick" or v in reductions and (v.op not in JOINED or not is_float(v.type))), None)
    if wrong is not None:
        raise refuse(f"{wrong.op} is not taken over a list")
    if not reductions:
        raise refuse("it reduces nothing")


def _leads(kernel: Kernel, roots: Iterable[int], stops: Mapping[int, str]) -> set[int]:
    """The values that some are made of, down to `stops`."""
    return reached(roots, lambda v: () if v in stops else kernel.values[v].args)


def _kernel(kernel: Kernel, suffix: str, outs: list[tuple[Declared, int]], totals: Mapping[int, str]) -> Kernel:
    """The kernel of some values, in which the totals that they read are parameters."""
    read = _leads(kernel, (v for _, v in outs), totals)
    states = {d.name.rstrip("'") for d, _ in outs if d.name.endswith("'")}
    names = {str(kernel.values[v].attr) for v in read if kernel.values[v].op == "param"} | states
    params = [Declared(p.name, p.dtype, p.dims, p.default) for p in kernel.params if p.name in names]
    given = [Declared(totals[v], kept_dtype(kernel.values[v].type) or "", ()) for v in sorted(read) if v in totals]
    params = [*(p for p in params if p.dims is not None), *given, *(p for p in params if p.dims is None)]
    if any(d.dims for d, _ in outs) and not any(p.dims for p in params):  # what gives the leading dims
        first = next(p for p in kernel.params if p.dims)
        params.insert(0, Declared(first.name, first.dtype, first.dims))
    free = Names([*(p.name for p in params), *(d.name for d, _ in outs), *totals.values()])
    name = f"{kernel.name}_{suffix}"
    text = write(name, [], params, outs, kernel.values, totals, {}, free, kernel.clauses)
    return checker.check(syntax.parse(text, f"{name}.k"))


def _level(kernel: Kernel, own: Mapping[int, str], known: Mapping[int, str], number: int) -> Level:
    """The kernels of reductions (by value, with their names) that are made together; `known` are the totals before them."""
    outs, totals = [], []
    for v, name in own.items():
        value = kernel.values[v]
        dtype = kept_dtype(value.type) or ""
        outs.append((Declared(name, dtype, (ELLIPSIS,)), value.args[0]))
        mean = value.op == "mean"
        text = f"{kernel.name}_total(p: {dtype}[N]{', n: int' if mean else ''}) -> {name}: {dtype}[]\n\n"
        text += f"{name} = {'sum' if mean else value.op}[N](p){' / n' if mean else ''}\n"
        totals.append((name, checker.check(syntax.parse(text, f"{kernel.name}_total.k")), mean))
    each = _kernel(kernel, f"each{number or ''}", outs, known)
    return Level(each, _several(each, {name: JOINED[kernel.values[v].op] for v, name in own.items()}), tuple(totals))


def _several(each: Kernel, joined: Mapping[str, str]) -> Kernel:
    """The kernel of WAYS parts of every tensor with dims, which `joined` puts together: the parts of x are `x_1` to `x_8`."""
    header = next(s for s in each.file.statements if isinstance(s, Header))
    equations = [s for s in each.file.statements if isinstance(s, Equation)]
    lists = {p.name.name for p in header.params if p.type.dims}
    parted = lists | {s.name.name for s in equations}
    between = "_"
    while any(f"{n}{between}{k}" in parted | {p.name.name for p in header.params} for n in parted for k in range(1, WAYS + 1)):
        between += "_"

    def part(name: Name, k: int) -> Name:
        return replace(name, name=f"{name.name}{between}{k}")

    def parts_of(root: Expr, k: int) -> Expr:
        return syntax.rebuilt(root, lambda node: part(node, k) if isinstance(node, Name) and node.name in parted else node)

    params: list[Param] = []
    for p in header.params:
        several = [replace(p, name=part(p.name, k)) for k in range(1, WAYS + 1)]
        params += several if p.name.name in lists else [p]
    made = [replace(s, name=part(s.name, k), body=parts_of(s.body, k)) for k in range(1, WAYS + 1) for s in equations]
    for r in header.results:
        total: Expr = part(r.name, 1)
        for k in range(2, WAYS + 1):
            infix = joined[r.name.name] in ("add", "mul")
            total = Apply(joined[r.name.name], (total, part(r.name, k)), r.span, r.span, "infix" if infix else "call")
        made.append(Equation(r.name, total, r.span))
    name = replace(header.name, name=f"{header.name.name}_of_{WAYS}")
    file = replace(each.file, statements=(replace(header, name=name, params=tuple(params)), *made), comments=())
    return checker.check(syntax.parse(typeset.format_file(file), f"{name.name}.k"))
