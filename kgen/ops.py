"""The one table of operators.

Everything that kgen knows of an operator stands in its row: its arguments and dtype rule, its torch reference,
its gradient in kgen's own language, a SymPy formula that proves the gradient, and for each target its spelling
and error bound.  Adding an operator is adding a row; `tests/ops` runs over the rows.

Dtype rules (`check.py` applies them):

    arith    promote; bools only where the row spells them       float    promote, integers go to f32
    same     as its one operand, no bools                        test     any operand, bool result
    compare  promote, bool result                                logical  bools, bool result
    bits     integers or bools, promote                          shift    integers, promote
    where    a bool, then two that promote                       stop     as its operand

Error bounds are in units in the last place (ulp) of the exact result, for f32 and f64; 0.5 is correct rounding.  CUDA's and
Triton's (libdevice) are those of the CUDA programming guide's tables, which count from the correctly rounded result, plus
0.5, but for kgen's own functions: erfc in f32 has 6 (its formula in exact steps 3.8, the hardware's exp2 the rest); C++'s are the 4 ulp that glibc states for its vector library.  `kgen check --operators` measures the f32 ones; the f64
ones of CUDA and Triton are the tables' alone.  Some f64 bounds of C++ are wider or hold less: lgamma's (12, to leave room
near its negative zeros; 4.2 was measured away from them); sin, cos and tan, whose vector library is 8 (tan: 14) ulp off at
the f64 nearest to a multiple of pi/2, about 5.3e255; and digamma's for x < 0, which is relative to the greatest of 1 and the
two terms that the reflection subtracts, |digamma(1 - x)| and |pi / tan(pi x)|, so near its zeros there no bound on the
result itself holds.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Targets in the order in which they are listed everywhere.
TARGETS = ("triton", "cuda", "cpp")
#: Binding strength of a spelling, for brackets: a call or name, a prefix, then C's and Python's infix levels.
CALL, UNARY, PRODUCT, SUM, LOOSE = 9, 8, 7, 6, 0


@dataclass(frozen=True)
class Spell:
    """How one target writes an operator, with `{0}` `{1}` ... for operands, by kind of operand (where a kind has no
    text of its own it takes the one before it: uint and bool that of int, int that of float).

    `{F}` is the operands' dtype and `{U}` the unsigned integer it is computed in.  `infix` is the precedence of the
    text (operands that bind less tightly get brackets); functions that the text calls and the target lacks stand in
    `templates/<target>/functions/`; `ulp` is the bound for f32 and for f64.
    """

    float: str = ""
    int: str = ""
    bool: str = ""
    uint: str = ""
    infix: builtins.int = CALL
    ulp: tuple[builtins.float, builtins.float] = (0.5, 0.5)

    def text(self, kind: str) -> str:
        signed = self.int or self.float
        return {"float": self.float, "int": signed, "uint": self.uint or signed, "bool": self.bool or signed}[kind]


def call_of(target: str, function: str, operands: str, dtype: str) -> str:
    """A GPU target's call of a function that goes by a dtype."""
    return f"{function}<{dtype}>({operands})" if target == "cuda" else f"{function}({operands}, {dtype})"


@dataclass(frozen=True)
class Brief:
    """The forms of an operator for results of 16 bits (see `precision.py`): `brief_<name>` of each GPU target's functions, within 2^-16
    of the value, and where `rough` is given `rough_<name>`, within 2^-10.9; what each costs, as in `Op`."""

    cost: tuple[builtins.int, builtins.int]
    rough: tuple[builtins.int, builtins.int] | None = None


@dataclass(frozen=True)
class Op:
    """One row: see the module's docstring.  `args` names the operands as `grad` and `sympy` use them.

    `grad` has an expression an operand (None where there is no derivative to give; "0" where it vanishes); `y` is the
    result and `dy` its gradient.  `sympy` is a formula in SymPy's names, empty where the function has kinks; `torch`
    is a name in torch or a function of torch and the operands; `cost` counts (instructions, special-function
    instructions) an f32 element takes on an NVIDIA GPU, for the predicted bound; `breaks` marks functions with jumps.
    """

    name: str
    args: tuple[str, ...]
    rule: str
    torch: str | Callable[..., Any]
    grad: tuple[str | None, ...]
    sympy: str
    cost: tuple[int, int]
    cpp: Spell
    cuda: Spell
    triton: Spell
    bools: bool = False
    breaks: bool = False
    brief: Brief | None = None

    @property
    def arity(self) -> int:
        return len(self.args)

    def spell(self, target: str, form: str = "") -> Spell:
        """How a target writes it, in its accurate form, the "brief" or the "rough" one; `{B}` is the dtype that decides."""
        if not form or self.brief is None:
            return getattr(self, target)
        operands = ", ".join(f"{{{k}}}" for k in range(self.arity))
        return Spell(call_of(target, f"{form}_{self.name}", operands, "{B}"))

    def cost_of(self, form: str) -> tuple[builtins.int, builtins.int]:
        """What an element takes in one of its forms."""
        if not form or self.brief is None:
            return self.cost
        return self.brief.rough if form == "rough" and self.brief.rough else self.brief.cost

    def reference(self, torch: Any) -> Callable[..., Any]:
        """The eager PyTorch function of the row, from the torch module."""
        if callable(self.torch):
            function = self.torch
            return lambda *xs: function(torch, *xs)
        found = torch
        for part in self.torch.split("."):
            found = getattr(found, part)
        return found


@dataclass(frozen=True)
class Reduction:
    """One kind of reduction: its dtype rule ("sum", "same", "float", "bool" or "index"), torch's name, its identity, and its gradient.

    `grad` gives an element's share of the cotangent `dy` ("" where there is none to give); `x` is the operand, `y` the result
    and `D` the dims.  Greatest and least elements that are equal share it, as `amax` does in torch.
    """

    name: str
    rule: str
    torch: str
    identity: str
    grad: str = ""


REDUCTIONS: dict[str, Reduction] = {r.name: r for r in (
    Reduction("sum", "sum", "sum", "0", "dy"),
    Reduction("prod", "sum", "prod", "1", "dy * (y / x) if zeros[D](x) == 0 else dy * others[D](x) if x == 0 and zeros[D](x) == 1 else 0"),
    Reduction("mean", "float", "mean", "0", "dy / size[D](x)"),
    Reduction("max", "same", "amax", "-inf", "(dy if x == y else 0) / sum[D](i64(x == y))"),
    Reduction("min", "same", "amin", "inf", "(dy if x == y else 0) / sum[D](i64(x == y))"),
    Reduction("any", "bool", "any", "0"),
    Reduction("all", "bool", "all", "1"),
    Reduction("argmax", "index", "argmax", "-inf"),
    Reduction("argmin", "index", "argmin", "inf"),
)}  # fmt: skip


#: Reductions that `online.py` makes of sums about a maximum: of an operand and that maximum.
RIDERS = ("expsum", "offsum")


def tree_depth(n: int) -> int:
    """The most additions (or multiplications) that one of `n` reduced elements passes through on any target.

    The skeletons keep it, and the bounds of `testing/bounds.py` rest on it: floats are accumulated in f32 (f64 where one of
    them is f64) in an order fixed by `n` alone, a tree of at most this depth.  Partials from 0 (from 1 in a product) count
    no addition, since adding 0 rounds nothing.
    """
    return max(0, min(n - 1, 64 + (n - 1).bit_length()))


CONSTANTS = ("pi", "inf", "nan")


def _sigmoid(torch: Any, x: Any) -> Any:
    """torch's own is 0 where exp(-x) overflows, though there are denormals there; exp(x) is as good from -80 down (1 + 1e-35)."""
    return torch.where(x < -80, torch.exp(x.clamp(max=0)), torch.sigmoid(x))


def _cube_root(torch: Any, x: Any) -> Any:
    """torch has none: a power, whose rounded exponent leaves up to 400 ulp of f64, and one step of Newton's."""
    x, stored = x.double(), x.dtype
    y = torch.copysign(x.abs() ** (1 / 3), x)
    better = y + (x / (y * y) - y) / 3
    return torch.where(torch.isfinite(better), better, y).to(stored)


def _digamma(torch: Any, x: Any) -> Any:
    """torch's own in f32 is tens of ulp off near its zeros: its f64 is rounded."""
    return torch.digamma(x.double()).to(x.dtype)


_ROWS = (
    Op("add", ("a", "b"), "arith", "add", ("dy", "dy"), "a + b", (1, 0),
       cpp=Spell("{0} + {1}", bool="{0} || {1}", infix=SUM),
       cuda=Spell("{0} + {1}", int="{F}({U}({0}) + {U}({1}))", bool="{0} || {1}", infix=SUM),
       triton=Spell("{0} + {1}", bool="{0} | {1}", infix=SUM), bools=True),
    Op("sub", ("a", "b"), "arith", "sub", ("dy", "-dy"), "a - b", (1, 0),
       cpp=Spell("{0} - {1}", infix=SUM),
       cuda=Spell("{0} - {1}", int="{F}({U}({0}) - {U}({1}))", infix=SUM),
       triton=Spell("{0} - {1}", infix=SUM)),
    Op("mul", ("a", "b"), "arith", "mul", ("dy * b", "dy * a"), "a * b", (1, 0),
       cpp=Spell("{0} * {1}", bool="{0} && {1}", infix=PRODUCT),
       cuda=Spell("{0} * {1}", int="{F}({U}({0}) * {U}({1}))", bool="{0} && {1}", infix=PRODUCT),
       triton=Spell("{0} * {1}", bool="{0} & {1}", infix=PRODUCT), bools=True),
    Op("div", ("a", "b"), "float", "div", ("dy / b", "-dy * y / b"), "a / b", (10, 1),
       cpp=Spell("{0} / {1}", infix=PRODUCT),
       cuda=Spell("{0} / {1}", infix=PRODUCT),
       triton=Spell("divide({0}, {1})"), brief=Brief((6, 1))),
    Op("floordiv", ("a", "b"), "arith", "floor_divide", ("0", "0"), "", (25, 1),
       cpp=Spell("floor_divide({0}, {1})", ulp=(2, 2)),
       cuda=Spell("floor_divide({0}, {1})", ulp=(2.5, 2.5)),
       triton=Spell("floor_divide({0}, {1})", int="floor_divide_int({0}, {1})", ulp=(2.5, 2.5)), breaks=True),
    Op("mod", ("a", "b"), "arith", "remainder", ("dy", "-dy * (a // b)"), "", (20, 1),
       cpp=Spell("floor_mod({0}, {1})"),
       cuda=Spell("floor_mod({0}, {1})"),
       triton=Spell("floor_mod({0}, {1})", int="floor_mod_int({0}, {1})"), breaks=True),
    Op("pow", ("a", "b"), "arith", "pow", ("0 if b == 0 else dy * b * a^(b - 1)", "0 if a == 0 and b >= 0 else dy * y * log(a)"), "a**b", (60, 3),
       cpp=Spell("power({0}, {1})", int="integer_power({0}, {1})", ulp=(4, 4)),
       cuda=Spell("power({0}, {1})", int="integer_power({0}, {1})", ulp=(4.5, 2.5)),
       triton=Spell("libdevice.pow({0}, {1})", int="integer_power({0}, {1})", ulp=(9.5, 2.5))),
    Op("neg", ("x",), "same", "neg", ("-dy",), "-x", (1, 0),
       cpp=Spell("-{0}", infix=UNARY),
       cuda=Spell("-{0}", int="{F}(0 - {U}({0}))", infix=UNARY),
       triton=Spell("{0} * -1.0", int="-{0}", infix=PRODUCT)),
    Op("pos", ("x",), "same", "positive", ("dy",), "x", (0, 0),
       cpp=Spell("{0}"),
       cuda=Spell("{0}"),
       triton=Spell("{0}")),
    Op("abs", ("x",), "same", "abs", ("dy * sign(x)",), "", (1, 0),
       cpp=Spell("std::fabs({0})", int="absolute({0})", uint="{0}"),
       cuda=Spell("fabs({0})", int="absolute({0})", uint="{0}"),
       triton=Spell("tl.abs({0})")),
    Op("sign", ("x",), "same", "sgn", ("0",), "", (4, 0),
       cpp=Spell("sign({0})"),
       cuda=Spell("sign({0})", uint="{F}({0} != 0)"),
       triton=Spell("sign({0})"), breaks=True),
    Op("floor", ("x",), "same", "floor", ("0",), "", (1, 0),
       cpp=Spell("std::floor({0})", int="{0}"),
       cuda=Spell("floor({0})", int="{0}"),
       triton=Spell("libdevice.floor({0})", int="{0}"), breaks=True),
    Op("ceil", ("x",), "same", "ceil", ("0",), "", (1, 0),
       cpp=Spell("std::ceil({0})", int="{0}"),
       cuda=Spell("ceil({0})", int="{0}"),
       triton=Spell("libdevice.ceil({0})", int="{0}"), breaks=True),
    Op("round", ("x",), "same", "round", ("0",), "", (1, 0),
       cpp=Spell("std::nearbyint({0})", int="{0}"),
       cuda=Spell("rint({0})", int="{0}"),
       triton=Spell("libdevice.nearbyint({0})", int="{0}"), breaks=True),
    Op("trunc", ("x",), "same", "trunc", ("0",), "", (1, 0),
       cpp=Spell("std::trunc({0})", int="{0}"),
       cuda=Spell("trunc({0})", int="{0}"),
       triton=Spell("libdevice.trunc({0})", int="{0}"), breaks=True),
    Op("exp", ("x",), "float", "exp", ("dy * y",), "exp(x)", (8, 1),
       cpp=Spell("exponential({0})", ulp=(4, 4)),
       cuda=Spell("exp({0})", ulp=(2.5, 1.5)),
       triton=Spell("libdevice.exp({0})", ulp=(2.5, 1.5)), brief=Brief((2, 1))),
    Op("exp2", ("x",), "float", "exp2", ("dy * y * log(2)",), "2**x", (4, 1),
       cpp=Spell("std::exp2({0})", ulp=(4, 4)),
       cuda=Spell("exp2({0})", ulp=(2.5, 1.5)),
       triton=Spell("libdevice.exp2({0})", ulp=(2.5, 1.5)), brief=Brief((2, 1))),
    Op("expm1", ("x",), "float", "expm1", ("dy * (y + 1)",), "exp(x) - 1", (16, 1),
       cpp=Spell("std::expm1({0})", ulp=(4, 4)),
       cuda=Spell("expm1({0})", ulp=(1.5, 1.5)),
       triton=Spell("libdevice.expm1({0})", ulp=(1.5, 1.5))),
    Op("log", ("x",), "float", "log", ("dy / x",), "log(x)", (18, 0),
       cpp=Spell("std::log({0})", ulp=(4, 4)),
       cuda=Spell("log({0})", ulp=(1.5, 1.5)),
       triton=Spell("libdevice.log({0})", ulp=(1.5, 1.5))),
    Op("log2", ("x",), "float", "log2", ("dy / (x * log(2))",), "log(x)/log(2)", (20, 0),
       cpp=Spell("std::log2({0})", ulp=(4, 4)),
       cuda=Spell("log2({0})", ulp=(1.5, 1.5)),
       triton=Spell("libdevice.log2({0})", ulp=(1.5, 1.5))),
    Op("log10", ("x",), "float", "log10", ("dy / (x * log(10))",), "log(x)/log(10)", (20, 0),
       cpp=Spell("std::log10({0})", ulp=(4, 4)),
       cuda=Spell("log10({0})", ulp=(2.5, 1.5)),
       triton=Spell("libdevice.log10({0})", ulp=(2.5, 1.5))),
    Op("log1p", ("x",), "float", "log1p", ("dy / (x + 1)",), "log(1 + x)", (22, 0),
       cpp=Spell("std::log1p({0})", ulp=(4, 4)),
       cuda=Spell("log1p({0})", ulp=(1.5, 1.5)),
       triton=Spell("libdevice.log1p({0})", ulp=(1.5, 1.5))),
    Op("sqrt", ("x",), "float", "sqrt", ("dy / (2 * y)",), "sqrt(x)", (8, 1),
       cpp=Spell("std::sqrt({0})"),
       cuda=Spell("sqrt({0})"),
       triton=Spell("square_root({0})"), brief=Brief((4, 1))),
    Op("rsqrt", ("x",), "float", "rsqrt", ("-0.5 * dy * y^3",), "1/sqrt(x)", (4, 1),
       cpp=Spell("{F}(1) / std::sqrt({0})", infix=PRODUCT, ulp=(1.5, 1.5)),
       cuda=Spell("rsqrt({0})", ulp=(2.5, 1.5)),
       triton=Spell("libdevice.rsqrt({0})", ulp=(2.5, 1.5))),
    Op("cbrt", ("x",), "float", _cube_root, ("dy / (3 * y^2)",), "x**Rational(1,3)", (12, 2),
       cpp=Spell("std::cbrt({0})", ulp=(4, 4)),
       cuda=Spell("cbrt({0})", ulp=(1.5, 1.5)),
       triton=Spell("cube_root({0})", ulp=(1.5, 1.5))),
    Op("sin", ("x",), "float", "sin", ("dy * cos(x)",), "sin(x)", (22, 0),
       cpp=Spell("std::sin({0})", ulp=(4, 8)),
       cuda=Spell("sin({0})", ulp=(2.5, 2.5)),
       triton=Spell("libdevice.sin({0})", ulp=(2.5, 2.5))),
    Op("cos", ("x",), "float", "cos", ("-dy * sin(x)",), "cos(x)", (22, 0),
       cpp=Spell("cosine({0})", ulp=(4, 8)),
       cuda=Spell("cos({0})", ulp=(2.5, 2.5)),
       triton=Spell("libdevice.cos({0})", ulp=(2.5, 2.5))),
    Op("tan", ("x",), "float", "tan", ("dy * (1 + y^2)",), "tan(x)", (26, 1),
       cpp=Spell("std::tan({0})", ulp=(4, 16)),
       cuda=Spell("tan({0})", ulp=(4.5, 2.5)),
       triton=Spell("libdevice.tan({0})", ulp=(4.5, 2.5))),
    Op("asin", ("x",), "float", "asin", ("dy * rsqrt(1 - x^2)",), "asin(x)", (18, 1),
       cpp=Spell("std::asin({0})", ulp=(4, 4)),
       cuda=Spell("asin({0})", ulp=(2.5, 2.5)),
       triton=Spell("libdevice.asin({0})", ulp=(2.5, 2.5))),
    Op("acos", ("x",), "float", "acos", ("-dy * rsqrt(1 - x^2)",), "acos(x)", (20, 1),
       cpp=Spell("std::acos({0})", ulp=(4, 4)),
       cuda=Spell("acos({0})", ulp=(2.5, 2.5)),
       triton=Spell("libdevice.acos({0})", ulp=(2.5, 2.5))),
    Op("atan", ("x",), "float", "atan", ("dy / (1 + x^2)",), "atan(x)", (18, 1),
       cpp=Spell("std::atan({0})", ulp=(4, 4)),
       cuda=Spell("atan({0})", ulp=(2.5, 2.5)),
       triton=Spell("libdevice.atan({0})", ulp=(2.5, 2.5))),
    Op("atan2", ("a", "b"), "float", "atan2", ("0 if a == 0 and b == 0 else dy * (b / hypot(a, b)) / hypot(a, b)", "0 if a == 0 and b == 0 else -dy * (a / hypot(a, b)) / hypot(a, b)"), "atan2(a, b)", (35, 1),
       cpp=Spell("std::atan2({0}, {1})", ulp=(4, 4)),
       cuda=Spell("atan2({0}, {1})", ulp=(3.5, 2.5)),
       triton=Spell("libdevice.atan2({0}, {1})", ulp=(3.5, 2.5))),
    Op("sinh", ("x",), "float", "sinh", ("dy * cosh(x)",), "sinh(x)", (24, 2),
       cpp=Spell("std::sinh({0})", ulp=(4, 4)),
       cuda=Spell("sinh({0})", ulp=(3.5, 2.5)),
       triton=Spell("libdevice.sinh({0})", ulp=(3.5, 2.5))),
    Op("cosh", ("x",), "float", "cosh", ("dy * sinh(x)",), "cosh(x)", (12, 2),
       cpp=Spell("std::cosh({0})", ulp=(4, 4)),
       cuda=Spell("cosh({0})", ulp=(2.5, 1.5)),
       triton=Spell("libdevice.cosh({0})", ulp=(2.5, 1.5))),
    Op("tanh", ("x",), "float", "tanh", ("dy * (1 - y^2)",), "tanh(x)", (16, 2),
       cpp=Spell("std::tanh({0})", ulp=(4, 4)),
       cuda=Spell("hyperbolic_tangent({0})", ulp=(2.5, 1.5)),
       triton=Spell("hyperbolic_tangent({0})", ulp=(2.5, 2.5)), brief=Brief((9, 2), (0, 1))),
    Op("asinh", ("x",), "float", "asinh", ("dy * rsqrt(x^2 + 1)",), "asinh(x)", (30, 2),
       cpp=Spell("std::asinh({0})", ulp=(4, 4)),
       cuda=Spell("asinh({0})", ulp=(3.5, 3.5)),
       triton=Spell("libdevice.asinh({0})", ulp=(3.5, 3.5))),
    Op("acosh", ("x",), "float", "acosh", ("dy * rsqrt(x^2 - 1)",), "acosh(x)", (30, 2),
       cpp=Spell("std::acosh({0})", ulp=(4, 4)),
       cuda=Spell("acosh({0})", ulp=(4.5, 3.5)),
       triton=Spell("libdevice.acosh({0})", ulp=(4.5, 3.5))),
    Op("atanh", ("x",), "float", "atanh", ("dy / (1 - x^2)",), "atanh(x)", (28, 1),
       cpp=Spell("std::atanh({0})", ulp=(4, 4)),
       cuda=Spell("atanh({0})", ulp=(3.5, 2.5)),
       triton=Spell("libdevice.atanh({0})", ulp=(3.5, 2.5))),
    Op("sigmoid", ("x",), "float", _sigmoid, ("dy * y * (1 - y)",), "1/(1 + exp(-x))", (15, 2),
       cpp=Spell("sigmoid({0})", ulp=(3.5, 4)),
       cuda=Spell("sigmoid({0})", ulp=(4.5, 3.5)),
       triton=Spell("sigmoid({0})", ulp=(4.5, 3.5)), brief=Brief((6, 2))),
    Op("erf", ("x",), "float", "erf", ("dy * (2 / sqrt(pi)) * exp(-x^2)",), "erf(x)", (20, 1),
       cpp=Spell("std::erf({0})", ulp=(4, 4)),
       cuda=Spell("erf({0})", ulp=(2.5, 2.5)),
       triton=Spell("libdevice.erf({0})", ulp=(2.5, 2.5))),
    Op("erfc", ("x",), "float", "erfc", ("-dy * (2 / sqrt(pi)) * exp(-x^2)",), "erfc(x)", (26, 2),
       cpp=Spell("std::erfc({0})", ulp=(4, 4)),
       cuda=Spell("error_complement({0})", ulp=(6, 5.5)),
       triton=Spell("error_complement({0})", ulp=(6, 5.5)), brief=Brief((14, 2))),
    Op("erfinv", ("x",), "float", "erfinv", ("dy * (sqrt(pi) / 2) * exp(y^2)",), "erfinv(x)", (30, 2),
       cpp=Spell("inverse_erf({0})", ulp=(0.51, 4)),
       cuda=Spell("erfinv({0})", ulp=(2.5, 5.5)),
       triton=Spell("libdevice.erfinv({0})", ulp=(2.5, 5.5))),
    Op("lgamma", ("x",), "float", "lgamma", ("dy * digamma(x)",), "loggamma(x)", (90, 2),
       cpp=Spell("log_gamma({0})", ulp=(0.51, 12)),
       cuda=Spell("log_gamma({0})", ulp=(1.5, 16.5)),
       triton=Spell("log_gamma({0})", ulp=(1.5, 4.5))),
    Op("digamma", ("x",), "float", _digamma, (None,), "digamma(x)", (120, 2),
       cpp=Spell("digamma({0})", ulp=(0.51, 16)),
       cuda=Spell("digamma({0})", ulp=(1.5, 16.5)),
       triton=Spell("digamma({0})", ulp=(1.5, 16.5))),
    Op("fma", ("a", "b", "c"), "float", lambda t, a, b, c: t.addcmul(c, a, b) if a.dtype == t.float64 else (a.double() * b.double() + c.double()).to(t.promote_types(t.promote_types(a.dtype, b.dtype), c.dtype)), ("dy * b", "dy * a", "dy"), "a * b + c", (1, 0),
       cpp=Spell("std::fma({0}, {1}, {2})"),
       cuda=Spell("fma({0}, {1}, {2})"),
       triton=Spell("libdevice.fma({0}, {1}, {2})")),
    Op("hypot", ("a", "b"), "float", "hypot", ("dy * a / y", "dy * b / y"), "sqrt(a**2 + b**2)", (14, 1),
       cpp=Spell("hypotenuse({0}, {1})", ulp=(4, 4)),
       cuda=Spell("hypot({0}, {1})", ulp=(3.5, 2.5)),
       triton=Spell("libdevice.hypot({0}, {1})", ulp=(3.5, 2.5))),
    Op("max", ("a", "b"), "arith", "maximum", ("0 if a < b else dy / 2 if a == b else dy", "0 if a > b else dy / 2 if a == b else dy"), "", (1, 0),
       cpp=Spell("maximum({0}, {1})", bool="{0} || {1}"),
       cuda=Spell("maximum({0}, {1})", bool="{0} || {1}"),
       triton=Spell("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", int="tl.maximum({0}, {1})", bool="{0} | {1}"), bools=True),
    Op("min", ("a", "b"), "arith", "minimum", ("0 if a > b else dy / 2 if a == b else dy", "0 if a < b else dy / 2 if a == b else dy"), "", (1, 0),
       cpp=Spell("minimum({0}, {1})", bool="{0} && {1}"),
       cuda=Spell("minimum({0}, {1})", bool="{0} && {1}"),
       triton=Spell("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", int="tl.minimum({0}, {1})", bool="{0} & {1}"), bools=True),
    Op("clamp", ("x", "lo", "hi"), "arith", "clamp", ("dy if x >= lo and x <= hi else 0", "dy if lo < hi and x < lo else 0", "dy if x > hi or hi < lo else 0"), "", (2, 0),
       cpp=Spell("minimum(maximum({0}, {1}), {2})"),
       cuda=Spell("minimum(maximum({0}, {1}), {2})"),
       triton=Spell("tl.minimum(tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL), {2}, propagate_nan=tl.PropagateNan.ALL)", int="tl.minimum(tl.maximum({0}, {1}), {2})")),
    Op("relu", ("x",), "same", "relu", ("0 if x <= 0 else dy",), "", (1, 0),
       cpp=Spell("relu({0})", uint="{0}"),
       cuda=Spell("relu({0})", uint="{0}"),
       triton=Spell("relu({0})", uint="{0}")),
    Op("where", ("c", "a", "b"), "where", "where", (None, "dy if c else 0", "0 if c else dy"), "", (1, 0),
       cpp=Spell("{0} ? {1} : {2}", infix=LOOSE),
       cuda=Spell("{0} ? {1} : {2}", infix=LOOSE),
       triton=Spell("tl.where({0}, {1}, {2})"), bools=True),
    Op("isnan", ("x",), "test", "isnan", ("0",), "", (1, 0),
       cpp=Spell("std::isnan({0})", int="false"),
       cuda=Spell("isnan({0})", int="false"),
       triton=Spell("is_nan({0})"), breaks=True),
    Op("isinf", ("x",), "test", "isinf", ("0",), "", (1, 0),
       cpp=Spell("std::isinf({0})", int="false"),
       cuda=Spell("isinf({0})", int="false"),
       triton=Spell("is_inf({0})", int="is_nan({0})"), breaks=True),
    Op("isfinite", ("x",), "test", "isfinite", ("0",), "", (1, 0),
       cpp=Spell("std::isfinite({0})", int="true"),
       cuda=Spell("isfinite({0})", int="true"),
       triton=Spell("is_finite({0})", int="{0} == {0}"), breaks=True),
    Op("signbit", ("x",), "test", "signbit", ("0",), "", (1, 0),
       cpp=Spell("sign_bit({0})", int="{0} < 0", bool="false", uint="false", infix=LOOSE),
       cuda=Spell("signbit({0})", int="{0} < 0", bool="false", uint="false", infix=LOOSE),
       triton=Spell("libdevice.signbit({0}) != 0", int="{0} < 0", infix=LOOSE), breaks=True),
    Op("copysign", ("a", "b"), "float", "copysign", ("0 if a == 0 else dy * (y / a)", "0"), "", (1, 0),
       cpp=Spell("std::copysign({0}, {1})"),
       cuda=Spell("copysign({0}, {1})"),
       triton=Spell("libdevice.copysign({0}, {1})"), breaks=True),
    Op("bitand", ("a", "b"), "bits", "bitwise_and", (None, None), "", (1, 0),
       cpp=Spell(int="{0} & {1}", bool="{0} && {1}", infix=LOOSE),
       cuda=Spell(int="{F}({0} & {1})", bool="{0} && {1}", infix=LOOSE),
       triton=Spell(int="{0} & {1}", infix=LOOSE), bools=True),
    Op("bitor", ("a", "b"), "bits", "bitwise_or", (None, None), "", (1, 0),
       cpp=Spell(int="{0} | {1}", bool="{0} || {1}", infix=LOOSE),
       cuda=Spell(int="{F}({0} | {1})", bool="{0} || {1}", infix=LOOSE),
       triton=Spell(int="{0} | {1}", infix=LOOSE), bools=True),
    Op("bitnot", ("x",), "bits", "bitwise_not", (None,), "", (1, 0),
       cpp=Spell(int="~{0}", bool="!{0}", infix=UNARY),
       cuda=Spell(int="{F}(~{0})", bool="!{0}", infix=UNARY),
       triton=Spell(int="~{0}", infix=UNARY), bools=True),
    Op("shl", ("a", "b"), "shift", "bitwise_left_shift", (None, None), "", (3, 0),
       cpp=Spell(int="shift_left({0}, {1})"),
       cuda=Spell(int="shift_left({0}, {1})"),
       triton=Spell(int="shift_left({0}, {1})")),
    Op("shr", ("a", "b"), "shift", "bitwise_right_shift", (None, None), "", (3, 0),
       cpp=Spell(int="shift_right({0}, {1})"),
       cuda=Spell(int="shift_right({0}, {1})"),
       triton=Spell(int="shift_right({0}, {1})")),
    Op("eq", ("a", "b"), "compare", "eq", ("0", "0"), "", (1, 0),
       cpp=Spell("{0} == {1}", infix=LOOSE),
       cuda=Spell("{0} == {1}", infix=LOOSE),
       triton=Spell("{0} == {1}", infix=LOOSE), bools=True, breaks=True),
    Op("ne", ("a", "b"), "compare", "ne", ("0", "0"), "", (1, 0),
       cpp=Spell("{0} != {1}", infix=LOOSE),
       cuda=Spell("{0} != {1}", infix=LOOSE),
       triton=Spell("{0} != {1}", infix=LOOSE), bools=True, breaks=True),
    Op("lt", ("a", "b"), "compare", "lt", ("0", "0"), "", (1, 0),
       cpp=Spell("{0} < {1}", infix=LOOSE),
       cuda=Spell("{0} < {1}", infix=LOOSE),
       triton=Spell("{0} < {1}", bool="~{0} & {1}", infix=LOOSE), bools=True, breaks=True),
    Op("le", ("a", "b"), "compare", "le", ("0", "0"), "", (1, 0),
       cpp=Spell("{0} <= {1}", infix=LOOSE),
       cuda=Spell("{0} <= {1}", infix=LOOSE),
       triton=Spell("{0} <= {1}", bool="~{0} | {1}", infix=LOOSE), bools=True, breaks=True),
    Op("gt", ("a", "b"), "compare", "gt", ("0", "0"), "", (1, 0),
       cpp=Spell("{0} > {1}", infix=LOOSE),
       cuda=Spell("{0} > {1}", infix=LOOSE),
       triton=Spell("{0} > {1}", bool="{0} & ~{1}", infix=LOOSE), bools=True, breaks=True),
    Op("ge", ("a", "b"), "compare", "ge", ("0", "0"), "", (1, 0),
       cpp=Spell("{0} >= {1}", infix=LOOSE),
       cuda=Spell("{0} >= {1}", infix=LOOSE),
       triton=Spell("{0} >= {1}", bool="{0} | ~{1}", infix=LOOSE), bools=True, breaks=True),
    Op("and", ("a", "b"), "logical", "logical_and", (None, None), "", (1, 0),
       cpp=Spell(bool="{0} && {1}", infix=LOOSE),
       cuda=Spell(bool="{0} && {1}", infix=LOOSE),
       triton=Spell(bool="{0} & {1}", infix=LOOSE), bools=True),
    Op("or", ("a", "b"), "logical", "logical_or", (None, None), "", (1, 0),
       cpp=Spell(bool="{0} || {1}", infix=LOOSE),
       cuda=Spell(bool="{0} || {1}", infix=LOOSE),
       triton=Spell(bool="{0} | {1}", infix=LOOSE), bools=True),
    Op("not", ("x",), "logical", "logical_not", (None,), "", (1, 0),
       cpp=Spell(bool="!{0}", infix=UNARY),
       cuda=Spell(bool="!{0}", infix=UNARY),
       triton=Spell(bool="~{0}", infix=UNARY), bools=True),
    Op("stop", ("x",), "stop", lambda t, x: x.detach(), ("0",), "", (0, 0),
       cpp=Spell("{0}"),
       cuda=Spell("{0}"),
       triton=Spell("{0}"), bools=True),
)  # fmt: skip

OPS: dict[str, Op] = {row.name: row for row in _ROWS}
