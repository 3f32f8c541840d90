"""Campaigns of random programs: what `kgen fuzz` runs.

In: a seed, targets, a folder.  Out: a `State` of counts, and in the folder a file for each failure, shrunk, which is a regression
test once it lies in tests/fuzzed.  Programs are numbered: (seed, number) names one.  Worker processes take blocks of them, so that a
crash or a hang costs one program; many kernels go into one C++ build.  The state is written after every block, and a campaign
with the same seed, targets and folder goes on from there.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import math
import multiprocessing
import os
import random
import re
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from kgen import check as checker
from kgen import syntax
from kgen.errors import KgenError
from kgen.testing import checks, programs, properties, trees
from kgen.testing.checks import Report
from kgen.testing.holding import few_long_rows
from kgen.testing.properties import ALONE, ON_TARGET, Violation
from kgen.testing.trees import Program

BLOCK = 8  # programs of a block, which share C++ builds
LIMIT = 300.0  # seconds without a word from a worker: a machine may be busy
SHRINKING = 60.0  # seconds that a failure's shrinking takes at most
ALIKE = 3  # failures with the same message but for numbers that are shrunk and kept
RETIRES = 40  # blocks after which a worker makes room for a new one: libraries that were loaded stay in a process
HEADS = ("property", "target", "programs", "refused", "cases", "elements", "unbounded", "failures")


@dataclass(frozen=True)
class Plan:
    """What a campaign runs: its seed, targets, and the folder where it keeps what it found."""

    seed: int
    targets: tuple[str, ...]
    keep: Path
    limit: float = LIMIT


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
        self.kernel = checker.check(syntax.parse(text, "<program>"))
        self.runnable = Runnable(self.kernel)
        self.numbers = _numbers(self.kernel, seed, cases)
        self.long = few_long_rows(self.kernel, seed) if seed % 2 == 0 else None
        self.saving: checks.Saving | None = None
        self.wants_gradients = gradients

    def prepare(self, target: str) -> None:
        """Have a source for all that runs on a target.  Raises `KgenError` where there is none."""
        from kgen import grad
        from kgen.backends import TARGETS, backend

        if target in TARGETS:
            backend(target).render(self.kernel)
        if self.wants_gradients and self.saving is None and grad.differentiable(self.kernel):
            with contextlib.suppress(KgenError):  # `backward_agrees` counts those
                saving = checks.Saving(self.kernel)
                if saving.made.forward is self.kernel:
                    saving.forward = self.runnable
                for runnable in (saving.forward, saving.backward) if target in TARGETS else ():
                    backend(target).render(runnable.kernel)
                self.saving = saving

    def builds(self) -> list[tuple[Any, dict[str, str]]]:
        """What C++ has to build for the cases: runnables, each with the dtypes of its variables."""
        found = [(self.runnable, b) for b in _bindings(self.kernel, self.numbers)]
        if self.saving is not None:
            anew = self.saving.anew.kernel
            for bound in _bindings(anew, self.numbers[:2]):
                for runnable in (self.saving.forward, self.saving.backward):
                    found.append((runnable, {v: bound.get(v, "f32") for v in runnable.kernel.variables}))
        return found

    def hold(self, name: str, target: str) -> Report:
        """Hold a property.  Raises `Violation` where it does not, `KgenError` where there is nothing to hold."""
        if name == "gradients_agree":
            if self.saving is None:
                return Report(self.kernel.name, target)
            return properties.gradients_agree(self.kernel, target, self.seed, self.numbers[:2], self.saving, self.long)
        if name == "agrees":
            return properties.agrees(self.kernel, target, self.seed, self.numbers, self.runnable, self.long)
        if name == "in_place":
            return properties.in_place(self.kernel, target, self.seed, self.numbers[0], self.runnable, self.long)
        if name == "rows_alone":
            return properties.rows_alone(self.kernel, target, self.seed, self.numbers[0], None if target == "torch" else self.runnable)
        return ALONE[name](self.kernel) if name in ("prints_and_parses", "renders") else ALONE[name](self.kernel, self.seed)


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
    """Build kernels for C++ in one call of the compiler, and hand each its functions; -O1 takes 0.4 of the time of -O3, and makes
    no vectors.

    Headers are a good quarter of a kernel's build; each source stands in a namespace of its own behind them.  Where the build
    fails, nothing is handed out: each kernel then builds alone, and the one that cannot says so.
    """
    import torch

    from kgen.backends import backend
    from kgen.runtime import build

    builds = list({(id(r), tuple(b.items())): (r, b) for r, b in builds}.values())
    includes: dict[str, None] = {}
    bodies = []
    for k, (runnable, binding) in enumerate(builds):
        source = backend("cpp").render(runnable.kernel, binding)  # type: ignore[call-arg]
        includes |= dict.fromkeys(re.findall(r"^#include <.*$", source, re.M))
        bodies.append(f"namespace build_{k} {{\n{source}\n}}\n")
    if len({r.name for r, _ in builds}) < len({id(r) for r, _ in builds}):
        return
    try:
        flags = tuple(level if f == "-O3" else f for f in build.FLAGS)
        payload = build.build("\n".join([*includes, *bodies]), "together", flags)
    except KgenError:
        return
    with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
        path = Path(folder) / "together.so"
        path.write_bytes(payload)
        library = ctypes.CDLL(str(path))
    for runnable, binding in builds:
        launcher = runnable._launcher("cpp", torch.device("cpu"))
        for unit in launcher.units:
            chosen = (unit["name"], *(binding[v] for v in unit["dtype_variables"]))
            function = library["_".join(chosen)]
            function.restype = None
            key = (unit["name"], *binding.values())
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
    subject = Subject(failure.text, failure.seed, cases, failure.broken == "gradients_agree")
    if failure.broken in ON_TARGET:
        with contextlib.suppress(KgenError):
            subject.prepare(failure.target)
    what, said = outcome(subject, failure.broken, failure.target)
    return str(said) if what == "failed" else ""


# ------------------------------------------------------------------------------------------------ replaying


def replay(paths: Iterable[str | Path], targets: Sequence[str], level: str = "-O3") -> list[Failure]:
    """All properties of kept files on targets; the failures.  Their kernels share C++ builds, those of gradients are built where a
    gradient failed."""
    found: list[Failure] = []
    paths = list(paths)
    for k in range(0, len(paths), 16):
        subjects = []
        for path in paths[k : k + 16]:
            text = Path(path).read_text(encoding="utf-8")
            seed = re.search(r"^# seed: (-?\d+)$", text, re.M)
            gradients = not text.startswith("# property: ") or text.startswith("# property: gradients_agree")
            subjects.append(Subject(text, int(seed[1]) if seed else 0, gradients=gradients))
        found += [said for *_, what, said in _looked_at(subjects, targets, lambda *at: None, level) if what == "failed"]
    return found


def _looked_at(
    subjects: Sequence[Subject], targets: Sequence[str], at: Callable[..., None], level: str = "-O3"
) -> Iterable[tuple[int, str, str, str, Any]]:
    """(which, property, target, what, report or message or failure) for every property of every program; `at` is told before each.
    C++ is built at a level of optimisation."""

    def one(k: int, name: str, target: str) -> tuple[int, str, str, str, Any]:
        at(k, name, target)
        what, said = outcome(subjects[k], name, target)
        return k, name, target, what, Failure(name, target, subjects[k].seed, str(said), subjects[k].text) if what == "failed" else said

    for k in range(len(subjects)):
        for name in ALONE:
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
            for name in ON_TARGET:
                yield one(k, name, target)


# ------------------------------------------------------------------------------------------------ workers


def program_of(seed: int, number: int) -> Program:
    """The program that (seed, number) names."""
    return programs.program(random.Random(f"kgen {seed} {number}"), f"p{number}")


def _case_seed(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


def _worker(connection: Any, plan: Plan, place: int) -> None:
    """Take blocks and look at their programs; every step is told before it is taken."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the campaign ends its workers itself
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if any(t in ("cuda", "triton") for t in plan.targets):
        torch.cuda.set_device(place % torch.cuda.device_count())
    alike: dict[str, int] = {}
    while (task := connection.recv()) is not None:
        block, skipped = task
        counts: dict[str, list[int]] = {}
        totals = {"programs": 0, "refused": 0}
        subjects, numbers = [], []
        for number in range(block * BLOCK, (block + 1) * BLOCK):
            if number in skipped:
                continue
            connection.send(("at", number, "check", ""))
            made = program_of(plan.seed, number)
            totals["programs"] += 1
            try:
                subjects.append(Subject(made.text, _case_seed(plan.seed, number), gradients=number % 4 == 0))
                numbers.append(number)
            except KgenError:
                totals["refused"] += 1
            except Exception as error:
                connection.send(("failed", Failure("check", "", 0, repr(error), made.text), True))
        tell = partial(_told, connection, numbers)
        for k, name, target, what, said in _looked_at(subjects, plan.targets, tell, "-O3" if block % 8 == 7 else "-O1"):
            row = counts.setdefault(f"{name} {target}", [0] * 6)  # held, refused, cases, elements, unbounded, failed
            row[{"held": 0, "refused": 1, "failed": 5}[what]] += 1
            if what == "held":
                row[2] += said.cases
                row[3] += said.elements
                row[4] += said.unbounded
            elif what == "failed":
                alike[said.kind] = alike.get(said.kind, 0) + 1
                connection.send(("failed", said, alike[said.kind] <= ALIKE))
                if alike[said.kind] <= ALIKE:
                    connection.send(("at", numbers[k], f"{name} (shrinking)", target))
                    connection.send(("shrunk", said, shrunk(said, min(SHRINKING, plan.limit / 2))))
        connection.send(("done", block, totals, counts))


def _told(connection: Any, numbers: list[int], k: int, name: str, target: str) -> None:
    connection.send(("at", numbers[k], name, target))


@dataclass
class State:
    """What a campaign has done: blocks below `next`, and those in `done` beyond; its counts; the failures' files."""

    seed: int
    targets: tuple[str, ...]
    next: int = 0
    done: list[int] = field(default_factory=list)
    programs: int = 0
    refused: int = 0
    seconds: float = 0.0
    counts: dict[str, list[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    failed: int = 0

    @staticmethod
    def path(plan: Plan) -> Path:
        return plan.keep / f"seed-{plan.seed}-{'-'.join(plan.targets)}.json"

    @classmethod
    def read(cls, plan: Plan) -> State:
        """The state of an earlier run with this plan, else a new one."""
        try:
            found = json.loads(cls.path(plan).read_text(encoding="utf-8"))
            found["targets"] = tuple(found["targets"])
            return cls(**found)
        except (OSError, ValueError, TypeError, KeyError):
            return cls(plan.seed, plan.targets)

    def write(self, plan: Plan) -> None:
        _write(self.path(plan), json.dumps(self.__dict__, indent=1))

    def finish(self, block: int, totals: dict[str, int], counts: dict[str, list[int]]) -> None:
        self.done.append(block)
        self.programs += totals["programs"]
        self.refused += totals["refused"]
        for key, row in counts.items():
            mine = self.counts.setdefault(key, [0] * 6)
            self.counts[key] = [a + b for a, b in zip(mine, row, strict=True)]
        self.failed += sum(row[5] for row in counts.values())
        while self.next in self.done:
            self.done.remove(self.next)
            self.next += 1

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a row for each property and target."""
        order = [*ALONE, *ON_TARGET]
        rows = []
        for key in sorted(self.counts, key=lambda k: (order.index(k.split()[0]) if k.split()[0] in order else 99, k)):
            name, _, target = key.partition(" ")
            held, refused, cases, elements, unbounded, failed = self.counts[key]
            rows.append((name, target, *(f"{n:,}" for n in (held + failed, refused, cases, elements, unbounded, failed))))
        return rows

    @property
    def cases(self) -> int:
        return sum(row[2] for row in self.counts.values())


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """What must be finished, whatever is pressed meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Hand:
    """A worker process and what it is at."""

    def __init__(self, plan: Plan, place: int):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_worker, args=(theirs, plan, place), daemon=True)
        self.process.start()
        theirs.close()
        self.place, self.blocks = place, 0
        self.block: int | None = None
        self.skipped: set[int] = set()
        self.number, self.stage, self.target = -1, "start", ""
        self.since = time.monotonic()

    def give(self, block: int, skipped: set[int]) -> None:
        self.block, self.skipped, self.since = block, skipped, time.monotonic()
        self.blocks += 1
        self.connection.send((block, sorted(skipped)))

    def end(self) -> None:
        """Stop the process, whatever it is at."""
        with contextlib.suppress(OSError, ValueError):
            self.connection.send(None)
        self.process.join(0.2 if self.block is not None else 5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


class Campaign:
    """The programs of a plan, one block after another on `jobs` workers, until the time is over."""

    def __init__(self, plan: Plan, jobs: int = 1):
        self.plan, self.jobs = plan, jobs
        self.state = State.read(plan)
        self.hands: list[_Hand] = []
        self.waiting: list[tuple[int, set[int]]] = []  # blocks to look at once more
        self.given = {*self.state.done}
        self.interrupted = False

    def run(self, minutes: float, tell: Callable[[State], None] = lambda state: None) -> State:
        """Go on for some minutes; `tell` is called about once a second.  Ctrl-C ends it too; what is not finished is left for the next
        run."""
        before, started = self.state.seconds, time.monotonic()
        until = started + 60 * minutes
        try:
            self.hands = [_Hand(self.plan, k) for k in range(self.jobs)]
            for hand in self.hands:
                hand.give(*self.next_block())
            while any(hand.block is not None for hand in self.hands):
                for connection in wait([h.connection for h in self.hands if h.block is not None], timeout=1):
                    hand = next(h for h in self.hands if h.connection is connection)
                    try:
                        self.hear(hand, hand.connection.recv(), until)
                    except (EOFError, OSError):
                        self.lost(hand, "the process died")
                self.state.seconds = before + time.monotonic() - started
                for hand in self.hands:
                    if hand.block is not None and time.monotonic() - hand.since > self.plan.limit:
                        self.lost(hand, f"no end in {self.plan.limit:.0f} seconds")
                tell(self.state)
                if time.monotonic() > until + self.plan.limit:
                    break
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            with _undisturbed():
                for hand in self.hands:
                    hand.end()
                self.state.write(self.plan)
        return self.state

    def next_block(self) -> tuple[int, set[int]]:
        if self.waiting:
            return self.waiting.pop()
        block = self.state.next
        while block in self.given or block in self.state.done:
            block += 1
        self.given.add(block)
        return block, set()

    def hear(self, hand: _Hand, message: tuple, until: float) -> None:
        hand.since = time.monotonic()
        if message[0] == "at":
            _, hand.number, hand.stage, hand.target = message
        elif message[0] == "failed":
            if message[2]:
                self.keep(message[1])
        elif message[0] == "shrunk":
            self.keep(message[2], instead_of=message[1])
        else:
            _, block, totals, counts = message
            self.state.finish(block, totals, counts)
            self.state.write(self.plan)
            hand.block = None
            if hand.blocks >= RETIRES:
                hand.end()
                hand = self.replace(hand)
            if time.monotonic() < until:
                hand.give(*self.next_block())

    def replace(self, hand: _Hand) -> _Hand:
        new = _Hand(self.plan, hand.place)
        self.hands[self.hands.index(hand)] = new
        return new

    def lost(self, hand: _Hand, why: str) -> None:
        """A worker that crashed or hangs: its program is a failure, the rest of its block is looked at once more without it."""
        block, number, stage, target = hand.block, hand.number, hand.stage, hand.target
        if hand.process.exitcode is None:
            hand.process.join(1)
        code = hand.process.exitcode
        if code is not None and code < 0:
            why = f"the process died of {signal.Signals(-code).name}"
        hand.end()
        assert block is not None
        text = program_of(self.plan.seed, number).text if number >= 0 else ""
        if "shrinking" not in stage:
            self.keep(Failure(stage, target, _case_seed(self.plan.seed, number), why, text))
        self.state.failed += 1
        self.replace(hand).give(block, {*hand.skipped, number})

    def keep(self, failure: Failure, instead_of: Failure | None = None) -> None:
        """Write a failure's file, and remove that of the program that it was shrunk from."""
        if instead_of is not None and instead_of.name != failure.name:
            (self.plan.keep / instead_of.name).unlink(missing_ok=True)
            if instead_of.name in self.state.failures:
                self.state.failures.remove(instead_of.name)
        _write(self.plan.keep / failure.name, failure.file())
        if failure.name not in self.state.failures:
            self.state.failures.append(failure.name)
        self.state.write(self.plan)


def summary(state: State) -> str:
    """One line: how many programs, and how fast."""
    rate = state.programs / state.seconds * 60 if state.seconds else math.nan
    return (
        f"{state.programs:,} programs ({state.refused:,} refused with typed errors), {state.cases:,} cases, {state.failed:,} failures, "
        f"{state.seconds / 60:.1f} minutes, {rate:.0f} programs a minute"
    )


__all__ = ["Campaign", "Failure", "Plan", "State", "Subject", "again", "build_together", "program_of", "replay", "shrunk", "summary"]
