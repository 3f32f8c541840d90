"""The table of launches (`kgen.backends.launches`) in C++: the library's kgen_launches.cuh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kgen.backends import devices, launches, round_launches
from kgen.backends.launches import Rule
from kgen.backends.round_launches import Round
from kgen.backends.shared import BARRIERS, MAX_STATIC, SEARCHING

HEAD = """// How rows are shared out on GPUs: kgen's own table, which its runtime reads too (kgen/backends/launches.py says what it means).
#pragma once
#include "kgen_numbers.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {

enum Where { REGISTERS, PIECE, SHARED, CLUSTER, LOOP, SEGMENTS, LANES, BLOCK, ACROSS, NONE, CACHED, ABREAST, ABREAST_SEGMENTS };
"""
RULE = """// For rows of up to `longest` vectors, and more than `above`, where a thread's vector takes so many registers and has so many
// elements, up to `held` operands take up to `room` bytes, and so many `readings` reduce it: blocks of `threads`, of which `team` take a
// row (0: all).
struct Rule {
    i64 longest;
    int threads, team, vectors, blocks;
    Where where;
    int warps;
    bool trims;
    i64 least_registers, most_registers, least_elements, most_elements, held, room, above, readings;
    bool alone, whole;  // where no parameters of columns are read beside the rows; where these are whole vectors of more than four elements
    bool dear;          // of passes whose elements take many instructions
};
struct Rules { const Rule* at; int count; };
struct Limits { int shared, cluster; };
"""
ROUNDS_HEAD = """// How rows that follow one another are shared out: kgen's own table, as kgen_launches.cuh has that of others.
#pragma once
#include "kgen_launches.cuh"

#ifndef __CUDACC_RTC__
namespace {
namespace host {
"""
ROUND = """// For rows of up to `longest` vectors: blocks of `threads`, of which `team` take a row, so many elements of a thread,
// so many rows on their way (1: one that takes the place of the row before as that is stored); `maps`: of passes that do not reduce
// rows; `once`: by the readings of rows that do not stay on the chip; `every`: threads compute also from vectors that are not there;
// `least`: of passes with so many bytes of an element that move; `parameters`: registers of a thread at most for what all rows share;
// `dear`: of passes whose elements take many instructions.
struct Round {
    int threads, team, elements, blocks, stages;
    Where where;
    i64 longest;
    bool maps, once, every;
    int least, parameters;
    bool dear;
};
struct RoundRules { const Round* at; int count; };
"""
TAIL = """
}  // namespace host
}  // namespace
#endif
"""


def _value(x: object) -> str:
    return str(x).lower() if isinstance(x, bool) else "ANY" if x == launches.ANY else str(x)


def _array(name: str, rules: Sequence[Rule]) -> list[str]:
    rows = [f"    {{{', '.join(map(_value, (*r[:5], r.where.upper(), *r[6:8], *r.registers, *r.elements, *r[10:])))}}}," for r in rules]
    return [f"[[maybe_unused]] constexpr Rule {name}[] = {{", *rows, "};"]


def _choice(head: str, cases: Sequence[tuple[str, str]], other: str) -> list[str]:
    return [f"{head} {{", *(f"    if ({condition}) return {found};" for condition, found in cases), f"    return {other};", "}"]


def _round_array(name: str, rules: Sequence[Round]) -> list[str]:
    rows = [f"    {{{', '.join(map(_value, (*r[:5], r.where.upper(), *r[6:])))}}}," for r in rules]
    return [f"[[maybe_unused]] constexpr Round {name}[] = {{", *rows, "};"]


def _by_kind(prefix: str, lists: Mapping[tuple[bool, bool], tuple[Round, ...]]) -> tuple[list[str], list[tuple[str, str]]]:
    """The arrays of some rules, and which of them holds: whether elements are narrow, and whether there are several sums or parameters."""
    lines, choices = [], []
    for (narrow, several), rules in lists.items():
        name = f"{prefix}_{'NARROW' if narrow else 'WIDE'}_{'MANY' if several else 'ONE'}"
        lines += _round_array(name, rules)
        choices.append((f"{'' if narrow else '!'}narrow && {'' if several else '!'}several", f"{{{name}, {len(rules)}}}"))
    return lines, choices


def rounds() -> str:
    """The text of kgen_rounds_table.cuh."""
    lines = [ROUNDS_HEAD]
    names = ("PARTIALS", "ALONE_WORDS", "MOST_ROUNDS", "FINISH", "COLUMN_LANES")
    lines += [f"[[maybe_unused]] constexpr int {n} = {getattr(round_launches, n)};" for n in names]
    lines += [f"[[maybe_unused]] constexpr int PART = {devices.PART};", ROUND]
    head = "[[maybe_unused]] constexpr RoundRules rounds(bool across, bool narrow, bool several)"
    rules, choices = _by_kind("ROUNDS", round_launches.ROUNDS)
    apart = "across", f"{{ROUNDS_APART, {len(round_launches.ROUNDS_APART)}}}"
    lines += [*rules, *_round_array("ROUNDS_APART", round_launches.ROUNDS_APART), *_choice(head, [apart, *choices[:-1]], choices[-1][1])]
    rules, choices = _by_kind("PERSISTENT", round_launches.PERSISTENT)
    lines += [*rules, *_choice("[[maybe_unused]] constexpr RoundRules persistent(bool narrow, bool several)", choices[:-1], choices[-1][1])]
    rules, choices = _by_kind("PERSISTENT_EDGES", round_launches.PERSISTENT_EDGES)
    head = "[[maybe_unused]] constexpr RoundRules persistent_edges(bool narrow, bool several)"
    lines += [*rules, *_choice(head, choices[:-1], choices[-1][1])]
    rules, choices = _by_kind("PERSISTENT_ALONE", round_launches.PERSISTENT_ALONE)
    head = "[[maybe_unused]] constexpr RoundRules persistent_alone(bool narrow, bool several)"
    lines += [*rules, *_choice(head, choices[:-1], choices[-1][1])]
    counts = [(f"arch == {arch}", str(count)) for arch, count in devices.PROCESSORS.items()]
    lines += _choice("constexpr int processors(int arch)", counts, str(devices.OTHER_PROCESSORS))
    return "\n".join(lines) + TAIL


def table() -> str:
    """The text of kgen_launches.cuh."""
    names = (
        "MAX_SHARED", "FEW_ROWS", "FEW_LONG_ROWS", "LONG_ROW", "FEW_WORDS", "SECTOR", "SHORT", "SEGMENT", "LONGEST_SEGMENT",
        "SEGMENT_APART", "MANY_SEGMENTS", "MANY_PARTS", "MOST_READINGS", "CROWDED", "CLEARING", "MOST_ABREAST", "SCATTERED_ABOVE",
        "SCATTERED_LINE", "SCATTERED_ONCE_ABOVE",
    )  # fmt: skip
    numbers = {n: getattr(launches, n) for n in names} | {"MAX_STATIC": MAX_STATIC, "BARRIERS": BARRIERS, "SEARCHING": SEARCHING}
    lines = [HEAD, f"constexpr i64 ANY = {launches.ANY};"]
    lines += [f"[[maybe_unused]] constexpr int {name} = {value};" for name, value in numbers.items()]
    for name in ("STORING", "COMBINING"):
        lines.append(f"[[maybe_unused]] constexpr int {name}[] = {{{', '.join(map(str, getattr(launches, name)))}}};")
    lines.append(RULE)
    ladders = []
    for arch, kinds in launches.SHIPPED.items():
        for kind, steps in kinds.items():
            name = f"{kind.upper()}_{arch.removeprefix('sm_')}"
            lines += _array(name, [launches.measured(step) for step in steps])
            ladders.append((f"arch == {arch.removeprefix('sm_')} && kind == {launches.KINDS.index(kind)}", f"{{{name}, {len(steps)}}}"))
    lines += _array("ENDING", launches.ENDING)
    lines += _array("DEAR", launches.DEAR)
    lines += _array("SHIFTED", launches.SHIFTED)
    lines += _array("SEVERAL_DIMS", launches.SEVERAL_DIMS)
    lines += _array("SCATTERED", launches.SCATTERED)
    lines += _array("SCATTERED_ONCE", launches.SCATTERED_ONCE)
    choices = []
    for (apart, held), rules in launches.RULES.items():
        name = f"{'APART' if apart else 'ALONG'}_{'HELD' if held else 'READ'}"
        lines += _array(name, rules)
        choices.append((f"{'' if apart else '!'}apart && {'' if held else '!'}held", f"{{{name}, {len(rules)}}}"))
    lines += ["// What was measured; `kind` is 0 where a row is held behind one reading that reduces, 1 behind several, 2 where none is, 4",
              "// where bytes are made of it, 5 the same behind several, 6 where it goes by pieces."]
    lines += _choice("[[maybe_unused]] constexpr Rules ladder(int arch, int kind)", ladders, "{nullptr, 0}")
    lines += _choice("[[maybe_unused]] constexpr Rules rules(bool apart, bool held)", choices[:-1], choices[-1][1])
    known = [(f"arch == {arch}", f"{{{shared * 1024}, {cluster}}}") for arch, (shared, cluster) in devices.DEVICES.items()]
    known += [(f"arch >= {arch}", f"{{{shared * 1024}, {cluster}}}") for arch, (shared, cluster) in devices.OTHERS.items() if arch]
    other = devices.OTHERS[0]
    lines += ["// Bytes of shared memory that a block may have, and blocks of a cluster."]
    lines += _choice("constexpr Limits limits(int arch)", known, f"{{{other[0] * 1024}, {other[1]}}}")
    return "\n".join(lines) + TAIL
