"""Sums by index and over ranges on a GPU: within what rounding allows of f64, the same bits in every run, with gradients."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import backend  # noqa: E402
from tests.segments.kernels import CASES, SIZES, close, drawn  # noqa: E402
from tests.segments.test_lookups import TAKEN, text, used  # noqa: E402
from tests.segments.test_lookups import drawn as draw  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
LARGE = ((70_000, 40, 300), (200_000, 3, 4), (300, 64, 50_000))
#: What is still held to f64, on the CPU, where it takes a mask of every position for each key.
LONG = (70_000, 8, 40)


def moved(arguments: tuple) -> tuple:
    return tuple(a.cuda() for a in arguments)


def asked() -> list:
    """Every case on both targets in f32, with dims of one element too, which are others' variants; in bf16 on one of them, in f64 on the
    other, without such dims; the rest is slow."""
    wide = [s for s in (*SIZES, LONG) if 1 not in s]
    found = []
    for k, name in enumerate(CASES):
        for j, target in enumerate(("triton", "cuda")):
            own = (torch.bfloat16, torch.float64)[(k + j) % 2]
            found.append(pytest.param(name, target, {torch.float32: (*SIZES, LONG), own: wide}, id=f"{name}-{target}"))
            every = dict.fromkeys((torch.bfloat16, torch.float64), (*SIZES, LONG))
            found.append(pytest.param(name, target, every, id=f"{name}-{target}-every", marks=pytest.mark.slow))
    return found


@pytest.mark.parametrize(("name", "target", "calls"), asked())
def test_results_are_those_of_f64(name: str, target: str, calls: dict[torch.dtype, tuple[tuple[int, int, int], ...]]) -> None:
    made = kgen.loads(CASES[name].text)
    for dtype, sizes in calls.items():
        for arguments, want in drawn(name, dtype, sizes):
            given = moved(arguments)
            for _ in range(3):  # the third goes by what was kept of the first
                got = made(*given, target=target)
            close(tuple(r.cpu() for r in (got if isinstance(got, tuple) else (got,))), want, arguments)


@pytest.mark.parametrize("target", ["triton", "cuda"])
def test_every_run_has_the_same_bits(target: str) -> None:
    made = kgen.loads(CASES["by_index"].text)
    for arguments, _ in drawn("by_index", torch.float32, LARGE):
        given = moved(arguments)
        first = made(*given, target=target)
        assert all(torch.equal(first, made(*given, target=target)) for _ in range(5))


@pytest.mark.parametrize("target", ["triton", "cuda"])
def test_a_segment_has_the_same_bits_beside_any_others(target: str) -> None:
    made = kgen.loads(CASES["by_index"].text)
    x, like = torch.randn(30_000, 24, device="cuda"), torch.zeros(4, dtype=torch.int8, device="cuda")
    one = made(x, torch.zeros(30_000, dtype=torch.int64, device="cuda"), like, target=target)[0]
    ids = torch.cat([torch.ones(7, dtype=torch.int64), torch.full((30_000,), 3)]).cuda()
    assert torch.equal(one, made(torch.cat([torch.randn(7, 24, device="cuda"), x]), ids, like, target=target)[3])


def test_a_tables_gradient_is_that_of_torch() -> None:
    made = kgen.load("embedding")
    w, ids = torch.randn(500, 72, device="cuda", requires_grad=True), torch.randint(0, 500, (3000,), device="cuda")
    theirs, dy = w.detach().clone().requires_grad_(), torch.randn(3000, 72, device="cuda")
    made(w, ids).backward(dy)
    torch.nn.functional.embedding(ids, theirs).backward(dy)
    assert w.grad is not None and theirs.grad is not None and torch.allclose(w.grad, theirs.grad, atol=1e-4)


@pytest.mark.parametrize("target", ["triton", "cuda"])
def test_the_gradient_of_numbers_in_several_dims_is_that_of_torch(target: str) -> None:
    """The third call goes by what was kept of the first; of keys and gradients that do not merge dense copies are made."""
    made = kgen.loads("lookup(dy: T[..., D], w: T[V, D], ids: i64[...]) -> dw: T[V, D]\n\ndw = sum[...](dy if ids == index[V] else 0)\n")
    w = torch.zeros(500, 72, device="cuda")
    for _ in range(3):
        ids, dy = torch.randint(0, 500, (6, 700), device="cuda"), torch.randn(6, 700, 72, device="cuda")
        want = w.index_add(0, ids.reshape(-1), dy.reshape(-1, 72))
        assert torch.allclose(made(dy, w, ids, target=target), want, atol=1e-4)
        turned = made(dy.transpose(0, 1), w, ids.transpose(0, 1), target=target)
        assert torch.allclose(turned, want, atol=1e-4)


@pytest.mark.parametrize("target", ["triton", "cuda"])
@pytest.mark.parametrize("written", TAKEN)
def test_lookups_of_what_one_key_selects(written: str, target: str) -> None:
    made = kgen.loads(text(written))
    for seed, sizes in enumerate(((6, 4, 3), (5, 1, 2), (3000, 70, 40))):
        torch.manual_seed(seed)
        every = draw(*sizes)
        arguments = [every[name] for name in used(written)]
        want = made(*arguments, target="torch")
        got = made(*(a.cuda() if torch.is_tensor(a) else a for a in arguments), target=target).cpu()
        same = torch.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True) if got.is_floating_point() else torch.equal(got, want)
        assert same


def test_it_is_captured_into_a_graph() -> None:
    made = kgen.loads(CASES["by_index"].text)
    x, ids = torch.randn(3000, 24, device="cuda"), torch.randint(0, 9, (3000,), device="cuda")
    like = torch.zeros(9, dtype=torch.int8, device="cuda")
    want = made(x, ids, like)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = made(x, ids, like)
    graph.replay()
    assert torch.equal(got, want)


@pytest.mark.slow
def test_a_written_file_sorts_and_sums_by_itself(tmp_path: Path) -> None:
    """Built by nvcc; what one pass leaves for the next is the caller's memory."""
    kernel = kgen.loads(CASES["lookup"].text).kernel
    (tmp_path / "k.cu").write_text(backend("cuda").render(kernel, {"T": "f32"}))
    flags = ["-O3", "-std=c++17", "-arch=native", "-fmad=false", "-Xcompiler", "-fPIC", "-shared"]
    subprocess.run(["nvcc", *flags, str(tmp_path / "k.cu"), "-o", str(tmp_path / "k.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    s, v = 5000, 300
    ids = torch.randint(-1, v + 1, (s,), device="cuda")
    order, begin, end = (torch.empty(n, dtype=torch.int64, device="cuda") for n in (s, v, v))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def strides(*steps: int) -> ctypes.Array:
        return (ctypes.c_longlong * len(steps))(*steps)

    def at(x: torch.Tensor) -> ctypes.c_void_p:
        return ctypes.c_void_p(x.data_ptr())

    sort = getattr(library, next(n for n in ("lookup_backward_order_S_kept", "lookup_backward_begin_V_kept") if hasattr(library, n)))
    keys = (at(ids), strides(1, 0), at(order), strides(1, 0), at(begin), strides(0, 1), at(end), strides(0, 1))
    assert sort(2, strides(s, v), *keys, stream) == 0
    place = torch.where((ids < 0) | (ids >= v), v, ids)
    assert torch.equal(order[: int(end[-1])], place.sort(stable=True).indices[: int(end[-1])])
    assert torch.equal(end - begin, torch.bincount(place, minlength=v + 1)[:v])


@pytest.mark.parametrize("columns", [2048, 2047, 1000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_columns_of_ranges_are_what_each_is_alone(dtype: torch.dtype, columns: int) -> None:
    """Many elements, of which a thread takes several columns, beside the same columns in two calls of few."""
    torch.manual_seed(0)
    kernel, cuts = kgen.load("ragged_mean"), torch.randint(0, 5000, (400,)).sort().values.cuda()
    x = torch.randn(5000, columns, device="cuda", dtype=dtype)
    found = kernel(x, cuts, target="cuda")
    for first, last in ((0, 300), (300, 399)):
        assert torch.equal(found[first:last], kernel(x, cuts[first : last + 1].contiguous(), target="cuda"))
    wide, n = x.double().cumsum(0), (cuts[1:] - cuts[:-1])[:, None]
    total = torch.cat([torch.zeros_like(wide[:1]), wide])
    want = (total[cuts[1:]] - total[cuts[:-1]]) / n.clamp(min=1)
    torch.testing.assert_close(found.double(), want, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-3 if dtype is torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_ranges_that_threads_share_are_what_each_is_among_many(dtype: torch.dtype) -> None:
    """Few long ranges, with two sums over each, beside the same among so many that a thread takes each alone."""
    torch.manual_seed(0)
    made = kgen.loads("""two(x: T[S, D], v: T[S, D], lo: i64[B], hi: i64[B]) -> (y: T[B, D], z: T[B, D])

own = lo <= index[S] and index[S] < hi
y   = sum[S](x if own else 0)
z   = sum[S](v if own else 0)
""")
    x, v = (torch.randn(40_000, 512, device="cuda", dtype=dtype) for _ in range(2))
    for some, most in ((5, 16_000), (60, 1333), (300, 266), (1, 80_000), (39, 16_000), (39, 80_000)):  # the last have pieces of 16 and of 256 blocks
        lo = torch.randint(0, 40_000 if most < 40_000 else 100, (some,), device="cuda")
        hi = (lo + torch.randint(-2, most, (some,), device="cuda")).clamp(max=40_000)
        none = torch.zeros(40_000, device="cuda", dtype=torch.int64)
        many = made(x, v, torch.cat([lo, none]), torch.cat([hi, none]), target="cuda")
        few = made(x, v, lo, hi, target="cuda")
        assert all(torch.equal(a, b[:some]) for a, b in zip(few, many, strict=True))
