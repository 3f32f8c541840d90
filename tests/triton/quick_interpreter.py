"""Imported by the scripts that run under Triton's interpreter: a function that a kernel calls patches the language once, not in each call.

The interpreter goes through every name of `triton.language` whenever one of its functions calls another, which takes half of its time;
what is patched already stays as it is, with this or without.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.runtime import interpreter

whole = getattr(interpreter, "_patch_lang", None)


def patched(fn: Any) -> Any:
    """The scope of what is patched for a function: nothing, where all that it sees of the language is."""
    seen = [lang for lang in (tl, tl.core) if any(value is lang for value in fn.__globals__.values())]
    if not seen or any(tl.core.is_builtin(lang.load) for lang in seen):
        return whole(fn)
    return interpreter._LangPatchScope()


if whole is not None and hasattr(interpreter, "_LangPatchScope"):
    interpreter._patch_lang = patched
