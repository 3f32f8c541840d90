"""CUDA C++: a map as the text of its kernel, and of the host function that launches it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, NamedTuple

from kgen.backends import cuda_host as host
from kgen.backends.base import Render
from kgen.backends.c_family import CFamily, MapView
from kgen.backends.cuda_layouts import SPLATS, columns, groups, otherwise, still, turned
from kgen.backends.cuda_windows import divides, in_rows_alone, is_span, reaches_rows, row_index, share_lines, span_index
from kgen.backends.cuda_words import kept_words
from kgen.backends.launches import pieces, window_rows
from kgen.backends.names import Names
from kgen.backends.text import wrapped
from kgen.backends.units import Reach, Tap, Tensor, Unit
from kgen.passes import Scalar
from kgen.taps import Move


class TileKernel(NamedTuple):
    """The kernel of a map that takes tiles, of which operands go through shared memory: its head; what it calls its layout, the tile and an
    element of it; a bit for each such operand; of each its type, its name, that of its part in shared memory, and its position; and the
    call that makes a vector of the result."""

    head: str
    names: tuple[str, ...]
    mask: int
    turned: list[tuple[str, str, str, int]]
    call: str


@dataclass(frozen=True, kw_only=True)
class CudaMap(host.HostView):
    """What the templates see of a map: its element function, that of a vector, its kernel and its host function."""

    over_rows: ClassVar[bool] = False
    element_template: str
    element_head: str
    words: tuple[str, ...]
    lines: list[str]
    single: bool
    outputs: tuple[Tensor, ...]
    operand_names: list[str]
    vector_head: str
    kernel_aliases: dict[str, list[str]]
    rows: bool  # whether a thread may take several, or several pieces of one
    by: str  # the layout's method that says how far these lie apart
    first: str  # of windows of several rows where the index of the first stands
    spans: bool  # whether a thread takes neighbours that windows along a row share, of which a row's last vector may be a part
    locate: str  # and the one that says where an element lies
    loads: list[tuple[str, str, int, bool]]
    taps: list[tuple[str, str]]
    inside: str  # of windows: whether all their places lie inside, one element behind another along a tensor's last dim; or of rows
    within: str  # and what that is called
    near: tuple[str, ...]  # of threads that take neighbours: what is called so, when that is, when so of single ones; the index's place
    window_rows: bool  # whether a thread may take windows of several rows one below the other, all of which are there WITHIN
    window_head: str
    window_calls: list[str]  # of the function that reads windows: where they do, where they may not; of neighbours one by one, too
    part_loads: list[tuple[str, str]]
    drawn: list[tuple[str, str]]  # random words of neighbours
    stores: list[tuple[str, str, str, str]]
    part_stores: list[tuple[list[str], str, list[str]]]  # vectors that may be stored as one: they, where that is, and each one's own store
    turns: bool  # whether there are parts that may lie in turns
    tiles: TileKernel | None  # where operands may lie otherwise than the result
    otherwise: int  # a bit for each operand that has not all dims, where vectors may be neighbours in memory whatever rows they lie in
    body: list[str]
    kernel_head: str
    list_head: str
    list_pointers: list[str]
    vector_call: str
    tail_call: str
    index_strides: list[tuple[str, str, list[tuple[str, str]], int]]
    code: list[str]

    @property
    def several(self) -> str:
        """What a thread may take several of."""
        return "pieces of a row" if self.by == "beyond" else "rows"


BOTH = ("LANES, SPLAT, ROWS, true", "LANES, SPLAT, ROWS, false")
NEARBY = ("LANES, SPLAT, ROWS, true, true", "LANES, SPLAT, ROWS, true, false", "1, SPLAT, ROWS, true, true", "1, SPLAT, 1, false, false")


def is_last(reach: Reach) -> bool:
    """Whether windows go along the last dim of a tensor."""
    return reach.dim == reach.tensor.dims[-1]


def known_along(reach: Reach, near: str) -> tuple[str, str]:
    """A window's stride, and whether its place is known to lie inside: along the last dim of a tensor, what is WITHIN, or `near` as the
    template calls that, has one element behind another, of which none is known to be there."""
    return (f"{near} ? 1 : {reach.stride}", "false") if is_last(reach) else (reach.stride, "WITHIN")


def bracketed(factor: str) -> str:
    """A factor of a product, in brackets where it needs them."""
    return f"({factor})" if "?" in factor else factor


def moved(at: str, m: Move) -> str:
    """An index, moved by numbers of the call."""
    return at if not m.numbers else f"i64({at})" + "".join(f" {'-' if sign < 0 else '+'} {name}" for sign, name in m.numbers)


class Lines(NamedTuple):
    """What taps read at the same places: their tensor, moves along other dims and fill, and along rows and a row without how far."""

    tensor: Tensor
    rest: tuple[Move, ...]
    fill: str
    row: Move | None
    last: Move | None


class Shared(NamedTuple):
    """What several taps read once: its name, and the moves of a tap along the dim of a thread's rows and along a row (None: as others)."""

    name: str
    row: Move | None
    last: Move | None


def stepped(m: Move, at: str) -> str:
    """Where a window's move leads from an index."""
    return (f"{m.times} * {at}" if m.times > 1 else at) + (f" {'-' if m.by < 0 else '+'} {abs(m.by)}" if m.by else "")


def reached(last: int, m: Move, many: str) -> str:
    """How far so `many` windows of a move reach, of which the first does up to `last`."""
    return f"{last} + {f'{m.times} * ' if m.times > 1 else ''}({many} - 1)"


class MapPrinter:
    """The texts of one map."""

    def __init__(self, backend: CFamily, render: Render, unit: Unit, given: tuple[Scalar, ...]):
        """`unit` is the map, `given` the numbers that it takes."""
        self.backend, self.render, self.unit = backend, render, unit
        self.base: MapView = backend.map_view(render, unit)
        self.names = Names(set(render.global_names.taken) | set(render.global_names.given.values()))
        self.numbers, self.words = host.numbers(backend, unit, given), kept_words(render, unit.calls)
        vectors = [t.name for t in unit.read] + [t.name for t in unit.taps] + [t.name for t in unit.outputs] + [w.name for w in unit.words]
        self.lanes = {name: self.names.fresh(f"{name}s") for name in vectors}
        self.at = {t.name: f"at[{i}]" for i, t in enumerate(self.base.operands)}
        self.anchors: dict[str, str] = {}  # the names of the pointers from which windows are counted, by tensor
        self.memory = [t for t in self.base.operands if t not in unit.indices]
        fixed = {*self.base.writable, *(x.name for x in unit.indices)}
        dims = [None if t.name in fixed else t.dims for t in self.base.operands]
        self.pieces = bool(unit.taps) and not unit.reaches
        self.row = next((x.name for x in unit.indices if x.spec_name == row_index(unit)), "")
        self.by = "under" if self.row or self.pieces and reaches_rows(unit) else "beyond" if self.pieces else "below"
        self.held = 0 if self.by == "under" else still(unit.dims, dims) if self.pieces else columns(unit.dims, dims)
        self.rows = bool(unit.taps) or bool(self.held)
        self.along = span_index(unit)
        self.near, self.near_name = "NEAR" if self.along else "WITHIN", self.names.fresh("aligned") if self.along else ""
        self.ways = NEARBY if self.along else BOTH
        self.shared = self.shared_reads() if unit.reaches else {}
        written, loaded = self.base.writable, {t.name for t in unit.read}
        parts = () if unit.taps else render.kernel.parts
        found = groups(parts, [(t.spec_name, t.dims, (t.name in loaded, t.name in written)) for t in self.base.operands])
        self.groups = [[self.base.operands[k] for k in own] for own in found]
        self.parted = [self.names.fresh(f"{own[0].name}_parts") for own in self.groups]
        alone = not unit.taps and not unit.indices and not self.groups and not getattr(backend, "over_lists", False)
        self.turned = turned(unit.dims, dims) if alone else 0
        flat = not (unit.taps or unit.words or self.groups or getattr(backend, "over_lists", False))
        self.otherwise = otherwise(unit.dims, dims, [t.name in self.base.writable for t in self.base.operands]) if flat else 0
        self.turns = "false" if getattr(backend, "over_lists", False) else "TURNS"
        self.results = [] if unit.single else [self.names.fresh(f"{o.name}_k") for o in unit.outputs]

    def const(self, t: Tensor) -> str:
        return "" if t.name in self.base.writable else "const "

    def element_arguments(self) -> list[str]:
        """What the element function is given, of the k-th elements of vectors."""
        within, indexed = self.unit.within, (x.name for x in self.unit.indexed if x.name not in self.unit.within)
        values = [f"{t.compute}(element({self.vector(t)}, k))" for t in self.unit.read if t.name not in within]
        values += [self.neighbour(t) for t in self.unit.taps]
        values += [f"counted<LANES, SPLAT, {self.base.position[x]}>(layout, {self.place(x)}, k)" for x in indexed]
        values += [f"{self.lanes[w.name]}.at[k]" for w in self.unit.words]
        return values + [self.number(n) for n in self.numbers if n.argument.name not in within]

    @staticmethod
    def number(n: host.PassedNumber) -> str:
        """A number as an element takes it."""
        return f"to<{n.argument.type}>({n.argument.name})" if n.converted else n.argument.name

    def drawn(self) -> list[tuple[str, str]]:
        """The words of a thread's neighbours: the name of their vector, and its call."""
        given = {t.name: f"{t.compute}(element({self.vector(t)}, 0))" for t in self.unit.read}
        given |= {n.argument.name: self.number(n) for n in self.numbers}
        made = []
        for w in self.unit.words:
            seed, offset = (given.get(str(x), str(x)) for x in (w.seed, w.offset))
            call = f"draw<LANES, SPLAT, {self.base.position[str(w.before)]}{w.bits}>(layout, {seed}, {offset}, {self.place(str(w.before))})"
            made.append((self.lanes[w.name], call))
        return made

    def vector(self, t: Tensor) -> str:
        """The vector of an input, of row r where there are several."""
        for g, own in enumerate(self.groups):
            if t in own and self.is_read(own):
                return f"{self.parted[g]}.part[{own.index(t)}][{'r' if self.rows else '0'}]"
        return self.lanes[t.name] + ("" if self.stays(t) else "[r]")

    def is_read(self, own: list[Tensor]) -> bool:
        """Whether parts are read, all of them."""
        return all(t.name in {x.name for x in self.unit.read} for t in own)

    def part_loads(self) -> list[tuple[str, str]]:
        """The parts that a thread reads: the name of their vectors, and the call."""
        made = []
        for g, own in enumerate(self.groups):
            if self.is_read(own):
                which = ", ".join(str(self.base.position[t.name]) for t in own)
                operands = ", ".join(["layout", "at", *(t.name for t in own)])
                made.append((self.parted[g], f"load_parts<LANES, SPLAT, {self.turns}, {'ROWS' if self.rows else 1}, {which}>({operands})"))
        return made

    def part_stores(self, stores: list[tuple[str, str, str, str]]) -> list[tuple[list[str], str, list[str]]]:
        """How the vectors of a group of results are stored; of a result of its own as a group of one."""
        by_pointer = {pointer: (lanes, f"{pointer} + {place}") for lanes, _, pointer, place in stores}
        groups = [[t.name for t in own] for own in self.groups if all(t.name in by_pointer for t in own)]
        alone = [[pointer] for pointer in by_pointer if not any(pointer in own for own in groups)]
        made = []
        for own in sorted([*groups, *alone], key=lambda own: [*by_pointer].index(own[0])):
            found = [by_pointer[pointer] for pointer in own]
            made.append(([lanes for lanes, _ in found], found[0][1], [self.stored(*one) for one in zip(own, found, strict=True)]))
        return made

    def stored(self, pointer: str, found: tuple[str, str]) -> str:
        """The store of a result's vector at a place; of a map whose rows may end within a vector, as much of it as there is."""
        lanes, at = found
        if not self.along:
            return f"store({at}, {lanes});"
        left = f"layout.size[RANK - 1] - {self.at[self.index_name(self.along)]}"
        return f"store_some({at}, {lanes}, {left}, layout.step({self.base.position[pointer]}));"

    def stays(self, t: Tensor) -> bool:
        """Whether an operand is the same for the rows of a thread."""
        return not self.rows or bool(self.held >> self.base.position[t.name] & 1)

    def begin(self, t: Tensor) -> str:
        """Where an input's vector begins, that of a tensor without dims where that does: so the compiler sees one value for all threads."""
        return f"{t.name} + {self.at[t.name]}" if t.dims else t.name

    def place(self, name: str) -> str:
        """Where an operand's vector of row r begins."""
        if name == self.row:
            return f"row_at<ROWS>({self.at[name]}, r)"
        still = not self.rows or bool(self.row or self.unit.reaches) and name in {x.name for x in self.unit.indices}
        return self.at[name] + ("" if still else f" + r * layout.{self.by}({self.base.position[name]}, ROWS)")

    def body(self) -> list[str]:
        """The lines that make the k-th elements of what is stored."""
        outputs = self.unit.outputs
        call = wrapped(self.base.element_call, [*self.words, *self.element_arguments(), *self.results], "", 100)
        made = [*(f"{o.compute} {r};" for o, r in zip(outputs, self.results, strict=True)), f"{call};"] if self.results else []
        for o, value in zip(outputs, self.results or [call], strict=True):
            made.append(f"{self.lanes[o.name]}.at[k] = {value if o.compute == o.type else f'{o.type}({value})'};")
        return [line for text in made for line in text.split("\n")]

    def shared_reads(self) -> dict[Tap, Shared]:
        """The taps that share what they read: they lie apart, in whole steps, along the dim of a thread's rows and along a row alone."""
        names, made = dict[Lines, str](), dict[Tap, Shared]()
        for t in self.unit.taps:
            row = next((m for m in t.by if m.along and self.index_name(m.along) == self.row and m.over == 1), None)
            last = next((m for m in t.by if self.along and is_span(self.unit, t, m)), None)
            if row or last:
                rest = tuple(m for m in t.by if m is not row and m is not last)
                key = Lines(t.tensor, rest, str(t.fill), *(m and m._replace(by=0) for m in (row, last)))
                if key not in names:
                    ways = "".join(f"_{m.dim}_{m.way}" for m in rest)
                    names[key] = self.names.fresh(f"{t.tensor.name}{ways}_{'lines' if row else 'rows' if self.rows else 'line'}")
                made[t] = Shared(names[key], row, last)
        return made

    def index_name(self, dim: str) -> str:
        """The name of the index along a dim."""
        return next(x.name for x in self.unit.indices if x.spec_name == dim)

    def neighbour(self, tap: Tap) -> str:
        """The k-th element of a tap's vector, of row r where there are several."""
        own = self.shared.get(tap)
        if own is None:
            return f"{self.lanes[tap.name]}{'[r]' * self.rows}.at[k]"
        row = f"[{stepped(own.row, 'r')}]" if own.row else "[r]" * self.rows
        return own.name + row + (f"[{stepped(own.last, 'k')}]" if own.last else ".at[k]")

    def taps(self) -> list[tuple[str, str]]:
        """The neighbours that a thread reads: the name of their vector, and its call; windows' places before those that lie there."""
        made, windows = dict[str, str](), dict[tuple[Tensor, Move, str], str]()
        for t in self.unit.taps:
            own = self.shared.get(t)
            if own is not None and own.name in made:
                continue
            away = [m for m in t.by if not self.row or m.along or self.index_name(m.counts) != self.row]
            away.sort(key=lambda m: (not m.along, own is not None and m is own.last))
            moves = [self.window(t, m, own, made, windows) if m.along else self.move(m, self.index_name(m.counts), t) for m in away]
            if self.row and not self.unit.reaches:
                under = sum(m.by for m in t.by if m not in away)
                moves.append(f"below<{self.base.position[self.row]}, {under}, ROWS, WITHIN>({self.at[self.row]}, r)")
            begin = self.at[t.tensor.name] if self.row else self.place(t.tensor.name)
            operands = ", ".join(["layout", self.anchored(t, made) or f"{t.tensor.name} + {begin}", t.fill, *moves])
            call = f"tap<{t.compute}, LANES, SPLAT, {self.base.position[t.tensor.name]}>({operands})"
            if own is not None and own.row:
                which = [x.row.by for x in self.shared.values() if x.name == own.name and x.row]
                made[own.name] = f"lines<{min(which)}, {reached(max(which), own.row, 'ROWS')}>([&](int h) {{ return {call}; }})"
            else:
                name = self.lanes[t.name] if own is None else own.name
                made[name] = f"several<ROWS>([&](int r) {{ return {call}; }})" if self.rows else call
        return [*made.items()]

    def origins(self, t: Tap) -> dict[str, str]:
        """Where the windows of a thread's rows are counted from in a tap's tensor, by its dims: all windows along each go by the same index
        in the same steps, none at a quotient.  Nothing of others."""
        moves = [m for x in self.unit.taps if x.tensor.name == t.tensor.name for m in x.by if m.along]
        found = {m.dim: f"{f'{m.times} * ' if m.times > 1 else ''}i64({self.at[self.index_name(m.along)]})" for m in moves}
        alike = len({(m.dim, m.along, m.times, m.over) for m in moves}) == len(found) and all(m.over == 1 for m in moves)
        return found if alike and self.row else {}

    def origin(self, t: Tap, m: Move) -> list[str]:
        """That of a window along a dim, as an argument of its own where there is one."""
        return [self.origins(t)[m.dim]] if m.dim in self.origins(t) else []

    def anchored(self, t: Tap, made: dict[str, str]) -> str:
        """The name of the pointer from which a tap's windows are counted, which `made` gets where it is new; "" where there is none."""
        origins, tensor = self.origins(t), t.tensor.name
        if origins and tensor not in self.anchors:
            self.anchors[tensor] = self.names.fresh(f"{tensor}_from")
            steps = [f"{at} * {bracketed(known_along(self.unit.reach(t.tensor, dim), self.near)[0])}" for dim, at in origins.items()]
            made[self.anchors[tensor]] = f"anchored({tensor} + {self.at[tensor]} + ({' + '.join(steps)}))"
        return self.anchors.get(tensor, "")

    def window(self, t: Tap, m: Move, own: Shared | None, made: dict[str, str], windows: dict[tuple[Tensor, Move, str], str]) -> str:
        """The place of a tap's window along a dim, by its name, which `made` gets with what it is where it is new."""
        line, span = own is not None and m is own.row, own is not None and m is own.last
        key = (t.tensor, m._replace(by=0) if line or span else m, own.name if own is not None and span else "")
        if key not in windows:
            name = self.names.fresh(f"{t.tensor.name}_{m.dim}" + ("" if line or span else f"_{m.way}"))
            given = "" if self.index_name(m.along) != self.row else "h" if line else "r"
            windows[key] = f"{name}({given})" if given else name
            which = [x.last.by for x in self.shared.values() if own is not None and x.name == own.name and x.last]
            move = self.line(m, t) if line else self.span(m, t, which) if span else self.move(m, self.index_name(m.along), t)
            made[name] = f"[&](int {given}) {{ return {move}; }}" if given else move
        return windows[key]

    def span(self, m: Move, tap: Tap, which: list[int]) -> str:
        """What a thread's neighbours read of a line, by windows' moves along a row."""
        reach = self.unit.reach(tap.tensor, m.dim)
        kind = f"{m.times}, {min(which)}, {reached(max(which), m, 'LANES')}, NEAR, WITHIN ? {2 if in_rows_alone(self.unit) else 1} : 0"
        given = ", ".join([self.place(self.index_name(m.along)), reach.size, known_along(reach, self.near)[0], *self.origin(tap, m)])
        return f"span_at<{kind}>({given})"

    def line(self, m: Move, tap: Tap) -> str:
        """The place of a line that is `h` further on than that of a thread's first row, by a window's move along the dim of its rows."""
        reach = self.unit.reach(tap.tensor, m.dim)
        stride, known = known_along(reach, self.near)
        first = moved(f"i64({self.at[self.row]})", m)
        given = ", ".join([f"{f'{m.times} * ' if m.times > 1 else ''}{first} + h", reach.size, stride, *self.origin(tap, m)])
        return f"window_at<1, 0, 1, {known}, false>({given})"

    def move(self, m: Move, index: str, tap: Tap) -> str:
        """A tap's move along a dim, whose index has this name."""
        at, position = self.place(index), self.base.position[index]
        if m.along:
            reach = self.unit.reach(tap.tensor, m.dim)
            some = "WITHIN" if m.over > 1 else "false"
            stride, known = known_along(reach, self.near)
            given = ", ".join([moved(at, m), reach.size, stride, *self.origin(tap, m)])
            return f"window_at<{m.times}, {m.by}, {m.over}, {known}, {some}>({given})"
        if m.fixed:
            return f"shift<{position}, {m.by}>({at})"
        by = "".join(f" {'-' if sign < 0 else '+'} u64({name})" for sign, name in m.numbers)
        return f"move<{position}, {str(m.wraps).lower()}>({at}, u64({m.by}){by})"

    def inside(self, near: str) -> str:
        """Whether a thread's rows are there, and what it reads in windows lies inside (`held_inside`), one element behind another along
        their tensors' last dims, which `near` says of neighbours; of these in other rows whether they are there."""
        if self.row and not self.unit.reaches:
            rows = [m.by for t in self.unit.taps for m in t.by if m.dim == self.unit.dims[-2]]
            size = f"extent(layout, {self.base.position[self.row]})"
            return f"ROWS > 1 && within<1, {min(rows)}, {max(rows)}, 1, ROWS>({self.at[self.row]}, {size})"
        index = {x.spec_name: x.name for x in self.unit.indices}
        last = [r for r in self.unit.reaches if is_last(r) and not self.along]
        made = [near] if self.along else [*(f"{r.stride} == 1" for r in last), *dict.fromkeys(f"{r.size} > 0" for r in last)]
        made += [f"layout.template has<ROWS>({self.at[self.row]}, ROWS - 1)"] if self.row else []
        windows = [(t, m, index[m.along]) for t, m in self.held_inside()]
        many = {self.row: ", ROWS", self.along and index[self.along]: ", LANES"}
        steps = [((self.unit.reach(t, m.dim).size, m.times, m.over, moved(self.at[x], m), many.get(x, "")), m.by) for t, m, x in windows]
        for (size, times, over, at, several), own in groupby(sorted(steps), lambda pair: pair[0]):
            by = [n for _, n in own]
            made.append(f"within<{times}, {min(by)}, {max(by)}, {over}{several}>({at}, {size})")
        return " && ".join(made)

    def held_inside(self) -> set[tuple[Tensor, Move]]:
        """The windows that are to lie inside their tensors: all along dims but those' last.  Of neighbours those along these, too, where
        windows go along rows alone, else what begins and ends their own steps: at a row's ends threads ask for what is beside these."""
        windows = {(t.tensor, m) for t in self.unit.taps for m in t.by if m.along}
        if self.along and in_rows_alone(self.unit):
            return windows
        last = {(t, m) for t, m in windows if m.dim == t.dims[-1]}
        return windows - last | {(t, m._replace(by=by)) for t, m in last if self.along for by in (0, m.times - 1)}

    def nearby(self) -> str:
        """Whether all that windows read along a row lies one element behind another, in whole aligned vectors."""
        made = list[str]()
        for r in self.unit.reaches:
            if is_last(r):
                strides = [x.stride for x in self.unit.reaches if x.tensor is r.tensor and x is not r]
                aligned = ", ".join(["layout", r.tensor.name, r.size, *strides])
                times = max((m.times & -m.times for t in self.unit.taps for m in t.by if is_span(self.unit, t, m)), default=1)
                made.append(f"{r.stride} == 1 && is_aligned<LANES, {times}, {self.base.position[r.tensor.name]}>({aligned})")
        return " && ".join(made)

    def apart(self) -> str:
        """Whether what a thread reads in windows is there, one element behind another, for elements that it takes one by one."""
        units = " && ".join(f"{r.stride} == 1" for r in self.unit.reaches if is_last(r))
        return self.inside(units)

    def within(self) -> str:
        """What `inside` says, in words."""
        if self.along:
            return "all that is read is there" if in_rows_alone(self.unit) else "all rows are there"
        return "all rows are there" + (", with neighbours next to one another" if self.unit.reaches else "")

    def view(self) -> CudaMap:
        """What the templates take."""
        unit, base, render = self.unit, self.base, self.render
        pointers = [f"{self.const(t)}{host.spelled_out(render, t.type)}* {t.name}" for t in self.memory]
        scalars = [f"{host.spelled_out(render, n.passed)} {n.argument.name}" for n in self.numbers]
        scalars += [f"i64 {name}" for name in unit.extents]
        vector, layout = render.global_names.fresh(f"{unit.name}_vector"), f"Layout<RANK, {len(base.operands)}, Index>"
        listed = f"List<COUNT, {len(self.memory)}, RANK, {len(base.operands)}, Index>"
        passing = ["i", "layout", *(t.name for t in self.memory), *(s.name for s in unit.scalars), *unit.extents]
        chosen = "".join(f"{v}, " for v in unit.variables)
        windows = render.global_names.fresh(f"{unit.name}_{'windows' if unit.reaches else 'rows'}") if unit.reaches or self.row else ""
        passed, behind = [f"const {layout}& layout", *pointers, *scalars], ["at", *passing[1:]]
        given = ["const Where& layout", *passed[1:]] if self.turned or self.otherwise else passed
        stores = [(self.lanes[o.name], o.type, base.pointer[o.name], self.place(base.pointer[o.name])) for o in unit.outputs]
        rows = (", ROWS" if self.rows else "") + (f", {self.turns}" if self.groups else "")
        parts = {t.name for own in self.groups if self.is_read(own) for t in own}
        alone = [t for t in unit.read if t.name not in parts]
        values = [o.value for o in unit.outputs] + [t.fill for t in unit.taps]
        types = {*(t.compute for t in (*unit.inputs, *unit.outputs)), *(o.type for o in unit.outputs)}
        types |= {n.argument.type for n in self.numbers if n.converted} | unit.uses | {t.compute for t in unit.taps}
        return CudaMap(
            **vars(self.launch(chosen)),
            element_template=base.element_template,
            element_head="__device__ " + self.backend.element_head(unit, *(f"Philox& {name}" for name in self.words)),
            words=self.words,
            lines=self.backend.printed(unit.lines),
            single=unit.single,
            outputs=unit.outputs,
            operand_names=[f"index[{t.spec_name}]" if t in unit.indices else t.name for t in base.operands],
            vector_head=wrapped(f"__device__ inline void {vector}", ["Index i", *given], " {"),
            kernel_aliases={a: of for a, of in base.aliases.items() if a in types},
            rows=self.rows,
            by=self.by,
            first=self.at.get(self.row, ""),
            spans=bool(self.along),
            locate=self.locate(),
            loads=[(self.lanes[t.name], self.begin(t), base.position[t.name], not self.stays(t)) for t in alone],
            part_loads=self.part_loads(),
            drawn=self.drawn(),
            taps=self.taps(),
            inside=self.inside(self.near_name),
            within=self.within(),
            near=(self.near_name, self.nearby(), self.apart(), str(base.position[self.index_name(self.along)])) if self.along else ("",),
            window_rows=bool(self.row and unit.reaches),
            window_head=wrapped(f"__device__ inline void {windows}", [f"const Index (&at)[{len(base.operands)}]", *passed], " {"),
            window_calls=[host.indented(wrapped(f"{windows}<{chosen}{b}>", behind, ";", 90), 8) for b in self.ways],
            stores=stores,
            part_stores=self.part_stores(stores),
            turns=bool(self.groups),
            tiles=self.tile_kernel(f"{vector}<{chosen}VEC, GIVEN{', 1' * self.rows}>", [*pointers, *scalars], passing),
            otherwise=self.otherwise,
            body=self.body(),
            kernel_head=wrapped(f"{unit.name}_kernel", [f"{layout} layout", *pointers, *scalars], " {"),
            list_head=wrapped(f"{unit.name}_each", [f"const __grid_constant__ {listed} list", *scalars], " {"),
            list_pointers=[f"{p} = static_cast<{p.rpartition(' ')[0]}>(list.pointer[{k}][own]);" for k, p in enumerate(pointers)],
            vector_call=host.indented(wrapped(f"{vector}<{chosen}VEC, SPLAT{rows}>", ["i", self.lying(), *passing[2:]], ";", 110), 8),
            tail_call=host.indented(wrapped(f"{vector}<{chosen}1, SPLAT{rows}>", passing, ";", 90), 8),
            index_strides=self.index_strides,
            code=[*self.backend.printed(unit.lines), *values, *self.element_arguments(), *(call for _, call in self.drawn())],
        )

    def lying(self) -> str:
        """How a vector lies, which its function is given."""
        single = sum(1 << k for k, t in enumerate(self.base.operands) if self.otherwise >> k & 1 and not t.dims)
        return f"lying<SPLAT, {self.otherwise}, {single}>(layout, i)" if self.otherwise else "layout"

    def locate(self) -> str:
        """The layout's method that says where an element lies."""
        if self.along:
            return f"template locate<{'ROWS, true' if self.row else '1, false'}, LANES>"
        return {"below": "locate", "beyond": "template locate<ROWS>", "under": "template locate<ROWS, true>"}[self.by]

    def tile_kernel(self, vector: str, params: list[str], passing: list[str]) -> TileKernel | None:
        """The kernel that takes tiles: `vector` is the function that makes a vector of them, `params` are what the kernel takes behind its
        layout, `passing` what that function is given elsewhere.  None where operands lie as the result does."""
        if not self.turned:
            return None
        operands = self.base.operands
        names = tuple(self.names.fresh(name) for name in ("tiles", "tile", "e"))
        turned = [
            (host.spelled_out(self.render, t.type), t.name, self.names.fresh(f"{t.name}_tile"), k)
            for k, t in enumerate(operands)
            if self.turned >> k & 1
        ]
        there = {name: part for _, name, part, _ in turned}
        given = [f"Index({names[2]})", names[1], *(there.get(name, name) for name in passing[2:])]
        layout = f"const __grid_constant__ Tiles<RANK, {len(operands)}, Index> {names[0]}"
        head = wrapped(f"{self.unit.name}_tiles", [layout, *params], " {")
        return TileKernel(head, names, self.turned, turned, host.indented(wrapped(vector, given, ";", 110), 8))

    def launch(self, chosen: str) -> host.HostView:
        """The host function."""
        unit, base, render = self.unit, self.base, self.render
        strides = {t.name: self.names.fresh(f"{t.name}_stride") for t in base.tensors}
        given = [*(f"i64 {name}" for name in unit.extents), *(f"{a.type} {a.name}" for a in base.numbers)]

        def params(bound: dict[str, str]) -> list[str]:
            types = [host.element_type(render, t.type, bound) for t in base.tensors]
            typed = [f"{self.const(t)}{of}* {t.name}, const i64* {strides[t.name]}" for t, of in zip(base.tensors, types, strict=True)]
            return ["int rank", "const i64* size", *typed, *given, "cudaStream_t stream"]

        run = self.names.fresh(f"{unit.name}_run")
        arguments = ["rank", "size", *(f"{t.name}, {strides[t.name]}" for t in base.tensors)]
        arguments += [*unit.extents, *(a.name for a in base.numbers), "stream"]
        self.index_strides = [(self.names.fresh(f"{x.name}_stride"), x.name, base.counting[x.name], len(unit.named)) for x in unit.indices]
        every = strides | {name: stride for stride, name, _, _ in self.index_strides}
        read = [t.name not in base.writable and not set(unit.dims[-1:]) <= set(t.dims) for t in base.operands[:SPLATS]]
        lacking = sum(1 << i for i, is_still in enumerate(read) if is_still)
        moving = [t for i, t in enumerate(base.operands) if not lacking >> i & 1 and t not in unit.indices]
        written = [t for t in base.operands if t.name in base.writable]
        vec, most = (f"16 / {host.widest([(t.dtype, t.type) for t in own])}" for own in (moving, written))
        widest = host.widest([(t.dtype, t.type) for t in self.memory])
        if unit.reaches:
            vec, most = f"window_lanes({widest})" if self.along else "1", "1"
        launch = ["rank", "size", "operands", "stream", "kernel", *(t.name for t in self.memory), *(n.given for n in self.numbers)]
        launch += unit.extents
        many = pieces(len(unit.taps), self.by == "under") if self.pieces else 1
        below = f"rows_below({many}{f', {base.position[self.row]}' if self.row else ''})"
        held = {"below": self.held, "beyond": f"pieces({many})", "under": below}[self.by]
        if unit.reaches:
            of_rows = window_rows(len(unit.taps), bool(self.row), divides(unit), bool(self.along), share_lines(unit))
            of_row = f", {self.base.position[self.row]}" if self.row else ", -1" if self.along else ""
            of_row += f", {self.base.position[self.index_name(self.along)]}" if self.along else ""
            held = f"windows({of_rows}{of_row})" if of_rows > 1 or self.along else 0
        dense = [t for k, t in enumerate(base.operands) if not self.otherwise >> k & 1 and t not in unit.indices]
        flat = f", {self.otherwise}, 16 / {host.widest([(t.dtype, t.type) for t in dense])}" if self.otherwise else ""
        head = f"return run_map<{vec}, {most}, {lacking}{f', {held}' if held or flat else ''}{flat}>"
        if self.turned:
            head = f"return run_turned<{vec}, {most}, {lacking}, {self.held}, {self.turned}, 16 / {widest}{flat}>"
            launch.insert(launch.index("kernel") + 1, "tiled")
        if self.groups:
            head, launch = f"return run_parts<{vec}, {most}, {lacking}, {self.held}>", ["parts", *launch]
        uses = {t.type for t in self.memory}.union(*(n.uses for n in self.numbers))
        return host.HostView(
            kernel=f"{unit.name}_kernel",
            typename=", ".join(f"typename {v}" for v in unit.variables),
            chosen=chosen,
            run_head=wrapped(f"cudaError_t {run}", params({}), " {"),
            entries=host.entries(unit, run, params, arguments),
            computed=host.computed(self.numbers),
            host_aliases={a: of for a, of in base.aliases.items() if a in uses},
            host_operands=[
                host.HostOperand(t.name if t in self.memory else "", every[t.name], t.type, written=t.name in base.writable)
                for t in base.operands
            ],
            parts=["{" + ", ".join(str(base.position[t.name]) for t in own) + "}" for own in self.groups],
            launch=host.indented(wrapped(head, launch, ";", 120), 4),
            rounded=[n.rounded for n in self.numbers],
        )
