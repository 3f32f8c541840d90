"""C++ for known dims and dtypes: from the passes of a kernel to what templates/cpp/static.cpp.jinja lays out.

In: a kernel and what is known of it.  Out: one function for each pass, and the one that calls them.  Rows whose elements are
neighbours are gone through one by one, 64 lanes along each; where neighbours belong to other rows, the lanes are rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.backends.c_static import CStatic, block, over
from kgen.backends.c_static_scans import ScanTexts
from kgen.backends.cpp import Cpp
from kgen.backends.cpp_rows import Carried, RowPrinter
from kgen.backends.names import bare
from kgen.backends.static import Known, StaticRender, deep, inlined, rounds, static_call, stored
from kgen.backends.text import Text, named, source, trimmed, wrapped
from kgen.backends.units import Accumulator, Code, RowUnit, ScanUnit, Tensor, Unit
from kgen.check import Kernel
from kgen.ops import CALL, SUM
from kgen.types import Dims

#: Partial results of a row, or rows side by side.
LANES = 64
#: Elements of a row, or of rows side by side, between which sums go on pairwise.
BLOCK = 2048
#: Elements from which threads pay.
PARALLEL = 32768
#: The longest row of which values are kept from one reading to the next.
LONGEST_KEPT = 65536


class StaticCpp(Cpp):
    """C++ without template arguments: functions by the names that they have for the dtype."""

    def call(self, function: str, operands: str, dtype: str) -> str:
        return f"{static_call(function, 'std::fma')}({operands})"


@dataclass(frozen=True)
class PassView:
    """A pass: the first line of its function, and the others; `across` tells whether lanes are rows, `is_deep` whether parts of a row are
    combined pairwise, `clips` whether a loop ends within a group of lanes."""

    head: str
    lines: list[str]
    shares: list[Carried]
    across: bool = False
    is_deep: bool = False
    clips: bool = False
    scans: tuple[str, ...] | None = None  # of a pass along rows: the functions that its partials call


@dataclass(frozen=True)
class CppStatic:
    """A file: what it is for, how it is called, constants, the functions that it brings along, its passes, and the function that calls
    them where there is one (`entry_head`), with the workspaces that it makes."""

    file: str
    about: str
    call: str
    constants: list[tuple[str, int]]
    clips: bool
    functions: list[str]
    function_sources: list[Text]
    rounds: bool
    doubles: bool
    passes: list[PassView]
    shares: list[Carried]
    folds: bool
    entry_head: str
    workspaces: list[tuple[str, str, Text]]
    entry_calls: list[str]


class CppPrinter(CStatic[StaticCpp]):
    """The texts of one file."""

    integer = "int64_t"

    def __init__(self, kernel: Kernel, known: Known):
        mine = StaticCpp()
        super().__init__(mine, StaticRender(mine, kernel, known))

    # ------------------------------------------------------------------ the file

    def view(self) -> CppStatic:
        """What the template takes."""
        b, render = self.backend, self.render
        single = len(self.units) == 1 and not self.units[0].scalars
        passes = [self.one(u, single) for u in self.units]
        shares = [a for p in passes for a in p.shares]
        calls = [c for u in self.units for c in u.calls] + [c for a in shares for c in a.combine.calls]
        calls += [c for u in self.units for s in u.scalars for c in b.rounded(s).calls] + [c for p in passes for c in p.scans or ()]
        sources = trimmed(b.functions(calls), {let.tensor_dtype.name for let in render.program.lets if not let.is_number})
        calls += [c for f in sources.values() for c in f.calls]
        sizes = [(render.global_names.user(d), n) for d, n in self.known.named.items()]
        head, entry = self.entry() if not single else ("", [])
        return CppStatic(
            file=self.kernel.name, about=str(self.known), call=bare(f"{render.kernel_name}({', '.join(self.names())})"),
            constants=[*sizes, *([("LANES", LANES)] if shares or any(p.scans is not None for p in passes) else []),
                       *([("BLOCK", BLOCK)] if any(p.is_deep and p.scans is None for p in passes) else [])],
            clips=any(p.clips for p in passes),
            functions=[*sources], function_sources=[*sources.values()], rounds="to" in calls,
            doubles=b.doubles(render) or "to" in calls, passes=passes, shares=shares,
            folds=any(p.shares and not p.across for p in passes), entry_head=head,
            workspaces=[(o.type, o.name, render.product(o.dims)) for u in self.units for o in u.outputs if o.spec_name in render.kept],
            entry_calls=entry,
        )  # fmt: skip

    def function(self, unit: Unit | RowUnit, single: bool) -> str:
        items = [d for d, _ in (*self.arguments(unit), *self.tail(unit))]
        name = f"{unit.name}_pass" if unit.name == self.render.kernel_name and not single else unit.name
        return wrapped(f'extern "C" void {name}' if single else f"void {name}", items, " {")

    def entry(self) -> tuple[str, list[str]]:
        """The function that calls the passes."""
        known = {n for n in self.render.kept}
        calls = []
        for u in self.units:
            name = f"{u.name}_pass" if u.name == self.render.kernel_name else u.name
            given = [f"{self.render.kept[s][1]}.get()" if s in known else p for s, p in ((self.spec(p), p) for _, p in self.arguments(u))]
            calls.append(wrapped(f"    {name}", [*given, *(v for _, v in self.tail(u))], ";").replace("\n", "\n    "))
        return wrapped(f'extern "C" void {self.render.kernel_name}', [*self.interface(), *(d for d, _ in self.tail())], " {"), calls

    # ------------------------------------------------------------------ places

    def parallel(self, dims: Dims, extra: str = "") -> str:
        """The line that shares a loop among threads, where it has enough elements for that to pay."""
        return f"#pragma omp parallel for {extra}schedule(static) if ({self.render.product(dims)} >= {PARALLEL})"

    # ------------------------------------------------------------------ maps

    def map_pass(self, unit: Unit, single: bool) -> PassView:
        """A map: a loop over its elements; where some operand lacks inner dims two, over outer dims and over those."""
        r, tensors, row, i = self.render, (*unit.inputs, *unit.outputs, *unit.indices), named("row"), named("i")
        cut = len(unit.dims)
        while cut and all((d in t.dims) == (unit.dims[-1] in t.dims) for t in tensors for d in unit.dims[cut - 1 :]):
            cut -= 1
        rows, inner = unit.dims[:cut], unit.dims[cut:]
        moving = [t for t in (*unit.inputs, *unit.outputs) if r.place(t.dims, rows, row) is not None]
        in_row = {t.spec_name for t in moving}

        def at(t: Tensor) -> Text:
            return self.at(t, r.place(t.dims, inner, i), row=t.spec_name in in_row)

        c = Code(True, unit.inputs, unit.indices, (), (), unit.lines, (), (), unit.outputs)
        reads = {t.name: source("{0}({1})", t.compute, at(t)) for t in unit.inputs}
        c, often = inlined(c, reads)
        body = [f"const {t.compute} {t.name} = {at(t)};" for t in unit.inputs if t.name in often]
        body += [self.position(x, (rows, row), (inner, i)) for x in unit.indices]
        statements, values = stored(c.lines, c.outputs)
        body += [*self.backend.printed(statements), *(f"{at(o)} = {values[o.name]};" for o in c.outputs)]
        if inner:
            body = block(f"for (int64_t i = 0; i < {r.product(inner)}; i++)", body)
        if rows:
            simd = ["#pragma omp simd"] if inner else []
            body = block(f"for (int64_t row = 0; row < {r.product(rows)}; row++)", [*self.row_pointers(moving, rows, unit), *simd, *body])
        lines = [self.parallel(unit.dims, "" if rows else "simd "), *body] if unit.dims else body
        return PassView(self.function(unit, single), lines, [])

    # ------------------------------------------------------------------ rows

    def one(self, unit: Unit | RowUnit, single: bool) -> PassView:
        """A pass of any kind."""
        if isinstance(unit, ScanUnit):
            return self.scan_pass(unit, single)
        return self.row_pass(unit, single) if isinstance(unit, RowUnit) else self.map_pass(unit, single)

    def scan_pass(self, unit: ScanUnit, single: bool) -> PassView:
        """A pass along rows: a loop over them, in each a loop over blocks, which are combined pairwise, and over a block's elements."""
        texts, length, i = ScanTexts(self, unit), self.render.product(unit.inner), named("i")
        share, partial = texts.share()
        with_own, without = texts.both
        ends, values = texts.ends("now", "past", apart=False)
        element = [f"const int64_t i = {length} - 1 - at;"] if unit.backwards else []
        element += [f"const {t.compute} {t.name} = {t.compute}({texts.at(t, i)});" for t in texts.inputs()]
        element += [*texts.own(i), *share]
        element += ["const Partial past = join(start, here);"] if without else []
        element += [f"here = join(here, Partial{partial});"]
        element += ["const Partial now = join(start, here);"] if with_own else []
        element += [*ends, *(f"{texts.at(o, i)} = {values[o.name]};" for o in unit.stored.outputs)]
        at = "at" if unit.backwards else "i"
        n = self.render.size(unit.inner)
        clips = n is None or n % LANES != 0
        end = f"std::min(first + LANES, {length})" if clips else "first + LANES"
        blocks = block(f"for (int64_t first = 0; first < {length}; first += LANES)", [
            "const Partial start = blocks.total(none, join);", "Partial here = none;",
            *block(f"for (int64_t {at} = first; {at} < {end}; {at}++)", element), "blocks.add(here, join);",
        ])  # fmt: skip
        body = [*self.row_pointers(texts.walked, unit.rows, unit), *self.row_values(unit), "Pairwise<Partial> blocks;", *blocks]
        rows = block(f"for (int64_t row = 0; row < {self.render.product(unit.rows)}; row++)", body)
        lines = [*texts.partial(), self.parallel(unit.dims), *rows]
        return PassView(self.function(unit, single), lines, [], is_deep=True, clips=clips, scans=tuple(texts.calls))

    def row_pass(self, unit: RowUnit, single: bool) -> PassView:
        """A pass over rows: a loop over them, in which every reading is one."""
        r, row = self.render, named("row")
        across = bool(unit.rows and unit.inner) and self.lies_across(unit)
        walked = [t for t in (*unit.inputs, *unit.outputs) if not unit.is_row(t) and r.place(t.dims, unit.rows, row) is not None]
        n = r.size(unit.inner)
        kept = not across and n is not None and n <= LONGEST_KEPT
        printer = RowPrinter(self.backend, r, unit)
        body: list[str] = [] if across else [*self.row_pointers(walked, unit.rows, unit), *self.row_values(unit)]
        shares, deeps = list[Carried](), list[bool]()
        for c in unit.codes:
            own = [self.carried(printer, a) for a in c.accumulators]
            lines = self.element_lines(unit, c, across, kept, {t.spec_name for t in walked})
            is_deep = any(rounds(a) for a in own) and deep(0 if n is None else n if across else -(-n // LANES), 0 if across else 6, n)
            if c.element:
                body += self.reading(unit, c, own, lines, across, is_deep, kept)
            elif across and (c.lines or c.gives or c.outputs):
                body += [f"{g.type} {g.name}_lanes[LANES];" for g in c.gives] + self.lanes("width", lines)
            elif not across:
                body += lines
            shares += own
            deeps.append(is_deep)
        count = r.product(unit.rows)
        if across:
            width = f"const int64_t width = std::min(LANES, {count} - first);"
            loop = block(f"for (int64_t first = 0; first < {count}; first += LANES)", [width, *body])
        else:
            loop = block(f"for (int64_t row = 0; row < {count}; row++)", body)
        clips = across or any(deeps) or bool(shares) and (n is None or n % LANES != 0)
        return PassView(self.function(unit, single), [self.parallel(unit.dims), *loop], shares, across, any(deeps), clips)

    @staticmethod
    def lanes(count: str, lines: list[str], simd: bool = True) -> list[str]:
        """A loop over lanes."""
        return [*(["#pragma omp simd"] if simd else []), *block(f"for (int64_t l = 0; l < {count}; l++)", lines)]

    def reading(
        self, unit: RowUnit, c: Code, shares: list[Carried], lines: list[str], across: bool, is_deep: bool, kept: bool
    ) -> list[str]:  # fmt: skip
        """The loop of a reading, and the row's values that it ends as."""
        r, n = self.render, self.render.size(unit.inner)
        length = str(r.product(unit.inner))
        begin, end = ("first_i", "end") if is_deep and across else ("begin", "end") if is_deep else ("0", length)
        held = [line for a in shares for line in self.start(a, across and is_deep)]
        if across:
            loop = over(f"for (int64_t i = {begin}; i < {end}; i++)", self.lanes("width", lines))
        elif not shares:
            loop = ["#pragma omp simd", *block(f"for (int64_t i = 0; i < {length}; i++)", lines)]
        else:
            width = "LANES" if n is not None and n % LANES == 0 else f"std::min(LANES, {end} - i)"
            loop = over(f"for (int64_t i = {begin}; i < {end}; i += LANES)", self.lanes(width, lines))
        made = [f"{k.type} {k.name}_line[{length}];" for k in c.keeps if kept]
        if not is_deep:
            made += held + loop
            if not across:
                made += [f"const {a.held} {self.result(a)} = folded({a.name}_lanes, {a.combine});" for a in shares]
        else:
            for a in shares:
                kind = f"std::array<{a.held}, LANES>" if across else a.held
                made += f"const auto {a.name}_combine = {self.side_by_side(a, kind) if across else a.combine};".split("\n")
                made.append(f"Pairwise<{kind}> {a.name}_blocks;")
            step = "BLOCK / LANES" if across else "BLOCK"
            inner = [f"const int64_t end = std::min({begin} + {step}, {length});", *held, *loop]
            whole = "{0}_lanes" if across else "folded({0}_lanes, {0}_combine)"
            inner += [f"{a.name}_blocks.add({whole.format(a.name)}, {a.name}_combine);" for a in shares]
            made += block(f"for (int64_t {begin} = 0; {begin} < {length}; {begin} += {step})", inner)
            for a in shares:
                if across:
                    made += self.start(a, True)
                    made.append(f"{a.name}_lanes = {a.name}_blocks.total({a.name}_lanes, {a.name}_combine);")
                else:
                    made.append(f"const {a.held} {self.result(a)} = {a.name}_blocks.total({a.start}, {a.name}_combine);")
        return made + [f"const {a.type} {a.name} = {self.result(a)}.place;" for a in shares if a.place and not across]

    @staticmethod
    def start(a: Carried, apart: bool) -> list[str]:
        """The lines that declare what lanes hold; `apart` where parts of rows side by side are combined."""
        if apart:
            return [f"std::array<{a.held}, LANES> {a.name}_lanes;", f"{a.name}_lanes.fill({a.start});"]
        if a.kind == "sum":
            return [f"{a.held} {a.name}_lanes[LANES] = {{}};"]
        return [f"{a.held} {a.name}_lanes[LANES];", f"for ({a.held}& lane : {a.name}_lanes) lane = {a.start};"]

    @staticmethod
    def side_by_side(a: Carried, kind: str) -> str:
        """The function that combines the partial results of rows side by side."""
        each = "for (int64_t l = 0; l < LANES; l++) all[l] = one(all[l], next[l]);"
        return f"[one = {a.combine}]({kind} all, const {kind}& next) {{\n    {each}\n    return all;\n}}"

    @staticmethod
    def result(a: Carried) -> str:
        return f"{a.name}_found" if a.place else a.name

    def element_lines(self, unit: RowUnit, c: Code, across: bool, kept: bool, in_row: set[str]) -> list[str]:
        """What a phase does for an element, or for a row: what it reads, its statements, its shares of reductions, what it stores."""
        r, row = self.render, named("row")
        i = named("i") if across or not c.accumulators else Text(("i", " + ", "l"), SUM)
        made: list[str] = ["const int64_t row = first + l;"] if across else []

        def at(t: Tensor) -> Text:
            place = r.place(t.dims, unit.inner, i) if c.element and not unit.is_row(t) else None
            if across or unit.is_row(t):
                return self.at(t, r.place(t.dims, unit.rows, row), place)
            return self.at(t, place, row=t.spec_name in in_row)

        inputs = {t.name: t for t in c.inputs if across or not unit.is_row(t)}
        reads = {name: source("{0}({1})", t.compute, at(t)) for name, t in inputs.items()}
        if kept:
            again = {g.name for g in c.repeats}
            c = replace(c, lines=tuple(s for s in c.lines if not again.intersection(s.names)))
            reads |= {name: source("{0}[{1}]", f"{name}_line", i) for name in again}
        c, often = inlined(c, reads)
        words = frozenset[str]().union(*(text.uses for text in c.made))
        made += [f"const {inputs[name].compute} {name} = {at(inputs[name])};" for name in often if name in inputs]
        made += [f"const {g.type} {g.name} = {reads[g.name]};" for g in c.repeats if g.name in often]
        made += [
            self.position(x, (unit.rows, row) if unit.is_row(x) else (unit.inner, i))
            for x in c.indices if x.name in words and (across or not unit.is_row(x))
        ]  # fmt: skip
        if across:
            made += [f"const {g.type} {g.name} = {g.name}_lanes[l]{'.place' if self.is_found(unit, g) else ''};" for g in c.takes]
            made += self.gathers(unit) if c.gathers else []
        given = [text for a in c.accumulators for text in (a.value, a.place)] + [g.text for g in c.gives]
        lines, values = stored(c.lines, c.outputs, given)
        made += self.printed(unit, lines)
        made += [f"{k.name}_line[{i}] = {k.name};" for k in c.keeps if kept]
        made += [self.joining(a) for a in c.accumulators]
        if across:
            made += [f"{g.name}_lanes[l] = {g.text};" for g in c.gives]
        else:
            made += [f"const {g.type} {g.name} = {g.text};" for g in c.gives if g.text != g.name]
        return made + [f"{at(o)} = {values[o.name]};" for o in c.outputs]

    def carried(self, printer: RowPrinter, a: Accumulator) -> Carried:
        """A reduction, with the function that combines two of its partial results."""
        made = printer.carried(a)
        if a.place:
            return made
        value, *_ = self.backend.neutral(a)
        start = f"{'-' * value.startswith('-')}INFINITY" if isinstance(value, str) else made.start
        return replace(made, start=start, combine=source("[]({0} a, {0} b) {{ return {1}; }}", a.type, self.backend.combined(a, "a", "b")))

    def joined(self, a: Accumulator) -> Text:
        """What a lane holds once an element has joined it."""
        lane = f"{a.name}_lanes[l]"
        if a.place:
            least = str(a.kind == "argmin").lower()
            return source("better<{0}>({1}, Found<{2}>{{{3}, {4}}})", least, lane, a.value_type, a.value, a.place)
        return self.backend.combined(a, lane, a.value.fit(CALL))

    def joining(self, a: Accumulator) -> str:
        """The line by which an element joins what a lane holds."""
        return f"{a.name}_lanes[l] += {a.value};" if a.kind == "sum" else f"{a.name}_lanes[l] = {self.joined(a)};"


def written(backend: Cpp, kernel: Kernel, known: Known, planner: object = None) -> str:
    """The static source of a kernel; how rows are walked follows from their layout alone, without a planner."""
    printer = CppPrinter(kernel, known)
    return printer.render.poured(printer.view(), "static.cpp.jinja", printer.render.page())
