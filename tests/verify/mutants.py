"""How many mutants `kgen verify` finds, and how many `allclose` does.

    python -m tests.verify.mutants [--each N] [--rule NAME] [--source NAME] [--gpu] [--jobs N] [--out FILE.jsonl] [--summary]

Builds mutants (of each rule about N, spread over sources; 0: all), holds each to its spec, and writes a row for each to FILE as it is
done; a mutant that has a row is not done again (`--again`: done again).  `equivalent.json` says of which mutants nothing can be found, and
why.  `--summary` prints tables of a file's rows.  On a GPU: `--gpu`, a process each of `--jobs`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.verify.mutate import HERE, Mutant, chosen, mutants, sources
from tests.verify.rules import RULES

EQUIVALENT = HERE / "equivalent.json"


def reasons() -> list[dict[str, str]]:
    """Of mutants that nobody can tell from their source: the rule, a pattern of sources, a part of the line ("" for any), and the reason."""
    return json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else []


def reason(source: str, rule: str, line: str) -> str:
    """Why a mutant is equivalent; "" where that is not known."""
    for known in reasons():
        if known["rule"] in (rule, "") and re.fullmatch(known["source"], source) and known["line"] in line:
            return known["reason"]
    return ""


def options(source: Any) -> dict[str, Any]:
    """How a source asks to be held: dense tensors alone, where it says so, and the dtypes that it is written for."""
    held: dict[str, Any] = {"device": source.device}
    if source.dtypes:
        held["dtypes"] = source.dtypes
    if source.device == "cuda":  # where many share a GPU, a kernel's first call waits for its compiler
        held["timeout"] = 180.0
    if "next_power_of_2" in source.text:  # a row is one block, for which Triton's compiler takes minutes where it is longer
        held["most"] = {"N": 65536, "V": 65536}
    if "must be contiguous" in source.text:
        held["contiguous"] = True
    return held


def judge(candidate: str, spec: str, held: dict[str, Any]) -> dict[str, Any]:
    """What `examine` says of a candidate: found, survived or not built, with the first finding, and in how long."""
    from kgen.verify import Kind, examine

    began = time.perf_counter()
    report = examine(candidate, spec, shrink=0.0, **held)
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 2), "cases": report.cases}
    if report.findings:
        f = report.findings[0]
        unbuilt = f.kind is Kind.LOADS or f.kind is Kind.RAISES and "CompilationError" in f.message  # Triton's files are built when called
        row |= {"verdict": "not built" if unbuilt else "found", "kind": f.kind.value, "message": f.message[:300], "condition": f.condition, "case": f.case[:300]}
    else:
        row |= {"verdict": "survived", "untried": report.untried[:5], "refused": report.refused[:5]}
    return row


def one(mutant: Mutant, beside: bool) -> dict[str, Any]:
    """A mutant's row."""
    import torch

    from tests.verify import kernelbench

    torch.set_num_threads(1)
    source = mutant.source
    row: dict[str, Any] = {"name": mutant.name, "source": source.name, "spec": source.spec, "rule": mutant.rule.name, "line": mutant.line}
    with tempfile.TemporaryDirectory(prefix="kgen-mutant-") as folder:
        candidate = source.put(Path(folder), mutant.text)
        try:
            row |= judge(candidate, source.spec, options(source))
            if row["verdict"] == "survived" and source.device == "cuda":  # as one holds a kernel that may read outside, or race
                row |= judge(candidate, source.spec, options(source) | {"sanitize": True}) | {"sanitized": True}
        except Exception as error:
            row |= {"verdict": "error", "message": f"{type(error).__name__}: {error}"[:300], "seconds": 0.0}
        if beside and row["verdict"] in ("found", "survived"):
            row["allclose"] = kernelbench.refused(candidate, source.spec, source.dtypes or ("f32", "bf16"), source.device)
    return row


def started() -> None:
    """Make a worker process ready: it is quiet, and its candidates find this package."""
    root = str(HERE.parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])


def table(rows: list[dict[str, Any]]) -> str:
    """Rows by rule, and the sums."""
    lines = [f"{'rule':46} {'found':>6} {'surv.':>6} {'equiv.':>6} {'unbuilt':>7} {'allclose':>9} {'median s':>9}"]
    names = [r.name for r in RULES]
    sums = dict.fromkeys(("found", "survived", "equivalent", "not built", "error"), 0)
    taken = of = 0
    for name in names:
        mine = [r for r in rows if r["rule"] == name]
        if not mine:
            continue
        verdicts = [_verdict(r) for r in mine]
        for v in verdicts:
            sums[v] += 1
        beside = [r for r, v in zip(mine, verdicts) if v in ("found", "survived") and "allclose" in r]
        taken, of = taken + sum(bool(r["allclose"]) for r in beside), of + len(beside)
        seconds = [r["seconds"] for r, v in zip(mine, verdicts) if v == "found"]
        counts = [verdicts.count(v) for v in ("found", "survived", "equivalent", "not built")]
        lines.append(f"{name:46} {counts[0]:6} {counts[1]:6} {counts[2]:6} {counts[3]:7} {sum(bool(r['allclose']) for r in beside):4} of {len(beside):3} {statistics.median(seconds) if seconds else 0:8.1f}")
    found = [r["seconds"] for r in rows if _verdict(r) == "found"]
    whole = sums["found"] + sums["survived"]
    lines.append(f"{len(rows)} mutants of {len({r['source'] for r in rows})} sources by {len({r['rule'] for r in rows})} rules: {sums}")
    if sanitized := [r["name"] for r in rows if _verdict(r) == "found" and r.get("sanitized")]:
        lines.append(f"of these by compute-sanitizer alone (--sanitize): {', '.join(sanitized)}")
    if found:
        q = statistics.quantiles(found, n=10) if len(found) > 1 else [found[0]] * 9
        lines.append(f"found {sums['found']} of {whole} ({sums['found'] / whole:.1%}); seconds: median {statistics.median(found):.1f}, nine tenths within {q[8]:.1f}, at most {max(found):.1f}")
    if of:
        lines.append(f"allclose finds {taken} of {of} ({taken / of:.1%})")
    return "\n".join(lines)


def _verdict(row: dict[str, Any]) -> str:
    if row["verdict"] == "survived" and reason(row["source"], row["rule"], row["line"]):
        return "equivalent"
    return row["verdict"]


def kept(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, the last of each mutant."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        row = json.loads(line)
        found[row["name"]] = row
    return list(found.values())


def main() -> int:
    """Run the campaign that the command line asks for; 1 where a mutant survived that is not known to be equivalent."""
    asked = argparse.ArgumentParser(prog="python -m tests.verify.mutants")
    asked.add_argument("--each", type=int, default=6, help="mutants of each rule (0: all)")
    asked.add_argument("--rule", default="", help="only rules whose name has this")
    asked.add_argument("--source", default="", help="only sources whose name has this")
    asked.add_argument("--gpu", action="store_true")
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    asked.add_argument("--again", action="store_true", help="do those anew that are in the file")
    asked.add_argument("--survivors", action="store_true", help="do those anew that survived")
    asked.add_argument("--no-allclose", action="store_true")
    asked.add_argument("--summary", action="store_true")
    args = asked.parse_args()
    started()
    if not args.summary:
        rules = tuple(r for r in RULES if args.rule in r.name)
        every = [m for s in sources(args.gpu) if args.source in s.name for m in mutants(s, rules)]
        some = chosen(every, args.each) if args.each else every
        before = {r["name"]: r for r in kept(args.out)}
        todo = [m for m in some if args.again or m.name not in before or (args.survivors and before[m.name]["verdict"] in ("survived", "error"))]
        print(f"{len(every)} mutants, {len(some)} chosen, {len(todo)} to do", file=sys.stderr)
        with args.out.open("a") as out, ProcessPoolExecutor(args.jobs, get_context("spawn"), started) as pool:
            futures = [pool.submit(one, m, not args.no_allclose) for m in todo]
            for k, future in enumerate(as_completed(futures), 1):
                row = future.result()
                out.write(json.dumps(row) + "\n")
                out.flush()
                known = " (equivalent)" if _verdict(row) == "equivalent" else ""
                taken = "  allclose takes it" if row.get("allclose") == "" else ""
                print(f"[{k}/{len(todo)}] {row['verdict']}{known} {row.get('kind', '')} {row['seconds']} s: {row['name']}{taken}", file=sys.stderr)
    rows = [r for r in kept(args.out) if args.rule in r["rule"] and args.source in r["source"]]
    print(table(rows))
    for r in rows:
        if _verdict(r) in ("survived", "error"):
            print(f"{r['verdict'].upper()} {r['name']}: {r['line'][:150]} {r.get('message', '')}")
    return 1 if any(_verdict(r) in ("survived", "error") for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
