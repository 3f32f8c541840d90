"""What commands write: files, each whole or not at all, and tables."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from kgen.errors import KgenError, printed


def write_all(files: dict[Path, str], help: str = "") -> list[Path]:
    """Write files, each whole or not at all; one that is there keeps its mode, and is written where a link points.  Raises `KgenError`,
    with this help, where a folder or file cannot be written."""
    for path, text in ((Path(os.path.realpath(p)) if p.is_symlink() else p, t) for p, t in files.items()):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
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
    return list(files)


def cannot_write(path: str | Path, error: OSError, help: str = "") -> KgenError:
    return KgenError(f"cannot write {printed(str(path), '')}: {(error.strerror or str(error)).lower()}", help=help)


def writable(*paths: str | Path | None) -> None:
    """Raise `KgenError` where a file cannot be written, before there is anything to write; its folder is made."""
    for path in (Path(p) for p in paths if p is not None):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:50]}-"):
                pass
        except OSError as error:
            raise cannot_write(path, error) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> None:
    """Columns as wide as their widest cell, two spaces apart; heads dim on a terminal."""
    widths = [max(len(str(row[k])) for row in [heads, *rows]) for k in range(len(heads))]

    def line(row: tuple[str, ...]) -> str:
        return "  ".join(
            str(c).rjust(w) if k in right else str(c).ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    head = line(heads)
    click.echo(click.style(head, dim=True) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else head)
    for row in rows:
        click.echo(line(row))


class Lines:
    """A table whose lines are printed as they come: each column as wide as what it is likely to hold, wider from the line on that needs
    it.  `left` columns are text, the others figures."""

    LEAST = {"kernel": 13, "dtype": 5, "task": 17, "elements": 13, "launched": 60, "us": 9, "best step": 29, "present step": 29}

    def __init__(self, heads: tuple[str, ...], left: int):
        self.heads, self.left, self.widths = heads, left, [max(len(h), self.LEAST.get(h, 7)) for h in heads]
        self.begun = False

    def add(self, cells: tuple[str, ...]) -> None:
        self.widths = [max(w, len(c)) for w, c in zip(self.widths, cells, strict=True)]
        if not self.begun:
            self.begun = True
            head = self.line(self.heads)
            click.echo(click.style(head, dim=True) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else head)
        click.echo(self.line(cells))
        sys.stdout.flush()

    def line(self, cells: tuple[str, ...]) -> str:
        return "  ".join(
            c.ljust(w) if k < self.left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, self.widths, strict=True))
        ).rstrip()
