"""A kernel at each stage on its way: the texts behind `kgen show`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING

from kgen import grad, mathematics, pipeline, typeset
from kgen.check import Kernel
from kgen.cost import cost, predicted_bound, read_again
from kgen.errors import KgenError
from kgen.monoids import Rides
from kgen.parts import over_parts
from kgen.passes import Plan, Reduce, Sort
from kgen.precision import all_split
from kgen.syntax import Apply, Equation, Expr, Header, Helper, Num
from kgen.taps import is_tap
from kgen.trace import to_spec
from kgen.types import DTYPES, VARIABLE, Binding, f32, resolve

if TYPE_CHECKING:
    from kgen.backends.base import Backend


def binding(kernel: Kernel, chosen: tuple[str, ...]) -> Binding:
    """The dtypes for a kernel's variables from texts such as "T=bf16"; f32 where none is chosen."""
    known = {d.name: d for d in VARIABLE}
    found = dict.fromkeys(kernel.variables, f32)
    for text in chosen:
        name, _, dtype = text.partition("=")
        if name not in found or dtype not in known:
            raise KgenError(
                f"--dtype {text} chooses nothing", help=f"variables are {', '.join(found) or 'none'}; dtypes {', '.join(known)}"
            )
        found[name] = known[dtype]
    return found


def show(kernel: Kernel, stage: str, target: str, bound: Binding, arch: str = "sm_90", backward: bool = False) -> str:
    """The text of a stage, of the kernel or of its backward; source, ptx, sass and asm are a target's.

    Raises `KgenError` where the stage needs a tool that is not here, the target has no such stage, or there is no backward.
    """
    if backward:
        made = grad.backward(kernel)
        head = choice(kernel, made, bound) if stage == "schedule" else ""
        return head + show(made.kernel, stage, target, bound, arch)
    if stage == "spec":
        return to_spec(kernel)
    if stage == "syntax":
        return syntax_tree(kernel)
    if stage == "math":
        return mathematics.mathematics(kernel.file)
    if stage == "lowered":
        return f"{pipeline.lowered(kernel, bound)}\n"
    if stage == "program":
        return f"{pipeline.program(kernel, bound)}\n"
    from kgen.backends import backend
    from kgen.backends.base import Render
    from kgen.backends.names import bare

    kernel = over_parts(kernel)  # what is launched
    rides = backend(target).rides
    if stage == "expanded":
        return f"{pipeline.expanded(kernel, bound, rides)}\n"
    if stage == "schedule":
        return schedules(kernel, bound, rides, backend(target).merges, backend(target).taps)
    if stage == "precision":
        return precision(kernel, bound, backend(target))
    if stage == "units":
        return bare("".join(f"{line}\n" for unit in Render(backend(target), kernel).units() for line in _tree(unit, 0)))
    if stage == "launch":
        from kgen.runtime.launches import launches

        return launches(kernel, target, bound, arch)
    source = backend(target).render(kernel)
    if stage == "source":
        return source
    from kgen.runtime import toolchain

    return toolchain.listing(kernel, source, stage, target, bound, arch)


def choice(kernel: Kernel, made: grad.Backward, bound: Binding) -> str:
    """What the planner chose for a backward, with the bytes that its forward writes for it, beside computing everything anew."""
    anew = pipeline.plan(grad.backward(kernel, save=False).kernel, bound)
    here = pipeline.plan(made.kernel, bound)
    declared = {r.name: r for r in made.forward.results}
    lines = list(made.notes)
    for name in made.saved:
        r = declared[name]
        extra = "written for it" if name not in {q.name for q in kernel.results} else "a result already"
        lines.append(f"  saved  {name}: {r.dtype}[{', '.join(r.dims)}], {resolve(r.dtype, bound).bytes} bytes each, {extra}")
    if made.saved:
        (a, b), (x, y) = _readings(here), _readings(anew)
        lines.append(f"  a row is read {_times(a)}, {b} bytes an element; without it {_times(x)}, {y} bytes")
    return "\n".join(lines) + "\n"


def _readings(plan: Plan) -> tuple[int, int]:
    """How often rows are gone through, and the bytes that an element takes where rows stay on the chip."""
    rows = [p for p in plan.passes if isinstance(p, Reduce) and p.inner]
    c = cost(plan)
    return max((p.readings for p in rows), default=1), c.read + c.written


def _times(n: int) -> str:
    return "once" if n == 1 else "twice" if n == 2 else f"{n} times"


def syntax_tree(kernel: Kernel) -> str:
    """The syntax tree, one node a line, indented by depth."""
    lines = []
    for s in kernel.file.statements:
        if isinstance(s, Header):
            lines.append(f"header {typeset.format_header(s)}")
            continue
        head = f"helper {s.name.name}({', '.join(p.name for p in s.params)})" if isinstance(s, Helper) else f"equation {s.name.name}"
        lines.append(head)
        assert isinstance(s, (Helper, Equation))
        stack: list[tuple[Expr, int]] = [(s.body, 1)]
        while stack:
            node, depth = stack.pop()
            if isinstance(node, Apply):
                dims = f"[{', '.join(d.name for d in node.dims)}]" if node.dims is not None else ""
                lines.append("  " * depth + node.op + dims)
                stack.extend((a, depth + 1) for a in reversed(node.args))
            else:
                lines.append("  " * depth + (node.text if isinstance(node, Num) else node.name))
    return "\n".join(lines) + "\n"


def schedules(kernel: Kernel, bound: Binding, rides: Rides, merges: bool, taps: bool = False) -> str:
    """The passes over memory: what each reads, takes and writes, and what it costs an element; `rides`, `merges` and `taps` are the
    backend's."""
    plan = pipeline.scheduled(kernel, bound, rides, merges, taps)
    own = {w.name: w.let.expr.attrs[0] for w in plan.workspaces if w.let.expr.name in ("ranged", "sorted")}
    kept = {w.name: w.let.label or own.get(w.name, w.let.expr.name) for w in plan.workspaces}
    lines = []
    for k, p in enumerate(plan.passes):
        if isinstance(p, Reduce):
            lines.append(f"pass {k}: rows over [{', '.join(p.rows)}], each of [{', '.join(p.inner)}]")
        elif isinstance(p, Sort):
            among = f" of each row of [{', '.join(p.rows)}]" if p.rows else ""
            lines.append(f"pass {k}: the positions along {p.dims[-2]}{among} in the order of their keys, of which there are {p.dims[-1]}")
        else:
            lines.append(f"pass {k}: map over [{', '.join(p.dims)}]")
        lines += [f"  read   {kept.get(t.name, t.name)}: {t.dtype}[{', '.join(t.dims)}]" for t in p.loads]
        lines += [f"  tap    {let.expr}" for let in p.lets if is_tap(let)]
        lines += [f"  index  {d}" for d in p.indices]
        lines += [f"  number {s.let.name}: {s.let.dtype} = {s.number.expr}" for s in p.scalars]
        lines += [f"  {let.expr}" for let in p.lets if let.expr.name in ("ranged", "keyed")]
        if isinstance(p, Reduce):
            for n, phase in enumerate(f for f in p.phases if f.element):
                lines += [f"  reading {n + 1}: {r.expr}" for r in phase.reductions]
            lines += [f"  over all rows: {r.expr}" for r in p.columns]
            for n, phase in enumerate(f for f in p.long if f.element):
                lines += [f"  reading {n + 1} of a row that does not stay on the chip: {r.expr}" for r in phase.reductions]
            lines += [f"  of each piece: {r.expr}" for piece in p.pieces for phase in piece.phases for r in phase.reductions]
        for s in p.stores:
            lines.append(f"  write  {kept.get(s.result, s.result)}: {s.dtype}[{', '.join(s.dims)}]" + (" in place" if s.state else ""))
        if isinstance(p, Reduce):
            each, once, piece = (
                sum(1 for own in owners for f in own.phases if f.element is element for let in f.lets if let.expr.operands)
                for owners, element in (((p, *p.pieces), True), ((p,), False), (p.pieces, False))
            )
            lines.append(f"  {each} operations an element, {once} a row" + (f", {piece} a piece" if p.pieces else ""))
        else:
            lines.append(f"  {sum(1 for let in p.lets if let.expr.operands)} operations an element")
    c = cost(plan)
    work = f"about {c.instructions} instructions and {c.special} special functions"
    lines.append(f"an element: {c.read} bytes read, {c.written} written, {work}")
    if any(isinstance(p, Reduce) and p.long for p in plan.passes):
        bytes_ = f"{read_again(plan, long=True)} bytes read, not {read_again(plan, long=False)}"
        lines.append(f"an element of a row that does not stay on the chip: {bytes_}")
    lines.append(f"predicted bound: {predicted_bound(c)}")
    return "\n".join(lines) + "\n"


def precision(kernel: Kernel, bound: Binding, target: Backend) -> str:
    """The operators that have a cheaper form than the accurate one, each with the dtype that decides whether it is taken, and whether
    it is for the dtypes chosen."""
    lines, plan = [], pipeline.scheduled(kernel, bound, target.rides, target.merges, target.taps)
    split = all_split(plan) if target.shares else ()
    for let in plan.program.lets:
        form, decides = target.form(let) or ("", "")
        if let.name in split:
            lines.append(f"by parts of its divisor's inverse where results have more than 16 bits: {let}")
        if not form:
            continue
        if form == "shared":
            lines.append(f"by what follows from its divisor, once for all that it divides: {let}")
            continue
        short = bound.get(decides, DTYPES.get(decides, f32)).narrow
        lines.append(f"{form} where {decides} has 16 bits ({'it has' if short else 'it has not'}): {let}")
    return "\n".join(lines or ["every operator in its accurate form"]) + "\n"


def _tree(x: object, depth: int, name: str = "") -> list[str]:
    """A record as text, a field a line, what it holds indented below; fields that hold nothing are left out."""
    head = "  " * depth + (f"{name}: " if name else "")
    if is_dataclass(x) and type(x).__str__ is object.__str__:
        held = [(f.name, getattr(x, f.name)) for f in fields(x)]
        inner = [line for own, value in held if value not in ((), "", None, False) for line in _tree(value, depth + 1, own)]
        return [head + type(x).__name__, *inner]
    if isinstance(x, tuple) and (name == "lines" or any(is_dataclass(y) for y in x)):
        return [head.rstrip(), *(line for y in x for line in _tree(y, depth + 1))]
    return [head + (", ".join(map(str, x)) if isinstance(x, tuple) else str(x))]
