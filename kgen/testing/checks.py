"""Random cases for a kernel, against the exact result, its derived bound and eager PyTorch.

In: a checked kernel and a target.  Out: a `Report`.  Its cases are those of `cases.Draw`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kgen import check as checker
from kgen.backends import TARGETS
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.testing.cases import Draw, Limits, counted, plain
from kgen.types import ELLIPSIS, TORCH, f32, is_variable, resolve

#: What dtype variables stand for where a check looks at plain data.
PLAIN = ("f32", "bf16")
FIGURES = ("error", "eager", "bound")
#: Of a report's row.  `of bound` is the largest part of its bound that an error took in a random case; the figures of a dtype are those
#: of plain data, as parts of the largest magnitude of the result's row: kgen's error, eager's, and the bound.
HEADS = ("", "kernel", "target", "cases", "elements", "unbounded", "of bound", *(f"{d} {w}" for d in PLAIN for w in FIGURES))
#: A bound above this part of the largest magnitude of the result's row, on plain data, says little.
LITTLE = 2.0**-7
#: What a person who asks for more gets behind it: the random cases' worst error in units in the last place, its bound, and eager's.
MORE_HEADS = ("worst ulp", "its bound", "eager ulp")


class CheckFailed(KgenError, AssertionError):
    """A kernel that does not keep to what it is held against: a failed assertion to a test, to others kgen's own error."""

    def __init__(self, text: str):
        super().__init__(text.removeprefix("error: "))

    def __reduce__(self) -> Any:
        return CheckFailed, (str(self),)


@dataclass(frozen=True)
class Finding:
    """What is wrong with a case, in words, and in what.

    `kind` is "value" (of the element `at` of a result, which is to be `expected` within `bound`), "nan" (the same, where one of the two
    is NaN), "shape" or "dtype" (of a result, which is to be `expected`), "error" (a call that has a meaning raises `message`),
    "no error" (a call that has none does not raise `expected`) or "outside" (a result depends on a lookup outside, as `message` says)."""

    kind: str
    message: str
    result: str = ""
    at: tuple[int, ...] = ()
    expected: Any = None
    bound: float = 0.0


@dataclass(frozen=True)
class Failure:
    """A case that failed: its trial, number (None: plain data) and seed, its arguments, and what is wrong with it."""

    trial: Trial
    number: int | None
    seed: int
    arguments: dict[str, Any]
    finding: Finding

    def __str__(self) -> str:
        where = _where(self.trial.kernel, self.trial.target, self.seed, self.number, self.arguments)
        return f"{where}: {f'result {self.finding.result}: ' if self.finding.result else ''}{self.finding.message}"


@dataclass
class Plain:
    """Of a result's elements on plain data (`cases.plain`): the largest error, eager's, and the largest bound, each over the largest
    magnitude of the element's row (of the result's last dim); the bound's also over the largest error."""

    error: float = 0.0
    eager: float = 0.0
    bound: float = 0.0
    elements: int = 0

    def add(self, got: Any, want: Any, eager: Any) -> None:
        """Take the figures of a float result, `want` being its `bounds.Bounded`; elements that are NaN or infinite say nothing."""
        import torch

        from kgen.testing.bounds import FORMATS, row_scale

        x = want.exact.double()
        if want.dtype not in FORMATS or not x.numel():
            return
        scale = row_scale(x, want.dtype)
        known = torch.isfinite(x)
        self.elements += int(known.sum())
        for name, figures in (("error", (got.double() - x).abs()), ("eager", (eager.double() - x).abs()), ("bound", want.bound)):
            found = (figures / scale)[known].nan_to_num(torch.inf)
            setattr(self, name, max(getattr(self, name), float(found.max()) if found.numel() else 0.0))


@dataclass
class Report:
    """What a check found: how many cases and elements, the worst error in ulp of the result's dtype with the bound there (and the
    worst of eager's), the largest fraction of its bound that an error took, what plain data give for each dtype, and a message for
    each failure (at most three cases are kept, the first of them as `first`).  `aside` counts the cases that a torch function refused."""

    kernel: str
    target: str
    cases: int = 0
    elements: int = 0
    unbounded: int = 0
    worst: float = 0.0
    bound: float = 0.0
    fraction: float = 0.0
    eager: float = 0.0
    aside: int = 0
    failures: list[str] = field(default_factory=list)
    first: Failure | None = None
    plain: dict[str, Plain] = field(default_factory=dict)

    def row(self) -> tuple[str, ...]:
        """The cells under HEADS."""
        figures = []
        for dtype in PLAIN:
            found = self.plain.get(dtype)
            figures += [f"{x:.1e}" for x in (found.error, found.eager, found.bound)] if found and found.elements else ["-"] * 3
        verdict = "FAIL" if self.failures else "PASS"
        counts = f"{self.cases:,}", f"{self.elements:,}", f"{self.unbounded:,}", f"{self.fraction:.0%}"
        return (verdict, self.kernel, self.target, *counts, *figures)

    def more(self) -> tuple[str, ...]:
        """The cells under MORE_HEADS."""
        return _ulps(self.worst), _ulps(self.bound), _ulps(self.eager)

    def doubts(self) -> list[str]:
        """A line for each dtype in which the derived bound says little."""
        return [
            f"{self.kernel} on {self.target}, {dtype}: the derived bound says little: on plain data it is up to {found.bound:.1e} of the "
            f"largest magnitude of the result's row"
            for dtype, found in self.plain.items()
            if found.bound > LITTLE
        ]


def markdown(reports: Sequence[Report]) -> str:
    """The figures of plain data as a table in Markdown: a line for each kernel, for each dtype and target kgen's error / the bound, and
    the largest of eager's errors."""
    targets = list(dict.fromkeys(r.target for r in reports))
    kernels: dict[str, dict[str, Report]] = {}
    for r in reports:
        kernels.setdefault(r.kernel, {})[r.target] = r
    heads = ["kernel", *(cell for d in PLAIN for cell in (*(f"{t} {d}" for t in targets), f"eager {d}"))]
    lines = [heads, ["---"] * len(heads)]
    for name, found in kernels.items():
        line = [name]
        for dtype in PLAIN:
            figures = {t: p for t, r in found.items() if (p := r.plain.get(dtype)) and p.elements}
            line += [f"{figures[t].error:.1e} / {figures[t].bound:.1e}" if t in figures else "-" for t in targets]
            line.append(f"{max(p.eager for p in figures.values()):.1e}" if figures else "-")
        lines.append(line)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _ulps(x: float) -> str:
    return f"{x:.2f}" if x < 1000 else f"{x:.3g}"


def targets(chosen: str | None = None) -> tuple[list[str], dict[str, str]]:
    """The targets that run on this machine, and for each other one the reason why it does not.  Raises `KgenError` where there is no
    such target, and where the C++ compiler is there and does not work."""
    import importlib.util

    import torch

    if chosen and chosen not in (*TARGETS, "torch"):
        raise KgenError(f"there is no target {chosen}", help=f"targets are {', '.join(TARGETS)}, torch")
    able, left_out = [], {}
    for target in [chosen] if chosen else TARGETS:
        why = ""
        if target == "torch":
            pass  # the evaluator: it checks the formula, and the bounds themselves
        elif target == "cpp":
            from kgen.runtime.build import NoCompiler, prove

            try:
                prove()
            except NoCompiler:
                why = "there is no C++ compiler"
        elif TARGETS[target].device == "cuda" and not torch.cuda.is_available():
            why = "there is no CUDA device"
        elif target == "triton":
            why = "" if importlib.util.find_spec("triton") else "triton is not installed"
        elif target == "cuda":
            from kgen.runtime import driver

            why = "" if driver.available() else "NVRTC is not installed"
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


def check(
    kernel: Kernel, target: str, examples: int = 100, seed: int = 0, progress: bool = False, runnable: Any = None,
    against: Any = None, limits: Limits | None = None, plain: bool = False, checked: bool = False,
) -> Report:  # fmt: skip
    """Run `examples` random cases of a kernel on a target; `runnable` is what is run instead of the kernel itself, `against` a
    torch function that it is held against as well (`against.Against`).  With `plain` a case of plain data too, for each of PLAIN.
    With `checked` all indices that are drawn lie inside, and no result may depend on a lookup outside.

    Raises `KgenError` where no code can be generated for the kernel.
    """
    limits = replace(limits or Limits(), outside=False) if checked else limits
    trial = Trial(checker.plain(kernel), target, runnable, against, checked)
    report = Report(kernel.name, target)

    def take(number: int | None, findings: list[Finding], arguments: dict[str, Any]) -> None:
        for finding in findings:
            failure = Failure(trial, number, seed, arguments, finding)
            report.first = report.first or failure
            report.failures.append(str(failure))

    failed = 0
    with _progress(f"{kernel.name} {target}", examples, progress) as advance:
        for number in range(examples):
            findings, arguments = trial.drawn(seed, number, limits, report)
            take(number, findings, arguments)
            advance()
            failed += bool(findings)
            if failed >= 3:
                break
    for dtype in (PLAIN if kernel.variables else PLAIN[:1]) if plain else ():
        take(None, *trial.plain(dtype, report))
    if against is not None and not report.cases and report.aside:
        raise CheckFailed(f"{against.name} raises in each of {report.aside} cases, the last time {against.raised}")
    return report


def check_backward(
    kernel: Kernel, target: str, examples: int = 100, seed: int = 0, progress: bool = False, limits: Limits | None = None,
    plain: bool = False, checked: bool = False,
) -> Report:  # fmt: skip
    """`check` for a kernel's gradients, as training has them: the forward saves, the backward reads what it saved.

    They are held to the bound of the backward that computes everything anew from exact parameters.  Raises `KgenError` where
    the kernel has no backward.
    """
    from kgen.grad import backward

    kernel = checker.plain(kernel)
    anew = backward(kernel, save=False).kernel
    return check(anew, target, examples, seed, progress, Saving(kernel), limits=limits, plain=plain, checked=checked)


@dataclass
class Trial:
    """What is held against what: `runnable` (None: the kernel itself) on a target, against the kernel's meaning and, where it is
    given, a torch function; where it is `checked`, no result may depend on a lookup outside either."""

    kernel: Kernel
    target: str
    runnable: Any = None
    against: Any = None
    checked: bool = False

    def __post_init__(self) -> None:
        from kgen.runtime.kernel import Kernel as Runnable

        self.runnable = self.runnable or Runnable(self.kernel)

    @property
    def device(self) -> str:
        return "cpu" if self.target == "torch" else TARGETS[self.target].device

    def takes(self, arguments: dict[str, Any]) -> bool:
        """Whether a case is one for this trial: the torch function takes it, and of a `checked` one all indices lie inside."""
        if self.against is not None and not self.against.takes(arguments):
            return False
        from kgen.runtime.checked import all_inside

        return not self.checked or all_inside(self.kernel, arguments)

    def drawn(self, seed: int, number: int, limits: Limits | None, report: Report) -> tuple[list[Finding], dict[str, Any]]:
        """Judge a case; one that the torch function refuses is drawn once more without special values, then set aside."""
        limits = limits or Limits()
        for within in (limits, replace(limits, special=False)):
            draw = Draw(self.kernel, seed, number, within)
            arguments = draw.written(draw.arguments())
            if self.against is None:
                break
            arguments = self.against.filled(arguments)
            if self.against.takes(arguments):
                break
        else:
            report.aside += 1
            return [], arguments
        return self.judge(arguments, report), arguments

    def plain(self, dtype: str, report: Report) -> tuple[list[Finding], dict[str, Any]]:
        """Judge the case of plain data for a dtype; the report takes its figures.  Of a kernel that is NaN there (a logarithm) the
        magnitudes are taken instead."""
        for positive in (False, True):
            arguments, figures = plain(self.kernel, dtype, positive), Plain()
            findings = self.judge(arguments, report, figures)
            if findings or figures.elements:
                break
        report.plain[dtype] = figures
        return findings, arguments

    def judge(self, arguments: dict[str, Any], report: Report, plain: Plain | None = None) -> list[Finding]:
        """What is wrong with a case; the report takes the figures, and `plain` too.  The arguments are not written to."""
        import torch

        from kgen.runtime.checked import all_inside, outside
        from kgen.runtime.evaluate import Evaluator
        from kgen.testing.correlated import Correlated

        kernel = self.kernel
        written = [r.state for r in kernel.results if r.state]
        wanted = ""
        with torch.no_grad():
            try:
                runs = (self.runnable.backward.kernel,) if isinstance(self.runnable, Saving) else ()
                expected = Correlated(kernel, arguments, "cpp" if self.target == "torch" else self.target, runs).results()
                eager = Evaluator(kernel, arguments, "eager").run() if self.against is None else self.against.eager(arguments)
            except KgenError as error:  # a maximum of no elements: the kernel has to say the same
                wanted = str(error)
            given = {k: _same_layout(a, self.device, k in written) if isinstance(a, torch.Tensor) else a for k, a in arguments.items()}
            try:
                returned = self.runnable._run((), given, None, self.target)
            except KgenError as error:
                if str(error) != wanted:
                    return [Finding("error", str(error))]
                report.cases += 1
                return []
        if wanted:
            return [Finding("no error", f"no error, but {wanted}", expected=wanted)]
        if self.checked and all_inside(kernel, arguments) and (told := outside(kernel, (), arguments)):
            return [Finding("outside", told)]
        fresh = list(returned) if isinstance(returned, tuple) else [returned]
        report.cases += 1
        got = [(given[r.state] if r.state else fresh.pop(0)).cpu() for r in kernel.results]
        rows = zip(kernel.results, got, expected, eager, strict=True)
        found = []
        for r, y, want, other in rows:
            if finding := held(y, want, other, report):
                found.append(replace(finding, result=r.name))
            elif plain is not None:
                plain.add(y, want, other)
        if self.against is not None and not found:
            found = self.against.judge(arguments, got, expected, eager)
        return found


class Saving:
    """A kernel's gradients as a function of the parameters of its backward without savings."""

    def __init__(self, kernel: Kernel):
        from kgen.grad import backward
        from kgen.runtime.kernel import Kernel as Runnable

        self.kernel, self.made = kernel, backward(kernel)
        self.anew = Runnable(backward(kernel, save=False).kernel)
        self.forward, self.backward = Runnable(self.made.forward), Runnable(self.made.kernel)

    def __call__(self, target: str, **given: Any) -> Any:
        import torch

        with torch.no_grad():
            return self._run((), given, None, target)

    def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str | None) -> Any:
        """The gradients of a call of the backward alone: the forward is run for what it saves, and cotangents get all leading dims."""
        import torch

        if any(isinstance(x, torch.Tensor) and not x.numel() for x in given.values()):
            return self.anew._run(args, given, out, target)  # the forward may refuse what has no gradient either
        wanted = {p.name for p in self.made.kernel.params}
        if self.made.saved:
            returned = self.forward._run((), self.whole(given), None, target)
            results = returned if isinstance(returned, tuple) else (returned,)
            given = given | {r.name: value for r, value in zip(self.made.forward.results, results, strict=True)}
        if wanted - set(given):  # one that the backward wants for its sizes
            given = self.whole(given) | given
        leading = [p for p in self.made.kernel.params if p.dims and p.dims[0] == ELLIPSIS]
        whole = [p for p in leading if p.name in self.made.cotangents.values()] or leading[:1]
        for p in whole:  # as autograd has them: with all leading dims of the forward's results
            x = given[p.name]
            given = given | {p.name: x.expand([*self.batch(given), *x.shape[x.dim() + 1 - len(p.dims or ()) :]])}
        return self.backward._run((), {name: value for name, value in given.items() if name in wanted}, None, target)

    def heads(self, given: dict[str, Any]) -> dict[str, Any]:
        """The leading dims of each tensor that has them."""
        leading = [p for p in self.anew.kernel.params if p.dims and p.dims[0] == ELLIPSIS]
        return {p.name: given[p.name].shape[: given[p.name].dim() + 1 - len(p.dims or ())] for p in leading}

    def batch(self, given: dict[str, Any]) -> Any:
        """All leading dims."""
        import torch

        return torch.broadcast_shapes(*self.heads(given).values())

    def whole(self, given: dict[str, Any]) -> dict[str, Any]:
        """The forward's arguments; parameters that no gradient reads (a bias) are zeros."""
        import torch

        known = {p.name: p for p in self.kernel.params}
        shapes = [(p.dims, given[p.name].shape) for p in self.anew.kernel.params if p.dims is not None]
        sizes = {d: shape[k - len(dims)] for dims, shape in shapes for k, d in enumerate(dims) if d != ELLIPSIS}
        counts = counted(self.kernel, sizes)
        bound = dict.fromkeys(self.kernel.variables, f32)  # of one that no gradient reads any will do
        bound |= {p.dtype: TORCH[str(given[p.name].dtype)[6:]] for p in self.anew.kernel.params if p.is_tensor and is_variable(p.dtype)}
        heads, batch = self.heads(given), self.batch(given)
        filled = any(heads[name] == batch for name in heads if name in known)
        made: dict[str, Any] = {}
        for p in self.kernel.params:
            if p.name in given:
                made[p.name] = given[p.name]
                if p.dims and p.dims[0] == ELLIPSIS and not filled:  # the cotangents' leading dims are those of the forward's results
                    made[p.name], filled = made[p.name].expand(*batch, *made[p.name].shape[made[p.name].dim() + 1 - len(p.dims) :]), True
            elif p.dims is not None:
                dtype = getattr(torch, resolve(p.dtype, bound).torch)
                device = next(x.device for x in given.values() if isinstance(x, torch.Tensor))
                shape = [n for d in p.dims for n in (batch if d == ELLIPSIS else (sizes.get(d, self.kernel.literals.get(d, 1)),))]
                made[p.name] = torch.zeros(shape, dtype=dtype, device=device)
            elif p.default is None or p.name in counts:
                made[p.name] = counts.get(p.name, 1)
        return made


def with_and_without(kernel: Kernel) -> list[Kernel]:
    """A kernel; and that of calls which leave out all tensors that they may."""
    return [kernel, checker.left_out(kernel, kernel.optional)] if kernel.optional else [kernel]


def shown_absent(kernel: Kernel, of: Kernel) -> str:
    """What tells the kernel of some calls from the whole one, behind its name."""
    names = [p.name for p in kernel.params if p.name not in {q.name for q in of.params}]
    return f" without {', '.join(names)}" if names else ""


class Reports(tuple):
    """The reports of a kernel on its targets, printed as `kgen check` does."""

    def __str__(self) -> str:
        rows = [HEADS, *(r.row() for r in self)]
        widths = [max(len(row[k]) for row in rows) for k in range(len(HEADS))]
        cells = ([c.ljust(w) if k < 3 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))] for row in rows)
        return "\n".join("  ".join(line).rstrip() for line in cells)

    __repr__ = __str__


def _same_layout(x: Any, device: str, copy: bool) -> Any:
    """The tensor on a device, with the same strides and offset (a copy where it will be written)."""
    import torch

    if device == "cpu" and not copy:
        return x
    storage = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(device, copy=True)
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def _where(kernel: Kernel, target: str, seed: int, number: int | None, arguments: dict[str, Any]) -> str:
    shown = ", ".join(
        f"{k}={v if not hasattr(v, 'shape') else f'{str(v.dtype)[6:]}{list(v.shape)} strides {list(v.stride())}'}"
        for k, v in arguments.items()
    )
    case = "plain data" if number is None else f"case {number} of seed {seed}"
    return f"{kernel.name} on {target}, {case} ({shown})"


def compare(got: Any, want: Any, eager: Any, report: Report) -> str:
    """Hold a result against the exact one; the message of the worst failure, or "".  The report takes the figures."""
    found = held(got, want, eager, report)
    return found.message if found else ""


def held(got: Any, want: Any, eager: Any, report: Report, source: str = "exactly") -> Finding | None:
    """What is wrong with a result that is to be `want` (`bounds.Bounded`), by its worst element; `source` says in the message where
    that comes from, `eager` (None: it gave nothing) is what stands beside it in the report, which takes the figures."""
    import torch

    from kgen.runtime import unsigned
    from kgen.runtime.coded import coded, packed, round_odd
    from kgen.runtime.coded import rounded as codes_of
    from kgen.testing.bounds import FORMATS, ulp

    if tuple(got.shape) != tuple(want.exact.shape):
        message = f"shape {list(got.shape)}, not {list(want.exact.shape)}"
        return Finding("shape", message, expected=tuple(want.exact.shape))
    bounded = torch.isfinite(want.bound)
    report.elements += got.numel()
    report.unbounded += int((~bounded).sum())
    if want.dtype not in FORMATS:
        got = got.view(torch.uint8) if packed(got.dtype) else got
        got = unsigned.lifted(got) if unsigned.is_stored(got.dtype) else got  # `want.exact` is so carried too
        bad = bounded & (got != want.exact)
        if bool(bad.any()):
            at = tuple(bad.nonzero()[0].tolist())
            message = f"{got[at].item()} at {list(at)}, {'not' if source == 'exactly' else source} {want.exact[at].item()}"
            return Finding("value", message, "", at, want.exact[at].item())
        return None
    x, y = want.exact.double(), got.double()
    few = coded(got.dtype)
    if few is not None:
        rounded = codes_of(few, (), x).double()
        x = x.abs() if few.coding and not few.coding.sign else x  # such a format has magnitudes alone
    else:
        rounded = (round_odd(x) if got.dtype.itemsize == 2 else x).to(got.dtype).double()  # once, where torch rounds twice
    same = (y == rounded) | (torch.isnan(y) & torch.isnan(rounded))
    error = (y - x).abs()
    overflow = torch.isinf(y) & torch.isfinite(x) & (x * torch.sign(y) + want.bound >= FORMATS[want.dtype][2])
    if few is not None:  # it may become NaN
        overflow |= torch.isnan(y) & ~torch.isnan(x) & (x.abs() + want.bound >= FORMATS[want.dtype][2])
    ok = same | overflow | (error <= want.bound * (1 + 1e-9))
    bad = bounded & ~ok
    plain = bounded & torch.isfinite(x) & torch.isfinite(y)
    unit = ulp(x, want.dtype)
    units = error / unit
    eager = eager if eager is not None and tuple(eager.shape) == tuple(x.shape) else None
    theirs = (eager.double() - x).abs() / unit if eager is not None else torch.full_like(x, torch.nan)
    if bool(plain.any()):
        k = torch.where(plain, units, -1.0).argmax()
        if (worst := float(units.flatten()[k])) >= report.worst:
            report.worst, report.bound = worst, float((want.bound / unit).flatten()[k])
        report.fraction = max(report.fraction, float((error / want.bound)[plain & ~same].max()) if bool((plain & ~same).any()) else 0.0)
        finite = theirs[plain & torch.isfinite(theirs)]
        report.eager = max(report.eager, float(finite.max()) if finite.numel() else 0.0)
    if bool(bad.any()):
        k = torch.where(bad, units.nan_to_num(torch.inf), -1.0).argmax()
        at = tuple(int(i) for i in torch.unravel_index(k, bad.shape))
        beside = "" if eager is None else f", eager {eager[at].item():.9g}"
        figures = f"bound {want.bound[at].item():.3g}, {_ulps(float(units[at]))} ulp{beside}; {int(bad.sum())} of {bad.numel()} are wrong"
        message = f"{y[at].item():.9g} at {list(at)}, {source} {x[at].item():.9g} ({figures})"
        kind = "value" if bool(torch.isnan(x[at]) == torch.isnan(y[at])) else "nan"
        return Finding(kind, message, "", at, x[at].item(), want.bound[at].item())
    return None
