"""Lowering: the program says every conversion, shares values by structure, and is the same shape for every dtype."""

import subprocess
import sys
from pathlib import Path

import pytest

from kgen.check import check
from kgen.ir import Broken, Op, Program, Ref, exact, literal_of, renumber, verify
from kgen.lower import lower
from kgen.syntax import parse
from kgen.types import DTYPES, DType, bf16, f16, f32, f64

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.k"))


def program(text: str, **binding: DType) -> Program:
    return lower(check(parse(text)), binding)


GOLDEN = {
    "softmax": ("softmax(x: T[..., N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = e / sum[N](e)\n", {"T": bf16}, """\
softmax(x: T[..., N]) -> y: T[..., N]  where T = bf16
  %0: f32[..., N] = load x
  %1: f32[...] = max[N] %0
  %2: f32[..., N] = sub %0 %1
  %3: f32[..., N] = exp %2    # e
  %4: f32[...] = sum[N] %3
  %5: f32[..., N] = div %3 %4    # y
  store y %5"""),
    "momentum": (("momentum(p: T[...], g: T[...], m: f32[...], t: int, b: float) -> (p': T[...], m': f32[...])\n\n"
                  "m' = b * m + (1 - b) * g\np' = p - m' / (1 - b^t)\n"), {"T": f16}, """\
momentum(p: T[...], g: T[...], m: f32[...], t: int, b: float) -> (p': T[...], m': f32[...])  where T = f16
  %0: f32[...] = load p
  %1: f32[...] = load g
  %2: f32[...] = load m
  %3: int = arg t
  %4: float = arg b
  %5: f32[] = cast %4
  %6: f32[...] = mul %5 %2
  %7: int = lit 1
  %8: float = sub %7 %4
  %9: f32[] = cast %8
  %10: f32[...] = mul %9 %1
  %11: f32[...] = cast %6
  %12: f32[...] = add %11 %10    # m'
  %13: float = pow %4 %3
  %14: float = sub %7 %13
  %15: f32[] = cast %14
  %16: f32[...] = div %12 %15
  %17: f32[...] = sub %0 %16    # p'
  store p' %17
  store m' %12"""),
    "quantise": ("f(q: i8[N], s: f16[], n: int) -> y: u8[N]\n\ny = u8(clamp(round(q * s / n), 0, 255))\n", {}, """\
f(q: i8[N], s: f16[], n: int) -> y: u8[N]
  %0: i8[N] = load q
  %1: f32[] = load s
  %2: int = arg n
  %3: f32[N] = cast %0
  %4: f32[N] = mul %3 %1
  %5: f32[] = cast %2
  %6: f32[N] = div %4 %5
  %7: f32[N] = round %6
  %8: int = lit 0
  %9: int = lit 255
  %10: f32[] = cast %8
  %11: f32[] = cast %9
  %12: f32[N] = clamp %7 %10 %11
  %13: u8[N] = cast %12    # y
  store y %13"""),
    "cross_entropy": ("loss(x: T[M, V], t: i64[M]) -> y: f32[M]\n\ny = logsumexp[V](x) - pick[V](x, t)\n", {"T": f64}, """\
loss(x: T[M, V], t: i64[M]) -> y: f32[M]  where T = f64
  %0: f64[M, V] = load x
  %1: i64[M] = load t
  %2: f64[M] = max[V] %0
  %3: f64[M] = stop %2
  %4: bool[M] = isfinite %3
  %5: int = lit 0
  %6: f64[] = cast %5
  %7: f64[M] = where %4 %3 %6
  %8: f64[M, V] = sub %0 %7
  %9: f64[M, V] = exp %8
  %10: f64[M] = sum[V] %9
  %11: f64[M] = log %10
  %12: f64[M] = add %11 %7
  %13: f64[M] = pick[V] %0 %1
  %14: f64[M] = sub %12 %13    # y
  store y %14"""),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDEN)
def test_programs_read_so(name):
    text, binding, want = GOLDEN[name]
    assert str(program(text, **binding)) == want


def test_adamw_computes_its_numbers_on_the_host():
    """`1 - b1^t` and its kin are host numbers; the only vector pow is the square of the gradient."""
    p = program((SPECS[0].parent / "adamw.k").read_text(), T=bf16)
    numbers = [let.expr.name for let in p.lets if let.is_number]
    assert numbers.count("pow") == 2
    assert [let.expr.name for let in p.lets if not let.is_number].count("pow") == 1
    assert {s.state for s in p.stores} == {"p", "m", "v"}


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_programs_of_all_dtypes_have_one_shape(path):
    """The same lets in the same order whatever the dtype variables stand for, so that one text can serve them all."""
    kernel = check(parse(path.read_text(), path.name))
    shapes = {tuple((let.name, let.expr, let.dims, let.label, let.generic) for let in lower(kernel, b).lets) for b in kernel.bindings()}
    assert len(shapes) == 1


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_sixteen_bit_floats_are_computed_in_f32_and_f64_in_f64(path):
    kernel = check(parse(path.read_text(), path.name))
    for binding in kernel.bindings():
        computed = {let.dtype for let in lower(kernel, binding).lets if isinstance(let.dtype, DType) and let.dtype.is_float}
        assert computed <= ({f32, f64} if f64 in binding.values() else {f32})


def test_values_are_shared_by_structure():
    """Equal expressions are one let, a value written twice in the source included; `verify` binds each name once."""
    p = program("f(x: T[N]) -> (y: T[N], z: T[N])\n\ny = exp(x) * 2 + exp(x) * 2\nz = exp(x) * 2\n", T=f32)
    assert [let.expr.name for let in p.lets].count("exp") == 1
    assert len({(let.expr, let.dtype, let.dims, let.generic) for let in p.lets}) == len(p.lets)


def test_a_value_that_no_result_needs_is_left_out():
    p = program("f(x: T[N], like: T[N]) -> y: T[N]\n\ng = exp(like)\ny = x + (g - g) * 0\n", T=f32)
    assert all(
        any(let.name in (o.name for o in other.expr.operands) for other in p.lets) or let.name in {s.ref for s in p.stores}
        for let in p.lets
    )


def test_a_cast_by_name_rounds_and_goes_on_in_f32():
    p = program("f(x: f32[N]) -> y: f32[N]\n\ny = f16(x) + 1\n")
    assert [str(let.dtype) for let in p.lets if let.expr.name == "cast" and let.dims] == ["f16", "f32"]


@pytest.mark.parametrize(("numbers", "dtype"), [("1", "i64"), ("1.5", "f32"), ("1 < 2", "bool")])
def test_numbers_chosen_element_by_element_have_torchs_dtype(numbers, dtype):
    """`1 if x > 0 else 0` is no host number: torch.where gives it the default dtype of its kind."""
    p = program(f"f(x: T[N]) -> y: {dtype}[N]\n\ny = {numbers} if x > 0 else {numbers}\n", T=f64)
    assert p.lets[-1].expr.name == "where"
    assert p.lets[-1].dtype is DTYPES[dtype]


def test_sums_of_integers_and_bools_accumulate_in_i64():
    p = program("f(x: u8[N], b: bool[N]) -> (y: i64[], z: i64[])\n\ny = sum[N](x)\nz = sum[N](b)\n")
    assert all(p.by_name[let.expr.operands[0].name].dtype is DTYPES["i64"] for let in p.lets if let.expr.name == "sum")


def test_nodes_are_inert():
    """Nodes are compared and printed, and none is evaluated: `x - x` and `exp(log(x))` stay what was written."""
    p = program("f(x: T[N]) -> y: T[N]\n\ny = (x - x) + exp(log(x)) * 0 + x / x\n", T=f32)
    names = [let.expr.name for let in p.lets]
    assert names == ["load", "sub", "log", "exp", "lit", "cast", "mul", "add", "div", "add"]


def test_nodes_are_compared_by_structure_and_do_not_change():
    a = Op("sum", "N", Ref("%1"))
    assert a == Op("sum", "N", Ref("%1")) and hash(a) == hash(Op("sum", "N", Ref("%1")))
    assert a not in (Op("sum", "M", Ref("%1")), Op("sum", "N", Ref("%2")), Op("max", "N", Ref("%1")), Ref("%1"), "sum")
    assert (str(a), str(a.renamed({"%1": "%7"})), str(Op("lit", "0.5"))) == ("sum[N] %1", "sum[N] %7", "lit 0.5")
    with pytest.raises(AttributeError):
        a.name = "max"


@pytest.mark.parametrize(
    ("node", "means"),
    [
        (Op("sub", Ref("a"), Ref("b")), "a - b"),
        (Op("sub", Ref("b"), Ref("b")), "0"),
        (Op("exp", Ref("%0")), "exp(%0)"),
        (Op("lit", "0.5"), "1/2"),
        (Op("const", "pi"), "pi"),
        (Op("sum", "N", Ref("a")), "sum(N, a)"),
        (Op("load", "x"), "load(x)"),
    ],
)
def test_sympy_is_told_what_a_node_means(node, means):
    import sympy

    assert str(sympy.sympify(node)) == means


def test_the_way_to_a_source_needs_no_sympy():
    """Nor NumPy: what imports either later, with Triton or torch, is none of kgen's."""
    code = (
        "import kgen, sys\n"
        "for name in ('softmax', 'gelu'):\n"
        "    for target in ('cuda', 'triton', 'cpp'):\n"
        "        assert kgen.load(name).source(target)\n"
        "print(sorted({'sympy', 'mpmath', 'numpy', 'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", "1/10"),
        ("1.", "1"),
        (".5", "1/2"),
        ("1.e3", "1000"),
        ("2.E-1", "1/5"),
        ("0x10", "16"),
        ("0x1.8p+1", "3"),
        ("-0x1p-1", "-1/2"),
    ],
)
def test_literals_are_exact(text, value):
    assert str(exact(text)) == value


def test_verify_finds_what_is_broken():
    p = program("f(x: T[N]) -> y: T[N]\n\ny = exp(x) + 1\n", T=f32)
    from dataclasses import replace

    for broken in (replace(p, lets=p.lets[::-1]), replace(p, lets=(*p.lets, p.lets[-1])), replace(p, lets=tuple(replace(let, dims=()) for let in p.lets)),
                   replace(p, lets=tuple(replace(let, dtype=f16) for let in p.lets)), replace(p, lets=p.lets[:-1])):  # fmt: skip
        with pytest.raises(Broken):
            verify(broken)
    assert verify(renumber(p)) == p
    assert literal_of(next(let for let in p.lets if let.expr.name == "cast"), p.by_name) == 1
