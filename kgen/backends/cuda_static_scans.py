"""CUDA C++ for known dims: passes along rows.

A block takes a row tile by tile.  Its threads join the neighbours that each has, then what the threads of a warp have, then what warps
have; what stands before a tile goes along with it.  Where neighbours belong to other rows, 32 rows lie side by side in a block, several
threads for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kgen.backends import cuda_host as host
from kgen.backends.c_static import block
from kgen.backends.c_static_scans import ScanTexts
from kgen.backends.cuda_static_rows import SIDE, SIDE_TEAM, KernelView, RowWriter
from kgen.backends.static import refused
from kgen.backends.text import Text, named
from kgen.backends.units import Code, ScanUnit, Tensor
from kgen.ops import SUM

if TYPE_CHECKING:
    from kgen.backends.cuda_static import CudaPrinter

#: Threads of a block, and of one whose threads take single elements: tiles are to have 512 elements, where rows have as many.
THREADS, SINGLE_THREADS = 256, 512
#: Elements of a thread where rows lie side by side, and the tiles that are joined before the tiles before them.
EACH, GROUP = 8, 16


class ScanWriter(RowWriter):
    """One pass along rows."""

    unit: ScanUnit

    def __init__(self, owner: CudaPrinter, unit: ScanUnit, planner: Callable[..., Any]):
        """Raises `KgenError` where only a call tells how long rows are."""
        self.owner, self.unit, self.render = owner, unit, owner.render
        self.readings, self.wished, self.vectors, self.frame, self.thread = list(unit.codes), "", 1, "loop", "threadIdx.x"
        self.n = self.render.size(unit.inner)
        self.in_row = set[str]()
        if self.n is None:
            raise refused(self.render.kernel, "its rows have a length that only a call tells")
        self.texts = ScanTexts(owner, unit)
        if owner.lies_across(unit):
            self.frame, self.lanes, self.team, self.threads, self.held = "across", EACH, SIDE_TEAM, SIDE * SIDE_TEAM, set[str]()
            return
        self.vectored()
        self.threads = THREADS if self.lanes > 1 else SINGLE_THREADS
        while self.threads > 32 and self.threads * self.lanes >= 2 * self.n:
            self.threads //= 2
        self.team = self.threads

    @property
    def rereads(self) -> bool:
        return False

    def kernels(self, numbers: list[host.PassedNumber]) -> list[KernelView]:
        """The kernel and its launch."""
        o, unit, side = self.owner, self.unit, SIDE if self.frame == "across" else 1
        body = [*o.converted(numbers), *self.opening(side), *o.row_values(unit), *self.texts.partial()]
        body += self.across() if side > 1 else [*self.lower(), *self.tiles()]
        about = f"A block of {self.threads} threads goes along a row, {self.threads * self.lanes} elements at a time."
        if side > 1:
            about = f"{side} rows side by side in a block, {SIDE_TEAM} threads go along each, {SIDE_TEAM * EACH} elements at a time."
        launch = o.launch(unit, numbers, o.shared_out(unit.rows, side), self.threads, body)
        return [KernelView(about, o.head(unit, numbers, self.threads, body), body, [], launch)]

    def across(self) -> list[str]:
        """The loop over the tiles of rows that lie side by side."""
        step, side = SIDE_TEAM * EACH, f"threadIdx.x % {SIDE}"
        turn = f"totals[tile / {step} % 2]"
        place = f"lane * {EACH} + k"
        back = self.unit.backwards
        here = [f"const int i = {f'{self.length} - 1 - tile - ({place})' if back else f'tile + {place}'};"]
        here.append(f"const bool there = {'i >= 0' if back else f'i < {self.length}'};")
        lines, partial = self.texts.share()
        head = f"for (int k = 0; k < {EACH}; k++)"
        with_own, without = self.texts.both
        ends, values = self.texts.ends("now", "past", apart=True)
        joins = ["const Partial now = join(start, own[k]);"] if with_own else []
        joins += ["const Partial past = k > 0 ? join(start, own[k - 1]) : start;"] if without else []
        outputs = self.unit.stored.outputs
        stores = [f"if (inside && there) {self.element(t)} = {self.owner.element(t, values[t.name])};" for t in outputs]
        shares = [*here, *self.values(self.unit.scanned), *lines, f"own[k] = {partial};", "if (k > 0) own[k] = join(own[k - 1], own[k]);"]
        tile = [
            f"Partial own[{EACH}];", "#pragma unroll", *block(head, shares),
            f"{turn}[lane][{side}] = own[{EACH - 1}];", "__syncthreads();", "Partial start = none, sum = none;",
            f"for (int l = 0; l < {SIDE_TEAM}; l++) {{", "    if (l == lane) start = sum;", f"    sum = join(sum, {turn}[l][{side}]);", "}",
            "start = join(join(groups, few), start);", "few = join(few, sum);", f"if (tile / {step} % {GROUP} == {GROUP - 1}) {{",
            "    groups = join(groups, few);", "    few = none;", "}",
            "#pragma unroll", *block(head, [*here, *self.values(self.unit.stored), *joins, *ends, *stores]),
        ]  # fmt: skip
        return [
            f"__shared__ Partial totals[2][{SIDE_TEAM}][{SIDE}];  // two, so that one barrier is enough",
            f"Partial groups = none, few = none;  // the tiles before this one: whole groups of {GROUP}, and the last ones",
            *block(f"for (int tile = 0; tile < {self.length}; tile += {step})", tile),
        ]  # fmt: skip

    def lower(self) -> list[str]:
        """The function that gives what another thread of the warp has."""
        moves = [f"made.{f.name} = __shfl_up_sync(~0u, from.{f.name}, apart);" for f in self.texts.fields]
        return [
            "const auto lower = [](const Partial& from, int apart) {  // of the thread that is so far before this one",
            "    Partial made;", *(f"    {line}" for line in moves), "    return made;", "};",
        ]  # fmt: skip

    def tiles(self) -> list[str]:
        """The loop over a row's tiles."""
        warps, step = self.threads // 32, self.threads * self.lanes
        made = ["const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;"] if warps > 1 else ["const int lane = threadIdx.x;"]
        if warps > 1:
            made.append(f"__shared__ Partial totals[2][{warps}];  // two, so that one barrier is enough")
        made.append("Partial before = none;")
        place = "threadIdx.x" if self.lanes == 1 else f"threadIdx.x * {self.lanes}"
        back = self.unit.backwards
        first = f"{self.length} - {self.lanes} - tile - int({place})" if back else f"tile + {place}"
        tile = [f"const int i = {first};", f"const bool inside = {'i >= 0' if back else f'i < {self.length}'};"]
        for t in self.texts.inputs():
            if self.in_vectors(t):
                read = self.owner.load(t.type, self.lanes, self.where(t))
                tile += [f"{self.owner.vector(t.type, self.lanes)} {t.name}_vector = {{}};", f"if (inside) {t.name}_vector = {read};"]
        tile += [*self.shares(), *self.prefix(warps, step), *self.stores()]
        return [*made, *block(f"for (int tile = 0; tile < {self.length}; tile += {step})", tile)]

    def each(self, lines: list[str]) -> list[str]:
        """A loop over a thread's elements in the order of the scan."""
        if self.lanes == 1:
            return ["{", *(f"    {line}" for line in lines), "}"]
        last = self.lanes - 1
        head = f"for (int k = {last}; k >= 0; k--)" if self.unit.backwards else f"for (int k = 0; k < {self.lanes}; k++)"
        return ["#pragma unroll", *block(head, lines)]

    def values(self, c: Code) -> list[str]:
        """The lines that name what a code reads of an element."""
        one = Text(("i", " + ", "k"), SUM) if self.lanes > 1 and self.frame != "across" else named("i")
        made = [f"const {t.compute} {t.name} = {self.read(t)};" for t in c.inputs if not self.unit.is_row(t)]
        return made + [self.owner.position(x, (self.unit.inner, one)) for x in c.indices if not self.unit.is_row(x)]

    def read(self, t: Tensor) -> str:
        """An element, 0 behind the row's end."""
        if self.in_vectors(t):
            return f"{t.compute}({self.element(t)})"
        return f"{'there' if self.frame == 'across' else 'inside'} ? {t.compute}({self.element(t)}) : {t.compute}(0)"

    def shares(self) -> list[str]:
        """A thread's elements, each joined to those before it that the thread has."""
        lines, partial = self.texts.share()
        at = "own[k]" if self.lanes > 1 else "own[0]"
        body = [*self.values(self.unit.scanned), *lines, f"{at} = {partial};"]
        if self.lanes > 1:
            back = self.unit.backwards
            prior = "k + 1" if back else "k - 1"
            body.append(f"if ({f'k < {self.lanes - 1}' if back else 'k > 0'}) own[k] = join(own[{prior}], own[k]);")
        return [f"Partial own[{self.lanes}];", *self.each(body)]

    def prefix(self, warps: int, step: int) -> list[str]:
        """What stands before a thread's elements, as `start`, and before the next tile."""
        made = [
            f"Partial all = own[{0 if self.unit.backwards else self.lanes - 1}];",
            "for (int apart = 1; apart < 32; apart *= 2) {", "    const Partial other = lower(all, apart);",
            "    if (lane >= apart) all = join(other, all);", "}",
        ]  # fmt: skip
        sums = "sum"
        if warps > 1:
            turn = f"totals[tile / {step} % 2]"
            made += [
                f"if (lane == 31) {turn}[warp] = all;", "__syncthreads();", "Partial start = none, sum = none;",
                f"for (int w = 0; w < {warps}; w++) {{", "    if (w == warp) start = sum;", f"    sum = join(sum, {turn}[w]);", "}",
            ]  # fmt: skip
        else:
            made.append("Partial start = none;")
            sums = "last"
        made += ["const Partial left = lower(all, 1);", "if (lane > 0) start = join(start, left);", "start = join(before, start);"]
        if warps == 1 and self.n is not None and self.n <= step:
            return made
        if warps == 1:
            moves = [f"last.{f.name} = __shfl_sync(~0u, all.{f.name}, 31);" for f in self.texts.fields]
            made += ["Partial last;", *moves]
        return [*made, f"before = join(before, {sums});"] if self.n is None or self.n > step else made

    def stores(self) -> list[str]:
        """The elements behind the scans."""
        o, unit, before, after = self.owner, self.unit, list[str](), list[str]()
        with_own, without = self.texts.both
        own = "own[k]" if self.lanes > 1 else "own[0]"
        lines = [*self.values(unit.stored)]
        if with_own:
            lines.append(f"const Partial now = join(start, {own});")
        if without:
            back = unit.backwards
            first, prior = (f"k < {self.lanes - 1}", "k + 1") if back else ("k > 0", "k - 1")
            past = f"{first} ? join(start, own[{prior}]) : start" if self.lanes > 1 else "start"
            lines.append(f"const Partial past = {past};")
        ends, values = self.texts.ends("now", "past", apart=True)
        lines += ends
        for t in unit.stored.outputs:
            target = str(self.element(t))
            if self.in_vectors(t):
                kind = o.vector(t.type, self.lanes)
                before.append(f"{kind} {t.name}_out;")
                target = str(o.lane(f"{t.name}_out", self.lanes))
                after.append(f"if (inside) *reinterpret_cast<{kind}*>({self.where(t)}) = {t.name}_out;")
                lines.append(f"{target} = {o.element(t, values[t.name])};")
            else:
                lines.append(f"if (inside) {target} = {o.element(t, values[t.name])};")
        return [*before, *self.each(lines), *after]
