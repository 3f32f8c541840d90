"""Sums of which one element of a row is the only term, run on the CPU (see `emulated.py`): a thread reads that element alone, wherever it
lies, and what others hold does not enter."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402
from tests.cuda.test_cuda_in_place import drawn  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: Beside a sum about a peak, in place, and beside sums of products.
ONLINE = """f(x: f32[..., N], t: i64[...], w: float) -> ({x}: f32[..., N], s: f32[...], own: f32[...], h: f32[...])

e = exp(x - max[N](x))
s = sum[N](e)
own = sum[N](x if index[N] == t else 0.0)
h = sum[N](0.0 if t != index[N] else x * w)
{x} = e / s - own
"""
PLAIN = """f(x: f32[..., N], t: i32[...], w: float) -> (s: f32[...], own: f32[...], h: f32[...])

s = sum[N](x^2)
own = sum[N](x if t == index[N] else 0.0)
h = sum[N](x * w if t == index[N] else 0.0)
"""


def places(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A position for each row, of which some lie outside."""
    n, rng = x.shape[-1], random.Random(x.shape[-1])
    return torch.tensor([rng.choice((0, n - 1, rng.randrange(n), rng.randrange(n), -1, n, -(2**31))) for _ in range(x.shape[0])], dtype=dtype)


def term(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """What each row has at its position, 0 outside."""
    inside = (t >= 0) & (t < x.shape[-1])
    return torch.where(inside, x.gather(-1, torch.where(inside, t, 0).long()[:, None])[:, 0], 0.0)


@pytest.fixture(scope="module")
def given() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return drawn(8)


def test_the_term_beside_a_sum_about_a_peak_is_the_element_itself(given: list[torch.Tensor], tmp_path: Path) -> None:
    """Also where the row is overwritten."""
    calls = [(x, places(x, torch.int64), 0.3) for x in given]
    made = []
    for name in ("x'", "y"):
        (tmp_path / name.rstrip("'")).mkdir()
        made.append(Emulated(ONLINE.format(x=name), tmp_path / name.rstrip("'"), *calls))
    inside, outside = made
    assert "picking(t, " in inside.run.source and "enum { PEAK = 0 }" in inside.run.source
    assert {e.split("<")[2].split(", ")[12] for e in inside.expressions} >= {"-1", "0", "1", "2"}
    for x, t, w in calls:
        whole = (x if x._base is None else x._base).clone()
        place = whole.as_strided(x.shape, x.stride(), x.storage_offset())
        other = outside(x, t, w)
        assert torch.equal(other["own"], term(x, t)) and torch.equal(other["h"], term(x * w, t)), x.shape
        d = x.double()
        assert torch.allclose(other["s"].double(), (d - d.amax(-1, keepdim=True)).exp().sum(-1), rtol=1e-5)
        assert torch.allclose(other["y"].double(), d.softmax(-1) - term(d, t)[:, None], rtol=1e-5, atol=1e-6)
        own = inside(place, t, w)
        assert all(torch.equal(own[a], other[b]) for a, b in (("x'", "y"), ("s", "s"), ("own", "own"), ("h", "h"))), x.shape


def test_the_term_beside_sums_of_products(given: list[torch.Tensor], tmp_path: Path) -> None:
    calls = [(x, places(x, torch.int32), 0.3) for x in given]
    kernel = Emulated(PLAIN, tmp_path, *calls)
    assert kernel.run.source.count("(picking(") == 1
    for x, t, w in calls:
        found = kernel(x, t, w)
        assert torch.equal(found["own"], term(x, t)) and torch.equal(found["h"], term(x * w, t)), x.shape
        assert torch.allclose(found["s"].double(), x.double().square().sum(-1), rtol=1e-5)


def test_what_other_elements_are_does_not_enter_and_a_zero_is_positive(tmp_path: Path) -> None:
    x = torch.full((6, 300), torch.nan)
    t = torch.tensor([5, 0, 299, 7, 300, 8])
    for row, (place, value) in enumerate(zip(t.tolist(), (1.5, -torch.inf, torch.nan, -0.0, 0.0, 3e-42), strict=True)):
        x[row, min(place, 299)] = value if place < 300 else torch.nan
    found = Emulated(ONLINE.format(x="y"), tmp_path, (x, t, 0.3))(x, t, 0.3)["own"]
    want = term(x, t) + 0.0
    assert torch.equal(found.nan_to_num(9.0), want.nan_to_num(9.0)) and torch.equal(found.signbit()[3:], torch.zeros(3, dtype=torch.bool))


@pytest.mark.parametrize("equations, picks", [
    ("s = max[N](x) + sum[N](x if index[N] == t else 0.0)", True),
    ("s = max[N](x) + sum[N](0.0 if index[N] != t else x * index[N])", True),
    ("s = max[N](x) + sum[N](x if index[N] <= t else 0.0)", False),  # of several elements
    ("s = max[N](x) + sum[N](0.0 if index[N] == t else x)", False),
    ("s = max[N](x) + sum[N](x if index[N] == t + i64(x) else 0.0)", False),  # each element has another
    ("s = max[N](x) + sum[N](x if index[N] == t else 1.0)", False),
    ("s = sum[N](x if index[N] == t else 0.0)", False),  # needs nothing else of the row: the pass stays one that reads it
    ("s = max[N](x) + max[N](x if index[N] == t else 0.0)", False),
])  # fmt: skip
def test_which_sums_have_one_term(equations: str, picks: bool) -> None:
    source = kgen.loads(f"f(x: f32[..., N], t: i64[...]) -> s: f32[...]\n\n{equations}").source("cuda")
    assert ("(picking(t, " in source) == picks


def test_a_position_along_two_dims_is_no_position_of_a_row() -> None:
    text = "f(x: f32[..., M, N], t: i64[...]) -> s: f32[...]\n\ns = max[M, N](x) + sum[M, N](x if index[N] == t else 0.0)"
    assert "(picking(" not in kgen.loads(text).source("cuda")
