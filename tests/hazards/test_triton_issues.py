"""Bugs of Triton's, replayed: the kgen kernel that each would have broken, and its right result.

The docstrings say what triton-lang/triton's thread of that number reports.
"""

from __future__ import annotations

import re
import threading
import warnings
from pathlib import Path

import pytest
import torch

import kgen
from kgen.runtime import cache, toolchain
from kgen.runtime.samples import arguments
from tests.hazards.running import (  # fmt: skip
    BYTES,
    GPU,
    INF,
    INTEGERS,
    NAN,
    POINTS,
    ROWS,
    call,
    each_meaning,
    each_target,
    f32,
    load,
    run,
    same,
)

on_devices = pytest.mark.parametrize("target", GPU)


# ---------------------------------------------------------------------- integers and addresses


@each_target
def test_floor_division_of_mixed_signs(target: str) -> None:
    """619: `arange // -2` truncates."""
    i, no = torch.arange(8, dtype=torch.int32), torch.zeros(8, dtype=torch.bool)
    got = run(INTEGERS, target, i, torch.full_like(i, -2), no, no)
    assert got["quotient"].tolist() == [0, -1, -1, -2, -2, -3, -3, -4]
    assert got["rest"].tolist() == [0, -1, 0, -1, 0, -1, 0, -1]


@each_meaning
def test_ceilings_of_negative_quotients(target: str) -> None:
    """954: `tl.cdiv` of negative numbers is off by one."""
    text = "c(i: i32[N], j: i32[N], x: f32[N]) -> (k: i32[N], y: f32[N])\nk = -(-i // j)\ny = ceil(x)\n"
    i, j = torch.tensor([-72, -70, 72, -72], dtype=torch.int32), torch.tensor([10, 10, -10, -10], dtype=torch.int32)
    got = run(text, target, i, j, i / j)
    assert got["k"].tolist() == [-7, -7, -7, 8] == got["y"].tolist()


@pytest.mark.usefixtures("much_memory")
@on_devices
def test_more_than_2_31_elements(target: str) -> None:
    """832: int32 index computations overflow for large tensors."""
    x = torch.ones(2**31 + 1000, dtype=torch.int8, device="cuda")
    y = call(BYTES, target, x)
    assert y[-1000:].tolist() == [2] * 1000 and y[:1000].tolist() == [2] * 1000 and bool((y[:: 2**20] == 2).all())


@each_target
def test_offsets_times_strides_beyond_2_31(target: str) -> None:
    """6748: `offs * stride` overflows int32 where both fit it."""
    where = "cuda" if target in ("triton", "cuda") else "cpu"
    base = torch.empty(2**31 + 64, dtype=torch.int8, device=where)
    view = base[7 : 2**31 : 2**28]
    view.copy_(torch.arange(8))
    assert call(BYTES, target, view).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    call(BYTES, target, view, out=view)
    assert view.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


@each_target
@pytest.mark.parametrize("length", [1185, 1023, 33])
def test_rows_that_start_at_no_vector(length: int, target: str) -> None:
    """1330: vector loads of rows of 1,185 elements, which are not aligned."""
    x = (torch.arange(3 * length + 1) % 7).float()[1:].reshape(3, length)
    got = run(ROWS, target, x)
    same(got["total"], x.sum(1))
    same(got["top"], x.amax(1))


# ---------------------------------------------------------------------- grids


@each_target
def test_more_blocks_than_a_grid_takes(target: str) -> None:
    """3299: a grid that is too large is an invalid argument."""
    x = torch.ones(1).expand(200_000).reshape(200_000, 1)
    got = run(ROWS, target, x)
    assert got["total"].sum() == 200_000 and not got["first"].any()


@each_meaning
def test_three_axes_of_which_one_is_long(target: str) -> None:
    """7260: a large grid of three axes makes the kernel do nothing."""
    text = "three(x: f32[A, B, C]) -> y: f32[A, B, C]\ny = x + 1\n"
    x = torch.arange(70_000.0 * 2).reshape(1, 70_000, 2)
    for view in (x.permute(1, 0, 2), x.permute(2, 0, 1), x.permute(0, 2, 1)):
        same(run(text, target, view)["y"], view + 1)


def test_samples_of_three_axes_are_of_the_size_that_was_asked_for() -> None:
    """What `kgen show` compiles such a kernel for: 4096 along each axis would be 256 GiB."""
    kernel = load("three(x: f32[A, B, C]) -> y: f32[A, B, C]\ny = x + 1\n").kernel
    assert [tuple(x.shape) for x in arguments(kernel, "f32", 1 << 15, "cpu").values()] == [(1, 8, 4096)]


# ---------------------------------------------------------------------- reductions


@each_target
def test_the_maximum_of_equal_elements_is_the_first(target: str) -> None:
    """802: argmax of equal elements under a mask is wrong with one warp."""
    for length in (1, 2, 31, 33, 100, 1025):
        got = run(ROWS, target, torch.full((2, length), -3.0))
        assert not got["first"].any() and not got["last"].any() and (got["top"] == -3).all()


@each_target
def test_reductions_of_one_element(target: str) -> None:
    """3013: `tl.max` and `tl.sum` of a [16, 1] tensor are wrong."""
    x = torch.arange(16.0).reshape(16, 1)
    got = run(ROWS, target, x)
    same(got["top"], x[:, 0])
    same(got["total"], x[:, 0])
    same(got["lse"], x[:, 0])
    assert not got["first"].any()


@each_target
def test_what_pads_a_block_is_neutral(target: str) -> None:
    """3281: a masked load's `other=0` is filled with 1: the sum of 16 ones in a block of 256 is 240 too large."""
    for length in (16, 17, 200, 255, 257):
        for value in (1.0, -5.0):
            got = run(ROWS, target, torch.full((2, length), value))
            assert got["total"].tolist() == [value * length] * 2 and got["top"].tolist() == [value] * 2
            assert not got["spread"].any()


@each_meaning
def test_sums_over_masked_windows(target: str) -> None:
    """4379: a sum of a sum of masked four-dimensional windows is wrong."""
    masked = "x if n < 5 else 0"
    text = f"w(x: i32[A, B, C, D], n: i32[C, D]) -> (y: i64[A, B], z: i64[])\ny = sum[C, D]({masked})\nz = sum[A, B](sum[C, D]({masked}))\n"
    x, n = torch.arange(2 * 3 * 9 * 7, dtype=torch.int32).reshape(2, 3, 9, 7), torch.arange(9, dtype=torch.int32).reshape(9, 1).expand(9, 7)
    got = run(text, target, x, n)
    want = torch.where(n < 5, x, 0).sum((2, 3))
    assert torch.equal(got["y"], want) and got["z"] == want.sum()


@each_target
def test_argmax_of_nan_and_infinity(target: str) -> None:
    """9022: argmax and argmin of [nan, inf] and of [inf, nan] are both 1."""
    x = f32(NAN, INF, INF, NAN).reshape(2, 2)
    got = run(ROWS, target, x)
    assert got["first"].tolist() == got["last"].tolist() == [0, 1]


@each_target
def test_a_sum_of_256_true(target: str) -> None:
    """9991: stored as a bool, the sum of 256 True is False."""
    i, p = torch.ones(256, dtype=torch.int32), torch.ones(256, dtype=torch.bool)
    assert run(INTEGERS, target, i, i, p, p)["k"].item() == 256
    some = "some(p: bool[N]) -> (y: bool[], z: bool[])\ny = any[N](p)\nz = sum[N](p) > 0\n"
    got = run(some, "torch" if target == "cpp" else target, p)
    assert got["y"] and got["z"]


@each_target
def test_argmax_with_nan_first(target: str) -> None:
    """10291: argmax of [nan, 6, 8] is 2 when compiled, 0 when interpreted."""
    got = run(ROWS, target, f32(NAN, 6, 8).reshape(1, 3))
    assert got["first"].item() == 0 and got["top"].isnan().all()


@each_target
def test_reductions_carry_nan(target: str) -> None:
    """10697: min, argmin and sum with NaN differ between compiled and interpreted code."""
    x = torch.ones(3, 300)
    x[0, 299] = x[1, 0] = x[2, 150] = NAN
    got = run(ROWS, target, x)
    assert got["last"].tolist() == got["first"].tolist() == [299, 0, 150]
    assert all(got[name].isnan().all() for name in ("top", "total", "lse", "spread"))
    assert run("least(x: f32[M, N]) -> y: f32[M]\ny = min[N](x)\n", "torch" if target == "cpp" else target, x)["y"].isnan().all()


@each_target
def test_rows_around_a_block(target: str) -> None:
    """10945: no thread of this number was found, and nothing is inferred.

    Held here is what its neighbours broke, rows that end next to a block's end.
    """
    for length in (15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 2049):
        x = (torch.arange(2 * length) % 11).float().reshape(2, length)
        got = run(ROWS, target, x)
        same(got["total"], x.sum(1))
        assert torch.equal(got["first"], x.argmax(1)) and torch.equal(got["last"], x.argmin(1))


@each_meaning
def test_rows_times_a_vector(target: str) -> None:
    """11153: each row of ones(4, 4) times ones(4), summed, is [2, 4, 4, 4] when compiled."""
    got = run("dot(x: f32[M, N], v: f32[N]) -> y: f32[M]\ny = sum[N](x * v)\n", target, torch.ones(4, 4), torch.ones(4))
    assert got["y"].tolist() == [4.0] * 4


@each_meaning
def test_sums_of_bf16_carry_nan(target: str) -> None:
    """11604: the interpreter's sum of bf16 loses NaN."""
    x = torch.ones(2, 40, dtype=torch.bfloat16)
    x[1, 7] = NAN
    got = run("total(x: bf16[M, N]) -> y: bf16[M]\ny = sum[N](x)\n", target, x)["y"]
    assert got[0] == 40 and got[1].isnan()


@each_target
def test_rows_of_nan_alone(target: str) -> None:
    """11615: the interpreter's maxima raise or warn on rows of NaN alone."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run(ROWS, target, torch.full((2, 5), NAN))
    assert got["top"].isnan().all() and not got["first"].any() and not got["last"].any()


# ---------------------------------------------------------------------- code and caches


@each_target
def test_denormals_of_powers_are_kept(target: str) -> None:
    """5735: the flag that flushes denormals does not reach `exp2`'s code; kgen's flushes nothing."""
    b = f32(-126, -127, -130, -149)
    same(run(POINTS, target, torch.full_like(b, 2), b)["power"], torch.ldexp(torch.ones(4), b.int()))


@pytest.mark.slow
def test_no_instruction_of_tritons_code_flushes_unasked() -> None:
    """5735: in the compiled code only approximations of normal numbers flush."""
    pytest.importorskip("triton", reason="triton is not installed")
    kernel = kgen.loads("e(x: f32[N]) -> (y: f32[N], z: f32[N])\ny = exp2(x) / (x + 0.5)\nz = sqrt(x)\n")
    code = toolchain.listing(kernel.kernel, kernel.source("triton"), "ptx", "triton", {}, "sm_90")
    flushing = re.findall(r"\b[a-z0-9.]+\.ftz\.[a-z0-9.]+", code)
    assert ".f32" in code and not [f for f in flushing if not re.match(r"(ex2|lg2|rcp|rsqrt)\.approx\.ftz", f)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "kgen"))
    cache.folder.cache_clear()
    yield tmp_path / "kgen"
    cache.folder.cache_clear()


def test_writers_of_one_entry_are_not_mixed(place: Path) -> None:
    """11319: files of two writers' cache groups are combined, and every result is NaN."""
    payloads = [bytes([k]) * 40_000 for k in range(4)]
    found: list[bytes] = []

    def write(payload: bytes) -> None:
        for _ in range(10):
            cache.write("entry", ".so", payload)
            kept = cache.read("entry", ".so")
            found.append(kept[1] if kept else b"none")

    threads = [threading.Thread(target=write, args=(p,)) for p in payloads]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(found) == 40 and set(found) <= set(payloads)


def test_a_folder_that_others_write_and_empty_raises_nothing(place: Path) -> None:
    """11512: threads that compile into one cache folder see EBUSY and FileNotFoundError."""
    raised: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in range(10):
                cache.write(f"entry{n % 3}", ".so", b"x" * 1000)
                cache.read(f"entry{n % 3}", ".so")
                if k == 0:
                    (place / f"entry{n % 3}.so").unlink(missing_ok=True)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not raised


@pytest.mark.parametrize("target", [pytest.param("cpp", marks=pytest.mark.slow), *GPU])
def test_kernels_of_one_name_are_told_apart(target: str) -> None:
    """11319: what a cache holds under one name is of one text."""
    x = torch.ones(3, device="cpu" if target == "cpp" else "cuda")
    same_name = [kgen.loads(f"twin(x: f32[N]) -> y: f32[N]\ny = x * {k}\n") for k in (2, 3, 2)]
    assert [k(x, target=target)[0].item() for k in same_name] == [2, 3, 2]
