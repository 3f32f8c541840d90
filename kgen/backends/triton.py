"""Triton: types, literals, casts and the host's arithmetic in Python.  The skeletons are
templates/triton/*.jinja; passes over rows are written by kgen.backends.triton_rows."""

from __future__ import annotations

import keyword
import math
import re
from copy import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kgen import host
from kgen.backends.base import Backend, Render
from kgen.backends.names import Names
from kgen.backends.python_text import listed, wrapped
from kgen.backends.text import Text, decimal, fill, negative, single_precision
from kgen.backends.triton_rows import RowView
from kgen.backends.units import Argument, RowUnit, Tensor, Unit
from kgen.check import Kernel
from kgen.ir import Let, exact
from kgen.ops import CALL, LOOSE, OPS, Op, Spell
from kgen.schedule import Map, Reduce
from kgen.types import DTYPES, ELLIPSIS, FLOAT, INT, NARROW, DType, Number, variable_of

#: What a literal's bare text looks like: it takes its dtype from the tensor beside it.
BARE = re.compile(r"-?[\d.]+(e[+-]?\d+)?|-?float\(\"-?\w+\"\)|\(\S+ if \w+ == tl\.float32 else \S+\)")
MAX_F32 = Fraction(float.fromhex("0x1.fffffep127"))

class Triton(Backend):
    name = "triton"
    suffix = ".py"
    comment = "#"
    end = ""
    types = {
        "f16": "tl.float16", "bf16": "tl.bfloat16", "f32": "tl.float32", "f64": "tl.float64", "i8": "tl.int8", "u8": "tl.uint8",
        "i16": "tl.int16", "i32": "tl.int32", "i64": "tl.int64", "bool": "tl.int1",
    }  # fmt: skip
    number_types = {"float": "tl.float64", "int": "tl.int64", "bool": "tl.int64"}
    #: Python's, and what Triton's launcher calls its own arguments and locals.
    keywords = (
        frozenset(keyword.kwlist)
        | {"__debug__"}
        | set(
            """params specialization options grid warmup num_warps num_stages num_ctas JITCallable specialize_impl backend stream
            device""".split()
        )
    )
    storage_names: frozenset[str] = frozenset()
    mixes = False

    def render(self, kernel: Kernel) -> str:
        mine = copy(self)
        mine.storage_names = frozenset(kernel.variables)
        mine.mixes = mixes(kernel)
        return Render(mine, kernel).source()

    def widen(self, text: str, t: Tensor) -> str:
        """An element as it is computed with."""
        if t.type == t.compute:
            return text
        return f"widened({text}, {t.compute})" if self.mixes else f"{text}.to({t.compute})"

    def columns(self) -> list[Spell]:
        """Triton's, and Python's for the host part."""
        return [*super().columns(), *(row.python for row in OPS.values())]

    def file_name(self, kernel: str) -> str:
        return f"{kernel}_triton.py"

    # ------------------------------------------------------------------ values

    def launches(self, kernel: Kernel) -> list[dict[str, Any]]:
        """For each pass the name of its jit function and its operands in order, with whether each has memory."""
        render = Render(self, kernel)
        units = render.units()
        context = render.context(units)
        return [self.view(render, u, p, context) for u, p in zip(units, render.passes, strict=True)]

    def function_name(self, kernel: Kernel) -> str:
        """The name of the emitted module's function: the kernel's, where Python lets it have that name."""
        return Render(self, kernel).kernel_name

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        if dtype.kind == "bool":
            return Text(f"tl.full([], {bool(value)}, tl.int1)")
        if dtype.is_int:
            n = host.wrap(int(value), dtype.bits, dtype.kind == "int")
            typed = f"tl.full([], {n}, {type_name})"
            return replace(negative(str(n)), typed=typed) if abs(n) < 2**31 else Text(typed)
        text = self._float(value, type_name)
        return replace(negative(text), typed=f"tl.full([], {text}, {type_name})")

    def _float(self, value: Fraction | str, type_name: str) -> str:
        """A float's decimal, the shortest for its dtype; two where rounding to f64 and then to f32 is not rounding once."""
        if isinstance(value, str):
            return f'float("{value}")'
        if type_name == "tl.float64":
            return decimal(value, single=False)
        single = f'float("{"-" * (value < 0)}inf")' if abs(value) >= MAX_F32 + 2**103 else decimal(value, single=True)
        if type_name == "tl.float32":
            return single
        double = decimal(value, single=False)
        alike = "inf" not in single and host.to_dtype(float(double), DTYPES["f32"]) == host.to_dtype(
            float(single), DTYPES["f32"]
        ) == _to_f32(value)
        return double if alike else f"({single if 'inf' in single else repr(_to_f32(value))} if {type_name} == tl.float32 else {double})"

    def cast(self, x: Text, source: DType, target: DType, type_name: str) -> Text:
        if target.kind == "bool":
            return x if source.kind == "bool" else Text(f"{x.fit(LOOSE + 1)} != 0", LOOSE)
        if target.is_int and source.is_float:
            return Text(f"saturate({x.typed or x.text}, {type_name})")
        if type_name in self.storage_names or type_name == "tl.bfloat16" or type_name == "tl.float16" and not source.is_float:
            return Text(f"round_to({x.typed or x.text}, {type_name})")
        if self.mixes and source.is_float and target.is_float:
            return Text(f"widened({x.typed or x.text}, {type_name})")
        return Text(f"{x.typed or x.fit(CALL)}.to({type_name})")

    def assign(self, type_name: str, name: str, text: str) -> str:
        if BARE.fullmatch(text) and type_name:
            text = f"tl.full([], {text}, {type_name})"
        return f"{name} = {text}"

    # ------------------------------------------------------------------ numbers

    def number(self, n: Let, defs: dict[str, Let], done: dict[str, Text], names: Names) -> Text:
        """Python's numbers, with IEEE's special values where Python would raise."""
        op = n.expr.name
        if op == "lit":
            return _python(n.expr.attrs[0], n.dtype)  # type: ignore[arg-type]
        if op in ("arg", "size"):
            return Text(names.user(n.expr.attrs[0]))
        kinds = [defs[o.name].dtype for o in n.expr.operands]
        args = [done[o.name] for o in n.expr.operands]
        row, chooses = OPS[op], OPS[op].rule == "where"
        if n.dtype == FLOAT or FLOAT in kinds and not chooses:
            for k, (o, kind) in enumerate(zip(n.expr.operands, kinds, strict=True)):
                if kind != FLOAT and not (chooses and k == 0):
                    args[k] = (
                        _python(defs[o.name].expr.attrs[0], FLOAT) if defs[o.name].expr.name == "lit" else Text(f"float({args[k].text})")
                    )
            return fill_python(row, "float", args)
        made = fill_python(row, n.dtype.kind, args)  # type: ignore[union-attr]
        wraps = n.dtype == INT and row.rule in ("arith", "same") and row.python.infix not in (CALL, LOOSE)
        return Text(f"host_wrap({made.text})") if wraps else made

    # ------------------------------------------------------------------ what the template needs

    def extend(self, render: Render, units: list[Unit | RowUnit], context: dict[str, Any]) -> None:
        for name in (*(p.name for p in render.kernel.params), *(r.name for r in render.kernel.results)):
            render.global_names.user(name)
        views = [self.view(render, u, p, context) for u, p in zip(units, render.passes, strict=True)]
        code = "\n".join([*(u["source"] for u in views), *(t for u in views for _, t, _ in u["computed"])])
        sources = self.functions(code)
        kernel = render.kernel
        fresh = [r for r in kernel.results if not r.state]
        for u in views:
            if not u["rows"]:
                u["launch"] = self.launch(u, render)
        kept = [w for u in views for w in u["kept"]]
        computed = {render.generics.get(d, "") for _, d, _ in kept}.union(*(u["generics"] for u in views))
        variables = {name: v for v, name in render.variables.items()}
        sizes = [(a.name, a.spec_name) for a in context["numbers"] if a.kind == "size" and any(a.name in u["words"] for u in views)]
        summary = f"Writes {', '.join(r.state for r in kernel.results if r.state)} in place." if len(fresh) < len(kernel.results) else ""
        top = [*context["doc"], *context["signature"]][:2]
        context |= {
            "encoding": any("coding" in line for line in top),  # Python would read the file in what such a comment names
            "units": views,
            "function_sources": list(sources.values()),
            "math": "math." in "".join(sources.values()) or any(u["rows"] for u in views) or any(of == ELLIPSIS for _, of in sizes),
            "assembly": "ASSEMBLY" in "".join(sources.values()),
            "fractions": "Fraction(" in "".join(sources.values()),
            "libdevice": "libdevice." in code + "".join(sources.values()),
            "head": self.head(render, bool(fresh)),
            "given": [(p.name, render.global_names.user(p.name)) for p in kernel.params if p.is_tensor],
            "fresh": fresh,
            "summary": [f'"""{summary}"""'] if summary else [],
            "tensors": self.tensors(render) + [(name, self.kept_dtype(d, render), " ".join(dims)) for name, d, dims in kept],
            "kept": [name for name, _, _ in kept],
            "maps": not all(u["rows"] for u in views),
            "reduces": any(u["rows"] for u in views),
            "apart": any(u["rows"] and u["apart"] for u in views),
            "states": f"{{{', '.join(repr(r.state) for r in kernel.results if r.state)}}}".replace("'", '"').replace("{}", ""),
            "long": any(u["rows"] and u["long"] for u in views),
            "computed_in": [(g, [variables[v] for v in context["generics"][g]]) for g in context["generics"] if g in computed],
            "generic": bool(render.variables),
            "wide": [(d, variable_of(d)) for d in kernel.wide],
            "sizes": sizes,
            "indices": any(u.indices for u in units),
            "writes": listed([r.state or r.name for r in kernel.results]),
        }

    def launch(self, u: dict[str, Any], render: Render) -> str:
        """The host function's call of `launch` for a unit."""
        names = [key if is_tensor else f"index[{u['spec'][key]}]" for key, is_tensor in u["operands"]]
        items = [u["kernel"], f'"{u["dims"]}"', "tensors", listed(names), listed(u["writes"]),
                 f"[{', '.join(u['numbers'])}]", "sizes"]  # fmt: skip
        items += ["(" + "".join(f'FLOATS[dtypes["{v}"]], ' for v in self.spec_variables(render, u["passed"])) + ")"] if u["passed"] else []
        return wrapped("    launch", items, "")

    def spec_variables(self, render: Render, names: list[str]) -> list[str]:
        return [v for v, name in render.variables.items() if name in names]

    def head(self, render: Render, out: bool) -> str:
        """The host function's first line; what follows a default without one of its own is given by keyword."""
        items, defaults, star = [], False, False
        for p in render.kernel.params:
            default = "" if p.default is None else f"={_python(p.default, FLOAT if p.dtype == 'float' else INT, keep=True).text}"
            if defaults and not default and not star:
                items.append("*")
                star = True
            defaults = defaults or bool(default)
            items.append(render.global_names.user(p.name) + default)
        return wrapped(f"def {render.kernel_name}", items + ([] if star or not out else ["*"]) + (["out=None"] if out else []), ":", 110)

    def tensors(self, render: Render) -> list[tuple[str, str, str]]:
        """(name, dtype, dims) of each parameter and new result, as Python."""
        declared = [(p.name, p.dtype, p.dims) for p in render.kernel.params if p.is_tensor]
        declared += [(r.name, r.dtype, r.dims) for r in render.kernel.results if not r.state]
        return [(name, f"torch.{DTYPES[d].torch}" if d in DTYPES else f'"{d}"', " ".join(dims or ())) for name, d, dims in declared]

    def kept_dtype(self, dtype: str, render: Render) -> str:
        """A workspace's dtype as Python: torch's, or the name under which the host function's `dtypes` has it."""
        return f"torch.{DTYPES[dtype].torch}" if dtype in DTYPES else f'"{render.generics.get(dtype) or dtype.lstrip("=")}"'

    def view(self, render: Render, unit: Unit | RowUnit, p: Map | Reduce, context: dict[str, Any]) -> dict[str, Any]:
        """A unit's texts: the lines of its functions and what the launch passes on."""
        if isinstance(unit, RowUnit):
            assert isinstance(p, Reduce)
            return RowView(self, render, unit, p, context).view()
        names = Names(set(render.global_names.taken))

        def hosts(t: Tensor) -> Tensor:
            """A workspace has no name in the spec: the host's code calls it by its own."""
            return replace(t, spec_name=t.name) if t.spec_name in render.kept else t

        inputs = tuple(map(hosts, unit.inputs))
        outputs = tuple(hosts(replace(o, value=self._typed(o.value, o.compute))) for o in unit.outputs)
        kept = {name for _, name in render.kept.values()}
        compute = {o.name: o.compute for o in outputs}
        lines = [self._declared(line, compute) for line in unit.lines]
        loaded = {t.spec_name for t in inputs}
        pointers: dict[str, str] = {}
        for t in (*inputs, *(o for o in outputs if o.spec_name not in loaded)):
            stem = t.name if t.spec_name in kept else render.global_names.user(t.spec_name)
            pointers[t.spec_name] = names.fresh(f"{stem}_ptr")
        types = {t.type: pointers[t.spec_name] for t in (*reversed(outputs), *reversed(inputs)) if t.type in context["variables"]}
        kind = {s.let.name: s.number.dtype.kind for s in p.scalars}  # type: ignore[union-attr]
        body = " ".join((*lines, *(o.value for o in outputs)))
        computes = " ".join((*(t.compute for t in inputs if t.type != t.compute), *(s.type for s in unit.scalars)))
        words = set(re.findall(r"\w+", body))
        aliases = {a: of for a, of in context["generics"].items() if a in words | set(re.findall(r"\w+", computes))}
        storage = [self._store(o, context["generics"]) for o in outputs]
        variables = [
            v
            for v in context["variables"]
            if v in words | set(re.findall(r"\w+", " ".join(storage))) or any(v in of for of in aliases.values())
        ]
        passed = [v for v in variables if v not in types]
        constants = [v for v in (*variables, *aliases) if v in words]

        written = dict.fromkeys(o.spec_name for o in outputs)
        # operands in the order of their strides: the last is a result
        order = [*(s for s in pointers if s not in written), *(i.name for i in unit.indices), *(s for s in pointers if s in written)]
        steps = {key: names.fresh(f"{pointers[key][:-4] if key in pointers else key}_steps") for key in order}
        strides = [[names.fresh(f"{steps[key][:-6]}_{d}") for d in range(4)] for key in order]
        kinds = {key: names.fresh(f"{steps[key][:-6]}_kind") for key in order}
        at = {key: names.fresh(f"{steps[key][:-6]}_at") for key in order}
        block = names.fresh(f"{unit.name}_block")
        kernel = f"{unit.name}_kernel"
        numbers = list(unit.scalars)
        common = ["first", "lane", "sizes"]
        loads = []
        for k, key in enumerate(order):
            loads.append(f"{kinds[key]}: tl.constexpr = KINDS[{k}]")
            where = [*common, steps[key], kinds[key], "RANK", "INDEX"]
            loads.append(
                f"{at[key]} = "
                + (f"place({', '.join([pointers[key], *where])})" if key in pointers else f"offset({', '.join([*where, '1'])})")
            )
        for t in inputs:
            loads.append(f"{t.name} = {self.widen(f'tl.load({at[t.spec_name]}, mask)', t)}")
        values = [o.name for o in outputs]
        starts = {i.name: names.fresh(f"{i.name}_first") for i in unit.indices}
        loads += [f"{i.name} = {starts[i.name]} + {at[i.name]}.to(tl.int64)" for i in unit.indices]
        arguments = [*(t.name for t in inputs), *(i.name for i in unit.indices), *(s.name for s in numbers), *constants]
        stores = [f"tl.store({at[o.spec_name]}, {text}, mask)" for o, text in zip(outputs, storage, strict=True)]
        element_params = [
            *(t.name for t in inputs),
            *(i.name for i in unit.indices),
            *(s.name for s in numbers),
            *(f"{c}: tl.constexpr" for c in constants),
        ]
        ptrs = [pointers[s] for s in order if s in pointers]
        scalars = [f"{s.name}: {self.number_types[kind[s.spec_name]]}" for s in numbers]
        runtime = [*scalars, *(f"{n}: tl.int64" for n in ("numel", "n1", "n2", "n3"))]
        tail = ["KINDS: tl.constexpr", "RANK: tl.constexpr", "INDEX: tl.constexpr"]
        rounded = [self._rounded(s, kind[s.spec_name]) for s in numbers]
        block_args = [
            *ptrs,
            *(s.name for s in numbers),
            *common[:2],
            "<mask>",
            "sizes",
            *steps.values(),
            *starts.values(),
            "KINDS",
            "RANK",
            "INDEX",
            *passed,
        ]
        computed = [(s.name, s.text, s.note) for s in numbers if not re.fullmatch(r"[^\W\d]\w*", s.text)]
        return {
            "rows": False,
            "kept": [(o.name, o.dtype, o.dims) for o in outputs if o.spec_name in kept],
            "generics": set(),
            "source": "\n".join([*lines, ", ".join(o.value for o in outputs), *loads, *stores, *rounded]),
            "name": unit.name,
            "element": unit.element,
            "block": block,
            "kernel": kernel,
            "lines": lines,
            "element_head": wrapped(f"def {unit.element}", element_params, ":"),
            "returns": ", ".join(o.value for o in outputs),
            "block_head": wrapped(
                f"def {block}",
                [a if a != "<mask>" else "mask" for a in block_args[: len(block_args) - 3 - len(passed)]]
                + tail
                + [f"{v}: tl.constexpr" for v in passed],
                ":",
            ),
            "definitions": [
                *(f"{v}: tl.constexpr = {types[v]}.dtype.element_ty" for v in variables if v in types),
                *(
                    f"{a}: tl.constexpr = tl.float64 if {' or '.join(f'{v} == tl.float64' for v in of)} else tl.float32"
                    for a, of in aliases.items()
                ),
            ],
            "rounded": rounded,
            "loads": loads,
            "call": wrapped(f"    {', '.join(values)} = {unit.element}", arguments, ""),
            "stores": stores,
            "first_dynamic": len(ptrs),
            "last_dynamic": len(ptrs) + len(runtime) + 4 * len(order) + len(starts),
            "kernel_lines": [
                ", ".join(ptrs),
                *_chunks(scalars, 6),
                ", ".join(runtime[len(scalars) :]),
                *(", ".join(f"{s}: tl.int64" for s in group) for group in strides),
                *([", ".join(f"{s}: tl.int64" for s in starts.values())] if starts else []),
                ", ".join([*tail, "BLOCK: tl.constexpr", *(f"{v}: tl.constexpr" for v in passed)]),
            ],
            "steps": [(steps[key], ", ".join(group)) for key, group in zip(order, strides, strict=True)],
            "full": wrapped(f"        {block}", [a if a != "<mask>" else "None" for a in block_args], ""),
            "partial": wrapped(f"        {block}", [a if a != "<mask>" else "lane[0] + lane[1] < numel - first" for a in block_args], ""),
            "dims": " ".join(unit.dims),
            "operands": [(s, s in pointers) for s in order],
            "spec": {i.name: i.spec_name for i in unit.indices},
            "inputs": loaded,
            "writes": list(written),
            "numbers": [s.text if re.fullmatch(r"[^\W\d]\w*", s.text) else s.name for s in numbers],
            "computed": computed,
            "passed": passed,
            "words": set(re.findall(r"\w+", " ".join(s.text for s in numbers))),
        }

    def _typed(self, text: str, type_name: str) -> str:
        return f"tl.full([], {text}, {type_name})" if BARE.fullmatch(text) else text

    def _declared(self, line: str, compute: dict[str, str]) -> str:
        """An assignment to a result of a bare literal gets the result's dtype."""
        name, _, text = line.partition(" = ")
        return f"{name} = {self._typed(text, compute[name])}" if name in compute else line

    def _store(self, o: Tensor, generics: dict[str, list[str]]) -> str:
        """What is stored: a store rounds as `.to` does, which from f64 to bf16 is twice."""
        if generics.get(o.compute) == [o.type]:
            return o.name
        may_be_double = o.compute == "tl.float64" or o.compute not in self.types.values()
        may_be_brain = o.type == "tl.bfloat16" or o.type in self.storage_names
        return f"round_to({o.name}, {o.type})" if may_be_double and may_be_brain else o.name

    def _rounded(self, s: Argument, kind: str) -> str:
        """A number argument rounded to the dtype it is used in."""
        target = DTYPES[s.kind]
        if kind == "float" and target.is_float:
            return f"{s.name} = tl.full([], {s.name}, {s.type})"
        value = Text(f"tl.full([], {s.name}, {self.number_types[kind]})")
        if s.type == self.number_types[kind]:
            return f"{s.name} = {value.text}"
        return f"{s.name} = {self.cast(value, DTYPES['f64' if kind == 'float' else 'i64'], target, s.type).text}"


def mixes(kernel: Kernel) -> bool:
    """Whether both 16-bit floats may occur in one launch: as they are declared or cast to, or as two variables."""
    casts = {str(v.attr) for v in kernel.values if v.op == "cast"}
    declared = {p.dtype for p in kernel.params if p.is_tensor} | {r.dtype for r in kernel.results} | casts
    return len(declared & {*NARROW, *kernel.variables}) > 1


def _chunks(items: list[str], size: int) -> list[str]:
    return [", ".join(items[k : k + size]) for k in range(0, len(items), size)]


def _to_f32(value: Fraction) -> float:
    """The exact value rounded once to f32."""
    return single_precision(value)


def _python(text: str, kind: Number, keep: bool = False) -> Text:
    """A literal of a spec as a Python literal (`keep` leaves a plain one as it was written)."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.lstrip("+"))
    if digits in ("inf", "nan", "pi"):
        return negative(sign + (f'float("{digits}")' if digits != "pi" else repr(math.pi)))
    if keep and kind == FLOAT and re.fullmatch(r"([1-9]\d*|0)(\.\d+)?(e[+-]?\d+)?", digits):
        return negative(text)
    if kind == FLOAT:
        return negative(decimal(exact(digits) * (-1 if sign else 1), single=False))
    return Text(str(bool(exact(digits)))) if kind != INT else negative(sign + str(int(exact(digits))))


def fill_python(row: Op, kind: str, args: list[Text]) -> Text:
    """An operator on numbers as Python writes it, for a kind of operand."""
    text = row.python_text(kind)
    return args[0] if text == "{0}" else fill(replace(row.python, float=text, int=text, bool=text), kind, args, {})
