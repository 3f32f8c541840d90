"""One case of a candidate: laid out, called as its setting says, and everything that is wrong with what came.

In: arguments and a `Setting`.  Out: findings.  The same is asked of smaller arguments when a failure is made small.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import Any

from kgen import check as checker
from kgen.errors import KgenError
from kgen.runtime import joined
from kgen.sized import names
from kgen.types import ELLIPSIS
from kgen.verify import judge
from kgen.verify.candidates import Named
from kgen.verify.memory import PATTERNS, Arena, full
from kgen.verify.plan import AS_DRAWN, BACKWARDS, Setting, contents, far_strides
from kgen.verify.process import Died, Here, NoRoom, Process
from kgen.verify.report import Finding, Kind, Report

LOADING = 300.0  # seconds in which a candidate is built
WAITS = (2.0, 5.0, 10.0, 20.0)  # seconds after which a case is tried again that found a GPU's memory full


class Unloadable(Exception):
    """The candidate cannot be loaded; the message says why."""


class Untriable(Unloadable):
    """It might be loaded on another machine."""


class Held:
    """A candidate in its process, beside the spec.  `kernel` is the spec's, as people call it; `plain` has an axis for each dim."""

    gradients = False

    def __init__(self, kernel: checker.Kernel, named: Named, device: str, timeout: float, memory: int, report: Report):
        self.kernel, self.plain, self.spec = kernel, checker.plain(kernel), kernel.file.source.text
        self.named, self.device, self.timeout, self.memory = named, device, timeout, memory
        self.report = report
        self.arena = Arena()
        self.process: Process | Here | None = None
        self.loaded: dict[str, Any] = {}
        self.takes: list[str] = []
        self.errors = 0.0, 0.0  # of the last case that was judged: the largest error, and the largest relative one
        self.last_numbers: dict[str, Any] = {}
        self.timing = False  # whether the candidate will be timed
        self.advising = True  # whether findings are to say what can be done

    def close(self) -> None:
        if self.process is not None and self.process.alive:
            self.process.end()
        self.arena.close()

    def start(self) -> Process | Here:
        """The candidate's process, with the candidate loaded.  Raises `Unloadable`, and `Died` where loading ends it."""
        if self.process is not None and self.process.alive:
            return self.process
        here = self.named.kind == "here"
        self.process = Here() if here else Process(self.timeout, self.memory, self.device)
        said, _ = self.process.ask("load", LOADING, **self.about())
        if "no room" in said:
            self.process.end()
            raise NoRoom(said["no room"].splitlines()[0])
        if "unloadable" in said:
            self.process.end()
            trace = said.get("trace", "")
            raise (Untriable if said.get("untried") else Unloadable)(said["unloadable"] + (f"\n{trace}" if trace else ""))
        self.loaded, self.takes = said, said["takes"]
        return self.process

    def started(self) -> Process | Here:
        """`start`, which waits where other processes fill the GPU's memory.  Raises `NoRoom` after that."""
        for wait in WAITS:
            try:
                return self.start()
            except NoRoom:
                time.sleep(wait)
        return self.start()

    def about(self) -> dict[str, Any]:
        """What a process is told of the candidate."""
        here = self.named.kind == "here"
        named = self.named.plain() | ({"function": self.named.function} if here else {})
        limit = 0 if here else self.memory
        made = {"named": named, "interface": self.interface(), "device": self.device, "path": self.arena.path, "limit": limit}
        return made | {"timing": self.timing}

    def interface(self) -> dict[str, Any]:
        """What the candidate is called with, for its process."""
        return interface_of(self.kernel)

    def leave_out(self) -> list[str]:
        """The tensors that the candidate does not take, whose places the spec's defaults take from now on."""
        known = {*self.takes, *self.loaded.get("own", ())}
        gone = [p.name for p in self.kernel.params if p.is_tensor and p.optional and p.name not in known]
        if gone:
            self.kernel = checker.left_out(self.kernel, gone)
            self.plain = checker.plain(self.kernel)
        return gone

    def restart(self) -> None:
        """Have the next case start in a process of its own."""
        if self.process is not None and self.process.alive and self.named.kind != "here":
            self.process.end()

    @property
    def ways(self) -> list[str]:
        """In which ways the candidate gives results."""
        if self.loaded.get("destination"):
            return ["destination"]
        return ["fresh", "out"] if self.loaded.get("out") else ["fresh"]

    def filled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments, where numbers that the candidate does not take have their defaults."""
        from kgen.runtime.arguments import default

        known = set(self.takes)
        made = dict(arguments)
        for p in self.plain.params:
            if not p.is_tensor and p.name not in known and p.default is not None:
                made[p.name] = default(p)
        return made

    def findings(self, arguments: dict[str, Any], setting: Setting) -> list[Finding]:
        """What is wrong with a case, whose arguments are those of the plain kernel.  Raises `Refused` where the candidate raises an
        error, and `Unloadable`."""
        for wait in WAITS:
            try:
                return self._once(arguments, setting)
            except NoRoom as error:
                said = str(error)
                self.restart()
                time.sleep(wait)
        self.report.untried.append(f"a case, for want of memory: {said[:200]}")
        return []

    def _once(self, arguments: dict[str, Any], setting: Setting) -> list[Finding]:
        """`findings`, which raises `NoRoom` where other processes fill the GPU's memory."""
        try:
            found = self._findings(self.filled(arguments), setting)
            if setting.side and any(f.kind is Kind.STREAM for f in found):  # what is wrong on any stream is no matter of streams
                found = self._findings(self.filled(arguments), replace(setting, side=False)) or found
            return found
        except Died as died:
            finding = Finding(died.kind, died.message)
            if setting.tall and died.kind in (Kind.HANG, Kind.MEMORY):
                return self._not_tall(died.message)
            if died.kind is Kind.CRASH and setting.ends and self.device == "cpu" and self.named.kind != "here":
                return [self._outside(arguments, setting, finding)]
            return [finding]

    def _outside(self, arguments: dict[str, Any], setting: Setting, crash: Finding) -> Finding:
        """A crash, which is a read outside where there is none with open pages beside the tensors."""
        try:
            self._findings(self.filled(arguments), replace(setting, ends=False, side=False))
        except (Died, Refused):
            return crash
        side = {"end": "behind", "begin": "before"}.get(setting.mode, "beside")
        return replace(crash, kind=Kind.READ, message=f"reads (or writes) {side} a tensor: {crash.message}")

    def left_out(self, setting: Setting) -> set[str]:
        """The parameters that a call leaves out: those for which both the spec and the candidate have a default."""
        if not setting.defaults:
            return set()
        sizes = {n for c in self.kernel.clauses for n in names(c.value)}  # of which sizes follow, so that tensors fit them alone
        return ({p.name for p in self.kernel.params if p.optional or p.default is not None} & set(self.loaded.get("optional", ()))) - sizes

    def _defaulted(self, arguments: dict[str, Any], left: set[str]) -> dict[str, Any]:
        """The arguments without the tensors that are left out; numbers have their defaults."""
        from kgen.runtime.arguments import default

        params = {p.name: p for p in self.plain.params}
        kept = {n: x for n, x in arguments.items() if not (n in left and params[n].is_tensor)}
        return {n: default(params[n]) if n in left else x for n, x in kept.items()}

    def people(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as people have them."""
        if not self.kernel.joined:
            return arguments
        params = {p.name: p for p in self.kernel.params}
        return {name: joined.joined(params[name], x) for name, x in arguments.items()}

    def _findings(self, arguments: dict[str, Any], setting: Setting) -> list[Finding]:
        """`findings`, where the process may die."""
        process = self.start()
        left, pattern = self.left_out(setting), PATTERNS[setting.pattern]
        absent = left & set(self.kernel.optional)
        kernel = checker.left_out(self.kernel, absent) if absent else self.kernel
        arguments = self._defaulted(arguments, left)
        given = self.people(arguments)
        tensors = {name: x for name, x in given.items() if hasattr(x, "numel")}
        numbers = {name: x for name, x in given.items() if name not in tensors and name not in left}
        want = judge.expected(kernel, given, self.device)
        self.last_numbers = numbers
        outs = self._lay(tensors, want, setting, pattern)
        places = [p.plain() for p in self.arena.places.values()]
        said, _ = process.ask("place", size=self.arena.size, places=places, guards=setting.ends, perturb=pattern)
        if "no room" in said:
            raise NoRoom(said["no room"].splitlines()[0])
        if setting.tall:
            return self._tall(process, tensors, numbers, outs, want, setting)
        if setting.graph:
            return self._under_graph(process, given, numbers, outs, want, setting)
        found: list[Finding] = []
        first, spare = None, self._spare(want)
        call: dict[str, Any] = {"numbers": numbers, "outs": outs, "way": setting.way, "side": setting.side, "spare": spare}
        for k, which in enumerate(setting.calls):
            if k:
                given = {n: contents(x, which) for n, x in self.people(arguments).items()}
                want = judge.expected(kernel, given, self.device)
                self._rewrite({n: given[n] for n in tensors}, outs)
                process.ask("refresh")
            said, blobs = process.ask("call", keep=k, **call)
            condition = "on a side stream" if setting.side else ""
            if k:
                condition = f"{condition}, " * bool(condition) + f"in call {k + 1} with the same tensors, which hold other numbers"
            new = self._judged(said, blobs, want, setting, pattern, condition, k)
            if k == 0:
                first = blobs
            process.ask("memory")
            new += self._memory(outs, condition)
            found += [f for f in new if (f.kind, f.result) not in {(g.kind, g.result) for g in found}]
            if found and k == 0:
                return found
        if not found and not want.refusal and first is not None:
            found += self._later(process, setting, first, outs)
        if not found and setting.often and not want.refusal:
            found += self._often(process, call, setting, want, pattern)
        if not found and setting.again:
            found += self._again(process, call, setting, want)
        if not found and setting.alone:
            found += self._alone(arguments, setting, first or [])
        return found

    def lay_out(self, tensors: dict[str, Any], given: dict[str, Any]) -> list[str]:
        """Put a call's tensors into the shared memory; the names of those that take results."""
        want = judge.expected(self.kernel, given, self.device)
        return self._lay(tensors, want, Setting("middle", way=self.ways[0]), PATTERNS[0])

    def _lay(self, tensors: dict[str, Any], want: judge.Expected, setting: Setting, pattern: int) -> list[str]:
        """Put arguments and, where they are passed, results into the shared memory; the names of the latter."""
        self.arena.reset()
        mode = "middle" if self.device == "cuda" else setting.mode
        written = {r.state for r in self.kernel.results if r.state}
        for name, x in tensors.items():
            far = far_strides(x, *setting.far) if setting.far and name not in written else None
            self.arena.lay(name, x, mode, pattern, far)
        if setting.way not in ("out", "destination") or want.refusal:
            return []
        outs = []
        for r, w in zip(self.kernel.results, want.results, strict=True):
            if not r.state:
                outs.append(f"out {r.name}")
                made = self._poisoned(w, pattern, setting.between)
                self.arena.lay(outs[-1], made, mode, pattern, far_strides(made, *setting.far) if setting.far else None)
        return outs

    @staticmethod
    def _poisoned(want: Any, pattern: int, between: bool = False) -> Any:
        """A tensor for a result, filled with the pattern: dense, or every second place of a larger one."""
        import torch

        dtype = getattr(torch, judge.TORCH_NAMES[want.dtype])
        shape = tuple(want.exact.shape)
        whole = (*shape[:-1], 2 * shape[-1] + 1) if between and shape else shape
        if dtype is torch.bool:
            made = torch.ones(whole, dtype=dtype)
        else:
            made = torch.full((math.prod(whole) * dtype.itemsize,), pattern, dtype=torch.uint8).view(dtype).reshape(whole)
        return made[..., : whole[-1] - 1 : 2] if whole != shape else made  # no two dims merge

    def _rewrite(self, tensors: dict[str, Any], outs: list[str]) -> None:
        """Give the tensors other contents, where they lie."""
        for name, x in tensors.items():
            self.arena.write(name, x)
        for name in (n for n in outs if not self.arena.places[n].far):
            self.arena.before[name] = self.arena.bytes[self.arena.places[name].begin : self.arena.places[name].end].clone()

    @staticmethod
    def _spare(want: judge.Expected) -> list[int]:
        """The bytes of each result."""
        import torch

        return [w.exact.numel() * getattr(torch, judge.TORCH_NAMES[w.dtype]).itemsize for w in want.results]

    def _judged(
        self, said: dict[str, Any], blobs: Any, want: judge.Expected, setting: Setting, pattern: int, condition: str, k: int
    ) -> list[Finding]:
        """What is wrong with an answer to a call.  Raises `Refused` where the first call raises."""
        self.report.cases += 1
        if raised := said.get("raised"):
            if want.refusal:
                return []
            if raised["type"] == "WrongCount":
                return [Finding(Kind.RETURNED, raised["text"], condition)]
            if full(raised["text"]) and not said.get("hungry"):
                raise NoRoom(raised["text"].splitlines()[0])
            if raised["type"] in ("MemoryError", "OutOfMemoryError") or "can't allocate memory" in raised["text"]:
                return [Finding(Kind.MEMORY, f"{raised['type']}: {raised['text'][:300]}", condition)]
            raise Refused(raised, condition, bool(k))
        if want.refusal:  # a maximum of no elements: the formula says nothing of what comes
            return []
        got = judge.tensors_of(said["results"], blobs)
        self.errors = judge.errors(want, got)
        found = judge.judged(self.kernel, want, said["results"], got, self.device, pattern, self.report)
        for late in said.get("late", []):
            name = self.kernel.results[late].name
            found.append(Finding(Kind.STREAM, "is written after the caller's stream has read it", condition, result=name))
        if self.advising:
            found = [replace(f, help=judge.advice(self.kernel, want, f, said["results"], got, self.device)) for f in found]
        if setting.side and found:
            found = [replace(f, kind=Kind.STREAM) if f.kind in (Kind.VALUE, Kind.NAN, Kind.UNWRITTEN) else f for f in found]
        if k and found:
            found = [self._remembered(f, got) for f in found]
        return [replace(f, condition=f.condition or condition) for f in found]

    def _remembered(self, f: Finding, got: list[Any]) -> Finding:
        """A wrong element of a later call, which is an earlier answer, or a wrong one."""
        return replace(f, kind=Kind.REMEMBERED) if f.kind in (Kind.VALUE, Kind.NAN) else f

    def _memory(self, outs: list[str], condition: str) -> list[Finding]:
        """What was written beside the results."""
        may = {r.state for r in self.kernel.results if r.state} | set(outs)
        found = []
        for w in self.arena.wrongly_written(may):
            name = w.name.removeprefix("out ")
            if w.inside:
                found.append(Finding(Kind.INPUT, f"is written to, at {list(w.at)}", condition, result=name, at=w.at))
            else:
                place = self.arena.places[w.name]
                where = f"{-w.byte} bytes before" if w.byte < 0 else f"at byte {w.byte} of {place.size} of" if w.byte < place.size else \
                    f"{w.byte - place.size} bytes behind the end of"  # fmt: skip
                found.append(Finding(Kind.OUTSIDE, f"writes outside of the elements, {where} its memory", condition, result=name))
        return found

    def _later(self, process: Process | Here, setting: Setting, first: Any, outs: list[str]) -> list[Finding]:
        """Whether the first call's results are still what they were."""
        if outs or any(r.state for r in self.kernel.results):
            return []
        _, now = process.ask("read", keep=0, wait=setting.later)
        found = []
        for r, a, b in zip(self.kernel.results, first, now, strict=True):
            if a != b:
                when = "with a later call, or with its arguments" if len(setting.calls) > 1 else "after the call returned"
                found.append(Finding(Kind.CHANGED, f"changes {when}", result=r.name))
        return found

    def _again(self, process: Process | Here, call: dict[str, Any], setting: Setting, want: judge.Expected) -> list[Finding]:
        """Whether more runs have the same bits."""
        bits = []
        for k in range(setting.again):
            self._restored(process)
            said, blobs = process.ask("call", keep=8 + k, **call)
            if "raised" in said:
                raise Refused(said["raised"], "in another run", True)
            bits.append(blobs)
        for k, r in enumerate(self.kernel.results):
            if len({b[k] for b in bits}) > 1:
                return [Finding(Kind.RUNS, f"has other bits in one of {setting.again} runs", result=r.name)]
        return []

    def _restored(self, process: Process | Here) -> None:
        """Give the tensors what they held before a call that wrote some of them."""
        if self.arena.places and any(r.state for r in self.kernel.results):
            for name, before in list(self.arena.before.items()):
                p = self.arena.places[name]
                self.arena.bytes[p.begin : p.end] = before
            process.ask("refresh")

    def _often(self, process: Process | Here, call: dict[str, Any], setting: Setting, want: judge.Expected, pattern: int) -> list[Finding]:
        """What is wrong with more runs, of which those are judged that have other bits than the first of them."""
        first = None
        for k in range(setting.often):
            self._restored(process)
            said, blobs = process.ask("call", keep=8, **call)
            if first is None or blobs != first:
                if found := self._judged(said, blobs, want, setting, pattern, f"in run {k + 1} of the same call", 0):
                    return found
            first = first or blobs
        return []

    def _alone(self, arguments: dict[str, Any], setting: Setting, whole: Any) -> list[Finding]:
        """Whether a row alone has the bits that it has in its batch."""
        params = {p.name: p for p in self.plain.params}
        rows = {n: x for n, x in arguments.items() if ELLIPSIS in (params[n].dims or ())}
        count = max(x.shape[0] for x in rows.values())
        for k in (0, count - 1):
            one = {n: x[k : k + 1].clone() if n in rows and x.shape[0] == count else x for n, x in arguments.items()}
            process = self.start()
            given = self.people(self.filled(one))
            want = judge.expected(self.kernel, given, self.device)
            outs = self._lay({n: x for n, x in given.items() if hasattr(x, "numel")}, want, setting, PATTERNS[setting.pattern])
            places = [p.plain() for p in self.arena.places.values()]
            process.ask("place", size=self.arena.size, places=places, guards=setting.ends, perturb=PATTERNS[setting.pattern])
            numbers = {n: x for n, x in given.items() if not hasattr(x, "numel")}
            said, blobs = process.ask("call", keep=0, numbers=numbers, outs=outs, way=setting.way, side=False, spare=self._spare(want))
            if "raised" in said:
                raise Refused(said["raised"], "with a row alone", True)
            self.report.cases += 1
            for r, a, b in zip(self.kernel.results, whole, blobs, strict=True):
                if ELLIPSIS in r.dims and len(a) == count * len(b) and a[k * len(b) : (k + 1) * len(b)] != b:
                    return [Finding(Kind.BATCH, f"row {k} alone has other bits than among {count}", "a row alone", result=r.name)]
        return []

    def _tall(
        self, process: Process | Here, tensors: dict[str, Any], numbers: dict, outs: list[str], want: judge.Expected, setting: Setting
    ) -> list[Finding]:
        """A call on rows that are repeated until there are more elements than 32 bits count: some of them, the last among them."""
        params = {p.name: p for p in self.kernel.params}
        repeated = [n for n in tensors if ELLIPSIS in (params[n].dims or ())]
        call: dict[str, Any] = {"numbers": numbers, "outs": outs, "way": setting.way, "repeated": repeated + outs, "elements": setting.tall}
        fresh = [0 if r.state or outs else n for r, n in zip(self.kernel.results, self._spare(want), strict=True)]
        said, _ = process.ask("tall", spare=fresh, **call)
        if raised := said.get("raised"):
            return self._not_tall(f"{raised['type']}: {raised['text'].splitlines()[0] if raised['text'] else ''}")
        if "no room" in said:
            return self._not_tall(said["no room"])
        self.report.cases += 1
        times, block = said["times"], tensors[repeated[0]].shape[0]
        shapes = [[times * block, *w.exact.shape[1:]] for w in want.results]
        where = f"of {times * block} rows, more elements than 32 bits count"
        for r, s, shape in zip(self.kernel.results, said["results"], shapes, strict=True):
            if not s["type"] and s["shape"] != shape:
                return [Finding(Kind.SHAPE, f"shape {s['shape']}, not {shape}", where, result=r.name, expected=tuple(shape))]
            if s["type"]:
                return [Finding(Kind.RETURNED, f"is {s['type']}, no plain tensor", where, result=r.name)]
        row = max(x.numel() // block for n, x in tensors.items() if n in repeated)
        parts = {0, times - 1, *(min(times - 1, (1 << bits) // row // block) for bits in (31, 32))}
        parts |= set(random.Random(times).sample(range(times), min(times, 16)))
        at = sorted(k * block for k in parts)
        _, blobs = process.ask("rows", at=at, count=block)
        own = [{"shape": list(w.exact.shape), "stride": _dense(w.exact.shape)} for w in want.results]
        few = [s | o for s, o in zip(said["results"], own, strict=True)]
        for k, a in enumerate(at):
            got = judge.tensors_of(few, list(blobs[k * len(few) : (k + 1) * len(few)]))
            found = judge.judged(self.kernel, want, few, got, self.device, PATTERNS[setting.pattern], self.report)
            if found:
                return [replace(f, condition=f"from row {a} {where}") for f in found]
        return []

    def _not_tall(self, why: str) -> list[Finding]:
        """That a candidate was not held to more elements than 32 bits count, which it need not take."""
        self.report.refused.append(f"more elements than 32 bits count: {why}")
        return []

    def _under_graph(
        self, process: Process | Here, given: dict[str, Any], numbers: dict, outs: list[str], want: judge.Expected, setting: Setting
    ) -> list[Finding]:
        """A call that is recorded in a CUDA graph, and replayed on these and on other numbers."""
        if want.refusal:
            return []
        pattern = PATTERNS[setting.pattern]
        said, _ = process.ask("capture", numbers=numbers, outs=outs, way=setting.way, keep=0)
        if "raised" in said:
            process.end()  # a capture that failed leaves its stream in disorder
            raise Refused(said["raised"], "under a CUDA graph", False)
        found: list[Finding] = []
        tensors = [n for n, x in given.items() if hasattr(x, "numel")]
        for k, which in enumerate((AS_DRAWN, BACKWARDS)):
            now = {n: contents(x, which) for n, x in given.items()}
            want = judge.expected(self.kernel, now, self.device)
            self._rewrite({n: now[n] for n in tensors}, outs)
            process.ask("refresh")
            said, blobs = process.ask("replay", keep=20 + k)
            where = f"in replay {k + 1} of a CUDA graph"
            found += [replace(f, kind=Kind.GRAPH) for f in self._judged(said, blobs, want, setting, pattern, where, 0)]
            if found:
                break
        return found


def _dense(shape: Any) -> list[int]:
    """The strides of a dense tensor."""
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def interface_of(kernel: checker.Kernel) -> dict[str, Any]:
    """A kernel's parameters and results as plain data."""
    return {
        "params": [[p.name, p.is_tensor, p.default is not None or p.optional] for p in kernel.params],
        "results": [[r.name, r.state or ""] for r in kernel.results],
        "spec": kernel.file.source.text,
    }


class Refused(Exception):
    """The candidate raised an error: its type, words and trace, and under which condition; `late` where an earlier call went well."""

    def __init__(self, raised: dict[str, Any], condition: str, late: bool):
        super().__init__(f"{raised['type']}: {raised['text']}")
        self.raised, self.condition, self.late = raised, condition, late


__all__ = ["Held", "KgenError", "Refused", "Unloadable"]
