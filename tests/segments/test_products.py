"""What is told of passes whose work is a product of dims, and what bytes are said of them."""

from __future__ import annotations

import pytest

import kgen
from kgen import pipeline
from kgen.grad import backward
from tests.conftest import ROOT

PRODUCT = "product(a: T[M, K], b: T[N, K]) -> y: T[M, N]\n\ny = sum[K](a * b)\n"


def warnings(text: str) -> list[str]:
    return pipeline.warnings(kgen.loads(text, "k.k").kernel)


def test_a_product_of_dims_is_told_at_its_place() -> None:
    (warning,) = warnings(PRODUCT)
    lines = warning.split("\n")
    assert lines[0] == "warning: this computes M * N * K elements, and no operand has more than M * K"
    assert lines[1:5] == [" --> k.k:3:5", "  |", "3 | y = sum[K](a * b)", "  |     ^^^^^^^^^^^^^"]
    assert "matrix product" in lines[5]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("k(x: T[M, D], z: T[N, D]) -> y: T[M, N]\n\ny = sqrt(sum[D]((x - z)^2))", 1),
        ("k(x: T[M, D], w: T[D]) -> y: T[M]\n\ny = sum[D](x * w)", 0),
        ("k(x: T[M, D], w: T[4, D]) -> y: T[M, 4]\n\ny = sum[D](x * w)", 0),  # four times the work of x
        ("k(x: T[S, D], ids: i64[S], w: T[V, D]) -> y: T[V, D]\n\ny = w + sum[S](x if ids == index[V] else 0)", 0),
        ("k(x: T[S, D], ids: i64[S], w: T[V, D]) -> y: T[V, D]\n\ny = w + sum[S](x if ids < index[V] else 0)", 1),
    ],
)
def test_what_is_told(text: str, count: int) -> None:
    assert len(warnings(text + "\n")) == count


def test_what_is_told_of_keys_of_each_row() -> None:
    """A sum by an index of each row's own is no product of matrices; of one dim it is none of dims."""
    assert not warnings("k(dy: T[M, K], i: i64[M, K], x: T[M, N]) -> dx: T[M, N]\n\ndx = x + sum[K](dy if index[N] == i else 0)\n")
    (warning,) = warnings("k(dy: T[M, K, L], i: i64[M, K, L], x: T[M, N]) -> dx: T[M, N]\n\ndx = x + sum[K, L](dy if index[N] == i else 0)\n")
    assert "torch.scatter_add" in warning and "matrix" not in warning


def test_no_bundled_spec_is_told_of() -> None:
    for path in sorted((ROOT / "specs").glob("*.k")):
        assert not pipeline.warnings(kgen.load(path).kernel), path
    assert not pipeline.warnings(backward(kgen.load("embedding").kernel).kernel)


def test_bytes_of_an_element_are_those_it_reads() -> None:
    def bytes_of(text: str) -> tuple[int, int]:
        kernel = kgen.loads(text).kernel
        cost = pipeline.cost(kernel, pipeline.usual(kernel))
        return cost.read, cost.written

    assert bytes_of(PRODUCT) == (8, 0)
    assert bytes_of("k(x: T[S, D], ids: i64[S], w: T[V]) -> y: T[V, D]\n\ny = w * sum[S](x if ids == index[V] else 0)\n") == (4, 4)
    assert bytes_of("k(w: T[V, D], ids: i64[S]) -> y: T[S, D]\n\ny = w[V = ids]\n") == (4, 4)
    assert bytes_of("k(x: T[M, N]) -> y: T[M, N]\n\ny = x + x[N = index[N] - 1 else 0] + x[N = 0]\n") == (4, 4)
    counted = bytes_of("k(x: T[S], before: i64[V]) -> n: i64[V]\n\nn = before + sum[S](i64(x) == index[V])\n")
    assert counted[0] >= 4 + 8 and counted[1] >= 8  # x and its keys, which are written in between


def test_what_ranges_are_of_is_read_once_and_what_a_position_finds_for_each_element() -> None:
    def bytes_of(text: str) -> tuple[int, int]:
        kernel = kgen.loads(f"k({text}").kernel
        cost = pipeline.cost(kernel, pipeline.usual(kernel))
        return cost.read, cost.written

    ends = "begin = offsets[B + 1 = index[B]]\nend = offsets[B + 1 = index[B] + 1]\nown = begin <= index[S] and index[S] < end\n"
    parameters = "x: T[{0}, D], offsets: i64[B + 1], like: i8[{1}]) -> y: T[{1}, D]\n\n" + ends
    assert bytes_of(parameters.format("S", "B") + "y = sum[S](x if own else 0) + 0 * like\n") == (4, 4)
    assert bytes_of(parameters.format("B", "S") + "y = sum[B](x if own else 0) + 0 * like\n") == (4, 4)
