"""Kernels as layers: their parameters, what `forward` takes, and how they stand in for torch's own layers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import kgen
from kgen.torch_op.modules import KernelModule
from tests.torch_cases import B, W, X, assert_same, evaluated, scalar  # noqa: F401

REQUIRED = kgen.loads("layernorm(x: T[..., N], w: T[N], b: T[N], eps: float = 1e-5) -> y: T[..., N]\n\ny = x * eps * w + b\n")
LIKE = [
    ("layernorm", nn.LayerNorm(5, eps=1e-3)),
    ("rmsnorm", nn.RMSNorm(5, eps=1e-4)),
]


@pytest.mark.parametrize(("spec", "like"), LIKE, ids=[s for s, _ in LIKE])
def test_a_layer_like_another_takes_its_place(spec: str, like: nn.Module) -> None:
    like = copy.deepcopy(like).double()
    with torch.no_grad():
        for p in like.parameters():
            p.uniform_(0.5, 2)
    layer = kgen.load(spec).module(like=like)
    assert list(layer.state_dict()) == list(like.state_dict())
    assert all(a is b for a, b in zip(layer.parameters(), like.parameters(), strict=True)), "an optimiser's parameters stay its own"
    assert layer.extra_repr() == like.extra_repr() and repr(layer).startswith(f"{spec}(")
    assert_same(layer(X), like(X))
    found = torch.autograd.grad(scalar(layer(X)), list(layer.parameters()))
    assert_same(found, torch.autograd.grad(scalar(like(X)), list(like.parameters())))


def test_a_layer_like_another_moves_and_copies_without_it() -> None:
    like = nn.LayerNorm((1, 5), bias=False)
    layer = kgen.load("layernorm").module(like=like, dtype=torch.float64)
    assert layer.weight.dtype == torch.float64 and like.weight.dtype == torch.float32
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.compile(layer, fullgraph=True, backend="aot_eager")):
        assert_same(again(X[:, None]), layer(X[:, None]), ulps=0)


def test_state_dicts_go_both_ways() -> None:
    layer = kgen.load("layernorm").module(w=torch.ones(5), b=torch.zeros(5), names={"w": "weight", "b": "bias"}, eps=1e-5)
    like = nn.LayerNorm(5)
    nn.init.normal_(like.weight)
    layer.load_state_dict(like.state_dict())
    assert_same(layer(X.float()), like(X.float()))
    nn.init.normal_(layer.bias)
    like.load_state_dict(layer.state_dict())
    assert_same(layer(X.float()), like(X.float()))


def test_what_is_left_is_taken_in_order_or_by_name() -> None:
    kernel = kgen.loads("f(w: T[N], x: T[..., N], k: int, a: float = 2.0, r: T[...]) -> y: T[..., N]\n\ny = (w * x + r) * a + k\n")
    layer, r = kernel.module(w=W), X[:, 0]
    wanted = (W * X + r[:, None]) * 2 + 3
    assert_same(layer(X, 3, r=r), wanted)
    assert_same(layer(x=X, r=r, k=3), wanted)
    assert_same(layer(X, 3, 2.0, r), wanted)
    assert_same(kernel.module(w=W, k=3, a=2)(X, r), wanted)
    for args, kwargs, message in (
        ((X,), {"r": r}, "k is missing"),
        ((X, 3, 2.0, r, 1), {}, "takes x, k, a, r and nothing else"),
        ((X, 3), {"r": r, "w": W}, "nothing else"),
    ):
        with pytest.raises(kgen.KgenError, match=message):
            layer(*args, **kwargs)


def test_floats_are_parameters_and_integers_buffers() -> None:
    kernel = kgen.loads("g(x: T[...], s: T[], table: i64[N]) -> y: T[..., N]\n\ny = x * s + table\n")
    layer = kernel.module(s=0.5, table=torch.arange(4), dtype=torch.float64)
    assert [n for n, _ in layer.named_parameters()] == ["s"] and [n for n, _ in layer.named_buffers()] == ["table"]
    assert layer.s.dtype == torch.float64 and layer.table.dtype == torch.int64 and repr(layer) == "g(N=4)"
    assert_same(layer(X), X[..., None] * 0.5 + torch.arange(4))
    scalar(layer(X)).backward()
    assert layer.s.grad.shape == ()


def test_layers_move_copy_pickle_compile_and_export() -> None:
    layer = kgen.load("dyt").module(alpha=0.5, w=W, b=B, names={"alpha": "alpha", "w": "weight", "b": "bias"})
    assert_same(layer.to(torch.float32)(X.float()), (W * (0.5 * X).tanh() + B).float())
    layer = layer.double()
    wanted = layer(X)
    other = copy.deepcopy(layer)
    assert other.kernel is layer.kernel and other.weight is not layer.weight
    for again in (other, pickle.loads(pickle.dumps(layer)), torch.compile(layer, fullgraph=True, backend="aot_eager")):
        assert_same(again(X), wanted, ulps=0)
    exported = torch.export.export(layer, (X,))
    assert sorted(exported.graph_signature.parameters) == ["alpha", "bias", "weight"]
    assert_same(exported.module()(X), wanted, ulps=0)
    on_meta = kgen.load("bias_gelu").module(b=torch.zeros(5), device="meta")
    assert on_meta(X.float().to("meta")).shape == X.shape
    layer.bias.requires_grad_(False)
    assert_same(torch.autograd.grad(scalar(layer(X)), layer.weight), torch.autograd.grad(scalar(other(X)), other.weight), ulps=0)


def test_copies_of_a_layer_share_one_graph() -> None:
    import torch._dynamo.testing

    torch._dynamo.reset()
    layer = kgen.load("layernorm").module(w=W, b=B)
    counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
    for block in [copy.deepcopy(layer) for _ in range(3)]:
        block.compile(backend=counter, fullgraph=True)
        block(X)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kgen.load("layernorm").module(q=W), "there is no parameter q"),
        (lambda: kgen.load("layernorm").module(w=X), "w has 2 dims"),
        (lambda: kgen.load("layernorm").module(w=W, b=B[:3]), "dim N is 5 and, in b, 3"),
        (lambda: kgen.load("layernorm").module(w=1.0), "w is a float, not a tensor"),
        (lambda: kgen.load("layernorm").module(eps="small"), "eps is a str"),
        (lambda: kgen.load("layernorm").module(w=W, names={"w": "forward"}), "cannot have a parameter named forward"),
        (lambda: REQUIRED.module(like=nn.LayerNorm(5, bias=False), eps=1e-3), "LayerNorm has no bias for b"),
        (lambda: REQUIRED.module(like=nn.LayerNorm(5, elementwise_affine=False)), "w has no default: it cannot be left out"),
        (lambda: kgen.load("layernorm").module(w=None, b=B[:3])(X), "dim N is 5 in x and 3 in b"),
        (lambda: kgen.load("layernorm").module(like=nn.LayerNorm((3, 5)), eps=1e-3), "w has 2 dims"),
        (lambda: kgen.load("rmsnorm").module(like=nn.RMSNorm(5), names={"w": "weight"}), "RMSNorm has no eps of its own"),
        (lambda: kgen.load("gelu").module(like=nn.LayerNorm(5)), "no parameter of LayerNorm matches"),
        (lambda: kgen.load("gelu").module(like=nn.GELU("tanh")), "does not compute this GELU: it is an approximation"),
        (lambda: kgen.load("silu").module(like=nn.SiLU(inplace=True)), "does not compute this SiLU: it works in place"),
        (lambda: kgen.load("layernorm").module(like=nn.LayerNorm(5))(X.float()[:, :4]), r"this layer does not take float32\[3, 4\] on cpu"),
        (lambda: kgen.load("lerp_ema").module(ema=W), "ema is written in place"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_when_the_layer_is_made(make, message: str) -> None:
    with pytest.raises(kgen.KgenError, match=message):
        make()


def test_modules_are_plain_ones() -> None:
    layer = kgen.load("bias_gelu").module(b=B)
    assert isinstance(layer, KernelModule) and isinstance(layer, nn.Module) and layer.train().training and not layer.eval().training
    frozen = nn.Parameter(B.clone(), requires_grad=False)
    assert kgen.load("bias_gelu").module(b=frozen).b is frozen
    assert not kgen.load("bias_gelu").module(b=frozen, dtype=torch.float32).b.requires_grad
