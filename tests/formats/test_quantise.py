"""Scales and quantisers: their values at the edges, and gradients through casts."""

from __future__ import annotations

import math
from typing import Annotated

import pytest
import torch

import kgen
from kgen.backends import backend
from kgen.runtime import arguments, driver, joined, nvrtc, parts, samples
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("built_quickly_by_default")

GRADIENTS = """gradients(x: f32[N], w: f32[N]) -> (a: f32[N], b: f32[N], c: f32[N], d: f32[N])

a = f8e4m3[saturate](x) * w
b = f8e5m2(x) * w
c = straight_through(f8e4m3[saturate](x), x) * w
d = f8e8m0[up](abs(x)) * w
"""
EDGES = torch.tensor([1.1, -447.0, 448.0, 449.0, -1e30, 0.0, 1e-9, math.inf, math.nan])


def test_gradients_through_casts_are_those_of_torchs() -> None:
    """A cast's is the identity, where it saturates that of clamp; an estimator's goes through where its argument is finite."""
    x, w = EDGES.clone().requires_grad_(), 2.0 ** torch.arange(len(EDGES))
    *results, d = kgen.loads(GRADIENTS)(x, w)
    clamped, plain = EDGES.clone().requires_grad_(), EDGES.clone().requires_grad_()
    (clamped.clamp(-448, 448) * w).sum().backward()
    (plain.to(torch.float8_e5m2).float() * w).sum().backward()
    wanted = (clamped.grad, plain.grad, torch.where(EDGES.isfinite(), w, 0.0))
    for y, want in zip(results, wanted):
        assert want is not None
        got = torch.autograd.grad(y.sum(), x, retain_graph=True)[0]
        torch.testing.assert_close(got, want, equal_nan=True)
    assert math.copysign(1, kgen.loads("f(x: f32[N]) -> y: f32[N]\n\ny = straight_through(x, x)\n")(torch.tensor([-0.0])).item()) == -1
    assert torch.equal(torch.autograd.grad(d[:5].sum(), x)[0][:5], w[:5] * EDGES[:5].sign())


@kgen.kernel
def cast_in_torch(x: Annotated[torch.Tensor, "T[..., N]"], n: Annotated[torch.Tensor, "i32[K]"]) -> tuple[torch.Tensor, ...]:
    q = (x * 2).to(torch.float8_e4m3fn)
    return q.float() * x, q, q.to(torch.float8_e5m2), x.to(torch.float8_e5m2).float(), x.to(torch.float8_e4m3fnuz), n.to(torch.float8_e4m3fn)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_casts_in_a_decorated_function_are_those_of_the_torch_that_runs(dtype: torch.dtype) -> None:
    """Of e4m3fn one version saturates and another gives NaN; the gradient is the identity's in all."""
    edges = [0.0, -0.0, 1e-9, 1.1, 223.9, -232.0, 232.1, 240.0, -247.0, 500.0, 3e4, 61440.0, 7e4, -1e30, math.inf, -math.inf, math.nan]
    x, n = torch.tensor(edges, dtype=torch.float64).to(dtype).requires_grad_(), torch.tensor([-3, 464, 465, 10**6], dtype=torch.int32)
    got, want = cast_in_torch(x, n), cast_in_torch.__wrapped__(x, n)
    for y, w in zip(got, want, strict=True):
        assert y.dtype == w.dtype
        torch.testing.assert_close(y.float(), w.float(), rtol=0, atol=0, equal_nan=True)
        assert torch.equal(y.float().signbit() | y.isnan(), w.float().signbit() | w.isnan())
    gradient = torch.autograd.grad(got[0][:13].sum(), x)[0][:13]  # torch's own is rounded to 8 bits
    torch.testing.assert_close(gradient, (want[1].float() + 2 * x).to(dtype)[:13], equal_nan=True)


def test_a_float_of_few_bits_has_no_gradient() -> None:
    x = torch.randn(8, requires_grad=True)
    q, y = kgen.loads("some(x: f32[N]) -> (q: f8e4m3[N], y: f32[N])\n\nq = x\ny = 2 * x\n")(x)
    assert not q.requires_grad and y.requires_grad


SCALES = """scales(x: f32[M, N], g: f32[]) -> (s: f32[M], a: f8e8m0[M], b: f8e8m0[M], c: f8e4m3[M])

s = scale[N](x, 448)
a = mx_scale[N](x, 8)
b = mx_scale_up[N](x, 448)
c = nv_scale[N](x, g)
"""


def test_scales_of_edges() -> None:
    """Zeros, the greatest of a format and its neighbours, denormals, infinity, NaN; beside OCP's rule by logarithms."""
    most = torch.tensor([0.0, 448.0, 448.00003, 447.99997, 256.0, 255.99998, 1.0, 3.4028235e38, 1e-40, 2.0**-119, math.inf, math.nan])
    x = torch.stack([most, -most / 2, torch.zeros_like(most)], 1)
    s, a, b, c = kgen.loads(SCALES)(x, torch.tensor(0.5))
    torch.testing.assert_close(s, torch.where(most == 0, 1.0, most / 448), rtol=0, atol=0, equal_nan=True)
    codes = a.view(torch.uint8).tolist(), b.view(torch.uint8).tolist()
    assert codes[0] == [0, 127, 127, 127, 127, 126, 119, 246, 0, 0, 254, 255]
    assert codes[1] == [0, 127, 128, 127, 127, 127, 119, 247, 0, 0, 254, 255]
    assert c.float().tolist()[:3] == [0.0, 144.0, 144.0] and c.float()[7] == 448 and c.float()[10] == 448 and c.float()[11].isnan()
    for k in range(1, 8):
        assert codes[0][k] == math.floor(math.log2(most[k].item())) - 8 + 127
        assert codes[1][k] == math.ceil(math.log2(most[k].item() / 448)) + 127


@pytest.mark.parametrize("target", ["cpp", "torch"])
def test_what_is_divided_by_a_power_of_two_is_exact(target: str) -> None:
    x = torch.randn(4, 64) * torch.tensor([1e-6, 1.0, 300.0, 1e20])[:, None]
    q, s = kgen.load("mxfp8")(x, target=target)
    back = q.float().unflatten(-1, (2, 32)) * s.float()[..., None]
    assert ((back - x.unflatten(-1, (2, 32))).abs() <= torch.maximum(x.unflatten(-1, (2, 32)).abs() / 8, s.float()[..., None] / 512)).all()


SPECS = sorted(path.stem for path in (ROOT / "specs" / "quantisation").glob("*.k"))


@pytest.mark.skipif(driver.nvrtc_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "nvfp4" else pytest.mark.slow) for n in SPECS])
def test_what_a_call_of_a_quantiser_launches_compiles_in_cuda(name: str) -> None:
    """A block's quotient by a divisor of the tensor's (nvfp4's scale) is no element's, and is divided itself."""
    kernel = kgen.load(name)
    given = samples.arguments(kernel.kernel, "bf16", 1 << 14, "cpu", 256)
    views = joined.split(kernel.kernel, given)[1] if kernel.kernel.joined else list(given.values())
    kernel = kernel._plain or kernel
    if (parted := kernel._parts) is not None:
        own = {p.name: (x, p.dims or ()) for p, x in zip(kernel.kernel.params, views, strict=True)}
        kernel, views = parted.runnable, [parts.view(*own[p.of], p) for p in parted.parted.params]
    call = arguments.bind(kernel.kernel, tuple(views), {}, None)
    names = nvrtc.expressions(kernel.kernel, call, "sm_90")
    driver.compile_cubin(backend("cuda").render(kernel.kernel), names, "compute_90", nvrtc.OPTIONS)


@pytest.mark.parametrize(("declared", "given", "said"), [
    ("x: T[N]", torch.zeros(4).to(torch.float8_e4m3fn), r"T is one of f32, f16, bf16, f64; a header names others: `x: f8e4m3\[...\]`"),
    ("x: f4e2m1[N]", torch.zeros(2, dtype=torch.uint8), r"x is u8, not f4e2m1[\s\S]*x.view\(torch.float4_e2m1fn_x2\) of its bytes"),
])  # fmt: skip
def test_a_tensor_of_another_dtype_has_advice(declared: str, given: torch.Tensor, said: str) -> None:
    with pytest.raises(kgen.KgenError, match=said):
        kgen.loads(f"f({declared}) -> y: f32[N]\n\ny = x * 2\n")(given)
