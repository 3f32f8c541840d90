"""How rows are shared out on the GPUs that were measured: a small table, and what a user's own `kgen tune` put before it.

A *ladder* is for one kind of pass: "once" holds a row on the chip behind one reading that reduces, "again" behind several, "read" holds
nothing.  Its steps go by the row's length in whole 16-byte vectors; the first that is long enough holds.  What follows from a step (the
threads of a team, the vectors of each) decides the order in which a row is combined, so nothing but the length may choose it.
"""

from __future__ import annotations

import json
import os
import warnings
from functools import cache
from typing import NamedTuple


class Step(NamedTuple):
    """For rows of up to `longest` vectors: teams of `team` threads (a power of two, or 0: a block for a row), blocks of up to `threads`,
    each thread with `vectors` at a time, `blocks` of them on a multiprocessor; the row in "registers", "shared" memory, a "cluster"'s,
    or "loop" (read each time)."""

    longest: int
    threads: int
    team: int
    vectors: int
    blocks: int
    where: str


#: From searches on an H200 (bf16 and f32, 2^28 and 2^27 elements, rows of whole vectors).
SHIPPED: dict[str, dict[str, tuple[Step, ...]]] = {
    "sm_90": {
        "once": (
            Step(64, 128, 32, 2, 8, "registers"),
            Step(128, 128, 32, 4, 8, "registers"),
            Step(256, 64, 0, 4, 16, "registers"),
            Step(512, 256, 0, 2, 8, "registers"),
            Step(1024, 512, 0, 2, 4, "registers"),
            Step(2048, 256, 0, 8, 4, "registers"),
            Step(4096, 512, 0, 8, 2, "registers"),
            Step(8192, 1024, 0, 8, 1, "shared"),
            Step(32768, 256, 256, 8, 4, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "again": (
            Step(64, 128, 32, 2, 8, "registers"),
            Step(128, 128, 32, 4, 8, "registers"),
            Step(256, 64, 0, 4, 16, "registers"),
            Step(512, 256, 0, 2, 8, "registers"),
            Step(1024, 256, 0, 4, 4, "registers"),
            Step(2048, 256, 0, 8, 4, "registers"),
            Step(4096, 512, 0, 8, 2, "registers"),
            Step(8192, 1024, 0, 8, 1, "shared"),
            Step(32768, 256, 256, 8, 6, "cluster"),
            Step(65536, 512, 512, 8, 3, "cluster"),
        ),
        "read": (
            Step(128, 128, 16, 8, 6, "loop"),
            Step(2048, 128, 32, 4, 6, "loop"),
            Step(8192, 128, 128, 4, 8, "loop"),
            Step(49152, 256, 256, 4, 4, "loop"),
        ),
    },
}  # fmt: skip


def folder() -> str:
    """Where `kgen tune --save` keeps its tables: KGEN_CONFIG_DIR, else the user's own folder for settings."""
    import platformdirs

    return os.environ.get("KGEN_CONFIG_DIR") or platformdirs.user_config_dir("kgen")


@cache
def ladders(arch: str) -> dict[str, tuple[Step, ...]]:
    """The ladders for an architecture ("sm_90") by the kind of pass; none where it was not measured.  Of the user's own, steps that no
    launch could follow are left out, with a warning."""
    found = dict(SHIPPED.get(arch, {}))
    path = os.path.join(folder(), f"{arch}.json")
    try:
        with open(path, encoding="utf-8") as file:
            own = json.load(file)
    except (OSError, ValueError, RecursionError):
        return found  # none kept, or not as `kgen tune` writes it
    wrong = 0
    for kind in KINDS if isinstance(own, dict) else ():
        given = own.get(kind)
        if not isinstance(given, list):
            continue
        steps = [Step(*s) for s in given if isinstance(s, list) and len(s) == len(Step._fields)]
        steps = [s for s in steps if sound(kind, s)]
        wrong += len(given) - len(steps)
        if steps:
            found[kind] = tuple(sorted(steps))
    if wrong:
        said = f"kgen leaves out {wrong} of the steps in {path}, which no launch could follow; `kgen tune --save` makes others"
        warnings.warn(said, stacklevel=2)
    return found


def sound(kind: str, step: Step) -> bool:
    """Whether launches can follow a step in rows up to its length, and their teams have vectors enough for all of such a row."""
    numbers = step[:-1]
    if not all(type(n) is int for n in numbers) or min(numbers) < 0 or step.longest < 1:
        return False
    longest, threads, team, vectors, blocks, where = step
    if not (32 <= threads <= 1024 and threads % 32 == 0 and 1 <= vectors <= 16):
        return False
    if team & (team - 1) or team > 32 and team != threads or where == "cluster" and threads & (threads - 1):
        return False
    if not (1 <= blocks <= 32 and threads * blocks <= 2048):
        return False
    if where == "registers":
        return longest <= (team or 1024) * vectors
    if where == "shared":  # at least 128 threads, for rows that begin within a vector
        return kind != "read" and team == 0 and threads >= 128 and longest <= threads * vectors
    return where == "loop" and team > 0 or where == "cluster" and kind != "read"


KINDS = ("once", "again", "read")


def kind(held: bool, reductions: int) -> str:
    """The kind of a pass, by whether rows are held and how many readings reduce them."""
    return KINDS[2] if not held else KINDS[min(reductions, 2) - 1] if reductions else KINDS[0]


def ladder(arch: str, held: bool, reductions: int) -> tuple[Step, ...]:
    """The ladder for a pass on an architecture."""
    return ladders(arch).get(kind(held, reductions), ())
