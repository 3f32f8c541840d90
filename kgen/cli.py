"""The command line.  Results go to stdout, diagnostics to stderr; exit codes: 0 done, 1 a spec is wrong or a check failed,
2 the command line is wrong.  Nothing here loads torch or triton before a command needs it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kgen import __version__
from kgen.errors import KgenError, printed

if TYPE_CHECKING:
    from kgen.check import Kernel

TARGETS = ("triton", "cuda", "cpp")
STAGES = ("spec", "syntax", "program", "math", "schedule", "source", "ptx", "sass", "asm")
FILES = {"triton": "{}_triton.py", "cuda": "{}.cu", "cpp": "{}.cpp"}

spec_argument = click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
target_option = click.option("--target", type=click.Choice([*TARGETS, "all"]), default=None, help="Only this target.")


class _Fail(click.ClickException):
    """A wrong spec: the message as it stands, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(_coloured(self.message), err=True)


def _coloured(text: str) -> str:
    if os.environ.get("NO_COLOR") or not sys.stderr.isatty():
        return text
    return "\n".join(
        click.style("error", fg="red", bold=True) + line[5:]
        if line.startswith("error:")
        else line[: len(line) - len(line.lstrip(" |"))] + click.style(line.lstrip(" |"), fg="red")
        if line.lstrip().startswith("| ") and "^" in line
        else line
        for line in text.split("\n")
    )


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except KgenError as error:
        raise _Fail(str(error)) from None


def _each(specs: tuple[str, ...], work: Callable[[str], None]) -> None:
    """Run `work` on every spec; report every failure, then exit with 1 if there was one."""
    failed = 0
    for spec in specs:
        try:
            work(spec)
        except KgenError as error:
            failed += 1
            click.echo(_coloured(str(error)) + ("\n" if len(specs) > 1 else ""), err=True)
    if failed:
        raise SystemExit(1)


def _load(spec: str) -> Kernel:
    from kgen import check, syntax
    from kgen.runtime.kernel import read_spec

    return check.check(syntax.parse(*read_spec(spec)))


def _with_backward(kernel: Kernel) -> list[Kernel]:
    """A kernel, its forward that saves what the backward reads (where it saves anything), and its backward."""
    from kgen.grad import backward

    made = backward(kernel)
    return [kernel, made.kernel] if made.forward is kernel else [kernel, made.forward, made.kernel]


class _Commands(click.Group):
    """Commands in the order in which people meet them, with a suggestion for a mistyped one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in ("compile", "check", "fuzz", "show", "bench", "tune", "fmt", "list") if name in self.commands]

    def resolve_command(self, ctx: click.Context, args: list[str]):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.commands, n=1) or [f"kgen compile {args[0]}"] * args[0].endswith(".k")
            if not close:
                raise
            raise click.UsageError(f"there is no command `{args[0]}`. Did you mean `{close[0]}`?", ctx) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="kgen")
def main() -> None:
    """kgen turns a formula into a fused kernel that people can read, trust and ship.

    A SPEC is a .k file, or the bare name of a bundled one (`kgen list`).
    """


# ------------------------------------------------------------------------------------------------ compile


@main.command("compile")
@spec_argument
@target_option
@click.option(
    "-o", "out", default="build", metavar="DIR|-", help="Where to write (default: build); - writes one target's source to stdout."
)
@click.option("--backward", is_flag=True, help="Write the backward too, and the forward that saves what it reads.")
@click.option("--arch", default="sm_90", metavar="ARCH", help="GPU architecture for --build (default: sm_90).")
@click.option("--build", "build_too", is_flag=True, help="Compile what was written with the target's own compiler.")
def compile_(specs: tuple[str, ...], target: str | None, out: str, backward: bool, arch: str, build_too: bool) -> None:
    """Write a spec's fused kernels: Triton, CUDA C++ and C++ source that stands alone."""
    targets = TARGETS if target in (None, "all") else (target,)
    if out == "-" and (len(targets) > 1 or len(specs) > 1):
        raise click.UsageError("-o - takes one spec and one --target")
    rows: list[tuple[str, ...]] = []

    def work(spec: str) -> None:
        kernels = _with_backward(_load(spec)) if backward else [_load(spec)]
        from kgen.backends import backend

        if out == "-":
            click.echo(backend(targets[0]).render(kernels[-1]), nl=False)
            return
        folder = Path(out) / kernels[0].name
        files = {(k.name, t): (folder / FILES[t].format(k.name), backend(t).render(k)) for k in kernels for t in targets}
        _write_all(dict(files.values()))
        for k in kernels:
            for t in targets:
                path, source = files[k.name, t]
                if build_too:
                    from kgen.runtime.toolchain import build_file

                    try:
                        build_file(t, path, k, arch)
                    except OSError as error:
                        raise KgenError(f"cannot build {path}: {error.strerror or error}") from None
                rows.append(_compiled_row(k, path, source))

    try:
        _each(specs, work)
    finally:
        if rows:
            _print_table(("kernel", "file", "lines", "reads", "writes", "bound"), rows, right=(2, 3, 4))


def _write_all(files: dict[Path, str]) -> list[Path]:
    """Write files, each whole or not at all.  Raises `KgenError` where a folder or file cannot be written."""
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise KgenError(
                f"cannot write {path}: {(error.strerror or str(error)).lower()}", help="choose another folder with -o"
            ) from None
    return list(files)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _compiled_row(kernel: Kernel, path: Path, source: str) -> tuple[str, ...]:
    from kgen.lower import lower
    from kgen.rewrite import rewrite
    from kgen.schedule import cost, predicted_bound, schedule

    figures = []
    for binding in kernel.bindings():
        program = rewrite(lower(kernel, binding))
        figures.append(cost(schedule(program), kernel))
    low, high = min(f.read for f in figures), max(f.read for f in figures)
    out_low, out_high = min(f.written for f in figures), max(f.written for f in figures)
    return (kernel.name, str(path), str(source.count("\n")), _range(low, high), _range(out_low, out_high), predicted_bound(figures[0]))


def _range(low: int, high: int) -> str:
    return f"{low} B" if low == high else f"{low} to {high} B"


def _print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> None:
    """Columns as wide as their widest cell, two spaces apart; heads dim on a terminal."""
    widths = [max(len(str(row[k])) for row in [heads, *rows]) for k in range(len(heads))]

    def line(row: tuple[str, ...]) -> str:
        return "  ".join(
            str(c).rjust(w) if k in right else str(c).ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    head = line(heads)
    click.echo(click.style(head, dim=True) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else head)
    for row in rows:
        click.echo(line(row))


# ------------------------------------------------------------------------------------------------ check


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
def check_(specs: tuple[str, ...], examples: int, target: str | None, seed: int, operators: bool, backward: bool) -> None:
    """Run a spec on random shapes, strides, dtypes and special values, against eager PyTorch and float64."""
    if bool(specs) == operators:
        raise click.UsageError("name one or more specs, or --operators" if not specs else "--operators takes no specs")
    chosen = None if target in (None, "all") else target
    from kgen.testing import checks

    with _failing():
        able, left_out = checks.targets(chosen)
    for name, why in left_out.items():
        click.echo(f"left out {name}: {why}", err=True)
    if not able:
        raise _Fail("error: no target runs here")
    if operators:
        from kgen.testing import operators as sweep

        rows, failed = sweep.table(able, progress=sys.stderr.isatty())
        _print_table(sweep.HEADS, rows, right=tuple(range(1, len(sweep.HEADS))))
        if failed:
            raise _Fail("\n".join(f"error: {line}" for line in failed))
        return
    from kgen.testing.reproducer import explained

    reports: list[Any] = []

    def work(spec: str) -> None:
        kernel = _load(spec)
        for name in able:
            check = checks.check_backward if backward else checks.check
            report = check(kernel, name, examples=examples, seed=seed, progress=sys.stderr.isatty())
            reports.append(report)
            if report.failures:
                with checks.shown_progress("making the case small", sys.stderr.isatty()):
                    said = explained(report)
                click.echo(_coloured(said), err=True)

    try:
        _each(specs, work)
    finally:
        if reports:
            _print_table(checks.HEADS, [r.row() for r in reports], right=tuple(range(2, len(checks.HEADS))))
    if any(r.failures for r in reports):
        raise SystemExit(1)


# ------------------------------------------------------------------------------------------------ fuzz


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
    from kgen.testing import checks, fuzz

    able: list[str] = []
    for name in names or ("torch", *TARGETS):
        runs, left_out = checks.targets(name)
        able += runs
        for other, why in left_out.items():
            click.echo(f"left out {other}: {why}", err=True)
    if not able:
        raise _Fail("error: no target runs here")
    if replay:
        found = fuzz.replay(replay, able)
        for failure in found:
            click.echo(_coloured(f"error: {failure.broken} {failure.target}: {failure.message}\n{failure.text}"), err=True)
        click.echo(f"{len(replay)} files, {len(found)} failures")
        raise SystemExit(1 if found else 0)
    campaign = fuzz.Campaign(fuzz.Plan(seed, tuple(able), Path(keep)), jobs)
    with _told(minutes) as tell:
        state = campaign.run(minutes, tell)
    if state.counts:
        _print_table(fuzz.HEADS, state.rows(), right=tuple(range(2, len(fuzz.HEADS))))
    click.echo(fuzz.summary(state))
    for name in state.failures:
        click.echo(f"kept {Path(keep) / name}", err=True)
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


# ------------------------------------------------------------------------------------------------ bench


@main.command("bench")
@click.argument("specs", nargs=-1, metavar="[SPEC...]")
@click.option(
    "--against",
    default=None,
    metavar="PEERS",
    help="Peers to time beside it, of eager, torch, compile, liger, quack, helion; or none (default: all that are installed).",
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
@click.option(
    "--kernelbench",
    is_flag=False,
    flag_value="all",
    default=None,
    metavar="[TASKS]",
    help="Time KernelBench level 1's tasks instead: 23,33-36, or all of them.",
)
@click.option("--scale", default="1", metavar="FRACTION", help="Of KernelBench's sizes, on a small machine: 1/16.")
@click.option("--table", is_flag=True, help="Of files that --json wrote (and of the kernels named beside them): Markdown.")
def bench(
    specs: tuple[str, ...], against: str | None, target: str | None, dtypes: str, elements: str, row: str, plot: str | None,
    json_file: str | None, backward: bool, profile: bool, call: bool, first: bool, kernelbench: str | None, scale: str, table: bool,
) -> None:  # fmt: skip
    """Time a spec's kernels beside eager PyTorch, torch.compile, other libraries and a copy, in one run; results are compared first.

    Peers: eager is the formula written out in torch, torch its own function, compile torch.compile of that (else of the
    formula); liger, quack and helion are packages.  With --table, --plot draws the kept figures.
    """
    modes = {"--backward": backward, "--profile": profile, "--call": call, "--first": first, "--kernelbench": kernelbench, "--table": table}
    chosen = [name for name, on in modes.items() if on]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} does not go with {chosen[1]}")
    if bool(specs) == bool(kernelbench):
        what = "--kernelbench takes no specs: write --kernelbench 23,24" if specs else "name one or more specs, or --kernelbench"
        raise click.UsageError(what)
    if plot and chosen and chosen[0] not in ("--backward", "--table"):
        raise click.UsageError(f"{chosen[0]} has no sizes to plot over")
    from kgen.bench import command

    if table:
        _show_kept(specs, plot)
        return
    from kgen.bench.libraries import PEERS
    from kgen.testing import checks

    peers = tuple(p for p in (against or "").split(",") if p and p != "none") if against is not None else PEERS
    if unknown := [p for p in peers if p not in PEERS]:
        raise click.UsageError(f"there is no peer {unknown[0]}; peers are {', '.join(PEERS)}, or none")
    sizes = command.Sizes(
        [d for d in dtypes.split(",") if d], [_elements(text) for text in elements.split(",")], [_elements(text) for text in row.split(",")]
    )
    if unknown := [d for d in sizes.dtypes if d not in ("f16", "bf16", "f32", "f64")]:
        raise click.UsageError(f"{unknown[0]} is not a float dtype")
    if not sizes.dtypes:
        raise click.UsageError("--dtype names none")
    with _failing():
        if plot:
            from kgen.bench import picture

            picture.needs_matplotlib()
        able, left_out = checks.targets(None if target in (None, "all") else target)
    for name, why in left_out.items():
        click.echo(f"left out {name}: {why}", err=True)
    device = "cuda" if any(t != "cpp" for t in able) else "cpu"
    able = [t for t in able if (t == "cpp") == (device == "cpu")]
    if not able:
        raise _Fail("error: no target runs here")
    failed: list[str] = []
    kept = _Kept(json_file)

    def fail(text: str) -> None:
        failed.append(text)
        click.echo(_coloured(text), err=True)

    def out(heads: tuple[str, ...], left: int) -> command.Out:
        lines = _Lines(heads, left)

        def add(cells: tuple[str, ...], figures: Sequence[dict[str, Any]]) -> None:
            kept.add(figures)
            lines.add(cells)

        return command.Out(
            add, lambda text: click.echo(text, err=True), fail, click.echo, lambda label: checks.shown_progress(label, sys.stderr.isatty())
        )

    if kernelbench:
        from kgen.bench import kernelbench as tasks

        extra = able if target else []
        known = tuple(p for p in peers if p in ("eager", "compile"))
        try:
            with _failing():
                command.kernelbench(kernelbench, extra, known, _fraction(scale), device, out(tasks.heads(extra), 1))
        finally:
            if kept.rows:
                click.echo(tasks.summary(kept.rows))
    else:
        loaded: list[Any] = []

        def load(spec: str) -> None:
            from kgen.runtime.kernel import read_spec

            loaded.append((*read_spec(spec), _load(spec)))

        _each(specs, load)
        kernels = [kernel for _, _, kernel in loaded]
        if call:
            from kgen.bench import calls

            beside = tuple(p for p in peers if p == "compile" or against is not None)
            command.calls(kernels, able, beside, sizes, device, out(calls.HEADS, 4))
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
        if plot and kept.rows:
            with _failing():
                picture.draw(kept.rows, plot)
    if failed:
        raise SystemExit(1)


def _show_kept(given: tuple[str, ...], plot: str | None) -> None:
    """Print what `--json` kept as Markdown, and draw it: all of the files, or the kernels named beside them."""
    import json

    from kgen.bench import picture, table

    rows: list[Any] = []
    names = [name for name in given if not name.endswith(".json")]
    with _failing():
        for file in (file for file in given if file.endswith(".json")):
            try:
                found = json.loads(Path(file).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise KgenError(f"cannot read {printed(file, '')}: {getattr(error, 'strerror', None) or 'it is no JSON'}") from None
            found = found if isinstance(found, list) else [found]
            rows += [r for r in found if not names or isinstance(r, dict) and r.get("kernel") in names]
        click.echo(table.markdown(rows))
        if plot:
            picture.draw([r for r in rows if "copy" in r], plot)


class _Kept:
    """Figures, written to a file whenever there are more: a run that is killed leaves those that it had."""

    def __init__(self, file: str | None):
        self.file, self.rows = file, list[dict[str, Any]]()

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows += rows
        if self.file:
            import json

            with _failing():
                _write_all({Path(self.file): json.dumps(self.rows, indent=1) + "\n"})


class _Lines:
    """A table whose lines are printed as they come: each column as wide as what it is likely to hold, wider from the line on that needs
    it.  `left` columns are text, the others figures."""

    LEAST = {"kernel": 13, "dtype": 5, "task": 17, "elements": 13, "launched": 60, "us": 9, "best step": 29, "present step": 29}

    def __init__(self, heads: tuple[str, ...], left: int):
        self.heads, self.left, self.widths = heads, left, [max(len(h), self.LEAST.get(h, 7)) for h in heads]
        self.begun = False

    def add(self, cells: tuple[str, ...]) -> None:
        self.widths = [max(w, len(c)) for w, c in zip(self.widths, cells, strict=True)]
        if not self.begun:
            self.begun = True
            head = self.line(self.heads)
            click.echo(click.style(head, dim=True) if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else head)
        click.echo(self.line(cells))
        sys.stdout.flush()

    def line(self, cells: tuple[str, ...]) -> str:
        return "  ".join(
            c.ljust(w) if k < self.left else c.rjust(w) for k, (c, w) in enumerate(zip(cells, self.widths, strict=True))
        ).rstrip()


def _fraction(text: str) -> Any:
    """A fraction such as 1/16 or 0.25, above 0 and at most 1."""
    from fractions import Fraction

    try:
        found = Fraction(text) if len(text) <= 20 else Fraction(0)
    except (ValueError, ZeroDivisionError):
        found = Fraction(0)
    if not 0 < found <= 1:
        raise click.UsageError(f"{text!r} is no fraction of a size; write 1/16")
    return found


def _elements(text: str) -> int:
    """A count such as 4096 or 2^24."""
    base, _, power = text.strip().partition("^")
    if not base.isdigit() or power and not power.isdigit() or len(text) > 20 or int(power or 1) > 40:
        raise click.UsageError(f"{text!r} is not a number of elements; write 4096 or 2^24")
    count = int(base) ** int(power or 1)
    if not 1 <= count <= 2**33:
        raise click.UsageError(f"{text} elements are not between 1 and 2^33")
    return count


# ------------------------------------------------------------------------------------------------ tune


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
    lengths, size = [_elements(text) for text in row.split(",")], _elements(elements)
    from kgen.testing import checks

    with _failing():
        if why := checks.targets("cuda")[1].get("cuda"):
            raise KgenError(f"`kgen tune` times kernels on a GPU: {why}")
        import torch

        from kgen.bench import tune
        from kgen.runtime.driver import arch_of

        kernels: list[Any] = []
        _each(specs or tuple(name for names in tune.SPECS.values() for name in names), lambda spec: kernels.append(_load(spec)))
        lines, failed, index = _Lines(tune.HEADS, 3), list[str](), torch.cuda.current_device()

        def fail(text: str) -> None:
            failed.append(text)
            click.echo(_coloured(text), err=True)

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


# ------------------------------------------------------------------------------------------------ show, fmt, list


@main.command("show")
@click.argument("spec")
@click.option("--stage", type=click.Choice(STAGES), default="program", show_default=True, help="What to show.")
@click.option("--target", type=click.Choice(TARGETS), default="triton", show_default=True, help="Whose source, PTX or assembly.")
@click.option("--dtype", "dtypes", multiple=True, metavar="T=bf16", help="What a dtype variable stands for (default: f32).")
@click.option("--arch", default="sm_90", show_default=True, help="GPU architecture for ptx and sass.")
@click.option("--backward", is_flag=True, help="Show its backward.")
def show(spec: str, stage: str, target: str, dtypes: tuple[str, ...], arch: str, backward: bool) -> None:
    """Show a spec at one stage on its way from text to machine code."""
    from kgen import show as stages

    with _failing():
        kernel = _load(spec)
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
                _write_all({Path(spec): new})

    _each(specs, work)
    for spec in changed:
        click.echo(f"{'would set' if check_only else 'set'} {printed(spec, '')}", err=True)
    if check_only and changed:
        raise SystemExit(1)


@main.command("list")
def list_() -> None:
    """List the bundled specs."""
    from kgen import syntax
    from kgen.resources import resource

    rows = []
    for path in sorted(resource("specs").glob("*.k")):
        file = syntax.parse(path.read_text(encoding="utf-8"), path.name)
        first = next((line for line in file.doc().split("\n") if line), "")
        rows.append((path.stem, first))
    _print_table(("spec", "what it computes"), rows)


if __name__ == "__main__":
    main()
