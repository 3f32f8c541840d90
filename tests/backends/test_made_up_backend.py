"""A backend of somebody else's: it registers by its place in the list of targets, and no other file knows of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import kgen
from kgen import backends
from kgen.ops import OPS
from kgen.testing import checks

pytest.importorskip("numpy")
SPECS = {
    "silu": "silu_of(x: f32[...], a: float = 1.5) -> y: f32[...]\n\ny = x * sigmoid(a * x) + exp(-a / 3)\n",
    "affine": "affine(x: f32[..., N], w: f64[N], b: f32[...]) -> (y: f64[..., N], z: bool[..., N])\n\ny = x * w + b\nz = y > 0 and x == x\n",
    "numbers": "shifted(x: i32[...], n: int) -> y: i64[...]\n\ny = abs(x) * (n // 3) - max(x, 2)\n",
    "choice": "choice(x: f64[...], y: f64[...]) -> z: f64[...]\n\nz = sqrt(x) if x > y else tanh(min(x, y)) ^ 2\n",
}


@pytest.fixture(autouse=True)
def numpy_target(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    row = backends.Target("tests.backends.numpy_target:NumPy", "tests.backends.numpy_target:Launcher", "cpu")
    monkeypatch.setitem(backends.TARGETS, "numpy", row)
    yield
    backends.backend.cache_clear()


@pytest.mark.parametrize("name", SPECS)
def test_its_kernels_keep_to_the_derived_bounds(name: str) -> None:
    kernel = kgen.loads(SPECS[name], name)
    report = checks.check(kernel.kernel, "numpy", examples=12)
    assert not report.failures and report.cases == 12


def test_it_is_called_by_its_name() -> None:
    kernel = kgen.loads(SPECS["silu"], "silu")
    x = torch.linspace(-4, 4, 100)
    torch.testing.assert_close(kernel(x, target="numpy"), kernel(x, target="cpp"))
    source = kernel.source("numpy")
    assert "import numpy" in source and "def sigmoid(x)" in source and "# y = x * sigmoid(a * x)" in source
    assert backends.backend("numpy").file_name("silu") == "silu_numpy.py"
    with pytest.raises(kgen.KgenError, match="there is no target fortran"):
        kernel.source("fortran")


def test_it_is_listed_among_the_targets_that_run_here() -> None:
    assert "numpy" in checks.targets()[0]


@pytest.mark.parametrize(
    "text",
    ["s(x: f32[..., N]) -> y: f32[...]\ny = sum[N](x)", "s(x: T[...]) -> y: T[...]\ny = x + 1", "s(x: f32[...]) -> y: f32[...]\ny = erf(x)"],
    ids=["rows", "16 bits", "no spelling"],
)
def test_what_it_does_not_cover_it_says(text: str) -> None:
    with pytest.raises(kgen.KgenError, match="has more than maps"):
        kgen.loads(text, "s").source("numpy")


def test_rows_of_the_table_say_nothing_of_it() -> None:
    assert not any(hasattr(row, "numpy") for row in OPS.values())
