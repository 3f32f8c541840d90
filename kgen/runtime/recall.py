"""First calls that an earlier process made: what it launched is read back from the cache, and the spec is not even parsed.

In: the text of a spec; then a call.  Out: a `Kernel` whose spec is checked when anything asks for it; then the call's results
(`kgen.runtime.again`), by the extension of `kgen.runtime.fast` alone.  Two kinds of entries in the cache make that: a *head* says
that a text was checked and what its parameters are; a *recipe* belongs to a head and the layout of a call's tensors, and has the plan
and the variant that such a call left behind.  The machine code lies in entries of its own.

All are of this kgen (by its files), this torch and this kind of device: whatever changed, they are not found, and everything
goes its usual way.  So it does for the first call of a new layout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgen.errors import KgenError
from kgen.resources import resource
from kgen.runtime import cache as disk

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel

#: Recipes that a kernel leaves in one process: its first layouts.
RECIPES = 8
#: The kinds of devices whose launches can be read back.
DEVICES = {"cuda"}


@cache
def own() -> str:
    """What tells this kgen from another: the names, sizes and times of its files, and of Triton's."""
    found = [line for folder in {Path(__file__).parents[1], resource("templates")} for line in _files(folder)]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin:
        found.append(f"{triton.origin} {os.stat(triton.origin).st_mtime_ns}")
    return disk.key(*sorted(found))


def _files(folder: Path) -> Iterator[str]:
    """A line for each file below a folder that has a say in what is launched."""
    folders, start = [str(folder)], len(str(folder.parent))
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if not entry.is_dir():
                    status = entry.stat()
                    yield f"{entry.path[start:]} {status.st_size} {status.st_mtime_ns}"
                elif entry.name not in ("__pycache__", "specs"):
                    folders.append(entry.path)


def possible() -> bool:
    """Whether there may be anything to recall: where a GPU is in use, and the extension allowed."""
    torch = sys.modules.get("torch")
    usable = torch is not None and "cuda" in DEVICES and torch.cuda.is_initialized()
    return usable and not _extended() and os.environ.get("KGEN_FASTCALL", "1") != "0"


def _extended() -> bool:
    """Whether operators were registered: a text may mean something else in another process."""
    ops = sys.modules.get("kgen.ops")
    return ops is not None and bool(ops.REGISTERED)


def _entry(*parts: str) -> str:
    import torch

    return disk.key("recall", own(), torch.__version__, *parts)


def read(name: str) -> Any:
    found = disk.read(name, ".json")
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:
        return None


# ----------------------------------------------------------------------------------------------------------------- heads


def head(text: str, name: str) -> dict[str, Any] | None:
    """What an earlier process kept of a spec's text: its name, documentation and parameters.  Where that is nothing, there will be
    something to compile, and NVRTC gets ready."""
    import torch

    found = read(_entry("head", text, name))
    if found is None and torch.version.hip is None:
        from kgen.runtime import driver

        try:
            driver.warm_up(driver.arch_of(torch.cuda.current_device()))
        except KgenError:
            pass  # no driver that kgen can use: who needs one will hear of it
    return found


def _keep_head(kernel: Kernel, text: str, name: str) -> None:
    params = []
    for p in kernel.kernel.params:
        params.append([p.name, "t" if p.is_tensor else p.dtype[0]])
    made = {
        "name": kernel.name, "doc": kernel.doc, "params": params, "defaults": [_plain(d) for d in kernel._calls.defaults],
        "fresh": len(kernel._calls.fresh), "optional": kernel._optional,
        "drawn": kernel._drawn,
    }  # fmt: skip
    disk.write(_entry("head", text, name), ".json", json.dumps(made).encode())


def _plain(default: Any) -> Any:
    """A default as JSON has it, which is exact for floats; None where there is none."""
    return default if isinstance(default, (int, float)) else None


# --------------------------------------------------------------------------------------------------------------- recipes


def layout_entry(text: tuple[str, str], args: tuple, keywords: dict[str, Any], arch: str) -> str | None:
    """The entry of a call's layout; None where its tensors are none that have one."""
    import torch

    parts = []
    for where, x in (*enumerate(args), *sorted(keywords.items())):
        for t in x if isinstance(x, tuple) else (x,):
            if type(t) in (torch.Tensor, torch.nn.Parameter):
                keys = torch._C._dispatch_keys(t).raw_repr()
                parts.append(f"{where} {keys} {t.dtype} {tuple(t.shape)} {t.stride()} {t.data_ptr() % 16}")
            elif isinstance(t, torch.Tensor):
                return None
            else:
                parts.append(f"{where} {t}" if where == "target" else f"{where} {type(t)}")
    return _entry("recipe", *text, arch, disk.setting(f"{arch}.json"), *parts)


def keep(kernel: Any, plan: Any, args: tuple, keywords: dict[str, Any], results: int, marked: list[int], taught: Any) -> None:
    """Write down what a call left behind, for processes to come; not of launches that depend on a call's numbers.  `marked` are the
    tensors to mark as written."""
    text = kernel._text
    if text is None or _extended() or plan.device.type not in DEVICES or kernel._recipes >= RECIPES:
        return
    if taught.derive or taught.compared or not taught.binaries:
        return
    recipe = layout_entry(text, args, keywords, arch(plan.device))
    entries = taught.binaries() if recipe is not None else None
    if entries is None or recipe is None:
        return
    kernel._recipes += 1
    if kernel._recipes == 1:
        _keep_head(kernel, *text)
    made = {
        "makes": [_shape(*make) for make in plan.makes], "results": results, "pairs": plan.pairs,
        "empty": sorted(plan.zeros), "written": marked, "aligned": taught.aligned, "quick": plan.quick,
        "extra": [_shape(*make) for make in taught.makes],
        "launches": [
            {**launch._asdict(), "function": entry, "arguments": launch.arguments.hex()}
            for launch, entry in zip(taught.launches, entries, strict=True)
        ],
    }  # fmt: skip
    disk.write(recipe, ".json", json.dumps(made).encode())


def _shape(shape: Any, strides: Any, dtype: Any, large: bool = False) -> list[Any]:
    return [list(shape), list(strides), str(dtype).removeprefix("torch."), large]


def binary(name: str, cubin: bytes) -> str:
    """The entry of a kernel's machine code, written where it was not; `name` is what the code calls the kernel."""
    entry = disk.key("recalled", name, cubin)
    if disk.read(entry, ".cubin") is None:
        disk.write(entry, ".cubin", packed(name, cubin))
    return entry


def packed(name: str, cubin: bytes) -> bytes:
    """A kernel's name and machine code in one."""
    return struct.pack("<I", len(name.encode())) + name.encode() + cubin


def unpacked(payload: bytes) -> tuple[str, bytes]:
    """Raises `ValueError` where it is nothing that `packed` made."""
    try:
        (length,) = struct.unpack_from("<I", payload)
        return payload[4 : 4 + length].decode(), payload[4 + length :]
    except struct.error as error:
        raise ValueError(str(error)) from None


def arch(device: Any) -> str:
    from kgen.runtime import driver

    return device.type if device.type == "cpu" else driver.arch_of(device.index or 0)
