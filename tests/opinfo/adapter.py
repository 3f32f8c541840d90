"""A sample of an operator's as a kernel and its arguments.

In: an operator, its row and a sample.  Out: an `Asked`: a kernel traced from a function of one line, `return operator(a0, a1, p=2)`,
and what stands for its parameters.  Tensors are parameters of their own rank; Python floats are numbers of the call where that
traces, else constants, as everything else is.  `keepdim` is left to whoever calls a kernel, and named dims of size one that another
tensor widens are expanded before the call.  Raises `KgenError` as the tracer does, and `Outside` where no kernel can be asked for.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

import torch

from kgen.errors import KgenError
from kgen.runtime.kernel import Kernel
from kgen.trace import names, trace
from kgen.types import TORCH
from tests.opinfo.table import Row, from_right

_numbers = itertools.count()
#: What a formula may ask for beside its operator's arguments.
_FURTHER = ("rank", "floating", "boolean", "largest", "classes", "length")


class Outside(Exception):
    """A sample that kgen is not asked for, and why."""


@dataclass
class Asked:
    """A kernel and its arguments; `back` puts other tensors in the places of the sample's, for the operator itself."""

    kernel: Kernel
    tensors: dict[str, torch.Tensor]
    numbers: dict[str, float]
    args: tuple
    kwargs: dict[str, Any]
    moved: list[str] = field(default_factory=list)

    def back(self, tensors: dict[str, Any], like: Callable[[Any], Any] = lambda v: v) -> tuple[tuple, dict[str, Any]]:
        """The operator's own arguments with `tensors` in place; `like` rewrites what is no tensor."""
        args = tuple(tensors[f"a{k}"] if f"a{k}" in tensors else like(v) for k, v in enumerate(self.args))
        first = len(self.args)
        kwargs = {
            key: tensors[f"a{first + k}"] if f"a{first + k}" in tensors else like(v) for k, (key, v) in enumerate(self.kwargs.items())
        }
        return args, kwargs


class Asker:
    """The kernels that were traced so far, by what they were traced from."""

    def __init__(self) -> None:
        self.known: dict[Any, Kernel | KgenError] = {}

    def ask(self, op: Any, row: Row, args: tuple, kwargs: dict[str, Any]) -> Asked:
        """The kernel of a sample that `arguments` gave.  Raises `Outside` and `KgenError`."""
        own = [op.op] if isinstance(op.op, Callable) and names.of_object(op.op) else []  # type: ignore[arg-type]
        error: Exception | None = None
        for function in [*own, *([row.formula] if row.formula else [])]:
            for constants in (False, True):
                try:
                    return self.asked(function, row, args, kwargs, constants)
                except KgenError as refused:
                    error = refused
        if error is None:
            raise Outside("no row says how")
        raise error

    def asked(self, function: Callable[..., Any], row: Row, args: tuple, kwargs: dict[str, Any], constants: bool) -> Asked:
        args, kwargs = tuple(args), {k: v for k, v in kwargs.items() if k not in ("keepdim", "out") or v is None}
        values = [*args, *kwargs.values()]
        tensors = {f"a{k}": v for k, v in enumerate(values) if isinstance(v, torch.Tensor)}
        if not tensors:
            raise Outside("no tensor among the arguments")
        if any(isinstance(v, (list, tuple)) and any(isinstance(i, torch.Tensor) for i in v) for v in values):
            raise Outside("a list of tensors")
        for t in tensors.values():
            if t.is_complex():
                raise Outside("complex numbers")
            if str(t.dtype).removeprefix("torch.") not in TORCH:
                raise Outside(f"dtype {t.dtype}")
        if any(isinstance(v, complex) for v in values):
            raise Outside("complex numbers")
        given = tensors if row.dims is None else dict(zip(tensors, together(list(tensors.values())))) if row.dims is from_right else tensors
        dims = dims_of(row, args, kwargs, given)
        numbers = {f"a{k}": float(v) for k, v in enumerate(values) if isinstance(v, float) and not constants}
        floats = {t.dtype for t in tensors.values() if t.dtype.is_floating_point}
        types = {name: annotation(t, dims[name], len(floats) == 1) for name, t in given.items()}
        called, fixed, globals_ = [], [], {}
        for k, (key, v) in enumerate([*(("", v) for v in args), *kwargs.items()]):
            name = f"a{k}"
            if name not in given and name not in numbers:
                name = f"c{k}"
                globals_[name] = v
                fixed.append((name, repr(v)))
            called.append(f"{key}={name}" if key else name)
        for key, v in further(function, args, kwargs, next(iter(given.values()))).items():
            globals_[f"_{key}"] = v
            fixed.append((key, repr(v)))
            called.append(f"{key}=_{key}")
        params = [*(f'{n}: "{t}"' for n, t in types.items()), *(f"{n}: float" for n in numbers)]
        result = f' -> "{next(iter(types.values())).partition("[")[0]}[{", ".join(row.result(args, kwargs))}]"' if row.result else ""
        text = f"def kernel({', '.join(params)}){result}:\n    return operator({', '.join(called)})\n"
        key_ = (function, text, tuple(fixed))
        if key_ not in self.known:
            try:
                self.known[key_] = Kernel(trace(defined(text, {"operator": function, **globals_})))
            except KgenError as error:
                self.known[key_] = error
        found = self.known[key_]
        if isinstance(found, KgenError):
            raise found
        return Asked(found, given, numbers, args, kwargs)


def defined(text: str, globals_: dict[str, Any]) -> FunctionType:
    """The function of a text, whose source `inspect` finds."""
    name = f"<opinfo {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {"__name__": __name__, **globals_}
    exec(compile(text, name, "exec"), space)
    return space["kernel"]


def annotation(t: torch.Tensor, dims: list[str], alone: bool) -> str:
    dtype = "T" if alone and t.dtype.is_floating_point else TORCH[str(t.dtype).removeprefix("torch.")].name
    return f"{dtype}[{', '.join(dims)}]"


def together(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors whose dims of size one are as wide as those of the others that they meet; a first one of rank 0 gets a dim."""
    if tensors[0].dim() == 0 and all(t.dim() == 0 for t in tensors):
        return [t.reshape(1) for t in tensors]
    try:
        shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    except RuntimeError:
        return tensors
    return [t.expand(*shape[len(shape) - t.dim() :]) if t.dim() else t for t in tensors]


def dims_of(row: Row, args: tuple, kwargs: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, list[str]]:
    if row.dims is None:
        return {name: ["..."] if t.dim() else [] for name, t in tensors.items()}
    if row.dims is from_right:
        return {name: [f"D{k}" for k in range(t.dim(), 0, -1)] for name, t in tensors.items()}
    found = row.dims(args, kwargs)
    if len(found) < len(tensors) or any(d != ["..."] and len(d) != t.dim() for d, t in zip(found, tensors.values())):
        raise Outside("ranks that the row does not have")
    return dict(zip(tensors, found))


def further(function: Any, args: tuple, kwargs: dict[str, Any], first: torch.Tensor) -> dict[str, Any]:
    """What a formula is told beside the operator's own arguments."""
    if not isinstance(function, FunctionType):
        return {}
    asked = [p for p in inspect.signature(function).parameters if p in _FURTHER]
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    joined = tensors[0].dtype
    for t in tensors[1:]:
        joined = torch.promote_types(joined, t.dtype)
    numbers = [a for a in (*args, *kwargs.values()) if isinstance(a, float)]
    known: dict[str, Callable[[], Any]] = {
        "rank": first.dim,
        "floating": lambda: joined.is_floating_point or bool(numbers),
        "boolean": lambda: joined == torch.bool,
        "largest": lambda: torch.finfo(first.dtype).max if first.dtype.is_floating_point else 0.0,
        "length": lambda: next(len(a) for a in (*args, *kwargs.values()) if isinstance(a, (tuple, list))),
        "classes": lambda: len(tensors) < 2 or not tensors[1].dtype.is_floating_point,
    }
    return {name: known[name]() for name in asked}


def reason(error: Exception) -> str:
    """What an error says, without the names, sizes and numbers of the case at hand."""
    text = error.diagnostics[0].message if isinstance(error, KgenError) and error.diagnostics else str(error)
    text = re.sub(r"^kernel: ", "", text)
    text = re.sub(r"\[[^\]]*\]", "[..]", text)
    text = re.sub(r"\ba\d+\b|\bc\d+\b", "x", text)
    return re.sub(r"-?\b\d+(\.\d+)?(e[+-]?\d+)?\b", "n", text)[:110]


def arguments(sample: Any, row: Row) -> tuple[tuple, dict[str, Any]]:
    """A sample's arguments as the row has them prepared.  Raises `Outside` where the row says so."""
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    if any(isinstance(a, (list, tuple)) and a and isinstance(a[0], torch.Tensor) for a in (*args, *kwargs.values())):
        raise Outside("a list of tensors")
    if row.prepare is not None:
        args, kwargs = row.prepare(args, kwargs)
    why = row.outside(args, kwargs) if row.outside is not None else ""
    if why:
        raise Outside(why)
    return args, kwargs


def on(device: str, t: torch.Tensor) -> torch.Tensor:
    """A tensor on a device, with the same strides and offset."""
    if device == "cpu" or not t.numel():
        return t.to(device)
    whole = torch.as_strided(t, (t.untyped_storage().nbytes() // t.element_size(),), (1,), 0).to(device)
    return whole.as_strided(t.shape, t.stride(), t.storage_offset())


__all__ = ["Asked", "Asker", "Iterator", "Outside", "arguments", "on", "reason", "replace"]
