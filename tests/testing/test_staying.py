"""Rows that are sure to stay on the chip have the tighter bound; the planner keeps them, on every device."""

from __future__ import annotations

import json
import random

import pytest
import torch

import kgen
from kgen.backends import launches
from kgen.backends.launches import Step
from kgen.runtime import tuned
from kgen.runtime.nvrtc import rows_plan
from kgen.testing import staying
from kgen.testing.bounds import Analysis
from tests.specs.cases import load

ARCHES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_110", "sm_120")
TWO_WAYS = {
    "variance": "f(x: T[..., N]) -> y: T[...]\ny = mean[N]((x - mean[N](x))^2)",
    "two": "f(x: T[..., N], w: f64[..., N]) -> y: T[..., N]\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2) + 1e-5) * w / sum[N](w)",
    "capped": "f(x: T[..., N]) -> y: T[..., N]\nc = 5 * tanh(x / 5)\nd = c - mean[N](c)\ny = d * rsqrt(mean[N](d^2) + 1e-5)",
    "columns": "f(x: T[N, M]) -> y: T[M]\ny = mean[N]((x - mean[N](x))^2)",
}


@pytest.fixture(autouse=True)
def no_tables(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("KGEN_CONFIG_DIR", str(tmp_path))
    tuned.ladders.cache_clear()


def bound(x: torch.Tensor, target: str) -> float:
    return float(Analysis(load("variance").kernel, {"x": x}, target).results()[0].bound.max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bound_of_a_variance_is_that_of_the_form_that_runs(dtype: str) -> None:
    """Two readings of a row that stays, joined means of one that is too long, or whose elements lie apart."""
    x = torch.randn(8, 1000, generator=torch.Generator().manual_seed(0), dtype=getattr(torch, dtype))
    assert bound(x, "cuda") < 1.5 * bound(x, "cpp")
    assert bound(x.T.contiguous().T, "cuda") > 3 * bound(x, "cpp")
    assert bound(x.repeat(1, 40), "cuda") > 3 * bound(x.repeat(1, 40), "cpp")


def test_a_users_own_table_may_read_rows_each_time(tmp_path) -> None:
    x = torch.randn(2, 1000)
    (tmp_path / "sm_86.json").write_text(json.dumps({"again": [Step(16384, 256, 256, 4, 4, "loop")]}))
    tuned.ladders.cache_clear()
    assert bound(x, "cuda") > 3 * bound(x, "cpp")


@pytest.mark.parametrize("name", TWO_WAYS)
def test_what_is_sure_to_stay_is_kept_by_the_planner_of_every_device(name: str) -> None:
    kernel, rng, sure = kgen.loads(TWO_WAYS[name]).kernel, random.Random(name), 0
    (unit,) = staying.two_ways(kernel, "cuda")
    for _ in range(600):
        n, many = rng.choice((1, 7, 16, 17, 100, 128, 129, 1000, 1024, 2048, 2049, 4097, 8192, 30000)) + rng.randrange(3), rng.randint(1, 4)
        dtype = getattr(torch, rng.choice(("float16", "float32", "float64")))
        shape = (n, many) if name == "columns" else (many, n)
        given = {p.name: torch.empty(shape, dtype=torch.float64 if p.dtype == "f64" else dtype) for p in kernel.params}
        if rng.random() < 0.4:
            given = {k: x.T.contiguous().T if rng.random() < 0.5 else x.expand(*shape) for k, x in given.items()}
        if not staying.all_stay(kernel, given, "cuda", lambda dims, n=n: n):
            continue
        sure += 1
        inner = 0 if name == "columns" else 1
        operands = []
        for o in unit.operands:
            strides = given[o.name].stride() if o.name in given else (shape[1], 1) if o.element else (0, 0) if inner == 0 else (1, 0)
            size = given[o.name].dtype.itemsize if o.name in given else dtype.itemsize
            operands.append((rng.randrange(0, 16, size), (strides[1 - inner],), (strides[inner],), size))
        for arch in ARCHES:
            plan = rows_plan(unit, (many,), (n,), operands, 0, arch)
            assert plan is not None and plan.steps[0][0].keep > 0, (n, given, arch)
    assert sure > 100


def test_rows_that_no_rule_keeps_do_not_stay() -> None:
    assert launches.stays(1000, (4,), False, 2, 2) and not launches.stays(10**6, (4,), False, 2, 2)
    assert launches.stays(128, (4,), True, 2, 2) and not launches.stays(129, (4,), True, 2, 2)
    assert not launches.stays(8, (), False, 2, 2)
