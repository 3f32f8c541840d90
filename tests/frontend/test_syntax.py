"""The parser and the formatter: what they accept, that they agree, and that they answer fast whatever the text holds."""

import gc
import subprocess
import sys
import threading
import time
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgen import grammar, lalr, syntax
from kgen.check import check
from kgen.errors import KgenError, Span
from kgen.syntax import Apply, Equation, Header, Name, Num, parse
from kgen.typeset import format_file

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.k"))
HEADER = "f(x: T[..., N], a: T[N], s: float) -> y: T[..., N]\n\n"


def shape(node):
    """A tree without spans and brackets: two texts mean the same where these are equal."""
    if isinstance(node, Apply):  # an infix operator's brackets do not change what it means
        return (node.op, node.written, [shape(a) for a in node.args], None if node.dims is None else [d.name for d in node.dims])
    if isinstance(node, (list, tuple)):
        return [shape(n) for n in node]
    if is_dataclass(node):
        skipped = ("span", "default_span", "head", "parens", "source", "comments")
        return (type(node).__name__, [shape(getattr(node, f.name)) for f in fields(node) if f.name not in skipped])
    return node


def body(text: str):
    return next(s.body for s in parse(f"y = {text}\n").statements if isinstance(s, Equation))


def bracketed(node) -> str:
    """An expression with every pair of brackets written out."""
    if not isinstance(node, Apply):
        return node.text if isinstance(node, Num) else node.name
    return f"{node.op}({', '.join(bracketed(a) for a in node.args)})"


def test_the_tables_are_the_grammars():
    """Made anew they are the same, and Lark's strict mode finds no conflict and no two terminals that match the same text."""
    pytest.importorskip("interegular")
    made = grammar.text(grammar.tables(grammar.GRAMMAR.read_text()))
    assert made == grammar.TABLES.read_text(), "run `python -m kgen.grammar`"


def test_a_conflict_in_a_grammar_is_found():
    lark = pytest.importorskip("lark")
    pytest.importorskip("interegular")
    with pytest.raises(lark.exceptions.GrammarError, match="Reduce"):
        grammar.tables('start: a | b\na: "x"\nb: "x"\n')
    with pytest.raises(lark.exceptions.LexError, match="Collision"):
        grammar.tables("start: A | B\nA: /x+/\nB: /xy?/\n")


def test_the_parser_reads_as_lark_does():
    """The words of a text, and what could stand in the place of each."""
    lark = pytest.importorskip("lark")
    theirs = lark.Lark(grammar.GRAMMAR.read_text(), parser="lalr", lexer="basic", maybe_placeholders=True)
    ours = syntax._parser()
    for text in ("f(x: T[..., N], e: float = -1) -> (y: T[], z: i8)", "y = -a[N](x,)^2 if not b<=1.5e3 else sum[N](0x1f, (x' // 2))"):
        words = list(ours.words(text, []))
        assert [(w.type, str(w), w.start_pos, w.end_pos) for w in words] == [(w.type, str(w), w.start_pos, w.end_pos) for w in theirs.lex(text)]
        at = theirs.parse_interactive(text)
        for k, _ in enumerate(at.iter_parse()):  # gives a word before it is taken
            with pytest.raises(lalr.Unexpected) as broken:
                ours.parse([*words[:k], lalr.token("BAD", "?", 0)], syntax._Build())
            assert broken.value.accepts == at.accepts()


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_specs_are_formatted(path):
    text = path.read_text()
    assert format_file(parse(text, path.name)) == text


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_specs_say_what_they_compute(path):
    """Each spec has a comment above its header, one to three lines long, and is named as its kernel is."""
    file = parse(path.read_text(), path.name)
    assert 1 <= len(file.doc().split("\n")) <= 3
    assert next(s for s in file.statements if isinstance(s, Header)).name.name == path.stem


names = st.sampled_from(["x", "a", "s", "N", "pi", "x'", "nothing", "_if"])
numbers = st.sampled_from(["0", "1", "2.5", ".5", "3.", "1e-5", "2.E+3", "0x1F", "00"])
dims = st.sampled_from(["N", "...", "..., N", "M, K"])
spaces = st.sampled_from(["", " ", "  ", "\t"])


def _grow(inner):
    def infix(a, op, b, left, right, brackets):
        pad = " " if op.isalpha() else ""
        text = f"{a}{pad}{left}{op}{pad}{right}{b}"
        return f"({text})" if brackets else text

    return st.one_of(
        st.builds(infix, inner, st.sampled_from([*syntax.INFIX]), inner, spaces, spaces, st.booleans()),
        st.builds("({})".format, inner), st.builds("-{}".format, inner), st.builds("+ {}".format, inner), st.builds("~{}".format, inner),
        st.builds("not {}".format, inner), st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{} if {} else {}".format, inner, inner, inner), st.builds("exp( {})".format, inner), st.builds("max({}, {},)".format, inner, inner),
        st.builds("sum[{}]({})".format, dims, inner), st.builds("index[{}]".format, dims), st.builds("f(\n{} # why\n, {})".format, inner, inner),
    )  # fmt: skip


expressions = st.recursive(st.one_of(names, numbers), _grow, max_leaves=12)


@settings(max_examples=400, deadline=None)
@given(expressions)
def test_formatting_keeps_the_tree(text):
    """parse(format(file)) is the tree of the file, and format(format(file)) is format(file); other texts are refused."""
    try:
        file = parse(f"y = {text}\n")
    except KgenError:
        return  # a chain of comparisons, an operand that needs brackets
    once = format_file(file)
    again = parse(once)
    assert shape(again.statements) == shape(file.statements)
    assert format_file(again) == once


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["a = 1", "long_name = x  # c1", "# c2", "", "y = (1 +\n  # c3\n  2)  # c4", "g(z)=z", HEADER.strip(), "   ", "b'=2 #c5",
                                 "f(x: T[N], # c6\n  eps: float=1e-5) -> (y: T[N], # c7\n  z: T[N])  # c8"]), max_size=12))  # fmt: skip
def test_formatting_keeps_every_comment_and_is_idempotent(lines):
    file = parse("\n".join(lines) + "\n")
    once = format_file(file)
    again = parse(once)
    assert sorted(t.strip() for _, t in again.comments) == sorted(t.strip() for _, t in file.comments)
    assert shape(again.statements) == shape(file.statements)
    assert format_file(again) == once


PRECEDENCE = {
    "-x^2": "neg(pow(x, 2))",
    "2^-x": "pow(2, neg(x))",
    "2^-x^3": "pow(2, neg(pow(x, 3)))",
    "a^b^c": "pow(a, pow(b, c))",
    "(a^b)^c": "pow(pow(a, b), c)",
    "a - b - c": "sub(sub(a, b), c)",
    "a - (b - c)": "sub(a, sub(b, c))",
    "a / b * c": "mul(div(a, b), c)",
    "a * b // c % d": "mod(floordiv(mul(a, b), c), d)",
    "-a * b": "mul(neg(a), b)",
    "a * -b": "mul(a, neg(b))",
    "a + b * c^d": "add(a, mul(b, pow(c, d)))",
    "not a < b": "not(lt(a, b))",
    "not a and b": "and(not(a), b)",
    "a or b and c": "or(a, and(b, c))",
    "a | b & c << d + e": "bitor(a, bitand(b, shl(c, add(d, e))))",
    "a & b == c": "eq(bitand(a, b), c)",
    "~a^b": "bitnot(pow(a, b))",
    "a if b else c if d else e": "where(b, a, where(d, c, e))",
    "(a if b else c) if d else e": "where(d, where(b, a, c), e)",
    "a + 1 if b or c else d - 1": "where(or(b, c), add(a, 1), sub(d, 1))",
    "- -a": "neg(neg(a))",
    "a--b": "sub(a, neg(b))",
}


@pytest.mark.parametrize("text", PRECEDENCE)
def test_operators_bind_as_written(text):
    assert bracketed(body(text)) == PRECEDENCE[text]


@pytest.mark.parametrize(
    "text",
    ["a < b < c", "a == b == c", "a if b", "a if b else", "not", "a ** b", "a b", "a +", "()", "f(,)", "x[]", "a if b if c else d else e"],
)
def test_other_texts_are_refused(text):
    with pytest.raises(KgenError):
        parse(f"y = {text}\n")


def test_line_ends_inside_brackets_are_white_space():
    assert shape(parse("y = f(\n a,\n\n b\n)\n").statements) == shape(parse("y = f(a, b)").statements)
    assert shape(parse("\r\n# c\r\ny = a\r\n\r\nz = b\r\n").statements) == shape(parse("y = a\nz = b").statements)


@pytest.mark.parametrize(
    ("text", "part"),
    [("y = f(a, b)^2", "f(a, b)"), ("y = (a + b) * c", "(a + b)"), ("y = sum[N](a) + 1", "sum[N](a)"), ("y = index[N] + 1", "index[N]")],
)
def test_spans_cover_closing_brackets(text, part):
    node = parse(text).statements[0].body.args[0]
    assert text[node.span.start : node.span.end] == part


def test_places_are_those_of_the_text():
    source = syntax.Source("s", "ab\n\ncd\n")
    assert [source.place(k) for k in range(8)] == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2), (3, 3), (4, 1)]
    assert [source.line(k) for k in (1, 2, 3, 4)] == ["ab", "", "cd", ""]


def test_the_comment_above_the_header_is_the_documentation():
    assert parse("# not this\n\n# One.\n#   Two.\nf(x: T[N]) -> y: T[N]\n").doc() == "One.\nTwo."
    assert parse("f(x: T[N]) -> y: T[N]  # behind\n").doc() == ""


def test_threads_may_parse_at_once():
    """The one parser is shared: texts parsed at the same time do not mix."""
    found = {}

    def work(k):
        for _ in range(20):
            file = parse(f"# c{k}\ny{k} = " + " + ".join([f"a{k}"] * 50))
            found.setdefault(k, set()).add(
                (file.statements[0].name.name, file.comments[0][1], len(list(syntax.postorder(file.statements[0].body))))
            )

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == {k: {(f"y{k}", f" c{k}", 99)} for k in range(4)}


BIG = {
    "a long chain of sums": "y = " + " + ".join(["x"] * 16_000),
    "a long chain of powers": "y = " + "^".join(["x"] * 32_000),
    "many signs": "y = " + "-" * 65_000 + "x",
    "many nots": "y = " + "not " * 16_000 + "x",
    "many conditions": "y = " + "1 if x > 0 else " * 4_000 + "x",
    "the same equation again and again": "a=x\n" * 16_000,
    "many equations unused": "".join(f"a{i}=x\n" for i in range(7_000)),
    "many equations in a chain": "a0=x\n" + "".join(f"a{i + 1}=a{i}\n" for i in range(4_500)) + "y=a4500",
    "many names undefined": "".join(f"a{i}=b{i}\n" for i in range(5_000)),
    "deep brackets": "y = " + "(" * 30_000 + "x" + ")" * 30_000,
    "many brackets": "y = " + "(x)+" * 16_000 + "x",
    "brackets never closed": "y = " + "(" * 65_000,
    "many arguments": "y = max(" + "x," * 30_000 + "x)",
    "a long comment": "y = x + a * s\n#" + "z" * 65_000,
    "many comments": "y = x + a * s\n" + "#\n" * 32_000,
    "many blank lines": "y = x + a * s\n" + "\n" * 65_000,
    "a long blank": "y = " + " " * 65_000 + "x + a * s",
    "a chain of helpers": "".join(f"g{i + 1}(a)=g{i}(a)\n" for i in range(3_000)) + "g0(a)=a\ny=g3000(x)",
    "helpers that double": "g0(a)=a\n" + "".join(f"g{i + 1}(a)=g{i}(a)+g{i}(a*2)\n" for i in range(40)) + "y=g40(x)",
    "helpers that compose": "g0(a)=a\n" + "".join(f"g{i + 1}(a)=g{i}(g{i}(a))\n" for i in range(40)) + "y=g40(x)",
    "a tower of powers of numbers": "y = x + " + "9^" * 1_900 + "9",
    "a huge shift": "y = x + (1 << 9223372036854775807) + a * s",
    "a long number": "y = " + "9" * 65_000,
    "a long name": "y = " + "a" * 65_000,
    "many divisions by zero": "y = " + "x/0+" * 16_000 + "x",
    "many dots": "y = " + "." * 65_000,
    "many letters outside ASCII": "µ " * 20_000,
    "many bad characters": "!" * 65_000,
}


@pytest.fixture
def no_collector():
    """Without the garbage collector, which would go through what all tests before have left."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("what", [pytest.param(w, marks=pytest.mark.slow if k % 3 == 2 else ()) for k, w in enumerate(BIG)])
def test_64_kilobytes_of_anything_take_less_than_a_second(what):
    """Parsed and checked, or refused with a short error; and formatted, where it parses."""
    text = (HEADER + BIG[what])[: syntax.MAX_BYTES]
    parse("y = x")  # the parser is built before the clock starts
    for work in (lambda: check(parse(text)), lambda: format_file(parse(text))):
        start = time.process_time()
        try:
            work()
        except KgenError as error:
            assert len(str(error)) < 60_000
        assert time.process_time() - start < 1


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("text", ["f(" + ",".join(f"a{i}:T[]" for i in range(6_000)) + ") -> y: T[]\ny=a1", "f(x:T[]) -> (" + ",".join(f"a{i}:T[]" for i in range(5_000)) + ")\ny=x",
                                  "f(x:T[" + ",".join(f"A{i}" for i in range(9_000)) + "]) -> y: T[]\ny=x"], ids=["parameters", "results", "dims"])  # fmt: skip
def test_a_header_of_64_kilobytes_takes_less_than_a_second(text):
    parse("y = x")
    start = time.process_time()
    with pytest.raises(KgenError):
        check(parse(text))
    assert time.process_time() - start < 1


def test_more_than_64_kilobytes_are_refused():
    with pytest.raises(KgenError, match="longer than 65,536 bytes"):
        parse("#" + "é" * 40_000)


def test_the_front_end_loads_neither_torch_nor_triton():
    code = (
        "import sys; from kgen.syntax import parse; from kgen.check import check; from kgen.lower import lower; from kgen.rewrite import rewrite\n"
        "k = check(parse('f(x: T[N]) -> y: T[N]\\n\\ny = gelu(x) + erfinv(0.5)\\n')); rewrite(lower(k, k.bindings()[0]))\n"
        "print([m for m in ('torch', 'triton', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_nodes_keep_their_spans():
    """Every node's span lies inside its statement, and its text begins and ends as the node does."""
    text = HEADER + "y = -(x + a) * exp(s) if x > 0 else sum[N](x)\n"
    statement = parse(text).statements[1]
    for node in syntax.postorder(statement.body):
        assert statement.span.start <= node.span.start < node.span.end <= statement.span.end
        if isinstance(node, (Name, Num)):
            assert text[node.span.start : node.span.end] == (node.name if isinstance(node, Name) else node.text)
    assert statement.span == Span(text.index("y ="), len(text) - 1)


def test_functions_are_parsed_one_by_one_as_they_are_together() -> None:
    """Each at its place in the text, and when it is asked for."""
    from kgen.expressions import prelude

    file = syntax.parse(prelude().text, "prelude.k")
    together = {s.name.name: s for s in file.statements if isinstance(s, syntax.Helper)}
    alone = syntax.Functions(prelude().text, "prelude.k")
    assert list(alone) == list(together) and len(alone) == len(together) == len(file.statements)
    assert "silu" in alone and "nothing" not in alone and not alone.parsed
    assert all(repr(alone[name]) == repr(helper) for name, helper in together.items())
    assert alone["silu"] is alone["silu"] and alone.get("nothing") is None
