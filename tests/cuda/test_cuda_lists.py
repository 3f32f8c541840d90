"""CUDA kernels over lists of tensors: NVRTC compiles them, blocks find their tensor, and run on the CPU (see `emulated.py`) they give the
bits of a launch for each tensor.  No GPU is needed."""

from __future__ import annotations

import importlib.util
import random
import re
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kgen import check, syntax
from kgen.backends import backend
from kgen.backends.cuda import Layout
from kgen.resources import resource
from kgen.runtime import driver, nvrtc, nvrtc_lists
from kgen.runtime import maps as map_plans
from kgen.runtime.toolchain import _run, _tool

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from tests.cuda.emulated import EmulatedLists  # noqa: E402

emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
compiles = pytest.mark.skipif(not driver.available(), reason="there is no NVRTC here")
disassembles = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and not shutil.which("cuobjdump"), reason="there is no cuobjdump"
)

STEP = "step(p: T[...], g: T[...], m: f32[...], lr: float) -> (p': T[...], m': f32[...], y: f32[...])\nm' = m + g\np' = p - lr * m'\ny = g * 2\n"
MIX = "mix(x: f32[..., N], w: f32[N], s: f32[], a: float) -> y: f32[..., N]\ny = (x * w * a + s) * N + index[N]\n"
#: The writer's names are those of the kernel, too.
NAMES = (
    """own(list: T[..., i], at: f32[], COUNT: float, layout: float, first: int) -> (List: T[..., i], i: f32[..., i])
List = list * COUNT + at
i = list * layout + first""".replace("i: f32[..., i]", "find: f32[..., I]")
    .replace("[..., i]", "[..., I]")
    .replace("\ni =", "\nfind =")
)
SPECS = sorted(resource("specs").glob("*.k"))


def checked(text: str) -> check.Kernel:
    return check.check(syntax.parse(text, "lists.k"))


@cache
def maps() -> dict[str, check.Kernel]:
    """The bundled specs that are one map, and some of this file's."""
    found = {path.stem: checked(path.read_text()) for path in SPECS} | {"names": checked(NAMES), "mix": checked(MIX)}
    layouts = {name: nvrtc.Launcher(kernel).units for name, kernel in found.items()}
    return {name: kernel for name, kernel in found.items() if len(layouts[name]) == 1 and isinstance(layouts[name][0], Layout)}


@pytest.mark.slow
@compiles
def test_nvrtc_compiles_every_map_over_lists() -> None:
    kernels = maps()
    assert {"adamw", "gelu", "swiglu", "names", "mix"} <= set(kernels)
    target = backend("cuda").listed
    for name, kernel in kernels.items():
        (unit,) = target.layout(kernel)
        bindings = [{v: d.name for v, d in dict(b).items()} for b in kernel.bindings()]
        variants = ((1, 4, False, 0, 1), (2, 4, False, 0, 4), (3, 1, True, 0, 1)) if name in ("adamw", "names", "mix") else ((1, 4, False, 0, 1),)
        names = [unit.expression(binding, *v, 64) for binding in bindings[: len(variants)] for v in (variants if unit.held else variants[::2])]
        cubin, lowered = driver.compile_cubin(target.render(kernel), names, "sm_90", nvrtc.OPTIONS)
        assert cubin and len(set(lowered.values())) == len(names), name


@compiles
def test_a_table_fills_the_arguments_that_a_launch_may_have() -> None:
    kernel = maps()["adamw"]
    lists = nvrtc_lists.ListLauncher(kernel, nvrtc.Launcher(kernel))
    target = backend("cuda").listed
    for large, arch in ((True, "sm_90"), (False, "sm_70" if driver.version() < "13" else "sm_80")):
        with pytest.MonkeyPatch.context() as m:
            m.setattr(nvrtc_lists, "large", lambda large=large: large)
            for variant in (map_plans.Variant(1, 4, False, 0), map_plans.Variant(4, 1, True, 0)):
                most = lists.capacity(variant)
                assert most > (100 if large else 5)
                expression = lists.unit.expression({"T": "f64"}, *variant, most)
                assert driver.compile_cubin(target.render(kernel), [expression], arch, nvrtc.OPTIONS)[0]


@compiles
@disassembles
def test_a_table_stays_where_arguments_are() -> None:
    """ptxas copies no argument to the stack, and takes few more registers than for a single launch: up to 32 a multiprocessor is full."""
    tool = _tool("cuobjdump")
    for name, variant in (("adamw", (1, 4, False, 0, 1)), ("gelu", (1, 8, False, 0, 1)), ("mix", (2, 4, False, 4, 1))):
        kernel, target, taken = maps()[name], backend("cuda"), []
        (unit,) = target.layout(kernel)
        binding = {v: "bf16" for v in unit.variables}
        for source, expression in (
            (target.render(kernel), unit.expression(binding, *variant)),
            (target.listed.render(kernel), unit.expression(binding, *variant, 256)),
        ):
            with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
                file.write(driver.compile_cubin(source, [expression], "sm_90", nvrtc.OPTIONS)[0])
                file.flush()
                found = _run([tool, "--dump-resource-usage", file.name])
            taken.append({key: int(n) for key, n in re.findall(r"(REG|STACK|LOCAL):(\d+)", found)})
        assert taken[1]["STACK"] == taken[1]["LOCAL"] == 0 and taken[1]["REG"] <= max(32, taken[0]["REG"] + 2), (name, taken)


@pytest.mark.parametrize("seed", range(8))
def test_each_block_finds_its_tensor(seed: int) -> None:
    """By the hints and the search of kgen_lists.cuh, written in Python: the blocks at which tensors begin and end, and some between."""
    rng = random.Random(seed)
    n = rng.choice((1, 2, 3, 100, 500))
    sizes = [rng.choice((1, 511, 512, 513, rng.randint(1, 10**5), rng.randint(1, 10 ** (5 + seed // 2)))) for _ in range(n)]
    if seed == 7:  # beyond what 32 bits count
        sizes = [size + 2**33 for size in sizes]
    plans = [map_plans.plan((size,), [(1,), (1,)], (4, 4), (0, 0)) for size in sizes]
    assert all(p is not None for p in plans)
    table = nvrtc_lists.filled([p for p in plans if p is not None], n, 2)
    first, hint, shift = list(table.first), list(table.hint), table.shift
    grids = [p.grid for p in plans if p is not None]
    for k, grid in enumerate(grids):
        for block in {first[k], first[k] + grid - 1, first[k] + rng.randrange(grid)}:
            low, high = hint[block >> shift], hint[(block >> shift) + 1]
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if first[middle] <= block else (low, middle - 1)
            assert low == k, (block, first, hint)
    assert [table.layout[k].n for k in range(n)] == sizes


def test_blocks_are_no_more_than_a_launch_has() -> None:
    limit = 2**31 - 1
    assert nvrtc_lists.fitting([limit, 1]) == 1 and nvrtc_lists.fitting([limit - 1, 1, 1]) == 2 and nvrtc_lists.fitting([limit + 9]) == 1


class Emulates:
    """A kernel whose calls on the CPU run its CUDA source, and its launches."""

    def __init__(self, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, large: bool = True):
        monkeypatch.setattr(nvrtc_lists, "large", lambda: large)
        self.kernel = kgen.loads(text)
        folder.mkdir()
        self.launcher = self.kernel._launchers["cpp"] = EmulatedLists(self.kernel.kernel, folder)


def drawn(dtypes: list[Any]) -> list[list[Any]]:
    """p, g and m for STEP: of few elements and several blocks, dense, transposed, with gaps, beginning anywhere."""
    torch.manual_seed(0)
    shapes = [(5,), (0,), (), (512,), (513,), (3, 4, 5), (1,), (2, 1030)]
    p, g, m = ([torch.randn(s).to(d) for s, d in zip(shapes, dtypes * 8, strict=False)] for _ in range(3))
    p += [torch.randn(2060)[::2], torch.randn(2061)[1:].view(2, 1030), torch.randn(20, 6).to(dtypes[0]).t()]
    g += [torch.randn(t.shape).to(t.dtype) for t in p[len(g) :]]
    m += [torch.randn(t.shape) for t in p[len(m) :]]
    return [p, g, [t.float() for t in m]]


@emulates
@pytest.mark.parametrize("large", [True, False])
def test_the_bits_are_those_of_single_launches(large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists, single = (Emulates(STEP, tmp_path / name, monkeypatch, large) for name in ("lists", "single"))
    p, g, m = drawn([torch.float32, torch.bfloat16] if large else [torch.float32])
    q, n = ([t.new_zeros(2 * t.numel() + 4).as_strided(t.shape, t.stride(), t.data_ptr() // 4 % 4).copy_(t) for t in own] for own in (p, m))
    for lr in (0.5, 2.0):
        lists.launcher.launched.clear()
        y = lists.kernel.foreach(p, g, m, lr)
        want = [single.kernel(*own, lr) for own in zip(q, g, n, strict=True)]
        for a, b in zip((*y, *p, *m), (*want, *q, *n), strict=True):
            assert a.shape == b.shape and torch.equal(a, b)
        assert all(expression.startswith(("step_each", "step__each")) for expression, _ in lists.launcher.launched)
        kinds = [expression for expression, _ in lists.launcher.launched]
        assert len(kinds) < len(p) / 2 and len(set(kinds)) == len(kinds), kinds


@emulates
def test_64_bit_indices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels of tensors beyond what 32 bits count, on tensors that a test can have."""

    def wide(*args: Any) -> map_plans.Plan | None:
        made = map_plans.plan(*args)
        return made and replace(made, variant=made.variant._replace(wide=True))

    monkeypatch.setattr(map_plans, "cached_plan", wide)
    lists, single = (Emulates(STEP, tmp_path / name, monkeypatch) for name in ("lists", "single"))
    (p, g, m), (q, _, n) = drawn([torch.float32]), drawn([torch.float32])
    y = lists.kernel.foreach(p, g, m, 0.5)
    want = [single.kernel(*own, 0.5) for own in zip(q, g, n, strict=True)]
    assert all(torch.equal(a, b) for a, b in zip((*y, *p, *m), (*want, *q, *n), strict=True))
    assert all("u64" in expression for expression, _ in lists.launcher.launched)


@emulates
@pytest.mark.parametrize("large, launches", [(False, 3), (True, 1)])
def test_more_tensors_than_a_small_table_has_room_for(large: bool, launches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Emulates("twice(x: f32[...]) -> y: f32[...]\ny = x * 2", tmp_path / "twice", monkeypatch, large)
    xs = [torch.randn(k % 7 * 300 + 1) for k in range(300)]
    assert all(torch.equal(y, 2 * x) for x, y in zip(xs, made.kernel.foreach(xs), strict=True))
    assert sum(grid for _, grid in made.launcher.launched) > 600 and len(made.launcher.launched) == launches


@emulates
def test_positions_sizes_shared_tensors_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists, single = (Emulates(MIX, tmp_path / name, monkeypatch) for name in ("lists", "single"))
    shapes = [(3, 5), (5,), (600,), (600,), (2, 2, 5), (5,)]
    xs, ws = [torch.randn(s) for s in shapes], [torch.randn(s[-1]) for s in shapes]
    for a in (1.5, [1.0, 2.0, 1.0, 1.0, -0.0, 0.0]):
        lists.launcher.launched.clear()
        s = torch.tensor(3.0)
        for k, y in enumerate(lists.kernel.foreach(xs, ws, s, a)):
            assert torch.equal(y, single.kernel(xs[k], ws[k], s, a[k] if isinstance(a, list) else a))
        assert len(lists.launcher.launched) == (3 if a == 1.5 else 5)  # the rows of 5 side by side, alone, and those of 600
