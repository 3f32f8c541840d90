"""Floats of few bits on a GPU: conversions bit for bit, unsigned integers, and the matrix of producers and formats."""

from __future__ import annotations

import pytest
import torch

import kgen
from tests.formats import matrix
from tests.formats.kernels import casts, check_casts, check_values, samples, values

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def on_gpu(kernel: kgen.Kernel, target: str):
    """A kernel on a target, of tensors from the CPU."""
    return lambda *given: [y.cpu() for y in kernel(*(x.cuda() for x in given), target=target)]


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_casts(target: str, dtype: torch.dtype) -> None:
    x, bits = samples(200_000, dtype)
    name = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}[dtype]
    check_casts(on_gpu(kgen.loads(casts(name)), target), x, bits)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("part", range(8))
def test_67_million_values(target: str, part: int) -> None:
    """Of any bits, each eighth part: beside the definition, which `tests/formats` holds to those of others."""
    kernel = on_gpu(kgen.loads(casts("f32")), target)
    for k in range(8 * part, 8 * part + 8):
        g = torch.Generator().manual_seed(k)
        x = torch.randint(-(2**31), 2**31, (2**20,), generator=g).to(torch.int32).view(torch.float32)
        check_casts(kernel, x, torch.randint(0, 2**32, x.shape, generator=g))


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_values(target: str) -> None:
    check_values(on_gpu(kgen.loads(values()), target))


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_unsigned_integers(target: str) -> None:
    from tests.formats import test_unsigned as of

    tensors, want = of.drawn()
    for k, (y, other) in enumerate(zip(on_gpu(kgen.loads(of.TEXT), target)(*tensors), want, strict=True)):
        assert (y.numpy() == other).all(), k


def by_turns() -> list:
    """Every producer, format and layout, of these each second one, in turn; the rest is slow."""
    places = [list(part) for part in (matrix.PRODUCERS, matrix.FORMATS, matrix.LAYOUTS)]
    return [
        pytest.param(c, id="-".join(c), marks=pytest.mark.slow if sum(p.index(x) for p, x in zip(places, c, strict=True)) % 2 else ())
        for c in matrix.pairs()
    ]


@pytest.mark.parametrize("case", by_turns())
def test_the_matrix_on_cuda(case: tuple[str, str, str]) -> None:
    given = matrix.arguments(*case, device="cuda")
    matrix.held(*case, given, kgen.loads(matrix.spec(*case))(*given, target="cuda"))


@pytest.mark.parametrize("case", [pytest.param(c, id="-".join(c)) for c in matrix.pairs()[::9]])
def test_the_matrix_on_triton(case: tuple[str, str, str]) -> None:
    given = matrix.arguments(*case, device="cuda")
    matrix.held(*case, given, kgen.loads(matrix.spec(*case))(*given, target="triton"))


@pytest.mark.parametrize("rows", [1, 37, 4096])
def test_rows_in_vectors_and_not(rows: int) -> None:
    """Sixteen elements of a byte in a vector where rows allow it."""
    kernel = kgen.load("rmsnorm_fp8_row")
    for n in (4096, 4100, 1027):
        x, w = torch.randn(rows, n).bfloat16(), torch.rand(n).bfloat16()
        for target in ("cuda", "triton"):
            q, s = (y.cpu() for y in kernel(x.cuda(), w.cuda(), target=target))
            want = torch.nn.functional.rms_norm(x.double(), (n,), w.double(), 1e-6)
            near = want.abs() * (2.0**-4 + 2.0**-7) + s[:, None].double() * 2.0**-9
            assert ((q.double() * s[:, None].double() - want).abs() <= near).all(), (n, target)
