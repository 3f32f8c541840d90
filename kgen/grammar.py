"""The parser's tables, made of `grammar.lark` by Lark: `python -m kgen.grammar` writes them into `grammar.json`.

In: a grammar.  Out: tables for `kgen.lalr.Parser`.  Run it whenever the grammar changes; a test holds the file to the grammar.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GRAMMAR = Path(__file__).parent / "grammar.lark"
TABLES = Path(__file__).parent / "grammar.json"


def tables(grammar: str) -> dict[str, Any]:
    """What `kgen.lalr.Parser` reads: `pattern`, one group for each terminal; `keywords`, the words that are another terminal than the one
    that matches them; `ignored` terminals; `rules` as [what it makes, the builder's method or "", how many symbols it takes, which of
    them go on]; `states`, the first one first, as {terminal: the state to shift to, or -1 - the rule to reduce by; rule's name: the state
    to go to}; `last`, the state in which a text is complete.

    Lark's strict mode finds any conflict, and any two terminals that match the same text (given the package interegular).
    """
    import lark

    made = lark.Lark(grammar, parser="lalr", lexer="basic", maybe_placeholders=True, strict=True)
    lexer: Any = made.parser.lexer
    scanner = lexer.scanner
    keywords = {name: {t.pattern.value: t.name for t in unless.scanner.terminals} for name, unless in sorted(lexer.callback.items())}
    rules = sorted(made.rules, key=lambda r: (r.origin.name, r.order))
    states, last = _states(made.parser.parser._parse_table, {rule: k for k, rule in enumerate(rules)})
    return {
        "pattern": "|".join(f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in scanner.terminals),
        "keywords": keywords,
        "ignored": sorted(lexer.ignore_types),
        "rules": [[rule.origin.name, *_made(rule)] for rule in rules],
        "last": last,
        "states": states,
    }


def _made(rule: Any) -> tuple[str, int, list | None]:
    """A rule's method ("" for a repetition, and for what only passes its one part on), its number of symbols, and its parts: see
    `kgen.lalr`; None for all of them."""
    blanks = [len(ones) for ones in "".join(str(int(b)) for b in rule.options.empty_indices).split("0")] or [0]
    blanks += [0] * (len(rule.expansion) + 1 - len(blanks))
    parts: list[Any] = []
    for k, symbol in enumerate(rule.expansion):
        parts += [None] * blanks[k]
        if rule.options.keep_all_tokens or not (symbol.is_term and symbol.filter_out):
            parts.append([k] if not symbol.is_term and symbol.name.startswith("_") else k)
    parts += [None] * blanks[-1]
    size = len(rule.expansion)
    if rule.options.expand1 and not rule.alias:
        assert size == len(parts) == 1, f"{rule}: give it a name"
        return "", size, None
    name = "" if rule.origin.name.startswith("_") else rule.alias or rule.origin.name
    return name, size, None if name and parts == [*range(size)] else parts


def _states(table: Any, numbers: dict[Any, int]) -> tuple[list[dict[str, int]], int]:
    """Lark's states, numbered as they are reached from the first, by their symbols in order; and the number of the last."""
    from lark.parsers.lalr_analysis import Shift

    (first,), (last,) = table.start_states.values(), table.end_states.values()
    order = [first]
    for state in order:  # grows as it is gone through
        for _, (action, to) in sorted(table.states[state].items()):
            if action is Shift and to not in order:
                order.append(to)
    at = {state: k for k, state in enumerate(order)}
    rows = []
    for state in order:
        row = sorted(table.states[state].items())
        rows.append({symbol: at[to] if action is Shift else -1 - numbers[to] for symbol, (action, to) in row})
    return rows, at[last]


def text(made: dict[str, Any]) -> str:
    """Tables as `grammar.json` has them: JSON, a rule and a state to a line."""
    lines = []
    for name, value in made.items():
        if isinstance(value, list) and name != "ignored":
            rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
            lines.append(f'"{name}": [\n{rows}\n]')
        else:
            lines.append(f'"{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    """Write the tables."""
    TABLES.write_text(text(tables(GRAMMAR.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
