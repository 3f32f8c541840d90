"""CUDA kernels that overwrite what they read, run on the CPU (see `emulated.py`): in whichever launches and pieces a row is taken, the
bits are those of the same kernel that writes elsewhere."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tests.cuda.emulated import Emulated  # noqa: E402
from tests.runtime.plans import EDGES  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: A reading with sums about a maximum, one that follows from it, and one that stores.
TEXT = """f(x: f32[..., N], w: f32[N]) -> ({x}: f32[..., N], s: f32[...], i: i64[...])

e = exp(x - max[N](x))
s = sum[N](e)
m = sum[N]((e / s) ^ 2)
i = argmax[N](x)
{x} = e / s + m * w
"""


def drawn(count: int) -> list[torch.Tensor]:
    """Few rows and many, dense, beginning anywhere, side by side; always few long rows, which several launches share."""
    rng = random.Random(3)
    made = [torch.randn(1, 28_000), torch.randn(2, 28_003), torch.randn(3, 20_001)[:, 1:]]
    while len(made) < count:
        n = min(rng.choice(EDGES), 5000) + rng.choice((0, 0, 1, -3))
        rows = rng.choice((1, 3, 40)) if n < 2000 else 2
        layout = rng.choice(("dense", "offset", "across"))
        x = torch.randn(n, rows).t() if layout == "across" else torch.randn(rows, n + (layout == "offset"))
        made.append(x[:, 1:] if layout == "offset" else x)
    return made


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Emulated, Emulated, list[torch.Tensor]]:
    torch.manual_seed(0)
    given = drawn(9)
    folder: Path = tmp_path_factory.mktemp("in_place")
    calls = [(x, torch.ones(x.shape[-1])) for x in given]
    made = []
    for name in ("x'", "y"):
        (folder / name.rstrip("'")).mkdir()
        made.append(Emulated(TEXT.format(x=name), folder / name.rstrip("'"), *calls))
    return made[0], made[1], given


def test_a_row_that_is_overwritten_is_read_by_nobody_later(kernels: tuple[Emulated, Emulated, list[torch.Tensor]]) -> None:
    inside, outside, given = kernels
    ways = {tuple(e.split("<")[2].split(", ")[k] for k in (2, 3, 6, 9, 10, 12)) for e in inside.expressions}
    assert len(ways) >= 10 and {way[-1] for way in ways} >= {"-1", "0", "1", "2", "3", "4"}
    for x in given:
        w, whole = torch.randn(x.shape[-1]), (x if x._base is None else x._base).clone()
        place = whole.as_strided(x.shape, x.stride(), x.storage_offset())  # aligned alike, which the order goes by
        other, own = outside(x, w), inside(place, w)
        assert own["x'"] is place
        d = x.double()
        p = d.softmax(-1)
        want = p + (p**2).sum(-1, keepdim=True) * w.double()
        assert torch.allclose(other["y"].double(), want, rtol=1e-5, atol=1e-6), x.shape
        assert torch.equal(other["i"], x.argmax(-1))
        for a, b in ((place, other["y"]), (own["s"], other["s"]), (own["i"], other["i"])):
            assert torch.equal(a, b), (x.shape, x.stride())


def test_a_result_may_lie_where_its_operand_does(tmp_path: Path) -> None:
    """Softmax with `out=x` of few long rows: the launch that combines went on into the store, and the next one read what it had written."""
    x = torch.randn(1, 28_000, generator=torch.Generator().manual_seed(0))
    kernel = Emulated((Path(__file__).parents[2] / "specs" / "softmax.k").read_text(), tmp_path, (x,))
    assert len(kernel.expressions) == 3
    want, place = kernel(x)["y"], x.clone()
    kernel(place, out=place)
    assert torch.equal(place, want)
    assert torch.allclose(want.double(), x.double().softmax(-1), rtol=1e-5, atol=0)


def test_a_row_s_value_that_is_overwritten_is_read_by_nobody_later(tmp_path: Path) -> None:
    text = "f(x: f32[M, N], r: f32[M]) -> (y: f32[M], z: f32[M])\ny = r + sum[N](x)\nz = sum[N]((x - y) ^ 2) + r"
    x, r, z = torch.randint(-3, 4, (2, 28_000)).float(), torch.ones(2), torch.empty(2)
    kernel = Emulated(text, tmp_path, (x, r))
    want = kernel(x, r)
    kernel(x, r, out=(r, z))
    assert torch.equal(r, want["y"]) and torch.equal(z, want["z"])
