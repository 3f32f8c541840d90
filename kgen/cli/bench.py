"""`kgen bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kgen.cli.group import INTERRUPTED, Fail, coloured, each, failing, load_spec, main, target_option
from kgen.cli.output import Lines
from kgen.cli.sizes import elements_of, fraction
from kgen.errors import KgenError, printed
from kgen.files import writable, write_file


@main.command("bench")
@click.argument("specs", nargs=-1, metavar="[SPEC...]")
@click.option(
    "--against",
    default=None,
    metavar="PEERS",
    help="Peers to time beside it, of eager, formula, torch, compile, liger, quack, helion; or none "
    "(default: all that are installed, of the first three eager).",
)
@target_option
@click.option(
    "--dtype", "dtypes", default="f32", show_default=True, metavar="LIST", help="What the dtype variables stand for: f32,bf16,..."
)
@click.option("--elements", default="2^24", show_default=True, metavar="LIST", help="Sizes of the largest operand: 2^20,2^24,...")
@click.option("--row", default="4096", show_default=True, metavar="LIST", help="Elements along what is reduced: 1024,4096,...")
@click.option("--plot", type=click.Path(dir_okay=False), default=None, metavar="FILE.png", help="Draw bandwidth over size.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), default=None, metavar="FILE", help="Keep the figures.")
@click.option("--backward", is_flag=True, help="Time the gradients, through autograd.")
@click.option("--profile", is_flag=True, help="List the kernels that a call launches, with the time of each.")
@click.option("--call", is_flag=True, help="Time what a call costs the host, on 1,024 elements, beside eager F.gelu.")
@click.option("--first", is_flag=True, help="Time the first result of a process, from an empty and from a warm cache.")
@click.option("--foreach", is_flag=True, help="Time a call over all parameters of GPT-2 small, beside torch's.")
@click.option(
    "--kernelbench",
    is_flag=False,
    flag_value="all",
    default=None,
    metavar="[TASKS]",
    help="Time KernelBench level 1's tasks instead: 23,33-36, or all of them.",
)
@click.option(
    "--block",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[LAYERSxBATCH]",
    help="Train GPT-2 small's layers with kgen's kernels instead, beside eager and torch.compile: 12x8.",
)
@click.option("--scale", default="1", metavar="FRACTION", help="Of KernelBench's and the model's sizes, on a small machine: 1/16.")
@click.option("--table", is_flag=True, help="Of files that --json wrote (and of the kernels named beside them): Markdown.")
def bench(
    specs: tuple[str, ...], against: str | None, target: str | None, dtypes: str, elements: str, row: str, plot: str | None,
    json_file: str | None, backward: bool, profile: bool, call: bool, first: bool, foreach: bool, kernelbench: str | None,
    block: str | None, scale: str,
    table: bool,
) -> None:  # fmt: skip
    """Time a spec's kernels beside eager PyTorch, torch.compile, other libraries and a copy, in one run; results are compared first.

    Peers: eager is the faster, on each size, of the formula written out in torch (formula) and torch's own function (torch); compile is
    torch.compile of that function, else of the formula; liger, quack and helion are packages.  With --table, --plot draws the kept figures.
    """
    modes = {"--backward": backward, "--profile": profile, "--call": call, "--first": first, "--foreach": foreach, "--table": table,
             "--kernelbench": kernelbench, "--block": block is not None}  # fmt: skip
    chosen = [name for name, on in modes.items() if on]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} does not go with {chosen[1]}")
    whole = {"--kernelbench": "23,24", "--block": "12x8"}
    if bool(specs) == (chosen[:1] != [] and chosen[0] in whole):
        takes = f"{chosen[0]} takes no specs: write {chosen[0]} {whole[chosen[0]]}" if specs else ""
        raise click.UsageError(takes or f"name one or more specs, or {' or '.join(whole)}")
    if plot and chosen and chosen[0] not in ("--backward", "--block", "--table"):
        raise click.UsageError(f"{chosen[0]} has no sizes to plot over")
    from kgen.bench import command

    if table:
        _show_kept(specs, plot)
        return
    from kgen.bench.libraries import PEERS, USUAL
    from kgen.testing import checks

    peers = tuple(p for p in (against or "").split(",") if p and p != "none") if against is not None else USUAL
    if unknown := [p for p in peers if p not in PEERS]:
        raise click.UsageError(f"there is no peer {unknown[0]}; peers are {', '.join(PEERS)}, or none")
    lengths = [elements_of(text) for text in row.split(",")]
    sizes = command.Sizes([d for d in dtypes.split(",") if d], [elements_of(text) for text in elements.split(",")], lengths)
    if unknown := [d for d in sizes.dtypes if d not in ("f16", "bf16", "f32", "f64")]:
        raise click.UsageError(f"{unknown[0]} is not a float dtype")
    if not sizes.dtypes:
        raise click.UsageError("--dtype names none")
    with failing():
        if plot:
            from kgen.bench import picture

            picture.drawable(plot)
        writable(json_file, plot)
        able, left_out = checks.targets(None if target in (None, "all") else target)
    for name, why in left_out.items():
        click.echo(f"left out {name}: {why}", err=True)
    device = "cuda" if any(t != "cpp" for t in able) else "cpu"
    able = [t for t in able if (t == "cpp") == (device == "cpu")]
    if not able:
        raise Fail("error: no target runs here")
    failed: list[str] = []
    kept = _Kept(json_file)

    def fail(text: str) -> None:
        failed.append(text)
        click.echo(coloured(text), err=True)

    def out(heads: tuple[str, ...], left: int) -> command.Out:
        lines = Lines(heads, left)

        def add(cells: tuple[str, ...], figures: Sequence[dict[str, Any]]) -> None:
            lines.add(cells)
            kept.add(figures)

        return command.Out(
            add, lambda text: click.echo(text, err=True), fail, click.echo, lambda label: checks.shown_progress(label, sys.stderr.isatty())
        )

    def measure() -> None:
        """Measure what the options ask for and print a row as soon as it is there."""
        if kernelbench:
            from kgen.bench import kernelbench as tasks

            extra = able if target else []
            known = tuple(p for p in peers if p in ("eager", "compile"))
            try:
                with failing():
                    command.kernelbench(kernelbench, extra, known, fraction(scale), device, out(tasks.heads(extra), 1))
            finally:
                if kept.rows:
                    click.echo(tasks.summary(kept.rows))
            return
        if block is not None:
            from kgen.bench import block as blocks

            with failing():
                command.block(block, tuple(p for p in peers if p in ("eager", "compile")), device, out(blocks.HEADS, 3))
            return
        kernels = [kernel for _, _, kernel in loaded]
        if call:
            from kgen.bench import calls

            beside = tuple(p for p in peers if p == "compile" or against is not None)
            command.calls(kernels, able, beside, sizes, device, out(calls.HEADS, 4))
        elif foreach:
            from kgen.bench import lists

            command.lists(kernels, able, against is None or bool(peers), sizes, fraction(scale), device, out(lists.HEADS, 5))
        elif first:
            from kgen.bench import first as firsts

            command.firsts(loaded, able, "compile" in peers, sizes, device, out(firsts.HEADS, 4))
        else:
            found = command.peers_of(kernels, peers, against is not None, lambda text: click.echo(text, err=True))
            if profile:
                from kgen.bench import profiles

                command.profiles(kernels, able, found, sizes, device, out(profiles.HEADS, 6))
            else:
                from kgen.bench import timing

                heads = (*timing.HEADS, *(f"vs {p}" for p in found))
                command.timings(kernels, able, found, sizes, device, backward, out(heads, 5))

    loaded: list[Any] = []

    def load(spec: str) -> None:
        from kgen.runtime.kernel import read_spec

        loaded.append((*read_spec(spec), load_spec(spec)))

    each(specs, load)
    interrupted = False
    try:
        measure()
    except KeyboardInterrupt:
        interrupted = True
    measured = [r for r in kept.rows if "error" not in r]
    if plot and measured:
        with failing():
            (picture.draw if block is None else picture.draw_block)(measured, plot)
    if interrupted:
        files = " and ".join(file for file in (json_file, plot) if file) if kept.rows else ""
        figures = f"{len(measured)} figures were measured" + (f" and are in {printed(files, '')}" if files else "")
        click.echo(f"interrupted; {figures}", err=True)
        raise SystemExit(INTERRUPTED)
    if failed:
        raise SystemExit(1)


def _show_kept(given: tuple[str, ...], plot: str | None) -> None:
    """Print what `--json` kept as Markdown, and draw it: all of the files, or the kernels named beside them."""
    import json

    from kgen.bench import picture, table

    rows: list[Any] = []
    names = [name for name in given if not name.endswith(".json")]
    with failing():
        if plot:
            picture.drawable(plot)
            writable(plot)
        for file in (file for file in given if file.endswith(".json")):
            try:
                found = json.loads(Path(file).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise KgenError(f"cannot read {printed(file, '')}: {getattr(error, 'strerror', None) or 'it is no JSON'}") from None
            found = found if isinstance(found, list) else [found]
            rows += [r for r in found if not names or isinstance(r, dict) and r.get("kernel") in names]
        click.echo(table.markdown(rows))
        if plot:
            blocks = [r for r in rows if "exact" in r]
            picture.draw_block(blocks, plot) if blocks else picture.draw([r for r in rows if "copy" in r and "tensors" not in r], plot)


class _Kept:
    """Figures, written to a file whenever there are more: a run that is killed leaves those that it had."""

    def __init__(self, file: str | None):
        self.file, self.rows = file, list[dict[str, Any]]()

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows += rows
        if self.file:
            import json

            with failing():
                write_file(Path(self.file), json.dumps(self.rows, indent=1) + "\n")
