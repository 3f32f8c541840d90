"""`kgen.testing.check`: a formula that differs from a torch function is found, one that does not is let pass, and what fails is made small."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kgen
from kgen.testing import CheckFailed, check, checks
from kgen.testing.bounds import Bounded
from kgen.testing.checks import Report, Trial
from kgen.testing.reproducer import shrunk

NORM = "norm(x: T[..., N], w: T[N], eps: float = 1e-6) -> y: T[..., N]\ny = x * rsqrt(mean[N](x^2) + eps) * w\n"
SQUARE = "square(x: T[...]) -> y: T[...]\ny = x * x\n"


def held(kernel: Any, against: Any = None, **more: Any) -> checks.Reports:
    return check(kernel, against, **{"target": "torch", "examples": 12, "max_elements": 2000, "shrink": 2.0, **more})


def norm(x: torch.Tensor, w: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


def in_float(x: torch.Tensor, w: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """As people write it: the narrower dtypes are computed in float32."""
    h = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + torch.tensor(eps))
    return (h * w.float()).to(x.dtype)


def cross_entropy(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """Torch's, with leading dims that broadcast; it raises for a class that there is not."""
    shape = torch.broadcast_shapes(x.shape[:-1], t.shape)
    rows = x.expand(*shape, x.shape[-1]).reshape(-1, x.shape[-1])
    return F.cross_entropy(rows, t.expand(shape).reshape(-1), reduction="none").view(shape)


#: Functions that mean what the spec means, in the ways in which people write them.
SAME: dict[str, tuple[str, Callable[..., Any]]] = {
    "by position": (NORM, norm),
    "by name, in another order": (NORM, lambda eps, w, x: norm(x, w, eps)),
    "any names": (NORM, lambda **given: norm(**given)),
    "without the last": (NORM, lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6)),
    "in float32 inside": (NORM, in_float),
    "one of torch's own": ("add(a: T[...], b: T[...]) -> y: T[...]\ny = a + b", torch.add),
    "that cancels": ("gelu", F.gelu),
    "of another formula": ("logsumexp", lambda x: torch.logsumexp(x, -1)),
    "with a cast that rounds": ("cast(x: T[..., N], w: T[N]) -> y: T[..., N]\ny = T(exp(x * 0.1)) * w", lambda x, w: torch.exp(x * 0.1) * w),
    "several, one of them left out": (
        "two(x: T[..., N]) -> (y: T[..., N], k: i64[...], s: T32[...])\ny = x - max[N](x)\nk = argmax[N](x)\ns = sum[N](x)",
        lambda x: (x - x.amax(-1, keepdim=True), x.argmax(-1), None),
    ),
    "in place": ("step(p: T[...], g: T[...], lr: float) -> p': T[...]\np' = p - lr * g", lambda p, g, lr: p.sub_(g, alpha=lr)),
    "that refuses indices": ("cross_entropy", lambda x, t: cross_entropy(x, t)),
}


@pytest.mark.parametrize("name", SAME)
def test_a_function_that_means_the_same_is_let_pass(name: str) -> None:
    (report,) = held(*SAME[name])
    assert not report.failures and report.cases + report.aside == 12 and report.cases >= 6
    assert report.worst > 0 and report.unbounded < report.elements


#: Functions that mean something else, and what the message says of it.
OTHER: dict[str, tuple[str, Callable[..., Any], str]] = {
    "another epsilon": (NORM, lambda x, w: norm(x, w, 1e-5), "in float64 gives"),
    "an approximation": ("gelu", lambda x: F.gelu(x, approximate="tanh"), "in float64 gives"),
    "n for n - 1": ("variance", lambda x: x.var(-1, correction=0), "in float64 gives"),
    "a threshold, in f64": ("softplus", F.softplus, "softplus in float64 gives"),
    "a NaN for a number": ("kl_div", lambda q, p: (p * (p.log() - q)).sum(-1), "gives nan"),
    "a number for a NaN": (SQUARE, lambda x: (x * x).nan_to_num(0), "nan at"),
    "another shape": (SQUARE, lambda x: (x * x).unsqueeze(0), r"shape \[.*\], not \[1"),
    "another dtype": (SQUARE, lambda x: (x * x).to(torch.float32), "dtype torch.float16, where the function gives torch.float32"),
    "another place": ("argmax", lambda x: x.argmin(-1), "in float64 gives"),
}


RARE = ("a threshold, in f64", "a NaN for a number")  # few elements show them


@pytest.mark.parametrize("name", OTHER)
def test_a_function_that_means_something_else_is_found(name: str) -> None:
    spec, function, message = OTHER[name]
    with pytest.raises(CheckFailed, match=message) as error:
        held(spec, function, shrink=0.5, examples=160 if name in RARE else 12)
    assert "import torch, kgen" in str(error.value) and "error: error" not in str(error.value)


def test_the_bound_on_a_function_is_as_sharp_as_its_float64_value() -> None:
    """A relative difference of 2^-22 in f32 (four ulp) and of 2^-33 in f64 is seen where nothing cancels."""
    for dtype, off in (("f32", 2.0**-22), ("f64", 2.0**-33)):
        with pytest.raises(CheckFailed):
            held(SQUARE, lambda x, off=off: x * x * (1 + off), dtypes={"T": dtype}, shrink=0)
    held(SQUARE, lambda x: x * x * (1 + 2.0**-26), dtypes={"T": "f32"})  # which rounds away


def test_a_failed_check_is_an_assertion_and_an_error_of_kgens_and_names_the_element_its_bound_and_eagers_value() -> None:
    with pytest.raises(AssertionError) as error:
        kgen.loads(SQUARE).check(target="torch", examples=4, against=lambda x: x * x + 1)
    assert isinstance(error.value, kgen.KgenError)
    assert str(error.value).startswith("square on torch, case 0 of seed 0 (x=float32[")
    for part in ("the function in float64 gives", "(bound ", " ulp, eager ", " are wrong)"):
        assert part in str(error.value)


def test_a_function_that_cannot_be_held_against_says_why() -> None:
    with pytest.raises(kgen.KgenError, match="takes no w"):
        held(NORM, lambda x: x)
    with pytest.raises(kgen.KgenError, match=r"gives \(float\) for square's 1 result"):
        held(SQUARE, lambda x: 1.0)
    with pytest.raises(CheckFailed, match="raises in each of 12 cases, the last time 1 / 0"):

        def raising(x: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError("1 / 0")

        held(SQUARE, raising)
    with pytest.raises(kgen.KgenError, match="against its own formula"):
        held(SQUARE, torch.square, backward=True)
    with pytest.raises(kgen.KgenError, match="there is no dim M"):
        held(NORM, sizes={"M": 3})


def test_a_kernel_is_given_in_any_form(tmp_path: Any) -> None:
    (tmp_path / "square.k").write_text(SQUARE)
    for form in (SQUARE, tmp_path / "square.k", str(tmp_path / "square.k"), "silu", kgen.loads(SQUARE), kgen.loads(SQUARE).kernel):
        (report,) = held(form, examples=2)
        assert report.cases == 2
    (report,) = held("softmax", backward=True, examples=2)
    assert report.kernel == "softmax_backward" and report.cases == 2


def test_the_figures_of_plain_data_are_parts_of_the_rows_largest_magnitude() -> None:
    x = torch.tensor([[1e-9, 4.0], [2.0, math.inf]], dtype=torch.float64)
    bound = torch.tensor([[0.5, 0.25], [0.125, math.inf]], dtype=torch.float64)
    figures = checks.Plain()
    figures.add((x + 0.1).float(), Bounded(x, bound, "f32"), (x - 0.2).float())
    assert figures.elements == 3 and figures.bound == 0.125
    assert figures.error == pytest.approx(0.05) and figures.eager == pytest.approx(0.1)


def test_a_report_begins_with_its_verdict_and_says_where_the_bound_says_little() -> None:
    kernel = kgen.loads("f(x: T[..., N]) -> y: T[..., N]\ny = 1 / (x - x * 1.0000001)").kernel
    report = checks.check(kernel, "torch", examples=0, plain=True)
    row = dict(zip(checks.HEADS, report.row(), strict=True))
    assert row[""] == "PASS" and set(report.plain) == {"f32", "bf16"} and report.plain["f32"].bound > 2.0**-7
    (f32, _) = report.doubts()
    assert f32.startswith("f on torch, f32: the derived bound says little")
    fine = checks.check(kgen.load("softmax").kernel, "torch", examples=0, plain=True)
    assert not fine.doubts() and fine.plain["f32"].error < fine.plain["f32"].bound < 2.0**-16
    report.failures.append("wrong")
    assert report.row()[0] == "FAIL"
    lines = checks.markdown([fine, report]).split("\n")
    assert lines[0] == "| kernel | torch f32 | eager f32 | torch bf16 | eager bf16 |" and lines[2].startswith("| softmax | ")


def test_the_report_has_the_bound_where_the_error_is_worst() -> None:
    x = torch.tensor([1.0, 1.5, 3.0], dtype=torch.float64)
    unit = 2.0**-23
    want = Bounded(x, torch.tensor([4.0, 8.0, 100.0], dtype=torch.float64) * unit, "f32")
    report = Report("f", "cpp")
    got = (x + torch.tensor([2.0, 6.0, 2.0], dtype=torch.float64) * unit).float()
    assert not checks.compare(got, want, (x + unit).float(), report)
    assert (report.worst, report.bound, report.fraction, report.eager) == (6.0, 8.0, 0.75, 1.0)
    assert report.row()[:7] == ("PASS", "f", "cpp", "0", "3", "0", "75%") and report.more() == ("6.00", "8.00", "1.00")
    assert not checks.compare(x.float(), want, x.float(), report) and (report.worst, report.bound) == (6.0, 8.0)


# ---------------------------------------------------------------------- shrinking


class Planted:
    """A kernel whose last element is wrong where `wrong` says so."""

    def __init__(self, kernel: kgen.Kernel, wrong: Callable[[dict[str, Any]], bool]):
        self.kernel, self.wrong = kernel, wrong

    def _run(self, args: tuple, given: dict[str, Any], out: Any, target: str | None) -> Any:
        y = self.kernel._run(args, given, out, target)
        if self.wrong(given) and y.numel():
            last = (-1,) * y.dim()
            y[last] = 1000 + 1000 * y[last].nan_to_num(0, 0, 0).abs()
        return y


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], bool]]] = {
    "a long row and a NaN": (
        lambda a: a["x"].shape[-1] >= 33 and bool(a["x"].isnan().any()),
        lambda a: a["x"].shape == (33,) and int(a["x"].isnan().sum()) == 1 and set(a["x"].nan_to_num(1).tolist()) <= {0.0, 1.0},
    ),
    "a stride": (lambda a: a["x"].stride()[-1] > 1 and a["x"].shape[-1] > 1, lambda a: a["x"].shape == (2,) and a["x"].stride(0) > 1),
    "an offset": (lambda a: a["w"].storage_offset() % 4 == 3, lambda a: a["w"].shape == (1,) and a["w"].storage_offset() % 4 == 3),
    "a dtype": (lambda a: a["x"].dtype == torch.bfloat16, lambda a: a["x"].dtype == torch.bfloat16 and a["x"].shape == (1,)),
    "two leading dims": (lambda a: a["x"].dim() > 2, lambda a: a["x"].shape == (1, 1, 1)),
    "a number": (lambda a: a["s"] > 0.75, lambda a: a["s"] == 1.0 and a["x"].shape == (1,)),
    "an element": (lambda a: bool((a["x"] > 2).any()), lambda a: a["x"].shape == (1,) and a["x"].item() in (2.5, 3.0)),
}
PLAIN = "plain(x: T[..., N], w: T[N], s: float = 0.5) -> y: T[..., N]\ny = x + w * s\n"


@pytest.mark.parametrize("name", FAULTS)
def test_a_failing_case_shrinks_to_what_the_fault_needs(name: str) -> None:
    wrong, small = FAULTS[name]
    kernel = kgen.loads(PLAIN)
    report = checks.check(kernel.kernel, "torch", 100, runnable=Planted(kernel, wrong))
    assert report.first is not None, "not found"
    before = {n: x.clone() if isinstance(x, torch.Tensor) else x for n, x in report.first.arguments.items()}
    found = shrunk(report.first, 8.0)
    a = found.arguments
    shown = {n: (x.dtype, x.shape, x.stride(), x.tolist()) if isinstance(x, torch.Tensor) else x for n, x in a.items()}
    assert wrong(a) and small(a), shown
    if name not in ("a stride", "an offset"):
        assert all(x.is_contiguous() and x.storage_offset() == 0 for x in (a["x"], a["w"])), shown
    if name != "a dtype":
        assert a["x"].dtype == torch.float32, shown
    assert a["s"] == 0.5 or name == "a number"
    for n, x in before.items():  # what was drawn is as it was
        y = report.first.arguments[n]
        assert torch.equal(x.double().nan_to_num(1.5), y.double().nan_to_num(1.5)) if isinstance(x, torch.Tensor) else x == y


def test_shrinking_ends_in_time_and_keeps_what_fails() -> None:
    import time

    kernel = kgen.loads(PLAIN)
    report = checks.check(kernel.kernel, "torch", 20, runnable=Planted(kernel, lambda a: bool(time.sleep(0.02)) or a["x"].numel() > 7))
    assert report.first is not None
    begun = time.monotonic()
    found = shrunk(report.first, 0.5)
    assert time.monotonic() - begun < 3 and found.arguments["x"].numel() > 7
    assert Trial(kernel.kernel, "torch", report.first.trial.runnable).judge(found.arguments, Report("", ""))


def test_nan_is_wrong_for_a_number_whatever_the_bound() -> None:
    want = Bounded(torch.tensor([1.0, math.nan], dtype=torch.float64), torch.tensor([1e9, 0.0], dtype=torch.float64), "f32")
    found = checks.held(torch.tensor([math.nan, math.nan]), want, None, Report("", ""))
    assert found is not None and (found.kind, found.at) == ("nan", (0,))
