"""Static sources: a kernel for dims and dtypes that are known, as the one variant that they take.

In: a checked kernel, the sizes of its named dims, a dtype for each variable.  Out: what a target's static templates see.  The
schedule is the planner's of the same program, in which dtypes and sizes are written out; statements are printed as elsewhere.
Tensors are contiguous, so that where an element lies follows from its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from kgen import pipeline
from kgen.backends.base import Backend, Render
from kgen.backends.names import OPEN
from kgen.backends.sorts import SortUnit
from kgen.backends.text import Text, joined, source
from kgen.backends.units import Accumulator, Argument, Code, RowUnit, Statement, Tensor, Unit
from kgen.check import Kernel
from kgen.errors import KgenError, printed
from kgen.ir import Let
from kgen.monoids import MONOIDS, Rides
from kgen.ops import CALL, PRODUCT, SUM, tree_depth
from kgen.passes import Map, Plan, Reduce
from kgen.searches import SEARCHES
from kgen.sized import Unsized, names, resolve
from kgen.specialise import bound
from kgen.types import ELLIPSIS, VARIABLE, Dims, is_literal
from kgen.typeset import format_expr

#: The most elements that a tensor's named dims may have: places within them, and a step beyond, are 32-bit integers.
MAX_ELEMENTS = 2**30


@dataclass(frozen=True)
class Known:
    """What is known of a kernel's calls: the size of each named dim, the dtype of each variable."""

    sizes: Mapping[str, int]
    dtypes: Mapping[str, str]

    @property
    def named(self) -> Mapping[str, int]:
        """The sizes of the dims with names: a literal is its own."""
        return {d: n for d, n in self.sizes.items() if not is_literal(d)}

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in (*self.dtypes.items(), *self.named.items()))


def named_dims(kernel: Kernel) -> tuple[str, ...]:
    """The named dims of a kernel's tensors, in order of appearance."""
    return tuple(dict.fromkeys(d for _, dims in tensors(kernel) for d in dims if d != ELLIPSIS and not is_literal(d)))


def tensors(kernel: Kernel) -> list[tuple[str, Dims]]:
    """A kernel's tensors with their dims: parameters, then results."""
    return [(p.name, p.dims or ()) for p in kernel.params if p.is_tensor] + [(r.name, r.dims) for r in kernel.results]


def known(kernel: Kernel, sizes: Mapping[str, int], dtypes: Mapping[str, Sequence[str]]) -> Known:
    """What a static source is for.  Raises `KgenError` where a dim is unknown, missing or of no use, or a variable has not one dtype."""
    dims = named_dims(kernel)
    if made := [p for p in kernel.params if not p.is_tensor and any(p.name in names(c.value) for c in kernel.clauses)]:
        raise refused(kernel, f"sizes depend on {made[0].name}, a number of the call")
    sizes = _follow(kernel, sizes)
    has = f"{kernel.name} has {'the dims ' + ', '.join(dims) if dims else 'no named dims'}"
    for name in sizes:
        if name not in dims:
            raise KgenError(f"--static: {kernel.name} has no dim {printed(name, '')}", help=has)
    if missing := [d for d in dims if d not in sizes]:
        follows = {c.name.name for c in kernel.clauses}
        missing = [d for d in missing if d not in follows] or missing
        asked = ",".join(f"{d}={sizes.get(d, '...')}" for d in dims if d not in follows)
        raise KgenError(f"--static lacks the size of {', '.join(missing)}", help=f"give every dim: --static {asked}")
    for name, size in sizes.items():
        if size < 1:
            raise KgenError(f"--static: {name} = {size} is no size of a dim", help="a static kernel's dims have 1 element or more")
    dims = tuple(dict.fromkeys((*dims, *(literal := kernel.literals))))
    sizes = {**sizes, **literal}
    for name, of in tensors(kernel):
        if prod(sizes[d] for d in of if d != ELLIPSIS) > MAX_ELEMENTS:
            message = f"--static: {name} has more than {MAX_ELEMENTS:,} elements along its named dims"
            raise KgenError(message, help="compile without --static")
    chosen = {}
    for v in kernel.variables:
        given = tuple(dtypes.get(v, ()))
        if len(given) != 1:
            said = f"{len(given)} dtypes" if given else "no dtype"
            others = ", ".join(d.name for d in VARIABLE if d.name != "bf16")
            raise KgenError(f"--static takes one dtype for {v}, and has {said}", help=f"choose it: --dtype {v}=bf16 (or {others})")
        chosen[v] = given[0]
    return Known({d: sizes[d] for d in dims}, chosen)


def _follow(kernel: Kernel, sizes: Mapping[str, int]) -> Mapping[str, int]:
    """Sizes, and those that follow from them.  Raises `KgenError` where one does not fit."""
    found = dict(sizes)
    try:
        resolve(kernel.clauses, found, format_expr)
    except Unsized as error:
        raise KgenError(f"--static: {error}", help=kernel.signature()) from None
    used = {*named_dims(kernel), *sizes}
    return {d: n for d, n in found.items() if d in used}


class StaticRender(Render):
    """One kernel for one target, of known sizes and dtypes."""

    splits = False

    def __init__(self, backend: Backend, kernel: Kernel, known: Known, references: bool = False):
        """`references` tells whether several results of a map are references that its function is given."""
        self.known, self.has_references = known, references
        kernel = replace(kernel, compared=True)  # of known sizes what keys select is gone through: nothing sorts
        super().__init__(backend, bound(kernel, known.dtypes) if known.dtypes else kernel)
        self.global_names.given[ELLIPSIS] = f"{OPEN}{'rows' if known.sizes else 'n'}"  # how many elements the leading dims have
        self.count = self.global_names.user(ELLIPSIS)

    def planned(self) -> Plan:
        rides = self.backend.rides if self.backend.rides != Rides.LONG else Rides.NONE  # the code is one, for rows of one length
        if any(let.expr.name in ("ranged", "keyed", "sorted") for let in pipeline.expanded(self.kernel, self.kernel.bindings()[0]).lets):
            raise refused(self.kernel, "it reduces by index or over ranges")
        plan = pipeline.sized_plan(self.kernel, self.known.sizes, rides, self.backend.merges)
        if any(let.expr.name in SEARCHES for let in plan.program.lets):
            raise refused(self.kernel, "it searches along a row, bit by bit")
        return plan

    def form(self, let: Let) -> tuple[str, str]:
        form = self.backend.form(let)
        return (form.of(form.decides), form.decides) if form else ("", "")

    def known_units(self) -> list[Unit | RowUnit]:
        """The passes in the target's spelling, none of which sorts."""
        return [u for u in self.units() if not isinstance(u, SortUnit)]

    def references(self, p: Map) -> dict[str, str]:
        return super().references(p) if self.has_references else {}

    def scalars(self, p: Map | Reduce) -> tuple[Argument, ...]:
        """As elsewhere; the leading dims' size as a number has another name than as the count that a call gives."""
        made = super().scalars(p)
        return tuple(replace(a, name=self.global_names.fresh(f"{self.count}_number")) if a.name == self.count else a for a in made)

    # ------------------------------------------------------------------ where elements lie

    def size(self, dims: Dims) -> int | None:
        """How many elements dims have together; None where only a call tells."""
        return None if ELLIPSIS in dims else prod(self.known.sizes[d] for d in dims)

    def product(self, dims: Sequence[str]) -> Text:
        """That as text, by the dims' names."""
        words = [self.global_names.user(d) for d in dims] or ["1"]
        return Text(joined(words, " * ").tokens, PRODUCT if len(words) > 1 else CALL)

    def wide(self, dims: Dims) -> Dims:
        """Dims without those of one element."""
        return tuple(d for d in dims if self.known.sizes.get(d) != 1)

    def place(self, dims: Dims, order: Dims, index: Text, divide: str = "/") -> Text | None:
        """Where the element of a tensor of `dims` lies for position number `index` along `order`; None for its first."""
        dims, order = self.wide(dims), self.wide(order)
        terms: list[Text] = []
        for first, last in self.groups(dims, order):
            value, behind = index, order[last + 1 :]
            if behind:
                value = source(f"{{0}} {divide} {{1}}", value.fit(PRODUCT), self.product(behind).fit(PRODUCT + 1), level=PRODUCT)
            if first:
                value = source("{0} % {1}", value.fit(PRODUCT), self.product(order[first : last + 1]).fit(PRODUCT + 1), level=PRODUCT)
            step = dims[dims.index(order[last]) + 1 :]
            terms.append(source("{0} * {1}", value.fit(PRODUCT), self.product(step).fit(PRODUCT + 1), level=PRODUCT) if step else value)
        return summed(terms)

    @staticmethod
    def groups(dims: Dims, order: Dims) -> list[tuple[int, int]]:
        """The runs of `order`, from one place to another, that lie in a tensor of `dims` as they do there."""
        found: list[tuple[int, int]] = []
        for k, d in enumerate(order):
            if d not in dims:
                continue
            at = dims.index(d)
            if found and found[-1][1] == k - 1 and at > 0 and dims[at - 1] == order[k - 1]:
                found[-1] = (found[-1][0], k)
            else:
                found.append((k, k))
        return found

    def step(self, dims: Dims, order: Dims) -> int | None:
        """How far the elements of a tensor lie apart along the last of `order`: 0 where it stands still, None where a call tells."""
        dims, order = self.wide(dims), self.wide(order)
        return self.size(dims[dims.index(order[-1]) + 1 :]) if order and order[-1] in dims else 0

    def run(self, dims: Dims, order: Dims) -> int | None:
        """How many positions along `order` are neighbours in a tensor, from one that is a multiple of that on; None where all are,
        whatever their number."""
        dims, order = self.wide(dims), self.wide(order)
        if not order:
            return None
        groups = self.groups(dims, order)
        last = groups[-1] if groups and groups[-1][1] == len(order) - 1 else None
        if last is None or dims[dims.index(order[-1]) :] != order[-1:]:
            return 1
        return None if last[0] == 0 else self.size(order[last[0] :])


def summed(terms: Sequence[Text | None]) -> Text | None:
    """The sum of some places; None for none, which is where a tensor begins."""
    made: Text | None = None
    for term in terms:
        if term is not None:
            made = term if made is None else source("{0} + {1}", made, term.fit(SUM), level=SUM)
    return made


def static_call(function: str, fused: str) -> str:
    """The name of a function for one dtype, of that which goes by a dtype."""
    form, _, op = function.partition("_")
    own = {"brief": "fast", "rough": "rougher", "coarse": "coarser", "near": "nearer"}.get(form)
    return f"{own}_{op}" if own else fused if function == "fused" else function


def refused(kernel: Kernel, why: str) -> KgenError:
    """The error where no static kernel is written."""
    return KgenError(f"{kernel.name} has no static kernel: {why}", help="compile it without --static")


def inlined(c: Code, reads: Mapping[str, Text]) -> tuple[Code, list[str]]:
    """A phase's code in which what is read of an element once stands where it is used; and what is read more often, by name."""
    count = {name: sum(text.tokens.count(name) for text in c.made) for name in reads}
    states = {t.name for t in c.inputs if t.state}  # read before any is written
    once = {name: reads[name] for name in reads if count[name] == 1 and name not in states}

    def put(text: Text) -> Text:
        for name, by in once.items():
            text = text.replaced(name, by)
        return text

    made = replace(
        c,
        lines=tuple(replace(s, value=put(s.value)) for s in c.lines),
        gives=tuple(replace(g, text=put(g.text)) for g in c.gives),
        outputs=tuple(replace(o, value=put(o.value)) for o in c.outputs),
        accumulators=tuple(
            replace(a, value=put(a.value), place=put(a.place), weights=tuple(map(put, a.weights))) for a in c.accumulators
        ),
        columns=tuple(replace(a, value=put(a.value)) for a in c.columns),
    )
    return made, [name for name in reads if count[name] and name not in once]


def stored(lines: Sequence[Statement], outputs: Sequence[Tensor], others: Sequence[Text] = ()) -> tuple[list[Statement], dict[str, Text]]:
    """Statements without those whose value one store alone reads, but for the equations that they begin; and each result's value, which
    may be that of such a statement.  `others` are texts that read values too."""
    texts = {o.name: o.value for o in outputs}
    kept = [*lines]
    for o in reversed(outputs):
        at = next((k for k, s in enumerate(kept) if s.names == (o.value,) and s.value), None)
        if at is None or kept[at].type not in ("", o.compute):
            continue
        read = [*(s.value for s in kept[at + 1 :]), *others, *(x.value for x in outputs if x is not o)]
        if at == len(kept) - 1 and not any(o.value in text.uses for text in read):
            texts[o.name] = kept[at].value
            kept[at] = Statement(note=kept[at].note)
    return kept, texts


def deep(chain: int, fold: int, count: int | None) -> bool:
    """Whether a sum of `count` terms (None: any number) that adds `chain` of them one after another, and joins `fold` more times, is
    deeper than the bounds allow."""
    return count is None or min(chain + fold, count - 1) > tree_depth(count)


def rounds(a: Accumulator) -> bool:
    """Whether a reduction rounds: a sum or product of floats."""
    return a.dtype.is_float and MONOIDS[a.kind].join in ("add", "mul")
