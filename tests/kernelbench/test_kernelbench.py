"""KernelBench's specs are its tasks: each parses, is well set, and gives what the task's own torch formula gives, at small sizes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod
from typing import Any

import pytest
import torch

import kgen
from kgen import syntax, typeset
from kgen.bench import kernelbench
from kgen.bench.kernelbench import TASKS, Task
from tests.conftest import ROOT

SPECS = {p.stem: p for p in (ROOT / "specs" / "kernelbench").glob("*.k")}
IDS = [t.spec for t in TASKS]
FEW = 4096  # elements, about


def given(task: Task, kernel: kgen.Kernel) -> dict[str, Any]:
    torch.manual_seed(task.number)
    return kernelbench.inputs(task, kernel.kernel, Fraction(FEW, prod(task.sizes.values())), "cpu")


def agrees(task: Task, target: str) -> None:
    kernel = kgen.load(task.name)
    taken = given(task, kernel)
    kernelbench.refuse(task, taken, kernel(**taken, target=target), task.formula(**taken), target)


def test_every_task_has_its_spec_and_every_spec_its_task() -> None:
    assert {t.spec for t in TASKS} == set(SPECS) and len(TASKS) == 48
    assert [t.number for t in TASKS] == sorted(t.number for t in TASKS) == [int(t.spec.split("_")[0]) for t in TASKS]
    assert all(f"KernelBench level 1, task {t.number}" in SPECS[t.spec].read_text().split("\n")[0] for t in TASKS)


@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_the_spec_is_the_task(task: Task) -> None:
    text = SPECS[task.spec].read_text()
    assert typeset.format_file(syntax.parse(text, task.spec)) == text
    agrees(task, "torch")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=IDS)
def test_the_built_kernel_is_the_task(task: Task) -> None:
    agrees(task, "cpp")


def by_turns() -> Iterator:
    """Every task on both targets; on one of them, by turns, it is slow."""
    for k, task in enumerate(TASKS):
        for j, target in enumerate(("cuda", "triton")):
            yield pytest.param(task, target, id=f"{task.spec}-{target}", marks=pytest.mark.slow if (k + j) % 2 else ())


@pytest.mark.gpu
@pytest.mark.parametrize(("task", "target"), list(by_turns()))
def test_the_gpu_kernel_is_the_task(task: Task, target: str) -> None:
    kernel = kgen.load(task.name)
    taken = kernelbench.inputs(task, kernel.kernel, Fraction(1 << 20, prod(task.sizes.values())), "cuda")
    kernelbench.refuse(task, taken, kernel(**taken, target=target), task.formula(**taken), target)


@pytest.mark.parametrize("task", [t for t in TASKS if t.number in (23, 51, 94)], ids=lambda t: t.spec)
def test_another_result_is_refused(task: Task) -> None:
    kernel = kgen.load(task.name)
    taken = given(task, kernel)
    want = task.formula(**taken)
    wrong = want.clone()
    wrong.view(-1)[-1] += 1
    if task.compared:
        wrong %= taken["x"].shape[1]
    with pytest.raises(kgen.KgenError, match="differ"):
        kernelbench.refuse(task, taken, wrong, want, "cuda")


def test_sizes_are_those_of_the_benchmark_and_shrink_from_the_largest_dim() -> None:
    softmax = next(t for t in TASKS if t.number == 23)
    assert kernelbench.sizes(softmax, Fraction(1)) == {"M": 4096, "N": 393216}
    assert kernelbench.sizes(softmax, Fraction(1, 64)) == {"M": 4096, "N": 6144}
    for task in TASKS:
        small = kernelbench.sizes(task, Fraction(FEW, prod(task.sizes.values())))
        assert FEW / 2 < prod(small.values()) <= FEW and min(small.values()) >= 2


def test_tasks_are_named_by_number_and_range() -> None:
    assert [t.number for t in kernelbench.chosen("100,5,33-36")] == [5, 33, 34, 35, 36, 100]
    assert kernelbench.chosen("all") == list(TASKS)
    for wrong in ("54", "", "softmax", "7-4", "1-2"):
        with pytest.raises(kgen.KgenError):
            kernelbench.chosen(wrong)


def test_the_summary_is_the_geometric_mean_of_kgen_rows_alone() -> None:
    rows = [
        {"kernel": "kernelbench/19_relu", "what": "kgen", "ratios": {"vs eager": 1.0, "vs compile": 4.0}},
        {"kernel": "kernelbench/23_softmax", "what": "kgen", "ratios": {"vs eager": 1.0, "vs compile": 0.25}},
        {"kernel": "kernelbench/23_softmax", "what": "compile", "ratios": {"vs eager": 9.0, "vs compile": 9.0}},
    ]
    eager, compiled = kernelbench.summary(rows).split("\n")
    assert eager.startswith("eager / kgen: geometric mean 1.00 of 2 tasks")
    assert compiled == "compile / kgen: geometric mean 1.00 of 2 tasks, least 0.25 (kernelbench/23_softmax), 1 below 0.97"
