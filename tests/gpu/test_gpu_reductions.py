"""Kernels that reduce on a CUDA device: every bundled spec and every shape of program, within the bound derived from its formula."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.testing import checks
from tests.programs import PROGRAMS
from tests.specs.cases import SIZES, cases, check_case, random, special

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
CASES = cases()
IDS = [f"{c.spec}{k if k and CASES[k - 1].spec == c.spec else ''}" for k, c in enumerate(CASES)]
each_target = pytest.mark.parametrize("target", ["triton", "cuda"])


@each_target
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_specs_stay_within_the_derived_bound(case, dtype: torch.dtype, target: str) -> None:
    sizes = (*SIZES, 4096, 65_535, 65_537) if dtype in (torch.float32, torch.bfloat16) else (1, 33, 1025, 65_537)
    for n in sizes:
        check_case(case, case.arguments(n, random(dtype, n)), target)
    if case.special:
        for n in (2, 33, 1025):
            check_case(case, case.arguments(n, special(dtype, n)), target)


@each_target
@pytest.mark.parametrize("spec", ["softmax", "layernorm", "argmax", "frobenius", "mse", "logsumexp"])
def test_rows_of_a_million_stay_within_the_derived_bound(spec: str, target: str) -> None:
    case = next(c for c in CASES if c.spec == spec)
    for dtype in (torch.float32, torch.bfloat16):
        check_case(case, case.arguments(2**20 + 1, random(dtype)), target)


@each_target
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_stay_within_the_derived_bound(name: str, target: str) -> None:
    report = checks.check(kgen.loads(PROGRAMS[name]).kernel, target, examples=12)
    assert not report.failures, report.failures[0]
