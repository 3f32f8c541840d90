"""A kernel as a layer.

In: a kernel, and values for some of its parameters.  Out: an `nn.Module` that holds the tensors among them (floats as
parameters, integers as buffers) and takes what is left as its arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from kgen.errors import KgenError
from kgen.runtime.arguments import number
from kgen.runtime.kernel import Kernel
from kgen.torch_op.layers import LAYERS, Layer, chosen
from kgen.torch_op.traits import traits
from kgen.types import ELLIPSIS, axes
from kgen.values import Parameter

_OWN, _FIXED, _GIVEN = "own", "fixed", "given"


class KernelModule(torch.nn.Module):
    """What `Kernel.module` makes: `forward` takes the kernel's remaining parameters, by position or name."""

    def __init__(self, kernel: Kernel, values: Mapping[str, Any], names: Mapping[str, str], shown: str | None = None):
        """`values` are the parameters that the module has itself, `names` what their tensors are called in it, `shown` is its
        repr.  Raises `KgenError` where one does not fit."""
        super().__init__()
        self.kernel = kernel
        places: list[tuple[str, str, Any]] = []  # of each parameter: its name, where its value comes from, that value or its name here
        sizes: dict[str, int] = {}
        for p, default in zip(kernel.kernel.params, traits(kernel).defaults):
            if p.name not in values:
                places.append((p.name, _GIVEN, default))
            elif p.optional and values[p.name] is None:
                places.append((p.name, _FIXED, None))
            elif not p.is_tensor:
                places.append((p.name, _FIXED, number(kernel.kernel, p, values[p.name])))
            else:
                name = names.get(p.name, p.name)
                if hasattr(self, name):
                    raise KgenError(f"{kernel.name}: a module cannot have a parameter named {name}", help="give it another with `names`")
                self._own(name, p, values[p.name], sizes)
                places.append((p.name, _OWN, name))
        self._places = tuple(places)
        self._shown = shown if shown is not None else self._described(sizes)

    def _own(self, name: str, p: Parameter, tensor: torch.Tensor, sizes: dict[str, int]) -> None:
        own = ["*".join(axis) for axis in axes(p.dims or (), p.factors) if axis != (ELLIPSIS,)]
        lead = tensor.dim() - len(own)
        if lead < 0 or lead and ELLIPSIS not in (p.dims or ()):
            raise KgenError(f"{self.kernel.name}: {p.name} has {tensor.dim()} dims", help=f"it is declared with {', '.join(own) or 'none'}")
        for d, size in zip(own, tensor.shape[lead:]):
            if sizes.setdefault(d, size) != size:
                raise KgenError(f"{self.kernel.name}: dim {d} is {sizes[d]} and, in {p.name}, {size}")
        if not tensor.is_floating_point():
            self.register_buffer(name, tensor)
        else:
            self.register_parameter(name, tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor))

    def _described(self, sizes: dict[str, int]) -> str:
        fixed = {name: value for name, kind, value in self._places if kind == _FIXED and value is not None}
        return ", ".join(f"{name}={value}" for name, value in {**sizes, **fixed}.items())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel's results for the arguments that the module has not itself.  Raises `KgenError` for missing and further ones."""
        left, arguments = list(args), []
        for name, kind, value in self._places:
            if kind == _OWN:
                arguments.append(getattr(self, value))
            elif kind == _FIXED:
                arguments.append(value)
            elif left:
                arguments.append(left.pop(0))
            elif name in kwargs:
                arguments.append(kwargs.pop(name))
            elif value is not None or any([name == own for _, own in (*self.kernel._optional, *self.kernel._drawn)]):
                arguments.append(value)
            else:
                raise KgenError(f"{self.kernel.name}: {name} is missing", help=self.kernel.signature)
        if left or kwargs:
            raise KgenError(f"{self.kernel.name}: this module takes {self._takes()} and nothing else", help=self.kernel.signature)
        return self.kernel(*arguments)

    def _takes(self) -> str:
        return ", ".join(name for name, kind, _ in self._places if kind == _GIVEN) or "nothing"

    def extra_repr(self) -> str:
        return self._shown

    def _get_name(self) -> str:
        return self.kernel.name


class LayerModule(KernelModule):
    """A kernel in the place of one of torch's layers, whose parameters it shares and whose settings it copies."""

    def __init__(self, kernel: Kernel, layer: Layer, like: torch.nn.Module, device: Any = None, dtype: torch.dtype | None = None):
        """`layer` is the row that says how the kernel computes `like`; a device or a dtype moves the tensors."""
        torch.nn.Module.__init__(self)
        for name, value in vars(like).items():
            if not name.startswith("_") and name not in ("training", "forward"):
                setattr(self, name, value)
        for name, p in like._parameters.items():
            self.register_parameter(name, None if p is None else _moved(p, device, dtype))
        for name, b in like._buffers.items():
            moved = None if b is None else _moved(b, device, dtype)
            self.register_buffer(name, moved, persistent=name not in like._non_persistent_buffers_set)
        self.kernel, self.layer, self._shown = kernel, layer, like.extra_repr()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The layer's result.  Raises `KgenError` for arguments that the kernel does not take."""
        result = NotImplemented if kwargs else self.layer(self.kernel, self, args)
        if result is NotImplemented:
            given = ", ".join(_described_argument(x) for x in (*args, *kwargs.values()))
            raise KgenError(f"{self.kernel.name}: this layer does not take {given or 'nothing'}", help=f"it is {self}")
        return result


def _described_argument(x: Any) -> str:
    """An argument in words: a tensor's dtype, shape and device, else its type."""
    if not isinstance(x, torch.Tensor):
        return type(x).__name__
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)} on {x.device}"


def _of_torch(kernel: Kernel, like: torch.nn.Module, device: Any, dtype: torch.dtype | None) -> LayerModule | None:
    """The module like one of torch's layers, whose row takes the kernel's parameters; None where there is no such row.

    Raises `KgenError` where the layer has settings that the kernel has not."""
    names = tuple(p.name for p in kernel.kernel.params)
    rows = [row for row in LAYERS.get(type(like), ()) if row.takes == names]
    if not rows:
        return None
    row = chosen(like, [row for row in rows if row.spec == kernel.name] or rows)
    if isinstance(row, str):
        raise KgenError(f"{kernel.name}: it does not compute this {type(like).__name__}: {row}")
    return LayerModule(row.kernel(like, kernel), row, like, device, dtype)


def module(
    kernel: Kernel,
    values: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
    like: torch.nn.Module | None = None,
    device: Any = None,
    dtype: torch.dtype | None = None,
) -> KernelModule:
    """The module of `Kernel.module`, which says what the arguments are and what is raised."""
    known = {p.name: p for p in kernel.kernel.params}
    for name in (*values, *(names or {})):
        if name not in known:
            raise KgenError(f"{kernel.name}: there is no parameter {name}", help=kernel.signature)
    if like is not None and not values and not names and (layer := _of_torch(kernel, like, device, dtype)) is not None:
        return layer.train(like.training)
    found: dict[str, Any] = {}
    called = dict(names or {})
    if like is not None:
        for p in known.values():
            if p.name not in values:
                _take(kernel, p, like, called, found)
        if not called:
            raise KgenError(
                f"{kernel.name}: no parameter of {type(like).__name__} matches one of the kernel's", help="say which with `names`"
            )
    tensors = {**found, **values}
    given = {name for name, p in known.items() if p.is_tensor and not (p.optional and tensors.get(name) is None)}
    found.update({name: _tensor(kernel, known[name], x) if name in given else x for name, x in values.items()})
    found = {name: _moved(x, device, dtype) if name in given else x for name, x in found.items()}
    states = {r.state for r in kernel.kernel.results}
    for name, x in found.items():
        if name in states and name in given and x.is_floating_point():
            raise KgenError(f"{kernel.name}: {name} is written in place, which a module's parameter cannot be")
    made = KernelModule(kernel, found, called, None if like is None else like.extra_repr())
    return made if like is None else made.train(like.training)


def _moved(x: Any, device: Any, dtype: torch.dtype | None) -> Any:
    """A tensor on a device and, if it is a float, in a dtype: itself where neither is named, else a new one."""
    if device is None and dtype is None:
        return x
    moved = x.detach().to(device=device, dtype=dtype if x.is_floating_point() else None)
    return torch.nn.Parameter(moved, x.requires_grad) if isinstance(x, torch.nn.Parameter) else moved


def _take(kernel: Kernel, p: Parameter, like: torch.nn.Module, called: dict[str, str], found: dict[str, Any]) -> None:
    """What another module has of a parameter: a tensor of its name or of one that begins with it (`weight` for `w`), or a number."""
    if not p.is_tensor:
        if p.default is None and not hasattr(like, p.name):
            return
        value = getattr(like, p.name, math.nan)
        if value is None:
            raise KgenError(
                f"{kernel.name}: {type(like).__name__} has no {p.name} of its own", help=f"pass it, as in `{p.name}={p.default or 0}`"
            )
        if isinstance(value, (int, float)) and not (isinstance(value, float) and math.isnan(value)):
            found[p.name] = value
        return
    tensors = {**like._parameters, **like._buffers}
    wanted = called.get(p.name)
    fitting = [wanted] if wanted else [p.name] if p.name in tensors else [name for name in tensors if name.startswith(p.name)]
    if not fitting and not wanted:
        return
    if p.optional and len(fitting) == 1 and fitting[0] in tensors and tensors[fitting[0]] is None:
        called[p.name], found[p.name] = fitting[0], None
        return
    if len(fitting) != 1 or tensors.get(fitting[0]) is None:
        raise KgenError(f"{kernel.name}: {type(like).__name__} has no {' or '.join(fitting)} for {p.name}", help="say which with `names`")
    called[p.name], found[p.name] = fitting[0], tensors[fitting[0]]


def _tensor(kernel: Kernel, p: Parameter, x: Any) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    if isinstance(x, (int, float)) and not isinstance(x, bool) and p.dims == ():
        return torch.tensor(float(x) if p.dtype not in ("i8", "i16", "i32", "i64", "u8") else x)
    raise KgenError(f"{kernel.name}: {p.name} is a {type(x).__name__}, not a tensor")
