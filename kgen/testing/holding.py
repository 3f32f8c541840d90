"""What properties of programs are made of: cases, judgements, and what is said where one does not hold."""

from __future__ import annotations

from typing import Any

from kgen.check import Kernel
from kgen.testing import checks
from kgen.testing.checks import Report, Trial


class Violation(AssertionError):
    """A property that does not hold; the message says what was found."""


def hold(ok: bool, message: str) -> None:
    if not ok:
        raise Violation(message)


def rough(kernel: Kernel) -> bool:
    """Whether a kernel has a function for which torch's own keeps no bound in f32 (sinh and cosh overflow too soon); what torch
    evaluates is not held to one then."""
    return any(v.op in ("digamma", "lgamma", "erfinv", "sinh", "cosh") for v in kernel.values)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two tensors are equal bit for bit, NaN with whatever payload alike."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.dtype.is_floating_point:
        return bool((a == b).all())
    return bool(((a == b) & (a.signbit() == b.signbit()) | a.isnan() & b.isnan()).all())


def differing(got: Any, want: Any) -> str:
    """The first element in which two tensors differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
    bad = got != want
    if got.dtype.is_floating_point:
        bad = (bad | (got.signbit() != want.signbit())) & ~(got.isnan() & want.isnan())
    if not bool(bad.any()):
        return ""
    at = tuple(bad.nonzero()[0].tolist())
    return f"{got[at].item()!r} at {list(at)}, not {want[at].item()!r} ({int(bad.sum())} of {bad.numel()})"


def drawn(kernel: Kernel, seed: int, number: int) -> tuple[Any, dict[str, Any]]:
    """A case of `cases.Draw` and its arguments."""
    from kgen.testing.cases import Draw

    draw = Draw(kernel, seed, number)
    return draw, draw.written(draw.arguments())


def judged(trial: Trial, seed: int, number: int, report: Report) -> None:
    """Hold a case of `kgen check`."""
    findings, arguments = trial.drawn(seed, number, None, report)
    if findings:
        raise Violation("\n".join(str(checks.Failure(trial, number, seed, arguments, f)) for f in findings[:3]))
