"""Rows and columns in one pass: which programs have one, and what its kernels compute, run on the CPU."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import pipeline  # noqa: E402
from kgen.backends import backend, devices, round_launches  # noqa: E402
from kgen.grad import backward  # noqa: E402
from kgen.ir import Broken  # noqa: E402
from kgen.monoids import Rides  # noqa: E402
from kgen.ops import tree_depth  # noqa: E402
from kgen.runtime import nvrtc, rounds  # noqa: E402
from kgen.runtime.rows import RowOperandPlace  # noqa: E402
from kgen.runtime.verified import verify_rounds  # noqa: E402
from kgen.show import show  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated, for_any_rows  # noqa: E402
from tests.runtime.plans import ARCHES, draw  # noqa: E402

NORM = """norm(x: T[..., N], dy: T[..., N], w: T[N], s: f32[...]) -> (dx: T[..., N], dw: T[N], db: f32[N], most: T[N], some: i64[N], whole: T32[])

r = rsqrt(mean[N](x^2) + s^2)
t = dy * w
dx = t * r - x * r^3 * mean[N](t * x)
dw = sum[...](dy * x * r)
db = sum[...](dy) * 2 + w * index[N]
most = max[...](x - dy)
some = sum[...](x > 0)
whole = sum[..., N](dy * x)
"""
LAYER = """layer(x: T[..., N], dy: T[..., N], w: T[N], s: T32[...]) -> (dx: T[..., N], dw: T[N], db: T[N])

t = dy * w
c = x - s
dx = t - c * sum[N](t * c) - sum[N](t)
dw = sum[...](dy * c)
db = sum[...](dy)
"""


def passes(text: str) -> list[tuple[int, int]]:
    """For each pass what it reduces along its rows and over them."""
    kernel = kgen.loads(text).kernel
    plan = pipeline.merged(kernel, pipeline.usual(kernel), Rides.EVERY)
    return [(sum(len(f.reductions) for f in getattr(p, "phases", ())), len(getattr(p, "columns", ()))) for p in plan.passes]


@pytest.mark.parametrize("header, equations, want", [
    ("x: f32[M, N]) -> y: f32[N]", "y = sum[M](x^2)", [(0, 1)]),
    ("x: f32[M, N], a: f32[N]) -> (d: f32[M, N], s: f32[N])", "d = a * x\ns = sum[M](x * a)", [(0, 1)]),
    ("x: f32[..., N], w: f32[N]) -> (y: f32[..., N], s: f32[N])", "y = x * sum[N](x * w)\ns = sum[...](x) + w", [(1, 1)]),
    ("x: f32[..., N]) -> (y: f32[...], s: f32[N])", "r = sum[N](x)\ny = r\ns = sum[...](x * r)", [(1, 1)]),
    ("t: i64[M], g: f32[M], w: f32[N]) -> (y: f32[M, N], s: f32[N])", "y = g if t == index[N] else 0\ns = sum[M](g * y)", [(0, 1)]),
    ("x: f32[M, N]) -> y: f32[N]", "y = max[M](x) * prod[M](x)", [(2, 0)]),
    ("x: f32[M, N]) -> y: f32[N]", "y = argmax[M](x) * 1.0", [(1, 0)]),  # places do not add up
    ("x: f32[M, N]) -> y: f32[M, N]", "y = x - mean[M](x)", [(1, 0)]),  # a column is read again
    ("x: f32[B, C, S]) -> y: f32[C]", "y = sum[B, S](x)", [(1, 0)]),  # no rows one after another
    ("x: f32[M, N]) -> y: f32[N]", "y = sum[M](x * max[M](x))", [(2, 0)]),  # the columns need columns
    ("x: f32[M, N], w: f32[N]) -> (s: f32[N], t: f32[])", "s = sum[M](x * w)\nt = sum[M, N](x)", [(0, 2), (1, 0)]),  # the columns' sums are left
    ("x: f32[M, N]) -> (s: f32[M], t: f32[])", "s = sum[N](x)\nt = sum[M, N](x)", [(1, 0), (1, 0)]),  # rows' sums are none of columns
    ("x: f32[M, N]) -> (y: f32[M, N], t: f32[])", "y = 2 * x\nt = sum[M, N](x)", [(1, 0)]),
    ("x: f32[M, N], y: f32[N, M]) -> (a: f32[N], b: f32[M])", "a = sum[M](x)\nb = sum[N](y)", [(0, 1), (0, 1)]),  # nothing in common
    ("x: f32[M, N], y: f32[M, N]) -> (a: f32[N], b: f32[M, N])", "a = sum[M](x)\nb = y * sum[N](y)", [(0, 1), (1, 0)]),
    ("x: f32[M, N]) -> (a: f32[N], b: f32[M, N])", "a = sum[M](x)\nb = x * sum[N](x * a)", [(0, 1), (1, 0)]),  # the rows need the columns
    ("x: f32[M, N]) -> " + f"({', '.join(f's{k}: f32[N]' for k in range(6))})", "\n".join(f"s{k} = sum[M](x^{k + 2})" for k in range(6)), [(6, 0)]),
])  # fmt: skip
def test_what_is_read_once(header: str, equations: str, want: list[tuple[int, int]]) -> None:
    assert passes(f"f({header}\n\n{equations}\n") == want


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "add_rmsnorm", "scale_shift_chain", "bias_gelu"])
def test_a_backward_reads_its_operands_once(name: str) -> None:
    kernel = backward(kgen.load(name).kernel).kernel
    plan = pipeline.merged(kernel, pipeline.usual(kernel), Rides.EVERY)
    assert len(plan.passes) == 1 and not plan.workspaces


def test_show_has_the_passes_that_run() -> None:
    kernel = backward(kgen.load("rmsnorm").kernel).kernel
    cuda, cpp = (show(kernel, "schedule", target, pipeline.usual(kernel)) for target in ("cuda", "cpp"))
    assert cuda.count("pass ") == 1 and "over all rows: sum[...]" in cuda and "8 bytes read, 4 written" in cuda
    assert cpp.count("pass ") == 2 and "16 bytes read, 4 written" in cpp


def random_rows() -> list[tuple]:
    """Calls of NORM with rows of all kinds."""
    torch.manual_seed(0)
    shapes = [(7, 8), (300, 12), (40, 128), (9, 1000), (5, 4096), (3, 37), (2, 20_000), (9000, 4), (2, 3, 50)]
    given = [tuple(torch.randn(shape) for _ in range(2)) for shape in shapes]
    given += [tuple(torch.randn(n, m).T for _ in range(2)) for m, n in ((50, 33), (70, 300))]
    given += [tuple(torch.randn(6, 65)[:, 1:] for _ in range(2)), tuple(torch.randn(6, 64).double() for _ in range(2))]
    given += [(torch.randn(6, 64), torch.randn(64).expand(6, 64))]
    return [(x, dy, torch.randn(x.shape[-1:]).to(x), torch.rand(x.shape[:-1])) for x, dy in given]


def laid_out_rows() -> list[tuple]:
    """Calls with rows without gaps and with them, whose operands begin alike and otherwise, that lie apart or have several dims."""
    torch.manual_seed(4)
    given = [tuple(torch.randn(shape) for _ in range(2)) for shape in ((7, 8), (300, 12), (9, 1000), (5, 4096), (2, 20_000), (2, 3, 50))]
    given += [tuple(torch.randn(n, m).T for _ in range(2)) for m, n in ((3, 33), (70, 300))]
    given += [tuple(torch.randn(4, 2, 3, 700).transpose(0, 1)[..., :k] for k in (600, 600)), (torch.randn(6, 72)[:, 8:], torch.randn(6, 65)[:, 1:])]
    return [(x, dy, torch.randn(x.shape[-1]), torch.rand(x.shape[:-1])) for x, dy in given]


@pytest.fixture(scope="module")
def norm(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    """NORM as the runtime builds it for both kinds of calls."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return Emulated(NORM, tmp_path_factory.mktemp("norm"), *random_rows(), *laid_out_rows())


def test_rows_of_all_kinds_stay_within_their_bounds(norm: Emulated) -> None:
    """Teams of a few lanes to a block, several rounds, several launches; rows that lie apart, begin anywhere, or are none."""
    are_within_bounds(norm, NORM, random_rows())


def test_rounds_of_any_rows_give_the_bits_of_the_runtimes(norm: Emulated, tmp_path, monkeypatch) -> None:
    calls = laid_out_rows()
    found = [norm(*call) for call in calls]
    walks = for_any_rows(monkeypatch, rounds)
    files = Emulated(NORM, tmp_path, *calls)
    for call, want in zip(calls, found, strict=True):
        got = files(*call)
        assert all(torch.equal(got[name], want[name]) for name in want), call[0].shape
    assert {w.team == 0 for w in walks} == {w.across for w in walks} == {w.segments for w in walks} == {w.row_rank > 1 for w in walks} == {True, False}


def hold_within_bounds(folder, calls: list[tuple], text: str = NORM) -> None:
    """The results of calls, run on the CPU, against float64."""
    are_within_bounds(Emulated(text, folder, *calls), text, calls)


def are_within_bounds(kernel: Emulated, text: str, calls: list[tuple]) -> None:
    """The same of a kernel that is built."""
    checked = kgen.loads(text).kernel
    for args in calls:
        found = kernel(*args)
        wanted = Analysis(checked, dict(zip((p.name for p in checked.params), args, strict=True)), "cuda").results()
        for r, want in zip(checked.results, wanted, strict=True):
            got = found[r.name].double()
            assert bool(((got - want.exact).abs().le(want.bound) | (got == want.exact)).all()), (r.name, args[0].shape)
            assert bool(want.bound.isfinite().all())


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_team_of_many_rows_adds_to_what_it_left(tmp_path, monkeypatch) -> None:
    """Where a device has room for one block, a team takes more rows than it adds up at once: here thrice, in segments, and with no registers
    for the whole, which waits in memory or, of 16 bits, in shared memory."""
    torch.manual_seed(3)
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 1)
    monkeypatch.setattr(rounds, "cached", rounds.plan)
    calls = [(torch.randn(m, n), torch.randn(m, n), torch.randn(n), torch.rand(m)) for m, n in ((140, 300), (70, 9000), (4200, 8))]
    hold_within_bounds(tmp_path, calls)
    lanes = round_launches.Round(128, 32, 8, 8, 2, "lanes", 32)
    monkeypatch.setattr(round_launches, "ROUNDS", {key: (lanes, *rules) for key, rules in round_launches.ROUNDS.items()})
    rooms: list[int] = []
    verify = rounds.verify_rounds
    monkeypatch.setattr(rounds, "verify_rounds", lambda found, *rest: rooms.append(found.room) or verify(found, *rest))
    shapes = ((66, 4100, torch.float32), (1100, 64, torch.bfloat16))
    calls = [(torch.randn(m, n).to(t), torch.randn(m, n).to(t), torch.randn(n).to(t), torch.rand(m)) for m, n, t in shapes]
    hold_within_bounds(tmp_path, calls, LAYER)
    assert {*rooms} == {0, 4 * 128 * 16}


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("stages", [pytest.param(3, marks=pytest.mark.slow), 1])
def test_what_blocks_of_a_cluster_tell_is_each_rows_own(tmp_path, monkeypatch, stages: int) -> None:
    """Two parts of each row, which are sent together: as many rows as there are on their way, fewer, more; with one stage the next row's
    vectors take the places of what the last reading has left."""
    torch.manual_seed(6)
    rule = round_launches.Round(64, 64, 8, 1, stages, "cluster")
    plan = rounds.plan

    def alone(*asked):
        """The plan of an sm_90, with a cluster of one block, as emulation has it."""
        found = plan(*asked[:-1], "sm_90")
        (walk, grid, threads, shared, cluster), end = found.launches
        walk = walk._replace(threads=threads * cluster, team=threads * cluster)
        under = replace(found.under, steps=((walk, found.groups),), segments=1, span=walk.threads * walk.vectors, threads=walk.threads)
        end = (end[0]._replace(team=walk.team), *end[1:])
        return replace(found, under=under, launches=((walk, found.groups, walk.threads, shared * cluster, 1), end))

    monkeypatch.setattr(round_launches, "ROUNDS", {key: (rule, *rules) for key, rules in round_launches.ROUNDS.items()})
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 2)
    monkeypatch.setattr(rounds, "cached", alone)
    calls = [(torch.randn(m, 1000) + 1, torch.randn(m, 1000), torch.randn(1000), torch.randn(m)) for m in (1, 3, 6, 17)]
    kernel, checked = Emulated(LAYER, tmp_path, *calls), kgen.loads(LAYER).kernel
    assert any(f"3, true, -1, 1, 1, 7, 1, unsigned>, {stages}>" in e for e in kernel.expressions), kernel.expressions
    for args in calls:
        found = kernel(*args)
        wanted = Analysis(checked, dict(zip("x dy w s".split(), args, strict=True)), "cuda").results()
        for r, want in zip(checked.results, wanted, strict=True):
            assert bool((found[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, args[0].shape)


SHARED = """shared(x: T[..., N], w: T[N], s: f32[]) -> (y: T[..., N], db: T[N])

t = s * s + 1
v = exp(w)
y = x * v * sum[N](x * v) * t
db = sum[...](x) * t - s * v
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_what_rows_and_columns_have_in_common_is_there_for_both(tmp_path) -> None:
    """The last launch has nothing of the rows before it: what it shares with them it computes anew."""
    torch.manual_seed(2)
    call = torch.randn(7, 40), torch.randn(40), torch.tensor(0.7)
    found = Emulated(SHARED, tmp_path, call)(*call)
    checked = kgen.loads(SHARED).kernel
    for r, want in zip(checked.results, Analysis(checked, dict(zip("xws", call, strict=True)), "cuda").results(), strict=True):
        assert bool((found[r.name].double() - want.exact).abs().le(want.bound).all()), r.name


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_what_a_selection_leaves_out_of_a_column_is_not_added(tmp_path) -> None:
    text = "f(x: T[..., N], y: T[..., N]) -> (d: T[..., N], a: T32[N], b: T32[N], c: T32[N], e: T32[N])\nd = 0 if x <= 0 else y\n"
    text += "a = sum[...](0 if x <= 0 else y * x)\nb = sum[...](y if x > 0 else 0)\n"
    text += "c = sum[...](0 if 2 * x <= 0 else y)\ne = sum[...](0 if x < 0 or 3 * x == 0 else y)"  # conditions that have no name
    torch.manual_seed(3)
    x, y = torch.randn(300, 40), torch.randn(300, 40)
    y[x <= 0] = torch.tensor([torch.inf, -torch.inf, torch.nan, 3.0]).repeat(3000)[: int((x <= 0).sum())]
    x[:, 7] = -1
    assert "if (" in kgen.loads(text).source("cuda")
    hold_within_bounds(tmp_path, [(x, y)], text)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("n", [40, 5_000])
def test_rows_that_read_no_elements_have_columns_too(tmp_path, n: int) -> None:
    """Of results that have them: what is stored lies as what is read would, and its columns are added up on the way."""
    text = "f(t: i64[...], g: T[...], w: T[N]) -> (y: T[..., N], s: T32[N])\ny = 0 if g < -1 else g if t == index[N] else 0\n"
    text += "s = sum[...](0 if g < -1 else g * w if t == index[N] else 0)\n"
    torch.manual_seed(4)
    call = torch.randint(-1, n, (300,)), torch.randn(300), torch.randn(n)
    hold_within_bounds(tmp_path, [call], text)


def test_rows_of_two_dims_are_on_their_way_too(tmp_path) -> None:
    """Runs that lie apart, as the halves of heads do; of bf16, 3 rows of 2,112 elements."""
    torch.manual_seed(3)
    text = "both(x: T[..., S, D], a: T[S, D]) -> (y: T[..., S, D], s: f32[S, D])\n\ny = 2 * x\ns = sum[...](x * a)\n"
    x, a = (torch.randint(-4, 5, shape).to(torch.bfloat16)[..., 64:] for shape in ((3, 33, 128), (33, 128)))
    emulated = Emulated(text, tmp_path, (x, a))
    assert any("Rounds" in e for e in emulated.expressions)
    found = emulated(x, a)
    assert torch.equal(found["y"], 2 * x) and torch.equal(found["s"], (x.float() * a.float()).sum(0))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_one_team_that_has_all_rows_stores_the_sums_itself(tmp_path, monkeypatch) -> None:
    """Where a device has no room for a second beside it, no launch is behind it; of no rows there is one."""
    torch.manual_seed(3)
    monkeypatch.setattr(devices, "resident", lambda arch, blocks, cluster: 1)
    monkeypatch.setattr(rounds, "cached", rounds.plan)
    text = "both(x: T[..., S, D], a: T[S, D]) -> (y: T[..., S, D], s: T[S, D])\n\ny = 2 * x\ns = sum[...](x * a) + index[D]\n"
    x, a = (torch.randint(-4, 5, shape).float()[..., 8:] for shape in ((7, 90, 108), (90, 108)))
    alone, none = (Emulated(text, tmp_path / name, (t, a)) for name, t in (("alone", x), ("none", x[:0])) if not (tmp_path / name).mkdir())
    assert len(alone.expressions) == 1 and ", -1>" in none.expressions[0]
    for kernel, t in ((alone, x), (none, x[:0])):
        found = kernel(t, a)
        assert torch.equal(found["y"], 2 * t) and torch.equal(found["s"], (t * a).sum(0) + torch.arange(100))


def test_columns_of_no_rows_are_what_nothing_adds_up_to(tmp_path) -> None:
    w = torch.randn(40)
    calls = (torch.empty(0, 40), w), (torch.empty(3, 0, 40), w)
    kernel = Emulated("f(x: T[..., N], w: T[N]) -> (y: T[..., N], s: T[N])\n\ny = x * sum[N](x)\ns = sum[...](x * w) + w\n", tmp_path, *calls)
    for call in calls:
        assert torch.equal(kernel(*call)["s"], w)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_rows_bits_do_not_depend_on_the_others(tmp_path) -> None:
    torch.manual_seed(1)
    x, dy, w, s = torch.randn(9, 1000), torch.randn(9, 1000), torch.randn(1000), torch.rand(9)
    kernel = Emulated(NORM, tmp_path, (x, dy, w, s), (x[:1], dy[:1], w, s[:1]))
    together = kernel(x, dy, w, s)
    for k in range(9):
        alone = kernel(x[k : k + 1], dy[k : k + 1], w, s[k : k + 1])
        assert torch.equal(alone["dx"][0], together["dx"][k])
    again = kernel(x, dy, w, s)
    assert all(torch.equal(again[name], together[name]) for name in again)


# ------------------------------------------------------------------------------------------------------------------ plans


def asked(seed: int) -> tuple:
    rng = random.Random(seed)
    row_sizes, sizes, operands, gathers, reductions, _, words, *_ = draw(rng)
    operands = (*operands, RowOperandPlace((0,) * len(row_sizes), tuple(range(len(sizes), 0, -1)), 4, 0, True, False, False, 0))
    return row_sizes, sizes, operands, gathers, min(reductions, 9), min(words, 40), 2 * rng.choice((1, 1, 2, 3, 4)), min(reductions, 9), rng.random() < 0.5, rng.choice(ARCHES)


def hold(seeds: range) -> None:
    for seed in seeds:
        try:
            found = rounds.plan(*asked(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {asked(seed)}") from error
        assert found is None or found.every <= max(2 * found.rows, 128), seed


def test_drawn_plans_hold() -> None:
    hold(range(3000))


@pytest.mark.slow
def test_many_drawn_plans_hold() -> None:
    hold(range(3000, 103_000))


@pytest.mark.parametrize("read, vec", [((), 8), (("w: f32[N]",), 4)])
def test_vectors_follow_what_moves_and_is_shared_not_what_columns_leave(read: tuple[str, ...], vec: int) -> None:
    """A sum of columns in f32 is written once, at the end: rows of bf16 move 16 bytes at a time."""
    kernel = kgen.loads(f"a({', '.join(('x: bf16[M, N]', *read))}) -> y: f32[N]\n\ny = sum[M](f32(x){' * w' if read else ''})\n").kernel
    (unit,) = backend("cuda").layout(kernel)
    operands = [(0, ((4096,) if "M" in o.dims else (0,)), (1,), 2 if "M" in o.dims else 4) for o in unit.operands]
    plan = nvrtc.row_plan(unit, (64,), (4096,), operands, 0, "sm_90")
    assert plan is not None and plan.under.steps[0][0].vec == vec


def test_dear_elements_have_more_blocks_on_a_multiprocessor() -> None:
    """A norm over the mean magnitude is not hidden behind one block, as one over squares is: .80 of a copy on an H200, .95 with three."""
    at: dict[str, int] = {}
    for name, by in (("light", "* rsqrt(mean[N](x^2) + 1)"), ("dear", "/ (mean[N](abs(x)) + 1)")):
        kernel = kgen.loads(f"{name}(x: T[M, N], w: T[N]) -> y: T[M, N]\n\ny = w * x {by}\n").kernel
        units = [u for u in backend("cuda").layout(backward(kernel).kernel) if u.columns]
        assert [u.dear for u in units] == [name == "dear"]
        (unit,) = units
        operands = [(0, (16384 * ("M" in o.dims),), (1 * ("N" in o.dims),), 2 if o.element else 4) for o in unit.operands]
        plan = nvrtc.row_plan(unit, (8192,), (16384,), operands, 0, "sm_90")
        assert plan is not None
        at[name] = plan.under.steps[0][0].blocks
    assert at == {"light": 1, "dear": 3}


@pytest.mark.parametrize("n, cluster", [(16_384, 2), (32_768, 8), (49_152, 3), (65_536, 4), (131_072, 8)])
def test_three_operands_of_dear_elements_have_a_large_block_a_multiprocessor(n: int, cluster: int) -> None:
    """A gated norm's gradient at 65,536: .95 of a copy on an H200, .89 with three blocks of 128 threads; 32,768 .96 as before, else .94."""
    (unit,) = [u for u in backend("cuda").layout(backward(kgen.load("gated_rmsnorm").kernel).kernel) if u.columns]
    moving = [o.element and o.name != "w" for o in unit.operands]
    operands = [(0, (n * m,), (1 * o.element,), 2 if o.element else 4) for m, o in zip(moving, unit.operands, strict=True)]
    plan = nvrtc.row_plan(unit, (2**28 // n,), (n,), operands, 0, "sm_90")
    assert plan is not None
    walk = plan.under.steps[0][0]
    assert (walk.threads, plan.launches[0][4]) == ({16_384: 256, 32_768: 128}.get(n, 512), cluster)


@pytest.mark.parametrize("n, threads", [(16_384, 256), (32_768, 256), (49_152, 128), (65_536, 256), (131_072, 256)])
def test_four_operands_of_dear_elements_have_two_blocks_a_multiprocessor(n: int, threads: int) -> None:
    """The gradient of a layernorm behind dropout, beside parameters of both: .94 of a copy at 16,384 on an H200, .74 by one block."""
    (unit,) = [u for u in backend("cuda").layout(backward(kgen.load("dropout_add_layernorm").kernel).kernel) if u.columns]
    moving = [o.element and o.dims[:1] == ("...",) for o in unit.operands]
    operands = [(0, (n * m,), (1 * o.element,), 2 if o.element else 4) for m, o in zip(moving, unit.operands, strict=True)]
    plan = nvrtc.row_plan(unit, (2**28 // n,), (n,), operands, 0, "sm_90")
    assert plan is not None and plan.under.steps[0][0].threads == threads


def test_a_columns_values_pass_through_few_additions() -> None:
    """As kgen_rounds.cuh adds: a team's rows, the teams of a block by sixteens, groups by lanes and sixteens, lanes in pairs."""
    for n in (8, 128, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576):
        for many in (1, 3, 100, 1000, 4096, 70_000, 2**20, 2**24):
            x = RowOperandPlace((n,), (1,), 2, 0, True, True, True, 1)
            made = rounds.plan((many,), (n,), (x,), 0, 1, 2, 2, 1, False, "sm_90")
            assert made is not None
            additions = rounds.depth(-(-many // made.every), made.few, made.every // made.groups, made.groups)
            assert min(additions, many - 1) <= tree_depth(many) + 1, (n, many, additions)


def test_any_number_of_operands_moves() -> None:
    """Element by element where a warp has no room for their vectors."""
    x = RowOperandPlace((1000,), (1,), 4, 0, True, True, True, 1)
    for many, vec in ((40, 4), (100, 1)):
        made = rounds.plan((50,), (1000,), (x,) * many, 0, 1, 2, 2, 1, False, "sm_75")
        assert made is not None and made.under.steps[0][0].vec == vec


def test_a_plan_that_breaks_a_rule_is_refused() -> None:
    x, y = (RowOperandPlace((4096,), (1,), 4, 0, True, True, read, 1) for read in (True, False))
    made = rounds.plan((1000,), (4096,), (x, y), 0, 1, 2, 2, 1, False, "sm_90")
    assert made is not None
    for broken in (
        replace(made, every=made.every + 1),
        replace(made, groups=made.groups - 1),
        replace(made, few=0),
        replace(made, work=made.work - 4),
        replace(made, launches=made.launches[1:]),
        replace(made, under=replace(made.under, span=10)),
    ):
        with pytest.raises(Broken):
            verify_rounds(broken, (x, y), 1000, devices.limits("sm_90"), 1, 2, 50)
    with pytest.raises(Broken):
        verify_rounds(made, (x, y), 1000, devices.limits("sm_90"), 1, 2, 100)


DRAWN = """drawn(dy: T[M, N], x: T[M, N], r: T[M, N], w: T[N], seed: i64[], offset: i64[]) -> (dx: T[M, N], dw: T[N])

m  = bernoulli[M, N](0.9, seed, offset)
h  = r + (x * 2 if m else 0)
t  = dy * w
d  = t - mean[N](t * h) * h
dx = d * 2 if m else 0
dw = sum[M](dy * h)
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("m, n", [(9, 200), (2, 20_000)])
def test_what_is_drawn_once_is_kept_as_bits(tmp_path, m: int, n: int) -> None:
    """Of rows that blocks share each launch draws for itself: the last one, whose rows move in shared memory, has not been through them."""
    g = torch.Generator().manual_seed(0)
    given = [*(torch.randn(*shape, generator=g).bfloat16() for shape in ((m, n), (m, n), (m, n), (n,))), torch.tensor(7), torch.tensor(3)]
    found, (dx, dw) = Emulated(DRAWN, tmp_path, given)(*given), kgen.loads(DRAWN)(*given, target="torch")
    assert torch.equal(found["dx"] == 0, dx == 0)
    torch.testing.assert_close(found["dx"], dx, rtol=2**-7, atol=2**-7)
    torch.testing.assert_close(found["dw"], dw, rtol=2**-7, atol=2**-7)
