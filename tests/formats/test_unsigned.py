"""Unsigned integers of 16, 32 and 64 bits: operators, comparisons, reductions and casts beside NumPy's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import kgen
from tests.cuda.emulated import Emulated

TEXT = """words(a: u32[N], b: u32[N], c: u16[N], d: u64[N], e: i32[N], x: f32[N]) -> (
    s: u32[N], t: u64[N], m: u16[N], g: bool[N], f: f64[N], r: u64[N], q: i64[N], v: u64[N], w: u32[N], y: u32[N])

s = (a * b + 7) ^ 2 >> 3
t = d * 3 // 7 + d % 11
m = ~c * c << 2
g = d > t or a > b
f = f64(d) / 2
r = u64(a) * b >> 32
q = a - e
v = u64(x)
w = u32(x) + u32(e)
y = max(a, 4000000000) - min(b, 3) if x > 0 else a
"""


ROWS = """reduced(a: u32[N], d: u64[N]) -> (h: i64[], k: u32[], l: u64[], i: i64[])

h = sum[N](a)
k = max[N](a)
l = max[N](d)
i = argmin[N](d)
"""


def wanted(a, b, c, d, e, x):
    u32, u64 = np.uint32, np.uint64
    with np.errstate(all="ignore"):
        cut = np.nan_to_num(x.astype(np.float64), nan=0.0)
        t = d * u64(3) // u64(7) + d % u64(11)
        return (
            (a * b + u32(7)) ** 2 >> u32(3), t, (~c * c) << np.uint16(2), (d > t) | (a > b), d.astype(np.float64) / 2,
            a.astype(u64) * b >> u64(32), a.astype(np.int64) - e,
            np.array([0 if v <= 0 else 2**64 - 1 if v >= 2**64 else int(v) for v in cut.tolist()], u64),
            np.clip(cut, 0, 2**32 - 1).astype(u32) + e.astype(u32), np.where(x > 0, np.maximum(a, u32(4000000000)) - np.minimum(b, u32(3)), a),
        )  # fmt: skip


def drawn() -> tuple[list[torch.Tensor], tuple[np.ndarray, ...]]:
    """Arguments of TEXT, the ends of dtypes among them, and its results by NumPy."""
    rng = np.random.default_rng(3)
    kinds = (np.uint32, np.uint32, np.uint16, np.uint64, np.int32)
    given = [rng.integers(np.iinfo(k).min, np.iinfo(k).max, 100, k, endpoint=True) for k in kinds]
    for x in given:
        x[:2] = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    x = (rng.standard_normal(100) * 10.0 ** rng.integers(0, 25, 100)).astype(np.float32)
    x[:3] = np.nan, np.inf, -np.inf
    return [torch.from_numpy(t) for t in (*given, x)], wanted(*given, x)


def test_unsigned_integers_are_numpys(tmp_path: Path, built_quickly: None) -> None:
    """On C++ and by CUDA's emulation; the reference reads them alike."""
    tensors, want = drawn()
    emulated = Emulated(TEXT, tmp_path, tuple(tensors))
    for run in (kgen.loads(TEXT), lambda *t: kgen.loads(TEXT)(*t, target="torch"), lambda *t: emulated(*t).values()):
        for k, (y, other) in enumerate(zip(run(*tensors), want, strict=True)):
            assert np.array_equal(y.numpy(), other), (k, y[:4], other[:4])

    a, d = (tensors[k].numpy() for k in (0, 3))
    for target in ("cpp", "torch"):
        found = kgen.loads(ROWS)(tensors[0], tensors[3], target=target)
        assert [y.item() for y in found] == [a.astype(np.int64).sum(), a.max(), d.max(), d.argmin()], target


def test_a_u64_beside_an_i64_has_its_bits() -> None:
    """They meet in i64, also where neither target is built: fuzzing found what rounded to a float64 on the way there."""
    mixed = kgen.loads("mixed(a: i64[N], d: u64[N]) -> (m: i64[N], s: i64[N], g: bool[N], w: i64[N])\n\nm = min(a, d)\ns = a + d\ng = a < d\nw = a if a == d else d\n")
    a = np.array([-5, 2**62 + 1, 3, -(2**63)], np.int64)
    d = np.array([2**64 - 1, 2**63 + 7, 2**63 - 1, 2**63], np.uint64)
    b = d.astype(np.int64)
    for found, want in zip(mixed(torch.from_numpy(a), torch.from_numpy(d), target="torch"), (np.minimum(a, b), a + b, a < b, b)):
        assert np.array_equal(found.numpy(), want), (found, want)
