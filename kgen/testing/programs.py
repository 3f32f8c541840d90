"""Random well-typed programs.

In: a source of random choices (`random.Random(seed)`, or Hypothesis's `st.randoms(use_true_random=False)`).  Out: a `Program`,
the syntax tree of a spec and its text.  Terms are made by kind (float, int, bool) and dims, so that nearly all programs pass
`check`; what the rules of the language forbid beyond that is a `KgenError` there.  Simple choices stand first, so that Hypothesis
shrinks to simple programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kgen import syntax
from kgen.errors import KgenError
from kgen.ops import CONSTANTS, OPS
from kgen.syntax import Apply, Equation, Expr, Header, Helper, Name, Num, Param, Result, literal
from kgen.testing.drawing import FEW_BITS, Drawing
from kgen.testing.placing import Placing, Term
from kgen.testing.trees import NOWHERE, Program, applied, defaulted, tidy, typed, word
from kgen.types import DTYPES, ELLIPSIS, is_literal, variable_of
from kgen.values import exact

#: Names that sources have uses of their own for, or that mean something in a language they are written in.
AWKWARD = (
    "size rank index i lambda double None sin exp sum x_stride tl std torch triton half out target self pass int64_t row "
    "inner threadIdx element auto main y_tile warp _ __x_ tid class T1 x_ block smem is_ range min_ uint print F_ "
    "top walk First rise fall ride part finish reduce add keep_dims do_not_specialize offset lanes begin n k maximum exp_below step "
    "result layout blockIdx gridDim asm float32 cudaError_t def is None yield async global register volatile template typename new "
    "this operator namespace switch union bf32 wide words value place Index Walk segment again stride operands maybe_unused"
).split()
AWKWARD_DIMS = "Size None True INFINITY TILE PARALLEL BLOCK Lead1 INT_MAX NAN_ N_ Self Warp BLOCKS Row Inner".split()
_PARAMS = "x y w a b p t s g v dy c n d0 h_ mean_N".split()
_LOCALS = "h u z q r e k l m f t1 t2 dt da sum_all max_N a_kept x1 x2 add_row out_ s_".split()
_DIMS = "N M C Head D2".split()
_FLOATS = ("T", "T", "T", "T", "f32", "T32", "f64", "f16", "bf16", "U", *FEW_BITS)
_INTEGERS = ("i64", "i32", "u8", "i8", "i16", "u16", "u32", "u64")
_LITERALS = "2 0.5 1 1.5 3 0.25 0 0.1 pi 1e-3 .5 4. 1e4 0x10 1E-8 6.1e-5 88 65504 1e-38 3.3e38 inf nan".split()
_COMPARE = ("lt", "gt", "le", "ge", "eq", "ne")
_UNARY = tuple(row.name for row in OPS.values() if row.arity == 1 and row.rule in ("float", "same"))
_ACTIVATIONS = "silu softplus gelu gelu_tanh mish hardsigmoid hardswish softsign square".split()
_COMPUTED = ("tanh", "sin", "sigmoid", "cos", "erf", "exp", "atan")
_SPREAD = ("softmax", "log_softmax", "center")


def programs(well_typed: bool = True) -> Any:
    """A Hypothesis strategy of `Program`s; with `well_typed` only those that pass `check`."""
    from hypothesis import strategies as st

    found = st.randoms(use_true_random=False).map(program)
    return found.filter(_passes) if well_typed else found


def _passes(made: Program) -> bool:
    try:
        made.kernel()
    except KgenError:
        return False
    return True


def program(rnd: Any, name: str = "f") -> Program:
    """A random program, its kernel called `name`."""
    return defaulted(rnd, tidy(_Maker(rnd).program(name)))


class _Maker(Placing, Drawing):
    """One program in the making: `env` holds the terms that have names."""

    def __init__(self, rnd: Any):
        self.rnd = rnd
        self.dims: list[str] = []
        self.env: list[Term] = []
        self.helpers: dict[str, Helper] = {}
        self.variables: list[str] = ["T"]
        self.inside = False  # a helper's body

    def chance(self, share: float) -> bool:
        """True in that share of cases, which are the less simple ones."""
        return self.rnd.random() > 1 - share

    def some(self, items: Iterable[str], share: float = 0.5) -> list[str]:
        return [x for x in items if self.chance(share)]

    def order(self, dims: Iterable[str]) -> list[str]:
        """Dims as a tensor declares them: `...` first, the named ones in any order."""
        chosen = set(dims)
        named = [d for d in self.dims if d in chosen and d != ELLIPSIS]
        if self.chance(0.4):
            self.rnd.shuffle(named)
        return [ELLIPSIS] * (ELLIPSIS in chosen) + named

    # ------------------------------------------------------------------------------------------ the whole

    def program(self, name: str) -> Program:
        """A random program that is well typed: its dims, parameters, helpers, equations and results."""
        rnd = self.rnd
        pool = [*_DIMS, *AWKWARD_DIMS] if self.chance(0.1) else list(_DIMS)
        count = rnd.choice((1, 1, 2, 0, 2, 3))
        self.dims = [*pool[:1], *(d for d in rnd.sample(pool[1:], count - 1))] if count else []
        if not self.dims or self.chance(0.7):
            self.dims.insert(0, ELLIPSIS)
        if self.chance(0.2):
            self.dims.insert(rnd.randrange(ELLIPSIS in self.dims, len(self.dims) + 1), rnd.choice(("2", "3", "4")))
        names = [*_PARAMS, *(AWKWARD if self.chance(0.15) else ())]
        params = self.params(names)
        if self.chance(0.25):
            self.make_helpers()
        locals_ = [n for n in [*_LOCALS, *(AWKWARD if self.chance(0.1) else ())] if n not in {p.name.name for p in params} | {name}]
        rnd.shuffle(locals_)
        equations: list[Equation] = []
        results: list[Result] = []
        states = {p.name.name: p for p in params if p.type.dims is not None} if self.chance(0.12) else {}
        for k in range(rnd.choice((1, 1, 1, 2, 2, 2, 3, 3, 4, 6))):
            literal = next((d for d in self.dims if is_literal(d)), "")
            if literal and self.chance(0.25):
                target, dims = locals_.pop(), frozenset([literal])
                for place in range(int(literal)):
                    term = self.float_of(rnd.choice((1, 1, 2)))
                    dims |= term.dims
                    equations.append(Equation(word(target), term.node, NOWHERE, (word(literal),), (Num(str(place), NOWHERE),)))
                self.env.append(Term(word(target), "float", dims))
                if k == 0 or self.chance(0.6):
                    results.append(self.result(target, self.env[-1]))
                continue
            kind = rnd.choice(("float",) * 8 + ("int", "bool"))
            term = self.term(kind, rnd.choice((1, 2, 2, 3, 3, 4, 4, 5)))
            written = next((p for p in states.values() if self.fits(p, term)), None)
            if written is not None and self.chance(0.8):
                del states[written.name.name]
                dtype = written.type.dtype.name
                node = term.node if self.kind_of(dtype) == "float" or dtype == "bool" else applied(dtype, term.node)
                target = f"{written.name.name}'"
                results.append(Result(word(target), written.type, NOWHERE))
                term = replace(term, node=node)
            else:
                target = locals_.pop()
                if term.weak:
                    term = replace(term, node=applied("f32", term.node), weak=False)
                if k == 0 or self.chance(0.45):
                    results.append(self.result(target, term))
            equations.append(Equation(word(target), term.node, NOWHERE))
            self.env.append(replace(term, node=word(target), weak=False))
        last = equations[-1]
        if last.name.name not in {r.name.name for r in results}:
            results.append(self.result(last.name.name, replace(self.env[-1])))
        if self.chance(0.7):
            params = [replace(p, type=self.axes(p.type)) for p in params]
            typed_as = {f"{p.name.name}'": p.type for p in params}
            results = [replace(r, type=typed_as.get(r.name.name) or self.axes(r.type)) for r in results]
        clauses = self.extended(locals_.pop(), equations, results) if self.chance(0.12) else ()
        return self.with_names(Header(word(name), tuple(params), tuple(results), NOWHERE, clauses), *self.helpers.values(), *equations)

    def float_of(self, depth: int) -> Term:
        """A float that is no integer literal."""
        term = self.floats(depth)
        return replace(term, node=applied("f32", term.node), weak=False) if term.weak else term

    def kind_of(self, dtype: str) -> str:
        if dtype in ("float", "int", "bool"):
            return dtype
        return "float" if dtype not in DTYPES or DTYPES[dtype].is_float else "int"

    def fits(self, p: Param, term: Term) -> bool:
        """Whether a term may be a parameter's next state."""
        dims = {d.name for d in p.type.dims or ()}
        return self.kind_of(p.type.dtype.name) == term.kind and term.dims <= dims and bool(dims)

    def params(self, names: list[str]) -> list[Param]:
        """Random parameters, which become terms of `env`; together the tensors have every dim."""
        rnd, params = self.rnd, []
        two = self.chance(0.15)
        self.variables = ["T", "U"] if two else ["T"]
        uncovered = list(self.dims)
        count = rnd.choice((1, 2, 2, 3, 3, 4))
        for k in range(count):
            kind = "float" if k == 0 else rnd.choice(("float",) * 7 + ("int", "int", "bool", "number", "number", "integer"))
            name = names.pop(0 if self.chance(0.8) else rnd.randrange(len(names)))
            if kind in ("number", "integer"):
                whole = kind == "integer"
                default = rnd.choice((None, "2", "-1") if whole else (None, "0.5", "1e-5", "-1.25", "3"))
                value = None if default is None else literal(default, NOWHERE)
                params.append(Param(word(name), typed("int" if whole else "float", None), value, NOWHERE))
                self.env.append(Term(word(name), "int" if whole else "float", frozenset(), tensor=False))
                continue
            dims = self.dims if k == 0 and not self.chance(0.3) else self.some(self.dims, 0.6)
            if k == count - 1:
                dims = list(dict.fromkeys([*dims, *uncovered]))
            uncovered = [d for d in uncovered if d not in dims]
            dtype = "T" if k == 0 else {"float": self.float_dtype, "int": lambda: rnd.choice(_INTEGERS), "bool": lambda: "bool"}[kind]()
            params.append(Param(word(name), typed(dtype, self.order(dims)), None, NOWHERE))
            self.env.append(Term(word(name), kind, frozenset(dims)))
        if uncovered:
            name = names.pop(0)
            params.append(Param(word(name), typed("T", self.order(uncovered)), None, NOWHERE))
            self.env.append(Term(word(name), "float", frozenset(uncovered)))
        if two and not any(p.type.dtype.name == "U" for p in params):
            name = names.pop(0)
            params.append(Param(word(name), typed("U", self.order(self.some(self.dims))), None, NOWHERE))
            self.env.append(Term(word(name), "float", frozenset(d.name for d in params[-1].type.dims or ())))
        return params

    def float_dtype(self) -> str:
        dtype = self.rnd.choice(_FLOATS)
        return dtype if dtype in DTYPES or variable_of(dtype) in self.variables else "T"

    def result(self, name: str, term: Term) -> Result:
        dims = set(term.dims) | set(self.some(self.dims, 0.06))
        dtype = self.float_dtype() if term.kind == "float" else "bool" if term.kind == "bool" else "i64"
        return Result(word(name), typed(dtype, self.order(dims)), NOWHERE)

    def make_helpers(self) -> None:
        """One or two helpers: of elements, or over a dim of their own, `D`."""
        outer = self.env, self.dims
        for name in ("hf", "hr")[: self.rnd.choice((1, 2))]:
            self.inside = True
            over = name == "hr"
            self.dims = ["D"] if over else []
            own = ["a"] if over else self.rnd.choice((["z"], ["a", "b"], ["x", "dy"]))
            self.env = [Term(word(p), "float", frozenset(self.dims)) for p in own]
            body = self.term("float", self.rnd.choice((1, 2, 3))).node
            used = {n.name for n in syntax.postorder(body) if isinstance(n, Name)}
            if set(own) <= used:
                self.helpers[name] = Helper(word(name), tuple(word(d) for d in self.dims), tuple(word(p) for p in own), body, NOWHERE)
            self.inside = False
        self.env, self.dims = outer

    # ------------------------------------------------------------------------------------------ terms

    def term(self, kind: str, depth: int) -> Term:
        return {"float": self.floats, "int": self.ints, "bool": self.bools}[kind](depth)

    def chosen(self, ways: Sequence[tuple[int, Any]]) -> Any:
        """One of the ways, each as often as its weight says, the first ones simplest."""
        return self.rnd.choice([way for weight, way in ways for _ in range(weight)])

    def named(self, kind: str, tensor: bool = False) -> Term | None:
        found = [t for t in self.env if t.kind == kind and (t.tensor or not tensor)]
        if not found:
            return None
        return self.rnd.choice(found[-3:] if self.chance(0.5) else found)

    def dims_in(self, term: Term) -> list[str]:
        """Some of a term's dims, to reduce over; none where it has none."""
        have = [d for d in self.dims if d in term.dims]
        if not have:
            return []
        chosen = self.rnd.sample(have, min(len(have), self.rnd.choice((1, 1, 1, 2, 3))))
        return chosen

    def literal(self) -> Term:
        text = self.rnd.choice(_LITERALS[: 12 if not self.chance(0.15) else len(_LITERALS)])
        node = word(text) if text in CONSTANTS else Num(text, NOWHERE)
        return Term(node, "float", frozenset(), weak=text.isdigit() or text[:2] == "0x", tensor=False)

    def joined(self, op: str, *terms: Term, kind: str = "float") -> Term:
        """An operator on terms, with the union of their dims."""
        same = op in ("add", "sub", "mul", "floordiv", "mod", "pow", "max", "min", "clamp", "where", "neg", "pos", "stop")
        same = same or op in _UNARY and OPS[op].rule == "same"
        values = terms[1:] if op == "where" else terms
        weak = kind == "float" and same and all(t.weak for t in values)
        if op == "where" and weak:  # two integer literals would be chosen as integers
            terms, weak = (terms[0], replace(terms[1], node=Num("0.5", NOWHERE), dims=frozenset()), terms[2]), False
        dims = frozenset().union(*(t.dims for t in terms))
        return Term(applied(op, *(t.node for t in terms)), kind, dims, weak, any(t.tensor for t in terms))

    def floats(self, depth: int) -> Term:
        if depth <= 0:
            return self.float_leaf()
        way = self.chosen((
            (1, lambda d: self.float_leaf()), (6, self.binary), (4, self.unary), (5, self.reduction), (2, self.where), (2, self.activation),
            (1, self.cast), (1, self.spread), (1, self.mixed), (1, self.three), (1, self.picked), (1, self.helper),
            (1, lambda d: self.number(d)), (1, lambda d: self.joined("stop", self.floats(d))), (6, self.extreme),
            (4, self.placed), (2, self.segment), (2, self.scanned), (2, self.drawn), (3, self.layered),
        ))  # fmt: skip
        return way(depth - 1)

    def extreme(self, depth: int) -> Term:
        """The greatest or least of what is computed, which others compute anew: gradients ask for equality with it."""
        h = self.computed(depth)
        dims = self.dims_in(h)
        if not dims:
            return h
        op, rest = self.rnd.choice(("max", "max", "min")), h.dims - set(dims)
        extreme = Term(applied(op, h.node, dims=dims), "float", rest)
        way = self.rnd.choice(("alone", "alone", "apart", "softmax", "spread", "nested", "equal", "picked", "ranked"))
        if way == "apart":
            return self.joined("sub", h, extreme)
        if way == "softmax":
            e = self.joined("exp", self.joined("sub", h, extreme))
            return self.joined("div", e, Term(applied("sum", e.node, dims=dims), "float", rest))
        if way == "spread":
            other = self.computed(0)
            least = Term(applied("min", other.node, dims=[d for d in dims if d in other.dims]), "float", other.dims - set(dims))
            return self.joined("sub", extreme, least if {*dims} & other.dims else other)
        if way == "nested" and (left := [d for d in self.dims if d in rest]):
            outer = self.joined(self.rnd.choice(_COMPUTED), extreme)
            return Term(applied(self.rnd.choice(("sum", "mean", "max")), outer.node, dims=left[:1]), "float", rest - {left[0]})
        if way == "equal":
            return self.joined("where", self.joined("eq", h, extreme, kind="bool"), h, Term(Num("0.5", NOWHERE), "float", frozenset()))
        if way == "ranked":
            return self.ranked(h, "float", dims)
        if way == "picked" and not self.inside and dims[0] != ELLIPSIS:
            place = applied(self.rnd.choice(("argmax", "argmin")), h.node, dims=dims[:1])
            x = self.named("float", tensor=True)
            x = x if x is not None and dims[0] in x.dims else h
            return Term(applied("pick", x.node, place, dims=dims[:1]), "float", (x.dims | h.dims) - {dims[0]})
        return extreme

    def computed(self, depth: int) -> Term:
        """A function, difference or product of tensors: rounded, and with values near one another."""
        x = self.floats(depth) if self.chance(0.3) else self.float_leaf()
        if self.chance(0.6):
            return self.joined(self.rnd.choice(_COMPUTED), x)
        return self.joined(self.rnd.choice(("sub", "mul")), x, self.float_leaf())

    def float_leaf(self) -> Term:
        if self.chance(0.25):
            return self.literal()
        return self.named("float", tensor=not self.chance(0.3)) or self.named("float") or self.literal()

    def number(self, depth: int) -> Term:
        """An expression of numbers alone."""
        numbers = [t for t in self.env if not t.tensor]
        sizes = [Term(word(d), "int", frozenset(), tensor=False) for d in self.dims if d != ELLIPSIS and not is_literal(d)]
        if depth <= 0 or self.chance(0.4):
            literal = self.literal()
            return self.rnd.choice([replace(literal, weak=False, node=literal.node if not literal.weak else Num("0.75", NOWHERE)),
                                    *(replace(t, kind="float", node=applied("mul", t.node, Num("0.5", NOWHERE)))
                                      for t in [*numbers, *sizes])])  # fmt: skip
        op = self.rnd.choice(("add", "sub", "mul", "div", "pow", "max", "sqrt", "exp", "tanh"))
        args = [self.number(depth - 1) for _ in range(OPS[op].arity)]
        return self.joined(op, args[0], *(self.divisor(a) if op == "div" else a for a in args[1:]))

    def divisor(self, term: Term) -> Term:
        """A term that is no literal zero."""
        zero = isinstance(term.node, Num) and exact(term.node.text.lower() if "0x" not in term.node.text else "1") == 0
        return replace(term, node=Num("3", NOWHERE)) if zero else term

    def binary(self, depth: int) -> Term:
        op = self.chosen(((5, "add"), (5, "sub"), (6, "mul"), (3, "div"), (2, "max"), (2, "min"), (1, "pow"), (1, "mod"), (1, "floordiv"),
                          (1, "atan2"), (1, "hypot"), (1, "copysign")))  # fmt: skip
        a, b = self.floats(depth), self.floats(depth if self.chance(0.5) else 0)
        if op in ("div", "floordiv", "mod"):
            if self.chance(0.4):
                b = self.joined("add", Term(Num("1.5", NOWHERE), "float", frozenset(), tensor=False), self.joined("abs", b))
            b = self.divisor(b)
        if op == "pow" and self.chance(0.7):
            if self.chance(0.4):
                a = self.joined("abs", a)
            else:
                b = Term(Num(self.rnd.choice(("2", "3", "1", "4", "0", "0.5", "5", "1.5")), NOWHERE), "float", frozenset(), tensor=False)
        return self.joined(op, a, b)

    def unary(self, depth: int) -> Term:
        op = self.rnd.choice(("neg", "abs", "exp", "tanh", "sqrt", "sigmoid", "relu", "sin", "log", *_UNARY))
        x = self.floats(depth)
        if op in ("log", "log2", "log10", "sqrt", "rsqrt", "acosh", "lgamma", "digamma", "log1p") and self.chance(0.7):
            one = Term(Num("1.5", NOWHERE), "float", frozenset(), tensor=False)
            x = self.joined("add", one, self.joined("abs", x))
        elif op in ("asin", "acos", "atanh", "erfinv") and self.chance(0.7):
            x = self.joined("tanh", x)
        elif op in ("exp", "exp2", "sinh", "cosh", "expm1") and self.chance(0.4):
            x = self.joined("neg", self.joined("abs", x))
        return self.joined(op, x)

    def activation(self, depth: int) -> Term:
        x = self.floats(depth)
        if self.chance(0.2):
            op, extra = self.rnd.choice((("elu", "0.7"), ("leaky_relu", "0.1")))
            other = self.floats(0) if self.chance(0.3) else Term(Num(extra, NOWHERE), "float", frozenset())
            return Term(applied(op, x.node, other.node), "float", x.dims | other.dims, x.weak and other.weak)
        op = self.rnd.choice(_ACTIVATIONS)
        return Term(applied(op, x.node), "float", x.dims, x.weak and op == "square", x.tensor)

    def reduction(self, depth: int) -> Term:
        x = self.floats(depth)
        dims = self.dims_in(x)
        if not dims:
            return x
        op = self.chosen(((5, "sum"), (5, "mean"), (5, "max"), (3, "min"), (1, "prod"), (2, "logsumexp"), (2, "var"), (1, "std"),
                          (1, "norm")))  # fmt: skip
        rest = x.dims - set(dims)
        return Term(applied(op, x.node, dims=dims), "float", rest)

    def spread(self, depth: int) -> Term:
        """What keeps the dims that it reduces over; sums of squares over the count are among it."""
        x = self.floats(depth)
        dims = self.dims_in(x)
        if not dims:
            return x
        way = self.rnd.choice((*_SPREAD, "shifted", "scaled", "counted"))
        if way == "shifted":
            return Term(applied("sub", x.node, applied("max", x.node, dims=dims)), "float", x.dims)
        if way == "scaled":
            low = applied("add", Num("1", NOWHERE), applied("mean", applied("pow", x.node, Num("2", NOWHERE)), dims=dims))
            return Term(applied("mul", x.node, applied("rsqrt", low)), "float", x.dims)
        if way == "counted":
            return Term(applied("div", applied("sum", x.node, dims=dims), applied("size", x.node, dims=dims)), "float", x.dims - set(dims))
        return Term(applied(way, x.node, dims=dims), "float", x.dims)

    def where(self, depth: int) -> Term:
        c = self.bools(depth)
        return self.joined("where", c, self.floats(depth), self.floats(depth if self.chance(0.5) else 0))

    def three(self, depth: int) -> Term:
        a, b, c = self.floats(depth), self.floats(0), self.floats(0)
        if self.chance(0.4):
            low, high = ("-1", "0.8") if self.chance(0.5) else ("0", "2")
            at = Num(low, NOWHERE) if low[0] != "-" else applied("neg", Num(low[1:], NOWHERE))
            return Term(applied("clamp", a.node, at, Num(high, NOWHERE)), "float", a.dims, a.weak and high == "2", a.tensor)
        return self.joined(self.rnd.choice(("fma", "clamp")), a, b, c)

    def cast(self, depth: int) -> Term:
        if self.chance(0.3):
            return self.rounded(self.floats(depth))
        x = self.term(self.rnd.choice(("float", "float", "int", "bool")), depth)
        dtype = self.rnd.choice(("f32", "f64", "f16", "bf16") if self.inside else ("T", "T32", "f32", "f64", "f16", "bf16"))
        return Term(applied(dtype, x.node), "float", x.dims)

    def mixed(self, depth: int) -> Term:
        """Integers and bools among floats."""
        x, k = self.floats(depth), self.rnd.choice((self.ints, self.bools))(depth)
        if x.weak:
            x = replace(x, node=applied("f32", x.node), weak=False)
        op = self.rnd.choice(("mul", "add", "max", "sub", "div") if k.kind == "int" else ("mul", "add"))
        pair = (x, k) if self.chance(0.7) or op == "div" and not self.chance(0.3) else (k, x)
        return self.joined(op, pair[0], self.divisor(pair[1]) if op == "div" else pair[1])

    def picked(self, depth: int) -> Term:
        x = self.floats(depth)
        named = [d for d in self.dims if d in x.dims and d != ELLIPSIS]
        if not named or self.inside:
            return x
        dim = self.rnd.choice(named)
        index = self.position(dim, depth)
        return x if index is None else Term(applied("pick", x.node, index.node, dims=[dim]), "float", x.dims - {dim} | index.dims)

    def segment(self, depth: int) -> Term:
        """A reduction of the terms that have one key, or that lie in one range."""
        x = self.floats(depth)
        named, over = ([d for d in self.dims if (d in x.dims) == own and d != ELLIPSIS] for own in (True, False))
        if not named or not over or self.inside:
            return x
        dim, key = self.rnd.choice(named), self.rnd.choice(over)
        index, at = (Term(applied("index", dims=[d]), "int", frozenset([d])) for d in (dim, key))
        if self.chance(0.6):
            keys = [t for t in self.env if t.kind == "int" and t.tensor and t.dims == {dim}]
            keys.append(self.joined("floordiv", index, Term(Num("2", NOWHERE), "int", frozenset()), kind="int"))
            condition = self.joined("eq", self.rnd.choice(keys), at, kind="bool")
        else:
            end = self.joined("add", at, Term(Num(self.rnd.choice("0123"), NOWHERE), "int", frozenset()), kind="int")
            bounds = (self.joined("le", at, index, kind="bool"), self.joined("lt", index, end, kind="bool"))
            condition = self.joined("and", *bounds, kind="bool")
        op, fill = self.rnd.choice((("sum", Num("0", NOWHERE)), ("max", applied("neg", word("inf"))), ("min", word("inf"))))
        return Term(applied(op, applied("where", condition.node, x.node, fill), dims=[dim]), "float", (x.dims | {key}) - {dim})

    def position(self, dim: str, depth: int) -> Term | None:
        """An integer tensor without `dim`: a parameter, an equation's value, another dim's index or an argmax."""
        found = [t for t in self.env if t.kind == "int" and t.tensor and dim not in t.dims]
        others = [d for d in self.dims if d not in (dim, ELLIPSIS)]
        found += [Term(applied("index", dims=[d]), "int", frozenset([d])) for d in others]
        if self.chance(0.5) or not found:
            x = self.floats(depth)
            if dim in x.dims:
                over = list(dict.fromkeys([dim, *self.some([d for d in self.dims if d in x.dims and d != ELLIPSIS], 0.2)]))
                found = [Term(applied(self.rnd.choice(("argmax", "argmin")), x.node, dims=over), "int", x.dims - set(over))]
        return self.rnd.choice(found) if found else None

    def helper(self, depth: int) -> Term:
        if self.inside or not self.helpers:
            return self.floats(depth)
        made = self.helpers[self.rnd.choice(list(self.helpers))]
        if not made.dims:
            args = [self.floats(depth if k == 0 else 0) for k in range(len(made.params))]
            args = [replace(t, node=applied("f32", t.node)) if t.weak else t for t in args]
            return Term(applied(made.name.name, *(t.node for t in args)), "float", frozenset().union(*(t.dims for t in args)))
        x = self.floats(depth)
        dims = self.dims_in(x)
        if not dims:
            return x
        spread = _keeps(made.body)
        return Term(applied(made.name.name, x.node, dims=dims), "float", x.dims if spread else x.dims - set(dims))

    def ints(self, depth: int) -> Term:
        named = [d for d in self.dims if d != ELLIPSIS]
        plain = not self.inside
        leaves: list[tuple[int, Any]] = [(2, lambda d: self.whole_literal())]
        if plain and named:
            leaves.append((3, lambda d: self.index_of(named)))
            sized = [d for d in named if not is_literal(d)] or named
            leaves.append((1, lambda d: Term(self.size(self.rnd.choice(sized)), "int", frozenset(), tensor=False)))
        if self.named("int"):
            leaves.append((6, lambda d: self.named("int") or self.whole_literal()))
        if depth <= 0:
            return self.chosen(leaves)(0)
        return self.chosen((*leaves, (5, self.int_binary), (2, self.int_unary), (2, self.int_cast), (2, self.int_reduction),
                            (1, self.int_where), (2, self.argument), (1, self.counted), (2, self.words)))(depth - 1)  # fmt: skip

    def index_of(self, named: list[str]) -> Term:
        d = self.rnd.choice(named)
        return Term(applied("index", dims=[d]), "int", frozenset([d]))

    def whole_literal(self) -> Term:
        return Term(Num(self.rnd.choice(("1", "2", "3", "7", "0", "0x1f", "100", "40000")), NOWHERE), "int", frozenset(), tensor=False)

    def int_binary(self, depth: int) -> Term:
        op = self.chosen(((4, "add"), (3, "sub"), (3, "mul"), (2, "floordiv"), (2, "mod"), (1, "bitand"), (1, "bitor"), (1, "shl"),
                          (1, "shr"), (1, "max"), (1, "min"), (1, "pow")))  # fmt: skip
        a, b = self.ints(depth), self.ints(depth if self.chance(0.4) else 0)
        if op in ("floordiv", "mod"):
            b = self.divisor(b)
        if op in ("pow", "shl", "shr"):
            b = Term(Num(self.rnd.choice(("2", "1", "3", "0", "5")), NOWHERE), "int", frozenset(), tensor=False)
        return self.joined(op, a, b, kind="int")

    def int_unary(self, depth: int) -> Term:
        x = self.ints(depth)
        op = self.rnd.choice(("neg", "abs", "sign", "bitnot", "relu", "floor", "clamp"))
        if op == "clamp":
            return replace(x, node=applied("clamp", x.node, Num("0", NOWHERE), Num("100", NOWHERE)))
        return self.joined(op, x, kind="int")

    def int_cast(self, depth: int) -> Term:
        x = self.term(self.rnd.choice(("int", "float", "bool")), depth)
        return Term(applied(self.rnd.choice(_INTEGERS), x.node), "int", x.dims)

    def int_reduction(self, depth: int) -> Term:
        x = self.ints(depth)
        dims = self.dims_in(x)
        if not dims:
            return x
        if self.chance(0.2):
            return self.ranked(x, "int", dims)
        return Term(applied(self.rnd.choice(("sum", "max", "min", "prod")), x.node, dims=dims), "int", x.dims - set(dims))

    def ranked(self, x: Term, kind: str, dims: list[str]) -> Term:
        """One of the greatest elements along some dims."""
        one, k = Num("1", NOWHERE), Num(str(self.rnd.choice((1, 2, 3, 7))), NOWHERE)
        made = applied("kth", x.node, k, dims=dims) if self.chance(0.5) else applied("cutoff", x.node, one, k, dims=dims)
        return Term(made, kind, x.dims - set(dims))

    def counted(self, depth: int) -> Term:
        x = self.bools(depth)
        dims = self.dims_in(x)
        return Term(applied("sum", x.node, dims=dims) if dims else applied("i32", x.node), "int", x.dims - set(dims))

    def int_where(self, depth: int) -> Term:
        return self.joined("where", self.bools(depth), self.ints(depth), self.ints(0), kind="int")

    def argument(self, depth: int) -> Term:
        x = self.rnd.choice((self.floats, self.ints, self.bools))(depth)
        dims = self.dims_in(x)
        if not dims:
            return Term(applied("i64", x.node), "int", x.dims)
        if x.kind == "bool":
            return Term(applied("reach", x.node, Num(str(self.rnd.choice((1, 2, 5))), NOWHERE), dims=dims), "int", x.dims - set(dims))
        return Term(applied(self.rnd.choice(("argmax", "argmin")), x.node, dims=dims), "int", x.dims - set(dims))

    def bools(self, depth: int) -> Term:
        found = self.named("bool")
        if found and (depth <= 0 or self.chance(0.2)):
            return found
        if depth <= 0:
            return self.compared(0)
        return self.chosen(((6, self.compared), (1, self.bool_not), (2, self.bool_both), (1, self.tested), (2, self.bool_reduction),
                            (1, self.drawn_bool), (1, self.bool_where)))(depth - 1)  # fmt: skip

    def compared(self, depth: int) -> Term:
        make = self.rnd.choice((self.floats, self.floats, self.ints))
        return self.joined(self.rnd.choice(_COMPARE), make(depth), make(0), kind="bool")

    def bool_not(self, depth: int) -> Term:
        return self.joined("not", self.bools(depth), kind="bool")

    def bool_both(self, depth: int) -> Term:
        a, b = self.bools(depth), self.bools(depth)
        return self.joined(self.rnd.choice(("and", "or", "bitand", "bitor", "ne", "eq")), a, b, kind="bool")

    def tested(self, depth: int) -> Term:
        return self.joined(self.rnd.choice(("isfinite", "isnan", "isinf", "signbit")), self.floats(depth), kind="bool")

    def bool_reduction(self, depth: int) -> Term:
        x = self.bools(depth)
        dims = self.dims_in(x)
        return Term(applied(self.rnd.choice(("any", "all")), x.node, dims=dims), "bool", x.dims - set(dims)) if dims else x

    def bool_where(self, depth: int) -> Term:
        return self.joined("where", self.bools(depth), self.bools(depth), self.bools(0), kind="bool")


def _keeps(node: Expr) -> bool:
    """Whether the body of a helper over a dim keeps it: its argument stands outside every reduction."""
    if isinstance(node, Apply):
        return (node.dims is None or node.op in _SPREAD) and any(map(_keeps, node.args))
    return isinstance(node, Name) and node.name == "a"


__all__ = ["AWKWARD", "AWKWARD_DIMS", "Program", "program", "programs"]
