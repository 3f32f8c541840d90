"""Scans in a kernel's graph of values, and in its program.

In: a call such as `cumsum[N, reversed](x)`, or a let.  Out: its value, or what it scans over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kgen.ops import SCANS
from kgen.ops.scans import MODIFIERS, attrs
from kgen.syntax import Apply
from kgen.types import ELLIPSIS, Dims, Float, Number, ValueType, i64, is_bool, is_float, promote, union
from kgen.values import describe, show_value

if TYPE_CHECKING:
    from kgen.expressions import Expressions


def scan(e: Expressions, node: Apply, args: list[int | None], env: dict[str, Dims] | None) -> int | None:
    """The value of a scan; None, with an error, where its operands have not that dim or not that dtype."""
    row, named = SCANS[node.op], node.dims or ()
    modifiers = tuple(d.name for d in named[1:])
    spelled = f"{node.op}[N]({', '.join(row.args)})"
    wrong = next((d for d in named[1:] if d.name not in MODIFIERS), None)
    if not named or wrong is not None:
        e.error(f"`{node.op}` goes along one dim", wrong.span if wrong is not None else node.head,
                help=f"write `{spelled}`; `reversed` and `exclusive` may stand behind the dim")  # fmt: skip
        return None
    if len(set(modifiers)) < len(modifiers):
        e.error(f"`{modifiers[0]}` stands twice here", node.head)
        return None
    dims = e.dims_of(replace(node, dims=named[:1]), env)
    if dims is None:
        return None
    if len(dims) != 1 or dims[0] == ELLIPSIS:
        e.error(f"`{node.op}` goes along one named dim", node.head, help=f"write `{spelled}`")
        return None
    if not (given := e.operands_of(node, args, row.args)):
        return None
    values = [e.values[a] for a in given]
    over = union(*(v.dims for v in values))
    if dims[0] not in over:
        e.error(f"`{node.op}` goes along {dims[0]}, which its operand does not have", node.head, label=show_value(values[0]))
        return None
    for name, v, arg in zip(row.args, values, node.args, strict=True):
        if name in row.conditions and not is_bool(v.type):
            e.error(f"`{name}` of `{node.op}` is a condition, not {describe(v)}", arg.span, help="write a comparison, as in `x != 0`")
            return None
    scanned = [(v.type, bool(v.dims)) for name, v in zip(row.args, values, strict=True) if name not in row.conditions]
    t = result_type(e, node, promote(scanned))
    where = attrs(dims[0], MODIFIERS[0] in modifiers, MODIFIERS[1] in modifiers)
    return None if t is None else e.make(node.op, tuple(given), where, t, over, node.span)


def result_type(e: Expressions, node: Apply, t: ValueType) -> ValueType | None:
    """The dtype of a scan of a dtype, as torch has it; None, with an error, where there is none."""
    rule = SCANS[node.op].rule
    if rule == "sum" and not is_float(t):
        return i64
    if rule == "float" and not is_float(t) or rule == "same" and is_bool(t):
        e.error(f"`{node.op}` of {t}", node.head, help="cast it, as in `f32(x)`")
        return None
    return Float(frozenset({"f32"})) if isinstance(t, Number) else t


def is_scan(let: object) -> bool:
    """Whether a let, or a value, is a scan."""
    expr = getattr(let, "expr", None)
    return (getattr(let, "op", "") if expr is None else expr.name) in SCANS


def over(op: str, attr: object) -> Dims:
    """The dim that a scan goes along; none of anything else."""
    return tuple(attr[:1]) if op in SCANS and isinstance(attr, tuple) else ()
