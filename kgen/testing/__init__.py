"""Holding kernels to what they mean: exact references, derived bounds, random cases, sweeps over every operator.

For users' own tests: `check` a kernel, against a torch function or by itself, and `arguments`, a Hypothesis strategy of a
kernel's arguments.  Nothing is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgen.testing.against import check
    from kgen.testing.checks import CheckFailed, Report, Reports
    from kgen.testing.strategies import arguments

_PLACES = {
    "check": "against",
    "CheckFailed": "checks",
    "Report": "checks",
    "Reports": "checks",
    "arguments": "strategies",
}
__all__ = ["CheckFailed", "Report", "Reports", "arguments", "check"]


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        from importlib import import_module

        return getattr(import_module(f"kgen.testing.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'kgen.testing' has no attribute {name!r}")
