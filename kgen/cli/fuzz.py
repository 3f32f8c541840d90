"""`kgen fuzz`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from kgen.cli.group import INTERRUPTED, TARGETS, Fail, coloured, failing, main
from kgen.cli.output import print_table, writable


@main.command("fuzz")
@click.option("--minutes", default=1.0, show_default=True, type=click.FloatRange(0, 10_000), help="How long to go on.")
@click.option("--target", "wanted", default=None, metavar="LIST", help="Targets: cuda,triton,cpp,torch (default: all that run here).")
@click.option("--seed", default=0, show_default=True, help="Names the programs; the same seed goes on where it was.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1, 256), help="Worker processes.")
@click.option("--keep", default="fuzzed", show_default=True, metavar="DIR", help="Where failures and counts are kept.")
@click.option("--replay", multiple=True, type=click.Path(exists=True), metavar="FILE.k", help="Look at kept files instead, once.")
def fuzz_(minutes: float, wanted: str | None, seed: int, jobs: int, keep: str, replay: tuple[str, ...]) -> None:
    """Hold random programs to what must hold of any: printing, renaming, rules, targets, gradients, rows."""
    names = [name for name in (wanted or "").split(",") if name and name != "all"]
    if unknown := [name for name in names if name not in (*TARGETS, "torch")]:
        raise click.UsageError(f"there is no target {unknown[0]}; targets are {', '.join(TARGETS)}, torch")
    from kgen.testing import campaigns, checks, fuzz

    able: list[str] = []
    for name in names or ("torch", *TARGETS):
        with failing():
            runs, left_out = checks.targets(name)
        able += runs
        for other, why in left_out.items():
            click.echo(f"left out {other}: {why}", err=True)
    if not able:
        raise Fail("error: no target runs here")
    if replay:
        found = fuzz.replay(replay, able)
        for failure in found:
            click.echo(coloured(f"error: {failure.broken} {failure.target}: {failure.message}\n{failure.text}"), err=True)
        click.echo(f"{len(replay)} files, {len(found)} failures")
        raise SystemExit(1 if found else 0)
    plan = campaigns.Plan(seed, tuple(able), Path(keep))
    with failing():
        writable(campaigns.State.path(plan))
    campaign = campaigns.Campaign(plan, jobs)
    with _told(minutes) as tell:
        state = campaign.run(minutes, tell)
    if state.counts:
        print_table(campaigns.HEADS, state.rows(), right=tuple(range(2, len(campaigns.HEADS))))
    click.echo(campaigns.summary(state))
    for name in state.failures:
        click.echo(f"kept {Path(keep) / name}", err=True)
    if campaign.interrupted:
        click.echo(f"interrupted; the same command goes on from what {Path(keep)} keeps", err=True)
        raise SystemExit(INTERRUPTED)
    if state.failed:
        raise SystemExit(1)


@contextmanager
def _told(minutes: float) -> Iterator[Callable[[Any], None]]:
    """How far a campaign is: a bar on a terminal, else a line a minute."""
    import time

    start = time.monotonic()
    if not sys.stderr.isatty():
        last = [start]

        def line(state: Any) -> None:
            if time.monotonic() - last[0] >= 60:
                last[0] = time.monotonic()
                click.echo(f"{state.programs:,} programs, {state.cases:,} cases, {state.failed:,} failures", err=True)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=max(1.0, 60 * minutes))

        def shown(state: Any) -> None:
            rate = state.programs / state.seconds * 60 if state.seconds else 0
            text = f"{state.programs:,} programs  {state.cases:,} cases  {state.failed:,} failures  {rate:.0f} a minute"
            bar.update(task, completed=time.monotonic() - start, description=text)

        yield shown
