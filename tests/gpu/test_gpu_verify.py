"""`kgen verify` on a GPU: what loses the context, streams, graphs, and what is right behind what is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from kgen.cli import main
from kgen.verify import Kind, Report, examine
from tests.verify import gpu_candidates

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

HERE = Path(gpu_candidates.__file__)


def report(name: str, spec: str = "softmax", **options: Any) -> Report:
    return examine(f"{HERE}:{name}", spec, **({"examples": 16, "shrink": 0, "device": "cuda"} | options))


#: A kernel of Triton, one that waits for another stream, one that writes where it is told.
SOME = ("of_kgens_triton", "on_its_own_stream", "destination")


@pytest.mark.first
@pytest.mark.parametrize("right", [SOME, pytest.param([n for n in gpu_candidates.RIGHT if n not in SOME], marks=pytest.mark.slow)], ids=["some", "others"])
def test_what_is_right_runs_behind_one_that_kills_the_context(right: Sequence[str], tmp_path: Path) -> None:
    names = [f"{HERE}:{name}" for name in ("kills_the_context", *right)]
    asked = ["verify", *names, "--spec", "softmax", "--device", "cuda", "--examples", "6", "--shrink", "0", "--json", str(tmp_path / "r.json")]
    done = CliRunner().invoke(main, asked)
    if not (tmp_path / "r.json").exists():
        pytest.fail(f"{done.output}\n{done.exception!r}")
    found = json.loads((tmp_path / "r.json").read_text())
    assert done.exit_code == 1 and len(found) == len(names), done.output
    assert [f["kind"] for f in found[0]["findings"]] == ["crash"], found[0]
    wrong = [(r["candidate"], r["findings"]) for r in found[1:] if not r["ok"]]
    assert not wrong, wrong


@pytest.mark.parametrize("name", ["on_a_stream_that_waits_for_none", "that_nobody_waits_for", "on_the_default_stream"])
def test_work_on_another_stream_is_found(name: str) -> None:
    found = report(name)
    assert {f.kind for f in found.findings} & {Kind.STREAM, Kind.VALUE, Kind.NAN, Kind.UNWRITTEN, Kind.REMEMBERED}, found


def test_what_remembers_is_found() -> None:
    assert report("by_its_memory").findings[0].kind is Kind.REMEMBERED


def test_what_nobody_wrote_is_found() -> None:
    assert report("unwritten").findings[0].kind in (Kind.UNWRITTEN, Kind.VALUE, Kind.NAN)


def test_a_graph_that_does_nothing_is_found_and_one_that_cannot_be_is_told() -> None:
    found = report("not_when_it_is_captured")
    assert [f.kind for f in found.findings[:1]] == [Kind.GRAPH], str(found)
    found = report("cannot_be_captured")
    assert found.ok and any("CUDA graph" in line for line in found.refused), found


def test_time_is_told_by_two_clocks() -> None:
    found = report("right", bench=True, examples=2)
    assert found.ok and [row["what"].split(":")[-1] for row in found.bench] == ["right", "kgen's softmax"]
    assert all(row["ms"] > 0 and row["clock ms"] > 0 for row in found.bench)
    late = report("that_nobody_waits_for", bench=True, every=True, examples=2)
    assert not late.ok


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed")
def test_compute_sanitizer_runs() -> None:
    found = report("right", sanitize=True, examples=2)
    assert found.ok and not found.untried, found


def by_turns() -> list:
    """Maps, rows and what is updated in place; a spec on both targets, of which one is slow: nvcc takes half a minute for rows, and
    tests/gpu/test_written.py has it build softmax."""
    nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
    own = {"softmax": "triton", "gelu": "cuda", "adamw": "triton", "cross_entropy": "cuda", "rope": "triton"}
    return [
        pytest.param(target, spec, id=f"{target}-{spec}", marks=[*[nvcc] * (target == "cuda"), *[pytest.mark.slow] * (target != mine), *[pytest.mark.first] * (spec == "cross_entropy")])
        for spec, mine in own.items()
        for target in ("triton", "cuda")
    ]


@pytest.mark.parametrize(("target", "spec"), by_turns())
def test_written_files_pass(spec: str, target: str, tmp_path: Path) -> None:
    dtypes = ("bf16",) if target == "cuda" else ("f32", "bf16")  # nvcc takes half a minute for each
    done = CliRunner().invoke(main, ["compile", spec, "--target", target, "--dtype", ",".join(dtypes), "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    path = tmp_path / spec / (f"{spec}.cu" if target == "cuda" else f"{spec}_triton.py")
    found = examine(path, spec, device="cuda", dtypes=dtypes, examples=16, shrink=0)
    if not found.ok:
        pytest.fail("\n".join(map(str, found.findings)) or str(found))  # whole, as an assertion's words are cut
