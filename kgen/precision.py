"""The precision planner: which values may be computed by a cheaper form.

In: a plan, as a target prints it, and the dtypes in which its kernel's results are declared.  Out: the same plan whose lets have forms
(`Let.form`), each with the dtype that decides: where that is a 16-bit float, backends take the `brief` form of the let's operator, if its
row has one, else its accurate form.  It comes after whatever changes lets, so that no form is of another operator.

A brief form lies within BRIEF of the exact value, relatively.  Where each step from the let to memory keeps relative errors
(`_keeps`: products, quotients, roots, sums of what has one sign, selections), the stored result moves by no more than that times
the let's uses: 1/256 of a unit in the last place of a bf16 and 1/32 of an f16 each time.
Of some operators there is a `rough` form too, within ROUGH: 1/8 of a unit of a bf16, too much for an f16.  It is taken only where
the brief forms would not fit under the time that an element's bytes take.  There a `coarse` form is taken too, whose error, of up to
COARSE, is absolute: of what is nowhere negative, where it is nothing but a term, times up to twice the other one, a literal (the sigmoid
of 2 sigmoid(x) + 1), so that of the sum it is a relative one within ROUGH.

A difference, and a sum of what may have either sign, keeps no relative error: what it takes is measured by the larger of its terms (by
the sum of their sizes).  Where all that follows is steady (`_steady`: sums, products, selections, the dividend of a quotient, tanh and
sigmoid; it moves an error by no more than the other operands' sizes), the form is the `near` one.  It lies within NEAR of the exact
value of an argument that is off by no more than SHIFT, both relatively.  That is 1/4096 of a unit in the last place of a bf16 and 1/512
of an f16, of the larger term each time: where digits cancel, those are lost that 20 bits do not have.  Derivatives are seldom that near
to 0: tests/precision/test_differences.py holds them, over all numbers of 16 bits, to that bound and beside eager PyTorch.

Where a step can magnify an error (the argument of exp, a divisor or a root that digits cancel in, a comparison, a rounding), and where a
result is stored in more than 16 bits, the form is the accurate one.

A sum with a product in it, of what ends in 16 bits alone, is `fused`: rounded once.  That is never further from the exact value than the
bound of both roundings.

A difference 1 - tanh(x)^2, of a tanh that nothing else uses, is a `slope` where its near form would do: it is made of exp(-2 |x|), within
NEAR of its value, in which no digit cancels.

Where results have more bits than 16, quotients by a value of their row go by parts of the divisor's inverse on CUDA (`split_quotients`),
where blocks of a cluster share a row, which wait for one another: a division takes ten instructions, one for special functions and a
branch among them.  Results of 16 bits take one product, where an element has several.  So do quotients by a number of the call that an
order reads, in any kernel (`uniform_quotients`): logits over a temperature, of which a softmax takes the greatest.

What an order reads (ORDERS, a comparison; not relu and clamp, which no equality looks for), however far above it, has its accurate form
and is not fused; nor does a function take its factors (`kgen.backends.factors`).  Such forms go by where values end, which differs
between a forward and a backward: the one's greatest would be none of the values that the other computes anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from kgen.check import Kernel
from kgen.dear import SPECIAL_PER_BYTE
from kgen.expand import is_reduction
from kgen.ir import FEW_DIGITS, Form, Let, Program, literal_of, live, rounded_to
from kgen.monoids import MONOIDS, RIDERS
from kgen.ops import BY_CHANCE, OPS, REDUCTIONS, ROWS, Op, Reduction
from kgen.passes import Pass, Plan, Reduce, Scan, elements, of_lets, verified
from kgen.quotients import shared_quotients
from kgen.searches import SEARCHES
from kgen.types import DTYPES, DType, f64, is_wide

#: How far the brief and the rough form of an operator may lie from the exact value, relatively.
BRIEF, ROUGH = 2.0**-16, 2.0**-10.9
#: How far the coarse form may lie from the exact value, whatever that is.
COARSE = ROUGH / 2
#: How far the near form may lie from the exact value of an argument that is itself off by SHIFT, both relatively.
NEAR, SHIFT = 2.0**-20, 2.0**-22

#: How far a quotient may lie from the exact value, relatively, that is made of its divisor's parts: half a unit in the last place of an f32
#: and what the parts lack. Of how many an element's divisions take longer than its bytes.
SPLIT, FEW_QUOTIENTS = 2.0**-24 * (1 + 2.0**-16), 2

#: What gives its first operand's value, or one of its elements.
MOVES = frozenset(("cast", "gather", "pick", "place", "tap"))

#: Operators and reductions that put values in an order, besides the comparisons.
ORDERS = frozenset(("max", "min", "argmax", "argmin", "cutoff", "reach"))


def ordered(lets: Iterable[Let]) -> set[str]:
    """The lets that an order is made of, by name: its operands, theirs, and so on."""
    found: set[str] = set()
    for let in reversed(tuple(lets)):
        row = OPS.get(let.expr.name)
        if let.name in found or let.expr.name in ORDERS or row is not None and row.rule == "compare":
            found.update(o.name for o in let.expr.operands)
    return found


class _Way(NamedTuple):
    """What all ways from a let to memory make of its error.  `calm`: a relative one stays as it is; `steady`: one is moved by no more than
    the sizes of what it is multiplied with; `near`: a relative one stays as it is, and from the first difference on is moved so."""

    calm: bool = True
    steady: bool = True
    near: bool = True

    def meet(self, other: _Way) -> _Way:
        """Of two ways that are both gone."""
        return _Way(*(a and b for a, b in zip(self, other, strict=True)))

    def before(self, keeps: bool, steady: bool) -> _Way:
        """The way that begins with a step which keeps relative errors or is steady."""
        return _Way(self.calm and keeps, self.steady and steady, self.near and keeps or self.steady and steady)


NO_WAY = _Way(calm=False, steady=False, near=False)


def _ends(program: Program, declared: Mapping[str, str]) -> dict[str, tuple[str, _Way]]:
    """For each let whose value enters results of one 16-bit dtype alone: that dtype, and what becomes of its errors.  `declared` has the
    results' dtypes by name (`{"y": "T"}`)."""
    signs = _signs(program.lets, program.by_name)
    into: dict[str, set[str]] = {}
    ways: dict[str, _Way] = {}
    for s in program.stores:
        into.setdefault(s.ref, set()).add(declared[s.result])
        if not program.by_name[s.ref].tensor_dtype.is_float:
            ways[s.ref] = NO_WAY
    for let in reversed(program.lets):
        ends, way = into.get(let.name, set()), ways.get(let.name, _Way())
        rounds = let.generic.startswith("=") or isinstance(let.dtype, DType) and let.dtype.narrow
        if let.expr.name in ("cast", BY_CHANCE) and rounds and ends:  # a rounding to 16 bits by name is as good as a store
            ends, way = {rounded_to(let)}, _Way()
        for k, o in enumerate(let.expr.operands):
            into.setdefault(o.name, set()).update(ends)
            step = way.before(_keeps(let, k, program.by_name, signs), _steady(let, k))
            ways[o.name] = ways.get(o.name, step).meet(step)
    return {name: (decides, ways.get(name, _Way())) for name, ends in into.items() if ends and (decides := _decides(ends))}


def _decides(into: set[str] | list[str]) -> str:
    """The one name that says whether all of these dtypes have 16 bits, "" where none does: they are 16-bit floats by name and at
    most one variable."""
    free = {name for name in into if name not in DTYPES}
    fixed = [name for name in into if name in DTYPES]
    if len(free) > 1 or any(is_wide(name) for name in free) or not all(DTYPES[name].narrow for name in fixed):
        return ""
    if free:
        return free.pop() if FEW_DIGITS.issuperset(fixed) else ""
    return max(fixed, key=lambda name: DTYPES[name].digits)


def _row(let: Let) -> Op | Reduction | None:
    """A let's row in the tables, if it has one."""
    return REDUCTIONS.get(let.expr.name) if is_reduction(let) else OPS.get(let.expr.name)


def _signs(lets: Iterable[Let], defs: Mapping[str, Let]) -> dict[str, int]:
    """1 for the lets that are surely not negative, -1 for those not positive, 0 for the rest."""
    made: dict[str, int] = {}
    for let in lets:
        name, signs = let.expr.name, [made.get(o.name, 0) for o in let.expr.operands]
        operands = [o.name for o in let.expr.operands]
        value = literal_of(let, dict(defs)) if name in ("lit", "cast") else None
        if value is not None:
            sign = 1 if value >= 0 else -1
        elif name in RIDERS:
            sign = MONOIDS[name].sign
        elif name in ("size", "index") or name == "mul" and operands[0] == operands[1]:
            sign = 1
        elif name == "tap":  # outside it is a literal
            sign = signs[0] if signs[1] == signs[0] or literal_of(defs[operands[1]], dict(defs)) == 0 else 0
        elif name in MOVES:
            sign = signs[0]
        else:
            row = _row(let)
            sign = row.sign.of(*signs) if row is not None else 0
        made[let.name] = sign
    return made


def _keeps(let: Let, k: int, defs: Mapping[str, Let], signs: Mapping[str, int]) -> bool:
    """Whether a relative error of operand number k is one of no more than that size of the result."""
    name, operands = let.expr.name, [o.name for o in let.expr.operands]
    if not let.is_float:
        return False
    if name in MOVES:
        return k == 0
    if name == "pow" and k == 0:
        power = literal_of(defs[operands[1]], dict(defs))
        return power is not None and abs(power) <= 2
    row = _row(let)
    return row is not None and row.errors.calm(k, *(signs[o] for o in operands))


def _steady(let: Let, k: int) -> bool:
    """Whether an error of operand number k is moved by no more than the other operands' sizes."""
    if let.expr.name in MOVES:
        return k == 0 and let.is_float
    row = _row(let)
    return row is not None and let.is_float and row.errors.steady(k)


def formed(plan: Plan, kernel: Kernel) -> Plan:
    """The plan with its operators in the forms that they have where a dtype has 16 bits."""
    found, defs = _forms(plan, kernel), plan.program.by_name

    def of(let: Let) -> Let:
        return replace(let, form=found[let.name]) if let.name in found and let.expr == defs[let.name].expr else let

    return verified(of_lets(plan, of))


def _forms(plan: Plan, kernel: Kernel) -> dict[str, Form]:
    """The lets of a plan that have another form than the accurate one where a dtype has 16 bits; those that are "shared" are quotients
    (`kgen.quotients`)."""
    program = replace(plan.program, lets=live(plan.program.lets, plan.program.stores))  # what rows that do not stay take has accurate forms
    accurate, defs = ordered(program.lets), program.by_name
    ends = {
        name: (decides, way)
        for name, (decides, way) in _ends(program, {r.name: r.dtype for r in kernel.results}).items()
        if name not in accurate and not _may_be_f64(defs[name], decides)
    }
    chosen = {name: Form("brief" if way.calm else "near", decides) for name, (decides, way) in ends.items() if way.near}
    stored = {p.name: p.dtype for p in kernel.params} | {r.name: r.dtype for r in kernel.results}
    made: dict[str, Form] = {}
    for p in plan.passes:
        code = [let for let in elements(p) if let.expr.name in ROWS]
        special = sum(ROWS[let.expr.name].cost_of(chosen[let.name].name if let.name in chosen else "")[1] for let in code)
        names = [t.name for t in p.loads if set(t.dims) == set(p.dims)] + [s.result for s in p.stores if set(s.dims) == set(p.dims)]
        strained = special > SPECIAL_PER_BYTE * sum(_short(stored.get(name, "f32")) for name in names)
        for let in p.lets:
            row = OPS.get(let.expr.name)
            if row is None or row.brief is None or let.name not in chosen or not let.dims:
                continue
            form, decides = chosen[let.name]
            few = decides not in DTYPES or decides in FEW_DIGITS
            if few and strained and form == "brief" and let in code:
                form = "rough" if row.brief.rough else "coarse" if row.brief.coarse and _is_a_term(let, program) else form
            made[let.name] = Form(form, decides)
    uses = Counter(o.name for let in program.lets for o in let.expr.operands)
    uses.update(s.ref for s in program.stores)
    for let in program.lets:
        if let.name in ends and let.expr.name in ("add", "sub") and let.dims and _product(let, defs, uses) is not None:
            made[let.name] = Form("fused", ends[let.name][0])
            if _is_tanh_slope(let, defs, uses) and let.name in chosen:
                made[let.name] = Form("slope", ends[let.name][0])
    declared = {p.name: p.dtype for p in kernel.params}
    return made | {name: Form("shared", dtype) for name, dtype in shared_quotients(program, declared).items()}


def shares_divisors(p: Pass) -> bool:
    """Whether what follows from a divisor alone is computed once, before a reading of rows, where a pass divides by one often."""
    return isinstance(p, Reduce) and not isinstance(p, Scan) and not p.pieces and not any(let.expr.name in SEARCHES for let in p.lets)


def split_quotients(p: Pass, program: Program) -> frozenset[str]:
    """The quotients of a pass by a value of their row that need no division of their own (on targets that do so): what follows from the
    divisor alone makes them, within SPLIT, where a result has more bits than 16 and is no f64.  They are those that no order is; in 16 bits
    those of passes in which an element has FEW_QUOTIENTS or more: one takes no longer than the element's bytes."""
    if not shares_divisors(p):
        return frozenset()
    accurate, defs = ordered(program.lets), program.by_name | {let.name: let for let in p.lets}
    assert isinstance(p, Reduce)
    found = [
        let.name for let in elements(p)
        if let.expr.name == "div" and {*let.dims} & {*p.inner} and not {*defs[let.expr.operands[1].name].dims} & {*p.inner}
        and let.is_float and let.dtype is not f64 and not defs[let.expr.operands[1].name].is_number
        and not (let.form and let.form.decides in DTYPES) and let.name not in accurate
    ]  # fmt: skip
    return frozenset(found)


def uniform_quotients(program: Program) -> frozenset[str]:
    """The quotients by a number that the call gives (a temperature) that an order reads, which on such targets go by parts of its inverse
    wherever they are computed: all kernels that compute one anew get the same value.  Means, and what literals divide, are exact."""
    accurate = ordered(program.lets)
    given = set[str]()  # the lets that have no dims and are made of an argument
    for let in program.lets:
        if let.expr.name == "arg" or not let.dims and given.intersection(o.name for o in let.expr.operands):
            given.add(let.name)
    found = [
        let.name for let in program.lets
        if let.expr.name == "div" and let.dims and let.is_float and let.dtype is not f64 and let.name in accurate
        and not let.form and let.expr.operands[1].name in given
    ]  # fmt: skip
    return frozenset(found)


def all_split(plan: Plan) -> frozenset[str]:
    """What goes by parts of a divisor's inverse in a plan: both kinds of quotients."""
    return uniform_quotients(plan.program).union(*(split_quotients(p, plan.program) for p in plan.passes))


def _may_be_f64(let: Let, decides: str) -> bool:
    """Whether a let is computed in f64 for some dtypes of which `decides` has 16 bits: then none of its forms is meant for it."""
    variables = set(let.generic.lstrip("=").split("+")) - {""}
    return bool(variables - {decides}) or not variables and let.dtype is f64


def _product(let: Let, defs: Mapping[str, Let], uses: Mapping[str, int]) -> int | None:
    """Which operand of a sum or difference of floats is an unnamed product that nothing else uses; None if neither is."""
    if not let.is_float:
        return None
    for k, o in enumerate(let.expr.operands):
        term = defs[o.name]
        if term.expr.name == "mul" and not term.label and uses[o.name] == 1 and term.dtype is let.dtype and term.generic == let.generic:
            return k
    return None


def _is_a_term(let: Let, program: Program, factor: Fraction | None = None) -> bool:
    """Whether a let that is nowhere negative, or what it is times a literal, that `factor`, is used in sums alone whose other term is a
    literal of at least half of the factor: an error of the let is then one of at most twice its size of the sum, relatively."""
    users = [user for user in program.lets for o in user.expr.operands if o.name == let.name]

    def is_term_of(user: Let) -> bool:
        beside = [literal_of(program.by_name[o.name], program.by_name) for o in user.expr.operands if o.name != let.name]
        if len(user.expr.operands) != 2 or len(beside) != 1 or beside[0] is None:
            return False
        if user.expr.name == "mul" and factor is None and beside[0] > 0:
            return _is_a_term(user, program, beside[0])
        return user.expr.name == "add" and 2 * beside[0] >= (factor or 1)

    return bool(users) and not any(s.ref == let.name for s in program.stores) and all(map(is_term_of, users))


def _is_tanh_slope(let: Let, defs: Mapping[str, Let], uses: Mapping[str, int]) -> bool:
    """Whether a let is 1 - tanh(x)^2, of a tanh that nothing else uses."""
    one, square = (defs[o.name] for o in let.expr.operands)
    if let.expr.name != "sub" or literal_of(one, dict(defs)) != 1 or square.expr.name != "mul" or uses[square.name] > 1:
        return False
    a, b = (defs[o.name] for o in square.expr.operands)
    return a is b and a.expr.name == "tanh" and uses[a.name] == 2 and a.dtype is let.dtype and a.generic == let.generic


def _short(dtype: str) -> int:
    """The bytes of a declared dtype, where its variables stand for floats of 16 bits."""
    return DTYPES[dtype].bytes if dtype in DTYPES else 4 if is_wide(dtype) else 2
