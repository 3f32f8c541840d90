"""Kernels that reduce on a CUDA device: every bundled spec and every shape of program, within the bound derived from its formula.

Each spec runs in one dtype on a target, each in its turn, so that every dtype meets every length on both; all of them together run
with `-m "gpu and slow"`.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

import kgen
from kgen.testing import checks
from tests.programs import PROGRAMS
from tests.specs.cases import cases, check_case, random, special

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
CASES = cases()
IDS = [f"{c.spec}{k if k and CASES[k - 1].spec == c.spec else ''}" for k, c in enumerate(CASES)]


DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def by_turns() -> list:
    """Every case in every dtype on both targets; those whose turn it is not are slow."""
    found = []
    for k, (case, name) in enumerate(zip(CASES, IDS, strict=True)):
        for j, target in enumerate(("triton", "cuda")):
            for d, dtype in enumerate(DTYPES):
                marks = () if d == (k + j) % len(DTYPES) else pytest.mark.slow
                found.append(pytest.param(case, dtype, target, id=f"{name}-{dtype}-{target}", marks=marks))
    return found


@pytest.mark.parametrize(("case", "dtype", "target"), by_turns())
def test_specs_stay_within_the_derived_bound(case, dtype: torch.dtype, target: str) -> None:
    sizes = (1, 32, 33, 1025, 4096, 65_537) if target == "cuda" and dtype in (torch.float32, torch.bfloat16) else (1, 33, 1025, 65_537)
    for n in sizes:
        check_case(case, case.arguments(n, random(dtype, n)), target)
    if case.special:
        for n in (33, 1025):
            check_case(case, case.arguments(n, special(dtype, n)), target)


def alternating(names: Iterable[str]) -> list:
    """Each name on one target by default, the next on the other; the rest slow."""
    return [
        pytest.param(name, target, id=f"{name}-{target}", marks=() if j == k % 2 else pytest.mark.slow)
        for k, name in enumerate(names)
        for j, target in enumerate(("triton", "cuda"))
    ]


@pytest.mark.first
@pytest.mark.parametrize(("spec", "target"), alternating(("softmax", "layernorm", "argmax", "frobenius", "mse", "logsumexp")))
def test_rows_of_a_million_stay_within_the_derived_bound(spec: str, target: str) -> None:
    case = next(c for c in CASES if c.spec == spec)
    dtype = (torch.float32, torch.bfloat16)[(len(spec) + len(target)) % 2]
    check_case(case, case.arguments(2**20 + 1, random(dtype)), target)


@pytest.mark.parametrize(("name", "target"), alternating(PROGRAMS))
def test_programs_stay_within_the_derived_bound(name: str, target: str) -> None:
    report = checks.check(kgen.loads(PROGRAMS[name]).kernel, target, examples=6)
    assert not report.failures, report.failures[0]
