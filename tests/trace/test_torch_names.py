"""Every name of torch's that a traced function may use means what torch means: value, dtype, dims."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch

from kgen.runtime.evaluate import Evaluator
from kgen.testing.bounds import Analysis
from kgen.trace import names, trace
from tests.trace.written import module

#: Parameters that a case may use, with their types; a case has those that its text mentions.
PARAMS = {
    "x": 'x: "T[..., N]"',
    "y": 'y: "T[..., N]"',
    "z": 'z: "T[M, N]"',
    "w": 'w: "T[N]"',
    "b": 'b: "T[N]"',
    "t": 't: "i64[M]"',
    "u": 'u: "T[B, K]"',
    "c": 'c: "T[B, C, L]"',
    "v": 'v: "T[B, C, L, K]"',
    "g": 'g: "T[C]"',
    "l": 'l: "i64[J]"',
    "i": 'i: "i32[..., N]"',
    "j": 'j: "i32[..., N]"',
    "mask": 'mask: "bool[..., N]"',
    "other": 'other: "bool[..., N]"',
    "s": "s: float = 0.75",
    "n": "n: int",
    "q": 'q: "T[J, N]"',
    "ids": 'ids: "i64[B, L]"',
    "r": 'r: "f32[J]"',
    "h": 'h: "T[M, N]"',
}
#: One case or more for each row; `p` stands for positive operands, in (0, 1).
CASES = """
torch.exp(x); x.exp(); e_to(x); torch.exp2(x); ts.exp2(x); torch.expm1(x); x.expm1(); torch.log(p); p.log2(); torch.log10(p)
torch.log1p(p); p.sqrt(); torch.sqrt(p); torch.rsqrt(p); p.rsqrt(); torch.sin(x); x.cos(); torch.tan(x); torch.asin(p); p.acos()
torch.atan(x); torch.arctan(x); torch.sinh(x); x.cosh(); x.tanh(); torch.tanh(x); torch.asinh(x); torch.acosh(1 + p); torch.atanh(p)
torch.sigmoid(x); x.sigmoid(); F.sigmoid(x); ts.expit(x); torch.erf(x); ts.erfc(x); torch.erfinv(p); torch.lgamma(p); torch.digamma(p)
torch.abs(x); x.abs(); x.absolute(); abs(x); torch.sign(x); x.sgn(); torch.floor(x); x.ceil(); torch.trunc(x); x.fix(); torch.round(x); x.round()
torch.isnan(x); x.isinf(); torch.isfinite(x); torch.signbit(x); torch.relu(x); x.relu(); F.relu(x); F.relu(x, inplace=False)
torch.eq(x, y); x.ne(y); torch.lt(x, y); x.le(0.5); torch.gt(x, y); x.ge(y); torch.greater(x, 0)
x.float(); x.double(); x.half(); x.bfloat16(); (x * 5).int(); (x * 5).long(); (x * 5).short(); x.bool(); i.float() * x; (x * 5).char(); (p * 200).byte(); (x > 0).type(torch.int32)
torch.neg(x); x.negative(); torch.positive(x); x.square(); torch.square(x); p.reciprocal(); torch.frac(x); x.clone() * 2; x.contiguous() + 1; x.detach() * 2
torch.add(x, y); x.add(y, alpha=2); torch.sub(x, y, alpha=s); x.sub(1); x.mul(y); torch.multiply(x, y); torch.div(x, p); x.true_divide(p)
torch.div(x, p, rounding_mode="floor"); torch.floor_divide(x, p); x.remainder(p); torch.pow(p, 3); x.pow(2); p ** 0.5; x ** 0.5; x.pow(-0.5); torch.pow(x, 1 / 2); p.pow(y); 2 ** x; torch.pow(2.0, x)
torch.maximum(x, y); torch.minimum(x, y); x.maximum(y); torch.max(x, y); torch.min(x, y); x.max(y)
x.clamp(min=0.25); x.clamp(max=0.5); torch.clamp(x, -0.5, 0.5); x.clamp_min(0); x.clamp_max(s); x.clip(-1, 1); i.clamp(min=2); i.clamp(0, 3)
torch.where(x > 0, x, y); torch.where(mask, x, 0.0); x.where(mask, y); torch.where(x > y, 1, 0); torch.where(mask, 0.5, -0.5)
torch.atan2(x, y); x.hypot(y); torch.copysign(x, y); torch.lerp(x, y, 0.25); x.lerp(y, 0.75); x.lerp(y, s); x.lerp(y, p); torch.addcmul(x, y, p, value=0.5); x.addcdiv(y, p)
x.masked_fill(mask, torch.finfo(torch.float32).min); torch.where(i > torch.iinfo(torch.int8).max, i, 0); torch.xlogy(p, p); x.masked_fill(mask, 0.0); x.masked_fill(mask, float("-inf")); x.masked_fill(~mask, -1.5)
torch.logical_and(mask, other); mask.logical_or(other); torch.logical_not(mask); ~mask; mask & other; mask | other
torch.bitwise_and(i, j); i | j; ~i; i.bitwise_not(); torch.bitwise_right_shift(i, 1); i.bitwise_or(j); torch.bitwise_left_shift(i, 2); i >> 1; i << 1
F.silu(x); F.silu(x) * y; F.mish(x); F.gelu(x); F.gelu(x, approximate="tanh"); F.softplus(x); F.softplus(x, beta=2); F.logsigmoid(x)
F.softsign(x); F.tanhshrink(x); F.elu(x); F.elu(x, 0.5); F.celu(x, alpha=0.5); F.selu(x); F.leaky_relu(x, 0.1); F.leaky_relu(x)
F.relu6(x * 5); F.hardtanh(x); F.hardtanh(x, -0.3, 0.4); F.hardsigmoid(x * 3); F.hardswish(x * 3); F.hardshrink(x); F.softshrink(x, 0.3); F.threshold(x, 0.1, 0.5)
x.sum(-1); torch.sum(x, dim=-1, keepdim=True) * x; x.sum(); x.mean(-1); x.mean(); x - x.mean(-1, keepdim=True); torch.mean(z, (0, 1)); z.mean(dim=0); z.sum((-2, -1))
x.prod(-1); x.nansum(-1); x.amax(-1); x.amin(dim=-1); x - x.amax(-1, keepdim=True); (x > 0).any(-1); (x > 0).all(-1); x.argmax(-1); x.argmin(-1); z.argmax()
torch.count_nonzero(x > 0, dim=-1); i.sum(-1); mask.sum(-1); x.sum(-1, dtype=torch.float64); x.max(); z.min(); x.max(-1).values; x.max(-1)[1]; x.min(-1, keepdim=True).values + x
torch.logsumexp(x, -1); x.logsumexp(-1, keepdim=True) - x; x.var(-1); x.var(-1, correction=0); x.var(-1, unbiased=False); x.std(-1); torch.var(x, -1, keepdim=True) * x
torch.std(x, -1, correction=0); x.norm(dim=-1); torch.linalg.vector_norm(x, dim=-1); torch.softmax(x, -1); x.softmax(-1); F.softmax(x, dim=-1, dtype=torch.float32)
F.log_softmax(x, -1); x.log_softmax(dim=-1); F.softmin(x, dim=-1); F.normalize(x, dim=-1); F.normalize(z, p=2, dim=0); F.cosine_similarity(x, y, dim=-1)
F.layer_norm(x, x.shape[-1:], w, b); F.layer_norm(x, (x.size(-1),), w, b, 1e-3); F.layer_norm(x * w, w.shape); F.rms_norm(x, (x.shape[-1],), w, 1e-6); F.rms_norm(x, x.shape[-1:], eps=1e-5)
F.mse_loss(x, y); F.mse_loss(x, y, reduction="none"); F.mse_loss(x, y, reduction="sum"); F.l1_loss(x, y); F.smooth_l1_loss(x, y, beta=0.5); F.huber_loss(x, y, delta=0.5)
F.binary_cross_entropy_with_logits(x, p); F.binary_cross_entropy_with_logits(x, p, pos_weight=p); F.cross_entropy(z, t); F.cross_entropy(z, t, reduction="none"); F.cross_entropy(z, t, ignore_index=2, reduction="sum")
F.cross_entropy(z * 3, t, ignore_index=1, label_smoothing=0.1); F.cross_entropy(z, t, label_smoothing=0.2, reduction="none"); F.cross_entropy(z, t, weight=w, ignore_index=1); F.cross_entropy(z, t, w, reduction="sum")
x.to(torch.float32); x.to(torch.bfloat16); x.float().to(x.dtype); x.float().type_as(x); x.float().to(y) * y; i.to(x.dtype); x.type(torch.float64); x.to(dtype=torch.float64)
x.sum(-1) / x.size(-1); x.sum(-1) / x.shape[-1]; z.sum(0) / z.shape[0]; z * z.numel(); z * z.dim(); z * z.ndim; w * len(w.shape)
w.unsqueeze(0) * z; w[None, :] * z; z.mean(1)[:, None] * z; z.mean(1, keepdim=True).squeeze(1); x.mean(-1)[..., None] * x; z.transpose(0, 1); z.transpose(-1, -2) * 2
z.gather(-1, t[:, None]).squeeze(-1); z.log_softmax(-1).gather(1, t.unsqueeze(1)).squeeze(1)
torch.zeros_like(x) + x; torch.where(mask, x, torch.ones_like(x)); torch.full_like(x, 2.5) * x; torch.ones_like(x, dtype=torch.float32) - x.float()
z * torch.arange(z.shape[-1]); z.cumsum(-1) / torch.arange(1, z.shape[-1] + 1); z * torch.arange(-2, z.size(-1) - 2, dtype=torch.float32); torch.where(torch.arange(z.size(1))[None, :] <= torch.arange(z.size(0))[:, None], z, -1.0)
x * math.sqrt(2 / math.pi); x / math.sqrt(x.shape[-1]); x * (1 + s); -x ** 2; x * torch.pi; x % 0.75; x // 0.5; (x > 0) & mask; x if mask else y
u.chunk(2, -1)[0]; torch.chunk(u, 3, dim=1)[2]; u.split([3, 3], -1)[1]; torch.split(u, u.shape[-1] // 2, dim=-1)[0]; u.split([2, 4], 1)[0].sum(-1); u.tensor_split(2, -1)[1]
u[:, : u.shape[1] // 2]; u[:, u.size(1) // 2 :]; u[..., ::2]; u[:, 1::3]; u[:, -1]; u[0]; u[:, 1:] .sum(1); (u[:, 1:] - u[:, :-1]).abs().mean(); (u[:, 2:] * 2).amax(-1); (u[:, None] * 2).squeeze(1); (u[:, :-1] > 0).any(1)
u.view(u.shape[0], 2, -1); u.reshape(u.size(0), -1, 3).amax(-1); torch.reshape(u, (u.shape[0], 3, -1)).sum(1); u.view(*u.shape[:-1], u.shape[-1] // 2, 2); u.unflatten(-1, (-1, 2)).transpose(1, 2); torch.unflatten(u, 1, (2, 3)).flatten(1); u.view_as(u) * 2; c.flatten(1).sum(-1); torch.flatten(c, 1, 2) * 2; c.reshape(c.shape[0], -1)
z.t() * 2; z.T * 2; c.mT * 2; c.permute(0, 2, 1) * 1; torch.permute(c, (2, 0, 1)) * 1; c.movedim(1, -1) * 1; torch.movedim(c, (0, 1), (1, 2)) * 1; w.expand_as(z) * z; w.expand(z.shape[0], -1) * z; torch.broadcast_to(w, z.shape) * z; x.transpose(-1, -1) * 2
torch.cat((u, -u), dim=-1); torch.cat([u, u * 2], 0); torch.cat([torch.zeros_like(u[:, :1]), u[:, :-1]], dim=1); torch.cat((u[:, 1:], u[:, -1:]), 1); torch.stack((u, u * 2), dim=-1); torch.stack((z, -z), 1).flatten(1); torch.concat((z, z), -1); torch.einsum("ab->ba", z); torch.einsum("ab,ab->a", z, z * 2); z.repeat_interleave(3, 1)
F.pad(x, (1, -1)); F.pad(u, (1, 1))[:, :-2] * 2; F.pad(u, (2, 0), value=1.5)[:, : u.shape[1]]; F.pad(x[..., 1:], (0, 1)); F.pad(c, (1, 1), mode="replicate")[..., 2:]; F.pad(c, (1, 1), mode="circular")[..., :-2]; F.pad(c, (1, 1), mode="reflect")[..., 2:]; (F.pad(u, (1, 1, 1, 1))[1:-1, 2:] + u) * 2
torch.roll(u, 1, -1); u.roll((1, -2), dims=(0, 1)); w.roll(2); u.flip(-1); torch.flip(u, (0, 1)); z.flip(1) + z; torch.roll(u.chunk(2, -1)[0], 1, 1)
F.embedding(l, z); F.embedding(l, z) * 2; z[l]; u[:, l]; torch.index_select(z, 0, l); u.index_select(-1, l); torch.take_along_dim(z, t[:, None], dim=1).squeeze(1); z[torch.arange(z.shape[0]), t]; z * F.one_hot(t, z.shape[1]); z.log_softmax(-1)[torch.arange(z.size(0)), t].mean(); u.select(0, 0); torch.narrow(u, 1, 0, u.shape[1] // 2); u.unflatten(1, (2, 3)).unbind(1)[1]
F.group_norm(c, 2); F.group_norm(c, 2, g, g, 1e-3); F.group_norm(c, 1, g); torch.group_norm(c, 4, g, g); F.group_norm(u, 3)
F.max_pool1d(u, 3, 2, 1); F.max_pool2d(c, 2); F.max_pool2d(c * 2, (2, 1), stride=1, padding=(1, 0), dilation=1); F.max_pool3d(v, (1, 2, 2), 1); F.avg_pool1d(x, 3, 1, 1); F.avg_pool2d(c, (1, 2), 1) + 1; F.avg_pool3d(v, (2, 1, 3)); c - F.avg_pool2d(c, 3, 1, 1)
x.cumsum(-1); torch.cumsum(z, 0); i.cumsum(-1); mask.cumsum(-1); x.cumsum(-1, dtype=torch.float64); torch.cumprod(x, dim=-1); c.cumprod(1); x.cummax(-1).values; torch.cummin(c, 1)[1]; x.cummax(-1)[1]; i.cummin(-1).indices; torch.logcumsumexp(x, -1); u[:, :-1].cumsum(1).sum(1); x.flip(-1).cumsum(-1).flip(-1); u.flip(0).logcumsumexp(0).flip(0)
torch.topk(x, 3).values; x.topk(2, largest=False)[0]; torch.topk(z, 3, dim=0).indices; x.topk(1).values.squeeze(-1); x.masked_fill(x < x.topk(n).values[..., -1:], float("-inf")); torch.where(x < torch.topk(x, 3)[0][..., -1, None], 0.0, x); i.topk(2).values; z.topk(n, largest=False).values[:, -1]; x.kthvalue(2).values; torch.kthvalue(z, n, dim=0).values; z.kthvalue(n, 1, True)[0] * z; x.kthvalue(2)[1]; z.gather(-1, z.topk(2).indices)
z.index_add(0, l, h[l]); torch.index_add(z, 0, l, q, alpha=0.5); torch.zeros(z.shape[0], z.shape[1], dtype=z.dtype, device=z.device).index_add_(0, l, q) * z; z.new_zeros(z.shape[1], 3).index_add_(0, t, z.topk(3).values); u.scatter_add(1, l[None].expand(u.shape[0], -1), u[:, l]); u.scatter_reduce(1, l[None, :].expand(u.shape[0], -1), u[:, l] * 3, "amax"); u.scatter_reduce(-1, l[None, :].expand(u.shape[0], -1), u[:, l], reduce="sum"); torch.zeros_like(z).index_add(0, l, z[l]); torch.ones(t.shape[0], 7) * t[:, None]; torch.full((t.shape[0], 7), 2) * t[:, None]; z + z.new_full((z.shape[1],), -1.5) * z.new_ones(z.shape)
torch.bincount(t, minlength=z.shape[1]); torch.bincount(l, minlength=7); l.bincount(r, 5); F.embedding_bag(ids, z, mode="sum"); F.embedding_bag(ids, h)
u.view(-1, u.shape[-1]) * 2; x.reshape(-1, x.shape[-1]).cumsum(-1).view(x.shape); (x.view(-1, x.size(-1)) * w).view_as(x); (x.reshape(-1, x.size(-1)).sum(-1, keepdim=True) * x.reshape(-1, x.size(-1))).reshape(x.shape)
F.hinge_embedding_loss(x, y.sign()); F.hinge_embedding_loss(x * 2, y.sign(), margin=0.5, reduction="none"); F.instance_norm(c); F.instance_norm(c, weight=g, bias=g, eps=1e-3); torch.nan_to_num(p.log() / x, 0.5, 3.0, -3.0); torch.nan_to_num(x.float().log()); torch.var_mean(x, -1)[0]; torch.std_mean(z, 0, correction=0)[0]
F.kl_div(x, p); F.kl_div(x, p, reduction="sum"); F.kl_div(z.log_softmax(-1), z.softmax(-1), reduction="batchmean"); F.kl_div(x, y, reduction="none", log_target=True)
"""
#: What draws numbers of its own: in tests/randoms/test_traced.py.
DRAWN = {"dropout", "bernoulli", "rand_like", "randn_like"}
TEXTS = [c.strip() for line in CASES.strip().split("\n") for c in line.split(";") if c.strip()]
PLAIN_PYTHON = {"x if mask else y"}  # the language's own: in torch only for one element


def params(text: str) -> list[str]:
    import re

    words = set(re.findall(r"(?<!\.)\b\w+\b", re.sub(r"\b\w+=", "", text)))
    return [*(k for k in PARAMS if k in words), *(["p"] if "p" in words else [])]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    lines = []
    for k, text in enumerate(TEXTS):
        head = ", ".join(PARAMS.get(p, 'p: "T[..., N]"') for p in params(text))
        lines.append(f"def f{k}({head}):\n    return {text}\n")
    return module(tmp_path_factory.mktemp("names"), "\n".join(lines))


def arguments(names: list[str], dtype: torch.dtype) -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

    made: dict[str, Any] = {}
    for name in names:
        if name in ("x", "y"):
            made[name] = normal(2, 3, 5)
        elif name == "z":
            made[name] = normal(4, 5)
        elif name in ("w", "b"):
            made[name] = normal(5)
        elif name == "p":
            made[name] = (torch.rand((2, 3, 5), generator=g, dtype=torch.float64) * 0.9 + 0.05).to(dtype)
        elif name in ("u", "c", "v", "g", "h"):
            made[name] = normal(*{"u": (2, 6), "c": (2, 4, 3), "v": (2, 4, 3, 6), "g": (4,), "h": (4, 5)}[name])
        elif name in ("r", "q"):
            made[name] = normal(3).float() if name == "r" else normal(3, 5)
        elif name == "ids":
            made[name] = torch.randint(0, 4, (2, 3), generator=g)
        elif name == "n":
            made[name] = 2
        elif name == "l":
            made[name] = torch.randint(0, 4, (3,), generator=g)
        elif name == "t":
            made[name] = torch.randint(0, 5, (4,), generator=g)
        elif name in ("i", "j"):
            made[name] = torch.randint(0, 9, (2, 3, 5), generator=g, dtype=torch.int32)
        elif name in ("mask", "other"):
            made[name] = torch.rand((2, 3, 5), generator=g) < 0.5
        else:
            made[name] = 0.75
    return made


def wide(given: dict[str, Any]) -> dict[str, Any]:
    return {k: v.double() if isinstance(v, torch.Tensor) and v.dtype.is_floating_point else v for k, v in given.items()}


@pytest.mark.parametrize("k", range(len(TEXTS)), ids=TEXTS)
def test_the_value_is_torchs_in_float64(functions: ModuleType, k: int) -> None:
    """Within the bound derived for f32, and for the float64 run of the same function."""
    if TEXTS[k] in PLAIN_PYTHON:
        return
    function = getattr(functions, f"f{k}")
    kernel = trace(function)
    given = arguments(params(TEXTS[k]), torch.float32)
    (exact,) = Analysis(kernel, wide(given), "cpp").results()
    if "digamma" in TEXTS[k]:  # torch's own in f32 is not held to the C++ function's bound
        assert bool(((exact.exact - function(**wide(given))).abs() <= exact.bound).all())
        return
    (got,) = Evaluator(kernel, given).run()
    (held,) = Analysis(kernel, given, "cpp").results()
    casts = ("torch.float32", "half", "bfloat16", "torch.bfloat16", "float()")
    if any(c in TEXTS[k] for c in casts):  # the function itself rounds: hold the kernel to that rounding of the same operand
        expected = function(**given)
        slack = held.bound * 2
    else:
        expected = function(**wide(given))
        slack = held.bound + exact.bound
    assert got.shape == expected.shape
    if not got.dtype.is_floating_point:
        assert torch.equal(got, expected)
        return
    same = (got.double() == expected.double()) | (got.isnan() & expected.isnan())
    assert bool((same | ((got.double() - expected.double()).abs() <= slack)).all())


@pytest.mark.parametrize("k", range(len(TEXTS)), ids=TEXTS)
def test_dtype_and_dims_are_torchs(functions: ModuleType, k: int) -> None:
    if TEXTS[k] in PLAIN_PYTHON:
        return
    function = getattr(functions, f"f{k}")
    kernel = trace(function)
    for dtype in (torch.bfloat16, torch.float64):
        given = arguments(params(TEXTS[k]), dtype)
        (got,) = Evaluator(kernel, given).run()
        try:
            expected = function(**given)
        except (RuntimeError, NotImplementedError):  # torch lacks this one for bf16
            assert dtype == torch.bfloat16
            continue
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype)


def test_every_row_has_a_case() -> None:
    """Each row of the table is reached by a case above, under one of its names."""
    for row in names.ROWS:
        words = {p.rpartition(".")[2] for p in names.places(row)}
        assert words <= DRAWN or any(f"{w}(" in text for w in words for text in TEXTS), row.names


def test_every_name_in_the_table_is_torchs() -> None:
    for row in names.ROWS:
        found = []
        for place in names.places(row):
            thing: Any = torch
            for part in place.split("."):
                thing = getattr(thing, part, None)
            found.append(thing)
        assert any(thing is not None for thing in found), row.names


@pytest.mark.parametrize("weight", [0.25, 0.5, 1.0])
def test_lerp_goes_from_the_nearer_end(functions: ModuleType, weight: float) -> None:
    """At a weight of 1 it is the other end itself, and where the nearer end is infinite it is NaN."""
    function = getattr(functions, f"f{TEXTS.index('x.lerp(y, s)')}")
    x, y = torch.tensor([[0.0, 1e8, torch.inf]]), torch.tensor([[torch.inf, 0.1, 0.0]])
    (got,) = Evaluator(trace(function), {"x": x, "y": y, "s": weight}).run()
    torch.testing.assert_close(got, torch.lerp(x, y, weight), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("text", ["x ** 0.5", "x.pow(-0.5)", "torch.pow(x, 1 / 2)"])
def test_roots_written_as_powers_are_roots(functions: ModuleType, text: str) -> None:
    """torch takes the square root where a tensor's exponent is the number 0.5: that of -inf is NaN, and that of -0 is -0."""
    function = getattr(functions, f"f{TEXTS.index(text)}")
    x = torch.tensor([[-torch.inf, -0.0, 0.0, torch.inf, -4.0, torch.nan, 2.25]])
    (got,) = Evaluator(trace(function), {"x": x}).run()
    want = function(x)
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(got.signbit() & ~got.isnan(), want.signbit() & ~want.isnan())
