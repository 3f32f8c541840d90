"""What results are to be, and what is wrong with those that came.

In: a spec, arguments, and results as a candidate's process gives them.  Out: findings.  The bound of an element is that of `kgen check`
(`testing/bounds.py`), for a kernel of which nothing is known but that it computes in f32 (f64 where one is): its sums may have any order, a
sum about a peak may be made while that moves, and since the same formula can be written with a few operators more (a product with a
reciprocal for a quotient)

    three terms and more that are added one by one may be added in any order: each addition may round what all of them come to;
    an error before the last rounding may be `SLACK` times as large, and two roundings of the dtype computed in larger, where the formula
    rounds at all (x * 6 / 6 for x);
    an exponential may vanish a little too early (`FADING`), and with it what it is a factor of;
    of a number of f32 the exponential may be that of 2, of x log2(e): its argument is rounded once more;
    a zero has either sign where it is a product with a number that its error may carry over 0, or with a sum, which may be written as the
    sum of products; and where it is relu's of -0.0, the greater of -0.0 and 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kgen import check as checker
from kgen.errors import KgenError
from kgen.ops import OPS, REDUCTIONS
from kgen.runtime.joined import joined
from kgen.testing import checks
from kgen.testing.bounds import FORMATS, Bounded, sums_about, ulp
from kgen.testing.correlated import Correlated
from kgen.types import TORCH, Float
from kgen.verify.report import Finding, Kind, Report

SLACK = 4.0
#: Operators that fade out: of sigmoid(x) and 1 / (1 + exp(-x)) one has vanished where the other is still a small number.
FADING = frozenset({"exp", "exp2", "expm1", "sigmoid", "sigmoid_slope", "erfc", "tanh", "sinh", "cosh", "pow"})
FADED = {"f32": 2.0**-118, "f64": 2.0**-1000}
#: Whose functions' bounds hold on a device: of several the widest.
TARGETS = {"cpu": ("cpp",), "cuda": ("cuda", "triton")}
#: Operators that keep digits which another way to write them loses.
CANCELLING = {"erfc": "1 - erf(x)", "expm1": "exp(x) - 1", "log1p": "log(1 + x)", "sigmoid": "0.5 + 0.5 * tanh(0.5 * x)"}
DIGITS = {"f32": 2.0**-24, "f64": 2.0**-53}
KINDS = {"value": Kind.VALUE, "nan": Kind.NAN, "shape": Kind.SHAPE, "dtype": Kind.DTYPE}


class Foreign(Correlated):
    """The bounds of a kernel that somebody else wrote."""

    def __init__(self, kernel: checker.Kernel, arguments: dict[str, Any], target: str, cancelling: bool = False):
        """As `Analysis`; `cancelling` grants the digits that the other ways of CANCELLING lose."""
        super().__init__(kernel, arguments, target)
        self.cancelling = cancelling
        self.about = sums_about(kernel)
        self.powers = {a.path[0]: total for total, a in self.about.items() if a.path}
        self.centres = {a.shift: 0.0 for a in self.about.values() if a.row.about == "mean"}
        self.products = {node for a in self.about.values() for node in a.path[1:]}
        self.terms: dict[int, Any] = {}  # of each sum of two and more: what the magnitudes of its terms come to

    def depth(self, count: int) -> int:
        return max(0, count - 1)

    def granted(self, error: Any, x: Any) -> Any:
        torch = self.torch
        if error is None:
            return None
        more = SLACK * error + max((FADED[self.compute(v)] for v in self.kernel.values if self.fades(v)), default=0.0)
        if not (torch.is_tensor(x) and x.dtype.is_floating_point and self.rounds):
            return more
        known = torch.isfinite(x) & (x != 0)
        return more + torch.where(known, ulp(torch.where(known, x, 1.0), self.rounds), 0.0)

    def fades(self, v: checker.Value) -> bool:
        """Whether a value is an exponential that fades out; x^2 is none."""
        return v.op in FADING and not (v.op == "pow" and self.literal(v.args[1]) is not None)

    @cached_property
    def rounds(self) -> str:
        """The dtype in which the formula computes what is rounded; "" where it chooses and moves elements alone."""
        floats = [v for v in self.kernel.values if v.op in (REDUCTIONS if v.attr else OPS) and isinstance(v.type, Float)]
        formats = {self.compute(v) for v in floats if v.op != "cast" and (v.attr or not OPS[v.op].errors.exact)}
        return min(formats, default="")  # f32 before f64

    def local(self, v: checker.Value, row: Any, x: Any, args: list, entering: list, moved: Any, format_: str) -> Any:
        """As `Analysis.local`; an exponential that fades out may have vanished, or what it divides by overflowed, too early."""
        torch = self.torch
        own = super().local(v, row, x, args, entering, moved, format_)
        if (terms := self.added_up(v, args, entering)) is not None:
            each = DIGITS[format_] * (2 if format_ == "f64" else 1)  # of f64 the exact reading rounds as well
            own = torch.maximum(own, torch.where(torch.isfinite(terms), each * terms, 0.0))
        if self.cancelling and v.op in CANCELLING:
            own = own + torch.where(torch.isfinite(x), torch.full((), 2 * DIGITS[format_], dtype=torch.float64), 0.0)
        if v.op in ("exp", "sigmoid") and format_ == "f32":
            # x log2(e) is rounded by up to DIGITS, and log2(e) itself, in f32, lies .22 of that from the number
            slope = x if v.op == "exp" else x * (1 - x)
            size = torch.as_tensor(args[0], dtype=torch.float64).abs()
            own = own + torch.where(torch.isfinite(size) & torch.isfinite(slope), 1.25 * DIGITS["f32"] * size * slope, 0.0)
        if not self.fades(v):
            return own
        sure = torch.zeros((), dtype=torch.bool)
        for a in args:
            a = torch.as_tensor(a, dtype=torch.float64)
            sure = sure | ~torch.isfinite(a) | (a == 0)
        return own + torch.where(sure, 0.0, torch.full((), FADED[format_], dtype=torch.float64))

    def added_up(self, v: checker.Value, args: list, entering: list) -> Any:
        """What the magnitudes of the terms come to of a sum of three and more; None of another value."""
        if v.op not in ("add", "sub", "neg"):
            return None
        of = [self.terms.get(k) for k in v.args]
        if v.op == "neg":
            if of[0] is not None:
                self.terms[self.at] = of[0]
            return None
        own = [self.torch.as_tensor(a, dtype=self.torch.float64).abs() + e for a, e in zip(args, entering, strict=True)]
        self.terms[self.at] = sum(o if t is None else t for o, t in zip(own, of, strict=True))
        return self.terms[self.at] if any(t is not None for t in of) else None

    @cached_property
    def distributes(self) -> list[bool]:
        """Of each value whether it is a sum of two, or a product with one: (a - b) w may be computed as a w - b w."""
        found: list[bool] = []
        for v in self.kernel.values:
            found.append(v.op in ("add", "sub") or v.op in ("mul", "div", "neg", "cast") and any(found[a] for a in v.args))
        return found

    def unsure(self, v: checker.Value, x: Any, args: list, carried: list, either: Any) -> Any:
        """Where a value may be a zero of either sign: as the head of this module says, besides what `zeros.py` knows."""
        torch = self.torch
        if not (torch.is_tensor(x) and x.dtype.is_floating_point):
            return either
        found = torch.zeros((), dtype=torch.bool) if either is None else either
        if v.op == "relu":
            found = found | (x == 0) & (args[0] == 0)
        if v.op in ("mul", "div"):
            if self.distributes[self.at]:
                found = found | (x == 0)
            least = 16 * float(ulp(torch.zeros((), dtype=torch.float64), self.compute(v)))  # expm1(0) is 0 for sure
            for a, e in zip(args, carried, strict=True):
                if e is not None and torch.is_tensor(a):
                    found = found | (x == 0) & (e > least) & (a.abs() <= SLACK * e)
        return found if bool(found.any()) else None

    def results(self) -> list[Bounded]:
        """As `Analysis.results`; `loose` says of each where a zero may have either sign."""
        found = super().results()
        self.loose = []
        for r in self.kernel.results:
            mask = self.either[r.value]
            self.loose.append(None if mask is None else joined(r, self.finish(mask, r.dims, self.torch.bool)))
        return found


@dataclass
class Expected:
    """What a call is to give: a `Bounded` for each result and where its zeros may have either sign, or the error that it is to raise."""

    results: list[Bounded] = field(default_factory=list)
    loose: list[Any] = field(default_factory=list)
    refusal: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)


def expected(kernel: checker.Kernel, arguments: dict[str, Any], device: str, cancelling: bool = False) -> Expected:
    """What a call is to give.  The arguments are on the CPU, as people have them; for `cancelling` see `Foreign`."""
    import torch

    made: Expected | None = None
    with torch.no_grad():
        for target in TARGETS[device]:
            analysis = Foreign(kernel, arguments, target, cancelling)
            try:
                results = analysis.results()
            except KgenError as error:  # a maximum of no elements
                return Expected(refusal=str(error))
            if made is None:
                made = Expected(results, analysis.loose, arguments=arguments)
            else:
                made.results = [Bounded(a.exact, torch.fmax(a.bound, b.bound), a.dtype) for a, b in zip(made.results, results, strict=True)]
    assert made is not None
    return made


def tensors_of(said: list[dict[str, Any]], blobs: list[bytes]) -> list[Any]:
    """Results as tensors, from what a process says of them; None for one that is no plain tensor."""
    import torch

    found: list[Any] = []
    for s, blob in zip(said, blobs, strict=True):
        if s["type"] or s["dtype"] not in TORCH or any(not isinstance(n, int) or n < 0 for n in s["shape"]):
            found.append(None)
            continue
        dtype = getattr(torch, s["dtype"])
        flat = torch.frombuffer(bytearray(blob), dtype=dtype) if blob else torch.empty(0, dtype=dtype)
        found.append(flat.reshape(s["shape"]) if flat.numel() == _product(s["shape"]) else None)
    return found


def _product(shape: list[int]) -> int:
    import math

    return math.prod(shape)


def judged(
    kernel: checker.Kernel, want: Expected, said: list[dict[str, Any]], got: list[Any], device: str, pattern: int, report: Report
) -> list[Finding]:
    """What is wrong with results `got` (tensors, or None), of which a process says `said`; fresh memory held `pattern`.  The report
    takes the figures."""
    figures = checks.Report(kernel.name, device)
    found = []
    for k, (r, y, s) in enumerate(zip(kernel.results, got, said, strict=True)):
        bounded = want.results[k]
        stored = TORCH_NAMES[bounded.dtype]
        if s["type"]:
            found.append(Finding(Kind.RETURNED, f"is {s['type']}, no plain tensor", result=r.name))
        elif s["device"] != device:
            found.append(Finding(Kind.RETURNED, f"lies on {s['device']}, not on {device}", result=r.name))
        elif s["dtype"] != stored:
            found.append(Finding(Kind.DTYPE, f"dtype {s['dtype']}, not {stored}", result=r.name, expected=stored))
        elif tuple(s["shape"]) != tuple(bounded.exact.shape):
            shape = tuple(bounded.exact.shape)
            found.append(Finding(Kind.SHAPE, f"shape {s['shape']}, not {list(shape)}", result=r.name, expected=shape))
        elif y is None:
            found.append(Finding(Kind.RETURNED, "has other bytes than elements", result=r.name))
        elif shared := _overlapping(s["shape"], s["stride"]):
            found.append(Finding(Kind.STRIDES, f"strides {s['stride']}: {shared}", result=r.name))
        elif (wrong := checks.held(y, bounded, None, figures)) is not None:
            kind = KINDS[wrong.kind]
            if kind in (Kind.VALUE, Kind.NAN) and _is_pattern(y, wrong.at, pattern):
                kind = Kind.UNWRITTEN
            found.append(Finding(kind, wrong.message, result=r.name, at=wrong.at, expected=wrong.expected, bound=wrong.bound))
        elif (sign := _wrong_sign(y, bounded, want.loose[k])) is not None:
            at, zero = sign
            found.append(Finding(Kind.SIGN, f"{-zero} at {list(at)}, exactly {zero}", result=r.name, at=at, expected=zero))
    report.elements += figures.elements
    report.unbounded += figures.unbounded
    report.fraction = max(report.fraction, figures.fraction)
    return found


def advice(kernel: checker.Kernel, want: Expected, found: Finding, said: list[dict[str, Any]], got: list[Any], device: str) -> str:
    """What can be done about a wrong value, where the candidate may be right in its way; else ""."""
    if found.kind is not Kind.VALUE:
        return ""
    k = next(k for k, r in enumerate(kernel.results) if r.name == found.result)
    if used := sorted({v.op for v in kernel.values} & set(CANCELLING)):
        loosely = expected(kernel, want.arguments, device, cancelling=True)
        if not any(f.result == found.result for f in judged(kernel, loosely, said, got, device, 0, Report(kernel.name, device))):
            ways = " and ".join(f"{op}(x) as {CANCELLING[op]}" for op in used)
            return f"it is right but for digits that are lost where {ways} is computed: a spec that is written so takes it"
    dtype = want.results[k].dtype
    if dtype == "f64" and abs(float(got[k][found.at]) - found.expected) < float(ulp(torch_tensor(found.expected), "f32")) * 16:
        return "it has the digits of an f32: what computes f64 in f32 does not take f64 (--dtype says what it claims to take)"
    if dtype in ("f16", "bf16"):
        unit = float(ulp(torch_tensor(found.expected), dtype))
        off = float(got[k][found.at]) - found.expected
        if abs(off) < 16 * unit:
            return f"a result is rounded to {dtype} once; of several of torch's operators each rounds (--dtype says what it claims to take)"
    return ""


def torch_tensor(x: float) -> Any:
    """A number as a tensor of float64."""
    import torch

    return torch.tensor(x, dtype=torch.float64)


TORCH_NAMES = {own.name: name for name, own in TORCH.items()}


def _overlapping(shape: list[int], stride: list[int]) -> str:
    """Why two elements of a tensor may share memory; "" where none do."""
    if 0 in shape:
        return ""
    end = 0
    for n, s in sorted(((n, s) for n, s in zip(shape, stride, strict=True) if n > 1), key=lambda ns: ns[1]):
        if s <= end:
            return "two elements lie in one place"
        end += (n - 1) * s
    return ""


def _is_pattern(y: Any, at: tuple[int, ...], pattern: int) -> bool:
    """Whether an element holds what fresh memory was filled with."""
    import torch

    return bool((y[at].reshape(1).contiguous().view(torch.uint8) == pattern).all())


def _wrong_sign(y: Any, want: Bounded, loose: Any) -> tuple[tuple[int, ...], float] | None:
    """The first zero that is of the other sign than the formula gives it, with that zero, where its sign is sure."""
    import torch

    if want.dtype not in FORMATS or not y.numel():
        return None
    y, exact = y.double(), want.exact.double()
    least = ulp(torch.zeros((), dtype=torch.float64), want.dtype)
    sure = (exact == 0) & (want.bound <= least) & (y == 0)
    if loose is not None:
        sure = sure & ~loose.expand(sure.shape)
    bad = sure & (y.signbit() != exact.signbit())
    if not bool(bad.any()):
        return None
    at = tuple(bad.nonzero()[0].tolist())
    return at, -0.0 if bool(exact[at].signbit()) else 0.0


def errors(want: Expected, got: list[Any]) -> tuple[float, float]:
    """The largest error of results of the right shapes, and the largest relative one, of elements that are finite and not 0."""
    import torch

    from kgen.runtime.coded import packed

    most = [0.0, 0.0]
    for bounded, y in zip(want.results, got, strict=True):
        if y is None or y.shape != bounded.exact.shape or not y.numel() or packed(y.dtype):
            continue
        x = bounded.exact.double()
        off = (y.double() - x).abs()
        known = torch.isfinite(off)
        most[0] = max(most[0], float(torch.where(known, off, 0.0).max()))
        most[1] = max(most[1], float(torch.where(known & (x != 0), off / x.abs(), 0.0).max()))
    return most[0], most[1]
