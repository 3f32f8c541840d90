"""`kgen verify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from kgen.cli.group import coloured, failing, main
from kgen.cli.output import print_table
from kgen.files import writable, write_file


@main.command("verify")
@click.argument("candidates", nargs=-1, required=True, metavar="CANDIDATE...")
@click.option("--spec", required=True, metavar="SPEC", help="What each candidate is to compute.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default=None, help="Where tensors lie (default: on a GPU, if there is one).")
@click.option("--dtype", "dtypes", default="", metavar="LIST", help="What the candidate claims to take: f32,bf16 (default: what it takes).")
@click.option("--size", "sizes", multiple=True, metavar="N=LIST", help="Sizes of a dim: N=64,4096; ...=8x4 is the shape of leading dims.")
@click.option("--multiple", "multiples", multiple=True, metavar="N=8", help="Sizes of a dim are multiples of a number.")
@click.option("--most", multiple=True, metavar="N=65536", help="Sizes of a dim are no larger.")
@click.option("--leading", default="", metavar="LIST", help="How many leading dims `...` stands for: 1, or 0,1,2.")
@click.option("--broadcast", is_flag=True, help="Leading dims of 1 meet others, as the spec allows.")
@click.option("--contiguous", is_flag=True, help="It promises dense tensors alone: others are to be refused, not misread.")
@click.option("--backward", is_flag=True, help="Hold its gradient, through autograd, to the derived one.")
@click.option("--gradient", default="", metavar="CANDIDATE", help="What computes the gradients, with the derived backward's parameters.")
@click.option("--deterministic", is_flag=True, help="Each run is to have the same bits.")
@click.option("--batch-invariant", is_flag=True, help="A row alone is to have the bits that it has in a batch.")
@click.option("--own", is_flag=True, help="It is to call none of torch's operators that compute.")
@click.option("--sanitize", is_flag=True, help="On a GPU: once more under compute-sanitizer.")
@click.option("--bench", is_flag=True, help="Time it beside the spec's own kernel.")
@click.option("--all", "every", is_flag=True, help="Go on behind the first case that fails.")
@click.option("--examples", default=100, show_default=True, type=click.IntRange(1, 1_000_000), help="Cases.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random cases.")
@click.option("--timeout", default=60.0, show_default=True, type=click.FloatRange(0.1, 86_400), help="Seconds for a call.")
@click.option("--memory", default=8.0, show_default=True, type=click.FloatRange(0.1, 10_000), help="GiB for its process.")
@click.option("--shrink", default=10.0, show_default=True, type=click.FloatRange(0, 3600), help="Seconds to make a failure small.")
@click.option("--workloads", default=None, metavar="FILE", help="Of a solution: a definition's workloads (.jsonl).")
@click.option("--definition", default=None, metavar="FILE", help="Of a solution: the definition (.json; default: beside it).")
@click.option("--trace", default=None, metavar="FILE", help="Of a solution: where the trace goes.")
@click.option("--json", "json_file", default=None, metavar="FILE|-", help="The reports as JSON; - for stdout, without the table.")
def verify(candidates: tuple[str, ...], spec: str, json_file: str | None, trace: str | None, **given: Any) -> None:
    """Hold kernels that somebody else wrote to a spec: each element to the bound that is derived for it, memory, streams, repeated calls.

    A CANDIDATE is file.py:name or module:name, a function or a module of torch; a file that kgen wrote (.py, .cu, .cpp), edited or not; a
    file with ModelNew; or a FlashInfer-Bench solution (.json).  Each runs in a process of its own.

    Exit status: 0 all keep to the spec, 1 one does not, 2 the command line is wrong, 3 something could not be tried.
    """
    from kgen.verify import shown
    from kgen.verify.report import FAILED, PASSED, UNTRIED

    options = _options(given)
    with failing():
        writable(*(f for f in (json_file, trace) if f and f != "-"))
    reports: list[Any] = []
    for candidate in candidates:
        try:
            with failing(), _progress(candidate) as progress:
                report = _examined(candidate, spec, given, options | {"progress": progress})
        except click.ClickException as error:  # no such candidate or spec: nothing is known of one that would be there
            error.show()
            raise SystemExit(2) from None
        reports.append(report)
        for f in report.findings:
            click.echo(coloured(shown.finding(f, report.candidate)), err=True)
        for line in shown.notes(report):
            click.echo(line, err=True)
    if json_file:
        text = json.dumps([r.json() for r in reports], indent=1, default=str) + "\n"
        if json_file == "-":
            click.echo(text, nl=False)
        else:
            write_file(Path(json_file), text)
    if json_file != "-":
        print_table(shown.HEADS, [shown.row(r) for r in reports], right=(4, 5, 6, 7))
        _figures(reports)
    if trace:
        write_file(Path(trace), "".join(json.dumps(t) + "\n" for r in reports for t in r.trace))
    found = {r.status for r in reports}
    raise SystemExit(FAILED if FAILED in found else UNTRIED if UNTRIED in found else PASSED)


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """What `examine` is asked for.  Raises `UsageError` for what makes no sense."""
    names = (
        "device", "broadcast", "contiguous", "backward", "deterministic", "batch_invariant", "own", "sanitize", "bench", "every",
        "examples", "seed", "timeout", "memory", "shrink", "definition", "workloads",
    )  # fmt: skip
    made = {name: given[name] for name in names}
    made["gradient"] = given["gradient"] or None
    made["dtypes"] = tuple(d for d in given["dtypes"].split(",") if d) or None
    sizes: dict[str, Any] = {}
    for text in given["sizes"]:
        dim, equals, values = text.partition("=")
        try:
            sizes[dim] = tuple(int(n) for n in values.split("x" if dim == "..." else ",") if n)
        except ValueError:
            equals = ""
        if not equals:
            raise click.UsageError(f"{text!r} is no size; write N=64,4096, or ...=8x4")
    made["sizes"] = sizes or None
    for name in ("multiples", "most"):
        pairs = [text.partition("=") for text in given[name]]
        if wrong := [f"{dim}{equals}{n}" for dim, equals, n in pairs if not (dim and n.isdigit() and int(n))]:
            raise click.UsageError(f"{wrong[0]!r} is no number of a dim; write N=8")
        made[name] = {dim: int(n) for dim, _, n in pairs} or None
    try:
        made["leading"] = tuple(int(n) for n in given["leading"].split(",") if n) or None
    except ValueError:
        raise click.UsageError(f"{given['leading']!r} are no counts of leading dims; write 0,1,2") from None
    return made


def _examined(candidate: str, spec: str, given: dict[str, Any], options: dict[str, Any]) -> Any:
    """The report of a candidate."""
    from kgen.verify.examination import examine

    return examine(candidate, spec, **options)


def _figures(reports: list[Any]) -> None:
    """The tables of `--bench`."""
    rows = [b for r in reports for b in r.bench]
    if rows:
        heads = tuple(rows[0])
        click.echo("")
        print_table(heads, [tuple(str(b[h]) for h in heads) for b in rows], right=tuple(range(2, len(heads))))


@contextmanager
def _progress(label: str) -> Iterator[Any]:
    """What is called with what is being held, how many cases are done and how many there are; None where no terminal shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    with Progress(TextColumn(label), BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=100)
        yield lambda what, done, total: bar.update(task, completed=done, total=total, description=what)
