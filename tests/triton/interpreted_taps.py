"""Runs emitted host functions of specs with taps under Triton's interpreter beside what their places mean; started by test_triton_taps.py."""

from __future__ import annotations

import importlib.util
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from kgen.runtime.kernel import Kernel
from tests.backends.test_dear import AGAIN, AROUND, checked
from tests.cuda.test_cuda_taps import cases, derived, laid, line, moved, plane, pool, pools, window
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.manual_seed(0)
folder, count = Path(sys.argv[1]), int(sys.argv[2])


def load(name: str) -> Any:
    """The function that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}_triton.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hold(name: str, meaning: Any, *calls: tuple[Any, ...]) -> None:
    """Hold what a host function gives in each of some calls to what its text means."""
    module = load(name)
    for widths in (((1024, 4), (512, 2)), ((64, 2), (32, 1))):  # in tiles of rows too, where rows are short
        module.WIDTHS = widths
        for args in calls:
            want = meaning(*(t.double() if isinstance(t, torch.Tensor) else t for t in args))
            found = getattr(module, name)(*args)
            for y, (result, value) in zip(found if isinstance(found, tuple) else (found,), want.items(), strict=True):
                where = [(t.shape, t.stride(), t.data_ptr() % 16) if isinstance(t, torch.Tensor) else t for t in args]
                far = 0 if y.dtype != torch.bfloat16 else 1e-2  # the interpreter truncates to bf16
                assert torch.allclose(y.double(), value.double(), rtol=far, atol=0), (name, result, y.dtype, where)


def refused(call: Any, words: str) -> None:
    try:
        call()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError("accepted")


chance, deep = random.Random(5), torch.randint(-8, 8, (2, 2, 3, 2, 3, 2, 32)).float()
for dtype in (torch.float32, torch.bfloat16, torch.float64):
    hold("line", line, *cases(1, dtype, count, 0), *cases(0, dtype, count, 1))
    hold("plane", plane, *cases(2, dtype, count, 2), *cases(3, dtype, count, 3))
    hold("window", window, *cases(2, dtype, count, 6))
    hold("pool", pool, *pools(dtype, count // 3, 7))
    hold("by_number", moved, *((x, chance.choice((0, 1, -3, 8, 16, -24, 1000, 2**63 - 1))) for (x,) in cases(2, dtype, count, 4)))
hold("plane", plane, (deep[:, :, ::2, :, ::2],), (torch.randint(-8, 8, (9, 32)).float(),), (torch.randint(-8, 8, (3, 9, 64)).bfloat16(),))
hold("derived", derived, *(tuple(laid(shape, torch.float32, chance) for shape in ((3, n), (n,), (2, n))) for n in (1, 8, 24, 41)))
for k, numbers in ((checked(AROUND), (3,)), (checked(AGAIN), ())):  # with what is kept for taps
    for x in (torch.randn(2, 3, 32, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64).mT):
        want = Kernel(k)(x, *numbers, target="torch")
        torch.testing.assert_close(getattr(load(k.name), k.name)(x, *numbers), want, rtol=1e-10, atol=1e-10)
x = torch.randn(2, 3, 8)
refused(lambda: load("by_number").by_number(x, 1, out=x), "y overlaps x")
print("held")
