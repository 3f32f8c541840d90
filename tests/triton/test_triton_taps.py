"""Neighbours that Triton's maps load where they lie: the emitted files under Triton's interpreter, beside what the places mean."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kgen import check, pipeline, syntax
from kgen.backends import backend
from kgen.parts import over_parts
from kgen.passes import Map
from tests import warm
from tests.backends.test_dear import AGAIN, AROUND
from tests.conftest import ROOT
from tests.cuda.test_cuda_taps import DERIVED, LINE, MOVED, PLANE, POOL, WINDOW

TEXTS = {"line": LINE, "plane": PLANE, "derived": DERIVED, "moved": MOVED, "window": WINDOW}


@pytest.mark.parametrize("target", ["triton", "cpp"])
@pytest.mark.parametrize("name", TEXTS)
def test_neighbours_are_taps_of_a_map(name: str, target: str) -> None:
    kernel = check.check(syntax.parse(TEXTS[name], "taps.k"))
    mine = backend(target)
    passes = pipeline.scheduled(kernel, kernel.bindings()[0], mine.rides, mine.merges, mine.taps).passes
    assert {type(p) for p in passes} == {Map} and not [let for p in passes for let in p.lets if let.expr.name == "gather"]


def test_a_thread_reads_no_hundreds_of_neighbours_and_they_are_written_once() -> None:
    """Triton takes minutes to compile them: of the 128 that a thread may load, 20 of each element leave 4 elements."""
    source = backend("triton").render(over_parts(check.check(syntax.parse(POOL, "taps.k"))))
    assert source.count("pool_block(") == 2 and "each=4" in source
    assert "each=" not in backend("triton").render(check.check(syntax.parse(PLANE, "taps.k")))


@pytest.mark.slow
def test_shifts_of_any_layout(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    for text in (*TEXTS.values(), POOL, AROUND, AGAIN):
        for file, made in backend("triton").written(over_parts(check.check(syntax.parse(text, "taps.k")))).items():
            (tmp_path / file).write_text(made)
    env = {**os.environ, "TRITON_INTERPRET": "1", "TRITON_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    script = ROOT / "tests" / "triton" / "interpreted_taps.py"
    done = warm.run(script, tmp_path, "12", env=env)
    assert done.returncode == 0 and "held" in done.stdout, done.stderr[-3000:]
