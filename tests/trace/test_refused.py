"""What cannot be a kernel is refused: the error names it, at its Python line, with advice."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import torch

import kgen
from kgen.trace import trace
from tests.trace import refused
from tests.trace.written import module

GOLDEN = Path(__file__).parent / "refused.txt"


def told(function: object) -> kgen.KgenError:
    with pytest.raises(kgen.KgenError) as caught:
        trace(function)  # type: ignore[arg-type]
    return caught.value


def test_every_error_reads_exactly_so(request: pytest.FixtureRequest) -> None:
    """`pytest --update-golden` writes the texts anew."""
    folder = f"{Path(refused.__file__).parent}/"
    text = "\n\n\n".join(f"## {f.__name__}\n\n{told(f).render()}".replace(folder, "") for f in refused.CASES) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("function", refused.CASES, ids=lambda f: f.__name__)
def test_carets_stand_in_the_function_on_the_true_line(function) -> None:
    error = told(function)
    lines, first = inspect.getsourcelines(function)
    file = Path(refused.__file__).read_text(encoding="utf-8").split("\n")
    for d in error.diagnostics:
        assert d.span is not None and error.source is not None
        row, column = error.source.place(d.span.start)
        shown = d.render(error.source).split("\n")
        assert shown[1].endswith(f"refused.py:{row}:{column}")
        assert shown[3] == f"{row} | {file[row - 1]}".rstrip()
        helper = function in (refused.helper_with_a_loop, refused.recursion)
        assert helper or first <= row < first + len(lines)
        start = shown[4].index("^")
        width = shown[4].count("^")
        assert shown[3][start : start + width] == error.source.text[d.span.start : d.span.end].split("\n")[0][:60]


def test_a_function_without_a_file_is_refused() -> None:
    made: dict = {}
    exec("def f(x: 'T[...]'):\n    return x * 2", made)
    assert "the source of `f` cannot be read" in str(told(made["f"]))
    assert "a lambda cannot be traced" in str(told(lambda x: x))
    assert "is not a plain Python function" in str(told(torch.exp))
    assert "is wrapped by another decorator" in str(told(torch.no_grad()(refused.loops)))


def test_a_notebooks_cell_has_its_source() -> None:
    """IPython keeps each cell's text in linecache, under the name that the code has."""
    import linecache

    text, name = 'def f(x: "T[..., N]"):\n    return x * median["N"](x)\n', "<ipython-input-3-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    made: dict = {}
    exec(compile(text, name, "exec"), made)
    assert str(told(made["f"])).split("\n")[1:4] == [" --> <ipython-input-3-abc>:2:16", "  |", '2 |     return x * median["N"](x)']


def test_a_helper_in_another_file_is_shown_there(tmp_path: Path) -> None:
    """What it holds is refused at its own line; what the language refuses of it, at the call."""
    far = module(
        tmp_path,
        "def looped(z):\n    while z > 0:\n        z = z - 1\n    return z\n\ndef wrong(z):\n    return z & 1\n\ndef µ(z):\n    return z * 2\n",
    )
    near = module(tmp_path, f"""import sys
sys.path.insert(0, {str(tmp_path)!r})
import {far.__name__} as far
def f(x: "T[...]"):
    return far.looped(x)
def g(x: "T[...]"):
    return far.wrong(x) + 1
def h(x: "T[...]"):
    return far.µ(x) + 1
""")  # fmt: skip
    assert f"{far.__name__}.py:8:5" in str(told(near.f))
    assert f"{near.__name__}.py:13:12" in str(told(near.g)) and "far.wrong(x)" in str(told(near.g))
    assert trace(near.h)


def test_a_long_expression_ends_in_an_error_not_a_traceback(tmp_path: Path) -> None:
    made = module(tmp_path, f'def f(x: "T[...]"):\n    return {" + ".join(["x"] * 900)}\n')
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # Python's own: libraries raise it
    try:
        told(made.f)
    finally:
        sys.setrecursionlimit(before)
    big = module(tmp_path, 'def f(x: "T[...]"):\n    return x * 9**9**9\ndef g(x: "T[...]"):\n    return x * 1e9999\n')
    assert "too large" in str(told(big.f)) and "exponent" in str(told(big.g))


def test_specs_by_name_and_torch_by_place(tmp_path: Path) -> None:
    """The same operands: by name in kgen's own words, refused where torch would pair them otherwise."""
    head = '(x: "T[B, C, S]", w: "T[C]"):\n    return'
    made = module(
        tmp_path, f"def by_name{head} x * w\ndef by_place{head} torch.exp(x) * w\ndef put_right{head} torch.exp(x) * w[:, None]\n"
    )
    assert trace(made.by_name).results[0].dims == ("B", "C", "S")
    assert "from the right" in str(told(made.by_place))
    assert trace(made.put_right).results[0].dims == ("B", "C", "S")
