"""Where a program's threads meet before they store: a tensor that is read and written is laid out by each access, so another thread may
store an element than the one that loads it, and only a value that is made of the loaded one waits for it."""

from __future__ import annotations

import re

import pytest

from kgen import syntax
from kgen.backends import backend, triton_order
from kgen.backends.text import source
from kgen.backends.triton_nodes import Block, meet_again
from kgen.backends.units import Statement
from kgen.check import check
from kgen.runtime import static

MEET = "tl.debug_barrier()"
MAPS = {
    "x(x: T[...]) -> (x': T[...], y: T[...])\n\nx' = 2\ny = x\n": True,
    "x(x: T[...], w: T[...]) -> (w': T[...], y: T[...])\n\nw' = uniform[...](0, 2)\ny = hypot(x, w)\n": True,
    "x(x: T[...], w: T[...]) -> (w': T[...], y: T[...])\n\nw' = x\ny = exp(w) + x\n": True,
    "x(x: T[...], w: T[...]) -> (w': T[...], y: T[...])\n\nw' = w + x\ny = exp(w) + x\n": False,  # made of its own value
    "x(x: T[...]) -> (x': T[...])\n\nx' = exp(x)\n": False,
    "x(x: T[...], w: T[...]) -> y: T[...]\n\ny = x * w\n": False,
    # a caller may write a result over a parameter: `out=(w, z)`
    "x(x: T[...], w: T[...]) -> (y: T[...], z: T[...])\n\ny = exp(x)\nz = w * x\n": True,
    "x(x: T[...], w: T[...]) -> (y: T[...], z: T[...])\n\ny = x - w\nz = w * x\n": False,
    "x(x: i32[...], w: f32[...]) -> (y: i32[...], z: f32[...])\n\ny = x + 1\nz = w * f32(x)\n": False,  # of other dtypes
}
ROWS = {
    "x(x: T[..., N], s: T[...]) -> (s': T[...], y: T[..., N])\n\ns' = s + sum[N](x)\ny = x * s\n": True,  # all threads of a row read s
    "x(x: T[..., N]) -> (x': T[..., N], y: T[..., N])\n\nx' = sum[N](x)\ny = x\n": True,
    "x(x: T[..., N]) -> (x': T[..., N], y: T[..., N])\n\nx' = x / sum[N](x)\ny = x\n": False,
    "x(x: T[..., N]) -> y: T[..., N]\n\ny = x / sum[N](x)\n": False,
    "x(x: T[..., N], r: T[..., N]) -> (h: T[..., N], y: T[..., N])\n\nh = x + r\ny = h / sum[N](h^2)\n": False,
    "x(x: T[..., N]) -> x': T[..., N]\n\nx' = cumsum[N](x)\n": False,
    "x(x: T[..., N], r: T[..., N]) -> (x': T[..., N], y: T[..., N])\n\nx' = 2 * r * cumsum[N](r)\ny = cumsum[N](x)\n": True,
}


def stores(text: str, meets: bool) -> list[str]:
    """The jitted functions of a file that store results; those over what is read, where there are such by name."""
    found = [f for f in re.split(r"\n\n\n", text) if re.search(r"tl\.store\((?!\w+_parts)", f)]
    return [f for f in found if re.search(r"tl\.store\([xsw]_+(at|row|ptr)", f) or "_next" not in text] if meets else found


@pytest.mark.parametrize(("text", "meets"), [*MAPS.items(), *ROWS.items()])
def test_threads_meet_before_a_store_over_what_another_reads(text: str, meets: bool) -> None:
    source = backend("triton").render(check(syntax.parse(text, "x")))
    assert stores(source, meets)
    for function in stores(source, meets):
        assert (MEET in function) == meets, function
        if meets:
            behind = function[function.index(MEET) :]
            assert "tl.store" in behind and not re.search(r"tl\.load\((?!\w+_parts)", behind), function


def test_known_sizes_too() -> None:
    for text, meets in (*list(MAPS.items())[:5], *list(ROWS.items())[:4]):
        kernel, sizes = check(syntax.parse(text, "x")), {"N": 384} if "N" in text else {}
        source = static.source(kernel, "triton", sizes, {"T": ["bf16"]})
        assert (MEET in source) == meets, source


TWICE = {
    # threads have met, and loaded nothing since
    "x(x: T[..., N], s: T[...], r: T[...]) -> (s': T[...], r': T[...], y: T[..., N])\n\ns' = sum[N](x)\nr' = max[N](x)\ny = x * s * r\n": {},
    "x(x: T[..., N], w: T[..., N]) -> (x': T[..., N], w': T[..., N])\n\nx' = w * sum[N](x)\nw' = x * max[N](w)\n": {"N": 200_000},
}


@pytest.mark.parametrize(("text", "sizes"), TWICE.items())
def test_threads_meet_once_where_nothing_is_loaded_between(text: str, sizes: dict[str, int]) -> None:
    kernel = check(syntax.parse(text, "x"))
    for text in (backend("triton").render(kernel), static.source(kernel, "triton", sizes or {"N": 384}, {"T": ["bf16"]})):
        met = [f for f in re.split(r"\n\n\n", text) if MEET in f]
        assert met
        for function in met:
            for between in function.split(MEET)[1:-1]:
                assert re.search(r"tl\.load|\bfor\b|\bif\b", between), function


def test_what_is_loaded_between_counts() -> None:
    meet = triton_order.MEET
    load = Statement(("x",), "", source("tl.load({0} + 1)", "p"))
    value = Statement(("y",), "", source("{0} * 2", "x"))
    store = Statement(value=source("tl.store({0}, {1})", "q", "y"))
    assert meet_again([load, meet, store, value, meet, store, meet], {"p", "q"}) == [6, 4]
    assert meet_again([meet, store, load, meet, store], {"p", "q"}) == []
    assert meet_again([meet, value, meet, store, meet]) == [4]  # any value may be loaded where no memory is named
    assert meet_again([meet, Block(source("if x"), (load,)), meet], {"p"}) == []
