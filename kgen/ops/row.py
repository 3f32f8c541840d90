"""What a row of the table of operators says: its fields, and what follows from them."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from kgen.ops.intervals import Move, Slopes

#: Binding strength of a spelling, for brackets: a call or name, a prefix, then C's and Python's infix levels.
CALL, UNARY, PRODUCT, SUM, LOOSE = 9, 8, 7, 6, 0


@dataclass(frozen=True, eq=False)
class Spell:
    """How one target writes an operator, with `{0}` `{1}` ... for operands, by kind of operand (where a kind has no
    text of its own it takes the one before it: uint and bool that of int, int that of float).

    `{F}` is the operands' dtype and `{U}` the unsigned integer it is computed in.  `infix` is the precedence of the
    text (operands that bind less tightly get brackets); functions that the text calls and the target lacks stand in
    `templates/<target>/functions/`, or in `source`, which defines the one that the text begins with; `ulp` is the bound for f32
    and for f64.
    """

    float: str = ""
    int: str = ""
    bool: str = ""
    uint: str = ""
    infix: builtins.int = CALL
    ulp: tuple[builtins.float, builtins.float] = (0.5, 0.5)
    source: str = ""

    def text(self, kind: str) -> str:
        signed = self.int or self.float
        return {"float": self.float, "int": signed, "uint": self.uint or signed, "bool": self.bool or signed}[kind]


class Brief(NamedTuple):
    """The forms of an operator for results of 16 bits (see `precision.py`): `fast_<name>` of a target's functions, within 2^-16
    of the value, where `rough` is given `rough_<name>`, within 2^-10.9, where `coarse` is (of what is not negative) `coarse_<name>`, within
    2^-11.9 whatever the value, and for differences `near_<name>`, within 2^-20 of what a slightly other argument gives; what each costs,
    as in `Op`.  Where `near` is not given, the brief form is that near.
    `about` is the value in words, of x (and y), where the name and its operands are none."""

    cost: tuple[builtins.int, builtins.int]
    rough: tuple[builtins.int, builtins.int] | None = None
    near: tuple[builtins.int, builtins.int] | None = None
    coarse: tuple[builtins.int, builtins.int] | None = None
    about: str = ""

    def named(self, form: str) -> str:
        """The form whose function is taken for this one."""
        return "brief" if form in ("near", "rough", "coarse") and getattr(self, form) is None else form


class Notation(NamedTuple):
    """How an operator is written beside `name(operands)`: mathematics' own sign and LaTeX's (of a function without a sign LaTeX's
    command, if it has one); the function of Python's `operator` that a sign of Python's stands for; `layout` is "fraction", "power",
    "root", or "fences" around the operand, of which `sign` has two, and in whose LaTeX the operand is `{0}`."""

    sign: str = ""
    latex: str = ""
    python: str = ""
    layout: str = ""


def _unknown(*low: float) -> float:
    return -float("inf")


class Sign(NamedTuple):
    """What is known of a result's sign from its operands': `of` takes and gives 1 (surely not negative), -1 (not positive) or 0.
    `floor` takes numbers below which the operands cannot lie as a target computes them, and gives the result's (-inf where none is
    known); roundings keep it, for each is monotone."""

    of: Callable[..., int] = lambda *signs: 0
    floor: Callable[..., float] = _unknown


def never(*signs: int) -> bool:
    return False


class Errors(NamedTuple):
    """What bounds on errors must know of an operator beyond its spellings' ulp.  The callables take a `Move`, which has the operands,
    the result and the operands' errors as float64 tensors.

    `exact` operators choose or round by definition: what they give is not rounded again.  `calm` says whether a relative error of
    operand `k` is one of no more than that size of the result, given `k` and the operands' signs (as in `Sign`); `steady`, whether an
    error of operand `k` moves the result by no more than itself times the sizes of the other operands.  `slopes` gives the
    derivatives and a bound on what they leave out; without it an operator's error is its own alone.  `moved` says how far the result
    moves with the operands, where evaluating at the ends of their intervals does not (None: it does), also where nothing moves if
    `reads_sign`, since the sign of a NaN is not said; `between` takes what the ends show as well, and adds what lies between them:
    poles and jumps.  `zeros`: a zero is no underflow.  `scale` is what the f64 bound is relative to, where it is larger than the
    result.
    """

    exact: bool = False
    calm: Callable[..., bool] = never
    steady: Callable[[int], bool] = never
    slopes: Callable[[Move], Slopes | None] | None = None
    moved: Callable[[Move], Any] | None = None
    reads_sign: bool = False
    between: Callable[[Move, Any], Any] | None = None
    zeros: bool = False
    scale: Callable[[Move], Any] | None = None


class Eager(NamedTuple):
    """Where torch's own function is not what it should be: `widen`, its f32 has to be taken by way of f64; `exact` betters its
    float64, from torch, the operand and torch's value; `rough`, its f32 keeps no bound."""

    widen: bool = False
    exact: Callable[[Any, Any, Any], Any] | None = None
    rough: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """One row: see the docstring of `kgen.ops`.  `args` names the operands as `grad` and `sympy` use them.

    `grad` has an expression an operand (None where there is no derivative to give; "0" where it vanishes); `y` is the
    result and `dy` its gradient.  `sympy` is a formula in SymPy's names, empty where the function has kinks; `torch`
    is a name in torch or a function of torch and the operands; `cost` counts (instructions, special-function
    instructions) an f32 element takes on an NVIDIA GPU, for the predicted bound; `breaks` marks functions with jumps.
    `host` is the value on Python numbers, floats or integers (`kgen.ops.numbers`); `python` is how the host part of a Triton file
    writes that, where it is not torch's function of tensors in f64.
    """

    name: str
    args: tuple[str, ...]
    rule: str
    torch: str | Callable[..., Any]
    grad: tuple[str | None, ...]
    sympy: str
    cost: tuple[int, int]
    cpp: Spell
    cuda: Spell
    triton: Spell
    host: Callable[..., Any]
    python: Spell = Spell()
    bools: bool = False
    breaks: bool = False
    brief: Brief | None = None
    notation: Notation = Notation()
    sign: Sign = Sign()
    errors: Errors = Errors()
    eager: Eager = Eager()

    @property
    def arity(self) -> int:
        return len(self.args)

    def spell(self, target: str) -> Spell:
        """The column of a target, with its bounds."""
        return getattr(self, target)

    def python_text(self, kind: str) -> str:
        """How Python writes it on numbers, for a kind of operand."""
        name = self.name if callable(self.torch) else self.torch
        operands = ", ".join(f"{{{k}}}" for k in range(self.arity))
        return self.python.text(kind) or f"host_f64(torch.{name}, {operands})"

    def cost_of(self, form: str) -> tuple[builtins.int, builtins.int]:
        """What an element takes in one of its forms."""
        if not form or self.brief is None:
            return self.cost
        return getattr(self.brief, self.brief.named(form), None) or self.brief.cost

    def reference(self, torch: Any) -> Callable[..., Any]:
        """The eager PyTorch function of the row, from the torch module."""
        if callable(self.torch):
            function = self.torch
            return lambda *xs: function(torch, *xs)
        found = torch
        for part in self.torch.split("."):
            found = getattr(found, part)
        return found


class Reduction(NamedTuple):
    """One kind of reduction: its dtype rule ("sum", "same", "float", "bool" or "index"), torch's name, its identity, and its gradient.

    `grad` gives an element's share of the cotangent `dy` ("" where there is none to give); `x` is the operand, `y` the result
    and `D` the dims.  Greatest and least elements that are equal share it, as `amax` does in torch.  `sign` and
    of `errors` `calm` are as in `Op`; `args` names the operands.
    """

    name: str
    rule: str
    torch: str
    identity: str
    grad: str = ""
    sign: Sign = Sign()
    errors: Errors = Errors()
    args: tuple[str, ...] = ("x",)
