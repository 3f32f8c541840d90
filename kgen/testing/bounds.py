"""How far a kernel's result may lie from the exact one: a bound derived from the formula, element by element.

Running error analysis in float64.  Each operator adds its own bound (its row's, in units in the last place of the dtype
computed in); what its operands carry is moved through it by evaluating it at the ends of their intervals.  The stored
result adds its rounding.  A comparison whose interval holds a tie, or a value that overflows the dtype computed in, has
no bound: infinity.

A reduction's bound holds for every order of its terms in which none passes through more than `tree_depth(n)` operations
(`kgen.ops`), so the same bound serves every target and schedule.  With u the unit roundoff of f32 (of f64, doubled, since
the exact reading is rounded too), d the depth and e_i the error of the term x_i:

    sum       sum(e_i) + gamma(d) * sum(|x_i| + e_i), gamma(d) = (1 + u)^d - 1; none where the terms of one sign overflow
    mean      the sum's over n, and the roundings of n and of the quotient
    prod      |y| * (prod(1 + e_i / |x_i|) * (1 + u)^(n - 1) - 1); n denormals more where a part of the terms underflows,
              none where one overflows
    max, min  what the greatest of x_i + e_i and of x_i - e_i lie above and below the greatest x_i
    argmax    0 where no other term reaches the greatest, else none; argmin likewise
    any, all  0 where a sure term decides, or all are sure; else none
    x == max(x)  0 where one term alone reaches the greatest, whatever their errors (`ties.py`); else none
    pick      the error of the picked element; so of a place; of cutoff and reach see `searched.py`
    zeros     a zero of either sign, as a maximum of both may be, is one value; what tells them apart adds what it tells (`zeros.py`)

A sum about a peak may be made while that moves (`online.py`): what is summed so far is rescaled each time.  A term passes through at most
`tree_depth(n)` rescalings; what they add to its error is said by the sum's row in the table of monoids (`monoids.py`).  What they do to
exponentials, `fallen`, is moved through the products with weights to the sum; where the sum of the weights' sizes overflows there is
no bound, since a term that ends small may have begun as large as its weight.  A sum of squares about a mean is made so only of rows that
may not stay on the chip (`staying.py`); of others a second reading adds no error.

An operator in its brief or rough form, or a slope (`precision.py`), has that form's bound, relative to its value; in its coarse form an
absolute one; in its near form, one relative to its value and what that moves by where its argument is a little off.

Terms whose errors are correlated need no rule of their own: the sum of the errors bounds them too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

from kgen.backends import backend
from kgen.check import Kernel, Value
from kgen.ir import exact
from kgen.monoids import Drift, fallen
from kgen.online import About, found
from kgen.ops import CODES, OPS, REDUCTIONS, SCANS, Errors, Move, Op, Reduction, tree_depth
from kgen.precision import BRIEF, COARSE, NEAR, ROUGH, SHIFT, SPLIT
from kgen.runtime import unsigned
from kgen.runtime.evaluate import Evaluator
from kgen.runtime.joined import joined
from kgen.testing import scan_bounds, searched, ties, zeros
from kgen.testing.forms import forms_of
from kgen.testing.staying import moving
from kgen.types import DTYPES, Dims, DType, Float, Number, f32, f64, is_float, resolve
from kgen.values import cast_to

#: The bound of a power that is written as products, in units in the last place, as the rule `small-power` derives it.
SMALL_POWERS = {1.0: 0.0, 2.0: 0.5, 3.0: 1.5, 4.0: 2.5}
#: digits after the leading one, least exponent of a normal number, largest finite value
FORMATS = {d.name: (d.digits, d.least, d.largest) for d in DTYPES.values() if d.is_float}


def ulp(x: Any, dtype: str) -> Any:
    """The distance between neighbours of a float format about x (a float64 tensor), denormals included."""
    import torch

    digits, least, _ = FORMATS[dtype]
    _, exponent = torch.frexp(x.abs())
    return torch.ldexp(torch.ones_like(x), torch.where(x == 0, least, exponent - 1).clamp(min=least) - digits)


def row_scale(exact: Any, dtype: str) -> Any:
    """The largest magnitude of each row (of the last dim) of a result, at least the least normal number of its float dtype; infinity for
    a row of zeros, which has no scale."""
    import torch

    x = exact.double()
    size = torch.where(torch.isfinite(x), x.abs(), 0.0)
    largest = size.amax(-1, keepdim=True) if x.dim() and x.numel() else size
    return torch.where(largest == 0, torch.inf, largest.clamp(min=2.0 ** FORMATS[dtype][1]))


@dataclass(frozen=True)
class Bounded:
    """A result: its exact value (float64, or integers), the bound on |result - exact|, and its dtype's name."""

    exact: Any
    bound: Any
    dtype: str


def _fitted(error: Any, x: Any) -> Any:
    """An error no larger than its value: one element of that may stand for many of leading dims, over which the greatest is taken."""
    if not hasattr(error, "shape") or not hasattr(x, "shape") or error.dim() < x.dim():
        return error
    if (lead := error.dim() - x.dim()) and 0 not in error.shape[:lead]:
        error = error.amax(tuple(range(lead)))
    if error.dim() != x.dim():
        return error
    wide = [d for d, (own, size) in enumerate(zip(x.shape, error.shape, strict=True)) if own == 1 < size]
    return error.amax(wide, keepdim=True) if wide else error


class Values:
    """A kernel's values as `online.found` looks for sums about a peak in them; its nodes are their numbers."""

    def __init__(self, kernel: Kernel):
        self.values = kernel.values

    def behind(self, k: int) -> int:
        while self.values[k].op in ("stop", "pos"):
            k = self.values[k].args[0]
        return k

    def name(self, node: int) -> str:
        return self.values[node].op

    def operands(self, node: int) -> list[int]:
        return [self.behind(a) for a in self.values[node].args]

    def over(self, node: int) -> Dims:
        v = self.values[node]
        return tuple(v.attr) if v.op in REDUCTIONS and v.attr else ()

    def literal(self, node: int) -> Fraction | None:
        v = self.values[node]
        return exact(str(v.attr)) if v.op == "lit" else None

    def is_count(self, node: int, dims: Dims) -> bool:
        return isinstance(self.values[node].type, Number)  # at worst a looser bound


def sums_about(kernel: Kernel) -> dict[int, About]:
    """The sums and means of a kernel about their terms' maximum, or of squares about their mean, by number."""
    graph = Values(kernel)
    every = [(k, graph.operands(k)[0], graph.over(k)) for k, v in enumerate(kernel.values) if v.op in ("sum", "mean") and v.attr]
    return {k: a for k, term, dims in every if (a := found(graph, term, dims)) is not None}


class Analysis(Evaluator):
    """The exact reading of a kernel, with an error for every value; `target` chooses the rows' bounds."""

    def __init__(self, kernel: Kernel, arguments: dict[str, Any], target: str, runs: tuple[Kernel, ...] = ()):
        """`arguments` are tensors and numbers by parameter; `target` is whose bounds, forms (with those of `runs`) and peaks are meant."""
        super().__init__(kernel, arguments, "exact")
        self.target = target
        self.forms = forms_of(kernel, tuple(self.binding.items()), target, runs)
        self.floors: list[float] = []
        self.about = moving(sums_about(kernel), kernel, self.arguments, target, self.count)
        self.powers = {a.path[0]: total for total, a in self.about.items() if a.path}
        #: of an exponential below a peak, and of products with it: what rescaling adds to its error, and how large its weights are
        self.falls: dict[Any, tuple[Any, Any]] = {}
        self.centres: dict[Any, Any] = {a.shift: 0.0 for a in self.about.values() if a.row.about == "mean"}  # how large each mean may be
        self.products = {node for a in self.about.values() for node in a.path[1:]}
        self.steps: tuple[list, Any] | None = None  # of the value that was just looked at: its operands' errors, and its own rounding
        self.noise: dict[int, float] = {}  # how far a number may lie from its exact value when it is computed in float64
        self.greatest: dict[int, Any] = {}  # of an equality of terms with their own maximum: where one is sure to be equal
        self.either: list[Any] = []  # where each value may be a zero of either sign, or None
        self.told: Any = 0.0  # how far the value that is looked at depends on that

    def results(self) -> list[Bounded]:
        """Each result's exact value with the bound on what a kernel may give, its last rounding included."""
        (values, errors), torch = self.analyse(), self.torch
        found = []
        for r in self.kernel.results:
            stored = resolve(r.dtype, self.binding)
            x, e = values[r.value], self.granted(errors[r.value], values[r.value])
            if not isinstance(x, torch.Tensor):
                x = torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else None).reshape([1] * len(self.order))
                way = 0.5 * ulp(x, "f32") if stored.is_float and x.is_floating_point() and stored not in (f32, f64) else 0.0
                e = torch.full_like(x, self.noise.get(r.value, 0.0), dtype=torch.float64) + way
            if stored.is_float:
                e = e + 0.5 * ulp(self.size_of(x.double(), e), stored.name)  # what is rounded may be as far off as that
                if stored is f64:  # the reference is rounded as well
                    e = e + 0.5 * ulp(x.double(), "f64")
                x = x.double()
            whole = self.finish(e.expand(torch.broadcast_shapes(e.shape, x.shape)), r.dims, torch.float64)
            found.append(Bounded(joined(r, self.finish(x, r.dims, x.dtype)), joined(r, whole), stored.name))
        return found

    def depth(self, count: int) -> int:
        """The most additions that one of `count` terms passes through."""
        return tree_depth(count)

    def granted(self, error: Any, x: Any) -> Any:
        """What a result `x` may be off by before it is rounded, for the error that was derived."""
        return error

    def unsure(self, v: Value, x: Any, args: list, carried: list, either: Any) -> Any:
        """Where a value may be a zero of either sign, `either` by zeros alone (`zeros.py`; None: nowhere)."""
        return zeros.by_errors(self, v, x, args, carried, either)

    def analyse(self) -> tuple[list, list]:
        """The exact value and the error of every value of the kernel, in order; those that nothing reads any more are None."""
        values: list[Any] = []
        errors: list[Any] = []
        last = self.last_uses()
        for k, v in enumerate(self.kernel.values):
            args = [values[a] for a in v.args]
            self.at = k
            x = self.value(v, args)
            values.append(x)
            self.floors.append(self.floor(v, args))
            self.told, either = zeros.told(self, v, x, args)
            self.either.append(self.unsure(v, x, args, [errors[a] for a in v.args], either))
            if isinstance(v.type, Number):
                self.noise[k] = self.number_noise(v, x, args)
            met = [unsigned.number(values[a], self.kernel.values[a].type) for a in v.args] if v.op in OPS and self.meets_float(v) else args
            errors.append(_fitted(self.error(v, x, met, [errors[a] for a in v.args]), x))
            if k in self.centres:
                self.centres[k] = self.size_of(x, errors[k])
            for a in v.args:
                if last[a] == k:
                    values[a] = errors[a] = self.either[a] = None
        return values, errors

    def floor(self, v: Value, args: list) -> float:
        """A number below which the value as a target computes it cannot lie (-inf where none is known; NaN is beside the
        point).  Roundings keep it: each is monotone, and 0 and a constant's neighbour below are representable."""
        low = [self.floors[a] for a in v.args]
        below = 1 - 2.0**-20  # roundings of numbers
        if isinstance(v.type, Number):
            number = float(self.value(v, args))
            if not math.isfinite(number):
                return -math.inf
            return max(0.0, number * below - 2.0**-149) if number >= 0 else number / below - 2.0**-149
        if not isinstance(v.type, Float):
            return -math.inf
        if v.op == "mul" and v.args[0] == v.args[1] or v.op == "pow" and self.kernel.values[v.args[1]].op == "lit" and args[1] % 2 == 0:
            return 0.0
        if v.op in ("cast", "pick", "place"):
            return (low[0] if v.op == "pick" else 0.0) if low[0] >= 0 else -math.inf
        row = self.row(v)
        return row.sign.floor(*low) if row is not None else -math.inf

    @staticmethod
    def row(v: Value) -> Op | Reduction | None:
        """A value's row in the tables, if it has one."""
        return REDUCTIONS.get(v.op) if v.attr else OPS.get(v.op)

    def compute(self, v: Value) -> str:
        """The float dtype in which a value is computed."""
        t = v.type
        return (t.compute(self.binding) if isinstance(t, Float) else f32).name

    def error(self, v: Value, x: Any, args: list, carried: list) -> Any:
        """How far a computed value may lie from its exact one `x`: what the operands' errors (`carried`) become, and its own
        rounding.  A float64 tensor that broadcasts to x; None for a number."""
        torch = self.torch
        self.steps = None
        if isinstance(v.type, Number):
            return None
        if v.op in ("param", "index") or not v.args:
            return torch.zeros((), dtype=torch.float64)
        if v.op == "place":
            return self.placed(v, carried[0].to(torch.float64).expand(args[0].shape), args[1:])
        if v.op in SCANS:
            return scan_bounds.error(self, v, x, args, carried)
        if v.op == "pick" or v.op in REDUCTIONS and v.attr:
            return self.reduced(v, x, args, carried)
        row = OPS.get(v.op)
        float_result, format_ = isinstance(x, torch.Tensor) and x.dtype.is_floating_point, self.compute(v)
        entering = [
            self.entering(v, a) + self.noise.get(of, 0.0) if e is None else e for of, a, e in zip(v.args, args, carried, strict=True)
        ]
        if v.op in OPS and self.common_format(v) == "f32":
            for k, of in enumerate(v.args):
                operand = self.kernel.values[of]
                integer = isinstance(operand.type, DType) and operand.type.is_int and OPS[v.op].rule != "test"
                if integer and (float_result or self.meets_float(v)):  # an integer of more than 24 bits rounds on its way to f32
                    wide = args[k].double()
                    entering[k] = torch.where(wide.float().double() != wide, 0.5 * ulp(wide, "f32"), entering[k])
                elif isinstance(operand.type, Float) and self.compute(operand) == "f64":  # narrowed, as 0-d tensors are
                    rounding = 0.5 * ulp(self.size_of(args[k], entering[k]), "f32")
                    entering[k] = torch.where(args[k].abs() > FORMATS["f32"][2], torch.inf, entering[k] + rounding)
        if (which := ties.terms_of(self.kernel, v)) is not None:
            found, self.greatest[self.at] = ties.equal(self, v, which, args, entering)
            return found
        if (equality := ties.compared(self.kernel, v)) is not None:
            moved = ties.shared(self, x, args, entering, self.greatest[equality])
        else:
            moved = self.moved(v, x, args, entering) + self.told
        if not float_result:
            return torch.where(moved != 0, torch.inf, 0.0)
        if v.op in CODES:
            return moved
        if v.op == "cast":
            into = resolve(cast_to(v)[0], self.binding)
            if into.narrow or into.coded or self.keeps(v):
                self.steps = entering, torch.zeros((), dtype=torch.float64)
                return moved  # the ends of the interval were rounded too, or nothing is
            return moved + (0.5 * ulp(self.size_of(x, moved), format_) if into is f32 else 0)
        assert row is not None
        self.fall(v, x, args, entering)
        local = self.local(v, row, x, args, entering, moved, format_)
        self.steps = entering, local
        total = moved + local
        return torch.where(torch.isfinite(x) & (x.abs() + total > FORMATS[format_][2]), torch.inf, total)

    def local(self, v: Value, row: Op, x: Any, args: list, entering: list, moved: Any, format_: str) -> Any:
        """What an operator adds of its own to a float result `x`, which its operands' errors (`entering`) have `moved`."""
        torch = self.torch
        if row.errors.exact:
            return torch.zeros((), dtype=torch.float64)
        own = backend(self.target).spell(row).ulp[0 if format_ == "f32" else 1]
        zero_for_sure = torch.full((), row.errors.zeros)
        if v.op == "pow":  # small powers are written as products (`rewrite.py`)
            power = self.literal(v.args[1])
            own = 2 * own if power is None else SMALL_POWERS.get(power, 2 * own)
            zero_for_sure = torch.as_tensor(args[0]) == 0
        slack = 2.0 if format_ == "f64" else 1.0  # the exact reading rounds as well
        if row.errors.scale is not None and format_ == "f64":
            return slack * own * ulp(torch.maximum(x.abs(), row.errors.scale(Move(torch, x, args, ()))), format_)
        local = slack * own * ulp(self.size_of(x, moved), format_)
        for a in args:  # a zero that is none of rounding: 1 - 1, 0 * x, 1 / inf, exp(-inf)
            zero_for_sure = zero_for_sure | ~torch.isfinite(torch.as_tensor(a).double())
        local = torch.where((x == 0) & (moved == 0) & zero_for_sure, 0.0, local)
        if (form := self.forms.get((v.op, v.span), self.forms.get((v.op, None)))) and format_ == "f32":
            own = {"split": SPLIT, "slope": NEAR, "near": NEAR, "brief": BRIEF, "rough": ROUGH, "coarse": COARSE}[form]
            local = torch.maximum(local, own * (torch.ones_like(x) if form == "coarse" else self.size_of(x, moved)) + 2.0**-148)
            if form == "near":
                local = local + self.shifted(v, x, args, entering, moved)
        return local

    def shifted(self, v: Value, x: Any, args: list, entering: list, moved: Any) -> Any:
        """How much further a result moves where each operand is off by SHIFT more, relatively."""
        torch = self.torch
        wider = []
        for a, e in zip(args, entering, strict=True):
            size = torch.as_tensor(a, dtype=torch.float64).abs() + e
            wider.append(e + torch.where(torch.isfinite(size), SHIFT * size, 0.0))
        more = self.moved(v, x, args, wider) - moved
        return torch.where(torch.isfinite(moved), more.clamp(min=0.0), 0.0)

    def literal(self, k: int) -> float | None:
        """The number that a value of the kernel is written as, else None."""
        v = self.kernel.values[k]
        return float(exact(str(v.attr))) if v.op == "lit" else None

    def size_of(self, x: Any, moved: Any) -> Any:
        """How large the result may be that is rounded."""
        return x.abs() + self.torch.where(self.torch.isfinite(moved), moved, 0.0)

    def number_noise(self, v: Value, x: Any, args: list) -> float:
        """The error of a number that the host computes in float64: its operator's own bound for f64, twice since the exact reading
        rounds as well, and what its operands' errors move it by."""
        row = OPS.get(v.op)
        if row is None or not isinstance(x, float) or not math.isfinite(x) or not v.args:
            return 0.0
        own = row.spell("cpp").ulp[1]
        noise = 0.0 if own <= 0.5 else 2 * own * math.ulp(x)
        moving = [k for k, of in enumerate(v.args) if self.noise.get(of)]
        for signs in product((-1.0, 1.0), repeat=len(moving)):
            ends = list(args)
            for k, sign in zip(moving, signs, strict=True):
                ends[k] = args[k] + sign * self.noise[v.args[k]]
            noise = max(noise, abs(float(self.value(v, ends)) - x) + 2 * own * math.ulp(x)) if moving else noise
        return noise

    def entering(self, v: Value, number: Any) -> Any:
        """The error of a number that enters a value: rounded once, to the dtype computed in; of an integer where that is a float's."""
        torch, x = self.torch, self.torch.tensor(float(number), dtype=self.torch.float64)
        if not torch.isfinite(x) or not isinstance(number, float) and not (isinstance(v.type, Float) or self.meets_float(v)):
            return torch.zeros((), dtype=torch.float64)
        format_ = self.common_format(v)
        exact = x.to(torch.float32).double() == x if format_ == "f32" else isinstance(number, int) and float(number) == number
        if exact:  # a literal such as 0.5
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
        rules = OPS[v.op].errors if v.op in OPS else Errors()
        move = Move(torch, x, args, errors, [self.floors[a] for a in v.args])
        if not carrying and not rules.reads_sign:
            return zero
        if rules.moved is not None and (found := rules.moved(move)) is not None:
            return found
        # errors near the end of float64 would vanish in the sums below: move further, and scale back (but not where it jumps)
        far, back = torch.ones((), dtype=torch.float64), 1.0
        if self.compute(v) == "f64":
            small = torch.ones((), dtype=torch.bool)
            for k in carrying:
                small = small & (errors[k] <= 2.0**-40 * torch.as_tensor(args[k], dtype=torch.float64).abs())
            far = torch.where(small, 2.0**20, 1.0).double()  # in f32 it would make f32 of a scalar
            back = 1.0 if v.op in OPS and OPS[v.op].breaks else far
        worst = zero
        for signs in product((-1.0, 1.0), repeat=len(carrying)):
            shifted = list(args)
            for k, sign in zip(carrying, signs, strict=True):
                base = args[k] if isinstance(args[k], torch.Tensor) else torch.tensor(args[k], dtype=torch.float64)
                if base.dtype.is_floating_point or x.dtype.is_floating_point:
                    shifted[k] = base.double() + sign * far * errors[k]
                    floor = torch.full((), self.floors[v.args[k]], dtype=torch.float64)
                    if sign < 0 and floor > -torch.inf:  # the value can only lie above
                        within = torch.maximum(shifted[k], torch.minimum(base.double(), floor))
                        shifted[k] = torch.where(far == 1, within, shifted[k])
                else:
                    return torch.where(sum(errors[j] != 0 for j in carrying) > 0, torch.inf, 0.0)
            y = self.value(v, shifted)
            same = (y == x) | (torch.isnan(y.double()) & torch.isnan(x.double()))
            worst = torch.maximum(worst, torch.where(same, 0.0, (y.double() - x.double()).abs() / back))
        for k in carrying:  # a NaN that may be a number, or the other way round; one of an infinity that may be the other
            base = torch.as_tensor(args[k])
            worst = torch.where(errors[k].isnan() | (base.isnan() | base.isinf() & x.isnan()) & errors[k].isinf(), torch.nan, worst)
        return rules.between(move._replace(far=far), worst) if rules.between is not None else worst

    # ------------------------------------------------------------------------------------------------ reductions

    def reduced(self, v: Value, x: Any, args: list, errors: list) -> Any:
        """The error of a reduction of the first of `args`, whose terms carry the first of `errors`; its dims are kept, as 1."""
        torch = self.torch
        if searched.is_search(v):
            return searched.error(self, v, x, args, errors)
        terms = args[0]
        e = errors[0].to(torch.float64)
        if v.op == "pick":
            found = torch.zeros((), dtype=torch.float64)
            if bool((e != 0).any()):
                outside = torch.isnan(self.pick(v, torch.zeros_like(e).expand(terms.shape), args[1]))
                found = torch.where(outside, 0.0, self.pick(v, e.expand(terms.shape), args[1]))
            return torch.where(errors[1] != 0, torch.inf, found)
        over = tuple(v.attr)
        terms = self.whole(terms, over)
        dims = self.places(terms, over)
        count = math.prod(terms.shape[d] for d in dims)
        if count == 0 or count == 1 and v.op in ("argmax", "argmin"):
            return torch.zeros((), dtype=torch.float64)
        if count == 1 and v.op not in ("any", "all"):
            return e.expand(terms.shape)
        sure = not bool((e != 0).any())
        if not terms.dtype.is_floating_point and v.op not in ("any", "all"):  # integers are exact, or unknown
            return torch.zeros((), dtype=torch.float64) if sure else self.any_of(e.expand(terms.shape) != 0, dims)
        if sure and v.op in ("max", "min", "argmax", "argmin", "any", "all"):
            return torch.zeros((), dtype=torch.float64)
        e = torch.where(torch.isfinite(e) & ~torch.isfinite(terms.double()), 0.0, e).expand(terms.shape)
        if v.op in ("any", "all"):
            return self.decided(v.op, terms.double(), e, dims)
        certain = self.any_of(torch.isnan(terms) & torch.isfinite(e), dims) > 0  # a NaN, whatever the others are
        # without a bound where a term has none; NaN where that may make it NaN, as two infinities do
        lost = torch.where(self.any_of(torch.isnan(e), dims) > 0, torch.nan, self.any_of(torch.isinf(e), dims))
        if v.op in ("sum", "mean", "prod"):
            lost = torch.where(lost == 0, 0.0, torch.nan)
        e = torch.where(torch.isfinite(e), e, 0.0)
        if v.op in ("argmax", "argmin"):
            return self.position(terms if v.op == "argmax" else -terms, x, e, dims) + lost
        if v.op in ("max", "min"):
            found = self.extreme(terms if v.op == "max" else -terms, e, dims)
        else:
            found = self.product(v, x, terms, e, dims, count) if v.op == "prod" else self.total(v, x, terms, e, dims, count)
        return torch.where(certain, 0.0, found + lost)

    def any_of(self, where: Any, dims: list[int]) -> Any:
        """Infinity where a term is in question, else 0."""
        torch = self.torch
        for d in dims:
            where = where.any(dim=d, keepdim=True)
        return torch.where(where, torch.inf, 0.0).to(torch.float64)

    def unit(self, v: Value) -> float:
        """The unit roundoff in which a reduction accumulates."""
        return 2.0**-24 if self.compute(v) == "f32" else 2.0**-52  # f64: the exact reading's own is added

    def total(self, v: Value, x: Any, terms: Any, e: Any, dims: list[int], count: int) -> Any:
        """The error of a sum or a mean."""
        torch = self.torch
        unit, biggest = self.unit(v), FORMATS[self.compute(v)][2]
        finite = torch.where(torch.isfinite(terms), terms, 0.0)
        depth = self.depth(count)
        gamma = math.expm1(depth * math.log1p(unit))
        lost = torch.zeros((), dtype=torch.bool)
        if (about := self.about.get(self.at)) is not None and about.row.error is not None:
            falls, weights = self.falls.get(about.path[-1] if about.path else None, (0.0, None))
            centre = self.centres.get(about.shift, 0.0)
            shares = finite + e if about.row.about == "mean" else finite
            more = about.row.error(Drift(torch, shares, dims, unit, depth, count, falls, centre))
            lost = self.any_of(~torch.isfinite(more), dims) > 0
            if weights is not None:
                lost = lost | ((weights + torch.zeros_like(finite)).sum(dims, keepdim=True) * (1 + gamma) > biggest)
            e = e + torch.where(torch.isfinite(more), more, 0.0)
        above = (finite.clamp(min=0) + e).sum(dims, keepdim=True)
        below = ((-finite).clamp(min=0) + e).sum(dims, keepdim=True)
        error = e.sum(dims, keepdim=True) + gamma * (above + below)
        high, low = (t * (1 + gamma) > biggest for t in (above, below))
        up, down = (self.any_of(terms == t, dims) > 0 for t in (torch.inf, -torch.inf))
        opposed = (high | up) & (low | down)  # an infinity of one sign may meet one of the other
        known = torch.where(torch.isfinite(x), error, 0.0)
        if v.op == "mean":
            known = known / count
            rounded = unit + (unit if count > 2**24 else 0)
            known = torch.where(
                torch.isfinite(x), known + rounded * (x.abs() + known) + 0.5 * ulp(torch.zeros_like(x), self.compute(v)), known
            )
        unknown = torch.where(opposed, torch.nan, torch.inf)
        return torch.where(lost, torch.nan, torch.where(high | low, unknown, known))

    def fall(self, v: Value, x: Any, args: list, errors: list) -> None:
        """Keep what rescaling adds to the error of an exponential below a peak, or of a product with one, and the size of its weights."""
        torch = self.torch
        if self.at in self.powers:
            over = tuple(self.kernel.values[self.powers[self.at]].attr)
            terms = self.whole(args[0], over)
            depth = self.depth(math.prod(terms.shape[d] for d in self.places(terms, over)))
            gap = torch.where(torch.isfinite(args[0]), -args[0], 0.0).clamp(min=0)
            self.falls[self.at] = fallen(torch.where(torch.isfinite(x), x, 0.0), gap, self.unit(v), depth), None
        elif self.at in self.products:
            operands = Values(self.kernel).operands(self.at)
            k = next(k for k, a in enumerate(operands) if a in self.falls)
            falls, others = self.falls[operands[k]]
            weight, e = torch.as_tensor(args[1 - k]).double(), torch.as_tensor(errors[1 - k])
            size = torch.where(torch.isfinite(weight), weight.abs() + torch.where(torch.isfinite(e), e, 0.0), 0.0)
            sure = torch.where(torch.as_tensor(args[k]).abs() > falls, 0.0, torch.inf)  # what is surely not 0, times an infinity
            moved = torch.where(torch.isinf(weight), sure, falls * size + 2.0**-140)
            self.falls[self.at] = moved, size if others is None else others * size

    def extreme(self, terms: Any, e: Any, dims: list[int]) -> Any:
        """The error of a maximum."""
        torch = self.torch
        top = terms.amax(dims, keepdim=True)
        up = (terms + e).amax(dims, keepdim=True) - top
        down = top - (terms - e).amax(dims, keepdim=True)
        return torch.where(torch.isfinite(top), torch.maximum(up, down), 0.0)

    def position(self, terms: Any, at: Any, e: Any, dims: list[int]) -> Any:
        """The error of where the maximum stands: infinite where another term comes within reach of it."""
        torch = self.torch
        top = terms.amax(dims, keepdim=True)
        first = self.index_among(terms, dims) == at
        winner = torch.where(first, e, 0.0).sum(dims, keepdim=True)
        reach = ~first & (e + winner != 0) & (terms + e >= top - winner)
        return torch.where(torch.isfinite(top), self.any_of(reach, dims), 0.0)

    def index_among(self, terms: Any, dims: list[int]) -> Any:
        """Each term's place among those that are reduced, in the order of `dims`."""
        torch = self.torch
        place = torch.zeros((), dtype=torch.int64)
        for d in dims:
            along = torch.arange(terms.shape[d]).reshape([-1 if k == d else 1 for k in range(terms.dim())])
            place = place * terms.shape[d] + along
        return place

    def decided(self, op: str, terms: Any, e: Any, dims: list[int]) -> Any:
        """The error of any and all: what decides is a term that is surely not 0 (surely 0)."""
        torch = self.torch
        unsure = torch.isnan(e) | torch.isinf(e) | (e != 0) & (terms.abs() <= e)
        decides = ~unsure & ((terms != 0) if op == "any" else (terms == 0))
        sure = self.any_of(decides, dims) > 0
        return torch.where(sure, 0.0, self.any_of(unsure, dims))

    def product(self, v: Value, x: Any, terms: Any, e: Any, dims: list[int], count: int) -> Any:
        """The error of a product."""
        torch = self.torch
        format_ = self.compute(v)
        unit, (_, least, biggest) = self.unit(v), FORMATS[format_]
        a = terms.abs()
        inner = torch.isfinite(terms)

        def logs(y: Any, where: Any) -> Any:
            return torch.where(where, torch.log(y), 0.0)

        rounding = (count - 1) * math.log1p(unit)
        high = logs(a + e, inner & (a + e > 0))
        greatest = high.clamp(min=0).sum(dims, keepdim=True) + rounding
        smallest = logs((a - e).clamp(min=0), inner & (a > e)).clamp(max=0).sum(dims, keepdim=True) - rounding
        vanishes = self.any_of(inner & (a <= e) & (e > 0), dims) > 0  # a term that may be 0
        relative = torch.where(inner & (a > 0), torch.log1p(e / a), 0.0).sum(dims, keepdim=True) + rounding
        zero = self.any_of(a == 0, dims) > 0
        exact_zero = self.any_of((a == 0) & (e == 0), dims) > 0
        bound = torch.where(zero, torch.exp(high.sum(dims, keepdim=True) + rounding), x.abs() * torch.expm1(relative))
        bound = torch.where(exact_zero, 0.0, bound)
        underflows = (smallest < (least + 1) * math.log(2)) | vanishes
        denormal = count * torch.exp(greatest) * 2.0 ** (least - FORMATS[format_][0])
        bound = torch.where(underflows & ~exact_zero, bound + denormal, bound)
        infinite = self.any_of(torch.isinf(terms), dims) > 0
        overflows = greatest > math.log(biggest)
        unbounded = torch.where(infinite, underflows & ~exact_zero, overflows)
        bound = torch.where(infinite, 0.0, bound)
        return torch.where(unbounded, torch.nan, bound)
