"""A pytest plugin that collects .k files: `pytest specs/` checks each spec on every target that runs here.

A spec is collected where its file is named on the command line, or lies in a folder that is; where the ini option `kgen_specs` has
patterns (`kgen_specs = specs/*.k`), those that match and no others, also by a plain `pytest`.  `collect_ignore` and
`--ignore` hold as for any file.  An item is a spec on a target (`specs/softmax.k::cpp`), or its backward there
(`specs/softmax.k::cpp-backward`).  Nothing but pytest is imported before a .k file is collected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kgen")
    group.addoption("--kgen-examples", type=int, default=EXAMPLES, metavar="N", help=f"random cases for each spec (default: {EXAMPLES})")
    group.addoption("--kgen-target", choices=("triton", "cuda", "cpp", "torch"), help="only this target (default: all that run here)")
    parser.addini("kgen_specs", "patterns of the .k files to collect (default: those in what the command line names)", type="args")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist, whose own command line names everything, what the user's named."""
    node.workerinput["kgen_named"] = _named(node.config)


def _named(config: pytest.Config) -> bool:
    """Whether the command line names files or folders."""
    if hasattr(config, "workerinput"):
        return config.workerinput.get("kgen_named", False)
    return config.args_source is pytest.Config.ArgsSource.ARGS


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix != ".k":
        return None
    patterns = parent.config.getini("kgen_specs")
    if parent.session.isinitpath(file_path):
        wanted = _named(parent.config) or not patterns
    elif patterns:
        wanted = any(fnmatch(str(file_path), str(parent.config.rootpath / p)) for p in patterns)
    else:
        wanted = _named(parent.config)
    return SpecFile.from_parent(parent, path=file_path) if wanted else None


class SpecFile(pytest.File):
    """A .k file: an item for each target that runs here and for the backward there; one that fails where the spec is wrong; one
    that is skipped where nothing runs."""

    def collect(self) -> Iterator[pytest.Item]:
        """An item for each target that a spec can be checked on, another for its backward, or the one that tells what is wrong."""
        from kgen.errors import KgenError
        from kgen.grad import backward
        from kgen.runtime.kernel import loads, read_spec
        from kgen.testing.checks import targets

        able, left_out = targets(self.config.getoption("--kgen-target"))
        try:
            text, _ = read_spec(self.path)
            kernel = loads(text, os.path.relpath(self.path, self.config.invocation_params.dir)).kernel
        except KgenError as error:
            yield WrongSpec.from_parent(self, name="spec", error=error)
            return
        if not able:
            yield NoTarget.from_parent(self, name="spec", why="; ".join(f"{name}: {why}" for name, why in left_out.items()))
        try:
            backward(kernel)
            ways = ["", "-backward"]
        except KgenError:  # it has none
            ways = [""]
        for target in able:
            for way in ways:
                yield SpecItem.from_parent(self, name=target + way, kernel=kernel, target=target, backward=bool(way))


class _Item(pytest.Item):
    """An item of a .k file, whose failures are told in kgen's words."""

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        from kgen.errors import KgenError

        return excinfo.value.render() if isinstance(excinfo.value, KgenError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, 0, self.name


class SpecItem(_Item):
    """A spec on a target, or its backward there."""

    def __init__(self, *, kernel: Any, target: str, backward: bool, **rest: Any):
        super().__init__(**rest)
        self.kernel, self.target, self.backward = kernel, target, backward

    def runtest(self) -> None:
        from kgen.testing.against import check

        examples = self.config.getoption("--kgen-examples")
        reports = check(self.kernel, target=self.target, examples=examples, backward=self.backward)
        self.add_report_section("call", "kgen", str(reports))


class WrongSpec(_Item):
    """A spec that has errors."""

    def __init__(self, *, error: Exception, **rest: Any):
        super().__init__(**rest)
        self.error = error

    def runtest(self) -> None:
        raise self.error


class NoTarget(_Item):
    """A spec that no target runs here."""

    def __init__(self, *, why: str, **rest: Any):
        super().__init__(**rest)
        self.add_marker(pytest.mark.skip(reason=f"no target runs here: {why}"))

    def runtest(self) -> None:
        raise AssertionError("it is skipped")
