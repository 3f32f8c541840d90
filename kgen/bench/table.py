"""Kept figures as Markdown tables: what `kgen bench --table FILE.json...` prints.

In: the lists that `--json` wrote, of any number of runs (of two figures for one cell the later counts).  Out: a table for each
kind of figure; timings are fractions of a copy in the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kgen.bench.block import distances
from kgen.bench.kernelbench import summary
from kgen.bench.timing import ABOVE, WIDE, above
from kgen.errors import KgenError

COLUMNS = ("cuda", "triton", "cpp", "eager", "torch", "formula", "compile", "liger", "quack", "helion")
TITLES = {"cuda": "kgen CUDA", "triton": "kgen Triton", "cpp": "kgen C++", "torch": "torch", "eager": "eager", "formula": "written out",
          "compile": "torch.compile", "liger": "Liger", "quack": "QuACK", "helion": "Helion", "kgen": "kgen",
          "kgen compiled": "kgen under torch.compile"}  # fmt: skip

FIRST = {"cold": "cold s", "warm": "warm s", "of_compile": "of torch.compile", "warm_of_compile": "warm, of its cold"}
CALL = {"us": "us a call", "ratio": "of F.gelu"}


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The tables of kept rows.  Raises `KgenError` for what `--json` never wrote."""
    try:
        parts = [
            _timings([r for r in rows if "copy" in r and "tensors" not in r and not r["kernel"].startswith("kernelbench/")]),
            _kernelbench([r for r in rows if "copy" in r and r["kernel"].startswith("kernelbench/")]),
            _plain([r for r in rows if "cold" in r], FIRST, "{:.3g}"),
            _plain([r for r in rows if "us" in r and "ratio" in r], CALL, "{:.2f}"),
            _lists([r for r in rows if "tensors" in r]),
            _blocks([r for r in rows if "exact" in r]),
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise KgenError(f"these are no figures of `kgen bench --json` ({type(error).__name__}: {error})") from None
    return "\n\n".join(p for p in parts if p)


def fraction(x: float) -> str:
    """.97, 1.02: two digits behind the point."""
    return f"{x:.2f}".removeprefix("0")


def _timings(rows: Sequence[dict[str, Any]]) -> str:
    """Fractions of a copy: a line a (kernel, dtype, size), a column a target or peer; the best of a line is bold.  A figure that is not
    to be relied on has a `?`, and is never the best."""
    columns = [c for c in COLUMNS if any(r["what"] == c for r in rows)]
    cells: dict[tuple[Any, ...], dict[str, tuple[float, bool]]] = {}
    for r in rows:
        doubted = above(r["copy"], r["ms"]) or r.get("high", 0) > WIDE * r.get("low", 0) > 0
        cells.setdefault((r["kernel"], r["dtype"], r["elements"], r["length"]), {})[r["what"]] = r["copy"] / r["ms"], doubted
    sizes = {key[2] for key in cells}
    lines = []
    for key in sorted(cells, key=lambda k: ([r["kernel"] for r in rows].index(k[0]), [r["dtype"] for r in rows].index(k[1]), k[3], k[2])):
        best = max((v for v, doubted in cells[key].values() if not doubted), default=None)
        shown = [_cell(*found, best) if (found := cells[key].get(c)) else "-" for c in columns]
        size = f"{key[3]:,}" if key[3] else f"{key[2]:,}" if len(sizes) > 1 else "-"
        lines.append((f"{key[0]} {key[1]}", size, *shown))
    if not lines:
        return ""
    note = f"\n\n? its rounds spread widely (above {WIDE:g} from the 20th to the 80th percentile), or it is above {ABOVE:g} of a copy."
    doubted = any(d for of in cells.values() for _, d in of.values())
    return _table(("kernel", "N", *(TITLES[c] for c in columns)), lines) + note * doubted


def _lists(rows: Sequence[dict[str, Any]]) -> str:
    """Calls over lists of tensors: a line each."""
    kept = {(r["kernel"], r["dtype"], r["tensors"], r["elements"], r["what"]): r for r in rows}
    lines = []
    for r in kept.values():
        host = f"{r['host']:.0f}" if r["host"] else "-"
        counts = f"{r['tensors']:,}", f"{r['elements']:,}"
        lines.append((f"{r['kernel']} {r['dtype']}", *counts, r["what"], f"{r['ms']:.3g}", fraction(r["copy"] / r["ms"]), host))
    return _table(("kernel", "tensors", "elements", "", "ms", "of a copy", "host us"), lines) if lines else ""


def _blocks(rows: Sequence[dict[str, Any]]) -> str:
    """Steps of training: a line for each way."""
    kept = {(r["layers"], r["batch"], r["width"], r["what"]): r for r in rows}
    base = {key[:3]: r["ms"] for key, r in kept.items() if key[3] == "compile"}
    lines = []
    for key, r in kept.items():
        host, memory = (f"{x:{form}}" if x else "-" for x, form in ((r["host"], ".1f"), (r["memory"], ",.0f")))
        ratio = fraction(base[key[:3]] / r["ms"]) if key[:3] in base else "-"
        apart = [f"{x:.1e}" for x in (max(distances(r["losses"], r["exact"])),)]
        what = TITLES.get(r["what"], r["what"])
        lines.append((what, f"{r['layers']}", f"{r['batch']} x {r['length']:,}", f"{r['ms']:.4g}", ratio, memory, host, *apart))
    heads = ("", "layers", "tokens", "ms a step", "torch.compile / it", "peak MB", "host ms", "losses off float64")
    return _table(heads, lines) if lines else ""


def _kernelbench(rows: Sequence[dict[str, Any]]) -> str:
    """Milliseconds of each task, and the geometric means below."""
    columns = [c for c in ("kgen", *COLUMNS) if any(r["what"] == c for r in rows)]
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for r in rows:
        tasks.setdefault(r["kernel"].removeprefix("kernelbench/"), {})[r["what"]] = r
    lines = []
    for task in sorted(tasks, key=lambda t: int(t.split("_")[0])):
        of = tasks[task]
        ours = of.get("kgen", {"ratios": {}})
        figures = {
            "copy": ours["copy"] / ours["ms"] if "ms" in ours else None,
            **{p: ours["ratios"].get(f"vs {p}") for p in ("eager", "compile")},
        }
        times = (f"{of[c]['ms']:.3g}" if c in of else "-" for c in columns)
        lines.append((task.replace("_", " "), *times, *("-" if f is None else fraction(f) for f in figures.values())))
    if not lines:
        return ""
    heads = ("task", *(f"{TITLES[c]} ms" for c in columns), "of copy", "eager / kgen", "compile / kgen")
    return _table(heads, lines) + "\n\n" + summary([r for of in tasks.values() for r in of.values()])


def _plain(rows: Sequence[dict[str, Any]], columns: dict[str, str], form: str) -> str:
    """Rows as they are, of each kernel and `what` the last."""
    lines = {}
    for r in rows:
        lines[r["kernel"], r["dtype"], r["what"]] = (f"{r['kernel']} {r['dtype']}", r["what"], *(form.format(r[k]) for k in columns))
    return _table(("kernel", "what", *columns.values()), list(lines.values())) if lines else ""


def _cell(figure: float, doubted: bool, best: float | None) -> str:
    return f"{fraction(figure)}?" if doubted else f"**{fraction(figure)}**" if figure == best else fraction(figure)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines))
