"""The cache on disk: built artifacts under names that hash everything they were made of.

An entry is one file: the payload, then a SHA-256 of its name and payload.  It is written beside its place and renamed
into it, and verified when read; so any number of processes may start at once, and a torn or altered entry counts as
missing.  The folder must be the user's own.  Where it cannot be used, `folder` is None and callers build in memory; of that,
and of the first entry that could not be written, one warning tells.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path

from kgen.errors import printed

DIGEST = 32
LARGEST = 1 << 30  # bytes of an entry: a file of more is none of kgen's
ABANDONED = 600  # seconds after which what a process was writing when it died is removed


@cache
def folder() -> Path | None:
    """The cache folder, made with mode 0700 if need be: `KGEN_CACHE_DIR`, else the platform's cache folder for kgen.

    None (with one warning) where it cannot be made, is not a folder, or is not the user's alone to write.
    """
    place = Path(os.environ.get("KGEN_CACHE_DIR") or usual("cache"))
    try:
        if place.parts[:1] == ("~",):
            raise OSError("there is no home folder")
        place = Path(os.path.abspath(place))  # the same one wherever the process goes
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise OSError("it is not a folder")
        if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
            raise OSError("others may write to it")
        above = place.parent.stat().st_mode
        if above & stat.S_IWOTH and not above & stat.S_ISVTX:
            raise OSError("others may put another in its place")
        if not os.access(place, os.W_OK | os.X_OK):
            raise OSError("it is read-only")
    except OSError as error:
        warnings.warn(printed(f"kgen builds in memory: the cache {place} cannot be used ({error})", ""), stacklevel=2)
        return None
    return place


def usual(kind: str) -> str:
    """The user's folder for kgen's files of a kind, "cache" or "config".  On Linux it is worked out here, as platformdirs would: to import
    that takes longer than all else that a cache needs."""
    if sys.platform == "linux":
        base = os.environ.get(f"XDG_{kind.upper()}_HOME", "").strip()
        return os.path.join(base if os.path.isabs(base) else os.path.expanduser(f"~/.{kind}"), "kgen")
    import platformdirs

    return {"cache": platformdirs.user_cache_dir, "config": platformdirs.user_config_dir}[kind]("kgen")


def settings() -> str:
    """Where the user's own settings lie: KGEN_CONFIG_DIR, else the usual folder for them."""
    return os.environ.get("KGEN_CONFIG_DIR") or usual("config")


def setting(name: str) -> str:
    """The text of one of the user's files of settings; nothing where there is none."""
    try:
        with open(os.path.join(settings(), name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


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


def _sign(entry: str, payload: bytes) -> bytes:
    return hashlib.sha256(entry.encode() + b"\0" + payload).digest()


def read(name: str, suffix: str) -> tuple[Path, bytes] | None:
    """The file and payload of an entry; None where there is none or it does not verify."""
    path = _path(name, suffix)
    if path is None:
        return None
    try:
        with open(path, "rb", opener=_plain) as file:
            data = file.read(LARGEST + 1)
    except OSError:
        return None
    payload = data[:-DIGEST]
    if not DIGEST < len(data) <= LARGEST or data[-DIGEST:] != _sign(name + suffix, payload):
        return None
    return path, payload


def _plain(path: str, flags: int) -> int:
    """Opens a file of the user's own: no link, and nothing that one would wait for."""
    handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST or hasattr(os, "getuid") and found.st_uid != os.getuid():
            raise OSError("it is no entry")
    except OSError:
        os.close(handle)
        raise
    return handle


def write(name: str, suffix: str, payload: bytes) -> Path | None:
    """Keep a payload; the file, or None where it could not be kept (a full disk, no folder)."""
    path = _path(name, suffix)
    if path is None:
        return None
    temporary = None
    try:
        _sweep(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        with os.fdopen(handle, "wb") as file:
            file.write(payload + _sign(name + suffix, payload))
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
        return path
    except OSError as error:
        if temporary is not None:
            try:
                os.unlink(temporary)
            except OSError:
                pass  # the folder went, or became read-only
        _lost(path.parent, error.strerror or str(error))
        return None


def _sweep(place: Path) -> None:
    """Remove what processes that died left half written."""
    with os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(".writing-"):
                try:
                    if abs(time.time() - entry.stat(follow_symlinks=False).st_mtime) > ABANDONED:
                        os.unlink(entry.path)
                except OSError:
                    pass  # another process was first


_told: set[Path] = set()


def _lost(place: Path, why: str) -> None:
    if place not in _told:
        _told.add(place)
        warnings.warn(printed(f"kgen keeps nothing of what it builds: the cache {place} cannot be written ({why})", ""), stacklevel=3)
