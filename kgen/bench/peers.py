"""A kernel's formula as PyTorch code, the way a user would write it out: the peer that kernels are timed against.

In: a checked kernel.  Out: a `torch.fx.GraphModule`, which eager PyTorch runs operator by operator and torch.compile fuses.
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

from kgen import host
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ir import exact
from kgen.ops import OPS, REDUCTIONS
from kgen.types import ELLIPSIS, FLOAT, TORCH, Dims, Number, is_variable, resolve


def written_out(kernel: Kernel, arguments: dict[str, Any]) -> Any:
    """The formula as a graph module that takes the kernel's arguments by name and returns its results as a tuple.

    `arguments` give the sizes and dtypes.  Nothing is written in place; `pick`'s indices are taken to lie inside.  Raises
    `KgenError` for dims in an order that broadcasting does not align, and for axes of several dims.
    """
    import torch
    from torch import fx

    if kernel.joined:
        raise KgenError("bench: an axis of several dims is not written out in torch")

    graph = fx.Graph()
    order = list(dict.fromkeys(d for p in kernel.params for d in p.dims or () if d != ELLIPSIS))
    if unknown := [d for v in kernel.values for d in (*v.dims, *[str(v.attr)] * (v.op == "index")) if d not in (*order, ELLIPSIS)]:
        raise KgenError(f"bench: {unknown[0]}, a dim of no parameter, is not written out in torch")
    sizes = {d: arguments[p.name].shape[k - len(p.dims)] for p in kernel.params if p.dims for k, d in enumerate(p.dims) if d != ELLIPSIS}
    lead = [arguments[p.name].shape[: arguments[p.name].dim() - len(p.dims) + 1] for p in kernel.params if p.dims and ELLIPSIS in p.dims]
    batch = torch.broadcast_shapes(*lead)
    device = next((a.device for a in arguments.values() if isinstance(a, torch.Tensor)), "cpu")
    placeholders = {p.name: graph.placeholder(p.name) for p in kernel.params}
    made: list[Any] = []

    def aligned(node: Any, dims: Dims) -> Any:
        """The last named dims in one order, 1 where the tensor lacks one, as broadcasting wants them."""
        named = [d for d in dims if d != ELLIPSIS]
        behind = ELLIPSIS in dims  # what stands behind the leading dims
        missing = [k for k, d in enumerate(order) if d not in named and (behind or any(e in named for e in order[:k]))]
        if [d for d in order if d in named] != named:
            raise KgenError("bench: dims in another order are not written out")
        for k in reversed(missing):  # what is behind a place counted from the end stands there already
            node = graph.call_method("unsqueeze", (node, k - len(order)))
        return node

    stored = {p.dtype: str(arguments[p.name].dtype) for p in kernel.params if p.is_tensor and is_variable(p.dtype)}
    binding = {variable: TORCH[dtype.removeprefix("torch.")] for variable, dtype in stored.items()}

    def dtype(name: str) -> Any:
        return getattr(torch, resolve(name, binding).torch)

    def reduced(kind: str, node: Any, dims: Dims) -> Any:
        """A reduction that keeps its dims, with size 1."""
        places = [-len(order) - k - 1 for k in range(len(batch)) if ELLIPSIS in dims]
        places += [order.index(d) - len(order) for d in dims if d != ELLIPSIS]
        function = getattr(torch, REDUCTIONS[kind].torch)
        if kind in ("prod", "any", "all", "argmax", "argmin"):
            if len(places) > 1 and kind.startswith("arg"):
                raise KgenError(f"bench: {kind} over several dims is not written out")
            for k in places:
                node = graph.call_function(function, (node,), {"dim": k, "keepdim": True})
            return node
        return graph.call_function(function, (node,), {"dim": places, "keepdim": True})

    def shaped(node: Any, dims: Dims, wanted: Dims) -> Any:
        """A result without the dims that were reduced, in the order in which it is declared."""
        if set(dims) != set(wanted):
            return node
        have = [d for d in order if d in dims]
        lead = list(batch) if ELLIPSIS in dims else []
        node = graph.call_method("reshape", (node, [*lead, *(sizes[d] for d in have)]))
        named = [d for d in wanted if d != ELLIPSIS]
        if named != have:
            node = graph.call_method("permute", (node, [*range(len(lead)), *(len(lead) + have.index(d) for d in named)]))
        return node

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
            made.append(math.prod(batch) if attr == ELLIPSIS else sizes[attr])
        elif v.op == "index" and attr == ELLIPSIS:
            raise KgenError("bench: places along leading dims are not written out in torch")
        elif v.op == "index":
            place = graph.call_function(torch.arange, (sizes[attr],), {"device": device})
            made.append(graph.call_method("reshape", (place, [-1 if d == attr else 1 for d in order])))
        elif v.op == "pick" and kernel.values[v.args[0]].dims == v.attr:
            row = graph.call_method("reshape", (args[0], [-1]))  # the other dims have size 1
            made.append(graph.call_function(operator.getitem, (row, args[1])))
        elif v.op == "pick":
            if {*kernel.values[v.args[0]].dims} != {*kernel.values[v.args[1]].dims, *(v.attr or ())}:
                raise KgenError("bench: rows picked from a table are not written out in torch")
            made.append(graph.call_method("gather", (args[0], order.index(v.attr[0]) - len(order), args[1])))
        elif v.op in REDUCTIONS and v.attr:
            assert isinstance(v.attr, tuple)
            made.append(reduced(v.op, args[0], v.attr))
        elif v.op == "cast":
            made.append(graph.call_method("to", (args[0], dtype(attr))))
        elif isinstance(v.type, Number) and v.op in OPS and not any(isinstance(a, fx.Node) for a in args):
            made.append(host.evaluate(v.op, args, v.type))
        elif v.op in ("max", "min") and isinstance(v.type, Number):
            made.append(graph.call_function(getattr(builtins, v.op), tuple(args)))
        elif v.op in OPS and not v.attr:
            if v.op in ("max", "min") and isinstance(kernel.values[v.args[0]].type, Number):
                args.reverse()  # torch.clamp_min has its tensor first
            made.append(graph.call_function(_function(v.op), tuple(args)))
        else:
            raise KgenError(f"bench: `{v.op}` is not written out in torch")
    results = [graph.call_method("to", (made[r.value], dtype(r.dtype))) for r in kernel.results]
    if kernel.reduces:
        results = [shaped(node, kernel.values[r.value].dims, r.dims) for node, r in zip(results, kernel.results, strict=True)]
    graph.output(tuple(results))
    return fx.GraphModule(torch.nn.Module(), graph)


def _function(op: str) -> Any:
    """What a user writes for an operator: Python's own where it has a sign for it (it takes numbers too), else torch's."""
    import torch

    row = OPS[op]
    if row.notation.python:
        return getattr(operator, row.notation.python)
    if row.rule == "where":
        return _select
    if op in ("max", "min"):
        return torch.clamp_min if op == "max" else torch.clamp_max
    reference = row.reference(torch)
    return reference if row.rule != "float" or row.arity > 1 else _Either(op, reference)


def _select(condition: Any, a: Any, b: Any) -> Any:
    """`a if condition else b`, element by element where the condition is a tensor."""
    import torch

    return torch.where(condition, a, b) if isinstance(condition, torch.Tensor) else a if condition else b


class _Either:
    """A function of torch's on a tensor, the host's on a number."""

    def __init__(self, op: str, reference: Any):
        self.op, self.reference, self.__name__, self.__module__ = op, reference, op, "kgen"

    def __call__(self, x: Any) -> Any:
        import torch

        return self.reference(x) if isinstance(x, torch.Tensor) else host.evaluate(self.op, [x], FLOAT)
