"""Static files on a GPU: built alone, held to the derived bound, beside the dynamic kernel of the same spec."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
import torch

import kgen
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from kgen.testing.checks import Report
from tests import static_files as files

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

CASES = [(name, dtype, sizes) for name, sizes in (("softmax", {"N": 4096}), ("softmax", {"N": 1001}), ("softmax", {"N": 200_000}), ("gelu", {}))
         for dtype in ("bf16", "f32")]  # fmt: skip


@pytest.mark.parametrize("target", ["cuda", "triton", "cpp"])
@pytest.mark.parametrize(("name", "dtype", "sizes"), CASES)
def test_files_hold_the_bound_as_the_dynamic_kernel_does(name: str, dtype: str, sizes: dict[str, int], target: str, tmp_path: Path) -> None:
    if target == "cuda" and shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    lead = (max(2, 64 * 1024 // sizes["N"]),) if sizes else (300_001,)  # what takes time is the bound, on the CPU
    device = "cpu" if target == "cpp" else "cuda"
    kernel = files.concrete(files.kernels(name, False)[0], dtype)
    path = files.compiled(name, target, tmp_path, dtype, sizes)[name]
    given = files.arguments(kernel, sizes, lead, device)
    made = files.results(kernel, given, sizes, lead)
    if target == "triton":
        spec = importlib.util.spec_from_file_location(f"static_{name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made["y"] = getattr(module, name)(**given)
    else:
        library = files.built(path, "nvcc" if target == "cuda" else "c++")
        stream = [None] if target == "cuda" else []
        assert not files.called_as_c(library[name], kernel, given, made, files.count_of(kernel, lead), *stream) or target == "cpp"
    if device == "cuda":
        torch.cuda.synchronize()
    on_host = {n: x.cpu() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    (want,) = Analysis(kernel, on_host, target).results()
    dynamic = kgen.load(name)(given["x"], target=target)
    for y in (made["y"], dynamic):
        assert not checks.compare(y.cpu(), want, None, Report(name, target))
    limit = 2 * torch.as_tensor(want.bound)
    assert limit.isfinite().double().mean() > 0.9
    assert ((made["y"].cpu().double() - dynamic.cpu().double()).abs() <= limit).all()
