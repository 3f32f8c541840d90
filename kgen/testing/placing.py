"""What random programs have of places: axes of several dims, and values elsewhere along a dim.

In: a source of choices, and the dims and terms of a program in the making.  Out: types and terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kgen.ops.scans import MODIFIERS
from kgen.sized import with_dims
from kgen.syntax import Apply, Clause, Equation, Expr, File, Header, Num, Result, Source, Statement, Type, parse
from kgen.testing.trees import NOWHERE, Program, applied, typed, word
from kgen.types import ELLIPSIS, is_literal

#: The dim that `extended` makes.
MADE = "Ends"


def _parsed(text: str) -> Expr:
    (made,) = parse(f"r = {text}\n").statements
    assert isinstance(made, Equation)
    return made.body


@dataclass(frozen=True)
class Term:
    """An expression with what is known of it: its kind ("float", "int" or "bool"), its dims, and whether it is a `weak` integer: one
    made of integer literals, which is float only beside a float."""

    node: Expr
    kind: str
    dims: frozenset[str]
    weak: bool = False
    tensor: bool = True


class Placing:
    """The part of a program's maker that knows of places."""

    rnd: Any
    dims: list[str]
    inside: bool

    def chance(self, share: float) -> bool:
        raise NotImplementedError

    def floats(self, depth: int) -> Term:
        raise NotImplementedError

    def axes(self, t: Type) -> Type:
        """A type whose literal dims make an axis with a neighbour, where they have one."""
        dims = [d.name for d in t.dims or ()]
        at = next((k for k, d in enumerate(dims) if is_literal(d)), None)
        if at is None or self.chance(0.3):
            return t
        first = at if at + 1 < len(dims) and self.chance(0.6) else at - 1
        if first < 0 or first + 1 >= len(dims) or dims[first] == ELLIPSIS:
            return t
        return replace(t, factors=(*(1,) * first, 2, *(1,) * (len(dims) - first - 2)))

    def placed(self, depth: int) -> Term:
        """A value elsewhere along one of its dims: shifted, mirrored, rolled, with gaps, at one place, or along another dim."""
        x = self.floats(depth)
        named = [d for d in self.dims if d in x.dims and d != ELLIPSIS]
        if not named or self.inside:
            return x
        rnd, dim = self.rnd, self.rnd.choice(named)
        number, here = Num(rnd.choice(("1", "1", "2", "3")), NOWHERE), applied("index", dims=[dim])
        size = self.size(dim)
        last, others = applied("sub", size, Num("1", NOWHERE)), [d for d in self.dims if d != ELLIPSIS]
        other = rnd.choice(others)
        there = applied("index", dims=[other])
        ways: dict[str, tuple[Expr, bool, frozenset[str]]] = {
            "shifted": (applied(rnd.choice(("add", "sub")), here, number), not (is_literal(dim) and dim == "1"), frozenset([dim])),
            "mirrored": (applied("sub", last, here), False, frozenset([dim])),
            "rolled": (applied("mod", applied("add", here, number), size), False, frozenset([dim])),
            "first": (Num("0", NOWHERE), False, frozenset()),
            "last": (last, False, frozenset()),
        }
        if other != dim and other not in x.dims and not (is_literal(dim) and is_literal(other)):
            ways["gaps"] = applied("add", applied("mul", Num("2", NOWHERE), there), number), True, frozenset([other])
        e, filled, dims = ways[rnd.choice([*ways, "shifted", "shifted"])]
        fill = [Num(rnd.choice(("0", "0.5", "1", "0.0")), NOWHERE)] if filled else []
        node = Apply("place", (x.node, e, *fill), NOWHERE, NOWHERE, "place", (word(dim),))
        return Term(node, "float", x.dims - {dim} | dims)

    def extended(self, name: str, equations: list[Equation], results: list[Result]) -> tuple[Clause, ...]:
        """What a header says of a size, if anything: of a dim along which another equation, of this name, has a result."""
        x = self.floats(1)
        named = [d for d in self.dims if d in x.dims and d != ELLIPSIS and not is_literal(d)]
        if not named:
            return ()
        rnd, dim = self.rnd, self.rnd.choice(named)
        size = rnd.choice(("{} + 1", "({} + 3) // 4 * 4", "({} + 1) // 2", "2 * {}", "max({} - 1, 1)", "min({}, 3)")).format(dim)
        place = rnd.choice((f"index[{MADE}]", f"2 * index[{MADE}]", f"{dim} - 1 - index[{MADE}]"))
        node = Apply("place", (x.node, _parsed(place), Num("0", NOWHERE)), NOWHERE, NOWHERE, "place", (word(dim),))
        dims = [*([ELLIPSIS] if ELLIPSIS in x.dims else []), *(d for d in self.dims if d in x.dims - {dim, ELLIPSIS}), MADE]
        equations.append(Equation(word(name), node, NOWHERE))
        results.append(Result(word(name), typed("f32", dims), NOWHERE))
        return (Clause(word(MADE), _parsed(size), NOWHERE),)

    def with_names(self, *statements: Statement) -> Program:
        """A program in which some literal dims have names."""
        literals = [d for d in self.dims if is_literal(d)]
        called = {d: f"Lit{d}" for d in literals if self.chance(0.3)}
        if not called:
            return Program(statements)
        made = with_dims(File(Source("", ""), statements), lambda d: replace(d, name=called.get(d.name, d.name)))
        clauses = tuple(Clause(word(name), Num(d, NOWHERE), NOWHERE) for d, name in called.items())
        return Program(tuple(replace(s, clauses=(*s.clauses, *clauses)) if isinstance(s, Header) else s for s in made.statements))

    def scanned(self, depth: int) -> Term:
        """A scan of a value along one of its dims; its factors in a recurrence stay where states do not grow."""
        x = self.floats(depth)
        named = [d for d in self.dims if d in x.dims and d != ELLIPSIS]
        if not named or self.inside:
            return x
        rnd, where = self.rnd, [self.rnd.choice(named)]
        where += [m for m in MODIFIERS if self.chance(0.3)]
        op = rnd.choice(("cumsum", "cumsum", "cumsum", "cummax", "cummin", "logcumsumexp", "recur", "cumprod", "cumsum_since"))
        if op == "cumsum_since":
            begins = Apply("gt", (x.node, Num(rnd.choice(("0", "1")), NOWHERE)), NOWHERE, NOWHERE, "infix")
            return Term(applied(op, begins, x.node, dims=where), "float", x.dims)
        if op == "recur":
            return Term(applied(op, applied("tanh", x.node), x.node, dims=where), "float", x.dims)
        return Term(applied(op, x.node, dims=where), "float", x.dims)

    @staticmethod
    def size(dim: str) -> Expr:
        """The size of a dim as a node."""
        return Num(dim, NOWHERE) if is_literal(dim) else word(dim)
