"""Triton's passes over rows: from a `RowUnit` to the lines of its jit functions.

In: a pass's phases as code, their operands.  Out: what templates/triton/rows.py.jinja lays out: the lines of a kernel that
holds whole rows, of the readings of a segment of a longer row, and of the two kernels that put readings together.
All tiles are [ROWS, BLOCK]; a row's values are [ROWS, 1].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from kgen.backends import triton_searches
from kgen.backends.base import Render
from kgen.backends.moving import Peak, grouped
from kgen.backends.names import Names
from kgen.backends.python_text import chunks, listed, wrapped
from kgen.backends.text import Call, Text, joined, named, source
from kgen.backends.triton_held import Held
from kgen.backends.triton_maps import CONSTEXPR, TritonUnit, definitions, passing
from kgen.backends.triton_nodes import Block, Invocation, Node, Operand, Reading, Slot, meet_again
from kgen.backends.triton_order import MEET, overtaking_rows
from kgen.backends.triton_partials import Join, Partial
from kgen.backends.units import Accumulator, Code, RowUnit, Statement, Tensor
from kgen.monoids import MONOIDS
from kgen.passes import Reduce
from kgen.types import ELLIPSIS, Dims, DType, f64

if TYPE_CHECKING:
    from kgen.backends.triton import Triton

#: The function that joins two partial results, by the operator of the table of monoids; those of bools are plain logic, and of values
#: with places it goes by which end loses to all.
COMBINE = {"add": "plus", "mul": "times", "max": "greatest", "min": "least"}
ON_BOOLS = {"max": "either", "min": "both"}
FIRST = {"least": "first_greatest", "greatest": "first_least"}
LAST = str(2**63 - 1)  # the place of no element: behind all others


@dataclass(frozen=True, kw_only=True)
class RowsView(TritonUnit):
    """A pass over rows: the bodies of its kernels, by form ("row", "loop", "split"), and the functions of its readings and of what
    they join; `steps` are the launches of the split, `ends` whether rows have results."""

    rows: ClassVar[bool] = True
    bodies: dict[str, list[Node]]
    joins: list[Join]
    readings: list[Reading]
    steps: int
    ends: bool


def rank(dims: Dims) -> int:
    """How many dims a kernel can tell apart: those that are named, and four more where any number may come."""
    return len(dims) + 3 if ELLIPSIS in dims else len(dims)


class RowPrinter:
    """One unit; `view` is what the templates take.  `keeps`: whether what a tile holds may stay in 16 bits."""

    keeps = True

    def __init__(self, backend: Triton, render: Render, unit: RowUnit, p: Reduce):
        """`unit` is the pass `p` as code; names, operands and the code as Triton has it are made here, and held."""
        self.backend, self.render, self.unit, self.p = backend, render, unit, p
        own = [t.name for t in (*unit.inputs, *unit.indices, *unit.outputs)]
        own += [*(g.name for g in unit.gathers), *(s.name for s in unit.scalars)]
        self.names = Names(set(unit.uses).union(render.global_names.taken, own, *(s.names for c in unit.every for s in c.lines)))
        self.ranks = rank(unit.rows), rank(unit.inner)
        self.kept = {t.spec_name for t in (*unit.inputs, *unit.outputs, *(g.tensor for g in unit.gathers)) if t.spec_name in render.kept}
        self.operands: dict[str, Operand] = {}
        self._operands()
        self.parts: dict[str, str] = {}
        self.codes = tuple(self._typed(c) for c in unit.codes)
        self.looped = tuple(self._typed(c) for c in unit.long) or self.codes  # of rows that no tile holds
        self.outputs = [o for c in self.codes for o in c.outputs]
        every = (*self.codes, *self.looped)
        #: what values are called that lines, reductions, searches and rows have
        self.own = {name for c in every for s in c.lines for name in s.names}
        self.own |= {a.name for c in every for a in c.accumulators} | {g.name for c in every for g in c.gives}
        self.own |= {c.search.found.name for c in every if c.search is not None}
        self.stored_as: dict[str, str] = {}
        looked = [g.tensor for g in unit.gathers if f"{self.key(g.tensor)} at {g.dim}" not in self.operands]  # no result lies over others
        self.overtaking = overtaking_rows(unit, render, looked)
        self.partials = {a.name: Partial(self, a) for c in self.looped for a in c.accumulators if isinstance(a, Peak)}
        self.resident = Held(self)

    # ------------------------------------------------------------------ operands

    def key(self, t: Tensor) -> str:
        """A tensor's name in the host's code: as declared, or the workspace's."""
        return t.name if t.spec_name in self.kept else t.spec_name

    def _operands(self) -> None:
        """Names all operands in the order of their strides, those that are written last."""
        u, written = self.unit, {self.key(o) for o in self.unit.outputs}
        stems = {}
        for t in (*u.inputs, *(g.tensor for g in u.gathers), *u.outputs):
            stems[self.key(t)] = t.name if t.spec_name in self.kept else self.render.global_names.user(t.spec_name)
        known = {self.key(t): t.dims for t in (*u.inputs, *u.outputs)}
        apart: dict[str, Dims] = {}  # gathers from tensors that are not walked along the rows just so
        for g in u.gathers:
            key, rest = self.key(g.tensor), tuple(d for d in g.tensor.dims if d != g.dim)
            if key not in known and not set(rest) & set(u.inner) and g.dim not in u.rows:
                known.setdefault(key, rest)
            if key not in known or set(known[key]) - set(u.inner) != set(rest):
                apart[f"{key} at {g.dim}"] = rest
        order = [k for k in known if k not in written]
        order += [i.name for i in u.indices] + list(apart) + [k for k in known if k in written]
        indices = {i.name: (i.spec_name,) for i in u.indices}
        for place, key in enumerate(order):
            dims = known.get(key) or apart.get(key) or indices.get(key) or ()
            if key in indices:
                host, stem, pointer = f"index[{indices[key][0]}]", key, ""
            else:
                of, _, without = key.partition(" at ")
                host, stem = key, f"{stems[of]}_{without}" if without else stems[of]
                pointer = self.names.fresh(f"{stem}_ptr")
            along = set(dims) & set(u.inner)
            rows = tuple(self.names.fresh(f"{stem}_r{d}") for d in range(self.ranks[0])) if set(dims) & set(u.rows) else ()
            inner = tuple(self.names.fresh(f"{stem}_n{d}") for d in range(self.ranks[1])) if along else ()
            base = self.names.fresh(f"{stem}_row") if rows and pointer else pointer
            steps = self.names.fresh(f"{stem}_steps") if along else ""
            self.operands[key] = Operand(host, place, pointer, base, rows, inner, steps)
        self.starts = {i.name: self.names.fresh(f"{i.name}_first") for i in u.indices if set(i.dims) & set(u.rows)}
        self.sizes = tuple(self.names.fresh(f"n{d}") for d in range(1, self.ranks[1]))
        self.row_sizes = tuple(self.names.fresh(f"r{d}") for d in range(1, self.ranks[0]))

    def gather_operand(self, key: str, dim: str) -> Operand:
        return self.operands.get(f"{key} at {dim}") or self.operands[key]

    # ------------------------------------------------------------------ code

    def _typed(self, c: Code) -> Code:
        """The code with gathers as calls of `gather`, and with literals that stand alone typed."""
        b = self.backend

        def called(text: Text, type_name: str = "") -> Text:
            """A text in which gathers are calls."""
            for g in self.unit.gathers:
                base = self.gather_operand(self.key(g.tensor), g.dim).base
                extents = g.extent, g.stride
                if g.ranged:
                    others = [*([g.order] if g.order else g.within), *([g.asked] if g.asked else ())]  # the ends of ranges are two
                    order = [self.gather_operand(self.key(o.tensor), o.dim).base for o in others] or ["None"]
                    steps = [o.stride for o in others] or ["1"]
                    marks = ", ".join(f"{{{k}}}" for k in range(len(order)))
                    ends = (f"({marks})" if len(x) > 1 else marks for x in (order, steps))
                    at = (source(pattern, *x) for pattern, x in zip(ends, (order, steps), strict=True))
                    call = f"{'keyed' if g.keyed else 'ranged'}_{g.ranged}({{0}}, {{1}}, {{2}}, {{3}}, present, {{4}}, "
                    text = text.converted(g.name, source(call, base, g.stride, *at, g.tensor.compute))
                    continue
                text = text.converted(g.name, source("gather({0}, {1}, {2}, present, {3}, ", base, *extents, g.tensor.compute))
            return b.typed(text, type_name) if type_name else text

        return replace(
            c,
            lines=tuple(replace(s, value=called(s.value)) for s in c.lines),
            outputs=tuple(replace(o, value=called(o.value, o.compute)) for o in c.outputs),
            accumulators=grouped(
                replace(
                    a,
                    value=called(a.value, a.value_type),
                    place=called(a.place, "tl.int64"),
                    weights=tuple(called(w, a.type) for w in a.weights),
                )
                for a in c.accumulators
            ),
            gives=tuple(replace(g, text=called(g.text, g.type)) for g in c.gives),
        )

    def slots(self, a: Accumulator) -> tuple[Slot, ...]:
        """What a reduction carries."""
        if isinstance(a, Peak):
            return self.partials[a.name].slots()
        identity, start = self.backend.identity(a), self.backend.bare(*self.backend.neutral(a))
        if MONOIDS[a.kind].placed:
            best = self.parts.setdefault(f"{a.name} best", self.names.fresh(f"{a.name}_best"))
            return (
                Slot(best, a.value_type, self.host_dtype(a.value_dtype, a.value_type), identity, start, a.value),
                Slot(a.name, "tl.int64", "torch.int64", source(f"tl.full([], {LAST}, tl.int64)"), source(LAST), a.place),
            )
        return (Slot(a.name, a.type, self.host_dtype(a.dtype, a.type), identity, start, a.value),)

    def host_dtype(self, dtype: DType | None, type_name: str) -> str:
        """A dtype in the host's code: torch's, or the key under which `dtypes` has it."""
        if type_name in self.render.computed_of:
            return f'dtypes["{type_name}"]'
        spec = next((v for v, name in self.render.variables.items() if name == type_name), None)
        return f'dtypes["{spec}"]' if spec or dtype is None else f"torch.{dtype.torch}"

    def combine(self, a: Accumulator) -> str:
        row = MONOIDS[a.kind]
        if row.placed:
            return FIRST[row.fields[0].identity]
        return ON_BOOLS[row.join] if a.dtype.kind == "bool" and row.join in ON_BOOLS else COMBINE[row.join]

    def reduced_lanes(self, a: Accumulator, lanes: dict[str, str]) -> list[Statement]:
        """What lanes have of a reduction, by the names of these, as the row's."""
        if isinstance(a, Peak):
            return self.partials[a.name].whole(lanes)
        return [self.reduced(a, [named(lanes[s.name]) for s in self.slots(a)])]

    def reduced(self, a: Accumulator, tiles: list[Text]) -> Statement:
        """A tile's values reduced to the row's."""
        given = tiles[0] if len(tiles) == 1 else source("({0})", joined(tiles))
        value = source("tl.reduce({0}, 1, {1}, keep_dims=True)", given, self.combine(a))
        return Statement(tuple(s.name for s in self.slots(a)), "", value)

    def reduced_whole(self, a: Accumulator) -> list[Statement]:
        """A whole row's reduction; of argmax first the value, then the least place that has it, which costs less than both at once: a
        column, of 32 bits, where those are the places."""
        if not a.place:
            return [self.reduced(a, self.masked(a))]
        best, place = self.slots(a)
        extreme = "greatest" if MONOIDS[a.kind].fields[0].identity == "least" else "least"
        own = (source("column"), source("length")) if self.counts(place.value) else (place.value, place.identity)
        places = source("tl.where(inside & alike({0}, {1}), {2}, {3})", a.value, best.name, *own)
        cast = ".to(tl.int64)" if self.counts(place.value) else ""
        return [
            Statement((best.name,), "", source(f"tl.reduce({{0}}, 1, {extreme}, keep_dims=True)", self.masked(a)[0])),
            Statement((place.name,), "", source(f"tl.reduce({{0}}, 1, least, keep_dims=True){cast}", places)),
        ]

    def masked(self, a: Accumulator) -> list[Text]:
        return [source("tl.where(inside, {0}, {1})", s.value, s.identity) for s in self.slots(a)]

    def accumulate(self, a: Accumulator, into: list[str], values: list[Text]) -> Statement | Invocation:
        """Values put to what there is so far."""
        if isinstance(a, Peak):
            return self.partials[a.name].joined(into, values)
        if MONOIDS[a.kind].join == "add":
            return Statement((into[0],), "", values[0], sign="+=")
        return Statement(tuple(into), "", source("{0}({1})", Call(self.combine(a)), joined([*into, *values])))

    @staticmethod
    def filled(s: Slot, name: str, shape: str) -> Statement:
        return Statement((name,), "", source(f"tl.full([{shape}], {{0}}, {{1}})", s.start, s.type))

    def walk(self, o: Operand, axis: str) -> Text:
        """The call that says how far an operand's elements lie from its first one, along the rows or along a row."""
        across = axis == "across"
        names, sizes = (o.rows, self.row_sizes) if across else (o.inner, self.sizes)
        steps = backwards(names) if across else o.steps
        index, count = ("row", "ROW_RANK") if across else ("column", "RANK")
        extents = backwards(sizes) if across else source("sizes" if sizes else "()")
        pattern = f'walk({index}, {{0}}, {{1}}, {count if sizes else 1}, {o.kind} == "{axis}", {o.vector})'
        return source(pattern, extents, steps)

    def element_place(self, o: Operand) -> Text:
        return source("{0} + {1}", o.base, self.walk(o, "along")) if o.inner else named(o.base)

    def read(self, t: Tensor) -> Text:
        """A tensor's element, or that of a row, as it is in memory."""
        o = self.operands[self.key(t)]
        if self.unit.is_row(t):
            return source("tl.load({0}, present)" if o.rows else "tl.load({0})", o.base)
        return source("tl.load({0}, inside)" if o.rows else "tl.load({0}, column < length)", self.element_place(o))

    def load(self, t: Tensor) -> Statement:
        return Statement((t.name,), "", self.backend.widen(self.read(t), t))

    def held(self) -> list[Tensor]:
        """What has elements of its own for each row."""
        u = self.unit
        return [t for t in u.inputs if not u.is_row(t) and set(t.dims) & set(u.rows) or t.dims == u.inner and not u.rows]

    def counts(self, place: Text) -> bool:
        """Whether a place is the number of an element in its row."""
        indices = [self.operands[i.name] for i in self.unit.indices if place == i.name]
        return any(len(o.inner) == 1 and not o.rows for o in indices)

    def index(self, t: Tensor) -> Statement:
        o = self.operands[t.name]
        if o.rows:
            return Statement((t.name,), "", source("{0} + {1}", self.starts[t.name], self.walk(o, "across")))
        # where a thread knows its positions, ptxas computes approximate functions of them itself: to other bits than another kernel's
        hidden = " + (tl.program_id(1) - tl.program_id(2))" if self.bare() else ""  # a zero that it does not know
        return Statement((t.name,), "", source("{0}.to(tl.int64)" + hidden, self.walk(o, "along")))

    def stores_of(self, o: Tensor) -> str:
        """The name under which a result's value is stored: another than the result's where that is its value's own, as of a code's, which
        what comes behind the store still reads."""
        if o.name in self.own and o.name not in self.stored_as:
            self.stored_as[o.name] = self.names.fresh(f"{o.name}_stored")
        return self.stored_as.get(o.name, o.name)

    def store(self, o: Tensor) -> list[Statement]:
        """A result stored."""
        name = self.stores_of(o)
        made = [] if o.value.is_name else [Statement((name,), "", o.value)]
        operand = self.operands[self.key(o)]
        rounded = self.backend.stored(name if made else o.value, o, self.render.computed_of)
        if self.unit.is_row(o):
            at, mask = named(operand.base) if operand.rows else source("{0} + row", operand.pointer), "present"
        else:
            at, mask = self.element_place(operand), "inside"
            at = at if operand.rows else source("{0} + row", at)  # there is one row: its number is 0
        made += [MEET] if o.name in self.overtaking else []
        return [*made, Statement(value=source("tl.store({0}, {1}, {2})", at, rounded, mask))]

    # ------------------------------------------------------------------ bodies

    def row_phase(self, c: Code) -> list[Statement]:
        return [*c.lines, *(Statement((g.name,), "", g.text) for g in c.gives if g.text and g.text != g.name)]

    def setup(self, whole: bool = False) -> list[Statement]:
        """What every kernel begins with, behind `row`: places and values of the rows; `whole` where a tile holds rows."""
        made = []
        operands = list(self.operands.values())
        if any(o.inner for o in operands):
            made.append(Statement(("length",), "", source("length.to(INDEX) // EVEN[1] * EVEN[1]")))
            made += [Statement(("inside",), "", source(self.resident.inside))] if whole else []
            if self.sizes:
                made.append(Statement(("sizes",), "", backwards(self.sizes)))
            made += [Statement((o.steps,), "", backwards(o.inner)) for o in operands if o.inner]
        places = [(o, source("{0} + {1}", o.pointer, self.walk(o, "across"))) for o in operands if o.pointer and o.rows]
        made += [Statement((o.base,), "", place) for o, place in places]
        read = {t.name for c in (self.resident.codes if whole else self.looped) for t in c.inputs}
        made += [self.load(t) for t in self.unit.inputs if t.name in read and self.unit.is_row(t)]
        return made + [self.index(i) for i in self.unit.indices if i.name in self.starts]

    def put(self, made: list[Statement] | list[Node], outputs: Iterable[Tensor]) -> None:
        """Have a body store results, each as soon as it is known and all is read: what is computed of it may share the change of layout
        that a store needs, and Triton 3.6 refused kernels where the store, and so the change, came later."""
        memory = {o.base for o in self.operands.values()} | {o.pointer for o in self.operands.values()}
        for stores in reversed([self.store(o) for o in outputs]):
            used = frozenset[str]().union(*(s.uses for s in stores))
            behind = [k for k, n in enumerate(made) if not isinstance(n, Statement) or n.names and (used & {*n.names} or memory & n.uses)]
            at = behind[-1] + 1 if behind else 0
            made[at:at] = stores
        for k in meet_again(made, memory):
            del made[k]

    def ends(self, codes: Iterable[Code], body: Iterable[Node] = ()) -> list[Node]:
        """A body with the rows' results stored, as some code has them."""
        made = list(body)
        self.put(made, [o for c in codes for o in c.outputs if self.unit.is_row(o)])
        return made

    def elements(self, c: Code) -> list[Statement]:
        """What an element phase loads, but what is one a row."""
        loads = [self.load(t) for t in c.inputs if not self.unit.is_row(t)]
        return loads + [self.index(i) for i in c.indices if i.name not in self.starts]

    def readings(self) -> list[Reading]:
        """A function for each reading: the shares of a segment in its reductions, or its elements stored."""
        made = []
        for k, c in enumerate([c for c in self.looped if c.element]):
            name = self.names.fresh(f"{self.unit.name}_reading_{k + 1}")
            slots = tuple(s for a in c.accumulators for s in self.slots(a))
            body: list[Node] = [*self.elements(c), *c.lines]
            head: list[Statement] = []
            tail: list[Statement] = []
            for a in c.accumulators:
                if isinstance(a, Peak):
                    head += [self.filled(s, s.name, "ROWS, 1") for s in self.slots(a)]
                    body += self.partials[a.name].tile()
                    continue
                tiles = [self.names.fresh(f"{s.name}_tile") for s in self.slots(a)]
                head += [self.filled(s, tile, "ROWS, BLOCK") for s, tile in zip(self.slots(a), tiles, strict=True)]
                body.append(self.accumulate(a, tiles, self.masked(a)))
                tail.append(self.reduced(a, list(map(named, tiles))))
            self.put(body, c.outputs)
            given, constants = self.live_in(slots, [*head, *body], tail)
            made.append(Reading(name, slots, c.accumulators, given, constants, tuple(head), tuple(body), tuple(tail)))
        return made

    def live_in(self, slots: Iterable[Slot], code: list[Node], tail: list[Statement]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What the function of a reading must be given: of the names in the kernel those that it reads, and its constants."""
        lines = [s for s in (*code, *tail) if not isinstance(s, Block)]
        words = frozenset[str]().union(*(s.uses for s in lines))
        own = {s.name for s in slots}.union(*(s.names for s in lines))
        operands = self.operands.values()
        scope = [o.base for o in operands if o.base] + [s.name for s in self.unit.scalars]
        scope += [t.name for t in self.unit.inputs if self.unit.is_row(t)] + list(self.starts)
        scope += [g.name for c in self.looped for g in (*c.takes, *c.gives)] + ["row"]
        given = [n for n in dict.fromkeys(scope) if n in words and n not in own]
        given += ["segment", "present", "length", *(["sizes"] if "sizes" in words else [])]
        given += [o.steps for o in operands if o.steps and o.steps in words]
        dtypes = (*self.render.variables.values(), *self.render.computed_of)
        constants = [*(n for n in ("KINDS", "VECTORS", "EVEN", "RANK", "ROWS") if n in words), "BLOCK", "SEGMENT", "INDEX"]
        return tuple(given), (*constants, *(n for n in dtypes if n in words))

    @staticmethod
    def invocation(r: Reading, names: Iterable[str]) -> Invocation:
        return Invocation(tuple(names), r.name, (*r.given, *r.constants))

    def loop(self, readings: list[Reading]) -> list[Node]:
        """The body of the kernel that goes through long rows, a segment after the other."""
        made: list[Node] = []
        rest = iter(readings)
        for c in self.looped:
            if not c.element:
                made += self.row_phase(c)
                continue
            r = next(rest)
            part = {s.name: f"{s.name}_part" for s in r.slots}
            begin: list[Node] = [self.filled(s, s.name, "ROWS, 1") for s in r.slots]
            body: list[Node] = [self.invocation(r, part.values())]
            for a in r.accumulators:
                slots = self.slots(a)
                body.append(self.accumulate(a, [s.name for s in slots], [named(part[s.name]) for s in slots]))
            every = [*begin, Block(source("for segment in range(0, segments)"), tuple(body))]
            made += triton_searches.looped(c.search, every) if c.search else every
        return self.ends(self.looped, made)

    def split(self, readings: list[Reading]) -> list[Node]:
        """The body of the kernel that does one reading of one segment; the parts of those before it are combined first."""
        made: list[Node] = []
        known: list[Node] = []  # what the values of the rows are behind reading k
        k = 0
        for c in self.looped:
            if not c.element:
                phase = self.row_phase(c)
                known += phase if any(s.value for s in phase) else []  # what a rule took away leaves its equation
                continue
            made += self.behind(k, known)
            r = readings[k]
            k += 1
            body: list[Node] = [self.invocation(r, r.names)]
            for s in r.slots:
                place = source("{0} + row * segments + segment", self.parts[s.name])
                body.append(Statement(value=source("tl.store({0}, {1}, present)", place, s.name)))
            made.append(Block(source(f"if READING == {k}"), tuple(body)))
            known = self.combined(r) if r.slots and k < self.steps() else []
        return [*made, *self.behind(k, self.ends(self.looped, known))]

    @staticmethod
    def behind(k: int, found: list[Node]) -> list[Node]:
        return [Block(source(f"if READING > {k}"), tuple(found))] if k and found else found

    def combined(self, r: Reading) -> list[Node]:
        """What a reading left of each segment, as the row's values: in the order in which the loop combines it."""
        every = {s.name: f"{s.name}_all" for s in r.slots}
        body: list[Node] = [Statement(("lane",), "", source("start + tl.arange(0, PARTS)[None, :]"))]
        for a in r.accumulators:
            slots = self.slots(a)
            load = "tl.load({0} + row * segments + lane, present & (lane < segments), {1})"
            body.append(self.accumulate(a, [every[s.name] for s in slots], [source(load, self.parts[s.name], s.identity) for s in slots]))
        made: list[Node] = [self.filled(s, every[s.name], "ROWS, PARTS") for s in r.slots]
        made.append(Block(source("for start in tl.static_range(0, 16 * PARTS, PARTS)"), tuple(body)))
        return [*made, *(s for a in r.accumulators for s in self.reduced_lanes(a, every))]

    def steps(self) -> int:
        """How many launches the split takes: a reading each, and one more where rows have results."""
        return sum(1 for c in self.looped if c.element) + bool([o for o in self.outputs if self.unit.is_row(o)])

    # ------------------------------------------------------------------ the view

    def bare(self) -> bool:
        """Whether a reduction is of elements that no load along the row decides: positions, numbers and row values alone."""
        for phase in (*self.p.phases, *self.p.long):
            loaded: set[str] = set()
            for let in phase.lets:
                moves = let.expr.name in ("load", "gather") and set(let.dims) & set(self.p.inner)
                if moves or any(o.name in loaded for o in let.expr.operands):
                    loaded.add(let.name)
            if any(r.expr.operands[0].name not in loaded for r in phase.reductions):
                return True
        return False

    @property
    def searches(self) -> bool:
        """Whether a row is gone through by the steps of a search: no launch of its own could take each."""
        return any(c.search for c in self.looped)

    def kinds(self) -> dict[str, bool]:
        """What else the launch of a pass over long rows goes by: whether its one held operand may stay in 16 bits, whether whole tiles need
        no masks, and whether its one reading of a long row reduces every tile."""
        long, peak = bool(self.unit.inner), bool(self.partials) and self.p.long_readings == 1
        return {"hold": long and self.resident.held is not None, "finds": long and self.resident.finds, "peak": peak}

    def view(self) -> RowsView:
        """What the templates take."""
        u, b = self.unit, self.backend
        long = bool(u.inner)
        readings = self.readings() if long else []
        slots = [s for r in readings for s in r.slots]
        self.parts |= {s.name: self.names.fresh(f"{s.name}_parts") for s in slots}
        bodies: dict[str, list[Node]] = {"row": [*self.setup(long), *self.resident.body()]}
        if long:
            bodies |= {"loop": [*self.setup(), *self.loop(readings)]}
        if long and not self.searches:
            bodies |= {"split": [*self.setup(), *self.split(readings)]}
        rounded = [b.rounded(s) for s in u.scalars]
        joins = [p.join() for p in self.partials.values()] if long else []
        nodes = [*(n for body in bodies.values() for n in body), *(s for r in readings for s in (*r.head, *r.body)), *rounded]
        nodes += [s for j in joins for s in j.body]
        values = [text for node in nodes for text in texts(node)]
        variables, aliases, types = self.types(frozenset[str]().union(*(text.uses for text in values)))
        passed = [v for v in variables if v not in types]
        heads = self.heads(passed, [self.parts[s.name] for s in slots] if long else None)
        pointers = [o.pointer for o in self.operands.values() if o.pointer]
        kernels = {form: f"{u.name}_{form}" if long else f"{u.name}_kernel" for form in heads}
        first = {form: len(pointers) + (len(slots) if form == "split" else 0) for form in heads}
        calls = [c for text in values for c in text.calls] + [self.combine(a) for c in (*self.codes, *self.looped) for a in c.accumulators]
        calls += ["plus"] if joins else []
        return RowsView(
            kernels=kernels,
            heads=heads,
            dynamic={form: (k, k + self.dynamic()) for form, k in first.items()},
            definitions=definitions(variables, aliases, types),
            rounded=rounded,
            scalars=u.scalars,
            launch=self.launch(list(kernels.values()), slots, passed),
            calls=(*calls, *(["greatest", "least"] if any(a.place for c in self.codes for a in c.accumulators) else [])),
            long=long,
            bare=long and self.bare(),
            searches=self.searches,
            **self.kinds(),
            apart=any(" at " in o.key for o in self.operands.values()),
            generics=frozenset(s.type for s in slots) & self.render.computed_of.keys(),
            bodies=bodies,
            joins=joins,
            readings=readings,
            steps=self.steps(),
            ends=any(u.is_row(o) for o in self.outputs),
        )

    def types(self, words: frozenset[str]) -> tuple[list[str], dict[str, list[str]], dict[str, str]]:
        """The dtype variables and the aliases that the code needs, and the pointers that tell variables."""
        names, u = list(self.render.variables.values()), self.unit
        aliases = {a: of for a, of in self.render.computed_of.items() if a in words}
        stored = [t for t in (*reversed(u.outputs), *reversed(u.inputs)) if t.type in names]
        needed = words.union(*aliases.values())
        return [v for v in names if v in needed], aliases, {t.type: self.operands[self.key(t)].pointer for t in stored}

    def numbers(self) -> list[str]:
        """The numbers that a kernel takes: scalars, and the sizes and strides of gathers."""
        made = [f"{s.name}: {self.backend.number_type(s)}" for s in self.unit.scalars]
        return made + [f"{n}: tl.int64" for g in self.unit.gathers for n in (g.extent, g.stride)]

    def extents(self) -> list[str]:
        return ["rows", *self.row_sizes, *(["length", *self.sizes] if self.unit.inner else [])]

    def dynamic(self) -> int:
        """How many of a kernel's parameters are numbers."""
        strides = sum(len(o.rows) + len(o.inner) for o in self.operands.values())
        return len(self.numbers()) + len(self.extents()) + strides + len(self.starts)

    def heads(self, passed: list[str], parts: list[str] | None) -> dict[str, list[str]]:
        """Each kernel's parameters, in lines; without `parts` (which may be no name) there is one kernel."""
        operands, kinds = list(self.operands.values()), self.kinds()
        constants = ["KINDS", "VECTORS", "EVEN", *(["ROW_RANK"] if self.row_sizes else []), *(["RANK"] if self.sizes else [])]
        constants += ["INDEX", "ROWS", *(["BLOCK"] if parts is not None or kinds.get("scan") else [])]
        middle = [*chunks(self.numbers(), 6), ", ".join(f"{n}: tl.int64" for n in self.extents())]
        middle += [line for o in operands for line in chunks([f"{n}: tl.int64" for n in (*o.rows, *o.inner)], 8)]
        middle += [", ".join(f"{n}: tl.int64" for n in self.starts.values())] if self.starts else []

        def signature(more: list[str], parts: list[str]) -> list[str]:
            tail = chunks([f"{n}: {CONSTEXPR}" for n in [*constants, *more, *passed]], 5)
            return [", ".join(o.pointer for o in operands if o.pointer), *([", ".join(parts)] if parts else []), *middle, *tail]

        heads = {"row": signature(["HOLD"] * kinds.get("hold", False) + ["FULL"] * kinds.get("finds", False), [])}
        if parts is not None:
            heads |= {"loop": signature(["SEGMENT"], [])}
            heads |= {} if self.searches else {"split": signature(["SEGMENT", "PARTS", "READING"], parts)}
        return heads

    def launch(self, kernels: list[str], slots: list[Slot], passed: list[str]) -> str:
        """The host function's call of `launch_rows`."""
        u, operands = self.unit, list(self.operands.values())
        written = {self.key(o): u.is_row(o) for o in self.outputs}
        numbers = passing(u.scalars)
        for g in u.gathers:
            key = self.key(g.tensor)
            numbers += [f'sizes["{g.dim}"]', f'*strides("{key}", tensors["{key}"], "{g.dim}", sizes)']
        host = [f"({', '.join(kernels)}{',' * (len(kernels) == 1)})", f'"{" ".join(u.rows)}"', f'"{" ".join(u.inner)}"', "tensors",
                listed([o.key for o in operands]), listed([k for k, row in written.items() if not row]),
                listed([k for k, row in written.items() if row]), f"[{', '.join(numbers)}]", "sizes",
                f"[{', '.join(f'({len(o.rows)}, {len(o.inner)})' for o in operands)}]"]  # fmt: skip
        constants = [f'{self.render.variables[v]}=FLOATS[dtypes["{v}"]]' for v in self.backend.spec_variables(self.render, passed)]
        if u.inner:
            host += [str(max(1, len(self.held()))), f"[{', '.join(s.dtype for s in slots)}]", str(self.steps())]
            if any(let.dtype is f64 and not let.generic for phase in self.p.phases if phase.element for let in phase.lets):
                constants.append("word=8")  # f64 by name, whatever comes from memory
            if self.bare():
                constants.append("bare=True")
            constants += [f"{name}=True" for name, holds in self.kinds().items() if holds]
        return wrapped("    launch_rows", host + constants, "")


def backwards(names: tuple[str, ...]) -> Text:
    """A tuple of names in Python, the last first."""
    return source("({0},)" if len(names) == 1 else "({0})", joined(reversed(names)))


def texts(node: Node) -> Iterable[Text]:
    """The pieces of source in a node, in their order."""
    if isinstance(node, Statement):
        yield node.value
    elif isinstance(node, Block):
        yield node.head
        for inner in node.body:
            yield from texts(inner)
