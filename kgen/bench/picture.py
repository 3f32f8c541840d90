"""Figures as pictures: bandwidth over size, and ways of training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kgen.errors import KgenError, printed

#: A colour for each target and peer, the same in every picture; kgen's lines are thick.
COLOURS = {"cuda": "#1b7837", "triton": "#5aae61", "cpp": "#1b7837", "eager": "#8c8c8c", "formula": "#bdbdbd", "torch": "#d6604d",
           "compile": "#f4a582", "liger": "#4393c3", "quack": "#7b3294", "helion": "#c2a5cf",
           "kgen": "#1b7837", "kgen compiled": "#5aae61"}  # fmt: skip
OURS = ("cuda", "triton", "cpp")
LABELS = {"cuda": "kgen CUDA", "triton": "kgen Triton", "cpp": "kgen C++", "eager": "eager", "formula": "written out",
          "compile": "torch.compile", "liger": "Liger", "quack": "QuACK", "helion": "Helion",
          "kgen compiled": "kgen under\ntorch.compile"}  # fmt: skip
ACROSS = 4  # panels in a line


def needs_matplotlib() -> None:
    """Raise `KgenError` where matplotlib is missing: before figures are made, not after."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise KgenError("--plot needs matplotlib", help="pip install 'kgen[plot]'")


def drawable(path: str) -> None:
    """Raise `KgenError` where matplotlib is missing, or draws no files of a path's kind: before figures are made, not after."""
    needs_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in kinds:
        raise KgenError(f"--plot draws no {printed(Path(path).suffix or path, '')}", help=f"it draws {', '.join(sorted(kinds))}")


def draw(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Draw GB/s over the elements of a row (or of all, where those are what varies) to a PNG or SVG file: a panel a (kernel, dtype), a
    line for each target and peer with its 20th to 80th percentile, the copy dashed.  `rows` are what `--json` keeps.

    Raises `KgenError` where matplotlib is missing or the file cannot be written.
    """
    needs_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((r["kernel"], r["dtype"]) for r in rows))
    if not panels:
        raise KgenError("--plot: there is nothing to draw")
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(1.2 + 4.2 * across, 0.7 + 3.3 * down), squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        own = [r for r in rows if (r["kernel"], r["dtype"]) == panel]
        along = "length" if len({r["length"] for r in own}) > 1 else "elements"
        for what in sorted(dict.fromkeys(r["what"] for r in own), key=lambda w: w in OURS):
            line = sorted((r[along], r["bytes"] / r["ms"] * 1e-6, r["bytes"] / (r["high"] or r["ms"]) * 1e-6,
                           r["bytes"] / (r["low"] or r["ms"]) * 1e-6) for r in own if r["what"] == what)  # fmt: skip
            x, y, low, high = zip(*line, strict=True)
            colour = COLOURS.get(what)
            axis.plot(x, y, marker="o", markersize=4, label=LABELS.get(what, what), color=colour, linewidth=2.4 if what in OURS else 1.2)
            axis.fill_between(x, low, high, color=colour, alpha=0.15)
        copies = sorted({(r[along], r["bytes"] / r["copy"] * 1e-6) for r in own})
        axis.plot(*zip(*copies, strict=True), color="black", linestyle="--", linewidth=1, label="copy")
        label = "elements of a row" if along == "length" else along
        axis.set(title=" ".join(panel), xlabel=label, ylabel="GB/s", ylim=(0, None))
        axis.set_xscale("log", base=2)
        axis.grid(alpha=0.3)
    handles: dict[str, Any] = {}
    for axis in axes.flat[: len(panels)]:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.tight_layout(rect=(0, 0.35 / (0.7 + 3.3 * down), 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=min(len(handles), 3 * across), frameon=False)
    _save(figure, path)


def draw_block(rows: Sequence[dict[str, Any]], path: str) -> None:
    """Draw ways of training to a PNG or SVG file: bars of the time of a step and of the memory at its peak, and how far the first losses
    lie from float64's.  `rows` are what `--block --json` keeps.

    Raises `KgenError` where matplotlib is missing or the file cannot be written.
    """
    needs_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from kgen.bench.block import distances

    figure, (times, memory, losses) = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    names = [r["what"] for r in rows]
    colours = [COLOURS.get(name, "#1b7837") for name in names]
    labels = [LABELS.get(name, name) for name in names]
    for axis, figures, title, form in ((times, [r["ms"] for r in rows], "ms a step", "{:.1f}"),
                                       (memory, [r["memory"] * 1e-3 for r in rows], "GB at the peak", "{:.2f}")):  # fmt: skip
        bars = axis.barh(labels, figures, color=colours)
        axis.bar_label(bars, [form.format(x) for x in figures], color="white", label_type="center")
        axis.invert_yaxis()
        axis.set_title(title)
        axis.spines[["top", "right"]].set_visible(False)
    memory.set_yticklabels([])
    for r, colour, label in zip(rows, colours, labels, strict=True):
        apart = [max(x, 1e-9) for x in distances(r["losses"], r["exact"])]
        losses.semilogy(range(1, len(apart) + 1), apart, color=colour, label=label, marker="o", markersize=3)
    losses.set(title="loss, relative distance to float64", xlabel="step")
    losses.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _save(figure: Any, path: str) -> None:
    """Write a figure, the file whole or not at all.  Raises `KgenError` where it cannot be written."""
    from matplotlib import pyplot

    place = Path(path)
    temporary = place.with_name(f".{place.name[:50]}-{os.getpid()}{place.suffix}")
    try:
        figure.savefig(temporary, dpi=150)
        os.replace(temporary, place)
    except (OSError, ValueError) as error:
        raise KgenError(f"cannot write {path}: {(getattr(error, 'strerror', None) or str(error)).lower()}") from None
    finally:
        temporary.unlink(missing_ok=True)
        pyplot.close(figure)
