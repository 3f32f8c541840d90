"""Neighbours that maps read as vectors, and parts that lie in turns, on the GPU: any length, layout and alignment, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.runtime import fast  # noqa: E402
from tests.cuda import test_cuda_parts as parts  # noqa: E402
from tests.cuda import test_cuda_taps as taps  # noqa: E402
from tests.cuda.test_cuda_taps import EMPTY, POOL, pool, pools  # noqa: E402
from tests.specs.test_placed_specs import causal_conv4, laplacian, rope, rope_interleaved, swiglu_packed  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
LENGTHS = (1, 2, 3, 7, 8, 24, 64, 1000, 1024, 4096, 4099)
#: Each with shapes for a length.
SPECS: dict[str, tuple[Any, Any]] = {
    "causal_conv4": (causal_conv4, lambda n: [(3, 5, n), (5, 4), (5,)]),
    "laplacian": (laplacian, lambda n: [(3, 9, n)]),
    "rope": (rope, lambda n: [(2, 3, 7, 2 * n), (7, n), (7, n)]),
    "rope_interleaved": (rope_interleaved, lambda n: [(2, 3, 7, 2 * n), (7, n), (7, n)]),
    "swiglu_packed": (swiglu_packed, lambda n: [(3, 5, 2 * n)]),
}


def moved(t: Any, off: int) -> Any:
    """A tensor on the GPU, its memory so many elements behind an aligned place, with other values around it."""
    room = torch.full((t.numel() + 2 * off + 16,), float("nan"), dtype=t.dtype, device="cuda")
    made = room[off : off + t.numel()].view(t.shape)
    return made.copy_(t)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_specs_are_what_one_writes_in_torch(name: str, dtype: Any) -> None:
    function, shapes = SPECS[name]
    kernel, far = kgen.load(name), {torch.bfloat16: 4e-2, torch.float16: 4e-3, torch.float32: 1e-5}[dtype]
    for n in LENGTHS:
        given = [torch.randn(s).to(dtype) for s in shapes(n)]
        want = function(*(t.double() for t in given))
        for off in (0, 1, 4, 8):
            found = kernel(*(moved(t, off) for t in given), target="cuda")
            torch.testing.assert_close(found.cpu().double(), want, rtol=far, atol=far)
        turned = [moved(t, 0).transpose(0, -1).contiguous().transpose(0, -1) for t in given]
        torch.testing.assert_close(kernel(*turned, target="cuda").cpu().double(), want, rtol=far, atol=far)


@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_torch(name: str) -> None:
    function, shapes = SPECS[name]
    kernel = kgen.load(name)
    for n in (1, 8, 41, 1024):
        ours = [torch.randn(s, device="cuda").requires_grad_() for s in shapes(n)]
        theirs = [t.detach().double().cpu().requires_grad_() for t in ours]
        want = function(*theirs)
        dy = torch.randn(want.shape, dtype=torch.float64)
        want.backward(dy)
        kernel(*ours, target="cuda").backward(dy.float().cuda())
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=1e-3, atol=1e-3 * max(1, n**0.5 / 4))


@pytest.mark.parametrize(("seed", "target"), [(0, "cuda"), (1, "cuda"), (2, "triton"), pytest.param(1, "triton", marks=pytest.mark.slow)])
def test_shifts_of_any_layout(seed: int, target: str) -> None:
    for text, meaning, rank in ((taps.LINE, taps.line, 1), (taps.PLANE, taps.plane, 2)):
        kernel = kgen.loads(text)
        for dtype in (torch.float32, torch.bfloat16):
            for args in taps.cases(rank, dtype, 12, seed):
                want = meaning(*(t.double() for t in args))
                made = kernel(*(on_gpu(t) for t in args), target=target)
                for found, w in zip(made if isinstance(made, tuple) else (made,), want.values(), strict=True):
                    assert torch.equal(found.cpu(), w.to(dtype)), [(t.shape, t.stride()) for t in args]


@pytest.mark.parametrize(("target", "dtype"), [("triton", torch.float32), ("triton", torch.bfloat16), ("cuda", torch.bfloat16)], ids=str)
def test_windows_of_many_elements(target: str, dtype: Any) -> None:
    """On Triton one code takes full blocks and others, a few elements a thread."""
    kernel = kgen.loads(POOL)
    for x, w in pools(dtype, 3, 4):
        want = pool(x.double(), w.double())["y"].to(dtype)
        assert torch.equal(kernel(on_gpu(x), on_gpu(w), target=target).cpu(), want), (x.shape, x.stride(), w.stride())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("text", "meaning"), [(taps.SQUARE, taps.square), (taps.CUBE, taps.cube), (taps.APART, taps.apart)], ids=["square", "cube", "apart"])
def test_windows_along_rows_and_across_them(text: str, meaning: Any, dtype: Any) -> None:
    """Of so many elements that a thread takes neighbours in several rows: these end within its vectors or its rows, and begin anywhere."""
    kernel = kgen.loads(text)
    x = torch.randint(-8, 8, (5, 62, 115, 260)).to(dtype)
    x[0, 3, 5, 7], x[1, 0, 0], x[4, 61, 114, 259] = torch.nan, -torch.inf, torch.inf
    for one in (x, x[..., :256], x[..., 1:], x[..., :113, :255], x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)):
        want = meaning(one.double()) if meaning is not taps.square else torch.nn.functional.max_pool2d(one.double(), 4, 1, 1)
        torch.testing.assert_close(kernel(on_gpu(one), target="cuda").cpu(), want.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_shifts_by_numbers(dtype: Any) -> None:
    kernel = kgen.loads(taps.MOVED)
    for (x,) in taps.cases(2, dtype, 20, 7):
        for s in (0, 1, -3, 8, -500):
            want = taps.moved(x.double(), s)["y"].to(dtype)
            assert torch.equal(kernel(on_gpu(x), s, target="cuda").cpu(), want), (x.shape, x.stride(), s)


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_parts_of_any_layout(target: str) -> None:
    for text, meaning in ((parts.TURNED, parts.turned), (parts.FOUR, parts.four)):
        kernel = kgen.loads(text)
        for args in parts.cases(text, torch.bfloat16, 30, 2):
            want = meaning(*(t.double() for t in args))
            own = [on_gpu(t) for t in args]
            made = kernel(*own, target=target)
            found = {"y": made} if text is parts.TURNED else {"x'": own[0], "z": made}
            for name, w in want.items():
                assert torch.equal(found[name].cpu(), w.to(torch.bfloat16)), (name, [(t.shape, t.stride()) for t in args])


def on_gpu(t: Any) -> Any:
    """A tensor with the same strides, and as far from an aligned place, on the GPU."""
    size = t.untyped_storage().nbytes() // t.element_size()
    memory = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage(), 0, (size,))
    skew = memory.data_ptr() % 16 // t.element_size()
    room = torch.empty(size + skew, dtype=t.dtype, device="cuda")
    room[skew:].copy_(memory)
    return room.as_strided(t.shape, t.stride(), skew + t.storage_offset())


@pytest.mark.skipif(not fast.wait(), reason="there is no extension here")
@pytest.mark.parametrize("name", SPECS)
def test_calls_with_split_axes_go_the_fast_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kgen.load(name)
    shapes = SPECS[name][1](64)
    given = [torch.randn(s, device="cuda") for s in shapes]
    want = [kernel(*given, target="cuda") for _ in range(3)][-1]
    other = [moved(t, 1) for t in given]
    kernel(*other, target="cuda")
    plain = kernel._plain or kernel
    with monkeypatch.context() as m:
        m.setitem(plain.__dict__, "_calls", None)
        assert torch.equal(kernel(*given, target="cuda"), want) and torch.equal(kernel(*other, target="cuda"), want)
        out = torch.empty_like(want)
    assert kernel(*given, out=out, target="cuda") is out and torch.equal(out, want)


@pytest.mark.parametrize("name, shapes", [
    ("causal_conv4", [(4, 80, 4096), (80, 4), (80,)]), ("causal_conv4", [(4, 80, 4064), (80, 4), (80,)]), ("laplacian", [(3, 360, 1000)]),
    ("laplacian", [(3, 359, 1000)]),
])  # fmt: skip
def test_many_elements_are_what_few_are(name: str, shapes: list[tuple[int, ...]]) -> None:
    """From so many elements on a thread takes several pieces of a row, or several rows."""
    function, kernel = SPECS[name][0], kgen.load(name)
    given = [torch.randn(s).to(torch.bfloat16) for s in shapes]
    found = kernel(*(moved(t, 0) for t in given), target="cuda").cpu()
    assert torch.equal(found[:1], kernel(moved(given[0][:1], 0), *(moved(t, 0) for t in given[1:]), target="cuda").cpu())
    torch.testing.assert_close(found.double(), function(*(t.double() for t in given)), rtol=4e-2, atol=4e-2)


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("text", EMPTY)
def test_of_none_there_is_what_stands_outside(text: str, target: str) -> None:
    kernel = kgen.loads(text)
    for m in (3, 2000):
        x, w = torch.ones(*(0, 2)[: 1 + (text is EMPTY[2])], device="cuda"), torch.rand(m, device="cuda")
        torch.testing.assert_close(kernel(x, w, target=target), (w * 5).sum() if text is EMPTY[1] else w * 5)
