"""Python in a process of its own that does not wait for torch: a fork of one that has imported torch, and nothing else of weight.

`run` takes what the command line of `python` does.  Importing torch takes a process almost two seconds; what a test tells of a process
(which modules it loads, an environment that is read when they are) holds of a fork just as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

#: Takes a job a line, each for a fork, and answers with its exit code.
SERVER = """
import json, os, runpy, sys, types
import torch
base = sys.path[1:]
for line in sys.stdin:
    argv, folder, environment, files = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
for fd, name in enumerate([os.devnull, *files]):
    os.dup2(os.open(name, os.O_RDONLY if fd == 0 else os.O_WRONLY), fd)
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
mode = argv[0] if argv[0] in ("-c", "-m") else ""
what, *rest = argv[bool(mode):]
first = "" if mode == "-c" else os.getcwd() if mode else os.path.dirname(os.path.abspath(what))
sys.path[:] = [first, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *base]
sys.argv = [mode or what, *rest]
if mode == "-c":
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(what, "<string>", "exec"), vars(main))
elif mode:
    runpy.run_module(what, run_name="__main__", alter_sys=True)
else:
    runpy.run_path(what, run_name="__main__")
"""


@cache
def _server() -> subprocess.Popen[str]:
    """The process that waits; it ends with this one."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", SERVER]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def run(*argv: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`python ARGV...` with its output as text."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("out", "err")]
        for file in files:
            file.touch()
        server, given = _server(), [str(a) for a in argv]
        assert server.stdin is not None and server.stdout is not None
        print(json.dumps([given, str(cwd or Path.cwd()), dict(os.environ if env is None else env), list(map(str, files))]), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess([sys.executable, *given], code, *(f.read_text() for f in files))


__all__ = ["run"]
