"""C++'s passes over rows: from a `RowUnit` to what templates/cpp/rows.cpp.jinja lays out.

In: a pass's phases as code, their operands.  Out: a `RowsView`: each phase's lines, of which those that only the place of an element
needs stand apart, and the pass's run function and entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from kgen.backends import searching
from kgen.backends.base import Render
from kgen.backends.cpp_partials import PeakView, peak_view
from kgen.backends.moving import Peak, grouped
from kgen.backends.text import Text, source, wrapped
from kgen.backends.units import ORDER, Accumulator, Argument, Code, Gather, Given, RowUnit, Search, Statement, Tensor
from kgen.monoids import MONOIDS
from kgen.types import DTYPES, ELLIPSIS

if TYPE_CHECKING:
    from kgen.backends.cpp import Cpp


#: How the operators that join partial results by comparing them do so, where neither is a NaN: as their functions in C++ say it.
COMPARED = {"max": ">", "min": "<"}


@dataclass(frozen=True, kw_only=True)
class Carried(Accumulator):
    """A reduction: `held` is the type of what lanes carry, `start` its identity (`worst` that of the value alone), `combine` a lambda
    and `plain` one for numbers without a NaN, if that is another; `least` whether an argmin, as C++ says it."""

    held: str
    start: str
    worst: Text
    combine: Text
    plain: Text | None
    least: str


@dataclass(frozen=True, kw_only=True)
class PhaseView(Code):
    """A phase; `places` are the names that the places of an argmax or argmin need, with their lines, `about` those that sums about peaks
    need, `results` what all else needs; `rows` says where the row's values that it takes lie: in what, and what stands behind that."""

    carried: list[Carried]
    peaks: list[PeakView]
    results: frozenset[str]
    places: frozenset[str]
    place_lines: list[Statement]
    about: frozenset[str]
    about_lines: list[Statement]
    rows: dict[str, tuple[str, str]]
    amount: str = ""  # of a search: that of row `l`


@dataclass(frozen=True)
class BesideView:
    """The code of rows that lie side by side and add up the same ranges: what is read and computed once for all of them, the sums of
    each, and what is read and computed of each behind these."""

    inputs: list[Tensor]
    gathers: list[Gather]
    lines: list[Statement]
    own_inputs: list[Tensor]
    own_gathers: list[Gather]
    sums: list[Statement]
    own_lines: list[Statement]

    @property
    def named_sums(self) -> list[Statement]:
        """The sums under the names that all rows' have together."""
        return [replace(s, names=tuple(f"{name}_beside" for name in s.names), type="auto") for s in self.sums]


@dataclass(frozen=True, kw_only=True)
class RowsView(RowUnit):
    """A pass over rows: its phases, and its operands (tensors, indices, gathers) in the order of their strides.  The last operand is the
    one whose layout decides how a row is walked."""

    over_rows: ClassVar[bool] = True
    scans: ClassVar[bool] = False
    phases: list[PhaseView]
    once: list[PhaseView]  # of rows that are not read from a cache, where they are others
    tensors: list[Tensor]
    writable: set[str]
    pointer: dict[str, str]  # of each output
    walked: list[Tensor]
    operands: list[str]
    position: dict[str, int]
    index_strides: list[str]
    aliases: dict[str, list[str]]
    rounded: dict[str, Text]
    run_head: str
    entries: list[tuple[str, str]]
    beside: BesideView | None

    @property
    def carried(self) -> list[Carried]:
        return [a for c in self.phases for a in c.carried]

    @property
    def compares(self) -> bool:
        """Whether a reduction joins numbers without a NaN in another way."""
        return any(a.plain for c in (*self.phases, *self.once) for a in c.carried)

    @property
    def peaks(self) -> list[PeakView]:
        return [a for c in self.once for a in c.peaks]

    @property
    def keeps(self) -> list[Given]:
        return [k for c in self.phases for k in c.keeps]

    @property
    def last(self) -> str:
        """The last dim of a row; "" where a row is one element."""
        return self.inner[-1] if self.inner else ""

    def asked(self, c: PhaseView) -> list[tuple[Tensor, bool, str]]:
        """What a reading asks for of the next row, whether that is to be written, and of which rows: the last one for what is written,
        the one before it for what is read of short rows, of which two stay near, and the last one else, and where that writes nothing
        along the row; of long rows that are gone through again only what is read.  For what does not run along the last dim of a row,
        and so is small, none asks."""
        readings = [p for p in self.phases if p.element]
        if not readings or readings[-1].search is not None:  # which goes through a row many times
            return []
        before = next((p for p in readings[-2:-1] if p.search is None), None)
        moves = [(t, t.name in self.writable) for t in self.walked if set(t.dims) & set(self.rows) and self.last in t.dims]
        if not any(written for _, written in moves):
            before = None
        if c is before:
            return [(t, False, "n <= NEAR") for t, written in moves if not written]
        when = {False: "n > NEAR", True: "n <= NEAR"} if before else {False: "", True: ""}
        return [(t, written, when[written]) for t, written in moves] if c is readings[-1] else []

    def ahead(self, c: PhaseView) -> str:
        """How many rows on is what a reading asks for: a few short rows where nothing is written, since the first reading of each, which
        asks for nothing, leaves the memory idle once it has what it reads."""
        asked = self.asked(c) if self.reads_again else []
        return "far" if asked and not any(written or where for _, written, where in asked) else "1"

    @property
    def reads_again(self) -> bool:
        """Whether a row is gone through more than once, so that the next one is near only if it is asked for meanwhile."""
        return sum(c.element for c in self.phases) > 1

    def runs(self, c: PhaseView) -> bool:
        """Whether a reading of a row that may lie in several runs goes through each of its tiles once, group by group."""
        several = len(self.inner) > 1 or ELLIPSIS in self.inner
        return bool(several and c.inputs) and not c.peaks and not any(a.place for a in c.carried)

    def still(self, c: PhaseView) -> list[Tensor]:
        """What a reading takes of operands that run along a row, but not along the last of its dims: where neighbours are along that, they
        have one value for many elements.  None of a reading that goes through a tile more than once."""
        if not self.runs(c):
            return []
        return [t for t in c.inputs if set(t.dims) & set(self.inner) and self.last not in t.dims]

    @property
    def brief(self) -> list[str]:
        """What has to hold, in C++, for a row of whole groups that is one tile to be gone through without a look at where it lies: all that
        its readings read and write lies side by side along each run, as many groups in each and equally far apart, or together where
        something else has one value for a run.  One run, if a reading does not go from run to run; nothing, if readings do not agree."""
        readings = [c for c in self.phases if c.element]
        steps: dict[str, int] = {}  # of each operand from one element to the next
        for c in readings:
            still = self.still(c)
            own = [(t.name, int(t not in still)) for t in c.inputs] + [(self.pointer[y.name], 1) for y in c.outputs]
            if any(steps.setdefault(name, step) != step for name, step in own):
                return []
        found = [f"inner.even(64, {1 + all(map(self.runs, readings))})"]
        for name, step in steps.items():
            k = self.position[name]
            together = step and 0 in steps.values()
            found.append(f"inner.neighbours({k})" if together else f"inner.stride[{k}][inner.rank - 1] == {step}")
        return found

    def moving(self, c: PhaseView) -> list[str]:
        """The operands whose places move from run to run: what has one value for a run, else all."""
        still = self.still(c)
        names = {t.name for t in still} if still else {t.name for t in c.inputs} | {self.pointer[y.name] for y in c.outputs}
        names |= set() if still else {t.name for t, _, _ in self.asked(c)}
        return [name for name in self.operands if name in names]

    def paired(self, c: PhaseView) -> str:
        """The type of all that a reading reads and writes, if that may be bf16 and a group's elements may be gone through in any order:
        where nothing depends on their places and nothing of theirs is kept; else ""."""
        types = {t.type for t in (*c.inputs, *c.outputs)}
        ordered = c.keeps or c.repeats or c.indices or c.gathers or c.peaks or any(a.place for a in c.carried)
        if ordered or len(types) != 1 or not c.inputs:
            return ""
        (kind,) = types
        return kind if kind == "bf16" or any(dict(bound).get(kind) == "bf16" for bound in self.bindings) else ""

    @staticmethod
    def rounds(c: PhaseView) -> bool:
        """Whether a reading only reduces, so that lanes of rows side by side may stay in registers for several elements."""
        return bool(c.carried and c.inputs) and not (c.outputs or c.indices or c.peaks or any(a.place for a in c.carried))

    @property
    def in_rounds(self) -> bool:
        """Whether some reading does."""
        return any(self.rounds(c) for c in (*self.phases, *self.once) if c.element)

    def halved(self, c: PhaseView) -> str:
        """The type of all that a reading reads, if that may be bf16 and lanes of rows side by side may be in any order until a round of
        theirs ends: where none takes what is its row's own; else ""."""
        return self.paired(c) if self.rounds(c) and not c.takes else ""

    @property
    def halves(self) -> bool:
        """Whether some reading has them so."""
        return any(self.halved(c) for c in (*self.phases, *self.once) if c.element)

    def ahead_across(self, c: PhaseView) -> list[Tensor]:
        """What a reading of rows side by side may ask for ahead: what runs along them and along each; all else is small."""
        return [t for t in c.inputs if set(t.dims) & set(self.rows) and set(t.dims) & set(self.inner)] if self.rounds(c) else []

    @property
    def words(self) -> bool:
        """Whether some reading takes two neighbours of a word at a time."""
        return any(self.paired(c) for c in (*self.phases, *self.once) if c.element)

    @property
    def any_bits(self) -> bool:
        """Whether a NaN may come from operands of other types, so that it may have any bits; numbers of the call are seen to."""
        return len({t.type for t in self.tensors if t.name not in self.writable}) > 1

    @property
    def floats(self) -> list[Argument]:
        """The scalars that may be a NaN of any bits, where results are rounded by theirs."""
        rounds = any(self.paired(c) and c.outputs for c in (*self.phases, *self.once))
        return [x for x in self.scalars if rounds and DTYPES[x.kind].is_float]

    @property
    def room(self) -> tuple[Given, Tensor, list[Tensor]] | None:
        """A value that a row keeps, and the result of the last reading in whose row it may lie until then: one that is no parameter's
        state, which the reading may ask for, where nothing of the other tensors is that result itself."""
        last = next((c for c in reversed(self.phases) if c.element), None)
        result = next((o for o in last.outputs if not o.state), None) if last else None
        if not self.keeps or result is None:
            return None
        name = self.pointer[result.name]
        return self.keeps[0], next(t for t in self.tensors if t.name == name), [t for t in self.tensors if t.name != name]

    @property
    def asks_early(self) -> bool:
        """Whether what is asked for, and when, goes by the length of a row."""
        return self.far_ahead or any(where for c in self.phases for _, _, where in self.asked(c))

    @property
    def far_ahead(self) -> bool:
        """Whether more than the next row is asked for."""
        return any(self.ahead(c) == "far" for c in self.phases)

    @property
    def found(self) -> set[str]:
        """The places of elements among the row's values."""
        return {a.name for a in self.carried if a.place}

    @property
    def combining(self) -> list[Text]:
        """What joins partial results."""
        return [a.combine for c in (*self.phases, *self.once) for a in c.carried]

    @property
    def searches(self) -> list[Search]:
        return [c.search for c in (*self.phases, *self.once) if c.search is not None]

    #: How many steps a search takes, and what a step tries.
    steps = staticmethod(searching.steps)
    tried = staticmethod(lambda s, pattern: searching.tried(s, source(pattern, s.rank, s.bit), "n"))


class RowPrinter:
    """One unit; `view` is what the templates take."""

    def __init__(self, backend: Cpp, render: Render, unit: RowUnit):
        self.backend, self.render, self.unit = backend, render, unit
        user = render.global_names.user
        self.pointers = {o.name: user(o.spec_name) if o.state else o.name for o in unit.outputs}
        self.writable = set(self.pointers.values())
        self.rounded = {s.name: backend.rounded(s) for s in unit.scalars}
        tensors = {t.name: t for t in (*unit.inputs, *(g.tensor for g in unit.gathers))}
        for o in unit.outputs:
            tensors.setdefault(self.pointers[o.name], replace(o, name=self.pointers[o.name]))
        self.tensors = render.in_order(tensors.values())

    def view(self) -> RowsView:
        """What the templates take."""
        u = self.unit
        walked, operands = self.walked()
        head, entries = self.entries()
        return RowsView(
            **vars(u),
            phases=self.every(u.codes),
            once=self.every(u.long),
            tensors=self.tensors,
            writable=self.writable,
            pointer=self.pointers,
            walked=walked,
            operands=operands,
            position={name: k for k, name in enumerate(operands)},
            index_strides=[line for x in u.indices for line in self.index_strides(x)],
            aliases=self.aliases({g.tensor.compute for g in u.gathers}),
            rounded=self.rounded,
            run_head=head,
            entries=entries,
            beside=self.beside() if u.aside == "ranges" else None,
        )

    def aliases(self, more: Set[str] = frozenset()) -> dict[str, list[str]]:
        """The types that the run function computes in, numbers that it only takes among them."""
        uses = self.unit.uses | {t.type for t in self.tensors} | {s.type for s in self.unit.scalars} | more
        return {a: of for a, of in self.render.computed_of.items() if a in uses}

    def beside(self) -> BesideView | None:
        """The code of rows side by side, along the last of their dims; None where it looks up elements that are each row's own, or adds
        up in another type than theirs."""
        (c,), last = self.unit.codes, self.unit.rows[-1]
        gathers = {g.name: g for g in c.gathers if last in g.tensor.dims and last != g.dim}
        types = {g.tensor.compute for s in c.lines for name, g in gathers.items() if name in s.uses and g.tensor.compute != s.type}
        if types or any(g.ranged in ("", ORDER) for g in gathers.values()):
            return None
        inputs = [t for t in c.inputs if last in t.dims]
        own = {*gathers, *(t.name for t in inputs), *(x.name for x in c.indices if last in x.dims)}
        lines: list[Statement] = []
        sums: list[Statement] = []
        own_lines: list[Statement] = []
        for s in c.lines:
            if s.uses & gathers.keys():  # a sum, which has a line of its own
                sums.append(s)
            else:
                (own_lines if s.uses & own or not s.names else lines).append(s)
            own |= {*s.names} if s.uses & own else set()
        if any(x.name in own for x in c.indices):
            return None
        same = [g for g in c.gathers if g.name not in gathers]
        return BesideView([t for t in c.inputs if t not in inputs], same, lines, inputs, [*gathers.values()], sums, own_lines)

    def walked(self) -> tuple[list[Tensor], list[str]]:
        """The tensors that are walked along the rows, and the names of all operands in order."""
        u = self.unit
        loaded = {t.name for t in u.inputs}
        walked = [t for t in self.tensors if t.name in loaded | self.writable]
        main = max(walked, key=lambda t: (len(set(t.dims) & set(u.inner)), t.name in loaded, len(t.dims)))
        others = [t.name for t in walked if t is not main]
        return walked, [*others, *(x.name for x in u.indices), *(g.name for g in u.gathers), main.name]

    def index_strides(self, x: Tensor) -> list[str]:
        """An index's strides, as if it had memory: 1 along its dim, or dense over all leading dims."""
        inside = x.spec_name in self.unit.inner
        dims, begin, end = (self.unit.inner, "outer", "rank") if inside else (self.unit.rows, "0", "outer")
        named = [d for d in dims if d != ELLIPSIS]
        if x.spec_name == ELLIPSIS:
            loop = f"for (int64_t d = {end} - {len(named)} - 1, step = 1; d >= {begin}; step *= size[d--])"
            line = f"{loop} {x.name}_stride[d] = step;"
        else:
            line = f"{x.name}_stride[{end} - {len(named) - named.index(x.spec_name)}] = 1;"
        return [f"int64_t {x.name}_stride[64] = {{}};", line]

    def entries(self) -> tuple[str, list[tuple[str, str]]]:
        """The head of the run function, which takes the scalars as they are rounded, and its entries, which take the numbers."""
        u, computed_of = self.unit, self.render.computed_of
        strides = [f"const int64_t* {g.name}_stride, int64_t {g.stride}" for g in u.gathers]
        spelled = {a: f"compute<{', '.join(of)}>" for a, of in computed_of.items()}
        scalars = [f"{spelled.get(s.type, s.type)} {s.name}_given" for s in u.scalars]
        sizes = [f"int64_t {g.extent}" for g in u.gathers]

        def params(bound: dict[str, str], rest: list[str]) -> list[str]:
            tensors = self.backend.tensor_params(self.render, self.tensors, self.writable, bound)
            return ["int rank", "int inner_rank", "const int64_t* size", *tensors, *strides, *rest]

        given = ["rank", "inner_rank", "size", *(x for t in self.tensors for x in (t.name, f"{t.name}_stride"))]
        given += [x for g in u.gathers for x in (f"{g.name}_stride", g.stride)] + [g.size for g in u.gathers]
        given += self.rounded.values()
        used = frozenset[str]().union(*(text.uses for text in self.rounded.values()))
        aliases = {a: of for a, of in computed_of.items() if a in used}
        entries = []
        for bound in map(dict, u.bindings):
            named = used.union(*aliases.values())
            lines = [f"    using {v} = {self.backend.types[d]};" for v, d in reversed(bound.items()) if v in named]
            lines += [f"    using {a} = compute<{', '.join(of)}>;" for a, of in reversed(aliases.items())]
            head, run = self.backend.entry(u.name, bound)
            numbers = [f"{a.type} {a.name}" for a in u.numbers]
            entries.append((wrapped(head, params(bound, numbers), " {"), "\n".join([*lines, wrapped(run, given, ";")])))
        return wrapped(f"void {u.name}_run", params({}, [*sizes, *scalars]), " {"), entries

    # ------------------------------------------------------------------ phases

    def carried(self, a: Accumulator) -> Carried:
        """A reduction with what C++ makes of it."""
        b = self.backend
        row = MONOIDS[a.kind]
        worst, least = b.identity(a), str(row.placed and row.fields[0].identity == "greatest").lower()
        if row.placed:
            held, start = f"Found<{a.value_type}>", f"Found<{a.value_type}>{{{worst}, INT64_MAX}}"
            combine = source("[](Found<{0}> first, Found<{0}> next) {{ return better<{1}>(first, next); }}", a.value_type, least)
        else:
            held, start = a.type, str(worst)
            combine = source("[]({0} first, {0} next) {{ return {0}({1}); }}", a.type, b.combined(a, "first", "next"))
        plain = None
        if a.dtype.is_float and row.join in COMPARED:
            plain = source(f"[]({{0}} first, {{0}} next) {{{{ return next {COMPARED[row.join]} first ? next : first; }}}}", a.type)
        return Carried(**vars(a), held=held, start=start, worst=worst, combine=combine, plain=plain, least=least)

    def every(self, codes: Iterable[Code]) -> list[PhaseView]:
        """The phases of some code."""
        made: list[PhaseView] = []
        rows: dict[str, tuple[str, str]] = {}
        for c in codes:
            made.append(self.phase(c, rows))
            rows |= {a.name: (a.name, ".place") for a in made[-1].carried if a.place}
            rows |= {name: (a.name, f".{name}") for a in made[-1].peaks for _, name, _ in a.fields}
        return made

    def phase(self, c: Code, rows: dict[str, tuple[str, str]]) -> PhaseView:
        """A phase; its lines but those that only places need, which run for the few groups that change one."""
        every = grouped(c.accumulators)
        peaks = [peak_view(self.backend, a) for a in every if isinstance(a, Peak)]
        c = replace(c, accumulators=tuple(a for a in every if not isinstance(a, Peak)))
        statements = [self.repeated(s, c.repeats) for s in c.lines]
        places = [a.place for a in c.accumulators if a.place]
        values = [*(a.value for a in c.accumulators), *(o.value for o in c.outputs), *(x.value for a in peaks for x in a.early)]
        about, about_lines = needed(statements, frozenset[str]().union(*(x.uses for a in peaks for x in a.values)))
        results, lines = needed(statements, frozenset(k.name for k in c.keeps).union(*(x.uses for x in values)))
        words, place_lines = needed(statements, frozenset[str]().union(*(p.uses for p in places)))
        return PhaseView(
            **vars(replace(c, lines=tuple(lines if places or peaks else statements))),
            carried=[self.carried(a) for a in c.accumulators],
            peaks=peaks,
            results=results if places or peaks else results | {x.name for x in c.indices},
            places=words,
            place_lines=[replace(s, note="") for s in place_lines],
            about=about,
            about_lines=[replace(s, note="") for s in about_lines],
            rows={g.name: rows.get(g.name, (g.name, "")) for g in c.takes},
            amount=self.amount(c, rows),
        )

    @staticmethod
    def amount(c: Code, rows: dict[str, tuple[str, str]]) -> str:
        """What the total of row `l` has to reach in a search."""
        if c.search is None or not c.search.amount.name:
            return str(c.search.amount.text) if c.search else ""
        name, part = rows.get(c.search.amount.name, (c.search.amount.name, ""))
        return f"{name}_rows[l]{part}"

    @staticmethod
    def repeated(s: Statement, repeats: tuple[Given, ...]) -> Statement:
        """A statement whose value an earlier reading may have kept."""
        if not any(s.names == (g.name,) and s.type == g.type for g in repeats):
            return s
        return replace(s, value=source("KEEP ? {0}[i + j + l] : {1}", f"{s.names[0]}_line", s.value))


def needed(statements: Iterable[Statement], words: frozenset[str]) -> tuple[frozenset[str], list[Statement]]:
    """Words with those of the statements that make them, and what is left of all statements: those, of others their equations."""
    kept = []
    for s in reversed([*statements]):
        if words.intersection(s.names):
            words |= s.uses
            kept.append(s)
        elif s.note:
            kept.append(Statement(note=s.note))
    return words, kept[::-1]
