"""Mutation testing of lowering, rules, gradients and printers: python -m tests.mutation --jobs 8 --minutes 30.

Each mutant (`mutants.py`) is run by the tests that reach what it changes, the quickest first, in a copy of the project; it is killed
by a test that fails or that does not end.  The order is random, so that the share of those killed so far is a fair estimate where the
time ends first; what is done is kept in the file of `--out` and not done again.  `survivors.md` says of those known to live why they may.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.mutation.mutants import GROUPS, ROOT, TESTS, Mutant, every

LONGEST = 6.0  # seconds of a test that is asked about a mutant
ALL = 14.0  # seconds of all tests that are asked about one
#: What the tests import, but for kgen: once for all mutants of a worker.
IMPORTS = ("torch", "sympy", "lark", "jinja2", "mpmath", "numpy", "hypothesis", "pytest", "triton", "triton.compiler", "coverage")
FEW = 8  # where no more tests than these reach a line (what they made may be kept for others), those of its module are asked as well


class Reached:
    """Which tests reach which lines, and how long they take."""

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.seconds: dict[str, float] = data["seconds"]
        self.sets = {path: {test: set(lines) for test, lines in tests.items()} for path, tests in data["lines"].items()}

    def tests(self, m: Mutant) -> list[str]:
        """The tests to ask about a mutant: those that run its lines (or, where these are few, others of its module), the quickest; file by
        file, that of least cost first."""
        tests = self.sets.get(m.path, {})
        lines = set(range(m.line, m.last + 1))
        known = [t for t in tests if t and self.seconds.get(t, LONGEST + 1) <= LONGEST]
        mine = sorted((t for t in known if tests[t] & lines), key=self.seconds.__getitem__)
        if len(mine) < FEW:
            mine += sorted((t for t in known if t not in set(mine)), key=self.seconds.__getitem__)
        files: dict[str, list[str]] = {}
        total = 0.0
        for t in mine:
            total += self.seconds[t]
            if files and total > ALL:
                break
            files.setdefault(t.split("::")[0], []).append(t)
        cheap = sorted(files, key=lambda f: self.needed(files[f]))
        return [t for f in cheap for t in files[f]]

    def needed(self, tests: Iterable[str]) -> float:
        """Seconds that tests take, with the reading of their files."""
        tests = list(tests)
        return sum(self.seconds[t] for t in tests) + sum(self.data.get("files", {}).get(f, 0.0) for f in {t.split("::")[0] for t in tests})


class Worker:
    """A process that runs tasks in a copy of its own."""

    def __init__(self, folder: Path, log: Path, imports: Iterable[str] = IMPORTS):
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(os.pathsep),
            "KGEN_CACHE_DIR": str(folder / ".kgen_cache"),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "NO_COLOR": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those installed beside may read kgen before it is changed
        }
        (folder / ".kgen_cache").mkdir(mode=0o700, exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.worker", str(folder), *imports],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("ab"), text=True, cwd=folder, env=env,
        )  # fmt: skip
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a worker does not start: see {log}")

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def copy(root: Path, to: Path) -> Path:
    """The project without what is built, dates kept (what is compiled of it stays good)."""
    ignore = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info")
    for name in ("kgen", "templates", "specs", "tests"):
        shutil.copytree(root / name, to / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints.txt"):
        shutil.copy2(root / name, to / name)
    return to


def work(workers: list[Worker], tasks: list[dict[str, Any]], until: float, done: Any) -> None:
    """Give the tasks to the workers, in order, until they are done or the time is over."""
    todo: Queue[dict[str, Any]] = Queue()
    for t in tasks:
        todo.put(t)
    lock = threading.Lock()

    def serve(worker: Worker) -> None:
        while time.monotonic() < until:
            try:
                task = todo.get_nowait()
            except Empty:
                return
            left = until - time.monotonic()
            found = worker.ask(task | {"limit": min(task["limit"], left)})
            if found["code"] == -1 and left < task["limit"]:
                return  # the time is over: nothing is known of this one
            with lock:
                done(task, found)

    threads = [threading.Thread(target=serve, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def measure(workers: list[Worker], root: Path, until: float, say: Any) -> dict[str, Any]:
    """Which lines each test reaches, file by file; tests that fail here are left out."""
    paths = sorted((p for t in TESTS for p in (root / t).rglob("test_*.py")), key=lambda p: -p.stat().st_size)
    tasks = [{"kind": "reach", "name": str(p.relative_to(root)), "files": [str(p.relative_to(root))], "limit": 400} for p in paths]
    data: dict[str, Any] = {"lines": defaultdict(dict), "seconds": {}, "failed": [], "files": {}}

    def done(task: dict[str, Any], found: dict[str, Any]) -> None:
        say(
            f"{task['name']}: {len(found.get('seconds', ()))} tests, {found['took']:.0f} s"
            + (f", exit code {found['code']}" if found["code"] else "")
        )
        failed = set(found.get("failed", ()))
        data["files"][task["name"]] = max(0.0, found["took"] - sum(found.get("seconds", {}).values()))  # to read the file
        data["failed"] += sorted(failed)
        data["seconds"] |= {t: s for t, s in found.get("seconds", {}).items() if t not in failed}
        for path, tests in found.get("lines", {}).items():
            data["lines"][path] |= {t: lines for t, lines in tests.items() if t not in failed}

    work(workers, tasks, until, done)
    return data


KILLED = ("killed", "endless")


def verdict(code: int) -> str:
    """From pytest's exit code: 1 a test failed, 2 a file does not import, 3 and 4 pytest itself fails, 5 no test was left."""
    return {0: "survived", 5: "survived", -1: "endless"}.get(code, "killed")


def table(found: dict[str, dict[str, Any]], known: list[Mutant], excused: set[str]) -> str:
    """The score of each group: killed of those run, and of those that are not excused."""
    rows = [("group", "mutants", "run", "killed", "endless", "survived", "excused", "score")]
    for group in (*GROUPS, "all"):
        mine = [m for m in known if group in (m.group, "all")]
        count = Counter(found[m.name]["verdict"] for m in mine if m.name in found)
        done = sum(count.values())
        fine = sum(m.name in found and found[m.name]["verdict"] not in KILLED and m.name in excused for m in mine)
        score = f"{100 * (done - count['survived']) / done:.1f}%" if done else "-"
        rows.append(
            (group, str(len(mine)), str(done), str(count["killed"]), str(count["endless"]), str(count["survived"]), str(fine), score)
        )
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(r, widths))) for r in rows)


def excuses() -> set[str]:
    """The names of mutants that `survivors.md` explains."""
    path = Path(__file__).with_name("survivors.md")
    return set() if not path.exists() else {w.strip("`,") for w in path.read_text().split() if w.startswith("`kgen/")}


def keep(path: Path, data: Any) -> None:
    """Write a file as a whole, whenever this is ended."""
    path.with_suffix(".new").write_text(json.dumps(data))
    path.with_suffix(".new").replace(path)


def read(path: Path | None) -> Any:
    return json.loads(path.read_text()) if path is not None and path.exists() else None


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    p.add_argument("--minutes", type=float, default=60.0, help="of all, the first run of the tests included")
    p.add_argument("--out", type=Path, default=Path("build/mutation.json"), help="what is done; read before, and written as it goes")
    p.add_argument("--list", type=Path, help="only write the list of mutants (this needs mutmut)")
    p.add_argument("--mutants", type=Path, help="a list written before, where mutmut is not installed")
    p.add_argument("--reach", type=Path, help="which tests reach what: read if it is there, else measured and written")
    p.add_argument("--only", nargs="*", default=[], help="parts of mutants' names: files, lines")
    p.add_argument("--sample", type=int, help="so many mutants a group")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--again", action="store_true", help="run survivors anew")
    p.add_argument("--report", action="store_true", help="only print what was found")
    given = p.parse_args(arguments)
    start = time.monotonic()
    until = start + 60 * given.minutes

    def say(text: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {text}", flush=True)

    known = [Mutant(**m) for m in read(given.mutants)] if given.mutants else every()
    if given.list:
        given.list.parent.mkdir(parents=True, exist_ok=True)
        given.list.write_text(json.dumps([m.data() for m in known]))
        print(f"{len(known)} mutants in {given.list}")
        return 0
    known = [m for m in known if not given.only or any(part in m.name for part in given.only)]
    random.Random(given.seed).shuffle(known)
    if given.sample:
        known = [m for g in GROUPS for m in [m for m in known if m.group == g][: given.sample]]
        random.Random(given.seed).shuffle(known)
    found: dict[str, dict[str, Any]] = read(given.out) or {}
    todo = [m for m in known if m.name not in found or given.again and found[m.name]["verdict"] == "survived"]
    if given.report:
        todo = []
    try:
        for m in todo:
            m.applied((ROOT / m.path).read_bytes())
    except ValueError as error:
        p.error(f"{error}: write it anew with --list")

    given.out.parent.mkdir(parents=True, exist_ok=True)
    if todo:
        with tempfile.TemporaryDirectory(prefix="kgen_mutation_") as made:
            log = given.out.with_suffix(".log")
            first = copy(ROOT, Path(made) / "0")
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(first / "kgen")], check=False)
            folders = [first, *(copy(first, Path(made) / str(k)) for k in range(1, min(given.jobs, len(todo))))]
            workers = [Worker(f, log) for f in folders]
            try:
                data = read(given.reach)
                if data is None:
                    say(f"{len(workers)} workers; which tests reach what")
                    data = measure(workers, first, until, say)
                    if given.reach:
                        keep(given.reach, data)
                reached = Reached(data)
                say(f"{len(reached.seconds)} tests, {len(data['failed'])} left out; {len(todo)} of {len(known)} mutants to run")
                by_name = {m.name: m for m in todo}
                tasks = []
                for m in todo:
                    tests = reached.tests(m)
                    limit = 20 + 6 * reached.needed(tests)
                    tasks.append(
                        {
                            "kind": "mutant",
                            "name": m.name,
                            "path": m.path,
                            "start": m.start,
                            "old": m.old,
                            "new": m.new,
                            "tests": tests,
                            "limit": limit,
                        }
                    )
                none = [t for t in tasks if not t["tests"]]
                for t in none:
                    found[t["name"]] = {"verdict": "survived", "tests": 0, "took": 0.0, "by": ""}
                last = [time.monotonic()]

                def done(task: dict[str, Any], got: dict[str, Any]) -> None:
                    name = task["name"]
                    found[name] = {
                        "verdict": verdict(got["code"]),
                        "tests": len(task["tests"]),
                        "took": got["took"],
                        "by": got.get("by", ""),
                    }
                    if got["code"] not in (0, 1, -1):
                        found[name]["code"] = got["code"]
                    if time.monotonic() - last[0] > 20:
                        last[0] = time.monotonic()
                        keep(given.out, found)
                        lives = sum(found[n]["verdict"] == "survived" for n in by_name if n in found)
                        say(f"{sum(n in found for n in by_name)} of {len(by_name)} run, {lives} live")

                work(workers, [t for t in tasks if t["tests"]], until, done)
            finally:
                for w in workers:
                    w.stop()
        keep(given.out, found)
    print(table(found, known, excuses()))
    lives = sorted((m for m in known if m.name in found and found[m.name]["verdict"] == "survived"), key=lambda m: (m.path, m.start))
    given.out.with_suffix(".survivors.json").write_text(
        json.dumps([{"name": m.name, "line": m.line, "old": m.old, "new": m.new, "tests": found[m.name]["tests"]} for m in lives], indent=1)
    )
    if lives:
        print(f"{len(lives)} live: {given.out.with_suffix('.survivors.json')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
