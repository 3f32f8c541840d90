"""What a candidate is once it is loaded, and how a file is imported as its own process would."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


class Unloadable(Exception):
    """A candidate that is not there, or takes other arguments than the spec."""


class Untriable(Unloadable):
    """A candidate that another machine might load: it is for another device, or its compiler is not installed."""


@dataclass
class Loaded:
    """A candidate: `run` is called with the arguments that it takes.

    `takes` names those of the spec's parameters, in order, `by_name` says how they are passed.  `out` is whether it has a parameter
    of that name, `destination` whether results are among its parameters: by name, or behind the others.  `results` are those that are no
    parameter, `written` those that are.  `claims` are the dtypes that it says it takes ([]: any), `optional` the parameters for which it
    has a default of its own."""

    run: Callable[..., Any]
    takes: list[str]
    by_name: bool
    results: list[str]
    written: list[tuple[str, str]]  # results that are parameters: their name, and that of the parameter
    order: list[tuple[str, bool]]  # all results, and whether they are parameters
    out: bool = False
    destination: bool = False
    title: str = ""
    claims: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    parameters: Callable[[dict[str, Any]], None] | None = None  # gives a module its own
    own: list[str] = field(default_factory=list)  # which those are
    made: str = ""  # of a module: how it is made of its class, in Python

    def __call__(self, given: dict[str, Any], outs: Sequence[Any], way: str) -> list[Any]:
        """The spec's results, in order; what is written in place is the parameter's tensor.

        Raises whatever the candidate raises, and `Unloadable` where it gives another number of results."""
        if self.parameters is not None:
            self.parameters(given)
        passed = {name: given[name] for name in self.takes if name in given or name not in self.optional}
        kwargs: dict[str, Any] = {}
        if way == "out":
            kwargs["out"] = outs[0] if len(outs) == 1 else tuple(outs)
        if self.by_name:
            if way == "destination":
                passed |= dict(zip(self.results, outs, strict=True))
            returned = self.run(**passed, **kwargs)
        else:
            returned = self.run(*passed.values(), *(outs if way == "destination" else ()), **kwargs)
        fresh = self._fresh(returned, outs, way)
        state = dict(self.written)
        return [given[state[name]] if kept else fresh.pop(0) for name, kept in self.order]

    def _fresh(self, returned: Any, outs: Sequence[Any], way: str) -> list[Any]:
        """The results that are no parameter."""
        if way in ("destination", "out"):
            return list(outs)
        if not self.results:
            return []
        if isinstance(returned, dict):
            returned = [returned[name] for name in self.results if name in returned]
        found = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(found) == len(self.order) > len(self.results):  # it returns what it wrote in place, too
            found = [y for y, (_, kept) in zip(found, self.order, strict=True) if not kept]
        if len(found) != len(self.results):
            raise WrongCount(f"{len(found)} results, not {len(self.results)}")
        return found


class WrongCount(Exception):
    """Another number of results than the spec has."""


def imported(path: str) -> Any:
    """A file or a module, imported as its own process would: names beside a file are found."""
    if not path.endswith(".py"):
        return importlib.import_module(path)
    folder = os.path.dirname(os.path.abspath(path))
    name = os.path.splitext(os.path.basename(path))[0]
    package = name
    above = folder
    while os.path.exists(os.path.join(above, "__init__.py")):
        package = f"{os.path.basename(above)}.{package}"
        above = os.path.dirname(above)
    if above not in sys.path:
        sys.path.insert(0, above)
    if package != name:
        return importlib.import_module(package)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Unloadable(f"cannot read {path}")
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made
