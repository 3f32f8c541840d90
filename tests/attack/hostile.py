"""Hostile specs, each beside a harmless one of the same meaning, and what must hold of the two.

A case takes a well-formed spec and renames everything in it, twice: to harmless names, and to reserved words, macros, the names
that templates and generated temporaries use.  Its hostile twin also has its numbers spelled otherwise, comments and a file name
that try to be more than text.  What kgen writes for the two must be one token stream, up to the renaming.

`python -m tests.attack.hostile --cases 100000 --jobs 2` runs many and prints how many a second.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import keyword
import pkgutil
import random
import re
import sys
import time
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path

from kgen import backends, write
from kgen.backends import backend, body
from kgen.backends.c_family import FUNCTIONS, KEYWORDS
from kgen.check import Kernel, check
from kgen.errors import KgenError
from kgen.grad import backward
from kgen.ops import CONSTANTS, OPS, REDUCTIONS
from kgen.syntax import Header, Helper, parse
from kgen.testing.textual import unbroken
from kgen.types import DTYPES

ROOT = Path(__file__).parents[2]
TARGETS = ("triton", "cuda", "cpp")
#: Shapes of specs that the bundled ones do not have.
OTHERS = (
    "# A doc.\nf(x: T[..., N], w: U[N], k: int = 3, s: float = -2.5e-3) -> (y: T[..., N], z: i64[...])\n\n# Behind it.\nh(a, b) = a * b + 0.5\ng[D](a) = sum[D](h(a, a))\nt = h(x, s)\ny = t + w * 1.5 ^ k\nz = i64(g[N](t)) + 7 # beside\n",
    "f(m: T[...], v: T32[...], n: int, r: float = 0.1) -> (m': T[...], v': T32[...])\n\nm' = r * m + (1 - r) * v\nv' = v + (m' / (1 - r ^ n))\n",
    "f(x: T[M, N], i: i32[M]) -> (y: T[M], w: i64[M])\n\np = pick[N](x, i)\ny = p * index[M] + M / 3.25\nw = argmax[N](x) + 0x1f\n",
    "f(x: f32[], b: bool[...], u: u8[..., K]) -> (y: i8[..., K], c: bool[...])\n\ny = i8(clamp(u - 3, 0, 100)) if b else i8(x)\nc = any[K](u > 200) or not b\n",
    "f(x: T[A, B, C]) -> (y: T[A, C], z: T[])\n\ns = softmax[B](x)\ny = max[B](s * 1e-3)\nz = sum[A, B, C](stop(x) * x) / size[A](x)\n",
    "f(a: float = 1e-30, b: int = 0x10, x: T[..., N]) -> y: T[..., N]\n\nc = exp(a) + 3\ny = (x if x > a else erf(x) * c) + b // 2 + lgamma(x) % 1.25\n",
)
WORD = re.compile(
    r"(?P<comment>#[^\n]*)|(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(?P<name>[A-Za-z_]\w*'?)|(?P<other>\s+|->|\.\.\.|.)"
)
BUILT_IN = {*OPS, *REDUCTIONS, *DTYPES, *CONSTANTS, "float", "int", "index", "pick", "if", "else", "and", "or", "not", "pos", "..."}

#: Comments, and parts of file names.
COMMENTS = (
    "*/", "/*", "*/ int main() { system(\"id\"); } /*", "end \\", "end \\ ", "end \\\t", "end ??/", "end ??/ ", "end \\\\", "%:include", "??=include <x>", "\r", "a\rimport os", "a\rint evil;", "a\x0bimport os",
    "a\x0cimport os", "\x1c", "\x1d import os", "\x1e", "a\x85import os", "a\u2028import os", "a\u2029int evil;", "\x00", "\x1b[2J\x1b]0;evil\x07", "\x7f\x80\x9b31m", "'", '"', '"""', "'''", '"""\nimport os\n"""',
    "{{ 7 * 7 }}", "{% raw %}", "{% include 'kernel.py.jinja' %}", "{# names: x #}", "%% for x in y", "# for x in y", "#include </etc/passwd>", "#define float int", "#pragma GCC poison", "#line 1 \"x\"", "__asm__(\"nop\");",
    "R\"x(", ")x\"", "L'", "u8\"", "\\u000aimport os", "\\N{LINE FEED}", "\\x0aint evil;", "\u202e\u2066 x = 1 \u2069", "\u200f", "\ufeff", "\ud800", "\udcff", "\U000e0001", "-*- coding: utf-7 -*-", "+AAo-import os",
    "vim: set fileencoding=unicode_escape :", "coding=raw_unicode_escape", "coding: rot13", "type: ignore", "noqa", "fmt: off", "$(id)", "`id`", "%s%n", "{name}", "{0}", "\\begin{document}", "$\\input{/etc/passwd}$", "<script>",
    "é ü 漢字 😀", "𝐱 µ", "\t\ttabs\t", " " * 200 + "far", "x" * 5000, "\\" * 101, "??/" * 50, "//" * 40, "\n".join(["many"] * 40), "", "=", "y = 1", "f(x: T[]) -> y: T[]",
)  # fmt: skip
NUMBERS = (
    "1e999", "-1e999", "1e-999", "1e400", "1e401", "1e-400", "4.9e-324", "2.4e-324", "1.7976931348623157e308", "1.8e308", "3.5e38", "1e-45", "7e-46", "0x7fffffffffffffff", "0x8000000000000000",
    "9223372036854775807", "9223372036854775808", "0xFFFFFFFFFFFFFFFFF", "0b11", "0o17", "1_000", "1'000", "1f", "1L", "1ull", "0x1p-3", "0x", "1e", "1.e+", ".", "..", "1..2", "00", "08", "0e0", "1e0000000000001",
    "9" * 64, "9" * 65, "0." + "1" * 62, "1e" + "0" * 50 + "1", "inf", "-inf", "nan", "Infinity", "1j", "٣", "１", "½", "1e-\n1", "--1", "- 1", "+1", "0X1F", "0Xg", "1 if 1 else 2",
)  # fmt: skip
NAMES = """NAN INFINITY INT_MAX INT64_MAX FLT_MAX DBL_EPSILON CHAR_BIT M_PI HUGE_VAL EOF NULL TRUE FALSE True False None tl torch self cls main blockIdx
    threadIdx gridDim warpSize asm __asm__ printf std cout int8_t int64_t size_t ptrdiff_t uint32_t __builtin_trap __FILE__ __LINE__ __func__ __debug__ __name__ __init__
    __class__ __file__ _Bool _Complex _ __ ___ _a __a a__b a_ x_ linux unix i386 near far interface small hyper register restrict typeof thread_local module import_ yield
    async await match case type print exec eval open input dir vars globals locals len range list dict set str object super property lambda_ nonlocal del pass raise
    triton jit constexpr program_id load store arange where full zeros cdiv libdevice math itertools Fraction BLOCK OPTIONS TENSORS FLOATS KINDS RANK INDEX TILE RESIDENT
    numel sizes steps first lane mask offset place check allocate strides merged launch overlap separate tensors dtypes out target name other bool range given shape sizes wide
    x y z i j k n a b c u v lo hi row rows inner outer left right acc partial size rank stream layout Layout Vector Index Loop Words Plan host operands vec lanes to
    compute compute_of to_bits from_bits round_odd parallel PARALLEL begin body half float16 float32 float64 f16_ cudaStream_t cudaError_t cudaSuccess cudaMalloc CUDART_VERSION __CUDACC_RTC__
    s0 s1 t1 t2 dx dy dtop top sum_N max_N mean_all row_1 leading index_N index_all x_stride x_tile x_ptr x_next x_kernel y_place y_buffer x_element x_row f_kernel f_element f_run f_row
    f_forward f_backward f_jvp f_triton kernel forward backward grad saved extern_ C T1 T32x F G H P Q R S decltype_ omp simd errno assert offsetof va_list
    sin sinf cosl erff tgamma lgammaf_r hypotf fma fmaf rint nearbyint abs labs div time clock rand signal index remove rename gamma y0 yn j1 select""".split()


@cache
def spec_texts() -> tuple[str, ...]:
    return (*(p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))), *OTHERS)


@cache
def names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Hostile names: those that may name a value, and those that may name a dim (they begin with a capital)."""
    found = {*NAMES, *KEYWORDS, *FUNCTIONS, *keyword.kwlist, *keyword.softkwlist}
    found |= {n.upper() for n in NAMES if len(n) > 1} | {n.capitalize() for n in NAMES if len(n) > 1}
    for text in spec_texts()[::6]:
        kernel = check(parse(text))
        for target in TARGETS:
            found |= {t for kind, t in tokens(backend(target).render(kernel), target) if kind == "name"}
    found = {n for n in found if re.fullmatch(r"[A-Za-z_]\w*", n) and len(n) <= 64 and n not in BUILT_IN | {"x32"}}
    found |= {"L" * 64, "l" * 64, "_" * 64, "x" + "_" * 63, "n" * 63 + "_"}
    values = tuple(sorted(n for n in found if not (len(n) == 1 and n.isupper()) and not re.fullmatch("[A-Z]32", n)))
    dims = tuple(sorted(n for n in found if n[0].isupper() and not re.fullmatch("[A-Z]32", n)))
    return values, dims


# ------------------------------------------------------------------------------------------------ a case


class Case:
    """A spec twice: `hostile` and `harmless`, `pairs` of their names, the file's `name`."""

    def __init__(self, seed: int):
        self.seed = seed
        rng = self.rng = random.Random(seed)
        spec = rng.choice(spec_texts())
        words = [(m.lastgroup, m.group()) for m in WORD.finditer(spec)]
        self.pairs = self.renaming(spec)
        self.names = dict(self.pairs)
        self.hostile = self.written(words, 1)
        self.harmless = self.written([w for w in words if w[0] != "comment"], 0)
        self.name = rng.choice(("t.k", "a b.k", "".join(rng.choice(COMMENTS)[:80] for _ in range(rng.randint(1, 2)))))
        self.backward = rng.random() < 0.25
        self.target = rng.choice(TARGETS)
        self.wild = rng.random() < 0.15
        if self.wild:
            self.hostile = self.torn(self.hostile)

    def torn(self, text: str) -> str:
        """The spec with hostile text, or a number past a limit, in the place of one to three of its words."""
        rng, words = self.rng, [m.group() for m in WORD.finditer(text)]
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(words))
            words[at] = rng.choice((rng.choice(COMMENTS), rng.choice(NUMBERS), rng.choice(NAMES)))
        return "".join(words)

    def renaming(self, spec: str) -> list[tuple[str, str]]:
        """Pairs (harmless, hostile) by the name in the spec as it stands, kept in `self.to`."""
        rng, self.file = self.rng, parse(spec)
        header = next(s for s in self.file.statements if isinstance(s, Header))
        self.kernel = header.name.name
        values: dict[str, None] = {self.kernel: None}
        dims: dict[str, None] = {}
        letters: dict[str, None] = {}
        for p in (*header.params, *header.results):
            values[p.name.name.rstrip("'")] = None
            if re.fullmatch("[A-Z](32)?", p.type.dtype.name):
                letters[p.type.dtype.name[0]] = None
            dims.update(dict.fromkeys(d.name for d in p.type.dims or () if d.name != "..."))
        for s in self.file.statements:
            if s is not header:
                values[s.name.name.rstrip("'")] = None
                for p in getattr(s, "params", ()):
                    values[p.name] = None
                dims.update(dict.fromkeys(d.name for d in getattr(s, "dims", ()) or ()))
        lower, upper = names()
        chosen = iter(rng.sample(lower, 60))
        capital = iter(rng.sample(upper, 20))
        used = set(letters)
        self.to: dict[str, tuple[str, str]] = {}
        fresh = sorted(rng.sample([c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"], len(letters)))
        for k, letter in enumerate(letters):
            self.to[letter] = ("TUVW"[k], fresh[k])
        taken = {c for _, c in self.to.values()} | used
        for k, name in enumerate(values):
            bad = next(n for n in chosen if n not in taken)
            taken.add(bad)
            self.to[name] = (self.good("vq", k), bad)
        for k, name in enumerate(dims):
            if name in self.to:
                continue
            bad = next(n for n in capital if n not in taken)
            taken.add(bad)
            self.to[name] = (self.good("Dq", k), bad)
        return list(self.to.values())

    def good(self, stem: str, k: int) -> str:
        return f"{stem}{chr(97 + k // 26)}{chr(97 + k % 26)}"

    def written(self, words: list[tuple[str, str]], side: int) -> str:
        out, headed, helpers = [], False, self.helpers()
        for k, (kind, text) in enumerate(words):
            if kind == "name":
                bare = text.rstrip("'")
                after = next((t for _, t in words[k + 1 :] if t.strip()), "")
                if bare == self.kernel and not headed:  # the header, which may have a function's name
                    headed, after = True, ""
                head = after in ("(", "[") and bare in BUILT_IN | PRELUDE and bare not in helpers
                wide = re.fullmatch("([A-Z])32", bare)
                if wide and wide.group(1) in self.to:
                    text = self.to[wide.group(1)][side] + "32"
                elif bare in self.to and not head:
                    text = self.to[bare][side] + text[len(bare) :]
            elif kind == "number" and side:
                text = self.spelled(text)
            elif kind == "comment" and side:
                text = "#" + self.comment()
            elif text == "\n" and side and self.rng.random() < 0.1:
                text = f"  #{self.comment()}\n"
            out.append(text)
        made = "".join(out)
        if side and self.rng.random() < 0.7:
            lines = [f"#{self.comment()}" for _ in range(self.rng.randint(1, 3))]
            made = "\n".join(lines) + "\n" + made.lstrip("\n")
        return made

    def helpers(self) -> frozenset[str]:
        return frozenset(s.name.name for s in self.file.statements if isinstance(s, Helper))

    def comment(self) -> str:
        rng = self.rng
        return "".join(rng.choice(COMMENTS) for _ in range(rng.choice((1, 1, 1, 2, 3)))).replace("\n", "\n#" if rng.random() < 0.5 else " ")

    def spelled(self, text: str) -> str:
        """A number otherwise."""
        value, rng = Fraction(int(text, 16) if text[:2].lower() == "0x" else text.rstrip(".") if text.endswith(".") else text), self.rng
        if re.fullmatch(r"\d+|0[xX][\da-fA-F]+", text):
            n = int(value)
            return rng.choice((text, str(n), hex(n), hex(n).upper().replace("0X", "0X")))
        e = rng.choice((0, 1, -1, 5, -7, 300, -300))
        return rng.choice(
            (
                text,
                text.replace("e", "E"),
                f"{_decimal(value * Fraction(10) ** -e)}e{e:+}" if abs(e) < 9 else f"{_decimal(value)}e-0000",
                _decimal(value),
            )
        )


PRELUDE = set(re.findall(r"^(\w+)(?:\[\w+\])?\(", (ROOT / "kgen" / "prelude.k").read_text(), flags=re.M))


def _decimal(value: Fraction) -> str:
    """A decimal fraction exactly, as `12.5` or `.5`."""
    digits = 0
    while (value * 10**digits).denominator != 1:
        digits += 1
    n = int(value * 10**digits)
    whole, part = str(n)[:-digits] if digits else str(n), str(n).zfill(digits)[-digits:] if digits else ""
    return f"{whole or '0'}.{part}"


# ------------------------------------------------------------------------------------------------ token streams


_COMMON = r"(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)|(?P<name>[A-Za-z_]\w*)"
_LEXERS = {
    "//": re.compile(
        r"(?P<comment>//.*)|(?P<directive>^[ \t]*#.*)|(?P<space>[ \t]+)|"
        + _COMMON
        + r"|(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<other>[!#%&(-/:-?\[\]^{-~])|(?P<bad>.)"
    ),
    "#": re.compile(
        r"(?P<comment>#.*)|(?P<indent>^[ ]+)|(?P<space>[ \t]+)|(?P<string>(?:\b[rf])?(?:\"\"\".*?\"\"\"|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'))|"
        + _COMMON
        + r"|(?P<other>[!#%&(-/:-@\[\]^{-~])|(?P<bad>.)"
    ),
}
_TEXT = re.compile(r'^ +""".*?"""', flags=re.S | re.M)


@lru_cache(200_000)
def _line(line: str, mark: str) -> tuple[tuple[str, str], ...]:
    """The tokens of one line."""
    found = []
    for m in _LEXERS[mark].finditer(line):
        kind = m.lastgroup or ""
        if kind == "bad" or mark == "//" and m.group().startswith(("/*", "*/")):
            raise AssertionError(f"{m.group()!r} stands in {line!r}")
        if kind not in ("comment", "space"):
            found.append((kind, m.group()))
    return tuple(found)


#: A macro of several lines.
_MACRO = re.compile(r"^#define (?:(?!//)[^\n])*\\\n(?:(?:(?!//)[^\n])*\\\n)*", re.M)


def tokens(source: str, target: str) -> list[tuple[str, str]]:
    """(kind, text) of every token but comments, with the indents of Python's lines.  Raises where the text does not lex.

    In the sources no string and no comment goes on behind its line, and no line is continued but a macro's, which holds no comment:
    so each line lexes alone, and those of the templates once.
    """
    mark = "#" if target == "triton" else "//"
    if target == "triton":
        source = _TEXT.sub(lambda m: m.group().replace("\n", " "), unbroken(source))
    else:
        source = _MACRO.sub(lambda m: m.group().replace("\\\n", " "), source)
        if re.search(r"(\\|\?\?/)[ \t\f\v]*\n", source):
            raise AssertionError("a line continues on the next")
    found: list[tuple[str, str]] = []
    depth = 0  # how many of Python's brackets are open
    for line in source.split("\n"):
        made = _line(line, mark)
        if mark == "#" and made:
            made = tuple(t for t in made if not depth or t[0] != "indent")
            depth += sum((t in ("(", "[", "{")) - (t in (")", "]", "}")) for kind, t in made if kind == "other")
            made = made if depth else (*made, ("end", ""))
        found += made
    return found


def judged_by_python(source: str) -> None:
    """Python's own tokenizer sees the names, numbers and strings that `tokens` sees; the text is a module."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source.encode()).readline)
    assert encoding == "utf-8"
    ast.parse(source.encode())
    kinds = {tokenize.NAME: "name", tokenize.NUMBER: "number", tokenize.STRING: "string"}
    theirs = [(kinds[t.type], t.string) for t in tokenize.tokenize(io.BytesIO(source.encode()).readline) if t.type in kinds]
    ours = [(kind, text) for kind, text in tokens(source, "triton") if kind in kinds.values()]
    if sys.version_info < (3, 12):  # later ones take f-strings apart
        assert [t for k, t in theirs if k != "string"] == [t for k, t in ours if k != "string"]
        assert len(theirs) == len(ours)


_ARROW, _SCOPE = [("other", "-"), ("other", ">")], [("other", ":"), ("other", ":")]


def well_printed(text: str) -> None:
    """Nothing in a source but printable characters, tabs and line ends."""
    for c in set(text):
        assert c.isprintable() or c in "\t\n" or c.isspace() and c not in "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029", (
            f"{c!r} stands in the source"
        )


@lru_cache(1000)
def analysed(source: str, target: str) -> tuple[list[tuple[str, str]], list[int], dict[tuple[int, str], list[int]]]:
    """A source's tokens, the scope of each, and where in a scope each name stands for a variable, a function or a type of its own."""
    stream = tokens(source, target)
    scope, places = scopes(target, stream), {}
    for k, (kind, x) in enumerate(stream):
        member = k and stream[k - 1][1] in (".", "template") or target != "triton" and stream[max(0, k - 2) : k] in (_ARROW, _SCOPE)
        keyword = target == "triton" and k + 1 < len(stream) and stream[k + 1][1] == "=" and stream[k - 1][1] in ("(", ",")
        attribute = [t for _, t in stream[max(0, k - 2) : k]] == ["[", "["]
        if kind == "name" and not member and not keyword and not attribute:
            places.setdefault((scope[k], x), []).append(k)
    return stream, scope, places


def compare(case: Case, hostile: str, harmless: str, target: str, slowly: bool = True) -> None:
    """The two sources as one token stream; within each function a name of the harmless one stands for one of the hostile one, and
    the other way round, so that none is taken for another."""
    well_printed(hostile)
    if target == "triton" and (slowly or "coding" in hostile[:2000]):
        judged_by_python(hostile)
    (a, scope, places), b = analysed(harmless, target), tokens(hostile, target)
    derived = re.compile("|".join(re.escape(good) for good, _ in sorted(case.pairs, key=lambda p: -len(p[0])) if len(good) > 1))
    changed = {k: (x, y) for k, ((_, x), (_, y)) in enumerate(zip(a, b, strict=False)) if x != y}
    forth: dict[tuple[int, str], str] = {}
    back: dict[tuple[int, str], str] = {}
    for k, (x, y) in changed.items():
        kind, said = a[k][0], f"token {k}: {x!r} became {y!r}"
        assert kind == b[k][0] and kind in ("name", "number", "string"), said
        plain = derived.sub(lambda m: case.names[m.group()], x).replace("_", "")
        shown = y.replace("_", "")
        if any(len(bad) > 50 and bad[:40] in y for _, bad in case.pairs) and len(x) < 30:
            plain = shown  # a derived kernel's names are cut where they would be too long
        if kind == "number":
            assert float(x) == float(y), said
        elif kind == "string":
            letters = [re.sub(r"\b[A-Z](?=(32)?\b)", "", z) for z in (plain, shown)]  # dtype variables
            assert plain == shown or letters[0] == letters[1] or re.search(r"L{40}|l{40}|n{40}", y), said  # a name that was cut
        else:
            letters = len(x) == 1 == len(shown) and x.isupper() and y[0].isupper()
            own = [re.fullmatch(r"[ts]\d+((?:_[a-z]+)*)_*", z) for z in (x, y)]  # a temporary, which gave way to a writer's name
            counted = own[0] and own[1] and own[0][1] == own[1][1]
            spelled = re.sub(r"(?<=_plus_)x[0-9a-f]{8}(?=_|$)", "", y).replace("_", "")  # of an axis whose number is spelled otherwise
            digest = spelled != shown and re.sub(r"(?<=plus)\d+", "", plain) == spelled
            assert plain == shown or letters or counted or digest, said
            if k in places.get((scope[k], x), ()):
                before = forth.setdefault((scope[k], x), y), back.setdefault((scope[k], y), x)
                assert before == (y, x), f"token {k}: {before[1]} is {before[0]}, and {x} is {y}"
    for (where, x), y in forth.items():
        assert all(k in changed for k in places[where, x]), f"{x} is {y}, and {x}"
        same = [k for k in places.get((where, y), ()) if k not in changed]
        assert not same, f"token {same[0]}: {y} is {x}, and {y}"
    assert len(a) == len(b)


def scopes(target: str, stream: list[tuple[str, str]]) -> list[int]:
    """For each token the number of the function (or other outermost part, or lambda without captures) in which it stands."""
    found, part, here, lambdas = [], 0, 0, []
    space: list[bool] = []
    for k, (kind, text) in enumerate(stream):
        if target == "triton":
            part += (kind, text) == ("name", "def") and stream[k - 1][0] == "end"
            found.append(part)
            continue
        if text == "[" and stream[k + 1][1] == "]" and stream[k - 1][1] in ("=", ",", "(") and stream[k + 2][1] == "(":
            part += 1
            lambdas.append((len(space), here))
            here = part
        found.append(here)
        if text == "{":
            opened = [t for _, t in stream[max(0, k - 3) : k]]
            space.append("namespace" in opened or opened[-1:] == ['"C"'])
        elif text == "}" and space:
            space.pop()
            if lambdas and lambdas[-1][0] == len(space):
                here = lambdas.pop()[1]
        if all(space) and text in ("}", ";"):
            part += 1
            here = part
    return found


# ------------------------------------------------------------------------------------------------ what must hold


@lru_cache(2048)
def harmless_sources(text: str, target: str, back: bool) -> tuple[str, ...]:
    kernel = check(parse(text, "t.k"))
    return rendered(kernel, target, back)


@contextmanager
def laid_out() -> Iterator[None]:
    """Lines laid out without regard to the length of names: every value on a line of its own, no line wrapped."""
    for found in pkgutil.iter_modules(backends.__path__):
        importlib.import_module(f"kgen.backends.{found.name}")
    modules = [m for name, m in sys.modules.items() if name.startswith("kgen.backends.") and hasattr(m, "wrapped")]
    before = body.MAX_INLINE, write._LINE, [m.wrapped for m in modules]
    body.MAX_INLINE, write._LINE = -1, 10**9
    for m in modules:
        m.wrapped = lambda head, items, tail, width=0: f"{head}({', '.join(items)}){tail}"
    try:
        yield
    finally:
        body.MAX_INLINE, write._LINE, kept = before
        for m, wrapped in zip(modules, kept, strict=True):
            m.wrapped = wrapped


def rendered(kernel: Kernel, target: str, back: bool) -> tuple[str, ...]:
    with laid_out():
        return _rendered(kernel, target, back)


def _rendered(kernel: Kernel, target: str, back: bool) -> tuple[str, ...]:
    kernels = [kernel]
    if back:
        try:
            made = backward(kernel)
            kernels += [made.forward, made.kernel] if made.forward is not kernel else [made.kernel]
        except KgenError:
            pass  # nothing to differentiate
    return tuple(backend(target).render(k) for k in kernels)


def hold(case: Case, targets: tuple[str, ...] | None = None, slowly: bool = True) -> bool:
    """Whether kgen took the hostile spec.  Raises `AssertionError` where its sources are more than the harmless one's renamed."""
    start = time.process_time()
    try:
        kernel = check(parse(case.hostile, case.name))
    except KgenError as error:
        said = str(error)
        assert error.diagnostics[0].span is not None or "longer than" in said or "no kernel here" in said, said
        well_printed(said)
        return False
    finally:
        assert time.process_time() - start < 1
    for target in targets or (case.target,):
        start = time.process_time()
        hostile = rendered(kernel, target, case.backward)
        assert time.process_time() - start < 3
        if case.wild:  # it was taken, with a meaning of its own
            for source in hostile:
                well_printed(source)
                tokens(source, target)
                if target == "triton":
                    judged_by_python(source)
            continue
        harmless = harmless_sources(case.harmless, target, case.backward)
        assert len(hostile) == len(harmless)
        for bad, good in zip(hostile, harmless, strict=True):
            compare(case, bad, good, target, slowly)
    return True


def run(first: int, count: int) -> tuple[int, int, list[tuple[int, str]]]:
    """How many cases there were, how many kgen took, and what failed (seed, why)."""
    taken, failed = 0, []
    for seed in range(first, first + count):
        try:
            taken += hold(Case(seed), slowly=seed % 10 == 0)
        except Exception as error:
            failed.append((seed, f"{type(error).__name__}: {error}"))
    return count, taken, failed


def main() -> None:
    import multiprocessing

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    start, done, taken, failures = time.time(), 0, 0, []
    step = 200
    blocks = [(k, min(step, options.first + options.cases - k)) for k in range(options.first, options.first + options.cases, step)]
    with multiprocessing.Pool(options.jobs) as pool:
        for count, some, failed in pool.imap_unordered(_run, blocks):
            done, taken = done + count, taken + some
            failures += failed
            for seed, why in failed[:5]:
                print(f"case {seed}: {why}", flush=True)
            if done % 2000 == 0 or done == options.cases:
                print(f"{done:,} cases, {taken:,} taken, {len(failures)} failed, {done / (time.time() - start):.1f} a second", flush=True)
    sys.exit(bool(failures))


def _run(block: tuple[int, int]) -> tuple[int, int, list[tuple[int, str]]]:
    return run(*block)


if __name__ == "__main__":
    main()
