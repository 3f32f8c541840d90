"""Programs held to their properties, failures made small and replayed: what the campaigns of `kgen fuzz` are made of.

In: programs.  Out: for each property what was looked at, or a `Failure`; its file is a regression test once it lies in tests/fuzzed.
Programs are numbered: (seed, number) names one.  Many kernels go into one C++ build.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import random
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kgen import check as checker
from kgen import syntax
from kgen.errors import KgenError
from kgen.parts import over_parts
from kgen.testing import checks, programs, properties, trees
from kgen.testing.cases import Limits
from kgen.testing.checks import Report
from kgen.testing.holding import few_long_rows
from kgen.testing.properties import ALONE, COMPILED, ON_TARGET, Violation
from kgen.testing.trees import Program

SHRINKING = 60.0  # seconds that a failure's shrinking takes at most
LARGE = 24  # values: more than that has a program in four, and these take half of what Triton's compilers take


@dataclass(frozen=True)
class Failure:
    """A property that does not hold of a program: on a target ("" where none runs), with the seed of the cases."""

    broken: str
    target: str
    seed: int
    message: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.broken}-{hashlib.sha256(f'{self.target}{self.text}'.encode()).hexdigest()[:10]}.k"

    @property
    def kind(self) -> str:
        """The failure without its figures and names, to tell those that are alike."""
        return f"{self.broken} {self.target} " + re.sub(r"[-+]?\d[\w.+-]*|`[^`]*`|\(.*", "", self.message.split("\n")[0])[:80]

    def file(self) -> str:
        """The failure as a .k file."""
        said = " ".join(self.message.split())[:400].encode("ascii", "replace").decode()
        head = [f"property: {self.broken}", f"target: {self.target or 'none'}", f"seed: {self.seed}", f"message: {said}"]
        return "".join(f"# {line}\n" for line in head) + f"\n{self.text}"


# ------------------------------------------------------------------------------------------------ one program


class Subject:
    """A program with its kernels as they are run on targets."""

    def __init__(self, text: str, seed: int, cases: int = 4, gradients: bool = True):
        from kgen.runtime.kernel import Kernel as Runnable

        self.text, self.seed = text, seed
        self.kernel = checker.plain(_some_left_out(checker.check(syntax.parse(text, "<program>")), seed))
        self.runnable = Runnable(self.kernel)
        self.numbers = _numbers(self.kernel, seed, cases)
        self.long = few_long_rows(self.kernel, seed) if seed % 3 else None
        self.sampled = False  # a campaign's: of what each case builds anew on GPUs there is a part (`cases`, `due`)
        self.saving: checks.Saving | None = None
        self.wants_gradients = gradients

    def prepare(self, target: str) -> None:
        """Have a source for all that runs on a target.  Raises `KgenError` where there is none."""
        from kgen import grad
        from kgen.backends import TARGETS, backend

        if target in TARGETS:
            backend(target).render(over_parts(self.kernel))
        if self.wants_gradients and self.saving is None and grad.differentiable(self.kernel):
            with contextlib.suppress(KgenError):  # `backward_agrees` counts those
                saving = checks.Saving(self.kernel)
                if saving.made.forward is self.kernel:
                    saving.forward = self.runnable
                for runnable in (saving.forward, saving.backward) if target in TARGETS else ():
                    backend(target).render(over_parts(runnable.kernel))
                self.saving = saving

    def builds(self) -> list[tuple[Any, dict[str, str]]]:
        """What C++ has to build for the cases: runnables, each with the dtypes of its variables."""
        found = [(self.runnable, b) for b in _bindings(self.kernel, self.numbers)]
        if self.saving is not None:
            anew = self.saving.anew.kernel
            for bound in _bindings(anew, self.numbers):
                for runnable in (self.saving.forward, self.saving.backward):
                    found.append((runnable, {v: bound.get(v, "f32") for v in runnable.kernel.variables}))
        whole = [(r if r._parts is None else r._parts.runnable, b) for r, b in found]
        return [(r, {v: d for v, d in b.items() if v in r.kernel.variables}) for r, b in whole]  # parts may leave out a tensor

    def due(self, name: str, target: str) -> bool:
        """Whether a campaign looks at a property: on GPUs, where a case is a build, at gradients on one target, of which Triton has one in
        four of those that are not large, and at the last two in one program in four with CUDA, in one in eight with Triton; Triton has
        every other large program."""
        if not (self.sampled and target in ("cuda", "triton")):
            return True
        large = len(self.kernel.values) > LARGE
        if name == "gradients_agree":
            return (self.seed // 2 % 4 == 0 and not large) == (target == "triton")
        if target == "triton" and large and self.seed // 8 % 2:
            return False
        turn = {"rows_alone": 1, "in_place": 3}.get(name)
        return turn is None or self.seed % 4 == turn and (target == "cuda" or self.seed // 16 % 2 == 0)

    def cases(self, target: str) -> tuple[list[int], Any]:
        """The numbers of the cases that a target agrees in, and the limits of the last.

        On GPUs, where a campaign's time is that of compilers, each program has two, the last of few long rows: one with Triton, in turn,
        and with CUDA, which takes a quarter of the time, the other; both for one in four, and where Triton has none.  Where results are to
        be written over parameters too, the last case has tensors without gaps, so that this is the same build."""
        if not (self.sampled and target in ("cuda", "triton")):
            return self.numbers, self.long
        both = self.seed // 2 % 4 == 1 or not self.due("agrees", "triton")
        has_long = (self.seed // 4 % 2 == 1) == (target == "triton")
        numbers, long = (self.numbers[-1:], self.long) if has_long else (self.numbers[-2:-1] or self.numbers, None)
        if target == "cuda" and both:
            numbers, long = self.numbers[-2:], self.long
        return numbers, replace(long or Limits(), layouts=("dense",)) if self.due("in_place", target) else long

    def hold(self, name: str, target: str) -> Report:
        """Hold a property.  Raises `Violation` where it does not, `KgenError` where there is nothing to hold."""
        few = self.sampled and target in ("cuda", "triton")
        if name == "gradients_agree":
            if self.saving is None:
                return Report(self.kernel.name, target)
            return properties.gradients_agree(self.kernel, target, self.seed, self.numbers[-1 if few else 0 :], self.saving, self.long)
        if name == "agrees":
            numbers, long = self.cases(target)
            return properties.agrees(self.kernel, target, self.seed, numbers, self.runnable, long)
        if name == "compiles":
            return properties.compiles(self.kernel, target, self.seed, self.numbers[-2:], self.saving, self.long)
        if name == "in_place":
            number, within = self.numbers[0], [Limits(), *([self.long] if self.long else [])]
            if few:
                numbers, long = self.cases(target)
                number, within = numbers[-1], [long or Limits()]
            return properties.in_place(self.kernel, target, self.seed, number, self.runnable, within)
        if name == "rows_alone":
            return properties.rows_alone(self.kernel, target, self.seed, self.numbers[0], None if target == "torch" else self.runnable)
        return ALONE[name](self.kernel) if name in ("prints_and_parses", "renders") else ALONE[name](self.kernel, self.seed)


def _some_left_out(kernel: checker.Kernel, seed: int) -> checker.Kernel:
    """A kernel, or, mostly, that of calls without some of the tensors that they may leave out."""
    rnd = random.Random(f"left out {seed}")
    return checker.left_out(kernel, [name for name in kernel.optional if rnd.random() < 0.7])


def _numbers(kernel: checker.Kernel, seed: int, cases: int) -> list[int]:
    """Numbers of cases that have one choice of dtypes: each is a build of its own."""
    count = len(kernel.bindings())
    chosen = random.Random(f"dtypes {seed}").randrange(count)
    return [chosen + count * k for k in range(cases)]


def _bindings(kernel: checker.Kernel, numbers: Iterable[int]) -> list[dict[str, str]]:
    choices = kernel.bindings()
    return [{v: d.name for v, d in choices[k].items()} for k in dict.fromkeys(n % len(choices) for n in numbers)]


def outcome(subject: Subject, name: str, target: str) -> tuple[str, Report | str]:
    """("held", report), ("refused", message) or ("failed", message)."""
    try:
        return "held", subject.hold(name, target)
    except Violation as error:
        return "failed", str(error)
    except KgenError as error:
        return ("refused", str(error)) if name in ALONE else ("failed", str(error))
    except Exception as error:  # a traceback is a bug whatever it says
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return "failed", f"{type(error).__name__} in {Path(frame.filename).name}, {frame.name}: {error}"


def build_together(builds: Sequence[tuple[Any, dict[str, str]]], level: str = "-O3") -> None:
    """Build kernels for C++ in one call of the compiler, and hand each its functions; -O0 takes a fifth of the time of -O3.

    Headers are a good quarter of a kernel's build; each source stands in a namespace of its own behind them, and behind what they all
    call of the C library (whose vectors a compiler would not find there).  Kernels of one name are built in one call each.  Where a
    build fails, nothing of it is handed out: each kernel then builds alone, and the one that cannot says so.
    """
    calls: list[dict[str, list[tuple[Any, dict[str, str]]]]] = []
    for runnable, binding in {(id(r), tuple(b.items())): (r, b) for r, b in builds}.values():
        for call in calls:
            if call.setdefault(runnable.name, [(runnable, binding)])[0][0] is runnable:
                break
        else:
            call = {runnable.name: [(runnable, binding)]}
            calls.append(call)
        if call[runnable.name][-1][1] is not binding:
            call[runnable.name].append((runnable, binding))
    for call in calls:
        _build([build for found in call.values() for build in found], level)


def _build(builds: Sequence[tuple[Any, dict[str, str]]], level: str) -> None:
    """Build kernels of different names, each with the dtypes of its variables by name, in one call of the compiler at a level of
    optimisation (`-O1`), and hand each launcher its functions.  Where the build fails it returns, and hands out none."""
    import torch

    from kgen.backends import backend
    from kgen.runtime import build

    target: Any = backend("cpp")
    includes: dict[str, None] = {}
    bodies = []
    for k, (runnable, binding) in enumerate(builds):
        head, between, body = target.render(runnable.kernel, binding).partition("\nnamespace {\n")
        includes |= dict.fromkeys(re.findall(r"^#include <.*$", head, re.M))
        bodies.append(f"namespace build_{k} {{{between}{body}\n}}\n")
    try:
        flags = tuple(flag for f in build.FLAGS for flag in (level.split() if f == "-O3" else [f]))
        payload = build.build("\n".join([*includes, target.library("".join(bodies)), *bodies]), "together", flags)
    except KgenError:
        return
    with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
        path = Path(folder) / "together.so"
        path.write_bytes(payload)
        library = ctypes.CDLL(str(path))
    for runnable, binding in builds:
        launcher = runnable._launcher("cpp", torch.device("cpu"))
        for unit in launcher.units:
            chosen = (unit.name, *(binding[v] for v in unit.dtype_variables))
            function = library["_".join(chosen)]
            function.restype = None
            key = (unit.name, *binding.values())
            launcher.entries[key] = function


# ------------------------------------------------------------------------------------------------ shrinking


def shrunk(failure: Failure, seconds: float = SHRINKING, fails: Callable[[Failure], str] | None = None) -> Failure:
    """The failure of the smallest program that was found in the time; `fails` gives a failing program's message, else ""."""
    fails = fails or again
    until = time.monotonic() + seconds
    seen = {failure.text}
    changed = True
    while changed:
        changed = False
        for candidate in trees.smaller(trees.parsed(failure.text)):
            for made in (candidate, trees.widened(candidate)):
                if time.monotonic() > until:
                    return failure
                if made.text in seen or _size(made.text) >= _size(failure.text):
                    continue
                seen.add(made.text)
                try:
                    made.kernel()
                except KgenError:
                    continue
                smaller = Failure(failure.broken, failure.target, failure.seed, "", made.text)
                if message := fails(smaller):
                    failure, changed = Failure(failure.broken, failure.target, failure.seed, message, made.text), True
                break
            if changed:
                break
    return failure


def _size(text: str) -> tuple[int, int, str]:
    return len(re.findall(r"\w+|[^\w\s]", text)), len(text), text


def again(failure: Failure, cases: int = 8) -> str:
    """The message of a failure when its property is looked at once more, "" where it holds now."""
    subject = Subject(failure.text, failure.seed, cases, failure.broken in ("gradients_agree", "compiles"))
    if failure.broken in (*ON_TARGET, *COMPILED):
        with contextlib.suppress(KgenError):
            subject.prepare(failure.target)
    what, said = outcome(subject, failure.broken, failure.target)
    return str(said) if what == "failed" else ""


# ------------------------------------------------------------------------------------------------ replaying


def replay(
    paths: Iterable[str | Path], targets: Sequence[str], level: str = "-O3",
    alone: Iterable[str] = tuple(ALONE), held: Iterable[str] = tuple(ON_TARGET),
) -> list[Failure]:  # fmt: skip
    """The properties of kept files on targets (`held`), and those that run nothing (`alone`); the failures.  Their kernels share C++
    builds, those of gradients are built where a gradient failed."""
    found: list[Failure] = []
    paths = list(paths)
    for k in range(0, len(paths), 16):
        subjects = []
        for path in paths[k : k + 16]:
            text = Path(path).read_text(encoding="utf-8")
            seed = re.search(r"^# seed: (-?\d+)$", text, re.M)
            gradients = not text.startswith("# property: ") or text.startswith(("# property: gradients_agree", "# property: compiles"))
            subjects.append(Subject(text, int(seed[1]) if seed else 0, gradients=gradients))
        found += [said for *_, what, said in looked_at(subjects, targets, lambda *at: None, level, alone, held) if what == "failed"]
    return found


def looked_at(
    subjects: Sequence[Subject], targets: Sequence[str], at: Callable[..., None], level: str = "-O3",
    alone: Iterable[str] = tuple(ALONE), held: Iterable[str] = tuple(ON_TARGET),
) -> Iterable[tuple[int, str, str, str, Any]]:  # fmt: skip
    """(which, property, target, what, report or message or failure) for every property of every program, those that run nothing and
    those that are held on each target; `at` is told before each.  C++ is built at a level of optimisation."""

    def one(k: int, name: str, target: str) -> tuple[int, str, str, str, Any]:
        at(k, name, target)
        what, said = outcome(subjects[k], name, target)
        return k, name, target, what, Failure(name, target, subjects[k].seed, str(said), subjects[k].text) if what == "failed" else said

    for k in range(len(subjects)):
        for name in alone:
            yield one(k, name, "")
    for target in targets:
        able = []
        for k, subject in enumerate(subjects):
            at(k, "renders", target)
            try:
                subject.prepare(target)
            except KgenError:  # `renders` counts it
                continue
            except Exception as error:
                yield k, "renders", target, "failed", Failure("renders", "", subject.seed, repr(error), subject.text)
                continue
            able.append(k)
        if target == "cpp" and able:
            at(able[0], "builds", target)
            build_together([b for k in able for b in subjects[k].builds()], level)
        for k in able:
            for name in held:
                if subjects[k].due(name, target):
                    yield one(k, name, target)


# ------------------------------------------------------------------------------------------------ numbers


def program_of(seed: int, number: int) -> Program:
    """The program that (seed, number) names."""
    return programs.program(random.Random(f"kgen {seed} {number}"), f"p{number}")


def case_seed(seed: int, number: int) -> int:
    return seed * 1_000_003 + number
