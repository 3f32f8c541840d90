"""What a launcher is told of a kernel agrees with the kernel's own text; rounding to f32 in two places agrees; no text is read off by hand."""

from __future__ import annotations

import ast
import random
import re
from fractions import Fraction

import pytest

import kgen
from kgen.backends import backend
from kgen.backends.cuda import RowLayout, SortLayout
from kgen.backends.text import single_precision
from tests.backends.test_golden import OWN, own
from tests.conftest import ROOT

TEXTS = {name: own(name) for name in OWN} | {p.stem: p.read_text() for p in sorted((ROOT / "specs").glob("*.k"))}


@pytest.mark.parametrize("name", TEXTS)
def test_layouts_agree_with_the_source(name: str) -> None:
    """Kernels are there by name, have a pointer for each operand that has memory, and write what the spec says is written."""
    kernel = kgen.loads(TEXTS[name], name)
    fresh = {r.name for r in kernel.kernel.results if not r.state}
    states = {r.state for r in kernel.kernel.results} - {None}
    source = kernel.source("cuda")
    roles: dict[str, set[str]] = {"input": set(), "index": set(), "gather": set(), "state": set(), "result": set()}
    for unit in backend("cuda").layout(kernel.kernel):
        if isinstance(unit, SortLayout):  # a call of a library's sort
            continue
        (head,) = re.findall(rf"^{unit.kernel}\((.*?)\) \{{$", source, flags=re.S | re.M)
        assert head.count("*") == sum(o.role != "index" for o in unit.operands)
        for o in unit.operands:
            roles[o.role].add(o.name)
        if isinstance(unit, RowLayout):
            in_rows = {o.name for o in unit.operands if o.role == "state" and not o.element}
            body = source.partition(f"\n{unit.kernel}(")[2].partition("\n}\n")[0]
            read = {name.rstrip("_") for name in re.findall(r"\*walk\.template at<\d+>\((\w+?)_ptr\)\);", body)}
            assert unit.rereads == bool(in_rows & read), (in_rows, read)
    assert roles["state"] == states and fresh <= roles["result"]
    assert not (roles["state"] | roles["result"]) & roles["gather"] - {w for w in roles["result"] if w not in fresh}

    triton = kernel.source("triton")
    launches = backend("triton").launches(kernel.kernel)
    assert len(launches) == sum(triton.count(f"\n    {called}(") for called in ("launch", "launch_rows", "sort_keys"))
    for unit in launches:
        for made in unit.kernels.values():
            assert f"\ndef {made}(\n" in triton, made


NINE = """levels(x: T[..., N], w: f32[N]) -> y: T[..., N]

a = x - max[N](x)
b = a / (1 + sum[N](abs(a)))
c = b - max[N](b)
d = c / (1 + sum[N](c^2))
e = d - min[N](d)
f = e / (1 + sum[N](e^2))
g = f - min[N](f)
h = g / (1 + sum[N](exp(g)))
y = (h - max[N](h * w)) * w
"""


def test_each_of_many_readings_has_a_name_of_its_own() -> None:
    """More than there are words for, each given to the reduction of its number, in order."""
    source = kgen.loads(NINE).source("cuda")
    read = re.findall(r"walk\.template (?:reduce|products)<(\d+), (\w+)>", source)
    assert [int(k) for k, _ in read] == list(range(9)) and len({kind for _, kind in read}) == 9
    assert all(f"struct {kind} {{" in source for _, kind in read)
    stops = [int(k) for k in re.findall(r"walk\.stops\((\d+)\)", source)]
    assert stops == sorted(stops) and len(set(stops)) == len(stops)


SHADOWS = """f(x: f32[M, N], a: float) -> y: f32[M]

f_loop  = a * 2
f_split = a * 3
f_row   = a * 5
y       = sum[N](x * f_loop + f_split) / f_row
"""


def test_no_name_in_the_host_function_hides_a_kernel() -> None:
    """A number that is computed in it has the name of its equation, unless a kernel of the module has that."""
    module = ast.parse(kgen.loads(SHADOWS).source("triton"))
    functions = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
    host = functions.pop("f")
    own = {n.id for n in ast.walk(host) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    assert {"f_row", "f_loop", "f_split"} <= functions.keys() and not own & functions.keys()
    assert {"f_row_", "f_loop_", "f_split_"} <= own


def test_a_number_is_rounded_once_to_f32() -> None:
    """Beside and in the middle of two floats, the largest, denormals, and what is too large; against exact arithmetic."""
    draw = random.Random(0)
    largest, half = Fraction(2**24 - 1) * 2**104, Fraction(2) ** 103
    given = [Fraction(0), largest, largest + half, largest + half + 1, Fraction(2) ** 200]
    for _ in range(300):
        exponent = draw.choice([-149, -149, -140, -126, -30, 0, 60, 103])
        middle = (draw.randrange(2**23, 2**24) if exponent > -149 else draw.randrange(2**10)) + Fraction(draw.choice([0, 1, 1]), 2)
        given.append((middle + Fraction(draw.choice([-1, 0, 0, 1]), 2**40)) * Fraction(2) ** exponent)
    for x in given:
        rounded = single_precision(x)
        assert rounded == -single_precision(-x), x
        if rounded == float("inf"):
            assert x >= largest + half
            continue
        unit = max(Fraction(2) ** -149, Fraction(2) ** (len(bin(int(x / Fraction(2) ** -149))) - 2 - 24 - 149))
        down = x // unit * unit
        want = min((down, down + unit), key=lambda y: (abs(x - y), y / unit % 2))
        assert rounded == want, x
