"""Tensors that a call may leave out: the kernel of such a call is that of the formula with what stands for them."""

from __future__ import annotations

import inspect
import pickle
import random

import pytest
import torch

import kgen
import kgen.testing
from kgen import check, optional, syntax, typeset
from kgen.runtime.kernel import Kernel
from kgen.testing import fuzz, programs
from tests.trace.written import module

F = torch.nn.functional
X, W, B = (torch.randn(shape, generator=torch.Generator().manual_seed(k)) for k, shape in enumerate([(3, 5), (5,), (5,)]))


@pytest.fixture(autouse=True)
def evaluated(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is chosen is looked at here: nothing is compiled, but where a test is slow."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr(Kernel, "_preferred", lambda self, device, elements=0: "torch")


def left_out(text: str, *names: str) -> str:
    """The text of a kernel without some of its tensors."""
    return typeset.format_file(check.left_out(check.check(syntax.parse(text)), names).file)


@pytest.mark.parametrize("w", [W, None])
@pytest.mark.parametrize("b", [B, None])
def test_calls_leave_tensors_out(w: torch.Tensor | None, b: torch.Tensor | None) -> None:
    layernorm, want = kgen.load("layernorm"), F.layer_norm(X, (5,), w, b)
    first = layernorm(X, w, b)
    assert torch.allclose(first, want, atol=1e-6)
    given = {name: t for name, t in (("w", w), ("b", b)) if t is not None}
    out = torch.empty_like(X)
    for y in (layernorm(X, w=w, b=b, eps=1e-5), layernorm(x=X, **given), layernorm(X, **given), layernorm(X, **given, out=out)):
        assert torch.equal(y, first)
    assert y is out
    xs = layernorm.foreach([X, X], [w, w] if w is not None else None, **({"b": [b, b]} if b is not None else {}))
    assert all(torch.equal(y, first) for y in xs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "groupnorm"])
@pytest.mark.parametrize("backward", [False, True])
def test_norms_without_parameters_stay_within_the_bound(name: str, backward: bool) -> None:
    kgen.testing.check(name, target="cpp", backward=backward, examples=30)


def test_what_is_left_out_is_neither_read_nor_multiplied() -> None:
    kernel = kgen.load("rmsnorm").without("w")
    assert [p.name for p in kernel.kernel.params] == ["x", "eps"]
    assert kernel.program().count(" mul ") == 2  # x^2, and by the root
    assert kernel is kgen.load("rmsnorm").without("w") or kernel.signature == "rmsnorm(x: T[..., N], eps: float = 1e-6) -> y: T[..., N]"
    made = kgen.load("rmsnorm")
    assert made.without("w") is made.without("w") and made.without() is made


def test_there_are_gradients_of_what_is_given_alone() -> None:
    layernorm = kgen.load("layernorm")
    for w, b in ((W, None), (None, B), (None, None)):
        own = [t.double().requires_grad_() for t in (X, w, b) if t is not None]
        names = [n for n, t in (("x", X), ("w", w), ("b", b)) if t is not None]
        cotangent = torch.linspace(-1, 1, X.numel(), dtype=torch.float64).view_as(X)
        found = torch.autograd.grad(layernorm(**dict(zip(names, own, strict=True))), own, cotangent)
        given = dict(zip(names, own, strict=True))
        wanted = torch.autograd.grad(F.layer_norm(given["x"], (5,), given.get("w"), given.get("b")), own, cotangent)
        assert all(torch.allclose(a, c) for a, c in zip(found, wanted, strict=True))
    assert "dw" not in layernorm.without("w").show("spec", backward=True)


@pytest.mark.parametrize("w", [W, None])
def test_graphs_have_the_operator_of_what_is_given(w: torch.Tensor | None) -> None:
    layernorm = kgen.load("layernorm")
    for call in (lambda x: layernorm(x, w), lambda x: layernorm(x, b=B, w=w), lambda x: layernorm(x, eps=1e-3, w=w)):
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(X), call(X))
    x = X.clone().requires_grad_()
    torch.compile(lambda x: layernorm(x, w), fullgraph=True, backend="aot_eager")(x).square().sum().backward()
    y = X.clone().requires_grad_()
    layernorm(y, w).square().sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert torch.equal(torch.func.vmap(lambda row: layernorm(row, w))(X), layernorm(X, w))


def test_defaults_are_expressions_of_what_stands_before() -> None:
    text = "f(x: T[..., N], w: f32[N] = 1/N, b: T[N] = w*2, keep: bool[N] = 1 > 0) -> y: T[..., N]\n\ny = x * w + b if keep else 0.0\n"
    f = kgen.loads(text)
    assert torch.allclose(f(X), X / 5 + 2 / 5) and torch.allclose(f(X, W), X * W + W * 2)
    assert torch.allclose(f(X, None, B), X / 5 + B) and torch.allclose(f(X, keep=W > 0), (X / 5 + 2 / 5) * (W > 0))
    assert "keep" not in left_out(text, "keep").split("\n")[0]
    assert "\nw = 1 / N\nb = w * 2\n" in left_out(text, "w", "b")


def test_a_value_that_the_formula_reduces_has_an_element_for_each_place() -> None:
    f = kgen.loads("f(x: T[..., V], t: i64[...], w: T[V] = 1) -> (y: T[...], s: T32[])\n\ny = pick[V](x * w, t) * pick[V](w, t)\ns = sum[V](w)\n")
    t = torch.tensor([0, 4, 2])
    y, s = f(X, t)
    assert torch.equal(y, X.gather(1, t[:, None])[:, 0]) and s == 5
    assert torch.equal(f(X, t, torch.ones(5))[0], y)


def test_random_programs_have_tensors_that_may_be_left_out() -> None:
    """Campaigns hold some calls without them; here few, by the formula's own evaluation."""
    ran = left_out = 0
    for seed in range(150):
        text = programs.program(random.Random(seed)).text
        try:
            kernel = check.check(syntax.parse(text))
        except kgen.KgenError:  # what a campaign counts as refused: nearly all programs pass
            continue
        if kernel.optional and ran < 4:
            subject = fuzz.Subject(text, seed, gradients=False)
            left_out += len(subject.kernel.params) < len(kernel.params)
            assert not subject.hold("agrees", "torch").failures, text
            ran += 1
    assert ran == 4 and left_out > 1


def test_signatures_show_defaults() -> None:
    assert str(inspect.signature(kgen.load("layernorm"))) == "(x: 'T[..., N]', w: 'T[N]' = 1, b: 'T[N]' = 0, eps: 'float' = 1e-05)"
    f = kgen.loads("f(x: f32[N], w: f32[N] = 1/N, a: float) -> y: f32[N]\n\ny = x * w * a\n")
    assert str(inspect.signature(f)) == "(x: 'f32[N]', w: 'f32[N]' = 1 / N, *, a: 'float')"
    assert torch.allclose(f(W, None, 2.0), W / 5 * 2) and torch.allclose(f(W, a=2.0), W / 5 * 2)
    assert inspect.signature(type(f)) is not None


def test_what_cannot_be_left_out_is_told() -> None:
    layernorm = kgen.load("layernorm")
    for call, message in (
        (lambda: layernorm(), "x is missing"),
        (lambda: layernorm(X, weight=W), r"no parameter weight\n = help: layernorm\(x: T\[\.\.\., N\], w: T\[N\] = 1"),
        (lambda: layernorm(X, 1.0), "w is a float, not a tensor"),
        (lambda: layernorm.without("x"), "x has no default: it cannot be left out"),
        (lambda: layernorm.without("eps"), "eps is a number, and no tensor"),
        (lambda: layernorm.without("w", "q"), "q is no parameter"),
        (lambda: layernorm(None), "x is a NoneType, not a tensor"),
    ):
        with pytest.raises(kgen.KgenError, match=message):
            call()


def test_modules_hold_what_they_are_given() -> None:
    layernorm = kgen.load("layernorm")
    layer = layernorm.module(w=W.clone(), b=None)
    assert [name for name, _ in layer.named_parameters()] == ["w"]
    assert torch.equal(layer(X), layernorm(X, W)) and torch.equal(layernorm.module(b=B.clone())(X, W), layernorm(X, W, B))
    like = torch.nn.LayerNorm(5, bias=False)
    assert torch.equal(layernorm.module(like=like, eps=1e-3)(X), layernorm(X, like.weight, eps=1e-3))
    assert torch.equal(pickle.loads(pickle.dumps(layer))(X), layer(X))


def test_a_split_axis_may_be_left_out() -> None:
    f = kgen.loads("f(x: T[M, G*4], s: f32[M, G] = 0.5) -> y: T[M, G*4]\n\ny = x * s\n")
    x = torch.randn(3, 8)
    assert torch.equal(f(x), x * 0.5) and torch.equal(f(x, torch.full((3, 2), 0.5)), f(x))
    assert torch.equal(torch.compile(lambda x: f(x), fullgraph=True, backend="aot_eager")(x), f(x))


NORM = '''
import torch
import kgen

@kgen.kernel
def norm(x: "T[..., N]", w: "T[N] | None" = None, b: "T[N]" = None, eps: float = 1e-6) -> "y: T[..., N]":
    """An RMSNorm."""
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    if w is not None:
        y = y * w
    return y if b is None else y + b
'''


def test_a_function_says_what_stands_for_none(tmp_path) -> None:
    norm = module(tmp_path, NORM).norm
    plain = X * torch.rsqrt(X.pow(2).mean(-1, keepdim=True) + 1e-6)
    for w in (W, None):
        for b in (B, None):
            want = plain * (1 if w is None else w) + (0 if b is None else b)
            assert torch.allclose(norm(X, w, b), want, atol=1e-6)
            assert torch.equal(torch.compile(lambda x, w=w, b=b: norm(x, w, b=b), fullgraph=True, backend="aot_eager")(X), norm(X, w, b))
    assert norm.without("w", "b").to_spec() == (
        "# An RMSNorm.\nnorm(x: T[..., N], eps: float = 1e-6) -> y: T[..., N]\n\ny = x * rsqrt(mean[N](x^2) + eps)\n"
    )
    assert kgen.loads(norm.to_spec()).signature.startswith("norm(x: T[..., N], w: T[N], b: T[N], ")
    assert torch.equal(norm.foreach([X], None, [B])[0], norm(X, b=B))


def test_a_function_that_needs_what_is_none_is_refused(tmp_path) -> None:
    with pytest.raises(kgen.KgenError, match="where `w` and `b` are None"):
        module(tmp_path, NORM.replace("    if w is not None:\n        y = y * w\n", "    y = y * w\n"))


def test_texts_that_derive_from_a_kernel_require_all() -> None:
    kernel = kgen.load("layernorm").kernel
    assert optional.required(kernel.file).statements[0].params[1].default is None
    assert kernel.signature(optional=False) == "layernorm(x: T[..., N], w: T[N], b: T[N], eps: float = 1e-5) -> y: T[..., N]"


def test_checks_are_with_and_without() -> None:
    reports = kgen.load("rmsnorm").check(examples=2, target="torch")
    assert [r.kernel for r in reports] == ["rmsnorm", "rmsnorm without w"]
