"""Kernels as PyTorch's own operators are: differentiated, traced, transformed, exported.

In: a call of a kernel that is no plain one.  Out: its results, by the first way that fits:

* torch.compile sees a registered operator (no graph break); inside torch.func's transforms, a function that is traced later,
* torch.func and forward mode get a function with rules for vmap and jvp,
* dispatch modes, traces, fake and other tensors without memory of their own get the operator,
* tensors that require grad get an autograd function,
* anything else runs at once.
"""

from __future__ import annotations

from typing import Any

import torch

from kgen.errors import KgenError
from kgen.runtime.kernel import KERNELS, Kernel
from kgen.torch_op.gradients import differentiated, is_transformed, refuse_in_place, transformed
from kgen.torch_op.operators import operator, promoted
from kgen.torch_op.plain import call_operator, out_of_the_ordinary, run_plain
from kgen.torch_op.traits import as_returned, as_tuple, positional, traits


def call(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any = None, target: str | None = None) -> Any:
    """What `kernel(*args, **kwargs)` returns.  Raises `KgenError` where the arguments do not fit, or cannot be differentiated."""
    if torch.compiler.is_dynamo_compiling():
        key = kernel._key
        if kernel._optional and (absent := kernel._absent(args, kwargs)):
            args, kwargs = kernel._present(absent, args, kwargs)
            key = _without(key, absent)
        names, defaults = _signature(key)
        if kwargs or len(args) != len(names):
            left = names[len(args) :]
            if any([name not in left for name in kwargs]):
                _refuse(f"{kernel.name}: there is no parameter {', '.join(kwargs)}, or it is given twice")
            args = args + tuple([kwargs.get(n, d) for n, d in zip(left, defaults[len(args) :])])
        missing = [n for n, a in zip(names, args) if a is None]
        if missing:
            _refuse(f"{kernel.name}: {', '.join(missing)} missing")
        later, name = _in_graph(key)
        function = getattr(_later, name) if later else getattr(torch.ops.kgen, name).default
        traced = function(*args) if target is None else function(*args, target=target)
        return traced if out is None else _into(kernel, out, traced)
    t = traits(kernel)
    try:
        arguments = positional(t, args, kwargs)
    except KgenError:
        return kernel._run(args, kwargs, out, target)  # which says what is wrong
    if t.joined and torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(arguments[t.tensors[0]].device.type):
        arguments = promoted(t, arguments)
    wanted = tuple([k for k in t.floats if arguments[k].requires_grad]) if torch.is_grad_enabled() else ()
    if wanted and not t.differentiable:
        refuse_in_place(t, wanted)
    elif wanted and out is not None:
        raise KgenError(
            f"{kernel.name}: {t.names[wanted[0]]} requires grad, and results written to `out` are not differentiable",
            help="leave `out` away, or call it under torch.no_grad()",
        )
    results: Any
    inside = is_transformed()
    if inside and t.differentiable:
        results = transformed(t, arguments, target)
    elif inside or out_of_the_ordinary(t, arguments):
        results = call_operator(kernel, arguments, target)
    elif wanted and t.differentiable:
        results = differentiated(t, arguments, target, wanted, run_plain)
    else:
        with torch.no_grad():
            return kernel._run(arguments, {}, out, target)
    results = as_returned(as_tuple(results))
    return results if out is None else _into(kernel, out, results)


def _into(kernel: Kernel, out: Any, results: Any) -> Any:
    """Copy results into `out`, which is returned; an empty tensor is resized.  Raises `KgenError` where they do not fit."""
    outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    found = as_tuple(results)
    if len(outs) != len(found):
        _refuse(f"{kernel.name}: out has {len(outs)} tensors for {len(found)} results")
    for to, result in zip(outs, found):
        if to.dtype != result.dtype or to.device != result.device:
            _refuse(f"{kernel.name}: out is {to.dtype} on {to.device}, the result is {result.dtype} on {result.device}")
        if to.shape != result.shape:
            if to.numel():
                _refuse(f"{kernel.name}: out has shape {list(to.shape)}, the result has {list(result.shape)}")
            to.resize_(result.shape)
        to.copy_(result)
    return outs[0] if len(outs) == 1 else outs


# --------------------------------------------------------------------------------------------- under torch.compile


def _constant(function: Any) -> Any:
    """Tell torch.compile that a function's result is a constant, as `torch.compiler.assume_constant_result` does, which imports the whole
    compiler for it (1.5 s, at the first call that is differentiated)."""
    function._dynamo_marked_constant = True
    return function


@_constant
def _signature(key: str) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    t = traits(KERNELS[key])
    return t.names, t.defaults


@_constant
def _without(key: str, absent: tuple[str, ...]) -> str:
    """The key of the kernel of calls that leave tensors out, which the kernel keeps."""
    return KERNELS[key].without(*absent)._key


@_constant
def _in_graph(key: str) -> tuple[bool, str]:
    """The name of what a graph calls, and whether that is one of `_later`."""
    kernel = KERNELS[key]
    name = operator(kernel)._opname
    later = torch._C._are_functorch_transforms_active()
    if later and not hasattr(_later, name):

        def traced_later(*args: Any, target: str | None = None) -> Any:
            return call(kernel, args, {}, None, target)

        traced_later.__name__ = name
        setattr(_later, name, torch.compiler.allow_in_graph(traced_later))
    return later, name


@_constant
def _refuse(message: str) -> None:
    """Raise a `KgenError`, also from a function that is being compiled (which cannot make one)."""
    raise KgenError(message)


class _Later:
    """Kernels inside torch.func's transforms, which differentiate no operator: a graph holds the eager call unopened; it is traced
    when the graph is lowered, and leaves operators behind."""


_later = _Later()

__all__ = ["call", "operator"]
