"""`kgen show`, `kgen fmt` and `kgen list`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from kgen.cli.group import TARGETS, each, failing, load_spec, main, spec_argument, warn, with_backward, without_option
from kgen.errors import KgenError, printed
from kgen.files import write_file

STAGES = (
    "spec", "syntax", "math", "lowered", "program", "expanded", "schedule", "precision", "units", "launch", "source", "ptx", "sass",
    "asm",
)


@main.command("show")
@click.argument("spec")
@click.option("--stage", type=click.Choice(STAGES), default="program", show_default=True, help="What to show.")
@click.option(
    "--target", type=click.Choice([*TARGETS]), default="triton", show_default=True, help="Whose schedule, source, PTX or assembly."
)
@click.option("--dtype", "dtypes", multiple=True, metavar="T=bf16", help="What a dtype variable stands for (default: f32).")
@click.option("--arch", default="sm_90", show_default=True, help="GPU architecture for launch, ptx and sass.")
@click.option("--backward", is_flag=True, help="Show its backward.")
@without_option
def show(spec: str, stage: str, target: str, dtypes: tuple[str, ...], arch: str, backward: bool, without: str) -> None:
    """Show a spec at one stage on its way from text to machine code."""
    from kgen import show as stages

    with failing():
        kernel = load_spec(spec, without)
        if STAGES.index(stage) >= STAGES.index("schedule"):
            warn(with_backward(kernel)[-1] if backward else kernel)
        click.echo(stages.show(kernel, stage, target, stages.binding(kernel, dtypes), arch, backward), nl=False)


@main.command("fmt")
@spec_argument
@click.option("--check", "check_only", is_flag=True, help="Write nothing; exit with 1 if a file is not well set.")
def fmt(specs: tuple[str, ...], check_only: bool) -> None:
    """Set spec files well: spaces, aligned equations, comments kept.  `-` reads stdin and writes stdout."""
    from kgen import syntax, typeset
    from kgen.runtime.kernel import read_spec

    changed: list[str] = []

    def work(spec: str) -> None:
        if spec == "-":
            text, name = sys.stdin.read(), "<stdin>"
        else:
            if not os.path.exists(spec):
                raise KgenError(f"cannot read {printed(spec, '')}: no such file or directory")
            text, name = read_spec(spec)
        new = typeset.format_file(syntax.parse(text, name))
        if spec == "-":
            click.echo(new, nl=False)
        elif new != text:
            changed.append(spec)
            if not check_only:
                write_file(Path(spec), new)

    each(specs, work)
    for spec in changed:
        click.echo(f"{'would set' if check_only else 'set'} {printed(spec, '')}", err=True)
    if check_only and changed:
        raise SystemExit(1)


@main.command("list")
@click.argument("wanted", nargs=-1, metavar="[FAMILY...]")
def list_(wanted: tuple[str, ...]) -> None:
    """List the bundled specs by family: what each is called, takes, gives and computes."""
    from kgen.library import entries

    found = entries()
    if unknown := [family for family in wanted if family not in found]:
        raise click.UsageError(f"there is no family {printed(unknown[0], '')}: families are {', '.join(found)}")
    heads = []
    for family in wanted or found:
        heads.append("\n".join([family, *(f"  {e.signature}\n      {e.summary}" for e in found[family])]))
    click.echo("\n\n".join(heads))
