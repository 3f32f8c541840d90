"""Triton's passes over rows: from a `RowUnit` to the lines of its jit functions.

In: a pass's phases as code, their operands.  Out: what templates/triton/rows.py.jinja lays out: the lines of a kernel that
holds whole rows, of the readings of a segment of a longer row, and of the two kernels that put readings together.
All tiles are [ROWS, BLOCK]; a row's values are [ROWS, 1].
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kgen.backends.base import Render
from kgen.backends.names import Names
from kgen.backends.python_text import listed, wrapped
from kgen.backends.units import Accumulator, Code, RowUnit, Tensor
from kgen.schedule import Reduce
from kgen.types import ELLIPSIS, Dims, f64

if TYPE_CHECKING:
    from kgen.backends.triton import Triton

#: The function that combines two partial results; those of bools are plain logic.
COMBINE = {"sum": "plus", "prod": "times", "max": "greatest", "min": "least", "argmax": "first_greatest", "argmin": "first_least"}
ON_BOOLS = {"max": "either", "min": "both"}
LAST = str(2**63 - 1)  # the place of no element: behind all others


@dataclass(frozen=True)
class Operand:
    """A tensor or index of a pass: `key` is its name in the host's code, `place` how many operands come before it.

    `base` is what its rows' places are called (its pointer where it has no dim of the rows), `rows` and `inner` are the
    names of its strides, outermost first, `steps` that of the inner strides' tuple.
    """

    key: str
    place: int
    pointer: str
    base: str
    rows: tuple[str, ...]
    inner: tuple[str, ...]
    steps: str

    @property
    def kind(self) -> str:
        return f"KINDS[{self.place}]"

    @property
    def vector(self) -> str:
        return f"VECTORS[{self.place}]"


@dataclass(frozen=True)
class Slot:
    """What a reduction carries from one step to the next: argmax carries a value and its place, the others one value."""

    name: str
    type: str
    dtype: str
    identity: str
    value: str


def rank(dims: Dims) -> int:
    """How many dims a kernel can tell apart: those that are named, and four more where any number may come."""
    return len(dims) + 3 if ELLIPSIS in dims else len(dims)


class RowView:
    """The texts of one unit; `view` is what the templates take."""

    def __init__(self, backend: Triton, render: Render, unit: RowUnit, p: Reduce, context: dict[str, Any]):
        self.backend, self.render, self.unit, self.p, self.context = backend, render, unit, p, context
        words = set(re.findall(r"\w+", unit.texts)) | {s.name for s in unit.scalars}
        words |= {t.name for t in (*unit.inputs, *unit.indices, *unit.outputs)} | {g.name for g in unit.gathers}
        self.names = Names(set(render.global_names.taken) | words)
        self.ranks = rank(unit.rows), rank(unit.inner)
        self.kept = {t.spec_name for t in (*unit.inputs, *unit.outputs, *(g.tensor for g in unit.gathers)) if t.spec_name in render.kept}
        self.operands: dict[str, Operand] = {}
        self._operands()
        self.parts: dict[str, str] = {}
        self.codes = tuple(self._typed(c) for c in unit.codes)
        self.outputs = [o for c in self.codes for o in c.outputs]

    # ------------------------------------------------------------------ operands

    def key(self, t: Tensor) -> str:
        """A tensor's name in the host's code: as declared, or the workspace's."""
        return t.name if t.spec_name in self.kept else t.spec_name

    def _operands(self) -> None:
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

        def called(text: str) -> str:
            for g in self.unit.gathers:
                base = self.gather_operand(self.key(g.tensor), g.dim).base
                head = f"gather({base}, {g.stride[:-7]}_size, {g.stride}, present, {g.tensor.compute}, "
                text = re.sub(rf"\b{g.name}\(", lambda _, head=head: head, text)  # type: ignore[misc]
            return text

        outputs = tuple(replace(o, value=b._typed(called(o.value), o.compute)) for o in c.outputs)
        compute = {o.name: o.compute for o in outputs}
        accumulators = tuple(
            replace(a, value=b._typed(called(a.value), a.value_type), place=b._typed(called(a.place), "tl.int64")) for a in c.accumulators
        )
        gives = tuple(replace(g, text=b._typed(called(g.text), g.type)) for g in c.gives)
        lines = tuple(b._declared(called(x), compute) for x in c.lines)
        return replace(c, lines=lines, outputs=outputs, accumulators=accumulators, gives=gives)

    def slots(self, a: Accumulator) -> tuple[Slot, ...]:
        identity = self.backend.identity(a)
        if a.place:
            best = self.parts.setdefault(f"{a.name} best", self.names.fresh(f"{a.name}_best"))
            return (
                Slot(best, a.value_type, self.host_dtype(a.value_dtype, a.value_type), identity, a.value),
                Slot(a.name, "tl.int64", "torch.int64", f"tl.full([], {LAST}, tl.int64)", a.place),
            )
        return (Slot(a.name, a.type, self.host_dtype(a.dtype, a.type), identity, a.value),)

    def host_dtype(self, dtype: Any, type_name: str) -> str:
        """A dtype in the host's code: torch's, or the key under which `dtypes` has it."""
        if type_name in self.context["generics"]:
            return f'dtypes["{type_name}"]'
        spec = next((v for v, name in self.render.variables.items() if name == type_name), None)
        return f'dtypes["{spec}"]' if spec else f"torch.{dtype.torch}"

    def combine(self, a: Accumulator) -> str:
        return ON_BOOLS[a.kind] if a.dtype.kind == "bool" and a.kind in ON_BOOLS else COMBINE[a.kind]

    def reduced(self, a: Accumulator, texts: list[str]) -> str:
        """One line: a tile's values reduced to the row's."""
        names = ", ".join(s.name for s in self.slots(a))
        given = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
        return f"{names} = tl.reduce({given}, 1, {self.combine(a)}, keep_dims=True)"

    def reduced_whole(self, a: Accumulator) -> list[str]:
        """A whole row's reduction; of argmax first the value, then the least place that has it, which costs less than both at once."""
        if not a.place:
            return [self.reduced(a, self.masked(a))]
        best, place = self.slots(a)
        extreme = "greatest" if a.kind == "argmax" else "least"
        places = f"tl.where(inside & alike({a.value}, {best.name}), {place.value}, {place.identity})"
        return [
            f"{best.name} = tl.reduce({self.masked(a)[0]}, 1, {extreme}, keep_dims=True)",
            f"{place.name} = tl.reduce({places}, 1, least, keep_dims=True)",
        ]

    def masked(self, a: Accumulator, mask: str = "inside") -> list[str]:
        return [f"tl.where({mask}, {s.value}, {s.identity})" for s in self.slots(a)]

    def accumulate(self, a: Accumulator, into: list[str], texts: list[str]) -> str:
        if a.kind == "sum":
            return f"{into[0]} += {texts[0]}"
        return f"{', '.join(into)} = {self.combine(a)}({', '.join([*into, *texts])})"

    def filled(self, s: Slot, name: str, shape: str) -> str:
        bare = re.fullmatch(r"tl\.full\(\[\], (.*), [\w.]+\)", s.identity)
        return f"{name} = tl.full([{shape}], {bare.group(1) if bare else s.identity}, {s.type})"

    def walk(self, o: Operand, axis: str) -> str:
        """The call that says how far an operand's elements lie from its first one, along the rows or along a row."""
        names, sizes = (o.rows, self.row_sizes) if axis == "across" else (o.inner, self.sizes)
        steps = o.steps if axis == "along" else f"({', '.join(reversed(names))}{',' * (len(names) == 1)})"
        index, count = ("row", "ROW_RANK") if axis == "across" else ("column", "RANK")
        extents = f"({', '.join(reversed(sizes))}{',' * (len(sizes) == 1)})" if axis == "across" else "sizes" if sizes else "()"
        return f'walk({index}, {extents}, {steps}, {count if sizes else 1}, {o.kind} == "{axis}", {o.vector})'

    def element_place(self, o: Operand) -> str:
        return f"{o.base} + {self.walk(o, 'along')}" if o.inner else o.base

    def load(self, t: Tensor) -> str:
        o = self.operands[self.key(t)]
        if self.unit.is_row(t):
            read = f"tl.load({o.base}{', present' if o.rows else ''})"
        else:
            read = f"tl.load({self.element_place(o)}, {'inside' if o.rows else 'column < length'})"
        return f"{t.name} = {self.backend.widen(read, t)}"

    def index(self, t: Tensor) -> str:
        o = self.operands[t.name]
        if o.rows:
            return f"{t.name} = {self.starts[t.name]} + {self.walk(o, 'across')}"
        return f"{t.name} = {self.walk(o, 'along')}.to(tl.int64)"

    def store(self, o: Tensor) -> list[str]:
        """The lines that store a result."""
        lines = []
        if not re.fullmatch(r"[^\W\d]\w*", o.value):
            lines.append(f"{o.name} = {o.value}")
            o = replace(o, value=o.name)
        operand = self.operands[self.key(o)]
        rounded = self.backend._store(replace(o, name=o.value), self.context["generics"])
        if self.unit.is_row(o):
            at, mask = operand.base if operand.rows else f"{operand.pointer} + row", "present"
        else:
            at, mask = self.element_place(operand), "inside"
            at += "" if operand.rows else " + row"  # there is one row: its number is 0
        return [*lines, f"tl.store({at}, {rounded}, {mask})"]

    # ------------------------------------------------------------------ bodies

    def row_phase(self, c: Code) -> list[str]:
        made = [f"{g.name} = {g.text}" for g in c.gives if g.text and g.text != g.name]
        return [*c.lines, *made]

    def setup(self) -> list[str]:
        """What every kernel begins with, behind `row`: places and values of the rows."""
        lines = []
        if any(o.inner for o in self.operands.values()):
            lines.append("length = length.to(INDEX) // EVEN[1] * EVEN[1]")
            if self.sizes:
                lines.append(f"sizes = ({', '.join(reversed(self.sizes))}{',' * (len(self.sizes) == 1)})")
            lines += [f"{o.steps} = ({', '.join(reversed(o.inner))}{',' * (len(o.inner) == 1)})" for o in self.operands.values() if o.inner]
        lines += [f"{o.base} = {o.pointer} + {self.walk(o, 'across')}" for o in self.operands.values() if o.pointer and o.rows]
        read = {t.name for c in self.codes for t in c.inputs}
        lines += [self.load(t) for t in self.unit.inputs if t.name in read and self.unit.is_row(t)]
        lines += [self.index(i) for i in self.unit.indices if i.name in self.starts]
        return lines

    def ends(self) -> list[str]:
        return [line for o in self.outputs if self.unit.is_row(o) for line in self.store(o)]

    def resident(self) -> list[str]:
        """The body of the kernel that holds whole rows: what an earlier phase loaded or computed is still there."""
        lines: list[str] = []
        known: set[str] = set()

        def add(new: list[str]) -> None:
            comment: list[str] = []
            for line in new:
                if line.startswith("#"):
                    comment.append(line)
                    continue
                name = line.partition(" = ")[0]
                if name not in known or not re.fullmatch(r"\w+", name):
                    lines.extend([*(x for x in comment if x not in lines), line])
                comment = []
                known.add(name)
            lines.extend(x for x in comment if x not in lines)  # of a reduction, which follows

        for c in self.codes:
            if not c.element:
                add(self.row_phase(c))
                continue
            add([self.load(t) for t in c.inputs if not self.unit.is_row(t)])
            add([self.index(i) for i in c.indices if i.name not in self.starts])
            add(list(c.lines))
            lines += [line for a in c.accumulators for line in self.reduced_whole(a)]
            lines += [line for o in c.outputs for line in self.store(o)]
        return [*lines, *self.ends()]

    def readings(self) -> list[dict[str, Any]]:
        """A function for each reading: the shares of a segment in its reductions, or its elements stored."""
        made = []
        for k, c in enumerate([c for c in self.codes if c.element]):
            name = self.names.fresh(f"{self.unit.name}_reading_{k + 1}")
            tiles = {s.name: self.names.fresh(f"{s.name}_tile") for a in c.accumulators for s in self.slots(a)}
            body = [self.load(t) for t in c.inputs if not self.unit.is_row(t)]
            body += [self.index(i) for i in c.indices if i.name not in self.starts]
            body += c.lines
            body += [self.accumulate(a, [tiles[s.name] for s in self.slots(a)], self.masked(a)) for a in c.accumulators]
            body += [line for o in c.outputs for line in self.store(o)]
            head = [self.filled(s, tiles[s.name], "ROWS, BLOCK") for a in c.accumulators for s in self.slots(a)]
            tail = [self.reduced(a, [tiles[s.name] for s in self.slots(a)]) for a in c.accumulators]
            slots = [s for a in c.accumulators for s in self.slots(a)]
            code = [line for line in (*head, *body) if not line.startswith("#")]
            words = set(re.findall(r"(?<!\.)\b\w+\b(?!=)", "\n".join([*code, *tail])))
            made_here = [line.partition(" = ")[0] for line in code if " = " in line]
            own = {s.name for s in slots} | {name for left in made_here for name in re.findall(r"\w+", left)}
            scope = [o.base for o in self.operands.values() if o.base] + [s.name for s in self.unit.scalars]
            scope += [t.name for t in self.unit.inputs if self.unit.is_row(t)] + list(self.starts)
            scope += [g.name for d in self.codes for g in (*d.takes, *d.gives)] + ["row"]
            given = [n for n in dict.fromkeys(scope) if n in words and n not in own]
            given += ["segment", "present", "length", *(["sizes"] if "sizes" in words else [])]
            given += [o.steps for o in self.operands.values() if o.steps and o.steps in words]
            constants = [n for n in ("KINDS", "VECTORS", "RANK", "ROWS") if n in words]
            constants += ["BLOCK", "SEGMENT", "INDEX", *(n for n in self.constants() if n in words)]
            made.append(
                {
                    "name": name, "given": given, "constants": constants, "head": head, "body": body, "tail": tail,
                    "returns": ", ".join(s.name for s in slots), "slots": slots, "accumulators": c.accumulators,
                    "about": f"What a segment adds to {_and([a.name for a in c.accumulators])}." if slots else "A segment's results.",
                }
            )  # fmt: skip
        return made

    def constants(self) -> list[str]:
        """The dtypes that the code may name: the variables and what they are computed in."""
        return [*self.context["variables"], *self.context["generics"]]

    def call(self, reading: dict[str, Any], indent: str) -> str:
        left = f"{reading['returns']} = " if reading["returns"] else ""
        return wrapped(f"{indent}{left}{reading['name']}", [*reading["given"], *reading["constants"]], "")

    def loop(self, readings: list[dict[str, Any]]) -> list[str]:
        """The body of the kernel that goes through long rows, a segment after the other."""
        lines, k = [], 0
        for c in self.codes:
            if not c.element:
                lines += self.row_phase(c)
                continue
            r = readings[k]
            k += 1
            part = {s.name: f"{s.name}_part" for s in r["slots"]}
            lines += [self.filled(s, s.name, "ROWS, 1") for s in r["slots"]]
            lines.append("for segment in range(0, segments):")
            lines += self.call(r | {"returns": ", ".join(part.values())}, "    ").split("\n")
            for a in r["accumulators"]:
                lines.append("    " + self.accumulate(a, [s.name for s in self.slots(a)], [part[s.name] for s in self.slots(a)]))
        return [*lines, *self.ends()]

    def split(self, readings: list[dict[str, Any]]) -> list[str]:
        """The body of the kernel that does one reading of one segment; the parts of those before it are combined first."""
        lines: list[str] = []
        k = 0
        for c in self.codes:
            if not c.element:
                phase = self.row_phase(c)
                if any(not x.lstrip().startswith("#") for x in phase):  # what a rule took away leaves its equation
                    lines += [f"if READING > {k}:", *("    " + x for x in phase)] if k else phase
                continue
            r = readings[k]
            k += 1
            lines.append(f"if READING == {k}:")
            lines += self.call(r, "    ").split("\n")
            lines += [f"    tl.store({self.parts[s.name]} + row * segments + segment, {s.name}, present)" for s in r["slots"]]
            if r["slots"] and k < self.steps():
                lines += [f"if READING > {k}:", *("    " + x for x in self.combined(r))]
        ends = self.ends()
        if ends:
            lines += [f"if READING == {self.steps()}:", *("    " + x for x in ends)]
        return lines

    def combined(self, reading: dict[str, Any]) -> list[str]:
        """What a reading left of each segment, as the row's values: in the order in which the loop combines it."""
        slots = reading["slots"]
        every = {s.name: f"{s.name}_all" for s in slots}
        lines = [self.filled(s, every[s.name], "ROWS, PARTS") for s in slots]
        lines.append("for start in tl.static_range(0, 16 * PARTS, PARTS):")
        lines.append("    lane = start + tl.arange(0, PARTS)[None, :]")
        for a in reading["accumulators"]:
            texts = [
                f"tl.load({self.parts[s.name]} + row * segments + lane, present & (lane < segments), {s.identity})" for s in self.slots(a)
            ]
            lines.append("    " + self.accumulate(a, [every[s.name] for s in self.slots(a)], texts))
        return [*lines, *(self.reduced(a, [every[s.name] for s in self.slots(a)]) for a in reading["accumulators"])]

    def steps(self) -> int:
        """How many launches the split takes: a reading each, and one more where rows have results."""
        return sum(1 for c in self.codes if c.element) + bool([o for o in self.outputs if self.unit.is_row(o)])

    # ------------------------------------------------------------------ the view

    def bare(self) -> bool:
        """Whether a reduction is of elements that no load along the row decides: positions, numbers and row values alone."""
        for phase in self.p.phases:
            loaded: set[str] = set()
            for let in phase.lets:
                moves = let.expr.name in ("load", "gather") and set(let.dims) & set(self.p.inner)
                if moves or any(o.name in loaded for o in let.expr.operands):
                    loaded.add(let.name)
            if any(r.expr.operands[0].name not in loaded for r in phase.reductions):
                return True
        return False

    def view(self) -> dict[str, Any]:
        u, b = self.unit, self.backend
        long = bool(u.inner)
        readings = self.readings() if long else []
        slots = [s for r in readings for s in r["slots"]]
        for s in slots:
            self.parts[s.name] = self.names.fresh(f"{s.name}_parts")
        kind = {s.let.name: s.number.dtype.kind for s in self.p.scalars}  # type: ignore[union-attr]
        numbers = [f"{s.name}: {b.number_types[kind[s.spec_name]]}" for s in u.scalars]
        for g in u.gathers:
            numbers += [f"{g.stride[:-7]}_size: tl.int64", f"{g.stride}: tl.int64"]
        extents = ["rows", *self.row_sizes, *(["length", *self.sizes] if long else [])]
        operands = list(self.operands.values())
        strides = [[*o.rows, *o.inner] for o in operands]
        dynamic = [*numbers, *(f"{n}: tl.int64" for n in extents)]
        starts = list(self.starts.values())
        bodies = {"row": [*self.setup(), *self.resident()]}
        if long:
            bodies |= {"loop": [*self.setup(), *self.loop(readings)], "split": [*self.setup(), *self.split(readings)]}
        text = "\n".join([line for body in bodies.values() for line in body] + [x for r in readings for x in (*r["head"], *r["body"])])
        rounded = [b._rounded(s, kind[s.spec_name]) for s in u.scalars]
        words = set(re.findall(r"(?<!\.)\b\w+\b(?!=)", "\n".join([text, *rounded])))
        generics = self.context["generics"]
        aliases = {a: of for a, of in generics.items() if a in words}
        variables = [v for v in self.context["variables"] if v in words or any(v in of for of in aliases.values())]
        stored = [t for t in (*reversed(u.outputs), *reversed(u.inputs)) if t.type in self.context["variables"]]
        types = {t.type: self.operands[self.key(t)].pointer for t in stored}
        passed = [v for v in variables if v not in types]
        tail = ["KINDS", "VECTORS", "EVEN", *(["ROW_RANK"] if self.row_sizes else []), *(["RANK"] if self.sizes else [])]
        tail += ["INDEX", "ROWS", *(["BLOCK"] if long else [])]
        pointers = [o.pointer for o in operands if o.pointer]

        def signature(more: list[str], parts: list[str]) -> list[str]:
            names = [f"{n}: tl.constexpr" for n in [*tail, *more, *passed]]
            lines = [", ".join(pointers), *([", ".join(parts)] if parts else [])]
            lines += [", ".join(numbers[k : k + 6]) for k in range(0, len(numbers), 6)]
            lines += [", ".join(f"{n}: tl.int64" for n in extents)]
            for group in strides:
                lines += [", ".join(f"{n}: tl.int64" for n in group[k : k + 8]) for k in range(0, len(group), 8)]
            lines += [", ".join(f"{n}: tl.int64" for n in starts)] if starts else []
            return [*lines, *(", ".join(names[k : k + 5]) for k in range(0, len(names), 5))]

        parts = [self.parts[s.name] for s in slots]
        count = len(dynamic) + sum(map(len, strides)) + len(starts)
        heads = {"row": signature([], [])}
        if long:
            heads |= {"loop": signature(["SEGMENT"], []), "split": signature(["SEGMENT", "PARTS", "READING"], parts)}
        kernels = {form: f"{u.name}_{form}" if long else f"{u.name}_kernel" for form in heads}
        pieces = "\n".join([text, *rounded, *(f"{self.combine(a)}()" for c in self.codes for a in c.accumulators)])
        pieces += "\ngreatest() least()" if any(a.place for c in self.codes for a in c.accumulators) else ""
        for r in readings:
            r["def"] = wrapped(f"def {r['name']}", [*r["given"], *(f"{n}: tl.constexpr" for n in r["constants"])], ":")
        written = {self.key(o): u.is_row(o) for o in self.outputs}
        passing = [s.text if re.fullmatch(r"[^\W\d]\w*", s.text) else s.name for s in u.scalars]
        for g in u.gathers:
            key = self.key(g.tensor)
            passing += [f'sizes["{g.dim}"]', f'*strides("{key}", tensors["{key}"], "{g.dim}", sizes)']
        host = [f"({', '.join(kernels.values())}{',' * (len(kernels) == 1)})", f'"{" ".join(u.rows)}"', f'"{" ".join(u.inner)}"', "tensors",
                listed([o.key for o in operands]), listed([k for k, row in written.items() if not row]),
                listed([k for k, row in written.items() if row]), f"[{', '.join(passing)}]", "sizes",
                f"[{', '.join(f'({len(o.rows)}, {len(o.inner)})' for o in operands)}]"]  # fmt: skip
        constants = [f'{self.render.variables[v]}=FLOATS[dtypes["{v}"]]' for v in b.spec_variables(self.render, passed)]
        if long:
            held = max(1, sum(1 for t in u.inputs if not u.is_row(t) and set(t.dims) & set(u.rows) or t.dims == u.inner and not u.rows))
            host.append(str(held))
            host.append(f"[{', '.join(s.dtype for s in slots)}]")
            host.append(str(self.steps()))
            if any(let.dtype is f64 and not let.generic for phase in self.p.phases if phase.element for let in phase.lets):
                constants.append("word=8")  # f64 by name, whatever comes from memory
            if self.bare():
                constants.append("bare=True")
        host += constants
        computed = [(s.name, s.text, s.note) for s in u.scalars if not re.fullmatch(r"[^\W\d]\w*", s.text)]
        return {
            "rows": True, "name": u.name, "kernels": kernels, "heads": heads, "bodies": bodies, "readings": readings, "long": long,
            "definitions": [
                *(f"{v}: tl.constexpr = {types[v]}.dtype.element_ty" for v in variables if v in types),
                *(
                    f"{a}: tl.constexpr = tl.float64 if {' or '.join(f'{v} == tl.float64' for v in of)} else tl.float32"
                    for a, of in aliases.items()
                ),
            ],
            "rounded": rounded, "steps": self.steps(), "ends": any(written.values()), "apart": any(" at " in o.key for o in operands),
            "starts": bool(starts), "bare": "bare=True" in constants,
            "dynamic": {form: (len(pointers) + (len(parts) if form == "split" else 0), count) for form in heads},
            "source": pieces, "computed": computed, "launch": wrapped("    launch_rows", host, ""),
            "words": set(re.findall(r"\w+", " ".join(s.text for s in u.scalars))),
            "kept": [(o.name, o.dtype, o.dims) for o in u.outputs if o.spec_name in self.kept],
            "inputs": {t.spec_name for t in u.inputs}, "generics": {s.type for s in slots} & set(generics),
            "operands": [(o.key, bool(o.pointer)) for o in operands],
        }  # fmt: skip


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
