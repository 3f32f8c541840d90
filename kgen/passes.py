"""The kinds of passes over memory that a program is scheduled into (`schedule.py`), and a plan of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from kgen.ir import GATHERS, Blocks, Broken, Let, Program, Store, Tensor, View
from kgen.phases import Phase
from kgen.types import ELLIPSIS, Dims


@dataclass(frozen=True)
class Scalar:
    """A number that a pass takes as an argument, rounded to the dtype it is used in (`let` is that cast)."""

    let: Let
    number: Let


@dataclass(frozen=True)
class Workspace:
    """What one pass leaves for a later one: the value `let`, in memory, dense in the order of its dims, of which some may be `blocks`.
    A `view` is no pass's: it is there from the beginning, a parameter in other dims."""

    name: str
    let: Let
    blocks: tuple[Blocks, ...] = ()
    view: View | None = None

    @property
    def dims(self) -> Dims:
        return self.let.dims

    def dtype(self, binding: dict[str, str]) -> str:
        """Its dtype for dtype variables bound by name (`{"T": "bf16"}`)."""
        if self.let.generic.startswith("="):
            return binding[self.let.generic[1:]]
        if self.let.generic:
            return "f64" if any(binding[v] == "f64" for v in self.let.generic.split("+")) else "f32"
        return self.let.tensor_dtype.name


@dataclass(frozen=True)
class Map:
    """A pass over `dims`: loads, indices and scalars in, straight-line `lets`, stores out."""

    dims: Dims
    loads: tuple[Tensor, ...]
    indices: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    lets: tuple[Let, ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class Reduce:
    """A pass over the rows of `dims`: `rows` are the dims that stay, `inner` those that are reduced (none where every row is one
    element).  `phases` alternate: a row's values from before, the first reading, the values that follow from it, the
    second reading, and so on; the last reading, if there is one, stores elements.  `long` are those of a row that does not stay on the
    chip, where fewer readings will do there (none: the same).  Where the last reading accumulates columns, `finish` is what follows
    from them, once an element of a row.  `pieces` are passes over pieces of each row, one after the other behind its readings: their rows
    are this one's with a dim along each, and they take of its values.
    """

    rows: Dims
    inner: Dims
    loads: tuple[Tensor, ...]
    indices: tuple[str, ...]
    scalars: tuple[Scalar, ...]
    lets: tuple[Let, ...]
    stores: tuple[Store, ...]
    phases: tuple[Phase, ...]
    long: tuple[Phase, ...] = ()
    finish: Phase | None = None
    pieces: tuple[Reduce, ...] = ()

    @property
    def dims(self) -> Dims:
        return (*self.rows, *self.inner)

    @property
    def readings(self) -> int:
        """How often a row is gone through: each time feeds the next."""
        return sum(1 for p in self.phases if p.element)

    @property
    def long_readings(self) -> int:
        """The same, of a row that does not stay on the chip."""
        return sum(1 for p in self.long or self.phases if p.element)

    @property
    def columns(self) -> tuple[Let, ...]:
        """What is accumulated over all rows."""
        return self.phases[-1].columns if self.finish else ()

    @property
    def gathers(self) -> tuple[Let, ...]:
        return tuple(let for let in self.lets if let.expr.name in GATHERS)

    def is_row(self, dims: Dims) -> bool:
        """Whether a value of these dims is the same all along a row."""
        return not set(dims) & set(self.inner)

    def aside(self, defs: Mapping[str, Let]) -> str:
        """What rows that lie side by side along the last of their dims share, where all that it computes are elements: "ranges" that are
        summed, else "places" that are looked up; "" if neither is there and the same for all of them.  `defs` are the program's lets by
        name."""
        if self.inner or len(self.phases) != 1 or self.phases[0].reductions or self.rows[-1:] in ((), (ELLIPSIS,)):
            return ""
        ranged = [let for let in self.gathers if let.expr.name == "ranged"]
        asked = ranged or self.gathers
        if any(self.rows[-1] in defs[o.name].dims for let in asked for o in let.expr.operands[1:]):
            return ""
        if not ranged:
            moves = any(self.rows[-1] in defs[let.expr.operands[0].name].dims for let in asked)
            return "places" if moves and all(let.expr.name == "gather" for let in asked) else ""
        sums = all(let.expr.attrs[0] == "sum" and len(let.expr.operands) < 5 for let in ranged)
        return "ranges" if sums and all(let.expr.name != "keyed" for let in self.gathers) else ""


@dataclass(frozen=True)
class Scan(Reduce):
    """A pass over rows of one dim that goes along each, `backwards` from its last element.  Its `phases` are two, of elements both: what
    is scanned, and what follows from that, which is stored; between them stands the row up to there."""

    backwards: bool = False

    @property
    def readings(self) -> int:
        return 1


@dataclass(frozen=True)
class Sort:
    """A pass that brings the positions along a dim into the order of their keys: `dims` are the sorted dim and that of the keys, behind
    those of the rows where each has keys of its own, `loads` the keys, `lets` what of it is written: the order, where each key begins in
    it, where it ends; of each row's own keys the order, and the keys in it."""

    dims: Dims
    loads: tuple[Tensor, ...]
    lets: tuple[Let, ...]
    stores: tuple[Store, ...]
    indices: tuple[str, ...] = ()
    scalars: tuple[Scalar, ...] = ()

    @property
    def rows(self) -> Dims:
        """The dims of rows that have keys of their own."""
        return self.dims[:-2]

    @property
    def key(self) -> Let:
        """The keys."""
        return next(let for let in self.lets if let.expr.name == "load")


Pass = Map | Reduce | Sort


@dataclass(frozen=True)
class Plan:
    """A program's passes in order, and what they leave for one another."""

    program: Program
    passes: tuple[Pass, ...]
    workspaces: tuple[Workspace, ...] = ()


def elements(p: Pass) -> list[Let]:
    """The lets that a pass computes for each of its elements, those of several readings several times."""
    if not isinstance(p, Reduce):
        return [let for let in p.lets if let.dims]
    return [let for own in (p, *p.pieces) for f in own.phases if f.element for let in f.lets]


#: What of a plan holds lets, in its fields.
HOLDERS = (Plan, Program, Map, Reduce, Sort, Phase, Workspace)


def of_lets(plan: Plan, made: Callable[[Let], Let]) -> Plan:
    """The same plan of other lets, wherever it holds some."""

    def of(x: Any) -> Any:
        if isinstance(x, Let):
            return made(x)
        if isinstance(x, HOLDERS):
            return replace(x, **{f.name: of(getattr(x, f.name)) for f in fields(x)})
        return tuple(map(of, x)) if type(x) is tuple else x

    return cast(Plan, of(plan))


def lets_of(x: object) -> Iterator[Let]:
    """The lets that a plan holds, or a part of one."""
    if isinstance(x, Let):
        yield x
    elif isinstance(x, (tuple, *HOLDERS)):
        for y in x if isinstance(x, tuple) else (getattr(x, f.name) for f in fields(x)):
            yield from lets_of(y)


def verified(plan: Plan) -> Plan:
    """A plan whose passes read of one another only what earlier ones have written, and compute each operator in the form that it has in
    the program; else `Broken`, a bug of kgen's."""
    unwritten = {w.name for w in plan.workspaces if w.view is None}
    defs = plan.program.by_name
    for k, p in enumerate(plan.passes):
        for let in lets_of(p):
            own = defs.get(let.name)  # another expression by that name reads what an earlier pass has computed
            if let.form != (own.form if own and own.expr == let.expr else None):
                raise Broken(f"pass {k} has {let} in a form that is another's")
        if early := unwritten & {t.name for t in p.loads}:
            raise Broken(f"pass {k} reads {', '.join(sorted(early))}, which no pass before it writes")
        unwritten -= {s.result for s in p.stores}
    return plan
