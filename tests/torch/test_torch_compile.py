"""Kernels in graphs: torch.compile without a break, torch.export, opcheck, fake and meta tensors, make_fx."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch._dynamo.testing
import torch._functorch.config
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils.checkpoint import checkpoint

import kgen
from kgen.torch_op.operators import remember, schema
from kgen.torch_op.traits import registered_name, traits
from tests import warm
from tests.conftest import ROOT
from tests.torch_cases import CASES, B, Case, W, X, Y, assert_same, each_case, evaluated, scalar  # noqa: F401


@pytest.fixture(autouse=True)
def fresh_graphs() -> None:
    torch._dynamo.reset()


def leaves(tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return [t.clone().requires_grad_(t.is_floating_point()) for t in tensors]


def compiled(function: Callable, backend: str = "aot_eager", **options) -> tuple[Callable, torch._dynamo.testing.CompileCounterWithBackend]:
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
    return torch.compile(function, fullgraph=True, backend=counter, **options), counter


@each_case
def test_forward_and_backward_compile_without_a_break(case: Case) -> None:
    ours, theirs = leaves(case.tensors), leaves(case.tensors)
    found, wanted = compiled(case.kernel)[0](*ours), case.eager(*theirs)
    assert_same(found, wanted)
    assert_same(torch.autograd.grad(scalar(found), ours), torch.autograd.grad(scalar(wanted), theirs))


@pytest.mark.parametrize("between", [pytest.param(lambda x: x + 2, id="sum"), pytest.param(torch.relu, id="relu", marks=pytest.mark.slow)])
def test_inductor_runs_a_model_of_kernels(between: Callable) -> None:
    """The default backend; what stands between the kernels is inductor's: a build forward, and of relu one backward, each of 4 seconds."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = kgen.load("layernorm").module(like=torch.nn.LayerNorm(5))
            self.up = torch.nn.Linear(5, 8, bias=False)
            self.gelu = kgen.load("gelu")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.gelu(between(self.up(self.norm(x))) + 1)

    torch.manual_seed(0)
    block, x = Block(), X.float()
    like = torch.nn.Sequential(torch.nn.LayerNorm(5), block.up)
    with torch._functorch.config.patch(enable_autograd_cache=False):  # what another session compiled may call what it alone derived
        check_inductor(block, like, between, x)


def check_inductor(block: torch.nn.Module, like: torch.nn.Module, between: Callable, x: torch.Tensor) -> None:
    found = torch.compile(block, fullgraph=True)(x)
    assert_same(found, F.gelu(between(like(x)) + 1))
    normed = F.layer_norm(x, (5,), block.norm.weight, block.norm.bias)
    wanted = F.gelu(between(F.linear(normed, block.up.weight)) + 1)
    assert_same(*(torch.autograd.grad(scalar(y), list(block.parameters())) for y in (found, wanted)))


def test_keywords_defaults_targets_and_out() -> None:
    kernel, (x, w, b) = CASES["layernorm"].kernel, CASES["layernorm"].tensors
    assert_same(compiled(lambda: kernel(b=b, w=w, x=x))[0](), F.layer_norm(x, (5,), w, b))
    assert_same(compiled(lambda: kernel(x, b=b, w=w, eps=0.5, target="torch"))[0](), F.layer_norm(x, (5,), w, b, 0.5))
    out = torch.empty_like(x)
    assert compiled(lambda: kernel(x, w, b, out=out))[0]() is out
    assert_same(out, F.layer_norm(x, (5,), w, b))
    wrong = {
        "there is no parameter bias": {"bias": b},
        "out is torch.float32": {"b": b, "out": out.float()},
        "out has shape": {"b": b, "out": out.t()},
    }
    for message, keywords in wrong.items():
        with pytest.raises(Exception, match=message):
            compiled(lambda keywords=keywords: kernel(x, w, **keywords))[0]()


def test_one_graph_serves_all_sizes() -> None:
    for name in ("layernorm", "softmax", "add_rmsnorm", "two", "mse"):
        case = CASES[name]
        function, counter = compiled(case.kernel, dynamic=True)
        for k in (3, 4, 7):
            tensors = tuple(torch.randn(*((k,) if t.dim() == 2 else ()), 2 * k, dtype=torch.float64) for t in case.tensors)
            ours, theirs = leaves(tensors), leaves(tensors)
            found, wanted = function(*ours), case.eager(*theirs)
            assert_same(found, wanted)
            assert_same(torch.autograd.grad(scalar(found), ours), torch.autograd.grad(scalar(wanted), theirs))
        assert counter.frame_count == 1, name


def test_sizes_that_only_the_data_tell() -> None:
    kernel, (x, w, b) = CASES["layernorm"].kernel, leaves(CASES["layernorm"].tensors)
    mask = torch.tensor([True, False, True])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        found = compiled(lambda x, mask: kernel(x[mask], w, b))[0](x, mask)
        assert_same(torch.autograd.grad(scalar(found), x), torch.autograd.grad(scalar(F.layer_norm(x[mask], (5,), w, b)), x))


def test_results_that_a_graph_does_not_use() -> None:
    case = CASES["add_rmsnorm"]
    for used in (0, 1):
        ours, theirs = leaves(case.tensors), leaves(case.tensors)
        found = compiled(lambda *args, used=used: case.kernel(*args)[used])[0](*ours)
        wanted = case.eager(*theirs)[used]
        assert_same(torch.autograd.grad(scalar(found), ours[:2]), torch.autograd.grad(scalar(wanted), theirs[:2]))


def test_checkpoints_inside_a_graph() -> None:
    case, (x,) = CASES["softmax"], leaves(CASES["softmax"].tensors)
    function = compiled(lambda x: checkpoint(lambda x: scalar(case.kernel(x.sin())), x, use_reentrant=False))[0]
    assert_same(torch.autograd.grad(function(x), x), torch.autograd.grad(scalar(case.eager(x.sin())), x))


def test_leading_dims_that_broadcast() -> None:
    add, tensors = kgen.load("add"), (X, Y[0])
    for dynamic in (False, True):
        ours, theirs = leaves(tensors), leaves(tensors)
        found = compiled(lambda x, y: add(x, y) * 2, dynamic=dynamic)[0](*ours)
        assert_same(torch.autograd.grad(scalar(found), ours), torch.autograd.grad(scalar((theirs[0] + theirs[1]) * 2), theirs))


def test_in_place_kernels_write_what_eager_ones_write() -> None:
    adamw = kgen.load("adamw")

    def step(p, g, m, v, t):
        adamw(p, g * 2, m, v, t, 1e-3)
        return p + m

    function, counter = compiled(step)
    ours = [t.clone() for t in torch.rand(4, 3, 5).unbind()]
    theirs = [t.clone() for t in ours]
    for t in range(1, 6):
        assert_same(function(*ours, t), step(*theirs, t), ulps=0)
        assert_same(ours, theirs, ulps=0)
    assert counter.frame_count == 2, "1 is a constant, other steps are one graph"
    ours[0].requires_grad_()
    with pytest.raises(Exception, match="requires grad, and p is written in place"):
        compiled(step)[0](*ours, 1)
    with torch.no_grad():
        compiled(step)[0](*ours, 1)


def test_another_kernel_is_another_graph() -> None:
    function, counter = compiled(lambda kernel, x: kernel(x))
    for _ in range(2):
        assert_same(function(kgen.load("silu"), X), F.silu(X))
        assert_same(function(CASES["gelu"].kernel, X), F.gelu(X))
    assert_same(function(CASES["gelu"].kernel, X), F.gelu(X))


def test_autocast_promotes_inside_graphs() -> None:
    kernel, (x, w, b) = CASES["layernorm"].kernel, (t.float() for t in CASES["layernorm"].tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = kernel(F.linear(x, torch.eye(5)), w, b)
        found = compiled(lambda x: kernel(F.linear(x, torch.eye(5)), w, b))[0](x)
    assert_same(found, wanted, ulps=0)
    assert found.dtype == torch.float32


TRANSFORMS = {
    "grad": lambda f: grad(lambda *a: scalar(f(*a)), argnums=0),
    "grad of grad": lambda f: grad(lambda *a: scalar(grad(lambda *a: scalar(f(*a)))(*a))),
    "vmap": lambda f: lambda x, *a: vmap(lambda x: f(x, *a))(x),
    "vmap of grad": lambda f: lambda x, *a: vmap(grad(lambda x: scalar(f(x, *a))))(x),
    "jvp": lambda f: lambda *a: jvp(f, a, tuple(t.cos() for t in a)),
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "hessian": lambda f: hessian(lambda *a: scalar(f(*a))),
}


#: Of layernorm the hessian takes as long to compile as all others together.
TRANSFORMED = [
    pytest.param(name, spec, id=f"{name}-{spec}", marks=pytest.mark.slow if (name, spec) == ("hessian", "layernorm") else ())
    for name in TRANSFORMS
    for spec in ("layernorm", "gelu")
]


@pytest.mark.parametrize(("name", "spec"), TRANSFORMED)
def test_transforms_compile_and_keep_the_kernels(name: str, spec: str) -> None:
    case, graphs = CASES[spec], list[str]()

    def backend(graph, inputs):
        from torch._dynamo.backends.common import aot_autograd

        def keep(lowered, _):
            graphs.append(lowered.code)
            return lowered

        return aot_autograd(fw_compiler=keep)(graph, inputs)

    function = torch.compile(TRANSFORMS[name](case.kernel), fullgraph=True, backend=backend)
    assert_same(function(*case.tensors), TRANSFORMS[name](case.eager)(*case.tensors))
    assert any("torch.ops.kgen" in code for code in graphs)


# --------------------------------------------------------------------------------------------- the operator

P = torch.rand(4, 3, 5)
OPERATORS = {
    "one result": ("gelu", (X,)),
    "transposed": ("gelu", (X.t(),)),
    "16 bits": ("layernorm", (X.bfloat16(), W.bfloat16(), B.bfloat16())),
    "numbers": ("layernorm", (X, W, B, 1e-3)),
    "several results": ("add_rmsnorm", (X, Y, W)),
    "channels last": ("bias_gelu", (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), B.float())),
    "all dims reduced": ("mse", (X, Y)),
    "broadcast": ("add", (X, Y[0])),
    "a class index": ("cross_entropy", (X, torch.tensor([0, 4, 2]), -100, 0.1)),
    "in place": ("adamw", (*P.clone().unbind(), 3, 1e-3)),
    "integers out": ("argmax", (X,)),
    "none of it": ("softmax", (X[:0],)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name: str) -> None:
    spec, args = OPERATORS[name]
    for tracked in (False, True):
        given = [t.clone().requires_grad_() if tracked and isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in args]
        if tracked and name in ("in place", "integers out"):
            continue
        assert set(opcheck(kgen.load(spec).op, given).values()) == {"SUCCESS"}


def test_opcheck_of_integers_beside_floats() -> None:
    assert set(opcheck(kgen.load("row_absmax_int8").op, (X,)).values()) == {"SUCCESS"}


def test_operators_are_named_by_their_text() -> None:
    text = "twice(x: T[...], k: int, a: float = 2.5, b: float = inf) -> y: T[...]\n\ny = min(a * x + k, b)\n"
    first, again = kgen.loads(text), kgen.loads("# another comment\n" + text.replace("a * x", "a*x"))
    other = kgen.loads(text.replace("2.5", "3"))
    assert first.op is again.op and first.op is not other.op
    assert first.op._opname.startswith("twice_") and len(first.op._opname) == len("twice_") + 8
    assert torch.Tag.pt2_compliant_tag in first.op.tags
    assert schema(traits(first)) == "(Tensor x, SymInt k, float a, float b, *, str? target=None) -> Tensor"
    assert schema(traits(kgen.load("layernorm"))) == "(Tensor x, Tensor w, Tensor b, float eps=1e-05, *, str? target=None) -> Tensor"
    assert schema(traits(kgen.load("lerp_ema"))).startswith("(Tensor(a!) ema, Tensor x, float w=0.001")
    assert schema(traits(kgen.load("lerp_ema"))).endswith("-> ()")


def test_an_operator_of_another_process_is_found_by_its_name() -> None:
    """Compiled code that torch keeps on disk calls operators which nothing in this process has derived yet."""
    number = time.time_ns() % 2**20  # a text of its own, for what a run before this one remembered is still there
    kernel = kgen.loads(f"remembered(x: T[...], w: float = 0.5) -> y: T[...]\n\ny = w * x + {number}\n").kernel
    name = registered_name(kernel)
    with pytest.raises(AttributeError):
        getattr(torch.ops.kgen, name)
    remember(kernel, name)
    assert_same(getattr(torch.ops.kgen, name).default(X), 0.5 * X + number)
    remember(kernel, "remembered_00000000")  # a text that its name does not stand for
    for wrong in ("remembered_00000000", "../x", "not_there"):
        with pytest.raises(AttributeError):
            getattr(torch.ops.kgen, wrong)


@pytest.mark.slow
def test_what_one_process_compiled_another_runs_from_torchs_cache(tmp_path: Path) -> None:
    script = (
        "import torch, kgen\n"
        "x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()\n"
        "w, b = torch.ones(8, requires_grad=True), torch.zeros(8, requires_grad=True)\n"
        "layernorm = kgen.load('layernorm')\n"
        "torch.compile(lambda x, w, b: layernorm(x, w, b).sin(), fullgraph=True)(x, w, b).sum().backward()\n"
        "print(torch._dynamo.utils.counters['aot_autograd']['autograd_cache_hit'], x.grad.sum().item())\n"
    )
    folders = {"KGEN_CACHE_DIR": str(tmp_path / "kgen"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    said = []
    for _ in range(2):
        done = warm.run("-c", script, cwd=ROOT, env={**os.environ, **folders})
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert [hits for hits, _ in said] == ["0", "1"] and said[0][1] == said[1][1]


def test_parameters_may_have_any_name() -> None:
    kernel = kgen.loads("odd(self: T[...], lambda: T[...], out: float, target: int = 3) -> y: T[...]\n\ny = self * lambda + out * target\n")
    found = compiled(lambda x, y: kernel(x, **{"lambda": y, "out": 2.0}))[0](X, Y)
    assert_same(found, X * Y + 6)
    assert_same(kernel.op(X, Y, 2.0), X * Y + 6)


def test_torch_func_refuses_the_bare_operator() -> None:
    """It would differentiate it wrongly or not at all."""
    op = CASES["gelu"].kernel.op
    for transform in (grad(lambda x: op(x).sum()), lambda x: jvp(op, (x,), (x,)), jacfwd(op), hessian(lambda x: op(x).sum())):
        with pytest.raises(kgen.KgenError, match="torch.func does not differentiate operators"):
            transform(X)
    assert_same(vmap(op, in_dims=1)(X), F.gelu(X).t())


# --------------------------------------------------------------------------------------------- without memory


LAYOUTS = [X, X.t(), X[:, ::2], X[:1].expand(4, 5), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), X[:0], X[0, 0]]


@pytest.mark.parametrize("x", LAYOUTS, ids=lambda x: f"{tuple(x.shape)}{x.stride()}")
def test_shapes_strides_and_dtypes_without_memory_are_the_real_ones(x: torch.Tensor) -> None:
    specs = ["gelu", "row_absmax_int8", "layernorm", "logsumexp", "mse"] if x.dim() else ["gelu", "mse"]
    for spec in specs:
        kernel = kgen.load(spec)
        n = x.shape[-1] if x.dim() else 1
        args = {"layernorm": (x, torch.ones(n, dtype=x.dtype), torch.ones(n, dtype=x.dtype)), "mse": (x, x)}.get(spec, (x,))
        real = kernel(*args)
        on_meta = kernel(
            *(t.to("meta") if t.is_contiguous() else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta") for t in args)
        )
        with FakeTensorMode() as mode:
            fake = kernel(*(mode.from_tensor(t) for t in args))
        for results in (on_meta, fake):
            for a, b in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (results, real))):
                assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        assert all(t.device.type == "meta" for t in ((on_meta,) if isinstance(on_meta, torch.Tensor) else on_meta))


def test_what_does_not_fit_is_told_without_memory_too() -> None:
    kernel = CASES["layernorm"].kernel
    with pytest.raises(kgen.KgenError, match="T is f64 in x and f32 in w"):
        kernel.op(X.to("meta"), W.float().to("meta"), B.to("meta"))
    with pytest.raises(Exception, match="dim N has two sizes"):
        kernel.op(X.to("meta"), W[:4].to("meta"), B.to("meta"))
    with pytest.raises(kgen.KgenError, match="w has 2 dims"):
        kernel.op(X.to("meta"), X.to("meta"), B.to("meta"))


def test_gradients_flow_through_fake_and_meta_tensors() -> None:
    for x in (X.to("meta").requires_grad_(), FakeTensorMode().from_tensor(X).requires_grad_()):
        CASES["softmax"].kernel(x).sum().backward()
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_sees_operators(mode: str) -> None:
    graph = make_fx(CASES["add_rmsnorm"].kernel, tracing_mode=mode)(X, Y, W)
    assert "torch.ops.kgen.add_rmsnorm_" in graph.code
    assert_same(graph(X, Y, W), CASES["add_rmsnorm"].eager(X, Y, W))


# --------------------------------------------------------------------------------------------- export


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = kgen.load("layernorm").module(w=W.clone(), b=B.clone())
        self.out = torch.nn.Linear(5, 2, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(CASES["gelu"].kernel(self.norm(x)))


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_hold_operators_and_run_after_loading(strict: bool) -> None:
    model, more = Model(), torch.randn(7, 5, dtype=torch.float64)
    exported = torch.export.export(model, (X,), dynamic_shapes={"x": {0: torch.export.Dim("rows")}}, strict=strict)
    called = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert [c.split("_")[0] for c in called if c.startswith("kgen")] == ["kgen.layernorm", "kgen.gelu"]
    assert_same(exported.module()(more), model(more))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    assert_same(torch.export.load(file).module()(more), model(more))
    assert_same(exported.run_decompositions().module()(more), model(more))


def test_a_plain_process_has_shapes_of_meta_tensors_and_runs_a_saved_program(tmp_path: Path) -> None:
    """That registers the program's kernels by their names."""
    model = Model()
    torch.export.save(torch.export.export(model, (X,)), tmp_path / "model.pt2")
    torch.save((X, model(X)), tmp_path / "values.pt")
    script = (
        "import sys, torch, kgen\n"
        "x = torch.empty(3, device='meta', requires_grad=True); y = kgen.load('gelu')\n"
        "print(y(x.detach()).shape); y(x).sum().backward(); print(x.grad.device)\n"
        "kgen.Kernel._preferred = lambda self, *_: 'torch'\n"
        "[kgen.load(name).op for name in ('layernorm', 'gelu')]\n"
        "x, y = torch.load(sys.argv[2])\n"
        "assert torch.equal(torch.export.load(sys.argv[1]).module()(x), y)\n"
    )
    done = warm.run("-c", script, tmp_path / "model.pt2", tmp_path / "values.pt", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["torch.Size([3])", "meta"]


def test_a_missing_argument_is_named_under_compile() -> None:
    dyt = kgen.load("dyt")
    with pytest.raises(Exception, match="dyt: w, b missing"):
        torch.compile(lambda x: dyt(x, x), fullgraph=True, backend="eager")(torch.randn(2, 3))


def test_the_operators_of_derivatives_are_found_by_their_names() -> None:
    """torch's cache on disk may know a backward that this process has not derived, and kgen's own cache may be gone."""
    from kgen import grad
    from kgen.torch_op.operators import derived
    from kgen.torch_op.traits import registered_name, spec_text

    kernel = kgen.load("layernorm")
    assert kernel.op
    first = grad.backward(kernel.kernel, wanted=["x", "b"])
    second = grad.backward(grad.backward(kernel.kernel).kernel)
    for made in (first.kernel, first.forward, second.kernel):
        found = derived(registered_name(made))
        assert found is not None and spec_text(found.kernel) == spec_text(made)
    assert derived("layernorm_backward_00000000") is None and derived("nothing_12345678") is None
