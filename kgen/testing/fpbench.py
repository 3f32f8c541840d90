"""FPBench's scalar expressions as specs: `python -m kgen.testing.fpbench FILE.fpcore... [-o DIR] [--check]`.

In: texts in FPCore 2.0 (https://fpbench.org), of which there are none here.  Out: a spec for each that is scalar and has
no loop, a `KgenError` at its place for each other one; and with `--check` how far each kernel's result lies from the real value.

`:precision` (or the older `:type`) gives the dtype: f64, f32, f16, bf16, or `T` without one.  `!` with another precision and
`cast` become casts: an operator under a narrower precision rounds its result, one under a wider takes wide operands.
`:pre` becomes a comment, and the arguments of a check satisfy it: each is drawn from the interval that the precondition's
comparisons with constants leave it, half of them evenly and half log-uniform, and rejected where the whole does not hold.

A check knows two references: kgen's own exact reading (`bounds.Analysis`), and the FPCore itself, evaluated by mpmath in
600 bits without any of kgen's code but the bound.  Expressions of constants alone are what the host computes in f64, by
definition; so they are here.  Where an argument has no real value (NaN, or more than f64 holds on the way) the second is silent.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kgen.backends import TARGETS
from kgen.errors import KgenError
from kgen.testing.fpcore import COMPARE, NUMBER, Conversion, Node, constant_value, convert, fraction_of, multiprecision

HEADS = ("name", "dtype", "target", "cases", "unbounded", "worst ulp", "bound ulp", "of bound", "eager ulp")
#: The precision, in bits, of a real value.
BITS = 600


# ---------------------------------------------------------------------- the real value


class NoValue(Exception):
    """An argument for which an FPCore has no real value that f64 could hold."""


class Real:
    """FPCore's own meaning, in real numbers: `Real(conversion)(arguments)` is a number of mpmath's or a bool.

    Raises `NoValue` where there is no real value, and `KgenError` at an operator that it does not know.
    """

    def __init__(self) -> None:
        """mpmath's own functions by FPCore's names, in `BITS` bits."""
        self.mp = multiprecision()
        self.mp.prec = BITS
        mp = self.mp
        self.unary: dict[str, Callable] = {
            "fabs": abs, "exp": mp.exp, "exp2": lambda x: mp.power(2, x), "expm1": mp.expm1, "log": mp.log, "log10": mp.log10,
            "log2": lambda x: mp.log(x, 2), "log1p": lambda x: mp.log(1 + x), "sqrt": mp.sqrt,
            "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)), "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "asin": mp.asin, "acos": mp.acos,
            "atan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh, "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
            "erf": mp.erf, "erfc": mp.erfc, "lgamma": lambda x: mp.loggamma(x).real, "ceil": mp.ceil, "floor": mp.floor,
            "trunc": lambda x: mp.sign(x) * mp.floor(abs(x)), "nearbyint": mp.nint, "round": lambda x: mp.sign(x) * mp.floor(abs(x) + 0.5),
            "isfinite": lambda x: True, "isinf": lambda x: False, "isnan": lambda x: False, "signbit": lambda x: x < 0,
        }  # fmt: skip
        self.binary: dict[str, Callable] = {
            "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "pow": self.power,
            "hypot": mp.hypot, "atan2": mp.atan2, "copysign": lambda a, b: abs(a) if b >= 0 else -abs(a), "fmax": max, "fmin": min,
            "fdim": lambda a, b: max(a - b, mp.mpf(0)), "fmod": lambda a, b: a - b * self.unary["trunc"](a / b),
            "remainder": lambda a, b: a - b * mp.nint(a / b),
        }  # fmt: skip

    def power(self, a: Any, b: Any) -> Any:
        if a != 0 and abs(b) * abs(self.mp.log(abs(a))) > 2000:
            raise NoValue
        return self.mp.power(a, b)

    def __call__(self, node: Node, env: dict[str, Any]) -> Any:
        return self.value(node, {k: (self.mp.mpf(v), False) for k, v in env.items()})[0]

    def value(self, node: Node, env: dict[str, tuple[Any, bool]]) -> tuple[Any, bool]:
        """The value of a node, and whether it is one of constants alone."""
        if not node.is_list:
            return env[node.text] if node.text in env else (self.constant(node.text), True)
        op, args = node.items[0].text, node.items[1:]
        if op == "!":
            return self.value(args[-1], env)
        if op in ("let", "let*"):
            inner = dict(env)
            for b in args[0].items:
                inner[b.items[0].text] = self.value(b.items[1], inner if op == "let*" else env)
            return self.value(args[1], inner)
        if op == "if":
            return self.value(args[1] if self.value(args[0], env)[0] else args[2], env)[0], False
        found = [self.value(a, env) for a in args]
        values, constant = [v for v, _ in found], all(c for _, c in found)
        if op in COMPARE:
            values = [self.mp.mpf(float(v)) if c else v for v, c in found]  # as it is written, in f64
            pairs = zip(values, values[1:], strict=False)
            return {"<": lambda: all(a < b for a, b in pairs), "<=": lambda: all(a <= b for a, b in pairs),
                    ">": lambda: all(a > b for a, b in pairs), ">=": lambda: all(a >= b for a, b in pairs),
                    "==": lambda: all(a == b for a, b in pairs), "!=": lambda: len({*values}) == len(values)}[op](), False  # fmt: skip
        if op in ("and", "or", "not"):
            return (all(values) if op == "and" else any(values) if op == "or" else not values[0]), False
        if not constant:
            return self.apply(op, values), False
        with self.mp.workprec(53):  # what the host computes
            return self.apply(op, [+v for v in values]), True

    def constant(self, text: str) -> Any:
        if NUMBER.match(text):
            exact = fraction_of(text)
            value = self.mp.mpf(exact.numerator) / exact.denominator
        else:
            value = constant_value(self.mp, text)
        return value

    def apply(self, op: str, values: list[Any]) -> Any:
        """An operator's real value.  Raises `NoValue` where there is none that f64 could hold, `KgenError` for an operator that
        is not known."""
        mp = self.mp
        try:
            if op in ("exp", "exp2", "expm1", "sinh", "cosh") and abs(values[0]) > 2000:
                raise NoValue
            if op == "fma":
                result = values[0] * values[1] + values[2]
            elif op == "cast":
                result = values[0]
            elif op == "-" and len(values) == 1:
                result = -values[0]
            elif len(values) == 1:
                result = self.unary[op](values[0])
            else:
                result = self.binary[op](values[0], values[1])
                for v in values[2:]:
                    result = self.binary[op](result, v)
        except (ZeroDivisionError, ValueError, OverflowError):
            raise NoValue from None
        except (KeyError, IndexError):
            raise KgenError(f"`{op}` has no real value here") from None
        if not isinstance(result, bool) and (isinstance(result, mp.mpc) or not mp.isfinite(result) or abs(result) > 1.797e308):
            raise NoValue
        return result


# ---------------------------------------------------------------------- arguments


def draw(conversion: Conversion, count: int, dtypes: dict[str, str], seed: int = 0) -> list[dict[str, float]]:
    """`count` cases (fewer where they are rare), each a value for each argument of an FPCore, that satisfy its precondition.

    `dtypes` are the arguments', by name: the values are rounded to them before the precondition is asked.
    """
    import torch

    rnd, real = random.Random(f"{conversion.name} {seed}"), Real()
    boxes = _boxes(conversion.pre, real) if conversion.pre else {}
    names = list(dict.fromkeys([*conversion.dtypes]))
    formats = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
    found: list[dict[str, float]] = []
    for _ in range(200 * count):
        raw = [_between(rnd, *boxes.get(n, (-math.inf, math.inf)), dtypes[n]) for n in names]
        case = {n: torch.tensor(x, dtype=formats[dtypes[n]]).item() for n, x in zip(names, raw, strict=True)}
        if not all(map(math.isfinite, case.values())):
            continue
        try:
            if conversion.pre is None or real(conversion.pre, case):
                found.append(case)
        except NoValue:
            continue
        if len(found) == count:
            break
    return found


def _boxes(pre: Node, real: Real) -> dict[str, tuple[float, float]]:
    """The interval of each argument that stands between constants in one of the conjunction's comparisons."""
    boxes: dict[str, tuple[float, float]] = {}
    parts = [pre]
    while parts:
        node = parts.pop()
        op, args = (node.items[0].text, node.items[1:]) if node.is_list and node.items else ("", ())
        if op == "and":
            parts.extend(args)
        if op not in ("<", "<=", ">", ">=", "=="):
            continue
        ordered = args if op[0] != ">" else args[::-1]
        known = [_constant_of(a, real) for a in ordered]
        for k, a in enumerate(ordered):
            if a.is_list or known[k] is not None:
                continue
            low = max((x for x in known[:k] if x is not None), default=-math.inf)
            high = min((x for x in known[k + 1 :] if x is not None), default=math.inf)
            if op == "==":
                low = high = next((x for x in known if x is not None), None) or 0.0
            before = boxes.get(a.text, (-math.inf, math.inf))
            boxes[a.text] = max(low, before[0]), min(high, before[1])
    return boxes


def _constant_of(node: Node, real: Real) -> float | None:
    if node.text == "INFINITY":
        return math.inf
    try:
        value, constant = real.value(node, {})
    except (NoValue, KeyError, KgenError, ValueError):
        return None
    return float(value) if constant else None


def _between(rnd: random.Random, low: float, high: float, dtype: str) -> float:
    """A number of an interval: evenly where both ends are finite, or by the logarithm of its size."""
    if math.isfinite(low) and math.isfinite(high) and rnd.random() < 0.5:
        return rnd.uniform(low, high)
    far = {"f16": 4.0, "bf16": 30.0, "f32": 30.0, "f64": 100.0}[dtype] if rnd.random() < 0.1 else min(10.0, 4.0 if dtype == "f16" else 10.0)
    negative = low < 0 and (high <= 0 or rnd.random() < 0.5)
    near, end = (max(-high, 0.0), -low) if negative else (max(low, 0.0), high)
    top = math.log10(end) if math.isfinite(end) and end > 0 else max(far, math.log10(near) + far if near > 0 else far)
    bottom = math.log10(near) if near > 0 else min(-far, top - 4)
    size = 10.0 ** min(rnd.uniform(bottom, top), 308.0)
    return -size if negative else size


# ---------------------------------------------------------------------- the check


@dataclass
class Row:
    """How one kernel did in one dtype: errors in ulp of the stored dtype, against the real value where there is one."""

    name: str
    dtype: str
    target: str
    cases: int = 0
    unbounded: int = 0
    worst: float = 0.0
    bound: float = 0.0
    fraction: float = 0.0
    eager: float = 0.0
    failure: str = ""

    def cells(self) -> tuple[str, ...]:
        figures = (self.worst, self.bound, self.eager)
        worst, bound, eager = (f"{x:.2f}" if x < 1000 else f"{x:.3g}" for x in figures)
        return self.name, self.dtype, self.target, f"{self.cases:,}", f"{self.unbounded:,}", worst, bound, f"{self.fraction:.0%}", eager


def check(conversion: Conversion, target: str = "cpp", cases: int = 200, seed: int = 0) -> list[Row]:
    """Hold a converted FPCore within its derived bound: a row for each dtype (f64 and f32 where it says none).

    Raises the conversion's own `KgenError`, and one where no arguments satisfy the precondition.
    """
    if conversion.error is not None:
        raise conversion.error
    from kgen.runtime.kernel import loads

    runnable = loads(conversion.spec)
    variable = "T" in {p.dtype for p in runnable.kernel.params} or any(r.dtype == "T" for r in runnable.kernel.results)
    return [_check(conversion, runnable, dtype, target, cases, seed) for dtype in (("f64", "f32") if variable else ("",))]


def _check(conversion: Conversion, runnable: Any, dtype: str, target: str, cases: int, seed: int) -> Row:
    """A row for one dtype of a converted FPCore: the kernel's results against its bound and against the real value.  Raises
    `KgenError` where no arguments satisfy the precondition."""
    import torch

    from kgen.runtime.evaluate import Evaluator
    from kgen.testing import checks
    from kgen.testing.bounds import FORMATS, Analysis, ulp
    from kgen.types import DTYPES

    dtypes = {a: dtype if d == "T" else d for a, d in conversion.dtypes.items()}
    drawn = draw(conversion, cases, dtypes, seed)
    if not drawn:
        raise KgenError(f"no arguments were found that satisfy {conversion.pre}")
    kernel = runnable.kernel
    given = {p: torch.tensor([c[a] for c in drawn], dtype=getattr(torch, DTYPES[dtypes[a]].torch)) for a, p in conversion.names.items()}
    stored = {"T": dtype}.get(kernel.results[0].dtype, kernel.results[0].dtype)
    row = Row(conversion.name, stored, target, len(drawn))
    (want,) = Analysis(kernel, given, "cpp" if target == "torch" else target).results()
    (eager,) = Evaluator(kernel, given, "eager").run()
    device = "cuda" if target in ("triton", "cuda") else "cpu"
    got = runnable(**{k: x.to(device) for k, x in given.items()}, target=target).cpu()
    report = checks.Report(kernel.name, target)
    row.failure = str(checks.compare(got, want, eager, report))
    row.unbounded = report.unbounded
    real = Real()
    for k, case in enumerate(drawn):
        limit = float(want.bound[k])
        if not math.isfinite(limit) or conversion.casts or conversion.body is None:
            continue
        try:
            exact = real(conversion.body, case)
        except (NoValue, KgenError):
            continue
        if isinstance(exact, bool):
            if bool(got[k]) != exact:
                row.failure = row.failure or f"{bool(got[k])} at {case}, not {exact}"
            continue
        x = float(got[k].double())
        if not math.isfinite(x):
            if abs(exact) + limit < FORMATS[stored][2]:
                row.failure = row.failure or f"{x} at {case}, exactly {real.mp.nstr(exact, 9)}"
            continue
        unit = float(ulp(torch.tensor(float(exact), dtype=torch.float64), stored))
        error = float(abs(real.mp.mpf(x) - exact))
        row.worst, row.bound = max(row.worst, error / unit), max(row.bound, limit / unit)
        row.fraction = max(row.fraction, error / limit if limit else math.inf if error else 0.0)
        other = float(eager[k].double())
        row.eager = max(row.eager, float(abs(real.mp.mpf(other) - exact)) / unit if math.isfinite(other) else 0.0)
        if error > limit * (1 + 1e-9):
            row.failure = (
                row.failure or f"{x:.17g} at {case}, exactly {real.mp.nstr(exact, 17)} (bound {limit:.3g}, {error / unit:.2f} ulp)"
            )
    return row


# ---------------------------------------------------------------------- the command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, required=True, metavar="FILE.fpcore...")
@click.option("-o", "--output", metavar="DIR", help="Write the specs into this folder.")
@click.option("--check", "checked", is_flag=True, help="Hold each kernel within its derived bound.")
@click.option("--target", type=click.Choice([*TARGETS, "torch"]), default="cpp", show_default=True)
@click.option("--cases", type=click.IntRange(min=1), default=200, show_default=True, metavar="N")
@click.option("--seed", type=int, default=0, metavar="S")
def main(files: tuple[str, ...], output: str | None, checked: bool, target: str, cases: int, seed: int) -> None:
    """FPBench's FPCore files as specs; without -o or --check the specs go to stdout."""
    rows: list[Row] = []
    refused: list[str] = []
    number = 0
    for file in files:
        try:
            conversions = convert(Path(file).read_text(encoding="utf-8"), file)
        except (OSError, UnicodeDecodeError, KgenError) as error:
            click.echo(error.render() if isinstance(error, KgenError) else f"error: cannot read {file}", err=True)
            raise SystemExit(1) from None
        number += len(conversions)
        for c in conversions:
            if c.error is None and output:
                folder = Path(output)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{_spec_name(c)}.k").write_text(c.spec, encoding="utf-8")
            elif c.error is None and not checked:
                click.echo(c.spec)
            try:
                rows += check(c, target, cases, seed) if checked else check_nothing(c)
            except KgenError as error:
                refused.append(f"{c.name}: {error.diagnostics[0].message}")
    failed = [r for r in rows if r.failure]
    if checked:
        _table([HEADS, *(r.cells() for r in rows)])
        for r in failed:
            click.echo(f"failed: {r.name} in {r.dtype} on {r.target}: {r.failure}", err=True)
    for line in refused:
        click.echo(f"refused: {line}", err=True)
    click.echo(f"{number} FPCores, {number - len(refused)} {'checked' if checked else 'converted'}, "
               f"{len({r.name for r in failed})} failed, {len(refused)} refused", err=not checked and not output)  # fmt: skip
    if failed:
        raise SystemExit(1)


def check_nothing(conversion: Conversion) -> list[Row]:
    """No rows; the conversion's error where it has one."""
    if conversion.error is not None:
        raise conversion.error
    return []


def _spec_name(conversion: Conversion) -> str:
    found = re.search(r"^(\w+)\(", conversion.spec, re.M)
    assert found is not None
    return found.group(1)


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(r[k]) for r in rows) for k in range(len(HEADS))]
    for r in rows:
        cells = (c.ljust(w) if k < 3 else c.rjust(w) for k, (c, w) in enumerate(zip(r, widths, strict=True)))
        click.echo("  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
