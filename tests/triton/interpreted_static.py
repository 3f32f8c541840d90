"""Runs static Triton files under the interpreter and holds them to the derived bound; started by test_static_triton.py."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import torch
import triton.language as tl

from tests import static_files as files

#: bf16 is not among them: the interpreter truncates to it.
SPECS: tuple[tuple[str, str, dict[str, int], bool], ...] = (
    ("softmax", "f16", {"N": 256}, True),
    ("softmax", "f32", {"N": 77}, False),
    ("softmax", "f32", {"N": 70_000}, False),
    ("layernorm", "f16", {"N": 1024}, True),
    ("rmsnorm", "f16", {"N": 100}, True),
    ("cross_entropy", "f16", {"V": 1000}, True),
    ("gelu", "f16", {}, True),
    ("adamw", "f16", {}, False),
    ("argmax", "f32", {"N": 300}, False),
    ("argmax", "f64", {"N": 70_000}, False),
    ("groupnorm", "f32", {"B": 2, "G": 3, "C": 4, "S": 5}, False),
    ("batchnorm_stats", "f32", {"B": 3, "C": 5, "S": 16}, False),
    ("sum_of_squares_cols", "f16", {"M": 700, "N": 70}, False),
    ("bias_gelu", "f32", {"N": 41}, False),
    ("cumsum", "f16", {"N": 1000}, True),
    ("forth", "f32", {"N": 5000}, False),
    ("back", "f32", {"N": 77}, False),
    ("upright", "f32", {"M": 600, "N": 70}, False),
    ("shares", "f16", {"N": 300}, False),
)


def main(folder: Path) -> None:
    for k, (name, dtype, sizes, backward) in enumerate(SPECS):
        written = files.compiled(name, "triton", folder / str(k), dtype, sizes, backward)
        for kernel in files.kernels(name, backward):
            kernel = files.concrete(kernel, dtype)
            spec = importlib.util.spec_from_file_location(f"static_{k}_{kernel.name}", written[kernel.name])
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            module.libdevice = tl  # type: ignore[attr-defined]  # the interpreter has none of its own
            given = files.arguments(kernel, sizes, (2,) if max(sizes.values(), default=0) > 10_000 else files.LEAD)  # a long row takes a second
            before = {n: x.clone() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
            got = getattr(module, kernel.name)(**given)
            fresh = [r.name for r in kernel.results if not r.state]
            made = dict(zip(fresh, got if len(fresh) > 1 else (got,), strict=True)) if fresh else {}
            made |= {r.name: given[r.state] for r in kernel.results if r.state}
            files.holds(kernel, before, made, "triton")
            print("held", kernel.name, dtype, sizes)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
