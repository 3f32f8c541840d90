"""Functions out of people's models as kernels on the GPU: values and gradients are those of the functions in eager torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import kgen  # noqa: E402
from tests.trace.natural import CASES  # noqa: E402
from tests.trace.test_natural import IDS, METHODS, held, tensors  # noqa: E402
from tests.trace.written import module  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def by_turns() -> list:
    """Every function on both targets, on the other one slow: what a function becomes is a spec's program, whichever compiles it."""
    return [
        pytest.param(*case, target, id=f"{name}-{target}", marks=pytest.mark.slow if (k + j) % 2 else ())
        for k, (case, name) in enumerate(zip(CASES, IDS, strict=True))
        for j, target in enumerate(("triton", "cuda"))
    ]


@pytest.mark.parametrize(("function", "shapes", "target"), by_turns())
def test_values_and_gradients_are_eagers(function: Callable[..., Any], shapes: list[Any], target: str) -> None:
    given = [x.detach().cuda() for x in tensors(shapes)]
    with torch.device("cuda"):  # a function may make a tensor of its own
        held(function, kgen.kernel(function), given, target)


def test_a_methods_parameters_follow_it_to_the_gpu(tmp_path: Path) -> None:
    made = module(tmp_path, METHODS, "")
    m, x = made.RMSNorm(64).cuda(), torch.randn(9, 64, device="cuda", dtype=torch.bfloat16)
    torch.testing.assert_close(m(x), made.RMSNorm.forward.__wrapped__(m, x), rtol=2e-2, atol=2e-2)
    m(x).sum().backward()
    assert m.weight.grad is not None and m.weight.grad.is_cuda


@pytest.mark.parametrize("target", ["triton", "cuda"])
def test_a_result_may_have_a_literal_dim_of_its_own(target: str) -> None:
    woven = kgen.loads("woven(x: T[..., N], y: T[..., N]) -> z: T[..., N*3]\n\nz = x if index[3] == 0 else y if index[3] == 1 else x * y\n")
    stacked = kgen.loads("stacked(x: T[..., 4, N]) -> z: T[..., 4, 8, N]\n\nz = x * index[8] + x[4 = 0] * index[4]\n")
    for n in (1, 9, 1000):
        x, y, z = (torch.randn(*shape, n, device="cuda") for shape in ((2, 3), (2, 3), (2, 4)))
        assert torch.equal(woven(x, y, target=target), torch.stack([x, y, x * y], -1).flatten(-2))
        four, eight = (torch.arange(k, device="cuda").view(-1, 1) for k in (4, 8))
        assert torch.allclose(stacked(z, target=target), z[:, :, None] * eight + z[:, :1, None] * four[:, None])
