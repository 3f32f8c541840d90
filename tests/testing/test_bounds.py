"""The derived bound holds, is not vacuous, and has its special rules; random cases are named by seed and number; planted bugs are found."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
import torch

import kgen
from kgen.check import check
from kgen.ops import OPS
from kgen.syntax import parse
from kgen.testing import checks
from kgen.testing.bounds import FORMATS, Analysis, Bounded, ulp
from kgen.testing.cases import LONG_ROWS, MAX_ELEMENTS, ROWS, Draw
from kgen.testing.forms import forms_of
from kgen.types import DTYPES as TYPES

INF, NAN = math.inf, math.nan
pytestmark = pytest.mark.usefixtures("built_quickly")


def analysed(text: str, **arguments: Any) -> list[Bounded]:
    return Analysis(kgen.loads(text).kernel, arguments, "cpp").results()


def bound(text: str, **arguments: Any) -> list[float]:
    return analysed(text, **arguments)[0].bound.tolist()


def f32(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("target", ["cuda", "triton"])
def test_a_fused_sum_has_no_wider_bound(target: str, dtype: torch.dtype) -> None:
    kernel = kgen.loads("k(a: T[N], b: T[N], c: T[N]) -> y: T[N]\ny = a - b * c")
    given = {n: x for n, x in zip("abc", torch.linspace(0.3, 2.9, 300, dtype=torch.float64).to(dtype).reshape(3, 100), strict=True)}
    (fused,) = Analysis(kernel.kernel, given, target).results()
    (apart,) = Analysis(kernel.kernel, given, "cpp").results()
    assert torch.equal(fused.bound, apart.bound)


# ---------------------------------------------------------------------- it holds, and is not vacuous

#: A kernel of simple operators each, and how much of its bound the worst of many cases should reach at least.
SIMPLE = {
    "sum": ("y = a + b * c", 0.4),
    "quotient": ("y = (a - b) / (1 + c^2)", 0.1),
    "cast": ("y = a * 1.5", 0.3),
    "activation": ("y = silu(a) * b + 0 * c", 0.1),
    "functions": ("y = exp(a) - sin(b) * tanh(c)", 0.04),
    "choice": ("y = max(a, b) if c > 0 else min(a, -b) * a", 0.4),
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@pytest.fixture(scope="module")
def simple() -> kgen.Kernel:
    results = ", ".join(f"y{k}: T[...]" for k in range(len(SIMPLE)))
    lines = "\n".join(text.replace("y =", f"y{k} =") for k, (text, _) in enumerate(SIMPLE.values()))
    return kgen.loads(f"simple(a: T[...], b: T[...], c: T[...]) -> ({results})\n{lines}")


def cases(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    return {n: (torch.randn(20_000, generator=generator, dtype=torch.float64) * 2).to(dtype) for n in "abc"}


@pytest.mark.parametrize("target", ["cpp", "torch"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bound_holds_on_random_data_and_errors_come_near_it(simple: kgen.Kernel, dtype: torch.dtype, target: str) -> None:
    given = cases(dtype)
    got = simple(**given, target=target)
    eager = got
    for (name, (_, least)), y, want, other in zip(SIMPLE.items(), got, Analysis(simple.kernel, given, "cpp").results(), eager):
        report = checks.Report(name, target)
        assert not checks.compare(y, want, other, report), name
        assert report.unbounded < 0.001 * report.elements  # only where the comparison of `choice` might tip
        if dtype != torch.float64:  # whose exact value is rounded too, and the bound wider for it
            error = (y.double() - want.exact.double()).abs() / want.bound
            assert float(error.nan_to_num(0).max()) >= least, f"{name}: the bound is vacuous"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_result_moved_by_three_bounds_is_caught_in_either_direction(simple: kgen.Kernel, dtype: torch.dtype) -> None:
    given = {n: x[:500] for n, x in cases(dtype).items()}
    for (name, _), want in zip(SIMPLE.items(), Analysis(simple.kernel, given, "cpp").results()):
        clean = want.exact.to(dtype)
        for sign in (1, -1):
            wrong = clean.clone()
            wrong[137] = (want.exact[137] + sign * 3 * want.bound[137]).to(dtype)
            message = checks.compare(wrong, want, clean, checks.Report(name, "cpp"))
            assert "[137]" in message and "1 of 500" in message, (name, message)
        assert not checks.compare(clean, want, clean, checks.Report(name, "cpp"))


def test_one_ulp_of_the_format_is_the_distance_to_the_next_number() -> None:
    for name, dtype in {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}.items():
        largest = FORMATS[name][2]
        assert largest == torch.finfo(dtype).max
        for x in (1.0, 1.5, 3.0, 100.0, 1e-4, torch.finfo(dtype).tiny, torch.finfo(dtype).smallest_normal / 4, 0.0):
            here = torch.tensor(x, dtype=dtype)
            step = torch.nextafter(here, torch.tensor(INF, dtype=dtype)).double() - here.double()
            assert ulp(here.double(), name) == step, (name, x)


def test_the_bound_of_one_operation_is_its_roundings() -> None:
    """Exact operands: half an ulp for the operator (its row's for exp), half for the store."""
    x = f32(1.1, 3.0, 100.0)
    unit = ulp(x.double() * 3, "f32")
    assert bound("f(x: f32[...]) -> y: f32[...]\ny = x * 3", x=x) == unit.tolist()
    unit = ulp(x.double().exp(), "f32")[:2]
    assert bound("f(x: f32[...]) -> y: f32[...]\ny = exp(x)", x=x)[:2] == ((OPS["exp"].cpp.ulp[0] + 0.5) * unit).tolist()
    assert bound("f(x: f32[...]) -> y: f32[...]\ny = -x", x=x) == (0.5 * ulp(x.double(), "f32")).tolist()


def test_cancellation_carries_the_error_of_the_operands() -> None:
    y = analysed("f(x: f32[...]) -> y: f32[...]\ny = (x + 1) - 1", x=f32(1e-4))[0]
    assert 0.4 * 2**-23 <= y.bound.item() <= 1.1 * 2**-23  # that of x + 1, thousands of ulp of the result


# ---------------------------------------------------------------------- special rules


def test_a_nan_on_the_way_is_exact_and_so_is_what_hides_it() -> None:
    y = analysed("f(x: f32[...]) -> y: f32[...]\ny = sqrt(x) + 1", x=f32(-1.0, NAN, 4.0))[0]
    assert y.exact.isnan().tolist() == [True, True, False] and y.bound[2] < 1e-6
    assert checks.compare(f32(0.0, NAN, 3.0), y, f32(NAN, NAN, 3.0), checks.Report("f", "cpp"))  # a number for NaN is wrong
    hidden = "f(x: f32[...]) -> y: f32[...]\ny = 0.0 if isnan(sqrt(x)) else 1.0"
    y = analysed(hidden, x=f32(-1.0, 4.0))[0]
    assert y.exact.tolist() == [0.0, 1.0] and y.bound.isfinite().all()


def test_what_overflows_f32_but_not_f64_has_no_bound() -> None:
    text = "f(x: f32[...]) -> y: f32[...]\ny = x * x / x"
    found = bound(text, x=f32(1e30, 1e10))
    assert found[0] == INF or math.isnan(found[0])
    assert found[1] < 1e10 * 2**-22
    assert bound("f(x: f64[...]) -> y: f64[...]\ny = x * x / x", x=f32(1e30).double())[0] < 1e30 * 2**-50


def test_a_number_too_large_for_f32_has_no_bound() -> None:
    assert bound("f(x: f32[...], s: float) -> y: f32[...]\ny = x * s", x=f32(1e-30), s=1e60) == [INF]
    assert bound("f(x: f32[...], s: float) -> y: f32[...]\ny = x / s", x=f32(1.0), s=1e60)[0] < 1e-44  # 1 / inf is as good


def test_an_integer_of_the_call_is_rounded_where_it_meets_a_float() -> None:
    """-3 * 595299543 lies 133 from what f32 makes of it: 3 * 23 by the number's own rounding, and a tie."""
    (found,) = bound("f(x: f32[...], w: int) -> y: f32[...]\ny = x * w", x=f32(-3.0), w=595299543)
    assert 133 <= found <= 2 * 133
    assert bound("f(x: i64[...], w: int) -> y: i64[...]\ny = x * w", x=torch.tensor([3]), w=595299543) == [0]


def test_an_infinite_result_at_the_edge_of_the_format_is_right_and_of_the_other_sign_wrong() -> None:
    y = analysed("f(x: f16[...]) -> y: f16[...]\ny = x * 2", x=torch.tensor([40000.0], dtype=torch.float16))[0]
    assert y.exact.item() == 80000.0
    right, wrong = (torch.tensor([v], dtype=torch.float16) for v in (INF, -INF))
    assert not checks.compare(right, y, right, checks.Report("f", "cpp"))
    assert checks.compare(wrong, y, right, checks.Report("f", "cpp"))


def test_a_comparison_at_a_tie_of_inexact_operands_has_no_bound_and_of_exact_ones_is_exact() -> None:
    inexact = "f(x: f32[...]) -> y: bool[...]\ny = x / 3 > 0.1"
    assert bound(inexact, x=f32(0.3, 0.5, 0.2)) == [INF, 0.0, 0.0]
    exact = "f(x: f32[...]) -> y: bool[...]\ny = x > 0.5"
    assert bound(exact, x=f32(0.5, 0.3)) == [0.0, 0.0]


def test_a_choice_at_a_tie_may_be_either_and_the_bound_spans_both() -> None:
    found = bound("f(x: f32[...]) -> y: f32[...]\ny = 1.0 if x / 3 > 0.1 else 5.0", x=f32(0.3, 0.5))
    assert 4 <= found[0] < 4.1 and found[1] < 1e-6
    assert max(bound("f(x: f32[...]) -> y: f32[...]\ny = abs(x / 3)", x=f32(0.3, -0.5))) < 1e-6  # a kink moves continuously


def test_a_jump_between_the_ends_of_an_interval_is_in_the_bound() -> None:
    found = bound("f(x: f32[...]) -> y: f32[...]\ny = floor(x / 3 * 3)", x=f32(6.0, 7.5))
    assert 1 <= found[0] < 1.1 and found[1] < 1e-5


def test_a_cast_to_a_16_bit_float_on_the_way_is_rounded_and_a_tie_of_it_moves_a_whole_ulp() -> None:
    text = "f(x: f32[...]) -> y: f32[...]\ny = f16(x) * 1"
    assert bound(text, x=f32(1.0 + 2.0**-11))[0] < 1e-6  # an exact operand rounds as the exact reading rounds it
    moved = bound("f(x: f32[...]) -> y: f32[...]\ny = f16(x / 3 * 3)", x=f32(1.0 + 2.0**-11))
    assert 2.0**-10 <= moved[0] < 2.0**-9


def test_an_inexact_value_cast_to_an_integer_is_bound_only_off_the_jump() -> None:
    assert bound("f(x: f32[...]) -> y: i32[...]\ny = i32(x / 3 * 3)", x=f32(6.0, 7.5)) == [INF, 0.0]


# ---------------------------------------------------------------------- random cases

WIDE = "wide(x: T[..., N], w: U[N], n: i32[...], m: bool[N], s: float = 0.5, k: int = 3) -> y: T[..., N]\ny = x * w * s + f32(n) + f32(k) if m else x"


def drawn(seed: int, number: int) -> dict[str, Any]:
    return Draw(kgen.loads(WIDE).kernel, seed, number).arguments()


def test_a_case_is_a_function_of_seed_and_number_alone() -> None:
    for number in (0, 3, 17):
        first = drawn(5, number)
        torch.randn(7), torch.manual_seed(number)  # the global generator is not in it
        drawn(5, number + 1)
        second = drawn(5, number)
        assert first.keys() == second.keys()
        for name, x in first.items():
            y = second[name]
            if isinstance(x, torch.Tensor):
                assert (x.dtype, x.shape, x.stride(), x.storage_offset()) == (y.dtype, y.shape, y.stride(), y.storage_offset())
                assert torch.equal(x.nan_to_num(1.25) if x.is_floating_point() else x, y.nan_to_num(1.25) if y.is_floating_point() else y)
            else:
                assert x == y


def test_cases_differ_in_shape_dtype_layout_and_values() -> None:
    found = [drawn(seed, number) for seed in (0, 1) for number in range(40)]
    assert len({(d["x"].shape, d["x"].stride(), d["x"].storage_offset()) for d in found}) > 60
    assert {(d["x"].dtype, d["w"].dtype) for d in found} == {(a, b) for a in DTYPES for b in DTYPES}
    assert any(not d["x"].is_contiguous() for d in found) and any(0 in d["x"].stride() for d in found)
    assert any(d["x"].isnan().any() for d in found) and any(d["x"].isinf().any() for d in found)
    assert {d["x"].dim() for d in found} >= {1, 2, 3}


ROWWISE = """rows(x: T[..., N], w: T[N], t: i32[...], ignore: int = -100) -> (y: T[..., N], p: f32[...])
y = x * rsqrt(mean[N](x^2) + 1e-6) * w
p = 0.0 if t == ignore else logsumexp[N](x) - pick[N](x, t)"""


def test_cases_of_reductions_have_rows_on_each_side_of_the_boundaries_and_rows_of_special_values() -> None:
    found = [Draw(check(parse(ROWWISE)), 0, number) for number in range(300)]
    given = [d.arguments() for d in found]
    lengths = {g["x"].shape[-1] for g in given}
    assert lengths >= set(ROWS) and lengths & set(LONG_ROWS) and 0 in lengths
    assert max(g["x"].numel() for g in given) <= MAX_ELEMENTS
    rows = [r for g in given if g["x"].numel() for r in g["x"].double().reshape(-1, g["x"].shape[-1])[:20] if len(r) > 2]
    wanted = {
        "-inf": lambda r: (r == -INF).all(),
        "one inf": lambda r: (r == INF).sum() == 1,
        "equal": lambda r: (r == r[0]).all() and r[0].isfinite(),
        "some nan": lambda r: r.isnan().any() and not r.isnan().all(),
        "clean": lambda r: r.isfinite().all() and len(r.unique()) > 1,
    }
    for kind, test in wanted.items():
        assert sum(bool(test(r)) for r in rows) >= 5, kind
    indices = torch.cat([(g["t"].double() / max(1, g["x"].shape[-1])).flatten() for g in given if 0 not in g["t"].stride()])
    inside = float(((indices >= 0) & (indices < 1)).double().mean())
    assert 0.7 < inside < 0.95
    assert any((g["t"] == -100).any() for g in given)
    assert any(not g["x"].is_contiguous() for g in given) and any(0 in g["x"].stride() for g in given)


def test_a_case_of_a_reduction_is_a_function_of_seed_and_number_alone() -> None:
    kernel = check(parse(ROWWISE))
    for number in range(20):
        first, second = (Draw(kernel, 3, number).arguments() for _ in "ab")
        for a, b in zip(first.values(), second.values()):
            assert torch.equal(a.double().nan_to_num(1.25), b.double().nan_to_num(1.25)) if isinstance(a, torch.Tensor) else a == b


REDUCING = {
    "rows": ROWWISE,
    "several": """several(x: T[..., M, N], w: T[N]) -> (a: i64[...], b: f32[M], c: T[..., N], h: i64[N])
a = argmax[M, N](x)
b = mean[..., N](x * w)
c = max[M](x) - w
h = sum[..., M](x > 0)""",
    "integers": """integers(n: i32[..., N], x: T[N], t: u8[...]) -> (a: i64[...], b: i64[...], c: i32[...], d: T[...], e: i32[...])
a = sum[N](n)
b = prod[N](n)
c = max[N](n)
d = pick[N](x, t) + sum[N](n * x)
e = pick[N](n, t)""",
    "others": """others(x: T[...]) -> (a: f32[], b: i64[], c: T[...], d: f64[], g: bool[], h: bool[])
a = var[...](x)
b = argmin[...](x * x)
c = softmax[...](x)
d = f64(prod[...](x))
g = any[...](x)
h = all[...](x / 3 > -1)""",
    "state": "state(p: T[N], x: T[M, N]) -> p': T[N]\np' = p + min[M](x)",
}


@pytest.mark.parametrize("name", REDUCING)
def test_the_evaluator_stays_within_the_bounds_of_reductions(name: str, request: pytest.FixtureRequest) -> None:
    report = checks.check(check(parse(REDUCING[name])), "torch", examples=(examples := 2_000 if request.config.getoption("--fuzz") else 40))
    assert not report.failures, report.failures[0]
    assert report.cases == examples and report.unbounded < 0.1 * report.elements


# ---------------------------------------------------------------------- planted bugs


def plant(monkeypatch: pytest.MonkeyPatch, op: str, spelling: str) -> None:
    row = OPS[op]
    monkeypatch.setitem(OPS, op, dataclasses.replace(row, cpp=dataclasses.replace(row.cpp, float=spelling)))


PLANTED = {
    "add": ("{0} - {1}", "x + w"),
    "erfc": ("std::erf({0})", "erfc(x) * w"),
    "maximum without NaN": ("std::fmax({0}, {1})", "max(x, w)"),
    "lt": ("{0} <= {1}", "x if x < w else x + 1"),
    "round": ("std::round({0})", "round(x) + w"),
    "relu": ("({0} > 0 ? {0} : 0)", "relu(x) * w"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_and_its_message_names_case_seed_and_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spelling, formula = PLANTED[name]
    op = {"maximum without NaN": "max"}.get(name, name)
    kernel = kgen.loads(f"planted(x: f32[..., N], w: f32[N]) -> y: f32[..., N]\ny = {formula}").kernel
    clean = checks.check(kernel, "cpp", examples=30, seed=4)
    assert not clean.failures, clean.failures
    plant(monkeypatch, op, spelling)
    report = checks.check(kernel, "cpp", examples=100, seed=4)
    assert report.failures, f"{report.cases} cases did not find it"
    found = re.match(
        r"planted on cpp, case (\d+) of seed 4 \(x=float32\[.*\] strides \[.*\], w=.*\): result y: .* at \[[\d, ]+\]",
        report.failures[0],
        flags=re.S,
    )
    assert found, report.failures[0]
    # the case alone, drawn again, shows the bug: run it on the kernel that was built wrong
    arguments = Draw(kernel, 4, int(found.group(1))).arguments()
    want = Analysis(kernel, arguments, "cpp").results()[0]
    wrong = kgen.runtime.kernel.Kernel(kernel)(**arguments, target="cpp")
    assert checks.compare(wrong, want, wrong, checks.Report("planted", "cpp"))


CASES = {  # found by fuzzing: a tie inside the interval only, a NaN's sign, a cast by name of an f64, a function inside a return
    "tie": "tie(x: T[...]) -> y: bool[...]\ny = x != -1e-310",
    "sign": "sign_of_nan(x: T[...]) -> y: bool[...]\ny = signbit(x^0.5)",
    "twice": "twice(x: f64[...]) -> (y: f64[...], z: f64[...])\ny = bf16(x)\nz = f16(x * 1000)",
    "integers": "integers(i: i32[...], s: T[]) -> (y: f64[...], z: bool[...])\ny = i / s\nz = i < s * 1e6",
    "underflow": "underflow(x: T[...]) -> y: T[...]\ny = x * (sin(x) / 1e-310)",
    "inside": "inside(x: f32[...]) -> y: i16[...]\ny = i16(i16(x))",
    "scanned": "scanned(x: f32[..., N], a: f8e4m3[..., N]) -> (y: f32[..., N], z: f8e5m2[..., N])\ny = recur[N](a, tanh(x))\nz = cumsum[N](a)",
}


@pytest.mark.parametrize("name", CASES)
def test_cases_that_fuzzing_found(name: str) -> None:
    report = checks.check(check(parse(CASES[name])), "cpp", examples=40)
    assert not report.failures, report.failures[0]


def test_the_exact_reading_rounds_a_double_to_16_bits_once() -> None:
    from kgen.runtime.coded import round_odd

    tie = torch.tensor([1 + 2**-8 + 2**-40, 1 + 2**-8, 1 + 2**-8 - 2**-40, -(1 + 3 * 2**-8) + 2**-40, 65519.999999], dtype=torch.float64)
    want = [1 + 2**-7, 1.0, 1.0, -(1 + 2**-7)]
    assert round_odd(tie[:4]).to(torch.bfloat16).double().tolist() == want
    assert round_odd(tie[4:]).to(torch.float16).item() == 65504.0


def test_the_exact_reading_of_lgamma_is_right_at_its_zeros() -> None:
    """torch's own is thousands of units off there, which fuzzing took for an error of the generated code."""
    import mpmath

    kernel = check(parse("f(x: f64[N]) -> y: f64[N]\ny = lgamma(x)"))
    zeros = torch.tensor([-2.4570247382208006, -2.7476826467274127, -3.14358088834998, -3.955294284858598], dtype=torch.float64)
    x = (zeros[:, None] + torch.linspace(-1e-4, 1e-4, 7, dtype=torch.float64)).flatten()
    y = Analysis(kernel, {"x": x}, "cpp").results()[0].exact
    with mpmath.workprec(200):
        want = torch.tensor([float(mpmath.log(abs(mpmath.gamma(mpmath.mpf(v))))) for v in x.tolist()], dtype=torch.float64)
    assert ((y - want).abs() <= ulp(want, "f64")).all()


@pytest.mark.parametrize("power", [1, 2, 3, 4])
@pytest.mark.parametrize("target", ["torch", "cpp"])
def test_a_small_power_has_the_roundings_of_its_products_and_no_more(power: int, target: str) -> None:
    kernel = kgen.loads(f"f(x: f32[N]) -> y: f32[N]\ny = x^{power}")
    x = torch.cat([torch.randn(20_000), torch.randn(2_000) * 1e-19, torch.randn(2_000) * 1e-12, torch.tensor([0.0, INF, -INF, NAN, 1e-45])])
    (found,) = Analysis(kernel.kernel, {"x": x}, "cpp").results()
    products = {1: "y = x", 2: "y = x*x", 3: "y = x*x*x", 4: "s = x*x\ny = s*s"}[power]
    (again,) = Analysis(kgen.loads(f"f(x: f32[N]) -> y: f32[N]\n{products}").kernel, {"x": x}, "cpp").results()
    y = kernel._run((), {"x": x}, None, target).double()
    plain = torch.isfinite(found.exact) & torch.isfinite(found.bound)
    large = plain & (found.exact.abs() > 1e-30)
    assert bool(((y - found.exact).abs() <= found.bound)[plain].all())
    assert bool((found.bound <= 2 * again.bound)[large].all())  # of the generic pow it would be 4 units and more


def test_nan_to_a_power_that_may_round_to_0_has_no_bound() -> None:
    """Fuzzing on a GPU: NaN^0 is 1, and the exponent, exactly 5.6e-46, is 0 in f32."""
    kernel = check(parse("f(x: f32[N], w: f32[N]) -> y: f32[N]\ny = x^(w * 0.4)", "t"))
    x, w = torch.tensor([math.nan, math.nan, math.nan]), torch.tensor([1.4e-45, 0.0, 1.0])
    (want,) = Analysis(kernel, {"x": x, "w": w}, "cuda").results()
    assert not torch.isfinite(want.bound[0])
    assert want.exact[1] == 1 and torch.isfinite(want.bound[1:]).all() and torch.isnan(want.exact[2])


def test_forms_of_parts_count_where_the_whole_has_none() -> None:
    """The square's error is read off, so over whole tensors gelu is accurate; but only that of the last part is squared."""
    text = """f(x: T[..., 4]) -> (y: T[..., 4], z: T[..., 4])

y = gelu(x)
z[4 = 0] = 0
z[4 = 1] = 1
z[4 = 2] = 2
z[4 = 3] = -y[4 = 3] if x[4 = 2] > 1 else y[4 = 3] * y[4 = 3] - max[...](y[4 = 3] * y[4 = 3])
"""
    found = forms_of(check(parse(text, "x")), (("T", TYPES["bf16"]),), "cuda")
    assert "brief" in {form for (op, _), form in found.items() if op == "erfc"}


def test_an_integer_is_unsure_where_either_operand_is() -> None:
    """Of `x * 3` and `y * 3` the first, the second, neither and both lie within their error of where the conversion to integers jumps."""
    third, half = 1 / 3, 0.5
    x, y = f32(third, half, half, third), f32(half, third, half, third)
    for text in ("i32(x * 3) + 4 * i32(y * 3)", "i32(x * 3) | i32(y * 3) << 2"):
        found = bound(f"f(x: f32[N], y: f32[N]) -> n: i32[N]\nn = {text}", x=x, y=y)
        assert [math.isinf(b) for b in found] == [True, True, False, True]
