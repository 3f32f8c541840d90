"""Values back to the text of a spec: what derives a kernel from a kernel writes it as a person would.

In: a graph of values, names for some of them, and the results wanted.  Out: the text of a .k file whose values, when it is
checked, are the same ones.  What is used twice, or would make a line too long, gets an equation of its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kgen import positions, sized, syntax, typeset
from kgen.errors import Span
from kgen.expressions import prelude
from kgen.ops import CONSTANTS, OPS, REDUCTIONS, SCANS
from kgen.places import Places
from kgen.syntax import Apply, Clause, Expr, Name, Num
from kgen.types import DTYPES, ELLIPSIS, Dims, is_bool, is_literal, literal_size, show_type, shown_dim
from kgen.values import Value, cast_to, reached

_NOWHERE = Span(0, 0)
_LEAVES = ("param", "lit", "const", "size", "index")
_LINE = 88  # characters of an expression before a part of it gets a name


@dataclass(frozen=True)
class Declared:
    """A parameter or result as a header declares it; `dims` is None for a number, `default` its text, `factors` as a `Type` has them."""

    name: str
    dtype: str
    dims: Dims | None
    default: str | None = None
    factors: tuple[int, ...] = ()

    def __str__(self) -> str:
        kind = self.dtype if self.dims is None else show_type(self.dtype, self.dims, self.factors)
        return f"{self.name}: {kind}" + (f" = {self.default}" if self.default is not None else "")


def unused(wanted: str, taken: Container[str], counts: dict[str, int]) -> str:
    """`wanted`, or with the first of `_`, `_2`, `_3` and so on behind it that makes it free; `counts` remembers how far that went."""
    name = wanted
    while name in taken:
        counts[wanted] = counts.get(wanted, 0) + 1
        name = f"{wanted}_{counts[wanted] if counts[wanted] > 1 else ''}"
    return name


class Names:
    """Names that a spec has not given yet."""

    def __init__(self, taken: Iterable[str]):
        self.taken = {*taken, *OPS, *REDUCTIONS, *SCANS, *DTYPES, *CONSTANTS, *prelude(), *syntax.KEYWORDS, "float", "int", "index", "pick"}
        self.counts: dict[str, int] = {}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or what `unused` makes of it; cut where it would be too long for a name."""
        made = unused(wanted.rstrip("'")[: syntax.MAX_NAME - 6], self.taken, self.counts)
        self.taken.add(made)
        return made

    def numbered(self, stem: str) -> str:
        k = self.counts.get(f"{stem}#", 0) + 1
        while f"{stem}{k}" in self.taken:
            k += 1
        self.counts[f"{stem}#"] = k
        return self.fresh(f"{stem}{k}")


def name_of(value: Value) -> str:
    """A name for a value that has none: a reduction's kind with its dims, `row` behind the operator of a value a row."""
    if value.op in REDUCTIONS and value.attr:
        return f"{value.op}_{'_'.join('all' if d == ELLIPSIS else d for d in value.attr)}"
    return f"{value.op}_row"


def equations(
    values: Sequence[Value], wanted: Mapping[int, str], given: Mapping[int, str], whole: str, names: Names, clauses: Sequence[Clause] = ()
) -> list[str]:
    """The equations of the values in `wanted`, each with its name there, and of what they share; those in `given` stand by name.
    `whole` is a tensor that has the leading dims."""
    made = _Writer(values, given, whole, clauses).equations(list(wanted), list(wanted.values()), {}, names)
    return [f"{name} = {text}" for name, text in made]


def write(
    name: str,
    doc: Sequence[str],
    params: Sequence[Declared],
    results: Sequence[tuple[Declared, int]],
    values: Sequence[Value],
    leaves: Mapping[int, str],
    wanted: Mapping[int, str],
    names: Names,
    clauses: Sequence[Clause] = (),
) -> str:
    """The text of a spec: `results` are values of the graph, `leaves` those that stand by a parameter's name, `wanted` names
    (free ones) that values get where they have an equation, `clauses` what is known of sizes."""
    whole = next((p.name for p in params if ELLIPSIS in (p.dims or ())), "")
    writer = _Writer(values, dict(leaves), whole, clauses)
    said = writer.said(params, results)  # before equations have names, behind which nothing would be seen
    equations = writer.equations([v for _, v in results], [d.name for d, _ in results], wanted, names)
    header = f"{name}({', '.join(map(str, params))}) -> "
    header += str(results[0][0]) if len(results) == 1 else f"({', '.join(str(d) for d, _ in results)})"
    header += f" where {', '.join(said)}" if said else ""
    text = "".join(f"# {line}".rstrip() + "\n" for line in doc) + header + "\n\n" + "".join(f"{n} = {e}\n" for n, e in equations)
    return typeset.format_file(sized.inlined(syntax.parse(text, f"{name}.k"), clauses))


class _Writer:
    def __init__(self, values: Sequence[Value], names: Mapping[int, str], whole: str, clauses: Sequence[Clause] = ()):
        self.values, self.names, self.whole, self.clauses = values, dict(names), whole, tuple(clauses)
        self.nodes: dict[int, Expr] = {}
        self.lengths: dict[int, int] = {}

    def said(self, params: Sequence[Declared], results: Sequence[tuple[Declared, int]]) -> list[str]:
        """What the header says of sizes: the literals that have names, and the clauses that follow from what is declared."""
        read = [value for v in self.reached(v for _, v in results) if self.aside(value := self.values[v]) is None]
        used = dict.fromkeys(d for x in (*params, *(d for d, _ in results)) for d in x.dims or ())
        used |= dict.fromkeys(d for v in read for d in (*v.dims, *(v.attr if isinstance(v.attr, tuple) else ())))
        used |= dict.fromkeys(str(v.attr) for v in read if v.op in ("size", "index"))
        given = {d for p in params for d in p.dims or ()} | {p.name for p in params if p.dims is None}
        known = sized.follows(self.clauses, given)
        kept = [c for c in self.clauses if {c.name.name, *sized.names(c.value)} <= known and c.name.name in used]
        of = {node.name for c in kept for node in syntax.postorder(c.value) if isinstance(node, Name)}
        kept += [c for c in self.clauses if c not in kept and c.name.name in of and {c.name.name, *sized.names(c.value)} <= known]
        literals = [d for d in (*used, *sorted(of - used.keys())) if is_literal(d) and not d.isdigit()]
        said = [f"{shown_dim(d)} = {literal_size(d)}" for d in literals]
        return said + [f"{c.name.name} = {typeset.format_expr(c.value)}" for c in kept]

    def reached(self, roots: Iterable[int]) -> list[int]:
        """What the roots are made of down to the named values, in order."""
        return sorted(reached(roots, lambda v: () if v in self.names else self.operands(v)))

    def operands(self, v: int) -> tuple[int, ...]:
        """The values that a value's text is made of: of a place with its fill neither the condition nor the bare place."""
        value = self.values[v]
        if (beside := self.aside(value)) is not None:
            return beside.args[0], value.args[1]
        place = self.guarded(value) if value.op == "where" else None
        return value.args if place is None else (*place.args, value.args[2])

    def made(self, v: int) -> None:
        """The node of a value whose operands have theirs."""
        if v in self.names:
            self.nodes[v], self.lengths[v] = Name(self.names[v], _NOWHERE), len(self.names[v])
            return
        value = self.values[v]
        own = self.operands(v)
        self.nodes[v] = self.spelled(value, [self.nodes[a] for a in own])
        self.lengths[v] = sum(self.lengths[a] + 3 for a in own) + len(str(value.attr if value.op in ("lit", "const") else value.op))

    def spelled(self, value: Value, args: list[Expr]) -> Expr:
        """The node of a value applied to its operands' nodes."""
        op, attr = value.op, value.attr

        def call(name: str, args: list[Expr], dims: Iterable[str] | None = None) -> Expr:
            named = None if dims is None else tuple(Name(shown_dim(d), _NOWHERE) for d in dims)
            return Apply(name, tuple(args), _NOWHERE, _NOWHERE, "call", named)

        if op == "lit":
            return Num(str(attr), _NOWHERE)
        if op in ("param", "const"):
            return Name(str(attr), _NOWHERE)
        if op == "size":
            return call("size", [Name(self.whole, _NOWHERE)], [ELLIPSIS]) if attr == ELLIPSIS else Name(shown_dim(str(attr)), _NOWHERE)
        if op == "index":
            return call("index", [], value.attr if isinstance(attr, tuple) else [str(attr)])
        if op == "cast":
            name, how = cast_to(value)
            return call(name, args, how or None)
        if op == "place":
            return self.placed(value, args, [])
        if op == "where" and (place := self.guarded(value)):
            read = Places(self.values, self.clauses)
            inside = all(read.inside(e, d) for d, e in zip(place.attr, place.args[1:], strict=True))
            return self.placed(place, args[:-1], [] if inside else args[-1:])
        if op == "pick" or op in SCANS or op in REDUCTIONS and attr:
            beside = self.aside(value)
            return call(op, args, attr if beside is None else beside.attr)
        return Apply(op, tuple(args), _NOWHERE, _NOWHERE, syntax.WRITTEN.get(op, "call"))

    def placed(self, value: Value, args: list[Expr], fill: list[Expr]) -> Expr:
        """The node of a place; one that may lie outside has a fill, which is 0 where it has no other, of bools a bool."""
        read = Places(self.values, self.clauses)
        if not fill and not all(read.inside(e, d) for d, e in zip(value.attr, value.args[1:], strict=True)):
            zero = Num("0", _NOWHERE)
            fill = [Apply("bool", (zero,), _NOWHERE, _NOWHERE, "call") if is_bool(value.type) else zero]
        return Apply("place", (*args, *fill), _NOWHERE, _NOWHERE, "place", tuple(Name(shown_dim(d), _NOWHERE) for d in value.attr))

    def aside(self, value: Value) -> Value | None:
        """The value along another dim that `pick` takes its element of, unless it has a name (`positions.aside`)."""
        return None if value.args and value.args[0] in self.names else positions.beside(self.values, value)

    def guarded(self, value: Value) -> Value | None:
        """The place that a choice takes where it lies inside, if it is one of these (`Expressions.filled`)."""
        place = self.values[value.args[1]]
        if place.op != "place" or value.args[1] in self.names:
            return None
        return place if Places(self.values, self.clauses).guards(value.args[0], value.args[1]) else None

    def compared(self, reached: Iterable[int]) -> set[int]:
        """The NaNs that something is compared with, signs before them or not, as in the gradient of max(x, nan): a spec may compare with
        `nan` only where that has a name."""
        compares = [v for v in reached if v not in self.names and self.values[v].op in OPS and OPS[self.values[v].op].rule == "compare"]
        found = set()
        for a in (a for v in compares for a in self.operands(v)):
            while a not in self.names and self.values[a].op in ("neg", "pos"):
                a = self.values[a].args[0]
            if (self.values[a].op, self.values[a].attr) == ("const", "nan") and a not in self.names:
                found.add(a)
        return found

    def equations(self, roots: list[int], results: list[str], wanted: Mapping[int, str], names: Names) -> list[tuple[str, str]]:
        """(name, text) of each equation, the results' among them, every one behind those that it uses."""
        reached = self.reached(roots)
        uses = dict.fromkeys(reached, 0)
        for v in reached:
            for a in self.operands(v) if v not in self.names else ():
                uses[a] += 1
        ends: dict[int, list[str]] = {}
        for v, name in zip(roots, results, strict=True):
            ends.setdefault(v, []).append(name)
        out: list[tuple[str, str]] = []
        compared = self.compared(reached)
        for v in reached:
            self.made(v)
            if v in compared:
                name = names.numbered("t")
                out.append((name, typeset.format_expr(self.nodes[v])))
                self.names[v] = name
                self.made(v)
            if v in self.names or self.values[v].op in _LEAVES:
                out += [(name, typeset.format_expr(self.nodes[v])) for name in ends.get(v, ())]
                continue
            named = ends.get(v) or []
            if not named and (uses[v] > 1 or v in wanted or self.lengths[v] > _LINE):
                value = self.values[v]
                is_row = value.op in REDUCTIONS and value.attr
                named = [wanted[v] if v in wanted else names.fresh(name_of(value)) if is_row else names.numbered("t")]
            if named:
                out.append((named[0], typeset.format_expr(self.nodes[v])))
                out += [(name, named[0]) for name in named[1:]]
                self.names[v] = named[0]
                self.made(v)
        return out
