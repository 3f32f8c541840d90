"""The fast path of repeated calls: `fastcall.c`, built once with the system's compiler, and what calls leave for it.

In: a call that went the general way (`kgen.runtime.calls`), with what its launcher launched.  Out: a plan and a variant in the
kernel's `Fast`, by which the next call like it runs without Python.

Where there is no compiler, no Python.h, another ABI, a torch that cannot be read as expected, or KGEN_FASTCALL=0, every call
goes the general way; nothing else changes.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.machinery
import importlib.util
import math
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from kgen import hooks
from kgen.runtime import cache as disk
from kgen.runtime import memory, recall
from kgen.types import ELLIPSIS

SOURCE = Path(__file__).with_name("fastcall.c")
HEADER = SOURCE.with_suffix(".h")
NAME = "kgen_fastcall"
SUFFIX = ".fastcall"  # of its entry in the cache
FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden")

#: What `fastcall.c` calls, in torch's libraries and in the driver's; without the last five there is no CUDA.
TORCH = {
    "get_data_ptr": "aoti_torch_get_data_ptr", "get_sizes": "aoti_torch_get_sizes", "get_strides": "aoti_torch_get_strides",
    "get_dim": "aoti_torch_get_dim", "get_dtype": "aoti_torch_get_dtype", "get_device_index": "aoti_torch_get_device_index",
    "function_modes": "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv", "dispatch_modes": "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv",
    "transforms": "_ZN2at9functorch20getDynamicLayerStackEv", "tracing": "_ZN5torch3jit6tracer15getTracingStateEv",
    "autocast": "_ZN2at8autocast19is_autocast_enabledEN3c1010DeviceTypeE", "grad_mode": "_ZN3c108GradMode10is_enabledEv",
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv", "bump_version": "_ZN5torch8autograd4impl12bump_versionERKN2at6TensorE",
}  # fmt: skip
CUDA = {
    "current_stream": "aoti_torch_get_current_cuda_stream", "current_context": "cuCtxGetCurrent", "launch": "cuLaunchKernel",
    "launch_ex": "cuLaunchKernelEx",
}  # fmt: skip
#: Bytes of a tensor's implementation among which the dispatch keys are sought: it is larger in every torch that kgen runs with.
SEARCHED = 192
#: Calls of one plan that may leave something; beyond, its numbers change too often to be worth it.
LESSONS = 128
#: Calls from which a process that only uses the CPU is worth a compiler's work; on a GPU the next process begins with the extension.
FEW = 5
#: Seconds that a process waits at its end for the compiler.
PATIENCE = 5


#: `by` is the call, of this thread, whose own tensors are those that the kernel which it calls has views of (`kgen.runtime.views`).
HEARING = threading.local()


class Launch(NamedTuple):
    """One launch, as `fastcall.c` reads it: `arguments` are bytes, into which a call's pointers and numbers are put.

    Pointers are (where, which place, 0), the bytes there being how far behind it; numbers (where, which number, how many bytes, or
    ord("f") for a float rounded to f32),
    derived ones (where, where among the derived bytes, how many).  `follows` is `nvrtc.Started`'s.
    """

    cuda: bool
    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cluster: int
    arguments: bytes
    parameters: tuple[int, ...]
    stack: int
    pointers: tuple[tuple[int, int, int], ...]
    numbers: tuple[tuple[int, int, int], ...] = ()
    derived: tuple[tuple[int, int, int], ...] = ()
    follows: bool = False


class Lesson(NamedTuple):
    """What a call launched: `compared` has a bit for each number that must be the same next time, `makes` (shape, strides, dtype) of
    memory that the launches work in (placed behind the results), `owner` keeps the functions loaded."""

    launches: tuple[Launch, ...]
    compared: int = 0
    derive: Callable[[tuple], bytes] | None = None
    makes: tuple[tuple[Any, Any, Any], ...] = ()
    owner: Any = None
    aligned: bool = True
    binaries: Callable[[], list[str] | None] | None = None  # where in the cache the machine code of each launch lies


# ------------------------------------------------------------------------------------------------------------ the extension


def allowed() -> bool:
    """Whether this Python and this platform may have the extension."""
    return (
        os.environ.get("KGEN_FASTCALL", "1") != "0"
        and sys.implementation.name == "cpython"
        and sys.platform.startswith("linux")
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and SOURCE.is_file()
        and HEADER.is_file()
    )


class Extension:
    """The extension of this process: found in the cache, or built by a compiler that runs meanwhile; `module` is None until then."""

    def __init__(self) -> None:
        self.module: Any = None
        self.calls = 0
        self.settled = not allowed()
        self.lock = threading.Lock()
        self.process: Any = None
        self.owner = os.getpid()
        self.folder = ""
        self.entry = ""

    def get(self, wait: bool = False) -> Any:
        """The module, or None where there is none (yet): then a compiler is at work.  Never raises."""
        if not self.settled and self.lock.acquire(blocking=wait):
            try:
                if not self.settled:
                    self._advance(wait)
            except Exception:  # whatever is amiss here, calls go the general way
                self.settled = True
            finally:
                self.lock.release()
        return self.module

    def cached(self) -> Any:
        """The module, where it was built before; None where that would be to do.  Never raises."""
        if not self.settled and self.process is None and self.lock.acquire(blocking=False):
            try:
                self._find()
            except Exception:
                self.settled = True
            finally:
                self.lock.release()
        return self.module

    def _find(self) -> Sequence[str] | None:
        """Load the extension from the cache; else returns the command that builds it, if there is one."""
        command = compiler()
        if command is None:
            self.settled = True
            return None
        texts = (HEADER.read_bytes(), SOURCE.read_bytes())
        self.entry = disk.key("fastcall", *texts, " ".join(command), _identity(command[0]), sys.version, torch.__version__)
        found = disk.read(self.entry, SUFFIX)
        if found is not None:
            self._settle(str(found[0]))
        return command

    def _advance(self, wait: bool) -> None:
        """Start the compiler where it was not, and take what it built where it is done (`wait`: when it is done)."""
        if self.process is not None and self.owner != os.getpid():
            self.settled = True  # a fork: the compiler is another process's child
            return
        if self.process is None:
            command = self._find()
            if self.settled or command is None:
                return
            self._start(command)
        if wait:
            self.process.wait()
        if self.process.poll() is not None:
            path = self._built()
            self.settled = True
            if path is not None:
                self._settle(path)
            shutil.rmtree(self.folder, ignore_errors=True)

    def _built(self) -> str | None:
        """The file of an extension that a compiler has made, in the cache where it can be kept; None where the compiler refused."""
        place = Path(self.folder) / "fastcall.so"
        if self.process.returncode or not place.is_file():
            return None
        return str(disk.write(self.entry, SUFFIX, place.read_bytes()) or place)

    def _start(self, command: Sequence[str]) -> None:
        self.folder, self.owner = tempfile.mkdtemp(prefix="kgen-"), os.getpid()
        atexit.register(self._stop)
        self.process = subprocess.Popen(
            [*command, str(SOURCE), "-o", str(Path(self.folder) / "fastcall.so")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _stop(self) -> None:
        """At the end of a process that was over sooner than the compiler: what it makes is kept for the next one."""
        if self.settled or self.owner != os.getpid():
            return
        self.settled = True
        try:
            self.process.wait(timeout=PATIENCE)
            self._built()
        except Exception:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _settle(self, path: str) -> None:
        """Load the extension and try it; it stays away where anything is not as expected."""
        self.settled = True
        module = load(path)
        if module is not None and usable(module):
            kernels = hooks.runnable()
            module.install(kernels, kernels.__dict__["_fast"])
            self.module = module


@cache
def compiler() -> tuple[str, ...] | None:
    """The command that builds the extension, but for the files; None where there is no compiler or no Python.h."""
    include = sysconfig.get_path("include")
    if not os.path.isfile(os.path.join(include, "Python.h")):
        return None
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found, *FLAGS, f"-I{include}"
    return None


def _identity(command: str) -> str:
    real = Path(command).resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns} {platform.machine()}"


def load(path: str) -> ModuleType | None:
    """The extension module of a file."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, path)
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    if spec is None:
        return None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def addresses() -> dict[str, int] | None:
    """Where the functions of TORCH and CUDA are; None where one of the first is missing."""
    folder = Path(torch.__file__).parent / "lib"
    libraries = [ctypes.CDLL(str(folder / name)) for name in ("libc10.so", "libtorch_cpu.so")]
    found = {name: _address(libraries, symbol) for name, symbol in TORCH.items()}
    if not all(found.values()):
        return None
    if torch.version.cuda and (folder / "libtorch_cuda.so").exists():
        try:
            libraries = [ctypes.CDLL(str(folder / "libtorch_cuda.so")), ctypes.CDLL("libcuda.so.1")]
        except OSError:
            libraries = []
        found |= {name: _address(libraries, symbol) for name, symbol in CUDA.items()}
    return found


def _address(libraries: Sequence[ctypes.CDLL], symbol: str) -> int:
    for library in libraries:
        try:
            return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
        except AttributeError:
            pass
    return 0


def samples() -> list[Any]:
    """Tensors of several kinds, by which places in memory are found and tried."""
    x = torch.empty_strided((3, 5), (7, 1), dtype=torch.float64, device="cpu")
    with torch.inference_mode():
        inferred = torch.empty(4, dtype=torch.int16, device="cpu")
    with torch.no_grad():
        own = torch.nn.Parameter(torch.empty(2, 3, dtype=torch.float32, device="cpu"))
        negated = torch._neg_view(torch.empty(3, dtype=torch.float32, device="cpu"))
        conjugated = torch.empty(3, dtype=torch.complex64, device="cpu").conj()
        return [x, x[1:, 2], inferred, own, own.detach(), negated, conjugated, torch.empty((), dtype=torch.bool, device="cpu"),
                torch.empty((0, 2), dtype=torch.bfloat16, device="cpu"), torch.empty(3, device="meta", dtype=torch.float16)]  # fmt: skip


def keys_of(t: Any) -> int:
    return torch._C._dispatch_keys(t).raw_repr()


def set_up(module: Any, instead: dict[str, int] | None = None) -> bool:
    """Tell the extension what it needs of torch (some functions may be others, `instead`); False where that is not found."""
    from torch.autograd import forward_ad

    found = addresses()
    if found is None:
        return False
    tensors = samples()
    words = {id(t): (ctypes.c_uint64 * 8).from_address(id(t)) for t in tensors}
    handles = [k for k in range(2, 8) if all(words[id(t)][k] == t._cdata for t in tensors)]
    inside = {id(t): (ctypes.c_uint64 * (SEARCHED // 8)).from_address(t._cdata) for t in tensors}
    keys = [k for k in range(SEARCHED // 8) if all(inside[id(t)][k] == keys_of(t) for t in tensors)]
    if len(handles) != 1 or len(keys) != 1:
        return False
    places, modules = (8 * handles[0], 8 * keys[0]), (vars(torch.compiler), vars(forward_ad), globals())
    module.setup(found | (instead or {}), *places, torch.Tensor, torch.nn.Parameter, *modules)
    return True


def usable(module: Any) -> bool:
    """Whether the extension finds what it needs of torch, and reads it right."""
    with torch.inference_mode(False):  # whatever mode the call is in that brings it
        return set_up(module) and trial(module)


def trial(module: Any) -> bool:
    """Whether what the extension reads of tensors and modes is what Python says."""
    for t in samples():
        if t.device.type == "meta":
            continue
        keys, _, device, sizes, strides, place, requires_grad = module.read(t)
        if (keys, sizes, strides, place) != (keys_of(t), tuple(t.shape), t.stride(), t.data_ptr()) or requires_grad != t.requires_grad:
            return False
        if device != (-1 if t.device.index is None else t.device.index):
            return False
    dtypes = [
        torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64,
        torch.bool,
    ]  # fmt: skip
    if len({module.read(torch.empty(1, dtype=d, device="cpu"))[1] for d in dtypes}) != len(dtypes):
        return False
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            if module.modes()[1] != enabled:
                return False
    quiet = not (
        torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )  # fmt: skip
    if module.modes()[0] != quiet or module.modes()[2] != torch.is_autocast_enabled("cpu"):
        return False
    t = torch.empty(2, device="cpu")
    before = t._version
    module.bump(t)
    return t._version == before + 1


def advise(tensor: Any) -> Any:
    """Called for large new tensors."""
    return memory.advise(tensor)


EXTENSION = Extension()


def wait() -> bool:
    """Wait until the extension is built; whether there is one."""
    return EXTENSION.get(wait=True) is not None


# -------------------------------------------------------------------------------------------------------- what calls leave


def learn(calls: Any, plan: Any, given: tuple[tuple, dict[str, Any], Any, str | None], tensors: Any, made: Any, call: Any) -> None:
    """Keep what a call launched for those like it: `given` are its arguments, keywords, `out` and target, `tensors` those of them that
    are tensors and `made` those that it made, in the order of the plan's; `call` is what its launcher took.  Never raises: the call
    itself is done."""
    try:
        if not (torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack()):  # new tensors are plain ones
            _learn(calls, plan, given, tensors, made, call)
    except Exception:  # a Triton that is not as expected, say
        plan.lessons = LESSONS


def _learn(calls: Any, plan: Any, given: tuple[tuple, dict[str, Any], Any, str | None], tensors: Any, made: Any, call: Any) -> None:
    """`learn`, which may raise: asks the launcher what it launched, and keeps that in the extension and for other processes."""
    EXTENSION.calls += 1
    if EXTENSION.calls < FEW and plan.device.type not in recall.DEVICES and not EXTENSION.settled:
        return
    module = EXTENSION.get()
    runnable, (args, kwargs, out, target) = calls.runnable, given
    if module is None and EXTENSION.settled or not hasattr(plan.launcher, "lesson"):
        plan.lessons = LESSONS  # nor will there be one
        return
    if module is None and (plan.lessons or plan.device.type not in recall.DEVICES) or call is not None and not call.recorded:
        return  # the extension has not come yet, or just now
    by = getattr(HEARING, "by", None)
    if by is None and module is not None and getattr(runnable, "_fast", None) is None:
        runnable._fast = _new(module, calls)
    plan.lessons += 1
    taught = plan.launcher.lesson(plan, call)
    if taught is None:  # this call is none to learn from
        return
    if by is not None:
        by.hear(plan, taught, made)
        return
    keywords = {**kwargs, **({} if out is None else {"out": out}), **({} if target is None else {"target": target})}
    kind, device, context = place(plan.device)
    results = 0 if out is not None else len(calls.fresh)
    marked = [k for k in plan.written if not tensors[k].is_inference()]  # the others have no version
    empty, written = (sum(1 << k for k in some) for some in (plan.zeros, marked))
    if module is None:
        recall.keep(runnable, plan, args, keywords, results, marked, taught)
        return
    if runnable._fast and runnable._fast.plan(
        args, keywords, kind, device, context, plan.makes, results, allocator(plan.device), plan.pairs, empty, written, taught.aligned,
        not plan.quick,
    ):  # fmt: skip
        extra = tuple((*make, False) for make in taught.makes)
        launches = tuple(map(tuple, taught.launches))
        kept = runnable._fast.variant(args, keywords, tuple(made), taught.compared, taught.derive, extra, launches, taught.owner)
        if kept and plan.lessons == 1:
            recall.keep(runnable, plan, args, keywords, results, marked, taught)


def _new(module: Any, calls: Any) -> Any:
    params = [(p.name, "t" if p.is_tensor else p.dtype[0]) for p in calls.kernel.params]
    return new(module, params, [d if isinstance(d, (int, float)) else None for d in calls.defaults], len(calls.fresh))


def new(module: Any, params: Sequence[tuple[str, str]], defaults: Sequence[Any], fresh: int) -> Any:
    """A `Fast` for parameters (name; t, f or i) with defaults (None: there is none) and a number of results that are not primed; False
    where there are more than it can have."""
    names, kinds = tuple(sys.intern(name) for name, _ in params), "".join(kind for _, kind in params)
    if len(names) > module.TENSORS or len(kinds) - kinds.count("t") > module.NUMBERS:
        return False
    given = tuple(NotImplemented if d is None else d for d in defaults)
    return module.Fast(names, kinds, given, fresh, "out" not in names, "target" not in names)


def place(device: Any) -> tuple[int, int, int]:
    """The kind of device as torch counts them (CPU 0, CUDA 1), its index (-1 on the CPU), and its context."""
    if device.type == "cpu":
        return 0, -1, 0
    from kgen.runtime import driver

    return 1, device.index, driver.context(device.index)


def allocator(device: Any) -> Callable[[Any, Any, Any], Any]:
    """Makes a tensor (shape, strides, dtype) on a device, while that is the current one."""
    found = getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", None)
    return found or (lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device))


# --------------------------------------------------------------------------------------------- the launches of each target


def cpu_lesson(steps: Sequence[Any], params: Sequence[Any]) -> Lesson | None:
    """What the steps of `_Cpp.prepare` call: each argument in the register or the word of the stack where the ABI has it."""
    module = EXTENSION.module
    if not module.CPU_CALLS:
        return None
    order = {k: n for n, k in enumerate(k for k, p in enumerate(params) if not p.is_tensor)}
    launches = []
    for function, fixed, pointers, numbers in steps:
        numeric = {at: (kind, k) for at, kind, k in numbers}
        words = [0] * (14 + module.STACK)
        integers = floats = stack = 0
        where = []
        for at, value in enumerate(fixed):
            kind = numeric[at][0] if at in numeric else type(value)
            if kind is ctypes.c_double and floats < 8:
                place, floats = 6 + floats, floats + 1
            elif kind is not ctypes.c_double and integers < 6:
                place, integers = integers, integers + 1
            elif stack < module.STACK:
                place, stack = 14 + stack, stack + 1
            else:
                return None
            where.append(8 * place)
            if isinstance(value, ctypes.c_double):
                words[place] = ctypes.c_uint64.from_buffer_copy(value).value
            elif isinstance(value, (int, ctypes.c_int64)):
                words[place] = (value if isinstance(value, int) else value.value) & (2**64 - 1)
            elif value is not None:
                words[place] = ctypes.addressof(value._obj)  # a byref
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        launches.append(Launch(
            False, address, (1, 1, 1), (1, 1, 1), 0, 1, b"".join(word.to_bytes(8, "little") for word in words), (), stack,
            tuple((where[at], k, 0) for at, _, k in pointers), tuple((where[at], order[k], 8) for at, _, k in numbers),
        ))  # fmt: skip
    return Lesson(tuple(launches), owner=steps, aligned=False)


def cuda_lesson(launcher: Any, plan: Any, call: Any) -> Lesson | None:
    """What `nvrtc.Launcher` launched in a call: for each unit its layout, its pointers and its numbers."""
    from kgen.backends.cuda_layouts import SortLayout  # here, since a call that is recalled needs no layouts

    if any(isinstance(unit, SortLayout) and made is None for unit, made in zip(launcher.units, call.launched, strict=True)):
        return None  # torch sorts, and allocates for that
    if any(w.view is not None for w in launcher.workspaces):
        return None
    index, first = dict(plan.index), plan.tensors + len(plan.makes)
    makes: list[tuple[Any, Any, Any]] = []
    for name, made in call.memory(launcher.workspaces).items():
        index.setdefault(name, first + len(makes))
        makes.append((tuple(made.shape), made.stride(), made.dtype))
    order = {p.name: n for n, p in enumerate(p for p in launcher.kernel.params if not p.is_tensor)}
    kinds = {p.name: p.dtype for p in launcher.kernel.params}
    launches: list[Launch] = []
    derived: list[tuple[int, int, str]] = []  # unit, scalar, dtype
    size = 0
    for k, (unit, made) in enumerate(zip(launcher.units, call.launched, strict=True)):
        if made is None:
            continue
        blob = bytearray(bytes(made.layout))
        parameters, pointers, numbers, computed = [0], [], [], []
        if made.work:
            pointers.append((type(made.layout).work.offset, first + len(makes), 0))
            makes.append(((made.work,), (1,), torch.uint8))
        for name in launcher.pointers[k]:
            _pad(blob, 8)
            parameters.append(len(blob))
            pointers.append((len(blob), index[name], 0))
            blob += bytes(8)
        lets = {let.name: let for let in unit.numbers}
        given = made.numbers[: len(unit.scalars)]
        for n, (scalar, dtype, value) in enumerate(zip(unit.scalars, unit.scalar_dtypes(call.binding), given, strict=True)):
            _pad(blob, 8)
            parameters.append(len(blob))
            source, width = lets[scalar.number.name].expr, ctypes.sizeof(value)
            if source.name == "arg" and (code := _direct(kinds[source.attrs[0]], dtype, width)):
                numbers.append((len(blob), order[source.attrs[0]], code))
            elif source.name not in ("lit", "size"):
                computed.append((len(blob), size, width))
                derived.append((k, n, dtype))
                size += width
            blob += bytes(value).ljust(8, bytes(1))
        for value in made.numbers[len(unit.scalars) :]:  # of windows: strides and sizes
            _pad(blob, 8)
            parameters.append(len(blob))
            blob += bytes(value)
        for function, grid, threads, shared, cluster, follows in made.steps:
            launches.append(Launch(
                True, function.kernel, (grid, 1, 1), (threads, 1, 1), shared, cluster, bytes(blob), tuple(parameters), 0,
                tuple(pointers), tuple(numbers), tuple(computed), follows,
            ))  # fmt: skip
    sizes = (*plan.sizes.items(), (ELLIPSIS, math.prod(plan.batch)))
    derive = launcher.derive(tuple(derived), sizes) if derived else None
    owner = [function for made in call.launched if made is not None for function, *_ in made.steps]
    entries = [function.entry for function in owner]
    alone = None in entries or any(made is not None and made.fitted for made in call.launched)  # for no other process, nor its device
    return Lesson(tuple(launches), derive=derive, makes=tuple(makes), owner=owner, binaries=lambda: None if alone else entries)


def _pad(blob: bytearray, size: int) -> None:
    blob += bytes(-len(blob) % size)


def _direct(kind: str, dtype: str, width: int) -> int:
    """How `fastcall.c` rounds a number of a call to a dtype; 0 where it does not."""
    if kind == "float":
        return {"f32": ord("f"), "f64": 8}.get(dtype, 0)
    return 0 if dtype[0] not in "iu" else width  # a bool is not the low byte
