"""Casts by name in a spec: `f16(x)`, and in a mode: `f8e4m3[saturate](x)`, `bf16[stochastic](x, bits)`, `f8e8m0[up](x)`.

In: a call by a dtype's name.  Out: its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgen import host
from kgen.ops import CODES, CONVERTS, MODES, modes
from kgen.syntax import Apply
from kgen.types import DTYPES, DType, Float, Number, f64, is_float, is_int, is_variable, union
from kgen.values import Value, describe, show_value, stored_type

if TYPE_CHECKING:
    from kgen.expressions import Expressions


def cast(e: Expressions, node: Apply, args: list[int | None]) -> int | None:
    """The value of a cast; None, with an error, where the dtype has not that mode, or an operand is not what it takes."""
    how = mode(e, node)
    if how is None:
        return None
    wanted = ("x", "bits") if "stochastic" in how else ("x",)
    if not (given := e.operands_of(node, args, wanted)):
        return None
    t = stored_type(node.op)
    x, *bits = (e.values[a] for a in given)
    if how and not is_float(x.type):
        e.error(f"`{node.op}[{', '.join(how)}]` rounds floats, its operand is {describe(x)}", node.args[0].span, help="write `f32(...)`")
        return None
    if how and not lossless(e, node, x):
        return None
    if bits and (isinstance(bits[0].type, Number) or not is_int(bits[0].type)):
        e.error("the bits that decide a stochastic rounding are an integer tensor", node.args[1].span, label=show_value(bits[0]),
                help="32 random ones for each element, as a u32")  # fmt: skip
        return None
    if not e.fits(given[0], t, node.args[0]):
        return None
    dims = union(x.dims, *(b.dims for b in bits))
    made = e.make("cast", tuple(given), " ".join((node.op, *how)), t, dims, node.span)
    if given[0] in e.constants and isinstance(t, DType):
        e.constants[made] = host.to_dtype(e.constants[given[0]], t)
    return made


def converted(e: Expressions, node: Apply, args: list[int | None]) -> int | None:
    """The value of a code (`f8e4m3_value(u8(126))`), or the code of a value; None, with an error, where the operands are none."""
    dtype, how = CONVERTS[node.op]
    wanted = CODES[node.op].args
    if node.dims is not None:
        e.wrong_count(node, node.op, wanted)
        return None
    if not (given := e.operands_of(node, args, wanted)):
        return None
    x = e.values[given[0]].type
    if isinstance(x, Number) or is_int(x) != (how is None):
        kind, name = ("integers", "u8") if how is None else ("floats", "f32")
        message = f"`{node.op}` takes a tensor of {kind}, not {describe(e.values[given[0]])}"
        e.error(message, node.args[0].span, help=f"cast it, as in `{name}(x)`")
        return None
    code = DTYPES["u8" if dtype.bits <= 8 else "u16"]
    t = stored_type(dtype.name) if how is None else code
    if how is None and x is not code:
        given[0] = e.make("cast", (given[0],), code.name, code, e.values[given[0]].dims, node.span)
    return e.make(node.op, tuple(given), "", t, union(*(e.values[a].dims for a in given)), node.span)


def mode(e: Expressions, node: Apply) -> tuple[str, ...] | None:
    """What stands in a cast's brackets, in the order of MODES; None, with an error, where the dtype has no such mode."""
    if node.dims is None:
        return ()
    named = [d.name for d in node.dims]
    wrong = next((d for d in node.dims if d.name not in MODES), None)
    known = modes(DTYPES[node.op]) if node.op in DTYPES and DTYPES[node.op].bits <= 16 else ((), ("stochastic",)) if open_(node.op) else ()
    if known and wrong is None and (found := next((m for m in known if sorted(m) == sorted(named)), None)) is not None:
        return found
    said = ", ".join(f"`{node.op}[{', '.join(m)}]`" for m in known if m)
    help = f"there {'are' if ',' in said else 'is'} {said}" if said else "floats of 16 bits and fewer have such casts, by their own names"
    if named == ["saturate"] and node.op in DTYPES and DTYPES[node.op].is_int:
        help = f"a cast to an integer saturates: `{node.op}(...)`"
    e.error(f"`{node.op}` has no cast [{', '.join(named)}]", wrong.span if wrong is not None else node.head, help=help)
    return None


def open_(name: str) -> bool:
    """Whether casts by this name round by chance for some dtypes alone: a dtype variable, and what may be chosen for one."""
    return is_variable(name) or name in ("f32", "f64")


def lossless(e: Expressions, node: Apply, x: Value) -> bool:
    """Whether a cast by chance rounds nothing where its dtype has 32 bits or more, which have no such rounding; False with an error."""
    own = (node.op, f"{node.op}32", *(d.name for d in DTYPES.values() if d.is_float and d.computed is not f64))
    if not open_(node.op) or node.op == "f64" or isinstance(x.type, Float) and x.type.of <= {*own}:
        return True
    where = f"where {node.op} is f32" if is_variable(node.op) else "here"
    e.error(f"`{node.op}[stochastic]` rounds by chance to 16 bits alone, and {where} it would round {describe(x)}", node.args[0].span,
            help=f"write `{node.op}32(...)`" if is_variable(node.op) else "write `f32(...)`")  # fmt: skip
    return False
