"""Who goes along a row on a GPU, as data: what kgen's runtime reads, and (printed in C++, `kgen_scans_table.cuh`) the host part of a
written file.  What a row's elements are joined in follows from these and from its length, layout and dtypes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kgen.backends.launches import ANY, SECTOR
from kgen.backends.shared import MAX_STATIC


class Team(NamedTuple):
    """For rows of up to `longest` vectors of a thread: teams of so many threads, in blocks of `threads`, each thread with so many `parts`
    of a tile: vectors, or rows side by side at most."""

    longest: int
    team: int
    threads: int
    parts: int = 1


#: Rows whose elements are neighbours: a thread, some of a warp, a warp, or a block.
TEAMS = (
    Team(1, 1, 128), Team(8, 4, 256), Team(16, 8, 256), Team(32, 16, 256), Team(256, 32, 256), Team(512, 128, 128), Team(1024, 256, 256),
    Team(16384, 512, 512, 2), Team(ANY, 1024, 1024, 2),
)  # fmt: skip
#: Rows of more vectors than so many, each of so many elements at least, that end within one: their warps wait for loads of their own alone.
ODD, ODD_ABOVE, ODD_ELEMENTS = Team(640, 32, 256), 512, 8
#: Rows whose elements lie apart, and which lie side by side themselves: neighbouring threads take neighbouring rows.
TEAMS_ASIDE = (Team(4, 1, 128, 4), Team(ANY, 16, 512, 4))
#: With fewer blocks than this these take tiles of any row, where the last of the teams takes it, and where it has more tiles than so many.
FEW, FEW_ASIDE, SHORT = 96, 128, 4
#: Tiles of which blocks tell one another what stands before them: of neighbours, and of rows side by side.
GROUP, GROUP_ASIDE = 64, 16
#: The most blocks that take tiles: no device has room for more at once; how many of a block are on the chip.
TAKERS, STAGES = 1056, 3
#: Vectors on their way while others are computed, where no more than so many operands are read.
AHEAD, AHEAD_OPERANDS = 2, 2
#: Registers of a thread that blocks are promised room for, of one that carries or moves much, of one whose rows begin within a vector, and
#: of one that takes tiles of any row.
REGISTERS, MANY_REGISTERS, ODD_REGISTERS, CHAINED_REGISTERS = 48, 96, 51, 64


def teams(much: bool) -> tuple[Team, ...]:
    """Who takes rows of neighbours: where a thread carries or moves much, blocks of 1,024 threads have too few registers for it."""
    return (*TEAMS[:-2], TEAMS[-2]._replace(longest=ANY)) if much else TEAMS


def odd(n: int, vec: int) -> bool:
    """Whether rows of n neighbours, in vectors of so many, have a team of their own."""
    return n % vec > 0 and vec >= ODD_ELEMENTS and ODD_ABOVE < -(-n // vec) <= ODD.longest


def chained_shared(vec: int, team: Team, sizes: Sequence[int]) -> int:
    """The shared memory that tiles have in a block that takes them: for each operand, of elements of such sizes, a vector more."""
    return STAGES * sum(-(-(team.threads * team.parts + 1) * vec * size // 16) * 16 for size in sizes)


def chained_static(team: Team, partial: int) -> int:
    """What its warps have there besides, of partials of so many bytes: totals and what stands before a tile, twice, and tickets."""
    return 2 * ((team.threads // 32 * team.parts + 1) * partial + 4)


def told(rows: int, segments: int, aside: bool) -> int:
    """The values that blocks tell: of tiles, of groups, and of groups of groups; of rows side by side, of tiles and of groups."""
    if aside:
        return rows * (segments + -(-segments // GROUP_ASIDE))
    groups = -(-segments // GROUP)
    return rows * (segments + groups + -(-groups // GROUP))


def beside(partial: int) -> tuple[Team, ...]:
    """Who takes rows side by side: those whose partials of so many bytes, twice for each thread and row, fit in shared memory; a thread
    takes half as many rows where that helps."""
    *short, last = TEAMS_ASIDE
    parts = last.parts
    while parts and 2 * partial * (last.threads + last.threads // last.team) * parts > MAX_STATIC:
        parts //= 2
    return (*short, last._replace(parts=parts)) if parts else (*short[:-1], short[-1]._replace(longest=ANY))


def resident(threads: int, registers: int) -> int:
    """Blocks of a multiprocessor that a kernel is compiled for."""
    return max(1, 65536 // (registers * threads))


HEAD = """// Who goes along a row on GPUs: kgen's own table, which its runtime reads too (kgen/backends/scan_launches.py).
#pragma once
#include "kgen_numbers.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

struct ScanTeam { i64 longest; int team, threads, parts; };
"""
TAIL = """
}  // namespace host
}  // namespace
#endif
"""


def table() -> str:
    """The text of kgen_scans_table.cuh."""
    names = (
        "FEW", "FEW_ASIDE", "SHORT", "GROUP", "GROUP_ASIDE", "TAKERS", "STAGES", "AHEAD", "AHEAD_OPERANDS", "REGISTERS", "MANY_REGISTERS",
        "ODD_REGISTERS", "CHAINED_REGISTERS", "ODD_ABOVE", "ODD_ELEMENTS",
    )  # fmt: skip
    lines = [f"constexpr int SCAN_{n} = {globals()[n]};" for n in names]
    for name, teams in (("SCAN_TEAMS", TEAMS), ("SCAN_ASIDE", TEAMS_ASIDE), ("SCAN_ODD", (ODD,))):
        rows = ", ".join(f"{{{t.longest}, {t.team}, {t.threads}, {t.parts}}}" for t in teams)
        lines.append(f"constexpr ScanTeam {name}[] = {{{rows}}};")
    lines.append(f"constexpr int SCAN_SECTOR = {SECTOR};")
    lines.append(f"constexpr int SCAN_STATIC = {MAX_STATIC};")
    lines.append("constexpr int scans_resident(int threads, int registers) {")
    lines.append("    return 65536 > registers * threads ? 65536 / (registers * threads) : 1;")
    lines.append("}")
    return HEAD + "\n".join(lines) + TAIL
