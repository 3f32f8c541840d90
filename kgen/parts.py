"""Literal dims of a few elements taken apart: a kernel over the parts of its tensors, each an operand of its own.

In: a kernel whose tensors have an axis for each dim.  Out: the kernel of the same results in which no index runs along such a dim, and
no place lies there: `x[2 = 0]` is the operand `x_0`, `y[2 = 0] = ...` the result `y_0`, `sum[4](w * z)` four terms.  So halves are read
and written as whole tensors are, and what a part does not need is not computed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from kgen import check as checker
from kgen import sized, syntax
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.host import to_dtype
from kgen.ops import OPS, REDUCTIONS
from kgen.places import Places, taken_apart
from kgen.scanned import over as over_dim
from kgen.syntax import Apply, Num
from kgen.tape import Tape
from kgen.transposed import integer
from kgen.types import (
    DTYPES,
    ELLIPSIS,
    INT,
    Dims,
    DType,
    Float,
    Number,
    ValueType,
    boolean,
    f32,
    i64,
    is_bool,
    is_float,
    is_wide,
    literal_size,
    promote,
    union,
    variable_of,
)
from kgen.values import Value, stored_type
from kgen.write import Declared, Names, write

MOST_PARTS = 16  # of one tensor
MOST_TERMS = 128  # of another value: the elements of a window
#: Operators whose value on integers is known where those of their operands are.
KNOWN: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a, "pos": lambda a: a,
    "mod": lambda a, b: a % b if b else a, "floordiv": lambda a, b: a // b if b else 0, "min": min, "max": max, "cast": lambda a: a,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "and": lambda a, b: a and b, "or": lambda a, b: a or b, "not": lambda a: not a,
}  # fmt: skip
#: How the parts of a reduced dim are put together.
FOLDS = {"sum": "add", "mean": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


@dataclass(frozen=True)
class Part:
    """A parameter or result that is a part of a kernel's: `name` is `of` at places along literal dims."""

    name: str
    of: str
    at: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Parted:
    """A kernel over parts, and what its parameters and results are parts of."""

    kernel: Kernel
    params: tuple[Part, ...]
    results: tuple[Part, ...]


At = tuple[int, ...]


def parted(kernel: Kernel) -> Parted | None:
    """The kernel over parts; None where it has no dim to take apart, where the parts of a value have other dims than it is reduced over,
    where a part would be a 0-d tensor or a number beside others of another dtype, which it would not promote, or where the kernel would be
    too long."""
    dims = taken_apart(kernel)
    tensors = [p for p in kernel.params if p.dims is not None]
    alone = any(p.dims and set(p.dims) <= set(dims) for p in tensors)
    if not dims or alone and len({p.dtype for p in tensors}) > 1:
        return None
    try:
        return _Parts(kernel, dims).made()
    except (_Whole, KgenError):  # a literal in the place of an index may be refused: `x % 0`
        return None


def over_parts(kernel: Kernel) -> Kernel:
    """The kernel that is launched: over parts where there is one, else the kernel itself."""
    made = parted(checker.plain(kernel)) if taken_apart(kernel) else None
    return kernel if made is None else made.kernel


class _Whole(Exception):
    """What cannot be taken apart."""


def _common(operands: list[Value]) -> ValueType:
    """The type in which operands are compared."""
    return promote([(x.type, bool(x.dims)) for x in operands])


class _Parts(Tape):
    def __init__(self, kernel: Kernel, dims: Dims):
        super().__init__(kernel)
        self.apart = dims
        declared = [*(p.name for p in kernel.params), *(r.name for r in kernel.results), *(name for name, _, _ in kernel.equations)]
        dtypes = [*kernel.variables, *(f"{v}32" for v in kernel.variables)]
        self.free = Names([*declared, *self.dims, *dtypes, kernel.name])
        self.numbers: dict[int, int] = {}  # what is known of new values
        self.found: list[dict[At, int]] = []  # of each value of the kernel its parts, by their places along its own dims
        self.pieces: dict[int, Part] = {}
        self.beyond: set[tuple[tuple[str, int], ...]] = set()  # where the last place lies outside
        self.chosen = False  # whether it is a choice among parts

    def own(self, dims: Dims) -> Dims:
        """Those of some dims that are taken apart."""
        return tuple(d for d in self.apart if d in dims)

    def all_places(self, dims: Dims) -> Iterator[At]:
        return product(*(range(literal_size(d)) for d in self.own(dims)))

    def made(self) -> Parted:
        """The kernel over parts.  Raises `_Whole` where a value has too many of them."""
        kernel = self.kernel
        for v in kernel.values:
            parts = list(self.all_places(v.dims))
            if len(parts) > (MOST_PARTS if v.op == "param" else MOST_TERMS):
                raise _Whole
            self.found.append({at: self.taken(v, dict(zip(self.own(v.dims), at, strict=True))) for at in parts})
        results, outs = list[Part](), list[tuple[Declared, int]]()
        names = {of.name: of for of in self.pieces.values()}
        for r in kernel.results:
            own = self.own(r.dims)
            if len(list(self.all_places(r.dims))) > MOST_PARTS:
                raise _Whole
            for at in self.all_places(r.dims):
                there = dict(zip(own, at, strict=True))
                state = next((n for n, p in names.items() if p.of == r.state and dict(p.at) == there), None)
                if r.state and own and state is None:
                    state = self.param(r.state, there)
                name = r.name if not own else f"{state}'" if state else self.free.fresh("_".join([r.name, *map(str, at)]))
                rest = tuple(d for d in r.dims if d not in own)
                outs.append((Declared(name, r.dtype, rest), self.at(r.value, there)))
                results.append(Part(name, r.name, tuple(there.items())))
        return self.finished(results, outs)

    def finished(self, results: list[Part], outs: list[tuple[Declared, int]]) -> Parted:
        """The kernel of these results: it declares the parts that they are made of, and a part of each tensor that gives a size."""
        kernel, used = self.kernel, self.leads(v for _, v in outs)
        states = {p.name.rstrip("'") for p in results}
        live = {of.name: of for v, of in self.pieces.items() if v in used or of.name in states}
        declared, params = list[Declared](), list[Part]()
        read = [self.values[v] for v in used]
        wanted = {d for o, _ in outs for d in o.dims or ()} | {str(v.attr) for v in read if v.op in ("size", "index")}
        dtypes = {variable_of(o.dtype) for o, _ in outs} | {variable_of(str(v.attr)) for v in read if v.op == "cast"}
        numbers = {str(v.attr) for v in read if v.op == "param" and isinstance(v.type, Number)}
        wanted = sized.needed(self.clauses, wanted, {d for p in kernel.params for d in p.dims or ()})
        numbers |= wanted
        for p in kernel.params:
            if p.dims is None:
                declared += [Declared(p.name, p.dtype, None, p.default)] if p.name in numbers else []
                params += [Part(p.name, p.name, ())] if p.name in numbers else []
                continue
            rest = tuple(d for d in p.dims if d not in self.apart)
            mine = [of for of in live.values() if of.of == p.name]
            have = {d for o in declared for d in o.dims or ()}
            if not mine and ((wanted & set(rest)) - have or p.dtype in dtypes - {o.dtype for o in declared}):
                mine = [next(of for of in self.pieces.values() if of.of == p.name)]
            declared += [Declared(of.name, p.dtype, rest) for of in mine]
            params += mine
        if any(ELLIPSIS in (p.dims or ()) and not any(of.of == p.name for of in params) for p in kernel.params) or not params:
            raise _Whole  # it may widen what is written
        labels: dict[int, str] = {}
        for name, v, _ in kernel.equations:
            for at, part in self.found[v].items():
                if part in used and self.values[part].op not in ("param", "lit"):
                    labels.setdefault(part, self.free.fresh("_".join([name.rstrip("'"), *map(str, at)])) if at else name)
        labels = {v: n for v, n in labels.items() if n not in {o.name for o, _ in outs}}
        shown = [f"{of.name} is {of.of}[{', '.join(f'{d} = {k}' for d, k in of.at)}]" for of in (*params, *results) if of.at]
        doc = [*(kernel.doc.split("\n") if kernel.doc else ()), f"{'; '.join(shown)}."]
        text = write(kernel.name, doc, declared, outs, self.values, {}, labels, self.free, self.clauses)
        made = checker.check(syntax.parse(text, kernel.file.source.name))
        inmost = {p.name: p.dims[-1] for p in kernel.params if p.dims} | {r.name: r.dims[-1] for r in kernel.results if r.dims}
        every = [of for of in (*params, *results) if of.at]
        turned = frozenset(of.name for of in every if inmost[of.of] in dict(of.at))
        made = replace(made, parts=tuple((of.name, of.of, of.at) for of in every), turned=turned)
        return Parted(made, tuple(params), tuple(results))

    # ------------------------------------------------------------------ one value

    def at(self, v: int, there: Mapping[str, int]) -> int:
        """The part of a value at places along dims, of which it may lack some."""
        return self.found[v][tuple(there[d] for d in self.own(self.values[v].dims))]

    def param(self, name: str, there: Mapping[str, int]) -> str:
        """A part of a parameter, declared."""
        p = next(q for q in self.kernel.params if q.name == name)
        made = self.free.fresh("_".join([name, *map(str, there.values())])) if there else name
        rest = tuple(d for d in p.dims or () if d not in there)
        self.pieces[self.declare(made, p.dtype, rest)] = Part(made, name, tuple(there.items()))
        return made

    def taken(self, v: Value, there: Mapping[str, int]) -> int:
        """The part of a value at places along those of its dims that are taken apart."""
        span = v.span
        if v.op == "param" and not isinstance(v.type, Number):
            self.param(str(v.attr), there)
            return next(reversed(self.pieces))
        if v.op == "index" and str(v.attr) in there:
            number = self.make("lit", (), str(there[str(v.attr)]), INT, (), span)
            made = self.make("cast", (number,), "i64", i64, (), span)
            self.numbers[made] = there[str(v.attr)]
            return made
        if v.op == "place":
            return self.placed_part(v, there)
        if v.op in REDUCTIONS and v.attr and self.own(tuple(v.attr)):
            return self.folded(v, there)
        args = tuple(self.at(a, there) for a in v.args)
        if v.op == "pick" or v.op in REDUCTIONS and v.attr:
            self.whole(args[0], tuple(v.attr))
        for d in over_dim(v.op, v.attr):
            if d in self.apart or not any(d in self.values[a].dims for a in args):
                raise _Whole
        if v.op == "where" and Places(self.values, self.clauses).guards(v.args[0], v.args[1]) and self.values[v.args[1]].op == "place":
            return self.filled_part(v, args, there)
        if v.op == "where" and args[0] in self.numbers:
            if (found := self.stands(v, args[1 if self.numbers[args[0]] else 2])) is not None:
                return found
        over = tuple(v.attr) if v.op == "pick" or v.op in REDUCTIONS and v.attr else ()
        have = [self.values[a].dims for a in args]
        dims = union(tuple(d for d in have[0] if d not in over), *have[1:]) if args else v.dims
        made = self.make(v.op, args, v.attr, self.typed(v, args), dims, span)
        values = [self.number_of(a) for a in args]
        if v.op in KNOWN and args and None not in values and (v.op != "cast" or v.attr == "i64"):
            self.numbers[made] = int(KNOWN[v.op](*values))
        return made

    def typed(self, v: Value, args: tuple[int, ...]) -> ValueType:
        """The type of an operator on parts: a value's, or a number where they all are.  Raises `_Whole` where it is another, or operands
        are compared in another, since a part that is a number, or has no dim left, promotes what it meets less than the whole does."""
        if v.op not in OPS:
            return v.type
        if OPS[v.op].rule == "compare":
            whole, mine = (_common([values[a] for a in of]) for values, of in ((self.kernel.values, v.args), (self.values, args)))
            if mine != whole and not isinstance(mine, Number):
                raise _Whole
        t = self.result_type(OPS[v.op], Apply(v.op, (), v.span, v.span, "call"), [self.values[a] for a in args])
        if t is None or t != v.type and not isinstance(t, Number):
            raise _Whole
        return t

    def stands(self, v: Value, chosen: int) -> int | None:
        """What stands for a choice that takes a value: that, where it is of the choice's type, or a number of its kind that no rounding to
        that type changes; else the number as a cast to it, where the type has a name.  None: the choice itself."""
        t, into = self.values[chosen].type, v.type
        if t == into:
            return chosen
        if not isinstance(t, Number) or is_bool(t) or is_float(t) and not is_float(into):
            return None
        if self.is_exact(chosen, into) or self.goes_on(v):
            return chosen
        name = into.name if isinstance(into, DType) else min(into.of) if isinstance(into, Float) else ""
        full = is_wide(name) or name in DTYPES and DTYPES[name].computed is DTYPES[name]  # nothing else is computed in it
        return self.make("cast", (chosen,), name, into, (), v.span) if full and stored_type(name) == into else None

    def is_exact(self, number: int, into: ValueType) -> bool:
        """Whether a type's values have a number: one of literals that rounds, or wraps, to itself, an infinity, NaN."""
        value = self.values[number]
        if value.op == "const":
            return value.attr != "pi"
        if value.op == "neg" and self.values[value.args[0]].op == "const":
            return self.is_exact(value.args[0], into)
        exact = self.known(number)
        if exact is None or abs(exact) >= 2**64:
            return False
        return to_dtype(int(exact), into) == exact if isinstance(into, DType) else to_dtype(float(exact), f32) == exact

    def goes_on(self, v: Value) -> bool:
        """Whether a value of the kernel, the one that is looked at, goes into results and other choices alone, none of them of a dtype
        that has more of a number than its own: a float that is computed in more bits, an integer."""
        k, t = len(self.found), v.type
        read = [other for other in self.kernel.values if k in other.args]
        if not isinstance(t, Float) or any(other.op != "where" or other.args[0] == k for other in read):
            return False
        stored = [stored_type(r.dtype) for r in self.kernel.results if r.value == k]
        met = [other for other in (*(other.type for other in read), *stored) if other != t]
        every = self.kernel.bindings()
        return all(isinstance(other, Float) and all(other.compute(b) is t.compute(b) for b in every) for other in met)

    def number_of(self, v: int) -> int | None:
        """The integer that a value is known to be."""
        value = self.values[v]
        if v not in self.numbers and value.op == "lit" and value.type == INT:
            self.numbers[v] = int(str(value.attr))
        return self.numbers.get(v)

    def placed_part(self, v: Value, there: Mapping[str, int], guarded: bool = False) -> int:
        """A part of a place: that of what is read, where its place along a dim that is taken apart is known, else one of its parts;
        `guarded` says that it has a fill."""
        self.beyond, self.chosen = set(), False
        dims, places = [], []
        fixed: dict[str, int] = {}
        open_: list[tuple[str, int]] = []
        for d, e in zip(v.attr, v.args[1:], strict=True):
            at = self.at(e, there)
            if d not in self.apart:
                if self.own(self.values[e].dims) and Places(self.values, self.clauses).form(at) == {(("index", d),): 1}:
                    continue
                dims.append(d)
                places.append(integer(self, Places(self.values, self.clauses).form(at), v.span) if self.own(self.values[e].dims) else at)
            elif (k := self.number_of(at)) is None:
                open_.append((d, at))
            else:
                fixed[d] = k
        if any(not 0 <= k < literal_size(d) for d, k in fixed.items()):
            self.beyond.add(tuple(there.items()))
            return self.make("lit", (), "0", INT, (), v.span)  # a fill stands there
        rest = {d: k for d, k in there.items() if d in self.values[v.args[0]].dims and d not in v.attr}

        def read(more: Mapping[str, int]) -> int:
            x = self.at(v.args[0], {**rest, **fixed, **more})
            have = self.values[x]
            pairs = [(d, e) for d, e in zip(dims, places, strict=True) if d in have.dims]
            if guarded and len(pairs) < len(dims):
                raise _Whole  # the same all along a dim, but not beyond its ends
            if not pairs:
                return x
            kept = tuple(d for d, _ in pairs)
            made = self.placed(have.dims, kept, [e for _, e in pairs])
            return self.make("place", (x, *(e for _, e in pairs)), kept, have.type, made, v.span)

        self.chosen = bool(open_)
        if len(open_) > 1:
            raise _Whole
        if not open_:
            return read({})
        (dim, e), = open_  # a choice among all of its parts
        *others, found = (read({dim: k}) for k in range(literal_size(dim)))
        for k, here in reversed(list(enumerate(others))):
            condition = self.build("e == k", e=e, k=self.build(str(k)))
            found = self.build("a if c else b", a=here, b=found, c=condition)
        return found

    def filled_part(self, v: Value, args: tuple[int, ...], there: Mapping[str, int]) -> int:
        """A part of a place with its fill."""
        of = self.values[v.args[1]]
        own = {d: k for d, k in there.items() if d in of.dims}
        made = self.placed_part(of, own, True)
        if self.chosen and not self.beyond:
            choice = (args[0], made, args[2])
            return self.make("where", choice, "", self.typed(v, choice), union(*(self.values[a].dims for a in choice)), v.span)
        place = self.values[made]
        read = Places(self.values, self.clauses)
        if self.beyond or place.op != "place" or all(read.inside(e, d) for d, e in zip(place.attr, place.args[1:], strict=True)):
            taken = args[2] if self.beyond else made
            if (found := self.stands(v, taken)) is None:
                raise _Whole
            return found
        node = Num("0", v.span)
        filled = self.filled(Apply("place", (node, node), v.span, v.span, "place"), made, args[2])
        assert filled is not None
        return filled

    def folded(self, v: Value, there: Mapping[str, int]) -> int:
        """A reduction over dims that are taken apart: the parts put together pairwise, along one dim after the other, then reduced
        over the other dims."""
        own, rest = self.own(tuple(v.attr)), tuple(d for d in v.attr if d not in self.apart)
        of = self.values[v.args[0]].type
        terms = [self.at(v.args[0], {**there, **dict(zip(own, at, strict=True))}) for at in self.all_places(tuple(v.attr))]
        for term in terms:
            self.whole(term, rest)
        op = FOLDS.get(v.op)
        if op is None or op in ("max", "min") and is_bool(of):
            raise _Whole
        if op in ("add", "mul") and not is_float(of):
            terms = [self.build("i64(x)", x=t) for t in terms]
        if op in ("or", "and") and not is_bool(of):
            terms = [self.build("x != 0", x=t) for t in terms]
        folded = replace(v, op=op, type=boolean if op in ("or", "and") else v.type)
        for d in reversed(own):  # dim by dim: what windows side by side have in common is a value of its own
            size = literal_size(d)
            terms = [self.together(terms[k : k + size], folded, op) for k in range(0, len(terms), size)]
        made = terms[0]
        if rest:
            kept = tuple(d for d in self.values[made].dims if d not in rest)
            made = self.make(v.op, (made,), rest, v.type, kept, v.span)
        count = 1
        for d in own:
            count *= literal_size(d)
        return self.build("x / n", x=made, n=self.build(str(count))) if v.op == "mean" else made

    def together(self, terms: list[int], folded: Value, op: str) -> int:
        """Parts of a reduction, put together pairwise."""
        while len(terms) > 1:
            made = []
            for pair in (tuple(terms[k : k + 2]) for k in range(0, len(terms), 2)):
                dims = union(*(self.values[p].dims for p in pair))
                made.append(pair[0] if len(pair) == 1 else self.make(op, pair, "", self.typed(folded, pair), dims, folded.span))
            terms = made
        return terms[0]

    def whole(self, v: int, dims: Dims) -> None:
        """Hold a part to dims that it is reduced over: raises `_Whole` where it is the same all along one."""
        if not set(dims) <= set(self.values[v].dims):
            raise _Whole
