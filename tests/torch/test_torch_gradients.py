"""Kernels under autograd: the gradients that are asked for, in each argument's shape, from the cotangents that come."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import kgen
from kgen.torch_op.plain import run_plain
from kgen.torch_op.traits import traits
from tests import warm
from tests.torch_cases import CASES, Case, W, X, Y, assert_same, each_case, evaluated, floats, scalar  # noqa: F401


def leaves(tensors: tuple[torch.Tensor, ...], which: int = -1) -> list[torch.Tensor]:
    """Copies of tensors that require grad: those whose bit is set in `which`."""
    return [t.clone().requires_grad_(bool(which >> k & 1)) for k, t in enumerate(tensors)]


@each_case
def test_gradients_of_any_subset_of_the_inputs_are_torchs(case: Case) -> None:
    for which in range(1, 2 ** len(case.tensors)):
        ours, theirs = leaves(case.tensors, which), leaves(case.tensors, which)
        scalar(case.kernel(*ours)).backward()
        scalar(case.eager(*theirs)).backward()
        for a, b in zip(ours, theirs):
            assert (a.grad is None) == (b.grad is None)
            assert_same([] if a.grad is None else a.grad, [] if b.grad is None else b.grad)


@each_case
def test_first_and_second_derivatives_agree_with_finite_differences(case: Case) -> None:
    def differentiable(*args: torch.Tensor) -> tuple:
        return tuple(floats(case.kernel(*args)))

    assert torch.autograd.gradcheck(differentiable, leaves(case.tensors), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(differentiable, leaves(case.tensors))


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_results_that_are_not_used_have_no_cotangent(used: tuple[int, ...]) -> None:
    for name in ("add_rmsnorm", "two"):
        case = CASES[name]
        for which in range(1, 2 ** len(case.tensors)):
            ours, theirs = leaves(case.tensors, which), leaves(case.tensors, which)
            outs = [[f(*args)[k] for k in used] for f, args in ((case.kernel, ours), (case.eager, theirs))]
            assert [t.requires_grad for t in outs[0]] == [t.requires_grad for t in outs[1]]
            if not scalar(outs[1]).requires_grad:
                continue
            found = [
                torch.autograd.grad(scalar(o), [t for t in args if t.requires_grad], allow_unused=True)
                for o, args in zip(outs, (ours, theirs))
            ]
            for a, b in zip(*found):
                assert_same(torch.zeros_like(b) if a is None else a, b) if b is not None else None
                assert b is not None or a is None or not a.any()


def test_a_gradient_that_nobody_asks_for_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(kgen.Kernel, "_preferred", lambda self, *_: ran.append([r.name for r in self.kernel.results]) or "torch")
    for which in (1, 6):
        kgen.load("layernorm")(*leaves(CASES["layernorm"].tensors, which)).sum().backward()
    assert ran[1::2] == [["dx"], ["dw", "db"]]


@pytest.mark.parametrize(
    "shapes", [((3, 1, 5), (4, 1)), ((5,), (2, 3, 5)), ((1, 1), (4, 5)), ((), (3,)), ((2, 1, 3), (1, 4, 3)), ((0, 5), (1, 5))], ids=str
)
def test_gradients_sum_over_leading_dims_that_broadcast(shapes: tuple) -> None:
    pointwise = kgen.loads("axpy(x: T[...], y: T[...], a: float = 2.0) -> z: T[...]\n\nz = a * x * tanh(y)\n")
    summed = kgen.loads("dist(x: T[...], y: T[...]) -> d: T32[]\n\nd = sum[...]((x - y)^2 * y)\n")
    for kernel, eager in ((pointwise, lambda x, y: 2 * x * y.tanh()), (summed, lambda x, y: ((x - y) ** 2 * y).sum())):
        tensors = tuple(
            torch.linspace(-1, 2, max(1, torch.Size(s).numel()), dtype=torch.float64)[: torch.Size(s).numel()].reshape(s) for s in shapes
        )
        ours, theirs = leaves(tensors), leaves(tensors)
        a, b = kernel(*ours), eager(*theirs)
        assert_same(a, b)
        assert_same(torch.autograd.grad(scalar(a), ours), torch.autograd.grad(scalar(b), theirs))
        if all(tensors[k].numel() for k in (0, 1)):
            assert torch.autograd.gradgradcheck(kernel, leaves(tensors))


def test_rows_that_broadcast_beside_named_dims() -> None:
    kernel = kgen.loads("scaled(x: T[..., N], s: T[...], w: T[N]) -> y: T[..., N]\n\ny = s * w * softmax[N](x)\n")
    tensors = (torch.randn(2, 4, 5, dtype=torch.float64), torch.randn(4, dtype=torch.float64), W)
    ours, theirs = leaves(tensors), leaves(tensors)
    assert_same(
        torch.autograd.grad(scalar(kernel(*ours)), ours),
        torch.autograd.grad(scalar(theirs[1][:, None] * theirs[2] * F.softmax(theirs[0], -1)), theirs),
    )


@pytest.mark.parametrize(
    "cotangent",
    [torch.ones((), dtype=torch.float64).expand(3, 5), torch.randn(5, 3, dtype=torch.float64).t()],
    ids=["expanded", "transposed"],
)
def test_cotangents_of_any_strides(cotangent: torch.Tensor) -> None:
    case = CASES["layernorm"]
    ours, theirs = leaves(case.tensors), leaves(case.tensors)
    assert_same(torch.autograd.grad(case.kernel(*ours), ours, cotangent), torch.autograd.grad(case.eager(*theirs), theirs, cotangent))


# --------------------------------------------------------------------------------------------- what is kept


def kept_elements(kernel: kgen.Kernel, *args: torch.Tensor) -> int:
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        kernel(*args)
    return sum(sizes)


def test_a_statistic_per_row_is_kept_and_nothing_whose_shape_alone_counts() -> None:
    assert kept_elements(CASES["layernorm"].kernel, *leaves(CASES["layernorm"].tensors)) == X.numel() + W.numel() + 2 * 3
    assert kept_elements(kgen.load("add"), *leaves((X, Y))) == 0
    assert kept_elements(kgen.load("geglu"), X, *leaves((Y,))) == X.numel()  # the gradient of u needs g alone


def test_a_kept_tensor_that_changes_in_place_is_noticed() -> None:
    x = X.clone().requires_grad_()
    z = x * 1
    y = CASES["gelu"].kernel(z)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@each_case
def test_checkpoints_and_offloading_change_nothing(case: Case) -> None:
    def run(call) -> tuple:
        args = leaves(case.tensors)
        scalar(call(*args)).backward()
        return tuple(t.grad for t in args)

    def twice(*args: torch.Tensor) -> torch.Tensor:
        return scalar(case.kernel(*args)).exp()

    def offloaded(*args: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            return twice(*args)

    def selected(*args: torch.Tensor) -> torch.Tensor:
        policy = lambda ctx, op, *a, **k: CheckpointPolicy.MUST_SAVE if op.namespace == "kgen" else CheckpointPolicy.PREFER_RECOMPUTE  # noqa: E731
        return checkpoint(twice, *args, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))

    plain = run(twice)
    for reentrant in (False, True):
        assert_same(run(lambda *args, r=reentrant: checkpoint(twice, *args, use_reentrant=r)), plain, ulps=0)
    assert_same(run(offloaded), plain, ulps=0)
    assert_same(run(selected), plain, ulps=0)


def test_a_graph_is_walked_twice_when_it_is_retained() -> None:
    case, args = CASES["softmax"], leaves(CASES["softmax"].tensors)
    y = scalar(case.kernel(*args))
    assert_same(torch.autograd.grad(y, args, retain_graph=True), torch.autograd.grad(y, args), ulps=0)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_functions_are_looked_up_once_for_each_set_of_inputs() -> None:
    kernel = kgen.load("layernorm")
    for _ in range(3):
        kernel(*leaves(CASES["layernorm"].tensors))
        kernel(*leaves(CASES["layernorm"].tensors, 1))
    assert {key[0] for key in traits(kernel).made if run_plain in key} == {(0, 1, 2), (0,)}


# --------------------------------------------------------------------------------------------- what is refused, and what is not


def test_in_place_kernels_refuse_what_requires_grad_and_mark_what_they_write() -> None:
    adamw = kgen.load("adamw")
    p, g, m, v = (torch.rand(2, 3) for _ in range(4))
    for k in range(4):
        args = [t.clone().requires_grad_(j == k) for j, t in enumerate((p, g, m, v))]
        with pytest.raises(kgen.KgenError, match="requires grad, and p is written in place"):
            adamw(*args, 1, 1e-3)
        with torch.no_grad():
            before = [t._version for t in args]
            adamw(*args, 1, 1e-3)
        assert [t._version > was for t, was in zip(args, before)] == [True, False, True, True]


def test_out_is_refused_where_a_gradient_would_be_lost() -> None:
    x, out = X.clone().requires_grad_(), torch.empty_like(X)
    with pytest.raises(kgen.KgenError, match="not differentiable"):
        CASES["gelu"].kernel(x, out=out)
    with torch.no_grad():
        assert CASES["gelu"].kernel(x, out=out) is out
    assert_same(out, F.gelu(X))
    assert_same(torch.func.vmap(lambda x: CASES["gelu"].kernel(x, out=torch.empty_like(x)))(X), F.gelu(X))


def test_the_target_holds_for_the_backward_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, asked = kgen.load("softmax"), []
    launcher = kgen.Kernel._launcher
    monkeypatch.setattr(kgen.Kernel, "_launcher", lambda self, target, *given: asked.append(target) or launcher(self, target, *given))
    x = X.clone().requires_grad_()
    kernel(x, target="torch").sum().backward()
    assert asked == ["torch", "torch"]
    with pytest.raises(kgen.KgenError, match="does not run on cpu"):
        kernel(x, target="triton")


def test_compiled_kernels_give_what_evaluated_ones_do(built_quickly: None) -> None:
    case = CASES["layernorm"]
    ours, theirs = leaves(case.tensors), leaves(case.tensors)
    a, b = case.kernel(*ours, target="cpp"), case.eager(*theirs)
    assert_same(a, b)
    assert_same(torch.autograd.grad(scalar(a), ours), torch.autograd.grad(scalar(b), theirs))


def test_kernels_of_integers_alone_ask_for_no_gradient() -> None:
    found = kgen.load("argmax")(X.clone().requires_grad_())
    assert not found.requires_grad and torch.equal(found, X.argmax(-1))


def test_an_integer_result_beside_a_float_one_has_no_history() -> None:
    q, scale = kgen.load("row_absmax_int8")(X.clone().requires_grad_())
    assert not q.requires_grad and scale.requires_grad


def test_wrong_arguments_are_told_as_in_a_plain_call() -> None:
    x = X.clone().requires_grad_()
    for args, kwargs in (((3,), {}), ((x, x), {}), ((), {"y": x}), ((x,), {"x": x}), ((), {})):
        told = []
        for context in (torch.enable_grad(), torch.no_grad()):
            with context, pytest.raises(kgen.KgenError) as error:
                CASES["gelu"].kernel(*args, **kwargs)
            told.append(str(error.value))
        assert told[0] == told[1]


def test_inference_mode_keeps_nothing() -> None:
    with torch.inference_mode():
        y = CASES["layernorm"].kernel(*leaves(CASES["layernorm"].tensors))
    assert y.is_inference() and y.grad_fn is None
    with pytest.raises(RuntimeError, match="[Ii]nference tensors"):
        kgen.load("geglu")(y, X.clone().requires_grad_())


def test_copies_share_a_kernel_and_pickles_its_operator() -> None:
    kernel = kgen.load("layernorm")
    kernel(*leaves(CASES["layernorm"].tensors))
    assert copy.deepcopy(kernel) is kernel
    loaded = pickle.loads(pickle.dumps(kernel))
    assert loaded.op is kernel.op
    args = leaves(CASES["layernorm"].tensors)
    assert_same(torch.autograd.grad(scalar(loaded(*args)), args), torch.autograd.grad(scalar(kernel(*args)), args), ulps=0)


# --------------------------------------------------------------------------------------------- autocast


def test_autocast_leaves_dtypes_alone_and_promotes_what_it_mixed() -> None:
    """As torch's own elementwise operators: a kernel runs in its arguments' dtype, mixed ones in the widest."""
    kernel = CASES["layernorm"].kernel
    x, w, b = (t.float() for t in CASES["layernorm"].tensors)
    with pytest.raises(kgen.KgenError, match="T is bf16 in x and f32 in w"):
        kernel(x.bfloat16(), w, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert CASES["gelu"].kernel(x).dtype == torch.float32 == F.gelu(x).dtype
        assert CASES["gelu"].kernel(x.bfloat16()).dtype == torch.bfloat16 == F.gelu(x.bfloat16()).dtype
        assert_same(kernel(x.bfloat16(), w, b), F.layer_norm(x.bfloat16().float(), (5,), w, b))
        assert kernel(x.bfloat16(), w.half(), b.half()).dtype == torch.float32
        h = x.clone().requires_grad_()
        weight = w.clone().requires_grad_()
        y = kernel(F.linear(h, torch.eye(5)), weight, b)
    assert y.dtype == torch.float32
    dh, dw = torch.autograd.grad(scalar(y), (h, weight))
    assert dh.dtype == dw.dtype == torch.float32
    ref = F.layer_norm(h.bfloat16().float(), (5,), weight, b)
    assert_same(dw, torch.autograd.grad(scalar(ref), weight)[0])


def test_autocast_does_not_widen_what_is_written_in_place() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad(), pytest.raises(kgen.KgenError, match="T is bf16 in p and f32 in g"):
        kgen.load("adamw")(torch.rand(3).bfloat16(), torch.rand(3), torch.rand(3), torch.rand(3), 1, 1e-3)


def test_a_first_call_under_autograd_loads_no_compiler() -> None:
    """`torch.compiler.assume_constant_result` imports torch._dynamo (and triton): a second and a half, where nothing is compiled."""
    code = (
        "import sys, torch, kgen\n"
        "x = torch.ones(2, 3, requires_grad=True)\n"
        "kgen.loads('f(x: T[..., N]) -> y: T[..., N]\\n\\ny = x * 2\\n')(x).sum().backward()\n"
        "assert x.grad.tolist() == [[2.0] * 3] * 2\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'triton') if m in sys.modules])\n"
    )
    ran = warm.run("-c", code)
    assert ran.stdout == "[]\n", ran.stdout + ran.stderr
