"""Kernels that reduce by keys that each row has its own of, with what torch makes of them in f64: for every target's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch


class Case(NamedTuple):
    """A kernel's text, what draws its arguments for sizes (rows, keys of a row, results of a row), and what they come to, exactly."""

    text: str
    draw: Callable[[int, int, int], tuple[Any, ...]]
    exact: Callable[..., tuple[torch.Tensor, ...]]


def keys(m: int, k: int, n: int) -> torch.Tensor:
    """Keys in no order, many of them alike in the first row, some outside."""
    found = torch.randint(-2, n + 2, (m, k))
    found[:1] = torch.where(torch.rand(1, k) < 0.7, n // 2, found[:1])
    return found


def scattered(x: torch.Tensor, i: torch.Tensor, like: torch.Tensor, how: str = "sum") -> torch.Tensor:
    """What stands beside each key, by `torch.scatter_reduce` in f64; of nothing 0, or the infinity that changes nothing."""
    nothing = {"sum": 0.0, "amax": -torch.inf, "amin": torch.inf}[how]
    inside = (i >= 0) & (i < like.shape[-1])
    made = torch.full((*like.shape[:-1], like.shape[-1] + 1), nothing, dtype=torch.float64)
    return made.scatter_reduce(-1, torch.where(inside, i, like.shape[-1]), x.double(), how)[..., :-1]


def _backward(m: int, k: int, n: int) -> tuple[Any, ...]:
    return torch.randn(m, k), torch.zeros(m, n), keys(m, k, n)


def _all(m: int, k: int, n: int) -> tuple[Any, ...]:
    return torch.randn(2, m, k), keys(2 * m, k, n).view(2, m, k).int(), torch.rand(m, k) < 0.6, torch.zeros(n, dtype=torch.int8)


def _kinds(x: torch.Tensor, i: torch.Tensor, keep: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    wide, i = like.expand(*i.shape[:-1], -1), i.long()
    kept = torch.where(keep, i, -1)
    ones = torch.ones_like(x)
    return scattered(x, i, wide, "amax"), scattered(x, i, wide, "amin"), scattered(ones, i, wide), scattered(2 * x, kept, wide)


def _apart(m: int, k: int, n: int) -> tuple[Any, ...]:
    return torch.randn(3, k, 2).transpose(0, 2), keys(m, k, n).t().contiguous(), torch.zeros(n, dtype=torch.int8)


def _each(x: torch.Tensor, i: torch.Tensor, like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    made = [scattered(x[d, :, e].expand(i.shape[1], -1), i.t(), like.expand(i.shape[1], -1)) for d in range(2) for e in range(3)]
    return (torch.stack(made, -1).view(i.shape[1], len(like), 2, 3),)


KINDS = """
kinds(x: T[..., M, K], i: i32[..., M, K], keep: bool[M, K], like: i8[N]) -> (a: T[..., M, N], b: T[..., M, N], n: i64[..., M, N], y: T[..., M, N])

own = i == index[N]
a   = max[K](x if own else -inf)
b   = min[K](x if own else inf)
n   = sum[K](own)
y   = sum[K](2 * x if keep and own else 0)
"""

CASES = {
    "backward": Case(
        "back(dy: T[M, K], x: T[M, N], i: i64[M, K]) -> dx: T[M, N]\n\ndx = sum[K](dy if index[N] == i else 0)\n",
        _backward, lambda dy, x, i: (scattered(dy, i, x),)),
    "kinds": Case(KINDS, _all, _kinds),
    "apart": Case(
        "apart(x: T[D, K, E], i: i64[K, M], like: i8[N]) -> y: T[M, N, D, E]\n\ny = sum[K](x if i == index[N] else 0)\n", _apart, _each),
}  # fmt: skip

def drawn(name: str, sizes: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[tuple[Any, ...], tuple[torch.Tensor, ...]]]:
    """Arguments of a kernel with what they come to."""
    for m, k, n in sizes:
        torch.manual_seed(m * k + n)
        arguments = CASES[name].draw(m, k, n)
        yield arguments, CASES[name].exact(*arguments)


def close(got: Any, want: tuple[torch.Tensor, ...]) -> None:
    """Hold results to f64: none of theirs has more terms than 4,096, of about 1."""
    for a, b in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert torch.allclose(a.double(), b, rtol=1e-5, atol=1e-4, equal_nan=True)
