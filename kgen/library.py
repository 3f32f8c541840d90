"""The bundled specs, by family: what `kgen list` tells of each.

A spec is a file of its family's folder under `specs/`, and nothing else has to name it.  What is told of it stands in the file: its header,
and the comment above.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kgen import syntax, typeset
from kgen.resources import families

#: Where the first sentence of a comment ends, or its source begins: a name, or what belongs to a library, in brackets.
_ENDS = re.compile(r"[.;](?:\s|$)| \((?=[A-Z]|[\w-]+[.'])")


@dataclass(frozen=True)
class Entry:
    """A bundled spec: its name, header on one line, what it computes in a few words, how many lines its file has, and the file."""

    name: str
    signature: str
    summary: str
    lines: int
    path: Path


def entry(path: Path) -> Entry:
    """What is told of a spec file.  Raises `KgenError` where it is no spec."""
    text = path.read_text(encoding="utf-8")
    file = syntax.parse(text, path.name)
    header = next(s for s in file.statements if isinstance(s, syntax.Header))
    signature = " ".join(typeset.format_header(header).split())
    return Entry(path.stem, signature, _ENDS.split(" ".join(file.doc().split()), maxsplit=1)[0], len(text.splitlines()), path)


def entries() -> dict[str, list[Entry]]:
    """The bundled specs by family, in the order in which they are listed."""
    return {family: [entry(path) for path in paths] for family, paths in families().items()}
