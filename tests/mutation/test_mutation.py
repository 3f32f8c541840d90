"""The runner of mutation testing works: it makes mutants, asks the tests that reach them, and tells killed from living."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation import __main__ as runner
from tests.mutation import mutants
from tests.mutation.mutants import Mutant, difference, digest, functions

SOURCE = b"def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x < 0\n"


def mutant(old: str, new: str, line: int, name: str = "") -> Mutant:
    return Mutant(name or old, "rules", "kgen/small.py", "f", line, line, SOURCE.index(old.encode()), old, new, digest(SOURCE))


def test_a_mutant_is_put_where_it_belongs_and_nowhere_else() -> None:
    assert mutant("x + 1", "x - 1", 2).applied(SOURCE) == SOURCE.replace(b"+", b"-")
    with pytest.raises(ValueError, match="has changed"):
        mutant("x + 1", "x - 1", 2).applied(SOURCE + b"\n")
    assert difference(b"a (b) c", b"a b c") == (2, "(b)", "b")
    assert difference(b"aa", b"a") == (1, "a", "")
    assert functions(SOURCE.decode())[6] == "g"
    assert all((mutants.ROOT / path).exists() for group in mutants.GROUPS for path in mutants.files(group))
    assert all((mutants.ROOT / path).exists() for path in mutants.TESTS)


def test_mutmut_makes_them(tmp_path: Path) -> None:
    pytest.importorskip("mutmut", reason="mutmut is not installed")
    (tmp_path / "small.py").write_bytes(SOURCE)
    made = list(mutants.mutants("small.py", "rules", tmp_path))
    assert {(m.old, m.new) for m in made} >= {("x + 1", "x - 1"), ("1", "2")}
    assert len({m.applied(SOURCE) for m in made}) == len(made)


def test_tests_that_reach_a_line_are_asked_the_quickest_first() -> None:
    seconds = {"a::slow": 3.0, "b::quick": 0.1, "c::late": 99.0, **{f"d::other{k}": 1.0 for k in range(20)}}
    lines = {"kgen/small.py": {"a::slow": [2], "b::quick": [1, 2], "c::late": [2], "": [1, 5], **{f"d::other{k}": [6] for k in range(20)}}}
    reached = runner.Reached({"seconds": seconds, "lines": lines, "files": {}})
    assert reached.tests(mutant("x + 1", "x - 1", 2))[:2] == ["b::quick", "a::slow"]
    assert "c::late" not in reached.tests(mutant("x + 1", "x - 1", 2))
    assert len(reached.tests(mutant("x < 0", "x <= 0", 6))) == int(runner.ALL)


def test_verdicts_and_the_table() -> None:
    assert [runner.verdict(c) for c in (0, 1, 2, 5, -1, -2)] == ["survived", "killed", "killed", "survived", "endless", "killed"]
    known = [mutant("x + 1", "x - 1", 2, "a"), mutant("x < 0", "x <= 0", 6, "b"), mutant("1", "2", 2, "c")]
    found = {"a": {"verdict": "killed"}, "b": {"verdict": "survived"}}
    rules = next(line for line in runner.table(found, known, {"b"}).splitlines() if line.startswith("rules"))
    assert rules.split() == ["rules", "3", "2", "1", "0", "1", "1", "50.0%"]


def test_a_worker_runs_tests_against_a_changed_copy(tmp_path: Path) -> None:
    """One small project: a mutant that a test kills, one that none reaches, one that does not end; the copy is as it was afterwards."""
    folder = tmp_path / "copy"
    (folder / "kgen").mkdir(parents=True)
    (folder / "kgen" / "__init__.py").write_text("")
    (folder / "kgen" / "small.py").write_bytes(SOURCE)
    (folder / "test_small.py").write_text("from kgen.small import f\n\ndef test_f():\n    assert f(1) == 2\n")
    (folder / "tests").symlink_to(mutants.ROOT / "tests")
    worker = runner.Worker(folder, tmp_path / "log", ())
    try:
        task = {"kind": "mutant", "path": "kgen/small.py", "tests": ["test_small.py::test_f"], "limit": 20}

        def ask(m: Mutant, limit: float = 20) -> dict:
            return worker.ask(task | {"name": m.name, "start": m.start, "old": m.old, "new": m.new, "limit": limit})

        killed = ask(mutant("x + 1", "x - 1", 2))
        assert (killed["code"], killed["by"]) == (1, "test_small.py::test_f")
        assert ask(mutant("x < 0", "x <= 0", 6))["code"] == 0
        assert ask(mutant("return x + 1", "while True: pass", 2), limit=2)["code"] == -1
    finally:
        worker.stop()
    assert (folder / "kgen" / "small.py").read_bytes() == SOURCE


def test_the_report_reads_what_was_found(tmp_path: Path) -> None:
    m = mutant("x + 1", "x - 1", 2, "kgen/small.py:2:0")
    (tmp_path / "mutants.json").write_text(json.dumps([m.data()]))
    (tmp_path / "out.json").write_text(json.dumps({m.name: {"verdict": "survived", "tests": 3, "took": 1.0, "by": ""}}))
    command = [
        sys.executable,
        "-m",
        "tests.mutation",
        "--report",
        "--mutants",
        str(tmp_path / "mutants.json"),
        "--out",
        str(tmp_path / "out.json"),
    ]
    done = subprocess.run(command, cwd=mutants.ROOT, capture_output=True, text=True, check=True)
    assert "1 live" in done.stdout
    assert json.loads((tmp_path / "out.survivors.json").read_text())[0]["new"] == "x - 1"
