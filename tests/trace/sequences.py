"""Functions with scans, selections and sums by number, as people write them; `test_sequences.py` decorates them."""

# ruff: noqa: F821
import torch
import torch.nn.functional as F


def returns_to_go(r: "T[..., S]"):
    return r.flip(-1).cumsum(-1).flip(-1)


def returns_in_steps(r: "T[..., S]"):
    back = torch.flip(r, dims=(-1,))
    summed = torch.cumsum(back, dim=-1)
    return summed.flip(-1)


def running_mean(x: "T[B, S, C]"):
    steps = torch.arange(x.shape[1]) + 1
    return x.cumsum(dim=1) / steps[:, None]


def drawdown(x: "T[..., S]"):
    peak, at = torch.cummax(x, dim=-1)
    return (peak - x) * (at >= 0)


def peaks(x: "T[..., S]"):
    values, indices = torch.cummax(x, -1)
    return values, indices


def three_least(x: "T[..., N]"):
    values, places = torch.topk(x, 3, largest=False)
    return values, places


def log_survival(x: "T[..., S]"):
    return torch.logcumsumexp(x, -1) + torch.cumprod(torch.sigmoid(x), -1) + x.cummin(-1).values


def top_k_logits(logits: "T[..., V]"):
    v, _ = torch.topk(logits, 3)
    return torch.where(logits < v[..., -1, None], torch.full_like(logits, -10.0), logits)


def top_k_filled(logits: "T[B, V]"):
    values, indices = logits.topk(4, dim=-1)
    kept = values[:, -1:]
    return logits.masked_fill(logits < kept, -1.0)


def experts(logits: "T[B, E]"):
    weights, chosen = torch.topk(logits.softmax(-1), 2, dim=-1)
    weights = weights / weights.sum(-1, keepdim=True)
    return weights * (chosen + 1)


def trimmed(x: "T[..., N]"):
    low, high = x.kthvalue(2, dim=-1, keepdim=True).values, x.topk(2).values[..., -1:]
    return x.clamp(min=low, max=high)


def scatter_messages(h: "T[V, D]", src: "i64[E]", dst: "i64[E]"):
    messages = h[src]
    out = torch.zeros_like(h)
    out.index_add_(0, dst, messages)
    return h + out


def degrees(h: "T[V, D]", dst: "i64[E]", m: "T[E, D]"):
    total = h.new_zeros(h.shape).scatter_add(0, dst[:, None].expand_as(m), m)
    count = torch.bincount(dst, minlength=h.shape[0]).clamp(min=1)
    return total / count[:, None] + h


def scatter_greatest(h: "T[V, D]", dst: "i64[E]", m: "T[E, D]"):
    return h.scatter_reduce(0, dst.unsqueeze(-1).expand(-1, m.shape[1]), m, reduce="amax")


def bags(ids: "i64[B, L]", table: "T[V, D]", w: "T[B, L]"):
    return F.embedding_bag(ids, table, mode="sum", per_sample_weights=w), F.embedding_bag(ids, table)


def tokens(x: "T[..., N]", w: "T[N]"):
    shape = x.shape
    rows = x.reshape(-1, shape[-1])
    rows = rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6) * w
    return rows.view(shape)


def series(x: "T[...]"):
    y = torch.zeros_like(x)
    for k in range(1, 6, 2):
        sign = -1 if k == 3 else 1
        y += sign * x**k / k
    return y


def weighted_parts(x: "T[..., N]"):
    total = 0.0
    for k, part in enumerate(x.chunk(3, dim=-1)):
        total = total + part * (k + 1)
    return total


def padded(u: "T[..., H, W]"):
    p = F.pad(u, (1, 1, 0, 0), mode="reflect")
    return p[..., :-2] + 2 * u + p[..., 2:]


def hinge(x: "T[B, N]"):
    return F.hinge_embedding_loss(x, x.detach().sign(), margin=0.5)


def instances(x: "T[B, C, S, W]", w: "T[C]", b: "T[C]"):
    spread, mean = torch.var_mean(x, dim=-1)
    return F.instance_norm(x, weight=w, bias=b), spread + mean


#: Each function with the shapes of its tensors (a number: integers below it).
CASES = [
    (returns_to_go, [(2, 3, 7)]),
    (returns_in_steps, [(2, 7)]),
    (running_mean, [(2, 7, 3)]),
    (drawdown, [(2, 9)]),
    (log_survival, [(2, 6)]),
    (top_k_logits, [(2, 3, 9)]),
    (top_k_filled, [(3, 11)]),
    (experts, [(4, 8)]),
    (trimmed, [(2, 3, 9)]),
    (scatter_messages, [(5, 3), (5, (8,)), (5, (8,))]),
    (degrees, [(5, 3), (5, (8,)), (8, 3)]),
    (scatter_greatest, [(5, 3), (5, (8,)), (8, 3)]),
    (bags, [(5, (2, 3)), (5, 4), (2, 3)]),
    (tokens, [(2, 3, 8), (8,)]),
    (series, [(3, 5)]),
    (weighted_parts, [(2, 3, 12)]),
    (padded, [(2, 3, 6)]),
    (hinge, [(3, 5)]),
    (instances, [(2, 3, 4, 5), (3,), (3,)]),
]
