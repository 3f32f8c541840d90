"""Runs emitted files of all casts and of all values of codes under Triton's interpreter; started by test_formats.py."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import pytest
import torch

from tests.formats.kernels import check_casts, check_chance, check_values, samples
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")


def load(name: str):
    """The function that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, Path(sys.argv[1]) / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


check_values(load("values"))
x = torch.arange(12.0).reshape(3, 4)
codes, y = load("read")(x)  # fuzzing on a GPU: a result behind a code's store read the code
assert torch.equal(codes.float(), x.amax(1) + 1) and torch.equal(y, 2 * x.amax(1) + 2), (codes, y)
x, bits = samples(300)
check_casts(load("casts_f32"), x, bits, 2.0**-126)  # its bf16 have no denormals
check_chance(load("chance"), x, bits, 2.0**-126)
x = torch.zeros(3, 4, dtype=torch.uint8)
for args, said in (
    ((x, x[:, :3], torch.ones(8)), r"y has 3 along N \(bytes of two\): that is 4"),
    ((x, x, torch.ones(7)), "w has 7 along N: that is 8"),
    ((x, x[0, 0], torch.ones(8)), r"y has shape \(\), not \[\.\.\., N \(bytes of two\)\]"),
):
    with pytest.raises(ValueError, match=said):
        load("packed")(*args)
