"""No false alarm: kernels that are right, held to their specs with special values among the arguments.

    python -m tests.verify.correct [--kind hand,eager,kgen,compile] [--name PART] [--examples N] [--jobs N] [--out FILE.jsonl] [--summary]
    python -m tests.verify.correct --gpu [--kind kgen,triton,hand,liger,quack] --jobs 12

Kinds: `hand` are those of `hand/`; `eager` torch's own functions (`eager.py`); `compile` some of these under torch.compile; `kgen`
the files that kgen writes, of every bundled spec (on a GPU CUDA's; `triton` Triton's); `liger` and `quack` are libraries that need a GPU.
`known.json` says of which of them what is found is a fault of theirs, and where it is reproduced.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.verify import kernelbench, mutants, mutate
from tests.verify.mutate import HERE, Source

KNOWN = HERE / "known.json"
COMPILED = ("softmax", "layernorm", "gelu", "swiglu", "rmsnorm", "huber", "logsumexp", "cross_entropy", "relu", "log_softmax")


@dataclass(frozen=True)
class Correct:
    """A candidate that is right: its kind, name, spec, what `examine` takes (or the source that is put into a folder), and options."""

    kind: str
    name: str
    spec: str
    candidate: str = ""
    source: Source | None = None
    options: dict[str, Any] = field(default_factory=dict)


def of_hand(gpu: bool) -> list[Correct]:
    return [Correct("hand", s.name.split("/")[1], s.spec, source=s, options=mutants.options(s)) for s in mutate.by_hand(gpu)]


def of_eager(gpu: bool) -> list[Correct]:
    from tests.verify import eager

    device = "cuda" if gpu else "cpu"
    every = {**eager.EAGER, **eager._lines()}
    return [
        Correct(
            "eager", spec, eager.AS_TORCH.get(spec, spec), f"tests.verify.eager:{spec}",
            options={"dtypes": made.dtypes, "device": device, **made.options},
        )
        for spec, made in every.items()
    ]


def of_compile(gpu: bool) -> list[Correct]:
    """Torch's functions, and formulas by hand in plain torch, under torch.compile: dense tensors, a few sizes."""
    text = "import torch\nfrom tests.verify.eager import {spec} as function\n\nforward = torch.compile(function, dynamic=True)\n"
    from tests.verify.eager import AS_TORCH

    found = []
    device = "cuda" if gpu else "cpu"
    for spec in COMPILED:
        if spec == "cross_entropy":
            continue
        source = Source(f"compile/{spec}", spec, ("python",), text.format(spec=spec), ".py", "forward", ("f32",), device)
        of = AS_TORCH.get(spec, spec)
        found.append(Correct("compile", spec, of, source=source, options={"dtypes": ("f32",), "device": device, "examples": 30}))
    return found


def of_kgen(target: str, kind: str) -> list[Correct]:
    """The written files of every bundled spec."""
    from kgen.library import entries

    return [Correct(kind, e.name, e.name, options={"target": target}) for family in entries().values() for e in family]


def written(spec: str, target: str) -> Source:
    """A written file, in f32 and bf16 where the spec leaves that open."""
    from kgen.cli.group import load_spec

    if spec not in mutate.WRITTEN:
        open_ = load_spec(spec).variables
        mutate.WRITTEN[spec] = "f32,bf16" if open_ else ""
    return mutate.written(spec, target)


def candidates(gpu: bool, kinds: set[str]) -> list[Correct]:
    """Those of the kinds that are asked for (none: all that run there)."""
    found: list[Correct] = []
    of = {
        "hand": lambda: of_hand(gpu), "eager": lambda: of_eager(gpu), "compile": lambda: of_compile(gpu),
        "kgen": lambda: of_kgen("cuda" if gpu else "cpp", "kgen"),
    }  # fmt: skip
    if gpu:
        from tests.verify import peers

        of |= {"triton": lambda: of_kgen("triton", "triton"), "liger": lambda: peers.candidates("liger"), "quack": lambda: peers.candidates("quack")}
    for kind, make in of.items():
        if not kinds or kind in kinds:
            found += make()
    return found


def one(correct: Correct, examples: int, beside: bool) -> dict[str, Any]:
    """A candidate's row."""
    import torch

    from kgen.verify import examine

    torch.set_num_threads(1)
    row: dict[str, Any] = {"kind": correct.kind, "name": correct.name, "spec": correct.spec}
    options = dict(correct.options)
    with tempfile.TemporaryDirectory(prefix="kgen-correct-") as folder:
        began = time.perf_counter()
        try:
            source = correct.source
            if target := options.pop("target", None):
                source = written(correct.spec, target)
                options |= mutants.options(source)
            candidate = source.put(Path(folder)) if source is not None else correct.candidate
            report = examine(candidate, correct.spec, shrink=0.0, **{"examples": examples, **options})
        except Exception as error:
            return row | {"verdict": "error", "findings": [f"{type(error).__name__}: {str(error)[:300]}"], "seconds": time.perf_counter() - began}
        row |= {
            "verdict": "passes" if report.ok else "found" if report.findings else "untried", "cases": report.cases, "fraction": report.fraction,
            "seconds": round(time.perf_counter() - began, 1), "refused": report.refused[:4], "untried": report.untried[:4],
            "findings": distinct(report.findings),
        }  # fmt: skip
        if beside and "f32" in options.get("dtypes", ("f32",)):
            row["allclose"] = kernelbench.refused(candidate, correct.spec, options.get("dtypes", ("f32", "bf16")), options.get("device", "cpu"))
    return row


def distinct(findings: list[Any]) -> list[str]:
    """Findings in words, of those of one kind and result the first."""
    found = {(f.kind, f.result, f.message[:60] if not f.result else ""): f for f in reversed(findings)}
    return [f"{f.kind.value}: {f.condition} {f.result} {f.message[:300]} | {f.case[:300]}" for f in reversed(found.values())][:8]


def known(row: dict[str, Any]) -> str:
    """Why all that was found of a candidate is a fault of its own; "" where some of it is none that is known."""
    entries = [e for e in json.loads(KNOWN.read_text()) if e["kind"] == row["kind"] and re.fullmatch(e["name"], row["name"])]
    reasons = [next((e["reason"] for e in entries if e["finding"] in f), "") for f in row["findings"]]
    return "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""


def summary(rows: list[dict[str, Any]]) -> str:
    """How many of each kind pass, and what was found of the others."""
    lines = [f"{'kind':10} {'tried':>6} {'pass':>6} {'theirs':>7} {'false':>6} {'untried':>8} {'cases':>8} {'allclose refuses':>17}"]
    for kind in dict.fromkeys(r["kind"] for r in rows):
        mine = [r for r in rows if r["kind"] == kind]
        theirs = [r for r in mine if r["verdict"] == "found" and known(r)]
        false = [r for r in mine if r["verdict"] in ("found", "error") and not known(r)]
        untried = sum(r["verdict"] == "untried" for r in mine)
        passed = sum(r["verdict"] == "passes" for r in mine)
        beside = [r for r in mine if "allclose" in r and r["verdict"] == "passes"]
        lines.append(f"{kind:10} {len(mine):6} {passed:6} {len(theirs):7} {len(false):6} {untried:8} {sum(r.get('cases', 0) for r in mine):8} {sum(bool(r['allclose']) for r in beside):6} of {len(beside)}")
    for r in rows:
        if r["verdict"] != "passes":
            why = known(r)
            lines.append(f"{r['verdict'].upper()} {r['kind']} {r['name']}: {'; '.join(r['findings']) or r.get('untried')} {f'[{why}]' if why else ''}")
        elif r.get("allclose"):
            lines.append(f"allclose refuses {r['kind']} {r['name']}: {r['allclose']}")
    return "\n".join(lines)


def main() -> int:
    """Run what the command line asks for; 1 where something was found that is not known to be a candidate's own fault."""
    asked = argparse.ArgumentParser(prog="python -m tests.verify.correct")
    asked.add_argument("--kind", default="")
    asked.add_argument("--name", default="")
    asked.add_argument("--examples", type=int, default=100)
    asked.add_argument("--gpu", action="store_true")
    asked.add_argument("--jobs", type=int, default=2)
    asked.add_argument("--out", type=Path, default=Path("correct.jsonl"))
    asked.add_argument("--again", action="store_true")
    asked.add_argument("--no-allclose", action="store_true")
    asked.add_argument("--part", default="0/1", help="K/N: of the candidates each N-th, from the K-th on")
    asked.add_argument("--summary", action="store_true")
    args = asked.parse_args()
    mutants.started()
    key = ("kind", "name")

    def rows() -> list[dict[str, Any]]:
        found = {}
        for line in args.out.read_text().splitlines() if args.out.exists() else ():
            row = json.loads(line)
            found[tuple(row[k] for k in key)] = row
        return list(found.values())

    if not args.summary:
        done = {tuple(r[k] for k in key) for r in rows() if r["verdict"] != "error"}
        first, each = (int(n) for n in args.part.split("/"))
        every = [c for c in candidates(args.gpu, set(filter(None, args.kind.split(",")))) if args.name in c.name][first::each]
        todo = [c for c in every if args.again or (c.kind, c.name) not in done]
        print(f"{len(todo)} to do, {os.cpu_count()} cores", file=sys.stderr)
        with args.out.open("a") as out, ProcessPoolExecutor(args.jobs, get_context("spawn"), mutants.started) as pool:
            futures = [pool.submit(one, c, args.examples, not args.no_allclose) for c in todo]
            for k, future in enumerate(as_completed(futures), 1):
                row = future.result()
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"[{k}/{len(todo)}] {row['verdict']} {row['kind']} {row['name']} {row['seconds']:.1f} s {'; '.join(row['findings'])[:300]}", file=sys.stderr)
    found = [r for r in rows() if args.name in r["name"]]
    print(summary(found))
    return 1 if any(r["verdict"] in ("found", "error", "untried") and not known(r) for r in found) else 0


if __name__ == "__main__":
    sys.exit(main())
