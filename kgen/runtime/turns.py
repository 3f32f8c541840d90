"""Threads that get Python's lock soon, beside one that computes in Python.

In: what they do.  Out: the threads, started; as long as one of them runs, whoever holds the lock is asked for it after `SOON` seconds.
Python's own interval is 5 ms, and a thread that lets go of the lock a thousand times, as one does that hashes a large file, may wait
as long each time.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

SOON = 2e-5


class Turns:
    """Who needs a short interval, and the one to go back to, which whoever begins first finds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: set[Any] = set()
        self.before = self.own = 0.0

    def begin(self, who: Any) -> None:
        """Have a short interval until `who` ends."""
        with self.lock:
            if not self.running:
                self.before = sys.getswitchinterval()
                sys.setswitchinterval(min(SOON, self.before))
                self.own = sys.getswitchinterval()
            self.running.add(who)

    def end(self, who: Any) -> None:
        """Go back to the interval before, where nobody else needs the short one; `who` may have ended already."""
        with self.lock:
            if who in self.running:
                self.running.remove(who)
                self._restore()

    def _restore(self) -> None:
        if not self.running and sys.getswitchinterval() == self.own:  # else somebody has set another one meanwhile
            sys.setswitchinterval(self.before)

    def forked(self) -> None:
        """In a child, which has none of the threads, and where one of them may hold the lock."""
        self.lock = threading.Lock()
        if self.running:
            self.running.clear()
            self._restore()


TURNS = Turns()
os.register_at_fork(after_in_child=TURNS.forked)


def start(*works: Callable[[], Any], name: str) -> tuple[threading.Thread, ...]:
    """A thread for each of `works`, whose errors nobody hears of: who needs what it does will have them again."""

    def run(work: Callable[[], Any]) -> None:
        try:
            with contextlib.suppress(Exception):
                work()
        finally:
            TURNS.end(threading.current_thread())

    made = tuple(threading.Thread(target=run, args=(work,), name=name) for work in works)
    for thread in made:
        TURNS.begin(thread)
        try:
            thread.start()
        except BaseException:
            TURNS.end(thread)
            raise
    return made
