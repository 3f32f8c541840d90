"""The arguments of a random case: sizes at the edges of schedules, strides of every kind, special values.

In: a checked kernel.  Out: its arguments, drawn from (seed, number) alone, so that the two name a case.
"""

from __future__ import annotations

import math
import random
from typing import Any

from kgen.check import Kernel, Parameter
from kgen.ops import REDUCTIONS
from kgen.runtime.arguments import default
from kgen.types import ELLIPSIS, Number, is_float, resolve_named

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 127, 128, 255, 257, 512, 513, 1000, 1023, 1024, 1025, 4096)
MAX_ELEMENTS = 20_000
#: Lengths of rows: each side of a warp, of a block, and of what a schedule keeps resident.
ROWS = (1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025)
LONG_ROWS = (4096, 4097)
#: Values that kernels get wrong: ties, ends of ranges, infinities, NaN, numbers of which exp overflows or underflows.
FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    3.0,
    -3.0,
    6.0,
    1e-3,
    -1e-3,
    10.0,
    -10.0,
    88.0,
    -88.0,
    100.0,
    -104.0,
    1e4,
    -1e4,
    6.1e-5,
    1e-7,
    -1e-7,
    1e-38,
    -1e-38,
    1e-45,
    65504.0,
    -65504.0,
    3.3e38,
    -3.3e38,
    math.inf,
    -math.inf,
    math.nan,
)


class Draw:
    """The arguments of one case, drawn from (seed, number) alone."""

    def __init__(self, kernel: Kernel, seed: int, number: int):
        import torch

        self.torch, self.kernel = torch, kernel
        self.random = random.Random(f"{kernel.name} {seed} {number}")
        self.generator = torch.Generator().manual_seed(self.random.getrandbits(62))
        bindings = kernel.bindings()
        self.binding = {v: d.name for v, d in bindings[number % len(bindings)].items()}
        self.reduced = {d for v in kernel.values if v.op == "pick" or v.op in REDUCTIONS and v.attr for d in v.attr}
        self.picked = self.indices()
        self.batch = [self.random.choice(SIZES) for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 5)))]
        self.named = {d: self.random.choice(SIZES) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
        if self.reduced:
            self.rows()
        self.shrink()
        if self.random.random() < 0.03 and (self.batch or self.named):
            place = self.random.randrange(len(self.batch) + len(self.named))
            if place < len(self.batch):
                self.batch[place] = 0
            else:
                self.named[list(self.named)[place - len(self.batch)]] = 0
        self.special = self.random.random() < 0.5

    def indices(self) -> dict[str, str]:
        """The integer parameters from which `pick` takes its index, each with the dim that it picks from."""
        values, found = self.kernel.values, {}
        for v in values:
            stack = [v.args[1]] if v.op == "pick" else []
            while stack:
                t = values[stack.pop()]
                stack.extend(t.args)
                if t.op == "param" and not isinstance(t.type, Number) and not is_float(t.type):
                    found[str(t.attr)] = v.attr[0]
        return found

    def rows(self) -> None:
        """Sizes of the reduced dims: one of them from the boundaries, what is reduced with it small."""
        rnd = self.random
        named = [d for d in self.named if d in self.reduced]
        long = rnd.random() < 0.05
        for k, d in enumerate(rnd.sample(named, len(named))):
            self.named[d] = rnd.choice(LONG_ROWS if long else ROWS) if k == 0 else rnd.choice(SIZES[:14])

    def shrink(self) -> None:
        while math.prod(self.batch) * math.prod(self.named.values()) > MAX_ELEMENTS:
            kept = {d: n for d, n in self.named.items() if not (self.reduced and d in self.reduced) and n > 1}
            rows = ELLIPSIS not in self.reduced and any(n > 1 for n in self.batch) or kept  # what is not reduced gives way first
            named = kept if self.reduced and rows else self.named
            if self.batch and max(self.batch) >= max(named.values(), default=0):
                self.batch[self.batch.index(max(self.batch))] //= 2
            else:
                widest = max(named, key=lambda d: self.named[d])
                self.named[widest] //= 2

    def arguments(self) -> dict[str, Any]:
        written = {r.state for r in self.kernel.results if r.state}
        return {p.name: self.tensor(p, p.name in written) if p.is_tensor else self.number(p) for p in self.kernel.params}

    def number(self, p: Parameter) -> float | int:
        if p.default is not None and self.random.random() < 0.5:
            return default(p)
        if p.dtype == "int":
            return self.random.choice((1, 2, 3, 7, 10, 100, 1000))
        return self.random.choice((0.5, 1.0, 0.1, 1e-3, 2.0, -0.5, 3.0, self.random.gauss(0, 1)))

    def tensor(self, p: Parameter, written: bool) -> Any:
        """A tensor of a parameter's dims, its strides dense, permuted, sliced, offset or (where it is not written) expanded."""
        assert p.dims is not None
        rnd = self.random
        batch = list(self.batch) if ELLIPSIS in p.dims else []
        if batch and not written and rnd.random() < 0.3:
            batch = [1 if rnd.random() < 0.4 else n for n in batch][rnd.randrange(len(batch) + 1) if rnd.random() < 0.5 else 0 :]
        if sum(ELLIPSIS in (q.dims or ()) for q in self.kernel.params) == 1:
            batch = list(self.batch) if ELLIPSIS in p.dims else []
        shape = batch + [self.named[d] for d in p.dims if d != ELLIPSIS]
        x = self.strided(p, shape, written)
        if self.reduced and x.numel() and 0 not in x.stride():
            self.plant(p, x, len(batch))
        return x

    def strided(self, p: Parameter, shape: list[int], written: bool) -> Any:
        rnd = self.random
        way = rnd.choice(("dense", "dense", "dense", "permuted", "sliced", "offset", "expanded"))
        if way == "expanded" and (written or not shape):
            way = "offset"
        if way == "dense" or not shape:
            return self.fill(shape, p.dtype)
        if way == "permuted":
            order = rnd.sample(range(len(shape)), len(shape))
            return self.fill([shape[d] for d in order], p.dtype).permute([order.index(d) for d in range(len(shape))])
        if way == "sliced":
            grown = [n * rnd.choice((1, 1, 2, 3)) + rnd.choice((0, 0, 1, 5)) for n in shape]
            x = self.fill(grown, p.dtype)
            for d, n in enumerate(shape):
                step = rnd.randint(1, grown[d] // n) if n else 1
                start = rnd.randint(0, grown[d] - ((n - 1) * step + 1)) if n else 0
                x = x.narrow(d, start, grown[d] - start)[(slice(None),) * d + (slice(None, None, step),)].narrow(d, 0, n)
            return x
        if way == "offset":
            extra = rnd.randint(1, 15)
            return self.fill([math.prod(shape) + extra], p.dtype)[extra:].view(shape)
        d = rnd.randrange(len(shape))
        return self.fill([1 if k == d else n for k, n in enumerate(shape)], p.dtype).expand(*shape)

    def plant(self, p: Parameter, x: Any, lead: int) -> None:
        """Write what reductions get wrong into a tensor: rows of special values, and indices into what is picked from."""
        torch, rnd, generator = self.torch, self.random, self.generator
        if p.name in self.picked:
            size = self.named[self.picked[p.name]]
            limit = torch.iinfo(x.dtype).max
            inside = torch.randint(0, max(1, min(size, limit)), x.shape, generator=generator)
            ignored = [default(q) for q in self.kernel.params if q.dtype == "int" and q.default is not None]
            other = torch.tensor([-1, size, -size, 2**40, -(2**63), *ignored])
            other = other[torch.randint(0, len(other), x.shape, generator=generator)].clamp(torch.iinfo(x.dtype).min, limit)
            x.copy_(torch.where(torch.rand(x.shape, generator=generator) < 0.15, other, inside))
            return
        named = [d for d in p.dims or () if d != ELLIPSIS]
        along = [ELLIPSIS in self.reduced] * lead + [d in self.reduced for d in named]
        if not x.dtype.is_floating_point or not any(along) or not self.special:
            return
        heads = [1 if reduced else n for reduced, n in zip(along, x.shape, strict=True)]
        chosen = torch.rand(heads, generator=generator) < 0.3
        everywhere = torch.rand(x.shape, generator=generator)
        first = torch.ones(x.shape, dtype=torch.bool)  # one place of each row
        for d, reduced in enumerate(along):
            if reduced:
                place = torch.arange(x.shape[d]).reshape([-1 if k == d else 1 for k in range(x.dim())])
                first = first & (place == rnd.randrange(x.shape[d]))
        kind = rnd.choice(("equal", "-inf", "inf", "nan", "masked", "wide", "offset"))
        wide = torch.randn(x.shape, generator=generator, dtype=torch.float64) * 10 ** (everywhere * 12 - 6)
        changed = {
            "equal": torch.full_like(wide, rnd.choice((0.0, 1.0, -3.0, 1e4, 0.1))),
            "-inf": torch.full_like(wide, -math.inf),
            "inf": torch.where(first, math.inf, x.double()),
            "nan": torch.where(everywhere < 0.1, math.nan, x.double()),
            "masked": torch.where(everywhere < 0.5, -math.inf, x.double()),
            "wide": wide,
            "offset": wide.sign() + 1e4,
        }[kind]
        x.copy_(torch.where(chosen, changed, x.double()))

    def fill(self, shape: list[int], dtype: str) -> Any:
        torch, rnd, generator = self.torch, self.random, self.generator
        declared = resolve_named(dtype, self.binding)
        torch_dtype = getattr(torch, declared.torch)
        if declared.kind == "bool":
            return torch.rand(shape, generator=generator) < 0.5
        if declared.is_int:
            info = torch.iinfo(torch_dtype)
            low, high = (info.min, info.max) if self.special else (max(info.min, -20), min(info.max, 20))
            return torch.randint(low, high, shape, generator=generator, dtype=torch_dtype)
        scale = rnd.choice((1.0, 1.0, 3.0, 30.0, 1e-3, 1e3))
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        if self.special:
            # in a long row one NaN or one square that overflows would hide all else: fewer there, and small ones alone
            rate = rnd.choice((0.15, 0.01, 0.001)) if self.reduced else 0.15
            few = self.reduced and rnd.random() < 0.5
            values = torch.tensor([v for v in FLOATS if not few or abs(v) <= 1e4], dtype=torch.float64)
            chosen = values[torch.randint(0, len(values), shape, generator=generator)]
            x = torch.where(torch.rand(shape, generator=generator) < rate, chosen, x)
        return x.to(torch_dtype)
