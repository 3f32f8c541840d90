"""`kgen compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgen.cli.group import TARGETS, each, load_spec, main, spec_argument, target_option, with_backward
from kgen.cli.output import print_table, write_all
from kgen.errors import KgenError, printed

if TYPE_CHECKING:
    from kgen.check import Kernel



@main.command("compile")
@spec_argument
@target_option
@click.option(
    "-o", "out", default="build", metavar="DIR|-", help="Where to write (default: build); - writes one target's source to stdout."
)
@click.option(
    "--dtype", "dtypes", multiple=True, metavar="[T=]LIST", help="Write what these dtypes need alone: bf16,f32 (of a variable: T=bf16)."
)
@click.option("--standalone", is_flag=True, help="Write CUDA in one file, without a library beside it.")
@click.option("--backward", is_flag=True, help="Write the backward too, and the forward that saves what it reads.")
@click.option("--arch", default="sm_90", metavar="ARCH", help="GPU architecture for --build (default: sm_90).")
@click.option("--build", "build_too", is_flag=True, help="Compile what was written with the target's own compiler.")
def compile_(
    specs: tuple[str, ...], target: str | None, out: str, dtypes: tuple[str, ...], standalone: bool, backward: bool, arch: str,
    build_too: bool,
) -> None:  # fmt: skip
    """Write a spec's fused kernels: Triton, CUDA C++ and C++ source that needs nothing of kgen."""
    targets = [*TARGETS] if target in (None, "all") else [target]
    if out == "-" and (len(targets) > 1 or len(specs) > 1):
        raise click.UsageError("-o - takes one spec and one --target")
    rows: list[tuple[str, ...]] = []

    def work(spec: str) -> None:
        """Write one spec's sources (build them, where asked) and note a row for each file."""
        kernels = with_backward(load_spec(spec)) if backward else [load_spec(spec)]
        from kgen.backends import backend

        if out == "-":
            click.echo(backend(targets[0]).render(kernels[-1], _chosen(kernels[-1], dtypes)), nl=False)
            return
        folder = Path(out) / kernels[0].name
        written = {(k.name, t): backend(t).written(k, _chosen(k, dtypes), standalone) for k in kernels for t in targets}
        write_all({folder / name: text for made in written.values() for name, text in made.items()})
        for k in kernels:
            for t in targets:
                name, source = next(iter(written[k.name, t].items()))
                path = folder / name
                if build_too:
                    from kgen.runtime.toolchain import build_file

                    try:
                        build_file(t, path, k, arch)
                    except OSError as error:
                        raise KgenError(f"cannot build {path}: {error.strerror or error}") from None
                rows.append(_compiled_row(k, path, source))

    try:
        each(specs, work)
    finally:
        if rows:
            print_table(("kernel", "file", "lines", "reads", "writes", "bound"), rows, right=(2, 3, 4))


def _chosen(kernel: Kernel, texts: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The dtypes of a kernel's variables that are asked for, from texts such as "bf16,f32" and "T=bf16"; of others all."""
    from kgen.types import VARIABLE

    known, found = [d.name for d in VARIABLE], dict[str, tuple[str, ...]]()
    for text in texts:
        name, equals, listed = text.rpartition("=")
        wanted = tuple(dict.fromkeys(listed.split(",")))
        if (equals and name not in kernel.variables) or not set(wanted) <= set(known):
            said = f"variables are {', '.join(kernel.variables) or 'none'}; dtypes {', '.join(known)}"
            raise KgenError(f"--dtype {printed(text, '')} chooses nothing", help=said)
        found |= dict.fromkeys([name] if equals else kernel.variables, wanted)
    return found


def _compiled_row(kernel: Kernel, path: Path, source: str) -> tuple[str, ...]:
    from kgen import pipeline
    from kgen.cost import predicted_bound

    figures = [pipeline.cost(kernel, binding) for binding in kernel.bindings()]
    low, high = min(f.read for f in figures), max(f.read for f in figures)
    out_low, out_high = min(f.written for f in figures), max(f.written for f in figures)
    return (kernel.name, str(path), str(source.count("\n")), _range(low, high), _range(out_low, out_high), predicted_bound(figures[0]))


def _range(low: int, high: int) -> str:
    return f"{low} B" if low == high else f"{low} to {high} B"
