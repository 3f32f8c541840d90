"""A kernel's formula as PyTorch code, the way a user would write it out: the peer that kernels are timed against.

In: a checked kernel.  Out: a `torch.fx.GraphModule`, which eager PyTorch runs operator by operator and torch.compile fuses.
"""

from __future__ import annotations

import math
from typing import Any

from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ir import exact
from kgen.ops import OPS
from kgen.types import DTYPES, ELLIPSIS, FLOAT, Dims


def written_out(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    """The formula as a graph module that takes the kernel's arguments by name and returns its results as a tuple.

    `arguments` give the sizes and dtypes.  Nothing is written in place.  Raises `KgenError` for reductions.
    """
    import torch
    from torch import fx

    graph = fx.Graph()
    order = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS))
    sizes = {d: arguments[p.name].shape[k - len(p.dims)] for p in kernel.params if p.dims for k, d in enumerate(p.dims) if d != ELLIPSIS}
    placeholders = {p.name: graph.placeholder(p.name) for p in kernel.params}
    made: list[Any] = []

    def aligned(node: Any, dims: Dims) -> Any:
        """The last named dims in one order, 1 where the tensor lacks one, as broadcasting wants them."""
        named = [d for d in dims if d != ELLIPSIS]
        missing = [k for k, d in enumerate(order) if d not in named and any(e in named for e in order[:k])]
        if [d for d in order if d in named] != named:
            raise KgenError("bench: dims in another order are not written out")
        for k in missing:
            node = graph.call_method("unsqueeze", (node, k - len(order)))
        return node

    def dtype(name: str) -> Any:
        stored = next((arguments[p.name].dtype for p in kernel.params if p.is_tensor and p.dtype == name), None)
        return stored if name not in DTYPES else getattr(torch, DTYPES[name].torch)

    for v in kernel.values:
        args = [made[a] for a in v.args]
        attr = str(v.attr)
        if v.op == "param":
            made.append(aligned(placeholders[attr], v.dims) if v.dims else placeholders[attr])
        elif v.op == "lit":
            made.append(float(exact(attr)) if v.type == FLOAT else int(exact(attr)))
        elif v.op == "const":
            made.append({"pi": math.pi, "inf": math.inf, "nan": math.nan}[attr])
        elif v.op == "size":
            made.append(sizes[attr])
        elif v.op == "cast":
            made.append(graph.call_method("to", (args[0], dtype(attr))))
        elif v.op in OPS and not v.attr:
            made.append(graph.call_function(_function(v.op), tuple(args)))
        else:
            raise KgenError(f"bench: `{v.op}` is not written out in torch")
    results = [graph.call_method("to", (made[r.value], dtype(r.dtype))) for r in kernel.results]
    graph.output(tuple(results))
    return fx.GraphModule(torch.nn.Module(), graph)


def _function(op: str) -> Any:
    """What a user writes for an operator: Python's own where it has a sign for it (it takes numbers too), else torch's."""
    import operator

    import torch

    signs = {
        "add": "add",
        "sub": "sub",
        "mul": "mul",
        "div": "truediv",
        "pow": "pow",
        "neg": "neg",
        "lt": "lt",
        "le": "le",
        "gt": "gt",
        "ge": "ge",
        "eq": "eq",
        "ne": "ne",
        "abs": "abs",
        "floordiv": "floordiv",
        "mod": "mod",
    }
    if op in signs:
        return getattr(operator, signs[op])
    if op in ("max", "min"):
        return torch.clamp_min if op == "max" else torch.clamp_max
    reference = OPS[op].reference(torch)
    if OPS[op].rule != "float" or OPS[op].arity > 1:
        return reference
    return _Either(op, reference)


class _Either:
    """A function of torch's on a tensor, the host's on a number."""

    def __init__(self, op: str, reference: Any):
        self.op, self.reference, self.__name__, self.__module__ = op, reference, op, "kgen"

    def __call__(self, x: Any) -> Any:
        import torch

        from kgen import host

        return self.reference(x) if isinstance(x, torch.Tensor) else host.evaluate(self.op, [x], FLOAT)
