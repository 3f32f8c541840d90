"""The tables that commands print."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click


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
