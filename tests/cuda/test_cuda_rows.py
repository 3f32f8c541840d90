"""Reductions in CUDA: the source compiles without a warning for each architecture, and its plan reads each element once, in an
order that does not depend on the number of rows.  No GPU is needed."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.backends import backend, launches
from kgen.backends.cuda import RowLayout
from kgen.backends.shared import declared
from kgen.grad import backward, differentiable
from kgen.runtime import nvrtc, rows
from kgen.runtime.arguments import index_strides
from kgen.runtime.limits import limits
from tests.cuda.test_cuda_source import SPECS, TO_PTX, fewer_variants, kernel, needs_nvcc, nvcc, source

MIXED = """mixed(x: T[K, G], k: bool[G], t: i64[K], w: U[W]) -> (y: bool[K], z: i64[K], h: T[K], i: i64[], p: f32[K])
y = any[G](x > 0 and k)
z = sum[G](k)
h = T(max[G](x)) + 0.1
i = argmax[K, G](x)
p = f32(pick[W](w, t)) + index[K] + mean[G](x)"""
NAMES = """walk(walk: T[..., Walk], first: T[Walk], rows: f32[...]) -> (lane: T[..., Walk], rows': f32[...])
again = walk - sum[Walk](walk * first)
lane = again * rows
rows' = rows + max[Walk](again)"""


def instantiated(text: str, ways: dict[str, str], binding: str) -> str:
    """The device part of a kernel's source, with its kernels for some ways of walking."""
    k = kernel(text)
    made = "#define __CUDACC_RTC__\n" + source(text)
    for unit in backend("cuda").layout(k):
        if not isinstance(unit, RowLayout) or not unit.inner:
            continue
        gathers = max(1, sum(bool(o.dim) for o in unit.operands))
        for name, way in ways.items():
            walk = f"Walk<{way}, {len(unit.operands)}, {gathers}, unsigned>"
            chosen = unit.expression(dict.fromkeys(unit.variables, binding), walk)
            made += f"\n__device__ void* {unit.kernel}_{name} = (void*)&{chosen};"
    return made


WAYS = {
    "warp": "128, 8, 32, false, 4, 4, true, 1, 0, false, 1, false, -1, 1, 1",
    "split": "256, 3, 256, false, 4, 4, true, 1, 0, true, 0, false, 0, 1, 1",
    "across": "256, 3, 8, true, 8, 1, false, 0, 0, true, 0, false, -1, 2, 2",
}
CLUSTER = {"cluster": "256, 3, 256, false, 8, 4, false, 1, 0, false, 2, true, -1, 1, 1"}


def test_every_pass_has_the_room_for_results_that_the_walk_uses():
    """memcheck found passes of one value writing behind a workspace when another pass of the file kept two."""
    text = "two(x: T[M, N], y: T[M, N]) -> (a: T[M], b: T[N], c: i64[N])\na = sum[N](x)\nb = sum[M](x) + max[M](y) * prod[M](x)\nc = argmax[M](y)"
    for name, spec in {"two": text, "layernorm": next(p for p in SPECS if p.stem == "layernorm").read_text()}.items():
        k = kernel(spec)
        for made in (k, *([backward(k).kernel] if name == "layernorm" else [])):
            found = backend("cuda").render(made)
            units = [unit for unit in backend("cuda").layout(made) if isinstance(unit, RowLayout)]
            passes = re.findall(r"using pass = (.*);", found)
            assert units and len({unit.words for unit in units}) == 1 and len(passes) == len(units)
            own = [re.search(r"(?:true|false), (\d+), (\d+), (?:true|false), (\d+), (?:true|false),", p) for p in passes]
            assert [tuple(map(int, m.groups())) for m in own if m] == [(unit.reductions, unit.long, unit.words) for unit in units]


@pytest.mark.slow
@needs_nvcc
def test_kernels_compile(tmp_path):
    """For sm_90 NVRTC does, in tests/backends/test_compiled.py, in every dtype."""
    jobs = [("sm_80", "mixed", instantiated(MIXED, WAYS, "f32")), ("sm_100", "names", instantiated(NAMES, WAYS | CLUSTER, "bf16"))]
    for _, name, text in jobs:
        (tmp_path / f"{name}.cu").write_text(text)

    def build(job: tuple[str, str, str]) -> str:
        arch, name, _ = job
        return nvcc(tmp_path / f"{name}.cu", f"-arch={arch}", "-O1", "-Xptxas", "-O0", "-cubin", "-o", str(tmp_path / f"{name}.cubin"))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(build, jobs)) == [""] * len(jobs)


@pytest.mark.slow
@needs_nvcc
def test_launchers_compile(tmp_path):
    text = re.sub(r'extern "C" cudaError_t \w+_(f16|f32|f64)\(.*?\n\}\n', "", source(MIXED.replace("U[", "T[")), flags=re.S)
    path = tmp_path / "mixed.cu"
    path.write_text(fewer_variants(text))
    assert nvcc(path, *TO_PTX, "-O1", "-c", "-o", str(tmp_path / "x.o")) == ""


def built(text: str, folder: Path, *more: str) -> None:
    """Build a file by the line in its head, and `more` behind it; nvcc must say nothing."""
    path = folder / "kernel.cu"
    path.write_text(text)
    found = re.search(r"^//     (nvcc .*)$", text, re.M)
    assert found
    line = [str(path.with_suffix(Path(x).suffix)) if x.endswith((".cu", ".so")) else x for x in found.group(1).split()]
    done = subprocess.run([*line, "-Werror", "all-warnings", *more], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_nvcc
def test_nvcc_says_nothing_of_a_file_built_by_its_own_line(tmp_path: Path) -> None:
    """Of softmax, whose combining of warps had a loop behind a return; one dtype's entry and few variants, or it takes ten times as long."""
    text = source(next(p for p in SPECS if p.stem == "softmax").read_text())
    text = fewer_variants(re.sub(r'extern "C" cudaError_t \w+_(f16|bf16|f64)\(.*?\n\}\n', "", text, flags=re.S))
    quicker = "--Ofast-compile" in subprocess.run(["nvcc", "--help"], capture_output=True, text=True).stdout
    built(text, tmp_path, *["--Ofast-compile=mid"] * quicker)  # of the code itself nothing is looked at; `-m slow` has it made quick


@pytest.mark.slow
@needs_nvcc
def test_nvcc_says_nothing_of_rows_and_columns_in_one_pass(tmp_path: Path) -> None:
    """Of a file that has no other passes, and so no use for the table of those."""
    back = backward(kernel(next(p for p in SPECS if p.stem == "rmsnorm").read_text())).kernel
    text = re.sub(r'extern "C" cudaError_t \w+_(f16|f32|f64)\(.*?\n\}\n', "", backend("cuda").render(back), flags=re.S)
    path = tmp_path / "back.cu"
    path.write_text(fewer_variants(text))
    assert nvcc(path, *TO_PTX, "-O1", "-c", "-o", str(tmp_path / "x.o")) == ""


@pytest.mark.slow
@needs_nvcc
def test_nvcc_says_nothing_of_rows_that_follow_one_another(tmp_path: Path) -> None:
    """Of a file that adds up no columns, and so has no use for half of the table of rounds."""
    text = source(next(p for p in SPECS if p.stem == "rmsnorm").read_text())
    path = tmp_path / "forward.cu"
    path.write_text(fewer_variants(re.sub(r'extern "C" cudaError_t \w+_(f16|f32|f64)\(.*?\n\}\n', "", text, flags=re.S)))
    assert nvcc(path, *TO_PTX, "-O1", "-c", "-o", str(tmp_path / "x.o")) == ""


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", [p.stem for p in SPECS])
def test_nvcc_says_nothing_of_any_spec(name: str, back: bool, tmp_path: Path) -> None:
    k = kernel(next(p for p in SPECS if p.stem == name).read_text())
    if back and not differentiable(k):
        pytest.skip("it has no gradient")
    built(backend("cuda").render(backward(k).kernel if back else k), tmp_path)


# ----------------------------------------------------------------------------------------------------------------- plan

H200 = limits("sm_90")


def place(row_strides, strides, itemsize=4, address=0, kept=True) -> rows.RowOperandPlace:
    return rows.RowOperandPlace(tuple(row_strides), tuple(strides), itemsize, address, True, kept)


def planned(row_sizes, sizes, *operands, reductions=2, stores=True, splits=True) -> rows.RowPlan:
    made = rows.plan(tuple(row_sizes), tuple(sizes), operands, 0, reductions, stores, 4, H200, splits)
    assert made is not None
    return made


def order(plan: rows.RowPlan) -> tuple:
    """What decides the order in which a row is combined."""
    walk = plan.steps[0][0]
    return walk.team or plan.threads, walk.across, walk.vec, plan.span, plan.segments


def visited(plan: rows.RowPlan, row: int) -> list[int]:
    """The places that the teams of one row read of the first operand, as the kernel finds them."""
    walk, grid = plan.steps[0]
    team = walk.team or plan.threads
    base, rest = 0, row
    for d in reversed(range(walk.row_rank)):
        outer = rest // plan.row_sizes[d] if d else 0
        base += (rest - outer * plan.row_sizes[d]) * plan.row_strides[0][d]
        rest = outer
    head = min(-(plan.misaligned + base) % walk.vec if walk.edges else 0, plan.n)
    vectors = (plan.n - head) // walk.vec
    elements = [*range(head), *range(head + vectors * walk.vec, plan.n)]
    for s in range(plan.segments):
        end = min((s + 1) * plan.span, vectors) if (walk.segments or walk.cluster) and s + 1 < plan.segments else vectors
        for start in range(s * plan.span, max(end, s * plan.span + 1), team * walk.vectors):
            for lane, v in itertools.product(range(team), range(walk.vectors)):
                c = start + lane + v * team
                if c < end:
                    elements += range(head + c * walk.vec, head + (c + 1) * walk.vec)
            if not walk.segments:
                break
    found = []
    for i in elements:
        at, rest = base, i
        for d in reversed(range(walk.rank)):
            outer = rest // plan.sizes[d] if d else 0
            at += (rest - outer * plan.sizes[d]) * plan.strides[0][d]
            rest = outer
        found.append(at)
    assert grid * (plan.threads // team) >= plan.rows or walk.step >= 0 or walk.cluster
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.lists(st.sampled_from([1, 2, 3, 8, 33, 130]), min_size=1, max_size=2), st.sampled_from([1, 2, 4, 8]),
       st.integers(0, 3), st.permutations(range(3)), st.integers(0, 5))  # fmt: skip
def test_each_element_of_a_row_is_read_once(count, inner, itemsize, offset, turned, pad):
    sizes = [count, *inner]
    strides, step = [0] * len(sizes), 1
    for d in [d for d in turned if d < len(sizes)]:
        strides[d] = step
        step *= sizes[d] + (pad if step == 1 else 0)
    plan = planned([count], inner, place(strides[:1], strides[1:], itemsize, offset * itemsize % 16), splits=False)
    for row in range(count):
        where = itertools.product(*map(range, inner))
        wanted = [row * strides[0] + sum(p * s for p, s in zip(at, strides[1:], strict=True)) for at in where]
        assert sorted(visited(plan, row)) == sorted(wanted)


@pytest.mark.parametrize("n", [1, 2, 31, 1000, 1024, 4096, 5000, 32768, 50257, 65536, 262144, 393216, 2**20 + 1])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("kept", [False, True])
def test_the_order_within_a_row_does_not_depend_on_how_many_there_are(n, itemsize, kept):
    orders = {order(planned([count], [n], place([n], [1], itemsize, kept=kept))) for count in (1, 2, 500, 100_000)}
    assert len(orders) == 1
    across = {order(planned([count], [n], place([1], [4096], itemsize, kept=kept))) for count in (1, 2, 500, 4096)}
    assert len(across) == 1


@pytest.mark.parametrize("n", [1024, 4096, 16384, 32768, 65536])
def test_an_aligned_row_among_others_that_are_not_is_combined_as_alone(n):
    alone, among = planned([1], [n], place([n], [1])), planned([9], [n], place([n + 1], [1]))
    assert not alone.steps[0][0].edges and among.steps[0][0].edges and order(alone) == order(among)


def test_few_additions_lead_to_a_result():
    for n in (2**k + d for k in range(32) for d in (-1, 0, 1)):
        for operand in (place([n], [1], 4), place([n], [1], 2), place([1], [4096], 4), place([n], [1], 8, kept=False)):
            if n > 2**24 and operand.strides[0] > 1:
                continue
            plan = planned([3], [n], operand, splits=False)
            walk, team = plan.steps[0][0], plan.steps[0][0].team or plan.threads
            rounds = -(-plan.span // (team * walk.vectors)) if walk.segments else 1
            along = team if walk.across else math.log2(max(2, team))
            apart = -(-plan.segments // team) if walk.segments and plan.segments > 1 else 0
            together = min(apart, 16) + min(apart // 16, 16) + apart // 256 + (along if apart else 4 if walk.cluster else 0)
            assert walk.vectors + rounds + math.log2(walk.vec) + along + together <= 64 + math.ceil(math.log2(max(2, n)))


def test_some_steps_are_for_whole_vectors_of_16_bits():
    """Rows that two readings reduce: of 16-bit elements in whole vectors others stay in shared memory, and are shared by other clusters,
    than in f32 or where they end within a vector."""
    steps = launches.SHIPPED["sm_90"]["again"]

    def way(n: int, itemsize: int) -> tuple[int, int, bool]:
        row = rows.RowOperandPlace((n,), (1,), itemsize, 0, True, kept=True, row_dims=1)
        made = rows.plan((100,), (n,), (row,), 0, 2, True, 4, H200, True, steps)
        assert made is not None
        return made.threads, made.steps[0][0].keep, made.steps[0][0].cluster

    assert [way(n, 2) for n in (3136, 20000, 200704)] == [(224, 2, False), (320, 2, False), (256, 2, True)]
    assert [way(n, 4) for n in (1568, 10000, 100352)] == [(224, 1, False), (320, 1, False), (512, 2, True)]
    assert [way(n, 2)[1:] for n in (24001, 4096, 32768)] == [(1, False)] * 3
    assert way(3137, 2) == (128, 2, False) and way(20001, 2)[1:] == (2, False)  # by rules for those that end so


def test_schedules():
    def way(count, n, itemsize, **kwargs):
        kept = kwargs.pop("kept", True)
        plan = planned([count], [n], place([n], [1], itemsize, kept=kept), **kwargs)
        walk = plan.steps[0][0]
        return walk.team or plan.threads, walk.keep, walk.cluster, len(plan.steps)

    assert way(10, 1024, 2) == (32, 1, False, 1)
    assert way(10, 4096, 2) == (128, 1, False, 1)
    assert way(10, 65536, 2)[1:] == (2, True, 1)
    assert way(10, 393_216, 4) == way(10, 786_430, 2) == (512, 2, True, 1)
    assert way(10, 2**21, 2) == way(10, 2**21, 4) == (512, 2, True, 2)
    assert way(10, 2**22 + 8, 2) == (256, 0, False, 5)
    assert way(100_000, 2**21, 2) == (512, 2, True, 2), "however many rows there are"
    assert way(100_000, 2**23, 2) == way(10, 2**21, 2, stores=False)[:3] + (1,) == (256, 0, False, 1)
    assert way(900, 2**22, 4, reductions=1) == (256, 0, False, 3), "of so many blocks the last would be alone for long"
    assert way(600, 160_000, 4, kept=False) == (256, 0, False, 1), "and for shorter rows launches would be"
    assert way(10, 2**21, 2, splits=False) == (256, 0, False, 1)
    assert rows.plan((0, 3), (5,), (place([15, 5], [1]),), 0, 1, False, 2, H200, True) is None
    wide = planned([3], [2**32 + 8], place([2**32 + 8], [1], 2)).steps[0][0]
    assert wide.index64 and wide.text().endswith("u64>") and wide.wide == 1
    gathered = rows.plan((7,), (), (rows.RowOperandPlace((1,), (), 2, 0, False),), 1, 0, False, 0, H200, True)
    assert gathered is not None and gathered.steps[0][0].team == 1 and gathered.steps[0][1] == 1


def test_positions_count_the_leading_dims_together():
    assert index_strides(("...", "N"), (2, 3, 5), "...") == [3, 1, 0]
    assert index_strides(("...", "N"), (2, 3, 5), "N") == [0, 0, 1]


def test_a_pass_follows_the_operand_that_moves_most() -> None:
    """A norm's weight gradient sums dy * x * rstd over the rows: the numbers a row lie densely, but it is dy's columns that count."""
    rstd = rows.RowOperandPlace((0,), (1,), 4, 0, True)
    dy = rows.RowOperandPlace((1,), (4096,), 2, 0, True, row_dims=1)
    dw = rows.RowOperandPlace((1,), (0,), 2, 0, False, read=False, row_dims=1)
    planned = rows.plan((4096,), (8192,), (rstd, dy, dw), 0, 1, False, 1, H200, True)
    assert planned is not None and planned.steps[0][0].main == 1 and planned.steps[0][0].across


def test_one_row_is_walked_as_each_of_many() -> None:
    """x's rows lie apart, its elements are every other one; w is dense: with one row x has no stride along the rows."""
    w = rows.RowOperandPlace((0,), (1,), 4, 0, True)
    y = rows.RowOperandPlace((1000,), (1,), 4, 0, True, read=False, row_dims=1)
    for strides in ((2,), (1,), (7,)):
        x = rows.RowOperandPlace((2000,), strides, 4, 0, True, True, row_dims=1)
        many = rows.plan((7,), (1000,), (x, w, y), 0, 1, True, 1, H200, True)
        one = rows.plan((1,), (1000,), (x._replace(row_strides=(0,)), w, y._replace(row_strides=(0,))), 0, 1, True, 1, H200, True)
        assert many is not None and one is not None
        assert many.steps[0][0]._replace(index64=False) == one.steps[0][0]._replace(index64=False)


def test_a_constant_of_two_phases_is_declared_once():
    """Fuzzing on a GPU found `r` declared before and behind a reading, which are one scope."""
    k = kernel("f(t: T[...], y: float) -> q: T[...]\nr = f32(0)\ns = sum[...](y + r if isnan(r) else t)\nq = min(stop(0), s) * r")
    body = backend("cuda").render(k).partition("f_kernel(")[2].partition("\n}\n")[0]
    declared = re.findall(r"^    const \w+ (\w+) =", body, re.M)
    assert "r" in declared and len(declared) == len(set(declared))


def test_a_row_is_sent_for_before_what_all_rows_share() -> None:
    """dropout_add_rmsnorm had waited for its seed before it asked for a row: .91 of a copy, .99 with these the other way round."""
    text = backend("cuda").render(kgen.load("dropout_add_rmsnorm").kernel)
    assert 0 < text.index("keep<0>(x_ptr)") < text.index("i64(*seed_ptr)")


@pytest.mark.slow
@needs_nvcc
def test_a_file_for_many_architectures_knows_its_kernels(tmp_path: Path) -> None:
    """nvcc bounds what it computes at compile time: the kernels of passes with many operands, of several sizes, for all its architectures."""
    bytes_of, mask = ", ".join(["2"] * 37 + ["0", "1", "2"]), f"{(1 << 37) - 1}ull"
    known = f"<1, {mask}, 7, {mask}, true, false, 5, 3, true, 4, true, {bytes_of}>"
    text = f"""#include "kgen_rounds_plan.cuh"
static_assert(host::Pass{known}::KERNELS.count > 100 && host::RoundsPass<4, {mask}, false, host::Known{known}>::KERNELS.count > 100);
"""
    path = tmp_path / "many.cu"
    for name, written in {path.name: text, **backend("cuda").beside(text)}.items():
        (tmp_path / name).write_text(written)
    archs = [x for a in (75, 80, 86, 89, 90, 100, 120) for x in ("-gencode", f"arch=compute_{a},code=sm_{a}")]
    assert nvcc(path, *archs, "-diag-suppress", "177", "-c", "-o", str(tmp_path / "many.o")) == ""


@needs_nvcc
def test_the_host_part_gives_results_the_memory_that_there_is(tmp_path: Path) -> None:
    """Sixty sums of f64 in one reading took 120 KB of a block that walks 32 rows side by side; sixteen readings of five 64 KB for a cluster.
    The library counts as the planner does."""
    held = []
    for words, readings in ((2, 1), (4, 2), (12, 3), (120, 1), (20, 16), (300, 1), (64, 17)):
        found = f"Pass<1, 3, 1, 1, true, true, {readings}, {readings}, true, {words}, true, 4, 4>"
        for way in ((512, 0, False, False), (256, 256, False, True), (128, 32, False, False), (96, 0, False, False), (256, 8, True, False), (128, 1, True, False)):
            given = ", ".join(str(x).lower() for x in way)
            held.append(f"static_assert({found}::FACTS.declared({given}) == {declared(*way, words, readings)});")
    path = tmp_path / "held.cu"
    text = '#include "kgen_rows.cuh"\nusing host::Pass;\n' + "\n".join(held) + "\n"
    for name, written in {path.name: text, **backend("cuda").beside(text)}.items():
        (tmp_path / name).write_text(written)
    assert nvcc(path, "-arch=sm_90", "-c", "-o", str(tmp_path / "held.o")) == ""


def test_rules_ask_for_readings_and_parameters() -> None:
    """Rows of two operands that stay: by blocks of 512 threads where one reading reduces them beside a parameter, of 128 where two do."""
    x = rows.RowOperandPlace((4096,), (1,), 2, 0, True, kept=True, row_dims=1)
    y, w = x._replace(kept=False, read=False), rows.RowOperandPlace((0,), (1,), 2, 0, True)
    threads = {}
    for parameters in (0, 1):
        for readings in (1, 2):
            made = rows.plan((4096,), (4096,), (x, x, *[w] * parameters, y), 0, readings, True, 1, H200, True)
            assert made is not None
            threads[parameters, readings] = made.threads
    assert threads == {(0, 1): 256, (1, 1): 512, (0, 2): 128, (1, 2): 128}


def test_a_row_that_a_static_file_holds_is_not_read_anew() -> None:
    """What a call would keep in shared memory, a static file may hold in registers: it does not say then that it reads it once more."""
    held = rows.along(4096, 8, (2, 2), (2, 2, 2), 2, 1)
    read = rows.along(65536, 8, (2,), (2,), 1, 1)
    assert (held.held, held.wished, read.held, read.wished) == (True, "", False, "shared")


def test_steps_for_dear_elements_leave_a_softmaxs_gradient_alone() -> None:
    """It has two operands and dear elements, too: blocks of 512 threads, which suit a gated norm of such rows, took it from .985 to .867."""
    (unit,) = backend("cuda").layout(backward(kgen.load("softmax").kernel).kernel)
    assert isinstance(unit, RowLayout) and unit.dear
    operands = [(0, (65536 if o.element else 1,), (int(o.element),), 2 if o.element else 4) for o in unit.operands]
    planned = nvrtc.row_plan(unit, (4096,), (65536,), operands, 0, "sm_90")
    assert planned is not None
    walk = planned.steps[0][0]
    assert (walk.threads, walk.vectors, walk.cluster) == (256, 8, True)
