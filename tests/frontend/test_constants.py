"""Integers that the writer wrote are exact or an error at their place, whatever makes them; what depends on a run-time int wraps as i64."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgen
from kgen.check import check
from kgen.errors import KgenError
from kgen.ir import exact
from kgen.lower import lower
from kgen.rewrite import rewrite
from kgen.runtime.evaluate import Evaluator
from kgen.syntax import parse
from kgen.testing.bounds import Analysis
from kgen.types import DTYPES

torch = pytest.importorskip("torch")


def refused(text: str, place: str) -> str:
    """The error of `y = text`, which must underline `place`."""
    with pytest.raises(KgenError) as caught:
        check(parse(text, "t"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span is not None
    assert text[diagnostic.span.start : diagnostic.span.end] == place
    return diagnostic.message


@pytest.mark.parametrize("body, place", [
    ("9^9^9^9 * x", "9^9^9"), ("x * (9223372036854775807 + 1)", "(9223372036854775807 + 1)"), ("x * (3037000500 * 3037000500)", "(3037000500 * 3037000500)"),
    ("x * (-9223372036854775807 - 2)", "(-9223372036854775807 - 2)"), ("x * (1 << 63)", "(1 << 63)"), ("x * (1 << 1000000)", "(1 << 1000000)"),
    ("x * abs(-9223372036854775807 - 1)", "abs(-9223372036854775807 - 1)"), ("x - -(-9223372036854775807 - 1)", "-(-9223372036854775807 - 1)"),
    ("x * ((-9223372036854775807 - 1) // -1)", "((-9223372036854775807 - 1) // -1)"), ("x * (max(2^62, 1) * 4)", "(max(2^62, 1) * 4)"),
    ("x * (4 * (2^62 if 1.5 > 1 else 0))", "(4 * (2^62 if 1.5 > 1 else 0))"), ("x * 10^19", "10^19"), ("x * (i64(2^62) * 4)", "(i64(2^62) * 4)"),
    ("x * 9223372036854775808", "9223372036854775808"), ("x * i8(300)", "300"), ("x * u8(-1)", "-1"), ("x * (i8(100) + i8(100))", "(i8(100) + i8(100))"),
    ("x * 2^-1", "2^-1"), ("x * (1 << -1)", "(1 << -1)"), ("x * (7 // (3 - 3))", "(3 - 3)"), ("x * (7 % (1 - 1))", "(1 - 1)"), ("x * 1e400", "1e400"),
])  # fmt: skip
def test_what_no_dtype_holds_is_refused_at_its_place(body: str, place: str) -> None:
    assert (
        "fit" in (said := refused(f"f(x: T[N]) -> y: T[N]\n\ny = {body}\n", place))
        or "large" in said
        or "zero" in said
        or "negative" in said
    )


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32"])
def test_a_constant_that_meets_a_narrow_tensor_fits_it(dtype: str) -> None:
    low, high = DTYPES[dtype].limits
    for body in ("x + {}", "max(x, {})", "{} if x > 0 else x", "clamp(x, 0, {})", "i32(x > {})", "x ^ {}", "x << {}", "{}"):
        result = "i32" if "i32" in body else dtype
        text = f"f(x: {dtype}[N]) -> y: {result}[N]\n\ny = "
        check(parse(text + body.format(high)))
        assert "does not fit" in refused(text + body.format(high + 1), str(high + 1))
    text = f"f(x: {dtype}[N]) -> y: {dtype}[N]\n\ny = "
    check(parse(text + f"x * {low}"))
    assert "does not fit" in refused(text + f"x * {low - 1}", str(low - 1))
    check(parse(text + f"x & ~3 | {2 * (high + 1) - 1 if low else high}"))  # a mask's bits may stand for another number


_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod, "<<": operator.lshift,
              ">>": operator.rshift, "^": operator.pow, "&": operator.and_, "|": operator.or_}  # fmt: skip
_WRITTEN = st.sampled_from([0, 1, 2, 3, 7, 62, 63, 64, 127, 255, 2**31, 2**53 + 1, 2**62, 2**63 - 1])


def _grown(inner):
    pairs = st.tuples(st.sampled_from(sorted(_OPERATORS)), inner, inner)
    return st.one_of(
        pairs, st.tuples(st.sampled_from(["-", "abs", "~", "sign"]), inner), st.tuples(st.sampled_from(["max", "min"]), inner, inner)
    )


def _text(tree) -> str:
    if isinstance(tree, int):
        return str(tree)
    name, *args = tree
    shown = [f"({_text(a)})" for a in args]
    return (
        f"{shown[0]} {name} {shown[1]}"
        if len(args) == 2 and name in _OPERATORS
        else f"{name}{shown[0]}"
        if len(args) == 1
        else f"{name}({', '.join(shown)})"
    )


def _value(tree) -> int | None:
    """What a tree is in mathematics; None where that, or a part of it, is no integer of 64 bits."""
    if isinstance(tree, int):
        return tree
    name, *given = tree
    args = [_value(a) for a in given]
    if None in args:
        return None
    if name in ("<<", "^") and args[1] > 64 and abs(args[0]) > (name == "^") or name == "^" and args[1] < 0 and abs(args[0]) != 1:
        return None
    try:
        one = {"-": operator.neg, "abs": abs, "~": operator.invert, "sign": lambda x: (x > 0) - (x < 0)}
        found = one[name](*args) if len(args) == 1 else {**_OPERATORS, "max": max, "min": min}[name](*args)
    except (ZeroDivisionError, ValueError):
        return None
    return int(found) if -(2**63) <= found < 2**63 else None


@settings(max_examples=150, deadline=None)
@given(st.recursive(_WRITTEN, _grown, max_leaves=6))
def test_integers_of_integers_are_exact_or_refused(tree) -> None:
    """In the folded program, and in what the evaluator takes."""
    text, want = f"f(x: i64[N]) -> y: i64[N]\n\ny = where(x == x, {_text(tree)}, x)\n", _value(tree)
    if want is None:
        with pytest.raises(KgenError):
            check(parse(text))
        return
    program = rewrite(lower(check(parse(text)), {}))
    assert [int(exact(let.expr.attrs[0])) for let in program.lets if let.expr.name == "lit"] == [want]


@pytest.mark.usefixtures("built_quickly")
def test_what_depends_on_a_run_time_int_wraps_as_a_tensor_of_i64_does() -> None:
    k = kgen.loads("f(x: i64[N], n: int) -> (y: i64[N], z: i64[N])\n\ny = x * 0 + n * n + N^40\nz = x - (n << 40) + abs(-n)\n")
    x = torch.arange(9)
    for n in (3, 2**40 + 1, -(2**63), 2**63 - 1):
        t = torch.tensor(n)
        y, z = k(x, n)
        assert torch.equal(y, x * 0 + t * t + torch.tensor(9) ** 40)
        assert torch.equal(z, x - (t << 40) + (-t).abs())


def test_the_decorators_integers_are_refused_in_the_python_source() -> None:
    def huge(x: T[N]) -> T[N]:  # type: ignore[name-defined, type-arg, valid-type] # noqa: F821
        return 9**9**9**9 * x

    with pytest.raises(KgenError) as caught:
        kgen.kernel(huge)
    assert "test_constants.py" in str(caught.value) and "9**9**9" in str(caught.value) and "^^^" in str(caught.value)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f8e5m2", "f8e8m0"])
@pytest.mark.parametrize("target", ["torch", "cpp"])
@pytest.mark.usefixtures("built_quickly")
def test_a_number_alone_is_rounded_to_f32_before_it_is_stored(dtype: str, target: str) -> None:
    """It is computed in f32, where 2^-40 beside a tie is lost: what is stored is the tie's even neighbour; by name it is rounded once."""
    tie = 0.5 if dtype == "f8e8m0" else 2.0 ** -{"f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}[dtype]
    text = f"1 + {tie!r} {'-' if dtype == 'f8e8m0' else '+'} 2.0^-40"
    kernel = kgen.loads(f"f(x: f32[N]) -> (y: {dtype}[], z: {dtype}[], all: f32[N])\n\ny = {text}\nz = {dtype}({text})\nall = x\n")
    y, z, _ = kernel(torch.ones(2), target=target)
    even, odd = (2.0, 1.0) if dtype == "f8e8m0" else (1.0, 1 + 2 * tie)
    assert (float(y), float(z)) == (even, odd)
    (exact_y, *_), (read, *_) = Analysis(kernel.kernel, {"x": torch.ones(2)}, "cpp").results(), Evaluator(kernel.kernel, {"x": torch.ones(2)}).run()
    assert float(read) == even and abs(even - float(exact_y.exact)) <= float(exact_y.bound) < 1.001 * tie
