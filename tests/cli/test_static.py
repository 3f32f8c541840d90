"""`kgen compile --static`: files for known dims and dtypes, each built alone and held to the exact result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from kgen.cli import main
from tests import static_files as files

#: Specs, their dims at two sizes: whole vectors, and lengths that are none.
SPECS: dict[str, tuple[dict[str, int], ...]] = {
    "softmax": ({"N": 256}, {"N": 1001}),
    "layernorm": ({"N": 512}, {"N": 77}),
    "rmsnorm": ({"N": 4096}, {"N": 33}),
    "cross_entropy": ({"V": 1024}, {"V": 130}),
    "gelu": ({}, {}),
    "adamw": ({}, {}),
}
#: What the specs above have none of: several rows of dims, positions, integers, rows that lie side by side, long rows, state.
MORE: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("argmax", "f32", {"N": 300}),
    ("groupnorm", "f16", {"B": 2, "G": 3, "C": 4, "S": 5}),
    ("batchnorm_stats", "f32", {"B": 3, "C": 5, "S": 16}),
    ("sum_of_squares_cols", "f16", {"M": 700, "N": 70}),
    ("row_absmax_int8", "bf16", {"N": 512}),
    ("logsumexp", "f64", {"N": 9000}),
    ("softmax", "f32", {"N": 70_000}),
    ("causal_softmax", "bf16", {"S": 12, "K": 40}),
    ("bias_gelu", "f32", {"N": 40}),
    ("swiglu", "bf16", {"N": 64}),
)


def sized(spec: str, sizes: dict[str, int]) -> dict[str, int]:
    """Sizes by the dims that a spec has."""
    from kgen.backends.static import named_dims

    dims = named_dims(files.kernels(spec, False)[0])
    return dict(zip(dims, sizes.values(), strict=False)) if set(dims) != set(sizes) else sizes


def cases() -> list[Any]:
    made = [(n, d, sizes, b) for n, both in SPECS.items() for sizes, d in zip(both, ("bf16", "f32"), strict=True) for b in (False, True)]
    return [c for c in made if c[0] != "adamw" or not c[3]] + [(n, d, sizes, False) for n, d, sizes in MORE]


@pytest.mark.parametrize(("name", "dtype", "sizes", "backward"), cases())
def test_cpp_files_stand_alone(name: str, dtype: str, sizes: dict[str, int], backward: bool, tmp_path: Path) -> None:
    """Built by the line in their heads, without kgen, and called by ctypes."""
    sizes = sized(name, sizes)
    lead = files.LEAD if name != "gelu" else (3, 1234)
    written = files.compiled(name, "cpp", tmp_path, dtype, sizes, backward)
    for kernel in files.kernels(name, backward):
        kernel = files.concrete(kernel, dtype)
        library = files.built(written[kernel.name], "c++")
        given = files.arguments(kernel, sizes, lead)
        before = {n: x.clone() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
        made = files.results(kernel, given, sizes, lead)
        files.called_as_c(library[kernel.name], kernel, given, made, files.count_of(kernel, lead))
        files.holds(kernel, before, made, "cpp")
