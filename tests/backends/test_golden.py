"""The emitted sources that people review: golden files."""

from __future__ import annotations

import pytest

import kgen
from kgen.backends import backend
from kgen.grad import backward
from tests.conftest import GOLDEN, ROOT

FILES = {"triton": "{}_triton.py", "cuda": "{}.cu", "cpp": "{}.cpp"}
#: Programs made for what the specs do not ask of a printer: their texts stand beside what is made of them.
OWN = ("numbers", "places", "loss", "whiten", "steps", "moving")


def made(kernel: kgen.Kernel, target: str) -> str:
    """What `kgen compile` writes: CUDA's beside its library."""
    return backend("cuda").render(kernel.kernel, standalone=False) if target == "cuda" else kernel.source(target)


def own(name: str) -> str:
    return (GOLDEN / name / f"{name}.k").read_text()


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("name", ["gelu", "swiglu", "adamw", "scale_shift_chain", "softmax", "layernorm", "topk_mask"])
def test_source_is_as_reviewed(name: str, target: str, golden) -> None:
    golden(f"{name}/{FILES[target].format(name)}", made(kgen.load(ROOT / "specs" / f"{name}.k"), target))


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("name", OWN)
def test_source_of_what_no_spec_asks_is_as_reviewed(name: str, target: str, golden) -> None:
    golden(f"{name}/{FILES[target].format(name)}", made(kgen.loads(own(name), f"{name}.k"), target))


def test_source_that_runs_where_rows_follow_one_another_is_as_reviewed(golden) -> None:
    """A file has two passes there, and is reviewed above."""
    made = kgen.load(ROOT / "specs" / "rmsnorm.k")
    golden("rmsnorm/rmsnorm_backward.cu", backend("cuda").render(backward(made.kernel).kernel, standalone=False))


def test_cuda_sources_are_short_together() -> None:
    assert sum(len(path.read_text().splitlines()) for path in GOLDEN.rglob("*.cu")) <= 4_000
