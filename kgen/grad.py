"""Derivatives: a kernel's backward and its forward mode, each a kernel of its own.

In: a checked kernel.  Out: a spec for its derivative, checked like any other, and which of the kernel's parameters and results
it takes.  Every operator's rule stands in its row of the table; `tape.py` applies them, here their results are put together:
last value to first for the backward, first to last for the forward mode.  What the backward reads of the forward is either
computed anew from the parameters or saved: `saving.py` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kgen import check as checker
from kgen import saving, syntax, typeset
from kgen.check import Kernel, Parameter, ResultDecl
from kgen.errors import Diagnostic, KgenError, TooLong
from kgen.expressions import MAX_VALUES
from kgen.invariant import unmoved
from kgen.ops import SCANS
from kgen.ops.scans import rules as scan_rules
from kgen.optional import required
from kgen.rowwise import by_rows
from kgen.sized import needed
from kgen.tape import Part, Tape
from kgen.types import DTYPES, ELLIPSIS, Dims, Number, axes, is_literal, lying, variable_of
from kgen.values import Value
from kgen.write import Declared, Names, equations, name_of, write

Built = TypeVar("Built")


@dataclass(frozen=True)
class Backward:
    """A kernel's gradients as a kernel: it takes the cotangents, then `takes` and `saved`, and gives `gradients`.

    `forward` is the kernel with the `saved` values as further results (the kernel itself where it has them all); `cotangents`
    says for each result on which a gradient depends which parameter is its cotangent, `gradients` for each parameter which result
    is its gradient (absent where no result depends on it); of the parameters in `sized` only shape and dtype are read; `notes`
    tell the choice.
    """

    kernel: Kernel
    forward: Kernel
    cotangents: dict[str, str]
    takes: tuple[str, ...]
    sized: tuple[str, ...]
    saved: tuple[str, ...]
    gradients: dict[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forward:
    """A kernel's forward mode: from its parameters `takes` and their tangents (`tangents`: parameter -> parameter of `kernel`)
    the tangents of its results (`results`: result -> result of `kernel`; absent where nothing moves it)."""

    kernel: Kernel
    tangents: dict[str, str]
    takes: tuple[str, ...]
    sized: tuple[str, ...]
    results: dict[str, str]


def differentiable(kernel: Kernel) -> bool:
    """Whether it has a derivative: nothing written in place, and a float result that depends on a float tensor."""
    if any(r.state for r in kernel.results):
        return False
    moving, results = Tape(kernel).moving(_chosen(kernel.params, None)), _chosen(kernel.results, None)
    return any(r.value in moving for r in kernel.results if r.name in results)


def backward(kernel: Kernel, given: Iterable[str] | None = None, wanted: Iterable[str] | None = None, save: bool = True) -> Backward:
    """The gradients of the float tensor parameters `wanted` (default: all) from cotangents of the results `given` (default: all
    float ones).  Without `save` everything is computed anew from the parameters.  Where all gradients are zero they are results
    all the same.

    A cotangent has its result's dtype and dims, a gradient its parameter's; leading dims (`...`) are the same for all.  Raises
    `KgenError` where the kernel has no derivative, or its backward is too long.
    """
    kernel = _followed(kernel)
    return _build(kernel, "backward", lambda: _Backward(kernel, _chosen(kernel.results, given), _chosen(kernel.params, wanted)).built(save))


def forward_mode(kernel: Kernel, given: Iterable[str] | None = None) -> Forward:
    """The tangents of the float results from tangents of the float tensor parameters `given` (default: all).

    A tangent has the dtype and dims of what it belongs to; where all are zero they are results all the same.  Raises `KgenError`
    as `backward` does.
    """
    kernel = _followed(kernel)
    return _build(kernel, "forward mode", lambda: _ForwardMode(kernel, _chosen(kernel.params, given)).built())


def _like(name: str, d: Parameter | ResultDecl) -> Declared:
    """A declaration of the same type under another name."""
    return Declared(name, d.dtype, d.dims, None, d.factors)


def _followed(kernel: Kernel) -> Kernel:
    """The kernel, its axes left whole where each has at most one factor that is no literal: so the sizes are known of a derivative too,
    which may lack parameters.  Otherwise with an axis for each dim."""
    declared: list[Parameter | ResultDecl] = [*kernel.params, *kernel.results]
    split = [axis for d in declared for axis in axes(d.dims or (), d.factors)]
    return kernel if all(sum(not is_literal(d) for d in axis) < 2 for axis in split) else checker.plain(kernel)


def _chosen(declared: Sequence[Parameter] | Sequence[ResultDecl], names: Iterable[str] | None) -> tuple[str, ...]:
    """The names of float tensors among parameters or results, all or those in `names`."""
    wanted = None if names is None else set(names)
    floats = (d.name for d in declared if d.dims is not None and (d.dtype not in DTYPES or DTYPES[d.dtype].differentiable))
    return tuple(name for name in floats if wanted is None or name in wanted)


def _build(kernel: Kernel, what: str, build: Callable[[], Built]) -> Built:
    state = next((r.state for r in kernel.results if r.state), None)
    if state is not None:
        raise KgenError(f"{kernel.name} has no {what}: it writes `{state}` in place")
    try:
        return build()
    except TooLong as error:
        inside = error.source is kernel.file.source
        span = error.diagnostics[-1].span if inside else _header(kernel).name.span
        message = f"{kernel.name}: its {what} would be too long for one kernel"
        caps = f"split it into several kernels: one has at most {MAX_VALUES:,} operations, and {syntax.MAX_BYTES:,} bytes of text"
        raise TooLong(Diagnostic(message, span, help=caps), kernel.file.source) from None


def _header(kernel: Kernel) -> syntax.Header:
    return next(s for s in kernel.file.statements if isinstance(s, syntax.Header))


def _gives(p: Parameter) -> set[str]:
    """What is known from a parameter without reading it: dims and a dtype variable."""
    return {*(p.dims or ()), p.dtype}


class _Derivative(Tape):
    """What backward and forward mode share: the spec that they write."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel)
        declared = [*(p.name for p in kernel.params), *(r.name for r in kernel.results), *(name for name, _, _ in kernel.equations)]
        dtypes = [*kernel.variables, *(f"{v}32" for v in kernel.variables)]
        self.free = Names([*declared, *self.dims, *dtypes, kernel.name])
        self.derived: dict[int, int] = {}  # a value of the derivative -> the forward's, of which it is the cotangent or tangent

    def taken(
        self, roots: set[int], tensors: set[str], results: list[Declared], others: list[Declared]
    ) -> tuple[list[Declared], list[str]]:
        """The forward's parameters that the derivative declares, in order: `tensors`, the numbers that its values (`roots`) are
        made of, and those without which a dim or a dtype would not be known (their names are the second list)."""
        read = [self.values[v] for v in roots]
        used = tensors | {str(v.attr) for v in read if v.op == "param" and isinstance(v.type, Number)}
        sizes = {d for r in results for d in r.dims or ()} | {str(v.attr) for v in read if v.op in ("size", "index")}
        known: list[Declared | Parameter] = [*others, *(p for p in self.kernel.params if p.name in used)]
        given = {d for p in self.kernel.params for d in p.dims or ()}
        sizes = needed(self.clauses, sizes - {d for k in known for d in k.dims or ()}, given)
        numbers = {p.name for p in self.kernel.params if p.dims is None}
        used = used | sizes & numbers
        sizes -= {*numbers, *(d for k in known for d in k.dims or ())}
        dtypes = {variable_of(k.dtype) for k in (*results, *known)} | {variable_of(str(v.attr)) for v in read if v.op == "cast"}
        dtypes -= {k.dtype for k in known} | {""}
        missing = {*sizes, *dtypes}
        sized: set[str] = set()
        free = [p for p in self.kernel.params if p.is_tensor and p.name not in used]
        while missing and (best := max(free, key=lambda p: (len(_gives(p) & missing), -len(p.dims or ())), default=None)):
            sized.add(best.name)
            missing -= _gives(best)
            free.remove(best)
            declared = {k.dtype for k in known} | {p.dtype for p in self.kernel.params if p.name in sized}
            wants = {variable_of(best.dtype)} - declared - {""}  # a T32 wants a T
            dtypes |= wants
            missing |= wants
        for p in [p for p in self.kernel.params if p.name in sized]:  # what a later one made needless
            others_give = {d for q in self.kernel.params if q.name in sized - {p.name} for d in _gives(q)}
            sized -= {p.name} if _gives(p) & {*sizes, *dtypes} <= others_give else set()
        params = [p for p in self.kernel.params if p.name in used | sized]
        return [Declared(p.name, p.dtype, p.dims, p.default, p.factors) for p in params], [p.name for p in params if p.name in sized]

    def names_of(self, leaves: Mapping[int, str], written: set[int]) -> dict[int, str]:
        """The forward's own names for what is computed anew, and `d` before them for what belongs to them."""
        results = {r.value: r.name for r in self.kernel.results}
        wanted = {v: n for v, n in self.labels.items() if v in written and v not in leaves and self.values[v].op != "param"}
        for value, of in self.derived.items():
            if value >= self.count and value in written and value not in leaves and (label := self.labels.get(of) or results.get(of)):
                wanted.setdefault(value, self.free.fresh(f"d{label}"))
        return wanted

    def spec(
        self,
        suffix: str,
        doc: list[str],
        before: list[Declared],
        tensors: set[str],
        after: list[Declared],
        outs: list[tuple[Declared, int]],
        leaves: dict[int, str],
    ) -> tuple[Kernel, tuple[str, ...], tuple[str, ...]]:
        """The derivative's kernel, and what it takes of the forward's parameters: all, and those for their sizes alone."""
        written = self.leads((v for _, v in outs), leaves)
        taken, sized = self.taken(written, tensors, [d for d, _ in outs], [*before, *after])
        name = self.free.fresh(f"{self.kernel.name}_{suffix}")
        params, labels = [*before, *taken, *after], self.names_of(leaves, written)
        text = write(name, doc, params, outs, self.values, leaves, labels, self.free, self.clauses)
        return checker.check(syntax.parse(text, f"{name}.k")), tuple(p.name for p in taken), tuple(sized)


class _Backward(_Derivative):
    def __init__(self, kernel: Kernel, given: tuple[str, ...], wanted: tuple[str, ...]):
        super().__init__(kernel)
        self.given, self.wanted = given, wanted

    def built(self, save: bool) -> Backward:
        """The backward: gradients of `wanted` from the cotangents of `given`, reading from the forward (with `save`) what costs
        more to compute anew.  Raises `KgenError` where no result moves."""
        kernel = self.kernel
        results = [r for r in kernel.results if r.name in self.given]
        cotangents = {r.name: self.free.fresh(f"d{r.name}") for r in results}
        declared = {r.name: _like(cotangents[r.name], r) for r in results}
        seeds = {name: self.declare(d.name, d.dtype, d.dims or ()) for name, d in declared.items()}
        found = self.gradients(seeds)
        if not found:
            if not self.wanted or not differentiable(kernel):
                raise KgenError(f"{kernel.name} has no backward: its results do not move with {_listed(self.wanted) or 'a tensor'}")
            found = dict.fromkeys(self.wanted, self.build("0.0"))
        found, moved = by_rows(self, found)
        for v in moved.keys() & self.derived.keys():
            self.derived.setdefault(moved[v], self.derived[v])
        outs = {p.name: (_like(self.free.fresh(f"d{p.name}"), p), found[p.name]) for p in kernel.params if p.name in found}
        used = self.leads(found.values())
        cotangents = {r: d for r, d in cotangents.items() if seeds[r] in used}
        params, saved = saving.choose(self.values, self.read(found.values()), self.stored(), save)
        names, forward = self.saving_forward(sorted(saved))
        kept = [self.kept(v, names[v]) for v in sorted(saved)]
        tensors = [str(self.values[v].attr) for v in sorted(params)]
        which = f", and {_listed(names.values())}, which the forward saves" if names else ""
        notes = [f"It reads {_listed(tensors) or 'no parameter'}{which}."]
        leaves = {v: str(self.values[v].attr) for v in params} | names | {seeds[r]: d for r, d in cotangents.items()}
        doc, before = [f"The gradients of {kernel.name}.", *notes], [declared[r] for r in cotangents]
        made, takes, sized = self.spec("backward", doc, before, set(tensors), kept, list(outs.values()), leaves)
        gradients = {p: d.name for p, (d, _) in outs.items()}
        return Backward(made, forward, cotangents, takes, sized, tuple(names.values()), gradients, tuple(notes))

    def gradients(self, seeds: Mapping[str, int]) -> dict[str, int]:
        """The gradient of each wanted parameter with which a result moves, from the cotangents of the results."""
        results = [r for r in self.kernel.results if r.name in seeds]
        moving = self.moving(self.wanted) - unmoved(self, (r.value for r in results))
        sums: dict[int, list[Part]] = {}
        found: dict[str, int] = {}

        def add(v: int, part: Part | None, dims: Dims) -> None:
            """A contribution that has `dims` in full."""
            if v in moving and part is not None:
                extra = tuple(d for d in dims if d not in self.values[v].dims)
                share = self.summed(part, extra)
                if share is not None:
                    sums.setdefault(v, []).append(share)

        for r in results:
            add(r.value, Part(seeds[r.name]), r.dims)
        for k in reversed(range(self.count)):
            if k not in sums:
                continue
            v = self.values[k]
            self.outside = (v.op, v.span)  # what is made here stands where that value does
            total = self.joined(sums.pop(k))
            if v.op == "param":
                found[str(v.attr)] = self.selected(total)
                continue
            self.derived.setdefault(total.raw, k)
            for a, rule in self.rules(v):
                if a in moving:
                    add(a, self.share(k, rule, total), self.dims_of_share(k))
        return found

    def read(self, roots: Iterable[int]) -> set[int]:
        """The forward's tensor values that the derivative's own values are made of."""
        own = range(self.count)
        return {v for v in self.leads(roots, own) if v in own and not isinstance(self.values[v].type, Number)}

    def stored(self) -> dict[int, str]:
        """The values that are results already, in the dtype in which they are computed."""
        results = [(r, self.values[r.value]) for r in self.kernel.results]
        return {r.value: r.name for r, v in results if r.dtype == saving.kept_dtype(v.type) and r.dims == v.dims}

    def kept(self, v: int, name: str) -> Declared:
        """A saved value as a result and a parameter: it lies as what it is made of."""
        return Declared(name, saving.kept_dtype(self.values[v].type) or "", lying(self.values[v].dims, self.tensors))

    def saving_forward(self, saved: list[int]) -> tuple[dict[int, str], Kernel]:
        """Names of the saved values, and the kernel that gives them: the writer's text with further results."""
        kernel, stored = self.kernel, self.stored()
        names: dict[int, str] = {}
        extra: list[str] = []
        new: dict[int, str] = {}
        lines: list[str] = []
        whole = next((p.name for p in kernel.params if ELLIPSIS in (p.dims or ())), "")
        labels = {v: n for v, n in self.labels.items() if self.values[v].op != "param"}
        results = {r.name for r in kernel.results}
        for v in saved:
            label = labels.get(v, "")
            if v in stored:
                names[v] = stored[v]
                continue
            if label and label not in results:
                names[v] = label
            else:
                names[v] = self.free.fresh(f"{label}_kept" if label else name_of(self.values[v]))
                if label:
                    lines.append(f"{names[v]} = {label}")
                else:
                    new[v] = names[v]
            extra.append(str(self.kept(v, names[v])))
        if not extra:
            return names, kernel
        lines += equations(self.values, new, labels, whole, self.free, self.clauses)
        header = _header(kernel)
        params = ", ".join(map(typeset.format_param, header.params))
        declared = ", ".join([*(f"{r.name.name}: {typeset.format_type(r.type)}" for r in header.results), *extra])
        name = self.free.fresh(f"{kernel.name}_forward")
        doc = [*(kernel.doc.split("\n") if kernel.doc else ()), f"It gives {_listed(names.values())} to the backward."]
        text = [*(f"# {line}".rstrip() for line in doc), f"{name}({params}) -> ({declared}) {typeset.format_clauses(header)}", ""]
        text += [typeset.format_statement(s) for s in kernel.file.statements if s is not header]
        parsed = required(syntax.parse("\n".join([*text, *lines]) + "\n", f"{name}.k"))
        return names, checker.check(syntax.parse(typeset.format_file(parsed), f"{name}.k"))


class _ForwardMode(_Derivative):
    def __init__(self, kernel: Kernel, given: tuple[str, ...]):
        super().__init__(kernel)
        self.given = given

    def built(self) -> Forward:
        """The forward mode: the results' tangents from those of `given`.  Raises `KgenError` where no result moves."""
        kernel = self.kernel
        params = [p for p in kernel.params if p.name in self.given]
        declared = {p.name: _like(self.free.fresh(f"d{p.name}"), p) for p in params}
        seeds = {name: self.declare(d.name, d.dtype, d.dims or ()) for name, d in declared.items()}
        moved = self.tangents(seeds)
        outs = {
            r.name: (_like(self.free.fresh(f"d{r.name}"), r), moved[r.value]) for r in kernel.results if r.value in moved
        }
        if not outs:
            if not self.given or not differentiable(kernel):
                raise KgenError(f"{kernel.name} has no forward mode: its results do not move with {_listed(self.given) or 'a tensor'}")
            zero = self.build("0.0")
            floats = _chosen(kernel.results, None)
            outs = {r.name: (_like(self.free.fresh(f"d{r.name}"), r), zero) for r in kernel.results if r.name in floats}
        read = self.leads(v for _, v in outs.values())
        leaves = {v: str(self.values[v].attr) for v in read if v < self.count and self.values[v].op == "param"}
        tensors = {name for v, name in leaves.items() if not isinstance(self.values[v].type, Number)}
        tangents = {name: d for name, d in declared.items() if seeds[name] in read}
        leaves = {v: n for v, n in leaves.items() if n in tensors} | {seeds[n]: d.name for n, d in tangents.items()}
        self.derived = {v: k for k, v in moved.items()}
        doc = [f"The forward mode of {kernel.name}: how its results move with {_listed(tangents)}."]
        made, takes, sized = self.spec("jvp", doc, [], tensors, list(tangents.values()), list(outs.values()), leaves)
        return Forward(made, {n: d.name for n, d in tangents.items()}, takes, sized, {r: d.name for r, (d, _) in outs.items()})

    def placed_tangent(self, v: Value, x: int) -> int:
        """A tangent at the places of a value, along those dims that it has."""
        have = self.values[x]
        pairs = [(d, e) for d, e in zip(v.attr, v.args[1:], strict=True) if d in have.dims]
        dims, places = tuple(d for d, _ in pairs), [e for _, e in pairs]
        return self.make("place", (x, *places), dims, have.type, self.placed(have.dims, dims, places), v.span) if pairs else x

    def tangents(self, seeds: Mapping[str, int]) -> dict[int, int]:
        """The tangent of every value that moves: the shares of its operands' tangents, added (over the dims that it reduces, summed)."""
        moving = self.moving(seeds) - unmoved(self, (r.value for r in self.kernel.results))
        found: dict[int, int] = {}
        for k, v in enumerate(self.values[: self.count]):
            if k not in moving:
                continue
            if v.op == "param":
                found[k] = seeds[str(v.attr)]
                continue
            self.outside = (v.op, v.span)
            parts: list[Part] = []
            for n, (a, rule) in enumerate(self.rules(v)):
                if a not in found:
                    continue
                if v.op == "place":
                    parts.append(Part(self.placed_tangent(v, found[a])))
                elif v.op in SCANS:
                    given = dict(zip(SCANS[v.op].args, v.args, strict=True))
                    tangent = [t for t in scan_rules(v.op, tuple(v.attr), tangents=True) if t != "0"][n]  # as its rules
                    parts.append(Part(self.build(tangent, {"D": tuple(v.attr[:1])}, dy=found[a], **given)))
                elif v.op == "pick" and set(v.attr) <= set(self.values[found[a]].dims):
                    parts.append(Part(self.build("pick[D](x, t)", {"D": tuple(v.attr)}, x=found[a], t=v.args[1])))
                elif (part := Part(found[a]) if v.op == "pick" else self.share(k, rule, Part(found[a]))) is not None:
                    over = v.attr if isinstance(v.attr, tuple) and v.op != "pick" else ()
                    share = self.summed(part, over)
                    parts += [share] if share is not None else []
            if parts:
                found[k] = self.selected(self.joined(parts))
        return found


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
