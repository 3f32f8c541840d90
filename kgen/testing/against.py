"""A kernel held against a torch function of the same arguments: `check`.

In: a kernel, and perhaps a function.  Out: reports; or `CheckFailed` with the worst element, its bound, eager's own value, and the
smallest case that still fails as a few lines of Python.

The function runs in float64, where its value stands for the exact one.  What it may be off by is no constant, but measured: how
far its float32 values lie from its float64 ones, at the arguments rounded to float32 and at three that lie within 2^-16 of them
(one float32 value may be near by luck).

*  Where it keeps 16 bits of an element in float32 its rounding errors scale with the unit roundoff, 2^-24 there and 2^-53 in
   float64: they stay below 2^-16 * 2^-29 of the element.  2^-37 is granted, since four samples are no maximum.
*  Of an element of which it keeps fewer (1 + erf(-6), the difference of two large numbers), its float64 value says no more than
   how far apart the two are: that is granted.
*  Of an element that is 0 in both (1 + erf(-11)) no bit is known.  What float64 rounds away beside terms as large as the case's
   largest argument, or 1, is granted: 2^-53 of it.
*  A cast by name to a narrower float rounds in the kernel, and not in float64: what those casts move the formula by is granted.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kgen import check as checker
from kgen.errors import KgenError
from kgen.runtime import joined
from kgen.runtime.arguments import default
from kgen.runtime.kernel import Kernel
from kgen.testing import checks
from kgen.testing.cases import LAYOUTS, MAX_ELEMENTS, Limits
from kgen.testing.checks import CheckFailed, Finding, Report, Reports, held
from kgen.types import DTYPES, Float, is_float, is_wide, resolve

KEPT, GRANTED = 2.0**-16, 2.0**-37


def subject(kernel: Kernel | checker.Kernel | str | Path) -> Kernel:
    """A kernel that runs: from itself, a checked spec, a path, the bare name of a bundled spec, or a spec's text."""
    from kgen.runtime.kernel import load, loads

    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, checker.Kernel):
        return Kernel(kernel)
    if isinstance(kernel, str) and "\n" in kernel:
        return loads(kernel)
    if isinstance(kernel, (str, Path)):
        return load(kernel)
    raise KgenError(f"a kernel, a path or a spec's text is checked, not {kernel!r}")


def check(
    kernel: Kernel | checker.Kernel | str | Path,
    against: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    examples: int = 100,
    seed: int = 0,
    backward: bool = False,
    dtypes: Mapping[str, str | Sequence[str]] | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    special: bool = True,
    layouts: Sequence[str] = LAYOUTS,
    max_elements: int = MAX_ELEMENTS,
    progress: bool = False,
    shrink: float = 10.0,
) -> Reports:
    """Run random cases of a kernel against the exact result and its derived bound, on every target that runs here (or one).

    `kernel` is a kernel, a decorated function, a path, the name of a bundled spec or a spec's text.  `against` is a torch function of
    the same arguments, by name or by position (it may lack the last ones, which then keep their defaults), that gives the
    results in order, or a tuple of them (None for one that is not compared): its values in float64 hold too, and its
    dtypes and shapes.  `backward` checks the gradients instead.  `dtypes`, `sizes`, `special`, `layouts` and `max_elements` limit the
    cases: see `cases.Limits`.

    Returns the reports, which print as a table.  Raises `CheckFailed` (an AssertionError) with the failures, the first of them
    shrunk for up to `shrink` seconds and as Python that stands alone; `KgenError` where no target runs, or no code can be made.
    """
    made = subject(kernel).kernel
    if against is not None and backward:
        raise KgenError("a backward is checked against its own formula", help="leave out `against` or `backward`")
    able, left_out = checks.targets(target)
    if not able:
        raise KgenError("no target runs here", help="; ".join(f"{name}: {why}" for name, why in left_out.items()))
    limits = Limits(dtypes, sizes, special, tuple(layouts), max_elements)
    function = Against(against, made) if against is not None else None
    reports = []
    for of, name in ((k, name) for k in (checks.with_and_without(made) if against is None else [made]) for name in able):
        if backward:
            reports.append(checks.check_backward(of, name, examples, seed, progress, limits))
        else:
            reports.append(checks.check(of, name, examples, seed, progress, None, function, limits))
        reports[-1].kernel += checks.shown_absent(made, of)
    raise_failures(reports, shrink)
    return Reports(reports)


def raise_failures(reports: Sequence[Report], seconds: float) -> None:
    """Raise `CheckFailed` with the failures of reports, each target's first one shrunk and as Python."""
    from kgen.testing.reproducer import explained

    if any(r.failures for r in reports):
        raise CheckFailed("\n\n".join(explained(r, seconds) for r in reports if r.failures))


class Against:
    """A torch function, as what a kernel is held against."""

    def __init__(self, function: Callable[..., Any], kernel: checker.Kernel):
        self.function, self.kernel = function, kernel
        self.name = getattr(function, "__name__", None) or type(function).__name__
        self.name = "the function" if self.name == "<lambda>" else self.name
        self.raised: Exception | None = None
        self.names, self.by_name = self._parameters()
        self.narrows = any(v.op == "cast" and self._narrow(v) for v in kernel.values)

    def _parameters(self) -> tuple[list[str], bool]:
        """Which of the kernel's parameters the function takes, and whether by name.  Raises `KgenError` where it takes too few."""
        names = [p.name for p in self.kernel.params]
        try:
            taken = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):  # one of torch's own
            return names, False
        if any(t.kind is t.VAR_KEYWORD for t in taken) or set(names) <= {t.name for t in taken if t.kind is not t.POSITIONAL_ONLY}:
            return names, True
        if any(t.kind is t.VAR_POSITIONAL for t in taken):
            return names, False
        places = [t for t in taken if t.kind in (t.POSITIONAL_ONLY, t.POSITIONAL_OR_KEYWORD)]
        by_name = {t.name for t in taken} <= set(names)
        passed = [n for n in names if n in {t.name for t in taken}] if by_name else names[: len(places)]
        for p in self.kernel.params:
            if p.name not in passed and p.default is None:
                raise KgenError(f"{self.name} takes no {p.name}", help=f"it is to take the arguments of {self.kernel.signature()}")
        return passed, by_name

    def _narrow(self, v: Any) -> bool:
        """Whether a value is a cast between floats, which may round."""
        return is_float(self.kernel.values[v.args[0]].type) and isinstance(v.type, Float) and not is_wide(str(v.attr))

    def filled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, where numbers that the function does not take have their defaults."""
        return {p.name: arguments[p.name] if p.name in self.names or p.is_tensor else default(p) for p in self.kernel.params}

    def call(self, arguments: dict[str, Any], dtype: Any = None) -> list[Any]:
        """What the function gives: a tensor (or None) for each of the kernel's results; float tensors are passed in `dtype`.

        Raises `KgenError` where it gives anything else."""
        import torch

        def passed(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            return x.to(dtype) if dtype is not None and x.is_floating_point() and x.dtype != dtype else checks._same_layout(x, "cpu", True)

        params = {p.name: p for p in self.kernel.params}
        given = {name: joined.joined(params[name], passed(arguments[name])) for name in self.names}
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what is asked of the function here, not by its user
            found = self.function(**given) if self.by_name else self.function(*given.values())
        values = list(found) if isinstance(found, (tuple, list)) else [found]
        count = len(self.kernel.results)
        if len(values) != count or any(v is not None and not isinstance(v, torch.Tensor) for v in values):
            kinds = ", ".join(type(v).__name__ for v in values)
            raise KgenError(f"{self.name} gives ({kinds}) for {self.kernel.name}'s {count} result{'s' * (count > 1)}",
                            help="give each result as a tensor, or None for one that is not to be compared")  # fmt: skip
        if not self.kernel.joined:
            return values
        sizes, _ = joined.split(self.kernel, {p.name: joined.joined(p, arguments[p.name]) for p in self.kernel.params})
        return [joined.view(self.kernel, r, v, sizes, r.name) for r, v in zip(self.kernel.results, values, strict=True)]

    def takes(self, arguments: dict[str, Any]) -> bool:
        """Whether the function takes these arguments, in float64."""
        try:
            self.exact(arguments)
        except KgenError:
            raise
        except Exception as error:  # whatever a user's function, or torch, raises
            self.raised = error
            return False
        return True

    def exact(self, arguments: dict[str, Any]) -> list[Any]:
        """The function's values in float64; what it casts to a narrower float stays float64."""
        import torch

        with _doubles():
            return self.call(arguments, torch.float64)

    def judge(self, arguments: dict[str, Any], got: list[Any], expected: list[Any], eager: Sequence[Any]) -> list[Finding]:
        """What is wrong with results `got` beside the function's, by the bounds of `expected`; `eager` is what it gives in their dtype."""
        import torch

        exact, found, report = self.exact(arguments), [], Report(self.kernel.name, "")
        near = self._near(arguments)
        moved = self._moved_by_casts(arguments, expected)
        tensors = [x for x in arguments.values() if isinstance(x, torch.Tensor)]
        largest = max([1.0, *(x.double().abs().nan_to_num(0, 0, 0).max().item() for x in tensors if x.numel())])
        one_dtype = len({x.dtype for x in tensors if x.is_floating_point()}) < 2
        for k, (r, y, want) in enumerate(zip(self.kernel.results, got, expected, strict=True)):
            value, beside = exact[k], eager[k]
            if value is None:
                continue
            finding = None
            if beside is not None and one_dtype and beside.dtype != y.dtype and not is_wide(r.dtype):
                finding = Finding("dtype", f"dtype {y.dtype}, where {self.name} gives {beside.dtype}", expected=beside.dtype)
            elif tuple(value.shape) == tuple(y.shape):
                bound = want.bound + moved[k]
                if value.is_floating_point():
                    bound = bound + granted(value.double(), [(s[k], d[k]) for s, d in near], largest)
                    value = value.double()
                finding = held(y, replace(want, exact=value, bound=bound), beside, report, f"{self.name} in float64 gives")
            else:
                finding = held(y, replace(want, exact=value), None, report)
            if finding:
                found.append(replace(finding, result=r.name))
        return found

    def eager(self, arguments: dict[str, Any]) -> list[Any]:
        """The function's values in the arguments' own dtypes; Nones where torch has no such function."""
        try:
            return self.call(arguments)
        except Exception:
            return [None] * len(self.kernel.results)

    def _near(self, arguments: dict[str, Any]) -> list[tuple[list[Any], list[Any]]]:
        """The function's float32 and float64 values at the arguments in float32, and at some near by."""
        import torch

        generator = torch.Generator().manual_seed(0)

        def moved(x: Any, by: float) -> Any:
            if not isinstance(x, torch.Tensor) or not x.is_floating_point():
                return x
            shift = (torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1) * by
            return (x.double() * (1 + shift)).float()

        found = []
        for by in (0.0, 2.0**-16, 2.0**-16, 2.0**-16):
            given = {name: moved(x, by) for name, x in arguments.items()}
            try:
                found.append((self.call(given, torch.float32), self.exact(given)))
            except Exception:  # torch has it in float64 alone
                return []
        return found

    def _moved_by_casts(self, arguments: dict[str, Any], expected: list[Any]) -> list[Any]:
        """How far the formula's results move by its casts between floats."""
        import torch

        if not self.narrows:
            return [0.0] * len(expected)
        from kgen.runtime.evaluate import Evaluator

        class Uncast(Evaluator):
            def keeps(self, v: Any) -> bool:
                t = self.kernel.values[v.args[0]].type
                name = str(v.attr)
                return isinstance(t, Float) and (name not in DTYPES or resolve(name, self.binding).is_float)

            def finish(self, x: Any, dims: Any, dtype: Any) -> Any:
                return super().finish(x, dims, torch.float64 if dtype.is_floating_point else dtype)

        free = Uncast(self.kernel, arguments, "exact").run()
        gaps = []
        for f, want in zip(free, expected, strict=True):
            f, x = f.double(), want.exact.double()
            gaps.append(torch.where((f == x) | torch.isnan(f) & torch.isnan(x), 0.0, (f - x).abs()))
        return gaps


def granted(exact: Any, pairs: Sequence[tuple[Any, Any]], largest: float) -> Any:
    """What a function's float64 value may be off by, from pairs of its float32 and float64 values near by, and the largest argument."""
    import torch

    kept, lost, zero = torch.ones_like(exact, dtype=torch.bool), torch.zeros_like(exact), exact == 0
    for single, double in pairs:
        single = single.double()
        same = (single == double) | torch.isnan(single) & torch.isnan(double)
        error = torch.where(same, 0.0, (single - double).abs())
        kept &= error <= KEPT * torch.where(torch.isnan(double), 0.0, double).abs()
        lost = torch.maximum(lost, error)
        zero &= (single == 0) & (double == 0)
    few = torch.where(kept, GRANTED * torch.where(torch.isfinite(exact), exact, 0.0).abs(), lost)
    return torch.where(zero, largest * 2.0**-53, few)


@contextmanager
def _doubles() -> Any:
    """Inside, what is made in or cast to a narrower float is float64: an `x.float()` is there to compute more precisely."""
    import torch
    from torch.overrides import TorchFunctionMode

    narrow = (torch.float32, torch.float16, torch.bfloat16)
    casts = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)

    class Doubles(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            wide = [torch.float64 if isinstance(a, torch.dtype) and a in narrow else a for a in args]
            named = {k: torch.float64 if isinstance(a, torch.dtype) and a in narrow else a for k, a in (kwargs or {}).items()}
            call: Any = torch.Tensor.double if func in casts else func
            return call(*wide, **named)

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Doubles():
            yield
    finally:
        torch.set_default_dtype(before)
