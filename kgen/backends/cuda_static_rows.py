"""CUDA C++ for known dims: passes over rows.

A row whose elements are neighbours is taken by some threads of a warp, or by a block: they keep it in registers, or read it anew for each
reading where it is too long.  Where neighbours belong to other rows, 32 rows lie side by side in a block, several threads for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import gcd, isqrt
from typing import TYPE_CHECKING, Any

from kgen.backends import cuda_host as host
from kgen.backends.c_static import block
from kgen.backends.cuda_partials import Partial, words
from kgen.backends.static import deep, inlined, refused, rounds, stored
from kgen.backends.text import Text, named, source, tokens
from kgen.backends.units import Accumulator, Code, RowUnit, Statement, Tensor
from kgen.monoids import MONOIDS, RIDERS, Rides
from kgen.ops import CALL, SUM
from kgen.types import DTYPES

if TYPE_CHECKING:
    from kgen.backends.cuda_static import CudaPrinter

#: Rows side by side in a block, and the threads that take each; the elements between which their sums go on pairwise.
SIDE, SIDE_TEAM, SIDE_BLOCK = 32, 8, 32


@dataclass(frozen=True)
class KernelView:
    """A pass: what it says of itself, its kernel's first line and the others, an element's function before it, the host's launch."""

    about: str
    head: str
    lines: list[str]
    element: list[str]
    launch: list[str]


class RowWriter:
    """One pass over rows, in its frame: "row" (one element a row), "held", "loop" or "across"."""

    def __init__(self, owner: CudaPrinter, unit: RowUnit, planner: Callable[..., Any]):
        """`planner` says how a row of known length is shared out (`kgen.runtime.rows.along`).  Raises `KgenError` for a pass that blocks
        would have to share."""
        self.owner, self.unit, self.render = owner, unit, owner.render
        self.readings = [c for c in unit.codes if c.element]
        self.reductions = sum(bool(c.accumulators) for c in self.readings)
        self.wished, self.lanes, self.team, self.threads, self.vectors, self.frame = "", 1, 1, 256, 1, "row"
        self.n = self.render.size(unit.inner)
        self.declared: set[tuple[str, ...]] = set()
        self.in_row: set[str] = set()
        self.held: set[str] = set()
        self.thread = "lane"
        if not unit.inner:
            return
        kernel = self.render.kernel
        if not unit.rows:
            raise refused(kernel, "it reduces all elements to one, which blocks would have to share")
        if owner.lies_across(unit):
            self.frame, self.team, self.threads = "across", SIDE_TEAM, SIDE * SIDE_TEAM
            return
        if self.n is None:
            raise refused(kernel, "its rows have a length that only a call tells")
        self.along(kernel, planner)

    def along(self, kernel: Any, planner: Callable[..., Any]) -> None:
        """Share a row out, as the planner has it."""
        assert self.n is not None
        bytes_of, lanes = self.vectored(), self.lanes
        room = max((words(c) for c in (*self.unit.codes, *self.unit.long)), default=0)
        shared = planner(self.n, lanes, [bytes_of[t] for t in bytes_of if t in self.held], [*bytes_of.values()], self.reductions, room)
        self.wished, self.threads, self.team, self.vectors = shared.wished, shared.threads, shared.team, shared.vectors
        self.frame = "held" if shared.held else "loop"
        if self.frame == "loop":
            self.held = set()
            while self.too_deep() and self.team == self.threads < 1024:
                self.threads = self.team = 2 * self.threads
            if self.too_deep():
                raise refused(kernel, f"rows of {self.n:,} elements are longer than its order of sums bounds")

    def vectored(self) -> dict[str, int]:
        """Find what is read more than once, and the elements of a vector; the bytes of an element of what is read along a row."""
        assert self.n is not None
        elements = [t for t in self.unit.inputs if not self.unit.is_row(t)]
        self.held = {t.name for t in elements if sum(t in c.inputs for c in self.readings) > 1}
        moving = [t for t in (*elements, *(o for c in self.readings for o in c.outputs)) if self.moves(t)]
        lanes = min(8, 16 // max((DTYPES[t.dtype].bytes for t in moving), default=16))
        self.lanes = min([gcd(lanes, self.n), *(self.fits(t, lanes) for t in moving)])
        return {t.name: DTYPES[t.dtype].bytes for t in elements}

    def moves(self, t: Tensor) -> bool:
        """Whether neighbours along a row are neighbours in a tensor."""
        return self.render.step(t.dims, self.unit.inner) == 1

    def fits(self, t: Tensor, lanes: int) -> int:
        """The most lanes for which a tensor has whole vectors along its rows."""
        r = self.render
        run = r.run(t.dims, self.unit.inner)
        steps = [run or self.n or 1]
        for _, last in r.groups(r.wide(t.dims), r.wide(self.unit.rows)):
            steps.append(r.size(r.wide(t.dims)[r.wide(t.dims).index(r.wide(self.unit.rows)[last]) + 1 :]) or 1)
        return gcd(lanes, *steps)

    @property
    def rereads(self) -> bool:
        """Whether a row is read anew for each of several readings."""
        return self.frame == "loop" and (len(self.readings) > 1 or self.render.backend.rides == Rides.EVERY)

    @property
    def chain(self) -> int:
        """How many elements of a row a thread takes."""
        assert self.n is not None
        return -(-self.n // (self.team * self.lanes)) * self.lanes

    @property
    def span(self) -> int:
        """Vectors of a thread between which sums go on, 0 where that is not needed."""
        if not deep(self.chain, 10, self.n):
            return 0
        return isqrt(self.chain // self.lanes) + 1

    def too_deep(self) -> bool:
        steps = self.chain // self.lanes
        return self.span > 0 and deep(self.lanes + self.span + -(-steps // self.span), 10, self.n)

    # ------------------------------------------------------------------ the kernel

    def kernel(self, numbers: list[host.PassedNumber]) -> KernelView:
        """The kernel and its launch."""
        o, unit = self.owner, self.unit
        side = SIDE if self.frame == "across" else self.threads // self.team if self.frame != "row" else self.threads
        body = [*o.converted(numbers), *self.opening(side), *o.row_values(unit)]
        if self.frame == "held":
            body += self.holding()
        for c in unit.codes:
            body += self.reading(c) if c.element else self.row_phase(c)
        return KernelView(
            self.about(side), o.head(unit, numbers, self.threads, body), body, [],
            o.launch(unit, numbers, o.shared_out(unit.rows, side), self.threads, body),
        )  # fmt: skip

    def kernels(self, numbers: list[host.PassedNumber]) -> list[KernelView]:
        """The kernels of the pass."""
        return [self.kernel(numbers)]

    def columns(self, c: Code) -> list[str]:
        """The lines that add an element to what is added up over all rows."""
        return []

    def about(self, side: int) -> str:
        """What the kernel says of itself."""
        who = f"A block of {self.threads} threads takes a row" if side == 1 else f"{self.team} threads take a row, {side} rows a block"
        if self.frame == "row":
            return "A thread for each row."
        if self.frame == "across":
            return f"{SIDE} rows side by side in a block, {SIDE_TEAM} threads for each."
        vectors = f"{self.vectors} elements"
        if self.lanes > 1:
            vectors = f"{self.vectors} vector{'s' * (self.vectors > 1)} of {self.lanes} elements"
        if self.frame == "held":
            made = f"{who} and keeps it in registers, {vectors} a thread."
        else:
            made = f"{who}, by vectors of {self.lanes}." if self.lanes > 1 else f"{who}."
        if self.wished:
            where = {"shared": "shared memory", "cluster": "the shared memory of a cluster of blocks"}[self.wished]
            made += f"\nkgen's own launches keep rows of this length in {where}; here each reading fetches them anew."
        return made.replace("a block and keeps", "a block, and keep")

    def opening(self, side: int) -> list[str]:
        """The lines that find the row of a thread, and where it begins."""
        r, unit = self.render, self.unit
        count = r.product(unit.rows)
        if self.frame == "row":
            return [f"const i64 row = i64(blockIdx.x) * {self.threads} + threadIdx.x;", f"if (row >= {count}) return;"]
        made = []
        if side == 1:
            made += ["const i64 row = blockIdx.x;"]
        elif self.team == 32 and self.frame != "across":
            made += [f"const i64 row = i64(blockIdx.x) * {side} + threadIdx.x / 32;", f"if (row >= {count}) return;"]
        else:
            own = f"threadIdx.x % {SIDE}" if self.frame == "across" else f"threadIdx.x / {self.team}"
            made += [f"const i64 first = i64(blockIdx.x) * {side} + {own};", f"const bool inside = first < {count};"]
            made += [f"const i64 row = inside ? first : {count} - 1;  // reads what another thread reads, writes nothing"]
        lane = "threadIdx.x" if side == 1 else f"threadIdx.x / {SIDE}" if self.frame == "across" else f"threadIdx.x % {self.team}"
        made += [f"const int lane = {lane};"] if side > 1 else []
        self.thread = "lane" if side > 1 else "threadIdx.x"
        walked = [t for t in (*unit.inputs, *unit.outputs) if not unit.is_row(t) and r.place(t.dims, unit.rows, named("row")) is not None]
        self.in_row = set() if self.frame == "across" else {t.spec_name for t in walked}
        return made if self.frame == "across" else [*made, *self.owner.row_pointers(walked, unit.rows, unit)]

    @property
    def guard(self) -> str:
        """What holds for threads that may write."""
        return "inside" if self.frame == "across" or self.frame != "row" and self.threads > self.team != 32 else ""

    def base(self, t: Tensor) -> str:
        return self.owner.rows[t.spec_name] if t.spec_name in self.in_row else self.owner.pointers[t.spec_name]

    def in_vectors(self, t: Tensor) -> bool:
        """Whether a tensor is read and written in vectors along a row."""
        return self.frame in ("held", "loop") and self.lanes > 1 and self.moves(t)

    def where(self, t: Tensor) -> str:
        place = self.render.place(t.dims, self.unit.inner, named("i"))
        return f"{self.base(t)} + {place}"

    @property
    def whole(self) -> bool:
        """Whether every thread has all its vectors."""
        return self.n == self.team * self.vectors * self.lanes

    def each_vector(self, lines: list[str]) -> list[str]:
        """A loop over a thread's vectors."""
        lanes = f" * {self.lanes}" if self.lanes > 1 else ""
        place = f"(v * {self.team} + {self.thread}){lanes}" if lanes else f"v * {self.team} + {self.thread}"
        if self.whole and sum(t == "i" for line in lines for t in tokens(line)) < 2:
            at, lines = [], ["".join(place if t == "i" else t for t in tokens(line)) for line in lines]
        else:
            at = [f"const int i = {place};"]
        inner = lines if self.whole else [f"if (i >= {self.length}) break;", *lines]
        return ["#pragma unroll", *block(f"for (int v = 0; v < {self.vectors}; v++)", [*at, *inner])]

    @property
    def length(self) -> Text:
        return self.render.product(self.unit.inner)

    def holding(self) -> list[str]:
        """The lines that load what stays in registers."""
        r, made, loads = self.render, list[str](), list[str]()
        for t in self.unit.inputs:
            if t.name in self.held:
                lanes = self.lanes if self.moves(t) else 1
                if lanes != self.lanes:
                    self.held.discard(t.name)
                    continue
                made.append(f"{self.owner.vector(t.type, lanes)} {t.name}_held[{self.vectors}];")
                where = r.place(t.dims, self.unit.inner, named("i"))
                first = self.owner.at(t, where, row=t.spec_name in self.in_row)
                loads.append(f"{t.name}_held[v] = {first if lanes == 1 else self.owner.load(t.type, lanes, self.where(t))};")
        return [*made, *self.each_vector(loads)] if loads else []

    def element(self, t: Tensor) -> Text:
        """The element of a tensor that a thread is at."""
        i = named("i") if self.lanes == 1 or self.frame == "across" else Text(("i", " + ", "k"), SUM)
        if self.frame == "across":
            return self.owner.at(t, self.render.place(t.dims, self.unit.rows, named("row")), self.render.place(t.dims, self.unit.inner, i))
        if self.frame == "held" and t.name in self.held:
            return self.owner.lane(f"{t.name}_held[v]", self.lanes)
        if self.in_vectors(t):
            return self.owner.lane(f"{t.name}_vector", self.lanes)
        return self.owner.at(t, self.render.place(t.dims, self.unit.inner, i), row=t.spec_name in self.in_row)

    def body(self, c: Code) -> tuple[list[str], list[str], Code, dict[str, Text]]:
        """What a reading does: the lines for a vector, those for an element of it, its code, the results' values."""
        unit = self.unit
        inputs = {t.name: t for t in c.inputs if not unit.is_row(t)}
        loads = [
            f"const {self.owner.vector(t.type, self.lanes)} {t.name}_vector = {self.owner.load(t.type, self.lanes, self.where(t))};"
            for t in inputs.values() if self.in_vectors(t) and not (self.frame == "held" and t.name in self.held)
        ]  # fmt: skip
        reads = {name: source("{0}({1})", t.compute, self.element(t)) for name, t in inputs.items()}
        c, often = inlined(c, reads)
        words = frozenset[str]().union(*(text.uses for text in c.made))
        made = [f"const {inputs[name].compute} {name} = {reads[name]};" for name in often]
        i = named("i") if self.lanes == 1 or self.frame == "across" else Text(("i", " + ", "k"), SUM)
        made += [self.owner.position(x, (unit.inner, i)) for x in c.indices if x.name in words and not unit.is_row(x)]
        lines, values = stored(c.lines, c.outputs, [text for a in (*c.accumulators, *c.columns) for text in (a.value, a.place, *a.weights)])
        return loads, [*made, *self.owner.printed(unit, lines)], c, values

    # ------------------------------------------------------------------ phases

    def row_phase(self, c: Code) -> list[str]:
        """A row's own values, and its results."""
        lines = [*c.lines, *(Statement((g.name,), g.type, g.text) for g in c.gives if g.text != g.name)]
        own = [s for s in lines if not s.type or s.names not in self.declared]
        self.declared |= {s.names for s in own if s.type}
        made = self.owner.printed(self.unit, own)
        stores = []
        for o in c.outputs:
            at = self.owner.at(o, self.render.place(o.dims, self.unit.rows, named("row")))
            stores.append(f"{at} = {self.owner.element(o, o.value)};")
        if stores and self.frame != "row":
            made += block(f"if ({' && '.join(filter(None, (self.guard, f'{self.thread} == 0')))})", stores)
        else:
            made += stores
        return made

    def reading(self, c: Code) -> list[str]:
        """A reading: what threads gather of a row and put together, or its elements stored."""
        loads, lines, c, values = self.body(c)
        if c.outputs or c.columns:
            return self.storing(c, loads, lines, values)
        made = [x for a in c.accumulators for x in self.start(a)]
        inner = [*lines, *(x for a in c.accumulators if a.kind not in RIDERS for x in self.joining(a))]
        if self.frame == "across":
            made += self.side_loop(c, lines)
        elif any(a.kind in RIDERS for a in c.accumulators):
            made += self.long_loop(c, lambda end, apart: self.online(c, loads, lines, end, apart))
        elif self.frame == "held":
            made += self.each_vector([*loads, *self.owner.unrolled(inner, self.lanes)])
        else:
            made += self.long_loop(c, lambda end, apart: self.plain(c, loads, lines, end, apart))
        return made + self.put_together(c)

    def storing(self, c: Code, loads: list[str], lines: list[str], values: dict[str, Text]) -> list[str]:
        """The reading that stores elements."""
        o, after, before = self.owner, list[str](), [*loads]
        lines = [*lines]
        for t in c.outputs:
            target = self.element(t)
            if self.in_vectors(t):
                kind = o.vector(t.type, self.lanes)
                before.append(f"{kind} {t.name}_out;")
                target = o.lane(f"{t.name}_out", self.lanes)
                after.append(f"*reinterpret_cast<{kind}*>({self.where(t)}) = {t.name}_out;")
            lines.append(f"{target} = {o.element(t, values[t.name])};")
        lines += self.columns(c)
        if self.frame == "across":
            made = block(f"for (i64 i = lane; i < {self.length}; i += {SIDE_TEAM})", lines)
        elif self.frame == "held":
            made = self.each_vector([*before, *o.unrolled(lines, self.lanes), *after])
        else:
            made = block(self.loop("lane", str(self.length)), [*before, *o.unrolled(lines, self.lanes), *after])
        return block(f"if ({self.guard})", made) if self.guard else made

    # ------------------------------------------------------------------ reductions

    def identity(self, a: Accumulator) -> str:
        """What changes no partial result."""
        value, *_ = self.owner.backend.neutral(a)
        return f"{'-' * value.startswith('-')}infinity()" if isinstance(value, str) else str(self.owner.backend.identity(a))

    def start(self, a: Accumulator, end: str = "") -> list[str]:
        """The lines that declare what a thread has of a reduction so far; `end` is that of its name."""
        if a.place:
            part = f"{a.value_type} {a.name}{end}_part = {self.identity(a)};"
            return [part, f"i64 {a.name}{end} = 0x7fffffffffffffff;"]
        others = [f"{a.type} {a.name}{end}_{f.name} = {f.identity};" for f in MONOIDS[a.kind].fields if f.name]
        return [f"{a.type} {a.name}{end} = {self.identity(a)};", *others]

    def joining(self, a: Accumulator, end: str = "", given: str = "") -> list[str]:
        """The lines by which an element joins a reduction, or what a thread has `given` in another name."""
        name = f"{a.name}{end}"
        if a.place:
            value, place = (f"{given}_part", given) if given else (f"{a.name}_value", f"{a.name}_place")
            made = [] if given else [f"const {a.value_type} {value} = {a.value};", f"const i64 {place} = {a.place};"]
            least = str(a.kind == "argmin").lower()
            made.append(f"if (goes_before<{least}>({value}, {place}, {name}_part, {name})) {{")
            return [*made, f"    {name}_part = {value};", f"    {name} = {place};", "}"]
        x = named(given) if given else a.value
        if a.kind == "sum":
            return [f"{name} += {x};"]
        return [f"{name} = {self.owner.backend.combined(a, name, x.fit(CALL))};"]

    def loop(self, begin: str, end: str) -> str:
        """The head of a loop over a thread's vectors."""
        lanes = f" * {self.lanes}" if self.lanes > 1 else ""
        first = begin if begin != "lane" else f"{self.thread}{lanes}"
        return f"for (int i = {first}; i < {end}; i += {self.team * self.lanes})"

    def long_loop(self, c: Code, step: Callable[[str, bool], list[str]]) -> list[str]:
        """A loop over a row that is read anew; `step` gives the lines for a vector, by the end of the names to add to, and whether
        the sums of a vector's elements stand apart first."""
        if not any(rounds(a) for a in c.accumulators) or not self.span:
            return block(self.loop("lane", str(self.length)), step("", False))
        size, lanes = self.span * self.team * self.lanes, f" * {self.lanes}" if self.lanes > 1 else ""
        inner = [x for a in c.accumulators for x in self.start(a, "_few")]
        inner += [f"const int end = base + {size} < {self.length} ? base + {size} : {self.length};"]
        inner += block(self.loop("base", "end"), step("_few", self.lanes > 1))
        if any(a.kind in RIDERS for a in c.accumulators):
            inner += self.merged(c)
        else:
            inner += [x for a in c.accumulators for x in self.joining(a, "", f"{a.name}_few")]
        return block(f"for (int base = {self.thread}{lanes}; base < {self.length}; base += {size})", inner)

    def plain(self, c: Code, loads: list[str], lines: list[str], end: str, apart: bool) -> list[str]:
        """What a vector's elements add."""
        own = [a for a in c.accumulators if apart and rounds(a)]
        made = [*loads, *(x for a in own for x in self.start(a, "_part"))]
        joins = [x for a in c.accumulators for x in self.joining(a, "_part" if a in own else end)]
        made += self.owner.unrolled([*lines, *joins], self.lanes)
        return made + [x for a in own for x in self.joining(a, end, f"{a.name}_part")]

    def peaks(self, c: Code) -> list[Accumulator]:
        """The maxima about which sums are taken."""
        return [a for a in c.accumulators if any(x.peak == a.name for x in c.accumulators)]

    def partial(self, a: Accumulator, end: str, top: str) -> Partial:
        """What a thread has of a sum about a maximum, which is to be brought to the maximum `top`."""
        return Partial(self.owner.backend, replace(a, name=f"{a.name}{end}", peak=f"{a.peak}{end}"), top)

    @staticmethod
    def added(a: Accumulator, end: str, given: str) -> list[str]:
        """The lines that add the fields of a partial to those of another with the same maximum."""
        tails = [f"_{f.name}" if f.name else "" for f in MONOIDS[a.kind].fields]
        return [f"{a.name}{end}{tail} += {a.name}{given}{tail};" for tail in tails]

    def online(self, c: Code, loads: list[str], lines: list[str], end: str, apart: bool) -> list[str]:
        """What a vector's elements add where sums are about a maximum that is found with them: the maximum first, then the sums."""
        riders, peaks = [a for a in c.accumulators if a.kind in RIDERS], self.peaks(c)
        made = [*loads, *(f"{p.type} {p.name}_top = {p.name}{end};" for p in peaks)]
        joins = [x for a in c.accumulators if a not in riders for x in self.joining(a, "_top" if a in peaks else end)]
        made += self.owner.unrolled([*lines, *joins], self.lanes)
        for a in riders:
            made += self.partial(a, end, f"{a.peak}_top").rescale()
        made += [f"{p.name}{end} = {p.name}_top;" for p in peaks]
        made += [line for a in riders if apart for line in self.start(a, "_part")]
        into = "_part" if apart else end
        shares = [line for a in riders for line in self.partial(a, into, f"{a.peak}_top").added()]
        made += self.owner.unrolled([*self.body(c)[1], *shares], self.lanes)  # the equations stand above
        return made + [line for a in riders if apart for line in self.added(a, end, "_part")]

    def merged(self, c: Code) -> list[str]:
        """What a thread has of some vectors joined to what it had before."""
        riders, peaks = [a for a in c.accumulators if a.kind in RIDERS], self.peaks(c)
        made = [x for a in c.accumulators if a not in riders and a not in peaks for x in self.joining(a, "", f"{a.name}_few")]
        for p in peaks:
            made.append(f"const {p.type} {p.name}_top = {self.owner.backend.combined(p, p.name, named(f'{p.name}_few'))};")
        for a in riders:
            made += [line for end in ("", "_few") for line in self.partial(a, end, f"{a.peak}_top").rescale()]
            made += self.added(a, "", "_few")
        return made + [f"{p.name} = {p.name}_top;" for p in peaks]

    def side_loop(self, c: Code, lines: list[str]) -> list[str]:
        """A loop over rows that lie side by side."""
        own = [a for a in c.accumulators if rounds(a)]
        chain = 0 if self.n is None else -(-self.n // SIDE_TEAM)
        if not own or not deep(chain, SIDE_TEAM, self.n):
            joins = [x for a in c.accumulators for x in self.joining(a)]
            return block(f"for (i64 i = lane; i < {self.length}; i += {SIDE_TEAM})", [*lines, *joins])
        size = SIDE_TEAM * SIDE_BLOCK
        made = [f"{self.owner.pairwise(a)} {a.name}_blocks;" for a in own]
        inner = [x for a in own for x in self.start(a, "_few")]
        joins = [x for a in c.accumulators for x in self.joining(a, "_few" if a in own else "")]
        inner += block(f"for (i64 i = base; i < {self.length} && i < base + {size}; i += {SIDE_TEAM})", [*lines, *joins])
        inner += [f"{a.name}_blocks.add({a.name}_few);" for a in own]
        made += block(f"for (i64 base = lane; base < {self.length}; base += {size})", inner)
        return made + [f"{a.name} = {a.name}_blocks.total({a.name});" for a in own]

    def put_together(self, c: Code) -> list[str]:
        """The lines that combine what the threads of a row have."""
        if self.team == 1:
            return []
        scope = "side" if self.frame == "across" else "block" if self.team > 32 else "warp" if self.team == 32 else f"team{self.team}"
        o, made, peaks = self.owner, list[str](), self.peaks(c)
        for a in c.accumulators:
            if a.place:
                made.append(f"{o.team(scope, self.team, a)}({a.name}_part, {a.name});")
            elif a in peaks:
                made.append(f"const {a.type} {a.name}_all = {o.team(scope, self.team, a)}({a.name});")
            elif a.kind in RIDERS:
                made += self.partial(a, "", f"{a.peak}_all").rescale()
                made.append(f"{a.name} = {o.team(scope, self.team, replace(a, kind='sum'))}({a.name});")
            else:
                made.append(f"{a.name} = {o.team(scope, self.team, a)}({a.name});")
        return made + [f"{p.name} = {p.name}_all;" for p in peaks]
