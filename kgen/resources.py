"""Where the package's own files lie, that are not Python."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def resource(kind: str) -> Path:
    """The folder of `templates` or `specs`: inside the package where it is installed, beside it in a checkout."""
    inside = Path(__file__).parent / kind
    return inside if inside.is_dir() else Path(__file__).parents[1] / kind


__all__ = ["resource"]
