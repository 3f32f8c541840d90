"""The templates' reader: what it makes of them is what Jinja makes of them."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from kgen.backends import TARGETS, backend, base
from kgen.check import check
from kgen.skeletons import Skeletons
from kgen.syntax import parse
from tests.conftest import ROOT

SPECS = sorted((ROOT / "specs").glob("*.k"))


def jinja(*folders: Path) -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="%%",
    )


@pytest.mark.parametrize("target", TARGETS)
def test_sources_are_those_that_jinja_makes(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [check(parse(path.read_text(), path.name)) for path in SPECS]
    own = [backend(target).render(kernel) for kernel in kernels]
    monkeypatch.setattr(base, "_skeletons", lambda folder: jinja(folder, folder.parent))
    assert own == [backend(target).render(kernel) for kernel in kernels]


class Thing:
    def __init__(self, name: str, on: bool = False) -> None:
        self.name, self.on = name, on

    def __str__(self) -> str:
        return f"<{self.name}>"


GIVEN = {
    "a": "A", "none": None, "n": 3, "empty": [], "names": ["x", "y", "x"], "pairs": [("p", 1), ("q", 2)], "table": {"k": [7, 8], "l": "L"},
    "things": [Thing("s", True), Thing("t")], "u": Thing("u"), "lines": "one\ntwo\n\nthree", "yes": True,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "{{ a }}{{ a ~ n ~ u }}|{{ n + 1 }}|{{ n - 2 * 2 }}|{{ '%s-%s' % (a, n) }}|{{ none }}|{{ true }}",
        "{{ 'if' if yes }}{{ 'no' if not yes }}|{{ 'a' if n > 3 else 'b' if n == 3 else 'c' }}|{{ a or 'z' }}|{{ empty or 'z' }}",
        "{{ n == 3 and n != 4 or a }}|{{ 1 <= n }}|{{ 'x' in names }}|{{ 'q' not in names }}|{{ not empty }}|{{ (n, a)[1] }}|{{ (a) }}",
        "{{ table.k[1] }}{{ table['l'] }}{{ table.items() | length }}|{{ names | join(', ') }}|{{ things | map(attribute='name') | join }}",
        "{{ pairs | map(attribute=1) | list }}|{{ names | unique | sort | join('') }}|{{ names | length > 2 }}|{{ lines | indent }}|{{ '  x ' | trim }}",
        "{{ things | selectattr('on') | list | length }}{{ (things | rejectattr('on') | list)[0].name }}{{ 'x'.startswith('x') }}{{ a.replace('A', 'B') }}",
        '{{ "\n" }}{{ "tab\\t" }}{{ \'"\' }}{{ "{" ~ a ~ "}" }}',
        "%% for x in names\n  {{ x }}{{ ', ' if not loop.last }}{{ loop.index0 }}\n%% endfor\nend",
        "%% for x, k in pairs if k > 1\n{{ x }}{{ k }}\n%% endfor\n%% for k, v in table.items()\n{{ k }}={{ v }};\n%% endfor\n",
        "%% for a in names\n%% for a in pairs\n{{ a[0] }}{{ loop.last }}\n%% endfor\n{{ a }}{{ loop.last }}\n%% endfor\n{{ a }}\n",
        "%% if empty\nno\n%% elif n == 3\nthree\n%% else\nother\n%% endif\n\n\n  text\n",
        "  %% if yes\n  kept\n  %% endif\n\n{{ '' }}\n{{ '\n' }}\n",
        "{# a comment #}\nline\n  {# another #}  \nx {# inside #} y\n{#\n%% if\n#}\nz",
        "  {% if yes %}\n  block\n  {% endif %}\nx {% if yes %}inline{% endif %} y\n{% for x in names %}{{ x }}{% endfor %}\n",
        "{ {%- for x in names %} {{ x }}{{ ', ' if not loop.last }}{% endfor -%} }\n{{ a -}}\n\n  b {{- n }}",
        "%% set two, v = n == 3, 'v' * 2\n{{ two }}{{ v }}\n%% for x in names\n%% set v = x\n{{ v }}\n%% endfor\n{{ v }}\n",
        '{% import "other" as m with context %}\n{{ m.greet("Hi") -}}\nrest\n%% for u in things\n{% include "part" %}\n%% endfor\n{{ u }}\n',
        '%% for u in things\n{% include "part" if u.on else "other" %}\n%% endfor\n',
        "",
        "no tags at all\n\n",
        "{{ n }}\n",
    ],
)
def test_a_template_means_what_it_means_to_jinja(text: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(text)
    (tmp_path / "part").write_text("{{ u }} of {{ a }}\n%% if u.on\non\n%% endif\n")
    (tmp_path / "other").write_text("{% macro greet(word) %}\n{{ word }} {{ a }}{% for x in names %}{{ x }}{% endfor %}\n\n{% endmacro %}\n")
    want = jinja(tmp_path).get_template("text").render(GIVEN)
    assert Skeletons([tmp_path]).get_template("text").render(GIVEN) == want


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{{ missing }}", KeyError), ("{{ u.missing }}", AttributeError), ("{{ table.missing }}", KeyError), ("{{ n | missing }}", SyntaxError),
        ("{% while n %}", SyntaxError), ("{% if n %}", SyntaxError), ("{% endif %}", SyntaxError), ("{% for x in names %}{% endif %}", SyntaxError),
        ("{{ n n }}", SyntaxError), ("{{ (n }}", SyntaxError), ("{{ }}", SyntaxError), ("{{ n[1 }}", SyntaxError), ("{{ len(n }}", SyntaxError),
    ],
)  # fmt: skip
def test_what_is_no_template_is_refused(text: str, error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "text").write_text(text)
    with pytest.raises(error):
        Skeletons([tmp_path]).get_template("text").render(GIVEN)


