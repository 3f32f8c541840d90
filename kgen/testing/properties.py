"""What must hold of any program, each property a function that is usable alone.

In: a checked kernel, and where one runs a target, a seed and the numbers of the cases.  Out: a `Report` of what was looked at;
raises `Violation` (an `AssertionError`) where the property does not hold, `KgenError` where no code or derivative can be made
for the kernel.

    prints_and_parses   its text, set well or written anew from its values, gives the same program
    renames             other names change nothing but names, in the program and in every emitted source
    renders             every target has source
    rules_keep          each rule of `rewrite` keeps every bit, or the bound that it states; so does `expand`
    agrees              a target is within the derived bound, and bit for bit with the formula's own reading where every operator
                        is exact
    backward_agrees     the derived backward, saved and computed anew, is autograd's of the formula in float64
    gradients_agree     the backward's kernels on a target are within the derived bound
    rows_alone          a row alone, in a batch and in a larger one has the same bits
    in_place            a result that is written over a parameter has the same bits
    compiles            what a call on a GPU would build is built, without one
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from kgen.backends import TARGETS, backend
from kgen.check import Kernel, Value
from kgen.errors import KgenError
from kgen.ops import OPS, REDUCTIONS, SCANS
from kgen.runtime import coded
from kgen.runtime.evaluate import Evaluator
from kgen.searches import SEARCHES, compared_type
from kgen.selection import operands_of
from kgen.testing import checks
from kgen.testing.cases import Limits
from kgen.testing.checks import Report, Trial
from kgen.testing.forms import accurate
from kgen.testing.gradients import backward_agrees, gradients_agree
from kgen.testing.holding import Violation, differing, drawn, ended, fitting, hold, judged, rough, same_bits
from kgen.testing.textual import prints_and_parses, renames, renders
from kgen.testing.zeros import EITHER_ZERO
from kgen.types import DTYPES, ELLIPSIS, FLOAT, PACKING, DType, Float, boolean, is_float, u8

# ------------------------------------------------------------------------------------------------ rules


class Interpreted(Evaluator):
    """A program evaluated by PyTorch: the lets are read as values whose conversions are all explicit."""

    def __init__(self, kernel: Kernel, program: Any, arguments: dict[str, Any]):
        """A kernel whose values are the lets of `program`, so that programs are evaluated as kernels are."""
        from kgen.values import Value

        index = {let.name: k for k, let in enumerate(program.lets)}
        values = []
        for let in program.lets:
            name, attrs = let.expr.name, let.expr.attrs
            t = Float(frozenset({let.dtype.name})) if not let.is_number and let.dtype.is_float else let.dtype
            several = name in ("gather", "pick", "place", *SCANS) or name in REDUCTIONS and attrs
            attr: Any = attrs if several else attrs[0] if attrs else ""
            if name == "cast":
                attr = let.dtype.name
            op = {"load": "param", "arg": "param"}.get(name, name)
            args = tuple(index[o.name] for o in let.expr.operands)
            if name in SEARCHES and program.by_name[let.expr.operands[1].name].expr.name == "probe":
                args = tuple(index[o] for o in operands_of(let, program.by_name))
            values.append(Value(op, args[:1] if op in ("argmax", "argmin") else args, attr, t, let.dims, let.span))
        stores = {s.result: index[s.ref] for s in program.stores}
        results = tuple(replace(r, value=stores[r.name]) for r in kernel.results)
        super().__init__(replace(kernel, values=tuple(values), results=results), arguments, "kernel")

    def value(self, v: Any, args: list) -> Any:
        """One value from those of its operands, as `Evaluator.value`; literals and gathers are the program's own."""
        if v.op == "lit" and v.type == FLOAT:
            from kgen.ir import exact

            text = str(v.attr)
            return float(text) if text in ("inf", "-inf", "nan") else float(exact(text))
        if v.op == "probe":  # what a search tries: it is evaluated at once
            name = v.type.torch if isinstance(v.type, DType) else "float32"
            return self.torch.zeros([1] * len(self.order), dtype=getattr(self.torch, name))
        if v.op == "param" and v.type is u8:  # codes, if it is none of u8 itself
            return self.spread(self.arguments[str(v.attr)].view(self.torch.uint8), v.dims)
        if v.op == "gather":
            return self.placed(v, args[0], args[1:])
        if v.op in ("max", "min") and v.attr and v.type is boolean:  # what `expand` makes of any and all, of no elements too
            v = replace(v, op="any" if v.op == "max" else "all")
        return super().value(v, args)

    def convert(self, x: Any, dtype: Any) -> Any:
        """As the evaluator's; to a float of few bits from its codes, which programs have in place of it."""
        if coded.coded(dtype) is not None and x.dtype == self.torch.uint8:
            return x.contiguous().view(dtype)
        return super().convert(x, dtype)


def rules_keep(kernel: Kernel, seed: int = 0, numbers: Sequence[int] = (0, 1)) -> Report:
    """Each rule alone, and `expand` after all of them: the program's results before and after, bit for bit; within the derived bound
    for the rules that state one."""
    import torch

    from kgen.expand import expand
    from kgen.lower import lower
    from kgen.rewrite import RULES, rewrite
    from kgen.testing.bounds import Analysis
    from kgen.types import resolve_named

    report = Report(kernel.name, "")
    for number in numbers:
        draw, arguments = drawn(kernel, seed, number)
        program = lower(kernel, {v: resolve_named(d, {}) for v, d in draw.binding.items()})
        with torch.no_grad():
            try:
                before = Interpreted(kernel, program, arguments).run()
                expected = Analysis(kernel, arguments, "cpp").results()
            except KgenError:  # a maximum of no elements
                continue
            for rule in RULES:
                after = Interpreted(kernel, rewrite(program, (rule,)), arguments).run()
                for r, a, b, want in zip(kernel.results, before, after, expected, strict=True):
                    if rule.keeps == "bits":
                        hold(same_bits(a, b), f"the rule {rule.name} changes {r.name} in case {number}: {differing(b, a)}")
                    else:
                        said = "" if rough(kernel) else checks.compare(b, want, b, Report("", ""))
                        hold(not said, f"after the rule {rule.name}, {r.name} in case {number}: {said}")
                    report.elements += a.numel()
            expanded = Interpreted(kernel, expand(rewrite(program)), arguments).run()
            for r, b, want in zip(kernel.results, expanded, expected, strict=True):
                said = "" if rough(kernel) else checks.compare(b, want, b, Report("", ""))
                hold(not said, f"after expanding, {r.name} in case {number}: {said}")
        report.cases += 1
    return report


# ------------------------------------------------------------------------------------------------ targets


def is_exact(kernel: Kernel) -> bool:
    """Whether every operator of a kernel gives the one right float on every target: none, or a single correct rounding, and no sum
    of floats, whose order is a target's own.  `fma` and `sqrt` are left out: torch has none, or none of f64 that is rounded right."""
    ops = {v.op for v in kernel.values}
    if ops & {*EITHER_ZERO} and ops & {"div", "pow", "atan2", "copysign", "signbit"}:  # which tell one zero from the other
        return False
    for v in kernel.values:
        if v.op in SCANS and isinstance(v.type, Float):
            return False
        if v.op in SEARCHES and isinstance(compared_type(v.op, [kernel.values[a] for a in v.args]), Float):  # whose weights are summed up
            return False
        if v.op in ("signbit", "copysign") and _may_be_unsigned_nan(kernel.values[v.args[-1]]):
            return False
        if v.op in REDUCTIONS and v.attr:
            if v.op in ("sum", "prod", "mean") and isinstance(v.type, Float):
                return False
        elif v.op in OPS:
            row = OPS[v.op]
            rounded = all(backend(target).spell(row).ulp == (0.5, 0.5) for target in TARGETS)
            if v.op in ("fma", "rsqrt", "sqrt") or is_float(v.type) and not rounded:
                return False
    return True


def _may_be_unsigned_nan(v: Value) -> bool:
    """Whether a value may be a NaN of which nobody says the sign: one that an operator makes, and the only one of a format without -0,
    where the sign's bit is all that it has."""
    codings = [DTYPES[d].coding for d in v.type.of if d in DTYPES] if isinstance(v.type, Float) else []
    return v.op in OPS or any(c is not None and c.nan == c.sign != 0 for c in codings)


def agrees(
    kernel: Kernel, target: str = "torch", seed: int = 0, numbers: Iterable[int] = range(4), runnable: Any = None,
    long: Limits | None = None,
) -> Report:  # fmt: skip
    """A target's results within the derived bound of the exact ones, special values as eager has them; where every operator is exact,
    and in its accurate form, bit for bit what the formula's reading on the CPU gives (but for the sign of a zero that EITHER_ZERO may
    choose).  `long` are the limits of the last case."""
    trial = Trial(kernel, target, runnable)
    report = Report(kernel.name, target)
    if target in ("cuda", "triton") and not any(p.is_tensor for p in kernel.params):
        return report  # whose results lie on the CPU
    exact = target != "torch" and is_exact(kernel)
    zeros = any(v.op in EITHER_ZERO for v in kernel.values)
    if target == "torch" and rough(kernel):
        return report
    for number, last in ended(numbers):
        limits = long if last else None
        judged(trial, seed, number, report, limits)
        draw, arguments = drawn(kernel, seed, number, limits) if exact else (None, {})
        if draw is not None and accurate(kernel, tuple((v, DTYPES[d]) for v, d in draw.binding.items()), target):
            got, arguments = results_of(trial.runnable, kernel, target, arguments)
            if got is not None:
                for r, a, b in zip(kernel.results, got, Evaluator(kernel, arguments).run(), strict=True):
                    if zeros and a.is_floating_point() and not coded.packed(a.dtype):
                        few = a.dtype.itemsize == 1  # bits, of which torch has no sum
                        a, b = ((x.float() if few else x) + 0.0 for x in (a, b))  # -0 + 0 is 0
                    hold(same_bits(a, b), f"{r.name} in case {number}, of exact operators alone: {differing(a, b)}")
    return report


def results_of(
    runnable: Any, kernel: Kernel, target: str, arguments: dict[str, Any], into: dict[str, str] | None = None
) -> tuple[list | None, dict[str, Any]]:
    """A target's results for arguments (None where it has none to give), and the arguments.

    `into` says which parameter's memory a result is written to; it then has none to give where kgen refuses that.
    """
    import torch

    device = "cpu" if target == "torch" else TARGETS[target].device
    written = {*(r.state for r in kernel.results if r.state), *(into or {}).values()}
    given = {k: checks._same_layout(a, device, k in written) if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
    try:
        with torch.no_grad():
            out = None
            if into:
                made = zip(kernel.results, Evaluator(kernel, arguments).run(), strict=True)
                shaped = {r.name: torch.empty(y.shape, dtype=y.dtype, device=device) for r, y in made if not r.state}
                out = tuple(given[into[name]] if name in into else memory for name, memory in shaped.items())
            returned = runnable._run((), given, out, target)
    except KgenError:
        return None, arguments
    fresh = list(returned) if isinstance(returned, tuple) else [returned]
    return [(given[r.state] if r.state else fresh.pop(0)).cpu() for r in kernel.results], arguments


def in_place(
    kernel: Kernel, target: str = "torch", seed: int = 0, number: int = 0, runnable: Any = None, within: Sequence[Limits] = (Limits(),)
) -> Report:
    """A result written over a parameter of its dims and dtype (`out=x`) has the bits that it has in memory of its own, in a case within
    each of some limits."""
    from kgen.runtime.kernel import Kernel as Runnable

    report, runnable = Report(kernel.name, target), runnable or Runnable(kernel)
    if target in ("cuda", "triton") and not any(p.is_tensor for p in kernel.params):
        return report
    for limits in (replace(each, layouts=("dense",)) for each in within):
        _, arguments = drawn(kernel, seed, number, limits)
        expected, _ = results_of(runnable, kernel, target, arguments)
        if expected is None:
            continue
        taken = {r.state for r in kernel.results}
        for r, want in zip(kernel.results, expected, strict=True):
            places = [p.name for p in kernel.params if p.is_tensor and p.name not in taken and p.dims == r.dims]
            places = [n for n in places if arguments[n].dtype == want.dtype and arguments[n].shape == want.shape and want.numel()]
            for name in places if not r.state else ():
                got, _ = results_of(runnable, kernel, target, arguments, {r.name: name})
                for other, a, b in zip(kernel.results, got or (), expected, strict=False):
                    said = differing(a, b)
                    hold(not said, f"{r.name} written over {name}, shape {list(want.shape)}: {other.name} is {said}")
                    report.elements += a.numel()
        report.cases += 1
    return report


def rows_alone(kernel: Kernel, target: str = "torch", seed: int = 0, number: int = 0, runnable: Any = None) -> Report:
    """The kernel on a batch, and on each of a few of its rows alone: the same bits.  For kernels that reduce over `...`, or have none,
    there is nothing to hold, nor for `torch`, whose functions give the last elements of a tensor by other code than the first."""
    import torch

    from kgen.runtime.kernel import Kernel as Runnable

    report = Report(kernel.name, target)
    over = {d for v in kernel.values if (v.op == "pick" or v.op in REDUCTIONS and v.attr) for d in v.attr}
    over |= {v.attr[0] for v in kernel.values if v.op in SCANS}
    leading = any(ELLIPSIS in (p.dims or ()) for p in kernel.params)
    whole = all(ELLIPSIS in r.dims for r in kernel.results)
    evaluated = target == "torch" and runnable is None
    counts = any(v.op in ("size", "index") and v.attr == ELLIPSIS for v in kernel.values)
    if evaluated or not leading or not whole or ELLIPSIS in over or counts:
        return report
    runnable = runnable or Runnable(kernel)
    device = "cpu" if target == "torch" else TARGETS[target].device
    rnd = random.Random(f"rows {seed} {number}")
    generator = torch.Generator().manual_seed(rnd.getrandbits(60))
    bindings = kernel.bindings()
    binding = {v: d.name for v, d in bindings[number % len(bindings)].items()}
    # rows of whole 16 bytes: on a GPU the alignment of others is a part of what they are
    sizes = {d: 16 * rnd.choice((1, 2, 4, 8, 33)) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
    while len(sizes) > 1 and sum(n > 16 for n in sizes.values()) > 1:
        sizes[max(sizes, key=lambda d: sizes[d])] = 16
    sizes |= kernel.literals
    batch = rnd.choice((2, 3, 37))
    arguments: dict[str, Any] = {}
    for p in kernel.params:
        if p.dims is None:
            arguments[p.name] = 2 if p.dtype == "int" else 0.75
        else:
            shape = [n for d in p.dims for n in ([batch] if d == ELLIPSIS else [sizes[d]])]
            arguments[p.name] = _filled(shape, p.dtype, binding, generator)

    def run(at: int | None) -> list:
        given = {}
        for p in kernel.params:
            x = arguments[p.name]
            if at is not None and ELLIPSIS in (p.dims or ()):
                x = x[at : at + 1]
            given[p.name] = x.clone().to(device) if isinstance(x, torch.Tensor) else x
        with torch.no_grad():
            returned = runnable._run((), given, None, target)
        fresh = list(returned) if isinstance(returned, tuple) else [returned]
        return [(given[r.state] if r.state else fresh.pop(0)).cpu() for r in kernel.results]

    together = run(None)
    for at in {0, batch - 1, rnd.randrange(batch)}:
        for r, alone, among in zip(kernel.results, run(at), together, strict=True):
            said = differing(alone, among[at : at + 1])
            hold(not said, f"row {at} of {batch}, {r.name}, sizes {sizes}, {binding}: alone {said}, among others")
            report.elements += alone.numel()
    report.cases = 1
    return report


def _filled(shape: list[int], dtype: str, binding: dict[str, str], generator: Any) -> Any:
    import torch

    from kgen.types import resolve_named

    declared = resolve_named(dtype, binding)
    if dtype in PACKING:  # two of them a byte
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(getattr(torch, declared.torch))
    if declared.is_float:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(getattr(torch, declared.torch))
    if declared.kind == "bool":
        return torch.rand(shape, generator=generator) < 0.5
    return torch.randint(0, 20, shape, generator=generator).to(getattr(torch, declared.torch))


def compiles(
    kernel: Kernel, target: str, seed: int = 0, numbers: Iterable[int] = range(4), saving: Any = None, long: Limits | None = None
) -> Report:
    """What a call on a GPU would build is built, for the results and (with `saving`) for the gradients; no GPU is needed."""
    import torch

    from kgen.testing.absent import Absent

    report, absent = Report(kernel.name, target), Absent(kernel)
    if not any(p.is_tensor for p in kernel.params):
        return report
    whole: list[tuple[Any, Kernel]] = [(absent, kernel)]
    if saving is not None:
        training = copy(saving)
        training.forward, training.backward = (Absent(r.kernel) for r in (saving.forward, saving.backward))
        whole.append((training, saving.anew.kernel))
    with torch.no_grad():
        for runnable, taken in whole:
            for number, last in ended(numbers):
                _, arguments = drawn(taken, seed, number, fitting(long, taken) if last else None)
                with contextlib.suppress(KgenError):  # a maximum of no elements
                    runnable._run((), arguments, None, target)
                report.cases += 1
    return report


#: The properties that run nothing on a target, and those that do, in the order in which a campaign looks at them.
ALONE: dict[str, Callable[..., Report]] = {
    "prints_and_parses": prints_and_parses,
    "renders": renders,
    "renames": renames,
    "rules_keep": rules_keep,
    "backward_agrees": backward_agrees,
}
ON_TARGET: dict[str, Callable[..., Report]] = {
    "agrees": agrees, "gradients_agree": gradients_agree, "rows_alone": rows_alone, "in_place": in_place,
}  # fmt: skip
#: What is held in place of those on a target that is not here.
COMPILED: dict[str, Callable[..., Report]] = {"compiles": compiles}

__all__ = [
    "ALONE", "COMPILED", "ON_TARGET", "Interpreted", "Violation", "agrees", "backward_agrees", "compiles", "gradients_agree", "in_place",
    "prints_and_parses", "renames", "renders", "rows_alone", "rules_keep", "same_bits",
]  # fmt: skip
