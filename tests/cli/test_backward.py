"""Every command that takes `--backward`, on every spec: it does its work, or says why there is no backward."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kgen.cli import main
from tests.conftest import ROOT
from tests.specs.cases import ALIKE

FOLDER = ROOT / "specs"
SPECS = [str(p.relative_to(FOLDER).with_suffix("")) for p in (*sorted(FOLDER.glob("*.k")), *sorted(FOLDER.glob("*/*.k")))]
SOURCES = ("spec", "syntax", "program", "math", "schedule", "source")
MACHINE = [("triton", "ptx"), ("triton", "sass"), ("cuda", "ptx"), ("cuda", "sass"), ("cpp", "asm")]
#: A parameter with a default stands before one without, the saved sum: there the Triton functions take names.
FEW = ("l2_normalize", "triplet_margin")


def some(*few: str) -> list:
    """Every spec, those that are not named behind `-m slow`."""
    return [pytest.param(name, marks=() if name in few else pytest.mark.slow) for name in SPECS]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def kgen(name: str, *arguments: str) -> str:
    """What a command says of a spec; "" where it says that there is no backward."""
    done = CliRunner().invoke(main, [arguments[0], name, "--backward", *arguments[1:]])
    if done.exit_code == 1 and "has no backward" in done.output:
        assert isinstance(done.exception, SystemExit)
        return ""
    assert done.exit_code == 0, (name, arguments, done.output[-2000:], done.exception)
    assert done.stdout, (name, arguments)
    return done.stdout


def needs(tool: str, target: str) -> None:
    if target == "triton":
        pytest.importorskip("triton", reason="triton is not installed")
    elif target == "cuda" and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


@pytest.mark.parametrize("name", some(*[s for s in SPECS if "/" not in s and s not in ALIKE][::2]))
def test_its_sources_are_written_and_shown(name: str) -> None:
    if not kgen(name, "compile"):
        return
    written = {path.name for path in Path("build").rglob("*") if path.is_file()}
    assert {"_backward_triton.py", "_backward.cu", "_backward.cpp"} <= {file[file.find("_backward") :] for file in written}
    for stage in SOURCES:
        kgen(name, "show", "--stage", stage)


@pytest.mark.parametrize("name", some(*FEW))
def test_it_is_shown_as_tritons_ptx(name: str) -> None:
    needs("", "triton")
    found = kgen(name, "show", "--target", "triton", "--stage", "ptx")
    assert not found or ".entry" in found


@pytest.mark.slow
@pytest.mark.parametrize(("target", "stage"), MACHINE)
@pytest.mark.parametrize("name", SPECS)
def test_it_is_shown_as_machine_code(name: str, target: str, stage: str) -> None:
    needs("nvcc", target)
    kgen(name, "show", "--target", target, "--stage", stage)


@pytest.mark.parametrize("name", some(FEW[0]))
def test_triton_builds_it(name: str) -> None:
    needs("", "triton")
    assert not kgen(name, "compile", "--target", "triton", "--build") or list(Path("build").rglob("*.cubin"))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda", "cpp"])
@pytest.mark.parametrize("name", SPECS)
def test_compilers_build_it(name: str, target: str) -> None:
    needs("nvcc", target)
    assert not kgen(name, "compile", "--target", target, "--build") or list(Path("build").rglob("*.so"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_it_is_checked_and_timed(name: str) -> None:
    kgen(name, "check", "--target", "cpp", "--examples", "1")
    kgen(name, "bench", "--target", "cpp", "--against", "none", "--elements", "2^12", "--row", "64")
