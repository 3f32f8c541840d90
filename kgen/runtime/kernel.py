"""`Kernel`: a checked spec that runs.

In: a spec.  Out: an object that is called with torch tensors and returns the results that are not primed.
"""

from __future__ import annotations

import ctypes
import inspect
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

from kgen import check as checker
from kgen import syntax
from kgen.backends import TARGETS, backend
from kgen.backends.base import resource
from kgen.errors import KgenError, Source
from kgen.types import ELLIPSIS, Binding, f32

_INT64 = ctypes.POINTER(ctypes.c_int64)


def read_spec(spec: str | Path) -> tuple[str, str]:
    """The text of a spec file, and the name that errors give it; a bare name (`gelu`) finds the bundled spec.

    Raises `KgenError` where the file is missing, unreadable, too long or not UTF-8.
    """
    path = Path(spec)
    if not path.suffix and len(path.parts) == 1 and not path.exists() and (bundled := resource("specs") / f"{path}.k").is_file():
        return bundled.read_text(encoding="utf-8"), f"{path}.k"
    try:
        if path.is_dir():
            raise KgenError(f"{spec} is a folder, not a spec")
        with path.open("rb") as file:
            data = file.read(syntax.MAX_BYTES + 1)
    except OSError as error:
        known = resource("specs") / f"{path.name.removesuffix('.k')}.k"
        raise KgenError(
            f"cannot read {spec}: {(error.strerror or 'error').lower()}",
            help=f"`{known.stem}` is a bundled spec" if known.is_file() else "",
        ) from None
    except ValueError as error:
        raise KgenError(f"cannot read {str(spec)!r}: {error}") from None
    if len(data) > syntax.MAX_BYTES:
        raise KgenError(f"{spec} is longer than {syntax.MAX_BYTES:,} bytes", help="one file holds one kernel")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), str(spec)
    except UnicodeDecodeError as error:
        raise KgenError(f"{spec} is not UTF-8 (byte {error.start})", Source(str(spec), "")) from None


def load(spec: str | Path) -> Kernel:
    """The kernel of a spec file, or of a bundled spec by its bare name.  Raises `KgenError` with all its errors."""
    text, name = read_spec(spec)
    return Kernel(checker.check(syntax.parse(text, name)))


def loads(text: str, name: str = "<text>") -> Kernel:
    """The kernel of a spec's text; `name` is what errors call it.  Raises `KgenError` with all its errors."""
    return Kernel(checker.check(syntax.parse(text, name)))


class Kernel:
    """A kernel: `kernel(x, ...)` runs it, `source` and `program` show it.

    Arguments are the spec's parameters, by position or name: tensors of the declared dtypes and dims (any strides; all on
    one device), Python numbers for `float` and `int`.  `out=` takes the results (a tensor, or a tuple of them) instead of
    new ones; `target=` chooses among "triton" and "cuda" on CUDA tensors, "cpp" and "torch" (operator by operator) on
    others; a parameter of either name takes that keyword for itself.  Returns the results that are not primed: one tensor,
    a tuple, or None.
    """

    def __init__(self, kernel: checker.Kernel):
        self.kernel = kernel
        self.name = self.__name__ = kernel.name
        self.doc = self.__doc__ = "\n\n".join(part for part in (kernel.doc, kernel.signature()) if part)
        self._launchers: dict[str, Any] = {}

    @cached_property
    def _reduces(self) -> bool:
        return self.kernel.reduces or any(v.op == "pick" for v in self.kernel.values)

    @cached_property
    def _alone(self) -> bool:
        """Whether one pass reads, of what a result's element overwrites, that element alone."""
        if not self._reduces:
            return True
        from kgen.lower import lower
        from kgen.rewrite import rewrite
        from kgen.schedule import schedule

        plan = schedule(rewrite(lower(self.kernel, self.kernel.bindings()[0])))
        return len(plan.passes) == 1 and not any(let.expr.name == "gather" for let in plan.program.lets)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_launchers": {}}  # what is loaded stays in this process

    def __repr__(self) -> str:
        return f"<kgen kernel {self.kernel.signature()}>"

    @property
    def signature(self) -> str:
        return self.kernel.signature()

    def source(self, target: str) -> str:
        """The source for a target ("triton", "cuda" or "cpp"), for every dtype: what `kgen compile` writes and what runs (in C++, with
        the entries for the call's dtypes alone)."""
        if target not in TARGETS:
            raise KgenError(f"there is no target {target}", help=f"targets are {', '.join(TARGETS)}")
        return backend(target).render(self.kernel)

    def program(self, binding: Binding | None = None) -> str:
        """The typed program, after its rules, for a choice of the dtype variables (f32 where none is given)."""
        from kgen.lower import lower
        from kgen.rewrite import rewrite

        return str(rewrite(lower(self.kernel, binding or dict.fromkeys(self.kernel.variables, f32))))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        named = {p.name for p in self.kernel.params}
        out = None if "out" in named else kwargs.pop("out", None)
        target = None if "target" in named else kwargs.pop("target", None)
        return self._run(args, kwargs, out, target)

    def _run(self, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
        from kgen.runtime.arguments import bind, refuse_empty

        call = bind(self.kernel, args, kwargs, out, self._alone)
        if any(t.numel() for t in call.results.values()):
            if self._reduces:
                refuse_empty(self.kernel, call)
            self._launcher(target, call.device)(call)
            self._mark_written(call)
        fresh = tuple(call.results[r.name] for r in self.kernel.results if r.state is None)
        return None if not fresh else fresh[0] if len(fresh) == 1 else fresh

    def _mark_written(self, call: Any) -> None:
        """Tell autograd of what was written in place, as an in-place operator of torch's does."""
        import torch

        for r in self.kernel.results:
            if r.state is not None and not call.results[r.name].is_inference():
                torch.autograd.graph.increment_version(call.results[r.name])

    def _preferred(self, device: Any) -> str:
        """The target that a device's tensors run on by default: on a GPU CUDA for what reduces, where there is NVRTC, since it keeps
        longer rows on the chip; else Triton."""
        if device.type != "cuda":
            return "cpp"
        from kgen.runtime import nvrtc

        return "cuda" if self._reduces and nvrtc.available() else "triton"

    def _launcher(self, target: str | None, device: Any) -> Any:
        """What launches on a device.  Raises `KgenError` where the target does not run there."""
        chosen = target or self._preferred(device)
        runs_on = {"triton": "cuda", "cuda": "cuda", "cpp": "cpu"}
        if chosen not in (*runs_on, "torch"):
            raise KgenError(
                f"{self.name}: there is no target {chosen}",
                help="targets are triton and cuda (CUDA tensors), cpp (CPU tensors), torch (any)",
            )
        if runs_on.get(chosen, device.type) != device.type:
            raise KgenError(f"{self.name}: the target {chosen} does not run on {device}", help=f"it runs on {runs_on[chosen]} tensors")
        if chosen not in self._launchers:
            try:
                self._launchers[chosen] = {"triton": _Triton, "cuda": _Cuda, "cpp": _Cpp, "torch": _Torch}[chosen](self.kernel)
            except KgenError as error:
                from kgen.runtime.build import NoCompiler

                if target is not None or not isinstance(error, NoCompiler):
                    raise
                warnings.warn(f"kgen evaluates with torch, operator by operator: {error}", stacklevel=3)
                self._launchers[chosen] = _Torch(self.kernel)
        return self._launchers[chosen]


class _Torch:
    """Operator by operator, by the formula's own reading (16-bit floats in f32, one rounding)."""

    def __init__(self, kernel: checker.Kernel):
        self.kernel = kernel

    def __call__(self, call: Any) -> None:
        from kgen.runtime.evaluate import Evaluator

        for r, value in zip(self.kernel.results, Evaluator(self.kernel, call.given).run(), strict=True):
            call.results[r.name].copy_(value)


class _Cpp:
    """The C++ source, built by the system's compiler for each choice of dtypes when it is first called, called through ctypes."""

    def __init__(self, kernel: checker.Kernel):
        from kgen.runtime.build import compiler

        compiler()  # raises where there is none
        self.kernel = kernel
        self.units, self.plan = backend("cpp").layout(kernel)  # type: ignore[attr-defined]
        self.params = {p.name: p for p in kernel.params}
        self.entries: dict[tuple[str, ...], Any] = {}

    def __call__(self, call: Any) -> None:
        memory = {**call.given, **call.results, **call.memory(self.plan.workspaces)}
        memory.update({name: call.given[name] for name in self.params})
        for unit in self.units:
            parts = (unit["rows"], unit["inner"]) if unit["over_rows"] else (unit["dims"],)
            shapes = [call.shape(part) for part in parts]
            sizes = [n for shape in shapes for n in shape]
            array = ctypes.c_int64 * len(sizes)
            arguments: list[Any] = [len(sizes), *(len(shape) for shape in shapes[1:]), array(*sizes)]
            for t in unit["tensors"]:
                tensor = memory[t.spec_name]
                arguments += [tensor.data_ptr(), array(*call.strides_over(tensor, t.dims, parts))]
            for g in unit.get("gathers", ()):
                tensor, dims = memory[g.tensor.spec_name], g.tensor.dims
                arguments += [array(*call.strides_over(tensor, dims, parts, g.dim)), call.stride_along(tensor, dims, g.dim)]
            for a in unit["numbers"]:
                arguments.append(call.size(a.spec_name) if a.kind == "size" else call.given[a.spec_name])
            self.entry(unit, call.binding)(*arguments)

    def entry(self, unit: dict[str, Any], binding: dict[str, str]) -> Any:
        chosen = tuple(binding[v] for v in unit["dtype_variables"])
        key = (unit["name"], *binding.values())
        if key not in self.entries:
            from kgen.runtime.build import library

            source = backend("cpp").render(self.kernel, binding)  # type: ignore[call-arg]
            function = library(source, self.kernel.name)["_".join((unit["name"], *chosen))]
            numbers = [ctypes.c_double if a.kind == "float" else ctypes.c_int64 for a in unit["numbers"]]
            tensors: list[Any] = [ctypes.c_void_p, _INT64] * len(unit["tensors"])
            ranks = [ctypes.c_int] * (1 + unit["over_rows"])
            gathers: list[Any] = [_INT64, ctypes.c_int64] * len(unit.get("gathers", ()))
            function.argtypes = [*ranks, _INT64, *tensors, *gathers, *numbers]
            function.restype = None
            self.entries[key] = function
        return self.entries[key]


class _Triton:
    """The emitted module, imported from a file of its own (Triton reads the source of what it compiles)."""

    def __init__(self, kernel: checker.Kernel):
        from kgen.runtime.modules import import_source

        self.kernel = kernel
        module = import_source(backend("triton").render(kernel), f"{kernel.name}_triton")
        self.function = getattr(module, backend("triton").function_name(kernel))  # type: ignore[attr-defined]
        self.names = list(inspect.signature(self.function).parameters)

    def __call__(self, call: Any) -> None:
        fresh = tuple(call.results[r.name] for r in self.kernel.results if r.state is None)
        arguments = dict(zip(self.names, (call.given[p.name] for p in self.kernel.params), strict=False))
        if fresh:
            arguments[self.names[-1]] = fresh[0] if len(fresh) == 1 else fresh
        self.function(**arguments)


class _Cuda:
    """The CUDA source through NVRTC."""

    def __init__(self, kernel: checker.Kernel):
        from kgen.runtime.nvrtc import Launcher

        self.launcher = Launcher(kernel)

    def __call__(self, call: Any) -> None:
        self.launcher(call)


__all__ = ["ELLIPSIS", "Kernel", "load", "loads", "read_spec"]
