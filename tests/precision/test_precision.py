"""The precision planner: which operators take another form where the result has 16 bits, and never where an error could grow."""

from __future__ import annotations

import pytest

import kgen
from kgen import grad, pipeline
from kgen.cost import predicted_bound
from kgen.monoids import Rides
from kgen.types import bf16, f32


def found(equations: str, head: str = "f(x: T[..., N]) -> y: T[..., N]") -> dict[str, str]:
    """The form of each operator that has another than the accurate one, by its name."""
    kernel = kgen.loads(f"{head}\n{equations}").kernel
    return {let.expr.name: let.form.name for let in pipeline.plan(kernel, kernel.bindings()[0]).program.lets if let.form}


@pytest.mark.parametrize("equations, want", [
    ("y = exp(x)", {"exp": "brief"}),
    ("y = x * sigmoid(x)", {"sigmoid": "brief"}),
    ("y = abs(exp(x)) / 3", {"exp": "brief", "div": "brief"}),
    ("y = sqrt(exp(x)) + sigmoid(x) * x^2", {"sqrt": "brief", "exp": "brief", "sigmoid": "brief", "add": "fused"}),  # a sum of positives
    ("e = exp(x - max[N](x))\ny = e / sum[N](e)", {"exp": "brief", "div": "brief"}),
    ("y = tanh(x)", {"tanh": "brief"}),  # not rough: its time fits under the bytes
    ("y = tanh(sigmoid(x) * 2 + 1)", {"tanh": "rough", "sigmoid": "coarse", "add": "fused"}),
    ("y = 0 if x > 0 else exp(x)", {"exp": "brief"}),
])  # fmt: skip
def test_brief_where_relative_errors_stay_as_they_are(equations, want):
    assert found(equations) == want


@pytest.mark.parametrize("equations, want", [
    ("y = exp(x) - 1", {"exp": "near"}),  # digits cancel
    ("y = 1 - erfc(x)", {"erfc": "near"}),
    ("y = x + exp(x)", {"exp": "near"}),  # x may have the other sign
    ("y = sum[N](exp(x) * x)", {"exp": "near"}),
    ("y = (x - tanh(x)) / 3", {"tanh": "near", "div": "brief"}),
    ("y = x * tanh(relu(x) + log1p(exp(x)) - 1)", {"tanh": "rough", "log1p": "near", "exp": "near"}),
    ("y = sqrt(exp(x)) - x", {"exp": "near", "sqrt": "near"}),  # kept on the way to the difference
    ("y = exp(x) * (1 - sigmoid(x))", {"exp": "brief", "sigmoid": "near"}),
    ("y = x * (1 - tanh(x)^2)", {"tanh": "near", "sub": "slope"}),
    ("y = x * (1 - tanh(x)^2) + tanh(x)", {"tanh": "near"}),  # computed all the same
    ("y = relu(exp(x) - 1) if x > 0 else clamp(x / 3 - x, 0, 1)", {"exp": "near", "div": "near"}),
])  # fmt: skip
def test_near_where_terms_are_added_and_what_follows_is_steady(equations, want):
    assert {k: v for k, v in found(equations).items() if v != "fused"} == want


@pytest.mark.parametrize("equations", [
    "y = exp(exp(x)) if x > exp(x) else 0",  # of these only the outer one may be
    "y = sqrt(1 - sigmoid(x))",  # what may be just below 0
    "y = log(1 - x / 3)",
    "y = T(x > exp(x) - 1)",
    "y = exp(x - sigmoid(x))",
    "y = x^(exp(x))",
    "y = cos(exp(x))",
    "y = log(sigmoid(x))",
    "y = round(exp(x))",
    "y = round(exp(x) - 1)",
    "y = T(i32(exp(x)))",
])  # fmt: skip
def test_accurate_where_an_error_could_grow(equations):
    got = {k: v for k, v in found(equations).items() if v != "fused"}
    outer = {"y = exp(exp": {"exp": "brief"}, "y = sqrt": {"sqrt": "brief"}, "y = exp(x - s": {"exp": "brief"}, "y = log": {"log": "brief"}}
    assert got == next((form for begins, form in outer.items() if equations.startswith(begins)), {})


@pytest.mark.parametrize("equations, form", [
    ("y = tanh(1.5 + sigmoid(x))", "coarse"),
    ("s = sigmoid(x)\ny = tanh(3 * s + 1.5) * tanh(s + 0.5)", "coarse"),
    ("y = tanh(3 * sigmoid(x) + 1.4)", "brief"),  # the factor is more than twice the other term
    ("y = tanh(sigmoid(x) + x)", "near"),
    ("y = tanh(x) * sigmoid(x)", "brief"),  # small ones count
    ("s = sigmoid(x)\ny = tanh(s + 1) * s", "brief"),
    ("y = tanh(sigmoid(x) - 2)", "near"),
    ("y = sigmoid(x) + 1", "brief"),  # its time fits under the bytes
])  # fmt: skip
def test_coarse_where_it_is_a_term_beside_one_that_is_not_small(equations, form):
    assert found(equations)["sigmoid"] == form
    assert found(equations, "f(x: f16[..., N]) -> y: f16[..., N]")["sigmoid"] == form.replace("coarse", "brief")


def test_a_divisor_that_digits_cancel_in_is_accurate():
    assert found("y = x / (1 - sigmoid(x))") == {"div": "brief"}
    assert found("y = (1 - sigmoid(x)) / x") == {"div": "brief", "sigmoid": "near"}


def test_a_wide_result_keeps_the_accurate_form():
    assert found("y = exp(x)", "f(x: T[..., N]) -> y: T32[..., N]") == {}
    assert found("y = exp(x)", "f(x: bf16[..., N]) -> y: f32[..., N]") == {}
    both = found("e = exp(x)\ny = e\nz = e", "f(x: T[..., N]) -> (y: T[..., N], z: f32[..., N])")
    assert both == {}
    assert found("y = exp(x) * w", "f(x: T[N], w: U[N]) -> y: T[N]") == {"exp": "brief"}
    assert found("e = exp(x)\ny = e\nz = e * w", "f(x: T[N], w: U[N]) -> (y: T[N], z: U[N])") == {}  # two variables decide


def test_a_rounding_by_name_is_as_good_as_a_store():
    assert found("y = T(exp(x)) - 1") == {"exp": "brief"}
    assert found("y = bf16(exp(x)) - 1", "f(x: f32[N]) -> y: f32[N]") == {"exp": "brief"}


def test_a_number_of_the_host_has_no_form():
    assert found("y = x * exp(s)", "f(x: T[N], s: float) -> y: T[N]") == {}


def test_sources_have_the_form_for_the_deciding_dtype():
    kernel = kgen.loads("f(x: T[N]) -> y: T[N]\ny = x * sigmoid(x)")
    assert "brief_sigmoid<T>(x)" in kernel.source("cuda") and "brief_sigmoid(x, T)" in kernel.source("triton")
    assert "brief_sigmoid<T>(x)" in kernel.source("cpp")
    wide = kgen.loads("f(x: T[N]) -> y: T32[N]\ny = x * sigmoid(x)")
    assert "brief" not in wide.source("cuda") + wide.source("triton") + wide.source("cpp")


def test_cpp_takes_the_forms_that_it_has_and_else_the_nearer_one():
    kernel = kgen.loads("f(x: T[N]) -> (y: T[N], z: T[N])\ny = tanh(sigmoid(x) * 2 + 1) / 3\nz = log(x) - erfc(x) * 3")
    lets = pipeline.plan(kernel.kernel, {"T": bf16}, Rides.NONE).program.lets
    assert {"rough", "coarse", "fused", "brief", "near"} == {let.form.name for let in lets if let.form}
    source = kernel.source("cpp")
    assert all(call in source for call in ("brief_tanh<T>(", "brief_sigmoid<T>(", "std::log(", "near_erfc<T>("))
    assert not any(word in source for word in ("rough_", "coarse_", "fused", "brief_div", "brief_log"))
    assert "near_" not in kgen.loads("f(x: T[N]) -> y: T[N]\ny = exp(x) - 1").source("cpp")


def test_what_is_fused_is_a_lone_unnamed_product_of_what_ends_in_16_bits():
    assert found("y = x * 3 + 1") == {"add": "fused"}
    assert found("p = x * 3\ny = p + 1") == {}  # it has a line of its own
    assert found("y = x * x - x * x") == {}  # shared: both stay what they are, and their difference 0
    assert found("y = x * 3 + 1", "f(x: T[..., N]) -> y: T32[..., N]") == {}
    text = kgen.loads("f(x: T[N], w: T[N]) -> y: T[N]\ny = w - x * 3").source("cuda")
    assert "fused<T>(-x, F(3), w)" in text


def test_the_predicted_bound_counts_the_forms():
    kernel = kgen.load("gelu_tanh").kernel

    def counted(dtype):
        return pipeline.cost(kernel, {"T": dtype})

    assert counted(bf16).instructions < counted(f32).instructions
    assert predicted_bound(counted(f32)) == "memory"


@pytest.mark.parametrize("equations", [
    "h = x * w + b\ny = max[N](h)",
    "h = tanh(x * w - b)\ny = min[N](h) * exp(max[N](h))",
    "h = sigmoid(x) + w * b\ny = sum[N](max(h, w))",
    "h = exp(x) / (b + exp(w))\ny = sum[N](h if h == max[N](h) else 0)",
    "h = T(x * w + b)\ny = max[N](h)",
    "h = sqrt(sum[N](x^2)) * w + b\ny = max[N](h * x)",
])  # fmt: skip
def test_what_an_order_reads_has_one_form_in_the_forward_and_in_the_backward(equations):
    """A maximum saved by the one is found by equality among the values that the other computes anew."""
    kernel = kgen.loads(f"f(x: T[..., N], w: T[N], b: T[N]) -> y: T[...]\n{equations}").kernel
    saved, anew = grad.backward(kernel), grad.backward(kernel, save=False)
    for k in (kernel, saved.forward, saved.kernel, anew.kernel):
        program = pipeline.plan(k, k.bindings()[0]).program
        todo = [let.name for let in program.lets if let.label == "h"]
        for name in todo:
            let = program.by_name[name]
            assert not let.form, f"{k.name}: {let}"
            todo += [o.name for o in let.expr.operands]
        assert todo or k is not kernel


@pytest.mark.parametrize("text", [
    "f(x: T[..., N]) -> y: f16[..., N]\ny = exp(x) * x + x",
    "f(x: T[..., N]) -> y: bf16[...]\ny = norm[N](sigmoid(x))",
    "f(x: T[..., N], w: U[N]) -> y: U[..., N]\ny = sigmoid(x * w)",
    "f(x: bf16[N], d: f64[N]) -> y: bf16[N]\ny = exp(x * d)",
    "f(d: T[], w: bf16[N]) -> y: bf16[N]\ny = (d if w == max[N](w) else 0) / N",
])  # fmt: skip
def test_what_may_be_computed_in_f64_has_no_form_of_f32(text):
    """A result of 16 bits by name does not say in which dtype the variables are computed."""
    kernel = kgen.loads(text).kernel
    assert not [let for let in pipeline.plan(kernel, kernel.bindings()[0]).program.lets if let.form and let.dims]
