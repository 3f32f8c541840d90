"""Names: the writer's own and the generator's cannot be taken for one another, whatever they are.

While a source is put together every name of the writer's, and every one made from it, bears marks that no identifier has; what the
generator writes itself bears none.  At the end `settled` takes the marks off: a marked name is kept where nothing that the generator
says in the same functions is called so, and gets a `_` where something is.  So no list of reserved words need say what templates and
printers use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgen.types import ELLIPSIS, is_literal, literal_size
from kgen.write import unused

if TYPE_CHECKING:
    from kgen.backends.text import Text

#: Letters, so that a marked name is one word; specs are ASCII outside of comments.
OPEN, CLOSE = "\u01c0", "\u01c1"
#: How many letters a name counts as where a line is broken.
NAME = 5
_MARKS = str.maketrans("", "", OPEN + CLOSE)
_MARKED = re.compile(rf"\w*{OPEN}\w*")
#: A word, but for comments and strings, in which names are text, and members, which are found in what they belong to.
_WORD = {
    "//": re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|(?:\.|->|::)\s*(?:template\s+)?\w+|(?<![\w.])([^\W\d]\w*)'),
    "#": re.compile(r'"""[\s\S]*?"""|"(?:\\.|[^"\\\n])*"|#[^\n]*|\.\s*[^\W\d]\w*|(?<![\w.])([^\W\d]\w*)'),
}


def bare(text: str) -> str:
    """A text without marks, as long as it will be."""
    return text.translate(_MARKS)


def width(text: Text) -> int:
    """How long a piece of source is taken to be where it is asked whether it gets a line of its own: a marked name counts as NAME letters,
    whatever it is, so that names decide nothing."""
    return sum(NAME if OPEN in token else len(token) for token in text.tokens)


@dataclass
class Names:
    """Names of a source, marked until `settled`; those of entries, which the runtime asks for, are made `plain` at once."""

    taken: set[str]
    given: dict[str, str] = field(default_factory=dict)
    macros: re.Pattern[str] | None = None  # names of these forms are not free either
    counts: dict[str, int] = field(default_factory=dict)

    def user(self, name: str) -> str:
        """The name for one of the writer's (for the size of `...`, "leading"; of a next state `x'`, "x_next"; of a literal dim, its
        number)."""
        if is_literal(name):
            return str(literal_size(name))
        if name not in self.given:
            own = f"{OPEN}{name.rstrip(chr(39))}{CLOSE}"
            self.given[name] = f"{OPEN}leading" if name == ELLIPSIS else f"{own}_next" if name.endswith("'") else own
        return self.given[name]

    def fresh(self, wanted: str) -> str:
        """A name of the generator's, made of the writer's or counted; the dims `...` are "all" in it."""
        wanted = wanted.replace(ELLIPSIS, "all")
        made = unused(wanted if wanted.startswith(OPEN * 2) else OPEN + wanted, self.taken, self.counts)
        while bare(made) in self.taken:
            made = unused(f"{made}_", self.taken, self.counts)
        self.taken.add(made)
        return made

    def plain(self, wanted: str) -> str:
        """A name at global scope, without marks."""
        wanted = bare(wanted)
        if self.macros is not None and self.macros.fullmatch(wanted):
            wanted += "_"
        made = unused(wanted, self.taken, self.counts)
        self.taken.add(made)
        return made


def settled(source: str, comment: str, reserved: Iterable[str], macros: re.Pattern[str] | None, tensors: Iterable[str]) -> str:
    """A source with its marked names as they will stand: the writer's own first, each other than the rest and than what the generator
    says itself in functions that have marked names.  `reserved` are the language's words, `tensors` names that strings know."""
    taken = set(reserved)
    # a part is a function or struct: one ends at empty lines in Python, at a brace that begins a line in C++
    for part in source.split("\n\n\n") if comment == "#" else source.split("\n}"):
        if OPEN in part:
            taken.update(_WORD[comment].findall(part))
    chosen: dict[str, str] = {}
    counts: dict[str, int] = {}
    lines = source.split("\n")  # most of them are the library's, without a mark
    marked = dict.fromkeys(name for line in lines if OPEN in line for name in _MARKED.findall(line))
    own = [name for name in marked if name.startswith(OPEN) and name.endswith(CLOSE) and name.count(OPEN) == name.count(CLOSE) == 1]
    for name in dict.fromkeys([*own, None, *marked]):
        if name is None:  # the writer's own names are all there
            taken.update(tensors)
            continue
        wanted = bare(name)
        if macros is not None and macros.fullmatch(wanted) and (name in own or "__" not in wanted):
            wanted += "_"
        chosen[name] = unused(wanted, taken, counts)
        taken.add(chosen[name])
    return "\n".join(_MARKED.sub(lambda m: chosen[m[0]], line) if OPEN in line else line for line in lines)
