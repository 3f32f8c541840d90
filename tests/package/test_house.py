"""Habits of the code that can be counted: how long a file is, how often a type checker is told to look away, and
whether long functions have a docstring."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAX_LINES = 600
MAX_IGNORES = 0
#: A function of so many lines need not say what goes in and out.
UNSAID = 15
#: Files that are longer for now.
LONGER = {"tests/opinfo/formulas.py"}
CODE = (".py", ".c", ".jinja", ".cu", ".cuh", ".cpp", ".h", ".k", ".lark")


def files(folder: str) -> list[Path]:
    """The sources of a folder that people write: golden files are made."""
    return [p for p in sorted((ROOT / folder).rglob("*")) if p.suffix in CODE and "golden" not in p.parts and "__pycache__" not in p.parts]


@pytest.mark.parametrize("folder", ["kgen", "templates", "tests"])
def test_no_file_is_long(folder: str) -> None:
    lines = {p.relative_to(ROOT).as_posix(): p.read_text().count("\n") for p in files(folder)}
    assert not {name: n for name, n in lines.items() if n > MAX_LINES and name not in LONGER}
    assert not [name for name in LONGER if lines.get(name, MAX_LINES + 1) <= MAX_LINES], "no longer long"


def test_types_are_seldom_ignored() -> None:
    found = []
    for path in (p for p in files("kgen") if p.suffix == ".py" and "type: ignore" in p.read_text()):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.COMMENT and "type: ignore" in token.string:
                found.append(f"{path.relative_to(ROOT)}:{token.start[0]}")
    assert len(found) <= MAX_IGNORES, found


def test_long_functions_say_what_they_do() -> None:
    found = []
    for path in (p for p in files("kgen") if p.suffix == ".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (node.end_lineno or 0) - node.lineno >= UNSAID:
                if not ast.get_docstring(node):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not found, found
