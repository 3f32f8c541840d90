"""Whatever a file holds, the front end answers: a program, or a `KgenError`; never another exception, never a second's wait."""

import random
import re
import time
from pathlib import Path
from typing import ClassVar

import pytest

from kgen.check import check
from kgen.errors import KgenError
from kgen.lower import lower
from kgen.ops import OPS
from kgen.rewrite import rewrite
from kgen.syntax import parse
from kgen.typeset import format_file

SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.k"))
FUZZED = sorted((Path(__file__).parents[1] / "fuzzed").glob("*.k"))  # whose places, codes and scans few specs have
WRONG = sorted((Path(__file__).parents[1] / "errors").glob("*.k"))
TOKENS = re.compile(r"#[^\n]*|[A-Za-z_][A-Za-z0-9_]*'?|[0-9.]+|->|\.\.\.|//|<<|>>|[=!<>]=|\s+|.")
_WORDS = (
    "x y N M K T U ... T[N] f32[] i32[N] bool[N] u8[...] float int inf nan pi 0 1 -1 2.5 1e-400 1e400 0x1f 9223372036854775807 if else and or not "
    "+ - * / // % ^ ~ & | << >> < <= == != ( ) [ ] , : = -> ' # sum[N] mean[N] max[N] min[...] prod[N](x) any[N] argmax[N] pick[N] index[N] max min "
    "clamp where exp log softmax[N] logsumexp[N] var[N] std[N] norm[N] gelu elu stop i8 u8 i64 f16 bf16 f64 bool x' y' isnan signbit shl shr lgamma "
    "where N//2 W = x[N = index[N] - 1 else 0] [N = (index[N] + 2) % N] y[N = 0] [A = 2*B + C] uniform[N](0, 1) philox(1, 2, 3) cumsum[N] "
    "cumsum[N, reversed](x) recur[N](a, x) kth[N](x, 2) cutoff[N](x, 1, 3) reach[N](x, 3) f8e4m3 f8e5m2fnuz f8e8m0[up](x) f4e2m1 i4 u64 2*D G*128 "
    '\n \t \r \x00 \x0c é 𝐱 \ufeff \\ ; { } $ @ ! ? " ` **'
)
WORDS = [*_WORDS.split(" "), "\n", "g(a) = a + x\n", "g[D](a) = sum[D](a)\n", "y = x if x > 0 else 0\n", "z = g(x)\n"]


def mutate(rng: random.Random, text: str, other: str) -> str:
    kind = rng.randrange(4)
    if kind == 0:  # bytes
        data = bytearray(text.encode(errors="surrogatepass"))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.choice((0, 0, 1, 1, 5))] = bytes(
                rng.randrange(256) if rng.random() < 0.3 else rng.randrange(32, 127) for _ in range(rng.randrange(3))
            )
        return data.decode(errors=rng.choice(("replace", "ignore", "surrogateescape")))
    tokens = TOKENS.findall(text)
    if kind == 1:  # tokens
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(tokens) + 1)
            tokens[at : at + rng.choice((0, 1, 1, 2))] = [rng.choice(WORDS) for _ in range(rng.randrange(3))]
    elif kind == 2:  # tokens of the file moved and repeated
        for _ in range(rng.randint(1, 3)):
            a, b, at = rng.randrange(len(tokens)), rng.randrange(1, 12), rng.randrange(len(tokens) + 1)
            tokens[at:at] = tokens[a : a + b] * rng.choice((1, 1, 2))
    else:  # two files spliced, sometimes at line ends
        theirs = TOKENS.findall(other)
        if rng.random() < 0.5:
            mine, theirs = text.split("\n"), other.split("\n")
            rng.shuffle(theirs)
            at = rng.randrange(len(mine) + 1)
            return "\n".join(mine[:at] + theirs[: rng.randrange(len(theirs) + 1)] + mine[at:])
        tokens = tokens[: rng.randrange(len(tokens) + 1)] + theirs[rng.randrange(len(theirs) + 1) :]
    return "".join(tokens)


def answer(text: str) -> bool:
    """The whole front end over one text; whether it was accepted."""
    try:
        file = parse(text, "hostile.k")
        format_file(file)
        kernel = check(file)
    except KgenError as error:
        assert str(error).encode()
        return False
    for binding in kernel.bindings()[:2]:
        rewrite(lower(kernel, binding))
    return True


def test_mutated_specs_are_answered(request):
    """A few hundred mutants by default, `--fuzz` makes it 100,000; each takes less than a second."""
    seeds = [p.read_bytes().decode() for p in (*SPECS, *FUZZED)] + [t for p in WRONG if (t := p.read_bytes().decode()) and len(t) < 2_000]
    accepted = 0
    for k in range(100_000 if request.config.getoption("--fuzz", default=False) else 1_000):
        rng = random.Random(k)
        text = rng.choice(seeds)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            text = mutate(rng, text, rng.choice(seeds)) or "y"
        start = time.process_time()
        try:
            accepted += answer(text)
        except BaseException as error:
            error.add_note(f"mutant {k}:\n{text!r}")
            raise
        assert time.process_time() - start < 1, (k, text)
    assert accepted > 10


class Writer:
    """Writes random expressions that mostly check: `value(kind, depth)` is a float, an int or a bool."""

    leaves: ClassVar[dict[str, list[str]]] = {
        "float": ["x", "h", "d", "s", "a", "0.1", "2.", "1e-3", "pi", "inf", "nan", "x", "N / 2", "0.5^2"],
        "int": ["n", "u", "k", "N", "3", "-1", "index[N]", "0x10", "2^62"],
        "bool": ["b", "x > 0", "n == 1", "1 < 2", "N > 3", "isnan(h)", "b"],
    }

    def __init__(self, rng: random.Random):
        self.rng = rng

    def value(self, kind: str, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.1:
            return f"({rng.choice(self.leaves[kind])})"

        def a(of: str = kind) -> str:
            return self.value(of, depth - 1)

        other = rng.choice(("float", "int", "bool"))
        if rng.random() < 0.25:
            return rng.choice(
                (f"({a()} if {a('bool')} else {a()})", f"stop({a()})", f"max[N]({a()} + x * 0)" if kind == "float" else f"({a()})")
            )
        if kind == "bool":
            return (
                f"({a(other)} {rng.choice(('==', '!='))} {a(other)})"
                if rng.random() < 0.3
                else rng.choice(
                    (
                        f"({a('float')} < {a('int')})",
                        f"(not {a()})",
                        f"({a()} and {a()})",
                        f"({a()} | {a()})",
                        f"bool({a(other)})",
                        f"any[N](b & {a()})",
                        f"isfinite({a('float')})",
                    )
                )
            )
        if kind == "int":
            return rng.choice((f"({a()} {rng.choice('+-*%&|^')} {a()})", f"({a()} // {a()})", f"(-{a()})", f"(~{a()})", f"({a()} << {a()})", f"i8({a(other)})", f"u8({a(other)})",
                               f"i64({a(other)})", f"sum[N](n + {a()})", "argmax[N](x)", f"abs({a()})", f"clamp({a()}, 0, {a()})", f"sum[N](b | {a('bool')})", f"sign({a()})"))  # fmt: skip
        name = rng.choice(
            [n for n, op in OPS.items() if op.rule == "float" and n != "fma"]
            + ["floor", "round", "relu", "neg", "mod", "floordiv", "max", "clamp", "gelu", "mish"]
        )
        arity = OPS[name].arity if name in OPS else 1
        return rng.choice((f"({a()} {rng.choice('+-*/^%')} {a(rng.choice(('float', 'float', 'int')))})", f"{name}({', '.join(a() for _ in range(arity))})", f"(-{a()})", f"T({a(other)})",
                           f"f16({a(other)})", f"f64({a(other)})", f"{rng.choice(('sum', 'mean', 'prod', 'min', 'logsumexp', 'var'))}[N](x * {a()})", f"({a()} / 8)", f"{a()}^3"))  # fmt: skip


def test_random_programs_are_answered(request):
    """Every accepted program of random expressions lowers, is rewritten and verifies, for every choice of its dtypes."""
    accepted = 0
    for k in range(20_000 if request.config.getoption("--fuzz", default=False) else 100):
        rng = random.Random(k)
        kind = rng.choice(("float", "float", "int", "bool"))
        body, stored = Writer(rng).value(kind, rng.randint(1, 5)), {"float": "T", "int": "i64", "bool": "bool"}[kind]
        uses = "(x + h + d + s + a + n + u + k + (1 if b else 0)) * 0"
        text = f"f(x: T[..., N], h: f16[N], d: f64[], n: i32[..., N], u: u8[N], b: bool[N], s: float, a: T[], k: int) -> (y: {stored}[..., N], z: T[..., N])\n\n"
        text += f"y = {stored}({body})\nz = T({uses})\n"
        try:
            accepted += answer(text)
        except BaseException as error:
            error.add_note(f"program {k}:\n{text}")
            raise
    assert accepted > k // 2


@pytest.mark.parametrize("text", [
    "", "\n", "#", "\ufeff", "\x00", "y", "y =", "= y", "->", "...", "f()", "f() -> ", "f() -> y", "f() -> y: T[]", "f() -> y: f32[]\n\ny = 1", "f() -> y: f32[]\n\ny = index[N]",
    "f(x: T[]) -> y: T[]\n\ny = x", "f(x: T[]) -> y: T[]\n\ny = pos(x)", "f(x: T[]) -> x': T[]\n\nx' = x", "f(x: T[...]) -> y: T[]\n\ny = sum[...](x)", "f(x: T[..., N]) -> y: i64[]\n\ny = i64(var[..., N](x))",
    "f(x: T[..., N]) -> y: i64[..., N]\n\ny = argmax[...](x)", "f(x: T[..., N]) -> y: f64[..., N]\n\ny = x + index[N] / N", "f(x: T[N], n: int) -> y: T[N]\n\ny = x * (2^-1 + n^n + (1 // n) % 3)",
    "f(x: T[N]) -> y: T[N]\n\ny = x * (1 / (1 - 1) + log(0) + 0^-1 + inf - inf + sqrt(-1) + lgamma(-1) + digamma(0) + erfinv(2) + acosh(0) + 1e308 * 10)",
    "f(x: T[N]) -> y: T[N]\n\ny = x * ((-9223372036854775807 - 1) // -1 + (1 << 64) + (1 << -1) + (-1 >> 70) + abs(-9223372036854775807 - 1) + ~0 + 0x7fffffffffffffff * 3)",
    "f(x: T[N]) -> y: T[N]\n\ny = x * floor(1e300) + round(0.5) + trunc(-0.5) + sign(nan) + (1 if nan < 1 else 0) + (0 if isnan(1) or signbit(-1) else 1)",
    "f(b: bool[N]) -> y: bool[N]\n\ny = b + b * b | b & not b if 1 < 2 else any[N](b)", "f(x: T[M, N], t: i32[M]) -> y: T[]\n\ny = sum[M](pick[N](x, t))",
    "f(x: f16[N], y: bf16[N], z: f64[]) -> w: f16[N]\n\nw = x * y + z", "f(x: u8[N], y: i8[N]) -> w: i16[N]\n\nw = -x // y % 7 ^ 2 << 1",
    "f(x: T[N], w: U[N]) -> y: U[N]\n\ny = T(x * U(w)) + f16(x)", "f(x: T[N]) -> y: T[N]\n\nT(x) = x\ny = T(x)", "x(x: T[X]) -> y: T[X]\n\nX(X) = X\nx(x) = X(x)\ny = x(x)",
])  # fmt: skip
def test_odd_texts_are_answered(text):
    answer(text)
