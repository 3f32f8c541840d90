"""A kernel under autograd: its derivatives are kernels of their own, called as it is called.

In: a kernel and its arguments.  Out: results that know their history.  Two `autograd.Function`s serve it.  `tracked` is for
ordinary training: it asks for derivatives of the inputs that require grad only, and keeps what the planner chose (often a
statistic per row).  `transformed` is for torch.func and forward mode: it keeps the inputs and computes the rest anew.  Both
call derivatives as ordinary kernels, so these are differentiated, batched and traced in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._functorch.utils import unwrap_dead_wrappers

from kgen import grad
from kgen.check import Kernel as Checked
from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel
from kgen.torch_op.batches import aligned, batched, call, same_leading
from kgen.torch_op.plain import run_below, run_plain
from kgen.torch_op.traits import Traits, as_tuple, is_float, runnable
from kgen.values import reached

_COTANGENT, _ZERO, _ZERO_OF_KEPT, _KEPT, _NUMBER, _SIZED = range(6)


def tracked(t: Traits, arguments: Sequence[Any], target: str | None) -> tuple | None:
    """The results with their history, for the operator itself; None where there is none to keep.

    Raises `KgenError` where a kernel that writes in place is given a float that requires grad, and where the operator was called
    inside a transform of torch.func's, which would differentiate it wrongly or not at all.
    """
    wanted = tuple([k for k in t.floats if arguments[k].requires_grad]) if torch.is_grad_enabled() else ()
    if wanted and not t.differentiable:
        refuse_in_place(t, wanted)
        return None
    if t.differentiable and is_transformed():
        if not torch._C._are_functorch_transforms_active():
            return transformed(t, arguments, target)
        if wanted or any(torch.autograd.forward_ad.unpack_dual(arguments[k], level=0).tangent is not None for k in t.floats):
            raise KgenError(f"{t.checked.name}: torch.func does not differentiate operators", help="call the kernel itself, not its `op`")
    if not wanted:
        return None
    return differentiated(t, arguments, target, wanted, run_below)


def differentiated(t: Traits, arguments: Sequence[Any], target: str | None, wanted: tuple[int, ...], run: Callable) -> tuple:
    """The results with their history for the arguments in `wanted`; `run` runs a kernel on tensors as these are."""
    if len(t.leading) > 1 and not same_leading(t, arguments):
        return aligned(t, arguments, target)
    # of no elements there may be no greatest to save, though the results, of no elements either, need none
    save = run is not run_plain or all([arguments[k].numel() for k in t.tensors])
    key = (wanted, target, run, save)
    function = t.made.get(key)
    if function is None:
        function = t.made[key] = _tracking(t, wanted, target, run, save)
    results = function.apply(*arguments)
    return results if len(results) == t.fresh else results[: t.fresh]


def is_transformed() -> bool:
    """Whether torch.func's transforms are at work, or forward mode."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def transformed(t: Traits, arguments: Sequence[Any], target: str | None) -> tuple:
    """The results inside torch.func's transforms, and under forward mode."""
    if not same_leading(t, arguments):
        return aligned(t, arguments, target)
    key = ("transforming", target)
    function = t.made.get(key)
    if function is None:
        function = t.made[key] = _transforming(t, target)
    return function.apply(*arguments)


def refuse_in_place(t: Traits, wanted: Sequence[int]) -> None:
    """Raise `KgenError` for a kernel that writes in place where gradients would have to go through it."""
    if t.states:
        raise KgenError(
            f"{t.checked.name}: {t.names[wanted[0]]} requires grad, and {t.names[t.states[0]]} is written in place",
            help="kernels that write in place have no backward: call it under torch.no_grad(), or on x.detach()",
        )


@dataclass(frozen=True)
class _Variant:
    """A backward for some cotangents and some inputs: the kernel, where each of its arguments comes from (kind, which), and which
    of its results is each argument's gradient (-1: none)."""

    kernel: Kernel
    sources: tuple[tuple[int, int], ...]
    gradients: tuple[int, ...]


class _Plan:
    """The backward of a kernel for the inputs in `wanted`, what the forward keeps for it, and its variants: for each set of
    cotangents that come and inputs whose gradient is needed a kernel that computes no more."""

    def __init__(self, t: Traits, wanted: tuple[int, ...], save: bool):
        """What a forward keeps for the gradients of the arguments at `wanted`; with `save` also results that it saves for that."""
        self.traits = t
        self.names = [t.names[k] for k in wanted]
        self.full = full = grad.backward(t.checked, None, self.names, save)
        self.forward = t.kernel if full.forward is t.checked else runnable(t.made, full.forward)
        self.results = [r.name for r in full.forward.results]
        moved = self._moved()
        self.fixed = [k for k, name in enumerate(self.results) if name not in moved]
        self.further = set(self.results[t.fresh :])
        needed = set(full.takes) - set(full.sized)
        if self.further:  # their own cotangents, in a second derivative, must find what they need
            again = grad.backward(full.forward, moved, self.names, save=False)
            needed |= set(again.takes) - set(again.sized)
        self.inputs = [k for k in t.tensors if t.names[k] in needed]
        self.outputs = [self.results.index(name) for name in full.saved]
        self.kept = {name: i for i, name in enumerate([*(t.names[k] for k in self.inputs), *full.saved])}
        self.sized = [k for k in t.tensors if k not in self.inputs]
        self.numbers = [k for k in range(len(t.names)) if k not in t.tensors]
        self.variants: dict[tuple, _Variant | None] = {}

    def _moved(self) -> list[str]:
        """The float results of the forward that depend on what is differentiated."""
        forward = self.full.forward
        return [r.name for r in forward.results if is_float(r.dtype) and _reaches(forward, r.name, self.names)]

    def variant(self, given: tuple[bool, ...], needed: Sequence[bool]) -> _Variant | None:
        """The backward for the results whose cotangent is given and the arguments whose gradient is needed; None where all are zero."""
        key = (given, needed)
        if key not in self.variants:
            names = [name for name, there in zip(self.results, given, strict=True) if there]
            wanted = [name for name in self.names if needed[self.traits.names.index(name)]]
            self.variants[key] = self._choose(names, wanted) if names and wanted else None
        return self.variants[key]

    def _choose(self, given: list[str], wanted: list[str]) -> _Variant | None:
        """The backward for cotangents of the results `given` and gradients of the parameters `wanted`, of those that read only
        what is kept; None where no gradient flows."""
        t, full = self.traits, self.full
        given = [name for name in given if _reaches(full.forward, name, wanted)]
        if not given:
            return None
        if not self.further.isdisjoint(given):
            exact = grad.backward(full.forward, given, wanted, save=False)
            full = grad.backward(full.forward, self._moved(), self.names, save=False)
        elif set(given) == set(full.cotangents) and wanted == self.names:
            exact = full
        else:
            exact = grad.backward(t.checked, given, wanted)
            if not _same_values(full.forward, exact.forward, exact.saved) or not set(exact.saved) <= set(full.saved):
                exact = grad.backward(t.checked, given, wanted, save=False)
        reach = {*self.kept, *exact.sized, *(t.names[k] for k in self.numbers)}
        return self._bound(exact if reach.issuperset((*exact.takes, *exact.saved)) else full, given)

    def _bound(self, b: grad.Backward, given: list[str]) -> _Variant:
        """A backward with where each of its arguments comes from, and which of its results is which argument's gradient."""
        names = self.traits.names
        result = {parameter: name for name, parameter in b.cotangents.items()}
        sources: list[tuple[int, int]] = []
        for p in b.kernel.params:
            if p.name in result:
                name = result[p.name]
                further = name in self.further  # which is kept, so its shape is known
                missing = (_ZERO_OF_KEPT, self.kept[name]) if further else (_ZERO, self.results.index(name))
                sources.append((_COTANGENT, self.results.index(name)) if name in given else missing)
            elif p.name in self.kept:
                sources.append((_KEPT, self.kept[p.name]))
            else:
                sources.append((_SIZED if p.is_tensor else _NUMBER, names.index(p.name)))
        order = [r.name for r in b.kernel.results]
        gradients = tuple(order.index(b.gradients[name]) if name in b.gradients else -1 for name in names)
        return _Variant(runnable(self.traits.made, b.kernel), tuple(sources), gradients)

    def keep(self, ctx: Any, arguments: Sequence[Any], results: Sequence[Any], transforms: bool = False) -> None:
        """Put aside what the backward takes; of a tensor whose shape alone counts no memory."""
        ctx.set_materialize_grads(False)
        ctx.transforms = transforms
        saved = [arguments[k] for k in self.inputs]
        if self.outputs:
            saved += [results[k] for k in self.outputs]
        ctx.save_for_backward(*saved)
        if self.fixed:
            ctx.mark_non_differentiable(*[results[k] for k in self.fixed])
        if self.numbers:
            ctx.numbers = {k: arguments[k] for k in self.numbers}
        if self.sized:
            ctx.sized = {k: _layout(arguments[k]) for k in self.sized}
        if len(results) > 1:
            ctx.results = [_layout(x) for x in results[: self.traits.fresh]]

    def backward(self, ctx: Any, cotangents: tuple, target: str | None) -> tuple:
        """The gradients of the forward's arguments, by place: None where none is wanted or none flows.  `cotangents` are None
        where autograd has none."""
        needed = ctx.needs_input_grad
        variant = self.variant(tuple([c is not None for c in cotangents]), needed)
        if variant is None:
            return (None,) * len(needed)
        kept = ctx.saved_tensors
        arguments = []
        for kind, k in variant.sources:
            if kind == _COTANGENT:
                arguments.append(cotangents[k])
            elif kind == _KEPT:
                arguments.append(kept[k])
            elif kind == _NUMBER:
                arguments.append(ctx.numbers[k])
            elif kind == _SIZED:
                arguments.append(_stand_in(ctx.sized[k]))
            else:
                arguments.append(_stand_in(ctx.results[k] if kind == _ZERO else _layout(kept[k])))
        if ctx.transforms:  # what a transform that is over had captured
            arguments = list(unwrap_dead_wrappers(tuple(arguments)))
        results = as_tuple(call(variant.kernel, arguments, target))
        return tuple([results[g] if g >= 0 and n else None for g, n in zip(variant.gradients, needed)])


def _tracking(t: Traits, wanted: tuple[int, ...], target: str | None, run: Callable, save: bool) -> Any:
    """An `autograd.Function` in the style that takes `ctx`: it costs a call least."""
    plan = _Plan(t, wanted, save)
    kernel, keep = plan.forward, plan.keep

    def forward(ctx: Any, *arguments: Any) -> tuple:
        results = run(kernel, arguments, target)
        keep(ctx, arguments, results)
        return results

    def backward(ctx: Any, *cotangents: Any) -> tuple:
        return plan.backward(ctx, cotangents, target)

    return _function(t, forward=forward, backward=backward)


def _transforming(t: Traits, target: str | None) -> Any:
    """An `autograd.Function` that torch.func can take apart: no memory of its own, rules for vmap and forward mode."""
    plan = _Plan(t, t.floats, save=False)
    moving: dict[tuple[bool, ...], Any] = {}

    def forward(*arguments: Any) -> tuple:
        return run_below(t.kernel, arguments, target)

    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        plan.keep(ctx, inputs, output, transforms=True)
        ctx.save_for_forward(*[inputs[k] for k in t.tensors])
        ctx.primals = [_layout(x) for x in output]

    def backward(ctx: Any, *cotangents: Any) -> tuple:
        return plan.backward(ctx, cotangents, target)

    def jvp(ctx: Any, *tangents: Any) -> tuple:
        given = tuple(tangents[k] is not None for k in t.floats)
        if given not in moving:
            moving[given] = grad.forward_mode(t.checked, [t.names[k] for k, there in zip(t.floats, given) if there])
        mode = moving[given]
        known = {t.names[k]: x for k, x in zip(t.tensors, ctx.saved_tensors, strict=True)}
        known.update((t.names[k], ctx.numbers[k]) for k in plan.numbers)
        known.update((mode.tangents[t.names[k]], tangents[k]) for k in t.floats if t.names[k] in mode.tangents)
        arguments = [known[p.name] for p in mode.kernel.params]
        results = dict(zip((r.name for r in mode.kernel.results), as_tuple(call(runnable(t.made, mode.kernel), arguments, target))))
        fixed = set(plan.fixed)
        still = [None if k in fixed or not layout[1].is_floating_point else _stand_in(layout) for k, layout in enumerate(ctx.primals)]
        return tuple(results[mode.results[r.name]] if r.name in mode.results else zero for r, zero in zip(t.checked.results, still))

    def vmap(info: Any, in_dims: tuple, *arguments: Any) -> tuple:
        results = batched(t, arguments, in_dims, target)
        return results, (0,) * len(results)

    return _function(t, forward=forward, setup_context=setup_context, backward=backward, jvp=jvp, vmap=vmap)


def _function(t: Traits, **methods: Callable) -> Any:
    """A Function of the kernel's name, which `grad_fn` shows."""
    return type(t.checked.name, (torch.autograd.Function,), {name: staticmethod(method) for name, method in methods.items()})


def _reaches(kernel: Checked, result: str, params: Sequence[str]) -> bool:
    """Whether a result is computed from any of the parameters."""
    read = reached((r.value for r in kernel.results if r.name == result), lambda k: kernel.values[k].args)
    return any(kernel.values[k].op == "param" and kernel.values[k].attr in params for k in read)


def _layout(x: Any) -> tuple:
    return x.shape, x.dtype, x.device


def _stand_in(layout: tuple) -> Any:
    """A tensor of zeros of which one element alone has memory."""
    shape, dtype, device = layout
    return torch.zeros((), dtype=dtype, device=device).expand(shape)


def _same_values(a: Checked, b: Checked, names: Sequence[str]) -> bool:
    """Whether results of the same names are the same values, however the two kernels number them."""
    known: dict[tuple, int] = {}

    def numbered(kernel: Checked) -> list[int]:
        found: list[int] = []
        for v in kernel.values:
            key = (v.op, tuple(found[k] for k in v.args), v.attr, str(v.type), v.dims)
            found.append(known.setdefault(key, len(known)))
        return found

    first, second = numbered(a), numbered(b)
    at = [{r.name: numbers[r.value] for r in kernel.results} for kernel, numbers in ((a, first), (b, second))]
    return all(at[0].get(name, -1) == at[1].get(name, -2) for name in names)
