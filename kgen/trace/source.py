"""Where a Python function stands: its syntax tree, the text of its file, and spans into that text.

In: a function.  Out: a `Code`.  Raises `KgenError` where there is no source (a prompt, `exec`), or it is no plain `def`.
"""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import tokenize
from functools import cached_property, lru_cache
from types import FunctionType

from kgen.errors import Diagnostic, KgenError, Source, Span

#: The nodes of a function that have a place.
_PLACED = (ast.expr, ast.stmt, ast.arg, ast.keyword, ast.alias, ast.excepthandler, ast.pattern)


class Code:
    """The source of one function."""

    def __init__(self, function: FunctionType, node: ast.FunctionDef | ast.AsyncFunctionDef, source: Source):
        self.function, self.node, self.source = function, node, source

    def offset(self, row: int, column: int) -> int:
        """The character offset of a place that `ast` gives: its columns count bytes of UTF-8."""
        line = self.source.line(row)
        if not line.isascii():
            column = len(line.encode()[:column].decode(errors="ignore"))
        return self.source._starts[row - 1] + column

    def span(self, node: ast.AST) -> Span:
        assert isinstance(node, _PLACED) and node.end_lineno is not None and node.end_col_offset is not None
        return Span(self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset))

    def text(self, node: ast.AST) -> str:
        span = self.span(node)
        return self.source.text[span.start : span.end]

    def word(self, span: Span, word: str) -> Span:
        """Where a word stands in a span (the span itself, where it is not to be found)."""
        at = self.source.text.find(word, span.start, span.end)
        return span if at < 0 else Span(at, at + len(word))

    def in_brackets(self, node: ast.AST) -> bool:
        """Whether the writer put brackets around an operand."""
        span = self.span(node)
        return self._ends.get(self._starts.get(span.start, -1), -2) == self._closers.get(span.end, -1)

    @cached_property
    def _starts(self) -> dict[int, int]:
        """For each token's start, the grouping bracket just before it."""
        return self._tokens[0]

    @cached_property
    def _closers(self) -> dict[int, int]:
        """For each token's end, the closing bracket just behind it."""
        return self._tokens[1]

    @cached_property
    def _ends(self) -> dict[int, int]:
        """For each grouping bracket, the one that closes it."""
        return self._tokens[2]

    @cached_property
    def _tokens(self) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
        """By places in the text: a token's start to the grouping bracket before it, a token's end to the closing bracket behind
        it, and a grouping bracket to the one that closes it."""
        starts: dict[int, int] = {}
        closers: dict[int, int] = {}
        ends: dict[int, int] = {}
        first = self.node.lineno
        text = "\n".join(self.source._lines[first - 1 : self.node.end_lineno]) + "\n"
        stack: list[tuple[int, bool]] = []
        before: tokenize.TokenInfo | None = None
        opened = -1
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
                    continue
                base = self.source._starts[first - 2 + token.start[0]]
                start = base + token.start[1]
                if opened >= 0:
                    starts[start] = opened
                opened = -1
                if token.string in (")", "]", "}") and token.type == tokenize.OP:
                    if before is not None:
                        closers[self.source._starts[first - 2 + before.end[0]] + before.end[1]] = start
                    if stack:
                        at, groups = stack.pop()
                        if groups:
                            ends[at] = start
                elif token.string in ("(", "[", "{") and token.type == tokenize.OP:
                    called = before is not None and (
                        before.type == tokenize.NAME and before.string not in _WORDS or before.string in (")", "]")
                    )
                    stack.append((start, token.string == "(" and not called))
                    opened = start if token.string == "(" and not called else -1
                before = token
        except (tokenize.TokenError, IndentationError, SyntaxError):
            pass  # what brackets there are is a matter of looks alone
        return starts, closers, ends


_WORDS = ("return", "if", "else", "and", "or", "not", "in", "is", "await", "yield", "elif", "assert")


@lru_cache(maxsize=32)
def _functions(text: str) -> dict[tuple[int, str], ast.FunctionDef | ast.AsyncFunctionDef]:
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.name] = node
    return found


def code_of(function: FunctionType) -> Code:
    """The source of a function.  Raises `KgenError` for a lambda, a wrapped function or a coroutine, and where its text is not to be
    had."""
    name = function.__name__
    if name == "<lambda>":
        raise KgenError("a lambda cannot be traced", help="write a function with `def`")
    if hasattr(function, "__wrapped__") or function.__code__.co_name != name:
        raise KgenError(f"`{name}` is wrapped by another decorator: its lines are not those that run", help="trace the function beneath it")
    file = inspect.getsourcefile(function) or function.__code__.co_filename
    linecache.checkcache(file)
    lines = linecache.getlines(file, function.__globals__)
    if not lines:
        raise KgenError(
            f"the source of `{name}` cannot be read: it is traced from its text",
            help="put the function in a file or a notebook's cell; a spec's text goes through `kgen.loads`",
        )
    text = "".join(lines).removesuffix("\n")
    source = Source(file, text)
    try:
        node = _functions(text).get((function.__code__.co_firstlineno, name))
    except (SyntaxError, ValueError):
        node = None
    if node is None:
        raise KgenError(f"`{name}` is not where {file} says: the file changed since it was loaded", help="load the module again")
    code = Code(function, node, source)
    if isinstance(node, ast.AsyncFunctionDef):
        raise KgenError(
            Diagnostic(f"`{name}` is a coroutine", code.word(code.span(node), name), help="a kernel is an ordinary function"), source
        )
    return code
