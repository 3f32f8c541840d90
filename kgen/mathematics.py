"""A spec's equations as a person would set them: in two dimensions for a terminal, in LaTeX for a notebook.

In: a syntax tree.  Out: what was written, and nothing else: no operand is moved, merged, cancelled or rewritten, the writer's brackets
stay (but where a fraction's bar, a root or an exponent's place says the same), and names stand as they are.
Trees can be deep, so nothing recurses; what would be very tall is written on one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

from kgen import typeset
from kgen.errors import printed
from kgen.ops import CONSTANTS, OPS, Notation
from kgen.syntax import ATOM, WHERE, Apply, Equation, Expr, File, Helper, Name, Num, postorder

MAX_ROWS = 24  # of a formula, before fractions and exponents are written on one line

_CONSTANTS = {"pi": ("π", r"\pi"), "inf": ("∞", r"\infty"), "nan": ("nan", r"\mathrm{nan}")}
_LARGE = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min"}


class Box(NamedTuple):
    """Lines of one width; `base` is the one on which its neighbours stand."""

    lines: tuple[str, ...]
    base: int = 0

    @property
    def width(self) -> int:
        return len(self.lines[0])


class Set(NamedTuple):
    """An expression set both ways, and how tightly its text binds (brackets of the writer's left aside)."""

    box: Box
    latex: str
    level: int = ATOM


def mathematics(file: File) -> str:
    """The helpers and equations of a file in two dimensions, an empty line between them."""
    boxes = [_row([name.box, Box((" = ",)), body.box]) for name, body in _all(file)]
    return "\n\n".join("\n".join(line.rstrip() for line in box.lines) for box in boxes) + "\n"


def latex(file: File) -> str:
    """The helpers and equations as LaTeX, one a line, aligned at their equals signs."""
    return "\\begin{aligned}\n" + " \\\\\n".join(f"{name.latex} &= {body.latex}" for name, body in _all(file)) + "\n\\end{aligned}"


def _all(file: File) -> list[tuple[Set, Set]]:
    found = []
    for s in file.statements:
        if isinstance(s, Helper):
            found.append((_called(_name(s.name.name), s.dims, [_name(p.name) for p in s.params]), formula(s.body)))
        elif isinstance(s, Equation):
            found.append((_name(s.name.name), formula(s.body)))
    return found


def formula(root: Expr) -> Set:
    """An expression, set."""
    made: dict[int, Set] = {}
    continued = {id(node.args[2]) for node in postorder(root) if _is_choice(node) and _is_choice(node.args[2]) and not node.args[2].parens}
    for node in postorder(root):
        if not _is_choice(node):
            made[id(node)] = _node(node, [made[id(a)] for a in node.args] if isinstance(node, Apply) else [])
        elif id(node) not in continued:  # `a if p else b if q else c` is one choice
            rows: list[tuple[Set, Set]] = []
            end: Expr = node
            while _is_choice(end) and (end is node or id(end) in continued):
                rows.append((made[id(end.args[1])], made[id(end.args[0])]))
                end = end.args[2]
            made[id(node)] = _cases(rows, made[id(end)])
    return made[id(root)]


def _is_choice(node: Expr) -> TypeGuard[Apply]:
    return isinstance(node, Apply) and node.written == "where"


def _node(node: Expr, args: list[Set]) -> Set:
    """A node whose operands are set."""
    if isinstance(node, Num):
        return Set(Box((node.text,)), _number(node.text))
    if isinstance(node, Name):
        return _name(node.name)
    level = typeset.level(node)
    if node.written == "place":
        return _placed(node, args)

    def side(k: int, wanted: int) -> Set:
        """An operand in brackets where the writer set some, or where its operator binds less than `wanted`."""
        return _bracketed(args[k]) if node.args[k].parens or args[k].level < wanted else args[k]

    notation = _notation(node.op)
    text, tex = notation.sign, notation.latex
    if node.written == "prefix":
        x = side(0, level)
        return Set(_row([Box((text,)), x.box]), tex + x.latex, level)
    if node.written == "infix" and notation.layout == "fraction":
        top, bottom = args
        if len(top.box.lines) + len(bottom.box.lines) < MAX_ROWS:
            return Set(_fraction(top.box, bottom.box), rf"\frac{{{top.latex}}}{{{bottom.latex}}}", level)
    if node.written == "infix" and notation.layout == "power":
        x, n = side(0, ATOM), args[1]
        if _needs_brackets(node.args[0]):
            x = _bracketed(args[0])
        if len(x.box.lines) + len(n.box.lines) < MAX_ROWS:
            return Set(_raised(x.box, n.box), f"{{{x.latex}}}^{{{n.latex}}}", level)
        return Set(_row([x.box, Box(("^",)), side(1, 11).box]), f"{{{x.latex}}}^{{{n.latex}}}", level)
    if node.written == "infix":
        x, y = side(0, level + (level == 5)), side(1, level + 1)
        return Set(_row([x.box, Box((f" {text} ",)), y.box]), f"{x.latex} {tex} {y.latex}", level)
    if node.op == "index" and node.dims is not None and not args:
        return _called(Set(Box(("i",)), "i"), node.dims, None)
    if notation.layout == "root" and len(args) == 1:
        return Set(_root(args[0].box), rf"\sqrt{{{args[0].latex}}}")
    if notation.layout == "fences" and len(args) == 1:
        left, right = text.split()
        return Set(_fenced(args[0].box, left, right), tex.replace("{0}", args[0].latex))
    return _called(_function(node), node.dims, args)


def _placed(node: Apply, args: list[Set]) -> Set:
    """A value at places along dims: these in square brackets behind it."""
    x, dims = (_bracketed(args[0]) if node.args[0].parens else args[0]), node.dims or ()
    boxes, tex = [x.box, Box(("[",))], list[str]()
    for k, (d, e) in enumerate(zip(dims, args[1:], strict=False)):
        boxes += [Box((f"{', ' if k else ''}{d.name} = ",)), e.box]
        tex.append(rf"{_name(d.name).latex} \mapsto {e.latex}")
    fill = args[len(dims) + 1 :]
    boxes += [Box((" else ",)), fill[0].box] if fill else []
    text = ", ".join(tex) + (rf"\;\mathrm{{else}}\;{fill[0].latex}" if fill else "")
    return Set(_row([*boxes, Box(("]",))]), rf"{x.latex}\left[{text}\right]")


def _notation(op: str) -> Notation:
    return OPS[op].notation if op in OPS else Notation()


def _needs_brackets(base: Expr) -> bool:
    """Whether the base of a power would be read otherwise without brackets: `f(x)^2` is not `f` of `x^2`."""
    return isinstance(base, Apply) and base.written == "call" and (base.dims is not None or _notation(base.op).layout == "root")


def _name(name: str) -> Set:
    """A name as it stands: upright where it has several letters, so that `lr` is not l times r."""
    if name in _CONSTANTS and name in CONSTANTS:
        text, tex = _CONSTANTS[name]
        return Set(Box((text,)), tex)
    stem, prime = name.rstrip("'"), "'" * (len(name) - len(name.rstrip("'")))
    shown = stem if len(stem) == 1 and stem.isalpha() else rf"\mathrm{{{stem.replace('_', chr(92) + '_')}}}"
    return Set(Box((printed(name, ""),)), ("…" if name == "..." else shown) + prime)


def _number(text: str) -> str:
    if text[:2].lower() == "0x":
        return rf"\mathtt{{{text}}}"
    mantissa, _, exponent = text.lower().partition("e")
    return rf"{mantissa} \cdot 10^{{{exponent}}}" if exponent else text


def _function(node: Apply) -> Set:
    tex = _LARGE.get(node.op, "") if node.dims is not None else ""
    if not tex and not _notation(node.op).sign:
        tex = _notation(node.op).latex
    name = node.op.replace("_", r"\_")
    return Set(Box((node.op,)), tex or rf"\operatorname{{{name}}}")


def _called(head: Set, dims: Sequence[Name] | None, args: Sequence[Set] | None) -> Set:
    """A function's name with its dims below, and its arguments in brackets."""
    box, tex = head.box, head.latex
    if dims:
        below = ", ".join(d.name for d in dims)
        box = Box((box.lines[0] + " " * len(below), " " * box.width + below))
        tex += "_{" + ", ".join(r"\ldots" if d.name == "..." else _name(d.name).latex for d in dims) + "}"
    if args is None:
        return Set(box, tex)
    inside = Set(_row([p for k, a in enumerate(args) for p in ([Box((", ",))] if k else []) + [a.box]]), ", ".join(a.latex for a in args))
    shown = _bracketed(inside)
    return Set(_row([box, shown.box]), tex + shown.latex)


def _cases(rows: Sequence[tuple[Set, Set]], last: Set) -> Set:
    """A choice, one case a line: values with their conditions, and what is left."""
    cells = [(value.box, _row([Box(("if ",)), condition.box])) for value, condition in rows] + [(last.box, Box(("otherwise",)))]
    width = max(value.width for value, _ in cells) + 2
    lines: list[str] = []
    for value, when in cells:
        lines += _row([Box(tuple(x.ljust(width) for x in value.lines), value.base), when]).lines
    widest = max(map(len, lines))
    box = Box(tuple(x.ljust(widest) for x in lines), (len(lines) - 1) // 2)
    tex = [rf"{value.latex} & \text{{if }} {condition.latex}" for value, condition in rows] + [rf"{last.latex} & \text{{otherwise}}"]
    return Set(_fenced(box, "{", ""), r"\begin{cases} " + r" \\ ".join(tex) + r" \end{cases}", WHERE)


# --------------------------------------------------------------------------------------------- boxes


def _row(boxes: Sequence[Box]) -> Box:
    """Boxes beside one another, on one base line."""
    above = max((b.base for b in boxes), default=0)
    below = max((len(b.lines) - b.base for b in boxes), default=1)
    columns = []
    for b in boxes:
        blank = " " * b.width
        columns.append([blank] * (above - b.base) + list(b.lines) + [blank] * (below - len(b.lines) + b.base))
    return Box(tuple("".join(parts) for parts in zip(*columns, strict=True)) or ("",), above)


def _fraction(top: Box, bottom: Box) -> Box:
    width = max(top.width, bottom.width) + 2
    lines = (*(x.center(width) for x in top.lines), "─" * width, *(x.center(width) for x in bottom.lines))
    return Box(lines, len(top.lines))


def _raised(x: Box, n: Box) -> Box:
    lines = (*(" " * x.width + row for row in n.lines), *(row + " " * n.width for row in x.lines))
    return Box(lines, len(n.lines) + x.base)


def _root(x: Box) -> Box:
    if len(x.lines) == 1:
        return Box((" " + "─" * x.width, "√" + x.lines[0]), 1)
    rows = [("√" if k == len(x.lines) - 1 else " ") + "│" + row for k, row in enumerate(x.lines)]
    return Box(("  " + "─" * x.width, *rows), x.base + 1)


_PIECES = {"(": "⎛⎜⎝", ")": "⎞⎟⎠", "⌊": "⎢⎢⎣", "⌋": "⎥⎥⎦", "⌈": "⎡⎢⎢", "⌉": "⎤⎥⎥", "|": "│││", "{": "⎧⎨⎩", "": ("", "", "")}


def _fenced(x: Box, left: str, right: str) -> Box:
    """A box between fences as tall as it is."""
    n = len(x.lines)

    def fence(sign: str, k: int) -> str:
        if n == 1:
            return sign
        first, middle, last = _PIECES[sign]
        if sign == "{":
            return first if k == 0 else last if k == n - 1 else middle if k == x.base else "⎪"
        return first if k == 0 else last if k == n - 1 else middle

    pad = " " if left == "{" else ""
    return Box(tuple(fence(left, k) + pad + row + fence(right, k) for k, row in enumerate(x.lines)), x.base)


def _bracketed(x: Set) -> Set:
    return Set(_fenced(x.box, "(", ")"), rf"\left({x.latex}\right)")
