"""Written files that are built for one architecture, on it and on later ones: their host part finds a kernel for every row."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from kgen import check, syntax
from kgen.backends import backend
from kgen.backends.cuda import RowLayout
from kgen.grad import backward
from kgen.parts import over_parts
from kgen.resources import resource
from kgen.runtime import nvrtc, rows
from tests.cuda import test_cuda_launches as launches

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

GATED = "gated(x: T[..., N], g: T[..., N], w: T[N]) -> y: T[..., N]\n\nh = x * silu(g)\ny = h * rsqrt(mean[N](h^2) + 1e-5) * w\n"
#: Bytes made of dear values, which stay beside them: a rule's step has no room for some of its rows.
DIGITS = "digits(x: i8[..., N]) -> y: i8[..., N]\n\nh = tanh(f32(x)) * sigmoid(f32(x)) * exp(sin(f32(x)))\ny = i8(100 * h / sum[N](h))\n"
THREE = (
    "three(x: T[..., N], w: T[N], b: f32[N], s: T[N]) -> y: T[..., N]\n\nc = x * s - mean[N](x * s)\n"
    "y = c * rsqrt(mean[N](c^2) + 1e-5) * w + b\n"
)
NAMES = ("rmsnorm_backward", "gated_backward", "three_backward")
#: What a file is built for, and on what it runs.
BUILT = (("800", "sm_90"), ("900", "sm_90"), ("900", "sm_100"), ("1000", "sm_100"))


def kernels() -> dict[str, check.Kernel]:
    """Gradients that add up columns, and what brings the library's other headers."""
    found = {n: over_parts(check.check(syntax.parse(launches.SPECS[n], f"{n}.k"))) for n in ("turned", "under", "nears", "again")}
    for text in ((resource("specs") / "rmsnorm.k").read_text(), GATED, THREE):
        made = backward(check.check(syntax.parse(text, "k.k"))).kernel
        found[made.name] = made
    return {**found, "digits": over_parts(check.check(syntax.parse(DIGITS, "digits.k")))}


def file(archs: str, folder: Path) -> launches.File:
    """A library that is built for these."""
    head = launches.HEAD.replace("800, 900, 1000", archs)
    assert head != launches.HEAD
    with (
        mock.patch.object(launches, "HEAD", head),
        mock.patch.object(launches, "kernels", kernels),
        mock.patch.object(launches.File, "left_out", staticmethod(lambda name: r"_(f16|f64|f32)\w*\(")),
    ):
        return launches.File(folder)


@pytest.mark.parametrize(("archs", "device"), BUILT, ids=["-".join(b).replace(", ", "-") for b in BUILT])
def test_sums_of_columns_have_a_kernel_for_every_row(archs: str, device: str, tmp_path: Path) -> None:
    """The rules of rounds end at lengths of their own, and a later device takes what there is."""
    made = file(archs, tmp_path)
    for name in NAMES:
        unit = backend("cuda").layout(made.kernels[name])[0]
        for n in (*range(8, 4096, 512), *range(8, 140_000, 200), 8192, 8200, 16_376, 16_384, 32_760, 65_528, 65_536, *range(1001, 140_000, 670), 131_074):
            given = {o.name: (4096, [(n if "N" in o.dims else 1) * ("..." in o.dims), int("N" in o.dims)]) for o in unit.operands}
            made.call(f"{name}_bf16", device, 1, [100, n], given)  # raises where it is refused


def test_a_step_that_does_not_fit_is_passed_over_by_both(tmp_path: Path) -> None:
    """The runtime and the file go on to the ladder behind a pass's own rules."""
    made = file("900", tmp_path)
    unit = backend("cuda").layout(made.kernels["digits"])[0]
    assert isinstance(unit, RowLayout)
    for n in (39_937, 39_953, 40_961, 40_977):
        planned = nvrtc.row_plan(unit, (100,), (n,), [(0, (n,), (1,), 1)] * 2, 0, "sm_90")
        assert isinstance(planned, rows.RowPlan)
        noted = made.call("digits", "sm_90", 1, [100, n], {"x": (4096, [n, 1]), "y": (4096, [n, 1])}).splitlines()
        written = [tuple(launches.noted_numbers(line)["launch"][:4]) for line in noted]
        assert written == [(grid, threads, cluster, shared) for _, grid, threads, shared, cluster in planned.launches], n
