"""Values that are read at several places: kept in memory where that is cheaper than computing them anew."""

from __future__ import annotations

import pytest
import torch

from kgen import check, grad, pipeline, syntax
from kgen.backends import backend
from kgen.check import Kernel as Checked
from kgen.dear import dear
from kgen.parts import over_parts
from kgen.passes import Map
from kgen.runtime.kernel import Kernel, read_spec
from tests.cuda.test_cuda_taps import DERIVED

#: A dear value at several places, one along two dims, one of them by a number of the call.
AROUND = """around(x: T[..., M, N], s: int) -> y: T[..., M, N]

h = x / (1 + x^2) / (2 + x^2) / (3 + x^2) / (4 + x^2) / (5 + x^2) / (6 + x^2)
y = h[N = index[N] - 1 else 0] + h[M = index[M] + 1, N = index[N] + 2 else 3] - h[N = (index[N] + s) % N] * h
"""
#: The same of a place of a place: the second has two where they meet.
AGAIN = """twice(x: T[..., N]) -> y: T[..., N]

h = x / (1 + x^2) / (2 + x^2) / (3 + x^2) / (4 + x^2) / (5 + x^2) / (6 + x^2)
d = h[N = index[N] + 1 else 0] - h
y = d[N = index[N] - 1 else 0] - 2 * d
"""


def checked(text: str) -> Checked:
    return check.check(syntax.parse(text, "dear.k"))


def backwards(times: int) -> Checked:
    k = check.check(syntax.parse(*read_spec("causal_conv4")))
    for _ in range(times):
        k = grad.backward(k).kernel
    return k


@pytest.mark.parametrize("target", ["triton", "cpp"])
def test_a_convolutions_gradient_keeps_what_its_taps_share(target: str) -> None:
    k, mine = over_parts(backwards(1)), backend(target)
    plan = pipeline.scheduled(k, k.bindings()[0], mine.rides, mine.merges, mine.taps)
    assert "t3" in {w.let.label for w in plan.workspaces}
    assert any(s.ref == w.name for w in plan.workspaces for s in plan.passes[0].stores)  # the first pass leaves it
    assert sum(let.expr.name.startswith("sigmoid") for p in plan.passes for let in p.lets) == 2


def test_cheap_values_are_computed_anew() -> None:
    k = checked(DERIVED)
    assert not dear(pipeline.program(k, k.bindings()[0]))


@pytest.mark.parametrize("text", [AROUND, AGAIN], ids=["around", "again"])
def test_a_value_at_several_places_is_computed_once(text: str) -> None:
    k = checked(text)
    plan = pipeline.scheduled(k, k.bindings()[0], backend("cpp").rides, False, True)
    assert [w.let.label for w in plan.workspaces] == ["h"] and {type(p) for p in plan.passes} == {Map}
    assert sum(let.expr.name == "div" for p in plan.passes for let in p.lets) == 6


@pytest.mark.slow
@pytest.mark.parametrize("text", [AROUND, AGAIN], ids=["around", "again"])
def test_kept_values_are_those_that_are_meant(text: str) -> None:
    kernel = Kernel(checked(text))
    for shape in ((3, 5, 40), (2, 1), (1, 7, 1), (4, 600)):
        for x in (torch.randn(shape, dtype=torch.float64), torch.randn(shape[::-1], dtype=torch.float64).permute(*range(len(shape))[::-1])):
            numbers = (3,) if text is AROUND else ()
            torch.testing.assert_close(kernel(x, *numbers, target="cpp"), kernel(x, *numbers, target="torch"), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_a_convolutions_gradients_are_torchs(times: int) -> None:
    k, sizes = backwards(times), {"C": 5, "N": 40, "4": 4}
    given = [torch.randn([2 if d == "..." else sizes[d] for d in p.dims or ()], dtype=torch.float64) for p in k.params]
    for found, want in zip(Kernel(k)(*given, target="cpp"), Kernel(k)(*given, target="torch"), strict=True):
        torch.testing.assert_close(found, want, rtol=1e-10, atol=1e-10)
