"""CUDA C++ for known dims: passes over rows that add up columns too.

Blocks take rows one after the other; a thread keeps the sums of its columns in registers, and leaves them in work space, which a second
kernel adds up: 32 columns side by side in a block, as it has rows elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kgen.backends import cuda_host as host
from kgen.backends import devices, round_launches
from kgen.backends.c_static import block
from kgen.backends.cuda_static_rows import SIDE, SIDE_BLOCK, SIDE_TEAM, KernelView, RowWriter
from kgen.backends.round_launches import MOST_ROUNDS
from kgen.backends.text import Text, named, source, wrapped
from kgen.backends.units import Accumulator, Code

#: Rows that are added up before they join the others.
FEW = 16
BLOCKS_OF = f"""// The blocks for so many groups of rows: as many as there is `room` for at once, more where one took over {MOST_ROUNDS}.
static i64 blocks_of(i64 groups, i64 room) {{
    const i64 turns = (groups + {MOST_ROUNDS} * room - 1) / ({MOST_ROUNDS} * room), most = turns > 1 ? turns * room : room;
    return groups < most ? groups : most;
}}"""


class RoundsWriter(RowWriter):
    """One pass over rows with sums over them."""

    @property
    def stays(self) -> bool:
        """Whether a row stays in the registers of its threads, beside the sums of their columns."""
        return self.frame == "held"

    def along(self, kernel: Any, planner: Callable[..., Any]) -> None:
        """Share a row out by the table of rounds, where lanes of a warp or a block hold it."""
        assert self.n is not None
        self.vectored()
        chunks, sums = self.n // self.lanes, len(self.unit.columns)
        own = max(1, round_launches.PARTIALS // (sums * self.lanes))
        self.frame = "loop"
        for rule in round_launches.ROUNDS[self.lanes > 4, sums > 1]:
            vectors = min(own, max(1, rule.elements // self.lanes))
            needed = max(2, -(-chunks // (32 * vectors))) * 32
            if chunks > rule.longest or rule.maps and self.reductions:
                continue
            if not (chunks <= rule.team * vectors if rule.where == "lanes" else needed <= rule.threads):
                continue
            most = rule.threads if rule.where == "lanes" else 1 << (needed - 1).bit_length()
            self.room = devices.resident("sm_90", max(1, rule.blocks * rule.threads // most), 1)
            if rule.where in ("lanes", "block"):
                self.frame, self.vectors, self.threads, self.team = "held", vectors, needed, needed
            if rule.where == "lanes":
                self.threads, self.team = rule.threads, min(rule.team, 1 << (chunks - 1).bit_length())
                self.vectors = -(-chunks // self.team)
            return

    @property
    def guard(self) -> str:
        return "inside" if self.threads > self.team else ""

    @property
    def side(self) -> int:
        return self.threads // self.team

    def parts(self) -> list[tuple[str, str, Text]]:
        """The work space, as the host function declares it: type, name and size."""
        rows = f"{self.blocks()}{f' * {self.side}' if self.side > 1 else ''}"
        return [(a.type, self.part_of(a), source("{0} * {1}", self.length, named(rows))) for a in self.unit.columns]

    def blocks(self) -> str:
        """How many blocks go through rows, as text."""
        return f"blocks_of({self.owner.shared_out(self.unit.rows, self.side)}, {self.room})"

    @staticmethod
    def part_of(a: Accumulator) -> str:
        return f"{a.name}_parts"

    def kernels(self, numbers: list[host.PassedNumber]) -> list[KernelView]:
        """The kernel that goes through rows, and the one that adds up what it leaves."""
        return [self.through(numbers), self.finishing(numbers)]

    def view(
        self, about: str, ends: bool, numbers: list[host.PassedNumber], blocks: str, threads: int, body: list[str]
    ) -> KernelView:
        """A kernel of some lines with its launch; `ends` whether it is the one that reads the work space, and is told how much that is."""
        o, unit = self.owner, self.unit
        finish, name = unit.finish, f"{unit.name}{'_columns' * ends}_kernel"
        assert finish is not None
        own = [x for c in unit.codes for x in c.outputs]
        part = replace(unit, inputs=finish.inputs, gathers=(), outputs=finish.outputs) if ends else replace(unit, outputs=tuple(own))
        items = [d for d, _ in o.arguments(part)] + [f"{'const ' if ends else ''}{a.type}* {self.part_of(a)}" for a in unit.columns]
        items += [f"{n.passed} {n.argument.name}{'_given_k' if n.converted else ''}" for n in numbers]
        given = [p for _, p in o.arguments(part)] + [self.part_of(a) for a in unit.columns] + [str(n.given) for n in numbers]
        if o.takes_count(body):
            items.append(f"i64 {self.render.count}")
            given.append(self.render.count)
        if ends:
            items.append("i64 parts")
            given.append(f"{self.blocks()}{f' * {self.side}' if self.side > 1 else ''}")
        head = wrapped(f"__global__ void __launch_bounds__({threads}) {name}", items, " {")
        some = "" if ends or blocks.isdigit() else o.some
        lines = [f"const {s.type} {s.name} = {value};{'  // ' + s.note if s.note else ''}" for s, value in host.computed(numbers)]
        lines.append(wrapped(f"{some}{name}<<<unsigned({blocks}), {threads}, 0, stream>>>", given, ";"))
        launch = lines if len(lines) == 1 else ["{", *(f"    {line}" for line in lines), "}"]
        return KernelView(about, head, [*o.converted(numbers), *body], [], launch)

    def through(self, numbers: list[host.PassedNumber]) -> KernelView:
        """The kernel whose blocks take rows one after the other."""
        o, unit, side, total = self.owner, self.unit, self.side, self.vectors * self.lanes
        self.thread = "lane" if side > 1 else "threadIdx.x"
        count = self.render.product(unit.rows)
        elements = [t for t in (*unit.inputs, *unit.outputs) if not unit.is_row(t)]
        walked = [t for t in elements if self.render.place(t.dims, unit.rows, named("row")) is not None]
        self.in_row = {t.spec_name for t in walked}
        made = [f"const int lane = threadIdx.x % {self.team};"] if side > 1 else []
        for a in unit.columns:
            made.append(f"{a.type} {a.name}_few[{total}] = {{}};")
        made += [f"int left = {FEW};", "bool written = false;"]
        if side > 1:
            loop = [f"const i64 first = base + threadIdx.x / {self.team};", f"const bool inside = first < {count};"]
            loop.append(f"const i64 row = inside ? first : {count} - 1;  // reads what another thread reads, writes nothing")
        else:
            loop = []
        loop += [*o.row_pointers(walked, unit.rows, unit), *o.row_values(unit), *self.holding()]
        for c in unit.codes:
            loop += self.reading(c) if c.element else self.row_phase(c)
        by, base = (f" * {side}", "base") if side > 1 else ("", "row")
        loop.append(f"if (--left > 0 && {base} + i64(gridDim.x){by} < {count}) continue;")
        loop += [*self.flushed(), f"left = {FEW};", "written = true;"]
        made += block(f"for (i64 {base} = i64(blockIdx.x){by}; {base} < {count}; {base} += i64(gridDim.x){by})", loop)
        own = f"A block of {self.threads} threads takes" if side == 1 else f"{self.team} threads take"
        about = f"{own} rows one after the other, each kept in registers, {total} elements a thread."
        about += f"\nSums of their columns join those in the work space after every {FEW} rows."
        groups = o.shared_out(unit.rows, side)
        if not groups.isdigit():
            o.blocks[groups] = None
        return self.view(about, False, numbers, self.blocks(), self.threads, made)

    def flushed(self) -> list[str]:
        """The lines that add the sums of some rows to those before in the work space."""
        row = f"(i64(blockIdx.x) * {self.side} + threadIdx.x / {self.team})" if self.side > 1 else "i64(blockIdx.x)"
        k, at = (" + k", f"v * {self.lanes} + k") if self.lanes > 1 else ("", "v")
        lines = []
        for a in self.unit.columns:
            place = f"{self.part_of(a)}[{row} * {self.length} + i{k}]"
            few, whole = f"{a.name}_few[{at}]", f"{a.name}_sum"
            lines += [f"{a.type}& {whole} = {place};", f"{whole} = written ? {whole} + {few} : {few};", f"{few} = 0;"]
        return self.each_vector(self.owner.unrolled(lines, self.lanes))

    def put_together(self, c: Code) -> list[str]:
        made = super().put_together(c)
        self.owner.asked += self.owner.asked[-len(c.accumulators) :]  # in a loop threads combine what they have again
        return made

    def columns(self, c: Code) -> list[str]:
        at = f"v * {self.lanes} + k" if self.lanes > 1 else "v"
        return [f"{a.name}_few[{at}] += {a.value};" for a in c.columns]

    def finishing(self, numbers: list[host.PassedNumber]) -> KernelView:
        """The kernel that adds up the columns, and stores what follows."""
        o, unit, c = self.owner, self.unit, self.unit.finish
        assert c is not None
        length, column = self.length, named("column")
        made = [f"const i64 first = i64(blockIdx.x) * {SIDE} + threadIdx.x % {SIDE};", f"const bool inside = first < {length};"]
        made += [f"const i64 column = inside ? first : {length} - 1, lane = threadIdx.x / {SIDE};"]
        for a in unit.columns:
            size = SIDE_TEAM * SIDE_BLOCK
            made.append(f"{o.pairwise(a)} {a.name}_blocks;")
            inner = [f"{a.type} few = 0;"]
            adds = [f"few += {self.part_of(a)}[p * {length} + column];"]
            inner += block(f"for (i64 p = base; p < parts && p < base + {size}; p += {SIDE_TEAM})", adds)
            made += block(f"for (i64 base = lane; base < parts; base += {size})", [*inner, f"{a.name}_blocks.add(few);"])
            made.append(f"const {a.type} {a.name} = {o.team('side', SIDE_TEAM, a)}({a.name}_blocks.total(0));")
        for t in c.inputs:
            made.append(f"const {t.compute} {t.name} = {t.compute}({o.at(t, self.render.place(t.dims, unit.inner, column))});")
        made += [o.position(x, (unit.inner, column)) for x in c.indices]
        made += o.printed(unit, c.lines)
        stores = [f"{o.at(x, self.render.place(x.dims, unit.inner, column))} = {o.element(x, x.value)};" for x in c.outputs]
        made += block("if (inside && lane == 0)", stores)
        about = f"What those left of {SIDE} columns side by side, {SIDE_TEAM} threads for each."
        return self.view(about, True, numbers, o.shared_out(unit.inner, SIDE), SIDE * SIDE_TEAM, made)
