"""CUDA C++: what a reading that reduces accumulates, as a struct of its partial result.

Each kind of accumulator is a monoid, a row of `MONOIDS`: the fields of its partial, their identity, and how another's are joined to them;
of a sum about a peak (the maximum of exp(x - max x)) also how it is rescaled when the peak rises.
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.backends.base import Backend
from kgen.backends.units import Accumulator, Code

#: The names of the structs, by reading.
READINGS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")


@dataclass(frozen=True)
class Monoid:
    """An accumulator that is one value: joined as the table of operators spells it."""

    backend: Backend
    a: Accumulator

    def fields(self) -> list[str]:
        """The declarations of a partial's fields, each with its identity."""
        return [f"{self.a.type} {self.a.name} = {self.backend.identity(self.a)};"]

    def names(self) -> list[str]:
        return [self.a.name]

    def given(self) -> list[str]:
        """What one element gives for the fields."""
        return [self.a.value]

    def joins(self) -> list[str]:
        """The lines that join another partial, `more`, to this one."""
        return [f"{self.a.name} = {self.backend.combined(self.a, self.a.name, f'more.{self.a.name}')};"]

    def follows(self) -> list[str]:
        """The same, where all of its elements come later."""
        return self.joins()


class Placed(Monoid):
    """argmax and argmin: a value that competes, and its place; the first of equals wins, NaN before all."""

    def fields(self) -> list[str]:
        part = f"{self.a.value_type} {self.a.name}_part = {self.backend.identity(self.a)};"
        return [part, f"typename Walk::Place {self.a.name} = Walk::LAST;"]

    def names(self) -> list[str]:
        return [f"{self.a.name}_part", self.a.name]

    def given(self) -> list[str]:
        return [self.a.value, f"typename Walk::Place({self.a.place})"]

    def taking(self, condition: str) -> list[str]:
        name = self.a.name
        return [f"if ({condition}) {{", f"    {name}_part = more.{name}_part;", f"    {name} = more.{name};", "}"]

    def joins(self) -> list[str]:
        name, least = self.a.name, str(self.a.kind == "argmin").lower()
        return self.taking(f"goes_before<{least}>(more.{name}_part, more.{name}, {name}_part, {name})")

    def follows(self) -> list[str]:
        name = self.a.name
        holds = f"{name}_part {'<=' if self.a.kind == 'argmin' else '>='} more.{name}_part"
        nan = f" || {name}_part != {name}_part" if self.a.value_dtype and self.a.value_dtype.is_float else ""
        return self.taking(f"!({holds}{nan})")


class Peaked(Monoid):
    """The sum of exponentials of x below a peak: what is joined has the same peak, to which both are rescaled."""

    def joins(self) -> list[str]:
        return [f"{n} += more.{n};" for n in self.names()]

    def rescale(self) -> str:
        """The line that brings it to the peak of `top`."""
        return f"{self.a.name} *= fall({self.a.peak}, top.{self.a.peak});"

    def apart(self) -> str:
        """How far an element lies below the peak of `top`."""
        value = self.a.value
        plain = len(value.tokens) == 1 and not value.startswith("-")
        return f"{value if plain else f'({value})'} - finite_or_zero(top.{self.a.peak})"

    def shares(self) -> list[str]:
        """The lines that set an element's share, `part`."""
        return [f"part.{self.a.name} = exp_below({self.apart()});"]


class Offset(Peaked):
    """The sum of x less a peak, with the count of its elements, by which it moves as the peak does."""

    def fields(self) -> list[str]:
        return [*super().fields(), f"{self.a.type} {self.a.name}_count = 0;"]

    def names(self) -> list[str]:
        return [self.a.name, f"{self.a.name}_count"]

    def rescale(self) -> str:
        name, peak = self.a.name, self.a.peak
        return f"{name} += {name}_count * (finite_or_zero({peak}) - finite_or_zero(top.{peak}));"

    def shares(self) -> list[str]:
        return [f"part.{self.a.name} = {self.apart()};", f"part.{self.a.name}_count = 1;"]


MONOIDS: dict[str, type[Monoid]] = {
    "sum": Monoid, "prod": Monoid, "max": Monoid, "min": Monoid, "argmax": Placed, "argmin": Placed, "expsum": Peaked, "offsum": Offset,
}  # fmt: skip


def words(code: Code) -> int:
    """The most that a reading's partial takes, in 32-bit words."""
    return sum(4 if MONOIDS[a.kind] in (Placed, Offset) else 2 for a in code.accumulators)


def taken(c: Code) -> tuple[list[str], list[str]]:
    """What an element phase's code takes of the operands: its parameters, and the operands."""
    params = [*(f"{t.compute} {t.name}" for t in c.inputs), *(f"i64 {t.name}" for t in c.indices)]
    return params, [f"{t.name}_row" for t in (*c.inputs, *c.indices)]


def reading(backend: Backend, c: Code, r: int, later: frozenset[str]) -> list[str]:
    """Reading number `r`: the struct of its partial, the call that walks the row, and those of the row's values that are read `later`."""
    kind = READINGS[r] if r < len(READINGS) else f"Reading{r + 1}"
    value = kind.lower()
    every = [MONOIDS[a.kind](backend, a) for a in c.accumulators]
    plain, peaked = [m for m in every if not isinstance(m, Peaked)], [m for m in every if isinstance(m, Peaked)]
    params, operands = taken(c)
    counts = [f for m in peaked for f in m.fields()[1:]]  # peaked fields stand last, and are left out of what an element gives
    fields = [f for m in plain for f in m.fields()] + [m.fields()[0] for m in peaked] + counts
    methods = rescaling(kind, plain, peaked) if peaked else adding(kind, plain)
    made = [f"struct {kind} {{", *(f"    {f}" for f in fields), "", *(f"    {line}" for line in methods), "};"]
    call = "online" if peaked else "reduce"
    made.append(f"const {kind} {value} = walk.template {call}<{r}, {kind}>([&]({', '.join(params)}) {{")
    made += [f"    {line}" for line in backend.printed(c.lines)]
    made.append(f"    return {kind}{{{', '.join(x for m in plain for x in m.given())}}};")
    if peaked:
        made.append(f"}}, [&](const {kind}& top, {', '.join(params)}) {{")
        made += [f"    {line}" for line in backend.printed(c.lines) if not line.startswith(backend.comment)]
        made += [f"    {kind} part;", *(f"    {line}" for m in peaked for line in m.shares()), "    return part;"]
    made.append(f"}}{''.join(f', {o}' for o in operands)});")
    made.append(f"if (walk.stops({2 * r})) return;")
    for a in c.accumulators:
        if a.name in later:
            made.append(f"const {a.type} {a.name} = {f'{a.type}({value}.{a.name})' if a.place else f'{value}.{a.name}'};")
    return made


def method(head: str, lines: list[str], note: str = "") -> list[str]:
    return [f"__device__ void {head} {{{note}", *(f"    {line}" for line in lines), "}"]


def adding(kind: str, every: list[Monoid]) -> list[str]:
    """The methods of a partial: another one added, also one whose elements come later."""
    adds, follows = [x for m in every for x in m.joins()], [x for m in every for x in m.follows()]
    made = [f"__device__ void add(const {kind}& more) {{ {adds[0]} }}"] if len(adds) == 1 else method(f"add(const {kind}& more)", adds)
    return made + (method(f"follow(const {kind}& more)", follows, "  // whose places are greater") if follows != adds else [])


def rescaling(kind: str, plain: list[Monoid], peaked: list[Peaked]) -> list[str]:
    """The methods of a partial with sums about a peak."""
    taken_over = [f"{n} = top.{n};" for m in plain for n in m.names()]
    return [
        *method(f"merge_peaks(const {kind}& more)", [x for m in plain for x in m.joins()], "  // all but the sums about a maximum"),
        *method(
            f"rescale(const {kind}& top)", [*(m.rescale() for m in peaked), *taken_over],
            "  // those sums about another's maximum, and all else from there",
        ),
        *method(
            f"merge_sums(const {kind}& more)", [x for m in peaked for x in m.joins()], "  // the sums of a part with the same maximum"
        ),
        *method(
            f"add(const {kind}& more)",
            [
                f"{kind} top = *this, other = more;", "top.merge_peaks(more);", "rescale(top);", "other.rescale(top);",
                "merge_sums(other);",
            ],
        ),
    ]  # fmt: skip


__all__ = ["MONOIDS", "Monoid", "reading", "taken", "words"]
