"""What `kgen bench` does, apart from its options: which kernels, sizes and peers, in which order, and what is said of each.

Each function hands its rows to `add` as soon as they are there, what was left out to `warn`, and what went wrong to `fail`; a run that
is interrupted keeps what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

from kgen.bench.timing import free, has_rows
from kgen.check import Kernel
from kgen.errors import KgenError


@dataclass(frozen=True)
class Sizes:
    """What is gone through: dtypes, elements of the largest operand, elements along what is reduced."""

    dtypes: Sequence[str]
    elements: Sequence[int]
    rows: Sequence[int]

    def of(self, kernel: Kernel) -> Iterator[tuple[str, int, int]]:
        """The sizes that matter to a kernel: one dtype where it has no variable, one row where none is reduced."""
        dtypes = self.dtypes if kernel.variables else self.dtypes[:1]
        yield from product(dtypes, self.elements, self.rows if has_rows(kernel) else self.rows[:1])


@dataclass(frozen=True)
class Out:
    """Where things go: `add(cells, kept)` a line of the table and the figures behind it, `warn` and `fail` a line each, `say` a
    line between, `busy(label)` what is shown while something runs."""

    add: Callable[[tuple[str, ...], Sequence[dict[str, Any]]], None]
    warn: Callable[[str], None]
    fail: Callable[[str], None]
    say: Callable[[str], None]
    busy: Callable[[str], AbstractContextManager[None]]


def peers_of(kernels: Iterable[Kernel], asked: Sequence[str], named: bool, warn: Callable[[str], None]) -> list[str]:
    """The peers of `asked` that any of the kernels can have; of one that was named and cannot be had, a line says why."""
    from kgen.bench import libraries

    found = []
    for peer in asked:
        why = {libraries.lacks(k, peer) for k in kernels}
        if "" in why:
            found.append(peer)
        elif named:
            warn(f"left out {peer}: {', '.join(sorted(why))}")
    return found


def timings(
    kernels: Sequence[Kernel], targets: list[str], peers: Sequence[str], sizes: Sizes, device: str, backward: bool, out: Out
) -> None:
    """Every kernel's targets and peers on every size."""
    from kgen.bench import libraries, timing
    from kgen.bench.apart import Cells

    cells = Cells()
    counted: set[tuple[str, str]] = set()
    for kernel in kernels:
        own = [p for p in peers if not libraries.lacks(kernel, p)]
        for dtype, elements, row in sizes.of(kernel):
            where = f"{kernel.name} {dtype} {elements:,}" + (f" in rows of {row:,}" if has_rows(kernel) else "")
            name, length = f"{kernel.name} backward" if backward else kernel.name, row if has_rows(kernel) else 0
            add_failed = partial(_add_failed, out, len(timing.HEADS) + len(peers), name, dtype, elements, length)
            try:
                with out.busy(where):
                    found = cells.bench(kernel, targets, own, dtype, elements, device, row, backward)
            except Exception as error:
                out.fail(f"error: {where}: {timing.reason(error)}" if not isinstance(error, KgenError) else error.render())
                add_failed(targets, timing.reason(error))
                if isinstance(error, KgenError) and backward:
                    break  # it has no gradient, whatever the size
                continue
            finally:
                cells.free(device)
            for peer, why in found.left_out.items():
                out.warn(f"left out {peer}, {where}: {why}")
            for peer in own:
                reasons = [found.left_out[way] for way in (peer, *libraries.ways(kernel, peer)) if way in found.left_out]
                if reasons and not any(r.what == peer for r in found.rows):
                    add_failed([peer], reasons[-1], "left out")
            for target, why in found.wrong.items():
                out.fail(why if why.startswith("error:") else f"error: {target}, {where}: {why}")
                add_failed([target], why)
            for why in found.doubts:
                out.warn(f"warning: {where}: {why}")
            if found.rows and (key := (kernel.name, dtype)) not in counted:
                counted.add(key)
                out.say(an_element(*key, found.rows[0].predicted))
            for r in found.rows:
                out.add(r.row(peers) if peers else r.row(), [asdict(r)])


def _add_failed(
    out: Out, columns: int, kernel: str, dtype: str, elements: int, length: int, targets: Sequence[str], why: str, how: str = "failed"
) -> None:  # fmt: skip
    """A row of so many columns for each target, or peer, that has no figures, and in what is kept why; `how` stands in their place."""
    for target in targets:
        said = (kernel, dtype, f"{elements:,}", f"{length:,}" if length else "-", target, how)
        kept = {"kernel": kernel, "dtype": dtype, "elements": elements, "length": length, "what": target, "error": why}
        out.add(said + ("-",) * (columns - len(said)), [kept])


def an_element(name: str, dtype: str, predicted: dict[str, Any]) -> str:
    """What the program takes for an element, by count, in words."""
    p = predicted
    return (
        f"{name} {dtype}, an element: {p['read']} B read, {p['written']} B written, {p['special']} special-function and "
        f"{p['other']} other instructions; bound by {p['bound']}"
    )


def profiles(kernels: Sequence[Kernel], targets: list[str], peers: Sequence[str], sizes: Sizes, device: str, out: Out) -> None:
    """The kernels that every target and peer launches, on every size."""
    import torch

    from kgen.bench import libraries, timing
    from kgen.bench.library import holding
    from kgen.bench.profiles import Launched, launched
    from kgen.runtime.kernel import Kernel as Runnable
    from kgen.runtime.samples import arguments

    for kernel in kernels:
        own = list(dict.fromkeys(way for p in peers if not libraries.lacks(kernel, p) for way in libraries.ways(kernel, p)))
        for dtype, elements, row in sizes.of(kernel):
            given = holding(kernel.name, arguments(kernel, dtype, elements, device, row))
            largest = max(given[p.name].numel() for p in kernel.params if p.is_tensor)
            for what in (*targets, *own):
                try:
                    with out.busy(f"{kernel.name} {dtype} {what}"), torch.no_grad():
                        ours = what in targets
                        run: Any = partial(Runnable(kernel), **given, target=what) if ours else libraries.prepared(kernel, what, given)
                        found = launched(run, device)
                except Exception as error:
                    if what in targets:
                        out.fail(f"error: {what}: {timing.reason(error)}")
                    else:
                        out.warn(f"left out {what}: {timing.reason(error)}")
                    continue
                for name, times, us in found:
                    made = Launched(kernel.name, dtype, largest, row if has_rows(kernel) else 0, what, name, times, us)
                    out.add(made.row(), [asdict(made)])
            del given
            free(device)


def calls(kernels: Sequence[Kernel], targets: list[str], peers: Sequence[str], sizes: Sizes, device: str, out: Out) -> None:
    """What a call costs the host."""
    from kgen.bench.calls import call_times

    _each(kernels, sizes, "calls", device, out, lambda kernel, dtype: call_times(kernel, targets, tuple(peers), dtype, device))


def lists(kernels: Sequence[Kernel], targets: list[str], peers: bool, sizes: Sizes, scale: Fraction, device: str, out: Out) -> None:
    """A model's parameters in one call."""
    from kgen.bench.lists import time_lists

    row = sizes.rows[0]
    _each(kernels, sizes, "lists", device, out, lambda kernel, dtype: time_lists(kernel, targets, peers, dtype, scale, device, row))


def _each(kernels: Sequence[Kernel], sizes: Sizes, what: str, device: str, out: Out, time: Callable[[Kernel, str], Any]) -> None:
    """The rows that `time` gives of each kernel in each dtype, and the peers that it left out."""
    from kgen.bench import timing

    for kernel in kernels:
        for dtype in sizes.dtypes if kernel.variables else sizes.dtypes[:1]:
            try:
                with out.busy(f"{kernel.name} {dtype}: {what}"):
                    rows, left_out = time(kernel, dtype)
            except Exception as error:
                out.fail(error.render() if isinstance(error, KgenError) else f"error: {kernel.name} {dtype}: {timing.reason(error)}")
                continue
            finally:
                free(device)
            for peer, why in left_out.items():
                out.warn(f"left out {peer}: {why}")
            for r in rows:
                out.add(r.row(), [asdict(r)])


def firsts(texts: Sequence[tuple[str, str, Kernel]], targets: list[str], compiled: bool, sizes: Sizes, device: str, out: Out) -> None:
    """First results from cold and warm caches, each in a process of its own; `texts` are (text, name, kernel)."""
    from kgen.bench.first import first_times

    for text, name, kernel in texts:
        for dtype, elements, row in sizes.of(kernel):
            rows = first_times(text, name, kernel, targets, compiled, dtype, elements, row, device)
            while True:
                with out.busy(f"{kernel.name} {dtype}: first results"):
                    try:
                        r = next(rows, None)
                    except KgenError as error:
                        out.fail(error.render())
                        break
                if r is None:
                    break
                out.add(r.row(), [asdict(r)])


def kernelbench(tasks: str, targets: list[str], peers: Sequence[str], scale: Fraction, device: str, out: Out) -> None:
    """KernelBench's tasks, one line each as it comes; `kernelbench.summary` has the means."""
    from kgen.bench import kernelbench as bench

    for task in bench.chosen(tasks):
        with out.busy(task.name):
            found = bench.time_task(task, targets, peers, device, scale)
            free(device)
        for peer, why in found.left_out.items():
            out.warn(f"left out {peer}, {task.name}: {why}")
        for why in found.wrong.values():
            out.fail(why if why.startswith("error:") else f"error: {why}")
        if found.rows:
            out.add(bench.line(task, found.rows, targets), [asdict(r) for r in found.rows])


def block(text: str, peers: Sequence[str], device: str, out: Out) -> None:
    """Steps of training, by each way; `text` is LAYERSxBATCH, or nothing for GPT-2 small's (a tiny one on a CPU)."""
    from kgen.bench import block as bench
    from kgen.bench.gpt2 import TINY, Sizes, sizes_of

    sizes = sizes_of(text, device) if text else Sizes() if device == "cuda" else TINY
    with out.busy(f"{sizes.layers} layers, {sizes.batch} x {sizes.length} tokens"):
        for r in bench.time_block(sizes, peers, device, out.warn):
            out.add(r.row(), [asdict(r)])
