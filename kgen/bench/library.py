"""The library's specs as torch has them: a line for each, which the tests hold it to and `kgen bench` times it beside.

A line has the torch function of the spec's parameters, by name, that gives its results in order, and what tensors hold that are not
normal: "positive", "negative", "unit" (between 0 and 1), "rows" (probabilities), "logs" (of probabilities), "signs", "bits" (0 or 1), a
dim (places along it), "offsets" and "row" (of rows that lie one behind another along S); numbers are the values of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from kgen.bench import drawn, quantised


@dataclass(frozen=True)
class Line:
    """What a spec is held against: a torch function, what parameters hold, a tolerance where something is stored in less than float64,
    and the parameters by which torch does not differentiate."""

    torch: Callable[..., Any]
    given: dict[str, Any]
    near: float = 1e-10
    fixed: tuple[str, ...] = ()


def line(function: Callable[..., Any], near: float = 1e-10, fixed: tuple[str, ...] = (), **given: Any) -> Line:
    return Line(function, given, near, fixed)


def _unit(x: Tensor, eps: float, dims: tuple[int, ...] = (-1,)) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dims, True) + eps)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def _batchnorm(x: Tensor, w: Tensor, b: Tensor, mu: Tensor, v: Tensor, momentum: float, eps: float) -> tuple[Tensor, ...]:
    mu, v = mu.detach().clone(), v.detach().clone()
    return F.batch_norm(x, mu, v, w, b, True, momentum, eps), mu, v


def _channels_first(x: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x.mT, w.shape, w, b, eps).mT


def _causal(s: Tensor, window: int = 1 << 30) -> Tensor:
    q, k = (torch.arange(n, device=s.device) for n in s.shape[-2:])
    far = q[:, None] - k
    return s.masked_fill((far < 0) | (far >= window), -math.inf).softmax(-1)


def _alibi(s: Tensor, slope: Tensor) -> Tensor:
    q, k = (torch.arange(n, device=s.device) for n in s.shape[-2:])
    return _causal(s - slope[:, None, None] * (q[:, None] - k)).to(s.dtype)


def _sink(s: Tensor, sink: Tensor) -> Tensor:
    return torch.cat((s, sink[:, None, None].expand(*s.shape[:-1], 1)), -1).softmax(-1)[..., :-1]


def _rows(x: Tensor, t: Tensor, **named: Any) -> Tensor:
    return F.cross_entropy(x.flatten(0, -2), t.flatten(), reduction="none", **named).view(t.shape)


def _focal(x: Tensor, t: Tensor, w: Tensor, gamma: float) -> Tensor:
    nll = _rows(x, t)
    return w[t] * (1 - torch.exp(-nll)) ** gamma * nll


def _swiglu_oai(x: Tensor, alpha: float, limit: float) -> Tensor:
    g, u = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return g * torch.sigmoid(alpha * g) * (u + 1)


def _sigmoid_focal(x: Tensor, t: Tensor, alpha: float, gamma: float) -> Tensor:
    p, ce = x.sigmoid(), F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return (alpha * t + (1 - alpha) * (1 - t)) * ce * (1 - (p * t + (1 - p) * (1 - t))) ** gamma


def _jsd(x: Tensor, y: Tensor, beta: float) -> Tensor:
    m = (beta * y.exp() + (1 - beta) * x.exp()).log()
    return (beta * F.kl_div(m, y, reduction="none", log_target=True) + (1 - beta) * F.kl_div(m, x, reduction="none", log_target=True)).sum(
        -1
    )


def _kl(s: Tensor, t: Tensor, at: float = 1.0) -> Tensor:
    return F.kl_div(F.log_softmax(s / at, -1), F.log_softmax(t / at, -1), reduction="none", log_target=True).sum(-1)


def _dpo(pc: Tensor, pr: Tensor, rc: Tensor, rr: Tensor, beta: float, smoothing: float) -> Tensor:
    z = beta * (pc - pr - rc + rr)
    return -F.logsigmoid(z) * (1 - smoothing) - F.logsigmoid(-z) * smoothing


def _clipped(p: Tensor, old: Tensor, a: Tensor, lo: float, hi: float) -> Tensor:
    r = (p - old).exp()
    return -torch.minimum(r * a, r.clamp(1 - lo, 1 + hi) * a)


def _grpo(p: Tensor, old: Tensor, ref: Tensor, a: Tensor, lo: float, hi: float, beta: float) -> Tensor:
    return _clipped(p, old, a[:, None], lo, hi) + beta * ((ref - p).exp() - (ref - p) - 1)


def _stepped(kind: str, p: Tensor, g: Tensor, state: dict[str, Any], **named: Any) -> tuple[Tensor, ...]:
    """The parameter and the tensors of its state, after a step of torch.optim's `kind`."""
    leaf = p.clone().requires_grad_()
    leaf.grad = g.clone()
    optimiser = getattr(torch.optim, kind)([leaf], foreach=False, **named)
    kept = {k: torch.tensor(float(x)) if isinstance(x, (int, float)) else x.clone() for k, x in state.items()}
    optimiser.state[leaf] = kept
    optimiser.step()
    return (leaf.detach(), *(x for x in kept.values() if x.dim()))


def _adafactor(p: Tensor, g: Tensor, r: Tensor, c: Tensor, lr: float, b2: float, wd: float, eps: float, clip: float) -> tuple[Tensor, ...]:
    r, c = (b2 * s + (1 - b2) * (g**2 + eps).mean(d) for s, d in ((r, 1), (c, 0)))
    u = g / (torch.outer(r, c) / r.mean()).sqrt()
    u = u / torch.clamp(u.square().mean().sqrt() / clip, min=1)
    return p - lr * u - lr * wd * p, r, c


def _lars(p: Tensor, g: Tensor, m: Tensor, lr: float, momentum: float, trust: float, wd: float, eps: float) -> tuple[Tensor, ...]:
    m = momentum * m + trust * p.norm() / (g.norm() + wd * p.norm() + eps) * (g + wd * p)
    return p - lr * m, m


def _lamb(p: Tensor, g: Tensor, m: Tensor, v: Tensor, t: int, lr: float, b1: float, b2: float, eps: float, wd: float) -> tuple[Tensor, ...]:
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
    u = m / (1 - b1**t) / ((v / (1 - b2**t)).sqrt() + eps) + wd * p
    return p - lr * p.norm() / u.norm() * u, m, v


def _signum(p: Tensor, g: Tensor, m: Tensor, lr: float, momentum: float, wd: float) -> tuple[Tensor, ...]:
    m = m.lerp(g, 1 - momentum)
    return p * (1 - lr * wd) - lr * m.sign(), m


def _clip_grad_norm(g: Tensor, most: float, eps: float) -> tuple[Tensor, ...]:
    total = torch.linalg.vector_norm(g)
    return g * (most / (total + eps)).clamp(max=1.0), total


def _nadam(
    p: Tensor, g: Tensor, m: Tensor, v: Tensor, t: int, lr: float, product: float, decay: float, b1: float, b2: float, eps: float
) -> Any:
    state = {"step": t - 1, "mu_product": product, "exp_avg": m, "exp_avg_sq": v}
    return _stepped("NAdam", p, g, state, lr=lr, betas=(b1, b2), eps=eps, momentum_decay=decay)


def _int8(x: Tensor) -> tuple[Tensor, Tensor]:
    s = x.abs().amax(-1) / 127
    return torch.clamp(torch.round(x / s[..., None]), -127, 127).to(torch.int8), s


def group_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    q, s = _int8(x.unflatten(-1, (-1, 128)))
    return q.flatten(-2), s.float()


def _bert(tokens: Tensor, positions: Tensor, segments: Tensor, ids: Tensor, of: Tensor, w: Tensor, b: Tensor, eps: float) -> Tensor:
    return F.layer_norm(F.embedding(ids, tokens) + positions + F.embedding(of, segments), w.shape, w, b, eps)


def scanned(a: Tensor, b: Tensor, dim: int = -1, back: bool = False) -> Tensor:
    """h of h' = a h + b along a dim, from 0; `back` from the end.  Neighbours are joined twice as far apart each time, so that a long row
    takes a few operations on whole tensors."""
    a, b = (x.flip(dim) if back else x for x in torch.broadcast_tensors(a, b))
    size, far = a.shape[dim], 1
    while far < size:
        (first, later), (begin, rest), (before, _) = (x.split((k, size - k), dim) for x, k in ((a, far), (b, far), (b, size - far)))
        b = torch.cat((begin, rest + later * before), dim)
        a, far = torch.cat((first, later * a.narrow(dim, 0, size - far)), dim), 2 * far
    return b.flip(dim) if back else b


def wide(x: Tensor) -> Tensor:
    """Logits as samplers take them: of 16 bits in f32, in which probabilities can be added up."""
    return x.float() if x.dtype.itemsize < 4 else x


def _powers(x: Tensor, a: float) -> Tensor:
    """The matrix of powers of a, by which a row's product is its recurrence."""
    far = torch.arange(x.shape[-1], device=x.device) - torch.arange(x.shape[-1], device=x.device)[:, None]
    return torch.where(far >= 0, a ** far.clamp(min=0).to(x.dtype), 0).to(x.dtype)


def _gae(r: Tensor, v: Tensor, last: Tensor, done: Tensor, gamma: float, lam: float) -> Tensor:
    on = gamma * (~done).to(r.dtype)
    return scanned(lam * on, r + on * torch.cat((v[:, 1:], last[:, None]), 1) - v, back=True)


def _selective(x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    step = F.softplus(dt)
    return c[..., None] * scanned((step * a).exp(), step * b[..., None] * x, 1) + d * x


def _rg_lru(x: Tensor, r: Tensor, i: Tensor, decay: Tensor) -> Tensor:
    a = torch.exp(-8 * r.sigmoid() * F.softplus(decay))
    return scanned(a, (1 - a**2).sqrt() * i.sigmoid() * x, 1)


def _sticks(s: Tensor) -> Tensor:
    left = F.logsigmoid(-s).flip(-1).cumsum(-1).flip(-1) - F.logsigmoid(-s)
    return torch.exp(F.logsigmoid(s) + left)


def _neighbours(x: Tensor, source: Tensor, to: Tensor) -> Tensor:
    n = torch.bincount(to, minlength=len(x)).clamp(min=1)
    return torch.zeros_like(x).index_add(0, to, x[source]) / n[:, None]


def _segment_softmax(x: Tensor, ids: Tensor, like: Tensor) -> Tensor:
    e = torch.exp(x - x.new_full(like.shape, -math.inf).scatter_reduce(0, ids, x.detach(), "amax")[ids])
    return e / x.new_zeros(like.shape).index_add(0, ids, e)[ids]


def _bag(w: Tensor, ids: Tensor, offsets: Tensor) -> Tensor:
    return F.embedding_bag(ids, w, offsets, mode="mean", include_last_offset=True)


def _greatest(x: Tensor, k: int) -> Tensor:
    """Which elements are the k greatest of their rows."""
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, x.topk(min(k, x.shape[-1])).indices, True)


def _drawn(q: Tensor, u: Tensor) -> Tensor:
    return (q.cumsum(-1) < u[..., None]).sum(-1)


def _sampled(x: Tensor, u: Tensor, k: int, p: float, temperature: float) -> Tensor:
    t = (x / temperature).where(_greatest(x, k), -math.inf)
    q, order = t.softmax(-1).sort(-1, descending=True)
    kept = torch.zeros_like(t, dtype=torch.bool).scatter(-1, order, q.cumsum(-1) - q < p)
    return _drawn(t.where(kept, -math.inf).softmax(-1), u)


def _typical(x: Tensor, p: float) -> Tensor:
    l = wide(x).log_softmax(-1)
    far, order = (l + torch.distributions.Categorical(logits=wide(x)).entropy()[..., None]).abs().sort(-1)
    q = l.exp().gather(-1, order)
    return x.where(torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, q.cumsum(-1) - q < p), -math.inf)


def _complex(a: Tensor, b: Tensor) -> Tensor:
    a, b = (torch.view_as_complex(z.unflatten(-1, (-1, 2))) for z in (a, b))
    return torch.view_as_real(a * b).flatten(-2)


NORMS = {
    "gemma_rmsnorm": line(lambda x, w, eps: F.rms_norm(x, w.shape, 1 + w, eps)),
    "gated_rmsnorm": line(lambda x, z, w, eps: F.rms_norm(x * F.silu(z), w.shape, w, eps)),
    "polynorm": line(lambda x, w, b, eps: w[0] * _unit(x**3, eps) + w[1] * _unit(x**2, eps) + w[2] * _unit(x, eps) + b),
    "scalenorm": line(lambda x, g, eps: g * F.normalize(x, dim=-1, eps=eps)),
    "add_layernorm": line(lambda x, r, w, b, eps: (F.layer_norm(x + r, w.shape, w, b, eps), x + r)),
    "modulated_layernorm": line(
        lambda x, scale, shift, eps: F.layer_norm(x, x.shape[-1:], eps=eps) * (1 + scale[:, None]) + shift[:, None]
    ),
    "modulated_rmsnorm": line(lambda x, w, scale, shift, eps: F.rms_norm(x, w.shape, w, eps) * (1 + scale[:, None]) + shift[:, None]),
    "instancenorm": line(lambda x, w, b, eps: F.instance_norm(x, weight=w, bias=b, eps=eps)),
    "batchnorm": line(_batchnorm, v="positive"),
    "batchnorm_eval": line(lambda x, w, b, mu, v, eps: F.batch_norm(x, mu, v, w, b, False, 0.0, eps), fixed=("mu", "v"), v="positive"),
    "channels_first_layernorm": line(_channels_first),
    "local_response_norm": line(lambda x, alpha, beta, k: F.local_response_norm(x, 5, alpha, beta, k), alpha=0.5),
}
ACTIVATIONS = {
    "relu": line(lambda x: F.relu(x)),
    "relu6": line(lambda x: F.relu6(x)),
    "leaky_relu": line(lambda x, slope: F.leaky_relu(x, slope)),
    "prelu": line(lambda x, slope: F.prelu(x, slope)),
    "selu": line(lambda x: F.selu(x)),
    "celu": line(lambda x, alpha: F.celu(x, alpha), near=1e-7, alpha=1.3),  # torch rounds 1 / alpha to float32
    "sigmoid": line(lambda x: torch.sigmoid(x)),
    "logsigmoid": line(lambda x: F.logsigmoid(x)),
    "hardsigmoid": line(lambda x: F.hardsigmoid(x), near=1e-7),  # torch rounds 1 / 6 to float32
    "hardtanh": line(lambda x, lo, hi: F.hardtanh(x, lo, hi)),
    "softsign": line(lambda x: F.softsign(x)),
    "softshrink": line(lambda x, lambd: F.softshrink(x, lambd)),
    "hardshrink": line(lambda x, lambd: F.hardshrink(x, lambd)),
    "tanhshrink": line(lambda x: F.tanhshrink(x)),
    "quick_gelu": line(lambda x: x * torch.sigmoid(1.702 * x)),
    "snake": line(lambda x, alpha: x + torch.sin(alpha[:, None] * x) ** 2 / alpha[:, None], alpha="positive"),
    "telu": line(lambda x: x * torch.tanh(torch.exp(x))),
    "star_relu": line(lambda x, s, b: s * F.relu(x) ** 2 + b),
}
GATES = {
    "glu": line(lambda x: F.glu(x, -1)),
    "geglu_packed": line(lambda x: F.gelu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]),
    "geglu_tanh": line(lambda g, u: F.gelu(g, approximate="tanh") * u),
    "reglu": line(lambda g, u: F.relu(g) * u),
    "swiglu_oai": line(_swiglu_oai, limit=0.8),
    "bias_swiglu": line(lambda x, b: F.silu((x + b).chunk(2, -1)[0]) * (x + b).chunk(2, -1)[1]),
}
SOFTMAX = {
    "masked_softmax": line(lambda s, seen, scale: (s * scale).masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0), seen="seen"),
    "sliding_window_softmax": line(_causal, window=3),
    "alibi_softmax": line(_alibi, near=1e-6),
    "softcap_softmax": line(lambda s, scale, cap: _causal(cap * torch.tanh(s * scale / cap)), cap=2.0),
    "sink_softmax": line(_sink),
    "temperature_softmax": line(lambda x, temperature: torch.softmax(x / temperature, -1), temperature=0.7),
    "softmin": line(lambda x: F.softmin(x, -1)),
    "entropy": line(lambda x: torch.distributions.Categorical(logits=x).entropy()),
}
ROPE = {
    "rope_qk": line(lambda q, k, cos, sin: (turned(q, cos, sin), turned(k, cos, sin))),
    "qk_norm_rope": line(lambda x, w, cos, sin, eps: turned(F.rms_norm(x, w.shape, w, eps).transpose(1, 2), cos, sin).transpose(1, 2)),
    "qk_norm": line(lambda q, k, wq, wk, eps: (F.rms_norm(q, wq.shape, wq, eps), F.rms_norm(k, wk.shape, wk, eps))),
    "rope_full": line(lambda x, cos, sin: x * cos + torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) * sin),
    "rope_positions": line(lambda x, at, cos, sin: turned(x, cos[at][:, None], sin[at][:, None]), at="P"),
}
LOSSES = {
    "cross_entropy_weighted": line(
        lambda x, t, w, ignore: _rows(x, t, weight=w, ignore_index=ignore), fixed=("w",), t="V", ignore=2, w="positive"
    ),
    "cross_entropy_softcap": line(
        lambda x, t, cap, ignore: _rows(cap * torch.tanh(x / cap), t, ignore_index=ignore), t="V", ignore=2, cap=2.0
    ),
    "cross_entropy_soft": line(
        lambda x, p: F.cross_entropy(x.flatten(0, -2), p.flatten(0, -2), reduction="none").view(x.shape[:-1]), p="rows"
    ),
    "nll_loss": line(
        lambda x, t, w, ignore: F.nll_loss(x.flatten(0, -2), t.flatten(), w, reduction="none", ignore_index=ignore).view(t.shape),
        fixed=("w",),
        t="V",
        ignore=2,
        w="positive",
    ),
    "load_balancing": line(
        lambda p, ids, alpha: alpha * p.shape[1] * (torch.bincount(ids, minlength=p.shape[1]) / len(ids) * p.mean(0)).sum(),
        p="rows",
        ids="V",
        near=1e-7,  # torch divides counts in float32
    ),
    "focal": line(_focal, t="V", w="positive"),
    "sigmoid_focal": line(_sigmoid_focal, t="bits"),
    "bce_with_logits": line(lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w), fixed=("w",), t="bits", w="positive"),
    "bce": line(lambda p, t: F.binary_cross_entropy(p, t), p="unit", t="bits"),
    "hinge": line(lambda x, t: torch.clamp(1 - x * t, min=0).mean(), t="signs"),
    "soft_margin": line(lambda x, t: F.soft_margin_loss(x, t), fixed=("t",), t="signs"),
    "l1": line(lambda x, y: F.l1_loss(x, y)),
    "smooth_l1": line(lambda x, y, beta: F.smooth_l1_loss(x, y, beta=beta), beta=0.7),
    "log_cosh": line(lambda x, y: torch.log(torch.cosh(x - y)).mean()),
    "gaussian_nll": line(lambda x, t, v, eps: F.gaussian_nll_loss(x, t, v, eps=eps), v="positive"),
    "poisson_nll": line(lambda x, t: F.poisson_nll_loss(x, t)),
    "cosine_embedding": line(lambda a, b, t, margin, eps: F.cosine_embedding_loss(a, b, t, margin), t="signs", near=1e-9),
    "margin_ranking": line(lambda a, b, t, margin: F.margin_ranking_loss(a, b, t, margin), t="signs", margin=0.3),
    "info_nce": line(lambda s, temperature: F.cross_entropy(s / temperature, torch.arange(len(s), device=s.device))),
    "dice": line(lambda p, t, smooth: 1 - (2 * (p * t).sum(-1) + smooth) / (p.sum(-1) + t.sum(-1) + smooth), p="unit", t="bits"),
    "tvd": line(lambda p, q: (p - q).abs().sum(-1) / 2, p="rows", q="rows"),
    "jsd_log": line(_jsd, x="logs", y="logs", beta=0.3),
    "kl_logits": line(lambda student, teacher: _kl(student, teacher)),
    "distillation": line(
        lambda x, y, t, temperature, alpha: alpha * _kl(x, y, temperature) * temperature**2 + (1 - alpha) * _rows(x, t), t="V"
    ),
    "dpo": line(_dpo, smoothing=0.1),
    "simpo": line(lambda pc, pr, beta, gamma: -F.logsigmoid(beta * (pc - pr) - gamma)),
    "grpo": line(_grpo),
    "token_logprob": line(lambda x, t, temperature: -_rows(x / temperature, t), t="V", temperature=0.9),
    "ppo_clip": line(lambda p, old, a, eps: _clipped(p, old, a, eps, eps)),
}
STEPS: dict[str, Any] = {"lr": 0.1, "t": 3}
OPTIMISERS = {
    "adam": line(
        lambda p, g, m, v, t, lr, b1, b2, eps, wd: _stepped(
            "Adam", p, g, {"step": t - 1, "exp_avg": m, "exp_avg_sq": v}, lr=lr, betas=(b1, b2), eps=eps, weight_decay=wd
        ),
        v="positive",
        wd=0.1,
        **STEPS,
    ),
    "amsgrad": line(
        lambda p, g, m, v, top, t, lr, b1, b2, eps: _stepped(
            "Adam",
            p,
            g,
            {"step": t - 1, "exp_avg": m, "exp_avg_sq": v, "max_exp_avg_sq": top},
            lr=lr,
            betas=(b1, b2),
            eps=eps,
            amsgrad=True,
        ),
        v="positive",
        top="positive",
        **STEPS,
    ),
    "adamax": line(
        lambda p, g, m, u, t, lr, b1, b2, eps: _stepped(
            "Adamax", p, g, {"step": t - 1, "exp_avg": m, "exp_inf": u}, lr=lr, betas=(b1, b2), eps=eps
        ),
        u="positive",
        **STEPS,
    ),
    "adagrad": line(
        lambda p, g, s, t, lr, decay, wd, eps: _stepped(
            "Adagrad", p, g, {"step": t - 1, "sum": s}, lr=lr, lr_decay=decay, weight_decay=wd, eps=eps
        ),
        s="positive",
        decay=0.1,
        wd=0.1,
        **STEPS,
    ),
    "adadelta": line(
        lambda p, g, s, a, lr, rho, eps: _stepped("Adadelta", p, g, {"step": 2, "square_avg": s, "acc_delta": a}, lr=lr, rho=rho, eps=eps),
        s="positive",
        a="positive",
    ),
    "rmsprop": line(
        lambda p, g, v, m, lr, alpha, momentum, wd, eps: _stepped(
            "RMSprop",
            p,
            g,
            {"step": 2, "square_avg": v, "momentum_buffer": m},
            lr=lr,
            alpha=alpha,
            momentum=momentum,
            weight_decay=wd,
            eps=eps,
        ),
        v="positive",
        lr=0.1,
        momentum=0.8,
        wd=0.1,
    ),
    "adafactor": line(_adafactor, r="positive", c="positive", lr=0.1, wd=0.1),
    "clip_grad_norm": line(_clip_grad_norm, most=0.5),
    "signum": line(_signum, lr=0.1, wd=0.1),
    "lars": line(_lars, lr=0.1, wd=0.1),
    "lamb": line(_lamb, v="positive", **STEPS),
    "nadam": line(_nadam, v="positive", product=0.7, **STEPS),
}
EMBEDDINGS = {
    "scaled_embedding": line(lambda w, ids: F.embedding(ids, w) * math.sqrt(w.shape[1]), ids="V"),
    "position_embedding": line(lambda tokens, positions, ids: F.embedding(ids, tokens) + positions, ids="V"),
    "bert_embedding": line(_bert, ids="V", of="G"),
}
QUANTISATION = {
    "group_int8_dequantize": line(lambda q, s: (q.unflatten(-1, (-1, 128)) * s[..., None]).flatten(-2)),
    "fake_quantize": line(
        lambda x, scale, lo, hi: torch.fake_quantize_per_tensor_affine(x.float(), scale, 0, int(lo), int(hi)).to(x.dtype),
        scale=0.5,
        lo=-3.0,
        hi=3.0,
        near=1e-6,
    ),
    "rmsnorm_fp8_row": line(lambda x, w, eps: quantised.rows(F.rms_norm(x, w.shape, w, eps)), near=1e-6),
    "rmsnorm_fp8_128": line(lambda x, w, eps: ((y := F.rms_norm(x, w.shape, w, eps)), *quantised.blocks(y)), near=1e-6),
    "swiglu_fp8_128": line(lambda g, u: ((found := quantised.blocks(F.silu(g) * u))[0], found[1].mT), near=1e-6),
    "fp8_blocks": line(quantised.square_blocks, near=1e-6),
    "fp8_dequantize": line(quantised.of_square_blocks, near=1e-2, fixed=("q",), s="positive"),
    "fp8_tensor": line(lambda x: quantised.tensor(x, quantised.E5M2), near=1e-6),
    "fp8_fake": line(quantised.fake),
    "mxfp8": line(lambda x: quantised.micro(x, -1, False)),
    "mxfp8_both": line(lambda x: (*quantised.micro(x, -1, True), *quantised.micro(x, 0, True))),
    "nvfp4": line(quantised.nvfp4, near=1e-6),
    "nvfp4_dequantize": line(quantised.of_nvfp4, near=1e-2, fixed=("q", "s"), g="positive"),
    "int4_dequantize": line(quantised.of_int4),
    "rmsnorm_int8": line(lambda x, w, eps: _int8(F.rms_norm(x, w.shape, w, eps))),
    "swiglu_group_int8": line(lambda g, u: group_int8(F.silu(g) * u), near=1e-6),
}
STENCILS = {
    "pixel_shuffle": line(lambda x, r: F.pixel_shuffle(x, r)),
    "pad_rows": line(lambda x, by: F.pad(x, (0, 0, 0, -len(x) % by)), by=3),
    "moving_average": line(lambda x: F.pad(x, (2, 0)).unfold(-1, 3, 1).mean(-1)),
    "complex_multiply": line(_complex),
    "token_shift": line(lambda x, mix: mix * x + (1 - mix) * F.pad(x, (0, 0, 1, 0))[..., :-1, :]),
    "avg_pool2": line(lambda x: F.avg_pool1d(x, 2)),
    "avg_pool2d": line(lambda x: F.avg_pool2d(x, 3, 2, 1)),
    "max_pool2d": line(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "total_variation": line(lambda x: x.diff(dim=-1).abs().sum((-2, -1)) + x.diff(dim=-2).abs().sum((-2, -1))),
}
SCANS = {
    "cumprod": line(lambda x: x.cumprod(-1)),
    "cummax": line(lambda x: torch.cummax(x, -1)),
    "exclusive_cumsum": line(lambda x: F.pad(x, (1, 0))[..., :-1].cumsum(-1)),
    "reversed_cumsum": line(lambda x: x.flip(-1).cumsum(-1).flip(-1)),
    "masked_cumsum": line(lambda x, seen: (x * seen).cumsum(-1)),
    "ema": line(lambda x, alpha: torch.cat((x[..., :1], alpha * x[..., 1:]), -1) @ _powers(x, 1 - alpha)),
    "discounted_returns": line(lambda r, done, gamma: scanned(gamma * (~done).to(r.dtype), r, back=True)),
    "gae": line(_gae),
    "selective_scan": line(_selective, a="negative"),
    "rg_lru": line(_rg_lru),
    "stick_breaking": line(_sticks),
    "volume_weights": line(
        lambda sigma, delta: -torch.exp(-F.pad(sigma * delta, (1, 0)).cumsum(-1)).diff(dim=-1), sigma="positive", delta="positive"
    ),
    "packed_positions": line(
        lambda begins: torch.arange(begins.shape[-1], device=begins.device)
        - torch.cummax(torch.arange(begins.shape[-1], device=begins.device) * begins, -1).values
    ),
}
SEGMENTS = {
    "scatter_add": line(lambda onto, ids, x: onto.index_add(0, ids, x), ids="V"),
    "segment_sum": line(lambda x, ids, like: x.new_zeros(len(like), x.shape[1]).index_add(0, ids, x), ids="V"),
    "segment_max": line(lambda x, ids, least: least.scatter_reduce(0, ids[:, None].expand_as(x), x, "amax"), ids="V"),
    "segment_softmax": line(_segment_softmax, ids="V"),
    "neighbour_mean": line(_neighbours, source="V", to="V"),
    "ragged_sum": line(lambda x, offsets: torch.segment_reduce(x, "sum", lengths=offsets.diff()), offsets="offsets"),
    "ragged_softmax": line(lambda x, row, offsets: _segment_softmax(x, row, offsets[1:]), row="row", offsets="offsets"),
    "bincount": line(lambda ids, w, counts: counts.index_add(0, ids, w.to(counts.dtype)), ids="V", near=1e-6),
    "embedding_bag": line(_bag, ids="V", offsets="offsets"),
}
SELECTION = {
    "draw_token": line(lambda x, u, temperature: _drawn((wide(x) / temperature).softmax(-1), u), u="unit", temperature=0.7),
    "gumbel_token": line(lambda x, u, temperature: (x / temperature - torch.log(-torch.log(u))).argmax(-1), u="unit", temperature=0.7),
    "sample_token": line(_sampled, u="unit", k=4, p=0.8, temperature=0.7),
    "typical_mask": line(_typical, p=0.7),
    "topk_activation": line(lambda x, k: F.relu(x) * _greatest(x, k), k=3),
    "moe_router": line(lambda x: (x.topk(2).values.softmax(-1), x.topk(2).indices)),
    "median": line(lambda x: x.median(-1).values),
    "top_k": line(lambda x, k: tuple(x.topk(k)), k=3),
}
RANDOM = {
    "dropout": line(drawn.dropout),
    "dropout_add_rmsnorm": line(drawn.dropout_add_rmsnorm),
    "dropout_add_layernorm": line(drawn.dropout_add_layernorm),
    "bernoulli_mask": line(lambda p, seed, offset: drawn.uniform(p, seed, offset) < p, p="unit"),
    "rand": line(lambda like, seed, offset: drawn.uniform(like, seed, offset)),
    "randn": line(drawn.normal, near=1e-5),
    "stochastic_round": line(drawn.stochastic_round),
    "gumbel_softmax": line(lambda x, tau, seed, offset: ((x + drawn.gumbel(x, seed, offset)) / tau).softmax(-1), near=1e-5, tau=0.7),
    "categorical": line(lambda x, temperature, seed, offset: (x / temperature + drawn.gumbel(x, seed, offset)).argmax(-1), temperature=0.7),
}
#: Every spec that lies in a family's folder.
LINES: dict[str, Line] = (
    NORMS | ACTIVATIONS | GATES | SOFTMAX | ROPE | LOSSES | OPTIMISERS | EMBEDDINGS | QUANTISATION | STENCILS | SCANS | SEGMENTS | SELECTION
    | RANDOM
)
#: Those that are timed: what a step of an optimiser takes in torch is no function of its tensors, and copies them here.
TIMED: dict[str, Callable[..., Any]] = {name: found.torch for name, found in LINES.items() if name not in OPTIMISERS} | drawn.BY_TORCH

#: Normal numbers as what a line says that a tensor holds.
HOLDING: dict[str, Callable[[Tensor], Tensor]] = {
    "positive": lambda x: x.abs() + 0.1,
    "negative": lambda x: -x.abs() - 0.1,
    "unit": lambda x: x.sigmoid(),
    "rows": lambda x: x.softmax(-1),
    "logs": lambda x: x.log_softmax(-1),
    "signs": lambda x: torch.where(x < 0, -1.0, 1.0).to(x.dtype),
    "bits": lambda x: (x > 0).to(x.dtype),
}


def holding(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a spec's, by parameter, that hold what its line says, where that is more than the formula says: numbers that torch's
    function takes (of others it may end all that runs on a GPU), and of rows that lie one behind another in which each element lies."""
    held = LINES[name].given if name in LINES else {}
    found = dict(given)
    for p, x in given.items():
        if isinstance(x, Tensor) and x.is_floating_point() and held.get(p) in HOLDING:
            found[p] = HOLDING[held[p]](x)
        elif held.get(p) == "row":
            ends = next(found[q] for q, what in held.items() if what == "offsets")[1:]
            found[p] = torch.bucketize(torch.arange(x.numel(), device=x.device), ends, right=True).to(x.dtype)
    return found
