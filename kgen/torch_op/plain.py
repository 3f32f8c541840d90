"""Running a kernel without regard to gradients: at once on plain tensors, else as the operator that modes and subclasses see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kgen.runtime.calls import PLAIN
from kgen.runtime.kernel import Kernel
from kgen.torch_op.traits import Traits, as_tuple, traits

_is_functional, _is_batched = torch._is_functional_tensor, torch._C._functorch.is_legacy_batchedtensor


def run_below(kernel: Kernel, arguments: Sequence[Any], target: str | None) -> tuple:
    """A kernel's results, without regard to gradients: run on plain tensors, else as an operator that modes and subclasses see."""
    t = traits(kernel)
    if out_of_the_ordinary(t, arguments):
        return as_tuple(call_operator(kernel, arguments, target))
    return as_tuple(kernel._run(tuple(arguments), {}, None, target))


def run_plain(kernel: Kernel, arguments: Sequence[Any], target: str | None) -> tuple:
    """A kernel's results on plain tensors, where no mode is on."""
    results = kernel._run(tuple(arguments), {}, None, target)
    return results if type(results) is tuple else as_tuple(results)


def out_of_the_ordinary(t: Traits, arguments: Sequence[Any]) -> bool:
    """Whether a call must go through the dispatcher: under a dispatch mode or a trace, for subclasses, and where there is no memory."""
    return under_a_mode() or not all([is_plain(arguments[k]) for k in t.tensors])


def under_a_mode() -> bool:
    """Whether something else must see every call: a dispatch mode, a function mode, a trace."""
    c = torch._C
    return bool(c._len_torch_dispatch_stack() or c._len_torch_function_stack() or c._get_tracing_state() is not None)


def is_plain(x: Any) -> bool:
    """Whether a tensor has memory of its own, and is nothing else besides."""
    return type(x) in PLAIN and not (x.is_meta or _is_functional(x) or _is_batched(x))


def call_operator(kernel: Kernel, arguments: Sequence[Any], target: str | None) -> Any:
    """A kernel's operator called."""
    op = kernel.op
    return op(*arguments) if target is None else op(*arguments, target=target)
