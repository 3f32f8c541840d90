"""PyTorch's OpInfo suite run through kgen: `python -m tests.opinfo [--target ...] [--op NAME] [--dtype ...]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from kgen.testing import checks
from tests.opinfo.suite import DEFAULT, Suite


@click.command(help=__doc__)
@click.option("--target", type=click.Choice(("torch", "cpp", "cuda", "triton")), default="torch", help="what runs the kernels")
@click.option("--op", "names", multiple=True, help="an operator, by its name (again for several)")
@click.option("--dtype", "dtypes", default=",".join(DEFAULT), help="dtypes, with commas between")
@click.option("--samples", type=int, default=0, help="at most so many samples of a kind")
@click.option("--largest", type=int, default=0, help="leave out samples of more elements")
@click.option("--markdown", type=click.Path(path_type=Path), help="write the table there")
@click.option("--json", "data", type=click.Path(path_type=Path), help="write the counts there")
def main(target: str, names: tuple[str, ...], dtypes: str, samples: int, largest: int, markdown: Path | None, data: Path | None) -> None:
    able, left_out = checks.targets(target)
    if not able:
        raise click.UsageError(f"{target} does not run here: {left_out[target]}")
    suite = Suite(target, tuple(dtypes.split(",")), samples, largest=largest)
    suite.run(names, progress=sys.stderr.isatty())
    click.echo(suite.text())
    if markdown:
        markdown.write_text(suite.markdown())
    if data:
        data.write_text(json.dumps(suite.as_dict(), indent=1))
    sys.exit(1 if suite.failures else 0)


if __name__ == "__main__":
    main()
