"""The mutants of kgen's modules, as mutmut makes them: each one small change of one expression or assignment.

In: the modules of the groups below.  Out: for each mutant what stands where, and what takes its place.  mutmut
(https://mutmut.readthedocs.io) says what is changed to what; it is needed to make a list, not to run one.  Changes outside
functions are left out (tables and imports), as mutmut leaves them out.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: What is mutated.
GROUPS = {
    "lowering": ("lower", "expand"),
    "rules": ("rewrite",),
    "gradients": ("grad", "tape", "invariant", "rowwise", "saving", "write"),
    "printers": tuple(f"backends/{name}" for name in ("base", "body", "c_family", "cpp", "cpp_rows", "cuda", "cuda_host", "cuda_maps", "cuda_partials", "cuda_rows", "text", "triton", "triton_maps", "triton_rows", "units")),
}
#: The tests that are run against them (of these only those that reach what was changed; none that takes longer than a few seconds).
TESTS = (
    "tests/frontend",
    "tests/backends",
    "tests/grad",
    "tests/ops",
    "tests/cuda",
    "tests/triton",
    "tests/errors",
    "tests/trace",
    "tests/planted",
)


@dataclass(frozen=True)
class Mutant:
    """`old` stands in `path` at the byte `start` of the text with the hash `text`; `new` takes its place."""

    name: str
    group: str
    path: str
    function: str
    line: int
    last: int
    start: int
    old: str
    new: str
    text: str

    def applied(self, source: bytes) -> bytes:
        """The file's text with the change; ValueError where the file is another by now."""
        end = self.start + len(self.old.encode())
        if digest(source) != self.text or source[self.start : end] != self.old.encode():
            raise ValueError(f"{self.path} has changed since the list was made")
        return source[: self.start] + self.new.encode() + source[end:]

    def data(self) -> dict[str, Any]:
        return asdict(self)


def digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]


def files(group: str) -> list[str]:
    return [f"kgen/{name}.py" for name in GROUPS[group]]


def functions(source: str) -> dict[int, str]:
    """The innermost function or class of each line."""
    found: dict[int, str] = {}

    def visit(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{name}.{child.name}".lstrip(".")
                found.update(dict.fromkeys(range(child.lineno, (child.end_lineno or 0) + 1), inner))
                visit(child, inner)
            else:
                visit(child, name)

    visit(ast.parse(source), "")
    return found


def mutants(path: str, group: str = "", root: Path = ROOT) -> Iterator[Mutant]:
    """Every mutant of a file, in order."""
    import libcst
    from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper
    from mutmut.mutation.file_mutation import MutationVisitor, deep_replace
    from mutmut.mutation.mutators import mutation_operators
    from mutmut.mutation.pragma_handling import IgnoredCode

    source = (root / path).read_bytes()
    wrapper = MetadataWrapper(libcst.parse_module(source))
    visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    spans, named, text = wrapper.resolve(ByteSpanPositionProvider), functions(source.decode()), digest(source)
    seen: set[tuple[int, str, str]] = set()
    alike: Counter[tuple[str, str, str]] = Counter()
    for made in visitor.mutations:
        if made.contained_by_top_level_function is None:
            continue
        span = spans[made.original_node]
        start, old = span.start, source[span.start : span.start + span.length].decode()
        new = module.code_for_node(made.mutated_node)
        written = module.code_for_node(made.original_node)  # with the brackets and blanks around it, which the span leaves out
        start -= len(written.partition(old)[0].encode())
        if old in written and source[start : start + len(written.encode())] == written.encode():
            old = written
        else:  # the difference of the whole texts
            whole = deep_replace(module, made.original_node, made.mutated_node).code.encode()  # type: ignore[union-attr]
            start, old, new = difference(source, whole)
        if old == new or (start, old, new) in seen:
            continue
        seen.add((start, old, new))
        line = source.count(b"\n", 0, start) + 1
        inside = named.get(line, "")
        before = alike[inside, old, new] = alike[inside, old, new] + 1
        name = f"{path}:{inside}:{hashlib.sha256(f'{before} {old} {new}'.encode()).hexdigest()[:8]}"  # whatever lines come before
        yield Mutant(name, group, path, inside, line, line + old.count("\n"), start, old, new, text)


def difference(a: bytes, b: bytes) -> tuple[int, str, str]:
    """Where two texts differ, and how: from the first to the last byte that differs."""
    front = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    back = next((k for k, (x, y) in enumerate(zip(a[::-1], b[::-1])) if x != y), 0)
    back = min(back, min(len(a), len(b)) - front)
    return front, a[front : len(a) - back].decode(), b[front : len(b) - back].decode()


def every(groups: tuple[str, ...] = tuple(GROUPS), root: Path = ROOT) -> list[Mutant]:
    return [m for group in groups for path in files(group) for m in mutants(path, group, root)]
