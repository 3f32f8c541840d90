"""What the host functions of CUDA's maps and passes over rows have in common: entries of C, numbers, and operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from kgen.backends.base import Render
from kgen.backends.c_family import CFamily
from kgen.backends.cuda_layouts import TYPES, passed, stored
from kgen.backends.text import Text, wrapped
from kgen.backends.units import Argument, RowUnit, Unit
from kgen.passes import Scalar
from kgen.types import DTYPES


@dataclass(frozen=True)
class PassedNumber:
    """A scalar of a pass: `passed` is the C++ type in which the kernel takes it, `rounded` its number in its own type."""

    argument: Argument
    passed: str
    rounded: Text

    @property
    def converted(self) -> bool:
        """Whether the kernel itself rounds it to its own type."""
        return self.passed != self.argument.type

    @property
    def is_given(self) -> bool:
        """Whether its number is an argument or a literal, and has no line in the host function."""
        return self.argument.text.is_word

    @property
    def given(self) -> str:
        """What the host function passes on."""
        return self.argument.name if not self.is_given else self.argument.text if self.converted else self.rounded

    @property
    def uses(self) -> frozenset[str]:
        """The names that the host function reads for it."""
        value = self.argument.text if self.converted else self.rounded
        return value.uses | {self.passed} if not self.is_given else value.uses


@dataclass(frozen=True)
class HostOperand:
    """An operand as the library's launches take it: a pointer with its strides and its element's type, "" for an index, which has no
    memory; of maps also whether it is written; of rows whether it has elements along a row, and the size and stride of a gather."""

    pointer: str
    strides: str
    type: str
    element: str = ""
    gather: str = ""
    written: bool = False


@dataclass(frozen=True, kw_only=True)
class HostView:
    """The texts of a host function and of its entries of C."""

    scans: ClassVar[bool] = False
    kernel: str
    typename: str
    chosen: str
    run_head: str
    entries: list[tuple[str, str]]
    computed: list[tuple[Argument, str]]
    host_aliases: dict[str, list[str]]
    host_operands: list[HostOperand]
    launch: str
    rounded: list[Text]
    parts: list[str] = field(default_factory=list)  # the positions of the operands of each group that may lie in turns


def numbers(backend: CFamily, unit: Unit | RowUnit, given: tuple[Scalar, ...]) -> list[PassedNumber]:
    """The scalars of a pass, in order."""
    types = (TYPES[passed(g, {})] if stored(g) else s.type for s, g in zip(unit.scalars, given, strict=True))
    return [PassedNumber(s, type_name, backend.rounded(s)) for s, type_name in zip(unit.scalars, types, strict=True)]


def computed(found: list[PassedNumber]) -> list[tuple[Argument, str]]:
    """The numbers that have a line in the host function, each with its text."""
    lines = []
    for n in found:
        if not n.is_given:
            value = n.rounded if "saturate" in n.rounded.calls else f"{n.passed}({n.argument.text})"
            lines.append((replace(n.argument, type=n.passed), value))
    return lines


def entries(
    unit: Unit | RowUnit, run: str, params: Callable[[dict[str, str]], list[str]], passing: list[str]
) -> list[tuple[str, str]]:  # fmt: skip
    """A function of C for each choice of dtypes, as its head and its call of the host function."""
    made = []
    for bound in map(dict, unit.bindings):
        types = "<" + ", ".join(TYPES[d] for d in bound.values()) + ">" if bound else ""
        head = wrapped(f'extern "C" cudaError_t {"_".join([unit.name, *bound.values()])}', params(bound), " {")
        made.append((head, indented(wrapped(f"    return host::{run}{types}", passing, ";"), 4)))
    return made


def element_type(render: Render, type_name: str, bound: dict[str, str]) -> str:
    """A tensor's element type where no alias is in scope, for dtype variables bound to dtypes (or left open)."""
    if type_name in bound:
        return TYPES[bound[type_name]]
    of = render.computed_of.get(type_name)
    return f"compute<{', '.join(TYPES[bound[v]] if v in bound else v for v in of)}>" if of else type_name


def spelled_out(render: Render, type_name: str) -> str:
    """A type where no alias is in scope."""
    return element_type(render, type_name, {})


def indented(text: str, by: int) -> str:
    return text.replace("\n", "\n" + " " * by)


def widest(stored_as: list[tuple[str, str]]) -> str:
    """The size of the widest element in C++, of operands as (dtype, type)."""
    fixed = max((DTYPES[dtype].bytes for dtype, _ in stored_as if dtype in DTYPES), default=0)
    sizes = [f"int(sizeof({v}))" for v in dict.fromkeys(type_name for dtype, type_name in stored_as if dtype not in DTYPES)]
    if fixed == 8 or not sizes:
        return str(fixed)
    text = sizes[0]
    for other in [*sizes[1:], *([str(fixed)] if fixed > 2 else [])]:
        text = f"wider({text}, {other})"
    return text
