"""Runs emitted host functions of random streams under Triton's interpreter; started by test_streams.py."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.randoms.layouts import SHAPE, layouts
from tests.randoms.test_streams import OFFSET, PAIRS, SEED, TURNED, compiled, given, meaning
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")


def load(name: str) -> Any:
    """The function that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, Path(sys.argv[1]) / f"{name}_triton.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


for name in ("bits", "lines"):
    function = load(name)
    for layout, x in layouts():
        for y, wanted in zip(function(*given(name, x))[name == "bits" :], meaning(name, SHAPE), strict=True):
            assert torch.equal(y, wanted), (name, layout)
function, kernel = load("pairs"), compiled(PAIRS)
module, whole = function.__globals__, function.__globals__["tiles"]
for shape in ((5, 24), (3, 7), (2, 1), (1, 66), (1, 2, 2, 3, 2, 4)):  # a row in segments; more dims than a launch has
    module["tiles"], x = (lambda length, *_: (4, 4, 8, 4)) if shape == (1, 66) else whole, torch.randn(shape)
    args = (x if len(shape) < 3 else x.permute(4, 2, 0, 3, 1, 5), torch.tensor(SEED), OFFSET)
    for y, wanted in zip(function(*args), kernel(*args, target="torch"), strict=True):
        assert torch.equal(y, wanted), shape
function, kernel, x = load("turned"), compiled(TURNED), torch.randn(16, 2)
assert all(torch.equal(y, wanted) for y, wanted in zip(function(x), kernel(x, target="torch"), strict=True))
print("held")
