"""The switch interval is short while helping threads run, and then as it was, whatever happens."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from kgen.runtime import launchers, turns


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    after = sys.getswitchinterval()
    sys.setswitchinterval(before)
    assert after == before


def short() -> bool:
    return sys.getswitchinterval() == pytest.approx(turns.SOON)


def test_it_is_short_as_long_as_one_runs() -> None:
    first, second, seen = threading.Event(), threading.Event(), []

    def work(event: threading.Event) -> None:
        event.wait(20)
        seen.append(short())

    one, two = turns.start(lambda: work(first), lambda: work(second), name="a")
    (other,) = turns.start(lambda: seen.append(short()), name="b")  # begins and ends meanwhile
    other.join()
    assert short()
    first.set(), one.join()
    assert short()
    second.set(), two.join()
    assert not short() and seen == [True] * 3


def test_errors_leave_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise ValueError

    (thread,) = turns.start(fails, name="a")
    thread.join()
    assert not short() and not turns.TURNS.running

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(RuntimeError):
        turns.start(fails, fails, name="a")
    assert not short() and not turns.TURNS.running

    monkeypatch.undo()
    own = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        own(self)
        self.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)  # the thread itself has ended by then
    with pytest.raises(KeyboardInterrupt):
        turns.start(fails, name="a")
    assert not short() and not turns.TURNS.running


def test_another_interval_stays() -> None:
    before, event = sys.getswitchinterval(), threading.Event()
    (thread,) = turns.start(lambda: event.wait(20), name="a")
    sys.setswitchinterval(0.25)  # as the program has it from now on
    event.set(), thread.join()
    assert sys.getswitchinterval() == 0.25
    sys.setswitchinterval(turns.SOON / 2)  # shorter than kgen's
    event.clear()
    (thread,) = turns.start(lambda: event.wait(20), name="a")
    assert sys.getswitchinterval() == pytest.approx(turns.SOON / 2)
    event.set(), thread.join()
    assert sys.getswitchinterval() == pytest.approx(turns.SOON / 2)
    sys.setswitchinterval(before)


def test_a_fork_has_it_as_it_was() -> None:
    before, event = sys.getswitchinterval(), threading.Event()
    (thread,) = turns.start(lambda: event.wait(20), name="a")
    child = os.fork()
    if not child:
        os._exit(0 if sys.getswitchinterval() == before and not turns.TURNS.running and turns.TURNS.lock.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert short()
    event.set(), thread.join()


def test_triton_is_warmed_up_by_such_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    tritons = pytest.importorskip("triton.runtime.cache")
    event, seen = threading.Event(), []

    def key() -> None:
        event.wait(20)
        seen.append(short())

    monkeypatch.setattr(tritons, "triton_key", key)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    threads = launchers.warm_up_triton.__wrapped__()
    assert len(threads) == 2 and short()
    event.set()
    for thread in threads:
        thread.join()
    assert seen == [True]
