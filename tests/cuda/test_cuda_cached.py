"""Long rows that blocks take in turns, a later reading close behind the one before: what their kernels compute, run on the CPU block by
block in the order of their tickets, which shows that none waits for one behind it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import backend, devices, launches  # noqa: E402
from kgen.backends.launches import ANY, Rule  # noqa: E402
from kgen.ir import Broken  # noqa: E402
from kgen.resources import resource  # noqa: E402
from kgen.runtime import maps, nvrtc, rows  # noqa: E402
from kgen.runtime.verified import verify_rows  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated, for_any_rows  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: From one reading that reduces, with a result of a row; from two, of which the second needs the first; with an index, and a softmax's two.
NORM = "norm(x: T[..., N]) -> (y: T[..., N], m: f32[...])\n\nmu = mean[N](x)\ny = (x - mu) * rsqrt(mean[N]((x - mu)^2) + 0.1)\nm = f32(mu)\n"
TWICE = "twice(x: T[..., N]) -> (y: T[..., N], s: f32[...])\n\ns = f32(sum[N](abs(x)))\ny = x * sum[N](exp(-abs(x) / (s + 1)))\n"
#: A dear value that is made once where rows stay: beside what is held, and in its place.
OWN = "own(x: T[..., N]) -> y: T[..., N]\n\nc = sin(x) * tanh(x)\ny = c / sqrt(sum[N](c^2) + 1) + x\n"
CAPPED = "capped(x: T[..., N]) -> y: T[..., N]\n\nc = 3 * tanh(x / 3)\ne = exp(c - max[N](c))\ny = e / sum[N](e)\n"
PLACED = "placed(x: T[..., N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e) * (1 + index[N] % 3)\n"


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A device with clusters and without a ladder, where long rows are 512 elements of f32 and more."""
    rule = Rule(ANY, 64, 64, 2, 2, "cached", held=1, above=127)
    monkeypatch.setattr(launches, "STAGED_MOST", 0)
    monkeypatch.setattr(launches, "RULES", {key: (rule, *own) if key == (False, True) else own for key, own in launches.RULES.items()})
    limits = devices.limits

    def with_clusters(arch: str) -> devices.Limits:
        return limits(arch)._replace(cluster=8)

    for module in (devices, nvrtc):
        if hasattr(module, "limits"):
            monkeypatch.setattr(module, "limits", with_clusters)
    plans = rows.cached, maps.cached_plan  # which a test may replace
    for kept in plans:
        kept.cache_clear()
    yield
    for kept in plans:
        kept.cache_clear()


def steps(kernel: Emulated) -> set[int]:
    """The steps of the walks that it launches."""
    return {int(re.split(r", ", e[e.index("Walk<") :])[12]) for e in kernel.expressions}


@pytest.mark.parametrize("text, readings", [(NORM, 1), (TWICE, 2), (PLACED, 1), (OWN, 1), (CAPPED, 1)], ids=["norm", "twice", "placed", "own", "capped"])
def test_rows_that_blocks_take_in_turns_stay_within_their_bounds(text: str, readings: int, tmp_path, monkeypatch, cached) -> None:
    """Of one row and of many, of whole vectors and of rows that begin anywhere; the same bits alone, in place and of any dims."""
    torch.manual_seed(0)
    x = torch.randn(5, 1028) + 0.5
    given = [x, x[2:3], torch.randn(2, 3, 520), torch.randn(9, 777)[:, :770], torch.randn(4, 2, 1040).bfloat16()[:, 1], torch.randn(1, 2052)]
    kernel, checked = Emulated(text, tmp_path, *((one,) for one in given)), kgen.loads(text).kernel
    assert steps(kernel) == {-2 * readings, -1 - 2 * readings}
    found = [kernel(one) for one in given]
    for one, made in zip(given, found, strict=True):
        for r, want in zip(checked.results, Analysis(checked, {"x": one}, "cuda").results(), strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, one.shape)
    assert all(torch.equal(found[1][name], value[2:3]) for name, value in found[0].items())
    own = x.clone()
    kernel(own, out=own if len(checked.results) == 1 else (own, None))
    assert torch.equal(own, found[0]["y"])
    walks = for_any_rows(monkeypatch, rows)
    (tmp_path / "any").mkdir()
    some = [one for one in given if one.dtype == torch.float32]
    files = Emulated(text, tmp_path / "any", *((one,) for one in some))
    for one in some:
        want = next(made for other, made in zip(given, found, strict=True) if other is one)
        assert all(torch.equal(value, want[name]) for name, value in files(one).items()), one.shape
    assert walks and all(w.step < -1 for w in walks)


def test_what_is_not_read_again_or_read_in_pieces_is_not_taken_in_turns(cached) -> None:
    """Rows of which nothing is stored, and rows where a launch would read what one before it wrote."""

    def step(text: str) -> int:
        unit = next(u for u in backend("cuda").layout(kgen.loads(text).kernel) if u.reductions)
        operands = [(0, (4096 * ("N" in o.dims),), (1,), 4) for o in unit.operands]
        plan = nvrtc.row_plan(unit, (8,), (4096,), operands, 0, "sm_80")
        assert plan is not None
        return plan.steps[0][0].step

    assert step("f(x: T[..., N]) -> y: T[..., N]\n\ny = x / sum[N](x)\n") == -2
    assert step("f(x: T[..., N]) -> y: T[...]\n\ny = sum[N](x * max[N](x))\n") >= -1
    assert step("f(x: T[..., N], z: T[..., N]) -> y: T[..., N]\n\ny = x * z / sum[N](x * z)\n") >= -1, "two operands stay"


def test_both_tables_say_how_far_a_reading_is_behind() -> None:
    found = re.search(r"LATER = (\d+)", resource("templates/cuda/library/kgen_cached.cuh").read_text())
    assert found and int(found[1]) == launches.LATER


def test_a_plan_of_turns_that_breaks_a_rule_is_found(cached) -> None:
    x = rows.RowOperandPlace((4096,), (1,), 4, 0, True, True, True, 1)
    y = rows.RowOperandPlace((4096,), (1,), 4, 0, True, False, False, 1)
    limits = devices.limits("sm_80")
    plan = rows.plan((8,), (4096,), (x, y), 0, 2, True, 3, limits, True, long=1)
    assert plan is not None and [w.step for w, _ in plan.steps] == [-2, -3]

    def hold(**changes: Any) -> None:
        verify_rows(rows.replace(plan, **changes), (x, y), 1000, limits, 1, True, True)

    hold()
    (first, clear), (second, turns) = plan.steps
    for broken in (
        {"steps": ((second, turns),)}, {"steps": ((first, clear), (second, turns - 1))}, {"work": plan.work - 16},
        {"steps": ((first, 0), (second, turns))}, {"shared": 0},
    ):  # fmt: skip
        with pytest.raises(Broken):
            hold(**broken)
