"""Pieces of rows as CUDA kernels, run on the CPU: what is quantised in blocks, behind a norm and along both dims, in one reading."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from kgen.parts import over_parts  # noqa: E402
from kgen.pipeline import merged  # noqa: E402
from kgen.runtime import coded  # noqa: E402
from kgen.types import DTYPES, bf16  # noqa: E402
from tests.cuda.emulated import Emulated, for_any_rows  # noqa: E402

BLOCKS = """blocks(x: T[M, G, 64], w: T[64], b: T[G, 64]) -> (y: T[M, G, 64], q: f8e4m3[M, G, 64], s: f32[G, M])

y = T((x - mean[G, 64](x)) / sum[G, 64](abs(x)) * w + b)
s = max[64](abs(y)) / 448
q = f8e4m3[saturate](y / s)
"""
BOTH = """both(x: T[A, P, B, Q]) -> (q: f8e4m3[A, P, B, Q], s: f8e8m0[A, P, B], r: f8e4m3[A, P, B, Q], t: f8e8m0[A, B, Q]) where P = 32, Q = 32

s = mx_scale_up[Q](x, 448)
q = f8e4m3[saturate](x / s)
t = mx_scale_up[P](x, 448)
r = f8e4m3[saturate](x / t)
"""
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def layouts(x: torch.Tensor) -> list[torch.Tensor]:
    """A tensor that is dense, that begins within a vector, and whose dims lie the other way round."""
    shifted = torch.zeros(x.numel() + 3, dtype=x.dtype)[3:].view(x.shape).copy_(x)
    return [x, shifted, torch.empty(x.shape[::-1], dtype=x.dtype).permute(*reversed(range(x.dim()))).copy_(x)]


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.slow)])
def test_blocks_behind_a_norm(dtype: torch.dtype, tmp_path, built_quickly) -> None:
    """One pass; scales and codes are those of the stored result, bit for bit, of rows in registers, in shared memory and read anew, also of
    zeros, infinity and NaN."""
    given = []
    for m, g in ((3, 1), (5, 4), (2, 37), (2, 700)) if dtype == torch.bfloat16 else ((5, 4),):
        x = torch.randn(m, g, 64, generator=torch.Generator().manual_seed(g)).to(dtype)
        x[0, 0], x[1, 0, 5], x[1, -1, 7] = 0.0, torch.inf, torch.nan
        w, b = torch.arange(64).to(dtype) / 64 + 0.5, torch.zeros(g, 64, dtype=dtype)
        given += [(each, w, b) for each in (layouts(x) if g == 4 else [x])]
    given.append((torch.randn(1, 2100, 64).to(dtype), *given[0][1:2], torch.ones(2100, 64, dtype=dtype)))
    kernel = Emulated(BLOCKS, tmp_path, *given)
    assert len(kernel.units) == 1 and not kernel.workspaces
    for x, w, b in given:
        found, other = kernel(x, w, b), kgen.loads(BLOCKS)(x, w, b, target="cpp")
        y = found["y"].float()
        torch.testing.assert_close(found["y"], other[0], rtol=2.0**-6, atol=1e-3, equal_nan=True)
        s = y.abs().amax(2) / 448
        torch.testing.assert_close(found["s"], s.T, rtol=0, atol=0, equal_nan=True)
        want = coded.rounded(DTYPES["f8e4m3"], ("saturate",), y / s[..., None])
        assert torch.equal(bits(found["q"]) & 0x7F, bits(want) & 0x7F), (x.shape, x.stride())


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.slow)])
def test_scales_along_both_dims(dtype: torch.dtype, tmp_path, built_quickly) -> None:
    """One pass over tiles, which gives what one along each dim does."""
    x = torch.randn(2, 32, 3, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    x[0, 0, 0], x[1, 5, 1, 5], x[1, 6, 2, 7] = 0.0, torch.inf, torch.nan
    given = layouts(x)
    kernel = Emulated(BOTH, tmp_path, *((each,) for each in given))
    assert len(kernel.units) == 1
    want = kgen.loads(BOTH)(x, target="cpp")
    for each in given:
        for name, own in zip("qsrt", want, strict=True):
            assert torch.equal(bits(kernel(each)[name]), bits(own)), (name, each.stride())


ROUNDED = """rounded(x: T[M, G, 64]) -> (q: f8e4m3[M, G, 64], s: f32[M, G])

y = T(x * 1.5)
k = max[G, 64](y if y < max[G, 64](y) else 0)
h = x * k
s = max[64](abs(h)) / 448
q = f8e4m3[saturate](h / s)
"""


@needs_compiler
def test_pieces_take_operands_as_they_lie(tmp_path, built_quickly) -> None:
    """Behind two readings of a rounded value, which would take its operand's place else."""
    given = [torch.randn(3, g, 64, generator=torch.Generator().manual_seed(g)).bfloat16() for g in (1, 4, 37)]
    kernel = Emulated(ROUNDED, tmp_path, *((x,) for x in given))
    assert len(kernel.units) == 1
    for x in given:
        for name, own in zip("qs", kgen.loads(ROUNDED)(x, target="cpp"), strict=True):
            assert torch.equal(bits(kernel(x)[name]), bits(own)), (name, x.shape)


@needs_compiler
def test_pieces_of_any_rows(monkeypatch: pytest.MonkeyPatch, tmp_path, built_quickly) -> None:
    """The kernels of a written file for rows in any dims give the same."""
    from kgen.runtime import rows

    for_any_rows(monkeypatch, rows)
    x = torch.randn(2, 32, 3, 32, generator=torch.Generator().manual_seed(2)).bfloat16()
    found = Emulated(BOTH, tmp_path, (x,))(x)
    for name, own in zip("qsrt", kgen.loads(BOTH)(x, target="cpp"), strict=True):
        assert torch.equal(bits(found[name]), bits(own)), name


def test_pieces_of_parts_in_turns_have_a_pass_of_their_own() -> None:
    """What is packed reads even and odd elements apart: no lane has neighbours of a piece, which read from memory once more took three times
    as long as a pass of their own."""
    norm = "h = T(x * rsqrt(mean[G, 16](x^2)))\ny = h\ns = scale[16](h, 6)\n"
    packed, wide = (
        kgen.loads(f"f(x: T[M, G*16]) -> (y: T[M, G*16], q: {kind}[M, G*16], s: f32[M, G])\n\n{norm}q = {kind}(h / s)\n").kernel
        for kind in ("f4e2m1", "f8e4m3")
    )
    assert [[len(p.pieces) for p in merged(over_parts(k), {"T": bf16}).passes] for k in (packed, wide)] == [[0, 0], [1]]
