"""CUDA C++: types, literals, and what a launch needs to know.  The skeletons are templates/cuda/map.cu.jinja and rows.cu.jinja.

The same text serves nvcc, which also compiles its host part, and NVRTC, which sees kernels only and no header.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from kgen.backends import cuda_partials as partials
from kgen.backends import scan_launches
from kgen.backends.base import Only, Page, Render, resource
from kgen.backends.c_family import BRIEF, FUNCTIONS, KEYWORDS, CFamily
from kgen.backends.cuda_abreast import longest
from kgen.backends.cuda_lasting import lasting
from kgen.backends.cuda_launches import rounds, table
from kgen.backends.cuda_layouts import SPLATS, TYPES, Groups, Layout, Operand, RowLayout, RowOperand, ScanLayout, SortLayout, groups
from kgen.backends.cuda_maps import CudaMap, MapPrinter
from kgen.backends.cuda_rows import CudaRows, RowPrinter, counts, dear, persists, row_operands
from kgen.backends.cuda_scans import CudaScans, ScanPrinter
from kgen.backends.cuda_windows import divides, reaches_rows, row_index, share_lines, span_index
from kgen.backends.keyed import row_sums
from kgen.backends.sorts import SortUnit
from kgen.backends.text import Text, brought, called, functions, library, source, spelled, wrapped
from kgen.backends.units import Accumulator, RowUnit, ScanUnit, Tensor, Unit
from kgen.check import Kernel
from kgen.ir import Let, literal_of
from kgen.monoids import MONOIDS, Rides
from kgen.ops import OPS, PAIRS, Op, Spell
from kgen.passes import Workspace
from kgen.quotients import is_whole
from kgen.types import Dims, DType

#: Operators whose NaN, on a GPU, is always the same one.
COMPUTED = frozenset(("add", "sub", "mul", "div"))
#: A number between two others, none of them 0.
BETWEEN = Spell("least(greatest({0}, {1}), {2})")
#: Operators whose functions of f32 have no branch.
STRAIGHT = frozenset(("exp", "erfc", "log", "log1p", "sigmoid", "tanh"))
FUNCTIONS_FILE = "kgen_functions.cuh"
NUMBERS_FILE = "kgen_numbers.cuh"
#: Files of the library that are made of tables.
TABLES = {"kgen_launches.cuh": table, "kgen_rounds_table.cuh": rounds, "kgen_scans_table.cuh": scan_launches.table}
FUNCTIONS_HEAD = """// Functions of kgen's kernels that the device's own library lacks, or has not as torch has them.
#pragma once
#include "kgen_numbers.cuh"
"""


def inlined(text: str) -> str:
    """A file of the library as a part of another file."""
    kept = [line for line in text.split("\n") if line != "#pragma once" and not line.startswith('#include "')]
    return "\n".join(kept).strip("\n") + "\n"


def straight(name: str, inner: Mapping[str, Let]) -> set[str]:
    """The functions without a branch that an element's value is made of, by `inner`, which has the lets of elements; none where it reads
    at a place of its own."""
    found, waiting = set[str](), [name]
    while waiting:
        x = inner.get(waiting.pop())
        if x is None or x.expr.name == "where":
            continue
        if x.expr.name not in OPS and x.expr.name not in ("load", "cast"):
            return set()
        found |= {x.name} if x.expr.name in STRAIGHT else set()
        waiting += [o.name for o in x.expr.operands]
    return found


@dataclass(frozen=True, kw_only=True)
class CudaView:
    """What the templates see of a file: its passes, what it has of the library, and functions of the host."""

    units: list[CudaMap | CudaRows | CudaScans]
    sorts: list[SortView]
    library: list[str]
    host_functions: list[Text]
    over_rows: bool
    over_lists: bool
    hosted: bool
    about: str


@dataclass(frozen=True)
class SortView:
    """A pass that sorts: its entry, a function of C, and what it calls; whether rows have keys of their own."""

    entry: tuple[str, str]
    rows: bool


def sort_view(u: SortUnit) -> SortView:
    """A pass that sorts, as the templates take it."""
    written = {t.name for t in u.outputs}
    tensors = [f"{'' if t.name in written else 'const '}i64* {t.name}, const i64* {t.name}_stride" for t in u.tensors]
    call = wrapped(f"    return host::{u.function}", [*u.arguments("rank"), "stream"], ";")
    params = ["int rank" if u.rows else "int", "const i64* size", *tensors, "cudaStream_t stream"]
    head = wrapped(f'extern "C" cudaError_t {u.name}', params, " {")
    return SortView((head, call), bool(u.rows))


class Cuda(CFamily):
    name = "cuda"
    brief = BRIEF.replace("DEVICE", "__device__ inline")
    scaled = frozenset(("erfc",))
    suffix = ".cu"
    types = TYPES
    #: What CUDA's headers declare at global scope, where a kernel's entry may not have the same name.
    keywords = (
        KEYWORDS
        | FUNCTIONS
        | frozenset(
            """__noinline__ __forceinline__ __constant__ __managed__ __restrict__ dim3 uint3 float2 float3 float4 double2 int2 int3 int4
        long2 char1 short1 norm norm3d norm4d rnorm rnorm3d rnorm4d rhypot rcbrt sinpi cospi sincos sincospi normcdf normcdfinv
        erfcinv erfcx exp10 pow10 fdividef fdivide cyl_bessel_i0 cyl_bessel_i1 llrint llround lrint lround lgamma tgamma fdim fmax
        fmin fmaf frexp ldexp logb ilogb modf nan nearbyint nextafter remquo scalbn scalbln umin umax ullmin ullmax llmin llmax labs
        llabs clock clock64 printf memcpy memset erfinv min max launch_bounds asinf expf logf powf sinf cosf tanf tanhf sqrtf fabsf
        fmodf floorf ceilf erff surface texture""".split()
        )
    )
    members = frozenset("add follow merge_peaks rescale merge_sums".split())  # of a reading's result
    number_types = {"float": "double", "int": "i64", "bool": "bool"}
    rides = Rides.EVERY
    merges = taps = shares = draws = makes = picks = True
    pairs = {name: f"{name}_pair" for name in PAIRS}
    infinity, not_a_number = "infinity()", "not_a_number()"

    @property
    def reserved(self) -> frozenset[str]:
        """The host part calls the C++ backend's functions, so their names are taken too."""
        host = frozenset(path.name.split(".")[0] for path in (resource("templates") / "cpp" / "functions").glob("*"))
        found = super().reserved | host | spelled(row.cpp for row in OPS.values())
        return frozenset(name for name in found if len(name) > 1 or not name.isupper())

    def spelled(self, row: Op, let: Let, defs: Mapping[str, Let]) -> Spell:
        """As `Backend.spelled` has it: between bounds other than 0 by the hardware's own maximum and minimum, which put 0 above -0."""
        if row.name == "clamp" and let.tensor_dtype.is_float and all(literal_of(defs[o.name], dict(defs)) for o in let.expr.operands[1:]):
            return BETWEEN
        return super().spelled(row, let, defs)

    def pair(self, code: Let, defs: Mapping[str, Let]) -> str:
        computed = defs[code.expr.operands[0].name].expr.name in COMPUTED
        return f"{self.pairs[code.expr.name]}<{str(computed).lower()}>"

    def selected(self, lets: Iterable[Let], rows: Container[str], defs: Mapping[str, Let]) -> set[str]:
        """As `Backend.selected` has it: what rounds to a whole number, and functions without a branch that all elements need but those
        which equal some float. Around either a branch for each element would take longer."""
        wheres = [(defs[o.name], let.expr.operands[1:]) for let in lets if let.expr.name == "where" for o in let.expr.operands[:1]]
        values = [defs[o.name] for condition, arms in wheres if condition.name in rows for o in arms]
        found = {x.name for x in values if x.dims and x.expr.name != "cast" and is_whole(x, defs)}
        inner = {let.name: let for let in lets if let.dims and let.name not in rows}
        for condition, arms in wheres:
            equals = condition.name in inner and condition.expr.name in ("eq", "ne")
            if equals and any(defs[o.name].is_float for o in condition.expr.operands):
                found = found.union(*(straight(o.name, inner) for o in arms))
        return found

    def of_whole(self, x: Text, given: DType, target: DType, type_name: str, inside: bool) -> Text:
        """As `Backend.of_whole` has it: of 8 bits without the conversion, of which a GPU makes few at a time."""
        function = "last_bits" if inside else "saturate_whole"
        return source(f"{function}<{{0}}>({{1}})", type_name, x) if target.bits == 8 else self.cast(x, given, target, type_name)

    def columns(self) -> list[Spell]:
        """As `Backend.columns` has it; and the functions of two values."""
        return [*super().columns(), *PAIRS.values()]

    # ------------------------------------------------------------------ the source

    #: Whether a source stands alone, as the runtime's compiler takes it; else it includes the library beside it.
    standalone = True
    #: Whether it has the part that the host compiles.
    hosted = True

    def render(self, kernel: Kernel, only: Only | None = None, standalone: bool = True) -> str:
        """As `Backend.render` has it; where the source does not stand alone it includes what `beside` gives."""
        mine = copy(self)
        mine.standalone = standalone
        return CFamily.render(mine, kernel, only)

    def written(self, kernel: Kernel, only: Only | None = None, standalone: bool = False) -> dict[str, str]:
        text = self.render(kernel, only, standalone)
        return {self.file_name(kernel.name): text, **self.beside(text)}

    def beside(self, source: str, found: dict[str, str] | None = None) -> dict[str, str]:
        """The files of the library that a source includes, and those that they include, by name; `found` are there already."""
        found = {} if found is None else found
        for line in source.splitlines():
            if line.startswith('#include "') and (name := line.split('"')[1]) not in found:
                text = self.library_file(name)
                self.beside(text, found)
                found[name] = text  # what a file includes stands before it
        return found

    def library_file(self, name: str) -> str:
        """A file of the library, whole."""
        if name in TABLES:
            return TABLES[name]()
        if name != FUNCTIONS_FILE:
            return (self.template_folder() / "library" / name).read_text()
        known = self.functions(sorted({*library(self.template_folder()), *brought(self.columns())}))
        return "\n".join([FUNCTIONS_HEAD, *known.values()])

    def included(self, views: list[CudaMap | CudaRows | CudaScans]) -> list[str]:
        """What a source has of the library: lines that include it, or its text with those functions alone that are called."""
        code = [line for v in views for line in v.code]
        used = self.functions(called("\n".join(code), self.comment))
        kinds = {"rows": CudaRows, "maps": CudaMap, "scans_run": CudaScans}
        parts = [f"kgen_{kind}.cuh" for kind in ("maps", "rows", "scans_run") if any(isinstance(v, kinds[kind]) for v in views)]
        parts += ["kgen_lists.cuh"] if self.over_lists else []
        parts += ["kgen_parts.cuh"] if any(isinstance(v, CudaMap) and v.turns for v in views) else []
        parts += ["kgen_tiles.cuh"] if any(isinstance(v, CudaMap) and v.tiles for v in views) else []
        parts += ["kgen_taps.cuh"] if any(isinstance(v, CudaMap) and v.taps for v in views) else []
        rowed = [v for v in views if isinstance(v, CudaRows)]
        for walk, name in (("Ranges<", "kgen_ranges.cuh"), ("Aside<", "kgen_aside.cuh")):
            parts += [name] if any(v.walk.startswith(walk) for v in rowed) else []
        parts += ["kgen_made.cuh"] if any(v.makes for v in rowed) else []
        parts += ["kgen_near.cuh"] if any(v.near for v in rowed) else []
        parts += ["kgen_pieces.cuh"] if any(v.pieces for v in rowed) else []
        parts += ["kgen_rounds_plan.cuh"] if any(v.columns for v in rowed) else []
        parts += ["kgen_persistent_plan.cuh"] if any(v.persists for v in rowed) else []
        if not self.standalone:
            return [f'#include "{name}"' for name in (*([FUNCTIONS_FILE] if used else []), *parts)]  # the library calls some of them
        own = self.beside("\n".join(f'#include "{name}"' for name in (NUMBERS_FILE, *parts)))
        return [inlined(text) for text in (own.pop(NUMBERS_FILE), "\n".join(used.values()), *own.values()) if text]

    def view(self, render: Render, units: list[Unit | RowUnit | SortUnit], page: Page) -> CudaView:
        """What the templates take of a file."""
        words = self.words(units)
        views: list[CudaMap | CudaRows | CudaScans] = []
        for u, p in zip(units, render.passes, strict=True):
            if isinstance(u, Unit):
                views.append(MapPrinter(self, render, u, p.scalars).view())
            elif isinstance(u, ScanUnit):
                views.append(ScanPrinter(self, render, u, p.scalars).scans())
            elif isinstance(u, RowUnit):
                views.append(RowPrinter(self, render, u, p.scalars, words).view())
        calls = [c for v in views for text in v.rounded for c in text.calls]
        host = functions(resource("templates") / "cpp", calls, (row.cpp for row in OPS.values()))
        about = "NVRTC builds the same text without the host's parts and without any header."
        return CudaView(
            units=views,
            sorts=[sort_view(u) for u in units if isinstance(u, SortUnit)],
            library=self.included(views),
            host_functions=list(host.values()),
            over_rows=any(v.over_rows for v in views),
            over_lists=self.over_lists,
            hosted=self.hosted and not self.over_lists,
            about=about if self.standalone else "The files that it includes lie beside it.",
        )

    def combined(self, a: Accumulator, x: str, y: str) -> Text:
        if (join := MONOIDS[a.kind].join) in ("max", "min") and a.dtype.kind != "bool":
            return source("greatest({0}, {1})" if join == "max" else "least({0}, {1})", x, y)
        return super().combined(a, x, y)

    # ------------------------------------------------------------------ for the runtime

    @staticmethod
    def words(units: Sequence[Unit | RowUnit | SortUnit]) -> int:
        """The most that a reading's partial takes, in 32-bit words, of all passes over rows of a source: they share one workspace."""
        rows = [u for u in units if isinstance(u, RowUnit) and not isinstance(u, ScanUnit)]
        return max((partials.words(c) for u in rows for c in (*u.codes, *u.long)), default=0)

    def layout(self, kernel: Kernel) -> tuple[Layout | RowLayout | SortLayout, ...]:
        """How each unit of a kernel is launched, in the order of its passes.

        Raises `KgenError` where the kernel holds what no schedule covers.
        """
        render = Render(self, kernel)
        return self.launched(render, render.units())

    def launched(self, render: Render, units: list[Unit | RowUnit | SortUnit]) -> tuple[Layout | RowLayout | SortLayout, ...]:
        """`layout` of the units of a kernel that is rendered."""
        kernel = render.kernel
        words, spec = self.words(units), {name: v for v, name in render.variables.items()}
        numbers = tuple(let for let in render.program.lets if let.is_number)
        made: list[Layout | RowLayout | SortLayout] = []
        for unit, p in zip(units, render.passes, strict=True):
            if isinstance(unit, SortUnit):
                written = {part: t.spec_name for part, t in unit.written.items()}
                made.append(SortLayout(unit.dims, unit.keys.spec_name, written, unit.axis))
                continue
            name, variables = f"{unit.name}_kernel", tuple(spec[v] for v in unit.variables)
            if isinstance(unit, RowUnit):
                found = tuple(w.record for w in row_operands(render, unit)[0])
                rereads = {o.name for o in found if o.role == "state" and not o.element} & {t.spec_name for t in unit.inputs}
                if isinstance(unit, ScanUnit):
                    partial = sum(8 * len(MONOIDS[a.kind].fields) for a in unit.scanned.accumulators)
                    made.append(
                        ScanLayout(name, unit.rows, unit.inner, variables, found, p.scalars, numbers, 0, True, 0, bool(rereads), 0,
                                   backwards=unit.backwards, partial=partial)
                    )  # fmt: skip
                    continue
                lines = tuple(k for k, o in enumerate(found) if o.role == "index" and o.name in {b.dim for b in unit.near})
                reads, long = counts(unit.codes, bool(unit.pieces)), counts(unit.long or unit.codes)[0]
                made.append(
                    RowLayout(
                        name, unit.rows, unit.inner, variables, found, p.scalars, numbers, *reads, words, bool(rereads), long,
                        partials.column_words(unit.columns), persists(unit, found), any(c.search for c in unit.codes), unit.aside,
                        len(unit.pieces), pairs(kernel.parts, found, unit.rows) if unit.columns and not reads[0] else (), lines,
                        unit.on_the_way, lasting(unit, found, render), dear(unit), longest(unit),
                    )
                )  # fmt: skip
                continue
            tensors, loaded = self.operands(render, unit)[0], {t.name for t in unit.read}
            operands = tuple(Operand(t.spec_name, t.dtype, t.dims, role(t, unit)) for t in tensors)
            used = [(t.name in loaded, o.role in ("state", "result")) for t, o in zip(tensors, operands, strict=True)]
            own = groups(() if unit.taps else kernel.parts, [(o.name, o.dims, u) for o, u in zip(operands, used, strict=True)])
            reaches = tuple((r.tensor.spec_name, r.tensor.dims, r.dim) for r in unit.reaches)
            below, index = reaches_rows(unit), row_index(unit)
            row, along = (
                next((k for k, o in enumerate(operands) if o.role == "index" and o.name == name), -1) for name in (index, span_index(unit))
            )
            near = len(unit.taps), below, own, reaches, row, divides(unit), along, share_lines(unit), bool(unit.words)
            made.append(Layout(name, unit.dims, variables, operands, p.scalars, numbers, *near))
        return tuple(with_sums(render, made))

    def workspaces(self, kernel: Kernel) -> tuple[Workspace, ...]:
        """What the passes of a kernel leave for one another."""
        return Render(self, kernel).plan.workspaces

    def for_launches(self, kernel: Kernel) -> tuple[str, tuple[Layout | RowLayout | SortLayout, ...], tuple[Workspace, ...]]:
        """What `render`, `layout` and `workspaces` give of a kernel, which is read once for all three; the source is without the host's
        part, whose templates need not be compiled then."""
        mine = copy(self)
        mine.storage_names, mine.hosted = frozenset(kernel.variables), False
        render = Render(mine, kernel)
        units = render.units()
        return render.source(units), self.launched(render, units), render.plan.workspaces


def with_sums(render: Render, units: list[Layout | RowLayout | SortLayout]) -> Iterator[Layout | RowLayout | SortLayout]:
    """Units, those that sort each row's keys with what their order is read for alone, if that is one reduction."""
    declared = {o.name: o.dtype for unit in units for o in unit.operands}
    for k, unit in enumerate(units):
        yield replace(unit, sums=row_sums(render.passes, k, declared)) if isinstance(unit, SortLayout) and unit.axis is not None else unit


def pairs(
    parts: Sequence[tuple[str, str, tuple[tuple[str, int], ...]]], operands: Sequence[RowOperand], rows: Dims
) -> Groups:  # fmt: skip
    """The two operands of each tensor that are its parts along one dim, which a pass that adds up columns may move in turns: read or
    written along `rows`, and one beside the other.  None where there are more operands than have a bit for that in the kernel's `Walk`."""
    moved = [o.element and o.role in ("input", "result") and bool(set(o.dims) & set(rows)) for o in operands]
    used = [(o.name if m else "", o.dims, (o.role == "input", o.role == "result")) for o, m in zip(operands, moved, strict=True)]
    found = groups(parts, used)
    return tuple(own for own in found if len(own) == 2 and own[1] == own[0] + 1) if len(operands) <= 16 else ()


def role(t: Tensor, unit: Unit) -> str:
    """What a map does with an operand: see `Operand`."""
    if t in unit.indices:
        return "index"
    if t.spec_name in {o.spec_name for o in unit.outputs if o.state}:
        return "state"
    return "input" if t in unit.inputs else "result"


__all__ = ["SPLATS", "Cuda", "Layout", "Operand", "RowLayout", "RowOperand", "ScanLayout", "SortLayout"]
