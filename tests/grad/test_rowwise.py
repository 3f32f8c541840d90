"""Sums of gradients by way of rows: what goes along rows for another sum is read once, and leaves a value a row."""

from __future__ import annotations

import pytest

from kgen import grad, pipeline
from kgen.monoids import Rides
from kgen.passes import Plan
from tests.grad_cases import kernel

#: A number, one for each head and one for each channel beside sums along rows.
NUMBER = "f(x: T[..., N], g: T[]) -> y: T[..., N]\n\ny = g * x / sum[N](x^2)"
HEADS = "f(x: T[B, H, Q, K], h: T[H]) -> y: T[B, H, Q, K]\n\nz = x - h * (index[Q] - index[K])\ny = z / sum[K](z^2)"
CHANNELS = "f(x: T[B, C, S], w: T[C]) -> y: T[B, C, S]\n\ny = w * x / sum[S](x^2)"
#: Sums that stay whole: elements follow from one, the rows of one are along other dims, or of few elements.
FOLLOWED = "f(x: T[..., G, 128]) -> y: T[..., G, 128]\n\ny = x / sum[G, 128](x^2) / sum[128](x^4)"
COLUMNS = "f(x: T[M, N], w: T[N]) -> y: T[M, N]\n\ny = w * x / sum[N](x^2)"
FEW = "f(x: T[..., 4], g: T[]) -> y: T[..., 4]\n\ny = g * x / sum[4](x^2)"


def plan(text: str, rides: Rides) -> Plan:
    """The passes of a gradient, on CUDA where sums ride on every row."""
    made = grad.backward(kernel(text)).kernel
    return (pipeline.merged if rides == Rides.EVERY else pipeline.plan)(made, pipeline.usual(made), rides)


@pytest.mark.parametrize("rides", [Rides.LONG, Rides.EVERY])
@pytest.mark.parametrize("text", [NUMBER, HEADS, CHANNELS])
def test_an_operand_is_read_once_and_what_is_kept_is_a_value_a_row(text: str, rides: Rides) -> None:
    made = plan(text, rides)
    whole = next(t.dims for t in made.program.tensors if t.name == "x")
    assert sum(t.name == "x" for p in made.passes for t in p.loads) == 1
    assert made.workspaces and all(w.dims == whole[:-1] for w in made.workspaces)


@pytest.mark.parametrize("text, passes", [(FOLLOWED, 2), (COLUMNS, 1), (FEW, 2)])
def test_other_sums_stay_whole(text: str, passes: int) -> None:
    assert len(plan(text, Rides.EVERY).passes) == passes
    values = grad.backward(kernel(text)).kernel.values
    sums = [v for v in values if v.op == "sum"]
    assert not any(v.op == "sum" and values[v.args[0]].op == "sum" for v in sums)


def test_what_another_value_takes_is_drawn_out_all_the_same() -> None:
    """The sum over the batch is a result's too: it is there, and is taken."""
    text = "f(x: T[B, H, K], h: T[H], w: T[H, K]) -> y: T[B, H, K]\n\nz = x + h * w\ny = z / sum[K](z^2)"
    made = grad.backward(kernel(text)).kernel
    drawn = [v for v in made.values if v.op == "sum" and v.attr == ("B",) and v.dims == ("H", "K")]
    assert len(drawn) == 1
