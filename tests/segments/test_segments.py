"""Sums by index and over ranges: what is recognised, what it comes to in C++, and that the work grows with the input."""

from __future__ import annotations

import re
import time

import pytest
import torch

import kgen
from kgen import pipeline
from kgen.cost import Cost
from kgen.grad import backward
from kgen.passes import Sort
from kgen.runtime.static import source
from tests.segments.kernels import CASES, close, drawn

DTYPES = (torch.float32, torch.bfloat16, torch.float64)
pytestmark = pytest.mark.usefixtures("built_quickly")


#: Built in any run; the others are left to `-m slow`.
BUILT = ("several", "ranges", "around")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in BUILT else pytest.mark.slow) for name in CASES])
def test_cpp_agrees_with_f64(name: str) -> None:
    made = kgen.loads(CASES[name].text)
    for dtype in DTYPES[BUILT.index(name) % 2 :][:1] if name in BUILT else DTYPES:
        for arguments, want in drawn(name, dtype):
            close(made(*arguments), want, arguments)


def kinds(text: str) -> list[str]:
    """The reductions of an expanded program, and what sorts."""
    kernel = kgen.loads(text).kernel
    plan = pipeline.plan(kernel, pipeline.usual(kernel))
    found = [let.expr.name for let in plan.program.lets if let.expr.name in ("sum", "max", "min", "ranged")]
    return found + ["sorts" for p in plan.passes if isinstance(p, Sort)]


PARAMETERS = {"x": "T[S, D]", "ids": "i64[S]", "two": "i64[S, D]", "edges": "i64[B]", "keep": "bool[S]", "own": "T[S, V]", "like": "i8[V]",
              "four": "T[4]"}


def written(result: str) -> str:
    """A kernel of one equation with those parameters that it uses."""
    used = {name: t for name, t in PARAMETERS.items() if re.search(rf"\b{name}\b", result) or name == "like" and "V" in result and "own" not in result}
    return f"k({', '.join(f'{name}: {t}' for name, t in used.items())}) -> {result}\n"


#: Whole pieces, those of a segment, and its rest.
SEGMENT = ["ranged", "ranged", "ranged", "sorts"]


@pytest.mark.parametrize(
    ("equation", "want"),
    [
        ("y: T[V, D]\n\ny = sum[S](x if index[V] == ids else 0)", SEGMENT),
        ("y: T[V, D]\n\ny = sum[S](x if keep and ids == index[V] else 0)", SEGMENT),
        ("y: T[V, D]\n\ny = min[S](x if ids == index[V] else inf)", ["ranged", "ranged", "ranged", "min", "sorts"]),
        ("y: i64[V]\n\ny = sum[S](ids == index[V])", ["max", "sorts"]),
        ("y: i64[V]\n\ny = sum[S](ids == index[V] and keep)", SEGMENT),
        ("y: T[B, D]\n\ny = sum[S](x if edges <= index[S] and index[S] < edges + 3 else 0)", ["max", "min", "max", "min", "ranged"]),
        ("y: T[V]\n\ny = sum[S, D](x if two == index[V] else 0)", SEGMENT),
        ("y: T[V]\n\ny = sum[S, D](x if two == index[V] and ids < index[S] else 0)", SEGMENT),
        ("y: T[V]\n\ny = sum[S, D](x if ids == index[V] else 0)", ["sum"]),  # keys of one of the two
        ("y: T[4, D]\n\ny = four + sum[S](x if ids == index[4] else 0)", ["sum"]),  # each of few rows may go through all
        ("y: T[V, D]\n\ny = sum[S](x if ids == index[V] else 1)", ["sum"]),  # what is not selected counts
        ("y: T[V, D]\n\ny = sum[S](x if ids != index[V] else 0)", ["sum"]),
        ("y: T[V]\n\ny = sum[S](own if ids == index[V] else 0)", ["sum"]),  # each row has terms of its own
        ("y: T[B, D]\n\ny = sum[S](x if index[S] < edges else 0)", ["sum"]),  # one bound leaves half of the input
        ("y: T[B, D]\n\ny = max[S](x if edges == index[S] else inf)", ["max"]),
    ],
)
def test_what_is_recognised(equation: str, want: list[str]) -> None:
    assert kinds(written(equation)) == want


def test_a_nan_stays_in_its_segment() -> None:
    made = kgen.loads(CASES["by_index"].text)
    x = torch.ones(4, 2)
    x[1] = torch.nan
    x[2] = torch.inf
    got = made(x, torch.tensor([0, 7, -1, 1]), torch.zeros(3, dtype=torch.int8))
    assert got.tolist() == [[1, 1], [1, 1], [0, 0]]


def test_ranges_outside_hold_what_is_there() -> None:
    text = "k(x: T[S], lo: i64[B], hi: i64[B]) -> y: T[B]\n\ny = sum[S](x if lo <= index[S] and index[S] <= hi else 0)\n"
    x = torch.arange(5.0)
    lo, hi = torch.tensor([-9, 3, 4, 2, -(2**63)]), torch.tensor([1, 99, 3, 2**63 - 1, 2**63 - 1])
    assert kgen.loads(text)(x, lo, hi).tolist() == [1, 7, 0, 9, 10]


@pytest.mark.slow
def test_the_length_of_a_range_that_ends_before_it_begins_does_not_wrap() -> None:
    """`kgen check` found it: of begin = 2.3e17 and end = -9e18 there was one term."""
    lo, hi = torch.tensor([230000000000000000]), torch.tensor([-9000000000000000000])
    counted = "n(x: T[S], begin: i64[B], end: i64[B]) -> y: T[B]\n\nown = begin <= index[S] and index[S] < end\ny = sum[S](x if own else 0) / max(sum[S](own), 1)\n"
    assert kgen.loads(counted)(torch.ones(1), lo, hi) == 0


def test_a_segment_has_the_same_bits_beside_any_others() -> None:
    made = kgen.loads(CASES["by_index"].text)
    x, like = torch.randn(3000, 5), torch.zeros(4, dtype=torch.int8)
    one = made(x, torch.zeros(3000, dtype=torch.int64), like)[0]
    among = made(torch.cat([torch.randn(7, 5), x]), torch.tensor([1] * 7 + [3] * 3000), like)[3]
    assert torch.equal(one, among)


def test_rows_side_by_side_have_the_bits_of_rows_apart() -> None:
    """Sixteen of 37 columns are added up at a time where they are neighbours, the last five as well, and each alone where they are not."""
    made = kgen.load("segment_mean")
    x, default, ids = torch.randn(700, 37), torch.randn(5, 37), torch.tensor([0] * 690 + [1] * 2 + [3] + [-1, 5] + [4] * 5)
    x[691, 3], x[692, 5], x[694, 7] = torch.nan, -0.0, torch.inf
    got = made(x, ids, default)
    for apart in (x.t().contiguous().t(), torch.stack([x, x], 2)[..., 0]):
        assert torch.equal(made(apart, ids, default).view(torch.int32), got.view(torch.int32))
    for k in range(5):
        own = x[ids == k].double()
        want = own.mean(0) if len(own) else default[k].double()
        within = 2**-20 * own.abs().sum(0) / max(len(own), 1)
        assert (((got[k].double() - want).abs() <= within) | (got[k].isnan() & want.isnan())).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3)])
def test_rows_side_by_side_may_be_none(shape: tuple[int, int]) -> None:
    """Beside a result that has elements, for where none has any nothing is run."""
    made = kgen.loads(
        "k(x: T[..., M], y: T[C, N]) -> (z: T[..., M, C], beside: T[C, N])\n\n"
        "z = sum[N](clamp(0 if 2 < index[N] else x, 0, 2) if index[N] // 2 == index[C] else 0)\nbeside = y + 1\n"
    )
    z, beside = made(torch.ones(shape), torch.ones(1, 4), target="cpp")
    assert torch.equal(z, torch.full((*shape, 1), 2.0)) and torch.equal(beside, torch.full((1, 4), 2.0))


@pytest.mark.slow  # the predicted cost is held in any run
def test_the_work_grows_with_the_input() -> None:
    """V times S of this would be 10^11 terms."""
    made = kgen.loads(CASES["lookup"].text)
    w, dy, keys = torch.empty(200_000, 2), torch.randn(500_000, 2), torch.randint(0, 200_000, (500_000,))
    made(dy[:2], w, keys[:2])
    start = time.perf_counter()
    got = made(dy, w, keys)
    assert time.perf_counter() - start < 5
    assert torch.allclose(got, torch.zeros_like(w).index_add_(0, keys, dy), atol=1e-4)


@pytest.mark.slow  # as of numbers in several dims below
def test_a_table_and_its_gradient_are_those_of_torch() -> None:
    made = kgen.load("embedding")
    w, ids = torch.randn(9, 4, requires_grad=True), torch.randint(0, 9, (30,))
    theirs = w.detach().clone().requires_grad_()
    dy = torch.randn(30, 4)
    made(w, ids).backward(dy)
    torch.nn.functional.embedding(ids, theirs).backward(dy)
    assert w.grad is not None and theirs.grad is not None and torch.allclose(w.grad, theirs.grad, atol=1e-6)


@pytest.mark.parametrize("dims", ["...", pytest.param("B, S", marks=pytest.mark.slow)])
def test_a_table_of_numbers_in_several_dims_has_the_gradient_of_torch(dims: str) -> None:
    """One row for each number, whatever dims the numbers have: a view where these merge, a copy where not."""
    made = kgen.loads(f"embedding(w: T[V, D], ids: i64[{dims}]) -> y: T[{dims}, D]\n\ny = w[V = ids]\n")
    w, dy = torch.randn(9, 4, requires_grad=True), torch.randn(3, 5, 4)
    theirs = w.detach().clone().requires_grad_()
    for ids, own in ((torch.randint(0, 9, (3, 5)), dy), (torch.randint(0, 9, (5, 3)).t(), dy.transpose(0, 1).contiguous().transpose(0, 1))):
        for t in (w, theirs):
            t.grad = None
        made(w, ids).backward(own)
        torch.nn.functional.embedding(ids, theirs).backward(own)
        assert w.grad is not None and theirs.grad is not None and torch.allclose(w.grad, theirs.grad, atol=1e-6)


def test_positions_of_several_dims_cost_what_those_of_one_do() -> None:
    def cost(dims: str) -> Cost:
        kernel = kgen.loads(f"embedding(w: T[V, D], ids: i64[{dims}]) -> y: T[{dims}, D]\n\ny = w[V = ids]\n").kernel
        return pipeline.cost(made := backward(kernel).kernel, pipeline.usual(made))

    assert cost("B, S") == cost("...") == cost("S") and cost("S").read == 4


@pytest.mark.parametrize("name", ["bert_embedding", "position_embedding"])
def test_what_is_known_of_one_of_several_dims_is_looked_up(name: str) -> None:
    """`positions: T[S, N]` beside `ids: i64[B, S]`."""
    kernel = backward(kgen.load(f"embeddings/{name}").kernel).kernel
    assert not pipeline.warnings(kernel)
    assert any(isinstance(p, Sort) for p in pipeline.plan(kernel, pipeline.usual(kernel)).passes)


def test_no_static_file_is_written() -> None:
    with pytest.raises(kgen.KgenError, match="ragged_mean has no static kernel: it reduces by index or over ranges"):
        source(kgen.load("ragged_mean").kernel, "cpp", {"S": 8, "D": 4, "B": 2}, {"T": ["f32"]})


def test_a_position_finds_its_ranges() -> None:
    around = CASES["around"].text
    assert "sum" not in kinds(around) and [k for k in kinds(around) if k[-1] != "n" and k != "max"] == ["ranged", "sorts", "sorts"]
    assert kinds(around.replace("(dy if begin", "(dy * index[S] if begin")) == ["sum"]  # what runs along both is written nowhere
    made = kgen.loads(around)
    begin, end = torch.tensor([0, 2, 2, 5]), torch.tensor([2, 2, 5, 6])
    dy = torch.tensor([[1.0], [torch.nan], [torch.inf], [2.0]])
    assert made(dy, begin, end, torch.zeros(7, dtype=torch.int8))[:, 0].tolist() == [1, 1, torch.inf, torch.inf, torch.inf, 2, 0]
    assert made(dy.flip(0), begin.flip(0), end.flip(0), torch.zeros(3, dtype=torch.int8))[:, 0].tolist() == [1, 1, torch.inf]


def test_gradients_of_ranges_take_the_time_of_their_input() -> None:
    """S times B would be 4 * 10^10 terms."""
    x = torch.randn(400_000, 2, requires_grad=True)
    offsets = torch.randint(0, 400_000, (100_001,)).sort().values
    dy = torch.randn(100_000, 2)
    y = kgen.load("ragged_sum")(x, offsets)
    start = time.perf_counter()
    (dx,) = torch.autograd.grad(y, x, dy)
    assert time.perf_counter() - start < 30  # with the compiler's time
    at = torch.searchsorted(offsets, torch.arange(400_000), right=True) - 1
    assert torch.equal(dx, torch.where(((at >= 0) & (at < 100_000))[:, None], dy[at.clamp(0, 99_999)], 0.0))
