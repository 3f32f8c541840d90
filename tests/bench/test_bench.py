"""`kgen bench`: what it compares before it times, which peers it has, what it keeps and prints.  No test asserts a time."""

from __future__ import annotations

import json
import os
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import kgen
from kgen.bench import apart, calls, first, kernelbench, libraries, library, picture, profiles, reference, table, timing
from kgen.bench.library import TIMED
from kgen.cli import main
from kgen.errors import KgenError
from kgen.runtime.samples import arguments
from tests import warm
from tests.conftest import ROOT

BENCH = timing.bench
SPREADS = timing.spreads_ms  # the tests' own takes no time
#: Torch's own functions but for those of the library, which tests/specs holds to their specs.
OWN = {spec: call for spec, call in libraries.TORCH.items() if spec not in TIMED}
TABLES = {"torch": OWN, **{peer: table for peer, (_, table) in libraries.PACKAGES.items()}}


def checked(spec: str) -> Any:
    return kgen.load(spec).kernel


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(tmp_path)
    if not request.node.get_closest_marker("gpu"):
        for module in (timing, kernelbench):
            monkeypatch.setattr(
                module, "spreads_ms", lambda runs, device: {name: (run(), (1.0, 0.5, 2.0))[1] for name, run in runs.items()}
            )


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", *arguments])


def test_a_row_has_a_length_where_a_named_dim_is_reduced() -> None:
    rows = {spec: timing.has_rows(checked(spec)) for spec in ("softmax", "sum_of_squares_cols", "cross_entropy", "mse", "gelu", "dyt")}
    assert rows == {"softmax": True, "sum_of_squares_cols": True, "cross_entropy": True, "mse": False, "gelu": False, "dyt": False}


def test_16_bit_results_that_are_rounded_wrong_are_counted() -> None:
    kernel = checked("gelu")
    x = torch.randn(4096).to(torch.bfloat16)
    pieces = reference.Reference(kernel, {"x": x})
    right = torch.nn.functional.gelu(x.double()).float().to(torch.bfloat16)
    assert pieces.misrounded(right) == 0
    right.view(torch.int16)[:3] += 1
    assert pieces.misrounded((right,)) == 3 / 4096
    assert pieces.misrounded(right.float()) is None
    assert reference.Reference(kernel, {"x": x.float()}).misrounded(right) is None


# ------------------------------------------------------------------------------------------------ peers


@pytest.mark.parametrize(("peer", "spec"), [(peer, spec) for peer, table in TABLES.items() for spec in table])
def test_a_peer_takes_what_its_spec_takes(peer: str, spec: str) -> None:
    assert (ROOT / "specs" / f"{spec}.k").exists()
    assert libraries._entry(checked(spec), TABLES[peer]) is not None


@pytest.mark.parametrize("spec", OWN)
def test_torchs_own_function_is_the_formula(spec: str) -> None:
    kernel = checked(spec)
    given = arguments(kernel, "f32", 2048, "cpu", 64)
    if spec in ("kl_div", "jsd"):
        given = {k: torch.softmax(v, -1) for k, v in given.items()}
    want = reference.Reference(kernel, given)
    copies = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    assert want.alike(libraries.prepared(kernel, "torch", copies)()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("spec", OWN)
def test_what_is_compiled_is_the_formula(spec: str) -> None:
    kernel = checked(spec)
    given = arguments(kernel, "f32", 2048, "cpu", 64)
    want = reference.Reference(kernel, given)
    copies = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    assert want.alike(libraries.prepared(kernel, "compile", copies)()) == ""


def test_what_is_not_installed_or_has_no_function_is_told() -> None:
    assert libraries.lacks(checked("scale_shift_chain"), "torch") == "torch has no function for scale_shift_chain"
    mine = kgen.loads("softmax(z: T[..., N]) -> y: T[..., N]\ny = z\n").kernel
    assert libraries.lacks(mine, "torch") == "torch has no function for softmax"
    for peer, (package, _) in libraries.PACKAGES.items():
        why = libraries.lacks(checked("softmax"), peer)
        assert why in ("", f"{package} is not installed")
    assert libraries.lacks(checked("softmax"), "eager") == libraries.lacks(checked("softmax"), "compile") == ""


def test_a_peer_that_raises_or_computes_another_thing_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("rows of at most 8 elements\nand more")

    table: dict[str, Any] = {
        "refuses": refuses,
        "other": lambda x: torch.softmax(x, 0),
        "short": lambda x: x[:1],
        "same": lambda x: torch.softmax(x, -1),
    }
    for name, function in table.items():
        monkeypatch.setitem(libraries.PACKAGES, name, ("torch", {"softmax": function}))
    found = timing.bench(checked("softmax"), [], list(table), "f32", 1024, "cpu", 64)
    assert found.left_out == {
        "refuses": "ValueError: rows of at most 8 elements",
        "other": "its y is another",
        "short": "its results have other sizes",
    }
    assert [r.what for r in found.rows] == ["same"] and not found.wrong


def test_a_target_that_is_wrong_or_fails_is_reported_and_the_others_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgen.runtime.kernel import Kernel

    plain = Kernel.__call__

    def call(self: Any, *args: Any, target: str, **kwargs: Any) -> Any:
        if target == "cuda":
            raise RuntimeError("no such device")
        y = plain(self, *args, target="torch", **kwargs)
        return y + 0.01 if target == "triton" else y

    monkeypatch.setattr(Kernel, "__call__", call)
    found = timing.bench(checked("gelu"), ["triton", "cuda", "cpp"], ["eager", "torch"], "bf16", 1024, "cpu")
    assert [(r.what, r.way) for r in found.rows] == [("cpp", ""), ("eager", "formula"), ("torch", "")]
    assert "triton and PyTorch differ in y" in found.wrong["triton"] and found.wrong["cuda"] == "RuntimeError: no such device"
    row = found.rows[0]
    assert (row.elements, row.length, row.bytes, row.ratios) == (1024, 0, 4096, {"vs eager": 1.0, "vs torch": 1.0})
    assert (row.ms, row.low, row.high) == (1.0, 0.5, 2.0) and row.misrounded == 0
    assert row.predicted["read"] == row.predicted["written"] == 2 and row.predicted["bound"].startswith(("memory", "arithmetic"))


def test_eager_is_the_faster_of_the_formula_and_torchs_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"torch": 4.0, "eager formula": 8.0, "eager torch": 2.0, "copy": 1.0}
    monkeypatch.setattr(timing, "spreads_ms", lambda runs, device: {name: (times[name],) * 3 for name in runs})
    (ours, eager) = timing.bench(checked("gelu"), ["torch"], ["eager"], "f32", 1024, "cpu").rows  # the evaluator, which needs no compiler
    assert (eager.what, eager.way, eager.ms, ours.ratios) == ("eager", "torch", 2.0, {"vs eager": 0.5})
    assert "eager torch" in eager.row() and asdict(eager)["what"] == "eager"
    times["eager torch"] = 9.0
    assert timing.bench(checked("gelu"), [], ["eager"], "f32", 1024, "cpu").rows[0].way == "formula"
    del times["eager torch"]
    times["compile"] = 1.0
    (eager,) = timing.bench(checked("dyt"), [], ["eager"], "f32", 1024, "cpu").rows  # of which torch has no function
    assert (eager.way, eager.ms) == ("formula", 8.0)


def test_noisy_figures_are_told_and_never_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"torch": (0.01, 0.01, 0.01), "eager formula": (8.0, 4.0, 9.0), "eager torch": (9.0, 9.0, 9.0), "copy": (1.0, 1.0, 1.0)}
    monkeypatch.setattr(timing, "spreads_ms", lambda runs, device: {name: times[name] for name in runs})
    found = timing.bench(checked("gelu"), ["torch"], ["eager"], "f32", 1024, "cpu")
    assert [line.split(":")[0] for line in found.doubts] == [
        "the rounds of eager spread widely", "torch has 100 of a copy's speed, more than memory gives",
    ]  # fmt: skip
    rows = [asdict(r) for r in found.rows] + [asdict(found.rows[1]) | {"what": "compile", "ms": 2.0, "low": 2.0, "high": 2.1}]
    made = table.markdown(rows).split("\n")
    assert made[2] == "| gelu f32 | - | .12? | 100.00? | **.50** |" and made[-1].startswith("? its rounds spread widely")


def test_rounds_that_waited_for_the_host_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed, waits, took = [0], iter([True, True, *[False] * 100]), []

    class Event:
        """Had passed when the host was done, where `waits` says so; the time between two is the number of flushes before."""

        def __init__(self, enable_timing: bool):
            self.at = 0

        def record(self) -> None:
            self.at = flushed[0]

        def query(self) -> bool:
            return next(waits)

        def elapsed_time(self, end: Event) -> float:
            took.append(self.at)
            return float(self.at)

    class Flush:
        def zero_(self) -> None:
            flushed[0] += 1

    for name, fake in (("Event", Event), ("synchronize", lambda: None)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch, "empty", lambda *size, **more: Flush())
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    assert len(timing._on_gpu(lambda: None)) == 12
    assert took == [4 + 8 + 16 * n for n in range(1, 13)]  # the first two rounds do not count, and each doubles what stands before the next


# ------------------------------------------------------------------------------------------------ the command


def test_sizes_are_gone_through_and_kept_with_the_peers_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    true = timing.bench
    monkeypatch.setattr(timing, "bench", lambda kernel, targets, *rest: true(kernel, ["torch"], *rest))  # which needs no compiler
    sizes = ("--elements", "4096,8192", "--row", "64,128", "--dtype", "bf16")
    done = run("softmax", "gelu", "--against", "eager", *sizes, "--json", "kept.json")
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("kept.json").read_text())
    assert [(r["kernel"], r["elements"], r["length"], r["what"]) for r in kept] == [
        (kernel, elements, length, what)
        for kernel, lengths in (("softmax", (64, 128)), ("gelu", (0,)))
        for elements in (4096, 8192)
        for length in lengths
        for what in ("torch", "eager")
    ]
    lines = done.stdout.splitlines()
    assert lines[0].startswith("softmax bf16, an element: 2 B read, 2 B written") and "bound by" in lines[0]
    assert lines[1].split()[:5] == ["kernel", "dtype", "elements", "row", "what"] and lines[1].endswith("vs eager")
    assert len(lines) == 1 + len(kept) + 2


def test_figures_of_an_interrupted_run_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    true = timing.bench
    seen: list[int] = []

    def bench(*args: Any, **named: Any) -> Any:
        seen.append(1)
        if len(seen) > 1:
            raise KeyboardInterrupt
        return true(*args, **named)

    monkeypatch.setattr(timing, "bench", bench)
    drawn: list[Any] = []
    monkeypatch.setattr(picture, "draw", lambda rows, path: drawn.append((len(rows), path)))
    done = run("gelu", "--against", "none", "--elements", "64,128", "--json", "kept.json", "--plot", "kept.svg")
    assert done.exit_code == 130 and "interrupted; 1 figures were measured and are in kept.json and kept.svg" in done.stderr
    assert [r["elements"] for r in json.loads(Path("kept.json").read_text())] == [64] and drawn == [(1, "kept.svg")]


@pytest.mark.parametrize(
    ("option", "message"),
    [(("--json", "taken/x.json"), "cannot write taken/x.json: "), (("--plot", "here"), "--plot draws no here"),
     (("--plot", "taken/x.png"), "cannot write taken/x.png: ")],
)  # fmt: skip
def test_what_cannot_be_written_is_said_before_anything_is_timed(option: tuple[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("taken").write_text("a file")
    monkeypatch.setattr(timing, "bench", lambda *_: pytest.fail("it is timed"))
    done = run("gelu", *option)
    assert done.exit_code == 1 and message in done.stderr and not done.stdout
    assert [p.name for p in Path().iterdir()] == ["taken"]


def test_a_plot_is_written_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    def half(self: Any, path: Any, **_: Any) -> None:
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    Path("x.svg").write_text("before")
    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(KgenError, match="cannot write x.svg: no space left"):
        picture.draw(KEPT, "x.svg")
    assert [p.name for p in Path().iterdir()] == ["x.svg"] and Path("x.svg").read_text() == "before"


def test_peers_by_default_are_those_there_are_and_by_name_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(libraries.PACKAGES, "quack", ("no_such_package", {}))
    done = run("gelu", "--against", "torch,quack", "--elements", "64")
    assert "left out quack: no_such_package is not installed" in done.stderr and "vs torch" in done.stdout
    assert "vs" not in run("gelu", "--against", "none", "--elements", "64").stdout
    assert run("gelu", "--against", "nobody").exit_code == 2


@pytest.mark.parametrize(
    "wrong",
    [("gelu", "--kernelbench", "23"), (), ("gelu", "--call", "--first"), ("gelu", "--profile", "--plot", "x.png"), ("gelu", "--dtype", "i8"),
     ("--kernelbench", "23", "--scale", "2"), ("gelu", "--elements", "0")],
)  # fmt: skip
def test_a_command_line_that_means_nothing_is_refused(wrong: tuple[str, ...]) -> None:
    assert run(*wrong).exit_code == 2


def test_a_profile_lists_what_is_launched() -> None:
    done = run("gelu", "--profile", "--against", "torch", "--elements", "65536", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("kept.json").read_text())
    assert {"cpp", "torch"} == {r["what"] for r in kept}
    assert any(r["launched"] == "aten::gelu" and r["times"] == 1 and r["us"] > 0 for r in kept)
    assert "aten::gelu" in done.stdout


def test_first_results_are_asked_of_processes_with_caches_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def process(task: dict[str, Any], folder: str) -> float:
        assert task["arguments"]["x"] == ["torch.float32", [16, 4096]]
        asked.append((task["what"], folder))
        return 8.0 / len(asked)

    monkeypatch.setattr(first, "_process", process)
    done = run("softmax", "--first", "--elements", "65536", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("kept.json").read_text())
    assert [(r["what"], r["cold"], r["warm"]) for r in kept] == [("compile", 8.0, 4.0), ("cpp", 8 / 3, 2.0)]
    assert kept[1]["of_compile"] == 1 / 3 and kept[1]["warm_of_compile"] == 1 / 4
    assert asked[0] == asked[1] and asked[2] == asked[3] and asked[0][1] != asked[2][1]


@pytest.mark.slow
def test_a_first_result_is_timed_in_a_fresh_process() -> None:
    done = run("silu", "--first", "--elements", "1024", "--against", "none")
    assert done.exit_code == 0 and "cpp" in done.stdout, done.output


def test_kernelbench_is_a_line_a_task_and_a_mean() -> None:
    done = run("--kernelbench", "19", "--scale", "1/65536", "--against", "eager", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["task", "19_relu", "eager"]
    kept = json.loads(Path("kept.json").read_text())
    assert [(r["kernel"], r["what"], r["copy"]) for r in kept] == [("kernelbench/19_relu", what, 1.0) for what in ("kgen", "eager")]
    assert run("--kernelbench", "54").exit_code == 1


def test_times_are_taken_in_turns_and_summed_up_by_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    found = SPREADS({name: lambda name=name: seen.append(name) for name in "ab"}, "cpu")  # type: ignore[misc]
    assert "".join(seen) == "ab" + "aabb" * timing.TURNS
    assert all(0 <= low <= middle <= high for middle, low, high in found.values())
    assert timing.spread([float(k) for k in range(10)]) == (5.0, 2.0, 7.0)


# ------------------------------------------------------------------------------------------------ tables and pictures

KEPT = [
    {"kernel": "softmax", "dtype": "bf16", "elements": 1 << 28, "length": n, "what": what, "ms": ms, "low": ms, "high": ms, "bytes": 1 << 30, "copy": 0.97}
    for n, times in ((1024, {"cuda": 1.0, "torch": 2.0}), (4096, {"cuda": 1.0, "quack": 0.97}))
    for what, ms in times.items()
]  # fmt: skip


def test_kept_figures_become_markdown() -> None:
    assert table.markdown(KEPT).split("\n") == [
        "| kernel | N | kgen CUDA | torch | QuACK |",
        "| --- | --- | --- | --- | --- |",
        "| softmax bf16 | 1,024 | **.97** | .48 | - |",
        "| softmax bf16 | 4,096 | .97 | - | **1.00** |",
    ]
    later = table.markdown([*KEPT, KEPT[0] | {"ms": 1.94}])
    assert "| softmax bf16 | 1,024 | **.50** | .48 | - |" in later
    task = {
        "kernel": "kernelbench/23_softmax",
        "dtype": "f32",
        "elements": 4,
        "length": 0,
        "ms": 2.0,
        "copy": 1.9,
        "bytes": 1,
        "ratios": {"vs compile": 1.5},
    }
    made = table.markdown([task | {"what": "kgen"}, task | {"what": "compile", "ms": 3.0}])
    assert "| 23 softmax | 2 | 3 | .95 | - | 1.50 |" in made and "compile / kgen: geometric mean 1.50 of 1 tasks" in made
    calls_made = table.markdown([asdict(calls.CallTiming("gelu", "f32", 1024, "cuda", 4.0, -1.0, 0.8))])
    assert calls_made.endswith("| gelu f32 | cuda | 4.00 | 0.80 |")
    with pytest.raises(KgenError, match="no figures"):
        table.markdown([{"copy": 1}])


def test_the_command_reads_what_it_kept() -> None:
    Path("kept.json").write_text(json.dumps(KEPT))
    done = run("--table", "kept.json")
    assert done.exit_code == 0 and done.stdout == table.markdown(KEPT) + "\n"
    assert run("--table", "kept.json", "softmax").stdout == done.stdout
    assert run("--table", "kept.json", "gelu").stdout == "\n"
    assert "cannot read nowhere.json" in run("--table", "nowhere.json").stderr


def test_a_picture_has_a_panel_a_kernel_and_dtype() -> None:
    pytest.importorskip("matplotlib")
    Path("kept.json").write_text(json.dumps(KEPT))
    assert run("--table", "kept.json", "--plot", "p.png").exit_code == 0
    assert Path("p.png").read_bytes()[:4] == b"\x89PNG"
    done = run("--table", "kept.json", "--plot", "kept.json/p.png")
    assert done.exit_code == 1 and "cannot write kept.json/p.png" in done.stderr


def test_without_matplotlib_a_plot_is_refused_before_anything_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "matplotlib" else found(name, *a))
    monkeypatch.setattr(timing, "bench", None)
    done = run("gelu", "--plot", "p.png")
    assert done.exit_code == 1 and "pip install 'kgen[plot]'" in done.stderr


def test_names_of_kernels_are_cut_where_they_are_long() -> None:
    cells = profiles.Launched("k", "f32", 1, 0, "compile", "n" * 200, 1.0, 2.0).row()
    assert len(cells[5]) == profiles.WIDEST and cells[5].endswith("...")


def test_helion_kernels_are_the_formulas() -> None:
    """In Helion's interpreter, which must be chosen before it is imported."""
    pytest.importorskip("helion")
    code = """
import torch, kgen
from kgen.bench import libraries, reference
from kgen.runtime.samples import arguments
for name in libraries.HELION:
    kernel = kgen.load(name).kernel
    given = arguments(kernel, "bf16", 2048, "cpu", 64)
    with torch.no_grad():
        why = reference.Reference(kernel, given).alike(libraries.prepared(kernel, "helion", given)())
    assert not why, (name, why)
"""
    done = warm.run("-c", code, env={**os.environ, "HELION_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize(
    "mode",
    [(), ("--backward",), ("--profile",), ("--call",), ("--foreach", "--scale", "1/64"), ("--first", "--against", "none")],
    ids=lambda m: m[0] if m else "",
)
def test_every_mode_runs_on_a_gpu(mode: tuple[str, ...]) -> None:
    names = ("softmax",) if "--first" in mode else ("gelu", "softmax")  # of which each starts processes of its own
    done = run(*names, "--dtype", "bf16", "--elements", "2^20", "--json", "kept.json", *mode)
    assert done.exit_code == 0, done.output
    kept = json.loads(Path("kept.json").read_text())
    assert {"cuda", "triton"} <= {r["what"] for r in kept} and {r["kernel"].split()[0] for r in kept} == {*names}


@pytest.mark.gpu
def test_kernelbench_runs_on_a_gpu() -> None:
    done = run("--kernelbench", "19,23,33,94", "--scale", "1/256", "--target", "all", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(Path("kept.json").read_text())) == 4 * 5


# ------------------------------------------------------------------------------------------------ arguments that torch takes


def test_integers_that_a_formula_takes_for_places_lie_inside() -> None:
    """Of the whole table: places looked up at, keys that are compared with places, and offsets that go through all of S."""
    given = arguments(checked("embedding_bag"), "f32", 1 << 16, "cpu", 512)
    rows, ids, offsets = len(given["w"]), given["ids"], given["offsets"]
    assert int(ids.min()) >= 0 and rows // 2 < int(ids.max()) < rows
    assert offsets[0] == 0 and offsets[-1] == len(ids) and bool((offsets.diff() >= 0).all())
    keys = arguments(checked("segment_mean"), "f32", 1 << 14, "cpu", 64)
    assert int(keys["ids"].min()) >= 0 and int(keys["ids"].max()) < len(keys["default"])
    begin_end = kgen.loads(
        "f(x: f32[S], begin: i32[B], end: i32[B]) -> y: f32[B]\n\ny = sum[S](x if begin <= index[S] and index[S] < end else 0)"
    )
    two = arguments(begin_end.kernel, "f32", 4096, "cpu", 128)
    assert torch.equal(two["begin"][1:], two["end"][:-1]) and two["begin"][0] == 0 and two["end"][-1] == len(two["x"])
    few = kgen.loads("f(w: f32[V], ids: u8[S]) -> y: f32[S]\n\ny = w[V = ids]").kernel
    assert int(arguments(few, "f32", 1 << 20, "cpu", 4096)["ids"].max()) > 200  # of 256 numbers


@pytest.mark.parametrize("spec", ["bce", "bernoulli_mask", "ragged_softmax", "segment_softmax"])
def test_torchs_own_function_takes_what_is_drawn(spec: str) -> None:
    """On a GPU these end the process's context with an assertion."""
    kernel = checked(spec)
    given = library.holding(kernel.name, arguments(kernel, "f32", 4096, "cpu", 64))
    got = libraries.prepared(kernel, "torch", given)()
    if spec != "bernoulli_mask":  # which draws others
        assert reference.Reference(kernel, given).alike(got) == ""


@pytest.mark.usefixtures("built_quickly")
def test_a_cell_that_fails_is_a_row_and_the_others_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind one that ends what runs on the GPU cells run in processes of their own (here: threads), that one without what ended it."""
    broken = {"gpu": False}

    def assertion(x: Any) -> Any:
        broken["gpu"] = True
        raise RuntimeError("device-side assert triggered")

    monkeypatch.setitem(libraries.TORCH, "softmax", assertion)
    monkeypatch.setattr(timing, "lost", lambda device: broken["gpu"] and threading.current_thread() is threading.main_thread())
    monkeypatch.setattr(apart, "ProcessPoolExecutor", lambda count, mp_context: ThreadPoolExecutor(count))
    done = run("softmax", "gelu", "--elements", "2^10", "--row", "64", "--target", "cpp", "--against", "eager", "--json", "kept.json")
    assert done.exit_code == 0, done.output
    assert "left out eager, softmax f32 1,024 in rows of 64: RuntimeError: device-side assert triggered (it ended" in done.stderr
    kept = json.loads(Path("kept.json").read_text())
    assert [(r["kernel"], r["what"]) for r in kept] == [("softmax", "eager"), ("softmax", "cpp"), ("gelu", "cpp"), ("gelu", "eager")]
    assert "device-side" in kept[0]["error"] and re.search(r"softmax +f32 +1,024 +64 +eager +left out +-", done.stdout)
    kernel = checked("softmax")
    assert pickle.loads(pickle.dumps(kernel)).signature() == kernel.signature()


@pytest.mark.slow
def test_a_cell_runs_in_a_process_of_its_own() -> None:
    """As behind a GPU's context that is lost."""
    cells = apart.Cells()
    cells.apart = True
    (row,) = cells.bench(checked("row_absmax_int8"), ["cpp"], [], "f32", 1 << 12, "cpu", 64, False).rows
    assert row.what == "cpp" and row.ms > 0


def test_what_has_no_figures_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "bench", lambda kernel, *rest: 1 / 0 if kernel.name == "softmax" else BENCH(kernel, *rest))
    done = run("softmax", "gelu", "--elements", "2^10", "--row", "64", "--target", "cpp", "--against", "none", "--json", "kept.json")
    assert done.exit_code == 1 and "error: softmax f32 1,024 in rows of 64: ZeroDivisionError" in done.stderr
    first, second = json.loads(Path("kept.json").read_text())
    assert (first["what"], first["error"]) == ("cpp", "ZeroDivisionError: division by zero") and second["kernel"] == "gelu"
    assert re.search(r"softmax +f32 +1,024 +64 +cpp +failed", done.stdout)
    assert "gelu" in run("kept.json", "--table").stdout
