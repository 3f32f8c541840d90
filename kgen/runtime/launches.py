"""What calls on dense tensors launch on a GPU, as a table: the text behind `kgen show --stage launch`."""

from __future__ import annotations

from kgen.backends import backend
from kgen.backends.cuda import Cuda, Layout, RowLayout, SortLayout
from kgen.backends.launches import map_rows, pieces
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.runtime import maps, nvrtc, rounds, rows, scans
from kgen.types import DTYPES, Binding, resolve

#: How many rows the calls have, and the elements of each.
ROWS, LENGTHS = 1024, tuple(1 << k for k in range(5, 22))
HEADS = ("elements", "threads", "of a row", "vectors", "of elements", "row in", "cluster", "shared", "segments", "launches")
PLACES = ("memory", "registers", "shared", *["rounds"] * 4)


def launches(kernel: Kernel, target: str, bound: Binding, arch: str) -> str:
    """What each pass launches on an architecture ("sm_90"), by the length of a row; raises `KgenError` where that is not the target's."""
    made = backend(target)
    if not isinstance(made, Cuda):
        raise KgenError(f"the target {target} has no launch", help="write `--target cuda`")
    lines = []
    for k, unit in enumerate(made.layout(kernel)):
        if isinstance(unit, SortLayout):
            lines.append(f"pass {k}: a stable sort")
            continue
        if isinstance(unit, Layout):
            sizes = [resolve(o.dtype, bound).bytes for o in unit.operands if o.role != "index"]
            planned = maps.plan([ROWS * 16], [[1]] * len(sizes), sizes, [0] * len(sizes))
            assert planned is not None
            many = pieces(unit.taps, unit.below)
            apiece = f" of each of {many} {'rows' if unit.below else 'pieces of a row'}" if many > 1 else ""
            several = f" of each of {map_rows(planned.variant.vec)} rows" if unit.held else apiece
            lines.append(f"pass {k}: blocks of {nvrtc.THREADS} threads, {planned.variant.vec} elements{several} each")
            continue
        lines.append(f"pass {k} on {arch}, {ROWS} rows:")
        found = [HEADS, *(cells(n, dense(unit, n, bound, arch)) for n in LENGTHS)]
        widths = [max(map(len, column)) for column in zip(*found, strict=True)]
        lines += ["  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in found]
    return "\n".join(lines) + "\n"


def dense(unit: RowLayout, n: int, bound: Binding, arch: str) -> rows.RowPlan | rounds.RoundsPlan | scans.ScanPlan:
    """The plan of a pass over `ROWS` rows of n elements on dense tensors that begin anywhere a vector may."""
    sizes = dict.fromkeys(unit.dims, 1) | dict.fromkeys(unit.inner[-1:], n) | dict.fromkeys(unit.rows[-1:], ROWS)
    parts = (unit.rows, unit.inner)
    shapes = [tuple(sizes[d] for d in part) for part in parts]
    operands = []
    for o in unit.operands:
        steps, step = dict.fromkeys(unit.dims, 0), 1
        for d in reversed(o.dims):
            if d in steps:
                steps[d], step = step, step * sizes[d]
        size = 0 if o.role == "index" else DTYPES[o.dtype].bytes if o.dtype in DTYPES else resolve(o.dtype, bound).bytes
        outer, inner = (tuple(steps[d] for d in part) for part in parts)
        operands.append((0, outer, inner, size))
    planned = nvrtc.row_plan(unit, shapes[0], shapes[1], operands, sum(bool(o.dim) for o in unit.operands), arch)
    assert planned is not None
    return planned


def cells(n: int, planned: rows.RowPlan | rounds.RoundsPlan | scans.ScanPlan) -> tuple[str, ...]:
    """The cells under HEADS."""
    if isinstance(planned, scans.ScanPlan):
        own = planned.steps[0][0]
        vectors, segments = 1 if own.aside else own.parts, planned.segments if own.step >= 0 else 1
        numbers = (n, own.threads, own.team, vectors, own.vec)
        return (*map(str, numbers), PLACES[0], "1", str(planned.shared), str(segments), str(len(planned.launches)))
    under = planned.under if isinstance(planned, rounds.RoundsPlan) else planned
    walk = under.steps[0][0]
    _, _, threads, shared, cluster = next(step for step in planned.launches if step[0].keep == walk.keep)
    who = (n, threads, (walk.team or threads) * cluster, walk.vectors)
    lanes = f"{walk.vec} of {walk.abreast} rows" if walk.abreast > 1 else str(walk.vec)
    rest = (cluster, shared, under.segments // cluster, len(planned.launches))
    return (*map(str, who), lanes, PLACES[walk.keep], *map(str, rest))
