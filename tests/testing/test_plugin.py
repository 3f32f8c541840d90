"""The pytest plugin: what it collects, what its items are called, how they fail, and what it leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch  # so that a run inside this process does not import it anew  # noqa: F401

import kgen
from kgen.runtime import launchers
from kgen.testing import against, checks, reproducer
from tests.conftest import ROOT

pytest_plugins = ["pytester"]

SQUARE = "square(x: T[...]) -> y: T[...]\ny = x * x\n"
COUNT = "count(x: T[..., N]) -> n: i64[...]\nn = sum[N](x > 0)\n"
WRONG = "wrong(x: T[...]) -> y: T[...]\ny = x + bais\n"


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project: specs (a wrong one among them) and a test; the plugin is the one in this checkout."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "kgen.testing.plugin")
    specs = pytester.mkdir("specs")
    for name, text in {"square": SQUARE, "count": COUNT, "wrong": WRONG}.items():
        (specs / f"{name}.k").write_text(text)
    pytester.makepyfile(test_plain="def test_plain():\n    pass\n")
    return pytester.path


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    kept = kgen.loads, against, checks, reproducer  # imported: the run inside this process keeps them, and does not import them anew
    assert all(kept)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--kgen-examples", "4", *arguments)


def test_a_folder_of_specs_is_tested_an_item_for_each_target_and_backward(folder: Path, pytester: pytest.Pytester) -> None:
    done = run(pytester, "specs", "-v", "--kgen-target", "torch")
    done.assert_outcomes(passed=3, failed=1)
    items = re.findall(r"^(specs/\S+) (\w+)", done.stdout.str(), re.M)
    assert items == [("specs/count.k::torch", "PASSED"), ("specs/square.k::torch", "PASSED"),
                     ("specs/square.k::torch-backward", "PASSED"), ("specs/wrong.k::spec", "FAILED")]  # fmt: skip


def test_a_wrong_spec_fails_with_its_caret_and_no_traceback(folder: Path, pytester: pytest.Pytester) -> None:
    done = run(pytester, "specs/wrong.k")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["error: `bais` is not defined", " --> specs/wrong.k:2:9", "*y = x + bais", "*  ^^^^"])
    assert "Traceback" not in done.stdout.str() and "plugin.py" not in done.stdout.str()


def test_a_wrong_kernel_fails_with_its_case_made_small(folder: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = launchers.Torch.__call__
    monkeypatch.setattr(launchers.Torch, "__call__", lambda self, call: (honest(self, call), [t.add_(1) for t in call.results.values()]))
    done = run(pytester, "specs/square.k::torch", "--kgen-target", "torch")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["error: square on torch, case 0 of seed 0 *", "*made small, as Python:", "import torch, kgen", "assert *"])
    assert "Traceback" not in done.stdout.str()


def test_a_target_that_does_not_run_here_is_skipped_with_the_reason(
    folder: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgen.testing.checks.targets", lambda chosen=None: ([], {"cuda": "there is no CUDA device"}))
    done = run(pytester, "specs/square.k", "-rs")
    done.assert_outcomes(skipped=1)
    done.stdout.fnmatch_lines(["SKIPPED*specs/square.k*no target runs here: cuda: there is no CUDA device"])


@pytest.mark.parametrize(
    ("arguments", "patterns", "expected"),
    [
        ((), "", set()),
        (("test_plain.py",), "", set()),
        (("specs",), "", {"square", "count", "wrong"}),
        (("specs/square.k",), "", {"square"}),
        ((".",), "", {"square", "count", "wrong"}),
        ((".", "--ignore", "specs/wrong.k"), "", {"square", "count"}),
        ((), "specs/s*.k", {"square"}),
        (("specs",), "specs/s*.k specs/c*.k", {"square", "count"}),
        (("specs/wrong.k",), "specs/s*.k", {"wrong"}),
    ],
)
def test_specs_are_collected_where_they_are_asked_for(
    folder: Path, pytester: pytest.Pytester, arguments: tuple[str, ...], patterns: str, expected: set[str]
) -> None:
    pytester.makeini(f"[pytest]\nkgen_specs = {patterns}\n")
    done = run(pytester, "--collect-only", "-q", "--kgen-target", "torch", *arguments)
    assert set(re.findall(r"specs/(\w+)\.k", done.stdout.str())) == expected
    assert ("test_plain" in done.stdout.str()) == (not arguments or arguments[0] in (".", "test_plain.py"))


def test_a_folder_may_ignore_its_specs(folder: Path, pytester: pytest.Pytester) -> None:
    (folder / "specs" / "conftest.py").write_text('collect_ignore_glob = ["w*.k"]\n')
    done = run(pytester, "--collect-only", "-q", "--kgen-target", "torch", "specs")
    assert set(re.findall(r"specs/(\w+)\.k", done.stdout.str())) == {"square", "count"}


def test_plain_pytest_imports_nothing_of_it_and_it_is_registered(tmp_path: Path) -> None:
    """In a process of its own: a run without .k files loads neither torch nor what reads specs."""
    (tmp_path / "test_plain.py").write_text("def test_plain():\n    pass\n")
    (tmp_path / "square.k").write_text(SQUARE)
    heavy = "('torch', 'sympy', 'lark', 'numpy', 'kgen.syntax', 'kgen.runtime')"
    code = f"import sys, pytest; rc = pytest.main(['-q', '-p', 'no:cacheprovider']); print([m for m in {heavy} if m in sys.modules], rc)"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "kgen.testing.plugin"}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 passed" in done.stdout and done.stdout.endswith("[] 0\n"), done.stdout + done.stderr
    assert '[project.entry-points.pytest11]\nkgen = "kgen.testing.plugin"\n' in (ROOT / "pyproject.toml").read_text()


def test_this_repositorys_tests_hold_no_specs_to_check(pytestconfig: pytest.Config) -> None:
    """Theirs are wrong on purpose, or what a test compares with."""
    from fnmatch import fnmatch

    from tests import conftest

    for path in (ROOT / "tests").rglob("*.k"):
        assert any(fnmatch(str(path), str(ROOT / "tests" / pattern)) for pattern in conftest.collect_ignore_glob), path
