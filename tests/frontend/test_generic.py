"""What a value is computed in, by name: its `generic` says so for every choice of the dtype variables, in any program."""

from __future__ import annotations

import pytest

from kgen.check import check
from kgen.expand import expand
from kgen.lower import lower
from kgen.rewrite import rewrite
from kgen.syntax import parse
from kgen.types import DTYPES, DType
from tests.frontend.test_labels import MORE, TEXTS

PICKS = "f(k: i32[V], b: bool[V, W], t: i64[N], c: i32[N, W]) -> (y: i32[N], z: bool[N, W])\n\ny = pick[V](k, t)\nz = pick[V](b, c)\n"


@pytest.mark.parametrize("name", [*TEXTS, *MORE])
def test_dtypes_follow_from_the_generic_name(name: str) -> None:
    """`=T` is T itself, `T+U` f64 where one of them is and else f32; without a name the dtype is the same for all choices."""
    kernel = check(parse({**TEXTS, **MORE}[name], name))
    fixed: dict[str, DType] = {}
    for binding in kernel.bindings():
        for let in rewrite(lower(kernel, binding)).lets:
            if not isinstance(let.dtype, DType):
                continue
            if let.generic.startswith("="):
                assert let.dtype is binding[let.generic[1:]], let
            elif let.generic:
                assert let.dtype.name == ("f64" if any(binding[v].name == "f64" for v in let.generic.split("+")) else "f32"), let
            else:
                assert let.dtype is fixed.setdefault(let.name, let.dtype) and let.dtype.name in DTYPES, let


def test_integers_are_picked_as_they_lie_in_memory() -> None:
    """No choice between what is read and a NaN: an integer outside is 0 already; and where it was written is still known."""
    kernel = check(parse(PICKS, "f.k"))
    program = expand(lower(kernel, {}))
    made = [let for let in program.lets if let.expr.name == "gather"]
    assert [(let.label, let.dtype.name, set(let.dims)) for let in made] == [("y", "i32", {"N"}), ("z", "bool", {"N", "W"})]
    assert not [let for let in program.lets if let.expr.name in ("where", "lit")]
    assert {s.ref for s in program.stores} == {let.name for let in made}
    text = kernel.file.source.text
    assert all("pick[V]" in text[let.span.start : let.span.end] or text[let.span.start : let.span.end] in ("k", "b") for let in made)
