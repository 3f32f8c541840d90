"""Processes of candidates: started quickly, asked with a limit of time and memory, and what became of one that gave no answer.

Each is forked from a process that has imported torch and nothing else has happened in (`zygote.py`), one for this process's life.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kgen.errors import KgenError
from kgen.verify import wire
from kgen.verify.memory import full
from kgen.verify.report import Kind

START = 120.0  # seconds to import torch in
TAIL = 1500  # characters of what a process wrote


class Died(Exception):
    """A process that gave no answer: a crash, a hang, or too much memory."""

    def __init__(self, kind: Kind, message: str):
        super().__init__(message)
        self.kind, self.message = kind, message


class NoRoom(KgenError):
    """The GPU's memory is full, of other processes."""


class Zygote:
    """What new processes are forked from."""

    def __init__(self, environment: dict[str, str] | None = None):
        ours, theirs = socket.socketpair()
        # small blocks too are filled anew: glibc keeps them in a cache that it never fills
        own = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "PYTHONFAULTHANDLER": "1", **os.environ, **(environment or {})}
        root = str(Path(__file__).parents[2])
        own["PYTHONPATH"] = os.pathsep.join([root, *(p for p in own.get("PYTHONPATH", "").split(os.pathsep) if p and p != root)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kgen.verify.zygote", str(theirs.fileno())], pass_fds=[theirs.fileno()], env=own,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        self.at, self.lock = ours, threading.Lock()
        self.owner = os.getpid()

    def fork(self, connection: socket.socket, log: int) -> int:
        """The id of a new process, which answers on a socket and writes to a log."""
        with self.lock:
            self.at.settimeout(START)
            socket.send_fds(self.at, [b"fork\n"], [connection.fileno(), log])
            return int(self._line())

    def reap(self, pid: int) -> int:
        """What `os.waitpid` says of a process that ends."""
        with self.lock:
            self.at.settimeout(START)
            self.at.sendall(f"reap {pid}\n".encode())
            return int(self._line())

    def _line(self) -> bytes:
        text = b""
        while not text.endswith(b"\n"):
            try:
                more = self.at.recv(64)
            except OSError:
                more = b""
            if not more:
                raise KgenError("the process that starts candidates has ended", help="its words stand above")
            text += more
        return text

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.at.close()
        if os.getpid() == self.owner:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            if self.process.poll() is None:
                self.process.kill()


_zygote: list[Zygote] = []


def zygote() -> Zygote:
    """The one of this process, started when it is first asked for; calling this early saves its time."""
    if _zygote and (_zygote[0].owner != os.getpid() or _zygote[0].process.poll() is not None):
        _zygote.clear()
    if not _zygote:
        _zygote.append(Zygote())
        atexit.register(_zygote[0].close)
    return _zygote[0]


class Process:
    """A candidate's process.  `memory` is in bytes; `timeout` in seconds for an answer."""

    def __init__(self, timeout: float, memory: int, device: str):
        self.timeout, self.memory, self.device = timeout, memory, device
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        self.at, theirs = socket.socketpair()
        self.pid = zygote().fork(theirs, self.log.fileno())
        theirs.close()
        self.alive = True

    def ask(self, what: str, timeout: float | None = None, **given: Any) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a request (`worker.Worker`).  Raises `Died`, whereupon the process is no more."""
        limit = timeout or self.timeout
        try:
            wire.send(self.at, {"do": what, **given})
            answer, blobs = self._answer(time.monotonic() + limit, limit)
        except wire.Closed:
            raise self._died() from None
        if "failed" in answer:
            failed = answer["failed"]
            if full(failed["text"]):
                raise NoRoom(failed["text"].splitlines()[0])
            raise KgenError(f"the candidate's process failed at `{what}`: {failed['type']}: {failed['text']}", help=failed["trace"][-800:])
        if "lost" in answer:
            self.end()
            raise Died(Kind.CRASH, f"the CUDA context was lost: {answer['lost']}")
        return answer, blobs

    def _answer(self, end: float, limit: float) -> tuple[dict[str, Any], list[bytes]]:
        """What comes before the time is up and the memory full."""
        import select

        poller = select.poll()
        poller.register(self.at, select.POLLIN)
        step = 5
        while not poller.poll(step):
            step = 50
            if (now := self._resident()) > self.memory > 0:
                self.end()
                raise Died(Kind.MEMORY, f"it takes {now / 2**30:.1f} GiB, the limit is {self.memory / 2**30:.1f}")
            if time.monotonic() > end:
                raise Died(Kind.HANG, f"no answer within {limit:g} seconds{self._where()}")
        self.at.settimeout(max(1.0, end - time.monotonic()))
        try:
            return wire.receive(self.at)
        except TimeoutError:
            self.end()
            raise Died(Kind.HANG, f"no answer within {limit:g} seconds") from None

    def _resident(self) -> int:
        """The bytes that the process has in memory, but for what it shares."""
        try:
            fields = Path(f"/proc/{self.pid}/statm").read_text().split()
            return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def _died(self) -> Died:
        """Why the process has gone."""
        said = self._tail()
        status = self.end(killing=False)
        if status is None:
            return Died(Kind.CRASH, f"the process ended{said}")
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else str(number)
            if number == signal.SIGKILL:
                return Died(Kind.MEMORY, f"the process was killed (SIGKILL), by the system for its memory as a rule{said}")
            return Died(Kind.CRASH, f"the process ended by {name}{said}")
        return Died(Kind.CRASH, f"the process ended with exit status {os.WEXITSTATUS(status)}{said}")

    def _tail(self) -> str:
        """The end of what the process wrote, as a clause."""
        try:
            self.log.seek(0, os.SEEK_END)
            self.log.seek(max(0, self.log.tell() - TAIL))
            text = self.log.read().decode(errors="replace").strip()
        except (OSError, ValueError):
            return ""
        noise = ("Extension modules", "kgen/verify/", "Current thread", "Thread 0x", "Fatal Python error", "<no Python frame>", "<frozen")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not any(n in line for n in noise)]
        frames = [line for line in lines if line.startswith("File ")]  # the innermost first
        words = [line for line in lines if line not in frames][-3:]
        wrote = f"; it wrote: {' | '.join(words)}" if words else ""
        return (wrote + (f"; it was at {', called at '.join(frames[:2])}" if frames else ""))[:500]

    def _where(self) -> str:
        """End a process that gives no answer; where it was, as a clause."""
        import select

        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGABRT)  # upon which Python tells where it is
        gone = select.poll()
        gone.register(self.at, select.POLLHUP)
        gone.poll(500)
        said = self._tail()
        self.end()
        return said

    def end(self, killing: bool = True) -> int | None:
        """End the process; what `os.waitpid` says of it."""
        if not self.alive:
            return None
        self.alive = False
        self.at.close()
        if killing:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        try:
            status = zygote().reap(self.pid)
        except (KgenError, OSError):
            return None
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)  # what it has started itself
        self.log.close()
        return status


class Here:
    """What stands for a process where the candidate runs in this one."""

    def __init__(self) -> None:
        from kgen.verify.worker import Worker

        self.worker, self.alive = Worker(), True

    def ask(self, what: str, timeout: float | None = None, **given: Any) -> tuple[dict[str, Any], Sequence[bytes]]:
        """As `Process.ask`, without limits."""
        import torch

        with torch.no_grad():
            answer, blobs = self.worker.answer({"do": what, **given}, [])
        if "lost" in answer:
            raise Died(Kind.CRASH, f"the CUDA context was lost: {answer['lost']}")
        return answer, blobs

    def end(self) -> None:
        self.alive = False
