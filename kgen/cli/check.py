"""`kgen check`."""

from __future__ import annotations

import sys
from typing import Any

import click

from kgen.cli.group import TARGETS, Fail, coloured, each, failing, load_spec, main, without_option
from kgen.cli.output import print_table


@main.command("check")
@click.argument("specs", nargs=-1, metavar="SPEC...")
@click.option(
    "--examples", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="Random cases for each target and dtype choice."
)
@click.option(
    "--target",
    type=click.Choice([*TARGETS, "torch", "all"]),
    default=None,
    help="Only this target (default: all that run here); torch evaluates the formula itself.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random cases.")
@click.option("--operators", is_flag=True, help="Check every operator over all f16 and bf16 inputs instead of specs.")
@click.option("--backward", is_flag=True, help="Check the backward: the gradients from what the forward saves.")
@click.option(
    "--checked", is_flag=True, help="Draw indices inside alone, and fail where a result depends on a lookup outside all the same."
)
@without_option
@click.option("-v", "--verbose", is_flag=True, help="Show the worst error of a random case too, in units in the last place.")
@click.option("--table", is_flag=True, help="Print the figures of plain data as Markdown.")
def check_(
    specs: tuple[str, ...], examples: int, target: str | None, seed: int, operators: bool, backward: bool, checked: bool, without: str,
    verbose: bool, table: bool,
) -> None:  # fmt: skip
    """Run a spec on random shapes, strides, dtypes and special values, against eager PyTorch and float64.

    A kernel with tensors that a call may leave out is checked with all of them, and without any.

    PASS says that every element lay within the bound derived for it.  What the largest error, eager's and the bound come to is told of
    plain data (standard normal), as parts of the largest magnitude of the result's row, where dtype variables stand for f32 and
    for bf16: 6e-8 is f32's own rounding, 4e-3 that of bf16.
    """
    if bool(specs) == operators:
        raise click.UsageError("name one or more specs, or --operators" if not specs else "--operators takes no specs")
    chosen = None if target in (None, "all") else target
    from kgen.testing import checks

    with failing():
        able, left_out = checks.targets(chosen)
    for name, why in left_out.items():
        click.echo(f"left out {name}: {why}", err=True)
    if not able:
        raise Fail("error: no target runs here")
    if operators:
        from kgen.testing import operators as sweep

        rows, failed = sweep.table(able, progress=sys.stderr.isatty())
        print_table(sweep.HEADS, rows, right=tuple(range(1, len(sweep.HEADS))))
        if failed:
            raise Fail("\n".join(f"error: {line}" for line in failed))
        return
    from kgen.testing.reproducer import explained

    reports: list[Any] = []

    def work(spec: str) -> None:
        kernel = load_spec(spec, without)
        check = checks.check_backward if backward else checks.check
        for of, name in ((k, name) for k in checks.with_and_without(kernel) for name in able):
            report = check(of, name, examples=examples, seed=seed, progress=sys.stderr.isatty(), plain=True, checked=checked)
            report.kernel += checks.shown_absent(kernel, of)
            reports.append(report)
            if report.failures:
                with checks.shown_progress("making the case small", sys.stderr.isatty()):
                    said = explained(report)
                click.echo(coloured(said), err=True)

    try:
        each(specs, work)
    finally:
        if reports and table:
            click.echo(checks.markdown(reports))
        elif reports:
            heads = checks.HEADS + checks.MORE_HEADS * verbose
            print_table(heads, [r.row() + r.more() * verbose for r in reports], right=tuple(range(3, len(heads))))
            for line in (line for r in reports for line in r.doubts()):
                click.echo(coloured(f"warning: {line}"), err=True)
    if any(r.failures for r in reports):
        raise SystemExit(1)
