"""What the templates see: a pass's tensors, numbers and code in the target's spelling, and the names that are free there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kgen.backends.text import Text, source
from kgen.taps import Move
from kgen.types import DTYPES, ELLIPSIS, Dims, DType

NOTHING = Text()

#: The dtypes that numbers of the host have, by kind.
NUMBERS = {kind: DTYPES[name] for kind, name in (("float", "f64"), ("int", "i64"), ("bool", "bool"))}


@dataclass(frozen=True)
class Statement:
    """A line of straight-line code: `names` are made as `value`, of a type where the target declares one; without names the value is
    done for what it does.  `note` is the equation that it begins; a statement of a note alone has no line: its value stands elsewhere."""

    names: tuple[str, ...] = ()
    type: str = ""
    value: Text = NOTHING
    note: str = ""
    sign: str = "="

    def __str__(self) -> str:
        line = f"{', '.join(self.names)} {self.sign} {self.value}" if self.names else self.value
        return "  # ".join(filter(None, (line, self.note)))

    @property
    def uses(self) -> frozenset[str]:
        """The names that it reads: of values, and of its own and other types."""
        return self.value.uses | {self.type} if self.type else self.value.uses


def fresh(statements: Iterable[Statement], before: set[Statement]) -> list[Statement]:
    """The statements that are not among those `before`, and notes that are none of theirs; all of them are added to these."""
    made = []
    for s in statements:
        code, note = replace(s, note=""), Statement(note=s.note)
        made.append(replace(Statement() if code in before else code, note="" if note in before else s.note))
        before |= {code, note}
    return made


@dataclass(frozen=True)
class Tensor:
    """A tensor argument of a pass as the templates see it: `name` in the target's spelling, `spec_name` as declared,
    `type` its element's, `compute` that of its value, `axes` where its dims lie among the pass's (`order` if permuted)."""

    name: str
    spec_name: str
    type: str
    compute: str
    dims: Dims
    dtype: str
    state: bool = False
    value: Text = NOTHING
    pair: str = ""  # of a result that is stored as codes, two at a time: the function of two values that makes them


@dataclass(frozen=True)
class Argument:
    """A number argument: of the kernel (`float`, `int`), a dim's size, or one computed from those before the launch."""

    name: str
    spec_name: str
    type: str
    kind: str
    default: str | None = None
    text: Text = NOTHING
    note: str = ""
    number: DType | None = None  # the dtype of `text`, before it is rounded to `kind`


@dataclass(frozen=True)
class Tap:
    """A neighbour's element of `tensor` that a map reads: so far along some dims, by moves (`kgen.taps`), whose `numbers` are texts
    here; `fill` where that is outside."""

    name: str
    tensor: Tensor
    by: tuple[Move, ...]
    fill: Text

    @property
    def compute(self) -> str:
        return self.tensor.compute


@dataclass(frozen=True)
class Beside:
    """A neighbour along a row that a reading takes: the element of `tensor` that lies `by` further on along a dim; or it `asks` whether
    there is one."""

    name: str
    tensor: Tensor
    dim: str
    by: int
    asks: bool = False


@dataclass(frozen=True)
class Reach:
    """What windows over `tensor` along `dim` need: the names of its stride along it and of the dim's size."""

    tensor: Tensor
    dim: str
    stride: str
    size: str


def reaches_of(taps: Iterable[Tap], fresh: Callable[[str], str]) -> tuple[Reach, ...]:
    """What windows among taps need, each once; `fresh` makes names free."""
    found = dict.fromkeys((t.tensor, m.dim) for t in taps for m in t.by if m.along)
    sizes = {dim: fresh(f"size_{dim}") for dim in dict.fromkeys(dim for _, dim in found)}
    return tuple(Reach(t, dim, fresh(f"{t.name}_{dim}_stride"), sizes[dim]) for t, dim in found)


@dataclass(frozen=True)
class Words:
    """Random words of neighbours, by the texts of their seed, their offset and the position of a row's first element, of a map the name of
    the position itself; of an element's own `keeps` says which bits stay, and `sets` which are set."""

    name: str
    seed: Text
    offset: Text
    before: Text
    keeps: int = -1
    sets: int = 0

    def value(self, type_name: str) -> Text:
        """A word as the code reads it, in its type."""
        return source("{0}({1})", type_name, self.name)

    @property
    def bits(self) -> str:
        """The template arguments for these, where they are others than an element's own."""
        return "" if self.keeps == -1 and not self.sets else f", {self.keeps}, {self.sets}"


@dataclass(frozen=True)
class Unit:
    """One pass, ready for a template."""

    name: str
    element: str
    dims: Dims
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    scalars: tuple[Argument, ...]
    lines: tuple[Statement, ...]
    variables: tuple[str, ...] = ()  # the dtype variables of its tensors, as named in the source
    bindings: tuple[tuple[tuple[str, str], ...], ...] = ()  # each choice of them: (variable, dtype)
    numbers: tuple[Argument, ...] = ()  # the kernel's numbers and sizes that its scalars are made of
    dtype_variables: tuple[str, ...] = ()  # as the spec names them
    taps: tuple[Tap, ...] = ()
    aside: frozenset[str] = frozenset()  # the inputs and indices that taps alone need
    words: tuple[Words, ...] = ()  # of neighbours in a stream, where the target draws these by vectors
    within: frozenset[str] = frozenset()  # the inputs, indices and scalars that only those read
    reaches: tuple[Reach, ...] = ()  # what windows among the taps need

    @property
    def extents(self) -> tuple[str, ...]:
        """The names of the numbers that its windows need: strides, then sizes, each once."""
        return (*(r.stride for r in self.reaches), *dict.fromkeys(r.size for r in self.reaches))

    def reach(self, tensor: Tensor, dim: str) -> Reach:
        """What windows over a tensor along a dim need."""
        return next(r for r in self.reaches if (r.tensor, r.dim) == (tensor, dim))

    @property
    def read(self) -> tuple[Tensor, ...]:
        """The inputs that an element is read of at its own place."""
        return tuple(t for t in self.inputs if t.name not in self.aside)

    @property
    def indexed(self) -> tuple[Tensor, ...]:
        """The indices that its code reads."""
        return tuple(t for t in self.indices if t.name not in self.aside)

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(d for d in self.dims if d != ELLIPSIS)

    @property
    def single(self) -> bool:
        """Whether its element function returns its one result."""
        return len(self.outputs) == 1

    @property
    def uses(self) -> frozenset[str]:
        """The names that its code reads."""
        types = frozenset((*(t.compute for t in (*self.inputs, *self.outputs)), *(s.type for s in self.scalars)))
        return types.union(*(s.uses for s in self.lines), *(o.value.uses for o in self.outputs))

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions that its code calls, in their order."""
        return tuple(c for text in (*(s.value for s in self.lines), *(o.value for o in self.outputs)) for c in text.calls)


@dataclass(frozen=True)
class Accumulator:
    """A reduction of a reading: `name` is the row's value that it ends as, `type` and `dtype` what it is accumulated in, `value` the
    element's contribution; for argmax and argmin `value` (of `value_type`) competes and `place` is its position, for what rides on a
    peak `peak` is that one's name, and `weights` are those of the element."""

    name: str
    kind: str
    type: str
    dtype: DType
    value: Text
    value_type: str = ""
    value_dtype: DType | None = None
    place: Text = NOTHING
    peak: str = ""
    weights: tuple[Text, ...] = ()
    factors: tuple[Text, ...] = ()  # of a sum: what `value` is the product of, if it is one
    exclusive: bool = False  # of a scan: whether an element's own share is not in what it ends as
    magnitude: bool = False  # of a maximum: whether `value` is the magnitude of an operand as it lies in memory
    when: Text = NOTHING  # where it is not read in every call: the number that says whether
    only: Text = NOTHING  # of a sum over rows: the condition under which an element adds to it, if there is one
    share: Text = NOTHING  # and what it adds then
    at: Text = NOTHING  # and the one position along a row at which that can hold, if there is one (`kgen.backends.picks`)


#: How a kernel knows that blocks share a row, and wait for one another.
WAITS = "Walk::CLUSTERS"


@dataclass(frozen=True)
class Given:
    """A row's value: its name, type, and (where it is made) text."""

    name: str
    type: str
    text: Text = NOTHING
    split: str = ""  # where elements are divided by it: whether by parts of its inverse, as a kernel knows it ("": not; `kgen.precision`)


#: What a gather is `ranged` by that is the order of a range.
ORDER = "order"


@dataclass(frozen=True)
class Gather:
    """One element of `tensor` along `dim`, at an index: the code calls `name(index)`, which a template defines.

    `tensor.dims` has `dim` among its dims; along the others the row's place holds.  `size` and `stride` are the names of
    the dim's size (a number of the kernel) and the tensor's stride along it, `extent` a free name for the size.
    """

    name: str
    tensor: Tensor
    dim: str
    size: str
    stride: str
    extent: str = ""
    ranged: str = ""  # the reduction of what stands in a range, if it is one; ORDER of an order that one goes through: they lie inside
    order: Gather | None = None  # where the range's terms stand, if it is one of an order
    within: tuple[Gather, ...] = ()  # where each term's own range begins and ends, if it is asked for a position
    asked: Gather | None = None  # what stands beside each term, if that is to be a value, or (not `same`) to be none
    same: bool = True
    keyed: bool = False  # whether a key selects what is reduced: `within` are a row's keys in their order, and that order


@dataclass(frozen=True)
class Search:
    """The loop that a reading is in, where that is a search's (`kgen/selection.py`): it sets `probe` before each step, which adds up
    `total`; where that reaches `amount` the step's bit stays.  `found` is the last probe that reached.  `key` is the type whose values
    are tried, in their order, "" where they are places; `dtype` that of the probe.  `rank` and `bit` are free names for the bits that
    have stayed, and for the step's.
    """

    probe: Given
    total: Given
    amount: Given
    found: Given
    key: str
    dtype: DType
    rank: str
    bit: str

    @property
    def is_place(self) -> bool:
        return not self.key


@dataclass(frozen=True)
class Repeated:
    """A value of an element that several readings would make anew of random words: its code takes `inputs`, `indices`, `words` and `others`
    of its kind by name, and makes `value`."""

    name: str
    type: str
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    words: tuple[Words, ...]
    lines: tuple[Statement, ...]
    value: Text
    others: tuple[Repeated, ...] = ()
    divisors: tuple[Given, ...] = ()  # what it is divided by first, of a row's values
    room: bool = False  # whether it may have a place of its own in shared memory

    @property
    def texts(self) -> tuple[Text, ...]:
        """What it makes, and what of the row it takes."""
        of_row = (*(g.text for g in self.divisors), *(x for w in self.words for x in (w.seed, w.offset, w.before)))
        return (*(s.value for s in self.lines), self.value, *of_row)


@dataclass(frozen=True)
class Made:
    """A value of an element that from one reading on takes the place of the first of `inputs`, in which it is stored (`type`), where rows
    stay on the chip: `value` is what `lines` make of an element of these."""

    name: str
    type: str
    compute: str
    inputs: tuple[Tensor, ...]
    lines: tuple[Statement, ...]
    value: Text
    divisors: tuple[Given, ...] = ()  # what it is divided by first, of a row's values


@dataclass(frozen=True)
class Code:
    """A phase of a pass over rows as straight-line source: `lines` run once an element, or once a row.

    The names of `inputs` and `indices`, of the row's values in `takes` and of the unit's scalars are in scope, as what they
    are computed in; so are those of what the lines make.  `gives` are a row phase's values for later phases,
    `accumulators` what an element phase contributes to along its row, `columns` over all rows, `outputs` what is stored, each with its
    text.
    """

    element: bool
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    gathers: tuple[Gather, ...]
    takes: tuple[Given, ...]
    lines: tuple[Statement, ...]
    gives: tuple[Given, ...]
    accumulators: tuple[Accumulator, ...]
    outputs: tuple[Tensor, ...]
    keeps: tuple[Given, ...] = ()  # costly values of an element that a later reading has lines for too
    repeats: tuple[Given, ...] = ()  # those of an earlier reading
    columns: tuple[Accumulator, ...] = ()
    search: Search | None = None  # the one that its reading is for
    words: tuple[Words, ...] = ()  # of neighbours along the row, where the target draws these by vectors
    drawn: tuple[Repeated, ...] = ()  # what is made of such words for several readings
    within: frozenset[str] = frozenset()  # the inputs and indices that only those take
    makes: Made | None = None  # what takes an operand's place in it, one of its `inputs` here and in the readings that follow
    near: tuple[Beside, ...] = ()  # the neighbours along the row that it reads
    divisors: tuple[Given, ...] = ()  # what elements are divided by, made of a row's value: of `type` what these have the digits of

    @property
    def repeated(self) -> tuple[Repeated, ...]:
        """`drawn`, and before each what it is made of."""
        return tuple(dict.fromkeys(m for own in self.drawn for m in (*own.others, own)))

    @property
    def divided(self) -> tuple[Given, ...]:
        """`divisors`, and those of what takes an operand's place and of what is made once."""
        return (*self.divisors, *(self.makes.divisors if self.makes else ()), *(g for m in self.repeated for g in m.divisors))

    @property
    def made(self) -> tuple[Text, ...]:
        """What it makes, in its order."""
        shares = (text for a in (*self.accumulators, *self.columns) for text in (a.value, a.place, *a.weights))
        own = [*(s.value for s in self.makes.lines), self.makes.value] if self.makes else []
        own += [g.text for g in self.divided] + [x for w in self.words for x in (w.seed, w.offset, w.before)]
        own += [x for m in self.repeated for x in m.texts]
        return (*own, *(s.value for s in self.lines), *(g.text for g in self.gives), *(o.value for o in self.outputs), *shares)

    @property
    def uses(self) -> frozenset[str]:
        """The names that its code reads."""
        types = frozenset((*(t.compute for t in (*self.inputs, *self.outputs)), *(g.type for g in (*self.takes, *self.gives))))
        types |= {b.tensor.compute for b in self.near}
        types |= {t for a in (*self.accumulators, *self.columns) for t in (a.type, a.value_type)} | {m.type for m in self.repeated}
        types = types.union(*(s.uses for m in self.repeated for s in m.lines))
        types |= {x for g in self.divided for x in (g.type, *g.text.uses)}
        if (m := self.makes) is not None:
            types |= {m.type, *(t.compute for t in m.inputs), *(s.type for s in m.lines)}
        if (s := self.search) is not None:
            types |= {s.key, *(x for g in (s.probe, s.total, s.found) for x in (g.name, g.type)), s.rank, s.bit, *s.amount.text.uses} - {""}
        return types.union(*(s.uses for s in self.lines), *(text.uses for text in self.made))


@dataclass(frozen=True)
class Piece:
    """What is done with each piece of a row, `size` elements `step` apart, behind the row's readings: `codes` alternate as a row's do.  The
    pieces are counted along `dim`."""

    dim: str
    size: int
    step: int
    codes: tuple[Code, ...]


@dataclass(frozen=True)
class RowUnit:
    """One pass over rows, ready for a template.  Of the tensors, those without an inner dim have one element a row.  `long` is the code of
    rows that do not stay on the chip, where it is another; `finish` what follows from sums over all rows, once an element of a row;
    `pieces` and `long_pieces` are what stands behind each of the two; `instructions` what an element takes."""

    name: str
    rows: Dims
    inner: Dims
    inputs: tuple[Tensor, ...]
    indices: tuple[Tensor, ...]
    gathers: tuple[Gather, ...]
    outputs: tuple[Tensor, ...]
    scalars: tuple[Argument, ...]
    codes: tuple[Code, ...]
    variables: tuple[str, ...] = ()
    bindings: tuple[tuple[tuple[str, str], ...], ...] = ()
    numbers: tuple[Argument, ...] = ()
    dtype_variables: tuple[str, ...] = ()
    long: tuple[Code, ...] = ()
    finish: Code | None = None
    aside: str = ""  # what rows side by side, along the last of their dims, share: "ranges" that are summed, or "places"
    pieces: tuple[Piece, ...] = ()
    long_pieces: tuple[Piece, ...] = ()
    instructions: int = 0

    @property
    def every(self) -> tuple[Code, ...]:
        """All of its code."""
        pieces = (c for piece in (*self.pieces, *self.long_pieces) for c in piece.codes)
        return (*self.codes, *self.long, *pieces, *((self.finish,) if self.finish else ()))

    @property
    def near(self) -> tuple[Beside, ...]:
        """The neighbours along a row that it reads."""
        return tuple(dict.fromkeys(b for c in self.every for b in c.near))

    @property
    def on_the_way(self) -> bool:
        """Whether a reading of neighbours that reduces stores elements too."""
        return any(c.near and c.accumulators and c.outputs for c in self.codes)

    @property
    def columns(self) -> tuple[Accumulator, ...]:
        """What it accumulates over all rows."""
        return tuple(a for c in self.codes for a in c.columns)

    @property
    def dims(self) -> Dims:
        return (*self.rows, *self.inner)

    @property
    def uses(self) -> frozenset[str]:
        """The names that its code reads."""
        return frozenset[str]().union(*(c.uses for c in self.every))

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions that its code calls, in their order."""
        return tuple(c for code in self.every for text in code.made for c in text.calls)

    def is_row(self, t: Tensor) -> bool:
        """Whether a tensor has one element a row."""
        return not set(t.dims) & set(self.inner)

    def piece_dim(self, t: Tensor) -> str:
        """The dim along which a tensor has one element for each piece of a row; "" of others."""
        along = {*t.dims} & {*self.inner}
        return next((p.dim for p in self.pieces if along == {p.dim}), "")


@dataclass(frozen=True)
class ScanUnit(RowUnit):
    """One pass along rows: its two codes are what is scanned (`accumulators`) and what follows, `backwards` from the last element."""

    backwards: bool = False

    @property
    def scanned(self) -> Code:
        return self.codes[0]

    @property
    def stored(self) -> Code:
        return self.codes[1]
