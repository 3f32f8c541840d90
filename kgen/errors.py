"""Errors that a person can act on.

In: a source text, spans into it and messages.  Out: one `KgenError`, which carries every independent
error of a file, sorted by place, and prints each with a caret under the text it speaks of.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

MAX_ERRORS = 100


@dataclass(frozen=True, order=True)
class Span:
    """A half-open range of character offsets into a source text."""

    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """A text and the name under which errors mention it."""

    name: str
    text: str

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column (both from 1) of a character offset."""
        row = bisect_right(self._starts, offset)
        return row, offset - self._starts[row - 1] + 1

    def line(self, number: int) -> str:
        return self._lines[number - 1]

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines[:-1]:
            starts.append(starts[-1] + len(line) + 1)
        return starts


@dataclass(frozen=True)
class Diagnostic:
    """One error: what is wrong, where, a few words beside the caret and at most one line of help."""

    message: str
    span: Span | None = None
    label: str = ""
    help: str = ""

    def render(self, source: Source | None, kind: str = "error") -> str:
        """The error, or what else `kind` says, as it is printed: the message, where `source` is known its place and the line with the words
        marked, and the help."""
        lines = [f"{kind}: {printed(self.message)}"]
        margin = " "
        if source is not None and self.span is not None:
            row, column = source.place(self.span.start)
            text = source.line(row)
            margin = " " * (len(str(row)) + 1)
            shown, offset = _window(text, column - 1)
            shown = _visible(shown)
            width = max(1, min(self.span.end - self.span.start, len(text) - column + 1, 60))
            lines.append(f"{margin[:-1]}--> {printed(source.name, '')}:{row}:{column}")
            lines.append(f"{margin}|")
            lines.append(f"{row} | {shown}".rstrip())
            lines.append(f"{margin}| {' ' * offset}{'^' * width} {printed(self.label)}".rstrip())
        elif source is not None:
            lines.append(f"{margin}--> {printed(source.name, '')}")
        if self.help:
            lines.append(f"{margin}= help: {printed(self.help)}")
        return "\n".join(lines)


def printed(text: str, kept: str = "\t\n") -> str:
    """A text with nothing in it that a terminal or a compiler could take for more than text.

    Control characters (but `kept`), line ends of other kinds, marks that turn the direction of writing, and lone surrogates
    become `<U+001B>`.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept or unicodedata.category(c) == "Zs" else f"<U+{ord(c):04X}>" for c in text)


def _visible(text: str) -> str:
    """The line with tabs and control characters as single columns, so that the caret stays under its text."""
    return "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in text)


def _window(text: str, offset: int, width: int = 110) -> tuple[str, int]:
    """A part of a long line around `offset`, and where `offset` stands in it."""
    if len(text) <= width:
        return text, offset
    start = max(0, min(offset - width // 2, len(text) - width))
    shown = ("..." if start else "") + text[start : start + width] + ("..." if start + width < len(text) else "")
    return shown, offset - start + (3 if start else 0)


class KgenError(ValueError):
    """Everything that kgen refuses: a wrong spec, a wrong call, a file that cannot be read.

    `diagnostics` holds the single errors, in the order of their places; `source` the text they point into
    (None where there is no text to point at).
    """

    def __init__(self, diagnostics: str | Diagnostic | list[Diagnostic], source: Source | None = None, help: str = ""):
        if isinstance(diagnostics, str):
            diagnostics = [Diagnostic(diagnostics, help=help)]
        elif isinstance(diagnostics, Diagnostic):
            diagnostics = [diagnostics]
        unique = dict.fromkeys(diagnostics)
        self.diagnostics = tuple(sorted(unique, key=lambda d: d.span or Span(-1, -1)))
        self.source = source
        super().__init__(self.render())

    def __str__(self) -> str:
        """As `render`, without its first word, which Python says itself: `KgenError: ...`."""
        return self.render().removeprefix("error: ")

    def render(self) -> str:
        """The text for a terminal: each error with its place and its help."""
        return "\n\n".join(d.render(self.source) for d in self.diagnostics)

    def __reduce__(self):
        return type(self), (list(self.diagnostics), self.source)


def article(noun: str) -> str:
    """A noun with "a" or "an"."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def expect(x: object, kinds: type | tuple[type, ...], said: str, help: str) -> None:
    """Raise `KgenError` where an argument is none of these types; `said` is what it should be."""
    if not isinstance(x, kinds):
        raise KgenError(f"{said}, not {article(type(x).__name__)}", help=help)


class TooLong(KgenError):
    """What is over a cap on length: a file's bytes and words, a kernel's operations."""


class Errors:
    """Collects the independent errors of one source; `raise_any` raises them together, `add` when there are very many."""

    def __init__(self, source: Source):
        self.source = source
        self.found: list[Diagnostic] = []

    def add(self, message: str, span: Span | None, label: str = "", help: str = "") -> None:
        self.found.append(Diagnostic(message, span, label, help))
        if len(self.found) >= MAX_ERRORS:
            self.raise_any()

    def raise_any(self, kind: type[KgenError] = KgenError) -> None:
        if self.found:
            raise kind(self.found, self.source)
