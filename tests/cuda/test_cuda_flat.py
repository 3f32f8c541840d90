"""Maps whose rows are no whole vectors, beside parameters: vectors of neighbours in memory, run on the CPU, give the bits that one by one do."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import backend  # noqa: E402
from kgen.backends.cuda_layouts import FLAT, LONG, TINY, TOLD  # noqa: E402
from kgen.ir import Broken  # noqa: E402
from kgen.runtime import maps  # noqa: E402
from kgen.runtime.verified import verify_map  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: Parameters that stand still along a row, that move along it, of several dims, of none; two results, of two dtypes; an index.
MIXED = """mixed(x: T[A, B, C], m: f32[B], w: T[C], p: T[A, C], q: T[A, B], r: T[A], s: T[], k: bool[C]) -> (y: T[A, B, C], n: i32[A, B, C])

y = ((x - m) * w + p) * q - r * s if k else x + s
n = i32(index[C] * 1000 + index[B] * 3 + i64(k))
"""


def bits(x: torch.Tensor) -> torch.Tensor:
    """A tensor's bits, those of every NaN the same."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return torch.where(x.isnan(), torch.full_like(x, torch.nan), x).contiguous().view(whole) if x.is_floating_point() else x


def is_flat(expression: str) -> bool:
    """Whether a kernel's vectors are neighbours in memory, by its SPLAT."""
    return any(part.endswith("ull") and int(part.removesuffix("ull")) >= FLAT for part in expression.rstrip(">").split(", "))


def drawn(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Operands of MIXED, with infinities and NaN among them; parameters may lie apart, along a row as well."""
    a, b, c = shape
    x, m, w, p, q, r, s = (torch.randn(own) for own in (shape, (b,), (c,), (a, c), (a, b), (a,), ()))
    x.flatten()[:: rng.choice((7, 100))] = rng.choice((torch.nan, torch.inf, -0.0, 1e-42))
    far = torch.randn(a, 3 * b)[:, ::3]
    x, w, p, q, r, s = (t.to(dtype) for t in (x, w, p, rng.choice((q, far)), r, s))
    w = torch.stack([w, w], -1)[..., 0] if rng.random() < 0.4 else w
    return x, m, w, p, q, r, s, torch.rand(c) < 0.5


def test_vectors_of_neighbours_have_the_bits_of_elements_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of any length: shorter than a vector, longer, of one element, and so that the last vector is none."""
    rng = random.Random(0)
    torch.manual_seed(0)
    shapes = [(3, 5, 49), (2, 7, 3), (4, 3, 1), (1, 9, 5), (5, 1, 7), (2, 2, 11), (1, 1, 13), (7, 3, 2), (2, 3, 1001), (3, 4, 6), (9, 2, 20)]
    calls = [drawn(rng, shape, dtype) for shape in shapes for dtype in (torch.bfloat16, torch.float32, torch.float64)]
    (tmp_path / "one").mkdir()
    run = Emulated(MIXED, tmp_path, *calls)
    flat = [name for name in run.expressions if is_flat(name)]
    assert len(flat) >= 4 and {name.split("<")[1].split(",")[0] for name in flat} == {"bf16", "float"}, run.expressions  # of f64 two at most
    assert any(f"{FLAT | TOLD}ull" in name for name in flat) and any(f"{FLAT | TOLD}ull" not in name for name in flat), flat
    found = [run(*args) for args in calls]
    monkeypatch.setattr(maps, "_flat", lambda *_: 1)
    maps.cached_plan.cache_clear()
    single = Emulated(MIXED, tmp_path / "one", *calls)
    wanted = [single(*args) for args in calls]
    maps.cached_plan.cache_clear()
    assert not any(map(is_flat, single.expressions))
    for args, got, want in zip(calls, found, wanted, strict=True):
        for name in ("y", "n"):
            assert torch.equal(bits(got[name]), bits(want[name])), (name, args[0].shape, args[0].dtype)


def test_each_element_is_what_its_formula_says(tmp_path: Path) -> None:
    """Images with their channels last and first, and rows of a number of classes that is odd."""
    images, mean, std = torch.randint(0, 256, (2, 5, 7, 3), dtype=torch.uint8), torch.rand(3) + 100, torch.rand(3) + 50
    last = Emulated("norm(x: u8[B, H, W, C], m: f32[C], s: f32[C]) -> y: f32[B, H, W, C]\n\ny = (f32(x) - m) / s\n", tmp_path, (images, mean, std))
    assert [name.split("<")[1] for name in last.expressions] == [f"2, 4, unsigned, {FLAT | TINY}ull, 1>"]
    assert torch.equal(last(images, mean, std)["y"], (images - mean) / std)
    assert not torch.equal(last(images, mean, std)["y"][..., 0], (images - mean[1]) / std[1])


def test_what_does_not_lie_so_is_taken_one_by_one() -> None:
    """A result with gaps between its rows, one that begins within a vector, one too far for a step of 31 bits, and rows that are whole
    vectors all the same."""
    sizes, dense, along = (6, 49), (49, 1), (0, 1)
    def variant(strides, addresses=(0, 0, 0), sizes=sizes, otherwise=2) -> tuple[int, int]:
        made = maps.plan(sizes, strides, (2, 2, 2), addresses, otherwise=otherwise)
        assert made is not None
        return made.variant.vec, made.variant.splat

    assert variant((dense, along, dense)) == (8, FLAT) and variant((dense, (1, 0), dense)) == (8, FLAT | 2)
    assert variant((dense, (0, 2), dense)) == (8, FLAT | TOLD) and variant(((257, 1), along, (257, 1)), sizes=(6, 257)) == (8, FLAT | LONG)
    assert variant((dense, along, dense), otherwise=0) == (1, 0)
    assert variant((dense, along, (64, 1))) == (1, 0) and variant(((64, 1), along, dense)) == (1, 0)
    assert variant((dense, along, dense), (2, 0, 0)) == (1, 0) and variant((dense, along, dense), (0, 2, 0)) == (8, FLAT)
    assert variant(((2**16 + 1, 1), along, (2**16 + 1, 1)), sizes=(2**15, 2**16 + 1)) == (1, 0)
    assert variant(((48, 1), along, (48, 1)), sizes=(6, 48))[1] < FLAT


def test_a_plan_that_is_no_flat_one_breaks() -> None:
    given = (6, 49), ((49, 1), (0, 1), (49, 1)), (2, 2, 2), (0, 0, 0)
    made = maps.plan(*given, otherwise=2)
    assert made is not None and made.variant.splat == FLAT
    verify_map(made, *given, 2)
    for worse in ((*given, 0), (given[0], given[1], given[2], (4, 0, 0), 2), (given[0], given[1], (4, 2, 2), (0, 0, 0), 2)):
        with pytest.raises(Broken):
            verify_map(made, *worse)


def test_only_what_lacks_dims_may_lie_otherwise() -> None:
    """Not the operands of a map that draws numbers, or of one over neighbours."""
    def otherwise(text: str) -> int:
        (unit,) = backend("cuda").layout(kgen.loads(text).kernel)
        return unit.otherwise

    assert otherwise("f(x: T[M, N], b: T[N]) -> y: T[M, N]\n\ny = x + b\n") == 2
    assert otherwise("f(x: T[M, N]) -> y: T[M, N]\n\ny = x * T(index[N])\n") == 2
    assert otherwise("f(x: T[M, N], s: T[N], seed: i64[]) -> y: T[M, N]\n\ny = x * s if bernoulli[M, N](0.5, seed, 1) else 0\n") == 0
    assert otherwise("f(x: T[M, N], s: T[N]) -> y: T[M, N]\n\ny = x[N = index[N] - 1 else 0] * s\n") == 0
