"""Triton's passes over independent elements: from a `Unit` to the texts of its jit functions.

In: a pass's code and operands.  Out: what templates/triton/map.py.jinja lays out: the function of an element, that of a block, which
loads and stores, and the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from kgen.backends.base import Render
from kgen.backends.names import Names
from kgen.backends.python_text import chunks, listed, wrapped
from kgen.backends.text import Text, joined, source
from kgen.backends.triton_order import MEET, overtaking
from kgen.backends.triton_tiles import TILES
from kgen.backends.units import Argument, Statement, Tensor, Unit
from kgen.taps import Move

if TYPE_CHECKING:
    from kgen.backends.triton import Triton

CONSTEXPR = "tl.constexpr"


@dataclass(frozen=True, kw_only=True)
class TritonUnit:
    """What a file needs to know of a pass: by form, its kernels, their parameters in lines, and which of these change from call to call,
    as a range; `launch` is the host's call, `calls` are the functions that its code calls, `generics` the types that it accumulates in."""

    rows: ClassVar[bool] = False
    kernels: dict[str, str]
    heads: dict[str, list[str]]
    dynamic: dict[str, tuple[int, int]]
    definitions: list[Statement]
    rounded: list[Statement]
    scalars: tuple[Argument, ...]
    launch: str
    calls: tuple[str, ...]
    long: bool = False
    apart: bool = False
    bare: bool = False
    hold: bool = False
    finds: bool = False
    searches: bool = False
    spreads: bool = False
    peak: bool = False
    scan: bool = False
    taps: bool = False
    windows: bool = False
    guarded: bool = False  # one code for all blocks, with few elements of a thread: of many neighbours
    generics: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class MapView(TritonUnit):
    """A map: the function of an element, and what that of a block does around it."""

    lines: tuple[Statement, ...]
    returns: Text
    element_head: str
    block_head: str
    loads: list[Statement]
    call: str
    whole: list[Statement]
    stores: list[Statement]
    steps: list[Statement]
    full: str
    partial: str


@dataclass(frozen=True)
class Operand:
    """An operand by the names that it has in the kernel; `pointer` is empty for an index."""

    key: str
    pointer: str
    steps: str
    strides: tuple[str, ...]
    kind: str
    at: str


@dataclass(frozen=True)
class Near:
    """The names of what a map's taps need: each dim's size, each tensor's stride along a dim, and what divides that."""

    sizes: dict[str, str] = field(default_factory=dict)
    strides: dict[tuple[str, str], str] = field(default_factory=dict)
    even: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def numbers(self) -> list[str]:
        """Those that change from call to call."""
        return [*self.sizes.values(), *self.strides.values()]


class MapPrinter:
    """The texts of one unit; `view` is what the templates take."""

    def __init__(self, backend: Triton, render: Render, unit: Unit):
        self.backend, self.render, self.unit = backend, render, unit
        self.names = Names(set(render.global_names.taken))
        self.kept = {name for _, name in render.kept.values()}
        self.inputs = tuple(map(self.hosts, unit.inputs))
        self.outputs = tuple(self.hosts(replace(o, value=backend.typed(o.value, o.compute))) for o in unit.outputs)
        self.storage = [backend.stored(o.name, o, render.computed_of) for o in self.outputs]
        self.pointers = self._pointers()
        self._types()
        self.operands = {o.key: o for o in self._operands()}
        self.block = self.names.fresh(f"{unit.name}_block")
        self.near = self._near()
        self.each = self._each()
        self.guarded = bool(self.each)
        self.starts = {i.name: self.names.fresh(f"{i.name}_first") for i in unit.indices}

    def hosts(self, t: Tensor) -> Tensor:
        """A workspace has no name in the spec: the host's code calls it by its own."""
        return replace(t, spec_name=t.name) if t.spec_name in self.render.kept else t

    def _pointers(self) -> dict[str, str]:
        loaded = {t.spec_name for t in self.inputs}
        found = {}
        for t in (*self.inputs, *(o for o in self.outputs if o.spec_name not in loaded)):
            stem = t.name if t.spec_name in self.kept else self.render.global_names.user(t.spec_name)
            found[t.spec_name] = self.names.fresh(f"{stem}_ptr")
        return found

    def _types(self) -> None:
        """Which dtype variables and aliases the functions need, and where the variables come from: a pointer, or the host."""
        names, computed_of = list(self.render.variables.values()), self.render.computed_of
        tensors = (*reversed(self.outputs), *reversed(self.inputs))
        self.types = {t.type: self.pointers[t.spec_name] for t in tensors if t.type in names}
        body = frozenset[str]().union(*(s.uses for s in self.unit.lines), *(o.value.uses for o in self.outputs))
        computes = {*(t.compute for t in self.inputs if t.type != t.compute), *(s.type for s in self.unit.scalars)}
        computes |= {t.compute for t in self.unit.taps}
        self.aliases = {a: of for a, of in computed_of.items() if a in body | computes}
        uses = body.union(*(s.uses for s in self.storage), *self.aliases.values())
        self.variables = [v for v in names if v in uses]
        self.passed = [v for v in self.variables if v not in self.types]
        self.even = [f"{i.name}_even" for i in self.unit.indices if f"{i.name}_even" in body]
        self.constants = [v for v in (*self.variables, *self.aliases, *self.even) if v in body]

    def _operands(self) -> Iterable[Operand]:
        """The operands in the order of their strides: the last is a result."""
        written = {o.spec_name for o in self.outputs}
        order = [*(s for s in self.pointers if s not in written), *(i.name for i in self.unit.indices)]
        order += [s for s in self.pointers if s in written]
        fresh = self.names.fresh
        stems = {key: self.pointers[key][:-4] if key in self.pointers else key for key in order}
        steps = {key: fresh(f"{stems[key]}_steps") for key in order}
        strides = {key: tuple(fresh(f"{steps[key][:-6]}_{d}") for d in range(4)) for key in order}
        kinds = {key: fresh(f"{steps[key][:-6]}_kind") for key in order}
        at = {key: fresh(f"{steps[key][:-6]}_at") for key in order}
        return [Operand(key, self.pointers.get(key, ""), steps[key], strides[key], kinds[key], at[key]) for key in order]

    def _near(self) -> Near:
        """What taps need: of each dim its size, of each tensor along a dim its stride, and a constant that divides it."""
        near, fresh = Near(), self.names.fresh
        for t in self.unit.taps:
            stem = self.pointers[self.hosts(t.tensor).spec_name][:-4]
            for m in t.by:
                key = self.hosts(t.tensor).spec_name, m.dim
                if m.dim not in near.sizes:
                    near.sizes[m.dim] = fresh(f"size_{m.dim}")
                if key not in near.strides:
                    near.strides[key] = fresh(f"{stem}_{m.dim}_stride")
                    near.even[key] = fresh(f"{stem}_{m.dim}_EVEN")
        return near

    def _each(self) -> int:
        """The most elements of a thread, where neighbours are so many that this is fewer than a vector of 16-bit elements has; else 0.
        Random words are made for vectors of elements."""
        each = 1 << max(1, TILES.near // max(1, len(self.unit.taps))).bit_length() - 1
        return each if each < 8 and not self.even else 0

    # ------------------------------------------------------------------ the functions

    def loads(self) -> list[Statement]:
        """Where each operand's elements are, and the elements."""
        made = []
        for k, o in enumerate(self.operands.values()):
            made.append(Statement((o.kind,), CONSTEXPR, source(f"KINDS[{k}]")))
            where = joined(["first", "lane", "sizes", o.steps, o.kind, "RANK", "INDEX"])
            function = "within" if self.spreads() else "offset"
            value = source("place({0}, {1})", o.pointer, where) if o.pointer else source(f"{function}({{0}}, 1)", where)
            made.append(Statement((o.at,), "", value))
        for t in self.read():
            o = self.operands[t.spec_name]
            read = source("tl.load({0}, mask)", o.at) if t.dims else source("tl.load({0})", o.pointer)  # one for all
            made.append(Statement((t.name,), "", self.backend.widen(read, t)))
        for i in self.unit.indices:
            made.append(Statement((i.name,), "", source("{0} + {1}.to(tl.int64)", self.starts[i.name], self.operands[i.name].at)))
            if f"{i.name}_even" in self.even:
                made.append(Statement((f"{i.name}_even",), CONSTEXPR, source('4 if {0} == "flat" else 1', self.operands[i.name].kind)))
        return made + self.taps()

    def read(self) -> list[Tensor]:
        """The inputs that an element is read of at its own place."""
        return [t for t in self.inputs if t.name not in self.unit.aside]

    def taps(self) -> list[Statement]:
        """The neighbours that a block reads: how far away they lie along each dim, and they themselves."""
        made, indices = list[Statement](), {i.spec_name: i.name for i in self.unit.indices}
        moves: dict[tuple[str, Move], tuple[str, str]] = {}
        for t in self.unit.taps:
            pairs, key = [], self.hosts(t.tensor).spec_name
            for m in t.by:
                if (key, m) not in moves:
                    way = m.way if m.along else "moved" if not m.fixed else "back" if m.by < 0 else "on"
                    stem = f"{self.near.strides[key, m.dim][:-7]}_{way}"
                    moves[key, m] = self.names.fresh(f"{stem}_away"), self.names.fresh(f"{stem}_inside")
                    made.append(Statement(moves[key, m], "", self.shift(key, m, indices[m.counts])))
                pairs.append(moves[key, m])
            away, inside = joined((a for a, _ in pairs), " + "), joined((i for _, i in pairs), " & ")
            value = self.backend.widen(source("load_tap({0}, {1}, {2}, mask)", self.operands[key].at, away, inside), t.tensor)
            fill = self.backend.typed(t.fill, t.compute)
            made.append(Statement((t.name,), "", source("tl.where({0}, {1}, {2})", inside, value, fill)))
        return made

    def shift(self, key: str, m: Move, index: str) -> Text:
        """How far a move goes in the memory of a tensor, and where that is inside it."""
        if m.along:
            up = max(0, -(m.by // m.over)) if m.over > 1 else 0  # no division of what is below 0
            left = m.by + up * m.over
            place = f"{{0}} * {m.times}" if m.times > 1 else "{0}"
            place += "".join(f" {'-' if sign < 0 else '+'} {{{k}}}" for k, (sign, _) in enumerate(m.numbers, 3))
            place += f" {'-' if left < 0 else '+'} {abs(left)}" if left else ""
            place = f"({place}) // {m.over}" if m.over > 1 and (left or m.times > 1) else f"{place} // {m.over}" if m.over > 1 else place
            place += f" - {up}" if up else ""
            numbers = [name for _, name in m.numbers]
            return source(f"window_at({place}, {{1}}, {{2}})", index, self.near.sizes[m.dim], self.near.strides[key, m.dim], *numbers)
        terms = [source("-{0}" if sign < 0 else "{0}", name) for sign, name in m.numbers]
        by = joined([str(m.by), *terms] if m.by or not terms else terms, " + ")
        operands = [index, by, self.near.sizes[m.dim], self.near.strides[key, m.dim], self.near.even[key, m.dim], str(m.wraps)]
        return source("shifted_by({0})", joined(operands))

    def stores(self, mask: str = ", mask") -> list[Statement]:
        """The stores of a block's results, with its mask or without; behind all threads' loads where one may store over another's."""
        pairs = zip(self.outputs, self.storage, strict=True)
        made = [Statement(value=source(f"tl.store({{0}}, {{1}}{mask})", self.operands[o.spec_name].at, text)) for o, text in pairs]
        return [*([MEET] if overtaking(self.outputs, self.read(), self.unit.lines, self.render) else []), *made]

    def spreads(self) -> bool:
        """Whether operands lie along some of its dims alone: a tile of several rows then loads them once."""
        return not self.guarded and any(set(t.dims) != set(self.unit.dims) for t in (*self.inputs, *self.unit.indices))

    def view(self) -> MapView:
        """What the templates take."""
        u, b = self.unit, self.backend
        returns, loads, stores = joined(o.value for o in self.outputs), self.loads(), self.stores()
        rounded = [b.rounded(s) for s in u.scalars]
        code = [*(s.value for s in u.lines), returns, *(s.value for s in (*loads, *stores, *rounded))]
        scalars = [f"{s.name}: {b.number_type(s)}" for s in u.scalars]
        values = [*(t.name for t in self.read()), *(t.name for t in u.taps), *(i.name for i in u.indexed), *(s.name for s in u.scalars)]
        pointers = [o.pointer for o in self.operands.values() if o.pointer]
        kernel, fixed = f"{u.name}_kernel", len(pointers)
        mask = "mask" if self.spreads() or self.guarded else "lane[0] + lane[1] < numel - first"
        given = "full, mask" if self.guarded else "mask"
        return MapView(
            kernels={"map": kernel},
            heads={"map": self.kernel_lines(pointers, scalars)},
            dynamic={"map": (fixed, fixed + len(scalars) + 4 + 4 * len(self.operands) + len(self.starts) + len(self.near.numbers))},
            definitions=definitions(self.variables, self.aliases, self.types),
            rounded=rounded,
            scalars=u.scalars,
            launch=self.launch(kernel),
            calls=tuple(c for text in code for c in text.calls),
            lines=u.lines,
            returns=returns,
            element_head=wrapped(f"def {u.element}", [*values, *(f"{c}: {CONSTEXPR}" for c in self.constants)], ":"),
            block_head=wrapped(f"def {self.block}", self.block_items(given, f": {CONSTEXPR}"), ":"),
            loads=loads,
            call=wrapped(f"    {', '.join(o.name for o in self.outputs)} = {u.element}", [*values, *self.constants], ""),
            whole=self.stores("") if self.guarded else [],
            stores=stores,
            spreads=self.spreads(),
            taps=bool(u.taps),
            windows=bool(u.reaches),
            guarded=self.guarded,
            steps=[Statement((o.steps,), "", source("({0})", joined(o.strides))) for o in self.operands.values()],
            full=self.call_block(given if self.guarded else "None"),
            partial="" if self.guarded else self.call_block(mask),
        )

    def call_block(self, mask: str) -> str:
        """The kernel's call of the function of a block."""
        return wrapped(f"    {self.block}" if self.guarded else f"        {self.block}", self.block_items(mask), "")

    def block_items(self, mask: str, constexpr: str = "") -> list[str]:
        """What the function of a block takes, or is given."""
        items = [*(o.pointer for o in self.operands.values() if o.pointer), *(s.name for s in self.unit.scalars), "first", "lane", mask]
        items += ["sizes", *(o.steps for o in self.operands.values()), *self.starts.values(), *self.near.numbers]
        return [*items, *(f"{c}{constexpr}" for c in ("KINDS", "RANK", "INDEX", *self.near.even.values(), *self.passed))]

    def kernel_lines(self, pointers: list[str], scalars: list[str]) -> list[str]:
        """The kernel's parameters, in lines."""
        lines = [", ".join(pointers), *chunks(scalars, 6), ", ".join(f"{n}: tl.int64" for n in ("numel", "n1", "n2", "n3"))]
        lines += [", ".join(f"{s}: tl.int64" for s in o.strides) for o in self.operands.values()]
        lines += [", ".join(f"{s}: tl.int64" for s in self.starts.values())] if self.starts else []
        lines += [", ".join(f"{s}: tl.int64" for s in self.near.numbers)] if self.near.numbers else []
        rows = ["ROWS"] if self.spreads() else []
        fixed = ("KINDS", "RANK", "INDEX", "BLOCK", *rows, *self.near.even.values(), *self.passed)
        return [*lines, ", ".join(f"{c}: {CONSTEXPR}" for c in fixed)]

    def launch(self, kernel: str) -> str:
        """The host function's call of `launch`."""
        spec = {i.name: i.spec_name for i in self.unit.indices}
        names = [o.key if o.pointer else f"index[{spec[o.key]}]" for o in self.operands.values()]
        written = dict.fromkeys(o.spec_name for o in self.outputs)
        items = [kernel, f'"{" ".join(self.unit.dims)}"', "tensors", listed(names), listed(list(written)),
                 f"[{', '.join(passing(self.unit.scalars))}]", "sizes"]  # fmt: skip
        passed = self.backend.spec_variables(self.render, self.passed)
        items += ["(" + "".join(f'FLOATS[dtypes["{v}"]], ' for v in passed) + ")"] if passed else []
        items += ["spreads=True"] if self.spreads() else []
        items += [f"near={list(self.near.strides)}".replace("'", '"')] if self.near.strides else []
        items += [f"each={self.each}"] if self.guarded else []
        return wrapped("    launch", items, "")


def definitions(variables: Iterable[str], aliases: dict[str, list[str]], types: dict[str, str]) -> list[Statement]:
    """The dtype variables that pointers tell, and what variables are computed in."""
    made = [Statement((v,), CONSTEXPR, source("{0}.dtype.element_ty", types[v])) for v in variables if v in types]
    for a, of in aliases.items():
        wide = joined((source("{0} == tl.float64", v) for v in of), " or ")
        made.append(Statement((a,), CONSTEXPR, source("tl.float64 if {0} else tl.float32", wide)))
    return made


def passing(scalars: Iterable[Argument]) -> list[str]:
    """What the host passes for each scalar: a number as it stands, or what it computed before."""
    return [s.text if s.text.is_name else s.name for s in scalars]
