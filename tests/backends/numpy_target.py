"""A target that kgen does not have: NumPy, for kernels without reductions, indices and 16-bit floats.

It stands here as a backend of somebody else's would: `kgen.backends.TARGETS` names this module, and nothing else knows of it.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import jinja2

from kgen.backends import backend
from kgen.backends.base import Backend, Page, Render
from kgen.backends.names import Names
from kgen.backends.text import Text, functions, named, numeral, source
from kgen.backends.units import RowUnit, Statement, Unit
from kgen.check import Kernel
from kgen.errors import KgenError
from kgen.ir import Let
from kgen.ops import LOOSE, OPS, Op, Spell
from kgen.resources import resource
from kgen.types import DTYPES, DType, Number

TEMPLATE = """\
{% for line in doc + signature %}
# {{ line }}
{% endfor %}
import math

import numpy
{% if torch %}
import torch
{% endif %}


{% for source in host_sources + function_sources %}
{{ source }}

{% endfor %}
def {{ name }}({{ params }}):
{% for line in code %}
    {{ line }}
{% endfor %}
    return {{ values }}
"""


@dataclass(frozen=True)
class View:
    """A file: its function's parameters, lines and results, and the functions that it brings along; whether those need torch."""

    params: str
    code: list[str]
    values: str
    host_sources: list[Text]
    function_sources: list[Text]
    torch: bool


class NumPy(Backend):
    name = "numpy"
    suffix = "_numpy.py"
    comment = "#"
    brackets = True
    keywords = frozenset(keyword.kwlist) | {"numpy", "math"}
    types = {"f32": "numpy.float32", "f64": "numpy.float64", "bool": "numpy.bool_"} | {
        d.name: f"numpy.{d.torch}" for d in DTYPES.values() if d.is_int
    }
    number_types = {"float": "numpy.float64", "int": "numpy.int64", "bool": "numpy.bool_"}
    own_forms = frozenset[str]()
    spelled_as = "cpp"  # what it writes with the same signs, with the same bounds
    spells = {
        **{name: Spell(f"numpy.{name}({{0}})", ulp=(4, 4)) for name in ("exp", "exp2", "log", "sin", "cos", "tanh", "cosh", "expm1", "log1p")},
        **{name: Spell(f"numpy.{name}({{0}})") for name in ("abs", "sqrt", "floor", "ceil", "trunc", "isnan", "isfinite")},
        "max": Spell("numpy.maximum({0}, {1})"),
        "min": Spell("numpy.minimum({0}, {1})"),
        "pow": Spell("numpy.power({0}, {1})", ulp=(4, 4)),
        "where": Spell("numpy.where({0}, {1}, {2})"),
        "and": Spell(bool="numpy.logical_and({0}, {1})"),
        "or": Spell(bool="numpy.logical_or({0}, {1})"),
        "not": Spell(bool="numpy.logical_not({0})"),
        "sigmoid": Spell("sigmoid({0})", ulp=(5, 5), source='''\
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    e = numpy.exp(-numpy.abs(x))
    return numpy.where(x < 0, e, numpy.ones_like(e)) / (1 + e)
'''),
    }  # fmt: skip

    def spell(self, row: Op, form: str = "") -> Spell:
        found = super().spell(row, form)
        return found if row.name in self.spells or not any(c in found.float + found.int for c in ":?(&|!~") else Spell()

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        if dtype.is_float:
            return source(f'{{0}}("{value if isinstance(value, str) else float(value)!r}")', type_name, to=type_name)
        return numeral(str(int(value))) if dtype.is_int else named(str(bool(value)))

    def cast(self, x: Text, given: DType, target: DType, type_name: str) -> Text:
        if target.kind == "bool":
            return source("{0} != 0", x.fit(LOOSE + 1), level=LOOSE)
        if target.is_int and given.is_float:
            raise KgenError("numpy: floats are not cast to integers yet")
        return source("numpy.asarray({0}).astype({1})", x, type_name)

    def statement(self, name: str, type_name: str, value: Text, is_declared: bool, note: str) -> Statement:
        return Statement((name,), "", value, note)

    def assign(self, s: Statement) -> str:
        return f"{s.names[0]} = {s.value}"

    def number(self, n: Let, defs: dict[str, Let], done: dict[str, Text], names: Names) -> Text:
        return backend("triton").number(n, defs, done, names)  # Python's numbers, as there

    def environment(self) -> jinja2.Environment:
        return jinja2.Environment(loader=jinja2.DictLoader({f"kernel.{self.suffix}.jinja": TEMPLATE}), trim_blocks=True)

    def template_folder(self) -> Path:
        return Path(__file__).parent / "numpy"

    def render(self, kernel: Kernel) -> str:
        """The source.  Raises `KgenError` for what this target does not cover."""
        stored = {p.dtype for p in kernel.params if p.is_tensor} | {r.dtype for r in kernel.results}
        without = kernel.reduces or any(v.op in ("pick", "index", "size") for v in kernel.values) or not stored <= self.types.keys()
        spelled = (self.spell(OPS[v.op]) for v in kernel.values if v.op in OPS and not isinstance(v.type, Number))
        if without or not all(s.text("float") or s.text("bool") for s in spelled):
            raise KgenError(f"numpy: {kernel.name} has more than maps of f32, f64 and integers")
        return super().render(kernel)

    def view(self, render: Render, units: list[Unit | RowUnit], page: Page) -> View:
        """One function: numbers, then what each result is."""
        (unit,) = units
        assert isinstance(unit, Unit)
        given = [Statement((s.name,), "", source("{0}({1})", s.type, s.text)) for s in unit.scalars]
        given += [Statement((t.name,), "", source("{0}.astype({1})", t.name, t.compute)) for t in unit.inputs if t.type != t.compute]
        numbers = [c for s in unit.scalars for c in s.text.calls]
        host = functions(resource("templates") / "triton", numbers, (row.python for row in OPS.values()))
        return View(
            params=", ".join(render.global_names.user(p.name) for p in render.kernel.params),
            code=self.printed([*given, *unit.lines]),
            values="".join(f"numpy.asarray({o.value}).astype({o.type}), " for o in unit.outputs).rstrip(),
            host_sources=list(host.values()),
            function_sources=list(self.functions(unit.calls).values()),
            torch=any(c.startswith("torch.") for f in host.values() for c in (*f.calls, *f.uses)),
        )


class Launcher:
    """The emitted function, called on the memory of torch's tensors."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        names: dict[str, Any] = {}
        exec(backend("numpy").render(kernel), names)
        self.function = names[kernel.name]

    def __call__(self, call: Any) -> None:
        import numpy
        import torch

        order = list(dict.fromkeys(d for p in self.kernel.params for d in p.dims or () if d != "..."))
        values = []
        for p in self.kernel.params:
            given = call.given[p.name]
            if p.is_tensor:  # a 1 for each dim that it lacks
                have = [d for d in p.dims or () if d != "..."]
                lead = given.dim() - len(have)
                given = given.permute([*range(lead), *(lead + have.index(d) for d in order if d in have)]).numpy()
                given = given[(..., *(slice(None) if d in have else None for d in order))]
            values.append(given)
        with numpy.errstate(all="ignore"):
            found = self.function(*values)
        for r, value in zip(self.kernel.results, found, strict=True):
            have = [d for d in r.dims if d != "..."]
            made = torch.from_numpy(numpy.array(value))
            lead = made.dim() - len(order)
            gone = (lead + k for k, d in enumerate(order) if d not in have)
            made = made.permute([*range(lead), *(lead + order.index(d) for d in have), *gone])
            call.results[r.name].copy_(made.reshape(made.shape[: lead + len(have)]))
