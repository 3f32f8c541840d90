"""T32, the dtype in which T is computed: what it stands for, where it may stand, and that it is computed as T is."""

from __future__ import annotations

import pytest

from kgen.check import check
from kgen.lower import generic, lower
from kgen.schedule import schedule
from kgen.syntax import parse
from kgen.types import DTYPES, VARIABLE, Float, bf16, f16, f32, f64, is_variable, is_wide, promote, resolve, resolve_named, variable_of
from kgen.typeset import format_file

NORM = """norm(x: T[..., N], rstd: T32[...]) -> (y: T[..., N], s: T32[...])

y = x * rstd
s = sum[N](y)
"""


def kernel(text: str):
    return check(parse(text))


def test_t32_is_what_t_is_computed_in():
    for dtype in VARIABLE:
        computed = Float(frozenset({"T"})).compute({"T": dtype})
        assert resolve("T32", {"T": dtype}) is computed is Float(frozenset({"T32"})).compute({"T": dtype})
        assert resolve_named("T32", {"T": dtype.name}) is computed
    assert [resolve("T32", {"T": d}) for d in (f16, bf16, f32, f64)] == [f32, f32, f32, f64]


@pytest.mark.parametrize(
    ("name", "of"), [("T", "T"), ("T32", "T"), ("U32", "U"), *((d, "") for d in DTYPES), ("t32", ""), ("TT32", ""), ("T64", "")]
)
def test_the_variable_of_a_name(name: str, of: str):
    assert variable_of(name) == of
    assert is_variable(name) == (name == of)
    assert is_wide(name) == (bool(of) and name != of)


def test_a_parameter_of_t32_declares_no_variable():
    k = kernel("f(s: T32[N], x: T[N], r: U32[], u: U[N]) -> y: T32[N]\n\ny = x * s + u * r\n")
    assert k.variables == ("T", "U")
    assert len(k.bindings()) == 16


def test_t32_is_computed_as_t_is():
    assert generic(Float(frozenset({"T32"}))) == "T" == generic(Float(frozenset({"T", "T32"})))
    assert generic(Float(frozenset({"T32", "U", "f32"}))) == "T+U"
    assert generic(Float(frozenset({"T32", "f64"}))) == ""
    wide, narrow = Float(frozenset({"T32"})), Float(frozenset({"bf16"}))
    assert promote([(wide, True), (narrow, True)]) == Float(frozenset({"T32", "bf16"}))
    assert promote([(wide, False), (narrow, True)]) == narrow  # a 0-d tensor is weak, whatever its dtype


@pytest.mark.parametrize("dtype", VARIABLE, ids=str)
def test_programs_store_and_load_it_as_it_is(dtype):
    program = lower(kernel(NORM), {"T": dtype})
    wide = f64 if dtype is f64 else f32
    assert {t.name: t.dtype for t in program.tensors} == {"x": dtype, "rstd": wide}
    assert {s.result: s.dtype for s in program.stores} == {"y": dtype, "s": wide}
    assert {let.generic for let in program.lets} == {"T"}
    assert [let.expr for let in program.lets] == [let.expr for let in lower(kernel(NORM), {"T": f32}).lets]
    for w in schedule(program).workspaces:
        assert w.dtype({"T": dtype.name}) == wide.name


def test_a_cast_to_it_rounds_nothing():
    """It is no operation on what T is computed in, and one conversion on anything else."""
    k = kernel(
        "f(x: T[N], s: T32[N], i: i32[N], d: f64[N]) -> (y: T32[N], z: T32[N], w: T32[N])\n\ny = T32(x * s)\nz = T32(i)\nw = T32(d)\n"
    )
    for dtype in VARIABLE:
        program = lower(k, {"T": dtype})
        casts = [let for let in program.lets if let.expr.name == "cast"]
        assert [(let.dtype, let.generic) for let in casts] == [(resolve("T32", {"T": dtype}), "T")] * 2


def test_it_is_kept_by_fmt():
    assert format_file(parse(NORM)) == NORM


@pytest.mark.parametrize(
    "text",
    [
        "f(x: T[M], d: f32[M]) -> dx: T[M]\n\ndx = 2 * d\n",
        "f(x: T[M], d: f32[M]) -> dx: T32[M]\n\ndx = 2 * d\n",
        "f(x: T[M], d: T32[M]) -> dx: T32[M]\n\ndx = 2 * d\n",
        "f(x: T[M], d: f32[M]) -> dx: f32[M]\n\ndx = T(2 * d)\n",
        "f(x: T[M], d: f32[M]) -> dx: f32[M]\n\ndx = d * size[M](x)\n",
    ],
)
def test_a_parameter_may_be_there_for_its_dtype_or_its_size_alone(text: str):
    assert [p.name for p in kernel(text).params] == ["x", "d"]


def test_a_size_along_several_dims():
    k = kernel("f(x: T[..., M, N]) -> y: T32[]\n\ny = sum[..., N, M](x) / size[..., N, M](x)\n")
    assert {str(v.attr) for v in k.values if v.op == "size"} == {"...", "M", "N"}
