"""What of torch's layers the bundled specs compute: one table.

In: a layer of torch's, or one that computes what such a layer does.  Out: its row, and its calls as a kernel's.  A layer's parameters and
settings are read anew in each call, so that what moves, loads or shares them may go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from kgen.errors import KgenError
from kgen.runtime.calls import PLAIN
from kgen.runtime.kernel import Kernel, load
from kgen.torch_op import pools

#: Kinds of tensors (plain ones, and what torch.export traces with), dtypes and devices of calls that a kernel takes.
KINDS = PLAIN | {FakeTensor, FunctionalTensor}
FLOATS = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
DEVICES = frozenset(("cpu", "cuda"))


def _nothing(m: nn.Module) -> str:
    return ""


@dataclass(frozen=True)
class Layer:
    """How a bundled spec computes a layer.

    `takes` are the spec's parameters; `call(kernel, m, inputs, own)` gives the result of m's call, of its inputs and its own tensors, or
    NotImplemented for what only the layer itself can take. `own` are the attributes of its tensors, each with the parameter that it is;
    one that is None is left out.  `lacks` says of a layer what the spec has not; `wide` that CUDA's autocast
    computes the layer in f32; `result` gives its result's dtype there, where one torch differs from another.
    """

    spec: str
    takes: tuple[str, ...]
    call: Callable[[Kernel, Any, Sequence[Any], Sequence[Any]], Any]
    own: Mapping[str, str] = field(default_factory=dict)
    lacks: Callable[[Any], str] = _nothing
    inputs: int = 1
    wide: bool = False
    result: Callable[[torch.dtype, torch.dtype, torch.dtype], torch.dtype] | None = None

    def kernel(self, m: nn.Module, kernel: Kernel | None = None) -> Kernel:
        """The kernel for a layer, which lacks the parameters that the layer lacks; `kernel` stands for the bundled spec."""
        made = bundled(self.spec) if kernel is None else kernel
        return made.without(*[parameter for name, parameter in self.own.items() if getattr(m, name, None) is None])

    def __call__(self, kernel: Kernel, m: nn.Module, inputs: Sequence[Any]) -> Any:
        """The result of a layer's call, or NotImplemented where the kernel cannot take it: other dtypes, devices and kinds of tensors,
        what torch.jit traces, shapes that the layer itself is to refuse."""
        own = [t for name in self.own if (t := getattr(m, name, None)) is not None]
        if len(inputs) != self.inputs or not all([_is_taken(t) for t in (*inputs, *own)]) or torch.jit.is_tracing():
            return NotImplemented
        floats = [t for t in (*inputs, *own) if t.is_floating_point()]
        device = inputs[0].device
        if any([t.device != device for t in (*inputs, *own)]):
            return NotImplemented
        if self.wide and torch.is_autocast_enabled(device.type) and any([t.dtype in (torch.float16, torch.bfloat16) for t in floats]):
            if device.type != "cuda":
                return NotImplemented  # where each layer has a rule of its own
            result = self.call(kernel, m, _widened(inputs), _widened(own))
            if result is NotImplemented or self.result is None:
                return result
            return result.to(self.result(inputs[0].dtype, own[0].dtype if own else inputs[0].dtype, torch.get_autocast_dtype("cuda")))
        if len({t.dtype for t in floats}) != 1:
            return NotImplemented
        return self.call(kernel, m, inputs, own)


def _is_taken(t: Any) -> bool:
    if type(t) not in KINDS or t.layout is not torch.strided or t.is_nested or t.device.type not in DEVICES:
        return False
    return t.dtype in FLOATS or not t.is_floating_point() and t.dtype == torch.int64


def _widened(tensors: Sequence[Any]) -> list[Any]:
    return [t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors]


@cache
def _rms_norm_dtype(x: torch.dtype, w: torch.dtype, autocast: torch.dtype) -> torch.dtype:
    """The dtype of torch's RMSNorm under CUDA's autocast to a dtype, by those of its argument and weight, found with one element, once:
    torch 2.13's is f32, 2.11's that of x."""
    return torch.nn.functional.rms_norm(torch.ones(1, 1, dtype=x, device="cuda"), (1,), torch.ones(1, dtype=w, device="cuda")).dtype


@cache
def bundled(spec: str) -> Kernel:
    """The kernel of a bundled spec, one for the process."""
    return load(spec)


def computed_eps(m: Any, x: torch.Tensor) -> float:
    """A norm's eps; where it is None, that of the dtype which is computed in, as torch has it."""
    return torch.finfo(torch.float64 if x.dtype == torch.float64 else torch.float32).eps if m.eps is None else m.eps


# ------------------------------------------------------------------------------------------------------------- calls


def _norm(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any]) -> Any:
    """A norm over `normalized_shape`, several dims as one row."""
    (x,) = inputs
    shape, k = tuple(m.normalized_shape), len(m.normalized_shape)
    if x.dim() < k or tuple(x.shape[-k:]) != shape:
        return NotImplemented
    if k == 1:
        return kernel(x, *own, computed_eps(m, x))
    rows = x.reshape(*x.shape[:-k], math.prod(shape))
    return kernel(rows, *[t.reshape(-1) for t in own], computed_eps(m, x)).reshape(x.shape)


def _group_norm(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any]) -> Any:
    """A norm of groups of channels; the tensor is seen as [B, G, C, S]."""
    (x,) = inputs
    if x.dim() < 2 or x.shape[1] != m.num_channels or not x.numel() or not x.is_contiguous():
        return NotImplemented
    groups, channels = m.num_groups, m.num_channels // m.num_groups
    grouped = x.view(x.shape[0], groups, channels, -1)
    return kernel(grouped, *[t.view(groups, channels) for t in own], m.eps).reshape(x.shape)


def _pointwise(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any], settings: tuple[str, ...] = ()) -> Any:
    return kernel(*inputs, *[float(getattr(m, name)) for name in settings])


def _last(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any]) -> Any:
    """A function of rows along the last dim."""
    (x,) = inputs
    return kernel(x) if x.dim() and x.numel() and m.dim in (-1, x.dim() - 1) else NotImplemented


def _cross_entropy(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any]) -> Any:
    """A loss of each row and its class, reduced as the layer says; the classes lie along dim 1, or along the only one."""
    x, t = inputs
    if not x.is_floating_point() or t.is_floating_point() or x.dim() < 1 or x.dim() != t.dim() + 1 or not x.numel():
        return NotImplemented
    rows = x if x.dim() <= 2 else x.movedim(1, -1)
    if rows.shape[:-1] != t.shape:
        return NotImplemented
    loss = kernel(rows, t, m.ignore_index, float(m.label_smoothing), 0.0)
    if m.reduction == "sum":
        loss = loss.sum()
    elif m.reduction == "mean":
        loss = loss.sum() / (t != m.ignore_index).sum()
    return loss.to(x.dtype)


def _row_norm(kernel: Kernel, m: Any, inputs: Sequence[Any], own: Sequence[Any], eps: str) -> Any:
    """The RMSNorm of a class that torch does not have; `eps` is the attribute's name."""
    (x,) = inputs
    if not x.dim() or x.shape[-1] != own[0].shape[0]:
        return NotImplemented
    return kernel(x, own[0], float(getattr(m, eps)))


# ------------------------------------------------------------------------------------------------------------ the table


def _in_place(m: Any) -> str:
    return "it works in place" if m.inplace else ""


def _of_tanh(m: Any) -> str:
    return "" if m.approximate == "tanh" else "it is not the approximation by tanh"


def _of_erf(m: Any) -> str:
    return "" if m.approximate == "none" else "it is an approximation"


def _no_dim(m: Any) -> str:
    return "" if m.dim is not None else "it names no dim"


def _class_weights(m: Any) -> str:
    return "" if m.weight is None else "it has class weights"


@dataclass(frozen=True)
class Pool(Layer):
    """How a pool is computed: by a kernel for each of its settings."""

    def kernel(self, m: nn.Module, kernel: Kernel | None = None) -> Kernel:
        op, count = pools.kind(m)
        own = pools.pool(op, pools.sides(m, count))
        if kernel is not None and kernel.name != own.name:
            raise KgenError(f"{kernel.name}: it does not compute a {type(m).__name__}", help=f"what does is called {own.name}")
        return own


LAYERS: dict[type[nn.Module], tuple[Layer, ...]] = {
    nn.LayerNorm: (Layer("layernorm", ("x", "w", "b", "eps"), _norm, {"weight": "w", "bias": "b"}, wide=True),),
    nn.RMSNorm: (Layer("rmsnorm", ("x", "w", "eps"), _norm, {"weight": "w"}, wide=True, result=_rms_norm_dtype),),
    nn.GroupNorm: (Layer("groupnorm", ("x", "w", "b", "eps"), _group_norm, {"weight": "w", "bias": "b"}, wide=True),),
    nn.GELU: (Layer("gelu", ("x",), _pointwise, lacks=_of_erf), Layer("gelu_tanh", ("x",), _pointwise, lacks=_of_tanh)),
    nn.SiLU: (Layer("silu", ("x",), _pointwise, lacks=_in_place),),
    nn.Mish: (Layer("mish", ("x",), _pointwise, lacks=_in_place),),
    nn.ELU: (Layer("elu", ("x", "alpha"), partial(_pointwise, settings=("alpha",)), lacks=_in_place),),
    nn.Hardswish: (Layer("hardswish", ("x",), _pointwise, lacks=_in_place),),
    nn.Softmax: (Layer("softmax", ("x",), _last, lacks=_no_dim, wide=True),),
    nn.LogSoftmax: (Layer("log_softmax", ("x",), _last, lacks=_no_dim, wide=True),),
    nn.CrossEntropyLoss: (
        Layer("cross_entropy", ("x", "t", "ignore", "smoothing", "z"), _cross_entropy, lacks=_class_weights, inputs=2, wide=True),
    ),
    **{kind: (Pool(pools.name(*own), ("x",), pools.called, lacks=pools.lacks),) for kind, own in pools.POOLS.items()},
}  # fmt: skip


def chosen(m: nn.Module, rows: Sequence[Layer]) -> Layer | str:
    """The row that a layer's settings choose, or why none does."""
    why = [row.lacks(m) for row in rows]
    return rows[why.index("")] if "" in why else why[0]


def rms_norm(eps: str) -> Layer:
    """The row of an RMSNorm with one tensor, `weight`, and its eps under a name."""
    return Layer("rmsnorm", ("x", "w", "eps"), partial(_row_norm, eps=eps), {"weight": "w"})
