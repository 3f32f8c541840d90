"""The package: the wheel carries what kgen needs, and works from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl")
    return made


def test_the_wheel_carries_templates_prelude_grammar_and_specs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"kgen/grammar.lark", "kgen/grammar.json", "kgen/prelude.k", "kgen/py.typed", "kgen/specs/gelu.k", "kgen/specs/FAMILIES", "kgen/specs/norms/polynorm.k", "kgen/templates/macros.jinja", "kgen/runtime/fastcall.c", "kgen/runtime/fastcall.h"}
    wanted |= {f"kgen/{p.relative_to(ROOT)}" for p in (ROOT / "templates").rglob("*") if p.is_file()}
    assert wanted <= names, wanted - names
    assert not [n for n in names if n.startswith("tests")]


def test_the_wheel_compiles_gelu_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """A virtual environment without this checkout; the dependencies are this environment's own."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", "import sys, kgen; sys.argv = ['kgen', 'compile', 'gelu']; print(kgen.__file__); from kgen.cli import main; main()"],
        cwd=work, env={**os.environ, "PYTHONPATH": str(site)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert str(site) in done.stdout.splitlines()[0]
    assert {p.name for p in (work / "build" / "gelu").iterdir()} == {
        "gelu_triton.py", "gelu.cu", "gelu.cpp", "kgen_functions.cuh", "kgen_host.cuh", "kgen_maps.cuh", "kgen_numbers.cuh",
    }  # fmt: skip


def test_constraints_pin_what_the_package_asks_for() -> None:
    import re

    text = (ROOT / "pyproject.toml").read_text()
    asked = set(re.findall(r'^    "([A-Za-z0-9-]+)>=', text, re.M))
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert {a.lower() for a in asked} - {"cuda-bindings"} <= pinned
