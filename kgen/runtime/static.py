"""Static sources, with the planner of launches: a kernel for known dims and dtypes, on a target.

In: a checked kernel, sizes of its named dims, a dtype for each of its variables.  Out: the text of one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgen.backends import TARGETS, backend, static_writer
from kgen.backends.static import known
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.runtime.rows import along


def source(kernel: Kernel, target: str, sizes: Mapping[str, int], dtypes: Mapping[str, Sequence[str]]) -> str:
    """The whole source.  Raises `KgenError` where not all is known, or where no static kernel is written for it."""
    if not TARGETS[target].static:
        raise KgenError(f"{target} has no static sources", help="compile without --static")
    return static_writer(target)(backend(target), kernel, known(kernel, sizes, dtypes), along)
