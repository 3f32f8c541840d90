"""The gallery is what the specs say: its pages are made of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kgen.resources import families
from tests.package import gallery


def test_the_pages_are_made_of_the_specs(request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes them anew."""
    if request.config.getoption("--update-golden"):
        gallery.write()
    for path, text in gallery.pages().items():
        assert path.read_text() == text, f"{path.name} is old: pytest tests/package/test_gallery.py --update-golden"
    assert {p.stem for p in gallery.FOLDER.glob("*.md")} == set(families())


def test_figures_are_of_specs_that_are_there() -> None:
    assert set(gallery.figures()) <= {p.stem for paths in families().values() for p in paths}


def test_bandwidths_are_taken_from_what_bench_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of bf16, of the most elements, kgen's the better of its targets, as parts of a copy's."""
    monkeypatch.setattr(gallery, "FIGURES", tmp_path / "figures.csv")
    gallery.FIGURES.write_text("spec,hand lines,hand source,kgen,torch,compile\nglu,7,Somebody's,,,\nl1,,,.5,.4,.3\n")
    row = {"kernel": "glu", "dtype": "bf16", "elements": 1 << 28, "length": 0, "what": "cuda", "ms": 2.0, "copy": 1.9}
    rows = [
        row, row | {"what": "triton", "ms": 2.5}, row | {"what": "eager", "ms": 4.0}, row | {"dtype": "f32", "ms": 1.0},
        row | {"elements": 1 << 20, "ms": 1.0}, row | {"what": "compile", "ms": 1.9, "kernel": "selu"},
    ]  # fmt: skip
    gallery.taken(json.loads(json.dumps(rows)))
    assert gallery.FIGURES.read_text().splitlines()[1:] == ["glu,7,Somebody's,.95,.47,", "l1,,,.5,.4,.3", "selu,,,,,1.00"]
