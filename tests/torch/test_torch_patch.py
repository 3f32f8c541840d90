"""kgen.patch: layers in models of any library computed by kernels, told of, and taken back."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import kgen
from tests import llama
from tests.torch_cases import assert_same, evaluated, scalar  # noqa: F401


def randomised(m: Any) -> Any:
    """A layer in f64, its parameters random."""
    generator = torch.Generator().manual_seed(3)
    for p in m.double().parameters():
        p.data.uniform_(0.5, 2, generator=generator)
    return m


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).requires_grad_()


def labels(n: int, *shape: int) -> torch.Tensor:
    t = torch.randint(0, n, shape, generator=torch.Generator().manual_seed(8))
    t.view(-1)[0] = -100
    return t


#: A spec, a layer of torch's that it computes, and what the layer is called with.
LAYERS: list[tuple[str, nn.Module, tuple[torch.Tensor, ...]]] = [
    ("layernorm", nn.LayerNorm(5, bias=False), (rows(3, 5),)),
    ("layernorm", nn.LayerNorm(5, eps=1e-3, elementwise_affine=False), (rows(3, 5),)),
    ("layernorm", nn.LayerNorm((3, 5)), (rows(2, 4, 3, 5),)),
    ("layernorm", nn.LayerNorm((3, 5), bias=False), (rows(4, 3, 5).detach().mT.contiguous().mT,)),
    ("rmsnorm", nn.RMSNorm(5), (rows(3, 5),)),
    ("rmsnorm", nn.RMSNorm(5, elementwise_affine=False), (rows(2, 3, 5),)),
    ("rmsnorm", nn.RMSNorm((3, 5), eps=1e-2), (rows(2, 3, 5),)),
    ("groupnorm", nn.GroupNorm(2, 6), (rows(3, 6, 4, 2),)),
    ("groupnorm", nn.GroupNorm(3, 6, affine=False), (rows(3, 6),)),
    ("gelu", nn.GELU(), (rows(3, 5),)),
    ("gelu_tanh", nn.GELU("tanh"), (rows(3, 5),)),
    ("silu", nn.SiLU(), (rows(3, 5),)),
    ("elu", nn.ELU(0.5), (rows(3, 5),)),
    ("softmax", nn.Softmax(dim=-1), (rows(3, 5),)),
    ("log_softmax", nn.LogSoftmax(dim=1), (rows(3, 5),)),
    ("cross_entropy", nn.CrossEntropyLoss(), (rows(6, 5), labels(5, 6))),
    ("cross_entropy", nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum", ignore_index=2), (rows(6, 5), labels(5, 6).clamp(min=0))),
    ("cross_entropy", nn.CrossEntropyLoss(reduction="none"), (rows(2, 5, 3), labels(5, 2, 3))),
    ("cross_entropy", nn.CrossEntropyLoss(), (rows(5), torch.tensor(2))),
    ("max_pool2d", nn.MaxPool2d((2, 3), 2, (0, 1), (2, 1)), (rows(3, 7, 8),)),
    ("avg_pool2d", nn.AvgPool2d(3, 2, 1), (rows(2, 3, 6, 7),)),
]
each_layer = pytest.mark.parametrize(("spec", "layer", "inputs"), LAYERS, ids=[f"{m}" for _, m, _ in LAYERS])


def with_gradients(m: Any, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    y = m(*inputs)
    wanted = [x for x in (*inputs, *m.parameters()) if x.requires_grad]
    return [y.detach(), *(torch.autograd.grad(scalar(y), wanted) if wanted else ())]


@each_layer
def test_values_and_gradients_are_the_layer_s(spec: str, layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    m = randomised(copy.deepcopy(layer))
    wanted, keys, own = with_gradients(m, inputs), list(m.state_dict()), dict(m.__dict__)
    like = kgen.load(spec).module(like=m)
    assert repr(like).startswith(f"{spec}(") and like.extra_repr() == m.extra_repr() and list(like.state_dict()) == keys
    assert all(a is b for a, b in zip(like.parameters(), m.parameters(), strict=True))
    assert_same(with_gradients(like, inputs), wanted)
    with kgen.patch(m) as patched:
        assert [row.kernel for row in patched.swapped] == [spec] and not patched.left
        assert m.forward.kgen_kernel.name == spec
        assert_same(with_gradients(m, inputs), wanted)
        assert list(m.state_dict()) == keys
    assert m.__dict__ == own
    assert all(torch.equal(a, b) for a, b in zip(with_gradients(m, inputs), wanted, strict=True))


POOLS: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.MaxPool1d(3, 1, 1), (2, 3, 9)),
    (nn.MaxPool3d(2, (1, 2, 1)), (2, 5, 4, 3)),
    (nn.AvgPool1d(4, 3, 2), (3, 8)),
]


@pytest.mark.parametrize(("layer", "shape"), POOLS, ids=[f"{m}" for m, _ in POOLS])
def test_pools_of_any_settings(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """With a NaN and an infinity; gradients of maxima are torch's, to the first of equals.  Settings are read anew in each call."""
    x = torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(9)).double()
    x.view(-1)[3], x.view(-1)[-2] = torch.nan, -torch.inf
    finite = torch.zeros(shape, dtype=torch.float64, requires_grad=True)

    def results() -> list[torch.Tensor]:
        return [layer(x).nan_to_num(7), layer(finite).detach(), *torch.autograd.grad(scalar(layer(finite)), [finite])]

    wanted = results()
    with kgen.patch(layer) as patched:
        assert len(patched.swapped) == 1 and not patched.left
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(type(layer), "forward", None)  # no call without gradients is the layer's own
            found = layer(x)
        assert_same([found.nan_to_num(7)], wanted[:1])
        assert_same(results(), wanted)
        layer.stride = layer.kernel_size
        assert_same([layer(x).nan_to_num(7)], [type(layer).forward(layer, x).nan_to_num(7)])


class Doubled(nn.LayerNorm):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


class Renamed(nn.LayerNorm):
    """Nothing but a name."""


class Shifted(llama.RMSNorm):
    """As Gemma's: its weight is what 1 lacks."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return super().forward(h) * (1 + self.weight) / self.weight


class Wide(llama.RMSNorm):
    """As the first Llama's: what it gives is f32."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return super().forward(h).to(torch.promote_types(h.dtype, torch.float32))


class Torn(llama.RMSNorm):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("there is no such device")


LEFT: list[tuple[nn.Module, str | None]] = [
    (Renamed(4), None),
    (llama.RMSNorm(4, eps=1e-3), None),
    (Doubled(4), "it overrides LayerNorm.forward"),
    (nn.SiLU(inplace=True), "it works in place"),
    (nn.CrossEntropyLoss(weight=torch.ones(4)), "it has class weights"),
    (nn.MaxPool1d(2, ceil_mode=True), "it rounds sizes up"),
    (nn.MaxPool2d(2, return_indices=True), "it returns places too"),
    (nn.AvgPool2d(3, 1, 1, count_include_pad=False), "it leaves padding out of its means"),
    (nn.AvgPool2d(2, divisor_override=3), "it divides by another number"),
    (nn.AvgPool2d(12), "its windows have more than 128 elements"),
    (nn.AvgPool1d(2, padding=2), "torch refuses its windows"),
    (Shifted(4), "its values are not those of rmsnorm"),
    (Wide(4), "it gives float32 for bfloat16"),
    (Torn(4), "its forward, tried on random rows on the CPU, raises RuntimeError"),
]


@pytest.mark.parametrize(("layer", "why"), LEFT, ids=[type(m).__name__ for m, _ in LEFT])
def test_what_is_left_alone_is_told_with_the_reason(layer: nn.Module, why: str | None) -> None:
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    patched = kgen.patch(nn.Sequential(nn.Linear(4, 4), layer))
    (row,) = patched.rows
    assert (row.path, row.kind, row.why) == ("1", type(layer).__name__, why or "") and (row.kernel is None) == bool(why)
    assert "Linear (1)" in repr(patched) and (why or row.kernel) in repr(patched)
    assert_same(list(layer.state_dict().values()), list(before.values()), ulps=0)
    patched.undo()


CALLS: list[tuple[str, nn.Module, Callable[[], tuple], dict[str, Any]]] = [
    ("integers", nn.SiLU(), lambda: (torch.arange(3).bool(),), {}),
    ("two dtypes", nn.LayerNorm(5).double(), lambda: (torch.randn(2, 5),), {}),
    ("another shape", nn.LayerNorm(5), lambda: (torch.randn(2, 4),), {}),
    ("probabilities", nn.CrossEntropyLoss(), lambda: (torch.randn(2, 4), torch.rand(2, 4)), {}),
    ("by name", nn.SiLU(), lambda: (), {"input": torch.randn(3)}),
    ("no memory", nn.LayerNorm(5, device="meta"), lambda: (torch.empty(2, 5, device="meta"),), {}),
    ("other memory", nn.GroupNorm(2, 4), lambda: (torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last),), {}),
    ("another dim", nn.Softmax(0), lambda: (torch.randn(2, 3),), {}),
    ("no window", nn.MaxPool1d(4), lambda: (torch.randn(2, 3),), {}),
]


@pytest.mark.parametrize(("layer", "args", "kwargs"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
def test_calls_that_no_kernel_takes_are_the_layer_s_own(layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    def outcome() -> Any:
        try:
            return layer(*given, **kwargs)
        except Exception as error:
            return type(error), str(error)

    given = args()
    wanted = outcome()
    with kgen.patch(layer) as patched, pytest.MonkeyPatch.context() as m:
        assert patched.swapped
        m.setattr(kgen.Kernel, "__call__", lambda *_: pytest.fail("a kernel was called"))
        got = outcome()
    if isinstance(wanted, torch.Tensor) and not wanted.is_meta:
        assert_same(got, wanted, ulps=0)
    else:
        assert type(got) is type(wanted) and (isinstance(wanted, torch.Tensor) or got == wanted)


def model() -> Any:
    return llama.model(dtype=torch.float64)


def test_a_model_stays_what_it_was() -> None:
    m, (batch,) = model(), llama.batches(llama.SMALL, 1)
    m.layers[1].norm1 = m.layers[0].norm1  # shared by two layers
    m.layers[0].norm2.eval()
    m.layers[0].norm2.weight.requires_grad_(False)
    seen: list[Any] = []
    m.norm.register_forward_hook(lambda module, args, result: seen.append(type(module)))
    params, keys, dicts = dict(m.named_parameters()), list(m.state_dict()), {name: dict(x.__dict__) for name, x in m.named_modules()}
    wanted = m(*batch)
    patched = kgen.patch(m)
    assert [row.path for row in patched.swapped] == [
        "layers.0.norm1", "layers.0.norm2", "layers.0.act", "layers.1.norm2", "layers.1.act", "norm", "loss"
    ]  # fmt: skip
    assert repr(patched).splitlines()[1].split() == ["layers.0.norm1", "RMSNorm", "rmsnorm"]
    assert {row.why for row in kgen.patch(m).left} == {"it is patched already"}
    assert all(m.get_parameter(name) is p for name, p in params.items()) and list(m.state_dict()) == keys
    assert not m.layers[0].norm2.training and m.layers[0].norm1.training and m.head.weight is m.embed.weight
    assert_same(m(*batch), wanted, ulps=64)
    assert seen == [llama.RMSNorm] * 2
    m.load_state_dict({k: v.clone() for k, v in m.state_dict().items()}, assign=True)  # other parameters, which calls take
    m.norm.weight.data.mul_(2)
    assert float((m(*batch) - wanted).abs()) > 1e-3
    m.norm.weight.data.mul_(0.5)
    copied = copy.deepcopy(m)
    assert copied.norm.forward.__self__ is copied.norm
    assert_same(copied(*batch), wanted, ulps=64)
    patched.undo(), patched.undo()
    for name, x in m.named_modules():
        assert list(x.__dict__) == list(dicts[name])
    assert_same(m(*batch), wanted, ulps=0)


def test_compiled_exported_saved_traced_and_transformed() -> None:
    m, x = nn.Sequential(llama.RMSNorm(6), nn.Linear(6, 4), nn.SiLU(), nn.LayerNorm(4, bias=False)).double(), rows(3, 6)
    plain = m(x)
    kgen.patch(m)
    wanted = m(x)
    torch._dynamo.reset()
    assert_same(torch.compile(m, fullgraph=True, backend="aot_eager")(x), wanted, ulps=0)
    program = torch.export.export(m, (x,))
    called = {str(n.target).split(".")[1].rsplit("_", 1)[0] for n in program.graph.nodes if str(n.target).startswith("kgen.")}
    assert called == {"rmsnorm", "silu", "layernorm"}
    file = io.BytesIO()
    torch.save(m, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert_same(again(x), plain, ulps=0)  # a loaded model is a plain one
    assert [row.kernel for row in kgen.patch(again).rows] == ["rmsnorm", "silu", "layernorm"]
    assert "kgen" not in str(torch.jit.trace(m, (x,)).inlined_graph)
    assert_same(torch.func.vmap(m)(x), wanted)


def test_skipping_and_what_cannot_be_undone() -> None:
    m = model()
    patched = kgen.patch(m, skip=(nn.SiLU, "layers.1"))
    assert [row.path for row in patched.swapped] == ["layers.0.norm1", "layers.0.norm2", "norm", "loss"]
    assert {row.why for row in patched.left} == {"skipped"}
    theirs = m.norm.forward = lambda x: x
    with pytest.raises(kgen.KgenError, match=r"the forward of norm was replaced since"):
        patched.undo()
    assert kgen.patch(m.norm).left[0].why == "its forward was replaced" and m.norm.forward is theirs
    assert m.loss.forward.kgen_kernel.name == "cross_entropy"
    with pytest.raises(kgen.KgenError, match="patch takes an nn.Module, not str"):
        kgen.patch("model")


def test_autocast_gives_what_the_layer_gives() -> None:
    """On a CPU layers have rules of their own for 16 bits, which are left to them."""
    for m, x in (
        (nn.LayerNorm(8), torch.randn(3, 8)),
        (nn.SiLU(), torch.randn(3, 8).bfloat16()),
        (nn.Softmax(-1), torch.randn(3, 8).bfloat16()),
    ):
        with torch.autocast("cpu", torch.bfloat16):
            wanted = m(x)
            with kgen.patch(m):
                got = m(x)
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted)
