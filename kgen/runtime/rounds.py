"""How a pass over rows that also adds up columns is launched on a CUDA device.

In and out: as `rows.py`, whose rules hold for a row.  Teams take rows one after the other, some of them on their way to shared memory
while one is computed; each keeps a partial of every column, which it leaves in work space, and a last launch adds those up.

What decides the order in which a row is combined follows from its length, its layout and the architecture.  The order in which columns
are follows from these and the number of rows.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from math import prod

from kgen.backends import devices, launches, round_launches
from kgen.backends.devices import Limits
from kgen.backends.launches import MOST_READINGS, SECTOR
from kgen.backends.round_launches import COLUMN_LANES, FINISH, MOST_ROUNDS, Round
from kgen.backends.shared import MAX_STATIC, declared
from kgen.errors import KgenError
from kgen.runtime import rows, strided
from kgen.runtime.rows import RowPlan, Team, Walk
from kgen.runtime.strided import FAR, RowOperandPlace
from kgen.runtime.verified import verify_rounds


@dataclass(frozen=True)
class RoundsPlan:
    """The launches of a pass: each a way of walking with its grid, the threads of a block, shared memory and blocks of a cluster.

    `under` is the walk through a row; `groups` of blocks (or clusters) take `every` rows in a round; the columns' partials lie in the
    work space from the 32-bit word `columns` on; what a team adds up waits there after every `few` rows, or in `room` bytes of shared
    memory."""

    under: RowPlan
    launches: tuple[tuple[Walk, int, int, int, int], ...]
    columns: int
    every: int
    groups: int
    few: int
    work: int
    room: int = 0

    @property
    def rows(self) -> int:
        return self.under.rows

    def layout(self, gathers: Sequence[tuple[int, int]]) -> ctypes.Structure:
        """The kernel's layout argument; `gathers` are (size, stride) along the dim of each."""
        under = rows.layout(self.under, gathers, 0)
        made = _layout_type(type(under))()
        ctypes.memmove(ctypes.addressof(made), ctypes.addressof(under), ctypes.sizeof(under))
        made.columns, made.every, made.groups, made.few, made.room = self.columns, self.every, self.groups, self.few, self.room
        return made


@cache
def _layout_type(under: type[ctypes.Structure]) -> type[ctypes.Structure]:
    """The kernel's `Rounds<...>::Layout`."""
    more = [(name, ctypes.c_uint64) for name in ("columns", "every", "groups", "few", "room")]
    return type("Layout", (ctypes.Structure,), {"_fields_": [*under._fields_, *more]})


def plan(
    row_sizes: tuple[int, ...], inner_sizes: tuple[int, ...], operands: tuple[RowOperandPlace, ...], gathers: int, reductions: int,
    words: int, columns: int, long: int, dear: bool, arch: str,
) -> RoundsPlan | None:  # fmt: skip
    """How to walk a pass over rows that adds up columns; None if it has nothing to write.

    `columns` is the room of an element's sums in 32-bit words, `dear` whether an element takes many instructions; the rest is as
    `rows.plan` has it.
    """
    rows_, n = prod(row_sizes), prod(inner_sizes)
    if n == 0 and rows_ == 0:
        return None
    if rows_ == 0:  # sizes of none, which a kernel would divide by
        row_sizes, operands = (0,), tuple(o._replace(row_strides=(0,)) for o in operands)
    memory = [k for k, o in enumerate(operands) if o.element and o.itemsize]
    moving = [operands[k].itemsize for k in memory if operands[k].read and operands[k].row_dims]
    main = strided.main_of(operands, memory)
    sizes, strides = strided.merged(inner_sizes, [o.strides for o in operands], main)
    outer_sizes, outer = strided.merged(row_sizes, [o.row_strides for o in operands], main)
    along = [k for k in memory if operands[k].read or operands[k].row_dims]  # columns' results are written one by one, at the end
    vec, _, wide = (strided.vectors if gathers else strided.straddling)(operands, along, main, sizes, strides, outer, n, True)
    step = strides[main][-1]
    apart = bool(memory) and step != 0 and step * operands[main].itemsize >= SECTOR
    limits = devices.limits(arch)
    if not 0 < reductions <= MOST_READINGS // 2:
        limits = limits._replace(cluster=0)
    sums = max(1, columns // 2)
    static = partial(_static, words=words, readings=reductions, ahead=sum(not o.element for o in operands))
    most, (vec, team, stages) = vec, _taken(n, vec, moving, sums, apart, (arch, limits), static, not reductions, dear)
    wide = wide if vec == most else 0
    chunks = n // vec
    if team.across:  # no more teams than rows, for each takes work space
        most = max(32, team.team * (1 << max(0, rows_ - 1).bit_length()))
        team = replace(team, threads=min(team.threads, most))
    teams = team.threads // (team.team or team.threads)
    segments = max(1, -(-chunks // team.span)) if team.span else 1
    split = bool(team.span and not team.cluster)
    room = devices.resident(arch, team.blocks, segments if team.cluster else 1)
    wanted = -(-rows_ // teams)
    if split:
        room = max(1, room // segments)
    groups = min(wanted, room * max(1, -(-wanted // (room * MOST_ROUNDS))))
    every = groups * teams
    index64 = strided.furthest(rows_ + 8 * every, n, sizes, strides, outer_sizes, outer) > FAR or rows_ * segments > FAR
    walk = Walk(
        team.most or team.threads, team.blocks, team.team, team.across, team.vectors, vec, False, wide, main, split, 3, bool(team.cluster),
        -1, len(outer_sizes), len(sizes), len(operands), max(1, gathers), index64, stages,
    )  # fmt: skip
    misaligned = (operands[main].address // operands[main].itemsize) % vec if memory else 0
    under = RowPlan(
        ((walk, groups),), rows_, n, segments, team.span or max(chunks, 1), misaligned, words, outer_sizes, sizes, outer, strides,
        team.threads,
    )  # fmt: skip
    shared = (team.most or team.threads) * team.vectors * vec * each(stages, moving)
    rounds = -(-rows_ // max(1, every))
    few = max((few for few in range(1, 65) if depth(rounds, few, teams, groups) <= 64 + rows_.bit_length()), default=1)
    wide_sums = columns if any(operands[k].itemsize > 4 for k in memory) else columns // 2  # words of an element's
    room = _room(team, team.vectors * vec * wide_sums, shared, static(team), devices.limits(arch)) if rounds > few else 0
    made: list[tuple[Walk, int, int, int, int]] = []
    before = 0  # words of work for rows that are split
    if split and reductions:
        before = -(-words * rows_ * (segments + long) // 4) * 4
        reading = walk._replace(keep=0, stages=0)
        for k in range(2 * long):
            made.append((reading._replace(step=k), wanted if k % 2 else wanted * segments, team.threads, 0, 1))
    if groups:
        last = walk._replace(step=2 * long if split else -1)
        made.append((last, groups * segments, team.threads, shared + room, segments if team.cluster else 1))
    lanes = _lanes(groups)
    end = walk._replace(threads=FINISH, blocks=1, cluster=False, segments=False, keep=0, stages=-1)
    if n and not (split and every == 1):  # else the one team that has all rows stores what follows
        made.append((end, -(-n // (_side(columns, n) * FINISH // lanes)), FINISH, 0, 1))
    found = RoundsPlan(under, tuple(made), before, every, groups, few, 4 * (before + columns * n * every) or 4, room)
    verify_rounds(found, operands, static(team), devices.limits(arch), long, columns, depth(rounds, few, teams, groups))
    return found


def in_turns(
    groups: Sequence[Sequence[int]], sizes: Sequence[int], operands: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]],
    planned: Callable[[Sequence[tuple[int, tuple[int, ...], tuple[int, ...], int]]], object],
) -> RoundsPlan | None:  # fmt: skip
    """The plan where the two operands of each of `groups` lie one element behind the other: so many pairs as fill a vector are moved as
    one, and strides in the layout are those of pairs.  None where they have no whole vectors.

    `sizes` are those of all dims, `operands` (address modulo 16, strides along the rows' dims, along the inner ones, bytes an element),
    and `planned` is `plan` by operands."""
    first = {k: own[0] for own in groups for k in own}
    strides = [(*outer, *inner) for _, outer, inner, _ in operands]
    if any(s % 2 for k in first for s in strides[k]) or any(strides[k] != strides[f] for k, f in first.items()):
        return None
    if 0 in sizes or max(sum((n - 1) * s for n, s in zip(sizes, strides[k], strict=True)) for k in first) > FAR:
        return None
    paired = list(operands)  # the first of two has elements of both, the second none
    for k, of in first.items():
        address, outer, inner, size = operands[k]
        paired[k] = address, tuple(s // 2 for s in outer), tuple(s // 2 for s in inner), 2 * size if k == of else 0
    made = planned(paired)
    if not isinstance(made, RoundsPlan):
        return None
    walk = made.under.steps[0][0]
    if walk.vec == 1 or not all(walk.wide >> own[0] & 1 for own in groups):
        return None
    bits = sum(1 << 48 + own[0] | 1 << own[1] for own in groups)
    return replace(made, launches=tuple((step[0]._replace(wide=step[0].wide | bits), *step[1:]) for step in made.launches))


def _room(team: Team, sums: int, shared: int, static: int, limits: Limits) -> int:
    """The shared memory in which a block's sums, so many 32-bit words of each thread, wait for those of more rows: none where registers
    do (`Columns` in kgen_rounds.cuh), or where there is no such memory beside that of its rows and its own."""
    threads = team.most or team.threads
    registers = 255 if threads * team.blocks <= 256 else 65536 // (threads * team.blocks)
    room = 4 * threads * sums
    fits = not team.across and team.blocks * (shared + room + static) <= limits.shared
    return room if fits and 2 * sums + 48 > registers else 0


def _side(columns: int, n: int) -> int:
    """The elements that a thread of the last launch takes: so many as 16 bytes of partials have, where an element has `columns` words."""
    return max(1, 4 // columns) if columns in (1, 2) and n % 4 == 0 else 1


def _lanes(groups: int) -> int:
    """The threads of the last launch that add up a column."""
    lanes = 1
    while lanes < COLUMN_LANES and 8 * lanes < groups:
        lanes *= 2
    return lanes


def depth(rounds: int, few: int, teams: int, groups: int) -> int:
    """The additions that a column's value passes through: of a team's rows, `few` at a time; of the teams of a block in pairs, of the
    groups by sixteens, and of the last launch's lanes in pairs."""
    lanes = _lanes(groups)
    some = -(-groups // lanes)
    own = min(rounds, few) - (-rounds // few) + (teams - 1).bit_length()
    return own + min(some, 16) + min(some // 16, 16) + some // 256 + lanes.bit_length() - 1


def _static(team: Team, words: int, readings: int, ahead: int) -> int:
    """The bytes of a kernel's own shared memory at most: a cluster's results of one row are read while those of the next arrive; `ahead`
    operands may have one value a row, of 8 bytes for each warp and each of four rows on their way."""
    own = team.static(words, readings) + ahead * (team.most or team.threads)
    return own + (declared(team.threads, 1, False, True, words, readings) if team.cluster else 0)


def _taken(
    n: int, vec: int, moving: Sequence[int], sums: int, apart: bool, device: tuple[str, Limits], static: Callable[[Team], int], maps: bool,
    dear: bool,
) -> tuple[int, Team, int]:  # fmt: skip
    """The elements of a vector, who takes a row of `n` elements, and how many rows are on their way: elements move one by one where so
    many operands (`moving`: bytes of an element of each) move along that no warp has room for their vectors."""
    for own in (vec, 1):
        if found := _team(n // own, own, moving, sums, apart, device, static, maps, dear):
            return own, *found
    raise KgenError("more operands move along a row than there is shared memory for")


def _team(
    chunks: int, vec: int, moving: Sequence[int], sums: int, apart: bool, device: tuple[str, Limits], static: Callable[[Team], int],
    maps: bool, dear: bool,
) -> tuple[Team, int] | None:  # fmt: skip
    """Who takes a row of `chunks` vectors, and how many rows are on their way; `moving` are the bytes of an element of each operand that
    moves along with it; each thread has `sums` partials for each of its elements.  `static` gives the bytes that a team's kernel has
    itself; `maps`: none is reduced; `dear` as `plan` has it.  None where none has room."""
    arch, limits = device
    most = max(1, round_launches.PARTIALS // (sums * vec))  # vectors of a thread
    for rule in round_launches.ROUNDS_APART if apart else round_launches.ROUNDS[vec > 4, sums > 1]:
        takes = (maps or not rule.maps) and (dear or not rule.dear) and rule.least <= sum(moving)
        made = _of(rule, chunks, min(most, max(1, rule.elements // vec)), arch, limits) if takes else None
        if made is None:
            continue
        elements = (made.most or made.threads) * made.vectors * vec
        row = max(1, elements * sum(moving))  # as many blocks, then as many rows, as there is memory for
        room = min(launches.MAX_SHARED, limits.shared) - static(made)
        if rule.stages == 1:
            if elements * each(1, moving) + static(made) <= limits.shared and static(made) <= MAX_STATIC:
                return replace(made, blocks=1), 1
            continue
        blocks = max(1, min(made.blocks, room // (rule.stages * row)))
        if 2 * row <= room and static(made) <= MAX_STATIC:
            return replace(made, blocks=blocks), max(2, min(rule.stages, room // (blocks * row)))
    return None


def each(stages: int, moving: Sequence[int]) -> int:
    """The shared memory for an element of the rows on their way, in bytes: of one stage there is room for two rows of one operand."""
    return stages * sum(moving) + (max(moving, default=0) if stages == 1 else 0)


def _of(rule: Round, chunks: int, vectors: int, arch: str, limits: Limits) -> Team | None:
    """The team of a rule for a row, if it takes such a row."""
    if chunks > rule.longest:
        return None
    if rule.where == "across":
        whole = chunks <= rule.team * vectors
        return Team(rule.threads, rule.blocks, rule.team, vectors, 3, 0 if whole else rule.team * vectors, True)
    if rule.where == "lanes":
        lanes = 1 << (max(1, chunks) - 1).bit_length() if chunks <= rule.team else rule.team
        return Team(rule.threads, rule.blocks, lanes, -(-max(1, chunks) // lanes), 3) if chunks <= rule.team * vectors else None
    if rule.where == "block":
        needed = max(2, -(-chunks // (32 * vectors))) * 32
        most = 1 << (needed - 1).bit_length()
        return Team(needed, max(1, rule.blocks * rule.threads // most), 0, vectors, 3, most=most) if needed <= rule.threads else None
    if rule.where == "cluster":
        count = max(2, -(-chunks // (rule.threads * vectors)))
        fits = count <= limits.cluster
        span = -(-chunks // (32 * (_blocks(count, rule.blocks, arch) if fits else count))) * 32
        return Team(rule.threads, rule.blocks, rule.threads, vectors, 3, span, cluster=-(-chunks // span)) if fits else None
    return Team(rule.threads, rule.blocks, rule.team, vectors, 3, rule.team * vectors)


def _blocks(least: int, blocks: int, arch: str) -> int:
    """The blocks of a cluster, at least so many: more where that leaves fewer multiprocessors idle by a tenth, `blocks` on each."""

    def busy(count: int) -> int:
        return count * devices.resident(arch, blocks, count)

    found = max(range(least, devices.limits(arch).cluster + 1), key=lambda count: (busy(count), -count))
    return found if 10 * busy(found) >= 11 * busy(least) else least


cached = lru_cache(4096)(plan)
