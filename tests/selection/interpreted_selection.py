"""Runs emitted selections under Triton's interpreter against torch; started by test_selection.py."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from pathlib import Path

import torch

from tests.selection.select_cases import amounts, found_words, kth, mask, rows, same, words
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.cuda.device_of = lambda _: contextlib.nullcontext()  # type: ignore[assignment,misc]
folder = Path(sys.argv[1])

for name, wanted in (("kth", kth), ("masked", lambda x, k: (mask(x, k),)), ("words", found_words)):
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for whole in (True, False):  # rows in a tile, rows in segments of two tiles
        module.tiles = lambda n, *_, whole=whole: (4, max(1, 1 << (n - 1).bit_length()), 0, 4) if whole else (4, 4, 8, 4)
        module.FEW = 1 << 40  # which asks for a split, that there is none of
        for n in (1, 13):
            given = [words(n)] if name == "words" else [(rows(n, dtype),) for dtype in (torch.float32, torch.bfloat16)]
            for xs in given:
                for k in amounts(n):
                    found = getattr(module, name)(*xs, k)
                    found = found if isinstance(found, tuple) else (found,)
                    assert all(same(a, b) for a, b in zip(found, wanted(*xs, k), strict=True)), (name, whole, xs[0].dtype, n, k)
