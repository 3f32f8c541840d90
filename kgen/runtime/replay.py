"""What an emitted Triton module launches in a call, written down, so that the next call like it needs no Python.

In: a run of the module's launcher.  Out: a `fast.Lesson`; or None where anything but launches on the call's own tensors and on
memory made for them took place, or where Triton's compiled kernels are not as they are known here.
"""

from __future__ import annotations

import ctypes
import re
import threading
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
OTHER = ""  # no number's name
_here = threading.local()


class Recording(TorchDispatchMode):
    """While it is on, this thread's launches of watched kernels are written down; `plain` as long as torch did nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[tuple[Any, tuple, dict[str, Any], Any, Any]] = []
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
    """Let the launches of a module's kernels be written down by a `Recording`."""
    from triton.runtime.jit import JITFunction

    for kernel in vars(module).values():
        if type(kernel) is JITFunction and "run" not in vars(kernel):
            kernel.run = _watched(kernel)


def _watched(kernel: Any) -> Any:
    own = kernel.run

    def run(*args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = own(*args, grid=grid, warmup=warmup, **kwargs)
        recording = getattr(_here, "recording", None)
        if recording is not None:
            recording.launches.append((kernel, args, kwargs, grid, compiled))
        return compiled

    return run


def lesson(recording: Recording, plan: Any, call: Any, derives: bool, kept: set[str]) -> Lesson | None:
    """What a recorded call launched.  `derives`: the launcher computes numbers out of the call's, so that only calls with the same
    numbers launch the same.  `kept`: the parameters whose names the source kept, so that no other argument is called so."""
    from triton import knobs

    hooks = (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook)
    if not recording.plain or any(getattr(hook, "calls", hook) for hook in hooks):  # a profiler wants to see the launches
        return None
    places = {plan.index[name]: tensor for name, tensor in (*call.results.items(), *call.given.items()) if name in plan.index}
    index = {id(tensor): place for place, tensor in places.items()}
    if len(index) != len(places):
        return None  # one tensor for two parameters: which is which does not show
    first = plan.tensors + len(plan.makes)
    index |= {id(tensor): first + k for tensor, k in recording.aliases}
    numbers = {name: x for name, x in call.given.items() if not isinstance(x, torch.Tensor)}
    order = {name: k for k, name in enumerate(numbers)}
    numbers = {name: x for name, x in numbers.items() if name in kept}
    passed: set[str] = set()
    launches = []
    for launched in recording.launches:
        described = describe(*launched, index, {} if derives else numbers, order, passed)
        if described is None:
            return None
        launches.append(described)
    compared = sum(1 << k for name, k in order.items() if name not in passed or OTHER in passed)
    makes = tuple((tuple(t.shape), t.stride(), t.dtype) for t in recording.made)
    compiled = [launched[-1] for launched in recording.launches]

    def binaries() -> list[str]:
        return [binary(c.metadata.name, c.asm["cubin"]) for c in compiled]

    return Lesson(tuple(launches), compared, None, makes, compiled, binaries=binaries)


def describe(
    kernel: Any, args: tuple, kwargs: dict[str, Any], grid: Any, compiled: Any, index: dict[int, int], numbers: dict[str, Any],
    order: dict[str, int], passed: set[str],
) -> Launch | None:  # fmt: skip
    """One launch; None where it is of a kind that is not known here.  Adds to `passed` the call's numbers that are arguments as they
    are, under their own names; and OTHER where there is another float."""
    metadata, blob = compiled.metadata, bytearray()
    parameters, pointers, filled = [], [], []
    if getattr(metadata, "num_ctas", 1) != 1 or any(n != 1 for n in getattr(metadata, "cluster_dims", None) or ()):
        return None
    if any(getattr(metadata, name, 0) for name in ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")):
        return None
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
            if id(value) not in index:
                return None
            pointers.append((len(blob), index[id(value)], 0))
            data = bytes(8)
        elif kind in PASSED and isinstance(value, (int, float)):
            same = name in numbers and type(value) is type(numbers[name]) and value == numbers[name]
            if same and kind in ("fp64", "i64") and (position,) not in assumed:  # compiled for any value
                filled.append((len(blob), order[name], 8))
                passed.add(name)
            elif kind.startswith("f"):
                passed.add(OTHER)
            data = bytes(PASSED[kind](value))
        else:
            return None
        widths.append(len(data))
        blob += data.ljust(8, bytes(1))
    declared = entry(compiled.asm["ptx"])
    if declared is None or declared[: len(widths)] != widths:
        return None
    scratch = declared[len(widths) :]  # memory of its own, of which it has none
    if len(scratch) > 2 or any(width != 8 for width in scratch):
        return None
    for _ in scratch:
        parameters.append(len(blob))
        blob += bytes(8)
    x, y, z = (*grid, 1, 1)[:3]
    threads = metadata.num_warps * 32
    if any(int(own) != threads for own in re.findall(r"\.(?:req|max)ntid\s+(\d+)", compiled.asm["ptx"])):
        return None
    return Launch(
        True, compiled.function, (x, y, z), (threads, 1, 1), metadata.shared, 1, bytes(blob), tuple(parameters), 0, tuple(pointers),
        tuple(filled),
    )  # fmt: skip


def entry(ptx: str) -> list[int] | None:
    """The bytes of each parameter of the one kernel in a PTX text; None where there are several."""
    found = re.findall(r"\.entry\s+[\w$.]+\s*\((.*?)\)", ptx, re.S)
    if len(found) != 1:
        return None
    sizes = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z](\d+)", found[0])
    return [int(size) // 8 for size in sizes] if len(sizes) == found[0].count(".param") else None
