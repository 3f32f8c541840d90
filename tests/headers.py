"""The headers that kgen's C++ sources begin with, read once in a run: g++ takes a quarter of a small kernel's build for them.

What g++ made of them (a precompiled header) is found by the first `#include` of a source, and holds what that source includes and
nothing else: a source that lacks one fails as it would without.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: The quicker of GNU's linkers, where it is installed: the other takes a fifth of a small kernel's build.
LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
#: g++ looks for memory that it needs no more when it has ten times as much, not a third more: the same code, some hundredths sooner.
SPACIOUS = ("--param", "ggc-min-expand=1000")


@contextlib.contextmanager
def read_once(folder: Path) -> Iterator[None]:
    """Builds find headers in `folder`, which the workers of a run have in common; the last of them removes it."""
    from kgen.runtime import build

    alone, compiler = build.build, build.compiler

    def building(source: str, name: str, flags: tuple[str, ...] | None = None) -> bytes:
        if build.compiler is not compiler or "CXX" in os.environ:  # a test's own
            return alone(source, name, flags)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CPLUS_INCLUDE_PATH", str(precompiled(folder, source, (compiler(), *(flags or build.FLAGS)))), prepend=os.pathsep)
            return alone(source, name, (*(flags or build.FLAGS), *LINKER, *SPACIOUS))

    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, (folder / "used").open("w") as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        patch.setattr(build, "build", building)
        yield
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def precompiled(folder: Path, source: str, command: tuple[str, ...]) -> Path:
    """The folder that has the headers of a source as g++ reads them with these flags, made where it is not there yet: one for each level
    of optimisation, since g++ takes those of another and fails in them."""
    names = [name for name in re.findall(r"^#include <(\w+)>$", source, re.M) if name != "limits"]  # some sources' alone
    if not names:
        return folder
    own = folder / hashlib.sha256(" ".join([*command, *names]).encode()).hexdigest()[:8]
    made = own / f"{names[0]}.gch"
    if not made.exists():
        own.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            text, done = Path(place) / "headers.h", Path(place) / "headers.gch"
            text.write_text("".join(f"#include <{name}>\n" for name in names))
            flags = [flag for flag in command if flag != "-shared"]
            subprocess.run([*flags, "-fopenmp", "-x", "c++-header", str(text), "-o", str(done)], capture_output=True, check=False)
            if done.exists():
                done.replace(made)
    return own
