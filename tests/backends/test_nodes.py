"""The printers decide on nodes, not on text that they printed: what a piece of source says that it reads and calls is what stands in it, and
what is counted of the printers stays small."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Container, Iterator
from functools import cache

import pytest

from kgen import grad
from kgen.backends import TARGETS, backend
from kgen.backends.base import Backend, Render
from kgen.backends.names import OPEN
from kgen.backends.sorts import SortUnit
from kgen.backends.text import Call, Name, Text, called, fill, library, named, numeral, parsed, source
from kgen.backends.triton import Triton
from kgen.backends.triton_maps import MapView
from kgen.backends.triton_rows import RowsView, texts
from kgen.backends.units import RowUnit, Statement
from kgen.check import Kernel, check
from kgen.errors import KgenError
from kgen.ops import OPS, Spell
from kgen.syntax import parse
from kgen.testing import programs
from tests.conftest import ROOT

FOLDER = ROOT / "kgen" / "backends"
#: The regular expressions of each printer: of `names`, a marked name and each language's words; of `c_family`, the forms of names that
#: headers take; of `text`, the words of a pattern or of a library's source.
EXPRESSIONS = {"names.py": 3, "c_family.py": 1, "text.py": 1}
MOST_LINES = 60
PRINTERS = {p.name: ast.parse(p.read_text()) for p in sorted(FOLDER.glob("*.py"))}


@pytest.mark.parametrize("name", PRINTERS)
def test_printers_look_at_no_source(name: str) -> None:
    """Every use of `re` is counted but types of patterns; no pattern is used through a module's functions twice."""
    found = [n for n in ast.walk(PRINTERS[name]) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "re"]
    used = [n.attr for n in found if n.attr not in ("Pattern", "Match", "M", "S", "I", "X")]
    assert len(used) == EXPRESSIONS.get(name, 0), used


@pytest.mark.parametrize("name", PRINTERS)
def test_views_are_typed(name: str) -> None:
    """No `dict[str, Any]`, nor any other dict of anything."""
    for node in ast.walk(PRINTERS[name]):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ("dict", "Mapping"):
            assert "Any" not in ast.unparse(node) and "object" not in ast.unparse(node), f"{name}:{node.lineno}"


@pytest.mark.parametrize("name", PRINTERS)
def test_no_printer_is_long(name: str) -> None:
    for node in ast.walk(PRINTERS[name]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < MOST_LINES, f"{name}:{node.lineno} {node.name}"


# ------------------------------------------------------------------------------------------------ what pieces say of themselves


@cache
def kernels() -> list[Kernel]:
    """The specs of the folder itself, of which those in its families are kin, and random programs, with their backwards."""
    written = [p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))]
    drawn = [programs.program(random.Random(f"nodes {n}"), f"p{n}").text for n in range(30)]
    found = []
    for text in (*written, *drawn):
        try:
            found.append(check(parse(text, "spec.k")))
            if grad.differentiable(found[-1]):
                found.append(grad.backward(found[-1]).kernel)
        except KgenError:  # of a program without a backward, or one too long to print
            continue
    return found


def statements(render: Render) -> Iterator[Statement]:
    """What a kernel's passes are made of: their lines, values as lines without a name, what Triton's kernels put around them."""
    units = render.units()
    for u in units:
        if isinstance(u, SortUnit):  # a call, made of no statements
            continue
        for c in u.every if isinstance(u, RowUnit) else (u,):
            yield from c.lines
            yield from (Statement(value=o.value) for o in c.outputs)
        for c in u.every if isinstance(u, RowUnit) else ():
            yield from (Statement(value=text) for a in c.accumulators for text in (a.value, a.place, *a.weights))
            yield from (Statement(value=g.text) for g in c.gives)
        yield from (Statement(value=s.text) for s in u.scalars)
    if isinstance(render.backend, Triton):
        for view in render.backend.unit_views(render, units):
            yield from (*view.definitions, *view.rounded)
            if isinstance(view, MapView):
                yield from (*view.loads, *view.stores, *view.steps)
            if isinstance(view, RowsView):
                nodes = [node for body in view.bodies.values() for node in body]
                yield from (Statement(value=text) for node in nodes for text in texts(node))
                yield from (s for r in view.readings for s in (*r.head, *r.body, *r.tail) if isinstance(s, Statement))
                yield from (s for j in view.joins for s in j.body)


def agrees(target: Backend, s: Statement, types: set[str], known: Container[str]) -> None:
    """A statement reads just the names that stand in its line, and calls just the functions, of those `known`; names bear a mark."""
    line = target.assign(s) if s.names else str(s.value)
    words = {w for w in re.findall(r"\w+", line) if OPEN in w or w in types}
    assert words == {w for w in (*s.uses, *s.names, *s.value.calls) if OPEN in w or w in types}, line
    assert [c for c in called(s.value, target.comment) if c in known] == [c for c in s.value.calls if c in known], line


@pytest.mark.parametrize("target", TARGETS)
def test_a_statement_reads_what_stands_in_it(target: str) -> None:
    counted, known = 0, library(backend(target).template_folder())
    for kernel in kernels():
        try:
            render = Render(backend(target), kernel)
            found = list(statements(render))
        except KgenError:
            continue
        types = {*render.variables.values(), *render.generics.values()}
        for s in found:
            agrees(render.backend, s, types, known)
        counted += len(found)
    assert counted > 1000


@pytest.mark.parametrize("target", TARGETS)
def test_every_spelling_is_taken_apart(target: str) -> None:
    """A spelling's tokens are its text, and each of its operands comes where it stands."""
    for op in OPS.values():
        spell = backend(target).spell(op)
        for pattern in {spell.text(kind) for kind in ("float", "int", "uint", "bool")} - {""}:
            holes, rest = parsed(pattern)
            text = "".join("".join(h.before) + f"{{{h.field}}}" for h in holes) + "".join(rest)
            assert text == pattern
            made = fill(Spell(pattern), "float", [named(f"x{k}") for k in range(op.arity)], {"F": "float", "U": "unsigned"})
            assert {w for w in made.uses if w.startswith("x")} == {f"x{h.field}" for h in holes if h.field.isdigit()}
            assert set(called(made, "#")) - {"float", "unsigned"} == set(made.calls)


def test_pieces_say_what_they_are() -> None:
    x, sum_ = named("x"), source("{0} + {1}", "x", numeral("1.5"), level=6)
    assert (x.is_name, x.is_word, x.is_plain) == (True, True, True)
    assert [numeral(t).is_word for t in ("12", "1.5", "-2")] == [True, False, False]
    assert [numeral(t).is_plain for t in ("12", "1.5", "-2", "1e-05")] == [True, True, False, False]
    assert source("{0}({1})", "F", "x", to="F").is_plain and not source("{0}({1})", "F", sum_, to="F").is_plain
    assert sum_.fit(7) == "(x + 1.5)" and sum_.fit(7).uses == {"x"} and sum_.fit(6) is sum_
    picked = Text((Call("x_at"), "(", Name("i"), ")"))
    assert picked.converted("x_at", source("gather({0}, ", "row")) == "gather(row, i)"
    assert source("libdevice.exp(tl.where({0}, f<{1}>({2}), 0))", "c", "T", "x").calls == ("libdevice.exp", "tl.where", "f")
