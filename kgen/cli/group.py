"""The group of commands, what every one of them shares: its options, errors and how a spec is read."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from kgen.backends import TARGETS
from kgen.errors import KgenError, printed
from kgen.version import __version__

if TYPE_CHECKING:
    from kgen.check import Kernel

INTERRUPTED = 130  # the exit code of what Ctrl-C ended: 128 and SIGINT's number

spec_argument = click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
target_option = click.option("--target", type=click.Choice([*TARGETS, "all"]), default=None, help="Only this target.")

without_option = click.option(
    "--without", default="", metavar="NAME,...", help="Leave out tensors that have a default: the formula with what stands for them."
)


class Fail(click.ClickException):
    """A wrong spec: the message as it stands, exit code 1."""

    exit_code = 1

    def show(self, file: Any = None) -> None:
        click.echo(coloured(self.message), err=True)


def coloured(text: str) -> str:
    if os.environ.get("NO_COLOR") or not sys.stderr.isatty():
        return text
    return "\n".join(
        click.style(line.partition(":")[0], fg="red", bold=True) + line[line.index(":") :]
        if line.startswith(("error:", "warning:"))
        else line[: len(line) - len(line.lstrip(" |"))] + click.style(line.lstrip(" |"), fg="red")
        if line.lstrip().startswith("| ") and "^" in line
        else line
        for line in text.split("\n")
    )


@contextmanager
def failing() -> Iterator[None]:
    try:
        yield
    except KgenError as error:
        raise Fail(error.render()) from None


def each(specs: tuple[str, ...], work: Callable[[str], None]) -> None:
    """Run `work` on every spec; report every failure, then exit with 1 if there was one."""
    failed = 0
    for spec in specs:
        try:
            work(spec)
        except KgenError as error:
            failed += 1
            click.echo(coloured(error.render()) + ("\n" if len(specs) > 1 else ""), err=True)
    if failed:
        raise SystemExit(1)


def load_spec(spec: str, without: str = "") -> Kernel:
    """The kernel of a spec; `without` names tensors that are left out, with commas between."""
    from kgen import check, syntax
    from kgen.runtime.kernel import read_spec

    kernel = check.check(syntax.parse(*read_spec(spec)))
    return check.left_out(kernel, [printed(name.strip(), "") for name in without.split(",")] if without else [])


def warn(kernel: Kernel) -> None:
    """Say on stderr what a kernel costs that its writer may not expect."""
    from kgen import pipeline

    for warning in pipeline.warnings(kernel):
        click.echo(coloured(warning), err=True)


def with_backward(kernel: Kernel) -> list[Kernel]:
    """A kernel, its forward that saves what the backward reads (where it saves anything), and its backward."""
    from kgen.grad import backward

    made = backward(kernel)
    return [kernel, made.kernel] if made.forward is kernel else [kernel, made.forward, made.kernel]


def _forget_output() -> None:
    """Drop what stdout still holds, which Python would try to write once more when it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(click.Group):
    """Commands in the order in which people meet them, with a suggestion for a mistyped one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in ("compile", "check", "verify", "fuzz", "show", "bench", "tune", "fmt", "list") if name in self.commands]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command.  Without torch one that needs it says so; one that is interrupted exits as a shell has it; one whose output
        finds no room says that."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "torch":
                raise
            raise Fail(
                f"error: `kgen {ctx.invoked_subcommand}` needs PyTorch, which is not installed\n  = help: pip install torch"
            ) from None
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            raise SystemExit(INTERRUPTED) from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) or error.filename is not None:
                raise
            _forget_output()
            raise Fail(f"error: cannot write the output: {(error.strerror or str(error)).lower()}") from None

    def resolve_command(self, ctx: click.Context, args: list[str]):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], self.commands, n=1) or [f"kgen compile {args[0]}"] * args[0].endswith(".k")
            if not close:
                raise
            raise click.UsageError(f"there is no command `{args[0]}`. Did you mean `{close[0]}`?", ctx) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="kgen")
def main() -> None:
    """kgen turns a formula into a fused kernel that people can read, trust and ship.

    A SPEC is a .k file, or the bare name of a bundled one (`kgen list`).
    """
