"""How the loops run, apart from how they are spelled.

In: a program.  Out: its passes over memory, in order.  A `Map` computes each element of its dims alone.  A `Scan` goes along the rows of
its dims, and stores what follows at each element.  A `Reduce` walks the rows of its dims and reads each as often as its reductions feed
one another; what follows in the same dims is stored on the last reading.  What a later pass needs of an earlier one goes through a
workspace: a tensor of the reduction's dims, in the dtype computed in.

A row's order of accumulation is a fixed tree that depends on its length and layout alone: see `tree_depth`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from kgen.dear import dear
from kgen.errors import Diagnostic, TooLong
from kgen.expand import expand, is_reduction
from kgen.ir import GATHERS, MAX_OPERATIONS, Let, Program, Store, Tensor, held, leaf, live, taken, too_long
from kgen.lookups import looked_up
from kgen.monoids import Rides
from kgen.online import at_once, online
from kgen.ops import ROWS
from kgen.ops.scans import REVERSED
from kgen.passes import Map, Pass, Plan, Reduce, Scalar, Scan, Sort, Workspace, verified
from kgen.phases import Phase, phases_of
from kgen.scanned import is_scan
from kgen.segments import segmented
from kgen.selection import is_probe
from kgen.taps import is_beside, is_tap, taps_of
from kgen.types import Dims, lying

#: The operations of one number, each written out where it is used: languages bound how deep an expression may be.
MAX_NUMBER = 100


def expanded(program: Program, rides: Rides = Rides.NONE, shared: bool = False, compared: bool = False) -> Program:
    """The program in the operations that passes are made of: reductions as `expand` leaves them; for backends that ride on every row, sums
    about a maximum that are made with it (`online.py`).  `shared`: elements of a vector share what they compute of neighbours; `compared`:
    keys that each row has its own of are compared one by one (`segments.py`)."""
    found = looked_up(program)
    made = laid(segmented(expand(found, dear(found, shared)), compared))
    return online(made) if rides == Rides.EVERY else made


def laid(program: Program) -> Program:
    """The program with each value's dims in the order in which tensors have them, where those agree: what a pass keeps for others lies as
    that which they read with it, and rows are gone through as they lie.  An order of keys has the dim that it is along last."""
    tensors = {t.dims for t in program.tensors} | {s.dims for s in program.stores}
    dims: dict[str, Dims] = {}
    for let in program.lets:
        name = let.expr.name
        kept = let.dims if name == "sorted" else dims[let.expr.operands[0].name] if name == "cast" else None
        dims[let.name] = lying(let.dims, tensors) if kept is None else kept
    return replace(program, lets=tuple(replace(let, dims=dims[let.name]) for let in program.lets))


def shares(program: Program) -> bool:
    """Whether less is kept in memory of a program where elements of a vector share what they compute of neighbours."""
    found = looked_up(program)
    return dear(found) != dear(found, True)


def planned(program: Program, rides: Rides = Rides.NONE, near: bool = False) -> Plan:
    """The passes of an expanded program, as few as what feeds what and the dims allow; results in place are written when all have read.
    For backends that ride, those of rows that do not stay on the chip have phases of their own where that saves a reading; `near`: passes
    over rows read neighbours along these.

    Raises `KgenError` at the operation with which the passes together have more than `MAX_OPERATIONS`.
    """
    return _Scheduler(program, rides, near).plan()


def schedule(program: Program, rides: Rides = Rides.NONE) -> Plan:
    """`planned` of a program that is expanded on the way."""
    return planned(expanded(program, rides), rides)


@dataclass(eq=False)
class _Stage:
    """A pass in the making: `nodes` are the reductions (or gathers) that it computes; `sorts` names the keys that it sorts, "" if none.

    `rank` is where it stands among all: by depth, those along a tensor's last dim, which store best, behind others of theirs.
    """

    depth: int
    rows: frozenset[str]
    inner: frozenset[str]
    rank: tuple[int, int, int]
    scan: str = ""  # which way, "forward" or "backward", if its nodes are scans
    sorts: str = ""  # which keys, if its nodes are their order
    nodes: list[Let] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)

    @property
    def key(self) -> tuple[frozenset[str], frozenset[str], str, str]:
        """What its nodes have in common."""
        return self.rows, self.inner, self.scan, self.sorts


class _Cone(NamedTuple):
    """What a value is made of down to memory: the lets, the nodes among them, and those nodes that must lie in memory.

    Each is a set of lets as the bits of an integer (bit k is the program's let k), so that a program's cones together cost about
    as much as its lets.
    """

    lets: int = 0
    nodes: int = 0
    stored: int = 0

    def joined(self, other: _Cone) -> _Cone:
        return _Cone(self.lets | other.lets, self.nodes | other.nodes, self.stored | other.stored)


def _bits(members: int) -> Iterator[int]:
    while members:
        k = (members & -members).bit_length() - 1
        yield k
        members &= members - 1


class _Scheduler:
    def __init__(self, program: Program, rides: Rides = Rides.NONE, near: bool = False):
        """`program` is expanded; its lets are counted once, and nothing is placed yet."""
        self.program, self.rides, self.near = program, rides, near
        self.more: list[Let] = []  # what `long` phases compute besides the program's own lets
        self.defs = program.by_name
        self.states = {s.state for s in program.stores if s.state}
        self.stages: list[_Stage] = []
        self.home: dict[str, _Stage] = {}  # the stage of each node
        self.at = {let.name: k for k, let in enumerate(program.lets)}
        self.cones: list[_Cone] = []  # of the first lets, as far as they are known
        self.loads = self.where(lambda let: let.expr.name == "load")
        self.gathers = self.where(_is_gathered)
        self.probes = self.where(is_probe)
        self.last_dims = {d for t in program.tensors for d in t.dims[-1:]}
        self.wide: dict[frozenset[str], int] = {}  # the lets with any of some dims
        self.spent = 0  # operations in the passes built so far
        self.sizes: dict[str, int] = {}  # the operations of each number, written out
        for let in program.lets:
            if let.is_number:
                self.sizes[let.name] = sum(self.sizes[o.name] for o in let.expr.operands) + bool(let.expr.operands)

    def where(self, holds: Callable[[Let], object]) -> int:
        return sum(1 << k for k, let in enumerate(self.program.lets) if holds(let))

    # ------------------------------------------------------------------ what feeds what

    def cone(self, name: str) -> _Cone:
        at = self.at[name]
        for k in range(len(self.cones), at + 1):
            self.cones.append(self.made_of(k))
        return self.cones[at]

    def made_of(self, k: int) -> _Cone:
        """The cone of a let whose operands' cones are known."""
        let = self.program.lets[k]
        if let.is_number:
            return _Cone()
        return _Cone(1 << k, 1 << k) if let.name in self.home else self.anew(let)

    def anew(self, let: Let) -> _Cone:
        """The cone of a let that is computed from its operands, whose cones are known."""
        found = _Cone(1 << self.at[let.name])
        for o in let.expr.operands:
            found = found.joined(self.cones[self.at[o.name]])
        for o in held(let.expr):
            if self.defs[o.name].expr.name != "load":
                found = found.joined(_Cone(stored=1 << self.at[o.name]))
        return found

    def cone_at(self, stage: _Stage | None, name: str) -> _Cone:
        """The cone of a value that a stage reads (None: a pass behind all stages): what became a node of a later one, it computes anew."""
        found = self.cone(name)
        while stage is not None and (late := [k for k in _bits(found.nodes & ~found.stored) if self.is_late(self.program.lets[k], stage)]):
            for k in late:
                found = _Cone(found.lets, found.nodes & ~(1 << k), found.stored).joined(self.anew(self.program.lets[k]))
        return found

    def is_late(self, let: Let, stage: _Stage) -> bool:
        """Whether a let is a node of a stage that comes behind another: a gather, which became one when that other stood already."""
        return let.name in self.home and self.home[let.name].rank > stage.rank

    def settle(self, let: Let, stage: _Stage) -> None:
        """Make a value a node of a stage."""
        stage.nodes.append(let)
        self.home[let.name] = stage
        del self.cones[self.at[let.name] :]

    def homes(self, nodes: int) -> Iterator[_Stage]:
        """The stages of some nodes."""
        return (self.home[self.program.lets[k].name] for k in _bits(nodes))

    def place(self, let: Let, rows: frozenset[str], inner: frozenset[str], roots: list[str], scan: str = "") -> None:
        """Put a node into the first stage of its dims behind all that feeds it; a scan feeds no other in one stage."""
        depth, sorts = 0, let.expr.operands[0].name if let.expr.name == "sorted" else ""
        for root in roots:
            cone = self.cone(root)
            for home in self.homes(cone.nodes & ~cone.stored):
                depth = max(depth, home.depth + (bool(scan) or home.key != (rows, inner, scan, sorts)))
            for home in self.homes(cone.nodes & cone.stored):
                depth = max(depth, home.depth + 1)
        for of in (self.home[o.name] for o in held(let.expr) if o.name in self.home):
            depth = max(depth, of.depth + 1)  # what it is gathered from lies in memory by then
        stage = next((s for s in self.stages if (s.depth, *s.key) == (depth, rows, inner, scan, sorts)), None)
        if stage is None:
            last = 2 if scan else int(bool(self.last_dims & inner))
            stage = _Stage(depth, rows, inner, (depth, last, len(self.stages)), scan, sorts)
            self.stages.append(stage)
        self.settle(let, stage)

    def cut(self, roots: list[str], rows: frozenset[str] | None = None, inner: frozenset[str] | None = None) -> None:
        """Keep what a pass behind others needs of them as far along as they can compute it: one value a row, not its parts."""
        others: dict[frozenset[str], list[_Stage]] = {}
        for stage in sorted(self.stages, key=lambda s: s.rank, reverse=True):
            if stage.inner and not stage.scan and (stage.rows, stage.inner) != (rows, inner):
                others.setdefault(stage.rows, []).append(stage)
        todo = [self.defs[r] for r in roots] if others else []
        seen: set[str] = set()
        while todo:
            let = todo.pop()
            if let.name in seen or let.name in self.home or let.is_number:
                continue
            seen.add(let.name)
            home = next((s for s in others.get(frozenset(let.dims), ()) if self.computes(s, self.cone(let.name))), None)
            if home is not None:
                self.settle(let, home)
            else:
                todo += [self.defs[o.name] for o in let.expr.operands]

    def computes(self, stage: _Stage, cone: _Cone) -> bool:
        """Whether a stage can go on to a value a row from what it, and stages before it, have; what a search tries its loop alone has."""
        if cone.lets & self.probes:
            return False
        homes = [(k, self.home[self.program.lets[k].name]) for k in _bits(cone.nodes)]
        here = [home is stage and not cone.stored >> k & 1 for k, home in homes]
        before = all(mine or home.rank < stage.rank for mine, (_, home) in zip(here, homes, strict=True))
        return any(here) and before and not self.spreads(cone, stage.inner)

    def spreads(self, cone: _Cone, inner: frozenset[str]) -> bool:
        """Whether any of the lets outside the nodes differs along a row; what is only gathered from does not count."""
        if inner not in self.wide:
            self.wide[inner] = self.where(lambda let: set(let.dims) & inner)
        code = cone.lets & ~cone.nodes
        differ = code & self.wide[inner]
        if not differ or not code & self.gathers:
            return bool(differ)
        lets = [self.program.lets[k] for k in _bits(code)]
        read = {o.name for x in lets for o in taken(x.expr)}
        gathered = {o.name for x in lets for o in held(x.expr)} - read
        return any(self.program.lets[k].name not in gathered for k in _bits(differ))

    def keep_gathers(self, roots: list[str], inner: frozenset[str], dims: Dims = (), every: bool = False) -> None:
        """Gathers that differ along a row get a pass of their own (one element a row), as those of what is written in place, and ranges
        of other dims than `dims`, those of the elements that are computed; `every` one, for a pass that goes along rows."""
        for root in roots:
            for k in _bits(self.cone(root).lets & self.gathers):
                let = self.program.lets[k]
                if let.name not in self.home:
                    ofs = [self.defs[o.name] for o in held(let.expr)]
                    written = any(of.expr.name == "load" and of.expr.attrs[0] in self.states for of in ofs)
                    apart = let.expr.name in ("ranged", "keyed") and set(let.dims) != set(dims)
                    if self.near and not every and inner and is_tap(let) and is_beside(let, tuple(inner), self.defs):
                        continue
                    if set(let.dims) & inner or written or apart or every:
                        self.place(let, frozenset(let.dims), frozenset(), [o.name for o in let.expr.operands])

    def keep_parts(self, roots: list[str]) -> None:
        """What a map adds up for a sum over parts (`interleaved.py`) gets a pass of its own."""
        for let in (self.defs[root] for root in roots):
            if let.name not in self.home and self.cone(let.name).lets & self.gathers:
                self.place(let, frozenset(let.dims), frozenset(), [o.name for o in let.expr.operands])

    # ------------------------------------------------------------------ stages

    def plan(self) -> Plan:
        """The passes: every reduction and gather in a stage, every store in the stage on whose way it lies or a pass of its own,
        results in place last."""
        gathered = {o.name for let in self.program.lets for o in held(let.expr)}
        parts = {b.dim for b in self.program.blocks}
        for let in self.program.lets:
            roots = [o.name for o in let.expr.operands]
            if is_reduction(let):
                inner = frozenset(let.expr.attrs)
                if inner & parts:
                    self.keep_parts(roots)
                self.cut(roots, frozenset(let.dims), inner)
                self.keep_gathers(roots, inner)
                self.place(let, frozenset(let.dims), inner, roots)
            elif is_scan(let):
                along = frozenset(let.expr.attrs[:1])
                self.cut(roots)
                self.keep_gathers(roots, frozenset(let.dims), every=True)
                self.place(let, frozenset(let.dims) - along, along, roots, "backward" if REVERSED in let.expr.attrs else "forward")
            elif let.expr.name == "sorted":
                self.place(let, frozenset(let.expr.attrs[2:]), frozenset(), roots)
            elif let.name in gathered and let.expr.name != "load":  # a gather, or what `online.py` made of a reduction
                if let.expr.name not in GATHERS:
                    self.keep_gathers([let.name], frozenset(), let.dims)
                    self.cut([let.name])
                if let.name not in self.home:
                    self.place(let, frozenset(let.dims), frozenset(), roots)
        for store in self.program.stores:
            self.keep_gathers([store.ref], frozenset(), store.dims)
        finals: list[Store] = []
        for store in sorted(self.program.stores, key=lambda s: s.state is not None):
            stage = self.fitting(store, finals)
            if stage is None:
                self.cut([store.ref])
                finals.append(store)
            else:
                stage.stores.append(store)
        self.write_last(finals)
        groups: dict[frozenset[str], list[Store]] = {}
        for store in self.program.stores:
            if store in finals:
                groups.setdefault(frozenset(store.dims), []).append(store)
        order = {s.result: k for k, s in enumerate(self.program.stores)}
        ordered: list[tuple[list[Store], _Stage | None]] = []
        for stage in sorted(self.stages, key=lambda g: g.rank):
            ordered.append((sorted(stage.stores, key=lambda s: order[s.result]), stage))
        ordered += [(stores, None) for stores in groups.values()]
        needed: set[str] = set()
        for stores, stage in ordered:
            for root in self.roots(stores, stage):
                cone = self.cone_at(stage, root)
                names = ((k, self.program.lets[k].name) for k in _bits(cone.nodes))
                needed |= {n for k, n in names if self.home[n] is not stage or cone.stored >> k & 1}
        kept = {let.name: self.workspace(let) for let in self.program.lets if let.name in needed}
        passes = [self.build(stores, stage, kept) for stores, stage in ordered]
        split = len(passes) - len(groups)
        program = replace(self.program, lets=(*self.program.lets, *self.more)) if self.more else self.program
        loads = {let.expr.attrs[0]: let for let in self.program.lets if let.expr.name == "load"}
        views = (Workspace(v.name, loads[v.name], (), v) for v in self.program.views)
        return verified(Plan(program, (*passes[:split], *_ordered(passes[split:])), (*views, *kept.values())))

    def workspace(self, let: Let) -> Workspace:
        """What a pass leaves of a value for others."""
        return Workspace(let.name, let, tuple(b for b in self.program.blocks if b.dim in let.dims))

    def roots(self, stores: list[Store], stage: _Stage | None) -> list[str]:
        nodes = stage.nodes if stage else ()
        return [s.ref for s in stores] + [o.name for n in nodes for o in n.expr.operands if not self.defs[o.name].is_number]

    def fitting(self, store: Store, finals: list[Store]) -> _Stage | None:
        """The stage on whose way a store lies: the last that has its dims and computes or follows what it needs."""
        cone = self.cone(store.ref)
        gathers = [self.program.lets[k] for k in _bits(cone.lets & self.gathers)]
        homes = [(k, self.home[self.program.lets[k].name]) for k in _bits(cone.nodes)]
        dims = frozenset(store.dims)
        found, follows = None, False
        for stage in sorted(self.stages, key=lambda g: g.rank):
            element = bool(stage.inner) and dims == stage.rows | stage.inner
            if not element and dims != stage.rows or stage.sorts:
                continue
            here = {k for k, home in homes if home is stage and not cone.stored >> k & 1}
            if any(home.rank >= stage.rank for k, home in homes if k not in here):
                continue
            if any(x.name not in self.home and (set(x.dims) & stage.inner or stage.scan) for x in gathers):
                continue
            if not element and stage.scan:
                continue
            if not element and self.spreads(cone, stage.inner):
                continue
            if not here and not cone.lets & self.loads & self.reads(self.roots(stage.stores, stage), stage):
                continue  # nothing in common: a pass of its own costs no more
            if store.state and not self.last_reader(store.state, stage, finals):
                continue
            if here or not follows:
                found, follows = stage, bool(here)
        return found

    def write_last(self, finals: list[Store]) -> None:
        """Take out of the stages what they would write in place before another store reads it, one that was placed later."""
        while early := [(g, s) for g in self.stages for s in g.stores if s.state and not self.last_reader(s.state, g, finals)]:
            stage, store = early[0]
            stage.stores.remove(store)
            self.cut([store.ref])
            finals.append(store)

    def last_reader(self, tensor: str, stage: _Stage, finals: list[Store]) -> bool:
        """Whether no pass from `stage` on reads a tensor but `stage` itself, and that where it writes: no gather reads it."""
        if any(self.loads_of(o.name, tensor) for n in stage.nodes for o in held(n.expr)):
            return False
        loads = self.where(lambda let: let.expr.name == "load" and let.expr.attrs[0] == tensor)
        later = (self.reads(self.roots(s.stores, s), s) for s in self.stages if s.rank > stage.rank)
        return not any(loads & read for read in later) and not loads & self.reads([s.ref for s in finals])

    def loads_of(self, name: str, tensor: str) -> bool:
        """Whether a value is the load of a tensor."""
        return self.defs[name].expr.name == "load" and self.defs[name].expr.attrs[0] == tensor

    def reads(self, roots: list[str], stage: _Stage | None = None) -> int:
        """What some values are made of that a stage reads, as bits."""
        found = 0
        for root in roots:
            found |= self.cone_at(stage, root).lets
        return found

    # ------------------------------------------------------------------ passes

    def spend(self, lets: Sequence[Let]) -> None:
        """Count the operations of a pass, or of one phase of it, against the budget."""
        self.spent += sum(let.expr.name in ROWS for let in lets)
        if self.spent > MAX_OPERATIONS:
            raise too_long(self.program, lets[-1].span, "with those that each reading of a row computes anew")

    def build(self, stores: list[Store], stage: _Stage | None, kept: dict[str, Workspace]) -> Pass:
        """The pass of a stage (None: of stores alone): what it loads, among that what earlier passes `kept`, computes and writes."""
        own = {n.name for n in stage.nodes} if stage else set()
        writes = [*stores, *(Store(n, n, self.defs[n].tensor_dtype, self.defs[n].dims, None) for n in own if n in kept)]
        writes[len(stores) :] = sorted(writes[len(stores) :], key=lambda s: int(s.ref[1:]))
        lets = []
        for let in self.program.lets:
            if let.name in kept and let.name not in own and not (stage and self.is_late(let, stage)):
                let = replace(let, expr=leaf("load", let.name))
            lets.append(let)
        lets = list(live(lets, writes))
        defs = {let.name: let for let in lets}
        values = tuple(let for let in lets if not let.is_number)
        loaded = {let.expr.attrs[0] for let in values if let.expr.name == "load"}
        tensors = [t for t in self.program.tensors if t.name in loaded]
        tensors += [Tensor(w.name, w.let.tensor_dtype, w.dims) for w in kept.values() if w.name in loaded]
        scalars = self.scalars(values, defs)
        indices = [let.expr.attrs[0] for let in values if let.expr.name == "index"]
        indices += [m.counts for let in values if is_tap(let) for m in taps_of(let)]
        common = (tuple(tensors), tuple(dict.fromkeys(indices)), tuple(scalars), values, tuple(writes))
        if stage is not None and stage.sorts:
            _, along, over = stage.nodes[0].expr.attrs
            rows = tuple(d for d in self.defs[stage.sorts].dims if d != along)
            return Sort((*rows, along, over), tuple(tensors), values, tuple(writes))
        if stage is None and not any(let.expr.name in GATHERS for let in values):
            self.spend(values)
            return Map(stores[0].dims, *common)
        if stage is not None and stage.inner:
            node = next(n for n in stage.nodes)
            if stage.scan:
                return self.scan(stage, common)
            rows, inner = node.dims, self.along(stage)
        else:
            rows, inner = stores[0].dims if stage is None or stores else stage.nodes[0].dims, ()
        if not inner and not any(let.expr.name in GATHERS for let in values):
            self.spend(values)
            return Map(rows, *common)
        phases = phases_of(frozenset(inner), values, tuple(writes), defs, self.spend)
        made = Reduce(rows, inner, *common, phases)
        return self.long(made, lets) if self.rides and inner else made

    def scan(self, stage: _Stage, common: Any) -> Scan:
        """The pass of a stage of scans: what each is made of, then what follows from them."""
        tensors, indices, scalars, lets, writes = common
        own = tuple(let for let in lets if let in stage.nodes)
        made = {let.name for let in own}

        def code(roots: set[str], stops: set[str]) -> tuple[Let, ...]:
            needed = set(roots)
            for let in reversed(lets):
                if let.name in needed and let.name not in stops:
                    needed.update(o.name for o in let.expr.operands)
            found = tuple(let for let in lets if let.name in needed and let.name not in stops)
            self.spend(found)
            return found

        first = code({o.name for let in own for o in let.expr.operands}, set())
        phases = Phase(True, first, (), own), Phase(True, code({s.ref for s in writes}, made), (), (), writes)
        node = stage.nodes[0]
        rows = tuple(d for d in node.dims if d not in stage.inner)
        return Scan(rows, node.expr.attrs[:1], tensors, indices, scalars, lets, writes, phases, backwards=stage.scan == "backward")

    def long(self, p: Reduce, lets: Sequence[Let]) -> Reduce:
        """A pass with phases of their own for rows that do not stay on the chip, where sums made in the reading of their peak save one:
        each byte is read once less, and about as much is computed.  `lets` are the pass's, numbers among them."""
        numbered = (*self.program.lets, *self.more)  # taps leave gaps in their numbers
        every, new = at_once(lets, self.rides, 1 + max(int(let.name[1:]) for let in numbered))
        every = list(live(every, p.stores))
        values = tuple(let for let in every if not let.is_number)
        defs = {let.name: let for let in every}
        phases = phases_of(frozenset(p.inner), values, p.stores, defs, lambda made: None)
        made = replace(p, long=phases)
        if made.long_readings >= p.readings:
            return p
        self.more += [let for let in new if let.name in defs]
        known = {s.let.name for s in p.scalars}
        return replace(made, scalars=(*p.scalars, *(s for s in self.scalars(every, defs) if s.let.name not in known)))

    def scalars(self, lets: Sequence[Let], defs: dict[str, Let]) -> list[Scalar]:
        """The numbers, other than literals, that some lets take as values."""
        made = []
        for let in lets:
            if let.expr.name == "cast" and (number := defs[let.expr.operands[0].name]).is_number and number.expr.name != "lit":
                if self.sizes.get(number.name, 0) > MAX_NUMBER:
                    message = f"a number here takes more than {MAX_NUMBER} operations of numbers alone"
                    raise TooLong(Diagnostic(message, let.span, help="pass it as a parameter"), self.program.source)
                made.append(Scalar(let, number))
        return made

    def along(self, stage: _Stage) -> Dims:
        """The reduced dims in the order in which an operand has them."""
        dims = self.defs[stage.nodes[0].expr.operands[0].name].dims
        return tuple(d for d in dims if d in stage.inner)


def _is_gathered(let: Let) -> bool:
    """Whether a value is an element of its first operand at another place."""
    return let.expr.name in GATHERS or is_tap(let)


def _ordered(passes: list[Pass]) -> list[Pass]:
    """The passes, each behind those that read what it writes in place: every pass finds the parameters as the call gave them.

    There is always such an order: what a pass reads has no dims but its own, so two passes that read each other's
    parameters would have the same dims, and be one.
    """

    def overwrites(p: Pass, other: Pass) -> bool:
        states = {store.state for store in p.stores}
        return other is not p and any(t.name in states for t in other.loads)

    ordered: list[Pass] = []
    while passes:
        ready = next(p for p in passes if not any(overwrites(p, other) for other in passes))
        ordered.append(ready)
        passes = [p for p in passes if p is not ready]
    return ordered
