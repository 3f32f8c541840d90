"""How a pass over rows is launched on a CUDA device where all rows share parameters of columns, or several operands stay on the chip.

In and out: as `rows.py`.  Clusters of blocks stay, and take rows one after the other: what they hold of the parameters is read once, not
once a row, and rows are on their way while others are computed, however few blocks a multiprocessor has room for.  Who takes a row
follows from its length and layout alone.  Rows that begin within a vector are taken by clusters, or by blocks for themselves where they
are short, each of which takes rows that begin alike, so what is beside them is put together once too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from kgen.backends import devices, round_launches
from kgen.backends.launches import MOST_READINGS
from kgen.backends.shared import MAX_STATIC, declared
from kgen.runtime import strided
from kgen.runtime.rounds import RoundsPlan, each
from kgen.runtime.rows import RowPlan, Team, Walk
from kgen.runtime.strided import FAR, RowOperandPlace
from kgen.runtime.verified import verify_rounds


def plan(
    row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...], operands: tuple[RowOperandPlace, ...], gathers: int, reductions: int,
    words: int, arch: str,
) -> RoundsPlan | None:  # fmt: skip
    """How to walk a pass over rows, as `rows.plan` has it; None where rows are not long enough, or not whole vectors side by side.
    kgen_persistent_plan.cuh is this function in C++."""
    rows_, n = prod(row_sizes), prod(inner_sizes)
    limits = devices.limits(arch)
    if rows_ == 0 or not 0 < reductions <= MOST_READINGS // 2:
        return None
    memory = [k for k, o in enumerate(operands) if o.element and o.itemsize]
    main = strided.main_of(operands, memory)
    sizes, strides = strided.merged(inner_sizes, [o.strides for o in operands], main)
    outer_sizes, outer = strided.merged(row_sizes, [o.row_strides for o in operands], main)
    vec, edges, wide = strided.vectors(operands, memory, main, sizes, strides, outer, n)
    if vec == 1 or len(sizes) > 1 or any(strides[k][-1] != 1 if edges else not wide >> k & 1 for k in memory):
        return None
    if edges and len(outer_sizes) > 1:
        return None
    moving = [operands[k].itemsize for k in memory if operands[k].read and operands[k].row_dims]
    same = [operands[k].itemsize for k in memory if operands[k].read and not operands[k].row_dims]
    ahead = sum(not o.element for o in operands)
    alone = len(moving) == 1 and all(o.itemsize for o in operands if o.element)  # and no place of an element
    taken = _taken(n // vec, vec, edges, moving, same, words, reductions, ahead, alone, arch)
    if taken is None:
        return None
    team, stages = taken
    segments = max(1, team.cluster)
    room = devices.resident(arch, team.blocks, segments)
    if edges and 8 * (room % vec) > room:  # for each takes rows that begin alike, and who is left over takes none
        return None
    room -= room % vec if edges else 0
    groups = min(rows_, room)
    index64 = strided.furthest(rows_ + 8 * groups, n, sizes, strides, outer_sizes, outer) > FAR or rows_ * segments > FAR
    walk = Walk(
        team.threads, team.blocks, team.team, False, team.vectors, vec, edges, wide, main, False, team.keep, team.cluster > 0, -1,
        len(outer_sizes), 1, len(operands), max(1, gathers), index64, stages,
    )  # fmt: skip
    misaligned = operands[main].address // operands[main].itemsize % vec
    under = RowPlan(
        ((walk, groups),), rows_, n, segments, team.span, misaligned, words, outer_sizes, sizes, outer, strides, team.threads
    )  # fmt: skip
    shared = _rows(team, vec, edges, stages, moving)
    found = RoundsPlan(under, ((walk, groups * segments, team.threads, shared, segments),), 0, groups, groups, 1, 0)
    verify_rounds(found, operands, _static(team, words, reductions, ahead), limits, 0, 0, 0)
    return found


def fitted(planned: RoundsPlan, there: int) -> RoundsPlan:
    """The same on a device that has room for no more than so many of its clusters at once, by its own account: the last of more would
    wait for all before them.  Who takes a row decides nothing else.  As it was where that is too few for rows that begin alike."""
    ((walk, _, threads, shared, cluster),) = planned.launches
    there -= there % walk.vec if walk.edges else 0
    if not 0 < there < planned.groups:
        return planned
    under = replace(planned.under, steps=((walk, there),))
    return replace(planned, under=under, launches=((walk, there * cluster, threads, shared, cluster),), every=there, groups=there)


def _rows(team: Team, vec: int, edges: bool, stages: int, moving: Sequence[int]) -> int:
    """The shared memory of rows on their way: beside whole vectors those in which a row's first and last elements lie, one for each."""
    return (team.threads * team.vectors + 2 * vec * edges) * vec * each(stages, moving)


def _taken(
    chunks: int, vec: int, edges: bool, moving: Sequence[int], same: Sequence[int], words: int, readings: int, ahead: int, alone: bool,
    arch: str,
) -> tuple[Team, int] | None:  # fmt: skip
    """Who takes a row of `chunks` vectors, and how many rows are on their way; `moving` and `same` are the bytes of an element of each that
    moves along with rows, and of each that all rows share, which stays in registers; `ahead` operands may have one value a row; `alone`:
    whether a block may have a row by itself.  None where no rule has room for that."""
    if not moving or not same and (edges or words * readings > round_launches.ALONE_WORDS):
        return None
    limits = devices.limits(arch)
    table = round_launches.PERSISTENT_EDGES if edges else round_launches.PERSISTENT
    for rule in table[vec > 4, len(same) > 1] if same else round_launches.PERSISTENT_ALONE[vec > 4, len(moving) > 2]:
        block, vectors = rule.where == "block", max(1, rule.elements // vec)
        if chunks > rule.longest or block and (not alone or chunks > rule.threads * vectors):
            continue
        if rule.where == "none" or limits.cluster < 2:
            return None
        team = Team(rule.threads, rule.blocks, rule.threads, vectors, 3 + rule.once + 2 * rule.every, cluster=2)  # or more
        static, row = _static(team, words, readings, ahead), _rows(team, vec, edges, 2, moving) // 2
        fits = vectors * vec * sum(same) <= 4 * rule.parameters and static <= MAX_STATIC
        every = _rows(team, vec, edges, rule.stages, moving)
        blocks = max(1, min(rule.blocks, limits.shared // (every + static))) if fits else 1
        stages = min(rule.stages, (limits.shared // blocks - static) // row) if fits else 0
        if stages < min(rule.stages, 2) or not fits or rule.stages == 1 and every + static > limits.shared:
            if block:
                continue
            return None
        if block:
            return replace(team, blocks=blocks, span=rule.threads * vectors, cluster=0), stages
        span = _span(chunks, max(2, -(-chunks // (rule.threads * vectors))), blocks, arch)
        team = replace(team, blocks=blocks, span=span, cluster=-(-chunks // span))
        return (team, stages) if 2 <= team.cluster <= limits.cluster else None
    return None


def _span(chunks: int, least: int, blocks: int, arch: str) -> int:
    """What a block of a cluster takes of a row of `chunks` vectors: of a cluster of at least so many blocks, of up to a quarter more
    where clusters of so many leave fewer multiprocessors idle."""

    def span(count: int) -> int:
        return -(-chunks // (32 * count)) * 32

    def busy(count: int) -> int:
        cluster = -(-chunks // span(count))
        return cluster * devices.resident(arch, blocks, cluster)

    most = max(least, min(least * 5 // 4, devices.limits(arch).cluster))
    return span(max(range(least, most + 1), key=lambda count: (busy(count), -count)))


def _static(team: Team, words: int, readings: int, ahead: int) -> int:
    """The bytes of a kernel's own shared memory at most: a cluster's results of one row are read while those of the next arrive; operands
    that may have one value a row have room as `rounds.py` says."""
    return team.static(words, readings) + declared(team.threads, 1, False, True, words, readings) + ahead * team.threads


cached = lru_cache(4096)(plan)
