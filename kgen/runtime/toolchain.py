"""Source to machine code with a target's own compiler, without a GPU: `kgen compile --build` and the last stages of
`kgen show`.

In: an emitted source.  Out: a file beside it, or a listing as text; `KgenError` names the tool that is missing.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kgen.check import Kernel, plain
from kgen.errors import KgenError
from kgen.types import Binding

#: nvcc's flags, as the emitted file's own header names them.
NVCC = ("-O3", "-std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false")
STAGES = {"cpp": ("asm",), "cuda": ("ptx", "sass"), "triton": ("ptx", "sass")}


def listing(kernel: Kernel, source: str, stage: str, target: str, bound: Binding, arch: str) -> str:
    """The PTX, SASS or assembly of a kernel for one choice of dtypes; on GPUs the variant for dense, aligned tensors.

    Raises `KgenError` where the target has no such stage, or a tool is missing.
    """
    if stage not in STAGES[target]:
        other = next((t for t, stages in STAGES.items() if stage in stages), None)
        if other is None:
            raise KgenError(f"there is no stage {stage}", help="`kgen show --help` lists the stages")
        raise KgenError(f"the target {target} has no {stage}", help=f"write `--target {other}`, or `--stage {STAGES[target][0]}`")
    if target == "cpp":
        return _assembly(kernel, source)
    if target == "cuda":
        made = _nvcc(kernel, source, bound, arch, stage)
        return made if isinstance(made, str) else _disassemble(made)
    return "\n".join(m if isinstance(m, str) else _disassemble(m) for _, m in _triton(kernel, bound, arch, stage))


def build_file(target: str, path: Path, kernel: Kernel, arch: str) -> list[Path]:
    """Compile an emitted file with its target's compiler: a shared library beside it, or for Triton a cubin a kernel.  Returns them.

    Raises `KgenError` with the compiler's words where it refuses, or names the tool that is missing.
    """
    if target == "cpp":
        from kgen.runtime.build import build

        made = [path.with_suffix(".so")]
        made[0].write_bytes(build(path.read_text(encoding="utf-8"), path.stem))
    elif target == "cuda":
        made = [path.with_suffix(".cu.so")]
        _run([_tool("nvcc"), *NVCC, f"-arch={arch}", "-Xcompiler", "-fPIC", "-shared", str(path), "-o", str(made[0])])
    else:
        made = []
        for name, cubin in _triton(kernel, dict(kernel.bindings()[0]), arch, "sass"):
            made.append(path.with_name(f"{name}.cubin"))
            made[-1].write_bytes(cubin)
    return made


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None and name in ("cuobjdump", "nvdisasm"):
        import importlib.util

        spec = importlib.util.find_spec("triton")  # Triton's package brings both
        places = [Path(p) / "backends" / "nvidia" / "bin" / name for p in (spec.submodule_search_locations or [])] if spec else []
        found = next((str(p) for p in places if p.exists()), None)
    if found is None:
        raise KgenError(f"{name} is not installed", help="it comes with the CUDA toolkit")
    return found


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if done.returncode:
        raise KgenError(f"{Path(command[0]).name} failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def _assembly(kernel: Kernel, source: str) -> str:
    from kgen.runtime.build import FLAGS, compiler

    flags = [f for f in FLAGS if f not in ("-shared", "-fPIC")]
    with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
        path = Path(folder) / f"{kernel.name}.cpp"
        path.write_text(source, encoding="utf-8")
        return _run([compiler(), *flags, "-fopenmp-simd", "-S", str(path), "-o", "-"])


def _nvcc(kernel: Kernel, source: str, bound: Binding, arch: str, stage: str) -> str | bytes:
    """PTX or machine code of the kernels that a call of a CUDA source on dense, aligned tensors launches."""
    from kgen.runtime.arguments import bind
    from kgen.runtime.nvrtc import expressions as launched
    from kgen.runtime.samples import arguments

    kernel, dtype = plain(kernel), next((d.name for d in bound.values()), "f32")
    expressions = launched(kernel, bind(kernel, (), arguments(kernel, dtype, 1 << 15, "cpu"), None), arch)
    instances = "\n".join(f"const void* kgen_instance_{k} = reinterpret_cast<const void*>(&{e});" for k, e in enumerate(expressions))
    with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
        path = Path(folder) / f"{kernel.name}.cu"
        path.write_text(f"#define __CUDACC_RTC__\n{source}\n{instances}\n", encoding="utf-8")
        made = path.with_suffix(".ptx" if stage == "ptx" else ".cubin")
        _run([_tool("nvcc"), *NVCC, f"-arch={arch}", f"-{made.suffix[1:]}", str(path), "-o", str(made)])
        return made.read_text() if stage == "ptx" else made.read_bytes()


def _triton(kernel: Kernel, bound: Binding, arch: str, stage: str) -> list[tuple[str, Any]]:
    """PTX or machine code of the kernels that a call of a Triton source on dense, aligned tensors launches, with their names."""
    try:
        import triton  # noqa: F401
    except ImportError:
        raise KgenError("triton is not installed", help="pip install triton") from None
    from kgen.runtime.arguments import bind
    from kgen.runtime.launchers import Triton
    from kgen.runtime.samples import arguments

    kernel, dtype = plain(kernel), next((d.name for d in bound.values()), "f32")
    made = triton_kernels(Triton(kernel), bind(kernel, (), arguments(kernel, dtype, 1 << 15, "cpu"), None), arch)
    return [(name, m.asm["ptx" if stage == "ptx" else "cubin"]) for name, m in made.items()]


@contextlib.contextmanager
def absent(arch: str) -> Iterator[None]:
    """Within, Triton compiles for a device of `arch`, which need not be there, wherever tensors lie.

    Raises `KgenError` for what is no architecture.
    """
    from unittest import mock

    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    match = re.fullmatch(r"sm_(\d+)a?", arch)
    if match is None:
        raise KgenError(f"{arch} is not an architecture", help="write it as sm_90")

    where = GPUTarget("cuda", int(match.group(1)), 32)

    class Absent:
        """A device that only says what it is."""

        def get_current_target(self) -> Any:
            return where

        def get_current_device(self) -> Any:
            return "absent", arch  # keeps what is compiled for it apart from the real ones'

        def get_current_stream(self, device: Any) -> int:
            return 0

    with mock.patch.object(torch.cuda, "device_of", lambda _: contextlib.nullcontext()), mock.patch.object(driver, "_active", Absent()):
        yield


def triton_kernels(launcher: Any, call: Any, arch: str) -> dict[str, Any]:
    """What a call of a Triton source launches on devices of `arch`: Triton's compiled kernels by their names, the last of each.

    Triton itself specialises and compiles them, for the call's own arguments, and launches nothing; the tensors may lie anywhere.
    Raises `KgenError` for what is no architecture.
    """
    from unittest import mock

    from triton.runtime.jit import JITFunction

    made: dict[str, Any] = {}

    def compiling(function: Any) -> Any:
        def run(*args: Any, warmup: bool, **options: Any) -> None:
            made[function.__name__] = JITFunction.run(function, *args, warmup=True, **options)

        return run

    functions = [f for f in vars(launcher.module).values() if isinstance(f, JITFunction)]
    with contextlib.ExitStack() as changed:
        changed.enter_context(absent(arch))
        for f in functions:
            changed.enter_context(mock.patch.object(f, "run", compiling(f)))
        launcher(call)
    return made


def _disassemble(cubin: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        return _run([_tool("cuobjdump"), "--dump-sass", str(path)])
