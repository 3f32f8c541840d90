"""HAZARDS.md row by row: where naive generated code goes wrong, one test for each point, in the table's order."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest
import torch

import kgen
from kgen import grad
from kgen.ops import OPS, tree_depth
from kgen.runtime import cache
from kgen.testing import checks
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
    load,
    run,
    same,  # fmt: skip
)
from tests.specs.cases import check_call

# ---------------------------------------------------------------------- values


@each_target
def test_maxima_clamps_and_relu_carry_nan_and_relu_keeps_minus_zero(target: str) -> None:
    a, b = f32(NAN, 1, NAN, 2, -0.0, -3), f32(1, NAN, NAN, 5, 1, 2)
    got = run(POINTS, target, a, b)
    same(got["top"], torch.maximum(a, b))
    same(got["least"], torch.minimum(a, b))
    same(got["held"], torch.minimum(torch.maximum(a, f32(-1)), b))
    same(got["ramp"], torch.relu(a))
    assert bits(got["ramp"])[4] == bits(f32(-0.0))[0]


@each_target
def test_argmax_takes_the_first_nan_else_the_first_of_equals(target: str) -> None:
    x = f32(1, NAN, 7, NAN, 3, 7, 7, 0, 2, 2, 2, 2).reshape(3, 4)
    got = run(ROWS, target, x)
    assert got["first"].tolist() == [1, 1, 0] == x.argmax(1).tolist()
    assert got["last"].tolist() == [1, 3, 0] == x.argmin(1).tolist()
    assert got["top"].isnan().tolist() == [True, False, False]


@each_target
def test_exp_keeps_its_ulps_up_to_where_it_overflows(target: str) -> None:
    """ex2.approx of a product is 8 ulp off at 10 and 63 near 88."""
    x = torch.cat([torch.linspace(-103, 88.7, 4001), f32(1, -1, 10, -10, 88.7, 89, -104)])
    e = run(POINTS, target, x, torch.ones_like(x))["e"].double()
    exact = x.double().exp()
    unit = torch.ldexp(torch.ones_like(exact), (torch.frexp(exact)[1] - 1).clamp(min=-126) - 23)
    worst = OPS["exp"].spell("cpp" if target == "torch" else target).ulp[0]
    inside = exact < torch.finfo(torch.float32).max
    assert ((e - exact).abs() / unit)[inside].max() <= worst and e[~inside].isinf().all()


@each_target
def test_division_and_square_root_are_correctly_rounded(target: str) -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(4000, generator=generator).abs() * 10 ** torch.linspace(-30, 7, 4000) for _ in "ab")
    got = run(POINTS, target, a, b)
    same(got["quotient"], (a.double() / b.double()).float())  # 53 bits are enough to round twice
    if target != "torch":  # whose own square root is 0.73 ulp off
        same(got["root"], a.double().sqrt().float())


@each_target
def test_denormals_are_kept(target: str) -> None:
    tiny = f32(1e-40, -1e-40, 1e-45, 2.0**-127)
    got = run(POINTS, target, tiny, torch.ones(4))
    same(got["half"], tiny * 0.5)
    same(got["whole"], f32(0, -1, 0, 0))
    same(got["quotient"], tiny)
    torch.testing.assert_close(got["root"][[0, 2, 3]].double(), tiny[[0, 2, 3]].double().sqrt(), rtol=2**-23, atol=0)
    torch.testing.assert_close(got["logarithm"][[0, 2, 3]].double(), tiny[[0, 2, 3]].double().log2(), rtol=2**-21, atol=0)


@each_target
def test_a_product_and_a_sum_are_two_roundings(target: str) -> None:
    """Fused, a * b - f32(a * b) is what the rounding lost; written it is 0."""
    a, b = torch.linspace(1, 2, 1001), torch.linspace(1.1, 3, 1001)
    assert not run(POINTS, target, a, b)["residue"].any()


@each_target
def test_integer_division_floors_and_by_zero_is_0_with_the_remainder_whole(target: str) -> None:
    i = torch.tensor([7, -7, 7, -7, 5, -(2**31), -5], dtype=torch.int32)
    j = torch.tensor([2, 2, -2, -2, 0, -1, 0], dtype=torch.int32)
    no = torch.zeros(7, dtype=torch.bool)
    got = run(INTEGERS, target, i, j, no, no)
    assert got["quotient"].tolist() == [3, -4, -4, 3, 0, -(2**31), 0]
    assert got["rest"].tolist() == [1, 1, -1, -1, 5, 0, -5]
    with pytest.raises(kgen.KgenError, match="zero|0"):
        kgen.loads("z(i: i32[N]) -> y: i32[N]\ny = i // 0\n")


@each_target
def test_float_remainders_are_exact_for_large_quotients_and_infinite_divisors(target: str) -> None:
    a, b = f32(-1e-20, -1, 1, 1e10, -5, 5.5, 3.4e38), f32(3, INF, -INF, 3, 0.7, INF, 3)
    rest = run(POINTS, target, a, b)["rest"]
    want = [3.0, INF, -INF, 1e10 % 3, (torch.tensor(-5.0).double() % torch.tensor(0.7).double()).item(), 5.5, None]
    for got, exact in list(zip(rest.tolist(), want, strict=True))[:6]:
        assert got == exact or abs(got / exact - 1) <= 2**-23
    assert rest[6] == torch.tensor(float(int(a[6].item()) % 3))


@each_target
def test_powers_have_ieee_special_values_and_are_no_square_roots(target: str) -> None:
    a, b = f32(0, 1, -1, -2, -INF, NAN, 0, -0.0), f32(0, NAN, INF, 3, 0.5, 0, -1, -1)
    got = run(POINTS, target, a, b)
    same(got["power"][:7], f32(1, 1, 1, -8, INF, 1, INF))
    assert got["power"][7] == -INF
    assert got["powered_root"][4] == INF and torch.signbit(got["powered_root"][7:]).tolist() == [False]
    assert got["root"][4].isnan()


@each_target
def test_shifts_by_the_width_or_more_or_less_than_0_are_0_or_the_sign(target: str) -> None:
    i = torch.tensor([1, -1, 5, -5, 1, -8], dtype=torch.int32)
    j = torch.tensor([32, 32, -1, -1, 31, 1], dtype=torch.int32)
    no = torch.zeros(6, dtype=torch.bool)
    got = run(INTEGERS, target, i, j, no, no)
    assert got["left"].tolist() == [0, 0, 0, 0, -(2**31), -16] and got["right"].tolist() == [0, -1, 0, -1, 0, -4]


@each_target
def test_floats_saturate_where_an_integer_does_not_reach_and_nan_is_0(target: str) -> None:
    got = run(POINTS, target, f32(1e30, -1e30, NAN, INF, -3.7, 255.5, -129), torch.ones(7))
    assert got["byte"].tolist() == [255, 0, 0, 255, 0, 255, 0]
    assert got["small"].tolist() == [127, -128, 0, 127, -3, 127, -128]
    assert got["long"].tolist() == [2**63 - 1, -(2**63), 0, 2**63 - 1, -3, 255, -129]


@each_meaning
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_16_bit_floats_are_computed_in_f32_and_rounded_once(dtype: torch.dtype, target: str) -> None:
    """Rounded once to its dtype, not at each step.

    With u = 2^-24 the quotient is off by u|x/3|, its sum with 1e-3 by u|x/3 + 1e-3| more, their product with 3 by three times that and
    u|x + 3e-3| of its own, where it is rounded: a product and a difference of what is stored in 16 bits may be rounded together
    (DESIGN.md, section 3), which is nearer, and in f16 another number for 100.  The last difference is of numbers so near that it is
    exact.  Half a unit of the stored dtype comes last; eager, which rounds at each step, is hundreds of such bounds off.
    """
    x = torch.tensor([1.0, 3.0, 100.0], dtype=dtype)
    got = run("thin(x: T[N]) -> y: T[N]\ny = (x / 3 + 1e-3) * 3 - x\n", target, x)["y"]
    f, number = x.double(), torch.tensor(1e-3).double()
    exact = (f / 3 + number) * 3 - f
    unit = torch.ldexp(torch.ones_like(f), torch.frexp(exact)[1]) * torch.finfo(dtype).eps / 2
    bound = 3 * 2.0**-24 * (f + 3e-3) * (1 + 2.0**-20) + unit / 2
    assert got.dtype == dtype and ((got.double() - exact).abs() <= bound).all()
    product = (x.float() / 3 + torch.tensor(1e-3)).double() * 3  # exact, as it has 26 bits
    for reading in (product.float().double() - f, product - f):
        assert ((reading.float().to(dtype).double() - exact).abs() <= bound).all()
    assert ((((x / 3 + 1e-3) * 3 - x).double() - exact).abs() > 50 * bound).all()


@each_target
def test_true_plus_true_is_true_a_sum_of_bools_is_an_i64_and_they_do_not_subtract(target: str) -> None:
    """256 times True, stored as a byte, would be False."""
    i, p = torch.ones(256, dtype=torch.int32), torch.ones(256, dtype=torch.bool)
    got = run(INTEGERS, target, i, i, p, p)
    assert got["both"].all() and got["both"].dtype == torch.bool and got["k"].tolist() == 256
    with pytest.raises(kgen.KgenError, match="bool"):
        kgen.loads("b(p: bool[N]) -> y: bool[N]\ny = p - p\n")


@each_meaning
def test_dtypes_promote_as_torchs_and_0_d_tensors_give_way(target: str) -> None:
    h, b, s = torch.tensor([1.5, 2.0], dtype=torch.float16), torch.tensor([3.0, 0.1], dtype=torch.bfloat16), torch.tensor(0.1)
    assert torch.result_type(h, s) == torch.float16 and torch.result_type(h, b) == torch.float32
    kernel = load("both(h: f16[N], b: bf16[N], s: f32[]) -> (y: f16[N], z: f32[N])\ny = h * s\nz = h * b\n")
    got = run("both(h: f16[N], b: bf16[N], s: f32[]) -> (y: f16[N], z: f32[N])\ny = h * s\nz = h * b\n", target, h, b, s)
    assert [r.dtype for r in kernel.kernel.results] == ["f16", "f32"]
    same(got["z"], h.float() * b.float())
    same(got["y"], (h.float() * s).half())


# ---------------------------------------------------------------------- memory


@each_target
def test_addresses_beyond_2_31_are_not_cut(target: str) -> None:
    """By strides, not by the number of elements; the pages between are never touched."""
    where = "cuda" if target in ("triton", "cuda") else "cpu"
    view = torch.empty(2**31 + 64, dtype=torch.int8, device=where)[:: 2**30]
    view.copy_(torch.tensor([1, 2, 3]))
    got = call(BYTES, target, view)
    assert got.tolist() == [2, 4, 6]


def test_grids_have_one_axis() -> None:
    """A grid's y and z end at 65,535; the axes that are cluster ranks are not the grid's."""
    for name in ("gelu", "softmax", "sum_of_squares_cols", "frobenius", "embedding"):
        text = "embedding(w: T[V, D], t: i64[...]) -> y: T[..., D]\ny = pick[V](w, t)\n"
        kernel = kgen.loads(text) if name == "embedding" else kgen.load(name)
        assert not re.findall(r"program_id\((?!0\))|num_programs\((?!0\))", kernel.source("triton"))
        assert not re.findall(r"(?:blockIdx|gridDim)\.[yz]", kernel.source("cuda"))


@each_target
def test_more_rows_than_a_grid_axis_of_65535_are_all_reduced(target: str) -> None:
    x = torch.arange(70_000.0).reshape(70_000, 1).expand(70_000, 2)
    same(run(ROWS, target, x)["total"], 2 * x[:, 0].contiguous())


def test_a_tile_stays_below_tritons_limit(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.triton.test_triton_rows import record, rows
    from tests.triton.test_triton_source import emit

    module = emit("soft(x: T[..., N]) -> y: T[..., N]\ny = softmax[N](x)\n", tmp_path, "soft")
    for shape in ((1, 2**20 + 1), (4, 65_536), (1000, 65_536), (3, 50_257), (100_000, 8)):
        for *_, given in record(module, "soft", [rows(*shape)]):
            assert given.get("ROWS", 1) * given["BLOCK"] <= 2**17


def test_deep_expressions_are_lines_and_their_cap_is_said() -> None:
    deep = "deep(x: f32[N]) -> y: f32[N]\ny = " + " + ".join(["x"] * 300) + "\n"
    assert run(deep, "torch", torch.ones(3))["y"].tolist() == [300.0] * 3
    compile(load(deep).source("triton"), "deep.py", "exec")
    with pytest.raises(kgen.KgenError, match="more than 2,000 operations"):
        kgen.loads(deep.replace("y = ", "y = " + "x * " * 1900))
    with pytest.raises(kgen.KgenError, match="more than 200 brackets"):
        kgen.loads("deep(x: f32[N]) -> y: f32[N]\ny = " + "(" * 300 + "x" + ")" * 300 + "\n")


@each_target
def test_results_whose_elements_share_memory_are_refused(target: str) -> None:
    where = "cuda" if target in ("triton", "cuda") else "cpu"
    kernel, x = load(BYTES), torch.ones(4, dtype=torch.int8, device=where)
    for out in (torch.empty_like(x[:1]).expand(4), torch.empty_like(x).as_strided((4,), (0,))):
        with pytest.raises(kgen.KgenError, match="share memory"):
            kernel(x, out=out, target=target)
    base = torch.ones(5, dtype=torch.int8, device=where)
    with pytest.raises(kgen.KgenError, match="overlaps"):
        kernel(base[:4], out=base[1:], target=target)


@each_target
def test_every_offset_from_an_aligned_address_is_right(target: str) -> None:
    base = torch.arange(600).to(torch.int8)
    for start in range(16):
        x = base[start : start + 500]
        assert torch.equal(run(BYTES, target, x)["y"], x * 2)


# ---------------------------------------------------------------------- reductions


@each_target
def test_sums_of_exponentials_of_masked_rows_are_no_nan(target: str) -> None:
    """Rescaling by exp(-inf + inf) where the running maximum is still -inf would make good rows NaN."""
    x = masked_rows()
    got = run(ROWS, target, x)["lse"]
    same(got[:2], f32(-INF, INF))
    torch.testing.assert_close(got[2:], torch.logsumexp(x[2:], 1))


@pytest.mark.parametrize("target", ["torch", pytest.param("cpp", marks=pytest.mark.slow), *GPU])
def test_softmax_of_rows_of_infinities_is_torchs_and_of_masked_rows_no_nan(target: str) -> None:
    x = masked_rows()
    y = run("soft(x: f32[M, N]) -> y: f32[M, N]\ny = softmax[N](x)\n", target, x)["y"]
    assert y.isnan().all(1).tolist() == [True, True, False, False, False]
    assert not y[2:].isnan().any() and (y[2, :15_000] == 0).all()
    torch.testing.assert_close(y[2:], torch.softmax(x[2:], 1))


def masked_rows() -> torch.Tensor:
    x = torch.zeros(5, 20_000)
    x[0], x[1, 3], x[2, :15_000], x[3, 15_000:], x[4] = -INF, INF, -INF, -INF, 3.0
    return x


@each_target
def test_a_variance_at_an_offset_does_not_cancel(target: str) -> None:
    """E[x^2] - E[x]^2 in f32 has a relative error of 25 at an offset of 1e4."""
    x = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0)) + 1e4
    torch.testing.assert_close(run(ROWS, target, x)["spread"].double(), x.double().var(1), rtol=1e-4, atol=0)


@each_target
def test_long_sums_keep_their_digits(target: str) -> None:
    x = torch.rand(1, 1 << 20, generator=torch.Generator().manual_seed(0))
    got = run(ROWS, target, x)["total"]
    assert abs(got.item() / x.double().sum().item() - 1) <= tree_depth(1 << 20) * 2.0**-24


@each_meaning
def test_empty_rows_empty_batches_and_single_elements_are_torchs(target: str) -> None:
    kept = """
empty(x: f32[M, N]) -> (total: f32[M], spread: f32[M], mu: f32[M], p: f32[M])
total = sum[N](x)
spread = var[N](x)
mu = mean[N](x)
p = prod[N](x)
"""
    for m, n in ((3, 0), (0, 3), (0, 0), (2, 1)):
        got = run(kept, target, torch.full((m, n), 2.0))
        same(got["total"], torch.full((m, n), 2.0).sum(1))
        same(got["p"], torch.full((m, n), 2.0).prod(1))
        same(got["mu"], torch.full((m, n), 2.0).mean(1))
        assert got["spread"].isnan().all() and got["spread"].shape == (m,)
    with pytest.raises(kgen.KgenError, match="max"):
        run(ROWS, target, torch.empty(3, 0))
    assert run("scalar(x: f32[]) -> y: f32[]\ny = x + 1\n", target, torch.tensor(1.0))["y"].tolist() == 2.0


# ---------------------------------------------------------------------- gradients


@each_meaning
def test_gradients_share_at_ties_and_choose_before_they_multiply(target: str) -> None:
    where = "cuda" if target in ("triton", "cuda") else "cpu"

    def gradient(text: str, *values: float) -> list[float]:
        x = torch.tensor(values, dtype=torch.float32, device=where, requires_grad=True)
        kernel = load(text)
        if target == "torch":
            (made,) = (grad.backward(kernel.kernel, save=False).kernel,)
            dy = torch.ones(()) if "[]" in text.split("->")[1].split("\n")[0] else torch.ones_like(x)
            return kgen.runtime.evaluate.Evaluator(made, {"x": x.detach(), "dy": dy}).run()[0].tolist()
        kernel(x).sum().backward()
        return x.grad.tolist()

    each, over = "g(x: f32[N]) -> y: f32[N]\ny = ", "g(x: f32[N]) -> y: f32[]\ny = "
    assert gradient(over + "max[N](x)\n", 1, 3, 3, -1) == [0, 0.5, 0.5, 0]
    assert gradient(each + "relu(x)\n", -1, 0, 1, NAN) == [0, 0, 1, 1]
    assert gradient(each + "clamp(x, -1, 1)\n", -2, -1, 0, 1, 2) == [0, 1, 1, 1, 0]
    assert gradient(each + "sqrt(x) if x > 0 else 0\n", -1, 0, 4) == [0, 0, 0.25]


def test_no_gradient_goes_through_the_maximum_of_softmax() -> None:
    made = grad.backward(kgen.load("softmax").kernel).kernel
    assert not [v.op for v in made.values if v.op in ("max", "argmax", "eq")]


# ---------------------------------------------------------------------- symbols, text and caches


@each_target
def test_nothing_is_cancelled(target: str) -> None:
    """x / x, x - x and 0 * x of infinities and NaN are NaN, and of -1 0 * x is -0."""
    got = run(POINTS, target, f32(INF, NAN, 0, -1, 2), torch.ones(5))
    assert got["over"].isnan().tolist() == [True, True, True, False, False]
    assert got["less"].isnan().tolist() == got["nothing"].isnan().tolist() == [True, True, False, False, False]
    assert torch.signbit(got["nothing"]).tolist()[3:] == [True, False]
    program = kgen.loads("c(x: f32[N]) -> (y: bool[N], z: f32[N])\ny = not (x < 1)\nz = 2 * (x + 1) + exp(log(x))\n").program()
    assert "ge" not in program and "log" in program and "not" in program


@each_target
def test_literals_are_exact_and_operands_keep_their_order(target: str) -> None:
    got = run(POINTS, target, f32(1, 2), f32(3, 4))
    assert got["third"].tolist() == [f32(0.1).item()] * 2 and got["wide"].tolist() == [0.1] * 2
    for language in ("triton", "cuda", "cpp"):
        source = kgen.loads("o(z: f32[N], a: f32[N]) -> y: f32[N]\ny = z / 2 + a * z\n").source(language)
        assert re.search(r"z (?:/ |\* )", source) and "a * z" in source and "(1/2)" not in source


def test_names_are_ascii_reserved_words_give_way_and_comments_stay_comments() -> None:
    for name in ("\u00b5", "\U0001d431"):
        with pytest.raises(kgen.KgenError, match="outside ASCII"):
            kgen.loads(f"n({name}: f32[N]) -> y: f32[N]\ny = {name}\n")
    kernel = kgen.loads(
        '# a comment \\\n# */ and """ more\nint_(lambda: f32[N], float_: f32[N]) -> return: f32[N]\nreturn = lambda + float_\n'
    )
    compile(kernel.source("triton"), "n.py", "exec")
    assert kernel(f32(1), f32(2), target="torch").tolist() == [3.0]
    for language in ("cuda", "cpp"):
        assert not re.search(r"//[^\n]*\\\n", kernel.source(language)) and "/* a comment" not in kernel.source(language)


@pytest.mark.parametrize("text", ["9^9^9", "10^10^10", "1e1000000", "2^2^2^2^2^2", "1e400 * x", "9" * 70])
def test_bombs_are_answered_at_once(text: str) -> None:
    start = time.process_time()
    try:
        kgen.loads(f"bomb(x: f32[N]) -> y: f32[N]\ny = x + {text}\n").source("cpp")
    except kgen.KgenError as error:
        assert str(error)
    assert time.process_time() - start < 1


def test_a_tampered_cache_entry_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEN_CACHE_DIR", str(tmp_path / "kgen"))
    cache.folder.cache_clear()
    path = cache.write("entry", ".so", b"payload" * 100)
    path.write_bytes(path.read_bytes().replace(b"payload", b"Payload", 1))
    assert cache.read("entry", ".so") is None
    cache.folder.cache_clear()


def test_tritons_interpreter_is_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """It differs from compiled code; a check on "triton" is one on a GPU, or says that there is none."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    able, left_out = checks.targets("triton")
    assert not able and "CUDA" in left_out["triton"]
    with pytest.raises(kgen.KgenError, match="triton does not run on cpu"):
        load("twice(x: f32[N]) -> y: f32[N]\ny = x * 2\n")(torch.ones(3), target="triton")


def test_the_tables_bounds_have_room_for_the_measured_errors_of_cudas_library() -> None:
    measured = {"exp": 2, "log": 1, "tanh": 2, "erf": 1, "sin": 1, "cos": 2, "tan": 3, "sinh": 3, "log1p": 1, "pow": 2}
    for (name, error), target in itertools.product(measured.items(), ("cuda", "triton")):
        assert OPS[name].spell(target).ulp[0] >= error


@pytest.mark.parametrize("target", ["cpp", *GPU])  # torch's own remainder is NaN for a few of the quotients
def test_the_points_together_stay_within_their_derived_bound(target: str) -> None:
    """What the tests above hold point by point, on one more mixture of values, against the exact reading."""
    values = f32(0, -0.0, 1, -1, 0.5, 3, -7.25, 88, -104, 1e-40, 1e30, -3e38, INF, -INF, NAN)
    a, b = (t.contiguous().flatten() for t in torch.meshgrid(values, values, indexing="ij"))
    check_call(load(POINTS), {"a": a, "b": b}, target)
