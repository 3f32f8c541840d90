"""Sums by index and over ranges in CUDA: the kernels on the CPU by emulation, the written file by nvcc."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kgen
from kgen.backends import backend
from kgen.backends.launches import Sharing
from kgen.runtime import asides
from kgen.testing.bounds import Analysis
from tests.cuda.emulated import Emulated
from tests.segments.kernels import CASES, close, drawn


@pytest.mark.parametrize("name", ["leading", *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != "leading")])
def test_cuda_agrees_with_f64(name: str, tmp_path: Path) -> None:
    calls = list(drawn(name, torch.float32, ((20, 5, 7), (3, 4, 40), (700, 3, 2))))
    made = Emulated(CASES[name].text, tmp_path, *(arguments for arguments, _ in calls))
    for arguments, want in calls:
        close(tuple(made(*arguments).values()), want, arguments)


def test_a_written_file_sorts_by_itself() -> None:
    kernel = kgen.loads(CASES["lookup"].text).kernel
    text = backend("cuda").render(kernel, {"T": "bf16"})
    assert "cub::DeviceRadixSort" in text.split("#ifndef __CUDACC_RTC__\n#include <cub")[1]


def cut(n: int, size: int) -> tuple[list[int], list[int]]:
    """So many ranges as places at random cut a dim."""
    cuts = torch.randint(0, size, (n + 1,), generator=torch.Generator().manual_seed(3)).sort().values.tolist()
    return cuts[:-1], cuts[1:]


@pytest.mark.parametrize(
    "lo, hi", [([0, 3, 150, 40, 9], [3, 2200, 152, 40, 300]), cut(270, 1500), ([0, 9100], [9100, 14100])], ids=["few", "many", "long"]
)
def test_rows_side_by_side_that_a_thread_takes(lo: list[int], hi: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of the columns of x, with the bits that each column has alone, whether a thread adds up a range or several do; ranges of
    several blocks of terms, and short ones."""
    text = """ragged(x: T[S, D], v: T[S, D], lo: i64[B], hi: i64[B], w: T[D]) -> (y: T[B, D], z: T[B, D])

own = lo <= index[S] and index[S] < hi
y   = sum[S](x if own else 0) * w + index[D]
z   = sum[S](v if own else 0)
"""
    torch.manual_seed(5)
    x, v, w = (torch.randn(*shape).bfloat16() for shape in ((max(hi) + 100, 128), (max(hi) + 100, 128), (128,)))
    for first, end in zip(lo, hi, strict=True):
        for last in range(end - 4, end) if end - first > 300 else ():  # so that a sum is about 0, and 16 bits have its roundings
            v[last] = -v[first:last].double().sum(0)
    lo, hi, count = torch.tensor(lo), torch.tensor(hi), len(lo)
    found = []
    sharing = {
        "warps": Sharing(1, 32, 4), "lanes": Sharing(1, 8, 16), "blocks": Sharing(1, 8, 16, 3, count), "groups": Sharing(1, 8, 16, 2, count),
    }  # fmt: skip
    ways = {"one": (1, 4, 0), "few": (8, 4, 1 << 40), "alone": (1, 1, 0)} | {way: (how.team, 4, 0) for way, how in sharing.items()}
    for way, (team, many, few) in ways.items():
        if count != 5 and way not in ("one", "lanes", "blocks"):
            continue
        monkeypatch.setattr(asides, "ASIDE", ((many, 1),))
        monkeypatch.setattr(asides, "ASIDE_FEW", few)
        monkeypatch.setattr(asides, "ASIDE_LONG", (sharing[way],) if way in sharing else ())
        monkeypatch.setattr(asides, "BLOCK", 1500 if way == "groups" else 128)  # less room, so that pieces have sixteen blocks
        monkeypatch.setattr(asides, "resident", lambda arch, blocks, cluster: blocks)
        (folder := tmp_path / way).mkdir()
        made = Emulated(text, folder, (x, v, lo, hi, w))
        walks = [e.split("Walk<")[1].split(", ") for e in made.expressions if "Ranges" in e]
        assert {e.split(">, ")[1].split(", ")[0] for e in made.expressions if "Ranges" in e} == {str(8 if way in sharing else many)}
        assert [int(walk[2]) for walk in walks] == [team] * (2 if way in ("blocks", "groups") else 1), made.expressions
        found.append(made(x, v, lo, hi, w))
    assert all(torch.equal(found[0][name], other[name]) for other in found[1:] for name in "yz")
    want = torch.stack([x[a:b].double().sum(0) for a, b in zip(lo, hi, strict=True)]) * w.double() + torch.arange(128)
    assert torch.allclose(found[0]["y"].double(), want, rtol=1e-2, atol=1e-2)


def test_rows_side_by_side_that_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole vectors of a table's rows, at places of which some lie outside, behind a condition of each column's own, beside operands that
    move and others that stand still; the same bits one by one, and where the table's rows do not begin with a vector."""
    text = """picked(w: T[V, D], u: T[G, D], p: T[S, D], s: T[S], b: bool[D], ids: i64[B, S], of: i64[S]) -> (y: T[B, S, D], k: i8[B, S, D])

y = (w[V = ids] if b else 0.5) * s + p - u[G = of]
k = i8(index[D] if b and ids >= 0 else -1)
"""
    torch.manual_seed(6)
    ids, of = torch.randint(0, 40, (3, 17)), torch.arange(17) % 7 - 1
    ids[0, :5] = torch.tensor([-1, 40, 2**40, 39, 0])
    checked = kgen.loads(text).kernel
    for dtype, most in ((torch.bfloat16, "8"), (torch.float32, "4"), (torch.float64, "2")):
        w, u, p, s = (torch.randn(*shape).to(dtype) for shape in ((40, 32), (6, 32), (17, 32), (17,)))
        shifted = torch.zeros(40, 33, dtype=dtype)[:, 1:].copy_(w)
        given = [(table, u, p, s, torch.arange(32) % 3 > 0, ids, of) for table in (w, shifted)]
        want = Analysis(checked, {q.name: x for q, x in zip(checked.params, given[0], strict=True)}, "cuda").results()
        found = []
        for many in ((8, 1), (4, 1), (2, 1)), ():
            monkeypatch.setattr(asides, "LOOKED", many)
            (folder := tmp_path / f"{most}-{len(many)}").mkdir()
            made = Emulated(text, folder, *given)
            assert [e.rsplit(">, ", 1)[1].split(", ")[0] for e in made.expressions] == ([most, "1"] if many else ["1"])
            found += [made(*args) for args in given]
        for results in found:
            for exact, got in zip(want, results.values(), strict=True):
                near = (got.double() - exact.exact).abs() <= exact.bound
                assert bool((near | (got == exact.exact) | got.isnan() & exact.exact.isnan()).all())
                assert torch.equal(*(r.nan_to_num(9) for r in (got, found[0]["k" if got.dtype is torch.int8 else "y"])))
