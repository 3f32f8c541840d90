"""What C++ and CUDA C++ have in common: literals, casts, assignments and the host's arithmetic."""

from __future__ import annotations

import math
import re
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, TypeVar

from kgen.backends.base import Backend, Only, Render
from kgen.backends.names import Names
from kgen.backends.text import Text, decimal, fill, named, numeral, rounds_alike, single_precision, source, wrapped
from kgen.backends.units import Argument, Statement, Tensor, Unit
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


@dataclass(frozen=True, kw_only=True)
class MapView(Unit):
    """A pass over independent elements as C++'s templates see it: its element function, and its operands in the order of their strides."""

    over_rows: ClassVar[bool] = False
    scans: ClassVar[bool] = False
    element_template: str
    element_call: str
    element_head: str
    operands: list[Tensor]
    tensors: list[Tensor]  # those with memory, in the order of the parameters
    position: dict[str, int]
    pointer: dict[str, str]  # of each output
    writable: set[str]
    scalar_values: list[str]
    counting: dict[str, list[tuple[str, str]]]
    aliases: dict[str, list[str]]
    rounded: dict[str, Text]
    computed: list[tuple[Argument, str]]

#: The pattern of a function that takes an operator's fast form for results of 16 bits.
BRIEF = """\
// {about}; for results T of 16 bits the fast form.
template <typename T, typename F> DEVICE F brief_{name}({F x}) {{
    if constexpr (is_brief<T>) return fast_{name}({x});
    else return {accurate};
}}
"""

Family = TypeVar("Family", bound="CFamily")


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
    over_lists = False  # whether a map's kernels or entries go over lists of tensors, which the runtime alone calls

    @property
    def listed(self: Family) -> Family:
        """This target with maps that go over lists of tensors."""
        mine = copy(self)
        mine.over_lists = True
        return mine

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        """A literal of a type that may be a template's parameter: then it is rounded once, for float and for double."""
        if dtype.kind == "bool":
            return named("true" if value else "false")
        if dtype.is_int:
            return self._integer(int(value), dtype, type_name)
        if dtype.narrow or type_name in self.storage_names:
            double, single = self.literal(value, f64, "double"), self.literal(value, f32, "float")
            if isinstance(value, str) or rounds_alike(value):
                return source("to<{0}>({1})", type_name, double)
            return source("(sizeof({0}) == 4 ? to<{0}>({1}) : to<{0}>({2}))", type_name, single, double)
        if isinstance(value, str):
            text = self.infinity if "inf" in value else self.not_a_number
            return source(f"{{0}}({'-' * value.startswith('-')}{text})", type_name, to=type_name)
        if type_name != "double" and math.isinf(single_precision(value)):
            too_large = self.literal("-inf" if value < 0 else "inf", dtype, type_name)
            if type_name == "float":
                return too_large
            pattern = "{0}(sizeof({0}) == 4 ? {1} : {2})"
            return source(pattern, type_name, too_large, numeral(decimal(value, single=False)), to=type_name)
        if type_name == "float":
            return numeral(f"{decimal(value, single=True)}f")
        text = decimal(value, single=False)
        if type_name == "double":
            return numeral(text)
        if not rounds_alike(value):
            # rounded once for each type: the f64 literal would round twice on its way to a float
            single = numeral(f"{decimal(value, single=True)}f")
            return source("(sizeof({0}) == 4 ? {0}({1}) : {0}({2}))", type_name, single, numeral(text))
        return self.conversion(type_name, numeral(text.removesuffix(".0")))

    def _integer(self, value: int, dtype: DType, type_name: str) -> Text:
        if dtype.kind == "uint" and dtype.bits >= 32:
            return self.conversion(type_name, numeral(f"{value}u{'ll' * (dtype.bits == 64)}"))
        if dtype.bits == 32:
            return numeral(str(value)) if value != -(2**31) else Text(("(-2147483647 - 1)",))
        if dtype.bits == 64 and value == -(2**63):
            return source("{0}(-9223372036854775807 - 1)", type_name, to=type_name)
        return self.conversion(type_name, numeral(str(value)))

    def cast(self, x: Text, given: DType, target: DType, type_name: str) -> Text:
        if target.kind == "bool":
            return x if given.kind == "bool" else source("{0} != 0", x.fit(LOOSE + 1), level=LOOSE)
        if target.is_int and given.is_float:
            return source("saturate<{0}>({1})", type_name, x)
        if target.is_float and (target.narrow or type_name in self.storage_names):
            x = x if given.is_float or given.name in ("i64", "u64") else self.cast(x, given, i64, self.types["i64"])
            return source("to<{0}>({1})", type_name, x)
        return self.conversion(type_name, x)

    @staticmethod
    def conversion(type_name: str, x: Text) -> Text:
        return source("{0}({1})", type_name, x, to=type_name)

    #: Names under which a storage dtype (not what it is computed in) may appear: the kernel's dtype variables.
    storage_names: frozenset[str] = frozenset()

    def render(self, kernel: Kernel, only: Only | None = None) -> str:
        mine = copy(self)
        mine.storage_names = frozenset(kernel.variables)
        return Render(mine, kernel, only).source()

    def call(self, function: str, operands: str, dtype: str) -> str:
        return f"{function}<{dtype}>({operands})"

    def statement(self, name: str, type_name: str, value: Text, is_declared: bool, note: str) -> Statement:
        return Statement((name,), "" if is_declared else type_name, value, note)

    def assign(self, s: Statement) -> str:
        return f"const {s.type} {s.names[0]} = {s.value};" if s.type else f"{s.names[0]} {s.sign} {s.value};"

    def narrow(self, x: Text, dtype: DType, type_name: str) -> Text:
        return x if dtype.bits >= 32 or x.is_word or x.to == type_name else self.conversion(type_name, x)

    # ------------------------------------------------------------------ what the templates need

    def rounded(self, s: Argument) -> Text:
        """A scalar's number, rounded to the dtype in which the kernel takes it."""
        assert s.number is not None
        return self.cast(Text(s.text.tokens, LOOSE), s.number, DTYPES[s.kind], s.type)

    def map_view(self, render: Render, unit: Unit) -> MapView:
        """A unit in C++: template heads, parameter lists, the call of the element function."""
        operands, pointers = self.operands(render, unit)
        element_types = [v for v in (*render.variables.values(), *render.computed_of) if v in unit.uses]
        rounded = {s.name: self.rounded(s) for s in unit.scalars}
        values = [rounded[s.name] if s.text.is_word else s.name for s in unit.scalars]
        stored = {t.type for t in (*unit.inputs, *unit.outputs)}
        return MapView(
            **vars(unit),
            element_template=", ".join(f"typename {t}" for t in element_types),
            element_call=unit.element + (f"<{', '.join(element_types)}>" if element_types else ""),
            element_head=self.element_head(unit),
            operands=operands,
            tensors=render.in_order(t for t in operands if t not in unit.indices),
            position={o.name: k for k, o in enumerate(operands)},
            pointer=pointers,
            writable=set(pointers.values()),
            scalar_values=values,
            counting={x.name: counting(unit, x) for x in unit.indices},
            aliases={a: of for a, of in render.computed_of.items() if a in unit.uses | stored},
            rounded=rounded,
            computed=[(s, v) for s, v in zip(unit.scalars, values, strict=True) if v == s.name],
        )

    @staticmethod
    def operands(render: Render, unit: Unit) -> tuple[list[Tensor], dict[str, str]]:
        """What a unit walks through, in the order of its strides, and the pointer of each output; the last operand is written."""
        user = render.global_names.user
        loaded = {t.spec_name for t in unit.inputs}
        fresh = [o for o in unit.outputs if not o.state]
        blind = [replace(o, name=user(o.spec_name)) for o in unit.outputs if o.state and o.spec_name not in loaded]
        read, states = ([t for t in unit.inputs if t.state is state] for state in (False, True))
        return [*read, *unit.indices, *states, *blind, *fresh], {o.name: user(o.spec_name) if o.state else o.name for o in unit.outputs}

    @staticmethod
    def element_head(unit: Unit, *more: str) -> str:
        """The first line of the function that computes an element: it returns its one result, several are references.  `more` are
        parameters that stand first."""
        params = [*more, *(f"{t.compute} {t.name}" for t in unit.read if t.name not in unit.within)]
        params += [f"{t.compute} {t.name}" for t in unit.taps]
        params += [f"{x.compute} {x.name}" for x in unit.indexed if x.name not in unit.within]
        params += [f"u32 {w.name}" for w in unit.words] + [f"{s.type} {s.name}" for s in unit.scalars if s.name not in unit.within]
        if unit.single:
            return wrapped(f"inline {unit.outputs[0].compute} {unit.element}", params, " {")
        return wrapped(f"inline void {unit.element}", params + [f"{o.compute}& {o.name}" for o in unit.outputs], " {")

    @staticmethod
    def doubles(render: Render) -> bool:
        """Whether a double may be rounded to a 16-bit float: not where one dtype variable alone decides what is computed in."""
        named = {let.tensor_dtype.name for let in render.program.lets if not let.is_number and not let.generic}
        stored = {r.dtype for r in render.kernel.results}
        narrow = bool((named | stored) & NARROW) and bool(render.variables)  # which a variable that is f64 meets
        return "f64" in named or len(render.variables) > 1 or narrow

    # ------------------------------------------------------------------ host numbers

    def number(self, n: Let, defs: dict[str, Let], done: dict[str, Text], names: Names) -> Text:
        """C++'s double and 64-bit integers."""
        assert isinstance(n.dtype, Number)
        if n.expr.name == "lit":
            text = n.expr.attrs[0]
            if text in ("inf", "-inf", "nan"):
                return source({"inf": "HUGE_VAL", "-inf": "-HUGE_VAL", "nan": 'std::nan("")'}[text])
            value = exact(text)
            return (
                numeral(decimal(value, single=False))
                if n.dtype == FLOAT
                else self.conversion(self.number_types["int"], numeral(str(int(value))))
            )
        if n.expr.name in ("arg", "size"):
            return named(names.user(n.expr.attrs[0]))
        args: list[Text] = []
        for o in n.expr.operands:
            operand, operand_text = defs[o.name], done[o.name]
            if n.dtype == FLOAT and operand.dtype != FLOAT and not (n.expr.name == "where" and not args):
                if operand.expr.name == "lit":
                    operand_text = numeral(decimal(exact(operand.expr.attrs[0]), single=False))
                else:
                    operand_text = self.conversion("double", operand_text)
            args.append(operand_text)
        row = OPS[n.expr.name]
        asks = row.rule == "compare" or row.rule == "test" and defs[n.expr.operands[0].name].dtype == FLOAT  # their result is a bool
        kind = "float" if asks else n.dtype.kind
        return fill(row.cpp, kind, args, {"F": self.number_types[n.dtype.kind], "U": "uint64_t"})


def counting(unit: Unit, x: Tensor) -> list[tuple[str, str]]:
    """The axes that a position counts, the one that runs fastest first, as C++'s bounds of a loop down over them: the first and the last,
    by `rank`."""
    axes = {d: f"rank - {len(unit.named) - k}" for k, d in enumerate(unit.named)}
    return [(f"rank - {len(unit.named) + 1}", "0") if d == ELLIPSIS else (axes[d], axes[d]) for d in reversed(x.dims)]


__all__ = ["CALL", "CFamily"]
