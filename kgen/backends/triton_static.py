"""Triton for known dims and dtypes: from the passes of a kernel to what templates/triton/static.py.jinja lays out.

In: a kernel and what is known of it.  Out: a jit function for each pass, and one host function.  A tile holds whole rows, as the
dynamic file's host part would choose, or a part of a long one; where neighbours belong to other rows, they stand side by side in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import prod

from kgen.backends.names import bare
from kgen.backends.python_text import decided, wrapped
from kgen.backends.static import Known, StaticRender, deep, refused, rounds, static_call, stored
from kgen.backends.text import Text, functions, named, source
from kgen.backends.triton import Triton, mixes
from kgen.backends.triton_maps import passing
from kgen.backends.triton_nodes import Block, Node, meet_again
from kgen.backends.triton_order import MEET, overtaking
from kgen.backends.triton_partials import Join
from kgen.backends.triton_rows import RowPrinter
from kgen.backends.triton_scans import ScanPrinter
from kgen.backends.units import Accumulator, Code, RowUnit, ScanUnit, Statement, Tensor, Unit
from kgen.check import Kernel
from kgen.ops import SUM
from kgen.passes import Map, Reduce, Scan, Sort
from kgen.types import DTYPES, ELLIPSIS, Dims, axes

#: What the dynamic file's host part has: elements of a tile that holds whole rows, bytes of a map's block.
RESIDENT, BYTES = 32768, 2048
#: Rows side by side in a tile, the elements of each, and how many tiles are added up before their sum is.
SIDE, SIDE_BLOCK, FEW = 32, 128, 20
#: The longest row whose length only a call tells: beyond, sums would be deeper than the bounds allow.
LONGEST = 2**20

#: What helper functions ask of a value's dtype, whether it is one or SIGNED, and the answers where there is none of some dtypes.
SIGNED = "signed"
ANSWERS: tuple[tuple[frozenset[str], dict[str, bool]], ...] = (
    (frozenset({"f64"}), {"f64": False, "f32": True}),
    (frozenset({"f32"}), {"f32": False}),
    (frozenset(d for d in Triton.types if DTYPES[d].kind == "uint"), {SIGNED: True}),
)


class StaticTriton(Triton):
    """Triton's functions by the names that they have for the dtype."""

    neighbours = ""

    def settled(self, calls: Iterable[str], known: Mapping[str, bool]) -> dict[str, Text]:
        """The helper functions among calls, as they are where the answers to some conditions are known."""
        def change(text: str) -> str:
            return decided(text, lambda test: known.get(self.asked(test)))

        return functions(self.template_folder(), calls, self.columns(), change)

    def asked(self, test: ast.expr) -> str:
        """What a condition asks of a value's dtype: a dtype's name, or SIGNED; nothing where it asks anything else."""
        match test:
            case ast.Compare(ast.Attribute(attr="dtype"), [ast.Eq()], [ast.Attribute(ast.Name("tl"), named)]):
                return next((dtype for dtype, name in self.types.items() if name == f"tl.{named}"), "")
            case ast.Call(ast.Attribute(ast.Attribute(attr="dtype"), "is_int_signed")):
                return SIGNED
        return ""

    def call(self, function: str, operands: str, dtype: str) -> str:
        return f"{static_call(function, 'tl.fma')}({operands})"


@dataclass(frozen=True)
class PassView:
    """A pass: its jit function's first line, what it says of itself, its statements; the host's call; functions that join partials."""

    head: str
    about: str
    body: list[Node]
    launch: list[str]
    calls: tuple[str, ...]
    joins: tuple[Join, ...] = ()


@dataclass(frozen=True)
class TritonStatic:
    """A file: what it is for, constants, modules, the functions that it brings along, its passes, and the host function."""

    about: str
    call: str
    constants: list[tuple[str, int]]
    math: bool
    assembly: bool
    fractions: bool
    libdevice: bool
    function_sources: list[Text]
    passes: list[PassView]
    host_head: str
    host_about: str
    checks: list[str]
    fresh: list[str]
    returns: str


class StaticRows(RowPrinter):
    """One pass over rows, in its frame: "whole", "loop" or "across"."""

    keeps = False

    def __init__(self, backend: Triton, render: StaticRender, unit: RowUnit, p: Reduce):
        self.static = render
        self.n = render.size(unit.inner)
        self.pointers = PLACES.get(id(render), {})
        self.choose(render, unit)
        super().__init__(backend, render, unit, p)

    def choose(self, render: StaticRender, unit: RowUnit) -> None:
        """The frame, and the sizes of its tile."""
        elements = [t for t in unit.inputs if not unit.is_row(t)]
        main = max(elements, key=lambda t: len(t.dims), default=None)
        self.frame, self.side, self.block, self.warps, self.loops = "whole", 1, 1, 4, False
        if not unit.inner:
            self.side, self.block = 128, 0
            return
        if not unit.rows:
            raise refused(render.kernel, "it reduces all elements to one, which programs would have to share")
        if main is not None and render.step(main.dims, unit.inner) != 1 and render.step(main.dims, unit.rows) == 1:
            self.frame, self.side, self.block, self.loops = "across", SIDE, SIDE_BLOCK, True
            return
        if self.n is None:
            raise refused(render.kernel, "its rows have a length that only a call tells")
        held = max(1, sum(1 for t in elements if set(t.dims) & set(unit.rows)))
        words = max([4, *(DTYPES[let.tensor_dtype.name].bytes for let in render.program.lets if not let.is_number)])
        block, room = 1 << max(0, self.n - 1).bit_length(), RESIDENT // max(1, held * words // 4)
        if block <= room:
            self.side = max(1, 1024 // block)
            self.block, self.warps = block, max(1, min(32, self.side * block // 1024))
            return
        load = sum(DTYPES[t.dtype].bytes for t in elements) or 1
        self.frame, self.loops = "loop", True
        self.block = min(8192, (1 << (32768 // load).bit_length()) // 2)
        self.warps = max(1, self.block // 512)

    # ------------------------------------------------------------------ shapes

    @property
    def flat(self) -> bool:
        """Whether a tile is one row: a vector, whose reductions are scalars."""
        return self.side == 1

    @property
    def whole(self) -> bool:
        """Whether a tile is full, so that nothing is masked."""
        return self.flat and not self.loops and self.block == self.n

    def shape(self) -> str:
        return str(self.block) if self.flat else f"{self.side}, {self.block}"

    def reduce_of(self, tile: Text, function: str) -> Text:
        """A tile reduced to the row's value."""
        axis = "0" if self.flat else "1"
        keep = "" if self.flat else ", keep_dims=True"
        if function == "plus":
            return source(f"tl.sum({{0}}, {axis}{keep})", tile)
        return source(f"tl.reduce({{0}}, {axis}, {{1}}{keep})", tile, function)

    def reduced(self, a: Accumulator, tiles: list[Text]) -> Statement:
        given = tiles[0] if len(tiles) == 1 else source("({0}, {1})", *tiles)
        return Statement(tuple(s.name for s in self.slots(a)), "", self.reduce_of(given, self.combine(a)))

    def masked(self, a: Accumulator) -> list[Text]:
        """The values of a tile, the identity where it holds none."""
        if self.whole:
            tile = f"tl.broadcast_to({{0}}, [{self.shape()}])"
            return [s.value if self.varies(s.value) else source(tile, s.value) for s in self.slots(a)]
        return [source("tl.where(inside, {0}, {1})", s.value, s.identity) for s in self.slots(a)]

    def varies(self, value: Text) -> bool:
        """Whether a value has the tile's shape: it is made of what is read along a row."""
        along = {t.name for t in (*self.unit.inputs, *self.unit.indices) if not self.unit.is_row(t)}
        for c in self.codes:
            for s in c.lines if c.element else ():
                if along & s.value.uses:
                    along |= set(s.names)
        return bool(along & value.uses)

    def reduced_whole(self, a: Accumulator) -> list[Statement]:
        if not a.place:
            return [self.reduced(a, self.masked(a))]
        best, place = self.slots(a)
        value, at = self.masked(a)
        alike = source("alike({0}, {1})", a.value, best.name)
        where = alike if self.whole else source("inside & {0}", alike)
        return [
            Statement((best.name,), "", self.reduce_of(value, "greatest" if a.kind == "argmax" else "least")),
            Statement((place.name,), "", self.reduce_of(source("tl.where({0}, {1}, {2})", where, place.value, place.identity), "least")),
        ]

    # ------------------------------------------------------------------ places

    def place(self, t: Tensor, element: bool) -> Text:
        """Where a tensor's elements lie for the row, or the tile's elements."""
        r, pointer = self.static, self.pointers[t.spec_name]
        made = named(pointer)
        for order, index in ((self.unit.rows, "row"), (self.unit.inner, "column")):
            if index == "row" or element:
                at = r.place(t.dims, order, named(index), "//")
                made = made if at is None else source("{0} + {1}", made, at.fit(SUM), level=SUM)
        return made

    def load(self, t: Tensor) -> Statement:
        is_row = self.unit.is_row(t)
        mask = "" if self.whole or is_row and self.flat else ", present" if is_row else ", inside"
        if not is_row and self.flat and not self.whole:
            mask = ", inside"
        return Statement((t.name,), "", self.backend.widen(source(f"tl.load({{0}}{mask})", self.place(t, not is_row)), t))

    def index(self, t: Tensor) -> Statement:
        """The positions along an index's dim."""
        is_row = self.unit.is_row(t)
        at = self.static.place(t.dims, self.unit.rows if is_row else self.unit.inner, named("row" if is_row else "column"), "//")
        return Statement((t.name,), "", source("({0}).to(tl.int64)", at or Text(("row * 0",))))

    def store(self, o: Tensor) -> list[Statement]:
        is_row = self.unit.is_row(o)
        rounded = self.backend.stored(o.value, o, {}) if not o.value.is_name else self.backend.stored(str(o.value), o, {})
        mask = "" if self.whole or is_row and self.flat else ", present" if is_row else ", inside"
        value = rounded if o.value.is_name or rounded.tokens != named(o.value).tokens else o.value
        made = [MEET] if o.name in self.overtaking else []
        return [*made, Statement(value=source(f"tl.store({{0}}, {{1}}{mask})", self.place(o, not is_row), value))]

    def _typed(self, c: Code) -> Code:
        """As elsewhere; what is gathered lies where the row's place and the index say."""
        b, r = self.backend, self.static

        def called(text: Text, type_name: str = "") -> Text:
            for g in self.unit.gathers:
                dims = g.tensor.dims
                begin = named(self.pointers[g.tensor.spec_name])
                for d in r.wide(dims):
                    if d != g.dim and (at := r.place((d,), self.unit.rows, named("row"), "//")) is not None:
                        step = r.place(dims, (d,), at)
                        assert step is not None
                        begin = source("{0} + {1}", begin, step.fit(SUM), level=SUM)
                stride = r.product(r.wide(dims[dims.index(g.dim) + 1 :])) if dims[-1] != g.dim else Text(("1",))
                head = source("gather({0}, {1}, {2}, present, {3}, ", begin, r.product((g.dim,)), stride, g.tensor.compute)
                text = text.converted(g.name, head)
            return b.typed(text, type_name) if type_name else text

        return replace(
            c,
            lines=tuple(replace(s, value=called(s.value)) for s in c.lines),
            outputs=tuple(replace(o, value=called(o.value, o.compute)) for o in c.outputs),
            accumulators=tuple(replace(a, value=called(a.value, a.value_type), place=called(a.place, "tl.int64")) for a in c.accumulators),
            gives=tuple(replace(g, text=called(g.text, g.type)) for g in c.gives),
        )

    # ------------------------------------------------------------------ the body

    def opening(self) -> list[Statement]:
        """The lines that find a program's rows and, where a tile holds them, their elements."""
        count = self.static.product(self.unit.rows)
        made = []
        if self.flat:
            made.append(Statement(("row",), "", source("tl.program_id(0).to(tl.int64)")))
        else:
            lanes = f"tl.arange(0, {self.side})" + ("[:, None]" if self.block else "")
            made.append(Statement(("row",), "", source(f"tl.program_id(0).to(tl.int64) * {self.side} + {lanes}")))
            made.append(Statement(("present",), "", source("row < {0}", count)))
        if self.flat and self.unit.gathers:
            made.append(Statement(("present",), "", source("row < {0}", count)))
        if self.block and not self.loops:
            made += self.columns(f"tl.arange(0, {self.block})")
        made += [self.load(t) for t in self.unit.inputs if self.unit.is_row(t) and any(t in c.inputs for c in self.codes)]
        return made + [self.index(x) for x in self.unit.indices if self.unit.is_row(x)]

    def columns(self, text: str) -> list[Statement]:
        """The lines that number a tile's elements, and say which of them there are."""
        made = [Statement(("column",), "", source(text if self.flat else f"{text}[None, :]"))]
        if self.whole:
            return made
        inside = source("column < {0}", self.static.product(self.unit.inner))
        return [*made, Statement(("inside",), "", inside if self.flat else source("present & ({0})", inside))]

    def body(self) -> list[Node]:
        """The statements of the kernel."""
        if not self.loops:
            return [*self.opening(), *self.resident.body()]
        made: list[Node] = [*self.opening()]
        for c in self.codes:
            made += self.long(c) if c.element else self.row_phase(c)
        return [*made, *self.ends(self.codes)]

    def elements(self, c: Code) -> list[Statement]:
        loads = [self.load(t) for t in c.inputs if not self.unit.is_row(t)]
        return loads + [self.index(x) for x in c.indices if not self.unit.is_row(x)]

    def long(self, c: Code) -> list[Node]:
        """A reading of rows that no tile holds: tile by tile, sums in three steps where only a call tells how many there are."""
        length, slots = self.static.product(self.unit.inner), [s for a in c.accumulators for s in self.slots(a)]
        steps = None if self.n is None else -(-self.n // self.block)
        fold = self.block.bit_length()
        is_deep = any(rounds(a) for a in c.accumulators) and deep(steps or 0, fold, self.n)
        levels = 3 if is_deep else 1
        if is_deep and self.n is not None and steps is not None and deep(2 * FEW + -(-steps // FEW**2), fold, self.n):
            raise refused(self.static.kernel, f"rows of {self.n:,} elements are longer than its order of sums bounds")
        own = [("_tile" if k == levels - 1 else f"_{k}") for k in range(levels)]
        inner: list[Node] = [*self.columns(f"start + tl.arange(0, {self.block})"), *self.elements(c), *c.lines]
        inner += [self.accumulate(a, [f"{s.name}{own[-1]}" for s in self.slots(a)], self.masked(a)) for a in c.accumulators]
        inner += [s for o in c.outputs for s in self.store(o)]
        for k in meet_again(inner):
            del inner[k]
        at = ["start"] if levels == 1 else ["outer", "middle", "start"]
        for k in reversed(range(levels)):
            size = self.block * FEW ** (levels - 1 - k)
            begin = at[k - 1] if k else "0"
            end = Text((f"min({begin} + {size * FEW}, ", *length.tokens, ")")) if k else length
            made: list[Node] = [self.filled(s, f"{s.name}{own[k]}", self.shape()) for s in slots] if slots else []
            made.append(Block(source(f"for {at[k]} in range({begin}, {{0}}, {size})", end), tuple(inner)))
            if k:
                for a in c.accumulators:
                    names = [s.name for s in self.slots(a)]
                    made.append(self.accumulate(a, [f"{n}{own[k - 1]}" for n in names], [named(f"{n}{own[k]}") for n in names]))
            inner = made
        return [*inner, *(self.reduced(a, [named(f"{s.name}{own[0]}") for s in self.slots(a)]) for a in c.accumulators)]


class StaticScans(ScanPrinter, StaticRows):
    """One pass along rows, tile by tile: a row of [BLOCK], or some of [SIDE, BLOCK]."""

    def choose(self, render: StaticRender, unit: RowUnit) -> None:
        """The frame, and the sizes of its tile, of 512 elements of a row at least, where it has as many."""
        if self.n is None:
            raise refused(render.kernel, "its rows have a length that only a call tells")
        main = max((t for t in unit.inputs if not unit.is_row(t)), key=lambda t: len(t.dims), default=None)
        across = main is not None and render.step(main.dims, unit.inner) != 1 and render.step(main.dims, unit.rows) == 1
        self.frame, self.loops = "across" if across else "loop", True
        wide = any(DTYPES[let.tensor_dtype.name].bytes > 4 for let in render.program.lets if not let.is_number)
        most, each = (1024, 128) if wide else (4096, 512)  # of f64 a thread has fewer: each join of them is long
        self.block = min(512 if across else most, 1 << max(0, self.n - 1).bit_length())
        self.side = (max(1, min(SIDE, 2 * most // self.block)) if across else max(1, 1024 // self.block)) if unit.rows else 1
        self.warps = max(1, min(8, self.side * self.block // each))

    def body(self) -> list[Node]:
        shape = "1" if self.flat else f"{self.side}, 1"
        length = self.static.product(self.unit.inner)
        made: list[Node] = [*self.opening()]
        made += [Statement((c.before,), "", source(f"tl.full([{shape}], {{0}}, {{1}})", c.identity, c.type)) for c in self.up_to.values()]
        tile: list[Node] = []
        if self.unit.backwards:
            assert self.n is not None
            tile.append(Statement(("start",), "", source(f"{(self.n - 1) // self.block * self.block} - done")))
        tile += self.columns(f"start + tl.arange(0, {self.block})")
        last = "start" if self.unit.backwards else f"start + {self.block - 1}"
        tile += [*self.elements(self.element), *self.codes[0].lines, *self.carry("0" if self.flat else "1", last), *self.stores()]
        name = "done" if self.unit.backwards else "start"
        return [*made, Block(source(f"for {name} in range(0, {{0}}, {self.block})", length), tuple(tile))]


#: The names of tensors' pointers, by the render that they belong to.
PLACES: dict[int, dict[str, str]] = {}


class TritonPrinter:
    """The texts of one file."""

    def __init__(self, backend: Triton, kernel: Kernel, known: Known):
        self.backend = StaticTriton()
        self.backend.mixes = mixes(kernel)
        self.render = StaticRender(self.backend, kernel, known)
        self.kernel, self.known, self.units = self.render.kernel, known, self.render.known_units()
        fresh, user = self.render.global_names.fresh, self.render.global_names.user
        tensors = [p.name for p in self.kernel.params if p.is_tensor] + [r.name for r in self.kernel.results if not r.state]
        self.names = {name: user(name) for name in tensors} | {w: name for w, (_, name) in self.render.kept.items()}
        self.pointers = {name: fresh(f"{own}_ptr") for name, own in self.names.items()}

    def view(self) -> TritonStatic:
        """What the template takes."""
        b, r = self.backend, self.render
        PLACES[id(r)] = self.pointers
        try:
            passes = [
                self.map_pass(u) if isinstance(u, Unit) else self.row_pass(u, p)
                for u, p in zip(self.units, r.passes, strict=True) if not isinstance(p, Sort)
            ]
        finally:
            del PLACES[id(r)]
        calls = [c for p in passes for c in p.calls] + [c for u in self.units for s in u.scalars for c in s.text.calls]
        found = self.functions(calls, passes)
        words = frozenset(calls).union(*((*f.uses, *f.calls) for f in found.values()))
        fresh = [x for x in self.kernel.results if not x.state]
        returns = ", ".join(self.names[x.name] for x in fresh)
        return TritonStatic(
            about=str(self.known), call=bare(f"{r.kernel_name}({', '.join(r.global_names.user(p.name) for p in self.kernel.params)})"),
            constants=[(r.global_names.user(d), n) for d, n in self.known.named.items()],
            math=any(w.startswith("math.") for w in words), assembly="ASSEMBLY" in words, fractions="Fraction" in words,
            libdevice=any(w.startswith("libdevice.") for w in words), function_sources=[*found.values()], passes=passes,
            host_head=b.head(r, False), host_about=self.host_about(), checks=self.checks(),
            fresh=self.made(),
            returns=returns,
        )  # fmt: skip

    def functions(self, calls: list[str], passes: list[PassView]) -> dict[str, Text]:
        """The helper functions by name, without what is for dtypes that the file has not: neither a value of the program, nor a type that
        what is left of the functions or a pass names."""
        b, dtypes, known = self.backend, {let.tensor_dtype.name for let in self.render.program.lets if not let.is_number}, dict[str, bool]()
        body = [text for p in passes for node in (*p.body, *(s for j in p.joins for s in j.body)) for text in _texts(node)]
        named_types = {b.number_type(s) for u in self.units for s in u.scalars}.union(*(t.uses for t in body))
        found = b.functions(calls)
        for absent, answers in ANSWERS:
            made = b.settled(calls, known | answers)
            types = {b.types[d] for d in absent}
            if not dtypes & absent and not types & named_types.union(*(f.uses for f in made.values())):
                found, known = made, known | answers
        return found

    # ------------------------------------------------------------------ the host function

    def host_about(self) -> str:
        states = [x.state for x in self.kernel.results if x.state]
        return f"Writes {', '.join(states)} in place." if states else f"Gives {', '.join(x.name for x in self.kernel.results)}."

    def lead(self) -> tuple[str, int] | None:
        """The parameter whose leading dims are every tensor's, and how many dims of it are named; None where none has any."""
        found = next((p for p in self.kernel.params if p.is_tensor and ELLIPSIS in (p.dims or ())), None)
        return (self.names[found.name], len(axes(found.dims or (), found.factors)) - 1) if found is not None else None

    def shape(self, by_axis: Sequence[Dims]) -> list[str]:
        """The sizes of axes but the leading ones."""
        return [str(prod(self.known.sizes[d] for d in axis)) for axis in by_axis if axis != (ELLIPSIS,)]

    def dims_text(self, by_axis: Sequence[Dims]) -> str:
        own = self.shape(by_axis)
        if (ELLIPSIS,) in by_axis:
            own = ["*lead", *own]
        return f"({', '.join(own)}{',' * (len(own) == 1)})"

    def checks(self) -> list[str]:
        """The lines that hold tensors to what the kernels take, and that count the leading dims."""
        made, lead = list[str](), self.lead()
        for p in self.kernel.params:
            if p.is_tensor:
                x, dims, dtype = self.names[p.name], axes(p.dims or (), p.factors), DTYPES[p.dtype].torch
                shape = f"{x}.shape != {self.dims_text(dims)} or "
                if lead and x == lead[0]:
                    shape = f"{x}.shape[-{lead[1]}:] != {self.dims_text(dims[1:])} or " if lead[1] else ""
                made.append(f"if {shape}{x}.dtype != torch.{dtype} or not {x}.is_contiguous():")
                shown = f"{dtype} [{', '.join(['...'] * ((ELLIPSIS,) in dims) + self.shape(dims))}]"
                made.append(f'    raise ValueError(f"{p.name} is no contiguous {shown}: {{{x}.dtype}} {{tuple({x}.shape)}}")')
        if lead:
            name, own = lead
            inner = next(p.dims or () for p in self.kernel.params if self.names.get(p.name) == name)[1:]
            size = self.render.size(inner)
            made.append(f"{self.render.count} = {name}.numel(){f' // {size}' if size != 1 else ''}")
            if any("*lead" in line for line in (*made, *self.made())):
                made.insert(0, f"lead = {name}.shape[: {name}.dim() - {own}]" if own else f"lead = {name}.shape")
        return made

    def made(self) -> list[str]:
        """The lines that make results, and what passes leave for one another."""
        fresh = [self.allocated(x.name, x.dtype, axes(x.dims, x.factors)) for x in self.kernel.results if not x.state]
        kept = self.render.kept
        left = [o for u in self.units for o in u.outputs if o.spec_name in kept]
        return fresh + [self.allocated(o.spec_name, o.dtype, axes(o.dims, ())) for o in left]

    def counts(self) -> bool:
        return self.lead() is not None

    def allocated(self, name: str, dtype: str, dims: tuple[Dims, ...]) -> str:
        """The line that makes a result."""
        like = next(self.names[p.name] for p in self.kernel.params if p.is_tensor)
        own = self.names[name]
        same = next((p for p in self.kernel.params if p.is_tensor and axes(p.dims or (), p.factors) == dims and p.dtype == dtype), None)
        if same is not None:
            return f"{own} = torch.empty_like({self.names[same.name]})"
        return f"{own} = torch.empty({self.dims_text(dims)}, dtype=torch.{DTYPES[dtype].torch}, device={like}.device)"

    # ------------------------------------------------------------------ passes

    def finished(self, unit: Unit | RowUnit, about: str, body: list[Node], groups: str, warps: int) -> PassView:
        """A pass with its head and its launch."""
        tensors: dict[str, Tensor] = {}
        for t in (*unit.inputs, *((g.tensor for g in unit.gathers) if isinstance(unit, RowUnit) else ()), *unit.outputs):
            tensors.setdefault(t.spec_name, t)
        order = [*self.pointers]
        own = sorted(tensors, key=order.index)
        body = [*(self.backend.rounded(s) for s in unit.scalars), *body]
        texts = [text for node in body for text in _texts(node)]
        takes = any(self.render.count in text.uses for text in texts)
        items = [self.pointers[n] for n in own] + [f"{s.name}: {self.backend.number_type(s)}" for s in unit.scalars]
        items += [f"{self.render.count}: tl.int64"] if takes else []
        given = [self.names[n] for n in own] + [str(x) for x in passing(unit.scalars)] + ([self.render.count] if takes else [])
        made = [f"{s.name} = {s.text}{'  # ' + s.note if s.note else ''}" for s in unit.scalars if not s.text.is_name]
        options = [f"num_warps={warps}", "enable_fp_fusion=False", "enable_reflect_ftz=False"]
        launch = wrapped(f"{unit.name}_kernel[({groups},)]", [*given, *options], "")
        calls = tuple(c for t in texts for c in t.calls)
        return PassView(wrapped(f"def {unit.name}_kernel", items, ":"), about, body, [*made, *launch.split("\n")], calls)

    def groups(self, dims: Dims, by: int) -> str:
        """How many programs there are."""
        count = self.render.size(dims)
        if count is not None:
            return str(-(-count // by))
        others = [str(self.known.sizes[d]) for d in dims if d != ELLIPSIS]
        text = " * ".join([self.render.count, *others])
        return text if by == 1 else f"triton.cdiv({text}, {by})"

    def scan_pass(self, unit: ScanUnit, p: Scan) -> PassView:
        """A pass along rows."""
        rows = StaticScans(self.backend, self.render, unit, p)
        body = rows.body()
        who = "One row" if rows.side == 1 else f"{rows.side} rows{' side by side' if rows.frame == 'across' else ''}"
        about = f"{who} a program, {rows.block} elements at a time."
        made = self.finished(unit, about, body, self.groups(unit.rows, rows.side), rows.warps)
        join = rows.join()
        calls = [c for s in join.body for c in s.value.calls]
        return replace(made, calls=(*(c for c in made.calls if c != rows.function), *calls, "plus"), joins=(join,))

    def row_pass(self, unit: RowUnit, p: Map | Reduce) -> PassView:
        """A pass over rows."""
        if isinstance(p, Scan):
            assert isinstance(unit, ScanUnit)
            return self.scan_pass(unit, p)
        assert isinstance(p, Reduce)
        rows = StaticRows(self.backend, self.render, unit, p)
        body = rows.body()
        about = {"whole": f"{rows.side} rows a program." if rows.side > 1 else "One row a program.",
                 "loop": f"One row a program, read {rows.block} elements at a time for each reading.",
                 "across": f"{rows.side} rows side by side a program."}[rows.frame]  # fmt: skip
        made = self.finished(unit, about, body, self.groups(unit.rows, rows.side), rows.warps)
        calls = [rows.combine(a) for c in rows.codes for a in c.accumulators if rows.combine(a) != "plus"]
        calls += ["greatest", "least", "alike"] if any(a.place for c in rows.codes for a in c.accumulators) else []
        if any(ELLIPSIS in d for d in (unit.inner,)):
            said = f"{{{self.render.count}}} rows are more than {LONGEST:,}, beyond which sums would lose digits"
            check = [f"if {self.render.count} > {LONGEST}:", f'    raise ValueError(f"{said}")']
            made = replace(made, launch=[*check, *made.launch])
        return replace(made, calls=(*made.calls, *calls))

    def map_pass(self, unit: Unit) -> PassView:
        """A map."""
        r, b = self.render, self.backend
        widest = max((DTYPES[t.dtype].bytes for t in (*unit.inputs, *unit.outputs)), default=4)
        size = BYTES // widest
        i = named("i")
        n = r.product(unit.dims)
        known = r.size(unit.dims)
        mask = "" if known is not None and known % size == 0 else ", mask"
        body = [Statement(("i",), "", source(f"tl.program_id(0).to(tl.int64) * {size} + tl.arange(0, {size})"))]
        body += [Statement(("mask",), "", source("i < {0}", n))] if mask else []

        def where(t: Tensor) -> Text:
            at = r.place(t.dims, unit.dims, i, "//")
            return named(self.pointers[t.spec_name]) if at is None else source("{0} + {1}", self.pointers[t.spec_name], at.fit(SUM))

        for t in unit.inputs:
            place = where(t)
            masked = mask if r.place(t.dims, unit.dims, i) else ""
            body.append(Statement((t.name,), "", b.widen(source(f"tl.load({{0}}{masked})", place), t)))
        for x in unit.indices:
            body.append(Statement((x.name,), "", source("({0}).to(tl.int64)", r.place(x.dims, unit.dims, i, "//") or Text(("i * 0",)))))
        lines, values = stored(unit.lines, tuple(replace(o, value=b.typed(o.value, o.compute)) for o in unit.outputs))
        body += lines
        body += [MEET] if overtaking(unit.outputs, unit.inputs, unit.lines, r) else []
        for o in unit.outputs:
            value = b.stored(values[o.name], o, {})
            text = value if value.tokens != named(values[o.name]).tokens else values[o.name]
            body.append(Statement(value=source(f"tl.store({{0}}, {{1}}{mask})", where(o), text)))
        return self.finished(unit, f"{size} elements a program.", [*body], self.groups(unit.dims, size), 4)


def _texts(node: Node) -> list[Text]:
    if isinstance(node, Statement):
        return [node.value]
    return [node.head, *(t for inner in node.body for t in _texts(inner))] if isinstance(node, Block) else []


def written(backend: Triton, kernel: Kernel, known: Known, planner: object = None) -> str:
    """The static source of a kernel.  Raises `KgenError` where none is written for its passes."""
    printer = TritonPrinter(copy(backend), kernel, known)
    return printer.render.poured(printer.view(), "static.py.jinja", printer.render.page())
