"""`kgen compile`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kgen.backends import backend
from kgen.cli.group import TARGETS, each, load_spec, main, spec_argument, target_option, warn, with_backward, without_option
from kgen.cli.output import print_table
from kgen.errors import KgenError, printed
from kgen.files import write_file
from kgen.parts import over_parts

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
@click.option(
    "--static", "static", is_flag=False, flag_value="", default=None, metavar="[N=SIZE,...]",
    help="Write the one variant for these sizes and one --dtype: contiguous tensors, any leading dims.",
)
@without_option
@click.option("--standalone", is_flag=True, help="Write CUDA in one file, without a library beside it.")
@click.option("--backward", is_flag=True, help="Write the backward too, and the forward that saves what it reads.")
@click.option("--arch", metavar="ARCH", help="GPU architecture for --build (default: sm_90).")
@click.option("--build", "build_too", is_flag=True, help="Compile what was written with the target's own compiler.")
def compile_(
    specs: tuple[str, ...], target: str | None, out: str, dtypes: tuple[str, ...], static: str | None, without: str, standalone: bool,
    backward: bool, arch: str | None, build_too: bool,
) -> None:  # fmt: skip
    """Write a spec's fused kernels: Triton, CUDA C++ and C++ source that needs nothing of kgen."""
    targets = [*TARGETS] if target in (None, "all") else [target]
    if out == "-" and (len(targets) > 1 or len(specs) > 1):
        raise click.UsageError("-o - takes one spec and one --target")
    if out == "-" and build_too:
        raise click.UsageError("--build takes no -o -: it compiles a file")
    if arch and not build_too:
        raise click.UsageError("--arch is for --build: the line in a file's head names its own")
    if static is not None and build_too:
        raise click.UsageError("--build takes no --static: the head of a static file says how it is built")
    sizes = None if static is None else _sizes(static)
    rows: list[tuple[str, ...]] = []
    built: list[Path] = []
    whose: dict[Path, tuple[str, str]] = {}  # of each file that this command has written the spec, and the text

    def written(k: Kernel, t: str, spec: Kernel) -> dict[str, str]:
        """The files of a kernel for a target, by name; where it derives from a spec's, it may lack some of that one's dims.  What goes
        to stdout is one file, which stands alone."""
        if sizes is None:
            k = k if t == "triton" else over_parts(k)  # of a call from C the parts are arguments
            return backend(t).written(k, _chosen(k, dtypes), standalone or out == "-")
        from kgen.backends.static import named_dims
        from kgen.runtime.static import source

        own = {d: n for d, n in sizes.items() if d in named_dims(k) or d not in named_dims(spec)}
        return {backend(t).file_name(k.name): source(k, t, own, _chosen(k, dtypes))}

    def work(spec: str) -> None:
        """Write one spec's sources (build them, where asked) and note a row for each file."""
        kernel = load_spec(spec, without)
        kernels = with_backward(kernel) if backward else [kernel]
        for k in kernels:
            warn(k)
        if out == "-":
            click.echo(next(iter(written(kernels[-1], targets[0], kernels[0]).values())), nl=False)
            return
        folder = Path(out) / kernels[0].name
        files = {(k.name, t): written(k, t, kernels[0]) for k in kernels for t in targets}
        texts = {folder / name: text for made in files.values() for name, text in made.items()}
        for path, text in texts.items():
            if path in whose and whose[path][1] != text:
                help = "name one of the kernels otherwise, or compile them with one -o each"
                raise KgenError(f"{path} has the kernel of {whose[path][0]}, and that of {spec} is named so too", help=help)
        whose.update((path, (spec, text)) for path, text in texts.items())
        for path, text in texts.items():
            write_file(path, text, "choose another folder with -o")
        for k in kernels:
            for t in targets:
                name, source = next(iter(files[k.name, t].items()))
                path = folder / name
                if build_too:
                    from kgen.runtime.toolchain import build_file

                    try:
                        built.extend(build_file(t, path, k, arch or "sm_90"))
                    except OSError as error:
                        raise KgenError(f"cannot build {path}: {error.strerror or error}") from None
                rows.append(_compiled_row(k, path, source, {} if sizes is None else _chosen(k, dtypes)))

    try:
        each(specs, work)
    finally:
        if rows:
            print_table(("kernel", "file", "lines", "reads", "writes", "bound"), rows, right=(2, 3, 4))
        for path in built:
            click.echo(f"built {path}", err=True)


def _sizes(text: str) -> dict[str, int]:
    """The sizes of dims out of "N=4096,M=64"; "" is none."""
    found: dict[str, int] = {}
    for piece in text.split(",") if text else ():
        name, equals, size = piece.partition("=")
        if not equals or not name or not re.fullmatch(r"-?[0-9]{1,18}", size):
            said = "write --static N=4096,M=64, or --static alone behind the spec where no dim has a name"
            raise click.UsageError(f"--static takes sizes of dims, not {printed(piece, '')!r}; {said}")
        if name in found:
            raise click.UsageError(f"--static has two sizes of {name}")
        found[name] = int(size)
    return found


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


def _compiled_row(kernel: Kernel, path: Path, source: str, chosen: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What the table says of a kernel's file; of the dtypes that are chosen, where any are."""
    from kgen import pipeline
    from kgen.cost import predicted_bound

    name, kernel = kernel.name, over_parts(kernel)
    bindings = [b for b in kernel.bindings() if all(d.name in chosen.get(v, (d.name,)) for v, d in b.items())]
    figures = [pipeline.cost(kernel, binding) for binding in bindings]
    low, high = min(f.read for f in figures), max(f.read for f in figures)
    out_low, out_high = min(f.written for f in figures), max(f.written for f in figures)
    return (name, str(path), str(source.count("\n")), _range(low, high), _range(out_low, out_high), predicted_bound(figures[0]))


def _range(low: int, high: int) -> str:
    return f"{low} B" if low == high else f"{low} to {high} B"
