"""Random cases for a kernel, against the exact result, its derived bound and eager PyTorch.

In: a checked kernel and a target.  Out: a `Report`.  Its cases are those of `cases.Draw`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ops import TARGETS
from kgen.testing.cases import Draw
from kgen.types import DTYPES, ELLIPSIS

HEADS = ("kernel", "target", "cases", "elements", "unbounded", "worst ulp", "of bound", "eager ulp")

@dataclass
class Report:
    """What a check found: how many cases and elements, the worst error in ulp of the result's dtype (and of eager's), the
    largest fraction of its bound that an error took, and a message for each failure (at most three are kept)."""

    kernel: str
    target: str
    cases: int = 0
    elements: int = 0
    unbounded: int = 0
    worst: float = 0.0
    fraction: float = 0.0
    eager: float = 0.0
    failures: list[str] = field(default_factory=list)

    def row(self) -> tuple[str, ...]:
        return (
            self.kernel,
            self.target,
            f"{self.cases:,}",
            f"{self.elements:,}",
            f"{self.unbounded:,}",
            f"{self.worst:.2f}" if self.worst < 1000 else f"{self.worst:.3g}",
            f"{self.fraction:.0%}",
            f"{self.eager:.3g}",
        )


def targets(chosen: str | None = None) -> tuple[list[str], dict[str, str]]:
    """The targets that run on this machine, and for each other one the reason why it does not."""
    import importlib.util

    import torch

    able, left_out = [], {}
    for target in [chosen] if chosen else TARGETS:
        why = ""
        if target == "torch":
            pass  # the evaluator: it checks the formula, and the bounds themselves
        elif target == "cpp":
            from kgen.runtime.build import NoCompiler, compiler

            try:
                compiler()
            except NoCompiler:
                why = "there is no C++ compiler"
        elif not torch.cuda.is_available():
            why = "there is no CUDA device"
        elif target == "triton":
            why = "" if importlib.util.find_spec("triton") else "triton is not installed"
        elif target == "cuda":
            why = "" if importlib.util.find_spec("cuda") else "cuda-bindings is not installed"
        if why:
            left_out[target] = why
        else:
            able.append(target)
    return able, left_out


@contextmanager
def _progress(label: str, total: int, shown: bool) -> Iterator[Any]:
    if not shown:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def shown_progress(label: str, shown: bool) -> Iterator[None]:
    """A line that says what is being done, while it is done, on a terminal."""
    if not shown:
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


def check(kernel: Kernel, target: str, examples: int = 100, seed: int = 0, progress: bool = False, runnable: Any = None) -> Report:
    """Run `examples` random cases of a kernel on a target; `runnable` is what is run instead of the kernel itself.

    Raises `KgenError` where no code can be generated for the kernel.
    """
    from kgen.runtime.kernel import Kernel as Runnable

    runnable = runnable or Runnable(kernel)
    report = Report(kernel.name, target)
    with _progress(f"{kernel.name} {target}", examples, progress) as advance:
        for number in range(examples):
            _case(runnable, kernel, target, seed, number, report)
            advance()
            if len(report.failures) >= 3:
                break
    return report


def check_backward(kernel: Kernel, target: str, examples: int = 100, seed: int = 0, progress: bool = False) -> Report:
    """`check` for a kernel's gradients, as training has them: the forward saves, the backward reads what it saved.

    They are held to the bound of the backward that computes everything anew from exact parameters.  Raises `KgenError` where
    the kernel has no backward.
    """
    from kgen.grad import backward

    return check(backward(kernel, save=False).kernel, target, examples, seed, progress, Saving(kernel))


class Saving:
    """A kernel's gradients as a function of the parameters of its backward without savings."""

    def __init__(self, kernel: Kernel):
        from kgen.grad import backward
        from kgen.runtime.kernel import Kernel as Runnable

        self.kernel, self.made = kernel, backward(kernel)
        self.anew = Runnable(backward(kernel, save=False).kernel)
        self.forward, self.backward = Runnable(self.made.forward), Runnable(self.made.kernel)

    def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str | None) -> Any:
        import torch

        if any(isinstance(x, torch.Tensor) and not x.numel() for x in given.values()):
            return self.anew._run(args, given, out, target)  # the forward may refuse what has no gradient either
        wanted = {p.name for p in self.made.kernel.params}
        if self.made.saved:
            returned = self.forward._run((), self.whole(given), None, target)
            results = returned if isinstance(returned, tuple) else (returned,)
            given = given | {r.name: value for r, value in zip(self.made.forward.results, results, strict=True)}
        return self.backward._run((), {name: value for name, value in given.items() if name in wanted}, None, target)

    def whole(self, given: dict[str, Any]) -> dict[str, Any]:
        """The forward's arguments; parameters that no gradient reads (a bias) are zeros."""
        import torch

        known = {p.name: p for p in self.kernel.params}
        tensors = {name: t for name, t in given.items() if name in known and known[name].is_tensor}
        sizes = {d: t.shape[k - len(known[n].dims or ())] for n, t in tensors.items() for k, d in enumerate(known[n].dims or ())
                 if d != ELLIPSIS}  # fmt: skip
        binding = {p.dtype: given[p.name].dtype for p in self.anew.kernel.params if p.is_tensor}
        made: dict[str, Any] = {}
        for p in self.kernel.params:
            if p.name in given:
                made[p.name] = given[p.name]
            elif p.dims is not None:
                dtype = binding.get(p.dtype) or getattr(torch, DTYPES[p.dtype].torch)
                device = next(iter(tensors.values())).device
                made[p.name] = torch.zeros([sizes.get(d, 1) for d in p.dims if d != ELLIPSIS], dtype=dtype, device=device)
            elif p.default is None:
                made[p.name] = 1
        return made


class Reports(tuple):
    """The reports of a kernel on its targets, printed as `kgen check` does."""

    def __str__(self) -> str:
        rows = [HEADS, *(r.row() for r in self)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(HEADS))]
        cells = ([c.ljust(w) if k < 2 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))] for row in rows)
        return "\n".join("  ".join(line).rstrip() for line in cells)

    __repr__ = __str__


def check_all(kernel: Kernel, target: str | None = None, examples: int = 100, seed: int = 0) -> Reports:
    """`check` on every target that runs here, or on one.  Raises `KgenError` with the failures, or where no target runs."""
    able, left_out = targets(target)
    if not able:
        raise KgenError("no target runs here", help="; ".join(f"{name}: {why}" for name, why in left_out.items()))
    reports = Reports(check(kernel, name, examples, seed) for name in able)
    if failures := [f for r in reports for f in r.failures]:
        raise KgenError("\n".join(failures))
    return reports


def _case(runnable: Any, kernel: Kernel, target: str, seed: int, number: int, report: Report) -> None:
    import torch

    from kgen.runtime.evaluate import Evaluator
    from kgen.testing.bounds import Analysis

    draw = Draw(kernel, seed, number)
    arguments = draw.arguments()
    batch = tuple(draw.batch)
    written = [r.state for r in kernel.results if r.state]
    for name in written:  # what is written in place must have the whole shape
        p = next(q for q in kernel.params if q.name == name)
        if ELLIPSIS in (p.dims or ()) and tuple(arguments[name].shape[: len(batch)]) != batch:
            arguments[name] = draw.tensor(p, True)
    wanted = ""
    with torch.no_grad():
        try:
            expected = Analysis(kernel, arguments, "cpp" if target == "torch" else target).results()
            eager = Evaluator(kernel, arguments, "eager").run()
        except KgenError as error:  # a maximum of no elements: the kernel has to say the same
            wanted = str(error)
        device = "cpu" if target in ("cpp", "torch") else "cuda"
        given = {k: _same_layout(a, device, k in written) if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
        try:
            returned = runnable._run((), given, None, target)
        except KgenError as error:
            if str(error) == wanted:
                report.cases += 1
            else:
                report.failures.append(f"{_where(kernel, target, seed, number, arguments)}: {error}")
            return
    if wanted:
        report.failures.append(f"{_where(kernel, target, seed, number, arguments)}: no error, but {wanted}")
        return
    fresh = list(returned) if isinstance(returned, tuple) else [returned]
    report.cases += 1
    for r, want, other in zip(kernel.results, expected, eager, strict=True):
        got = (given[r.state] if r.state else fresh.pop(0)).cpu()
        message = compare(got, want, other, report)
        if message:
            report.failures.append(f"{_where(kernel, target, seed, number, arguments)}: result {r.name}: {message}")


def _same_layout(x: Any, device: str, copy: bool) -> Any:
    """The tensor on a device, with the same strides and offset (a copy where it will be written)."""
    import torch

    if device == "cpu" and not copy:
        return x
    storage = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(device, copy=True)
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def _where(kernel: Kernel, target: str, seed: int, number: int, arguments: dict[str, Any]) -> str:
    shown = ", ".join(
        f"{k}={v if not hasattr(v, 'shape') else f'{str(v.dtype)[6:]}{list(v.shape)} strides {list(v.stride())}'}"
        for k, v in arguments.items()
    )
    return f"{kernel.name} on {target}, case {number} of seed {seed} ({shown})"


def compare(got: Any, want: Any, eager: Any, report: Report) -> str:
    """Hold a result against the exact one; the message of the worst failure, or "".  The report takes the figures."""
    import torch

    from kgen.testing.bounds import FORMATS, ulp

    if tuple(got.shape) != tuple(want.exact.shape):
        return f"shape {list(got.shape)}, not {list(want.exact.shape)}"
    bounded = torch.isfinite(want.bound)
    report.elements += got.numel()
    report.unbounded += int((~bounded).sum())
    if want.dtype not in FORMATS:
        bad = bounded & (got != want.exact)
        if bool(bad.any()):
            at = tuple(bad.nonzero()[0].tolist())
            return f"{got[at].item()} at {list(at)}, not {want.exact[at].item()}"
        return ""
    x, y = want.exact.double(), got.double()
    rounded = x.to(got.dtype).double()
    same = (y == rounded) | (torch.isnan(y) & torch.isnan(x))
    error = (y - x).abs()
    overflow = torch.isinf(y) & torch.isfinite(x) & (x * torch.sign(y) + want.bound >= FORMATS[want.dtype][2])
    ok = same | overflow | (error <= want.bound * (1 + 1e-9))
    bad = bounded & ~ok
    plain = bounded & torch.isfinite(x) & torch.isfinite(y)
    units = error / ulp(x, want.dtype)
    if bool(plain.any()):
        report.worst = max(report.worst, float(units[plain].max()))
        report.fraction = max(report.fraction, float((error / want.bound)[plain & ~same].max()) if bool((plain & ~same).any()) else 0.0)
        theirs = ((eager.double() - x).abs() / ulp(x, want.dtype))[plain & torch.isfinite(eager.double())]
        report.eager = max(report.eager, float(theirs.max()) if theirs.numel() else 0.0)
    if bool(bad.any()):
        k = torch.where(bad, units.nan_to_num(torch.inf), -1.0).argmax()
        at = tuple(int(i) for i in torch.unravel_index(k, bad.shape))
        figures = f"bound {want.bound[at].item():.3g}, {float(units[at]):.2f} ulp; {int(bad.sum())} of {bad.numel()} are wrong"
        return f"{y[at].item():.9g} at {list(at)}, exactly {x[at].item():.9g} ({figures})"
    return ""
