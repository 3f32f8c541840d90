"""The arguments of a random case: sizes at the edges of schedules, strides of every kind, special values.

In: a checked kernel and a source of choices.  Out: its arguments.  The choices of `Seeded` follow from (seed, number) alone, so
that the two name a case; those of `strategies.Chosen` are Hypothesis's, so that a failing case shrinks.  Of every choice the
first alternative is the simplest.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kgen.check import Kernel, Parameter
from kgen.errors import KgenError
from kgen.ops import REDUCTIONS
from kgen.runtime import unsigned
from kgen.runtime.arguments import default, follow, sizing
from kgen.runtime.placed import picked
from kgen.scanned import over
from kgen.sized import names, value
from kgen.syntax import Clause
from kgen.types import DTYPES, ELLIPSIS, PACKED, PACKING, resolve_named

SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 127, 128, 255, 257, 512, 513, 1000, 1023, 1024, 1025, 4096)
MAX_ELEMENTS = 20_000
#: Lengths of rows: each side of a warp, of a block, and of what a schedule keeps resident; some that are no multiple of a vector.
ROWS = (1, 2, 3, 31, 32, 33, 47, 63, 64, 65, 100, 127, 128, 129, 190, 511, 512, 513, 1000, 1023, 1024, 1025)
LONG_ROWS = (4096, 4097)
LAYOUTS = ("dense", "permuted", "sliced", "offset", "expanded")
#: Values that kernels get wrong: ties, ends of ranges, infinities, NaN, numbers of which exp overflows or underflows.
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 6.0, 1e-3, -1e-3, 10.0, -10.0, 88.0, -88.0, 100.0, -104.0, 1e4, -1e4, 6.1e-5, 1e-7,
    -1e-7, 1e-38, -1e-38, 1e-45, 65504.0, -65504.0, 3.3e38, -3.3e38, math.inf, -math.inf, math.nan,
)  # fmt: skip


class Seeded(random.Random):
    """Choices that follow from a kernel's name, a seed and a number alone; those of whole tensors come from a torch generator."""

    extremes: tuple[float, ...] = ()  # more special values: none, so that cases stay what they were

    def __init__(self, name: str, seed: int, number: int):
        import torch

        super().__init__(f"{name} {seed} {number}")
        self.number, self.torch = number, torch
        self.generator = torch.Generator().manual_seed(self.getrandbits(62))

    def binding(self, bindings: list[dict[str, str]]) -> dict[str, str]:
        """One of the choices of dtypes: each in its turn."""
        return bindings[self.number % len(bindings)]

    def chance(self, probability: float) -> bool:
        """Whether something happens; the simpler answer is no."""
        return self.random() < probability

    def likely(self, probability: float) -> bool:
        """Whether something happens; the simpler answer is yes."""
        return self.random() < probability

    def several(self, values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
        """As many of the values as one of the counts says."""
        return [self.choice(values) for _ in range(self.choice(counts))]

    def some(self, shape: Sequence[int], rate: float) -> Any:
        """A mask that is true at about `rate` of its places."""
        return self.torch.rand(list(shape), generator=self.generator) < rate

    def among(self, values: Any, shape: Sequence[int]) -> Any:
        """A tensor of elements of `values` (of one dim)."""
        return values[self.torch.randint(0, len(values), list(shape), generator=self.generator)]

    def uniforms(self, shape: Sequence[int]) -> Any:
        return self.torch.rand(list(shape), generator=self.generator)

    def normal(self, shape: Sequence[int]) -> Any:
        return self.torch.randn(list(shape), generator=self.generator, dtype=self.torch.float64)

    def integers(self, low: int, high: int, shape: Sequence[int], dtype: Any) -> Any:
        """Integers of a dtype from `low` to below `high`."""
        return self.torch.randint(low, high, list(shape), generator=self.generator, dtype=dtype)


GROWN = 64  # how many times as many elements as the limit a tensor may have of which a case takes some
MOST_TRIES = 64  # of sizes from which others follow


def counted(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The numbers of a call that has these sizes, of those on which sizes depend; without those that no small number is found for."""
    found: dict[str, int] = {}
    for c in kernel.clauses:
        free = [n for n in names(c.value) if n not in found and n not in sizes]
        if len(free) == 1 and free[0] in sizing(kernel) and c.name.name in sizes:
            known = {**sizes, **found}
            fits = (k for k in range(max(known.values()) + MOST_TRIES) if _fits(c, {**known, free[0]: k}))
            if (k := next(fits, None)) is not None:
                found[free[0]] = k
    return found


def _fits(clause: Clause, known: Mapping[str, int]) -> bool:
    try:
        return bool(value(clause.value, known) == known[clause.name.name])
    except ZeroDivisionError:
        return False


@dataclass(frozen=True)
class Limits:
    """What a case may be.

    `dtypes` says what dtype variables stand for ({"T": "bf16"}, or several names), `sizes` how large dims are ({"N": 64}, or several
    sizes; "..." takes a shape), `layouts` which of LAYOUTS tensors have, `special` whether special values and indices outside of
    what is picked from occur (the latter only where `outside`), `max_elements` how many elements the dims have together at most, `leading`
    how many leading dims there may be, `broadcast` whether those of 1 meet others.  `multiples` says of which numbers dims are multiples
    ({"N": 8}), `most` how large they are at most.  Raises `KgenError` through `held`, where a name is
    none of the kernel's.
    """

    dtypes: Mapping[str, str | Sequence[str]] | None = None
    sizes: Mapping[str, int | Sequence[int]] | None = None
    special: bool = True
    layouts: Sequence[str] = LAYOUTS
    max_elements: int = MAX_ELEMENTS
    leading: Sequence[int] = (0, 1, 1, 2, 2, 3, 5)
    broadcast: bool = True
    outside: bool = True
    multiples: Mapping[str, int] | None = None
    most: Mapping[str, int] | None = None

    def held(self, kernel: Kernel) -> Limits:
        """The limits, where they fit a kernel."""
        named = [*(d for p in kernel.params for d in p.dims or ()), *(d for c in kernel.clauses for d in names(c.value))]
        known: tuple[tuple[str, Any, Any, str], ...] = (
            ("dtype variable", self.dtypes or (), kernel.variables, f"{kernel.signature()}"),
            ("dim", [*(self.sizes or ()), *(self.multiples or ()), *(self.most or ())], named, f"{kernel.signature()}"),
            ("layout", self.layouts, LAYOUTS, f"layouts are {', '.join(LAYOUTS)}"),
        )
        for what, given, there, help in known:
            if unknown := [name for name in given if name not in there]:
                raise KgenError(f"{kernel.name}: there is no {what} {unknown[0]}", help=help)
        for variable in self.dtypes or ():
            if unknown := [d for d in self.of(variable) if d not in DTYPES or not DTYPES[d].is_float]:
                raise KgenError(f"{kernel.name}: {variable} cannot be {unknown[0]}", help="a dtype variable is f16, bf16, f32 or f64")
        return self

    def fitted(self, dim: str, n: int) -> int:
        """A size of a dim, made a multiple and no more than may be."""
        each = (self.multiples or {}).get(dim, 1)
        most = (self.most or {}).get(dim, n) // each * each
        return max(-(-n // each) * each if n <= most else most, 0)

    def of(self, variable: str) -> tuple[str, ...]:
        """The dtypes that a variable may stand for (none: any)."""
        given = (self.dtypes or {}).get(variable, ())
        return (given,) if isinstance(given, str) else tuple(given)

    def size(self, dim: str) -> tuple[int, ...]:
        """The sizes that a dim may have (none: any); of `...` its shape."""
        given = (self.sizes or {}).get(dim, ())
        return (given,) if isinstance(given, int) else tuple(given)


class Draw:
    """The arguments of one case, within limits, drawn from a source; without one from (seed, number) alone."""

    def __init__(self, kernel: Kernel, seed: int = 0, number: int = 0, limits: Limits | None = None, source: Any = None):
        """Draw the case's dtypes, sizes and layouts, by `seed` and `number`, or from a `source` of choices, within `limits`;
        tensors are made when they are asked for."""
        import torch

        self.torch, self.kernel = torch, kernel
        self.limits = (limits or Limits()).held(kernel)
        self.random = source if source is not None else Seeded(kernel.name, seed, number)
        bindings = [{v: d.name for v, d in b.items()} for b in kernel.bindings()]
        allowed = [b for b in bindings if all(d in (self.limits.of(v) or (d,)) for v, d in b.items())]
        self.binding = self.random.binding(allowed)
        self.reduced = {d for v in kernel.values if v.op == "pick" or v.op in REDUCTIONS and v.attr for d in v.attr}
        self.reduced |= {d for v in kernel.values for d in over(v.op, v.attr)}
        self.picked = picked(kernel)
        self.batch = self.random.several(SIZES, self.limits.leading)
        self.fixed = kernel.literals
        self.counts = {name: self.random.choice((1, 2, 3, 7, 10, 100)) for name in sizing(kernel)}
        named = dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS and d not in self.fixed)
        named |= dict.fromkeys(d for c in kernel.clauses for d in names(c.value) if d not in self.counts)
        self.named = {d: self.random.choice(SIZES) for d in named if d not in {c.name.name for c in kernel.clauses}}
        if self.reduced:
            self.rows()
        self.fix()
        self.shrink()
        if self.random.chance(0.03) and (self.batch or self.named):
            place = self.random.randrange(len(self.batch) + len(self.named))
            if place < len(self.batch):
                self.batch[place] = 0
            else:
                self.named[list(self.named)[place - len(self.batch)]] = 0
            self.fix()
        self.special = self.random.chance(0.5) and self.limits.special

    def rows(self) -> None:
        """Sizes of the reduced dims: one of them from the boundaries, what is reduced with it small."""
        rnd = self.random
        named = [d for d in self.named if d in self.reduced]
        long = rnd.chance(0.05)
        for k, d in enumerate(rnd.sample(named, len(named))):
            self.named[d] = rnd.choice(LONG_ROWS if long else ROWS) if k == 0 else rnd.choice(SIZES[:14])

    def fix(self) -> None:
        """Set the sizes that are limited."""
        if ELLIPSIS in (self.limits.sizes or ()):
            self.batch = list(self.limits.size(ELLIPSIS))
        for d in self.named:
            if (sizes := self.limits.size(d)) and self.named[d] not in sizes:
                self.named[d] = self.random.choice(sizes)
        self.named = {d: self.limits.fitted(d, n) for d, n in self.named.items()}
        for k in range(MOST_TRIES):  # until others follow from them
            if self.follows():
                break
            self.named.update({d: n + 1 for d, n in self.named.items() if any(d in names(c.value) for c in self.kernel.clauses)})
            self.counts = dict.fromkeys(self.counts, 1) if k == MOST_TRIES // 2 else self.counts

    def follows(self) -> bool:
        """Whether the header's `where` gives sizes for those drawn, none of them 0 where none of these is."""
        try:
            return all(self.sizes.values()) or not all(self.named.values())
        except KgenError:
            return False

    def shrink(self) -> None:
        """Halve sizes, of those that are not limited, until the largest value has few enough elements: of what is not reduced first.  A dim
        without whose size others would have none keeps it."""
        limited = {d: [self.limits.fitted(d, n) for n in self.limits.size(d)] for d in self.named if self.limits.size(d)}
        least = {d: (self.limits.multiples or {}).get(d, 1) for d in self.named}
        told = bool(limited or self.limits.multiples or ELLIPSIS in (self.limits.sizes or ()))
        kept: set[str] = set()
        while self.largest() > self.limits.max_elements:
            batch = [] if ELLIPSIS in (self.limits.sizes or ()) else [n for n in self.batch if n > 1]
            free = {d: n for d, n in self.named.items() if d not in limited and d not in kept and n > least[d]}
            rows = {d: n for d, n in free.items() if d not in self.reduced}
            named = rows if self.reduced and (rows or batch and ELLIPSIS not in self.reduced) else free
            smaller = [d for d, sizes in limited.items() if min(sizes) < self.named[d] and d not in kept]
            if batch and (told or max(batch) >= max(named.values(), default=0)):
                self.batch[self.batch.index(max(batch))] //= 2
                continue
            if not named and not smaller:
                break  # they are what was asked for, or what literals make them
            dim = max(named, key=lambda d: self.named[d]) if named else smaller[0]
            before, after = self.named[dim], self.limits.fitted(dim, self.named[dim] // 2) if named else min(limited[dim])
            self.named[dim] = after
            if after >= before or not self.follows():
                self.named[dim] = before
                kept.add(dim)

    def largest(self) -> int:
        """How many elements the largest value or result has, which may be spread over dims that no value has; dims of no size count as one,
        for what has none of them is there all the same."""
        sizes = {ELLIPSIS: math.prod(max(1, n) for n in self.batch), **{d: max(1, n) for d, n in self.sizes.items()}}
        dims = [*(v.dims for v in self.kernel.values), *(r.dims for r in self.kernel.results)]
        return max(math.prod(sizes[d] for d in of) for of in dims)

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each dim but the leading ones.  Raises `KgenError` where the header's `where` gives none for those drawn."""
        sizes = {**self.fixed, **self.named}
        follow(self.kernel, sizes, self.counts)
        return sizes

    def arguments(self) -> dict[str, Any]:
        written = {r.state for r in self.kernel.results if r.state}
        made = {p.name: self.tensor(p, p.name in written) if p.is_tensor else self.number(p) for p in self.kernel.params}
        return made | self.counts

    def written(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments, where what is written in place has the whole shape (a parameter that broadcasts is drawn anew)."""
        for name in [r.state for r in self.kernel.results if r.state]:
            p = next(q for q in self.kernel.params if q.name == name)
            if ELLIPSIS in (p.dims or ()) and tuple(given[name].shape[: len(self.batch)]) != tuple(self.batch):
                given[name] = self.tensor(p, True)
        return given

    def number(self, p: Parameter) -> float | int:
        if p.default is not None and self.random.likely(0.5):
            return default(p)
        if p.dtype == "int":
            return self.random.choice((1, 2, 3, 7, 10, 100, 1000))
        return self.random.choice((0.5, 1.0, 0.1, 1e-3, 2.0, -0.5, 3.0, self.random.gauss(0, 1)))

    def tensor(self, p: Parameter, written: bool) -> Any:
        """A tensor of a parameter's dims, its strides dense, permuted, sliced, offset or (where it is not written) expanded."""
        assert p.dims is not None
        rnd = self.random
        batch = list(self.batch) if ELLIPSIS in p.dims else []
        if batch and not written and self.limits.broadcast and rnd.chance(0.3):
            batch = [1 if rnd.chance(0.4) else n for n in batch][rnd.randrange(len(batch) + 1) if rnd.chance(0.5) else 0 :]
        if sum(ELLIPSIS in (q.dims or ()) for q in self.kernel.params) == 1:
            batch = list(self.batch) if ELLIPSIS in p.dims else []
        shape = batch + [self.sizes[d] for d in p.dims if d != ELLIPSIS]
        x = self.strided(p, shape, written)
        if p.name in self.picked and not (self.limits.special and self.limits.outside):
            x = x.contiguous()  # all its elements are set
        if self.reduced and x.numel() and 0 not in x.stride():
            self.plant(p, x, len(batch))
        return x

    def strided(self, p: Parameter, shape: list[int], written: bool) -> Any:
        """A tensor of a parameter with some shape, in one of the layouts that are allowed; `written` ones have no two elements in
        one place."""
        rnd = self.random
        way = rnd.choice(("dense", "dense", *LAYOUTS))
        if way not in self.limits.layouts:
            way = rnd.choice(tuple(self.limits.layouts))
        if way == "expanded" and (written or not shape):
            way = "offset"
        if way == "dense" or not shape:
            return self.fill(shape, p.dtype)
        if way == "permuted":
            order = rnd.sample(range(len(shape)), len(shape))
            return self.fill([shape[d] for d in order], p.dtype).permute([order.index(d) for d in range(len(shape))])
        if way == "sliced":
            grown = [n * rnd.choice((1, 1, 2, 3)) + rnd.choice((0, 0, 1, 5)) for n in shape]
            for d, n in enumerate(shape):  # many dims would multiply to more than there is memory
                grown[d] = n if math.prod(grown) > GROWN * self.limits.max_elements else grown[d]
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
        torch, rnd = self.torch, self.random
        if p.name in self.picked:
            size = min(self.sizes[d] for d in self.picked[p.name])
            limit = min(torch.iinfo(x.dtype).max, 2**63 - 1)
            inside = rnd.integers(0, max(1, min(size, limit)), x.shape, torch.int64)
            ignored = [default(q) for q in self.kernel.params if q.dtype == "int" and q.default is not None]
            other = rnd.among(torch.tensor([-1, size, -size, 2**40, -(2**63), *ignored]), x.shape)
            outside = rnd.some(x.shape, 0.15) & (self.limits.special and self.limits.outside)
            places = torch.where(outside, other.clamp(torch.iinfo(x.dtype).min, limit), inside)
            x.copy_(unsigned.stored(places, x.dtype) if unsigned.is_stored(x.dtype) else places)
            return
        named = [d for d in p.dims or () if d != ELLIPSIS]
        along = [ELLIPSIS in self.reduced] * lead + [d in self.reduced for d in named]
        if not x.dtype.is_floating_point or p.dtype in (*PACKED, *PACKING) or not any(along) or not self.special:
            return  # of two elements a byte torch writes none
        heads = [1 if reduced else n for reduced, n in zip(along, x.shape, strict=True)]
        chosen = rnd.some(heads, 0.3)
        everywhere = rnd.uniforms(x.shape)
        first = torch.ones(x.shape, dtype=torch.bool)  # one place of each row
        for d, reduced in enumerate(along):
            if reduced:
                place = torch.arange(x.shape[d]).reshape([-1 if k == d else 1 for k in range(x.dim())])
                first = first & (place == rnd.randrange(x.shape[d]))
        kind = rnd.choice(("equal", "-inf", "inf", "nan", "masked", "wide", "offset"))
        wide = rnd.normal(x.shape) * 10 ** (everywhere * 12 - 6)
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
        """A dense tensor of a declared dtype: random values, special ones among them where the case is of that kind."""
        torch, rnd = self.torch, self.random
        declared = resolve_named(dtype, self.binding)
        torch_dtype = getattr(torch, declared.torch)
        if declared.kind == "bool":
            return rnd.some(shape, 0.5)
        if declared.is_int:
            if declared.stored is not declared:  # two elements a byte
                return rnd.integers(0, 256, shape, torch.uint8).view(torch_dtype)
            info = torch.iinfo(torch_dtype)
            low, high = (info.min, info.max) if self.special else (max(info.min, -20), min(info.max, 20))
            if declared.bits > 8 and declared.kind == "uint":  # of which torch draws none: any bits of as many
                full = rnd.integers(*((-(2**63), 2**63 - 1) if self.special else (0, 20)), shape, torch.int64)
                return full.view(torch_dtype) if declared.bits == 64 else (full & high).to(torch_dtype)
            return rnd.integers(low, high, shape, torch_dtype)
        if declared.coded and self.special and rnd.chance(0.3):
            return rnd.integers(0, 256, shape, torch.uint8).view(torch_dtype)
        scale = rnd.choice((1.0, 1.0, 3.0, 30.0, 1e-3, 1e3))
        x = rnd.normal(shape) * scale
        if self.special:
            # in a long row one NaN or one square that overflows would hide all else: fewer there, and small ones alone
            rate = rnd.choice((0.15, 0.01, 0.001)) if self.reduced else 0.15
            few = self.reduced and rnd.likely(0.5)
            floats = (*FLOATS, *rnd.extremes)
            values = torch.tensor([v for v in floats if not few or abs(v) <= 1e4], dtype=torch.float64)
            chosen = rnd.among(values, shape)
            x = torch.where(rnd.some(shape, rate), chosen, x)
        return x.to(torch_dtype)


def plain(kernel: Kernel, dtype: str, positive: bool = False) -> dict[str, Any]:
    """Arguments of moderate size, the same ones each time: standard normal numbers in dense tensors (their magnitudes where `positive`),
    indices that lie inside, numbers at their defaults; the kernel's dtype variables stand for `dtype`.

    The last dim has 257 elements, `...` 6 (6 x 257 where there is no named dim), other dims 5, or what the header's `where` makes of these.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    named = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS))
    batch = (6,) if named else (6, 257)
    places = picked(kernel)
    free = [p.name for p in kernel.params if not p.is_tensor and p.default is None]
    binding = dict.fromkeys(kernel.variables, dtype)

    def number(p: Parameter) -> float | int:
        if p.default is not None:
            return default(p)
        return 1 if p.dtype == "int" else 0.5 if len(free) == 1 else (-1.0, 1.0, 0.5)[free.index(p.name) % 3]

    sizes = _sizes(kernel, named, {p.name: number(p) for p in kernel.params if not p.is_tensor})

    def tensor(p: Parameter) -> Any:
        shape = [n for d in p.dims or () for n in (batch if d == ELLIPSIS else (sizes[d],))]
        declared = resolve_named(p.dtype, binding)
        if declared.is_int or declared.kind == "bool":
            high = 2 if declared.kind == "bool" else min(100, *(sizes[d] for d in places.get(p.name, ())), 100)
            drawn = torch.randint(0, high, shape, generator=generator)
            dtype_ = getattr(torch, declared.torch)
            return drawn.to(dtype_) if declared.stored is declared else drawn.to(torch.uint8).view(dtype_)
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (x.abs() if positive else x).to(getattr(torch, declared.torch))

    return {p.name: tensor(p) if p.is_tensor else number(p) for p in kernel.params}


def _sizes(kernel: Kernel, named: list[str], numbers: dict[str, Any]) -> dict[str, int]:
    """Sizes of dims: 257 of the last, 5 of others; where the header's `where` says other ones, those that follow from the rest."""
    every = {d: 257 if d == named[-1] else 5 for d in named} | kernel.literals
    follows = {c.name.name for c in kernel.clauses}
    sizes = {d: n for d, n in every.items() if d not in follows or d in kernel.literals}
    read = {d for c in kernel.clauses for d in names(c.value) if d not in numbers and d not in follows}
    sizes = dict.fromkeys(sorted(read), 5) | sizes
    try:
        follow(kernel, sizes, numbers)
    except KgenError:  # dims of which these cannot be made, such as the halves of 5
        return every
    return every | sizes
