"""What whole numbers a value can be, whatever the tensors: where none can leave its dtype, an operator needs no wrapping in the source.

In: a program.  Out: the lets whose results lie within their dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kgen.ir import Let, Program, exact
from kgen.types import INT, DType, is_bool, is_int

Range = tuple[int, int]  # the least and the greatest

#: Positions along a dim are below it: no kernel has gone through so many elements.
POSITIONS = 2**60


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


#: The range of an operator's exact result.
_RULES: Mapping[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _product,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(0, a[0], -a[1]), max(abs(a[0]), abs(a[1]))),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "where": lambda c, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "cast": lambda a: a,
}


def limits(let: Let) -> Range:
    """The range of an integer's or a bool's dtype."""
    if is_bool(let.dtype):
        return 0, 1
    bits = let.dtype.bits if isinstance(let.dtype, DType) else 64
    return (0, 2**bits - 1) if isinstance(let.dtype, DType) and let.dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def within(program: Program) -> frozenset[str]:
    """The names of the integer lets whose exact results lie within their dtype, whatever the tensors hold."""
    ranges: dict[str, Range] = {}
    found: set[str] = set()
    for let in program.lets:
        if not (is_int(let.dtype) or is_bool(let.dtype)):
            continue
        least, most = limits(let)
        op, rule = let.expr.name, _RULES.get(let.expr.name)
        made: Range | None = None
        if op == "lit" and let.dtype == INT:
            made = (int(exact(let.expr.attrs[0])),) * 2
        elif op == "index":
            made = 0, POSITIONS
        elif op == "size":
            made = 0, most
        elif rule is not None and not let.expr.attrs and all(o.name in ranges for o in let.expr.operands):
            made = rule(*(ranges[o.name] for o in let.expr.operands))
        if made is not None and least <= made[0] and made[1] <= most:
            found.add(let.name)
        else:
            made = least, most
        ranges[let.name] = made
    return frozenset(found)
