"""Reports as people read them: a table of candidates, and what is wrong with each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEADS = ("", "candidate", "spec", "device", "cases", "elements", "of bound", "seconds", "found")


def row(report: Any) -> tuple[str, ...]:
    """A report's cells under HEADS."""
    kinds = ", ".join(dict.fromkeys(f.kind.value for f in report.findings))
    fraction = f"{report.fraction:.0%}" if report.fraction < 100 else "-"
    counts = f"{report.cases:,}", f"{report.elements:,}", fraction, f"{report.seconds:.1f}"
    verdict = "FAIL" if report.findings else "PASS" if report.cases else "NOT TRIED"
    return (verdict, report.candidate, report.spec, report.device, *counts, kinds)


def finding(f: Any, candidate: str) -> str:
    """A finding in words, with its program."""
    where = f", case {f.number} ({f.case})" if f.case else ""
    gradient = " (its gradient)" * f.gradient
    what = f"result {f.result} " if f.result and f.kind.value not in ("input", "outside") else f"{f.result} " * bool(f.result)
    condition = f" {f.condition}" if f.condition else ""
    text = f"error: {candidate}{gradient}{where}: {f.kind.value}{condition}: {what}{f.message}" + f"\nhelp: {f.help}" * bool(f.help)
    if not f.python:
        return text
    return f"{text}\n\n{'Made small, as' if f.small else 'As'} Python:\n\n{f.python}"


def notes(report: Any) -> list[str]:
    """What else a report has to say, a line each."""
    said = [f"{report.candidate} does not take {line}" for line in report.refused]
    if report.operators:
        calls = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in sorted(report.operators.items()))
        said.append(f"{report.candidate} calls torch's own operators: {calls}")
    return said + [f"{report.candidate}: not tried: {line}" for line in report.untried]


def table(reports: Sequence[Any]) -> str:
    """The table, and below it what is wrong."""
    rows = [HEADS, *(row(r) for r in reports)]
    widths = [max(len(cells[k]) for cells in rows) for k in range(len(HEADS))]
    right = (4, 5, 6, 7)
    padded = ([c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True))] for cells in rows)
    lines = ["  ".join(cells).rstrip() for cells in padded]
    told = [finding(f, r.candidate) for r in reports for f in r.findings] + [line for r in reports for line in notes(r)]
    return "\n".join(lines) + "".join(f"\n\n{t}" for t in told)
