"""CUDA kernels that scan, run on the CPU (see `emulated.py`), and how they are launched."""

from __future__ import annotations

import ctypes
import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from kgen.backends import scan_launches  # noqa: E402
from kgen.backends.cuda import Cuda  # noqa: E402
from kgen.backends.launches import ANY  # noqa: E402
from kgen.runtime import scans  # noqa: E402
from kgen.runtime.rows import RowOperandPlace  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402
from tests.scans.test_scans import scanned  # noqa: E402

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
BOTH = """both(a: T[..., N], b: T[..., N], c: T[N]) -> (h: T[..., N], s: T[..., N])

h = recur[N, exclusive](a, b) + index[N]
s = cumsum[N](b * c) * 2
"""
BACK = BOTH.replace("[N, exclusive]", "[N, exclusive, reversed]").replace("cumsum[N]", "cummax[N, reversed]")


def given(*shape: int, turned: bool = False) -> tuple:
    a, b = torch.rand(shape), torch.randn(shape)
    return *(x.T.contiguous().T if turned else x for x in (a, b)), torch.randint(-3, 4, shape[-1:]).float()


def near(got: dict, back: bool, *call: torch.Tensor) -> None:
    """A call's results within what f32 is to keep of them."""
    a, b, c = (x.double() for x in call)
    want = scanned("recur", back, True, a, b) + torch.arange(a.shape[-1]), scanned("cummax" if back else "cumsum", back, False, b * c) * 2
    assert torch.allclose(got["h"].double(), want[0], rtol=1e-5, atol=1e-5) and torch.allclose(got["s"].double(), want[1], rtol=1e-4, atol=1e-4)


def held(text: str, folder, *calls: tuple) -> None:
    emulated = Emulated(text, folder, *calls)
    for call in calls:
        near(emulated(*call), text == BACK, *call)


@needs_gcc
def test_rows_are_gone_along_whoever_takes_them(tmp_path) -> None:
    """A thread, some lanes, a warp with several segments, and columns; rows that begin and end within a vector."""
    torch.manual_seed(0)
    a, b, c = given(3, 702)
    held(BOTH, tmp_path, given(5, 3), given(3, 27), (a[:, 1:], b[:, 1:], c[1:]), given(20, 70, turned=True), given(24, 9, turned=True))


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("text", [BOTH, BACK])
def test_long_rows_are_gone_along_whoever_takes_them(text: str, tmp_path) -> None:
    torch.manual_seed(1)
    a, b, c = given(2, 1500)
    calls = (a[:, 3:], b[:, 3:], c[3:]), given(2, 3000), given(2, 20_001), given(20, 2100, turned=True), given(1, 1), given(300, 9)
    held(text, tmp_path, *calls)


@needs_gcc
def test_blocks_that_share_a_row_give_the_same_bits(tmp_path, monkeypatch) -> None:
    """Tiles of two vectors, more than a group of them in a row; of columns vectors of four, and one by one.  A block takes one tile, two, all."""
    torch.manual_seed(2)
    calls = given(1, 40_003), given(40, 2100, turned=True), given(39, 700, turned=True)
    found = []
    monkeypatch.setattr(scan_launches, "TEAMS", (*scan_launches.TEAMS[:1], *2 * (scan_launches.Team(ANY, 64, 64, 2),)))
    monkeypatch.setattr(scan_launches, "TEAMS_ASIDE", (*scan_launches.TEAMS_ASIDE[:1], scan_launches.Team(ANY, 4, 32, 4)))
    for few in (0, 1 << 30):
        monkeypatch.setattr(scan_launches, "FEW", few)
        monkeypatch.setattr(scan_launches, "FEW_ASIDE", few)
        scans.cached.cache_clear()
        (folder := tmp_path / str(few)).mkdir()
        emulated = Emulated(BOTH, folder, *calls)
        assert (len(emulated.expressions) == 6) == bool(few), emulated.expressions
        for most in (1, 2, 1 << 30) if few else (1 << 30,):
            ctypes.c_uint.in_dll(emulated.library, "most_tickets").value = most
            found.append([emulated(*call) for call in calls])
    scans.cached.cache_clear()
    for call, one, *others in zip(calls, *found, strict=True):
        near(one, False, *call)
        for other in others:
            assert all(torch.equal(one[name], other[name]) for name in one)


@needs_gcc
def test_what_stands_still_has_no_place_beside_tiles(tmp_path, monkeypatch) -> None:
    """Blocks that take tiles hold them in as much shared memory as the launch asks for, whatever else the scan reads."""
    monkeypatch.setattr(scan_launches, "TEAMS", (*scan_launches.TEAMS[:1], *2 * (scan_launches.Team(ANY, 64, 64, 2),)))
    monkeypatch.setattr(scan_launches, "FEW", 1 << 30)
    scans.cached.cache_clear()
    text = "still(e: f16[], d: T[...], x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N, reversed]((e + d) * x)\n"
    torch.manual_seed(3)
    call = torch.tensor(0.5, dtype=torch.float16), torch.randn(2), torch.randn(2, 9001)
    emulated = Emulated(text, tmp_path, call)
    scans.cached.cache_clear()
    assert len(emulated.expressions) == 2
    e, d, x = (given.double() for given in call)
    want = ((e + d)[:, None] * x).flip(-1).cumsum(-1).flip(-1)
    assert torch.allclose(emulated(*call)["y"].double(), want, rtol=1e-4, atol=1e-3)


def planned(rows: int, n: int, size: int = 2, stride: int = 1):
    operand = RowOperandPlace((1 if stride > 1 else n,), (stride,), size, 0, True, False, True, 1)
    return scans.plan((rows,), n, (operand, operand._replace(read=False)), False, 8, 99 * 1024)


def test_how_a_row_is_joined_follows_from_its_length_alone() -> None:
    for n in (1, 8, 100, 1024, 4096, 4097, 8192, 2**14, 2**17, 2**20 + 1):
        for size, stride in ((2, 1), (4, 1), (2, 64)):
            few, many = planned(2, n, size, stride), planned(200_000, n, size, stride)
            own = [{(walk.team, walk.vec, walk.aside or walk.parts) for walk, _ in p.steps} for p in (few, many)]
            assert own[0] == own[1] and len(own[0]) == 1 and len(many.steps) == 1
            walk, blocks = many.steps[0]
            side, tile = (walk.parts, 1) if walk.aside else (1, walk.parts)
            assert blocks * walk.threads // walk.team * side >= 200_000 and few.segments * walk.team * walk.vec * tile >= n
    teams = {(n, size): planned(many, n, size).steps[0][0].team for n in (4096, 4097, 5121) for size in (2, 4) for many in (1, 70_000)}
    assert teams == {(4096, 2): 128, (4097, 2): 32, (5121, 2): 256, (4096, 4): 256, (4097, 4): 512, (5121, 4): 512}
    assert planned(0, 5) is None and planned(5, 0) is None
    assert len(planned(2, 2**20).steps) == 2 and planned(2, 2**20).work >= 8 * 2 * planned(2, 2**20).segments
    assert planned(2**20, 2**13).steps[0][0].index64 and not planned(2**10, 2**13).steps[0][0].index64


def test_library_has_the_table() -> None:
    text = Cuda().library_file("kgen_scans_table.cuh")
    assert f"SCAN_FEW = {scan_launches.FEW};" in text and all(f"{t.team}, {t.threads}, {t.parts}}}" in text for t in scan_launches.TEAMS)
    for file, constant in (("chained", f"GROUP = {scan_launches.GROUP};"), ("beside", f"GROUP = {scan_launches.GROUP_ASIDE},"),
                           ("chained", f"STAGES = {scan_launches.STAGES};")):  # fmt: skip
        assert constant in Cuda().library_file(f"kgen_{file}.cuh")


@needs_gcc
def test_logarithms_of_sums_are_their_peak_and_a_sum_beside_it(tmp_path) -> None:
    """Terms that overflow as powers, equal infinities, NaN, and what stands before the first element."""
    torch.manual_seed(4)
    text = ("logs(x: T[..., N]) -> (y: T[..., N], z: T[..., N])\n\n"
            "y = logcumsumexp[N](x)\nz = logcumsumexp[N, exclusive](x)\n")  # fmt: skip
    x = torch.randn(6, 300) * torch.tensor([[1e-3], [1.0], [30.0], [300.0], [1.0], [1.0]])
    x[4, [0, 1, 7]], x[4, [100, 101]], x[5, :9], x[5, 40] = -torch.inf, torch.inf, -torch.inf, torch.nan
    got = Emulated(text, tmp_path, (x,))(x)
    for name, exclusive in (("y", False), ("z", True)):
        want = scanned("logcumsumexp", False, exclusive, x.double())
        assert torch.allclose(got[name].double(), want, rtol=3e-7, atol=1e-5, equal_nan=True), name


@needs_gcc
@pytest.mark.slow
def test_sums_begin_anew_whoever_takes_a_row(tmp_path) -> None:
    torch.manual_seed(3)
    text = ("since(x: T[..., N], k: i32[..., N], begins: bool[..., N]) -> (y: T[..., N], z: i64[..., N])\n\n"
            "y = cumsum_since[N](begins, x)\nz = cumsum_since[N, reversed, exclusive](begins, k)\n")  # fmt: skip
    shapes = (5, 3), (3, 27), (2, 3000), (2, 20_001)
    calls = [(torch.randn(s), torch.randint(-9, 9, s, dtype=torch.int32), torch.rand(s) < 0.1) for s in shapes]
    emulated = Emulated(text, tmp_path, *calls)
    for x, k, begins in calls:
        got = emulated(x, k, begins)
        assert torch.allclose(got["y"].double(), scanned("cumsum_since", False, False, begins, x.double()), rtol=1e-5, atol=1e-5)
        assert torch.equal(got["z"], scanned("cumsum_since", True, True, begins, k.long()))
