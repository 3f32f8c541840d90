"""FPCores become specs that say the same, or are refused at their place; a check draws what the precondition allows and finds errors."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import kgen
from kgen.errors import KgenError, Source
from kgen.testing import checks
from kgen.testing.bounds import Analysis
from kgen.testing.fpbench import NoValue, Real, check, draw, main
from kgen.testing.fpcore import Conversion, convert, read


def one(text: str) -> Conversion:
    (found,) = convert(text)
    if found.error is not None:
        raise found.error
    return found


def body(expression: str, arguments: str = "x y", more: str = "") -> list[str]:
    """The spec's lines after its header."""
    spec = one(f"(FPCore ({arguments}) {more} {expression})").spec
    return [line for line in spec.split("\n") if line and not line.startswith("#")][1:]


# ---------------------------------------------------------------------- reading


def test_the_reader_knows_comments_strings_and_both_brackets() -> None:
    nodes = read(Source("f", '; a comment (\n(a [b "a \\" (c"] -1.5e3) word'))
    assert [str(n) for n in nodes] == ['(a (b "a \\" (c") -1.5e3)', "word"]
    assert nodes[1].span.start == 39


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("(FPCore (x) x", "never closed", "1:1"),
        ("(FPCore (x)\n x))", "closes nothing", "2:4"),
        ("(FPCore [x) x)", "closes nothing", "1:11"),
        ('(FPCore (x) :name "a x)', "never ends", "1:19"),
        ("(FPCore (x) x)\nx", "an FPCore is expected", "2:1"),
        ("(" * 200, "brackets are open", "1:151"),
    ],
)
def test_a_text_that_is_none_is_refused_at_its_place(text: str, message: str, place: str) -> None:
    with pytest.raises(KgenError, match=message) as raised:
        convert(text, "bench.fpcore")
    assert f"bench.fpcore:{place}\n" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message", "word"),
    [
        ("(FPCore (x) (while (< x 1) ([x x (+ x 1)]) x))", "`while`: kgen has no loops", "while"),
        ("(FPCore (x) (+ 1 (for ([i 3]) ([s 0 s]) s)))", "`for`: kgen has no loops", "for"),
        ("(FPCore (x) (tensor ([i 3]) x))", "no tensors", "tensor"),
        ("(FPCore ((v 3)) (ref v 0))", "no tensors", "("),
        ("(FPCore (x) (* x (digits 1 2 3)))", "no digits", "digits"),
        ("(FPCore (x) (tgamma x))", "no gamma function", "tgamma"),
        ("(FPCore (x) (bessel x))", "no operator `bessel`", "bessel"),
        ("(FPCore (x) (+ x z))", "`z` is not defined", "z"),
        ("(FPCore (x) (sqrt x x))", "`sqrt` takes 1 operand, not 2", "(sqrt"),
        ("(FPCore (x) (if x 1 0))", "`if` takes a condition", "(if"),
        ("(FPCore (x) (+ (< x 1) 1))", "takes numbers", "(<"),
        ("(FPCore (x) (and x (< x 1)))", "takes conditions", "(and"),
        ("(FPCore (x) :precision binary80 x)", "no precision binary80", "binary80"),
        ("(FPCore (x) (! :round toZero (+ x 1)))", "rounds to nearest", "toZero"),
        ("(FPCore () (+ 1 2))", "reads no argument", "(FPCore"),
        ("(FPCore (x) :pre)", "has no value", ":pre"),
        ("(FPCore (x) x x)", "ends with one expression", "x x"),
        ("(FPCore (x) (let ([y]) y))", "a binding is", "(y"),
    ],
)
def test_what_kgen_lacks_is_refused_where_it_stands(text: str, message: str, word: str) -> None:
    (found,) = convert(text)
    assert found.error is not None and message in str(found.error)
    span = found.error.diagnostics[0].span
    assert span is not None and text[span.start :].replace("[", "(").startswith(word)


# ---------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        ("(- (sqrt (+ x 1)) (sqrt x))", ["z = sqrt(x + 1) - sqrt(x)"]),
        ("(+ x y x 2)", ["z = x + y + x + 2"]),
        ("(- x (- y x))", ["z = x - (y - x)"]),
        ("(/ x (/ 1 3))", ["z = x / (1.0 / 3)"]),
        ("(* x 1/3)", ["z = x * (1 / 3)"]),
        ("(pow (- x) (* 2 y))", ["z = (-x)^(2 * y)"]),
        ("(* x 0x1.8p+1)", ["z = x * 3"]),
        ("(fabs (fma x y PI))", ["z = abs(fma(x, y, pi))"]),
        (
            "(if (< 0 x y 10) x (if (or (== x y) (isnan y)) 1 2))",
            ["z = x if 0 < x and x < y and y < 10 else 1.0 if x == y or isnan(y) else 2"],
        ),
        ("(!= x y 3)", ["z = x != y and x != 3 and y != 3"]),
        ("(not (and (<= x y) (>= x y)))", ["z = not (x <= y and x >= y)"]),
        ("(let ([a (+ x 1)] [x y]) (* a x))", ["a = x + 1", "z = a * y"]),
        ("(let* ([a (+ x 1)] [x (* a y)]) (- x a))", ["a = x + 1", "x_ = a * y", "z = x_ - a"]),
    ],
)
def test_expressions_are_written_as_kgen_writes_them(expression: str, lines: list[str]) -> None:
    assert [re.sub(r" +=", " =", line) for line in body(expression)] == lines


def test_precisions_are_dtypes_and_annotations_casts() -> None:
    assert "(x: f64[...]) -> y: f64[...]" in one("(FPCore (x) :precision binary64 (+ x 1))").spec
    assert "(x: f32[...]) -> y: f32[...]" in one("(FPCore (x) :type binary32 (+ x 1))").spec
    assert "x: T[...]" in one("(FPCore (x) (+ x 1))").spec and "-> y: bool[...]" in one("(FPCore (x) (< x 1))").spec
    mixed = one("(FPCore ((! :precision binary32 x)) :precision binary64 (+ x (! :precision binary32 (* x x))))")
    assert "x: f32[...]" in mixed.spec and "f64(x)" in mixed.spec and mixed.casts
    assert "f32(" in one("(FPCore (x) :precision binary64 (! :precision binary32 (cast x)))").spec


def test_names_are_made_legal_and_comments_come_from_the_properties() -> None:
    found = one("(FPCore (x' my-x y z lambda) :name \"Rump's (1/2)\" :cite (rump-1988) :pre (< 0 x') (+ x' my-x y z lambda))")
    assert found.spec.startswith(
        "# Rump's (1/2)\n# cite: (rump-1988)\n# pre: (< 0 x')\nRump_s_1_2(x: T[...], my_x: T[...], y: T[...], z: T[...], "
    )
    assert found.names["x'"] == "x" and found.names["my-x"] == "my_x" and kgen.loads(found.spec)
    first, second = convert('(FPCore (x) :name "f" x) (FPCore f (x) x)')
    assert first.spec.split("(")[0] == "# f\nf" and "\nf(" not in second.spec


def values(text: str, **given: Any) -> torch.Tensor:
    arguments = {k: torch.as_tensor(v, dtype=torch.float64) for k, v in given.items()}
    return kgen.loads(one(text).spec)(**arguments, target="torch")


def test_cs_functions_that_kgen_lacks_are_exact() -> None:
    """Against the C library, through Python's math."""
    a = [5.5, -5.5, 7.0, -7.0, 0.5, 1e17, -0.0, 2.5, -2.5, 3.5]
    b = [3.0, 3.0, -2.0, 2.0, 1.0, 3.0, 2.0, 1.0, 1.0, 1.0]
    for op, reference in {"fmod": math.fmod, "remainder": math.remainder}.items():
        want = [reference(x, y) for x, y in zip(a, b, strict=True)]
        got = values(f"(FPCore (x y) ({op} x y))", x=a, y=b).tolist()
        assert got == want and [math.copysign(1, g) for g in got] == [math.copysign(1, w) for w in want]
    away = values("(FPCore (x) (round x))", x=[0.5, -0.5, 1.5, 2.5, 0.49999999999999994, -3.2, 2.0**52 + 1])
    assert away.tolist() == [1, -1, 2, 3, 0, -3, 2.0**52 + 1]
    assert values("(FPCore (x y) (fmax x y))", x=[math.nan, 1, 2], y=[3, math.nan, 5]).tolist() == [3, 1, 5]
    assert values("(FPCore (x y) (fmin x y))", x=[math.nan, 1, 2], y=[3, math.nan, 5]).tolist() == [3, 1, 2]
    assert values("(FPCore (x y) (fdim x y))", x=[3, 1], y=[1, 3]).tolist() == [2, 0]


# ---------------------------------------------------------------------- the real value and the arguments


@pytest.mark.parametrize(
    ("expression", "x", "want"),
    [
        ("(- (sqrt (+ x 1)) (sqrt x))", 1e15, 1.5811388300841893e-08),  # mpmath, by hand
        ("(fmod x 3)", 1e17, 1.0),
        ("(remainder x 3)", 5.0, -1.0),
        ("(round x)", -2.5, -3.0),
        ("(let* ([a x] [b (* a a)]) (if (< 1 b 5) b a))", 2.0, 4.0),
        ("(lgamma x)", 0.5, 0.5723649429247001),
        ("(* x 0x1p-3)", 8.0, 1.0),
    ],
)
def test_the_real_value_is_the_real_one(expression: str, x: float, want: float) -> None:
    found = one(f"(FPCore (x) {expression})")
    assert found.body is not None and float(Real()(found.body, {"x": x})) == pytest.approx(want, rel=1e-15, abs=0)


@pytest.mark.parametrize("expression", ["(log x)", "(/ 1 x)", "(exp (exp (exp (+ x 50))))", "(sqrt (- x 1))", "(acos (- x 2))"])
def test_where_there_is_no_real_value_none_is_made_up(expression: str) -> None:
    found = one(f"(FPCore (x) {expression})")
    assert found.body is not None
    with pytest.raises(NoValue):
        Real()(found.body, {"x": 0.0})


def test_arguments_satisfy_the_precondition_and_spread() -> None:
    found = one("(FPCore (x y) :pre (and (< 1e-3 x 100) (<= -5 y) (< y x) (not (== x 1))) (+ x y))")
    cases = draw(found, 200, {"x": "f64", "y": "f32"}, 3)
    assert len(cases) == 200 and cases == draw(found, 200, {"x": "f64", "y": "f32"}, 3) != draw(found, 200, {"x": "f64", "y": "f32"}, 4)
    assert all(1e-3 < c["x"] < 100 and -5 <= c["y"] < c["x"] for c in cases)
    assert all(torch.tensor(c["y"], dtype=torch.float32).item() == c["y"] for c in cases)
    x = sorted(c["x"] for c in cases)
    assert x[0] < 0.01 and x[-1] > 80 and min(c["y"] for c in cases) < -3
    with pytest.raises(KgenError, match="no arguments were found that satisfy"):
        check(one("(FPCore (x) :pre (and (< x 1) (> x 2)) x)"), "torch", 1)


# ---------------------------------------------------------------------- the check

BENCH = """
(FPCore (x) :name "hidden cancellation" :pre (< 1 x 1e12) (- (sqrt (+ x 1)) (sqrt x)))
(FPCore (a b c) :name "root of a quadratic" :pre (and (< 0.1 a 10) (< 20 b 1e4) (< -10 c 10))
  (let ([d (sqrt (- (* b b) (* 4 a c)))]) (/ (- d b) (* 2 a))))
(FPCore (x y) :name "mixed" :precision binary32 (if (< x y) (exp (- (fabs x))) (atan2 x (hypot x y))))
(FPCore (x) :name "loop" (while (< x 10) ([x x (* x 2)]) x))
"""


def test_a_check_holds_each_dtype_within_its_bound() -> None:
    for found in convert(BENCH)[:3]:
        rows = check(found, "torch", 60)
        assert [r.dtype for r in rows] == (["f32"] if found.name == "mixed" else ["f64", "f32"])
        for row in rows:
            assert not row.failure and row.cases == 60 and 0 < row.worst <= row.bound and 0 < row.fraction <= 1


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real value alone, and by kgen's own reading."""
    found, load = one('(FPCore (x) :name "square" :precision binary64 (+ (* x x) 1))'), kgen.loads
    other = load(found.spec.replace("x * x", "x * x * 1.000001"))
    monkeypatch.setattr("kgen.runtime.kernel.loads", lambda _: other)
    (row,) = check(found, "torch", 40)  # the kernel's own reading agrees with it
    assert "exactly" in row.failure
    right = load(found.spec)

    def wrong(*args: Any, **named: Any) -> torch.Tensor:
        return right(*args, **named) * 1.000001

    monkeypatch.setattr("kgen.runtime.kernel.loads", lambda _: type("K", (), {"kernel": right.kernel, "__call__": staticmethod(wrong)})())
    (row,) = check(found, "torch", 40)
    assert row.failure


def test_the_command_writes_specs_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "b.fpcore").write_text(BENCH)
    made = CliRunner().invoke(
        main, [str(tmp_path / "b.fpcore"), "-o", str(tmp_path / "out"), "--check", "--target", "torch", "--cases", "5"]
    )
    assert made.exit_code == 0, made.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["hidden_cancellation.k", "mixed.k", "root_of_a_quadratic.k"]
    for path in (tmp_path / "out").iterdir():
        kgen.load(path)
    lines = made.output.splitlines()
    assert lines[0].split("  ")[0] == "name" and "bound ulp" in lines[0]
    assert sum(line.startswith(("hidden cancellation", "root of a quadratic", "mixed")) for line in lines) == 5
    assert "refused: loop: `while`: kgen has no loops" in lines and lines[-1] == "4 FPCores, 3 checked, 0 failed, 1 refused"
    shown = CliRunner().invoke(main, [str(tmp_path / "b.fpcore")])
    assert (
        shown.exit_code == 0 and "4 FPCores, 3 converted, 0 failed, 1 refused" in shown.output and "sqrt(x + 1) - sqrt(x)" in shown.output
    )
    assert CliRunner().invoke(main, [str(tmp_path / "none.fpcore")]).exit_code == 1


@pytest.mark.slow
def test_a_check_of_generated_code() -> None:
    for found in convert(BENCH)[:3]:
        assert not [r.failure for r in check(found, "cpp", 200) if r.failure]


# ---------------------------------------------------------------------- bounds that the real value found wrong


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_bounds_near_poles_and_jumps_hold(dtype: str) -> None:
    """Errors of an operand that reach a pole or a jump: the bound is infinite, a whole period, or says that NaN may be."""
    torch.manual_seed(0)
    kind = {"f32": torch.float32, "f64": torch.float64}[dtype]
    large = (torch.randn(300) * 1e9).to(kind)
    x, z = torch.randn(300).to(kind) * (1e7 if dtype == "f32" else 5e15), torch.randn(300).to(kind)
    for expression in ("((x + z) - x)^-3", "lgamma((x + z) - x)", "digamma((x + z) - x)", "atan2((x + z) - x, (x - z) - x)",
                       "sqrt((x / x - 1) / (z / z - 1))"):  # fmt: skip
        holds(f"k(x: {dtype}[...], z: {dtype}[...]) -> y: {dtype}[...]\ny = {expression}\n", x=x, z=z * 2)
    for expression in ("(x / 3 * 7.1) % 1.0", "tan(x / 3 * 7.1)"):
        for scale in (1, 1e-8):
            holds(f"k(x: {dtype}[...]) -> y: {dtype}[...]\ny = {expression}\n", x=large * scale)


def holds(text: str, **given: torch.Tensor) -> None:
    kernel = kgen.loads(text)
    (want,) = Analysis(kernel.kernel, given, "cpp").results()
    (eager,) = kgen.runtime.evaluate.Evaluator(kernel.kernel, given, "eager").run()
    assert not str(checks.compare(kernel(**given, target="torch"), want, eager, checks.Report("k", "torch"))), text
