"""Scans: their rows.  `cumsum[N](x)` has at each place along N what a reduction makes of the elements up to there.

A scan has the dims of its operands.  Behind its dim may stand `reversed` (from the last element to the first) and `exclusive` (without
the element itself: what stands before the first is the identity).  How two partial results are joined says the row of the table of
monoids by the same name (`kgen/monoids.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

REVERSED, EXCLUSIVE = "reversed", "exclusive"
MODIFIERS = (REVERSED, EXCLUSIVE)


class Scan(NamedTuple):
    """One kind of scan: its operands, its dtype rule ("sum", "same" or "float"), its value in torch, and its gradients.

    `torch` takes the module, the operands and the dim; None where torch has none.  `grad` gives each operand's share of the cotangent
    `dy`, in kgen's own language: `y` is the result, `{on}` the dim in the scan's own direction and `{back}` in the other one; `exclusive`
    the same of the exclusive scan.  `tangent` gives what each operand's tangent `dy` adds to the result's; `{out}` is the dim with all that
    stands behind it.  A gradient is a scan again, or made of scans; "0" is none.  `{more}` holds at all elements but the last in the scan's
    own direction, which no factor behind it multiplies: what that makes of an infinite one, times the 0 behind it, is no share of any.
    The `conditions` among the operands are bools, of which the dtype does not depend.
    """

    name: str
    args: tuple[str, ...]
    rule: str
    torch: Callable[..., Any] | None
    grad: tuple[str, ...]
    exclusive: tuple[str, ...]
    tangent: tuple[str, ...]
    conditions: tuple[str, ...] = ()


def _extreme(name: str) -> tuple[tuple[str], tuple[str], tuple[str]]:
    """The gradients of a running maximum or minimum: an element that is one has the cotangents up to the next that is.  Of equals, as in
    torch, the last counts."""

    def written(before: str, rule: str) -> tuple[str]:
        return (rule.replace("{taken}", f"(isnan(x) or x {'<=' if name == 'cummin' else '>='} {before})"),)

    own = f"{name}[{{on}}, exclusive](x)"
    return (
        written(own, "dy + cumsum_since[{back}, exclusive]({taken}, 0 if {taken} else dy) if {taken} else 0"),
        written("y", "cumsum_since[{back}, exclusive]({taken}, dy) if {taken} else 0"),
        written(own, "cumsum_since[{out}]({taken}, dy if {taken} else 0)"),
    )


#: Of a running sum of exponentials the part that an element has, and the part of what stands before it: of that alone a scan is kept.
_BEFORE = "logcumsumexp[{on}, exclusive](x)"
_OWN = f"(0 if x == -inf else sigmoid(x - {_BEFORE}))"
_STEP = f"(0 if {_BEFORE} == -inf else sigmoid({_BEFORE} - x))"
#: What the cotangents behind an element of a recurrence come to at it, and before it.
_LATER = "(dy + recur[{back}, exclusive](a if {more} else 1, a * dy))"
_PAST = "recur[{back}, exclusive](a if {more} else 1, dy)"

SCANS: dict[str, Scan] = {s.name: s for s in (
    Scan("cumsum", ("x",), "sum", lambda t, x, d: t.cumsum(x, d), ("cumsum[{back}](dy)",), ("cumsum[{back}, exclusive](dy)",),
         ("cumsum[{out}](dy)",)),
    Scan("cumprod", ("x",), "sum", lambda t, x, d: t.cumprod(x, d),
         ("cumprod[{on}, exclusive](x) * (dy + recur[{back}, exclusive](x if {more} else 1, x * dy))",),
         ("y * recur[{back}, exclusive](x if {more} else 1, dy) if {more} else 0",),
         ("recur[{out}](x, dy * cumprod[{on}, exclusive](x))",)),
    Scan("cummax", ("x",), "same", lambda t, x, d: t.cummax(x, d).values, *_extreme("cummax")),
    Scan("cummin", ("x",), "same", lambda t, x, d: t.cummin(x, d).values, *_extreme("cummin")),
    Scan("logcumsumexp", ("x",), "float", lambda t, x, d: t.logcumsumexp(x, d),
         (f"{_OWN} * (dy + recur[{{back}}, exclusive]({_STEP}, {_STEP} * dy))",),
         (f"{_OWN} * recur[{{back}}, exclusive]({_STEP}, dy)",), (f"recur[{{out}}]({_STEP}, {_OWN} * dy)",)),
    Scan("recur", ("a", "b"), "float", None, (f"recur[{{on}}, exclusive](a, b) * {_LATER}", _LATER),
         (f"y * {_PAST} if {{more}} else 0", _PAST),
         ("recur[{out}](a, dy * recur[{on}, exclusive](a, b))", "recur[{out}](a, dy)")),
    Scan("cumsum_since", ("begins", "x"), "sum", None,
         ("0", "dy + cumsum_since[{back}, exclusive](begins, 0 if begins else dy)"),
         ("0", "cumsum_since[{back}, exclusive](begins, dy)"), ("0", "cumsum_since[{out}](begins, dy)"), conditions=("begins",)),
)}  # fmt: skip


def split(attr: tuple[str, ...]) -> tuple[str, bool, bool]:
    """The dim of a scan, whether it runs backwards, and whether it is exclusive, from what stands in its brackets."""
    return attr[0], REVERSED in attr[1:], EXCLUSIVE in attr[1:]


def attrs(dim: str, backwards: bool, exclusive: bool) -> tuple[str, ...]:
    """What stands in a scan's brackets."""
    return (dim, *([REVERSED] if backwards else []), *([EXCLUSIVE] if exclusive else []))


#: The factors of a recurrence behind each element, of which the last multiplies nothing.
_FACTORS = " if {more} else 1"


def rules(name: str, attr: tuple[str, ...], tangents: bool = False, numbers: bool = False) -> tuple[str, ...]:
    """The gradient by each operand of a scan, or what its tangent adds; the dim is written as `D`.  `numbers`: its first operand is a
    number, which has no dtype that a choice among elements could have."""
    row, (_, backwards, exclusive) = SCANS[name], split(attr)
    on, back, out = (", ".join(attrs("D", *how)) for how in ((backwards, False), (not backwards, False), (backwards, exclusive)))
    chosen = row.tangent if tangents else row.exclusive if exclusive else row.grad
    if numbers:
        chosen = tuple(rule.replace(_FACTORS, "") for rule in chosen)
    named = {"{on}": on, "{back}": back, "{out}": out, "{more}": "index[D] > 0" if backwards else "index[D] < D - 1"}
    for mark, text in named.items():
        chosen = tuple(rule.replace(mark, text) for rule in chosen)
    return chosen


def depth(n: int) -> int:
    """The most joins that one of `n` scanned elements passes through on any target.

    CUDA: 16 of a thread, 12 of a warp and of a block, then tiles by eights, to 4,096 of them, which go one after the other
    (kgen_scans.cuh); of columns 8 of a thread, 16 of a block, 16 tiles, and these of 512 elements or more one after the other
    (kgen_beside.cuh).  Triton: a tree of twice the depth of a tile, then tiles of at least 512.
    C++: 64 of a block, then blocks in pairs, twice over.
    """
    return max(0, min(n + 1, 352 + 2 * n.bit_length() + -(-n // 512)))
