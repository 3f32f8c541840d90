"""The parser: words by one regular expression, then shifts and reductions by tables.

In: the tables that `kgen.grammar` makes of `grammar.lark`, and a text.  Out: what a builder's methods make of its rules.  Lark makes the
tables and is not needed to read them: importing it and preparing a grammar would take longer than all that a text needs here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

END = "$END"  # the terminal behind the last word


class Token(str):
    """A word of a text: its terminal's name, and where it stands."""

    __slots__ = ("type", "start_pos", "end_pos")
    type: str
    start_pos: int
    end_pos: int


def token(type: str, text: str, start: int) -> Token:
    made = Token(text)
    made.type, made.start_pos, made.end_pos = type, start, start + len(text)
    return made


class Unexpected(Exception):
    """A word that no rule has at its place; `accepts` are the terminals that could stand there."""

    def __init__(self, token: Token, accepts: set[str]) -> None:
        super().__init__(token, accepts)
        self.token, self.accepts = token, accepts


class BadCharacter(Exception):
    """No word begins at `at`."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class Parser:
    """What the tables of `kgen.grammar.tables` parse.  It keeps nothing of a text, so that any thread may use it."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self.pattern: re.Pattern[str] = re.compile(tables["pattern"])
        self.keywords: dict[str, dict[str, str]] = tables["keywords"]
        self.ignored = frozenset(tables["ignored"])
        self.rules: list[tuple[str, str, int, list | None]] = tables["rules"]
        self.states: list[dict[str, int]] = tables["states"]
        self.last: int = tables["last"]

    def words(self, text: str, ignored: list[Token]) -> Iterator[Token]:
        """The words of a text in order; those that the grammar ignores are put into `ignored`.  Raises `BadCharacter`."""
        at = 0
        while at < len(text):
            match = self.pattern.match(text, at)
            if match is None:
                raise BadCharacter(at)
            kind, word = str(match.lastgroup), match.group()
            made = token(self.keywords.get(kind, {}).get(word, kind), word, at)
            at = match.end()
            if kind in self.ignored:
                ignored.append(made)
            else:
                yield made

    def parse(self, words: Iterable[Token], build: Any) -> Any:
        """What `build` makes of the words: its method of a rule's name is given a list of what the rule's parts became, None for one that
        is left out.  Raises `Unexpected`."""
        states, values = [0], list[Any]()
        for word in chain(words, [token(END, "", 0)]):
            while True:
                action = self.states[states[-1]].get(word.type)
                if action is None:
                    raise Unexpected(word, self.accepts(states))
                if action >= 0:
                    states.append(action)
                    values.append(word)
                    break
                origin, name, size, parts = self.rules[-1 - action]
                children = values[len(values) - size :]
                del values[len(values) - size :], states[len(states) - size :]
                made = _arranged(children, parts) if parts is not None else children
                values.append(getattr(build, name)(made) if name else made[0] if parts is None else made)
                states.append(self.states[states[-1]][origin])
                if word.type == END and states[-1] == self.last:
                    return values[-1]
        raise AssertionError("the end is never shifted")

    def accepts(self, states: list[int]) -> set[str]:
        """The terminals that could be the next word, where the parser is in `states`."""
        return {t for t in self.states[states[-1]] if t.isupper() and self._fits(t, list(states))}

    def _fits(self, terminal: str, states: list[int]) -> bool:
        while (action := self.states[states[-1]].get(terminal)) is not None:
            if action >= 0:
                return True
            origin, _, size, _ = self.rules[-1 - action]
            del states[len(states) - size :]
            states.append(self.states[states[-1]][origin])
            if terminal == END and states[-1] == self.last:
                return True
        return False


def _arranged(children: list[Any], parts: list) -> list[Any]:
    """The children that a rule hands on: by number, None for one that is left out, and `[k]` for the parts of the repetition k."""
    made: list[Any] = []
    for part in parts:
        if isinstance(part, list):
            made += children[part[0]]
        else:
            made.append(None if part is None else children[part])
    return made
