"""`kgen tune`: what it tries can be launched, what it keeps is the best, and a table that is no table does no harm."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import kgen
from kgen.backends import backend
from kgen.bench import timing, tune
from kgen.cli import main
from kgen.errors import KgenError
from kgen.runtime import nvrtc, rows, tuned
from kgen.runtime.limits import MAX_CLUSTER, limits
from kgen.runtime.rows import RowOperandPlace
from kgen.runtime.tuned import Step

LENGTHS = (33, 64, 65, 128, 200, 256, 512, 700, 1024, 2048, 2049, 4096, 8192, 16384, 32768, 65536)


@pytest.fixture(autouse=True)
def _own_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KGEN_CONFIG_DIR", str(tmp_path))
    tuned.ladders.cache_clear()
    yield
    monkeypatch.undo()
    tuned.ladders.cache_clear()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tune", *arguments])


def checked(*specs: str) -> list[Any]:
    return [kgen.load(spec).kernel for spec in specs]


def planned(kind: str, n: int, step: Step, address: int = 0, count: int = 1000) -> rows.RowPlan:
    """How rows of n f32 elements are walked with a ladder of one step, by a kernel such as the kind's."""
    x = RowOperandPlace((n,), (1,), 4, address, True, kind != "read", True, 1)
    y = RowOperandPlace((n,), (1,), 4, address, True, False, False, 1)
    reductions = 2 if kind == "again" else 1
    operands = (x,) if kind == "read" else (x, y)
    made = rows.plan((count,), (n,), operands, 0, reductions, kind != "read", 4, limits("sm_90"), True, (step,))
    assert made is not None
    return made


def assert_covers(made: rows.RowPlan, n: int) -> None:
    walk, grid = made.steps[0]
    team = made.threads if walk.team == 0 else walk.team
    chunks = n // walk.vec
    assert made.threads <= walk.threads <= 1024 and made.threads % 32 == 0 and 1 <= walk.blocks <= 32
    assert made.shared <= rows.MAX_SHARED
    if walk.cluster:
        assert 2 <= made.segments <= MAX_CLUSTER and made.segments * made.span >= chunks > (made.segments - 1) * made.span
        assert team * walk.vectors >= made.span
    elif walk.segments:
        assert made.segments * made.span >= chunks
    else:
        assert team * walk.vectors >= chunks
    assert grid * (made.threads // team) >= made.rows


# ------------------------------------------------------------------------------------------------ what is tried


@pytest.mark.parametrize("kind", tuned.KINDS)
def test_candidates_are_few_and_every_one_covers_rows_up_to_its_length(kind: str) -> None:
    for vectors in LENGTHS:
        found = tune.candidates(kind, vectors)
        assert 3 <= len(found) <= 40 and len(set(found)) == len(found) == len({tune.shown(s) for s in found}), (vectors, len(found))
        general = planned(kind, 4 * vectors, Step(1, 32, 0, 1, 1, "loop"))
        plans = []
        for step in found:
            assert tuned.sound(kind, step), step
            made = planned(kind, 4 * vectors, step)
            plans.append(made)
            walk = made.steps[0][0]
            assert walk.blocks * made.threads <= 2048
            where = "cluster" if walk.cluster else "loop" if walk.segments or not walk.keep else {1: "registers", 2: "shared"}[walk.keep]
            assert where == step.where and made.n == 4 * vectors, step
            for n in {4 * vectors, 2 * vectors + 4, 4 * 33}:  # it stands for shorter rows too, and for rows that begin anywhere
                assert_covers(planned(kind, n, step), n)
                assert_covers(planned(kind, n + 1, step, 4), n + 1) if n < 4 * vectors else None
        assert sum(p == general for p in plans) < len(plans)
        assert not {s.where for s in tune.candidates(kind, vectors, clusters=False)} & {"cluster"}


def test_the_shipped_steps_are_sound_and_cover_their_rows() -> None:
    for ladder in tuned.SHIPPED.values():
        for kind, steps in ladder.items():
            for step in steps:
                assert tuned.sound(kind, step), step
                assert_covers(planned(kind, 4 * step.longest, step), 4 * step.longest)


def test_a_step_is_tried_where_rules_stand_before_the_ladder() -> None:
    """Long rows that share parameters would follow one another, and those of odd lengths have steps of their own (here of two dims, as
    others follow one another, too), also where one reading reduces them."""
    (unit,) = backend("cuda").layout(kgen.load("layernorm").kernel)
    for n, threads, many in ((32_768, 1024, (1000,)), (16_001, 512, (10, 100))):
        step = Step(n // 4, threads, 0, 8, 1, "shared")
        strides = (101 * n, n)[-len(many):]
        given = [(0, *(((0,) * len(many), (1,)) if o.dims == ("N",) else (strides, (1,))), 4) for o in unit.operands]
        asked = unit, many, (n,), given, 0, "sm_90"
        assert nvrtc.row_plan(*asked).under.threads == 256 if n == 32_768 else nvrtc.row_plan(*asked).steps[0][0].cluster
        with tune.forced("again", (step,)) as plans:
            assert nvrtc.row_plan(*asked) is plans[0] and plans[0].steps[0][0].threads == threads
    (unit,) = backend("cuda").layout(kgen.load("softmax").kernel)
    asked = unit, (1000,), (10_001,), [(0, (10_001,), (1,), 2) for _ in unit.operands], 0, "sm_90"
    assert nvrtc.row_plan(*asked).steps[0][0].keep == 2
    with tune.forced("once", (Step(2048, 256, 0, 8, 4, "registers"),)) as plans:
        assert nvrtc.row_plan(*asked) is plans[0] and plans[0].steps[0][0].keep == 1


def test_a_step_is_tried_where_dear_elements_and_rows_of_several_dims_have_their_own() -> None:
    """Both stand before the ladder, and are left out."""
    (dear,) = backend("cuda").layout(kgen.load("temperature_softmax").kernel)
    asked = dear, (1000,), (16_384,), [(0, (16_384,), (1,), 2) for _ in dear.operands], 0, "sm_90"
    assert nvrtc.row_plan(*asked).threads == 512
    with tune.forced("once", (Step(2048, 256, 0, 8, 4, "registers"),)) as plans:
        assert nvrtc.row_plan(*asked) is plans[0] and plans[0].threads == 256
    (several,) = backend("cuda").layout(kgen.load("groupnorm").kernel)
    inner = {"x": (3136, 1), "y": (3136, 1)}
    given = [(0, (8 * 3136, 8 * 3136) if o.name in inner else (0, 8), inner.get(o.name, (1, 0)), 2) for o in several.operands]
    asked = several, (4, 32), (8, 3136), given, 0, "sm_90"
    assert nvrtc.row_plan(*asked).threads == 416
    with tune.forced("again", (Step(3584, 256, 0, 14, 2, "shared"),)) as plans:
        assert nvrtc.row_plan(*asked) is plans[0] and plans[0].threads == 224


def test_bundled_specs_stand_for_the_kinds() -> None:
    for kind, specs in tune.SPECS.items():
        assert all(list(tune.kinds(k)) == [kind] for k in checked(*specs))
    assert not tune.kinds(checked("gelu")[0])


# ------------------------------------------------------------------------------------------------ what wins


def cell(
    shares: dict[Step | None, float], present: Step | None, kernel: str = "softmax", kind: str = "once", vectors: int = 512
) -> tune.Cell:
    return tune.Cell(kind, kernel, "f32", 4 * vectors, vectors, present, shares)


A, B, C = (Step(512, threads, 0, 4, 2, "registers") for threads in (128, 256, 512))


def test_the_geometric_mean_over_kernels_and_dtypes_decides() -> None:
    first, second = cell({A: 0.5, B: 0.9, C: 0.7}, A), cell({A: 0.5, B: 0.4, C: 0.7}, A, "rmsnorm")
    assert first.best == B
    assert tune.winners([first, second]) == {"once": {512: C}}
    assert tune.winners([first, cell({A: 0.5, B: 0.8}, A, "rmsnorm")]) == {"once": {512: B}}, "of those that ran everywhere"
    apart = tune.winners([first, cell({A: 0.5, B: 0.4}, A, kind="again"), cell({A: 0.1, C: 0.2}, None, vectors=2048)])
    assert apart == {"once": {512: B, 2048: C}, "again": {512: A}}


def test_the_present_step_stays_within_the_noise() -> None:
    assert tune.winners([cell({A: 0.9, B: 0.905}, A)]) == {"once": {512: A}}
    assert tune.winners([cell({A: 0.9, B: 0.92}, A)]) == {"once": {512: B}}
    assert tune.winners([cell({None: 0.9, B: 0.8}, None)]) == {"once": {512: B}}, "longer rows' step would stand there"
    assert tune.winners([cell({None: 0.9}, None)]) == {}


def test_a_search_finds_the_fast_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a device: nothing is compiled or launched, and the timer is told which step is fast."""
    launched: list[str] = []
    fast, wrong, failing = (
        Step(512, *rest) for rest in ((128, 0, 4, 16, "registers"), (512, 0, 1, 4, "registers"), (64, 0, 8, 16, "registers"))
    )
    present = next(s for s in tuned.ladders("sm_90")["once"] if s.longest >= 512)._replace(longest=512)
    assert {fast, wrong, failing, present} <= {present, *tune.candidates("once", 512)}

    def launch(self: nvrtc.Launcher, call: Any) -> None:
        if "key" in call.ready:
            return
        call.ready["key"] = step = tuned.ladders("sm_90")["once"][0]
        if step == failing:
            raise RuntimeError("no such luck")
        call.results["y"].fill_(2.0 if step == wrong else 1.0)

    def spreads(runs: dict[str, Any], device: str) -> dict[str, timing.Spread]:
        ((name, go),) = runs.items()
        go()
        launched.append(name)
        ms = {timing.COPY: 1.0, tune.shown(fast): 1.25}.get(name, 2.0)
        return {name: (ms, ms, ms)}

    monkeypatch.setattr(nvrtc.Launcher, "__call__", launch)
    monkeypatch.setattr(nvrtc.CudaLauncher, "function", lambda self, expression, arch: None)
    monkeypatch.setattr(timing, "spreads_ms", spreads)
    seen: list[tune.Cell] = []
    told: list[str] = []
    warned: list[str] = []
    cells = tune.tune(
        checked("softmax"), ["f32"], [64, 2048], 8192, "cpu", 0, "sm_90", seen.append,
        lambda done, total, text: told.append(f"{done} {total} {text}"), warned.append, pytest.fail,
    )  # fmt: skip
    assert cells == seen and len(cells) == 1
    found = cells[0]
    assert (found.vectors, found.present, found.best, found.shares[found.best]) == (512, present, fast, 0.8)
    assert wrong not in found.shares and failing not in found.shares and found.shares[present] == 0.5
    assert [w.split(",")[0] for w in warned] == ["left out softmax f32 in rows of 64: a warp or less takes such a row"] + [
        f"left out {tune.shown(s)}".split(",")[0] for s in tune.candidates("once", 512) if s in (wrong, failing)
    ]
    assert any("its results are others" in w for w in warned) and any("no such luck" in w for w in warned)
    assert any("compiling" in t for t in told) and told[0].startswith("0 2 softmax")
    assert len(found.cells()) == len(tune.HEADS) and found.cells()[5] == tune.shown(fast)
    path = tune.save("sm_90", cells)
    assert path.parent == tmp_path
    assert next(s for s in tuned.ladders("sm_90")["once"] if s.longest >= 300) == fast
    assert tuned.ladders("sm_90")["again"] == tuned.SHIPPED["sm_90"]["again"]


def test_what_a_table_cannot_change_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operands held in registers: the general rule shares such rows out."""
    warned: list[str] = []
    kernel = kgen.loads("f(x: T[..., N], y: T[..., N]) -> z: T[..., N]\n\nz = x * y / sum[N](x * y)").kernel
    found = tune.tune([kernel], ["f32"], [2048], 8192, "cpu", 0, "sm_90", pytest.fail, lambda *_: None, warned.append, pytest.fail)
    assert not found and "the general rule decides" in warned[0]


def test_what_has_no_rows_or_writes_in_place_cannot_be_tuned() -> None:
    for spec, said in (("gelu", "no pass over rows"), ("adamw", "in place")):
        with pytest.raises(KgenError, match=said):
            tune.tune(checked(spec), ["f32"], [64], 64, "cpu", 0, "sm_90", print, print, print, print)


def test_results_that_differ_by_more_than_their_order_of_adding_are_others() -> None:
    y = torch.randn(1000)
    assert tune.close(y * (1 + 2e-6), y) and not tune.close(y * (1 + 2e-4), y)
    assert tune.close(y.bfloat16(), y.bfloat16()) and not tune.close(y.bfloat16() * 1.05, y.bfloat16())
    assert not tune.close(torch.zeros(1000), y) and not tune.close(torch.full((1000,), torch.nan), y)
    assert not tune.close(torch.tensor([1]), torch.tensor([2]))


# ------------------------------------------------------------------------------------------------ the table


def test_a_table_comes_back_as_it_was_written(tmp_path: Path) -> None:
    shipped = tuned.ladders("sm_90")["once"]
    new = Step(700, 128, 0, 8, 4, "registers")
    tune.save("sm_90", [cell({A: 0.1, B: 0.9}, A), cell({new: 0.9}, None, vectors=700)])
    found = tuned.ladders("sm_90")
    assert found["once"] == tuple(sorted([*(s for s in shipped if s.longest != 512), B, new]))
    tune.save("sm_90", [cell({C._replace(longest=256): 1.0}, None, kind="read", vectors=256)])
    assert tuned.ladders("sm_90")["once"] == found["once"], "what was kept before stays"
    assert C._replace(longest=256) in tuned.ladders("sm_90")["read"]
    assert set(json.loads((tmp_path / "sm_90.json").read_text())) == {"once", "read"}, "what is shipped is not written down"
    tune.save("sm_12", [cell({A: 0.1}, None)])
    assert tuned.ladders("sm_12") == {"once": (A,)}
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["sm_12.json", "sm_90.json"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KGEN_CONFIG_DIR", str(tmp_path / "file"))
    with pytest.raises(KgenError, match="cannot write"):
        tune.save("sm_90", [cell({A: 0.1}, None)])


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "null", '{"once": 3, "other": []}', '{"once": []}', "[" * 100_000, '{"once": {"a": 1}}', "\x00\xff"]
)
def test_garbage_is_as_no_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "sm_90.json").write_bytes(text.encode("latin-1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuned.ladders("sm_90") == tuned.SHIPPED["sm_90"]


WRONG: list[Any] = [
    ["512", 128, 0, 4, 8, "registers"],
    [512.0, 128, 0, 4, 8, "registers"],
    [0, 128, 0, 4, 8, "registers"],
    [512, 128, 0, 4, 8],
    [512, 128, 0, 4, 8, "memory"],
    [512, 128, 0, 4, 8, None],
    [512, 100, 0, 4, 8, "registers"],
    [512, 0, 0, 4, 8, "registers"],
    [512, 2048, 0, 4, 1, "registers"],
    [512, 128, 48, 4, 8, "registers"],
    [512, 128, -1, 4, 8, "registers"],
    [512, 128, 0, 0, 8, "registers"],
    [512, 128, 0, 17, 8, "registers"],
    [512, 128, 0, 4, 0, "registers"],
    [512, 128, 0, 4, 33, "registers"],
    [512, 1024, 0, 4, 8, "registers"],
    [512, 128, 32, 4, 8, "registers"],  # a warp has no room for it
    [20000, 1024, 0, 16, 1, "registers"],  # nor has a block
    [5000, 256, 0, 8, 1, "shared"],
    [512, 128, 0, 4, 8, "loop"],
    [512, 128, True, 4, 8, "loop"],
    [5000, 768, 768, 8, 2, "cluster"],
    "a step",
    None,
    {},
]


def test_steps_that_no_launch_could_follow_are_left_out_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "sm_90.json").write_text(json.dumps({"once": [*WRONG, A], "again": WRONG, "read": [[64, 128, 128, 4, 2, "cluster"]]}))
    with pytest.warns(UserWarning, match=f"leaves out {2 * len(WRONG) + 1} of the steps") as found:
        assert tuned.ladders("sm_90") == {**tuned.SHIPPED["sm_90"], "once": (A,)}
        tuned.ladders("sm_90")
    assert len(found) == 1


# ------------------------------------------------------------------------------------------------ the command


def test_without_a_gpu_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = run("--save")
    assert done.exit_code == 1 and "times kernels on a GPU: there is no CUDA device" in done.output and "Traceback" not in done.output


@pytest.mark.parametrize("given", [("--dtype", "i32"), ("--dtype", ","), ("--row", "many"), ("--elements", "0")])
def test_a_wrong_command_line_is_refused(given: tuple[str, ...]) -> None:
    assert run(*given).exit_code == 2


def test_the_command_prints_a_table_and_keeps_winners_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found(
        kernels: Any, dtypes: Any, lengths: Any, elements: int, device: str, index: int, arch: str, add: Any, tell: Any, *_: Any
    ) -> Any:
        assert [k.name for k in kernels] == ["softmax", "rmsnorm", "layernorm", "logsumexp", "cross_entropy_dx"] and dtypes == ["bf16"] and lengths == [2048]
        tell(0, 1, "softmax")
        cells = [cell({A: 0.5, B: 0.9}, A)]
        add(cells[0])
        return cells

    monkeypatch.setattr("kgen.testing.checks.targets", lambda chosen: ([chosen], {}))
    monkeypatch.setattr("kgen.runtime.driver.arch_of", lambda index: "sm_90")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(tune, "tune", found)
    done = run("--dtype", "bf16", "--row", "2048")
    assert done.exit_code == 0 and not done.stderr and not list(tmp_path.iterdir())
    heads, line = done.stdout.splitlines()
    assert line.split() == "once softmax f32 2,048 512 registers 256x4, 2 blocks 0.900 registers 128x4, 2 blocks 0.500".split()
    assert heads.index("best step") + len("best step") == line.index("2 blocks") + len("2 blocks")
    done = run("--dtype", "bf16", "--row", "2048", "--save")
    assert (
        done.exit_code == 0
        and done.stdout.splitlines() == [heads, line]
        and f"wrote {tmp_path}/sm_90.json" in done.stderr.replace("\n", "")
    )
    assert B in tuned.ladders("sm_90")["once"]


def test_the_command_stands_among_the_others() -> None:
    said = CliRunner().invoke(main, ["--help"]).output
    assert said.index("\n  bench") < said.index("\n  tune") < said.index("\n  fmt")


@pytest.mark.gpu
def test_a_gpu_is_tuned(tmp_path: Path) -> None:
    done = run("softmax", "--dtype", "bf16", "--row", "2048", "--elements", "2^20", "--save")
    assert done.exit_code == 0, done.output
    heads, line, *_ = done.stdout.splitlines()
    assert heads.split()[:3] == ["kind", "kernel", "dtype"] and line.split()[:5] == ["once", "softmax", "bf16", "2,048", "256"]
    assert "left out" not in done.stderr and "wrote " in done.stderr
    (kept,) = tmp_path.glob("sm_*.json")
    x = torch.randn(100, 2048, device="cuda", dtype=torch.bfloat16)
    assert [s for s in tuned.ladders(kept.stem)["once"] if s.longest == 256]
    torch.testing.assert_close(kgen.load("softmax")(x, target="cuda"), torch.softmax(x, -1))
