"""Functions as they stand in people's models, unchanged but for the types of their parameters; `test_natural.py` decorates them."""

# ruff: noqa: F821
import torch
import torch.nn.functional as F


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(q: "T[..., S, N]", k: "T[..., S, N]", cos: "T[S, N]", sin: "T[S, N]"):
    q_embed = (q * cos) + (rotate_half(q) * sin)
    k_embed = (k * cos) + (rotate_half(k) * sin)
    return q_embed, k_embed


def rotary_interleaved(x: "T[..., S, N]", cos: "T[S, D]", sin: "T[S, D]"):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1).flatten(-2)


def packed_swiglu(x: "T[..., N]"):
    a, b = x.chunk(2, dim=-1)
    return F.silu(a) * b


def fake_quantise(x: "T[..., N]"):
    groups = x.view(*x.shape[:-1], -1, 128)
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5) / 127
    return (torch.round(groups / scale) * scale).reshape(x.shape)


def token_shift(x: "T[B, S, C]", mix: "T[C]"):
    previous = F.pad(x, (0, 0, 1, -1))
    return x * mix + previous * (1 - mix)


def laplacian(u: "T[..., H, W]"):
    p = F.pad(u, (1, 1, 1, 1))
    return p[..., :-2, 1:-1] + p[..., 2:, 1:-1] + p[..., 1:-1, :-2] + p[..., 1:-1, 2:] - 4 * u


def heat_step(u: "T[..., H, W]", k: float = 0.1):
    around = torch.roll(u, 1, -1) + torch.roll(u, -1, -1) + torch.roll(u, 1, -2) + torch.roll(u, -1, -2)
    return u + k * (around - 4 * u)


def total_variation(x: "T[B, C, H, W]"):
    dh = x[:, :, 1:, :] - x[:, :, :-1, :]
    dw = x[:, :, :, 1:] - x[:, :, :, :-1]
    return dh.abs().mean() + dw.abs().mean()


def complex_multiply(a: "T[..., 2]", b: "T[..., 2]"):
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    imaginary = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return torch.stack((real, imaginary), dim=-1)


def embed(ids: "i64[B, S]", wte: "T[V, D]", wpe: "T[P, D]"):
    positions = torch.arange(ids.shape[1])
    return F.embedding(ids, wte) + wpe[positions]


def padded_embed(ids: "i64[B, S]", wte: "T[V, D]"):
    return F.embedding(ids, wte, padding_idx=0) * wte.shape[1] ** 0.5


def token_loss(logits: "T[B, V]", labels: "i64[B]"):
    logp = F.log_softmax(logits, dim=-1)
    return -logp[torch.arange(logits.shape[0]), labels].mean()


def distillation(student: "T[B, V]", teacher: "T[B, V]", t: float = 2.0):
    soft = F.kl_div(F.log_softmax(student / t, dim=-1), F.softmax(teacher / t, dim=-1), reduction="batchmean")
    return soft * t * t


def norm_act(x: "T[B, C, H, W]", weight: "T[C]", bias: "T[C]"):
    return F.silu(F.group_norm(x, 4, weight, bias, eps=1e-6))


def moving_average(x: "T[..., N]"):
    p = F.pad(x, (1, 1))
    return (p[..., :-2] + p[..., 1:-1] + p[..., 2:]) / 3


def split_heads(x: "T[B, S, N]"):
    q, k, v = x.chunk(3, dim=-1)
    q = F.normalize(q.view(q.shape[0], q.shape[1], 4, -1).transpose(1, 2), dim=-1)
    return q, k * 2, v.flip(-1)


def dice(x: "T[B, C, S]", t: "i64[B, S]"):
    p, one = x.softmax(1), F.one_hot(t, x.shape[1]).transpose(1, 2)
    return (1 - (2 * (p * one).sum(2) + 1) / (p.sum(2) + one.sum(2) + 1)).mean()


def unit_length(x: "T[B, S, C]"):
    length = x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return x / length, length, x.mean(dim=1, keepdim=True)


def stem(x: "T[..., C, H, W]", w: "T[C]", b: "T[C]"):
    y = F.silu(x * w[:, None, None] + b[:, None, None])
    return F.max_pool2d(y, 3, stride=2, padding=1) - F.avg_pool2d(y, kernel_size=3, stride=2, padding=1)


def pixel_shuffle(x: "T[B, C, H, W]"):
    b, c, h, w = x.shape
    x = x.view(b, c // 4, 2, 2, h, w)
    return x.permute(0, 1, 4, 2, 5, 3).reshape(b, c // 4, h * 2, w * 2), F.pixel_unshuffle(x.flatten(1, 3), 2)


def windows(x: "T[B, H, W, C]"):
    B, H, W, C = x.shape
    x = x.view(B, H // 4, 4, W // 4, 4, C)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, 4, C)


def quarters(x: "T[..., N]"):
    left, right = x.chunk(2, -1)
    a, b = left.chunk(2, -1)
    c, d = right.chunk(2, -1)
    return torch.stack((torch.stack((a * d, b * c), -1), torch.stack((b + c, a - d), -1)), -1).flatten(-3)


def causal_scores(s: "T[B, H, Q, K]"):
    mask = torch.full((s.shape[-2], s.shape[-1]), float("-inf"), dtype=s.dtype, device=s.device)
    return torch.softmax(s + torch.triu(mask, diagonal=1), dim=-1)


def in_order(x: "T[M, N]", order: "i64[M, N]", rows: "i64[M]"):
    return torch.gather(x, 1, order).cumsum(-1)[rows]


def three_heads(x: "T[B, S, N]"):
    q, k, v = x.split(6, dim=-1)
    left, right = torch.split(k, 3, -1)
    return F.normalize(q, dim=-1) * v, left * right


def next_token_loss(logits: "T[B, S, V]", labels: "i64[B, S]"):
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = labels[..., 1:].contiguous()
    return F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1))


def squeeze_excite(x: "T[B, C, H, W]", gate: "T[B, C, 1, 1]", alpha: "T[1, C, 1, 1]"):
    y = x * torch.sigmoid(gate) + alpha
    return y, y.mean((2, 3), keepdim=True)


def masked_scores(s: "T[B, H, Q, K]", mask: "T[B, 1, Q, K]", past: "u8[1, 1, P, R]"):
    q, k = s.shape[-2:]
    s = s * 0.125 + mask
    s.masked_fill_(past[:, :, :q, :k] == 0, float("-inf"))
    return F.softmax(s, dim=-1)


def with_positions(x: "T[B, S, D]", pe: "T[1, P, D]", cos: "T[Q, D]"):
    return (x + pe[:, : x.size(1), :]) * cos[2 : 2 + x.size(1)]


def repeat_kv(x: "T[B, H, S, D]", w: "T[D]"):
    b, h, s, d = x.shape
    x = (x * w)[:, :, None, :, :].expand(b, h, 4, s, d)
    return x.reshape(b, h * 4, s, d)


def upsample(x: "T[B, C, H, W]"):
    return F.silu(x).repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)


def unpatchify(x: "T[B, C, H, W]", w: "T[C]"):
    b, c, h, w_ = x.shape
    x = torch.einsum("bchpwq,c->bhwpqc", x.reshape(b, c, h // 4, 4, w_ // 4, 4), w)
    return x.reshape(b, (h // 4) * (w_ // 4), 4 * 4 * c)


def causal_conv(x: "T[B, C, L]", w: "T[C, 4]", b: "T[C]"):
    y = F.pad(x, (3, 0))
    return F.silu(sum(y[..., i : i + x.shape[-1]] * w[:, i, None] for i in range(4)) + b[:, None])


def timestep_embedding(t: "T[B]"):
    freqs = torch.exp(-9.21 * torch.arange(start=0, end=8, dtype=t.dtype) / 8).to(t.device)
    args = t[:, None] * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


def ternary(w: "T[M, N]"):
    scale = 1.0 / w.abs().mean().clamp_(min=1e-5)
    u = w * scale
    u.round_().clamp_(-1, 1)
    u.div_(scale)
    return w + (u - w).detach(), torch.topk(w, 3, dim=1).values.mean()


#: Each function with the shapes of its tensors (a number: integers below it).
CASES = [
    (apply_rotary_pos_emb, [(2, 3, 5, 16), (2, 3, 5, 16), (5, 16), (5, 16)]),
    (rotary_interleaved, [(2, 3, 5, 16), (5, 8), (5, 8)]),
    (packed_swiglu, [(3, 4, 22)]),
    (fake_quantise, [(2, 3, 384)]),
    (token_shift, [(2, 5, 7), (7,)]),
    (laplacian, [(2, 6, 9)]),
    (heat_step, [(2, 6, 9)]),
    (total_variation, [(2, 3, 5, 4)]),
    (complex_multiply, [(3, 5, 2), (3, 5, 2)]),
    (embed, [(11, (2, 5)), (11, 6), (8, 6)]),
    (padded_embed, [(4, (3, 5)), (4, 6)]),
    (token_loss, [(4, 9), (9, (4,))]),
    (distillation, [(4, 9), (4, 9)]),
    (norm_act, [(2, 8, 3, 5), (8,), (8,)]),
    (moving_average, [(2, 3, 9)]),
    (split_heads, [(2, 3, 48)]),
    (unit_length, [(2, 3, 5)]),
    (dice, [(2, 3, 5), (3, (2, 5))]),
    (stem, [(2, 3, 7, 10), (3,), (3,)]),
    (pixel_shuffle, [(2, 8, 4, 6)]),
    (windows, [(2, 8, 4, 3)]),
    (quarters, [(3, 20)]),
    (three_heads, [(2, 5, 18)]),
    (causal_scores, [(2, 3, 5, 5)]),
    (next_token_loss, [(2, 5, 7), (7, (2, 5))]),
    (squeeze_excite, [(2, 3, 4, 5), (2, 3, 1, 1), (1, 3, 1, 1)]),
    (masked_scores, [(2, 3, 4, 5), (2, 1, 4, 5), (9, (1, 1, 6, 7))]),
    (with_positions, [(2, 5, 4), (1, 9, 4), (7, 4)]),
    (repeat_kv, [(2, 3, 5, 4), (4,)]),
    (upsample, [(2, 3, 4, 5)]),
    (unpatchify, [(2, 3, 8, 12), (3,)]),
    (causal_conv, [(2, 3, 7), (3, 4), (3,)]),
    (timestep_embedding, [(5,)]),
    (ternary, [(4, 6)]),
    (in_order, [(4, 6), (6, (4, 6)), (4, (4,))]),
]
