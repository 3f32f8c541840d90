"""Maps that read operands across the result's neighbours: CUDA's tiles, run on the CPU, give the bits that any other order gives."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen import grad  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.backends.cuda import Layout  # noqa: E402
from kgen.ir import Broken  # noqa: E402
from kgen.parts import over_parts  # noqa: E402
from kgen.runtime import tiles  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

#: Channels as pixels, the way back, two transpositions.
ORDERS = ("A, D, B, E, C", "A, B, E, C, D", "E, D, C, B, A", "A, B, C, E, D")
#: What is computed rides on it: of two turned operands, parameters of rows and columns, one that lies as the result does; two results.
MIXED = """mixed(x: T[B, N, M], g: T32[B, N, M], s: T[M], b: T32[N], z: T[B, M, N]) -> (y: T[B, M, N], h: T32[B, M, N])
h = x * sigmoid(x) * s + b * z
y = h - g * exp(-x^2)
"""


def sizes(rng: random.Random, dims: int, most: int) -> list[int]:
    """Sizes of dims, at most so many elements together."""
    while True:
        found = [rng.choice((1, 2, 2, 3, 4, 5, 8, 16, 24, 40, 72)) for _ in range(dims)]
        if torch.Size(found).numel() <= most:
            return found


def some(rng: random.Random, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor: dense, with gaps between its rows, or one that begins anywhere."""
    gap = rng.choice((0, 0, 0, 8, 1))
    whole = torch.randn(*shape[:-1], shape[-1] + gap)
    whole.flatten()[:: rng.choice((7, 1000))] = rng.choice((torch.nan, torch.inf, -0.0, 1e-42))
    begin = rng.choice((0, gap))
    return whole.to(dtype)[..., begin : begin + shape[-1]]


def bits(x: torch.Tensor) -> torch.Tensor:
    """A tensor's bits, those of every NaN the same."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.where(x.isnan(), torch.full_like(x, torch.nan), x).contiguous().view(whole)


@pytest.mark.parametrize("order", ORDERS)
def test_elements_are_where_a_permutation_puts_them(order: str, tmp_path: Path) -> None:
    """Any sizes, dtypes and gaps, of results too, between whose rows nothing is written."""
    rng = random.Random(order)
    torch.manual_seed(0)
    calls = [some(rng, sizes(rng, 5, 20000), rng.choice((torch.bfloat16, torch.float32, torch.float64))) for _ in range(24)]
    calls += [some(rng, [2, 3, 8, 2, 1100], torch.bfloat16), some(rng, [1, 2, 130, 3, 70], torch.float32)]  # more than a tile along dims
    run = Emulated(f"moved(x: T[A, B, C, D, E]) -> y: T[{order}]\ny = x\n", tmp_path, *[(x,) for x in calls])
    assert sum("_tiles<" in name for name in run.expressions) >= 4, run.expressions
    axes = ["ABCDE".index(d) for d in order.split(", ")]
    for x in calls:
        assert torch.equal(bits(run(x)["y"]), bits(x.permute(axes))), (x.shape, x.stride(), x.dtype)


def test_bytes_and_bools(tmp_path: Path) -> None:
    torch.manual_seed(0)
    calls = [(torch.randint(-128, 128, shape, dtype=torch.int8), torch.rand(shape) < 0.5) for shape in ((208, 304), (3, 1024), (65, 70), (80, 5))]
    run = Emulated("bytes(x: i8[N, M], b: bool[N, M]) -> (y: i8[M, N], c: bool[M, N])\ny = x\nc = b\n", tmp_path, *calls)
    assert any("_tiles<3, 16," in name for name in run.expressions), run.expressions
    for x, b in calls:
        found = run(x, b)
        assert torch.equal(found["y"], x.T) and torch.equal(found["c"], b.T), x.shape


def test_results_with_gaps_between_their_rows(tmp_path: Path) -> None:
    x, room = torch.randn(3, 40, 72), torch.full((3, 72, 48), 3.0)
    run = Emulated("moved(x: T[B, N, M]) -> y: T[B, M, N]\ny = x\n", tmp_path, (x,))
    run(x, out=room[..., :40])
    assert run.expressions == ["moved_tiles<float, 3, 4, unsigned, true>"]
    assert torch.equal(room[..., :40], x.mT) and bool((room[..., 40:] == 3).all())


def test_what_is_computed_has_the_bits_that_it_has_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    torch.manual_seed(0)
    calls = []
    for dtype, wide in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)):
        for b, n, m in ((2, 72, 136), (1, 33, 5), (3, 2, 64), (2, 8, 300), (1, 100, 2)):
            shapes = ([b, n, m], [b, n, m], [m], [n], [b, m, n])
            calls.append(tuple(some(rng, s, t) for s, t in zip(shapes, (dtype, wide, dtype, wide, dtype), strict=True)))
    (tmp_path / "tiles").mkdir()
    run = Emulated(MIXED, tmp_path / "tiles", *calls)
    assert {name.split("<")[0] for name in run.expressions} == {"mixed_tiles"}, run.expressions
    found = [run(*args) for args in calls]
    monkeypatch.setattr(tiles, "cached", lambda *_: None)
    (tmp_path / "plain").mkdir()
    plain = Emulated(MIXED, tmp_path / "plain", *calls)
    for args, own in zip(calls, found, strict=True):
        other = plain(*args)
        assert all(torch.equal(bits(own[name]), bits(other[name])) for name in ("y", "h")), args[0].shape


def test_which_maps_have_tiles() -> None:
    """Those that have an operand with the result's last dim elsewhere than last; a gradient as what it is the gradient of."""

    def turned(kernel: kgen.check.Kernel) -> list[int]:
        return [unit.turned for unit in backend("cuda").layout(over_parts(kernel)) if isinstance(unit, Layout)]

    def read(text: str) -> kgen.check.Kernel:
        return kgen.check.check(kgen.syntax.parse(text, "f.k"))

    shuffled = read("f(x: T[B, C, P, Q, H, W], s: f32[]) -> y: T[B, C, H, P, W, Q]\ny = silu(x) * s")
    assert turned(shuffled) == [1]
    back = turned(grad.backward(shuffled, wanted=("x",)).kernel)
    assert len(back) == 1 and back != [0]
    assert turned(read("f(x: T[B, S, H, D]) -> y: T[B, H, S, D]\ny = x")) == [0]
    assert turned(read("f(x: T[..., N], w: T[N], b: f32[...]) -> y: T[..., N]\ny = x * w + b")) == [0]
    assert turned(read("f(x: T[N, M]) -> y: T[M, N]\ny = x * index[N]")) == [0]


def test_tiles_that_break_a_rule_are_refused() -> None:
    made = tiles.plan((136, 72), ((1, 136), (72, 1)), (2, 2), (0, 0), 1)
    assert made is not None and made.variant == (3, 8, True) and made.extents == (1, 64, 64) and made.grid == 6
    broken = {
        "room": replace(made, extents=(2, 64, 64)), "empty": replace(made, extents=(1, 64, 72), sizes=(1, 64, 64)), "columns": replace(made, each=3),
        "in its place": replace(made, mask=15), "16 bytes": replace(made, variant=made.variant._replace(vec=16)),
        "aligned": replace(made, strides=((0, 1, 136), (0, 72, 2))),
    }  # fmt: skip
    for found in broken.values():
        with pytest.raises(Broken):
            tiles.verify(found, (2, 2), (0, 0), 1)
    with pytest.raises(Broken, match="aligned"):
        tiles.verify(made, (2, 2), (2, 0), 1)
    assert tiles.plan((2**16, 2**16), ((1, 2**16), (2**16, 1)), (2, 2), (0, 0), 1) is None  # more than 32 bits count
