"""Reductions of what one key selects: which are lookups, and that each comes to what is written, NaN and the sign of zero included."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import kgen
from kgen import pipeline
from kgen.grad import backward
from kgen.ir import Program
from kgen.testing import checks

pytestmark = pytest.mark.usefixtures("built_quickly")

PARAMETERS = {"x": "T[V, D]", "w": "T[S, V]", "ids": "i64[S]", "to": "i64[D]", "keep": "bool[V]", "n": "int", "like": "i8[V]"}
#: What is written with the reductions of its expanded program: none of V where it is a lookup.
TAKEN = {
    "y: T[S, D] = sum[V](x if ids == index[V] else 0)": [],
    "y: T[S, D] = sum[V](x if index[V] == ids and keep else 0)": [],
    "y: T[S, D] = sum[V]((x / n if ids == index[V] else 0) if keep else 0)": [],
    "y: T[S, D] = sum[V](0 if keep else x if ids == index[V] else 0)": [],
    "y: T[S, D] = max[V](exp(x) + w if ids == index[V] else -inf)": [],
    "y: T[S, D] = min[V](x if ids == index[V] else inf)": [],
    "y: i64[S] = sum[V](ids == index[V])": [],
    "y: i64[S] = sum[V](keep and ids == index[V])": [],
    "y: bool[S] = any[V](ids == index[V])": [],
    "y: bool[S, D] = any[V](x > 0 and ids == index[V])": [],
    "y: f32[S] = sum[V](exp(index[V]) if n == index[V] and ids == index[V] else 0)": [],
    "y: T[S] = sum[V, D](x if ids == index[V] else 0)": ["sum"],
    "y: T[D] = sum[V, S](x * w if ids == index[V] else 0)": ["sum"],
    "y: T[S, D] = sum[V](sum[V](w) if ids == index[V] else 0) + to": ["sum"],
    "y: T[D] = sum[V](x * cumsum[V](x) if n == index[V] else 0)": [],  # the scan is kept, and read at one place
}
#: What goes through all of V.
KEPT = {
    "y: T[S, D] = sum[V](x if ids == index[V] else 1)": ["sum"],
    "y: T[S, D] = max[V](x if ids == index[V] else 0)": ["max"],
    "y: T[S, D] = sum[V](x if ids <= index[V] else 0)": ["sum"],
    "y: T[S, D] = sum[V](x if ids == index[V] or keep else 0)": ["sum"],
    "y: T[S, D] = sum[V]((x if ids == index[V] else 0) * w)": ["sum"],  # another's NaN is in the sum
    "y: T[D] = sum[V](x if n == index[V] else 0)": ["sum"],  # x is read once, as written
    "y: T[S] = sum[V](w if ids == index[V] else 0)": ["sum"],
    "y: T[S] = sum[D, V](x if to == index[V] else 0) + 0 * ids": ["sum"],
    "y: i64[S, D] = max[V](i64(ids == index[V])) + to": ["max"],
}


def used(written: str) -> list[str]:
    """The parameters of a kernel of one equation: those that it names, and one that says how many keys there are."""
    found = [name for name in PARAMETERS if re.search(rf"\b{name}\b", written)]
    return found if {"x", "w", "keep"} & {*found} else [*found, "like"]


def text(written: str) -> str:
    """A kernel of one equation."""
    result, value = written.split(" = ", 1)
    return f"k({', '.join(f'{name}: {PARAMETERS[name]}' for name in used(written))}) -> {result}\n\ny = {value}\n"


def expanded(kernel: object) -> Program:
    return pipeline.plan(kernel, pipeline.usual(kernel)).program  # type: ignore[arg-type]


@pytest.mark.parametrize(("written", "want"), [*TAKEN.items(), *KEPT.items()])
def test_what_is_a_lookup(written: str, want: list[str]) -> None:
    kernel = kgen.loads(text(written)).kernel
    assert [let.expr.name for let in expanded(kernel).lets if let.expr.attrs and let.expr.name in ("sum", "max", "min")] == want


def drawn(s: int, v: int, d: int) -> dict[str, Any]:
    """Operands with a NaN, an infinity and zeros of both signs, and keys of which some lie outside."""
    x = torch.randn(v * d)
    x[::3] = torch.tensor([torch.nan, torch.inf, -0.0])[torch.arange(len(x[::3])) % 3]
    ids, to = torch.randint(-2, v + 2, (s,)), torch.randint(-1, v + 1, (d,))
    like = torch.zeros(v, dtype=torch.int8)
    return {"x": x.view(v, d), "w": torch.randn(s, v), "ids": ids, "to": to, "keep": torch.rand(v) < 0.7, "n": 1, "like": like}


BUILT = ("y: T[S, D] = sum[V]((x / n if ids == index[V] else 0) if keep else 0)", "y: i64[S] = sum[V](ids == index[V])")


#: Built by default: one of each kind.
WRITTEN = [pytest.param(t, marks=() if t in BUILT else pytest.mark.slow) for t in TAKEN]


@pytest.mark.parametrize("written", WRITTEN)
def test_cpp_agrees_with_what_is_written(written: str) -> None:
    made = kgen.loads(text(written))
    for seed, sizes in enumerate(((6, 4, 3), (5, 1, 2), (3, 9, 7), (4, 0, 2) if "max" not in written and "min" not in written else (1, 1, 1))):
        torch.manual_seed(seed)
        every = drawn(*sizes)
        arguments = [every[name] for name in used(written)]
        got, want = made(*arguments, target="cpp"), made(*arguments, target="torch")
        assert torch.allclose(got, want, rtol=1e-5, atol=1e-6, equal_nan=True) if got.is_floating_point() else torch.equal(got, want)


def test_a_sum_of_minus_zero_and_zeros_is_zero() -> None:
    made = kgen.loads("k(x: T[V], ids: i64[S]) -> y: T[S]\n\ny = 1 / sum[V](x if ids == index[V] else 0)\n")
    assert made(torch.tensor([-0.0, 2.0, torch.nan]), torch.tensor([0, 1, 3, -1]), target="cpp").tolist() == [torch.inf, 0.5, torch.inf, torch.inf]


@pytest.mark.parametrize("name", ["segment_sum", "segment_mean", "scatter_add", "segment_max", "segment_softmax", "ragged_sum", "ragged_mean", "ragged_softmax", "embedding_bag"])
def test_no_gradient_of_a_bundled_spec_of_segments_is_warned_of(name: str) -> None:
    assert not pipeline.warnings(backward(kgen.load(name).kernel).kernel)


def test_the_gradient_of_a_sum_by_number_and_its_own() -> None:
    """V times S would be 10^11 terms; a NaN of dy stays with its number; the second derivative is a sum by number again."""
    made = kgen.load("segment_sum")
    x = torch.randn(400_000, 2, requires_grad=True)
    keys, like = torch.randint(0, 200_000, (400_000,)), torch.zeros(200_000, dtype=torch.int8)
    dy = torch.randn(200_000, 2, requires_grad=True)
    with torch.no_grad():
        dy[7] = torch.nan
    y = made(x, keys, like)
    start = time.perf_counter()
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    assert time.perf_counter() - start < 30  # with the compiler's time
    assert torch.equal(dx.isnan().any(1), keys == 7) and torch.allclose(dx, dy[keys], equal_nan=True)
    ddx = torch.randn_like(x)
    (again,) = torch.autograd.grad(dx, dy, ddx)
    assert torch.allclose(again, torch.zeros_like(dy).index_add_(0, keys, ddx), atol=1e-4)


def test_a_row_that_is_read_whole_may_be_overwritten() -> None:
    """A lookup of its own class would read x where it is written already."""
    x, t = torch.randn(5, 9), torch.tensor([0, 8, 3, 3, -100])
    out = (torch.empty(5), x.clone())
    made = kgen.load("cross_entropy_dx")
    loss, dx = made(x, t, target="cpp")
    made(out[1], t, out=out, target="cpp")
    assert torch.equal(out[0], loss) and torch.equal(out[1], dx)


SORTED = """
sorted_by(x: T[M, N], i: i64[M, N], of: i64[M]) -> (y: T[M, N], z: T[M, N])

a = exp(x)[N = i]
y = a[N = i] + x[N = i]
z = x[M = of] * a
"""


def test_a_place_may_follow_from_the_position_along_its_own_dim(tmp_path: Path) -> None:
    """A gather by an index of x's own dims, rows in another order: values, gradients by number, what is printed, what lies outside."""
    (tmp_path / "sorted_by.k").write_text(SORTED)
    kernel = kgen.load(tmp_path / "sorted_by.k")
    assert checks.check(kernel.kernel, "cpp", examples=10).failures == []
    assert checks.check_backward(kernel.kernel, "cpp", examples=6).failures == []
    x, i, of = torch.randn(7, 5, requires_grad=True), torch.randint(0, 5, (7, 5)), torch.randperm(7)
    assert torch.equal(kernel(x, i, of, target="torch")[1], x[of] * x.exp().gather(1, i))
    assert "pick" not in {v.op for v in backward(kernel.kernel).kernel.values}  # sums by number, no pair of places
    with pytest.raises(IndexError, match=r"^sorted_by: x\[M = 9\] lies outside, M has 7 \(first at M = 0\)$"):
        kgen.load(tmp_path / "sorted_by.k", checked=True)(x.detach(), i, torch.full((7,), 9), target="torch")
