"""The emitted sources that people review: golden files."""

from __future__ import annotations

import pytest

import kgen
from tests.conftest import ROOT

FILES = {"triton": "{}_triton.py", "cuda": "{}.cu", "cpp": "{}.cpp"}


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("name", ["gelu", "swiglu", "adamw", "scale_shift_chain", "softmax", "layernorm"])
def test_source_is_as_reviewed(name: str, target: str, golden) -> None:
    golden(f"{name}/{FILES[target].format(name)}", kgen.load(ROOT / "specs" / f"{name}.k").source(target))
