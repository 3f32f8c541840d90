"""The folders of templates: what renders them, and the names that they use where a writer's names stand too."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kgen.resources import resource

if TYPE_CHECKING:
    import jinja2


@cache
def environment(folder: Path) -> jinja2.Environment:
    """Jinja's environment over a target's folder and the one above it.  It is imported when the first source is written."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, folder.parent]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="%%",
        autoescape=False,
    )


@cache
def listed(folder: Path) -> dict[str, frozenset[str]]:
    """The names that each of a target's templates uses where the writer's names stand too, as their `{# names: ... #}` list them."""
    lists = {path.name: path.read_text().split("{# names:")[1:] for path in sorted(folder.glob("*.jinja"))}
    return {file: frozenset(name for names in found for name in names.partition("#}")[0].split()) for file, found in lists.items()}


@cache
def identifiers_of(folder: Path) -> frozenset[str]:
    """The names that a target's templates use where the writer's names stand too, and those that they give to modules."""
    functions = [path.name.split(".")[0] for path in (folder / "functions").glob("*")]
    lines = (line for path in sorted(folder.rglob("*.py*")) for line in path.read_text().splitlines())
    return frozenset().union(*listed(folder).values(), functions, *map(_defined, lines))


def _defined(line: str) -> list[str]:
    """The names that a line of a Python module gives to it, where it begins one of its statements."""
    match line[:1].strip() and line.replace("(", " ").replace(",", " ").split():
        case ["def" | "class", name, *_] | ["import", name] | [name, "=", *_]:
            return [name.rstrip(":")]
        case ["from", _, "import", *names]:
            return names
    return []


@lru_cache(maxsize=16)
def row_names(others: frozenset[str]) -> frozenset[str]:
    """Names that only the templates of passes over rows use, not these others: free in kernels without such passes."""
    own: set[str] = set()
    for folder in sorted({path.parent for path in resource("templates").glob("*/*.jinja")}):
        for name, names in listed(folder).items():
            if name.startswith("row"):
                own |= names
            else:
                others |= names
    return frozenset(own - others)
