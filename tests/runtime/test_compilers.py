"""The same C++ source builds with each compiler that is here, with and without OpenMP, and gives the same values."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
import torch

import kgen
from kgen.runtime import build


@pytest.mark.parametrize("extra", [("-fopenmp", "-lmvec"), ("-fopenmp-simd",), ()], ids=["openmp", "simd", "plain"])
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_gelu_builds_and_agrees(compiler: str, extra: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which(compiler)
    if found is None:
        pytest.skip(f"{compiler} is not installed")
    monkeypatch.setattr(build, "compiler", lambda: found)
    monkeypatch.setattr(build, "_working", [extra])
    try:
        made = build.build(kgen.load("gelu").source("cpp"), "gelu")
    except kgen.KgenError as error:
        if "omp" in str(error):
            pytest.skip(f"{compiler} has no OpenMP here")
        raise
    path = tmp_path / "gelu.so"
    path.write_bytes(made)
    x = torch.randn(70_001)
    y = torch.full_like(x, 7.0)
    size, stride = (ctypes.c_int64 * 1)(x.numel()), (ctypes.c_int64 * 1)(1)
    ctypes.CDLL(str(path)).gelu_f32(1, size, ctypes.c_void_p(x.data_ptr()), stride, ctypes.c_void_p(y.data_ptr()), stride)
    # libm and the vector library are each within 4 ulp, which erfc's argument magnifies by x^2 < 25
    torch.testing.assert_close(y, kgen.load("gelu")(x), rtol=60 * torch.finfo(torch.float32).eps, atol=0)
