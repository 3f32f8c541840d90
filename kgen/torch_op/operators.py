"""A kernel as a registered PyTorch operator: `torch.ops.kgen.<name>_<hash of its spec>`.

In: a kernel.  Out: an operator with a fake implementation (shapes, strides and dtypes without computing), gradients, a rule
for vmap, promotion under autocast, and what it writes in place declared.  It is what graphs hold: of torch.compile, of
torch.export, of make_fx; an eager call needs it only where a mode or a kind of tensor must see the call.
"""

from __future__ import annotations

import keyword
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from torch._ops import _OpNamespace

from kgen import grad
from kgen.check import Kernel as Checked
from kgen.errors import KgenError
from kgen.runtime import arguments as arguments_of
from kgen.runtime import cache
from kgen.runtime.kernel import Kernel, loads
from kgen.torch_op import batches, gradients
from kgen.torch_op.plain import call_operator
from kgen.torch_op.traits import Traits, as_returned, is_float, registered_name, spec_text, traits
from kgen.types import ELLIPSIS, Dims, resolve_named

NAMESPACE = "kgen"
_library = torch.library.Library(NAMESPACE, "FRAGMENT")  # what it registers lives as long as it does
_registered: dict[str, Any] = {}
_traits_of: dict[str, Traits] = {}
_texts: dict[str, str] = {}  # whose 32-bit hashes might be equal
_registering = threading.RLock()
_HALVES = (torch.float16, torch.bfloat16)


def operator(kernel: Kernel) -> Any:
    """The kernel's operator (an `OpOverload`), registered when first asked for; kernels of one text share it."""
    t = traits(kernel)
    found = t.made.get("operator")
    if found is None:
        name = registered_name(t.checked)
        with _registering:
            if _texts.setdefault(name, spec_text(t.checked)) != spec_text(t.checked):
                raise KgenError(f"{t.checked.name}: another kernel has the operator name {name}", help="give one of them another name")
            if name not in _registered:
                _registered[name] = None  # torch looks for the name while it defines it
                try:
                    _registered[name] = _register(t, name)
                except BaseException:
                    del _registered[name]
                    raise
                _traits_of[name] = t
                remember(t.checked, name)
            found = t.made["operator"] = _registered[name]
    return found


class _Namespace(_OpNamespace):
    """`torch.ops.kgen`, which registers an operator that another process made when code asks for it.

    What torch.compile has cached on disk is loaded without being traced anew, so nobody derives the backward that it calls.
    """

    __module__ = _OpNamespace.__module__  # operators are found again by it

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in _registered or (kernel := recalled(name) or derived(name)) is None:
                raise
            operator(kernel)
            return super().__getattr__(name)


getattr(torch.ops, NAMESPACE).__class__ = _Namespace


def remember(checked: Checked, name: str) -> None:
    """Keep the text of an operator's kernel in the cache, for other processes."""
    if cache.read(f"operator_{name}", ".k") is None:
        cache.write(f"operator_{name}", ".k", spec_text(checked).encode())


def recalled(name: str) -> Kernel | None:
    """The kernel of an operator's name that some process has remembered."""
    kept = cache.read(f"operator_{name}", ".k") if name.isidentifier() else None
    if kept is None:
        return None
    try:
        kernel = loads(kept[1].decode(), f"{name}.k")
    except KgenError:  # another version's
        return None
    return kernel if registered_name(kernel.kernel) == name else None


def derived(name: str, kernels: Iterable[Checked] | None = None) -> Kernel | None:
    """The kernel of an operator's name among the derivatives of those that are registered (torch's cache on disk may outlive kgen's)."""
    of = name.rpartition("_")[0]
    for checked in [t.checked for t in _traits_of.values()] if kernels is None else kernels:
        if not of.startswith(f"{checked.name}_"):
            continue
        for made in derivatives(checked):
            if registered_name(made) == name:
                return Kernel(made)
            if of.startswith(f"{made.name}_") and (found := derived(name, [made])) is not None:
                return found
    return None


def derivatives(checked: Checked) -> Iterator[Checked]:
    """The kernels of a kernel's gradients: for all that can be differentiated first, then for a few with less."""

    def fewer(names: list[str]) -> list[tuple[str, ...]]:
        return [chosen for size in range(len(names), 0, -1) for chosen in combinations(names, size)][:8]

    wanted = [p.name for p in checked.params if p.dims is not None and is_float(p.dtype)]
    given = [r.name for r in checked.results if is_float(r.dtype)]
    for of in fewer(wanted):
        for by in fewer(given):
            for save in (True, False):
                try:
                    made = grad.backward(checked, by, of, save)
                except KgenError:
                    continue
                yield made.kernel
                if made.forward is not checked:
                    yield made.forward


def promoted(t: Traits, arguments: Sequence[Any]) -> tuple:
    """Under autocast, tensors of one dtype variable that came in several dtypes: each in the one that holds them all.

    Kernels run in their arguments' dtype; it is autocast that makes a layer's input bf16 beside its f32 weights.  What is
    written in place keeps its dtype.
    """
    new = list(arguments)
    for places in t.joined:
        found = {new[k].dtype for k in places}
        if len(found) == 1 or not all(d.is_floating_point for d in found) or any(k in t.states for k in places):
            continue
        widest = torch.float32 if found == set(_HALVES) else max(found, key=lambda d: d.itemsize)
        for k in places:
            new[k] = new[k].to(widest)
    return tuple(new)


def schema(t: Traits) -> str:
    """The operator's signature: tensors, numbers with their defaults, `(a!)` for what is written, and `target`."""
    letters = dict(zip(dict.fromkeys(t.states), "abcdefghijklmnopqrstuvwxyz"))
    parts: list[str] = []
    optional = True  # once one argument lacks a default, none before it may have one
    for k in reversed(range(len(t.names))):
        name = t.names[k] + ("_" if keyword.iskeyword(t.names[k]) else "")
        number = "float" if t.checked.params[k].dtype == "float" else "SymInt"
        kind = f"Tensor({letters[k]}!)" if k in letters else "Tensor" if k in t.tensors else number
        value = t.defaults[k]
        optional = optional and value is not None and math.isfinite(value)
        parts.insert(0, f"{kind} {name}={value!r}" if optional else f"{kind} {name}")
    if "target" not in t.names:
        parts += ["*", "str? target=None"]
    returned = ", ".join(["Tensor"] * t.fresh)
    return f"({', '.join(parts)}) -> {returned if t.fresh == 1 else f'({returned})'}"


def _register(t: Traits, name: str) -> Any:
    """Define the operator `kgen::name` with all that it does (runs, is traced, differentiated, cast under autocast, batched); returns
    it."""
    kernel = t.kernel
    _library.define(name + schema(t), tags=(torch.Tag.pt2_compliant_tag,))
    op = getattr(getattr(torch.ops, NAMESPACE), name).default

    def filled(args: tuple) -> tuple:
        """The dispatcher leaves out arguments that equal their defaults."""
        return args + t.defaults[len(args) :]

    def run(*args: Any, target: str | None = None) -> Any:
        with torch.no_grad():
            return kernel._run(filled(args), {}, None, target)

    def fake(*args: Any, target: str | None = None) -> Any:
        return as_returned(allocated(t, filled(args)))

    def autograd(*args: Any, target: str | None = None) -> Any:
        args = filled(args)
        results = gradients.tracked(t, args, target)
        if results is not None:
            return as_returned(results)
        with torch._C._AutoDispatchBelowAutograd():
            return call_operator(kernel, args, target)

    def autocast(*args: Any, target: str | None = None) -> Any:
        args = promoted(t, filled(args))
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return call_operator(kernel, args, target)

    def vmap(info: Any, in_dims: tuple, *args: Any, target: str | None = None) -> Any:
        args = filled(args)
        in_dims = (*in_dims, *(None,) * (len(args) - len(in_dims)))
        results = batches.batched(t, args, in_dims, target, call_operator)
        return as_returned(results), as_returned([0] * len(results))

    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    _library.impl(name, autograd, "Autograd")
    if t.joined:
        for key in ("AutocastCPU", "AutocastCUDA"):
            _library.impl(name, autocast, key)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", vmap, lib=_library)
    return op


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


# --------------------------------------------------------------------------------------------- without computing


def allocated(t: Traits, arguments: Sequence[Any]) -> list[Any]:
    """Results that nothing was written to, as a call would allocate them; sizes may be symbolic.

    Raises `KgenError` where dtypes, ranks, sizes or devices do not fit the spec.
    """
    kernel = t.checked
    tensors = [(kernel.params[k], arguments[k]) for k in t.tensors]
    binding = arguments_of._bind_dtypes(kernel, tensors)
    sizes: dict[str, Any] = dict(kernel.literals)
    heads: list[tuple] = []
    device = tensors[0][1].device if tensors else torch.device("cpu")
    for p, x in tensors:
        dims = p.dims or ()
        named = [d for d in dims if d != ELLIPSIS]
        lead = x.dim() - len(named)
        if lead < 0 or lead > 0 and ELLIPSIS not in dims:
            raise KgenError(f"{kernel.name}: {p.name} has {x.dim()} dims", help=kernel.signature())
        if x.device != device:
            raise KgenError(f"{kernel.name}: {tensors[0][0].name} is on {device} and {p.name} is on {x.device}")
        for d, size in zip(named, x.shape[lead:], strict=True):
            if sizes.setdefault(d, size) is not size:
                torch._check(sizes[d] == size, lambda d=d: f"{kernel.name}: dim {d} has two sizes")
        if ELLIPSIS in dims:
            heads.append(tuple(x.shape[:lead]))
    arguments_of.follow(kernel, sizes, dict(zip((p.name for p in kernel.params), arguments, strict=False)))
    batch = tuple(torch.broadcast_shapes(*heads)) if len(set(map(len, heads))) > 1 or len(heads) > 1 else (heads or [()])[0]

    def shape(dims: Dims) -> tuple:
        return (*(batch if ELLIPSIS in dims else ()), *(sizes[d] for d in dims if d != ELLIPSIS))

    made = []
    for r in kernel.results:
        if r.state is not None:
            continue
        wanted, dtype = shape(r.dims), getattr(torch, resolve_named(r.dtype, binding).torch)
        like = next((x for p, x in tensors if p.dims == r.dims and tuple(x.shape) == wanted), None)
        made.append(
            torch.empty(wanted, dtype=dtype, device=device) if like is None else torch.empty_like(like, dtype=dtype, requires_grad=False)
        )
    return made
