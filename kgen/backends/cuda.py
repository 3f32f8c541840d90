"""CUDA C++: types, literals, and what a launch needs to know.  The skeleton is templates/cuda/map.cu.jinja.

The same text serves nvcc, which also compiles its host part, and NVRTC, which sees kernels only and no header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from kgen.backends.base import Names, Render, Tensor, Unit, _identifiers, _spelled, function_sources, resource, wrapped
from kgen.backends.c_family import FUNCTIONS, KEYWORDS, CFamily
from kgen.check import Kernel
from kgen.ir import Let
from kgen.schedule import Scalar
from kgen.types import DTYPES, INT, Dims

#: Operands that a SPLAT mask can hold.
SPLATS = 63


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


def _stored(s: Scalar) -> bool:
    """Whether a scalar is a number cast by name to a storage float: the kernel rounds it itself, from f64 or i64."""
    return s.let.generic.startswith("=") or s.let.dtype.is_float and s.let.dtype.bits == 16  # type: ignore[union-attr]


def _passed(s: Scalar, binding: dict[str, str]) -> str:
    if _stored(s):
        return "i64" if s.number.dtype == INT else "f64"
    if s.let.generic:
        return "f64" if any(binding[v] == "f64" for v in s.let.generic.split("+")) else "f32"
    return s.let.dtype.name  # type: ignore[union-attr]


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
    number_types = {"float": "double", "int": "i64", "bool": "bool"}
    infinity, not_a_number = "infinity()", "not_a_number()"

    @property
    def reserved(self) -> frozenset[str]:
        """The host part calls the C++ backend's functions, so their names are taken too."""
        found = super().reserved | _identifiers(resource("templates") / "cpp") | _spelled("cpp") | self.integers.keys()
        return frozenset(name for name in found if len(name) > 1 or not name.isupper())

    # ------------------------------------------------------------------ the source

    def extend(self, render: Render, units: list[Unit], context: dict[str, Any]) -> None:
        super().extend(render, units, context)
        body = "\n".join([*(line for u in units for line in u.lines), *(o.value for u in units for o in u.outputs)])
        views = [self.launch_view(render, u, v, p.scalars, context) for u, v, p in zip(units, context["units"], render.passes, strict=True)]
        context["units"] = views
        calls = "\n".join(call for v in views for call in v["arguments"])
        made = function_sources(self.template_folder(), f"{body}\n{calls}")
        half = {"f16", "bf16"} & context["dtypes"]
        doubles = bool(half) and (self.doubles(render) or any(_stored(s) for p in render.passes for s in p.scalars))
        casts = "to<" in body + calls
        context["round_odd"] = made.pop("round_odd", "")
        if casts and half or doubles and "bf16" in half:
            context["round_odd"] = (self.template_folder() / "functions" / "round_odd.cu").read_text()
        context.update(doubles=doubles, casts=casts, function_sources=list(made.values()), functions=list(made))
        numbers = "\n".join(text for u in views for text in (*u["rounded"].values(), *u["launch"].split("\n")))
        host = function_sources(resource("templates") / "cpp", numbers)
        context.update(host_functions=list(host.values()), host_code="\n".join([numbers, *host.values()]))
        stored = " ".join(t.type for u in units for t in (*u.inputs, *u.outputs))
        used = set(re.findall(r"\w+", " ".join([body, calls, stored, *made.values(), *(s.type for u in units for s in u.scalars)])))
        context["integers"] = {name: of for name, of in self.integers.items() if name in used | {"i64", "u64"}}

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
        pointers = [f"{'' if t.name in u['writable'] else 'const '}{t.type}* {t.name}" for t in memory]
        scalars = [f"{spelled.get(kind[s.name], kind[s.name])} {s.name}" for s in unit.scalars]
        loads = [(lanes[t.name], t.name, at[t.name], self.splat(u["position"][t.name])) for t in unit.inputs]
        values = [f"{t.compute}({lanes[t.name]}.at[k])" for t in unit.inputs]
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
            typed = [f"{c}{self.types[bound[t.type]] if t.type in bound else t.type}* {t.name}, const i64* {s}" for c, t, s in tensors]
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
        launch = wrapped("return launch", ["kernel, plan, vec, stream", *(t.name for t in memory), *passed], ";", 110)
        host = set(re.findall(r"\w+", " ".join([*passed, *(f"{kind[s.name]} {s.text}" for s, _ in u["computed"])])))
        chosen = "".join(f"{v}, " for v in unit.variables)
        vector, layout = render.global_names.fresh(f"{unit.name}_vector"), f"Layout<RANK, {len(u['operands'])}, Index>"
        passing = ["i", "layout", *(t.name for t in memory), *(s.name for s in unit.scalars)]
        device = set(re.findall(r"\w+", " ".join(body)))
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
            width=self.widest(unit), launch=self.indented(launch, 8), chosen=chosen,
            host_aliases={a: of for a, of in u["aliases"].items() if a in host},
            kernel_aliases={a: of for a, of in u["aliases"].items() if a in device},
        )  # fmt: skip
        return u

    @staticmethod
    def indented(text: str, by: int) -> str:
        return text.replace("\n", "\n" + " " * by)

    @staticmethod
    def splat(position: int) -> str:
        return f"SPLAT & {1 << position}{'u' if position == 31 else 'ull' if position > 31 else ''}" if position < SPLATS else "0"

    def widest(self, unit: Unit) -> str:
        """The size of the widest operand's element, in C++."""
        stored = [t for t in (*unit.inputs, *unit.outputs)]
        fixed = max((DTYPES[t.dtype].bytes for t in stored if t.dtype in DTYPES), default=0)
        sizes = [f"int(sizeof({v}))" for v in unit.variables if any(t.type == v for t in stored)]
        if fixed == 8 or not sizes:
            return str(fixed)
        text = sizes[0]
        for other in [*sizes[1:], *([str(fixed)] if fixed > 2 else [])]:
            text = f"wider({text}, {other})"
        return text

    # ------------------------------------------------------------------ for the runtime

    def layout(self, kernel: Kernel) -> tuple[Layout, ...]:
        """How each unit of a kernel is launched, in the order of its passes.

        Raises `KgenError` where the kernel holds what no schedule covers.
        """
        render = Render(self, kernel)
        units = [render.unit(p, k) for k, p in enumerate(render.passes)]
        context = render.context(units)
        CFamily.extend(self, render, units, context)
        spec = {name: v for v, name in render.variables.items()}
        numbers = tuple(let for let in render.program.lets if let.is_number)
        made = []
        for unit, view, p in zip(units, context["units"], render.passes, strict=True):
            state = {o.spec_name for o in unit.outputs if o.state}

            def role(t: Tensor, unit: Unit = unit, state: set[str] = state) -> str:
                return "index" if t in unit.indices else "state" if t.spec_name in state else "input" if t in unit.inputs else "result"

            operands = tuple(Operand(t.spec_name, t.dtype, t.dims, role(t)) for t in view["operands"])
            made.append(Layout(f"{unit.name}_kernel", unit.dims, tuple(spec[v] for v in unit.variables), operands, p.scalars, numbers))
        return tuple(made)
