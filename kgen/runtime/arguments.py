"""A call's arguments held against a kernel's header: names, dtypes, devices, sizes, and where results go.

In: positional and keyword arguments.  Out: a `Call` with every size known and every result allocated; or a `KgenError`
that names the parameter and the dim.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kgen import sized
from kgen.check import Kernel, Parameter, ResultDecl
from kgen.errors import KgenError, article
from kgen.optional import is_none
from kgen.passes import Workspace
from kgen.places import needing
from kgen.runtime.memory import advise
from kgen.syntax import Header
from kgen.types import (
    DTYPES,
    ELLIPSIS,
    PACKING,
    TORCH,
    VARIABLE,
    Dims,
    is_literal,
    is_wide,
    resolve_named,
    show_type,
    shown_axis,
    shown_dims,
    variable_of,
)
from kgen.typeset import format_expr, format_type

_NO_HISTORY = "a plain run keeps no history: call it under torch.no_grad(), or on x.detach()"


@dataclass
class Call:
    """One call: `given` by parameter name, sizes of the named dims, the broadcast leading dims, results by name."""

    given: dict[str, Any]
    binding: dict[str, str]
    sizes: dict[str, int]
    batch: tuple[int, ...]
    results: dict[str, Any]
    device: Any
    ready: dict[Any, Any] = field(default_factory=dict)  # what a launcher keeps for calls of these sizes, strides and dtypes
    recorded: bool = False  # whether launchers are to keep what they launch
    launched: Any = None  # what a launcher launched

    def shape(self, dims: Dims) -> tuple[int, ...]:
        return (*(self.batch if ELLIPSIS in dims else ()), *(self.sizes[d] for d in dims if d != ELLIPSIS))

    def memory(self, workspaces: tuple[Workspace, ...]) -> dict[str, Any]:
        """New tensors for what the passes of a plan leave for one another, and views of parameters, by name; from then on the sizes of
        their own dims are known."""
        import torch

        made = {}
        views = [w.view for w in workspaces if w.view is not None]
        for v in views:
            self.sizes[v.dim] = math.prod(map(self.size, v.of))
            made[v.name] = self.flattened(self.given[v.tensor], v.given, v.of)
        for blocks in (b for w in workspaces for b in w.blocks):
            self.sizes[blocks.dim] = blocks.count(self.sizes)
        for w in (w for w in workspaces if w.view is None):
            dtype = getattr(torch, DTYPES[w.dtype(self.binding)].torch)
            made[w.name] = torch.empty(self.shape(w.dims), dtype=dtype, device=self.device)
        return made

    def flattened(self, tensor: Any, dims: Dims, of: Dims) -> Any:
        """A tensor with `dims`, those of `of` as one, which comes first; a dense copy where their strides do not merge."""
        if ELLIPSIS in dims:
            tensor = tensor.expand((*self.batch, *tensor.shape[tensor.dim() - len(dims) + 1 :]))
        ends = {d: tensor.dim() - len(dims) + k for k, d in enumerate(dims)}  # the last axis of each dim
        axes = [k for d in of for k in (range(len(self.batch)) if d == ELLIPSIS else (ends[d],))]
        moved = tensor.movedim(axes, tuple(range(len(axes))))
        return moved.reshape(math.prod(map(self.size, of)), *moved.shape[len(axes) :])

    def size(self, dim: str) -> int:
        """The size of a dim; of `...`, how many elements the leading dims have."""
        return math.prod(self.batch) if dim == ELLIPSIS else self.sizes[dim]

    def strides_over(self, tensor: Any, dims: Dims, parts: tuple[Dims, ...], without: str = "") -> list[int]:
        """The strides over several spaces, one behind the other (a pass's rows, then a row's elements)."""
        return [step for part in parts for step in self.strides(tensor, dims, part, without)]

    @staticmethod
    def stride_along(tensor: Any, dims: Dims, dim: str) -> int:
        """The stride of a tensor with `dims` along one of them."""
        return tensor.stride(dims.index(dim) - len(dims))

    def strides(self, tensor: Any, dims: Dims, over: Dims, without: str = "") -> list[int]:
        """The strides, in elements, of a tensor with `dims` over an iteration space `over`; 0 where it broadcasts, and along `without`."""
        steps = tensor.stride()
        named = [d for d in dims if d != ELLIPSIS]
        lead = tensor.dim() - len(named)
        by_name = dict(zip(named, steps[lead:], strict=True))
        by_name.pop(without, None)
        head: list[int] = []
        if ELLIPSIS in over:
            shape = tensor.shape
            head = [0] * (len(self.batch) - lead) + [0 if shape[k] == 1 else steps[k] for k in range(lead)]
        return head + [by_name.get(d, 0) for d in over if d != ELLIPSIS]


def bind(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any, alone: bool = True) -> Call:
    """Check the arguments of a call and allocate its results (or take them from `out`: a tensor, or a tuple of them).

    `alone` says that each element's result is written after all that is read there, so that results may lie where arguments do.
    Where no argument is a tensor, `out` says the device.

    Raises `KgenError` where an argument is missing, unknown or of another kind, dtype or device than declared, where
    sizes disagree, where a result cannot be written (it is expanded, overlaps an argument or requires grad).
    """
    import torch

    given = matched(kernel, args, kwargs)
    tensors = [(p, given[p.name]) for p in kernel.params if p.is_tensor]
    for p, t in tensors:
        if not isinstance(t, torch.Tensor):
            ints = ", and may be an int" if p.drawn else ""
            raise wrong(kernel, f"{p.name} is {article(type(t).__name__)}, not a tensor", f"it is declared `{declared(kernel, p)}`{ints}")
        if t.requires_grad and torch.is_grad_enabled():
            raise wrong(kernel, f"{p.name} requires grad", _NO_HISTORY)
    binding = _bind_dtypes(kernel, tensors)
    device = next((t.device for t in (*(t for _, t in tensors), *_outs(out)) if isinstance(t, torch.Tensor)), torch.device("cpu"))
    for p, t in tensors:
        if t.device != device:
            raise wrong(kernel, f"{tensors[0][0].name} is on {device} and {p.name} is on {t.device}", "move them to one device")
        if t.layout is not torch.strided or t.is_quantized or t.is_nested:
            raise wrong(kernel, f"{p.name} is not a dense strided tensor")
        _check_memory(kernel, p.name, t)
        if t.is_neg() and not any(r.state == p.name for r in kernel.results):
            given[p.name] = t.resolve_neg()
    tensors = [(p, given[p.name]) for p, _ in tensors]
    for p in kernel.params:
        if not p.is_tensor:
            given[p.name] = number(kernel, p, given[p.name])
    sizes, batch = _sizes(kernel, tensors)
    follow(kernel, sizes, given)
    call = Call(given, binding, sizes, batch, {}, device)
    _results(kernel, call, tensors, out, alone)
    return call


def refuse_empty(kernel: Kernel, call: Call) -> None:
    """Raise `KgenError` where a call asks for the greatest or least of no elements, as eager does."""
    for said, dim in needing(kernel.values, [r.value for r in kernel.results]):
        if call.size(dim) == 0:
            raise wrong(kernel, said)


def _check_memory(kernel: Kernel, name: str, t: Any) -> None:
    """Refuse tensors that stand for others (fake ones, those inside vmap and grad) or whose storage was freed."""
    import torch

    if type(t).__torch_dispatch__ != torch.Tensor.__torch_dispatch__ or torch._C._functorch.is_functorch_wrapped_tensor(t):
        raise wrong(kernel, f"{name} is {article(type(t).__name__)} without memory of its own", "kernels run on plain tensors")
    if t.device.type != "meta" and t.numel() and not t.data_ptr():
        raise wrong(kernel, f"{name} has no memory", "its storage was freed")


def wrong(kernel: Kernel, message: str, help: str = "") -> KgenError:
    """The error of a call of a kernel."""
    return KgenError(f"{kernel.name}: {shown_dims(message)}", help=help)


def declared(kernel: Kernel, p: Parameter) -> str:
    """A parameter as its header declares it."""
    for written in kernel.file.header.params if kernel.file.header else ():
        if written.name.name == p.name:
            return f"{p.name}: {format_type(written.type)}"
    return f"{p.name}: {p.dtype if p.dims is None else show_type(p.dtype, p.dims, p.factors)}"



def matched(kernel: Kernel, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by parameter, defaults filled in.  Raises `KgenError` for too many, unknown, doubled and missing ones."""
    if len(args) > len(kernel.params):
        raise wrong(kernel, f"it takes {len(kernel.params)} arguments, not {len(args)}", kernel.called or kernel.signature())
    given = dict(zip((p.name for p in kernel.params), args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise wrong(kernel, f"{name} is given twice")
        if not any(p.name == name for p in kernel.params):
            raise wrong(kernel, f"there is no parameter {name}", kernel.called or kernel.signature())
        given[name] = value
    missing = [p.name for p in kernel.params if p.name not in given and p.default is None and not p.optional]
    if missing:
        raise wrong(kernel, f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing", kernel.called or kernel.signature())
    for p in kernel.params:
        if p.name not in given:
            given[p.name] = None if p.optional else default(p)
    return given


def signature(kernel: Kernel) -> inspect.Signature:
    """The signature of a call: types as annotations, a number's default, and that of a tensor as the header has it."""
    header = next(s for s in kernel.file.statements if isinstance(s, Header))
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    made: list[inspect.Parameter] = []
    for p, written in zip(kernel.params, header.params, strict=True):
        value: Any = inspect.Parameter.empty
        if p.default is not None:
            value = default(p)
        elif written.default is not None:
            value = None if is_none(written) or p.drawn else _Written(format_expr(written.default))
        elif any(q.default is not q.empty for q in made):
            kind = inspect.Parameter.KEYWORD_ONLY  # as far as Python's signatures go; a call takes it by its place too
        made.append(inspect.Parameter(p.name, kind, default=value, annotation=format_type(written.type)))
    return inspect.Signature(made)


class _Written(str):
    """The default of a tensor, which shows as it is written."""

    def __repr__(self) -> str:
        return str(self)


def default(p: Parameter) -> float | int:
    """The value of a number parameter's default."""
    text = (p.default or "").lower()
    if p.dtype == "int":
        return int(text, 0) if "x" in text else int(text)
    if text.lstrip("+-") == "pi":
        import math

        return -math.pi if text.startswith("-") else math.pi
    return float(int(text, 0)) if "0x" in text else float(text)


def number(kernel: Kernel, p: Parameter, x: Any) -> float | int:
    """A number as its parameter has it.  Raises `KgenError` where it is of another kind or too large."""
    if isinstance(x, bool) or not isinstance(x, (int, float)):
        if hasattr(x, "item") and getattr(x, "ndim", 0) == 0 and not hasattr(x, "requires_grad"):
            return number(kernel, p, x.item())  # a NumPy scalar
        raise wrong(
            kernel,
            f"{p.name} is {article(type(x).__name__)}, not {article(p.dtype)}",
            f"pass {p.name}.item() for a 0-d tensor" if hasattr(x, "item") else "",
        )
    if p.dtype == "int":
        if not isinstance(x, int):
            raise wrong(kernel, f"{p.name} is the float {x}, not an int")
        if not -(2**63) <= x < 2**63:
            raise wrong(kernel, f"{p.name} is {x}, which is too large for an i64")
        return int(x)
    try:
        return float(x)
    except OverflowError:
        raise wrong(kernel, f"{p.name} is too large for an f64") from None


def _bind_dtypes(kernel: Kernel, tensors: list[tuple[Parameter, Any]]) -> dict[str, str]:
    """What each dtype variable stands for (`{"T": "bf16"}`), by the tensors' dtypes.  Raises `KgenError` where one is not the
    declared, or two of one variable differ."""
    binding: dict[str, str] = {}
    first: dict[str, str] = {}
    floats = [d.name for d in VARIABLE]
    for p, t in tensors:
        have = TORCH.get(str(t.dtype).removeprefix("torch."))
        shown = have.name if have is not None else str(t.dtype)
        if p.dtype in DTYPES:
            if shown != p.dtype:
                help = f"it is declared `{declared(kernel, p)}`; {p.name}.to(torch.{DTYPES[p.dtype].torch}) converts"
                if p.dtype in PACKING:  # torch converts to no such dtype
                    help = f"two elements share a byte: {p.name}.view(torch.{DTYPES[p.dtype].torch}) of its bytes"
                raise wrong(kernel, f"{p.name} is {shown}, not {PACKING.get(p.dtype, p.dtype)}", help)
        elif is_wide(p.dtype):
            continue  # once the variables are known
        elif shown not in floats:
            named = f"; a header names others: `{p.name}: {shown}[...]`" if have is not None else ""
            raise wrong(kernel, f"{p.name} is {shown}", f"{p.dtype} is one of {', '.join(floats)}{named}")
        elif binding.setdefault(p.dtype, shown) != shown:
            raise wrong(
                kernel,
                f"{p.dtype} is {binding[p.dtype]} in {first[p.dtype]} and {shown} in {p.name}",
                "one dtype variable stands for one dtype",
            )
        else:
            first.setdefault(p.dtype, p.name)
    for p, t in tensors:
        if is_wide(p.dtype):
            wide, variable = resolve_named(p.dtype, binding), variable_of(p.dtype)
            if (shown := str(t.dtype).removeprefix("torch.")) != wide.torch:
                raise wrong(
                    kernel,
                    f"{p.name} is {TORCH[shown].name if shown in TORCH else t.dtype}, not {wide}",
                    f"it is declared `{declared(kernel, p)}`, and {variable} is {binding[variable]}; "
                    f"{p.name}.to(torch.{wide.torch}) converts",
                )
    return binding


def _sizes(kernel: Kernel, tensors: list[tuple[Parameter, Any]]) -> tuple[dict[str, int], tuple[int, ...]]:
    """The size of each named dim, and the shape that `...` stands for, broadcast over the tensors.  Raises `KgenError` where two
    tensors disagree."""
    sizes = kernel.literals
    first: dict[str, str] = {}
    batch: tuple[int, ...] = ()
    widest = ""
    for p, t in tensors:
        dims = p.dims or ()
        named = [d for d in dims if d != ELLIPSIS]
        lead = t.dim() - len(named)
        if lead < 0 or lead > 0 and ELLIPSIS not in dims:
            raise wrong(kernel, f"{p.name} has {t.dim()} dims", f"it is declared `{declared(kernel, p)}`")
        for d, size in zip(named, t.shape[lead:], strict=True):
            if is_literal(d) and size != sizes[d]:
                raise wrong(kernel, f"{p.name} has {size} along {d}", f"it is declared `{declared(kernel, p)}`")
            if sizes.setdefault(d, size) != size:
                raise wrong(kernel, f"dim {shown_axis((d,), kernel.file.halves)} is {sizes[d]} in {first[d]} and {size} in {p.name}")
            first.setdefault(d, p.name)
        if ELLIPSIS in dims:
            joined = _broadcast(batch, tuple(t.shape[:lead]))
            if joined is None:
                raise wrong(
                    kernel,
                    f"the leading dims are {list(batch)} in {widest} and {list(t.shape[:lead])} in {p.name}",
                    "they broadcast where they are equal or 1",
                )
            widest = p.name if joined != batch or not widest else widest
            batch = joined
    return sizes, batch


def follow(kernel: Kernel, sizes: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Add the sizes that the header's `where` gives, of those that tensors have and of the `int`s among the arguments `given`.  Raises
    `KgenError` where they do not fit."""
    if not kernel.clauses:
        return
    numbers = {p.name: given[p.name] for p in kernel.params if p.dtype == "int" and not p.is_tensor and p.name in given}
    known = {**sizes, **numbers}
    try:
        sized.resolve(kernel.clauses, known, format_expr)
    except sized.Unsized as error:
        raise wrong(kernel, str(error), kernel.signature()) from None
    sizes.update({d: n for d, n in known.items() if d not in numbers})


def sizing(kernel: Kernel) -> tuple[str, ...]:
    """The `int` parameters on which sizes depend."""
    read = {n for c in kernel.clauses for n in sized.names(c.value)}
    return tuple(p.name for p in kernel.params if not p.is_tensor and p.name in read)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    if a == b:
        return a
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        return None
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def _outs(out: Any) -> tuple[Any, ...]:
    """What `out` gives, in the order of the new results."""
    return () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)


def _results(kernel: Kernel, call: Call, tensors: list[tuple[Parameter, Any]], out: Any, alone: bool) -> None:
    """Fill in the call's results: a state's tensor, one of `out`, or a new one; `alone` says that a pass reads only the element it
    writes.  Raises `KgenError` where one cannot be written, or overlaps what is read."""
    fresh = [r for r in kernel.results if r.state is None]
    outs = _outs(out) if out is not None else (None,) * len(fresh)
    if len(outs) != len(fresh):
        raise wrong(kernel, f"out has {len(outs)} tensors for {len(fresh)} results")
    given = dict(zip((r.name for r in fresh), outs, strict=True))
    for r in kernel.results:
        if r.state is not None:
            result = call.given[r.state]
            _check_writable(kernel, call, r, r.state, result)
        elif given[r.name] is not None:
            result = _take_out(kernel, call, r, given[r.name])
        else:
            result = _allocate(call, r, tensors)
        if r.state is None:
            _check_memory(kernel, "the result" if given[r.name] is None else "out", result)
        if result.is_neg():
            raise wrong(kernel, f"{r.state or 'out'} is a negated view", "pass its resolve_neg()")
        call.results[r.name] = result
    written = {name: t for name, t in call.results.items()}
    for name, t in written.items():
        if t.numel() == 0:
            continue
        result = next(r for r in kernel.results if r.name == name)
        state, apart = result.state, several(kernel, alone, result)
        if state is None and given.get(name) is None:
            continue  # just allocated: nothing overlaps it
        for p, other in tensors:
            if p.name == state or kernel.apart(name, p.name):
                continue
            if _overlap(t, other) and (apart or p.dims != result.dims or not _same_place(t, other)):
                raise wrong(kernel, f"{state or 'out'} overlaps {p.name} in memory", "write the result elsewhere, or pass a clone")
        for other_name, other in written.items():
            if other_name != name and not kernel.apart(name, other_name) and _overlap(t, other):
                raise wrong(kernel, f"the results {name} and {other_name} share memory")


def several(kernel: Kernel, alone: bool, result: ResultDecl) -> bool:
    """Whether what an element of a result overwrites may be read for another one: several passes read it, or a gather (`not alone`);
    or it is a row's, and others have its elements."""
    return not alone or any(not set(r.dims) <= set(result.dims) for r in kernel.results)


def _dtype(call: Call, r: ResultDecl) -> Any:
    import torch

    return getattr(torch, resolve_named(r.dtype, call.binding).torch)


def _allocate(call: Call, r: ResultDecl, tensors: list[tuple[Parameter, Any]]) -> Any:
    """A new tensor; it keeps the memory format of the first dense argument that has the result's dims and shape."""
    import torch

    shape = call.shape(r.dims)
    for p, t in tensors:
        if p.dims == r.dims and tuple(t.shape) == shape:
            return advise(torch.empty_like(t, dtype=_dtype(call, r), requires_grad=False))
    return advise(torch.empty(shape, dtype=_dtype(call, r), device=call.device))


def _take_out(kernel: Kernel, call: Call, r: ResultDecl, out: Any) -> Any:
    """One of `out`, checked against the result's shape, dtype and device (an empty tensor is resized).  Raises `KgenError` where it
    does not fit."""
    import torch

    if not isinstance(out, torch.Tensor):
        raise wrong(kernel, f"out is {article(type(out).__name__)}, not a tensor")
    shape, dtype = call.shape(r.dims), _dtype(call, r)
    if out.layout is not torch.strided or out.is_nested:
        raise wrong(kernel, "out is not a dense strided tensor")
    if out.requires_grad:
        raise wrong(kernel, "out requires grad", "results written to `out` are not differentiable; pass out.detach()")
    if out.dtype != dtype:
        raise wrong(kernel, f"out is {str(out.dtype).removeprefix('torch.')}, the result {r.name} is {str(dtype).removeprefix('torch.')}")
    if out.device != call.device:
        raise wrong(kernel, f"out is on {out.device}, the arguments are on {call.device}")
    if tuple(out.shape) != shape:
        if out.numel():
            raise wrong(kernel, f"out has shape {list(out.shape)}, the result {r.name} has {list(shape)}")
        out.resize_(shape)
    if _shares_elements(out):
        raise wrong(kernel, "elements of out share memory", "it is expanded or overlaps itself; pass a tensor of its own")
    return out


def _check_writable(kernel: Kernel, call: Call, r: ResultDecl, name: str, t: Any) -> None:
    if tuple(t.shape) != call.shape(r.dims):
        raise wrong(
            kernel,
            f"{name} has shape {list(t.shape)}, but the result {r.name} has {list(call.shape(r.dims))}",
            "what is written in place does not broadcast",
        )
    if _shares_elements(t):
        raise wrong(kernel, f"elements of {name} share memory", f"{name} is written in place; pass a tensor that is not expanded")
    if t.is_inference():
        import torch

        if not torch.is_inference_mode_enabled():
            raise wrong(kernel, f"{name} is an inference tensor and cannot be written outside inference mode")


def _shares_elements(t: Any) -> bool:
    """Whether two indices of a tensor may lead to one place (as torch's `has_internal_overlap` has it)."""
    if t.is_contiguous():
        return False
    room = 1
    for step, size in sorted((s, n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1):
        if step < room:
            return True
        room = step * (size - 1) + room
    return False


def index_strides(dims: Dims, shape: Sequence[int], counted: str) -> list[int]:
    """The strides of a position in some dims together ("N", or "..., N"), as in a dense tensor of these, over a pass's dims, of which the
    leading ones come first."""
    lead = len(shape) - sum(d != ELLIPSIS for d in dims)
    axes = {d: [k] for k, d in zip(range(lead, len(shape)), (d for d in dims if d != ELLIPSIS), strict=True)}
    strides, step = [0] * len(shape), 1
    for d in reversed(counted.split(", ")):
        for k in reversed(range(lead) if d == ELLIPSIS and d in dims else axes.get(d, ())):
            strides[k], step = step, step * shape[k]
    return strides


def span(t: Any) -> tuple[int, int]:
    """The addresses between which a tensor's elements lie."""
    last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    start = t.data_ptr()
    return start, start + (last + 1) * t.element_size()


def _overlap(a: Any, b: Any) -> bool:
    if a.numel() == 0 or b.numel() == 0:
        return False
    (a0, a1), (b0, b1) = span(a), span(b)
    return a0 < b1 and b0 < a1


def _same_place(a: Any, b: Any) -> bool:
    return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
