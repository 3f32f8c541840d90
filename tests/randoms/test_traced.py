"""torch's random functions in decorated functions: kgen's own numbers, of seeds that the call draws."""

# ruff: noqa: F722, F821, UP037
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import kgen
from kgen.errors import KgenError
from tests.randoms.philox import stream

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")


@kgen.kernel
def block(x: "T[..., N]", r: "T[..., N]", p: float = 0.1):
    h = r + F.dropout(x, p)
    return h, F.dropout(torch.relu(h), 0.5, training=True)


@kgen.kernel
def noise(x: "T[M, N]", p: "f32[N]"):
    return x + torch.randn_like(x), torch.rand_like(x), torch.bernoulli(p)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(8))
        self.p = 0.5

    @kgen.kernel
    def forward(self, x: "T[..., N]"):
        return F.dropout(x * self.w, self.p, self.training)


def uniform(shape: tuple[int, ...], seed: int, offset: int) -> torch.Tensor:
    return (stream(shape, seed, offset) >> 8).float() * 2.0**-24


def test_each_call_has_a_stream_of_its_own() -> None:
    text = block.to_spec()
    assert "seed: i64[] = random, offset: i64[] = random" in text
    assert "bernoulli[..., N](stays_1, seed, offset)" in text and "offset + 1)" in text
    x, r, seed, offset = torch.randn(4, 6), torch.zeros(4, 6), torch.tensor(3), torch.tensor(10)
    h, y = block(x, r, 0.25, seed=seed, offset=offset)
    assert torch.equal(h, torch.where(uniform((4, 6), 3, 10) < 0.75, x * torch.tensor(1 / 0.75), 0))
    assert torch.equal(y, torch.where(uniform((4, 6), 3, 11) < 0.5, h.relu() * 2, 0))


def test_the_generator_says_what_a_function_draws() -> None:
    x, p = torch.zeros(3, 4), torch.tensor([0.0, 1.0, 0.5, 1.0])
    torch.manual_seed(1)
    first = noise(x, p)
    second = noise(x, p)
    torch.manual_seed(1)
    assert all(map(torch.equal, first, noise(x, p))) and not torch.equal(first[0], second[0])
    n, u, b = first
    assert n.std() > 0 and bool(((u >= 0) & (u < 1)).all()) and b.dtype == torch.float32
    assert b[0] == 0 and b[1] == b[3] == 1


def test_a_layer_drops_in_training_alone() -> None:
    layer, x = Layer(), torch.ones(6, 8)
    y = layer(x)
    assert {*y.flatten().tolist()} == {0.0, 2.0}
    y.sum().backward()
    assert torch.equal(layer.w.grad, y.detach().sum(0))
    assert torch.equal(layer.eval()(x), x)
    layer.train().p = 0.75
    assert {*layer(x).flatten().tolist()} == {0.0, 4.0}


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(KgenError, match="training"):

        @kgen.kernel
        def chosen(x: "T[N]", t: int):
            return F.dropout(x, 0.5, t)

    with pytest.raises(KgenError, match="one number for each element"):

        @kgen.kernel
        def alone(x: "T[]"):
            return F.dropout(x, 0.5)

    with pytest.raises(KgenError, match="float"):

        @kgen.kernel
        def whole(x: "i64[N]"):
            return F.dropout(x, 0.5)
