"""What launches a kernel's calls on each target.

In: a checked kernel, then its calls (`kgen.runtime.arguments.Call`).  Out: their results, written.  A launcher may also have
`prepare`, which works out the steps of calls of one layout, `lesson`, which says what calls like one launch, and `lists`, which launches
many tensors at once.
"""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import threading
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from kgen.backends import backend
from kgen.backends.units import RowUnit
from kgen.check import Kernel

if TYPE_CHECKING:
    from kgen.backends.cpp import Cpp as CppBackend


class Torch:
    """Operator by operator, by the formula's own reading (16-bit floats in f32, one rounding)."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel

    def __call__(self, call: Any) -> None:
        from kgen.runtime.evaluate import Evaluator

        values = [_bytes(value) for value in Evaluator(self.kernel, call.given).run()]
        if any(r.state for r in self.kernel.results):  # one may be a parameter that another writes
            values = [value.clone() for value in values]
        for r, value in zip(self.kernel.results, values, strict=True):
            _bytes(call.results[r.name]).copy_(value)


def _bytes(x: Any) -> Any:
    """A tensor as torch copies it in any layout: of two elements a byte these."""
    import torch

    from kgen.runtime import coded

    return x.view(torch.uint8) if coded.packed(x.dtype) else x


class Cpp:
    """The C++ source, built by the system's compiler for each choice of dtypes when it is first called, called through ctypes."""

    def __init__(self, kernel: Kernel):
        from kgen.backends.cpp import Cpp as CppBackend
        from kgen.runtime.build import compiler

        compiler()  # raises where there is none
        self.kernel = kernel
        target = backend("cpp")
        assert isinstance(target, CppBackend)
        self.target = target
        self.units, self.plan = target.layout(kernel)
        self.workspaces = self.plan.workspaces
        self.params = {p.name: p for p in kernel.params}
        self.entries: dict[tuple[str, ...], Any] = {}

    def __call__(self, call: Any) -> None:
        from kgen.runtime.calls import launch

        tensors = {name: call.given[name] for name, p in self.params.items() if p.is_tensor}
        memory = {**call.results, **call.memory(self.workspaces), **tensors}
        index = {name: k for k, name in enumerate(memory)}
        launch(self.prepare(call, memory, index), [t.data_ptr() for t in memory.values()], [call.given[name] for name in self.params])

    def prepare(self, call: Any, memory: dict[str, Any], index: dict[str, int]) -> list[tuple[Any, list[Any], list[Any], list[Any]]]:
        """Each unit's function, its arguments, and which of those are pointers and numbers of the call: (position, ctype, which one).

        `memory` has the tensors by name, `index` where their pointers will stand; numbers stand in the order of the parameters.
        """
        steps = []
        which = {name: k for k, name in enumerate(self.params)}
        for unit in self.units:
            parts = (unit.rows, unit.inner) if isinstance(unit, RowUnit) else (unit.dims,)
            shapes = [call.shape(part) for part in parts]
            sizes = [n for shape in shapes for n in shape]
            array = ctypes.c_int64 * len(sizes)
            # functions without argtypes take ctypes values as they are, which costs half as much a call
            arguments: list[Any] = [len(sizes), *(len(shape) for shape in shapes[1:]), ctypes.byref(array(*sizes))]
            pointers, numbers = [], []
            for t in unit.tensors:
                pointers.append((len(arguments), ctypes.c_void_p, index[t.spec_name]))
                arguments += [None, ctypes.byref(array(*call.strides_over(memory[t.spec_name], t.dims, parts)))]
            reaches = getattr(unit, "reaches", ())
            arguments += [ctypes.c_int64(call.stride_along(memory[r.tensor.spec_name], r.tensor.dims, r.dim)) for r in reaches]
            arguments += [ctypes.c_int64(call.size(dim)) for dim in dict.fromkeys(r.dim for r in reaches)]
            for g in unit.gathers if isinstance(unit, RowUnit) else ():
                tensor, dims = memory[g.tensor.spec_name], g.tensor.dims
                along = ctypes.c_int64(call.stride_along(tensor, dims, g.dim))
                arguments += [ctypes.byref(array(*call.strides_over(tensor, dims, parts, g.dim))), along]
            for a in unit.numbers:
                kind = ctypes.c_double if a.kind == "float" else ctypes.c_int64
                if a.kind != "size":
                    numbers.append((len(arguments), kind, which[a.spec_name]))
                arguments.append(kind(call.size(a.spec_name)) if a.kind == "size" else None)
            steps.append((self.entry(unit, call.binding), arguments, pointers, numbers))
        return steps

    def lesson(self, plan: Any, call: Any) -> Any:
        """What calls like this one launch; see `kgen.runtime.fast`."""
        from kgen.runtime.fast import cpu_lesson

        return cpu_lesson(plan.steps, self.kernel.params)

    def entry(self, unit: Any, binding: dict[str, str]) -> Any:
        key = (unit.name, *binding.values())
        if key not in self.entries:
            self.entries[key] = self.built(unit, binding, self.target)
        return self.entries[key]

    def built(self, unit: Any, binding: dict[str, str], target: CppBackend) -> Any:
        """A unit's function for a choice of dtypes, as `target` writes it."""
        from kgen.runtime.build import library

        chosen = tuple(binding[v] for v in unit.dtype_variables)
        function = library(target.render(self.kernel, binding), self.kernel.name)["_".join((unit.name, *chosen))]
        function.restype = None
        return function

    @cached_property
    def lists(self) -> Any:
        """What launches lists of tensors; None where the kernel is no single map."""
        from kgen.runtime.cpp_lists import ListLauncher

        single = len(self.units) == 1 and not isinstance(self.units[0], RowUnit) and not getattr(self.units[0], "reaches", ())
        return ListLauncher(self.kernel, self.units[0], self.built) if single else None


@cache
def warm_up_triton() -> tuple[threading.Thread, ...]:
    """Have Triton do in other threads, while a source is written, what its first launch waits for: it hashes its own libraries, half a
    gigabyte, and has a C compiler build its driver's part."""
    import torch

    def hash_triton() -> Any:
        from triton.runtime import cache as tritons

        return tritons.triton_key()

    def build_driver() -> Any:
        from triton.runtime import driver

        return driver.active

    if not torch.cuda.is_initialized() or importlib.util.find_spec("triton") is None:
        return ()
    import triton  # noqa: F401

    from kgen.runtime import turns

    return turns.start(hash_triton, build_driver, name="kgen-triton")


class Triton:
    """The emitted module, imported from a file of its own (Triton reads the source of what it compiles)."""

    def __init__(self, kernel: Kernel):
        warming = warm_up_triton()
        from kgen.backends.triton import Triton as TritonBackend
        from kgen.runtime.modules import import_source

        self.kernel = kernel
        target = backend("triton")
        assert isinstance(target, TritonBackend)
        self.module = import_source(target.render(kernel), f"{kernel.name}_triton")
        self.function = getattr(self.module, target.function_name(kernel))
        self.names = list(inspect.signature(self.function).parameters)
        for thread in warming:
            thread.join()

    def __call__(self, call: Any) -> None:
        fresh = tuple(call.results[r.name] for r in self.kernel.results if r.state is None)
        arguments = dict(zip(self.names, (call.given[p.name] for p in self.kernel.params), strict=False))
        if fresh:
            arguments[self.names[-1]] = fresh[0] if len(fresh) == 1 else fresh
        if call.recorded:
            call.launched = self._recorded(arguments)
        else:
            self.function(**arguments)

    def _recorded(self, arguments: dict[str, Any]) -> Any:
        """Run the host function; what it launched, or None on AMD's devices, which Triton alone knows."""
        import torch

        if torch.version.hip is not None:
            self.function(**arguments)
            return None
        from kgen.runtime.replay import Recording, watch

        watch(self.module)
        with Recording() as recording:
            self.function(**arguments)
        return recording

    def lesson(self, plan: Any, call: Any) -> Any:
        from kgen.runtime.replay import lesson

        kept = {p.name for p, name in zip(self.kernel.params, self.names, strict=False) if p.name == name}
        return lesson(call.launched, plan, call, self._derives, kept) if call.launched is not None else None

    @cached_property
    def _derives(self) -> bool:
        """Whether the host computes numbers out of the call's."""
        if all(p.is_tensor for p in self.kernel.params):
            return False
        from kgen.backends.cuda import Cuda as CudaBackend

        target = backend("cuda")
        assert isinstance(target, CudaBackend)
        units = target.layout(self.kernel)
        return any(let.expr.name not in ("lit", "arg", "size") for unit in units for let in unit.numbers)


class Cuda:
    """The CUDA source through NVRTC."""

    def __init__(self, kernel: Kernel):
        from kgen.runtime.nvrtc import Launcher

        self.kernel, self.launcher = kernel, Launcher(kernel)

    def __call__(self, call: Any) -> None:
        self.launcher(call)

    @cached_property
    def lists(self) -> Any:
        """What launches lists of tensors; None where the kernel is no single map."""
        from kgen.backends.cuda import Layout
        from kgen.runtime.nvrtc_lists import ListLauncher

        units = self.launcher.units
        single = len(units) == 1 and isinstance(units[0], Layout) and not units[0].reaches
        return ListLauncher(self.kernel, self.launcher) if single else None

    def lesson(self, plan: Any, call: Any) -> Any:
        from kgen.runtime.fast import cuda_lesson

        return cuda_lesson(self.launcher, plan, call)
