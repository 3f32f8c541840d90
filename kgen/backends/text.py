"""Pieces of source: how tightly they bind, where they get brackets, how long lists are wrapped, how numbers are written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path

from kgen import host
from kgen.backends.names import bare
from kgen.ops import CALL, LOOSE, SUM, UNARY, Spell
from kgen.types import DTYPES


@dataclass(frozen=True)
class Text:
    """A piece of source and how tightly it binds.  `typed` is set for a literal whose bare text has no dtype of its own."""

    text: str
    level: int = CALL
    typed: str = ""

    def fit(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"


def enclosed(text: str) -> bool:
    """Whether a text is one call or cast, `name(...)` or `name<...>(...)`: its last bracket closes its first."""
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == ")" and depth == 0:
            return k == len(text) - 1 and re.match(r"[\w.:{}]+(<[^>()]*>)?\(", text) is not None
    return False


def fill(spell: Spell, kind: str, operands: list[Text], types: dict[str, str]) -> Text:
    """A spelling with its operands in place, bracketed where they bind less tightly than it asks; `types` has what
    `{F}` and `{U}` stand for.

    Where a call takes an operand that is a bare literal, the operand's `typed` text stands for it.
    """
    pattern = spell.text(kind)
    infix = LOOSE if kind == "bool" and spell.bool else spell.infix
    if enclosed(pattern) or "{" not in pattern:
        infix = CALL
    bare = any(o.typed == "" for o in operands[".where(" in pattern :]) and (infix != CALL or ".where(" in pattern)

    def level(match: re.Match) -> int:
        before, after = pattern[: match.start()].rstrip()[-1:], pattern[match.end() :].lstrip()[:1]
        if (before in ("(", ",") or before == "=" and pattern[: match.start()].rstrip()[-2:-1] not in "=!<>") and after in (")", ","):
            return LOOSE
        if infix == CALL:
            return CALL
        if infix == UNARY:
            return CALL
        if infix == LOOSE:
            return LOOSE + 1
        return infix if not before else infix + 1

    def put(match: re.Match) -> str:
        if not match.group(1).isdigit():
            return types[match.group(1)]
        operand = operands[int(match.group(1))]
        return operand.typed if operand.typed and not bare else operand.fit(level(match))

    return Text(re.sub(r"\{(\w+)\}", put, pattern), infix)


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


def spelled(spells: Iterable[Spell]) -> frozenset[str]:
    """Every identifier in some spellings."""
    return _identifiers(tuple(f"{s.float} {s.int} {s.bool}" for s in spells))


@lru_cache(maxsize=16)
def _identifiers(texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(texts)))


def function_sources(folder: Path, code: str, spells: Iterable[Spell] = (), mark: str = "//") -> dict[str, str]:
    """The sources of the helper functions that `code` calls, and of those that they call, each after what it needs: those of a
    target's folder, and those that its spellings bring along.  `mark` begins a comment."""
    known = {path.name.split(".")[0]: path.read_text for path in sorted((folder / "functions").glob("*"))}
    for s in spells:
        if s.source and (called := re.match(r"\w+", s.float or s.int)):
            known[called[0]] = partial(str, s.source.rstrip("\n") + "\n")
    found: dict[str, str] = {}

    def visit(text: str) -> None:
        for name in re.findall(r"(?<![\w.:>])([A-Za-z_]\w*)(?=[(<])", text):
            if name in known and name not in found and name not in visiting:
                visiting.append(name)
                source = known[name]()
                visit(source)
                found[name] = source

    visiting: list[str] = []
    visit(re.sub(f"{mark}.*", "", code))  # an equation, quoted above its lines, calls nothing
    return found


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


def negative(text: str) -> Text:
    return Text(text, SUM if text.startswith("-") else CALL)
