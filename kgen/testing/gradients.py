"""Properties of gradients: those that are derived beside autograd's, and those that a target gives.

In: a checked kernel, a seed.  Out: a `Report`; raises `Violation` where a property does not hold.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kgen import check as checker
from kgen import syntax, typeset
from kgen.check import Kernel, Value
from kgen.runtime import selected
from kgen.runtime.evaluate import Evaluator
from kgen.syntax import Apply, Expr, Header
from kgen.testing import checks
from kgen.testing.cases import Limits
from kgen.testing.checks import Report, Trial
from kgen.testing.holding import ended, fitting, hold, judged, rough
from kgen.types import DTYPES, ELLIPSIS, PACKING, Float, is_variable


def in_float64(kernel: Kernel, casts: bool = True) -> Kernel:
    """The kernel with f64 in place of every other float dtype that it names; without `casts` of those that its header names alone."""

    def kind(t: syntax.Type) -> syntax.Type:
        return replace(t, dtype=replace(t.dtype, name="f64")) if t.dims is not None and t.dtype.name in narrow else t

    def cast(node: Expr) -> Expr:
        return replace(node, op="f64") if isinstance(node, Apply) and node.op in narrow else node

    narrow = ("f16", "bf16", "f32")
    statements: list[syntax.Statement] = []
    for s in kernel.file.statements:
        if isinstance(s, Header):
            params = tuple(replace(p, type=kind(p.type)) for p in s.params)
            statements.append(replace(s, params=params, results=tuple(replace(r, type=kind(r.type)) for r in s.results)))
        else:
            statements.append(replace(s, body=syntax.rebuilt(s.body, cast)) if casts else s)
    text = typeset.format_file(replace(kernel.file, statements=tuple(statements), comments=()))
    return checker.check(syntax.parse(text, kernel.file.source.name))


def backward_agrees(kernel: Kernel, seed: int = 0) -> Report:
    """The backward that is derived, once with values that the forward saves and once computed anew, beside autograd's gradients of
    the formula, all floats in float64 at a random point.

    A wrong rule differs in the first digits.  Where gradients are ill-conditioned (those of the point moved by 1e-11 differ), near
    kinks, and where they are not finite, there is nothing to compare.
    """
    import torch

    from kgen import grad

    report = Report(kernel.name, "torch")
    wide = in_float64(kernel)
    if not grad.differentiable(wide) or any(v.op == "floordiv" and isinstance(v.type, Float) for v in wide.values):
        return report  # torch's floor_divide has no derivative
    rnd = random.Random(f"point {seed}")
    given = _point(wide, rnd)
    generator = torch.Generator().manual_seed(seed)
    results = dict(zip((r.name for r in wide.results), Evaluator(wide, given, "exact").run(), strict=True))
    if not all(bool(torch.isfinite(y).all()) for y in results.values() if _is_float(y)):
        return report
    cotangents = {n: torch.randn(y.shape, generator=generator, dtype=torch.float64) for n, y in results.items() if _is_float(y)}
    want = _autograd(wide, given, cotangents)
    moved: list[dict[str, Any]] = []
    for save in (True, False):
        made = grad.backward(wide, save=save)
        if made.saved:  # integers and numbers become f32 where they meet: what is saved of them is to be f64 here too
            # a cast that is left is the prelude's, which stands in the forward as a call: `normal` rounds words to f32
            made = replace(made, kernel=in_float64(made.kernel, casts=False), forward=in_float64(made.forward, casts=False))
        got = _derived(made, given, cotangents)
        if _gradients_differ(got, want, moved):
            moved = moved or [_autograd(wide, _near(given, k), cotangents) for k in (1, 2, 3)]
            said = _gradients_differ(got, want, moved)
            hold(not said, f"with{'' if save else 'out'} savings {said}\n{made.kernel.file.source.text}")
        report.cases += 1
        report.elements += sum(x.numel() for x in want.values())
    return report


def _point(kernel: Kernel, rnd: random.Random) -> dict[str, Any]:
    """Arguments in general position, of few elements."""
    import torch

    from kgen.runtime.arguments import default

    generator = torch.Generator().manual_seed(rnd.getrandbits(60))
    sizes = {d: rnd.choice((2, 3, 3, 4, 1)) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
    sizes |= kernel.literals
    lead = rnd.choice(([2, 3], [3], [2], []))
    given: dict[str, Any] = {}
    for p in kernel.params:
        if p.dims is None:
            given[p.name] = default(p) if p.default is not None else 1 if p.dtype == "int" else 0.3
            continue
        shape = [n for d in p.dims for n in (lead if d == ELLIPSIS else [sizes[d]])]
        if p.dtype in PACKING:  # two of them a byte
            given[p.name] = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8).view(getattr(torch, DTYPES[p.dtype].torch))
        elif is_variable(p.dtype) or p.dtype not in DTYPES or DTYPES[p.dtype].is_float:
            x = torch.randn(shape, generator=generator, dtype=torch.float64)
            given[p.name] = x.to(getattr(torch, DTYPES[p.dtype].torch)) if p.dtype in DTYPES and DTYPES[p.dtype].coded else x
        else:
            given[p.name] = torch.randint(0, 2, shape, generator=generator).to(getattr(torch, DTYPES[p.dtype].torch))
    return given


def _near(given: dict[str, Any], seed: int) -> dict[str, Any]:
    """The point moved by a little."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        n: x * (1 + 1e-11 * torch.randn(x.shape, generator=generator, dtype=torch.float64)) if _is_float(x) else x for n, x in given.items()
    }


def _is_float(x: Any) -> bool:
    import torch

    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype.itemsize > 1  # those of few bits have no gradients


class _Differentiated(Evaluator):
    """The formula as autograd can differentiate it: the derivative of torch's clamp fails where its operands broadcast (integers have no
    derivative, and torch no clamp of some), and that of an element that a search finds is that of one among equals, which share it."""

    def reduce(self, v: Value, args: list) -> Any:
        found = super().reduce(v, args)
        if v.op != "cutoff" or not found.is_floating_point():
            return found
        x, _, _, dims = selected.operands(self, v, args)
        equal = selected.alike(x, selected.flat(found, dims))
        share = self.torch.where(equal, x - x.detach(), 0.0).sum(-1, keepdim=True) / equal.sum(-1, keepdim=True).clamp(min=1)
        return found.detach() + selected.restored(share, dims)

    def operate(self, v: Any, args: list) -> Any:
        if v.op != "clamp" or not (common := self.common(v)).is_floating_point:
            return super().operate(v, args)
        tensors = [a if isinstance(a, self.torch.Tensor) else self.number(a, k, v, args) for k, a in enumerate(args)]
        return self.torch.clamp(*(t.to(common).contiguous() for t in self.torch.broadcast_tensors(*tensors)))


def _autograd(kernel: Kernel, given: dict[str, Any], cotangents: dict[str, Any]) -> dict[str, Any]:
    """Autograd's gradients of the formula, operator by operator."""
    import torch

    leaves = {n: x.detach().clone().requires_grad_() if _is_float(x) else x for n, x in given.items()}
    results = dict(zip((r.name for r in kernel.results), _Differentiated(kernel, leaves, "exact").run(), strict=True))
    live = {n: y for n, y in results.items() if n in cotangents and y.requires_grad}
    wanted = {n: x for n, x in leaves.items() if _is_float(x)}
    if not live:
        return {n: torch.zeros_like(x) for n, x in wanted.items()}
    found = torch.autograd.grad(list(live.values()), list(wanted.values()), [cotangents[n] for n in live], allow_unused=True)
    return {n: torch.zeros_like(x) if g is None else g.detach() for (n, x), g in zip(wanted.items(), found, strict=True)}


def _derived(made: Any, given: dict[str, Any], cotangents: dict[str, Any]) -> dict[str, Any]:
    """The gradients of a derived backward, its kernels evaluated in float64."""
    import torch

    forward = dict(zip((r.name for r in made.forward.results), Evaluator(made.forward, given, "exact").run(), strict=True))
    took = {made.cotangents[n]: d for n, d in cotangents.items() if n in made.cotangents}
    took |= {n: given[n] for n in made.takes} | {n: forward[n] for n in made.saved}
    found = dict(zip((r.name for r in made.kernel.results), Evaluator(made.kernel, took, "exact").run(), strict=True))
    return {n: found[made.gradients[n]] if n in made.gradients else torch.zeros_like(x) for n, x in given.items() if _is_float(x)}


def _gradients_differ(got: dict[str, Any], want: dict[str, Any], moved: list[dict[str, Any]]) -> str:
    """Where gradients differ by more than float64's rounding, and by more than they move between points that are near."""
    import torch

    for n, b in want.items():
        a = got[n]
        ok = torch.isfinite(b) & (b.abs() < 1e8)
        noise = torch.zeros_like(b)
        for other in moved:
            ok = ok & torch.isfinite(other[n])
            noise = torch.maximum(noise, (other[n] - b).abs().nan_to_num(torch.inf))
        if not b.numel() or not bool(ok.any()):
            continue
        scale = torch.where(ok, b.abs(), 0.0).max()
        if moved:
            noise = torch.maximum(noise, noise.nan_to_num(posinf=0.0).max() * 1e-3)
        error = torch.where(ok, (a - b).abs().nan_to_num(torch.inf), 0.0)
        bad = error > 1e-8 * (1 + b.abs()) + 1e-10 * scale + noise
        if bool(bad.any()):
            at = tuple(bad.nonzero()[0].tolist())
            return f"d{n}{list(at)} is {a[at].item():.10g}, autograd's {b[at].item():.10g}"
    return ""


def gradients_agree(
    kernel: Kernel, target: str = "torch", seed: int = 0, numbers: Iterable[int] = range(2), saving: Any = None,
    long: Limits | None = None,
) -> Report:  # fmt: skip
    """The gradients as training has them on a target, within the bound of the backward that computes all anew; `long` are the limits of
    the last case."""
    from kgen import grad

    report = Report(f"{kernel.name}_backward", target)
    if not grad.differentiable(kernel) or target == "torch" and rough(kernel):
        return report
    saving = saving or checks.Saving(kernel)
    if target in ("cuda", "triton") and not any(p.is_tensor for p in saving.made.kernel.params):
        return report  # of what no parameter decides: such results lie on the CPU
    trial = Trial(saving.anew.kernel, target, saving)
    long = fitting(long, trial.kernel)
    for number, last in ended(numbers):
        judged(trial, seed, number, report, long if last else None)
    return report
