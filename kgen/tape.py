"""The values of a kernel with those of its derivative behind them.

In: a checked kernel.  Out: a graph in which rules of the table, in kgen's own language, are built over values, and
contributions to a cotangent are collected.

What is chosen by a condition is selected last: the gradient of `sqrt(x) if x > 0 else 0` is 0 where x is 0, though the
root's own is infinite there.  A contribution therefore carries the conditions under which it counts until it is added to another.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache

from kgen import syntax
from kgen.check import Kernel
from kgen.errors import KgenError, Span
from kgen.expressions import Expressions
from kgen.ops import OPS, REDUCTIONS, SCANS
from kgen.ops.scans import rules as scan_rules
from kgen.scanned import over
from kgen.syntax import Apply, Equation, Expr, Num
from kgen.transposed import turned
from kgen.types import DTYPES, ELLIPSIS, FEW, FLOAT, INT, Dims, Float, Number, ValueType, i64, is_literal, literal_size, union
from kgen.values import Value, cast_to, exact, reached, stored_type

MOST_STEPS = 256  # by which the terms of a sum are looked for: sums of sums of the same have no end of them
MOST_FACTORS = 16  # steps by which those of a product are looked for: a chain of products has a factor more in each sum
UNKNOWN = "?"  # in the place of a rule that the table does not have
Guards = tuple[tuple[int, bool], ...]  # conditions, and whether each must hold or fail


#: Operators whose value on rational numbers is rational, and known without rounding.
RATIONAL = frozenset("add sub mul neg eq ne lt le gt ge and or not".split())


@dataclass(frozen=True)
class Part:
    """One contribution to a cotangent: `raw` where the guards hold, else 0."""

    raw: int
    guards: Guards = ()


@dataclass(frozen=True)
class Term:
    """The value `of`, then changed by operators with operands of one value each, the last first."""

    of: int
    factors: tuple[tuple[str, int], ...] = ()

    def at(self, of: int, op: str, other: int) -> Term:
        """The same, where its value is another that is changed by one more operator."""
        return Term(of, (*self.factors, (op, other)))


@cache
def _rule(text: str) -> Expr:
    (equation,) = syntax.parse(f"r = {text}\n", "rule").statements
    assert isinstance(equation, Equation)
    return equation.body


def _is_zero(node: Expr) -> bool:
    return isinstance(node, Num) and float(node.text) == 0


class Tape(Expressions):
    """The kernel's values (the first `count`), and those of its derivative behind them."""

    def __init__(self, kernel: Kernel):
        super().__init__(kernel.file)
        self.kernel = kernel
        self.clauses = kernel.clauses
        for v in kernel.values:
            self.ids.setdefault(v, len(self.values))
            self.values.append(v)
        self.count = len(self.values)  # the forward's own
        self.tensors = [d for declared in (kernel.params, kernel.results) for d in (p.dims for p in declared) if d is not None]
        self.dims = {d: Span(0, 0) for p in kernel.params for d in p.dims or () if d != ELLIPSIS}
        self.dims |= {d: Span(0, 0) for d in kernel.literals}
        self.variables = set(kernel.variables)
        self.labels = {value: name for name, value, _ in reversed(kernel.equations)}
        self.exact_values: dict[int, Fraction | None] = {}

    # ------------------------------------------------------------------ values

    def make(self, op: str, args: tuple[int, ...], attr: str | Dims, t: ValueType, dims: Dims, span: Span) -> int:
        """A value; what is known without rounding is not computed: x * 1, x^1, integers, a condition of literals."""
        values = self.values
        if op == "mul":
            for one, other in (args, args[::-1]):
                if self.known(one) == 1 and values[other].type == t:
                    return other
        if op == "pow" and self.known(args[1]) == 1 and values[args[0]].type == t:
            return args[0]
        if op == "neg" and values[args[0]].op == "neg":
            return values[args[0]].args[0]
        if op == "where" and (holds := self.known(args[0])) is not None and values[args[1 if holds else 2]].type == t:
            return args[1 if holds else 2]
        if t == INT and op in ("add", "sub", "mul") and (number := self.exact_of(op, args)) is not None and 0 <= number < 2**63:
            return super().make("lit", (), str(int(number)), INT, (), span)
        return super().make(op, args, attr, t, dims, span)

    def known(self, v: int) -> Fraction | None:
        """The value of a number made of integer literals alone (1 or 0 for a comparison of them)."""
        todo = [v]
        while todo:
            value = self.values[todo[-1]]
            missing = [a for a in value.args if a not in self.exact_values] if isinstance(value.type, Number) else []
            if missing and todo[-1] not in self.exact_values:
                todo += missing
                continue
            at = todo.pop()
            found = Fraction(exact(str(value.attr))) if value.op == "lit" else None
            if isinstance(value.type, Number) and value.args and at not in self.exact_values:
                found = self.exact_of(value.op, value.args)
            large = found is not None and max(abs(found.numerator), found.denominator).bit_length() > 4096
            self.exact_values.setdefault(at, None if large else found)
        return self.exact_values[v]

    def exact_of(self, op: str, args: tuple[int, ...]) -> Fraction | None:
        """The exact value of an operator on numbers that are known (a bool as 0 or 1); None where one is not, or the operator has none."""
        numbers = [self.exact_values[a] if a in self.exact_values else self.known(a) for a in args]
        if not numbers or None in numbers:
            return None
        return Fraction(OPS[op].host(*numbers)) if op in RATIONAL else None

    def build(self, text: str | Expr, dims: dict[str, Dims] | None = None, **env: int) -> int:
        """The value of an expression in kgen's language over values."""
        made = self.evaluate(_rule(text) if isinstance(text, str) else text, dict(env), dims or {})
        if made is None:
            self.errors.raise_any()
        assert made is not None
        return made

    def declare(self, name: str, dtype: str, dims: Dims) -> int:
        """A new tensor parameter's value."""
        return self.make("param", (), name, stored_type(dtype), dims, Span(0, 0))

    def part(self, rule: str | Expr, guards: Guards, dims: dict[str, Dims] | None = None, **env: int) -> Part | None:
        """A rule's value; where its outermost choice is 0 on one side, that choice becomes a guard."""
        root: Expr = _rule(rule) if isinstance(rule, str) else rule
        while isinstance(root, Apply) and root.op == "where":
            condition, yes, no = root.args
            if not _is_zero(yes) and not _is_zero(no):
                break
            wanted = _is_zero(no)
            root = yes if wanted else no
            guard = self.build(condition, dims, **env)
            if (holds := self.known(guard)) is None:
                guards = guards if (guard, wanted) in guards else (*guards, (guard, wanted))
            elif bool(holds) != wanted:
                return None
        if _is_zero(root):
            return None
        return Part(self.build(root, dims, **env), guards)

    def selected(self, part: Part) -> int:
        """A contribution as one value."""
        raw = part.raw
        for guard, holds in reversed(part.guards):
            raw = self.build("x if c else 0" if holds else "0 if c else x", c=guard, x=raw)
        return raw

    def settled(self, part: Part, dims: Dims) -> Part:
        """The same contribution with those of its conditions selected that differ along dims."""
        inside = tuple(g for g in part.guards if set(self.values[g[0]].dims) & set(dims))
        return Part(self.selected(Part(part.raw, inside)), tuple(g for g in part.guards if g not in inside))

    def joined(self, parts: list[Part]) -> Part:
        """The sum of contributions: those under the same guards are added under them, and of two under a condition and its
        contrary one or the other is taken; guards that all have stay outside."""
        parts = list(parts)
        while len(parts) > 1:
            pair = next(((a, b) for k, a in enumerate(parts) for b in parts[k + 1 :] if _meet(a.guards, b.guards)), None)
            if pair is None:
                break
            a, b = pair
            if a.guards == b.guards:
                both = Part(self.added(a.raw, b.raw), a.guards)
            else:
                *rest, (guard, holds) = a.guards
                yes, no = (a.raw, b.raw) if holds else (b.raw, a.raw)
                both = Part(self.build("a if c else b", c=guard, a=yes, b=no), tuple(rest))
            parts = [both if p is a else p for p in parts if p is not b]
        parts = self.covered(parts)
        shared = tuple(g for g in parts[0].guards if all(g in part.guards for part in parts))
        own = [Part(part.raw, tuple(g for g in part.guards if g not in shared)) for part in parts]
        total = self.selected(own[0])
        for part in own[1:]:
            total = self.added(total, self.selected(part))
        return Part(total, shared)

    def added(self, a: int, b: int) -> int:
        """a + b; of two sums over the same dims one sum of both terms, which takes half as many partials.  Terms that positions have a say
        in stay apart: a key may select them, so that one by one they are found without going through all."""
        one, other = self.values[a], self.values[b]
        if other.op == "sum" and min(a, b) >= self.count:
            if one.op == "add" and self.values[one.args[1]].op == "sum":
                return self.build("a + b", a=one.args[0], b=self.added(one.args[1], b))
            x, y = (self.values[v.args[0]] for v in (one, other)) if one.op == "sum" else (one, other)
            alike = one.op == "sum" and (one.attr, x.dims, x.type) == (other.attr, y.dims, y.type)
            if alike and not any(self.values[v].op == "index" for v in self.leads([one.args[0], other.args[0]])):
                return self.build("sum[D](x + y)", {"D": tuple(one.attr)}, x=one.args[0], y=other.args[0])
        made = self.factored(a, b)
        return self.build("a + b", a=a, b=b) if made is None else made

    def factored(self, a: int, b: int) -> int | None:
        """a + b as one product, where both are products of a value of the derivative's and one of them of more than one other: each step of
        a product rule's has the cotangent as a factor, dy * f(x) + dy * x * f'(x).  None where they are not.  Where what is left overflows
        the result is no number, also of a cotangent of 0."""
        one, other = self.factors(a), self.factors(b)
        shared = [f for f in dict.fromkeys(one) if f in other]
        for f in shared:
            one.remove(f)
            other.remove(f)
        if not one or not other or len(one) + len(other) < 3 or not any(f >= self.count and self.values[f].dims for f in shared):
            return None
        if any(len(rest) > 1 and all(map(self.is_number, rest)) for rest in (one, other)):
            return None  # of integers the product may have no room
        return self.build("x * (a + b)", x=self.product(shared), a=self.product(one), b=self.product(other))

    def factors(self, v: int) -> list[int]:
        """What a float of the derivative's is the product of, in order; the value alone where it is none, or one of very many.  Factors are
        of its own type, or numbers that have more digits: of others (integers, f32 of an f64) a product would be narrower than it."""
        found: list[int] = []
        todo = [v]
        for _ in range(MOST_FACTORS):
            at = todo.pop()
            value = self.values[at]
            product = at >= self.count and value.op == "mul" and isinstance(value.type, Float)
            if product and all(self.values[x].type in (value.type, FLOAT) or self.known(x) is not None for x in value.args):
                todo += reversed(value.args)
            else:
                found.append(at)
            if not todo:
                return found
        return [v]

    def is_number(self, v: int) -> bool:
        """Whether a value is a number of the call, or a literal."""
        return isinstance(self.values[v].type, Number)

    def product(self, factors: list[int]) -> int:
        """The product of values, the first ones first, but no number before all that are none: each is rounded as the product is."""
        begin = next((k for k, f in enumerate(factors) if not self.is_number(f)), 0)
        made, rest = factors[begin], factors[:begin] + factors[begin + 1 :]
        for f in rest:
            made = self.build("x * y", x=made, y=f)
        return made

    def summed(self, part: Part, over: Dims) -> Part | None:
        """The sum of a contribution over dims; along those that it lacks it is the same everywhere, and counted.  None where it is 0: what
        is left of a value by its own mean adds up to nothing."""
        for dim in over:
            if (k := self.only(part, dim)) is not None:
                part, over = self.at_part(part, dim, k), tuple(d for d in over if d != dim)
        if not over:
            return part
        part = self.settled(part, over)
        part, factor = self.without_numbers(part) if all(map(is_literal, over)) else (part, Term(part.raw))
        raw = part.raw
        here = {d for d in over if d in self.values[raw].dims}
        terms = self.terms(raw, here) if here else [Term(raw)]
        left = [term for term in terms if not self.is_centred(term.of, here)]
        if not left:
            return None
        term = left[0] if len(left) == 1 < len(terms) else Term(raw)
        return Part(self.times(self.times(self.counted(term.of, over), term), factor), part.guards)

    def part_of(self, guard: int, dim: str) -> int | None:
        """The k of a condition `index[dim] == k`."""
        value = self.values[guard]
        if value.op != "eq" or not is_literal(dim):
            return None
        index, number = (self.values[a] for a in value.args)
        return int(str(number.attr)) if (index.op, index.attr, number.op) == ("index", dim, "lit") else None

    def only(self, part: Part, dim: str) -> int | None:
        """The one place along a literal dim at which a contribution counts; None where there are several, or none."""
        at = [(k, holds) for guard, holds in part.guards if (k := self.part_of(guard, dim)) is not None]
        if not at or literal_size(dim) > FEW:
            return None
        left = [j for j in range(literal_size(dim)) if all((j == k) == holds for k, holds in at)]
        return left[0] if len(left) == 1 else None

    def at_part(self, part: Part, dim: str, k: int) -> Part:
        """A contribution at its only place along a dim."""
        part = self.settled(Part(part.raw, tuple(g for g in part.guards if self.part_of(g[0], dim) is None)), (dim,))
        raw = part.raw
        if dim in (dims := self.values[raw].dims):
            at = self.make("lit", (), str(k), INT, (), Span(0, 0))
            raw = self.make("place", (raw, at), (dim,), self.values[raw].type, tuple(d for d in dims if d != dim), Span(0, 0))
        return Part(raw, part.guards)

    def covered(self, parts: list[Part]) -> list[Part]:
        """Contributions to each place along a literal dim, as one that chooses among them."""
        groups: dict[tuple[Guards, str], dict[int, Part]] = {}
        for part in parts:
            guard, holds = part.guards[-1] if part.guards else (-1, False)
            dim = str(self.values[self.values[guard].args[0]].attr) if holds and self.values[guard].op == "eq" else ""
            if dim and (k := self.part_of(guard, dim)) is not None:
                groups.setdefault((part.guards[:-1], dim), {}).setdefault(k, part)
        for (rest, dim), by_place in groups.items():
            if len(by_place) == literal_size(dim):
                *others, (_, made) = sorted(by_place.items())
                raw = made.raw
                for _, part in reversed(others):
                    raw = self.build("a if c else b", c=part.guards[-1][0], a=part.raw, b=raw)
                whole = Part(raw, rest)
                return self.covered([whole, *(p for p in parts if not any(p is own for own in by_place.values()))])
        return parts

    def counted(self, v: int, over: Dims) -> int:
        """The sum of a value over dims, some of which it may lack."""
        here = tuple(d for d in over if d in self.values[v].dims)
        total = self.build("sum[D](x)", {"D": here}, x=v) if here else v
        for d in over:
            if d not in here:
                total = self.build("x * n", x=total, n=self.size((d,), Span(0, 0)))
        return total

    def terms(self, v: int, over: set[str]) -> list[Term]:
        """What a value adds up, each as a value times what is the same all along some dims; the value alone where that takes long."""
        found: list[Term] = []
        todo = [Term(v)]
        for _ in range(MOST_STEPS):
            term = todo.pop()
            parts = self.split(term, over)
            todo += reversed(parts)
            if not parts:
                found.append(term)
            if not todo:
                return found
        return [Term(v)]

    def split(self, term: Term, over: set[str]) -> list[Term]:
        """The terms that one adds up, or the same with a factor taken out; none where it is neither a sum nor a product."""
        value = self.values[term.of]
        op, args = value.op, value.args
        if not isinstance(value.type, Float) or self.is_centred(term.of, over):
            return []
        if op in ("neg", "pos"):
            return [term.at(args[0], op, -1)]
        if op in ("add", "sub") and all(isinstance(self.values[a].type, Float) for a in args):
            a, b = args
            return [replace(term, of=a), term.at(b, "neg", -1) if op == "sub" else replace(term, of=b)]
        if op in ("mul", "div"):
            for k, other in ((0, args[1]), (1, args[0])):
                if not over & set(self.values[other].dims) and (op == "mul" or k == 0):
                    return [term.at(args[k], op, other)]
        return []

    def without_numbers(self, part: Part) -> tuple[Part, Term]:
        """A contribution without the literals that multiply or divide it, and the term that they make of a value."""
        term = Term(part.raw)
        while True:
            value = self.values[term.of]
            k = 0 if value.op == "div" or value.op == "mul" and self.known(value.args[1]) else 1
            literal = value.op in ("mul", "div") and self.known(value.args[1 - k])
            if not literal or not isinstance(self.values[value.args[k]].type, Float):
                return replace(part, raw=term.of), term
            term = term.at(value.args[k], value.op, value.args[1 - k])

    def is_centred(self, v: int, over: set[str]) -> bool:
        """Whether a value is another less its mean over dims: its sum over them is 0."""
        value = self.values[v]
        if value.op != "sub":
            return False
        mean = self.values[value.args[1]]
        return mean.op == "mean" and mean.args == value.args[:1] and set(mean.attr) == over

    def times(self, v: int, term: Term) -> int:
        """A value times what a term's is multiplied by."""
        for op, other in reversed(term.factors):
            if op == "neg":
                v = self.build("-x", x=v)
            elif op != "pos":
                v = self.build("x * f" if op == "mul" else "x / f", x=v, f=other)
        return v

    # ------------------------------------------------------------------ what is differentiated

    def moving(self, leaves: Iterable[str]) -> set[int]:
        """The forward's values that move when the parameters `leaves` do."""
        chosen, found = set(leaves), set()
        for k, v in enumerate(self.values[: self.count]):
            moves = v.attr in chosen if v.op == "param" else any(a in found for a, _ in self.rules(v))
            if moves and isinstance(v.type, Float):
                found.add(k)
        return found

    def rules(self, v: Value) -> list[tuple[int, str]]:
        """The operands by which a value may move, each with its rule ("dy" for a cast; a pick's is `dy` where the index stands)."""
        if v.op == "cast":
            name, how = cast_to(v)
            return [(v.args[0], f"dy if abs(x) <= {DTYPES[name].largest} else 0" if "saturate" in how else "dy")]  # as torch's clamp has it
        if v.op == "pick":
            return [(v.args[0], "dy if p == t else 0")]
        if v.op == "place":
            return [(v.args[0], "dy")]
        if v.op in REDUCTIONS and v.attr:
            return [(v.args[0], rule)] if (rule := REDUCTIONS[v.op].grad) else []
        if v.op in SCANS:
            numbers = isinstance(self.values[v.args[0]].type, Number)
            return [(a, rule) for a, rule in zip(v.args, scan_rules(v.op, tuple(v.attr), numbers=numbers), strict=True) if rule != "0"]
        if v.op not in OPS:
            return []
        unknown = UNKNOWN if OPS[v.op].rule == "float" else "0"  # an operator of bools or integers has nothing to give
        rules = [(a, rule or unknown) for a, rule in zip(v.args, OPS[v.op].grad, strict=True)]
        return [(a, rule) for a, rule in rules if rule != "0"]

    def share(self, k: int, rule: str, dy: Part) -> Part | None:
        """What a rule of value `k` makes of a cotangent or tangent `dy`; None where that is 0."""
        v = self.values[k]
        if v.op in SCANS:
            dy = self.settled(dy, tuple(v.attr[:1]))  # it mixes elements where a condition holds and where it fails
        if rule == UNKNOWN:
            raise KgenError(f"{self.kernel.name}: the derivative of `{v.op}` is not known", help=f"cut it: stop({v.op}(x))")
        if v.op == "place":
            return turned(self, k).share(dy)
        env: dict[str, int] = {"y": k, "dy": dy.raw}
        dims: dict[str, Dims] = {}
        if v.op == "pick":
            dim = v.attr[0]
            env |= {"p": self.make("index", (), dim, i64, (dim,), v.span), "t": v.args[1]}
        elif v.op == "cast":
            env["x"] = v.args[0]
        elif v.op in REDUCTIONS and v.attr:
            env["x"], dims = v.args[0], {"D": tuple(v.attr)}
        elif v.op in SCANS:
            env |= dict(zip(SCANS[v.op].args, v.args, strict=True))
            dims = {"D": over(v.op, v.attr)}
        elif v.op in OPS:
            env |= dict(zip(OPS[v.op].args, v.args, strict=True))
        return self.part(rule, dy.guards, dims, **env)

    def dims_of_share(self, k: int) -> Dims:
        """The dims that what a rule of value `k` makes of a cotangent has in full."""
        v = self.values[k]
        if v.op in SCANS:
            return v.dims
        return turned(self, k).dims if v.op == "place" else union(v.dims, v.attr if isinstance(v.attr, tuple) else ())

    def leads(self, roots: Iterable[int], stops: Container[int] = ()) -> set[int]:
        """What the roots are made of, themselves among it; nothing behind `stops`."""
        return reached(roots, lambda v: () if v in stops else self.values[v].args)


def _meet(a: Guards, b: Guards) -> bool:
    """Whether two contributions are added under the same guards, or stand on the two sides of a last one."""
    return a == b or bool(a) and bool(b) and a[:-1] == b[:-1] and a[-1][0] == b[-1][0]
