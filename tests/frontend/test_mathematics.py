"""`kgen show --stage math` and a notebook's formula: what was written, read back as the same tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kgen
from kgen import typeset
from kgen.mathematics import formula, latex, mathematics
from kgen.syntax import Apply, Equation, Expr, Helper, Name, Num, parse, postorder

SPECS = sorted((Path(__file__).parents[2] / "specs").glob("*.k"))


def body(text: str) -> Expr:
    (equation,) = parse(f"y = {text}\n").statements
    assert isinstance(equation, Equation)
    return equation.body


def shape(root: Expr) -> str:
    """A tree with every bracket: two texts mean the same where this is the same."""
    made: dict[int, str] = {}
    for node in postorder(root):
        dims = ",".join(d.name for d in node.dims or ()) if isinstance(node, Apply) else ""
        made[id(node)] = f"{node.op}[{dims}]({','.join(made[id(a)] for a in node.args)})" if isinstance(node, Apply) else \
            node.text if isinstance(node, Num) else node.name  # fmt: skip
    return made[id(root)]


def read_back(tex: str) -> str:
    """LaTeX as the language's text; only what the typesetter writes is known."""
    tex = re.sub(r"\\mathrm\{(and|or)\}", r"\1", tex.replace(r"\;", " ")).replace(r"\mathrm{not} ", "not ")
    tex = re.sub(r"_\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}", lambda m: f"[{m.group(1)}]", tex)
    tex = re.sub(r"(\S+) \\cdot 10\^\{(-?\d+)\}", r"\1e\2", tex)
    tex = re.sub(r"\\(?:mathrm|operatorname|mathtt)\{([^{}]*)\}", lambda m: m.group(1).replace("\\_", "_"), tex)
    tex = re.sub(r"\bi\[", "index[", tex)
    for sign, text in ((r"\left\lfloor ", "floor("), (r"\right\rfloor", ")"), (r"\left\lceil ", "ceil("), (r"\right\rceil", ")"), (r"\left|", "abs("),
                       (r"\right|", ")"), (r"\left(", "("), (r"\right)", ")"), (r"\cdot", "*"), (r"\bmod", "%"), (r"\leq", "<="), (r"\geq", ">="),
                       (r"\neq", "!="), (r"\ldots", "..."), (r"\mathbin{|}", "|"), (r"\mathbin{\&}", "&"), (r"\mathord{\sim}", "~"), (r"\ll", "<<"),
                       (r"\gg", ">>"), (r"\mathbin{/\!/}", "//"), (r"\pi", "pi"), (r"\infty", "inf"), (" = ", " == "), (r"\left[", "["),
                       (r"\right]", "]"), (r"\mapsto", "=")):  # fmt: skip
        tex = tex.replace(sign, text)
    while (m := re.search(r"\\begin\{cases\} ((?:(?!\\begin\{cases\}).)*?) \\end\{cases\}", tex)) is not None:
        *rows, last = m.group(1).split(r" \\ ")
        chain = "".join("({}) if ({}) else ".format(*row.split(r" & \text{if }")) for row in rows)
        tex = f"{tex[: m.start()]}({chain}({last.split(' & ')[0]})){tex[m.end() :]}"
    while (m := re.search(r"\\frac\{([^{}]*)\}\{([^{}]*)\}|\\sqrt\{([^{}]*)\}|\{([^{}]*)\}\^\{([^{}]*)\}", tex)) is not None:
        top, bottom, root, x, n = m.groups()
        made = f"(({top}) / ({bottom}))" if top is not None else f"sqrt({root})" if root is not None else f"(({x}) ^ ({n}))"
        tex = tex[: m.start()] + made + tex[m.end() :]
    return re.sub(r"\\(sum|prod|max|min|exp|log|sinh|cosh|tanh|sin|cos|tan)", r"\1", tex)


def same(root: Expr) -> None:
    made = formula(root)
    assert shape(body(read_back(made.latex))) == shape(root), made.latex
    assert len({len(line) for line in made.box.lines}) == 1 and made.latex.count("{") == made.latex.count("}")


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_every_equation_of_every_spec_is_typeset_as_it_is_written(path: Path) -> None:
    file = parse(path.read_text(), path.name)
    for s in file.statements:
        if isinstance(s, (Equation, Helper)):
            same(s.body)
            words = {n.name for n in postorder(s.body) if isinstance(n, Name)} - {"pi", "inf", "nan"}
            assert words <= set(re.findall(r"\w+'?", mathematics(file)))
    assert latex(file).count("&=") >= 1 and kgen.load(path)._repr_latex_() == f"$\\displaystyle {latex(file)}$"


HAZARDS = ["x - x", "0 * x", "x / x", "(a * b) * c", "a * (b * c)", "a - (b - c)", "a - b - c", "a / b / c", "a / (b / c)", "a / b * c", "a / (b * c)",
           "-x^2", "(-x)^2", "x^-2", "x^y^z", "(x^y)^z", "exp(x)^2", "sum[N](x)^2", "sqrt(x)^2", "abs(x)^2", "2 * (x + 1)", "2 * x + 2", "exp(log(x))", "lr * g",
           "b1 * m + (1 - b1) * g", "x * 1.50", "1e-5 + x", "0x1F & n", "not (a < b)", "not a < b and c or d", "a if p else b if q else c",
           "(a if p else b) + c", "a if p else (b if q else c)", "a if (p if q else r) else c", "(a if p else b) if q else c", "x // y % z",
           "a << 2 >> b | c & ~d", "floor(x / y)", "ceil(-x)", "mean[..., N](x * w)", "index[N] <= index[M]", "max(a, b, c)", "max[N](max(a, b))", "pi * inf",
           "x == x", "x != y", "where(p, a, b)", "i8(round(x))", "var[N](x - mean[N](x))", "+x", "--x", "a - -b", "a_b * x1"]  # fmt: skip


@pytest.mark.parametrize("text", HAZARDS)
def test_nothing_is_simplified_moved_or_merged(text: str) -> None:
    same(body(text))


def test_the_text_in_two_dimensions() -> None:
    file = parse(
        "f(x: T[..., N], lr: float) -> y: T[..., N]\n\nm = mean[N](x)\ny = lr * (x - m)^2 / sqrt(x / m + 1) if x > m else -x if x < 0 else x - x\n"
    )
    assert (
        mathematics(file)
        == """\
m = mean (x)
        N

    ⎧              2
    ⎪  lr · (x - m)
    ⎪ ───────────────  if x > m
    ⎪      ───────
y = ⎨     │ x
    ⎪     │─── + 1
    ⎪    √│ m
    ⎪ -x               if x < 0
    ⎩ x - x            otherwise
"""
    )


def test_names_of_several_letters_are_upright() -> None:
    assert formula(body("lr * l * r * m_hat")).latex == r"\mathrm{lr} \cdot l \cdot r \cdot \mathrm{m\_hat}"


@pytest.mark.parametrize("sign", [" + x", " / x", "^x", " if x > 0 else x"])
def test_deep_formulas_are_set_on_few_lines(sign: str) -> None:
    made = formula(body("x" + sign * 300))
    assert len(made.box.lines) <= (400 if "if" in sign else 24)
    assert typeset.format_expr(body("x" + sign * 300)) == "x" + sign * 300
