"""Random lists of tensors, many of which share memory: what `foreach` writes and returns is what single calls in order do, bit for bit, and
what one of these refuses is refused before anything is written."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import kgen
from kgen.errors import KgenError

#: Kernels, and for each parameter of theirs what is drawn: a tensor of T, of f32, of T without all but the last dim, of f32 without it, or numbers.
KERNELS = (
    ("step(p: T[...], g: T[...], m: f32[...], lr: float) -> (p': T[...], m': f32[...], y: f32[...])\nm' = m + g\np' = p - lr * m'\ny = g * 2\n",
     "ttfn"),
    ("mix(x: T[..., N], w: T[N], s: f32[], a: float) -> (y: T[..., N], z: f32[..., N])\ny = x * w * a\nz = x * s + N\n", "tl0n"),
    ("one(x: T[...]) -> y: T[...]\ny = tanh(x) + x^2\n", "t"),
    ("place(x: f32[..., N]) -> x': f32[..., N]\nx' = x * 2 + index[N]\n", "f"),
    ("norm(x: f32[..., N], b: f32[...]) -> y: f32[..., N]\ny = x / (1 + sum[N](x^2)) + b\n", "fr"),
)  # fmt: skip
CASES = 400


class World:
    """What one case is called on, and the same again with the same tensors sharing memory."""

    def __init__(self, rng: random.Random, kinds: str):
        self.rng, n = rng, rng.randint(1, 6)
        self.arena = {d: torch.randn(2500).to(d) for d in (torch.float32, torch.bfloat16)}
        self.shares = rng.random() < 0.4
        shapes = [tuple(rng.choice((0, 1, 2, 3, 7, 33, 512, 600)) for _ in range(rng.choice((1, 1, 2)))) for _ in range(n)]
        dtypes = [rng.choice((torch.float32, torch.bfloat16)) for _ in range(n)]
        f32 = [torch.float32] * n
        draw = {
            "t": lambda: [self.tensor(s, d) for s, d in zip(shapes, dtypes, strict=True)],
            "f": lambda: [self.tensor(s, d) for s, d in zip(shapes, f32, strict=True)],
            "l": lambda: [self.tensor(s[-1:], d) for s, d in zip(shapes, dtypes, strict=True)],
            "r": lambda: [self.tensor(s[:-1], d) for s, d in zip(shapes, f32, strict=True)],
            "0": lambda: rng.choice((torch.tensor(2.0), [self.tensor((), torch.float32) for _ in range(n)])),
            "n": lambda: rng.choice((0.5, [rng.choice((0.0, -0.0, 0.5)) for _ in range(n)])),
        }
        self.n, self.args, self.out = n, [draw[kind]() for kind in kinds], None
        if kinds == "t" and rng.random() < 0.5:
            self.out = [x if rng.random() < 0.5 else self.tensor(tuple(x.shape), x.dtype) for x in self.args[0]]

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Transposed, with gaps, beginning anywhere, dense; or a part of what others are parts of."""
        size, how = torch.Size(shape).numel(), self.rng.randrange(5)
        if self.shares and how == 0 and size < 1500:
            start = self.rng.randrange(0, 600, self.rng.choice((1, 4, 97)))
            return self.arena[dtype][start : start + size].view(shape)
        if how == 1 and len(shape) > 1:
            return torch.randn(shape[::-1]).to(dtype).t()
        if how == 2 and shape:
            return torch.randn(*shape[:-1], 2 * shape[-1]).to(dtype)[..., ::2]
        return torch.randn(size + (how == 3)).to(dtype)[int(how == 3) :].view(shape)

    def copy(self) -> tuple[list[Any], Any]:
        """The arguments and `out` again, in memory of their own, which they share alike."""
        kept: dict[int, Any] = {}

        def again(x: Any) -> Any:
            if isinstance(x, list):
                return [again(t) for t in x]
            if not isinstance(x, torch.Tensor):
                return x
            storage = x.untyped_storage()
            own = kept.setdefault(storage.data_ptr(), storage.clone() if storage.nbytes() else storage)
            return torch.empty(0, dtype=x.dtype).set_(own, x.storage_offset(), x.shape, x.stride())

        return [again(x) for x in self.args], again(self.out)


def tensors(args: list[Any], out: Any) -> list[torch.Tensor]:
    return [t for x in (*args, out) for t in (x if isinstance(x, list) else [x]) if isinstance(t, torch.Tensor)]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def test_lists_are_what_single_calls_in_order_are(built_quickly: None) -> None:
    kernels = [(kgen.loads(text), kgen.loads(text), kinds) for text, kinds in KERNELS]
    refused = overlapping = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        torch.manual_seed(seed)
        lists, single, kinds = rng.choice(kernels)
        world = World(rng, kinds)
        (args, out), before = world.copy(), [t.clone() for t in tensors(world.args, world.out)]
        wrong, want = None, []
        try:
            for k in range(world.n):
                own = [x[k] if isinstance(x, list) else x for x in args]
                want.append(single(*own, out=None if out is None else out[k]))
        except KgenError as error:
            wrong = error
        overlapping += world.shares
        if wrong is not None:
            refused += 1
            with pytest.raises(KgenError):
                lists.foreach(*world.args, out=world.out)
            assert all(map(same, tensors(world.args, world.out), before)), seed
            continue
        got = lists.foreach(*world.args, out=world.out)
        results = [] if got is None else list(zip(*got, strict=True)) if isinstance(got, tuple) else [(y,) for y in got]
        for own, theirs in zip(results, want, strict=got is not None):
            theirs = theirs if isinstance(theirs, tuple) else (theirs,)
            assert all(map(same, own, theirs)) and [y.stride() for y in own] == [y.stride() for y in theirs], seed
        assert all(map(same, tensors(world.args, world.out), tensors(args, out))), seed
    assert refused > 2 and overlapping > CASES / 4
