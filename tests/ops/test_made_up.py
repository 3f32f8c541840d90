"""An operator of one's own, registered by one row: on numbers, tensors of every float dtype, every target, its gradient, its bounds."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mpmath
import pytest
import torch

import kgen
from kgen import host
from kgen.backends import TARGETS, backend
from kgen.backends.cuda import Cuda
from kgen.mathematics import latex, mathematics
from kgen.ops import OPS, Errors, Op, Spell, intervals, register, table, unregister
from kgen.runtime import driver, recall
from kgen.syntax import parse
from kgen.testing import checks, correlated, operators
from kgen.testing.bounds import Analysis
from kgen.types import FLOAT
from tests.compiled import compile_call
from tests.conftest import ROOT


def _host(x: float) -> float:
    if x == 0 or not math.isfinite(x):
        return 1.0 if x == 0 else math.nan
    k = round(x)
    return math.sin(math.pi * (x - k)) * (-1 if k % 2 else 1) / (math.pi * x)


def _torch(t: Any, x: Any) -> Any:
    k = x.round()
    return t.where(x == 0, 1.0, (math.pi * (x - k)).sin() * (1 - 2 * k.remainder(2)) / (math.pi * x))


SINC = Op(
    "sinc", ("x",), "float", _torch, ("0 if x == 0 else dy * (cos(pi * x) - y) / x",), "sin(pi*x)/(pi*x)", (40, 1),
    cpp=Spell("sinc({0})", ulp=(10, 16), source="""\
// sin(pi x) / (pi x), of x's distance from a whole number, which is exact; 1 at 0.
template <typename F> inline F sinc(F x) {
    const F pi = F(3.14159265358979323846), k = std::nearbyint(x), s = std::sin(pi * (x - k));
    return x == 0 ? F(1) : (std::fmod(k, F(2)) == 0 ? s : -s) / (pi * x);
}
"""),
    cuda=Spell("sinc({0})", ulp=(8, 8), source="""\
// sin(pi x) / (pi x); 1 at 0.
template <typename F> __device__ inline F sinc(F x) { return x == 0 ? F(1) : sinpi(x) / (F(3.14159265358979323846) * x); }
"""),
    triton=Spell("sinc({0})", ulp=(8, 8), source='''\
@triton.jit
def sinc(x):
    """sin(pi x) / (pi x); 1 at 0."""
    k = libdevice.nearbyint(x)
    s = libdevice.sin((x - k) * 3.141592653589793)
    s = tl.where(libdevice.fmod(k, k * 0.0 + 2.0) == 0.0, s, s * -1.0)
    return tl.where(x == 0.0, 1.0, divide(s, x * 3.141592653589793))
'''),
    host=_host,
    python=Spell("host_sinc({0})", source='''\
def host_sinc(x):
    """sin(pi x) / (pi x) in f64; 1 at 0."""
    k = round(x) if math.isfinite(x) else math.nan
    return math.sin(math.pi * (x - k)) * (-1 if k % 2 else 1) / (math.pi * x) if x else 1.0
'''),
    errors=Errors(
        slopes=intervals.smooth(lambda t, x, y: t.where(x == 0, 0.0, (t.cos(math.pi * x) - y) / x), math.pi**2 / 6),
        moved=intervals.waves(1.3704, 1.2173),
    ),
)  # fmt: skip
SPEC = """\
wave(x: T[...], a: float = 0.75) -> y: T[...]

y = x * sinc(a) + sinc(3 * x)
"""


@pytest.fixture(autouse=True)
def made_up() -> Iterator[None]:
    register(SINC)
    yield
    unregister("sinc")


def exact(x: float) -> float:
    with mpmath.workdps(50):
        return float(mpmath.sincpi(mpmath.mpf(x)))


POINTS = [0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 1e-3, -0.75, 3.25, 7.0, 100.3, 1e-30]


def test_on_numbers() -> None:
    for x in (p for p in POINTS if p not in (1.0, -1.0, 7.0)):
        assert math.isclose(host.evaluate("sinc", [x], FLOAT), exact(x), rel_tol=2e-15)
    assert host.evaluate("sinc", [3], FLOAT) == 0 and math.isnan(host.evaluate("sinc", [math.inf], FLOAT))
    number = kgen.loads("f(x: f64[...], a: float) -> y: f64[...]\ny = x + sinc(a)", "f")
    for target in ("cpp", "torch"):
        assert math.isclose(float(number(torch.zeros(1, dtype=torch.float64), a=0.3, target=target)), exact(0.3), rel_tol=1e-15)


def test_in_the_host_part_of_a_triton_file() -> None:
    source = kgen.loads(SPEC, "wave").source("triton")
    assert "host_sinc(a)" in source
    start = source.index("def host_sinc")
    names: dict[str, Any] = {"math": math}
    exec(source[start : source.index("\n\n\n", start)], names)
    assert names["host_sinc"](2.5) == host.evaluate("sinc", [2.5], FLOAT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_on_tensors_within_the_derived_bound(dtype: torch.dtype) -> None:
    kernel = kgen.loads("f(x: T[...]) -> y: T[...]\ny = sinc(x)", "f")
    generator = torch.Generator().manual_seed(3)
    x = torch.cat([torch.tensor(POINTS), torch.randn(2000, generator=generator) * 4]).to(dtype)
    (want,) = correlated.Correlated(kernel.kernel, {"x": x}, "cpp").results()
    got = kernel(x, target="cpp")
    truth = torch.tensor([exact(v) for v in x.tolist()], dtype=torch.float64)
    assert got.dtype == dtype and bool(torch.isfinite(want.bound).all())
    off = (got.double() - truth).abs()
    assert bool((off <= want.bound + truth.abs() * 2e-15).all()), (x[off > want.bound], off.max())


def test_its_bound_covers_what_the_ends_of_an_interval_hide() -> None:
    """The wave comes back between them: errors follow its slope."""
    kernel = kgen.loads("f(x: f32[...], e: f32[...]) -> y: f32[...]\ny = sinc(x + e - 300)", "f")
    x, e = torch.linspace(-3, 3, 1001), torch.full((1001,), 300.0)
    (want,) = Analysis(kernel.kernel, {"x": x, "e": e}, "cpp").results()
    off = (kernel(x, e, target="cpp").double() - torch.tensor([exact(v) for v in x.tolist()])).abs()
    assert bool((off <= want.bound).all()) and bool((want.bound > 2.0**-18).all())


@pytest.mark.parametrize("operand", [0.4, 1.3, -2.6, 5.5])
def test_its_gradient_is_autograds(operand: float) -> None:
    kernel = kgen.loads("f(x: f64[...]) -> y: f64[...]\ny = sinc(x)", "f")
    x = torch.tensor([operand, operand / 3], dtype=torch.float64, requires_grad=True)
    kernel(x).sum().backward()
    want = x.detach().clone().requires_grad_()
    _torch(torch, want).sum().backward()
    torch.testing.assert_close(x.grad, want.grad, rtol=1e-12, atol=1e-14)


def test_its_checks_pass(monkeypatch: pytest.MonkeyPatch, built_quickly: None) -> None:
    """In the sweep it stands among the others of its group, which tests/ops/test_table.py has."""
    kernel = kgen.loads(SPEC, "wave")
    kernel.check(examples=6, target="cpp")
    assert not checks.check_backward(kernel.kernel, "cpp", examples=4).failures
    (own,) = [group for group in operators.groups() if OPS["sinc"] in group[1]]
    monkeypatch.setattr(operators, "groups", lambda: iter([own]))
    worst, failed = operators.table(["cpp"], formats=("bf16",))
    assert not failed and "sinc" in {name for name, *_ in worst}


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_renders_it(target: str) -> None:
    source = kgen.loads(SPEC, "wave").source(target)
    assert "sinc(" in source and SINC.spell(target).source.rstrip() in source


def test_the_library_beside_a_cuda_source_has_it() -> None:
    cuda = backend("cuda")
    assert isinstance(cuda, Cuda)
    source = cuda.render(kgen.loads(SPEC, "wave").kernel, standalone=False)
    assert SINC.cuda.source not in source and SINC.cuda.source in cuda.beside(source)["kgen_functions.cuh"]


@pytest.mark.skipif(not driver.available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_gpu_sources_compile(dtype: torch.dtype) -> None:
    compile_call(kgen.loads(SPEC, "wave"), {"x": torch.zeros(300, dtype=dtype), "a": 0.3})


def test_it_is_typeset() -> None:
    text = kgen.loads(SPEC, "wave").show("math")
    assert "sinc (a)" in text or "sinc(a)" in text
    assert r"\operatorname{sinc}" in latex(parse(SPEC))
    assert "sinc" in mathematics(parse(SPEC))


def test_what_another_process_kept_of_a_text_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert not recall.possible()
    unregister("sinc")
    try:
        assert recall.possible() == (os.environ.get("KGEN_FASTCALL", "1") != "0")
    finally:
        register(SINC)


def test_the_row_that_contributing_shows(built_quickly: None) -> None:
    """On tensors and numbers, with its backward."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    row, spec = (textwrap.dedent(block) for block in re.findall(r"    ```(?:python|text)\n(.*?)    ```", text, re.S)[:2])
    register(eval(f"({row})", {**vars(table)})[0])
    try:
        kernel = kgen.loads(spec, "gap")
        assert all(made in kernel.source("triton") for made in ("def host_fdim", "def fdim"))
        kernel.check(examples=6, target="cpp")
        assert not checks.check_backward(kernel.kernel, "cpp", examples=4).failures
        compile_call(kernel, {"x": torch.zeros(300), "floor": 0.5})
    finally:
        unregister("fdim")


WRONG = {
    "its name is taken": replace(SINC, name="exp"),
    "there is no rule floats": replace(SINC, name="other", rule="floats"),
    "`grad` has not an expression for each operand": replace(SINC, name="other", grad=()),
    "`host` says no value on numbers": replace(SINC, name="other", host=None),
    "cuda has no spelling": replace(SINC, name="other", cuda=Spell()),
    "its name is no identifier": replace(SINC, name="Other"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_row_that_contradicts_itself_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register(WRONG[message])
    assert "other" not in OPS


def test_it_leaves_nothing_behind() -> None:
    before = {t: backend(t).reserved for t in TARGETS}
    unregister("sinc")
    assert all("sinc" in before[t] and "sinc" not in backend(t).reserved for t in TARGETS)
    with pytest.raises(kgen.KgenError, match="sinc"):
        kgen.loads(SPEC, "wave").source("cpp")
    register(SINC)
