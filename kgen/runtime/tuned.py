"""The ladders (`kgen.backends.launches`) of the GPUs that were measured, and what a user's own `kgen tune` put before them."""

from __future__ import annotations

import json
import os
import warnings
from functools import cache

from kgen.backends.launches import KINDS, SHIPPED, Step, kind
from kgen.runtime import cache as disk


@cache
def ladders(arch: str) -> dict[str, tuple[Step, ...]]:
    """The ladders for an architecture ("sm_90") by the kind of pass; none where it was not measured.  Of the user's own, steps that no
    launch could follow are left out, with a warning."""
    found = dict(SHIPPED.get(arch, {}))
    try:
        own = json.loads(disk.setting(f"{arch}.json"))
    except (ValueError, RecursionError):
        return found  # none kept, or not as `kgen tune` writes it
    wrong = 0
    for name in KINDS if isinstance(own, dict) else ():
        given = own.get(name)
        if not isinstance(given, list):
            continue
        steps = [Step(*s) for s in given if isinstance(s, list) and 0 <= len(Step._fields) - len(s) <= len(Step._field_defaults)]
        steps = [s for s in steps if sound(name, s)]
        wrong += len(given) - len(steps)
        if steps:
            found[name] = tuple(sorted(steps))
    if wrong:
        path = os.path.join(disk.settings(), f"{arch}.json")
        said = f"kgen leaves out {wrong} of the steps in {path}, which no launch could follow; `kgen tune --save` makes others"
        warnings.warn(said, stacklevel=2)
    return found


def sound(kind: str, step: Step) -> bool:
    """Whether launches can follow a step in rows up to its length, and their teams have vectors enough for all of such a row."""
    numbers = step[:5]
    if not all(type(n) is int for n in numbers) or min(numbers) < 0 or step.longest < 1 or not all(type(flag) is bool for flag in step[6:]):
        return False
    longest, threads, team, vectors, blocks, where = step[:6]
    if not (32 <= threads <= 1024 and threads % 32 == 0 and 1 <= vectors <= 16):
        return False
    if team & (team - 1) or team > 32 and team != threads or where == "cluster" and threads & (threads - 1):
        return False
    if not (1 <= blocks <= 32 and threads * blocks <= 2048):
        return False
    if where == "registers":
        return longest <= (team or 1024) * vectors
    if where == "shared":  # a warp or the least block there is, which have threads for all that lies outside of a row's vectors
        return kind != "read" and (team == 32 or team == 0 and threads >= 64) and longest <= (team or threads) * vectors
    return where == "loop" and team > 0 or where == "cluster" and kind != "read"


def ladder(arch: str, held: bool, reductions: int, words: int, narrow: bool = False, pieces: bool = False) -> tuple[Step, ...]:
    """The ladder for a pass on an architecture; `words`: of a reading's result, `narrow`: whether bytes are made of a row,
    `pieces`: whether it goes by pieces of one."""
    return ladders(arch).get(kind(held, reductions, words, narrow, pieces), ())


__all__ = ["KINDS", "SHIPPED", "Step", "kind", "ladder", "ladders", "sound"]
