"""Runs emitted sums about a peak under Triton's interpreter: each form within the derived bound; started by test_triton_online.py."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from pathlib import Path

import torch
import triton.language as tl

import kgen
from kgen.testing import bounds, staying
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.cuda.device_of = lambda _: contextlib.nullcontext()  # type: ignore[assignment,misc]
staying.all_stay = lambda *_: False  # rows of any length go the way of long ones
folder = Path(sys.argv[1])
INF, NAN = float("inf"), float("nan")


def load(name: str):
    """The module that the test emitted under this name."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.libdevice = tl  # the interpreter has no library
    return module


def form(module, chosen: str) -> None:
    """Make a module take one form for every row: small tiles, so that a few elements make several tiles and segments."""
    module.tiles = lambda length, *_: (8, 4, 8, 4) if chosen != "row" else (8, 1 << max(0, length - 1).bit_length(), 0, 4)
    module.FEW = 0 if chosen == "loop" else 1 << 40


def given(length: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """x and v: rows that rise, that fall and are offset, of large weights, of one value, with infinities and NaN in either."""
    x, v = torch.randn(11, length, dtype=torch.float64) * 6, torch.randn(11, length, dtype=torch.float64)
    x[0] = x[0].sort().values
    x[1] = x[1].sort(descending=True).values + (300 if dtype == torch.float16 else 1e4)
    v[2] *= 10.0 ** torch.randint(-4, 4, v[2].shape)
    x[3] = 0.1
    for k, special in enumerate((INF, -INF, NAN)):
        x[4 + 2 * k, ::3] = x[5 + 2 * k] = special
    v[10, ::5] = INF
    return [x.to(dtype), v.to(dtype)]


def hold(kernel, results, arguments: list[torch.Tensor], what: object) -> None:
    wanted = bounds.Analysis(kernel, dict(zip("xv", arguments, strict=True)), "triton").results()
    for r, got, want in zip(kernel.results, results, wanted, strict=True):
        alike = (got.double() == want.exact) | (got.isnan() & want.exact.isnan()) | ((got.double() - want.exact).abs() <= want.bound)
        assert (alike | ~want.bound.isfinite()).all(), (r.name, what, got, want)
        assert want.bound[:4].isfinite().all(), (r.name, what)


torch.manual_seed(0)
LONG = (("loop", 21, torch.float32), ("split", 37, torch.float32), ("split", 1, torch.float16), ("row", 9, torch.float64))
HELD = (("row", 9, torch.float32),)
FEW = (("loop", 9, torch.float32), ("split", 13, torch.float32))
EVERY = {"weighted": LONG, "spread": LONG, "peaks": HELD}
for name, forms in (EVERY if sys.argv[2] == "every" else {"weighted": FEW, "spread": FEW[1:]}).items():
    module, kernel = load(name), kgen.loads((folder / f"{name}.k").read_text()).kernel
    for chosen, length, dtype in forms:
        form(module, chosen)
        arguments = given(length, dtype)
        if dtype == torch.float16:
            arguments = [t.T.contiguous().T for t in arguments]
        hold(kernel, module.f(*arguments), arguments, (name, chosen, length, dtype))
print("ok")
