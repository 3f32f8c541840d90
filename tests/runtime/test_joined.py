"""Axes that a header splits into dims: tensors come and go as people have them, and a size that does not fit is told."""

from __future__ import annotations

import pytest
import torch

import kgen
from kgen.errors import KgenError

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")

QUANTISED = """q(x: T[M, G*128]) -> (q: i8[M, G*128], s: f32[M, G])

s = max[128](abs(x)) / 127
q = i8(clamp(round(x / s), -127, 127))
"""
HALVES = "h(x: T[..., 2*D], w: T[D]) -> y: T[..., 2*D]\n\ny = x * w + index[2] * D\n"
INTERLEAVED = "h(x: T[..., D*2], w: T[D]) -> y: T[..., D*2]\n\ny = x * w + index[2] * D\n"
NORMED = "g(x: T[B, G*C, S], w: T[G*C]) -> y: T[B, G*C, S]\n\ny = x * rsqrt(mean[C, S](x^2) + 1e-5) * w + 0 * G\n"
IN_PLACE = "p(x: T[4*D], k: f32[4]) -> x': T[4*D]\n\nx' = x * k\n"


def test_a_group_of_an_axis_is_reduced() -> None:
    x = torch.randn(3, 5, 256)[:, 1]
    q, s = kgen.loads(QUANTISED)(x)
    groups = x.reshape(3, 2, 128)
    assert q.shape == (3, 256) and s.shape == (3, 2) and torch.equal(s, groups.abs().amax(-1) / 127)
    assert torch.equal(q.view(3, 2, 128), (groups / s[..., None]).round().clamp(-127, 127).to(torch.int8))


@pytest.mark.parametrize("text", [HALVES, INTERLEAVED])
def test_halves_lie_as_the_header_says(text: str) -> None:
    kernel, w = kgen.loads(text), torch.randn(8)
    for x in (torch.randn(3, 16), torch.randn(16), torch.randn(16, 3).T, torch.randn(2, 3, 32)[..., ::2], torch.randn(0, 16)):
        halves = x.reshape(*x.shape[:-1], 2, 8) if text is HALVES else x.reshape(*x.shape[:-1], 8, 2).mT
        want = halves * w + torch.tensor([0, 8])[:, None]
        want = (want if text is HALVES else want.mT).reshape(x.shape)
        assert torch.equal(kernel(x, w), want)
        assert kernel(x, w, out=(out := torch.empty(x.shape))) is out and torch.equal(out, want)
        assert kernel(x, w, out=(empty := torch.empty(0))) is empty and torch.equal(empty, want)


def test_what_is_written_in_place() -> None:
    x, k = torch.randn(12), torch.randn(4)
    want = (x.view(4, 3) * k[:, None]).view(12)
    assert kgen.loads(IN_PLACE)(x, k) is None and torch.equal(x, want)


def test_gradients_graphs_lists_and_modules() -> None:
    kernel, w = kgen.loads(HALVES), torch.randn(8, requires_grad=True)
    x = torch.randn(3, 16, requires_grad=True)
    assert torch.autograd.gradcheck(kgen.loads(HALVES), (torch.randn(2, 4).double().requires_grad_(), torch.randn(2).double().requires_grad_()))
    y = kernel(x, w)
    y.sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, w.detach().repeat(2).expand(3, 16))
    assert torch.equal(kernel.foreach([x.detach()] * 2, [w.detach()] * 2)[1], y)
    out = [torch.empty(3, 16)]
    kernel.foreach([x.detach()], [w.detach()], out=out)
    assert torch.equal(out[0], y)
    layer = kernel.module(w=torch.ones(8))
    assert torch.equal(layer(x), kernel(x, torch.ones(8)))
    assert torch.equal(torch.func.vmap(kernel, in_dims=(0, None))(x.detach(), w.detach()), y)


def test_two_axes_of_one_factor_each_and_a_weight_along_both() -> None:
    with pytest.raises(KgenError, match="the sizes of G and C do not follow from that of `G\\*C`"):
        kgen.loads(NORMED)
    x, w = torch.randn(2, 6, 5), torch.randn(6)
    made = kgen.loads(NORMED.replace("w: T[G*C]", "w: T[G*C], one: T[G]").replace("0 * G", "0 * one"))(x, w, torch.ones(3))
    groups = x.view(2, 3, 2, 5)
    want = groups * (groups.square().mean((2, 3), keepdim=True) + 1e-5).rsqrt() * w.view(3, 2, 1)
    assert torch.allclose(made, want.view(x.shape), atol=1e-5)


@pytest.mark.parametrize(
    ("text", "shapes", "said"),
    [
        (QUANTISED, [(3, 130)], "x has 130 along G*128: 130 is no multiple of 128"),
        (HALVES, [(3, 15), (8,)], "x has 15 along 2*D, which is 16 (D is 8 in w)"),
        (HALVES, [(), (8,)], "x has 0 dims\n = help: it is declared `x: T[..., 2*D]`"),
        (IN_PLACE, [(8,), (5,)], "k has 5 along 4\n = help: it is declared `k: f32[4]`"),
        ("f(x: T[4]) -> y: T[4]\n\ny = x + 1\n", [(5,)], "x has 5 along 4"),
    ],
)
def test_a_size_that_does_not_fit_is_told(text: str, shapes: list[tuple[int, ...]], said: str) -> None:
    with pytest.raises(KgenError) as caught:
        kgen.loads(text)(*(torch.randn(shape) for shape in shapes))
    assert said in str(caught.value)


def test_a_result_of_another_shape() -> None:
    with pytest.raises(KgenError, match=r"out has shape \[3, 14\], but 2\*D is 16"):
        kgen.loads(HALVES)(torch.randn(3, 16), torch.randn(8), out=torch.empty(3, 14))


def test_the_gradients_are_declared_as_the_kernel_is() -> None:
    from kgen import grad

    text = grad.backward(kgen.loads(HALVES).kernel).kernel.signature()
    assert text == "h_backward(dy: T[..., 2*D], x: T[..., 2*D], w: T[D]) -> (dx: T[..., 2*D], dw: T[D])"
