"""Who goes along a row on a GPU, as data: what kgen's runtime reads, and (printed in C++, `kgen_scans_table.cuh`) the host part of a
written file.  What a row's elements are joined in follows from these and from its length, layout and dtypes alone."""

from __future__ import annotations

from typing import NamedTuple

from kgen.backends.launches import ANY, SECTOR
from kgen.backends.shared import MAX_STATIC


class Team(NamedTuple):
    """For rows of up to `longest` vectors of a thread: teams of so many threads, in blocks of `threads`."""

    longest: int
    team: int
    threads: int


#: Rows whose elements are neighbours: a thread, some of a warp, a warp, or a block.
TEAMS = (
    Team(1, 1, 128), Team(8, 4, 256), Team(16, 8, 256), Team(32, 16, 256), Team(256, 32, 256), Team(512, 128, 128), Team(1024, 256, 256),
    Team(ANY, 512, 512),
)  # fmt: skip
#: Rows of more vectors than so many, each of so many elements at least, that end within one: their warps wait for loads of their own alone.
ODD, ODD_ABOVE, ODD_ELEMENTS = Team(640, 32, 256), 512, 8
#: Rows whose elements lie apart, and which lie side by side themselves: neighbouring threads take neighbouring rows.
TEAMS_ASIDE = (Team(4, 1, 128), Team(ANY, 4, 256))
#: The tiles of a segment, and the most segments of a row: of longer rows each has more.
SPAN, MOST = 4, 128
#: With fewer blocks than this, several of them share a row of several segments, where the last of the teams takes it.
FEW, FEW_ASIDE = 96, 128
#: Tiles on their way while one is computed, where no more than so many operands are read.
AHEAD, AHEAD_OPERANDS = 2, 2
#: Registers of a thread that blocks are promised room for, and of one that carries or moves much.
REGISTERS, MANY_REGISTERS = 48, 96


def odd(n: int, vec: int) -> bool:
    """Whether rows of n neighbours, in vectors of so many, have a team of their own."""
    return n % vec > 0 and vec >= ODD_ELEMENTS and ODD_ABOVE < -(-n // vec) <= ODD.longest


def aside(partial: int) -> tuple[Team, ...]:
    """Who takes rows that lie side by side: those whose partials of so many bytes, twice for each thread, fit in shared memory."""
    return TEAMS_ASIDE if 2 * partial * TEAMS_ASIDE[-1].threads <= MAX_STATIC else (TEAMS_ASIDE[0]._replace(longest=ANY),)


def resident(threads: int, much: bool) -> int:
    """Blocks of a multiprocessor that a kernel is compiled for."""
    return max(1, 65536 // ((MANY_REGISTERS if much else REGISTERS) * threads))


HEAD = """// Who goes along a row on GPUs: kgen's own table, which its runtime reads too (kgen/backends/scan_launches.py).
#pragma once
#include "kgen_numbers.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

struct ScanTeam { i64 longest; int team, threads; };
"""
TAIL = """
}  // namespace host
}  // namespace
#endif
"""


def table() -> str:
    """The text of kgen_scans_table.cuh."""
    names = ("FEW", "FEW_ASIDE", "SPAN", "MOST", "AHEAD", "AHEAD_OPERANDS", "REGISTERS", "MANY_REGISTERS")
    lines = [f"constexpr int SCAN_{n} = {globals()[n]};" for n in names]
    lines.append(f"constexpr int SCAN_ODD_ABOVE = {ODD_ABOVE}, SCAN_ODD_ELEMENTS = {ODD_ELEMENTS};")
    for name, teams in (("SCAN_TEAMS", TEAMS), ("SCAN_ASIDE", TEAMS_ASIDE), ("SCAN_ODD", (ODD,))):
        rows = ", ".join(f"{{{t.longest}, {t.team}, {t.threads}}}" for t in teams)
        lines.append(f"constexpr ScanTeam {name}[] = {{{rows}}};")
    lines.append(f"constexpr int SCAN_SECTOR = {SECTOR};")
    lines.append(f"constexpr int SCAN_STATIC = {MAX_STATIC};")
    much = "(much ? SCAN_MANY_REGISTERS : SCAN_REGISTERS) * threads"
    lines.append(f"constexpr int scans_resident(int threads, bool much) {{ return 65536 > {much} ? 65536 / ({much}) : 1; }}")
    return HEAD + "\n".join(lines) + TAIL


__all__ = [
    "AHEAD", "AHEAD_OPERANDS", "FEW", "FEW_ASIDE", "MOST", "ODD", "SPAN", "TEAMS", "TEAMS_ASIDE", "Team", "aside", "odd", "resident",
    "table",
]  # fmt: skip
