"""Operators of torch's that the tracer has no row for, written in what it has: torch's other names, and kgen's own words.

Each is a plain function, traced in its turn by the kernel that the adapter writes around it; the parameters are the operator's.
Beside those the adapter fills `rank` (dims of the first tensor), `floating` and `boolean` (what the operands' dtype is), `largest`
(the dtype's greatest number), `length` (of a tuple) and `classes` (whether targets are), which are known before a kernel is made.  Names in capitals are the adapter's dims:
D1 is the last one, D2 the one before; other rows say theirs in the table.
"""

# ruff: noqa: F821
# mypy: ignore-errors

import math

import torch
import torch.nn.functional as F

# ------------------------------------------------------------------------------------------------ one operand


def copy(x):
    return x.clone()


def sinc(x):
    return torch.where(x == 0, 1.0, torch.sin(math.pi * x) / (math.pi * x))


def deg2rad(x):
    return x * (math.pi / 180)


def rad2deg(x):
    return x * (180 / math.pi)


def nan_to_num(x, nan=None, posinf=None, neginf=None, floating=True, largest=0.0):
    if not floating:
        return x.clone()
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    other = 0.0 if nan is None else nan
    return torch.where(torch.isnan(x), other, torch.where(x == math.inf, high, torch.where(x == -math.inf, low, x)))


def angle(x):
    return torch.where(torch.isnan(x), math.nan, torch.where(x < 0, math.pi, torch.zeros_like(x)))


def isposinf(x):
    return x == math.inf


def isneginf(x):
    return x == -math.inf


def isreal(x):
    return (x == x) | (x != x)


def round_decimals(x, decimals=0):
    if decimals == 0:
        return torch.round(x)
    if decimals > 0:
        return torch.round(x * 10.0**decimals) / 10.0**decimals
    return torch.round(x / 10.0**-decimals) * 10.0**-decimals


def logit(x, eps=None):
    z = x if eps is None else torch.clamp(x, eps, 1 - eps)
    return torch.log(z / (1 - z))


def mvlgamma(x, p):
    y = torch.lgamma(x) + math.log(math.pi) * p * (p - 1) / 4
    if p >= 2:
        y = y + torch.lgamma(x - 0.5)
    if p >= 3:
        y = y + torch.lgamma(x - 1.0)
    if p >= 4:
        y = y + torch.lgamma(x - 1.5)
    if p >= 5:
        y = y + torch.lgamma(x - 2.0)
    return y


def polygamma(x, n):
    return torch.digamma(x) if n == 0 else None


def ndtr(x):
    return 0.5 * torch.erfc(-x * math.sqrt(0.5))


def ndtri(x):
    return math.sqrt(2) * torch.erfinv(2 * x - 1)


def entr(x):
    return torch.where(torch.isnan(x), math.nan, torch.where(x > 0, -x * torch.log(x), torch.where(x == 0, torch.zeros_like(x), -math.inf)))


def rrelu(x, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    return F.leaky_relu(x, (lower + upper) / 2)


def softplus(x, beta=1.0, threshold=20.0):
    return torch.where(beta * x > threshold, x, F.softplus(beta * x) / beta)


def to_bfloat16(x):
    return x.bfloat16()


def to_bool(x):
    return x.bool()


def to_byte(x):
    return x.byte()


def to_char(x):
    return x.char()


def to_double(x):
    return x.double()


def to_float(x):
    return x.float()


def to_half(x):
    return x.half()


def to_int(x):
    return x.int()


def to_long(x):
    return x.long()


def to_short(x):
    return x.short()


def to(x, dtype):
    return x.to(dtype)


def fill(x, value):
    return torch.full_like(x, value)


def zeros(x):
    return torch.zeros_like(x)


# ------------------------------------------------------------------------------------------------ two operands and more


def divide(x, other, rounding_mode=None, floating=True):
    if floating:
        return torch.trunc(x / other)
    q = torch.abs(x) // torch.abs(other)
    return torch.where((x < 0) != (other < 0), -q, q)


def fmod(x, other):
    return torch.where(x < 0, -((-x) % torch.abs(other)), x % torch.abs(other))


def fmax(x, other):
    return torch.where((x >= other) | torch.isnan(other), x, other)


def fmin(x, other):
    return torch.where((x <= other) | torch.isnan(other), x, other)


def heaviside(x, values):
    return torch.where(x == 0, values, (x > 0).to(values.dtype))


def ldexp(x, other):
    return x * 2.0**other


def logaddexp(x, other):
    one = torch.maximum(x, other) + torch.log1p(torch.exp(-torch.abs(x - other)))
    return torch.where(torch.isinf(x) & (x == other), x, one)


def logaddexp2(x, other):
    one = torch.maximum(x, other) + torch.log1p(torch.exp2(-torch.abs(x - other))) / math.log(2)
    return torch.where(torch.isinf(x) & (x == other), x, one)


def logical_xor(x, other):
    return (x != 0) != (other != 0)


def logical_and(x, other):
    return (x != 0) & (other != 0)


def logical_or(x, other):
    return (x != 0) | (other != 0)


def logical_not(x):
    return x == 0


def bitwise_xor(x, other, boolean=False):
    if boolean:
        return x != other
    return (x | other) & ~(x & other)


def isclose(x, other, rtol=1e-05, atol=1e-08, equal_nan=False, boolean=False):
    if boolean:
        return x == other
    same = x == other
    if equal_nan:
        same = same | (torch.isnan(x) & torch.isnan(other))
    apart = torch.abs(x - other)
    return same | (torch.isfinite(apart) & (apart <= atol + torch.abs(rtol * other)))


def float_power(x, exponent):
    return f64(x) ** f64(exponent)


def xlog1py(x, other):
    return torch.where(torch.isnan(other), math.nan, torch.where(x == 0, 0.0, x * torch.log1p(other)))


def rsub(x, other, alpha=None):
    return other - x if alpha is None else other - alpha * x


def radd(x, other):
    return other + x


def rmul(x, other):
    return other * x


def rdiv(x, other):
    return other / x


def rmod(x, other):
    return other % x


def rpow(x, other):
    return other**x


def rand(x, other):
    return other & x


def ror(x, other):
    return other | x


def where_method(x, condition, other):
    return torch.where(condition, x, other)


def prelu(x, weight):
    return where(x > 0, x, weight * x)


def dropout_backward(grad, mask, scale):
    return grad * mask * scale


# ------------------------------------------------------------------------------------------------ over dims


def count(x, dim):
    """How many elements one of the result is made of, in the dtype that x is computed in."""
    return torch.where(isreal(x), torch.ones_like(x), 1.0).sum(dim)


def variance(x, dim, unbiased, correction):
    """In the dtype computed in, to be rounded once."""
    c = x - x.mean(dim, keepdim=True)
    return (c * c).sum(dim) / torch.clamp_min(count(x, dim) - freedom(unbiased, correction), 0)


def var(x, dim=None, unbiased=None, correction=1.0):
    return variance(x, dim, unbiased, correction).to(x.dtype)


def freedom(unbiased, correction):
    if unbiased is not None:
        return 1 if unbiased else 0
    return 1 if correction is None else correction


def std(x, dim=None, unbiased=None, correction=1.0):
    v = variance(x, dim, unbiased, correction)
    return torch.where(v > 0, torch.sqrt(v), v).to(x.dtype)


def var_mean(x, dim=None, unbiased=None, correction=1.0):
    return var(x, dim, unbiased, correction), x.mean(dim)


def std_mean(x, dim=None, unbiased=None, correction=1.0):
    return std(x, dim, unbiased, correction), x.mean(dim)


def var_unbiased(x, unbiased):
    return var(x, None, unbiased)


def std_unbiased(x, unbiased):
    return std(x, None, unbiased)


def var_mean_unbiased(x, unbiased):
    return var(x, None, unbiased), x.mean()


def std_mean_unbiased(x, unbiased):
    return std(x, None, unbiased), x.mean()


def nanmean(x, dim=None, dtype=None):
    z = x if dtype is None else x.to(dtype)
    return z.nansum(dim) / (z == z).sum(dim)


def aminmax(x, dim=None):
    return x.amin(dim), x.amax(dim)


def mean_of_integers(x, dim=None, dtype=None):
    return x.to(dtype).mean(dim)


def vector_norm(x, ord=2, dim=None, dtype=None):
    """A norm of vectors; torch's gradients of |x|^p where x is 0 are 0."""
    z = x if dtype is None else x.to(dtype)
    if ord == 2:
        return torch.linalg.vector_norm(z, 2, dim)
    if ord == 1:
        return torch.abs(z).sum(dim)
    if ord == 0:
        return (z != 0).to(z.dtype).sum(dim)
    if ord == math.inf:
        return torch.abs(z).amax(dim)
    if ord == -math.inf:
        return torch.abs(z).amin(dim)
    s = torch.where(z == 0, 0.0 if ord > 0 else math.inf, torch.abs(z) ** ord).sum(dim)
    return torch.where(s == 0, 0.0 if ord > 0 else math.inf, s ** (1 / ord))


def norm(x, p=2, dim=None, dtype=None):
    return vector_norm(x, 2 if p == "fro" else p, dim, dtype)


def linalg_norm(x, ord=None, dim=None, dtype=None):
    return vector_norm(x, 2 if ord is None or ord == "fro" else ord, dim, dtype)


def dist(x, other, p=2):
    return vector_norm(x - other, p)


def pairwise_distance(x1, x2, p=2.0, eps=1e-06):
    return vector_norm(x1 - x2 + eps, p, -1)


def normalize(x, p=2.0, dim=1, eps=1e-12):
    if p == 0:
        return x / torch.clamp_min((x != 0).sum(dim, keepdim=True), eps).to(x.dtype)
    z = torch.where(x == 0, 0.0, torch.abs(x) ** p).sum(dim, keepdim=True)
    return x / torch.clamp_min(torch.where(z == 0, 0.0, z ** (1 / p)), eps)


def softmax_backward(grad, y, dim, dtype):
    return ((grad - (grad * y).sum(dim, keepdim=True)) * y).to(dtype)


def safe_softmax(x, dim, dtype=None):
    z = x if dtype is None else x.to(dtype)
    return torch.where((z == -math.inf).all(dim, keepdim=True), 0.0, z.softmax(dim))


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-05, length=1):
    if length == 1:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
    if length == 2:
        return F.layer_norm(x, x.shape[-2:], weight, bias, eps)
    return F.layer_norm(x, x.shape[-3:], weight, bias, eps)


def trailing(n):
    if n == 1:
        return (-1,)
    if n == 2:
        return (-2, -1)
    return (-3, -2, -1)


def native_layer_norm(x, normalized_shape, weight, bias, eps, length=1):
    mu = x.mean(trailing(length))
    c = x - x.mean(trailing(length), keepdim=True)
    rstd = torch.rsqrt((c * c).mean(trailing(length)) + eps)
    return layer_norm(x, normalized_shape, weight, bias, eps, length), mu, rstd


def rms_norm(x, normalized_shape, weight=None, eps=None, length=1):
    if length == 1:
        return F.rms_norm(x, x.shape[-1:], weight, eps)
    if length == 2:
        return F.rms_norm(x, x.shape[-2:], weight, eps)
    return F.rms_norm(x, x.shape[-3:], weight, eps)


def over_batch(x, rank):
    """The mean over all dims but the channels, V."""
    if rank == 1:
        return x
    if rank == 2:
        return mean["B"](x)
    if rank == 3:
        return mean["B", "E1"](x)
    if rank == 4:
        return mean["B", "E1", "E2"](x)
    return mean["B", "E1", "E2", "E3"](x)


def over_space(x, rank):
    """The mean over the dims behind the channels."""
    if rank == 3:
        return mean["E1"](x)
    if rank == 4:
        return mean["E1", "E2"](x)
    return mean["E1", "E2", "E3"](x)


def batch_norm(x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05, rank=2):
    mu = over_batch(x, rank) if training else running_mean
    c = x - mu
    v = over_batch(c * c, rank) if training else running_var
    y = c * rsqrt(v + eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y


def instance_norm(x, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05, rank=3):
    c = x - over_space(x, rank) if use_input_stats else x - running_mean
    v = over_space(c * c, rank) if use_input_stats else running_var
    y = c * rsqrt(v + eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y


def trace(x):
    return sum["D2", "D1"](where(index["D2"] == index["D1"], x, 0))


def tril(x, diagonal=0, boolean=False):
    if boolean:
        return x & (index["D1"] - index["D2"] <= diagonal)
    return where(index["D1"] - index["D2"] <= diagonal, x, 0)


def triu(x, diagonal=0, boolean=False):
    if boolean:
        return x & (index["D1"] - index["D2"] >= diagonal)
    return where(index["D1"] - index["D2"] >= diagonal, x, 0)


def outer(x, y):
    return x * y


def addr(x, one, other, beta=1, alpha=1):
    added = alpha * (one * other)
    return added if beta == 0 else beta * x + added


def dot(x, y):
    return sum["N"](x * y)


def mv(x, y):
    return sum["N"](x * y)


def addmv(x, matrix, vector, beta=1, alpha=1):
    added = alpha * sum["N"](matrix * vector)
    return added if beta == 0 else beta * x + added


def vecdot(x, y, dim=-1):
    return (x * y).sum(dim)


def embedding(weight, at):
    return pick["V"](weight, at)


def picked(x, dim, at):
    return pick["V"](x, at)


def take_along(x, at, dim):
    return pick["V"](x, at)


# ------------------------------------------------------------------------------------------------ losses


def reduced(x, reduction):
    if x.ndim == 0:
        return x
    if reduction == "mean":
        return x.mean()
    if reduction == "sum":
        return x.sum()
    if reduction == "none":
        return x
    raise ValueError(reduction)


def soft_margin_loss(x, target, size_average=None, reduce=None, reduction="mean"):
    return reduced(torch.log1p(torch.exp(-target * x)), reduction)


def margin_ranking_loss(x1, x2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    return reduced(torch.clamp_min(-target * (x1 - x2) + margin, 0), reduction)


def hinge_embedding_loss(x, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    return reduced(torch.where(target != 1, torch.clamp_min(margin - x, 0), 0) + torch.where(target != -1, x, 0), reduction)


def cosine_embedding_loss(x1, x2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    eps = 1e-12
    cos = (x1 * x2).sum(-1) / torch.sqrt(((x1 * x1).sum(-1) + eps) * ((x2 * x2).sum(-1) + eps))
    return reduced(torch.where(target == 1, 1 - cos, 0) + torch.where(target == -1, torch.clamp_min(cos - margin, 0), 0), reduction)


def kl_div(x, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    loss = torch.exp(target) * (target - x) if log_target else torch.xlogy(target, target) - target * x
    if reduction == "batchmean":
        return loss.sum() / loss.shape[0]
    return reduced(loss, reduction)


def poisson_nll_loss(x, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction="mean"):
    loss = torch.exp(x) - target * x if log_input else x - target * torch.log(x + eps)
    if full:
        further = target * torch.log(target) - target + 0.5 * torch.log(2 * math.pi * target)
        loss = loss + torch.where(target > 1, further, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(x, target, var, full=False, eps=1e-06, reduction="mean"):
    v = torch.clamp_min(var if var.dim() == x.dim() else var.unsqueeze(-1), eps)
    loss = 0.5 * (torch.log(v) + (x - target) ** 2 / v)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def binary_cross_entropy(x, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    loss = -(target * torch.clamp_min(torch.log(x), -100) + (1 - target) * torch.clamp_min(torch.log1p(-x), -100))
    return reduced(loss if weight is None else loss * weight, reduction)


def bce_with_logits(x, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
    loss = F.softplus(-x)
    if pos_weight is not None:
        loss = ((pos_weight - 1) * target + 1) * loss
    loss = (1 - target) * x + loss
    return reduced(loss if weight is None else loss * weight, reduction)


def multilabel_soft_margin_loss(x, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    loss = -(target * F.logsigmoid(x) + (1 - target) * F.logsigmoid(-x))
    return reduced((loss if weight is None else loss * weight).mean(-1), reduction)


def multi_margin_loss(x, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean", rank=2):
    m = max(margin - pick["V"](x, target) + x, 0)
    loss = where(index["V"] == target, 0, m if p == 1 else m * m)
    if weight is not None:
        loss = loss * pick["V"](weight, target)
    loss = mean["V"](loss)
    if rank < 2 or reduction == "none":
        return loss
    return mean["B"](loss) if reduction == "mean" else sum["B"](loss)


def triplet(one, other, margin, reduction):
    return reduced(torch.clamp_min(one - other + margin, 0), reduction)


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, size_average=None, reduce=None, reduction="mean"
):
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = torch.minimum(far, pairwise_distance(positive, negative, p, eps))
    return triplet(near, far, margin, reduction)


def nll_loss(x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    w = 1.0 if weight is None else pick["V"](weight, target)
    loss = where(target == ignore_index, 0.0, -pick["V"](x, target) * w)
    if reduction == "mean":
        return (loss.sum() / where(target == ignore_index, 0.0, w).sum()).to(x.dtype)
    return reduced(loss, reduction)


def cross_entropy(
    x, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0, classes=True
):
    p = log_softmax["V"](x)
    if not classes:
        wanted = target * (1 - label_smoothing) + label_smoothing / V
        loss = -sum["V"](p * wanted) if weight is None else -sum["V"](p * wanted * weight)
        if reduction == "mean":
            return loss.sum() / isreal(loss).sum()
        return reduced(loss, reduction)
    w = 1.0 if weight is None else pick["V"](weight, target)
    loss = -pick["V"](p, target) * w * (1 - label_smoothing)
    if label_smoothing > 0:
        loss = loss - label_smoothing * (mean["V"](p) if weight is None else mean["V"](p * weight))
    loss = where(target == ignore_index, 0.0, loss)
    if reduction == "mean":
        return loss.sum() / where(target == ignore_index, 0.0, w).sum()
    return reduced(loss, reduction)


# ------------------------------------------------------------------------------------------------ torch.masked


def masked_sum(x, dim=None, dtype=None, mask=None):
    z = x if dtype is None else x.to(dtype)
    return (z if mask is None else torch.where(mask, z, 0)).sum(dim)


def masked_prod(x, dim=None, dtype=None, mask=None):
    z = x if dtype is None else x.to(dtype)
    return (z if mask is None else torch.where(mask, z, 1)).prod(dim)


def masked_mean(x, dim=None, dtype=None, mask=None):
    z = x if dtype is None else x.to(dtype)
    return z.mean(dim) if mask is None else torch.where(mask, z, 0).sum(dim) / torch.logical_and(mask, torch.logical_or(x == x, x != x)).sum(dim)


def masked_amax(x, dim=None, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, -math.inf)).amax(dim)


def masked_amin(x, dim=None, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, math.inf)).amin(dim)


def masked_argmax(x, dim=None, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, -math.inf)).argmax(dim).to(x.dtype)  # torch's own default


def masked_argmin(x, dim=None, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, math.inf)).argmin(dim).to(x.dtype)


def masked_logsumexp(x, dim=None, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, -math.inf)).logsumexp(dim)


def masked_softmax(x, dim, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, -math.inf)).softmax(dim)


def masked_log_softmax(x, dim, dtype=None, mask=None):
    return (x if mask is None else torch.where(mask, x, -math.inf)).log_softmax(dim)


def masked_softmin(x, dim, dtype=None, mask=None):
    return (-x if mask is None else torch.where(mask, -x, -math.inf)).softmax(dim)
