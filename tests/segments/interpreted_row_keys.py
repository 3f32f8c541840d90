"""Runs emitted reductions by each row's own keys under Triton's interpreter; started by test_row_keys.py."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

import torch

from kgen.runtime.modules import import_source
from tests.segments.row_keys import CASES, close, drawn
from tests.triton import quick_interpreter  # noqa: F401

warnings.simplefilter("ignore")
torch.cuda.device_of = lambda _: contextlib.nullcontext()  # type: ignore[assignment,misc]

for path in sorted(Path(sys.argv[1]).glob("*.py")):
    module = import_source(path.read_text(), path.stem)
    for arguments, want in drawn(path.stem, ((3, 5, 7), (2, 33, 9), (2, 300, 5))):
        close(next(v for k, v in vars(module).items() if k == CASES[path.stem].text.split("(")[0].strip())(*arguments), want)
    print(path.stem)
