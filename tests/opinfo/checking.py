"""What one sample comes to: kgen's result and gradients beside the operator's own in float64.

Results must have eager's dtype and shape and lie within the bound that `kgen.testing.bounds` derives from the kernel's formula; NaN,
infinities and the signs of zeros are float64's and eager's.  Gradients are held to the bound of the backward's formula, and in f64 to
1e-9 of their size.  torch's float64 result has errors of its own: where it is off kgen's exact reading by no more than `OWN` of the
greatest of 1 and itself (some rounding errors of float64), kgen's result is held to the exact reading instead.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kgen import grad
from kgen.errors import KgenError
from kgen.testing.bounds import Analysis, Bounded
from kgen.testing.checks import Report, compare
from tests.opinfo.adapter import Asked, Asker, Outside, arguments, on, reason
from tests.opinfo.documented import OUTSIDE as INDEX
from tests.opinfo.documented import documented
from tests.opinfo.table import Row

PASSED, REFUSED, OUTSIDE, DOCUMENTED, FAILED = "passed", "refused", "outside", "documented", "failed"
#: How far torch's own float64 result may lie from the exact one, relative to the greatest of 1 and itself: 2^10 units.
OWN = 2.0**-42
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64, "i64": torch.int64, "bool": torch.bool}


@dataclass(frozen=True)
class Verdict:
    """What came of a sample: "passed", "refused", "outside" (kgen was not asked), "documented" or "failed", and why."""

    kind: str
    why: str = ""


def tensors_of(results: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(results) if isinstance(t, torch.Tensor)]


def run(op: Any, args: tuple, kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The operator's own results; those that share memory with its arguments are copied."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tensors_of(op(*args, **kwargs))


def in_f64(asked: Asked, tensors: dict[str, torch.Tensor], eager: list[torch.Tensor]) -> tuple[tuple, dict[str, Any]]:
    """The operator's arguments with float64 in the place of what it computes with."""
    floats = any(t.is_floating_point() for t in tensors.values())
    every = not floats and any(t.is_floating_point() for t in eager)
    dtypes = [v for v in (*asked.args, *asked.kwargs.values()) if isinstance(v, torch.dtype) and v.is_floating_point]

    def lifted(t: torch.Tensor) -> torch.Tensor:
        if not (t.is_floating_point() or every):
            return t.clone()
        x = t.double()
        if dtypes and t.is_floating_point():  # which the operator would cast it to
            x = x + (x.to(dtypes[0]).double() - x).detach().nan_to_num(0.0, 0.0, 0.0)
        return x * 1 if t.requires_grad else x.clone()

    def like(v: Any) -> Any:
        return torch.float64 if isinstance(v, torch.dtype) and v.is_floating_point else v

    return asked.back({name: lifted(t) for name, t in tensors.items()}, like)


def shaped(t: torch.Tensor, shape: Any) -> torch.Tensor:
    """A result in eager's shape: a kernel keeps no reduced dim, and has one where a tensor of rank 0 was given one."""
    plain = [n for n in t.shape if n != 1] == [n for n in shape if n != 1]
    return t.reshape(shape) if plain else t


def forward(op: Any, row: Row, sample: Any, target: str, asker: Asker) -> Verdict:
    """The verdict on a sample's result."""
    try:
        args, kwargs = arguments(sample, row)
        asked = asker.ask(op, row, args, kwargs)
        eager = [t.detach() for t in run(op, tuple(copied(a) for a in args), {k: copied(v) for k, v in kwargs.items()})]
        device = "cpu" if target in ("cpp", "torch") else "cuda"
        given = {name: on(device, t.detach()) for name, t in asked.tensors.items()} | asked.numbers
        returned = asked.kernel._run((), given, None, target)
    except Outside as error:
        return Verdict(OUTSIDE, str(error))
    except KgenError as error:
        return Verdict(REFUSED, reason(error))
    got = [shaped(t.cpu(), e.shape) for t, e in zip(tensors_of(returned), eager)]
    f64args, f64kwargs = in_f64(asked, {n: t.detach() for n, t in asked.tensors.items()}, eager)
    try:
        wide = [t.detach() for t in run(op, f64args, f64kwargs)]
    except RuntimeError:  # a condition that is to be bool: there is nothing to lift but it
        wide = [e.double() if e.is_floating_point() else e for e in eager]
    analysis = Analysis(asked.kernel.kernel, {n: t.detach() for n, t in asked.tensors.items()} | asked.numbers, bounds_of(target)).results()
    if len(got) > len(eager):
        return Verdict(FAILED, f"{len(got)} results, not {len(eager)}")
    for g, e, w, a in zip(got, eager, wide, analysis):
        if g.dtype != e.dtype:
            return Verdict(FAILED, f"dtype {g.dtype}, not {e.dtype}")
        if g.shape != e.shape:
            return Verdict(FAILED, f"shape {list(g.shape)}, not {list(e.shape)}")
        w = shaped(w, e.shape) if e.is_floating_point() or any(t.is_floating_point() for t in asked.tensors.values()) else e
        message = held(g, e, w, a)
        if message:
            why = documented(op, asked, g, e, w, message)
            return Verdict(DOCUMENTED, why) if why else Verdict(FAILED, message)
    return Verdict(PASSED)


def copied(v: Any) -> Any:
    return v.detach().clone() if isinstance(v, torch.Tensor) else v


def bounds_of(target: str) -> str:
    """Whose bounds hold: the evaluator's operators are as good as those of the C++ library."""
    return "cpp" if target == "torch" else target


def held(got: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, exact: Bounded) -> str:
    """Hold a result to float64's; the message of the worst failure, or ""."""
    bound, reading = shaped(exact.bound, got.shape).expand(got.shape), shaped(exact.exact, got.shape).expand(got.shape)
    if not got.is_floating_point():
        off = torch.isfinite(bound) & (got != wide.to(got.dtype))
        if bool(off.any()):
            at = tuple(off.nonzero()[0].tolist())
            return f"{got[at].item()} at {list(at)}, not {wide[at].item()}; {int(off.sum())} of {off.numel()} are wrong"
        return ""
    want = wide.double()
    if not reading.is_floating_point():
        reading = reading.double()
    near = ((want - reading).abs() <= OWN * want.abs().clamp(min=1.0)) & torch.isfinite(want)
    used = torch.where(near, reading, want)
    message = compare(got, Bounded(used, bound, exact.dtype), eager, Report("", ""))
    if message:
        return message
    zeros = (got == 0) & (wide == 0) & (eager == 0) & torch.isfinite(bound)
    signs = (
        zeros & (torch.signbit(got) != torch.signbit(eager)) & (torch.signbit(wide) == torch.signbit(eager)) & (bound <= tiny(got.dtype))
    )
    if bool(signs.any()):
        at = tuple(signs.nonzero()[0].tolist())
        return f"{got[at].item()} at {list(at)}, not {eager[at].item()}: the sign of a zero"
    return ""


def tiny(dtype: torch.dtype) -> float:
    """The bound of an exact zero: half of the least number there is."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def gradient(op: Any, row: Row, sample: Any, target: str, asker: Asker) -> Verdict | None:
    """The verdict on a sample's gradients; None where torch has none."""
    try:
        args, kwargs = arguments(sample, row)
        asked = asker.ask(op, row, args, kwargs)
    except Outside as error:
        return Verdict(OUTSIDE, str(error))
    except KgenError as error:
        return Verdict(REFUSED, reason(error))
    wanted = [n for n, t in asked.tensors.items() if t.requires_grad and t.is_floating_point()]
    if not wanted:
        return None
    leaves = {n: t.detach().double().requires_grad_() if n in wanted else t.detach() for n, t in asked.tensors.items()}
    with torch.enable_grad():
        theirs = run(op, *in_f64(asked, leaves, [torch.zeros(())]))
    live = [k for k, t in enumerate(theirs) if t.requires_grad and t.is_floating_point()]
    if not live:
        return None
    device = "cpu" if target in ("cpp", "torch") else "cuda"
    names = [r.name for r in asked.kernel.kernel.results]
    try:
        ours = {n: on(device, t.detach()).requires_grad_(n in wanted) for n, t in asked.tensors.items()}
        returned = tensors_of(asked.kernel(**ours, **asked.numbers, target=target))
        live = [k for k in live if k < len(returned)]
        dys = {k: torch.randn(returned[k].shape, dtype=torch.float64).to(returned[k].dtype) for k in live}
        moving = [k for k in live if returned[k].requires_grad]
        got: Any = [None] * len(wanted)
        bound: dict[str, Bounded] = {}
        if moving:  # else nothing moves it: its gradient is 0
            cotangents = [dys[k].to(device) for k in moving]
            got = torch.autograd.grad([returned[k] for k in moving], [ours[n] for n in wanted], cotangents, allow_unused=True)
            bound = bounds_of_gradients(asked, {names[k]: dys[k] for k in moving}, wanted, bounds_of(target))
    except KgenError as error:
        return Verdict(REFUSED, reason(error))
    cotangents = [dys[k].reshape(theirs[k].shape).double() for k in live]
    try:
        want = torch.autograd.grad([theirs[k] for k in live], [leaves[n] for n in wanted], cotangents, allow_unused=True)
    except RuntimeError as error:  # clamp of broadcast bounds
        return Verdict(OUTSIDE, f"torch's own gradient raises: {str(error)[:60]}")
    for name, g, w in zip(wanted, got, want):
        g = torch.zeros_like(asked.tensors[name]) if g is None else g.cpu()
        w = torch.zeros_like(leaves[name]) if w is None else w
        message = gradients_held(g, w.double(), bound.get(name))
        if message:
            why = documented(op, asked, g, g, w, message, gradient=True)
            return Verdict(DOCUMENTED, why) if why else Verdict(FAILED, f"{name}: {message}")
    return Verdict(PASSED)


def bounds_of_gradients(asked: Asked, dys: dict[str, Any], wanted: list[str], target: str) -> dict[str, Bounded]:
    """The exact gradients by kgen's formula, and their bounds, by the parameter's name."""
    kernel, tensors = aligned(asked)
    made = grad.backward(kernel, list(dys), wanted, save=False)
    values = {made.cotangents[n]: dys[n] for n in dys if n in made.cotangents}
    values |= {n: tensors[n] if n in tensors else asked.numbers[n] for n in made.takes + made.sized if n not in values}
    known = {p.name for p in made.kernel.params}
    found = Analysis(made.kernel, {n: v for n, v in values.items() if n in known}, target).results()
    results = {r.name: b for r, b in zip(made.kernel.results, found)}
    return {name: results[made.gradients[name]] for name in wanted if name in made.gradients}


def aligned(asked: Asked) -> tuple[Any, dict[str, torch.Tensor]]:
    """The kernel with its leading dims named where tensors broadcast over them, as autograd has it, and the tensors for it."""
    from kgen.torch_op.batches import same_leading
    from kgen.torch_op.traits import positional, traits

    t = traits(asked.kernel)
    tensors = {n: x.detach() for n, x in asked.tensors.items()}
    if same_leading(t, positional(t, (), tensors | asked.numbers)):
        return asked.kernel.kernel, tensors
    from kgen.specialise import fresh_dims, specialise

    leading = [n for n in tensors if n in {p.name for p in asked.kernel.kernel.params if "..." in (p.dims or ())}]
    shape = torch.broadcast_shapes(*(tensors[n].shape for n in leading))
    lead, _ = fresh_dims(asked.kernel.kernel, len(shape))
    dims = {}
    for n in leading:
        x = tensors[n]
        own = lead[len(shape) - x.dim() :]
        kept = [k for k in range(x.dim()) if x.shape[k] == shape[len(shape) - x.dim() + k]]
        dims[n] = tuple(own[k] for k in kept)
        tensors[n] = x.reshape([x.shape[k] for k in kept])
    for p in asked.kernel.kernel.params:
        if p.is_tensor and p.name not in dims:
            dims[p.name] = p.dims or ()
    return specialise(asked.kernel.kernel, dims, lead), tensors


def gradients_held(got: torch.Tensor, want: torch.Tensor, exact: Bounded | None) -> str:
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, not {list(want.shape)}"
    if got.dtype == torch.float64:
        finite = torch.isfinite(want)
        scale = want[finite].abs().max() if bool(finite.any()) else torch.zeros((), dtype=torch.float64)
        same = (got == want) | (torch.isnan(got) & torch.isnan(want)) | ((got - want).abs() <= 1e-9 * (want.abs() + scale))
        if exact is not None:  # what cancels is small beside what it is made of
            bound, reading = exact.bound.reshape(got.shape), exact.exact.reshape(got.shape).double()
            cancelled = ((want - reading).abs() <= OWN * want.abs().clamp(min=1.0)) & ((got - reading).abs() <= bound)
            same |= cancelled | ~torch.isfinite(bound)
        if bool(same.all()):
            return ""
        at = tuple((~same).nonzero()[0].tolist())
        return f"gradient {got[at].item():.9g} at {list(at)}, not {want[at].item():.9g}; {int((~same).sum())} of {same.numel()} are wrong"
    if exact is None:
        return "" if bool((got == want).all()) else "a gradient of zero, where torch has one"
    bound, reading = exact.bound.reshape(got.shape), exact.exact.reshape(got.shape).double()
    near = ((want - reading).abs() <= OWN * want.abs().clamp(min=1.0)) & torch.isfinite(want)
    message = compare(got, Bounded(torch.where(near, reading, want), bound, exact.dtype), got, Report("", ""))
    return f"gradient {message}" if message else ""


def wrong_input(op: Any, row: Row, error: Any, target: str, asker: Asker) -> Verdict:
    """The verdict on an error input: kgen must refuse it too."""
    sample = error.sample_input
    try:
        args, kwargs = arguments(sample, row)
        if "out" in kwargs:
            raise Outside("out= of the operator")
        asked = asker.ask(op, row, args, kwargs)
        device = "cpu" if target in ("cpp", "torch") else "cuda"
        asked.kernel._run((), {name: on(device, t.detach()) for name, t in asked.tensors.items()} | asked.numbers, None, target)
    except Outside as left:
        return Verdict(OUTSIDE, str(left))
    except KgenError:
        return Verdict(PASSED)
    why = beside(error)
    if why:
        return Verdict(OUTSIDE, why)
    if "out of bounds for dimension" in error.error_regex:
        return Verdict(DOCUMENTED, INDEX)
    return Verdict(FAILED, f"no error, where torch says: {error.error_regex}")


#: Errors of torch's that are about its own signatures, not about values and shapes, by what they say.
BESIDE = {
    "a formula holds for every value of a number": (
        "greater than or equal to zero", "must be in range", "cannot be greater than max", "Lower bound should be less", "non-positive values", "must be greater than 0",
    ),
    "an operand of any rank broadcasts": ("0-dimensional value tensor", "Not allow zero-dim", "expected a matrix"),
}  # fmt: skip


def beside(error: Any) -> str:
    """Why an error input is no error of the formula's, or ""."""
    values = (error.sample_input.input, *error.sample_input.args)
    if not error.error_regex and any(isinstance(v, (int, float)) for v in values):
        return "a number where torch takes tensors alone"
    return next((why for why, words in BESIDE.items() if any(w in error.error_regex for w in words)), "")
