"""CUDA C++: types, literals, and what a launch needs to know.  The skeletons are templates/cuda/map.cu.jinja and rows.cu.jinja.

The same text serves nvcc, which also compiles its host part, and NVRTC, which sees kernels only and no header.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from kgen.backends.base import Only, Page, Render, resource
from kgen.backends.c_family import FUNCTIONS, KEYWORDS, CFamily
from kgen.backends.names import Names
from kgen.backends.text import Text, brought, called, functions, library, source, spelled, wrapped
from kgen.backends.units import Accumulator, Argument, Code, RowUnit, Tensor, Unit
from kgen.check import Kernel
from kgen.ir import Let
from kgen.ops import OPS
from kgen.schedule import Scalar, Workspace
from kgen.types import DTYPES, ELLIPSIS, INT, Dims

#: Operands that a SPLAT mask can hold.
SPLATS = 63
FUNCTIONS_FILE = "kgen_functions.cuh"
NUMBERS = ("kgen_numbers.cuh",)
FUNCTIONS_HEAD = """// Functions of kgen's kernels that the device's own library lacks, or has not as torch has them.
#pragma once
#include "kgen_numbers.cuh"
"""
READINGS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")


@dataclass(frozen=True)
class Operand:
    """What a kernel walks through, by its name in the spec: "input", "state" (written in place), "result", or "index",
    which has no memory: `name` is its dim, its stride is 1 along it and 0 elsewhere."""

    name: str
    dtype: str
    dims: Dims
    role: str


@dataclass(frozen=True)
class Layout:
    """How one unit (a pass) of a kernel is launched.

    Operands are in the order of the kernel's strides; their pointers, without those of "index" operands, are the kernel's
    arguments in that order, and the scalars follow.  The last operand is always written.
    """

    kernel: str  # the name of the kernel's template
    dims: Dims
    variables: tuple[str, ...]  # the dtype variables that it is a template over, as named in the spec
    operands: tuple[Operand, ...]
    scalars: tuple[Scalar, ...]
    numbers: tuple[Let, ...]  # what the scalars' numbers are computed from, in order

    def scalar_dtypes(self, binding: dict[str, str]) -> tuple[str, ...]:
        """The dtype in which each scalar is passed, for dtype variables bound by name (`{"T": "bf16"}`)."""
        return tuple(_passed(s, binding) for s in self.scalars)

    def expression(self, binding: dict[str, str], rank: int, vec: int, wide: bool, splat: int) -> str:
        """The kernel's C++ name for a variant, as NVRTC takes it: `gelu_kernel<bf16, 1, 8, unsigned, 0>`."""
        types = "".join(f"{Cuda.types[binding[v]]}, " for v in self.variables)
        return f"{self.kernel}<{types}{rank}, {vec}, {'u64' if wide else 'unsigned'}, {splat}>"


@dataclass(frozen=True)
class RowOperand:
    """What a kernel over rows walks through: as `Operand`, or a "gather" from `name` along `dim`; `element` if it has elements
    along a row, `kept` if several readings need it."""

    name: str
    dtype: str
    dims: Dims
    role: str
    element: bool
    kept: bool = False
    dim: str = ""


@dataclass(frozen=True)
class RowLayout:
    """How a pass over rows is launched: its operands are in the order of the kernel's strides, and all but indices have a pointer.

    `reductions` counts the readings that reduce, `stores` says whether one more stores elements; `words` is the room that a
    segment's result takes, in 32-bit words; `rereads` whether it writes a row's value where it also reads one.
    """

    kernel: str
    rows: Dims
    inner: Dims
    variables: tuple[str, ...]
    operands: tuple[RowOperand, ...]
    scalars: tuple[Scalar, ...]
    numbers: tuple[Let, ...]
    reductions: int
    stores: bool
    words: int
    rereads: bool

    @property
    def dims(self) -> Dims:
        return (*self.rows, *self.inner)

    def scalar_dtypes(self, binding: dict[str, str]) -> tuple[str, ...]:
        return tuple(_passed(s, binding) for s in self.scalars)

    def expression(self, binding: dict[str, str], walk: str) -> str:
        """The kernel's C++ name for a way of walking, as NVRTC takes it."""
        types = "".join(f"{Cuda.types[binding[v]]}, " for v in self.variables)
        return f"{self.kernel}<{types}{walk}>"


def _stored(s: Scalar) -> bool:
    """Whether a scalar is a number cast by name to a storage float: the kernel rounds it itself, from f64 or i64."""
    return s.let.generic.startswith("=") or s.let.tensor_dtype.narrow


def _passed(s: Scalar, binding: dict[str, str]) -> str:
    if _stored(s):
        return "i64" if s.number.dtype == INT else "f64"
    if s.let.generic:
        return "f64" if any(binding[v] == "f64" for v in s.let.generic.split("+")) else "f32"
    return s.let.tensor_dtype.name


def inlined(text: str) -> str:
    """A file of the library as a part of another file."""
    kept = [line for line in text.split("\n") if line != "#pragma once" and not line.startswith('#include "')]
    return "\n".join(kept).strip("\n") + "\n"


class Cuda(CFamily):
    name = "cuda"
    suffix = ".cu"
    types = {
        "f16": "f16", "bf16": "bf16", "f32": "float", "f64": "double", "i8": "i8", "u8": "u8", "i16": "i16", "i32": "i32", "i64": "i64",
        "bool": "bool",
    }  # fmt: skip
    integers = {
        "i8": "signed char",
        "u8": "unsigned char",
        "i16": "short",
        "i32": "int",
        "i64": "long long",
        "u32": "unsigned",
        "u64": "unsigned long long",
    }
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
    macros = re.compile(rf"{CFamily.macros.pattern}|Step\d+")  # the host part's names for the launches of a split
    members = frozenset("add follow merge_peaks rescale merge_sums".split())  # of a reading's result
    number_types = {"float": "double", "int": "i64", "bool": "bool"}
    rides = True
    infinity, not_a_number = "infinity()", "not_a_number()"

    @property
    def reserved(self) -> frozenset[str]:
        """The host part calls the C++ backend's functions, so their names are taken too."""
        host = frozenset(path.name.split(".")[0] for path in (resource("templates") / "cpp" / "functions").glob("*"))
        found = super().reserved | host | spelled(row.cpp for row in OPS.values()) | self.integers.keys()
        return frozenset(name for name in found if len(name) > 1 or not name.isupper())

    # ------------------------------------------------------------------ the source

    #: Whether a source stands alone, as the runtime's compiler takes it; else it includes the library beside it.
    standalone = True

    def render(self, kernel: Kernel, only: Only | None = None, standalone: bool = True) -> str:
        """As `Backend.render` has it; where the source does not stand alone it includes what `beside` gives."""
        mine = copy(self)
        mine.standalone = standalone
        return CFamily.render(mine, kernel, only)

    def written(self, kernel: Kernel, only: Only | None = None, standalone: bool = False) -> dict[str, str]:
        text = self.render(kernel, only, standalone)
        return {self.file_name(kernel.name): text, **self.beside(text)}

    def beside(self, source: str) -> dict[str, str]:
        """The files of the library that a source includes, and those that they include, by name."""
        found: dict[str, str] = {}
        for line in source.splitlines():
            if line.startswith('#include "'):
                name = line.split('"')[1]
                found |= {name: self.library_file(name), **self.beside(self.library_file(name))}
        return found

    def library_file(self, name: str) -> str:
        """A file of the library, whole."""
        if name != FUNCTIONS_FILE:
            return (self.template_folder() / "library" / name).read_text()
        known = self.functions(sorted(library(self.template_folder()) | brought(self.columns())))
        return "\n".join([FUNCTIONS_HEAD, *known.values()])

    def included(self, render: Render, units: list[Unit | RowUnit], views: list[dict[str, Any]]) -> list[str]:
        """What a source has of the library: lines that include it, or its text with those functions alone that are called."""
        code: list[str] = []
        for u, v in zip(units, views, strict=True):
            if isinstance(u, Unit):
                code += [*v["lines"], *(o.value for o in u.outputs), *v["arguments"]]
            else:
                code += [*v["opening"], *(line for lines in v["phases"] for line in lines)]
        used = self.functions(called("\n".join(code), self.comment))
        parts = [f"kgen_{kind}.cuh" for kind, of in (("maps", Unit), ("rows", RowUnit)) if any(isinstance(u, of) for u in units)]
        if not self.standalone:
            return [f'#include "{name}"' for name in (*parts, *([FUNCTIONS_FILE] if used else []))]
        texts = [self.library_file("kgen_numbers.cuh"), "\n".join(used.values())]
        for name in parts:
            own = {**self.beside(self.library_file(name)), name: self.library_file(name)}
            texts += [text for f, text in own.items() if f not in NUMBERS]
        return [inlined(text) for text in texts if text]

    def view(self, render: Render, units: list[Unit | RowUnit], page: Page) -> Any:
        context = {**vars(page)}
        context["units"] = views = self.views(render, units, context)
        for u, v, p in zip(units, views, render.passes, strict=True):
            if isinstance(u, Unit):
                self.launch_view(render, u, v, p.scalars, context)
        self.share_room(views)
        for v in views:
            if v["over_rows"]:
                self.pass_view(v)
        numbers = "\n".join(text for v in views for text in v["rounded"].values())
        host = functions(resource("templates") / "cpp", called(numbers, self.comment), (row.cpp for row in OPS.values()))
        about = "NVRTC builds the same text without the host's parts and without any header."
        context.update(
            library=self.included(render, units, views), host_functions=list(host.values()), over_rows=any(v["over_rows"] for v in views),
            about=about if self.standalone else "The files that it includes lie beside it.",
        )  # fmt: skip
        return SimpleNamespace(**context)

    # ------------------------------------------------------------------ passes over rows

    def row_operands(self, render: Render, unit: RowUnit) -> tuple[list[tuple[str, str, str, RowOperand]], dict[str, str]]:
        """The operands of a pass over rows as (name of the code's value, pointer, C++ type, operand), and each output's pointer."""
        readings = [c for c in unit.codes if c.element]
        pointers = {o.name: render.global_names.user(o.spec_name) if o.state else o.name for o in unit.outputs}
        written = set(pointers.values())
        found: list[tuple[str, str, str, RowOperand]] = []
        for t in sorted(unit.inputs, key=unit.is_row):
            role = "state" if t.name in written else "input"
            kept = sum(t in c.inputs for c in readings) > 1
            found.append((t.name, t.name, t.type, RowOperand(t.spec_name, t.dtype, t.dims, role, not unit.is_row(t), kept)))
        for t in unit.indices:
            found.append((t.name, "", t.type, RowOperand(t.spec_name, t.dtype, t.dims, "index", not unit.is_row(t))))
        for g in unit.gathers:
            t = g.tensor
            found.append((g.name, g.name, t.type, RowOperand(t.spec_name, t.dtype, t.dims, "gather", False, False, g.dim)))
        for o in unit.outputs:
            if pointers[o.name] not in {pointer for _, pointer, _, _ in found}:
                role = "state" if o.state else "result"
                found.append((o.name, pointers[o.name], o.type, RowOperand(o.spec_name, o.dtype, o.dims, role, not unit.is_row(o))))
        return found, pointers

    @staticmethod
    def share_room(views: list[dict[str, Any]]) -> None:
        """Give all passes over rows of a source the room for results that the largest needs, in words: they share one workspace."""
        rows = [v for v in views if v.get("over_rows")]
        most = max((v["words"] for v in rows), default=0)
        for v in rows:
            v["words"] = most

    def pass_view(self, v: dict[str, Any]) -> None:
        """What the host's part says of a pass over rows to the library: its `Pass`, and what the numbers there are."""
        vec = f"16 / {v['width']}"
        reads, held = v["reductions"], v["held"] if v["clusters"] else "0"
        if not reads and not v["stores"]:
            vec, v["wide"] = "1", 0
        v["pass_about"] = "operands, gathers, main, elements of a vector, along a row, readings, stores, words, bytes held, splits"
        v["pass"] = ", ".join([
            str(len(v["operand_names"])), str(v["gather_count"]), str(v["main"]), vec, str(v["wide"]), str(reads), str(v["stores"]).lower(),
            str(v["words"]), held, str(v["splits"]).lower(),
        ])  # fmt: skip

    @staticmethod
    def words(unit: RowUnit) -> int:
        """The most that a reading's result takes, in 32-bit words."""
        return max((sum(4 if a.place or a.kind == "offsum" else 2 for a in c.accumulators) for c in unit.codes), default=0)

    def combined(self, a: Accumulator, x: str, y: str) -> Text:
        if a.kind in ("max", "min") and a.dtype.kind != "bool":
            return source("greatest({0}, {1})" if a.kind == "max" else "least({0}, {1})", x, y)
        return super().combined(a, x, y)

    def views(self, render: Render, units: list[Unit | RowUnit], context: dict[str, Any]) -> list[dict[str, Any]]:
        made = []
        for u, p in zip(units, render.passes, strict=True):
            more = {"over_rows": False, "single": u.single, "lines": self.printed(u.lines)} if isinstance(u, Unit) else {}
            made.append(vars(self.map_view(render, u)) | more if isinstance(u, Unit) else self.over_rows(render, u, p.scalars, context))
        return made

    def over_rows(self, render: Render, unit: RowUnit, given: tuple[Scalar, ...], context: dict[str, Any]) -> dict[str, Any]:
        """A pass over rows as the text of its kernel: what comes before the phases (`opening`), and the lines of each."""
        operands, pointers = self.row_operands(render, unit)
        position = {pointer or name: k for k, (name, pointer, _, _) in enumerate(operands)}
        words = unit.uses
        spelled = {g: f"compute<{', '.join(of)}>" for g, of in context["generics"].items()}
        scalars, opening = [], []
        for s, scalar in zip(unit.scalars, given, strict=True):
            passed = self.types[_passed(scalar, {})] if _stored(scalar) else s.type
            scalars.append((s, passed, f"{spelled.get(passed, passed)} {s.name}{'_given_k' if passed != s.type else ''}"))
            if passed != s.type:
                opening.append(f"const {s.type} {s.name} = to<{s.type}>({s.name}_given_k);")
        used = words | set(re.findall(r"\w+", "\n".join(opening)))
        opening = [line for line in opening if line.split()[2] in used]
        for k, (name, pointer, _, o) in enumerate(operands):
            if o.role == "gather":
                g = next(g for g in unit.gathers if g.name == name)
                nth = [n for n, *_ in operands if n in {g.name for g in unit.gathers}].index(name)
                call = f"walk.template gathered<{k}>({pointer}_ptr, {nth}, place)"
                opening.append(f"const auto {name} = [&](i64 place) {{ return {g.tensor.compute}({call}); }};")
        for name, _, _, o in operands:
            if o.role == "index" and not o.element:
                opening.append(f"const i64 {name} = walk.template row_index<{position[name]}>();")
        read = {t.name for c in unit.codes for t in c.inputs}
        for t in unit.inputs:
            if unit.is_row(t) and t.name in read:
                opening.append(f"const {t.compute} {t.name} = {t.compute}(*walk.template at<{position[t.name]}>({t.name}_ptr));")
        for name, pointer, _, o in operands:
            if o.element and o.role == "index":
                opening.append(f"auto {name}_row = walk.template position<{position[name]}>();")
            elif o.element and pointer in read:
                opening.append(f"auto {pointer}_row = walk.template {'keep' if o.kept else 'input'}<{position[pointer]}>({pointer}_ptr);")
        phases: list[list[str]] = []
        declared: set[str] = set()
        reading = 0
        reductions = sum(1 for c in unit.codes if c.accumulators)
        if reductions <= 16 and any(o.kept for *_, o in operands):
            opening.insert(0, f"walk.template start<{reductions}>();")
        for k, c in enumerate(unit.codes):
            later = frozenset[str]().union(*(x.uses for x in unit.codes[k + 1 :]))
            if not c.element:
                lines = [*self.printed(c.lines), *(f"const {g.type} {g.name} = {g.text};" for g in c.gives if g.text != g.name)]
                lines = [line for line in lines if line not in declared]  # a constant that two phases use: both are one scope
                declared.update(lines)
                stores = [self.row_store(o, pointers[o.name], position[pointers[o.name]]) for o in c.outputs]
                if len(stores) == 1:
                    lines.append(f"if (walk.leader()) {stores[0]}")
                elif stores:
                    lines += ["if (walk.leader()) {", *(f"    {text}" for text in stores), "}"]
                if phases and reading and lines:
                    phases[-1] += lines
                elif lines:
                    phases.append(lines)
            else:
                if reading:  # a launch of a split row that was for the readings before this one ends here
                    phases[-1].append(f"if (walk.stops({2 * reading - 1})) return;")
                phases.append(self.reading(unit, c, reading, later) if c.accumulators else self.storing(c, pointers, position))
                reading += bool(c.accumulators)
        memory = [(name, pointer, type_name, o) for name, pointer, type_name, o in operands if o.role != "index"]
        params = [
            f"{'' if o.role in ('state', 'result') else 'const '}{spelled.get(type_name, type_name)}* {pointer}_ptr"
            for _, pointer, type_name, o in memory
        ]
        element_stores = any(c.element and c.outputs for c in unit.codes)
        kept = any(o.kept for *_, o in operands)
        texts = "\n".join([*opening, *(line for lines in phases for line in lines)])
        device = set(re.findall(r"\w+", texts))
        name = f"{unit.name}_kernel"
        head = ["const __grid_constant__ typename Walk::Layout rows", *params, *(text for _, _, text in scalars)]
        host = self.host_rows(render, unit, operands, scalars, context)
        return host | {
            "over_rows": True, "name": unit.name, "kernel": name, "variables": unit.variables, "bindings": unit.bindings,
            "accumulators": [{"combine": ""}], "rounded": {s.name: self.rounded(s) for s in unit.scalars},
            "typename": ", ".join(f"typename {v}" for v in unit.variables), "chosen": "".join(f"{v}, " for v in unit.variables),
            "kernel_head": wrapped(name, head, " {"), "opening": opening, "phases": phases, "gathers": bool(unit.gathers),
            "kernel_aliases": {a: of for a, of in context["generics"].items() if a in device | words},
            "operand_names": [f"index[{o.name}]" if o.role == "index" else pointer for _, pointer, _, o in operands],
            "about": self.about(reductions, element_stores), "reductions": reductions, "stores": element_stores,
            "words": self.words(unit), "clusters": kept and reductions <= 16, "operands": operands, "pointers": pointers,
            "scalars": scalars, "numbers": unit.numbers,
        }  # fmt: skip

    def host_rows(
        self, render: Render, unit: RowUnit, operands: list[tuple[str, str, str, RowOperand]], scalars: list[tuple[Argument, str, str]],
        context: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        """What the host's part needs of a pass over rows."""
        names = Names(set(render.global_names.taken) | set(render.global_names.given.values()))
        gathers = {g.name: g for g in unit.gathers}
        own = {pointer for _, pointer, _, o in operands if o.role not in ("index", "gather")}
        order = [render.global_names.user(p.name) for p in render.kernel.params]
        memory: dict[str, tuple[str, bool]] = {}
        for name, pointer, type_name, o in operands:
            if o.role != "index":
                tensor = gathers[name].tensor.name if name in gathers else pointer
                memory.setdefault(tensor, (type_name, o.role in ("state", "result")))
        tensors = sorted(memory, key=lambda t: order.index(t) if t in order else len(order))
        stride = {t: names.fresh(f"{t}_stride") for t in tensors}
        gather_stride = {g: names.fresh(f"{g}_stride") for g in gathers}
        numbers = [f"{a.type} {a.name}" for a in unit.numbers]

        def params(bound: dict[str, str]) -> list[str]:
            made = ["int rank", "int outer", "const i64* size"]
            for t in tensors:
                type_name, written = memory[t]
                type_name = self.element_type(type_name, bound, context)
                made.append(f"{'' if written else 'const '}{type_name}* {t}" + (f", const i64* {stride[t]}" if t in own else ""))
            made += [f"const i64* {gather_stride[g.name]}, i64 {g.stride}" for g in unit.gathers]
            return [*made, *numbers, "cudaStream_t stream"]

        passing = ["rank", "outer", "size", *(f"{t}, {stride[t]}" if t in own else t for t in tensors)]
        passing += [f"{gather_stride[g.name]}, {g.stride}" for g in unit.gathers] + [a.name for a in unit.numbers] + ["stream"]
        run = names.fresh(f"{unit.name}_run")
        entries = []
        for bound in map(dict, unit.bindings):
            types = "<" + ", ".join(self.types[d] for d in bound.values()) + ">" if bound else ""
            head = wrapped(f'extern "C" cudaError_t {"_".join([unit.name, *bound.values()])}', params(bound), " {")
            entries.append((head, self.indented(wrapped(f"    return host::{run}{types}", passing, ";"), 4)))
        rounded = {s.name: self.rounded(s) for s in unit.scalars}
        plain = {s.name: s.text == s.name or re.fullmatch(r"\w+", s.text) is not None for s in unit.scalars}
        computed = [(replace(s, type=kind), rounded[s.name] if "saturate" in rounded[s.name] else f"{kind}({s.text})")
                    for s, kind, _ in scalars if not plain[s.name]]  # fmt: skip
        passed = [s.name if not plain[s.name] else rounded[s.name] if kind == s.type else s.text for s, kind, _ in scalars]
        pointers = [gathers[name].tensor.name if name in gathers else pointer for name, pointer, _, o in operands if o.role != "index"]
        given = ["pass()", "rank", "outer", "size", "operands", "stream", "kernel", *pointers, *passed]
        index_stride = {name: names.fresh(f"{name}_stride") for name, pointer, _, o in operands if o.role == "index"}
        index_strides = []
        for name, _, _, o in operands:
            if o.role != "index":
                continue
            dims, end = (unit.inner, "rank") if o.element else (unit.rows, "outer")
            named = [d for d in dims if d != ELLIPSIS]
            if o.name == ELLIPSIS:
                index_strides.append((index_stride[name], True, "outer" if o.element else "0", f"{end} - {len(named)}"))
            else:
                index_strides.append((index_stride[name], False, f"{end} - {len(named) - named.index(o.name)}", ""))
        host_operands, element = [], []
        for k, (name, pointer, type_name, o) in enumerate(operands):
            steps = index_stride[name] if o.role == "index" else gather_stride[name] if name in gathers else stride[pointer]
            tail = f", {gathers[name].size}, {gathers[name].stride}" if name in gathers else ""
            tensor = gathers[name].tensor.name if name in gathers else pointer
            host_operands.append((tensor, steps, type_name, o.role != "index", str(o.element).lower(), tail))
            if o.element and o.role != "index":
                element.append(k)
        last = unit.inner[-1] if unit.inner else ""
        inside = [k for k in element if last in operands[k][3].dims]
        main = max(element, key=lambda k: (operands[k][3].role != "result", len(set(operands[k][3].dims) & set(unit.inner)), -k), default=0)
        moving = [operands[k] for k in inside]
        held = [f"int(sizeof({type_name}))" for _, _, type_name, o in operands if o.kept]
        host = set(
            re.findall(r"\w+", " ".join([*passed, *(f"{s.type} {value}" for s, value in computed), *(t for t, _ in memory.values())]))
        )
        rereads = {o.name for *_, o in operands if o.role == "state" and not o.element} & {t.spec_name for t in unit.inputs}
        stores = any(c.element and c.outputs for c in unit.codes)
        return {
            "run_head": wrapped(f"cudaError_t {run}", params({}), " {"), "entries": entries, "computed": computed,
            "host_aliases": {a: of for a, of in context["generics"].items() if a in host},
            "host_operands": host_operands, "index_strides": index_strides, "main": main, "gather_count": max(1, len(gathers)),
            "wide": sum(1 << k for k in inside), "held": " + ".join(held) or "0", "splits": not (rereads and stores),
            "width": self.widest_of([(o.dtype, type_name) for _, _, type_name, o in moving]) if moving else "4",
            "launch": self.indented(wrapped("return run_rows", given, ";", 120), 4),
        }  # fmt: skip

    @staticmethod
    def about(reductions: int, stores: bool) -> str:
        times = ("not read", "read once", "read twice")[reductions] if reductions < 3 else f"read {reductions} times"
        if not reductions:
            return "One element for each row."
        return f"A row is {times} to reduce it" + (", and once more to store what follows." if stores else ".")

    @staticmethod
    def row_store(o: Tensor, pointer: str, position: int) -> str:
        value = o.value if o.compute == o.type else f"{o.type}({o.value})"
        return f"*walk.template at<{position}>({pointer}_ptr) = {value};"

    @staticmethod
    def taken(c: Code) -> tuple[list[str], list[str]]:
        """What an element phase's code takes of the operands: its parameters, and the operands."""
        params = [*(f"{t.compute} {t.name}" for t in c.inputs), *(f"i64 {t.name}" for t in c.indices)]
        return params, [f"{t.name}_row" for t in (*c.inputs, *c.indices)]

    def reading(self, unit: RowUnit, c: Code, r: int, later: frozenset[str]) -> list[str]:
        """A reading that reduces: the type of its result, the reading, and the row's values that it gives."""
        kind = READINGS[r] if r < len(READINGS) else f"Reading{r + 1}"
        value = kind.lower()
        fields, adds, follows, given = [], [], [], []
        for a in c.accumulators:
            if a.place:
                fields.append(f"{a.value_type} {a.name}_part = {self.identity(a)};")
                fields.append(f"typename Walk::Place {a.name} = Walk::LAST;")
                least = str(a.kind == "argmin").lower()
                adds.append(f"if (goes_before<{least}>(more.{a.name}_part, more.{a.name}, {a.name}_part, {a.name})) {{")
                taken = [f"    {a.name}_part = more.{a.name}_part;", f"    {a.name} = more.{a.name};", "}"]
                adds += taken
                goes_on = f"{a.name}_part {'<=' if a.kind == 'argmin' else '>='} more.{a.name}_part"
                nan = f"{a.name}_part != {a.name}_part"
                follows += [f"if (!({goes_on}{f' || {nan}' if a.value_dtype and a.value_dtype.is_float else ''})) {{", *taken]
                given += [a.value, f"typename Walk::Place({a.place})"]
            else:
                fields.append(f"{a.type} {a.name} = {self.identity(a)};")
                if not a.peak:
                    adds.append(f"{a.name} = {self.combined(a, a.name, f'more.{a.name}')};")
                    follows.append(adds[-1])
                    given.append(a.value)
        riders = [a for a in c.accumulators if a.peak]
        params, operands = self.taken(c)
        fields += [f"{a.type} {a.name}_count = 0;" for a in riders if a.kind == "offsum"]
        made = [f"struct {kind} {{", *(f"    {f}" for f in sorted(fields, key=self.rides_in(riders))), ""]
        made += [f"    {line}" for line in (self.methods(kind, c, adds, riders) if riders else self.adding(kind, adds, follows))] + ["};"]
        call = "online" if riders else "reduce"
        made.append(f"const {kind} {value} = walk.template {call}<{r}, {kind}>([&]({', '.join(params)}) {{")
        made += [f"    {line}" for line in self.printed(c.lines)]
        made.append(f"    return {kind}{{{', '.join(given)}}};")
        if riders:
            made.append(f"}}, [&](const {kind}& top, {', '.join(params)}) {{")
            made += [f"    {line}" for line in self.printed(c.lines) if not line.startswith(self.comment)]
            made.append(f"    {kind} part;")
            for a in riders:
                x = a.value if re.fullmatch(r"[\w.]+", a.value) else f"({a.value})"
                apart = f"{x} - finite_or_zero(top.{a.peak})"
                made.append(f"    part.{a.name} = {f'exp_below({apart})' if a.kind == 'expsum' else apart};")
                made += [f"    part.{a.name}_count = 1;"] * (a.kind == "offsum")
            made.append("    return part;")
        made.append(f"}}{''.join(f', {o}' for o in operands)});")
        made.append(f"if (walk.stops({2 * r})) return;")
        made += [
            f"const {a.type} {a.name} = {f'{a.type}({value}.{a.name})' if a.place else f'{value}.{a.name}'};"
            for a in c.accumulators
            if a.name in later
        ]
        return made

    @staticmethod
    def rides_in(riders: list[Accumulator]) -> Callable[[str], bool]:
        """Whether a field's declaration is that of a rider: those stand last, and are left out of what a vector's elements give."""
        names = {n for a in riders for n in (a.name, f"{a.name}_count")}
        return lambda field: field.split(" = ")[0].split()[-1] in names

    @staticmethod
    def adding(kind: str, adds: list[str], follows: list[str]) -> list[str]:
        """The methods of a reading's result: another one added, also one whose elements come later."""
        add = f"__device__ void add(const {kind}& more)"
        method = [f"{add} {{ {adds[0]} }}"] if len(adds) == 1 else [f"{add} {{", *(f"    {line}" for line in adds), "}"]
        if follows != adds:
            method += [f"__device__ void follow(const {kind}& more) {{  // whose places are greater", *(f"    {x}" for x in follows), "}"]
        return method

    @staticmethod
    def methods(kind: str, c: Code, adds: list[str], riders: list[Accumulator]) -> list[str]:
        """The methods of a result with sums that ride on a maximum."""
        rises = []
        for a in riders:
            if a.kind == "expsum":
                rises.append(f"{a.name} *= fall({a.peak}, top.{a.peak});")
            else:
                rises.append(f"{a.name} += {a.name}_count * (finite_or_zero({a.peak}) - finite_or_zero(top.{a.peak}));")
        taken = [f"{n} = top.{n};" for a in c.accumulators if not a.peak for n in ((f"{a.name}_part", a.name) if a.place else (a.name,))]
        gathered = [f"{n} += more.{n};" for a in riders for n in ((a.name, f"{a.name}_count") if a.kind == "offsum" else (a.name,))]

        def method(head: str, lines: list[str], note: str = "") -> list[str]:
            return [f"__device__ void {head} {{{note}", *(f"    {line}" for line in lines), "}"]

        return [
            *method(f"merge_peaks(const {kind}& more)", adds, "  // all but the sums about a maximum"),
            *method(f"rescale(const {kind}& top)", [*rises, *taken], "  // those sums about another's maximum, and all else from there"),
            *method(f"merge_sums(const {kind}& more)", gathered, "  // the sums of a part with the same maximum"),
            *method(
                f"add(const {kind}& more)",
                [
                    f"{kind} top = *this, other = more;", "top.merge_peaks(more);", "rescale(top);", "other.rescale(top);",
                    "merge_sums(other);",
                ],  # fmt: skip
            ),
        ]

    def storing(self, c: Code, pointers: dict[str, str], position: dict[str, int]) -> list[str]:
        """The reading that stores elements."""
        params, operands = self.taken(c)
        made = [f"auto {o.name}_out_row = walk.template output<{position[pointers[o.name]]}>({pointers[o.name]}_ptr);" for o in c.outputs]
        params = [*(f"{o.type}& {o.name}_element" for o in c.outputs), *params]
        made.append(f"walk.each([&]({', '.join(params)}) {{")
        made += [f"    {line}" for line in self.printed(c.lines)]
        made += [f"    {o.name}_element = {o.value if o.compute == o.type else f'{o.type}({o.value})'};" for o in c.outputs]
        made.append(f"}}, {', '.join([*(f'{o.name}_out_row' for o in c.outputs), *operands])});")
        return made

    def launch_view(
        self, render: Render, unit: Unit, u: dict[str, Any], given: tuple[Scalar, ...], context: dict[str, Any]
    ) -> dict[str, Any]:
        """A unit's texts for kernel and launch: parameters, loads, the call of the element function, entries."""
        names = Names(set(render.global_names.taken) | set(render.global_names.given.values()))
        spelled = {g: f"compute<{', '.join(of)}>" for g, of in context["generics"].items()}
        lanes = {t.name: names.fresh(f"{t.name}s") for t in (*unit.inputs, *unit.outputs)}
        at = {t.name: f"at[{i}]" for i, t in enumerate(u["operands"])}
        kind = {s.name: self.types[_passed(g, {})] if _stored(g) else s.type for s, g in zip(unit.scalars, given, strict=True)}
        memory = [t for t in u["operands"] if t not in unit.indices]
        pointers = [f"{'' if t.name in u['writable'] else 'const '}{spelled.get(t.type, t.type)}* {t.name}" for t in memory]
        scalars = [f"{spelled.get(kind[s.name], kind[s.name])} {s.name}" for s in unit.scalars]
        loads = [(lanes[t.name], t.name, at[t.name], self.splat(u["position"][t.name])) for t in unit.inputs]
        values = [f"{t.compute}(element({lanes[t.name]}, k))" for t in unit.inputs]
        values += [f"i64({at[x.name]} + k * layout.step({u['position'][x.name]}))" for x in unit.indices]
        values += [s.name if kind[s.name] == s.type else f"to<{s.type}>({s.name})" for s in unit.scalars]
        results = [] if u["single"] else [names.fresh(f"{o.name}_k") for o in unit.outputs]
        stores = [(lanes[o.name], o.type, u["pointer"][o.name], at[u["pointer"][o.name]]) for o in unit.outputs]
        call = wrapped(u["element_call"], [*values, *results], "", 100)
        body = [] if u["single"] else [*(f"{o.compute} {r};" for o, r in zip(unit.outputs, results, strict=True)), f"{call};"]
        for o, value in zip(unit.outputs, results or [call], strict=True):
            body.append(f"{lanes[o.name]}.at[k] = {value if o.compute == o.type else f'{o.type}({value})'};")
        tensors = [(f"{'' if t.name in u['writable'] else 'const '}", t, names.fresh(f"{t.name}_stride")) for t in u["tensors"]]
        strides = {t.name: s for _, t, s in tensors}
        numbers = [f"{a.type} {a.name}" for a in u["numbers"]]

        def params(bound: dict[str, str]) -> list[str]:
            typed = [f"{c}{self.element_type(t.type, bound, context)}* {t.name}, const i64* {s}" for c, t, s in tensors]
            return ["int rank", "const i64* size", *typed, *numbers, "cudaStream_t stream"]

        arguments = ["rank", "size", *(f"{t.name}, {s}" for _, t, s in tensors), *(a.name for a in u["numbers"]), "stream"]
        run = names.fresh(f"{unit.name}_run")
        entries = []
        for bound in map(dict, u["bindings"]):
            types = "<" + ", ".join(self.types[d] for d in bound.values()) + ">" if bound else ""
            head = wrapped(f'extern "C" cudaError_t {"_".join([unit.name, *bound.values()])}', params(bound), " {")
            entries.append((head, self.indented(wrapped(f"    return host::{run}{types}", arguments, ";"), 4)))
        read = [t.name not in u["writable"] and not set(unit.dims[-1:]) <= set(t.dims) for t in u["operands"][:SPLATS]]
        splat = sum(1 << i for i, still in enumerate(read) if still)
        computed = {s.name for s, _ in u["computed"]}
        given_values = [(s, u["rounded"][s.name]) for s, _ in u["computed"]]
        passed = [
            v if s.name in computed or kind[s.name] == s.type else s.text for s, v in zip(unit.scalars, u["scalar_values"], strict=True)
        ]
        index_strides = [(names.fresh(f"{x.name}_stride"), x.name, u["rank_of"][x.name]) for x in unit.indices]
        strides.update((x, stride) for stride, x, _ in index_strides)
        given_all = ["rank", "size", "operands", "stream", "kernel", *(t.name for t in memory), *passed]
        launch = wrapped(f"return run_map<16 / {self.widest(unit)}, {splat}>", given_all, ";", 120)
        host = set(re.findall(r"\w+", " ".join([*passed, *(f"{kind[s.name]} {s.text}" for s, _ in u["computed"])])))
        host |= {t.type for t in memory}
        chosen = "".join(f"{v}, " for v in unit.variables)
        vector, layout = render.global_names.fresh(f"{unit.name}_vector"), f"Layout<RANK, {len(u['operands'])}, Index>"
        passing = ["i", "layout", *(t.name for t in memory), *(s.name for s in unit.scalars)]
        device = set(re.findall(r"\w+", " ".join([*body, *(type_name for _, type_name, _, _ in stores)])))
        typename = ", ".join([f"typename {v}" for v in unit.variables])
        u.update(
            element_head="__device__ " + u["element_head"], kernel=f"{unit.name}_kernel", typename=typename,
            kernel_head=wrapped(f"{unit.name}_kernel", [f"{layout} layout", *pointers, *scalars], " {"),
            vector_head=wrapped(f"__device__ inline void {vector}", ["Index i", f"const {layout}& layout", *pointers, *scalars], " {"),
            vector_call=self.indented(wrapped(f"{vector}<{chosen}VEC, SPLAT>", passing, ";", 110), 8),
            tail_call=self.indented(wrapped(f"{vector}<{chosen}1, SPLAT>", passing, ";", 90), 8),
            loads=loads, stores=stores, body=[line for text in body for line in text.split("\n")], arguments=values, splat=splat,
            operand_names=[f"index[{t.spec_name}]" if t in unit.indices else t.name for t in u["operands"]],
            run_head=wrapped(f"cudaError_t {run}", params({}), " {"), entries=entries,
            computed=[(replace(s, type=kind[s.name]), v if "saturate" in v else f"{kind[s.name]}({s.text})") for s, v in given_values],
            host_operands=[(t.name, strides[t.name], t.type, t in memory) for t in u["operands"]], index_strides=index_strides,
            launch=self.indented(launch, 4), chosen=chosen,
            host_aliases={a: of for a, of in u["aliases"].items() if a in host},
            kernel_aliases={a: of for a, of in u["aliases"].items() if a in device},
        )  # fmt: skip
        return u

    def element_type(self, type_name: str, bound: dict[str, str], context: dict[str, Any]) -> str:
        """A tensor's element type where no alias is in scope, for dtype variables bound to dtypes (or left open)."""
        if type_name in bound:
            return self.types[bound[type_name]]
        of = context["generics"].get(type_name)
        return f"compute<{', '.join(self.types[bound[v]] if v in bound else v for v in of)}>" if of else type_name

    @staticmethod
    def indented(text: str, by: int) -> str:
        return text.replace("\n", "\n" + " " * by)

    @staticmethod
    def splat(position: int) -> str:
        return f"SPLAT & {1 << position}{'u' if position == 31 else 'ull' if position > 31 else ''}" if position < SPLATS else "0"

    def widest(self, unit: Unit) -> str:
        """The size of the widest operand's element, in C++."""
        return self.widest_of([(t.dtype, t.type) for t in (*unit.inputs, *unit.outputs)])

    @staticmethod
    def widest_of(stored: list[tuple[str, str]]) -> str:
        fixed = max((DTYPES[dtype].bytes for dtype, _ in stored if dtype in DTYPES), default=0)
        sizes = [f"int(sizeof({v}))" for v in dict.fromkeys(type_name for dtype, type_name in stored if dtype not in DTYPES)]
        if fixed == 8 or not sizes:
            return str(fixed)
        text = sizes[0]
        for other in [*sizes[1:], *([str(fixed)] if fixed > 2 else [])]:
            text = f"wider({text}, {other})"
        return text

    # ------------------------------------------------------------------ for the runtime

    def layout(self, kernel: Kernel) -> tuple[Layout | RowLayout, ...]:
        """How each unit of a kernel is launched, in the order of its passes.

        Raises `KgenError` where the kernel holds what no schedule covers.
        """
        render = Render(self, kernel)
        units = render.units()
        context = {**vars(render.page())}
        context["units"] = self.views(render, units, context)
        self.share_room(context["units"])
        spec = {name: v for v, name in render.variables.items()}
        numbers = tuple(let for let in render.program.lets if let.is_number)
        made: list[Layout | RowLayout] = []
        for unit, view, p in zip(units, context["units"], render.passes, strict=True):
            if isinstance(unit, RowUnit):
                variables, found = tuple(spec[v] for v in unit.variables), tuple(o for *_, o in view["operands"])
                rows = {o.name for o in found if o.role == "state" and not o.element}
                made.append(
                    RowLayout(
                        view["kernel"], unit.rows, unit.inner, variables, found, p.scalars, numbers, view["reductions"], view["stores"],
                        view["words"], bool(rows & {t.spec_name for t in unit.inputs}),
                    )
                )  # fmt: skip
                continue
            state = {o.spec_name for o in unit.outputs if o.state}

            def role(t: Tensor, unit: Unit = unit, state: set[str] = state) -> str:
                return "index" if t in unit.indices else "state" if t.spec_name in state else "input" if t in unit.inputs else "result"

            operands = tuple(Operand(t.spec_name, t.dtype, t.dims, role(t)) for t in view["operands"])
            made.append(Layout(f"{unit.name}_kernel", unit.dims, tuple(spec[v] for v in unit.variables), operands, p.scalars, numbers))
        return tuple(made)

    def workspaces(self, kernel: Kernel) -> tuple[Workspace, ...]:
        """What the passes of a kernel leave for one another."""
        return Render(self, kernel).plan.workspaces
