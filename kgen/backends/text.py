"""Pieces of source: what they read and call, how tightly they bind, where they get brackets, how long lists are wrapped, how numbers
are written.

A piece is made of tokens: the names that it reads, the functions that it calls, numbers, and what stands between.  What a target
writes around its operands stands in patterns (`"tl.where({0}, {1}, {2})"`), in the table of operators and in the printers; each is
taken apart once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from pathlib import Path
from string import Formatter

from kgen import host
from kgen.backends.names import bare
from kgen.ops import CALL, LOOSE, SUM, UNARY, Op, Spell
from kgen.types import DTYPES


class Name(str):
    """A word that stands for a value or a type."""


class Call(str):
    """The name of a function that is called, as it is written: `exp`, `std::exp`, `tl.where`."""


class Digits(str):
    """A number without a sign."""


#: Words of a target's language that are values themselves: no name that a value may have.
_VALUES = frozenset(("true", "false", "True", "False", "INFINITY", "NAN"))


class Text(str):
    """A piece of source, by its tokens, and how tightly it binds.  `typed` is set for a literal whose bare text has no dtype of its
    own, `to` for a conversion, to that type."""

    tokens: tuple[str, ...]
    level: int
    typed: Text | None
    to: str

    def __new__(cls, tokens: Iterable[str] = (), level: int = CALL, typed: Text | None = None, to: str = "") -> Text:
        tokens = tuple(tokens)
        made = super().__new__(cls, "".join(tokens))
        made.tokens, made.level, made.typed, made.to = tokens, level, typed, to
        return made

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names that it reads: of values and types."""
        return frozenset(t for t in self.tokens if isinstance(t, Name))

    @cached_property
    def calls(self) -> tuple[str, ...]:
        """The functions that it calls, in the order in which they stand there."""
        return tuple(t for t in self.tokens if isinstance(t, Call))

    @property
    def is_name(self) -> bool:
        """Whether it is the name of a value."""
        return len(self.tokens) == 1 and isinstance(self.tokens[0], Name) and self.tokens[0] not in _VALUES

    @property
    def is_word(self) -> bool:
        """Whether it is a name or a natural number."""
        return self.is_name or len(self.tokens) == 1 and isinstance(self.tokens[0], Digits) and self.isalnum()

    @property
    def is_plain(self) -> bool:
        """Whether it is a name or a number, or one of them converted by its type's name."""
        is_conversion = len(self.tokens) == 4 and self.tokens[:2] == (self.to, "(")
        inner = self.tokens[2:3] if is_conversion else self.tokens
        return len(inner) == 1 and isinstance(inner[0], (Name, Digits))

    def fit(self, level: int) -> Text:
        """It, in brackets where it binds less tightly than that."""
        return self if self.level >= level else Text(("(", *self.tokens, ")"))

    def replaced(self, name: str, by: Text) -> Text:
        """It with a piece in place of a name."""
        inner = by.fit(CALL).tokens
        made = (x for t in self.tokens for x in (inner if isinstance(t, Name) and t == name else (t,)))
        return by if self.is_name and self == name else Text(made, self.level, self.typed, self.to)

    def converted(self, function: str, head: Text) -> Text:
        """It with calls of a function made others: `head` stands for the name and the bracket behind it."""
        if function not in self.calls:
            return self
        made: list[str] = []
        for before, token in zip(("", *self.tokens), self.tokens, strict=False):
            if isinstance(token, Call) and token == function:
                made += head.tokens
            elif not (isinstance(before, Call) and before == function):
                made.append(token)
        return Text(made, self.level)


def named(word: str) -> Text:
    return Text((Name(word),))


def numeral(text: str, typed: Text | None = None) -> Text:
    """A number as it is written."""
    return Text((text if "-" in text or "+" in text else Digits(text),), SUM if text.startswith("-") else CALL, typed)


#: A word of a target's language, with what it is a member of, and whether it is called.
_WORD = re.compile(r"(?<![\w.:])([^\W\d]\w*(?:(?:\.|::)\w+)*)(?=([(<])?)")


def tokens(text: str) -> Iterator[str]:
    """The tokens of a piece of a pattern, or of a library's source."""
    end = 0
    for m in _WORD.finditer(text):
        if m.start() > end:
            yield text[end : m.start()]
        yield (Call if m[2] else Name)(m[1])
        end = m.end()
    if end < len(text):
        yield text[end:]


@dataclass(frozen=True)
class Hole:
    """Where a pattern takes an operand: its name there, whether it stands alone between brackets or commas, and whether it comes first;
    `before` are the tokens in front of it."""

    before: tuple[str, ...]
    field: str
    argument: bool
    first: bool


@cache
def parsed(pattern: str) -> tuple[tuple[Hole, ...], tuple[str, ...]]:
    """A pattern's holes, and the tokens behind the last."""
    pieces, rest = [], ""
    for text, field, _, _ in Formatter().parse(pattern):
        rest += text  # an escaped brace ends a piece too
        if field is not None:
            pieces.append((rest, field))
            rest = ""
    holes = []
    for k, (text, field) in enumerate(pieces):
        head = ("}" * (k > 0) + text).rstrip()
        after = (pieces[k + 1][0] if k + 1 < len(pieces) else rest).lstrip()[:1]
        opens = head[-1:] in ("(", ",") or head[-1:] == "=" and head[-2:-1] not in "=!<>"
        holes.append(Hole(tuple(tokens(text)), field, opens and after in (")", ","), not head))
    return tuple(holes), tuple(tokens(rest))


def _tokens(x: str) -> tuple[str, ...]:
    return x.tokens if isinstance(x, Text) else (x if isinstance(x, (Call, Digits)) else Name(x),)


def source(pattern: str, *operands: str, level: int = CALL, to: str = "") -> Text:
    """A pattern with its operands in place, as they are; a plain string is a name."""
    holes, rest = parsed(pattern)
    made = (t for hole in holes for t in (*hole.before, *_tokens(operands[int(hole.field)])))
    return Text((*made, *rest), level, to=to)


def joined(items: Iterable[str], between: str = ", ") -> Text:
    """Pieces in a row; plain strings are names."""
    made: list[str] = []
    for item in items:
        made += (*([between] if made else []), *_tokens(item))
    return Text(made)


@cache
def enclosed(pattern: str) -> bool:
    """Whether a pattern is one call or cast, `name(...)` or `name<...>(...)`: its last bracket closes its first."""
    depth = 0
    for k, c in enumerate(pattern):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0:
            head, _, types = pattern[: pattern.index("(")].partition("<")
            return k == len(pattern) - 1 and head != "" and " " not in head and (not types or types.endswith(">"))
    return False


def fill(spell: Spell, kind: str, operands: list[Text], types: dict[str, str]) -> Text:
    """A spelling with its operands in place, bracketed where they bind less tightly than it asks; `types` has what
    `{F}` and `{U}` stand for.

    Where a call takes an operand that is a bare literal, the operand's `typed` text stands for it.
    """
    pattern = spell.text(kind)
    infix = LOOSE if kind == "bool" and spell.bool else spell.infix
    holes, rest = parsed(pattern)
    whole = enclosed(pattern)
    if whole or not holes:
        infix = CALL
    chooses = ".where(" in pattern
    bare = any(o.typed is None for o in operands[chooses:]) and (infix != CALL or chooses)

    def put(hole: Hole) -> tuple[str, ...]:
        if not hole.field.isdigit():
            return (Name(types[hole.field]),)
        operand = operands[int(hole.field)]
        if operand.typed is not None and not bare:
            return operand.typed.tokens
        inner = LOOSE + 1 if infix == LOOSE else infix + (not hole.first)
        return operand.fit(LOOSE if hole.argument else CALL if infix in (CALL, UNARY) else inner).tokens

    made = tuple(t for hole in holes for t in (*hole.before, *put(hole)))
    to = types[holes[0].field] if whole and pattern.startswith("{") else ""
    if pattern == "{0}" and not operands[0].typed:
        to = operands[0].to
    return Text((*made, *rest), infix, to=to)


def put(pattern: str, operands: Mapping[str, Text]) -> Text:
    """A pattern with its named operands in place; one that is no single word gets brackets, but as an argument."""
    holes, rest = parsed(pattern)
    alone = pattern == "{" + holes[0].field + "}" if holes else False

    def placed(hole: Hole) -> tuple[str, ...]:
        operand = operands[hole.field]
        plain = len(operand.tokens) == 1 and not operand.startswith("-")
        return operand.tokens if plain or hole.argument or alone else ("(", *operand.tokens, ")")

    return Text((*(t for hole in holes for t in (*hole.before, *placed(hole))), *rest))


def identifiers(text: str) -> frozenset[str]:
    """The words of a text, of any language."""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return frozenset(w for w in words if not w[0].isdigit())


def comment(line: str) -> str:
    """A line of documentation as a comment's text: one that ends in a backslash, or its trigraph, would take the next line with it."""
    line = line.rstrip()
    return f"{line[:-1]}<U+{ord(line[-1]):04X}>" if line.endswith(("\\", "??/")) else line


def wrapped(head: str, items: list[str], tail: str, width: int = 120) -> str:
    """`head(items)tail`, on as many lines as it takes."""
    line = f"{head}({', '.join(items)}){tail}"
    if len(bare(line)) <= width:
        return line
    lines, indent = [f"{head}("], "    "
    for k, item in enumerate(items):
        piece = item + (", " if k + 1 < len(items) else "")
        if lines[-1] == f"{head}(" or len(bare(lines[-1] + piece.rstrip())) > width:
            lines.append(indent)
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines) + f"){tail}"


def broken(text: Text, room: int, brackets: bool, width: int = 140) -> Text:
    """A text on as many lines as it takes behind `room` letters on its first; what fits stays as it is.  With `brackets`, as a language
    asks for them where a line goes on, it is broken within its own, or gets some."""
    if room + len(bare(text)) <= width:
        return text
    made = _broken(text, room, width, int(brackets))
    if brackets and room + len(bare(made).split("\n")[0]) > width:
        return source("(\n    {0}\n)", _broken(text, 4, width, 0))
    return made


def _broken(text: Text, room: int, width: int, within: int) -> Text:
    """A text broken at spaces within at least so many brackets."""
    made: list[str] = []
    depth = 0
    for k, token in enumerate(text.tokens):
        ahead = len(bare("".join(text.tokens[k : k + 2])))
        head, space, rest = token.partition(" ")
        if space and '"' not in token and room + ahead > width and depth + head.count("(") - head.count(")") >= within:
            token, room = f"{head}\n    {rest}", 0
        depth += token.count("(") + token.count("[") - token.count(")") - token.count("]")
        room += len(bare(token))
        made.append(token)
    return Text(made, text.level, text.typed, text.to)


def spelled(spells: Iterable[Spell]) -> frozenset[str]:
    """Every identifier in some spellings."""
    return _spelled(tuple(text for s in spells for text in (s.float, s.int, s.bool)))


@lru_cache(maxsize=16)
def _spelled(texts: tuple[str, ...]) -> frozenset[str]:
    return identifiers(" ".join(texts))


@cache
def library(folder: Path) -> dict[str, Path]:
    """The files of a target's helper functions, by name."""
    return {path.name.split(".")[0]: path for path in sorted((folder / "functions").glob("*"))}


def brought(spells: Iterable[Spell]) -> dict[str, str]:
    """The sources of the helper functions that spellings bring along, by name: of the call that each begins with."""
    first = {next(tokens(s.float or s.int), ""): s.source for s in spells if s.source}
    return {name: text.rstrip("\n") + "\n" for name, text in first.items() if isinstance(name, Call)}


def briefs(spells: Iterable[tuple[Op, Spell]], pattern: str, own: Set[str] | None, scaled: Set[str] = frozenset()) -> list[Spell]:
    """The functions of operators that take the fast form for results of 16 bits, else what the operators are spelled as: those in `own`,
    of None all.  Those in `scaled` take factors too.  A target's `pattern` has the `name`, what it is `about`, operands `x`, parameters
    `F x` and the `accurate` form."""
    made = []
    for row, spell in spells:
        if row.brief is not None and (own is None or f"brief_{row.name}" in own):
            names = ("x", "y")[: row.arity]
            about, typed = row.brief.about or f"{row.name}({', '.join(names)})", ", ".join(f"F {name}" for name in names)
            if row.name in scaled:
                about, typed = f"times * {row.name}(scale * x), factors literals", "F x, F scale = F(1), F times = F(1)"
                names = ("x, scale, times",)
            of = {"name": row.name, "x": ", ".join(names), "F x": typed, "accurate": spell.float.format(*names)}
            made.append(Spell(f"brief_{row.name}()", source=pattern.format(about=about, **of)))
    return made


@cache
def _helper(source: Path | str) -> Text:
    """A helper function out of its file, or its text: a kernel calls few of them, and others are not read."""
    return Text(tokens(source.read_text() if isinstance(source, Path) else source))


def functions(
    folder: Path, calls: Iterable[str], spells: Iterable[Spell] = (), change: Callable[[str], str] | None = None
) -> dict[str, Text]:
    """The helper functions among `calls`, and those that they call, each after what it needs: those of a target's folder, and those that
    its spellings bring along.  `change` makes of a function's text what is to stand for it."""
    known: dict[str, Path | str] = {**library(folder), **brought(spells)}
    found: dict[str, Text] = {}
    visiting: set[str] = set()

    def visit(calls: Iterable[str]) -> None:
        for name in calls:
            if name in known and name not in visiting:
                visiting.add(name)
                made = _helper(known[name])
                made = made if change is None else Text(tokens(change(made)))
                visit(made.calls)
                found[name] = made

    visit(calls)
    return found


def definitions(text: str) -> list[str]:
    """A library file's definitions, each with the comment above it; what stands at the left margin begins or ends one."""
    found, lines = list[str](), list[str]()
    for line in text.rstrip("\n").split("\n"):
        lines.append(line)
        if line[:1] not in ("/", " ", "") and line.endswith(("}", ";")):
            found.append("\n".join(lines))
            lines = []
    return [*found, *(["\n".join(lines)] if lines else [])]


def trimmed(known: dict[str, Text], dtypes: Set[str]) -> dict[str, Text]:
    """C++'s helper functions by name, without what is for other dtypes than a program has: overloads for double or float, and where no
    integers are, templates beside overloads for floats.  A comment above what is left out goes to the next."""
    absent = [kind for kind, dtype in (("double", "f64"), ("float", "f32")) if dtype not in dtypes]
    has_integers = any(DTYPES[d].is_int for d in dtypes)
    made: dict[str, Text] = {}
    for name, text in known.items():
        every = [d.partition(f"{name}(") for d in definitions(text)]
        kept = [d for d in every if not any(kind in identifiers(d[2].partition(")")[0]) for kind in absent)]
        plain = [d for d in kept if "template" not in identifiers(d[0])]
        if plain and not has_integers:
            kept = plain
        notes = [line for d in every if d not in kept for line in d[0].split("\n") if line.startswith("//")]
        texts = ["".join(d) for d in kept or every]
        made[name] = Text(tokens("\n".join([*(notes if kept else []), *texts]) + "\n"))
    return made


def called(code: str, mark: str) -> tuple[str, ...]:
    """The functions that a source calls; comments, which begin with a mark, call nothing."""
    lines = (line.partition(mark)[0] for line in code.split("\n"))
    return tuple(t for line in lines for t in tokens(line) if isinstance(t, Call))


def decimal(value: Fraction | str, single: bool) -> str:
    """The shortest decimal that rounds to the value in f64 (or in f32, for `single`)."""
    x = float(value)
    if single:
        x = single_precision(value)
        for digits in range(1, 10):
            if host.to_dtype(float(f"{x:.{digits}g}"), DTYPES["f32"]) == x:
                x = float(f"{x:.{digits}g}")
                break
    return repr(x)


def rounds_alike(value: Fraction) -> bool:
    """Whether rounding to f64 and then to f32 gives what rounding to f32 at once does."""
    return single_precision(value) == host.to_dtype(float(value), DTYPES["f32"])


def single_precision(value: Fraction | str) -> float:
    """A number rounded once to f32: infinity where it is too large."""
    x = float(value)
    if not isinstance(value, str) and Fraction(x) != value:  # no double lies between, so its neighbour on that side rounds as it does
        x = math.nextafter(x, math.inf if value > Fraction(x) else -math.inf)
    return float(host.to_dtype(x, DTYPES["f32"]))


def tidy(text: str) -> str:
    """A text without spaces at the ends of lines, nor more than two empty lines in a row."""
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip(" \t")
        if line or lines[-2:] != ["", ""]:
            lines.append(line)
    return "\n".join(lines).rstrip("\n") + "\n"
