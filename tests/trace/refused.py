# ruff: noqa
# fmt: off
"""Functions that cannot be kernels; `refused.txt` has what each is told."""

import math
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

CASES = []
WEIGHT = torch.ones(3)
GELU = torch.nn.GELU()
STEPS = [0]


def case(function):
    CASES.append(function)
    return function


@case
def if_on_a_tensor(x: "T[...]"):
    if x > 0:
        return x
    return -x


@case
def if_on_a_number(x: "T[...]", eps: float = 1e-5):
    if eps > 0:
        x = x + eps
    return x


@case
def while_loop(x: "T[...]"):
    while x.sum() > 1:
        x = x / 2
    return x


@case
def for_loop(x: "T[...]", n: int):
    for _ in range(n):
        x = x * x
    for k in range(100):
        x = x + k
    for row in x:
        x = x + row
    for k in range(3):
        if k == 2:
            break
    return x


@case
def assertion(x: "T[..., N]"):
    assert x.shape[-1] > 2
    return x * 2


@case
def item(x: "T[...]"):
    return x * x.max().item()


@case
def bool_of(x: "T[...]"):
    return x * float(x)


@case
def printing(x: "T[...]"):
    print(x)
    return x * 2


@case
def closes_over_a_tensor(x: "T[..., N]"):
    return x * WEIGHT


@case
def a_module(x: "T[...]"):
    return GELU(x)


@case
def writes_a_global(x: "T[...]"):
    global COUNT
    COUNT = 1
    return x * 2


@case
def writes_an_element(x: "T[...]"):
    STEPS[0] = 1
    x[0] = 2
    return x * 2


@case
def in_place_method(p: "T[...]", g: "T[...]"):
    p.add_(g, alpha=-0.1)
    h = g * 2
    return h + h.mul_(3) + p


@case
def in_place_operator(p: "T[...]", g: "T[...]"):
    p -= 0.1 * g
    return p


@case
def in_place_alias(x: "T[...]"):
    h = x * 2
    k = h
    k += 1
    return h, k


@case
def unknown_torch(x: "T[..., N]"):
    return torch.argsort(x, -1)


@case
def unknown_numpy(x: "T[...]"):
    return np.exp(x)


@case
def unknown_method(x: "T[..., N]"):
    return x.view(-1) + x.softmx(-1)


@case
def unknown_keyword(x: "T[..., N]"):
    return F.gelu(x, approximate="sigmoid") + F.dropout(x, p=0.5)


@case
def a_lambda(x: "T[...]"):
    act = lambda z: z * 2
    return act(x)


@case
def comprehension(x: "T[...]"):
    return sum([v * 2 for v in x]) + sum(k * j for k in range(2) for j in range(3))


@case
def partials(x: "T[...]"):
    return STEP(x)


STEP = partial(F.leaky_relu, negative_slope=0.1)


@case
def stars(x: "T[...]", *rest):
    return torch.add(*rest)


@case
def no_type(x, w: torch.Tensor, flag: bool = True):
    return x * w


@case
def method(self, x: "T[...]"):
    return x * 2


@case
def wrong_type(x: "T[..., n]", w: "float[N]", v: "T[N"):
    return x * w * v


@case
def no_return(x: "T[...]"):
    y = x * 2


@case
def lost_dim(x: "T[..., N]"):
    return x - x.mean(-1)


@case
def aligned_otherwise(x: "T[B, C, S]", w: "T[C]"):
    return F.silu(x) * w


@case
def leading_dim(x: "T[..., N]"):
    return x.mean(0) + x.sum(-2) + x.sum(3)


@case
def of_leading_dims(x: "T[...]", y: "T[...]"):
    return x.sum() * y


@case
def declared_otherwise(x: "T[M, N]") -> "y: T[N, M]":
    return torch.exp(x)


@case
def promoted_otherwise(x: "T[N]", w: "f32[N]"):
    return x * w.sum(-1, keepdim=True)


@case
def reduces_what_is_not_there(x: "T[..., N]", w: "T[K]"):
    # µ stands before the caret: é, 漢字
    m = mean["N"](w); é = "漢字"; n = mean["K"](x)
    return x * m + n


@case
def bad_dtype(x: "T[..., N]") -> "y: i8[..., N]":
    scaled = (x *
              127)
    return scaled


@case
def undefined(x: "T[...]"):
    return exq(x) * scale + torch.exq(x)


@case
def power(x: "T[...]"):
    return x ^ 2


@case
def product(a: "T[M, K]", b: "T[K, N]"):
    return a @ b


@case
def math_on_a_tensor(x: "T[...]"):
    return math.exp(x)


def recursive_helper(z):
    return recursive_helper(z) * 2


@case
def recursion(x: "T[...]"):
    return recursive_helper(x)


def loops(z):
    for k in range(300):
        z = z * k
    return z


@case
def helper_with_a_loop(x: "T[...]"):
    return loops(x) + 1


@case
def unused(x: "T[...]", w: "T[...]"):
    h = x * 3
    return x * 2


@case
def results_do_not_fit(x: "T[...]") -> "(y: T[...], z: T[...])":
    return x * 2


@case
def not_as_torch_has_it(x: "T[..., N]", t: "i64[...]"):
    a = F.cross_entropy(x, t)
    b = x.softmax(dim=None)
    c = x.sum(-1, -2)
    d = F.normalize(x)
    e = torch.exp(x[:, None])
    return a, b, c, d, e, x * 2**63


@case
def several_errors(x: "T[..., N]", w: "T[N]"):
    a = x.topk(3)
    b = a + foo(x)
    c = x.flip(0)
    return b + c + w


@case
def sizes_without_a_name(x: "T[..., N]", w: "T[..., N]"):
    a = F.pad(x, (1, 1))
    b = x[..., 3:] + w[..., :-3]
    c = x[..., :5]
    d = torch.cat((x, w, x[..., :-1]), dim=-1)
    return a * 2, b, c, d


@case
def parts_that_may_not_be_there(x: "T[..., N]", y: "T[M, N]"):
    a = x[..., 3] + x.unbind(-1)[0]
    b = y.split(64, dim=-1)
    c = y.view(-1, 3, 5)
    return a, b, c


@case
def rolled_halves(x: "T[..., N]"):
    a, b = x.chunk(2, dim=-1)
    return torch.roll(x, 1, dims=-1)


@case
def looked_up_wrongly(x: "T[M, N]", ids: "i64[M]", mask: "bool[M]", f: "f32[K]"):
    return x[ids] + x[mask] + x[f] + x.gather(1, ids)


@case
def not_read_yet(x: "T[M, N]", ids: "i64[M, N]"):
    a = torch.sort(x, dim=-1)
    b = torch.zeros_like(x).scatter_add(1, ids, x)
    c = x.scatter(1, ids, x)
    return a, b, c


@case
def along_a_dim_wrongly(x: "T[M, N]", k: int, n: "i64[M]", u: "T[B, C]", f: "T[..., P]"):
    a = x.topk(k).values
    b = x.topk(k, dim=0)[0][..., -1]
    c = x.topk(n).values
    d = x.topk(2.5)
    e = u.chunk(2, -1)[0] + u.cumsum(-1)
    g = n.logcumsumexp(0)
    h = x[:, 1:].kthvalue(2).values
    i = f.view(-1, f.shape[-1]).cumsum(0)
    return a, b, c, d, e, g, h, i


@case
def sums_by_number_wrongly(x: "T[M, N]", w: "T[V, N]", ids: "i64[M]", f: "f32[M, N]", s: "f32[M]"):
    a = torch.bincount(ids)
    b = torch.bincount(s, minlength=5)
    c = w.index_add(0, ids, f)
    d = w.index_add(1, ids, x)
    e = w.index_add(0, s, x)
    g = w.index_add_(0, ids, x)
    h = w.scatter_add(0, ids, x)
    i = x.index_add(0, ids, x)
    j = w.scatter_reduce(0, ids[:, None].expand_as(x), x, "mean")
    k = torch.zeros(3).index_add(0, ids, s).sum() * torch.nan_to_num(x)
    z = w.new_zeros(w.shape)
    y = z.index_add_(0, ids, x)
    return a, b, c, d, e, g, h, i, j, k, y


@case
def leading_dims_joined(x: "T[..., N]", y: "T[..., N]"):
    return x.view(-1, x.shape[-1]), x.view(-1, x.shape[-1]) + y


@case
def parts_of_a_dim_where_all_of_it_is_meant(x: "T[M, N]", c: "T[B, C, N]", t: "i64[M]"):
    a = sum["N"](x[..., 1:])
    b = x[..., 1:] * max["M"](x)
    d = F.group_norm(c[..., 1:], 2)
    e = F.cross_entropy(x[:, 1:], t)
    f = x[:, 1:].numel() * x.softmax(-1)
    g = x[:, 1:].softmax(-1)
    return a, b, d, e, f, g


@case
def mask_of_leading_dims(x: "T[..., N]"):
    return x[x > 0].sum()


@case
def dim_by_name(x: "T[..., N]"):
    return x.sum(dim="N")


@case
def misspelt_function(x: "T[..., N]"):
    return torch.sigmod(x)


@case
def counted_by_twos(x: "T[..., N]"):
    return x * torch.arange(0, x.shape[-1], 2)


@case
def loop_along_a_dim(x: "T[B, S]", a: float):
    h = x[:, 0]
    for t in range(x.shape[1]):
        h = a * h + x[:, t]
    return h


@case
def numbers_of_a_dtype(x: "T[..., N]"):
    return torch.where(x > 0, x, torch.finfo(x.dtype).min)


@case
def one_of_many(t: "i64[B]", x: "T[B, V]"):
    return x * F.one_hot(t, 10)


@case
def dim_as_a_parameter(x: "T[..., N]", dim=-1):
    return x.softmax(dim)


@case
def without_a_gradient(x: "T[..., N]"):
    with torch.no_grad():
        q = x.round()
    return x + (q - x)


@case
def chosen_by_and(x: "T[N]", k: int):
    return x * (k > 0 and 3)


@case
def chosen_by_a_number(x: "T[N]", c: float):
    return x * (c and True)


@case
def counted_bools(x: "T[N]", k: int):
    return x * ((k > 0) + (k > 1))


@case
def inverted_bool(x: "T[N]", k: int):
    return x * ~(k > 0)


@case
def a_length(x: "T[B, N]"):
    return len(x) * x


@case
def inverted_mask(x: "T[N]", mask: "bool[N]"):
    return x * (1 - mask)


@case
def unknown_beside_a_constant(x: "T[N]", k: int):
    return x * (k.nothing > 0 and True)
