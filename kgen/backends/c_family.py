"""What C++ and CUDA C++ have in common: literals, casts, assignments and the host's arithmetic."""

from __future__ import annotations

import math
import re
from copy import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kgen.backends.base import Backend, Render
from kgen.backends.names import Names
from kgen.backends.text import Text, decimal, enclosed, fill, negative, rounds_alike, single_precision, wrapped
from kgen.backends.units import Accumulator, Argument, RowUnit, Unit
from kgen.check import Kernel
from kgen.ir import Let, exact
from kgen.ops import CALL, LOOSE, OPS
from kgen.types import DTYPES, ELLIPSIS, FLOAT, NARROW, DType, Number, f32, f64, i64

KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const
    consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else
    enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
    operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using virtual void
    volatile wchar_t while xor xor_eq main std NULL INFINITY NAN EOF errno assert stdin stdout stderr linux unix i386 near far
    __device__ __global__ __host__ __shared__ blockIdx threadIdx blockDim gridDim warpSize j0 j1 jn y0 y1 yn signgam gamma index
    div abs time round floor ceil remainder truncate abort exit free malloc rand remove rename signal raise system getenv""".split()
)

#: C's functions of the headers in use, and what libm.cpp.jinja makes of them: an entry with C linkage may not have their names.
FUNCTIONS = frozenset(
    [f"{start}{name}{end}" for start in ("", "libm_") for end in ("", "f", "l") for name in """acos acosh asin asinh atan atan2 atanh cbrt
    ceil copysign cos cosh drem erf erfc exp exp10 exp2 expm1 fabs fdim finite floor fma fmax fmin fmod frexp gamma hypot ilogb ldexp lgamma
    llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow pow10 remainder remquo rint round
    scalb scalbln scalbn significand sin sincos sinh sqrt tan tanh tgamma trunc""".split()]
) | frozenset(
    """aligned_alloc at_quick_exit atexit atof atoi atol atoll bsearch calloc clearenv labs ldiv llabs lldiv mblen mbstowcs mbtowc memccpy
    memchr memcmp memcpy memmem memmove mempcpy memset putenv qsort quick_exit random realloc setenv srand strcat strchr strcmp strcoll
    strcpy strcspn strdup strerror strlen strncat strncmp strncpy strndup strpbrk strrchr strsep strsignal strspn strstr strtod strtof
    strtok strtol strtold strtoll strtoul strtoull strxfrm unsetenv valloc wcstombs wctomb bcmp bcopy bzero ffs rindex swab alloca
    select size_t ssize_t ptrdiff_t max_align_t nullptr_t div_t ldiv_t lldiv_t float_t double_t time_t clock_t clockid_t timer_t timeval
    timespec off_t off64_t loff_t pid_t uid_t gid_t id_t mode_t dev_t ino_t ino64_t nlink_t key_t locale_t quad_t u_quad_t fsid_t
    daddr_t caddr_t blksize_t blkcnt_t fsblkcnt_t fsfilcnt_t suseconds_t sigset_t fd_set fd_mask register_t ushort uint ulong u_char u_short
    u_int u_long""".split()
) | frozenset(
    [f"{u}int{kind}{bits}_t" for u in ("", "u") for kind in ("", "_fast", "_least") for bits in (8, 16, 32, 64)]
    + [f"{u}int{kind}_t" for u in ("", "u") for kind in ("ptr", "max")] + [f"u_int{bits}_t" for bits in (8, 16, 32, 64)]
)  # fmt: skip


class CFamily(Backend):
    comment = "//"
    keywords = KEYWORDS | FUNCTIONS
    #: What the headers in use define, and what C++ keeps for itself.
    macros = re.compile(
        r"_[A-Z_]\w*|\w*__\w+|(M|FP|FD|EXIT|MATH|CUDA|CUDART|CU)_\w+|(HUGE_VAL|SNAN)\w*|[A-Z0-9_]+_(MAX|MIN|WIDTH|BIT|ENDIAN)|U?INT\w*_C|cuda\w+"
        r"|BYTE_ORDER|MAXFLOAT|MAX_CANON|MAX_INPUT|NFDBITS|NZERO|PIPE_BUF|W(NOHANG|UNTRACED|STOPPED|EXITED|CONTINUED|NOWAIT|EXITSTATUS|TERMSIG|STOPSIG)"
        r"|WIF(EXITED|SIGNALED|STOPPED|CONTINUED)|NL_\w+|offsetof|issubnormal|math_errhandling|strn?dupa|[bl]e(16|32|64)toh|hto[bl]e(16|32|64)"
    )
    infinity = not_a_number = ""

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        if dtype.kind == "bool":
            return Text("true" if value else "false")
        if dtype.is_int:
            return self._integer(int(value), dtype, type_name)
        if dtype.narrow or type_name in self.storage_names:
            double, single = self.literal(value, f64, "double"), self.literal(value, f32, "float")
            if isinstance(value, str) or rounds_alike(value):
                return Text(f"to<{type_name}>({double.text})")
            return Text(f"(sizeof({type_name}) == 4 ? to<{type_name}>({single.text}) : to<{type_name}>({double.text}))")
        if isinstance(value, str):
            sign = "-" if value.startswith("-") else ""
            text = self.infinity if "inf" in value else self.not_a_number
            return Text(f"{type_name}({sign}{text})")
        if type_name != "double" and math.isinf(single_precision(value)):
            too_large = self.literal("-inf" if value < 0 else "inf", dtype, type_name)
            return (
                too_large
                if type_name == "float"
                else Text(f"{type_name}(sizeof({type_name}) == 4 ? {too_large.text} : {decimal(value, single=False)})")
            )
        if type_name == "float":
            text = decimal(value, single=True)
            return negative(f"{text}f")
        text = decimal(value, single=False)
        if type_name == "double":
            return negative(text)
        if not rounds_alike(value):
            # rounded once for each type: the f64 literal would round twice on its way to a float
            return Text(f"(sizeof({type_name}) == 4 ? {type_name}({decimal(value, single=True)}f) : {type_name}({text}))")
        short = text[:-2] if text.endswith(".0") else text
        return Text(f"{type_name}({short})")

    def _integer(self, value: int, dtype: DType, type_name: str) -> Text:
        if dtype.bits == 32:
            return negative(str(value)) if value != -(2**31) else Text("(-2147483647 - 1)")
        if dtype.bits == 64 and value == -(2**63):
            return Text(f"{type_name}(-9223372036854775807 - 1)")
        return Text(f"{type_name}({value})")

    def cast(self, x: Text, source: DType, target: DType, type_name: str) -> Text:
        if target.kind == "bool":
            return x if source.kind == "bool" else Text(f"{x.fit(LOOSE + 1)} != 0", LOOSE)
        if target.is_int and source.is_float:
            return Text(f"saturate<{type_name}>({x.text})")
        if target.is_float and (target.narrow or type_name in self.storage_names):
            x = x if source.is_float or source.name == "i64" else self.cast(x, source, i64, self.types["i64"])
            return Text(f"to<{type_name}>({x.text})")
        return Text(f"{type_name}({x.text})")

    #: Names under which a storage dtype (not what it is computed in) may appear: the kernel's dtype variables.
    storage_names: frozenset[str] = frozenset()

    def render(self, kernel: Kernel, only: dict[str, str] | None = None) -> str:
        """The source; `only` leaves entries for one choice of the dtype variables (`{"T": "bf16"}`), which compiles sooner."""
        mine = copy(self)
        mine.storage_names = frozenset(kernel.variables)
        return Render(mine, kernel, only).source()

    def call(self, function: str, operands: str, dtype: str) -> str:
        return f"{function}<{dtype}>({operands})"

    def assign(self, type_name: str, name: str, text: str) -> str:
        return f"const {type_name} {name} = {text};" if type_name else f"{name} = {text};"

    def narrow(self, x: Text, dtype: DType, type_name: str) -> Text:
        if dtype.bits >= 32 or re.fullmatch(r"\w+", x.text) or x.text.startswith(f"{type_name}(") and enclosed(x.text):
            return x
        return Text(f"{type_name}({x.text})")

    # ------------------------------------------------------------------ what the templates need

    def rounded(self, s: Argument) -> str:
        """A scalar's number, rounded to the dtype in which the kernel takes it."""
        return self.cast(Text(s.text, LOOSE), s.number, DTYPES[s.kind], s.type).text  # type: ignore[arg-type]

    def view(self, render: Render, unit: Unit, context: dict[str, Any]) -> dict[str, Any]:
        """A unit's texts in C++: template heads, parameter lists, the call of the element function."""
        inputs, outputs = unit.inputs, unit.outputs
        body = " ".join(
            (*unit.lines, *(o.value for o in outputs), *(t.compute for t in (*inputs, *outputs)), *(s.type for s in unit.scalars))
        )
        words = set(re.findall(r"\w+", body))
        stored = {t.type for t in (*inputs, *outputs)}
        element_types = [v for v in context["variables"] if v in words] + [g for g in context["generics"] if g in words]
        single = len(outputs) == 1
        element_params = [f"{t.compute} {t.name}" for t in (*inputs, *unit.indices)] + [f"{s.type} {s.name}" for s in unit.scalars]
        if not single:
            element_params += [f"{o.compute}& {o.name}" for o in outputs]
        fresh = [o for o in outputs if not o.state]
        loaded = {t.spec_name for t in inputs}
        blind = [replace(o, name=render.global_names.user(o.spec_name)) for o in outputs if o.state and o.spec_name not in loaded]
        pointers = {o.name: render.global_names.user(o.spec_name) if o.state else o.name for o in outputs}
        operands = [*(t for t in inputs if not t.state), *unit.indices, *(t for t in inputs if t.state), *blind, *fresh]
        order = [render.global_names.user(p.name) for p in render.kernel.params]
        tensors = sorted(
            (t for t in operands if t not in unit.indices), key=lambda t: order.index(t.name) if t.name in order else len(order)
        )
        writable = {pointers[o.name] for o in outputs}
        rounded = {s.name: self.rounded(s) for s in unit.scalars}
        scalar_values = [rounded[s.name] if s.text == s.name or re.fullmatch(r"\w+", s.text) else s.name for s in unit.scalars]
        return {
            "over_rows": False,
            "dims": unit.dims,
            "name": unit.name,
            "element": unit.element,
            "lines": unit.lines,
            "inputs": inputs,
            "indices": unit.indices,
            "outputs": outputs,
            "single": single,
            "scalars": unit.scalars,
            "element_template": ", ".join(f"typename {t}" for t in element_types),
            "element_call": unit.element + (f"<{', '.join(element_types)}>" if element_types else ""),
            "element_head": wrapped(f"inline {outputs[0].compute if single else 'void'} {unit.element}", element_params, " {"),
            "operands": operands,
            "tensors": tensors,
            "position": {o.name: k for k, o in enumerate(operands)},
            "pointer": pointers,
            "writable": writable,
            "scalar_values": scalar_values,
            "rank_of": {x.name: len(unit.named) - unit.named.index(x.spec_name) for x in unit.indices},
            "variables": unit.variables,
            "dtype_variables": tuple(v for v, name in render.variables.items() if name in unit.variables),
            "bindings": unit.bindings,
            "numbers": unit.numbers,
            **self.aliases_of(context, words | stored),
            "rounded": rounded,
            "computed": [(s, v) for s, v in zip(unit.scalars, scalar_values, strict=True) if v == s.name],
        }

    def row_view(self, render: Render, unit: RowUnit, context: dict[str, Any], keeping: bool = False) -> dict[str, Any]:
        """A pass over rows: its code with each accumulator's texts, and its operands (tensors, indices, gathers) in order.

        The last operand is the one whose layout decides how a row is walked.
        """
        loaded = {t.name for t in unit.inputs}
        pointers = {o.name: render.global_names.user(o.spec_name) if o.state else o.name for o in unit.outputs}
        tensors = {t.name: t for t in unit.inputs}
        tensors.update({g.tensor.name: g.tensor for g in unit.gathers})
        for o in unit.outputs:
            tensors.setdefault(pointers[o.name], replace(o, name=pointers[o.name], value=""))
        order = [render.global_names.user(p.name) for p in render.kernel.params]
        memory = sorted(tensors.values(), key=lambda t: order.index(t.name) if t.name in order else len(order))
        walked = [t for t in memory if t.name in loaded or t.name in pointers.values()]
        main = max(walked, key=lambda t: (len(set(t.dims) & set(unit.inner)), t.name in loaded, len(t.dims)))
        operands = [*(t.name for t in walked if t is not main), *(x.name for x in unit.indices), *(g.name for g in unit.gathers), main.name]
        element_dims = [d for d in unit.inner if d != ELLIPSIS]
        row_dims = [d for d in unit.rows if d != ELLIPSIS]
        strided = []
        for x in unit.indices:
            inside = x.spec_name in unit.inner
            named, end = (element_dims, "rank") if inside else (row_dims, "outer")
            if x.spec_name == ELLIPSIS:
                strided.append({"name": x.name, "lead": True, "begin": "outer" if inside else "0", "end": f"{end} - {len(named)}"})
            else:
                strided.append({"name": x.name, "lead": False, "at": f"{end} - {len(named) - named.index(x.spec_name)}"})
        codes = []
        for c in unit.codes:
            outputs = [{**vars(o), "pointer": pointers[o.name]} for o in c.outputs]
            gathers = [{**vars(g), "compute": g.tensor.compute} for g in c.gathers]
            lines = []
            for line in c.lines:  # a value that an earlier reading may have kept
                again = next((g for g in c.repeats if line.startswith(f"const {g.type} {g.name} = ")), None) if keeping else None
                head = f"const {again.type} {again.name} = " if again else ""
                lines.append(f"{head}KEEP ? {again.name}_line[i + j + l] : {line.removeprefix(head)}" if again else line)
            accumulators = [self.accumulator(a) for a in c.accumulators]
            codes.append({**vars(c), "lines": lines, "accumulators": accumulators, "outputs": outputs, "gathers": gathers})
        words = set(re.findall(r"\w+", unit.texts)) | {t.type for t in tensors.values()} | {g.tensor.compute for g in unit.gathers}
        return {
            "over_rows": True,
            "name": unit.name,
            "dims": unit.dims,
            "rows": unit.rows,
            "inner": unit.inner,
            "inputs": unit.inputs,
            "indices": unit.indices,
            "outputs": unit.outputs,
            "gathers": unit.gathers,
            "scalars": unit.scalars,
            "numbers": unit.numbers,
            "codes": codes,
            "keeps": [k for c in codes for k in c["keeps"]],
            "accumulators": [a for c in codes for a in c["accumulators"]],
            "found": {a["name"] for c in codes for a in c["accumulators"] if a["place"]},
            "tensors": memory,
            "memory": [{**vars(t), "const": "" if t.name in pointers.values() else "const "} for t in walked],
            "operands": operands,
            "position": {name: k for k, name in enumerate(operands)},
            "writable": set(pointers.values()),
            "strided": strided,
            "variables": unit.variables,
            "dtype_variables": tuple(v for v, name in render.variables.items() if name in unit.variables),
            "bindings": unit.bindings,
            "rounded": {s.name: self.rounded(s) for s in unit.scalars},
            **self.aliases_of(context, words),
        }

    @staticmethod
    def aliases_of(context: dict[str, Any], words: set[str]) -> dict[str, Any]:
        """Of the names for what variables are computed in: those that a unit's code needs, with the variables of each, and
        how each is spelled where it is not in scope."""
        generics = context["generics"]
        return {
            "aliases": {a: of for a, of in generics.items() if a in words},
            "spelled": {a: f"compute<{', '.join(of)}>" for a, of in generics.items()},
            "computed_of": generics,
        }

    def accumulator(self, a: Accumulator) -> dict[str, Any]:
        """What C++ needs of an accumulator: `held` is its type, `start` its identity, `combine` a lambda."""
        if not a.place:
            combine = f"[]({a.type} first, {a.type} next) {{ return {a.type}({self.combined(a, 'first', 'next')}); }}"
            return {**vars(a), "held": a.type, "start": self.identity(a), "combine": combine}
        held = f"Found<{a.value_type}>"
        least = str(a.kind == "argmin").lower()
        return {
            **vars(a),
            "held": held,
            "start": f"{held}{{{self.identity(a)}, INT64_MAX}}",
            "combine": f"[]({held} first, {held} next) {{ return better<{least}>(first, next); }}",
        }

    @staticmethod
    def doubles(render: Render) -> bool:
        """Whether a double may be rounded to a 16-bit float: not where one dtype variable alone decides what is computed in."""
        named = {let.tensor_dtype.name for let in render.program.lets if not let.is_number and not let.generic}
        stored = {r.dtype for r in render.kernel.results}
        narrow = bool((named | stored) & NARROW) and bool(render.variables)  # which a variable that is f64 meets
        return "f64" in named or len(render.variables) > 1 or narrow

    def layout(self, kernel: Kernel) -> Any:
        """The views of a kernel's units, without their text, and its plan: what a launcher must know of the order of arguments."""
        render = Render(self, kernel)
        units = render.units()
        context = render.context(units)
        return self.views(render, units, context), render.plan

    def extend(self, render: Render, units: list[Unit | RowUnit], context: dict[str, Any]) -> None:
        context["units"] = self.views(render, units, context)
        body = "\n".join(
            [
                *(line for u in units if isinstance(u, Unit) for line in (*u.lines, *(o.value for o in u.outputs))),
                *(u.texts for u in units if isinstance(u, RowUnit)),
                *(a["combine"] for u in context["units"] if u["over_rows"] for a in u["accumulators"]),
                *(self.rounded(s) for u in units for s in u.scalars),
            ]
        )
        sources = self.functions(body)
        context["function_sources"] = list(sources.values())
        context["functions"] = list(sources)
        context["code"] = "\n".join([body, *sources.values()])

    def views(self, render: Render, units: list[Unit | RowUnit], context: dict[str, Any]) -> list[dict[str, Any]]:
        return [self.view(render, u, context) if isinstance(u, Unit) else self.row_view(render, u, context) for u in units]

    # ------------------------------------------------------------------ host numbers

    def number(self, n: Let, defs: dict[str, Let], done: dict[str, Text], names: Names) -> Text:
        """C++'s double and 64-bit integers."""
        assert isinstance(n.dtype, Number)
        if n.expr.name == "lit":
            text = n.expr.attrs[0]
            if text in ("inf", "-inf", "nan"):
                return Text({"inf": "HUGE_VAL", "-inf": "-HUGE_VAL", "nan": 'std::nan("")'}[text])
            value = exact(text)
            return negative(decimal(value, single=False) if n.dtype == FLOAT else f"{self.number_types['int']}({int(value)})")
        if n.expr.name in ("arg", "size"):
            return Text(names.user(n.expr.attrs[0]))
        args: list[Text] = []
        for o in n.expr.operands:
            operand, operand_text = defs[o.name], done[o.name]
            if n.dtype == FLOAT and operand.dtype != FLOAT and not (n.expr.name == "where" and not args):
                if operand.expr.name == "lit":
                    operand_text = negative(decimal(exact(operand.expr.attrs[0]), single=False))
                else:
                    operand_text = Text(f"double({operand_text.text})")
            args.append(operand_text)
        row = OPS[n.expr.name]
        asks = row.rule == "compare" or row.rule == "test" and defs[n.expr.operands[0].name].dtype == FLOAT  # their result is a bool
        kinds: Any = "float" if asks else n.dtype.kind
        return fill(row.cpp, kinds, args, {"F": self.number_types[n.dtype.kind], "U": "uint64_t"})


__all__ = ["CALL", "CFamily"]
