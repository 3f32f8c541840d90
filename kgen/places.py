"""Places along dims: whether they lie inside, and how they run.

In: values of a graph, an integer one among them that says a place.  Out: whether it lies within a dim's size, whatever the sizes
(each 1 or more; those that a header's `where` makes others of may be 0); and the place as an affine form, by which a gradient turns it
round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from kgen import sized
from kgen.nodes import Clause, Expr, Name, Num, postorder
from kgen.types import FEW, Dims, is_literal, literal_size
from kgen.values import Value, exact

if TYPE_CHECKING:
    from kgen.check import Kernel

#: An atom: the size of a dim ("size", D), an element's index along it ("index", D), or another value ("value", its number).
Atom = tuple[str, str | int]
#: A polynomial: monomials, each the atoms that it multiplies in order, with their factors.
Form = Mapping[tuple[Atom, ...], Fraction]

MOST_STEPS = 64  # of a proof: atoms that are replaced by their bounds
MOST_TERMS = 32
MOST_FACTOR = 2**31  # no address that is worked out with greater factors is one


_ONE: Form = {(): Fraction(1)}


def _sized(dim: str) -> Form:
    return {(): Fraction(literal_size(dim))} if is_literal(dim) else {(("size", dim),): Fraction(1)}


def _written(root: Expr, known: Mapping[str, Form]) -> Form | None:
    """An expression of sizes as a polynomial of them; None where it is none, or has a number of the call."""
    done: dict[int, Form] = {}
    for node in postorder(root):
        if isinstance(node, Num):
            done[id(node)] = {(): Fraction(int(node.text, 0))} if int(node.text, 0) else {}
        elif isinstance(node, Name):
            if node.name[0].islower():
                return None
            done[id(node)] = known.get(node.name) or _sized(node.name)
        elif node.op in ("add", "sub", "mul", "neg", "pos"):
            args = [done[id(a)] for a in node.args]
            if node.op == "mul":
                done[id(node)] = _product(*args)
            elif len(args) == 1:
                done[id(node)] = _sum({}, args[0], -1 if node.op == "neg" else 1)
            else:
                done[id(node)] = _sum(args[0], args[1], -1 if node.op == "sub" else 1)
        else:
            return None
        if len(done[id(node)]) > MOST_TERMS:
            return None
    return done[id(root)]


def _sum(a: Form, b: Form, times: Fraction | int = 1) -> Form:
    made = dict(a)
    for atoms, factor in b.items():
        made[atoms] = made.get(atoms, Fraction(0)) + factor * times
    return {atoms: factor for atoms, factor in made.items() if factor}


def _product(a: Form, b: Form) -> Form:
    made: dict[tuple[Atom, ...], Fraction] = {}
    for x, f in a.items():
        for y, g in b.items():
            atoms = tuple(sorted((*x, *y), key=str))
            made[atoms] = made.get(atoms, Fraction(0)) + f * g
    return made


class Places:
    """The forms of a graph's integers."""

    def __init__(self, values: Sequence[Value], clauses: Iterable[Clause] = ()):
        """The forms of some values; `clauses` say which sizes are polynomials of others, which then stand for them."""
        self.values = values
        self.steps = 0
        self.given: dict[str, Form] = {}
        self.empty: set[str] = set()  # dims that may have no elements where the dims that they give sizes to have some
        self.asked = ""  # the dim that a place is along
        for c in clauses:
            form = _written(c.value, self.given)
            if form is not None and c.name.name not in {of for atoms in form for _, of in atoms} and c.name.name not in self.empty:
                self.given[c.name.name] = form
                self.empty |= {n for n in sized.names(c.value)}

    def size(self, dim: str) -> Form:
        """The size of a dim."""
        return self.given.get(dim) or _sized(dim)

    def form(self, v: int) -> Form:
        """An integer as a polynomial of sizes, indices and other values."""
        done: dict[int, Form] = {}
        todo = [v]
        while todo:
            at = todo[-1]
            value = self.values[at]
            own = value.args if value.op in ("add", "sub", "mul", "neg", "pos", "cast") else ()
            if missing := [a for a in own if a not in done]:
                todo += missing
                continue
            todo.pop()
            done[at] = self._made(at, value, [done[a] for a in own])
        return done[v]

    def _made(self, at: int, value: Value, args: list[Form]) -> Form:
        """The form of a value, by those of its operands where its operator has them."""
        op = value.op
        other: Form = {(("value", at),): Fraction(1)}
        made: Form
        if op == "lit" and exact(str(value.attr)).denominator == 1:
            return {(): exact(str(value.attr))} if exact(str(value.attr)) else {}
        if op == "size":
            return self.size(str(value.attr))
        if op == "index":
            return {(("index", str(value.attr)),): Fraction(1)}
        if op in ("add", "sub"):
            made = _sum(args[0], args[1], 1 if op == "add" else -1)
        elif op == "mul":
            made = _product(*args) if len(args[0]) * len(args[1]) <= MOST_TERMS else other
        elif op == "neg":
            made = _sum({}, args[0], -1)
        elif op == "pos" or op == "cast" and str(value.attr) == "i64":
            made = args[0]
        else:
            made = other
        return made if len(made) <= MOST_TERMS and all(abs(f) <= MOST_FACTOR for f in made.values()) else other

    # ------------------------------------------------------------------ where it lies

    def inside(self, v: int, dim: str) -> bool:
        """Whether a place lies within a dim wherever it is asked for, provided that no size is 0."""
        form, self.steps, self.asked = self.form(v), MOST_STEPS, dim
        return self.holds(form) and self.holds(_sum(_sum(self.size(dim), {(): Fraction(-1)}), form, -1))

    def holds(self, form: Form) -> bool:
        """Whether a form is known to be never less than 0: each atom is replaced by a bound of it, until sizes alone are left."""
        self.steps -= 1
        term = next(((m, a) for m in form for a in m if a[0] != "size"), None)
        if term is None or self.steps < 0:
            return term is None and _no_less(form, self.empty - {self.asked})
        atoms, atom = term
        factor, rest = form[atoms], list(atoms)
        rest.remove(atom)
        if any(a[0] == "value" for a in atoms) and any(a[0] != "size" for a in rest):
            return False  # the sign of such a product is not known
        others = {m: f for m, f in form.items() if m != atoms}
        which, limits = self.limits(atom, 1 if factor < 0 else -1)
        return which(self.holds(_sum(others, _product({tuple(rest): factor}, limit))) for limit in limits)

    def limits(self, atom: Atom, side: int) -> tuple[Callable[[Iterable[bool]], bool], list[Form]]:
        """Upper (`side` 1) or lower bounds of an atom: `any` of them will do, or it is one of them and `all` have to."""
        kind, of = atom
        if kind == "index":
            return any, [_sum(self.size(str(of)), _ONE, -1) if side > 0 else {}]
        value = self.values[int(of)]
        args = [self.form(a) for a in value.args] if value.op in ("mod", "floordiv", "min", "max", "clamp") else []
        if value.op == "mod" and self.holds(_sum(args[1], _ONE, -1)):
            return any, [_sum(args[1], _ONE, -1) if side > 0 else {}]
        if value.op == "floordiv" and (by := args[1].get((), Fraction(0))) > 0 and len(args[1]) == 1:
            exactly = {m: f / by for m, f in args[0].items()}
            positive = side < 0 and self.holds(args[0])
            return any, [{}] if positive else [exactly if side > 0 else _sum(exactly, {(): (1 - by) / by})]
        if value.op in ("min", "max"):
            return any if (value.op == "min") == (side > 0) else all, args
        if value.op == "clamp":
            return (any, args[2:]) if side > 0 else (all, args[1:])  # where the bounds are no range, all of it is the upper one
        return any, []

    def guards(self, condition: int, place: int) -> bool:
        """Whether a condition says just that the place of a value lies inside."""
        todo, found = [condition], list[int]()
        while todo:
            value = self.values[todo.pop()]
            if value.op == "and":
                todo += reversed(value.args)
            elif value.op in ("ge", "lt"):
                found.append(value.args[0])
            else:
                return False
        return found == [e for e in self.values[place].args[1:] for _ in range(2)]

    # ------------------------------------------------------------------ how it runs

    def affine(self, v: int) -> dict[str, int] | None:
        """The factor of the index along each dim that a place runs along, where it is a sum of those and a rest; None where it is not."""
        factors: dict[str, int] = {}
        for atoms, factor in self.form(v).items():
            along = [str(of) for kind, of in atoms if kind == "index"]
            if len(along) > 1 or along and (len(atoms) > 1 or factor.denominator != 1):
                return None
            if along:
                factors[along[0]] = int(factor)
            elif any(kind == "value" and self.values[int(of)].dims for kind, of in atoms):
                return None
        return factors


def _no_less(form: Form, empty: Collection[str] = ()) -> bool:
    """Whether a form of sizes, each 1 or more (of `empty` dims 0 or more), is never less than 0."""
    shifted: dict[tuple[Atom, ...], Fraction] = {}
    for atoms, factor in form.items():
        for chosen in range(1 << len(atoms)):
            kept = tuple(a for k, a in enumerate(atoms) if chosen >> k & 1)
            if all(a in kept for a in atoms if a[1] in empty):
                shifted[kept] = shifted.get(kept, Fraction(0)) + factor
    return all(f >= 0 for f in shifted.values())


def taken_apart(kernel: Kernel) -> Dims:
    """The literal dims of a few elements along which something is placed, or known by its index."""
    places = {d for v in kernel.values if v.op == "place" for d in v.attr} | {str(v.attr) for v in kernel.values if v.op == "index"}
    whole = {d for v in kernel.values if v.op in ("argmax", "argmin", "pick", "cutoff", "reach") for d in v.attr}
    return tuple(d for d in kernel.literals if d in places - whole and literal_size(d) <= FEW)


def unguarded(values: Sequence[Value], roots: Collection[int]) -> list[Value]:
    """The places of which nothing else stands where they lie outside; `roots` are the values that are results."""
    read = Places(values)
    guards = [v.op == "where" and values[v.args[1]].op == "place" and read.guards(*v.args[:2]) for v in values]
    taken = {a for v, guard in zip(values, guards, strict=True) for k, a in enumerate(v.args) if not (guard and k == 1)}
    return [v for at, v in enumerate(values) if v.op == "place" and (at in taken or at in roots)]


def needing(values: Sequence[Value], roots: Collection[int]) -> list[tuple[str, str]]:
    """The dims without elements of which something has no value, each behind what is said of it: of the greatest or least of none, and of
    a place along a dim of what is read, but where something else stands outside.  `roots` are the values that are results."""
    found: dict[str, str] = {}
    for v in values:
        if v.op in ("max", "min", "argmax", "argmin") and isinstance(v.attr, tuple):
            found |= {f"{v.op}[{', '.join(v.attr)}] of no elements: dim {d} has size 0": d for d in v.attr}
    for v in unguarded(values, roots) if any(v.op == "place" for v in values) else ():
        found |= {f"a place along {d}, which has size 0": d for d in v.attr if d not in v.dims}
    return list(found.items())
