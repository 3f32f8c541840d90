"""Every bundled spec, forward and backward, on a GPU under compute-sanitizer, between canaries.

    python -m tests.gpu.sanitize [--tools memcheck,racecheck,initcheck,synccheck] [--targets cuda,triton] [--specs softmax,gelu]
                                 [--jobs 8] [--examples 6] [--log FILE] [--plans]

With `--plans` only drawn ways of sharing rows out in CUDA, under memcheck and racecheck: a minute.

Prints a table (tool, target, specs, calls, errors) and exits with 1 where a tool found something or a result was wrong.
memcheck sees each tensor as an allocation of its own (torch's caching allocator is off); between them lie canaries, which `Padded`
looks at.  initcheck has no canaries: a fresh result is uninitialised memory, of which each byte must be written.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SPECS = sorted(p.stem for p in (ROOT / "specs").glob("*.k"))
#: Rows that each schedule takes: short ones, in registers, in shared memory, in a cluster's, read again, split over blocks.
LENGTHS = ((64, 33), (5, 1024), (3, 5000), (2, 33_001), (1, 70_000), (1, 300_001))
PER_PROCESS = 5
#: Kernels whose rows are read once and stored, read twice, overwritten, and held with several others.
PLANS = {
    "softmax": "f(x: T[..., N]) -> y: T[..., N]\ny = softmax[N](x)",
    "in_place": "f(x: T[..., N], w: T[N]) -> x': T[..., N]\ne = exp(x - max[N](x))\ns = sum[N](e)\nx' = e / s + sum[N]((e / s)^2) * w",
    "layernorm": "f(x: T[..., N], w: T[N]) -> y: T[..., N]\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2) + 1e-5) * w",
    "held": "f(a: T[..., N], b: T[..., N], c: T[..., N], d: T[..., N]) -> y: T[..., N]\ns = sum[N](a * b + c * d)\n"
            "y = a * s + b / (1 + sum[N]((a - s) * c)^2) - c + d",
    "columns": "f(x: T[..., N], dy: T[..., N], w: T[N]) -> (dx: T[..., N], dw: T[N], db: T[N])\nt = dy * w\ndx = t - x * mean[N](t * x)\n"
               "dw = sum[...](dy * x)\ndb = sum[...](dy)",
    "places": "f(x: T[..., N]) -> (i: i64[...], m: T[...], s: T[...])\ni = argmax[N](x)\nm = min[N](x)\ns = sum[N]((x - m)^2)",
}  # fmt: skip
#: Rows and their elements: every way of walking, whole vectors and not, in f32 and bf16; and rows that lie side by side.
SHAPES = ((9, 5), (40, 33), (5, 1000), (3, 1025), (5, 7000), (3, 13_313), (3, 16_384), (3, 15_999), (3, 28_000), (2, 33_001), (2, 65_536), (1, 131_075),
          (1, 300_001))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--targets", default="cuda,triton")
    parser.add_argument("--specs", default=",".join(SPECS))
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--examples", type=int, default=6)
    parser.add_argument("--log", type=Path, default=Path("sanitize.log"))
    parser.add_argument("--worker", action="store_true", help="run the specs in this process (what the tools are started on)")
    parser.add_argument("--plans", action="store_true", help="ways of sharing rows out, in CUDA, under memcheck and racecheck")
    parser.add_argument("--plain", action="store_true", help="no canaries")
    given = parser.parse_args()
    if given.worker and given.plans:
        return ways(given.specs.split(","), given.plain)
    if given.plans:
        given.tools, given.targets, given.specs = "memcheck,racecheck", "cuda", ",".join(PLANS)
    if given.worker:
        return work(given.specs.split(","), given.targets, given.examples, given.plain)
    specs = given.specs.split(",")
    parts = [specs[k::n] for n in [-(-len(specs) // (1 if given.plans else PER_PROCESS))] for k in range(n)]
    tasks = [(tool, target, part) for tool in given.tools.split(",") for target in given.targets.split(",") for part in parts]
    rows: dict[tuple[str, str], list[Any]] = {(tool, target): [0, 0, 0, 0.0] for tool, target, _ in tasks}
    with ThreadPoolExecutor(given.jobs) as pool, given.log.open("w") as log:
        for done, ((tool, target, part), (code, text, took)) in enumerate(zip(tasks, pool.map(lambda t: run(*t, given.examples, given.plans), tasks), strict=True)):
            row = rows[tool, target]
            row[0] += len(part)
            row[1] += sum(int(n) for n in re.findall(r"^calls (\d+)", text, re.M))
            found = sum(int(n) for n in re.findall(r"ERROR SUMMARY: (\d+) error", text)) + sum(
                int(n) for n in re.findall(r"RACECHECK SUMMARY: (\d+) hazard", text)
            )
            row[2] += found or int(code != 0)
            row[3] += took
            log.write(f"=== {tool} {target} {' '.join(part)}: exit code {code}, {took:.0f} s\n{text}\n")
            log.flush()
            said = "clean" if not code else f"exit code {code}: " + next((x for x in text.splitlines() if re.search("=== .*(Error|Invalid|hazard|Uninit|Barrier)|wrong:", x)), "")
            print(f"[{done + 1}/{len(tasks)}] {tool} {target} {' '.join(part)}: {said} ({took:.0f} s)", file=sys.stderr, flush=True)
    print(f"{'tool':10} {'target':7} {'specs':>5} {'calls':>6} {'errors':>6} {'seconds':>8}")
    for (tool, target), (specs_run, calls, errors, took) in rows.items():
        print(f"{tool:10} {target:7} {specs_run:5} {calls:6} {errors:6} {took:8.0f}")
    return int(any(row[2] for row in rows.values()))


def run(tool: str, target: str, specs: list[str], examples: int, plans: bool = False) -> tuple[int, str, float]:
    """A tool over some specs: its exit code, what it printed, and the seconds that it took."""
    own = [sys.executable, "-m", "tests.gpu.sanitize", "--worker", "--targets", target, "--specs", ",".join(specs)]
    own += ["--examples", str(examples), *(["--plain"] if tool != "memcheck" else [])]
    own += ["--plans"] if plans else []
    # torch's own kernels are not what is looked at; initcheck has to see what they write
    only = [] if tool == "initcheck" else ["--kernel-name-exclude", "kernel_substring=at6native"]
    if tool == "memcheck":  # cuda-bindings asks the driver for functions that it may not have
        only += ["--report-api-errors", "no"]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "10", *only, *own]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


def work(specs: list[str], target: str, examples: int, plain: bool) -> int:
    """All of some specs' kernels on a target: random cases within the derived bound, and rows of every schedule."""
    import torch

    import kgen
    from kgen.grad import backward, differentiable
    from kgen.runtime.kernel import Kernel as Runnable
    from kgen.runtime.samples import arguments
    from kgen.testing import checks
    from kgen.testing.padded import Padded

    calls, bad = 0, 0
    for name in specs:
        kernel = kgen.load(name).kernel
        for k in [kernel, *([backward(kernel, save=False).kernel] if differentiable(kernel) else [])]:
            runnable: Any = Runnable(k) if plain else Padded(k)
            report = checks.check(k, target, examples=examples, runnable=runnable)
            calls += report.cases
            for failure in report.failures:
                bad += 1
                print(f"wrong: {failure}")
            for rows, n in LENGTHS if k.reduces else ((3, 1001),):
                for dtype in ("bf16", "f32"):
                    given = arguments(k, dtype, rows * n, "cuda", row=n)
                    try:
                        runnable._run((), given, None, target)
                    except kgen.KgenError as error:
                        bad += 1
                        print(f"wrong: {name} on {target}, {rows} rows of {n} in {dtype}: {error}")
                    calls += 1
    torch.cuda.synchronize()
    print(f"calls {calls}")
    return int(bad > 0)


def ways(names: list[str], plain: bool) -> int:
    """Some kernels of `PLANS` in every shape, each call against float64 in C++ to within 2^-6 of the largest magnitude."""
    import torch

    import kgen
    from kgen.testing.padded import Padded

    calls, bad = 0, 0
    for name in names:
        kernel = kgen.loads(PLANS[name])
        runnable: Any = kernel if plain else Padded(kernel.kernel)
        for dtype in (torch.float32, torch.bfloat16):
            for (rows, n), across in [*((s, False) for s in SHAPES), *(((40, n), True) for n in (12, 100, 3001))]:
                given, exact = {}, {}
                for p in kernel.kernel.params:
                    shape = (rows, n) if "..." in (p.dims or ()) else (n,)
                    x = torch.randn(*shape[::-1]).t() if across and len(shape) == 2 else torch.randn(*shape)
                    given[p.name] = x.to("cuda", dtype)
                    exact[p.name] = given[p.name].double().cpu()
                got = runnable._run((), given, None, "cuda")
                want = kernel._run((), exact, None, "cpp")
                if name == "in_place":
                    got, want = given["x"], exact["x"]
                for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True):
                    if (a.double().cpu() - b).abs().max() > 2.0**-6 * b.double().abs().max():
                        bad += 1
                        print(f"wrong: {name}, {rows} rows of {n} in {dtype}{', side by side' if across else ''}")
                calls += 1
    torch.cuda.synchronize()
    print(f"calls {calls}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
