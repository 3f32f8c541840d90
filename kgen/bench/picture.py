"""Bandwidth over size as a picture."""

from __future__ import annotations

from typing import Any

from kgen.errors import KgenError


def draw(rows: list[Any], path: str) -> None:
    """Draw GB/s over the number of elements (or of a row, where that varies) to a PNG file: a panel a (kernel, dtype), a line for
    each target and peer.

    Raises `KgenError` where matplotlib is missing or the file cannot be written.
    """
    try:
        import matplotlib
    except ImportError:
        raise KgenError("--plot needs matplotlib", help="pip install 'kgen[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((r.kernel, r.dtype) for r in rows))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(1.5 + 4.5 * len(panels), 3.8), squeeze=False)
    for axis, panel in zip(axes[0], panels, strict=True):
        own = [r for r in rows if (r.kernel, r.dtype) == panel]
        along = "length" if len({r.length for r in own}) > 1 else "elements"
        for what in dict.fromkeys(r.what for r in own):
            line = sorted((getattr(r, along), r.bytes / r.ms * 1e-6) for r in own if r.what == what)
            axis.plot(*zip(*line, strict=True), marker="o", label=what)
        copies = sorted({(getattr(r, along), r.bytes / r.copy * 1e-6) for r in own})
        axis.plot(*zip(*copies, strict=True), color="grey", linestyle="--", label="copy")
        label = "elements of a row" if along == "length" else along
        axis.set(title=" ".join(panel), xlabel=label, ylabel="GB/s", xscale="log", ylim=(0, None))
        axis.legend()
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise KgenError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        pyplot.close(figure)
