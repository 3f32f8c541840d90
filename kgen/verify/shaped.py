"""Tensors whose rows are special as a whole, as numbers that are drawn one by one hardly ever are.

In: a plain kernel.  Out: labelled arguments: rows that hold one value alone (-inf, NaN, the least float, subnormals, 0 of either sign),
so that an identity that is no identity and a difference of infinities are seen; rows of one magnitude each; and rows that are longer than
what any schedule reads at once, which begin with infinities, or rise, so that a maximum moves while sums about it
are made.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from kgen import check as checker
from kgen.ops import REDUCTIONS, SCANS
from kgen.runtime.placed import picked
from kgen.testing.cases import FLOATS, Draw, Limits
from kgen.types import ELLIPSIS

#: Elements of short and of longer rows: below and above what is reduced row by row.
SHORT, LONGER = 5, 67
#: Elements of a row that kernels for the CPU, too, read in several pieces, the last of them short, and in several parts itself.
VERY_LONG = 3 * 65_536 + 5 * 2048 + 77
#: Elements of a tensor of a case whose sizes are set.
MOST = 1 << 22
#: Operators of which numbers below 0 make NaN.
POSITIVE = frozenset({"log", "log2", "log1p", "sqrt", "rsqrt", "pow", "xlogy"})
#: Reductions of a kernel up to which it gets such rows: a search has one for each bit.
FEW = 4


def drawn(kernel: checker.Kernel, seed: int, number: int, limits: Limits) -> dict[str, Any]:
    """The arguments of a random case.  Sizes that are set are halved where they would make a tensor of more than MOST elements: axes of
    several dims, some of which have literal sizes or follow from numbers, are longer than the dim that is set."""
    draw = Draw(kernel, seed, number, limits)
    every = [*(p.dims for p in kernel.params if p.dims), *(r.dims for r in kernel.results)]
    sizes = {d: limits.size(d) for d in limits.sizes or {}}
    while sizes:
        length = {**draw.sizes, ELLIPSIS: math.prod(draw.batch)}
        wide = {d: max(n) for d, n in sizes.items() if max(n, default=0) > 1}
        if max((math.prod(length.get(d, 1) for d in of) for of in every), default=0) <= MOST or not wide:
            break
        widest = max(wide, key=lambda d: wide[d])
        sizes[widest] = tuple(-(-n // 2) if n == wide[widest] else n for n in sizes[widest])
        draw = Draw(kernel, seed, number, replace(limits, sizes=dict(sizes)))
    return draw.written(draw.arguments())


def special_rows(kernel: checker.Kernel, limits: Limits, seed: int) -> list[tuple[str, dict[str, Any]]]:
    """The cases of a kernel that reduces or scans rows, each with its label; `limits` are those of dense tensors."""
    over = reduced(kernel)
    if not over:
        return []
    found = []
    for k, length in enumerate((LONGER, SHORT)):
        arguments = _drawn(kernel, _in(kernel, limits, ("f32", "bf16")[k]), seed + k, over, length, len(FLOATS))
        found.append(("rows of one value each", {n: _one_value(x, k) for n, x in arguments.items()}))
        found.append(("rows of every magnitude", {n: _scaled(x) for n, x in arguments.items()}))
    if any(v.op in SCANS for v in kernel.values) or sum(v.op in REDUCTIONS for v in kernel.values) > FEW:
        return found
    for dtype in ("f32", "f64", "bf16"):  # what sums of f32 in any order may lose hides much in such rows
        within = _in(kernel, limits, dtype)
        if dtype != "f32" and not any(within.of(v) == (dtype,) for v in kernel.variables):
            continue
        arguments = _drawn(kernel, within, seed, over, VERY_LONG, 4)
        indices = [x for x in arguments.values() if hasattr(x, "dtype") and not x.dtype.is_floating_point and x.numel()]
        for p in kernel.params:  # a class that is ignored, in such a row
            if indices and not p.is_tensor and p.dtype == "int":
                arguments[p.name] = int(indices[0].flatten()[0])
        found.append(("very long rows", {n: _risen(x) for n, x in arguments.items()}))
        if dtype != "bf16" and any(v.op in POSITIVE for v in kernel.values):  # of which others make NaN of each row
            found.append(("very long rows of positive numbers", {n: _shares(x) for n, x in arguments.items()}))
    return found


def _shares(x: Any) -> Any:
    """A tensor of long rows of positive numbers, which add up to 1."""
    if not _is_rows(x) or x.numel() // x.shape[0] < VERY_LONG:
        return x
    rows = x.view(x.shape[0], -1).double().abs() + 2.0**-10
    return (rows / rows.sum(-1, keepdim=True)).to(x.dtype).view(x.shape)


def far_outside(kernel: checker.Kernel, limits: Limits, seed: int) -> dict[str, Any] | None:
    """A case of indices that lie so far outside that no memory is there; None of a kernel that looks nothing up."""
    import torch

    arguments = drawn(kernel, seed, 16, replace(limits, special=False, broadcast=False))
    names = [n for n in picked(kernel) if hasattr(arguments.get(n), "dtype") and arguments[n].dtype in (torch.int32, torch.int64)]
    for name in names:
        x = arguments[name].contiguous().clone()
        most = 1 << (40 if x.dtype == torch.int64 else 30)
        x.view(-1)[::3], x.view(-1)[1::3] = most, -most
        arguments[name] = x
    return arguments if names else None


def _in(kernel: checker.Kernel, limits: Limits, dtype: str) -> Limits:
    """The limits, of a dtype where they allow it."""
    may = {v: dtype for v in kernel.variables if not limits.of(v) or dtype in limits.of(v)}
    return replace(limits, dtypes={**(limits.dtypes or {}), **may})


def reduced(kernel: checker.Kernel) -> list[str]:
    """The dims with names that a kernel reduces or scans."""
    over = {d for v in kernel.values if v.op in REDUCTIONS and v.attr for d in v.attr if d != ELLIPSIS}
    over |= {v.attr[0] for v in kernel.values if v.op in SCANS}
    return sorted(over - set(kernel.literals))


def _drawn(kernel: checker.Kernel, limits: Limits, seed: int, over: list[str], length: int, rows: int) -> dict[str, Any]:
    """A case of normal numbers whose rows have a length, and so many of them."""
    dims = [p.dims or () for p in kernel.params]
    free = {d for of in dims for d in of if d != ELLIPSIS} - set(kernel.literals)
    parts = max((math.prod(kernel.literals.get(d, 1) for d in of) for of in dims if over[0] in of), default=1)  # of a row, in G * 128
    sizes: dict[str, Any] = {d: (1,) for d in free} | {d: (2,) for d in over} | {over[0]: (-(-length // parts),)}
    if any(ELLIPSIS in of for of in dims):
        sizes[ELLIPSIS] = (rows,)
    elif first := next((of[0] for of in dims if len(of) > 1 and of[0] in free and of[0] not in over), None):
        sizes[first] = (rows,)
    return drawn(kernel, seed, 0, replace(limits, sizes=sizes, special=False, broadcast=False, max_elements=MOST))


def _is_rows(x: Any) -> bool:
    """Whether an argument has rows: a parameter that all rows share has but one."""
    return hasattr(x, "dtype") and x.dtype.is_floating_point and x.dim() > 1 and x.shape[0] > 1 and x.numel() > 0


def _one_value(x: Any, shift: int) -> Any:
    """A tensor of rows, each of which holds one special value."""
    import torch

    if not _is_rows(x):
        return x
    values = torch.tensor([FLOATS[(k + shift) % len(FLOATS)] for k in range(x.shape[0])], dtype=torch.float64).to(x.dtype)
    return values.view(-1, *[1] * (x.dim() - 1)).expand(x.shape).contiguous()


def _scaled(x: Any) -> Any:
    """A tensor of rows of normal numbers, from the least magnitudes to the largest."""
    import torch

    if not _is_rows(x):
        return x
    least, most = (-1060, 1000) if x.dtype == torch.float64 else (-24, 14) if x.dtype == torch.float16 else (-146, 124)
    powers = 2.0 ** torch.linspace(least, most, x.shape[0], dtype=torch.float64).round()
    return (x.double() * powers.view(-1, *[1] * (x.dim() - 1))).to(x.dtype)


def zeros_and_ones(kernel: checker.Kernel, limits: Limits, seed: int) -> dict[str, Any]:
    """A case of 0, -0, 1 and -1 alone, by which the sign of a zero is seen that several operands give."""
    import torch

    made: dict[str, Any] = {}
    for name, x in drawn(kernel, seed, 13, replace(limits, special=False, broadcast=False)).items():
        if hasattr(x, "dtype") and x.dtype.is_floating_point and x.dtype.itemsize > 1:
            values = torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=x.dtype)
            made[name] = values[torch.randint(0, 4, x.shape, generator=torch.Generator().manual_seed(seed + len(made)))]
        else:
            made[name] = x
    return made


def _risen(x: Any) -> Any:
    """A tensor of long rows: the first begins with -inf, the second is positive, the last is as low as numbers go, the others rise."""
    import torch

    if not _is_rows(x) or x.numel() // x.shape[0] < VERY_LONG:
        return x
    made = x.clone()
    rows = made.view(x.shape[0], -1)
    n = rows.shape[1]
    rows[0, : n // 2 + 4097] = -torch.inf
    if len(rows) > 1:
        rows[1] = rows[1].abs() + 0.5
    rows[2:] += torch.linspace(-200, 200, n, dtype=torch.float64).to(x.dtype)
    if len(rows) > 3:
        rows[-1] = -6e4 if x.dtype == torch.float16 else -3e38
    return made
