"""Kernels that reduce segments and ranges, with what they come to in f64: for every target's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch


class Case(NamedTuple):
    """A kernel's text, what draws its arguments for sizes and a dtype, and what they come to, exactly."""

    text: str
    draw: Callable[[int, int, int, torch.dtype], tuple[Any, ...]]
    exact: Callable[..., tuple[torch.Tensor, ...]]


def ids(s: int, v: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Keys in no order, some of them outside."""
    return torch.randint(-2, v + 2, (s,)).to(dtype)


def mask(keys: torch.Tensor, v: int) -> torch.Tensor:
    """Which position has which key: [V, S]."""
    return keys.long() == torch.arange(v)[:, None]


def added(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """The sum of the rows of x that are selected, of each selection."""
    return torch.stack([x.double()[row].sum(0) for row in where]) if len(where) else x.double()[:0]


def offsets(s: int, b: int) -> torch.Tensor:
    """The edges of b rows in s, some of them empty."""
    inner = torch.randint(0, s + 1, (b - 1,)).sort().values if b > 1 else torch.empty(0, dtype=torch.int64)
    return torch.cat([torch.zeros(1, dtype=torch.int64), inner, torch.tensor([s])])


def between(edges: torch.Tensor, s: int) -> torch.Tensor:
    """Which position lies between which edges: [B, S]."""
    at = torch.arange(s)
    return (edges[:-1, None] <= at) & (at < edges[1:, None])


BY_INDEX = """
by_index(x: T[S, D], ids: i64[S], like: i8[V]) -> y: T[V, D]

y = sum[S](x if ids == index[V] else 0)
"""

MEANS = """
means(x: T[S, D], ids: i32[S], like: i8[V]) -> (y: T[V, D], n: i64[V], top: T[V, D])

here = ids == index[V]
n    = sum[S](here)
y    = sum[S](x if here else 0) / max(n, 1)
top  = max[S](x if here else -inf)
"""

LOOKUP = """
lookup_backward(dy: T[S, D], w: T[V, D], ids: i64[S]) -> dw: T[V, D]

dw = sum[S](dy if index[V] == ids else 0)
"""

RANGES = """
ranges(x: T[S, D], edges: i64[E], like: i8[B]) -> (y: T[B, D], low: T[B, D], n: i64[B])

lo  = edges[E = index[B] else 0]
hi  = edges[E = index[B] + 1 else 0]
own = lo <= index[S] and index[S] < hi
y   = sum[S](x if own else 0)
low = min[S](x if index[S] >= lo and index[S] <= hi - 1 else inf)
n   = sum[S](own)
"""

TERMS = """
terms(x: T[S, D], weight: T[S], ids: i64[S], keep: bool[S], like: i8[V]) -> (y: T[V, D], z: T[S, D])

y = sum[S](x * weight if ids == index[V] and keep else 0)
z = x - y[V = ids]
"""

#: Keys of several dims: leading ones among them, turned round, beside weights of one of them alone, and counted.
SEVERAL = """
several(x: T[S, D, R], ids: i64[R, S], weight: T[S], like: i8[V]) -> (y: T[V, D], n: i64[V], top: T[V, D])

here = ids == index[V]
y    = sum[R, S](x * weight if here else 0)
n    = sum[R, S](here)
top  = max[S, R](x if here and index[R] < S else -inf)
"""

LEADING = """
leading(dy: T[..., D], w: T[V, D], ids: i64[...]) -> dw: T[V, D]

dw = sum[...](dy if index[V] == ids else 0)
"""

#: The ranges that a position lies in: in order, in none, some of them over others.
AROUND = """
around(dy: T[B, D], begin: i64[B], end: i64[B], like: i8[S]) -> dx: T[S, D]

dx = sum[B](dy if begin <= index[S] and index[S] < end else 0)
"""

#: What a choice by key has in common with a value of each key, where nothing is chosen too.
TIES = """
ties(x: T[S, D], ids: i64[S], top: T[V, D]) -> n: i64[V, D]

n = sum[S]((x if ids == index[V] else -inf) == top)
"""


#: What ranges have in common with a value of each, and what follows for each position from the ranges that it lies in.
RANGED_TIES = """
ranged_ties(x: T[S, D], begin: i64[B], end: i64[B], top: T[B, D], dy: T[B, D]) -> (n: i64[B, D], dx: T[S, D])

own  = begin <= index[S] and index[S] < end
same = (x if own else -inf) == top
n    = sum[S](same)
dx   = sum[B]((dy if same else dy - 3) if own else 0)
"""


def _lowest(x: torch.Tensor, where: torch.Tensor, greatest: bool) -> torch.Tensor:
    empty = -torch.inf if greatest else torch.inf
    found = [(x[row].amax(0) if greatest else x[row].amin(0)) if row.any() else torch.full(x.shape[1:], empty) for row in where]
    return torch.stack(found).double() if found else x.double()[:0]


def _terms(x: torch.Tensor, weight: torch.Tensor, keys: torch.Tensor, keep: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = added(x.double() * weight.double()[:, None], mask(keys, len(like)) & keep)
    inside = (keys >= 0) & (keys < len(like))
    picked = torch.full(x.shape, torch.nan, dtype=torch.float64)
    picked[inside] = y[keys[inside]]
    return y, x.double() - picked


def _means(x: torch.Tensor, keys: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    where = mask(keys, len(like))
    return added(x, where) / where.sum(1).clamp(min=1)[:, None], where.sum(1), _lowest(x, where, True)


def _ranges(x: torch.Tensor, edges: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    where = between(edges, len(x))
    return added(x, where), _lowest(x, where, False), where.sum(1)


def _several(x: torch.Tensor, keys: torch.Tensor, weight: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    s, d, r = x.shape
    rows, where = x.permute(2, 0, 1).reshape(r * s, d), mask(keys.reshape(-1), len(like))
    fits = where & (torch.arange(r) < s).repeat_interleave(s)
    return added(rows.double() * weight.double().repeat(r)[:, None], where), where.sum(1), _lowest(rows, fits, True)


def _edges(s: int, b: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where ranges begin and end: one behind another, or anywhere."""
    if torch.rand(()) < 0.5:
        edges = offsets(s, b)
        return edges[:-1], edges[1:]
    return torch.randint(-2, s + 2, (b,)), torch.randint(-2, s + 2, (b,))


def _around(dy: torch.Tensor, begin: torch.Tensor, end: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    at = torch.arange(len(like))[:, None]
    return (((begin <= at) & (at < end)).double() @ dy.double(),)


def _levels(*shape: int) -> torch.Tensor:
    return torch.tensor([-torch.inf, 0.0, 1.0])[torch.randint(0, 3, shape)]


def _ties(x: torch.Tensor, keys: torch.Tensor, top: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = [(x[row] == t).sum(0) + (t == -torch.inf) * (~row).sum() for row, t in zip(mask(keys, len(top)), top, strict=True)]
    return (torch.stack(rows) if rows else torch.empty(top.shape, dtype=torch.int64),)


def _ranged_ties(x: torch.Tensor, begin: torch.Tensor, end: torch.Tensor, top: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
    at = torch.arange(len(x))[:, None]
    own = ((begin <= at) & (at < end))[:, :, None]  # S, B, D
    same = torch.where(own, x[:, None], -torch.inf) == top
    return same.sum(0), torch.where(own, dy.double() - 3 * ~same, 0.0).sum(1)


def _like(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int8)


CASES = {
    "by_index": Case(
        BY_INDEX,
        lambda s, d, v, t: (torch.randn(s, d).to(t), ids(s, v), _like(v)),
        lambda x, k, like: (added(x, mask(k, len(like))),),
    ),
    "means": Case(MEANS, lambda s, d, v, t: (torch.randn(s, d).to(t), ids(s, v, torch.int32), _like(v)), _means),
    "lookup": Case(
        LOOKUP,
        lambda s, d, v, t: (torch.randn(s, d).to(t), torch.randn(v, d).to(t), ids(s, v)),
        lambda dy, w, k: (added(dy, mask(k, len(w))),),
    ),
    "ranges": Case(RANGES, lambda s, d, v, t: (torch.randn(s, d).to(t), offsets(s, v), _like(v)), _ranges),
    "terms": Case(
        TERMS,
        lambda s, d, v, t: (torch.randn(s, d).to(t), torch.randn(s).to(t), ids(s, v), torch.rand(s) < 0.7, _like(v)),
        _terms,
    ),
    "several": Case(
        SEVERAL,
        lambda s, d, v, t: (torch.randn(s, d, 3).to(t), ids(3 * s, v).view(3, s), torch.randn(s).to(t), _like(v)),
        _several,
    ),
    "leading": Case(
        LEADING,
        lambda s, d, v, t: (torch.randn(2, s, 1, d).to(t), torch.randn(v, d).to(t), ids(2 * s, v).view(s, 2, 1).transpose(0, 1)),
        lambda dy, w, k: (added(dy.reshape(-1, dy.shape[-1]), mask(k.reshape(-1), len(w))),),
    ),
    "around": Case(AROUND, lambda s, d, v, t: (torch.randn(v, d).to(t), *_edges(s, v), _like(s)), _around),
    "ranged_ties": Case(
        RANGED_TIES,
        lambda s, d, v, t: (_levels(s, d).to(t), *_edges(s, v), _levels(v, d).to(t), torch.randn(v, d).to(t)),
        _ranged_ties,
    ),
    "ties": Case(TIES, lambda s, d, v, t: (_levels(s, d).to(t), ids(s, v), _levels(v, d).to(t)), _ties),
}

#: (S, D, V): few and many keys, more keys than positions, none, one long segment, several blocks of terms.
SIZES = ((20, 5, 7), (3, 4, 40), (1, 1, 1), (1000, 3, 2), (5000, 1, 1), (64, 33, 5))


def drawn(name: str, dtype: torch.dtype, sizes: tuple[tuple[int, int, int], ...] = SIZES) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Arguments of a case with what they come to."""
    case = CASES[name]
    for k, (s, d, v) in enumerate(sizes):
        torch.manual_seed(k)
        arguments = case.draw(s, d, v, dtype)
        yield arguments, case.exact(*arguments)


def close(got: Any, want: tuple[torch.Tensor, ...], arguments: tuple[Any, ...]) -> None:
    """Results within what the rounding of a dtype and of a tree of additions allows."""
    results = got if isinstance(got, tuple) else (got,)
    s = max([arguments[0].shape[0], *(a.numel() for a in arguments if a.dtype == torch.int64)])  # terms: keys may have several dims
    for result, exact in zip(results, want, strict=True):
        assert result.shape == exact.shape
        unit = torch.finfo(result.dtype).eps if result.is_floating_point() else 0.0
        tolerance = 4 * unit * (1 + exact.nan_to_num(posinf=0, neginf=0).abs()) + (2.0**-20 if result.dtype != torch.float64 else 2.0**-48) * s
        same = (result.double() == exact.double()) | (result.isnan() & exact.isnan())
        off = (result.double() - exact.double()).abs()
        assert bool((same | (off <= tolerance)).all()), (result, exact)


__all__ = ["CASES", "Case", "close", "drawn"]
