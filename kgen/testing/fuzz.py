"""Random cases for a kernel, against the exact result, its derived bound and eager PyTorch.

In: a checked kernel and a target.  Out: a `Report`.  A case is drawn from (seed, number) alone, so that the two name it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kgen.check import Kernel, Parameter
from kgen.errors import KgenError
from kgen.ops import REDUCTIONS, TARGETS
from kgen.runtime.arguments import default
from kgen.types import DTYPES, ELLIPSIS, Number, is_float, resolve_named

HEADS = ("kernel", "target", "cases", "elements", "unbounded", "worst ulp", "of bound", "eager ulp")
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 127, 128, 255, 257, 512, 513, 1000, 1023, 1024, 1025, 4096)
MAX_ELEMENTS = 20_000
#: Lengths of rows: each side of a warp, of a block, and of what a schedule keeps resident.
ROWS = (1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025)
LONG_ROWS = (4096, 4097)
#: Values that kernels get wrong: ties, ends of ranges, infinities, NaN, numbers of which exp overflows or underflows.
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    3.0,
    -3.0,
    6.0,
    1e-3,
    -1e-3,
    10.0,
    -10.0,
    88.0,
    -88.0,
    100.0,
    -104.0,
    1e4,
    -1e4,
    6.1e-5,
    1e-7,
    -1e-7,
    1e-38,
    -1e-38,
    1e-45,
    65504.0,
    -65504.0,
    3.3e38,
    -3.3e38,
    math.inf,
    -math.inf,
    math.nan,
)


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


class Draw:
    """The arguments of one case, drawn from (seed, number) alone."""

    def __init__(self, kernel: Kernel, seed: int, number: int):
        import torch

        self.torch, self.kernel = torch, kernel
        self.random = random.Random(f"{kernel.name} {seed} {number}")
        self.generator = torch.Generator().manual_seed(self.random.getrandbits(62))
        bindings = kernel.bindings()
        self.binding = {v: d.name for v, d in bindings[number % len(bindings)].items()}
        self.reduced = {d for v in kernel.values if v.op == "pick" or v.op in REDUCTIONS and v.attr for d in v.attr}
        self.picked = self.indices()
        self.batch = [self.random.choice(SIZES) for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 5)))]
        self.named = {d: self.random.choice(SIZES) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
        if self.reduced:
            self.rows()
        self.shrink()
        if self.random.random() < 0.03 and (self.batch or self.named):
            place = self.random.randrange(len(self.batch) + len(self.named))
            if place < len(self.batch):
                self.batch[place] = 0
            else:
                self.named[list(self.named)[place - len(self.batch)]] = 0
        self.special = self.random.random() < 0.5

    def indices(self) -> dict[str, str]:
        """The integer parameters from which `pick` takes its index, each with the dim that it picks from."""
        values, found = self.kernel.values, {}
        for v in values:
            stack = [v.args[1]] if v.op == "pick" else []
            while stack:
                t = values[stack.pop()]
                stack.extend(t.args)
                if t.op == "param" and not isinstance(t.type, Number) and not is_float(t.type):
                    found[str(t.attr)] = v.attr[0]
        return found

    def rows(self) -> None:
        """Sizes of the reduced dims: one of them from the boundaries, what is reduced with it small."""
        rnd = self.random
        named = [d for d in self.named if d in self.reduced]
        long = rnd.random() < 0.05
        for k, d in enumerate(rnd.sample(named, len(named))):
            self.named[d] = rnd.choice(LONG_ROWS if long else ROWS) if k == 0 else rnd.choice(SIZES[:14])

    def shrink(self) -> None:
        while math.prod(self.batch) * math.prod(self.named.values()) > MAX_ELEMENTS:
            kept = {d: n for d, n in self.named.items() if not (self.reduced and d in self.reduced) and n > 1}
            rows = ELLIPSIS not in self.reduced and any(n > 1 for n in self.batch) or kept  # what is not reduced gives way first
            named = kept if self.reduced and rows else self.named
            if self.batch and max(self.batch) >= max(named.values(), default=0):
                self.batch[self.batch.index(max(self.batch))] //= 2
            else:
                widest = max(named, key=lambda d: self.named[d])
                self.named[widest] //= 2

    def arguments(self) -> dict[str, Any]:
        written = {r.state for r in self.kernel.results if r.state}
        return {p.name: self.tensor(p, p.name in written) if p.is_tensor else self.number(p) for p in self.kernel.params}

    def number(self, p: Parameter) -> float | int:
        if p.default is not None and self.random.random() < 0.5:
            return default(p)
        if p.dtype == "int":
            return self.random.choice((1, 2, 3, 7, 10, 100, 1000))
        return self.random.choice((0.5, 1.0, 0.1, 1e-3, 2.0, -0.5, 3.0, self.random.gauss(0, 1)))

    def tensor(self, p: Parameter, written: bool) -> Any:
        """A tensor of a parameter's dims, its strides dense, permuted, sliced, offset or (where it is not written) expanded."""
        assert p.dims is not None
        rnd = self.random
        batch = list(self.batch) if ELLIPSIS in p.dims else []
        if batch and not written and rnd.random() < 0.3:
            batch = [1 if rnd.random() < 0.4 else n for n in batch][rnd.randrange(len(batch) + 1) if rnd.random() < 0.5 else 0 :]
        if sum(ELLIPSIS in (q.dims or ()) for q in self.kernel.params) == 1:
            batch = list(self.batch) if ELLIPSIS in p.dims else []
        shape = batch + [self.named[d] for d in p.dims if d != ELLIPSIS]
        x = self.strided(p, shape, written)
        if self.reduced and x.numel() and 0 not in x.stride():
            self.plant(p, x, len(batch))
        return x

    def strided(self, p: Parameter, shape: list[int], written: bool) -> Any:
        rnd = self.random
        way = rnd.choice(("dense", "dense", "dense", "permuted", "sliced", "offset", "expanded"))
        if way == "expanded" and (written or not shape):
            way = "offset"
        if way == "dense" or not shape:
            return self.fill(shape, p.dtype)
        if way == "permuted":
            order = rnd.sample(range(len(shape)), len(shape))
            return self.fill([shape[d] for d in order], p.dtype).permute([order.index(d) for d in range(len(shape))])
        if way == "sliced":
            grown = [n * rnd.choice((1, 1, 2, 3)) + rnd.choice((0, 0, 1, 5)) for n in shape]
            x = self.fill(grown, p.dtype)
            for d, n in enumerate(shape):
                step = rnd.randint(1, grown[d] // n) if n else 1
                start = rnd.randint(0, grown[d] - ((n - 1) * step + 1)) if n else 0
                x = x.narrow(d, start, grown[d] - start)[(slice(None),) * d + (slice(None, None, step),)].narrow(d, 0, n)
            return x
        if way == "offset":
            extra = rnd.randint(1, 15)
            return self.fill([math.prod(shape) + extra], p.dtype)[extra:].view(shape)
        d = rnd.randrange(len(shape))
        return self.fill([1 if k == d else n for k, n in enumerate(shape)], p.dtype).expand(*shape)

    def plant(self, p: Parameter, x: Any, lead: int) -> None:
        """Write what reductions get wrong into a tensor: rows of special values, and indices into what is picked from."""
        torch, rnd, generator = self.torch, self.random, self.generator
        if p.name in self.picked:
            size = self.named[self.picked[p.name]]
            limit = torch.iinfo(x.dtype).max
            inside = torch.randint(0, max(1, min(size, limit)), x.shape, generator=generator)
            ignored = [default(q) for q in self.kernel.params if q.dtype == "int" and q.default is not None]
            other = torch.tensor([-1, size, -size, 2**40, -(2**63), *ignored])
            other = other[torch.randint(0, len(other), x.shape, generator=generator)].clamp(torch.iinfo(x.dtype).min, limit)
            x.copy_(torch.where(torch.rand(x.shape, generator=generator) < 0.15, other, inside))
            return
        named = [d for d in p.dims or () if d != ELLIPSIS]
        along = [ELLIPSIS in self.reduced] * lead + [d in self.reduced for d in named]
        if not x.dtype.is_floating_point or not any(along) or not self.special:
            return
        heads = [1 if reduced else n for reduced, n in zip(along, x.shape, strict=True)]
        chosen = torch.rand(heads, generator=generator) < 0.3
        everywhere = torch.rand(x.shape, generator=generator)
        first = torch.ones(x.shape, dtype=torch.bool)  # one place of each row
        for d, reduced in enumerate(along):
            if reduced:
                place = torch.arange(x.shape[d]).reshape([-1 if k == d else 1 for k in range(x.dim())])
                first = first & (place == rnd.randrange(x.shape[d]))
        kind = rnd.choice(("equal", "-inf", "inf", "nan", "masked", "wide", "offset"))
        wide = torch.randn(x.shape, generator=generator, dtype=torch.float64) * 10 ** (everywhere * 12 - 6)
        changed = {
            "equal": torch.full_like(wide, rnd.choice((0.0, 1.0, -3.0, 1e4, 0.1))),
            "-inf": torch.full_like(wide, -math.inf),
            "inf": torch.where(first, math.inf, x.double()),
            "nan": torch.where(everywhere < 0.1, math.nan, x.double()),
            "masked": torch.where(everywhere < 0.5, -math.inf, x.double()),
            "wide": wide,
            "offset": wide.sign() + 1e4,
        }[kind]
        x.copy_(torch.where(chosen, changed, x.double()))

    def fill(self, shape: list[int], dtype: str) -> Any:
        torch, rnd, generator = self.torch, self.random, self.generator
        declared = resolve_named(dtype, self.binding)
        torch_dtype = getattr(torch, declared.torch)
        if declared.kind == "bool":
            return torch.rand(shape, generator=generator) < 0.5
        if declared.is_int:
            info = torch.iinfo(torch_dtype)
            low, high = (info.min, info.max) if self.special else (max(info.min, -20), min(info.max, 20))
            return torch.randint(low, high, shape, generator=generator, dtype=torch_dtype)
        scale = rnd.choice((1.0, 1.0, 3.0, 30.0, 1e-3, 1e3))
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        if self.special:
            # in a long row one NaN or one square that overflows would hide all else: fewer there, and small ones alone
            rate = rnd.choice((0.15, 0.01, 0.001)) if self.reduced else 0.15
            few = self.reduced and rnd.random() < 0.5
            values = torch.tensor([v for v in FLOATS if not few or abs(v) <= 1e4], dtype=torch.float64)
            chosen = values[torch.randint(0, len(values), shape, generator=generator)]
            x = torch.where(torch.rand(shape, generator=generator) < rate, chosen, x)
        return x.to(torch_dtype)


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
