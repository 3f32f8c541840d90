"""Sums by index and over ranges in Triton, under its interpreter, and as what its compiler takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kgen
from kgen.backends import backend
from kgen.runtime import toolchain
from kgen.types import bf16
from tests import warm
from tests.conftest import ROOT
from tests.segments.kernels import CASES

pytest.importorskip("triton", reason="triton is not installed")


@pytest.mark.slow
def test_it_compiles_for_a_gpu() -> None:
    for name in ("means", "ranges"):
        assert toolchain._triton(kgen.loads(CASES[name].text).kernel, {"T": bf16}, "sm_90", "ptx")


@pytest.mark.slow
def test_triton_agrees_with_f64(tmp_path: Path) -> None:
    for name, case in CASES.items():
        (tmp_path / f"{name}.py").write_text(backend("triton").render(kgen.loads(case.text).kernel))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = warm.run("-m", "tests.segments.interpreted_segments", tmp_path, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split() == sorted(CASES)
