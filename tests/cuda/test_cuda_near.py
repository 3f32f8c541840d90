"""Neighbours that CUDA's passes over rows read: the emitted kernels, run on the CPU, within their bounds of float64."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import grad, pipeline  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.parts import over_parts  # noqa: E402
from kgen.passes import Reduce  # noqa: E402
from kgen.taps import is_tap  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

TEXT = """near(x: T[B, C, N], g: T[B, C, N]) -> (u: T32[C], v: T32[C], w: T32[B, C])
u = sum[B, N](g * x[N = index[N] - 3 else 0])
v = sum[B, N](g * x[N = index[N] + 9 else 0] + x[N = index[N] - 8 else 0] * x)
w = sum[N](x[N = index[N] + 1 else 0] - g[N = index[N] - 17 else 0])
"""


#: A value that sums read beside neighbours and a map reads at neighbours: kept by one reading, which the sums are made in.  Two readings.
KEPT = """kept(x: T[B, C, N], g: T[B, C, N], w: T[N]) -> (d: T[B, C, N], u: T32[C], v: T32[B, C])
h = g * exp(-x^2) * sin(x) * cos(g + x[N = index[N] - 2 else 0]) * tanh(x) / (2 + g^2)
d = h[N = index[N] + 1 else 0] + h[N = index[N] + 2 else 0] - h[N = index[N] - 1 else 0]
u = sum[B, N](h * x[N = index[N] - 1 else 0])
m = mean[N](x[N = index[N] + 1 else 0] * w)
v = sum[N](abs(x[N = index[N] + 1 else 0] * w - m))
"""

#: One that a map reads at neighbours too, and that the elements of a vector share: all is the one reading, which keeps none of it.
SHARED = """shared(x: T[B, C, N], g: T[B, C, N], w: T[C]) -> (d: T[B, C, N], u: T32[C])
t = x + w * x[N = index[N] - 2 else 0]
h = g * sigmoid(t) * tanh(t)
d = h[N = index[N] + 3 else 0] * w - h[N = index[N] + 1 else 0] + h
u = sum[B, N](h * x[N = index[N] - 1 else 0])
"""


def calls() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows in whole vectors and not, of one dim and two, in any layout, empty ones among them."""
    torch.manual_seed(0)
    shapes = [(2, 3, 4096), (2, 3, 40), (3, 1, 17), (1, 2, 5), (2, 2, 1), (4, 1, 1), (2, 70, 333), (1, 1, 20000), (0, 3, 8), (2, 3, 0)]
    given = [(torch.randn(shape), torch.randn(shape)) for shape in shapes]
    given += [(torch.randn(2, 64, 5).transpose(1, 2), torch.randn(2, 64, 5).transpose(1, 2)), (torch.randn(8, 3, 64).transpose(0, 2), torch.randn(64, 3, 8))]
    given += [(torch.randn(2, 3, 72)[..., 8:], torch.randn(2, 3, 65)[..., 1:]), (torch.randn(2, 1, 64).expand(2, 3, 64), torch.randn(64).expand(2, 3, 64))]
    given += [(torch.randn(2, 3, 256).to(dtype), torch.randn(2, 3, 256).to(dtype)) for dtype in (torch.bfloat16, torch.float64)]
    given[0][0][0, 1, 5], given[1][1][1, 2, 3] = torch.inf, torch.nan
    return given


def hold(run: Emulated, given: list[tuple[torch.Tensor, ...]]) -> None:
    """That a kernel's results of calls lie within their bounds."""
    for args in given:
        found = run(*args)
        named = {p.name: a for p, a in zip(run.kernel.params, args, strict=True)}
        for r, want in zip(run.kernel.results, Analysis(run.kernel, named, "cuda").results(), strict=True):
            got = found[r.name].double()
            held = ((got - want.exact).abs() <= want.bound) | (got == want.exact) | (got.isnan() & want.exact.isnan())
            assert held.all(), (args[0].shape, args[0].stride(), r.name)


@pytest.mark.slow
def test_sums_of_neighbours_stay_within_their_bounds(tmp_path: Path) -> None:
    run = Emulated(TEXT, tmp_path, *calls())
    assert len(run.units) == 2 and any("Nearby<" in e for e in run.expressions) and not all("Nearby<" in e for e in run.expressions)
    hold(run, calls())


def test_what_sums_read_is_stored_on_their_way(tmp_path: Path) -> None:
    given = [(x, g, torch.randn(x.shape[-1]).to(x)) for x, g in calls()[1:15:3]]
    run = Emulated(KEPT, tmp_path, *given)
    assert run.run.source.count("_out_row = ") == 1 and "near<" in run.run.source
    hold(run, given)


def test_what_a_vector_shares_is_computed_for_sums_and_neighbours_at_once(tmp_path: Path) -> None:
    given = [(x, g, torch.randn(x.shape[1]).to(x)) for x, g in calls()]
    run = Emulated(SHARED, tmp_path, *given)
    assert len(run.units) == 1 and not run.workspaces and run.run.source.count("_out_row = ") == 1
    hold(run, given)


#: A value that is rounded by name, and might stand in x's place for the readings of a row; it reads x before its place too.
ROUNDED = """rounded(x: T[B, C, N], g: T[B, C, N]) -> y: T32[B, C, N]
v = T(x * 0.75 + g[N = index[N] - 1 else 0])
y = v / max[N](abs(v) if abs(v) < max[N](abs(v)) else 0.5)
"""


def test_what_reads_neighbours_takes_no_operand_s_place(tmp_path: Path) -> None:
    given = calls()[1:15:3]
    hold(Emulated(ROUNDED, tmp_path, *given), given)


def test_a_convolutions_gradient_reads_its_operands_once_for_all() -> None:
    kernel, cuda = over_parts(grad.backward(kgen.load("causal_conv4").kernel).kernel), backend("cuda")
    plan = pipeline.scheduled(kernel, kernel.bindings()[0], cuda.rides, cuda.merges, cuda.taps)
    (rows,) = (p for p in plan.passes if isinstance(p, Reduce))
    assert len(plan.passes) == 1 and {s.result for s in rows.stores} > {"db", "dx"} and not plan.workspaces
    assert {let.expr.operands[0].name for let in rows.lets if is_tap(let)} == {"%0", "%1"}
    assert sum(len(f.reductions) for f in rows.phases) == 5


def test_what_a_pass_kept_in_16_bits_is_given_as_floats(tmp_path: Path) -> None:
    """Fuzzing on a GPU: NVRTC refused a pass that reduces a row which a pass before it had rounded by name, its neighbours too."""
    text = """f(x: f32[M, N]) -> (y: f32[M], z: f32[M, N], w: i64[M])

h = bf16(tanh(x))
y = sum[N](h * h[N = index[N] - 1 else 0])
z = h[N = index[N] - 2 else 1]
w = argmax[N](h)
"""
    x = torch.randn(3, 70, generator=torch.Generator().manual_seed(0))
    found, h = Emulated(text, tmp_path, (x,))(x), x.tanh().bfloat16().double()
    torch.testing.assert_close(found["y"].double(), (h[:, 1:] * h[:, :-1]).sum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(found["z"].double(), torch.cat([torch.ones(3, 2).double(), h[:, :-2]], 1)) and torch.equal(found["w"], h.argmax(1))
