"""C++ for the CPU: types, entries and what the templates see.  The skeletons are templates/cpp/*.jinja; passes over rows are written by
kgen.backends.cpp_rows."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from kgen.backends import searching
from kgen.backends.base import Page, Render
from kgen.backends.c_family import BRIEF, CFamily, MapView
from kgen.backends.cpp_rows import RowPrinter, RowsView
from kgen.backends.cpp_scans import ScanPrinter, ScansView
from kgen.backends.sorts import SortUnit
from kgen.backends.text import Text, called, source, wrapped
from kgen.backends.units import Argument, RowUnit, ScanUnit, Tap, Tensor, Unit
from kgen.check import Kernel
from kgen.ir import Let
from kgen.monoids import Rides
from kgen.passes import Plan, Reduce
from kgen.taps import Move
from kgen.types import DType

#: The most elements of a row that is kept in a cache.
SEGMENT = 65536


@dataclass(frozen=True, kw_only=True)
class CppMap(MapView):
    """A map with its run function and entries, each a head and the call in it, and the call of the element function."""

    run_head: str
    entries: list[tuple[str, str]]
    call: str
    each_head: str
    each_call: str
    pairs: tuple[str, str] | None  # where all that is read and written has one dtype, which may be bf16: its type, and what stores two
    held: list[tuple[Argument, str]]  # the scalars beside pairs, with their values: stores of words may change what memory has
    moves: list[tuple[Tap, list[str]]]  # by which each tap lies away: along which index, by how much, whether that wraps


@dataclass(frozen=True, kw_only=True)
class CppSort(SortUnit):
    """A pass that sorts, with its entries, each a head and the call in it."""

    entries: list[tuple[str, str]]


@dataclass(frozen=True)
class CppView:
    """A file: its passes, those that sort apart from the others, whether their entries go over lists of tensors, the functions that it
    brings along, those of the vector library with their arities, and what else it needs."""

    units: list[CppMap | RowsView | ScansView]
    sorts: list[CppSort]
    over_lists: bool
    functions: list[str]
    function_sources: list[Text]
    vectorised: list[tuple[str, int]]
    rounds: bool  # to a storage float, by name
    doubles: bool  # to 16 bits


class Cpp(CFamily):
    name = "cpp"
    own_forms = frozenset(("brief_exp", "brief_sigmoid", "brief_sigmoid_slope", "brief_tanh", "brief_erfc", "near_erfc"))
    brief = BRIEF.replace("DEVICE", "inline")
    scaled = frozenset(("erfc",))
    suffix = ".cpp"
    types = {
        "f16": "f16", "bf16": "bf16", "f32": "float", "f64": "double", "i8": "int8_t", "u8": "uint8_t",
        "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "bool": "bool",
        "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    }  # fmt: skip
    number_types = {"float": "double", "int": "int64_t", "bool": "bool"}
    infinity, not_a_number = "INFINITY", "NAN"
    rides = Rides.LONG
    taps = True
    #: Functions that glibc's vector library serves (2.35 and later), by number of operands.
    vector_library = {
        **dict.fromkeys(
            """acos acosh asin asinh atan atanh cbrt cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 sin sinh tan
            tanh""".split(),
            1,
        ),
        **dict.fromkeys(("atan2", "hypot", "pow"), 2),
    }

    def vectorised(self, calls: Iterable[str]) -> list[tuple[str, int]]:
        """The functions of the vector library among calls, each with its arity."""
        found = set(calls)
        return [(f, n) for f, n in sorted(self.vector_library.items()) if f"std::{f}" in found]

    def library(self, code: str) -> str:
        """What stands before every namespace for a finished source: what it calls of the vector library."""
        found = self.vectorised(called(code, self.comment))
        return self.environment().get_template("libm.cpp.jinja").render(vectorised=found) if found else ""

    def stays(self, p: Reduce, elements: int, dense: bool) -> bool:
        """As the skeleton has it: longer rows are gone through by segments, and keep no values for the next reading."""
        return elements <= SEGMENT

    def layout(self, kernel: Kernel) -> tuple[list[CppMap | RowsView | ScansView | CppSort], Plan]:
        """The views of a kernel's units and its plan: what a launcher must know of the order of arguments."""
        render = Render(self, kernel)
        return [self.unit_view(render, u) for u in render.units()], render.plan

    def unit_view(self, render: Render, unit: Unit | RowUnit | SortUnit) -> CppMap | RowsView | ScansView | CppSort:
        """A pass as the templates take it."""
        if isinstance(unit, SortUnit):
            return self.cpp_sort(render, unit)
        if isinstance(unit, ScanUnit):
            return ScanPrinter(self, render, unit).scans()
        return self.cpp_map(render, unit) if isinstance(unit, Unit) else RowPrinter(self, render, unit).view()

    def cpp_sort(self, render: Render, unit: SortUnit) -> CppSort:
        """A pass that sorts: its entry takes tensors as others do, of which what is written is dense."""
        writable = {t.name for t in unit.outputs}
        params = ["int", "const int64_t* size", *self.tensor_params(render, unit.tensors, writable, {})]
        call = wrapped(f"    {unit.function}", unit.arguments("rank"), ";")
        params[0] += " rank" if unit.rows else ""
        return CppSort(**vars(unit), entries=[(wrapped(f'extern "C" void {unit.name}', params, " {"), call)])

    def view(self, render: Render, units: list[Unit | RowUnit | SortUnit], page: Page) -> CppView:
        """What the templates take of a file."""
        every = [self.unit_view(render, u) for u in units]
        views = [v for v in every if not isinstance(v, CppSort)]
        calls = [c for kind in (Unit, RowUnit) for u in units if isinstance(u, kind) for c in u.calls]
        rows = [v for v in views if isinstance(v, RowsView)]
        calls += [c for v in rows for text in v.combining for c in text.calls] + [c for v in rows for a in v.peaks for c in a.calls]
        calls += [c for v in views if isinstance(v, ScansView) for text in v.joining for c in text.calls]
        calls += [c for v in rows for s in v.searches for c in searching.calls(s)]
        calls += [c for v in views for text in v.rounded.values() for c in text.calls]
        known = self.functions(calls)
        calls += [c for f in known.values() for c in f.calls]
        return CppView(
            units=views,
            sorts=[v for v in every if isinstance(v, CppSort)],
            over_lists=self.over_lists,
            functions=list(known),
            function_sources=list(known.values()),
            vectorised=self.vectorised(calls),
            rounds="to" in calls,
            doubles=self.doubles(render) or "to" in calls,
        )

    def selected(self, lets: Iterable[Let], rows: Container[str], defs: Mapping[str, Let]) -> set[str]:
        """As `Backend.selected` has it: what is added up of a range, which several rows do at a time."""
        return {let.name for let in lets if let.expr.name in ("ranged", "keyed")}

    def of_whole(self, x: Text, given: DType, target: DType, type_name: str, inside: bool) -> Text:
        """As `Backend.of_whole` has it: of what is inside nothing is compared with the ends."""
        if inside and target.bits < 32:
            return source("last_bits<{0}>({1})", type_name, x)
        return super().of_whole(x, given, target, type_name, inside)

    def cpp_map(self, render: Render, unit: Unit) -> CppMap:
        """A map with its run function, which takes the numbers and computes the scalars."""
        v = self.map_view(render, unit)
        numbers = [f"{a.type} {a.name}" for a in v.numbers]
        reaches = [f"int64_t {name}" for name in v.extents]

        def params(bound: dict[str, str]) -> list[str]:
            return ["int rank", "const int64_t* size", *self.tensor_params(render, v.tensors, v.writable, bound), *reaches, *numbers]

        def each_params(bound: dict[str, str]) -> list[str]:
            kinds = [self.tensor_type(render, t, v.writable, bound) for t in v.tensors]
            lists = [f"{kind}* const* {t.name}, int64_t {t.name}_stride" for kind, t in zip(kinds, v.tensors, strict=True)]
            return ["int64_t count", "int64_t chunk", "const int64_t* size", "const int64_t* first", *lists, *numbers]

        passed = [x for t in v.tensors for x in (t.name, f"{t.name}_stride")] + [*v.extents]
        passed += [a.name for a in v.numbers]
        sizes, typed, run = (["rank", "size"], params, "run")
        if self.over_lists:
            sizes, typed, run = (["count", "chunk", "size", "first"], each_params, "each")
        entries = []
        for bound in map(dict, v.bindings):
            head, called_run = self.entry(v.name, bound, run)
            entries.append((wrapped(head, typed(bound), " {"), wrapped(called_run, [*sizes, *passed], ";")))
        values = [f"{t.compute}({t.name}_tile[j + i])" for t in v.read] + [f"{t.name}_tile[j + i]" for t in v.taps]
        values += [f"{x.compute}({x.name}_tile[j + i])" for x in v.indexed]
        pairs = self.pairs_of(v)
        held = [*zip(v.scalars, v.scalar_values, strict=True)] if pairs else []
        scalars = [f"{s.name}_held" for s, _ in held] or v.scalar_values
        results = [] if v.single else [f"{o.name}_i" for o in v.outputs]
        pieces = [x for t in v.tensors for x in (f"{t.name}[own] + begin * {t.name}_stride", f"&{t.name}_stride")]
        chosen = f"<{', '.join(v.variables)}>" if v.variables else ""
        return CppMap(
            **vars(v),
            run_head=wrapped(f"void {v.name}_run", params({}), " {"),
            each_head=wrapped(f"void {v.name}_each", each_params({}), " {"),
            each_call=wrapped(f"{v.name}_run{chosen}", ["1", "&n", *pieces, *(a.name for a in v.numbers)], ";", 110),
            entries=entries,
            pairs=pairs,
            held=held,
            moves=[(t, [self.move(v, m, t) for m in t.by]) for t in v.taps],
            call=wrapped(v.element_call, [*values, *scalars, *results], ";", 100).replace("\n", "\n            "),
        )

    def pairs_of(self, v: MapView) -> tuple[str, str] | None:
        """The type of all that a map of one result reads and writes, if that may be bf16, and the statement that computes two neighbours;
        None too where the vector library is called, behind which few registers are left for the other one."""
        types = {t.type for t in (*v.read, *v.outputs)}
        if not v.single or v.indices or v.taps or len(types) > 1 or not v.read or self.vectorised(v.calls):
            return None
        (kind,) = types
        if kind != "bf16" and not any(dict(bound).get(kind) == "bf16" for bound in v.bindings):
            return None
        both = [[f"{half}({t.name}_pair)" for t in v.read] + [f"{s.name}_held" for s in v.scalars] for half in ("lower", "upper")]
        calls = [wrapped(v.element_call, given, "", 1000) for given in both]
        return kind, wrapped("put", [f"{v.outputs[0].name}_tile + j + i", *calls], ";", 110).replace("\n", "\n" + " " * 20)

    @staticmethod
    def move(v: MapView, m: Move, tap: Tap) -> str:
        """A tap's move along a dim, as C++ makes it."""
        index = next(x.name for x in v.indices if x.spec_name == m.counts)
        given = dict(zip((s.name for s in v.scalars), v.scalar_values, strict=True))
        by = "".join(f" {'-' if sign < 0 else '+'} {given[name]}" for sign, name in m.numbers)
        if m.along:
            reach = v.reach(tap.tensor, m.dim)
            return f"{v.position[index]}, {m.by}{by}, false, {m.times}, {m.over}, {reach.size}, {reach.stride}"
        return f"{v.position[index]}, {m.by}{by}, {str(m.wraps).lower()}"

    def entry(self, name: str, bound: dict[str, str], run: str = "run") -> tuple[str, str]:
        """The heads of the entry of a unit for dtype variables bound to dtypes, and of its call of the run function."""
        chosen = "<" + ", ".join(self.types[d] for d in bound.values()) + ">" if bound else ""
        return f'extern "C" void {"_".join([name, *bound.values()])}', f"    {name}_{run}{chosen}"

    def tensor_params(self, render: Render, tensors: list[Tensor], writable: set[str], bound: dict[str, str]) -> list[str]:
        """Each tensor's pointer and strides as parameters, for dtype variables bound to dtypes (or not)."""
        kinds = [self.tensor_type(render, t, writable, bound) for t in tensors]
        return [f"{kind}* {t.name}, const int64_t* {t.name}_stride" for kind, t in zip(kinds, tensors, strict=True)]

    def tensor_type(self, render: Render, t: Tensor, writable: set[str], bound: dict[str, str]) -> str:
        """The type of a tensor's elements as parameters have it, for dtype variables bound to dtypes (or not)."""
        of = render.computed_of.get(t.type)
        if of is None:
            kind = self.types[bound[t.type]] if t.type in bound else t.type
        elif bound:
            kind = "double" if any(bound[v] == "f64" for v in of) else "float"
        else:
            kind = f"compute<{', '.join(of)}>"
        return f"{'' if t.name in writable else 'const '}{kind}"
