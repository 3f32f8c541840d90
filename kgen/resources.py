"""Where the package's own files lie, that are not Python, and which specs are among them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

#: The family of specs that no other one names.
OTHERS = "others"


@cache
def resource(kind: str) -> Path:
    """The folder of `templates` or `specs`: inside the package where it is installed, beside it in a checkout."""
    inside = Path(__file__).parent / kind
    return inside if inside.is_dir() else Path(__file__).parents[1] / kind


@cache
def _named() -> dict[str, list[str]]:
    """The families in their order, each with the specs that `specs/FAMILIES` names; those in the family's folder are not among them."""
    lines = (resource("specs") / "FAMILIES").read_text(encoding="utf-8").splitlines()
    return {family: names.split() for family, _, names in (line.partition(":") for line in lines if line and line[0] != "#")}


def families() -> dict[str, list[Path]]:
    """The files of the bundled specs by family: those that `specs/FAMILIES` names, then those in the family's folder, by name."""
    folder, named = resource("specs"), _named()
    found = {family: [folder / f"{n}.k" for n in names] + sorted((folder / family).glob("*.k")) for family, names in named.items()}
    known = {path for paths in found.values() for path in paths}
    others = [path for path in sorted(folder.glob("*.k")) if path not in known]
    return found | ({OTHERS: others} if others else {})


def bundled(name: str) -> Path | None:
    """The file of a bundled spec by its name, with its folder or without (`gelu`, `norms/polynorm`, `polynorm`); None where there is
    none."""
    if len(name) > 250:  # no file system has such a name, and some say so by an error
        return None
    folder = resource("specs")
    places = (folder, *(folder / family for family in _named())) if "/" not in name else (folder,)
    return next((path for place in places if (path := place / f"{name}.k").is_file()), None)
