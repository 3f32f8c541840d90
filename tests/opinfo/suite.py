"""The whole suite: every operator of `op_db`, its samples, reference inputs and error inputs, in each dtype; and the table of counts."""

from __future__ import annotations

import contextlib
import itertools
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.opinfo import core

from tests.opinfo import checking
from tests.opinfo.adapter import Asker
from tests.opinfo.checking import DOCUMENTED, DTYPES, FAILED, OUTSIDE, PASSED, REFUSED, Verdict
from tests.opinfo.table import ROWS, label, outside

#: f64 has gradients alone: results are compared in float64 as it is.
DEFAULT = ("f32", "f16", "bf16", "f64", "i64", "bool")
PARTS = ("forward", "gradient", "errors")
KINDS = (PASSED, REFUSED, OUTSIDE, DOCUMENTED, FAILED)


class Suite:
    """Counts of verdicts by operator and part, the reasons, and every failure."""

    def __init__(
        self, target: str = "torch", dtypes: tuple[str, ...] = DEFAULT, samples: int = 0, references: bool = True, largest: int = 0
    ):
        self.target, self.dtypes, self.samples, self.references, self.largest = target, dtypes, samples, references, largest
        self.counts: dict[str, dict[str, Counter]] = {}
        self.reasons: dict[str, dict[str, Counter]] = {}
        self.failures: list[str] = []
        self.left: dict[str, str] = {}
        self.unlisted: list[str] = []
        self.larger = 0
        self.broken: Counter = Counter()
        self.seconds: Counter = Counter()
        self.asker = Asker()

    def run(self, names: tuple[str, ...] = (), progress: bool = False, apart: int = 1, part: tuple[int, int] = (0, 1)) -> None:
        """All operators, or those of these names; gradients and error inputs of one in `apart`.  `part` (k, n): the k-th of n parts."""
        from torch.testing._internal.common_methods_invocations import op_db

        chosen = [op for op in op_db if not names or op.name in names or label(op) in names][part[0] :: part[1]]
        from kgen.testing.checks import _progress

        with contextlib.ExitStack() as stack, _progress(f"OpInfo on {self.target}", len(chosen), progress) as advance:
            for module in (core, common_utils):  # for each sample torch looks for a `unittest` case on the stack: it takes longer than to judge it
                if hasattr(module, "extract_test_fn"):
                    stack.enter_context(mock.patch.object(module, "extract_test_fn", lambda: None))
            for k, op in enumerate(chosen):
                self.operator(op, k % apart == 0)
                advance()

    def operator(self, op: Any, whole: bool = True) -> None:
        """All samples of an operator; `whole`: its gradients and error inputs too."""
        name = label(op)
        row = ROWS.get(name)
        if row is None:
            self.left[name] = outside(name)
            if not self.left[name]:
                self.unlisted.append(name)
            return
        started = time.process_time()
        self.asker = Asker()
        for dtype in self.dtypes:
            torch_dtype = DTYPES[dtype]
            if torch_dtype not in op.supported_dtypes("cpu"):
                continue
            differentiated = op.supports_autograd and torch_dtype in op.supported_backward_dtypes("cpu")
            if dtype != "f64":
                for sample in self.drawn(op, torch_dtype, False):
                    self.put(name, "forward", dtype, sample, lambda s: checking.forward(op, row, s, self.target, self.asker))
            if whole and differentiated and torch_dtype.is_floating_point:
                for sample in self.drawn(op, torch_dtype, True):
                    self.put(name, "gradient", dtype, sample, lambda s: checking.gradient(op, row, s, self.target, self.asker))
        if whole and op.error_inputs_func is not None:
            torch.manual_seed(0)
            for error in self.limited(op.error_inputs("cpu")):
                self.put(
                    name, "errors", "", error.sample_input, lambda s, e=error: checking.wrong_input(op, row, e, self.target, self.asker)
                )  # type: ignore[misc]
        self.seconds[name] += time.process_time() - started

    def drawn(self, op: Any, dtype: torch.dtype, differentiated: bool) -> Iterator[Any]:
        """Samples, then reference inputs, the same in each run."""
        torch.manual_seed(0)
        yield from self.limited(op.sample_inputs("cpu", dtype, requires_grad=differentiated))
        if self.references and op.reference_inputs_func is not None:
            torch.manual_seed(1)
            yield from self.limited(op.reference_inputs("cpu", dtype, requires_grad=differentiated))

    def limited(self, samples: Any) -> Iterator[Any]:
        """The first ones, without those that are larger than what is asked for (which are counted)."""
        for sample in itertools.islice(self.given(samples), self.samples or None):
            if self.largest and elements(getattr(sample, "sample_input", sample)) > self.largest:
                self.larger += 1
            else:
                yield sample

    def given(self, samples: Any) -> Iterator[Any]:
        """What torch's own generator gives; some raise on their way (reference inputs that require grad of integers)."""
        try:
            yield from samples
        except (RuntimeError, ValueError) as error:
            self.broken[str(error).split("\n")[0]] += 1

    def put(self, name: str, part: str, dtype: str, sample: Any, judge: Callable[[Any], Verdict | None]) -> None:
        try:
            verdict = judge(sample)
        except Exception:
            verdict = Verdict(FAILED, traceback.format_exc(limit=-3))
        if verdict is None:
            return
        self.counts.setdefault(name, {p: Counter() for p in PARTS})[part][verdict.kind] += 1
        if verdict.why and verdict.kind != FAILED:
            self.reasons.setdefault(name, {k: Counter() for k in KINDS})[verdict.kind][verdict.why] += 1
        if verdict.kind == FAILED:
            self.failures.append(f"{name} {part} {dtype} ({shown(sample)}): {verdict.why}")

    # ------------------------------------------------------------------------------------------ the table

    def totals(self) -> dict[str, Counter]:
        return {part: sum((c[part] for c in self.counts.values()), Counter()) for part in PARTS}

    def rows(self) -> list[tuple[str, ...]]:
        found = []
        for name in sorted(self.counts):
            cells = [figures(self.counts[name][part]) for part in PARTS]
            reasons = [
                f"{n} {'' if kind == REFUSED else kind + ': '}{why}"
                for kind in (REFUSED, OUTSIDE, DOCUMENTED)
                for why, n in self.reasons.get(name, {}).get(kind, Counter()).most_common(3)
            ]
            found.append((name, *cells, "; ".join(reasons)))
        return found

    def left_out(self) -> str:
        said = [f"{self.larger:,} samples of more than {self.largest:,} elements were left out"] if self.larger else []
        return "; ".join([*said, *(f"torch's generator of samples raised {n} times: {why}" for why, n in self.broken.items())])

    def text(self) -> str:
        head = ("operator", *PARTS, "reasons")
        rows = [head, *self.rows()]
        total = self.totals()
        rows.append((f"{len(self.counts)} operators", *(figures(total[p]) for p in PARTS), ""))
        widths = [max(len(r[k]) for r in rows) for k in range(len(head) - 1)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths)), r[-1][:160]]).rstrip() for r in rows]
        lines.append("figures: passed / refused / outside / documented / failed")
        lines += [self.left_out()] if self.left_out() else []
        lines += [f"FAILED {f}" for f in self.failures]
        lines += [f"not in the table: {name}" for name in self.unlisted]
        return "\n".join(lines)

    def markdown(self) -> str:
        total = self.totals()
        lines = [f"# PyTorch's OpInfo suite on {self.target}, torch {torch.__version__}", ""]
        lines += ["Figures: passed / refused with a typed error / outside (kgen was not asked) / documented difference / failed.", ""]
        lines += ["| operator | forward | gradient | error inputs | reasons |", "| --- | --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(c.replace('|', '/') for c in row)} |" for row in self.rows()]
        lines += [f"| {len(self.counts)} operators | {' | '.join(figures(total[p]) for p in PARTS)} | |", ""]
        lines += [self.left_out(), ""] if self.left_out() else []
        lines += ["Operators that kgen does not express:", ""]
        by_reason: dict[str, list[str]] = {}
        for name, why in self.left.items():
            by_reason.setdefault(why or "not in the table", []).append(name)
        lines += [f"- {why}: {', '.join(found)}" for why, found in by_reason.items()]
        return "\n".join([*lines, "", *(f"FAILED {f}" for f in self.failures), ""])

    def as_dict(self) -> dict[str, Any]:
        return {
            "target": self.target, "torch": torch.__version__, "totals": {p: dict(c) for p, c in self.totals().items()},
            "operators": {n: {p: dict(c) for p, c in parts.items()} for n, parts in self.counts.items()},
            "reasons": {n: {k: dict(c) for k, c in kinds.items()} for n, kinds in self.reasons.items()},
            "outside": self.left, "unlisted": self.unlisted, "failures": self.failures, "seconds": dict(self.seconds),
        }  # fmt: skip


def elements(sample: Any) -> int:
    """How many elements a sample's largest tensor has."""
    return max((t.numel() for t in checking.tensors_of((sample.input, sample.args, sample.kwargs))), default=0)


def figures(c: Counter) -> str:
    return " / ".join(f"{c[kind]:,}" for kind in KINDS) if c else "-"


def shown(sample: Any) -> str:
    """A sample's arguments, in short."""

    def one(v: Any) -> str:
        if isinstance(v, torch.Tensor):
            return f"{str(v.dtype)[6:]}{list(v.shape)}"
        return "(" + ", ".join(map(one, v)) + ")" if isinstance(v, (list, tuple)) else repr(v)

    parts = [one(sample.input), *map(one, sample.args), *(f"{k}={one(v)}" for k, v in sample.kwargs.items())]
    return ", ".join(parts)[:200]
