"""Orders and counts of keys by blocks, run on the CPU by emulation: held to torch's stable sort and count, bit for bit."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

import kgen
from kgen.backends.cuda_layouts import PARTS
from kgen.runtime import arguments, keys, roads, sorts
from tests.cuda.emulated import Emulated, EmulatedOrders
from tests.segments.row_keys import CASES, close, drawn

BOTH, ORDERS = {"begin", "end"}, {"order", "begin", "end"}


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "DEVICE", "cpu")


def launched(found: keys.Sorting | None, key: torch.Tensor, written: dict[str, torch.Tensor]) -> list[str]:
    """Run what sorts; the names of the kernels."""
    assert found is not None
    work = torch.full((max(1, found.work),), 0x5A, dtype=torch.uint8)
    if found.work:
        found.keys.work = work.data_ptr()
    values = [found.keys, *(ctypes.c_void_p(t.data_ptr()) for t in (key, *(written.get(part, key) for part in PARTS)))]
    for kernel, *rest in found.steps:
        EmulatedOrders().function(kernel, "sm_90")(rest[0], 0, 0, values, *rest[1:])
    return [step.kernel.split("<")[0] for step in found.steps]


@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (5, 0), (200, 40), (1000, 300), (700, 3000), (300, 2**18)])
def test_shared_keys_are_in_the_order_of_a_stable_sort(n: int, m: int) -> None:
    """A stride apart, many alike, some outside, some far outside; what is not asked for is not written."""
    key = torch.stack([torch.randint(-2, m + 2, (n,)), torch.zeros(n, dtype=torch.int64)], 1)[:, 0]
    key[: n // 3], key[n // 2 : n // 2 + 2] = m // 2, -(2**62)
    before = key.clone()
    for parts in (ORDERS, {"order"}):
        got = {part: torch.full((n if part == "order" else m,), -9) for part in parts}
        want = {part: t.clone() for part, t in got.items()}
        launched(keys.sorting(key, got, None, m, "sm_90"), key, got)
        sorts.sort(key, want, None, m)
        assert all(torch.equal(got[part], want[part]) for part in parts) and torch.equal(key, before)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (7, 5000), (30000, 40)])
def test_counts_are_those_of_torch(n: int, m: int) -> None:
    """In shared memory and without; of no key too, and of several blocks' keys."""
    key = torch.randint(-2, m + 2, (2 * n,))[::2]
    got = {part: torch.full((m,), -9) for part in BOTH}
    launched(keys.sorting(key, got, None, m, "sm_90"), key, got)
    inside = key[(key >= 0) & (key < m)]
    assert torch.equal(got["end"] - got["begin"], torch.bincount(inside, minlength=m))


def test_each_rows_own_keys_are_in_the_order_of_a_stable_sort() -> None:
    """Of rows that lie in any order of their dims; keys of 18 bits and more are sorted in wider words."""
    for n, m in ((1, 3), (33, 9), (200, 2**18)):
        key = torch.randint(-2, m + 2, (2, n, 3)).transpose(0, 2)
        key[1] = m // 2
        got = {part: torch.full((3, 2, n), -9) for part in ("order", "keys")}
        want = {part: t.clone() for part, t in got.items()}
        launched(keys.sorting(key, got, 1, m, "sm_90"), key, got)
        sorts.sort(key, want, 1, m)
        assert all(torch.equal(got[part], want[part]) for part in got)


@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_f64_and_have_the_bits_of_torchs_sort(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list(drawn(name, ((3, 1, 4), (5, 33, 9), (2, 700, 40), (2, 300, 1))))
    made = Emulated(CASES[name].text, tmp_path, *(arguments for arguments, _ in calls))
    found = [made(*arguments) for arguments, _ in calls]
    for got, (_, want) in zip(found, calls, strict=True):
        close(tuple(got.values()), want)
    monkeypatch.setattr(keys, "DEVICE", "none")
    (folder := tmp_path / "torch").mkdir()
    other = Emulated(CASES[name].text, folder, *(arguments for arguments, _ in calls))
    for got, (args, _) in zip(found, calls, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(got.values(), other(*args).values(), strict=True))


@pytest.mark.parametrize(("text", "alone"), [
    ("y = sum[K](x if index[N] == i else 0)", True),
    ("y = max[K](x if index[N] == i else -inf)", True),
    ("y = sum[K](x * x if index[N] == i else 0)", True),  # of products that a pass before it made
    ("y = 2 * sum[K](x if index[N] == i else 0)", False),
    ("y = sum[K](x if index[N] == i else 0) + like", False),
])  # fmt: skip
def test_blocks_reduce_what_alone_is_read_in_an_order(text: str, alone: bool) -> None:
    """Then few keys are not compared one by one; of a table that has no room they are."""
    dtype, wide = ("f32", "f32") if alone else ("T", "T32")
    kernel = kgen.loads(f"of(x: {dtype}[M, K], i: i64[M, K], like: i8[N]) -> y: {wide}[M, N]\n\n{text}\n").kernel
    for n, sorted_ in ((9, alone), (keys.TABLE + 1, False)):
        call = arguments.bind(kernel, (torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(n, dtype=torch.int8)), {}, None)
        assert (roads.taken(kernel, call, "cuda") is kernel) == sorted_
        assert roads.taken(kernel, call, "cpp") is not kernel


def test_blocks_do_not_reduce_what_a_later_pass_makes(tmp_path: Path) -> None:
    """Keys that are sorted before the values are there, which a pass makes between: garbage would be added up."""
    text = "of(x: T[M, K, L], i: i64[M, K], like: i8[N]) -> y: T[M, N]\n\nv = sum[L](x)\ny = sum[K](v * v if index[N] == i else 0)\n"
    x, i, like = torch.randint(-3, 4, (3, 40, 5)).float(), torch.randint(0, 7, (3, 40)), torch.zeros(7, dtype=torch.int8)
    want = torch.zeros(3, 7).scatter_add_(1, i, x.sum(2) ** 2)
    assert torch.equal(Emulated(text, tmp_path, (x, i, like))(x, i, like)["y"], want)


def test_results_lie_where_they_are_wanted(tmp_path: Path) -> None:
    """In columns, of values in columns that rows share, in 16 bits."""
    text = "of(x: T[K], i: i64[M, K], like: i8[N]) -> y: T[N, M]\n\ny = sum[K](x if index[N] == i else 0)\n"
    x, i, like = torch.randint(-9, 9, (2, 50)).bfloat16()[:, ::2][0], torch.randint(-1, 9, (4, 25)), torch.zeros(8, dtype=torch.int8)
    made = Emulated(text, tmp_path, (x, i, like))
    want = torch.zeros(4, 9).scatter_add_(1, torch.where(i < 0, 8, i), x.float().expand(4, -1))[:, :8].t()
    assert not made.expressions and torch.equal(made(x, i, like)["y"].float(), want)
