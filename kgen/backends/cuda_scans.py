"""CUDA C++: a pass along rows as the text of its kernel (templates/cuda/rows_scans.cu.jinja), and of the host function that launches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kgen.backends import cuda_host as host
from kgen.backends.base import Render
from kgen.backends.c_family import CFamily
from kgen.backends.cuda_rows import RowPrinter, mask, stored
from kgen.backends.names import Names
from kgen.backends.scans import ScanField, fields, joined, taken
from kgen.backends.text import wrapped
from kgen.backends.units import Code, ScanUnit, Statement
from kgen.monoids import MONOIDS
from kgen.passes import Scalar

ABOUT = "Each row is gone along once, tile by tile."


@dataclass(frozen=True, kw_only=True)
class CudaScans(host.HostView):
    """What the templates see of a pass along rows: its kernel's parts, and its host function."""

    over_rows: ClassVar[bool] = True
    walk: ClassVar[str] = "typename decltype(way)::Walk"
    scans: ClassVar[bool] = True
    columns: ClassVar[bool] = False
    about: str = ABOUT
    operand_names: list[str]
    kernel_head: str
    kernel_aliases: dict[str, list[str]]
    opening: list[str]
    fields: list[ScanField]
    joins: list[Statement]
    loads: list[tuple[str, str, str, int]]  # name, pointer, type and number of what is read
    shares: list[str]
    ends: list[str]
    stores: list[tuple[str, str, str, int]]
    index_strides: list[tuple[str, bool, str, str]]
    parameters: str
    parameters_about: str
    code: list[str]


class ScanPrinter(RowPrinter):
    """The texts of one pass along rows."""

    unit: ScanUnit
    runs = "run_scan"

    def __init__(self, backend: CFamily, render: Render, unit: ScanUnit, given: tuple[Scalar, ...]):
        super().__init__(backend, render, unit, given, 0)

    def values(self, c: Code) -> list[str]:
        """The lines that give a code its operands: of this thread's k-th element."""
        made = [f"const {t.compute} {t.name} = {t.compute}(element({t.name}_tile, walk.at(k)));" for t in c.inputs]
        return made + [f"const i64 {x.name} = walk.template position<{self.position[x.name]}>(k);" for x in c.indices]

    def shares(self, every: list[ScanField]) -> list[str]:
        c = self.unit.scanned
        values = ", ".join(f"{f.type}({f.share})" for f in every)
        return [*self.values(c), *self.backend.printed(c.lines), f"tile[k] = {{{values}}};"]

    def ends(self, every: list[ScanField]) -> list[str]:
        """The lines behind the scans, and the results."""
        c, scans = self.unit.stored, self.unit.scanned.accumulators
        made = self.values(c)
        if any(not a.exclusive for a in scans):
            made.append("const Partial now = join(before.at(k), tile[k]);")
        if any(a.exclusive for a in scans):
            made.append("const Partial past = k % Walk::VEC > 0 ? join(before.at(k), tile[k > 0 ? k - 1 : 0]) : before.at(k);")
        found = {a.name: a for a in scans}
        for g in c.takes:
            of = "past" if found[g.name].exclusive else "now"
            made.append(f"const {g.type} {g.name} = {taken(self.backend, every, found[g.name], f'{of}.{{}}'.format)};")
        made += self.backend.printed(c.lines)
        return made + [f"{o.name}_held.at[walk.at(k)] = {stored(o)};" for o in c.outputs]

    def scans(self) -> CudaScans:
        """What the templates take."""
        unit, render = self.unit, self.render
        names = Names(set(render.global_names.taken).union(*(s.names for c in unit.codes for s in c.lines)))
        every = fields(self.backend, unit.scanned.accumulators, names)
        values = joined(self.backend, every, lambda name, whose: f"{whose}.{name}")
        memory = [w for w in self.operands if w.has_memory]
        params = [f"{'' if w.is_written else 'const '}{host.spelled_out(render, w.type)}* {w.pointer}_ptr" for w in memory]
        for n in self.numbers:
            params.append(f"{host.spelled_out(render, n.passed)} {n.argument.name}{'_given_k' if n.converted else ''}")
        joins = [Statement((f"both.{f.name}",), "", value) for f, value in zip(every, values, strict=True)]
        shares, ends = self.shares(every), self.ends(every)
        opening = [f"const {n.argument.type} {n.argument.name} = to<{n.argument.type}>({n.argument.name}_given_k);" for n in self.numbers
                   if n.converted]  # fmt: skip
        types = self.types() | {f.type for f in every}
        return CudaScans(
            **vars(self.launch()),
            operand_names=[w.pointer if w.has_memory else f"index[{w.record.name}]" for w in self.operands],
            kernel_head=wrapped(f"{unit.name}_kernel", ["const __grid_constant__ typename Walk::Layout rows", *params], " {"),
            kernel_aliases={a: of for a, of in render.computed_of.items() if a in types},
            opening=opening,
            fields=every,
            joins=joins,
            loads=[(t.name, f"{t.name}_ptr", t.type, self.position[t.name]) for t in unit.inputs],
            shares=shares,
            ends=ends,
            stores=[(o.name, f"{self.pointers[o.name]}_ptr", o.type, self.position[self.pointers[o.name]]) for o in unit.outputs],
            index_strides=self.index_strides,
            parameters=self.parameters(),
            parameters_about="operands; those along a row, read; whether backwards, bytes of a partial; bytes of each",
            code=[*shares, *ends, *self.backend.printed(joins), *opening, *(f.identity for f in every)],
        )

    def parameters(self) -> str:
        """The library's `ScanPass`."""
        element = [w.record.element and w.has_memory for w in self.operands]
        sizes = [f"int(sizeof({w.type}))" if has else "0" for has, w in zip(element, self.operands, strict=True)]
        masks = [mask(element), mask([w.record.role != "result" for w in self.operands])]
        partial = sum(8 * len(MONOIDS[a.kind].fields) for a in self.unit.scanned.accumulators)
        return f"ScanPass<{', '.join([str(len(sizes)), *masks, str(self.unit.backwards).lower(), str(partial), *sizes])}>"
