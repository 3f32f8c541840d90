"""Sums by keys that each row has its own of: on each target beside torch's scatter in f64, whether keys are sorted or, where they are few,
compared one by one, and work that is that of the keys and of the results, not their product."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kgen
from kgen import pipeline
from kgen.backends import backend, launches
from kgen.grad import backward
from kgen.passes import Sort
from kgen.runtime import toolchain
from kgen.types import bf16
from tests import warm
from tests.conftest import ROOT
from tests.cuda.emulated import Emulated
from tests.segments.row_keys import CASES, close, drawn

pytestmark = pytest.mark.usefixtures("built_quickly")
GATHER = "taken(x: T[M, N], i: i64[M, K]) -> y: T[M, K]\n\ny = x[N = i]\n"
BACK = CASES["backward"].text
SIZES = ((3, 1, 4), (5, 33, 9), (2, 700, 40), (2, 300, 1))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have all keys be sorted; a function that says up to how many are compared one by one, from then on."""

    def put(count: int) -> None:
        monkeypatch.setattr(launches, "KEYED_FEW", dict.fromkeys(launches.KEYED_FEW, count))

    put(0)
    return put


@pytest.mark.parametrize("name", ["kinds", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "kinds")])
def test_cpp_agrees_with_f64(name: str) -> None:
    made = kgen.loads(CASES[name].text)
    assert not pipeline.warnings(made.kernel)
    for arguments, want in drawn(name, SIZES):
        close(made(*arguments, target="cpp"), want)


@pytest.mark.parametrize("name", ["apart", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "apart")])
def test_cuda_agrees_with_f64(name: str, tmp_path: Path) -> None:
    calls = list(drawn(name, SIZES))
    made = Emulated(CASES[name].text, tmp_path, *(arguments for arguments, _ in calls))
    for arguments, want in calls:
        close(tuple(made(*arguments).values()), want)


@pytest.mark.slow
def test_triton_agrees_with_f64(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    for name, case in CASES.items():
        (tmp_path / f"{name}.py").write_text(backend("triton").render(kgen.loads(case.text).kernel))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = warm.run("-m", "tests.segments.interpreted_row_keys", tmp_path, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == sorted(CASES)


@pytest.mark.slow
def test_triton_compiles_for_a_gpu() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    assert toolchain._triton(kgen.loads(CASES["kinds"].text).kernel, {"T": bf16}, "sm_90", "ptx")


@pytest.mark.parametrize("compared", [0, 10])
def test_the_gradient_of_a_lookup_is_that_of_torch(few: Callable[[int], None], compared: int) -> None:
    """Beside a NaN and an infinity, which stay in their places; what has no key is 0."""
    few(compared)
    made = kgen.loads(GATHER)
    for k in (3, 50):
        x, i, dy = torch.randn(4, 9, requires_grad=True), torch.randint(0, 8, (4, k)), torch.randn(4, k)
        dy[0, 0], dy[1, 1], dy[2] = torch.nan, torch.inf, -0.0
        theirs = x.detach().clone().requires_grad_()
        made(x, i).backward(dy)
        torch.gather(theirs, 1, i).backward(dy)
        assert x.grad is not None and theirs.grad is not None and torch.allclose(x.grad, theirs.grad, atol=1e-5, equal_nan=True)
        assert torch.equal(x.grad[:, 8], torch.zeros(4)) and not x.grad.signbit()[2:, 8].any()


def test_few_keys_are_compared_and_more_are_sorted(few: Callable[[int], None]) -> None:
    """By one kernel, call by call; a row alone has the bits that it has among others, each way, and an empty one is 0."""
    few(10)
    kernel = kgen.loads(BACK)
    for k, launchers in ((10, ["cpp, compared"]), (11, ["cpp, compared", "cpp"])):
        (arguments, want), = drawn("backward", ((6, k, 7),))
        with torch.no_grad():
            found = kernel(*arguments, target="cpp")
            close(found, want)
            assert torch.equal(kernel(*(t[1:2] for t in arguments), target="cpp"), found[1:2])
        assert list(kernel._launchers) == launchers
    assert torch.equal(kernel(torch.empty(4, 0), torch.zeros(4, 5), torch.empty(4, 0, dtype=torch.int64)), torch.zeros(4, 5))


def test_the_gradient_of_a_maximum_by_key_counts_ties_by_key() -> None:
    kernel = backward(kgen.loads("top(x: T[M, K], i: i64[M, K], like: i8[N]) -> y: T[M, N]\n\ny = max[K](x if i == index[N] else -inf)\n").kernel)
    assert not pipeline.warnings(kernel.kernel)


def test_the_work_is_that_of_keys_and_results() -> None:
    """By the plan: no pass goes through M * N * K elements, and what it moves is counted."""
    kernel = backward(kgen.loads(GATHER).kernel).kernel
    plan = pipeline.plan(kernel, pipeline.usual(kernel))
    assert not pipeline.warnings(kernel)
    assert [sorted(p.dims[:-1] if isinstance(p, Sort) else p.dims) for p in plan.passes] == [["K", "M"], ["M", "N"]]
    cost = pipeline.cost(kernel, pipeline.usual(kernel))
    assert (cost.read, cost.written) == (8 + 4 + 8 + 8, 8 + 8 + 4)  # keys; terms, keys and places in their order; these and the results
