"""kgen turns a formula into a fused kernel that people can read, trust and ship.

`load`, `loads` and the decorator `kernel` give a `Kernel`: call it with torch tensors, or read its `source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgen.errors import KgenError

if TYPE_CHECKING:
    from kgen.runtime.kernel import Kernel, kernel, load, loads

__version__ = "0.1.0"
__all__ = ["Kernel", "KgenError", "__version__", "kernel", "load", "loads"]


def __getattr__(name: str) -> Any:
    """`load`, `loads`, `kernel` and `Kernel` are imported when first used, so that `import kgen` costs nothing."""
    if name in ("Kernel", "kernel", "load", "loads"):
        from kgen.runtime import kernel

        return getattr(kernel, name)
    raise AttributeError(f"module 'kgen' has no attribute {name!r}")
