"""Values know where they were written: every pass keeps each let's span and the name of its equation, and makes up neither."""

from __future__ import annotations

import pytest

from kgen.check import check
from kgen.errors import Span
from kgen.expand import expand
from kgen.ir import Program
from kgen.lower import lower
from kgen.rewrite import rewrite
from kgen.schedule import schedule
from kgen.syntax import parse
from tests.conftest import ROOT
from tests.programs import PROGRAMS

TEXTS = PROGRAMS | {p.stem: p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))}
MORE = {
    "casts": "f(x: T[N], k: i8[N], n: int) -> (a: f16[N], b: i64[], c: T[N])\n\na = f16(x) + k / 4\nb = sum[N](k) + sum[N](x > n)\nc = T(x)^3 + bf16(k)",
    "places": "f(x: T[A, B, C], t: i32[A]) -> (i: i64[A], m: f32[], y: T[A, C])\n\ni = argmax[B, C](x)\nm = mean[A, B, C](x)\ny = pick[B](exp(x) + index[B], t)",
    "numbers": "f(x: T[N], a: float, n: int) -> (y: T[N], z: i64[N])\n\nc = a^2 / 8 + pi\ny = x^4 / 16 * c\nz = i64(x) // n + 3",
}


@pytest.mark.parametrize("name", [*TEXTS, *MORE])
def test_each_value_keeps_its_place_and_its_name(name: str) -> None:
    kernel = check(parse({**TEXTS, **MORE}[name], name))
    equations = {n: (k, kernel.values[v].op) for k, (n, v, _) in reversed(list(enumerate(kernel.equations)))}
    end = len(kernel.file.source.text)

    def held(program: Program) -> set[str]:
        for let in program.lets:
            assert isinstance(let.span, Span) and 0 <= let.span.start <= let.span.end <= end, let
            assert let.label == "" or let.label in equations, let
            assert isinstance(let.generic, str) and isinstance(let.dims, tuple), let
        return {let.label for let in program.lets} - {""}

    for binding in (kernel.bindings()[0], kernel.bindings()[-1]):
        lowered = lower(kernel, binding)
        named = held(lowered)
        assert held(rewrite(lowered)) == named
        assert held(expand(lowered)) == named
        assert held(schedule(rewrite(lowered)).program) <= named
