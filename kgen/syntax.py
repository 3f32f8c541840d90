"""Text to syntax tree, and back to well-set text.

In: the text of a .k file.  Out: a `File` of statements, each node with the span it came from.  Nothing in a
text is executed or handed to an evaluator; sizes, digits and exponents are capped before any arithmetic.
Trees can be deep (a chain of 2,000 additions), so nothing here or later recurses over an expression.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from kgen.errors import Diagnostic, KgenError, Source, Span, TooLong
from kgen.extents import extent, factors, one_dim
from kgen.lalr import BadCharacter, Parser, Token, Unexpected
from kgen.lalr import token as made_token
from kgen.nodes import (
    ATOM,
    INFIX,
    KEYWORDS,
    MAX_NAME,
    PREFIX,
    WHERE,
    WRITTEN,
    Apply,
    Clause,
    Equation,
    Expr,
    File,
    Header,
    Helper,
    Name,
    Num,
    Param,
    Result,
    Statement,
    Type,
    dim_names,
    postorder,
    rebuilt,
)

MAX_BYTES = 65_536
MAX_DIGITS = 64
MAX_EXPONENT = 400
MAX_BRACKETS = 200
MAX_TOKENS = 20_000

# --------------------------------------------------------------------------------------------- text to tree


class _Lines:
    """Between words and parser: drops line ends inside brackets, and pairs the brackets."""

    closing = {"LPAR": ")", "LSQB": "]"}

    def __init__(self, source: Source) -> None:
        self.source = source
        self.last: Token | None = None  # the word in the parser's hands
        self.previous: Token | None = None  # the one before it
        self.open: list[Token] = []  # the brackets that are open there

    def process(self, stream: Iterable[Token]) -> Iterator[Token]:
        """The words of a spec without the line ends inside brackets.  Raises `KgenError` at a bracket that does not meet its
        like, and where there are too many."""
        open_brackets = self.open
        count = 0
        clauses = False  # whether a header's are at hand, which go on where a line ends in a comma
        for token in _with_where(stream):
            if token.type == "_NL":
                if open_brackets or self.last is None or self.last.type == "_NL" or clauses and self.last.type in ("COMMA", "WHERE"):
                    continue
                clauses = False
            elif token.type == "WHERE":
                clauses = True
            elif token.type in self.closing:
                open_brackets.append(token)
                if len(open_brackets) > MAX_BRACKETS:
                    raise self._error(
                        token, f"more than {MAX_BRACKETS} brackets are open here", help="name a part of it in an equation of its own"
                    )
            elif token.type in ("RPAR", "RSQB"):
                if not open_brackets:
                    raise self._error(token, f"`{token}` closes nothing")
                opened = open_brackets.pop()
                if self.closing[opened.type] != token:
                    raise self._error(token, f"`{token}` cannot close `{opened}`", help=f"write `{self.closing[opened.type]}`")
            count += token.type != "_NL"
            if count > MAX_TOKENS:
                message = f"the text has more than {MAX_TOKENS:,} words and signs"
                raise self._error(token, message, "split it into several kernels", TooLong)
            self.previous, self.last = self.last, token
            yield token
        if open_brackets:
            raise self._error(open_brackets[-1], f"`{open_brackets[-1]}` is never closed")

    def _error(self, token, message: str, help: str = "", kind: type[KgenError] = KgenError) -> KgenError:
        return kind(Diagnostic(message, Span(token.start_pos, token.end_pos), help=help), self.source)


def _with_where(stream: Iterable[Token]) -> Iterator[Token]:
    """The words of a text in which `where` before a name, which is no name itself, is a word of the header: the ends of lines before it
    are left out."""
    held: list[Token] = []  # ends of lines, then perhaps the word, then those behind it
    where: Token | None = None
    before = ""  # the last word that went on
    for word in stream:
        if word.type == "NAME" and where is not None:
            yield made_token("WHERE", str(where), where.start_pos)
            held, where = [], None
        if word.type == "_NL" and (where is None or before in ("RSQB", "RPAR")):
            held.append(word)
        elif word == "where" and word.type == "NAME" and where is None:
            where = word
            held.append(word)
        else:
            yield from held
            held, where, before = [], None, word.type
            yield word
    yield from held


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(json.loads((Path(__file__).parent / "grammar.json").read_text(encoding="utf-8")))


class _Build:
    """The grammar's rules to nodes: one method a rule, in the grammar's order."""

    def start(self, parts):
        return [p for p in parts if p is not None and not isinstance(p, Token)]

    def header(self, parts):
        params = tuple(p for p in parts if isinstance(p, Param))
        results = tuple(p for p in parts if isinstance(p, Result))
        clauses = parts[-1] or ()
        kinds = [*(p.type for p in params), *(r.type for r in results)]
        extents = {d.name: d for kind in kinds for d in kind.dims or () if d.extent is not None}
        end = clauses[-1] if clauses else next(p for p in reversed(parts) if p is not None)
        written = tuple(Clause(d, d.extent, d.span, inline=True) for d in extents.values() if d.extent is not None)
        return Header(_name(parts[0]), params, results, _over(parts[0], end), (*written, *clauses))

    def clauses(self, parts):
        return tuple(p for p in parts if isinstance(p, Clause))

    def clause(self, parts):
        return Clause(_name(parts[0]), parts[1], _over(*parts))

    def param(self, parts):
        name, kind, default = parts
        return Param(_name(name), kind, default, _over(name, kind if default is None else default))

    def result(self, parts):
        return Result(_name(parts[0]), parts[1], _over(*parts))

    def number_type(self, parts):
        return Type(_name(parts[0]), None, _span(parts[0]))

    def tensor_type(self, parts):
        axes = parts[1] or ()
        factors = tuple(map(len, axes)) if any(len(axis) > 1 for axis in axes) else ()
        return Type(_name(parts[0]), tuple(d for axis in axes for d in axis), _over(parts[0], parts[-1]), factors)

    def helper(self, parts):
        name, dims, *params, body = parts
        return Helper(_name(name), dims or (), tuple(_name(p) for p in params if p is not None), body, _over(name, body))

    def equation(self, parts):
        return Equation(_name(parts[0]), parts[1], _over(*parts))

    def axes(self, parts):
        return tuple(parts)

    def axis(self, parts):
        found = factors(parts[0])
        return (extent(parts[0]),) if found is None else found

    def part(self, parts):
        name, (pairs, fill), body = parts
        places = (*(e for _, e in pairs), *([fill] if fill is not None else []))
        return Equation(_name(name), body, _over(name, body), tuple(d for d, _ in pairs), places)

    def dims(self, parts):
        return tuple(map(one_dim, parts))

    def places(self, parts):
        *pairs, fill = parts
        return pairs, fill

    def at(self, parts):
        return one_dim(parts[0]), parts[1]

    def place(self, parts):
        x, (pairs, fill), end = parts
        x = x if not isinstance(x, Token) else _name(x)
        args = (x, *(e for _, e in pairs), *([fill] if fill is not None else []))
        return Apply("place", args, _over(x, end), _over(pairs[0][0], end), "place", tuple(d for d, _ in pairs))

    def dim(self, parts):
        return _name(parts[0])

    def where(self, parts):
        yes, condition, no = parts
        return Apply("where", (condition, yes, no), _over(yes, no), _over(yes, no), "where")

    def or_(self, parts):
        return _apply("or", parts, _over(*parts), "infix")

    def and_(self, parts):
        return _apply("and", parts, _over(*parts), "infix")

    def bitor(self, parts):
        return _apply("bitor", parts, _over(*parts), "infix")

    def bitand(self, parts):
        return _apply("bitand", parts, _over(*parts), "infix")

    def power(self, parts):
        return _apply("pow", parts, _over(*parts), "infix")

    def compare(self, parts):
        left, symbol, right = parts
        return _apply(INFIX[str(symbol)][0], (left, right), _span(symbol), "infix")

    binary = compare

    def not_(self, parts):
        return _apply("not", parts, _span(parts[0]), "prefix")

    def bitnot(self, parts):
        return _apply("bitnot", parts, _span(parts[0]), "prefix")

    def sign(self, parts):
        return _apply(PREFIX[str(parts[0])][0], parts[1:], _span(parts[0]), "prefix", start=parts[0])

    def number(self, parts):
        return Num(str(parts[0]), _span(parts[0]))

    def name(self, parts):
        return _name(parts[0])

    def call(self, parts):
        return _call(parts[0], None, parts[1:])

    def call_dims(self, parts):
        return _call(parts[0], parts[1], parts[2:])

    def index(self, parts):
        return Apply(str(parts[0]), (), _over(parts[0], parts[2]), _span(parts[0]), dims=parts[1])

    def parens(self, parts):
        return replace(parts[1], span=_over(parts[0], parts[2]), parens=True)


def literal(text: str, span: Span) -> Expr:
    """A number or a constant, perhaps with a sign, as a tree."""
    if text[0] in "+-":
        return Apply(PREFIX[text[0]][0], (literal(text[1:], span),), span, span, "prefix")
    return Name(text, span) if text[0].isalpha() else Num(text, span)


def _span(node) -> Span:
    return node.span if hasattr(node, "span") else node if isinstance(node, Span) else Span(node.start_pos, node.end_pos)


def _over(*nodes) -> Span:
    return Span(_span(nodes[0]).start, _span(nodes[-1]).end)


def _name(token) -> Name:
    return token if isinstance(token, Name) else Name(str(token), _span(token))


def _apply(op: str, args, head: Span, written: str, start=None) -> Apply:
    return Apply(op, tuple(args), _over(start if start is not None else args[0], args[-1]), head, written)


def _call(head, dims, rest) -> Apply:
    """`rest` is the arguments (None where there could have been one), and last the closing bracket."""
    args = tuple(a for a in rest[:-1] if a is not None)
    return Apply(str(head), args, _over(head, rest[-1]), _span(head), dims=dims)


def parse(text: str, name: str = "<text>") -> File:
    """The statements of a .k file.

    Raises `KgenError` where the text is longer than 64 KB, holds a character outside ASCII (comments may), or does
    not follow the grammar; the message says what was expected.
    """
    source = Source(name, text)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise TooLong(f"the text is longer than {MAX_BYTES:,} bytes", Source(name, ""), help="one file holds one kernel")
    _check_characters(source)
    parser, lines, ignored = _parser(), _Lines(source), list[Token]()
    try:
        statements = parser.parse(lines.process(parser.words(text, ignored)), _Build())
    except Unexpected as error:
        raise _unexpected(source, error.token, error.accepts, lines) from None
    except BadCharacter as error:
        raise _bad_character(source, error.at) from None
    comments = tuple((c.start_pos, str(c)[1:]) for c in ignored if c.type == "COMMENT")
    return File(source, tuple(statements), comments)


class Functions(Mapping[str, Helper]):
    """Functions by their names, each parsed when it is first asked for, at its place in the text: it begins a line with its name."""

    def __init__(self, text: str, name: str):
        """`name` is what errors call the text."""
        starts = [m.start() for m in re.finditer(r"^[A-Za-z_]", text, re.MULTILINE)]
        self.text, self.name, self.parsed = text, name, dict[str, Helper]()
        self.places = {re.split(r"\W", text[a:b], maxsplit=1)[0]: (a, b) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)}

    def __getitem__(self, name: str) -> Helper:
        found = self.parsed.get(name)
        if found is None:
            start, end = self.places[name]
            before = re.sub("[^\n]", " ", self.text[:start])
            (found,) = (s for s in parse(before + self.text[start:end], self.name).statements if isinstance(s, Helper))
            self.parsed[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places


def _check_characters(source: Source) -> None:
    """Raises `KgenError` at the first character that no spec has, and at names and numbers that are too long."""
    for match in re.finditer(r"#[^\n]*|([^\x00-\x7f]+)|([\x00-\x08\x0b\x0e-\x1f\x7f])", source.text):
        if match.group(1) or match.group(2):
            if match.group(2):
                raise _at(source, match.span(), "a control character stands here", help="remove it")
            raise _at(source, match.span(), "a letter or sign outside ASCII stands here",
                      help="names are ASCII: letters, digits and `_` (comments may hold anything)")  # fmt: skip
    for match in re.finditer(
        r"#[^\n]*|0[xX][0-9a-fA-F]+|(?<![A-Za-z0-9_.])[0-9.]+(?:[eE][+-]?([0-9]+))?|[A-Za-z_][A-Za-z0-9_]*", source.text
    ):
        word = match.group()
        if word[0] in "#":
            continue
        if word[0].isalpha() or word[0] == "_":
            if len(word) > MAX_NAME:
                raise _at(source, match.span(), f"a name may have at most {MAX_NAME} characters")
        elif len(re.split("[eE]", word)[0] if word[:2].lower() != "0x" else word) > MAX_DIGITS:
            raise _at(source, match.span(), f"a number may have at most {MAX_DIGITS} digits")
        elif match.group(1) and (len(match.group(1).lstrip("0")) > 4 or int(match.group(1)) > MAX_EXPONENT):
            raise _at(source, match.span(), f"an exponent may be at most {MAX_EXPONENT}")


def _at(source: Source, place: tuple[int, int], message: str, label: str = "", help: str = "") -> KgenError:
    return KgenError(Diagnostic(message, Span(*place), label, help), source)


def _bad_character(source: Source, at: int) -> KgenError:
    char = source.text[at]
    advice = {
        "!": "write `not x`, or `a != b`",
        "'": "a prime belongs to a name: `p'`",
        '"': "there are no strings",
        "{": "braces mean nothing here",
        "?": "write `a if condition else b`",
        ".": "functions are called as `exp(x)`, and `...` stands in brackets only",
        ";": "one equation to a line",
        "\\": "inside brackets a line may end anywhere",
        "@": "kgen has no products of matrices: keep them in torch; a sum over a dim is `sum[K](a * b)`",
    }
    borrowed = next((help for pattern, help in _BORROWED.items() if re.match(pattern, source.text[at:])), advice.get(char, ""))
    return _at(source, (at, at + 1), f"`{char}` means nothing here", help=borrowed)


# What people write out of habit where no word of the language begins, as patterns of the text from there on, and what it is here.
_BORROWED = {
    r"""["'][+-]?inf""": "infinity is written `inf`, also `-inf`",
    r"""["']nan""": "it is written `nan`",
    r"\.(shape|size|numel)\b": "the size of a dim is its name, `N`",
    r"\.T\b|\.(t|transpose|permute)\(": "dims meet by their names: nothing is transposed",
    r"\.[A-Za-z]": "functions are called as `exp(x)`, those over dims as `mean[N](x)`",
    r"\.\.?[,\]]": "leading dims are three dots, `...`",
}


_OPERAND_START = ("NAME", "PRIMED", "NUMBER", "LPAR")
_OPERAND_END = ("NAME", "PRIMED", "NUMBER", "RPAR", "RSQB")


def _unexpected(source: Source, token, accepts: set[str], lines: _Lines) -> KgenError:
    """A syntax error as advice: what stands there, and what would have to stand there instead."""
    previous = lines.last if token.type == "$END" else lines.previous
    if token.type == "$END":
        place = (len(source.text.rstrip()), len(source.text.rstrip()) + 1)
        return _at(
            source,
            place,
            "the text ends in the middle of a statement" if previous is not None else "there is no kernel here",
            help="a kernel is a header, `name(x: T[...]) -> y: T[...]`, then its equations" if previous is None else "",
        )
    if (opened := _left_open(source, token, lines)) is not None:
        help = "a header's parameters end in `)`, before `->`" if token == "->" else "below it another equation begins"
        return _at(source, (opened.start_pos, opened.end_pos), f"`{opened}` is never closed", help=help)
    place = (token.start_pos, token.end_pos)
    shown = "the end of the line" if token.type == "_NL" else f"`{token}`"
    after = f" after `{previous}`" if previous is not None and previous.type != "_NL" else ""
    if (habit := _habit(source, token, previous, accepts, lines)) is not None:
        return _at(source, place, f"{shown} cannot stand{after or ' here'}", help=habit)
    if token.type in _OPERAND_START and "TIMES" in accepts and previous is not None and previous.type in _OPERAND_END:
        return _at(
            source, place, f"an operator is missing between `{previous}` and `{token}`", help=f"to multiply, write `{previous} * {token}`"
        )
    if token.type == "TIMES" and not accepts:
        return _at(source, place, f"`{token}` cannot stand between dims", help="an axis is split by `*`, as in `T[M, G*128]`")
    if token.type in ("RSQB", "COMMA") and "EQUAL" in accepts <= {"EQUAL", "SIGN"}:
        return _at(source, place, f"{shown} cannot stand{after}", help="dims stand behind a function, `max[N](x)`; a place is `x[N = 0]`")
    if token.type == "COMPARE" and "NAME" not in accepts:
        return _at(source, place, "comparisons do not chain", help="write `a < b and b < c`")
    if token.type in ("IF", "ELSE", "AND", "OR", "NOT") and "NAME" in accepts:
        return _at(source, place, f"`{token}` is a keyword and cannot be a name")
    if str(token) == "*" and previous is not None and str(previous) == "*":
        return _at(source, (previous.start_pos, token.end_pos), "`**` is not an operator here", help="a power is written `x^2`")
    if token.type == "EQUAL":
        return _at(source, place, f"`=` cannot stand{after or ' here'}", help="to compare, write `==`; an equation is `name = expression`")
    if str(token) in ("&", "|") and previous is not None and str(previous) == str(token):
        return _at(source, place, f"`{token}{token}` is not an operator", help=f"write `{'and' if str(token) == '&' else 'or'}`")
    if "ELSE" in accepts and previous is not None and token.type in ("_NL", "RPAR", "RSQB", "COMMA", "EQUAL"):
        return _at(
            source, (previous.start_pos, previous.end_pos), f"`else` is missing after `{previous}`", help="write `a if condition else b`"
        )
    if token.type == "COLON" and "__ANON_0" not in accepts:
        return _at(
            source,
            place,
            f"`:` cannot stand{after or ' here'}",
            help="in a header each parameter has a type, as in `x: T[..., N]` or `eps: float`",
        )
    if token.type == "_NL":
        return _at(
            source,
            (previous.start_pos, previous.end_pos) if previous is not None else place,
            f"the line ends{after}, before its statement does",
            help="a header goes on with its results, as in `-> y: T[..., N]`"
            if "__ANON_0" in accepts
            else f"a result has a type, as in `{previous}: T[..., N]`"
            if accepts == {"COLON"}
            else "inside brackets a line may end anywhere",
        )
    return _at(source, place, f"{shown} cannot stand{after or ' here'}", help=_wanted(accepts))


def _left_open(source: Source, token, lines: _Lines) -> Token | None:
    """The bracket that was forgotten, where a word is wrong because a line below it begins another equation: the innermost one that is
    open there (`->` never stands in brackets), and that nothing in the rest of the text closes."""
    if not lines.open:
        return None
    opened = lines.open[-1]
    rest = re.sub(r"#[^\n]*", "", source.text[opened.start_pos :])
    depth = 0
    for sign in re.findall(r"[(\[\])]", rest):
        depth += 1 if sign in "([" else -1
        if depth == 0:
            return None
    if token == "->":
        return opened
    below = re.compile(r"\n[ \t]*[A-Za-z_]\w*'?[ \t]*(\[[^\]\n]*\][ \t]*)?=(?!=)").search(source.text, opened.end_pos)
    return opened if below is not None and below.start() < token.start_pos else None


_FIRST_WORDS = {
    "def": "a header begins with the kernel's name, `name(x: T[...]) -> y: T[...]`",
    "return": "results are equations: `y = ...` for a result `y` of the header",
    "import": "a spec imports nothing: functions stand by themselves, `exp(x)`",
    **dict.fromkeys(("let", "const", "auto", "float", "var"), "an equation is `name = expression`"),
    **dict.fromkeys(("for", "while", "with"), "there are no loops: a sum over a dim is `sum[N](x)`"),
}


def _habit(source: Source, token, previous: Token | None, accepts: set[str], lines: _Lines) -> str | None:
    """What to write instead of what other languages have at this place; None where it is none of their habits."""
    begun = source.text[source.text.rfind("\n", 0, token.start_pos) + 1 : token.start_pos]  # the line up to there
    if token == "//" and not begun.strip() or token == "*" and previous == "/":
        return "a comment begins with `#`"
    if previous is None:
        return None
    first = re.fullmatch(r"\s*(\w+)\s*", begun)
    if first is not None and first.group(1) in _FIRST_WORDS and token.type == "NAME":
        return _FIRST_WORDS[first.group(1)]
    if first is not None and token.type in ("SIGN", "TIMES") and "EQUAL" in accepts:
        return "a name has one equation, `name = expression`: give the new value a name of its own"
    joined = previous.type == "NUMBER" and token.type == "NAME" and token.start_pos == previous.end_pos
    if joined and re.fullmatch("_.*|[fFhHlLuU]|b?f[0-9]+", token):
        return "numbers have digits, a point and an exponent: `1000`, `1e-5`"
    if token in ("is", "in") and previous.type in _OPERAND_END:
        return "to compare, write `==`; `isnan(x)` asks for NaN" if token == "is" else "write `x == a or x == b`"
    if token == ">" and previous == "<":
        return "`a != b` compares"
    if token == "|" and previous != "|" and "NUMBER" in accepts:
        return "the magnitude of x is `abs(x)`"
    if token.type == "SIGN" and previous == "[":
        return "dims go by name, as in `max[N](x)`"
    if token.type == "COMMA" and not lines.open and "EQUAL" in accepts:
        return "an equation gives one value: a maximum and its place are `max[N](x)` and `argmax[N](x)`, an equation each"
    if token.type == "COLON" and lines.open and lines.open[-1].type == "LSQB":
        return "parts are dims of their own: of `x: T[..., 2*D]` the halves are `x[2 = 0]` and `x[2 = 1]`"
    if token.type == "COLON" and first is not None:
        return "an equation is `name = expression`"
    header = "in a header each parameter has a type, as in `x: T[..., N]` or `eps: float = 1e-5`"
    if str(token) == "->" and "__ANON_0" not in accepts:
        return header
    if token.type == "EQUAL" and lines.open and lines.open[-1].type == "LPAR":
        if "->" not in source.text[: token.start_pos]:
            return header
        if previous in ("dim", "dims", "axis", "keepdim", "keepdims"):
            return "what goes over a dim names it in brackets, `mean[N](x)`; its result broadcasts back by name"
        return "arguments have no names here; to compare, write `==`"
    return None


def _wanted(accepts: set[str]) -> str:
    """What could stand at the place of an error, in words ("expected a name or `(`"), from the parser's names for it; "" where that
    says nothing."""
    words = {
        "NAME": "a name", "NUMBER": "a number", "RPAR": "`)`", "RSQB": "`]`", "LPAR": "`(`", "LSQB": "`[`", "COLON": "`: type`",
        "EQUAL": "`=`", "COMMA": "`,`", "__ANON_0": "`->`", "__ANON_1": "`...`", "_NL": "a new line", "ELSE": "`else`", "$END": "",
    }  # fmt: skip
    names = list(dict.fromkeys(words[a] for a in sorted(accepts) if words.get(a)))
    if "TIMES" in accepts:
        names = ["an operator", *(n for n in names if n in ("`)`", "`,`", "`]`"))]
    return "expected " + " or ".join(names) if names else ""


__all__ = [
    "ATOM", "INFIX", "KEYWORDS", "MAX_BYTES", "MAX_DIGITS", "MAX_EXPONENT", "MAX_NAME", "PREFIX", "WHERE", "WRITTEN", "Apply", "Clause",
    "Equation", "Expr", "File", "Header", "Helper", "Name", "Num", "Param", "Result", "Source", "Statement", "Type", "dim_names",
    "literal", "parse", "postorder", "rebuilt",
]  # fmt: skip
