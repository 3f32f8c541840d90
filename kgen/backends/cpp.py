"""C++ for the CPU: types, literals and casts.  The skeleton is templates/cpp/map.cpp.jinja."""

from __future__ import annotations

import re
from typing import Any

from kgen.backends.base import Render, Unit, wrapped
from kgen.backends.c_family import CFamily


class Cpp(CFamily):
    name = "cpp"
    suffix = ".cpp"
    types = {
        "f16": "f16", "bf16": "bf16", "f32": "float", "f64": "double", "i8": "int8_t", "u8": "uint8_t",
        "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "bool": "bool",
    }  # fmt: skip
    number_types = {"float": "double", "int": "int64_t", "bool": "bool"}
    infinity, not_a_number = "INFINITY", "NAN"
    #: Functions that glibc's vector library serves (2.35 and later), by number of operands.
    vector_library = {
        **dict.fromkeys(
            """acos acosh asin asinh atan atanh cbrt cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 sin sinh tan
            tanh""".split(),
            1,
        ),
        **dict.fromkeys(("atan2", "hypot", "pow"), 2),
    }

    def extend(self, render: Render, units: list[Unit], context: dict[str, Any]) -> None:
        super().extend(render, units, context)
        called = set(re.findall(r"std::(\w+)\(", context["code"]))
        context["vectorised"] = [(f, n) for f, n in sorted(self.vector_library.items()) if f in called]
        context["doubles"] = self.doubles(render) or "to<" in context["code"] + str([u["rounded"] for u in context["units"]])
        context["any_index"] = any(u.indices for u in units)
        for u in context["units"]:
            numbers = [f"{a.type} {a.name}" for a in u["numbers"]]

            def params(bound: dict[str, str], u: dict[str, Any] = u, numbers: list[str] = numbers) -> list[str]:
                tensors = []
                for t in u["tensors"]:
                    const = "" if t.name in u["writable"] else "const "
                    tensors.append(
                        f"{const}{self.types[bound[t.type]] if t.type in bound else t.type}* {t.name}, const int64_t* {t.name}_stride"
                    )
                return ["int rank", "const int64_t* size", *tensors, *numbers]

            u["run_head"] = wrapped(f"void {u['name']}_run", params({}), " {")
            arguments = ["rank", "size", *(x for t in u["tensors"] for x in (t.name, f"{t.name}_stride")), *(a.name for a in u["numbers"])]
            u["entries"] = []
            for bound in map(dict, u["bindings"]):
                chosen = "<" + ", ".join(self.types[d] for d in bound.values()) + ">" if bound else ""
                name = "_".join([u["name"], *bound.values()])
                u["entries"].append(
                    (wrapped(f'extern "C" void {name}', params(bound), " {"), wrapped(f"    {u['name']}_run{chosen}", arguments, ";"))
                )
            value = {t.name: f"{t.compute}({t.name}_tile[i])" for t in (*u["inputs"], *u["indices"])}
            results = [] if u["single"] else [f"{o.name}_i" for o in u["outputs"]]
            u["call"] = wrapped(u["element_call"], [*value.values(), *u["scalar_values"], *results], ";", 100).replace(
                "\n", "\n            "
            )
            u["run_template"] = ", ".join(f"typename {v}" for v in u["variables"])
