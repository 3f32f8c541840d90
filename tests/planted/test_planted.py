"""Bugs planted in a copy of kgen (`bugs.py`) are found by the tests of the default run.

By default only that each can be planted in the code of today and that its tests are there.  `pytest -m slow tests/planted -s` plants them,
one after another, runs the tests named for each in a process of its own, and prints which found it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.planted.bugs import BUGS, Bug


def test_there_are_many_and_each_has_a_name() -> None:
    assert len(BUGS) >= 30 and len({b.name for b in BUGS}) == len(BUGS)
    assert all(any(target in b.name for b in BUGS) for target in ("(C++)", "(CUDA)", "(Triton)"))


def test_each_can_be_planted_in_the_code_of_today() -> None:
    wrong = [b.name for b in BUGS if (ROOT / b.file).read_text().count(b.old) != 1 or b.new == b.old]
    assert not wrong


def test_the_tests_that_find_them_are_there() -> None:
    texts: dict[str, str] = {}
    for b in BUGS:
        assert b.tests, f"nothing finds: {b.name}"
        for test in b.tests:
            path, _, name = test.partition("::")
            text = texts.setdefault(path, (ROOT / path).read_text())
            head = re.search(rf"((?:^@.*\n(?:^ .*\n)*)*)^def {re.escape(name.partition('[')[0])}\(", text, flags=re.M)
            assert head, f"{test} is not there"
            assert not re.search(r"mark\.(slow|gpu)", head.group(1)), f"{test} is not in the default run"
            assert "golden" not in path


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, in which the tests pass before anything is planted."""
    to = tmp_path_factory.mktemp("planted")
    for name in ("kgen", "templates", "specs", "tests"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, to / name)
    (to / "cache").mkdir(mode=0o700)
    done = asked(to, *dict.fromkeys(t for b in BUGS for t in b.tests))
    assert done.returncode == 0, done.stdout[-4000:]
    return to


def asked(folder: Path, *tests: str) -> subprocess.CompletedProcess:
    """A run of some tests of a copy."""
    env = os.environ | {
        "PYTHONPATH": str(folder),
        "KGEN_CACHE_DIR": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=1200, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda b: b.name.replace(" ", "-"))
def test_a_planted_bug_is_found(bug: Bug, copy: Path, capsys: pytest.CaptureFixture) -> None:
    """By a test that fails: one that does not load, or does not start, has found nothing."""
    path = copy / bug.file
    kept, start = path.read_text(), time.monotonic()
    path.write_text(kept.replace(bug.old, bug.new))
    try:
        done = asked(copy, *bug.tests)
    finally:
        path.write_text(kept)
    found = re.findall(r"^FAILED (\S+)", done.stdout, flags=re.M)
    with capsys.disabled():
        print(
            f"\n{BUGS.index(bug) + 1:3} of {len(BUGS)}  {bug.name:80} {time.monotonic() - start:5.0f} s  {', '.join(found) or 'NOT FOUND'}"
        )
    assert done.returncode == 1 and found, done.stdout[-3000:]
    assert not re.search(r"^E +(ImportError|ModuleNotFoundError|SyntaxError)", done.stdout, flags=re.M), done.stdout[-3000:]
