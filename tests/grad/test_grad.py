"""Derived gradients: equal to autograd's of the formula, at random points and where torch has conventions of its own."""

from __future__ import annotations

import math

import pytest
import torch

import kgen
from kgen import check, grad, syntax
from kgen.invariant import unmoved
from kgen.runtime.evaluate import Evaluator
from kgen.tape import Tape
from kgen.testing import checks
from kgen.values import Value
from tests.conftest import ROOT
from tests.grad_cases import FORMULAS, arguments, is_float, kernel, kgens, texts, torchs, wide

TEXTS = texts()
#: Equal formulas differ by rounding alone; a wrong rule differs in the first digit.  Both sides are float64.
SAME = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.parametrize("save", [True, False], ids=["saved", "recomputed"])
@pytest.mark.parametrize("name", TEXTS)
def test_a_gradient_is_autograds(name: str, save: bool) -> None:
    k = wide(TEXTS[name])
    given = arguments(k)
    dys, want = torchs(k, given)
    got = kgens(grad.backward(k, save=save), given, dys)
    for parameter in want:
        torch.testing.assert_close(got[parameter], want[parameter], **SAME, msg=lambda m, p=parameter: f"d{p}: {m}")


@pytest.mark.parametrize("name", TEXTS)
def test_forward_mode_is_the_transpose_of_backward(name: str) -> None:
    """<dy, J dx> = <J' dy, dx>, with autograd's J'."""
    k = wide(TEXTS[name])
    given = arguments(k)
    dys, want = torchs(k, given)
    made = grad.forward_mode(k)
    tangents = {n: torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(2)) for n, x in given.items() if is_float(x)}
    took = {n: given[n] for n in made.takes} | {t: tangents[n] for n, t in made.tangents.items()}
    found = dict(zip((r.name for r in made.kernel.results), Evaluator(made.kernel, took, "eager").run(), strict=True))
    left = sum(float((found[d].double() * dys[r].double()).sum()) for r, d in made.results.items())
    right = sum(float((want[n].double() * tangents[n].double()).sum()) for n in want)
    size = sum(float((want[n].double() * tangents[n].double()).abs().sum()) for n in want)
    assert abs(left - right) <= 1e-10 * size + 1e-12


@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy", "gelu", "swiglu", *FORMULAS])
def test_the_backward_of_the_backward_is_autograds(name: str) -> None:
    """With every cotangent and saved value a parameter of its own, as double backward has it."""
    first = grad.backward(wide(TEXTS[name]))
    if not grad.differentiable(first.kernel):
        pytest.skip("its gradient is constant")
    if "lgamma" in TEXTS[name]:
        with pytest.raises(kgen.KgenError, match="the derivative of `digamma` is not known"):
            grad.backward(first.kernel)
        first = grad.backward(wide(TEXTS[name].replace("lgamma(3 + x^2)", "x")))
    k = first.kernel
    given = arguments(k)
    forward = {p.name: given[p.name] for p in first.forward.params if p.name in given}
    if set(forward) == {p.name for p in first.forward.params}:  # what is saved is what these parameters give
        results = zip(first.forward.results, Evaluator(first.forward, forward, "eager").run(), strict=True)
        given |= {r.name: y.contiguous() for r, y in results if r.name in first.saved}
    else:
        given |= {name: given[name].abs() + 0.5 for name in first.saved}
    dys, want = torchs(k, given)
    got = kgens(grad.backward(k), given, dys)
    for parameter in want:
        torch.testing.assert_close(got[parameter], want[parameter], **SAME, msg=lambda m, p=parameter: f"d{p}: {m}")


def test_the_gradient_of_a_formula_with_nan_in_it_is_a_spec() -> None:
    """A comparison with `nan` as a person would write it is refused; the gradient of a maximum has one."""
    made = grad.backward(kernel("f(x: T[N]) -> y: T[N]\n\ny = max(x, nan) + clamp(x, nan, 1)"))
    found = kgens(made, {"x": torch.tensor([1.0, math.nan, -math.inf])}, {"y": torch.ones(3)})["x"]
    assert torch.equal(found, torch.tensor([1.0, 1.0, 1.0]))


def test_what_is_given_and_wanted_alone_is_computed() -> None:
    k = kgen.load("layernorm").kernel
    only = grad.backward(k, wanted=["b"])
    assert only.gradients == {"b": "db"} and only.forward is k and not only.saved and only.takes == only.sized
    two = kernel("f(x: T[..., N], w: T[N]) -> (y: T[..., N], s: T32[...])\n\ny = x * w\ns = sum[N](x^2)")
    half = grad.backward(two, given=["s"])
    assert list(half.cotangents) == ["s"] and list(half.gradients) == ["x"]
    assert "w" not in half.takes


def test_sizes_and_dtypes_come_from_parameters_that_are_not_read() -> None:
    constant = grad.backward(kernel("f(x: T[...], w: T[...]) -> y: T[...]\n\ny = x^0 * round(w)"), wanted=["x"])
    (zero,) = Evaluator(constant.kernel, {"dy": torch.ones(3), "x": torch.ones(3)}).run()
    assert constant.gradients == {"x": "dx"} and not zero.any()
    made = grad.backward(kernel("f(x: T[..., N]) -> y: f32[]\n\ny = mean[..., N](x)"))
    assert made.takes == made.sized == ("x",)
    (got,) = Evaluator(made.kernel, {"dy": torch.tensor(3.0), "x": torch.full((2, 5), math.nan, dtype=torch.bfloat16)}).run()
    assert got.dtype == torch.bfloat16 and torch.equal(got.float(), torch.full((2, 5), 0.3).bfloat16().float())


# ------------------------------------------------------------------------------------------- ties, kinks, NaN

X = "f(x: T[N]) -> y: T[N]\n\ny = "
REDUCED = "f(x: T[N]) -> y: T[]\n\ny = "
NAN, INF = math.nan, math.inf
CONVENTIONS = [
    (X + "relu(x)", lambda x: torch.relu(x), [-1.0, -0.0, 0.0, 1.0, NAN, INF]),
    (X + "abs(x)", lambda x: x.abs(), [-1.0, -0.0, 0.0, 2.0, NAN]),
    (X + "max(x, 0)", lambda x: torch.maximum(x, torch.zeros_like(x)), [-1.0, 0.0, -0.0, 1.0, NAN]),
    (X + "min(x, 1)", lambda x: torch.minimum(x, torch.ones_like(x)), [0.0, 1.0, 2.0, NAN]),
    (X + "clamp(x, -1, 1)", lambda x: x.clamp(-1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0, NAN]),
    (X + "elu(x, 1)", lambda x: torch.nn.functional.elu(x), [-1.0, 0.0, 1.0, INF]),
    (X + "leaky_relu(x, 0.1)", lambda x: torch.nn.functional.leaky_relu(x, 0.1), [-1.0, 0.0, 1.0, NAN]),
    (X + "softplus(x)", lambda x: torch.nn.functional.softplus(x), [-1.0, 0.0, 1.0]),
    (X + "hardswish(x)", lambda x: torch.nn.functional.hardswish(x), [-3.0, 3.0, 0.0, 4.0, -4.0]),
    (X + "hardsigmoid(x)", lambda x: torch.nn.functional.hardsigmoid(x), [-3.0, 3.0, 4.0, -4.0]),  # between them torch has 1/6 in f32
    (REDUCED + "norm[N](x)", lambda x: torch.linalg.vector_norm(x), [0.0, 0.0]),
    (REDUCED + "std[N](x)", lambda x: x.std(), [2.0, 2.0]),
    (X + "sqrt(x)", lambda x: x.sqrt(), [0.0, 1.0, INF]),
    (X + "x^0", lambda x: x**0, [0.0, 1.0, INF]),
    (X + "x^2", lambda x: x**2, [0.0, -1.0, INF]),
    (X + "x^0.5", lambda x: x**0.5, [0.0, 1.0, 4.0]),
    (X + "sign(x) * x", lambda x: x.sign() * x, [0.0, 1.0, -2.0]),
    (X + "round(x) + x", lambda x: x.round() + x, [0.5, 1.5, -0.2]),
    (X + "x % 2", lambda x: x % 2, [0.0, 2.0, 3.0, -1.0]),
    (X + "x if x > 0 else -x", lambda x: torch.where(x > 0, x, -x), [0.0, -1.0, 1.0, NAN]),
    (REDUCED + "max[N](x)", lambda x: x.amax(0), [1.0, 3.0, 3.0, -1.0]),
    (REDUCED + "max[N](x)", lambda x: x.amax(0), [1.0, NAN, 3.0, NAN]),
    (REDUCED + "min[N](x)", lambda x: x.amin(0), [0.0, -0.0, 0.0, 2.0]),
    (REDUCED + "max[N](x)", lambda x: x.amax(0), [-INF, -INF]),
    (REDUCED + "prod[N](x)", lambda x: x.prod(), [2.0, 3.0, 4.0]),
    (REDUCED + "prod[N](x)", lambda x: x.prod(), [2.0, 0.0, 4.0]),
    (REDUCED + "prod[N](x)", lambda x: x.prod(), [0.0, 0.0, 4.0]),
    (REDUCED + "mean[N](x)", lambda x: x.mean(), [2.0, NAN]),
    (REDUCED + "sum[N](x)", lambda x: x.sum(), [INF, -INF]),
    (REDUCED + "logsumexp[N](x)", lambda x: x.logsumexp(0), [1.0, 1.0, -INF]),
    (REDUCED + "var[N](x)", lambda x: x.var(), [1.0, 2.0, 4.0]),
    (REDUCED + "norm[N](x)", lambda x: x.square().sum().sqrt(), [3.0, 4.0]),
]


@pytest.mark.parametrize("text, function, points", CONVENTIONS, ids=[f"{t.split('y = ')[1]} at {p}" for t, _, p in CONVENTIONS])
def test_ties_kinks_and_nan_are_torchs(text: str, function, points: list[float]) -> None:
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    y = function(x)
    dy = torch.full_like(y, 0.75)
    (want,) = torch.autograd.grad(y, x, dy, allow_unused=True) if y.requires_grad else (None,)
    want = torch.zeros_like(x) if want is None else want
    k = kernel(text)
    got = kgens(grad.backward(k), {"x": x.detach()}, {"y": dy})["x"]
    torch.testing.assert_close(got, want, rtol=1e-14, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "formula, points",
    [
        ("sqrt(x) if x > 0 else 0", [-1.0, 0.0, 4.0]),
        ("1 / x if x != 0 else 0", [0.0, 2.0]),
        ("log(x) if x > 0 else -x", [0.0, -1.0, 1.0]),
        ("(sqrt(x - 1) * x if x > 1 else 0) if x != 3 else 0", [0.0, 1.0, 2.0, 3.0]),
        ("0 if x == 0 else x * log(x / 2)", [0.0, 1.0]),
        ("(sqrt(x) if x > 1 else x) if x > 0 else 0", [-1.0, 0.5, 4.0]),
    ],
)
def test_a_choice_selects_before_it_multiplies(formula: str, points: list[float]) -> None:
    """Where torch gives NaN (0 * inf) the branch that was not taken has no say: central differences of the formula agree."""
    k = kernel(X + formula)
    x = torch.tensor(points, dtype=torch.float64)
    got = kgens(grad.backward(k), {"x": x}, {"y": torch.ones_like(x)})["x"]
    assert got.isfinite().all()
    for i, point in enumerate(points):
        if point in (0.0, 1.0, 3.0):  # at its own edge the other branch holds
            continue
        h = 1e-6
        up, down = (Evaluator(k, {"x": x.clone().index_fill_(0, torch.tensor([i]), point + s * h)}).run()[0][i] for s in (1, -1))
        assert abs(got[i] - (up - down) / (2 * h)) < 1e-5


@pytest.mark.parametrize("name", ["softplus", "mish", "silu", "gelu"])
def test_second_derivatives_of_smooth_functions_are_right_where_their_formula_bends(name: str) -> None:
    function = {"softplus": torch.nn.functional.softplus, "mish": torch.nn.functional.mish, "silu": torch.nn.functional.silu,
                "gelu": torch.nn.functional.gelu}[name]  # fmt: skip
    first = grad.backward(wide(TEXTS[name])).kernel
    x, dy = torch.tensor([0.0, -0.0], dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    got = kgens(grad.backward(first), {"dy": dy, "x": x}, {"dx": dy})["x"]
    leaf = x.clone().requires_grad_()
    (once,) = torch.autograd.grad(function(leaf).sum(), leaf, create_graph=True)
    torch.testing.assert_close(got, torch.autograd.grad(once.sum(), leaf)[0], rtol=1e-12, atol=0)


# ------------------------------------------------------------------------------------------- the shift-invariant maximum


def cut(text: str) -> int:
    k = kernel(text)
    tape = Tape(k)
    return len(unmoved(tape, [r.value for r in k.results]))


HEAD = "f(x: T[..., N], t: i64[...]) -> y: T32[..., N]\n\nm = max[N](x)\n"


@pytest.mark.parametrize(
    "formula, proved",
    [
        ("y = exp(x - m) / sum[N](exp(x - m)) + t", True),
        ("y = x - m - log(sum[N](exp(x - m))) + t", True),
        ("y = log(sum[N](exp(x - m))) + m - pick[N](x, t)", True),
        ("y = log2(sum[N](exp2(x - m))) + m + t", True),
        ("y = pick[N](x - m, t) - mean[N](x - m)", True),
        ("y = exp(-(m - x)) / mean[N](exp(x - m)) + t", True),
        ("y = (exp(x - m) if t > 0 else exp(x - m)) / sum[N](exp(x - m))", True),
        ("e = exp(x - m) if index[N] < t else 0\ny = e / sum[N](e) if isfinite(m) else 0", True),
        ("e = exp(x - m if index[N] < t else -inf)\ns = sum[N](e)\ny = e / s if s > 0 else 0", True),
        ("e = 0.0 if index[N] < t else exp(x - m)\ny = e / sum[N](e) if not isnan(m) else 1", True),
        ("e = exp(x - m) if index[N] < t else 1\ny = e / sum[N](e)", False),
        ("e = exp(x - m if index[N] < t else 0)\ny = e / sum[N](e)", False),
        ("e = exp(x - m) if x > m - 3 else 0\ny = e / sum[N](e) + t", False),
        ("e = exp(x - m)\ns = sum[N](e)\ny = e / s + t if s > 1 else 0", False),
        ("y = exp(x - m) + t", False),
        ("y = x - m + stop(m) + t", False),
        ("y = exp(x - m) / sum[N](exp(x - stop(m))) + t", False),
        ("y = exp(x - m) / sum[N](exp(x)) + t", False),
        ("y = log2(sum[N](exp(x - m))) + m + t", False),
        ("y = exp(x - m) / sum[...](exp(x - m)) + t", False),
        ("y = sum[N](x - m) + m + t", False),
        ("y = (x - m) * 2 + 2 * m + t", False),
        ("y = exp(x - m) / sum[N](exp(x - m)) + m + t", False),
        ("y = max(x - m, -3) + t", False),
    ],
)
def test_a_maximum_is_cut_where_no_result_moves_with_it(formula: str, proved: bool) -> None:
    assert cut(HEAD + formula) == proved


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "cross_entropy", "causal_softmax"])
def test_no_gradient_goes_through_the_maximum_of(name: str) -> None:
    k = kgen.load(name).kernel
    assert not any(v.op == "eq" and "max" in {k.values[a].op for a in v.args} for v in grad.backward(k, save=False).kernel.values)


# ------------------------------------------------------------------------------------------- errors, texts, bounds


def test_a_kernel_without_derivative_says_why() -> None:
    for name, why in (
        ("adamw", "adamw has no backward: it writes `p` in place"),
        ("argmax", "argmax has no backward: its results do not move with x"),
    ):
        with pytest.raises(kgen.KgenError, match=why):
            grad.backward(kgen.load(name).kernel)
    with pytest.raises(kgen.KgenError, match="has no forward mode"):
        grad.forward_mode(kgen.load("argmax").kernel)


def test_a_backward_too_long_for_a_kernel_says_so() -> None:
    lines = "\n".join(f"a{i + 1} = sin(a{i}) * cos(a{i}) + tanh(a{i})" for i in range(350))
    k = kernel(f"f(x: T[...]) -> y: T[...]\n\na0 = x\n{lines}\ny = a350")
    with pytest.raises(kgen.KgenError, match="its backward would be too long for one kernel"):
        grad.backward(k)


def test_names_of_the_writer_are_not_taken() -> None:
    """A kernel whose own names are those that gradients would get."""
    k = kernel("f(x: T[..., dy_], dx: T[...], dy: T[dy_]) -> (y: T[..., dy_], t1: T[...])\n\n".replace("dy_", "N")
               + "de = exp(x * dy)\nt2 = de * dx\ny = t2 * de\nt1 = sum[N](de)")  # fmt: skip
    given = arguments(k)
    dys, want = torchs(k, given)
    got = kgens(grad.backward(k), given, dys)
    for parameter in want:
        torch.testing.assert_close(got[parameter], want[parameter], **SAME)


def _closure(k: check.Kernel) -> list[Value]:
    return sorted((v for v in k.values), key=repr)


@pytest.mark.parametrize("name", TEXTS)
def test_a_derived_spec_is_set_as_fmt_sets_it_and_means_the_same_when_read_again(name: str) -> None:
    from kgen import typeset

    made = grad.backward(kernel(TEXTS[name]))
    for k in (made.kernel, made.forward, grad.forward_mode(kernel(TEXTS[name])).kernel):
        text = k.file.source.text
        if k is not made.forward or made.saved:
            assert typeset.format_file(syntax.parse(text, "again")) == text or k.name == kernel(TEXTS[name]).name
        assert [v for v in check.check(syntax.parse(text, "again")).values] == list(k.values)


@pytest.mark.parametrize("name", [p.stem for p in sorted((ROOT / "specs").glob("*.k")) if p.stem in TEXTS])
def test_the_backward_is_as_reviewed(name: str, golden) -> None:
    made = grad.backward(kgen.load(ROOT / "specs" / f"{name}.k").kernel)
    texts = [made.kernel.file.source.text] + ([made.forward.file.source.text] if made.forward.name != name else [])
    golden(f"backward/{name}.k", "\n".join(texts))


@pytest.mark.parametrize("name", TEXTS)
def test_gradients_stay_within_their_derived_bound_of_float64s(name: str) -> None:
    """Random shapes, strides, dtypes and special values, in the formula's own reading (f32 inside, one rounding); the targets'
    own runs are in tests/specs and behind markers."""
    report = checks.check_backward(kernel(TEXTS[name]), "torch", examples=3)
    assert not report.failures, report.failures[0]


def test_a_branch_that_was_not_taken_has_no_say_beyond_a_sum() -> None:
    for text in (
        "y = (sqrt(s) * x if x > 0 else 0) if s > 0 else 0",
        "y = ((sqrt(s) * x if t > 0 else 0) if s > 0 else 0) + ((sqrt(s) * x * 2 if s > 0 else 0) if t > 0 else 0)",
    ):
        k = kernel("f(x: T[N], s: T[], t: T[]) -> y: T[N]\n\n" + text + ("" if "t >" in text else " + t"))
        for s in (0.0, -1.0):
            given = {"x": torch.tensor([1.0, -1.0], dtype=torch.float64), "s": torch.tensor(s, dtype=torch.float64)}
            given["t"] = torch.tensor(1.0, dtype=torch.float64)
            got = kgens(grad.backward(k), given, {"y": torch.ones(2, dtype=torch.float64)})
            assert got["s"] == 0 and not got["x"].any()


@pytest.mark.parametrize(
    "text",
    [
        "f(x: T[N], w: U[N]) -> (y: T[N], z: U[N])\n\na = U(x)\ny = a^3\nz = w",
        "f(b: f32[M], t: T[M]) -> y: T[M]\n\ny = b * rsqrt(mean[M](b^2)) + t",
        "f(x: T[..., N]) -> y: T[..., N]\n\nn = N * 2\ny = x / n + index[N] * n",
        "f(x: T[N], w: T[N]) -> y: T[N]\n\ny = x^0 * round(w)",
        "f(y: T[D], c: T32[M, D]) -> k: f64[M, D]\n\nk = (y if c < 1 else c)^0",
    ],
)
def test_programs_that_fuzzing_found(text: str) -> None:
    from kgen.backends import backend

    k = kernel(text)
    for wanted in (None, ["x"]) if "x:" in text else (None,):
        made = grad.backward(k, wanted=wanted)
        for each in (made.kernel, made.forward, grad.forward_mode(k, wanted).kernel):
            for target in ("triton", "cuda", "cpp"):
                source = backend(target).render(each)
                if target == "triton":
                    compile(source, each.name, "exec")
    assert not checks.check_backward(k, "torch", examples=6).failures


@pytest.mark.parametrize(
    "text, sums",
    [
        ("f(x: T[M, N], w: T[N]) -> y: T[M, N]\n\ny = x * (x * w) + exp(x) * w", 1),
        ("f(x: T[M, N], w: T[N], t: i64[M]) -> y: T[M]\n\ny = w[N = t] * x[N = 0] + w[N = (t + 1) % 2]", 2),
    ],
)
def test_what_is_added_up_over_the_same_dims_is_one_sum(text: str, sums: int) -> None:
    """But for sums whose terms a key selects, which a sort finds one by one: as one they would cost the product of both sizes."""
    k = kernel(text + "\n")
    made = grad.backward(k, wanted=["w"]).kernel
    assert made.file.source.text.count("sum[") == sums, made.file.source.text
    assert not checks.check_backward(k, "torch", examples=2).failures


@pytest.mark.parametrize(
    "formula, dx",
    [
        ("x * sigmoid(x) * w", "dy * w * (sigmoid(x) + x * sigmoid_slope(x))"),
        ("w * x * tanh(x)", "dy * (w * x * (1 - t1^2) + t1 * w)"),
        ("x * w + tanh(x) * x", "dy * (t1 + x * (1 - t1^2)) + dy * w"),
    ],
)
def test_a_product_rule_multiplies_by_the_cotangent_once(formula: str, dx: str) -> None:
    k = kernel(f"f(x: T[M, N], w: T[N]) -> y: T[M, N]\n\ny = {formula}\n")
    text = grad.backward(k, wanted=["x"]).kernel.file.source.text
    assert text.rstrip().endswith(f"dx = {dx}"), text
    assert not checks.check_backward(k, "torch", examples=4).failures


@pytest.mark.parametrize(
    "head, factors, want",
    [
        ("q: i8[M], r: i8[M], s: i8[M]", [torch.full((2,), 100, dtype=torch.int8)] * 3, 10_100),
        ("q: u8[M], r: u8[M], s: u8[M]", [torch.full((2,), 100, dtype=torch.uint8)] * 3, 10_100),
        ("q: i32[M], r: i32[M], s: i32[M]", [torch.full((2,), n, dtype=torch.int32) for n in (100_000, 100_000, 7)], 10**10 + 7),
        ("q: f32[M], r: f32[M], s: f32[M]", [torch.full((2,), 1e30) for _ in range(3)], 1e60),
        ("q: int, r: int, s: int", [2**40, 2**40, 3], 2.0**80),
        ("q: float, r: float, s: float", [2.5, 3.5, 0.5], 9.25),
    ],
)
@pytest.mark.usefixtures("built_quickly")
def test_factors_of_other_types_are_multiplied_as_the_product_is(head: str, factors: list, want: float) -> None:
    k = kernel(f"f(x: f64[M], {head}) -> y: f64[M]\n\ny = x * q * r + x * s\n")
    given = {"x": torch.ones(2, dtype=torch.float64), **dict(zip("qrs", factors, strict=True))}
    made = grad.backward(k, wanted=["x"])
    found = kgen.Kernel(made.kernel)(torch.ones(2, dtype=torch.float64), *(given[p.name] for p in made.kernel.params[1:]), target="cpp")
    torch.testing.assert_close(found, torch.full((2,), float(want), dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.usefixtures("built_quickly")
def test_literals_are_multiplied_as_the_product_is() -> None:
    k = kernel("f(x: f64[M]) -> y: f64[M]\n\ny = x * 4000000000 * 4000000000 * 4000000000 + x * tanh(x)\n")
    made = kgen.Kernel(grad.backward(k).kernel)
    dy, x = torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    torch.testing.assert_close(made(dy, x, target="cpp"), torch.full_like(x, 6.4e28), rtol=1e-9, atol=0)


@pytest.mark.parametrize("count", [3, 190])
def test_products_of_many_have_the_gradients_of_many(count: int) -> None:
    lines = "".join(f"x{k + 1} = x{k} * tanh(x + {k})\n" for k in range(count))
    k = kernel(f"f(x: T[M]) -> y: T[M]\n\nx0 = x\n{lines}y = x{count}\n")
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    y = x
    for j in range(count):
        y = y * torch.tanh(x + j)
    y.backward(torch.ones_like(y))
    got = kgens(grad.backward(k, wanted=["x"]), {"x": x.detach()}, {"y": torch.ones(2, dtype=torch.float64)})
    torch.testing.assert_close(got["x"], x.grad, rtol=1e-12, atol=0)
    assert len(grad.backward(k).kernel.values) <= 10 * count + 8  # some more than a product rule by itself makes


@pytest.mark.parametrize("step, count", [("{0} + {0}", 60), ("{0} + x", 900)])
def test_sums_of_sums_are_not_looked_at_term_by_term(step: str, count: int) -> None:
    """There are 2^60 terms, or 900 sums one within another."""
    lines = "".join(f"x{k + 1} = {step.format(f'x{k}')}\n" for k in range(count))
    k = kernel(f"f(x: T[M, N], s: T[M]) -> y: T[M]\n\nx0 = x\n{lines}y = sum[N](x{count} * s)\n")
    given = {"x": torch.ones(2, 3, dtype=torch.float64), "s": torch.ones(2, dtype=torch.float64)}
    got = kgens(grad.backward(k, wanted=["s"]), given, {"y": torch.ones(2, dtype=torch.float64)})
    assert got["s"].tolist() == [3 * (2**60 if count == 60 else 901)] * 2


def test_rows_without_elements_have_gradients_without_elements() -> None:
    for shape in ((3, 0), (0, 3)):
        x = torch.zeros(shape, requires_grad=True)
        y = kgen.load("softmax")(x, target="torch")
        y.sum().backward()
        assert y.shape == x.grad.shape == shape


def test_transforms_that_are_over_leave_plain_tensors_behind() -> None:
    runnable = kgen.loads("f(x: T[N], w: T[N]) -> (a: T[], y: T[N])\n\na = 1.5\ny = sin(x) * w")
    x, w, dy = (torch.randn(4, dtype=torch.float64) for _ in range(3))
    _, pull = torch.func.vjp(lambda w: runnable(x, w, target="torch")[1], w)
    torch.testing.assert_close(pull(dy)[0], dy * x.sin())
    _, (_, tangent) = torch.func.jvp(lambda x: runnable(x, w, target="torch"), (x,), (dy,))
    torch.testing.assert_close(tangent, dy * x.cos() * w)
