"""Files that are written, each whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from kgen.errors import KgenError, printed


def write_file(path: Path, text: str, help: str = "") -> None:
    """Write a file; one that is there keeps its mode, and is written where a link points.  Raises `KgenError`, with this help, where it
    cannot be written."""
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(temporary, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cannot_write(path, error, help) from None


def writable(*paths: str | Path | None) -> None:
    """Raise `KgenError` where a file cannot be written, before there is anything to write; its folder is made."""
    for path in (Path(p) for p in paths if p is not None):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:50]}-"):
                pass
        except OSError as error:
            raise cannot_write(path, error) from None


def cannot_write(path: str | Path, error: OSError, help: str = "") -> KgenError:
    return KgenError(f"cannot write {printed(str(path), '')}: {(error.strerror or str(error)).lower()}", help=help)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
