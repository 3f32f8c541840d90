"""Files that kgen wrote, edited or not, as candidates: built as their heads say, called as kgen's own runtime calls what it builds.

In: a file, and the spec that it is held to.  Out: a `Loaded`.  Its arguments are the spec's, in the order in which kgen passes them; what
is built is kept in kgen's cache, by all that it was built from.
"""

from __future__ import annotations

import ctypes
import inspect
import math
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from kgen.backends import backend
from kgen.backends.base import Render
from kgen.backends.c_family import CFamily
from kgen.backends.cuda_rows import row_operands
from kgen.backends.sorts import SortUnit
from kgen.backends.units import RowUnit
from kgen.check import Kernel
from kgen.runtime.launchers import Cpp
from kgen.types import ELLIPSIS, TORCH, Dims, is_variable, resolve
from kgen.verify.loaded import Loaded, Unloadable, Untriable, imported

#: The line of a head that says how to build the file.
BUILD = re.compile(r"^//     ((?:c\+\+|g\+\+|clang\+\+|nvcc) .*)$", re.M)
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.M)


def load_written(named: dict[str, Any], interface: dict[str, Any], device: str) -> Loaded:
    """The candidate of a written file.  Raises `Unloadable` where it does not build, or is for another device."""
    from kgen.runtime.kernel import Kernel as Runnable
    from kgen.runtime.kernel import loads

    path = Path(named["path"])
    target = {".cpp": "cpp", ".cu": "cuda", ".py": "triton"}[path.suffix]
    interpreted = target == "triton" and os.environ.get("TRITON_INTERPRET") == "1"  # Triton's interpreter takes tensors on the CPU
    if (target == "cpp") != (device == "cpu") and not interpreted:
        help = "; with TRITON_INTERPRET=1 Triton's interpreter runs it" * (target == "triton")
        raise Untriable(f"{path.name} is for {'a GPU' if target != 'cpp' else 'the CPU'}; its tensors are to lie on {device}{help}")
    kernel = loads(interface["spec"]).kernel
    names = [p.name for p in kernel.params]
    fresh = [r.name for r in kernel.results if not r.state]
    written = [(r.name, r.state) for r in kernel.results if r.state]
    order = [(r.name, bool(r.state)) for r in kernel.results]
    if target == "triton":
        function = _triton(path, kernel)
        taken = inspect.signature(function).parameters
        own = [n for n in names if n in taken and taken[n].default is not inspect.Parameter.empty]
        return Loaded(function, names, set(names) <= set(taken), fresh, written, order, out=bool(fresh), optional=own)
    if named["fixed"]:
        return Loaded(_Static(kernel, path, device).run, names, True, fresh, written, order, out=bool(fresh))
    made = Runnable(kernel)
    inner = made._plain or made
    inner = inner._parts.runnable if inner._parts is not None else inner  # what is written is launched over parts
    written_file = _Cuda(inner.kernel, path) if target == "cuda" else _Cpp(inner.kernel, path)
    inner._launchers |= dict.fromkeys((target, f"{target}, compared"), written_file)  # a file has one way for calls of any sizes

    def run(**given: Any) -> Any:
        out = given.pop("out", None)
        if kernel.joined:
            return made(**given, out=out, target=target)
        return made._run((), given, out, target)

    return Loaded(run, names, True, fresh, written, order, out=bool(fresh))


def _triton(path: Path, kernel: Kernel) -> Any:
    """The function of a Triton file."""
    module = imported(str(path))
    from kgen.backends.triton import Triton

    made = backend("triton")
    assert isinstance(made, Triton)
    own = made.function_name(kernel)
    if not hasattr(module, own):
        raise Unloadable(f"{path.name} has no function {own}")
    return getattr(module, own)


@cache
def library(path: Path) -> ctypes.CDLL:
    """The library of a file, built by the line in its head.  Raises `Unloadable` with what the compiler says."""
    from kgen.runtime import cache as disk

    text = path.read_text(encoding="utf-8")
    found = BUILD.search(text)
    if not found:
        raise Unloadable(f"the head of {path.name} does not say how to build it")
    command = shlex.split(found.group(1))
    tool = shutil.which(command[0])
    if tool is None:
        raise Untriable(f"{command[0]}, which builds {path.name}, is not installed")
    if "-o" not in command or path.name not in command:
        raise Unloadable(f"the head of {path.name} does not say how to build it: {' '.join(command)[:200]}")
    if command[0] == "nvcc":
        command = [_here(word) for word in command]
    entry = disk.key("verify", text, *_included(path, text), " ".join(command), tool)
    kept = disk.read(entry, ".so")
    if kept is not None:
        return ctypes.CDLL(str(kept[0]))
    with tempfile.TemporaryDirectory(prefix="kgen-verify-") as folder:
        place = Path(folder) / "made.so"
        command = [tool, *command[1:]]
        command[command.index("-o") + 1] = str(place)
        command[command.index(path.name)] = str(path)
        done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
        if done.returncode or not place.exists():
            errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["it said nothing"]
            raise Unloadable(f"{path.name} does not build: {errors[0].strip()}")
        payload = place.read_bytes()
        where = disk.write(entry, ".so", payload)
        return ctypes.CDLL(str(where or place))


def _here(word: str) -> str:
    """The architecture of this machine's GPU, in place of another one."""
    import torch

    if word.startswith("-arch=") and torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return f"-arch=sm_{major}{minor}{'a' * word.endswith('a')}"
    return word


def _included(path: Path, text: str) -> list[str]:
    """The texts of the files beside it that a source includes."""
    found: dict[str, str] = {}
    todo = INCLUDE.findall(text)
    while todo:
        name = todo.pop()
        place = path.parent / name
        if name not in found and place.exists():
            found[name] = place.read_text(encoding="utf-8")
            todo += INCLUDE.findall(found[name])
    return [found[name] for name in sorted(found)]


def function(path: Path, name: str) -> Any:
    """A function of C of a file's library."""
    try:
        return library(path)[name]
    except AttributeError:
        raise Unloadable(f"{path.name} has no function {name}") from None


class _Cpp(Cpp):
    """kgen's launcher of C++, for a library that a file says how to build."""

    def __init__(self, kernel: Kernel, path: Path):
        super().__init__(kernel)
        self.path = path
        library(path)

    def built(self, unit: Any, binding: dict[str, str], target: Any) -> Any:
        chosen = tuple(binding[v] for v in unit.dtype_variables)
        made = function(self.path, "_".join((unit.name, *chosen)))
        made.restype = None
        return made


class _Static:
    """The function of a static file, called as its head says; tensors that it does not take are refused."""

    CALL = re.compile(r"Call (\w+)\(([^)]*)\)(?:,| as a)")

    def __init__(self, kernel: Kernel, path: Path, device: str):
        head = " ".join(line.removeprefix("//").strip() for line in path.read_text(encoding="utf-8").split("\n\n")[0].splitlines())
        found = self.CALL.search(head)
        if not found:
            raise Unloadable(f"the head of {path.name} does not say how to call it")
        self.kernel, self.device, self.names = kernel, device, [n.strip() for n in found.group(2).split(",")]
        self.entry = function(path, found.group(1))
        self.entry.restype = None if device == "cpu" else ctypes.c_int

    def run(self, **given: Any) -> Any:
        """The results.  Raises `ValueError` for tensors that are not contiguous, or not aligned to 16 bytes."""
        import torch

        out = given.pop("out", None)
        outs = () if out is None else out if isinstance(out, tuple) else (out,)
        fresh = [r for r in self.kernel.results if not r.state]
        tensors = {p.name: given[p.name] for p in self.kernel.params if p.is_tensor}
        shapes = {d: x.shape[k - len(p.dims or ())] for p in self.kernel.params if p.is_tensor and p.dims is not None
                  for x in [tensors[p.name]] for k, d in enumerate(p.dims) if d != ELLIPSIS}  # fmt: skip
        with_leading = [(tensors[p.name].shape, len(p.dims)) for p in self.kernel.params if p.dims and ELLIPSIS in p.dims]
        leading = [shape[: len(shape) + 1 - named] for shape, named in with_leading]
        batch = max(leading, key=len, default=())
        binding = {p.dtype: TORCH[str(tensors[p.name].dtype)[6:]] for p in self.kernel.params if p.is_tensor and is_variable(p.dtype)}
        for k, r in enumerate(fresh):
            shape = [n for d in r.dims for n in (batch if d == ELLIPSIS else (shapes.get(d, self.kernel.literals.get(d, 1)),))]
            dtype = getattr(torch, resolve(r.dtype, binding).torch)
            tensors[r.name] = outs[k] if outs else torch.empty(shape, dtype=dtype, device=self.device)
        for name, x in tensors.items():
            if not x.is_contiguous() or x.data_ptr() % 16:
                raise ValueError(f"{name} is not contiguous and aligned to 16 bytes")
        kinds = {p.name: ctypes.c_int64 if p.dtype == "int" else ctypes.c_double for p in self.kernel.params if not p.is_tensor}
        passed: list[Any] = []
        for n in self.names:
            if n in tensors:
                passed.append(ctypes.c_void_p(tensors[n].data_ptr()))
            elif n in kinds:
                passed.append(kinds[n](given[n]))
            elif n == "stream":
                passed.append(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            else:  # how many elements the leading dims have
                passed.append(ctypes.c_int64(math.prod(batch)))
        if status := self.entry(*passed):
            raise RuntimeError(f"the function returned the CUDA error {status}")
        results = [tensors[r.name] for r in fresh]
        return results[0] if len(results) == 1 else tuple(results)


def tensors_of(render: Render, unit: Any) -> list[tuple[str, Dims, bool]]:
    """What a CUDA unit's function of C takes of memory, in order: names in the spec, dims, and whether strides follow, which what is read
    at places of its own alone has behind the tensors."""
    found: list[tuple[str, str, Dims, bool]] = []  # the name in the code, that in the spec, dims, whether it is walked through
    if isinstance(unit, RowUnit):
        gathered = {g.name: g.tensor.name for g in unit.gathers}
        for w in row_operands(render, unit)[0]:
            if w.has_memory:
                found.append((gathered.get(w.name, w.pointer), w.record.name, w.record.dims, w.name not in gathered))
    else:
        found = [(t.name, t.spec_name, t.dims, True) for t in CFamily.operands(render, unit)[0] if t not in unit.indices]
    order = [render.global_names.user(p.name) for p in render.kernel.params]
    made: dict[str, tuple[str, Dims, bool]] = {}
    for name, spec_name, dims, walked in sorted(found, key=lambda f: order.index(f[0]) if f[0] in order else len(order)):
        if name not in made or walked and not made[name][2]:
            made[name] = (spec_name, dims, walked)
    return list(made.values())


class _Cuda:
    """What launches the functions of C of a CUDA file: the units of its kernel, one after the other, on torch's stream."""

    def __init__(self, kernel: Kernel, path: Path):
        self.kernel, self.path = kernel, path
        self.render = Render(backend("cuda"), kernel)
        self.units, self.workspaces = self.render.units(), self.render.plan.workspaces
        library(path)

    def __call__(self, call: Any) -> None:
        import torch

        tensors = {p.name: call.given[p.name] for p in self.kernel.params if p.is_tensor}
        memory = {**call.results, **call.memory(self.workspaces), **tensors}
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        for unit in self.units:
            entry = function(self.path, "_".join((unit.name, *(call.binding[v] for v in unit.dtype_variables))))
            status = entry(*self._passed(unit, call, memory), stream)
            if status:
                raise RuntimeError(f"{unit.name} of {self.path.name} returned the CUDA error {status}")

    def _passed(self, unit: Any, call: Any, memory: dict[str, Any]) -> list[Any]:
        """The arguments of a unit's function, but for the stream."""
        rows = isinstance(unit, RowUnit)
        parts = (unit.rows, unit.inner) if rows else (unit.dims,)
        shapes = [call.shape(part) for part in parts]
        sizes = [n for shape in shapes for n in shape]
        array = ctypes.c_int64 * len(sizes)
        given: list[Any] = [len(sizes), *([len(shapes[0])] if rows else []), array(*sizes)]
        if isinstance(unit, SortUnit):
            for t in unit.tensors:
                given += [ctypes.c_void_p(memory[t.spec_name].data_ptr()), array(*call.strides_over(memory[t.spec_name], t.dims, parts))]
            return given
        for name, dims, strides in tensors_of(self.render, unit):
            given.append(ctypes.c_void_p(memory[name].data_ptr()))
            if strides:
                given.append(array(*call.strides_over(memory[name], dims, parts)))
        reaches = getattr(unit, "reaches", ())
        given += [ctypes.c_int64(call.stride_along(memory[r.tensor.spec_name], r.tensor.dims, r.dim)) for r in reaches]
        given += [ctypes.c_int64(call.size(dim)) for dim in dict.fromkeys(r.dim for r in reaches)]
        for g in unit.gathers if rows else ():
            tensor, dims = memory[g.tensor.spec_name], g.tensor.dims
            given += [array(*call.strides_over(tensor, dims, parts, g.dim)), ctypes.c_int64(call.stride_along(tensor, dims, g.dim))]
        for a in unit.numbers:
            kind = ctypes.c_double if a.kind == "float" else ctypes.c_int64
            given.append(kind(call.size(a.spec_name) if a.kind == "size" else call.given[a.spec_name]))
        return given
