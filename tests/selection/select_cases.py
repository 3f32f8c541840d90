"""Rows for selection, and torch's answers for them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

KTH = "kth(x: T[..., N], k: int) -> (v: T[...], i: i64[...])\n\nv = kth[N](x, k)\ni = kth_place[N](x, k)\n"
MASK = "masked(x: T[..., N], k: int) -> y: T[..., N]\n\ny = x if topk_mask[N](x, k) else -inf\n"
#: The words of each dtype, whose results tell them from their carriers.
WORDS = """words(d: u64[..., N], a: u32[..., N], c: u16[..., N], k: int) -> (v: u64[...], i: i64[...], f: f64[...], w: i64[...], z: i64[...])

v = kth[N](d, k)
i = kth_place[N](d, k)
f = f64(v)
w = kth[N](a, k)
z = kth[N](c, k)
"""
INF, NAN = math.inf, math.nan


def rows(n: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Six rows of n elements: any, equal, with ties, with zeros of both signs, with infinities, with NaN."""
    x = torch.randn(6, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    x[1] = 0.5
    x[2] = (x[2] * 2).round()
    x[3, ::2], x[3, 1::4] = 0.0, -0.0
    x[4, : n // 3], x[4, n // 2 :: 5] = INF, -INF
    x[5, :: max(2, n // 3)] = NAN
    return x.to(dtype).to(device)


def amounts(n: int) -> Iterator[int]:
    """How many to select of n: few, half, all, more, none."""
    yield from sorted({1, 2, max(1, n // 2), n, n + 1, 0, -3})


def in_order(x: torch.Tensor) -> torch.Tensor:
    """The places of each row's elements, the greatest first, NaN before all and ties by place."""
    keys = torch.where(x.isnan(), NAN, x.double())  # torch's CUDA sort goes by bits, and a NaN of bf16 may have a sign
    return keys.argsort(dim=-1, descending=True, stable=True)


def mask(x: torch.Tensor, k: int) -> torch.Tensor:
    """x with all but its k greatest at -inf."""
    kept = torch.zeros_like(x, dtype=torch.bool).scatter(-1, in_order(x)[..., : max(0, k)], True)
    return x.where(kept, -INF)


def kth(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k-th greatest elements and their places, with what stands for them where there are none."""
    n = x.shape[-1]
    if not 1 <= k <= n:
        return torch.full_like(x[..., 0], NAN if k < 1 else -INF), torch.full_like(x[..., 0], -1 if k < 1 else n, dtype=torch.int64)
    at = in_order(x)[..., k - 1]
    return x.gather(-1, at[..., None])[..., 0], at


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two results are equal; NaN is NaN, and a zero has no sign."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | (a != a) & (b != b)).all())


def words(n: int) -> tuple[torch.Tensor, ...]:
    """Four rows of n elements of each of the dtypes of WORDS: any, both ends of the dtype, equal, any from the half of its range on."""
    rng, made = np.random.default_rng(n), []
    for kind in (np.uint64, np.uint32, np.uint16):
        top = np.iinfo(kind).max
        x = rng.integers(0, top, (4, n), kind, endpoint=True)
        x[1, ::2], x[1, 1::2] = top, 0
        x[2] = x[2, 0]
        x[3] |= kind(top // 2 + 1)
        made.append(torch.from_numpy(x))
    return tuple(made)


def found_words(d: torch.Tensor, a: torch.Tensor, c: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
    """The results of WORDS, by Python's integers."""

    def one(x: torch.Tensor) -> list[tuple[int, int]]:
        top, n = int(np.iinfo(x.numpy().dtype).max), x.shape[-1]
        if not 1 <= k <= n:
            return [(top, -1) if k < 1 else (0, n)] * len(x)
        return [sorted(((v, at) for at, v in enumerate(row)), key=lambda e: (-e[0], e[1]))[k - 1] for row in x.tolist()]

    values, places = zip(*one(d), strict=True)
    wide = (torch.tensor([v for v, _ in one(x)]) for x in (a, c))
    return torch.tensor(values, dtype=torch.uint64), torch.tensor(places), torch.tensor([float(v) for v in values], dtype=torch.float64), *wide
