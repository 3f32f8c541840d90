"""Sums by index and over ranges in CUDA: the kernels on the CPU by emulation, the written file by nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kgen
from kgen.backends import backend
from tests.cuda.emulated import Emulated
from tests.segments.kernels import CASES, close, drawn


@pytest.mark.parametrize("name", ["leading", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "leading")])
def test_cuda_agrees_with_f64(name: str, tmp_path: Path) -> None:
    calls = list(drawn(name, torch.float32, ((20, 5, 7), (3, 4, 40), (700, 3, 2))))
    made = Emulated(CASES[name].text, tmp_path, *(arguments for arguments, _ in calls))
    for arguments, want in calls:
        close(tuple(made(*arguments).values()), want, arguments)


def test_a_written_file_sorts_by_itself() -> None:
    kernel = kgen.loads(CASES["lookup"].text).kernel
    text = backend("cuda").render(kernel, {"T": "bf16"})
    assert "cub::DeviceRadixSort" in text.split("#ifndef __CUDACC_RTC__\n#include <cub")[1]
