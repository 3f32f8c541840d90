"""Scans on a CUDA device: within the bound derived from their formula for every length, layout and dtype, with the same bits each time."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.testing import checks
from tests.specs.cases import check_call, random

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

TEXTS = {
    "sums": "sums(x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N](x)\n",
    "behind": "behind(x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N, reversed, exclusive](x)\n",
    "largest": "largest(x: T[..., N]) -> (y: T[..., N], z: T[..., N])\n\ny = cummax[N](x)\nz = cummin[N, exclusive](x)\n",
    "logs": "logs(x: T[..., N]) -> y: T[..., N]\n\ny = logcumsumexp[N](x)\n",
    "products": "products(x: T[..., N]) -> y: T[..., N]\n\ny = cumprod[N, reversed](1 + x * 0.01)\n",
    "since": "since(x: T[..., N], begins: bool[..., N]) -> y: T[..., N]\n\ny = cumsum_since[N](begins, x)\n",
    "gated": "gated(x: T[..., N], g: T[..., N]) -> h: T[..., N]\n\na = sigmoid(g)\nh = recur[N](a, (1 - a) * x) + index[N] * 0\n",
    "counts": "counts(k: i8[..., N], b: bool[N]) -> y: i64[..., N]\n\ny = cumsum[N](k) + cumsum[N, exclusive](b)\n",
    "mixed": "mixed(x: T[..., N], w: f32[N]) -> y: f64[..., N]\n\nm = max[N](x)\ny = cumsum[N](f64(x - m) * w)\n",
    "both": "both(x: T[..., N]) -> y: T[..., N]\n\ny = cumsum[N](x) - cumsum[N, reversed](x)\n",
    "state": "state(x: T[..., N]) -> x': T[..., N]\n\nx' = cumsum[N, exclusive](x)\n",
}
LENGTHS = (1, 2, 7, 8, 9, 31, 64, 65, 127, 255, 1000, 1024, 2048, 2049, 4096, 4097, 8191, 10_000, 40_001, 2**17, 2**20)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def arguments(kernel: kgen.Kernel, make, rows: int, n: int) -> dict:
    found = {}
    for p in kernel.kernel.params:
        shape = (n,) if p.dims == ("N",) else (rows, n)
        found[p.name] = {"i8": lambda s: torch.randint(-9, 9, s, dtype=torch.int8), "bool": lambda s: torch.rand(s) < 0.5,
                         "f32": lambda s: torch.randn(s)}.get(p.dtype, lambda s: make(*s))(shape)  # fmt: skip
    return found


def by_turns() -> list:
    """Each kernel on CUDA and each second one on Triton, of each second length; the other kernels and lengths are slow."""
    return [
        pytest.param(name, target, k // each % 2 ^ other, id=f"{name}-{target}" + "-other" * other, marks=pytest.mark.slow if other or k % each else ())
        for k, name in enumerate(TEXTS)
        for target, each in (("cuda", 1), ("triton", 2))
        for other in (0, 1)
    ]


@pytest.mark.parametrize(("name", "target", "first"), by_turns())
def test_every_length_stays_within_the_bound(name: str, target: str, first: int) -> None:
    kernel = kgen.loads(TEXTS[name])
    for k, n in enumerate(LENGTHS):
        if k % 2 != first:
            continue
        dtype = DTYPES[(k // 2 + first) % 4]
        rows = 3 if n < 10_000 else 2
        check_call(kernel, arguments(kernel, random(dtype, n), rows, n), target)


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("name", ["sums", "behind", "gated", "logs"])
def test_any_layout_stays_within_the_bound(name: str, target: str) -> None:
    """Columns, slices that begin within a vector, every other element, broadcast rows, several leading dims."""
    kernel = kgen.loads(TEXTS[name])
    for dtype in (torch.float32, torch.bfloat16):
        for turn in (
            lambda x: x.mT.contiguous().mT, lambda x: x[:, 3:], lambda x: x[:, ::2], lambda x: x[:1].expand(5, -1),
            lambda x: x.reshape(3, 2, -1).transpose(0, 1), lambda x: x[:, :1].expand(-1, 700), lambda x: x[:0],
        ):  # fmt: skip
            given = {key: turn(x) for key, x in arguments(kernel, random(dtype, 5), 6, 5001).items()}
            check_call(kernel, given, target)


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("name", ["sums", "logs", "gated"])
def test_a_row_has_the_same_bits_alone_among_others_and_each_time(name: str, target: str) -> None:
    kernel = kgen.loads(TEXTS[name])
    for dtype in (torch.float32, torch.bfloat16):
        for n, rows in ((16, 4096), (1000, 700), (4096, 300), (100_000, 200)):
            given = {k: x.cuda() for k, x in arguments(kernel, random(dtype, n), rows, n).items()}
            found = kernel(**given, target=target)
            assert torch.equal(found, kernel(**given, target=target))
            for row in (0, rows // 2, rows - 1):
                alone = kernel(**{k: x[row : row + 1].contiguous() for k, x in given.items()}, target=target)
                assert torch.equal(alone[0], found[row]), (name, dtype, n, row)


@pytest.mark.parametrize("target", ["cuda", "triton"])
@pytest.mark.parametrize("name", ["sums", "largest", "logs", "products", "gated", "both"])
def test_gradients_stay_within_the_bound(name: str, target: str) -> None:
    from kgen.grad import backward

    report = checks.check(backward(kgen.loads(TEXTS[name]).kernel).kernel, target, examples=6)
    assert not report.failures, report.failures[0]


@pytest.mark.first
@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_drawn_calls_stay_within_the_bound(target: str) -> None:
    for name in TEXTS:
        report = checks.check(kgen.loads(TEXTS[name]).kernel, target, examples=6)
        assert not report.failures, (name, report.failures[0])


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_a_scan_of_what_lies_in_another_dtype(target: str) -> None:
    """No pointer of the pass that scans tells T."""
    kernel = kgen.loads("grouped(x: T[3 * N, M]) -> y: T32[N, M]\n\ny = cumsum[N, exclusive](max[3](x))\n")
    for dtype in DTYPES:
        check_call(kernel, {"x": random(dtype, 0)(3 * 700, 5)}, target)


def test_more_elements_than_32_bits_count_to() -> None:
    if torch.cuda.mem_get_info()[0] < 20 * 2**30:
        pytest.skip("there is too little memory")
    x = torch.ones(2**32 // 2**16 + 2, 2**16, dtype=torch.int8, device="cuda")
    y = kgen.loads("wide(x: i8[M, N]) -> y: i8[M, N]\n\ny = cummax[N](x)\n")(x, target="cuda")
    assert bool((y[-3:] == 1).all())
