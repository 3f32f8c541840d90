"""What a search along a row takes: `cutoff[N](x, w, p)`, the greatest t for which the weights w of the elements x >= t add up to p, and
`reach[N](w, p)`, the first place up to which they do.

In: the operands as checked values.  Out: why they are refused, or the type in which weights and amount are compared.  NaN is the greatest
of all; where the amount is never reached t is the least value of its dtype, and the place the row's length.  Weights are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgen.syntax import Apply
from kgen.types import DTYPES, INT, Dims, Float, Number, ValueType, i64, is_bool, is_float, promote, union
from kgen.values import Value, show_value

i32 = DTYPES["i32"]
#: The searches, with which of their operands are compared: the weights, and the amount that their sum has to reach.
SEARCHES = {"cutoff": (1, 2), "reach": (0, 1)}


def compared_type(op: str, values: Sequence[Value]) -> ValueType:
    """The type in which a search compares the sum of its weights with the amount: that of a sum, or of a float amount."""
    weight, amount = (values[k] for k in SEARCHES[op])
    summed = weight.type if is_float(weight.type) else i64
    common = promote([(summed, True), (amount.type, bool(amount.dims))])
    if common == INT or is_bool(common) or not isinstance(common, Number) and not is_float(common):
        return i64
    return Float(frozenset({"f32"})) if isinstance(common, Number) else common


def weight_type(op: str, values: Sequence[Value]) -> ValueType:
    """The type in which a search adds its weights up: that in which it compares, but i32 where it counts: a row has fewer elements."""
    weight, common = values[SEARCHES[op][0]], compared_type(op, values)
    return i32 if common is i64 and (is_bool(weight.type) or weight.op == "lit" and weight.attr == "1") else common


def refused(op: str, values: Sequence[Value], dims: Dims) -> tuple[str, int, str]:
    """Why a search does not take these operands, which of them, and what to do; nothing where it does."""
    amount = values[-1]
    if op == "cutoff" and is_bool(values[0].type):
        return "`cutoff` of a bool", 0, "cast it, as in `u8(x)`"
    if is_bool(amount.type):
        return f"the amount of `{op}` is a number, not a bool", len(values) - 1, "cast it, as in `i64(p)`"
    if shared := [d for d in dims if d in amount.dims]:
        return f"the amount of `{op}[{', '.join(dims)}]` has dim {shared[0]} itself", len(values) - 1, "it is one for each row"
    return "", 0, ""


def value(expressions: Any, node: Apply, given: list[int], dims: Dims) -> int | None:
    """The number of a search's value among those of `expressions`; None, with an error, where its operands are not what it takes."""
    values = [expressions.values[a] for a in given]
    message, k, help = refused(node.op, values, dims)
    if message:
        expressions.error(message, node.args[k].span, label=show_value(values[k]), help=help)
        return None
    every = tuple(d for d in union(*(v.dims for v in values[:-1])) if d not in dims)
    kind = i64 if node.op == "reach" else values[0].type
    return expressions.make(node.op, tuple(given), dims, kind, union(every, values[-1].dims), node.span)
