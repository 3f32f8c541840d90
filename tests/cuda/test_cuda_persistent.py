"""Rows that follow one another because they share parameters of columns: who takes them, and what their kernels compute, run on the CPU
by one block in a cluster's place."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import backend, devices, round_launches  # noqa: E402
from kgen.backends.round_launches import Round  # noqa: E402
from kgen.ir import Broken  # noqa: E402
from kgen.runtime import driver, nvrtc, persistent  # noqa: E402
from kgen.runtime.arguments import bind  # noqa: E402
from kgen.runtime.fast import cuda_lesson  # noqa: E402
from kgen.runtime.rounds import RoundsPlan  # noqa: E402
from kgen.runtime.rows import RowOperandPlace  # noqa: E402
from kgen.runtime.verified import verify_rounds  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated, for_any_rows  # noqa: E402
from tests.gpu import test_gpu_persistent as on_gpu  # noqa: E402
from tests.runtime.plans import ARCHES, draw  # noqa: E402

NORM = """norm(x: T[..., N], w: T[N], b: T[N], s: f32[...]) -> (y: T[..., N], mu: f32[...])

mu = f32(mean[N](x))
y = (x - mu) * rsqrt(mean[N]((x - mu)^2) + s^2) * w + b
"""


def planned(text: str, n: int, dtype_bytes: int, many: int, arch: str) -> Any:
    """The plan of a kernel's only pass for dense rows."""
    (unit,) = backend("cuda").layout(kgen.loads(text).kernel)
    strides = [((0, 1) if o.dims == ("N",) else (n, 1) if o.element else (1, 0)) for o in unit.operands]
    sizes = [0 if o.role == "index" else dtype_bytes if o.element else 4 for o in unit.operands]
    operands = [(0, (row,), (step,), size) for size, (row, step) in zip(sizes, strides, strict=True)]
    return nvrtc.row_plan(unit, (many,), (n,), operands, 0, arch)


LAYERNORM = "a(x: T[..., N], w: T[N], b: T[N]) -> y: T[..., N]\n\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2)) * w + b\n"
SOFTENED = "a(dy: T[..., N], x: T[..., N], s: f32[...]) -> dx: T[..., N]\n\ne = exp(x) / s\ndx = e * (dy - sum[N](dy * e))\n"
RMSNORM = "a(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = x * rsqrt(mean[N](x^2)) * w\n"
ADDED = "a(x: T[..., N], r: T[..., N], w: T[N], b: T[N]) -> y: T[..., N]\n\nh = x + r\nc = h - mean[N](h)\ny = c * rsqrt(mean[N](c^2)) * w + b\n"
PLACED = "a(x: T[..., N], w: T[N], b: T[N]) -> y: T[..., N]\n\nc = x - mean[N](x)\ny = c * rsqrt(mean[N](c^2)) * w + b + index[N]\n"


@pytest.mark.parametrize("text, n, size, want", [
    (LAYERNORM, 32_768, 2, None), (LAYERNORM, 65_536, 2, (128, 8, 8, 2, 4)), (LAYERNORM, 262_144, 2, (512, 8, 8, 1, 2)),
    (LAYERNORM, 200_000, 4, (512, 16, 8, 1, 2)),  # 13 blocks have room for its vectors, and leave 41 multiprocessors idle
    (LAYERNORM, 32_768, 4, (256, 4, 8, 1, 3)), (LAYERNORM, 65_536, 4, (256, 8, 8, 1, 4)), (LAYERNORM, 262_144, 4, (512, 16, 8, 1, 2)),
    (LAYERNORM, 257, 2, None), (LAYERNORM, 601, 2, None), (LAYERNORM, 600, 2, None),
    (LAYERNORM, 1_001, 2, (32, 1, 4, 16, 3)), (LAYERNORM, 5_001, 2, (64, 1, 10, 6, 3)), (LAYERNORM, 5_001, 4, (256, 1, 5, 3, 3)),
    (LAYERNORM, 20_001, 2, (128, 3, 8, 3, 2)), (LAYERNORM, 60_001, 2, (128, 8, 8, 3, 2)), (LAYERNORM, 10_001, 4, (128, 3, 8, 4, 3)),
    (LAYERNORM, 5_000, 2, None), (LAYERNORM, 3_001, 4, None), (RMSNORM, 5_001, 2, None), (ADDED, 5_001, 2, None), (PLACED, 5_001, 2, None),
    (RMSNORM, 65_536, 2, None), (RMSNORM, 262_144, 2, (256, 16, 8, 1, 4)),
    (RMSNORM, 65_536, 4, (512, 8, 4, 1, 4)), (RMSNORM, 262_144, 4, (1024, 16, 4, 1, 2)), (RMSNORM, 262_145, 4, None),
])  # fmt: skip
def test_rows_are_taken_as_measured(text: str, n: int, size: int, want: tuple[int, ...] | None) -> None:
    """Threads, blocks of a cluster, vectors of a thread, blocks on a multiprocessor and rows on their way; none where each row has its own."""
    plan = planned(text, n, size, 1000, "sm_90")
    if want is None:
        assert not isinstance(plan, RoundsPlan)
        return
    ((walk, grid, threads, _, cluster),) = plan.launches
    assert (threads, cluster, walk.vectors, walk.blocks, walk.stages) == want
    assert grid == plan.groups * cluster <= 132 * walk.blocks
    alone = planned(text, n, size, 1, "sm_90").launches[0][0]
    assert alone._replace(wide=walk.wide) == walk  # parameters may lie as that row does
    assert not isinstance(planned(text, n, size, 1000, "sm_80"), RoundsPlan)  # which has no clusters


def test_the_tests_on_a_gpu_take_every_measured_cluster() -> None:
    """But the one for rows of up to 10,240 elements of which several operands move."""
    measured = [*round_launches.PERSISTENT.items(), *round_launches.PERSISTENT_EDGES.items()]
    clusters = [(r, 8 if narrow else 4) for (narrow, _), rules in measured for r in rules if r.where == "cluster"]
    wanted = {(r.threads, r.blocks, r.elements // vec, vec) for r, vec in clusters}
    found = set()
    for name, n, dtype in ((name, n, dtype) for name in ("norm", "rms") for n in on_gpu.LENGTHS for dtype in on_gpu.DTYPES.values()):
        kernel = kgen.loads(on_gpu.SPECS[name]).kernel
        args = [torch.empty((n,) if p.dims == ("N",) else (200, n) if "N" in p.dims else (200,), device="meta",
                            dtype=dtype if p.dtype == "T" else torch.float32) for p in kernel.params]  # fmt: skip
        for expression in nvrtc.expressions(kernel, bind(kernel, args, {}, None), "sm_90"):
            walk = expression.split("Walk<")[1].split(", ")
            if "Rounds<" in expression:
                found.add((int(walk[0]), int(walk[1]), int(walk[4]), int(walk[5])))
    assert wanted - found == {(128, 5, 5, 8)}, found


def test_rows_that_one_block_holds_alone_go_by_clusters_beside_parameters() -> None:
    softmax = "a(x: T[..., N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e)\n"
    for n in (50_256, 50_257):
        assert [planned(text, n, 2, 1000, "sm_90").launches[0][4] for text in (softmax, RMSNORM)] == [1, 4]


def test_a_cluster_of_four_leaves_no_one_waiting() -> None:
    """As many as an H200 has at once (cuOccupancyMaxActiveClusters)."""
    found = [devices.resident("sm_90", blocks, cluster) for blocks, cluster in ((1, 4), (2, 4), (3, 4), (1, 8), (2, 8), (1, 16))]
    assert found == [30, 62, 92, 15, 30, 7]


def test_no_row_of_its_own_way_follows() -> None:
    for text in (
        "a(x: T[..., N]) -> y: T[..., N]\n\ny = x / sum[N](x)\n",  # shares nothing
        "a(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = x * sum[N](x * w) * w\n",  # reads the shared twice
    ):
        assert not isinstance(planned(text, 65_536, 4, 1000, "sm_90"), RoundsPlan), text


class Driver:
    """One that says what it has room for, or `refuses` to."""

    def __init__(self, refuses: int):
        self.refuses, self.asked = refuses, list[tuple[int, ...]]()

    def cuOccupancyMaxActiveClusters(self, found: Any, kernel: int, config: Any) -> int:
        c = config._obj
        self.asked.append((kernel, c.grid[0], c.block[0], c.shared, c.attributes[0].value[0], c.count))
        found._obj.value = 15
        return self.refuses

    def __getattr__(self, name: str) -> Any:
        return lambda *_: 0


@pytest.mark.parametrize("refuses", [0, 1])
def test_a_device_is_asked_once_for_its_room(monkeypatch, refuses: int) -> None:
    """Where it does not say, the table's number holds."""
    device = Driver(refuses)
    for name, given in (("_driver", lambda: device), ("context", lambda index: 5), ("_device", lambda index: index)):
        monkeypatch.setattr(driver, name, given)
    function = driver.Function(b"", "kernel")
    function.kernel = 7
    plan = planned(LAYERNORM, 65_536, 2, 1000, "sm_90")
    _, grid, threads, shared, cluster = plan.launches[0]
    for _ in range(2):
        there = nvrtc.room(function, 0, threads, shared, cluster)
        assert there == (0 if refuses else 15)
        ((walk, fewer, *rest),) = persistent.fitted(plan, there).launches
        assert (fewer, rest) == (grid if refuses else 15 * cluster, [threads, shared, cluster]) and walk == plan.launches[0][0]
    assert device.asked == [(7, cluster, threads, shared, cluster, 1)]


class Noted:
    """A loaded kernel that launches nothing."""

    kernel, entry = 1, "entry"

    def __call__(self, *launch: Any) -> None:
        pass


def test_no_other_process_repeats_a_launch_of_this_device(monkeypatch) -> None:
    """How many clusters there are follows from the chip, which another process's need not be; of 1,000 elements no row follows another."""
    kernel = kgen.loads(LAYERNORM).kernel
    for n, repeats in ((65_536, False), (1000, True)):
        launcher = nvrtc.Launcher(kernel)
        launcher.run.arch = "sm_90"
        monkeypatch.setattr(launcher.run, "function", lambda *_: Noted())
        call = bind(kernel, [torch.zeros(2, n).bfloat16(), torch.zeros(n).bfloat16(), torch.zeros(n).bfloat16()], {}, None)
        launcher.launch(call, 0, 0)
        plan = SimpleNamespace(index={"x": 0, "w": 1, "b": 2, "y": 3}, tensors=3, makes=(None,), sizes=call.sizes, batch=call.batch)
        taught = cuda_lesson(launcher, plan, call)
        assert taught is not None and taught.binaries is not None
        assert taught.binaries() == (["entry"] if repeats else None)


def one_block(*asked: Any, stays: bool = False) -> Any:
    """The plan of an sm_90, with a block of as many threads where a cluster is; whether it `stays` one, of one block."""
    found = plan_of(*asked[:-1], "sm_90")
    if found is None:
        return None
    walk, _, threads, shared, cluster = found.launches[0]
    walk = walk._replace(threads=threads * cluster, team=threads * cluster, cluster=stays)
    under = replace(found.under, steps=((walk, found.groups),), segments=1, span=walk.threads * walk.vectors, threads=walk.threads)
    return replace(found, under=under, launches=((walk, found.groups, walk.threads, shared * cluster, 1),))


plan_of = persistent.plan


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_rows_one_after_another_stay_within_their_bounds(tmp_path, monkeypatch) -> None:
    """Each row once, by two blocks, with what is its own; of any dims the same bits, and alone."""
    torch.manual_seed(0)
    rule = Round(32, 32, 32, 1, 3, "cluster", 512)
    monkeypatch.setattr(round_launches, "PERSISTENT", {key: (Round(0, 0, 0, 0, 0, "none", 64), rule) for key in round_launches.PERSISTENT})
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 2)
    monkeypatch.setattr(persistent, "plan", one_block)
    monkeypatch.setattr(persistent, "cached", one_block)
    given = [torch.randn(7, 512) + 1, torch.randn(1, 512), torch.randn(2, 3, 480), (torch.randn(9, 2, 520) + 1)[:, 0, :512]]
    given += [torch.randn(5, 1024).bfloat16(), torch.randn(3, 4, 512)[:, :2]]
    calls = [(x, torch.randn(x.shape[-1]).to(x), torch.randn(x.shape[-1]).to(x), torch.rand(x.shape[:-1])) for x in given]
    kernel, checked = Emulated(NORM, tmp_path, *calls), kgen.loads(NORM).kernel
    assert any("Rounds<" in e for e in kernel.expressions)
    found = [kernel(*call) for call in calls]
    for args, made in zip(calls, found, strict=True):
        wanted = Analysis(checked, dict(zip("xwbs", args, strict=True)), "cuda").results()
        for r, want in zip(checked.results, wanted, strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, args[0].shape)
    x, w, b, s = calls[0]
    for k in range(7):
        assert torch.equal(kernel(x[k : k + 1], w, b, s[k : k + 1])["y"][0], found[0]["y"][k])
    walks = for_any_rows(monkeypatch, persistent)
    own = [call for call in calls if call[0].dtype == torch.float32]
    (tmp_path / "any").mkdir()
    files = Emulated(NORM, tmp_path / "any", *own)
    for args in own:
        want = next(made for call, made in zip(calls, found, strict=True) if call is args)
        assert all(torch.equal(value, want[name]) for name, value in files(*args).items()), args[0].shape
    assert {w.row_rank for w in walks} == {1, 2} and {w.stages for w in walks} == {3}


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_rows_that_begin_anywhere_follow_those_that_begin_alike(tmp_path, monkeypatch) -> None:
    """Rows of odd length: each once, by eight blocks of 16-bit elements or four, with parameters put together once; also alone.  Of 16 bits
    a block takes a row by itself."""
    torch.manual_seed(1)
    rules = {True: Round(32, 32, 32, 1, 3, "block", 128), False: Round(32, 32, 32, 1, 3, "cluster", 512, every=True)}
    edges = {key: (Round(0, 0, 0, 0, 0, "none", 16), rules[key[0]]) for key in round_launches.PERSISTENT_EDGES}
    monkeypatch.setattr(round_launches, "PERSISTENT_EDGES", edges)
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 9)
    monkeypatch.setattr(persistent, "plan", one_block)
    monkeypatch.setattr(persistent, "cached", one_block)
    given = [torch.randn(21, 515) + 1, torch.randn(3, 7, 513), (torch.randn(13, 1, 518) + 1)[:, 0, :517], torch.randn(1, 514)]
    given += [torch.randn(37, 1001).bfloat16(), torch.randn(9, 1003).bfloat16()]
    calls = [(x, torch.randn(x.shape[-1]).to(x), torch.randn(x.shape[-1] + 1).to(x)[1:], torch.rand(x.shape[:-1])) for x in given]
    kernel, checked = Emulated(NORM, tmp_path, *calls), kgen.loads(NORM).kernel
    assert all("Rounds<" in e for e in kernel.expressions), kernel.expressions
    found = [kernel(*call) for call in calls]
    for args, made in zip(calls, found, strict=True):
        wanted = Analysis(checked, dict(zip("xwbs", args, strict=True)), "cuda").results()
        for r, want in zip(checked.results, wanted, strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, args[0].shape)
    for folder in ("0", "4", "any"):
        (tmp_path / folder).mkdir()
    for k in (0, 4):
        x, w, b, s = calls[k]
        rows = [(x[r : r + 1], w, b, s[r : r + 1]) for r in range(5)]  # where they lie
        alone = Emulated(NORM, tmp_path / str(k), *rows)
        for r, row in enumerate(rows):
            assert torch.equal(alone(*row)["y"][0], found[k]["y"][r]), r
    walks = for_any_rows(monkeypatch, persistent)
    files = Emulated(NORM, tmp_path / "any", calls[0], calls[4])
    for k in (0, 4):
        assert all(torch.equal(value, found[k][name]) for name, value in files(*calls[k]).items())
    assert {w.row_rank for w in walks} == {1} and all(w.edges for w in walks)


def test_drawn_plans_hold() -> None:
    seen = 0
    for seed in range(1500):
        rng = random.Random(seed)
        row_sizes, _, operands, gathers, reductions, _, words, *_ = draw(rng)
        n = rng.choice((16, 32, 64, 100)) * rng.randrange(64, 4096)
        size, zero = rng.choice((2, 4)), (0,) * len(row_sizes)
        dense = tuple(o.row_strides if o.row_dims else zero for o in operands[:1])
        own = [RowOperandPlace(dense[0], (1,), size, 0, True, True, True, 1)]
        own += [RowOperandPlace(zero, (1,), rng.choice((2, size)), 0, True) for _ in range(rng.randrange(1, 4))]
        own += [RowOperandPlace(dense[0], (1,), size, 0, True, False, False, 1)]
        try:
            found = persistent.plan(row_sizes, (n,), tuple(own), gathers, min(reductions, 9), min(words, 40), rng.choice(ARCHES))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        seen += found is not None
    assert seen > 20, seen


def test_a_plan_that_breaks_a_rule_is_refused() -> None:
    plan = planned(RMSNORM, 262_144, 2, 1000, "sm_90")
    own = [RowOperandPlace((262_144,), (1,), 2, 0, True, True, True, 1), RowOperandPlace((0,), (1,), 2, 0, True)]
    own.append(RowOperandPlace((262_144,), (1,), 2, 0, True, False, False, 1))
    verify_rounds(plan, own, 1000, devices.limits("sm_90"), 0, 0, 0)
    for bad in (replace(plan, every=plan.every + 1), replace(plan, groups=1001, every=1001), replace(plan, launches=())):
        with pytest.raises(Broken):
            verify_rounds(bad, own, 1000, devices.limits("sm_90"), 0, 0, 0)
    with pytest.raises(Broken):
        verify_rounds(plan, own, 200_000, devices.limits("sm_90"), 0, 0, 0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("stages, once", [(2, True), (3, False)])
def test_what_blocks_of_a_cluster_tell_is_each_rows_own(tmp_path, monkeypatch, stages: int, once: bool) -> None:
    """A block that tells itself the parts of its rows: one row, few, more than are on their way; also where a mean and its squares are one
    reading."""
    torch.manual_seed(5)
    rule = Round(64, 64, 32, 1, stages, "cluster", 512, once=once)
    monkeypatch.setattr(round_launches, "PERSISTENT", {key: (Round(0, 0, 0, 0, 0, "none", 64), rule) for key in round_launches.PERSISTENT})
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 1)
    monkeypatch.setattr(persistent, "cached", partial(one_block, stays=True))
    calls = [(torch.randn(many, 512) + torch.arange(many)[:, None], torch.randn(512), torch.randn(512), torch.rand(many)) for many in (1, 2, 13)]
    kernel, checked = Emulated(NORM, tmp_path, *calls), kgen.loads(NORM).kernel
    assert kernel.expressions and all(f"{3 + once}, true, -1, 1, 1, 6, 1, unsigned>, {stages}>" in e for e in kernel.expressions), kernel.expressions
    for args in calls:
        made = kernel(*args)
        wanted = Analysis(checked, dict(zip("xwbs", args, strict=True)), "cuda").results()
        for r, want in zip(checked.results, wanted, strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, args[0].shape)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("text, n, dtype", [
    (RMSNORM, 515, torch.float64),  # an element outside of whole vectors has two words
    ("a(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = x / (max[N](abs(x)) + 1) * w\n", 512, torch.float32),  # of a vector as it lies
    ("a(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ny = softmax[N](x) * w\n", 512, torch.float32),  # of several
    ("a(x: T[..., N], w: T[N]) -> y: f8e4m3[..., N]\n\ny = f8e4m3[saturate](x * rsqrt(mean[N](x^2)) * w)\n", 512, torch.float32),  # to codes
])  # fmt: skip
def test_what_moves_is_read_in_every_way(tmp_path, monkeypatch, text: str, n: int, dtype: Any) -> None:
    """Rows that follow one another in shared memory: by elements of eight bytes at their ends, by vectors that are compared, for their
    magnitudes and for a peak, and by those that codes are made of."""
    torch.manual_seed(8)
    for table in ("PERSISTENT", "PERSISTENT_EDGES"):
        rule = Round(64, 64, 32, 1, 3, "cluster", 512, every=True)
        monkeypatch.setattr(round_launches, table, {key: (rule,) for key in getattr(round_launches, table)})
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 4)
    monkeypatch.setattr(persistent, "cached", partial(one_block, stays=True))
    args = torch.randn(9, n, dtype=dtype), torch.randn(n, dtype=dtype)
    kernel, checked = Emulated(text, tmp_path, args), kgen.loads(text).kernel
    assert kernel.expressions and all("Rounds<" in e for e in kernel.expressions)
    (want,) = Analysis(checked, dict(zip("xw", args, strict=True)), "cuda").results()
    assert bool((kernel(*args)["y"].double() - want.exact).abs().le(want.bound).all())


#: Rows on their way where rows share nothing: what runs has one.
ALONE_STAGES = (1, pytest.param(3, marks=pytest.mark.slow))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("stages", ALONE_STAGES)
def test_rows_that_share_nothing_follow_one_another(tmp_path, monkeypatch, stages: int) -> None:
    """Two operands stay on the chip, and a row has a value of its own, which is sent for as its elements are; with one stage the next row's
    elements take the places of those that the last reading has left."""
    torch.manual_seed(7)
    rule = Round(64, 64, 32, 1, stages, "cluster", 512)
    monkeypatch.setattr(round_launches, "PERSISTENT_ALONE", {key: (Round(0, 0, 0, 0, 0, "none", 64), rule) for key in round_launches.PERSISTENT_ALONE})
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 2)
    for name in ("plan", "cached"):
        monkeypatch.setattr(persistent, name, partial(one_block, stays=True))
    calls = [(torch.randn(many, 512), torch.randn(many, 512), torch.rand(many)) for many in (1, 2, 3, 13)]
    kernel, checked = Emulated(SOFTENED, tmp_path, *calls), kgen.loads(SOFTENED).kernel
    assert kernel.expressions and all(f"3, true, -1, 1, 1, 4, 1, unsigned>, {stages}>" in e for e in kernel.expressions), kernel.expressions
    for args in calls:
        made = kernel(*args)["dx"]
        (want,) = Analysis(checked, dict(zip(("dy", "x", "s"), args, strict=True)), "cuda").results()
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), args[0].shape
    dy, x, s = calls[-1]
    want = kernel(dy, x, s)["dx"]
    placed = dy.clone()
    assert torch.equal(kernel(placed, x, s, out=placed)["dx"], want)
    walks = for_any_rows(monkeypatch, persistent)
    (tmp_path / "any").mkdir()
    apart = torch.randn(13, 2, 2, 512)[:, 1, 1].copy_(x)
    files = Emulated(SOFTENED, tmp_path / "any", (dy, apart, s))
    assert torch.equal(files(dy, apart, s)["dx"], want) and {w.stages for w in walks} == {stages}
