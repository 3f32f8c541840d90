"""Options and fixtures for all tests."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: What is imported and parsed stays: the collector of cycles finds nothing in it, and takes a sixth of the time of imports to look.
gc.set_threshold(50_000, 20, 20)
#: Inductor's pool of compiling processes costs each process that uses it as much again.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
#: A process of inductor's begins by building headers and trying the processor's vectors, which takes g++ longer than a test's few kernels.
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
#: Threads of OpenMP that wait for work spin, and take the processors from the run's other workers; read where torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
#: What is imported is compiled once: not by each worker, nor by each of the hundred processes that tests start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"
collect_ignore_glob = ["errors/*.k", "golden/*.k", "fuzzed/*.k"]  # other tests read them: wrong on purpose, made here, found by fuzzing


@pytest.fixture(autouse=True)
def _calls_by_the_extension() -> Iterator[None]:
    """A test that puts another `__call__` in `Kernel`'s place, and takes it back, has taken the extension from the class: Python fills the
    type's slot anew.  Those behind it in the process would go without."""
    yield
    fast = sys.modules.get("kgen.runtime.fast")
    module = fast.EXTENSION.module if fast is not None else None
    if module is not None:
        from kgen.runtime.kernel import Kernel

        module.install(Kernel, Kernel.__dict__["_fast"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is made now into the golden files")
    parser.addoption("--fuzz", action="store_true", help="run the long fuzzing campaigns")


#: The tests that have begun and not ended, of all workers.
BEGUN: dict[str, float] = {}


def pytest_runtest_logstart(nodeid: str) -> None:
    BEGUN[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    BEGUN.pop(nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What had not ended when a run was interrupted, and for how long it had gone on."""
    for nodeid, begun in BEGUN.items():
        terminalreporter.write_line(f"not ended after {time.monotonic() - begun:.0f} s: {nodeid}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where `gpu` tests alone are asked for, workers need not import the files that do not speak of one."""
    alone = (config.getoption("-m") or "").split(" and ")[0] == "gpu"
    if not alone or not collection_path.name.startswith("test_") or collection_path.suffix != ".py":
        return None
    return "gpu" not in collection_path.read_text(encoding="utf-8").lower() or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`gpu` and `slow` tests run only when a marker expression asks for them; those that take longest begin the shares of a run's workers,
    so that none of them is what the run ends with."""
    asked = config.getoption("-m") or ""
    dropped = [i for i in items if any(i.get_closest_marker(m) and m not in asked for m in ("gpu", "slow"))]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        kept = set(items) - set(dropped)
        items[:] = [i for i in items if i in kept]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    first = [i for i in items if i.get_closest_marker("first")][:workers]
    items[:] = [i for i in items if i not in first]
    for k, item in enumerate(first):
        items.insert(len(items) * k // workers + k, item)


def pytest_collection_finish() -> None:
    gc.freeze()
    atexit.register(gc.unfreeze)  # extension modules complain of what is there at the end; pytest itself looks at the heap before that


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Workers take neighbours, which share builds in memory, and then from whoever has most left."""
    if getattr(config.option, "numprocesses", None) and getattr(config.option, "dist", "") == "no":
        config.option.dist = "worksteal"


class _Failures:
    """Tells of each failure as it happens: a run that is cut off has told all the same."""

    def __init__(self, terminal: Any):
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.splitlines()
            said = [line for line in lines if line.startswith("E ")] or lines
            self.terminal.write_line("")
            for line in (f"FAILED {report.nodeid} ({report.when})", *said[:6], *said[6:][-6:], *lines[-1:]):
                self.terminal.write_line(line[:400])


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(_Failures(terminal))


def session_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of a run have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(autouse=True, scope="session")
def _private_cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests build into a cache of their own, unless one is named; the workers of a run share it.  That a file asked for the extension as it
    was imported has said which folder it is: the user's."""
    from kgen.runtime import cache

    if "KGEN_CACHE_DIR" not in os.environ:
        folder = session_folder(tmp_path_factory) / "kgen-cache"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.environ["KGEN_CACHE_DIR"] = str(folder)
        cache.folder.cache_clear()
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(os.environ["KGEN_CACHE_DIR"]) / "triton"))
    yield


@pytest.fixture(autouse=True, scope="session")
def _headers_read_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    from tests.headers import read_once

    with read_once(session_folder(tmp_path_factory) / "headers"):
        yield


@pytest.fixture
def built_quickly() -> Iterator[None]:
    """C++ is built at -O0, in a fifth of the time: for tests of what a source says, to which it is nothing what the compiler makes of it.

    At -O3, as users have it, tests/specs builds the specs that reduce (of those alike one), tests/ops the operators, tests/planted and
    tests/hazards the points where generated code goes wrong; `-m slow` the rest.
    """
    from functools import cache

    from kgen.runtime import build

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "FLAGS", tuple("-O0" if f == "-O3" else f for f in build.FLAGS))
        patch.setattr(build, "library", cache(build.library.__wrapped__))
        yield


@pytest.fixture
def built_quickly_by_default(request: pytest.FixtureRequest) -> None:
    """`built_quickly`, but for what `-m slow` runs."""
    if request.node.get_closest_marker("slow") is None:
        request.getfixturevalue("built_quickly")


#: What a test with much on the device may take of it, and what stays for all others.
SHARE, OTHERS = 20 << 30, 40 << 30


@pytest.fixture
def much_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For tests that hold gigabytes on the device, which all processes of a run share: as many at a time as it has room for."""
    import fcntl

    import torch

    room = torch.cuda.get_device_properties(0).total_memory
    if room < SHARE:
        pytest.skip(f"the device has {room >> 30} GiB, the test takes up to {SHARE >> 30}")
    places = [session_folder(tmp_path_factory) / f"much-memory-{k}" for k in range(max(1, (room - OTHERS) // SHARE))]
    with contextlib.ExitStack() as stack:
        while not any(_locked(stack, fcntl, place) for place in places):
            time.sleep(0.1)
        yield
        gc.collect()
        torch.cuda.empty_cache()


def _locked(stack: contextlib.ExitStack, fcntl: Any, place: Path) -> bool:
    file = place.open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return False
    stack.callback(file.close)
    return True


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """`golden(name, text)` holds a text against tests/golden/<name>; --update-golden writes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest --update-golden, then review it"
        assert text == path.read_text(), f"{path} differs: review, then run pytest --update-golden"

    return compare
