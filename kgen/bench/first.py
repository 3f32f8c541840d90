"""How long the first result takes: after import, from an empty cache and from a warm one, each in a process of its own.

In: a kernel.  Out: a row for each target and for torch.compile.  A process imports torch and kgen and makes the arguments (on a GPU,
its context too); then the clock starts: kgen reads the spec, builds and runs it; torch.compile compiles what the user wrote and runs
it.  Whatever either imports after that is in the time.  `python -m kgen.bench.first` is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADS = ("kernel", "dtype", "elements", "what", "cold s", "warm s", "of compile", "warm, of its cold")
#: Where the caches of what may run are kept: kgen's, Triton's, Inductor's, the CUDA driver's.
CACHES = ("KGEN_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
LONGEST = 600  # seconds that a process may take


@dataclass
class FirstTiming:
    """One row: the seconds of `what`'s first result in a fresh process, from an empty cache and from the one that this filled; the ratio
    of the first to torch.compile's, and of the second to torch.compile's first (0 where that was not timed)."""

    kernel: str
    dtype: str
    elements: int
    what: str
    cold: float
    warm: float
    of_compile: float = 0.0
    warm_of_compile: float = 0.0

    def row(self) -> tuple[str, ...]:
        ratios = (f"{r:.4f}" if r else "-" for r in (self.of_compile, self.warm_of_compile))
        return (self.kernel, self.dtype, f"{self.elements:,}", self.what, f"{self.cold:.3f}", f"{self.warm:.3f}", *ratios)


def first_times(
    text: str, name: str, kernel: Any, targets: list[str], compiled: bool, dtype: str, elements: int, row: int, device: str
) -> Iterator[FirstTiming]:
    """A row as soon as it is there: torch.compile's first, then each target's.  `text` is the spec's, `name` what errors call it.

    Raises `KgenError` where a process fails.
    """
    import torch

    from kgen.runtime.samples import arguments

    given = arguments(kernel, dtype, elements, "meta", row)
    shapes = {k: [str(x.dtype), list(x.shape)] if isinstance(x, torch.Tensor) else x for k, x in given.items()}
    base = 0.0
    for what in (*(["compile"] * compiled), *targets):
        with tempfile.TemporaryDirectory(prefix="kgen-first-") as folder:
            task = {"text": text, "name": name, "what": what, "device": device, "arguments": shapes}
            cold, warm = (_process(task, folder) for _ in range(2))
        base = base or (cold if what == "compile" else 0.0)
        yield FirstTiming(kernel.name, dtype, elements, what, cold, warm, cold / base if base else 0.0, warm / base if base else 0.0)


def _process(task: dict[str, Any], folder: str) -> float:
    """The seconds that a fresh process takes to its first result, its caches being in `folder`."""
    from kgen.errors import KgenError, printed

    env = {**os.environ, **{name: os.path.join(folder, name.lower()) for name in CACHES}}
    env["PYTHONPATH"] = os.pathsep.join(p for p in (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")) if p)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kgen.bench.first"], input=json.dumps(task), capture_output=True, text=True, env=env, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        raise KgenError(f"bench: {task['what']} took more than {LONGEST} seconds to its first result") from None
    if done.returncode:
        said = [line for line in done.stderr.split("\n") if line.strip()]
        raise KgenError(f"bench: {task['what']} fails in a process of its own: {printed(said[-1][:200] if said else 'no word', '')}")
    return float(json.loads(done.stdout.strip().split("\n")[-1]))


def main() -> None:
    """Read a task from stdin; write the seconds."""
    task = json.load(sys.stdin)
    import torch

    import kgen

    given: dict[str, Any] = {}
    for name, made in task["arguments"].items():
        if not isinstance(made, list):
            given[name] = made
            continue
        dtype = getattr(torch, made[0].removeprefix("torch."))
        given[name] = torch.rand(made[1], device=task["device"]).to(dtype)
    run = None
    if task["what"] == "compile":
        from kgen.bench import libraries

        kernel = kgen.loads(task["text"], task["name"]).kernel  # not in the time: torch.compile is given what a user wrote
        run = libraries.compiled(libraries.written(kernel, given))
    if task["device"] == "cuda":
        torch.cuda.synchronize()
    with torch.no_grad():
        start = time.perf_counter()
        if run is None:
            kgen.loads(task["text"], task["name"])(**given, target=task["what"])
        else:
            run(*given.values())
        if task["device"] == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
