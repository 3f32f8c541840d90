"""Python source to an imported module.

In: a source that Triton will compile, which reads it back from its file.  Out: the module.  The file lies in the cache
folder (verified when read), or in a private temporary folder that lives as long as the process.
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

from kgen.runtime import cache as disk


@cache
def import_source(source: str, name: str) -> ModuleType:
    """The module of a source, imported once a process."""
    folder = Path(tempfile.mkdtemp(prefix="kgen-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"kgen_{name}_{disk.key(source)[:12]}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
