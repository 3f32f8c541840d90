"""The way from kernel to source lies in one place, keeps what it made as long as the kernel lives, and shows every stage."""

from __future__ import annotations

import ast
import gc
import pickle
from dataclasses import replace

import pytest

import kgen
from kgen import grad, pipeline
from kgen.backends import backend
from kgen.check import check
from kgen.cli.group import load_spec
from kgen.cli.show import STAGES
from kgen.ir import Broken
from kgen.monoids import Rides
from kgen.ops import OPS
from kgen.parts import parted
from kgen.passes import verified
from kgen.syntax import parse
from kgen.types import bf16, f32
from tests.conftest import ROOT

TEXT = "f(x: T[..., N], w: T[N]) -> y: T[..., N]\n\ne = exp(x - max[N](x))\ny = w * e / sum[N](e)\n"
#: What tests single passes calls them one by one.
APART = {"kgen/testing/properties.py"}


def test_passes_are_called_in_one_place() -> None:
    for path in sorted((ROOT / "kgen").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and name not in APART:
                assert (node.module, [a.name for a in node.names]) not in (("kgen.lower", ["lower"]), ("kgen.rewrite", ["rewrite"])), name


def test_results_are_kept_for_each_choice_of_dtypes() -> None:
    kernel = check(parse(TEXT))
    for make in (pipeline.lowered, pipeline.program, pipeline.expanded, pipeline.plan, pipeline.cost):
        assert make(kernel, {"T": bf16}) is make(kernel, {"T": bf16}), make
        assert make(kernel, {"T": bf16}) is not make(kernel, {"T": f32}), make
    assert pipeline.plan(kernel, {"T": f32}, Rides.EVERY) is not pipeline.plan(kernel, {"T": f32}, Rides.NONE)
    assert str(pipeline.plan(kernel, {"T": f32}).program) == str(pipeline.expanded(kernel, {"T": f32}))


def test_equal_kernels_have_results_of_their_own() -> None:
    """Their texts may differ, and so the places of errors."""
    one, other = check(parse(TEXT)), check(parse(TEXT))
    assert pipeline.program(one, {"T": f32}) is not pipeline.program(other, {"T": f32})


def test_results_go_with_their_kernel_and_are_not_many() -> None:
    kernel = check(parse("f(x: T[N], y: U[N], v: V[N]) -> z: T[N]\n\nz = x * y + v\n"))
    for binding in kernel.bindings():
        pipeline.cost(kernel, binding)
    key = id(kernel)
    assert len(pipeline._kept[key]) == pipeline.KEPT
    del kernel
    gc.collect()
    assert key not in pipeline._kept


@pytest.mark.parametrize("target", ["triton", "cuda", "cpp"])
def test_every_stage_before_machine_code_is_shown(target: str) -> None:
    marks = {
        "spec": "y = w * e", "syntax": "header f", "math": "exp", "lowered": "exp %", "program": "store y", "expanded": "max[N]",
        "schedule": "reading 1", "precision": "brief where T has 16 bits",
        "units": "RowUnit\n  name: f\n", "source": "max",
    }  # fmt: skip
    if target == "cuda":
        marks["launch"] = "threads"
    assert {*marks, "launch"} == {s for s in STAGES if s not in ("ptx", "sass", "asm")}
    kernel = kgen.loads(TEXT)
    for stage, mark in marks.items():
        assert mark in kernel.show(stage, target), stage


def test_stages_are_the_targets_own() -> None:
    """CUDA's passes make the sum with the maximum; a brief form is taken where its dtype has 16 bits."""
    kernel = kgen.loads(TEXT)
    assert "expsum" in kernel.show("expanded", "cuda") and "expsum" not in kernel.show("expanded", "cpp")
    assert "reading 2: sum" not in kernel.show("schedule", "cuda") and "reading 2: sum" in kernel.show("schedule", "triton")
    assert "(it has)" in kernel.show("precision", "cuda", {"T": "f16"}) and "(it has not)" in kernel.show("precision", "cuda")


@pytest.mark.parametrize("target", ["cuda", "triton", "cpp"])
def test_forms_are_of_the_operators_that_are_printed(target: str) -> None:
    """They stand on the lets of the plan that a target prints, whatever became of the names that others have for them."""
    made = backend(target)
    conv = load_spec("causal_conv4")
    twice = grad.backward(grad.backward(conv).kernel, ["dx"]).kernel
    for kernel in (conv, twice, *(parted(k).kernel for k in (grad.backward(conv).kernel, twice)), load_spec("layernorm"), load_spec("rope")):
        plan = pipeline.scheduled(kernel, kernel.bindings()[0], made.rides, made.merges, made.taps)
        formed = [let for let in plan.program.lets if let.form]
        assert formed, kernel.name
        for let in formed:
            others = {"fused": ("add", "sub"), "shared": ("div",)}.get(let.form.name)
            assert let.expr.name in others if others else OPS[let.expr.name].brief, (kernel.name, let)


def test_a_form_on_another_operator_is_a_bug() -> None:
    kernel = check(parse(TEXT))
    plan = pipeline.plan(kernel, {"T": bf16})
    names = {let.name: f"%{k}" for k, let in enumerate(reversed(plan.program.lets))}
    lets = tuple(replace(let, name=names[let.name]) for let in plan.program.lets)
    with pytest.raises(Broken, match="in a form that is another's"):
        verified(replace(plan, program=replace(plan.program, lets=lets)))


@pytest.mark.parametrize("name", ["row_absmax_int8", "dropout_add_rmsnorm", "argmax", "mxfp8"])
def test_a_kernel_from_a_pickle_goes_through_the_same_passes(name: str) -> None:
    """Another process has the dtypes that rules know, not equal ones."""
    kernel = load_spec(name)
    assert backend("cuda").render(pickle.loads(pickle.dumps(kernel))) == backend("cuda").render(kernel)
