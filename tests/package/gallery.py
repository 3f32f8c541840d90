"""The library's pages, made of the specs and of docs/gallery/figures.csv: `python -m tests.package.gallery [FILE.json]`.

A page a family: a table of its specs, then each as it is written and as `kgen show --stage math` sets it.  The table has, beside a spec's
lines, those of the hand-written kernel that does the same, and the bandwidths that were measured, as parts of a copy's.  Of a file that
`kgen bench --json` wrote, the bandwidths of bf16 are put into figures.csv first: kgen's best, eager's and torch.compile's.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from kgen import library, mathematics, syntax
from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "gallery"
FIGURES = FOLDER / "figures.csv"
MEASURED = ("kgen", "torch", "compile")
OF = {"triton": "kgen", "cuda": "kgen", "cpp": "kgen", "kgen": "kgen", "eager": "torch", "torch": "torch", "compile": "compile"}
HEADS = ("spec", "what it computes", "lines", "by hand", *MEASURED)


def figures() -> dict[str, dict[str, str]]:
    """What is known of specs beyond their files: the row of each in figures.csv."""
    return {row["spec"]: row for row in csv.DictReader(io.StringIO(FIGURES.read_text()))}


def page(family: str, entries: list[library.Entry]) -> str:
    """The page of a family."""
    known, lines = figures(), [f"# {family.capitalize()}", ""]
    lines += [
        "What the columns say: [the library](../library.md#the-tables).", "",
        f"| {' | '.join(HEADS)} |", f"|{' --- |' * len(HEADS)}",
    ]  # fmt: skip
    for e in entries:
        row = known.get(e.name, {})
        hand = f"{row['hand lines']} ({row['hand source']})" if row.get("hand lines") else ""
        summary = e.summary.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")
        cells = [f"[{e.name}](#{e.name})", summary, str(e.lines), hand, *(row.get(m, "") for m in MEASURED)]
        lines.append(f"| {' | '.join(cells)} |")
    for e in entries:
        text = e.path.read_text()
        file = syntax.parse(text, e.path.name)
        lines += ["", f"## {e.name}", "", "```kgen", text.rstrip(), "```", "", "```text", mathematics.mathematics(file).rstrip(), "```"]
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every page of the gallery, by its file."""
    return {FOLDER / f"{family}.md": page(family, found) for family, found in library.entries().items()}


def taken(rows: list[dict[str, Any]]) -> None:
    """Put the bandwidths of bf16 in rows of `kgen bench --json` into figures.csv, those of the most elements of each spec."""
    known = figures()
    rows = [r for r in rows if r["dtype"] == "bf16" and r["what"] in OF]
    most = {k: max((r["elements"], r["length"]) for r in rows if r["kernel"] == k) for k in {r["kernel"] for r in rows}}
    for kernel, size in most.items():
        best: dict[str, float] = {}
        for r in rows:
            if r["kernel"] == kernel and (r["elements"], r["length"]) == size:
                best[OF[r["what"]]] = max(best.get(OF[r["what"]], 0.0), r["copy"] / r["ms"])
        own = known.setdefault(kernel, {"spec": kernel})
        own |= {m: f"{share:.2f}".lstrip("0") for m, share in best.items()}
    with FIGURES.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("spec", "hand lines", "hand source", *MEASURED), lineterminator="\n")
        writer.writeheader()
        writer.writerows(known.values())


def write() -> None:
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        taken(json.loads(Path(given).read_text()))
    write()
