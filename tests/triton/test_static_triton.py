"""Static Triton files: what they compile to for a GPU, and what they compute under the interpreter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import static_files as files
from tests import warm
from tests.conftest import ROOT
from tests.triton.interpreted_static import SPECS

triton = pytest.importorskip("triton", reason="triton is not installed")


@pytest.mark.slow
def test_files_hold_the_bound_under_the_interpreter(tmp_path: Path) -> None:
    done = warm.run("-m", "tests.triton.interpreted_static", tmp_path, cwd=ROOT, env=os.environ | {"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    assert len(done.stdout.splitlines()) >= len(SPECS)


COMPILED: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("softmax", "bf16", {"N": 4096}), ("softmax", "bf16", {"N": 200_000}), ("gelu", "bf16", {}), ("gelu", "f32", {}), ("adamw", "f16", {}),
    ("layernorm", "bf16", {"N": 1000}), ("cross_entropy", "bf16", {"V": 32_000}), ("sum_of_squares_cols", "f16", {"M": 700, "N": 70}),
    ("cumsum", "bf16", {"N": 10_000}), ("logcumsumexp", "f32", {"N": 500}), ("upright", "bf16", {"M": 4096, "N": 300}),
)  # fmt: skip
COMPILE = """
import importlib.util, sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
for path, name, signature in eval(sys.argv[1]):
    spec = importlib.util.spec_from_file_location("module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = triton.compile(ASTSource(getattr(module, name), signature), target=GPUTarget("cuda", 90, 32))
    print(".entry" in made.asm["ptx"])
"""


@pytest.mark.slow
def test_triton_compiles_the_kernels(tmp_path: Path) -> None:
    """For sm_90, in a process that imports nothing but the files."""
    asked = []
    for k, (name, dtype, sizes) in enumerate(COMPILED):
        (tmp_path / str(k)).mkdir()
        path = files.compiled(name, "triton", tmp_path / str(k), dtype, sizes)[name]
        kernel = files.concrete(files.kernels(name, False)[0], dtype)
        types = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "i64": "i64", "i8": "i8"}
        tensors = {p.name: p.dtype for p in kernel.params if p.is_tensor} | {r.name: r.dtype for r in kernel.results if not r.state}
        of = {f"{n}_ptr": f"*{types[d]}" for n, d in tensors.items()}
        (head,) = re.findall(r"^def (\w+_kernel)\(([^)]*)\):", path.read_text(), re.M)
        names = [item.partition(":") for item in head[1].replace("\n", "").split(",")]
        asked.append((str(path), head[0], {n.strip(): of.get(n.strip(), "fp64" if "float64" in t else "i64") for n, _, t in names}))
    done = subprocess.run([sys.executable, "-c", COMPILE, repr(asked)], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"TRITON_CACHE_DIR": str(tmp_path / "cache")})  # fmt: skip
    assert done.stdout.split() == ["True"] * len(COMPILED), done.stderr[-2000:]
