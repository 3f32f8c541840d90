"""Rows of several dims that are one piece of memory, beside parameters of the outer ones: vectors go over the ends of the innermost; run on the CPU."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends.launches import STAGED  # noqa: E402
from kgen.runtime import arguments, nvrtc, rows, strided  # noqa: E402
from kgen.runtime.limits import limits  # noqa: E402
from kgen.runtime.strided import RELEASES, STRADDLES, RowOperandPlace  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402
from tests.cuda.test_cuda_rows import visited  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: A norm of groups of channels; a sum of few of which each has a weight; two operands, one of three dims, beside parameters of two kinds.
GROUPS = "groups(x: T[B, G, C, S], w: T[G, C], b: T32[G, C]) -> y: T[B, G, C, S]\n\nd = x - mean[C, S](x)\ny = d * rsqrt(mean[C, S](d^2) + 0.1) * w + b\n"
WEIGHED = "weighed(x: T[B, C, S], w: T[C]) -> y: T32[B]\n\ny = sum[C, S](x * w)\n"
CUBES = "cubes(x: T[B, C, H, S], g: T[B, C, H, S], w: T[B, C, H], v: T[C]) -> y: T[B, C, H, S]\n\ny = (x - mean[C, H, S](x)) * w * g + v\n"
TEXTS = {"groups": GROUPS, "weighed": WEIGHED, "cubes": CUBES}
#: Of x: lines of a vector and a bit, of no whole vectors, of half ones; rows that begin anywhere, some of which are no whole vectors.
SHAPES = {
    "groups": ((3, 2, 16, 49), (5, 2, 3, 49), (2, 3, 5, 9), (2, 2, 8, 196), (1, 2, 31, 333)),
    "weighed": ((5, 16, 49), (3, 7, 13), (2, 31, 333)),
    "cubes": ((3, 4, 5, 11), (2, 2, 3, 101), (1, 6, 9, 49)),
}


def given(name: str, shape: tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
    x = torch.randn(shape).to(dtype)
    if name == "groups":
        return x, torch.randn(shape[1:3]).to(dtype), torch.randn(shape[1:3])
    if name == "weighed":
        return x, torch.randn(shape[1]).to(dtype)
    return x, torch.randn(shape).to(dtype), torch.randn(shape[:3]).to(dtype), torch.randn(shape[1]).to(dtype)


def walks(expressions: list[str]) -> set[tuple[int, bool]]:
    """The elements of a vector, and whether these go over the ends of lines."""
    found = [re.search(r"Walk<([^<>]*)>", e) for e in expressions]
    return {(int(v[5]), bool(int(v[7].removesuffix("ull")) & STRADDLES)) for m in found if m for v in [m[1].split(", ")]}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", TEXTS)
def test_vectors_go_over_the_ends_of_lines_within_their_bounds(name: str, dtype: Any, tmp_path: Path) -> None:
    """A row has the same bits alone; an operand that lies otherwise than the rows begin is read where it is."""
    torch.manual_seed(0)
    calls = [given(name, shape, dtype) for shape in SHAPES[name]]
    wide = 16 // dtype.itemsize
    calls = [call for call in calls if call[0].shape[-1] >= wide]
    alone = [tuple(t[-1:].clone() if t.dim() == call[0].dim() or (name == "cubes" and t.dim() == 3) else t for t in call) for call in calls]
    shifted = []
    for call in calls:
        room = torch.zeros(call[0].numel() + 1, dtype=dtype)[1:]
        shifted.append((room.view(call[0].shape).copy_(call[0]), *call[1:]))
    kernel = Emulated(TEXTS[name], tmp_path, *calls, *alone, *shifted)
    assert (wide, True) in walks(kernel.expressions), kernel.expressions
    names = [p.name for p in kernel.kernel.params if p.is_tensor]
    for call, single, other in zip(calls, alone, shifted, strict=True):
        (want,) = Analysis(kernel.kernel, dict(zip(names, call, strict=True)), "cuda").results()
        made, again = kernel(*call)["y"], kernel(*other)["y"]
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), call[0].shape
        assert bool((again.double() - want.exact).abs().le(want.bound).all()), call[0].shape
        if call[0][0].numel() % wide == 0:  # else a row begins elsewhere within a vector when it is alone
            assert torch.equal(kernel(*single)["y"], made[-1:]), call[0].shape


def ways(text: str, *tensors: Any) -> set[tuple[int, bool]]:
    kernel = kgen.loads(text).kernel
    return walks(nvrtc.expressions(kernel, arguments.bind(kernel, tensors, {}, None), "sm_90"))


def test_what_lies_otherwise_goes_along_lines() -> None:
    """Lines of whole vectors or of less than one, operands with gaps or of the last dim alone, and elements that know their place."""
    along = "along(x: T[B, C, S], w: T[S]) -> y: T[B, C, S]\n\ny = x * w / sum[C, S](x)\n"
    placed = "placed(x: T[B, C, S], w: T[C]) -> y: T[B, C, S]\n\ny = x * w / sum[C, S](x if index[S] < 4 else 0)\n"

    def x(*shape: int) -> Any:
        return torch.empty(shape, dtype=torch.bfloat16)

    assert ways(WEIGHED, x(4, 40, 64), x(40)) == {(8, False)} and ways(WEIGHED, x(4, 40, 49), x(40)) == {(8, True)}
    assert ways(WEIGHED, x(4, 40, 98), x(40)) == {(8, True)} and ways(WEIGHED, x(4, 40, 196), x(40)) == {(4, False)}
    assert ways(WEIGHED, x(4, 40, 7), x(40)) == {(1, False)} and ways(WEIGHED, x(4, 40, 50)[..., :49], x(40)) == {(1, False)}
    assert ways(along, x(4, 40, 49), x(49)) == {(1, False)}
    assert ways(placed, x(4, 40, 49), x(40)) == {(1, False)}


SLOPE = "slope(g: T[B, G, C, S], x: T[B, G, C, S], w: T[G, C], m: T32[B, G]) -> y: T[B, G, C, S]\n\nt = g * w\ny = t + (x - m) * sum[C, S](t * x) + sum[C, S](t)\n"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_what_stands_still_along_lines_takes_no_room_of_a_row(dtype: Any, tmp_path: Path) -> None:
    """A parameter of channels beside two operands that stay on the chip, in rows of whole lines and of others: it is read anew."""
    torch.manual_seed(0)
    calls = []
    for shape in ((3, 2, 8, 64), (2, 2, 8, 49), (2, 2, 40, 64), (2, 3, 5, 33)):
        g, x = (torch.randn(shape).div(8).to(dtype) for _ in range(2))
        calls.append((g, x, torch.randn(shape[1:3]).to(dtype), torch.randn(shape[:2])))
    alone = [tuple(t if t is call[2] else t[-1:].clone() for t in call) for call in calls]
    kernel = Emulated(SLOPE, tmp_path, *calls, *alone)
    found = [re.search(r"Walk<([^<>]*)>", e) for e in kernel.expressions]
    assert all(int(m[1].split(", ")[7].removesuffix("ull")) & RELEASES for m in found if m), kernel.expressions
    for call, single in zip(calls, alone, strict=True):
        (want,) = Analysis(kernel.kernel, dict(zip("gxwm", call, strict=True)), "cuda").results()
        made = kernel(*call)["y"]
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), call[0].shape
        if call[0][0, 0].numel() % 8 == 0:
            assert torch.equal(kernel(*single)["y"], made[-1:]), call[0].shape


def test_what_lends_its_place_stays_on_the_chip() -> None:
    """A value that is made once may take an operand's place, which then has to be there; so may what is written where it was read."""
    sizes, strides = (8, 64), ((64, 1), (1, 0))
    row = RowOperandPlace((512,), (64, 1), 2, 0, True, True, True, 1)
    still = row._replace(row_strides=(8,), strides=(1, 0))
    vec, _, wide = strided.straddling((row, still), (0, 1), 0, sizes, strides, ((512,), (8,)), 512)
    assert vec == 8 and strided.released((row, still), vec, wide, sizes, strides) == {1}
    for other in (still._replace(lends=True), still._replace(state=True)):
        assert not strided.released((row, other), vec, wide, sizes, strides)


def test_drawn_plans_of_such_rows_take_each_element_once() -> None:
    """Rows that are one piece, with gaps between them or none, that begin anywhere, beside what stands still: by the rules, and as walked."""
    seen = 0
    for seed in range(3000):
        rng = random.Random(seed)
        count, lines, line, size = rng.choice((1, 3, 40)), rng.choice((2, 3, 8, 31, 300)), rng.choice((8, 9, 13, 49, 50, 333)), rng.choice((1, 2, 4, 8))
        n = lines * line
        apart = n + rng.choice((0, 0, 1, 16))
        row = RowOperandPlace((apart,), (line, 1), size, rng.randrange(0, 16, size), True, rng.random() < 0.7, True, 1)
        still = RowOperandPlace((lines,), (1, 0), rng.choice((1, 2, 4)), 0, True, rng.random() < 0.5, True, 1)
        asked = rng.choice((1, 2)), rng.random() < 0.7, 1, limits(rng.choice(("sm_80", "sm_90"))), rng.random() < 0.8
        made = rows.plan((count,), (lines, line), (row, still), 0, *asked)
        assert made is not None
        walk = made.steps[0][0]
        if walk.keep == STAGED or walk.rank == 1 or not walk.wide & STRADDLES:
            continue
        seen += 1
        for r in {0, count - 1} if n < 5000 else ():
            assert sorted(visited(made, r)) == list(range(r * apart, r * apart + n)), seed
    assert seen > 500, seen
