"""CUDA C++: what a reading that reduces accumulates, as a struct of its partial result.

What the struct has follows from the rows of `kgen/monoids.py`: fields and their identities, how another partial is joined, and of a sum
about a peak how it is rescaled when that moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kgen.backends.base import Backend
from kgen.backends.text import Text, named, put
from kgen.backends.units import NOTHING, Accumulator, Code, Given, Statement
from kgen.monoids import MONOIDS, Field
from kgen.ops import UNARY

#: The names of the structs, by reading.
READINGS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")


class Partial:
    """An accumulator's fields in CUDA's spelling; `top` is the name of the peak that it is brought to ("": that of the partial `top`)."""

    def __init__(self, backend: Backend, a: Accumulator, top: str = "", apart: bool = False):
        """`apart`: what elements add to it comes from elsewhere (`picking`)."""
        self.backend, self.a, self.row, self.top, self.apart = backend, a, MONOIDS[a.kind], top, apart

    def named(self, f: Field) -> str:
        return f"{self.a.name}_{f.name}" if f.name else self.a.name

    def names(self, early: bool) -> list[str]:
        """The fields that belong to a reading's peaks (`early`: all of what is no sum about one), or to the sums about them."""
        return [self.named(f) for f in self.fields(early)]

    def fields(self, early: bool) -> list[Field]:
        return [f for f in self.row.fields if (f.early or not self.row.about) == early]

    def declared(self, f: Field) -> str:
        """The declaration of a field, with its identity."""
        if f.identity == "last":
            return f"typename Walk::Place {self.named(f)} = Walk::LAST;"
        if f.name and self.row.about:
            return f"{self.a.type} {self.named(f)} = {f.identity};"
        return f"{self.a.value_type if self.row.placed else self.a.type} {self.named(f)} = {self.backend.identity(self.a)};"

    def given(self) -> list[str]:
        """What one element gives for the early fields."""
        if self.apart:
            return [f"{self.a.type}({'-0.0' if self.a.dtype.is_float else '0'})"]  # what changes no sum
        made = [(f, self.filled(f.share)) for f in self.fields(True)]
        return [f"typename Walk::Place({x})" if f.identity == "last" else x for f, x in made]

    def filled(self, pattern: str, whole: bool = False) -> Text:
        """A share or a move of the row, with the names that it has here; `whole` where other shares have no names."""
        a = self.a
        names = {"x": a.value, "place": a.place, "peak": named(a.peak), "top": named(self.top or f"top.{a.peak}"), "own": named(a.name)}
        names |= {f"v{k}": w for k, w in enumerate(a.weights)}
        for f in self.row.fields:
            names |= {f.name: named(self.named(f)), f"top.{f.name}": named(f"top.{self.named(f)}")}
            names[f"part.{f.name}"] = self.filled(f.share) if whole and "{part." not in f.share else named(f"part.{self.named(f)}")
        return put(pattern.replace("{v}", " * ".join(f"{{v{k}}}" for k in range(len(a.weights)))), names)

    def joins(self, early: bool) -> list[str]:
        """The lines that join the fields of another partial, `more`, to this one's."""
        if self.row.placed:
            part, place = self.names(True)
            return self.taking(f"goes_before<{self.least}>(more.{part}, more.{place}, {part}, {place})")
        if self.row.about:
            return [f"{n} += more.{n};" for n in self.names(early)]
        return [f"{n} = {self.backend.combined(self.a, n, f'more.{n}')};" for n in self.names(early)]

    def follows(self) -> list[str]:
        """The same, where all of its elements come later."""
        if not self.row.placed:
            return self.joins(True)
        part = self.names(True)[0]
        holds = f"{part} {'<=' if self.least == 'true' else '>='} more.{part}"
        nan = f" || {part} != {part}" if self.a.value_dtype and self.a.value_dtype.is_float else ""
        return self.taking(f"!({holds}{nan})")

    @property
    def least(self) -> str:
        return str(self.row.fields[0].identity == "greatest").lower()

    def taking(self, condition: str) -> list[str]:
        return [f"if ({condition}) {{", *(f"    {n} = more.{n};" for n in self.names(True)), "}"]

    def rescale(self) -> list[str]:
        """The lines that bring it to the peak of `top`."""
        named_by = {f.name: self.named(f) for f in self.row.fields}
        return [f"{named_by[m.field]} {m.sign} {self.filled(m.by)};" for m in self.row.moves]

    def shares(self) -> list[str]:
        """The lines that set an element's share, `part`."""
        return [f"part.{self.named(f)} = {self.filled(f.share)};" for f in self.fields(False)]

    @property
    def squares(self) -> bool:
        """Whether all that an element gives are squares."""
        return all(f.root for f in self.fields(False))

    def squared(self) -> list[str]:
        """The lines that add an element's squares to `part`, rounded with it."""
        own = [(f"part.{self.named(f)}", self.filled(f.root)) for f in self.fields(False)]
        return [f"{name} = squared_onto({name}, {root});" for name, root in own]

    def added(self) -> list[str]:
        """The lines that add an element's share: what a share is a multiple of stands there itself."""
        return [f"{self.named(f)} += {self.filled(f.share, whole=True)};" for f in self.fields(False)]


def words(code: Code) -> int:
    """The most that a reading's partial takes, in 32-bit words."""
    return sum(2 * len(MONOIDS[a.kind].fields) for a in code.accumulators)


def column_words(sums: Sequence[Accumulator]) -> int:
    """The most that the columns' partial of an element takes, in 32-bit words."""
    return 2 * len(sums)


def position(c: Code, name: str) -> str:
    """The type of a position along a row: where it is compared alone, and that comes first, it stays apart from where its vector begins."""
    texts = [*(s.value for s in c.lines), *(x for a in (*c.accumulators, *c.columns) for x in (a.value, a.place, *a.weights))]
    texts += [o.value for o in c.outputs]
    behind = [t.tokens[k + 1 : k + 2] for t in texts for k, token in enumerate(t.tokens) if token == name]
    return "typename Walk::Spot" if all(t in ((" == ",), (" != ",)) for t in behind) else "i64"


def given(kind: str) -> str:
    """As what the library gives a value of an operand: those of 16 bits, which a pass before this one rounded by name, as floats."""
    return "float" if kind in ("bf16", "f16") else kind


def taken(c: Code) -> tuple[list[str], list[str]]:
    """What an element phase's code takes of the operands: its parameters, and the operands."""
    inputs, indices = ([t for t in tensors if t.name not in c.within] for tensors in (c.inputs, c.indices))
    params = [*(f"{given(t.compute)} {t.name}" for t in inputs), *(f"{position(c, t.name)} {t.name}" for t in indices)]
    params += [f"{'bool' if b.asks else given(b.tensor.compute)} {b.name}" for b in c.near]
    params += [*(f"u32 {w.name}" for w in c.words), *(f"{m.type} {m.name}" for m in c.drawn)]
    names = [*(t.name for t in (*inputs, *indices)), *(b.name for b in c.near), *(w.name for w in c.words), *(m.name for m in c.drawn)]
    return params, [f"{name}_row" for name in names]


def struct(r: int) -> str:
    """The name of the struct of reading number `r`."""
    return READINGS[r] if r < len(READINGS) else f"Reading{r + 1}"


def picked(c: Code) -> tuple[Accumulator, ...]:
    """The sums of a reading of which the element at one position is the only term, which is read apart: where others need all elements, and
    a reading reads nothing but operands and positions."""
    at = next((a.at for a in c.accumulators if a.at), None)
    found = tuple(a for a in c.accumulators if a.at and a.at == at)
    others = c.search or c.makes or c.near or c.words or c.drawn or c.outputs
    return () if others or len(found) == len(c.accumulators) else found


def reading(backend: Backend, c: Code, r: int, later: frozenset[str], rounds: bool = False, piece: bool = False,
            stores: Sequence[tuple[str, str, str]] = (), by: Sequence[str] = (), picks: bool = False) -> list[str]:  # fmt: skip
    """Reading number `r`: the struct of its partial, the call that walks the row, and those of the row's values that are read `later`;
    `rounds` where rows follow one another, `piece` where it is one of a piece of the row.  `stores` is what it stores on the way: each
    result's parameter, its operand, and the line that sets it; `by` are the divisors that it may have plain ones for; `picks`: whether one
    element of a row may be read apart (`picked`)."""
    kind = struct(r)
    value = kind.lower()
    apart = picked(c) if picks else ()
    every = [Partial(backend, a, apart=a in apart) for a in c.accumulators]
    every.sort(key=lambda m: bool(m.row.about))  # those about a peak stand last, and are left out of what an element gives
    peaked = [m for m in every if m.row.about]
    params, operands = taken(c)
    params, operands = [*(p for p, _, _ in stores), *params], [*(o for _, o, _ in stores), *operands]
    late = sorted(((m, f) for m in peaked for f in m.fields(False)), key=lambda of: bool(of[1].name))
    fields = [m.declared(f) for m in every for f in m.fields(True)] + [m.declared(f) for m, f in late]
    methods = rescaling(kind, every) if peaked else adding(kind, every)
    raw = None if not peaked or rounds else raw_peak(c, every)
    if raw is not None:
        fields.insert(0, f"enum {{ PEAK = {raw} }};  // the operand whose greatest element the maximum is")
    made = [f"struct {kind} {{", *(f"    {f}" for f in fields), "", *(f"    {line}" for line in methods), "};"]
    sums = all(a.kind == "sum" and a.dtype.is_float for a in c.accumulators)
    products = not piece and not peaked and sums and any(a.factors for a in c.accumulators)
    adds = rounds and all(map(is_plain, c.accumulators)) or products
    call = "online" if peaked else "accumulate" if rounds and adds else "products" if products else "reduce"
    params = [f"{kind}& part", *params] if adds else params
    whole = not rounds and len(every) == 1 and c.accumulators[0].magnitude and len(operands) == 1
    walk, number = ("piece", "") if piece else ("walk", f"{r}, ")
    if whole:
        made.append(f"const {kind} {value} = {walk}.template magnitude<{number}{kind}>({operands[0]});")
        return [*made, *ending(c, r, value, later, piece)]
    walks = [f"{walk}.template {call}<{number}{kind}>([&]({', '.join(params)}) {{"]
    walks += [f"    {line}" for line in (*backend.printed(c.lines), *(line for _, _, line in stores))]
    if adds:
        walks += [f"    {line}" for line in contributed(backend, "part", [a for a in c.accumulators if a not in apart])]
    else:
        walks.append(f"    return {kind}{{{', '.join(x for m in every for x in m.given())}}};")
    first, *tail = about(backend, c, kind, params, peaked) if peaked else ["}"]
    if apart:
        walks, first = picking(backend, c, walks, [f"{kind}& part", *taken(c)[0]], apart), f"}}){first[1:]}"
    walks += [first, *tail]
    walks[-1] += f"{''.join(f', {o}' for o in operands)});"
    head, *rest = plainly(by, walks)
    return [*made, f"const {kind} {value} = {head}", *rest, *ending(c, r, value, later, piece)]


def picking(backend: Backend, c: Code, call: list[str], params: list[str], apart: Sequence[Accumulator]) -> list[str]:
    """The lines of a reading's call up to its first function, and of what the element adds that some sums take alone, behind it."""
    begin, function = call[0].split("[&]", 1)
    lines = backend.printed(replace(s, note="") for s in c.lines)
    lines += contributed(backend, "part", [replace(a, only=NOTHING, value=a.share) for a in apart])
    second = f"}}, [&]({', '.join(params)}) {{"
    return [f"{begin}picking({apart[0].at}, [&]{function}", *call[1:], second, *(f"    {line}" for line in lines)]


def plainly(divisors: Sequence[str], call: list[str]) -> list[str]:
    """The lines of a call as a statement, or behind what takes its result: once with what stands for `divisors` that are plain, and once
    for others (split_divisor.cu)."""
    for by in reversed(divisors):
        call = [f"plainly({by}, [&](const decltype({by})& {by}) {{", f"    return {call[0]}", *(f"    {line}" for line in call[1:]), "});"]
    return call


def divisor(g: Given) -> str:
    """The line of what elements are divided by."""
    made = f"split_divisor<{g.type}, {g.split}>" if g.split else f"divisor<{g.type}>"
    return f"const auto {g.name} = {made}({g.text});"


def dividing(divisors: tuple[Given, ...], lines: list[str], last: bool) -> list[str]:
    """The lines of a reading within those that make its divisors; of one that is the `last`, and has one divisor of numbers of few digits,
    once more for the few rows whose divisors are very large or small."""
    if not last or len(divisors) != 1 or divisors[0].type in ("float", "double") or divisors[0].split:
        return [*map(divisor, divisors), *lines]
    own = divisors[0]
    head = f"dividing<{own.type}>({own.text}, [&](const decltype(divisor<{own.type}>({own.text}))& {own.name}) {{"
    return [head, *(f"    {line}" for line in lines), "});"]


def split(c: Code, reading: Code | None) -> tuple[list[Statement], list[Statement]]:
    """What a row phase computes, in two: what the reading behind it needs (None: all), and the rest, which can wait."""
    gives = [Statement((g.name,), g.type, g.text) for g in c.gives if g.text != g.name]
    every = [*c.lines, *gives]
    if reading is None or reading.search or c.outputs:
        return every, []
    needed = set(reading.uses)
    first: list[Statement] = []
    for s in reversed(every):
        if needed.intersection(s.names) or not s.names:
            needed |= s.value.uses
            first.insert(0, s)
    return first, [s for s in every if s not in first]


def ending(c: Code, r: int, value: str, later: frozenset[str], piece: bool = False) -> list[str]:
    """The lines behind reading number `r`, whose partial has the name `value`: the row's values that are read `later`."""
    made = [f"if (walk.stops({2 * r})) return;"] if not piece else []
    for a in c.accumulators:
        if a.name in later:
            made.append(f"const {a.type} {a.name} = {f'{a.type}({value}.{a.name})' if a.place else f'{value}.{a.name}'};")
    return made


def raw_peak(c: Code, every: list[Partial]) -> int | None:
    """Which operand of a reading its one peak is the greatest element of, as it lies in memory; None where the peak is of what is computed
    from elements."""
    early = [m for m in every if not m.row.about and not m.apart]
    asked = frozenset[str]().union(*(s.uses for s in c.lines), *(x.uses for m in every if not m.apart for x in (m.a.value, *m.a.weights)))
    if len(early) != 1 or early[0].a.kind != "max" or any(t.name in asked for t in c.indices):
        return None
    a = early[0].a
    inputs = [t for t in c.inputs if t.name not in c.within]
    return next((k for k, t in enumerate(inputs) if a.value == t.name and t.compute == a.type), None)


def about(backend: Backend, c: Code, kind: str, params: list[str], peaked: list[Partial]) -> list[str]:
    """The lines between a reading's first function and its operands: what an element adds to the sums about a peak.  Where a number of the
    call says that some of these are not read, they are left out by a second function."""
    lines = [f"    {line}" for line in backend.printed(replace(s, note="") for s in c.lines)]
    when = next((m.a.when for m in peaked if m.a.when), None)

    def function(sums: list[Partial]) -> list[str]:
        shares = [f"    {line}" for m in sums for line in m.shares()]
        return [f"[&](const {kind}& top, {', '.join(params)}) {{", *lines, f"    {kind} part;", *shares, "    return part;"]

    if all(m.squares for m in peaked):
        shares = [f"    {line}" for m in peaked for line in m.squared()]
        return [f"}}, adding([&]({kind}& part, const {kind}& top, {', '.join(params)}) {{", *lines, *shares, "})"]
    first, *rest = function(peaked)
    if when is None:
        return [f"}}, {first}", *rest, "}"]
    second, *others = function([m for m in peaked if m.a.when != when])
    return [f"}}, either({when}, {first}", *rest, f"}}, {second}", *others, "})"]


def columns(backend: Backend, sums: Sequence[Accumulator]) -> list[str]:
    """The struct of what is added up over all rows for an element of a row."""
    every = [Partial(backend, a) for a in sums]
    fields = [m.declared(f) for m in every for f in m.fields(True)]
    return ["struct Columns {", *(f"    {f}" for f in fields), "", *(f"    {line}" for line in adding("Columns", every)), "};"]


def contributed(backend: Backend, partial: str, sums: Sequence[Accumulator]) -> list[str]:
    """The lines that add an element's share to a partial; a product is rounded with the sum, and a 0 that is selected is not added."""
    made = []
    for a in sums:
        own, share = f"{partial}.{a.name}", a.share if a.only else a.value
        sum_of = f"multiply_add({', '.join(a.factors)}, {own})" if a.factors else backend.combined(a, own, share.fit(UNARY))
        made.append(f"{f'if ({a.only}) ' if a.only else ''}{own} = {sum_of};")
    return made


def is_plain(a: Accumulator) -> bool:
    """Whether a partial is one value, joined by an operator."""
    return not MONOIDS[a.kind].about and not MONOIDS[a.kind].placed


def method(head: str, lines: list[str], note: str = "") -> list[str]:
    return [f"__device__ void {head} {{{note}", *(f"    {line}" for line in lines), "}"]


def adding(kind: str, every: list[Partial]) -> list[str]:
    """The methods of a partial: another one added, also one whose elements come later."""
    adds, follows = [x for m in every for x in m.joins(True)], [x for m in every for x in m.follows()]
    made = [f"__device__ void add(const {kind}& more) {{ {adds[0]} }}"] if len(adds) == 1 else method(f"add(const {kind}& more)", adds)
    return made + (method(f"follow(const {kind}& more)", follows, "  // whose places are greater") if follows != adds else [])


def rescaling(kind: str, every: list[Partial]) -> list[str]:
    """The methods of a partial with sums about a peak."""
    abouts = {m.row.about for m in every if m.row.about}
    peak = "peak" if len(abouts) > 1 else "mean" if "mean" in abouts else "maximum"
    taken_over = [f"{n} = top.{n};" for m in every for n in m.names(True)]
    return [
        *method(f"merge_peaks(const {kind}& more)", [x for m in every for x in m.joins(True)], f"  // all but the sums about a {peak}"),
        *method(
            f"rescale(const {kind}& top)", [*(line for m in every for line in m.rescale()), *taken_over],
            f"  // those sums about another's {peak}, and all else from there",
        ),
        *method(
            f"merge_sums(const {kind}& more)",
            [x for m in every if m.row.about for x in m.joins(False)],
            f"  // the sums of a part with the same {peak}",
        ),
        *method(
            f"add(const {kind}& more)",
            [
                f"{kind} top = *this, other = more;", "top.merge_peaks(more);", "rescale(top);", "other.rescale(top);",
                "merge_sums(other);",
            ],
        ),
    ]  # fmt: skip
