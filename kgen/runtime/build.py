"""C++ source to loaded library, with the system's compiler.

In: a source and its name.  Out: a `ctypes.CDLL`, from the cache where it was built before.  Compilers without OpenMP or
without glibc's vector library build the same source, for one thread or scalar functions.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from kgen.errors import KgenError, printed
from kgen.runtime import cache as disk

#: Without -ftree-pre and -fthread-jumps: g++ would share tests for NaN among branches, and no longer see a loop that it can vectorise, or
#: spend most of it on the branches' masks.  Vectors as wide as the processor has them: of itself g++ takes half of AVX-512's for Intel's.
FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fno-tree-pre",
    "-fno-thread-jumps", "-fPIC", "-shared", *(("-mprefer-vector-width=512",) if platform.machine() in ("x86_64", "AMD64") else ()),
)  # fmt: skip
#: What to try, in this order, until a compiler takes it.
CHOICES = (("-fopenmp", "-lmvec"), ("-fopenmp",), ("-fopenmp-simd", "-lmvec"), ("-fopenmp-simd",), ())


class NoCompiler(KgenError):
    """There is no C++ compiler."""


@cache
def compiler() -> str:
    """The C++ compiler: `CXX`, else the first of c++, g++, clang++ on the path.  Raises `NoCompiler`; `KgenError` where CXX names none."""
    if wanted := os.environ.get("CXX"):
        if found := shutil.which(wanted):
            return found
        raise KgenError(f"CXX names {printed(wanted, '')}, and there is no such program", help="name a C++ compiler, or unset CXX")
    for name in ("c++", "g++", "clang++"):
        if found := shutil.which(name):
            return found
    raise NoCompiler("there is no C++ compiler", help="install g++ or clang++, or name one in CXX")


@cache
def prove() -> None:
    """Raise `NoCompiler` where there is no C++ compiler, `KgenError` with its words where it builds not even a function: what fails then is
    no kernel's fault."""
    try:
        with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
            place = Path(folder) / "nothing.cpp"
            place.write_text('extern "C" int nothing() { return 0; }\n', encoding="utf-8")
            command = [compiler(), "-std=c++17", "-fPIC", "-shared", str(place), "-o", str(place.with_suffix(".so"))]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
            if not done.returncode and place.with_suffix(".so").exists():
                return
    except OSError as error:
        raise KgenError(f"the C++ compiler {compiler()} does not run: {error.strerror or error}", help=_OTHER) from None
    said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:8]) or "it said nothing"
    raise KgenError(f"the C++ compiler {compiler()} fails on an empty function (exit code {done.returncode}): {printed(said)}", help=_OTHER)


_OTHER = "name another compiler in CXX"


@cache
def _identity() -> str:
    """What a build depends on besides its source and flags: the compiler (by file) and, for -march=native, the processor."""
    real = Path(compiler()).resolve()
    status = real.stat()
    features = ""
    try:
        features = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Features"))), "")
    except OSError:
        pass
    return f"{real} {status.st_size} {status.st_mtime_ns} {platform.machine()} {platform.processor()} {features}"


def _loaded(path: str) -> ctypes.CDLL:
    """A library, on one thread in processes forked from here: OpenMP's threads do not live on there, and it would wait for them."""
    loaded = ctypes.CDLL(path)
    if not _openmp and hasattr(loaded, "omp_set_num_threads") and hasattr(os, "register_at_fork"):
        _openmp.append(loaded)
        os.register_at_fork(after_in_child=lambda: loaded.omp_set_num_threads(1))
    return loaded


_openmp: list[ctypes.CDLL] = []


@cache
def library(source: str, name: str) -> ctypes.CDLL:
    """The library built from a C++ source.  Raises `NoCompiler` where there is none, `KgenError` where it refuses."""
    entry = disk.key("cpp", source, " ".join(FLAGS), _identity())
    found = disk.read(entry, ".so")
    if found is not None:
        try:
            return _loaded(str(found[0]))
        except OSError:
            pass  # built for another C library, say: build again
    payload = build(source, name)
    path = disk.write(entry, ".so", payload)
    if path is not None:
        try:
            return _loaded(str(path))
        except OSError:
            pass  # removed meanwhile, or nothing there may be executed
    try:
        with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
            place = Path(folder) / f"{name}.so"
            place.write_bytes(payload)
            return _loaded(str(place))
    except OSError as error:
        raise _no_room(name, error) from None


def _no_room(name: str, error: OSError) -> KgenError:
    return KgenError(f"the kernel {name} cannot be built: {error}", help="TMPDIR names the folder for temporary files")


_working: list[tuple[str, ...]] = []


def build(source: str, name: str, flags: tuple[str, ...] | None = None) -> bytes:
    """The bytes of the shared library of a C++ source.  Raises `KgenError` where the compiler refuses, or there is no room to build."""
    flags = flags or FLAGS
    said = ""
    try:
        with tempfile.TemporaryDirectory(prefix="kgen-") as folder:
            place = Path(folder) / f"{name}.cpp"
            place.write_text(source, encoding="utf-8")
            target = place.with_suffix(".so")
            for extra in _working or CHOICES:
                libraries = [x for x in extra if x.startswith("-l")]
                command = [compiler(), *flags, *(x for x in extra if x not in libraries), str(place), "-o", str(target), *libraries, "-lm"]
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
                if done.returncode == 0:
                    _working[:] = [extra]
                    return target.read_bytes()
                said = said or done.stderr
    except OSError as error:
        raise _no_room(name, error) from None
    errors = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["it said nothing"]
    raise KgenError(
        f"{compiler()} does not build the kernel {name}: {errors[0].strip()}", help='target="torch" evaluates it without a compiler'
    )
