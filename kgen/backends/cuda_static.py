"""CUDA C++ for known dims and dtypes: from the passes of a kernel to what templates/cuda/static.cu.jinja lays out.

In: a kernel, what is known of it, and the planner of rows.  Out: a kernel for each pass, and one host function.  What a thread does
along a row is written by kgen.backends.cuda_static_rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from math import gcd
from typing import Any

from kgen.backends import cuda_host as host
from kgen.backends.c_static import CStatic, block
from kgen.backends.cuda import NUMBERS_FILE, Cuda
from kgen.backends.cuda_static_rounds import BLOCKS_OF, RoundsWriter
from kgen.backends.cuda_static_rows import KernelView, RowWriter
from kgen.backends.cuda_static_scans import ScanWriter
from kgen.backends.names import bare
from kgen.backends.static import Known, StaticRender, refused, static_call, stored
from kgen.backends.text import Text, called, definitions, functions, identifiers, named, source, trimmed, wrapped
from kgen.backends.units import Accumulator, RowUnit, ScanUnit, Tensor, Unit
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.monoids import RIDERS, Rides
from kgen.ops import OPS, SUM
from kgen.resources import resource
from kgen.types import DTYPES, ELLIPSIS, Dims, DType

#: Threads of a block that have an element, a vector or a row each.
THREADS = 128
#: The most elements of a vector: threads add these up one after another.
MOST_LANES = 8


#: The threads that combine what they have, by the beginning of a function's name.
TEAMS = {"side": "the threads of a row side by side", "block": "a block's threads", "warp": "a warp's threads"}


class StaticCuda(Cuda):
    """CUDA C++ without template arguments: functions by the names that they have for the dtype."""

    rides = Rides.NONE
    taps = draws = makes = picks = False
    pairs = {}

    def of_whole(self, x: Text, given: DType, target: DType, type_name: str, inside: bool) -> Text:
        return self.cast(x, given, target, type_name)

    def call(self, function: str, operands: str, dtype: str) -> str:
        return f"{static_call(function, '__fmaf_rn')}({operands})"


@dataclass(frozen=True)
class CudaStatic:
    """A file: what it is for, how it is called, constants, what it has of the library, its kernels, and the host function, which does
    nothing where `limit` is 0 (`some` is the condition where that holds for a part of it alone), and refuses more `blocks` than a launch
    may have."""

    file: str
    about: str
    call: str
    constants: list[tuple[str, int]]
    library: list[str]
    teams: list[str]
    kernels: list[KernelView]
    host_functions: list[Text | str]
    host_head: str
    limit: str
    some: str
    blocks: list[str]
    workspaces: list[tuple[str, str, Text]]


class CudaPrinter(CStatic[StaticCuda]):
    """The texts of one file."""

    integer = "i64"

    def __init__(self, backend: Cuda, kernel: Kernel, known: Known, planner: Callable[..., Any]):
        """`planner` says how a row of known length is shared out (`kgen.runtime.rows.along`).  Raises `KgenError` for what no static
        file has."""
        mine = StaticCuda()
        mine.storage_names = frozenset()
        with suppress(KgenError):  # what it refuses may be a pass of its own
            self.planned(mine, kernel, known, planner)
        if not hasattr(self, "writers") or any(isinstance(w, RoundsWriter) and not w.stays for w in self.writers):
            mine.merges = False
            self.planned(mine, kernel, known, planner)
        if any(w is not None and w.rereads for w in self.writers):  # sums about a maximum are then made with it
            mine.rides = Rides.EVERY
            self.planned(mine, kernel, known, planner)
        for w in self.writers:
            if w is not None and not w.rereads and any(a.kind in RIDERS for c in w.unit.codes for a in c.accumulators):
                raise refused(kernel, "its passes take sums about a maximum in different ways")
        self.vectors: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.functions: dict[tuple[str, str], tuple[str, int, Accumulator]] = {}
        self.pairs: dict[str, Accumulator] = {}
        # Of no rows a sum over all of them is still a result.
        alone = any(ELLIPSIS not in o.dims for u in self.units for o in u.outputs)
        self.some = f"if ({self.render.count} > 0) " if alone and self.counts() else ""
        self.blocks: dict[str, None] = {}  # how many a launch has, where that depends on how many rows there are

    def planned(self, mine: StaticCuda, kernel: Kernel, known: Known, planner: Callable[..., Any]) -> None:
        """Set out the passes, by what the backend says of them now, and who writes those over rows."""
        super().__init__(mine, StaticRender(mine, kernel, known, references=True))
        self.writers = [self.writer(u, planner) if isinstance(u, RowUnit) else None for u in self.units]

    def writer(self, unit: RowUnit, planner: Callable[..., Any]) -> RowWriter:
        """Who writes a pass over rows."""
        if isinstance(unit, ScanUnit):
            return ScanWriter(self, unit, planner)
        return (RoundsWriter if unit.columns else RowWriter)(self, unit, planner)

    # ------------------------------------------------------------------ the file

    def view(self) -> CudaStatic:
        """What the template takes."""
        b, render = self.backend, self.render
        scalars = [p.scalars for p in render.passes]
        self.numbers = [host.numbers(b, u, s) for u, s in zip(self.units, scalars, strict=True)]
        kernels = []
        for u, w, numbers in zip(self.units, self.writers, self.numbers, strict=True):
            if w is not None:
                kernels += w.kernels(numbers)
            elif isinstance(u, Unit):
                kernels.append(self.map_kernel(u, numbers))
        code = [line for k in kernels for line in (*k.element, *k.lines, k.head)]
        calls = [c for n in self.numbers for x in n for c in (x.rounded.calls if x.rounded else ())]
        hosts = functions(resource("templates") / "cpp", calls, (row.cpp for row in OPS.values()))
        adding = [w for w in self.writers if isinstance(w, RoundsWriter)]
        items = [*self.interface(), *(d for d, _ in self.tail()), "cudaStream_t stream"]
        teams = self.team_lines()
        return CudaStatic(
            file=self.kernel.name, about=str(self.known), call=bare(f"{render.kernel_name}({', '.join([*self.names(), 'stream'])})"),
            constants=[(render.global_names.user(d), n) for d, n in self.known.named.items()],
            library=self.library([*code, *teams]), teams=teams, kernels=kernels,
            host_functions=[*hosts.values(), *([BLOCKS_OF] if adding else [])],
            host_head=wrapped(f'extern "C" cudaError_t {render.kernel_name}', items, " {"),
            limit=render.count if self.counts() else "", some=self.some, blocks=[*self.blocks],
            workspaces=[
                (o.type, self.pointers[o.spec_name], render.product(o.dims))
                for u in self.units for o in u.outputs if o.spec_name in render.kept
            ] + [part for w in adding for part in w.parts()],
        )  # fmt: skip

    def library(self, code: list[str]) -> list[str]:
        """The functions and types that code uses, those of the dtypes at hand alone."""
        b, dtypes = self.backend, {let.tensor_dtype.name for let in self.render.program.lets if not let.is_number}
        used = trimmed(b.functions(called("\n".join(code), b.comment)), dtypes)
        words = identifiers("\n".join(line.partition("//")[0] for text in (*code, *used.values()) for line in text.split("\n")))
        words |= identifiers(" ".join((*self.interface(), *(d for d, _ in self.tail()))))
        texts = "\n".join(line for line in b.library_file(NUMBERS_FILE).split("\n") if not line.startswith("#"))
        numbers: list[str] = []
        note = ""
        for text in definitions(texts.partition("\n")[2].strip("\n")):
            notes = "\n".join(line for line in text.split("\n") if line.startswith("//"))
            rest = "\n".join(line for line in text.split("\n") if not line.startswith("//")).strip("\n")
            note = notes or note
            head = rest.partition("{")[0].partition("=")[0].partition("(")[0].split()[-1:]
            if not head or head[0] not in words or "template" in rest.split("\n")[0] and head[0] != "to":
                continue
            if "f64" not in dtypes:
                rest = "\n".join(line for line in rest.split("\n") if "double" not in identifiers(line))
            if rest:
                words |= identifiers(rest)
                numbers.append("\n".join(filter(None, (note, rest))))
                note = ""
        return [*numbers, *self.vectors.values(), *(str(text).rstrip("\n") for text in used.values())]

    # ------------------------------------------------------------------ vectors

    def vector(self, type_name: str, lanes: int) -> str:
        """The name of a vector's type."""
        if lanes == 1:
            return type_name
        name = f"{type_name.removesuffix('_t')}x{lanes}"
        size = lanes * next(d.bytes for d in DTYPES.values() if d.stored is d and self.backend.types[d.name] == type_name)
        self.vectors[name] = f"struct alignas({size}) {name} {{ {type_name} at[{lanes}]; }};"
        return name

    @staticmethod
    def lane(name: str, lanes: int) -> Text:
        """The k-th element of a vector."""
        return named(name) if lanes == 1 else source("{0}.at[k]", name)

    def load(self, type_name: str, lanes: int, place: Text | str) -> str:
        """A vector from where it begins."""
        return f"*reinterpret_cast<const {self.vector(type_name, lanes)}*>({place})"

    @staticmethod
    def element(o: Tensor, value: Text | str) -> str:
        """A result as it is stored."""
        return str(value) if o.compute == o.type else f"{o.type}({value})"

    @staticmethod
    def unrolled(lines: list[str], lanes: int) -> list[str]:
        """A loop over the elements of a vector."""
        if lanes == 1:
            return lines
        return ["#pragma unroll", *block(f"for (int k = 0; k < {lanes}; k++)", lines)]

    # ------------------------------------------------------------------ teams

    def team(self, scope: str, size: int, a: Accumulator) -> str:
        """The name of the function that combines what the threads of a row have of a reduction; it will stand in the source."""
        name = f"{scope}_{a.kind}"
        self.asked.append((name, a.value_type if a.place else a.type))
        self.functions.setdefault(self.asked[-1], (scope, size, a))
        return name

    def pairwise(self, a: Accumulator) -> str:
        """The name of the type that combines a thread's partial results pairwise."""
        name = f"Pairwise{a.kind.capitalize()}" + ("" if a.type == "float" else a.type.capitalize())
        self.pairs.setdefault(name, a)
        return name

    def team_lines(self) -> list[str]:
        """The functions and types of the two above."""
        made: list[str] = []
        for name, a in self.pairs.items():
            made += [
                "// Partial results of blocks, combined pairwise in their order: errors grow with the logarithm of their number.",
                f"struct {name} {{", f"    {a.type} parts[64];", "    i64 count = 0;", "",
                f"    __device__ void add({a.type} part) {{", "        int d = 0;",
                f"        for (; count >> d & 1; d++) part = {self.backend.combined(a, 'parts[d]', named('part'))};",
                "        parts[d] = part;", "        count++;", "    }",
                f"    __device__ {a.type} total({a.type} all) const {{",
                f"        for (int d = 0; count >> d; d++) if (count >> d & 1) all = {self.backend.combined(a, 'parts[d]', named('all'))};",
                "        return all;", "    }", "};",
            ]  # fmt: skip
        for (name, type_name), (scope, size, a) in self.functions.items():
            again = self.asked.count((name, type_name)) > 1
            made += found_lines(name, scope, size, a, again) if a.place else self.plain_lines(name, scope, size, a, again)
        return made

    def plain_lines(self, name: str, scope: str, size: int, a: Accumulator, again: bool) -> list[str]:
        """The function that combines one value of each thread."""
        what = {"sum": "sum", "prod": "product", "max": "maximum", "min": "minimum"}[a.kind]

        def joined(other: str) -> str:
            value = f"x += {other};" if a.kind == "sum" else f"x = {self.backend.combined(a, 'x', named(other))};"
            return f"x = {'x | ' if a.kind == 'max' else 'x & '}bool({other});" if a.dtype.kind == "bool" else value

        def shuffles(lanes: int) -> list[str]:
            return [f"for (int apart = {lanes // 2}; apart > 0; apart /= 2) {joined('__shfl_xor_sync(~0u, x, apart)')}"]

        made = [f"// The {what} of x over {TEAMS.get(scope, f'{size} threads')}, in each of them."]
        if scope == "side":
            body = [f"__shared__ {a.type} parts[{size}][32];", "parts[threadIdx.x / 32][threadIdx.x % 32] = x;", "__syncthreads();"]
            body += ["x = parts[0][threadIdx.x % 32];", f"for (int t = 1; t < {size}; t++) {joined('parts[t][threadIdx.x % 32]')}"]
        elif scope == "block":
            identity = next(w for w in self.writers if w is not None).identity(a)
            body = [f"__shared__ {a.type} parts[32];", *shuffles(32), "if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;"]
            body += ["__syncthreads();", f"x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : {identity};", *shuffles(32)]
        else:
            body = shuffles(size)
        body += ["__syncthreads();  // before parts are written again"] if again and scope in ("side", "block") else []
        return [*made, f"__device__ inline {a.type} {name}({a.type} x) {{", *(f"    {line}" for line in [*body, "return x;"]), "}"]

    # ------------------------------------------------------------------ launches

    def head(self, unit: Unit | RowUnit, numbers: list[host.PassedNumber], threads: int, lines: list[str]) -> str:
        """The first line of a kernel with these lines."""
        items = [d for d, _ in self.arguments(unit)]
        items += [f"{n.passed} {n.argument.name}{'_given_k' if n.converted else ''}" for n in numbers]
        items += [f"i64 {self.render.count}"] if self.takes_count(lines) else []
        return wrapped(f"__global__ void __launch_bounds__({threads}) {unit.name}_kernel", items, " {")

    def converted(self, numbers: list[host.PassedNumber]) -> list[str]:
        """The lines that round a number to a storage float by name."""
        given = [n.argument for n in numbers if n.converted]
        return [f"const {a.type} {a.name} = to<{a.type}>({a.name}_given_k);" for a in given]

    def takes_count(self, lines: list[str]) -> bool:
        """Whether a kernel's lines name the leading dims' size."""
        return any(self.render.count in line for line in lines)

    def launch(self, unit: Unit | RowUnit, numbers: list[host.PassedNumber], groups: str, threads: int, body: list[str]) -> list[str]:
        """The host's lines that launch a kernel."""
        if isinstance(unit, RowUnit) and not groups.isdigit():
            self.blocks[groups] = None
        lines = [f"const {s.type} {s.name} = {value};{'  // ' + s.note if s.note else ''}" for s, value in host.computed(numbers)]
        given = [p for _, p in self.arguments(unit)] + [str(n.given) for n in numbers]
        given += [self.render.count] if self.takes_count(body) else []
        some = "" if groups.isdigit() else self.some
        lines.append(wrapped(f"{some}{unit.name}_kernel<<<unsigned({groups}), {threads}, 0, stream>>>", given, ";"))
        return lines if len(lines) == 1 or len(self.units) == 1 else ["{", *(f"    {line}" for line in lines), "}"]

    def shared_out(self, dims: Dims, by: int) -> str:
        """How many groups of so many positions there are."""
        count = self.render.size(dims)
        if count is not None:
            return str(-(-count // by))
        text = self.render.product(dims)
        return str(text) if by == 1 else f"({text} + {by - 1}) / {by}"

    # ------------------------------------------------------------------ maps

    def map_kernel(self, unit: Unit, numbers: list[host.PassedNumber]) -> KernelView:
        """A map: a vector a thread."""
        r, tensors = self.render, (*unit.inputs, *unit.outputs)
        i = named("i")
        known = r.size(tuple(d for d in unit.dims if d != ELLIPSIS)) or 1
        moving = [t for t in tensors if r.step(t.dims, unit.dims) == 1]
        lanes = min(MOST_LANES, 16 // max((DTYPES[t.dtype].bytes for t in moving), default=16))
        is_flat = all(r.run(t.dims, unit.dims) is None or not t.dims for t in tensors) and not unit.indices and ELLIPSIS in unit.dims
        if not is_flat:
            lanes = gcd(lanes, known)
            lanes = min([lanes, *(gcd(lanes, n) for t in moving if (n := r.run(t.dims, unit.dims)) is not None)])
        has_tail = is_flat and known % lanes != 0
        body, wide = list[str](), {}
        one = Text(("i", " + ", "k"), SUM) if lanes > 1 else i
        for t in unit.inputs:
            place = r.place(t.dims, unit.dims, i)
            if t in moving and lanes > 1:
                wide[t.name] = self.render.global_names.fresh(f"{t.name}s")
                where = f"{self.pointers[t.spec_name]} + {place}"
                body.append(f"const {self.vector(t.type, lanes)} {wide[t.name]} = {self.load(t.type, lanes, where)};")

        def values(k: Text, in_vectors: bool) -> list[str]:
            made = []
            for t in unit.inputs:
                here = self.lane(wide[t.name], lanes) if in_vectors and t.name in wide else self.at(t, r.place(t.dims, unit.dims, k))
                made.append(f"{t.compute}({here})")
            made += [f"i64({r.place(x.dims, unit.dims, k) or 0})" for x in unit.indices]
            return [*made, *(n.argument.name for n in numbers)]

        outs = {o.name: self.render.global_names.fresh(f"{o.name}s") for o in unit.outputs}
        body += [f"{self.vector(o.type, lanes)} {outs[o.name]};" for o in unit.outputs] if lanes > 1 else []
        targets = {o.name: str(self.lane(outs[o.name], lanes)) for o in unit.outputs}
        flat = {o.name: str(self.at(o, r.place(o.dims, unit.dims, i))) for o in unit.outputs}
        body += self.unrolled(self.each(unit, values(one, True), targets if lanes > 1 else flat), lanes)
        if lanes > 1:
            for o in unit.outputs:
                where = f"{self.pointers[o.spec_name]} + {r.place(o.dims, unit.dims, i)}"
                body.append(f"*reinterpret_cast<{self.vector(o.type, lanes)}*>({where}) = {outs[o.name]};")
        total = r.product(unit.dims)
        first = f"i64 i = (i64(blockIdx.x) * {THREADS} + threadIdx.x){f' * {lanes}' if lanes > 1 else ''};"
        if has_tail:
            tail = block(f"for (; i < {total}; i++)", self.each(unit, values(i, False), flat))
            lines = [first, f"if (i + {lanes} <= {total}) {{", *(f"    {x}" for x in body)]
            lines += ["} else {  // the last few", *(f"    {x}" for x in tail), "}"]
        else:
            lines = ["const " + first, f"if (i >= {total}) return;", *body]
        about = f"A thread for {'each element' if lanes == 1 else f'each {lanes} elements, which lie side by side'}."
        return KernelView(
            about, self.head(unit, numbers, THREADS, lines), [*self.converted(numbers), *lines], self.element_function(unit),
            self.launch(unit, numbers, self.shared_out(unit.dims, THREADS * lanes), THREADS, lines),
        )  # fmt: skip

    def element_function(self, unit: Unit) -> list[str]:
        """The function that computes an element."""
        statements, made = stored(unit.lines, unit.outputs if unit.single else ())
        lines = self.backend.printed(statements)
        if unit.single:
            lines += [f"return {made[o.name]};" for o in unit.outputs]
        else:
            lines += [f"{o.name} = {o.value};" for o in unit.outputs if o.value != o.name]
        return [f"__device__ {self.backend.element_head(unit)}", *(f"    {line}" for line in lines), "}"]

    def each(self, unit: Unit, values: list[str], targets: dict[str, str]) -> list[str]:
        """The lines that make one element of each result from the values of what is read."""
        if unit.single:
            (o,) = unit.outputs
            return [f"{targets[o.name]} = {self.element(o, wrapped(unit.element, values, ''))};"]
        made = [f"{o.name}_k" for o in unit.outputs]
        lines = [f"{o.compute} {k};" for o, k in zip(unit.outputs, made, strict=True)]
        lines.append(wrapped(unit.element, [*values, *made], ";"))
        return lines + [f"{targets[o.name]} = {self.element(o, k)};" for o, k in zip(unit.outputs, made, strict=True)]


def found_lines(name: str, scope: str, size: int, a: Accumulator, again: bool) -> list[str]:
    """The function that combines a value of each thread and its place."""
    least = str(a.kind == "argmin").lower()
    kind = a.value_type

    def better(value: str, at: str) -> list[str]:
        return [f"const {kind} other = {value};", f"const i64 its = {at};", f"if (goes_before<{least}>(other, its, value, place)) {{",
                "    value = other;", "    place = its;", "}"]  # fmt: skip

    def loop(head: str, value: str, at: str) -> list[str]:
        return [f"{head} {{", *(f"    {x}" for x in better(value, at)), "}"]

    shuffles = loop(f"for (int apart = {min(size, 32) // 2}; apart > 0; apart /= 2)", "__shfl_xor_sync(~0u, value, apart)",
                    "__shfl_xor_sync(~0u, place, apart)")  # fmt: skip
    which, whose = "least" if a.kind == "argmin" else "greatest", TEAMS.get(scope, f"{size} threads")
    made = [f"// The {which} value of {whose} and its place, in each of them."]
    if scope == "side":
        body = [f"__shared__ {kind} parts[{size}][32];", f"__shared__ i64 places[{size}][32];",
                "parts[threadIdx.x / 32][threadIdx.x % 32] = value;", "places[threadIdx.x / 32][threadIdx.x % 32] = place;",
                "__syncthreads();"]  # fmt: skip
        body += loop(f"for (int t = 0; t < {size}; t++)", "parts[t][threadIdx.x % 32]", "places[t][threadIdx.x % 32]")
    elif scope == "block":
        body = [f"__shared__ {kind} parts[32];", "__shared__ i64 places[32];", *shuffles, "if (threadIdx.x % 32 == 0) {",
                "    parts[threadIdx.x / 32] = value;", "    places[threadIdx.x / 32] = place;", "}", "__syncthreads();",
                *loop("for (int w = 0; w < int(blockDim.x / 32); w++)", "parts[w]", "places[w]")]  # fmt: skip
    else:
        body = shuffles
    body += ["__syncthreads();  // before parts are written again"] if again and scope in ("side", "block") else []
    return [*made, f"__device__ inline void {name}({kind}& value, i64& place) {{", *(f"    {x}" for x in body), "}"]


def written(backend: Cuda, kernel: Kernel, known: Known, planner: Callable[..., Any]) -> str:
    """The static source of a kernel.  Raises `KgenError` where none is written for its passes."""
    printer = CudaPrinter(copy(backend), kernel, known, planner)
    return printer.render.poured(printer.view(), "static.cu.jinja", printer.render.page())
