"""Random words in CUDA: where a thread's neighbours share the four of one counter.

In: a source being made, and the functions that a pass calls.  Out: the name under which a kernel keeps words, an object that stands before
the function of that name, if one stream alone is drawn from: of two a counter would say nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from kgen.backends.base import Render

WORDS = "philox"


def kept_words(render: Render, calls: Collection[str]) -> tuple[str, ...]:
    """The name, where a pass that calls these functions keeps words; none where it does not."""
    if WORDS not in calls:
        return ()
    defs = render.plan.program.by_name | {let.name: let for p in render.plan.passes for let in p.lets}
    streams = {let.expr.operands[:2] for let in defs.values() if let.expr.name == WORDS}
    return (WORDS,) if len(streams) == 1 and not any(defs[o.name].dims for pair in streams for o in pair) else ()
