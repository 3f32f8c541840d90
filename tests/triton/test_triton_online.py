"""Sums about a peak in Triton's rows that no tile holds: one reading of them, and results within the derived bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

import kgen  # noqa: E402
from kgen import pipeline  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.testing.staying import all_stay  # noqa: E402
from tests import warm  # noqa: E402
from tests.conftest import ROOT  # noqa: E402
from tests.triton.test_triton_rows import build, emit, record, rows  # noqa: E402

WEIGHTED = """f(x: T[..., N], v: T[..., N]) -> (m: f32[...], a: f32[...], b: f32[...], h: f32[...], q: f32[...], c: f32[...], z: f32[...], y: T[..., N])

m = f32(max[N](x))
e = exp(x - max[N](x))
s = sum[N](e)
a = f32(sum[N](e * v) / s)
b = f32(logsumexp[N](x))
h = f32(log(s) - sum[N](e * (x - max[N](x))) / s)
k = max[N](x) if isfinite(max[N](x)) else 0
q = f32(sum[N](v * exp(x - k)))
c = f32(sum[N](exp(x - k) * (x - k)))
z = f32(sum[N](x - max[N](x)))
y = T(e / s)
"""
#: The same without elements that are stored: one reading, of rows that a tile holds too.
PEAKS = WEIGHTED.replace(", y: T[..., N])", ")").replace("y = T(e / s)\n", "")
SPREAD = """f(x: T[..., N], v: T[..., N]) -> (s: f32[...], q: f32[...], y: T[..., N])

mu = mean[N](x)
s = f32(mean[N]((x - mu)^2))
c = x * v - mean[N](x * v)
q = f32(sum[N](c^2))
y = T((x - mu) / sqrt(mean[N]((x - mu)^2) + 1e-5) * v)
"""

#: By loops and in several launches, two of each; and all.
FORMS = ["few", pytest.param("every", marks=pytest.mark.slow)]


def readings(source: str) -> list[str]:
    """What the functions of the readings of long rows say of themselves."""
    return [text.split('"""')[1] for text in source.split("\ndef ")[1:] if "_reading_" in text.split("(")[0]]


@pytest.mark.parametrize("text, about", [
    (WEIGHTED, ["What a segment adds to max_N.", "A segment's results."]),
    (SPREAD, ["What a segment adds to sum_N and sum_N_.", "A segment's results."]),
])  # fmt: skip
def test_a_long_row_is_read_once_for_its_peak_and_the_sums_about_it(text, about):
    """One reading that reduces and one that stores; of a row that a tile holds all operators keep their own forms."""
    kernel = kgen.loads(text).kernel
    (p,) = pipeline.plan(kernel, kernel.bindings()[0], backend("triton").rides).passes
    assert (p.readings, p.long_readings) == (3, 2)
    source = backend("triton").render(kernel)
    assert readings(source) == about
    whole = source.split("\ndef f_row(")[1].split("\n@triton.jit")[0]
    assert "_join_" not in whole and "exp_below" not in whole


@pytest.mark.parametrize("name, stays", [("softmax", True), ("layernorm", True), ("logsumexp", False), ("cross_entropy", False)])
def test_a_row_of_one_reading_has_the_bounds_of_a_long_one(name, stays):
    """Its code is the same in a tile, with exponentials that are exact near the peak alone."""
    kernel = kgen.load(name).kernel
    x = torch.zeros(4, 64)
    assert all_stay(kernel, {"x": x}, "triton", lambda _: 64) is stays


@pytest.mark.parametrize("forms", FORMS)
def test_the_sums_of_a_long_row_stay_within_their_bounds(forms: str, tmp_path: Path):
    """By loops, in several launches and in a tile; rows that rise, fall, are offset, have infinities or NaN.  By Triton's interpreter."""
    for name, text in (("weighted", WEIGHTED), ("spread", SPREAD), ("peaks", PEAKS)):
        (tmp_path / f"{name}.k").write_text(text)
        (tmp_path / f"{name}.py").write_text(backend("triton").render(kgen.loads(text).kernel))
    script = Path(__file__).with_name("interpreted_online.py")
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = warm.run(script, tmp_path, forms, env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": paths})
    assert done.stdout == "ok\n", done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("name, text", [("weighted", WEIGHTED), ("spread", SPREAD)])
@pytest.mark.parametrize("few", [0, 1 << 40])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_long_forms_compile(name, text, few, dtype, tmp_path: Path):
    """Loops and splits, of a narrow dtype and of a wide one; softmax's compile by default, in tests/backends/test_compiled.py."""
    module = emit(text, tmp_path, name)
    launches = record(module, "f", [rows(300, 4000, dtype=dtype)] * 2, RESIDENT=2, FEW=few)
    assert {function.__name__ for function, *_ in launches} == {"f_split" if few else "f_loop"}
    for entry in launches:
        build(entry)
