"""`kgen.patch`: a model's layers computed by kgen's kernels, and back.

In: any `nn.Module`.  Out: a `Patched`, which tells what was swapped and what not, and undoes it.  A layer that is swapped stays the object
that it was, with its parameters, buffers, hooks and state dict: it is given a `forward` of its own, which calls a kernel, or its class's
`forward` for calls that the kernel does not take.
"""

from __future__ import annotations

import copy
import types
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel
from kgen.torch_op.layers import LAYERS, Layer, chosen, rms_norm

#: How far, as a part of the largest magnitude, the values of a layer may lie from a formula's: many compute in f32 whatever they are given.
NEAR = 1e-5


@dataclass(frozen=True)
class Row:
    """A layer that was looked at: its path, its class's name, the kernel that computes it (or None) and why none does."""

    path: str
    kind: str
    kernel: str | None
    why: str = ""


class Patched:
    """What `patch` did to a model: `swapped` and `left` (rows), `unknown` (how many modules of which other class have a forward).

    Prints as a table.  `undo` takes the swaps back, and so does the end of a `with`.
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.rows: list[Row] = []
        self.unknown: Counter[str] = Counter()
        self._forwards: list[tuple[nn.Module, str, Any, Any]] = []  # each with its path, its forward, and what stood there

    @property
    def swapped(self) -> list[Row]:
        return [row for row in self.rows if row.kernel is not None]

    @property
    def left(self) -> list[Row]:
        return [row for row in self.rows if row.kernel is None]

    def undo(self) -> None:
        """Take every swap back; a second time does nothing.  Raises `KgenError`, and takes none back, where a layer's forward was replaced
        since."""
        for m, path, forward, _ in self._forwards:
            if m.__dict__.get("forward") is not forward:
                raise KgenError(f"patch: the forward of {path or 'the model'} was replaced since", help="undo that first")
        for m, _, _, before in self._forwards:
            del m.__dict__["forward"]
            m.__dict__.update({} if before is None else {"forward": before})
        self._forwards = []

    def __enter__(self) -> Patched:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __repr__(self) -> str:
        table = [("path", "class", "kernel, or why not")]
        table += [(row.path or "(model)", row.kind, row.kernel or f"- {row.why}") for row in self.rows]
        first, second = (max(len(line[k]) for line in table) for k in (0, 1))
        lines = [f"{a:<{first}}  {b:<{second}}  {c}" for a, b, c in table]
        if self.unknown:
            lines.append("not looked at: " + ", ".join(f"{name} ({n})" for name, n in sorted(self.unknown.items())))
        return "\n".join(lines)


def patch(model: nn.Module, skip: Iterable[type | str] = ()) -> Patched:
    """Have a model's layers computed by kgen's kernels; returns what was swapped and what not, and undoes it.

    Layers are swapped by their class of torch's (`kgen.torch_op.layers.LAYERS`), or, for RMSNorms of other libraries, by their values:
    a module with a `weight` of one dim and an eps, whose forward is tried on random rows.  Subclasses with a forward of their own are
    left alone.  `skip` has classes, and paths in the model, that are left alone with what is below them.  Raises `KgenError` for what is
    no module.
    """
    if not isinstance(model, nn.Module):
        raise KgenError(f"patch takes an nn.Module, not {type(model).__name__}")
    skipped = tuple(skip)
    classes, paths = tuple(s for s in skipped if isinstance(s, type)), tuple(s for s in skipped if isinstance(s, str))
    done = Patched(model)
    for path, m in model.named_modules():
        if isinstance(m, classes) or any(path == p or path.startswith(f"{p}.") for p in paths):
            row: Layer | str | None = "skipped" if _is_known(m) else None
        else:
            row = _chosen(m)
        if isinstance(row, Layer):
            kernel = row.kernel(m)
            forward = types.MethodType(_forward(row, kernel), m)
            done._forwards.append((m, path, forward, m.__dict__.pop("forward", None)))
            m.__dict__["forward"] = forward
            done.rows.append(Row(path, type(m).__name__, row.spec))
        elif row is not None:
            done.rows.append(Row(path, type(m).__name__, None, row))
        elif type(m).forward is not nn.Module.forward and not isinstance(m, nn.Sequential):
            done.unknown[type(m).__name__] += 1
    return done


def _forward(layer: Layer, kernel: Kernel) -> Any:
    """The forward of a swapped layer, as a function of the layer, which copies of a model take along."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = NotImplemented if kwargs else layer(kernel, self, args)
        return type(self).forward(self, *args, **kwargs) if result is NotImplemented else result

    forward.__dict__["kgen_kernel"] = kernel
    return forward


def _is_known(m: nn.Module) -> bool:
    return isinstance(m, tuple(LAYERS)) or _eps(m) is not None


def _chosen(m: nn.Module) -> Layer | str | None:
    """The row of a layer; or why it is left alone; or None where it is nothing that kgen knows."""
    if not _is_known(m):
        return None
    own = m.__dict__.get("forward")
    if own is not None and getattr(own, "__func__", None) is not type(m).forward:
        return "it is patched already" if hasattr(own, "kgen_kernel") else "its forward was replaced"
    for kind, rows in LAYERS.items():
        if isinstance(m, kind):
            if type(m).forward is kind.forward and type(m).__call__ is nn.Module.__call__:
                return chosen(m, rows)
            return f"it overrides {kind.__name__}.{'forward' if type(m).forward is not kind.forward else '__call__'}"
    return _by_value(m)


# ------------------------------------------------------------------------------------------------------------ by value


def _eps(m: nn.Module) -> str | None:
    """The eps attribute of what might be an RMSNorm: it has one tensor, `weight`, of one dim, and no module in it."""
    if list(m._parameters) != ["weight"] or m._buffers or m._modules:
        return None
    weight = m._parameters["weight"]
    names = [name for name, x in vars(m).items() if "eps" in name and isinstance(x, float) and 0 <= x < 1]
    return names[0] if len(names) == 1 and weight is not None and weight.dim() == 1 and weight.is_floating_point() else None


def _by_value(m: nn.Module) -> Layer | str:
    """The row of an RMSNorm, if a layer's values are one's; else what tells them apart."""
    name = _eps(m)
    assert name is not None
    try:
        why = _differs(m, float(getattr(m, name)))
    except Exception as error:
        return f"its forward, tried on random rows on the CPU, raises {type(error).__name__}"
    return why or rms_norm(name)


@torch.no_grad()
def _differs(m: Any, eps: float) -> str:
    """How the values of a layer with other weights differ from an RMSNorm's, in f64, for rows as large as eps counts and larger; empty
    where they do not.  In bf16 the result must be bf16 too."""
    generator = torch.Generator().manual_seed(0)
    n = m.weight.shape[0]
    weight = torch.randn(n, generator=generator, dtype=torch.float64)
    for training in (True, False):
        for shape, scale in (((3, n), 1.0), ((2, 2, n), max(eps, 1e-12) ** 0.5)):
            x = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
            wanted = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
            y = _tried(m, weight, x, training)
            if not isinstance(y, torch.Tensor) or y.shape != x.shape:
                return "its result is not one tensor of its argument's shape"
            if not float((y.double() - wanted).abs().max()) <= NEAR * float(wanted.abs().max()):
                return "its values are not those of rmsnorm"
        y = _tried(m, weight.bfloat16(), x.bfloat16(), training)
        if y.dtype != torch.bfloat16:
            return f"it gives {str(y.dtype).removeprefix('torch.')} for bfloat16"
    return ""


def _tried(m: Any, weight: torch.Tensor, x: torch.Tensor, training: bool) -> Any:
    """What a layer's forward gives with another weight; the layer itself is left as it is."""
    trial = copy.copy(m)
    trial.__dict__ = {**m.__dict__, "_parameters": {"weight": nn.Parameter(weight, requires_grad=False)}, "training": training}
    return type(m).forward(trial, x)
