"""A logsumexp of no elements is -inf, as torch's is: its greatest element only shifts. A greatest of none that is a result stays an error."""

from __future__ import annotations

import pytest
import torch

import kgen

SPECS = {
    "rows": "f(x: T[B, N]) -> y: T[B]\n\ny = logsumexp[N](x)\n",
    "columns": "f(x: T[N, B]) -> y: T[B]\n\ny = logsumexp[N](x) + 1\n",
}
GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")])


@pytest.mark.parametrize("target", ["torch", "cpp", GPU])
@pytest.mark.parametrize("name", SPECS)
def test_it_is_torchs(name: str, target: str) -> None:
    device = "cuda" if target == "cuda" else "cpu"
    for n in (0, 1, 5):
        x = torch.randn((3, n) if name == "rows" else (n, 3), device=device, requires_grad=True)
        want = x.logsumexp(-1 if name == "rows" else 0) + (name == "columns")
        got = kgen.loads(SPECS[name])(x, target=target)
        torch.testing.assert_close(got, want)
        assert [torch.autograd.grad(y.sum(), x)[0].shape for y in (got, want)] == [x.shape, x.shape]


@pytest.mark.parametrize("target", ["torch", "cpp"])
@pytest.mark.parametrize("text", ["y = max[N](x)", "y = stop(max[N](x))", "y = logsumexp[N](x) + max[N](x)", "y = logsumexp[N](x) + min[N](x)"])
def test_the_greatest_of_none_is_refused(text: str, target: str) -> None:
    with pytest.raises(kgen.KgenError, match="of no elements: dim N has size 0"):
        kgen.loads(f"f(x: T[B, N]) -> y: T[B]\n\n{text}\n")(torch.ones(2, 0), target=target)
