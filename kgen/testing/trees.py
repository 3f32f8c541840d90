"""Programs as syntax trees: made, tidied, and made smaller.

In: a program, or its text.  Out: a `Program` that prints as its text; `tidy` drops what nothing uses, `smaller` gives a program's
neighbours for those who shrink without Hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kgen import check as checker
from kgen import sized, syntax, typeset
from kgen.errors import KgenError, Span
from kgen.syntax import Apply, Equation, Expr, Header, Helper, Name, Num, Param, Result, Type
from kgen.types import DTYPES, ELLIPSIS, is_variable, is_wide, variable_of

NOWHERE = Span(0, 0)


@dataclass(frozen=True)
class Program:
    """A spec as a syntax tree; it prints as its text."""

    statements: tuple[syntax.Statement, ...]

    @cached_property
    def text(self) -> str:
        header = next(s for s in self.statements if isinstance(s, Header))
        rest = [typeset.format_statement(s) for s in self.statements if s is not header]
        return "\n".join([typeset.format_statement(header), "", *rest]) + "\n"

    def kernel(self) -> checker.Kernel:
        """The checked kernel.  Raises `KgenError` where the program breaks a rule."""
        return checker.check(syntax.parse(self.text, "<program>"))

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def parsed(text: str) -> Program:
    """The program of a spec's text."""
    return Program(syntax.parse(text, "<program>").statements)


def word(text: str) -> Name:
    """A name as a node."""
    return Name(text, NOWHERE)


def applied(op: str, *args: Expr, dims: Iterable[str] | None = None) -> Apply:
    """An operator, or with dims a reduction, as a node."""
    written = "call" if dims is not None else syntax.WRITTEN.get(op, "call")
    named = None if dims is None else tuple(word(d) for d in dims)
    return Apply(op, tuple(args), NOWHERE, NOWHERE, written, named)


def typed(dtype: str, dims: Iterable[str] | None) -> Type:
    """A declared type as a node."""
    return Type(word(dtype), None if dims is None else tuple(word(d) for d in dims), NOWHERE)


# ------------------------------------------------------------------------------------------------ tidying


def tidy(made: Program) -> Program:
    """The program without equations, helpers and parameters that nothing uses."""
    header = next(s for s in made.statements if isinstance(s, Header))
    equations = [s for s in made.statements if isinstance(s, Equation)]
    needed = {r.name.name for r in header.results}
    kept: list[Equation] = []
    for e in reversed(equations):
        if e.name.name in needed:
            kept.insert(0, e)
            needed |= {n.name for n in syntax.postorder(e.body) if isinstance(n, Name)}
    helpers = [s for s in made.statements if isinstance(s, Helper)]
    called: set[str] = set()
    todo: list[Expr] = [e.body for e in kept]
    while todo:
        names = {n.op for n in syntax.postorder(todo.pop()) if isinstance(n, Apply)} - called
        called |= names
        todo.extend(h.body for h in helpers if h.name.name in names)
    states = {r.name.name[:-1] for r in header.results if r.primed}
    used = [p for p in header.params if p.name.name in needed | states]
    wanted = {d.name for r in header.results for d in r.type.dims or ()} | {variable_of(r.type.dtype.name) for r in header.results}
    nodes = [n for e in kept for n in syntax.postorder(e.body)] + [n for h in helpers for n in syntax.postorder(h.body)]
    wanted |= {n.name for n in nodes if isinstance(n, Name) and n.name[0].isupper()}
    wanted |= {d.name for n in nodes if isinstance(n, Apply) for d in n.dims or ()}
    wanted |= {variable_of(n.op) for n in nodes if isinstance(n, Apply)}
    own = {d.name for p in header.params for d in p.type.dims or ()}
    clauses = tuple(c for c in header.clauses if c.name.name in wanted | own)
    wanted |= {name for c in clauses for name in sized.names(c.value)}
    for p in header.params * 2:  # what gives a size or a dtype that no other does stays; one that is kept for its size may want a dtype
        gives = {d.name for q in used for d in q.type.dims or ()} | {q.type.dtype.name for q in used}
        lacking = (wanted | {variable_of(q.type.dtype.name) for q in used}) - gives
        mine = {d.name for d in p.type.dims or ()} | ({p.type.dtype.name} if is_variable(p.type.dtype.name) else set())
        if p not in used and p.type.dims is not None and lacking & mine:
            used.append(p)
    params = tuple(p for p in header.params if p in used)
    return Program((replace(header, params=params, clauses=clauses), *(h for h in helpers if h.name.name in called), *kept))


# ------------------------------------------------------------------------------------------------ what may be left out

DEFAULTS = {"float": ("1", "0.5", "-2", "0.0", "1e-3"), "int": ("1", "0", "7"), "bool": ("1 > 0", "0 > 1")}
OPTIONAL = 0.4  # of programs are asked for some: most have none to which no other gives its sizes


def defaulted(rnd: Any, made: Program) -> Program:
    """The program, in some cases with tensors that a call may leave out: those to which no other takes its sizes or its dtype, and that
    it does not write."""
    if rnd.random() > OPTIONAL:
        return made
    header = next(s for s in made.statements if isinstance(s, Header))
    written = {r.name.name.rstrip("'") for r in header.results}
    params = list(header.params)
    for k in rnd.sample(range(len(params)), len(params)):
        p = params[k]
        others = [q.type for n, q in enumerate(params) if n != k and q.type.dims is not None and q.default is None]
        known = {d.name for t in others for d in t.dims or ()}
        given = {t.dtype.name for t in others} | {t.dtype.name[0] for t in others if is_wide(t.dtype.name)}
        dtype = p.type.dtype.name
        if not p.type.dims or p.name.name in written or not {d.name for d in p.type.dims} <= known:
            continue
        if variable_of(dtype) and variable_of(dtype) not in given or dtype in DTYPES and DTYPES[dtype].coded or rnd.random() < 0.3:
            continue
        kind = DTYPES[dtype].kind if dtype in DTYPES else "float"
        default = syntax.parse(f"d = {rnd.choice(DEFAULTS['int' if kind == 'uint' else kind])}\n").statements[0]
        assert isinstance(default, Equation)
        params[k] = replace(p, default=default.body)
        header_ = replace(header, params=tuple(params))
        found = Program(tuple(header_ if s is header else s for s in made.statements))
        try:
            found.kernel()
        except KgenError:  # what the formula makes of it needs a tensor: a reduction over the leading dims
            params[k] = p
    if params == list(header.params):
        return made
    return Program(tuple(replace(header, params=tuple(params)) if s is header else s for s in made.statements))


# ------------------------------------------------------------------------------------------------ shrinking


def smaller(made: Program) -> Iterator[Program]:
    """Programs that are a step simpler, those that lose most first: without a result, an equation's name or a parameter's dim, with
    an expression in place of the one around it, or a literal in place of an expression.  Not all are well typed."""
    header = next(s for s in made.statements if isinstance(s, Header))
    if len(header.results) > 1:
        for r in header.results:
            yield tidy(_with(made, header, replace(header, results=tuple(q for q in header.results if q is not r))))
    equations = [s for s in made.statements if isinstance(s, Equation)]
    for e in equations:  # an inner equation as the result
        if e.name.name not in {r.name.name for r in header.results}:
            like = header.results[0]
            for dtype in dict.fromkeys((like.type.dtype.name, "f32", "i64", "bool")):
                first = replace(like, name=e.name, type=replace(like.type, dtype=word(dtype)))
                yield tidy(_with(made, header, replace(header, results=(first,))))
    for statement in made.statements:
        if isinstance(statement, Header):
            continue
        for body in _simpler(statement.body):
            other = replace(statement, body=body) if isinstance(statement, Equation) else replace(statement, body=body)
            yield tidy(_with(made, statement, other))
    for e in equations:  # an equation's value in place of its name, where it is used
        if e.name.name not in {r.name.name for r in header.results}:
            yield tidy(_inlined(made, e))
    for p in header.params:
        if p.type.dims is None:
            if p.default is not None:
                yield _with(made, header, _with_param(header, p, replace(p, default=None)))
            continue
        for d in p.type.dims:
            dims = tuple(q for q in p.type.dims if q is not d)
            yield _with(made, header, _with_param(header, p, replace(p, type=replace(p.type, dims=dims, factors=()))))
        for dtype in ("T", "f32"):
            if p.type.dtype.name not in ("T", "f32", dtype):
                yield _with(made, header, _with_param(header, p, replace(p, type=replace(p.type, dtype=word(dtype)))))
    for r in header.results:
        for d in r.type.dims or ():
            dims = tuple(q for q in r.type.dims or () if q is not d)
            yield _with(made, header, _with_result(header, r, replace(r, type=replace(r.type, dims=dims, factors=()))))
    for name in sorted({d.name for p in header.params for d in p.type.dims or ()}):  # a dim everywhere
        yield tidy(_without_dim(made, name))


def widened(made: Program) -> Program:
    """The program with every dim of its parameters in each result that is not written in place."""
    header = next(s for s in made.statements if isinstance(s, Header))
    names = dict.fromkeys(d.name for p in header.params for d in p.type.dims or ())
    dims = tuple(word(d) for d in ([ELLIPSIS] if ELLIPSIS in names else []) + [d for d in names if d != ELLIPSIS])
    results = tuple(r if r.primed else replace(r, type=replace(r.type, dims=dims, factors=())) for r in header.results)
    return _with(made, header, replace(header, results=results))


def _with(made: Program, old: syntax.Statement, new: syntax.Statement) -> Program:
    return Program(tuple(new if s is old else s for s in made.statements))


def _with_param(header: Header, old: Param, new: Param) -> Header:
    """The header with another parameter; its next state goes along."""
    results = tuple(replace(r, type=new.type) if r.name.name == f"{old.name.name}'" else r for r in header.results)
    return replace(header, params=tuple(new if p is old else p for p in header.params), results=results)


def _with_result(header: Header, old: Result, new: Result) -> Header:
    return replace(header, results=tuple(new if r is old else r for r in header.results))


def _replaced(root: Expr, old: Expr, new: Expr) -> Expr:
    return syntax.rebuilt(root, lambda node: new if node is old else node)


def _simpler(root: Expr) -> Iterator[Expr]:
    nodes = [n for n in syntax.postorder(root) if isinstance(n, Apply)]
    for node in reversed(nodes):
        for child in node.args:
            yield _replaced(root, node, child)
        if node.dims is not None and len(node.dims) > 1 and node.written != "place":
            for d in node.dims:
                yield _replaced(root, node, replace(node, dims=tuple(q for q in node.dims if q is not d)))
    for node in reversed(nodes):
        if node is not root:
            yield _replaced(root, node, Num("2", NOWHERE))
    for leaf in [n for n in syntax.postorder(root) if isinstance(n, Num) and n.text not in ("1", "2")]:
        yield _replaced(root, leaf, Num("2", NOWHERE))


def _inlined(made: Program, e: Equation) -> Program:
    statements = []
    for s in made.statements:
        if isinstance(s, Equation) and s is not e:
            body = s.body
            for node in [n for n in syntax.postorder(body) if isinstance(n, Name) and n.name == e.name.name]:
                body = _replaced(body, node, e.body)
            s = replace(s, body=body)
        statements.append(s)
    return Program(tuple(statements))


def _without_dim(made: Program, d: str) -> Program:
    """The program without a dim: taken out of types and reductions; where it stands as a number, that is 2."""

    def cut(t: Type) -> Type:
        if t.dims is None or not any(q.name == d for q in t.dims):
            return t
        return replace(t, dims=tuple(q for q in t.dims if q.name != d), factors=())

    def without(node: Expr) -> Expr:
        """A node without it."""
        if isinstance(node, Name) and node.name == d:
            return Num("2", NOWHERE)
        if not isinstance(node, Apply) or node.dims is None:
            return node
        dims, args = tuple(q for q in node.dims if q.name != d), node.args
        if node.written == "place" and dims:
            places = [a for q, a in zip(node.dims, args[1:], strict=False) if q.name != d]
            args = (args[0], *places, *args[len(node.dims) + 1 :])
        if node.dims and not dims:  # nothing is left to reduce over
            return args[0] if args else Num("2", NOWHERE)
        return replace(node, args=args, dims=dims)

    statements: list[syntax.Statement] = []
    for s in made.statements:
        if isinstance(s, Header):
            params = tuple(replace(p, type=cut(p.type)) for p in s.params)
            statements.append(replace(s, params=params, results=tuple(replace(r, type=cut(r.type)) for r in s.results)))
        elif isinstance(s, Equation):
            statements.append(replace(s, body=syntax.rebuilt(s.body, without)))
        else:
            statements.append(s)
    return Program(tuple(statements))
