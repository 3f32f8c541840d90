"""Options and fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden"
collect_ignore_glob = ["errors/*.k", "golden/*.k", "fuzzed/*.k"]  # other tests read them: wrong on purpose, made here, found by fuzzing


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write what is made now into the golden files")
    parser.addoption("--fuzz", action="store_true", help="run the long fuzzing campaigns")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`gpu` and `slow` tests run only when a marker expression asks for them."""
    asked = config.getoption("-m") or ""
    dropped = [i for i in items if any(i.get_closest_marker(m) and m not in asked for m in ("gpu", "slow"))]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        kept = set(items) - set(dropped)
        items[:] = [i for i in items if i in kept]


@pytest.fixture(autouse=True, scope="session")
def _private_cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests build into a cache of their own, unless one is named; the workers of a run share it."""
    if "KGEN_CACHE_DIR" not in os.environ:
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kgen-cache"
        folder.mkdir(mode=0o700, exist_ok=True)
        os.environ["KGEN_CACHE_DIR"] = str(folder)
    yield


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
