"""The cache on disk: built artifacts under names that hash everything they were made of.

An entry is one file: the payload, then a SHA-256 of its name and payload.  It is written beside its place and renamed
into it, and verified when read; so any number of processes may start at once, and a torn or altered entry counts as
missing.  The folder must be the user's own.  Where it cannot be used, `folder` is None and callers build in memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from functools import cache
from pathlib import Path

DIGEST = 32


@cache
def folder() -> Path | None:
    """The cache folder, made with mode 0700 if need be: `KGEN_CACHE_DIR`, else the platform's cache folder for kgen.

    None (with one warning) where it cannot be made, is not a folder, or is not the user's alone to write.
    """
    import platformdirs

    place = Path(os.environ.get("KGEN_CACHE_DIR") or platformdirs.user_cache_dir("kgen"))
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise OSError("it is not a folder")
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
            raise OSError("others may write to it")
        if not os.access(place, os.W_OK | os.X_OK):
            raise OSError("it is read-only")
    except OSError as error:
        warnings.warn(f"kgen builds in memory: the cache {place} cannot be used ({error})", stacklevel=2)
        return None
    return place


def key(*parts: str | bytes) -> str:
    """A name for what `parts` determine."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def _path(name: str, suffix: str) -> Path | None:
    place = folder()
    return None if place is None else place / f"{name}{suffix}"


def _sign(name: str, payload: bytes) -> bytes:
    return hashlib.sha256(name.encode() + payload).digest()


def read(name: str, suffix: str) -> tuple[Path, bytes] | None:
    """The file and payload of an entry; None where there is none or it does not verify."""
    path = _path(name, suffix)
    try:
        data = path.read_bytes() if path is not None else b""
    except OSError:
        return None
    payload = data[:-DIGEST]
    if path is None or len(data) <= DIGEST or data[-DIGEST:] != _sign(name, payload):
        return None
    return path, payload


def write(name: str, suffix: str, payload: bytes) -> Path | None:
    """Keep a payload; the file, or None where it could not be kept (a full disk, no folder)."""
    path = _path(name, suffix)
    if path is None:
        return None
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        with os.fdopen(handle, "wb") as file:
            file.write(payload + _sign(name, payload))
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
        return path
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return None
