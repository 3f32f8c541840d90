"""A failing case as a few lines of Python that stand alone.

In: a failure.  Out: the text of a program that calls the kernel on its arguments and raises AssertionError where the worst
element is off (or the call's own error, where that was the failure).
"""

from __future__ import annotations

import base64
import ctypes
import math
import zlib
from dataclasses import replace
from itertools import groupby
from typing import Any

from kgen.testing.checks import Failure, Finding, Report, Saving
from kgen.testing.shrinking import Shrinker, _dense, _memory

LONGEST = 64  # runs of equal elements that are written out
SECONDS = 10.0


def explained(report: Report, seconds: float = SECONDS) -> str:
    """The failures of a report, a line each, and the first of them shrunk, as Python."""
    said = "\n".join(f"error: {message}" for message in report.failures)
    if report.first is None:
        return said
    which = "The first of these cases" if len(report.failures) > 1 else "This case"
    return f"{said}\n\n{which} made small, as Python:\n\n{reproducer(report.first, seconds)}"


def reproducer(failure: Failure, seconds: float = SECONDS) -> str:
    """Python that shows a failure, made small in at most so many seconds."""
    return written(shrunk(failure, seconds) if seconds > 0 else failure)


def shrunk(failure: Failure, seconds: float = SECONDS) -> Failure:
    """The failure with simpler arguments, which fail in the same result and the same way."""
    trial, wanted = failure.trial, failure.finding

    def like(arguments: dict[str, Any]) -> Finding | None:
        if not trial.takes(arguments):
            return None
        found = trial.judge(arguments, Report(trial.kernel.name, trial.target))
        return next((f for f in found if (f.kind, f.result) == (wanted.kind, wanted.result)), None)

    small = Shrinker(trial.kernel, failure.arguments, lambda a: like(a) is not None, seconds).smallest()
    return replace(failure, arguments=small, finding=like(small) or wanted)


def written(failure: Failure) -> str:
    """Python that shows a failure as it is."""
    from kgen.trace import to_spec

    trial, finding = failure.trial, failure.finding
    saving = isinstance(trial.runnable, Saving)
    source = to_spec(trial.runnable.kernel if saving else trial.kernel)
    told = ", checked=True" if finding.kind == "outside" else ""
    if told:  # by the kernel of the gradients itself
        saving, source = False, to_spec(trial.kernel)
    body = [f"kernel = {'Saving(' * saving}kgen.loads({_quoted(source)}{told}){'.kernel)' * saving}"]
    lines = ["import torch, kgen", *(["from kgen.testing.checks import Saving"] if saving else [])]
    given = []
    for p in trial.kernel.params:
        value = failure.arguments[p.name]
        if p.is_tensor:
            body.append(f"{p.name}_ = {tensor(value, trial.device)}")
            given.append(f"{p.name}={p.name}_")
        else:
            given.append(f"{p.name}={value!r}")
    call = f"kernel({', '.join(given)}, target={trial.target!r})"
    if any(p.name == "target" for p in trial.kernel.params):  # which takes the word for itself
        call = f"kernel._run((), dict({', '.join(given)}), None, {trial.target!r})"
    lines_after = _asserted(trial, finding, call)
    text = "\n".join([*body, *lines_after])
    names = [n for n in ("nan", "inf") if _uses(n, body[1:] + given + lines_after)]
    if names:
        lines.append(f"from math import {', '.join(names)}")
    return "\n".join(lines) + "\n\n" + text + "\n"


def _uses(name: str, lines: list[str]) -> bool:
    import re

    return any(re.search(rf"\b{name}\b", line.split("#")[0]) for line in lines)


def _asserted(trial: Any, finding: Finding, call: str) -> list[str]:
    """The call, and what does not hold of what it gives."""
    if finding.kind in ("error", "outside"):
        return [call, f"# raises: {_one_line(finding.message)}"]
    if finding.kind == "no error":
        return [f"print({call})", f"raise AssertionError({f'it is to say: {_one_line(finding.expected)}'!r})"]
    fresh = [r for r in trial.kernel.results if r.state is None]
    result = next(r for r in trial.kernel.results if r.name == finding.result)
    lines = [f"returned = {call}" if fresh else call]
    if result.state:
        name = f"{result.state}_"
    else:
        name = "returned" if len(fresh) == 1 else f"returned[{fresh.index(result)}]"
    if finding.kind in ("shape", "dtype"):
        got = f"tuple({name}.shape)" if finding.kind == "shape" else f"{name}.dtype"
        return [*lines, f"assert {got} == {finding.expected!r}, {got}"]
    at = ", ".join(str(i) for i in finding.at)
    whose = f"{trial.against.name} in float64" if trial.against is not None else "exactly"
    lines += [
        f"got = {name}[{at}].item()" if at else f"got = {name}.item()",
        f"expected, bound = {finding.expected!r}, {finding.bound!r}  # {whose}; the bound is derived",
        'print(f"{got} is to be {expected}, within {bound}")',
        "assert abs(got - expected) <= bound or got == expected or got != got and expected != expected",
    ]
    return lines


def _one_line(message: str) -> str:
    return message.split("\n")[0]


def _quoted(text: str) -> str:
    """A text as a literal of several lines."""
    return '"""\n' + text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') + '"""'


def tensor(x: Any, device: str = "cpu") -> str:
    """A tensor as an expression: its dtype, values, strides and offset (and alignment, since memory begins where its does)."""
    import torch

    moved = ".cuda()" if device == "cuda" else ""
    if not x.numel():
        strided = "" if x.is_contiguous() else f".as_strided({tuple(x.shape)}, {tuple(x.stride())})"
        return f"torch.zeros({list(x.shape)}, dtype={x.dtype}){moved}{strided}"
    if x.dim() == 0 and x.storage_offset() == 0:
        return f"torch.tensor({_element(x.item())}, dtype={x.dtype}){moved}"
    if _dense(x):
        shaped = "" if x.dim() == 1 else f".view({', '.join(str(n) for n in x.shape)})"
        return f"{_flat(_memory(x))}{moved}{shaped}"
    used = x.storage_offset() + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1
    memory = _memory(x).new_zeros(used)  # what lies beside its elements does not matter
    memory[torch.as_strided(torch.arange(used), x.shape, x.stride(), x.storage_offset()).flatten()] = x.flatten()
    return f"{_flat(memory)}{moved}.as_strided({tuple(x.shape)}, {tuple(x.stride())}, {x.storage_offset()})"


def _flat(x: Any) -> str:
    """A tensor of one dim: its elements in runs of equal ones, or its bytes where that would be long."""
    data = ctypes.string_at(x.data_ptr(), x.numel() * x.element_size())
    size = x.element_size()
    changes = sum(data[k : k + size] != data[k - size : k] for k in range(size, min(len(data), 1 << 20), size))
    runs: list[tuple[Any, int]] = []
    if changes <= LONGEST:
        for _, same in groupby(x.tolist(), key=repr):
            several = list(same)
            runs.append((several[0], len(several)))
    if len(runs) == 1 and len(x) > 3:
        return f"torch.full(({len(x)},), {_element(runs[0][0])}, dtype={x.dtype})"
    if not runs or len(runs) > LONGEST:
        packed = base64.b85encode(zlib.compress(data, 9)).decode()
        unpacked = f'bytearray(__import__("zlib").decompress(__import__("base64").b85decode({packed!r})))'
        return f"torch.frombuffer({unpacked}, dtype={x.dtype})"
    pieces: list[str] = []
    for long, group in groupby(runs, key=lambda run: run[1] > 3):
        if long:
            pieces += [f"[{_element(value)}] * {count}" for value, count in group]
        else:
            pieces.append("[" + ", ".join(_element(value) for value, count in group for _ in range(count)) + "]")
    return f"torch.tensor({' + '.join(pieces)}, dtype={x.dtype})"


def _element(x: Any) -> str:
    if isinstance(x, float) and not math.isfinite(x):
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return repr(x)
