"""Integers and bools on the C++ target, against Python's integers wrapped to the width, and casts between all dtypes."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kgen
from kgen.check import check
from kgen.runtime.evaluate import Evaluator
from kgen.syntax import parse
from kgen.types import DTYPES, DType

#: What torch computes with; tests/formats has the others.
KNOWN = [d for d in DTYPES.values() if d.stored is d and d.name not in ("u16", "u32", "u64")]
INTEGERS = [d for d in KNOWN if d.is_int]


def torch_dtype(dtype: DType) -> torch.dtype:
    return getattr(torch, dtype.torch)


def ends(dtype: DType) -> tuple[int, int]:
    info = torch.iinfo(torch_dtype(dtype))
    return info.min, info.max


def wrap(x: int, dtype: DType) -> int:
    x &= (1 << dtype.bits) - 1
    return x - (1 << dtype.bits) if dtype.kind == "int" and x >> (dtype.bits - 1) else x


def power(a: int, b: int, bits: int) -> int:
    """As torch: a negative exponent gives 1 / a^-b cut to an integer, 0 for a = 0."""
    if b >= 0:
        return pow(a, b, 1 << bits)
    return 1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0


Binary = Callable[[int, int, DType], int]
BINARY: dict[str, tuple[str, Binary]] = {
    "add": ("a + b", lambda a, b, d: a + b),
    "sub": ("a - b", lambda a, b, d: a - b),
    "mul": ("a * b", lambda a, b, d: a * b),
    "floordiv": ("a // b", lambda a, b, d: a // b if b else 0),
    "mod": ("a % b", lambda a, b, d: a % b if b else a),
    "pow": ("a ^ b", lambda a, b, d: power(a, b, d.bits)),
    "bitand": ("a & b", lambda a, b, d: a & b),
    "bitor": ("a | b", lambda a, b, d: a | b),
    "shl": ("a << b", lambda a, b, d: a << b if 0 <= b < d.bits else 0),
    "shr": ("a >> b", lambda a, b, d: a >> b if 0 <= b < d.bits else -(a < 0)),
    "max": ("max(a, b)", lambda a, b, d: max(a, b)),
    "min": ("min(a, b)", lambda a, b, d: min(a, b)),
    "clamp": ("clamp(a, b, 7)", lambda a, b, d: min(max(a, b), 7)),
    "where": ("a if a < b else b", lambda a, b, d: a if a < b else b),
}
UNARY: dict[str, tuple[str, Callable[[int], int]]] = {
    "neg": ("-a", operator.neg), "pos": ("+a", operator.pos), "bitnot": ("~a", operator.invert), "abs": ("abs(a)", abs),
    "sign": ("sign(a)", lambda a: (a > 0) - (a < 0)), "relu": ("relu(a)", lambda a: max(a, 0)), "round": ("round(a)", lambda a: a),
}  # fmt: skip
COMPARED: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "eq": ("a == b", operator.eq), "ne": ("a != b", operator.ne), "lt": ("a < b", operator.lt),
    "le": ("a <= b", operator.le), "gt": ("a > b", operator.gt), "ge": ("a >= b", operator.ge),
}  # fmt: skip
#: Longer formulas, in which a result must be wrapped before the next operator sees it.
NESTED: dict[str, tuple[str, Binary]] = {
    "n_div": ("(a + b) // 2", lambda a, b, d: wrap(a + b, d) // 2),
    "n_shr": ("(a * b) >> 1", lambda a, b, d: wrap(a * b, d) >> 1),
    "n_max": ("max(a - b, b - a)", lambda a, b, d: max(wrap(a - b, d), wrap(b - a, d))),
    "n_abs": ("abs(-a) % 3", lambda a, b, d: wrap(abs(wrap(-a, d)), d) % 3),
    "n_not": ("~a >> 1", lambda a, b, d: wrap(~a, d) >> 1),
    "n_where": ("(a << 1) // (b + b) if a + b > a else -b", lambda a, b, d: _nested_where(a, b, d)),
}


def _nested_where(a: int, b: int, d: DType) -> int:
    if wrap(a + b, d) <= a:
        return -b
    divisor = wrap(b + b, d)
    return wrap(a << 1, d) // divisor if divisor else 0


def pairs(dtype: DType) -> list[tuple[int, int]]:
    """All pairs of an 8-bit dtype; else every pair of edges and small values, and random ones of every magnitude."""
    low, high = ends(dtype)
    if dtype.bits == 8:
        return list(itertools.product(range(low, high + 1), repeat=2))
    edges = {
        low,
        low + 1,
        low // 2,
        -1,
        0,
        1,
        2,
        3,
        7,
        -7,
        10,
        -3,
        high,
        high - 1,
        high // 2,
        dtype.bits - 1,
        dtype.bits,
        dtype.bits + 1,
        46341,
        2**31,
        2**32,
        2**53 + 1,
    }
    drawn = random.Random(5)
    found = list(itertools.product(sorted(e for e in edges if low <= e <= high), repeat=2))
    return found + [
        (wrap(drawn.getrandbits(drawn.randint(1, 64)), dtype), wrap(drawn.getrandbits(drawn.randint(1, 64)), dtype)) for _ in range(3000)
    ]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_operators_are_pythons_wrapped_to_the_width(dtype: DType, request: pytest.FixtureRequest) -> None:
    """Those of 8 and of 32 bits with sign as the compiler makes them at -O3."""
    if dtype.name not in ("i8", "i32"):
        request.getfixturevalue("built_quickly")
    values = {**BINARY, **NESTED}
    results = [f"r_{n}: {dtype}[...]" for n in (*values, *UNARY)] + [f"r_{n}: bool[...]" for n in COMPARED]
    lines = [f"r_{n} = {text}" for n, (text, _) in (*values.items(), *UNARY.items(), *COMPARED.items())]
    kernel = kgen.loads(f"ints(a: {dtype}[...], b: {dtype}[...]) -> ({', '.join(results)})\n" + "\n".join(lines))
    operands = pairs(dtype)
    a, b = (torch.tensor(x, dtype=torch_dtype(dtype)) for x in zip(*operands))
    got = dict(zip((*values, *UNARY, *COMPARED), kernel(a, b, target="cpp")))
    for name, (text, function) in values.items():
        want = torch.tensor([wrap(function(x, y, dtype), dtype) for x, y in operands], dtype=torch_dtype(dtype))
        same(f"{text} in {dtype}", operands, got[name], want)
    for name, (text, unary) in UNARY.items():
        same(
            f"{text} in {dtype}", operands, got[name], torch.tensor([wrap(unary(x), dtype) for x, _ in operands], dtype=torch_dtype(dtype))
        )
    for name, (text, compared) in COMPARED.items():
        same(f"{text} in {dtype}", operands, got[name], torch.tensor([compared(x, y) for x, y in operands]))


def same(what: str, operands: list, got: torch.Tensor, want: torch.Tensor) -> None:
    assert got.dtype == want.dtype
    bad = (got != want).nonzero().flatten().tolist()
    assert not bad, f"{what}: {len(bad)} differ, (operands, got, wanted): {[(operands[i], got[i].item(), want[i].item()) for i in bad[:5]]}"


def test_the_torch_evaluator_agrees_where_torch_defines_the_result() -> None:
    """The reference of `kgen check`: by zero and shifts past the width are what torch leaves open or raises on."""
    for dtype in INTEGERS:
        operands = [(x, y) for x, y in pairs(dtype)[:: 7 if dtype.bits == 8 else 1] if 0 < y < dtype.bits]
        a, b = (torch.tensor(x, dtype=torch_dtype(dtype)) for x in zip(*operands))
        for text, function in BINARY.values():
            kernel = check(parse(f"ints(a: {dtype}[...], b: {dtype}[...]) -> r: {dtype}[...]\nr = {text}"))
            want = torch.tensor([wrap(function(x, y, dtype), dtype) for x, y in operands], dtype=torch_dtype(dtype))
            same(f"{text} in {dtype}", operands, Evaluator(kernel, {"a": a, "b": b}).run()[0], want)


@pytest.mark.parametrize("mode", ["eager", "kernel", "exact"])
def test_the_torch_evaluator_takes_integers_by_zero_and_any_shift(mode: str) -> None:
    for dtype in INTEGERS:
        low, high = ends(dtype)
        operands = list(
            itertools.product((low, -1, 0, 1, 5, high) if low else (0, 1, 5, high), (0, dtype.bits, high, low, -1) if low else (0, 8, high))
        )
        a, b = (torch.tensor(x, dtype=torch_dtype(dtype)) for x in zip(*operands))
        for name in ("floordiv", "mod", "shl", "shr"):
            text, function = BINARY[name]
            kernel = check(parse(f"ints(a: {dtype}[...], b: {dtype}[...]) -> r: {dtype}[...]\nr = {text}"))
            want = torch.tensor([wrap(function(x, y, dtype), dtype) for x, y in operands], dtype=torch_dtype(dtype))
            same(f"{text} in {dtype}, {mode}", operands, Evaluator(kernel, {"a": a, "b": b}, mode).run()[0], want)


BOOLS: dict[str, tuple[str, Callable[[bool, bool], bool]]] = {
    "and_": ("a and b", lambda a, b: a and b), "or_": ("a or b", lambda a, b: a or b), "not_": ("not a", lambda a, b: not a),
    "bitand": ("a & b", lambda a, b: a and b), "bitor": ("a | b", lambda a, b: a or b), "bitnot": ("~a", lambda a, b: not a),
    "add": ("a + b", lambda a, b: a or b), "mul": ("a * b", lambda a, b: a and b),
    "max": ("max(a, b)", lambda a, b: a or b), "min": ("min(a, b)", lambda a, b: a and b),
    **{n: (text, lambda a, b, f=f: f(a, b)) for n, (text, f) in COMPARED.items()},
    "where": ("b if a else not b", lambda a, b: b if a else not b),
    "nested": ("not (a < b) == (a + b)", lambda a, b: (not (a < b)) == (a or b)),
    "nested2": ("not a and b or a != b", lambda a, b: ((not a) and b) or a != b),
    "nested3": ("(a + b) + ~a < b", lambda a, b: max(a, b, not a) < b),
}  # fmt: skip


def test_bool_operators_are_logical_and_true_plus_true_is_true() -> None:
    operands = list(itertools.product([False, True], repeat=2))
    results = ", ".join(f"r_{n}: bool[...]" for n in BOOLS)
    kernel = kgen.loads(f"bools(a: bool[...], b: bool[...]) -> ({results})\n" + "\n".join(f"r_{n} = {t}" for n, (t, _) in BOOLS.items()))
    a, b = (torch.tensor(x).repeat(50) for x in zip(*operands))
    for target in ("cpp", "torch"):
        for (text, function), got in zip(BOOLS.values(), kernel(a, b, target=target)):
            same(f"{text} on {target}", operands * 50, got, torch.tensor([function(x, y) for x, y in operands]).repeat(50))
            assert set(got.view(torch.uint8).tolist()) <= {0, 1}  # the stored byte, too


def floats(dtype: DType) -> torch.Tensor:
    """The ends of every integer dtype, their neighbours in the float dtype, halves, denormals, infinities and NaN."""
    t = torch_dtype(dtype)
    edges = [float(e) for d in INTEGERS for e in ends(d)] + [float(1 << d.bits) for d in INTEGERS]
    x = torch.tensor(
        [*edges, 0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5, 2.5, 127.5, -128.5, 255.5, 1e30, -1e30, 6e-8, 1e-320], dtype=torch.float64
    ).to(t)
    return torch.cat([x, torch.nextafter(x.float(), torch.tensor(math.inf)).to(t), torch.nextafter(x.float(), torch.tensor(-math.inf)).to(t),
                      torch.tensor([math.inf, -math.inf, math.nan], dtype=t), torch.linspace(-300, 300, 401).to(t)])  # fmt: skip


def cast(x: Any, source: DType, target: DType) -> Any:
    """A cast's meaning on one Python value (floats to floats are left to torch)."""
    if target.kind == "bool":
        return x != 0
    if source.is_float and target.is_int:
        low, high = ends(target)
        return 0 if x != x else low if x <= low else high if x >= high else int(x)
    return wrap(int(x), target) if target.is_int else float(x)


#: Each kind of source once by default; each is a build of ten results, of floats (whose casts out of range C++ leaves open) at -O3.
CAST = [pytest.param(d, id=str(d), marks=pytest.mark.slow if d.name in ("bf16", "f64", "i16", "i32") else ()) for d in KNOWN]


@pytest.mark.parametrize("source", CAST)
def test_casts_saturate_from_floats_wrap_between_integers_and_compare_with_zero_to_bool(source: DType, request: pytest.FixtureRequest) -> None:
    if not source.is_float:
        request.getfixturevalue("built_quickly")
    others = [d for d in KNOWN]
    kernel = kgen.loads(
        f"casts(x: {source}[...]) -> ({', '.join(f'r_{d}: {d}[...]' for d in others)})\n" + "\n".join(f"r_{d} = {d}(x)" for d in others)
    )
    if source.is_float:
        x = floats(source)
    elif source.kind == "bool":
        x = torch.tensor([True, False] * 40)
    else:
        x = torch.tensor(sorted({v for p in pairs(source)[:400] for v in p} | set(ends(source))), dtype=torch_dtype(source))
    got = {target: dict(zip(others, kernel(x, target=target))) for target in ("cpp", "torch")}
    for d in others:
        if d.is_float:
            # torch rounds twice on the way to 16 bits, which no operand here tells from once
            want = x.to(torch_dtype(d))
        else:
            want = torch.tensor([cast(v, source, d) for v in x.tolist()], dtype=torch_dtype(d))
        for target, found in got.items():
            y = found[d]
            bad = ~((y == want) | (y.isnan() & want.isnan() if d.is_float else torch.zeros_like(y, dtype=torch.bool)))
            shown = [(x[i].item(), y[i].item(), want[i].item()) for i in bad.nonzero().flatten().tolist()[:5]]
            assert not shown, f"{source} to {d} on {target}: (operand, got, wanted): {shown}"


def rounded(x: int, dtype: str) -> float:
    """An integer rounded once to a float dtype: of its leading bits and of whether one follows, which a float32 has exactly."""
    if dtype == "f64":
        return float(x)  # Python's own is correctly rounded
    cut = max(0, abs(x).bit_length() - (24 if dtype != "f32" else 40))
    leading = abs(x) >> cut << cut | (abs(x) & ((1 << cut) - 1) != 0) << cut
    return float(math.copysign(torch.tensor(leading, dtype=torch.float64).to(getattr(torch, STORED[dtype])).item(), x))


def test_casts_of_whole_numbers_between_bounds_have_each_of_them(built_quickly: None) -> None:
    """Bounds that a dtype has, or has not: numbers about them, halves, infinities, and NaN of either sign and any digits, which is 0."""
    text = """whole(x: T[N]) -> (a: i8[N], b: u8[N], c: i16[N], d: u16[N], e: i8[N], f: i32[N])

r = round(x)
a = i8(clamp(r, -127, 127))
b = u8(clamp(r, 0, 255))
c = i16(clamp(r, -32768, 32767))
d = u16(clamp(floor(x), 0, 65535))
e = i8(clamp(r, -200, 200))
f = i32(clamp(r, -9, 9))
"""
    ends = torch.tensor([0.0, 127, 128, 200, 255, 256, 32767, 32768, 65535, 65536, 2.0**31, 2.0**40])
    plain = torch.cat([sign * ends + off for sign in (1, -1) for off in (-1, -0.5, 0, 0.5, 1)] + [torch.tensor([math.inf, -math.inf])])
    strange = torch.tensor([0x7FC00000, 0x7F800001, 0x7FFFFFFF]).to(torch.int32)
    x = torch.cat([plain, strange.view(torch.float32), -strange.view(torch.float32)])
    bounds = ((-127, 127), (0, 255), (-32768, 32767), (0, 65535), (-128, 127), (-9, 9))
    for dtype in (torch.float32, torch.float64):
        given = x.to(dtype)
        for got, (least, most), name in zip(kgen.loads(text)(given), bounds, "abcdef", strict=True):
            rounded = given.floor() if name == "d" else given.round()
            assert got.long().tolist() == rounded.clamp(least, most).nan_to_num(0).long().tolist(), (name, dtype)


def test_integers_reach_every_float_by_one_rounding() -> None:
    """Beside each number half way between two of bf16, f16, f32 and f64: by way of f32, as in torch, 16 bits would be rounded twice."""
    sources = ("i32", "u32", "i64", "u64")
    names = {(s, d): f"{d}_{s}" for s in sources for d in STORED}
    header = ", ".join(f"{name}: f64[...]" for name in names.values())
    lines = "\n".join(f"{name} = {d}({s}_x)" for (s, d), name in names.items())
    kernel = kgen.loads(f"reached({', '.join(f'{s}_x: {s}[...]' for s in sources)}) -> ({header})\n\n{lines}\n")
    halves = [s * ((1 << k) + (1 << k - digits) + by)
              for digits in (8, 11, 24, 53) for k in range(digits, 64) for by in (-1, 0, 1) for s in (1, -1)]  # fmt: skip
    tensors = {}
    for s in sources:
        low, high = DTYPES[s].limits
        kept = [x if low <= x <= high else abs(x) % (high + 1) for x in (*halves, low, high, high - 1)]
        tensors[f"{s}_x"] = torch.tensor(kept, dtype=torch.uint64 if s == "u64" else torch.int64).to(torch_dtype(DTYPES[s]))
    found = {target: kernel(**tensors, target=target) for target in ("cpp", "torch")}
    found["exact"] = Evaluator(kernel.kernel, tensors, "exact").run()
    for target, results in found.items():
        for (s, d), got in zip(names, results, strict=True):
            shown = [(x, y, rounded(x, d)) for x, y in zip(tensors[f"{s}_x"].tolist(), got.tolist(), strict=True) if y != rounded(x, d)]
            assert not shown, f"{s} to {d} on {target}: {len(shown)} (operand, got, wanted): {shown[:3]}"


STORED = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}


@pytest.mark.parametrize("first", KNOWN, ids=str)
def test_mixed_dtypes_promote_as_torch_promotes_them(first: DType) -> None:
    """A sum's dtype, read off from what may be stored without a cast: the value too, where it wraps."""
    texts, wanted = [], []
    for second in KNOWN:
        for dims in ("...", ""):  # a 0-d tensor counts less
            a = torch.ones(3, dtype=torch_dtype(first)) if first.kind == "bool" else torch.full((3,), 100, dtype=torch_dtype(first))
            b = torch.ones((3,) if dims else (), dtype=torch_dtype(second))
            b = b if second.kind == "bool" else b * 100
            want = a + b
            name = next(d for d in KNOWN if torch_dtype(d) == want.dtype)
            texts.append((f"add(a: {first}[...], b: {second}[{dims}]) -> r: {name}[...]\nr = a + b", a, b))
            wanted.append(want)
    for (text, a, b), want in zip(texts, wanted):
        kernel = check(parse(text))
        sum_ = kernel.values[kernel.results[0].value]
        if not want.dtype.is_floating_point:
            assert str(sum_.type) == kernel.results[0].dtype, text
        else:  # 16-bit floats are computed in f32: the dtypes that met are what a result would be stored as
            met = str(sum_.type).removeprefix("a float of ").split(" and ")
            joined = torch_dtype(DTYPES[met[0]])
            for other in met[1:]:
                joined = torch.promote_types(joined, torch_dtype(DTYPES[other]))
            assert joined == want.dtype, text
        assert torch.equal(Evaluator(kernel, {"a": a, "b": b}).run()[0], want), text


def test_promoted_integers_wrap_at_the_promoted_width_on_cpp(built_quickly: None) -> None:
    cases = [
        ("u8", "i8", "i16"),
        ("u8", "i32", "i32"),
        ("i8", "i16", "i16"),
        ("i16", "i64", "i64"),
        ("u8", "u8", "u8"),
        ("bool", "u8", "u8"),
        ("i32", "i64", "i64"),
    ]
    params = ", ".join(f"a{k}: {a}[...], b{k}: {b}[...]" for k, (a, b, _) in enumerate(cases))
    results = ", ".join(f"r{k}: {r}[...], s{k}: {r}[...]" for k, (*_, r) in enumerate(cases))
    lines = "\n".join(f"r{k} = a{k} + b{k}\ns{k} = a{k} * b{k} // 3" for k in range(len(cases)))
    kernel = kgen.loads(f"mixed({params}) -> ({results})\n{lines}")
    tensors = []
    for a, b, _ in cases:
        for name in (a, b):
            low, high = (0, 1) if name == "bool" else ends(DTYPES[name])
            edge = [low, high, low // 2, high // 2, 0, 1, high - 1, low + 1, 100 % (high + 1), 77 % (high + 1)]
            tensors.append(torch.tensor(edge, dtype=torch_dtype(DTYPES[name])))
        tensors[-1] = tensors[-1].flip(0).roll(3).clone()
    got = kernel(*tensors, target="cpp")
    for k in range(len(cases)):
        x, y = tensors[2 * k : 2 * k + 2]
        assert torch.equal(got[2 * k], x + y), cases[k]
        assert torch.equal(got[2 * k + 1], x * y // 3), cases[k]


def test_an_integer_number_is_wrapped_to_the_operands_width_and_computed_on_the_host_in_i64() -> None:
    kernel = kgen.loads("number(x: u8[...], n: int) -> (y: u8[...], z: i64[...])\ny = x + n\nz = i64(x) + (n + n) // 3")
    x = torch.tensor([0, 1, 200, 255], dtype=torch.uint8)
    for n in (0, 7, 255, -1, 300, 2**62):
        y, z = kernel(x, n, target="cpp")
        assert y.tolist() == [(int(v) + n) % 256 for v in x]
        doubled = wrap(2 * n, DTYPES["i64"])
        assert z.tolist() == [int(v) + doubled // 3 for v in x]
