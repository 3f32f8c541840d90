"""Sums of what is made of neighbours, in two steps: a map adds up a few elements for each of its own, a pass over rows what it leaves.

In: an expanded program.  Out: the same in which `sum[..., N]` of terms that are read at neighbours along N (a convolution's gradient with
respect to its weights) is `sum[..., N_parts]` of `WAYS` terms each: the element j of N_parts adds up those at j, j + S, j + 2 S and so on,
for S the size of N_parts.  Passes over rows read no neighbours: each of these would be a tensor of its own.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.expand import Expander, is_reduction, size
from kgen.ir import Blocks, Let, Op, Program, leaf, live, ref, renumber, verify
from kgen.taps import moves
from kgen.types import ELLIPSIS, INT, Dims, boolean, i64, is_literal

#: How many terms an element of the map adds up.
WAYS = 8
#: The most terms, of all sums together, that are written out.
MOST_TERMS = 256


def interleaved(program: Program) -> Program:
    """The program with sums over neighbours in two steps; the same where there are none."""
    wanted = _sums(program)
    if not wanted:
        return program
    made = _Interleaved(program, wanted)
    for let in program.lets:
        made.moved[let.name] = made.let(let).name
    stores = tuple(replace(s, ref=made.moved[s.ref]) for s in program.stores)
    lets = live(made.build.lets, stores)
    blocks = (*program.blocks, *made.blocks.values())
    return verify(renumber(replace(program, lets=lets, stores=stores, blocks=blocks)))


def _sums(program: Program) -> dict[str, str]:
    """The sums that are taken in two steps, with the dim along which they read neighbours; none where they would be too many."""
    defs, move = program.by_name, moves(program)
    near: dict[str, frozenset[str]] = {}  # of each value the dims along which it is made of neighbours
    held = {o.name for let in program.lets if let.expr.name == "gather" for o in let.expr.operands[:1]}
    for let in program.lets:
        own = frozenset[str]().union(*(near[o.name] for o in let.expr.operands if o.name not in held or let.expr.name == "gather"))
        if let.expr.name == "gather":
            dim, (of, at) = let.expr.attrs[0], let.expr.operands
            stays = defs[of.name].expr.name == "load" and move(dim, defs[at.name]) is not None
            own = near[at.name] | ({dim} if stays and dim in let.dims and not is_literal(dim) else set())
        near[let.name] = frozenset() if is_reduction(let) else own
    reduced = [let for let in program.lets if is_reduction(let) and let.expr.name == "sum"]
    sums = [let for let in reduced if let.is_float]
    found: dict[str, str] = {}
    for let in sums:
        dims = [d for d in let.expr.attrs if d in near[let.expr.operands[0].name] and d != ELLIPSIS]
        if len(dims) == 1:
            found[let.name] = dims[0]
    for let in sums:  # those of the same elements go with them
        over = {*let.expr.attrs}, {*let.dims}
        alike = [d for name, d in found.items() if ({*defs[name].expr.attrs}, {*defs[name].dims}) == over]
        if alike and alike[0] in defs[let.expr.operands[0].name].dims:
            found.setdefault(let.name, alike[0])
    return found if len(found) * WAYS <= MOST_TERMS else {}


class _Interleaved(Expander):
    def __init__(self, program: Program, wanted: dict[str, str]):
        super().__init__(program)
        self.wanted = wanted
        self.held = {o.name for let in program.lets if let.expr.name == "gather" for o in let.expr.operands[:1]}
        self.taken = {d for t in program.tensors for d in t.dims} | {d for let in program.lets for d in let.dims}
        self.blocks: dict[str, Blocks] = {}
        self.places: dict[str, list[tuple[Let, Let, dict[str, Let]]]] = {}  # each place, whether that lies inside, and what is there

    def let(self, let: Let) -> Let:
        """A sum over neighbours in two steps; any other value as it is."""
        moved = replace(let, expr=let.expr.renamed(self.moved))
        if let.name not in self.wanted:
            made = self.build.like(moved.expr, moved, let.label)
            if let.name in self.held and let.expr.name != "load":
                self.keeps.add(made.name)
            return made
        dim, term = self.wanted[let.name], self.build.defs[moved.expr.operands[0].name]
        places, part = self.along(dim, let), {dim: self.blocks[dim].dim}
        like = next((t.dims for t in self.program.tensors if set(t.dims) == set(term.dims)), term.dims)  # so memory is gone along
        order = tuple(part.get(d, d) for d in like)
        terms = [self.inside(inside, self.at(term, dim, place, done), order) for place, inside, done in places]
        while len(terms) > 1:
            terms = [self.added(*terms[k : k + 2]) for k in range(0, len(terms), 2)]
        return self.build.like(Op("sum", *(part.get(d, d) for d in let.expr.attrs), ref(terms[0].name)), let, let.label)

    def along(self, dim: str, like: Let) -> list[tuple[Let, Let, dict[str, Let]]]:
        """The places along a dim of the terms that an element adds up."""
        if dim not in self.places:
            name = next(n for n in (f"{dim}_parts{'_' * k}" for k in range(99)) if n not in self.taken)
            self.blocks[dim] = Blocks(name, dim, WAYS)
            build, span = self.build, like.span
            index, parts = build.add(leaf("index", name), i64, (name,), span), build.add(leaf("size", name), INT, (), span)
            limit = self.cast(size(build, dim, span))
            self.places[dim] = []
            for k in range(WAYS):
                place = index
                if k:
                    by = build.add(Op("mul", ref(build.add(leaf("lit", str(k)), INT, (), span).name), ref(parts.name)), INT, (), span)
                    place = build.add(Op("add", ref(index.name), ref(self.cast(by).name)), i64, (name,), span)
                inside = build.add(Op("lt", ref(place.name), ref(limit.name)), boolean, (name,), span)
                self.places[dim].append((place, inside, {}))
        return self.places[dim]

    def inside(self, inside: Let, term: Let, dims: Dims) -> Let:
        """A term where its place lies inside, else 0; with its dims in some order."""
        zero = self.build.literal("0", term)
        return self.build.add(Op("where", ref(inside.name), ref(term.name), ref(zero.name)), term.dtype, dims, term.span, "", term.generic)

    def added(self, a: Let, *b: Let) -> Let:
        """Two terms as one; one alone as it is."""
        if not b:
            return a
        return self.build.add(Op("add", ref(a.name), ref(b[0].name)), a.dtype, a.dims, a.span, "", a.generic)
