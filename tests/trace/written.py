"""Functions written to a module of their own: what is traced is read from its file."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

_COUNT = itertools.count()
HEAD = """import math
import torch
import torch.nn.functional as F
from torch import exp as e_to
import torch.special as ts

"""


def module(folder: Path, text: str, head: str = HEAD) -> ModuleType:
    """The module of a text."""
    path = folder / f"written_{next(_COUNT)}.py"
    path.write_text(head + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
