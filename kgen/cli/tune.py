"""`kgen tune`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from kgen.cli.group import coloured, each, failing, load_spec, main
from kgen.cli.output import Lines
from kgen.cli.sizes import elements_of
from kgen.errors import KgenError, printed


@main.command("tune")
@click.argument("specs", nargs=-1, metavar="[SPEC...]")
@click.option("--dtype", "dtypes", default="bf16,f32", show_default=True, metavar="LIST", help="What the dtype variables stand for.")
@click.option(
    "--row",
    default=",".join(str(2**k) for k in range(9, 19)),
    show_default=True,
    metavar="LIST",
    help="Elements along what is reduced: 1024,4096,...",
)
@click.option("--elements", default="2^28", show_default=True, metavar="N", help="Size of the largest operand.")
@click.option("--save", is_flag=True, help="Keep the winners, for all later calls on GPUs of this architecture.")
def tune_(specs: tuple[str, ...], dtypes: str, row: str, elements: str, save: bool) -> None:
    """Search how this GPU's CUDA kernels share rows out best: teams, vectors, and where a row is held.

    Without specs, bundled ones stand for each kind of pass.  Figures are shares of a copy's speed, in the same run.
    """
    wanted = [d for d in dtypes.split(",") if d]
    if unknown := [d for d in wanted if d not in ("f16", "bf16", "f32", "f64")]:
        raise click.UsageError(f"{unknown[0]} is not a float dtype")
    if not wanted:
        raise click.UsageError("--dtype names none")
    lengths, size = [elements_of(text) for text in row.split(",")], elements_of(elements)
    from kgen.testing import checks

    with failing():
        if why := checks.targets("cuda")[1].get("cuda"):
            raise KgenError(f"`kgen tune` times kernels on a GPU: {why}")
        import torch

        from kgen.bench import tune
        from kgen.runtime.driver import arch_of

        kernels: list[Any] = []
        each(specs or tuple(name for names in tune.SPECS.values() for name in names), lambda spec: kernels.append(load_spec(spec)))
        lines, failed, index = Lines(tune.HEADS, 3), list[str](), torch.cuda.current_device()

        def fail(text: str) -> None:
            failed.append(text)
            click.echo(coloured(text), err=True)

        with _tuning() as tell:
            cells = tune.tune(
                kernels, wanted, lengths, size, "cuda", index, arch_of(index),
                lambda cell: lines.add(cell.cells()), tell, lambda text: click.echo(text, err=True), fail,
            )  # fmt: skip
        if save and cells:
            click.echo(f"wrote {printed(str(tune.save(arch_of(index), cells)), '')}", err=True)
    if failed or not cells:
        raise SystemExit(1)


@contextmanager
def _tuning() -> Iterator[Callable[[int, int, str], None]]:
    """How far a search is, on a terminal: a bar, and what is tried; elsewhere the table itself says so, line by line."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
