"""How far a kernel's result may lie from the exact one: a bound derived from the formula, element by element.

Running error analysis in float64.  Each operator adds its own bound (its row's, in units in the last place of the dtype
computed in); what its operands carry is moved through it by evaluating it at the ends of their intervals.  The stored
result adds its rounding.  A comparison whose interval holds a tie, or a value that overflows the dtype computed in, has
no bound: infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from kgen.check import Kernel, Value
from kgen.ops import OPS
from kgen.runtime.evaluate import Evaluator
from kgen.types import DTYPES, DType, Float, Number, f32, f64, is_float, resolve

#: digits after the leading one, least exponent of a normal number, largest finite value
FORMATS = {
    "f16": (10, -14, 65504.0),
    "bf16": (7, -126, 3.3895313892515355e38),
    "f32": (23, -126, 3.4028234663852886e38),
    "f64": (52, -1022, 1.7976931348623157e308),
}


def ulp(x: Any, dtype: str) -> Any:
    """The distance between neighbours of a float format about x (a float64 tensor), denormals included."""
    import torch

    digits, least, _ = FORMATS[dtype]
    _, exponent = torch.frexp(x.abs())
    return torch.ldexp(torch.ones_like(x), torch.where(x == 0, least, exponent - 1).clamp(min=least) - digits)


@dataclass(frozen=True)
class Bounded:
    """A result: its exact value (float64, or integers), the bound on |result - exact|, and its dtype's name."""

    exact: Any
    bound: Any
    dtype: str


class Analysis(Evaluator):
    """The exact reading of a kernel, with an error for every value; `target` chooses the rows' bounds."""

    def __init__(self, kernel: Kernel, arguments: dict[str, Any], target: str):
        super().__init__(kernel, arguments, "exact")
        self.target = target
        self.names = {v: str(d).removeprefix("torch.") for v, d in self.binding.items()}
        self.bound_dtypes = {v: next(d for d in DTYPES.values() if d.torch == name) for v, name in self.names.items()}

    def results(self) -> list[Bounded]:
        values, errors = self.analyse()
        torch = self.torch
        found = []
        for r in self.kernel.results:
            stored = resolve(r.dtype, self.bound_dtypes)
            x, e = values[r.value], errors[r.value]
            if not isinstance(x, torch.Tensor):
                x = torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else None).reshape([1] * len(self.order))
                e = torch.zeros_like(x, dtype=torch.float64)
            if stored.is_float:
                e = e + 0.5 * ulp(x.double(), stored.name)
                if stored is f64:  # the reference is rounded as well
                    e = e + 0.5 * ulp(x.double(), "f64")
                x = x.double()
            exact = self.finish(x, r.dims, x.dtype)
            found.append(
                Bounded(exact, self.finish(e.expand(torch.broadcast_shapes(e.shape, x.shape)), r.dims, torch.float64), stored.name)
            )
        return found

    def analyse(self) -> tuple[list, list]:
        values: list[Any] = []
        errors: list[Any] = []
        for v in self.kernel.values:
            args = [values[a] for a in v.args]
            x = self.value(v, args)
            values.append(x)
            errors.append(self.error(v, x, args, [errors[a] for a in v.args]))
        return values, errors

    def compute(self, v: Value) -> str:
        """The float dtype in which a value is computed."""
        t = v.type
        return (t.compute(self.bound_dtypes) if hasattr(t, "compute") else f32).name  # type: ignore[union-attr]

    def error(self, v: Value, x: Any, args: list, carried: list) -> Any:
        torch = self.torch
        if isinstance(v.type, Number):
            return None
        zero = torch.zeros((), dtype=torch.float64)
        if v.op in ("param", "index") or not v.args:
            return zero
        row = OPS.get(v.op)
        float_result = isinstance(x, torch.Tensor) and x.dtype.is_floating_point
        format_ = self.compute(v)
        entering = [self.entering(v, a) if e is None else e for a, e in zip(args, carried, strict=True)]
        if v.op in OPS and self.common_format(v) == "f32":
            for k, of in enumerate(v.args):
                operand = self.kernel.values[of]
                integer = isinstance(operand.type, DType) and operand.type.is_int and OPS[v.op].rule != "test"
                if integer and (float_result or self.meets_float(v)):  # an integer of more than 24 bits rounds on its way to f32
                    wide = args[k].double()
                    entering[k] = torch.where(wide.float().double() != wide, 0.5 * ulp(wide, "f32"), entering[k])
                elif isinstance(operand.type, Float) and self.compute(operand) == "f64":  # narrowed, as 0-d tensors are
                    entering[k] = torch.where(args[k].abs() > FORMATS["f32"][2], torch.inf, entering[k] + 0.5 * ulp(args[k], "f32"))
        moved = self.moved(v, x, args, entering)
        if not float_result:
            return torch.where(moved != 0, torch.inf, 0.0)
        if v.op == "cast":
            digits = (
                str(v.attr)
                if str(v.attr) in FORMATS
                else self.bound_dtypes[str(v.attr)].name
                if str(v.attr) in self.bound_dtypes
                else format_
            )
            if digits in ("f16", "bf16"):
                return moved  # the ends of the interval were rounded too
            return moved + (0.5 * ulp(x, format_) if digits in ("f32",) else 0)
        own = row.spell(self.target).ulp[0 if format_ == "f32" else 1] if row is not None else 0.5
        exact_ops = (
            "where",
            "max",
            "min",
            "clamp",
            "relu",
            "abs",
            "neg",
            "pos",
            "sign",
            "floor",
            "ceil",
            "round",
            "trunc",
            "copysign",
            "stop",
            "add",
            "sub",
        )
        slack = 2.0 if format_ == "f64" and v.op not in exact_ops else 1.0
        local = 0 if v.op in exact_ops[:-2] else slack * own * ulp(x, format_)
        if v.op == "digamma" and format_ == "f64":  # its bound is relative to what it subtracts: see ops.py
            terms = torch.maximum(torch.digamma(1 - args[0]).abs(), (torch.pi / torch.tan(torch.pi * args[0])).abs())
            terms = torch.where((args[0] < 0) & torch.isfinite(terms), terms, 1.0).clamp(min=1)
            local = slack * own * ulp(torch.maximum(x.abs(), terms), format_)
        if v.op == "pow":
            local = 2 * local  # small powers may be written as products: 1.5 ulp
        total = moved + local
        biggest = FORMATS[format_][2]
        return torch.where(torch.isfinite(x) & (x.abs() + total > biggest), torch.inf, total)

    def entering(self, v: Value, number: Any) -> Any:
        """The error of a number that enters a value: rounded once, to the dtype computed in, which may be too narrow for it."""
        torch = self.torch
        x = torch.tensor(float(number), dtype=torch.float64)
        if not torch.isfinite(x) or not isinstance(number, float):
            return torch.zeros((), dtype=torch.float64)
        format_ = self.common_format(v)
        if format_ == "f32" and x.to(torch.float32).double() == x:  # a literal such as 0.5
            return torch.zeros((), dtype=torch.float64)
        if format_ == "f32" and x.to(torch.float32) == 0:  # what divides by it is infinite, or NaN
            return torch.full((), torch.nan, dtype=torch.float64)
        return 0.5 * ulp(x, format_) if abs(number) <= FORMATS[format_][2] else torch.full((), torch.inf, dtype=torch.float64)

    def meets_float(self, v: Value) -> bool:
        """Whether one of an operator's operands is a float, so that its integers become floats."""
        return any(is_float(self.kernel.values[a].type) for a in v.args)

    def common_format(self, v: Value) -> str:
        dtype = self.common(v) if v.op in OPS else None
        if v.op in OPS and OPS[v.op].rule in ("compare", "test") or dtype is None:
            floats = [
                self.compute(self.kernel.values[a])
                for a in v.args
                if not isinstance(self.kernel.values[a].type, Number) and hasattr(self.kernel.values[a].type, "compute")
            ]
            return "f64" if "f64" in floats else "f32"
        return self.compute(v)

    def moved(self, v: Value, x: Any, args: list, errors: list) -> Any:
        """How far the result moves when the operands move by their errors: evaluated at the ends of their intervals."""
        torch = self.torch
        zero = torch.zeros((), dtype=torch.float64)
        carrying = [k for k, e in enumerate(errors) if bool((e != 0).any())]
        if v.op == "signbit":  # whose sign a NaN has is not said
            a = args[0].double()
            return torch.where(torch.isnan(a) | (errors[0] != 0) & ~(a.abs() > errors[0]), torch.inf, 0.0)
        if not carrying:
            return zero
        if v.op == "where":
            a, b = (t if isinstance(t, torch.Tensor) else torch.tensor(float(t), dtype=torch.float64) for t in args[1:])
            c = args[0] if isinstance(args[0], torch.Tensor) else torch.tensor(args[0])
            chosen = torch.where(c, errors[1], errors[2])
            either = (a.double() - b.double()).abs() + errors[1] + errors[2]
            return torch.where(errors[0] != 0, either, chosen)
        if v.op in ("eq", "ne", "lt", "le", "gt", "ge"):  # a tie may lie anywhere within the intervals
            a, b = (t.double() if isinstance(t, torch.Tensor) else torch.tensor(float(t), dtype=torch.float64) for t in args)
            reach = errors[0] + errors[1]
            return torch.where((reach != 0) & ~((a - b).abs() > reach) | torch.isnan(reach), torch.inf, 0.0)
        # errors near the end of float64 would vanish in the sums below: move further, and scale back (but not where it jumps)
        far, back = torch.ones((), dtype=torch.float64), 1.0
        if self.compute(v) == "f64":
            small = torch.ones((), dtype=torch.bool)
            for k in carrying:
                small = small & (errors[k] <= 2.0**-40 * torch.as_tensor(args[k], dtype=torch.float64).abs())
            far = torch.where(small, 2.0**20, 1.0)
            back = 1.0 if v.op in OPS and OPS[v.op].breaks else far
        worst = zero
        for signs in product((-1.0, 1.0), repeat=len(carrying)):
            shifted = list(args)
            for k, sign in zip(carrying, signs, strict=True):
                base = args[k] if isinstance(args[k], torch.Tensor) else torch.tensor(args[k], dtype=torch.float64)
                if base.dtype.is_floating_point or x.dtype.is_floating_point:
                    shifted[k] = base.double() + sign * far * errors[k]
                else:
                    return torch.where(errors[k] != 0, torch.inf, 0.0)
            y = self.value(v, shifted)
            same = (y == x) | (torch.isnan(y.double()) & torch.isnan(x.double()))
            step = torch.where(same, 0.0, (y.double() - x.double()).abs() / back)
            worst = torch.maximum(worst, step)
        for k in carrying:
            worst = torch.where(torch.isnan(errors[k]), torch.nan, worst)
        return worst
