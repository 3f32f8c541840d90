"""Every operator of the table over every 16-bit float, on a target: the worst errors as a table.

A kernel is written for a group of operators (several results, so that one build serves many), run on all 65,536 inputs
of f16 and of bf16 (second operands from a list with every special value), and compared with torch's float64 rounded once.
f32 is sampled, and held to the bound of its row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kgen.backends import TARGETS, backend
from kgen.ops import OPS, Op
from kgen.syntax import Num
from kgen.testing.trees import NOWHERE, applied, word
from kgen.typeset import format_expr

HEADS = ("operator", "target", "f16 ulp", "bf16 ulp", "f32 ulp", "f32 bound")
FORMATS = ("f16", "bf16", "f32")
SECOND = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -2.5, 7.0, 10.0, -10.0, 100.0, 0.1, -0.1, 0.3, 1e-3, 1e-5, -1e-5, 6e-8,
    1e-7, 1000.0, -1000.0, 20000.0, 65504.0, -65504.0, math.pi, 255.0, 0.9995, 1.001, math.inf, -math.inf, math.nan,
)  # fmt: skip
THIRD = (0.0, 1.0, -1.0, 3.0, -0.5, 100.0, math.inf, math.nan)
#: Where eager itself does not say which zero: maximum(0.0, -0.0).
ANY_ZERO = ("max", "min", "clamp", "mod", "where", "floordiv", "fma", "sub", "add")
GROUP = 8


def groups() -> Iterator[tuple[int, list[Op]]]:
    """The operators that take and give floats, or test floats, in groups of one arity."""
    for arity in (1, 2, 3):
        rows = [op for op in OPS.values() if op.arity == arity and op.rule in ("float", "same", "arith", "test", "compare", "where")]
        for k in range(0, len(rows), GROUP):
            yield arity, rows[k : k + GROUP]


def spec(arity: int, rows: list[Op]) -> str:
    """A spec with a result for each operator of a group."""
    names = ("a", "b", "c")[:arity]
    results, lines = [], []
    for op in rows:
        boolean = op.rule in ("test", "compare")
        results.append(f"r_{op.name}: {'bool' if boolean else 'T'}[...]")
        a, *others = map(word, names)
        first = applied("gt", a, Num("0", NOWHERE)) if op.rule == "where" else a
        lines.append(f"r_{op.name} = {format_expr(applied(op.name, first, *others))}")
    params = ", ".join(f"{n}: T[...]" for n in names)
    return f"sweep({params}) -> ({', '.join(results)})\n" + "\n".join(lines)


def inputs(dtype: str, arity: int) -> list[Any]:
    """All inputs of a 16-bit dtype (a million samples of f32's bit patterns), and the further operands, to be broadcast."""
    import torch

    if dtype == "f32":
        generator = torch.Generator().manual_seed(7)
        count = 1 << (20 if arity == 1 else 14)
        first = torch.randint(-(2**31), 2**31 - 1, (count,), generator=generator, dtype=torch.int64).to(torch.int32).view(torch.float32)
        first = torch.cat([first, torch.randn(count, generator=generator) * 3, torch.rand(count, generator=generator) * 2 - 1])
    else:
        bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
        first = bits.view(torch.float16 if dtype == "f16" else torch.bfloat16)
    made = [first]
    for k, values in enumerate((SECOND, THIRD)[: arity - 1]):
        made.append(torch.tensor(values, dtype=torch.float64).to(first.dtype).reshape(-1, *[1] * (k + 1)))
    return made


def reference(op: Op, operands: list[Any], dtype: str) -> tuple[Any, Any]:
    """The exact values (float64) and what eager gives in the dtype itself."""
    import torch

    function = op.reference(torch)

    def run(xs: list[Any]) -> Any:
        if op.rule == "where":
            return torch.where(xs[0] > 0, xs[1], xs[2])
        return function(*torch.broadcast_tensors(*xs))

    return run([x.double() for x in operands]), run(operands)


def measure(op: Op, got: Any, exact: Any, eager: Any, dtype: str) -> tuple[float, str]:
    """The worst error in ulp from the correctly rounded result (f32: from the exact one), and what is wrong, or ""."""
    import torch

    from kgen.testing.bounds import FORMATS as LIMITS
    from kgen.testing.bounds import ulp

    if got.dtype == torch.bool:
        wrong = got != exact
        return (0.0, f"{int(wrong.sum())} of {wrong.numel()} differ from eager") if bool(wrong.any()) else (0.0, "")
    rounded = exact.to(got.dtype)
    y, x = got.double(), rounded.double() if dtype != "f32" else exact
    special = torch.isnan(x) != torch.isnan(y)
    special |= torch.isinf(y) & torch.isfinite(x) & (x.abs() < LIMITS[dtype][2])
    special |= torch.isinf(x) & (y != x) & ~((y.abs() == LIMITS[dtype][2]) & torch.isfinite(exact))
    if op.name not in ANY_ZERO:
        special |= (x == 0) & (y == 0) & (torch.signbit(x) != torch.signbit(y))
    if bool(special.any()):
        at = int(special.flatten().nonzero()[0])
        return (
            math.inf,
            f"{int(special.sum())} special values differ, first {y.flatten()[at].item()} for {x.flatten()[at].item()} (input {at})",
        )
    finite = torch.isfinite(x) & torch.isfinite(y)
    error = ((y - x).abs() / ulp(x, dtype))[finite]
    return (float(error.max()) if error.numel() else 0.0), ""


def table(targets: list[str], progress: bool = False, formats: tuple[str, ...] = FORMATS) -> tuple[list[tuple[str, ...]], list[str]]:
    """Rows of (operator, target, worst error for each dtype, bound), and a line for each failure: a 16-bit result more than 1
    ulp from the correctly rounded one, an f32 result past its row's bound, a special value that differs from eager's."""
    import torch

    from kgen.runtime.kernel import loads
    from kgen.testing.checks import _progress

    found: dict[tuple[str, str], dict[str, float]] = {}
    failed: list[str] = []
    work = list(groups())
    with _progress("operators", len(work) * len(formats) * len(targets), progress) as advance:
        for arity, rows in work:
            kernel = loads(spec(arity, rows), "sweep")
            for dtype in formats:
                operands = inputs(dtype, arity)
                exact = {op.name: reference(op, operands, dtype) for op in rows}
                for target in targets:
                    device = TARGETS[target].device
                    got = kernel(*(x.to(device) for x in operands), target=target)
                    nan = torch.isnan(operands[0])
                    for op, y in zip(rows, got if isinstance(got, tuple) else (got,), strict=True):
                        y = y.cpu()
                        if op.name == "signbit":  # a NaN's sign does not survive its conversion
                            y = torch.where(nan, exact[op.name][0], y)
                        worst, why = measure(op, y, *exact[op.name], dtype)
                        found.setdefault((op.name, target), {})[dtype] = worst
                        limit = backend(target).spell(op).ulp[0] if dtype == "f32" else 1.0
                        if why or worst > limit:
                            failed.append(f"{op.name} on {target}, {dtype}: {why or f'{worst:.2f} ulp, over {limit}'}")
                    advance()
    table_rows = []
    for (name, target), by_dtype in found.items():
        bound = backend(target).spell(OPS[name]).ulp[0]
        table_rows.append((name, target, *(f"{by_dtype[d]:.2f}" if d in by_dtype else "-" for d in FORMATS), f"{bound:g}"))
    return table_rows, failed
