"""The cache on disk: what was kept is given back, whole or not at all, and nothing that fails there fails a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from kgen.runtime import cache
from tests import warm


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "kgen"))
    cache.folder.cache_clear()
    yield tmp_path / "kgen"
    cache.folder.cache_clear()


def test_an_entry_is_given_back(place: Path) -> None:
    name = cache.key("a", b"b")
    assert cache.read(name, ".so") is None
    cache.write(name, ".so", b"payload")
    assert cache.read(name, ".so")[1] == b"payload"
    assert place.stat().st_mode & 0o777 == 0o700


def test_keys_tell_parts_apart() -> None:
    assert len({cache.key("ab", "c"), cache.key("a", "bc"), cache.key("abc"), cache.key("", "abc")}) == 4


@pytest.mark.parametrize("damage", [lambda d: d[:-1], lambda d: b"x" + d[1:], lambda d: b"", lambda d: d + b"x", lambda d: d[:10]])
def test_a_damaged_entry_counts_as_missing(place: Path, damage) -> None:
    path = cache.write("entry", ".so", b"payload" * 100)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.read("entry", ".so") is None


def test_an_entry_under_anothers_name_counts_as_missing(place: Path) -> None:
    cache.write("one", ".so", b"payload")
    os.rename(place / "one.so", place / "two.so")
    assert cache.read("two", ".so") is None


@pytest.mark.parametrize("how", ["file", "shared"])
def test_a_folder_that_is_not_the_users_alone_is_not_used(place: Path, how: str) -> None:
    if how == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o777)
    with pytest.warns(UserWarning, match="builds in memory"):
        assert cache.folder() is None
    assert cache.write("entry", ".so", b"x") is None
    assert cache.read("entry", ".so") is None


def test_a_full_disk_loses_nothing_but_the_entry(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert cache.write("entry", ".so", b"x") is None
    assert cache.write("entry", ".so", b"x") is None  # and says so once
    assert list(place.iterdir()) == []


RUN = """
import torch, kgen
k = kgen.loads("f(x: T[...]) -> y: T[...]\\ny = x * 3 + 1")
assert torch.equal(k(torch.arange(5.0)), torch.arange(5.0) * 3 + 1)
"""
#: The same of a library alone: torch takes a process two seconds to import, and has no part in what becomes of an entry.
BUILD = """
from kgen.runtime import build
assert build.library('extern "C" int answer() { return 42; }\\n', "f").answer() == 42
"""


def test_a_kernel_runs_without_a_cache(place: Path) -> None:
    place.write_text("")
    done = warm.run("-c", RUN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("builds in memory") == 1


def test_processes_that_start_at_once_share_one_entry(place: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", BUILD], stderr=subprocess.PIPE) for _ in range(3)]
    assert [p.wait() for p in running] == [0] * 3
    assert len(list(place.glob("*.so"))) == 1 and not list(place.glob(".writing-*"))


def test_a_damaged_library_is_built_again(place: Path) -> None:
    assert subprocess.run([sys.executable, "-c", BUILD]).returncode == 0
    (entry,) = place.glob("*.so")
    entry.write_bytes(entry.read_bytes()[:5000])
    assert subprocess.run([sys.executable, "-c", BUILD]).returncode == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read(entry.stem, ".so") is not None


@pytest.mark.parametrize("kind", ["cache", "config"])
@pytest.mark.parametrize("base", [None, "", " ", "/elsewhere/of one", "beside"])
def test_the_usual_folders_are_those_of_platformdirs(kind: str, base: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    name = f"XDG_{kind.upper()}_HOME"
    monkeypatch.delenv(name, raising=False) if base is None else monkeypatch.setenv(name, base)
    assert cache.usual(kind) == {"cache": platformdirs.user_cache_dir, "config": platformdirs.user_config_dir}[kind]("kgen")
