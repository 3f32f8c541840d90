"""Bugs of Inductor's, replayed: the kgen kernel that each would have broken, and its right result.

The docstrings say what pytorch/pytorch's thread of that number reports.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from kgen.ops import OPS
from tests.hazards.running import (
    BYTES,
    GPU,
    INF,
    INTEGERS,
    NAN,
    POINTS,
    ROWS,
    bits,
    call,
    each_meaning,
    each_target,
    f32,
    run,
    same,  # fmt: skip
)

on_code = pytest.mark.parametrize("target", ["cpp", *GPU])
BIG = 2**31


def memory(target: str, count: int) -> torch.Tensor:
    """Bytes that nothing has touched."""
    return torch.empty(count, dtype=torch.int8, device="cuda" if target in ("triton", "cuda") else "cpu")


# ---------------------------------------------------------------------- values


@each_target
def test_nan_in_a_bound_of_a_clamp(target: str) -> None:
    """93784: clamp, maximum and minimum do not carry NaN from one of their sides."""
    a, b = f32(NAN, 1, 0.5, -2), f32(1, NAN, 2, -0.5)
    got = run(POINTS, target, a, b)
    for name in ("top", "least", "held"):
        assert got[name].isnan().tolist() == [True, True, False, False]


@each_meaning
def test_maxima_of_two_dtypes_promote(target: str) -> None:
    """93784: nor do they promote f16 and f32."""
    text = "m(h: f16[N], x: f32[N]) -> (y: f32[N], z: f32[N])\ny = max(h, x)\nz = clamp(x, h, 1e6)\n"
    h, x = torch.tensor([1.0, NAN, 3.0], dtype=torch.float16), f32(1.0001, 2, 1e5)
    got = run(text, target, h, x)
    same(got["y"], torch.maximum(h.float(), x))
    same(got["z"], torch.maximum(h.float(), x))


@each_meaning
def test_a_bitwise_and_that_is_clamped(target: str) -> None:
    """97968: bitwise_and then clamp_max does not compile."""
    i = torch.tensor([7, -1, 12, 0, -(2**31)], dtype=torch.int32)
    got = run("b(i: i32[N], j: i32[N]) -> k: i32[N]\nk = min(i & j, 3)\n", target, i, i.flip(0))["k"]
    assert torch.equal(got, (i & i.flip(0)).clamp_max(3))


@each_meaning
def test_functions_of_integers_are_floats(target: str) -> None:
    """99881: no thread of this number was found, and nothing is inferred; held here is the promotion that others missed."""
    i = torch.tensor([0, 1, 2, 10, 2**24 + 1], dtype=torch.int32)
    got = run("r(i: i32[N]) -> (y: f64[N], z: f64[N])\ny = sqrt(f64(i))\nz = i / f64(4)\n", target, i)
    torch.testing.assert_close(got["y"], i.double().sqrt(), rtol=2**-52, atol=0)
    same(got["z"], i.double() / 4)


@each_target
def test_quotients_by_one_number_are_not_contracted(target: str) -> None:
    """115435: x / 1e-6 + y / 1e-6 became fma(x, 1e6, y * 1e6)."""
    a, b = torch.linspace(0.1, 3, 2001), torch.linspace(-3, -0.1, 2001)
    same(run(POINTS, target, a, b)["scaled"], a / 1e-6 + b / 1e-6)


@each_target
def test_powers_that_are_denormal(target: str) -> None:
    """125557: 2 ** s is 0 for s of -127, -149 and -150."""
    s = f32(-125, -126, -127, -148, -149, -150, -151)
    want = torch.ldexp(torch.ones(7, dtype=torch.float64), s.int()).float()
    same(run(POINTS, target, torch.full_like(s, 2), s)["power"], want)


@each_target
def test_comparisons_of_nan_choose_the_other(target: str) -> None:
    """127448: no thread of this number was found, and nothing is inferred; held here are comparisons with NaN."""
    text = "c(x: f32[N]) -> (p: bool[N], q: bool[N], y: f32[N])\np = not (x < 1)\nq = x != x\ny = x if x >= 1 else -1\n"
    got = run(text, "torch" if target == "cpp" else target, f32(NAN, 0, 2))
    assert got["p"].tolist() == [True, False, True] and got["q"].tolist() == [True, False, False] and got["y"].tolist() == [-1, -1, 2]
    same(run(POINTS, target, f32(NAN, -1), f32(0, 0))["ramp"], f32(NAN, 0))


@each_target
def test_shifts_by_64_and_by_less_than_0(target: str) -> None:
    """143566: 1000 >> 64 is 1000."""
    i, j = torch.tensor([1000, -1000, 1, 1], dtype=torch.int64), torch.tensor([64, 64, -1, 63], dtype=torch.int64)
    text = "s(i: i64[N], j: i64[N]) -> (left: i64[N], right: i64[N])\nleft = i << j\nright = i >> j\n"
    got = run(text, "torch" if target == "cpp" else target, i, j)
    assert got["left"].tolist() == [0, 0, 0, -(2**63)] and got["right"].tolist() == [0, -1, 0, 0]
    no, short = torch.zeros(4, dtype=torch.bool), torch.tensor([32, 64, -1, 31], dtype=torch.int32)
    assert run(INTEGERS, target, i.int(), short, no, no)["right"].tolist() == [0, -1, 0, 0]


@each_target
def test_zero_times_infinity_is_not_folded(target: str) -> None:
    """186281: x * 0 folded to 0 drops NaN and infinities."""
    got = run(POINTS, target, f32(INF, -INF, NAN, 3, -3), torch.ones(5))["nothing"]
    assert got.isnan().tolist() == [True, True, True, False, False] and bits(got[3:]) == bits(f32(0.0, -0.0))


@each_meaning
def test_a_number_is_rounded_to_what_is_computed_in(target: str) -> None:
    """186942: remainders of bf16 by 1.7, which eager rounds to bf16; kgen's numbers are of the dtype computed in, f32."""
    x = torch.tensor([-1.703125, 1.703125, 5.0], dtype=torch.bfloat16)
    got = run("r(x: bf16[N]) -> y: bf16[N]\ny = x % 1.7\n", target, x)["y"]
    number = f32(1.7).double()
    same(got, (x.double() % number).float().bfloat16())
    assert got[0] > 1.6  # eager's is -0


@each_meaning
def test_a_cast_down_and_up_is_kept(target: str) -> None:
    """188048: no thread of this number was found, and nothing is inferred; its neighbours are about roundings left out."""
    x = torch.linspace(0.1, 70_000, 999)
    got = run("c(x: f32[N]) -> (y: f32[N], z: f32[N])\ny = f32(bf16(x))\nz = f32(f16(x)) - x\n", target, x)
    same(got["y"], x.bfloat16().float())
    same(got["z"], x.half().float() - x)


@on_code  # torch's own remainder is NaN for such quotients
def test_remainders_of_quotients_beyond_any_integer(target: str) -> None:
    """194345: remainder is wrong for 1e10 by 1e-20, 65504 by 6e-8 and 3.4e38 by 1.4e-45."""
    a, b = f32(1e10, 65504, 3.4e38, -1e10, 3.39e38, 1e30, -65504), f32(1e-20, 6e-8, 1.4e-45, 1e-20, 9.2e-41, -7, 6e-8)
    got = run(POINTS, target, a, b)["rest"]
    exact = [Fraction(x) % Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == [torch.tensor(float(e), dtype=torch.float64).float().item() for e in exact]


@each_meaning
def test_ties_are_counted_where_the_maximum_was_taken(target: str) -> None:
    """195214: the rounding to bf16 was skipped on one side of `scaled == amax(scaled)`, and no element was the maximum."""
    text = "t(x: bf16[M, N]) -> (k: i64[M], j: i64[M])\ns = x * 1.1\nk = sum[N](s == max[N](s))\nr = bf16(s)\nj = sum[N](r == max[N](r))\n"
    x = torch.tensor([[1.0, 1.0, 0.5, 0.25], [1.0, 1.0078125, 3.0, -1.0]], dtype=torch.bfloat16)
    got = run(text, target, x)
    assert got["k"].tolist() == got["j"].tolist() == [2, 1]


@each_target
def test_minus_zero_is_negated(target: str) -> None:
    """196030: no thread of this number was found; those next to it are of one stack on strict numerics, and name a negated zero."""
    got = run(POINTS, target, f32(0.0, -0.0, 2), torch.ones(3))
    assert bits(got["opposite"]) == bits(f32(-0.0, 0.0, -2)) and bits(got["less"]) == bits(f32(0, 0, 0))


@each_target
def test_the_logistic_function_to_a_few_ulps(target: str) -> None:
    """196032: sigmoid is 1 to 9 ulp off."""
    a = torch.linspace(-80, 80, 8001)
    got = run(POINTS, target, a, torch.ones_like(a))["gate"].double()
    exact = torch.sigmoid(a.double())
    unit = torch.ldexp(torch.ones_like(exact), torch.frexp(exact)[1] - 24)
    exp = OPS["exp"].spell("cpp" if target == "torch" else target).ulp[0]
    assert ((got - exact).abs() / unit).max() <= 2 * (exp + 1)  # relative: exp's error and two roundings, each an ulp at the least mantissa


# ---------------------------------------------------------------------- reductions


@each_target
def test_argmax_agrees_with_the_results_beside_it(target: str) -> None:
    """114229: argmax changes where an intermediate becomes an output too."""
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)).exp()
    got = run(ROWS, target, x)
    same(got["top"], x.gather(1, got["first"][:, None])[:, 0])
    head = "a(x: f32[M, N], w: f32[N]) -> "
    alone, beside = head + "k: i64[M]\nk = argmax[N](x * w)\n", head + "(k: i64[M], s: f32[M, N])\ns = x * w\nk = argmax[N](s)\n"
    where = "torch" if target == "cpp" else target
    w = torch.rand(1000, generator=torch.Generator().manual_seed(1))
    both = run(beside, where, x, w)
    assert torch.equal(run(alone, where, x, w)["k"], both["k"]) and torch.equal(both["k"], both["s"].argmax(1))


@each_target
def test_rows_that_repeat_one_element(target: str) -> None:
    """163449: no thread of this number was found, and nothing is inferred; held here are rows of stride 0 and of negative order."""
    x = torch.arange(6.0)
    wide = x[:, None].expand(6, 100)
    got = run(ROWS, target, wide)
    same(got["total"], 100 * x)
    assert not got["spread"].any() and not got["first"].any()
    same(run(ROWS, target, torch.arange(600.0).reshape(100, 6).t())["top"], 594 + x)


@each_meaning
@pytest.mark.parametrize("inner", ["var", "max", *(pytest.param(n, marks=pytest.mark.slow) for n in ("mean", "sum", "logsumexp"))])
def test_argmax_of_a_reduction_of_what_is_not_dense(inner: str, target: str) -> None:
    """193661: argmax after a fused reduction of the last dim is wrong where the input is not contiguous."""
    x = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(0)).permute(2, 0, 1)
    got = run(f"a(x: f64[B, M, N]) -> k: i64[B]\nk = argmax[M]({inner}[N](x))\n", target, x.double())
    eager = {"max": "amax"}.get(inner, inner)
    assert torch.equal(got["k"], getattr(torch, eager)(x.double(), dim=2).argmax(1))


# ---------------------------------------------------------------------- memory


@each_target
def test_results_given_by_the_caller(target: str) -> None:
    """136550: compiled kernels of the user's can write wrong outputs."""
    x = torch.arange(-100, 100, dtype=torch.int8)
    fresh = run(BYTES, target, x)["y"]
    where = "cuda" if target in ("triton", "cuda") else "cpu"
    given, place = x.to(where), torch.full((400,), 77, dtype=torch.int8, device=where)
    call(BYTES, target, given, out=place[::2])
    assert torch.equal(place[::2].cpu(), fresh) and bool((place[1::2] == 77).all()) and torch.equal(given.cpu(), x)


@each_target
def test_few_elements_far_from_the_base(target: str) -> None:
    """179333: no thread of this number was found; HAZARDS.md counts it among the 32-bit addresses."""
    view = memory(target, BIG + 64)[BIG + 3 :][:5]
    view.copy_(torch.arange(5))
    assert call(BYTES, target, view).tolist() == [0, 2, 4, 6, 8]


@each_target
def test_a_base_beyond_2_31_with_strides(target: str) -> None:
    """186057: of base + x0 + stride * x1 the constant is more than int32 holds."""
    view = memory(target, BIG + 64).as_strided((3,), (BIG // 2 - 1,), 62)
    view.copy_(torch.tensor([1, 2, 3]))
    assert call(BYTES, target, view).tolist() == [2, 4, 6]
    back = memory(target, BIG + 64).as_strided((2,), (40,), BIG + 10)
    back.copy_(torch.tensor([4, 5]))
    assert call(BYTES, target, back).tolist() == [8, 10]
