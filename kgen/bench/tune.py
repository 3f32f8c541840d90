"""`kgen tune`: which steps (`kgen.runtime.tuned.Step`) share rows out best on this GPU, by trying them.

In: kernels, dtypes and row lengths.  Out: a `Cell` for each, with what every step that was tried reaches of a copy's speed in the same
run; from those the winners, one for each kind of pass and length in vectors; and the table in which later calls find them.
A step whose results are not those of the present one is left out.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kgen.backends import launches
from kgen.bench import timing
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.files import write_file
from kgen.runtime import cache as disk
from kgen.runtime import nvrtc, persistent, rows, tuned
from kgen.runtime.arguments import bind
from kgen.runtime.limits import MAX_CLUSTER
from kgen.runtime.samples import arguments
from kgen.runtime.tuned import Step

HEADS = ("kind", "kernel", "dtype", "row", "vectors", "best step", "of copy", "present step", "of copy")
#: Bundled specs that stand for each kind of pass.
SPECS = {"once": ("softmax", "rmsnorm"), "again": ("layernorm",), "read": ("logsumexp",), "many": ("cross_entropy_dx",)}
MARGIN = 1.01  # how much faster a step must be than the present one to take its place: less is noise
SHORTEST = 33  # vectors: rows that a warp holds one vector a thread of need no step

# ---------------------------------------------------------------------------------------------------------- what is tried


def candidates(kind: str, vectors: int, clusters: bool = True) -> list[Step]:
    """The steps worth trying for rows of `vectors` vectors of 16 bytes; `clusters` says whether blocks of the device share memory."""
    found: list[Step] = []

    def add(threads: int, team: int, each: int, blocks: Iterable[int], where: str) -> None:
        steps = [Step(vectors, threads, team, each, b, where) for b in dict.fromkeys(blocks)]
        found.extend(s for s in steps if tuned.sound(kind, s))

    for each in (1, 2, 4, 8):
        if 32 * each >= vectors > 16 * each:  # a warp for a row
            add(128, 32, each, (6, 8, 12, 16), "registers")
    for each in (1, 2, 4, 8, 16):
        threads = -(-vectors // (32 * each)) * 32
        if 64 <= threads <= 1024:
            most = 1 << (threads - 1).bit_length()
            room = min(2048, 65536 // (16 + 4 * each))  # threads of a multiprocessor with registers for what each holds
            add(most, 0, each, (n // most for n in ((512,) if each > 8 else (1024, 1536, 2048)) if most <= n <= room), "registers")
    if kind == "read" or vectors > 8192:
        for threads in (128, 256, 512):
            add(threads, threads, 4, (n // threads for n in (1024, 2048)), "loop")
        if kind == "read":
            add(256, 256, 2, (4, 8), "loop")
            if vectors <= 4096:
                add(128, 32, 4, (6, 8, 12), "loop")
            if vectors <= 256:
                add(128, 16, 8, (6, 8), "loop")
    if kind == "read":
        return found
    for each in (2, 4, 6, 8, 12) if vectors > 256 else ():
        threads = -(-vectors // (32 * each)) * 32
        most = max(128, 1 << (threads - 1).bit_length())
        fits = min(rows.MAX_SHARED // (16 * threads * each), 2048 // most)
        if threads <= 1024:
            add(most, 0, each, (b for b in (fits, fits * 3 // 4, fits // 2) if b > 0), "shared")
    for threads, each in ((256, 4), (256, 8), (512, 4), (512, 8), (1024, 4)) if clusters else ():
        if 1 < -(-vectors // (threads * each)) <= MAX_CLUSTER and vectors >= 2048:
            fits = min(rows.MAX_SHARED // (16 * threads * each), 2048 // threads)
            add(threads, threads, each, (b for b in (1, 2, 3, 4, 6, 8) if b <= fits), "cluster")
    return found


def shown(step: Step | None) -> str:
    """A step in words: where the row is, the threads of a team and the vectors of each, the blocks of a multiprocessor."""
    if step is None:
        return "the general rule"
    return f"{step.where} {step.team or step.threads}x{step.vectors}, {step.blocks} block{'s' * (step.blocks > 1)}"


def kinds(kernel: Kernel) -> dict[str, list[int]]:
    """The kinds of a kernel's passes over rows, and which of its passes they are; none where it has no rows."""
    from kgen.backends import backend
    from kgen.backends.cuda import Cuda

    found: dict[str, list[int]] = {}
    target = backend("cuda")
    assert isinstance(target, Cuda)
    for k, unit in enumerate(target.layout(kernel)):
        if isinstance(unit, nvrtc.RowLayout):
            kept = any(o.kept for o in unit.operands)
            found.setdefault(tuned.kind(kept, unit.reductions, unit.words, unit.narrow, bool(unit.pieces)), []).append(k)
    return found


@contextmanager
def forced(kind: str, ladder: tuple[Step, ...]) -> Iterator[list[rows.RowPlan]]:
    """Within it, what is planned has this ladder for passes of a kind, and no rule before it; gives the plans that were made."""
    from unittest import mock

    ladders, plans = tuned.ladders, list[rows.RowPlan]()

    def noted(*args: Any) -> rows.RowPlan | None:
        made = rows.plan(*args)
        if made is not None:
            plans.append(made)
        return made

    changed = mock.patch.object(tuned, "ladders", lambda arch: {**ladders(arch), kind: ladder})
    alone = mock.patch.multiple(launches, SHIFTED=(), SEVERAL_DIMS=(), STRADDLED=(), ENDING=(), DEAR=())
    with changed, mock.patch.object(rows, "cached", noted), mock.patch.object(persistent, "cached", lambda *_: None), alone:
        yield plans


# ---------------------------------------------------------------------------------------------------------- measuring


@dataclass
class Cell:
    """What one kernel on one size gave: the share of a copy's speed that each step reached, the present one (None: the general rule)
    among them."""

    kind: str
    kernel: str
    dtype: str
    row: int
    vectors: int
    present: Step | None
    shares: dict[Step | None, float] = field(default_factory=dict)

    @property
    def best(self) -> Step | None:
        return max(self.shares, key=lambda step: self.shares[step])

    def cells(self) -> tuple[str, ...]:
        """The cells under HEADS."""
        return (
            self.kind, self.kernel, self.dtype, f"{self.row:,}", f"{self.vectors:,}", shown(self.best), f"{self.shares[self.best]:.3f}",
            shown(self.present), f"{self.shares[self.present]:.3f}",
        )  # fmt: skip


class Trial:
    """A kernel on one size, launched one way after another on the same memory."""

    def __init__(self, kernel: Kernel, dtype: str, elements: int, row: int, device: str, index: int, arch: str):
        self.kernel, self.device, self.index, self.arch = kernel, device, index, arch
        given = arguments(kernel, dtype, elements, device, row)
        self.call = bind(kernel, (), given, None)
        self.launcher = nvrtc.Launcher(kernel)
        self.launcher.run.arch = arch
        tensors = self.call.given | self.call.results | self.call.memory(self.launcher.workspaces)
        self.tensors = tensors
        memory = [t for t in (self.call.given | self.call.results).values() if hasattr(t, "element_size")]
        self.moved = sum(t.numel() * t.element_size() for t in memory)

    def plans(self, kind: str, units: Sequence[int], ladder: tuple[Step, ...]) -> tuple[tuple[rows.RowPlan, ...], list[str]]:
        """How passes would be walked with a ladder, and the names of the functions that takes; nothing is compiled."""
        from unittest import mock

        names: list[str] = []

        def note(expression: str, arch: str) -> Any:
            names.append(expression)

        with mock.patch.object(self.launcher.run, "function", note), forced(kind, ladder) as plans:
            for k in units:
                self.launcher.prepared(k, self.call, self.tensors, self.index)
        return tuple(plans), names

    def compile(self, names: Iterable[str]) -> None:
        """Compile functions side by side; what fails is heard of when it is launched."""

        def one(name: str) -> None:
            try:
                self.launcher.run.function(name, self.arch)
            except KgenError:
                pass

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(one, dict.fromkeys(names)))

    def results(self, kind: str, ladder: tuple[Step, ...]) -> list[Any]:
        """The results of a launch with a ladder, which later launches overwrite and repeat."""
        self.call.ready.clear()
        with forced(kind, ladder):
            self.launcher(self.call)
        timing.wait(self.device)
        return [self.call.results[r.name] for r in self.kernel.results]

    def ms(self, label: str) -> float:
        """The time of what was launched last."""
        return timing.spreads_ms({label: lambda: self.launcher(self.call)}, self.device)[label][0]


def close(got: Any, expected: Any) -> bool:
    """Whether results are the same but for the order of what was added: within 64 units of the dtype that is computed in, and a unit of
    their own; where terms cancel, of the largest result."""
    import torch

    if not expected.dtype.is_floating_point:
        return bool(torch.equal(got, expected))
    wide = torch.float64 if expected.dtype == torch.float64 else torch.float32
    x, y = got.to(wide), expected.to(wide)
    noise = 64 * torch.finfo(wide).eps
    largest = float(y.abs().nan_to_num(0, 0, 0).max()) if y.numel() else 0.0
    return torch.allclose(x, y, rtol=noise + torch.finfo(expected.dtype).eps, atol=noise * largest, equal_nan=True)


def measured(
    trial: Trial, kind: str, units: Sequence[int], dtype: str, row: int, tell: Callable[[str], None], warn: Callable[[str], None]
) -> Cell | None:
    """Try the steps for one kernel, kind of pass and size; `tell` hears what is being done, `warn` what was left out and why.  None
    where no step would be taken.

    Raises `Broken` where the device does not go on after a step that failed.
    """
    kernel, where = trial.kernel, f"{trial.kernel.name} {dtype} in rows of {row:,}"
    ladder = tuned.ladders(trial.arch).get(kind, ())
    general, _ = trial.plans(kind, units, ())
    walk = general[0].steps[0][0] if general else None
    vectors = general[0].n // walk.vec if walk else 0
    if not walk or walk.vec == 1 or vectors < SHORTEST:
        warn(f"left out {where}: a warp or less takes such a row, whatever the table says")
        return None
    standing = next((s for s in ladder if vectors <= s.longest), None)
    present = standing._replace(longest=vectors) if standing else None
    steps: list[Step] = []
    names: list[str] = []
    seen: list[tuple[rows.RowPlan, ...]] = []
    for step in [*([present] if present else []), *candidates(kind, vectors, int(trial.arch[3:]) >= 90)]:
        plans, own = trial.plans(kind, units, (step,))
        if plans not in seen:
            seen.append(plans)
            steps.append(step)
            names += own
    if all(plans == general for plans in seen):
        warn(f"left out {where}: the general rule decides, whatever the table says")
        return None
    tell(f"{where}: compiling {len(steps)} steps")
    trial.compile([*names, *trial.plans(kind, units, ladder)[1]])
    expected = [r.clone() for r in trial.results(kind, ladder)]
    copy = timing.spreads_ms({timing.COPY: timing.copying(trial.moved, trial.device)}, trial.device)[timing.COPY][0]
    cell = Cell(kind, kernel.name, dtype, row, vectors, present, {present: copy / trial.ms(shown(present))})
    for number, step in enumerate(steps, 1):
        if step == present:
            continue
        tell(f"{where}: {number} of {len(steps)}, {shown(step)}")
        try:
            got = trial.results(kind, (step,))
            if not all(close(x, y) for x, y in zip(got, expected, strict=True)):
                warn(f"left out {shown(step)}, {where}: its results are others")
                continue
            cell.shares[step] = copy / trial.ms(shown(step))
        except Exception as error:
            warn(f"left out {shown(step)}, {where}: {timing.reason(error)}")
            try:
                timing.wait(trial.device)
            except RuntimeError as fault:
                raise Broken(f"the device does not go on after {shown(step)} ({where}): {timing.reason(fault)}") from None
    return cell


class Broken(KgenError):
    """The device runs nothing any more in this process."""


# ---------------------------------------------------------------------------------------------------------- what is kept


def winners(cells: Iterable[Cell]) -> dict[str, dict[int, Step]]:
    """The best step by kind and length in vectors: by the geometric mean over the kernels and dtypes that have rows of that length.
    The present one stays where no other is faster by more than the noise."""
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.kind, cell.vectors), []).append(cell)
    found: dict[str, dict[int, Step]] = {}
    for (kind, vectors), group in sorted(groups.items()):
        common = [s for s in group[0].shares if all(s in cell.shares for cell in group)]
        means = {s: math.exp(sum(math.log(cell.shares[s]) for cell in group) / len(group)) for s in common}
        best = max((s for s in means if s), key=lambda s: means[s], default=None)
        present = group[0].present
        if present and present in means and best and means[best] < MARGIN * means[present]:
            best = present
        if best:
            found.setdefault(kind, {})[vectors] = best
    return found


def merged(ladder: Sequence[Step], won: dict[int, Step]) -> tuple[Step, ...]:
    """A ladder with the winners, each up to its own length; steps of other lengths stay."""
    return tuple(sorted([s for s in ladder if s.longest not in won] + [s._replace(longest=n) for n, s in won.items()]))


def save(arch: str, cells: Iterable[Cell]) -> Path:
    """Write the winners where `tuned.ladders` reads them, beside what was kept of other lengths and kinds; whole or not at all.

    Raises `KgenError` where the file cannot be written.
    """
    present, shipped = tuned.ladders(arch), tuned.SHIPPED.get(arch, {})
    kept = {kind: steps for kind, steps in present.items() if steps != shipped.get(kind)}
    kept |= {kind: merged(present.get(kind, ()), won) for kind, won in winners(cells).items()}
    path = Path(disk.settings()) / f"{arch}.json"
    lines = [f'"{kind}": [\n  ' + ",\n  ".join(json.dumps(step) for step in steps) + "\n ]" for kind, steps in kept.items()]
    write_file(path, "{\n " + ",\n ".join(lines) + "\n}\n", "KGEN_CONFIG_DIR names another folder")
    tuned.ladders.cache_clear()
    return path


# ---------------------------------------------------------------------------------------------------------- the command


def tune(
    kernels: Sequence[Kernel], dtypes: Sequence[str], lengths: Sequence[int], elements: int, device: str, index: int, arch: str,
    add: Callable[[Cell], None], tell: Callable[[int, int, str], None], warn: Callable[[str], None], fail: Callable[[str], None],
) -> list[Cell]:  # fmt: skip
    """Every kernel's passes on every dtype and row; `add` hears each cell as it is done, `tell` (how many are done, of how many, what
    comes now).  Raises `KgenError` where a kernel has nothing to tune, and `Broken` where the device goes no further."""
    from kgen.bench.timing import free

    found: list[Cell] = []
    work = []
    for kernel in kernels:
        if written := next((r.state for r in kernel.results if r.state), None):
            raise KgenError(f"{kernel.name} writes `{written}` in place: it cannot be run again on the same numbers")
        passes = kinds(kernel)
        if not passes:
            raise KgenError(f"{kernel.name} has no pass over rows: there is nothing to tune", help="`softmax` is a spec that has one")
        work += [(kernel, d, n, passes) for d in (dtypes if kernel.variables else dtypes[:1]) for n in lengths]
    trial: Trial | None = None
    for number, (kernel, dtype, row, passes) in enumerate(work):
        tell(number, len(work), f"{kernel.name} {dtype} in rows of {row:,}")
        try:
            trial = Trial(kernel, dtype, elements, row, device, index, arch)
            for kind, units in passes.items():
                cell = measured(trial, kind, units, dtype, row, partial(tell, number, len(work)), warn)
                if cell:
                    found.append(cell)
                    add(cell)
        except Broken:
            raise
        except Exception as error:  # out of memory, mostly
            fail(f"error: {kernel.name} {dtype} in rows of {row:,}: {timing.reason(error)}")
        trial = None  # its memory is the next one's
        free(device)
    return found
