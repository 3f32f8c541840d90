"""`kgen.testing.arguments`: its cases are of every kind, within limits, such as kernels take, and shrink to small ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

import kgen
from kgen.testing import arguments
from tests.conftest import ROOT

ROWS = "rows(x: T[..., N], w: U[N], t: i64[...], a: f32[], s: float = 0.5) -> (y: T[..., N], p: T[...])\ny = x * w * s + a\np = pick[N](x, t) + max[N](x)"
PLAIN = settings(max_examples=150, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def drawn(spec: Any, count: int = 150, **limits: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    @seed(1)
    @settings(PLAIN, max_examples=count)
    @given(arguments(spec, **limits))
    def keep(given: dict[str, Any]) -> None:
        found.append(given)

    keep()
    return found


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return drawn(ROWS, 400)


def test_cases_are_of_every_kind(cases: list[dict[str, Any]]) -> None:
    x = [c["x"] for c in cases]
    kinds = {
        "empty": lambda t: not t.numel(),
        "0-d leading": lambda t: t.dim() == 1,
        "several leading dims": lambda t: t.dim() > 3,
        "one element": lambda t: t.numel() == 1,
        "about a warp or two": lambda t: t.shape[-1] in (31, 32, 33, 63, 64, 65),
        "long": lambda t: t.shape[-1] > 1000,
        "dense": lambda t: t.is_contiguous() and not t.storage_offset(),
        "offset": lambda t: t.is_contiguous() and 0 < t.storage_offset() <= 15,
        "expanded": lambda t: 0 in t.stride() and t.numel() > 1,
        "strided": lambda t: not t.is_contiguous() and 0 not in t.stride(),
        "nan": lambda t: bool(t.isnan().any()) and not bool(t.isnan().all()),
        "inf": lambda t: bool(t.isinf().any()),
        "large": lambda t: bool((t.abs() > 3e4).any()),
        "plain": lambda t: t.numel() > 1 and bool(t.isfinite().all()) and len(t.unique()) > 1,
    }
    counts = {name: sum(bool(test(t)) for t in x) for name, test in kinds.items()}
    assert all(n >= 1 for n in counts.values()), counts
    four = {torch.float32, torch.float16, torch.bfloat16, torch.float64}
    assert {t.dtype for t in x} == four == {c["w"].dtype for c in cases}
    outside = [bool(((c["t"] < 0) | (c["t"] >= c["x"].shape[-1])).any()) for c in cases if c["t"].numel()]
    assert 0.1 < sum(outside) / len(outside) < 0.9
    assert any(c["t"].dim() < c["x"].dim() - 1 or 1 in c["t"].shape for c in cases) and len({c["s"] for c in cases}) > 2


def test_a_kernel_takes_every_case(cases: list[dict[str, Any]]) -> None:
    kernel = kgen.loads(ROWS)
    for c in cases[:60]:
        try:
            y, p = kernel(**c, target="torch")
        except kgen.KgenError as error:
            assert "of no elements" in str(error)
            continue
        assert y.shape[-1:] == c["x"].shape[-1:] and p.shape == y.shape[:-1]
    step = kgen.loads("step(p: T[..., N], g: T[..., N]) -> p': T[..., N]\np' = p - g")
    for c in drawn(step, 60):
        assert step(**c, target="torch") is None


def test_cases_keep_to_their_limits() -> None:
    found = drawn(ROWS, 60, dtypes={"T": "bf16", "U": ("f32", "f64")}, sizes={"N": [5, 33], "...": (2, 3)}, special=False, layouts=["dense"])
    for c in found:
        x, w, t = c["x"], c["w"], c["t"]
        assert x.dtype == torch.bfloat16 and w.dtype in (torch.float32, torch.float64)
        assert x.shape[-1] in (5, 33) and x.dim() <= 3 and set(x.shape[:-1]) <= {1, 2, 3}
        assert all(v.is_contiguous() and not v.storage_offset() for v in (x, w, t))
        assert bool(x.isfinite().all()) and bool(((t >= 0) & (t < x.shape[-1])).all())
    assert {c["x"].shape[-1] for c in found} == {5, 33}
    for c in drawn("add(a: T[..., M], b: T[M]) -> y: T[..., M]\ny = a + b", 40, max_elements=50):
        assert c["a"].numel() <= 50
    assert any("N" for c in drawn("softmax", 3))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"dtypes": {"V": "f32"}}, "no dtype variable V"),
        ({"dtypes": {"T": "i8"}}, "T cannot be i8"),
        ({"sizes": {"M": 3}}, "no dim M"),
        ({"layouts": ["sparse"]}, "no layout sparse"),
    ],
)
def test_limits_that_do_not_fit_are_refused_at_once(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(kgen.KgenError, match=message):
        arguments(ROWS, **limits)


def test_a_failing_case_shrinks_to_what_the_fault_needs() -> None:
    """A long row and one NaN: 33 elements (a second row may stay), the others zeros, dense, f32."""
    last: dict[str, Any] = {}

    @seed(0)
    @settings(PLAIN, max_examples=300, phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False)
    @given(arguments("f(x: T[..., N]) -> y: T[..., N]\ny = x - max[N](x)", max_elements=2000))
    def holds(given: dict[str, Any]) -> None:
        x = given["x"]
        if x.shape[-1] >= 33 and bool(x.isnan().any()):
            last.update(given)
            raise AssertionError("planted")

    with pytest.raises(AssertionError, match="planted"):
        holds()
    x = last["x"]
    assert x.shape[-1] == 33 and x.numel() <= 66 and x.dtype == torch.float32 and x.is_contiguous() and not x.storage_offset()
    assert int(x.isnan().sum()) == 1 and set(x.nan_to_num(0).flatten().tolist()) == {0.0}


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, kgen, kgen.testing; print([m for m in ('torch', 'numpy', 'hypothesis', 'pytest', 'sympy', 'lark') if m in sys.modules])"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_the_public_names_are_there_and_typed() -> None:
    import kgen.testing as testing

    for name in testing.__all__:
        assert getattr(testing, name).__module__.startswith("kgen.verify." if name == "verify" else "kgen.testing.")
    with pytest.raises(AttributeError):
        _ = testing.nothing
