"""Kernels inside torch.func's transforms, and those composed, beside eager torch; kernels whose leading dims got names."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import kgen
from kgen import typeset
from kgen.specialise import fresh_dims, reduces_leading, specialise
from tests.programs import PROGRAMS
from tests.torch_cases import CASES, B, Case, W, X, assert_same, each_case, evaluated, scalar  # noqa: F401

TRANSFORMS = {
    "grad": lambda f, n: grad(lambda *a: scalar(f(*a)), argnums=tuple(range(n))),
    "grad of the first": lambda f, n: grad(lambda *a: scalar(f(*a))),
    "grad of grad": lambda f, n: grad(lambda *a: scalar(grad(lambda *a: scalar(f(*a)), argnums=tuple(range(n)))(*a))),
    "vjp": lambda f, n: lambda *a: vjp(lambda *a: scalar(f(*a)), *a)[1](torch.ones((), dtype=torch.float64)),
    "jvp": lambda f, n: lambda *a: jvp(lambda *a: scalar(f(*a)), a, tuple(t.cos() for t in a)),
    "jvp of the first": lambda f, n: lambda x, *a: jvp(lambda x: scalar(f(x, *a)), (x,), (x.cos(),)),
    "vmap": lambda f, n: lambda *a: vmap(f)(*(torch.stack([t, t.sin()]) for t in a)),
    "vmap of the first": lambda f, n: lambda x, *a: vmap(lambda x: f(x, *a), in_dims=-1)(torch.stack([x, x.sin()], -1)),
    "vmap of vmap": lambda f, n: lambda x, *a: vmap(lambda x: vmap(lambda x: f(x, *a))(x), in_dims=1)(torch.stack([x, x.sin()])),
    "vmap of grad": lambda f, n: (
        lambda *a: vmap(grad(lambda *a: scalar(f(*a)), argnums=tuple(range(n))))(*(torch.stack([t, t.sin()]) for t in a))
    ),
    "grad of vmap": lambda f, n: (
        lambda *a: grad(lambda *a: scalar(vmap(f)(*a)), argnums=tuple(range(n)))(*(torch.stack([t, t.sin()]) for t in a))
    ),
    "jacrev": lambda f, n: jacrev(lambda *a: f(*a)[0] if isinstance(f(*a), tuple) else f(*a)),
    "jacfwd": lambda f, n: jacfwd(lambda *a: f(*a)[0] if isinstance(f(*a), tuple) else f(*a), argnums=tuple(range(n))),
    "hessian": lambda f, n: hessian(lambda *a: scalar(f(*a))),
}


@each_case
@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.filterwarnings("ignore:.*target size")
def test_transforms_give_what_they_give_of_eager_torch(case: Case, name: str) -> None:
    transform, n = TRANSFORMS[name], len(case.tensors)
    assert_same(transform(case.kernel, n)(*case.tensors), transform(case.eager, n)(*case.tensors))


def test_gradients_per_sample_of_a_module() -> None:
    layer = kgen.load("layernorm").module(w=W.clone(), b=B.clone())
    like = torch.nn.LayerNorm(5, dtype=torch.float64)
    like.load_state_dict({"weight": W, "bias": B})

    def loss(module):
        return lambda parameters, x: functional_call(module, parameters, (x,)).square().sum()

    ours = vmap(grad(loss(layer)), in_dims=(None, 0))(dict(layer.named_parameters()), X)
    theirs = vmap(grad(loss(like)), in_dims=(None, 0))(dict(like.named_parameters()), X)
    assert_same((ours["w"], ours["b"]), (theirs["weight"], theirs["bias"]))


def test_forward_mode_outside_torch_func_beside_a_gradient() -> None:
    def written_out(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # F.layer_norm's own is wrong here
        c = x - x.mean(-1, keepdim=True)
        return c * (c.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w + b

    found = []
    for f in (CASES["layernorm"].kernel, written_out):
        x, w, b = (t.clone().requires_grad_() for t in CASES["layernorm"].tensors)
        with forward_ad.dual_level():
            y, dy = forward_ad.unpack_dual(f(forward_ad.make_dual(x, x.detach().cos()), w, b))
            gradients = torch.autograd.grad(scalar((y, dy)), (x, w, b))
            found.append((y, dy, [forward_ad.unpack_dual(t).primal for t in gradients]))
    assert_same(*found)


def test_vectorised_jacobians() -> None:
    """`is_grads_batched` runs the backward on batched tensors of the older kind."""
    for strategy in ("reverse-mode", "forward-mode"):
        found = [
            torch.autograd.functional.jacobian(f, X, vectorize=True, strategy=strategy)
            for f in (CASES["softmax"].kernel, CASES["softmax"].eager)
        ]
        assert_same(*found)


# --------------------------------------------------------------------------------------------- batches of any kernel

BATCHED = {
    **{name: PROGRAMS[name] for name in ("two directions", "loss and its mean", "embedding", "place in a matrix", "place among all", "integers and bools", "rows that an operand lacks", "pick of an expression", "mean over leading dims too", "all and each", "positions count")},
    "leading dims of two kinds": "lk(x: T[..., N], y: T[..., N], s: T[...], w: T[N]) -> z: T[..., N]\n\nz = x * y * s + w - mean[N](x)\n",
    "a result without them": "rw(x: T[...], w: T[N]) -> (y: T[N], m: T[])\n\nm = max[...](x)\ny = w * sum[...](x * x)\n",
    "a helper over them": "hl(x: T[..., N], w: T[N]) -> y: T32[N]\n\nh[D, E](z) = sum[D](z) + sum[E](z)\ny = norm[...](x) + w * sum[...](x)\n",
    "of two dims": "td(x: T[..., N], y: T[...]) -> z: T[...]\n\nh[D, E](a) = sum[E](a) / (1 + sum[D, E](a^2))\nz = y + h[..., N](x)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_is_the_kernel_for_each_of_its_elements(name: str) -> None:
    """For any choice of batched arguments, any place of the batch dim, and leading dims that broadcast."""
    kernel, rng = kgen.loads(BATCHED[name]), random.Random(name)
    params = [p for p in kernel.kernel.params if p.is_tensor]
    sizes = {d: k + 2 for k, d in enumerate(dict.fromkeys(d for p in params for d in p.dims or () if d != "..."))}
    for which, lead in itertools.product(range(1, 2 ** len(params)), ((), (3,), (2, 3), (1,))):
        tensors, in_dims = [], []
        for k, p in enumerate(params):
            own = [1 if rng.random() < 0.3 else n for n in lead[rng.randrange(2) * (len(params) > 1) :]] if "..." in p.dims else []
            shape = [*own, *(sizes[d] for d in p.dims if d != "...")]
            place = rng.randint(0, len(shape)) if which >> k & 1 else None
            if place is not None:
                shape.insert(place, 2)
            generator = torch.Generator().manual_seed(rng.randrange(2**31))
            dtype = {"i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "f32": torch.float32}.get(p.dtype, torch.float64)
            tensors.append(
                torch.randn(shape, generator=generator).to(dtype)
                if dtype.is_floating_point
                else torch.randint(0, 2, shape, generator=generator, dtype=dtype)
            )
            in_dims.append(place)
        found = vmap(kernel, in_dims=tuple(in_dims))(*tensors)
        each = [kernel(*(t if d is None else t.select(d, k) for t, d in zip(tensors, in_dims))) for k in range(2)]
        wanted = tuple(torch.stack(r) for r in zip(*each)) if isinstance(each[0], tuple) else torch.stack(each)
        assert_same(found, wanted)


def test_a_batch_is_written_in_place_where_its_dim_stands() -> None:
    adamw = kgen.load("adamw")
    p, g, m, v = torch.rand(4, 3, 2, 5).unbind()
    batched, plain = [t.clone() for t in (p, g, m, v)], [t.clone() for t in (p, g, m, v)]

    def step(p, g, m, v):
        adamw(p, g, m, v, 2, 1e-3)
        return p + 0

    assert_same(vmap(step, in_dims=1, out_dims=1)(*batched), batched[0], ulps=0)
    adamw(*plain, 2, 1e-3)
    assert_same(batched, plain, ulps=0)
    with pytest.raises(kgen.KgenError, match="p is written in place and has no batch dim"):
        vmap(step, in_dims=(None, 0, 0, 0))(p[0], g, m, v)
    with pytest.raises(kgen.KgenError, match="requires grad"):
        grad(lambda p: step(p, g, m, v).sum())(p)


# --------------------------------------------------------------------------------------------- dims that got names


def test_leading_dims_get_names_wherever_they_stand() -> None:
    kernel = kgen.loads(
        "f(x: T[..., N], s: T[...], w: T[N]) -> (y: T[..., N], m: T[], q: T[N])\n\nm = mean[..., N](x)\ny = x * s * w\nq = norm[...](x)\n"
    ).kernel
    lead, batch = fresh_dims(kernel, 2)
    made = specialise(kernel, {"x": (batch, *lead, "N"), "s": lead, "w": (batch, "N")}, lead, (batch,))
    assert typeset.format_file(made.file) == (
        "f(x: T[Batch, Lead1, Lead2, N], s: T[Lead1, Lead2], w: T[Batch, N]) -> (y: T[Batch, Lead1, Lead2, N], m: T[Batch], q: T[Batch, N])\n\n"
        "m = mean[Lead1, Lead2, N](x)\ny = x * s * w\nq = norm[Lead1, Lead2](x)\n"
    )


def test_new_names_are_none_of_the_kernels() -> None:
    kernel = kgen.loads("f(x: T[..., Lead1, Batch]) -> y: T[..., Lead1, Batch]\n\nLead1_ = x + 1\ny = Lead1_ * 2\n").kernel
    assert fresh_dims(kernel, 2) == (("Lead1__", "Lead2"), "Batch_")


def test_a_reduction_over_what_an_operand_lacks_is_an_error() -> None:
    kernel = kgen.loads("f(x: T[...], y: T[...]) -> z: T[...]\n\nz = y * sum[...](x)\n").kernel
    assert reduces_leading(kernel) and not reduces_leading(kgen.load("layernorm").kernel)
    with pytest.raises(kgen.KgenError, match="reduces over L"):
        specialise(kernel, {"x": ("M",), "y": ("L", "M")}, ("L", "M"))


def test_deep_expressions_are_rewritten_without_recursion() -> None:
    text = "deep(x: T[...]) -> y: T[...]\n\ny = " + " + ".join(["sum[...](x)"] * 1500) + "\n"
    kernel = kgen.loads(text).kernel
    assert len(specialise(kernel, {"x": ("L",)}, ("L",)).values) == len(kernel.values)
