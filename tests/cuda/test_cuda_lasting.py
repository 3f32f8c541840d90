"""Values of elements that several readings of a row need, made once where it stays on the chip: run on the CPU (see `emulated.py`), in
registers, in the place of the operands that they are made of, and anew, the same bits within the derived bound."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import launches  # noqa: E402
from kgen.backends.launches import ANY, Rule  # noqa: E402
from kgen.runtime import rows  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

#: A value of two operands that nothing else reads, of one, and of two of which one is read again.
GATED = "f(x: T[..., N], z: T[..., N], w: T[N]) -> y: T[..., N]\n\nh = x * silu(z)\ny = h * rsqrt(mean[N](h^2) + 0.001) * w\n"
CAPPED = "f(x: T[..., N], z: T[..., N], w: T[N]) -> y: T[..., N]\n\nc = 5 * tanh(x / 5)\ny = softmax[N](c) * z + w\n"
AGAIN = "f(x: T[..., N], z: T[..., N], w: T[N]) -> y: T[..., N]\n\nh = x * silu(z)\ny = h * rsqrt(mean[N](h^2) + 0.001) * w + x\n"
BEFORE = dict(launches.RULES)
TEXTS = {"gated": GATED, "capped": CAPPED, "again": AGAIN}


@pytest.fixture
def planned_anew() -> Iterator[None]:
    """Plans by other rules stay in no cache."""
    yield
    rows.cached.cache_clear()


def test_planners_and_kernels_agree_what_registers_hold() -> None:
    source = (Path(__file__).parents[2] / "templates" / "cuda" / "functions" / "lasting.cu").read_text()
    assert re.findall(r"BYTES <= (\d+)", source) == [str(launches.CROWDED)]


@pytest.mark.parametrize("text, how", [(GATED, "true, false"), (CAPPED, "true, true"), (AGAIN, "false, false")], ids=TEXTS)
def test_readings_take_a_dear_value_itself(text: str, how: str) -> None:
    source = kgen.loads(text).source("cuda")
    name = "c" if text is CAPPED else "h"
    assert f"auto {name}_row = lasting<Walk, F, {how}>(walk, {name}_of" in source and f"{name}_row.done = true;" in source


def test_nothing_dear_is_computed_beside_what_is_remembered() -> None:
    """The exponential is dearer than the tanh that it is of, which one reading needs as well: that one is remembered."""
    source = kgen.loads("f(x: T[..., N]) -> y: T[..., N]\n\nt = tanh(x)\ne = exp(t)\ny = e / sum[N](e * t)\n").source("cuda")
    assert "auto t_row = lasting<Walk, F, true, true>(walk, t_of" in source and source.count("lasting<Walk, F") == 1


def test_a_quotient_by_a_number_waits_in_registers_alone() -> None:
    """It takes three instructions: shared memory keeps a reading longer."""
    source = kgen.load("temperature_softmax").source("cuda")
    assert "lasting<Walk, F, true, false>(walk" in source and "uniform_quotient(x, by_temperature)" in source


@pytest.mark.parametrize("body", ["x * rsqrt(mean[N](x^2))", "softmax[N](2 * x)", "softmax[N](x)", "exp(x) / sum[N](x)"])
def test_what_is_cheap_or_read_once_is_not_remembered(body: str) -> None:
    assert "lasting<" not in kgen.loads(f"f(x: T[..., N]) -> y: T[..., N]\n\ny = {body}\n").source("cuda")


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("name", TEXTS)
def test_a_value_is_the_same_wherever_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned_anew: None, name: str) -> None:
    """By 2 vectors a thread they wait in registers, by 16 (more than these have room for) in shared memory: where their operands were, if
    nothing else reads these and there is room, else beside them.  In rows that are read each time they are made
    anew.  One build has the kernels of all."""
    torch.manual_seed(5)
    calls: dict[torch.dtype, list[tuple[torch.Tensor, ...]]] = {torch.float32: [], torch.bfloat16: []}
    for (dtype, own), (count, n, offset) in product(calls.items(), ((3, 1024, 0), (2, 1021, 0), (2, 997, 3), (1, 64, 0))):
        x, z = (torch.randn(count, n + offset)[:, offset:].to(dtype) for _ in range(2))
        own.append((x, z, torch.randn(n).to(dtype)))
    checked = kgen.loads(TEXTS[name]).kernel
    wanted = {
        dtype: [Analysis(checked, dict(zip("xzw", args, strict=True)), "cuda").results()[0] for args in own] for dtype, own in calls.items()
    }
    ways = [(vectors, where) for vectors in (2, 16) for where in ("loop", "shared", "registers")[: 3 if vectors == 2 else 2]]

    def planned_by(vectors: int, where: str) -> None:
        found = Rule(ANY, 512 // vectors, 512 // vectors, vectors, 1, where)
        monkeypatch.setattr(launches, "RULES", {key: (found,) if key == (False, True) else of for key, of in BEFORE.items()})
        rows.cached.cache_clear()

    def asked() -> Iterator[tuple[torch.Tensor, ...]]:
        for way in ways:
            planned_by(*way)
            yield from chain(*calls.values())

    kernel = Emulated(TEXTS[name], tmp_path, later=asked())
    got: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
    for (dtype, own), (vectors, where) in product(calls.items(), ways):
        planned_by(vectors, where)
        kernel.launched.clear()
        made = [kernel(*args)["y"] for args in own]
        keep = {"registers": "1", "shared": "2", "loop": "0"}[where]
        assert len(kernel.launched) == len(own)
        assert all(e.split("Walk<", 1)[1].split(", ")[10] == keep for e in kernel.launched), kernel.launched
        for y, want in zip(made, wanted[dtype], strict=True):
            assert bool((y.double() - want.exact).abs().le(want.bound).all()), (where, vectors, y.shape)
        if where == "loop":
            got[vectors, dtype] = made
        assert all(map(torch.equal, made, got[vectors, dtype])), (where, vectors, dtype)
