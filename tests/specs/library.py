"""Arguments for the library's specs, as the lines of `kgen.bench.library` say."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import kgen
from kgen.bench.library import HOLDING, LINES
from kgen.runtime.arguments import default, follow
from kgen.types import DTYPES, axes, literal_size

#: How large dims are; numbers are their own size.
SIZES = {"...": (2, 3), "A": 3, "B": 2, "C": 6, "D": 3, "G": 2, "H": 4, "K": 6, "M": 4, "N": 7, "P": 9, "Q": 5, "S": 5, "V": 8, "W": 6}

#: Rows that lie one behind another along S: their offsets, and in which each element lies.
RAGGED = {"offsets": [0, 3, 5], "row": [0, 0, 0, 1, 1]}


def arguments(name: str, kernel: kgen.Kernel, seed: int = 0) -> dict[str, Any]:
    """Arguments of a spec in float64, by parameter, as its line says."""
    generator = torch.Generator().manual_seed(seed)
    given, found = LINES[name].given, {}
    sizes_ = {**SIZES, **{d: literal_size(d) for d in kernel.kernel.literals}}
    numbers = {p.name: given[p.name] if p.name in given else default(p) for p in kernel.kernel.params if p.dims is None}
    followed = {d: n for d, n in sizes_.items() if d not in {c.name.name for c in kernel.kernel.clauses}}
    follow(kernel.kernel, followed, numbers)
    for p in kernel.kernel.params:
        held = given.get(p.name, "")
        if p.dims is None:
            found[p.name] = given[p.name] if p.name in given else default(p)
            continue
        shape: list[int] = []
        for axis in axes(p.dims, p.factors):
            sizes = [followed[d] for d in axis]
            shape += sizes[0] if isinstance(sizes[0], tuple) else [math.prod(sizes)]
        found[p.name] = _held(held, p.dtype, shape, generator)
    return found


def _held(held: str, dtype: str, shape: list[int], generator: torch.Generator) -> Tensor:
    """A tensor of a dtype (a variable: float64) that holds what a line says."""
    if dtype == "bool":
        seen = torch.rand(shape, generator=generator) < 0.6
        seen[..., 0, :] = False
        return seen
    if held in RAGGED:
        return torch.tensor(RAGGED[held])
    if dtype in DTYPES and DTYPES[dtype].stored.name == "u8":
        x = torch.randint(0, 256, shape, generator=generator).to(torch.uint8)
        if not DTYPES[dtype].coded:
            return x.view(getattr(torch, DTYPES[dtype].torch))
    if dtype in DTYPES and not DTYPES[dtype].is_float:
        low, high = (0, SIZES[held]) if held else (-127, 128)
        return torch.randint(low, high, shape, generator=generator).to(getattr(torch, DTYPES[dtype].torch))
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    if dtype in DTYPES and DTYPES[dtype].coded:
        return x.to(getattr(torch, DTYPES[dtype].torch))
    made = HOLDING.get(held, lambda x: x)(x)
    return made.float() if dtype == "f32" else made
