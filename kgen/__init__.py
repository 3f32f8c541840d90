"""kgen turns a formula into a fused kernel that people can read, trust and ship.

`load`, `loads` and the decorator `kernel` give a `Kernel`: call it with torch tensors, or read its `source`.  `patch` has a model's layers
computed by kernels; `optim` has optimisers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kgen import hooks
from kgen.errors import KgenError
from kgen.version import __version__

if TYPE_CHECKING:
    from kgen import optim, testing
    from kgen.runtime.kernel import Kernel, kernel, load, loads
    from kgen.torch_op.patching import patch

__all__ = ["Kernel", "KgenError", "__version__", "kernel", "load", "loads", "optim", "patch", "testing"]


def __getattr__(name: str) -> Any:
    """What runs kernels is imported when it is first used, so that `import kgen` costs nothing."""
    if name in ("Kernel", "kernel", "load", "loads"):
        from kgen.runtime import kernel

        return getattr(kernel, name)
    if name == "patch":
        from kgen.torch_op.patching import patch

        return patch
    if name in ("optim", "testing"):
        return importlib.import_module(f"kgen.{name}")
    raise AttributeError(f"module 'kgen' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is to use, whether it is imported yet or not."""
    return sorted(__all__)


def _runnable() -> type:
    from kgen.runtime.kernel import Kernel

    return Kernel


def _call(kernel: Kernel, args: tuple, kwargs: dict[str, Any], out: Any, target: str | None) -> Any:
    from kgen.torch_op import call

    hooks.call = call  # from now on without an import
    return call(kernel, args, kwargs, out, target)


def _operator(kernel: Kernel) -> Any:
    from kgen.torch_op import operator

    return operator(kernel)


def _module(kernel: Kernel, *args: Any) -> Any:
    from kgen.torch_op.modules import module

    return module(kernel, *args)


def _show(kernel: Kernel, stage: str, target: str, dtypes: dict[str, str], arch: str, backward: bool) -> str:
    from kgen import show

    checked = kernel.kernel
    return show.show(checked, stage, target, show.binding(checked, tuple(f"{v}={d}" for v, d in dtypes.items())), arch, backward)


def _check(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    from kgen.testing.against import check

    return check(kernel, *args, **kwargs)


hooks.runnable, hooks.call, hooks.operator, hooks.module, hooks.show, hooks.check = _runnable, _call, _operator, _module, _show, _check
