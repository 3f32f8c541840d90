"""README and docs stay true: their commands run and print what they say (figures aside), their Python runs, their specs are well set.

A block's language and title say how it is held to what the project does:

    kgen, python with a name     a file of the folder in which everything runs; Python runs too, but for files of tests
    python without one           runs
    console                      commands behind `$ `, each with what it prints
    text, "output of FILE.py"    stands in what that file prints
    any, "kgen ..."              stands in what that command prints
    any other                    is read by people alone: what needs a GPU, another machine or hours

What stands on several pages runs once.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import warm
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    kind: str
    title: str
    body: str

    @property
    def is_file(self) -> bool:
        return self.kind in ("kgen", "python") and "." in self.title and not self.title.startswith("kgen ")


@cache
def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in re.findall(r'^```(\w+)(?: title="([^"\n]*)")?\n(.*?)^```', page.read_text(), re.S | re.M)]


EVERY = list(dict.fromkeys(b for page in PAGES for b in blocks(page)))
FILES = {b.title: b.body for b in EVERY if b.is_file}
SCRIPTS = [b for b in EVERY if b.kind == "python" and not b.title.startswith(("test_", "kgen "))]
EXCERPTS = [b for b in EVERY if b.title.startswith("kgen ")]


def commands() -> list[tuple[str, str]]:
    found = []
    for block in EVERY:
        if block.kind == "console":
            for piece in re.split(r"^\$ ", block.body, flags=re.M)[1:]:
                command, _, output = piece.partition("\n")
                found.append((command, output))
    return list(dict.fromkeys(found))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What everything runs in: the files that the pages show."""
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def shape(text: str) -> str:
    """A text with its figures and the widths of its columns taken out."""
    return re.sub(r"[ -]+", " ", re.sub(r"[0-9][0-9.,]*", "#", text)).strip()


def words(text: str) -> str:
    """A text without its indents and line ends."""
    return " ".join(text.split())


def printed(command: str) -> str:
    """What a command prints, with its errors if it fails.  kgen's own run in this process: what they import is there, what they build is
    shared."""
    program, *given = command.split()
    if program != "kgen":
        env = {k: v for k, v in os.environ.items() if k != "CI"}  # there pytest prints more
        done = warm.run("-m", program, *given, env=env)
        return done.stdout + (done.stderr if done.returncode else "")
    from kgen.cli import main

    out, errors, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main.main(given, prog_name="kgen")
        except SystemExit as end:
            code = end.code
    return out.getvalue() + (errors.getvalue() if code else "")


@cache
def source(command: str) -> str:
    return printed(command)


@pytest.mark.parametrize(("command", "output"), commands(), ids=[c for c, _ in commands()])
def test_a_command_prints_what_is_shown(command: str, output: str, folder: Path, built_quickly: None) -> None:
    got = printed(command)
    assert shape(got) == shape(output), got
    for path, count in re.findall(r"(build/\S+)\s+(\d+)", output):  # how long a file is, is no figure of a machine
        assert len((folder / path).read_text().splitlines()) == int(count), path


def agrees(block: Block, said: str) -> None:
    """What a script printed has all that the pages say it prints."""
    for line in re.findall(r"print\(.*?\)  # (.*)", block.body):
        assert line in said
    for other in EVERY:
        if other.title == f"output of {block.title}":
            assert other.body in said


NAMES = [b.title or f"block {k}" for k, b in enumerate(SCRIPTS)]


@pytest.mark.parametrize("block", [pytest.param(b, id=n, marks=pytest.mark.slow if k else ()) for k, (b, n) in enumerate(zip(SCRIPTS, NAMES))])
def test_python_runs_and_prints_what_is_shown(block: Block, folder: Path) -> None:
    """In a process of its own: by default the first, a reader's."""
    name = block.title or "block.py"  # a file, from which a decorated function is read
    (folder / name).write_text(block.body)
    done = subprocess.run([sys.executable, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    agrees(block, done.stdout)


@pytest.mark.parametrize("block", SCRIPTS[1:], ids=NAMES[1:])
def test_python_runs_here(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch, built_quickly: None) -> None:
    """Where torch is imported, and without inductor, whose builds of a model like these tests/torch/test_torch_compile.py has."""
    import torch

    name = block.title or "block.py"
    (folder / name).write_text(block.body)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(name, run_name="__main__")
    agrees(block, said.getvalue())


@pytest.mark.parametrize("block", EXCERPTS, ids=[b.title for b in EXCERPTS])
def test_a_part_shown_is_part_of_what_is_printed(block: Block, folder: Path) -> None:
    same = shape if block.kind == "text" else words
    assert same(block.body) in same(source(block.title))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".k")])
def test_specs_shown_are_well_set(name: str) -> None:
    from kgen import syntax, typeset

    assert typeset.format_file(syntax.parse(FILES[name], name)) == FILES[name]


def test_a_name_is_one_file_on_all_pages() -> None:
    for block in EVERY:
        assert not block.is_file or FILES[block.title] == block.body, f"{block.title} differs between pages"
    shown = {b.title.removeprefix("output of ") for b in EVERY if b.title.startswith("output of ")}
    assert shown <= {b.title for b in SCRIPTS}


def test_the_two_commands_are_what_ci_runs() -> None:
    ci, readme = (ROOT / ".ci" / "run").read_text(), PAGES[0].read_text()
    assert "README.md" in ci and all(f"```sh {mark}" in readme for mark in ("first", "second"))


def test_the_language_names_all_its_functions() -> None:
    """All but signs, and but what the functions of the prelude are made of."""
    from kgen.expressions import prelude
    from kgen.ops import REDUCTIONS, SCANS
    from kgen.ops.table import _ROWS
    from kgen.syntax import INFIX, PREFIX

    parts = {"shift", "finite_shift", "root", "above", "alike", "zeros", "others", "box_muller", "fraction53"}
    signs = {name for name, _ in (*INFIX.values(), *PREFIX.values())}
    text = (ROOT / "docs" / "language.md").read_text()
    listed = set(re.findall(r"`([a-z]\w*)", text[text.index("## All functions") : text.index("## Values")]))
    assert not {*(row.name for row in _ROWS), *REDUCTIONS, *SCANS, *prelude()} - signs - parts - listed


def test_the_readme_is_the_first_half_hour() -> None:
    assert len(PAGES[0].read_text().splitlines()) <= 250


def test_every_page_is_in_the_navigation_and_every_link_leads_somewhere() -> None:
    """What `mkdocs build --strict` would say of docs/, and the same of the README and of CONTRIBUTING."""
    named = re.findall(r"^\s+- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(named) == [p.relative_to(ROOT / "docs").as_posix() for p in PAGES[1:]]
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
        for path, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            if "://" in path:
                continue
            to = page.parent / path if path else page
            assert to.exists(), f"{page.name} links to {path}"
            if anchor:
                heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", to.read_text(), flags=re.S), re.M)
                assert anchor in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}, f"{page.name}: #{anchor}"
