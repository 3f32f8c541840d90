"""Rows that are no whole vectors and move by way of shared memory, a block's as one piece: run on the CPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.compiled import compile_call  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

#: A held row beside parameters; one that is read once; two operands, one of which is read once; one that is written in place.
NORM = "norm(x: T[..., N], w: T[N]) -> y: T[..., N]\n\nd = x - mean[N](x)\ny = d * rsqrt(mean[N](d^2) + 0.1) * w\n"
LOSS = "loss(x: T[..., N]) -> y: f32[...]\n\nm = max[N](x)\ny = f32(m) + log(sum[N](exp(f32(x) - f32(m))))\n"
GATE = "gate(x: T[..., N], g: T[..., N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e) * g\n"
PLACE = "place(x: T[..., N]) -> x': T[..., N]\n\nx' = x / (1 + sum[N](abs(x)))\n"
NAMES = {NORM: "xw", LOSS: "x", GATE: "xg", PLACE: "x"}
#: One by one, two by two and four by four (in 16 bits), by teams of all sizes.
LENGTHS = (7, 25, 33, 50, 77, 100, 197, 257, 601, 895)
ROWS = 133  # more than a block takes, and some of a block's are not there
#: Each in one of the dtypes by default.
CASES = [
    pytest.param(text, dtype, id=f"{text[: text.index('(')]}-{dtype}", marks=() if (k + d) % 2 else pytest.mark.slow)
    for k, text in enumerate((NORM, LOSS, GATE, PLACE)) for d, dtype in enumerate((torch.float32, torch.bfloat16))
]  # fmt: skip


def staged(kernel: Emulated) -> set[tuple[int, int]]:
    """The teams and the elements of a vector of launches whose rows move so."""
    found = (re.search(r"Walk<\d+, \d+, (\d+), \w+, \d+, (\d+), false, \w+, \d+, false, 7,", e) for e in kernel.expressions)
    return {(int(m[1]), int(m[2])) for m in found if m}


def given(text: str, dtype: Any, n: int, rows: int = ROWS) -> tuple[Any, ...]:
    x = torch.randn(rows, n).to(dtype)
    return (x, torch.randn(n).to(dtype)) if text is NORM else (x, torch.randn(rows, n).to(dtype)) if text is GATE else (x,)


@pytest.mark.parametrize("text, dtype", CASES)
def test_staged_rows_stay_within_their_bounds(text: str, dtype: Any, tmp_path: Path) -> None:
    """Dense, apart, and beginning anywhere; a row has the same bits alone and among others, and wherever it lies."""
    torch.manual_seed(0)
    checked = kgen.loads(text).kernel
    calls, alike = [], []
    for n in LENGTHS:
        args = given(text, dtype, n, ROWS if n < 300 else 21)
        wide = torch.zeros(len(args[0]), n + 3, dtype=dtype)
        wide[:, 1 : n + 1] = args[0]
        calls.append(args)
        alike.append((wide[:, 1 : n + 1], *args[1:]))
    alone = [tuple(t[17:18].clone() if t.dim() > 1 else t for t in call) for call in calls]
    kernel = Emulated(text, tmp_path, *[tuple(t.clone() for t in call) for call in calls], *alike, *alone)
    assert {team for team, _ in staged(kernel)} == {1, 2, 4, 8, 16, 32}, kernel.expressions
    assert {vec for _, vec in staged(kernel)} == ({1, 2} if dtype is torch.float32 else {1, 2, 4})
    for call, apart, single in zip(calls, alike, alone, strict=True):
        (want,) = Analysis(checked, {k: t.clone() for k, t in zip(NAMES[text], call, strict=True)}, "cuda").results()
        (made,) = kernel(*(t.clone() for t in call)).values()
        assert bool((made.double() - want.exact).abs().le(want.bound).all()), call[0].shape
        assert torch.equal(next(iter(kernel(*single).values())), made[17:18]), call[0].shape
        whole = call[0].shape[-1] * dtype.itemsize % 16 == 0  # then rows that lie apart are walked otherwise
        assert whole or torch.equal(next(iter(kernel(*apart).values())), made), call[0].shape


def test_a_row_knows_nothing_of_its_neighbours(tmp_path: Path) -> None:
    """What is no number stays in its own row, all others keep to their bounds, and what lies behind a result is not written."""
    torch.manual_seed(0)
    checked, ordinary = kgen.loads(GATE).kernel, [r for r in range(ROWS) if r not in (3, 5, 7, ROWS - 1)]
    for n in (25, 33, 150):
        x = torch.randn(ROWS, n).bfloat16()
        x[3], x[5, 0], x[7, n - 1], x[ROWS - 1, n - 1] = float("nan"), float("inf"), float("-inf"), float("nan")
        folder = tmp_path / str(n)
        folder.mkdir()
        room = torch.full((ROWS * n + 64,), 7.0).bfloat16()
        out = room[: ROWS * n].view(ROWS, n)
        kernel = Emulated(GATE, folder, (x, torch.ones_like(x)))
        kernel(x, torch.ones_like(x), out=out)
        assert torch.equal(out.isnan(), torch.softmax(x.float(), -1).isnan())
        others = x[ordinary]
        (want,) = Analysis(checked, {"x": others, "g": torch.ones_like(others)}, "cuda").results()
        assert bool((out[ordinary].double() - want.exact).abs().le(want.bound).all())
        assert bool(room[ROWS * n :].eq(7).all())


BIASED = "biased(x: T[B, H, M, N], k: T[H, M, N]) -> y: T[B, H, M, N]\n\ns = x * 0.5 + k\ne = exp(s - max[N](s))\ny = e / sum[N](e)\n"


def test_rows_of_several_dims_without_gaps_are_one_piece(tmp_path: Path) -> None:
    """Attention within windows, beside a bias that all of these share: what lies apart has the same bits."""
    torch.manual_seed(0)
    calls = [(torch.randn(b, h, n, n).bfloat16(), torch.randn(h, n, n).bfloat16()) for b, h, n in ((3, 2, 49), (5, 3, 25))]
    apart = [(torch.randn(b, h, n + 1, n).bfloat16()[:, :, :n], k) for (x, k) in calls for b, h, n in [x.shape[:3]]]
    for (x, _), (y, _) in zip(calls, apart, strict=True):
        y.copy_(x)
    kernel = Emulated(BIASED, tmp_path, *calls, *apart)
    pieces = [int(e.split("Walk<")[1].split(", ")[7].removesuffix("ull")) >> 32 for e in kernel.expressions]
    assert staged(kernel) == {(1, 1), (2, 1)} and {*pieces} == {0b101, 0b100}, kernel.expressions
    for call, other in zip(calls, apart, strict=True):
        (want,) = Analysis(kernel.kernel, dict(zip("xk", call, strict=True)), "cuda").results()
        made = kernel(*call)["y"]
        assert bool((made.double() - want.exact).abs().le(want.bound).all()) and torch.equal(kernel(*other)["y"], made)


def test_whole_vectors_few_of_them_and_long_rows_go_elsewhere(tmp_path: Path) -> None:
    """Rows of whole 16-byte vectors, those with few vectors of less, and those beyond 896 elements."""
    calls = [(torch.zeros(64, n, dtype=torch.bfloat16), torch.zeros(n, dtype=torch.bfloat16)) for n in (5, 12, 24, 64, 897)]
    assert not staged(Emulated(NORM, tmp_path, *calls))


def test_the_term_of_a_label_is_found_among_staged_ones(tmp_path: Path) -> None:
    """An element that is looked up, and one that is left out, beside sums about a peak."""
    torch.manual_seed(0)
    text = (Path(__file__).parents[2] / "specs" / "cross_entropy_dx.k").read_text()
    checked = kgen.loads(text).kernel
    calls = [(torch.randn(21, n).bfloat16(), torch.randint(0, n, (21,))) for n in (33, 50, 257)]
    kernel = Emulated(text, tmp_path, *calls)
    assert {team for team, _ in staged(kernel)} == {1, 2, 8}
    for call in calls:
        given = {"x": call[0], "t": call[1], "scale": 1.0, "ignore": -100}
        made = kernel(*call)
        for r, want in zip(checked.results, Analysis(checked, given, "cuda").results(), strict=True):
            assert bool((made[r.name].double() - want.exact).abs().le(want.bound).all()), (r.name, call[0].shape)


#: Of each kind one: an element looked up, codes of bytes, positions, words drawn, a value made once, several operands, a search.
SOME = ("cross_entropy_dx", "row_absmax_int8", "argmax", "dropout_add_rmsnorm", "softcap_softmax", "gated_rmsnorm", "entropy")
SPECS = sorted(path.stem for path in (Path(__file__).parents[2] / "specs").glob("*.k"))


@pytest.mark.parametrize("name", [n if n in SOME else pytest.param(n, marks=pytest.mark.slow) for n in SPECS])
def test_staged_rows_of_every_spec_compile(name: str) -> None:
    """For an sm_90, in 16 bits, where all of its dims have 33 elements."""
    kernel, given, dtypes = kgen.load(name), dict[str, Any](), {"i64": torch.int64, "i32": torch.int32, "f32": torch.float32, "T32": torch.float32}
    for p in kernel.kernel.params:
        if p.is_tensor:
            shape = [40 if str(d) == "..." else int(str(d)) if str(d).isdigit() else 33 for d in p.dims]
            given[p.name] = torch.zeros(shape, dtype=dtypes.get(p.dtype, torch.bfloat16))
        elif p.default is None:
            given[p.name] = 1
    compile_call(kernel, given, ("cuda",))
