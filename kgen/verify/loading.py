"""Candidates as their process loads them: a function, a module, a file that kgen wrote, or the sources of a solution.

In: what names one (`candidates.Named`, as plain data) and the spec's parameters and results (`Interface`).  Out: a `Loaded`, which is
called alike whatever it is.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import Any

from kgen.verify.loaded import Loaded, Unloadable, imported


def load(named: dict[str, Any], interface: dict[str, Any], device: str) -> Loaded:
    """The candidate.  `interface` has `params` ([name, whether it is a tensor, whether it has a default]), `results` ([name, the
    parameter that it is or ""]) and the `spec`; `through`, where its gradients are asked for (`gradients.py`).  Raises `Unloadable`, and
    whatever its own code raises."""
    if "through" in interface:
        return _differentiated(load(named, interface["forward"], device), interface)
    kind = named["kind"]
    if kind == "written":
        from kgen.verify.written import load_written

        return load_written(named, interface, device)
    if kind == "here":
        found = named["function"]
    elif kind == "solution":
        found = _solution(named)
    else:
        found = _attribute(named["path"], named["name"])
    import torch

    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        return _module(found, named, interface, device)
    if not callable(found):
        raise Unloadable(f"{named['title']} is {type(found).__name__}, nothing that can be called")
    return _function(found, interface, named.get("destination"))


def _attribute(path: str, name: str) -> Any:
    """What a file or module calls by a name with dots."""
    found = imported(path)
    for part in name.split("."):
        if not hasattr(found, part):
            raise Unloadable(f"{path} has no {name}")
        found = getattr(found, part)
    return found


def _solution(named: dict[str, Any]) -> Any:
    """The entry point of a FlashInfer-Bench solution, whose sources are written to a folder of their own."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="kgen-solution-")
    for source in named["sources"]:
        place = os.path.abspath(os.path.join(folder, source["path"]))
        if not place.startswith(os.path.abspath(folder) + os.sep):
            raise Unloadable(f"the solution has a source outside of it: {source['path']}")
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(source["content"])
    file_name, _, name = named["name"].partition("::")
    return _attribute(os.path.join(folder, file_name), name)


def _function(found: Callable[..., Any], interface: dict[str, Any], destination: bool | None) -> Loaded:
    """A function, and how it takes its arguments."""
    params, results = interface["params"], interface["results"]
    fresh = [name for name, state in results if not state]
    base: dict[str, Any] = {
        "results": fresh, "written": [(n, s) for n, s in results if s], "order": [(n, bool(s)) for n, s in results],
    }  # fmt: skip
    names = [name for name, _, _ in params]
    try:
        taken = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):  # one of torch's own: by position
        required = [n for n, tensor, optional in params if tensor or not optional]
        return Loaded(found, required, False, **base)
    places = [t for t in taken if t.kind in (t.POSITIONAL_ONLY, t.POSITIONAL_OR_KEYWORD)]
    known = {t.name for t in taken if t.kind is not t.POSITIONAL_ONLY}
    out = "out" in known and "out" not in names and bool(fresh)
    into = bool(fresh) and set(fresh) <= known - set(names)
    others = {t.name for t in taken if t.default is t.empty and t.kind not in (t.VAR_POSITIONAL, t.VAR_KEYWORD)} - {*names, *fresh}
    own_defaults = [t.name for t in taken if t.default is not t.empty and t.name in names and t.kind is not t.POSITIONAL_ONLY]
    if not others and (any(t.kind is t.VAR_KEYWORD for t in taken) or set(names) <= known):
        return Loaded(found, names, True, out=out, destination=into, optional=own_defaults, **base)
    if any(t.kind is t.VAR_POSITIONAL for t in taken):
        return Loaded(found, names, False, out=out, **base)
    some = [n for n in names if n in known]
    required = [n for n, _, optional in params if not optional]
    if not others and set(required) <= set(some):
        return Loaded(found, some, True, out=out, destination=into, optional=own_defaults, **base)
    own = [t for t in places if t.name != "out" or not out]
    if destination or destination is None and len([t for t in own if t.default is t.empty]) == len(names) + len(fresh):
        return Loaded(found, names, False, destination=True, **base)
    if len([t for t in own if t.default is t.empty]) > len(names):
        raise Unloadable(f"it takes ({', '.join(t.name for t in taken)}), the spec ({', '.join(names)})")
    passed = names[: len(own)]
    if missing := [n for n in required if n not in passed]:
        raise Unloadable(f"it takes ({', '.join(t.name for t in taken)}), and no {missing[0]}")
    return Loaded(found, passed, False, out=out, **base)


def _module(kind: type, named: dict[str, Any], interface: dict[str, Any], device: str) -> Loaded:
    """A module: `forward` takes some of the parameters, by name or in order, the module's own parameters are the tensors that are left."""
    around = sys.modules[kind.__module__]
    first = list(around.get_init_inputs()) if hasattr(around, "get_init_inputs") else []
    args, kwargs, shown = first, {}, "*get_init_inputs()" if first else ""
    if len(first) == 2 and isinstance(first[1], dict) and isinstance(first[0], (list, tuple)):
        args, kwargs, shown = list(first[0]), first[1], "*get_init_inputs()[0], **get_init_inputs()[1]"
    made = kind(*args, **kwargs).to(device)
    names = [name for name, _, _ in interface["params"]]
    tensors = [name for name, tensor, _ in interface["params"] if tensor]
    taken = [t for t in inspect.signature(made.forward).parameters.values() if t.kind in (t.POSITIONAL_ONLY, t.POSITIONAL_OR_KEYWORD)]
    own = [*made.named_parameters(), *((n, b) for n, b in made.named_buffers() if b.is_floating_point())]
    required = [t for t in taken if t.default is t.empty]
    by_name = {t.name for t in required} <= set(names)
    passed = [t.name for t in taken if t.name in names] if by_name else names[: len(required)]
    left = [n for n in tensors if n not in passed]
    homes: dict[str, str] = {}
    for n in left:
        found = next((q for q, _ in own if q.split(".")[-1] == n), None)
        homes[n] = found or ""
    free = [q for q, _ in own if q not in homes.values()]
    for n in left:
        if not homes[n]:
            if not free:
                raise Unloadable(f"{named['title']} has no place for {n}: forward takes ({', '.join(t.name for t in taken)})")
            homes[n] = free.pop(0)
    at = dict(own)

    def parameters(given: dict[str, Any]) -> None:
        for n, q in homes.items():
            at[q].data = given[n]

    results = interface["results"]
    return Loaded(
        made, passed, by_name, [n for n, s in results if not s], [(n, s) for n, s in results if s], [(n, bool(s)) for n, s in results],
        parameters=parameters if homes else None, own=list(homes), made=f"{named['name']}({shown})",
    )  # fmt: skip


def _differentiated(forward: Loaded, interface: dict[str, Any]) -> Loaded:
    """The gradients of a candidate, by autograd: it takes the cotangents and the forward's parameters.  `through` of the interface has
    `cotangents` and `gradients`, by the forward's results and parameters, of which the latter are in the order of the results."""
    import torch

    through = interface["through"]
    cotangents, wanted = through["cotangents"], through["gradients"]
    names = [name for name, _, _ in interface["params"]]

    def run(**given: Any) -> Any:
        passed = {n: given[n] for n in through["takes"] if n in given}
        leaves = {n: passed[n].detach().requires_grad_() for n in wanted}
        with torch.enable_grad():
            results = dict(zip((n for n, _ in forward.order), forward(passed | leaves, [], "fresh"), strict=True))
            outputs = [results[n] for n in cotangents]
            found = torch.autograd.grad(outputs, list(leaves.values()), [given[d] for d in cotangents.values()], allow_unused=True)
        made = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves.values(), found, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    if forward.destination:
        raise Unloadable("its results are passed to it: autograd does not go through them")
    results = [name for name, _ in interface["results"]]
    known = {*forward.takes, *forward.own, *cotangents.values()}
    takes = [n for n, tensor, _ in interface["params"] if tensor or n in known] + [n for n in through["takes"] if n not in names]
    return Loaded(run, takes, True, results, [], [(name, False) for name in results])
