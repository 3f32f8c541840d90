"""Ways of sharing rows out that a device refused, or that wrote what was still to be read: each schedule once on each target."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.runtime import arguments, nvrtc

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
NORM = """f(g: T[..., N], x: T[..., N], w: T[N]) -> y: T[..., N]

h = silu(g) * x
y = h * rsqrt(mean[N](h^2) + 1e-6) * w
"""
#: Rows, elements of each: in registers, in shared memory, of a cluster, beginning within a vector, taken in turns, and of several launches.
WAYS = ((7, 1024), (5, 7001), (5, 28_000), (3, 33_001), (2, 300_001), (2, 400_001), (4224, 400_001), (2, 2_100_001))


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_gradients_of_rows_of_which_four_operands_are_held(target: str) -> None:
    """Of 13,313 to 16,384 elements these were given a cluster of one block."""
    kernel = kgen.loads(NORM)
    for n in (13_312, 13_313, 15_000, 16_384, 16_385):
        g, x, dy = (torch.randn(5, n, device="cuda").bfloat16() for _ in range(3))
        given = [t.requires_grad_() for t in (g, x, torch.randn(n, device="cuda").bfloat16())]
        wide = [t.detach().double().requires_grad_() for t in given]
        h = torch.nn.functional.silu(wide[0]) * wide[1]
        want = torch.autograd.grad(h * (h.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * wide[2], wide, dy.double())
        got = torch.autograd.grad(kernel(*given, target=target), given, dy)
        for a, b in zip(got, want, strict=True):
            assert (a - b).abs().max() <= 2.0**-7 * b.abs().max(), n


@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_a_result_may_lie_where_its_operand_does(target: str) -> None:
    kernel = kgen.load("softmax")
    for dtype in (torch.float32, torch.bfloat16):
        for count, n in WAYS:
            x = torch.randn(count, n, device="cuda").to(dtype)
            want = kernel(x, target=target)
            assert kernel(x, out=x, target=target) is x
            assert torch.equal(x, want), (dtype, count, n)


def test_every_way_of_walking_is_taken_above() -> None:
    kernel, found = kgen.load("softmax").kernel, set()
    for count, n in WAYS:
        for expression in nvrtc.expressions(kernel, arguments.bind(kernel, (torch.empty(count, n),), {}, None), "sm_90"):
            walk = expression.split("<")[2].split(", ")
            found.add((walk[10], walk[11], walk[12]))
    assert found >= {("1", "false", "-1"), ("2", "false", "-1"), ("2", "true", "-1"), ("2", "true", "-3"), ("0", "false", "2")}
