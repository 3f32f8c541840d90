"""`kgen fuzz`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from kgen.cli.group import INTERRUPTED, TARGETS, Fail, coloured, failing, main
from kgen.cli.output import print_table
from kgen.errors import KgenError
from kgen.files import writable


@main.command("fuzz")
@click.option("--programs", type=click.IntRange(1), metavar="N", help="The first N programs of the seed (in whole blocks).")
@click.option("--minutes", type=click.FloatRange(0, 10_000), help="How long to go on at most.  [default: 1, with --programs no end]")
@click.option("--target", "wanted", default=None, metavar="LIST", help="Targets: cuda,triton,cpp,torch (default: all that run here).")
@click.option("--seed", default=0, show_default=True, help="Names the programs; the same seed goes on where it was.")
@click.option("-j", "--jobs", default=1, show_default=True, type=click.IntRange(1, 256), help="Worker processes.")
@click.option("--keep", default="fuzzed", show_default=True, metavar="DIR", help="Where failures and counts are kept.")
@click.option("--shrink", default=60.0, show_default=True, type=click.FloatRange(0), help="Seconds to make a failing program smaller.")
@click.option("--compile-only", is_flag=True, help="Compile what CUDA and Triton would run, without a GPU.")
@click.option("--replay", is_flag=True, help="Look at the kept files that are named instead, once each.")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False), metavar="[FILE.k ...]")
def fuzz_(
    programs: int | None, minutes: float | None, wanted: str | None, seed: int, jobs: int, keep: str, shrink: float, compile_only: bool,
    replay: bool, files: tuple[str, ...],
) -> None:  # fmt: skip
    """Hold random programs to what must hold of any: printing, renaming, rules, targets, gradients, rows.

    Failures are printed and kept as they are found; the last line counts programs, cases, failures and seconds.
    """
    names = [name for name in (wanted or "").split(",") if name and name != "all"]
    if unknown := [name for name in names if name not in (*TARGETS, "torch")]:
        raise click.UsageError(f"there is no target {unknown[0]}; targets are {', '.join(TARGETS)}, torch")
    if replay and not files:
        raise click.UsageError("name the kept files to look at again: --replay FILE.k ...")
    if files and not replay:
        raise click.UsageError(f"to look at {files[0]} again: --replay")
    from kgen.testing import campaigns, fuzz, properties

    able = _able(names or (("cuda", "triton") if compile_only else ("torch", *TARGETS)), compile_only)
    if replay:
        held = properties.COMPILED if compile_only else properties.ON_TARGET
        found = fuzz.replay(files, able, held=tuple(held))
        for failure in found:
            click.echo(coloured(f"error: {failure.broken} {failure.target}: {failure.message}\n{failure.text}"), err=True)
        click.echo(f"{len(files)} files, {len(found)} failures")
        raise SystemExit(1 if found else 0)

    def said(failure: fuzz.Failure, path: Path) -> None:
        click.echo(coloured(f"error: {failure.broken} {failure.target}: {failure.message[:600]}\n{failure.text}kept {path}"), err=True)

    plan = campaigns.Plan(seed, tuple(able), Path(keep), programs=programs, compiled=compile_only, shrinking=shrink)
    with failing():
        writable(campaigns.State.path(plan))
    campaign = campaigns.Campaign(plan, jobs, said)
    minutes = minutes if minutes is not None else 1.0 if programs is None else 10_000.0
    with failing(), _told(minutes, programs) as tell:
        state = campaign.run(minutes, tell)
    if state.counts:
        print_table(campaigns.HEADS, state.rows(), right=tuple(range(2, len(campaigns.HEADS))))
    if state.failures:
        click.echo(f"kept {', '.join(str(Path(keep) / name) for name in state.failures)}", err=True)
    if campaign.interrupted:
        click.echo(f"interrupted; the same command goes on from what {Path(keep)} keeps", err=True)
    click.echo(campaigns.summary(state))
    if campaign.interrupted:
        raise SystemExit(INTERRUPTED)
    if state.failed or state.failures:
        raise SystemExit(1)


def _able(names: Sequence[str], compile_only: bool) -> list[str]:
    """The targets that a campaign runs on; those that it leaves out are told.  Raises `Fail` where none is left."""
    from kgen.testing import absent, checks

    able: list[str] = []
    for name in names:
        with failing():
            if not compile_only:
                runs, left_out = checks.targets(name)
            elif name in ("cuda", "triton"):
                why = absent.missing(name)
                runs, left_out = ([], {name: why}) if why else ([name], {})
            else:
                raise KgenError(f"{name} is not compiled for a GPU", help="--compile-only is for cuda and triton")
        able += runs
        for other, why in left_out.items():
            click.echo(f"left out {other}: {why}", err=True)
    if not able:
        raise Fail("error: no target runs here")
    return able


@contextmanager
def _told(minutes: float, programs: int | None) -> Iterator[Callable[[Any], None]]:
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
        task = bar.add_task("starting", total=max(1.0, 60 * minutes) if programs is None else programs)

        def shown(state: Any) -> None:
            rate = state.programs / state.seconds * 60 if state.seconds else 0
            text = f"{state.programs:,} programs  {state.cases:,} cases  {state.failed:,} failures  {rate:.0f} a minute"
            bar.update(task, completed=time.monotonic() - start if programs is None else state.programs, description=text)

        yield shown
