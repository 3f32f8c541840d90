"""Campaigns of random programs: what `kgen fuzz` runs.

In: a seed, targets, a folder.  Out: a `State` of counts, and in the folder a file for each failure, shrunk.  Worker processes take
blocks of programs, so that a crash or a hang costs one.  The state is written after every block, and a campaign with the same seed,
targets and folder goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from kgen.errors import KgenError
from kgen.files import write_file
from kgen.testing.fuzz import SHRINKING, Failure, Subject, case_seed, looked_at, program_of, shrunk
from kgen.testing.properties import ALONE, COMPILED, ON_TARGET
from kgen.testing.quickly import launch_quickly, optimised_little, wait_without_spinning

BLOCK = 8  # programs of a block, which share C++ builds
SMALL_BLOCK = 2  # where nothing is shared and a program takes seconds: what the end cuts off is not counted
LIMIT = 300.0  # seconds without a word from a worker: a machine may be busy
BUILDS = 6  # so many times that while a block is built: half a minute of g++ on an idle machine, of many kernels in a row
#: Levels at which blocks build C++ in turn: g++ takes most of a campaign's time; the last makes vectors as -O3 does, in a quarter of the
#: time.  At -O0 NVRTC optimises little too, else as users have it.
LEVELS = ("-O0", "-O0", "-O0", "-O1 -ftree-vectorize")
GRACE = 20.0  # seconds that blocks may go on when the time is over
ALIKE = 3  # failures with the same message but for numbers that are shrunk and kept
RETIRES = 320  # programs after which a worker makes room for a new one: libraries that were loaded stay in a process
#: What workers import, once for all of them; the last are those of calls of torch's and Triton's functions.
PRELOADED = (
    "torch", "kgen.testing.campaigns", "kgen.backends.cpp", "kgen.backends.cuda", "kgen.backends.triton", "kgen.grad",
    "kgen.runtime.kernel", "kgen.runtime.launchers", "kgen.runtime.nvrtc", "torch._refs", "torch.fx.experimental.symbolic_shapes",
    "triton", "triton.compiler.compiler", "triton.backends.nvidia.compiler",
)  # fmt: skip
HEADS = ("property", "target", "programs", "refused", "cases", "elements", "unbounded", "failures", "core-seconds")


@dataclass(frozen=True)
class Plan:
    """What a campaign runs: its seed, targets, and the folder where it keeps what it found; the first so many programs of the seed (whole
    blocks; None: as many as there is time for); on targets that are not here (`compiled`) what is compiled without them."""

    seed: int
    targets: tuple[str, ...]
    keep: Path
    limit: float = LIMIT
    programs: int | None = None
    compiled: bool = False
    shrinking: float = SHRINKING

    @property
    def alone(self) -> tuple[str, ...]:
        """The properties that run nothing: they hold whatever the target, and are left to campaigns on the CPU."""
        return () if self.on_gpus else tuple(ALONE)

    @property
    def on_gpus(self) -> bool:
        """Whether the targets are those of GPUs, whose kernels share no builds."""
        return {*self.targets} <= {"cuda", "triton"}

    @property
    def block(self) -> int:
        """How many programs a worker takes at a time."""
        return SMALL_BLOCK if self.on_gpus else BLOCK



# ------------------------------------------------------------------------------------------------ workers


def _worker(connection: Any, plan: Plan, place: int) -> None:
    """`_work`, in a process of its own: it ends when the campaign has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the campaign ends its workers itself
    if multiprocessing.parent_process() is not None:
        os.setpgid(0, 0)  # and their compilers with them, which would each print what they were at
    with contextlib.suppress(EOFError, ConnectionError):
        _work(connection, plan, place)


def _work(connection: Any, plan: Plan, place: int) -> None:
    """Take blocks and look at their programs; every step is told before it is taken."""
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if not plan.compiled and any(t in ("cuda", "triton") for t in plan.targets):
        wait_without_spinning()
        torch.cuda.set_device(place % torch.cuda.device_count())
    if "triton" in plan.targets:
        launch_quickly()
    alike: dict[str, int] = {}
    while (task := connection.recv()) is not None:
        block, skipped = task
        counts: dict[str, list[int]] = {}
        totals, spent = {"programs": 0, "refused": 0, "failed": 0}, _Spent()
        subjects, numbers = [], []
        level = LEVELS[block % len(LEVELS)]
        vectors = level == LEVELS[-1] and not plan.on_gpus  # where a value is computed anew by other code, gradients see it
        for number in range(block * plan.block, (block + 1) * plan.block):
            if number in skipped:
                continue
            connection.send(("at", number, "check", ""))
            made = program_of(plan.seed, number)
            totals["programs"] += 1
            try:
                subjects.append(Subject(made.text, case_seed(plan.seed, number), gradients=vectors or number % 2 == 0))
                subjects[-1].sampled = True
                numbers.append(number)
            except KgenError:
                totals["refused"] += 1
            except Exception as error:
                totals["failed"] += 1
                alike[repr(error)] = alike.get(repr(error), 0) + 1
                connection.send(("failed", Failure("check", "", 0, repr(error), made.text), alike[repr(error)] <= ALIKE))
        tell = partial(_told, connection, numbers, spent)
        held = COMPILED if plan.compiled else ON_TARGET
        for k, name, target, what, said in _at_level(plan, level, looked_at(subjects, plan.targets, tell, level, plan.alone, held)):
            row = counts.setdefault(f"{name} {target}", [0] * 6)  # held, refused, cases, elements, unbounded, failed
            row[{"held": 0, "refused": 1, "failed": 5}[what]] += 1
            if what == "held":
                row[2] += said.cases
                row[3] += said.elements
                row[4] += said.unbounded
            elif what == "failed":
                totals["failed"] += 1
                alike[said.kind] = alike.get(said.kind, 0) + 1
                connection.send(("failed", said, alike[said.kind] <= ALIKE))
                if target in ("cuda", "triton") and not plan.compiled and not _alive():
                    connection.send(("broken",))
                    return
                if alike[said.kind] <= ALIKE and plan.shrinking:
                    tell(k, f"{name} (shrinking)", target)
                    connection.send(("shrunk", said, shrunk(said, min(plan.shrinking, plan.limit / 2))))
        spent.on("")
        connection.send(("done", block, totals, counts, spent.milliseconds))


def _at_level(plan: Plan, level: str, looked: Iterable[Any]) -> Iterator[Any]:
    """What is looked at, with NVRTC at the level of C++."""
    little = level == LEVELS[0] and "cuda" in plan.targets
    with optimised_little() if little else contextlib.nullcontext():
        yield from looked


def _alive() -> bool:
    """Whether the GPU still takes work from this process: an illegal instruction ends that."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


class _Spent:
    """The milliseconds of processors, of compilers too, that went into each property or stage, by what `State.counts` calls it."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, int] = {}
        self.stage, self.since = "check ", sum(os.times()[:4])

    def on(self, stage: str) -> None:
        """From here on it is this stage."""
        now = sum(os.times()[:4])
        self.milliseconds[self.stage] = self.milliseconds.get(self.stage, 0) + round(1000 * (now - self.since))
        self.stage, self.since = stage, now


def _told(connection: Any, numbers: list[int], spent: _Spent, k: int, name: str, target: str) -> None:
    spent.on(f"{name} {target}")
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
    block: int = BLOCK
    spent: dict[str, int] = field(default_factory=dict)  # milliseconds of processors, by property and target, or stage

    @staticmethod
    def path(plan: Plan) -> Path:
        return plan.keep / f"seed-{plan.seed}-{'-'.join(plan.targets)}{'-compiled' * plan.compiled}.json"

    @classmethod
    def read(cls, plan: Plan) -> State:
        """The state of an earlier run with this plan, else a new one."""
        try:
            found = json.loads(cls.path(plan).read_text(encoding="utf-8"))
            found["targets"] = tuple(found["targets"])
            if (state := cls(**found)).block == plan.block:
                return state
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return cls(plan.seed, plan.targets, block=plan.block)

    def write(self, plan: Plan) -> None:
        write_file(self.path(plan), json.dumps(self.__dict__, indent=1))

    @property
    def milliseconds(self) -> int:
        return sum(self.spent.values())

    def finish(self, block: int, totals: dict[str, int], counts: dict[str, list[int]], spent: dict[str, int]) -> None:
        self.done.append(block)
        self.programs += totals["programs"]
        self.refused += totals["refused"]
        for stage, milliseconds in spent.items():
            self.spent[stage] = self.spent.get(stage, 0) + milliseconds
        for key, row in counts.items():
            mine = self.counts.setdefault(key, [0] * 6)
            self.counts[key] = [a + b for a, b in zip(mine, row, strict=True)]
        self.failed += totals["failed"]  # more than the table's, where a program fails before a property is looked at
        while self.next in self.done:
            self.done.remove(self.next)
            self.next += 1

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a row for each property and target; then those of stages that hold nothing and take time, such as C++ builds."""
        order = [*ALONE, *ON_TARGET, *COMPILED]
        rows = []
        for key in sorted({**self.counts, **self.spent}, key=lambda k: (order.index(n) if (n := k.split()[0]) in order else 99, k)):
            name, _, target = key.partition(" ")
            cells = [""] * 6
            if key in self.counts:
                held, refused, cases, elements, unbounded, failed = self.counts[key]
                cells = [f"{n:,}" for n in (held + failed, refused, cases, elements, unbounded, failed)]
            rows.append((name, target, *cells, f"{self.spent.get(key, 0) / 1000:,.1f}"))
        return rows

    @property
    def cases(self) -> int:
        return sum(row[2] for row in self.counts.values())


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


def killed(process: Any) -> None:
    """Kill a worker and the compilers that it has started, which would run on and hold the campaign's output open."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # before it has a group of its own there are none
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


class _Hand:
    """A worker process and what it is at."""

    def __init__(self, plan: Plan, place: int):
        context = multiprocessing.get_context("forkserver")  # which imports once for all workers
        context.set_forkserver_preload(list(PRELOADED))
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

    def stop(self) -> None:
        """Have the process end, at once if it is at a block: one that uses a GPU takes a second to go, many of them do so together."""
        with contextlib.suppress(OSError, ValueError):
            self.connection.send(None)
        if self.block is not None:
            killed(self.process)

    def end(self) -> None:
        """Stop the process, whatever it is at."""
        self.stop()
        self.process.join(5)
        if self.process.is_alive():
            killed(self.process)
            self.process.join()
        self.connection.close()


class Campaign:
    """The programs of a plan, one block after another on `jobs` workers, until they are done or the time is over."""

    def __init__(self, plan: Plan, jobs: int = 1, said: Callable[[Failure, Path], None] = lambda failure, path: None):
        """`said` is told of each failure that is kept, when it is found and once more when it has become smaller."""
        self.plan, self.jobs, self.said = plan, jobs, said
        self.state = State.read(plan)
        self.hands: list[_Hand] = []
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
                self.occupy(hand)
            while any(hand.block is not None for hand in self.hands):
                for connection in wait([h.connection for h in self.hands if h.block is not None], timeout=1):
                    hand = next(h for h in self.hands if h.connection is connection)
                    try:
                        self.hear(hand, hand.connection.recv(), until)
                    except (EOFError, OSError):
                        self.lost(hand, "the process died")
                self.state.seconds = before + time.monotonic() - started
                for hand in self.hands:
                    limit = self.plan.limit * (BUILDS if hand.stage == "builds" else 1)
                    if hand.block is not None and time.monotonic() - hand.since > limit:
                        self.lost(hand, f"no end in {limit:.0f} seconds")
                tell(self.state)
                if time.monotonic() > until + GRACE:
                    break
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            with _undisturbed():
                self.state.write(self.plan)
                for hand in self.hands:
                    hand.stop()
                for hand in self.hands:
                    hand.end()
        return self.state

    def next_block(self) -> int | None:
        """The number of the next block that is to be looked at; None where no program is left."""
        block = self.state.next
        while block in self.given or block in self.state.done:
            block += 1
        self.given.add(block)
        return block if self.plan.programs is None or block * self.plan.block < self.plan.programs else None

    def occupy(self, hand: _Hand) -> None:
        """Give a hand what is next, if anything is left."""
        if (block := self.next_block()) is not None:
            hand.give(block, set())

    def hear(self, hand: _Hand, message: tuple, until: float) -> None:
        """Act on a worker's message (where it is, a failure, what that shrank to, a block that is done); `until` is when the
        campaign ends."""
        hand.since = time.monotonic()
        if message[0] == "at":
            _, hand.number, hand.stage, hand.target = message
        elif message[0] == "failed":
            if message[2]:
                self.keep(message[1])
        elif message[0] == "broken":
            self.again_without(hand)
        elif message[0] == "shrunk":
            self.keep(message[2], instead_of=message[1])
        else:
            self.state.finish(*message[1:])
            self.state.write(self.plan)
            hand.block = None
            if hand.blocks * self.plan.block >= RETIRES:
                hand.end()
                hand = self.replace(hand)
            if time.monotonic() < until:
                self.occupy(hand)

    def replace(self, hand: _Hand) -> _Hand:
        new = _Hand(self.plan, hand.place)
        self.hands[self.hands.index(hand)] = new
        return new

    def lost(self, hand: _Hand, why: str) -> None:
        """A worker that crashed or hangs: its program is a failure, the rest of its block is looked at once more without it."""
        number, stage, target = hand.number, hand.stage, hand.target
        if hand.process.exitcode is None:
            hand.process.join(1)
        code = hand.process.exitcode
        if code is not None and code < 0:
            why = f"the process died of {signal.Signals(-code).name}"
        text = program_of(self.plan.seed, number).text if number >= 0 else ""
        if "shrinking" not in stage:
            self.keep(Failure(stage, target, case_seed(self.plan.seed, number), why, text))
        self.again_without(hand)

    def again_without(self, hand: _Hand) -> None:
        """Give the block of a hand that is of no use any more to another one, without the program that it was at."""
        block, number = hand.block, hand.number
        assert block is not None
        hand.end()
        self.state.failed += 1
        self.replace(hand).give(block, {*hand.skipped, number})

    def keep(self, failure: Failure, instead_of: Failure | None = None) -> None:
        """Write a failure's file, and remove that of the program that it was shrunk from.  Where it cannot be written the error says what
        it would have held."""
        try:
            write_file(self.plan.keep / failure.name, failure.file())
        except KgenError as error:
            raise KgenError(f"{error}\n{failure.file()}") from None
        if instead_of is not None and instead_of.name != failure.name:
            (self.plan.keep / instead_of.name).unlink(missing_ok=True)
            if instead_of.name in self.state.failures:
                self.state.failures.remove(instead_of.name)
        if failure.name not in self.state.failures:
            self.state.failures.append(failure.name)
        self.state.write(self.plan)
        self.said(failure, self.plan.keep / failure.name)


def summary(state: State) -> str:
    """One line: how many programs, and how fast."""
    rate = state.programs / state.seconds * 60 if state.seconds else math.nan
    failed = max(state.failed, len(state.failures))  # those of blocks that the end cut off are kept, not counted
    return (
        f"{state.programs:,} programs ({state.refused:,} refused with typed errors), {state.cases:,} cases, {failed:,} failures, "
        f"{state.seconds:,.0f} seconds, {rate:.0f} programs a minute"
        + (f", {state.milliseconds / 1000 / state.programs:.1f} core-seconds each" if state.programs else "")
    )
