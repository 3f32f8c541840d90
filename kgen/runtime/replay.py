"""What an emitted Triton module launches in a call, written down, so that the next call like it needs no Python.

In: a run of the module's launcher.  Out: a `fast.Lesson`; or None where anything but launches on the call's own tensors and on
memory made for them took place, or where Triton's compiled kernels are not as they are known here.

What is written down is what is launched, in this call too: Triton chooses the variant and compiles it, and the launch is kgen's own.
For a launch of its own Triton has a C compiler build a function, which takes a process's first call .18 s.  It launches what is of
no kind that is known here, and what the driver refuses, since its errors say why.
"""

from __future__ import annotations

import ctypes
import re
import struct
import threading
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kgen.runtime import driver
from kgen.runtime.fast import Launch, Lesson
from kgen.runtime.recall import binary

#: Operators that make memory with nothing in it.
EMPTY = {torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default, torch.ops.aten.empty_like.default}
#: How numbers are passed, by Triton's names.
PASSED: dict[str, Any] = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64, "u1": ctypes.c_uint8,
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "fp32": ctypes.c_float,
    "f32": ctypes.c_float, "fp64": ctypes.c_double, "f64": ctypes.c_double,
}  # fmt: skip
#: Triton's hooks by which profilers see kernels loaded and launched.
HOOKS = ("launch_enter_hook", "launch_exit_hook", "kernel_load_start_hook", "kernel_load_end_hook")
OTHER = ""  # no number's name
_here = threading.local()


class Code(NamedTuple):
    """A compiled kernel, loaded: the bytes of each of its parameters, and its threads a block."""

    function: driver.Function
    widths: list[int]
    threads: int


class Number(NamedTuple):
    """A number among a launch's arguments: where, by which name and of which of Triton's types; `free`: compiled for any value."""

    at: int
    name: str
    kind: str
    value: int | float
    free: bool


class Described(NamedTuple):
    """One launch as it is: the pointers of `launch` count `tensors`, and all its numbers are fixed."""

    launch: Launch
    tensors: list[torch.Tensor]
    numbers: list[Number]
    function: driver.Function
    compiled: Any


class Recording(TorchDispatchMode):
    """While it is on, this thread's launches of watched kernels are written down (None: one that is not known here); `plain` as long as
    torch did nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Described | None] = []
        self.made: list[Any] = []
        self.aliases: list[tuple[Any, int]] = []  # of those, as the launcher sees them, and which one
        self.plain = True

    def __enter__(self) -> Any:
        _here.recording = self
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _here.recording = None
        super().__exit__(*error)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function in EMPTY:
            self.aliases.append((result, len(self.made)))
            self.made.append(result)
        elif function is torch.ops.aten.detach.default and (which := [k for alias, k in self.aliases if alias is args[0]]):
            self.aliases.append((result, which[0]))
        else:
            self.plain = False
        return result


def watch(module: Any) -> None:
    """Let a module's kernels be launched by kgen, and written down, while there is a `Recording`."""
    from triton.runtime.jit import JITFunction

    for kernel in vars(module).values():
        if type(kernel) is JITFunction and "run" not in vars(kernel):
            kernel.run = _watched(kernel)


def _watched(kernel: Any) -> Any:
    """What takes the place of a kernel's `run`; it keeps the machine code that it has loaded."""
    own = kernel.run
    loaded: dict[Any, Code | None] = {}

    def run(*args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """As Triton's own, which it is where nothing is recorded: the compiled kernel, launched.  Raises Triton's errors."""
        recording = getattr(_here, "recording", None)
        if recording is None or warmup:
            return own(*args, grid=grid, warmup=warmup, **kwargs)
        described = None
        if not observed():
            compiled = own(*args, grid=grid, warmup=True, **kwargs)  # which launches nothing
            try:
                if compiled not in loaded:
                    loaded[compiled] = load(compiled)
                described = describe(kernel, args, kwargs, grid, compiled, loaded[compiled])
                if described is not None:
                    start(described)
            except Exception:  # a Triton that is not as expected, or a launch that the driver refuses
                described = None
        recording.launches.append(described)
        return described.compiled if described is not None else own(*args, grid=grid, warmup=warmup, **kwargs)

    return run


def observed() -> bool:
    """Whether a profiler wants to see Triton's launches."""
    from triton import knobs

    hooks = [getattr(knobs.runtime, name, None) for name in HOOKS]
    return any(getattr(hook, "calls", hook) for hook in hooks)


def lesson(recording: Recording, plan: Any, call: Any, derives: bool, kept: set[str]) -> Lesson | None:
    """What a recorded call launched.  `derives`: the launcher computes numbers out of the call's, so that only calls with the same
    numbers launch the same.  `kept`: the parameters whose names the source kept, so that no other argument is called so."""
    if not recording.plain:
        return None
    places = {plan.index[name]: tensor for name, tensor in (*call.results.items(), *call.given.items()) if name in plan.index}
    index = {id(tensor): place for place, tensor in places.items()}
    if len(index) != len(places):
        return None  # one tensor for two parameters: which is which does not show
    first = plan.tensors + len(plan.makes)
    index |= {id(tensor): first + k for tensor, k in recording.aliases}
    numbers = {name: x for name, x in call.given.items() if not isinstance(x, torch.Tensor)}
    order = {name: k for k, name in enumerate(numbers)}
    numbers = {} if derives else {name: x for name, x in numbers.items() if name in kept}
    passed: set[str] = set()
    launches, compiled, owner = [], [], []
    for one in recording.launches:
        if one is None or any(id(tensor) not in index for tensor in one.tensors):
            return None
        compiled.append(one.compiled)
        owner.append(one.function)
        pointers = tuple((at, index[id(one.tensors[k])], behind) for at, k, behind in one.launch.pointers)
        launches.append(one.launch._replace(pointers=pointers, numbers=_filled(one, numbers, order, passed)))
    compared = sum(1 << k for name, k in order.items() if name not in passed or OTHER in passed)
    makes = tuple((tuple(t.shape), t.stride(), t.dtype) for t in recording.made)

    def binaries() -> list[str]:
        return [binary(c.metadata.name, c.asm["cubin"]) for c in compiled]

    return Lesson(tuple(launches), compared, None, makes, owner, binaries=binaries)


def _filled(one: Described, numbers: dict[str, Any], order: dict[str, int], passed: set[str]) -> tuple[tuple[int, int, int], ...]:
    """Which of a launch's numbers are the call's `numbers` (by name), as they are.  Adds their names to `passed`; and OTHER where there
    is another float."""
    filled = []
    for at, name, kind, value, free in one.numbers:
        same = name in numbers and type(value) is type(numbers[name]) and value == numbers[name]
        if same and free and kind in ("fp64", "i64"):
            filled.append((at, order[name], 8))
            passed.add(name)
        elif kind.startswith("f"):
            passed.add(OTHER)
    return tuple(filled)


def load(compiled: Any) -> Code | None:
    """The machine code that Triton compiled, loaded; None where it asks for more than a plain launch."""
    metadata, ptx = compiled.metadata, compiled.asm["ptx"]
    if getattr(metadata, "num_ctas", 1) != 1 or any(n != 1 for n in getattr(metadata, "cluster_dims", None) or ()):
        return None
    if any(getattr(metadata, name, 0) for name in ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")):
        return None
    widths, threads = entry(ptx), metadata.num_warps * 32
    if widths is None or any(int(own) != threads for own in re.findall(r"\.(?:req|max)ntid\s+(\d+)", ptx)):
        return None
    return Code(driver.Function(compiled.asm["cubin"], metadata.name), widths, threads)


def describe(kernel: Any, args: tuple, kwargs: dict[str, Any], grid: Any, compiled: Any, code: Code | None) -> Described | None:
    """One launch of a compiled kernel, with the arguments and the grid that Triton was given; None where it is of a kind that is not
    known here."""
    if code is None or callable(grid) or len(grid) != 1 or not 0 < grid[0] < 2**31:
        return None
    blob, parameters, pointers = bytearray(), [], []
    tensors: list[torch.Tensor] = []
    numbers: list[Number] = []
    values = {**dict(zip(kernel.arg_names, args, strict=False)), **{k: v for k, v in kwargs.items() if k in kernel.arg_names}}
    widths, assumed = [], {key for key, attributes in compiled.src.attrs.items() if attributes}
    for position, (name, kind) in enumerate(compiled.src.signature.items()):
        name = name if isinstance(name, str) else kernel.arg_names[name]
        if kind == "constexpr":
            continue
        value = values.get(name)
        blob += bytes(-len(blob) % 8)
        parameters.append(len(blob))
        if isinstance(kind, str) and kind.startswith("*") and isinstance(value, torch.Tensor):
            pointers.append((len(blob), len(tensors), 0))
            tensors.append(value)
            data = bytes(8)
        elif kind in PASSED and isinstance(value, (int, float)):
            numbers.append(Number(len(blob), name, kind, value, (position,) not in assumed))
            given = PASSED[kind](value)
            if isinstance(value, int) and kind[0] in "iu" and given.value != value:
                return None  # Triton says that it is too large
            data = bytes(given)
        else:
            return None
        widths.append(len(data))
        blob += data.ljust(8, bytes(1))
    scratch = code.widths[len(widths) :]  # memory of its own, of which it has none
    if code.widths[: len(widths)] != widths or len(scratch) > 2 or any(width != 8 for width in scratch) or not tensors:
        return None
    for _ in scratch:
        parameters.append(len(blob))
        blob += bytes(8)
    launch = Launch(
        True, code.function.kernel, (grid[0], 1, 1), (code.threads, 1, 1), compiled.metadata.shared, 1, bytes(blob), tuple(parameters), 0,
        tuple(pointers),
    )  # fmt: skip
    return Described(launch, tensors, numbers, code.function, compiled)


def start(described: Described) -> None:
    """Launch what was described on its tensors, on torch's current stream of their device, as `fastcall.c` launches what it is taught.

    Raises `KgenError` where the driver refuses; then nothing was launched.
    """
    launch, tensors = described.launch, described.tensors
    device = tensors[0].device.index
    arguments = bytearray(launch.arguments)
    for at, which, _ in launch.pointers:
        struct.pack_into("<Q", arguments, at, tensors[which].data_ptr())
    values = [ctypes.c_char.from_buffer(arguments, at) for at in launch.parameters]
    stream = torch._C._cuda_getCurrentRawStream(device)
    described.function(launch.grid[0], device, stream, values, launch.block[0], launch.shared, launch.cluster, launch.follows)


def entry(ptx: str) -> list[int] | None:
    """The bytes of each parameter of the one kernel in a PTX text; None where there are several."""
    found = re.findall(r"\.entry\s+[\w$.]+\s*\((.*?)\)", ptx, re.S)
    if len(found) != 1:
        return None
    sizes = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)", found[0])
    return [int(size) // 8 for size in sizes] if len(sizes) == found[0].count(".param") else None
