"""C++ for the CPU: types, literals and casts.  The skeleton is templates/cpp/map.cpp.jinja."""

from __future__ import annotations

import re
from typing import Any

from kgen.backends.base import Render
from kgen.backends.c_family import CFamily
from kgen.backends.text import wrapped
from kgen.backends.units import Accumulator, RowUnit, Unit


class Cpp(CFamily):
    name = "cpp"
    has_forms = False
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

    def vectorised(self, code: str) -> list[tuple[str, int]]:
        """The functions of the vector library that code calls, each with its arity."""
        called = set(re.findall(r"std::(\w+)\(", code))
        return [(f, n) for f, n in sorted(self.vector_library.items()) if f in called]

    def library(self, code: str) -> str:
        """What stands before every namespace for code: what it calls of the vector library."""
        functions = self.vectorised(code)
        return self.environment().get_template("libm.cpp.jinja").render(vectorised=functions) if functions else ""

    def extend(self, render: Render, units: list[Unit | RowUnit], context: dict[str, Any]) -> None:
        super().extend(render, units, context)
        maps = [u for u in context["units"] if not u["over_rows"]]
        rows = [u for u in context["units"] if u["over_rows"]]
        context["vectorised"] = self.vectorised(context["code"])
        context["doubles"] = self.doubles(render) or "to<" in context["code"] + str([u["rounded"] for u in context["units"]])
        context["any_index"] = any(u["indices"] for u in context["units"])
        context.update(maps=maps, rows=rows, finds=any(u["found"] for u in rows), gathers=any(u["gathers"] for u in rows))
        for u in maps:
            self.map_texts(u)
        for u in rows:
            self.row_texts(u, context)

    def row_view(self, render: Render, unit: RowUnit, context: dict[str, Any], keeping: bool = True) -> dict[str, Any]:
        return super().row_view(render, unit, context, keeping)

    def map_texts(self, u: dict[str, Any]) -> None:
        """The texts of a map: its run function and entries, the call of the element function."""
        numbers = [f"{a.type} {a.name}" for a in u["numbers"]]

        def params(bound: dict[str, str]) -> list[str]:
            return ["int rank", "const int64_t* size", *self.tensor_params(u, bound), *numbers]

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
        u["call"] = wrapped(u["element_call"], [*value.values(), *u["scalar_values"], *results], ";", 100).replace("\n", "\n            ")
        u["run_template"] = ", ".join(f"typename {v}" for v in u["variables"])

    def tensor_params(self, u: dict[str, Any], bound: dict[str, str]) -> list[str]:
        """Each tensor's pointer and strides as parameters, for dtype variables bound to dtypes (or not)."""
        found = []
        for t in u["tensors"]:
            const = "" if t.name in u["writable"] else "const "
            kind = u["spelled"].get(t.type, t.type)
            if t.type in bound:
                kind = self.types[bound[t.type]]
            elif bound and t.type in u["spelled"]:
                kind = "double" if any(bound[v] == "f64" for v in u["computed_of"][t.type]) else "float"
            found.append(f"{const}{kind}* {t.name}, const int64_t* {t.name}_stride")
        return found

    def row_texts(self, u: dict[str, Any], context: dict[str, Any]) -> None:
        """The texts of a pass over rows: its run function takes the scalars as they are rounded, its entries the numbers."""
        numbers = [f"{a.type} {a.name}" for a in u["numbers"]]
        strides = [f"const int64_t* {g.name}_stride, int64_t {g.stride}" for g in u["gathers"]]
        scalars = [f"{u['spelled'].get(s.type, s.type)} {s.name}_given" for s in u["scalars"]]
        sizes = [f"int64_t {g.extent}" for g in u["gathers"]]
        head = ["int rank", "int inner_rank", "const int64_t* size"]
        u["run_head"] = wrapped(f"void {u['name']}_run", [*head, *self.tensor_params(u, {}), *strides, *sizes, *scalars], " {")
        u["run_template"] = ", ".join(f"typename {v}" for v in u["variables"])
        given = ["rank", "inner_rank", "size", *(x for t in u["tensors"] for x in (t.name, f"{t.name}_stride"))]
        given += [x for g in u["gathers"] for x in (f"{g.name}_stride", g.stride)] + [g.size for g in u["gathers"]]
        given += [u["rounded"][s.name] for s in u["scalars"]]
        for c in u["codes"]:
            self.places_apart(c, u)
        u["entries"] = []
        used = set(re.findall(r"\w+", " ".join(u["rounded"].values())))
        for bound in map(dict, u["bindings"]):
            chosen = "<" + ", ".join(self.types[d] for d in bound.values()) + ">" if bound else ""
            name = "_".join([u["name"], *bound.values()])
            lines = [f"    using {a} = compute<{', '.join(of)}>;" for a, of in context["generics"].items() if a in used]
            lines += [f"    using {v} = {self.types[d]};" for v, d in bound.items() if v in used | set(re.findall(r"\w+", " ".join(lines)))]
            call = wrapped(f"    {u['name']}_run{chosen}", given, ";")
            params = [*head, *self.tensor_params(u, bound), *strides, *numbers]
            u["entries"].append((wrapped(f'extern "C" void {name}', params, " {"), "\n".join([*reversed(lines), call])))

    def accumulator(self, a: Accumulator) -> dict[str, Any]:
        return super().accumulator(a) | {"least": str(a.kind == "argmin").lower(), "worst": self.identity(a)}

    @staticmethod
    def places_apart(c: dict[str, Any], u: dict[str, Any]) -> None:
        """Take out of a reading's code what only the places of an argmax or argmin need: it runs for the few groups that change one."""

        def needs(roots: list[str], told: bool) -> tuple[set[str], list[str]]:
            """The words of some texts and of the lines that those need; with the lines that name nothing where they are `told`."""
            words = set(re.findall(r"\w+", " ".join(roots)))
            kept: list[str] = []
            for line in reversed(c["lines"]):
                named = re.match(r"const [\w:<>]+ (\w+) = ", line)
                if named[1] in words if named else told:
                    kept.insert(0, line)
                    words |= set(re.findall(r"\w+", line)) if named else set()
            return words, kept

        results = [*(a["value"] for a in c["accumulators"]), *(o["value"] for o in c["outputs"]), *(k.name for k in c["keeps"])]
        places = [a["place"] for a in c["accumulators"] if a["place"]]
        c["scalars"] = [s for s in u["scalars"] if s.name in needs([*results, *places], False)[0]]
        c["lines_of"] = [*c["keeps"], *c["repeats"]]
        c.update(place_lines=[], place_inputs=[], place_indices=[], place_shared=[], place_takes=[])
        if not places:
            return
        (own, lines), (words, c["place_lines"]) = needs(results, True), needs(places, False)
        for name in ("inputs", "takes"):
            c[f"place_{name}"] = [t for t in c[name] if t.name in words]
        c["place_indices"] = [x for x in c["indices"] if x.name in words and x.name not in own]
        c["place_shared"] = [x for x in c["indices"] if x.name in words and x.name in own]
        c["indices"] = [x for x in c["indices"] if x.name in own]
        c["lines"] = lines
