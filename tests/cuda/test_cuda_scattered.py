"""Rows of several dims that are read in segments: channels, whose elements are pieces that lie far apart, run on the CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.backends import launches  # noqa: E402
from kgen.testing.bounds import Analysis  # noqa: E402
from tests.cuda.emulated import Emulated  # noqa: E402

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
CHANNELS = "channels(x: T[B, C, S]) -> (m: T32[C], v: T32[C])\n\nm = mean[B, S](x)\nv = mean[B, S]((x - m)^2)\n"
NORMED = "normed(x: T[B, C, S]) -> y: T[B, C, S]\n\nd = x - mean[B, S](x)\ny = d * rsqrt(mean[B, S](d^2) + 0.1)\n"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_channels_stay_within_their_bounds(dtype: torch.dtype, tmp_path: Path) -> None:
    """Pieces of whole vectors, of narrower ones and of none; a channel has the same bits among others and alone."""
    torch.manual_seed(0)
    calls = [(torch.randn(*shape).to(dtype),) for shape in ((700, 2, 49), (180, 2, 196), (45, 3, 784), (4200, 2, 8), (200, 3, 49))]
    alone = [(x[:, 1:2],) for (x,) in calls]
    kernel = Emulated(CHANNELS, tmp_path, *calls, *alone)
    ways = {tuple(e.split("Walk<")[1].split(", ")[k] for k in (2, 4, 5, 9)) for e in kernel.expressions}
    wide = 16 // dtype.itemsize
    assert {("128", "16", "1", "true"), ("128", "8", "4", "true"), ("128", "8", str(wide), "true")} <= ways, ways
    for (x,), (own,) in zip(calls, alone, strict=True):
        made, one = kernel(x), kernel(own)
        for name, want in zip("mv", Analysis(kernel.kernel, {"x": x}, "cuda").results(), strict=True):
            assert bool((made[name].double() - want.exact).abs().le(want.bound).all()), (name, x.shape)
            assert torch.equal(made[name][1:2], one[name]), (name, x.shape)


SLOPES = "slopes(g: T[B, C, S], x: T[B, C, S], m: f32[B]) -> (u: T32[C], v: T32[C])\n\nu = sum[B, S](g * (x - m))\nv = sum[B, S](g)\n"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_channels_that_are_read_once_stay_within_their_bounds(dtype: torch.dtype, tmp_path: Path) -> None:
    """Two operands, in pieces of whole vectors, of narrower ones and of none, and in long ones; a channel has the same bits alone."""
    torch.manual_seed(0)
    shapes = ((700, 2, 49), (180, 2, 196), (300, 3, 64), (45, 3, 784))
    calls = [(*(torch.randn(*shape).to(dtype) for _ in range(2)), torch.randn(shape[0])) for shape in shapes]
    alone = [(g[:, 1:2], x[:, 1:2], m) for g, x, m in calls]
    kernel = Emulated(SLOPES, tmp_path, *calls, *alone)
    ways = {tuple(e.split("Walk<")[1].split(", ")[k] for k in (2, 4, 5, 9)) for e in kernel.expressions}
    some = {("128", "8", "4", "true"), ("128", "4", "8", "true")} if dtype is torch.bfloat16 else {("256", "4", "4", "true")}
    assert {("64", "8", "1", "true"), *some} <= ways, ways
    for call, own in zip(calls, alone, strict=True):
        made, one = kernel(*call), kernel(*own)
        for name, want in zip("uv", Analysis(kernel.kernel, dict(zip("gxm", call, strict=True)), "cuda").results(), strict=True):
            assert bool((made[name].double() - want.exact).abs().le(want.bound).all()), (name, call[0].shape)
            assert torch.equal(made[name][1:2], one[name]), (name, call[0].shape)


def test_rows_whose_elements_are_stored_go_elsewhere() -> None:
    """They are read once by blocks that wait for one another, but for those without vectors, of which each would hold too little."""
    from kgen.runtime import arguments, nvrtc

    def ways(text: str, *shape: int) -> set[tuple[str, ...]]:
        kernel = kgen.loads(text).kernel
        call = arguments.bind(kernel, (torch.empty(*shape, dtype=torch.bfloat16),), {}, None)
        return {tuple(e.split("Walk<")[1].split(", ")[k] for k in (0, 4, 9)) for e in nvrtc.expressions(kernel, call, "sm_90")}

    assert ways(NORMED, 256, 64, 784) == {("256", "8", "false")} and ("256", "8", "true") in ways(NORMED, 1024, 64, 49)
    assert ways(CHANNELS, 256, 64, 784) == {("128", "8", "true")} and ways(CHANNELS, 1024, 64, 49) == {("128", "16", "true")}
    assert launches.SCATTERED_ABOVE < 2 * 256 * 784 and ways(CHANNELS, 20, 64, 784) != {("128", "8", "true")}
