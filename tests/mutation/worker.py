"""Runs tests in a copy of the project, each time in a process of its own: python -m tests.mutation.worker FOLDER [IMPORT...].

A task is a line of JSON on stdin, its result a line on stdout.  What all tests import (torch, not kgen) is imported once, and each
task is a fork of that, which reads kgen anew: a mutant costs its tests, not the start of an interpreter.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

ROOM = 24 << 30  # bytes of address space that a mutant may take


class Reach:
    """A pytest plugin: which lines of kgen each test runs, how long it takes, and whether it passes."""

    def __init__(self, source: Path):
        import coverage

        self.source = source
        self.cov = coverage.Coverage(data_file=None, source=[str(source)], config_file=False, messages=False)
        self.cov.start()
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.cov.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def lines(self) -> dict[str, dict[str, list[int]]]:
        """By file, by test: the lines it runs ("" for what runs when the file is imported)."""
        self.cov.stop()
        data = self.cov.get_data()
        found: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            mine = found.setdefault(str(Path(file).relative_to(self.source.parent)), {})
            for line, contexts in data.contexts_by_lineno(file).items():
                for test in contexts:
                    mine.setdefault(test, []).append(line)
        return found


class Chosen:
    """A pytest plugin: of what is collected only these tests, in this order; the first that fails is kept."""

    def __init__(self, tests: list[str]):
        self.order = {t: k for k, t in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def quick() -> None:
    """Hypothesis draws the same examples each time, and shrinks none."""
    with contextlib.suppress(ImportError):
        from hypothesis import HealthCheck, Phase, settings

        settings.register_profile(
            "mutation",
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutation")


def run(task: dict[str, Any], folder: Path, out: Path) -> int:
    """One task, in the child: pytest's exit code; what it has to say is in the file `out`."""
    import pytest

    quick()
    arguments = ["-q", "-x", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly", "-W", "ignore", "--no-header"]
    if task["kind"] == "reach":
        reach = Reach(folder / "kgen")
        arguments.remove("-x")
        code = int(pytest.main([*arguments, *task["files"]], plugins=[reach]))
        out.write_text(json.dumps({"code": code, "lines": reach.lines(), "seconds": reach.seconds, "failed": sorted(reach.failed)}))
        return code
    sys.dont_write_bytecode = True
    if task["kind"] == "plain":  # the tests as pytest's own arguments name them
        chosen = Chosen([])
        chosen.pytest_collection_modifyitems = lambda items: None  # type: ignore[method-assign]
        code = int(pytest.main([*arguments, *task["tests"]], plugins=[chosen]))
        out.write_text(json.dumps({"code": code, "by": chosen.failed}))
        return code
    files: dict[str, list[str]] = {}
    for test in task["tests"]:
        files.setdefault(test.split("::")[0], []).append(test)
    code, by = 5, ""
    for file, tests in files.items():  # one after another: most mutants are killed before the costlier files are even read
        chosen = Chosen(tests)
        found = int(pytest.main([*arguments, file], plugins=[chosen]))
        if found != 5:
            code, by = found, chosen.failed
        if code not in (0, 5):
            break
    out.write_text(json.dumps({"code": code, "by": by}))
    return code


def fork(task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A task's result: its exit code (-1: out of time, -2: killed), and what it wrote."""
    out, log = folder / "result.json", folder / "log.txt"
    out.unlink(missing_ok=True)
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
        null = os.open(os.devnull, os.O_RDONLY)
        to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(null, 0)
        os.dup2(to, 1)
        os.dup2(to, 2)
        code = 99
        try:
            code = run(task, folder, out)
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(code)
    code = -1
    while time.monotonic() - start < task["limit"]:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            code = -2 if code < 0 else code
            break
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if code == -1:
        os.waitpid(pid, 0)
    found: dict[str, Any] = {"took": round(time.monotonic() - start, 2)}
    with contextlib.suppress(OSError, ValueError):
        found |= json.loads(out.read_text())
    if code not in (0, 1):
        found["said"] = log.read_text(errors="replace")[-600:] if log.exists() else ""
    return found | {"code": code}


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    os.chdir(folder)
    sys.path[:0] = [str(folder)]
    quick()
    for name in sys.argv[2:]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    assert not any(name.split(".")[0] == "kgen" for name in sys.modules)
    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        changed = None
        if task.get("path"):
            changed = folder / task["path"]
            kept, stat = changed.read_bytes(), changed.stat()
            start, old = task["start"], task["old"].encode()
            assert kept[start : start + len(old)] == old
            changed.write_bytes(kept[:start] + task["new"].encode() + kept[start + len(old) :])
            os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10_000_000_000))  # what is compiled of it is stale
        try:
            found = fork(task, folder)
        finally:
            if changed:
                changed.write_bytes(kept)
                os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        print(json.dumps(found | {"task": task["name"]}), flush=True)


if __name__ == "__main__":
    main()
