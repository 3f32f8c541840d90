"""The layers of kgen: a module imports only what stands in its own layer or below, functions' own imports counted, and never in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import ROOT

#: From the lowest up.  A package's name stands for its modules, but for those that another layer names.
LAYERS: tuple[tuple[str, str], ...] = (
    ("ground", "errors files hooks resources types version"),
    ("language", "lalr grammar nodes extents syntax sized typeset ops host values advice searches monoids places positions scanned casts expressions "
                 "optional clauses packed check write mathematics specialise"),
    ("from Python", "trace"),
    ("derivatives", "marked windowed transposed tape invariant rowwise saving grad parts whole"),
    ("programs", "ir selection expand flattened segments lookups online lower rewrite taps interleaved dear spared"),
    ("plans", "phases passes pieces schedule columns onway hoist reread counted quotients precision cost products pipeline"),
    ("sources", "backends"),
    ("running", "runtime"),
    ("PyTorch's side", "torch_op optim"),
    ("looking", "show testing library"),
    ("the library", "kgen"),
    ("measuring", "bench verify"),
    ("commands", "cli __main__"),
)


def modules(root: Path) -> dict[str, Path]:
    found = {}
    for path in sorted((root / "kgen").rglob("*.py")):
        found[".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


def imported(tree: ast.Module, known: dict[str, Path], module: str, path: Path) -> Iterator[str]:
    """The modules among `known` that code imports anywhere, but for type checkers alone."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
            package = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            names = [f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names]
        else:
            continue
        yield from (name for name in names if name in known and name != module)


@cache
def graph(root: Path) -> dict[str, set[str]]:
    known = modules(root)
    return {m: set(imported(ast.parse(path.read_text()), known, m, path)) for m, path in known.items()}


def circles(edges: dict[str, set[str]]) -> list[frozenset[str]]:
    """Modules that reach one another."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for m in edges[todo.pop()] - seen:
                seen.add(m)
                todo.append(m)
        return seen

    reach = {m: reached(m) for m in edges}
    return list({frozenset(n for n in reach[m] if m in reach[n]) for m in edges if m in reach[m]})


def layer(module: str) -> int | None:
    """Which layer names a module, or its package."""
    at = {("kgen" if name == "kgen" else f"kgen.{name}"): k for k, (_, names) in enumerate(LAYERS) for name in names.split()}
    while module not in at and module.count(".") > 1:
        module = module.rpartition(".")[0]
    return at.get(module)


def test_contributing_has_the_layers_and_modules_of_them() -> None:
    rows = re.findall(r"^\| ([^|`]+) \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text().partition("| layer | what it has |\n| --- | --- |\n")[2], re.M)
    for (name, modules), (its, told) in zip(LAYERS, rows, strict=False):
        assert name == its
        for module in re.findall(r"`(\w+)`", told):
            assert module in modules.split() or module in ("load", "loads", "kernel", "layers"), (name, module)


def test_nothing_is_imported_in_a_circle() -> None:
    found = circles(graph(ROOT))
    assert not found, found


def test_every_module_has_a_layer_and_imports_none_above_it() -> None:
    for module, others in graph(ROOT).items():
        own = layer(module)
        assert own is not None, f"no layer lists {module}"
        for other in others:
            its = layer(other)
            assert its is None or its <= own, f"{module} ({LAYERS[own][0]}) imports {other} ({LAYERS[its][0]})"


def test_a_circle_and_an_unknown_module_are_found(tmp_path: Path) -> None:
    package = tmp_path / "kgen"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "errors.py").write_text("def f():\n    from kgen import news\n")
    (package / "news.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kgen.types\nfrom .errors import f\n")
    (package / "types.py").write_text("import kgen.errors\n")
    edges = graph(tmp_path)
    assert edges["kgen.news"] == {"kgen.errors"}
    assert circles(edges) == [frozenset({"kgen.errors", "kgen.news"})]
    assert layer("kgen.news") is None and layer("kgen.runtime.news") == layer("kgen.runtime")
