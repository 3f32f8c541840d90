"""Properties of programs that run nothing: of their text, their names and their sources.

In: a checked kernel.  Out: a `Report`; raises `Violation` where a property does not hold.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kgen import check as checker
from kgen import syntax, typeset
from kgen.backends import TARGETS
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ops import CONSTANTS
from kgen.sized import with_names
from kgen.syntax import KEYWORDS, Apply, Equation, Expr, Header, Helper, Name
from kgen.testing.checks import Report
from kgen.testing.holding import Violation, hold
from kgen.testing.programs import AWKWARD, AWKWARD_DIMS
from kgen.types import DTYPES, ELLIPSIS, Float, is_literal, shown_dim
from kgen.values import exact


def prints_and_parses(kernel: Kernel) -> Report:
    """Its text set well parses to the same tree and stays as it is when set again; the spec that is written anew from its values
    has the same values."""
    file = kernel.file
    printed = typeset.format_file(file)
    again = syntax.parse(printed, file.source.name)
    hold(len(file.statements) == len(again.statements), f"printing changes the number of statements:\n{printed}")
    for a, b in zip(file.statements, again.statements, strict=True):
        hold(_shape(a) == _shape(b), f"printing changes a statement: {_shape(a)} became {_shape(b)}\n{printed}")
    hold(typeset.format_file(again) == printed, f"printing twice differs:\n{printed}")
    hold(checker.check(again).values == kernel.values, f"printing changes the values:\n{printed}")
    if not any(r.state for r in kernel.results):
        text = written(kernel)
        try:
            anew = checker.check(syntax.parse(text, "anew.k"))
        except KgenError as error:
            raise Violation(f"the spec written from the values is refused: {error}\n{text}") from None
        hold(structure(anew) == structure(kernel), f"the spec written from the values has other values:\n{text}")
    return Report(kernel.name, "")


def _shape(s: syntax.Statement) -> tuple:
    """A statement without its places and brackets."""
    if isinstance(s, Header):
        results = [(r.name.name, typeset.format_type(r.type)) for r in s.results]
        return (s.name.name, *(typeset.format_param(p) for p in s.params), *results, typeset.format_clauses(s))
    own = [typeset.assigned(s)] if isinstance(s, Equation) else [n.name for n in (s.name, *s.dims, *s.params)]
    nodes: list = []
    for n in syntax.postorder(s.body):
        if isinstance(n, Apply):
            nodes.append((n.op, len(n.args), n.written, None if n.dims is None else [shown_dim(d.name) for d in n.dims]))
        else:
            nodes.append(shown_dim(n.name) if isinstance(n, Name) else n.text)
    return (*own, *nodes)


def written(kernel: Kernel) -> str:
    """The kernel's spec, written anew from its values."""
    from kgen.write import Declared, Names, write

    params = [Declared(p.name, p.dtype, p.dims, p.default, p.factors) for p in kernel.params]
    results = [(Declared(r.name, r.dtype, r.dims, None, r.factors), r.value) for r in kernel.results]
    taken = [kernel.name, *(p.name for p in kernel.params), *(r.name for r in kernel.results), *kernel.variables]
    taken += [d for p in kernel.params for d in p.dims or ()]
    return write(kernel.name, [], params, results, kernel.values, {}, {}, Names(taken), kernel.clauses)


def structure(kernel: Kernel, names: dict[str, str] | None = None) -> list:
    """The results as trees of operators, shared parts as numbers; `names` renames parameters, dims and dtype variables."""
    names = names or {}
    seen: dict[tuple, int] = {}
    number: list[int] = []

    def named(attr: Any) -> Any:
        return tuple(names.get(a, a) for a in attr) if isinstance(attr, tuple) else attr

    for v in kernel.values:
        attr = named(v.attr) if v.op not in ("param", "size", "index") else names.get(str(v.attr), str(v.attr))
        t = Float(frozenset(names.get(n, n) for n in v.type.of)) if isinstance(v.type, Float) else v.type
        key = (v.op, tuple(number[a] for a in v.args), attr if v.op != "lit" else exact(str(attr)), str(t), named(v.dims))
        number.append(seen.setdefault(key, len(seen)))
    kept: dict[int, tuple] = {n: key for key, n in seen.items()}
    found: list = []
    order: dict[int, int] = {}

    def reach(root: int) -> None:  # in the order of the results, whatever else there is
        todo = [root]
        while todo:
            n = todo[-1]
            missing = [a for a in kept[n][1] if a not in order]
            if n in order or not missing:
                todo.pop()
                if n not in order:
                    order[n] = len(order)
                    op, args, *rest = kept[n]
                    found.append((op, tuple(order[a] for a in args), *rest))
                continue
            todo.extend(reversed(missing))

    for r in kernel.results:
        reach(number[r.value])
        found.append((names.get(r.name, r.name), order[number[r.value]], names.get(r.dtype, r.dtype), named(r.dims)))
    return found


def renames(kernel: Kernel, seed: int = 0) -> Report:
    """Under other names, awkward ones among them, the values are the same; under names of any length the source for one of the targets is
    the same too, token by token, but for names.  Under names that this source has itself no two names become one within a function."""
    from kgen.backends import backend

    other, names = renamed(kernel, random.Random(f"names {seed}"), (AWKWARD, AWKWARD_DIMS))
    hold(structure(other, {new: old for old, new in names.items()}) == structure(kernel),
         f"renaming changes the values, with {names}:\n{other.file.source.text}")  # fmt: skip
    one, two = renamed(kernel, "vN")[0], renamed(kernel, "uM", length=LONG)[0]
    for target in random.Random(f"target {seed}").sample(list(TARGETS), 1):
        source = backend(target).render(one)
        difference = renamed_tokens(*(tokens(text, target) for text in (source, backend(target).render(two))))
        hold(not difference, f"renaming changes the {target} source: {difference}\n{one.file.source.text}")
        words = sorted({*_words(source, target)} - {*DTYPES, *CONSTANTS, *KEYWORDS, "int", "float"})
        third, names = renamed(kernel, random.Random(f"words {seed}"), (words, [w for w in words if w[0].isupper()]))
        said = _captured(source, backend(target).render(third), target)
        hold(not said, f"a name is captured in the {target} source: {said}\n{third.file.source.text}")
    return Report(kernel.name, "")


def _words(source: str, target: str) -> list[str]:
    """The identifiers of a source's functions that have names of `renamed` (plain ones), but for those and single capitals."""
    own = [tokens(part, target) for part in _parts(source, target) if _PLAIN.search(part)]
    return [w for part in own for w in part if _is_word(w) and len(w) > 1 and not _PLAIN.search(w)]


def _parts(source: str, target: str) -> list[str]:
    """A source cut where one function or struct ends and the next begins."""
    return re.split(r"\n\n\n" if target == "triton" else r"(?m)^\}.*$", source)


def _captured(plain: str, named: str, target: str) -> str:
    """Where two names of a function of a source have become one in the same source under other names; "" where none have."""
    parts = _parts(plain, target), _parts(named, target)
    if len(parts[0]) != len(parts[1]):
        return ""  # a long line became two, so that a function is not called: no part stands beside its like
    for one, two in zip(*parts, strict=True):
        if not _PLAIN.search(one):
            continue
        ours, theirs = tokens(one, target), tokens(two, target)
        pairs = list(zip(ours, theirs, strict=False))
        if len(ours) != len(theirs) or any(a != b and not (_is_word(a) and _is_word(b)) for a, b in pairs):
            continue  # broken into lines in another way
        stands: dict[str, str] = {}
        for k, (a, b) in enumerate(pairs):
            before = [t for t in ours[max(0, k - 3) : k] if t != "template"]
            if not _is_word(a) or before[-1:] == ["."] or before[-2:] in (["-", ">"], [":", ":"], ["[", "["]):
                continue  # a member or an attribute
            if stands.setdefault(b, a) != a:
                return f"`{b}` stands for `{stands[b]}` and for `{a}` in `{' '.join(theirs[max(0, k - 8) : k + 4])}`"
    return ""


def renamed(
    kernel: Kernel, how: random.Random | str, pools: tuple[Sequence[str], Sequence[str]] = ((), ()), length: int = 4
) -> tuple[Kernel, dict[str, str]]:  # fmt: skip
    """The kernel under other names of its parameters, dims, results and equations, and which name became which: `how` is a source of
    choices among `pools` of names (of dims the second), or two letters with which plain ones of a length begin."""
    header = next(s for s in kernel.file.statements if isinstance(s, Header))
    plain = [*(p.name.name for p in header.params), *(s.name.name for s in kernel.file.statements if isinstance(s, Equation))]
    dims = dict.fromkeys(d.name for p in header.params for d in p.type.dims or () if d.name != ELLIPSIS and not is_literal(d.name))
    helpers = {s.name.name for s in kernel.file.statements if isinstance(s, Helper)}
    taken = {*helpers, kernel.name, *kernel.variables, *(f"{v}32" for v in kernel.variables)}
    names: dict[str, str] = {}
    for k, wanted in enumerate(([n for n in dict.fromkeys(plain) if not n.endswith("'")], list(dims))):
        if isinstance(how, str):
            chosen = [f"{how[k]}{'qz'[k]}{j:02}".ljust(length, "w") for j in range(len(wanted))]
        else:
            chosen = how.sample([n for n in (*pools[k], *(f"{'vN'[k]}_{j}" for j in range(len(wanted)))) if n not in taken], len(wanted))
        names |= zip(wanted, chosen, strict=True)
        taken.update(chosen)
    names |= {f"{old}'": f"{new}'" for old, new in names.items()}

    def word(n: Name) -> Name:
        return replace(n, name=names.get(n.name, n.name), extent=None)

    def kind(t: syntax.Type) -> syntax.Type:
        return t if t.dims is None else replace(t, dims=tuple(map(word, t.dims)))

    def body(root: Expr) -> Expr:
        return with_names(root, word)

    statements: list[syntax.Statement] = []
    for s in kernel.file.statements:
        if isinstance(s, Header):
            params = tuple(replace(p, name=word(p.name), type=kind(p.type)) for p in s.params)
            results = tuple(replace(r, name=word(r.name), type=kind(r.type)) for r in s.results)
            clauses = tuple(replace(c, name=word(c.name), value=body(c.value), inline=False) for c in s.clauses)
            statements.append(replace(s, params=params, results=results, clauses=clauses))
        else:
            statements.append(replace(s, name=word(s.name), body=body(s.body)) if isinstance(s, Equation) else s)
    text = typeset.format_file(replace(kernel.file, statements=tuple(statements), comments=()))
    return checker.check(syntax.parse(text, kernel.file.source.name)), names


#: How long the long names are under which a source stays as it is.
LONG = 40
#: Plain names that `renamed` gives.
_PLAIN = re.compile(r"[vuNM][qz]\d\d")
_TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<hash>\#[^\n]*)|(?P<string>\"[^\"\n]*\"|'[^'\n]*')|[A-Za-z_]\w*|\.?\d[\w.]*|\S",
    re.S,
)


def unbroken(source: str) -> str:
    """A Python source in which no value stands on lines of its own, in brackets that are there for these alone."""
    return re.sub(r"= \(\n([\s\S]*?)\n *\)(?=\n)", lambda m: "= " + re.sub(r"\n *", " ", m[1].lstrip()), source)


def tokens(source: str, target: str) -> list[str]:
    """The words and signs of a source, comments and texts (which carry the spec's own words) left out; of Python also the brackets
    in which a value stands on lines of its own."""
    if target == "triton":
        source = re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", unbroken(source.replace("//", "/ /")))
    found = []
    for match in _TOKEN.finditer(source):
        if match["comment"] and target != "triton" or match["hash"] and target == "triton" or match["string"]:
            continue
        found.append(match.group())
    return found


def renamed_tokens(ours: list[str], theirs: list[str]) -> str:
    """Where two token streams differ by more than the spelling of names; "" where they do not."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b and not (_is_word(a) and _is_word(b)):
            return f"`{' '.join(ours[max(0, k - 8) : k + 4])}` became `{' '.join(theirs[max(0, k - 8) : k + 4])}`"
    return "" if len(ours) == len(theirs) else f"{len(ours)} tokens became {len(theirs)}"


def _is_word(token: str) -> bool:
    return token[0].isalpha() or token[0] == "_"


def renders(kernel: Kernel) -> Report:
    """Every target has source, and Triton's is Python."""
    from kgen.backends import backend

    for target in TARGETS:
        source = backend(target).render(kernel)
        if target == "triton":
            compile(source, f"{kernel.name}_triton.py", "exec", dont_inherit=True)
    return Report(kernel.name, "")
