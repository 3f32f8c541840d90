"""Sizes as people write them."""

from __future__ import annotations

from typing import Any

import click


def fraction(text: str) -> Any:
    """A fraction such as 1/16 or 0.25, above 0 and at most 1."""
    from fractions import Fraction

    try:
        found = Fraction(text) if len(text) <= 20 else Fraction(0)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not 0 < found <= 1:
        raise click.UsageError(f"{text!r} is no fraction of a size; write 1/16")
    return found


def elements_of(text: str) -> int:
    """A count such as 4096 or 2^24."""
    base, _, power = text.strip().partition("^")
    if not base.isdigit() or power and not power.isdigit() or len(text) > 20 or int(power or 1) > 40:
        raise click.UsageError(f"{text!r} is not a number of elements; write 4096 or 2^24")
    count = int(base) ** int(power or 1)
    if not 1 <= count <= 2**33:
        raise click.UsageError(f"{text} elements are not between 1 and 2^33")
    return count
