"""The bandwidth of quantising after anything: each spec of the matrix, its results held first, as a fraction of a device copy.

    python -m tests.formats.bandwidths [--rows 16384] [--columns 4096] [--jobs 16] [--target cuda] --out FILE.json
    python -m tests.formats.bandwidths --table FILE.json

A copy moves in the same run, L2 flushed before each, as many bytes as the kernel reads and writes at least. All are compiled first, by
`--jobs` processes; with sixteen it takes a minute.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.formats import matrix

Case = tuple[str, str, str]


def small(case: Case, target: str, columns: int) -> str:
    """Compile one, and hold what it gives of a few rows; why not, "" where it is right.  What rows of so many columns take is compiled too."""
    import torch

    import kgen

    given, kernel = matrix.arguments(*case, device="cuda"), kgen.loads(matrix.spec(*case))
    try:
        matrix.held(*case, given, kernel(*given, target=target))
        kernel(*(torch.zeros((columns,) if t.ndim == 1 else (1024, columns), device="cuda", dtype=t.dtype) for t in given), target=target)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def fractions(cases: list[Case], target: str, rows: int, columns: int) -> Iterator[tuple[Case, float]]:
    """The time of a copy of the least bytes over each kernel's, bf16 [rows, columns] in; what is copied is timed once for a number of
    bytes, what a producer reads is made once."""
    import torch

    import kgen
    from kgen.bench import timing
    from kgen.bench.timing import COPY, copying, free, spreads_ms

    timing.SECONDS = 0.02  # for each of 182: a dozen runs at least
    copies: dict[int, float] = {}
    for producer, own in groupby(cases, lambda case: case[0]):
        few = matrix.arguments(producer, "mxfp8", "rows", device="cuda")
        given = [torch.randn((columns,) if t.ndim == 1 else (rows, columns), device="cuda", dtype=t.dtype) for t in few]
        for case in own:
            kernel = kgen.loads(matrix.spec(*case))
            moved = sum(t.numel() * t.element_size() for t in (*given, *kernel(*given, target=target)))
            with torch.no_grad():
                if moved not in copies:
                    copies[moved] = spreads_ms({COPY: copying(moved, "cuda")}, "cuda")[COPY][0]
                ms = spreads_ms({case[1]: partial(kernel, *given, target=target)}, "cuda")[case[1]][0]
            yield case, copies[moved] / ms
        given.clear()
        free("cuda")


def table(found: dict[str, Any]) -> str:
    """Markdown: a row for each producer and layout, a column for each format."""
    lines = [
        f"| bf16 [{found['rows']:,}, {found['columns']:,}] | scales | " + " | ".join(matrix.FORMATS) + " |",
        "| --- " * (2 + len(matrix.FORMATS)) + "|",
    ]
    for producer in matrix.PRODUCERS:
        for layout in matrix.LAYOUTS:
            cells = [found["of copy"].get("-".join((producer, f, layout))) for f in matrix.FORMATS]
            shown = ("" if c is None else f"{c:.2f}".replace("0.", ".", 1) if isinstance(c, float) else "wrong" for c in cells)
            lines.append(f"| {producer} | {layout} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> int:
    """Time all, or print a table; 1 where a kernel's results are wrong."""
    asked = argparse.ArgumentParser(prog="python -m tests.formats.bandwidths")
    asked.add_argument("--rows", type=int, default=16384)
    asked.add_argument("--columns", type=int, default=4096)
    asked.add_argument("--jobs", type=int, default=8)
    asked.add_argument("--target", default="cuda")
    asked.add_argument("--name", default="", help="only those whose name has this")
    asked.add_argument("--out", type=Path)
    asked.add_argument("--table", type=Path)
    args = asked.parse_args()
    if args.table:
        print(table(json.loads(args.table.read_text())))
        return 0
    cases = [c for c in matrix.pairs() if args.name in "-".join(c)]
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        why = dict(zip(cases, pool.map(small, cases, [args.target] * len(cases), [args.columns] * len(cases))))
    found: dict[str, Any] = {"rows": args.rows, "columns": args.columns, "of copy": {}}
    right = [case for case in cases if not why[case]]
    found["of copy"] |= {"-".join(case): text for case, text in why.items() if text}
    for case, of_copy in fractions(right, args.target, args.rows, args.columns):
        found["of copy"]["-".join(case)] = round(of_copy, 3)
        print("-".join(case), round(of_copy, 3), file=sys.stderr, flush=True)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 1 if any(why.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
