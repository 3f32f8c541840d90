"""The README stays true: its commands run and print what it says (figures aside), its Python runs, its specs are its specs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)(?: (\S+))?\n(.*?)^```", README, re.S | re.M)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind, name, body in BLOCKS:
        if kind == "kgen" or kind == "python" and name:
            (tmp_path / name).write_text(body)
    return tmp_path


def shape(text: str) -> str:
    """A text with its figures and the widths of its columns taken out."""
    return re.sub(r"[ -]+", " ", re.sub(r"[0-9][0-9.,]*", "#", text)).strip()


def commands() -> list[tuple[str, str]]:
    found = []
    for kind, _, body in BLOCKS:
        if kind == "console":
            for piece in re.split(r"^\$ ", body, flags=re.M)[1:]:
                command, _, output = piece.partition("\n")
                found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "output"), commands(), ids=[c for c, _ in commands()])
def test_a_command_prints_what_the_readme_shows(command: str, output: str, folder: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "CI"}  # there pytest prints more
    done = subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, capture_output=True, text=True, env=env)
    got = done.stdout + (done.stderr if done.returncode else "")
    assert shape(got) == shape(output), got


def test_line_counts_shown_are_the_files(folder: Path) -> None:
    command, output = next((c, o) for c, o in commands() if "compile leaky" in c)
    subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, capture_output=True, check=True)
    for path, count in re.findall(r"(build/\S+)\s+(\d+)", output):
        assert len((folder / path).read_text().splitlines()) == int(count), path


@pytest.mark.parametrize(("name", "body"), [(name, b) for kind, name, b in BLOCKS if kind == "python" and not name.startswith("test_")])
def test_python_runs_and_its_comments_are_its_output(name: str, body: str, folder: Path) -> None:
    """A block with a name is a file: a decorated function is read from one.  Files of tests are run by a command shown beside them."""
    (folder / (name or "block.py")).write_text(body)
    done = subprocess.run([sys.executable, name or "block.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for said in re.findall(r"print\(.*?\)  # (.*)", body):
        assert said in done.stdout


@pytest.mark.parametrize("body", [b for kind, _, b in BLOCKS if kind == "cpp"])
def test_source_shown_is_source_made(body: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kgen", "compile", "leaky_square.k", "--target", "cuda", "-o", "-"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert body in done.stdout


def test_specs_in_the_readme_are_well_set(folder: Path) -> None:
    from kgen import syntax, typeset

    for kind, name, body in BLOCKS:
        if kind == "kgen":
            assert typeset.format_file(syntax.parse(body, name)) == body


def test_the_two_commands_are_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    assert "README.md" in ci and all(f"```sh {mark}" in README for mark in ("first", "second"))
