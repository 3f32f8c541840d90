"""Each wrong spec here gets exactly the error text beside it: what is wrong, where, and what to do."""

import traceback
from pathlib import Path

import pytest

from kgen.check import check
from kgen.errors import KgenError
from kgen.syntax import parse

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*.k"))


def test_there_are_many_cases_and_each_has_its_text():
    assert len(CASES) >= 40
    assert {p.stem for p in CASES} == {p.stem for p in FOLDER.glob("*.txt")}


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_the_error_reads_exactly_so(path, request):
    """`pytest --update-golden` writes the texts anew."""
    with pytest.raises(KgenError) as caught:
        check(parse(path.read_bytes().decode(), path.name))
    golden = path.with_suffix(".txt")
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(f"{caught.value.render()}\n")
    assert f"{caught.value.render()}\n" == golden.read_text()


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_carets_stand_under_their_span(path):
    """The text above the carets is the text that the span covers, at the place that the arrow names."""
    with pytest.raises(KgenError) as caught:
        check(parse(path.read_bytes().decode(), path.name))
    for diagnostic in caught.value.diagnostics:
        if diagnostic.span is None:
            continue
        lines = diagnostic.render(caught.value.source).split("\n")
        start = lines[4].index("^")
        width = len(lines[4][start:]) - len(lines[4][start:].lstrip("^"))
        spanned = caught.value.source.text[diagnostic.span.start : diagnostic.span.end].split("\n")[0][:60]
        assert lines[3][start : start + width].rstrip() == "".join(c if c.isprintable() else "?" for c in spanned.expandtabs(1)).rstrip()
        row, column = caught.value.source.place(diagnostic.span.start)
        assert lines[1].endswith(f"{path.name}:{row}:{column}")


def test_a_traceback_says_error_once():
    error = KgenError("nothing fits", help="try again")
    assert traceback.format_exception_only(error) == ["kgen.errors.KgenError: nothing fits\n = help: try again\n"]
    assert error.render() == "error: nothing fits\n = help: try again"


def test_errors_survive_pickling():
    """An error crosses process borders whole (pytest-xdist and multiprocessing pickle exceptions)."""
    import pickle

    with pytest.raises(KgenError) as caught:
        check(parse(CASES[0].read_text(), CASES[0].name))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.diagnostics == caught.value.diagnostics
