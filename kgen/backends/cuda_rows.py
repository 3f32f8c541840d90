"""CUDA C++: a pass over rows as the text of its kernel, and of the host function that launches it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from kgen.backends import cuda_abreast, cuda_pieces, searching
from kgen.backends import cuda_host as host
from kgen.backends import cuda_partials as partials
from kgen.backends.base import Render
from kgen.backends.c_family import CFamily
from kgen.backends.cuda_abreast import is_abreast
from kgen.backends.cuda_lasting import lasting, made_once
from kgen.backends.cuda_layouts import RowOperand, is_byte
from kgen.backends.cuda_words import kept_words
from kgen.backends.launches import ANY, DEAR_ELEMENT, MOST_READINGS
from kgen.backends.names import Names
from kgen.backends.shared import SEARCHING
from kgen.backends.text import Text, source, wrapped
from kgen.backends.units import ORDER, WAITS, Code, Gather, Made, Piece, RowUnit, ScanUnit, Statement, Tensor, fresh
from kgen.passes import Scalar
from kgen.types import ELLIPSIS

FIELDS = "gathers; along a row, kept, read; rowed, one dim, readings, those of one that does not stay, stores, words, splits; bytes of each"
#: How rows are walked, by what those side by side share.
WALKS = {"": "{}", "ranges": "Ranges<{}, 1, 0>", "places": "Aside<{}, 1, 0>"}


@dataclass(frozen=True)
class Walked:
    """What a kernel walks through: the name of its value in the code, that of its pointer ("" for an index), and its type."""

    name: str
    pointer: str
    type: str
    record: RowOperand

    @property
    def has_memory(self) -> bool:
        return self.record.role != "index"

    @property
    def is_written(self) -> bool:
        return self.record.role in ("state", "result")


@dataclass(frozen=True, kw_only=True)
class CudaRows(host.HostView):
    """What the templates see of a pass over rows: its kernel, phase by phase, and its host function."""

    over_rows: ClassVar[bool] = True
    about: str
    operand_names: list[str]
    kernel_head: str
    kernel_aliases: dict[str, list[str]]
    opening: list[str]
    phases: list[list[str]]
    index_strides: list[tuple[str, bool, str, str]]
    parameters: str
    parameters_about: str = FIELDS
    columns: bool = False
    persists: bool = False
    draws: bool = False  # whether a thread draws words between the vectors of rows that it has to itself
    makes: bool = False  # whether it has kgen_made.cuh
    near: bool = False  # and kgen_near.cuh
    pieces: str = ""  # the arguments of the library's walk over rows in pieces (kgen_pieces.cuh)
    code: list[str]
    walk: str  # how a kernel of a written file walks


def row_operands(render: Render, unit: RowUnit) -> tuple[list[Walked], dict[str, str]]:
    """The operands of a pass over rows in the order of its strides, and each output's pointer.  Beside a row that stays on the chip what
    all rows share does not: it comes from the L2 cache each time."""
    readings = [(c,) for c in unit.codes if c.element] + [p.codes for p in unit.pieces]
    pointers = {o.name: render.global_names.user(o.spec_name) if o.state else o.name for o in unit.outputs}
    written = set(pointers.values())
    found: list[Walked] = []
    for t in sorted(unit.inputs, key=unit.is_row):
        role = "state" if t.name in written else "input"
        kept = sum(any(t in read_by(c) for c in own) for own in readings) > 1
        kept = kept or any(c.makes and t == c.makes.inputs[0] for c in unit.every)
        found.append(Walked(t.name, t.name, t.type, RowOperand(t.spec_name, t.dtype, t.dims, role, not unit.is_row(t), kept)))
    for t in unit.indices:
        found.append(Walked(t.name, "", t.type, RowOperand(t.spec_name, t.dtype, t.dims, "index", not unit.is_row(t))))
    for g in unit.gathers:
        t = g.tensor
        found.append(Walked(g.name, g.name, t.type, RowOperand(t.spec_name, t.dtype, t.dims, "gather", False, False, g.dim)))
    for o in unit.outputs:
        if pointers[o.name] not in {w.pointer for w in found}:
            role, dim = "state" if o.state else "result", unit.piece_dim(o)
            along = not unit.is_row(o) and not dim
            found.append(Walked(o.name, pointers[o.name], o.type, RowOperand(o.spec_name, o.dtype, o.dims, role, along, dim=dim)))
    own = not unit.columns and any(w.record.kept and not is_shared(w.record, unit) for w in found)
    return [replace(w, record=replace(w.record, kept=False)) if own and is_shared(w.record, unit) else w for w in found], pointers


def read_by(c: Code) -> tuple[Tensor, ...]:
    """The operands that a reading reads, also for what takes the place of one."""
    return (*c.inputs, *(c.makes.inputs if c.makes else ()))


def counts(codes: tuple[Code, ...], pieces: bool = False) -> tuple[int, bool]:
    """How many readings reduce (`SEARCHING` more with a search), and whether one more stores elements, adds up columns or has `pieces`."""
    searches = SEARCHING * any(c.search for c in codes)
    more = any(c.element and (c.columns or c.outputs and not c.accumulators) for c in codes)  # others store on their way
    return sum(bool(c.accumulators) for c in codes) + searches, pieces or more


def is_shared(o: RowOperand, unit: RowUnit) -> bool:
    """Whether an operand is a parameter of columns: all rows read the same."""
    return o.role == "input" and o.element and not set(o.dims) & set(unit.rows)


def dear(unit: RowUnit) -> bool:
    """Whether elements take so many instructions that other steps are taken; not of searches, nor of rows that have steps of their own."""
    narrow = any(is_byte(o.dtype) for o in unit.outputs if set(o.dims) & set(unit.inner))
    own = unit.pieces or narrow or any(c.search for c in unit.codes)
    return unit.instructions > DEAR_ELEMENT and not own


def persists(unit: RowUnit, operands: Sequence[RowOperand]) -> bool:
    """Whether rows may follow one another, so that a block reads once what all of them share, or asks for the next while it computes one:
    they are reduced, one of their operands stays on the chip, two where they share nothing, and what they share is read in one reading."""
    shared = [o for o in operands if is_shared(o, unit)]
    kept = [o for o in operands if o.kept]
    several = [o for o in shared if sum(any(t.spec_name == o.name for t in read_by(c)) for c in unit.codes if c.element) > 1]
    goes_on = unit.columns or isinstance(unit, ScanUnit) or any(c.search for c in unit.codes)
    goes_on = goes_on or bool(unit.pieces or unit.near) or any(c.makes for c in unit.codes) or is_abreast(unit)
    stays = bool(kept) if shared else len(kept) > 1 and not unit.aside
    return bool(stays and not goes_on and 0 < counts(unit.codes)[0] <= MOST_READINGS // 2 and not several)


class RowPrinter:
    """The texts of one pass over rows; `words` is the room of a reading's result in its source's workspaces."""

    runs = "run_rows"  # the library's function that launches it

    def __init__(self, backend: CFamily, render: Render, unit: RowUnit, given: tuple[Scalar, ...], words: int):
        self.backend, self.render, self.unit, self.words = backend, render, unit, words
        self.operands, self.pointers = row_operands(render, unit)
        self.position = {w.pointer or w.name: k for k, w in enumerate(self.operands)}
        self.numbers = host.numbers(backend, unit, given)
        self.reductions, self.stores = counts(unit.codes, bool(unit.pieces))
        self.long = counts(unit.long or unit.codes)[0]  # the readings that reduce of a row that does not stay on the chip
        self.gathers: dict[str, Gather] = {g.name: g for g in unit.gathers}
        self.names = Names(set(render.global_names.taken) | set(render.global_names.given.values()))
        written = {w.name for w in self.operands if w.is_written}
        self.alone = {t.name for t in unit.inputs if not t.dims and t.name not in written}  # one value for all rows
        asked = [t.name for c in (*unit.codes, *unit.long) for t in c.indices if t.name not in c.within]
        self.asked = {*asked, *(t.name for c in (*unit.codes, *unit.long) for m in c.repeated for t in m.indices)}
        records = [w.record for w in self.operands]
        self.persists, self.lasting, self.abreast = persists(unit, records), lasting(unit, records, render), is_abreast(unit)

    # ------------------------------------------------------------------ the kernel

    def opening(self) -> list[str]:
        """The lines before the phases: numbers, what is gathered from, values and operands of a row."""
        made = [f"Philox {name};" for name in kept_words(self.render, self.unit.calls)]
        if self.reductions <= MOST_READINGS and (any(w.record.kept for w in self.operands) or self.unit.columns and self.reductions):
            made.append(f"walk.template start<{self.reductions}>();")
        for n in self.numbers:
            if n.converted:
                made.append(f"const {n.argument.type} {n.argument.name} = to<{n.argument.type}>({n.argument.name}_given_k);")
        read = {t.name for c in self.unit.every for t in read_by(c) if t in self.unit.inputs}
        alone = [f"const {t.compute} {t.name} = {t.compute}(*{t.name}_ptr);" for t in self.unit.inputs if t.name in read & self.alone]
        if self.unit.aside == "ranges":
            return [*made, *alone, "do {", *indented([self.of_row(read)])]
        made += self.of_row(read)
        if self.unit.columns:
            return [*made, *alone, *self.rounds()]
        return [*made, *alone]  # the row is on its way: what the compiler knows to be a warp's is waited for before any more is sent for

    def of_row(self, read: set[str]) -> list[str]:
        """The lines that begin a row: what it gathers from, its own values and its operands, of the tensors that are `read`."""
        made: list[str] = []
        gathers = [*self.gathers]
        for k, w in enumerate(self.operands):
            if w.name in self.gathers:
                g = self.gathers[w.name]
                if self.unit.aside and g.ranged not in ("", ORDER):
                    made.append(f"auto {w.name} = beside<{k}, {g.tensor.compute}>(walk, {w.pointer}_ptr, {gathers.index(w.name)});")
                    continue
                if self.unit.aside and not g.ranged:
                    made.append(f"auto {w.name} = looked<{k}, {g.tensor.compute}>(walk, {w.pointer}_ptr, {gathers.index(w.name)});")
                    continue
                way = "within" if g.ranged else "gathered"
                call = f"walk.template {way}<{k}>({w.pointer}_ptr, {gathers.index(w.name)}, place)"
                made.append(f"const auto {w.name} = [&](i64 place) {{ return {self.gathers[w.name].tensor.compute}({call}); }};")
        if self.unit.columns:
            return made
        if self.persists and not self.unit.aside:
            made += [f"auto {t.name}_ahead = walk.template ahead<{self.position[t.name]}>({t.name}_ptr);" for t in self.of_rows()]
        made += [] if self.persists or self.unit.aside or self.abreast else self.row_values(read)
        if self.unit.aside:
            kept = (f"Kept<Walk, {self.position[p]}, {o.type}> {o.name}_kept{{{p}_ptr}};" for o, p in self.written())
            made += kept
            made += [f"const auto {t.name}_side = walk.template side<{self.position[t.name]}>({t.name}_ptr);" for t in self.of_rows()]
        for w in self.operands:
            if w.record.element and not w.has_memory:
                if w.name in self.asked:
                    made.append(f"auto {w.name}_row = walk.template position<{self.position[w.name]}>();")
            elif w.record.element and w.pointer in read:
                kind = "same" if self.persists and is_shared(w.record, self.unit) else "keep" if w.record.kept else "input"
                made.append(f"auto {w.pointer}_row = walk.template {kind}<{self.position[w.pointer]}>({w.pointer}_ptr);")
        index = {x.spec_name: self.position[x.name] for x in self.unit.indices}
        for b in self.unit.near:
            which = f"{self.position[b.tensor.name]}, {index[b.dim]}, {b.by}"
            made.append(f"auto {b.name}_row = {f'there<{which}>(walk)' if b.asks else f'near<{which}>(walk, {b.tensor.name}_ptr)'};")
        return made

    def of_rows(self) -> list[Tensor]:
        """The tensors that have one value a row, of those that are read."""
        read = {t.name for c in self.unit.every for t in read_by(c)}
        return [t for t in self.unit.inputs if self.unit.is_row(t) and t.name in read and t.name not in self.alone]

    def row_values(self, read: set[str]) -> list[str]:
        """The lines that have a row's own values, of the tensors that are `read`."""
        made = self.row_indices()
        for t in self.unit.inputs:
            if self.unit.is_row(t) and t.name in read and t.name not in self.alone:
                one = f"walk.mine({t.name}_side)" if self.unit.aside else f"*walk.template at<{self.position[t.name]}>({t.name}_ptr)"
                made.append(f"const {t.compute} {t.name} = {t.compute}({one});")
        return made

    def row_indices(self) -> list[str]:
        return [
            f"const i64 {w.name} = walk.template row_index<{self.position[w.name]}>();"
            for w in self.operands if not w.has_memory and not w.record.element
        ]  # fmt: skip

    def rounds(self) -> list[str]:
        """The lines before rows that follow one another: what follows from columns, in the last launch, and the operands."""
        unit = self.unit
        made = [*partials.columns(self.backend, unit.columns), *self.finish()]
        read = {t.name for c in unit.codes for t in c.inputs}
        for w in self.operands:
            number = self.position[w.pointer or w.name]
            if w.record.element and not w.has_memory:
                if w.name in self.asked:
                    made.append(f"auto {w.name}_row = walk.template position<{number}>();")
            elif w.pointer in read:
                moves = bool(set(w.record.dims) & set(unit.rows))
                if w.pointer in self.alone:
                    continue
                kind, end = ("ahead", "ahead") if not w.record.element else ("moving" if moves else "same", "row")
                made.append(f"auto {w.pointer}_{end} = walk.template {kind}<{number}>({w.pointer}_ptr);")
        return [*made, "auto columns_row = walk.template columns<Columns>();"]

    def finish(self) -> list[str]:
        """The lines that store what follows from columns, and those of the launch that adds these up."""
        c, unit = self.unit.finish, self.unit
        assert c is not None
        params = "const Columns& columns, typename Walk::Place column"
        lines = [f"const {a.type} {a.name} = columns.{a.name};" for a in unit.columns]
        for t in c.inputs:
            lines.append(f"const {t.compute} {t.name} = {t.compute}(*walk.template along<{self.position[t.name]}>({t.name}_ptr, column));")
        for t in c.indices:
            lines.append(f"const i64 {t.name} = i64(walk.offset({self.position[t.name]}, column));")
        lines += self.backend.printed(c.lines)
        for o in c.outputs:
            pointer = self.pointers[o.name]
            lines.append(f"*walk.template along<{self.position[pointer]}>({pointer}_ptr, column) = {stored(o)};")
        ends = ["if constexpr (Walk::FINISHES) {", "    walk.template finish<Columns>(store);", "    return;", "}"]
        return [f"const auto store = [&]({params}) {{", *(f"    {line}" for line in lines), "};", *ends]

    def looped(self, phases: list[list[str]]) -> list[list[str]]:
        """The phases within the loop over a team's rows."""
        unit = self.unit
        read = {t.name for c in unit.codes for t in c.inputs}
        tensors = [t for t in unit.inputs if t.name in read and t.name not in self.alone]
        order = ["columns_row", *(f"{t.name}_{'ahead' if unit.is_row(t) else 'row'}" for t in tensors)]
        ins = ", ".join(order)
        ahead = [f"const {t.compute} {t.name} = {t.compute}({t.name}_ahead.now);" for t in tensors if unit.is_row(t)]
        lines = [*self.row_indices(), *ahead]
        body = indented([lines, *phases] if lines else phases)
        return [[f"for (walk.begin({ins}); walk.more(); walk.next({ins})) {{", *body, "}", "walk.end(columns_row, store);"]]

    def phases(self) -> list[list[str]]:
        """The lines of each phase; those of rows that stay on the chip and of others one after the other, where they differ."""
        short, long = self.phases_of(self.unit.codes, self.unit.pieces), self.phases_of(self.unit.long, self.unit.long_pieces)
        if self.unit.columns:
            return self.looped(short)
        if self.unit.aside:
            return self.side_by_side(short)
        made = [["if constexpr (Walk::STAYS) {", *indented(short), "} else {", *indented(long), "}"]] if long else short
        return self.persisting(made) if self.persists else cuda_abreast.looped(self, made) if self.abreast else made

    def written(self) -> list[tuple[Tensor, str]]:
        """The results, each with its pointer."""
        return [(o, self.pointers[o.name]) for o in self.unit.outputs]

    def side_by_side(self, phases: list[list[str]]) -> list[list[str]]:
        """The phases of rows that a thread takes one after the other, which are stored together."""
        lines = self.row_values({t.name for c in self.unit.codes for t in c.inputs})
        sites = [f"{name}.column = k;" for name, g in self.gathers.items() if g.ranged not in ("", ORDER)]
        body = ["walk.column = k;", *sites, *lines, *(line for own in phases for line in own)]
        loop = ["#pragma unroll", "for (int k = 0; k < Walk::COLUMNS; k++) {", *indented([body]), "}"]
        lines = [*loop, *(f"{o.name}_kept.store(walk);" for o, _ in self.written())]
        return [[*indented([lines]), "} while (walk.more());"]] if self.unit.aside == "ranges" else [lines]

    def persisting(self, phases: list[list[str]]) -> list[list[str]]:
        """The phases within the loop over the rows that a block takes one after the other: one, where each row has its own."""
        read = {t.name for c in self.unit.codes for t in c.inputs}
        along = [f"{w.pointer}_row" for w in self.operands if w.record.element and w.pointer in read]
        ins = ", ".join([*along, *(f"{t.name}_ahead" for t in self.of_rows())])
        lines = [*self.row_indices(), *(f"const {t.compute} {t.name} = {t.compute}({t.name}_ahead.now);" for t in self.of_rows())]
        body = indented([lines, *phases] if lines else phases)
        return [[f"walk.begin({ins});", "do {", *body, f"}} while (walk.further({ins}));"]]

    def phases_of(self, codes: tuple[Code, ...], pieces: tuple[Piece, ...]) -> list[list[str]]:
        """The lines of each phase of some code, and of what is done with pieces behind it; what is a row's own stands behind the reading
        before it."""
        made: list[list[str]] = []
        declared, drawn = set[Statement](), set[str]()
        reading, split = 0, list[str]()  # the divisors so far that may be plain
        behind: list[str] = []  # a row's values that the reading after them does without: what they wait for comes meanwhile
        for k, c in enumerate(codes):
            if c.element:
                if reading:  # a launch of a split row that was for the readings before this one ends here
                    made[-1].append(f"if (walk.stops({2 * reading - 1})) return;")
                later = frozenset[str]().union(*(x.uses for x in (*codes[k + 1 :], *(x for p in pieces for x in p.codes))))
                later |= {c.search.total.name} if c.search else set()
                split += [g.name for g in c.divisors if g.split == WAITS]
                by = [name for name in split if name in c.uses]
                if c.accumulators:
                    stores = [(f"{o.type}& {o.name}_element", f"{o.name}_out_row", f"{o.name}_element = {stored(o)};") for o in c.outputs]
                    reads = self.results(c)
                    picks = not (self.unit.columns or self.persists or self.abreast or self.unit.aside)
                    reads += partials.reading(self.backend, c, reading, later, bool(self.unit.columns), stores=stores, by=by, picks=picks)
                else:
                    reads = self.storing(c, by=by)
                last = k + 1 == len(codes) and not pieces and not c.accumulators
                reads = [*reads, f"{c.makes.name}_row.kept = Walk::STAYS;"] if c.makes else reads
                done = [f"{m.name}_row.done = true;" for m in c.repeated if any(m in x.repeated for x in codes[k + 1 :])]
                reads = searching.looped(c.search, "u64", "i64(walk.rows.n)", reads) if c.search else reads
                reads = partials.dividing(c.divisors, [*(self.making(c.makes) if c.makes else ()), *reads], last)
                reads, words = [*reads, *done], self.draws(c, drawn)  # all these later readings have too
                made.append([*words, *reads, *behind])
                behind = []
                reading += bool(c.accumulators)
                continue
            first, rest = partials.split(c, codes[k + 1] if k + 1 < len(codes) and codes[k + 1].accumulators else None)
            first, rest = fresh(first, declared), fresh(rest, declared)  # a constant that two phases use: both are one scope
            lines, behind = self.backend.printed(first), self.backend.printed(rest)
            lines += self.row_stores(c)
            if made and reading and lines:
                made[-1] += lines
            elif lines:
                made.append(lines)
        return [*made, *cuda_pieces.printed(self, pieces, reading)]

    def making(self, m: Made) -> list[str]:
        """The lines that make what takes an operand's place."""
        params = ", ".join(f"{partials.given(t.compute)} {t.name}" for t in m.inputs)
        lines = [*self.backend.printed(m.lines), f"return {source('{0}({1})', m.type, m.value)};"]
        operands = ", ".join(f"{t.name}_row" for t in m.inputs)
        head, end = f"auto {m.name}_row = made<{m.type}>(walk, [&]({params}) {{", f"}}, operands({operands}));"
        return [*map(partials.divisor, m.divisors), head, *(f"    {line}" for line in lines), end]

    def row_stores(self, c: Code, walk: str = "walk") -> list[str]:
        """What one thread of a row, or of a piece of it, stores."""
        if self.unit.aside:
            return [f"{o.name}_kept.at.at[k] = {stored(o)};" for o in c.outputs]
        stores, along = [], [w.pointer for w in self.operands if w.record.dim]
        for o in c.outputs:
            pointer = self.pointers[o.name]
            number = f", {along.index(pointer)}" if walk == "piece" else ""
            stores.append(f"*{walk}.template at<{self.position[pointer]}>({pointer}_ptr{number}) = {stored(o)};")
        if len(stores) < 2:
            return [f"if ({walk}.leader()) {text}" for text in stores]
        return [f"if ({walk}.leader()) {{", *(f"    {text}" for text in stores), "}"]

    def draws(self, c: Code, drawn: set[str]) -> list[str]:
        """The lines of the words that a reading reads, and of what it reads that is made of words; those `drawn` before stay."""
        made: list[str] = []
        words = {w.name: w for words in (c.words, *(m.words for m in c.repeated)) for w in words}
        for w in (w for name, w in words.items() if name not in drawn):
            made.append(f"auto {w.name}_row = drawn<Walk{w.bits}>({w.seed}, {w.offset}, {w.before});")
        for m in (m for m in c.repeated if m.name not in drawn):
            of = [*((partials.given(t.compute), t.name) for t in (*m.inputs, *m.indices)), *(("u32", w.name) for w in m.words)]
            of += [(x.type, x.name) for x in m.others]
            params, operands = [f"{kind} {name}" for kind, name in of], ", ".join(f"{name}_row" for _, name in of)
            lines = [*self.backend.printed(m.lines), f"return {m.value};"]
            made += map(partials.divisor, m.divisors)
            made += [f"const auto {m.name}_of = [&]({', '.join(params)}) {{", *(f"    {line}" for line in lines), "};"]
            how = f"repeated<Walk, {m.type}>("
            if m == made_once(self.unit) and (found := self.lasting) is not None:
                how = f"lasting<Walk, {m.type}, {str(found.free).lower()}, {str(found.own).lower()}>(walk, "
            made.append(f"auto {m.name}_row = {how}{m.name}_of, operands({operands}));")
        drawn |= {*words, *(m.name for m in c.repeated)}
        return made

    def results(self, c: Code) -> list[str]:
        """The lines of what a reading writes along a row."""
        places = ((o, self.pointers[o.name]) for o in c.outputs)
        return [f"auto {o.name}_out_row = {output(o, self.position[pointer], pointer)};" for o, pointer in places]

    def storing(self, c: Code, walk: str = "walk", by: Sequence[str] = ()) -> list[str]:
        """The reading that stores elements, of a row or of a piece of it, or adds up columns; `by` as `partials.reading` has it."""
        params, operands = partials.taken(c)
        made = self.results(c) if walk == "walk" and not self.abreast else []
        sums = ["columns_row"] if c.columns else []
        written = [f"{'float' if o.pair else o.type}& {o.name}_element" for o in c.outputs]
        params = [*written, *("Columns& columns_element" for _ in sums), *params]
        call = [f"{walk}.each([&]({', '.join(params)}) {{"]
        call += [f"    {line}" for line in self.backend.printed(c.lines)]
        call += [f"    {o.name}_element = {stored(o)};" for o in c.outputs]
        call += [f"    {line}" for line in partials.contributed(self.backend, "columns_element", c.columns)]
        call.append(f"}}, {', '.join([*(f'{o.name}_out_row' for o in c.outputs), *sums, *operands])});")
        return [*made, *partials.plainly(by, call)]

    def types(self) -> frozenset[str]:
        """The types that the kernel's lines name."""
        u = self.unit
        found = {t.compute for t in u.inputs} | {t for o in u.outputs for t in (o.compute, o.type)} | {g.tensor.compute for g in u.gathers}
        return u.uses | found | {n.argument.type for n in self.numbers if n.converted}

    def view(self) -> CudaRows:
        """What the templates take."""
        memory = [w for w in self.operands if w.has_memory]
        params = [f"{'' if w.is_written else 'const '}{host.spelled_out(self.render, w.type)}* {w.pointer}_ptr" for w in memory]
        for n in self.numbers:
            params.append(f"{host.spelled_out(self.render, n.passed)} {n.argument.name}{'_given_k' if n.converted else ''}")
        opening, phases = self.opening(), self.phases()
        types = self.types()
        return CudaRows(
            **vars(self.launch()),
            about=self.about(),
            operand_names=[w.pointer if w.has_memory else f"index[{w.record.name}]" for w in self.operands],
            kernel_head=wrapped(f"{self.unit.name}_kernel", ["const __grid_constant__ typename Walk::Layout rows", *params], " {"),
            kernel_aliases={a: of for a, of in self.render.computed_of.items() if a in types},
            opening=opening,
            phases=phases,
            index_strides=self.index_strides,
            parameters=self.parameters(),
            code=[*opening, *(line for lines in phases for line in lines)],
            columns=bool(self.unit.columns),
            persists=self.persists,
            draws=not (self.persists or self.unit.columns) and any(c.words or any(m.words for m in c.repeated) for c in self.unit.every),
            makes=any(c.makes for c in self.unit.every) or any(o.pair for o in self.unit.outputs),
            near=bool(self.unit.near),
            pieces=cuda_pieces.walk(self.unit),
            walk=WALKS[self.unit.aside].format("typename decltype(way)::Walk"),
        )

    def about(self) -> str:
        """How often the kernel reads a row."""
        if any(c.search for c in self.unit.codes):
            return "A row is read many times: by a search, once for each bit of what it looks for."
        return rounds(self.reductions) if self.unit.columns else about(self.reductions, self.stores, self.long)

    # ------------------------------------------------------------------ the host function

    def parameters(self) -> str:
        """The library's `Pass`, within a `RoundsPass` where it adds up columns, a `PersistentPass` where rows may follow one another."""
        unit, operands = self.unit, [w.record for w in self.operands]
        element = [w.record.element and w.has_memory for w in self.operands]
        along = [has and bool(set(unit.inner[-1:]) & set(o.dims)) for has, o in zip(element, operands, strict=True)]
        if unit.columns:  # whose results are written one by one, at the end
            along = [has and (o.role != "result" or bool(set(o.dims) & set(unit.rows))) for has, o in zip(along, operands, strict=True)]
        rowed = any(set(o.dims) & set(unit.rows) for o in operands)
        one_dim = len(unit.inner) == 1 and ELLIPSIS not in unit.inner
        rereads = {o.name for o in operands if o.role == "state" and not o.element} & {t.spec_name for t in unit.inputs}
        masks = [along, [o.kept for o in operands], [o.role != "result" for o in operands]]
        splits = not (rereads and self.stores or any(c.search for c in unit.codes))
        gathers = max(1, sum(bool(o.dim) for o in operands))
        values = [gathers, *map(mask, masks), rowed, one_dim, self.reductions, self.long, self.stores, self.words, splits]
        sizes = (f"int(sizeof({w.type}))" if has else "0" for has, w in zip(element, self.operands, strict=True))
        known = f"<{', '.join([*(str(v).lower() for v in values), *sizes])}>"
        moving = [has and o.role != "result" and bool(set(o.dims) & set(unit.rows)) for has, o in zip(element, operands, strict=True)]
        if unit.columns:
            return f"RoundsPass<{partials.column_words(unit.columns)}, {mask(moving)}, {str(dear(unit)).lower()}, Known{known}>"
        plain = f"Pass{known}"
        if (m := made_once(unit)) is not None and (found := self.lasting) is not None:
            own = f"int(sizeof({host.spelled_out(self.render, m.type)}))" if found.own else "0"
            plain = f"LastingPass<{found.of}, {str(found.free).lower()}, {own}, {plain}>"
        if dear(unit):
            plain = f"DearPass<{plain}>"
        if self.abreast:
            longest = cuda_abreast.longest(unit)
            return f"AbreastPass<{'ANY' if longest == ANY else longest}, {plain}>"
        if unit.pieces:
            return f"PiecesPass<{plain}>"
        if unit.near:
            lines = [o.role == "index" and o.name in {b.dim for b in unit.near} for o in operands]
            return f"NearPass<{mask(lines)}, {plain}{', true' * unit.on_the_way}>"
        places = any(w.record.element and not w.has_memory for w in self.operands)
        return f"PersistentPass<{mask(moving)}, {plain}{', true' * places}>" if self.persists else plain

    def tensor(self, w: Walked) -> str:
        """The name of an operand's tensor in the host function; "" of an index."""
        return self.gathers[w.name].tensor.name if w.name in self.gathers else w.pointer

    def launch(self) -> host.HostView:
        """The host function."""
        unit, render = self.unit, self.render
        own = {w.pointer for w in self.operands if w.record.role not in ("index", "gather")}
        order = [render.global_names.user(p.name) for p in render.kernel.params]
        memory: dict[str, Walked] = {}
        for w in self.operands:
            if w.has_memory:
                memory.setdefault(self.tensor(w), w)
        tensors = sorted(memory, key=lambda t: order.index(t) if t in order else len(order))
        stride = {t: self.names.fresh(f"{t}_stride") for t in tensors}
        gather_stride = {g: self.names.fresh(f"{g}_stride") for g in self.gathers}

        def params(bound: dict[str, str]) -> list[str]:
            made = ["int rank", "int outer", "const i64* size"]
            for t in tensors:
                const, type_name = "" if memory[t].is_written else "const ", host.element_type(render, memory[t].type, bound)
                made.append(f"{const}{type_name}* {t}" + (f", const i64* {stride[t]}" if t in own else ""))
            made += [f"const i64* {gather_stride[g.name]}, i64 {g.stride}" for g in unit.gathers]
            return [*made, *(f"{a.type} {a.name}" for a in unit.numbers), "cudaStream_t stream"]

        passing = ["rank", "outer", "size", *(f"{t}, {stride[t]}" if t in own else t for t in tensors)]
        passing += [f"{gather_stride[g.name]}, {g.stride}" for g in unit.gathers] + [a.name for a in unit.numbers] + ["stream"]
        run = self.names.fresh(f"{unit.name}_run")
        launched = ["pass()", "rank", "outer", "size", "operands", "stream", "kernel"]
        launched += [*(self.tensor(w) for w in self.operands if w.has_memory), *(n.given for n in self.numbers)]
        uses = {w.type for w in memory.values()}.union(*(n.uses for n in self.numbers))
        index = {w.name: self.names.fresh(f"{w.name}_stride") for w in self.operands if not w.has_memory}
        self.index_strides = [self.index_stride(w, index[w.name]) for w in self.operands if not w.has_memory]
        return host.HostView(
            kernel=f"{unit.name}_kernel",
            typename=", ".join(f"typename {v}" for v in unit.variables),
            chosen="".join(f"{v}, " for v in unit.variables),
            run_head=wrapped(f"cudaError_t {run}", params({}), " {"),
            entries=host.entries(unit, run, params, passing),
            computed=host.computed(self.numbers),
            host_aliases={a: of for a, of in render.computed_of.items() if a in uses},
            host_operands=[self.host_operand(w, index | gather_stride | stride) for w in self.operands],
            launch=host.indented(wrapped(f"return {self.runs}", launched, ";", 120), 4),
            rounded=[n.rounded for n in self.numbers],
        )

    def host_operand(self, w: Walked, strides: dict[str, str]) -> host.HostOperand:
        """An operand as the library takes it; `strides` has the names of its strides, by operand or tensor."""
        g = self.gathers.get(w.name)
        steps = strides[w.name] if g or not w.has_memory else strides[w.pointer]
        tail = f", {g.size}, {g.stride}" if g else ""
        if not g and w.record.dim:  # one element for each piece of a row
            at = f"[rank - {len(self.unit.inner) - self.unit.inner.index(w.record.dim)}]"
            tail = f", size{at}, {steps}{at}"
        rows = len(set(w.record.dims) & set(self.unit.rows))
        return host.HostOperand(self.tensor(w) if w.has_memory else "", steps, w.type, f"{str(w.record.element).lower()}, {rows}", tail)

    def index_stride(self, w: Walked, name: str) -> tuple[str, bool, str, str]:
        """How the host function makes the strides of a position: along leading dims from one dim to another, or along one."""
        dims, end = (self.unit.inner, "rank") if w.record.element else (self.unit.rows, "outer")
        named = [d for d in dims if d != ELLIPSIS]
        if w.record.name == ELLIPSIS:
            return name, True, "outer" if w.record.element else "0", f"{end} - {len(named)}"
        return name, False, f"{end} - {len(named) - named.index(w.record.name)}", ""


def output(o: Tensor, position: int, pointer: str) -> str:
    """The call that gives what is written along a row."""
    if not o.pair:
        return f"walk.template output<{position}>({pointer}_ptr)"
    return f"coded<{position}>(walk, {pointer}_ptr, [](float a, float b) {{ return {o.pair}(a, b); }})"


def stored(o: Tensor) -> Text:
    """The value of an output as its memory has it; of codes, what these are made of."""
    if o.pair:
        return source("narrowed({0})", o.value)
    return o.value if o.compute == o.type else source("{0}({1})", o.type, o.value)


def mask(which: list[bool]) -> str:
    """A bit for each that is so, as a literal."""
    found = sum(1 << k for k, has in enumerate(which) if has)
    return f"{found}{'ull' if found > 2**31 else ''}"


def indented(phases: list[list[str]]) -> list[str]:
    """The lines of some phases within a block, an empty one between phases."""
    made: list[str] = []
    for lines in phases:
        made += [*([""] if made else []), *(f"    {line}" if line else "" for line in lines)]
    return made


def about(reductions: int, stores: bool, long: int) -> str:
    """How often a kernel reads a row; `long` is how many of the readings that reduce it there are where a row does not stay on the chip."""
    if long < reductions:
        times = "once" if long == 1 else "twice" if long == 2 else f"{long} times"
        return f"{about(reductions, stores, reductions)} One that does not stay on the chip is read {times} to reduce it."
    times = ("not read", "read once", "read twice")[reductions] if reductions < 3 else f"read {reductions} times"
    if not reductions:
        return "One element for each row."
    return f"A row is {times} to reduce it" + (", and once more to store what follows." if stores else ".")


def rounds(reductions: int) -> str:
    """The same of a kernel whose rows follow one another."""
    times = "once" if not reductions else "twice, from memory once" if reductions == 1 else f"{reductions + 1} times, from memory once"
    return f"Rows one after the other, each gone through {times} where it stays on the chip; what is added up over them is in `Columns`."
