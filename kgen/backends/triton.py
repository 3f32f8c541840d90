"""Triton: types, literals, casts and the host's arithmetic in Python.  The skeletons are
templates/triton/*.jinja; passes over rows are written by kgen.backends.triton_rows."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from fractions import Fraction

from kgen import host
from kgen.backends.base import Backend, Only, Page, Render
from kgen.backends.names import Names
from kgen.backends.python_text import listed, wrapped
from kgen.backends.sorts import SortUnit
from kgen.backends.text import Call, Text, decimal, fill, named, numeral, single_precision, source
from kgen.backends.triton_held import rides_at_once
from kgen.backends.triton_maps import MapPrinter, TritonUnit
from kgen.backends.triton_nodes import Block, Node
from kgen.backends.triton_rows import RowPrinter
from kgen.backends.triton_scans import ScanPrinter
from kgen.backends.triton_sizes import follow, shown
from kgen.backends.triton_tiles import TILES, Tiles
from kgen.backends.units import Argument, Gather, RowUnit, ScanUnit, Statement, Tensor, Unit
from kgen.check import Kernel, Parameter, ResultDecl
from kgen.ir import Blocks, Let, View, exact
from kgen.monoids import Rides
from kgen.ops import CALL, LOOSE, OPS, SUM, Op, Spell
from kgen.passes import Reduce, Scan
from kgen.places import needing
from kgen.sized import names
from kgen.types import DTYPES, ELLIPSIS, FLOAT, INT, NARROW, VARIABLE, Dims, DType, Number, axes, is_literal, shown_dims, variable_of

MAX_F32 = Fraction(float.fromhex("0x1.fffffep127"))


@dataclass(frozen=True)
class TritonView:
    """A file: its passes, the functions that it brings along, which modules and parts of the skeletons it needs, and the host function."""

    encoding: bool
    floats: str
    coded: list[str]  # torch's names of the floats of few bits that tensors have
    units: list[TritonUnit]
    blocks: tuple[Blocks, ...]  # dims that only workspaces have
    views: list[tuple[str, View]]  # parameters with one dim in place of several, by the names that passes call them
    steps: list[TritonUnit]  # those, and what sorts, in the order in which the host calls them
    sorts: frozenset[str]  # the host's functions that those call
    function_sources: list[Text]
    math: bool
    assembly: bool
    tiles: Tiles
    fractions: bool
    libdevice: bool
    indices: bool
    generic: bool
    wide: list[tuple[str, str]]
    tensors: list[tuple[str, str, str]]
    head: str
    summary: list[str]
    given: list[tuple[str, str]]  # each tensor's name in the spec, and that of its parameter
    axes: list[tuple[str, str]]  # the dims of each tensor by its axes, where one is split
    parts: list[tuple[str, str, str]]  # tensors that are parts of these: of which, and where
    disjoint: list[tuple[str, str]]  # parts, and of which tensor, also where a call has made them
    shown: list[tuple[str, str]]  # axes that are not called as the header calls them, and what that calls them
    literals: bool
    size_of: str  # of a literal dim, in Python
    follow: list[str]  # the body of the function that adds sizes which others give
    counts: list[tuple[str, str]]  # numbers on which sizes depend, and what they are called
    needing: list[tuple[str, str, str]]  # what is wrong where a dim has no elements, that, and whether a result has some
    known: tuple[str, ...]  # literal dims that results alone have
    fresh: list[ResultDecl]
    fresh_names: str
    kept: list[str]
    states: str
    sizes: list[tuple[str, str]]
    computed_in: list[tuple[str, list[str]]]
    writes: str


class Triton(Backend):
    name = "triton"
    suffix = ".py"
    comment = "#"
    brackets = True
    end = ""
    neighbours = "EVEN[1]"
    brief = """\
@triton.jit
def brief_{name}({x}, T: tl.constexpr):
    \"\"\"{about}; for results T of 16 bits the fast form.\"\"\"
    if T.primitive_bitwidth == 16:
        return fast_{name}({x})
    else:
        return {accurate}
"""
    types = {
        "f16": "tl.float16", "bf16": "tl.bfloat16", "f32": "tl.float32", "f64": "tl.float64", "i8": "tl.int8", "u8": "tl.uint8",
        "i16": "tl.int16", "i32": "tl.int32", "i64": "tl.int64", "bool": "tl.int1",
        "u16": "tl.uint16", "u32": "tl.uint32", "u64": "tl.uint64",
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
    rides = Rides.LONG
    taps = True
    storage_names: frozenset[str] = frozenset()
    mixes = False

    def stays(self, p: Reduce, elements: int, dense: bool) -> bool:
        """As the skeleton's `tiles` has it, of what is computed in 8 bytes; where elements lie apart a tile has up to 64 rows.  Where such
        rows have the code of the others, none counts as one that stays."""
        if rides_at_once(p):
            return False
        held = sum(1 for t in p.loads if set(t.dims) & set(p.inner))
        return (1 if dense else 64) << max(0, elements - 1).bit_length() <= TILES.resident // (2 * max(1, held))

    def written(self, kernel: Kernel, only: Only | None = None, standalone: bool = False) -> dict[str, str]:
        from kgen.parts import over_parts  # which no call needs

        mine, made = copy(self), over_parts(kernel)
        mine.whole = kernel if made is not kernel else None
        return {self.file_name(kernel.name): mine.render(made, only)}

    #: The kernel of which parts are launched, where the host function takes its tensors whole.
    whole: Kernel | None = None

    def render(self, kernel: Kernel, only: Only | None = None) -> str:
        mine = copy(self)
        mine.storage_names = frozenset(kernel.variables)
        mine.mixes = mixes(kernel)
        return Render(mine, kernel, only).source()

    def widen(self, element: Text, t: Tensor) -> Text:
        """An element as it is computed with."""
        if t.type == t.compute:
            return element
        return source("widened({0}, {1})" if self.mixes else "{0}.to({1})", element, t.compute)

    def columns(self) -> list[Spell]:
        """Triton's, and Python's for the host part."""
        return [*super().columns(), *(row.python for row in OPS.values())]

    def file_name(self, kernel: str) -> str:
        return f"{kernel}_triton.py"

    # ------------------------------------------------------------------ values

    def ranged(self, g: Gather, type_name: str, lo: Text, hi: Text, *at: Text) -> Text:
        """As a call of the gather, of which `RowPrinter` makes one that says where it reads."""
        count = len(at) - (g.asked is not None)
        given = [token for x in (hi, *at[:count]) for token in (", ", *x.tokens)]
        own = [token for x in at[count:] for token in (", own=", *x.tokens, *([] if g.same else [", same=False"]))]
        return Text((Call(g.name), "(", *lo.tokens, *given, *own, ")"))

    def keyed(self, g: Gather, type_name: str, own: Text, n: Text) -> Text:
        """As a call of the gather too."""
        return Text((Call(g.name), "(", *own.tokens, ", ", *n.tokens, ")"))

    def launches(self, kernel: Kernel) -> list[TritonUnit]:
        """For each pass the names of its kernels, and how it is launched."""
        render = Render(self, kernel)
        return self.unit_views(render, render.units())

    def unit_views(self, render: Render, units: list[Unit | RowUnit | SortUnit]) -> list[TritonUnit]:
        """The views of units, each from a printer of its own kind."""
        views: list[TritonUnit] = []
        for unit, p in zip(units, render.passes, strict=True):
            if isinstance(unit, SortUnit):
                views.append(sort_view(render, unit))
            elif isinstance(unit, Unit):
                views.append(MapPrinter(self, render, unit).view())
            elif isinstance(p, Scan):
                assert isinstance(unit, ScanUnit)
                views.append(ScanPrinter(self, render, unit, p).scan())
            elif isinstance(p, Reduce):
                views.append(RowPrinter(self, render, unit, p).view())
        return views

    def function_name(self, kernel: Kernel) -> str:
        """The name of the emitted module's function: the kernel's, where Python lets it have that name."""
        return Render(self, kernel).kernel_name

    def literal(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        bare = self.bare(value, dtype, type_name)
        if dtype.narrow or type_name in self.storage_names:  # Triton's own rounds twice, and makes small ones 0
            return source("round_to(tl.full([], {0}, tl.float64), {1})", bare, type_name)
        typed = source("tl.full([], {0}, {1})", bare, type_name)
        if dtype.kind == "bool" or dtype.is_int and abs(int(bare)) >= 2**31:
            return typed
        return Text(bare.tokens, bare.level, typed)

    def compared(self, x: Text) -> Text:
        """To Triton a bare literal beside a comparison is an f32, whatever it is compared with: one that f32 may lack gets its dtype."""
        if x.typed is None or "tl.float32" in x.typed.uses:
            return x
        return x if len(x.tokens) == 1 and host.to_dtype(float(x), DTYPES["f32"]) == float(x) else x.typed

    def bare(self, value: Fraction | str, dtype: DType, type_name: str) -> Text:
        """A literal that takes its dtype from what is beside it."""
        if dtype.kind == "bool":
            return named(str(bool(value)))
        if dtype.is_int:
            return numeral(str(host.wrap(int(value), dtype.bits, dtype.kind == "int")))
        return self._float(value, type_name)

    def _float(self, value: Fraction | str, type_name: str) -> Text:
        """A float's decimal, the shortest for its dtype; two where rounding to f64 and then to f32 is not rounding once."""
        if isinstance(value, str):
            return source(f'float("{value}")')
        if type_name == "tl.float64":
            return numeral(decimal(value, single=False))
        too_large = abs(value) >= MAX_F32 + 2**103
        single = source(f'float("{"-" * (value < 0)}inf")') if too_large else numeral(decimal(value, single=True))
        if type_name == "tl.float32":
            return single
        double = numeral(decimal(value, single=False))
        if not too_large:
            rounded = single_precision(value)
            if host.to_dtype(float(double), DTYPES["f32"]) == host.to_dtype(float(single), DTYPES["f32"]) == rounded:
                return double
            single = numeral(repr(rounded))
        return source("({0} if {1} == tl.float32 else {2})", single, type_name, double)

    def cast(self, x: Text, given: DType, target: DType, type_name: str) -> Text:
        if target.kind == "bool":
            return x if given.kind == "bool" else source("{0} != 0", x.fit(LOOSE + 1), level=LOOSE)
        if target.is_int and given.is_float:
            return source("saturate({0}, {1})", x.typed or x, type_name)
        if type_name in self.storage_names or type_name == "tl.bfloat16" or type_name == "tl.float16" and not given.is_float:
            return source("round_to({0}, {1})", x.typed or x, type_name)
        if self.mixes and given.is_float and target.is_float:
            return source("widened({0}, {1})", x.typed or x, type_name)
        return source("{0}.to({1})", x.typed or x.fit(CALL), type_name)

    def statement(self, name: str, type_name: str, value: Text, is_declared: bool, note: str) -> Statement:
        return Statement((name,), "", self.typed(value, type_name), note)

    def assign(self, s: Statement) -> str:
        names = ", ".join(s.names) + (f": {s.type}" if s.type else "")
        return f"{names} {s.sign} {s.value}" if names else s.value

    def printed(self, nodes: Iterable[Node], indent: str = "") -> list[str]:
        """The lines of statements, of blocks of them, and of calls of a unit's own functions."""
        lines: list[str] = []
        for node in nodes:
            if isinstance(node, Statement):
                lines += [f"{indent}{line}" for line in super().printed([node])]
            elif isinstance(node, Block):
                lines += [f"{indent}{node.head}:", *self.printed(node.body, f"{indent}    ")]
            else:
                left = f"{', '.join(node.names)} = " if node.names else ""
                lines += wrapped(f"{indent}{left}{node.function}", list(node.arguments), "").split("\n")
        return lines

    def typed(self, value: Text, type_name: str) -> Text:
        """A value that stands alone: a literal gets its dtype, but a choice by a dtype that is known."""
        chosen = value.tokens[:1] == ("(",) and type_name in self.types.values()
        return source("tl.full([], {0}, {1})", value, type_name) if value.typed is not None and not chosen else value

    # ------------------------------------------------------------------ numbers

    def number(self, n: Let, defs: dict[str, Let], done: dict[str, Text], names: Names) -> Text:
        """Python's numbers, with IEEE's special values where Python would raise."""
        op = n.expr.name
        if op == "lit":
            assert isinstance(n.dtype, Number)
            return _python(n.expr.attrs[0], n.dtype)
        if op in ("arg", "size"):
            return named(names.user(n.expr.attrs[0]))
        kinds = [defs[o.name].dtype for o in n.expr.operands]
        args = [done[o.name] for o in n.expr.operands]
        row, chooses = OPS[op], OPS[op].rule == "where"
        if n.dtype == FLOAT or FLOAT in kinds and not chooses:
            for k, (o, kind) in enumerate(zip(n.expr.operands, kinds, strict=True)):
                if kind != FLOAT and not (chooses and k == 0):
                    literal = defs[o.name].expr.name == "lit"
                    args[k] = _python(defs[o.name].expr.attrs[0], FLOAT) if literal else source("float({0})", args[k])
            return fill_python(row, "float", args)
        made = fill_python(row, n.dtype.kind, args)
        wraps = n.dtype == INT and row.rule in ("arith", "same") and row.python.infix not in (CALL, LOOSE)
        return source("host_wrap({0})", made) if wraps else made

    # ------------------------------------------------------------------ what the template needs

    def view(self, render: Render, units: list[Unit | RowUnit | SortUnit], page: Page) -> TritonView:
        """What the templates take of a file."""
        kernel, user = self.whole or render.kernel, render.global_names.user
        for name in (*(p.name for p in kernel.params), *(r.name for r in kernel.results)):
            user(name)
        steps = self.unit_views(render, units)
        views = [v for v, u in zip(steps, units, strict=True) if not isinstance(u, SortUnit)]
        calls = [c for v in views for c in v.calls] + [c for u in units for s in u.scalars for c in s.text.calls]
        known = self.functions(calls)
        words = frozenset(calls).union(*((*f.uses, *f.calls) for f in known.values()))
        fresh, states = [r for r in kernel.results if not r.state], [f'"{r.state}"' for r in kernel.results if r.state]
        kept = [o for u in units for o in u.outputs if o.spec_name in render.kept]
        computed = {render.generics.get(o.dtype, "") for o in kept}.union(*(v.generics for v in views))
        variables = {name: v for v, name in render.variables.items()}
        chosen, sizes = render.bindings(tuple(render.variables.values())), self.sizes_read(render, units)
        declared = (*(p.dtype for p in kernel.params), *(r.dtype for r in kernel.results))
        return TritonView(
            encoding=any("coding" in line for line in [*page.doc, *page.signature][:2]),  # Python would read the file in what it names
            floats=", ".join(f"torch.{d.torch}: {self.types[d.name]}" for d in VARIABLE if any(d.name in dict(b).values() for b in chosen)),
            coded=sorted({DTYPES[d].torch for d in declared if d in DTYPES and DTYPES[d].stored is not DTYPES[d]}),
            units=views,
            blocks=render.program.blocks,
            views=[(render.kept[v.name][1], v) for v in render.program.views],
            steps=steps,
            sorts=frozenset(u.host_function for u in units if isinstance(u, SortUnit)),
            function_sources=list(known.values()),
            math=any((
                kernel.joined, any(w.startswith("math.") for w in words), any(v.rows for v in views), any(u.indices for u in units),
                any(of == ELLIPSIS for _, of in sizes),
            )),  # fmt: skip
            assembly="ASSEMBLY" in words,
            tiles=TILES,
            fractions="Fraction" in words,
            libdevice=any(w.startswith("libdevice.") for w in words),
            indices=any(u.indices for u in units),
            generic=bool(render.variables),
            wide=[(d, variable_of(d)) for d in kernel.wide],
            parts=self.parts(render),
            disjoint=[(name, of.rstrip("'")) for name, of, _ in render.kernel.parts if not name.endswith("'")],
            tensors=self.tensors(render) + [(o.name, self.kept_dtype(o.dtype, render), " ".join(o.dims)) for o in kept]
            + self.views(render),
            head=self.head(render, bool(fresh)),
            summary=[f'"""Writes {", ".join(r.state for r in kernel.results if r.state)} in place."""'] if states else [],
            given=[(p.name, user(p.name)) for p in kernel.params if p.is_tensor],
            axes=self.axes(kernel) if kernel.joined else [],
            shown=shown(kernel),
            literals=bool(kernel.literals),
            size_of="int(dim)" if all(d.isdigit() for d in kernel.literals) else 'int(dim.partition("_")[0])',
            follow=follow(kernel),
            counts=[(name, user(name)) for name in dict.fromkeys(n for c in kernel.clauses for n in names(c.value)) if name[0].islower()],
            known=tuple(d for d in kernel.literals if not any(d in (p.dims or ()) for p in kernel.params)),
            needing=self.needing(kernel),
            fresh=fresh,
            fresh_names=listed([r.name for r in fresh]),
            kept=[o.name for o in kept],
            states=f"{{{', '.join(states)}}}" if states else "",
            sizes=sizes,
            computed_in=[(g, [variables[v] for v in of]) for g, of in page.generics.items() if g in computed],
            writes=listed([r.state or r.name for r in kernel.results]),
        )

    @staticmethod
    def needing(kernel: Kernel) -> list[tuple[str, str, str]]:
        """What the host function refuses (`kgen.places.needing`), once for each dim, and whether a result has elements all the same: one
        that has the dim has none."""
        found = {d: said for said, d in reversed(needing(kernel.values, [r.value for r in kernel.results])) if not is_literal(d)}
        made = []
        for d, said in reversed(found.items()):
            lacking = [r.state or r.name for r in kernel.results if d not in r.dims]
            if lacking:
                name, of = ("name", f" for name in {listed(lacking)}") if len(lacking) > 1 else (f'"{lacking[0]}"', "")
                counted = f"tensors[{name}].numel(){of}"
                made.append((shown_dims(said), d, f"any({counted})" if of else counted))
        return made

    @staticmethod
    def sizes_read(render: Render, units: list[Unit | RowUnit | SortUnit]) -> list[tuple[str, str]]:
        """(name, the spec's name) of each size that a number of the host function is computed from."""
        numbers = frozenset[str]().union(*(s.text.uses for u in units for s in u.scalars))
        return [(a.name, a.spec_name) for a in render.givens() if a.kind == "size" and a.name in numbers]

    def spec_variables(self, render: Render, names: list[str]) -> list[str]:
        return [v for v, name in render.variables.items() if name in names]

    def head(self, render: Render, out: bool) -> str:
        """The host function's first line; what follows a default without one of its own is given by keyword."""
        items, defaults, star = [], False, False
        for p in (self.whole or render.kernel).params:
            default = "" if p.default is None else f"={_python(p.default, FLOAT if p.dtype == 'float' else INT, keep=True)}"
            if defaults and not default and not star:
                items.append("*")
                star = True
            defaults = defaults or bool(default)
            items.append(render.global_names.user(p.name) + default)
        return wrapped(f"def {render.kernel_name}", items + ([] if star or not out else ["*"]) + (["out=None"] if out else []), ":", 110)

    def tensors(self, render: Render) -> list[tuple[str, str, str]]:
        """(name, dtype, dims) of each parameter and new result, and of parts of them, as Python."""
        declared: dict[str, tuple[str, Dims]] = {}
        for kernel in (self.whole or render.kernel, render.kernel):
            declared |= {p.name: (p.dtype, p.dims) for p in kernel.params if p.dims is not None}
            declared |= {r.name: (r.dtype, r.dims) for r in kernel.results if not r.state}
        return [(name, f"torch.{DTYPES[d].torch}" if d in DTYPES else f'"{d}"', " ".join(dims)) for name, (d, dims) in declared.items()]

    @staticmethod
    def views(render: Render) -> list[tuple[str, str, str]]:
        """(name, dtype, dims) of each parameter that has one dim in place of several, as Python."""
        dtypes = {p.name: p.dtype for p in render.kernel.params}
        named_ = [(render.kept[v.name][1], dtypes[v.tensor], v.dims) for v in render.program.views]
        return [(name, f"torch.{DTYPES[d].torch}" if d in DTYPES else f'"{d}"', " ".join(dims)) for name, d, dims in named_]

    def parts(self, render: Render) -> list[tuple[str, str, str]]:
        """(name, of which, where) of each part of a tensor, as Python."""
        if self.whole is None:
            return []
        declared: list[Parameter | ResultDecl] = [*self.whole.params, *self.whole.results]
        dims, made = {d.name: list(d.dims or ()) for d in declared}, []
        for name, of, where in render.kernel.parts:
            left, picks = list(dims[of]), []
            for dim, k in where:
                picks.append((left.index(dim) - len(left), k))
                left.remove(dim)
            if not name.endswith("'"):
                made.append((name, of.rstrip("'"), repr(tuple(picks))))
        return made

    @staticmethod
    def axes(kernel: Kernel) -> list[tuple[str, str]]:
        """(name, dims by axes) of each parameter and new result, as Python."""
        declared = [(p.name, p.dims, p.factors) for p in kernel.params if p.is_tensor]
        declared += [(r.name, r.dims, r.factors) for r in kernel.results if not r.state]
        return [(name, " ".join(map("*".join, axes(dims or (), factors)))) for name, dims, factors in declared]

    def kept_dtype(self, dtype: str, render: Render) -> str:
        """A workspace's dtype as Python: torch's, or the name under which the host function's `dtypes` has it."""
        return f"torch.{DTYPES[dtype].torch}" if dtype in DTYPES else f'"{render.generics.get(dtype) or dtype.lstrip("=")}"'

    def stored(self, value: str, o: Tensor, computed_of: Mapping[str, list[str]]) -> Text:
        """What is stored: a store rounds as `.to` does, which from f64 to bf16 is twice."""
        if computed_of.get(o.compute) == [o.type]:
            return named(value)
        may_be_double = o.compute == "tl.float64" or o.compute not in self.types.values()
        may_be_brain = o.type == "tl.bfloat16" or o.type in self.storage_names
        return source("round_to({0}, {1})", value, o.type) if may_be_double and may_be_brain else named(value)

    def number_type(self, s: Argument) -> str:
        """The type in which a kernel takes a scalar."""
        assert s.number is not None
        return self.number_types[s.number.kind]

    def rounded(self, s: Argument) -> Statement:
        """A number argument rounded to the dtype it is used in."""
        given, target = self.number_type(s), DTYPES[s.kind]
        is_float = given == self.number_types["float"]
        if is_float and target.is_float:
            return Statement((s.name,), "", source("tl.full([], {0}, {1})", s.name, s.type))
        value = source("tl.full([], {0}, {1})", s.name, given)
        if s.type != given:
            value = self.cast(value, DTYPES["f64" if is_float else "i64"], target, s.type)
        return Statement((s.name,), "", value)


def sort_view(render: Render, unit: SortUnit) -> TritonUnit:
    """A pass that sorts: the host calls torch's sort."""

    def tensor(t: Tensor) -> str:
        return f'tensors["{t.name if t.spec_name in render.kept else t.spec_name}"]'

    given = [tensor(unit.keys), f'sizes["{unit.dims[-1]}"]', *(f"{part}={tensor(t)}" for part, t in unit.written.items())]
    if unit.rows:
        given[0] += f".movedim({unit.axis}, -1)" if unit.axis != -1 else ""
    launch = wrapped(f"    {unit.host_function}", given, "")
    return TritonUnit(kernels={}, heads={}, dynamic={}, definitions=[], rounded=[], scalars=(), launch=launch, calls=())


def mixes(kernel: Kernel) -> bool:
    """Whether both 16-bit floats may occur in one launch: as they are declared or cast to, or as two variables."""
    casts = {str(v.attr) for v in kernel.values if v.op == "cast"}
    declared = {p.dtype for p in kernel.params if p.is_tensor} | {r.dtype for r in kernel.results} | casts
    return len(declared & {*NARROW, *kernel.variables}) > 1


def _python(text: str, kind: Number, keep: bool = False) -> Text:
    """A literal of a spec as a Python literal (`keep` leaves a plain one as it was written)."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text.lstrip("+"))
    if digits in ("inf", "nan"):
        return source(f'{sign}float("{digits}")', level=SUM if sign else CALL)
    if digits == "pi":
        return numeral(sign + repr(math.pi))
    if keep and kind == FLOAT and _is_pythons(digits):
        return numeral(text)
    if kind == FLOAT:
        return numeral(decimal(exact(digits) * (-1 if sign else 1), single=False))
    return named(str(bool(exact(digits)))) if kind != INT else numeral(sign + str(int(exact(digits))))


def _is_pythons(digits: str) -> bool:
    """Whether a number of a spec is written as one would in Python: without a bare point or an idle zero."""
    mantissa, e, exponent = digits.partition("e")
    whole, point, fraction = mantissa.partition(".")
    plain = whole.isdecimal() and (whole == "0" or whole[0] != "0") and (not point or fraction.isdecimal())
    return plain and (not e or exponent[exponent[:1] in ("+", "-") :].isdecimal())


def fill_python(row: Op, kind: str, args: list[Text]) -> Text:
    """An operator on numbers as Python writes it, for a kind of operand."""
    text = row.python_text(kind)
    return args[0] if text == "{0}" else fill(replace(row.python, float=text, int=text, bool=text), kind, args, {})
