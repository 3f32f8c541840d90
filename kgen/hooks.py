"""What the runtime asks of layers above it, which it may not import.

`kgen/__init__.py`, which stands above those and has run before anything else of kgen is imported, says what these are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: The class of runnable kernels, whose calls the extension of `kgen.runtime.fast` takes over.
runnable: Callable[[], type]
#: A call that is traced or transformed, differentiated, or whose tensors are no plain ones: `(kernel, args, kwargs, out, target)`.
call: Callable[..., Any]
#: A kernel's registered operator, its `nn.Module`, its text at a stage, its check (`Kernel.op`, `.module`, `.show` and `.check`).
operator: Callable[..., Any]
module: Callable[..., Any]
show: Callable[..., str]
check: Callable[..., Any]
