"""The skeletons in `templates/`: as much of Jinja's language as they use, read without Jinja, whose import takes longer than all of them.

In: a template's name and the values that it speaks of.  Out: its text.  A template becomes one Python function: line statements (`%% for`),
`{{ }}`, `{% %}` and `{# #}` mean what they mean to Jinja with `trim_blocks`, `lstrip_blocks` and `StrictUndefined`; a test holds every
source to Jinja's own.  Statements are for (with `if` and `loop`), if, set, include, import and macro; filters are those of `FILTERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

_TAG = re.compile(r"(?m)^[ \t]*%%(?P<line>[^\n]*)|\{#.*?#\}|\{%-?(?P<tag>.*?)-?%\}|\{\{-?(?P<shown>.*?)-?\}\}", re.S)
_LINE_END = re.compile(r"\s*(\n|$)")
_WORD = re.compile(r"""\s*(?:(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?P<name>[A-Za-z_]\w*)|(?P<sign>[=!<>]=|\d+|.))""", re.S)
_CONSTANTS = {"true": "True", "false": "False", "none": "None", "True": "True", "False": "False", "None": "None"}
_COMPARED = ("==", "!=", "<", "<=", ">", ">=", "in")


class Loop(NamedTuple):
    """What a template may ask of the loop that it is in."""

    index0: int
    last: bool


def _each(values: Iterable[Any]) -> Iterator[tuple[Loop, Any]]:
    found = [*values]
    return ((Loop(k, k == len(found) - 1), value) for k, value in enumerate(found))


def _mapped(values: Iterable[Any], attribute: str | int) -> list[Any]:
    return [v[attribute] if isinstance(attribute, int) else getattr(v, attribute) for v in values]


def _indented(text: Any) -> str:
    first, *rest = str(text).splitlines() or [""]
    return "\n".join([first, *("    " + line if line else line for line in rest)])


FILTERS: dict[str, Callable[..., Any]] = {
    "length": len, "list": list, "sort": sorted, "unique": lambda values: [*dict.fromkeys(values)], "map": _mapped, "indent": _indented,
    "join": lambda values, by="": str(by).join(map(str, values)), "trim": lambda text: str(text).strip(),
    "selectattr": lambda values, name: [v for v in values if getattr(v, name)],
    "rejectattr": lambda values, name: [v for v in values if not getattr(v, name)],
}  # fmt: skip


def _attribute(value: Any, name: str) -> Any:
    """A value's attribute; of a dict also the item of that name."""
    try:
        return getattr(value, name)
    except AttributeError:
        if isinstance(value, dict):
            return value[name]
        raise


def _joined(*parts: Any) -> str:
    return "".join(map(str, parts))


class _Expression:
    """One expression of Jinja's as one of Python's: names that the template binds by what they are called in the function, others as
    what was given to it."""

    def __init__(self, text: str, bound: dict[str, str]) -> None:
        self.words = [(m.lastgroup, m.group(m.lastgroup or "")) for m in _WORD.finditer(text.strip())]
        self.bound, self.at = bound, 0

    @property
    def next(self) -> str:
        """The word at hand; none that is written so is a string."""
        kind, word = self.words[self.at] if self.at < len(self.words) else ("", "")
        return word if kind != "string" else ""

    def took(self, *words: str) -> str:
        """The word at hand if it is one of these, which is then behind; else ""."""
        found = self.next if self.next in words else ""
        self.at += bool(found)
        return found

    def whole(self) -> str:
        made = self.several()
        if self.at < len(self.words):
            raise self.wrong(self.words[self.at][1])
        return made

    def several(self, end: str = "") -> str:
        """Expressions with commas between them: a tuple, where there is any comma."""
        made = [self.chosen()]
        while self.took(","):
            if end and self.next == end:
                break
            made.append(self.chosen())
        return made[0] if len(made) == 1 else f"({', '.join(made)})"

    def chosen(self) -> str:
        made = self.either()
        if self.took("if"):
            condition = self.either()
            made = f"({made} if {condition} else {self.chosen() if self.took('else') else repr('')})"
        return made

    def either(self) -> str:
        made = self.both()
        while self.took("or"):
            made = f"({made} or {self.both()})"
        return made

    def both(self) -> str:
        made = self.negated()
        while self.took("and"):
            made = f"({made} and {self.negated()})"
        return made

    def negated(self) -> str:
        return f"(not {self.negated()})" if self.took("not") else self.compared()

    def compared(self) -> str:
        made = self.added()
        while sign := self.took(*_COMPARED, "not"):
            if sign == "not" and not self.took("in"):
                raise self.wrong("not")
            made = f"({made} {'not in' if sign == 'not' else sign} {self.added()})"
        return made

    def added(self) -> str:
        made = self.concatenated()
        while sign := self.took("+", "-"):
            made = f"({made} {sign} {self.concatenated()})"
        return made

    def concatenated(self) -> str:
        made = [self.multiplied()]
        while self.took("~"):
            made.append(self.multiplied())
        return made[0] if len(made) == 1 else f"_joined({', '.join(made)})"

    def multiplied(self) -> str:
        made = self.filtered()
        while sign := self.took("*", "%"):
            made = f"({made} {sign} {self.filtered()})"
        return made

    def filtered(self) -> str:
        """A name, a number, a string or what stands in brackets, with all that follows it closely: attributes, items, calls, filters."""
        made = self.atom()
        while sign := self.took(".", "[", "(", "|"):
            if sign == ".":
                made = f"_attribute({made}, {self.name()!r})"
            elif sign == "[":
                made = f"{made}[{self.several()}]"
                self.expect("]")
            elif sign == "(":
                made = f"{made}({self.arguments()})"
            else:
                name = self.name()
                if name not in FILTERS:
                    raise SyntaxError(f"templates have no filter {name!r}")
                given = self.arguments() if self.took("(") else ""
                made = f"FILTERS[{name!r}]({made}{', ' if given else ''}{given})"
        return made

    def arguments(self) -> str:
        """What stands between a call's brackets, the first of which is behind."""
        made = []
        while not self.took(")"):
            here, self.at = self.at, self.at + 1
            named = self.words[here][0] == "name" and self.took("=")
            self.at = self.at if named else here
            made.append((f"{self.words[here][1]}=" if named else "") + self.chosen())
            if self.next != ")":
                self.expect(",")
        return ", ".join(made)

    def atom(self) -> str:
        kind, word = self.words[self.at] if self.at < len(self.words) else ("", "")
        self.at += 1
        if kind == "string" or word.isdigit():
            return word.replace("\n", "\\n")  # Jinja's strings go on over line ends
        if kind == "name":
            return _CONSTANTS.get(word) or self.bound.get(word) or f"given[{word!r}]"
        if word == "(":
            made = self.several(")")
            self.expect(")")
            return made
        raise self.wrong(word)

    def name(self) -> str:
        kind, word = self.words[self.at]
        if kind != "name":
            raise self.wrong(word)
        self.at += 1
        return word

    def expect(self, sign: str) -> None:
        if not self.took(sign):
            raise self.wrong(self.next)

    def wrong(self, word: str) -> SyntaxError:
        return SyntaxError(f"templates have no {word!r} here: {' '.join(w for _, w in self.words)}")


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """A template's parts in order, as Jinja cuts them: ("text", it), ("show", an expression), ("do", a statement)."""
    at, before = 0, ""
    for m in _TAG.finditer(text):
        if m.start() < at:
            continue  # inside blank lines that a line statement took
        before = text[at : m.start()]
        kind = m.lastgroup
        if kind != "shown" and not text[text.rfind("\n", 0, m.start()) + 1 : m.start()].strip(" \t"):
            before = before.rstrip(" \t")  # a block's line begins with it
        if m.group().startswith(("{%-", "{{-")):
            before = before.rstrip()
        yield "text", before
        if kind == "line":
            end = _LINE_END.match(text, m.end())
            at = end.end() if end else m.end()
        elif m.group().endswith(("-%}", "-}}")):
            at = m.end() + len(text[m.end() :]) - len(text[m.end() :].lstrip())
        else:
            at = m.end() + (kind != "shown" and text.startswith("\n", m.end()))
        if kind is not None:
            yield ("show" if kind == "shown" else "do"), m.group(kind).strip()
    yield "text", text[at:]


class _Function:
    """Writes one template as a Python function `template(given, write, skeletons)`, which gives the macros it defines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.blocks: list[str] = []  # the statements that are open, outermost first
        self.bound: list[dict[str, str]] = [{}]  # what each of them that binds names calls them, outermost first
        self.macros: list[str] = []
        self.count = 0

    def written(self, text: str) -> str:
        self.put("def template(given, write, skeletons):")
        for kind, part in _parts(text):
            if kind == "text" and part:
                self.put(f"write({part!r})", 1)
            elif kind == "show":
                self.put(f"write(str({self.expression(part)}))", 1)
            elif kind == "do":
                word, _, rest = part.partition(" ")
                getattr(self, f"do_{word}", self.unknown)(rest.strip())
        if self.blocks:
            raise SyntaxError(f"a template's {self.blocks[-1]} has no end")
        self.put(f"return {{{', '.join(f'{m!r}: {m}' for m in self.macros)}}}", 1)
        return "\n".join(self.lines) + "\n"

    def put(self, line: str, more: int = 0) -> None:
        self.lines.append("    " * (len(self.blocks) + more) + line)

    def expression(self, text: str) -> str:
        return _Expression(text, {name: own for names in self.bound for name, own in names.items()}).whole()

    def bind(self, names: str) -> str:
        """Names bound from here to the end of the innermost statement that binds any: what they are called in the function."""

        def own(m: re.Match[str]) -> str:
            self.count += 1
            self.bound[-1][m.group()] = f"{m.group()}_{self.count}"
            return f"{m.group()}_{self.count}"

        return re.sub(r"[A-Za-z_]\w*", own, names)

    def begin(self, kind: str, line: str) -> None:
        self.put(line, 1)
        self.blocks.append(kind)
        self.put("pass", 1)

    def end(self, kind: str) -> None:
        if not self.blocks or self.blocks.pop() != kind:
            raise SyntaxError(f"a template's end{kind} ends nothing")

    def unknown(self, rest: str) -> None:
        raise SyntaxError(f"templates have no such statement: {rest}")

    def do_for(self, rest: str) -> None:
        targets, _, values = rest.partition(" in ")
        values, _, condition = values.partition(" if ")
        found = self.expression(values)
        self.bound.append({})
        own = self.bind(targets)
        if condition:
            found = f"[({own}) for {own} in {found} if {self.expression(condition)}]"
        self.begin("for", f"for {self.bind('loop')}, ({own}) in _each({found}):")

    def do_endfor(self, rest: str) -> None:
        self.end("for")
        self.bound.pop()

    def do_if(self, rest: str) -> None:
        self.begin("if", f"if {self.expression(rest)}:")

    def do_elif(self, rest: str) -> None:
        self.end("if")
        self.begin("if", f"elif {self.expression(rest)}:")

    def do_else(self, rest: str) -> None:
        self.end("if")
        self.begin("if", "else:")

    def do_endif(self, rest: str) -> None:
        self.end("if")

    def do_set(self, rest: str) -> None:
        targets, _, value = rest.partition("=")
        found = self.expression(value)
        self.put(f"{self.bind(targets)}= {found}", 1)

    def do_include(self, rest: str) -> None:
        self.put(f"skeletons.template({self.expression(rest)})({self.context()}, write, skeletons)", 1)

    def do_import(self, rest: str) -> None:
        name, own = rest.removesuffix(" with context").split(" as ")
        found = f"skeletons.template({self.expression(name)})({self.context()}, write, skeletons)"
        self.put(f"{self.bind(own)} = SimpleNamespace(**{found})", 1)

    def context(self) -> str:
        """What an included template is given: all that was given to this one, and the names bound here."""
        names = {name: own for names in self.bound for name, own in names.items()}
        return f"{{**given, {', '.join(f'{name!r}: {own}' for name, own in names.items())}}}" if names else "given"

    def do_macro(self, rest: str) -> None:
        name, _, parameters = rest.partition("(")
        self.macros.append(name)
        self.bound.append({})
        own = self.bind(parameters.rpartition(")")[0])
        self.begin("macro", f"def {name}({own}):")
        self.put("made, write = _page()", 1)

    def do_endmacro(self, rest: str) -> None:
        self.put("return ''.join(made)", 1)
        self.end("macro")
        self.bound.pop()


def _page() -> tuple[list[str], Callable[[str], None]]:
    made: list[str] = []
    return made, made.append


class Skeleton:
    """One template."""

    def __init__(self, skeletons: Skeletons, name: str) -> None:
        self.skeletons, self.name = skeletons, name

    def render(self, given: dict[str, Any] | None = None, **more: Any) -> str:
        """Its text.  Raises `KeyError` for a name that was not given."""
        made, write = _page()
        self.skeletons.template(self.name)({**(given or {}), **more}, write, self.skeletons)
        return "".join(made)


class Skeletons:
    """The templates of some folders, the first one that has a name; each is read once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)
        self.read: dict[str, Callable[..., dict[str, Any]]] = {}

    def get_template(self, name: str) -> Skeleton:
        """A template by its name."""
        return Skeleton(self, name)

    def template(self, name: str) -> Callable[..., dict[str, Any]]:
        """The function that a template became."""
        found = self.read.get(name)
        if found is None:
            path = next(folder / name for folder in self.folders if (folder / name).is_file())
            space: dict[str, Any] = {f.__name__: f for f in (_attribute, _each, _joined, _page, SimpleNamespace)} | {"FILTERS": FILTERS}
            exec(compile(_Function().written(path.read_text(encoding="utf-8")), str(path), "exec"), space)
            found = self.read[name] = space["template"]
        return found


__all__ = ["FILTERS", "Skeletons"]
