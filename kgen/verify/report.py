"""What an examination of a candidate gives: findings, each of a kind, and what was held, in a report."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any


class Kind(str, enum.Enum):
    """What is wrong with a candidate."""

    VALUE = "value"  # an element lies outside of its bound
    NAN = "nan"  # an element is NaN and is not to be, or the other way round
    SIGN = "sign"  # a zero has the sign that the formula does not give it
    SHAPE = "shape"  # of a result
    DTYPE = "dtype"  # of a result
    STRIDES = "strides"  # elements of a result share memory
    RETURNED = "returned"  # something else than the results: a number of them, a type that is no plain tensor, another device
    RAISES = "raises"  # an error where the call has a meaning
    INPUT = "input"  # wrote to an argument that is not a result
    OUTSIDE = "outside"  # wrote memory beside a tensor's elements
    READ = "read outside"  # read memory beside a tensor, so that the process died of it
    UNWRITTEN = "unwritten"  # an element that nobody wrote: it holds what the memory held before
    REMEMBERED = "remembered"  # an answer to an earlier call with the same sizes or the same memory
    CHANGED = "changed later"  # a result changed after the call returned, or with a later call or its arguments
    RUNS = "runs differ"  # other bits in another run (held with `deterministic`)
    BATCH = "batch"  # a row alone has other bits than in a batch (held with `batch_invariant`)
    STREAM = "stream"  # wrong on a side stream, or work that the caller's stream does not wait for
    GRAPH = "graph"  # wrong, or refused, under a CUDA graph
    RACE = "race"  # threads of a block do not wait for one another (held with `sanitize`)
    CRASH = "crash"  # the process ended by a signal, or the CUDA context was lost
    HANG = "hang"  # no answer within the time limit
    MEMORY = "memory"  # more memory than the limit
    OWN = "own"  # calls one of torch's operators itself (held with `own`)
    CLOCK = "clock"  # with `bench`: CUDA's events and the synchronised clock tell different times, or a clock was replaced
    LOADS = "loads"  # the candidate cannot be loaded or built


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong: its kind, in words, in which case and of what.

    `condition` says how the call was made ("a side stream", "the second call with other contents", ""), `case` its arguments in words,
    `result` which result (or which tensor: of INPUT, OUTSIDE and READ), `at` the element, which is to be `expected` within `bound`.
    `number` is the case's in the order of the examination.  `gradient` tells findings of `backward` from those of the forward.
    `python` is a program that shows it and stands alone, "" where none was made; `small` is `case` after it was made small.  `help` is what
    can be done about it, or "" """

    kind: Kind
    message: str
    condition: str = ""
    case: str = ""
    result: str = ""
    at: tuple[int, ...] = ()
    expected: Any = None
    bound: float = 0.0
    number: int = 0
    gradient: bool = False
    small: str = ""
    python: str = ""
    help: str = ""

    def json(self) -> dict[str, Any]:
        """The finding as plain data; numbers that JSON lacks are text."""
        import math

        def plain(x: Any) -> Any:
            if isinstance(x, float) and not math.isfinite(x):
                return str(x)
            return x if isinstance(x, (bool, int, float, str, type(None))) else list(x) if isinstance(x, tuple) else str(x)

        return {k: plain(v.value if isinstance(v, Kind) else v) for k, v in self.__dict__.items()}


#: What an exit status says: PASSED, FAILED, and that there were things which could not be tried (2 is that of a wrong command line).
PASSED, FAILED, UNTRIED = 0, 1, 3


@dataclass(repr=False)
class Report:
    """What an examination found.

    `candidate` and `spec` are names; `findings` what is wrong (without `every`, the first case alone that fails), `refused` dtypes and
    layouts that the candidate says it does not take, `operators` those of torch that it called itself with how often (of one case), and
    `untried` what could not be tried, each a line with its reason.  `cases` counts calls that were judged, `held` by what they were held
    to; `elements` those of results, `fraction` is the largest part of its bound that an error took.  `seconds` is the whole, `found_in`
    those to the first finding.  `bench` has rows of figures, `trace` what goes to FlashInfer-Bench."""

    candidate: str
    spec: str
    device: str = "cpu"
    cases: int = 0
    elements: int = 0
    unbounded: int = 0
    fraction: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    operators: dict[str, int] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    found_in: float | None = None
    bench: list[dict[str, Any]] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with what was tried, and something was."""
        return not self.findings and self.cases > 0

    @property
    def status(self) -> int:
        """The exit status: FAILED with findings, UNTRIED where anything could not be tried, else PASSED."""
        return FAILED if self.findings else UNTRIED if self.untried or not self.cases else PASSED

    def json(self) -> dict[str, Any]:
        """The report as plain data."""
        made = {k: v for k, v in self.__dict__.items() if k != "findings"}
        return made | {"ok": self.ok, "status": self.status, "findings": [f.json() for f in self.findings]}

    def __str__(self) -> str:
        from kgen.verify import shown

        return shown.table([self])

    __repr__ = __str__
