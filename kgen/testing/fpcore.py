"""FPCore 2.0 (https://fpbench.org), read and written as specs.

In: texts of FPCores.  Out: a `Conversion` for each: the spec of one that is scalar and has no loop, a `KgenError` at its place for
each other one.  `kgen.testing.fpbench` says how precisions and preconditions are taken, and checks the kernels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from kgen import check as checker
from kgen import syntax, typeset
from kgen.errors import Diagnostic, KgenError, Source, Span
from kgen.write import Names

PRECISIONS = {"binary64": "f64", "binary32": "f32", "binary16": "f16", "bfloat16": "bf16"}
WIDTH = {"f16": 0, "bf16": 0, "f32": 1, "T": 1, "f64": 2}
#: FPCore's functions that kgen has, by its name.
CALLS = {"fabs": "abs", "nearbyint": "round"} | {
    name: name
    for name in (
        "fma exp exp2 expm1 log log10 log2 log1p sqrt cbrt hypot sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh "
        "atanh erf erfc lgamma ceil floor trunc copysign isfinite isinf isnan signbit"
    ).split()
}
ARITY = {"fma": 3, "hypot": 2, "atan2": 2, "copysign": 2, "pow": 2, "fmod": 2, "remainder": 2, "fdim": 2, "fmax": 2, "fmin": 2}
#: What kgen lacks, as helpers of the spec: C's remainders truncate or take the nearest quotient (kgen's % floors), C's
#: fmax and fmin pass NaN over, and its round goes away from zero at ties.  All of them are exact but fdim, which subtracts.
HELPERS = {
    "fmod": ("fmod(x, y) = copysign(abs(x) % abs(y), x)",),
    "remainder": (
        "nearest(r, y) = r if r <= y / 2 else r - y if r - y < y / 2 else r - y - y",
        "remainder(x, y) = copysign(1, x) * nearest(abs(x) % (2 * abs(y)), abs(y))",
    ),
    "fdim": ("fdim(x, y) = 0 if x <= y else x - y",),
    "fmax": ("fmax(x, y) = y if isnan(x) else x if isnan(y) else max(x, y)",),
    "fmin": ("fmin(x, y) = y if isnan(x) else x if isnan(y) else min(x, y)",),
    "round_away": ("round_away(x) = trunc(x) + copysign(1, x) if abs(x - trunc(x)) >= 0.5 else trunc(x)",),
}
INFIX = {"+": ("+", 9), "-": ("-", 9), "*": ("*", 10), "/": ("/", 10), "pow": ("^", 12)}
COMPARE = ("<", ">", "<=", ">=", "==", "!=")
PREDICATES = ("isfinite", "isinf", "isnan", "signbit")
#: mpmath's formulas of FPCore's constants; kgen takes the first 40 digits (pi is its own).
CONSTANTS = {
    "E": "e", "LOG2E": "1/log(2)", "LOG10E": "1/log(10)", "LN2": "log(2)", "LN10": "log(10)", "PI": "pi", "PI_2": "pi/2", "PI_4": "pi/4",
    "M_1_PI": "1/pi", "M_2_PI": "2/pi", "M_2_SQRTPI": "2/sqrt(pi)", "SQRT2": "sqrt(2)", "SQRT1_2": "sqrt(1/2)",
    "INFINITY": "inf", "NAN": "nan",
}  # fmt: skip
REFUSED = {
    "while": "loops", "while*": "loops", "for": "loops", "for*": "loops", "tensor": "tensors", "tensor*": "tensors", "array": "tensors",
    "dim": "tensors", "size": "tensors", "ref": "tensors", "digits": "digits of other bases", "tgamma": "gamma function",
    "isnormal": "such predicate",
}  # fmt: skip
NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|\d+/\d+|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*([pP][+-]?\d+)?)$")
MAX_DEPTH = 150
#: An operand longer than this gets an equation of its own.
LONG = 90


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Node:
    """An S-expression: a word (`text`), a string (in its quotes) or a list (`items`, then `text` is "(")."""

    text: str
    span: Span
    items: tuple[Node, ...] = ()

    @property
    def is_list(self) -> bool:
        return self.text == "("

    def __str__(self) -> str:
        return f"({' '.join(map(str, self.items))})" if self.is_list else self.text


def read(source: Source) -> list[Node]:
    """The S-expressions of a text.  Raises `KgenError` where brackets do not meet."""
    open_: list[tuple[re.Match, list[Node]]] = []
    done: list[Node] = []
    for m in re.finditer(r";[^\n]*|\s+|\"(?:\\.|[^\"\\])*\"|[\[(]|[\])]|[^\s\[\]();\"]+|\"", source.text):
        word = m.group()
        here = open_[-1][1] if open_ else done
        if word[0] in "([":
            open_.append((m, []))
            if len(open_) > MAX_DEPTH:
                raise _error(f"more than {MAX_DEPTH} brackets are open here", Span(*m.span()), source)
        elif word[0] in ")]":
            if not open_ or (open_[-1][0].group() == "(") != (word == ")"):
                raise _error("this bracket closes nothing", Span(*m.span()), source)
            start, items = open_.pop()
            (open_[-1][1] if open_ else done).append(Node("(", Span(start.start(), m.end()), tuple(items)))
        elif word == '"':
            raise _error("this string never ends", Span(*m.span()), source)
        elif word[0] != ";" and not word.isspace():
            here.append(Node(word, Span(*m.span())))
    if open_:
        raise _error("this bracket is never closed", Span(*open_[-1][0].span()), source)
    return done


def _error(message: str, span: Span, source: Source, help: str = "") -> KgenError:
    return KgenError(Diagnostic(message, span, help=help), source)


@dataclass
class Conversion:
    """What became of one FPCore: its spec's text, or the error that refuses it.

    `names` are the parameters of the spec by the FPCore's arguments (those that it uses); `dtypes` theirs.
    """

    name: str
    spec: str = ""
    error: KgenError | None = None
    body: Node | None = None
    pre: Node | None = None
    names: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    casts: bool = False


def convert(text: str, name: str = "<text>") -> list[Conversion]:
    """The FPCores of a text as specs, in order; those that cannot be one carry their error.

    `name` is what errors call the text.  Raises `KgenError` where the text is no sequence of FPCores.
    """
    source = Source(name, text)
    found, taken = [], Names(())
    for k, node in enumerate(read(source)):
        if not node.is_list or not node.items or node.items[0].text != "FPCore":
            raise _error("an FPCore is expected here", node.span, source)
        try:
            found.append(_Converter(source, node, taken, f"fpcore{k + 1}").run())
        except KgenError as error:
            wanted = re.search(r':name\s+"([^"]*)"', text[node.span.start : node.span.end])
            found.append(Conversion(wanted.group(1) if wanted else f"fpcore{k + 1}", error=error))
    return found


# ---------------------------------------------------------------------- writing


@dataclass(frozen=True)
class _Piece:
    """A part of the spec: its text, how tightly it binds, and what it is: "int" or "number" (of constants alone), "float", "bool"."""

    text: str
    level: int
    kind: str
    dtype: str = ""  # of a float

    def at(self, level: int) -> str:
        return self.text if self.level >= level else f"({self.text})"


class _Converter:
    """One FPCore to one spec."""

    def __init__(self, source: Source, node: Node, taken: Names, default: str):
        self.source, self.node, self.default, self.specs = source, node, default, taken
        self.equations: list[str] = []
        self.helpers: list[str] = []
        self.used: set[str] = set()
        self.casts = False

    def refuse(self, node: Node, message: str, help: str = "") -> KgenError:
        return _error(message, node.span, self.source, help)

    def run(self) -> Conversion:
        """The FPCore as a spec.  Raises `KgenError` at the place of what a spec cannot say."""
        items = list(self.node.items[1:])
        symbol = items.pop(0) if items and not items[0].is_list else None
        if not items or not items[0].is_list:
            raise self.refuse(self.node, "an FPCore has a list of arguments")
        arguments, properties = items.pop(0), {}
        while items and items[0].text.startswith(":"):
            if len(items) < 2:
                raise self.refuse(items[0], "this property has no value")
            properties[items[0].text] = items[1]
            items = items[2:]
        if len(items) != 1:
            at = items[0] if items else self.node
            raise self.refuse(at, "an FPCore ends with one expression, after its properties")
        self.context = self.precision(properties.get(":precision") or properties.get(":type"), "T")
        said = properties.get(":name")
        title = said.text.strip('"') if said else symbol.text if symbol else self.default
        name = self.specs.fresh(_legal(symbol.text if symbol else title) or self.default)
        env, dtypes = {}, {}
        symbols = {_legal(a.items[-1].text if a.is_list and a.items else a.text) for a in arguments.items}
        free = next(n for n in ("y", "z", "result") if n not in symbols)
        self.names = Names((name, free))
        for a in arguments.items:
            symbol_, dtype = self.argument(a)
            env[symbol_] = _Piece(self.names.fresh(_legal(symbol_) or "x"), 13, "float", dtype)
            dtypes[symbol_] = dtype
        result = self.expression(items[0], env, self.context)
        wanted = {a: p for a, p in env.items() if p.text in self.used}
        if not wanted:
            raise self.refuse(self.node, "it reads no argument: it is a number, no kernel")
        if result.kind in ("int", "number") or result.kind == "bool" and result.dtype:
            raise self.refuse(items[0], "it is a number, no kernel")
        header = ", ".join(f"{p.text}: {dtypes[a]}[...]" for a, p in wanted.items())
        stored = "bool" if result.kind == "bool" else self.context
        lines = [f"# {line}" for line in _comment(title, properties)]
        lines += [f"{name}({header}) -> {free}: {stored}[...]", "", *self.helpers, *self.equations, f"{free} = {result.text}"]
        spec = typeset.format_file(syntax.parse("\n".join(lines) + "\n", f"{name}.k"))
        checker.check(syntax.parse(spec, f"{name}.k"))
        return Conversion(
            title, spec, None, items[0], properties.get(":pre"), {a: p.text for a, p in wanted.items()}, dtypes, self.casts
        )  # fmt: skip

    def precision(self, node: Node | None, default: str) -> str:
        if node is None:
            return default
        if node.text not in PRECISIONS:
            raise self.refuse(node, f"kgen has no precision {node}", help=f"it has {', '.join(PRECISIONS)}")
        return PRECISIONS[node.text]

    def argument(self, node: Node) -> tuple[str, str]:
        if not node.is_list:
            return node.text, self.context
        if node.items and node.items[0].text == "!" and not node.items[-1].is_list:
            return node.items[-1].text, self.annotated(node, self.context)
        raise self.refuse(node, "kgen takes no tensors from an FPCore")

    def annotated(self, node: Node, context: str) -> str:
        """The precision under a `!`."""
        for key, value in zip(node.items[1:-1:2], node.items[2:-1:2]):
            if key.text == ":round" and value.text != "nearestEven":
                raise self.refuse(value, f"kgen rounds to nearest, not {value}")
            if key.text == ":precision":
                context = self.precision(value, context)
        return context

    def expression(self, node: Node, env: dict[str, _Piece], context: str) -> _Piece:
        """An expression as a part of the spec; `env` has what its symbols stand for, `context` is the precision around it."""
        if not node.is_list:
            return self.word(node, env)
        if not node.items or node.items[0].is_list:
            raise self.refuse(node, "an operator is expected after the bracket")
        op, args = node.items[0].text, node.items[1:]
        if op in REFUSED:
            raise self.refuse(node.items[0], f"`{op}`: kgen has no {REFUSED[op]}")
        if op == "!":
            return self.expression(args[-1], env, self.annotated(node, context)) if args else self.count(node, 1)
        if op in ("let", "let*"):
            return self.let(node, env, context)
        pieces = [self.expression(a, env, context) for a in args]
        if op in ("and", "or", "not"):
            return self.logic(node, op, pieces)
        if op in COMPARE:
            return self.comparison(node, op, pieces)
        if op == "if":
            self.count(node, 3)
            return self.choice(node, pieces)
        for a, p in zip(args, pieces, strict=True):
            if p.kind == "bool":
                raise self.refuse(a, f"`{op}` takes numbers, not a condition")
        if op == "cast":
            self.count(node, 1)
            return self.rounded(pieces[0], context) if pieces[0].kind == "float" else pieces[0]
        return self.operator(node, op, pieces, context)

    def count(self, node: Node, wanted: int) -> Any:
        if len(node.items) - 1 != wanted:
            raise self.refuse(node, f"`{node.items[0]}` takes {wanted} operand{'s' * (wanted > 1)}, not {len(node.items) - 1}")

    def word(self, node: Node, env: dict[str, _Piece]) -> _Piece:
        text = node.text
        if text in env:
            self.used.add(env[text].text)
            return env[text]
        if NUMBER.match(text):
            return self.number(node)
        if text in CONSTANTS:
            value = {"PI": "pi", "INFINITY": "inf", "NAN": "nan"}.get(text) or _digits(text)
            return _Piece(value, 13, "number")
        if text in ("TRUE", "FALSE"):
            raise self.refuse(node, f"kgen has no constant {text}")
        raise self.refuse(node, f"`{text}` is not defined")

    def number(self, node: Node) -> _Piece:
        text = node.text.lstrip("+")
        if "/" in text:
            return _Piece(text.replace("/", " / "), 10, "number")
        if "x" in text.lower():
            exact = fraction_of(text)
            if abs(exact.numerator) >= 2**53 or exact.denominator > 2**1000:
                raise self.refuse(node, "this number has more than 53 bits")
            whole = exact.denominator == 1
            if whole:
                return _Piece(str(exact.numerator), 11 if exact < 0 else 13, "int")
            return _Piece(f"{exact.numerator} / {exact.denominator}.0", 10, "number")
        whole = text.lstrip("-").isdigit()
        return _Piece(text.rstrip(".") if text.endswith(".") else text, 11 if text[0] == "-" else 13, "int" if whole else "number")

    def let(self, node: Node, env: dict[str, _Piece], context: str) -> _Piece:
        self.count(node, 2)
        inner = dict(env)
        for binding in node.items[1].items:
            if not binding.is_list or len(binding.items) != 2 or binding.items[0].is_list:
                raise self.refuse(binding, "a binding is a name and an expression")
            piece = self.expression(binding.items[1], inner if node.items[0].text == "let*" else env, context)
            inner[binding.items[0].text] = self.bound(piece, _legal(binding.items[0].text) or "t")
        return self.expression(node.items[2], inner, context)

    def bound(self, piece: _Piece, stem: str = "") -> _Piece:
        """A piece by name (a numbered one without `stem`): words stand for themselves, anything else gets an equation."""
        if piece.level == 13 and re.fullmatch(r"\w+", piece.text):
            return piece
        if piece.kind in ("int", "number") and len(piece.text) < LONG:
            return piece
        name = self.names.fresh(stem) if stem else self.names.numbered("t")
        self.equations.append(f"{name} = {piece.text}")
        return _Piece(name, 13, piece.kind, piece.dtype)

    def short(self, pieces: Sequence[_Piece]) -> list[_Piece]:
        return [self.bound(p) if len(p.text) > LONG else p for p in pieces]

    def floats(self, pieces: Sequence[_Piece]) -> list[_Piece]:
        """The pieces with a float among them: FPCore's numbers are real, kgen's integers wrap."""
        if any(p.kind != "int" for p in pieces):
            return list(pieces)
        return [_Piece(pieces[0].text + ".0", pieces[0].level, "number"), *pieces[1:]]

    def rounded(self, piece: _Piece, context: str) -> _Piece:
        self.casts = True
        return _Piece(f"{context}({piece.text})", 13, piece.kind, context)

    def operator(self, node: Node, op: str, pieces: list[_Piece], context: str) -> _Piece:
        if op in "+*" and len(pieces) > 2:  # as the older standard has it: from the left
            made = pieces[0]
            for p in pieces[1:]:
                made = self.applied(node, op, [made, p], context)
            return made
        if op == "-" and len(pieces) == 1:
            (p,) = self.short(pieces)
            return _Piece(f"-{p.at(11)}", 11, "number" if p.kind == "int" else p.kind, p.dtype)
        if op == "round":
            op = "round_away"
        elif op not in INFIX and op not in CALLS and op not in HELPERS:
            raise self.refuse(node.items[0], f"kgen has no operator `{op}`")
        self.count(node, 2 if op in INFIX else ARITY.get(op, 1))
        return self.applied(node, op, pieces, context)

    def applied(self, node: Node, op: str, pieces: list[_Piece], context: str) -> _Piece:
        """A function or infix operator of these operands, rounded where the context's precision is narrower."""
        pieces = self.floats(self.short(pieces))
        tensors = [p.dtype for p in pieces if p.kind == "float"]
        natural = max(tensors, key=lambda d: WIDTH[d], default="")
        if op not in PREDICATES and natural and WIDTH[context] > WIDTH[natural]:  # as wide as the precision asks
            pieces = [self.rounded(p, context) if p.kind == "float" and p.dtype == natural else p for p in pieces]
            natural = context
        if op in INFIX:
            sign, level = INFIX[op]
            left, right = (13, 13) if op == "pow" else (level, level + 1)
            made = _Piece(f"{pieces[0].at(left)} {sign} {pieces[1].at(right)}", level, "float" if tensors else "number", natural)
        else:
            for line in HELPERS.get(op, ()):
                if line not in self.helpers:
                    self.helpers.append(line)
            text = f"{CALLS.get(op, op)}({', '.join(p.text for p in pieces)})"
            made = _Piece(
                text, 13, "bool" if op in PREDICATES else "float" if tensors else "number", natural if op not in PREDICATES else ""
            )
        return self.rounded(made, context) if made.kind == "float" and natural != context else made

    def logic(self, node: Node, op: str, pieces: list[_Piece]) -> _Piece:
        if not pieces or op == "not" and len(pieces) != 1 or any(p.kind != "bool" for p in pieces):
            raise self.refuse(node, f"`{op}` takes {'one condition' if op == 'not' else 'conditions'}")
        if op == "not":
            return _Piece(f"not {pieces[0].at(4)}", 4, "bool")
        level = 3 if op == "and" else 2
        return _Piece(f" {op} ".join(p.at(level) for p in self.short(pieces)), level if len(pieces) > 1 else pieces[0].level, "bool")

    def comparison(self, node: Node, op: str, pieces: list[_Piece]) -> _Piece:
        if len(pieces) < 2 or any(p.kind == "bool" for p in pieces):
            raise self.refuse(node, f"`{op}` takes two numbers or more")
        if all(p.kind != "float" for p in pieces):
            raise self.refuse(node, "this condition is one of constants alone")
        if len(pieces) > 2:  # each in the middle stands twice
            pieces = [pieces[0], *(self.bound(p) for p in pieces[1:-1]), pieces[-1]]
        pieces = self.short(pieces)
        pairs = [(a, b) for k, a in enumerate(pieces) for b in (pieces[k + 1 :] if op == "!=" else pieces[k + 1 : k + 2])]
        pairs = [(a, b) for a, b in pairs if "float" in (a.kind, b.kind)]
        texts = [f"{a.at(9)} {op} {b.at(9)}" for a, b in pairs]
        return _Piece(" and ".join(texts), 5 if len(texts) == 1 else 3, "bool")

    def choice(self, node: Node, pieces: list[_Piece]) -> _Piece:
        condition, a, b = self.short(pieces)
        if condition.kind != "bool" or (a.kind == "bool") != (b.kind == "bool"):
            raise self.refuse(node, "`if` takes a condition, and two values of one kind")
        a, b = self.floats([a, b])
        dtype = max((p.dtype for p in (a, b) if p.kind == "float"), key=lambda d: WIDTH[d], default=self.context)
        return _Piece(
            f"{a.at(2)} if {condition.at(2)} else {b.at(1)}", 1, "bool" if a.kind == "bool" else "float", dtype if a.kind != "bool" else ""
        )


def _legal(symbol: str) -> str:
    """A symbol as a name of kgen's; empty where nothing of it is left."""
    name = re.sub(r"\W+", "_", symbol, flags=re.ASCII).strip("_")
    return f"_{name}" if name[:1].isdigit() else name


def _comment(title: str, properties: dict[str, Node]) -> list[str]:
    lines = [title, *(properties[k].text.strip('"') for k in (":description",) if k in properties)]
    lines += [f"{k[1:]}: {properties[k]}" for k in (":cite", ":pre", ":spec") if k in properties]
    return [part.strip() for line in lines for part in line.splitlines()]


def fraction_of(text: str) -> Fraction:
    """A number of FPCore's: decimal, rational or hexadecimal."""
    sign = -1 if text[0] == "-" else 1
    text = text.lstrip("+-").lower()
    if not text.startswith("0x"):
        return sign * Fraction(text)
    mantissa, _, exponent = text[2:].partition("p")
    whole, _, part = mantissa.partition(".")
    return sign * Fraction(int(whole + part or "0", 16), 16 ** len(part)) * Fraction(2) ** int(exponent or 0)


def multiprecision() -> Any:
    import mpmath

    return mpmath.MPContext()


def _digits(constant: str) -> str:
    with (mp := multiprecision()).workprec(200):
        return mp.nstr(constant_value(mp, constant), 40)


def constant_value(mp: Any, name: str) -> Any:
    top, _, bottom = CONSTANTS[name].partition("/") if not name.startswith("SQRT1") else ("sqrt(1/2)", "", "")
    known = {"e": mp.e, "pi": mp.pi, "log(2)": mp.log(2), "log(10)": mp.log(10), "sqrt(2)": mp.sqrt(2), "sqrt(pi)": mp.sqrt(mp.pi),
             "sqrt(1/2)": mp.sqrt(mp.mpf(0.5)), "inf": mp.inf, "nan": mp.nan}  # fmt: skip
    values = [known[t] if t in known else mp.mpf(int(t)) for t in (top, bottom) if t]
    return +values[0] if len(values) == 1 else values[0] / values[1]
