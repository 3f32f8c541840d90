"""What static sources of C++ and CUDA C++ have in common: pointers, places, rows, what a row gathers, and how functions are called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Generic, TypeVar

from kgen.backends.c_family import CFamily
from kgen.backends.names import bare
from kgen.backends.static import StaticRender, summed, tensors
from kgen.backends.text import Text, named, source
from kgen.backends.units import Given, RowUnit, Statement, Tensor, Unit
from kgen.ops import SUM
from kgen.types import ELLIPSIS, Dims

#: How long a loop and its one statement may be to stand on one line.
WIDTH = 110


def over(head: str, loop: list[str]) -> list[str]:
    """A loop over one statement or loop."""
    return [head, *(line if line.startswith("#pragma omp") else f"    {line}" for line in loop)]


def block(head: str, lines: list[str]) -> list[str]:
    """What a loop or a condition holds, within braces where it is more than one statement."""
    if len(lines) == 1:
        return [f"{head} {lines[0]}"] if len(bare(f"{head} {lines[0]}")) <= WIDTH else over(head, lines)
    if lines and lines[0].startswith("for") and all(line.startswith(" ") for line in lines[1:]):
        return over(head, lines)
    return [*over(f"{head} {{", lines), "}"]


Target = TypeVar("Target", bound=CFamily)


class CStatic(Generic[Target]):
    """The texts of one file; `integer` is the target's name of a 64-bit integer."""

    integer = ""

    def __init__(self, backend: Target, render: StaticRender):
        self.backend, self.render, self.known = backend, render, render.known
        self.units = render.known_units()
        self.kernel = render.kernel
        fresh, user = render.global_names.fresh, render.global_names.user
        own = [p.name for p in self.kernel.params if p.is_tensor] + [r.name for r in self.kernel.results if not r.state]
        self.pointers = {name: fresh(f"{user(name)}_ptr") for name in own}
        self.pointers |= {w: fresh(f"{name}_ptr") for w, (_, name) in render.kept.items()}
        self.told: set[str] = set()
        self.rows = {name: fresh(f"{pointer.removesuffix('_ptr')}_row") for name, pointer in self.pointers.items()}

    def printed(self, unit: Unit | RowUnit, lines: Iterable[Statement]) -> list[str]:
        """The lines of statements, each equation of a pass said once."""
        kept = []
        for s in lines:
            said = f"{unit.name} {s.note}"
            kept.append(replace(s, note="") if said in self.told else s)
            self.told.add(said)
        return self.backend.printed(kept)

    # ------------------------------------------------------------------ functions

    def arguments(self, unit: Unit | RowUnit) -> list[tuple[str, str]]:
        """A pass's tensors in the order of the kernel's parameters: declared, and as they are passed on."""
        found: dict[str, Tensor] = {}
        gathered = [g.tensor for g in unit.gathers] if isinstance(unit, RowUnit) else []
        for t in (*unit.inputs, *gathered, *unit.outputs):
            found.setdefault(t.spec_name, t)
        written = {o.spec_name for o in unit.outputs}
        order = [*self.pointers]
        return [
            (f"{'' if name in written else 'const '}{found[name].type}* {self.pointers[name]}", self.pointers[name])
            for name in sorted(found, key=order.index)
        ]

    def names(self) -> list[str]:
        """What a caller passes, in order."""
        own = [p.name for p in self.kernel.params if p.is_tensor] + [r.name for r in self.kernel.results if not r.state]
        numbers = [p.name for p in self.kernel.params if not p.is_tensor]
        return [*own, *numbers, *([self.render.count] if self.counts() else [])]

    def counts(self) -> bool:
        """Whether the leading dims' size is to be passed."""
        return any(ELLIPSIS in dims for _, dims in tensors(self.kernel))

    def tail(self, unit: Unit | RowUnit | None = None) -> list[tuple[str, str]]:
        """What comes behind the tensors: numbers, of a pass as they are rounded; then the leading dims' size."""
        if unit is None:
            types = self.backend.number_types
            made = [(f"{types[p.dtype]} {self.render.number_name(p.name)}", "") for p in self.kernel.params if not p.is_tensor]
        else:
            made = [(f"{s.type} {s.name}", str(self.backend.rounded(s))) for s in unit.scalars]
        return [*made, *([(f"{self.integer} {self.render.count}", self.render.count)] if self.counts() else [])]

    def spec(self, pointer: str) -> str:
        return next(name for name, p in self.pointers.items() if p == pointer)

    # ------------------------------------------------------------------ places

    def at(self, t: Tensor, *places: Text | None, row: bool = False) -> Text:
        """An element of a tensor, of all or of a row."""
        base = self.rows[t.spec_name] if row else self.pointers[t.spec_name]
        return source("{0}[{1}]", base, summed(places) or "0")

    def position(self, x: Tensor, *parts: tuple[Dims, Text]) -> str:
        """The line that names the position in the dims that an index counts, by the number of the element in some dims of the pass, or in
        each of two parts of them."""
        return f"const {self.integer} {x.name} = {summed([self.render.place(x.dims, *part) for part in parts]) or 0};"

    def interface(self) -> list[str]:
        """The kernel's tensors as parameters of the function that a caller calls."""
        every = {p: d.removeprefix("const ") for u in self.units for d, p in self.arguments(u)}
        written = {self.pointers[o.spec_name] for u in self.units for o in u.outputs}
        own = [p for name, p in self.pointers.items() if name not in self.render.kept]
        return [f"{'' if p in written else 'const '}{every.get(p, f'void* {p}')}" for p in own]

    def row_pointers(self, walked: Iterable[Tensor], rows: Dims, unit: Unit | RowUnit) -> list[str]:
        """Where the rows of tensors begin."""
        written, made = {o.spec_name for o in unit.outputs}, []
        for name, t in {t.spec_name: t for t in walked}.items():
            const = "" if name in written else "const "
            place = self.render.place(t.dims, rows, named("row"))
            made.append(f"{const}{t.type}* {self.rows[name]} = {self.pointers[name]} + {place};")
        return made

    # ------------------------------------------------------------------ rows

    def lies_across(self, unit: RowUnit) -> bool:
        """Whether neighbours in memory belong to different rows: of the operand that moves most."""
        walked = [t for t in unit.inputs if not unit.is_row(t)]
        main = max(walked, key=lambda t: len(t.dims), default=None)
        return main is not None and self.render.step(main.dims, unit.inner) != 1 and self.render.step(main.dims, unit.rows) == 1

    def row_values(self, unit: RowUnit) -> list[str]:
        """What is read of a row, where rows are taken one by one: its own values, its positions, what is gathered from."""
        r, row = self.render, named("row")
        read = {t.name for c in unit.codes for t in c.inputs}
        own = [t for t in unit.inputs if unit.is_row(t) and t.name in read]
        made = [f"const {t.compute} {t.name} = {t.compute}({self.at(t, r.place(t.dims, unit.rows, row))});" for t in own]
        made += [self.position(x, (unit.rows, row)) for x in unit.indices if unit.is_row(x)]
        return made + self.gathers(unit)

    def gathers(self, unit: RowUnit) -> list[str]:
        """Functions for what a row gathers: 0 outside of the dim."""
        r, made = self.render, []
        for g in unit.gathers:
            dims = g.tensor.dims
            behind = r.wide(dims[dims.index(g.dim) + 1 :])
            step = source("place * {0}", r.product(behind).fit(SUM + 1)) if behind else named("place")
            begin = summed([r.place(dims, (d,), t) for d, t in self.along(unit, dims, g.dim)])
            size = r.product((g.dim,))
            element = source("{0}[{1}]", self.pointers[g.tensor.spec_name], summed([begin, step]) or "0")
            chosen = f"0 <= place && place < {size} ? {g.tensor.compute}({element}) : {g.tensor.compute}(0)"
            made.append(f"const auto {g.name} = [&]({self.integer} place) {{ return {chosen}; }};")
        return made

    def along(self, unit: RowUnit, dims: Dims, dim: str) -> list[tuple[str, Text]]:
        """The positions of a row along a tensor's dims but one."""
        found = []
        for d in self.render.wide(dims):
            if d != dim:
                found.append((d, self.render.place((d,), unit.rows, named("row")) or Text(("0",))))
        return found

    @staticmethod
    def is_found(unit: RowUnit, g: Given) -> bool:
        return any(a.name == g.name and a.place for c in unit.codes for a in c.accumulators)
