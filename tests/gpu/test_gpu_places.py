"""On the GPU too a value depends on its operands alone: passes over rows of any length find what a map gives, bit for bit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from kgen.ops import OPS  # noqa: E402
from tests.backends.test_places import Places, operands  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
NAMES = ("tanh", "sin", "cos", "exp", "log1p", "erfc", "sigmoid", "pow", "div", "fma")


@pytest.mark.first
@pytest.mark.parametrize("target", ["triton", "cuda"])
def test_rows_have_the_values_of_a_map(target: str, device: str = "cuda") -> None:
    places = Places("f32", [OPS[name] for name in NAMES])
    abc = [x.to(device) for x in operands(torch.float32)]
    values = places.values(*abc, target=target)
    for length in (7, 100, 1023, len(abc[0])):
        count = len(abc[0]) // length * length
        given = [x[:count].view(-1, length) for x in (*abc, *values)]
        assert not places.found(places.elements(*given, target=target)), length
        if length != 100:
            continue
        apart = [torch.stack([x, x], -1)[..., 0] for x in given]
        assert not places.found(places.elements(*apart, target=target)), length
    zeros = torch.zeros(len(abc[0]), 100, device=device)
    held = places.values(abc[0] + 0, *abc[1:], target=target)
    assert not places.found(places.rows(zeros, *abc, *held, target=target))
