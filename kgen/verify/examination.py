"""`examine`: a candidate, held to a spec, case after case."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kgen import check as checker
from kgen.errors import KgenError
from kgen.verify.report import Finding, Kind, Report


def examine(
    candidate: Callable[..., Any] | str | Path,
    spec: Any,
    *,
    definition: str | Path | None = None,
    workloads: str | Path | None = None,
    device: str | None = None,
    dtypes: Mapping[str, str | Sequence[str]] | Sequence[str] | None = None,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    multiples: Mapping[str, int] | None = None,
    most: Mapping[str, int] | None = None,
    leading: Sequence[int] | None = None,
    broadcast: bool = False,
    special: bool = True,
    contiguous: bool = False,
    backward: bool = False,
    gradient: Callable[..., Any] | str | None = None,
    deterministic: bool = False,
    batch_invariant: bool = False,
    own: bool = False,
    sanitize: bool = False,
    bench: bool = False,
    every: bool = False,
    examples: int = 100,
    seed: int = 0,
    timeout: float = 60.0,
    memory: float = 8.0,
    isolated: bool | None = None,
    shrink: float = 10.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Hold a candidate to a spec; whatever is wrong with it stands in the report.

    `candidate` is a callable, or `file.py:name`, `module:name`, a file that kgen wrote (.py, .cu, .cpp; edited or not), a file with
    `Model` and `ModelNew`, or a FlashInfer-Bench solution (.json).  `spec` is what `kgen.load` takes, a kernel or a spec's text.

    `dtypes` are those that the candidate claims (`("f32", "bf16")`, or by variable: `{"T": "bf16"}`); without them all are tried, and
    one that it refuses by an error in each call is not held against it.  `definition` and `workloads` are files of a
    solution.  `sizes` limits dims (`{"N": [64, 128]}`); `multiples` has sizes that are multiples of numbers (`{"N": 8}`), `most` none above
    (`{"N": 65536}`).  `leading` is how many leading dims `...` stands for, `broadcast` has leading dims of 1 meet others, `special` special
    values.  With `contiguous` the candidate promises dense tensors alone: others are to be refused by an error, not misread.

    `backward` holds the gradients: those of autograd through the candidate, or what `gradient` gives for the parameters of the derived
    backward.  `deterministic`, `batch_invariant`, `own`, `sanitize` and `bench` hold more: see `Kind` and docs/verify.md.

    The first case that fails ends the examination, or with `every` the last of `examples`.  A call has `timeout` seconds and the
    process `memory` GiB.  `isolated` asks for a process of its own (default: wherever the candidate can be imported there; else it runs
    here, and a crash ends this process).  A failure is made small for up to `shrink` seconds.  `progress` is called with what is being
    held, and how many cases are done of how many.

    Raises `KgenError` for a spec that is wrong, arguments that do not fit it, or a candidate that is named wrongly.
    """
    from kgen.testing.against import subject
    from kgen.testing.cases import LAYOUTS, Limits
    from kgen.verify import candidates
    from kgen.verify.held import Held
    from kgen.verify.plan import Wanted
    from kgen.verify.process import zygote

    began = time.monotonic()
    solution = None
    if str(candidate).endswith(".json") and isinstance(candidate, (str, Path)):
        from kgen.verify import flashinfer

        solution = flashinfer.read(candidate, definition, workloads)
    elif definition is not None or workloads is not None:
        raise KgenError("a definition and workloads are those of a solution", help="name a solution (.json)")
    named = candidates.named(candidate, isolated) if solution is None else solution.named
    if named.kind != "here":
        zygote()  # which imports torch while this process does
    kernel = subject(spec).kernel
    if solution is not None:
        said = flashinfer.limits(kernel, solution.definition)
        dtypes, sizes, leading = dtypes or said["dtypes"], {**(said["sizes"] or {}), **(sizes or {})} or None, leading or said["leading"]
    if named.kind == "written" and named.fixed:  # a static file
        contiguous = True
        dtypes = dtypes or {v: d for v, d in named.fixed if v in kernel.variables} or None
        sizes = {d: (int(n),) for d, n in named.fixed if n.isdigit()} | dict(sizes or {}) or None
    if not isinstance(dtypes, Mapping) and dtypes is not None:
        dtypes = {v: tuple(dtypes) for v in kernel.variables}
    if any(n < 1 for n in (*(multiples or {}).values(), *(most or {}).values())):
        raise KgenError("sizes are multiples of 1 and more, and at most 1 and more")
    limits = Limits(dtypes, sizes, special, LAYOUTS, broadcast=broadcast, multiples=multiples, most=most)
    if leading is not None:
        limits = replace(limits, leading=tuple(leading))
    limits.held(checker.plain(kernel))
    if backward or gradient:
        from kgen.grad import backward as derived

        derived(kernel)  # raises where there is none
    device = device or _device()
    wanted = Wanted(limits, contiguous, deterministic, batch_invariant, examples, seed, device, claimed=dtypes is not None)
    report = Report(named.title, kernel.name, device)
    if device == "cuda" and _device() != "cuda":
        report.untried.append("there is no CUDA device")
        return report
    options = Options(own, sanitize, bench, every, timeout, int(memory * 2**30), shrink, progress, began)
    held = Held(kernel, named, device, options.timeout, options.memory, report)
    with Examination(held, wanted, options) as examination:
        examination.run()
        if solution is not None:
            _trace(examination, solution)
    if (backward or gradient) and (every or not report.findings):
        _hold_gradients(kernel, named, gradient, wanted, options, report, isolated)
    report.seconds = time.monotonic() - began
    return report


def _trace(examination: Examination, solution: Any) -> None:
    """Hold a solution on its workloads, into its report's trace."""
    from kgen.verify import flashinfer
    from kgen.verify.held import Unloadable
    from kgen.verify.process import Died

    report = examination.report
    try:
        for trace, found in flashinfer.traced(examination.held, solution, report, list(report.findings)):
            report.trace.append(trace)
            for f in found:
                examination.add(replace(f, case=f"workload {trace['workload'].get('uuid', '')}"))
    except (Unloadable, Died) as error:
        report.untried.append(f"workloads: {error}")


def _hold_gradients(
    kernel: checker.Kernel, named: Any, gradient: Any, wanted: Any, options: Options, report: Report, isolated: bool | None
) -> None:
    """Hold a candidate's gradients, through autograd or by a callable of their own, into the report.

    Raises `KgenError` where the spec has no gradients."""
    from kgen.grad import backward
    from kgen.verify import candidates
    from kgen.verify.gradients import HeldGradients
    from kgen.verify.held import Held

    own = Report(report.candidate, report.spec, report.device)
    if gradient is not None:
        of = candidates.named(gradient, isolated)
        held = Held(backward(checker.plain(kernel), save=False).kernel, of, wanted.device, options.timeout, options.memory, own)
    elif kernel.joined:
        report.untried.append("its gradients: the spec splits axes, and autograd's are of whole ones")
        return
    else:
        held = HeldGradients(kernel, named, wanted.device, options.timeout, options.memory, own)
        if not wanted.limits.dtypes and kernel.variables:  # autograd saves results that were rounded to 16 bits
            wanted = replace(wanted, limits=replace(wanted.limits, dtypes={v: ("f32", "f64") for v in kernel.variables}))
    fits = {d for p in held.kernel.params for d in p.dims or ()}
    sizes = {d: n for d, n in (wanted.limits.sizes or {}).items() if d in fits}
    dtypes = {v: d for v, d in (wanted.limits.dtypes or {}).items() if v in held.kernel.variables}
    multiples = {d: n for d, n in (wanted.limits.multiples or {}).items() if d in fits}
    most = {d: n for d, n in (wanted.limits.most or {}).items() if d in fits}
    limits = replace(wanted.limits, sizes=sizes or None, dtypes=dtypes or None, multiples=multiples, most=most)
    wanted = replace(wanted, limits=limits, claimed=wanted.claimed)
    with Examination(held, wanted, replace(options, own=False)) as examination:
        examination.run()
    report.findings += [replace(f, gradient=True) for f in own.findings]
    report.refused += [f"its gradients: {line}" for line in own.refused]
    report.untried += [f"its gradients: {line}" for line in own.untried]
    report.held |= {f"gradients: {k}": n for k, n in own.held.items()}
    report.cases, report.elements = report.cases + own.cases, report.elements + own.elements
    report.unbounded, report.fraction = report.unbounded + own.unbounded, max(report.fraction, own.fraction)
    report.found_in = report.found_in if report.found_in is not None else own.found_in


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


#: Elements of the largest operand of what is timed, and the seconds that this may take.
TIMED = {"cpu": 1 << 20, "cuda": 1 << 24}
TIMING = 600.0


@dataclass(frozen=True)
class Options:
    """How an examination goes; see `examine`.  `began` is when."""

    own: bool
    sanitize: bool
    bench: bool
    every: bool
    timeout: float
    memory: int
    shrink: float
    progress: Callable[[str, int, int], None] | None
    began: float


@dataclass
class Examination:
    """An examination under way: what is `held` (`held.Held`), what is `wanted` (`plan.Wanted`)."""

    held: Any
    wanted: Any
    options: Options
    refusals: dict[str, str] = field(default_factory=dict)
    refused: list[Any] = field(default_factory=list)  # the cases of `refusals`
    taken: list[str] = field(default_factory=list)

    @property
    def report(self) -> Report:
        return self.held.report

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def run(self) -> None:
        """Hold all cases, then what is asked for besides."""
        from kgen.verify.held import Unloadable, Untriable
        from kgen.verify.process import Died, NoRoom

        try:
            self._say("loading", 0)
            self.held.started()
        except Untriable as error:
            self.report.untried.append(str(error))
            return
        except Unloadable as error:
            self.add(Finding(Kind.LOADS, str(error)))
            return
        except NoRoom as error:
            self.report.untried.append(f"it: {error}")
            return
        except Died as died:
            self.add(Finding(Kind.LOADS, f"loading it: {died.message}"))
            return
        if gone := self.held.leave_out():
            self.report.refused.append(f"{', '.join(gone)}: the spec's default stands for what it lacks")
        for case in self._cases():
            findings = self._held(case)
            if findings and not self.options.every:
                break
        if not self.report.findings and self.report.cases:
            self._operators()
            if self.options.sanitize:
                self._sanitized()
            if self.options.bench:
                self._timed()

    def _cases(self) -> Iterator[Any]:
        """The cases, of dtypes that the candidate takes."""
        from kgen.verify import plan

        dtypes = plan.dtypes_of(self.held.plain, self.wanted.limits)
        self.taken[:] = dtypes if dtypes != [""] else []
        probed, all_refused = 0, True
        for case in plan.cases(self.held.plain, self.wanted, self.held.ways, self.taken):
            if case.probe or not probed:
                probed += 1
            elif self.refusals and not self.taken and dtypes != [""]:
                return
            self._say(case.label, case.number)
            yield case
            all_refused = all_refused and case.probe in self.refusals
            if case.probe and probed == len(dtypes) and not self.taken and all_refused and not self.report.findings:
                dtype, said = next(iter(self.refusals.items()))
                self.report.refused.clear()
                if "active drivers" in said and self.held.device == "cpu":
                    self.report.untried.append("a Triton kernel runs on a GPU, or with TRITON_INTERPRET=1 on the CPU")
                    self.report.cases = 0
                    return
                self._never_taken(dtype, said)
                return

    def _never_taken(self, dtype: str, said: str) -> None:
        """Add that the candidate raises an error, which says so much, of each dtype."""
        from kgen.verify import plan

        case, likewise = self.refused[0], "; of other dtypes likewise" if len(self.refused) > 1 else ""
        finding = Finding(Kind.RAISES, f"{said} (with plain data of {dtype}{likewise})", case=plan.described(case.arguments))
        for f in self._smaller(case, [finding]):
            self.add(replace(f, message=finding.message))

    def _held(self, case: Any) -> list[Finding]:
        """What is wrong with a case, which the report takes."""
        from kgen.verify import plan
        from kgen.verify.held import Refused, Unloadable

        self.report.held[case.label.split(" case ")[0]] = self.report.held.get(case.label.split(" case ")[0], 0) + 1
        try:
            found = self.held.findings(case.arguments, case.setting)
        except Refused as refused:
            found = self._refused(case, refused)
        except Unloadable as error:
            found = [Finding(Kind.LOADS, f"loading it once more: {error}")]
        if found and self.report.found_in is None:
            self.report.found_in = time.monotonic() - self.options.began
        if found:
            found = [replace(f, case=plan.described(case.arguments), number=case.number) for f in found]
            for f in self._smaller(case, found):
                self.add(f)
        return found

    def _refused(self, case: Any, refused: Any) -> list[Finding]:
        """What an error is: a finding, or a refusal that is noted."""
        raised = refused.raised
        said = f"{raised['type']}: {raised['text'].strip()[:400]}"
        if not refused.late:
            if case.probe and not self.wanted.claimed:
                self.refusals[case.probe] = said
                self.refused.append(case)
                self.taken.remove(case.probe)
                self.report.refused.append(f"{case.probe}: {said.splitlines()[0]}")
                return []
            if case.may_refuse == "layout":
                self.report.refused.append(f"{case.label}: {said.splitlines()[0]}")
                return []
            if case.may_refuse == "graph":
                self.report.refused.append(f"to be recorded in a CUDA graph: {said.splitlines()[0]}")
                return []
        if not refused.late and (found := self._of_plain_numbers(case, said)) is not None:
            return found
        trace = raised["trace"].strip().splitlines()
        where = next((line.strip() for line in reversed(trace) if line.strip().startswith("File ") and "kgen/verify" not in line), "")
        help = ""
        if not self.wanted.contiguous and any(hasattr(x, "stride") and not x.is_contiguous() for x in case.arguments.values()):
            help = "a candidate that takes dense tensors alone is held with --contiguous (contiguous=True)"
        return [Finding(Kind.RAISES, f"{said}{f' ({where})' if where else ''}", refused.condition, help=help)]

    def _of_plain_numbers(self, case: Any, said: str) -> list[Finding] | None:
        """What is wrong with a case whose numbers the candidate refused, by an error that `said` so, with those that have defaults at
        them; None where it raises an error then, too, or they were."""
        from kgen.runtime.arguments import default
        from kgen.testing.cases import plain
        from kgen.verify.held import Refused

        given = self.held.filled(case.arguments)
        numbers = [p for p in self.held.plain.params if not p.is_tensor and p.dtype != "int"]
        usual = plain(self.held.plain, "f32")
        other = {p.name: default(p) if p.default is not None else usual[p.name] for p in numbers}
        other = {n: x for n, x in other.items() if n in self.held.takes and given[n] != x}
        if not other:
            return None
        try:
            found = self.held.findings(case.arguments | other, case.setting)
        except Refused:
            return None
        words = said.splitlines()[0]
        if not any(line.endswith(words) for line in self.report.refused):
            self.report.refused.append(f"{', '.join(f'{n}={given[n]:g}' for n in other)}: {words}")
        return found

    def _smaller(self, case: Any, found: list[Finding]) -> list[Finding]:
        """The findings, the first of them made small and with a program that shows it."""
        from kgen.verify import small

        return small.explained(self.held, case, found, self.options.shrink)

    def _operators(self) -> None:
        """Ask which of torch's operators the candidate calls itself."""
        from kgen.verify import plan
        from kgen.verify.memory import PATTERNS
        from kgen.verify.process import Died

        held = self.held
        try:
            every = plan.cases(held.plain, self.wanted, held.ways, self.taken)
            first = next(case for case in every if not self.taken or case.probe in self.taken)  # of sizes that the candidate takes
            given = held.people(held.filled(first.arguments))
            held.arena.reset()
            tensors = {n: x for n, x in given.items() if hasattr(x, "numel")}
            for n, x in tensors.items():
                held.arena.lay(n, x, "middle", PATTERNS[0])
            process = held.start()
            if "fresh" not in held.ways:
                return
            process.ask("place", size=held.arena.size, places=[p.plain() for p in held.arena.places.values()], guards=False, perturb=0xFF)
            numbers = {n: x for n, x in given.items() if n not in tensors}
            said, _ = process.ask("operators", numbers=numbers, outs=[], way="fresh")
        except (Died, KgenError) as error:
            self.report.untried.append(f"which of torch's operators it calls: {str(error).splitlines()[0]}")
            return
        if said["raised"]:
            self.report.untried.append(f"which of torch's operators it calls: {said['raised']['type']}: {said['raised']['text'][:200]}")
        self.report.operators = said["counts"]
        if self.options.own and self.report.operators:
            calls = ", ".join(f"{name} ({count})" for name, count in sorted(self.report.operators.items()))
            self.add(Finding(Kind.OWN, f"calls torch's own operators: {calls}"))

    def _sanitized(self) -> None:
        """Hold a few cases once more under compute-sanitizer."""
        from kgen.verify import plan
        from kgen.verify.sanitized import sanitized

        if self.held.device != "cuda":
            self.report.untried.append("compute-sanitizer: it looks at GPUs' kernels")
            return
        self._say("compute-sanitizer", self.wanted.examples)
        cases = [c.arguments for c in plan.cases(self.held.plain, replace(self.wanted, examples=12), self.held.ways, self.taken)]
        self.held.restart()
        found, untried = sanitized(self.held, cases[: len(self.taken) + 6])
        self.report.untried += untried
        for f in found:
            self.add(f)

    def _timed(self) -> None:
        """Time the candidate beside the spec's own kernel, in the first dtype that it takes."""
        from kgen.verify.process import Died

        held, limits = self.held, self.wanted.limits
        sizes = [n for d in limits.sizes or {} if d != "..." for n in limits.size(d)]
        usual = min([4096, *(limits.fitted(d, 4096) for d in (limits.most or ()))])
        held.restart()
        held.timing = True
        self._say("timing", self.wanted.examples)
        asked = {"spec": held.spec, "dtype": (self.taken or ["f32"])[0], "elements": TIMED[held.device], "row": max(sizes, default=usual)}
        try:
            said, _ = held.start().ask("time", TIMING, **asked)
        except (Died, KgenError) as error:
            self.report.untried.append(f"its time: {str(error).splitlines()[0]}")
            return
        names = {"candidate": self.report.candidate, "kgen": f"kgen's {self.report.spec}"}
        self.report.bench += [row | {"what": names[row["what"]]} for row in said["rows"]]
        if said["wrong"]:
            self.add(Finding(Kind.VALUE, f"{said['wrong']}", "of the size that is timed"))
        if said["replaced"]:
            self.add(Finding(Kind.CLOCK, f"replaces {said['replaced']}, by which times are read and results compared"))
        if said["apart"]:
            self.add(Finding(Kind.CLOCK, said["apart"]))

    def add(self, finding: Finding) -> None:
        """Take a finding."""
        if self.report.found_in is None:
            self.report.found_in = time.monotonic() - self.options.began
        self.report.findings.append(finding)

    def _say(self, what: str, done: int) -> None:
        if self.options.progress is not None:
            self.options.progress(what, done, self.wanted.examples)


def verify(candidate: Callable[..., Any] | str | Path, spec: Any, **options: Any) -> Report:
    """`examine`, for a test: the report of a candidate that keeps to the spec.

    Raises `CheckFailed` (an AssertionError) with the findings, or with what could not be tried where nothing was."""
    from kgen.testing.checks import CheckFailed

    report = examine(candidate, spec, **options)
    if not report.ok:
        raise CheckFailed(str(report))
    return report
